//! Mounts of shardfs that stand below SOURCE: a process that serves a mount must not ask it, for only that process could
//! answer, and a mount of a mount leads back to it as well. So none of them is entered.
//!
//! Where they stand is known from the kernel's table, and what a descriptor leads to by its device number: neither asks
//! a filesystem.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, StatxFlags, statx};

/// Whether this process serves a mount.
static IS_SERVING: AtomicBool = AtomicBool::new(false);

/// The mounts of shardfs, as the kernel's table had them.
static MOUNTS: Mutex<Option<Table>> = Mutex::new(None);

struct Table {
    #[cfg(feature = "fuse")]
    watch: crate::mounts::TableWatch,
    /// Where each is, and its device number.
    all: Vec<(PathBuf, u64)>,
}

/// Says that this process serves a mount from now on.
#[cfg(feature = "fuse")]
pub(crate) fn begin() {
    IS_SERVING.store(true, Relaxed);
}

/// Whether a mount of shardfs stands at a place or below it; at any place, if `anywhere`. Only a process that serves a
/// mount has to know.
pub(super) fn may_stand_below(place: &Path, anywhere: bool) -> bool {
    let is_below = |(at, _): &(PathBuf, u64)| anywhere || at.starts_with(place);
    IS_SERVING.load(Relaxed) && with_table(|all| all.iter().any(is_below))
}

/// Whether a device number is that of a mount of shardfs.
pub(super) fn is_one(device: u64) -> bool {
    IS_SERVING.load(Relaxed) && with_table(|all| all.iter().any(|(_, other)| *other == device))
}

/// The device number of what was opened. With no attribute asked for, no filesystem is.
///
/// # Errors
/// Those of `statx(2)`.
pub(super) fn device_of(opened: impl AsFd) -> rustix::io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(opened, c"", flags, StatxFlags::empty())?;
    Ok(rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor))
}

#[cfg(feature = "fuse")]
fn with_table(ask: impl FnOnce(&[(PathBuf, u64)]) -> bool) -> bool {
    use crate::mounts::{TableWatch, all};
    let mut table = MOUNTS.lock();
    let is_known = table.as_ref().is_some_and(|table| !table.watch.has_changed());
    if !is_known {
        let Ok(watch) = TableWatch::new() else { return false };
        let ours = all().unwrap_or_default().into_iter().filter(|mount| mount.is_ours());
        let all = ours.map(|mount| (mount.at, rustix::fs::makedev(mount.device.0, mount.device.1))).collect();
        *table = Some(Table { watch, all });
    }
    table.as_ref().is_some_and(|table| ask(&table.all))
}

#[cfg(not(feature = "fuse"))]
fn with_table(ask: impl FnOnce(&[(PathBuf, u64)]) -> bool) -> bool {
    MOUNTS.lock().as_ref().is_some_and(|table| ask(&table.all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_without_asking() {
        let here = std::fs::File::open(".").unwrap();
        let device = std::os::unix::fs::MetadataExt::dev(&here.metadata().unwrap());
        assert_eq!(device_of(&here), Ok(device));
        assert!(!is_one(device));
    }
}
