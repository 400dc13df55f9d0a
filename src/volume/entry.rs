//! Files and folders of a volume.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    ops::ControlFlow,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Array, Error, ErrorKind, Handle};
use crate::{
    format::DType,
    store::Leased,
    tree::{ItemInfo, overview::Contents},
    vfs::{Attr, FileKind, ROOT, Vfs},
};

/// Names that a listing takes at a time.
const BATCH: usize = 1024;
/// Bytes that a read asks the filesystem for at a time.
const PIECE: u64 = 4 << 20;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// A folder, which may stand for a container.
    Folder,
    /// A file.
    File,
    /// A symbolic link that is not followed.
    Link,
}

/// A file or folder, as a mount would show it. Cheap to clone.
///
/// An entry of a container belongs to one state of it: when the container is replaced or changed, reading fails with
/// [`ErrorKind::Changed`], and [`super::Volume::get`] gives what is there now.
#[derive(Clone)]
pub struct Entry {
    handle: Arc<Handle>,
    attr: Attr,
    path: PathBuf,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("path", &self.path)
            .field("kind", &self.kind())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl Entry {
    pub(super) fn root(vfs: Arc<Vfs>) -> Result<Self, Error> {
        let attr = vfs.attr(ROOT)?;
        Ok(Self { handle: Arc::new(Handle { vfs, ino: ROOT }), attr, path: PathBuf::new() })
    }

    pub(crate) fn vfs(&self) -> &Vfs {
        &self.handle.vfs
    }

    /// Its inode number, good as long as this entry or a clone of it is there.
    pub(crate) fn ino(&self) -> u64 {
        self.handle.ino
    }

    /// Its attributes, as they were when it was looked up.
    pub(crate) fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The path below the top of the volume; empty for the top itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name; empty for the top.
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// What it is.
    pub fn kind(&self) -> EntryKind {
        match self.attr.kind {
            FileKind::Folder => EntryKind::Folder,
            FileKind::File => EntryKind::File,
            FileKind::Link => EntryKind::Link,
        }
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.kind() == EntryKind::Folder
    }

    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        self.kind() == EntryKind::File
    }

    /// Size in bytes: of a file exactly what reading it gives, of a folder 0.
    pub fn size(&self) -> u64 {
        self.attr.size
    }

    /// Permission bits, without those of writing.
    pub fn mode(&self) -> u32 {
        self.attr.mode.into()
    }

    /// Modification time: that of the container's file.
    pub fn modified(&self) -> SystemTime {
        let (seconds, nanos) = self.attr.mtime;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let base = if seconds < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
        base + Duration::from_nanos(nanos.into())
    }

