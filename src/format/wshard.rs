//! WShard and every other Shard file (`SHRD`, version 2): `docs/formats/wshard.md`.
//!
//! Only the front matter decides whether the container opens (section 22). Every later defect affects its block only.

mod block;
mod episode;
mod front;
mod manifest;
mod stream;
mod typing;

use std::{collections::HashSet, fmt, ops::Range, sync::Arc};

use super::{DType, FormatError};
use crate::{
    limits,
    source::{Memory, Source, SourceError, Unlimited},
};
pub use block::{Block, Defect};
pub use episode::{Channel, Episode, Words};
pub use front::{HEADER, Header, header, probe};
pub use manifest::{Chunk, check_chunk, chunk_files};
pub use stream::{Interleave, Recovered};

/// The role of an episode (section 2).
pub const ROLE_EPISODE: u8 = 5;

/// Bytes of memory that a byte of `meta/manifest` can take: itself, and twice what is kept of it (as text and as
/// paths).
const MANIFEST_ROOM: u64 = 12;

/// The role of a chunked episode's manifest (sections 2 and 15).
pub const ROLE_MANIFEST: u8 = 4;

/// An opened Shard file.
#[derive(Debug)]
pub struct Shard {
    /// The header (section 2).
    pub header: Header,
    /// Blocks in index order. Those whose name lies outside the string table are left out (section 22).
    pub entries: Vec<Entry>,
    /// What `meta/episode` and `meta/wshard` say (section 11); empty for other roles than 5.
    pub episode: Episode,
    /// What `meta/channels` lists, in its order (section 11).
    pub channels: Vec<Channel>,
    /// How the lanes were put back, if their writer interleaved them (section 16).
    pub recovered: Option<Recovered>,
    /// The schema section, if it parses as JSON (section 9).
    pub schema: Option<Range<u64>>,
    /// The chunks that `meta/manifest` of a role 4 file lists, in order; `None` if they are no whole episode (section
    /// 15).
    pub chunks: Option<Vec<Chunk>>,
    /// Observations that are worth noting but no errors.
    pub problems: Vec<String>,
}

/// One block of the index (section 3).
#[derive(Debug)]
pub struct Entry {
    /// Position in the index.
    pub index: u32,
    /// The bytes of the name, which need not be UTF-8.
    pub name: Box<[u8]>,
    /// The stored hash of the name; not reliable (section 8).
    pub name_hash: u64,
    /// Entry flags (section 3).
    pub flags: u16,
    /// Content type (section 3).
    pub content_type: u16,
    /// The user's tag bits (section 3).
    pub tag_bits: u16,
    /// Where the bytes are stored.
    pub block: Block,
    /// How the block is shown.
    pub value: Value,
    /// Whether this is the last entry of its name, which is the visible one (section 22).
    pub visible: bool,
    /// Modality and unit of the channel, if `meta/channels` states them (section 11).
    pub words: Option<Arc<Words>>,
    /// How the signs of a residual are packed in the block, if its size fits (section 13). Used instead of `value`.
    pub residual: Option<Box<Residual>>,
    /// A u8 language block whose bytes are UTF-8: it is also shown as text (section 12).
    pub language: bool,
}

impl Entry {
    /// Returns the channel's modality, if it is stated.
    pub fn modality(&self) -> Option<&str> {
        self.words.as_ref()?.modality.as_deref()
    }

    /// Returns the unit of the channel's values, if it is stated.
    pub fn unit(&self) -> Option<&str> {
        self.words.as_ref()?.unit.as_deref()
    }
}

/// How a block is shown (`docs/TREE.md`, section 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `.json`, as stored.
    Json,
    /// `.txt`, as stored.
    Text,
    /// An encoded picture, as stored, under this suffix.
    Image(&'static str),
    /// `.npy`.
    Array {
        /// Element type.
        dtype: DType,
        /// The whole shape, steps first.
        shape: Vec<u64>,
        /// Offset of the elements in the decoded block (section 17; 0 for all others).
        data_offset: u64,
        /// Whether dtype or shape is a guess (section 12).
        inferred: bool,
        /// Which metadata decided it.
        source: &'static str,
    },
    /// `.bin`.
    Bytes,
}

