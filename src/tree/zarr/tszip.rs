//! tszip files: the tree sequence in a Zarr archive, shown as the `.trees` file that it was made from
//! (`docs/formats/tszip.md`).
//!
//! The keys of that file are consecutive in a source that is computed from the arrays. The tree of kastore shows this
//! source.

use std::{
    fmt,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use serde_json::json;

use super::{ArrayNode, Files, Zarr, nodes};
use crate::{
    cache::{Buffer, Key, Tag},
    format::{
        Class, DType, FormatError, kastore,
        zarr::{Array as Metadata, Elements, Json},
    },
    held::Held,
    limits,
    source::{Memory, Source, SourceError, Wait, zeros},
    tree::{
        Child, Container, ItemInfo, NodeId, NodeKind, Overview, Table, describe,
        kastore::{Arrays, open_items},
        memory::unread,
    },
    view::{Array, Fault, ReadContext, Rendered, View},
};

/// The suffix of its files.
pub(super) const SUFFIX: &str = ".tsz";

/// The format name in the attributes of the root.
pub(super) const FORMAT_NAME: &str = "tszip";

/// The groups that every file has.
const TABLES: [&str; 8] =
    ["nodes", "edges", "sites", "mutations", "migrations", "individuals", "populations", "provenances"];

/// The keys of a `.trees` file with their types in tskit.
const COLUMNS: [(&str, DType); 45] = [
    ("time_units", DType::I8),
    ("metadata", DType::I8),
    ("metadata_schema", DType::I8),
    ("reference_sequence/data", DType::U8),
    ("reference_sequence/url", DType::U8),
    ("reference_sequence/metadata", DType::U8),
    ("reference_sequence/metadata_schema", DType::U8),
    ("nodes/time", DType::F64),
    ("nodes/flags", DType::U32),
    ("nodes/population", DType::I32),
    ("nodes/individual", DType::I32),
    ("nodes/metadata", DType::U8),
    ("nodes/metadata_schema", DType::U8),
    ("edges/left", DType::F64),
    ("edges/right", DType::F64),
    ("edges/parent", DType::I32),
    ("edges/child", DType::I32),
    ("edges/metadata", DType::U8),
    ("edges/metadata_schema", DType::U8),
    ("sites/position", DType::F64),
    ("sites/ancestral_state", DType::U8),
    ("sites/metadata", DType::U8),
    ("sites/metadata_schema", DType::U8),
    ("mutations/site", DType::I32),
    ("mutations/node", DType::I32),
    ("mutations/parent", DType::I32),
    ("mutations/time", DType::F64),
    ("mutations/derived_state", DType::U8),
    ("mutations/metadata", DType::U8),
    ("mutations/metadata_schema", DType::U8),
    ("migrations/left", DType::F64),
    ("migrations/right", DType::F64),
    ("migrations/node", DType::I32),
    ("migrations/source", DType::I32),
    ("migrations/dest", DType::I32),
    ("migrations/time", DType::F64),
    ("migrations/metadata", DType::U8),
    ("migrations/metadata_schema", DType::U8),
    ("individuals/flags", DType::U32),
    ("individuals/location", DType::F64),
    ("individuals/parents", DType::I32),
    ("individuals/metadata", DType::U8),
    ("individuals/metadata_schema", DType::U8),
    ("populations/metadata", DType::U8),
    ("populations/metadata_schema", DType::U8),
];
const MORE_COLUMNS: [(&str, DType); 4] = [
    ("provenances/timestamp", DType::U8),
    ("provenances/record", DType::U8),
    ("indexes/edge_insertion_order", DType::I32),
    ("indexes/edge_removal_order", DType::I32),
];

/// Keys whose rows have different lengths. The offsets of rows are under the same key with [`OFFSET`].
const RAGGED: [&str; 13] = [
    "nodes/metadata",
    "edges/metadata",
    "sites/ancestral_state",
    "sites/metadata",
    "mutations/derived_state",
    "mutations/metadata",
    "migrations/metadata",
    "individuals/location",
    "individuals/parents",
    "individuals/metadata",
    "populations/metadata",
    "provenances/timestamp",
    "provenances/record",
];
const OFFSET: &str = "_offset";

/// Keys whose stored integers are indices into the array of all coordinates.
const PLACES: [&str; 5] = ["edges/left", "edges/right", "migrations/left", "migrations/right", "sites/position"];
const COORDINATES: &str = "coordinates";

/// The group of the reference sequence, which not every file has.
const REFERENCE: &str = "reference_sequence/";

/// Keys begin at multiples of this.
const ALIGN: u64 = 8;

/// Returns whether the attributes of a root name tszip.
pub(super) fn is_named(attributes: &Json) -> bool {
    attributes.get("format_name").and_then(Json::as_str) == Some(FORMAT_NAME)
}

/// Checks that a store has the arrays that tszip writes, as far as their metadata can be read.
///
/// # Errors
/// Why it is not.
pub(super) fn check(found: &nodes::Nodes) -> Result<(), String> {
    let major = found.attributes.get("format_version").and_then(Json::as_list).and_then(|version| version.first());
    if found.is_v3 || found.is_array || !is_named(&found.attributes) {
        return Err("no store of tszip".into());
    }
    if major.and_then(Json::as_int) != Some(1) {
        return Err("another version of tszip than 1".into());
    }
    if found.attributes.get("sequence_length").and_then(Json::as_double).is_none() {
        return Err("sequence_length is no number".into());
    }
    let node = |path: &str| found.nodes.iter().find(|node| &*node.path == path);
    for table in TABLES {
        if node(table).is_none_or(|node| node.array.as_ref().is_some_and(|array| array.shape.is_some())) {
            return Err(format!("there is no group {table}"));
        }
    }
    let array = |path: &str| node(path).map(|node| node.array.as_ref());
    check_array(array(COORDINATES).flatten(), DType::F64).map_err(|reason| format!("{COORDINATES}: {reason}"))?;
    for (key, dtype) in all_columns() {
        let wanted = if PLACES.contains(&key) { DType::I32 } else { dtype };
        if let Some(found) = array(key) {
            check_array(found, wanted).map_err(|reason| format!("{key}: {reason}"))?;
        }
    }
    for key in RAGGED {
        if let Some(found) = array(&format!("{key}{OFFSET}")) {
            check_array(found, DType::U32).map_err(|reason| format!("{key}{OFFSET}: {reason}"))?;
        }
    }
    Ok(())
}

/// Checks that the metadata of all nodes can be read. Without one of them, the others would seem to be all that is
/// there.
///
/// # Errors
/// `Refused` with the first that cannot.
pub(super) fn check_readable(found: &nodes::Nodes) -> Result<(), FormatError> {
    let reason = |node: &nodes::Node| {
        let reason = node.array.as_ref()?.chunks.as_ref().err()?;
        Some(format!("{}: {reason}", node.path))
    };
    let unreadable = found.nodes.iter().find_map(reason);
    unreadable.map_or(Ok(()), |reason| Err(FormatError::refused(Class::NotReadable, reason)))
}

fn all_columns() -> impl Iterator<Item = (&'static str, DType)> {
    COLUMNS.into_iter().chain(MORE_COLUMNS)
}

/// Checks that an array has one axis, and elements that can be converted to a type.
fn check_array(array: Option<&Metadata>, wanted: DType) -> Result<(), String> {
    let array = array.ok_or("no array")?;
    let Some(shape) = &array.shape else { return Ok(()) };
    let dtype = match &array.elements {
        Some(Elements::Fixed(fixed)) => fixed.element.plain(),
        _ => None,
    };
    if shape.len() != 1 {
        return Err("not of one dimension".into());
    }
    let is_float = matches!(dtype, Some(DType::F32 | DType::F64));
    let is_right = if wanted == DType::F64 { is_float } else { dtype.is_some_and(is_integer) };
    if is_right { Ok(()) } else { Err("of another type".into()) }
}

fn is_integer(dtype: DType) -> bool {
    use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
}

/// How the bytes of a key are computed.
enum Made {
    /// They are these bytes.
    Bytes(Vec<u8>),
    /// Elements of the first type, converted to the second.
    Cast(View, DType, DType),
    /// Indices of this type into the coordinates.
    Places(View, DType),
}

/// The file that the store was made from.
struct Computed {
    /// Reads the archive.
    reader: ReadContext,
    /// Where each key begins, in order.
    keys: Vec<(u64, Made)>,
    /// The coordinates, their type and their number.
    coordinates: (View, DType, u64),
    len: u64,
}

/// The computed file as a source.
struct File(Computed);

/// The tree of a tszip file.
pub(in super::super) struct Tszip {
    table: Table<Arrays>,
    source: Arc<dyn Source>,
    files: Arc<Files>,
    memory_usage: usize,
}

/// Returns the tree of the arrays of a store that was checked.
///
/// # Errors
/// `Source` if the texts' offsets cannot be read.
pub(super) fn open(reader: &ReadContext, attributes: &Json, zarr: &Zarr) -> Result<Tszip, FormatError> {
    // What is read later is read by this context, which must be one that may wait.
    if reader.wait() == Wait::Never {
        return Err(SourceError::WouldBlock.into());
    }
    let find = |key: &str| zarr.arrays.iter().find(|array| &*array.path == key);
    let mut made: Vec<(String, DType, u64, Made)> = Vec::new();
    let mut add = |key: &str, dtype, count, bytes| made.push((key.to_owned(), dtype, count, bytes));
    add("format/name", DType::I8, 11, Made::Bytes(b"tskit.trees".to_vec()));
    add("format/version", DType::U32, 2, Made::Bytes([12u32, 7].map(u32::to_le_bytes).concat()));
    let length = attributes.get("sequence_length").and_then(Json::as_double).unwrap_or_default();
    add("sequence_length", DType::F64, 1, Made::Bytes(length.to_le_bytes().into()));
    let has_reference = zarr.arrays.iter().any(|array| array.path.starts_with(REFERENCE));
    for (key, dtype) in all_columns() {
        // tszip leaves out what is empty, and tskit has these keys always.
        let is_there = if key.starts_with(REFERENCE) {
            has_reference
        } else {
            key.ends_with("metadata_schema") || key == "metadata"
        };
        match find(key).and_then(elements) {
            Some((data, from, count)) if PLACES.contains(&key) => add(key, dtype, count, Made::Places(data, from)),
            Some((data, from, count)) => add(key, dtype, count, Made::Cast(data, from, dtype)),
            None if is_there => add(key, dtype, 0, Made::Bytes(Vec::new())),
            None => {}
        }
    }
    for key in RAGGED {
        let key = format!("{key}{OFFSET}");
        if let Some((data, from, count)) = find(&key).and_then(elements) {
            let dtype = if from.size() == 8 { DType::U64 } else { DType::U32 };
            add(&key, dtype, count, Made::Cast(data, from, dtype));
        }
    }
    made.sort_by(|a, b| a.0.cmp(&b.0));
    let coordinates = find(COORDINATES).and_then(elements).unwrap_or((View::default(), DType::F64, 0));
    let (mut items, mut keys, mut at) = (Vec::new(), Vec::new(), 0u64);
    for (key, dtype, count, bytes) in made {
        let size = count.saturating_mul(dtype.size());
        let end = at.checked_add(size).filter(|end| *end < limits::LARGEST_BLOCK);
        let end = end.ok_or_else(|| FormatError::refused(Class::TooMany, "its columns are too long"))?;
        items.push(kastore::Item { key: key.into_bytes(), dtype, count, data: at..end });
        keys.push((at, bytes));
        at = end.next_multiple_of(ALIGN);
    }
    let memory_usage = (items.len() * 512).saturating_add(zarr.files.memory_usage());
    let source: Arc<dyn Source> = Arc::new(File(Computed { reader: reader.clone(), keys, coordinates, len: at }));
    let front = json!({"format": FORMAT_NAME, "version": "1.0"});
    let table = open_items(FORMAT_NAME, front, &*source, items)?;
    Ok(Tszip { table, source, files: zarr.files.clone(), memory_usage })
}

/// Returns the elements of an array, their type and number.
fn elements(array: &ArrayNode) -> Option<(View, DType, u64)> {
    Some((array.data()?, array.fixed()?.element.plain()?, array.array.count()?))
}

/// Returns an integer of a type by its little-endian bytes.
fn integer(bytes: &[u8], dtype: DType) -> i128 {
    let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let shift = 64 - 8 * bytes.len().min(8) as u32;
            i128::from(((bits << shift) as i64) >> shift)
        }
        _ => bits.into(),
    }
}

