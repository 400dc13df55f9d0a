//! Values of any type that were parsed or computed from files: under keys of the cache, counted in its budget, and evicted
//! like blocks. Those of a container are forgotten when it is closed.

use std::{
    any::Any,
    collections::{BTreeMap, btree_map},
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use parking_lot::Mutex;

use super::{Cache, Cached, Key, OVERHEAD, Reservation, Tag, entries::Entry};
use crate::limits;

/// Bytes that a value counts against the budget in addition to what it says.
const VALUE: u64 = OVERHEAD + 128;

/// Fewest values that may keep a file open.
const FEWEST_OPEN: usize = 8;

/// The values of each container, so that closing one does not look at all entries.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// Two threads can make the value of one key at once, so each is counted.
    of_containers: Mutex<BTreeMap<Key, usize>>,
    /// Number of values that keep a file open.
    open: AtomicUsize,
}

type Value = Arc<dyn Any + Send + Sync>;

/// What the cache has of a value: its type is known to those who ask for it.
#[derive(Debug)]
pub(super) struct AnyParsed {
    value: Value,
    room: Mutex<Reservation>,
    key: Key,
    is_open: bool,
    values: Arc<Values>,
}

impl AnyParsed {
    fn new(key: Key, value: Value, room: Reservation, is_open: bool, values: &Arc<Values>) -> Self {
        if key.container().is_some() {
            *values.of_containers.lock().entry(key).or_default() += 1;
        }
        if is_open {
            values.open.fetch_add(1, SeqCst);
        }
        Self { value, room: Mutex::new(room), key, is_open, values: values.clone() }
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.value.clone().downcast().ok()
    }

    /// Returns whether nobody but the cache holds it.
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        // Both are cloned under the lock that is held here, or by those who hold a clone already.
        Arc::strong_count(self) == 1 && Arc::strong_count(&self.value) == 1
    }

    /// Returns the bytes reserved for it.
    pub(super) fn cost(&self) -> u64 {
        self.room.lock().bytes()
    }
}

impl Drop for AnyParsed {
    fn drop(&mut self) {
        if self.is_open {
            self.values.open.fetch_sub(1, SeqCst);
        }
        if let btree_map::Entry::Occupied(mut count) = self.values.of_containers.lock().entry(self.key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Cache {
    /// Returns the value of a key, if it is kept.
    pub fn parsed<T: Send + Sync + 'static>(&self, key: Key) -> Option<Arc<T>> {
        match self.entries.get(&key)? {
            Cached::Parsed(parsed) => parsed.get(),
            Cached::Bytes(_) | Cached::File(_) => None,
        }
    }

    /// Returns whether a value is kept, which does not count as use.
    pub fn is_parsed(&self, key: Key) -> bool {
        self.entries.peek(&key, |_| ()).is_some()
    }

    /// Keeps a value until its room is needed and nobody holds it. `room` is what it takes. If another thread kept one
    /// first, that one is returned. The value must not hold this cache, because it would never be freed.
    pub fn keep_parsed<T: Send + Sync + 'static>(&self, key: Key, value: T, room: Reservation) -> Arc<T> {
        self.put_parsed(key, Arc::new(value), room, false)
    }

    /// Does the same for a value that has an `Arc` already.
    pub fn keep_shared<T: Send + Sync + 'static>(&self, key: Key, value: Arc<T>, room: Reservation) -> Arc<T> {
        self.put_parsed(key, value, room, false)
    }

