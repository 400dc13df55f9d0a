//! The adapter to the kernel: unpack a request, call [`Vfs`], reply. The only module that names fuser.
//!
//! In page-cache mode `open` and `opendir` are answered "not implemented" once and the kernel never asks again; what
//! was read stays in its page cache, names and attributes of containers in its other caches. In passthrough mode
//! finished large files are handed to the kernel at `open` (`fuse/open.rs`). What would wait for a decoder or for a
//! container to be opened is answered from a pool of threads, so that look-ups never stand behind zstd.

mod open;

mod guard;
mod mounting;
mod notify;
mod pending;
mod pool;
#[cfg(test)]
mod tests;
mod xattr;

use std::{
    ffi::OsStr,
    io,
    ops::ControlFlow,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyXattr, Request, Session, SessionACL,
};

use parking_lot::Mutex;

use crate::{
    limits,
    source::Wait,
    vfs::{Attr, DirEntry, Error, FileKind, Serve, Serving, Ttl, Vfs},
};
use guard::guarded;
use notify::Behind;
use open::Handles;
use pending::{Fails, Slot};
use pool::{Job, Pool};

/// How long the kernel may trust what it knows of a container's inside: an inode number stands for one state of the
/// container, so there is nothing to go stale.
const CONTAINER_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// How long it may trust what it knows of SOURCE's own folders and files, which change: what is new is seen within a
/// second, also where nothing can be watched.
const SOURCE_TTL: Duration = Duration::from_millis(500);

/// Where and how a mount appears.
#[derive(Debug, Clone)]
pub struct MountConfig {
    /// Let other users in, as far as the modes of the files do.
    pub allow_other: bool,
    /// Threads that take requests from the kernel.
    pub threads: usize,
}

/// A mount that has not begun to answer.
pub struct Mount {
    session: Session<Adapter>,
    vfs: Arc<Vfs>,
    behind: Behind,
}

impl Mount {
    /// Mounts a filesystem; [`Self::serve`] answers.
    ///
    /// # Errors
    /// What the kernel or `fusermount3` says.
    pub fn new(vfs: Arc<Vfs>, mountpoint: &Path, config: &MountConfig) -> io::Result<Self> {
        let mut options = Config::default();
        options.acl = if config.allow_other { SessionACL::All } else { SessionACL::Owner };
        options.n_threads = Some(config.threads.max(1));
        options.clone_fd = true;
        let largest_read = vfs.cache().usage().0 / limits::REPLIES_PART;
        let largest_read = (largest_read < limits::LARGEST_READ)
            .then(|| largest_read.clamp(limits::SMALLEST_READ, limits::LARGEST_READ) & !(limits::SMALLEST_READ - 1));
        let device = mounting::make(vfs.source(), mountpoint, config.allow_other, largest_read)?;
        // Given a device, the session takes nothing down when it ends: what stands at the mount point by then may be
        // another mount.
        let adapter = Adapter::new(vfs.clone());
        let behind = adapter.behind.clone();
        let session = Session::from_fd(adapter, device, options.acl, options)?;
        Ok(Self { session, vfs, behind })
    }

    /// Answers requests until the mount is taken down.
    ///
    /// # Errors
    /// What ended the session, if it was not an unmount.
    pub fn serve(self) -> io::Result<()> {
        notify::start(&self.vfs, &self.behind, self.session.notifier())?;
        drop(self.vfs);
        self.session.run()
    }
}

/// Lets the kernel read ahead further than the 128 KiB that it grants by itself; `device` is the mount's device number,
/// major and minor. Only root may.
///
/// # Errors
/// What writing to sysfs says.
pub fn raise_readahead((major, minor): (u32, u32), kib: u64) -> io::Result<()> {
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), kib.to_string())
}

struct Adapter {
    vfs: Arc<Vfs>,
    /// The open files in passthrough mode.
    handles: Option<Arc<Handles>>,
    behind: Behind,
    known: Arc<Known>,
}

