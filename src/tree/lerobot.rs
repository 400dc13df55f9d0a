//! LeRobot data sets: a folder for each episode (`docs/formats/lerobot.md` 10). Nodes are computed: until an episode is
//! accessed, only its metadata take memory.

mod described;
mod episodes;
mod files;
mod nodes;
mod numbers;
mod parts;
mod pictures;
mod recordings;
mod tables;
mod texts;
mod videos;

use std::{
    collections::HashMap,
    ops::{ControlFlow, Range},
    sync::{Arc, OnceLock, Weak},
};

use serde_json::{Map, json};

use super::{
    Child, Container, ItemInfo, NodeId, NodeKind, Notice, Notices, Overview, Siblings, Timeline, WorkingMemory,
    columns::Columns,
    describe,
    descriptor::{Format, keep},
    memory::{Opened, open_once, unread},
    overview::Contents,
    tables::laid_out,
};
use crate::{
    cache::{Buffer, Key, Tag},
    format::{
        FormatError,
        lerobot::{self, Info},
    },
    source::Memory,
    view::{Array, Fault, ReadContext, View, json, parquet::Parquet},
};
use episodes::Episodes;
use files::META;
use nodes::{EPISODE_META, IMAGES, Node, Part, ROOT_ENTRIES, TEXT_FILES};
use parts::Shown;

/// LeRobot, data sets of robot learning: folders.
pub static LEROBOT: Format = Format {
    name: "lerobot",
    title: "LeRobot",
    summary: "data sets of robot episodes: folders",
    markers: &[lerobot::MARKER],
    recognise: lerobot::recognise,
    probe: |source, _, memory| keep(memory, lerobot::parse(source, memory)),
    open: |reader, siblings, memory| {
        let info = memory.parsed(|memory| lerobot::parse(&*reader.source, memory))?;
        Ok(open(info, reader, siblings, memory).map_err(failed)?)
    },
    fixtures: &["pick_and_place"],
    ..Format::DEFAULT
};

/// The first number of metadata files. Row files have smaller numbers.
const MAIN: u64 = 1 << 40;
/// The first number of videos.
const VIDEOS: u64 = 1 << 48;

/// Tags of open files in the cache: row files by their numbers, and videos by camera and file.
const ROWS: Tag = Tag::Parsed(0);
const FOOTAGE: Tag = Tag::Parsed(1);

/// A data set.
pub(super) struct Lerobot {
    /// Itself, for its tables.
    own: Weak<Self>,
    info: Info,
    episodes: Episodes,
    siblings: Arc<dyn Siblings>,
    /// Names of the parts of an episode.
    shown: Shown,
    /// Whether each camera is shown.
    states: Box<[OnceLock<videos::State>]>,
    warnings: Vec<String>,
    notices: Notices,
}

/// The rows of an episode.
struct Rows {
    columns: Arc<Columns>,
    rows: Range<u64>,
}

/// Returns the tree of a data set.
///
/// # Errors
/// [`Fault`] if bytes cannot be read or there is not enough memory.
fn open(
    info: Info,
    reader: &ReadContext,
    siblings: Option<Arc<dyn Siblings>>,
    memory: &WorkingMemory<'_>,
) -> Result<Arc<Lerobot>, Fault> {
    reader.may_work()?;
    let siblings = siblings.ok_or_else(|| Fault::refused("a data set is a folder"))?;
    // Pages of metadata reserve memory for themselves.
    memory.hold();
    let mut warnings = Vec::new();
    let episodes = Episodes::read(&info, &*siblings, reader, memory, &mut warnings)?;
    memory.reserve(parts::memory(&info))?;
    let cameras = episodes.cameras.len();
    Ok(Arc::new_cyclic(|own| Lerobot {
        own: own.clone(),
        shown: Shown::of(&info),
        info,
        episodes,
        siblings,
        states: (0..cameras).map(|_| OnceLock::new()).collect(),
        warnings,
        notices: Notices::default(),
    }))
}

impl Lerobot {
    /// Reports that a part of an episode is left out.
    fn note(&self, part: Part, episode: u64, message: String) {
        let node = Node::of(part, episode, 0).pack();
        self.notices.add(Notice { node, offset: None, message });
    }

