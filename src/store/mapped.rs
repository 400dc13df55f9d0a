//! A local file, read by range.
//!
//! Everything that looks *at* bytes (parsers, decoders, checksums) reads them with `pread` into memory of its own; the
//! map is only ever handed to the kernel, as the buffer of a `write(2)`. A file that is truncated meanwhile therefore
//! costs the reader an `EIO`, never the daemon its life by SIGBUS. Bytes are of one state of the file: its version is
//! compared after they were copied.

use std::{
    ffi::{OsStr, OsString},
    fs::File as Descriptor,
    io,
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use memmap2::{Advice, Mmap, UncheckedAdvice};
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, StatxFlags, fstatvfs, statx},
    io::{Errno, ReadWriteFlags},
};
use sha2::{Digest, Sha256};

use super::{File, Kind, Stat, status::stat_of};
use crate::{
    filesystem,
    pool::{Place, pool},
    source::{Leased, Mapped, Source, SourceError, Wait, check_range, lease, zeros},
};

/// A local file, mapped when a zero-copy answer is first requested.
#[derive(Debug)]
pub struct MappedFile {
    file: Descriptor,
    name: OsString,
    /// What it was opened as.
    stat: Stat,
    /// The kind of its filesystem (`filesystem.rs`).
    kind: i64,
    /// Whether its attributes can be read without asking a server, which may not answer.
    is_local: bool,
    map: OnceLock<Option<Arc<Mmap>>>,
    /// The key of its state and the number of its mount, once they were asked for.
    state: OnceLock<([u8; 32], u64)>,
}

/// Bytes lent from all maps before their pages are released. Released pages stay in the page cache but no longer count
/// as this process's memory. Releasing fewer at a time halved the speed of first reads.
const LENT: usize = 32 << 20;

/// Bytes lent since pages were last released, and the maps that lent them.
static LENT_MAPS: Mutex<(usize, Vec<Weak<Mmap>>)> = Mutex::new((0, Vec::new()));

/// Notes that a part of a map was lent.
fn lend(map: &Arc<Mmap>, length: usize) {
    let mut lent = LENT_MAPS.lock();
    lent.0 += length;
    if lent.1.last().is_none_or(|last| !std::ptr::eq(last.as_ptr(), Arc::as_ptr(map))) {
        lent.1.push(Arc::downgrade(map));
    }
    if lent.0 <= LENT {
        return;
    }
    let maps = std::mem::take(&mut *lent).1;
    drop(lent);
    // In the pool, because it waits until all processors have forgotten the pages.
    pool().run(Place::Task("pages of maps"), Arc::default(), move || {
        for map in maps.iter().filter_map(Weak::upgrade) {
            // SAFETY: the map is shared and read-only, so releasing its pages loses nothing: a system call that still
            // needs one, and nothing else does, gets it from the page cache again.
            #[allow(unsafe_code, reason = "mapping a file is this module's job")]
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    });
}

impl MappedFile {
    /// Takes a regular file that was opened for reading, on a filesystem of this kind. `name` is its own, after all
    /// links are resolved.
    pub(super) fn new(file: Descriptor, name: OsString, stat: Stat, kind: i64) -> Self {
        let (map, state, is_local) = (OnceLock::new(), OnceLock::new(), filesystem::is_local_number(kind));
        Self { file, name, stat, kind, is_local, map, state }
    }

    /// Opens a file by its path. Links are followed, so this is only for paths that a user has typed.
    ///
    /// # Errors
    /// Those of `open(2)`, and `InvalidInput` if it is no regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = Descriptor::options().read(true).custom_flags(flags).open(path)?;
        let (stat, kind) = (stat_of(&file, AtFlags::empty())?, filesystem::number(&file));
        if stat.kind != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Self::new(file, path.file_name().unwrap_or_default().to_owned(), stat, kind))
    }
}

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a number that no other mount gets until the machine restarts.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Returns a number that no other mount has; from a kernel without such numbers, one that no other opened file has.
fn mount_of(file: impl AsFd) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    match statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, UNIQUE_MOUNT) {
        Ok(found) if found.stx_mask & UNIQUE_MOUNT.bits() != 0 => found.stx_mnt_id,
        _ => NEXT.fetch_add(1, Relaxed),
    }
}

