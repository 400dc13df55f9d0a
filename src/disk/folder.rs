//! The folder of a cache: its user's own, reached through a descriptor.

use std::{
    ffi::{CString, OsStr},
    fs::{DirBuilder, File},
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::DirBuilderExt},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, fstatvfs, mkdirat, open, openat, renameat,
        statat, unlinkat,
    },
    io::Errno,
};

use super::Hash;
use crate::escape;

/// The folder of temporary files in it.
pub(super) const TEMPORARY: &str = "tmp";

/// The file whose lock a process holds while it evicts.
const LOCK: &str = "lock";

/// Tells backup programs that this is a cache (https://bford.info/cachedir/).
const TAG: (&str, &[u8]) = ("CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55\n");

/// How a file is made that must not be there.
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder that belongs to this user alone.
#[derive(Debug)]
pub(super) struct Folder {
    /// For messages.
    pub(super) path: PathBuf,
    folder: OwnedFd,
    /// Whether it lies on a filesystem of this machine.
    pub(super) is_local: bool,
}

impl Folder {
    /// Opens the folder, and makes it if it is missing.
    ///
    /// # Errors
    /// As [`super::Disk::open`].
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let own = Self::existing(path)?;
        own.make(TEMPORARY)?;
        if let Ok(tag) = openat(&own.folder, TAG.0, NEW, Mode::RUSR | Mode::WUSR)
            && io::Write::write_all(&mut File::from(tag), TAG.1).is_err()
        {
            // The disk is full: the cache rests until it is not.
            own.discard(TAG.0);
        }
        Ok(own)
    }

    /// Opens a folder that exists.
    ///
    /// # Errors
    /// As [`super::Disk::existing`].
    pub(super) fn existing(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let refused = |why: &str| {
            let text = format!("{}: {why}", path.display());
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        };
        let folder = match open(path, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(refused("not a folder, or a symbolic link to one")),
            folder => folder?,
        };
        let stat = fstat(&folder)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refused("belongs to another user"));
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(refused(&format!("other users may look into it; run `chmod 700 {}`", path.display())));
        }
        let is_local = crate::filesystem::is_local(&folder);
        Ok(Self { path: path.to_owned(), folder, is_local })
    }

    /// Opens the file of a blob for reading. `None` if there is none.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn open_blob(&self, hash: &Hash) -> io::Result<Option<File>> {
        // NONBLOCK, so that a pipe in its place does not block.
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(self.open(&name(hash), flags)?.map(File::from))
    }

    /// Returns whether there is a file for a blob.
    pub(super) fn has(&self, hash: &Hash) -> bool {
        statat(&self.folder, name(hash), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    }

    /// Removes the file of a blob, if there is one.
    pub(super) fn remove(&self, hash: &Hash) {
        let _ = unlinkat(&self.folder, name(hash), AtFlags::empty());
    }

    /// Makes a file with a unique name, and locks it. A temporary file without a lock was left by a process that was
    /// killed.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn temporary(&self) -> io::Result<(File, String)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            // Processes in different containers may have the same number.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let name = format!("{TEMPORARY}/{}-{now}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
            let create = || openat(&self.folder, &name, NEW, Mode::RUSR | Mode::WUSR);
            let file = match create() {
                Err(Errno::NOENT) => {
                    self.make(TEMPORARY)?;
                    create()?
                }
                file => file?,
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if fstat(&file)?.st_nlink > 0 => return Ok((file.into(), name)),
                // Another process took it for a leftover in the moment before it was locked.
                Ok(()) | Err(Errno::WOULDBLOCK) => self.discard(&name),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes a temporary file that no process is writing.
    pub(super) fn remove_if_left(&self, name: &str) {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(Some(file)) = self.open(name, flags) else { return };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            self.discard(name);
        }
    }

    /// Removes a temporary file.
    pub(super) fn discard(&self, temporary: &str) {
        let _ = unlinkat(&self.folder, temporary, AtFlags::empty());
    }

    /// Renames a temporary file to its place as a blob, and replaces what was there.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn keep(&self, temporary: &str, hash: &Hash) -> io::Result<()> {
        let name = name(hash);
        match renameat(&self.folder, temporary, &self.folder, &name) {
            Err(Errno::NOENT) => {
                self.make(&name[..2])?;
                Ok(renameat(&self.folder, temporary, &self.folder, &name)?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Returns how many bytes this user may still write to the filesystem.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn free(&self) -> io::Result<u64> {
        let at = fstatvfs(&self.folder)?;
        Ok(at.f_bavail.saturating_mul(at.f_frsize))
    }

    /// Takes the lock for evicting, which ends when the file is dropped. `None` while another process has it.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            locked => locked.map(|()| Some(file.into())).map_err(Into::into),
        }
    }

    /// Opens one of the folders in it; `None` if it is missing.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn part(&self, name: &str) -> io::Result<Option<OwnedFd>> {
        Ok(self.open(name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)?)
    }

    /// Makes a folder in it, unless it is there.
    fn make(&self, name: &str) -> rustix::io::Result<()> {
        match mkdirat(&self.folder, name, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        }
    }

    /// Opens what has a name in it; `None` if there is nothing.
    fn open(&self, name: &str, flags: OFlags) -> rustix::io::Result<Option<OwnedFd>> {
        match openat(&self.folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some),
        }
    }
}

/// Returns the path of a blob below the folder: two hexadecimal digits of its hash, a slash, the other digits.
pub(super) fn name(hash: &Hash) -> String {
    let mut name = escape::hex(hash);
    name.insert(2, '/');
    name
}

/// Returns whether a file in a part may be a blob, by its name.
pub(super) fn is_blob(name: &CString) -> bool {
    let name = OsStr::from_bytes(name.to_bytes());
    name.len() == 62 && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}
