//! Finds the documents and chunks of a store: files of a folder, or members of an archive (`docs/formats/zarr.md` 2).

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Bound, ControlFlow, Range},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    cache::BlockError,
    codec::{Codec, Filter},
    format::{
        Class, Crc, FormatError,
        zip::{self, Archive},
    },
    source::{Memory, Source, SourceError, Wait, check_room},
    tree::{Siblings, members::Members, memory::unread},
    view::{BlockRef, Blocks, Fault, ReadContext},
};

/// Documents that make a folder a node, in the order of precedence. At the top, they make the folder a store.
pub(super) const MARKERS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", ".zmetadata"];

/// Bytes of memory that a key takes in addition to its text.
const KEY_MEMORY: u64 = 96;

/// Most files that were opened to learn their sizes and stay open until they are read.
const OPEN: usize = 64;

/// A store.
pub(super) enum Store {
    Folder(Folder),
    Zip(Zip),
}

/// A folder with the files of a store.
pub(super) struct Folder {
    files: Arc<dyn Siblings>,
    /// The number of files that are open until they are read.
    open: Arc<AtomicUsize>,
}

/// Counts a file that is open until it is read.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// An archive, with its members by their keys.
pub(super) struct Zip {
    members: Arc<Members>,
    /// The number of each member. If several have the same name, the last counts.
    keys: BTreeMap<Box<str>, u32>,
}

/// Where the stored bytes of a key are.
pub(super) struct Place {
    /// The file; `None` for the container's own.
    pub(super) file: Option<Arc<dyn Source>>,
    pub(super) range: Range<u64>,
    /// The steps that the archive applied to the bytes, in the order of writing.
    pub(super) written: Vec<Filter>,
    /// The checksum of the bytes of the range, if the archive has one and stores them uncompressed.
    pub(super) crc: Option<Crc>,
}

impl Place {
    /// Returns the context that reads the file.
    pub(super) fn reader(&self, reader: &ReadContext) -> ReadContext {
        self.file.as_ref().map_or_else(|| reader.clone(), |file| reader.with_source(file.clone()))
    }
}

/// A file of the folder whose size is known. It is opened when it is first read, if it is not open already.
struct Lazy {
    files: Arc<dyn Siblings>,
    path: Box<str>,
    len: u64,
    /// The open file, kept for further reads.
    opened: OnceLock<Arc<dyn Source>>,
    _counted: Option<Counted>,
}

impl Folder {
    pub(super) fn new(files: Arc<dyn Siblings>) -> Self {
        Self { files, open: Arc::default() }
    }

    /// Returns a file whose size is known.
    fn known(&self, path: &str, len: u64) -> Lazy {
        Lazy { files: self.files.clone(), path: path.into(), len, opened: OnceLock::new(), _counted: None }
    }

    /// Returns a file that was opened just now. Of many, only some stay open.
    fn opened(&self, path: &str, file: Arc<dyn Source>) -> Lazy {
        let lazy = self.known(path, file.len());
        let counted = Counted(self.open.clone());
        if self.open.fetch_add(1, Relaxed) >= OPEN {
            return lazy;
        }
        let _ = lazy.opened.set(file);
        Lazy { _counted: Some(counted), ..lazy }
    }
}

impl Lazy {
    fn open(&self) -> Result<Arc<dyn Source>, SourceError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened.clone());
        }
        match self.files.file(&self.path) {
            Ok(Some(file)) if file.len() == self.len => Ok(file),
            Ok(_) => Err(SourceError::Changed),
            Err(BlockError::Source(error)) => Err(error),
            Err(error) => Err(unread(&error)),
        }
    }
}

impl Source for Lazy {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        if wait == Wait::Never {
            return Err(SourceError::WouldBlock);
        }
        let file = self.open()?;
        if (buf.len() as u64) < self.len {
            let _ = self.opened.set(file.clone());
        }
        file.read_at(offset, buf, wait)
    }

    fn note_checked(&self, range: &Range<u64>) {
        if let Ok(file) = self.open() {
            file.note_checked(range);
        }
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        // Local files are opened when they are read. Nothing is fetched ahead.
        if self.files.opened_at_once() > 1
            && let Ok(file) = self.open()
        {
            file.prefetch(ranges);
        }
    }
}

