//! A panicking request fails with EIO; other requests are unaffected.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::vfs::Vfs;

/// Runs a request. A panic is reported as a problem; the reply is dropped unanswered, which fuser turns into EIO, and
/// the thread goes on.
pub(super) fn guarded(vfs: &Vfs, request: impl FnOnce(&Vfs)) {
    // State behind locks is consistent between any two statements that can panic, and the locks do not poison.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| request(vfs))) {
        vfs.note_panic(text(&*panic));
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
