//! Why a block cannot be served.

use std::sync::Arc;

use super::TooMuch;
use crate::{codec::DecodeError, source::SourceError};

/// Why a block cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The stored bytes could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The stored bytes did not decode.
    #[error(transparent)]
    Decode(DecodeError),
    /// The bytes do not match their checksum.
    #[error("checksum is 0x{computed:08x}, the index says 0x{stored:08x}")]
    Checksum {
        /// The container's value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A part that lies in another file failed, such as a chunk of a joined episode.
    #[error("{file}{separator}{path}: {error}", separator = if path.is_empty() { "" } else { ", " })]
    Part {
        /// The file, as the container names it.
        file: Box<str>,
        /// The path of the part in it, if that is a container.
        path: String,
        /// What was wrong.
        error: Arc<Self>,
    },
    /// It would have to be decoded, checked or computed, and the caller does not wait for that.
    #[error("it would have to be waited for")]
    WouldBlock,
    /// The format says that this block cannot be served.
    #[error("{0}")]
    Refused(String),
    /// It takes more memory than the budget allows.
    #[error(transparent)]
    Memory(#[from] TooMuch),
}

impl BlockError {
    /// Returns whether the block itself is damaged, now and later; not if bytes or memory could not be had, or would have
    /// to be waited for.
    pub(crate) fn is_damage(&self) -> bool {
        use DecodeError::{Memory, Window};
        match self {
            Self::Source(error) => matches!(error, SourceError::Damaged(_)),
            Self::Memory(_) | Self::WouldBlock | Self::Decode(Memory(_) | Window(_)) => false,
            _ => true,
        }
    }

    /// Returns the refusal of memory that this error stands for.
    pub(crate) fn refused_memory(&self) -> Option<TooMuch> {
        match self {
            Self::Memory(refused) => Some(*refused),
            Self::Source(error) => refused_memory(error),
            _ => None,
        }
    }
}

/// Returns the refusal of memory that a read error stands for.
pub(crate) fn refused_memory(error: &SourceError) -> Option<TooMuch> {
    let SourceError::Io(error) = error else { return None };
    error.get_ref()?.downcast_ref().copied()
}

impl From<DecodeError> for BlockError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Source(error) => Self::Source(error),
            error => Self::Decode(error),
        }
    }
}
