//! What went wrong, with everything that a person needs to find it, and the one place that turns it into an errno.

use std::{fmt, io, path::PathBuf, sync::Arc};

use super::problems::Problem;
use crate::{
    cache::{BlockError, TooMuch},
    codec::DecodeError,
    format::FormatError,
    source::{SourceError, Wait},
    store::{self, unveiled::shown},
    tree,
};

/// An operation that failed.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    /// The file of SOURCE: the container, or an ordinary file or folder.
    container: PathBuf,
    /// The path in the container.
    path: String,
}

#[derive(Debug, Clone)]
enum Kind {
    Os { errno: i32, doing: &'static str, reason: String },
    Block { block: Option<String>, offset: u64, error: Arc<BlockError> },
    Format(Arc<FormatError>),
    Invalid(String),
    Stale,
    WouldBlock(Wait),
    NotAFolder,
    IsAFolder,
    NotALink,
    NameTooLong,
}

impl Error {
    /// Returns an error of the operating system about a file of SOURCE, or that of a store that would have to wait.
    pub(in crate::vfs) fn os(error: &io::Error, doing: &'static str, path: PathBuf) -> Self {
        if store::is_would_block(error) {
            return Self::would_block(Wait::Disk);
        }
        let errno = store::errno(error).unwrap_or(libc::EIO);
        Self::new(Kind::Os { errno, doing, reason: error.to_string() }, path)
    }

    /// Returns the error of a path of SOURCE that could not be opened; stale if the file that was looked up is no
    /// longer there.
    pub(in crate::vfs) fn opening(error: &io::Error, doing: &'static str, path: PathBuf) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV), _)
            | (None, io::ErrorKind::InvalidInput) => Self::stale(path),
            _ => Self::os(error, doing, path),
        }
    }

    /// Returns the error of a block that cannot be served, or of bytes of no block.
    pub(in crate::vfs) fn block(
        container: PathBuf,
        path: String,
        block: Option<String>,
        offset: u64,
        error: Arc<BlockError>,
    ) -> Self {
        Self { kind: Kind::Block { block, offset, error }, container: shown(container), path }
    }

    /// Returns the error of a container that cannot be opened.
    pub(in crate::vfs) fn format(container: PathBuf, error: FormatError) -> Self {
        Self::new(Kind::Format(Arc::new(error)), container)
    }

    /// Returns the error of a request that makes no sense.
    pub(in crate::vfs) fn invalid(path: PathBuf, reason: String) -> Self {
        Self::new(Kind::Invalid(reason), path)
    }

    /// Returns the error of a node whose container has left its state.
    pub(in crate::vfs) fn stale(path: PathBuf) -> Self {
        Self::new(Kind::Stale, path)
    }

    /// Returns the error of a file that ended before its size.
    pub(crate) fn short((container, path): (PathBuf, String), end: u64, size: u64) -> Self {
        Self { kind: Kind::Invalid(format!("ended at byte {end} of {size}")), container, path }
    }

    /// Returns the error of an operation that would have to wait for `needed`, and may not.
    pub(in crate::vfs) fn would_block(needed: Wait) -> Self {
        Self::new(Kind::WouldBlock(needed), PathBuf::new())
    }

    /// Returns what the caller would have to wait for, if that is the only reason of the failure.
    pub fn would_block_for(&self) -> Option<Wait> {
        match self.kind {
            Kind::WouldBlock(needed) => Some(needed),
            _ => None,
        }
    }

    /// Returns whether the only reason is that the caller would have to wait.
    pub fn is_would_block(&self) -> bool {
        self.would_block_for().is_some()
    }

    pub(in crate::vfs) fn not_a_folder(path: PathBuf) -> Self {
        Self::new(Kind::NotAFolder, path)
    }

    pub(in crate::vfs) fn is_a_folder(path: PathBuf) -> Self {
        Self::new(Kind::IsAFolder, path)
    }

    pub(in crate::vfs) fn not_a_link(path: PathBuf) -> Self {
        Self::new(Kind::NotALink, path)
    }

