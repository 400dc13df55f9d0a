//! Opening paths beneath a descriptor: no symbolic link is followed on the way, and no `..`, so that what is opened
//! lies below the folder that the descriptor stands for, whatever is renamed meanwhile.
//!
//! `openat2(2)` does it in one call (Linux 5.6). Where it is missing or forbidden, or a path is longer than the kernel
//! takes at once, the same rules are kept component by component.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat, openat2, readlinkat},
    io::{Errno, Result},
};

/// Whether `openat2` is known not to work here.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// How paths are resolved.
const RULES: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens what has a name itself, also a link, and asks its filesystem nothing.
pub(super) const ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Bytes of a path that the kernel takes at once, without the zero at its end.
const LONGEST_PATH: usize = 4095;

/// Links that are followed one after the other, as many as the kernel follows.
const LINKS: usize = 40;

/// Folders on long paths that [`Fronts`] keeps open: two paths of 128 KiB each, which nobody has in earnest.
const FRONTS: usize = 64;

/// For how long it does.
const FRONT_AGE: Duration = Duration::from_millis(200);

/// Folders that [`real_path`] keeps open for `..`.
const KEPT_OPEN: usize = 32;

/// How often a look-up is repeated if a rename kept the kernel from doing it safely.
const TRIES: usize = 16;

/// Opens a path below a folder; the empty path is the folder itself.
///
/// # Errors
/// Those of `open(2)`; `ELOOP` if a symbolic link is on the way (with `O_PATH` one at the end is opened itself),
/// `EXDEV` for a path that would lead out.
pub(crate) fn open(folder: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let (folder, flags) = (folder.as_fd(), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC);
    if path == Path::new("") {
        if flags.contains(OFlags::PATH) {
            // Not by opening `.`, which needs the right to search the folder.
            return rustix::io::fcntl_dupfd_cloexec(folder, 0);
        }
        return openat(folder, c".", flags, Mode::empty());
    }
    if IS_MISSING.load(Relaxed) {
        return by_hand(folder, path, flags);
    }
    if let Some((front, rest)) = split(path) {
        let folder = open(folder, front, OFlags::PATH | OFlags::DIRECTORY)?;
        return open(folder, rest, flags);
    }
    for _ in 0..TRIES {
        match openat2(folder, path, flags, Mode::empty(), RULES) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => {
                IS_MISSING.store(true, Relaxed);
                return by_hand(folder, path, flags);
            }
            Err(Errno::NAMETOOLONG) => return by_hand(folder, path, flags),
            other => return other,
        }
    }
    by_hand(folder, path, flags)
}

/// Splits a path that is longer than the kernel takes at once. All paths with the same beginning have the same front.
fn split(path: &Path) -> Option<(&Path, &Path)> {
    let bytes = path.as_os_str().as_bytes();
    let front = bytes.get(..LONGEST_PATH).filter(|front| front.len() < bytes.len())?;
    let slash = front.iter().rposition(|&byte| byte == b'/')?;
    Some((Path::new(OsStr::from_bytes(&bytes[..slash])), Path::new(OsStr::from_bytes(&bytes[slash + 1..]))))
}

/// The folders on paths that are longer than the kernel takes at once, open for 200 ms each. Without them, a walk
/// through deep folders would take the square of their depth. A folder on such a path that is renamed or replaced is
/// noticed by then.
#[derive(Debug, Default)]
pub(crate) struct Fronts(Mutex<Vec<Front>>);

/// The path up to a folder, the folder, and since when it is open.
type Front = (Box<[u8]>, Arc<OwnedFd>, Instant);

