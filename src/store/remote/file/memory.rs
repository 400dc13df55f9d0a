//! Memory for bytes of objects: one bound for all objects of the process.
//!
//! Bytes that a reader waits for get memory at once: the number of readers and the size of their requests bound them.
//! Bytes that are fetched ahead get memory only within the bound. Fetched bytes stay until others need the room; bytes
//! that were read and are no longer used go first. Fetched-ahead bytes are not evicted for other fetched-ahead bytes
//! before they had time to be read.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    RemoteFile,
    room::{Room, Taken, counted},
    run::Run,
};

/// How long unread bytes that were fetched ahead are kept when others are fetched ahead.
const FRESH: Duration = Duration::from_secs(5);

/// A run, and its object, so that who opens the object again finds the run.
type Kept = (Arc<Run>, Option<Arc<RemoteFile>>);

/// The bytes in memory, of all objects.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    taken: Arc<Taken>,
    /// In the order in which they came. Eviction moves runs that are in use back to the end.
    runs: Mutex<VecDeque<Kept>>,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, taken: Taken::new(limit), runs: Mutex::default() }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes in use, including evicted runs that are still being written.
    pub(super) fn taken(&self) -> u64 {
        self.taken.bytes.load(SeqCst)
    }

    /// Returns room for bytes that a reader waits for, even beyond the bound.
    pub(super) fn take(&self, bytes: u64) -> Room {
        let bytes = counted(bytes);
        let taken = self.taken.bytes.fetch_add(bytes, SeqCst) + bytes;
        if taken > self.limit {
            self.evict(taken - self.limit, true);
        }
        Room::new(bytes, &self.taken)
    }

    /// Returns room for bytes that are fetched ahead, if the bound permits.
    pub(super) fn try_take(&self, bytes: u64) -> Option<Room> {
        let bytes = counted(bytes);
        loop {
            let taken = self.taken.bytes.load(SeqCst);
            if taken + bytes <= self.limit {
                if self.taken.bytes.compare_exchange(taken, taken + bytes, SeqCst, SeqCst).is_ok() {
                    return Some(Room::new(bytes, &self.taken));
                }
            } else if !self.evict(taken + bytes - self.limit, false) {
                return None;
            }
        }
    }

    /// Keeps a run until it is evicted.
    pub(super) fn keep(&self, run: Arc<Run>, file: Option<Arc<RemoteFile>>) {
        self.runs.lock().push_back((run, file));
    }

    /// Evicts at least `bytes` bytes of finished runs, if there are that many. Returns whether any were evicted.
    fn evict(&self, bytes: u64, also_fresh: bool) -> bool {
        let mut evicted = Vec::new();
        let mut sum = 0;
        let mut runs = self.runs.lock();
        // Goes around twice: the first round clears the mark of runs that were used.
        for _ in 0..2 * runs.len() {
            if sum >= bytes {
                break;
            }
            let Some((run, file)) = runs.pop_front() else { break };
            let is_wanted = || {
                let is_fresh = !run.was_read.load(Relaxed) && run.born.elapsed() < FRESH;
                is_fresh && !also_fresh || run.is_used.swap(false, Relaxed)
            };
            if !run.is_done() || !run.has_failed() && is_wanted() {
                runs.push_back((run, file));
                continue;
            }
            sum += run.len() as u64;
            evicted.push((run, file));
        }
        drop(runs);
        sum > 0
    }

    /// Forgets everything that is not on its way: for tests.
    #[cfg(test)]
    pub(super) fn clear(&self) {
        let mut kept = std::mem::take(&mut *self.runs.lock());
        kept.retain(|(run, _)| !run.is_done());
        self.runs.lock().extend(kept);
    }
}

/// Blocks of memory that wait for the next runs.
#[cfg(test)]
pub(super) fn spare_blocks(memory: &Memory) -> u64 {
    memory.taken.spare()
}
