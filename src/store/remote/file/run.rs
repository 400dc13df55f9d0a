//! Consecutive bytes of an object: on their way from the server, and then in memory.

use std::{ops::Range, sync::Arc};

use super::{super::object::FetchError, Blocks};
use crate::{
    cache::{BlockError, Buffer, Cache, Fetched, Key, Reservation, WeakFetched},
    source::SourceError,
};

/// A run of bytes, filled from its front by one request. A reader waits for its own bytes only. Clones share the bytes.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) range: Range<u64>,
    bytes: Fetched,
    /// When it was asked for, if that was ahead of readers.
    pub(super) ahead: Option<u64>,
}

/// The same, without keeping the bytes.
#[derive(Debug, Clone)]
pub(super) struct WeakRun {
    range: Range<u64>,
    bytes: WeakFetched,
    ahead: Option<u64>,
}

impl WeakRun {
    pub(super) fn upgrade(&self) -> Option<Run> {
        Some(Run { range: self.range.clone(), bytes: self.bytes.upgrade()?, ahead: self.ahead })
    }

    /// Returns whether it was evicted.
    pub(super) fn is_gone(&self) -> bool {
        self.bytes.is_gone()
    }

    /// Gives its bytes up.
    pub(super) fn forget(&self, cache: &Cache) {
        cache.forget_fetched(&self.bytes);
    }
}

impl Run {
    /// Returns memory for a range. `room` has as many bytes.
    ///
    /// # Errors
    /// If the system has no memory.
    pub(super) fn new(cache: &Cache, key: Key, range: Range<u64>, room: Reservation) -> Result<Self, FetchError> {
        let bytes = cache.expect_fetched(key, room).map_err(|error| FetchError::Failed(error.to_string()))?;
        Ok(Self { range, bytes, ahead: None })
    }

    pub(super) fn downgrade(&self) -> WeakRun {
        WeakRun { range: self.range.clone(), bytes: self.bytes.downgrade(), ahead: self.ahead }
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Has the cache keep it.
    pub(super) fn keep(&self, cache: &Cache) {
        cache.keep_fetched(&self.bytes);
    }

    /// Adds bytes up to the end of the run. Returns how many were taken.
    pub(super) fn push(&self, bytes: &[u8]) -> usize {
        self.bytes.add(bytes)
    }

    /// Notes that no more bytes will come.
    pub(super) fn fail(&self, cache: &Cache, error: &FetchError) {
        cache.fail_fetched(&self.bytes, error.clone().into());
    }

    /// Returns whether its request failed, so that a reader of these bytes has to request them again.
    pub(super) fn has_failed(&self) -> bool {
        self.bytes.has_failed()
    }

    /// Returns all bytes, if they are there.
    pub(super) fn whole(&self) -> Option<Arc<Buffer>> {
        self.bytes.whole()
    }

    /// Returns whether all bytes before `end` are there.
    pub(super) fn is_ready(&self, end: u64) -> bool {
        self.bytes.has_come((end - self.range.start) as usize)
    }

    /// Notes that a reader takes bytes of it.
    pub(super) fn note_read(&self, blocks: &Blocks, bytes: u64) {
        let is_first = blocks.cache.note_fetched_read(&self.bytes, bytes, self.len());
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