impl File for MappedFile {
    fn stat(&self) -> &Stat {
        &self.stat
    }

    fn name(&self) -> &OsStr {
        &self.name
    }

    fn stat_now(&self) -> io::Result<Stat> {
        stat_of(&self.file, AtFlags::STATX_DONT_SYNC)
    }

    fn is_deleted(&self) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(&self.file, c"", flags, StatxFlags::NLINK).is_ok_and(|stat| stat.stx_nlink == 0)
    }

    fn read_now(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = zeros(length)?;
        let mut filled = 0;
        while filled < length {
            match self.file.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn descriptor(&self) -> io::Result<Descriptor> {
        self.file.try_clone()
    }
}

impl Source for MappedFile {
    fn len(&self) -> u64 {
        self.stat.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        check_range(&(offset..end), self.len())?;
        if wait == Wait::Never {
            return match self.fill_cached(offset, buf) {
                true => self.check_unchanged(wait),
                false => Err(SourceError::WouldBlock),
            };
        }
        let done = self.file.read_exact_at(buf, offset);
        // Checked after the copy: a write moves the modification time first, so what was copied before it moved is of
        // one state.
        self.check_unchanged(wait)?;
        match done {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(SourceError::Changed),
            other => Ok(other?),
        }
    }

    fn check_unchanged(&self, wait: Wait) -> Result<(), SourceError> {
        let flags = if wait == Wait::Never { AtFlags::STATX_DONT_SYNC } else { AtFlags::empty() };
        if stat_of(&self.file, flags)?.version == self.version() { Ok(()) } else { Err(SourceError::Changed) }
    }

    /// Made from the version and the number that the filesystem gives itself. `None` on filesystems in user space, whose
    /// users choose the numbers and times.
    fn state_key(&self) -> Option<[u8; 32]> {
        (self.kind != filesystem::FUSE).then(|| self.state().0)
    }

    fn filesystem(&self) -> Option<u64> {
        Some(self.state().1)
    }

    fn leased(&self, range: Range<u64>) -> io::Result<Leased> {
        if !self.is_local || range.end > self.len() || range.start >= range.end {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let leased = lease(&self.file, range)?;
        // Earlier writes are visible now, and nothing is written from now on.
        self.check_unchanged(Wait::Always).map_err(io::Error::other)?;
        Ok(leased)
    }

    fn mapped(&self, range: Range<u64>, wait: Wait) -> Option<Mapped> {
        // What the kernel copies from the map cannot be checked afterwards. A file that was written to a moment ago may
        // be written to right now, so it is read and checked instead.
        if range.end > self.len() || range.start >= range.end || self.version().is_recent() {
            return None;
        }
        if wait == Wait::Never && !self.is_resident(&range) {
            return None;
        }
        self.check_unchanged(wait).ok()?;
        // SAFETY: the map is private to this type and `Mapped`, whose only use is as the buffer of a system call
        // (module text). Rust code never reads through it, so a change of the file underneath is no data race, and
        // the loss of its pages is a failed copy in the kernel, not a signal.
        #[allow(unsafe_code, reason = "mapping a file is this module's job")]
        let map = self.map.get_or_init(|| unsafe { Mmap::map(&self.file) }.ok().map(Arc::new)).clone()?;
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        map.get(range.clone())?;
        // Pages that cannot be read (a disk that fails) are found here, and `read_at` reports what is wrong. Kernels
        // before 5.14 do not know this advice; there the copy fails without a reason.
        match map.advise_range(Advice::PopulateRead, range.start, range.len()) {
            Err(e) if e.raw_os_error() != Some(libc::EINVAL) => None,
            _ => {
                lend(&map, range.len());
                Some(Mapped::new(map, range))
            }
        }
    }
}

impl MappedFile {
    /// Fills `buf` by one system call, if that does not wait. Returns whether it did; a read that waits reports what is
    /// wrong.
    fn fill_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let read = || {
            let into = &mut [io::IoSliceMut::new(&mut *buf)];
            rustix::io::preadv2(&self.file, into, offset, ReadWriteFlags::NOWAIT)
        };
        match self.is_local.then(read) {
            Some(Ok(read)) => read == buf.len(),
            // The filesystem does not support the flag. On a tmpfs there is nothing to wait for.
            Some(Err(Errno::OPNOTSUPP)) => {
                self.kind == libc::TMPFS_MAGIC && self.file.read_exact_at(buf, offset).is_ok()
            }
            _ => false,
        }
    }

    /// Returns whether a range can be mapped without waiting for a disk. Checks both ends only: a range that is partly read ahead ends or begins with a missing page.
    fn is_resident(&self, range: &Range<u64>) -> bool {
        range.is_empty() || [range.start, range.end - 1].iter().all(|at| self.fill_cached(*at, &mut [0]))
    }

    fn state(&self) -> ([u8; 32], u64) {
        *self.state.get_or_init(|| {
            let filesystem = fstatvfs(&self.file).map_or(0, |at| at.f_fsid);
            let hash = Sha256::new().chain_update(b"local file").chain_update(self.version().to_bytes());
            (hash.chain_update(filesystem.to_le_bytes()).finalize().into(), mount_of(&self.file))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_file_is_changed_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut");
        std::fs::write(&path, vec![7u8; 10_000]).unwrap();
        let file = MappedFile::open(&path).unwrap();
        assert_eq!((&file as &dyn Source).read(9_999..10_000).unwrap(), [7]);
        file.check_unchanged(Wait::Never).unwrap();
        assert!(file.mapped(0..2, Wait::Always).is_none(), "a file that was just written is read, not lent");
        // One that was not written to for long.
        let passwd = MappedFile::open(Path::new("/etc/passwd")).unwrap();
        assert_eq!(
            passwd.mapped(0..2, Wait::Always).unwrap().as_syscall_buf(),
            &std::fs::read("/etc/passwd").unwrap()[..2]
        );
        Descriptor::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert!(matches!((&file as &dyn Source).read(0..1), Err(SourceError::Changed)));
        assert!(matches!(file.check_unchanged(Wait::Never), Err(SourceError::Changed)));
        assert!(file.mapped(0..1, Wait::Always).is_none());
        assert_eq!(file.read_now(5, 100).unwrap(), [7; 5]);
    }

    #[test]
    fn what_a_disk_must_bring_is_not_resident() {
        // Beside this program: where it was built is a disk, and temporary folders may be memory.
        let path = std::env::current_exe().unwrap().with_extension(format!("resident-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = MappedFile::open(&path).unwrap();
        file.file.sync_all().unwrap();
        // The kernel drops what is not in use at the moment; another processor may be about to let go of it.
        let dropped = (0..100).any(|_| {
            rustix::fs::fadvise(&file.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            !file.is_resident(&(0..1 << 20))
        });
        assert!(dropped);
        assert_eq!((&file as &dyn Source).read(0..1 << 20).unwrap(), vec![7; 1 << 20]);
        assert!(file.is_resident(&(0..1 << 20)) && file.is_resident(&(5..5)));
        std::fs::remove_file(&path).unwrap();
        let memory = Path::new("/dev/shm").join(path.file_name().unwrap());
        std::fs::write(&memory, b"in memory").unwrap();
        assert!(MappedFile::open(&memory).unwrap().is_resident(&(0..9)));
        std::fs::remove_file(&memory).unwrap();
    }

    #[test]
    fn a_modification_time_that_was_set_back_deceives_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forged");
        std::fs::write(&path, b"before").unwrap();
        let file = MappedFile::open(&path).unwrap();
        let mtime = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, b"behind").unwrap();
        Descriptor::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
        assert!(matches!((&file as &dyn Source).read(0..6), Err(SourceError::Changed)));
        // The kernel does not say that a change time moved by nothing but a link, a mode or a deletion.
        let file = MappedFile::open(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!file.is_deleted());
        std::fs::remove_file(&path).unwrap();
        assert!(matches!((&file as &dyn Source).read(0..6), Err(SourceError::Changed)));
        assert!(file.is_deleted());
        assert_eq!(file.read_now(0, 6).unwrap(), b"behind");
    }
}
