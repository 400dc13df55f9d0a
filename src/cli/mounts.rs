//! The mounts that the kernel knows, from /proc/self/mountinfo: reading it never asks a mount, so none can hang.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::umount::unescape;

/// The type of our mounts: what `findmnt -t` and PRUNEFS of updatedb know them by.
pub(super) const KIND: &str = "fuse.shardfs";

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Device number: major, minor.
    pub(super) device: (u32, u32),
    /// Where it is.
    pub(super) at: PathBuf,
    /// `fuse.shardfs` and the like.
    pub(super) kind: String,
    /// What is mounted.
    pub(super) source: PathBuf,
    /// The user who mounted it, where it is a FUSE mount.
    pub(super) user: Option<u32>,
}

impl Mount {
    pub(super) fn is_ours(&self) -> bool {
        self.kind == KIND
    }
}

/// All mounts, in the order in which they were made.
///
/// # Errors
/// When the kernel's table can't be read.
pub(super) fn all() -> anyhow::Result<Vec<Mount>> {
    let table = fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The mount that is seen at a place.
///
/// # Errors
/// As [`all`].
pub(super) fn at(place: &Path) -> anyhow::Result<Option<Mount>> {
    Ok(all()?.into_iter().rev().find(|mount| mount.at == place))
}

/// `id parent major:minor root mountpoint options [tags ...] - type source super-options`
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let device = text(fields.get(2)?);
    let (major, minor) = device.split_once(':')?;
    let options = text(fields.get(dash + 3).unwrap_or(&&b""[..]));
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        at: path(fields.get(4)?),
        kind: text(fields.get(dash + 1)?),
        source: path(fields.get(dash + 2)?),
        user: options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = b"36 25 0:49 / /mnt/my\\040data rw,nosuid - fuse.shardfs /srv/a\\134b ro,user_id=1000,group_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device, mount.at, mount.user), ((0, 49), "/mnt/my data".into(), Some(1000)));
        assert_eq!((&*mount.kind, mount.source), ("fuse.shardfs", r"/srv/a\b".into()));
        let tagged = b"25 1 253:1 / / rw shared:1 master:2 - ext4 /dev/vda1 rw";
        assert_eq!(parse(tagged).unwrap().kind, "ext4");
        assert_eq!(parse(b""), None);
    }
}
