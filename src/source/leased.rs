//! A range of a local file that may be looked at where it lies, without a copy.
//!
//! A plain map of a file is unsafe: writing to the file changes the mapped bytes, and truncating it makes the next access
//! fail with SIGBUS. So the map is made under a lease (`F_SETLEASE`, fcntl(2)). The kernel grants one to the file's owner
//! and to root while no process has the file open for writing, and from then on blocks `open` for writing and `truncate`
//! until the lease is released. The kernel signals a thread of this module, which puts a copy of the bytes into memory
//! at the same addresses and then releases the lease. Readers notice nothing; the writer waits for as long as the copy
//! takes.
//!
//! What remains: the kernel breaks a lease by itself after `/proc/sys/fs/lease-break-time` (45 seconds). A process that is
//! stopped for so long while another one truncates the file may be ended by SIGBUS when it goes on.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    ops::Range,
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    ptr,
    sync::{Arc, Weak, mpsc},
    thread,
};

use memmap2::{Mmap, MmapMut, MmapOptions};
use parking_lot::Mutex;

use crate::per_process::PerProcess;

/// Commands of fcntl(2): choose the signal for a lease that must be released, and the thread that gets it.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// Maps begin at multiples of this many bytes. No machine has larger pages.
const ALIGNMENT: u64 = 64 << 10;

#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// A range of a file, read-only. Its bytes never change.
#[derive(Debug)]
pub struct Leased {
    pages: Arc<Pages>,
    range: Range<usize>,
}

impl Leased {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.pages.map[self.range.clone()]
    }

    /// Returns whether they still lie in the file.
    pub fn is_in_file(&self) -> bool {
        self.pages.file.lock().is_some()
    }
}

/// Whole pages.
#[derive(Debug)]
struct Pages {
    /// A map of the file, or the copy that took its place.
    map: Mmap,
    /// Offset of the pages in the file, in bytes.
    start: u64,
    /// The file with the lease, while the map is one of the file.
    file: Mutex<Option<File>>,
}

/// The leases of this process.
struct Keeper {
    /// The thread that is signalled when a lease must be released.
    thread: libc::pid_t,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    leases: Vec<Weak<Pages>>,
    /// Whether this process is about to fork. No lease is taken then.
    is_forking: bool,
}

static KEEPER: PerProcess<Keeper> = PerProcess::new();

