//! Parquet files that others wrote: the footer, and the pages of each column (`docs/formats/lerobot.md` 5).
//!
//! Statistics and page indexes are passed over. Sizes and offsets are checked before they are used, and memory is
//! reserved before it is allocated.

mod encoding;
pub mod page;
mod schema;
#[cfg(test)]
mod tests;
mod thrift;
pub mod values;

use std::fmt;

use super::{Fields, PartError};
use crate::{
    codec::{Chain, Codec as Decoder, Filter},
    limits,
    source::{Memory, Source, SourceError, to_usize},
    wanted,
};
pub use schema::{Form, Leaf, Physical, Values};
use thrift::{Broken, Compact, STRUCT};

/// First and last bytes of a file.
const MAGIC: &[u8; 4] = b"PAR1";
/// First and last bytes of a file whose footer is encrypted.
const ENCRYPTED: &[u8; 4] = b"PARE";

/// Bytes at the end that are read first. Most footers fit.
const TAIL: u64 = 64 << 10;

/// A file's footer.
#[derive(Debug)]
pub struct File {
    /// Number of rows.
    pub rows: u64,
    /// The leaves of the schema.
    pub leaves: Vec<Leaf>,
    /// The row groups.
    pub groups: Vec<Group>,
}

/// Rows that are stored together.
#[derive(Debug)]
pub struct Group {
    /// The number of its first row in the file, and the number of its rows.
    pub first: u64,
    /// See [`Self::first`].
    pub rows: u64,
    /// A chunk for each leaf.
    pub chunks: Vec<Chunk>,
}

/// The values of one leaf in one row group.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Where its pages are in the file. If the stated place is impossible, the range is empty: the chunk has no pages.
    pub start: u64,
    /// See [`Self::start`].
    pub end: u64,
    /// Number of its values, missing ones and empty lists included.
    pub values: u64,
    /// How its pages are compressed.
    pub codec: Codec,
}

/// How pages are compressed.
#[derive(Debug, Clone)]
pub enum Codec {
    /// In a way that can be decoded.
    Known(Decoder),
    /// In another way, by its number.
    Other(i64),
}

impl Codec {
    fn of(number: i64) -> Self {
        let filter = match number {
            0 => return Self::Known(Decoder::None),
            1 => Filter::Snappy,
            2 => Filter::Gzip,
            6 => Filter::Zstd,
            7 => return Self::Known(Decoder::Lz4),
            other => return Self::Other(other),
        };
        Chain::of([filter]).map_or(Self::Other(number), Self::Known)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(codec) => f.write_str(codec.name()),
            Self::Other(3) => f.write_str("LZO"),
            Self::Other(4) => f.write_str("BROTLI"),
            Self::Other(5) => f.write_str("the old LZ4"),
            Self::Other(number) => write!(f, "number {number}"),
        }
    }
}

impl File {
    /// Returns the first leaf of a top-level column for which `is_wanted` returns true.
    pub fn leaf(&self, column: &str, is_wanted: impl Fn(&Leaf) -> bool) -> Option<usize> {
        let is_of = |leaf: &Leaf| leaf.path.first().is_some_and(|name| **name == *column);
        self.leaves.iter().position(|leaf| is_of(leaf) && is_wanted(leaf))
    }