/// Converts stored elements to shown ones.
type Make<'a> = dyn FnMut(&[u8], &mut [u8]) -> Result<(), Fault> + 'a;

impl Computed {
    /// Fills `out` with bytes of a key, from one of them on.
    fn fill(&self, made: &Made, at: u64, out: &mut [u8]) -> Result<(), Fault> {
        match made {
            Made::Bytes(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let bytes = bytes.get(at..).and_then(|bytes| bytes.get(..out.len())).ok_or(SourceError::Changed)?;
                out.copy_from_slice(bytes);
                Ok(())
            }
            // Such a conversion keeps all bits.
            Made::Cast(data, from, to) if from.size() == to.size() && (from == to || from.size() == 1) => {
                data.fill_at(&self.reader, at, out)
            }
            Made::Cast(data, from, to) => self.each(data, *from, to.size(), at, out, &mut |bytes, out| {
                if *to == DType::F64 {
                    let value = bytes.first_chunk().map_or(0.0, |bits| f64::from(f32::from_le_bytes(*bits)));
                    out.copy_from_slice(&value.to_le_bytes());
                    return Ok(());
                }
                let value = integer(bytes, *from);
                let bytes = value.to_le_bytes();
                let bytes = &bytes[..out.len()];
                if integer(bytes, *to) != value {
                    return Err(Fault::refused(format!("{value} is no {to}")));
                }
                out.copy_from_slice(bytes);
                Ok(())
            }),
            Made::Places(data, from) => {
                let coordinates = self.coordinates()?;
                let _held = Held::new(coordinates.len() as u64);
                self.each(data, *from, 8, at, out, &mut |bytes, out| {
                    let place = integer(bytes, *from);
                    let at = usize::try_from(place).ok().and_then(|place| place.checked_mul(8));
                    let found = at.and_then(|at| coordinates.get(at..)?.get(..8));
                    let found = found
                        .ok_or_else(|| Fault::refused(format!("coordinate {place} of {}", coordinates.len() / 8)))?;
                    out.copy_from_slice(found);
                    Ok(())
                })
            }
        }
    }

