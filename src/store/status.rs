//! Attributes of local files, as statx(2) gives them.

use std::{io, os::fd::AsFd};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, statx};

use super::{Kind, Stat, Version};

/// Returns the attributes of an opened file.
///
/// # Errors
/// Those of `statx(2)`.
pub(super) fn stat_of(file: impl AsFd, flags: AtFlags) -> io::Result<Stat> {
    Ok(stat(&statx(file, c"", flags | AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?))
}

/// Converts an answer of `statx`.
pub(super) fn stat(found: &Statx) -> Stat {
    let mtime = (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec);
    let ctime = (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec);
    let dev = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::Directory => Kind::Folder,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    };
    Stat {
        kind,
        size: found.stx_size,
        mtime,
        mode: u32::from(found.stx_mode) & 0o777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        via_link: false,
        version: Version::local(dev, found.stx_ino, found.stx_size, mtime, ctime),
    }
}