    /// Returns the row group that has a row.
    pub fn group_of(&self, row: u64) -> Option<(usize, &Group)> {
        let at = self.groups.partition_point(|group| group.first + group.rows <= row);
        self.groups.get(at).map(|group| (at, group))
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> u64 {
        let leaves: u64 = self.leaves.iter().map(Leaf::memory_usage).sum();
        let chunks: usize = self.groups.iter().map(|group| size_of_val(group) + size_of_val(&*group.chunks)).sum();
        leaves + chunks as u64
    }

    /// Reads the footer of a file.
    ///
    /// # Errors
    /// `Damaged` if the footer is missing or unusable; `Source` if bytes cannot be read or there is not enough memory.
    pub fn read(source: &dyn Source, memory: &dyn Memory) -> Result<Self, PartError> {
        let damaged = |reason: String| Err(PartError::Damaged(reason));
        let len = source.len();
        if len < 12 {
            return damaged(format!("{len} bytes are no Parquet file"));
        }
        let tail = source.read(len - TAIL.min(len)..len)?;
        let front = match len <= TAIL {
            true => tail.first_chunk().copied(),
            false => source.read(0..4)?.first_chunk().copied(),
        };
        let end = tail.last_chunk::<4>();
        if end == Some(ENCRYPTED) {
            return damaged("its footer is encrypted".into());
        }
        if end != Some(MAGIC) || front.as_ref() != Some(MAGIC) {
            return damaged("it does not begin and end with PAR1: it is no Parquet file, or was not finished".into());
        }
        let length = tail.len().checked_sub(8).and_then(|at| tail.u32(at)).map_or(0, u64::from);
        if length > len - 12 || length > limits::PARQUET_FOOTER {
            return damaged(format!("a footer of {length} bytes in a file of {len}"));
        }
        let start = len - 8 - length;
        let read;
        let footer = match start.checked_sub(len - TAIL.min(len)) {
            Some(at) => tail.get(to_usize(at)..tail.len() - 8).unwrap_or_default(),
            None => {
                memory.reserve(length)?;
                read = source.read(start..len - 8)?;
                &read
            }
        };
        parse(footer, start, memory).map_err(|error| match error {
            Failure::Broken(broken) => PartError::Damaged(format!("its footer: {}", broken.reason())),
            Failure::Source(error) => error.into(),
        })
    }
}

/// Why a footer could not be read.
enum Failure {
    Broken(Broken),
    Source(SourceError),
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

/// Reads a footer. Chunks must lie before `end`.
fn parse(bytes: &[u8], end: u64, memory: &dyn Memory) -> Result<File, Failure> {
    let mut compact = Compact::new(bytes);
    let (mut rows, mut leaves, mut groups) = (None, None, Vec::new());
    let mut last = 0;
    while let Some((number, kind)) = compact.field(&mut last)? {
        match number {
            2 => leaves = Some(schema::read(&mut compact, |bytes| memory.reserve(bytes).map_err(Failure::from))?),
            3 => rows = Some(compact.integer()?),
            4 => {
                let columns = leaves.as_ref().map(Vec::len).ok_or(Broken::Bad("row groups come before the schema"))?;
                groups = row_groups(&mut compact, columns, end, memory)?;
            }
            8 => return Err(Broken::Bad("its columns are encrypted").into()),
            _ => compact.skip(kind)?,
        }
    }
    let leaves = leaves.ok_or(Broken::Bad("it has no schema"))?;
    let counted = groups.last().map_or(0, |group: &Group| group.first + group.rows);
    match rows.and_then(|rows| u64::try_from(rows).ok()) == Some(counted) {
        true => Ok(File { rows: counted, leaves, groups }),
        false => Err(Broken::Bad("its row groups have another number of rows than the file").into()),
    }
}

fn row_groups(compact: &mut Compact<'_>, columns: usize, end: u64, memory: &dyn Memory) -> Result<Vec<Group>, Failure> {
    let (count, kind) = compact.list()?;
    if count.saturating_mul(columns.max(1)) > limits::PARQUET_CHUNKS {
        return Err(Broken::Bad("it has too many row groups and columns").into());
    }
    if kind != STRUCT && count > 0 {
        return Err(Broken::Bad("its row groups are no structures").into());
    }
    memory.reserve((count * (size_of::<Group>() + columns * size_of::<Chunk>())) as u64)?;
    let mut groups = Vec::with_capacity(count);
    let mut first = 0u64;
    for _ in 0..count {
        wanted::check().map_err(SourceError::from)?;
        let (mut rows, mut chunks) = (None, Vec::new());
        compact.fields(|compact, number, _| {
            match number {
                1 => {
                    let (found, _) = compact.list()?;
                    if found != columns {
                        return Err(Broken::Bad("a row group has another number of columns than the schema"));
                    }
                    chunks.reserve_exact(found);
                    for _ in 0..found {
                        chunks.push(chunk(compact, end)?);
                    }
                }
                3 => rows = Some(compact.integer()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let rows = rows.and_then(|rows| u64::try_from(rows).ok()).filter(|_| chunks.len() == columns);
        let rows = rows.ok_or(Broken::Bad("a row group has no columns, or no number of rows"))?;
        let next = first.checked_add(rows).filter(|next| *next <= i64::MAX as u64);
        groups.push(Group { first, rows, chunks });
        first = next.ok_or(Broken::Bad("it has too many rows"))?;
    }
    Ok(groups)
}

fn chunk(compact: &mut Compact<'_>, limit: u64) -> Result<Chunk, Broken> {
    let mut chunk = Chunk { start: 0, end: 0, values: 0, codec: Codec::Other(-1) };
    let (mut is_outside, mut data, mut dictionary, mut size) = (false, 0, 0, 0);
    compact.fields(|compact, number, kind| {
        match number {
            // The chunk is in another file, or is encrypted.
            1 | 8 => {
                is_outside = true;
                return Ok(false);
            }
            3 if kind == STRUCT => compact.fields(|compact, number, _| {
                match number {
                    4 => chunk.codec = Codec::of(compact.integer()?),
                    5 => chunk.values = u64::try_from(compact.integer()?).unwrap_or(0),
                    7 => size = compact.integer()?,
                    9 => data = compact.integer()?,
                    11 => dictionary = compact.integer()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Some writers state the dictionary's place as 0 if there is none.
    let start = if (1..data).contains(&dictionary) { dictionary } else { data };
    let place = u64::try_from(start).ok().zip(u64::try_from(size).ok());
    let place = place.and_then(|(start, size)| Some((start, start.checked_add(size)?)));
    if let Some((start, end)) = place.filter(|(start, end)| !is_outside && *start >= 4 && *end <= limit) {
        (chunk.start, chunk.end) = (start, end);
    }
    Ok(chunk)
}
