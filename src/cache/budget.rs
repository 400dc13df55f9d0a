//! One budget in bytes: memory is reserved before it is taken.
//!
//! A [`Reservation`] gives its bytes back when it is dropped. Memory carries its reservation (`Buffer`, `FileSlot`), so a
//! block that was evicted while a reply is still being written from it still counts.
//!
//! # Why waiting ends
//!
//! Requests for room are served in the order in which they come. Owners who need more to finish what they have begun
//! (`holding` in [`Budget::reserve`]) come before all others. The first in line evicts what is cached and idle. Then
//! reserved bytes are of two kinds:
//!
//! - *in use*: their owner works and gives them back without waiting for anything but a disk or a decoder;
//! - *held*: kept for as long as a user pleases (an open file in memory), by an owner that itself waits for room, or for
//!   the few bytes that an entry of the cache is by itself.
//!
//! The first in line gets its bytes when they fit, or when all that is left is held, because waiting would then have no
//! end. So a request for a little more than the whole budget is served alone, and an owner that needs more to finish
//! gets it. All together never reserve more than [`Budget::most`]. If that much is held, an owner is refused: it gives
//! back what it holds, so that others can finish, and starts again ([`TooMuch::is_final`]). A request that holds nothing
//! goes to the end of the line, because readers behind it may be those whose open files hold the memory. It is refused
//! if nothing changes for [`PATIENCE`].
//!
//! If nothing changes for [`PATIENCE`], owners are waiting for a disk that does not answer. The first in line then gets its
//! bytes within the same bound, so that others' files can be read, or is refused after [`END_OF_PATIENCE`].

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    time::{Duration, Instant},
};

use memmap2::MmapMut;

use super::{
    buffer_pool::BufferPool,
    sync::{Arc, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering::SeqCst},
};
use crate::held;

/// How long the first in line waits if nothing changes.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this many times [`PATIENCE`] the first in line is refused.
const END_OF_PATIENCE: u32 = 6;

/// A number of bytes shared by everything that takes memory in proportion to what files hold.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    /// Most bytes that may be reserved, including those beyond the budget.
    most: u64,
    room: Mutex<Room>,
    /// Signalled when bytes come back, or when something becomes idle or held.
    changed: Condvar,
    /// Number of threads that wait for room.
    waiting: AtomicUsize,
    spares: BufferPool,
}

#[derive(Debug, Default)]
struct Room {
    /// All reserved bytes.
    used: u64,
    /// The held part of them: kept for as long as a user pleases, so no thread waits for them.
    held: u64,
    /// Threads that hold reserved bytes and need more. All other threads are served after them.
    owners: Line,
    others: Line,
    /// Counts changes, so that a thread that looked for something to evict notices those made meanwhile.
    changes: u64,
}

/// A waiting line.
#[derive(Debug, Default)]
struct Line {
    /// The ticket that is served next.
    serving: u64,
    /// The next ticket to be given out.
    next: u64,
}

impl Line {
    fn join(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn is_empty(&self) -> bool {
        self.serving == self.next
    }
}

impl Room {
    fn line(&mut self, holding: u64) -> &mut Line {
        if holding > 0 { &mut self.owners } else { &mut self.others }
    }

    fn is_first(&mut self, ticket: u64, holding: u64) -> bool {
        self.line(holding).serving == ticket && (holding > 0 || self.owners.is_empty())
    }
}

/// More memory was asked for than the budget allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    /// Bytes that were asked for, and those that the owner had already.
    pub needed: u64,
    /// The smallest budget that would allow this.
    pub least: u64,
    /// Whether it is more than the budget ever allows. Otherwise others hold too much, and another attempt may succeed.
    pub is_final: bool,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let needed = mib(self.needed);
        if self.is_final {
            write!(f, "takes {needed} MiB of memory at once: --cache-size must be {}M or more", mib(self.least))
        } else {
            write!(f, "takes {needed} MiB of memory at once, and open files hold too much of --cache-size")
        }
    }
}

impl std::error::Error for TooMuch {}

