//! SOURCE's own folders and files, and which of the files are containers.

use std::{
    ffi::{OsStr, OsString},
    fs,
    hash::{Hash, Hasher},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use lru::LruCache;
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

use super::{
    Error, FileKind, FollowLinks, Node,
    host::{ContainerId, FileMeta, HostFile, descriptors, open_patiently, shown},
    problems::{Problem, Problems},
};
use crate::{
    cache::nonzero,
    format::wshard::{self, Chunk},
    limits,
    source::{Fingerprint, MappedFile, Source, SourceError},
    tree::{self, Detected, Formats, WSHARD},
    view::Bytes,
};

/// Files whose detection is remembered.
const DETECTED: usize = 1 << 18;
/// Folders whose listing is remembered, so that a listing in several calls is one listing.
const LISTINGS: usize = 64;

/// A name in a folder of SOURCE.
#[derive(Debug)]
pub(super) enum Found {
    Folder(FileMetaAt),
    Link(Arc<Path>, FileMeta),
    File(Arc<Path>, FileMeta),
    Container(Arc<ContainerId>),
}

/// A folder's path with its metadata.
#[derive(Debug)]
pub(super) struct FileMetaAt {
    path: Arc<Path>,
    meta: FileMeta,
}

impl std::ops::Deref for FileMetaAt {
    type Target = FileMeta;

    fn deref(&self) -> &FileMeta {
        &self.meta
    }
}

impl Found {
    pub(super) fn kind(&self) -> FileKind {
        match self {
            Self::Folder(_) | Self::Container(_) => FileKind::Folder,
            Self::Link(..) => FileKind::Link,
            Self::File(..) => FileKind::File,
        }
    }

    pub(super) fn into_node(self) -> Node {
        match self {
            Self::Folder(FileMetaAt { path, .. }) | Self::Link(path, _) => Node::Plain(path),
            Self::File(path, meta) => Node::File(path, meta.host()),
            Self::Container(id) => Node::Inside(id, crate::tree::ROOT),
        }
    }
}

/// What a file of some fingerprint turned out to be.
#[derive(Debug, Clone)]
enum Detection {
    Plain,
    Container(Arc<ContainerId>),
    /// A container that shows its chunks, too, and is another one when they change.
    Manifest(Arc<ContainerId>, Arc<[Chunk]>),
}

type Listing = (Fingerprint, Arc<[OsString]>);

/// SOURCE as folders.
pub(super) struct Folders {
    source: PathBuf,
    follow_links: FollowLinks,
    formats: Formats,
    detected: Mutex<LruCache<PathBuf, (FileMeta, Detection)>>,
    listings: Mutex<LruCache<PathBuf, Listing>>,
    open_files: Mutex<LruCache<(PathBuf, HostFile), Arc<MappedFile>>>,
}

impl Folders {
    pub(super) fn new(source: PathBuf, follow_links: FollowLinks, formats: Formats) -> Self {
        Self {
            source,
            follow_links,
            formats,
            detected: Mutex::new(LruCache::new(nonzero(DETECTED))),
            listings: Mutex::new(LruCache::new(nonzero(LISTINGS))),
            open_files: Mutex::new(LruCache::new(nonzero(limits::OPEN_FILES.min(descriptors())))),
        }
    }

    /// The place of a path below SOURCE in the host's filesystem.
    pub(super) fn full(&self, path: &Path) -> PathBuf {
        if path == Path::new("") { self.source.clone() } else { self.source.join(path) }
    }

    /// SOURCE itself.
    pub(super) fn root_meta(&self) -> Result<FileMeta, Error> {
        let meta = fs::metadata(&self.source).map_err(|e| Error::os(&e, "stat", PathBuf::new()))?;
        Ok(FileMeta::of(&meta))
    }

    /// What stands at a path below SOURCE. `None` if nothing does, or only what is left out (sockets, devices, pipes).
    ///
    /// # Errors
    /// [`Error`] when the file can't be looked at. A file whose front can't be read is an ordinary file: the reader
    /// of its bytes gets the error.
    pub(super) fn find(&self, path: &Path, problems: &Problems) -> Result<Option<Found>, Error> {
        let mut full = self.full(path);
        let mut stat = match fs::symlink_metadata(&full) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)) => {
                return Ok(None);
            }
            other => other.map_err(|e| Error::os(&e, "stat", path.to_path_buf()))?,
        };
        if stat.is_symlink()
            && self.follow_links.follows()
            && let Some((target, meta)) = self.resolve(&full)
        {
            (full, stat) = (target, meta);
        }
        let meta = FileMeta::of(&stat);
        let file_type = stat.file_type();
        Ok(if file_type.is_dir() {
            Some(Found::Folder(FileMetaAt { path: path.into(), meta }))
        } else if file_type.is_symlink() {
            Some(Found::Link(path.into(), meta))
        } else if file_type.is_file() {
            Some(match self.detect(path, full, meta, problems)? {
                Detection::Container(id) | Detection::Manifest(id, _) => Found::Container(id),
                Detection::Plain => Found::File(path.into(), meta),
            })
        } else {
            None
        })
    }

    /// The target of a link that stays inside SOURCE. A link to a folder that it lies in itself stays a link: followed,
    /// it would never end.
    fn resolve(&self, link: &Path) -> Option<(PathBuf, fs::Metadata)> {
        let target = link.canonicalize().ok()?;
        let inside = target.starts_with(&self.source);
        let own_folder = link.parent()?.canonicalize().ok()?;
        if !inside || own_folder.starts_with(&target) {
            return None;
        }
        let meta = fs::symlink_metadata(&target).ok()?;
        Some((target, meta))
    }

    fn detect(&self, path: &Path, full: PathBuf, meta: FileMeta, problems: &Problems) -> Result<Detection, Error> {
        let known = self.detected.lock().get(path).filter(|(known, _)| *known == meta).cloned();
        match known {
            Some((_, Detection::Manifest(id, chunks))) => {
                let others = state_of(&full, &chunks);
                let detection = if others == id.others {
                    Detection::Manifest(id, chunks)
                } else {
                    let id = Arc::new(id.with_others(others));
                    let detection = Detection::Manifest(id, chunks);
                    self.detected.lock().put(path.to_path_buf(), (meta, detection.clone()));
                    detection
                };
                return Ok(detection);
            }
            Some((_, detection)) => return Ok(detection),
            None => {}
        }
        let name = full.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        let looked = open_patiently(&full).map_err(Into::into).and_then(|file| {
            let detected = tree::detect(self.formats, &file, &name)?;
            let is_shard = matches!(detected, Detected::Container(format) if *format == WSHARD);
            Ok((detected, if is_shard { chunks_of(&file) } else { Vec::new() }))
        });
        let (detected, chunks) =
            looked.map_or_else(|error| (Err(error), Vec::new()), |(found, chunks)| (Ok(found), chunks));
        let detection = match detected {
            Ok(Detected::Container(format)) => {
                let others = state_of(&full, &chunks);
                let id = Arc::new(ContainerId::new(path.to_path_buf(), full, format, meta, others));
                if chunks.is_empty() { Detection::Container(id) } else { Detection::Manifest(id, chunks.into()) }
            }
            Ok(Detected::Plain) => Detection::Plain,
            Ok(Detected::Refused(format, error)) => {
                let message = format!("not shown as a {} container: {error}", format.title);
                problems.note(Problem::of(shown(path, &full), message));
                Detection::Plain
            }
            // Not remembered: the next look may succeed. Only what the host's file says of itself makes it an ordinary one.
            Err(SourceError::Io(error)) if is_shortage(&error) => {
                return Err(Error::os(&error, "open", path.to_path_buf()));
            }
            Err(error) => {
                // Whether it is a container can't be known. Its name may say so; as SOURCE it has to be one.
                if path == Path::new("") || tree::is_container_name(self.formats, OsStr::from_bytes(&name)) {
                    problems.note(Problem::of(shown(path, &full), format!("can't be read: {error}")));
                }
                log::debug!("{}: {error}", full.display());
                return Ok(Detection::Plain);
            }
        };
        self.detected.lock().put(path.to_path_buf(), (meta, detection.clone()));
        Ok(detection)
    }

    /// The names in a folder, sorted. A listing goes on over the names that it began with, unless it is `from_start`.
    ///
    /// # Errors
    /// [`Error`] when the folder can't be read.
    pub(super) fn names(&self, path: &Path, from_start: bool) -> Result<Arc<[OsString]>, Error> {
        let full = self.full(path);
        let failed = |e: io::Error| Error::os(&e, "readdir", path.to_path_buf());
        let fingerprint = Fingerprint::of(&fs::metadata(&full).map_err(failed)?);
        if let Some((known, names)) = self.listings.lock().get(path)
            // Within one tick of the clock a folder can change twice: one that changed just now is listed anew.
            && (!from_start || *known == fingerprint && !fingerprint.is_recent())
        {
            return Ok(names.clone());
        }
        let entries = fs::read_dir(&full).map_err(failed)?;
        let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        names.sort_unstable();
        let names: Arc<[OsString]> = names.into();
        self.listings.lock().put(path.to_path_buf(), (fingerprint, names.clone()));
        Ok(names)
    }

    /// Bytes of an ordinary file, as they stand there now.
    ///
    /// # Errors
    /// [`Error`] when it can't be opened or read, or another file has taken its place and nobody has it open any more.
    pub(super) fn read(&self, path: &Path, host: HostFile, offset: u64, length: u64) -> Result<Bytes, Error> {
        let file = self.open_file(path, host)?;
        let range = offset.min(file.len())..offset.saturating_add(length).min(file.len());
        if let Some(mapped) = file.mapped(range) {
            return Ok(Bytes::Mapped(mapped));
        }
        let bytes = file.metadata().and_then(|now| {
            let length = length.min(now.len().saturating_sub(offset));
            file.read_now(offset, usize::try_from(length).unwrap_or(usize::MAX))
        });
        bytes.map(Bytes::Owned).map_err(|e| Error::os(&e, "read", path.to_path_buf()))
    }

    /// An ordinary file, for the kernel to read by itself.
    ///
    /// # Errors
    /// [`Error`] when it can't be opened.
    pub(super) fn open_again(&self, path: &Path, host: HostFile) -> Result<fs::File, Error> {
        self.open_file(path, host)?.descriptor().map_err(|e| Error::os(&e, "open", path.to_path_buf()))
    }

    /// What is known of an ordinary file that is open, though its name is gone.
    ///
    /// # Errors
    /// [`Error`] when it is not open.
    pub(super) fn open_meta(&self, path: &Path, host: HostFile) -> Result<FileMeta, Error> {
        let file = self.open_files.lock().get(&(path.to_path_buf(), host)).cloned();
        let meta = file.and_then(|file| file.metadata().ok());
        meta.map(|meta| FileMeta::of(&meta)).ok_or_else(|| Error::stale(path.to_path_buf()))
    }

    /// An ordinary file, kept open for a while, so that one that is replaced or deleted can be read to its end.
    fn open_file(&self, path: &Path, host: HostFile) -> Result<Arc<MappedFile>, Error> {
        let key = (path.to_path_buf(), host);
        let known = self.open_files.lock().get(&key).cloned();
        if let Some(file) = known.filter(|file| file.check_unchanged().is_ok()) {
            return Ok(file);
        }
        let full = self.full(path);
        let target =
            if self.follow_links.follows() { self.resolve(&full).map_or(full, |(target, _)| target) } else { full };
        let file = open_patiently(&target).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => Error::stale(path.to_path_buf()),
            _ => Error::os(&e, "open", path.to_path_buf()),
        })?;
        if HostFile::of(&file.fingerprint()) != host {
            return Err(Error::stale(path.to_path_buf()));
        }
        let file = Arc::new(file);
        self.open_files.lock().put(key, file.clone());
        Ok(file)
    }
}

