//! The bytes of one block, or of one part of a far file, from the moment that they are wanted.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{
    BlockError, Buffer,
    budget::{Budget, Reservation},
    entries::Entry,
    sync::{Arc, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering::Relaxed},
};

/// Bytes that an entry counts against the budget in addition to its contents.
pub(super) const OVERHEAD: u64 = 256;

/// Contiguous decoded bytes, and their offset in the block.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Offset of the first byte in the block.
    pub start: u64,
    /// The bytes.
    pub bytes: Arc<Buffer>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// A block that is being decoded, is decoded, or is known to be bad; or bytes that are computed or fetched, in the same
/// states.
#[derive(Debug)]
pub(crate) struct Slot {
    users: AtomicUsize,
    /// Bytes of it that were served to a kernel, which keeps them.
    served: AtomicU64,
    /// Most bytes that are kept around its readers, for a block that is too large for the cache.
    window: Option<u64>,
    progress: Mutex<Progress>,
    moved: Condvar,
    /// Counts the slot itself.
    _overhead: Reservation,
}

#[derive(Debug, Default)]
struct Progress {
    /// In order and without gaps.
    pieces: VecDeque<Piece>,
    end: u64,
    /// Bytes that come in order: the memory for all of them, and how many are there.
    growing: Option<(Buffer, usize)>,
    done: Option<Result<(), Arc<BlockError>>>,
    /// Reserved for pieces that are still to come.
    room: Option<Reservation>,
    /// The highest offset that a reader asked for.
    wanted: u64,
    /// The offsets for which readers wait now.
    waiting: Vec<u64>,
    /// Whether the decoder waits for readers to follow.
    is_parked: bool,
    /// Whether the slot was dropped, so that no reader will ask for more.
    is_given_up: bool,
}

impl Progress {
    /// Returns whether a byte was there and is gone.
    fn has_passed(&self, offset: u64) -> bool {
        offset < self.pieces.front().map_or(0, |first| first.start)
    }

    fn find(&self, offset: u64) -> Option<&Piece> {
        let at = self.pieces.partition_point(|piece| piece.start <= offset).checked_sub(1)?;
        self.pieces.get(at).filter(|piece| offset < piece.end())
    }

    fn kept(&self) -> u64 {
        let growing = self.growing.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
        self.end - self.pieces.front().map_or(self.end, |first| first.start) + growing
    }

    /// Returns the bytes of growing memory that are there.
    fn came(&self) -> Option<&[u8]> {
        self.growing.as_ref().and_then(|(bytes, length)| bytes.get(..*length))
    }

    /// Returns whether a reader waits for the first piece, and has only to wake up to take it.
    fn is_first_wanted(&self) -> bool {
        let Some(first) = self.pieces.front() else { return false };
        self.waiting.iter().any(|offset| (first.start..first.end()).contains(offset))
    }
}

