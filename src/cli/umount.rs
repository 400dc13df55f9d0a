//! `shardfs umount`: living, busy and dead mounts.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use clap::Args;
use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};

use super::mounts::{ours_at, without_asking};

/// Take mounts down
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs umount /mnt/shards
  shardfs umount --lazy /mnt/a /mnt/b")]
pub(super) struct Arguments {
    /// Where shardfs is mounted
    #[arg(required = true, value_name = "MOUNTPOINT")]
    mountpoints: Vec<PathBuf>,

    /// Take the name away at once; whoever is inside goes on until done
    #[arg(short, long)]
    lazy: bool,

    /// Also while somebody is inside: what they read from then on is an error
    #[arg(short, long)]
    force: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    super::busy::each(&arguments.mountpoints, |mountpoint| {
        let mut absolute = without_asking(mountpoint)?;
        if ours_at(&absolute)?.is_none() {
            // A link to the mount point, perhaps.
            absolute = super::absolute(&absolute)?;
        }
        let Some(mount) = ours_at(&absolute)? else {
            bail!("{}: no shardfs is mounted here; `shardfs status` lists the mounts", mountpoint.display());
        };
        if is_dead(&absolute) {
            return detach(&absolute);
        }
        if arguments.force {
            mount.abort();
            return detach(&absolute);
        }
        if arguments.lazy { detach(&absolute) } else { take_down(&absolute) }
    })
}

/// Takes away mounts of ours whose process is gone, so that the place can be used again. Those of other programs stay.
pub(super) fn repair(mountpoint: &Path) -> anyhow::Result<()> {
    // Several may stand on one another.
    for _ in 0..16 {
        if !is_dead(mountpoint) {
            break;
        }
        if ours_at(mountpoint)?.is_none() {
            bail!(
                "{0}: a dead mount of another program; take it down with: fusermount3 -u -z {0}",
                mountpoint.display()
            );
        }
        log::info!("{}: taking a dead mount away", mountpoint.display());
        detach(mountpoint)?;
    }
    Ok(())
}

/// Whether a mount's process is gone: "transport endpoint is not connected". Asked by `statfs`, which the kernel
/// never answers from what it remembers.
fn is_dead(mountpoint: &Path) -> bool {
    matches!(rustix::fs::statfs(mountpoint), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Takes a mount down, unless it is in use.
///
/// # Errors
/// Who uses it, or what the kernel says.
pub(super) fn take_down(mountpoint: &Path) -> anyhow::Result<()> {
    let busy = || super::busy::message(mountpoint);
    match unmount(mountpoint, UnmountFlags::empty()) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => bail!(busy()),
        // Only root may; for everybody else a helper does it.
        Err(Errno::PERM) => {
            let done = Command::new("fusermount3").arg("-u").arg(mountpoint).output();
            let done = done.context("fusermount3 (install fuse3)")?;
            let said = String::from_utf8_lossy(&done.stderr);
            match done.status.success() {
                true => Ok(()),
                false if said.contains("busy") => bail!(busy()),
                false => bail!("{}: {}", mountpoint.display(), said.trim()),
            }
        }
        Err(error) => Err(error).with_context(|| mountpoint.display().to_string()),
    }
}

/// Takes the name of a mount away though somebody is still inside.
pub(super) fn detach(mountpoint: &Path) -> anyhow::Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH) {
        // Not mounted any more: just what was wanted.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(Errno::PERM) => {
            let done = Command::new("fusermount3").args(["-u", "-z"]).arg(mountpoint).status();
            done.context("fusermount3 (install fuse3)").map(drop)
        }
        Err(error) => Err(error).with_context(|| mountpoint.display().to_string()),
    }
}
