//! Mounts that lead back to this process. It must not ask a mount that it serves, because only it could answer, nor a
//! mount of shardfs whose source lies on such a mount. So it enters none of them.
//!
//! Where they stand is known from the kernel's table, and what a descriptor leads to by its device number: neither asks
//! a filesystem.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

#[cfg(feature = "fuse")]
use parking_lot::Mutex;
use rustix::fs::{AtFlags, StatxFlags, statx};

#[cfg(feature = "fuse")]
use crate::mounts::OfTable;

/// What this process serves, and what leads back to it.
#[cfg(feature = "fuse")]
static OWN: Mutex<Own> = Mutex::new(Own { served: Vec::new(), leading: OfTable::new() });

#[cfg(feature = "fuse")]
struct Own {
    /// Device numbers of the mounts that this process serves.
    served: Vec<u64>,
    /// The mounts that lead back: where each is, and its device number.
    leading: OfTable<Vec<(PathBuf, u64)>>,
}

/// Records that this process serves the mount at a place, until the result is dropped. Asks no filesystem.
///
/// # Errors
/// If the place cannot be opened.
#[cfg(feature = "fuse")]
pub(crate) fn serve(mountpoint: &Path) -> std::io::Result<Served> {
    use rustix::fs::{Mode, OFlags};
    let root = rustix::fs::open(mountpoint, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let device = device_of(&root)?;
    let mut own = OWN.lock();
    own.served.push(device);
    own.leading = OfTable::new();
    Ok(Served(device))
}

/// A mount that this process serves.
#[cfg(feature = "fuse")]
pub(crate) struct Served(u64);

#[cfg(feature = "fuse")]
impl Drop for Served {
    fn drop(&mut self) {
        let mut own = OWN.lock();
        if let Some(at) = own.served.iter().position(|device| *device == self.0) {
            own.served.swap_remove(at);
        }
        own.leading = OfTable::new();
    }
}

/// Returns whether a mount that leads back is at a place or below it; at any place, if `anywhere`.
pub(super) fn may_stand_below(place: &Path, anywhere: bool) -> bool {
    with_table(|all| all.iter().any(|(at, _)| anywhere || at.starts_with(place)))
}

/// Returns whether a device number is that of a mount that leads back.
pub(super) fn is_one(device: u64) -> bool {
    with_table(|all| all.iter().any(|(_, other)| *other == device))
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
    let Own { served, leading } = &mut *OWN.lock();
    !served.is_empty() && leading.now(|mounts| leading_back(&mounts, served.clone())).is_some_and(|all| ask(all))
}

#[cfg(not(feature = "fuse"))]
fn with_table(_: impl FnOnce(&[(PathBuf, u64)]) -> bool) -> bool {
    false
}

/// The mounts of shardfs with one of these device numbers, and those whose source lies on such a mount, in any number
/// of steps: where each is, and its device number.
#[cfg(feature = "fuse")]
fn leading_back(mounts: &[crate::mounts::Mount], mut devices: Vec<u64>) -> Vec<(PathBuf, u64)> {
    let device_of = |mount: &crate::mounts::Mount| rustix::fs::makedev(mount.device.0, mount.device.1);
    let ours = || mounts.iter().filter(|mount| mount.is_ours());
    let leads = |mount: &crate::mounts::Mount, devices: &[u64]| {
        // Of mounts at one place the last one is seen.
        let below = mounts.iter().filter(|below| is_below(&mount.source, &below.at));
        let below = below.max_by_key(|below| below.at.as_os_str().len());
        !devices.contains(&device_of(mount)) && below.is_some_and(|below| devices.contains(&device_of(below)))
    };
    while let Some(mount) = ours().find(|mount| leads(mount, &devices)) {
        devices.push(device_of(mount));
    }
    let leading = ours().filter(|mount| devices.contains(&device_of(mount)));
    leading.map(|mount| (mount.at.clone(), device_of(mount))).collect()
}

/// Whether a source, as the kernel's table names it, is at a place or below it. Characters that mount options cannot
/// hold are `?` in that name.
#[cfg(feature = "fuse")]
fn is_below(source: &Path, place: &Path) -> bool {
    let (source, place) = (source.as_os_str().as_encoded_bytes(), place.as_os_str().as_encoded_bytes());
    let place = place.strip_suffix(b"/").unwrap_or(place);
    let is_front = source.len() >= place.len()
        && source.iter().zip(place).all(|(source, place)| source == place || *source == b'?');
    is_front && source.get(place.len()).is_none_or(|next| *next == b'/')
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

    #[cfg(feature = "fuse")]
    #[test]
    fn mounts_lead_back_in_any_number_of_steps() {
        let mount = |minor: u32, at: &str, kind: &str, source: &str| crate::mounts::Mount {
            id: u64::from(minor),
            parent: 1,
            device: (0, minor),
            at: at.into(),
            kind: kind.into(),
            source: source.into(),
            user: Some(0),
        };
        let ours = crate::mounts::KIND;
        let mounts = [
            mount(1, "/", "ext4", "/dev/vda"),
            mount(10, "/a", ours, "/src"),
            // Its source is the first mount, and that of the next one lies in it.
            mount(11, "/b,c", ours, "/a"),
            mount(12, "/src/d", ours, "/b?c/folder"),
            mount(13, "/src/other", ours, "/data"),
            mount(14, "/e", ours, "/ab"),
            // It hides the first one at its place.
            mount(15, "/a/x", "tmpfs", "none"),
            mount(16, "/f", ours, "/a/x/y"),
        ];
        let found = leading_back(&mounts, vec![rustix::fs::makedev(0, 10)]);
        let at: Vec<_> = found.iter().map(|(at, _)| at.to_str().unwrap()).collect();
        assert_eq!(at, ["/a", "/b,c", "/src/d"]);
        assert!(
            is_below(Path::new("/anything"), Path::new("/")) && !is_below(Path::new("s3://bucket"), Path::new("/"))
        );
    }
}
