//! Boxes: parts of an MP4 file with a length and a name of four letters, nested.

use crate::{
    format::{Fields, PartError},
    source::to_usize,
};

/// Most boxes inside one box.
const CHILDREN: usize = 1 << 16;

/// The front of a box.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) kind: [u8; 4],
    /// Bytes of the header.
    pub(super) head: u64,
    /// Bytes of the whole box. They are in the file.
    pub(super) size: u64,
}

/// Interprets the first bytes of a box; `None` if the box has more than `room` bytes.
pub(super) fn header(bytes: &[u8], room: u64) -> Option<Header> {
    let (short, kind) = (u32::from_be_bytes(bytes.array(0)?), bytes.array(4)?);
    let (head, size) = match short {
        0 => (8, room),
        1 => (16, u64::from_be_bytes(bytes.array(8)?)),
        size => (8, size.into()),
    };
    (head <= size && size <= room).then_some(Header { kind, head, size })
}

/// The content of a box, which may be other boxes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boxes<'a> {
    bytes: &'a [u8],
    /// Where the content is in the file.
    at: u64,
}

/// A sample entry.
pub(super) struct SampleEntry<'a> {
    pub(super) kind: [u8; 4],
    pub(super) content: Boxes<'a>,
}

/// The part of the media that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edit {
    /// Time before it in which nothing is shown, in the movie's units.
    pub(super) empty: u64,
    /// Its length in the movie's units; 0 means up to the end.
    pub(super) duration: u64,
    /// Where it begins, in the track's units.
    pub(super) media_time: i64,
}

impl<'a> Boxes<'a> {
    pub(super) fn new(bytes: &'a [u8], at: u64) -> Self {
        Self { bytes, at }
    }

    pub(super) fn content(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the content without its first bytes.
    pub(super) fn after(&self, skip: usize) -> Result<Self, PartError> {
        match self.bytes.get(skip..) {
            Some(bytes) => Ok(Self { bytes, at: self.at + skip as u64 }),
            None => PartError::damaged(format!("the box at {} is too short", self.at)),
        }
    }

    /// Returns all boxes of a kind.
    pub(super) fn all(&self, kind: &[u8; 4]) -> Result<Vec<Self>, PartError> {
        let (mut found, mut rest, mut number) = (Vec::new(), *self, 0);
        while !rest.bytes.is_empty() {
            // Old writers end a list with four zeros.
            if rest.bytes.len() < 8 && rest.bytes.iter().all(|&byte| byte == 0) {
                break;
            }
            let cut_off = || PartError::Damaged(format!("the box at {} is cut off", rest.at));
            let header = header(rest.bytes, rest.bytes.len() as u64).ok_or_else(cut_off)?;
            if header.kind == *kind {
                let content = rest.bytes.get(to_usize(header.head)..to_usize(header.size)).ok_or_else(cut_off)?;
                found.push(Self { bytes: content, at: rest.at + header.head });
            }
            rest = rest.after(to_usize(header.size))?;
            number += 1;
            if number > CHILDREN {
                return PartError::damaged(format!("more than {CHILDREN} boxes from {} on", self.at));
            }
        }
        Ok(found)
    }

    /// Returns the first box of a kind.
    pub(super) fn find(&self, kind: &[u8; 4]) -> Result<Option<Self>, PartError> {
        Ok(self.all(kind)?.first().copied())
    }

    /// Returns the first box of a kind, which must be there.
    pub(super) fn need(&self, kind: &[u8; 4]) -> Result<Self, PartError> {
        let missing = || PartError::Damaged(format!("no box {} from {} on", kind.escape_ascii(), self.at));
        self.find(kind)?.ok_or_else(missing)
    }

    /// Returns N bytes at an offset.
    pub(super) fn bytes<const N: usize>(&self, offset: usize) -> Result<[u8; N], PartError> {
        let short = || PartError::Damaged(format!("the box at {} is too short", self.at));
        self.bytes.array(offset).ok_or_else(short)
    }

    pub(super) fn u16(&self, offset: usize) -> Result<u16, PartError> {
        self.bytes(offset).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&self, offset: usize) -> Result<u32, PartError> {
        self.bytes(offset).map(u32::from_be_bytes)
    }

    fn u64(&self, offset: usize) -> Result<u64, PartError> {
        self.bytes(offset).map(u64::from_be_bytes)
    }

    /// Returns the version of a full box.
    pub(super) fn version(&self) -> Result<u8, PartError> {
        self.bytes(0).map(|[version]| version)
    }

    /// Returns the time units in a second, from `mvhd` or `mdhd`.
    pub(super) fn time_scale(&self) -> Result<u32, PartError> {
        match self.u32(if self.version()? == 0 { 12 } else { 20 })? {
            0 => PartError::damaged(format!("the box at {} has 0 units in a second", self.at)),
            scale => Ok(scale),
        }
    }

    /// Returns the entries, of `each` bytes, of a table that begins with their number at `offset`. Fails if some are
    /// missing.
    pub(super) fn table(&self, offset: usize, each: usize) -> Result<&'a [u8], PartError> {
        let count = self.u32(offset)?;
        let too_many = || PartError::Damaged(format!("the box at {} has no room for {count} entries", self.at));
        let length = (count as usize).checked_mul(each).ok_or_else(too_many)?;
        self.after(offset + 4)?.bytes.get(..length).ok_or_else(too_many)
    }

    /// Returns the first entry of `stsd`.
    pub(super) fn first_entry(&self) -> Result<SampleEntry<'a>, PartError> {
        let entries = self.after(8)?;
        let cut_off = || PartError::Damaged(format!("the sample entry at {} is cut off", entries.at));
        let found = header(entries.bytes, entries.bytes.len() as u64).ok_or_else(cut_off)?;
        let content = entries.bytes.get(to_usize(found.head)..to_usize(found.size)).ok_or_else(cut_off)?;
        Ok(SampleEntry { kind: found.kind, content: Self { bytes: content, at: entries.at + found.head } })
    }

    /// Returns the edit of `elst` that shows something, with the time of the empty edits before it; `None` if there is
    /// none.
    pub(super) fn edit(&self) -> Result<Option<Edit>, PartError> {
        let is_long = self.version()? != 0;
        let each = if is_long { 20 } else { 12 };
        let (mut edit, mut empty) = (None, 0u64);
        for entry in self.table(4, each)?.chunks_exact(each) {
            let entry = Self { bytes: entry, at: self.at };
            let (duration, media_time) = match is_long {
                true => (entry.u64(0)?, entry.u64(8)?.cast_signed()),
                false => (entry.u32(0)?.into(), entry.u32(4)?.cast_signed().into()),
            };
            match media_time {
                -1 if edit.is_none() => empty = empty.saturating_add(duration),
                -1 => {}
                _ if edit.is_some() => return PartError::damaged("several edits that show something"),
                0.. => edit = Some(Edit { empty, duration, media_time }),
                _ => return PartError::damaged(format!("an edit from {media_time} on")),
            }
        }
        Ok(edit)
    }
}
