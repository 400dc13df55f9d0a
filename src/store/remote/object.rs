//! One object, and how its bytes are fetched.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::source::SourceError;

/// One object in one state: what cached bytes are keyed by. Holds no secret, and may be written to logs and disks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    /// The store: `s3://bucket at https://endpoint`, `https://host`; with a hash of the query if its addresses have one.
    pub(crate) store: Arc<str>,
    /// The key within the store, unescaped.
    pub(crate) key: Arc<str>,
    /// The entity tag, without quotes unless it is weak; `modified SECONDS` if the server gives none but a time.
    pub(crate) etag: Arc<str>,
    /// Bytes.
    pub(crate) size: u64,
}

impl ObjectId {
    /// Returns everything that tells the states of objects apart.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.store.len() + self.key.len() + self.etag.len() + 64);
        for part in [&self.store, &self.key, &self.etag] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes.extend(self.size.to_le_bytes());
        bytes
    }
}

/// Ranged GETs of one object in one state. Each request carries `If-Match`; status, entity tag and `Content-Range` of
/// each answer are compared, for servers that ignore the condition.
pub(crate) trait Fetch: Send + Sync {
    /// The object and its state.
    fn id(&self) -> &ObjectId;

    /// Streams the bytes of `range` into `sink`, in order. A body that is cut is continued where it ended. Success
    /// means that `sink` got every byte of the range. After an error, the bytes that `sink` got are right but
    /// incomplete.
    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        sink: &'a mut (dyn FnMut(Bytes) + Send),
    ) -> BoxFuture<'a, Result<(), FetchError>>;
}

/// Why bytes of an object could not be had. The texts name no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// The object is in another state now.
    #[error("the object has changed since it was opened")]
    Changed,
    /// There is no such object any more.
    #[error("the object is no longer there")]
    Gone,
    /// The server does not allow it.
    #[error("{0}")]
    Denied(String),
    /// No answer in time, over all attempts.
    #[error("{0}")]
    TimedOut(String),
    /// No answer in all attempts, or only such as may pass.
    #[error("{0}")]
    Unreached(String),
    /// No reader waits for it any more.
    #[error("nobody waits for it any more")]
    GivenUp,
    /// Anything else, with what to do about it.
    #[error("{0}")]
    Failed(String),
}

impl FetchError {
    /// Returns whether no attempt got an answer that can last.
    pub(crate) fn is_unreached(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Unreached(_))
    }

    /// Returns the errno that readers get.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Self::Changed | Self::Gone => libc::ESTALE,
            Self::Denied(_) => libc::EACCES,
            Self::TimedOut(_) => libc::ETIMEDOUT,
            Self::GivenUp => libc::EINTR,
            Self::Unreached(_) | Self::Failed(_) => libc::EIO,
        }
    }
}

/// As an error of the system, which keeps the text.
impl From<FetchError> for io::Error {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::GivenUp => Self::from_raw_os_error(libc::EINTR),
            error => Self::other(error),
        }
    }
}

impl From<FetchError> for SourceError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Changed | FetchError::Gone => Self::Changed,
            error => Self::Io(error.into()),
        }
    }
}

/// Returns the errno of the fetch whose failure an error is.
pub(crate) fn errno(error: &io::Error) -> Option<i32> {
    error.get_ref()?.downcast_ref().map(FetchError::errno)
}

/// Returns whether an error is that of a fetch which got no answer in all its attempts.
pub(crate) fn is_unreached(error: &io::Error) -> bool {
    error.get_ref().and_then(|error| error.downcast_ref()).is_some_and(FetchError::is_unreached)
}