    /// Does the same for a value that keeps a file open. Of these, only a part of the process's descriptors are kept.
    pub fn keep_open<T: Send + Sync + 'static>(&self, key: Key, value: T, room: Reservation) -> Arc<T> {
        let most = (limits::memory_files() / 4).max(FEWEST_OPEN);
        let is_open =
            |_: &Key, entry: &Cached| matches!(entry, Cached::Parsed(parsed) if parsed.is_open && parsed.is_idle());
        while self.values.open.load(SeqCst) >= most && self.entries.remove_oldest(is_open) {
            self.counters.evictions.fetch_add(1, Relaxed);
        }
        self.put_parsed(key, Arc::new(value), room, true)
    }

    fn put_parsed<T: Send + Sync + 'static>(
        &self,
        key: Key,
        parsed: Arc<T>,
        mut room: Reservation,
        is_open: bool,
    ) -> Arc<T> {
        // No thread waits for it: evicting the entry gives it back.
        room.hold();
        room.merge(self.budget.reserve_small(VALUE));
        let entry = AnyParsed::new(key, parsed.clone(), room, is_open, &self.values);
        self.evict_surplus();
        match self.entries.get_or_put(key, Cached::Parsed(Arc::new(entry))) {
            Cached::Parsed(kept) => kept.get().unwrap_or(parsed),
            // Unreachable: tags tell values from blocks.
            Cached::Bytes(_) | Cached::File(_) => parsed,
        }
    }

    /// Returns the value of a key, and makes it if it is not kept. Of two threads that make it at once, both get the first
    /// result.
    ///
    /// # Errors
    /// Those of `make`, which returns the value with the room that it takes.
    pub fn parsed_or_make<T: Send + Sync + 'static, E>(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<(T, Reservation), E>,
    ) -> Result<Arc<T>, E> {
        if let Some(known) = self.parsed(key) {
            return Ok(known);
        }
        let (value, room) = make()?;
        Ok(self.keep_parsed(key, value, room))
    }

    /// Returns a small value of a key, which is made in an instant: `T::default()` at first. It takes about `bytes`.
    pub fn parsed_default<T: Default + Send + Sync + 'static>(&self, key: Key, bytes: u64) -> Arc<T> {
        self.parsed(key).unwrap_or_else(|| self.keep_parsed(key, T::default(), self.hold(bytes)))
    }

    /// Counts more bytes for a value that takes more memory while it is used. Never waits.
    pub fn grow_parsed(&self, key: Key, bytes: u64) {
        if let Some(Cached::Parsed(parsed)) = self.entries.get(&key) {
            parsed.room.lock().merge(self.hold(bytes));
        }
    }

    /// Forgets the value of a key.
    pub fn forget_parsed(&self, key: Key) {
        self.entries.remove(&key, |entry| matches!(entry, Cached::Parsed(_)));
    }

    /// Forgets the values of a container that is closed, except those in use. Blocks stay: they are found when the same
    /// state is opened again.
    pub fn forget_values(&self, container: u64) {
        let values = self.values.of_containers.lock();
        let after = values.range(Key::new(container, Tag::FIRST, 0, 0)..).map(|(key, _)| *key);
        let keys: Vec<_> = after.take_while(|key| key.container() == Some(container)).collect();
        drop(values);
        keys.iter().for_each(|key| self.entries.remove(key, Entry::is_idle));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cache::{Tag, Verify};

    fn key(container: u64, a: u64) -> Key {
        Key::new(container, Tag::Parsed(0), a, 0)
    }

    #[test]
    fn the_first_value_is_kept_and_counts() {
        let cache = Cache::new(1 << 20, Verify::Lazy);
        let first = cache.keep_parsed(key(1, 1), String::from("first"), cache.hold(1000));
        let second = cache.keep_parsed(key(1, 1), String::from("second"), cache.hold(1000));
        assert_eq!((first.as_str(), second.as_str()), ("first", "first"));
        assert_eq!(cache.usage().1, 1000 + VALUE);
        assert!(cache.parsed::<u32>(key(1, 1)).is_none(), "of another type");
        drop((first, second));
        let made = cache.parsed_or_make::<String, _>(key(1, 1), || Err("it is known"));
        assert!(made.is_ok_and(|made| made.as_str() == "first"));
        cache.forget_parsed(key(1, 1));
        assert_eq!(cache.usage().1, 0);
        let failed = cache.parsed_or_make::<String, _>(key(1, 1), || Err("the disk failed"));
        assert!(failed.is_err());
    }

    #[test]
    fn values_give_way_to_others_unless_they_are_used() {
        let cache = Cache::new(1 << 20, Verify::Lazy);
        let used = cache.keep_parsed(key(1, 0), 0u64, cache.hold(100_000));
        for number in 1..100 {
            cache.keep_parsed(key(1, number), number, cache.reserve(100_000).unwrap());
        }
        assert!(cache.usage().1 <= 1 << 20);
        let known = (0..100).filter(|number| cache.parsed::<u64>(key(1, *number)).is_some()).count();
        assert!((5..=11).contains(&known), "{known}");
        assert_eq!(*used, 0);
        assert!(cache.parsed::<u64>(key(1, 0)).is_some() && cache.parsed::<u64>(key(1, 99)).is_some());
    }

    #[test]
    fn values_that_do_not_wait_for_room_give_way_too() {
        let cache = Cache::new(1 << 20, Verify::Lazy);
        for number in 0..100 {
            cache.keep_parsed(key(1, number), number, cache.hold(100_000));
            assert!(cache.usage().1 <= (1 << 20) + 200_000, "{}", cache.usage().1);
        }
        assert!(cache.parsed::<u64>(key(1, 99)).is_some() && cache.parsed::<u64>(key(1, 0)).is_none());
    }

    #[test]
    fn a_closed_container_leaves_no_values_and_few_files_stay_open() {
        let cache = Cache::new(64 << 20, Verify::Lazy);
        let most = (limits::memory_files() / 4).max(FEWEST_OPEN);
        for number in 0..3 * most as u64 {
            cache.keep_open(key(number % 2, number), number, cache.hold(0));
            assert!(cache.values.open.load(SeqCst) <= most);
        }
        cache.keep_parsed(Key::named("kind", b"name"), 7u8, cache.hold(0));
        cache.forget_values(0);
        let left: HashSet<_> = cache.values.of_containers.lock().keys().map(|key| key.container()).collect();
        assert_eq!(left, HashSet::from([Some(1)]));
        cache.forget_values(1);
        cache.forget_values(2);
        assert!(cache.values.of_containers.lock().is_empty() && cache.values.open.load(SeqCst) == 0);
        assert!(cache.parsed::<u8>(Key::named("kind", b"name")).is_some());
        assert!(cache.parsed::<u8>(Key::named("kin", b"dname")).is_none());
        assert_eq!(cache.usage().1, VALUE);
    }
}
