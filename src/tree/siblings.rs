//! The other files of a container's folder, for containers that show parts of them.

use std::sync::Arc;

use super::Opened;
use crate::{
    cache::BlockError,
    source::{Source, SourceError},
};

/// Which files a container may show parts of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Files in its folder, or below it. No link may be on the way to them.
    Stored,
    /// Files that its folder shows, by their names. Links count if the mount follows them.
    Shown,
}

/// Why a file is not there for a container that names it.
#[derive(Debug, thiserror::Error)]
pub enum NotThere {
    /// There is no such file, or it may not be shown.
    #[error("{0}")]
    Missing(&'static str),
    /// It has stricter read permissions than the container.
    #[error("some users who may read this file may not read it")]
    NotReadable,
    /// It cannot be examined.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Files of a folder, for deciding whether one of them is a container.
pub trait Beside {
    /// Opens a file.
    ///
    /// # Errors
    /// [`NotThere`].
    fn open(&self, path: &str, reach: Reach) -> Result<Arc<dyn Source>, NotThere>;
}

/// The containers in the folder of a container.
pub trait Siblings: Send + Sync {
    /// Opens a container of the same format, by a path below the folder that was checked to lead nowhere else.
    ///
    /// # Errors
    /// `Source` if the file cannot be read; `Refused` if it cannot be a part of this container, links lead out of the
    /// folder, or it has stricter read permissions.
    fn open(&self, path: &str, reach: Reach) -> Result<Arc<Opened>, BlockError>;

    /// Returns the SHA-256 of the whole opened file, computed once for each of its states.
    ///
    /// # Errors
    /// [`SourceError`] if the file cannot be read.
    fn sha256(&self, opened: &Opened) -> Result<[u8; 32], SourceError>;

    /// Returns how many should be opened at once, if each takes a request.
    fn opened_at_once(&self) -> usize {
        1
    }
}
