//! The adapter to the kernel: unpack a request, call [`Vfs`], reply. The only module that names fuser.
//!
//! In page-cache mode `open` and `opendir` are answered "not implemented" once and the kernel never asks again; what
//! was read stays in its page cache, names and attributes of containers in its other caches. In passthrough mode
//! finished large files are handed to the kernel at `open` (`fuse/open.rs`). What would wait for a decoder or for a
//! container to be opened is answered from a pool of threads, so that look-ups never stand behind zstd.

mod awake;
mod dispatch;
mod filesystems;
mod guard;
mod known;
mod mounting;
mod notify;
mod open;
mod pending;
mod reply;
mod session;
#[cfg(test)]
mod tests;
mod xattr;

pub use session::{Mount, MountConfig, raise_readahead};

use std::{
    ffi::OsStr,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use fuser::{
    Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen,
    ReplyStatfs, ReplyXattr, Request,
};
use rustix::thread::{CapabilitySet, capabilities};

use crate::{
    store::Usage,
    vfs::{Attr, DirEntry, Error, FileKind, IoMode, Serving, Vfs},
};
use awake::Awake;
use dispatch::About;
use guard::guarded;
use known::LastKnown;
use notify::Behind;
use open::Handles;
use pending::Slot;
use reply::{answer_statfs, file_attr, file_type, full, no_attr, ttl};

struct Adapter {
    vfs: Arc<Vfs>,
    /// The open files in passthrough mode.
    handles: Option<Arc<Handles>>,
    behind: Behind,
    root: Arc<LastKnown<Attr>>,
    space: Arc<LastKnown<Usage>>,
    /// `None` on one core, where a thread must not stay awake for the next request.
    awake: Option<Awake>,
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without FUSE_CACHE_SYMLINKS: the kernel would keep the target of a link in SOURCE for ever, and never asks whether
        // it is the same.
        let wanted = InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_ASYNC_DIO
            // For SOURCE's own files, whose size or time may change. Files of containers never change: a container that
            // did has new inodes.
            | InitFlags::FUSE_AUTO_INVAL_DATA;
        // Older kernels ignore what they do not know.
        let _ = config.add_capabilities(wanted & config.capabilities());
        // As many requests in the background as the kernel permits, so that read-ahead from a disk that does not answer
        // does not block all others.
        let _ = config.set_max_background(u16::MAX);
        let _ = config.set_max_readahead(u32::MAX).or_else(|most| config.set_max_readahead(most));
        let mut serving = Serving::default();
        let asked = self.vfs.options().io_mode;
        // Files in the disk cache need no memory, and are read like any file on that disk.
        let is_better = asked == IoMode::Auto && self.vfs.cache().disk_tier().is_some();
        if asked == IoMode::Passthrough || is_better {
            match offer_passthrough(config) {
                Ok(()) => {
                    serving.passthrough = true;
                    serving.maps_direct = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
                    self.handles = Some(Arc::default());
                }
                Err(reason) => serving.reason = (!is_better).then(|| reason.into()),
            }
        }
        // A file in memory is the only copy; without passthrough the kernel keeps what was read.
        self.vfs.cache().set_readers_keep();
        self.vfs.serve_as(serving);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.vfs.requests.lookup.fetch_add(1, Relaxed);
        let owned = name.to_owned();
        self.run_counted(
            About::name(request, parent, name),
            reply,
            move |vfs, _, wait| vfs.lookup_with(parent.0, &owned, wait),
            move |vfs, reply, found| match (reply, found) {
                (Some(reply), Some(attr)) => reply.entry(&ttl(attr.ttl), &file_attr(&attr), Generation(0)),
                // Number 0 and a time to live: the kernel remembers that the name does not exist.
                (Some(reply), None) => {
                    reply.entry(&ttl(vfs.ttl_of_names(parent.0)), &no_attr(0, FileKind::File), Generation(0));
                }
                (None, found) => never_heard_of(vfs, found.map(|attr| attr.ino)),
            },
        );
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.vfs.requests.forget.fetch_add(1, Relaxed);
        self.vfs.forget(ino.0, lookups);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.vfs.requests.getattr.fetch_add(1, Relaxed);
        let about = About::node(request, ino);
        let answer = |reply: ReplyAttr, attr: Attr| reply.attr(&ttl(attr.ttl), &file_attr(&attr));
        if ino == INodeNo::ROOT {
            return self.run_known(about, reply, &self.root, move |vfs| vfs.attr(ino.0), answer);
        }
        self.run(about, reply, move |vfs, _, wait| vfs.attr_with(ino.0, wait), answer);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.vfs.requests.readlink.fetch_add(1, Relaxed);
        let read = move |vfs: &Vfs, _: &Slot<ReplyData>, wait| vfs.read_link(ino.0, wait);
        self.run(About::node(request, ino), reply, read, |reply, target| reply.data(target.as_encoded_bytes()));
    }

    fn open(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.vfs.requests.open.fetch_add(1, Relaxed);
        match self.handles.clone() {
            None => reply.error(Errno::ENOSYS),
            Some(handles) => {
                let choose = {
                    let handles = handles.clone();
                    move |vfs: &Vfs, _: &Slot<ReplyOpen>, wait| handles.choose(vfs, ino.0, wait)
                };
                let vfs = self.vfs.clone();
                self.run(About::node(request, ino), reply, choose, move |reply, opening| {
                    handles.open(&vfs, ino.0, opening, reply);
                });
            }
        }
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.vfs.requests.release.fetch_add(1, Relaxed);
        if let Some(handles) = &self.handles {
            handles.release(ino.0);
        }
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.vfs.requests.opendir.fetch_add(1, Relaxed);
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.vfs.requests.read.fetch_add(1, Relaxed);
        let handles = self.handles.as_ref().filter(|_| handle == open::DIRECT);
        let growing = handles.and_then(|handles| handles.growing(ino.0));
        if offset == 0 && growing.is_none() {
            guarded(&self.vfs, |_| self.vfs.note_begun(ino.0));
        }
        let read = move |vfs: &Vfs, _: &Slot<ReplyData>, wait| match &growing {
            None => vfs.read_with(ino.0, offset, size.into(), wait),
            Some(growing) => vfs.read_growing(ino.0, growing, offset, size.into(), wait),
        };
        self.run(About::node(request, ino), reply, read, |reply, bytes| reply.data(bytes.as_syscall_buf()));
    }

    fn readdir(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.vfs.requests.readdir.fetch_add(1, Relaxed);
        let list = move |vfs: &Vfs, slot: &Slot<ReplyDirectory>, wait| {
            let mut any = false;
            let listed = vfs.read_dir_with(ino.0, offset, false, wait, &mut |entry| {
                let kind = file_type(entry.kind);
                any = true;
                full(slot.with(|reply| reply.add(INodeNo(entry.ino), entry.next, kind, entry.name)).unwrap_or(true))
            });
            or_a_part(listed, any)
        };
        self.run(About::node(request, ino), reply, list, |reply, ()| reply.ok());
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.vfs.requests.readdir.fetch_add(1, Relaxed);
        self.vfs.requests.readdirplus.fetch_add(1, Relaxed);
        let list = move |vfs: &Vfs, slot: &Slot<ReplyDirectoryPlus>, wait| {
            // They count as looked up only when the reply is sent.
            let (mut any, mut added) = (false, Vec::new());
            let listed = vfs.read_dir_with(ino.0, offset, true, wait, &mut |entry| {
                let DirEntry { next, name, ino, kind, attr } = entry;
                // The kernel asks for attributes that are missing here when they are needed.
                let (ttl, attr) = attr.map_or((Duration::ZERO, no_attr(ino, kind)), |a| (ttl(a.ttl), file_attr(&a)));
                let is_full = slot.with(|reply| reply.add(INodeNo(ino), next, name, &ttl, &attr, Generation(0)));
                any = true;
                if is_full == Some(false) && name != "." && name != ".." {
                    added.push(ino);
                }
                full(is_full.unwrap_or(true))
            });
            match or_a_part(listed, any) {
                Ok(()) => Ok(added),
                Err(error) => {
                    never_heard_of(vfs, added);
                    Err(error)
                }
            }
        };
        self.run_counted(About::node(request, ino), reply, list, |vfs, reply, added| match reply {
            Some(reply) => reply.ok(),
            None => never_heard_of(vfs, added),
        });
    }

    /// Reports all used space of SOURCE's filesystem as in use and none as free, because nothing can be written. Never
    /// no space at all: `df` leaves such mounts out, and some programs take it for an error.
    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.vfs.requests.statfs.fetch_add(1, Relaxed);
        self.run_known(About::node(request, ino), reply, &self.space, Vfs::usage, answer_statfs);
    }

    /// Answers `FICLONE`, which programs that copy try for each file. Without this, each try would be a line in the
    /// log.
    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
        self.answered();
    }

    // "Not implemented" is asked once for each mount, "no such attribute" every time.
    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.vfs.options().xattrs {
            reply.error(Errno::ENOSYS);
        } else if xattr::is_ours(name) {
            let name = name.to_owned();
            self.run(
                About::node(request, ino),
                reply,
                move |vfs, _, wait| xattr::get(vfs, ino.0, &name, wait),
                move |reply, value| xattr::answer(value, size, reply),
            );
        } else {
            reply.error(Errno::NO_XATTR);
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if self.vfs.options().xattrs {
            self.run(
                About::node(request, ino),
                reply,
                move |vfs, _, wait| xattr::list(vfs, ino.0, wait),
                move |reply, names| xattr::answer(names, size, reply),
            );
        } else {
            reply.error(Errno::ENOSYS);
        }
    }
}

