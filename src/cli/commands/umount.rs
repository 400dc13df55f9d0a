//! `shardfs umount`: living, busy and dead mounts.
//!
//! Nothing here asks a mount anything before it acts: its process may be stopped, and what it shows dead. What is acted
//! on is the mount that was found in the kernel's table, never what stands at its path by then.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};

use crate::{
    cli::{
        each, escape,
        mounts::{self, Mount, ours_at, without_asking},
        output::destination::by_descriptor,
        probe::{self, State},
        system::busy,
    },
    programs,
};

/// How long a mount may be in use by something unknown before that is an error; longer than a probe of a mount that
/// does not answer.
const GLANCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// Take mounts down
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs umount /mnt/shards
  shardfs umount --lazy /mnt/a /mnt/b
  shardfs umount --all")]
pub(in crate::cli) struct Arguments {
    /// Where shardfs is mounted
    #[arg(required_unless_present = "all", value_name = "MOUNTPOINT")]
    mountpoints: Vec<PathBuf>,

    /// All mounts of shardfs that this user made (for root: of all users)
    #[arg(short, long, conflicts_with = "mountpoints")]
    all: bool,

    /// Remove the mount from MOUNTPOINT at once; programs that use it continue until they are done
    #[arg(short, long)]
    lazy: bool,

    /// Unmount even while programs use the mount; their further reads fail
    #[arg(short, long)]
    force: bool,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let all = if arguments.all { own_mounts()? } else { Vec::new() };
    each(if arguments.all { &all } else { &arguments.mountpoints }, |mountpoint| {
        let Some(mount) = ours_at(&without_asking(mountpoint)?)? else {
            bail!("{}: no shardfs is mounted here; `shardfs status` lists the mounts", escape::path(mountpoint));
        };
        if !is_own(&mount) {
            let user = mount.user.map_or_else(|| "another user".into(), crate::cli::user_name);
            bail!("{}: mounted by {user}; only that user and root can take it down", escape::path(mountpoint));
        }
        if arguments.force {
            abort(&mount)?;
        }
        if arguments.force || arguments.lazy {
            return detach(&mount);
        }
        match take_down_unused(&mount)? {
            true => Ok(()),
            // A dead mount's users get only errors anyway.
            false if probe::state_at(&mount.at)? == State::Dead => detach(&mount),
            false => bail!(busy::message(&mount)),
        }
    })
}

/// Returns whether this user may take a mount down.
fn is_own(mount: &Mount) -> bool {
    let me = rustix::process::geteuid();
    me.is_root() || mount.user.is_none_or(|user| user == me.as_raw())
}

/// Returns the options that take down a mount that does not answer, and that end waiting readers if this user may do
/// that.
pub(in crate::cli) fn way_out(mount: &Mount) -> &'static str {
    let may_write = |file: &PathBuf| rustix::fs::access(file, rustix::fs::Access::WRITE_OK).is_ok();
    let may_abort =
        rustix::process::geteuid().is_root() || mount.abort_file().ok().flatten().is_some_and(|file| may_write(&file));
    if may_abort { "--force" } else { "--lazy" }
}

/// Returns the mounts of shardfs that this user may take down, the latest first, because one may be on top of another.
fn own_mounts() -> anyhow::Result<Vec<PathBuf>> {
    let mounts = mounts::all()?.into_iter().rev().filter(|mount| mount.is_ours() && is_own(mount));
    Ok(mounts.map(|mount| mount.at).collect())
}

/// Removes mounts of shardfs whose process is gone, so that the place can be used again. Mounts of other programs stay.
///
/// # Errors
/// If the mount there is not ours and dead, or does not answer.
pub(in crate::cli) fn repair(place: &Path) -> anyhow::Result<()> {
    let (shown, word) = (escape::path(place), escape::shell_word(place));
    // Several may be on top of each other.
    for _ in 0..16 {
        let Some(mount) = mounts::at(place)? else { break };
        match (probe::state_at(place)?, mount.is_ours()) {
            (State::Dead, true) => {
                log::info!("{}: taking a dead mount away", place.display());
                detach(&mount)?;
            }
            (State::Dead, false) => {
                bail!("{shown}: a dead mount of another program; take it down with: fusermount3 -u -z {word}")
            }
            (State::Silent, true) => {
                bail!("{shown}: the shardfs there does not answer; take it down with: shardfs umount --lazy {word}")
            }
            (State::Silent, false) => {
                bail!("{shown}: what is mounted there ({}) does not answer", escape::escaped(&mount.kind))
            }
            _ => break,
        }
    }
    Ok(())
}

