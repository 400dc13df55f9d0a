//! TFDS data sets and lone TFRecord files: a folder for each record (`docs/formats/rlds.md` 4 and 7). Nodes are
//! computed: a record takes no memory until its folder is opened.

mod describe;
mod episodes;
mod leaves;
mod lone;
mod record;
mod shards;
mod values;

use std::{ops::ControlFlow, sync::Arc};

use indexmap::IndexSet;

use super::{
    Beside, Child, Container, DESCRIPTION, Episodes, Format, ItemInfo, NodeId, NodeKind, Notice, Notices, Overview,
    Reach, Siblings, Timeline, WorkingMemory, describe as description, names, overview::Contents, paths::Kind, tables,
};
use crate::{
    cache::{Buffer, Key, Tag},
    format::{
        Class, FormatError,
        rlds::{self, Features, Info},
        tfrecord,
    },
    source::{Memory, Source},
    view::{
        Array, Fault, ReadContext, View,
        parquet::{Column, Parquet, Table},
    },
};
use record::{Candidate, File, Record};

/// Data sets of TFDS, such as RLDS: folders.
pub static RLDS: Format = Format {
    name: "rlds",
    title: "RLDS",
    summary: "robot episodes and other data sets of TFDS",
    markers: &[rlds::FEATURES],
    recognise: rlds::recognise,
    probe: rlds::probe,
    open: |reader, siblings, memory| Ok(Arc::new(open_set(reader, siblings, memory)?)),
    others: Some(rlds::others),
    check_others: Some(check),
    fixtures: &["pick_rlds"],
    ..Format::DEFAULT
};

/// TFRecord files that lie alone. They have the name of the data sets, whose shards have the same format.
pub static TFRECORD: Format = Format {
    name: "rlds",
    title: "TFRecord",
    summary: "records of TensorFlow",
    suffixes: tfrecord::SUFFIXES,
    recognise: tfrecord::recognise,
    probe: tfrecord::probe,
    open: |reader, _, memory| Ok(Arc::new(open_lone(reader, memory)?)),
    fixtures: &["pictures.tfrecord"],
    ..Format::DEFAULT
};

/// Bytes of memory of a split beside its stored texts.
const SPLIT: usize = 256;
/// The hidden folder of whole records.
const RAW: &str = ".raw";
/// The suffix of a record as it is stored.
const BIN: &str = ".bin";

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Root,
    Description,
    /// The folder of a split.
    Split,
    /// The folder of its records.
    Records,
    /// A record's folder, or a node in it.
    Record,
    /// A record that is one file.
    Single,
    Raw,
    RawSplit,
    RawRecord,
}

const PARTS: [Part; 9] = [
    Part::Root,
    Part::Description,
    Part::Split,
    Part::Records,
    Part::Record,
    Part::Single,
    Part::Raw,
    Part::RawSplit,
    Part::RawRecord,
];

/// A node, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    part: Part,
    split: u32,
    record: u64,
    /// The number of a node in the record's folder.
    item: u32,
}

impl Node {
    fn of(part: Part, split: u32, record: u64, item: u32) -> Self {
        Self { part, split, record, item }
    }

    fn unpack(id: NodeId) -> Option<Self> {
        let part = *PARTS.get(usize::try_from(id.0 >> 104).ok()?)?;
        let (split, record) = ((id.0 >> 80) as u32 & 0xFF_FFFF, (id.0 >> 32) as u64 & 0xFFFF_FFFF_FFFF);
        Some(Self { part, split, record, item: id.0 as u32 })
    }

    fn pack(self) -> NodeId {
        let high = (self.part as u128) << 104 | u128::from(self.split) << 80;
        NodeId(high | u128::from(self.record) << 32 | u128::from(self.item))
    }
}

/// What the container is.
enum Shape {
    /// A lone file: whether its records are Examples.
    Lone { are_examples: bool },
    /// A data set.
    Set { info: Info, features: Features, files: Option<Arc<dyn Siblings>>, splits: IndexSet<String> },
}

/// A data set or a lone file.
pub(super) struct Rlds {
    shape: Shape,
    notices: Notices,
    memory: usize,
}