/// Last answers, which do when a disk gives no newer ones: `.shardfs` is reached through the root's attributes.
#[derive(Default)]
struct Known {
    root: LastKnown<Attr>,
    space: LastKnown<Space>,
}

/// Answers with what is known already.
type FromMemory<R> = Box<dyn FnOnce(R) + Send>;

/// A last answer, and whether the request for a newer one has waited too long and still does.
struct LastKnown<T>(Mutex<(Option<T>, bool)>);

impl<T> Default for LastKnown<T> {
    fn default() -> Self {
        Self(Mutex::new((None, false)))
    }
}

impl<T: Copy> LastKnown<T> {
    fn is_known(&self) -> bool {
        self.0.lock().0.is_some()
    }

    fn is_late(&self) -> bool {
        self.0.lock().1
    }

    /// Takes note of a new answer, or that there was none.
    fn arrived(&self, answer: Option<T>) {
        let mut known = self.0.lock();
        *known = (answer.or(known.0), false);
    }

    /// The last answer, given in place of a newer one.
    fn late(&self) -> Option<T> {
        let mut known = self.0.lock();
        known.1 = known.0.is_some();
        known.0
    }
}

/// What `statfs` says: the size of a block, blocks and files in use.
type Space = (u64, u64, u64);

/// What a request is about: for whom it is, and what it looks at.
#[derive(Clone, Copy)]
struct About<'a> {
    reader: u32,
    ino: u64,
    name: Option<&'a OsStr>,
}

impl<'a> About<'a> {
    fn node(request: &Request, ino: INodeNo) -> Self {
        Self { reader: request.pid(), ino: ino.0, name: None }
    }

    fn name(request: &Request, ino: INodeNo, name: &'a OsStr) -> Self {
        Self { name: Some(name), ..Self::node(request, ino) }
    }
}

impl Adapter {
    fn new(vfs: Arc<Vfs>) -> Self {
        let behind =
            Behind { pool: Arc::new(Pool::new(vfs.source())), pending: Arc::default(), notifier: Arc::default() };
        Self { vfs, handles: None, behind, known: Arc::default() }
    }

    /// Answers a request: here, if that takes no waiting, and otherwise in the pool, with no reply where it was answered
    /// meanwhile. `work` is tried with [`Wait::Never`] first.
    fn run<R: Fails, T>(
        &self,
        about: About<'_>,
        reply: R,
        work: impl Fn(&Vfs, Wait) -> Result<T, Error> + Send + 'static,
        answer: impl FnOnce(&Vfs, Option<R>, Result<T, Error>) + Send + 'static,
    ) {
        guarded(&self.vfs, |vfs| match work(vfs, Wait::Never) {
            Err(error) if error.is_would_block() => {
                let behind = self.behind.clone();
                self.wait(about, reply, None, move |vfs, slot| {
                    let done = behind.checked(vfs, work(vfs, Wait::Always));
                    answer(vfs, slot.take(), done);
                });
            }
            done => answer(vfs, Some(reply), self.behind.checked(vfs, done)),
        });
    }

    /// The same for a listing, which fills its reply while it works. `list` says whether anything was added to it; what
    /// was added before something has to be waited for is an answer.
    fn list<R: Fails>(
        &self,
        about: About<'_>,
        reply: R,
        list: impl Fn(&Vfs, &Slot<R>, Wait) -> (bool, Result<(), Error>) + Send + 'static,
        answer: impl FnOnce(&Vfs, Option<R>, Result<(), Error>) + Send + 'static,
    ) {
        let slot = Slot::new(reply);
        guarded(&self.vfs, |vfs| match list(vfs, &slot, Wait::Never) {
            (false, Err(error)) if error.is_would_block() => {
                let Some(reply) = slot.take() else { return };
                self.wait(about, reply, None, move |vfs, slot| {
                    let listed = list(vfs, slot, Wait::Always).1;
                    answer(vfs, slot.take(), listed);
                });
            }
            (_, Err(error)) if error.is_would_block() => answer(vfs, slot.take(), Ok(())),
            (_, listed) => answer(vfs, slot.take(), listed),
        });
    }

