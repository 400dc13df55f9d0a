//! The locks of the modules whose threads wait for each other. `tests/interleavings.rs` compiles them
//! once more, with the locks of a model checker instead of these.

pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
