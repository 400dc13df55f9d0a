//! Where bytes come from: a container read by range.
//!
//! [`MappedFile`] is a local file. Everything that looks *at* bytes (parsers, decoders, checksums) reads them with
//! `pread` into memory of its own; the map is only ever handed to the kernel, as the buffer of a `write(2)`. A file
//! that somebody truncates therefore costs the reader an `EIO`, never the daemon its life by SIGBUS. Bytes are of one
//! state of the file: its fingerprint is compared after they were copied.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::{Arc, OnceLock, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use memmap2::{Advice, Mmap, UncheckedAdvice};
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, fstatfs, statx},
    io::{Errno, ReadWriteFlags},
};

use crate::limits;

/// Why bytes of a source could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The range does not lie inside the source.
    #[error("bytes {start}..{end} are outside the file of {len} bytes")]
    OutOfRange {
        /// First byte asked for.
        start: u64,
        /// First byte not asked for.
        end: u64,
        /// Length of the source.
        len: u64,
    },
    /// The file is no longer the one that was opened: replaced, rewritten or truncated.
    #[error("the file has changed since it was opened")]
    Changed,
    /// The operating system failed to read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Bytes read by range, from anywhere.
pub trait Source: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `OutOfRange` before anything is read, `Changed` or `Io` when the bytes can't be had.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError>;

    /// Whether this is still what was opened.
    ///
    /// # Errors
    /// `Changed` where it is not, `Io` where nobody can say.
    fn check_unchanged(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// As [`Self::check_unchanged`], by what the kernel knows of the file: no server is asked, and nobody waits for one.
    ///
    /// # Errors
    /// As [`Self::check_unchanged`].
    fn check_known(&self) -> Result<(), SourceError> {
        self.check_unchanged()
    }

    /// Whether a range can be had at once, without waiting for a disk, as far as anybody can say.
    fn is_resident(&self, range: &Range<u64>) -> bool {
        let _ = range;
        true
    }

    /// The bytes of a range, as memory that only the kernel may look at (see the module's text), where the source
    /// has such a thing.
    fn mapped(&self, range: Range<u64>) -> Option<Mapped> {
        let _ = range;
        None
    }
}

impl dyn Source + '_ {
    /// Reads a range into memory of its own. The range is checked against the source's length before anything is
    /// allocated for it.
    ///
    /// # Errors
    /// As [`Source::read_at`].
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
        let outside = SourceError::OutOfRange { start: range.start, end: range.end, len: self.len() };
        if range.end > self.len() || range.start > range.end {
            return Err(outside);
        }
        let Ok(length) = usize::try_from(range.end - range.start) else { return Err(outside) };
        let mut bytes = zeros(length)?;
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }
}

/// Whether there is room for so many bytes, in many small parts, and something left: small allocations can't be refused,
/// they end the process. `count` times `each` is what something takes in memory that a file makes cheap to ask for.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn check_room(count: u64, each: usize) -> io::Result<()> {
    let length = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(each);
    let mut bytes = Vec::<u8>::new();
    match length < limits::PIECE || bytes.try_reserve_exact(length.saturating_add(limits::HEADROOM)).is_ok() {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}

/// Zeroed memory, or an error where an ordinary `vec!` would end the process.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn zeros(length: usize) -> io::Result<Vec<u8>> {
    check_room(length as u64, 1)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// A container in memory: for tests, fuzzing, and bytes that were never a file.
impl Source for Vec<u8> {
    fn len(&self) -> u64 {
        Self::len(self) as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        let bytes = usize::try_from(offset).ok().zip(usize::try_from(end).ok()).and_then(|(a, b)| self.get(a..b));
        let Some(bytes) = bytes else {
            return Err(SourceError::OutOfRange { start: offset, end, len: Source::len(self) });
        };
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// What tells one state of a file from another: a container is parsed for one fingerprint and read only while its
/// file still has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Device number.
    pub dev: u64,
    /// Inode number on that device.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Modification time: seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Change time: seconds and nanoseconds.
    pub ctime: (i64, i64),
    /// What moves the change time and is no content: mode, owner, group, links.
    pub status: (u32, u32, u32, u64),
}

impl Fingerprint {
    /// The fingerprint of a file with this metadata.
    pub fn of(meta: &std::fs::Metadata) -> Self {
        Self {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            ctime: (meta.ctime(), meta.ctime_nsec()),
            status: (meta.mode(), meta.uid(), meta.gid(), meta.nlink()),
        }
    }

