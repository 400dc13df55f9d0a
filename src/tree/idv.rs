//! IDV: a folder for each column (`docs/TREE.md`, section 6). Nodes are computed, so blocks cost no memory; names of
//! columns are hashed when one is first looked up.

mod describe;
mod loaded;
mod names;
mod table;
mod values;

use std::{
    borrow::Cow,
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

use super::{
    Child, Container, DESCRIPTION, Format, ItemInfo, NodeId, NodeKind, Notice, Notices, Overview,
    describe::kept,
    memory::{WorkingMemory, with_memory},
    overview::Contents,
    tables,
};
use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    format::{
        PartError,
        idv::{self, File, Item, Type, compression},
    },
    view::{Array, Fault, ReadContext, View},
};
use loaded::{Loaded, Shape};
use names::Names;
use values::{Raw, Show, Shown, ValueFile};

/// IDV, the binary data views of ML.NET.
pub static IDV: Format = Format {
    name: "idv",
    title: "IDV",
    summary: "binary data views of ML.NET",
    suffixes: &[".idv"],
    recognise: |front| front.by_magic(&idv::MAGIC, idv::HEADER),
    probe: |source, _, _| idv::probe(source),
    open: |reader, _, memory| Ok(Arc::new(open(idv::parse_within(&*reader.source, memory)?))),
    fixtures: &["table.idv"],
    ..Format::DEFAULT
};

/// Kind of a node. Together with the column, and the number of a block or metadata entry, it identifies the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Root,
    Description,
    Columns,
    Column,
    /// A file of a column's values.
    Shown(Show),
    Block,
    Metadata,
    Entry,
    Table,
}

/// All parts, in the order of their numbers.
const PARTS: [Part; 14] = [
    Part::Root,
    Part::Description,
    Part::Columns,
    Part::Column,
    Part::Shown(Show::Values),
    Part::Shown(Show::Rows),
    Part::Shown(Show::Offsets),
    Part::Shown(Show::Text),
    Part::Shown(Show::Missing),
    Part::Shown(Show::Lines),
    Part::Block,
    Part::Metadata,
    Part::Entry,
    Part::Table,
];

const NUMBERS: [(&str, Show); 1] = [("values.npy", Show::Values)];
const VARIABLE: [(&str, Show); 2] = [("offsets.npy", Show::Rows), ("values.npy", Show::Values)];
const TEXT: [(&str, Show); 4] = [
    ("missing.npy", Show::Missing),
    ("offsets.npy", Show::Offsets),
    ("utf8.bin", Show::Text),
    ("values.jsonl", Show::Lines),
];
const VARIABLE_TEXT: [(&str, Show); 5] = [
    ("missing.npy", Show::Missing),
    ("offsets.npy", Show::Offsets),
    ("rows.npy", Show::Rows),
    ("utf8.bin", Show::Text),
    ("values.jsonl", Show::Lines),
];

/// Position in the listing of a column at which its blocks begin, after the files of its values and the metadata.
const BLOCKS_FROM: u64 = 16;

/// Tag of parsed columns in the cache, by their numbers.
const LOADED: Tag = Tag::Parsed(0);

/// Bytes of memory that a remembered column takes in addition to its texts.
const COLUMN: usize = 1024;

/// Returns the decoded files of a column of a type.
fn files(ty: &Type) -> &'static [(&'static str, Show)] {
    match (ty.item, ty.slots()) {
        (Item::Text, Some(0)) => &VARIABLE_TEXT,
        (Item::Text, _) => &TEXT,
        (_, Some(0)) => &VARIABLE,
        _ => &NUMBERS,
    }
}

/// A node, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    part: Part,
    column: u32,
    item: u64,
}

impl Node {
    fn of(part: Part, column: u32, item: u64) -> Self {
        Self { part, column, item }
    }

    /// Unpacks a node number; `None` for a number that no node has.
    fn unpack(id: NodeId) -> Option<Self> {
        let part = *PARTS.get(usize::try_from(id.0 >> 96).ok()?)?;
        Some(Self { part, column: (id.0 >> 64) as u32, item: id.0 as u64 })
    }

    fn pack(self) -> NodeId {
        let part = PARTS.iter().position(|part| *part == self.part).unwrap_or_default();
        NodeId((part as u128) << 96 | u128::from(self.column) << 64 | u128::from(self.item))
    }
}

