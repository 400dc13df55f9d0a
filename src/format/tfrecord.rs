//! TFRecord files: consecutive records, each with its length and two checksums (`docs/formats/rlds.md` 1 to 3).

pub mod example;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::{Class, CrcKind, Fields, FormatError, Front, Recognition, has_suffix};
use crate::{
    source::{Memory, Source, SourceError, to_usize},
    wanted,
};

/// Bytes of a record's header, and of the checksum after its data.
pub const HEADER: u64 = 12;
const TAIL: u64 = 4;
/// Bytes of a record without data.
pub const EMPTY: u64 = HEADER + TAIL;
/// Largest record in bytes, the limit of protobuf.
pub const LARGEST: u64 = (1 << 31) - 1;
/// Most records of a file.
pub const MOST: u64 = 1_000_000_000;
/// Records at the front that decide what a file contains.
pub const FIRST: u64 = 16;

/// Endings of names that mean this format. `#` stands for five or more digits.
pub const SUFFIXES: &[&str] = &[".tfrecord", ".tfrecords", ".tfrec", ".tfrecord-#-of-#"];

/// Bytes that are read at once if records are short.
const PIECE: u64 = 64 << 10;
/// Records for whose places memory is reserved at once.
const TOGETHER: usize = 4096;

/// Returns a checksum as it is stored.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// Returns the length of the data, if the checksum of a header is right.
fn length(header: &[u8]) -> Option<u64> {
    let is_right = header.u32(8)? == masked(CrcKind::Crc32c.of(header.get(..8)?));
    header.u64(0).filter(|_| is_right)
}

/// Returns whether data look like an Example, by a few bytes at the front: a field 1 that fills the record and contains
/// a message, which also begins with a field 1.
fn begins_as_example(data: &[u8], length: u64) -> bool {
    let Some((0x0A, rest)) = data.split_first() else { return false };
    let mut wire = example::Wire::new(rest);
    let Some(inside) = wire.varint().ok() else { return false };
    let head = 1 + wire.position() as u64;
    length >= 4 && head.checked_add(inside) == Some(length) && wire.rest().first() == Some(&0x0A)
}

/// Recognises a lone file, by its name or by its first record.
pub fn recognise(front: &Front<'_>) -> Recognition {
    if front.len == 0 {
        return Recognition::No;
    }
    let is_named = front.has_suffix(SUFFIXES);
    let is_compressed = compression(front.bytes).is_some() && has_suffix(front.name, ".gz");
    let unzipped = front.name.get(..front.name.len().saturating_sub(3)).unwrap_or_default();
    if is_named || is_compressed && SUFFIXES.iter().any(|suffix| has_suffix(unzipped, suffix)) {
        return Recognition::Meant;
    }
    let Some(length) = length(front.bytes) else { return Recognition::No };
    let is_whole = EMPTY.checked_add(length).is_some_and(|end| end <= front.len);
    let data = front.bytes.get(to_usize(HEADER)..).unwrap_or_default();
    if is_whole && begins_as_example(data, length) { Recognition::Maybe } else { Recognition::No }
}

/// Returns how a file is compressed as a whole, by its first bytes.
fn compression(front: &[u8]) -> Option<&'static str> {
    match front {
        [0x1F, 0x8B, ..] => Some("gzip"),
        [0x78, 0x01 | 0x5E | 0x9C | 0xDA, ..] => Some("zlib"),
        _ => None,
    }
}

/// Fails if a file that was recognised by name or front is not a TFRecord file.
///
/// # Errors
/// [`FormatError`].
pub fn probe(source: &dyn Source, _: &[u8], _: &dyn Memory) -> Result<(), FormatError> {
    let front = source.read(0..source.len().min(HEADER))?;
    let Some(length) = length(&front) else {
        return match compression(&front) {
            Some(kind) => {
                let reason = format!("compressed as a whole with {kind}; without that its records can be shown");
                Err(FormatError::refused(Class::Compressed, reason))
            }
            None => Err(FormatError::refused(Class::Framing, "the checksum of the first record's length is wrong")),
        };
    };
    match EMPTY.checked_add(length) {
        Some(end) if end <= source.len() => Ok(()),
        _ => {
            let reason = format!("the first record has {length} bytes, the file {}", source.len());
            Err(FormatError::refused(Class::Framing, reason))
        }
    }
}