    /// Returns the rows of an episode, or why they cannot be used.
    fn rows(&self, reader: &ReadContext, episode: u64) -> Result<Result<Rows, String>, Fault> {
        let (first, needed) = match self.episodes.rows(&self.info, episode) {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        let Some((number, path)) = self.episodes.row_file(&self.info, episode) else {
            return Ok(Err("the metadata do not say which rows it has".into()));
        };
        let columns = match self.columns(reader, number, path.as_deref())? {
            Ok(columns) => columns,
            Err(reason) => return Ok(Err(reason.to_string())),
        };
        let (rows, length) = (columns.file().rows, self.length(episode));
        let fits = if self.info.version.has_file_an_episode() { rows == needed } else { rows >= needed };
        let path = path.unwrap_or_default();
        Ok(match fits {
            true => Ok(Rows { columns, rows: first..first + length }),
            false => Err(format!("{path} has {rows} rows, and {needed} are needed")),
        })
    }

    fn length(&self, episode: u64) -> u64 {
        self.episodes.get(episode).map_or(0, |episode| episode.length)
    }

    /// Returns a row file by its number.
    fn columns(&self, reader: &ReadContext, number: u32, path: Option<&str>) -> Result<Opened<Columns>, Fault> {
        let Some(path) = path else { return Ok(Err("the path of its rows leads out of the data set".into())) };
        open_once(reader, Key::new(reader.container, ROWS, number.into(), 0), || {
            Ok(match episodes::open(&*self.siblings, path)? {
                Ok(source) => match Columns::open(reader, source, path, number.into()) {
                    Err(fault) if fault.error.is_damage() => {
                        Err(format!("{path}: {}", super::columns::plain(&fault.error)).into())
                    }
                    opened => Ok(opened?),
                },
                Err(reason) => Err(reason.into()),
            })
        })
    }

    /// Returns the rows of an episode. If they are not sound, reports that and returns `None`.
    fn sound(&self, reader: &ReadContext, episode: u64) -> Result<Option<Rows>, Fault> {
        Ok(match self.rows(reader, episode)? {
            Ok(rows) => Some(rows),
            Err(reason) => {
                self.note(Part::Episode, episode, format!("its rows are not shown: {reason}"));
                None
            }
        })
    }

    /// Returns `meta.json` of an episode.
    fn meta(&self, reader: &ReadContext, at: u64) -> Result<View, Fault> {
        let Some(episode) = self.episodes.get(at) else { return Ok(View::default()) };
        let first = self.rows(reader, at)?.ok().map(|rows| rows.rows.start);
        let mut videos = Map::new();
        for (camera, feature) in self.episodes.cameras.iter().enumerate() {
            let feature = self.info.features.get(*feature);
            let video = self.episodes.video(&self.info, at, camera).and_then(|(footing, path)| Some((footing, path?)));
            if let (Some(feature), Some((footing, path))) = (feature, video) {
                videos.insert(feature.name.clone(), json!({"file": path, "from_timestamp": footing.from}));
            }
        }
        Ok(View::inline(json::document(&json!({
            "episode_index": episode.index,
            "num_frames": episode.length,
            "fps": self.info.fps,
            "robot_type": self.info.robot,
            "tasks": self.episodes.tasks_of(episode).collect::<Vec<_>>(),
            "data_file": self.episodes.row_file(&self.info, at).and_then(|(_, path)| path),
            "first_row": first,
            "videos": videos,
        }))))
    }

    /// Returns `tasks.jsonl`.
    fn tasks(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::kept(reader, 1, |memory| {
            Ok(json::large(
                |out| {
                    for (index, task) in &self.episodes.tasks {
                        let task = serde_json::to_string(task).map_err(std::io::Error::other)?;
                        writeln!(out, "{{\"task_index\": {index}, \"task\": {task}}}")?;
                    }
                    Ok(())
                },
                memory,
            )?)
        })
    }

    /// Returns whether there is an episode at a place.
    fn is_episode(&self, episode: u64) -> bool {
        self.episodes.get(episode).is_some()
    }
}

impl Container for Lerobot {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let Some(folder) = Node::unpack(folder) else { return Ok(None) };
        let Node { episode, feature, .. } = folder;
        let node = match folder.part {
            Part::Root => {
                let found = ROOT_ENTRIES.iter().find(|(known, part)| *known == name && self.has_in_root(*part));
                found.map(|(_, part)| Node::of(*part, 0, 0))
            }
            Part::Meta => match META.iter().position(|known| *known == name) {
                Some(number) if self.meta_file(reader, number)?.is_some() => Some(Node::of(Part::MetaFile, 0, number)),
                _ => None,
            },
            Part::Episodes => {
                let index = name.parse::<u64>().ok().filter(|number| number.to_string() == name);
                let at = index.and_then(|index| self.episodes.find(index));
                at.map(|at| Node::of(Part::Episode, at, 0))
            }
            Part::Episode | Part::Images => {
                let found = match folder.part {
                    Part::Episode => self.shown.in_episode(name),
                    _ => self.shown.in_images(name),
                };
                match found {
                    Some((part, feature)) if self.has(reader, episode, part, feature)? => {
                        Some(Node::of(part, episode, feature))
                    }
                    _ => None,
                }
            }
            Part::TextFolder => {
                let found = TEXT_FILES.iter().find(|(known, _)| *known == name);
                found.map(|(_, part)| Node::of(*part, episode, feature.into()))
            }
            Part::Camera => {
                let frame = self.find_picture(reader, episode, feature.into(), name)?;
                frame.map(|frame| Node { part: Part::Picture, frame, ..folder })
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
        let Node { episode, feature, .. } = folder;
        let mut show = |next, name: &str, node: Node| {
            let is_folder = node.is_folder();
            each(Child { next, name, node: node.pack(), is_folder })
        };
        match folder.part {
            Part::Root => {
                for (next, (name, part)) in (1..).zip(ROOT_ENTRIES).filter(|(next, _)| *next > from) {
                    if self.has_in_root(part) && show(next, name, Node::of(part, 0, 0)).is_break() {
                        break;
                    }
                }
            }
            Part::Meta => {
                for (next, (number, name)) in (1..).zip(META.iter().enumerate()).filter(|(next, _)| *next > from) {
                    if self.meta_file(reader, number)?.is_some()
                        && show(next, name, Node::of(Part::MetaFile, 0, number)).is_break()
                    {
                        break;
                    }
                }
            }
            Part::Episodes => {
                for at in from..self.episodes.all.len() as u64 {
                    let Some(found) = self.episodes.get(at) else { break };
                    if show(at + 1, &found.index.to_string(), Node::of(Part::Episode, at, 0)).is_break() {
                        break;
                    }
                }
            }
            Part::Episode | Part::Images => {
                let is_episode = folder.part == Part::Episode;
                let entries = if is_episode { self.shown.episode() } else { self.shown.images() };
                for (next, (name, part, feature)) in (1..).zip(entries).filter(|(next, _)| *next > from) {
                    if self.has(reader, episode, *part, *feature)?
                        && show(next, name, Node::of(*part, episode, *feature)).is_break()
                    {
                        break;
                    }
                }
            }
            Part::TextFolder => {
                for (next, (name, part)) in (1..).zip(TEXT_FILES).filter(|(next, _)| *next > from) {
                    if show(next, name, Node::of(part, episode, feature.into())).is_break() {
                        break;
                    }
                }
            }
            Part::Camera => {
                let names = self.picture_names(reader, episode, feature.into())?;
                for frame in from..self.length(episode) {
                    if let Some(name) = names.get(frame) {
                        let node = Node { part: Part::Picture, frame: frame as u32, ..folder };
                        if show(frame + 1, &name, node).is_break() {
                            break;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        let folder = |subfolders| Some(NodeKind::Folder { subfolders });
        let Some(node) = Node::unpack(node) else { return Ok(None) };
        Ok(match node.part {
            Part::Root => folder(Some(2)),
            Part::Meta => folder(Some(0)),
            Part::Episodes => folder(u32::try_from(self.episodes.all.len()).ok()),
            _ if node.is_in_episode() && !self.is_episode(node.episode) => None,
            // Whether other parts exist depends on the row file.
            Part::Episode | Part::Images => folder(None),
            Part::Camera | Part::TextFolder => folder(Some(0)),
            _ => Some(NodeKind::File),
        })
    }

    fn parent(&self, _: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        let Some(node) = Node::unpack(node) else { return Ok(super::ROOT) };
        let part = match node.part {
            Part::MetaFile => return Ok(Node::of(Part::Meta, 0, 0).pack()),
            Part::Episode => return Ok(Node::of(Part::Episodes, 0, 0).pack()),
            Part::EpisodeMeta | Part::Numbers | Part::Text | Part::Lines | Part::TextFolder | Part::Images => {
                return Ok(Node::of(Part::Episode, node.episode, 0).pack());
            }
            Part::Camera | Part::Stack => return Ok(Node::of(Part::Images, node.episode, 0).pack()),
            Part::Offsets | Part::Bytes => Part::TextFolder,
            Part::Picture => Part::Camera,
            _ => return Ok(super::ROOT),
        };
        Ok(Node { part, frame: 0, ..node }.pack())
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let Some(unpacked) = Node::unpack(node) else { return Ok(String::new()) };
        let Node { part, episode, feature, frame } = unpacked;
        let name = match part {
            Part::Root => return Ok(String::new()),
            Part::MetaFile => META.get(usize::from(feature)).copied().unwrap_or_default().to_owned(),
            Part::Episode => self.episodes.get(episode).map_or_else(String::new, |found| found.index.to_string()),
            Part::Picture => self
                .picture_names(reader, episode, feature.into())?
                .get(frame.into())
                .unwrap_or_else(|| frame.to_string()),
            part => {
                let fixed = ROOT_ENTRIES.iter().chain(&TEXT_FILES).find(|(_, known)| *known == part);
                let fixed = fixed.map(|(name, _)| *name);
                fixed.or_else(|| self.shown.name(part, feature.into())).unwrap_or_default().to_owned()
            }
        };
        let folder = self.path(reader, self.parent(reader, node)?)?;
        Ok(if folder.is_empty() { name } else { format!("{folder}/{name}") })
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(View::default()) };
        let feature = usize::from(node.feature);
        Ok(match node.part {
            Part::Description => View::shared(self.description(reader)?),
            Part::Tasks => View::shared(self.tasks(reader)?),
            Part::EpisodesTable | Part::StepsTable => self.table(reader, node.part)?.view(),
            Part::MetaFile => self.meta_file(reader, feature)?.map_or_else(View::default, files::view),
            Part::EpisodeMeta => self.meta(reader, node.episode)?,
            Part::Numbers | Part::Stack => self.array(reader, file)?.map_or_else(View::default, Array::npy),
            Part::Text | Part::Lines | Part::Offsets | Part::Bytes => {
                self.text_view(reader, node.episode, feature, node.part)?
            }
            Part::Picture => self.picture(reader, node.episode, feature, node.frame.into())?,
            Part::Root | Part::Meta | Part::Episodes | Part::Episode => View::default(),
            Part::TextFolder | Part::Images | Part::Camera => View::default(),
        })
    }

    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(None) };
        match node.part {
            Part::Numbers => self.numbers(reader, node.episode, node.feature.into()),
            Part::Offsets => self.offsets(reader, node.episode, node.feature.into()),
            Part::Stack => self.stack(reader, node.episode, node.feature.into()),
            _ => Ok(None),
        }
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::kept(reader, 0, |memory| self.describe(reader, memory))
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.info.memory_usage() + self.episodes.memory_usage() + parts::memory(&self.info) as usize
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        let contents = Contents::Episodes { count: self.episodes.all.len() as u64, front: Map::new() };
        Ok(Overview { format: LEROBOT.name, contents })
    }

    fn episodes(&self) -> Option<&dyn super::Episodes> {
        Some(self)
    }

    fn timeline(&self, _: &ReadContext, folder: NodeId) -> Result<Option<Timeline>, Fault> {
        match Node::unpack(folder) {
            Some(Node { part: Part::Episode, episode, .. }) => Ok(Some(self.timeline_of(episode))),
            _ => Ok(None),
        }
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
                Ok(Some(super::tables::item_info(&*self.table(reader, part)?)))
            }
            _ => Ok(self.array(reader, node)?.map(ItemInfo::from)),
        }
    }

    fn is_table(&self, _: &ReadContext, node: NodeId) -> bool {
        Node::unpack(node).is_some_and(|node| matches!(node.part, Part::EpisodesTable | Part::StepsTable))
    }
}

impl Lerobot {
    /// Returns whether an entry of the root is there.
    fn has_in_root(&self, part: Part) -> bool {
        match part {
            Part::Tasks => !self.episodes.tasks.is_empty(),
            Part::StepsTable => self.has_steps_table(),
            _ => true,
        }
    }

    /// Returns a table, by its part.
    fn table(&self, reader: &ReadContext, part: Part) -> Result<Arc<Parquet>, Fault> {
        match part {
            Part::EpisodesTable => laid_out(reader, 0, |memory| self.episodes_table(reader, memory)),
            _ => laid_out(reader, 1, |memory| self.steps_table(reader, memory)),
        }
    }
}

/// The part and the feature that each name means.
type Index = HashMap<Box<str>, (Part, usize)>;

/// Returns the failure to read another file of a folder as a reason why it cannot be opened.
fn failed(fault: Fault) -> FormatError {
    unread(&fault.error).into()
}