    /// Works on a request in the pool. `from_memory` gives an answer that will do when the disk gives none.
    fn wait<R: Fails>(
        &self,
        about: About<'_>,
        reply: R,
        from_memory: Option<FromMemory<R>>,
        work: impl FnOnce(&Vfs, &Slot<R>) + Send + 'static,
    ) {
        let place = self.behind.pool.place(&self.vfs.path_on_disk(about.ino, about.name));
        let slot = Arc::new(Slot::new(reply));
        let from_memory = from_memory.map(|answer| -> Box<dyn FnOnce() + Send> {
            let slot = slot.clone();
            Box::new(move || slot.take().map_or((), answer))
        });
        let ticket = self.behind.pending.begin(about.reader, &slot, from_memory);
        let is_given_up = ticket.is_given_up.clone();
        let vfs = self.vfs.clone();
        let run = Box::new(move || {
            let _ticket = ticket;
            guarded(&vfs, |vfs| work(vfs, &slot));
        });
        self.behind.pool.run(place, Job { run, is_given_up });
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_ASYNC_DIO
            // For SOURCE's own files, whose size or time may change. Containers' never do: a changed one has new
            // inodes.
            | InitFlags::FUSE_AUTO_INVAL_DATA;
        // An older kernel simply goes without what it does not know.
        let _ = config.add_capabilities(wanted & config.capabilities());
        // Reads ahead of a disk that does not answer must not take the places of all others: as many as the kernel
        // allows.
        let _ = config.set_max_background(u16::MAX);
        let _ = config.set_max_readahead(u32::MAX).or_else(|most| config.set_max_readahead(most));
        let mut serving = Serving::default();
        if self.vfs.options().serve == Serve::Passthrough {
            match offer_passthrough(config) {
                Ok(()) => {
                    serving.passthrough = true;
                    serving.maps_direct = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
                    self.handles = Some(Arc::default());
                }
                Err(reason) => serving.reason = Some(reason.into()),
            }
        }
        // A file in memory is the only copy; what goes through the kernel's cache is kept there.
        self.vfs.cache().set_readers_keep();
        self.vfs.serve_as(serving);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.vfs.requests.lookup.fetch_add(1, Relaxed);
        let owned = name.to_owned();
        self.run(
            About::name(request, parent, name),
            reply,
            move |vfs, wait| vfs.lookup_with(parent.0, &owned, wait),
            move |vfs, reply, found| match (reply, found) {
                (Some(reply), Ok(Some(attr))) => reply.entry(&ttl(attr.ttl), &file_attr(&attr), Generation(0)),
                // Number 0 and a time to live: the kernel remembers that there is nothing.
                (Some(reply), Ok(None)) => {
                    reply.entry(&ttl(vfs.ttl_of_names(parent.0)), &no_attr(0, FileKind::File), Generation(0));
                }
                (Some(reply), Err(error)) => reply.error(errno(&error)),
                // The kernel does not know of it.
                (None, Ok(Some(attr))) => vfs.forget(attr.ino, 1),
                (None, _) => {}
            },
        );
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.vfs.requests.forget.fetch_add(1, Relaxed);
        self.vfs.forget(ino.0, lookups);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.vfs.requests.getattr.fetch_add(1, Relaxed);
        let known = self.known.clone();
        let answer = move |reply: Option<ReplyAttr>, found: Result<Attr, Error>| match (reply, found) {
            (Some(reply), Ok(attr)) => reply.attr(&ttl(attr.ttl), &file_attr(&attr)),
            (Some(reply), Err(error)) => reply.error(errno(&error)),
            (None, _) => {}
        };
        if ino != INodeNo::ROOT {
            let work = move |vfs: &Vfs, wait| vfs.attr_with(ino.0, wait);
            return self.run(About::node(request, ino), reply, work, move |_, reply, found| answer(reply, found));
        }
        let from_memory = {
            let known = known.clone();
            move |reply: ReplyAttr| match known.root.late() {
                Some(attr) => reply.attr(&ttl(attr.ttl), &file_attr(&attr)),
                None => reply.error(Errno::EIO),
            }
        };
        if known.root.is_late() {
            return from_memory(reply);
        }
        let from_memory = known.root.is_known().then(|| -> FromMemory<_> { Box::new(from_memory) });
        self.wait(About::node(request, ino), reply, from_memory, move |vfs, slot| {
            let found = vfs.attr(ino.0);
            known.root.arrived(found.as_ref().ok().copied());
            answer(slot.take(), found);
        });
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.vfs.requests.readlink.fetch_add(1, Relaxed);
        self.run(
            About::node(request, ino),
            reply,
            move |vfs, wait| vfs.read_link_with(ino.0, wait),
            |_, reply, target| match (reply, target) {
                (Some(reply), Ok(target)) => reply.data(target.as_encoded_bytes()),
                (Some(reply), Err(error)) => reply.error(errno(&error)),
                (None, _) => {}
            },
        );
    }

