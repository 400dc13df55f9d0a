//! KDB: a folder for each episode (`docs/TREE.md`, section 4). Nodes are computed: an episode costs no memory until it
//! is accessed.

mod episodes;
mod pictures;
mod tables;

use std::{borrow::Cow, ops::ControlFlow, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Map, json};

use super::{
    Child, Container, DESCRIPTION, Episodes, Format, ItemInfo, NodeId, NodeKind, Notice, Notices, Overview, Timeline,
    describe, memory::with_memory, overview::Contents, tables::laid_out,
};
use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    format::{
        DType,
        kdb::{self, Episode, Header, Meta, PartError},
    },
    view::{Array, Fault, ReadContext, Strided, View, json, parquet::Parquet},
};
use pictures::Pictures;
use tables::KnownSteps;

/// KDB, recorded robot episodes.
pub static KDB: Format = Format {
    name: "kdb",
    title: "KDB",
    summary: "recorded robot episodes with cameras",
    suffixes: &[".kdb"],
    recognise: |front| front.by_magic(&kdb::MAGIC, kdb::HEADER),
    probe: |source, _, _| kdb::probe(source),
    open: |reader, _, _| Ok(Arc::new(open(kdb::parse(&*reader.source)?))),
    fixtures: &["demo.kdb"],
    ..Format::DEFAULT
};

/// Kind of a node. Together with the episode's position, and the number of a camera or picture in it, it identifies the
/// node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Root,
    Description,
    Episodes,
    Episode,
    Meta,
    State,
    Action,
    Reward,
    IsTerminal,
    Images,
    Camera,
    Picture,
    Stack,
    EpisodesTable,
    StepsTable,
}

/// All parts, in the order of their numbers.
const PARTS: [Part; 15] = [
    Part::Root,
    Part::Description,
    Part::Episodes,
    Part::Episode,
    Part::Meta,
    Part::State,
    Part::Action,
    Part::Reward,
    Part::IsTerminal,
    Part::Images,
    Part::Camera,
    Part::Picture,
    Part::Stack,
    Part::EpisodesTable,
    Part::StepsTable,
];

/// Entries of an episode's folder, in the order of a listing.
const EPISODE: [(&str, Part); 6] = [
    ("action.npy", Part::Action),
    ("images", Part::Images),
    ("is_terminal.npy", Part::IsTerminal),
    ("meta.json", Part::Meta),
    ("reward.npy", Part::Reward),
    ("state.npy", Part::State),
];

/// A node, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    part: Part,
    episode: u64,
    item: u32,
}

impl Node {
    fn of(part: Part, episode: u64, item: u32) -> Self {
        Self { part, episode, item }
    }

    /// Unpacks a node number; `None` for a number that no node has.
    fn unpack(id: NodeId) -> Option<Self> {
        let part = *PARTS.get(usize::try_from(id.0 >> 96).ok()?)?;
        Some(Self { part, episode: id.0 as u64, item: (id.0 >> 64) as u32 })
    }

    fn pack(self) -> NodeId {
        NodeId((self.part as u128) << 96 | u128::from(self.item) << 64 | u128::from(self.episode))
    }
}

/// Index entries that are read at once, because readers of one episode usually read the next ones.
const ENTRIES_AT_ONCE: u64 = 64;

/// Memory that remembered index entries take. It counts as part of the container's memory from the start.
const REMEMBERED: usize = ENTRIES_AT_ONCE as usize * size_of::<Episode>();

/// Tags of what the cache keeps of episodes, by their positions: where their pictures are, and their metadata.
const PICTURES: Tag = Tag::Parsed(0);
const META: Tag = Tag::Parsed(1);

/// A KDB file.
pub(super) struct Kdb {
    header: Header,
    warnings: Vec<String>,
    /// The most recently read index entries. Looking up a file and its first read need the same ones.
    entries: Mutex<Vec<Episode>>,
    notices: Notices,
    steps: KnownSteps,
}

/// Returns the tree of a KDB file.
fn open(header: Header) -> Kdb {
    let mut warnings = Vec::new();
    if header.num_episodes != header.episodes() {
        let (claimed, counted) = (header.num_episodes, header.episodes());
        warnings.push(format!("the header counts {claimed} episodes, the index has {counted}"));
    }
    Kdb { header, warnings, entries: Mutex::default(), notices: Notices::default(), steps: KnownSteps::default() }
}

