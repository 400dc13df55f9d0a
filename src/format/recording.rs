//! What all formats of recordings share: topics, chunks with messages of several topics, and where each message is.
//!
//! Messages are never all in memory. A [`Folder`] knows the number of its messages in each chunk. A [`Layout`] reads
//! the entries of a chunk again when they are needed.

use std::{borrow::Cow, cell::RefCell, fmt, ops::Range};

use serde::{Deserialize, Serialize};

use super::{Block, PartError};
use crate::source::{Source, SourceError, to_usize};

/// Most messages of a recording.
pub const MESSAGES: u64 = 100_000_000;

/// Most bytes of a chunk, uncompressed.
pub const CHUNK: u64 = 1 << 30;

/// Longest topic in bytes.
pub const TOPIC: usize = 32_768;

/// Bytes of an index that are read at a time.
const WINDOW: u64 = 64 << 10;

/// Largest gap in bytes between two records that are read together, and largest such record.
const NEAR: u64 = 4 << 10;

/// A message of a chunk, from an index or from the chunk itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// When it was recorded, in nanoseconds.
    pub time: u64,
    /// Where it is in the uncompressed chunk.
    pub offset: u64,
    /// The number of its channel or connection.
    pub source: u32,
}

/// Where a message is in its chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its data.
    pub data: Range<u64>,
    /// When it was published, in nanoseconds, if the format records it.
    pub publish_time: u64,
    /// Its sequence number, if the format has one.
    pub sequence: u32,
}

/// The number of a folder's messages in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The chunk's number.
    pub chunk: u32,
    /// The number of messages.
    pub count: u32,
}

/// A folder that is shown: the messages of a channel, or of several connections.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Folder {
    /// The topic, as stored.
    pub topic: Box<[u8]>,
    /// How messages are serialised, as stored.
    pub message_encoding: Box<[u8]>,
    /// Its schema in [`Recording::schemas`].
    pub schema: Option<u32>,
    /// The number of its messages.
    pub messages: u64,
    /// About the bytes that must be decoded to read all its messages (`docs/formats/mcap.md`, section 5).
    pub weight: u64,
    /// The chunks that have messages of it, in the order of the file.
    pub runs: Vec<Run>,
}

/// A schema, as stored.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SchemaText {
    /// Its name.
    pub name: Box<[u8]>,
    /// The language that it is written in.
    pub encoding: Box<[u8]>,
    /// The schema.
    pub data: Box<[u8]>,
}

/// The topics of a recording.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// The folders, in the order in which they are shown.
    pub folders: Vec<Folder>,
    /// The schemas of all folders.
    pub schemas: Vec<SchemaText>,
    /// First and last time of its messages, in nanoseconds, if they are known.
    pub times: Option<(u64, u64)>,
    /// Bytes of all chunks as they are stored, and uncompressed.
    pub stored_size: u64,
    /// See [`Self::stored_size`].
    pub size: u64,
    /// The number of chunks by their compression.
    pub compressions: Vec<(String, u64)>,
}

impl Recording {
    /// Returns the number of all messages.
    pub fn messages(&self) -> u64 {
        self.folders.iter().map(|folder| folder.messages).sum()
    }

    /// Counts a chunk.
    pub(super) fn add_chunk(&mut self, compression: &[u8], stored: u64, size: u64) {
        self.stored_size = self.stored_size.saturating_add(stored);
        self.size = self.size.saturating_add(size);
        let name = match compression {
            b"" => "none".into(),
            name => String::from_utf8_lossy(name.get(..16).unwrap_or(name)).into_owned(),
        };
        match self.compressions.iter().position(|(known, _)| *known == name) {
            Some(at) => self.compressions.iter_mut().skip(at).take(1).for_each(|(_, count)| *count += 1),
            None if self.compressions.len() < 16 => self.compressions.push((name, 1)),
            None => {}
        }
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let folder = |folder: &Folder| {
            size_of::<Folder>()
                + folder.topic.len()
                + folder.message_encoding.len()
                + size_of_val(&folder.runs[..])
                + 64
        };
        let schema =
            |text: &SchemaText| size_of::<SchemaText>() + text.name.len() + text.encoding.len() + text.data.len() + 64;
        self.folders.iter().map(folder).sum::<usize>() + self.schemas.iter().map(schema).sum::<usize>()
    }
}

/// Bytes of an uncompressed chunk, in memory or in the file.
pub trait Bytes {
    /// Returns the number of bytes.
    fn length(&self) -> u64;

    /// Returns a range of the bytes.
    ///
    /// # Errors
    /// `Damaged` if they are not all inside the chunk, `Source` if they cannot be read.
    fn get(&self, at: u64, length: u64) -> Result<Cow<'_, [u8]>, PartError>;
}

impl Bytes for [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn get(&self, at: u64, length: u64) -> Result<Cow<'_, [u8]>, PartError> {
        let range = at.checked_add(length).and_then(|end| Some(usize::try_from(at).ok()?..usize::try_from(end).ok()?));
        range.and_then(|range| Self::get(self, range)).map(Cow::Borrowed).ok_or_else(|| outside(at))
    }
}