    fn open(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.vfs.requests.open.fetch_add(1, Relaxed);
        match self.handles.clone() {
            None => reply.error(Errno::ENOSYS),
            Some(handles) => {
                let choose = {
                    let handles = handles.clone();
                    move |vfs: &Vfs, wait| handles.choose(vfs, ino.0, wait)
                };
                self.run(About::node(request, ino), reply, choose, move |vfs, reply, opening| {
                    if let Some(reply) = reply {
                        handles.open(vfs, ino.0, opening, reply);
                    }
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
        let read = move |vfs: &Vfs, wait| match &growing {
            None => vfs.read_with(ino.0, offset, size.into(), wait),
            Some(growing) => vfs.read_growing(ino.0, growing, offset, size.into(), wait),
        };
        self.run(About::node(request, ino), reply, read, |_, reply, bytes| match (reply, bytes) {
            (Some(reply), Ok(bytes)) => reply.data(bytes.as_syscall_buf()),
            (Some(reply), Err(error)) => reply.error(errno(&error)),
            (None, _) => {}
        });
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
            (any, listed)
        };
        self.list(About::node(request, ino), reply, list, |_, reply, listed| match (reply, listed) {
            (Some(reply), Ok(())) => reply.ok(),
            (Some(reply), Err(error)) => reply.error(errno(&error)),
            (None, _) => {}
        });
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.vfs.requests.readdir.fetch_add(1, Relaxed);
        self.vfs.requests.readdirplus.fetch_add(1, Relaxed);
        // Nodes that were added to the reply count as looked up once it is sent.
        let held = Arc::new(Mutex::new(Vec::new()));
        let added = held.clone();
        let list = move |vfs: &Vfs, slot: &Slot<ReplyDirectoryPlus>, wait| {
            let mut any = false;
            let listed = vfs.read_dir_with(ino.0, offset, true, wait, &mut |entry| {
                let DirEntry { next, name, ino, kind, attr } = entry;
                // Attributes that are not given are asked for when they are wanted.
                let (ttl, attr) = attr.map_or((Duration::ZERO, no_attr(ino, kind)), |a| (ttl(a.ttl), file_attr(&a)));
                let is_full = slot.with(|reply| reply.add(INodeNo(ino), next, name, &ttl, &attr, Generation(0)));
                any = true;
                if is_full == Some(false) && name != "." && name != ".." {
                    added.lock().push(ino);
                }
                full(is_full.unwrap_or(true))
            });
            (any, listed)
        };
        self.list(About::node(request, ino), reply, list, move |vfs, reply, listed| match (reply, listed) {
            (Some(reply), Ok(())) => reply.ok(),
            (reply, listed) => {
                if let (Some(reply), Err(error)) = (reply, listed) {
                    reply.error(errno(&error));
                }
                // The kernel does not know of them.
                held.lock().drain(..).for_each(|ino| vfs.forget(ino, 1));
            }
        });
    }

    /// All of the space that SOURCE's filesystem uses is in use, and none is free: nothing can be written here. Never
    /// no space at all, which `df` leaves out and some programs take for an error.
    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.vfs.requests.statfs.fetch_add(1, Relaxed);
        let known = self.known.clone();
        let from_memory = {
            let known = known.clone();
            move |reply: ReplyStatfs| match known.space.late() {
                Some(space) => answer_statfs(space, reply),
                None => reply.error(Errno::EIO),
            }
        };
        if known.space.is_late() {
            return from_memory(reply);
        }
        let from_memory = known.space.is_known().then(|| -> FromMemory<_> { Box::new(from_memory) });
        self.wait(About::node(request, ino), reply, from_memory, move |vfs, slot| {
            let found = vfs.usage();
            known.space.arrived(found.as_ref().ok().copied());
            match (slot.take(), found) {
                (Some(reply), Ok(space)) => answer_statfs(space, reply),
                (Some(reply), Err(error)) => reply.error(errno(&error)),
                (None, _) => {}
            }
        });
    }

    /// Programs that copy try their luck (`FICLONE`) with each file. Answered here, it is no line in the log.
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
    }

    // "Not implemented" is asked once a mount; "no such attribute" again and again.
    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.vfs.options().xattrs {
            reply.error(Errno::ENOSYS);
        } else if xattr::is_ours(name) {
            let name = name.to_owned();
            self.run(
                About::node(request, ino),
                reply,
                move |vfs, wait| xattr::get(vfs, ino.0, &name, wait),
                move |_, reply, value| {
                    xattr::answer(value, size, reply);
                },
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
                move |vfs, wait| xattr::list(vfs, ino.0, wait),
                move |_, reply, names| {
                    xattr::answer(names, size, reply);
                },
            );
        } else {
            reply.error(Errno::ENOSYS);
        }
    }
}

