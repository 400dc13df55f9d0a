//! Where the files below SOURCE come from: look up, list, open, watch, by paths below its top.
//!
//! `Store` is all that the layers above know of SOURCE. `LocalStore` is a folder of this machine, reached beneath a
//! descriptor so that no link and no rename leads out of it; `remote` holds buckets and web servers.

pub(crate) mod beneath;
mod local;
pub(crate) mod mapped;
pub(crate) mod own_mounts;
#[cfg(feature = "remote")]
pub(crate) mod remote;
mod status;
pub(crate) mod unveiled;
mod watch;

use std::{
    cmp::Ordering,
    ffi::{OsStr, OsString},
    fs::File as Descriptor,
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

pub(crate) use local::LocalStore;
pub use mapped::MappedFile;
#[cfg(feature = "remote")]
pub use remote::Detect;
pub(crate) use watch::{Changes, DirEvent, Watch};

use crate::{
    disk::Disk,
    limits,
    source::{Source, Wait},
};

/// Which symbolic links below SOURCE are shown as what they point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FollowLinks {
    /// None; links are shown as links
    #[default]
    No,
    /// Links to a place inside SOURCE
    Inside,
    /// All links; anyone who may write to SOURCE then chooses which of your files are shown
    Outside,
}

impl FollowLinks {
    /// Returns whether any link is followed.
    pub fn follows(self) -> bool {
        self != Self::No
    }

    /// Returns the path of SOURCE without links on the way. If all links are followed, a file that is a link keeps its
    /// name: in the caches of DVC and Hugging Face the files that belong to it lie beside the link.
    ///
    /// # Errors
    /// That it is not there, or cannot be reached.
    pub(crate) fn resolve(self, source: &Path) -> io::Result<PathBuf> {
        match (source.parent(), source.file_name()) {
            (Some(folder), Some(name)) if self == Self::Outside && source.is_file() => {
                Ok(Path::new(".").join(folder).canonicalize()?.join(name))
            }
            _ => source.canonicalize(),
        }
    }

    /// Returns what to say behind why a file is no container, if SOURCE is a link to it and has lost its name.
    pub(crate) fn hint(self, source: &Path) -> String {
        if self == Self::Outside || !source.is_symlink() {
            return String::new();
        }
        format!("; {} is a link to it, which --follow-links=outside opens by its own name", source.display())
    }
}

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A symbolic link that is not followed.
    Link,
    /// A socket, a pipe or a device. Never opened and never shown.
    Other,
}

/// Attributes of a file, known without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Permission bits. For the target of a followed link, without the bits of users who could not reach it themselves.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether a symbolic link was followed to get here, at the end of the path or on the way.
    pub via_link: bool,
    /// The state of the file.
    pub version: Version,
}

/// One state of a file. A container is parsed for one version and read only while its file still has it.
///
/// For a local file it is device, inode, size, modification time and change time. A change time that moved is another
/// state, even if only the mode or the number of links changed, because the kernel does not tell programs which it was.
/// For an object it is a hash of what its server uses to tell states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Device and inode number; for an object the halves of its hash.
    file: FileId,
    size: u64,
    /// Seconds of modification and change, and their nanoseconds; for an object 0 and [`NO_TIME`].
    seconds: [i64; 2],
    nanos: [u32; 2],
}

/// Marks the version of an object: no time has this many nanoseconds.
const NO_TIME: u32 = u32::MAX;

/// Identity of a file, whatever its contents. A name that refers to another file is another node; a file that grows
/// stays the same one. An object never grows: each of its states has another identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

/// Returns where a path leads, with links resolved. Its end need not be there yet.
///
/// # Errors
/// If a `..` follows what is not there.
pub(crate) fn place_of(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let there = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let Some((part, real)) = there else { return Ok(absolute) };
    let rest = absolute.strip_prefix(part).unwrap_or(Path::new(""));
    if rest.components().any(|component| component == Component::ParentDir) {
        return Err(io::Error::other("'..' behind a folder that is not there"));
    }
    // `join` of an empty path would add a slash, and a file is no folder.
    Ok(if rest == Path::new("") { real } else { real.join(rest) })
}

