//! A mount, from the system call to its end.
//!
//! Requests come through `/dev/fuse`: one `read` and one `write` for each. FUSE over io_uring (Linux 6.14) saves the two
//! system calls and a wake-up. With libfuse's passthrough example and two busy cores, a cold `stat` took 13-16 us instead of
//! 25, and opening, reading and closing 20 KB took 67-71 us instead of 89-143. It is not used because fuser does not have
//! it, kernels switch it off by default (module parameter `enable_uring`, which only root can change), and it gains nothing
//! when the kernel answers from its own caches.

use std::{io, path::Path, sync::Arc};

use fuser::{Config, Session, SessionACL};

use super::{
    Adapter,
    awake::Awake,
    mounting,
    notify::{self, Behind},
};
use crate::{limits, source::check_room, store::own_mounts, vfs::Vfs};

/// Where and how a mount appears.
#[derive(Debug, Clone)]
pub struct MountConfig {
    /// Whether other users may read what the modes of the files permit.
    pub allow_other: bool,
    /// Threads that take requests from the kernel.
    pub threads: usize,
}

/// Bytes of the buffer into which a thread reads requests.
const REQUEST: usize = 16 << 20;

/// A mount that does not answer yet.
pub struct Mount {
    session: Session<Adapter>,
    vfs: Arc<Vfs>,
    behind: Behind,
    served: Option<own_mounts::Served>,
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
        // The threads take this memory when they begin. Without it the process would end and leave a dead mount.
        check_room(config.threads as u64, REQUEST)?;
        let device = mounting::make(vfs.source(), mountpoint, config.allow_other, largest_read)?;
        // If its root cannot be opened, another mount hides it: then no path below SOURCE leads to it either.
        let served = own_mounts::serve(mountpoint).ok();
        // Because the session is given a device, it takes nothing down when it ends: another mount may be at the mount
        // point by then.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let awake = if cores > 1 { Some(Awake::new(device.try_clone()?)) } else { None };
        let adapter = Adapter::new(vfs.clone(), awake);
        let behind = adapter.behind.clone();
        let session = Session::from_fd(adapter, device, options.acl, options)?;
        Ok(Self { session, vfs, behind, served })
    }

    /// Answers requests until the mount is taken down.
    ///
    /// # Errors
    /// Why the session ended, unless it was an unmount.
    pub fn serve(self) -> io::Result<()> {
        notify::start(&self.vfs, &self.behind, self.session.notifier())?;
        drop(self.vfs);
        let done = self.session.run();
        drop(self.served);
        done
    }
}

/// Lets the kernel read ahead further than its default of 128 KiB. `device` is the mount's device number, major and
/// minor. Only root may.
///
/// # Errors
/// If writing to sysfs fails.
pub fn raise_readahead((major, minor): (u32, u32), kib: u64) -> io::Result<()> {
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), kib.to_string())
}