    /// Converts elements one by one to elements of `width` bytes.
    fn each(
        &self,
        data: &View,
        from: DType,
        width: u64,
        at: u64,
        out: &mut [u8],
        make: &mut Make<'_>,
    ) -> Result<(), Fault> {
        /// Elements that are read at a time.
        const TOGETHER: u64 = 16 << 10;
        let size = from.size();
        let (mut at, mut rest) = (at, out);
        let mut element = [0; 8];
        let made = &mut element[..width as usize];
        while !rest.is_empty() {
            let (first, skip) = (at / width, at % width);
            let count = (skip + rest.len() as u64).div_ceil(width).min(TOGETHER);
            let mut bytes = zeros((count * size) as usize).map_err(SourceError::from)?;
            data.fill_at(&self.reader, first * size, &mut bytes)?;
            let mut skip = skip as usize;
            for bytes in bytes.chunks_exact(size as usize) {
                make(bytes, made)?;
                let length = (made.len() - skip).min(rest.len());
                let (here, after) = rest.split_at_mut(length);
                here.copy_from_slice(&made[skip..skip + length]);
                (rest, skip) = (after, 0);
                at += length as u64;
            }
        }
        Ok(())
    }

    /// Returns all coordinates, as doubles.
    fn coordinates(&self) -> Result<Arc<Buffer>, Fault> {
        let (data, dtype, count) = &self.coordinates;
        let key = Key::new(self.reader.container, Tag::Own(4), 0, 0);
        describe::kept_as(&self.reader, key, |memory| {
            let size = count.saturating_mul(8);
            memory.reserve(size)?;
            let mut bytes = Buffer::zeroed(usize::try_from(size).unwrap_or(usize::MAX)).map_err(SourceError::from)?;
            self.fill(&Made::Cast(data.clone(), *dtype, DType::F64), 0, &mut bytes)?;
            Ok(bytes)
        })
    }
}

