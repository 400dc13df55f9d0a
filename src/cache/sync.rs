//! The locks of the cache. `tests/interleavings.rs` compiles the modules that wait for each other once more, with the locks
//! of a model checker instead of these.

pub(super) use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

pub(super) use parking_lot::{Condvar, Mutex};
