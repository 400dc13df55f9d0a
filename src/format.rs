//! Parsers: the bytes of a container to what is stored in it.
//!
//! Safe code without I/O of its own: everything is read through a [`Source`], by range, and every offset and length
//! from a file is checked before it is used. The module of a format says which page of facts it follows.

mod dtype;
pub mod idv;
pub mod kast;
pub mod kastore;
pub mod kdb;
pub mod wshard;

use std::{ffi::OsStr, fmt};

use crate::{
    codec::Codec,
    source::{Source, SourceError},
};
pub use dtype::DType;

/// The suffixes that containers usually have. A container is recognised by its content; the name only says that a file
/// which is none, or can't be read, is worth reporting.
const SUFFIXES: [&str; 7] = [".wshard", ".shard", ".kas", ".trees", ".kast", ".kdb", ".idv"];

/// Whether a file's name says that it should be a container, finished or not.
pub fn is_container_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".partial").unwrap_or(&name);
    SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

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
    /// A refusal with its reason.
    pub fn refused(class: Class, reason: impl Into<String>) -> Self {
        Self::Refused { class, reason: reason.into() }
    }
}

/// Why a part of a container can't be served, while the rest of it can.
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

/// The kinds of refusal that the format pages name (`docs/formats/kastore.md` 6, `docs/formats/kast.md` 3).
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
        })
    }
}

/// Which formats there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// WShard episodes, manifests and all other Shard files.
    Shard,
    /// kastore, `.trees` among them.
    Kastore,
    /// The KAST draft.
    Kast,
    /// KDB episodes.
    Kdb,
    /// IDV, the binary data views of ML.NET.
    Idv,
}

impl Format {
    /// The name that `container.json` gives.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shard => "wshard",
            Self::Kastore => "kastore",
            Self::Kast => "kast",
            Self::Kdb => "kdb",
            Self::Idv => "idv",
        }
    }
}

/// What a file turned out to be, by its content alone.
#[derive(Debug)]
pub enum Detected {
    /// A container that opens.
    Container(Format),
    /// An ordinary file.
    Plain,
    /// It has a container's magic and a header of full length, but must be refused: an ordinary file, with a reason
    /// worth telling.
    Refused(Format, FormatError),
}

/// Looks at the front of a file and says what it is. `name` matters only for `.partial`, the unfinished recordings of
/// Shard writers: such a file counts only when it is complete (`docs/TREE.md`, section 3).
///
/// # Errors
/// [`SourceError`] when the front could not be read.
pub fn detect(source: &dyn Source, name: &[u8]) -> Result<Detected, SourceError> {
    let mut magic = [0; 8];
    let length = source.len().min(8) as usize;
    source.read_at(0, &mut magic[..length])?;
    let (format, header, opened) = if magic.starts_with(b"SHRD") {
        (Format::Shard, wshard::HEADER, wshard::probe(source, name.ends_with(b".partial")))
    } else if magic == kastore::SIGNATURE {
        (Format::Kastore, kastore::HEADER, kastore::probe(source))
    } else if magic.starts_with(&kdb::MAGIC) {
        (Format::Kdb, kdb::HEADER, kdb::probe(source))
    } else if magic == idv::MAGIC {
        (Format::Idv, idv::HEADER, idv::probe(source))
    } else if magic.starts_with(b"KAST") {
        // Several unrelated formats begin with these letters: the file is claimed only by rules that they all
        // fail (docs/formats/kast.md 5), and otherwise not worth a word.
        return Ok(match kast::parse(source) {
            Ok(_) => Detected::Container(Format::Kast),
            Err(FormatError::Source(error)) => return Err(error),
            Err(error) if kast::claims(source) => Detected::Refused(Format::Kast, error),
            Err(_) => Detected::Plain,
        });
    } else {
        return Ok(Detected::Plain);
    };
    match opened {
        Ok(()) => Ok(Detected::Container(format)),
        Err(FormatError::Source(error)) => Err(error),
        Err(error) if source.len() >= header => Ok(Detected::Refused(format, error)),
        Err(_) => Ok(Detected::Plain),
    }
}

/// Integers at fixed places of a slice. Each is `None` past the end, so a short read can't panic.
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

/// Where one block's bytes stand and how they become what was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// First stored byte in the file.
    pub offset: u64,
    /// Bytes stored.
    pub stored_size: u64,
    /// Bytes when decoded.
    pub size: u64,
    /// How to decode them.
    pub codec: Codec,
    /// CRC32C over the decoded bytes; `None` where the container has none.
    pub crc: Option<u32>,
}

impl Block {
    /// The stored bytes' place in the file. Parsers check that it does not overflow.
    pub fn stored(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + self.stored_size
    }
}
