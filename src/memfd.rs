//! Files in memory: written once, sealed, and then served by the kernel itself.
//!
//! A [`MemoryFile`] is filled from the front by one thread, while others may already take the ranges that are finished.
//! [`MemoryFile::seal`] makes it unchangeable for ever; only a sealed one is registered with the kernel.

use std::{
    fs::File,
    io,
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt},
    sync::OnceLock,
};

use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

/// A file of a fixed size that lies in memory and in no folder.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    size: u64,
    map: OnceLock<Option<Mmap>>,
}

impl MemoryFile {
    /// An empty file that will have `size` bytes. It takes memory as it is filled.
    ///
    /// # Errors
    /// What the operating system says: no descriptors left, for one.
    pub fn new(size: u64) -> io::Result<Self> {
        let file = memfd_create(c"shardfs", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, size)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK)?;
        Ok(Self { file: file.into(), size, map: OnceLock::new() })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes bytes at a place that nobody was shown yet.
    ///
    /// # Errors
    /// What `pwrite(2)` says: no memory left, for one.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Lets a decoder write straight into a range that nobody was shown yet, and that nobody else writes.
    ///
    /// # Errors
    /// When there is no memory, or the range lies outside.
    pub fn fill<T>(&self, range: Range<u64>, fill: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
        if range.start >= range.end || range.end > self.size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        // Pages that could not be had are an error here; touched through the map they would be a signal.
        fallocate(&self.file, FallocateFlags::empty(), range.start, range.end - range.start)?;
        // SAFETY: the file has no name, so that no other process can change it, and it cannot shrink (sealed in `new`).
        // Readers of this process are only shown ranges that are finished (`cache::Slot`), never the one being filled.
        #[allow(unsafe_code, reason = "mapping memory is this module's job")]
        let mut map = unsafe { MmapOptions::new().offset(range.start).len(length).populate().map_mut(&self.file) }?;
        Ok(fill(&mut map))
    }

    /// Makes the file unchangeable.
    ///
    /// # Errors
    /// When something still maps it for writing.
    pub fn seal(&self) -> io::Result<()> {
        Ok(fcntl_add_seals(&self.file, SealFlags::WRITE | SealFlags::SEAL)?)
    }

    /// Bytes that are finished; empty where the file could not be mapped or has no such range.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let map = self.map.get_or_init(|| {
            // Private, since a shared map would count as one that may write and prevent the seal.
            // SAFETY: as in `fill`; what is looked at through this map is finished and never written again.
            #[allow(unsafe_code, reason = "mapping memory is this module's job")]
            let map = unsafe { MmapOptions::new().map_copy_read_only(&self.file) };
            map.map_err(|error| log::warn!("mapping a file in memory: {error}")).ok()
        });
        map.as_ref().and_then(|map| map.get(range)).unwrap_or_default()
    }

    /// The descriptor, for registering with the kernel.
    pub fn descriptor(&self) -> impl AsFd + '_ {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_files_keep_what_was_written() {
        let file = MemoryFile::new(10_000).unwrap();
        file.write(&[1; 128], 0).unwrap();
        assert_eq!(file.bytes(0..128), [1; 128]);
        file.fill(128..10_000, |out| out.fill(2)).unwrap();
        assert_eq!(file.bytes(127..130), [1, 2, 2]);
        file.seal().unwrap();
        assert_eq!(file.bytes(9_999..10_000), [2]);
        assert!(file.write(&[3], 0).is_err());
        assert!(file.fill(0..1, |_| ()).is_err());
        assert!(file.seal().is_err());
    }

    #[test]
    fn ranges_outside_are_refused() {
        let file = MemoryFile::new(100).unwrap();
        assert!(file.fill(50..101, |_| ()).is_err());
        assert!(file.fill(50..50, |_| ()).is_err());
        assert!(file.write(&[0; 2], 99).is_err());
        assert_eq!(file.bytes(90..101), [0u8; 0]);
    }
}
