//! A folder of this machine as a store.
//!
//! Everything below the top is reached from its descriptor, and no symbolic link is followed (see `beneath`). With
//! [`FollowLinks`], the place that a link leads to is found by its path first, and then opened beneath a descriptor
//! like any other: a link that is changed meanwhile leads nowhere.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File as Descriptor,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};
use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, fstatvfs, openat, readlinkat, statx},
    io::Errno,
};

use super::{
    Changes, File, Folder, FollowLinks, Kind, MappedFile, Names, Stat, Store, Usage, Version, Watch,
    beneath::{self, Fronts},
    own_mounts,
    status::{stat, stat_of},
    watch::Watcher,
    would_block,
};
use crate::{filesystem, source::Wait};

/// How often the path of the top is checked for another folder.
const RECHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Pauses between attempts to open a file while there are no descriptors, in milliseconds.
const PAUSES: [u64; 5] = [1, 5, 20, 100, 200];

/// A folder of this machine.
#[derive(Debug)]
pub(crate) struct LocalStore {
    /// Absolute and without links.
    top: PathBuf,
    root: Mutex<Root>,
    /// The device number of what was the top at first: it may be a mount of shardfs itself.
    device: u64,
    /// Whether a thread checks the path of the top now.
    is_looking: AtomicBool,
    links: FollowLinks,
    /// Folders on long paths.
    fronts: Fronts,
    watcher: Watcher,
    /// Device numbers of local filesystems, learned from opened files, and their kinds.
    local: RwLock<BTreeMap<u64, i64>>,
}

/// The top, open.
#[derive(Debug)]
struct Root {
    folder: Arc<OwnedFd>,
    /// Whether it is on a local filesystem.
    is_local: bool,
    looked: Instant,
    is_gone: bool,
}

/// The target of a path that may contain links.
struct Resolved {
    opened: OwnedFd,
    stat: Stat,
    name: OsString,
    /// Whether it is a mount of shardfs, which is shown as an empty folder.
    is_barred: bool,
}

