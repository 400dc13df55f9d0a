//! The other files of a container's folder, for containers that show parts of them.

use std::{ffi::OsStr, ops::ControlFlow, sync::Arc};

use super::Container;
use crate::{
    cache::BlockError,
    source::{Source, SourceError},
    store::Version,
    view::ReadContext,
};

/// The files that a container may show parts of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Files in its folder, or below it. No link may be on the way to them.
    Stored,
    /// Files that its folder shows, by their names. Links count if the mount follows them.
    Shown,
}

/// Why a container cannot use a file that it names.
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

/// An open container that another one shows parts of. It stays open while this is held.
pub trait OpenPart: Send + Sync {
    /// Returns its tree.
    fn tree(&self) -> &Arc<dyn Container>;

    /// Returns the context that reads it.
    fn context(&self) -> &ReadContext;

    /// Returns the version of its file.
    fn state(&self) -> Version;
}

/// The other files of a container: those in its own folder if the container is a folder, otherwise those in the folder
/// of its file.
///
/// A container that is a folder shows all files in one version. If a file has changed since, each function fails with
/// `Changed`, and the container's next look-up finds its new version.
pub trait Siblings: Send + Sync {
    /// Opens a file by its path below the folder; `None` if there is no file. Links count if the mount follows them.
    /// Does not list folders.
    ///
    /// # Errors
    /// `Source` if the file cannot be read; `Refused` if the path leads out of the folder or to a link that is not
    /// followed, or if not all readers of the container may read it.
    fn file(&self, path: &str) -> Result<Option<Arc<dyn Source>>, BlockError>;

    /// Passes the names in a folder below, sorted, to `each` until it breaks; none if there is no such folder. An empty
    /// path is the folder itself.
    ///
    /// # Errors
    /// As [`Self::file`].
    fn names(&self, path: &str, each: &mut dyn FnMut(&OsStr) -> ControlFlow<()>) -> Result<(), BlockError>;

    /// Opens a container of the same format. `path` must be a path below the folder that does not lead elsewhere.
    ///
    /// # Errors
    /// `Source` if the file cannot be read; `Refused` if it cannot be a part of this container, links lead out of the
    /// folder, or it has stricter read permissions.
    fn open(&self, path: &str, reach: Reach) -> Result<Arc<dyn OpenPart>, BlockError>;

    /// Returns the SHA-256 of the whole opened file. It is computed only once for each version.
    ///
    /// # Errors
    /// [`SourceError`] if the file cannot be read.
    fn sha256(&self, part: &dyn OpenPart) -> Result<[u8; 32], SourceError>;

    /// Returns how many files should be opened at once, if each takes a request.
    fn opened_at_once(&self) -> usize {
        1
    }
}
