//! The parts of the cache that wait for each other, under a scheduler that tries many orders of their steps
//! (<https://docs.rs/shuttle>): no lost wake-up, no deadlock, no block decoded twice, the budget held.
//!
//! These modules are compiled here once more, with the scheduler's locks in place of ordinary ones. A test
//! that hangs in some order is reported as a deadlock, with a seed that repeats it.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "modules of the library, of which a part is used")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

#[path = "../src/cache/budget.rs"]
mod budget;
#[path = "../src/cache/buffer_pool.rs"]
mod buffer_pool;
#[path = "../src/cache/entries.rs"]
mod entries;
#[path = "../src/held.rs"]
mod held;
#[path = "../src/single_flight.rs"]
mod single_flight;
#[path = "../src/cache/slot.rs"]
mod slot;

/// In place of `src/sync.rs`.
mod sync {
    use std::{
        ops::{Deref, DerefMut},
        sync::PoisonError,
    };

    pub use std::sync::Arc;

    pub use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    pub struct Waited;

    impl Waited {
        pub fn timed_out(&self) -> bool {
            false
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
        }

        /// Time does not pass here: what waits for ever is a deadlock.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: std::time::Duration) -> Waited {
            self.wait(guard);
            Waited
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use std::sync::Arc;

use shuttle::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};

use budget::{Budget, Reservation, TooMuch};
use entries::Entries;
use single_flight::SingleFlight;
use slot::{OVERHEAD, Slot};

/// In place of the cache's error.
#[derive(Debug)]
pub enum BlockError {
    Refused(String),
}

impl From<TooMuch> for BlockError {
    fn from(error: TooMuch) -> Self {
        Self::Refused(error.to_string())
    }
}

/// In place of the cache's memory.
#[derive(Debug, Default)]
pub struct Buffer(Vec<u8>, Option<Reservation>);

impl Buffer {
    fn into_room(self) -> Option<Reservation> {
        self.1
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A cache whose blocks have [`SIZE`] bytes, all of them the block's number.
struct Cache {
    budget: Arc<Budget>,
    entries: Entries<u8, Arc<Slot>>,
    decoded: AtomicUsize,
}

const SIZE: u64 = 1000;
const COST: u64 = SIZE + OVERHEAD;

impl Cache {
    fn new(total: u64) -> Arc<Self> {
        let budget = Budget::new(total, u64::MAX);
        Arc::new(Self { entries: Entries::new(budget.clone()), budget, decoded: AtomicUsize::new(0) })
    }

    fn reserve(&self, bytes: u64, holding: u64) -> Reservation {
        self.budget.reserve(bytes, holding, |short| self.entries.evict(short) > 0).unwrap()
    }

    /// As `Cache::slot` fills a slot, and `Cache::piece` takes from it.
    fn read(&self, number: u8, decode: impl Fn() -> Result<(), BlockError>) -> Result<u8, Arc<BlockError>> {
        loop {
            let (slot, is_new) = self.entries.acquire(number, || Slot::new(&self.budget, None));
            if is_new {
                slot.set_room(self.reserve(SIZE, 0));
                run(&slot, || {
                    self.decoded.fetch_add(1, SeqCst);
                    decode()?;
                    let room = slot.room_for(SIZE, || (), |_, _| panic!("it was reserved"))?;
                    slot.push(Buffer(vec![number; SIZE as usize], Some(room)));
                    Ok(())
                });
                self.budget.note_idle();
            }
            if let Some(piece) = slot.piece(SIZE - 1)? {
                // Those who wait for room have no more than their entries.
                assert!(self.budget.used() <= self.budget.total() + 4 * OVERHEAD);
                return Ok(piece.bytes[0]);
            }
            self.entries.remove(&number, |entry| Arc::ptr_eq(entry, &slot));
        }
    }
}

impl Cache {
    /// What a reader holds of a block.
    fn room_of(&self, number: u8) -> Reservation {
        self.read(number, || Ok(())).unwrap();
        self.reserve(SIZE, 0)
    }
}

fn run(slot: &Slot, decode: impl FnOnce() -> Result<(), BlockError>) {
    slot.run(|| decode().map_err(Arc::new));
}

/// Runs threads to their end.
fn together(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn try_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(test.clone(), 3000);
    shuttle::check_pct(test, 1000, 3);
}

#[test]
fn a_block_is_decoded_once_and_stays_until_its_readers_have_it() {
    // Room for one block: each of these reads costs one decode all the same.
    try_orders(|| {
        let cache = Cache::new(COST);
        let read = |number: u8| -> Box<dyn FnOnce() + Send> {
            let cache = cache.clone();
            Box::new(move || assert_eq!(cache.read(number, || Ok(())).unwrap(), number))
        };
        together((0..3).map(read).collect());
        assert_eq!(cache.decoded.load(SeqCst), 3);
        // Room for all of them: readers of one block share it.
        let cache = Cache::new(2 * COST);
        let read = |reader: u8| -> Box<dyn FnOnce() + Send> {
            let cache = cache.clone();
            Box::new(move || assert_eq!(cache.read(reader % 2, || Ok(())).unwrap(), reader % 2))
        };
        together((0..4).map(read).collect());
        assert_eq!(cache.decoded.load(SeqCst), 2);
    });
}

#[test]
fn errors_and_panics_reach_everybody_who_waits_and_give_the_room_back() {
    try_orders(|| {
        let cache = Cache::new(2 * COST);
        let read = |reader: u8| -> Box<dyn FnOnce() + Send> {
            let cache = cache.clone();
            let decode = move || match reader % 3 {
                0 => Ok(()),
                1 => Err(BlockError::Refused("bad".into())),
                // As a panic, without its message.
                _ => std::panic::resume_unwind(Box::new("worse")),
            };
            Box::new(move || assert_eq!(cache.read(reader % 3, decode).is_ok(), reader.is_multiple_of(3)))
        };
        together((0..5).map(read).collect());
        assert!(cache.decoded.load(SeqCst) >= 3);
        while cache.entries.evict(u64::MAX) > 0 {}
        assert_eq!(cache.budget.used(), 0);
    });
}

#[test]
fn more_than_the_budget_goes_alone() {
    try_orders(|| {
        let cache = Cache::new(10);
        let beyond = Arc::new(AtomicUsize::new(0));
        let reserve = |bytes: u64| -> Box<dyn FnOnce() + Send> {
            let (cache, beyond) = (cache.clone(), beyond.clone());
            Box::new(move || {
                let room = cache.reserve(bytes, 0);
                if bytes > 10 {
                    assert_eq!(beyond.fetch_add(1, SeqCst), 0);
                    thread::yield_now();
                    assert_eq!(cache.budget.used(), bytes);
                    beyond.fetch_sub(1, SeqCst);
                }
                drop(room);
            })
        };
        together([4, 20, 7, 30].map(reserve).into());
        assert_eq!(cache.budget.used(), 0);
    });
}

#[test]
fn owners_who_need_more_to_finish_never_wait_for_each_other() {
    try_orders(|| {
        let cache = Cache::new(10);
        let grow = |_| -> Box<dyn FnOnce() + Send> {
            let cache = cache.clone();
            Box::new(move || {
                let first = cache.reserve(5, 0);
                // A verdict, for which a growing file waits, waits for nothing.
                drop(cache.budget.reserve_small(1));
                let more = cache.reserve(4, 5);
                // One of them at a time is beyond the budget, and verdicts.
                assert!(cache.budget.used() <= 14 + 1);
                drop((first, more));
            })
        };
        together((0..3).map(grow).collect());
        assert_eq!(cache.budget.used(), 0);
        // An open file is not waited for either.
        let mut open = cache.reserve(10, 0);
        let held = cache.clone();
        let wants = thread::spawn(move || drop(held.reserve(3, 0)));
        open.hold();
        wants.join().unwrap();
    });
}

#[test]
fn readers_whose_open_files_hold_the_memory_go_first() {
    try_orders(|| {
        // No more than 14 bytes together: 8 wait for two files to be closed, after each of which its reader needs one.
        let budget = Budget::new(10, 14);
        let reserve = |budget: &Arc<Budget>, bytes| budget.reserve(bytes, 0, |_| false).unwrap();
        let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..2 {
            let mut open = reserve(&budget, 5);
            open.hold();
            let (closes, waits) = (budget.clone(), budget.clone());
            threads.push(Box::new(move || drop((reserve(&closes, 1), open))));
            threads.push(Box::new(move || drop(reserve(&waits, 8))));
        }
        together(threads);
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn an_index_is_made_of_a_block_that_fills_the_budget() {
    try_orders(|| {
        let cache = Cache::new(COST);
        let read = |number: u8| -> Box<dyn FnOnce() + Send> {
            let cache = cache.clone();
            Box::new(move || {
                let block = cache.room_of(number);
                let index = Slot::new(&cache.budget, None);
                run(&index, || {
                    index.push(Buffer(Vec::new(), Some(cache.reserve(SIZE / 2, block.bytes()))));
                    Ok(())
                });
                // One index at a time is beyond the budget.
                assert!(cache.budget.used() <= SIZE * 3 / 2 + 8 * OVERHEAD, "{}", cache.budget.used());
            })
        };
        together((0..3).map(read).collect());
        while cache.entries.evict(u64::MAX) > 0 {}
        assert_eq!(cache.budget.used(), 0);
    });
}

/// Pieces of a block that is shown through a window of `WINDOW` bytes.
const PIECES: u64 = 8;
const PIECE: u64 = 10;
const WINDOW: u64 = 40;

#[test]
fn readers_at_different_places_of_a_window_all_come_to_their_end() {
    shuttle::check_random(
        || {
            let cache = Cache::new(WINDOW + OVERHEAD);
            let read = |places: Vec<u64>| -> Box<dyn FnOnce() + Send> {
                let cache = cache.clone();
                Box::new(move || places.into_iter().for_each(|place| read_window(&cache, place)))
            };
            together(vec![read(vec![0, 1, 7]), read(vec![7]), read(vec![3, 0])]);
            // A decoder that waits for further readers ends when it is evicted.
            while cache.budget.used() > 0 {
                cache.entries.evict(u64::MAX);
                thread::yield_now();
            }
        },
        2000,
    );
}

fn read_window(cache: &Arc<Cache>, place: u64) {
    loop {
        let (slot, is_new) = cache.entries.acquire(0, || Slot::new(&cache.budget, Some(WINDOW)));
        if is_new {
            slot.set_room(cache.reserve(WINDOW, 0));
            let (cache, slot) = (cache.clone(), Arc::clone(&slot));
            thread::spawn(move || {
                run(&slot, || {
                    for number in 0..PIECES {
                        let more = |bytes, holding| Ok(cache.reserve(bytes, holding));
                        let room = slot.room_for(PIECE, || cache.budget.note_idle(), more)?;
                        slot.push(Buffer(vec![number as u8; PIECE as usize], Some(room)));
                    }
                    Ok(())
                });
                cache.budget.note_idle();
            });
        }
        if let Some(piece) = slot.piece(place * PIECE + 5).unwrap() {
            assert_eq!((piece.start, u64::from(piece.bytes[0])), (place * PIECE, place));
            return;
        }
        cache.entries.remove(&0, |entry| Arc::ptr_eq(entry, &slot));
    }
}

/// A slot of eight fetched bytes in a cache that has no room beside them, and a thread that waits for all of its room.
fn fetched() -> (Arc<Slot>, Arc<Cache>, Box<dyn FnOnce() + Send>) {
    let cache = Cache::new(OVERHEAD + 8);
    let slot = Slot::growing(&cache.budget, Buffer(vec![0; 8], Some(cache.budget.take(8))));
    cache.entries.put(0, slot.clone());
    let waiting = cache.clone();
    (slot, cache, Box::new(move || drop(waiting.reserve(OVERHEAD + 8, 0))))
}

#[test]
fn fetched_bytes_reach_each_reader_as_they_come() {
    fetched_bytes_reach_readers(true);
}

#[test]
fn fetched_bytes_alone_wake_their_readers() {
    // Who waits for the room wakes readers, too.
    fetched_bytes_reach_readers(false);
}

fn fetched_bytes_reach_readers(is_room_wanted: bool) {
    try_orders(move || {
        let (slot, cache, waiting) = fetched();
        let read = |at: usize, length: usize| -> Box<dyn FnOnce() + Send> {
            let slot = slot.clone();
            Box::new(move || {
                let mut bytes = vec![0; length];
                slot.copy(at, &mut bytes).unwrap();
                assert!(bytes.iter().zip(at..).all(|(byte, at)| usize::from(*byte) == at));
            })
        };
        let (filled, budget) = (slot.clone(), cache.budget.clone());
        let fill: Box<dyn FnOnce() + Send> = Box::new(move || {
            assert_eq!((filled.add(&[0, 1, 2]), filled.add(&[3]), filled.add(&[4, 5, 6, 7, 8, 9])), (3, 1, 4));
            budget.note_idle();
        });
        let mut threads = vec![read(0, 2), read(2, 6), fill];
        threads.extend(Some(waiting).filter(|_| is_room_wanted));
        drop(slot);
        together(threads);
        assert_eq!(cache.budget.used() == 0, is_room_wanted);
    });
}

#[test]
fn readers_of_bytes_that_do_not_come_are_told() {
    try_orders(|| {
        let (slot, cache, waiting) = fetched();
        let read = |at: usize, comes: bool| -> Box<dyn FnOnce() + Send> {
            let slot = slot.clone();
            Box::new(move || assert_eq!(slot.copy(at, &mut [0, 0]).is_ok(), comes))
        };
        let (failed, budget) = (slot.clone(), cache.budget.clone());
        let fail: Box<dyn FnOnce() + Send> = Box::new(move || {
            failed.add(&[0, 1, 2]);
            failed.fail(Arc::new(BlockError::Refused("no answer".into())));
            budget.note_idle();
        });
        let threads = vec![read(2, false), read(6, false), fail, waiting];
        drop(slot);
        together(threads);
    });
}

#[test]
fn one_thread_computes_a_value_and_all_have_it() {
    try_orders(|| {
        let (flight, count) = (Arc::new(SingleFlight::default()), Arc::new(AtomicUsize::new(0)));
        let get = |flight: Arc<SingleFlight<usize>>, count: Arc<AtomicUsize>| {
            let value = flight.get_or_try_init(|| {
                assert!(flight.get().is_none(), "no lock is held meanwhile");
                thread::yield_now();
                Ok::<_, ()>(count.fetch_add(1, SeqCst) + 7)
            });
            assert_eq!(value, Ok(7));
        };
        let threads = (0..3).map(|_| {
            let (flight, count) = (flight.clone(), count.clone());
            Box::new(move || get(flight, count)) as Box<dyn FnOnce() + Send>
        });
        together(threads.collect());
        flight.set(1);
        assert_eq!((count.load(SeqCst), flight.get()), (1, Some(7)));
    });
}

#[test]
fn after_a_failure_or_a_panic_the_next_thread_computes() {
    try_orders(|| {
        let flight = Arc::new(SingleFlight::default());
        let outcomes: [fn() -> Result<u32, &'static str>; 3] =
            [|| Err("the disk failed"), || panic!("a bug"), || Ok(5)];
        let threads = outcomes.map(|outcome| {
            let flight = flight.clone();
            let work = move || {
                let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| flight.get_or_try_init(outcome)));
                assert!(matches!(got, Err(_) | Ok(Ok(5) | Err("the disk failed"))));
            };
            Box::new(work) as Box<dyn FnOnce() + Send>
        });
        together(threads.into());
        assert_eq!(flight.get(), Some(5));
    });
}

#[test]
fn a_thread_whose_reader_is_gone_does_not_wait_for_a_value() {
    try_orders(|| {
        let flight = Arc::new(SingleFlight::default());
        let computing = flight.clone();
        let killed = move || flight.get_or_try_init_while(|| Err("killed"), || Ok(3));
        together(vec![
            Box::new(move || assert_eq!(computing.get_or_try_init(|| Ok::<_, ()>(3)), Ok(3))),
            Box::new(move || assert!(matches!(killed(), Ok(3) | Err("killed")))),
        ]);
    });
}
