//! Where commands write: a folder that the user named. No symbolic link is followed below it, because other users may
//! write to it, and the names come from containers.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, flock, futimens,
        linkat, mkdirat, openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};
use xxhash_rust::xxh64::xxh64;

use crate::store::beneath;

/// A folder to write to. Paths are below it.
#[derive(Debug)]
pub(in crate::cli) struct Destination {
    path: PathBuf,
    top: OwnedFd,
}

/// Links that are followed one after the other, as many as the kernel follows.
const LINKS: usize = 40;

/// Seconds and nanoseconds of a file's modification.
type Time = (i64, u32);

impl Destination {
    /// Opens a folder, and makes it if it is not there. Links in the path are followed: the user has typed it.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn make(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Opens a folder that is there; the empty path is the current one.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn open(path: &Path) -> io::Result<Self> {
        let place = if path == Path::new("") { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { path: path.to_owned(), top: rustix::fs::open(place, flags, Mode::empty())? })
    }

    /// The folder of a file that the user named, and the file's name. If it is a link that nobody else can have put
    /// there ([`own_target`]), those of its target.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for a path that ends with no name.
    pub(in crate::cli) fn of_file(path: &Path) -> io::Result<(Self, PathBuf)> {
        let place = own_target(path)?;
        let name =
            place.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "is no name of a file"))?;
        Ok((Self::open(place.parent().unwrap_or(Path::new("")))?, name.into()))
    }

    /// Makes a folder that the user named, and those above it that are missing. No link is followed below the nearest
    /// folder that is there. Returns that folder, and the path from it.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn make_below_nearest(path: &Path) -> io::Result<(Self, PathBuf)> {
        for folder in path.ancestors().skip(1) {
            match Self::open(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => {
                    let (to, below) = (opened?, path.strip_prefix(folder).unwrap_or(path).to_owned());
                    to.make_all(&below)?;
                    return Ok((to, below));
                }
            }
        }
        Err(Errno::NOENT.into())
    }

    /// Removes an empty folder. A link in its place stays.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn remove_folder(&self, below: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(below)?;
        Ok(unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    /// A path below it as the user would write it.
    pub(in crate::cli) fn shown(&self, below: &Path) -> PathBuf {
        // `join` of an empty path would add a slash.
        if below == Path::new("") { self.path.clone() } else { self.path.join(below) }
    }

    /// Returns the attributes of what is at a path, without following a link. `None` if nothing is there.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn stat(&self, below: &Path) -> io::Result<Option<Stat>> {
        let (folder, name) = self.parent(below)?;
        match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    /// Makes a folder and those above it, each if it is not there.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn make_all(&self, below: &Path) -> io::Result<()> {
        match self.folder(below) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(drop),
        }
        let made = beneath::walk(self.top.as_fd(), below, |at, name, _| {
            match mkdirat(at, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            beneath::step(at, name)
        });
        made.map(drop).map_err(as_link)
    }

    /// Makes a folder, which can be written to until [`Self::finish_folder`]; one that is there will do.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn make_folder(&self, below: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(below)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = self.folder(below)?;
        let mode = rustix::fs::fstat(&folder)?.st_mode;
        if mode & 0o700 != 0o700 {
            fs::set_permissions(by_descriptor(&folder), Permissions::from_mode(mode & 0o7777 | 0o700))?;
        }
        Ok(())
    }

    /// Gives a folder its mode and time.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::cli) fn finish_folder(&self, below: &Path, mode: u32, mtime: Time) -> io::Result<()> {
        let folder = self.folder(below)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = File::from(openat(&folder, c".", flags, Mode::empty())?);
        futimens(&folder, &times(mtime))?;
        folder.set_permissions(Permissions::from_mode(mode))
    }

    /// Writes a file under another name, and replaces what is at the path when it is whole. `fill` writes it, and
    /// returns whether to keep it. Without a mode it has the mode of any new file.
    ///
    /// # Errors
    /// What `fill` and the system say; if a device, pipe or socket is at the path.
    pub(in crate::cli) fn put_file<E: From<io::Error>>(
        &self,
        below: &Path,
        mode: Option<u32>,
        mtime: Option<Time>,
        fill: impl FnOnce(&File) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.put(below, (mode, mtime), fill, |folder, part, name| renameat(folder, part, folder, name))
    }

    /// As [`Self::put_file`], but replaces nothing.
    ///
    /// # Errors
    /// `AlreadyExists` if something is at the path when the file is whole.
    pub(in crate::cli) fn put_new<E: From<io::Error>>(
        &self,
        below: &Path,
        fill: impl FnOnce(&File) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.put(below, (None, None), fill, |folder, part, name| {
            match renameat_with(folder, part, folder, name, RenameFlags::NOREPLACE) {
                // Not every filesystem knows the flag. A link replaces nothing, either, if there are links.
                Err(Errno::INVAL) => match linkat(folder, part, folder, name, AtFlags::empty()) {
                    Ok(()) => unlinkat(folder, part, AtFlags::empty()),
                    Err(Errno::EXIST) => Err(Errno::EXIST),
                    Err(_) => renameat(folder, part, folder, name),
                },
                done => done,
            }
        })
    }

    /// Writes a file, and lets `rename` move it from the folder's part to its name when it is whole.
    fn put<E: From<io::Error>>(
        &self,
        below: &Path,
        (mode, mtime): (Option<u32>, Option<Time>),
        fill: impl FnOnce(&File) -> Result<bool, E>,
        rename: impl FnOnce(&OwnedFd, &str, &OsStr) -> rustix::io::Result<()>,
    ) -> Result<(), E> {
        let (folder, name) = self.parent(below)?;
        check_replaced(&folder, name)?;
        let (part, file) = make_part(&folder, name, if mode.is_some() { 0o600 } else { 0o666 })?;
        let done = fill(&file).and_then(|is_kept| {
            if is_kept {
                if let Some(mode) = mode {
                    file.set_permissions(Permissions::from_mode(mode))?;
                }
                if let Some(mtime) = mtime {
                    futimens(&file, &times(mtime)).map_err(io::Error::from)?;
                }
                rename(&folder, &part, name).map_err(io::Error::from)?;
            }
            Ok(is_kept)
        });
        if !matches!(done, Ok(true)) {
            let _ = unlinkat(&folder, &*part, AtFlags::empty());
        }
        done.map(drop)
    }

    /// Returns the target of the link at a path; `None` if it is not a link.
    pub(in crate::cli) fn link(&self, below: &Path) -> Option<OsString> {
        let (folder, name) = self.parent(below).ok()?;
        let target = readlinkat(&folder, name, Vec::new()).ok()?;
        Some(OsString::from_vec(target.into_bytes()))
    }

    /// Makes a link, and replaces what is at the path.
    ///
    /// # Errors
    /// What the system says; if a device, pipe or socket is at the path.
    pub(in crate::cli) fn put_link(&self, below: &Path, target: &OsStr, mtime: Time) -> io::Result<()> {
        let (folder, name) = self.parent(below)?;
        check_replaced(&folder, name)?;
        // A link can't be locked. Who holds the part has the name beside it, too.
        let (part, _lock) = make_part(&folder, name, 0o600)?;
        let link = link_name(&part);
        let done = symlinkat(target, &folder, &*link)
            .and_then(|()| utimensat(&folder, &*link, &times(mtime), AtFlags::SYMLINK_NOFOLLOW))
            .and_then(|()| renameat(&folder, &*link, &folder, name));
        if done.is_err() {
            let _ = unlinkat(&folder, &*link, AtFlags::empty());
        }
        let _ = unlinkat(&folder, &*part, AtFlags::empty());
        Ok(done?)
    }

    /// Opens a file to read it; `None` if there is none. A pipe does not block.
    ///
    /// # Errors
    /// What the system says, also of a link.
    pub(in crate::cli) fn read(&self, below: &Path) -> io::Result<Option<File>> {
        match beneath::open(&self.top, below, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Err(Errno::NOENT) => Ok(None),
            other => Ok(Some(other.map_err(as_link)?.into())),
        }
    }

    /// The folder that a path lies in, and its last name.
    fn parent<'a>(&self, below: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let mut parts = below.components();
        let Some(Component::Normal(name)) = parts.next_back() else { return Err(Errno::INVAL.into()) };
        Ok((self.folder(parts.as_path())?, name))
    }

    fn folder(&self, below: &Path) -> io::Result<OwnedFd> {
        // Without O_DIRECTORY, with which a link at the end is just no folder.
        let opened = beneath::open(&self.top, below, OFlags::PATH).map_err(as_link)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode) {
            FileType::Directory => Ok(opened),
            FileType::Symlink => Err(as_link(Errno::LOOP)),
            _ => Err(Errno::NOTDIR.into()),
        }
    }
}

