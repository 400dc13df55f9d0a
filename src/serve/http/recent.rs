//! Recently requested files by their address, so that the next request needs no look-up name by name.
//!
//! A remembered file is answered without another thread if the container's file is still at its path in the same state
//! (`openat2` with `RESOLVE_CACHED` says so without waiting) and the bytes are in memory. If either fails, the request
//! starts again with the look-up.

use std::{num::NonZeroUsize, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;

use super::files::Shown;
use crate::limits;

/// The files by address, most recent first.
pub(in crate::serve) struct Recent(Mutex<LruCache<Box<str>, Arc<Shown>>>);

impl Recent {
    pub(in crate::serve) fn new() -> Self {
        Self(Mutex::new(LruCache::new(NonZeroUsize::new(limits::RECENT_FILES).unwrap_or(NonZeroUsize::MIN))))
    }

    /// Returns the file that an address led to, if it still leads there, in the same state. Does not wait.
    pub(in crate::serve) fn get(&self, address: &str) -> Option<Arc<Shown>> {
        let file = self.0.lock().get(address).cloned();
        // If it does not, the caller's look-up, which may wait, finds what is there now.
        file.filter(|file| file.is_current())
    }

    /// Notes what an address leads to. Keeps only files inside containers, because checking one of SOURCE's own files
    /// costs as much as a look-up.
    pub(in crate::serve) fn put(&self, address: &str, file: &Arc<Shown>) {
        if address.len() <= limits::RECENT_ADDRESS && file.is_current() {
            self.0.lock().put(address.into(), file.clone());
        }
    }
}