impl Rlds {
    fn new(shape: Shape, memory: usize) -> Self {
        Self { shape, notices: Notices::default(), memory: size_of::<Self>() + memory }
    }
}

/// Returns the number of a record in the container.
fn number_of(split: u32, record: u64) -> u64 {
    u64::from(split) << 40 | record
}

/// Returns the key in the cache of a record's files.
fn record_key(reader: &ReadContext, split: u32, record: u64) -> Key {
    Key::new(reader.container, Tag::Parsed(1), number_of(split, record), 0)
}

/// Fails if a folder with `features.json` is not a data set that can be shown.
///
/// # Errors
/// [`FormatError`]. Its class is `absent` if there is no `dataset_info.json`, which is not reported.
fn check(source: &dyn Source, beside: &dyn Beside, memory: &dyn Memory) -> Result<(), FormatError> {
    let info = match beside.open(rlds::INFO, Reach::Shown) {
        Ok(info) => info,
        Err(super::NotThere::Source(error)) => return Err(error.into()),
        Err(error) => return Err(FormatError::refused(Class::Absent, format!("{}: {error}", rlds::INFO))),
    };
    parse(source, &*info, memory).map(drop)
}

fn parse(features: &dyn Source, info: &dyn Source, memory: &dyn Memory) -> Result<(Info, Features), FormatError> {
    let info = rlds::parse_info(rlds::read_object(info, rlds::INFO, Class::BadInfo, memory)?)?;
    let features = rlds::read_object(features, rlds::FEATURES, Class::Features, memory)?;
    Ok((info, rlds::parse_features(&features)?))
}

/// Opens a data set by its `features.json`.
///
/// # Errors
/// [`FormatError`] if it must be refused.
fn open_set(
    reader: &ReadContext,
    files: Option<Arc<dyn Siblings>>,
    memory: &WorkingMemory<'_>,
) -> Result<Rlds, FormatError> {
    let found = files.as_ref().map(|files| files.file(rlds::INFO)).transpose();
    let source = match found {
        Ok(Some(Some(source))) => source,
        Ok(_) => return Err(FormatError::refused(Class::Absent, format!("{} is not there", rlds::INFO))),
        Err(crate::cache::BlockError::Source(error)) => return Err(error.into()),
        Err(error) => return Err(FormatError::refused(Class::Absent, format!("{}: {error}", rlds::INFO))),
    };
    let (info, features) = parse(&*reader.source, &*source, memory)?;
    let mut splits = IndexSet::with_capacity(info.splits.len());
    for split in &info.splits {
        let name = names::folder(split.name.as_bytes(), &[".raw", ".shardfs", ".source"], 1);
        if !splits.insert(name) {
            let reason = format!("another split has the folder of {:?}", split.name);
            return Err(FormatError::refused(Class::BadInfo, reason));
        }
    }
    // The two files have at most 16 MiB each.
    let usage = (reader.source.len() + source.len()) as usize + SPLIT * splits.len();
    Ok(Rlds::new(Shape::Set { info, features, files, splits }, usage))
}

/// Opens a lone file. Its first records decide how all are shown.
///
/// # Errors
/// [`FormatError`] if it cannot be read.
fn open_lone(reader: &ReadContext, memory: &WorkingMemory<'_>) -> Result<Rlds, FormatError> {
    Ok(Rlds::new(Shape::Lone { are_examples: tfrecord::are_examples(&*reader.source, memory)? }, 0))
}