impl Slot {
    /// Returns a slot to be filled. `window` is the most bytes that are kept of a block that is shown through a window.
    pub(super) fn new(budget: &Arc<Budget>, window: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            users: AtomicUsize::new(0),
            served: AtomicU64::new(0),
            window,
            progress: Mutex::default(),
            moved: Condvar::new(),
            _overhead: budget.reserve_small(OVERHEAD),
        })
    }

    /// Returns a slot that is done.
    pub(super) fn of_bytes(budget: &Arc<Budget>, bytes: Arc<Buffer>) -> Arc<Self> {
        let slot = Self::new(budget, None);
        slot.push_shared(bytes);
        slot.progress.lock().done = Some(Ok(()));
        slot
    }

    /// Returns a slot of bytes that come in order into memory for all of them ([`Self::add`]). Readers take what is there
    /// by [`Self::copy`].
    pub(super) fn growing(budget: &Arc<Budget>, bytes: Buffer) -> Arc<Self> {
        let slot = Self::new(budget, None);
        slot.progress.lock().growing = Some((bytes, 0));
        slot
    }

    /// Adds bytes that came, as far as there is memory for them. Returns how many it took.
    pub(crate) fn add(&self, bytes: &[u8]) -> usize {
        let mut guard = self.progress.lock();
        let progress = &mut *guard;
        let Some((all, length)) = &mut progress.growing else { return 0 };
        let Some(rest) = all.get_mut(*length..) else { return 0 };
        let taken = bytes.len().min(rest.len());
        rest[..taken].copy_from_slice(&bytes[..taken]);
        *length += taken;
        let (came, is_whole) = (*length as u64, *length == all.len());
        if is_whole
            && progress.done.is_none()
            && let Some((all, _)) = progress.growing.take()
        {
            (progress.end, progress.done) = (came, Some(Ok(())));
            progress.pieces.push_back(Piece { start: 0, bytes: Arc::new(all) });
        }
        // Bytes come in pieces of some KiB, and a reader wants up to 1 MiB, so it is not woken for each piece.
        let wakes = progress.waiting.iter().any(|&offset| offset < came);
        drop(guard);
        if wakes {
            self.moved.notify_all();
        }
        taken
    }

    /// Notes that no more bytes will come. Those that came can still be read.
    pub(super) fn fail(&self, error: Arc<BlockError>) {
        self.progress.lock().done.get_or_insert(Err(error));
        self.moved.notify_all();
    }

    /// Copies bytes from `at` on. Waits until they have come.
    ///
    /// # Errors
    /// Why they do not come.
    pub(crate) fn copy(&self, at: usize, out: &mut [u8]) -> Result<(), Arc<BlockError>> {
        let range = at..at.saturating_add(out.len());
        let Some(last) = (range.end as u64).checked_sub(1).filter(|_| !out.is_empty()) else { return Ok(()) };
        let (mut progress, mut has_waited) = (self.progress.lock(), false);
        let found = loop {
            if let Some(piece) = progress.pieces.front() {
                break Ok(Some(piece.bytes.clone()));
            }
            if let Some(bytes) = progress.came().and_then(|bytes| bytes.get(range.clone())) {
                out.copy_from_slice(bytes);
                break Ok(None);
            }
            if let Some(Err(error)) = &progress.done {
                break Err(error.clone());
            }
            if !std::mem::replace(&mut has_waited, true) {
                progress.waiting.push(last);
            }
            self.moved.wait(&mut progress);
        };
        if has_waited && let Some(at) = progress.waiting.iter().position(|&waiting| waiting == last) {
            progress.waiting.swap_remove(at);
        }
        drop(progress);
        let Some(whole) = found? else { return Ok(()) };
        let bytes = whole.get(range).ok_or_else(|| BlockError::Refused(format!("byte {last} is past the end")))?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    /// Returns whether the bytes before `end` are there.
    pub(crate) fn has_come(&self, end: usize) -> bool {
        let progress = self.progress.lock();
        matches!(progress.done, Some(Ok(()))) || progress.came().is_some_and(|bytes| end <= bytes.len())
    }

    /// Returns all bytes, if they are there.
    pub(crate) fn whole(&self) -> Option<Arc<Buffer>> {
        self.progress.lock().pieces.front().map(|piece| piece.bytes.clone())
    }

    /// Sets the reservation for its pieces.
    pub(super) fn set_room(&self, room: Reservation) {
        self.progress.lock().room = Some(room);
    }

    /// Counts served bytes. Returns whether all of the block has now been served, if it has at least `least` bytes.
    pub(super) fn add_served(&self, bytes: u64, least: u64) -> bool {
        let served = self.served.fetch_add(bytes, Relaxed) + bytes;
        if served < least {
            return false;
        }
        let progress = self.progress.lock();
        progress.done.is_some() && served >= progress.end.max(least)
    }

    /// Returns how many bytes were served.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    /// Runs the decoder and keeps its verdict. If the decoder panics, that is an error of this block, which its readers
    /// get.
    pub(super) fn run(&self, decode: impl FnOnce() -> Result<(), Arc<BlockError>>) {
        let verdict = catch_unwind(AssertUnwindSafe(decode))
            .unwrap_or_else(|_| Err(Arc::new(BlockError::Refused("the decoder panicked; report this file".into()))));
        let mut progress = self.progress.lock();
        if verdict.is_err() {
            progress.pieces.clear();
        }
        progress.done = Some(verdict);
        progress.is_parked = false;
        progress.room = None;
        drop(progress);
        self.moved.notify_all();
    }

    /// Returns room for the next piece of `size` bytes. A window first waits for readers to follow (`parked` is called
    /// then), and drops what is behind them. What they still hold of it is no room; `reserve` gets as much in addition
    /// to what the slot has (its second argument).
    ///
    /// # Errors
    /// If the block was given up meanwhile, and the errors of `reserve`.
    pub(super) fn room_for(
        &self,
        size: u64,
        parked: impl Fn(),
        reserve: impl FnOnce(u64, u64) -> Result<Reservation, BlockError>,
    ) -> Result<Reservation, BlockError> {
        let mut progress = self.progress.lock();
        if let Some(window) = self.window {
            while !progress.is_given_up && progress.end > progress.wanted.saturating_add(window / 2) {
                progress.is_parked = true;
                parked();
                self.moved.wait(&mut progress);
            }
            progress.is_parked = false;
            while !progress.is_given_up && progress.kept() + size > window {
                if progress.is_first_wanted() {
                    self.moved.wait(&mut progress);
                } else {
                    let bytes = progress.pieces.pop_front().and_then(|first| Arc::into_inner(first.bytes));
                    if let (Some(room), Some(back)) = (&mut progress.room, bytes.and_then(Buffer::into_room)) {
                        room.merge(back);
                    }
                }
            }
        }
        if progress.is_given_up {
            return Err(BlockError::Refused("given up for another block".into()));
        }
        let kept = progress.kept();
        let Some(own) = &mut progress.room else { return reserve(size, kept) };
        let mut room = own.split(size);
        let (missing, holding) = (size - room.bytes(), kept + own.bytes() + room.bytes());
        drop(progress);
        if missing > 0 {
            room.merge(reserve(missing, holding)?);
        }
        Ok(room)
    }

    /// Adds the next piece; readers can take it at once.
    pub(super) fn push(&self, bytes: Buffer) {
        self.push_shared(Arc::new(bytes));
    }

    /// Adds the next piece, which others may hold too.
    pub(super) fn push_shared(&self, bytes: Arc<Buffer>) {
        let mut progress = self.progress.lock();
        let start = progress.end;
        progress.end += bytes.len() as u64;
        progress.pieces.push_back(Piece { start, bytes });
        drop(progress);
        self.moved.notify_all();
    }

    /// Waits for the piece that holds the byte at `offset`. `None` if it is gone: then the slot was given up, and the
    /// block has to be decoded from its front again. Readers that wait for later bytes get them first.
    pub(super) fn piece(&self, offset: u64) -> Result<Option<Piece>, Arc<BlockError>> {
        let mut progress = self.progress.lock();
        progress.waiting.push(offset);
        let found = loop {
            if progress.wanted < offset {
                progress.wanted = offset;
                self.moved.notify_all();
            }
            if let Some(piece) = progress.find(offset) {
                break Ok(Some(piece.clone()));
            }
            if progress.is_given_up {
                break Ok(None);
            }
            if let Some(Err(error)) = &progress.done {
                break Err(error.clone());
            }
            if progress.has_passed(offset) {
                if progress.done.is_some() || progress.waiting.iter().all(|&offset| progress.has_passed(offset)) {
                    progress.is_given_up = true;
                    break Ok(None);
                }
                self.moved.wait(&mut progress);
                continue;
            }
            if progress.done.is_some() {
                let reason = format!("byte {offset} is past the end of the block");
                break Err(Arc::new(BlockError::Refused(reason)));
            }
            self.moved.wait(&mut progress);
        };
        if let Some(at) = progress.waiting.iter().position(|&waiting| waiting == offset) {
            progress.waiting.swap_remove(at);
        }
        drop(progress);
        if self.window.is_some() {
            // The decoder waits for the last of these readers, and so do readers whose bytes have passed.
            self.moved.notify_all();
        }
        found
    }

    /// Does the same as [`Self::piece`] without waiting; `None` for what is not there.
    pub(super) fn try_piece(&self, offset: u64) -> Result<Option<Piece>, Arc<BlockError>> {
        let progress = self.progress.lock();
        match (progress.find(offset), &progress.done) {
            (Some(piece), _) => Ok(Some(piece.clone())),
            (None, Some(Err(error))) => Err(error.clone()),
            (None, _) => Ok(None),
        }
    }

    /// Returns the verdict, if it is known.
    pub(super) fn verdict(&self) -> Option<Result<(), Arc<BlockError>>> {
        self.progress.lock().done.clone()
    }

    /// Waits for all pieces of computed bytes.
    pub(super) fn parts(&self) -> Result<Vec<Arc<Buffer>>, Arc<BlockError>> {
        self.wait_done()?;
        Ok(self.progress.lock().pieces.iter().map(|piece| piece.bytes.clone()).collect())
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

    /// Fails if the block is known to be bad.
    pub(crate) fn failure(&self) -> Result<(), Arc<BlockError>> {
        self.progress.lock().done.clone().unwrap_or(Ok(()))
    }

    /// Returns whether it has to be decoded again.
    pub(super) fn is_given_up(&self) -> bool {
        self.progress.lock().is_given_up
    }
}

impl Entry for Arc<Slot> {
    fn users(&self) -> Option<&AtomicUsize> {
        Some(&self.users)
    }

    fn is_idle(&self) -> bool {
        let progress = self.progress.lock();
        progress.done.is_some() || progress.is_parked
    }

    fn cost(&self) -> u64 {
        let progress = self.progress.lock();
        OVERHEAD + progress.kept() + progress.room.as_ref().map_or(0, Reservation::bytes)
    }

    /// Ends a decoder that waits for readers. The readers start again.
    fn give_up(&self) {
        let mut progress = self.progress.lock();
        progress.is_given_up |= progress.done.is_none();
        drop(progress);
        self.moved.notify_all();
    }
}
