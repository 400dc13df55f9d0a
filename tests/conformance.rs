//! What must hold for every format: the tree is a tree, any range is the slice of the whole, nothing hostile does more
//! than fail, every stored name is reachable.
//!
//! A new format joins by its descriptor in `tree::FORMATS`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

#[path = "conformance/ahead.rs"]
mod ahead;
#[path = "conformance/hostile.rs"]
mod hostile;
#[path = "conformance/listing.rs"]
mod listing;
#[path = "conformance/names.rs"]
mod names;
#[path = "conformance/reading.rs"]
mod reading;
#[cfg(feature = "remote")]
#[path = "conformance/remote.rs"]
mod remote;
#[path = "conformance/spill.rs"]
mod spill;
