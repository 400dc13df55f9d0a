//! Answers that are errors, and the status of each error of the filesystem.

use axum::response::IntoResponse;
use http::{StatusCode, header};

use crate::{
    escape::escaped,
    serve::Response,
    volume::{Error, ErrorKind},
};

/// An answer that is an error, with a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The status.
    pub(crate) status: StatusCode,
    /// What was wrong, in one line.
    pub(crate) text: String,
    /// Whether the file has changed, so that asking again may help.
    pub(in crate::serve) is_changed: bool,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), is_changed: false }
    }

    /// Returns the refusal of a name that does not exist, or may not be shown.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "nothing of this name is here")
    }

    /// Returns the refusal of a file that has changed.
    pub(in crate::serve) fn changed() -> Self {
        let text = "the file has changed while it was read; try again";
        Self { is_changed: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    /// Returns the refusal when too much is under way.
    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too much is asked of this server at once; try again")
    }

    /// Returns the answer to a request that panicked.
    pub(crate) fn fault() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "this request failed by a fault of shardfs itself")
    }

    /// Returns the refusal of a method that is not supported.
    pub(crate) fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "this can only be read: GET and HEAD")
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            // Names that no file can have count as not found, too.
            ErrorKind::NotFound | ErrorKind::NotAFolder | ErrorKind::InvalidInput => return Self::not_found(),
            ErrorKind::PermissionDenied => return Self::new(StatusCode::FORBIDDEN, "this may not be read"),
            ErrorKind::Changed => return Self::changed(),
            ErrorKind::OutOfMemory => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<crate::vfs::Error> for Refusal {
    fn from(error: crate::vfs::Error) -> Self {
        Error::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let response = (self.status, escaped(&self.text) + "\n").into_response();
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => ([(header::RETRY_AFTER, "1")], response).into_response(),
            StatusCode::METHOD_NOT_ALLOWED => ([(header::ALLOW, "GET, HEAD")], response).into_response(),
            _ => response,
        }
    }
}
