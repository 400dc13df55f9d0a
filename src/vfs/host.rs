//! Files of SOURCE: what is known of one, which container that makes it, and how it is opened.

use std::{
    fs,
    hash::{Hash, Hasher},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use xxhash_rust::xxh3::Xxh3;

use crate::{
    limits,
    source::{Fingerprint, MappedFile},
    tree::Format,
};

/// What `lstat` says of a file of SOURCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileMeta {
    pub(super) fingerprint: Fingerprint,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// A file of the host: a name that comes to mean another file is another node, a file that grows is the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HostFile {
    dev: u64,
    pub(super) ino: u64,
}

impl HostFile {
    pub(super) fn of(fingerprint: &Fingerprint) -> Self {
        Self { dev: fingerprint.dev, ino: fingerprint.ino }
    }
}

impl FileMeta {
    pub(super) fn of(meta: &fs::Metadata) -> Self {
        Self { fingerprint: Fingerprint::of(meta), mode: meta.mode() & 0o777, uid: meta.uid(), gid: meta.gid() }
    }

    pub(super) fn size(&self) -> u64 {
        self.fingerprint.size
    }

    /// Which file of the host it is, whatever its content.
    pub(super) fn host(&self) -> HostFile {
        HostFile::of(&self.fingerprint)
    }
}

/// One state of one container file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContainerId {
    /// A hash of path and state, made once: every request looks its container up.
    pub(super) number: u64,
    /// Path below SOURCE, as it is shown; empty if SOURCE is the container.
    pub(super) path: PathBuf,
    /// Where the file is.
    pub(super) full: PathBuf,
    pub(super) format: &'static Format,
    pub(super) meta: FileMeta,
    /// The state of the other files that it shows: of a manifest's chunks. 0 where there are none.
    pub(super) others: u64,
}

impl Hash for ContainerId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl ContainerId {
    /// A file of this path below SOURCE, which is at `full` and in this state.
    pub(super) fn new(path: PathBuf, full: PathBuf, format: &'static Format, meta: FileMeta, others: u64) -> Self {
        // The change time is part of the state: it tells a file that was rewritten and given its old modification time.
        // Device and inode number are not, since they may differ after a reboot.
        let Fingerprint { size, mtime, ctime, .. } = meta.fingerprint;
        let mut hash = Xxh3::new();
        for number in [size, mtime.0 as u64, mtime.1 as u64, ctime.0 as u64, ctime.1 as u64, others] {
            hash.update(&number.to_le_bytes());
        }
        hash.update(path.as_os_str().as_bytes());
        Self { number: hash.digest(), path, full, format, meta, others }
    }

    /// The same file, where the other files that it shows are in this state.
    pub(super) fn with_others(&self, others: u64) -> Self {
        Self::new(self.path.clone(), self.full.clone(), self.format, self.meta, others)
    }

    /// The container's name in messages: relative to SOURCE, or SOURCE's own name.
    pub(super) fn shown(&self) -> PathBuf {
        shown(&self.path, &self.full)
    }
}

/// A path below SOURCE for messages: never empty.
pub(super) fn shown(path: &Path, full: &Path) -> PathBuf {
    let name = full.file_name().filter(|_| path == Path::new(""));
    name.map_or_else(|| path.to_path_buf(), PathBuf::from)
}

/// How many containers this process may keep open.
pub(super) fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / limits::DESCRIPTORS_PART).unwrap_or(usize::MAX).clamp(8, limits::OPEN_SOURCES)
}

/// Opens a file, and where descriptors have run out waits a moment for others to give theirs back.
pub(super) fn open_patiently(path: &Path) -> io::Result<MappedFile> {
    for pause in [1, 5, 20, 100, 200] {
        match MappedFile::open(path) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                std::thread::sleep(Duration::from_millis(pause));
            }
            other => return other,
        }
    }
    MappedFile::open(path)
}