impl Budget {
    /// Returns a budget of `total` bytes. Requests that cannot wait may go beyond it, but all together never beyond
    /// `most`.
    pub fn new(total: u64, most: u64) -> Arc<Self> {
        let most = most.max(total);
        let (room, changed, waiting) = (Mutex::default(), Condvar::new(), AtomicUsize::new(0));
        Arc::new(Self { total, most, room, changed, waiting, spares: BufferPool::default() })
    }

    /// Keeps unused memory for the next buffer, as far as there is room for it beside what is reserved. `counted` bytes
    /// are still reserved for it.
    pub(super) fn keep_spare(&self, map: MmapMut, counted: u64) {
        self.spares.put(map, || self.unreserved(self.used().saturating_sub(counted)));
    }

    /// Returns kept memory of about that size, if there is some.
    pub(super) fn take_spare(&self, size: usize) -> Option<MmapMut> {
        self.spares.take(size)
    }

    fn unreserved(&self, used: u64) -> u64 {
        self.total.saturating_sub(used)
    }

    /// Returns the budget in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the reserved bytes.
    pub fn used(&self) -> u64 {
        self.room.lock().used
    }

    /// Reserves bytes, after earlier requests. `evict` evicts about the given number of cached bytes, as far as it can,
    /// and returns whether it evicted anything. `holding` is what the caller has reserved already and cannot give back
    /// before it has these bytes.
    ///
    /// # Errors
    /// [`TooMuch`]: at once for more than there can ever be beside `holding` and what the same work holds
    /// (`held.rs`), or if `holding` and what all others hold leave no room; later if what others hold does not come
    /// back.
    pub fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        holding: u64,
        evict: impl Fn(u64) -> bool,
    ) -> Result<Reservation, TooMuch> {
        debug_assert!(holding > 0 || ALONE.get() == 0, "memory in use must be held while other memory is waited for");
        // What an owner says to hold may be a part of what its work holds.
        let needed = bytes.saturating_add(holding.max(held::by_this_work()));
        let too_much = |is_final| TooMuch { needed, least: needed.saturating_sub(self.most - self.total), is_final };
        if needed > self.most {
            return Err(too_much(true));
        }
        let mut is_granted = true;
        let mut room = self.room.lock();
        let mut ticket = room.line(holding).join();
        if !room.is_first(ticket, holding) || !self.fits(&room, bytes) {
            self.waiting.fetch_add(1, SeqCst);
            room.held += holding;
            self.signal(&mut room);
            let start = Instant::now();
            let mut patience = END_OF_PATIENCE;
            // The last state in which all remaining bytes were held.
            let mut looked_at = None;
            is_granted = loop {
                if room.is_first(ticket, holding) && looked_at != Some(room.changes) {
                    if self.fits(&room, bytes) {
                        break true;
                    }
                    let (changes, short) = (room.changes, room.used.saturating_add(bytes) - self.total);
                    drop(room);
                    let evicted = evict(short);
                    room = self.room.lock();
                    if evicted || room.changes != changes {
                        continue;
                    }
                    if room.used <= room.held {
                        let fits = self.fits_beyond(&room, bytes);
                        if fits || holding > 0 || start.elapsed() > PATIENCE * END_OF_PATIENCE {
                            break fits;
                        }
                        looked_at = Some(changes);
                        room.others.serving += 1;
                        ticket = room.others.join();
                        self.changed.notify_all();
                    }
                }
                let changes = room.changes;
                let waited = self.changed.wait_for(&mut room, PATIENCE);
                if waited.timed_out() && room.changes == changes && room.is_first(ticket, holding) {
                    patience = if room.used <= room.held { 0 } else { patience - 1 };
                    let fits = self.fits_beyond(&room, bytes);
                    if fits || patience == 0 {
                        break fits;
                    }
                }
            };
            room.held -= holding;
            self.waiting.fetch_sub(1, SeqCst);
        }
        room.line(holding).serving += 1;
        self.signal(&mut room);
        if is_granted { Ok(self.grant(room, bytes, false)) } else { Err(too_much(false)) }
    }

    /// Reserves bytes only if there is room now and no other request waits. See [`Self::reserve`].
    pub fn try_reserve(self: &Arc<Self>, bytes: u64, evict: impl Fn(u64) -> bool) -> Option<Reservation> {
        loop {
            let room = self.room.lock();
            if !room.owners.is_empty() || !room.others.is_empty() || bytes > self.total {
                return None;
            }
            if self.fits(&room, bytes) {
                return Some(self.grant(room, bytes, false));
            }
            let short = room.used.saturating_add(bytes) - self.total;
            drop(room);
            if !evict(short) {
                return None;
            }
        }
    }

    /// Reserves the few bytes that an entry of the cache takes by itself, without asking whether there is room.
    /// Evicting the entry gives them back, and no thread waits for them otherwise. The next request makes room for
    /// these as well.
    pub fn reserve_small(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.grant(self.room.lock(), bytes, true)
    }

    /// Reserves bytes for which nothing waits, even beyond the budget. The next request makes room for these as well.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.grant(self.room.lock(), bytes, false)
    }

    fn grant(self: &Arc<Self>, mut room: MutexGuard<'_, Room>, bytes: u64, is_held: bool) -> Reservation {
        room.used += bytes;
        room.held += if is_held { bytes } else { 0 };
        let used = room.used;
        drop(room);
        self.spares.trim(self.unreserved(used));
        Reservation { budget: self.clone(), bytes, is_held }
    }

    /// Tells threads that wait for room that something cached became idle and can be evicted.
    pub(super) fn note_idle(&self) {
        // This load and the counters of users are sequentially consistent: either this thread sees the one that waits,
        // or that one sees that there are no users.
        if self.waiting.load(SeqCst) > 0 {
            self.signal(&mut self.room.lock());
        }
    }

    fn fits(&self, room: &Room, bytes: u64) -> bool {
        room.used.saturating_add(bytes) <= self.total
    }

    fn fits_beyond(&self, room: &Room, bytes: u64) -> bool {
        room.used.saturating_add(bytes) <= self.most
    }

    fn signal(&self, room: &mut Room) {
        room.changes += 1;
        if self.waiting.load(SeqCst) > 0 {
            self.changed.notify_all();
        }
    }
}

