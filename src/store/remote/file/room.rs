//! Memory for one run of an object's bytes, and the count of all.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;

use super::BLOCK;

/// Runs of more than this have pages of their own, as many as a block has.
const LARGE: u64 = BLOCK / 8 * 7;

/// Bytes of spare pages kept beyond the bound for the next runs. Reused memory costs no page faults, which took a fifth
/// of the time of a sequential read.
const SPARE: u64 = 8 << 20;

/// Bytes that are counted, and pages that wait for the next runs.
#[derive(Debug)]
pub(super) struct Taken {
    limit: u64,
    pub(super) bytes: AtomicU64,
    /// Pages of runs that were evicted, each as many as a block has.
    spare: Mutex<Vec<MmapMut>>,
}

impl Taken {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, bytes: AtomicU64::new(0), spare: Mutex::default() })
    }

    /// Returns the number of spare pages: for tests.
    #[cfg(test)]
    pub(super) fn spare(&self) -> u64 {
        self.spare.lock().len() as u64
    }

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
    pub(super) fn new(bytes: u64, taken: &Arc<Taken>) -> Self {
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
pub(super) fn counted(bytes: u64) -> u64 {
    if bytes > LARGE && bytes < BLOCK { BLOCK } else { bytes }
}