impl Fronts {
    /// Returns the folder nearest to a path, and the path from there, which the kernel takes at once. `top` is where
    /// the path begins; `open` opens one folder from another.
    ///
    /// # Errors
    /// What `open` says.
    pub(crate) fn nearest<'a>(
        &self,
        top: &Arc<OwnedFd>,
        path: &'a Path,
        open: impl Fn(&Arc<OwnedFd>, &Path) -> Result<OwnedFd>,
    ) -> Result<(Arc<OwnedFd>, &'a Path)> {
        let whole = path.as_os_str().as_bytes();
        let (mut folder, mut rest) = (top.clone(), path);
        while let Some((front, next)) = split(rest) {
            let up_to = &whole[..whole.len() - next.as_os_str().len() - 1];
            let is_new = |since: &Instant| since.elapsed() <= FRONT_AGE;
            let known =
                self.0.lock().iter().find(|known| *known.0 == *up_to && is_new(&known.2)).map(|known| known.1.clone());
            folder = match known {
                Some(known) => known,
                None => {
                    let opened = Arc::new(open(&folder, front)?);
                    let mut all = self.0.lock();
                    all.retain(|(path, _, since)| **path != *up_to && is_new(since));
                    let surplus = (all.len() + 1).saturating_sub(FRONTS);
                    all.drain(..surplus);
                    all.push((up_to.into(), opened.clone(), Instant::now()));
                    opened
                }
            };
            rest = next;
        }
        Ok((folder, rest))
    }

    /// Closes them, because the top is another folder now.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// Does the same as [`open`] for a path that the kernel has in memory, without asking a disk or a server. `more` are
/// rules in addition to those of [`open`].
///
/// # Errors
/// As [`open`]; `EAGAIN` if something would have to be waited for, `ENOSYS` if the kernel cannot say (before Linux
/// 5.12).
pub(super) fn open_cached(folder: impl AsFd, path: &Path, flags: OFlags, more: ResolveFlags) -> Result<OwnedFd> {
    if IS_MISSING.load(Relaxed) {
        return Err(Errno::NOSYS);
    }
    let rules = RULES | ResolveFlags::CACHED | more;
    openat2(folder, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), rules)
}

/// As [`open`] with `O_PATH`, and no folder is entered that `is_barred`: what lies below one is not there. A barred
/// folder itself is opened, which asks its filesystem nothing.
///
/// # Errors
/// As [`open`].
pub(super) fn open_around(
    folder: impl AsFd,
    path: &Path,
    is_barred: impl Fn(BorrowedFd<'_>) -> Result<bool>,
) -> Result<OwnedFd> {
    let rules = RULES | ResolveFlags::NO_XDEV;
    // What lies on the folder's own filesystem is reached in one call.
    if path != Path::new("")
        && !IS_MISSING.load(Relaxed)
        && let Ok(opened) = openat2(&folder, path, ITSELF, Mode::empty(), rules)
    {
        return Ok(opened);
    }
    let last = walk(folder.as_fd(), path, |at, name, is_last| match is_last {
        _ if is_barred(at)? => Err(Errno::NOENT),
        true => openat(at, name, ITSELF, Mode::empty()),
        false => step(at, name),
    })?;
    last.map_or_else(|| rustix::io::fcntl_dupfd_cloexec(&folder, 0), Ok)
}

/// Where an absolute path leads to when all links in it are followed, as `realpath(3)` finds it. No folder is entered that
/// `is_barred`.
///
/// # Errors
/// Those of `open(2)`; `ENOENT` for what lies in a barred folder, or is one.
pub(super) fn real_path(path: &Path, is_barred: impl Fn(BorrowedFd<'_>) -> Result<bool>) -> Result<PathBuf> {
    let mut left: VecDeque<OsString> = VecDeque::new();
    let mut place = PathBuf::from("/");
    let root = rustix::fs::open(c"/", ITSELF, Mode::empty())?;
    // The innermost folders of the place; none if it has to be opened again.
    let mut folders = VecDeque::from([rustix::io::fcntl_dupfd_cloexec(&root, 0)?]);
    let mut links = 0;
    let put = |left: &mut VecDeque<OsString>, path: &Path| {
        let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        let parts: Vec<_> = parts.map(|part| part.as_os_str().to_owned()).collect();
        parts.into_iter().rev().for_each(|part| left.push_front(part));
    };
    put(&mut left, path);
    while let Some(part) = left.pop_front() {
        if part == ".." {
            folders.pop_back();
            place.pop();
            continue;
        }
        if folders.is_empty() {
            folders.push_back(open(&root, place.strip_prefix("/").unwrap_or(&place), OFlags::PATH)?);
        }
        let opened = openat(folders.back().ok_or(Errno::NOENT)?, &*part, ITSELF, Mode::empty())?;
        if is_barred(opened.as_fd())? {
            return Err(Errno::NOENT);
        }
        let Ok(target) = readlinkat(&opened, c"", Vec::new()) else {
            if folders.len() == KEPT_OPEN {
                folders.pop_front();
            }
            folders.push_back(opened);
            place.push(part);
            continue;
        };
        links += 1;
        if links > LINKS {
            return Err(Errno::LOOP);
        }
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            folders.clear();
            place = PathBuf::from("/");
        }
        put(&mut left, &target);
    }
    Ok(place)
}

/// Does the same as [`open`], component by component.
fn by_hand(folder: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let last = walk(folder, path, |at, name, is_last| match is_last {
        true => openat(at, name, flags, Mode::empty()),
        false => step(at, name),
    })?;
    last.ok_or(Errno::NOENT)
}

/// Opens a folder by its name without following links.
///
/// # Errors
/// As [`open`].
pub(crate) fn step(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOTDIR if readlinkat(at, name, Vec::new()).is_ok() => Errno::LOOP,
        error => error,
    })
}

