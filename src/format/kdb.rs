//! KDB files (`docs/formats/kdb.md`): a header, an index of episodes, and each episode's metadata, rows and pictures.
//!
//! Opening reads only the header. Everything of an episode is found by arithmetic from its 64-byte index entry, except
//! its pictures, whose record heads must be walked once ([`Images`]).

mod images;

pub use super::PartError;
pub use images::{Camera, Images, Kind, Record};

use std::{borrow::Cow, ops::Range};

use super::{Class, Fields, FormatError};
use crate::source::{Memory, Source, SourceError, to_usize};

/// First bytes of every file.
pub const MAGIC: [u8; 4] = *b"KINO";

/// Length of the header.
pub const HEADER: u64 = 64;

/// Length of an index entry.
pub const ENTRY: u64 = 64;

/// Longest useful metadata blob in bytes (`docs/formats/kdb.md` 4). Bytes beyond it are not read.
const LONGEST_META: u64 = 2 * (2 + LONGEST_TEXT) + 4 + 1 + 1 + 4;

/// The longest text in a metadata blob.
pub const LONGEST_TEXT: u64 = 65_535;

/// Least bytes of a metadata blob that are no text.
pub const META_FRONT: u64 = 10;

/// The header (`docs/formats/kdb.md` 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Major and minor version.
    pub version: (u16, u16),
    /// Number of episodes that the header claims. Only [`Self::episodes`] counts.
    pub num_episodes: u64,
    /// How many frames the header claims in all.
    pub num_frames: u64,
    /// Where the index begins.
    pub index_offset: u64,
    /// Bytes of the index, a multiple of 64.
    pub index_length: u64,
    /// When the writer finished, in seconds since 1970.
    pub created_timestamp: u64,
}

/// A part of an episode, as its index entry states. Not checked; see [`Section::range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// An index entry (`docs/formats/kdb.md` 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Episode {
    /// Place in the index.
    pub position: u64,
    /// The writer's number: a label, not checked.
    pub episode_id: u64,
    /// Frames.
    pub num_frames: u32,
    /// Numbers in a frame's action.
    pub action_dim: u16,
    /// Numbers in a frame's state.
    pub state_dim: u16,
    /// States, actions, rewards and terminal flags, interleaved.
    pub rows: Section,
    /// Pictures.
    pub images: Section,
    /// Texts and flags.
    pub meta: Section,
}

/// A metadata blob (`docs/formats/kdb.md` 4).
#[derive(Debug, Clone, PartialEq)]
pub struct Meta {
    /// The robot.
    pub embodiment: String,
    /// The instruction.
    pub task: String,
    /// Frames a second.
    pub fps: f32,
    /// Whether it succeeded, where that is known.
    pub success: Option<bool>,
    /// The sum of rewards, where there is one.
    pub total_reward: Option<f32>,
    /// Whether both texts were UTF-8. If not, they contain replacement characters.
    pub is_utf8: bool,
}

/// Location of an episode's rows (`docs/formats/kdb.md` 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// First byte of the first row.
    pub start: u64,
    /// Bytes of a row.
    pub stride: u64,
    /// Bytes of the section after the last row.
    pub surplus: u64,
}

/// Checks by the header alone whether the file opens as KDB.
///
/// # Errors
/// As [`parse`].
pub fn probe(source: &dyn Source) -> Result<(), FormatError> {
    parse(source).map(drop)
}

/// Reads and checks the header (`docs/formats/kdb.md` 12).
///
/// # Errors
/// [`FormatError`] if the file must be refused or cannot be read.
pub fn parse(source: &dyn Source) -> Result<Header, FormatError> {
    let len = source.len();
    if len < HEADER {
        return Err(FormatError::refused(Class::Truncated, format!("{len} bytes, the header alone has {HEADER}")));
    }
    let bytes = source.read(0..HEADER)?;
    if !bytes.starts_with(&MAGIC) {
        return Err(FormatError::refused(Class::BadMagic, "it does not begin with KINO"));
    }
    let short = |at: usize| bytes.u16(at).unwrap_or(0);
    let long = |at: usize| bytes.u64(at).unwrap_or(0);
    let header = Header {
        version: (short(4), short(6)),
        num_episodes: long(8),
        num_frames: long(16),
        index_offset: long(24),
        index_length: long(32),
        created_timestamp: long(40),
    };
    if header.version.0 > 0 {
        let reason = format!("version {}.{}, known are 0.x", header.version.0, header.version.1);
        return Err(FormatError::refused(Class::VersionTooNew, reason));
    }
    let (offset, length) = (header.index_offset, header.index_length);
    if offset.checked_add(length).is_none_or(|end| end > len) {
        let reason = format!("the index, {length} bytes at {offset}, does not end inside the file of {len} bytes");
        return Err(FormatError::refused(Class::Truncated, reason));
    }
    if length % ENTRY != 0 {
        let reason = format!("the index has {length} bytes, no multiple of {ENTRY}");
        return Err(FormatError::refused(Class::BadFormat, reason));
    }
    if length > 0 && offset < HEADER {
        let reason = format!("the index at {offset} overlaps the header");
        return Err(FormatError::refused(Class::BadFormat, reason));
    }
    Ok(header)
}

impl Header {
    /// How many episodes there are.
    pub fn episodes(&self) -> u64 {
        self.index_length / ENTRY
    }