    /// The fingerprint in an answer of `statx`.
    fn known(stat: &Statx) -> Self {
        let time = |time: StatxTimestamp| (time.tv_sec, i64::from(time.tv_nsec));
        Self {
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            size: stat.stx_size,
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            status: (stat.stx_mode.into(), stat.stx_uid, stat.stx_gid, stat.stx_nlink.into()),
        }
    }

    /// Whether the content is the same. The change time may have moved where the mode, the owner or the number of links
    /// explain it (the file was deleted, say); where nothing does, somebody rewrote the file and set its modification
    /// time back.
    pub fn same_content(&self, other: &Self) -> bool {
        (self.dev, self.ino, self.size, self.mtime) == (other.dev, other.ino, other.size, other.mtime)
            && (self.ctime == other.ctime || self.status != other.status)
    }

    /// Whether the file was written to a moment ago.
    pub(crate) fn is_recent(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let newest = u64::try_from(self.mtime.0.max(self.ctime.0)).unwrap_or(0);
        newest + limits::QUIET_SECONDS > now.as_secs()
    }

    /// How long to wait until nobody can be writing to the file without having moved its time again. Nothing for times
    /// that lie in the future.
    pub(crate) fn unsettled(&self) -> Duration {
        let newest = self.mtime.max(self.ctime);
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(newest.0), u32::try_from(newest.1)) else {
            return Duration::ZERO;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = now.checked_sub(Duration::new(seconds, nanos));
        age.map_or(Duration::ZERO, |age| Duration::from_millis(limits::SETTLED_MILLIS).saturating_sub(age))
    }
}

/// A local file, mapped when somebody first wants a zero-copy answer from it.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    fingerprint: Fingerprint,
    /// Whether it lies in a tmpfs, where there is nothing to wait for.
    in_memory: bool,
    map: OnceLock<Option<Arc<Mmap>>>,
}

/// So much of all maps is lent before their pages are let go: they stay in the page cache, and count as this process's
/// memory no longer. Letting go of a few at a time halved the speed of first reads.
const LENT: usize = 32 << 20;

/// Bytes lent since pages were last let go, and of which maps.
static LENT_MAPS: Mutex<(usize, Vec<Weak<Mmap>>)> = Mutex::new((0, Vec::new()));

/// Notes that a part of a map is lent.
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
    // In the pool: it waits for all processors to forget the pages, which a reader should not.
    blocking::unblock(move || {
        for map in maps.iter().filter_map(Weak::upgrade) {
            // SAFETY: the map is shared and read-only, so letting go of its pages loses nothing: who still wants one, which
            // only a system call does, gets it from the page cache again.
            #[allow(unsafe_code, reason = "mapping a file is this module's job")]
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    })
    .detach();
}

impl MappedFile {
    /// Opens a regular file for reading. A symbolic link at the end of the path is not followed, and opening never
    /// waits (a pipe put in the file's place is refused, not waited for).
    ///
    /// # Errors
    /// Those of `open(2)` and `fstat(2)`; `InvalidInput` for what is not a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let in_memory = fstatfs(&file).is_ok_and(|at| at.f_type == libc::TMPFS_MAGIC);
        Ok(Self { file, fingerprint: Fingerprint::of(&meta), in_memory, map: OnceLock::new() })
    }

    /// The file's fingerprint when it was opened.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The file itself, for the kernel to read.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn descriptor(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// What `fstat` says now.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// The bytes that stand there now, however the file has changed: for files that are shown as they are, and may grow
    /// while they are read. Fewer than asked for at the end.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub fn read_now(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
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
}

impl Source for MappedFile {
    fn len(&self) -> u64 {
        self.fingerprint.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.len() {
            return Err(SourceError::OutOfRange { start: offset, end, len: self.len() });
        }
        let done = self.file.read_exact_at(buf, offset);
        // Behind the copy: writing moves the modification time first, so what was copied before it moved is of one state.
        self.check_unchanged()?;
        match done {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(SourceError::Changed),
            other => Ok(other?),
        }
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        let now = Fingerprint::of(&self.file.metadata()?);
        if now.same_content(&self.fingerprint) { Ok(()) } else { Err(SourceError::Changed) }
    }