/// Returns whether the records of an accepted file are Examples. The front of the first record decides or, if that is
/// unclear, the first record that is whole.
///
/// # Errors
/// [`SourceError`] if the file cannot be read, or if there is not enough memory.
pub fn are_examples(source: &dyn Source, memory: &dyn Memory) -> Result<bool, SourceError> {
    let mut at = 0;
    for number in 0..FIRST {
        if source.len().saturating_sub(at) < EMPTY {
            break;
        }
        let front = source.read(at..source.len().min(at + HEADER + 20))?;
        let end = length(&front).and_then(|length| length.checked_add(EMPTY)?.checked_add(at));
        let Some(end) = end.filter(|end| *end <= source.len()) else { break };
        let data = at + HEADER..end - TAIL;
        let length = data.end - data.start;
        if number == 0 && begins_as_example(front.get(to_usize(HEADER)..).unwrap_or_default(), length) {
            return Ok(true);
        }
        if length <= LARGEST {
            memory.reserve(length)?;
            let bytes = source.read(data.clone())?;
            if check(source, &data, &bytes)?.is_ok() {
                return match example::parse(&bytes, memory) {
                    Ok(features) => Ok(!features.is_empty()),
                    Err(example::ExampleError::Damaged(_)) => Ok(false),
                    Err(example::ExampleError::Source(error)) => Err(error),
                };
            }
        }
        at = end;
    }
    Ok(false)
}

/// Where the records of a file are: 8 bytes of memory for each.
#[derive(Debug, Default)]
pub struct Index {
    /// Where each record with a correct header begins.
    starts: Vec<u64>,
    /// Where the last of these records ends.
    end: u64,
    /// Why no record can be found after that; `None` at the end of the file.
    broken: Option<String>,
}

impl Index {
    /// Goes through the headers of a file.
    ///
    /// # Errors
    /// [`SourceError`] if the file cannot be read, or if there is not enough memory.
    pub fn read(source: &dyn Source, memory: &dyn Memory) -> Result<Self, SourceError> {
        let len = source.len();
        let mut index = Self::default();
        let mut headers = Headers { source, piece: Vec::new(), start: 0, is_dense: true };
        while index.end < len {
            if index.starts.len().is_multiple_of(TOGETHER) {
                wanted::check()?;
                memory.reserve((TOGETHER * size_of::<u64>()) as u64)?;
                index.starts.try_reserve(TOGETHER).map_err(|_| out_of_memory())?;
            }
            let at = index.end;
            let found = if len - at < HEADER { None } else { length(headers.at(at)?) };
            let Some(length) = found else {
                index.broken = Some(match len - at < HEADER {
                    true => format!("{} bytes at {at} are no header of a record", len - at),
                    false => format!("the checksum of the length at {at} is wrong"),
                });
                break;
            };
            let end = length.checked_add(EMPTY).and_then(|size| at.checked_add(size)).filter(|end| *end <= len);
            let Some(end) = end else {
                index.broken = Some(format!("the record at {at} has {length} bytes, the file {len}"));
                break;
            };
            if index.starts.len() as u64 == MOST {
                index.broken = Some(format!("there are more than {MOST} records"));
                break;
            }
            index.starts.push(at);
            index.end = end;
            headers.is_dense = length < PIECE / 8;
        }
        Ok(index)
    }

    /// Returns the number of records that can be found.
    pub fn count(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Returns why records after the last one cannot be found.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Returns where the data of a record are.
    pub fn data(&self, record: u64) -> Option<Range<u64>> {
        let at = usize::try_from(record).ok()?;
        let (start, end) = (*self.starts.get(at)?, self.starts.get(at + 1).copied().unwrap_or(self.end));
        Some(start + HEADER..end - TAIL)
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.starts.capacity() * size_of::<u64>()
    }
}

fn out_of_memory() -> SourceError {
    std::io::Error::from_raw_os_error(libc::ENOMEM).into()
}

/// Reads headers at rising places, several at once if they are near each other.
struct Headers<'a> {
    source: &'a dyn Source,
    piece: Vec<u8>,
    start: u64,
    is_dense: bool,
}

impl Headers<'_> {
    /// Returns the header at a place, which is in the file.
    fn at(&mut self, at: u64) -> Result<&[u8], SourceError> {
        let is_here = at >= self.start && at + HEADER <= self.start + self.piece.len() as u64;
        if !is_here {
            let length = if self.is_dense { PIECE } else { HEADER };
            self.piece = self.source.read(at..self.source.len().min(at + length))?;
            self.start = at;
        }
        let from = to_usize(at - self.start);
        Ok(self.piece.get(from..from + to_usize(HEADER)).unwrap_or_default())
    }
}

/// Checks the data of a record against the checksum after them.
///
/// # Errors
/// [`SourceError`] if the checksum cannot be read. If it does not match, returns `Ok` with the reason.
pub fn check(source: &dyn Source, place: &Range<u64>, data: &[u8]) -> Result<Result<(), String>, SourceError> {
    let stored = source.read(place.end..place.end + TAIL)?.u32(0).unwrap_or_default();
    let computed = masked(CrcKind::Crc32c.of(data));
    Ok(match stored == computed {
        true => {
            source.note_checked(&(place.start.saturating_sub(HEADER)..place.end + TAIL));
            Ok(())
        }
        false => Err(format!("the record's checksum is 0x{computed:08x}, stored is 0x{stored:08x}")),
    })
}