/// Chunks of one manifest whose files are looked at for its own state; of more, only their folder is.
const WATCHED: usize = 1024;

/// The chunks of a manifest that was opened, if it is one and names an episode.
fn chunks_of(file: &dyn Source) -> Vec<Chunk> {
    let is_manifest = wshard::header(file).is_ok_and(|header| header.role == wshard::ROLE_MANIFEST);
    let parsed = is_manifest.then(|| wshard::parse(file).ok()).flatten();
    parsed.and_then(|shard| shard.chunks).unwrap_or_default()
}

/// The state that the chunks' files are in: another number when any of them comes, goes, or is written to. 0 for none.
fn state_of(manifest: &Path, chunks: &[Chunk]) -> u64 {
    let folder = manifest.parent().unwrap_or(Path::new("/"));
    let mut hash = Xxh3::new();
    let files = chunks.iter().take(WATCHED).map(|chunk| folder.join(&chunk.uri));
    let all = (chunks.len() > WATCHED).then(|| folder.to_path_buf());
    for file in files.chain(all) {
        let now = fs::symlink_metadata(file).ok().map(|meta| Fingerprint::of(&meta));
        // As in an inode number: not by device and inode.
        now.map(|now| (now.size, now.mtime, now.ctime)).hash(&mut hash);
    }
    if chunks.is_empty() { 0 } else { hash.finish() }
}

/// Whether an operation failed for want of something that comes back.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN))
}
