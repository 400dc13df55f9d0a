//! Paths as the commands take them: a file of the host, and what follows inside the container.

use std::{
    ffi::{OsStr, OsString},
    ops::{ControlFlow, Range},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, anyhow, bail};

use super::remote;
use crate::{
    limits::PIECE,
    store::remote::{Purpose, is_url, unknown},
    tree,
    vfs::{self, FileKind, Vfs},
    volume::{Entry, EntryKind, Error},
};

/// The result of following a path.
pub(in crate::cli) struct Place {
    pub(in crate::cli) entry: Entry,
    /// The path from the container's name on; outside of containers the last name.
    pub(in crate::cli) kept: PathBuf,
}

impl Place {
    /// Finds `data/ep_001.wshard/signal/joint_pos.npy`, or any folder or file above it.
    ///
    /// The longest part that exists on the host is opened as SOURCE. If that is an ordinary file, its folder is opened
    /// instead, so that the file is shown as a mount would show it. Of a URL, SOURCE ends with the first name that is a
    /// container's, or with the first folder above that proves to be one.
    pub(in crate::cli) fn find(path: &Path, options: vfs::Options) -> anyhow::Result<Self> {
        let (host, inside) = split(path, &options)?;
        let (is_url, is_folder) = (is_url(&host), host.is_dir());
        let above = remote::parent(&host);
        let kept = above.iter().map(|(_, name)| name).chain(&inside).collect();
        if is_folder && !inside.is_empty() && !has_marker(&host, options.formats) {
            bail!("{}: no such file or folder", path.display());
        }
        let around = |opened_for| {
            let mut options = options.clone();
            options.remote.opened_for = opened_for;
            options
        };
        match Vfs::open(&host, options.clone()) {
            Ok(vfs) => {
                let beside = || {
                    let (folder, name) = above.as_ref()?;
                    let folder = Vfs::open(folder, around(Purpose::Container)).ok()?;
                    Some((folder, std::iter::once(name).chain(&inside).cloned().collect()))
                };
                Self::walk(path, vfs, &inside, kept, &beside)
            }
            Err(error) if is_url && inside.is_empty() && is_missing(&error) => match container_above(&host, &options) {
                Some((vfs, inside, kept)) => Self::walk(path, vfs, &inside, kept, &|| None),
                None => Err(error.into()),
            },
            // An ordinary file: open its folder, which shows it as itself.
            Err(error) => match above {
                Some((folder, name))
                    if inside.is_empty() && !is_folder && (!is_url || error.errno() == libc::EINVAL) =>
                {
                    Self::walk(path, Vfs::open(&folder, around(Purpose::Path))?, &[name], kept, &|| None)
                }
                _ => {
                    let file = path.ancestors().find(|above| above.is_file());
                    let hint = file.map(|file| options.follow_links.hint(file)).unwrap_or_default();
                    Err(if hint.is_empty() { error.into() } else { anyhow!("{error}{hint}") })
                }
            },
        }
    }

    /// Walks down from the root. A link that leads out of a container is followed in what `beside` returns: a filesystem
    /// with the container's folder, and the names to walk down there.
    fn walk(
        path: &Path,
        vfs: Vfs,
        names: &[OsString],
        kept: PathBuf,
        beside: &dyn Fn() -> Option<(Vfs, Vec<OsString>)>,
    ) -> anyhow::Result<Self> {
        let mut entry = Entry::root(Arc::new(vfs))?;
        for name in names {
            entry = entry.child(name)?.ok_or_else(|| {
                match std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
                    true => anyhow!("{}: is a device, a pipe or a socket", path.display()),
                    false => anyhow!("{}: no '{}' there; `shardfs ls` shows what is", path.display(), name.display()),
                }
            })?;
            entry = entry.or_behind()?;
            if entry.kind() == EntryKind::Link
                && entry.vfs().is_one_container()
                && let Some((vfs, names)) = beside()
            {
                return Self::walk(path, vfs, &names, kept, &|| None);
            }
        }
        Ok(Self { entry: entry.entered()?, kept })
    }
}

/// Returns whether an error says that nothing is there. The Hub has no listing of a folder that does not exist.
fn is_missing(error: &vfs::Error) -> bool {
    matches!(error.errno(), libc::ENOENT | libc::ESTALE)
}