/// Opens a file to append to it, and makes it if it is missing. A link is followed if nobody else can have put it there
/// ([`own_target`]).
///
/// # Errors
/// What the system says, also of other links.
pub(in crate::cli) fn append(path: &Path) -> io::Result<File> {
    let place = own_target(path)?;
    let opened = File::options().append(true).create(true).custom_flags(libc::O_NOFOLLOW).open(&place);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("is a symbolic link of another user; name the file itself"),
        _ => error,
    })
}

/// The file that is meant by a path which the user named: the target of a link, if the link belongs to this user or to
/// root, and stands in a folder where others cannot put or rename the files of this user. Any other link is meant
/// itself, because another user would choose its target.
///
/// # Errors
/// What the system says.
fn own_target(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..LINKS {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(link) = rustix::fs::open(&place, flags, Mode::empty()) else { break };
        let Ok(target) = readlinkat(&link, c"", Vec::new()) else { break };
        let folder = place.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let is_trusted = |owner: u32| owner == 0 || owner == rustix::process::geteuid().as_raw();
        let about = fs::metadata(folder)?;
        let is_open_to_others = about.mode() & 0o1002 == 0o002;
        if !is_trusted(File::from(link).metadata()?.uid()) || !is_trusted(about.uid()) || is_open_to_others {
            break;
        }
        place = folder.join(OsStr::from_bytes(target.as_bytes()));
    }
    Ok(place)
}