    pub(in crate::vfs) fn name_too_long(path: PathBuf) -> Self {
        Self::new(Kind::NameTooLong, path)
    }

    fn new(kind: Kind, container: PathBuf) -> Self {
        Self { kind, container: shown(container), path: String::new() }
    }

    /// Returns the errno for the kernel: `EIO` for damage, `ESTALE` for changed files, and the operating system's own
    /// for files of SOURCE.
    pub fn errno(&self) -> i32 {
        let of_source = |error: &SourceError| match error {
            SourceError::Changed => libc::ESTALE,
            SourceError::Io(error) => store::errno(error).unwrap_or(libc::EIO),
            SourceError::WouldBlock => libc::EAGAIN,
            SourceError::OutOfRange { .. } => libc::EIO,
        };
        match &self.kind {
            Kind::Os { errno, .. } => *errno,
            Kind::Block { error, .. } => match &**error {
                BlockError::Source(error) => of_source(error),
                BlockError::Memory(_) | BlockError::Decode(DecodeError::Memory(_)) => libc::ENOMEM,
                BlockError::WouldBlock => libc::EAGAIN,
                // A manifest does not change when one of its chunks disappears.
                BlockError::Decode(_)
                | BlockError::Checksum { .. }
                | BlockError::Part { .. }
                | BlockError::Refused(_) => libc::EIO,
            },
            Kind::Format(error) => match &**error {
                FormatError::Source(error) => of_source(error),
                FormatError::Refused { .. } => libc::ESTALE,
            },
            Kind::Invalid(_) | Kind::NotALink => libc::EINVAL,
            Kind::Stale => libc::ESTALE,
            Kind::WouldBlock(_) => libc::EAGAIN,
            Kind::NotAFolder => libc::ENOTDIR,
            Kind::IsAFolder => libc::EISDIR,
            Kind::NameTooLong => libc::ENAMETOOLONG,
        }
    }

    /// Returns the refusal of memory that this error stands for.
    pub(in crate::vfs) fn refused_memory(&self) -> Option<TooMuch> {
        match &self.kind {
            Kind::Block { error, .. } => error.refused_memory(),
            Kind::Format(error) => tree::refused(error),
            _ => None,
        }
    }

    /// Returns whether the error says nothing about the file: the reader was killed, or something ran out for now.
    pub(in crate::vfs) fn is_passing(&self) -> bool {
        matches!(self.errno(), libc::EINTR | libc::ENOMEM | libc::EMFILE | libc::ENFILE)
    }

    /// Returns whether a block, or bytes of the container, are damaged.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(&self.kind, Kind::Block { error, .. } if error.is_damage())
    }

    /// Returns the error of another layer that caused this one, if there is one.
    pub(crate) fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Block { error, .. } => Some(&**error),
            Kind::Format(error) => Some(&**error),
            _ => None,
        }
    }

    /// Returns the error as a line of `problems.jsonl`.
    pub fn to_problem(&self) -> Problem {
        let (block, offset) = match &self.kind {
            Kind::Block { block, offset, .. } => (block.clone(), Some(*offset)),
            _ => (None, None),
        };
        let message = self.reason();
        Problem { container: self.container.clone(), path: self.path.clone(), block, offset, message }
    }

    /// Returns what was wrong, without the place.
    fn reason(&self) -> String {
        match &self.kind {
            Kind::Os { doing, reason, .. } => format!("{doing}: {reason}"),
            Kind::Block { error, .. } => error.to_string(),
            Kind::Format(error) => error.to_string(),
            Kind::Invalid(reason) => reason.clone(),
            Kind::Stale => "the container has changed since this was looked up".into(),
            Kind::WouldBlock(_) => "it would have to be waited for".into(),
            Kind::NotAFolder => "not a folder".into(),
            Kind::IsAFolder => "is a folder".into(),
            Kind::NotALink => "not a symbolic link".into(),
            Kind::NameTooLong => "a name of more than 255 bytes".into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_problem())
    }
}

impl std::error::Error for Error {}
