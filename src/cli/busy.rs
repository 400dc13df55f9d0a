//! Who keeps a mount busy.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::mounts::{self, Mount};

/// How long to look, and how many to name: the answer is for a person who waits.
const PATIENCE: Duration = Duration::from_secs(2);
const NAMED: usize = 10;

/// Why a mount point can't be taken down now, and what to do.
pub(super) fn message(mountpoint: &Path) -> String {
    let shown = mountpoint.display();
    let remedy = format!("or detach it with: shardfs umount --lazy {shown}");
    let Ok(Some(mount)) = mounts::at(mountpoint) else {
        return format!("{shown}: in use; close what is open there, {remedy}");
    };
    let (mut users, complete) = users(&mount);
    users.extend(mounts_below(mountpoint));
    if users.is_empty() {
        let whose = if rustix::process::geteuid().is_root() { "" } else { " (of other users only root can see)" };
        return format!("{shown}: in use by a process that can't be seen{whose}; close what is open there, {remedy}");
    }
    let more = if complete && users.len() <= NAMED { "" } else { " and perhaps others" };
    users.truncate(NAMED);
    format!("{shown}: in use by {}{more}; close them, {remedy}", users.join(", "))
}

/// Runs something for each place, also after one has failed; the errors but the last are printed.
///
/// # Errors
/// The last that failed.
pub(super) fn each(places: &[PathBuf], mut run: impl FnMut(&PathBuf) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut failed = Ok(());
    for place in places {
        if let Err(error) = run(place)
            && let Err(before) = std::mem::replace(&mut failed, Err(error))
        {
            super::complain(&before);
        }
    }
    failed
}

/// Mounts that stand on a folder of this one.
fn mounts_below(mountpoint: &Path) -> Vec<String> {
    let below = |mount: &Mount| mount.at != mountpoint && mount.at.starts_with(mountpoint);
    let all = mounts::all().unwrap_or_default();
    all.iter().filter(|mount| below(mount)).map(|mount| format!("the mount {}", mount.at.display())).collect()
}

/// The processes that use a mount, as `name (pid)`, and whether there was time to look at all.
fn users(mount: &Mount) -> (Vec<String>, bool) {
    let end = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if Instant::now() > end {
            return (found, false);
        }
        let folder = process.path();
        if uses(&folder, mount.device, end) {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            let itself = pid == std::process::id();
            found.push(match itself {
                true => "this command, which was started in it".into(),
                false => format!("{} (pid {pid})", name.trim().escape_debug()),
            });
            if found.len() > NAMED {
                return (found, false);
            }
        }
    }
    (found, true)
}

/// Whether a process stands in a mount, has a file of it open, or one mapped.
fn uses(process: &Path, device: (u32, u32), end: Instant) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let places = ["cwd", "root", "exe"].map(|name| process.join(name)).into_iter();
    let mut in_time = places.chain(open).take_while(|_| Instant::now() < end);
    in_time.any(|link| device_of(&link) == Some(device)) || maps(process, device)
}

/// The device that a link of /proc leads to, from what the kernel has in memory: the mount is not asked, and so
/// can't keep us waiting.
fn device_of(link: &Path) -> Option<(u32, u32)> {
    let stat = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Lines of `maps`: `from-to flags offset major:minor inode path`, numbers in base 16.
fn maps(process: &Path, (major, minor): (u32, u32)) -> bool {
    let device = format!("{major:02x}:{minor:02x}");
    let Ok(maps) = fs::read(process.join("maps")) else { return false };
    let device_of = |line: &[u8]| line.split(|&byte| byte == b' ').nth(3).map(|field| field == device.as_bytes());
    maps.split(|&byte| byte == b'\n').any(|line| device_of(line) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_its_own_files() {
        let own = Path::new("/proc/self");
        let device = device_of(&own.join("exe")).unwrap();
        let end = Instant::now() + PATIENCE;
        assert!(uses(own, device, end));
        assert!(maps(own, device));
        assert!(!uses(own, (4095, 4095), end));
    }

    #[test]
    fn all_places_are_tried() {
        let mut tried = 0;
        let done = each(&["a".into(), "b".into()], |place| {
            tried += 1;
            anyhow::bail!("{}", place.display())
        });
        assert_eq!((tried, done.unwrap_err().to_string()), (2, "b".into()));
    }
}
