//! What a reader should be told of how a container is read: no damage, and no failure of the read.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;

/// Most notices that wait to be taken.
const MOST: usize = 64;

/// Notices by the number of their container in the cache.
#[derive(Debug, Default)]
pub struct Notices {
    are_there: AtomicBool,
    waiting: Mutex<HashMap<u64, String>>,
}

impl Notices {
    /// Adds a notice about a container. The last one of each container counts.
    pub fn add(&self, container: u64, notice: String) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MOST || waiting.contains_key(&container) {
            waiting.insert(container, notice);
            self.are_there.store(true, Relaxed);
        }
    }

    /// Returns the notice about a container, once.
    pub fn take(&self, container: u64) -> Option<String> {
        if !self.are_there.load(Relaxed) {
            return None;
        }
        let mut waiting = self.waiting.lock();
        let notice = waiting.remove(&container);
        self.are_there.store(!waiting.is_empty(), Relaxed);
        notice
    }
}