/// What a link on the way says.
fn as_link(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => {
            io::Error::other("a symbolic link is on the way, and not followed; remove it, or choose another place")
        }
        error => error.into(),
    }
}

/// A path that leads to a descriptor, whatever is now at the place where it was opened.
pub(in crate::cli) fn by_descriptor(opened: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", opened.as_raw_fd())
}

/// Refuses to replace a device, a pipe or a socket, or a link to one, such as `/dev/stdout`. Other links give way.
fn check_replaced(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let is_special = |there: Stat| {
        let kind = FileType::from_raw_mode(there.st_mode);
        !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink)
    };
    // What a process has open is a link below /proc, which may lead to an ordinary file now.
    let leads_to_open = || readlinkat(folder, name, Vec::new()).is_ok_and(|to| to.to_bytes().starts_with(b"/proc/"));
    let kinds = [AtFlags::SYMLINK_NOFOLLOW, AtFlags::empty()];
    if kinds.into_iter().any(|flags| statat(folder, name, flags).is_ok_and(is_special)) || leads_to_open() {
        return Err(io::Error::other("is not an ordinary file; choose another name"));
    }
    Ok(())
}

/// Makes the file that takes a name when it is whole. It is locked until it is closed: a part without a lock was left by
/// a run that was interrupted, and is removed. One with a lock belongs to another run that writes the same name.
fn make_part(folder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<(String, File)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut number = 0;
    loop {
        let part = part_name(name, number);
        number += 1;
        let create = || openat(folder, &*part, flags, Mode::from_raw_mode(mode));
        let file = match create() {
            Err(Errno::EXIST) => {
                remove_left(folder, &part);
                create()
            }
            made => made,
        };
        let file = match file {
            Err(Errno::EXIST) => continue,
            made => made?,
        };
        // A filesystem without locks has only the number. Otherwise another run can have taken it for a leftover in the
        // moment before it was locked.
        let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK);
        if is_locked && is_at(&file, folder, &part) {
            while remove_left(folder, &part_name(name, number)) {
                number += 1;
            }
            return Ok((part, file.into()));
        }
    }
}

