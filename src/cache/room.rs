//! Memory, reserved from the budget before it is taken.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use parking_lot::Mutex;

use super::{BlockError, Buffer, Cache, Reservation, Spill, TooMuch, decode};
use crate::{format::Block, limits, source::Source};

/// See [`Cache::add_last_resort`].
#[derive(Default)]
pub(super) struct LastResort(Mutex<Vec<GiveUp>>);

type GiveUp = Arc<dyn Fn() -> Option<bool> + Send + Sync>;

impl LastResort {
    /// What waits to be written to a disk that does not answer is given up.
    pub(super) fn of(spill: Option<&Spill>) -> Self {
        let disk = spill.map(|spill| spill.disk().clone());
        Self(Mutex::new(disk.into_iter().map(|disk| Arc::new(move || Some(disk.give_up_queue())) as GiveUp).collect()))
    }
}

impl Cache {
    /// Reserves memory before it is taken; evicts what is cached, and waits for others to finish where there is no
    /// room.
    ///
    /// A caller must hold no other reservation, nor anything that others need to finish (a lock, a place in a pool of
    /// few threads). Where it has to, because it finds out only later how much it needs, it says how many bytes it has
    /// with [`Self::reserve_more`], and gets room even beyond the budget before all wait for each other.
    ///
    /// # Errors
    /// [`TooMuch`] for more than the budget and [`limits::BEYOND_BUDGET`], or than is left of these beside what is
    /// held open.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, TooMuch> {
        self.reserve_more(bytes, 0)
    }

    /// As [`Self::reserve`], for a caller that has reserved `holding` bytes already and needs these too before it can
    /// give them back.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_more(&self, bytes: u64, holding: u64) -> Result<Reservation, TooMuch> {
        self.budget.reserve(bytes, holding, |short| self.evict(short))
    }

    /// Runs work that reserves memory in several steps: again from the start, having given back everything, where a
    /// later step finds no room beside what others hold.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn in_steps<T, E>(
        &self,
        refused: impl Fn(&E) -> Option<TooMuch>,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tries = limits::MEMORY_TRIES;
        loop {
            tries -= 1;
            let done = work();
            match done.as_ref().err().and_then(&refused) {
                // Waits until all of it has room at once.
                Some(refused) if tries > 0 && !refused.is_final => match self.reserve(refused.needed) {
                    Ok(room) => drop(room),
                    Err(_) => return done,
                },
                _ => return done,
            }
        }
    }

    /// Takes bytes of the budget for what is kept elsewhere, for as long as its owner pleases. Never waits.
    pub fn hold(&self, bytes: u64) -> Reservation {
        self.budget.reserve_small(bytes)
    }

    /// As [`Self::reserve`], or `None` where others are in the way.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        self.budget.try_reserve(bytes, |short| self.evict(short))
    }

    /// Evicts until about so many bytes come back. Whether anything was evicted.
    fn evict(&self, bytes: u64) -> bool {
        let evicted = self.entries.evict(bytes);
        self.counters.evictions.fetch_add(evicted as u64, Relaxed);
        evicted > 0 || self.give_up_kept()
    }

    /// Says how memory that others keep is given up when nothing cached is left to evict. `give_up` says whether it gave
    /// up anything, and `None` when it never will again.
    pub(crate) fn add_last_resort(&self, give_up: impl Fn() -> Option<bool> + Send + Sync + 'static) {
        self.last_resort.0.lock().push(Arc::new(give_up));
    }

    fn give_up_kept(&self) -> bool {
        // Called without the lock: what is given up may be large.
        let all = self.last_resort.0.lock().clone();
        all.iter().any(|give_up| match give_up() {
            Some(gave_up) => gave_up,
            None => {
                self.last_resort.0.lock().retain(|other| !Arc::ptr_eq(other, give_up));
                false
            }
        })
    }

    /// Zeros, for which room is reserved first, beside `holding` bytes that the caller has already.
    ///
    /// # Errors
    /// [`BlockError::Decode`] where there is no memory.
    pub fn buffer(&self, size: u64, holding: u64) -> Result<Buffer, BlockError> {
        let room = self.reserve_more(size, holding)?;
        Ok(decode::zeroed(size)?.with_room(room))
    }

    /// A DEFLATE or zlib block of any size in one piece, reserved first. Not kept.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(crate) fn inflate(&self, block: &Block, source: &dyn Source) -> Result<Buffer, BlockError> {
        let working = decode::working(block, 0);
        let mut room = self.reserve(block.size.saturating_add(working))?;
        let _working = room.split(working);
        Ok(decode::inflate(block, source)?.with_room(room))
    }
}
