//! Files in memory: written once, closed to writers, and then served by the kernel itself.
//!
//! A [`MemoryFile`] is filled from the front by one thread, while others may already take the ranges that are finished.
//! [`MemoryFile::seal`] makes it unchangeable for ever; only then is it registered with the kernel.
//!
//! With the privilege that passthrough needs anyway, the files lie in a tmpfs of our own that is attached nowhere:
//! there we may ask for large pages, which maps and reads 3 to 10 times as fast (docs/TUNING.md) and which memfds get
//! only if the whole machine is set so. Otherwise they are sealed memfds.

use std::{
    fs::File,
    io,
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::OnceLock,
};

use memmap2::{Advice, Mmap, MmapOptions};
use parking_lot::RwLock;
use rustix::{
    fs::{
        FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
        openat,
    },
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

/// Size in bytes of a large page, if the kernel has them.
const LARGE_PAGE: u64 = 2 << 20;

/// A file of a fixed size in memory, without a name.
#[derive(Debug)]
pub struct MemoryFile {
    file: RwLock<File>,
    is_memfd: bool,
    size: u64,
    map: OnceLock<Option<Mmap>>,
}

/// Returns a tmpfs that no other process sees, if this process may make one. It disappears with the process.
fn large_pages() -> Option<BorrowedFd<'static>> {
    static FOLDER: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || -> rustix::io::Result<OwnedFd> {
        let filesystem = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // Large pages, as far as they do not extend past the end of a file.
        fsconfig_set_string(filesystem.as_fd(), c"huge", c"within_size")?;
        // No limit here, because the cache's budget is the limit.
        fsconfig_set_string(filesystem.as_fd(), c"size", c"0")?;
        fsconfig_create(filesystem.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(filesystem.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    let folder =
        FOLDER.get_or_init(|| open().map_err(|e| log::debug!("no tmpfs of our own, memfds instead: {e}")).ok());
    folder.as_ref().map(AsFd::as_fd)
}

impl MemoryFile {
    /// Makes an empty file that will have `size` bytes. It takes memory as it is filled.
    ///
    /// # Errors
    /// What the operating system says, for example that no descriptors are left.
    pub fn new(size: u64) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let in_tmpfs = large_pages().and_then(|folder| openat(folder, c".", flags, Mode::RUSR).ok());
        let is_memfd = in_tmpfs.is_none();
        let file = match in_tmpfs {
            Some(file) => file,
            None => memfd_create(c"shardfs", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?,
        };
        ftruncate(&file, size)?;
        if is_memfd {
            fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK)?;
        }
        Ok(Self { file: RwLock::new(file.into()), is_memfd, size, map: OnceLock::new() })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes bytes at a place that no reader was shown yet.
    ///
    /// # Errors
    /// What `pwrite(2)` says, for example that no memory is left; `InvalidInput` past the file's size.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if offset.saturating_add(bytes.len() as u64) > self.size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.read().write_all_at(bytes, offset)
    }

    /// Lets a decoder write straight into a range that no reader was shown yet and that no other thread writes.
    ///
    /// # Errors
    /// If there is no memory, or the range lies outside.
    pub(crate) fn fill<T>(&self, range: Range<u64>, fill: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
        if range.start >= range.end || range.end > self.size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let file = self.file.read();
        // SAFETY: the file has no name, so no other process can change or shrink it, and this module never does.
        // Readers of this process are only shown finished ranges (`cache::Slot`), never the one being filled.
        #[allow(unsafe_code, reason = "mapping memory is this module's job")]
        let mut map = unsafe { MmapOptions::new().offset(range.start).len(length).map_mut(&*file) }?;
        // A hint: large pages, if the machine gives them on request. Never past the end of the file, because they would
        // take memory that is not counted.
        let whole = (range.end - range.end % LARGE_PAGE).saturating_sub(range.start);
        let _ = map.advise_range(Advice::HugePage, 0, whole as usize);
        // Pages that cannot be allocated are an error here. Touched through the map they would be a signal.
        map.advise(Advice::PopulateWrite).or_else(|_| {
            // Linux before 5.14 does not know that.
            fallocate(&*file, FallocateFlags::empty(), range.start, range.end - range.start)
        })?;
        Ok(fill(&mut map))
    }

    /// Makes the file unchangeable: by a seal, or by closing the only descriptor that could write.
    ///
    /// # Errors
    /// If something still maps it for writing, or it is sealed already.
    pub fn seal(&self) -> io::Result<()> {
        let mut file = self.file.write();
        if self.is_memfd {
            return Ok(fcntl_add_seals(&*file, SealFlags::WRITE | SealFlags::SEAL)?);
        }
        *file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        Ok(())
    }

    /// Returns finished bytes.
    ///
    /// # Errors
    /// `InvalidInput` for a range outside the file; `ENOMEM` if the file could not be mapped. Never fewer bytes,
    /// because readers would take them for the end of the file.
    pub fn bytes(&self, range: Range<usize>) -> io::Result<&[u8]> {
        let map = self.map.get_or_init(|| {
            // Private, because a shared map would count as writable and prevent the seal. SAFETY: as in `fill`; what is
            // read through this map is finished and never written again.
            #[allow(unsafe_code, reason = "mapping memory is this module's job")]
            let map = unsafe { MmapOptions::new().map_copy_read_only(&*self.file.read()) };
            map.map_err(|error| log::warn!("mapping a file in memory: {error}")).ok()
        });
        let map = map.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        map.get(range).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Lends the descriptor for registration with the kernel.
    pub fn with_descriptor<T>(&self, register: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        register(self.file.read().as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_files_keep_what_was_written() {
        let file = MemoryFile::new(10_000).unwrap();
        assert_eq!(file.is_memfd, large_pages().is_none());
        file.write(&[1; 128], 0).unwrap();
        assert_eq!(file.bytes(0..128).unwrap(), [1; 128]);
        file.fill(128..10_000, |out| out.fill(2)).unwrap();
        assert_eq!(file.bytes(127..130).unwrap(), [1, 2, 2]);
        file.seal().unwrap();
        assert_eq!(file.bytes(9_999..10_000).unwrap(), [2]);
        assert!(file.write(&[3], 0).is_err());
        assert!(file.fill(0..1, |_| ()).is_err());
    }

    #[test]
    fn ranges_outside_are_refused() {
        let file = MemoryFile::new(100).unwrap();
        assert!(file.fill(50..101, |_| ()).is_err());
        assert!(file.fill(50..50, |_| ()).is_err());
        assert!(file.write(&[0; 2], 99).is_err());
        assert_eq!(file.bytes(90..101).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
