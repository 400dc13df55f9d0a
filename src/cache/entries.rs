//! Cached entries, least recently used first, and how many operations use each.
//!
//! An entry is inserted before it is filled. The thread that inserts it fills it, and later threads wait for that
//! (*single flight*). An entry in use is not evicted, so the threads that wait for it get it.

use std::{hash::Hash, ops::Deref};

use lru::LruCache;

use super::{
    budget::Budget,
    sync::{Arc, AtomicUsize, Mutex, Ordering::SeqCst},
};

/// Something in the cache. Clones share one state.
pub(super) trait Entry: Clone {
    /// Number of operations that wait for it or take something from it. `None` for what is idle only if nobody holds it.
    fn users(&self) -> Option<&AtomicUsize>;

    /// Whether evicting it interrupts no work. Users are counted separately.
    fn is_idle(&self) -> bool;

    /// Bytes that come back when it is evicted, about.
    fn cost(&self) -> u64;

    /// Called when it was evicted or removed.
    fn give_up(&self);
}

/// An entry in use.
#[derive(Debug)]
pub(super) struct InUse<E: Entry> {
    entry: E,
    budget: Arc<Budget>,
}

impl<E: Entry> Deref for InUse<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.entry
    }
}

impl<E: Entry> Drop for InUse<E> {
    fn drop(&mut self) {
        if self.entry.users().is_some_and(|users| users.fetch_sub(1, SeqCst) == 1) {
            self.budget.note_idle();
        }
    }
}

/// Everything that is cached or being made.
#[derive(Debug)]
pub(super) struct Entries<K: Hash + Eq, E: Entry> {
    budget: Arc<Budget>,
    lru: Mutex<LruCache<K, E>>,
}

impl<K: Copy + Hash + Eq, E: Entry> Entries<K, E> {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, lru: Mutex::new(LruCache::unbounded()) }
    }

    /// Returns the entry of a key, and whether it is new, so that the caller must fill it.
    pub(super) fn acquire(&self, key: K, new: impl FnOnce() -> E) -> (InUse<E>, bool) {
        let mut lru = self.lru.lock();
        let (entry, is_new) = match lru.get(&key) {
            Some(entry) => (entry.clone(), false),
            None => {
                let entry = new();
                lru.put(key, entry.clone());
                (entry, true)
            }
        };
        (self.in_use(entry), is_new)
    }

    /// Called under the lock, so that what is evicted has no users and gets none.
    fn in_use(&self, entry: E) -> InUse<E> {
        if let Some(users) = entry.users() {
            users.fetch_add(1, SeqCst);
        }
        InUse { entry, budget: self.budget.clone() }
    }

    /// Looks at an entry without marking it as used.
    pub(super) fn peek<T>(&self, key: &K, look: impl FnOnce(&E) -> T) -> Option<T> {
        self.lru.lock().peek(key).map(look)
    }

    /// Returns an entry in use, if it exists.
    pub(super) fn find(&self, key: &K) -> Option<InUse<E>> {
        let mut lru = self.lru.lock();
        lru.get(key).map(|entry| self.in_use(entry.clone()))
    }

    /// Makes an entry the next to be evicted, if `is_meant` accepts it.
    pub(super) fn demote(&self, key: &K, is_meant: impl FnOnce(&E) -> bool) {
        let mut lru = self.lru.lock();
        if lru.peek(key).is_some_and(is_meant) {
            lru.demote(key);
        }
    }

    /// Returns an entry and marks it as used.
    pub(super) fn get(&self, key: &K) -> Option<E> {
        self.lru.lock().get(key).cloned()
    }

    /// Inserts an entry and replaces an existing one.
    pub(super) fn put(&self, key: K, entry: E) {
        let replaced = self.lru.lock().put(key, entry);
        if let Some(replaced) = replaced {
            replaced.give_up();
        }
    }

    /// Inserts an entry unless there is one. Returns the one that is there then.
    pub(super) fn get_or_put(&self, key: K, entry: E) -> E {
        self.lru.lock().get_or_insert(key, || entry).clone()
    }

    /// Removes an entry, if `is_meant` accepts it.
    pub(super) fn remove(&self, key: &K, is_meant: impl FnOnce(&E) -> bool) {
        let mut lru = self.lru.lock();
        let removed = if lru.peek(key).is_some_and(is_meant) { lru.pop(key) } else { None };
        drop(lru);
        if let Some(removed) = removed {
            removed.give_up();
        }
    }

    /// Removes the least recently used entry that `is_meant` accepts. Returns whether there was one.
    pub(super) fn remove_oldest(&self, is_meant: impl Fn(&K, &E) -> bool) -> bool {
        let oldest =
            |lru: &LruCache<K, E>| lru.iter().rev().find(|(key, entry)| is_meant(key, entry)).map(|(key, _)| *key);
        self.take_out(|lru| oldest(lru).into_iter().collect()) > 0
    }

    /// Removes the idle entries whose keys `is_meant` accepts.
    pub(super) fn remove_idle(&self, is_meant: impl Fn(&K) -> bool) {
        let is_meant = |(key, entry): &(&K, &E)| is_meant(key) && entry.is_idle();
        self.take_out(|lru| lru.iter().filter(is_meant).map(|(key, _)| *key).collect());
    }

    /// Removes the entries that `choose` finds. Returns how many.
    fn take_out(&self, choose: impl FnOnce(&LruCache<K, E>) -> Vec<K>) -> usize {
        let mut lru = self.lru.lock();
        let keys = choose(&lru);
        let removed: Vec<E> = keys.iter().filter_map(|key| lru.pop(key)).collect();
        drop(lru);
        removed.iter().for_each(Entry::give_up);
        removed.len()
    }

    /// Returns the bytes of the entries whose keys `is_meant` accepts.
    pub(super) fn cost(&self, is_meant: impl Fn(&K) -> bool) -> u64 {
        self.lru.lock().iter().filter(|(key, _)| is_meant(key)).map(|(_, entry)| entry.cost()).sum()
    }

    /// Evicts the least recently used idle entries until about `bytes` come back. Returns how many it evicted.
    pub(super) fn evict(&self, bytes: u64) -> usize {
        self.take_out(|lru| {
            let (mut keys, mut freed) = (Vec::new(), 0);
            for (key, entry) in lru.iter().rev() {
                if freed >= bytes {
                    break;
                }
                if entry.users().is_none_or(|users| users.load(SeqCst) == 0) && entry.is_idle() {
                    keys.push(*key);
                    freed += entry.cost();
                }
            }
            keys
        })
    }
}
