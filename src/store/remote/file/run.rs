//! Consecutive bytes of an object: on their way from the server, and then in memory.

use std::{
    ops::Range,
    sync::{Arc, Weak},
};

use super::{super::object::FetchError, Blocks};
use crate::{
    cache::{BlockError, Key, Slot},
    source::SourceError,
};

/// A run of bytes, filled from its front by one request. A reader waits for its own bytes only. Clones share the bytes.
#[derive(Debug, Clone)]
pub(super) struct Run<B = Arc<Slot>> {
    /// Names the bytes in the cache.
    pub(super) key: Key,
    pub(super) range: Range<u64>,
    pub(super) bytes: B,
    /// When it was asked for, if that was ahead of readers.
    pub(super) ahead: Option<u64>,
}

/// The same, without keeping the bytes.
pub(super) type WeakRun = Run<Weak<Slot>>;

impl WeakRun {
    pub(super) fn upgrade(&self) -> Option<Run> {
        Some(Run { key: self.key, range: self.range.clone(), bytes: self.bytes.upgrade()?, ahead: self.ahead })
    }
}

impl Run {
    pub(super) fn downgrade(&self) -> WeakRun {
        Run { key: self.key, range: self.range.clone(), bytes: Arc::downgrade(&self.bytes), ahead: self.ahead }
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns whether all bytes before `end` are there.
    pub(super) fn is_ready(&self, end: u64) -> bool {
        self.bytes.has_come((end - self.range.start) as usize)
    }

    /// Notes that a reader takes bytes of it.
    pub(super) fn note_read(&self, blocks: &Blocks, bytes: u64) {
        let is_first = blocks.cache.note_fetched_read(self.key, &self.bytes, bytes, self.len());
        if let Some(time) = self.ahead.filter(|_| is_first) {
            blocks.ahead.read(time, self.len());
        }
    }

    /// Copies a part of it, from `offset` in the object on. Waits until the part has come.
    ///
    /// # Errors
    /// That of its request.
    pub(super) fn copy(&self, blocks: &Blocks, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        self.note_read(blocks, out.len() as u64);
        self.bytes.copy((offset - self.range.start) as usize, out).map_err(|error| fetch_error(&error))
    }
}

/// Returns the failure of a request that the cache kept.
fn fetch_error(error: &BlockError) -> FetchError {
    match error {
        BlockError::Source(SourceError::Changed) => FetchError::Changed,
        BlockError::Source(SourceError::Io(error)) => match error.get_ref().and_then(|own| own.downcast_ref()) {
            Some(own) => FetchError::clone(own),
            None if error.raw_os_error() == Some(libc::EINTR) => FetchError::GivenUp,
            None => FetchError::Failed(error.to_string()),
        },
        error => FetchError::Failed(error.to_string()),
    }
}