impl Rlds {
    /// Returns the name of the folder of records in each split.
    fn records_folder(&self) -> &'static str {
        match &self.shape {
            Shape::Set { features, .. } if features.has_steps => "episodes",
            _ => "records",
        }
    }

    /// Returns the name of a split's folder.
    fn split_name(&self, split: u32) -> &str {
        match &self.shape {
            Shape::Lone { .. } => "",
            Shape::Set { splits, .. } => splits.get_index(split as usize).map_or("", String::as_str),
        }
    }

    /// Returns the number of records of a split. If a lone file is damaged after the last record that can be found, the
    /// damaged rest counts as one record.
    fn count(&self, reader: &ReadContext, split: u32) -> Result<u64, Fault> {
        match &self.shape {
            Shape::Lone { .. } => Ok(match shards::own(reader)? {
                Ok(shard) => shard.index.count() + u64::from(shard.index.broken().is_some()),
                Err(_) => 0,
            }),
            Shape::Set { info, .. } => Ok(info.splits.get(split as usize).map_or(0, rlds::Split::records)),
        }
    }

    /// Returns the record with a name, if there is one.
    fn record_named(&self, reader: &ReadContext, split: u32, name: &str) -> Result<Option<u64>, Fault> {
        let number = name.parse::<u64>().ok().filter(|number| number.to_string() == name);
        let Some(number) = number else { return Ok(None) };
        Ok((number < self.count(reader, split)?).then_some(number))
    }

    /// Returns whether each record is one file.
    fn are_single(&self) -> bool {
        matches!(self.shape, Shape::Lone { are_examples: false })
    }

    /// Returns where a record is, or why it cannot be found. Reports problems of its shard.
    fn find(&self, reader: &ReadContext, split: u32, record: u64) -> Result<record::Found, Fault> {
        let Shape::Set { info, files, .. } = &self.shape else {
            return Ok(shards::own(reader)?.and_then(|shard| record::find(&shard, record)));
        };
        let found = info.splits.get(split as usize).and_then(|split| Some((split, split.place(record)?)));
        let (Some((stored, (shard, within))), Some(files)) = (found, files) else {
            return Ok(Err("there is no such record".into()));
        };
        let name = stored.shard_name(&info.name, shard);
        let number = u64::from(split) << 32 | u64::from(shard);
        let found = shards::named(reader, &**files, &name, number)?;
        if let Ok(shard_file) = &found {
            let (has, says) = (shard_file.index.count(), stored.records_of(shard));
            if has > says && within == 0 {
                let reason = format!("{name} has {} records more than {} says", has - says, rlds::INFO);
                self.note(Node::of(Part::Records, split, 0, 0), reason);
            }
        }
        let found = found.map_err(|reason| Arc::from(format!("{name}: {reason}")));
        Ok(found.and_then(|shard| {
            record::find(&shard, within).map_err(|reason| Arc::from(format!("{name}, record {within}: {reason}")))
        }))
    }

    /// Reports a problem of a part.
    fn note(&self, node: Node, message: String) {
        self.notices.add(Notice { node: node.pack(), offset: None, message });
    }

    /// Returns the files of a record, which are remembered for a while.
    fn record(&self, reader: &ReadContext, split: u32, record: u64) -> Result<Arc<Record>, Fault> {
        let key = record_key(reader, split, record);
        if let Some(known) = reader.cache.parsed(key) {
            return Ok(known);
        }
        reader.may_work()?;
        let found = self.find(reader, split, record)?;
        let number = number_of(split, record);
        let (made, room) = record::open(reader, &found, number, |files| match &self.shape {
            Shape::Lone { .. } => lone::fill(files),
            Shape::Set { info, features, .. } => {
                let Some(stored) = info.splits.get(split as usize) else { return Ok(()) };
                let (shard, in_shard) = stored.place(record).unwrap_or_default();
                let name = stored.shard_name(&info.name, shard);
                leaves::fill(files, features, &leaves::Place { split: &stored.name, record, shard: &name, in_shard })
            }
        })?;
        for message in &made.notes {
            self.note(Node::of(Part::Record, split, record, 0), message.clone());
        }
        Ok(reader.cache.keep_parsed(key, made, room))
    }

    /// Returns the file of a node in a record's folder.
    fn with_file<T>(
        &self,
        reader: &ReadContext,
        node: Node,
        show: impl FnOnce(&Record, &File) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let record = self.record(reader, node.split, node.record)?;
        match record.paths.kind(node.item) {
            Some(Kind::File(file)) => record.files.get(file as usize).map(|file| show(&record, file)).transpose(),
            _ => Ok(None),
        }
    }

    /// Returns the table of an episode's steps.
    fn table(&self, reader: &ReadContext, node: Node, record: &Record) -> Result<Arc<Parquet>, Fault> {
        tables::laid_out(reader, number_of(node.split, node.record), |memory| {
            let mut names = tables::ColumnNames::default();
            let mut columns = Vec::new();
            for candidate in &record.columns {
                memory.reserve(tables::COLUMN_MEMORY)?;
                match candidate {
                    Candidate::Numbers(name, array) => {
                        // Only reading all values shows whether they fit the type.
                        let mut at = 0;
                        let fits = loop {
                            if at >= array.data.size() {
                                break true;
                            }
                            let length = (crate::limits::PIECE as u64).min(array.data.size() - at);
                            match array.data.copy_at(reader, at, length) {
                                Ok(_) => at += length,
                                Err(fault) if fault.error.is_damage() => {
                                    break false;
                                }
                                Err(fault) => return Err(fault),
                            }
                        };
                        if fits && let Ok(column) = tables::array_column(&names.name(name.as_bytes()), array) {
                            columns.push(column);
                        }
                    }
                    Candidate::Texts(name, content, feature) => {
                        let texts = values::Column { content: content.clone(), feature: *feature };
                        let name = names.name(name.as_bytes());
                        columns.push(Column::strings(name, Arc::new(texts), true, false));
                    }
                }
            }
            let step = Column::row_numbers(&names.name(b"step"), crate::format::DType::I64, record.steps);
            columns.insert(0, step);
            let table = Table {
                number: u64::from(node.split) << 40 | node.record,
                rows: record.steps,
                unit: 1,
                columns,
                about: serde_json::Map::new(),
            };
            Parquet::new(reader, table, memory)
        })
    }
}