    /// The entry at a path below this folder. Also what listings leave out: `.raw` in Shard files, `.file`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not there, [`ErrorKind::InvalidInput`] for a path that is absolute or has `..`,
    /// and those of opening a container that lies on the way.
    pub fn get(&self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let mut at = self.clone();
        for component in path.as_ref().components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => {
                    at = at.child(name)?.ok_or_else(|| {
                        Error::new(ErrorKind::NotFound, format!("{}: no such entry", at.path.join(name).display()))
                    })?;
                }
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    let reason = format!("{}: not a path below a folder", path.as_ref().display());
                    return Err(Error::new(ErrorKind::InvalidInput, reason));
                }
            }
        }
        Ok(at)
    }

    fn child(&self, name: &OsStr) -> Result<Option<Self>, Error> {
        let found = Handle::look_up(&self.handle.vfs, self.handle.ino, name)?;
        let path = || self.path.join(name);
        Ok(found.map(|(handle, attr)| Self { handle: Arc::new(handle), attr, path: path() }))
    }

    /// What the folder lists. An entry that can't be looked at is an error of its own, and the listing goes on.
    pub fn entries(&self) -> Entries {
        Entries { folder: self.clone(), next: Some(2), names: VecDeque::new() }
    }

    /// Everything below, folders before what is in them.
    pub fn walk(&self) -> Walk {
        Walk::of(Ok(self.clone()))
    }

    /// All bytes of a file.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        self.read_range(0, self.size())
    }

    /// The bytes of a file from `offset` on, `length` of them; fewer only at its end.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a block that the range touches can't be decoded or has the wrong checksum,
    /// [`ErrorKind::Changed`] if the container is another one by now, [`ErrorKind::OutOfMemory`], and what the
    /// operating system says.
    pub fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        if self.is_folder() {
            return Err(Error::new(ErrorKind::IsAFolder, format!("{}: is a folder", self.path.display())));
        }
        let length = length.min(self.size().saturating_sub(offset));
        let mut bytes = Vec::new();
        let reserved = usize::try_from(length).ok().and_then(|length| bytes.try_reserve_exact(length).ok());
        reserved.ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("{}: no memory for {length} bytes", self.path.display()))
        })?;
        while (bytes.len() as u64) < length {
            let done = bytes.len() as u64;
            let piece = self.vfs().read_copied(self.handle.ino, offset + done, PIECE.min(length - done))?;
            if piece.is_empty() {
                break;
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Fills `out` with the bytes of a file from `offset` on. A block that the range has all of is decoded straight to
    /// its place, and not kept in the cache: for callers that keep what they read.
    ///
    /// # Errors
    /// Those of [`Self::read_range`], and [`ErrorKind::InvalidInput`] for a range that does not end in the file. `out`
    /// then holds anything.
    pub fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        if self.is_folder() {
            return Err(Error::new(ErrorKind::IsAFolder, format!("{}: is a folder", self.path.display())));
        }
        let mut done = 0;
        while done < out.len() {
            match self.vfs().read_into(self.handle.ino, offset.saturating_add(done as u64), &mut out[done..])? {
                0 => {
                    let end = offset.saturating_add(done as u64);
                    let reason = format!("{}: ended at byte {end}", self.path.display());
                    return Err(Error::new(ErrorKind::InvalidInput, reason));
                }
                read => done += read,
            }
        }
        Ok(())
    }

    /// The bytes of a file from `offset` on, `length` of them, where they lie: without a copy, in memory that is shared
    /// with all who read the file. `None` where that can't be had safely: for compressed blocks, and for files that are
    /// open for writing, another user's, or on a filesystem without leases. See [`Leased`].
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn leased(&self, offset: u64, length: u64) -> Result<Option<Leased>, Error> {
        Ok(self.vfs().leased(self.handle.ino, offset, length)?)
    }

    /// What is known of the stored item that a file shows, without reading it; `None` for every other file and for
    /// folders.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn item_info(&self) -> Result<Option<ItemInfo>, Error> {
        Ok(self.vfs().item_info(self.handle.ino)?)
    }

    /// The name of the format (`wshard`, `kdb`, ...) of the container that this lies in, or that this folder stands
    /// for; `None` outside of containers.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it is no longer there.
    pub fn format(&self) -> Result<Option<&'static str>, Error> {
        Ok(self.vfs().format(self.handle.ino)?.map(|(name, _)| name))
    }

    /// Whether this folder stands for a container.
    ///
    /// # Errors
    /// As [`Self::format`].
    pub fn is_container(&self) -> Result<bool, Error> {
        Ok(self.vfs().format(self.handle.ino)?.is_some_and(|(_, is_container)| is_container))
    }

    /// Names the state of the file that this is, or of the container that this lies in: another text is another state.
    /// It means the same on every machine that sees the file. `None` for folders outside of containers.
    ///
    /// # Errors
    /// As [`Self::format`].
    pub fn state(&self) -> Result<Option<String>, Error> {
        Ok(self.vfs().state(self.handle.ino)?)
    }

    /// What `container.json` says of the container that this lies in, as JSON; `None` outside of containers.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn description(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.vfs().description(self.handle.ino)?.map(|bytes| bytes.to_vec()))
    }

    /// Paths of the stored items of the container that this lies in, in its order, and of arrays that are joined of
    /// several; empty outside of containers, and for those whose arrays belong to columns or episodes. Reads nothing.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn items(&self) -> Result<Vec<String>, Error> {
        match self.vfs().overview(self.handle.ino)?.map(|overview| overview.contents) {
            Some(Contents::Items { items, .. }) => Ok(items.into_iter().map(|item| item.path).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// How many recorded episodes the container holds that this lies in.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn episodes(&self) -> Result<u64, Error> {
        match self.vfs().overview(self.handle.ino)?.map(|overview| overview.contents) {
            Some(Contents::Episodes { count }) => Ok(count),
            _ => Ok(0),
        }
    }

    /// Element type and shape of the array that a `.npy` file shows, the outermost axis first; `None` for every other
    /// file. Decodes nothing.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn array_type(&self) -> Result<Option<(DType, Vec<u64>)>, Error> {
        let info = self.vfs().item_info(self.handle.ino)?;
        Ok(info.and_then(|info| Some((info.dtype?, info.shape?))))
    }

    /// The array that a `.npy` file shows.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArray`] for every other file, and those of [`Self::read_range`].
    pub fn array(&self) -> Result<Array, Error> {
        let Some((dtype, shape)) = self.array_type()? else {
            return Err(Error::new(ErrorKind::NotAnArray, format!("{}: not an array", self.path.display())));
        };
        let axes = shape.iter().try_fold(dtype.size(), |bytes, &axis| bytes.checked_mul(axis));
        // The elements stand at the end, behind the header.
        let start = axes.and_then(|bytes| self.size().checked_sub(bytes));
        let start = start.ok_or_else(|| {
            Error::new(ErrorKind::Damaged, format!("{}: its shape does not fit its size", self.path.display()))
        })?;
        let data = self.read_range(start, self.size() - start)?;
        Ok(Array::new(dtype, shape, data))
    }

    /// What a symbolic link points to, as it is stored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is no link.
    pub fn link_target(&self) -> Result<PathBuf, Error> {
        Ok(self.vfs().read_link(self.handle.ino)?.into())
    }
}

