//! Watching SOURCE's folders, so that what changes there is seen at once and not only when the kernel's trust in a name
//! runs out (after half a second, which is all that network filesystems and folders beyond the limit have).
//!
//! A folder is watched from the moment that somebody first looks into it. Nothing here is needed for correctness.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::{OsStr, OsString},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
};

use crate::limits;

/// Events that come within this time are told together: a file that is being written makes thousands.
const GATHER: Duration = Duration::from_millis(30);

/// A name in a folder of SOURCE that came, went or changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Touched {
    /// The folder, below SOURCE.
    pub(super) folder: PathBuf,
    pub(super) name: OsString,
    /// Whether the folder's list of names changed, too.
    pub(super) listed: bool,
}

/// The watches of one mount.
#[derive(Debug)]
pub(super) struct Watcher {
    /// `None` where the kernel has no more to give: then there are no watches.
    inotify: Option<OwnedFd>,
    /// Ends a wait before anything has changed on the disk.
    woken: Option<OwnedFd>,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    by_number: HashMap<i32, PathBuf>,
    paths: HashSet<PathBuf>,
    full: bool,
}

impl Watcher {
    pub(super) fn new() -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify = inotify.map_err(|error| log::info!("changes are not watched: {error}")).ok();
        let woken = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Self { inotify, woken, watched: Mutex::default() }
    }

    /// Watches a folder from now on, if it is not and if there is room. To be called before the folder is looked at.
    pub(super) fn watch(&self, folder: &Path, full: &Path) {
        let Some(inotify) = &self.inotify else { return };
        {
            let mut watched = self.watched.lock();
            if watched.full || !watched.paths.insert(folder.to_path_buf()) {
                return;
            }
        }
        // Not under the lock: a folder of a server that does not answer holds up only who looks into it.
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let added = inotify::add_watch(inotify, full, flags);
        let mut watched = self.watched.lock();
        match added {
            Ok(number) => {
                if let Some(before) = watched.by_number.insert(number, folder.to_path_buf())
                    && before != folder
                {
                    watched.paths.remove(&before);
                }
            }
            Err(error) => {
                watched.paths.remove(folder);
                log::debug!("{}: not watched: {error}", full.display());
            }
        }
        if watched.paths.len() >= limits::WATCHES {
            log::info!("{} folders are watched for changes; others are looked at again", watched.paths.len());
            watched.full = true;
        }
    }

    /// How many folders are watched.
    pub(super) fn count(&self) -> usize {
        self.watched.lock().paths.len()
    }

    /// Ends a wait that is under way, or else the next one.
    pub(super) fn wake(&self) {
        // Fails where it is woken already.
        let _ = self.woken.as_ref().map(|woken| rustix::io::write(woken, &1u64.to_ne_bytes()));
    }

    /// What has changed, once something has; nothing after `timeout`, or when woken.
    pub(super) fn wait(&self, timeout: Duration) -> BTreeSet<Touched> {
        let mut touched = BTreeSet::new();
        let Some(woken) = &self.woken else {
            std::thread::sleep(timeout);
            return touched;
        };
        let [is_woken, is_changed] = are_readable([woken, self.inotify.as_ref().unwrap_or(woken)], timeout);
        if is_woken {
            let _ = rustix::io::read(woken, &mut [0; 8]);
            return touched;
        }
        let Some(inotify) = self.inotify.as_ref().filter(|_| is_changed) else { return touched };
        std::thread::sleep(GATHER);
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        // An error is: nothing more at the moment.
        while let Ok(event) = events.next() {
            let kind = event.events();
            let mut watched = self.watched.lock();
            if kind.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF) {
                // Gone, or under another name: looked at again, it is watched again.
                if let Some(folder) = watched.by_number.remove(&event.wd()) {
                    watched.paths.remove(&folder);
                    watched.full = false;
                    if kind.contains(ReadFlags::MOVE_SELF) {
                        let _ = inotify::remove_watch(inotify, event.wd());
                    }
                }
                continue;
            }
            let (Some(folder), Some(name)) = (watched.by_number.get(&event.wd()).cloned(), event.file_name()) else {
                continue;
            };
            let name = OsStr::from_bytes(name.to_bytes()).to_owned();
            let moved = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            let listed = kind.intersects(moved);
            if listed && kind.contains(ReadFlags::ISDIR) {
                // What was watched below this name may be elsewhere now, and something else may stand here.
                let moved = folder.join(&name);
                watched.paths.retain(|path| !path.starts_with(&moved));
                watched.full = false;
            }
            drop(watched);
            touched.insert(Touched { folder, name, listed });
        }
        touched
    }
}

/// Waits until one of two can be read; which of them can.
fn are_readable(files: [&OwnedFd; 2], timeout: Duration) -> [bool; 2] {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    let mut polled = files.map(|file| PollFd::new(file, PollFlags::IN));
    let ready = poll(&mut polled, Some(&timeout)).is_ok();
    polled.map(|polled| ready && polled.revents().contains(PollFlags::IN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_seen_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("sub")).unwrap();
        let watcher = Watcher::new();
        watcher.watch(Path::new(""), root);
        watcher.watch(Path::new(""), root);
        assert_eq!(watcher.count(), 1);
        assert!(watcher.wait(Duration::from_millis(1)).is_empty());
        for _ in 0..100 {
            std::fs::write(root.join("a"), b"x").unwrap();
        }
        let seen = watcher.wait(Duration::from_secs(5));
        assert!(seen.iter().all(|touched| touched.folder == Path::new("") && touched.name == "a"), "{seen:?}");
        assert!(seen.iter().any(|touched| touched.listed) && seen.len() <= 2, "{seen:?}");
        watcher.watch(Path::new("sub"), &root.join("sub"));
        assert_eq!(watcher.count(), 2);
        std::fs::rename(root.join("sub"), root.join("bus")).unwrap();
        watcher.wait(Duration::from_secs(5));
        assert_eq!(watcher.count(), 1);
    }
}
