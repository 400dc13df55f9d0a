//! The mounts that the kernel knows, from /proc/self/mountinfo: reading it never asks a mount, so none can hang.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fmt::Display,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
};

/// The kernel's table.
const TABLE: &str = "/proc/self/mountinfo";

/// The filesystem type of our mounts, by which `findmnt -t` and PRUNEFS of updatedb know them.
pub(crate) const KIND: &str = "fuse.shardfs";

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its number. After the mount is gone, another one may get it; together with the device it identifies this one as
    /// long as the filesystem exists.
    pub(crate) id: u64,
    /// The mount below it.
    pub(crate) parent: u64,
    /// Device number: major, minor.
    pub(crate) device: (u32, u32),
    /// Where it is.
    pub(crate) at: PathBuf,
    /// `fuse.shardfs` and the like.
    pub(crate) kind: String,
    /// The mounted source.
    pub(crate) source: PathBuf,
    /// The user who mounted it, for a FUSE mount.
    pub(crate) user: Option<u32>,
}

impl Mount {
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == KIND
    }

    /// Opens the root of the mount, without asking its filesystem. `None` if a path no longer leads to it.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(&self) -> io::Result<Option<OwnedFd>> {
        let (root, id) = open_place(&self.at)?;
        Ok((id == self.id).then_some(root))
    }

    /// Returns the mount as it is now, perhaps at another place; `None` if it is gone.
    ///
    /// # Errors
    /// As [`all`].
    pub(crate) fn now(&self) -> io::Result<Option<Self>> {
        Ok(all()?.into_iter().find(|mount| (mount.id, mount.device) == (self.id, self.device)))
    }

    /// Returns the file that ends the kernel's connection to the process which serves this mount. Its folder is named
    /// by the minor number of the device. `None` if fusectl is not mounted.
    pub(crate) fn abort_file(&self) -> io::Result<Option<PathBuf>> {
        let control = all()?.into_iter().find(|mount| mount.kind == "fusectl");
        Ok(control.map(|control| control.at.join(self.device.1.to_string()).join("abort")))
    }
}

/// What was made of the kernel's table. It is made again when the table has changed.
pub(crate) struct OfTable<T>(Option<Made<T>>);

struct Made<T> {
    /// Tells when the table changes.
    table: fs::File,
    is_stale: bool,
    value: T,
}

impl<T> OfTable<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Returns what `make` makes of the mounts that there are now. If no descriptor is free to read the table, what was
    /// made before is returned until the next call; `None` if that is nothing.
    pub(crate) fn now(&mut self, make: impl FnOnce(Vec<Mount>) -> T) -> Option<&T> {
        if let Some(made) = &mut self.0 {
            let mut polled = [PollFd::new(&made.table, PollFlags::PRI)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            made.is_stale |= poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::PRI);
        }
        if self.0.as_ref().is_none_or(|made| made.is_stale)
            && let (Ok(table), Ok(mounts)) = (fs::File::open(TABLE), all())
        {
            self.0 = Some(Made { table, is_stale: false, value: make(mounts) });
        }
        self.0.as_ref().map(|made| &made.value)
    }
}

/// Returns all mounts that this process can see.
///
/// # Errors
/// If the kernel's table cannot be read.
pub(crate) fn all() -> io::Result<Vec<Mount>> {
    let table = fs::read(TABLE).map_err(at_place(TABLE))?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// Returns the visible mount at a place: the topmost of several.
///
/// # Errors
/// As [`all`].
pub(crate) fn at(place: &Path) -> io::Result<Option<Mount>> {
    let mut there = all()?;
    there.retain(|mount| mount.at == place);
    let covered: Vec<u64> = there.iter().map(|mount| mount.parent).collect();
    Ok(there.into_iter().rev().find(|mount| !covered.contains(&mount.id)))
}

/// Returns the visible mount of shardfs at a place, if there is one.
///
/// # Errors
/// As [`all`].
pub(crate) fn ours_at(place: &Path) -> io::Result<Option<Mount>> {
    Ok(at(place)?.filter(Mount::is_ours))
}

/// Returns the mount that a path leads to now, which is the one that was just made there. Asks no filesystem.
///
/// # Errors
/// If there is none.
pub(crate) fn just_made(place: &Path) -> io::Result<Mount> {
    let (_, id) = open_place(place)?;
    let found = all()?.into_iter().find(|mount| mount.id == id && mount.is_ours());
    found.ok_or_else(|| io::Error::other(format!("{}: mounted, but another mount is seen there", place.display())))
}

/// Returns the mount that hides one of `all`: a mount on top of it, or on a folder above its place.
pub(crate) fn hidden_by<'a>(mount: &Mount, all: &'a [Mount]) -> Option<&'a Mount> {
    let stands_on = |other: &&Mount| other.parent == mount.id && other.at == mount.at;
    let is_above = |other: &&Mount| {
        other.parent == mount.parent && other.id != mount.id && other.at != mount.at && mount.at.starts_with(&other.at)
    };
    let parent = || all.iter().find(|other| other.id == mount.parent && other.id != mount.id && other.at != mount.at);
    all.iter()
        .find(stands_on)
        .or_else(|| all.iter().find(is_above))
        .or_else(|| parent().and_then(|parent| hidden_by(parent, all)))
}