/// Takes back look-ups whose answers were not sent.
fn never_heard_of(vfs: &Vfs, nodes: impl IntoIterator<Item = u64>) {
    nodes.into_iter().for_each(|ino| vfs.forget(ino, 1));
}

/// Returns the result of a listing: if `any` entries were added before something has to be waited for, they make an answer.
fn or_a_part(listed: Result<(), Error>, any: bool) -> Result<(), Error> {
    listed.or_else(|error| if any && error.is_would_block() { Ok(()) } else { Err(error) })
}

/// Returns whether this process has CAP_SYS_ADMIN (capabilities(7)).
pub(crate) fn has_sys_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Returns whether the kernel takes files to serve from this process: it has CAP_SYS_ADMIN, and not only in a user
/// namespace of its own, where user 0 is somebody else (user_namespaces(7)).
pub(crate) fn may_pass_files() -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    has_sys_admin() && (users.is_empty() || users.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// Asks the kernel to read files by itself.
fn offer_passthrough(config: &mut KernelConfig) -> Result<(), &'static str> {
    if !may_pass_files() {
        return Err("the kernel takes files to serve from root only (CAP_SYS_ADMIN, outside of a user namespace)");
    }
    config.set_max_stack_depth(1).map_err(|_| "the kernel allows no files below this mount")?;
    config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).map_err(|_| "this kernel cannot (Linux 6.9 and newer can)")
}
