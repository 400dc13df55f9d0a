//! Bytes of the cache's budget that the work of a thread holds until it ends. A request of the same work that never fits
//! beside them is refused at once, instead of waiting for them.

use std::{cell::Cell, marker::PhantomData};

thread_local! {
    static HELD: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that work on this thread holds until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: u64,
    // It must be dropped by the thread that counts it.
    _not_send: PhantomData<*const ()>,
}

impl Held {
    /// Returns a count of some bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let mut held = Self::default();
        held.add(bytes);
        held
    }

    /// Counts more bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        HELD.set(HELD.get() + bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() - self.bytes);
    }
}

/// Returns the bytes that the work of this thread holds.
pub(crate) fn by_this_work() -> u64 {
    HELD.get()
}
