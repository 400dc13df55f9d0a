//! Making the mount: by the system call for root, by `fusermount3` for other users.

use std::{
    ffi::{CString, OsString},
    fs::File,
    io::{self, IoSliceMut, Read},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::Stdio,
};

use rustix::{
    io::{Errno, retry_on_intr},
    mount::{MountFlags, mount},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use crate::programs;

/// Mounts, and returns the device on which requests come. With `largest_read`, the kernel splits requests for more
/// bytes.
///
/// # Errors
/// What the kernel or `fusermount3` says.
pub(super) fn make(
    source: &Path,
    mountpoint: &Path,
    allow_other: bool,
    largest_read: Option<u64>,
) -> io::Result<OwnedFd> {
    let allow_other = if allow_other { ",allow_other" } else { "" };
    let largest_read = largest_read.map_or(String::new(), |bytes| format!(",max_read={bytes}"));
    let options = format!("default_permissions{allow_other}{largest_read}");
    match by_system_call(source, mountpoint, &options) {
        Err(Errno::PERM) => by_helper(source, mountpoint, &options),
        other => Ok(other?),
    }
}

/// The type becomes `fuse.shardfs`, by which `df`, `findmnt` and updatedb know the mount. SOURCE is an argument of its
/// own, so nothing in it can be taken for an option.
fn by_system_call(source: &Path, mountpoint: &Path, options: &str) -> rustix::io::Result<OwnedFd> {
    if !rustix::process::geteuid().is_root() {
        return Err(Errno::PERM);
    }
    let as_errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let device = File::options().read(true).write(true).open("/dev/fuse").map_err(as_errno)?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,{options}", device.as_raw_fd());
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    mount(source, mountpoint, c"fuse.shardfs", flags, data.as_c_str())?;
    Ok(device.into())
}

/// `fusermount3` opens the device, mounts, and sends the descriptor back on a socket: here its standard input.
fn by_helper(source: &Path, mountpoint: &Path, options: &str) -> io::Result<OwnedFd> {
    let (ours, helpers) = UnixStream::pair()?;
    let mut options = OsString::from(format!("ro,nosuid,nodev,noatime,{options},subtype=shardfs,fsname="));
    options.push(safe_name(source));
    let mut helper = programs::command("fusermount3")?
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(helpers)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let device = receive(&ours);
    let mut said = String::new();
    if let Some(stderr) = helper.stderr.take() {
        // Its last message, in case it fails.
        let _ = stderr.take(4096).read_to_string(&mut said);
    }
    helper.wait()?;
    match device? {
        Some(device) => Ok(device),
        None if said.contains("not permitted") || said.contains("only allowed if") || said.contains("has no write") => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, said))
        }
        None => Err(io::Error::other(said)),
    }
}

/// Returns the descriptor that comes on a socket; `None` if the other end closes without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).map(drop)
    })?;
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(rights)
}

/// Returns SOURCE as the value of an option. A comma would begin another option, and versions of the helper differ in
/// how they read backslashes; so both become `?`, as do control characters and bytes that are not UTF-8. `config.json`
/// has the name itself.
fn safe_name(source: &Path) -> String {
    let is_unsafe = |c: char| c.is_control() || matches!(c, ',' | '\\' | '"' | char::REPLACEMENT_CHARACTER);
    source.to_string_lossy().chars().map(|c| if is_unsafe(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_options() {
        assert_eq!(safe_name(Path::new("/srv/x,allow_other")), "/srv/x?allow_other");
        assert_eq!(safe_name(Path::new("/srv/a\\,b=c d\ne\"f")), "/srv/a??b=c d?e?f");
        let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"/\xff,");
        assert_eq!(safe_name(Path::new(odd)), "/??");
    }
}
