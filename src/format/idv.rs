//! IDV files (`docs/formats/idv.md`), the binary data views of ML.NET: a header, columns of blocks, and tables that say
//! where everything is.
//!
//! Opening walks through the table of contents once and keeps where each column's entry begins. The entry, a column's
//! lookup table and its metadata are read on first use.

mod codec;
mod cursor;
mod metadata;
mod text;
mod vector;

pub use codec::{Definition, Item, Key, Type, Unusable};
pub use metadata::{Entry, Metadata};
pub use text::{length_at, length_in};
pub use vector::{Content, Place, Plan, Run, common_length};

use std::ops::Range;

use super::{Block, Class, Fields, FormatError, PartError};
use crate::{
    codec::Codec,
    limits,
    source::{Memory, Source, SourceError, Unlimited, to_usize},
    wanted,
};
use cursor::Cursor;

/// First bytes of every file.
pub const MAGIC: [u8; 8] = *b"CML\0DVB\0";

/// Last bytes of every file; further bytes may follow them.
const TAIL: [u8; 8] = *b"\0BVD\0LMC";

/// Length of the header.
pub const HEADER: u64 = 256;

/// The shortest entry of the table of contents.
const SHORTEST_ENTRY: u64 = 22;

/// Number of columns after which it checks whether the reader still waits.
const LOOK: u32 = 4096;

/// Length of a record of a lookup table.
const RECORD: u64 = 16;

/// A version: four numbers, the most significant first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    const fn new(last: u64) -> Self {
        Self(0x0001_0001_0001_0000 | last)
    }

    /// Returns whether signed integers of this version have missing values (`docs/formats/idv.md` 8).
    pub fn has_missing(self) -> bool {
        self < Self::new(6)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| self.0 >> shift & 0xffff);
        write!(f, "{a}.{b}.{c}.{d}")
    }
}

/// An IDV file: its header, and where its columns are described.
#[derive(Debug)]
pub struct File {
    /// The version that wrote it.
    pub version: Version,
    /// The oldest version that may read it.
    pub compatible: Version,
    /// Rows.
    pub rows: u64,
    /// Offset of the tail signature. Nothing of the file lies after it.
    pub tail: u64,
    /// Offset of the entry of each column.
    entries: Vec<u64>,
    /// Offset of the end of the last entry.
    end: u64,
}

/// A column, as the table of contents describes it (`docs/formats/idv.md` 4).
#[derive(Debug, Clone)]
pub struct Column {
    /// Its number.
    pub index: u32,
    /// Its name: any bytes, not necessarily unique.
    pub name: Vec<u8>,
    /// Type of its values.
    pub codec: Definition,
    /// How its blocks are compressed: 0 not, 1 DEFLATE, 2 zlib.
    pub compression: u8,
    /// Rows per block; the last block may have fewer.
    pub rows_per_block: u64,
    /// Number of blocks; 0 if their table cannot exist.
    pub blocks: u64,
    /// Why there is no table of blocks.
    pub table: Result<(), String>,
    lookup_offset: u64,
    metadata_offset: i64,
}

/// Returns the codec of a kind of compression; `None` for an unknown kind.
pub fn compression(kind: u8) -> Option<Codec> {
    match kind {
        0 => Some(Codec::None),
        1 => Some(Codec::Deflate),
        2 => Some(Codec::Zlib),
        _ => None,
    }
}

/// Checks whether the file opens as IDV. Header and table of contents decide that.
///
/// # Errors
/// As [`parse`].
pub fn probe(source: &dyn Source) -> Result<(), FormatError> {
    read(source, None).map(drop)
}

/// Reads and checks header and table of contents, in the order of `docs/formats/idv.md` 12.
///
/// # Errors
/// [`FormatError`] if the file must be refused or cannot be read.
pub fn parse(source: &dyn Source) -> Result<File, FormatError> {
    parse_within(source, &Unlimited)
}

/// Does the same as [`parse`], with memory reserved first.
///
/// # Errors
/// As [`parse`]; `Source` if there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<File, FormatError> {
    read(source, Some(memory))
}

