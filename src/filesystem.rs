//! Kinds of filesystems, by their numbers in statfs(2).

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// Local filesystems, by their numbers in statfs(2): ext4, XFS, Btrfs, tmpfs, ramfs, overlay, F2FS, ZFS, bcachefs,
/// SquashFS, EROFS, ISO 9660, FAT, exFAT, NTFS.
const LOCAL: [i64; 15] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x8584_58F6,
    0x794C_7630,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x7371_7368,
    0xE0F5_E1E2,
    0x9660,
    0x4D44,
    0x2011_BAB0,
    0x7366_746E,
];

/// The number of FUSE filesystems in statfs(2).
pub(crate) const FUSE: i64 = 0x6573_5546;

/// Returns the number of the filesystem of a file or folder; 0 if that cannot be told.
pub(crate) fn number(file: impl AsFd) -> i64 {
    fstatfs(file).map_or(0, |at| at.f_type)
}

/// Returns whether a filesystem of that number is a local one.
pub(crate) fn is_local_number(number: i64) -> bool {
    LOCAL.contains(&number)
}

/// Returns whether a file or folder is on a local filesystem, which answers without asking a server.
pub(crate) fn is_local(file: impl AsFd) -> bool {
    is_local_number(number(file))
}
