//! Watches folders by inotify, so that changes are seen at once, and not only when the kernel asks for a name again.
//! (That is after half a second. Network filesystems, and folders beyond the limit, have only that.)

use std::{
    collections::{BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
};

use crate::limits;

/// Pause after events were reported, because a file that is being written causes thousands.
const GATHER: Duration = Duration::from_millis(30);

/// How often setting up a watch is repeated if the folder was moved meanwhile.
const TRIES: usize = 4;

/// Whether a folder's changes are announced. Cheap to clone. It turns false when the watch is lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch(Arc<AtomicBool>);

impl Watch {
    /// Returns whether changes in the folder are announced.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn set(&self, is_alive: bool) {
        self.0.store(is_alive, Relaxed);
    }
}

/// A name in a watched folder that came, went or changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirEvent {
    /// The folder, below the top of the store.
    pub(crate) folder: PathBuf,
    pub(crate) name: OsString,
    /// Whether a listing of the folder may differ now: other names, or another kind for one of them.
    pub(crate) listed: bool,
}

/// What has changed since the last wait.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) events: BTreeSet<DirEvent>,
    /// Folders whose changes are no longer announced. They and everything below may have changed.
    pub(crate) lost: Vec<PathBuf>,
    /// Whether the kernel dropped events, so that everything may have changed.
    pub(crate) overflowed: bool,
}

/// The watches of one store. By default there are none.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    /// `None` if the kernel gave none; then nothing is watched.
    inotify: Option<OwnedFd>,
    /// Ends a wait before anything changes on the disk.
    woken: Option<OwnedFd>,
    watched: Mutex<Watched>,
    /// When events were last reported.
    reported: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Watched {
    by_number: HashMap<i32, PathBuf>,
    by_path: HashMap<PathBuf, Watch>,
    full: bool,
}

impl Watched {
    /// Forgets folders. The layers above then see them as not watched.
    fn lose(&mut self, is_lost: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let lost = self.by_path.extract_if(|path, _| is_lost(path)).inspect(|(_, watch)| watch.set(false));
        let lost: Vec<PathBuf> = lost.map(|(path, _)| path).collect();
        self.full &= lost.is_empty();
        lost
    }
}

impl Watcher {
    pub(super) fn new() -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify = inotify.map_err(|error| log::info!("changes are not watched: {error}")).ok();
        let woken = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Self { inotify, woken, watched: Mutex::default(), reported: Mutex::default() }
    }

    /// Returns the watch of a folder that is watched already, or a dead one.
    pub(super) fn known(&self, folder: &Path) -> Watch {
        // A watch that is still being set up does not count, because it would look as if it had always been there.
        self.watched.lock().by_path.get(folder).filter(|watch| watch.is_alive()).cloned().unwrap_or_default()
    }

    /// Watches a folder from now on, unless it is watched or there is no room. `open` opens it with `O_PATH`.
    pub(super) fn watch(&self, folder: &Path, open: impl Fn() -> std::io::Result<OwnedFd>) -> Watch {
        let Some(inotify) = &self.inotify else { return Watch::default() };
        (0..TRIES).find_map(|_| self.try_watch(inotify, folder, &open)).unwrap_or_default()
    }

    /// Does the same as [`Self::watch`]; `None` if the folder was moved meanwhile, so that another folder is now at its
    /// path.
    fn try_watch(
        &self,
        inotify: &OwnedFd,
        folder: &Path,
        open: impl Fn() -> std::io::Result<OwnedFd>,
    ) -> Option<Watch> {
        let watch = {
            let mut watched = self.watched.lock();
            let known = watched.by_path.get(folder);
            if let Some(watch) = known.filter(|watch| watch.is_alive()) {
                return Some(watch.clone());
            }
            // If another thread is setting up this watch, this one does too, because changes before that are not
            // announced.
            if known.is_none() && watched.full {
                return Some(Watch::default());
            }
            watched.by_path.entry(folder.to_path_buf()).or_default().clone()
        };
        // Without the lock: a folder on a server that does not answer blocks only requests for itself.
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        // By the descriptor, because the path may lead elsewhere by now.
        let added = open().and_then(|opened| {
            let link = format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd());
            Ok(inotify::add_watch(inotify, &*link, flags)?)
        });
        let mut watched = self.watched.lock();
        let is_ours = watched.by_path.get(folder).is_some_and(|known| Arc::ptr_eq(&known.0, &watch.0));
        match added {
            Ok(number) => {
                if let Some(before) = watched.by_number.insert(number, folder.to_path_buf())
                    && before != folder
                {
                    watched.lose(|path| path == before);
                }
                if !is_ours {
                    return None;
                }
                watch.set(true);
            }
            Err(error) => {
                if is_ours && !watch.is_alive() {
                    watched.by_path.remove(folder);
                }
                log::debug!("{}: not watched: {error}", folder.display());
            }
        }
        if watched.by_path.len() >= limits::WATCHES {
            log::info!("{} folders are watched for changes; others are looked at again", watched.by_path.len());
            watched.full = true;
        }
        Some(watch)
    }

    /// How many folders are watched.
    pub(super) fn count(&self) -> usize {
        self.watched.lock().by_path.len()
    }

    /// Ends a wait that is under way, or else the next one.
    pub(super) fn wake(&self) {
        // Fails if it is woken already.
        let _ = self.woken.as_ref().map(|woken| rustix::io::write(woken, &1u64.to_ne_bytes()));
    }

    /// Returns what has changed, as soon as something has; nothing after `timeout` or when woken.
    pub(super) fn wait(&self, timeout: Duration) -> Changes {
        let mut changes = Changes::default();
        let Some(woken) = &self.woken else {
            std::thread::sleep(timeout);
            return changes;
        };
        let [is_woken, is_changed] = are_readable([woken, self.inotify.as_ref().unwrap_or(woken)], timeout);
        if is_woken {
            let _ = rustix::io::read(woken, &mut [0; 8]);
            return changes;
        }
        let Some(inotify) = self.inotify.as_ref().filter(|_| is_changed) else { return changes };
        let last = *self.reported.lock();
        std::thread::sleep(last.map_or(Duration::ZERO, |last| GATHER.saturating_sub(last.elapsed())));
        *self.reported.lock() = Some(Instant::now());
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        // An error means that there is nothing more at the moment.
        while let Ok(event) = events.next() {
            let kind = event.events();
            let mut watched = self.watched.lock();
            if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.overflowed = true;
                continue;
            }
            if kind.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF) {
                // The folder is gone or was renamed. When it is looked at again, it is watched again.
                if let Some(folder) = watched.by_number.remove(&event.wd()) {
                    changes.lost.extend(watched.lose(|path| path == folder));
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
                // What was watched below this name may be elsewhere now, and something else may be here.
                let moved = folder.join(&name);
                changes.lost.extend(watched.lose(|path| path.starts_with(&moved)));
            }
            drop(watched);
            if kind.contains(ReadFlags::CLOSE_WRITE) {
                // An incomplete container may be complete now and be listed as a folder.
                changes.events.insert(DirEvent { folder: folder.clone(), name: name.clone(), listed: true });
            }
            changes.events.insert(DirEvent { folder, name, listed });
        }
        changes
    }
}