/// The layout of packed signs (section 13): the bit of step t in dimension d is bit `t & 7` of byte
/// `d * stride + skip + (t >> 3)`; a set bit is +1, a clear one -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residual {
    /// Number of steps, T.
    pub steps: u64,
    /// Number of dimensions, D.
    pub dims: u64,
    /// Bytes of one dimension, its length field included.
    pub stride: u64,
    /// Bytes before the bits of a dimension: 0, or 4 for a u32 that must equal `stride - 4`.
    pub skip: u64,
}

impl Residual {
    /// Shape of the decoded array: `[T]`, or `[T, D]` for more than one dimension (section 13).
    pub fn shape(&self) -> Vec<u64> {
        if self.dims == 1 { vec![self.steps] } else { vec![self.steps, self.dims] }
    }
}

/// Opens a Shard file of any role.
///
/// # Errors
/// `Refused` only by the container rules of section 22; `Source` if the front matter could not be read.
pub fn parse(source: &dyn Source) -> Result<Shard, FormatError> {
    parse_within(source, &Unlimited)
}

/// Does the same as [`parse`], with memory reserved first.
///
/// # Errors
/// As [`parse`]; `Source` if there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Shard, FormatError> {
    let mut notes = Notes::default();
    let header = front::header(source)?;
    if header.total_file_size != source.len() {
        notes.add(format_args!("total_file_size is {}, the file has {} bytes", header.total_file_size, source.len()));
    }
    let mut entries = front::entries(source, &header, memory, &mut notes)?;
    mark_visible(&mut entries);

    let mut meta = episode::Meta::default();
    let mut chunks = None;
    let mut recovered = None;
    match header.role {
        ROLE_EPISODE => {
            meta = episode::Meta::read(source, &entries, memory, &mut notes)?;
            recovered = stream::put_back(source.len(), &mut entries, &mut meta, &mut notes);
        }
        ROLE_MANIFEST => {
            let limit = limits::SHARD_MANIFEST;
            let manifest =
                episode::json(source, &entries, ("meta/manifest", limit, MANIFEST_ROOM), memory, &mut notes)?;
            match manifest.map(|manifest::Object::<manifest::Manifest>(manifest)| manifest.chunks()) {
                Some(Ok(found)) => chunks = Some(found),
                Some(Err(reason)) => notes.add(format_args!("no joined view: {reason}")),
                None => {}
            }
        }
        _ => {}
    }
    typing::assign(source, &header, &mut entries, &meta, &mut notes)?;
    let schema = schema(source, &header)?;
    let episode::Meta { episode, channels, .. } = meta;
    Ok(Shard { header, entries, episode, channels, recovered, schema, chunks, problems: notes.finish() })
}

/// Section 22: of several entries with one name, the last is visible.
fn mark_visible(entries: &mut [Entry]) {
    let mut seen: HashSet<&[u8]> = HashSet::new();
    let visible: Vec<bool> = entries.iter().rev().map(|entry| seen.insert(&entry.name)).collect();
    for (entry, visible) in entries.iter_mut().rev().zip(visible) {
        entry.visible = visible;
    }
}

/// Section 9: the schema runs to `total_file_size`. If it is outside the file or not JSON, there is none.
fn schema(source: &dyn Source, header: &Header) -> Result<Option<Range<u64>>, SourceError> {
    let range = header.schema_offset..header.total_file_size.min(source.len());
    let length = range.end.saturating_sub(range.start);
    if range.start == 0 || length == 0 || length > limits::SHARD_SCHEMA {
        return Ok(None);
    }
    match source.read(range.clone()) {
        Ok(bytes) => Ok(serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok().then_some(range)),
        Err(SourceError::Changed) => Err(SourceError::Changed),
        Err(_) => Ok(None),
    }
}

/// Problems found while parsing, bounded in number.
#[derive(Debug, Default)]
struct Notes {
    list: Vec<String>,
    more: u64,
}

impl Notes {
    const KEPT: usize = 100;

    /// The text of a note that is not kept is never formatted.
    fn add(&mut self, note: impl fmt::Display) {
        if self.list.len() < Self::KEPT {
            self.list.push(note.to_string());
        } else {
            self.more += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("{} more like these", self.more));
        }
        self.list
    }
}

/// Returns a name for messages: escaped, and cut if it is long.
fn shown(name: &[u8]) -> String {
    const SHOWN: usize = 200;
    let cut = name.get(..SHOWN).unwrap_or(name);
    let dots = if cut.len() < name.len() { "..." } else { "" };
    format!("'{}{dots}'", cut.escape_ascii())
}

#[cfg(test)]
mod tests;
