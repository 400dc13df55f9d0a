//! One block in the cache, from the moment that somebody wants it.

use std::{
    collections::VecDeque,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Condvar, Mutex};

use super::{BlockError, Buffer};
use crate::memfd::MemoryFile;

/// Decoded bytes that stand together, and where they begin in the block.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Offset of the first byte in the block.
    pub start: u64,
    /// The bytes.
    pub bytes: Arc<Buffer>,
}

/// A block: being decoded, decoded, or known to be bad. Or a whole virtual file in memory, in the same states.
#[derive(Debug)]
pub struct Slot {
    /// What it counts against the budget.
    pub(super) cost: u64,
    /// Where the bytes of a file go; those of a block are pieces on the heap.
    memory: Option<Arc<MemoryFile>>,
    /// Bytes of it that were handed to a kernel which keeps them.
    handed: AtomicU64,
    /// At most so many bytes are kept of a block that is too large for the cache, around where its readers are.
    window: Option<u64>,
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// In order, without gaps.
    pieces: VecDeque<Piece>,
    end: u64,
    done: Option<Result<(), Arc<BlockError>>>,
    /// The furthest byte that a reader asked for.
    wanted: u64,
    /// Whether the decoder waits for readers to follow.
    is_parked: bool,
    /// Whether nobody will ask for more.
    is_given_up: bool,
}

impl Progress {
    /// Whether a byte was there and is not any more.
    fn has_passed(&self, offset: u64) -> bool {
        self.is_given_up || offset < self.pieces.front().map_or(0, |first| first.start)
    }

    fn find(&self, offset: u64) -> Option<&Piece> {
        let at = self.pieces.partition_point(|piece| piece.start <= offset).checked_sub(1)?;
        self.pieces.get(at).filter(|_| offset < self.end)
    }
}

