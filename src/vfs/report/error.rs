//! What went wrong, with everything that a person needs to find it, and the one place that turns it into an errno.

use std::{borrow::Cow, fmt, io, path::PathBuf, sync::Arc};

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
    Block {
        block: Option<String>,
        offset: Option<u64>,
        error: Arc<BlockError>,
    },
    Format(Arc<FormatError>),
    WouldBlock(Wait),
    /// What a file holds is not what its name says.
    Damaged(String),
    /// What needs no more than an errno and a reason.
    Plain(i32, Cow<'static, str>),
}

impl Error {
    /// Returns an error of the operating system about a file of SOURCE, or that of a store that would have to wait.
    pub(crate) fn os(error: &io::Error, doing: &'static str, path: PathBuf) -> Self {
        if store::is_would_block(error) {
            return Self::would_block(Wait::Disk);
        }
        let errno = store::errno(error).unwrap_or(libc::EIO);
        Self::new(Kind::Plain(errno, format!("{doing}: {error}").into()), path)
    }

    /// Returns the error of a path of SOURCE that could not be opened; stale if the file that was looked up is no
    /// longer there.
    pub(crate) fn opening(error: &io::Error, doing: &'static str, path: PathBuf) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV), _)
            | (None, io::ErrorKind::InvalidInput) => Self::stale(path),
            _ => Self::os(error, doing, path),
        }
    }

    /// Returns the error of a block that cannot be served, or of bytes of no block.
    pub(crate) fn block(
        container: PathBuf,
        path: String,
        block: Option<String>,
        offset: Option<u64>,
        error: Arc<BlockError>,
    ) -> Self {
        Self { kind: Kind::Block { block, offset, error }, container: shown(container), path }
    }

    /// Returns the error of a container that cannot be opened.
    pub(crate) fn format(container: PathBuf, error: FormatError) -> Self {
        Self::new(Kind::Format(Arc::new(error)), container)
    }

    /// Returns the error of a file that holds something else than its name says.
    pub(crate) fn damaged(path: PathBuf, reason: String) -> Self {
        Self::new(Kind::Damaged(reason), path)
    }

    /// Returns the error of a request that makes no sense.
    pub(crate) fn invalid(path: PathBuf, reason: String) -> Self {
        Self::new(Kind::Plain(libc::EINVAL, reason.into()), path)
    }

    /// Returns the error of a node whose container has left its state.
    pub(crate) fn stale(path: PathBuf) -> Self {
        Self::plain(libc::ESTALE, "the container has changed since this was looked up", path)
    }

    /// Returns the error of a file that ended before its size.
    pub(crate) fn short((container, path): (PathBuf, String), end: u64, size: u64) -> Self {
        let kind = Kind::Plain(libc::EINVAL, format!("ended at byte {end} of {size}").into());
        Self { kind, container, path }
    }

    /// Returns the error of an operation that would have to wait for `needed`, and may not.
    pub(crate) fn would_block(needed: Wait) -> Self {
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

    pub(crate) fn is_a_folder(path: PathBuf) -> Self {
        Self::plain(libc::EISDIR, "is a folder", path)
    }

    pub(crate) fn not_a_link(path: PathBuf) -> Self {
        Self::plain(libc::EINVAL, "not a symbolic link", path)
    }

    /// Returns an error that needs no more than an errno and a reason.
    pub(crate) fn plain(errno: i32, reason: &'static str, path: PathBuf) -> Self {
        Self::new(Kind::Plain(errno, reason.into()), path)
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
            SourceError::OutOfRange { .. } | SourceError::Damaged(_) => libc::EIO,
        };
        match &self.kind {
            Kind::Plain(errno, _) => *errno,
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
            Kind::WouldBlock(_) => libc::EAGAIN,
            Kind::Damaged(_) => libc::EIO,
        }
    }

    /// Returns the refusal of memory that this error stands for.
    pub(crate) fn refused_memory(&self) -> Option<TooMuch> {
        match &self.kind {
            Kind::Block { error, .. } => error.refused_memory(),
            Kind::Format(error) => tree::refused(error),
            _ => None,
        }
    }

    /// Returns whether the error says nothing about the file: the reader was killed, or something ran out for now.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.errno(), libc::EINTR | libc::ENOMEM | libc::EMFILE | libc::ENFILE)
    }

    /// Returns whether a block, or bytes of the container, are damaged.
    pub(crate) fn is_damage(&self) -> bool {
        match &self.kind {
            Kind::Block { error, .. } => error.is_damage(),
            Kind::Format(error) => matches!(**error, FormatError::Source(SourceError::Damaged(_))),
            Kind::Damaged(_) => true,
            _ => false,
        }
    }

    /// Returns whether bytes, or memory for them, could not be had, or were replaced meanwhile. What the file holds is
    /// then not known.
    pub(crate) fn is_unread(&self) -> bool {
        let is_cut = match &self.kind {
            Kind::Block { error, .. } => matches!(**error, BlockError::Source(SourceError::OutOfRange { .. })),
            Kind::Format(error) => matches!(**error, FormatError::Source(SourceError::OutOfRange { .. })),
            _ => false,
        };
        let is_answer =
            matches!(self.errno(), libc::ENOENT | libc::ENOTDIR | libc::EISDIR | libc::EINVAL | libc::ENAMETOOLONG);
        let is_refused = matches!(&self.kind, Kind::Format(error) if matches!(**error, FormatError::Refused { .. }));
        !(is_cut || is_refused || is_answer || self.is_damage())
    }

    /// Returns the error as a line of `problems.jsonl`.
    pub fn to_problem(&self) -> Problem {
        let (block, offset) = match &self.kind {
            Kind::Block { block, offset, .. } => (block.clone(), *offset),
            _ => (None, None),
        };
        let message = self.reason();
        let is_unread = self.is_unread();
        let (container, path, is_advice) = (self.container.clone(), self.path.clone(), false);
        Problem { container, path, block, offset, message, is_unread, is_advice }
    }

    /// Returns what was wrong, without the place.
    fn reason(&self) -> String {
        match &self.kind {
            Kind::Plain(_, reason) => reason.to_string(),
            Kind::Block { error, .. } => error.to_string(),
            Kind::Format(error) => error.to_string(),
            Kind::WouldBlock(_) => "it would have to be waited for".into(),
            Kind::Damaged(reason) => reason.clone(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_problem())
    }
}

impl std::error::Error for Error {}
