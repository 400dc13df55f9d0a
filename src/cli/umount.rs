//! `shardfs umount`, and what is mounted where.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use clap::Args;
use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};

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
        if mounted_at(&absolute)?.is_none() {
            // A link to the mount point, perhaps.
            absolute = super::absolute(&absolute)?;
        }
        let Some(mount) = mounted_at(&absolute)? else {
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

/// A mount point's absolute path. Not canonicalized whole: that would ask the mount itself, which may be dead.
pub(super) fn without_asking(mountpoint: &Path) -> anyhow::Result<PathBuf> {
    let Some(name) = mountpoint.file_name() else { return super::absolute(mountpoint) };
    let parent = mountpoint.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    Ok(parent.canonicalize().with_context(|| mountpoint.display().to_string())?.join(name))
}

/// Takes away mounts of ours whose process is gone, so that the place can be used again. Those of other programs stay.
pub(super) fn repair(mountpoint: &Path) -> anyhow::Result<()> {
    // Several may stand on one another.
    for _ in 0..16 {
        if !is_dead(mountpoint) {
            break;
        }
        if mounted_at(mountpoint)?.is_none() {
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

/// A shardfs that is mounted somewhere.
pub(super) struct Mounted {
    /// The number of the kernel's connection to its process.
    connection: String,
}

impl Mounted {
    /// Ends the connection: every request that waits or comes gets an error. Root and whoever mounted may.
    fn abort(&self) {
        let control = Path::new("/sys/fs/fuse/connections").join(&self.connection).join("abort");
        if let Err(error) = fs::write(&control, "1") {
            log::debug!("{}: {error}", control.display());
        }
    }
}

/// The shardfs that is mounted at a place, if one is.
pub(super) fn mounted_at(mountpoint: &Path) -> anyhow::Result<Option<Mounted>> {
    let table = fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let mut found = None;
    for line in table.split(|&byte| byte == b'\n') {
        // id parent device root mountpoint options [tags …] - type source super-options
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else { continue };
        let (Some(device), Some(at), Some(kind)) = (fields.get(2), fields.get(4), fields.get(dash + 1)) else {
            continue;
        };
        if unescape(at) == mountpoint.as_os_str().as_bytes() {
            // The last one mounted on a place is the one that is seen. Its minor device number is the connection's.
            let minor = device.split(|&byte| byte == b':').nth(1).unwrap_or_default();
            let connection = String::from_utf8_lossy(minor).into_owned();
            found = (*kind == b"fuse.shardfs").then_some(Mounted { connection });
        }
    }
    Ok(found)
}

/// The kernel's `\040` for a space and the like.
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| byte == b'\\') {
            Some(code) => {
                out.push(code);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_escapes() {
        assert_eq!(unescape(br"/mnt/a\040b\134c"), br"/mnt/a b\c");
        assert_eq!(unescape(br"end\04"), br"end\04");
    }
}