/// Removes a part that no run is writing. Returns whether there was any.
fn remove_left(folder: &OwnedFd, part: &str) -> bool {
    let open = |access: OFlags| {
        openat(folder, part, access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
    };
    // Some servers lock only what can be written to, and a part that is nearly done may be read-only.
    match open(OFlags::WRONLY).or_else(|_| open(OFlags::RDONLY)) {
        Ok(file) => {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&file, folder, part) {
                let _ = unlinkat(folder, link_name(part), AtFlags::empty());
                let _ = unlinkat(folder, part, AtFlags::empty());
            }
            true
        }
        Err(error) => error != Errno::NOENT,
    }
}

/// Whether a name is still that of an open file. While the file is locked, it stays so.
fn is_at(file: &OwnedFd, folder: &OwnedFd, name: &str) -> bool {
    let own = rustix::fs::fstat(file).map(|own| (own.st_dev, own.st_ino));
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|there| own == Ok((there.st_dev, there.st_ino)))
}

/// A name that a file has until it is whole: short, whatever its own is.
fn part_name(name: &OsStr, number: u32) -> String {
    let name = format!(".shardfs-part-{:016x}", xxh64(name.as_bytes(), 0));
    if number == 0 { name } else { format!("{name}-{number}") }
}

/// The name of a link beside a part, until it has its own.
fn link_name(part: &str) -> String {
    format!("{part}-link")
}

