//! What may go wrong, by kind.

use std::io;

use crate::vfs::{self, Problem};

/// The error of an operation on a [`super::Volume`]. Its text names the container, the path in it, and for damage the
/// block, the offset and what was wrong, with the causes.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    kind: ErrorKind,
    what: What,
}

#[derive(Debug, Clone, thiserror::Error)]
enum What {
    #[error(transparent)]
    Filesystem(vfs::Error),
    #[error("{0}")]
    Said(String),
}

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such entry.
    NotFound,
    /// The operating system denies access.
    PermissionDenied,
    /// The file is no container of a known format, or one that cannot be opened.
    NotAContainer,
    /// The entry is no folder.
    NotAFolder,
    /// The entry is a folder.
    IsAFolder,
    /// The entry shows no array.
    NotAnArray,
    /// Something is damaged: a block does not decode, or its checksum is wrong.
    Damaged,
    /// The container has changed since the entry was looked up.
    Changed,
    /// There is not enough memory.
    OutOfMemory,
    /// The arguments make no sense.
    InvalidInput,
    /// Another error of the operating system; see the text.
    Io,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, said: String) -> Self {
        Self { kind, what: What::Said(said) }
    }

    /// Converts an error of opening a volume. For the filesystem, a file that is no container is invalid input.
    pub(super) fn of_opening(error: vfs::Error) -> Self {
        let error = Self::from(error);
        let kind = if error.kind == ErrorKind::InvalidInput { ErrorKind::NotAContainer } else { error.kind };
        Self { kind, ..error }
    }

    /// Returns where and what went wrong: for damage with the container, the path in it, the block and the offset.
    /// `None` if the filesystem was not asked at all.
    pub fn problem(&self) -> Option<Problem> {
        match &self.what {
            What::Filesystem(error) => Some(error.to_problem()),
            What::Said(_) => None,
        }
    }

    /// Returns it as a problem; without a place if the filesystem was not asked.
    pub(crate) fn to_problem(&self) -> Problem {
        self.problem().unwrap_or_else(|| Problem::of(std::path::PathBuf::new(), self.to_string()))
    }

    /// Returns what is wrong, for callers who name the place themselves.
    pub(crate) fn detail(&self) -> String {
        self.to_problem().detail()
    }

    /// Returns the operating system's number of the error; 0 if there is none.
    pub(crate) fn errno(&self) -> i32 {
        match &self.what {
            What::Filesystem(error) => error.errno(),
            What::Said(_) => 0,
        }
    }

    /// Returns whether bytes, or memory for them, could not be had. What the entry holds is then not known.
    pub(crate) fn is_unread(&self) -> bool {
        match &self.what {
            What::Filesystem(error) => error.is_unread(),
            What::Said(_) => {
                matches!(self.kind, ErrorKind::PermissionDenied | ErrorKind::OutOfMemory | ErrorKind::Io)
            }
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<vfs::Error> for Error {
    fn from(error: vfs::Error) -> Self {
        let kind = match error.errno() {
            libc::ENOENT => ErrorKind::NotFound,
            libc::EACCES | libc::EPERM => ErrorKind::PermissionDenied,
            libc::ENOTDIR => ErrorKind::NotAFolder,
            libc::EISDIR => ErrorKind::IsAFolder,
            libc::ESTALE => ErrorKind::Changed,
            libc::ENOMEM => ErrorKind::OutOfMemory,
            libc::EINVAL | libc::ENAMETOOLONG => ErrorKind::InvalidInput,
            _ if error.is_damage() => ErrorKind::Damaged,
            _ => ErrorKind::Io,
        };
        Self { kind, what: What::Filesystem(error) }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::NotAFolder => io::ErrorKind::NotADirectory,
            ErrorKind::IsAFolder => io::ErrorKind::IsADirectory,
            ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::Changed => io::ErrorKind::StaleNetworkFileHandle,
            ErrorKind::NotAnArray | ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::NotAContainer | ErrorKind::Damaged => io::ErrorKind::InvalidData,
            ErrorKind::Io => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
