//! What the kernel is told, in its terms.

use std::{
    ops::ControlFlow,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{Errno, FileAttr, FileType, INodeNo, ReplyStatfs};

use crate::{
    store::Usage,
    vfs::{Attr, Error, FileKind, Ttl},
};

/// How long the kernel may trust what it knows of a container's inside. An inode number stands for one state of the
/// container, so nothing there goes stale.
const CONTAINER_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the kernel may trust what it knows of SOURCE's own folders and files. They change, and changes must be seen
/// within a second even if nothing can be watched.
const SOURCE_TTL: Duration = Duration::from_millis(500);

pub(super) fn answer_statfs(reply: ReplyStatfs, Usage { block, used_blocks, used_files }: Usage) {
    reply.statfs(used_blocks.max(1), 0, 0, used_files.max(1), 0, block as u32, 255, block as u32);
}

pub(super) fn errno(error: &Error) -> Errno {
    log::debug!("{error}");
    Errno::from_i32(error.errno())
}

pub(super) fn full(full: bool) -> ControlFlow<()> {
    if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

pub(super) fn ttl(ttl: Ttl) -> Duration {
    match ttl {
        Ttl::None => Duration::ZERO,
        Ttl::Source => SOURCE_TTL,
        Ttl::Container => CONTAINER_TTL,
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Folder => FileType::Directory,
        FileKind::File => FileType::RegularFile,
        FileKind::Link => FileType::Symlink,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    let (seconds, nanos) = attr.mtime;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time: SystemTime = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    let time = time + Duration::from_nanos(nanos.into());
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Returns attributes of a node of which only the kind is known.
pub(super) fn no_attr(ino: u64, kind: FileKind) -> FileAttr {
    let (size, mode, mtime) = (0, 0, (0, 0));
    file_attr(&Attr { ino, kind, size, mode, nlink: 0, uid: 0, gid: 0, mtime, ttl: Ttl::None })
}
