//! Parsers: from the bytes of a container to what is stored in it.
//!
//! Safe code without I/O of its own. Everything is read by range through a [`Source`](crate::source::Source), and every
//! offset and length from a file is checked before it is used. The module of each format names the page that it
//! follows.

// An index or a cast that is safe says why. Tests may panic.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation, clippy::indexing_slicing))]

mod cursor;
mod dtype;
mod fixed;
pub mod gguf;
pub mod hdf5;
pub mod idv;
pub mod kast;
pub mod kastore;
pub mod kdb;
pub mod lerobot;
pub mod mcap;
pub mod messages;
pub mod mp4;
pub mod netcdf;
pub mod npz;
mod packed;
pub mod parquet;
pub(crate) mod picture;
pub mod pt;
mod recognition;
mod record;
pub mod recording;
pub mod rlds;
pub mod rosbag;
pub mod safetensors;
pub mod tfrecord;
pub mod wshard;
pub mod zarr;
pub mod zip;

use std::fmt;

pub use crate::codec::{Crc, CrcKind};
pub(crate) use crate::float16::{bf16, half, to_bf16, to_half};
use crate::{codec::Codec, source::SourceError};
pub use dtype::{DType, DateUnit, TimeUnit, civil};
pub use fixed::{utf32, without_nuls};
pub use recognition::{FRONT, Front, Recognition, has_suffix};
pub(crate) use record::tuple;
pub use record::{ElementType, Field, Record};

/// Why a file is not a container that can be opened.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The bytes are not of the format.
    #[error("{class}: {reason}")]
    Refused {
        /// The kind of fault, in the words of the format pages.
        class: Class,
        /// What was wrong, with the numbers.
        reason: String,
    },
    /// The bytes could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl FormatError {
    /// Returns a refusal with its reason.
    pub fn refused(class: Class, reason: impl Into<String>) -> Self {
        Self::Refused { class, reason: reason.into() }
    }
}

/// Why a part of a container cannot be served while the rest of it can.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The stored bytes are wrong.
    #[error("{0}")]
    Damaged(String),
    /// The bytes could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl PartError {
    fn damaged<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Damaged(reason.into()))
    }
}

/// The kinds of refusal that the format pages name (`docs/formats/kastore.md` 6, `docs/formats/kast.md` 3, and so on).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the format pages' own words")]
pub enum Class {
    Empty,
    BadMagic,
    Truncated,
    VersionTooOld,
    VersionTooNew,
    UnsupportedFlags,
    BadType,
    BadFormat,
    BadHeaderLength,
    BadHeader,
    Duplicate,
    BadDtype,
    BadOffsets,
    BadSize,
    NotCovered,
    TooMany,
    BadIndex,
    MissingShard,
    BadShard,
    NotInShard,
    NotReadable,
    NoEnd,
    BadDirectory,
    Overlap,
    NotNpy,
    NoMembers,
    BadVersion,
    BadKey,
    NestedArray,
    BadAlignment,
    BadShape,
    BadOffset,
    BadLayout,
    TwoPickles,
    Torchscript,
    BadCrc,
    BadPickle,
    Legacy,
    BadJson,
    OtherVersion,
    BadInfo,
    BadTemplate,
    OtherStorage,
    NoSignature,
    Framing,
    Compressed,
    Features,
    Format,
    Absent,
    BadSuperblock,
    Checksum,
    Driver,
    BadRoot,
    NotMcap,
    NotBag,
    Version,
    Unfinished,
    BadFooter,
    Encrypted,
    Unindexed,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty",
            Self::BadMagic => "bad_magic",
            Self::Truncated => "truncated",
            Self::VersionTooOld => "version_too_old",
            Self::VersionTooNew => "version_too_new",
            Self::UnsupportedFlags => "unsupported_flags",
            Self::BadType => "bad_type",
            Self::BadFormat => "bad_format",
            Self::BadHeaderLength => "bad_header_length",
            Self::BadHeader => "bad_header",
            Self::Duplicate => "duplicate",
            Self::BadDtype => "bad_dtype",
            Self::BadOffsets => "bad_offsets",
            Self::BadSize => "bad_size",
            Self::NotCovered => "not_covered",
            Self::TooMany => "too_many",
            Self::BadIndex => "bad_index",
            Self::MissingShard => "missing_shard",
            Self::BadShard => "bad_shard",
            Self::NotInShard => "not_in_shard",
            Self::NotReadable => "not_readable",
            Self::NoEnd => "no_end",
            Self::BadDirectory => "bad_directory",
            Self::Overlap => "overlap",
            Self::NotNpy => "not_npy",
            Self::NoMembers => "no_members",
            Self::BadVersion => "bad_version",
            Self::BadKey => "bad_key",
            Self::NestedArray => "nested_array",
            Self::BadAlignment => "bad_alignment",
            Self::BadShape => "bad_shape",
            Self::BadOffset => "bad_offset",
            Self::BadLayout => "bad_layout",
            Self::TwoPickles => "two_pickles",
            Self::Torchscript => "torchscript",
            Self::BadCrc => "bad_crc",
            Self::BadPickle => "bad_pickle",
            Self::Legacy => "legacy",
            Self::BadJson => "json",
            Self::OtherVersion => "version",
            Self::BadInfo => "info",
            Self::BadTemplate => "template",
            Self::OtherStorage => "storage",
            Self::NoSignature => "no_signature",
            Self::Framing => "framing",
            Self::Compressed => "compressed",
            Self::Features => "features",
            Self::Format => "format",
            Self::Absent => "absent",
            Self::BadSuperblock => "bad_superblock",
            Self::Checksum => "checksum",
            Self::Driver => "driver",
            Self::BadRoot => "bad_root",
            Self::NotMcap => "not_mcap",
            Self::NotBag => "not_bag",
            Self::Version => "version",
            Self::Unfinished => "unfinished",
            Self::BadFooter => "bad_footer",
            Self::Encrypted => "encrypted",
            Self::Unindexed => "unindexed",
        })
    }
}

/// Integers at fixed places of a slice. Each is `None` past the end, so a short read cannot panic.
pub(crate) trait Fields {
    /// N bytes at `offset`.
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// A little-endian u16 at `offset`.
    fn u16(&self, offset: usize) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    /// A little-endian u32 at `offset`.
    fn u32(&self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    /// A little-endian u64 at `offset`.
    fn u64(&self, offset: usize) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }
}

impl Fields for [u8] {
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

/// Location of one block's bytes, and how to decode them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// First stored byte in the file.
    pub offset: u64,
    /// Bytes stored.
    pub stored_size: u64,
    /// Bytes when decoded.
    pub size: u64,
    /// How to decode them.
    pub codec: Codec,
    /// The CRC of the decoded bytes; `None` if the container has none.
    pub crc: Option<Crc>,
}

impl Block {
    /// Returns the range of the stored bytes in the file. Parsers check that it does not overflow.
    pub fn stored(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + self.stored_size
    }

    /// Returns whether a checksum is compared when the block is decoded: the container's, or one of its encoding.
    pub fn is_checked(&self) -> bool {
        self.crc.is_some()
            || match &self.codec {
                Codec::Zlib | Codec::ZlibExact => true,
                Codec::Chain(chain) => chain.is_checked(),
                _ => false,
            }
    }
}