impl Kdb {
    fn describe(&self, reader: &ReadContext) -> Result<Vec<u8>, Fault> {
        let Header { version, num_episodes, num_frames, index_offset, index_length, created_timestamp } = self.header;
        let mut description = json!({
            "format": KDB.name,
            "version": format!("{}.{}", version.0, version.1),
            "header": {"num_episodes": num_episodes, "num_frames": num_frames, "index_offset": index_offset,
                       "index_length": index_length, "created_timestamp": created_timestamp},
            "episodes": self.header.episodes(),
            "items": [],
        });
        if let Some(description) = description.as_object_mut() {
            description.extend(self.described_tables(reader)?);
        }
        Ok(json::document(&description))
    }

    /// A table, by its part.
    fn table(&self, reader: &ReadContext, part: Part) -> Result<Arc<Parquet>, Fault> {
        match part {
            Part::EpisodesTable => laid_out(reader, 0, |memory| self.episodes_table(reader, memory)),
            _ => laid_out(reader, 1, |memory| self.steps_table(reader, memory)),
        }
    }

    /// Returns the index entry of an episode, read together with the next ones.
    fn episode(&self, reader: &ReadContext, position: u64) -> Result<Episode, Fault> {
        let known = |entries: &[Episode]| {
            let at = position.checked_sub(entries.first()?.position)?;
            entries.get(usize::try_from(at).ok()?).copied()
        };
        if let Some(episode) = known(&self.entries.lock()) {
            return Ok(episode);
        }
        if let Ok(entries) = self.header.episodes_from(&*reader.source, position, ENTRIES_AT_ONCE)
            && let Some(episode) = known(&entries)
        {
            *self.entries.lock() = entries;
            return Ok(episode);
        }
        let offset = self.header.index_offset;
        match self.header.episode(&*reader.source, position) {
            Ok(Some(episode)) => Ok(episode),
            Ok(None) => Err(fault(offset, BlockError::Refused(format!("there is no episode {position}")))),
            Err(error) => Err(fault(offset, error.into())),
        }
    }

    /// Notes damage. `offset` is that of the part, or of the damage in it.
    fn note(&self, part: Part, episode: u64, offset: u64, message: String) {
        let node = Node::of(part, episode, 0).pack();
        self.notices.add(Notice { node, offset: Some(offset), message });
    }

