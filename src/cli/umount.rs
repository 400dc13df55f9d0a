//! `shardfs umount`, and what is mounted where.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
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
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    super::busy::each(&arguments.mountpoints, |mountpoint| {
        // Not canonicalized: that would ask the mount itself, which may be dead.
        let parent = mountpoint.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let mut absolute = parent.canonicalize().with_context(|| mountpoint.display().to_string())?;
        match mountpoint.file_name() {
            Some(name) => absolute.push(name),
            None => absolute = super::absolute(mountpoint)?,
        }
        if mounted_at(&absolute)?.is_none() {
            // A link to the mount point, perhaps.
            absolute = super::absolute(&absolute)?;
        }
        if mounted_at(&absolute)?.is_none() {
            bail!("{}: no shardfs is mounted here; `shardfs status` lists the mounts", mountpoint.display());
        }
        if arguments.lazy { detach(&absolute) } else { take_down(&absolute) }
    })
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

/// The source of the shardfs that is mounted at a place, if one is.
pub(super) fn mounted_at(mountpoint: &Path) -> anyhow::Result<Option<OsString>> {
    let table = fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let mut found = None;
    for line in table.split(|&byte| byte == b'\n') {
        // id parent device root mountpoint options [tags …] - type source super-options
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else { continue };
        let (Some(at), Some(kind), Some(source)) = (fields.get(4), fields.get(dash + 1), fields.get(dash + 2)) else {
            continue;
        };
        if unescape(at) == mountpoint.as_os_str().as_bytes() {
            // The last one mounted on a place is the one that is seen.
            found = (*kind == b"fuse.shardfs").then(|| OsString::from_vec(unescape(source)));
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