/// A chunk that is stored uncompressed. Records that are near each other are read together.
pub struct InFile<'a> {
    source: &'a dyn Source,
    range: Range<u64>,
    /// The bytes that were read last, and where the part that was requested ends.
    last: RefCell<(Window<'a>, u64)>,
}

impl<'a> InFile<'a> {
    /// Returns the chunk at a place of a file.
    pub fn new(source: &'a dyn Source, range: Range<u64>) -> Self {
        let window = Window::new(source, range.end);
        Self { source, range, last: RefCell::new((window, u64::MAX)) }
    }
}

impl Bytes for InFile<'_> {
    fn length(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn get(&self, at: u64, length: u64) -> Result<Cow<'_, [u8]>, PartError> {
        let start = self.range.start.saturating_add(at);
        let end = start.checked_add(length).filter(|end| *end <= self.range.end).ok_or_else(|| outside(at))?;
        let (window, asked) = &mut *self.last.borrow_mut();
        let is_close = start.checked_sub(*asked).is_some_and(|gap| gap < NEAR);
        *asked = end;
        if length <= NEAR && (is_close || window.holds(start, end)) {
            let bytes = window.from(start, length)?;
            return Ok(Cow::Owned(bytes.get(..to_usize(length)).ok_or_else(|| outside(at))?.to_vec()));
        }
        Ok(Cow::Owned(self.source.read(start..end)?))
    }
}

fn outside(at: u64) -> PartError {
    PartError::Damaged(format!("the chunk ends in the record at {at}"))
}

/// Takes the uncompressed bytes of a chunk.
pub type EachChunk<'a> = dyn FnMut(&dyn Bytes) -> Result<(), PartError> + 'a;

/// Decodes the chunk with a number and passes it on. `Damaged` if it cannot be decoded.
pub type Decode<'a> = dyn FnMut(u32, &Block, &mut EachChunk<'_>) -> Result<(), PartError> + 'a;

/// Where the parts of a chunk are in the file, as far as that is known without reading it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// Its index; empty if it has none.
    pub index: Range<u64>,
    /// The chunk and its index. Empty if only parts of the chunk will be read.
    pub whole: Range<u64>,
}

/// How a format stores chunks and messages.
pub trait Layout: fmt::Debug + Send + Sync {
    /// Returns where a chunk's records are, and how they are compressed.
    ///
    /// # Errors
    /// `Damaged` if there is no such chunk, `Source` if it cannot be read.
    fn block(&self, source: &dyn Source, chunk: u32) -> Result<Block, PartError>;

    /// Returns whether the index of a chunk is used. All other chunks are walked.
    fn is_indexed(&self, chunk: u32) -> bool;

    /// Returns between which times the messages of a chunk are, first and last, if that is stated elsewhere than in the
    /// chunk and its index.
    fn times(&self, chunk: u32) -> Option<(u64, u64)>;

    /// Returns where the index of a chunk is, and where both are if they should be read together.
    fn parts(&self, chunk: u32) -> Parts;

    /// Passes on a folder's messages in a chunk, from the chunk's index, in any order.
    ///
    /// # Errors
    /// As [`Self::block`].
    fn entries(
        &self,
        source: &dyn Source,
        chunk: u32,
        folder: u32,
        each: &mut dyn FnMut(Entry),
    ) -> Result<(), PartError>;

    /// Passes on a folder's messages from the records of a chunk, up to a record that cannot be read. Returns whether
    /// all could be read.
    ///
    /// # Errors
    /// As [`Self::block`].
    fn walk(&self, chunk: &dyn Bytes, folder: u32, each: &mut dyn FnMut(Entry)) -> Result<bool, PartError>;

    /// Finds a message in its chunk.
    ///
    /// # Errors
    /// `Damaged` if something else is there.
    fn place(&self, chunk: &dyn Bytes, entry: &Entry) -> Result<Placed, PartError>;

    /// Returns about how many bytes of memory it takes.
    fn memory_usage(&self) -> usize;
}

/// A part of a file that is read in pieces, from front to back.
pub(super) struct Window<'a> {
    source: &'a dyn Source,
    /// Where the part ends.
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(source: &'a dyn Source, end: u64) -> Self {
        Self { source, end: end.min(source.len()), start: 0, bytes: Vec::new() }
    }

    /// Returns whether a range was read.
    fn holds(&self, start: u64, end: u64) -> bool {
        start >= self.start && end <= self.start + self.bytes.len() as u64
    }

    /// Returns at least `least` bytes from a place on, or fewer at the end of the part. `least` is at most [`WINDOW`].
    pub(super) fn from(&mut self, at: u64, least: u64) -> Result<&[u8], SourceError> {
        let until = at.saturating_add(least.min(WINDOW)).min(self.end);
        if !self.holds(at, until) {
            crate::wanted::check()?;
            let end = at.saturating_add(WINDOW).min(self.end);
            self.bytes = self.source.read(at.min(end)..end)?;
            self.start = at.min(end);
        }
        let from = to_usize(at.saturating_sub(self.start));
        Ok(self.bytes.get(from..).unwrap_or_default())
    }
}

/// Bytes that are taken from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Front<'a>(pub(super) &'a [u8]);

impl<'a> Front<'a> {
    pub(super) fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a length of 4 bytes and as many bytes.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length.into())
    }
}
