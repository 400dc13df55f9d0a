//! Where a block's bytes are and how they decode: sections 5, 6 and 7 of the format's page.

use std::sync::Arc;

use super::{Header, Interleave, front::BlockFields};
use crate::{
    codec::Codec,
    format::{self, Crc},
    limits,
    source::{Source, SourceError, to_usize},
};

/// Entry flags (section 3).
const COMPRESSED: u16 = 0x0001;
const ZSTD: u16 = 0x0002;
const LZ4: u16 = 0x0004;

/// The longest zstd frame header.
const FRAME_HEADER: u64 = 18;

/// Number of entries, from the first, whose zstd frame header is checked when the container opens. In a larger index a
/// frame that disagrees is found when the block is decoded, like all other damage.
const FRAME_CHECKS: u32 = 10_000;

/// Stored bytes that are read to decode the front of a block, first and, if these were too few, again. A zstd block
/// inside a frame can take 128 KiB.
const FRONT: [u64; 2] = [64 << 10, 192 << 10];

/// Pieces of a lane that are recovered just to look at it.
const LOOKED_AT_PIECES: u64 = 4096;

/// How to get the bytes of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The recorded extent, also for an interleaved lane. The size of an uncompressed block is the stored one (section
    /// 5). It lies in the file unless there is an `error`; with one, the size can be any number. Without `crc` there is
    /// no checksum (section 7). For an interleaved lane it is the checksum of the recorded extent's bytes (section 16).
    pub extent: format::Block,
    /// Whether the CRC may cover the stored bytes: a quirk of a stream writer (section 7), accepted if decoding gives
    /// exactly `size` bytes.
    pub stored_crc_ok: bool,
    /// Why the block can never be served. A block of no bytes is never read, so nothing else can be wrong with it.
    pub error: Option<Defect>,
    /// Where the bytes of a lane are, if its writer interleaved it (section 16).
    pub interleave: Option<Box<Interleave>>,
}

/// Why a block can never be served (section 22). Numbers instead of texts, because an index can have millions of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Outside the file.
    #[error("{stored_size} bytes stored at {offset} pass the end of the file of {length} bytes")]
    PastEnd {
        /// As stored.
        offset: u64,
        /// As stored.
        stored_size: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// Outside the data section.
    #[error("begins at {offset}, before the data section, which begins at {data_section}")]
    BeforeData {
        /// As stored.
        offset: u64,
        /// As stored.
        data_section: u64,
    },
    /// Compressed, but no codec is stated.
    #[error("compressed, but neither the entry's flags {flags:#06x} nor the header's default {default} name a codec")]
    NoCodec {
        /// As stored.
        flags: u16,
        /// As stored.
        default: u8,
    },
    /// No bytes, but a checksum of some.
    #[error("holds no bytes, whose crc32c is 0; the index says {0:#010x}")]
    Checksum(u32),
    /// Anything else.
    #[error("{0}")]
    Other(Arc<str>),
}

impl From<String> for Defect {
    fn from(reason: String) -> Self {
        Self::Other(reason.into())
    }
}

/// Why a block could not be examined.
pub(super) enum Fault {
    /// The file has changed, so nothing that was read from it holds.
    Changed,
    /// This block cannot be read, or is damaged.
    Block(String),
}

impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Changed => Self::Changed,
            other => Self::Block(other.to_string()),
        }
    }
}

impl Block {
    /// Returns the block that an index entry describes, after the checks of section 22.
    pub(super) fn new(
        source: &dyn Source,
        header: &Header,
        stored: &BlockFields,
        index: u32,
    ) -> Result<Self, SourceError> {
        let codec = codec(header, stored);
        let raw = codec == Some(Codec::None);
        let mut block = Self {
            extent: format::Block {
                offset: stored.offset,
                stored_size: stored.disk_size.min(u64::MAX - stored.offset),
                size: if raw { stored.disk_size } else { stored.orig_size },
                codec: codec.clone().unwrap_or(Codec::None),
                crc: (stored.crc != 0 || header.checksums()).then_some(Crc::crc32c(stored.crc)),
            },
            stored_crc_ok: !raw,
            error: misplaced(stored, source.len(), header.data_section_offset),
            interleave: None,
        };
        if block.error.is_none() {
            block.error = match codec {
                None => Some(Defect::NoCodec { flags: stored.flags, default: header.compression_default }),
                Some(codec) => {
                    let checked = codec.check_size(block.extent.stored_size, block.extent.size);
                    let checked = checked.map_err(|error| error.to_string()).and_then(|()| match block.extent.size {
                        size if size <= limits::LARGEST_BLOCK => Ok(()),
                        size => Err(format!("{size} bytes are more than a file can have")),
                    });
                    checked.err().map(Defect::from)
                }
            };
        }
        if block.error.is_none() && block.extent.codec == Codec::Zstd && index < FRAME_CHECKS {
            block.error = block.frame_disagrees(source)?;
        }
        if block.error.is_none() && block.extent.size == 0 {
            block.error = block.not_empty(source, index)?;
        }
        Ok(block)
    }

