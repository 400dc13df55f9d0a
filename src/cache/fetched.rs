//! Stored bytes of far files: under keys of the cache, counted in its budget, and evicted like blocks.
//!
//! A store asks for some bytes once, and adds them as they come. All readers wait for these, each for its own part only.

use std::sync::{Arc, Weak};

use super::{BlockError, Buffer, Cache, Cached, Key, Reservation, Slot};
use crate::source::SourceError;

/// Bytes that come in order. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    key: Key,
    slot: Arc<Slot>,
}

/// The same, without keeping them.
#[derive(Debug, Clone)]
pub(crate) struct WeakFetched {
    key: Key,
    slot: Weak<Slot>,
}

impl WeakFetched {
    /// Returns the bytes, unless they were evicted.
    pub(crate) fn upgrade(&self) -> Option<Fetched> {
        Some(Fetched { key: self.key, slot: self.slot.upgrade()? })
    }

    /// Returns whether they were evicted.
    pub(crate) fn is_gone(&self) -> bool {
        self.slot.strong_count() == 0
    }
}

impl Fetched {
    /// Adds bytes that came, up to the end. Returns how many were taken.
    pub(crate) fn add(&self, bytes: &[u8]) -> usize {
        self.slot.add(bytes)
    }

    /// Copies the bytes from `at` on. Waits until they have come.
    ///
    /// # Errors
    /// Why they do not come ([`Cache::fail_fetched`]).
    pub(crate) fn copy(&self, at: usize, out: &mut [u8]) -> Result<(), Arc<BlockError>> {
        self.slot.copy(at, out)
    }

    /// Returns whether the bytes before `end` are there.
    pub(crate) fn has_come(&self, end: usize) -> bool {
        self.slot.has_come(end)
    }

    /// Returns whether no more bytes come, so that the missing ones have to be asked for again.
    pub(crate) fn has_failed(&self) -> bool {
        self.slot.failure().is_err()
    }

    /// Returns all bytes, if they are there.
    pub(crate) fn whole(&self) -> Option<Arc<Buffer>> {
        self.slot.whole()
    }

    /// Returns the same without keeping it.
    pub(crate) fn downgrade(&self) -> WeakFetched {
        WeakFetched { key: self.key, slot: Arc::downgrade(&self.slot) }
    }
}

impl Cache {
    /// Returns memory for bytes that will come, as many as `room` has. It is not in the cache before
    /// [`Self::keep_fetched`].
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn expect_fetched(&self, key: Key, room: Reservation) -> Result<Fetched, SourceError> {
        let size = usize::try_from(room.bytes()).unwrap_or(usize::MAX);
        Ok(Fetched { key, slot: Slot::growing(&self.budget, Buffer::used(size, room)?) })
    }

    /// Keeps bytes that come or are there until their room is needed.
    pub(crate) fn keep_fetched(&self, fetched: &Fetched) {
        self.entries.put(fetched.key, Cached::Bytes(fetched.slot.clone()));
        // It may have been complete before.
        self.budget.note_idle();
    }

    /// Notes that no more bytes come, and why. The next reader asks for them again.
    pub(crate) fn fail_fetched(&self, fetched: &Fetched, error: SourceError) {
        fetched.slot.fail(Arc::new(error.into()));
        self.entries.remove(&fetched.key, |entry| entry.is(&fetched.slot));
        self.budget.note_idle();
    }

    /// Tells threads that wait for room that fetched bytes are complete, so that they can be evicted.
    pub(crate) fn note_complete(&self) {
        self.budget.note_idle();
    }

    /// Notes that a reader takes bytes. When all of them were taken once, they are the next to be evicted, because most
    /// are decoded or kept by readers then. Those that are read again stay. Returns whether these are the first.
    pub(crate) fn note_fetched_read(&self, fetched: &Fetched, bytes: u64, size: u64) -> bool {
        let before = fetched.slot.served();
        fetched.slot.add_served(bytes, u64::MAX);
        match before < size && size <= before.saturating_add(bytes) {
            true => self.entries.demote(&fetched.key, |entry| entry.is(&fetched.slot)),
            false => drop(self.entries.get(&fetched.key)),
        }
        before == 0
    }

    /// Forgets fetched bytes.
    pub(crate) fn forget_fetched(&self, fetched: &WeakFetched) {
        let Some(slot) = fetched.slot.upgrade() else { return };
        self.entries.remove(&fetched.key, |entry| entry.is(&slot));
    }

    /// Returns the fetched bytes of a store that are in memory.
    pub(crate) fn fetched_bytes(&self, store: u64) -> u64 {
        self.entries.cost(|key| key.is_fetched() && key.store() == Some(store))
    }

    /// Forgets everything of a store that is not open any more.
    pub(crate) fn forget_store(&self, store: u64) {
        self.entries.remove_idle(|key| key.store() == Some(store));
    }
}
