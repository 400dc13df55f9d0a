//! Stored bytes of far files: under keys of the cache, counted in its budget, and evicted like blocks.
//!
//! A store asks for some bytes once, and adds them as they come. All readers wait for these, each for its own part only.

use std::sync::{Arc, Weak};

use super::{Buffer, Cache, Cached, Key, Reservation, Slot};
use crate::source::SourceError;

impl Cache {
    /// Returns memory for bytes that will come, as many as `room` has. It is not in the cache before
    /// [`Self::keep_fetched`].
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn expect_fetched(&self, room: Reservation) -> Result<Arc<Slot>, SourceError> {
        let size = usize::try_from(room.bytes()).unwrap_or(usize::MAX);
        Ok(Slot::growing(&self.budget, Buffer::used(size, room)?))
    }

    /// Keeps bytes that come or are there until their room is needed.
    pub(crate) fn keep_fetched(&self, key: Key, fetched: &Arc<Slot>) {
        self.entries.put(key, Cached::Bytes(fetched.clone()));
        // It may have been complete before.
        self.budget.note_idle();
    }

    /// Notes that no more bytes come, and why. The next reader asks for them again.
    pub(crate) fn fail_fetched(&self, key: Key, fetched: &Arc<Slot>, error: SourceError) {
        fetched.fail(Arc::new(error.into()));
        self.entries.remove(&key, |entry| entry.is(fetched));
        self.budget.note_idle();
    }

    /// Tells threads that wait for room that fetched bytes are complete, so that they can be evicted.
    pub(crate) fn note_complete(&self) {
        self.budget.note_idle();
    }

    /// Notes that a reader takes bytes. When all of them were taken once, they are the next to be evicted, because most
    /// are decoded or kept by readers then. Those that are read again stay. Returns whether these are the first.
    pub(crate) fn note_fetched_read(&self, key: Key, fetched: &Arc<Slot>, bytes: u64, size: u64) -> bool {
        let before = fetched.served();
        fetched.add_served(bytes, u64::MAX);
        match before < size && size <= before.saturating_add(bytes) {
            true => self.entries.demote(&key, |entry| entry.is(fetched)),
            false => drop(self.entries.get(&key)),
        }
        before == 0
    }

    /// Forgets fetched bytes.
    pub(crate) fn forget_fetched(&self, key: Key, fetched: &Weak<Slot>) {
        let Some(slot) = fetched.upgrade() else { return };
        self.entries.remove(&key, |entry| entry.is(&slot));
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
