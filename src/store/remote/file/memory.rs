//! Memory for bytes of objects: one bound for all objects of the process.
//!
//! Bytes that a reader waits for get memory at once: the number of readers and the size of their requests bound them.
//! Bytes that are fetched ahead get memory only within the bound. Fetched bytes stay until others need the room; bytes
//! that were read and are no longer used go first. Fetched-ahead bytes are not evicted for other fetched-ahead bytes
//! before they had time to be read.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;

use super::{BLOCK, run::Run};

/// How long unread bytes that were fetched ahead are kept when others are fetched ahead.
const FRESH: Duration = Duration::from_secs(5);

/// Runs of more than this have pages of their own, as many as a block has.
const LARGE: u64 = BLOCK / 8 * 7;

/// Bytes of spare pages kept beyond the bound for the next runs. Reused memory costs no page faults, which took a fifth
/// of the time of a sequential read.
const SPARE: u64 = 8 << 20;

/// Most runs that are kept for a thread that found them in memory and reads them next.
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
    /// In the order in which they came. Eviction moves runs that are in use back to the end.
    runs: Mutex<VecDeque<Arc<Run>>>,
}

#[derive(Debug)]
struct Taken {
    limit: u64,
    bytes: AtomicU64,
    /// Pages of runs that were evicted, each as many as a block has.
    spare: Mutex<Vec<MmapMut>>,
}

impl Taken {
    /// Keeps pages for the next run, as long as all bytes stay within the bound plus [`SPARE`].
    fn keep(&self, pages: MmapMut) {
        let mut spare = self.spare.lock();
        spare.push(pages);
        let all = self.bytes.load(SeqCst).saturating_add(spare.len() as u64 * BLOCK);
        let surplus = all.saturating_sub(self.limit + SPARE).div_ceil(BLOCK);
        let left = spare.len().saturating_sub(surplus as usize);
        let freed = spare.split_off(left);
        drop(spare);
        drop(freed);
    }
}

/// Counted bytes, given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    taken: Arc<Taken>,
    /// Pages that were used before.
    spare: Option<MmapMut>,
}

impl Room {
    fn new(bytes: u64, taken: &Arc<Taken>) -> Self {
        let spare = (bytes == BLOCK).then(|| taken.spare.lock().pop()).flatten();
        Self { bytes, taken: taken.clone(), spare }
    }

    /// Returns spare pages if there are any, and otherwise an empty buffer.
    pub(super) fn buffer(&mut self) -> Space {
        match self.spare.take() {
            Some(pages) => Space::Pages { pages, length: 0 },
            None => Space::default(),
        }
    }

    /// Keeps its memory for the next one.
    pub(super) fn give_back(&mut self, space: Space) {
        // From here on its bytes are not counted.
        self.taken.bytes.fetch_sub(std::mem::take(&mut self.bytes), SeqCst);
        if let Space::Pages { pages, .. } = space {
            self.taken.keep(pages);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.bytes.fetch_sub(self.bytes, SeqCst);
        if let Some(pages) = self.spare.take() {
            self.taken.keep(pages);
        }
    }
}

/// Memory that is filled from its front. Pages can be written to a disk past the kernel's cache.
#[derive(Debug)]
pub(super) enum Space {
    Heap(Vec<u8>),
    Pages { pages: MmapMut, length: usize },
}

impl Default for Space {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Space {
    /// Adds bytes; `whole` is how many it will have in the end.
    pub(super) fn push(&mut self, bytes: &[u8], whole: usize) {
        if let Self::Heap(own) = self
            && own.capacity() == 0
        {
            let pages = (whole as u64 > LARGE && whole as u64 <= BLOCK).then(whole_block);
            *self = match pages {
                Some(Ok(pages)) => Self::Pages { pages, length: 0 },
                _ => Self::Heap(Vec::with_capacity(whole)),
            };
        }
        match self {
            Self::Heap(own) => own.extend_from_slice(bytes),
            Self::Pages { pages, length } => {
                let end = *length + bytes.len();
                pages[*length..end].copy_from_slice(bytes);
                *length = end;
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(own) => own,
            Self::Pages { pages, length } => &pages[..*length],
        }
    }
}

/// Maps pages for a whole block at once, which is cheaper than a page fault for each.
fn whole_block() -> io::Result<MmapMut> {
    MmapOptions::new().len(BLOCK as usize).populate().map_anon()
}

/// Returns the bytes that are counted for a run of `bytes` bytes.
fn counted(bytes: u64) -> u64 {
    if bytes > LARGE && bytes < BLOCK { BLOCK } else { bytes }
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        let taken = Taken { limit, bytes: AtomicU64::new(0), spare: Mutex::default() };
        Self { limit, taken: Arc::new(taken), runs: Mutex::default() }
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
    pub(super) fn keep(&self, run: Arc<Run>) {
        self.runs.lock().push_back(run);
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

/// Blocks of memory that wait for the next runs.
#[cfg(test)]
pub(super) fn spare_blocks(memory: &Memory) -> u64 {
    memory.taken.spare.lock().len() as u64
}
