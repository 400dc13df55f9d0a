//! Virtual files in memory, which the kernel serves by itself once they are finished.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{
    BlockError,
    budget::Reservation,
    sync::{Arc, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering::Relaxed},
};
use crate::memfd::MemoryFile;

/// A file in memory: growing, finished, or failed.
#[derive(Debug)]
pub struct FileSlot {
    memory: MemoryFile,
    progress: Mutex<Progress>,
    moved: Condvar,
    // Declared after the memory, so that the memory is freed first.
    room: Mutex<Reservation>,
    cost: u64,
    count: Arc<FileCount>,
}

/// How many files in memory there are, and their bytes.
#[derive(Debug, Default)]
pub(super) struct FileCount {
    pub(super) files: AtomicUsize,
    pub(super) bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Progress {
    end: u64,
    /// Whether it is finished and right; `None` until then.
    done: Option<bool>,
}

impl FileSlot {
    pub(super) fn new(memory: MemoryFile, room: Reservation, count: Arc<FileCount>) -> Self {
        let (progress, moved) = (Mutex::default(), Condvar::new());
        let cost = room.bytes();
        count.files.fetch_add(1, Relaxed);
        count.bytes.fetch_add(cost, Relaxed);
        Self { memory, progress, moved, room: Mutex::new(room), cost, count }
    }

    /// The memory.
    pub fn memory(&self) -> &MemoryFile {
        &self.memory
    }

    /// Returns the bytes reserved for it.
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// Fills the file. A panic meanwhile counts as a failure, and waiting readers are woken.
    pub fn run(&self, fill: impl FnOnce() -> Result<(), BlockError>) {
        let is_good = matches!(catch_unwind(AssertUnwindSafe(fill)), Ok(Ok(())));
        self.progress.lock().done = Some(is_good);
        self.moved.notify_all();
        // It may be open for as long as a user pleases, so no request waits for its room.
        self.room.lock().hold();
    }

    /// Shows the file to readers up to `end`.
    pub fn advance(&self, end: u64) {
        self.progress.lock().end = end;
        self.moved.notify_all();
    }

    /// Returns whether it is finished and right.
    pub fn is_whole(&self) -> bool {
        self.progress.lock().done == Some(true)
    }

    /// Returns whether it is finished or has failed.
    pub(super) fn is_done(&self) -> bool {
        self.progress.lock().done.is_some()
    }

    /// Returns whether a reader of `range` would not have to wait.
    pub fn is_ready(&self, range: &Range<u64>) -> bool {
        let progress = self.progress.lock();
        progress.done.is_some() || range.end <= progress.end
    }

    /// Waits until the file is finished up to `end`. Returns `false` if it failed before.
    pub fn wait_for(&self, end: u64) -> bool {
        let mut progress = self.progress.lock();
        loop {
            match progress.done {
                Some(is_good) => return is_good,
                None if end <= progress.end => return true,
                None => self.moved.wait(&mut progress),
            }
        }
    }
}

impl Drop for FileSlot {
    fn drop(&mut self) {
        self.count.files.fetch_sub(1, Relaxed);
        self.count.bytes.fetch_sub(self.cost, Relaxed);
    }
}