/// Returns the mounts on top of a mount, at its root or below.
pub(crate) fn standing_on<'a>(mount: &Mount, all: &'a [Mount]) -> impl Iterator<Item = &'a Mount> {
    let id = mount.id;
    all.iter().filter(move |other| other.parent == id && other.id != id)
}

/// Adds the place to an error.
fn at_place(place: impl Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{place}: {error}"))
}

/// Returns a descriptor that only names what a path leads to, and the number of the mount that it is on.
fn open_place(place: &Path) -> io::Result<(OwnedFd, u64)> {
    let root = open(place, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let root = root.map_err(|error| at_place(place.display())(error.into()))?;
    let info = format!("/proc/self/fdinfo/{}", root.as_raw_fd());
    let text = fs::read_to_string(&info).map_err(at_place(&info))?;
    let id = mount_id(&text).ok_or_else(|| io::Error::other(format!("{info}: no mnt_id")))?;
    Ok((root, id))
}

/// Returns the number of the mount that an open file is on, from its text in `fdinfo`.
pub(crate) fn mount_id(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

/// Returns a mount point's absolute path, with links in it followed. The filesystem mounted there is not asked, because
/// it may be dead: a place in the kernel's table is taken as it is, and so is everything inside a shardfs.
///
/// # Errors
/// If the current folder is gone, or links form a circle.
pub(crate) fn without_asking(mountpoint: &Path) -> io::Result<PathBuf> {
    let named = at_place(mountpoint.display());
    let all = all()?;
    let mut left: VecDeque<OsString> = parts(&std::path::absolute(mountpoint).map_err(named)?).collect();
    let mut found = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            found.pop();
            continue;
        }
        found.push(part);
        if all.iter().any(|mount| found.starts_with(&mount.at) && (mount.is_ours() || mount.at == found)) {
            continue;
        }
        if let Ok(target) = fs::read_link(&found) {
            links += 1;
            if links > 40 {
                return Err(io::Error::other(format!("{}: too many links", mountpoint.display())));
            }
            found.pop();
            if target.is_absolute() {
                found = PathBuf::from("/");
            }
            parts(&target).rev().for_each(|part| left.push_front(part));
        }
    }
    Ok(found)
}

/// Returns the names in a path, `..` included.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned())
}

/// `id parent major:minor root mountpoint options [tags ...] - type source super-options`
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let device = text(fields.get(2)?);
    let (major, minor) = device.split_once(':')?;
    let options = text(fields.get(dash + 3).unwrap_or(&&b""[..]));
    Some(Mount {
        id: text(fields.first()?).parse().ok()?,
        parent: text(fields.get(1)?).parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        at: path(fields.get(4)?),
        kind: text(fields.get(dash + 1)?),
        source: path(fields.get(dash + 2)?),
        user: options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok()),
    })
}

/// Decodes the kernel's escapes, such as `\040` for a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut parts = field.split(|&byte| byte == b'\\');
    let mut out = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let code = part.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let (byte, rest) = match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (byte, &part[3..]),
            None => (b'\\', part),
        };
        out.push(byte);
        out.extend(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = b"36 25 0:49 / /mnt/my\\040data rw,nosuid - fuse.shardfs /srv/a\\134b ro,user_id=1000,group_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device, mount.at, mount.user), ((0, 49), "/mnt/my data".into(), Some(1000)));
        assert_eq!((&*mount.kind, mount.source), ("fuse.shardfs", r"/srv/a\b".into()));
        let tagged = b"25 1 253:1 / / rw shared:1 master:2 - ext4 /dev/vda1 rw";
        assert_eq!(parse(tagged).unwrap().kind, "ext4");
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn mounts_that_are_hidden() {
        let line = |text: &str| parse(text.as_bytes()).unwrap();
        let all = [
            line("1 0 8:1 / / rw - ext4 /dev/sda rw"),
            line("2 1 0:40 / /mnt/x ro - fuse.shardfs /data ro"),
            line("3 2 0:41 / /mnt/x rw - tmpfs tmpfs rw"),
            line("4 1 0:42 / /a/b ro - fuse.shardfs /data ro"),
            line("5 1 0:43 / /a rw - tmpfs tmpfs rw"),
            line("6 1 0:44 / /c ro - fuse.shardfs /data ro"),
            line("7 6 0:45 / /c/below rw - tmpfs tmpfs rw"),
        ];
        let by = all.iter().map(|mount| hidden_by(mount, &all).map(|other| other.id)).collect::<Vec<_>>();
        assert_eq!(by, [None, Some(3), None, Some(5), None, None, None]);
        assert_eq!(standing_on(&all[5], &all).map(|mount| mount.id).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn the_root_is_a_mount_that_nothing_hides() {
        let (_, id) = open_place(Path::new("/")).unwrap();
        let root = at(Path::new("/")).unwrap().unwrap();
        assert_eq!(root.id, id);
        assert!(root.open().unwrap().is_some());
        assert_eq!(root.now().unwrap(), Some(root));
    }

    #[test]
    fn mountinfo_escapes() {
        assert_eq!(unescape(br"/mnt/a\040b\134c"), br"/mnt/a b\c");
        assert_eq!(unescape(br"end\04"), br"end\04");
    }
}
