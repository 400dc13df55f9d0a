//! Files and folders of a volume.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Array, EntryKind, Error, ErrorKind, Handle, Volume};
use crate::{
    format::ElementType,
    source::{Leased, Source, Wait},
    tree::{
        Cells, Container, Episode, Episodes, ItemInfo, NodeId, Timeline,
        overview::{Contents, Topic},
    },
    vfs::{self, Apart, Attr, HeldOverview, ROOT, SeenContainer, Vfs},
    view::{self, Bytes, Fault, ReadContext, Slice},
};

/// Number of names that a listing reads at a time.
const BATCH: usize = 1024;
/// Bytes that a read requests from the filesystem at a time.
const PIECE: u64 = 4 << 20;

/// A file or folder, as a mount would show it. Cheap to clone.
///
/// An entry of a container belongs to one state of it. When the container is replaced or changed, reading fails with
/// [`ErrorKind::Changed`], and [`super::Volume::get`] returns the new state.
#[derive(Clone)]
pub struct Entry {
    handle: Arc<Handle>,
    attr: Attr,
    path: PathBuf,
    /// Whether the path goes through a link of a container.
    is_by_link: bool,
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
    /// Returns the top of a filesystem.
    pub(crate) fn root(vfs: Arc<Vfs>) -> Result<Self, Error> {
        let attr = vfs.attr(ROOT)?;
        Ok(Self { handle: Arc::new(Handle { vfs, ino: ROOT }), attr, path: PathBuf::new(), is_by_link: false })
    }

    /// Returns the top of the volume.
    pub(super) fn top(&self) -> Result<Self, Error> {
        Self::root(self.handle.vfs.clone())
    }

    /// Asks the container that contains this entry; `None` outside of containers. See [`Vfs::ask`].
    pub(super) fn ask<T>(
        &self,
        ask: impl FnOnce(&dyn Container, &ReadContext, NodeId) -> Result<T, Fault>,
    ) -> Result<Option<T>, Error> {
        Ok(self.vfs().ask(self.handle.ino, ask)?)
    }

    /// Returns the filesystem that it belongs to.
    pub(crate) fn vfs(&self) -> &Vfs {
        &self.handle.vfs
    }

    /// Returns the volume that it belongs to.
    pub(crate) fn volume(&self) -> Volume {
        Volume::of(self.handle.vfs.clone())
    }

    #[cfg(test)]
    pub(super) fn ino(&self) -> u64 {
        self.handle.ino
    }

    /// Returns its attributes as they were when it was looked up.
    pub(crate) fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Returns the path below the top of the volume; empty for the top itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether its path goes through a link of a container. Who walks through everything and follows links as
    /// well stops at folders behind a second one: links may lead in circles.
    pub(crate) fn is_by_link(&self) -> bool {
        self.is_by_link
    }

    /// Returns it by the path of a link that leads to it.
    pub(super) fn found_by_link(self, path: &Path) -> Self {
        Self { path: path.to_owned(), is_by_link: true, ..self }
    }

    /// Returns the path at which it stands, without links of containers on the way.
    pub(super) fn standing(&self) -> PathBuf {
        let (file, inside) = self.place();
        let above = if self.vfs().is_one_container() { PathBuf::new() } else { file };
        if inside.is_empty() { above } else { above.join(inside) }
    }

