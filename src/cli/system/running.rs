//! What a running mount does beside answering: its log, signals, the service manager, and its end when it is idle.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;

use crate::{
    cli::{
        Destination, escape,
        logging::{self, Level},
        mounts::Mount,
    },
    vfs::Vfs,
};

/// Options of a running mount.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunningOptions {
    /// Make MOUNTPOINT if it does not exist
    #[arg(long)]
    mkdir: bool,

    /// Remove the empty folder MOUNTPOINT when the mount ends
    #[arg(long)]
    rmdir: bool,

    /// End the mount after so long without use, if nothing is open in it: seconds, or 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = idle_time)]
    idle_timeout: Option<Duration>,

    /// Show extended attributes on stored items: user.shardfs.dtype, .shape, .codec, .stored_size, .crc32c, .inferred
    #[arg(long)]
    pub(in crate::cli) xattrs: bool,

    /// Append the log to this file; SIGHUP opens it again [default: stderr in the foreground, nowhere in the background]
    #[arg(long, value_name = "FILE", value_parser = crate::cli::local())]
    pub(in crate::cli) log_file: Option<PathBuf>,

    /// How much is logged; SIGUSR1 raises the level, and after the highest goes back to this one [default: RUST_LOG, or
    /// info in the foreground and warn in the background]
    #[arg(long, value_enum, value_name = "LEVEL")]
    log_level: Option<Level>,

    /// Log a warning for operations that take longer than this: seconds, or 500ms; 0 for none
    #[arg(long, value_name = "TIME", value_parser = crate::cli::duration, default_value = "5s")]
    pub(in crate::cli) slow: Duration,
}

/// Refuses less than a second, which would end the mount before its first use.
fn idle_time(text: &str) -> Result<Duration, String> {
    let time = crate::cli::duration(text)?;
    if time >= Duration::from_secs(1) { Ok(time) } else { Err("at least 1 second".into()) }
}

impl RunningOptions {
    /// Starts the log.
    ///
    /// # Errors
    /// If the log file cannot be opened.
    pub(in crate::cli) fn start_log(&self, in_foreground: bool) -> anyhow::Result<()> {
        let default = if in_foreground { Level::Info } else { Level::Warn };
        logging::start(self.log_level, default, self.log_file.as_deref())
    }

    /// Makes the mount point if that is wanted. Dropping the result removes it if that is wanted, or if it was made for
    /// a mount that failed.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(in crate::cli) fn mountpoint(&self, path: &Path) -> anyhow::Result<MountPoint> {
        let is_missing = std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        let named = || path.display().to_string();
        let place = match (path.parent(), path.file_name()) {
            _ if is_missing && self.mkdir => Some(Destination::make_below_nearest(path).with_context(named)?),
            _ if is_missing => bail!("{}: no such folder; --mkdir makes it", path.display()),
            (Some(folder), Some(name)) if self.rmdir => {
                Some((Destination::open(folder).with_context(named)?, name.into()))
            }
            _ => None,
        };
        Ok(MountPoint { place, remove: is_missing, remove_at_end: self.rmdir })
    }

    /// Starts what runs while the mount exists.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(in crate::cli) fn begin(&self, vfs: &Arc<Vfs>, mount: &Mount) -> anyhow::Result<()> {
        if let Some(limit) = self.idle_timeout {
            let (vfs, mount) = (vfs.clone(), mount.clone());
            let end = move || end_when_idle(&vfs, &mount, limit);
            thread::Builder::new().name("idle".into()).spawn(end).context("starting a thread")?;
        }
        let pid = std::process::id();
        let shown = format!("{} on {}", escape::path(vfs.source()), escape::path(&mount.at));
        notify(&format!("READY=1\nMAINPID={pid}\nSTATUS={shown}"));
        if let Some(interval) = watchdog_interval() {
            let mountpoint = mount.at.clone();
            let feed = move || feed_watchdog(&mountpoint, interval);
            thread::Builder::new().name("watchdog".into()).spawn(feed).context("starting a thread")?;
        }
        Ok(())
    }
}

/// A mount point that may have to be removed.
pub(in crate::cli) struct MountPoint {
    /// Where it is, beneath a folder that stays open: by its path, another user could have another folder removed.
    place: Option<(Destination, PathBuf)>,
    remove: bool,
    remove_at_end: bool,
}

impl MountPoint {
    /// Notes that the mount uses it. Its end is from now on the mount's end.
    pub(in crate::cli) fn is_mounted(&mut self) {
        self.remove = self.remove_at_end;
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // Fails if it is not empty, or not ours to remove.
        if self.remove
            && let Some((folder, below)) = &self.place
            && let Err(error) = folder.remove_folder(below)
        {
            log::warn!("{}: not removed: {error}", folder.shown(below).display());
        }
    }
}

/// Takes the mount down when no request has come for a while. If a process has something open in it, or its current
/// folder there, unmounting fails and is tried again later.
fn end_when_idle(vfs: &Vfs, mount: &Mount, limit: Duration) {
    let requests = || {
        let requests = &vfs.requests;
        // Attributes too, because for a folder that was listed before, the kernel asks for nothing else.
        let counters = [&requests.lookup, &requests.getattr, &requests.readdir, &requests.read, &requests.open];
        counters.iter().map(|counter| counter.load(Relaxed)).sum::<u64>()
    };
    let (mut seen, mut since) = (requests(), Instant::now());
    loop {
        thread::sleep((limit / 4).min(Duration::from_secs(1)));
        let now = requests();
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= limit {
            log::info!("{}: not used for {} s", mount.at.display(), limit.as_secs());
            match crate::cli::commands::umount::take_down(mount) {
                Ok(()) => return,
                Err(error) => log::debug!("{error:#}"),
            }
            since = Instant::now();
        }
    }
}

/// Sends a message to the service manager, if there is one (sd_notify(3)). Failures are ignored: they must not end a
/// mount.
pub(in crate::cli) fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        log::debug!("NOTIFY_SOCKET {}: {error}", socket.display());
    }
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// Returns half the interval in which the service manager expects a sign of life.
fn watchdog_interval() -> Option<Duration> {
    let for_another = std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid != std::process::id().to_string());
    let micros =
        std::env::var("WATCHDOG_USEC").ok()?.parse().ok().filter(|&micros: &u64| micros > 0 && !for_another)?;
    Some(Duration::from_micros(micros) / 2)
}

/// Tells the service manager that the mount answers. For that it asks the mount something that the kernel never answers
/// by itself and that waits for no disk, because a disk that does not answer is no reason to restart this process.
fn feed_watchdog(mountpoint: &Path, interval: Duration) {
    loop {
        match std::fs::metadata(mountpoint.join(".shardfs/stats.json")) {
            Ok(_) => notify("WATCHDOG=1"),
            Err(error) => log::debug!("{}: {error}", mountpoint.display()),
        }
        thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_times() {
        assert_eq!(idle_time("1h"), Ok(Duration::from_secs(3600)));
        assert!(idle_time("0").is_err() && idle_time("500ms").is_err());
    }
}