impl Container for Rlds {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let Some(Node { part, split, record, item }) = Node::unpack(folder) else { return Ok(None) };
        let is_set = matches!(self.shape, Shape::Set { .. });
        let named = |part| match &self.shape {
            Shape::Set { splits, .. } => splits.get_index_of(name).map(|split| Node::of(part, split as u32, 0, 0)),
            Shape::Lone { .. } => None,
        };
        let whole = || match name.strip_suffix(BIN) {
            Some(number) => self.record_named(reader, split, number),
            None => Ok(None),
        };
        let found = match part {
            Part::Root => match name {
                DESCRIPTION => Some(Node::of(Part::Description, 0, 0, 0)),
                RAW => Some(Node::of(Part::Raw, 0, 0, 0)),
                _ if is_set => named(Part::Split),
                _ => (name == self.records_folder()).then_some(Node::of(Part::Records, 0, 0, 0)),
            },
            Part::Split => (name == self.records_folder()).then_some(Node::of(Part::Records, split, 0, 0)),
            Part::Records if self.are_single() => whole()?.map(|record| Node::of(Part::Single, split, record, 0)),
            Part::Records => {
                self.record_named(reader, split, name)?.map(|record| Node::of(Part::Record, split, record, 0))
            }
            Part::Record => {
                let found = self.record(reader, split, record)?.paths.lookup(item, name);
                found.map(|item| Node::of(Part::Record, split, record, item))
            }
            Part::Raw if is_set => named(Part::RawSplit),
            Part::Raw | Part::RawSplit => whole()?.map(|record| Node::of(Part::RawRecord, split, record, 0)),
            Part::Description | Part::Single | Part::RawRecord => None,
        };
        Ok(found.map(Node::pack))
    }

    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let Some(Node { part, split, record, item }) = Node::unpack(folder) else { return Ok(()) };
        let mut show =
            |next, name: &str, node: Node, is_folder| each(Child { next, name, node: node.pack(), is_folder });
        let no_splits = IndexSet::new();
        let splits = match &self.shape {
            Shape::Set { splits, .. } => splits,
            Shape::Lone { .. } => &no_splits,
        };
        match part {
            Part::Root => {
                let own = [(DESCRIPTION, Node::of(Part::Description, 0, 0, 0), false)];
                let lone = matches!(self.shape, Shape::Lone { .. }).then_some((
                    self.records_folder(),
                    Node::of(Part::Records, 0, 0, 0),
                    true,
                ));
                let named =
                    (0..).zip(splits).map(|(split, name)| (name.as_str(), Node::of(Part::Split, split, 0, 0), true));
                let children = own.into_iter().chain(lone).chain(named);
                for (next, (name, node, is_folder)) in (1..).zip(children).filter(|(next, _)| *next > from) {
                    if show(next, name, node, is_folder).is_break() {
                        break;
                    }
                }
            }
            Part::Split if from == 0 => {
                let _ = show(1, self.records_folder(), Node::of(Part::Records, split, 0, 0), true);
            }
            Part::Records => {
                let is_single = self.are_single();
                for record in from..self.count(reader, split)? {
                    let (part, suffix) = if is_single { (Part::Single, BIN) } else { (Part::Record, "") };
                    let node = Node::of(part, split, record, 0);
                    if show(record + 1, &format!("{record}{suffix}"), node, !is_single).is_break() {
                        break;
                    }
                }
            }
            Part::Record => {
                let record_of = self.record(reader, split, record)?;
                for (next, name, child) in record_of.paths.children_from(item, from) {
                    let is_folder = matches!(record_of.paths.kind(child), Some(Kind::Folder));
                    if show(next, name, Node::of(Part::Record, split, record, child), is_folder).is_break() {
                        break;
                    }
                }
            }
            Part::Raw => {
                for (next, (split, name)) in (1..).zip((0..).zip(splits)).filter(|(next, _)| *next > from) {
                    if show(next, name, Node::of(Part::RawSplit, split, 0, 0), true).is_break() {
                        return Ok(());
                    }
                }
                if splits.is_empty() {
                    self.list_raw(reader, split, from, &mut show)?;
                }
            }
            Part::RawSplit => self.list_raw(reader, split, from, &mut show)?,
            Part::Split | Part::Description | Part::Single | Part::RawRecord => {}
        }
        Ok(())
    }

    fn kind(&self, reader: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        let Some(Node { part, split, record, item }) = Node::unpack(node) else { return Ok(None) };
        let folder = |subfolders| Some(NodeKind::Folder { subfolders });
        Ok(match part {
            Part::Root => match &self.shape {
                Shape::Set { splits, .. } => folder(u32::try_from(splits.len()).ok()),
                Shape::Lone { .. } => folder(Some(1)),
            },
            Part::Split => folder(Some(1)),
            Part::Records | Part::Raw | Part::RawSplit => folder(None),
            // Its files are not known before it is read.
            Part::Record if item == 0 => folder(None),
            Part::Record => match self.record(reader, split, record)?.paths.kind(item) {
                Some(Kind::Folder) => folder(None),
                Some(Kind::File(_)) => Some(NodeKind::File),
                None => None,
            },
            Part::Description | Part::Single | Part::RawRecord => Some(NodeKind::File),
        })
    }

    fn parent(&self, reader: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        let Some(Node { part, split, record, item }) = Node::unpack(node) else { return Ok(super::ROOT) };
        let is_set = matches!(self.shape, Shape::Set { .. });
        let parent = match part {
            Part::Root | Part::Description | Part::Split | Part::Raw => Node::of(Part::Root, 0, 0, 0),
            Part::Records if is_set => Node::of(Part::Split, split, 0, 0),
            Part::Records => Node::of(Part::Root, 0, 0, 0),
            Part::Single => Node::of(Part::Records, split, 0, 0),
            Part::Record if item == 0 => Node::of(Part::Records, split, 0, 0),
            Part::Record => {
                let parent = self.record(reader, split, record)?.paths.parent(item);
                Node::of(Part::Record, split, record, parent)
            }
            Part::RawSplit => Node::of(Part::Raw, 0, 0, 0),
            Part::RawRecord if is_set => Node::of(Part::RawSplit, split, 0, 0),
            Part::RawRecord => Node::of(Part::Raw, 0, 0, 0),
        };
        Ok(parent.pack())
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let Some(Node { part, split, record, item }) = Node::unpack(node) else { return Ok(String::new()) };
        let split_name = self.split_name(split);
        let slash = if split_name.is_empty() { "" } else { "/" };
        let folder = self.records_folder();
        Ok(match part {
            Part::Root => String::new(),
            Part::Description => DESCRIPTION.into(),
            Part::Split => split_name.into(),
            Part::Records => format!("{split_name}{slash}{folder}"),
            Part::Single => format!("{split_name}{slash}{folder}/{record}{BIN}"),
            Part::Record if item == 0 => format!("{split_name}{slash}{folder}/{record}"),
            Part::Record => {
                let path = self.record(reader, split, record)?.paths.path(item);
                format!("{split_name}{slash}{folder}/{record}/{path}")
            }
            Part::Raw => RAW.into(),
            Part::RawSplit => format!("{RAW}/{split_name}"),
            Part::RawRecord => format!("{RAW}/{split_name}{slash}{record}{BIN}"),
        })
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(View::default()) };
        match node.part {
            Part::Description => Ok(View::shared(self.description(reader)?)),
            Part::Single | Part::RawRecord => record::raw(reader, self.find(reader, node.split, node.record)?),
            Part::Record => {
                let view = self.with_file(reader, node, |record, file| match file {
                    File::Array(array) => Ok(array.clone().npy()),
                    File::Bytes(view) => Ok(view.clone()),
                    File::Table => Ok(self.table(reader, node, record)?.view()),
                })?;
                Ok(view.unwrap_or_default())
            }
            Part::Root | Part::Split | Part::Records | Part::Raw | Part::RawSplit => Ok(View::default()),
        }
    }

    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        let Some(node) = Node::unpack(file).filter(|node| node.part == Part::Record) else { return Ok(None) };
        let array = self.with_file(reader, node, |_, file| match file {
            File::Array(array) => Ok(Some(array.clone())),
            File::Bytes(_) | File::Table => Ok(None),
        })?;
        Ok(array.flatten())
    }

    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        let Some(unpacked) = Node::unpack(node).filter(|node| node.part == Part::Record && node.item != 0) else {
            return Ok(None);
        };
        let info = self.with_file(reader, unpacked, |record, file| match file {
            File::Array(array) => Ok(Some(ItemInfo::from(array.clone()))),
            File::Table => Ok(Some(tables::item_info(&*self.table(reader, unpacked, record)?))),
            File::Bytes(_) => Ok(None),
        })?;
        Ok(info.flatten())
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        description::kept(reader, 0, |memory| self.describe(memory))
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        let contents = match self.has_episodes() {
            true => Contents::Episodes { count: self.total(), front: self.front() },
            false => Contents::Items { front: self.front(), items: Vec::new() },
        };
        Ok(Overview { format: RLDS.name, contents })
    }

    fn memory_usage(&self) -> usize {
        self.memory
    }

    fn notices(&self) -> Option<&Notices> {
        Some(&self.notices)
    }

    fn episodes(&self) -> Option<&dyn Episodes> {
        self.has_episodes().then_some(self as &dyn Episodes)
    }

    fn timeline(&self, reader: &ReadContext, folder: NodeId) -> Result<Option<Timeline>, Fault> {
        match Node::unpack(folder) {
            Some(Node { part: Part::Record, split, record, item: 0 }) if self.has_episodes() => {
                self.timeline_of(reader, split, record).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn is_table(&self, reader: &ReadContext, node: NodeId) -> bool {
        let Some(node) = Node::unpack(node).filter(|node| node.part == Part::Record) else { return false };
        let known = reader.cache.parsed::<Record>(record_key(reader, node.split, node.record));
        known.is_some_and(|record| match record.paths.kind(node.item) {
            Some(Kind::File(file)) => matches!(record.files.get(file as usize), Some(File::Table)),
            _ => false,
        })
    }
}

impl Rlds {
    fn list_raw(
        &self,
        reader: &ReadContext,
        split: u32,
        from: u64,
        show: &mut dyn FnMut(u64, &str, Node, bool) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        for record in from..self.count(reader, split)? {
            let node = Node::of(Part::RawRecord, split, record, 0);
            if show(record + 1, &format!("{record}{BIN}"), node, false).is_break() {
                break;
            }
        }
        Ok(())
    }
}