/// Walks down a path, and returns what was opened last; nothing for an empty path. `enter` opens each name in the folder
/// before it, and is told whether it is the last.
///
/// # Errors
/// What `enter` says; `EXDEV` for a path with `..` or a root.
pub(crate) fn walk(
    top: BorrowedFd<'_>,
    path: &Path,
    mut enter: impl FnMut(BorrowedFd<'_>, &OsStr, bool) -> Result<OwnedFd>,
) -> Result<Option<OwnedFd>> {
    let mut components = path.components().peekable();
    let mut opened: Option<OwnedFd> = None;
    while let Some(component) = components.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        };
        let at = opened.as_ref().map_or(top, AsFd::as_fd);
        opened = Some(enter(at, name, components.peek().is_none())?);
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A way to open a path beneath a folder.
    type Opens = fn(BorrowedFd<'_>, &Path, OFlags) -> Result<OwnedFd>;

    #[test]
    fn nothing_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        let outside = outside.path();
        let top = outside.join("top");
        std::fs::create_dir_all(top.join("folder/inner")).unwrap();
        std::fs::write(outside.join("secret"), b"secret").unwrap();
        std::fs::write(top.join("folder/inner/file"), b"file").unwrap();
        symlink("..", top.join("up")).unwrap();
        symlink("folder", top.join("in")).unwrap();
        symlink(outside.join("secret"), top.join("folder/out")).unwrap();
        let folder = rustix::fs::open(&top, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let hand: Opens = |folder, path, flags| by_hand(folder, path, flags | OFlags::NOFOLLOW);
        let call: Opens = |folder, path, flags| open(folder, path, flags);
        for opens in [call, hand] {
            let opened = |path: &str, flags| opens(folder.as_fd(), Path::new(path), flags).map(drop);
            assert_eq!(opened("folder/inner/file", OFlags::RDONLY), Ok(()));
            assert_eq!(opened("folder", OFlags::PATH), Ok(()));
            for path in ["up/secret", "in/inner/file", "folder/out", "up", "in"] {
                assert_eq!(opened(path, OFlags::RDONLY), Err(Errno::LOOP), "{path}");
            }
            // A link itself may be looked at, never gone through.
            assert_eq!(opened("up", OFlags::PATH), Ok(()));
            assert_eq!(opened("up/secret", OFlags::PATH), Err(Errno::LOOP));
            for path in ["../secret", "folder/../../secret", "/etc/passwd"] {
                assert_eq!(opened(path, OFlags::PATH), Err(Errno::XDEV), "{path}");
            }
            assert_eq!(opened("folder/none/file", OFlags::PATH), Err(Errno::NOENT));
        }
        // Longer than the kernel takes at once.
        let deep: std::path::PathBuf = std::iter::repeat_n("d".repeat(200), 30).collect();
        let mut at = rustix::io::dup(&folder).unwrap();
        for name in deep.components() {
            rustix::fs::mkdirat(&at, name.as_os_str(), Mode::RWXU).unwrap();
            at = step(at.as_fd(), name.as_os_str()).unwrap();
        }
        assert!(open(&folder, &deep, OFlags::PATH).is_ok());
    }

    #[test]
    fn real_paths_keep_few_folders_open() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", 200).collect();
        std::fs::create_dir_all(place.join(&deep)).unwrap();
        std::fs::create_dir(place.join("other")).unwrap();
        symlink("../".repeat(200) + "other", place.join(&deep).join("up")).unwrap();
        symlink(place.join(&deep), place.join("down")).unwrap();
        symlink(place.join("loop"), place.join("loop")).unwrap();
        let open_now = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open_now();
        let most = std::cell::Cell::new(0);
        let found = |path: &str| {
            real_path(&place.join(path), |_| {
                most.set(most.get().max(open_now()));
                Ok(false)
            })
        };
        for path in ["down/up", "down/../d/up", "down/up/../other", "other/./../down/up/../down/up/"] {
            assert_eq!(found(path).as_deref(), Ok(&*place.join(path).canonicalize().unwrap()), "{path}");
        }
        assert_eq!(found("/../../..").as_deref(), Ok(Path::new("/")));
        assert_eq!(found("loop"), Err(Errno::LOOP));
        // Other tests open files meanwhile.
        assert!(most.get() < before + 150, "{before} descriptors before, {} during it", most.get());
    }

    #[test]
    fn long_paths_are_reached_from_near_folders() {
        let place = tempfile::tempdir().unwrap();
        let top = rustix::fs::open(place.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let top = Arc::new(top);
        let name = "d".repeat(200);
        let mut at = rustix::io::dup(&top).unwrap();
        for _ in 0..90 {
            rustix::fs::mkdirat(&at, &*name, Mode::RWXU).unwrap();
            at = step(at.as_fd(), OsStr::new(&name)).unwrap();
        }
        let (fronts, opened) = (Fronts::default(), std::cell::Cell::new(0));
        let nearest = |path: &Path| {
            let (at, rest) = fronts.nearest(&top, path, |at, front| {
                opened.set(opened.get() + 1);
                open(at, front, OFlags::PATH | OFlags::DIRECTORY)
            })?;
            assert!(rest.as_os_str().len() <= LONGEST_PATH);
            let found = rustix::fs::fstat(open(at, rest, OFlags::PATH)?)?;
            let direct = rustix::fs::fstat(open(&top, path, OFlags::PATH)?)?;
            assert_eq!((found.st_dev, found.st_ino), (direct.st_dev, direct.st_ino));
            Ok(opened.take())
        };
        let path = |count: usize| std::iter::repeat_n(&*name, count).collect::<PathBuf>();
        let began = Instant::now();
        let counts = [1, 20, 21, 90, 90, 89, 45].map(|count| nearest(&path(count)));
        if began.elapsed() < FRONT_AGE {
            assert_eq!(counts, [0, 0, 1, 3, 0, 0, 0].map(Ok));
        }
        assert_eq!(nearest(&path(91)), Err(Errno::NOENT));
        // What has changed is noticed.
        rustix::fs::renameat(&top, &*name, &top, "other").unwrap();
        std::thread::sleep(FRONT_AGE);
        assert_eq!(nearest(&path(90)), Err(Errno::NOENT));
    }
}
