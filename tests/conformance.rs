//! What must hold for every format: the tree is a tree, any range is the slice of the whole, nothing hostile does more
//! than fail, every stored name is reachable.
//!
//! A new format joins by its descriptor in `tree::FORMATS`. The toy formats of `tests/toys` are added to the process.
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
mod toys;

use std::path::{Path, PathBuf};

/// All folders of [`common::sources`], and one with a container of each toy format, which the process then knows.
fn sources() -> Vec<(&'static str, PathBuf)> {
    toys::add();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toys");
    static WRITTEN: std::sync::Once = std::sync::Once::new();
    WRITTEN.call_once(|| toys::write(&folder).unwrap());
    [common::sources(), vec![("toys", folder)]].concat()
}

/// The same but the golden Zarr stores, of which some are larger than any memory (`tests/golden_zarr.rs` reads what can
/// be read of them). The examples have stores, too.
fn readable_sources() -> Vec<(&'static str, PathBuf)> {
    sources().into_iter().filter(|(_, folder)| !folder.ends_with("zarr")).collect()
}