impl FileId {
    /// The identity if no file could be looked at.
    pub(crate) const UNKNOWN: Self = Self(0, 0);

    /// Returns the device number of a local file's filesystem.
    fn device(self) -> u64 {
        self.0
    }

    /// Returns the identity as bytes, for hashes.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.1) << 64 | u128::from(self.0)).to_le_bytes()
    }
}

impl Version {
    /// Returns the version of a local file.
    pub(crate) fn local(dev: u64, ino: u64, size: u64, mtime: (i64, u32), ctime: (i64, u32)) -> Self {
        Self { file: FileId(dev, ino), size, seconds: [mtime.0, ctime.0], nanos: [mtime.1, ctime.1] }
    }

    /// Returns the version of an object, from a hash of its state.
    pub(crate) fn object(hash: u128, size: u64) -> Self {
        Self { file: FileId((hash >> 64) as u64, hash as u64), size, seconds: [0; 2], nanos: [NO_TIME; 2] }
    }

    /// Returns the modification and change times of a local file.
    fn times(&self) -> Option<[(i64, u32); 2]> {
        let [modified, changed] = self.seconds;
        (self.nanos != [NO_TIME; 2]).then_some([(modified, self.nanos[0]), (changed, self.nanos[1])])
    }

    /// Returns the file of which this is a state.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Returns the whole version as bytes, for hashes.
    pub(crate) fn to_bytes(self) -> [u8; 48] {
        let numbers = [self.file.0, self.file.1, self.size, self.seconds[0] as u64, self.seconds[1] as u64];
        let mut bytes = [0; 48];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&self.nanos[0].to_le_bytes());
        bytes[44..].copy_from_slice(&self.nanos[1].to_le_bytes());
        bytes
    }

    /// Returns a name of the state that is the same on every machine. Different names of one file are different states.
    pub(crate) fn text(&self) -> String {
        match self.times() {
            Some([modified, _]) => format!("{:x}-{:x}.{:x}", self.size, modified.0, modified.1),
            None => format!("{:x}-{:x}", self.size, u128::from(self.file.0) << 64 | u128::from(self.file.1)),
        }
    }

    /// Returns whether size and modification time are the same, so that the kernel would not notice the change.
    pub(crate) fn looks_like(&self, other: &Self) -> bool {
        let modified = |version: &Self| version.times().map(|[modified, _]| modified);
        match (modified(self), modified(other)) {
            (Some(own), Some(others)) => (self.size, own) == (other.size, others),
            _ => self.size == other.size,
        }
    }

    /// Returns the newest of the file's times; `None` for an object.
    fn newest(&self) -> Option<(i64, u32)> {
        self.times().map(|[modified, changed]| modified.max(changed))
    }

    /// Returns whether the file was written to a moment ago.
    pub(crate) fn is_recent(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let newest = self.newest().map(|newest| u64::try_from(newest.0).unwrap_or(0));
        newest.is_some_and(|newest| newest.saturating_add(limits::QUIET_SECONDS) > now.as_secs())
    }

    /// Returns how long to wait until no write can be under way that would not move the file's times again. Zero for
    /// times in the future, and for objects, which are written whole.
    pub(crate) fn unsettled(&self) -> Duration {
        let Some(newest) = self.newest() else { return Duration::ZERO };
        let Ok(seconds) = u64::try_from(newest.0) else { return Duration::ZERO };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = now.checked_sub(Duration::new(seconds, newest.1));
        age.map_or(Duration::ZERO, |age| Duration::from_millis(limits::SETTLED_MILLIS).saturating_sub(age))
    }
}

/// The path of a file below SOURCE. Files of one folder share the folder's part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath {
    folder: Arc<Path>,
    name: Box<OsStr>,
}

impl FilePath {
    /// Returns the path of a name in a folder.
    pub fn new(folder: Arc<Path>, name: &OsStr) -> Self {
        Self { folder, name: name.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Arc<Path> {
        &self.folder
    }

    /// The last part.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the whole path below SOURCE.
    pub fn to_path_buf(&self) -> PathBuf {
        self.folder.join(&*self.name)
    }

    /// Returns the bytes of the path in two parts, which `/` would join.
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [self.folder.as_os_str().as_bytes(), self.name.as_bytes()]
    }
}

/// Space of the filesystem that holds SOURCE, in units of `block` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) block: u64,
    pub(crate) used_blocks: u64,
    pub(crate) used_files: u64,
}