impl Source for File {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        if wait == Wait::Never {
            return Err(SourceError::WouldBlock);
        }
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.0.len);
        let Some(end) = end else {
            return Err(SourceError::OutOfRange { start: offset, end: u64::MAX, len: self.0.len });
        };
        let keys = &self.0.keys;
        let first = keys.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
        let ends = keys.iter().skip(first + 1).map(|(start, _)| *start).chain([self.0.len]);
        for ((start, made), next) in keys.iter().skip(first).zip(ends) {
            let (from, to) = (offset.max(*start), end.min(next));
            if *start >= end {
                break;
            }
            if from < to
                && let Some(out) = buf.get_mut((from - offset) as usize..(to - offset) as usize)
            {
                self.0.fill(made, from - start, out).map_err(|fault| unread(&fault.error))?;
            }
        }
        Ok(())
    }

    fn check_unchanged(&self, wait: Wait) -> Result<(), SourceError> {
        self.0.reader.source.check_unchanged(wait)
    }
}

/// A view whose ranges are those of another source.
struct Through {
    source: Arc<dyn Source>,
    view: View,
}

impl fmt::Debug for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of computed bytes", self.view)
    }
}

impl Rendered for Through {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.view.fill_at(&reader.with_source(self.source.clone()), part.start, out)
    }
}