    /// Returns a part if it is sound. Damage is noted and the part left out.
    fn sound<T>(
        &self,
        part: Part,
        episode: &Episode,
        at: u64,
        found: Result<T, PartError>,
    ) -> Result<Option<T>, Fault> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(PartError::Damaged(reason)) => {
                self.note(part, episode.position, at, reason);
                Ok(None)
            }
            Err(PartError::Source(error)) => Err(fault(at, error.into())),
        }
    }

    /// Returns whether a part of an episode exists, as far as that is known without walking its pictures.
    fn has(&self, reader: &ReadContext, episode: &Episode, part: Part) -> Result<bool, Fault> {
        let source = &*reader.source;
        Ok(match part {
            Part::Meta => {
                let meta = self.sound(part, episode, episode.meta.offset, self.meta_of(reader, episode))?;
                if meta.as_ref().is_some_and(|meta| !meta.is_utf8) {
                    self.note(part, episode.position, episode.meta.offset, "its texts are not UTF-8".into());
                }
                meta.is_some()
            }
            Part::State | Part::Action | Part::Reward | Part::IsTerminal => {
                let rows = self.sound(Part::Episode, episode, episode.rows.offset, episode.locate_rows(source))?;
                if let Some(surplus) = rows.map(|rows| rows.surplus).filter(|&surplus| surplus > 0) {
                    let reason = format!("{surplus} bytes behind the rows: their numbers may have been shifted");
                    self.note(Part::Episode, episode.position, episode.rows.offset, reason);
                }
                rows.is_some()
            }
            Part::Images if episode.has_images() => {
                self.sound(part, episode, episode.images.offset, episode.images.range(source))?.is_some()
            }
            Part::Images => {
                let length = episode.images.length;
                if length > 0 && length < 2 * u64::from(episode.num_frames) {
                    let reason =
                        format!("{length} bytes of pictures are fewer than {} frames need", episode.num_frames);
                    self.note(Part::Episode, episode.position, episode.images.offset, reason);
                }
                false
            }
            _ => false,
        })
    }

    /// Returns the pictures of an episode, walked at most once while they are remembered.
    fn pictures(&self, reader: &ReadContext, position: u64) -> Result<Arc<Pictures>, Fault> {
        let key = Key::new(reader.container, PICTURES, position, 0);
        if let Some(pictures) = reader.cache.parsed(key) {
            return Ok(pictures);
        }
        // The walk reads the head of every picture, and waits for memory.
        reader.may_work()?;
        let episode = self.episode(reader, position)?;
        let (pictures, room) =
            with_memory(&reader.cache, |memory| match episode.read_images(&*reader.source, &memory) {
                Ok(images) => Pictures::new(images, episode.num_frames, memory),
                Err(PartError::Source(error)) => Err(fault(episode.images.offset, error.into())),
                Err(PartError::Damaged(reason)) => Err(fault(episode.images.offset, BlockError::Refused(reason))),
            })?;
        let images = pictures.images();
        if let Some((offset, reason)) = &images.damage {
            let reason = format!("{reason}; it and the frames behind it are not shown");
            self.note(Part::Images, position, *offset, reason);
        }
        if images.surplus > 0 {
            self.note(
                Part::Images,
                position,
                episode.images.offset,
                format!("{} bytes behind the last frame", images.surplus),
            );
        }
        Ok(reader.cache.keep_parsed(key, pictures, room))
    }

    /// Returns an array of one field of the rows.
    fn field(&self, reader: &ReadContext, node: Node) -> Result<Array, Fault> {
        let episode = self.episode(reader, node.episode)?;
        let rows = match episode.locate_rows(&*reader.source) {
            Ok(rows) => rows,
            Err(PartError::Source(error)) => return Err(fault(episode.rows.offset, error.into())),
            Err(PartError::Damaged(reason)) => return Err(fault(episode.rows.offset, BlockError::Refused(reason))),
        };
        let frames = u64::from(episode.num_frames);
        let (state, action) = (u64::from(episode.state_dim), u64::from(episode.action_dim));
        // Offset of the field in a row, and its bytes.
        let (dtype, shape, field, width): (_, &[u64], _, _) = match node.part {
            Part::State => (DType::F32, &[frames, state], 0, 4 * state),
            Part::Action => (DType::F32, &[frames, action], 4 * state, 4 * action),
            Part::Reward => (DType::F32, &[frames], rows.stride - 5, 4),
            _ => (DType::Bool, &[frames], rows.stride - 1, 1),
        };
        let field = Strided { start: rows.start + field, stride: rows.stride, width, swap: 1 };
        let data = View::default().with_rendered(frames * width, field);
        Ok(Array::new(dtype, shape, if dtype == DType::Bool { data.into_bool() } else { data }))
    }

    /// Reads the metadata of an episode.
    fn meta_of(&self, reader: &ReadContext, episode: &Episode) -> Result<Arc<Meta>, PartError> {
        reader.cache.parsed_or_make(Key::new(reader.container, META, episode.position, 0), || {
            let meta = episode.read_meta(&*reader.source)?;
            let usage = size_of::<Meta>() + meta.embodiment.len() + meta.task.len();
            Ok((meta, reader.cache.hold(usage as u64)))
        })
    }

    fn meta(&self, reader: &ReadContext, position: u64) -> Result<View, Fault> {
        let episode = self.episode(reader, position)?;
        match self.meta_of(reader, &episode) {
            Ok(meta) => Ok(View::inline(meta_json(&episode, &meta))),
            Err(PartError::Source(error)) => Err(fault(episode.meta.offset, error.into())),
            Err(PartError::Damaged(reason)) => Err(fault(episode.meta.offset, BlockError::Refused(reason))),
        }
    }
}

/// Returns `meta.json` (`docs/TREE.md`, section 4). serde_json writes NaN and infinities as `null`.
fn meta_json(episode: &Episode, meta: &Meta) -> Vec<u8> {
    json::document(&json!({
        "position": episode.position,
        "episode_id": episode.episode_id,
        "embodiment": meta.embodiment,
        "task": meta.task,
        "fps": meta.fps,
        "success": meta.success,
        "total_reward": meta.total_reward,
        "num_frames": episode.num_frames,
        "state_dim": episode.state_dim,
        "action_dim": episode.action_dim,
    }))
}