/// Reads all columns, and keeps where they begin if there is memory for that.
fn read(source: &dyn Source, memory: Option<&dyn Memory>) -> Result<File, FormatError> {
    let len = source.len();
    let refuse = |class, reason: String| Err(FormatError::refused(class, reason));
    if len < HEADER {
        return refuse(Class::Truncated, format!("{len} bytes, the header alone has {HEADER}"));
    }
    let header = source.read(0..HEADER)?;
    if !header.starts_with(&MAGIC) {
        return refuse(Class::BadMagic, "it does not begin with CML\\0DVB\\0".into());
    }
    let long = |at: usize| header.u64(at).unwrap_or(0);
    let signed = |at: usize| long(at) as i64;
    let (version, compatible) = (Version(long(8)), Version(long(16)));
    if compatible > version {
        return refuse(Class::BadFormat, format!("version {version} claims to be compatible with {compatible}"));
    }
    if version < Version::new(2) || compatible < Version::new(4) {
        return refuse(Class::VersionTooOld, format!("version {version}, compatible with {compatible}"));
    }
    if compatible > Version::new(6) {
        return refuse(Class::VersionTooNew, format!("version {version}, compatible with {compatible} at least"));
    }
    let (toc, tail, rows) = (signed(24), signed(32), signed(40));
    let columns = header.u32(48).unwrap_or(0) as i32;
    let Ok(rows) = u64::try_from(rows) else { return refuse(Class::BadFormat, format!("{rows} rows")) };
    let Ok(columns) = u64::try_from(columns) else { return refuse(Class::BadFormat, format!("{columns} columns")) };
    let is_inside = |tail: &u64| *tail >= HEADER && tail.checked_add(TAIL.len() as u64).is_some_and(|end| end <= len);
    let Some(tail) = u64::try_from(tail).ok().filter(is_inside) else {
        return refuse(Class::Truncated, format!("the tail at {tail} is not inside the file of {len} bytes"));
    };
    let mut signature = [0; 8];
    source.fill(tail, &mut signature)?;
    if signature != TAIL {
        return refuse(Class::BadFormat, format!("there is no tail signature at {tail}"));
    }
    let mut file = File { version, compatible, rows, tail, entries: Vec::new(), end: 0 };
    if columns == 0 {
        return Ok(file);
    }
    let Some(toc) = u64::try_from(toc).ok().filter(|toc| (HEADER..=tail).contains(toc)) else {
        let reason = format!("the table of contents at {toc} is not between {HEADER} and {tail}");
        return refuse(Class::BadFormat, reason);
    };
    if columns * SHORTEST_ENTRY > tail - toc {
        let reason = format!("{columns} columns have no room in the {} bytes of their table", tail - toc);
        return refuse(Class::Truncated, reason);
    }
    if columns > limits::IDV_COLUMNS {
        return refuse(Class::BadFormat, format!("{columns} columns, at most {} are shown", limits::IDV_COLUMNS));
    }
    if let Some(memory) = memory {
        memory.reserve(columns * size_of::<u64>() as u64)?;
        file.entries.reserve_exact(to_usize(columns));
    }
    let mut cursor = Cursor::new(source, toc, tail);
    for index in (0u32..).take(to_usize(columns)) {
        if index.is_multiple_of(LOOK) {
            wanted::check().map_err(SourceError::from)?;
        }
        if memory.is_some() {
            file.entries.push(cursor.at());
        }
        let column = file.entry(&mut cursor, index);
        let per_block = match column {
            Ok(column) => column.rows_per_block,
            Err(PartError::Damaged(reason)) => return refuse(Class::BadFormat, format!("column {index}: {reason}")),
            Err(PartError::Source(error)) => return Err(error.into()),
        };
        if per_block > i32::MAX as u64 || per_block == 0 && rows > 0 {
            return refuse(Class::BadFormat, format!("column {index}: {per_block} rows in a block"));
        }
    }
    file.end = cursor.at();
    Ok(file)
}