impl Tszip {
    fn reader(&self, reader: &ReadContext) -> ReadContext {
        reader.with_source(self.source.clone())
    }

    fn through(&self, view: View) -> View {
        View::default().with_rendered(view.size(), Through { source: self.source.clone(), view })
    }
}

impl Container for Tszip {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        self.table.lookup(&self.reader(reader), folder, name)
    }

    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        self.table.list(&self.reader(reader), folder, from, each)
    }

    fn kind(&self, reader: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        self.table.kind(reader, node)
    }

    fn parent(&self, reader: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        self.table.parent(reader, node)
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        self.table.path(reader, node)
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        Ok(self.through(self.table.view(&self.reader(reader), file)?))
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        self.table.description(&self.reader(reader))
    }

    fn overview(&self, reader: &ReadContext) -> Result<Overview, Fault> {
        self.table.overview(&self.reader(reader))
    }

    fn overview_memory(&self) -> u64 {
        self.table.overview_memory()
    }

    fn block_name(&self, block: u32) -> String {
        self.table.block_name(block)
    }

    fn memory_usage(&self) -> usize {
        self.table.memory_usage() + self.memory_usage
    }

    fn warnings(&self) -> &[String] {
        self.table.warnings()
    }

    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        let misnamed = self.files.store.misnamed(reader)?;
        Ok([misnamed, self.table.verify_rest(&self.reader(reader))?].concat())
    }

    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        let array = self.table.array(&self.reader(reader), file)?;
        Ok(array.map(|array| Array { data: self.through(array.data), ..array }))
    }

    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        self.table.item_info(&self.reader(reader), node)
    }

    fn is_table(&self, reader: &ReadContext, node: NodeId) -> bool {
        self.table.is_table(reader, node)
    }
}
