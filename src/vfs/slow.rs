//! Operations that take long, as lines of the log.

use std::{ffi::OsStr, time::Instant};

use super::Vfs;

/// Times an operation until it is dropped.
pub(super) struct Timer<'a> {
    vfs: &'a Vfs,
    operation: &'static str,
    ino: u64,
    name: Option<&'a OsStr>,
    begun: Instant,
}

impl Vfs {
    /// Times one operation on a node, or on a name in it. On drop it logs the operation if it took longer than the
    /// limit.
    pub(super) fn time_operation<'a>(
        &'a self,
        operation: &'static str,
        ino: u64,
        name: Option<&'a OsStr>,
    ) -> Option<Timer<'a>> {
        self.options.slow.map(|_| Timer { vfs: self, operation, ino, name, begun: Instant::now() })
    }
}

impl Drop for Timer<'_> {
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
