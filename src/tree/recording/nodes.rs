//! The nodes of a recording.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    Core, Recorded, Tree,
    batch::{DAMAGED, PUBLISH_TIME, SEQUENCE},
    chunks::only_damage,
    columns::{self, Column, What},
    describe,
    files::FileOf,
    lines,
    order::Then,
    table,
    totals::{DAMAGED_ROWS, UNDECODED_ROWS},
};
use crate::{
    cache::Buffer,
    format::{DType, messages::flat::Leaf},
    tree::{
        Child, Container, DESCRIPTION, ItemInfo, NodeId, NodeKind, Overview, Timeline,
        paths::{self, NodeIndex},
        table::FrameNames,
        tables,
    },
    view::{Array, Fault, ReadContext, View, json, parquet::Parquet},
};

/// The folder of all topics.
const TOPICS: &str = "topics";
/// The hidden folder of stored messages.
const RAW: &str = ".raw";
/// The folder of pictures.
const IMAGES: &str = "images";

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Root,
    Description,
    /// A folder at or below `topics`.
    Topics(NodeIndex),
    RawRoot,
    /// A folder at or below `.raw/topics`.
    RawTopics(NodeIndex),
    /// A stored message of a folder.
    RawMessage(u32, u64),
    /// A file of a folder, or its folder of pictures.
    File(u32, FileOf),
    Picture(u32, u64),
    Extra(u32),
    ExtraFile(u32, u32),
}

impl Node {
    fn pack(self) -> NodeId {
        let (kind, number, inner) = match self {
            Self::Root => (0, 0, 0),
            Self::Description => (1, 0, 0),
            Self::Topics(place) => (2, place, 0),
            Self::RawRoot => (3, 0, 0),
            Self::RawTopics(place) => (4, place, 0),
            Self::RawMessage(folder, row) => (5, folder, row),
            Self::File(folder, file) => (6, folder, file.pack()),
            Self::Picture(folder, row) => (7, folder, row),
            Self::Extra(extra) => (8, extra, 0),
            Self::ExtraFile(extra, file) => (9, extra, u64::from(file)),
        };
        NodeId(kind << 96 | u128::from(number) << 64 | u128::from(inner))
    }

    /// Unpacks a node number; `None` for a number that no node has.
    fn unpack(id: NodeId) -> Option<Self> {
        let (number, inner) = ((id.0 >> 64) as u32, id.0 as u64);
        Some(match id.0 >> 96 {
            0 if id.0 == 0 => Self::Root,
            1 => Self::Description,
            2 => Self::Topics(number),
            3 => Self::RawRoot,
            4 => Self::RawTopics(number),
            5 => Self::RawMessage(number, inner),
            6 => {
                let column = inner as u32;
                Self::File(
                    number,
                    match inner >> 32 {
                        0 => FileOf::Time,
                        1 => FileOf::PublishTime,
                        2 => FileOf::Sequence,
                        3 => FileOf::Connection,
                        4 => FileOf::Channel,
                        5 => FileOf::Schema,
                        6 => FileOf::Lines,
                        7 => FileOf::Table,
                        8 => FileOf::Array(column),
                        9 => FileOf::Offsets(column),
                        10 => FileOf::Values(column),
                        11 => FileOf::Images,
                        _ => return None,
                    },
                )
            }
            7 => Self::Picture(number, inner),
            8 => Self::Extra(number),
            9 => Self::ExtraFile(number, inner as u32),
            _ => return None,
        })
    }
}

/// Lists children one by one, from a position on.
struct Lister<'a, 'b> {
    from: u64,
    at: u64,
    each: &'a mut (dyn FnMut(Child<'_>) -> ControlFlow<()> + 'b),
    is_done: bool,
}

impl Lister<'_, '_> {
    fn show(&mut self, name: &str, node: Node, is_folder: bool) {
        self.at += 1;
        if self.at > self.from && !self.is_done {
            let child = Child { next: self.at, name, node: node.pack(), is_folder };
            self.is_done = (self.each)(child).is_break();
        }
    }

    /// Lists numbered files.
    fn show_numbered(&mut self, names: FrameNames, node: impl Fn(u64) -> Node) {
        let first = self.from.saturating_sub(self.at);
        self.at += first.min(names.count);
        for number in first..names.count {
            if self.is_done {
                break;
            }
            self.show(&names.name(number), node(number), false);
        }
    }
}

impl<R: Recorded> Tree<R> {
    fn raw_names(&self, folder: u32) -> FrameNames {
        FrameNames { count: self.core.messages(folder), suffix: ".bin" }
    }

    fn picture_names(&self, reader: &ReadContext, folder: u32) -> Result<FrameNames, Fault> {
        let suffix = self.core.pictures(reader, folder)?;
        Ok(match suffix {
            Some(suffix) => FrameNames { count: self.core.messages(folder), suffix },
            None => FrameNames { count: 0, suffix: "" },
        })
    }

