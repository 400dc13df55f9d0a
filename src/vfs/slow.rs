//! Operations that take long, as lines of the log.

use std::{ffi::OsStr, time::Instant};

use super::Vfs;

/// Looks at the clock when it is dropped.
pub(super) struct Watch<'a> {
    vfs: &'a Vfs,
    operation: &'static str,
    ino: u64,
    name: Option<&'a OsStr>,
    begun: Instant,
}

impl Vfs {
    /// Watches one operation on a node, or on a name in it, where somebody wants to know of slow ones.
    pub(super) fn watch<'a>(&'a self, operation: &'static str, ino: u64, name: Option<&'a OsStr>) -> Option<Watch<'a>> {
        self.options.slow.map(|_| Watch { vfs: self, operation, ino, name, begun: Instant::now() })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        if self.vfs.options.slow.is_some_and(|limit| took >= limit) {
            let (mut path, inside) = self.vfs.path_of(self.ino);
            path.extend(inside.split('/').filter(|part| !part.is_empty()));
            path.extend(self.name);
            let (operation, seconds) = (self.operation, took.as_secs_f64());
            log::warn!("slow: {operation} of '{}' took {seconds:.3} s", path.display());
        }
    }
}