/// Maps a range of a file, which ends inside it, under a lease.
///
/// # Errors
/// What fcntl(2) says: `EAGAIN` if the file is open for writing, `EACCES` for a file of another user, `EINVAL` if the
/// filesystem has no leases. Also `EBUSY` while this process forks.
pub(crate) fn lease(file: &File, range: Range<u64>) -> io::Result<Leased> {
    let keeper = KEEPER.get_or_try_init(Keeper::start)?;
    let mut state = keeper.state.lock();
    if state.is_forking {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // A lease belongs to an open file description, so this one must not be shared.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let own = File::options().read(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK).open(path)?;
    let owner = Owner { kind: F_OWNER_TID, id: keeper.thread };
    control(&own, F_SETSIG, signal())?;
    // SAFETY: the kernel reads an `f_owner_ex` (fcntl(2)), which `Owner` is, for the time of the call.
    #[allow(unsafe_code, reason = "mapping a file is this module's job")]
    check(unsafe { libc::fcntl(own.as_raw_fd(), F_SETOWN_EX, ptr::from_ref(&owner)) })?;
    control(&own, libc::F_SETLEASE, libc::F_RDLCK)?;
    let start = range.start / ALIGNMENT * ALIGNMENT;
    let too_long = |_| io::Error::from_raw_os_error(libc::EOVERFLOW);
    let length = usize::try_from(range.end - start).map_err(too_long)?;
    // SAFETY: no process has the file open for writing, and none will before `Pages::detach` has put a copy in place of
    // the map. So its bytes never change and are never lost (module documentation).
    #[allow(unsafe_code, reason = "mapping a file is this module's job")]
    let map = unsafe { MmapOptions::new().offset(start).len(length).map(&own) }?;
    let pages = Arc::new(Pages { map, start, file: Mutex::new(Some(own)) });
    state.leases.retain(|pages| pages.strong_count() > 0);
    state.leases.push(Arc::downgrade(&pages));
    let first = (range.start - start) as usize;
    Ok(Leased { pages, range: first..length })
}

/// Called before this process forks: copies the bytes into memory, because the child has no thread that would. No lease
/// is taken until [`forked`] is called.
pub fn before_fork() {
    let Some(keeper) = KEEPER.get() else { return };
    keeper.state.lock().is_forking = true;
    for pages in keeper.all() {
        if let Err(error) = pages.detach() {
            log::error!("a mapped array could not be copied before a fork: {error}");
        }
    }
}

/// Called in the parent after it has forked.
pub fn forked() {
    if let Some(keeper) = KEEPER.get() {
        keeper.state.lock().is_forking = false;
    }
}

impl Pages {
    /// Returns whether a writer waits for the lease to be released.
    fn is_wanted(&self) -> bool {
        let file = self.file.lock();
        file.as_ref().is_some_and(|file| control(file, libc::F_GETLEASE, 0).ok() != Some(libc::F_RDLCK))
    }

    /// Puts a copy of the bytes in place of the map, and releases the lease.
    fn detach(&self) -> io::Result<()> {
        let mut file = self.file.lock();
        let Some(own) = &*file else { return Ok(()) };
        let mut copy = MmapMut::map_anon(self.map.len())?;
        own.read_exact_at(&mut copy, self.start)?;
        let copy = copy.make_read_only()?;
        // SAFETY: both are whole maps of the same length, and `self.map` is the owner of what is at its place before and
        // afterwards; the kernel replaces it in one step, for all threads. Nothing else refers to the place of `copy`.
        #[allow(unsafe_code, reason = "mapping a file is this module's job")]
        let moved = unsafe {
            let (from, to) = (copy.as_ptr().cast_mut().cast(), self.map.as_ptr().cast_mut().cast::<libc::c_void>());
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            libc::mremap(from, copy.len(), copy.len(), flags, to)
        };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Its memory is at the map's place now.
        std::mem::forget(copy);
        *file = None;
        Ok(())
    }
}

impl Keeper {
    fn start() -> io::Result<Self> {
        let (tell, told) = mpsc::channel();
        thread::Builder::new().name("leases".into()).spawn(move || {
            let signals = block();
            // SAFETY: the call has no preconditions. `libc::gettid` would need glibc 2.30.
            #[allow(unsafe_code, reason = "mapping a file is this module's job")]
            let _ = tell.send(unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t);
            watch(&signals);
        })?;
        Ok(Self { thread: told.recv().map_err(io::Error::other)?, state: Mutex::default() })
    }

    fn all(&self) -> Vec<Arc<Pages>> {
        self.state.lock().leases.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Blocks the signals about leases in this thread, which waits for them explicitly. The kernel sends SIGIO if the queue
/// of signals is full.
fn block() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes the set that the other calls take.
    #[allow(unsafe_code, reason = "mapping a file is this module's job")]
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGIO);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        set.assume_init()
    }
}

/// Releases leases that others want, for ever.
fn watch(signals: &libc::sigset_t) {
    let mut again = false;
    loop {
        // If there was no memory for a copy, it tries again soon.
        let nanos = if again { 50_000_000 } else { 0 };
        let patience = libc::timespec { tv_sec: libc::time_t::from(!again), tv_nsec: nanos };
        // SAFETY: the set and the time are valid; nothing is written.
        #[allow(unsafe_code, reason = "mapping a file is this module's job")]
        unsafe {
            libc::sigtimedwait(signals, ptr::null_mut(), &raw const patience);
        }
        again = false;
        for pages in KEEPER.get().map(Keeper::all).unwrap_or_default() {
            if pages.is_wanted()
                && let Err(error) = pages.detach()
            {
                log::error!("a file that a program wants to write to could not be copied: {error}");
                again = true;
            }
        }
    }
}

/// Returns a signal that programs do not normally use, and the C library never.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 11
}

fn control(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    let descriptor: RawFd = file.as_raw_fd();
    // SAFETY: the commands of this module that take a number; the descriptor is open.
    #[allow(unsafe_code, reason = "mapping a file is this module's job")]
    check(unsafe { libc::fcntl(descriptor, command, argument) })
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