/// Returns the error of an operation that would have to wait, and may not.
pub(crate) fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

/// Returns whether an error is [`would_block`], and not the operating system's `EAGAIN`.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock && error.raw_os_error().is_none()
}

/// Returns the errno of a store's error: the system's, or the one that a remote store chose.
pub(crate) fn errno(error: &io::Error) -> Option<i32> {
    #[cfg(feature = "remote")]
    let of_remote = remote::object::errno(error);
    #[cfg(not(feature = "remote"))]
    let of_remote = None;
    let by_kind = match error.kind() {
        io::ErrorKind::NotFound => Some(libc::ENOENT),
        io::ErrorKind::OutOfMemory => Some(libc::ENOMEM),
        _ => None,
    };
    error.raw_os_error().or(of_remote).or(by_kind)
}

/// A read-only tree of files. Paths are relative to its top; the empty path is the top itself.
pub(crate) trait Store: Send + Sync {
    /// Returns the attributes of a path; `None` if nothing is there.
    ///
    /// # Errors
    /// What the operating system says; `ESTALE` if the top itself is gone; [`would_block`] if a caller who waits for
    /// nothing would have to, which says nothing about the path.
    fn stat(&self, path: &Path, wait: Wait) -> io::Result<Option<Stat>>;

    /// Announces that a path is looked at next, and read if it is a file. A store that is reached by requests then takes
    /// one for both, and lists no folder for it.
    fn expect(&self, _path: &Path) {}

    /// Announces that these names in a folder are looked at next, and with `lists` all others as well. A store that is
    /// reached by requests then asks for them together.
    ///
    /// # Errors
    /// As [`Self::stat`]; what is not allowed is no error.
    fn expect_in(&self, _folder: &Path, _names: &[&OsStr], _lists: bool) -> io::Result<()> {
        Ok(())
    }

    /// Returns the name by which a folder shows what is called `part` in it. Only a store whose names need not be those
    /// of files, such as keys, shows others than it has.
    fn name_of(&self, _folder: &Path, part: &OsStr) -> OsString {
        part.to_owned()
    }

    /// Returns what is called so in a folder that shows it by this name.
    fn part_of(&self, _folder: &Path, name: &OsStr) -> OsString {
        name.to_owned()
    }

    /// Opens a folder, to list it.
    ///
    /// # Errors
    /// As [`Self::stat`]; `ENOENT` or `ENOTDIR` if there is no such folder.
    fn folder<'a>(&'a self, path: &Path) -> io::Result<Box<dyn Folder + 'a>>;

    /// Opens a regular file. Nothing else is ever opened: no pipe, no device.
    ///
    /// # Errors
    /// As [`Self::stat`]; `ENOENT` if there is none, `InvalidInput` if it is no regular file.
    fn open(&self, path: &Path, wait: Wait) -> io::Result<Arc<dyn File>>;

    /// Returns the target of a symbolic link, as stored.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn read_link(&self, path: &Path) -> io::Result<OsString>;

    /// Returns the path of a file with links on the way resolved, as far as they are followed; `None` if it does not
    /// lie below the top.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn without_links(&self, path: &Path) -> io::Result<Option<PathBuf>>;

    /// Watches a folder from now on, if possible. Must be called before the folder is looked at. With [`Wait::Never`] the
    /// watch is alive only if the folder was watched already.
    fn watch(&self, folder: &Path, wait: Wait) -> Watch;

    /// Returns the number of watched folders.
    fn watched(&self) -> usize;

    /// Waits for changes in watched folders, for at most `timeout`.
    fn wait_for_changes(&self, timeout: Duration) -> Changes;

    /// Ends the current wait, or else the next one.
    fn wake(&self);

    /// Whether a file lies on another filesystem than the top, which can be unmounted by itself.
    fn is_elsewhere(&self, _file: FileId) -> bool {
        false
    }

    /// Returns the space and files of the filesystem below the top.
    ///
    /// # Errors
    /// As [`Self::stat`].
    fn usage(&self) -> io::Result<Usage>;

    /// Returns whether looking into a file takes a request. Then its name says what it is until it is first looked
    /// into.
    fn detects_by_name(&self) -> bool {
        false
    }

    /// Returns whether opening a file takes a request to a server.
    fn is_far(&self) -> bool {
        false
    }

    /// Returns how many files should be looked into at once, if each takes a request.
    fn looked_into_at_once(&self) -> usize {
        1
    }

    /// Forgets what is remembered of names, so that the next look asks again.
    fn refresh(&self) {}

    /// Returns the disk of this machine on which bytes of files are kept, if there is one.
    fn disk(&self) -> Option<&Arc<Disk>> {
        None
    }

    /// Returns what was remembered of a file in this state, perhaps by another process.
    fn recall(&self, _version: &Version) -> Option<Vec<u8>> {
        None
    }

    /// Remembers a word about a file in this state, if looking into it again would take a request.
    fn remember(&self, _version: &Version, _word: &[u8]) {}

    /// Waits some seconds at most until what is kept of files is on disk. For a process that ends.
    fn finish(&self) {}

    /// Returns counters of network traffic for `stats.json`; `None` for a store without a network.
    fn traffic(&self) -> Option<serde_json::Value> {
        None
    }
}