/// Waits until one of two descriptors can be read, and returns which of them can.
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
        let open = |path: &Path| Ok(std::fs::File::open(root.join(path))?.into());
        watcher.watch(Path::new(""), || open(Path::new("")));
        let top = watcher.watch(Path::new(""), || open(Path::new("")));
        assert!(watcher.count() == 1 && top.is_alive());
        assert!(watcher.wait(Duration::from_millis(1)).events.is_empty());
        for _ in 0..100 {
            std::fs::write(root.join("a"), b"x").unwrap();
        }
        let seen = watcher.wait(Duration::from_secs(5)).events;
        assert!(seen.iter().all(|event| event.folder == Path::new("") && event.name == "a"), "{seen:?}");
        assert!(seen.iter().any(|event| event.listed) && seen.len() <= 2, "{seen:?}");
        let sub = watcher.watch(Path::new("sub"), || open(Path::new("sub")));
        assert!(watcher.count() == 2 && sub.is_alive());
        std::fs::rename(root.join("sub"), root.join("bus")).unwrap();
        assert_eq!(watcher.wait(Duration::from_secs(5)).lost, [Path::new("sub")]);
        assert!(watcher.count() == 1 && !sub.is_alive() && top.is_alive());
    }

    #[test]
    fn a_folder_that_is_moved_while_its_watch_is_set_up_is_not_taken_for_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("sub")).unwrap();
        let watcher = Watcher::new();
        let open = |path: &str| Ok(std::fs::File::open(root.join(path))?.into());
        watcher.watch(Path::new(""), || open(""));
        let count = std::cell::Cell::new(0);
        let replace = || {
            let opened = open("sub");
            assert!(!watcher.known(Path::new("sub")).is_alive(), "it is not set up");
            std::fs::rename(root.join("sub"), root.join(format!("aside {}", count.replace(count.get() + 1)))).unwrap();
            std::fs::create_dir(root.join("sub")).unwrap();
            assert_eq!(watcher.wait(Duration::from_secs(5)).lost, [Path::new("sub")]);
            opened
        };
        assert!(!watcher.watch(Path::new("sub"), replace).is_alive());
        assert!(!watcher.known(Path::new("sub")).is_alive());
        let sub = watcher.watch(Path::new("sub"), || if count.get() == TRIES { replace() } else { open("sub") });
        assert!(sub.is_alive());
        std::fs::write(root.join("sub/new"), b"").unwrap();
        let seen = watcher.wait(Duration::from_secs(5)).events;
        assert!(seen.iter().any(|event| event.folder == Path::new("sub") && event.name == "new"), "{seen:?}");
    }
}
