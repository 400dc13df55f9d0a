//! A panicking request fails with EIO; other requests are unaffected.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::vfs::Vfs;

/// Runs a request. One that panics is noted as a problem; its reply, dropped without an answer, answers EIO (fuser's
/// doing), and the thread goes on.
pub(super) fn guarded(vfs: &Vfs, request: impl FnOnce(&Vfs)) {
    // What a panic may leave half done is behind locks that it does not poison, and complete between any two statements
    // that can panic.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| request(vfs))) {
        vfs.note_panic(text(&*panic));
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