impl File {
    /// How many columns there are.
    #[expect(clippy::cast_possible_truncation, reason = "`IDV_COLUMNS` bounds them")]
    pub fn columns(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns the bytes of the columns' entries in the file: names, and the names and parameters of codecs.
    pub fn entry_size(&self, columns: Range<u32>) -> u64 {
        let start = |column: u32| self.entries.get(column as usize).copied().unwrap_or(self.end);
        start(columns.end).saturating_sub(start(columns.start))
    }

    /// Returns the bytes of memory that it takes, about.
    pub fn memory_usage(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// Reads a column's entry; `None` after the last.
    ///
    /// # Errors
    /// [`PartError`] if it cannot be read, or differs from what was there when the file was opened.
    pub fn column(&self, source: &dyn Source, index: u32) -> Result<Option<Column>, PartError> {
        let Some(&at) = self.entries.get(index as usize) else { return Ok(None) };
        self.entry(&mut Cursor::new(source, at, self.tail), index).map(Some)
    }

    /// Reads a column's name only.
    ///
    /// # Errors
    /// As [`Self::column`].
    pub fn name(&self, source: &dyn Source, index: u32) -> Result<Vec<u8>, PartError> {
        let Some(&at) = self.entries.get(index as usize) else { return Ok(Vec::new()) };
        Cursor::new(source, at, self.tail).string("a column's name", limits::IDV_NAME)
    }

    /// Goes through all names in order.
    ///
    /// # Errors
    /// As [`Self::column`].
    pub fn names(&self, source: &dyn Source, mut each: impl FnMut(u32, Vec<u8>)) -> Result<(), PartError> {
        let Some(&first) = self.entries.first() else { return Ok(()) };
        let mut cursor = Cursor::new(source, first, self.tail);
        for (index, &at) in (0u32..).zip(&self.entries) {
            if index.is_multiple_of(LOOK) {
                wanted::check().map_err(SourceError::from)?;
            }
            cursor.skip(at - cursor.at(), "a column")?;
            each(index, cursor.string("a column's name", limits::IDV_NAME)?);
        }
        Ok(())
    }

    fn entry(&self, cursor: &mut Cursor<'_>, index: u32) -> Result<Column, PartError> {
        let name = cursor.string("a column's name", limits::IDV_NAME)?;
        let codec = codec::definition(cursor)?;
        let compression = cursor.u8("the compression of a column")?;
        let rows_per_block = cursor.leb("the rows in a block")?;
        let lookup = cursor.i64("the offset of a lookup table")?;
        let metadata_offset = cursor.i64("the offset of metadata")?;
        let blocks = if self.rows == 0 { 0 } else { (self.rows - 1) / rows_per_block.max(1) + 1 };
        let table = self.check_table(blocks, lookup);
        let blocks = if table.is_ok() { blocks } else { 0 };
        let lookup_offset = u64::try_from(lookup).unwrap_or(0);
        Ok(Column { index, name, codec, compression, rows_per_block, blocks, table, lookup_offset, metadata_offset })
    }

    fn check_table(&self, blocks: u64, lookup: i64) -> Result<(), String> {
        if blocks == 0 {
            return Ok(());
        }
        if blocks > limits::IDV_BLOCKS {
            return Err(format!("{blocks} blocks are more than {}", limits::IDV_BLOCKS));
        }
        let start = u64::try_from(lookup).ok().filter(|start| *start >= HEADER);
        let end = start.and_then(|start| start.checked_add(blocks * RECORD));
        if end.is_none_or(|end| end > self.tail) {
            let tail = self.tail;
            return Err(format!("its lookup table, {blocks} blocks at {lookup}, is not between {HEADER} and {tail}"));
        }
        Ok(())
    }
}

impl Column {
    /// Returns why the column has no values, if it has none.
    pub fn unusable(&self) -> Option<Unusable> {
        if let Err(reason) = &self.table {
            return Some(Unusable::Bad(reason.clone()));
        }
        if let Err(unusable) = &self.codec.meaning {
            return Some(unusable.clone());
        }
        let kind = self.compression;
        compression(kind).is_none().then(|| Unusable::Dead(format!("compression kind {kind} is not known")))
    }

    /// Returns the rows of a block, of `rows` in all.
    pub fn rows_of(&self, block: u64, rows: u64) -> u64 {
        rows.saturating_sub(block.saturating_mul(self.rows_per_block)).min(self.rows_per_block)
    }

    /// Returns the offset of this column's metadata, if it is possible.
    pub fn metadata_offset(&self, tail: u64) -> Option<u64> {
        u64::try_from(self.metadata_offset).ok().filter(|offset| (HEADER..=tail).contains(offset))
    }

    /// Returns the stored offset of metadata, if it is impossible.
    pub fn bad_metadata_offset(&self, tail: u64) -> Option<i64> {
        (self.metadata_offset != 0 && self.metadata_offset(tail).is_none()).then_some(self.metadata_offset)
    }

    /// Reads up to `count` records of the lookup table from `first` on; fewer only at the end.
    ///
    /// # Errors
    /// [`SourceError`] if they cannot be read.
    pub fn records(&self, source: &dyn Source, first: u64, count: u64) -> Result<Vec<Record>, SourceError> {
        let first = first.min(self.blocks);
        let end = first.saturating_add(count).min(self.blocks);
        // In the table, whose place was checked.
        let bytes = source.read(self.lookup_offset + first * RECORD..self.lookup_offset + end * RECORD)?;
        let record = |bytes: &[u8]| Record {
            offset: bytes.u64(0).unwrap_or(0) as i64,
            stored: bytes.u32(8).unwrap_or(0) as i32,
            size: bytes.u32(12).unwrap_or(0) as i32,
        };
        Ok(bytes.chunks_exact(to_usize(RECORD)).map(record).collect())
    }

    /// Returns the offset of a record of this column's lookup table, for messages.
    pub fn record_at(&self, block: u64) -> u64 {
        self.lookup_offset.saturating_add(block.saturating_mul(RECORD))
    }
}

/// A record of a lookup table (`docs/formats/idv.md` 6), unchecked.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Where the stored bytes begin.
    pub offset: i64,
    /// How many they are.
    pub stored: i32,
    /// How many they decode to.
    pub size: i32,
}

impl Record {
    /// Returns the block, if it can be where the record says. For an unknown compression, its bytes are the stored
    /// ones.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn block(&self, tail: u64, kind: u8) -> Result<Block, String> {
        let Self { offset, stored, size } = *self;
        let sizes = u64::try_from(stored).ok().zip(u64::try_from(size).ok());
        let Some((stored_size, size)) = sizes else { return Err(format!("{stored} bytes stored, {size} decoded")) };
        let at = u64::try_from(offset).ok().filter(|at| *at >= HEADER);
        let Some(offset) = at.filter(|at| at.checked_add(stored_size).is_some_and(|end| end <= tail)) else {
            return Err(format!("{stored} bytes at {offset} are not between {HEADER} and {tail}"));
        };
        let Some(codec) = compression(kind) else {
            return Ok(Block { offset, stored_size, size: stored_size, codec: Codec::None, crc: None });
        };
        codec.check_size(stored_size, size).map_err(|error| error.to_string())?;
        Ok(Block { offset, stored_size, size, codec, crc: None })
    }
}