    /// Reads the index entry of an episode; `None` after the last.
    ///
    /// # Errors
    /// [`SourceError`] if it cannot be read.
    pub fn episode(&self, source: &dyn Source, position: u64) -> Result<Option<Episode>, SourceError> {
        if position >= self.episodes() {
            return Ok(None);
        }
        Ok(self.episodes_from(source, position, 1)?.pop())
    }

    /// Reads up to `count` index entries from a position on; fewer only at the end.
    ///
    /// # Errors
    /// As [`Self::episode`].
    pub fn episodes_from(&self, source: &dyn Source, first: u64, count: u64) -> Result<Vec<Episode>, SourceError> {
        let first = first.min(self.episodes());
        let end = first.saturating_add(count).min(self.episodes());
        // In the index, whose range was checked.
        let bytes = source.read(self.index_offset + first * ENTRY..self.index_offset + end * ENTRY)?;
        Ok((first..)
            .zip(bytes.chunks_exact(to_usize(ENTRY)))
            .map(|(position, entry)| episode(position, entry))
            .collect())
    }
}

/// An index entry.
fn episode(position: u64, entry: &[u8]) -> Episode {
    let long = |at: usize| entry.u64(at).unwrap_or(0);
    let section = |at: usize| Section { offset: long(at), length: long(at + 8) };
    Episode {
        position,
        episode_id: long(0),
        num_frames: entry.u32(8).unwrap_or(0),
        action_dim: entry.u16(12).unwrap_or(0),
        state_dim: entry.u16(14).unwrap_or(0),
        rows: section(16),
        images: section(32),
        meta: section(48),
    }
}

impl Section {
    /// Returns the range of the bytes, if it lies in the file.
    ///
    /// # Errors
    /// [`PartError::Damaged`] if it overflows or ends after the file.
    pub fn range(&self, source: &dyn Source) -> Result<Range<u64>, PartError> {
        let Self { offset, length } = *self;
        match offset.checked_add(length) {
            Some(end) if end <= source.len() => Ok(offset..end),
            _ => PartError::damaged(format!("{length} bytes at {offset} are not inside the file of {}", source.len())),
        }
    }
}

impl Episode {
    /// Reads the metadata blob.
    ///
    /// # Errors
    /// [`PartError`] if it is not in the file, or shorter than its fields claim.
    pub fn read_meta(&self, source: &dyn Source) -> Result<Meta, PartError> {
        let range = self.meta.range(source)?;
        let blob = source.read(range.start..range.end.min(range.start + LONGEST_META))?;
        let Some(meta) = parse_meta(&blob) else {
            return PartError::damaged(format!("the {} bytes of metadata are fewer than they claim", blob.len()));
        };
        Ok(meta)
    }

    /// Returns where the rows are. Reads nothing.
    ///
    /// # Errors
    /// [`PartError::Damaged`] if they are not in the file, or fewer than the entry claims.
    pub fn locate_rows(&self, source: &dyn Source) -> Result<Rows, PartError> {
        let range = self.rows.range(source)?;
        let stride = 4 * (u64::from(self.state_dim) + u64::from(self.action_dim)) + 5;
        // At most 2^32 rows of 524,285 bytes.
        let needed = u64::from(self.num_frames) * stride;
        let Some(surplus) = self.rows.length.checked_sub(needed) else {
            let (frames, length) = (self.num_frames, self.rows.length);
            return PartError::damaged(format!(
                "{frames} rows of {stride} bytes do not fit the {length} that are there"
            ));
        };
        Ok(Rows { start: range.start, stride, surplus })
    }

    /// Returns whether the index entry says that there are pictures (`docs/formats/kdb.md` 6): more bytes than the
    /// counts of empty frames.
    pub fn has_images(&self) -> bool {
        self.images.length > 2 * u64::from(self.num_frames)
    }

    /// Walks the record heads of the pictures once.
    ///
    /// # Errors
    /// [`PartError`] if the section is not in the file or could not be read. Damage inside it is no error; see
    /// [`Images::damage`].
    pub fn read_images(&self, source: &dyn Source, memory: &dyn Memory) -> Result<Images, PartError> {
        Ok(Images::read(source, self.images.range(source)?, self.num_frames, memory)?)
    }
}

fn parse_meta(blob: &[u8]) -> Option<Meta> {
    let embodiment_end = 2 + usize::from(blob.u16(0)?);
    let embodiment = String::from_utf8_lossy(blob.get(2..embodiment_end)?);
    let task_end = embodiment_end + 2 + usize::from(blob.u16(embodiment_end)?);
    let task = String::from_utf8_lossy(blob.get(embodiment_end + 2..task_end)?);
    let success = match blob.get(task_end + 4)? {
        1 => Some(false),
        2 => Some(true),
        _ => None,
    };
    let total_reward = match blob.get(task_end + 5)? {
        1 => Some(f32::from_bits(blob.u32(task_end + 6)?)),
        _ => None,
    };
    Some(Meta {
        fps: f32::from_bits(blob.u32(task_end)?),
        success,
        total_reward,
        is_utf8: matches!((&embodiment, &task), (Cow::Borrowed(_), Cow::Borrowed(_))),
        embodiment: embodiment.into_owned(),
        task: task.into_owned(),
    })
}

#[cfg(test)]
mod tests;
