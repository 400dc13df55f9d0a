//! The bytes of one block, from the moment that they are wanted.

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

/// What an entry counts against the budget, beside its bytes.
pub(super) const OVERHEAD: u64 = 256;

/// Decoded bytes that stand together, and where they begin in the block.
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

/// A block being decoded, decoded, or known to be bad; or bytes that were made of blocks, in the same states.
#[derive(Debug)]
pub(super) struct Slot {
    users: AtomicUsize,
    /// Bytes of it that were handed to a kernel which keeps them.
    served: AtomicU64,
    /// At most so many bytes are kept of a block that is too large for the cache, around where its readers are.
    window: Option<u64>,
    progress: Mutex<Progress>,
    moved: Condvar,
    /// What it takes by itself.
    _overhead: Reservation,
}

#[derive(Debug, Default)]
struct Progress {
    /// In order, without gaps.
    pieces: VecDeque<Piece>,
    end: u64,
    done: Option<Result<(), Arc<BlockError>>>,
    /// What is reserved for pieces that are still to come.
    room: Option<Reservation>,
    /// The furthest byte that a reader asked for.
    wanted: u64,
    /// The bytes for which readers wait now.
    waiting: Vec<u64>,
    /// Whether the decoder waits for readers to follow.
    is_parked: bool,
    /// Whether the slot was dropped: no reader will ask for more.
    is_given_up: bool,
}

impl Progress {
    /// Whether a byte was there and is not any more.
    fn has_passed(&self, offset: u64) -> bool {
        offset < self.pieces.front().map_or(0, |first| first.start)
    }

    fn find(&self, offset: u64) -> Option<&Piece> {
        let at = self.pieces.partition_point(|piece| piece.start <= offset).checked_sub(1)?;
        self.pieces.get(at).filter(|piece| offset < piece.end())
    }

    fn kept(&self) -> u64 {
        self.end - self.pieces.front().map_or(self.end, |first| first.start)
    }

    /// Whether the first piece is one that a reader waits for, which has only to wake up to take it.
    fn is_first_wanted(&self) -> bool {
        let Some(first) = self.pieces.front() else { return false };
        self.waiting.iter().any(|offset| (first.start..first.end()).contains(offset))
    }
}

impl Slot {
    /// A slot to be filled. Of a block that is shown through a window so many bytes are kept at most.
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

    /// One that is done.
    pub(super) fn of_bytes(budget: &Arc<Budget>, bytes: Arc<Buffer>) -> Arc<Self> {
        let slot = Self::new(budget, None);
        let mut progress = slot.progress.lock();
        (progress.end, progress.done) = (bytes.len() as u64, Some(Ok(())));
        progress.pieces.push_back(Piece { start: 0, bytes });
        drop(progress);
        slot
    }

    /// Gives it the reservation for its pieces.
    pub(super) fn set_room(&self, room: Reservation) {
        self.progress.lock().room = Some(room);
    }

    /// Takes back what was to be its bytes and can't be, with the room for it.
    pub(super) fn take_back(&self, bytes: Buffer) {
        if let (Some(room), Some(back)) = (&mut self.progress.lock().room, bytes.into_room()) {
            room.merge(back);
        }
    }

    /// Counts bytes handed out. Whether with these all of it was, of one of at least `least` bytes.
    pub(super) fn add_served(&self, bytes: u64, least: u64) -> bool {
        let served = self.served.fetch_add(bytes, Relaxed) + bytes;
        if served < least {
            return false;
        }
        let progress = self.progress.lock();
        progress.done.is_some() && served >= progress.end.max(least)
    }

    /// How many bytes were handed out.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    /// Runs the decoder and keeps its verdict. A decoder that panics is an error of this block, which its
    /// readers get.
    pub(super) fn run(&self, decode: impl FnOnce() -> Result<(), Arc<BlockError>>) {
        let verdict = catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
            Err(Arc::new(BlockError::Refused("the decoder panicked; please report this file".into())))
        });
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

    /// The room for the next piece of `size` bytes. In a window it waits for readers to follow (`parked` is called
    /// then), and lets go of what lies behind them; what they still hold of that is not room, and `reserve` gets
    /// as much beside what the slot has already (its second argument).
    ///
    /// # Errors
    /// When the block was given up meanwhile, and those of `reserve`.
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

    /// Adds the next piece, for readers to take at once.
    pub(super) fn push(&self, bytes: Buffer) {
        self.push_shared(Arc::new(bytes));
    }

    /// Adds the next piece, which others may have too.
    pub(super) fn push_shared(&self, bytes: Arc<Buffer>) {
        let mut progress = self.progress.lock();
        let start = progress.end;
        progress.end += bytes.len() as u64;
        progress.pieces.push_back(Piece { start, bytes });
        drop(progress);
        self.moved.notify_all();
    }

    /// Waits for the piece that holds the byte at `offset`. `None` if it is no longer there: then the slot was given
    /// up, and the block has to be decoded from its front again. Readers that wait for bytes further on get them first.
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
            // The decoder, and those whose bytes have passed, wait for the last of these.
            self.moved.notify_all();
        }
        found
    }

    /// As [`Self::piece`] without waiting: `None` for what is not there.
    pub(super) fn try_piece(&self, offset: u64) -> Result<Option<Piece>, Arc<BlockError>> {
        let progress = self.progress.lock();
        match (progress.find(offset), &progress.done) {
            (Some(piece), _) => Ok(Some(piece.clone())),
            (None, Some(Err(error))) => Err(error.clone()),
            (None, _) => Ok(None),
        }
    }

    /// The verdict, as far as it is known.
    pub(super) fn verdict(&self) -> Option<Result<(), Arc<BlockError>>> {
        self.progress.lock().done.clone()
    }

    /// Waits for all pieces of what was made.
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

    /// The error, if the block is known to be bad.
    pub(super) fn failure(&self) -> Result<(), Arc<BlockError>> {
        self.progress.lock().done.clone().unwrap_or(Ok(()))
    }

    /// Whether it is to be decoded again.
    pub(super) fn is_given_up(&self) -> bool {
        self.progress.lock().is_given_up
    }

    /// Whether it is decoded or known to be bad.
    pub(super) fn is_done(&self) -> bool {
        self.progress.lock().done.is_some()
    }
}

impl Entry for Arc<Slot> {
    fn users(&self) -> &AtomicUsize {
        &self.users
    }

    fn is_idle(&self) -> bool {
        let progress = self.progress.lock();
        progress.done.is_some() || progress.is_parked
    }

    fn cost(&self) -> u64 {
        let progress = self.progress.lock();
        OVERHEAD + progress.kept() + progress.room.as_ref().map_or(0, Reservation::bytes)
    }

    /// Ends a decoder that waits for readers: they begin anew.
    fn give_up(&self) {
        let mut progress = self.progress.lock();
        progress.is_given_up |= progress.done.is_none();
        drop(progress);
        self.moved.notify_all();
    }
}
