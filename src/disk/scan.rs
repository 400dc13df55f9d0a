//! What is in a cache's folder, and what is evicted first.

use std::{collections::BinaryHeap, ffi::CString, io, os::fd::AsFd};

use rustix::fs::{AtFlags, Dir, FileType, StatxFlags, statx, unlinkat};

use super::folder::{Folder, TEMPORARY, is_blob};

/// Files and bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Blobs.
    pub blobs: u64,
    /// Bytes of their files, whole pages each.
    pub bytes: u64,
}

impl Usage {
    fn add(&mut self, bytes: u64) {
        self.blobs += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Returns the space that a file of a size takes, in bytes.
pub(super) fn space(size: u64) -> u64 {
    size.next_multiple_of(4096)
}

/// A blob that may be evicted: when it was used last, its part and name, its space. Ordered by time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    used: (i64, u32),
    part: u8,
    name: CString,
    bytes: u64,
}

/// Calls `found` for every blob.
fn each(folder: &Folder, mut found: impl FnMut(Candidate)) -> io::Result<()> {
    for part in 0..=255 {
        let Some(fd) = folder.part(&format!("{part:02x}"))? else { continue };
        for entry in Dir::read_from(&fd)? {
            let name = entry?.file_name().to_owned();
            if !is_blob(&name) {
                continue;
            }
            // Another process may have removed it.
            let Ok(stat) = statx(&fd, &name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) else { continue };
            if FileType::from_raw_mode(stat.stx_mode.into()).is_file() {
                let (read, written) = (stat.stx_atime, stat.stx_mtime);
                let used = (read.tv_sec, read.tv_nsec).max((written.tv_sec, written.tv_nsec));
                found(Candidate { used, part, name, bytes: space(stat.stx_size) });
            }
        }
    }
    Ok(())
}

/// Counts all blobs and their bytes.
///
/// # Errors
/// What the operating system says.
pub(super) fn usage(folder: &Folder) -> io::Result<Usage> {
    let mut usage = Usage::default();
    each(folder, |blob| usage.add(blob.bytes))?;
    Ok(usage)
}

/// Removes the least recently used blobs until at least `bytes` are freed. Returns what was removed. Takes memory only
/// for the names of those blobs.
///
/// # Errors
/// What the operating system says.
pub(super) fn evict(folder: &Folder, bytes: u64) -> io::Result<Usage> {
    let mut oldest = BinaryHeap::new();
    let mut sum = 0;
    each(folder, |blob| {
        sum += blob.bytes;
        oldest.push(blob);
        while let Some(newest) = oldest.peek().filter(|newest: &&Candidate| sum - newest.bytes >= bytes) {
            sum -= newest.bytes;
            oldest.pop();
        }
    })?;
    let mut freed = Usage::default();
    for blob in oldest {
        let Some(fd) = folder.part(&format!("{:02x}", blob.part))? else { continue };
        if unlinkat(fd.as_fd(), &blob.name, AtFlags::empty()).is_ok() {
            freed.add(blob.bytes);
        }
    }
    Ok(freed)
}

/// Evicts until at most `size` bytes are left.
///
/// # Errors
/// What the operating system says.
pub(super) fn prune(folder: &Folder, size: u64) -> io::Result<Usage> {
    clean(folder)?;
    let all = usage(folder)?;
    if all.bytes <= size { Ok(Usage::default()) } else { evict(folder, all.bytes - size) }
}

/// Removes all blobs.
///
/// # Errors
/// What the operating system says.
pub(super) fn clear(folder: &Folder) -> io::Result<Usage> {
    clean(folder)?;
    evict(folder, u64::MAX)
}

/// Removes temporary files of processes that are gone.
///
/// # Errors
/// What the operating system says.
pub(super) fn clean(folder: &Folder) -> io::Result<()> {
    let Some(fd) = folder.part(TEMPORARY)? else { return Ok(()) };
    for entry in Dir::read_from(&fd)? {
        if let Ok(name) = entry?.file_name().to_str()
            && !name.starts_with('.')
        {
            folder.remove_if_left(&format!("{TEMPORARY}/{name}"));
        }
    }
    Ok(())
}