    fn place(&self, folder: u32) -> NodeIndex {
        self.places.get(folder as usize).copied().unwrap_or(paths::ROOT)
    }

    fn find(&self, reader: &ReadContext, folder: Node, name: &str) -> Result<Option<Node>, Fault> {
        Ok(match folder {
            Node::Root => match name {
                DESCRIPTION => Some(Node::Description),
                TOPICS => Some(Node::Topics(paths::ROOT)),
                RAW => Some(Node::RawRoot),
                _ => {
                    let mut extras = (0..).zip(self.own.extras());
                    extras
                        .find(|(_, extra)| extra.name == name && !extra.files.is_empty())
                        .map(|(at, _)| Node::Extra(at))
                }
            },
            Node::Topics(place) => match (self.topics.lookup(place, name), self.at.get(&place)) {
                (Some(inner), _) => Some(Node::Topics(inner)),
                (None, Some(folder)) => {
                    // Only the folder of pictures depends on messages.
                    let is_images = name == IMAGES;
                    let files = match is_images {
                        true => self.files(reader, *folder)?.0.iter().map(|(n, f, _)| (n.clone(), *f)).collect(),
                        false => {
                            self.list_files(*folder, false).into_iter().map(|(n, f, _)| (n, f)).collect::<Vec<_>>()
                        }
                    };
                    let found = files.into_iter().find(|(known, _)| known == name);
                    found.map(|(_, file)| Node::File(*folder, file))
                }
                (None, None) => None,
            },
            Node::RawRoot => (name == TOPICS).then_some(Node::RawTopics(paths::ROOT)),
            Node::RawTopics(place) => match (self.topics.lookup(place, name), self.at.get(&place)) {
                (Some(inner), _) => Some(Node::RawTopics(inner)),
                (None, Some(folder)) => self.raw_names(*folder).number(name).map(|row| Node::RawMessage(*folder, row)),
                (None, None) => None,
            },
            Node::File(folder, FileOf::Images) => {
                self.picture_names(reader, folder)?.number(name).map(|row| Node::Picture(folder, row))
            }
            Node::Extra(extra) => {
                let found = self.own.extras().get(extra as usize).and_then(|extra| extra.by_name.get(name));
                found.map(|file| Node::ExtraFile(extra, *file))
            }
            _ => None,
        })
    }

    fn table(&self, reader: &ReadContext, folder: u32) -> Result<Arc<Parquet>, Fault> {
        tables::laid_out(reader, folder.into(), |memory| table::table(&self.core, reader, folder, memory))
    }

    /// Returns the array of a file of a folder.
    fn array_of(&self, reader: &ReadContext, folder: u32, file: FileOf) -> Result<Option<Array>, Fault> {
        let rows = self.core.messages(folder);
        let column = |what| Column { core: self.core.clone(), folder, what }.view();
        Ok(match file {
            FileOf::Time => Some(Array::new(DType::I64, [rows], column(What::Time))),
            FileOf::PublishTime => Some(Array::new(DType::I64, [rows], column(What::Kept(PUBLISH_TIME, DAMAGED)))),
            FileOf::Sequence => Some(Array::new(DType::U32, [rows], column(What::Kept(SEQUENCE, DAMAGED)))),
            FileOf::Connection => Some(Array::new(DType::U32, [rows], column(What::Source))),
            FileOf::Array(leaf) => columns::array(&self.core, folder, leaf as usize, false),
            FileOf::Offsets(leaf) => columns::array(&self.core, folder, leaf as usize, true),
            FileOf::Values(leaf) => Some(columns::values_array(&self.core, reader, folder, leaf as usize)?),
            _ => None,
        })
    }

    fn view_of(&self, reader: &ReadContext, folder: u32, file: FileOf) -> Result<View, Fault> {
        let recording = &self.core.recording;
        Ok(match file {
            FileOf::Channel => View::inline(json::document(&self.own.channel(folder as usize, recording))),
            FileOf::Schema => {
                let schema = recording.folders.get(folder as usize).and_then(|folder| folder.schema);
                let data = schema.and_then(|schema| recording.schemas.get(schema as usize));
                View::inline(data.map_or_else(Vec::new, |schema| schema.data.to_vec()))
            }
            FileOf::Lines => lines::view(&self.core, reader, folder)?,
            FileOf::Table => self.table(reader, folder)?.view(),
            file => self.array_of(reader, folder, file)?.map_or_else(View::default, Array::npy),
        })
    }
}