/// Converts an error of a document to one of opening the container.
pub(super) fn failed(error: BlockError) -> FormatError {
    match error {
        BlockError::Source(error) => error.into(),
        BlockError::Memory(refused) => crate::tree::no_memory(refused).into(),
        error => FormatError::refused(Class::BadFormat, error.to_string()),
    }
}

impl Store {
    /// Returns the store in an archive whose directory was read.
    ///
    /// # Errors
    /// `Source` if there is not enough memory.
    pub(super) fn of_zip(archive: Archive, memory: &dyn Memory) -> Result<Self, FormatError> {
        let names: u64 = archive.members.iter().map(|member| KEY_MEMORY + 2 * member.name.len() as u64).sum();
        memory.reserve(names)?;
        check_room(names, 1).map_err(SourceError::from)?;
        let top = zip_top(archive.members.iter().filter_map(|member| member.key())).unwrap_or_default();
        let mut keys = BTreeMap::new();
        for (number, member) in (0..).zip(&archive.members) {
            if let Some(key) = member.key()
                && let Some(key) = key.strip_prefix(&*top)
            {
                keys.insert(key.into(), number);
            }
        }
        Ok(Self::Zip(Zip { members: Members::new(archive), keys }))
    }

    /// Returns the members, if it is an archive.
    pub(super) fn zip(&self) -> Option<&Zip> {
        if let Self::Zip(zip) = self { Some(zip) } else { None }
    }

    /// Returns how many files should be requested at once.
    pub(super) fn at_once(&self) -> usize {
        /// Number of requests that a remote store answers about as fast as one.
        const FAR: usize = 64;
        match self {
            Self::Folder(folder) if folder.files.opened_at_once() > 1 => FAR,
            Self::Folder(_) | Self::Zip(_) => 1,
        }
    }

    /// Returns whether a document exists.
    ///
    /// # Errors
    /// [`BlockError`] if that cannot be known.
    pub(super) fn has(&self, key: &str) -> Result<bool, BlockError> {
        match self {
            Self::Folder(folder) => folder.files.file(key).map(|file| file.is_some()),
            Self::Zip(zip) => Ok(zip.keys.contains_key(key)),
        }
    }

    /// Returns a whole document of at most `most` bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// [`BlockError`] if it is damaged or cannot be read.
    pub(super) fn document(
        &self,
        source: &dyn Source,
        key: &str,
        most: u64,
        memory: &dyn Memory,
    ) -> Result<Option<Vec<u8>>, BlockError> {
        let room = |size: u64| {
            if size > most {
                return Err(BlockError::Refused(format!("{key}: {size} bytes; at most {most}")));
            }
            Ok(memory.reserve(size)?)
        };
        match self {
            Self::Folder(folder) => {
                let Some(file) = folder.files.file(key)? else { return Ok(None) };
                room(file.len())?;
                Ok(Some(file.read(0..file.len())?))
            }
            Self::Zip(zip) => {
                let Some(member) = zip.keys.get(key).and_then(|number| zip.members.get(*number)) else {
                    return Ok(None);
                };
                let refused = |reason| Err(BlockError::Refused(format!("{key}: {reason}")));
                if let Some(reason) = member.error() {
                    return refused(reason);
                }
                room(member.size)?;
                room(member.stored_size.min(most))?;
                let data = match member.data(source) {
                    Ok(data) => data,
                    Err(zip::MemberError::Damaged(reason)) => return refused(reason),
                    Err(zip::MemberError::Source(error)) => return Err(error.into()),
                };
                let block = member.block(data);
                let stored = source.read(block.stored())?;
                let bytes = match block.codec {
                    Codec::None => stored,
                    codec => codec.decode(&stored, block.size)?,
                };
                match block.crc.filter(|crc| crc.kind.of(&bytes) != crc.value) {
                    Some(_) => refused("another checksum than stated".into()),
                    None => Ok(Some(bytes)),
                }
            }
        }
    }