/// Bytes of a [`Budget`], given back on drop.
#[derive(Debug)]
#[must_use = "dropped, it gives its bytes back"]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
    is_held: bool,
}

impl Reservation {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the budget that they belong to.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Takes up to `bytes` out of it, as a reservation of their own.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes, is_held: self.is_held }
    }

    /// Adds the bytes of another one of the same budget and kind.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget) && self.is_held == other.is_held);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        drop(self.split(self.bytes.saturating_sub(bytes)));
    }

    /// Marks the bytes as held: they are kept for as long as a user pleases, and no thread waits for them any more.
    pub fn hold(&mut self) {
        if !std::mem::replace(&mut self.is_held, true) {
            let mut room = self.budget.room.lock();
            room.held += self.bytes;
            self.budget.signal(&mut room);
        }
    }
}

/// Checks in debug builds that no thread waits for itself: while a thread has memory in use, it may ask for more only
/// as its owner (`holding` in [`Budget::reserve`]).
#[derive(Debug, Default)]
pub(crate) struct Alone {
    has_memory: bool,
    // It must be dropped by the thread that counts it.
    _not_send: PhantomData<*const ()>,
}

thread_local! {
    static ALONE: Cell<usize> = const { Cell::new(0) };
}

impl Alone {
    /// Notes that the thread has memory in use.
    pub(crate) fn has_memory(&mut self) {
        if !std::mem::replace(&mut self.has_memory, true) {
            ALONE.set(ALONE.get() + 1);
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.has_memory {
            ALONE.set(ALONE.get() - 1);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut room = self.budget.room.lock();
            room.used -= self.bytes;
            if self.is_held {
                room.held -= self.bytes;
            }
            self.budget.signal(&mut room);
        }
    }
}