    /// Checks a block that claims to hold no bytes. It is never read, so this is the only check.
    fn not_empty(&self, source: &dyn Source, index: u32) -> Result<Option<Defect>, SourceError> {
        if self.extent.stored_size == 0 {
            return Ok(self.extent.crc.filter(|crc| crc.value != 0).map(|crc| Defect::Checksum(crc.value)));
        }
        // No writer compresses empty blocks; only this many are checked.
        if index >= FRAME_CHECKS {
            let reason = format!("{} bytes are stored for no bytes", self.extent.stored_size);
            return Ok(Some(reason.into()));
        }
        match self.load(source, FRONT[0]) {
            Ok(_) => Ok(None),
            Err(Fault::Block(reason)) => Ok(Some(reason.into())),
            Err(Fault::Changed) => Err(SourceError::Changed),
        }
    }

    /// Returns whether the first zstd frame states more bytes than the index. It may state fewer: frames are joined,
    /// and a skippable one states 0.
    fn frame_disagrees(&self, source: &dyn Source) -> Result<Option<Defect>, SourceError> {
        let front =
            match source.read(self.extent.offset..self.extent.offset + self.extent.stored_size.min(FRAME_HEADER)) {
                Ok(front) => front,
                Err(SourceError::Changed) => return Err(SourceError::Changed),
                // Reading the block will fail again and report it.
                Err(_) => return Ok(None),
            };
        Ok(match zstd::zstd_safe::get_frame_content_size(&front) {
            Ok(Some(content)) if content > self.extent.size => {
                Some(format!("the zstd frame states {content} bytes, the index {}", self.extent.size).into())
            }
            _ => None,
        })
    }

    /// Returns the whole decoded block, checked, if it has at most `limit` bytes.
    pub(super) fn load(&self, source: &dyn Source, limit: u64) -> Result<Vec<u8>, Fault> {
        if let Some(error) = &self.error {
            return Err(Fault::Block(error.to_string()));
        }
        if self.extent.size > limit || self.extent.stored_size > limit {
            return Err(Fault::Block(format!(
                "{} bytes are more than {limit}",
                self.extent.size.max(self.extent.stored_size)
            )));
        }
        let stored = source.read(self.extent.offset..self.extent.offset + self.extent.stored_size)?;
        let bytes = self.extent.codec.decode(&stored, self.extent.size).map_err(|e| Fault::Block(e.to_string()))?;
        if let Some(Crc { kind, value: crc }) = self.extent.crc {
            let got = kind.of(&bytes);
            if got != crc && !(self.stored_crc_ok && kind.of(&stored) == crc) {
                return Err(Fault::Block(format!("crc32c is {got:#010x}, the index says {crc:#010x}")));
            }
            source.note_checked(&(self.extent.offset..self.extent.offset + self.extent.stored_size));
        }
        let Some(interleave) = &self.interleave else { return Ok(bytes) };
        if interleave.rows.div_ceil(interleave.rows_per_flush) > LOOKED_AT_PIECES {
            return Err(Fault::Block("interleaved in too many pieces".to_owned()));
        }
        let mut lane = Vec::with_capacity(bytes.len());
        for piece in interleave.pieces(0..self.extent.size) {
            lane.extend(source.read(piece)?);
        }
        Ok(lane)
    }

    /// Returns up to [`limits::SNIFF`] bytes from the front of the decoded block, unchecked.
    pub(super) fn front(&self, source: &dyn Source) -> Result<Vec<u8>, Fault> {
        if let Some(error) = &self.error {
            return Err(Fault::Block(error.to_string()));
        }
        if self.interleave.is_some() {
            return Err(Fault::Block("interleaved".to_owned()));
        }
        let limit = to_usize(self.extent.size).min(limits::SNIFF);
        if self.extent.codec == Codec::None {
            return Ok(source.read(self.extent.offset..self.extent.offset + limit as u64)?);
        }
        let mut result = Err(Fault::Block(String::new()));
        for most in FRONT {
            let stored = source.read(self.extent.offset..self.extent.offset + self.extent.stored_size.min(most))?;
            result = self.extent.codec.decode_front(&stored, limit).map_err(|e| Fault::Block(e.to_string()));
            if result.as_ref().is_ok_and(|front| front.len() == limit) || self.extent.stored_size <= most {
                break;
            }
        }
        result
    }
}

/// Returns how the block violates section 22: it must lie inside the data section and the file, even if nothing is
/// stored.
fn misplaced(stored: &BlockFields, length: u64, data_section: u64) -> Option<Defect> {
    let BlockFields { offset, disk_size: stored_size, .. } = *stored;
    match offset.checked_add(stored_size) {
        Some(end) if end <= length && offset >= data_section => None,
        Some(end) if end <= length => Some(Defect::BeforeData { offset, data_section }),
        _ => Some(Defect::PastEnd { offset, stored_size, length }),
    }
}

/// Returns the codec (section 6); `None` if none is stated.
fn codec(header: &Header, stored: &BlockFields) -> Option<Codec> {
    if stored.flags & COMPRESSED == 0 || stored.disk_size == stored.orig_size {
        return Some(Codec::None);
    }
    match header.compression_default {
        _ if stored.flags & LZ4 != 0 => Some(Codec::Lz4),
        _ if stored.flags & ZSTD != 0 => Some(Codec::Zstd),
        1 => Some(Codec::Zstd),
        2 => Some(Codec::Lz4),
        _ => None,
    }
}