    fn check_known(&self) -> Result<(), SourceError> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let known = statx(&self.file, c"", flags, StatxFlags::BASIC_STATS).map_err(io::Error::from)?;
        if Fingerprint::known(&known).same_content(&self.fingerprint) { Ok(()) } else { Err(SourceError::Changed) }
    }

    /// Looks at the two ends: what is read ahead, and what is not yet, is a range that ends somewhere.
    fn is_resident(&self, range: &Range<u64>) -> bool {
        let is_there = |offset| {
            let mut byte = [0];
            let into = &mut [io::IoSliceMut::new(&mut byte)];
            match rustix::io::preadv2(&self.file, into, offset, ReadWriteFlags::NOWAIT) {
                // A filesystem that can't say.
                Err(Errno::OPNOTSUPP) => self.in_memory,
                read => read.is_ok(),
            }
        };
        range.is_empty() || is_there(range.start) && is_there(range.end - 1)
    }

    fn mapped(&self, range: Range<u64>) -> Option<Mapped> {
        // What the kernel copies from the map can't be checked afterwards. Who was written to a moment ago may be written
        // to this moment, and is read and checked instead.
        if range.end > self.len() || range.start >= range.end || self.fingerprint.is_recent() {
            return None;
        }
        self.check_unchanged().ok()?;
        // SAFETY: the map is private to this type and `Mapped`, whose only use is as the buffer of a system call
        // (module text). Rust code never reads through it, so a change of the file underneath is no data race, and
        // the loss of its pages is a failed copy in the kernel, not a signal.
        #[allow(unsafe_code, reason = "mapping a file is this module's job")]
        let map = self.map.get_or_init(|| unsafe { Mmap::map(&self.file) }.ok().map(Arc::new)).clone()?;
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        map.get(range.clone())?;
        // Pages that can't be had (a disk that fails) are found here, and `read_at` will say what is wrong with them. A
        // kernel before 5.14 does not know this advice; there the copy fails without a word.
        match map.advise_range(Advice::PopulateRead, range.start, range.len()) {
            Err(e) if e.raw_os_error() != Some(libc::EINVAL) => None,
            _ => {
                lend(&map, range.len());
                Some(Mapped { map, range })
            }
        }
    }
}

/// A range of a mapped file, kept alive. Only for handing to a system call: see the module's text.
#[derive(Debug, Clone)]
pub struct Mapped {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl Mapped {
    /// The bytes, for the kernel to copy. Looking at them in user space is what this type exists to avoid.
    pub fn for_kernel(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_source_refuses_ranges_outside() {
        let source: &dyn Source = &vec![1u8, 2, 3];
        assert_eq!(source.read(1..3).unwrap(), [2, 3]);
        assert!(matches!(source.read(1..4), Err(SourceError::OutOfRange { .. })));
        assert!(matches!(source.read(u64::MAX - 1..u64::MAX), Err(SourceError::OutOfRange { .. })));
    }

    #[test]
    fn a_truncated_file_is_changed_not_read() {
        let dir = std::env::temp_dir().join(format!("shardfs-source-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("cut");
        std::fs::write(&path, vec![7u8; 10_000]).unwrap();
        let file = MappedFile::open(&path).unwrap();
        assert_eq!((&file as &dyn Source).read(9_999..10_000).unwrap(), [7]);
        file.check_known().unwrap();
        assert!(file.mapped(0..2).is_none(), "a file that was just written is read, not lent");
        let opened = File::options().write(true).open(&path).unwrap();
        opened.set_modified(UNIX_EPOCH).unwrap();
        let mut file = MappedFile::open(&path).unwrap();
        file.fingerprint.ctime.0 -= 60;
        file.fingerprint.status.3 += 1;
        assert_eq!(file.mapped(0..2).unwrap().for_kernel(), [7, 7]);
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert!(matches!((&file as &dyn Source).read(0..1), Err(SourceError::Changed)));
        assert!(matches!(file.check_known(), Err(SourceError::Changed)));
        assert!(file.mapped(0..1).is_none());
        assert_eq!(file.read_now(5, 100).unwrap(), [7; 5]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_disk_must_bring_is_not_resident() {
        // Beside this program: where it was built is a disk, and temporary folders may be memory.
        let path = std::env::current_exe().unwrap().with_extension(format!("resident-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = MappedFile::open(&path).unwrap();
        file.file.sync_all().unwrap();
        // The kernel drops what nobody uses at the moment; another processor may be about to let go of it.
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
        let dir = std::env::temp_dir().join(format!("shardfs-source-forged-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("forged");
        std::fs::write(&path, b"before").unwrap();
        let file = MappedFile::open(&path).unwrap();
        let mtime = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, b"behind").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
        assert!(matches!((&file as &dyn Source).read(0..6), Err(SourceError::Changed)));
        // A deleted file is what it was, for whoever has it open.
        let file = MappedFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((&file as &dyn Source).read(0..6).unwrap(), b"behind");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
