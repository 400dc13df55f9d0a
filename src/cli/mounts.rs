//! The mounts that the kernel knows, from /proc/self/mountinfo: reading it never asks a mount, so none can hang.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::Context;

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

    /// Ends the kernel's connection to the process that serves it, whose number is the minor one of the device: every
    /// request that waits or comes gets an error. Root and whoever mounted may.
    pub(super) fn abort(&self) {
        let control = Path::new("/sys/fs/fuse/connections").join(self.device.1.to_string()).join("abort");
        if let Err(error) = fs::write(&control, "1") {
            log::debug!("{}: {error}", control.display());
        }
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

/// The shardfs that is seen at a place, if one is.
///
/// # Errors
/// As [`all`].
pub(super) fn ours_at(place: &Path) -> anyhow::Result<Option<Mount>> {
    Ok(at(place)?.filter(Mount::is_ours))
}

/// A mount point's absolute path. Not canonicalized whole: that would ask the mount itself, which may be dead.
pub(super) fn without_asking(mountpoint: &Path) -> anyhow::Result<PathBuf> {
    let Some(name) = mountpoint.file_name() else { return super::absolute(mountpoint) };
    let parent = mountpoint.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    Ok(parent.canonicalize().with_context(|| mountpoint.display().to_string())?.join(name))
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

/// The kernel's `\040` for a space and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
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
    fn lines_of_mountinfo() {
        let line = b"36 25 0:49 / /mnt/my\\040data rw,nosuid - fuse.shardfs /srv/a\\134b ro,user_id=1000,group_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device, mount.at, mount.user), ((0, 49), "/mnt/my data".into(), Some(1000)));
        assert_eq!((&*mount.kind, mount.source), ("fuse.shardfs", r"/srv/a\b".into()));
        let tagged = b"25 1 253:1 / / rw shared:1 master:2 - ext4 /dev/vda1 rw";
        assert_eq!(parse(tagged).unwrap().kind, "ext4");
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn mountinfo_escapes() {
        assert_eq!(unescape(br"/mnt/a\040b\134c"), br"/mnt/a b\c");
        assert_eq!(unescape(br"end\04"), br"end\04");
    }
}