    /// Returns where the stored bytes of a key are; `None` if the key does not exist. `size` is the size of the file,
    /// if known.
    ///
    /// # Errors
    /// [`Fault`] if they cannot be served.
    pub(super) fn place(&self, reader: &ReadContext, key: &str, size: Option<u64>) -> Result<Option<Place>, Fault> {
        match self {
            Self::Folder(folder) => {
                let file = match size {
                    Some(size) => folder.known(key, size),
                    None => {
                        reader.may_read()?;
                        match folder.files.file(key).map_err(|error| fault(error, key))? {
                            Some(file) => folder.opened(key, file),
                            None => return Ok(None),
                        }
                    }
                };
                let range = 0..file.len;
                Ok(Some(Place { file: Some(Arc::new(file)), range, written: Vec::new(), crc: None }))
            }
            Self::Zip(zip) => {
                let Some(number) = zip.keys.get(key) else { return Ok(None) };
                let BlockRef { block, error, .. } = zip.members.block(reader, *number)?;
                if let Some(reason) = error {
                    let error = BlockError::Refused(format!("{key}: {reason}"));
                    return Err(Fault { block: Some(*number), offset: block.offset, error: Arc::new(error) });
                }
                let (range, crc) = (block.stored(), block.crc);
                if block.codec == Codec::None {
                    return Ok(Some(Place { file: None, range, written: Vec::new(), crc }));
                }
                let known = Filter::Known { size: block.size, crc: crc.map_or(0, |crc| crc.value) };
                Ok(Some(Place { file: None, range, written: vec![known, Filter::Deflate], crc: None }))
            }
        }
    }

    /// Returns the names in a group's folder, in bytewise order. Some may not be folders.
    ///
    /// # Errors
    /// [`BlockError`] if the folder cannot be listed.
    pub(super) fn names(&self, path: &str, memory: &dyn Memory) -> Result<Vec<String>, BlockError> {
        let mut names = Vec::new();
        match self {
            Self::Folder(folder) => {
                let mut failed = None;
                folder.files.names(path, &mut |name| {
                    // Keys are UTF-8.
                    let Some(name) = name.to_str() else { return ControlFlow::Continue(()) };
                    match memory.reserve(KEY_MEMORY + name.len() as u64) {
                        Ok(()) => names.push(name.to_owned()),
                        Err(error) => {
                            failed = Some(error);
                            return ControlFlow::Break(());
                        }
                    }
                    ControlFlow::Continue(())
                })?;
                if let Some(error) = failed {
                    return Err(error.into());
                }
                names.sort_unstable();
            }
            Self::Zip(zip) => {
                let above = if path.is_empty() { String::new() } else { format!("{path}/") };
                let mut from = Bound::Included(above.clone());
                // Skip all members of a folder.
                while let Some((key, _)) = zip.next_key(from)
                    && let Some(rest) = key.strip_prefix(&*above)
                {
                    from = match rest.split_once('/') {
                        Some((name, _)) => {
                            memory.reserve(KEY_MEMORY + name.len() as u64)?;
                            names.push(name.to_owned());
                            // The character that follows a slash.
                            Bound::Included(format!("{above}{name}0"))
                        }
                        None => Bound::Excluded(key.to_owned()),
                    };
                }
                names.sort_unstable();
                names.dedup();
            }
        }
        Ok(names)
    }

