//! The secret that a user's mounts make inode numbers with, kept so that the numbers are the same after a remount.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::vfs::NumberKey;

/// The key of this user, made if there is none. Where it can't be kept, one for this mount alone.
pub(in crate::cli) fn kept() -> NumberKey {
    let kept = folder().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).and_then(|folder| kept_in(&folder));
    kept.unwrap_or_else(|error| {
        log::info!("inode numbers will change after a remount, because their key cannot be kept: {error}");
        NumberKey::random()
    })
}

/// Where state of programs is kept: the system's folder for root, the user's for all others.
fn folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/shardfs".into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("shardfs"))
}

fn kept_in(folder: &Path) -> io::Result<NumberKey> {
    let place = folder.join("inode-key");
    match read(&place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        known => return known,
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = folder.join(format!("inode-key.{}", std::process::id()));
    // One that a process of the same number left behind.
    let _ = fs::remove_file(&new);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    // A link, not a rename: of two mounts that begin at once, one makes the key for both.
    let made = file.write_all(&NumberKey::random().to_bytes()).and_then(|()| file.sync_all());
    let linked = made.and_then(|()| match fs::hard_link(&new, &place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    fs::remove_file(&new)?;
    linked?;
    read(&place)
}

/// Reads a key that only this user can have written or read.
fn read(place: &Path) -> io::Result<NumberKey> {
    let mut file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(place)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{}: others may read or change it", place.display())));
    }
    let mut bytes = [0; 16];
    file.read_exact(&mut bytes)?;
    Ok(NumberKey::new(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let first = kept_in(&folder.join("state")).unwrap();
        assert!(kept_in(&folder.join("state")).unwrap() == first);
        assert!(kept_in(&folder.join("another")).unwrap() != first);
        let place = folder.join("state/inode-key");
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.join("state")).unwrap().count(), 1);
        fs::set_permissions(&place, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(kept_in(&folder.join("state")).is_err(), "known to others");
    }
}
