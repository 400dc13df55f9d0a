//! How long operations take: sums for `stats.json`, and those that take long as lines of the log.

use std::{
    ffi::OsStr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};

use crate::vfs::Vfs;

/// An operation whose time is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Lookup,
    Stat,
    List,
    Read,
}

/// Their names, in the order of their numbers.
const NAMES: [&str; 4] = ["lookup", "stat", "list", "read"];

/// The time that operations took, in nanoseconds. An operation that has to wait is tried without waiting first, and both
/// count.
#[derive(Debug, Default)]
pub(crate) struct Latencies([Latency; NAMES.len()]);

#[derive(Debug, Default)]
struct Latency {
    all: AtomicU64,
    slowest: AtomicU64,
}

impl Latencies {
    fn add(&self, operation: Operation, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(Latency { all, slowest }) = self.0.get(operation as usize) {
            all.fetch_add(nanos, Relaxed);
            if nanos > slowest.load(Relaxed) {
                slowest.fetch_max(nanos, Relaxed);
            }
        }
    }

    /// Returns, for each operation, all its seconds and those of the slowest one.
    pub(crate) fn json(&self) -> Value {
        let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Relaxed)).as_secs_f64();
        let each = NAMES.into_iter().zip(&self.0).map(|(name, Latency { all, slowest })| {
            (name.to_owned(), json!({"seconds": seconds(all), "slowest_seconds": seconds(slowest)}))
        });
        Value::Object(each.collect::<Map<_, _>>())
    }
}

/// Times an operation until it is dropped.
pub(crate) struct Timer<'a> {
    vfs: &'a Vfs,
    operation: Operation,
    ino: u64,
    name: Option<&'a OsStr>,
    begun: Instant,
}

impl Vfs {
    /// Times one operation on a node, or on a name in it. On drop it counts the time, and logs the operation if it took
    /// longer than the limit.
    pub(crate) fn time_operation<'a>(&'a self, operation: Operation, ino: u64, name: Option<&'a OsStr>) -> Timer<'a> {
        Timer { vfs: self, operation, ino, name, begun: Instant::now() }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        self.vfs.latencies.add(self.operation, took);
        if self.vfs.options.slow.is_some_and(|limit| took >= limit) {
            let (mut path, inside) = self.vfs.path_of(self.ino);
            path.extend(inside.split('/').filter(|part| !part.is_empty()));
            path.extend(self.name);
            let (operation, seconds) = (NAMES[self.operation as usize], took.as_secs_f64());
            log::warn!("slow: {operation} of '{}' took {seconds:.3} s", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_by_operation() {
        let latencies = Latencies::default();
        for millis in [250, 500, 250] {
            latencies.add(Operation::Read, Duration::from_millis(millis));
        }
        latencies.add(Operation::Lookup, Duration::MAX);
        let json = latencies.json();
        assert_eq!(json["read"], json!({"seconds": 1.0, "slowest_seconds": 0.5}));
        assert_eq!(json["list"], json!({"seconds": 0.0, "slowest_seconds": 0.0}));
        assert!(json["lookup"]["slowest_seconds"].as_f64() > Some(1e9));
    }
}