/// An IDV file.
pub(super) struct Idv {
    file: File,
    names: OnceLock<Names>,
    notices: Notices,
    /// Whether there is a table, once that was asked.
    has_table: OnceLock<bool>,
}

/// The tree of an IDV file.
fn open(file: File) -> Idv {
    Idv { file, names: OnceLock::new(), notices: Notices::default(), has_table: OnceLock::new() }
}

impl Idv {
    /// Returns the names of all columns, read once.
    fn names(&self, reader: &ReadContext) -> Result<&Names, Fault> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        reader.may_work()?;
        let find = |memory: WorkingMemory<'_>| Names::of(&self.file, &*reader.source, memory).map_err(part_fault);
        let names = with_memory(&reader.cache, find)?;
        Ok(self.names.get_or_init(|| names))
    }

    /// Returns the name of a column's folder.
    fn folder(&self, reader: &ReadContext, column: u32) -> Result<String, Fault> {
        self.names(reader)?.folder(&self.file, &*reader.source, column).map_err(part_fault)
    }

    fn note(&self, node: Node, offset: Option<u64>, message: String) {
        self.notices.add(Notice { node: node.pack(), offset, message });
    }

    /// Returns a column, parsed while it is remembered.
    fn column(&self, reader: &ReadContext, column: u32) -> Result<Arc<Loaded>, Fault> {
        let key = Key::new(reader.container, LOADED, column.into(), 0);
        if let Some(loaded) = reader.cache.parsed(key) {
            return Ok(loaded);
        }
        let Some(found) = self.file.column(&*reader.source, column).map_err(part_fault)? else {
            return Err(Fault::refused(format!("there is no column {column}")));
        };
        let texts = found.name.len() + found.codec.name.len() + found.codec.parameters.len();
        let loaded = Loaded::new(found, &self.file);
        let usage = texts + COLUMN + loaded.memory_usage() * size_of::<u64>();
        for problem in loaded.problems(self.file.tail) {
            self.note(Node::of(Part::Column, column, 0), None, problem);
        }
        Ok(reader.cache.keep_parsed(key, loaded, reader.cache.hold(usage as u64)))
    }

    /// Returns a column with its metadata, read once while it is remembered.
    fn metadata(&self, reader: &ReadContext, column: u32) -> Result<Arc<Loaded>, Fault> {
        let loaded = self.column(reader, column)?;
        if !loaded.has_read_metadata() {
            reader.may_read()?;
            reader.may_work()?;
            let read = |memory: WorkingMemory<'_>| loaded.read_metadata(&self.file, &*reader.source, memory);
            let damage = with_memory(&reader.cache, read)?;
            if let Some(reason) = damage {
                let at = loaded.column().metadata_offset(self.file.tail);
                self.note(Node::of(Part::Metadata, column, 0), at, format!("the table of metadata: {reason}"));
            }
        }
        Ok(loaded)
    }

    /// Returns whether a column has a folder of metadata. Metadata at an impossible offset do not count.
    fn has_metadata(&self, loaded: &Loaded) -> bool {
        loaded.column().metadata_offset(self.file.tail).is_some()
    }

    fn block_suffix(loaded: &Loaded) -> &'static str {
        if compression(loaded.column().compression).is_some() { ".bin" } else { ".stored.bin" }
    }

    /// Returns a file of values.
    fn values(&self, reader: &ReadContext, node: Node, show: Show) -> Result<ValueFile, Fault> {
        let loaded = self.column(reader, node.column)?;
        let Some(values) = loaded.values() else { return Err(Fault::refused("its column has no values")) };
        Shown::open(values, show, reader)
    }

    fn block(&self, reader: &ReadContext, node: Node) -> Result<View, Fault> {
        let loaded = self.column(reader, node.column)?;
        let column = loaded.column();
        let at = column.record_at(node.item);
        let of_block = |error| Fault { block: Some(node.item as u32), offset: at, error: Arc::new(error) };
        let records = column.records(&*reader.source, node.item, 1).map_err(|error| of_block(error.into()))?;
        let Some(record) = records.first() else {
            return Err(Fault::refused(format!("there is no block {}", node.item)));
        };
        let block = record.block(self.file.tail, column.compression);
        let block = block.map_err(|reason| of_block(BlockError::Refused(reason)))?;
        Ok(Raw::view(node.column, node.item, block))
    }

    /// Returns a metadata value.
    fn entry(&self, reader: &ReadContext, node: Node) -> Result<ValueFile, Fault> {
        let loaded = self.metadata(reader, node.column)?;
        let Some(entry) = loaded.entry(node.item) else {
            return Err(Fault::refused(format!("there is no metadata {}", node.item)));
        };
        let show = match entry.shape {
            Shape::Stored => {
                let (offset, length) = (entry.stored.offset, entry.stored.stored_size);
                if let Some(reason) = &entry.stored.error {
                    let error = Arc::new(BlockError::Refused(reason.clone()));
                    return Err(Fault { block: None, offset, error });
                }
                return Ok(ValueFile::Other(View::stored(offset..offset + length)));
            }
            Shape::Array => Show::Values,
            Shape::Text => Show::Lines,
        };
        let Some(values) = &entry.values else { return Err(Fault::refused("this metadata has no value")) };
        Shown::open(values, show, reader)
    }
}