/// Takes a mount down, unless it is in use.
///
/// # Errors
/// The processes that use it, or what the kernel says.
pub(in crate::cli) fn take_down(mount: &Mount) -> anyhow::Result<()> {
    if take_down_unused(mount)? { Ok(()) } else { bail!(busy::message(mount)) }
}

/// Takes a mount down. Fails if a known process uses it, or if it is in use for longer than a look takes (as
/// `shardfs status` takes one at all mounts).
fn take_down_unused(mount: &Mount) -> anyhow::Result<bool> {
    let end = Instant::now() + GLANCE;
    loop {
        match try_take_down(mount)? {
            false if Instant::now() < end && busy::explained(mount).is_none() => thread::sleep(PAUSE),
            done => return Ok(done),
        }
    }
}

fn try_take_down(mount: &Mount) -> anyhow::Result<bool> {
    // A descriptor would keep the mount busy, so this uses its path, which has just been checked. The kernel refuses if
    // anything is mounted on it.
    drop(seen(mount)?);
    match unmount(&mount.at, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        // Only root may. For other users a helper does it.
        Err(Errno::PERM) => fusermount(mount, &["-u"]),
        Err(error) => Err(error).with_context(|| escape::path(&mount.at)),
    }
}

/// Detaches a mount, even if it is in use. A mount that is gone already counts as success.
///
/// # Errors
/// If other mounts are on top of it, which would disappear with it; and errors of the kernel.
pub(in crate::cli) fn detach(mount: &Mount) -> anyhow::Result<()> {
    let Some(mount) = mount.now()? else { return Ok(()) };
    let root = seen(&mount)?;
    if let Some(other) = mounts::standing_on(&mount, &mounts::all()?).next() {
        let (shown, other) = (escape::path(&mount.at), escape::path(&other.at));
        bail!("{shown}: the mount {other} is on top of it and would be removed too; take that one down first");
    }
    match unmount(by_descriptor(&root), UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => match fusermount(&mount, &["-u", "-z"])? {
            true => Ok(()),
            false => bail!(busy::message(&mount)),
        },
        Err(error) => Err(error).with_context(|| escape::path(&mount.at)),
    }
}

/// Ends the kernel's connection to the process that serves a mount. Every waiting and later request gets an error. A
/// process that ends does it for its own mount: one of its threads may wait for it.
///
/// # Errors
/// If this user may not, or it fails. Then nothing has happened.
pub(in crate::cli) fn abort(mount: &Mount) -> anyhow::Result<()> {
    let root = seen(mount)?;
    // The descriptor keeps the mount busy, so the connection ends and the mount stays for now.
    let forced = unmount(by_descriptor(&root), UnmountFlags::FORCE);
    if matches!(forced, Ok(()) | Err(Errno::BUSY)) {
        return Ok(());
    }
    // Only root may do that. For the user who mounted there is a file, if fusectl is mounted.
    let reason = match mount.abort_file()?.map(|file| (std::fs::write(&file, "1"), file)) {
        Some((Ok(()), _)) => return Ok(()),
        Some((Err(error), file)) => format!("{}: {error}", file.display()),
        None => "no fusectl is mounted".into(),
    };
    let (shown, word) = (escape::path(&mount.at), escape::shell_word(&mount.at));
    bail!(
        "{shown}: not forced, and still mounted: only root can end requests that wait ({reason}); as root: \
         shardfs umount --force {word}"
    )
}

/// Returns the root of a mount, if its path leads to it.
fn seen(mount: &Mount) -> anyhow::Result<OwnedFd> {
    mount
        .open()?
        .with_context(|| format!("{}: another mount is there now; take that one down first", escape::path(&mount.at)))
}

/// Lets the helper take a mount down, which may do so for the user who mounted. Returns `false` if it is in use.
fn fusermount(mount: &Mount, options: &[&str]) -> anyhow::Result<bool> {
    let done =
        programs::command("fusermount3").and_then(|mut helper| helper.args(options).arg("--").arg(&mount.at).output());
    let done = done.context("fusermount3 (install fuse3)")?;
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(true),
        false if said.contains("busy") => Ok(false),
        false => bail!("{}: {}", escape::path(&mount.at), said.trim()),
    }
}