    /// Calls `each` with the keys below an array's folder that may be those of chunks, which are `depth` folders deep.
    ///
    /// # Errors
    /// [`Fault`] if a folder cannot be listed.
    pub(super) fn keys_below(
        &self,
        path: &str,
        depth: usize,
        each: &mut dyn FnMut(&str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let above = if path.is_empty() { String::new() } else { format!("{path}/") };
        match self {
            Self::Folder(folder) => below(&*folder.files, path, "", depth, each),
            Self::Zip(zip) => {
                for (key, _) in zip.keys.range::<str, _>((Bound::Included(&*above), Bound::Unbounded)) {
                    let Some(key) = key.strip_prefix(&*above) else { break };
                    each(key)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the members of an archive whose local headers have other names than the directory says, for messages. A
    /// chunk with a wrong name is not missed: without a chunk, elements have the fill value.
    ///
    /// # Errors
    /// [`Fault`] if the headers cannot be read.
    pub(super) fn misnamed(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        /// Most members that are named. More do not help the user.
        const NAMED: usize = 100;
        let mut misnamed = Vec::new();
        for member in self.zip().map_or(&[][..], |zip| zip.members.all()) {
            crate::wanted::check().map_err(SourceError::from)?;
            match member.header(&*reader.source) {
                Err(zip::MemberError::Damaged(reason)) if misnamed.len() < NAMED => {
                    misnamed.push(format!("{}: {reason}", String::from_utf8_lossy(&member.name)));
                }
                Ok(_) | Err(zip::MemberError::Damaged(_)) => {}
                Err(zip::MemberError::Source(error)) => return Err(error.into()),
            }
        }
        Ok(misnamed)
    }

    /// Returns about how many bytes of memory it takes.
    pub(super) fn memory_usage(&self) -> usize {
        match self {
            Self::Folder(_) => 0,
            Self::Zip(zip) => {
                let keys: usize = zip.keys.keys().map(|key| key.len() + KEY_MEMORY as usize).sum();
                keys + zip.members.memory_usage()
            }
        }
    }
}

/// Calls `each` with the paths that are `depth` folders below a folder.
fn below(
    files: &dyn Siblings,
    path: &str,
    own: &str,
    depth: usize,
    each: &mut dyn FnMut(&str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let join = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { format!("{a}/{b}") };
    crate::wanted::check().map_err(SourceError::from)?;
    let (mut folders, mut result) = (Vec::new(), Ok(()));
    let listed = files.names(&join(path, own), &mut |name| {
        // Keys of chunks consist of numbers and an optional first part `c`.
        let Some(name) = name.to_str().filter(|name| name.starts_with(|c: char| c == 'c' || c.is_ascii_digit())) else {
            return ControlFlow::Continue(());
        };
        let key = join(own, name);
        if depth == 0 {
            result = each(&key);
        } else {
            folders.push(key);
        }
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    // A file instead of a folder has nothing below it.
    match listed {
        Ok(()) => {}
        Err(error) => return Err(fault(error, path)),
    }
    result?;
    folders.iter().try_for_each(|folder| below(files, path, folder, depth - 1, each))
}

/// Returns a failure with its key in the reason.
pub(super) fn fault(error: BlockError, key: &str) -> Fault {
    let error = match error {
        BlockError::Refused(reason) => BlockError::Refused(format!("{key}: {reason}")),
        error => error,
    };
    error.into()
}

impl Zip {
    fn next_key(&self, from: Bound<String>) -> Option<(&str, u32)> {
        let from = match &from {
            Bound::Included(key) => Bound::Included(&**key),
            Bound::Excluded(key) => Bound::Excluded(&**key),
            Bound::Unbounded => Bound::Unbounded,
        };
        self.keys.range::<str, _>((from, Bound::Unbounded)).next().map(|(key, number)| (&**key, *number))
    }

    /// Returns the number of the member with a key.
    pub(super) fn number(&self, key: &str) -> Option<u32> {
        self.keys.get(key).copied()
    }

    /// Returns the members.
    pub(super) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Iterates over the members below a path, with their keys relative to it.
    pub(super) fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a zip::Member)> {
        let above = if path.is_empty() { String::new() } else { format!("{path}/") };
        let length = above.len();
        let all = self.keys.range::<str, _>((Bound::Included(&*above), Bound::Unbounded));
        let own = all.take_while(move |(key, _)| key.starts_with(&*above));
        own.filter_map(move |(key, number)| Some((key.get(length..)?, self.members.get(*number)?)))
    }
}

/// Returns the prefix of all keys of the store in an archive: empty if a marker is at the root, otherwise the only top
/// folder with a slash. Returns `None` if there is no marker.
pub(super) fn zip_top<'a>(keys: impl Iterator<Item = std::borrow::Cow<'a, str>>) -> Option<String> {
    let mut tops = BTreeSet::new();
    let (mut is_root, mut marked) = (false, BTreeSet::new());
    for key in keys {
        is_root |= MARKERS.contains(&&*key);
        let (top, rest) = key.split_once('/').map_or((&*key, None), |(top, rest)| (top, Some(rest)));
        if rest.is_some_and(|rest| MARKERS.contains(&rest)) {
            marked.insert(top.to_owned());
        }
        let is_extra = top == "__MACOSX" || key.rsplit('/').next() == Some(".DS_Store");
        // Two are enough to know that there is no single top folder.
        if !is_extra && tops.len() < 2 {
            tops.insert(top.to_owned());
        }
    }
    if is_root {
        return Some(String::new());
    }
    let top = tops.pop_first().filter(|top| tops.is_empty() && marked.contains(top))?;
    Some(format!("{top}/"))
}