/// The entries of a folder, in its own order. Names are taken from it as the iterator goes on, so that a folder of a
/// million entries costs no more memory than one of a thousand.
#[derive(Debug)]
pub struct Entries {
    folder: Entry,
    /// Where the listing goes on; `None` at its end.
    next: Option<u64>,
    names: VecDeque<OsString>,
}

impl Entries {
    fn fill(&mut self, from: u64) -> Result<(), Error> {
        self.next = None;
        let (names, next) = (&mut self.names, &mut self.next);
        self.folder.vfs().read_dir(self.folder.handle.ino, from, false, &mut |entry| {
            if names.len() == BATCH {
                return ControlFlow::Break(());
            }
            names.push_back(entry.name.to_owned());
            *next = Some(entry.next);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
}

impl Entries {
    /// The next entry, with its name; without one where it is the folder that can't be read.
    pub(crate) fn next_named(&mut self) -> Option<(Option<OsString>, Result<Entry, Error>)> {
        loop {
            if let Some(name) = self.names.pop_front() {
                // What is gone since it was listed is left out.
                match self.folder.child(&name).transpose() {
                    Some(found) => return Some((Some(name), found)),
                    None => continue,
                }
            }
            if let Err(error) = self.fill(self.next?) {
                return Some((None, Err(error)));
            }
        }
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_named().map(|(_, found)| found)
    }
}

/// Everything below a folder: each entry, and after a folder what is in it.
#[derive(Debug)]
pub struct Walk {
    /// The folders that are under way, the innermost last.
    open: Vec<Entries>,
    failed: Option<Error>,
}

impl Walk {
    pub(super) fn of(top: Result<Entry, Error>) -> Self {
        match top {
            Ok(top) if top.is_folder() => Self { open: vec![top.entries()], failed: None },
            Ok(_) => Self { open: Vec::new(), failed: None },
            Err(error) => Self { open: Vec::new(), failed: Some(error) },
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        loop {
            match self.open.last_mut()?.next() {
                Some(Ok(entry)) => {
                    if entry.is_folder() {
                        self.open.push(entry.entries());
                    }
                    return Some(Ok(entry));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => drop(self.open.pop()),
            }
        }
    }
}