impl Container for Kdb {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let Some(folder) = Node::unpack(folder) else { return Ok(None) };
        let position = folder.episode;
        let node = match folder.part {
            Part::Root => match name {
                DESCRIPTION => Some(Node::of(Part::Description, 0, 0)),
                "episodes" => Some(Node::of(Part::Episodes, 0, 0)),
                tables::EPISODES if self.has_tables() => Some(Node::of(Part::EpisodesTable, 0, 0)),
                tables::STEPS if self.has_tables() => Some(Node::of(Part::StepsTable, 0, 0)),
                _ => None,
            },
            Part::Episodes => {
                let position = name.parse::<u64>().ok().filter(|number| number.to_string() == name);
                let position = position.filter(|&position| position < self.header.episodes());
                position.map(|position| Node::of(Part::Episode, position, 0))
            }
            Part::Episode => {
                let Some(&(_, part)) = EPISODE.iter().find(|(known, _)| *known == name) else { return Ok(None) };
                let episode = self.episode(reader, position)?;
                self.has(reader, &episode, part)?.then(|| Node::of(part, position, 0))
            }
            Part::Images => {
                let found = self.pictures(reader, position)?.find(name);
                found.map(|(camera, is_folder)| {
                    Node::of(if is_folder { Part::Camera } else { Part::Stack }, position, camera)
                })
            }
            Part::Camera => {
                let found = self.pictures(reader, position)?.find_picture(folder.item, name);
                found.map(|record| Node::of(Part::Picture, position, record))
            }
            _ => None,
        };
        Ok(node.map(Node::pack))
    }

    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let Some(folder) = Node::unpack(folder) else { return Ok(()) };
        let mut show = |next, name: &str, part, episode, item| {
            let is_folder = matches!(part, Part::Episodes | Part::Episode | Part::Images | Part::Camera);
            each(Child { next, name, node: Node::of(part, episode, item).pack(), is_folder })
        };
        let position = folder.episode;
        match folder.part {
            Part::Root => {
                let children = [
                    (DESCRIPTION, Part::Description),
                    ("episodes", Part::Episodes),
                    (tables::EPISODES, Part::EpisodesTable),
                    (tables::STEPS, Part::StepsTable),
                ];
                let shown = if self.has_tables() { 4 } else { 2 };
                for (next, (name, part)) in (1..=shown).zip(children).filter(|(next, _)| *next > from) {
                    if show(next, name, part, 0, 0).is_break() {
                        break;
                    }
                }
            }
            Part::Episodes => {
                for position in from..self.header.episodes() {
                    if show(position + 1, &position.to_string(), Part::Episode, position, 0).is_break() {
                        break;
                    }
                }
            }
            Part::Episode => {
                let episode = self.episode(reader, position)?;
                for (next, (name, part)) in (1..).zip(EPISODE).filter(|(next, _)| *next > from) {
                    if self.has(reader, &episode, part)? && show(next, name, part, position, 0).is_break() {
                        break;
                    }
                }
            }
            Part::Images => {
                for (next, name, camera, is_folder) in self.pictures(reader, position)?.names_from(from) {
                    let part = if is_folder { Part::Camera } else { Part::Stack };
                    if show(next, name, part, position, camera).is_break() {
                        break;
                    }
                }
            }
            Part::Camera => {
                for (next, name, record) in self.pictures(reader, position)?.pictures_from(folder.item, from) {
                    if show(next, &name, Part::Picture, position, record).is_break() {
                        break;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        let folder = |subfolders| NodeKind::Folder { subfolders };
        Ok(Node::unpack(node).map(|node| match node.part {
            Part::Root => folder(Some(1)),
            Part::Episodes => folder(u32::try_from(self.header.episodes()).ok()),
            // The index entry says whether there is `images/`; the cameras take a walk.
            Part::Episode | Part::Images => folder(None),
            Part::Camera => folder(Some(0)),
            _ => NodeKind::File,
        }))
    }

    fn parent(&self, reader: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        let Some(Node { part, episode, item }) = Node::unpack(node) else { return Ok(super::ROOT) };
        let parent = match part {
            Part::Root | Part::Description | Part::Episodes | Part::EpisodesTable | Part::StepsTable => {
                return Ok(super::ROOT);
            }
            Part::Episode => Node::of(Part::Episodes, 0, 0),
            Part::Meta | Part::State | Part::Action | Part::Reward | Part::IsTerminal | Part::Images => {
                Node::of(Part::Episode, episode, 0)
            }
            Part::Camera | Part::Stack => Node::of(Part::Images, episode, 0),
            Part::Picture => {
                let camera = self.pictures(reader, episode)?.camera_of(item);
                camera.map_or(Node::of(Part::Images, episode, 0), |camera| Node::of(Part::Camera, episode, camera))
            }
        };
        Ok(parent.pack())
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let Some(Node { part, episode, item }) = Node::unpack(node) else { return Ok(String::new()) };
        let name: Cow<'_, str> = match part {
            Part::Root => return Ok(String::new()),
            Part::Description => return Ok(DESCRIPTION.into()),
            Part::Episodes => return Ok("episodes".into()),
            Part::EpisodesTable => return Ok(tables::EPISODES.into()),
            Part::StepsTable => return Ok(tables::STEPS.into()),
            Part::Episode => return Ok(format!("episodes/{episode}")),
            Part::Camera | Part::Stack => {
                self.pictures(reader, episode)?.name(item, part == Part::Camera).to_owned().into()
            }
            Part::Picture => self.pictures(reader, episode)?.picture_name(item).into(),
            part => EPISODE.iter().find(|(_, known)| *known == part).map_or("", |(name, _)| name).into(),
        };
        Ok(format!("{}/{name}", self.path(reader, self.parent(reader, node)?)?))
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(View::default()) };
        match node.part {
            Part::Description => Ok(View::shared(self.description(reader)?)),
            Part::EpisodesTable | Part::StepsTable => Ok(self.table(reader, node.part)?.view()),
            Part::Meta => self.meta(reader, node.episode),
            Part::State | Part::Action | Part::Reward | Part::IsTerminal => Ok(self.field(reader, node)?.npy()),
            Part::Picture => Ok(self.pictures(reader, node.episode)?.picture(node.item)),
            Part::Stack => {
                let stack = self.pictures(reader, node.episode)?.stack(node.item);
                Ok(stack.map_or_else(View::default, Array::npy))
            }
            Part::Root | Part::Episodes | Part::Episode | Part::Images | Part::Camera => Ok(View::default()),
        }
    }

    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(None) };
        Ok(match node.part {
            Part::State | Part::Action | Part::Reward | Part::IsTerminal => Some(self.field(reader, node)?),
            Part::Picture => self.pictures(reader, node.episode)?.array(node.item),
            Part::Stack => self.pictures(reader, node.episode)?.stack(node.item),
            _ => None,
        })
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::kept(reader, 0, |_| Ok(self.describe(reader)?.into()))
    }

    fn memory_usage(&self) -> usize {
        let steps = self.steps.lock().as_ref().map_or(0, |steps| steps.memory_usage());
        REMEMBERED + steps
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        let contents = Contents::Episodes { count: self.header.episodes(), front: Map::new() };
        Ok(Overview { format: KDB.name, contents })
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn notices(&self) -> Option<&Notices> {
        Some(&self.notices)
    }

    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        match Node::unpack(node) {
            Some(Node { part, .. }) if self.is_table(reader, node) => {
                Ok(Some(crate::tree::tables::item_info(&*self.table(reader, part)?)))
            }
            _ => Ok(self.array(reader, node)?.map(ItemInfo::from)),
        }
    }

    fn episodes(&self) -> Option<&dyn Episodes> {
        Some(self)
    }

    fn timeline(&self, reader: &ReadContext, folder: NodeId) -> Result<Option<Timeline>, Fault> {
        match Node::unpack(folder) {
            Some(Node { part: Part::Episode, episode, .. }) => self.timeline_of(reader, episode).map(Some),
            _ => Ok(None),
        }
    }

    fn is_table(&self, _: &ReadContext, node: NodeId) -> bool {
        Node::unpack(node).is_some_and(|node| matches!(node.part, Part::EpisodesTable | Part::StepsTable))
    }
}

fn fault(offset: u64, error: BlockError) -> Fault {
    Fault { block: None, offset, error: Arc::new(error) }
}