/// The names in a folder at the time when it was listed.
pub(crate) trait Names: Send + Sync {
    /// Returns the number of names.
    fn len(&self) -> usize;

    /// Returns the name of that number; empty if there is none.
    fn name(&self, at: usize) -> &OsStr;

    /// Returns the number of a name.
    fn find(&self, name: &OsStr) -> Option<usize> {
        let (mut start, mut end) = (0, self.len());
        while start < end {
            let middle = start.midpoint(end);
            match self.name(middle).cmp(name) {
                Ordering::Less => start = middle + 1,
                Ordering::Equal => return Some(middle),
                Ordering::Greater => end = middle,
            }
        }
        None
    }
}

impl Names for Vec<OsString> {
    fn len(&self) -> usize {
        self.len()
    }

    fn name(&self, at: usize) -> &OsStr {
        self.get(at).map_or(OsStr::new(""), |name| name)
    }
}

/// An opened folder.
pub(crate) trait Folder {
    /// Returns its state now, which changes when names come or go.
    ///
    /// # Errors
    /// What the operating system says.
    fn version(&self) -> io::Result<Version>;

    /// Returns the names in it, in order.
    ///
    /// # Errors
    /// What the operating system says.
    fn names(&self) -> io::Result<Arc<dyn Names>>;

    /// Returns the attributes of a name in it, as [`Store::stat`] would.
    ///
    /// # Errors
    /// As [`Store::stat`].
    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>>;
}

/// An opened file, with its bytes by range.
pub(crate) trait File: Source {
    /// Returns the attributes that its path had when it was opened, as [`Store::stat`] does.
    fn stat(&self) -> &Stat;

    /// Returns the state that was opened. The source fails with `Changed` once the file is in another.
    fn version(&self) -> Version {
        self.stat().version
    }

    /// Returns the file's own name, after all links are resolved.
    fn name(&self) -> &OsStr;

    /// Returns the file's attributes now, whatever has happened to its name. What the kernel remembers is enough.
    ///
    /// # Errors
    /// What the operating system says.
    fn stat_now(&self) -> io::Result<Stat>;

    /// Returns whether the file has lost its last name, so that only this opened file keeps its space.
    fn is_deleted(&self) -> bool;

    /// Returns the bytes that are there now, even if the file has changed; fewer than asked for at the end. For files
    /// that are shown as they are, and may grow while they are read.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_now(&self, offset: u64, length: usize) -> io::Result<Vec<u8>>;

    /// Returns a descriptor for the kernel to read from by itself.
    ///
    /// # Errors
    /// If no descriptors are left, or the store has none to give.
    fn descriptor(&self) -> io::Result<Descriptor>;
}