impl LocalStore {
    /// Opens a folder whose path contains no links. `watch` says whether changes below it can be waited for.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub(crate) fn new(top: PathBuf, links: FollowLinks, watch: bool) -> io::Result<Self> {
        let folder = Arc::new(open_top(&top)?);
        let device = own_mounts::device_of(&*folder)?;
        let root = Root { is_local: filesystem::is_local(&*folder), folder, looked: Instant::now(), is_gone: false };
        let watcher = if watch { Watcher::new() } else { Watcher::default() };
        Ok(Self {
            top,
            root: Mutex::new(root),
            device,
            is_looking: AtomicBool::new(false),
            links,
            fronts: Fronts::default(),
            watcher,
            local: RwLock::default(),
        })
    }

    /// Returns the top, or the folder that has taken its place.
    fn root(&self) -> io::Result<Arc<OwnedFd>> {
        let is_due = self.root.lock().looked.elapsed() > RECHECK_INTERVAL;
        // One thread checks, without holding the lock: if the path does not answer, the others use what is open.
        if is_due && !self.is_looking.swap(true, Relaxed) {
            self.check_root();
            self.is_looking.store(false, Relaxed);
        }
        let root = self.root.lock();
        if root.is_gone { Err(gone()) } else { Ok(root.folder.clone()) }
    }

    /// Looks which folder is at the path of the top now.
    fn check_root(&self) {
        let now = open_top(&self.top).and_then(|now| if self.bars(&now)? { Err(gone()) } else { Ok(now) });
        let now = now.and_then(|now| Ok((file_of(&now)?, filesystem::is_local(&now), now)));
        let folder = self.root.lock().folder.clone();
        let known = file_of(folder);
        let mut root = self.root.lock();
        root.looked = Instant::now();
        // Without a free descriptor the check finds out nothing new.
        if !now.as_ref().is_err_and(is_shortage) {
            root.is_gone = now.is_err();
        }
        if let Ok((file, is_local, opened)) = now
            && known.is_ok_and(|known| known != file)
        {
            (root.folder, root.is_local) = (Arc::new(opened), is_local);
            self.fronts.clear();
        }
    }

    /// Whether mounts of shardfs have to be looked out for.
    fn is_careful(&self) -> bool {
        own_mounts::may_stand_below(&self.top, self.links == FollowLinks::Outside)
    }

    /// Whether what was opened lies on a mount of shardfs that stands below the top. Asks no filesystem.
    fn bars(&self, opened: impl AsFd) -> rustix::io::Result<bool> {
        let device = own_mounts::device_of(opened)?;
        Ok(device != self.device && own_mounts::is_one(device))
    }

    /// Where a path leads to when all links in it are followed; nowhere in mounts of shardfs.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        if self.is_careful() { Ok(beneath::real_path(path, |at| self.bars(at))?) } else { path.canonicalize() }
    }

    /// Opens what is at a path, with `O_PATH`; a link that is not followed is opened itself.
    fn open_path(&self, path: &Path) -> io::Result<Resolved> {
        let root = self.root()?;
        let is_careful = self.is_careful();
        let open = |at: &Arc<OwnedFd>, path: &Path| {
            if !is_careful {
                return beneath::open(at, path, OFlags::PATH);
            }
            // Where there is no other filesystem below it, the folder itself is not compared.
            if self.bars(at)? { Err(Errno::NOENT) } else { beneath::open_around(at, path, |at| self.bars(at)) }
        };
        let nearest = self.fronts.nearest(&root, path, open);
        match nearest.and_then(|(at, rest)| open(&at, rest)) {
            Ok(opened) => self.resolved(&root, path, opened, is_careful, false),
            Err(Errno::LOOP) if self.links.follows() => self.below_links(&root, path).ok_or_else(|| Errno::LOOP.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a path with links before its last name: first the folder before that name, then the name in it.
    fn below_links(&self, root: &OwnedFd, path: &Path) -> Option<Resolved> {
        let folder = self.real_path(&self.top.join(path.parent()?)).ok()?;
        let (at, way) = self.way_to(root, &folder)?;
        let name = path.file_name()?;
        let opened = beneath::open_around(at, &way.join(name), |at| self.bars(at)).ok()?;
        self.resolved(root, path, opened, true, true).ok()
    }

    /// Returns what was opened at a path, or where it leads if it is a link that is followed.
    fn resolved(
        &self,
        root: &OwnedFd,
        path: &Path,
        opened: OwnedFd,
        is_careful: bool,
        via_link: bool,
    ) -> io::Result<Resolved> {
        let name = path.file_name().unwrap_or_default().to_owned();
        if is_careful && self.bars(&opened)? {
            return Ok(Resolved { stat: barred(&opened)?, opened, name, is_barred: true });
        }
        let stat = Stat { via_link, ..stat_of(&opened, AtFlags::empty())? };
        let target = if stat.kind == Kind::Link { self.follow(root, path) } else { None };
        Ok(target.unwrap_or(Resolved { opened, stat, name, is_barred: false }))
    }

    /// Returns the target of a link, if it may be followed. A link to a folder that contains it is not followed,
    /// because that would have no end.
    ///
    /// The mode of the target lacks the bits of readers who could not get there themselves: a reader needs the right to
    /// enter every folder on the way.
    fn follow(&self, root: &OwnedFd, link: &Path) -> Option<Resolved> {
        if !self.links.follows() {
            return None;
        }
        let link = self.top.join(link);
        let target = self.real_path(&link).ok()?;
        let own_folder = self.real_path(link.parent()?).ok()?;
        if own_folder.starts_with(&target) {
            return None;
        }
        let (at, way) = self.way_to(root, &target)?;
        let mut folders = Vec::new();
        let walked = beneath::walk(at.as_fd(), way, |at, name, is_last| {
            if is_last {
                return openat(at, name, beneath::ITSELF, Mode::empty());
            }
            let folder = beneath::step(at, name)?;
            if self.bars(&folder)? {
                return Err(Errno::NOENT);
            }
            folders.push(stat(&statx(&folder, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?));
            Ok(folder)
        });
        let opened = walked.ok()?.filter(|opened| self.bars(opened) == Ok(false))?;
        let stat = stat_of(&opened, AtFlags::empty()).ok().filter(|stat| stat.kind != Kind::Link)?;
        let stat = Stat { via_link: true, mode: stat.mode & may_pass(&stat, &folders), ..stat };
        Some(Resolved { opened, stat, name: target.file_name().unwrap_or_default().to_owned(), is_barred: false })
    }

    /// Returns the folder from which a place without links in its path is reached, and the path from there: the top for
    /// places below it, the root of the machine for places elsewhere that may be shown.
    fn way_to<'a>(&self, root: &OwnedFd, place: &'a Path) -> Option<(OwnedFd, &'a Path)> {
        if let Ok(below) = place.strip_prefix(&self.top) {
            return Some((rustix::io::fcntl_dupfd_cloexec(root, 0).ok()?, below));
        }
        if self.links != FollowLinks::Outside {
            return None;
        }
        let everything = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Some((everything.ok()?, place.strip_prefix("/").ok()?))
    }

    fn open_once(&self, path: &Path) -> io::Result<MappedFile> {
        let Resolved { opened, stat, name, .. } = self.open_path(path)?;
        if stat.kind != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let id = stat.version.file();
        let known = self.local.read().get(&id.device()).copied();
        let (file, known) = match open_again(&opened) {
            // Without /proc the file is opened by its name, and must be the same.
            Err(Errno::NOENT) if !stat.via_link => (beneath::open(self.root()?, path, READ)?, None),
            reopened => (reopened?, known),
        };
        // Of a local filesystem, what was looked at just now is enough.
        if let Some(kind) = known {
            return Ok(MappedFile::new(file.into(), name, stat, kind));
        }
        let now = stat_of(&file, AtFlags::empty())?;
        if now.version.file() != id {
            return Err(Errno::STALE.into());
        }
        let kind = filesystem::number(&file);
        if filesystem::is_local_number(kind) {
            self.local.write().insert(id.device(), kind);
        }
        Ok(MappedFile::new(file.into(), name, Stat { mode: stat.mode, via_link: stat.via_link, ..now }, kind))
    }

    /// Opens a file. If descriptors have run out, others will release theirs.
    fn open_patiently(&self, path: &Path) -> io::Result<MappedFile> {
        for pause in PAUSES {
            match self.open_once(path) {
                Err(e) if is_shortage(&e) => {
                    std::thread::sleep(Duration::from_millis(pause));
                }
                other => return other,
            }
        }
        self.open_once(path)
    }

    /// Opens a file whose path is in the kernel's memory and which is on a local filesystem: that waits for nothing.
    fn open_cached(&self, path: &Path) -> Option<MappedFile> {
        let more = if self.is_careful() { ResolveFlags::NO_XDEV } else { ResolveFlags::empty() };
        let opened = beneath::open_cached(&*self.known_root(false)?, path, OFlags::PATH, more).ok()?;
        let stat = stat_of(&opened, AtFlags::STATX_DONT_SYNC).ok().filter(|stat| stat.kind == Kind::File)?;
        let kind = *self.local.read().get(&stat.version.file().device())?;
        let file = Descriptor::from(open_again(&opened).ok()?);
        let name = path.file_name().unwrap_or_default().to_owned();
        Some(MappedFile::new(file, name, stat, kind))
    }

    /// Returns the top, if it need not be checked again. With `local`, only if it is on a local filesystem.
    fn known_root(&self, local: bool) -> Option<Arc<OwnedFd>> {
        let root = self.root.lock();
        (!root.is_gone && (root.is_local || !local) && root.looked.elapsed() <= RECHECK_INTERVAL)
            .then(|| root.folder.clone())
    }
}

/// How files are opened. `O_NONBLOCK` does not wait for a lease.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens for reading what was opened with `O_PATH`, so that a pipe or device that takes the name meanwhile is not
/// opened.
fn open_again(opened: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(&*format!("/proc/self/fd/{}", opened.as_raw_fd()), READ, Mode::empty())
}

impl Store for LocalStore {
    fn stat(&self, path: &Path, wait: Wait) -> io::Result<Option<Stat>> {
        if wait == Wait::Never {
            // On another mount even the type of its filesystem might have to be asked of a server.
            let root = self.known_root(true).ok_or_else(would_block)?;
            let opened = beneath::open_cached(&*root, path, OFlags::PATH, ResolveFlags::NO_XDEV);
            let stat = opened.ok().and_then(|opened| stat_of(&opened, AtFlags::empty()).ok());
            // A link may have to be followed.
            let stat = stat.filter(|stat| stat.kind != Kind::Link);
            return stat.map(Some).ok_or_else(would_block);
        }
        // The top, and a single name in it, need no further descriptor.
        let mut components = path.components();
        match (components.next(), components.next()) {
            (None, _) => stat_of(&*self.root()?, AtFlags::empty()).map(Some),
            (Some(name), None) => {
                let (opened, is_careful) = (self.root()?, self.is_careful());
                LocalFolder { store: self, path: PathBuf::new(), opened, is_careful, is_barred: false }
                    .stat(name.as_os_str())
            }
            _ => or_nothing(self.open_path(path).map(|resolved| resolved.stat)),
        }
    }

    fn folder<'a>(&'a self, path: &Path) -> io::Result<Box<dyn Folder + 'a>> {
        let Resolved { opened, is_barred, .. } = self.open_path(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = if is_barred { opened } else { openat(&opened, c".", flags, Mode::empty())? };
        let (opened, is_careful) = (Arc::new(opened), self.is_careful());
        Ok(Box::new(LocalFolder { store: self, path: path.into(), opened, is_careful, is_barred }))
    }

    fn open(&self, path: &Path, wait: Wait) -> io::Result<Arc<dyn File>> {
        if wait == Wait::Never {
            return self.open_cached(path).map(|file| -> Arc<dyn File> { Arc::new(file) }).ok_or_else(would_block);
        }
        Ok(Arc::new(self.open_patiently(path)?))
    }

    fn read_link(&self, path: &Path) -> io::Result<OsString> {
        let Resolved { opened, .. } = self.open_path(path)?;
        let target = readlinkat(&opened, c"", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    fn without_links(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        if !self.links.follows() {
            return Ok(Some(path.to_path_buf()));
        }
        let place = self.real_path(&self.top.join(path))?;
        Ok(place.strip_prefix(&self.top).ok().map(Path::to_path_buf))
    }

    fn watch(&self, folder: &Path, wait: Wait) -> Watch {
        if wait == Wait::Never {
            return self.watcher.known(folder);
        }
        self.watcher.watch(folder, || match self.open_path(folder)? {
            // Watching a folder asks for its attributes.
            Resolved { is_barred: true, .. } => Err(Errno::XDEV.into()),
            Resolved { opened, .. } => Ok(opened),
        })
    }

    fn watched(&self) -> usize {
        self.watcher.count()
    }

    fn wait_for_changes(&self, timeout: Duration) -> Changes {
        self.watcher.wait(timeout)
    }

    fn wake(&self) {
        self.watcher.wake();
    }

    fn is_elsewhere(&self, file: super::FileId) -> bool {
        file.device() != self.device
    }

    fn usage(&self) -> io::Result<Usage> {
        let host = fstatvfs(&*self.root()?)?;
        Ok(Usage {
            block: host.f_frsize,
            used_blocks: host.f_blocks.saturating_sub(host.f_bfree),
            used_files: host.f_files.saturating_sub(host.f_ffree),
        })
    }
}

/// A folder, open for listing.
struct LocalFolder<'a> {
    store: &'a LocalStore,
    path: PathBuf,
    opened: Arc<OwnedFd>,
    /// Whether mounts of shardfs may stand on names in it.
    is_careful: bool,
    /// Whether it is one itself, and shown without names.
    is_barred: bool,
}

impl Folder for LocalFolder<'_> {
    fn version(&self) -> io::Result<Version> {
        if self.is_barred {
            return Ok(barred(&*self.opened)?.version);
        }
        Ok(stat_of(&*self.opened, AtFlags::empty())?.version)
    }

    fn names(&self) -> io::Result<Arc<dyn Names>> {
        let mut names = Vec::new();
        if self.is_barred {
            return Ok(Arc::new(names));
        }
        for entry in rustix::fs::Dir::read_from(&*self.opened)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(Arc::new(names))
    }

    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        let is_name = !matches!(name.as_encoded_bytes(), b"." | b"..") && !name.as_encoded_bytes().contains(&b'/');
        if self.is_barred || !is_name {
            return Ok(None);
        }
        if self.is_careful {
            match openat(&*self.opened, name, beneath::ITSELF, Mode::empty()) {
                Ok(opened) if self.store.bars(&opened)? => return barred(&opened).map(Some),
                // What can't be opened says so below.
                _ => {}
            }
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = statx(&*self.opened, name, flags, StatxFlags::BASIC_STATS).map(|found| stat(&found));
        match found {
            Ok(found) if found.kind == Kind::Link && self.store.links.follows() => {
                or_nothing(self.store.open_path(&self.path.join(name)).map(|resolved| resolved.stat))
            }
            found => or_nothing(found.map_err(Into::into)),
        }
    }
}

/// Opens the top by its path, which must contain no link: a user who may rename a folder above it must not be able to
/// lead the mount elsewhere.
fn open_top(top: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let everything = rustix::fs::open(c"/", flags | OFlags::CLOEXEC, Mode::empty())?;
    Ok(beneath::open(&everything, top.strip_prefix("/").unwrap_or(top), flags)?)
}

/// What is said of a mount of shardfs, which is not asked: an empty folder.
fn barred(opened: impl AsFd) -> io::Result<Stat> {
    let version = Version::local(own_mounts::device_of(opened)?, 0, 0, (0, 0), (0, 0));
    Ok(Stat { kind: Kind::Folder, size: 0, mtime: (0, 0), mode: 0o555, uid: 0, gid: 0, via_link: false, version })
}

/// Returns whether something failed because descriptors ran out, which others will release.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

fn file_of(opened: impl AsFd) -> io::Result<super::FileId> {
    Ok(stat_of(opened, AtFlags::empty())?.version.file())
}

/// Turns "nothing is there" into an answer.
fn or_nothing(found: io::Result<Stat>) -> io::Result<Option<Stat>> {
    use libc::{ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EXDEV};
    match found.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(ENOENT | ENOTDIR | ENAMETOOLONG | ELOOP | EXDEV) => Ok(None),
        _ => found.map(Some),
    }
}

