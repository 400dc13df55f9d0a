//! Which processes keep a mount busy.
//!
//! All of it comes from /proc. No file of any process is looked at, for that would ask the filesystem it lies on.

use std::{
    fs,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::cli::{
    escape,
    mounts::{self, Mount},
};

/// How long to search, and how many processes to name. A person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
const NAMED: usize = 10;

/// Returns why a mount cannot be taken down now, and what to do.
pub(in crate::cli) fn message(mount: &Mount) -> String {
    explained(mount).unwrap_or_else(|| {
        let whose = if rustix::process::geteuid().is_root() { "" } else { " (of other users only root can see)" };
        let (shown, way) = (escape::path(&mount.at), way_out(mount));
        format!("{shown}: in use by a process that can't be seen{whose}; close what is open there, {way}")
    })
}

/// Does the same, if the reason is known: mounts on it, or processes.
pub(in crate::cli) fn explained(mount: &Mount) -> Option<String> {
    let shown = escape::path(&mount.at);
    let all = mounts::all().unwrap_or_default();
    let above: Vec<String> = mounts::standing_on(mount, &all).map(|other| escape::path(&other.at)).collect();
    if !above.is_empty() {
        // Detaching is refused as well, because these would disappear with it.
        return Some(format!("{shown}: other mounts are on top of it; take them down first: {}", above.join(", ")));
    }
    let (mut users, complete) = users(mount);
    let more = if complete && users.len() <= NAMED { "" } else { " and perhaps others" };
    users.truncate(NAMED);
    let text = format!("{shown}: in use by {}{more}; close them, {}", users.join(", "), way_out(mount));
    (!users.is_empty()).then_some(text)
}

fn way_out(mount: &Mount) -> String {
    format!("or detach it with: shardfs umount --lazy {}", escape::shell_word(&mount.at))
}

/// Returns the processes that use a mount, as `name (pid)`, and whether there was time to check all.
fn users(mount: &Mount) -> (Vec<String>, bool) {
    let (found, find) = mpsc::channel();
    let mount = mount.clone();
    // Reading a process's `maps` can wait for that process, which may wait for the mount.
    thread::spawn(move || {
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let folder = process.path();
            if uses(&folder, &mount) {
                let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
                let itself = pid == std::process::id();
                let named = match itself {
                    true => "this command, which was started in it".into(),
                    false => format!("{} (pid {pid})", escape::escaped(name.trim())),
                };
                if found.send(named).is_err() {
                    return;
                }
            }
        }
    });
    let end = Instant::now() + PATIENCE;
    let mut users = Vec::new();
    while users.len() <= NAMED {
        match find.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(user) => users.push(user),
            Err(error) => return (users, error == mpsc::RecvTimeoutError::Disconnected),
        }
    }
    (users, false)
}

/// Returns whether a process has its current folder in a mount, or a file of it open or mapped.
fn uses(process: &Path, mount: &Mount) -> bool {
    let open = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    let mut open = open.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    ["cwd", "root", "exe"].iter().any(|name| leads_into(&process.join(name), mount))
        || open.any(|info| mounts::mount_id(&info) == Some(mount.id))
        || maps(process, mount.device)
}

/// Returns whether a link of /proc leads into a mount. Only then is its target looked at, in the kernel's memory.
fn leads_into(link: &Path, mount: &Mount) -> bool {
    fs::read_link(link).is_ok_and(|target| target.starts_with(&mount.at))
        && statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())
            .is_ok_and(|stat| (stat.stx_dev_major, stat.stx_dev_minor) == mount.device)
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
        let file = fs::File::open("/proc/self/exe").unwrap();
        let info = format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let id = mounts::mount_id(&fs::read_to_string(info).unwrap());
        let all = mounts::all().unwrap();
        let mount = all.iter().find(|mount| Some(mount.id) == id).unwrap();
        assert!(uses(own, mount));
        assert!(!uses(own, &Mount { id: u64::MAX, device: (4095, 4095), ..mount.clone() }));
    }
}