impl Slot {
    pub(super) fn new(cost: u64) -> Self {
        Self {
            cost,
            memory: None,
            handed: AtomicU64::new(0),
            window: None,
            progress: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    pub(super) fn of_file(cost: u64, memory: MemoryFile) -> Self {
        Self { memory: Some(Arc::new(memory)), ..Self::new(cost) }
    }

    /// One that is done, of bytes that were made.
    pub(super) fn of_bytes(cost: u64, bytes: Arc<Buffer>) -> Self {
        let end = bytes.len() as u64;
        let pieces = VecDeque::from([Piece { start: 0, bytes }]);
        let progress = Progress { pieces, end, done: Some(Ok(())), ..Progress::default() };
        Self { progress: Mutex::new(progress), ..Self::new(cost) }
    }

    pub(super) fn of_window(cost: u64, window: u64) -> Self {
        Self { window: Some(window), ..Self::new(cost) }
    }

    /// The file in memory, if this is one.
    pub fn memory(&self) -> Option<&Arc<MemoryFile>> {
        self.memory.as_ref()
    }

    /// Counts bytes handed out; how many there were by now.
    pub(super) fn hand_out(&self, bytes: u64) -> u64 {
        self.handed.fetch_add(bytes, Relaxed) + bytes
    }

    /// Shows readers the file up to `end`.
    pub fn advance(&self, end: u64) {
        self.progress.lock().end = end;
        self.moved.notify_all();
    }

    /// Whether a file is finished and all right.
    pub fn is_whole(&self) -> bool {
        self.memory.is_some() && matches!(self.progress.lock().done, Some(Ok(())))
    }

    /// Waits until a file is finished up to `end`. Whether it is: not if it failed on the way.
    pub fn wait_for(&self, end: u64) -> bool {
        let mut progress = self.progress.lock();
        loop {
            match &progress.done {
                Some(verdict) => return verdict.is_ok(),
                None if end <= progress.end => return true,
                None => self.moved.wait(&mut progress),
            }
        }
    }

    /// Runs the decoder and keeps its verdict. A decoder that panics is an error of this block, and nobody waits for it
    /// for ever.
    pub fn run(&self, decode: impl FnOnce() -> Result<(), BlockError>) {
        let verdict = catch_unwind(AssertUnwindSafe(decode))
            .unwrap_or_else(|_| Err(BlockError::Refused("the decoder panicked; please report this file".into())));
        let mut progress = self.progress.lock();
        if verdict.is_err() {
            progress.pieces.clear();
        }
        progress.done = Some(verdict.map_err(Arc::new));
        drop(progress);
        self.moved.notify_all();
    }

    /// Adds the next piece, for readers to take at once. In a window it waits for them first (`parked` is called
    /// then), and lets go of what lies behind.
    ///
    /// # Errors
    /// When the block was given up meanwhile.
    pub(super) fn push(&self, bytes: Buffer, parked: impl Fn()) -> Result<(), BlockError> {
        let mut progress = self.progress.lock();
        if let Some(window) = self.window {
            while !progress.is_given_up && progress.end > progress.wanted.saturating_add(window / 2) {
                progress.is_parked = true;
                parked();
                self.moved.wait(&mut progress);
            }
            progress.is_parked = false;
            while progress.pieces.front().is_some_and(|first| progress.end - first.start >= window) {
                progress.pieces.pop_front();
            }
        }
        if progress.is_given_up {
            return Err(BlockError::Refused("given up for another block".into()));
        }
        let start = progress.end;
        progress.end += bytes.len() as u64;
        progress.pieces.push_back(Piece { start, bytes: Arc::new(bytes) });
        drop(progress);
        self.moved.notify_all();
        Ok(())
    }

    /// Ends a decoder that waits for readers: they begin anew.
    pub(super) fn give_up(&self) {
        self.progress.lock().is_given_up = true;
        self.moved.notify_all();
    }

    /// Waits for the piece that holds the byte at `offset`. `None` if it is no longer there.
    pub(super) fn piece(&self, offset: u64) -> Result<Option<Piece>, Arc<BlockError>> {
        let mut progress = self.progress.lock();
        loop {
            if progress.has_passed(offset) {
                return Ok(None);
            }
            if let Some(Err(error)) = &progress.done {
                return Err(error.clone());
            }
            if progress.wanted < offset {
                progress.wanted = offset;
                self.moved.notify_all();
            }
            if let Some(piece) = progress.find(offset) {
                return Ok(Some(piece.clone()));
            }
            if progress.done.is_some() {
                let reason = format!("byte {offset} is past the end of the block");
                return Err(Arc::new(BlockError::Refused(reason)));
            }
            self.moved.wait(&mut progress);
        }
    }

    /// Waits for a block that comes in one piece.
    pub(super) fn whole(&self) -> Result<Arc<Buffer>, Arc<BlockError>> {
        self.wait_done()?;
        let first = self.progress.lock().pieces.front().map(|piece| piece.bytes.clone());
        Ok(first.unwrap_or_default())
    }

    /// Waits for the verdict.
    pub(super) fn wait_done(&self) -> Result<(), Arc<BlockError>> {
        let mut progress = self.progress.lock();
        loop {
            match &progress.done {
                Some(verdict) => return verdict.clone(),
                None => self.moved.wait(&mut progress),
            }
        }
    }

    /// The error, if the block is known to be bad.
    pub(super) fn failure(&self) -> Result<(), Arc<BlockError>> {
        self.progress.lock().done.clone().unwrap_or(Ok(()))
    }

    /// Whether it is decoded or known to be bad.
    pub fn is_done(&self) -> bool {
        self.progress.lock().done.is_some()
    }

    /// Whether giving it up takes nothing from anybody who works on it.
    pub(super) fn is_idle(&self) -> bool {
        let progress = self.progress.lock();
        progress.done.is_some() || progress.is_parked
    }

    /// Whether a reader of `range` would not wait.
    pub fn is_ready(&self, range: &Range<u64>) -> bool {
        let progress = self.progress.lock();
        progress.done.is_some() || range.end <= progress.end && !progress.has_passed(range.start)
    }
}