/// Returns the highest of the containers that are folders around a URL, the names that follow it, and the path from its
/// name on: what a mount above would show at the URL. `None` if the nearest folder that exists is no container.
fn container_above(url: &Path, options: &vfs::Options) -> Option<(Vfs, Vec<OsString>, PathBuf)> {
    let (mut inside, mut found) = (Vec::new(), None);
    let mut above = remote::parent(url);
    while let Some((folder, name)) = above {
        inside.insert(0, name);
        above = remote::parent(&folder);
        match Vfs::open(&folder, options.clone()) {
            Ok(vfs) if vfs.is_one_container() => {
                let name = above.iter().map(|(_, name)| name.clone());
                let kept = name.chain(inside.iter().cloned()).collect();
                found = Some((vfs, inside.clone(), kept));
            }
            Err(error) if found.is_none() && is_missing(&error) => {}
            Ok(_) | Err(_) => break,
        }
    }
    found
}

/// Returns the names in a folder. `path` is the folder as the user typed it, for messages.
pub(in crate::cli) fn names(folder: &Entry, path: &Path) -> anyhow::Result<Vec<(OsString, FileKind)>> {
    let mut names = Vec::new();
    let listed = folder.names(&mut |name, kind| {
        names.push((name.to_owned(), kind));
        ControlFlow::Continue(())
    });
    match listed {
        Ok(()) => Ok(names),
        // The filesystem has no path for the folder that was opened as SOURCE.
        Err(error) => bail!("{}: {}", path.display(), error.detail()),
    }
}

/// Passes a range of a file to `take`, piece by piece; `path` is the file in messages. The bytes may be a mapped file's: only
/// a system call may look at them.
pub(in crate::cli) fn pieces(
    file: &Entry,
    path: &Path,
    range: Range<u64>,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut offset, end) = (range.start, range.end.min(file.size()));
    while offset < end {
        let read = file.read_at(offset, (end - offset).min(PIECE as u64));
        let read = read.map_err(|error| anyhow!("{}: {}", path.display(), error.detail()))?;
        let bytes = read.as_syscall_buf();
        if bytes.is_empty() {
            bail!("{}: ended at byte {offset} of {}", path.display(), file.size());
        }
        take(bytes)?;
        offset += bytes.len() as u64;
    }
    Ok(())
}

/// Returns the folders at or below a folder with a file that is wanted, by its folder's path and its name. Each comes
/// with its path below the folder. What follows such a file in a listing is not looked at.
pub(in crate::cli) fn folders_with(
    top: &Entry,
    is_wanted: impl Fn(&str, &OsStr) -> bool,
) -> Result<Vec<(String, Entry)>, Error> {
    let (mut found, mut open) = (Vec::new(), vec![(String::new(), top.clone())]);
    while let Some((path, folder)) = open.pop() {
        let (mut inner, mut has_wanted) = (Vec::new(), false);
        folder.names(&mut |name, kind| {
            match kind {
                FileKind::Folder => inner.push(name.to_owned()),
                _ => has_wanted = is_wanted(&path, name),
            }
            if has_wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for name in inner.into_iter().rev() {
            if let Some(inside) = folder.child(&name)? {
                let name = name.to_string_lossy();
                open.push((if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") }, inside));
            }
        }
        if has_wanted {
            found.push((path, folder));
        }
    }
    Ok(found)
}

/// Returns the part of a path that is opened, with links resolved, and the names after it: a file of the host or a folder
/// that may be a container, or the whole path.
pub(in crate::cli) fn split(path: &Path, options: &vfs::Options) -> anyhow::Result<(PathBuf, Vec<OsString>)> {
    let formats = options.formats;
    if is_url(path) {
        return Ok(remote::split(path, formats));
    }
    if let Some(reason) = unknown(path) {
        bail!("{}: {reason}", path.display());
    }
    let mut host = PathBuf::new();
    let mut inside: Vec<OsString> = Vec::new();
    for component in path.components() {
        match component {
            Component::ParentDir if inside.pop().is_some() => {}
            Component::Normal(name) if !inside.is_empty() || host.is_file() || has_marker(&host, formats) => {
                inside.push(name.to_owned());
            }
            other => host.push(other),
        }
    }
    let host = if host == Path::new("") { PathBuf::from(".") } else { host };
    let host = options.follow_links.resolve(&host).with_context(|| path.display().to_string())?;
    Ok((host, inside))
}

/// Returns whether a folder has a file that makes folders containers. One that is none shows what lies there, all the same.
fn has_marker(folder: &Path, formats: tree::Formats) -> bool {
    formats.iter().flat_map(|format| format.markers).any(|marker| folder.join(marker).is_file())
}