fn times((seconds, nanos): Time) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Whether what stands somewhere is an ordinary file of a size and a time.
pub(in crate::cli) fn is_file_of(there: &Stat, size: u64, mtime: Time) -> bool {
    FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
        && u64::try_from(there.st_size) == Ok(size)
        && (there.st_mtime, there.st_mtime_nsec as u32) == mtime
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_below_a_destination_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (out, outside) = (place.path().join("out"), place.path().join("outside"));
        fs::create_dir_all(outside.join("inner")).unwrap();
        fs::create_dir(&out).unwrap();
        symlink("../outside", out.join("link")).unwrap();
        symlink("../outside/file", out.join("file")).unwrap();
        let to = Destination::make(&out).unwrap();
        let put = |path: &str| {
            to.put_file(Path::new(path), Some(0o644), None, |mut file| {
                io::Write::write_all(&mut file, b"x").map(|()| true)
            })
        };
        for path in ["link/file", "link/inner/file"] {
            assert!(put(path).unwrap_err().to_string().contains("link"), "{path}");
        }
        assert!(to.make_folder(Path::new("link")).is_err());
        assert!(to.make_folder(Path::new("link/new")).is_err());
        assert!(to.make_all(Path::new("link/new/folder")).is_err());
        assert!(to.finish_folder(Path::new("link"), 0o700, (1, 0)).is_err());
        assert!(to.put_link(Path::new("link/x"), OsStr::new("y"), (1, 0)).is_err());
        assert!(to.read(Path::new("file")).is_err());
        // A link at the end gives way to the file.
        put("file").unwrap();
        assert_eq!(
            (fs::read(out.join("file")).unwrap(), fs::read_link(out.join("file")).is_err()),
            (b"x".to_vec(), true)
        );
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_dir(outside.join("inner")).unwrap().count(), 0);
    }

    #[test]
    fn own_links_lead_to_files() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let (folder, link) = (place.join("folder"), place.join("link"));
        fs::create_dir(&folder).unwrap();
        symlink("folder/other", &link).unwrap();
        symlink("../file", folder.join("other")).unwrap();
        assert_eq!(own_target(&link).unwrap(), folder.join("../file"));
        let (to, name) = Destination::of_file(&link).unwrap();
        assert_eq!((to.shown(&name), own_target(Path::new("file")).unwrap()), (folder.join("../file"), "file".into()));
        // Others could have renamed it.
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(own_target(&link).unwrap(), folder.join("other"));
        assert!(append(&link).unwrap_err().to_string().contains("link"));
        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(own_target(&link).unwrap(), folder.join("../file"));
        append(&link).unwrap();
        assert!(place.join("file").is_file());
        symlink("circle", place.join("circle")).unwrap();
        assert!(append(&place.join("circle")).is_err());
    }

    #[test]
    fn folders_are_made_and_removed_beneath_the_nearest_one() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let (to, below) = Destination::make_below_nearest(&place.join("a/b")).unwrap();
        assert_eq!((&*to.shown(&below), place.join("a/b").is_dir()), (&*place.join("a/b"), true));
        // What has taken the place of a folder meanwhile is not entered.
        fs::create_dir_all(place.join("other/b")).unwrap();
        fs::rename(place.join("a"), place.join("old")).unwrap();
        symlink("other", place.join("a")).unwrap();
        assert!(to.remove_folder(&below).unwrap_err().to_string().contains("link"));
        assert!(place.join("other/b").is_dir() && place.join("old/b").is_dir());
        symlink("other", place.join("to")).unwrap();
        assert!(to.remove_folder(Path::new("to")).is_err() && place.join("to").is_dir());
        to.remove_folder(Path::new("old/b")).unwrap();
        assert!(!place.join("old/b").exists());
        // A link in what is there was typed by the user.
        Destination::make_below_nearest(&place.join("to/c/d")).unwrap();
        assert!(place.join("other/c/d").is_dir());
        symlink("nowhere", place.join("dangling")).unwrap();
        assert!(Destination::make_below_nearest(&place.join("dangling/e")).is_err());
        assert!(!place.join("nowhere").exists());
    }

    #[test]
    fn parts_have_short_names() {
        assert!(part_name(OsStr::new(&"x".repeat(255)), u32::MAX).len() < 64);
        assert_ne!(part_name(OsStr::new("x"), 0), part_name(OsStr::new("y"), 0));
    }

    #[test]
    fn runs_that_write_one_name_leave_each_other_alone() {
        let place = tempfile::tempdir().unwrap();
        let to = Destination::make(place.path()).unwrap();
        let [name, file] = [Path::new("name"), &place.path().join("name")];
        let write = |mut file: &File, text: &str| io::Write::write_all(&mut file, text.as_bytes()).map(|()| true);
        // What killed runs have left.
        for number in 0..3 {
            fs::write(place.path().join(part_name(name.as_os_str(), number)), "left").unwrap();
        }
        let put = to.put_file(name, None, None, |first| {
            write(first, "the ")?;
            to.put_file(name, Some(0o600), None, |second| write(second, "other"))?;
            assert_eq!(fs::read(file)?, b"other");
            to.put_link(name, OsStr::new("target"), (1, 0))?;
            assert_eq!(fs::read_link(file)?, Path::new("target"));
            to.put_file(name, None, None, |third| write(third, "gives up").map(|_| false))?;
            write(first, "first")
        });
        put.unwrap();
        assert_eq!(fs::read(file).unwrap(), b"the first");
        // Of two runs that replace nothing, the one that is done first has the name.
        fs::remove_file(file).unwrap();
        let put = to.put_new(name, |slow| {
            to.put_new(name, |quick| write(quick, "quick"))?;
            write(slow, "slow")
        });
        assert_eq!(
            (put.unwrap_err().kind(), fs::read(file).unwrap()),
            (io::ErrorKind::AlreadyExists, b"quick".to_vec())
        );
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
