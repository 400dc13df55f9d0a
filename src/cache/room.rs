//! Memory, reserved from the budget before it is taken.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::{BlockError, Buffer, Cache, Reservation, TooMuch, decode};
use crate::limits;

/// Gives up memory outside the cache. See [`Cache::add_last_resort`].
pub(super) type GiveUp = Arc<dyn Fn() -> Option<bool> + Send + Sync>;

impl Cache {
    /// Reserves memory before it is taken. Evicts cached entries, and waits for others to finish if there is no room.
    ///
    /// A caller must hold no other reservation, and nothing that others need to finish (a lock, a place in a pool of
    /// few threads). A caller that finds out only later how much it needs uses [`Self::reserve_more`] with the bytes
    /// that it has, and gets room even beyond the budget before all wait for each other.
    ///
    /// # Errors
    /// [`TooMuch`] for more than the budget and [`limits::BEYOND_BUDGET`], or for more than what others hold leaves of
    /// these.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, TooMuch> {
        self.reserve_more(bytes, 0)
    }

    /// Does the same as [`Self::reserve`], for a caller that has reserved `holding` bytes and needs these too before it
    /// can give them back.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_more(&self, bytes: u64, holding: u64) -> Result<Reservation, TooMuch> {
        self.budget.reserve(bytes, holding, |short| self.evict(short))
    }

    /// Runs work that reserves memory in several steps. If a later step finds no room beside what others hold, the work
    /// gives back everything and starts again.
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

    /// Takes bytes that are needed at once, such as those that a decoder reads, even beyond the budget. Never waits.
    pub(crate) fn take(&self, bytes: u64) -> Reservation {
        let room = self.budget.take(bytes);
        self.evict_surplus();
        room
    }

    /// Makes room for what never waits for it.
    pub(super) fn evict_surplus(&self) {
        let surplus = self.budget.used().saturating_sub(self.budget.total());
        if surplus > 0 {
            let evicted = self.entries.evict(surplus);
            self.counters.evictions.fetch_add(evicted as u64, Relaxed);
        }
    }

    /// Takes bytes of the budget for something outside the cache, for as long as its owner pleases. Never waits.
    pub fn hold(&self, bytes: u64) -> Reservation {
        self.budget.reserve_small(bytes)
    }

    /// Does the same as [`Self::reserve`], without waiting; `None` if there is no room.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        self.budget.try_reserve(bytes, |short| self.evict(short))
    }

    /// Evicts until about `bytes` come back. Returns whether anything was evicted.
    fn evict(&self, bytes: u64) -> bool {
        let evicted = self.entries.evict(bytes);
        self.counters.evictions.fetch_add(evicted as u64, Relaxed);
        evicted > 0 || self.give_up_kept()
    }

    /// Adds a way to give up memory outside the cache when nothing cached is left to evict. `give_up` returns whether
    /// it gave up anything, and `None` when it never will again.
    pub(crate) fn add_last_resort(&self, give_up: impl Fn() -> Option<bool> + Send + Sync + 'static) {
        self.last_resort.lock().push(Arc::new(give_up));
    }

    fn give_up_kept(&self) -> bool {
        // Called without the lock, because what is given up may be large.
        let all = self.last_resort.lock().clone();
        all.iter().any(|give_up| match give_up() {
            Some(gave_up) => gave_up,
            None => {
                self.last_resort.lock().retain(|other| !Arc::ptr_eq(other, give_up));
                false
            }
        })
    }

    /// Returns zeros, after reserving room for them. The caller has `holding` bytes already.
    ///
    /// # Errors
    /// [`BlockError::Decode`] if there is no memory.
    pub fn buffer(&self, size: u64, holding: u64) -> Result<Buffer, BlockError> {
        let room = self.reserve_more(size, holding)?;
        Ok(decode::zeroed(size)?.with_room(room))
    }
}