impl<R: Recorded> Container for Tree<R> {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let Some(folder) = Node::unpack(folder) else { return Ok(None) };
        Ok(self.find(reader, folder, name)?.map(Node::pack))
    }

    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let mut lister = Lister { from, at: 0, each, is_done: false };
        match Node::unpack(folder) {
            Some(Node::Root) => {
                for (at, extra) in (0..).zip(self.own.extras()).filter(|(_, extra)| !extra.files.is_empty()) {
                    lister.show(extra.name, Node::Extra(at), true);
                }
                lister.show(DESCRIPTION, Node::Description, false);
                if !self.places.is_empty() {
                    lister.show(TOPICS, Node::Topics(paths::ROOT), true);
                }
            }
            Some(Node::Topics(place)) => {
                for (name, inner) in self.topics.children(place) {
                    lister.show(name, Node::Topics(inner), true);
                }
                if let Some(folder) = self.at.get(&place) {
                    for (name, file, _) in self.files(reader, *folder)?.0.iter().filter(|(.., is_hidden)| !is_hidden) {
                        lister.show(name, Node::File(*folder, *file), *file == FileOf::Images);
                    }
                }
            }
            Some(Node::RawRoot) => lister.show(TOPICS, Node::RawTopics(paths::ROOT), true),
            Some(Node::RawTopics(place)) => {
                for (name, inner) in self.topics.children(place) {
                    lister.show(name, Node::RawTopics(inner), true);
                }
                if let Some(folder) = self.at.get(&place) {
                    lister.show_numbered(self.raw_names(*folder), |row| Node::RawMessage(*folder, row));
                }
            }
            Some(Node::File(folder, FileOf::Images)) => {
                lister.show_numbered(self.picture_names(reader, folder)?, |row| Node::Picture(folder, row));
            }
            Some(Node::Extra(number)) => {
                let files = self.own.extras().get(number as usize).map_or(&[][..], |extra| &extra.files);
                for (file, name) in (0..).zip(files) {
                    lister.show(name, Node::ExtraFile(number, file), false);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        let folder = NodeKind::Folder { subfolders: None };
        let is_folder = |folder: u32| (folder as usize) < self.places.len();
        let is_row = |folder: u32, row: u64| row < self.core.messages(folder);
        Ok(match Node::unpack(node) {
            Some(Node::Root | Node::RawRoot) => Some(folder),
            Some(Node::Description) => Some(NodeKind::File),
            Some(Node::Topics(place) | Node::RawTopics(place)) => self.topics.kind(place).map(|_| folder),
            Some(Node::RawMessage(number, row) | Node::Picture(number, row)) => {
                is_row(number, row).then_some(NodeKind::File)
            }
            Some(Node::File(number, FileOf::Images)) => {
                is_folder(number).then_some(NodeKind::Folder { subfolders: Some(0) })
            }
            Some(Node::File(number, _)) => is_folder(number).then_some(NodeKind::File),
            Some(Node::Extra(number)) => {
                self.own.extras().get(number as usize).map(|_| NodeKind::Folder { subfolders: Some(0) })
            }
            Some(Node::ExtraFile(extra, file)) => {
                let extra = self.own.extras().get(extra as usize);
                extra.and_then(|extra| extra.files.get(file as usize)).map(|_| NodeKind::File)
            }
            None => None,
        })
    }

    fn parent(&self, _: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        let parent = match Node::unpack(node) {
            Some(Node::Topics(place)) if place != paths::ROOT => Node::Topics(self.topics.parent(place)),
            Some(Node::RawTopics(paths::ROOT)) => Node::RawRoot,
            Some(Node::RawTopics(place)) => Node::RawTopics(self.topics.parent(place)),
            Some(Node::RawMessage(folder, _)) => Node::RawTopics(self.place(folder)),
            Some(Node::File(folder, _)) => Node::Topics(self.place(folder)),
            Some(Node::Picture(folder, _)) => Node::File(folder, FileOf::Images),
            Some(Node::ExtraFile(extra, _)) => Node::Extra(extra),
            _ => Node::Root,
        };
        Ok(parent.pack())
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let below = |top: &str, place: NodeIndex| match place {
            paths::ROOT => top.to_owned(),
            place => format!("{top}/{}", self.topics.path(place)),
        };
        let raw = format!("{RAW}/{TOPICS}");
        Ok(match Node::unpack(node) {
            Some(Node::Description) => DESCRIPTION.into(),
            Some(Node::Topics(place)) => below(TOPICS, place),
            Some(Node::RawRoot) => RAW.into(),
            Some(Node::RawTopics(place)) => below(&raw, place),
            Some(Node::RawMessage(folder, row)) => {
                format!("{}/{}", below(&raw, self.place(folder)), self.raw_names(folder).name(row))
            }
            Some(Node::File(folder, file)) => {
                let files = self.list_files(folder, true);
                let name = files.iter().find(|(_, known, _)| *known == file).map_or("", |(name, ..)| name);
                format!("{}/{name}", below(TOPICS, self.place(folder)))
            }
            Some(Node::Picture(folder, row)) => {
                let names = self.picture_names(reader, folder)?;
                format!("{}/{IMAGES}/{}", below(TOPICS, self.place(folder)), names.name(row))
            }
            Some(Node::Extra(number)) => {
                self.own.extras().get(number as usize).map_or_else(String::new, |extra| extra.name.into())
            }
            Some(Node::ExtraFile(number, file)) => {
                let extra = self.own.extras().get(number as usize);
                let name = extra.and_then(|extra| Some((extra.name, extra.files.get(file as usize)?)));
                name.map_or_else(String::new, |(folder, name)| format!("{folder}/{name}"))
            }
            Some(Node::Root) | None => String::new(),
        })
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        match Node::unpack(file) {
            Some(Node::Description) => Ok(View::shared(self.description(reader)?)),
            Some(Node::RawMessage(folder, row)) => {
                let (chunk, placed) = self.core.find(reader, folder, row)?;
                Ok(chunk.view(placed.data))
            }
            Some(Node::File(folder, file)) => self.view_of(reader, folder, file),
            Some(Node::Picture(folder, row)) => self.core.picture(reader, folder, row),
            Some(Node::ExtraFile(extra, file)) => self.own.extra(reader, extra as usize, file as usize),
            _ => Ok(View::default()),
        }
    }

    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        match Node::unpack(file) {
            Some(Node::File(folder, file)) => self.array_of(reader, folder, file),
            _ => Ok(None),
        }
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::description(self, reader)
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        Ok(self.overview_of())
    }

    fn overview_memory(&self) -> u64 {
        describe::overview_memory(self)
    }

    fn block_name(&self, block: u32) -> String {
        self.own.block_name(block).unwrap_or_else(|| format!("chunk {block}"))
    }

    fn memory_usage(&self) -> usize {
        self.memory_usage
    }

    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        let mut found = self.own.verify_rest(reader)?;
        for (number, folder) in (0..).zip(&self.core.recording.folders) {
            // A column with a value for each message cannot be read where one does not decode.
            let is_shown = |leaf: &Leaf| leaf.shape.width().is_some();
            let schema = self.core.decoder(number).schema();
            if schema.is_none_or(|shown| shown.flat.leaves.iter().any(is_shown)) {
                continue;
            }
            if let Ok(totals) = only_damage(self.core.columns_totals(reader, number))? {
                let undecoded = totals.all(UNDECODED_ROWS) - totals.all(DAMAGED_ROWS);
                if undecoded > 0 {
                    let topic = String::from_utf8_lossy(&folder.topic);
                    found.push(format!("{undecoded} of {} messages of {topic} do not decode", folder.messages));
                }
            }
        }
        Ok(found)
    }

    fn warnings(&self) -> &[String] {
        self.own.warnings()
    }

    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        match Node::unpack(node) {
            Some(Node::File(folder, FileOf::Table)) => Ok(Some(tables::item_info(&*self.table(reader, folder)?))),
            _ => Ok(self.array(reader, node)?.map(ItemInfo::from)),
        }
    }

    fn timeline(&self, reader: &ReadContext, folder: NodeId) -> Result<Option<Timeline>, Fault> {
        let Some(Node::Topics(place)) = Node::unpack(folder) else { return Ok(None) };
        let Some(folder) = self.at.get(&place) else { return Ok(None) };
        let files = self.files(reader, *folder)?;
        let is_shown = |file: &FileOf| matches!(file, FileOf::Array(_) | FileOf::Images);
        let count = self.core.messages(*folder);
        if count == 0 || !files.0.iter().any(|(_, file, _)| is_shown(file)) {
            return Ok(None);
        }
        let time = |row| {
            let entries = self.core.entries(reader, *folder, row, Then::Rows(row))?;
            Ok::<u64, Fault>(entries.get(row).map_or(0, |(entry, _)| entry.time))
        };
        let (first, last) = (time(0)?, time(count - 1)?);
        let seconds = last.saturating_sub(first) as f64 / 1e9;
        Ok(Some(Timeline {
            steps: Some(count),
            rate: (count > 1 && seconds > 0.0).then(|| (count - 1) as f64 / seconds),
            times: Some("time.npy"),
            documents: vec![("channel", "channel.json".into())],
            ..Timeline::default()
        }))
    }

    fn is_table(&self, _: &ReadContext, node: NodeId) -> bool {
        matches!(Node::unpack(node), Some(Node::File(_, FileOf::Table)))
    }
}

impl Core {
    /// Returns the times of the first and last message, if there are any.
    pub(super) fn times(&self) -> Option<(u64, u64)> {
        self.recording.times
    }
}