impl Container for Idv {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let Some(Node { part, column, .. }) = Node::unpack(folder) else { return Ok(None) };
        let node = match part {
            Part::Root => match name {
                DESCRIPTION => Some(Node::of(Part::Description, 0, 0)),
                "columns" => Some(Node::of(Part::Columns, 0, 0)),
                table::NAME => self.has_table(reader)?.then(|| Node::of(Part::Table, 0, 0)),
                _ => None,
            },
            Part::Columns => {
                let found = self.names(reader)?.find(&self.file, &*reader.source, name).map_err(part_fault)?;
                found.map(|column| Node::of(Part::Column, column, 0))
            }
            Part::Column => {
                let loaded = self.column(reader, column)?;
                let shown = loaded.values().map_or(&[][..], |values| files(values.ty()));
                if let Some((_, show)) = shown.iter().find(|(known, _)| *known == name) {
                    Some(Node::of(Part::Shown(*show), column, 0))
                } else if name == "metadata" {
                    self.has_metadata(&loaded).then(|| Node::of(Part::Metadata, column, 0))
                } else {
                    let number = name.strip_prefix("block_").and_then(|name| {
                        let digits = name.strip_suffix(Self::block_suffix(&loaded))?;
                        digits.parse::<u64>().ok().filter(|number| number.to_string() == digits)
                    });
                    let number = number.filter(|number| *number < loaded.column().blocks);
                    number.map(|number| Node::of(Part::Block, column, number))
                }
            }
            Part::Metadata => {
                let loaded = self.metadata(reader, column)?;
                loaded.find(name).map(|number| Node::of(Part::Entry, column, number))
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
        let Some(Node { part, column, .. }) = Node::unpack(folder) else { return Ok(()) };
        let mut show = |next, name: &str, part, column, item| {
            let is_folder = matches!(part, Part::Columns | Part::Column | Part::Metadata);
            each(Child { next, name, node: Node::of(part, column, item).pack(), is_folder })
        };
        match part {
            Part::Root => {
                let children = [("columns", Part::Columns), (DESCRIPTION, Part::Description)];
                let table = self.has_table(reader)?.then_some((table::NAME, Part::Table));
                for (next, (name, part)) in
                    (1..).zip(children.into_iter().chain(table)).filter(|(next, _)| *next > from)
                {
                    if show(next, name, part, 0, 0).is_break() {
                        break;
                    }
                }
            }
            Part::Columns => {
                let names = self.names(reader)?;
                for column in u32::try_from(from).unwrap_or(u32::MAX)..self.file.columns() {
                    let name = names.folder(&self.file, &*reader.source, column).map_err(part_fault)?;
                    if show(u64::from(column) + 1, &name, Part::Column, column, 0).is_break() {
                        break;
                    }
                }
            }
            Part::Column => {
                let loaded = self.column(reader, column)?;
                let files = loaded.values().map_or(&[][..], |values| files(values.ty()));
                let metadata = self.has_metadata(&loaded).then_some(("metadata", Part::Metadata));
                let files = files.iter().map(|(name, show)| (*name, Part::Shown(*show)));
                for (next, (name, part)) in (1..).zip(files.chain(metadata)) {
                    if next > from && show(next, name, part, column, 0).is_break() {
                        return Ok(());
                    }
                }
                let suffix = Self::block_suffix(&loaded);
                for number in from.saturating_sub(BLOCKS_FROM)..loaded.column().blocks {
                    let name = format!("block_{number}{suffix}");
                    if show(BLOCKS_FROM + number + 1, &name, Part::Block, column, number).is_break() {
                        break;
                    }
                }
            }
            Part::Metadata => {
                let loaded = self.metadata(reader, column)?;
                for (number, name) in loaded.entries_from(from) {
                    if show(number + 1, name, Part::Entry, column, number).is_break() {
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
            Part::Columns => folder(Some(self.file.columns())),
            // The column's entry says whether there is `metadata`; a listing need not read it.
            Part::Column => folder(None),
            Part::Metadata => folder(Some(0)),
            _ => NodeKind::File,
        }))
    }

    fn parent(&self, _: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        let Some(Node { part, column, .. }) = Node::unpack(node) else { return Ok(super::ROOT) };
        Ok(match part {
            Part::Root | Part::Description | Part::Columns | Part::Table => super::ROOT,
            Part::Column => Node::of(Part::Columns, 0, 0).pack(),
            Part::Entry => Node::of(Part::Metadata, column, 0).pack(),
            _ => Node::of(Part::Column, column, 0).pack(),
        })
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let Some(Node { part, column, item }) = Node::unpack(node) else { return Ok(String::new()) };
        let name: Cow<'_, str> = match part {
            Part::Root => return Ok(String::new()),
            Part::Description => return Ok(DESCRIPTION.into()),
            Part::Table => return Ok(table::NAME.into()),
            Part::Columns => return Ok("columns".into()),
            Part::Column => self.folder(reader, column)?.into(),
            Part::Metadata => "metadata".into(),
            Part::Block => format!("block_{item}{}", Self::block_suffix(&*self.column(reader, column)?)).into(),
            Part::Entry => self.metadata(reader, column)?.name(item).unwrap_or_default().into(),
            Part::Shown(show) => {
                let loaded = self.column(reader, column)?;
                let files = loaded.values().map_or(&[][..], |values| files(values.ty()));
                files.iter().find(|(_, known)| *known == show).map_or("", |(name, _)| name).into()
            }
        };
        Ok(format!("{}/{name}", self.path(reader, self.parent(reader, node)?)?))
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(View::default()) };
        match node.part {
            Part::Description => Ok(View::shared(self.description(reader)?)),
            Part::Table => Ok(self.table(reader)?.view()),
            Part::Block => self.block(reader, node),
            Part::Entry => Ok(self.entry(reader, node)?.view()),
            Part::Shown(show) => Ok(self.values(reader, node, show)?.view()),
            Part::Root | Part::Columns | Part::Column | Part::Metadata => Ok(View::default()),
        }
    }

    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(None) };
        Ok(match node.part {
            Part::Entry => self.entry(reader, node)?.array(),
            Part::Shown(show) => self.values(reader, node, show)?.array(),
            _ => None,
        })
    }

    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        if self.is_table(reader, node) {
            return Ok(Some(tables::item_info(&*self.table(reader)?)));
        }
        Ok(self.array(reader, node)?.map(ItemInfo::from))
    }

    fn rows(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        rows: std::ops::Range<u64>,
        elements: u64,
        bytes: u64,
    ) -> Result<Option<Vec<super::Cells>>, Fault> {
        let Some(Node { part: Part::Column, column, .. }) = Node::unpack(folder) else { return Ok(None) };
        match self.column(reader, column)?.values() {
            Some(values) => values::rows(values, reader, rows, elements, bytes),
            None => Ok(None),
        }
    }

    fn is_table(&self, _: &ReadContext, node: NodeId) -> bool {
        Node::unpack(node).is_some_and(|node| node.part == Part::Table)
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        kept(reader, 0, |memory| describe::describe(self, reader, memory))
    }

    fn memory_usage(&self) -> usize {
        let names = self.names.get().map_or(0, Names::memory_usage);
        self.file.memory_usage() + names
    }

    fn overview(&self, reader: &ReadContext) -> Result<Overview, Fault> {
        let contents = Contents::Table(describe::overview(self, reader)?);
        Ok(Overview { format: IDV.name, contents })
    }

    fn overview_memory(&self) -> u64 {
        describe::overview_memory(self)
    }

    fn block_name(&self, block: u32) -> String {
        format!("block_{block}")
    }

    fn notices(&self) -> Option<&Notices> {
        Some(&self.notices)
    }
}

fn part_fault(error: PartError) -> Fault {
    match error {
        PartError::Damaged(reason) => Fault::refused(reason),
        PartError::Source(error) => error.into(),
    }
}