/// Asks the kernel to read files by itself.
fn offer_passthrough(config: &mut KernelConfig) -> Result<(), &'static str> {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    if effective >> CAP_SYS_ADMIN & 1 == 0 {
        return Err("the kernel takes files to serve from root (CAP_SYS_ADMIN) only");
    }
    config.set_max_stack_depth(1).map_err(|_| "the kernel allows no files below this mount")?;
    config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).map_err(|_| "this kernel cannot (Linux 6.9 and newer can)")
}

fn answer_statfs((block, blocks, files): Space, reply: ReplyStatfs) {
    reply.statfs(blocks.max(1), 0, 0, files.max(1), 0, block as u32, 255, block as u32);
}

fn errno(error: &Error) -> Errno {
    log::debug!("{error}");
    Errno::from_i32(error.errno())
}

fn full(full: bool) -> ControlFlow<()> {
    if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn ttl(ttl: Ttl) -> Duration {
    match ttl {
        Ttl::None => Duration::ZERO,
        Ttl::Source => SOURCE_TTL,
        Ttl::Container => CONTAINER_TTL,
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Folder => FileType::Directory,
        FileKind::File => FileType::RegularFile,
        FileKind::Link => FileType::Symlink,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
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

/// Attributes of a node of which no more is known.
fn no_attr(ino: u64, kind: FileKind) -> FileAttr {
    let (size, mode, mtime) = (0, 0, (0, 0));
    file_attr(&Attr { ino, kind, size, mode, nlink: 0, uid: 0, gid: 0, mtime, ttl: Ttl::None })
}