    /// Returns the name; empty for the top.
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Returns the kind of the entry.
    pub fn kind(&self) -> EntryKind {
        self.attr.kind
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.kind() == EntryKind::Folder
    }

    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        self.kind() == EntryKind::File
    }

    /// Returns the size in bytes: for a file exactly what reading it gives, for a folder 0.
    pub fn size(&self) -> u64 {
        self.attr.size
    }

    /// Returns the permission bits, without those of writing.
    pub fn mode(&self) -> u32 {
        self.attr.mode.into()
    }

    /// Returns the modification time, which is that of the container's file.
    pub fn modified(&self) -> SystemTime {
        let (seconds, nanos) = self.attr.mtime;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let base = if seconds < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
        base + Duration::from_nanos(nanos.into())
    }

    /// Returns what this folder is if that is told only when it is entered, and otherwise this entry: a folder may be a
    /// container, and what a name makes one may be of another format, or a file.
    pub(crate) fn entered(self) -> Result<Self, Error> {
        if !self.is_folder() {
            return Ok(self);
        }
        Ok(match self.vfs().enter(self.handle.ino)? {
            Some(attr) => Self { handle: self.handle_of(attr.ino), attr, ..self },
            None => self,
        })
    }

    /// Does the same; returns what cannot be entered as it is, since listing or opening it says why.
    pub(crate) fn if_entered(&self) -> Self {
        self.clone().entered().unwrap_or_else(|_| self.clone())
    }

    /// Returns the handle of a node that was looked up in the same filesystem.
    fn handle_of(&self, ino: u64) -> Arc<Handle> {
        Arc::new(Handle { vfs: self.handle.vfs.clone(), ino })
    }

    /// Returns the entry of a name in this folder; `None` if there is none.
    pub(crate) fn child(&self, name: &OsStr) -> Result<Option<Self>, Error> {
        Ok(self.vfs().lookup(self.handle.ino, name)?.map(|attr| {
            let (handle, path) = (self.handle_of(attr.ino), self.path.join(name));
            Self { handle, attr, path, is_by_link: self.is_by_link }
        }))
    }

    /// Returns listed entries from a position on (0 at first), at most `most`, with the attributes that are known
    /// without decoding, and the position of the next ones; `None` at the end. What was listed before an error comes
    /// with it.
    pub(crate) fn list(&self, from: u64, most: usize) -> (Vec<Listed>, Result<Option<u64>, Error>) {
        let (mut found, mut next) = (Vec::new(), from.max(2));
        let mut has_more = false;
        let listed = self.vfs().read_dir(self.handle.ino, next, true, &mut |entry| {
            if found.len() == most {
                has_more = true;
                return ControlFlow::Break(());
            }
            next = entry.next;
            let handle = Handle { vfs: self.handle.vfs.clone(), ino: entry.ino };
            let (path, kind) = (self.path.join(entry.name), entry.kind);
            found.push(Listed { handle, path, kind, attr: entry.attr });
            ControlFlow::Continue(())
        });
        (found, listed.map(|()| has_more.then_some(next)).map_err(Into::into))
    }

    /// Passes the names in this folder and their kinds to `each` until it breaks. Looks nothing up, so files whose size
    /// cannot be known are listed too.
    ///
    /// # Errors
    /// Those of listing the folder.
    pub fn names(&self, each: &mut dyn FnMut(&OsStr, EntryKind) -> ControlFlow<()>) -> Result<(), Error> {
        Ok(self.vfs().read_dir(self.handle.ino, 2, false, &mut |entry| each(entry.name, entry.kind))?)
    }

    /// Passes the names in this folder to `each`, each with the position at which a listing goes on behind it, until it
    /// breaks. Looks nothing up.
    pub(crate) fn positions(&self, each: &mut dyn FnMut(&OsStr, u64) -> ControlFlow<()>) -> Result<(), Error> {
        Ok(self.vfs().read_dir(self.handle.ino, 2, false, &mut |entry| each(entry.name, entry.next))?)
    }

    /// Returns the listed entries of the folder. An entry that cannot be looked at is an error of its own, and the
    /// listing goes on.
    pub fn entries(&self) -> Entries {
        Entries { folder: self.clone(), next: Some(2), names: VecDeque::new() }
    }

    /// Returns everything below, folders before their contents.
    pub fn walk(&self) -> Walk {
        Walk::of(Ok(self.clone()))
    }

    /// Returns all bytes of a file.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        self.read_range(0, self.size())
    }

    /// Returns up to `length` bytes of a file from `offset` on; fewer only at its end.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a block that the range touches cannot be decoded or has the wrong checksum,
    /// [`ErrorKind::Changed`] if the container has changed, [`ErrorKind::OutOfMemory`], and errors of the operating
    /// system.
    pub fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        if self.is_folder() {
            return Err(self.error(ErrorKind::IsAFolder, "is a folder"));
        }
        let length = length.min(self.size().saturating_sub(offset));
        let mut bytes = Vec::new();
        let reserved = usize::try_from(length).ok().and_then(|length| bytes.try_reserve_exact(length).ok());
        reserved.ok_or_else(|| self.error(ErrorKind::OutOfMemory, &format!("no memory for {length} bytes")))?;
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

    /// Returns up to `length` bytes of a file from `offset` on, copied as little as possible.
    pub(crate) fn read_at(&self, offset: u64, length: u64) -> Result<Bytes, Error> {
        Ok(self.vfs().read(self.handle.ino, offset, length)?)
    }

    /// Does the same as [`Self::read_at`], for a caller that waits for no more than `wait`.
    pub(crate) fn read_with(&self, offset: u64, length: u64, wait: Wait) -> Result<Bytes, vfs::Error> {
        self.vfs().read_with(self.handle.ino, offset, length, wait)
    }

    /// Returns whether the container is still in the state in which this entry was looked up.
    pub(crate) fn is_still_there(&self) -> bool {
        self.vfs().is_still_there(self.handle.ino)
    }

    /// Fills `out` with the bytes of a file from `offset` on. A block that lies whole in the range is decoded straight
    /// into `out` and not kept in the cache. For callers that keep what they read.
    ///
    /// # Errors
    /// Those of [`Self::read_range`], and [`ErrorKind::InvalidInput`] if the range does not end in the file. `out` then
    /// holds anything.
    pub fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        if self.is_folder() {
            return Err(self.error(ErrorKind::IsAFolder, "is a folder"));
        }
        let mut done = 0;
        while done < out.len() {
            match self.vfs().read_into(self.handle.ino, offset.saturating_add(done as u64), &mut out[done..])? {
                0 => {
                    let end = offset.saturating_add(done as u64);
                    return Err(self.error(ErrorKind::InvalidInput, &format!("ended at byte {end}")));
                }
                read => done += read,
            }
        }
        Ok(())
    }

    /// For the Python package: returns `length` bytes of a file from `offset` on without a copy, in memory that is shared with everyone who
    /// reads the file. `None` if that is not safely possible: for compressed blocks, and for files that are open for
    /// writing, belong to another user, or are on a filesystem without leases. See [`Leased`].
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    #[doc(hidden)]
    pub fn leased(&self, offset: u64, length: u64) -> Result<Option<Leased>, Error> {
        Ok(self.vfs().leased(self.handle.ino, offset, length)?)
    }

    /// Returns the description of the stored item that a file shows, without reading it; `None` for all other files and
    /// for folders.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn item_info(&self) -> Result<Option<ItemInfo>, Error> {
        Ok(self.vfs().item_info(self.handle.ino, Wait::Always)?)
    }

    /// Returns the attributes that the format hangs on this group (a folder) or array (a `.npy` file), as the JSON object
    /// of `attributes.json` or `.attrs.json`. `None` if it has none.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn attributes(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.vfs().attributes(self.handle.ino)?)
    }

    /// Returns the name of the format (`wshard`, `kdb`, ...) of the container that contains this entry, or that this
    /// folder is; `None` outside of containers.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it no longer exists.
    pub fn format(&self) -> Result<Option<&'static str>, Error> {
        Ok(self.vfs().format(self.handle.ino)?.map(|(name, _)| name))
    }

    /// Returns whether this folder is a container.
    ///
    /// # Errors
    /// As [`Self::format`].
    pub fn is_container(&self) -> Result<bool, Error> {
        Ok(self.vfs().format(self.handle.ino)?.is_some_and(|(_, is_container)| is_container))
    }

    /// Returns a name of the state of this file, or of the container that contains it. A different name means a
    /// different state, and the name is the same on every machine that sees the file. `None` for folders outside of
    /// containers.
    ///
    /// # Errors
    /// As [`Self::format`].
    pub fn state(&self) -> Result<Option<String>, Error> {
        Ok(self.vfs().state(self.handle.ino)?)
    }

    /// Returns the `container.json` of the container that contains this entry; `None` outside of containers.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn description(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.vfs().description(self.handle.ino)?.map(|bytes| bytes.to_vec()))
    }

    /// Returns paths of the stored items of the container that contains this entry, in its order, and of arrays joined
    /// from several. Quantised tensors are followed by the arrays of their numbers, and all items by the arrays of
    /// metadata. Of a recording they are those of times and of fields with a number for each message. Empty outside of
    /// containers, and for containers whose arrays belong to columns or episodes. Reads nothing.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn items(&self) -> Result<Vec<String>, Error> {
        let overview = self.overview()?;
        match overview.as_ref().map(|overview| &overview.contents) {
            Some(Contents::Items { items, .. }) => {
                let paths = items.iter().flat_map(|item| std::iter::once(&item.path).chain(&item.numbers));
                let others = self.ask(|tree, _, _| Ok(tree.other_arrays()))?.unwrap_or_default();
                Ok(paths.cloned().chain(others).collect())
            }
            Some(Contents::Recording(recording)) => {
                let of_topic = |topic: &Topic| {
                    let path = topic.path.clone();
                    let names = std::iter::once("time.npy".to_owned()).chain(topic.arrays.clone());
                    names.map(move |name| format!("{path}/{name}")).collect::<Vec<_>>()
                };
                Ok(recording.topics.iter().flat_map(of_topic).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the number of recorded episodes in the container that contains this entry.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn episodes(&self) -> Result<u64, Error> {
        Ok(self.episodes_of(|episodes, reader| episodes.count(reader))?.unwrap_or(0))
    }

    /// Returns the path, below the container that contains this entry, of an episode's folder.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such episode, and those of opening the container.
    pub fn episode_folder(&self, position: u64) -> Result<String, Error> {
        let folder = self.episodes_of(|episodes, reader| {
            Ok(if position < episodes.count(reader)? { Some(episodes.folder(reader, position)?) } else { None })
        })?;
        folder.flatten().ok_or_else(|| self.no_episode(position))
    }

    /// Returns the number of frames of an episode.
    ///
    /// # Errors
    /// As [`Self::episode_folder`].
    pub fn episode_frames(&self, position: u64) -> Result<u64, Error> {
        Ok(self.episode(position)?.ok_or_else(|| self.no_episode(position))?.frames)
    }

    fn no_episode(&self, position: u64) -> Error {
        self.error(ErrorKind::NotFound, &format!("no episode {position}"))
    }

    /// Returns an overview, for people, of the container that contains this entry; `None` outside of containers.
    pub(crate) fn overview(&self) -> Result<Option<HeldOverview>, Error> {
        Ok(self.vfs().overview(self.handle.ino)?)
    }

    /// Returns what was noticed when the container that contains this entry was opened; `None` outside of containers.
    pub(crate) fn warnings(&self) -> Result<Option<Vec<String>>, Error> {
        Ok(self.vfs().container(self.handle.ino)?.map(|container| container.warnings().to_vec()))
    }

    /// Returns the path below the container that contains this entry; empty for the container itself, and outside of
    /// containers.
    pub fn inside(&self) -> String {
        self.place().1
    }

    /// Returns the file or folder of SOURCE that this entry is or lies in, and the path inside it.
    pub(crate) fn place(&self) -> (PathBuf, String) {
        self.vfs().path_of(self.handle.ino)
    }

    /// Returns the tag of the state of a file's bytes; see [`Vfs::tag`].
    pub(crate) fn tag(&self) -> Result<Option<u128>, Error> {
        Ok(self.vfs().tag(self.handle.ino)?)
    }

    /// Returns whether this folder is a container. Opens nothing.
    pub(crate) fn is_root_of_container(&self) -> bool {
        matches!(self.is_container(), Ok(true))
    }

    /// Returns what is known of this container without opening it; `None` if it is none or no longer there.
    pub(crate) fn seen_container(&self) -> Option<SeenContainer> {
        self.vfs().seen_container(self.handle.ino)
    }

    /// Returns the containers that this one shows joined as one, such as the chunks that a manifest lists: their paths,
    /// as [`Self::path`] of their entries has them. Empty for containers that join none, or could not; `None` for all
    /// other entries, and for containers of a format that joins none, which are parts of no others either.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn joins(&self) -> Result<Option<Vec<PathBuf>>, Error> {
        Ok(self.vfs().joins(self.handle.ino, true)?)
    }

    /// Does the same as [`Self::joins`], and opens only a container that is known to name other files. On a server that
    /// is one that was open before, unless containers are recognised by their content.
    ///
    /// # Errors
    /// As [`Self::joins`].
    pub fn joins_at_sight(&self) -> Result<Option<Vec<PathBuf>>, Error> {
        Ok(self.vfs().joins(self.handle.ino, false)?)
    }

    /// Returns whether this entry is a container or lies in one.
    pub(crate) fn is_inside(&self) -> bool {
        matches!(self.vfs().container(self.handle.ino), Ok(Some(_)))
    }

    /// Returns what is wrong with the container that contains this entry and no file of it shows.
    pub(crate) fn verify_rest(&self) -> Result<Vec<String>, Error> {
        Ok(self.ask(|tree, reader, _| tree.verify_rest(reader))?.unwrap_or_default())
    }

    /// Returns up to `length` bytes of a file from `offset` on, in memory of their own, for a caller that waits for no
    /// more than `wait`.
    pub(crate) fn read_copied(&self, offset: u64, length: u64, wait: Wait) -> Result<Vec<u8>, vfs::Error> {
        self.vfs().read_copied_with(self.handle.ino, offset, length, wait)
    }

    /// Keeps the file on the disk cache as the kernel can read it. Returns whether it is there.
    pub(crate) fn keep(&self) -> Result<bool, Error> {
        Ok(self.vfs().keep_file(self.handle.ino)?)
    }

    /// Returns the bytes of the file of the container that contains this entry.
    pub(crate) fn stored_size(&self) -> Option<u64> {
        self.vfs().stored(self.handle.ino).ok().flatten().map(|source| source.len())
    }

    /// Returns whether this is a folder of pictures that repeat what an array shows.
    pub(crate) fn repeats_array(&self) -> bool {
        let asked = self.ask(|tree, reader, node| Ok(self.is_folder() && tree.repeats_array(reader, node)?));
        asked.ok().flatten().unwrap_or(false)
    }

    /// Asks the container that contains this entry for its episodes; `None` if it has none.
    pub(crate) fn episodes_of<T>(
        &self,
        ask: impl FnOnce(&dyn Episodes, &ReadContext) -> Result<T, Fault>,
    ) -> Result<Option<T>, Error> {
        let asked = self.ask(|tree, reader, _| tree.episodes().map(|episodes| ask(episodes, reader)).transpose())?;
        Ok(asked.flatten())
    }

    /// Returns an episode of the container that contains this entry.
    pub(crate) fn episode(&self, position: u64) -> Result<Option<Episode>, Error> {
        Ok(self.episodes_of(|episodes, reader| episodes.episode(reader, position))?.flatten())
    }

    /// Returns a context for reading this file's bytes by parsers of files that are no containers.
    pub(super) fn apart(&self, source: Arc<dyn Source>) -> Apart {
        self.vfs().apart(source)
    }

    /// Returns rows of the column that this folder shows; see [`crate::tree::Container::rows`].
    pub(crate) fn rows(&self, rows: Range<u64>, elements: u64, bytes: u64) -> Result<Option<Vec<Cells>>, Error> {
        Ok(self.ask(|tree, reader, node| tree.rows(reader, node, rows, elements, bytes))?.flatten())
    }

    /// Returns what the player needs of this folder, if something happens in time in it.
    pub(crate) fn timeline(&self) -> Result<Option<Timeline>, Error> {
        Ok(self.ask(|tree, reader, node| tree.timeline(reader, node))?.flatten())
    }

    /// Returns element type and shape (outermost axis first) of the array that a `.npy` file shows; `None` for all
    /// other files. Decodes nothing.
    ///
    /// # Errors
    /// Those of opening the container.
    pub fn array_type(&self) -> Result<Option<(ElementType, Vec<u64>)>, Error> {
        let array = self.ask(|tree, reader, node| tree.array(reader, node))?.flatten();
        Ok(array.map(|view::Array { dtype, shape, .. }| (dtype, shape)))
    }

    /// Returns the same, and where the elements begin in the file.
    pub(crate) fn placed_array(&self) -> Result<Option<(ElementType, Vec<u64>, u64)>, Error> {
        let Some((dtype, shape)) = self.array_type()? else { return Ok(None) };
        let axes = shape.iter().try_fold(dtype.size(), |bytes, &axis| bytes.checked_mul(axis));
        // The elements follow the header, up to the end of the file.
        match axes.and_then(|bytes| self.size().checked_sub(bytes)).filter(|_| self.is_file()) {
            Some(start) => Ok(Some((dtype, shape, start))),
            None => Err(self.error(ErrorKind::Damaged, "its shape does not fit its size")),
        }
    }

    fn no_array(&self) -> Error {
        self.error(ErrorKind::NotAnArray, "not an array")
    }

    fn error(&self, kind: ErrorKind, reason: &str) -> Error {
        Error::new(kind, format!("{}: {reason}", self.path.display()))
    }

    /// Returns the array that a `.npy` file shows.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArray`] for all other files, and those of [`Self::read_range`].
    pub fn array(&self) -> Result<Array, Error> {
        let (dtype, shape, start) = self.placed_array()?.ok_or_else(|| self.no_array())?;
        let data = self.read_range(start, self.size() - start)?;
        Ok(Array::new(dtype, shape, data))
    }

    /// Fills `out` with the elements of an array that are in a slice of each axis, in C order: numpy's `a[2:9:3, 5:6]`.
    /// Of an array that is stored in chunks only those with such elements are decoded.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArray`] for all files but arrays, [`ErrorKind::Damaged`] also if the slices and `out` do not fit
    /// the array, and those of [`Self::read_range`].
    pub fn read_slices(&self, slices: &[Slice], out: &mut [u8]) -> Result<(), Error> {
        let filled = self.ask(|tree, reader, node| {
            let Some(view::Array { dtype, shape, data }) = tree.array(reader, node)? else { return Ok(false) };
            let array = view::Array { dtype, shape, data: data.located(reader)? };
            array.fill_slices(reader, slices, out).map(|()| true)
        })?;
        match filled {
            Some(true) => Ok(()),
            _ => Err(self.no_array()),
        }
    }

    /// Returns the target of a symbolic link, as stored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is not a link.
    pub fn link_target(&self) -> Result<PathBuf, Error> {
        Ok(self.vfs().read_link(self.handle.ino, Wait::Always)?.into())
    }
}

/// An entry as its folder lists it.
pub(crate) struct Listed {
    handle: Handle,
    path: PathBuf,
    pub(crate) kind: EntryKind,
    /// `None` if they take decoding, or cannot be read.
    pub(crate) attr: Option<Attr>,
}

impl Listed {
    /// Returns its path, as [`Entry::path`] has it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Returns it with all its attributes.
    ///
    /// # Errors
    /// Those of reading them.
    pub(crate) fn entry(self) -> Result<Entry, Error> {
        let Self { handle, path, attr, .. } = self;
        let attr = attr.map_or_else(|| handle.vfs.attr(handle.ino), Ok)?;
        Ok(Entry { handle: Arc::new(handle), attr, path, is_by_link: false })
    }

    /// Returns the description of the stored item that it shows.
    pub(crate) fn item_info(&self) -> Option<ItemInfo> {
        self.handle.vfs.item_info(self.handle.ino, Wait::Always).ok().flatten()
    }

    /// Returns whether it is the folder of a container.
    pub(crate) fn is_container(&self) -> bool {
        matches!(self.handle.vfs.format(self.handle.ino), Ok(Some((_, true))))
    }
}

/// The entries of a folder, in its own order. Names are fetched while the iterator is used, so a folder of a million
/// entries takes no more memory than one of a thousand.
#[derive(Debug)]
pub struct Entries {
    folder: Entry,
    /// Where the listing continues; `None` at its end.
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

    /// Returns the next entry with its name; without a name if the folder itself cannot be read.
    pub(crate) fn next_named(&mut self) -> Option<(Option<OsString>, Result<Entry, Error>)> {
        loop {
            if let Some(name) = self.names.pop_front() {
                // Entries that were removed since the listing are left out.
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

/// Everything below a folder: each entry, and after a folder its contents.
#[derive(Debug)]
pub struct Walk {
    /// The folders being listed, the innermost last.
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
                    let entry = entry.if_entered();
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