/// Returns the permission bits of those classes of readers of a file who may enter every folder on the way to it.
///
/// A reader of the class "group" or "others" may be of any class for a folder, even its owner. So these readers pass
/// only if every class may. For a file's owner it is known whether he owns a folder. Root may pass everywhere.
fn may_pass(file: &Stat, folders: &[Stat]) -> u32 {
    let all =
        |needed: &dyn Fn(&Stat) -> u32| folders.iter().all(|folder| folder.mode & needed(folder) == needed(folder));
    let owner = file.uid == 0 || all(&|folder| if folder.uid == file.uid { 0o100 } else { 0o011 });
    let group = all(&|folder| if folder.gid == file.gid { 0o110 } else { 0o111 });
    let others = all(&|_| 0o111);
    [(owner, 0o700), (group, 0o070), (others, 0o007)].into_iter().filter(|(may, _)| *may).map(|(_, bits)| bits).sum()
}

#[cfg(test)]
mod tests {
    use std::{
        mem::MaybeUninit,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use super::*;

    /// A temporary folder with the top of a store in it.
    struct Temporary {
        path: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Temporary {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().canonicalize().unwrap();
            std::fs::create_dir(path.join("top")).unwrap();
            Self { path, _folder: folder }
        }

        fn top(&self) -> PathBuf {
            self.path.join("top")
        }

        fn store(&self, links: FollowLinks) -> LocalStore {
            LocalStore::new(self.top(), links, true).unwrap()
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_told_at_once_is_what_a_look_up_finds() {
        let place = Temporary::new();
        std::fs::create_dir_all(place.top().join("a/b")).unwrap();
        std::fs::write(place.top().join("a/b/file"), b"file").unwrap();
        std::fs::write(place.top().join("top"), b"top").unwrap();
        symlink("a", place.top().join("link")).unwrap();
        symlink("a/b/file", place.top().join("to")).unwrap();
        for links in [FollowLinks::No, FollowLinks::Inside] {
            let store = place.store(links);
            let at_once = |path: &str| {
                store.stat(path.as_ref(), Wait::Never).map_err(|error| super::super::is_would_block(&error))
            };
            let known = |path: &str| store.stat(path.as_ref(), Wait::Always).unwrap();
            // Both are looked up, so the kernel knows their names. A filesystem that is not local has no answers.
            assert_eq!((known("top").is_some(), known("a/b/file").is_some()), (true, true));
            if filesystem::is_local(std::fs::File::open(place.top()).unwrap()) {
                assert_eq!((at_once("top"), at_once("a/b/file")), (Ok(known("top")), Ok(known("a/b/file"))));
            }
            // No link leads anywhere: it may have to be followed.
            assert_eq!(["link/b/file", "to", "a/b/none", "../top"].map(at_once), [const { Err(true) }; 4]);
            std::fs::write(place.top().join("new"), b"another").unwrap();
            std::fs::rename(place.top().join("new"), place.top().join("a/b/file")).unwrap();
            let now = known("a/b/file");
            assert!(at_once("a/b/file").map_or_else(|blocked| blocked, |stat| stat == now));
        }
    }

    #[test]
    fn a_folder_that_becomes_a_link_leads_nowhere() {
        let place = Temporary::new();
        std::fs::create_dir_all(place.path.join("outside/etc")).unwrap();
        std::fs::write(place.path.join("outside/etc/secret"), b"secret").unwrap();
        std::fs::create_dir_all(place.top().join("a/etc")).unwrap();
        std::fs::write(place.top().join("a/etc/secret"), b"own").unwrap();
        let store = place.store(FollowLinks::No);
        let path = Path::new("a/etc/secret");
        assert_eq!(store.stat(path, Wait::Always).unwrap().unwrap().size, 3);
        std::fs::rename(place.top().join("a"), place.path.join("aside")).unwrap();
        symlink(place.path.join("outside"), place.top().join("a")).unwrap();
        assert_eq!(store.stat(path, Wait::Always).unwrap(), None);
        assert_eq!(store.stat(Path::new("a"), Wait::Always).unwrap().unwrap().kind, Kind::Link);
        let is_loop = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        is_loop(store.open(path, Wait::Always).err().unwrap());
        is_loop(store.folder(Path::new("a/etc")).err().unwrap());
        is_loop(store.read_link(path).err().unwrap());
        assert!(!store.watch(Path::new("a/etc"), Wait::Always).is_alive());
    }

    #[test]
    fn pipes_and_devices_are_never_opened() {
        let place = Temporary::new();
        let pipe = place.top().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let store = place.store(FollowLinks::Inside);
        let openings = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&openings, &pipe, WatchFlags::OPEN).unwrap();
        assert_eq!(store.stat(Path::new("pipe"), Wait::Always).unwrap().unwrap().kind, Kind::Other);
        assert_eq!(store.open(Path::new("pipe"), Wait::Always).err().unwrap().kind(), io::ErrorKind::InvalidInput);
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(&openings, &mut buffer);
        assert_eq!(events.next().err(), Some(Errno::AGAIN), "the pipe was opened, and then refused");
    }

    #[test]
    fn links_give_no_more_than_the_folders_on_the_way() {
        let place = Temporary::new();
        let secret = place.top().join("secret");
        std::fs::create_dir(&secret).unwrap();
        std::fs::create_dir(place.top().join("alice")).unwrap();
        std::fs::write(secret.join("note"), b"note").unwrap();
        set_mode(&secret.join("note"), 0o644);
        symlink("../secret/note", place.top().join("alice/link")).unwrap();
        symlink(&secret, place.top().join("alice/folder")).unwrap();
        symlink("/etc/passwd", place.top().join("alice/out")).unwrap();
        symlink("..", place.top().join("alice/up")).unwrap();
        let mode = |store: &LocalStore, path: &str| store.stat(Path::new(path), Wait::Always).unwrap().unwrap().mode;
        let kind = |store: &LocalStore, path: &str| store.stat(Path::new(path), Wait::Always).unwrap().unwrap().kind;
        let store = place.store(FollowLinks::Inside);
        set_mode(&secret, 0o755);
        assert_eq!(mode(&store, "alice/link"), 0o644);
        set_mode(&secret, 0o700);
        assert_eq!(mode(&store, "alice/link"), 0o600);
        set_mode(&secret, 0o711);
        assert_eq!(mode(&store, "alice/link"), 0o644);
        assert_eq!(mode(&store, "alice/folder/note"), 0o644);
        assert_eq!(store.open(Path::new("alice/folder/note"), Wait::Always).unwrap().name(), "note");
        assert_eq!((kind(&store, "alice/out"), kind(&store, "alice/up")), (Kind::Link, Kind::Link));
        let store = place.store(FollowLinks::Outside);
        assert_eq!((kind(&store, "alice/out"), kind(&store, "alice/up")), (Kind::File, Kind::Link));
        assert_eq!(kind(&place.store(FollowLinks::No), "alice/link"), Kind::Link);
    }

    #[test]
    fn classes_of_readers() {
        let at = |uid, gid, mode| Stat { uid, gid, mode, ..sample() };
        let file = at(1000, 100, 0o644);
        assert_eq!(may_pass(&file, &[]), 0o777);
        assert_eq!(may_pass(&file, &[at(0, 0, 0o755), at(1000, 100, 0o700)]), 0o700);
        // The folder's owner is another: the file's owner may be of its group, or not.
        assert_eq!(may_pass(&file, &[at(7, 7, 0o750)]), 0);
        assert_eq!(may_pass(&file, &[at(7, 100, 0o750)]), 0o070);
        assert_eq!(may_pass(&at(0, 0, 0o600), &[at(7, 7, 0)]), 0o700);
    }

    fn sample() -> Stat {
        let version = Version::local(1, 1, 0, (0, 0), (0, 0));
        Stat { kind: Kind::File, size: 0, mtime: (0, 0), mode: 0, uid: 0, gid: 0, via_link: false, version }
    }

    #[test]
    fn the_top_may_be_replaced_and_may_go() {
        let place = Temporary::new();
        std::fs::write(place.top().join("file"), b"one").unwrap();
        let store = place.store(FollowLinks::No);
        assert_eq!(store.stat(Path::new("file"), Wait::Always).unwrap().unwrap().size, 3);
        std::fs::rename(place.top(), place.path.join("before")).unwrap();
        std::thread::sleep(2 * RECHECK_INTERVAL);
        assert_eq!(store.stat(Path::new("file"), Wait::Always).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        // A link in its place is not followed.
        symlink("before", place.top()).unwrap();
        std::thread::sleep(2 * RECHECK_INTERVAL);
        assert!(store.stat(Path::new("file"), Wait::Always).is_err());
        std::fs::remove_file(place.top()).unwrap();
        std::fs::create_dir(place.top()).unwrap();
        std::fs::write(place.top().join("file"), b"another").unwrap();
        std::thread::sleep(2 * RECHECK_INTERVAL);
        assert_eq!(store.stat(Path::new("file"), Wait::Always).unwrap().unwrap().size, 7);
    }
}
