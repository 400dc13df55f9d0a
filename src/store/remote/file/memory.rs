//! Memory for bytes of objects: one bound for all objects of the process.
//!
//! What a reader waits for gets its memory at once, for it is bounded by the number of readers and the size of their
//! requests. What is fetched ahead gets it only within the bound. Fetched bytes stay until others need the room: those
//! that were read and are not used any more go first, and bytes that were fetched ahead are not evicted for others that
//! are fetched ahead before they had time to be read.

use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{BLOCK, run::Run};

/// How long bytes that were fetched ahead are kept for the reader that they were fetched for.
const FRESH: Duration = Duration::from_secs(5);

/// Buffers that are kept for the next runs: memory that the process has already costs no page faults.
const SPARE: usize = 8;

/// Runs that a thread found to be there, and reads next.
const PROMISED: usize = 4;

thread_local! {
    static PROMISES: RefCell<VecDeque<Arc<Run>>> = const { RefCell::new(VecDeque::new()) };
}

/// Keeps runs for this thread, until it has been promised others.
pub(super) fn promise(runs: Vec<Arc<Run>>) {
    PROMISES.with_borrow_mut(|kept| {
        kept.extend(runs);
        let surplus = kept.len().saturating_sub(PROMISED);
        kept.drain(..surplus);
    });
}

/// The bytes in memory, of all objects.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    taken: Arc<Taken>,
    /// In the order in which they came, those that were used since at the end again.
    runs: Mutex<VecDeque<Arc<Run>>>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicU64,
    spare: Mutex<Vec<Vec<u8>>>,
}

/// Counted bytes, given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    taken: Arc<Taken>,
}

impl Room {
    /// An empty buffer for so many bytes.
    pub(super) fn buffer(&self, length: usize) -> Vec<u8> {
        let spare = (length == BLOCK as usize).then(|| self.taken.spare.lock().pop()).flatten();
        spare.unwrap_or_else(|| Vec::with_capacity(length))
    }

    /// Keeps a buffer for the next one.
    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        let mut spare = self.taken.spare.lock();
        if buffer.capacity() == BLOCK as usize && spare.len() < SPARE {
            buffer.clear();
            spare.push(buffer);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.bytes.fetch_sub(self.bytes, SeqCst);
    }
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, taken: Arc::default(), runs: Mutex::default() }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use, those included of runs that were evicted and are still being written.
    pub(super) fn taken(&self) -> u64 {
        self.taken.bytes.load(SeqCst)
    }

    /// Room for bytes that a reader waits for.
    pub(super) fn take(&self, bytes: u64) -> Room {
        let taken = self.taken.bytes.fetch_add(bytes, SeqCst) + bytes;
        if taken > self.limit {
            self.evict(taken - self.limit, true);
        }
        Room { bytes, taken: self.taken.clone() }
    }

    /// Room for bytes that are fetched ahead, if there is any.
    pub(super) fn try_take(&self, bytes: u64) -> Option<Room> {
        loop {
            let taken = self.taken.bytes.load(SeqCst);
            if taken + bytes <= self.limit {
                if self.taken.bytes.compare_exchange(taken, taken + bytes, SeqCst, SeqCst).is_ok() {
                    return Some(Room { bytes, taken: self.taken.clone() });
                }
            } else if !self.evict(taken + bytes - self.limit, false) {
                return None;
            }
        }
    }

    /// Keeps a run until it is evicted.
    pub(super) fn keep(&self, run: Arc<Run>) {
        self.runs.lock().push_back(run);
    }

    /// Evicts so many bytes of runs that nothing is coming for any more. Whether any was.
    fn evict(&self, bytes: u64, also_fresh: bool) -> bool {
        let mut evicted = Vec::new();
        let mut sum = 0;
        let mut runs = self.runs.lock();
        // Twice around: what is used once is not used twice.
        for _ in 0..2 * runs.len() {
            if sum >= bytes {
                break;
            }
            let Some(run) = runs.pop_front() else { break };
            let is_wanted = || {
                let is_fresh = !run.was_read.load(Relaxed) && run.born.elapsed() < FRESH;
                is_fresh && !also_fresh || run.is_used.swap(false, Relaxed)
            };
            if !run.is_done() || !run.has_failed() && is_wanted() {
                runs.push_back(run);
                continue;
            }
            sum += run.len() as u64;
            evicted.push(run);
        }
        drop(runs);
        sum > 0
    }

    /// Forgets everything that is not on its way: for tests.
    #[cfg(test)]
    pub(super) fn clear(&self) {
        self.runs.lock().retain(|run| !run.is_done());
    }
}
