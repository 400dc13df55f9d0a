//! The chunks of an episode: containers that a manifest names, found in its own folder and nowhere else.

use std::{
    io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Weak},
};

use lru::LruCache;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{container_id::ContainerId, containers::Containers, inodes::NumberKey};
use crate::{
    cache::{BlockError, nonzero},
    format::PartError,
    limits,
    single_flight::SingleFlight,
    source::SourceError,
    store::{FilePath, Kind, Stat, Store, Version},
    tree::{self, Detected, Opened},
    wanted,
};

/// Why an existing chunk is not opened.
const LINK: &str = "a symbolic link is on the way to it";

/// Chunks of a remote store that are opened at once.
const TOGETHER: usize = 16;

/// Most files whose SHA-256 is remembered.
const DIGESTS: usize = 1 << 14;

/// Finds the chunks of one manifest in its folder.
pub(super) struct Siblings {
    pub(super) manifest: Arc<ContainerId>,
    pub(super) store: Arc<dyn Store>,
    /// The open containers, which own this.
    pub(super) containers: Weak<Containers>,
    pub(super) digests: Arc<Digests>,
    pub(super) key: NumberKey,
}

impl Siblings {
    /// Returns the current state of a chunk's file.
    fn find(&self, uri: &str) -> Result<ContainerId, BlockError> {
        let refused = |reason: &str| Err(BlockError::Refused(reason.into()));
        let below: PathBuf = Path::new(uri).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let folder = self.manifest.path.folder();
        let typed = folder.join(below);
        let real = match self.store.without_links(&typed) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return refused("it does not exist"),
            real => real.map_err(SourceError::from)?,
        };
        // A manifest reaches files of its own folder only, whatever links are there.
        let own = self.store.without_links(folder).map_err(SourceError::from)?;
        let Some(path) = real.filter(|real| own.is_some_and(|own| real.starts_with(own))) else {
            return refused(LINK);
        };
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return refused("it does not exist") };
        let Some(stat) = self.store.stat(&path).map_err(SourceError::from)? else {
            return refused(if self.has_link(&path) { LINK } else { "it does not exist" });
        };
        match stat.kind {
            Kind::File => {}
            Kind::Link => return refused(LINK),
            Kind::Folder | Kind::Other => return refused("not an ordinary file"),
        }
        if !may_read_both(&self.manifest.stat, &stat) {
            return refused("some users who may read the manifest may not read it");
        }
        let path = FilePath::new(folder.into(), name);
        Ok(ContainerId::new(&self.key, path, self.manifest.format, stat, 0))
    }

    /// Returns whether a folder on the way to a path is a link.
    fn has_link(&self, path: &Path) -> bool {
        let is_link =
            |folder: &Path| self.store.stat(folder).is_ok_and(|at| at.is_some_and(|at| at.kind == Kind::Link));
        path.ancestors().skip(1).any(is_link)
    }
}

impl tree::Siblings for Siblings {
    fn open(&self, uri: &str) -> Result<Arc<Opened>, BlockError> {
        let Some(containers) = self.containers.upgrade() else { return Err(SourceError::Changed.into()) };
        let id = Arc::new(self.find(uri)?);
        if !containers.is_open(&id) {
            self.check_part(&id)?;
        }
        containers.open(&id, || None).map_err(|error| match error.refused_memory() {
            Some(refused) => refused.into(),
            None if error.is_passing() => SourceError::Io(io::Error::from_raw_os_error(error.errno())).into(),
            None => BlockError::Refused(error.to_problem().detail()),
        })
    }

    fn sha256(&self, opened: &Opened) -> Result<[u8; 32], SourceError> {
        self.digests.of(opened)
    }

    fn opened_at_once(&self) -> usize {
        if self.store.is_far() { TOGETHER } else { 1 }
    }
}

impl Siblings {
    /// Checks that a file may be shown as a part of the manifest. Its format, which must be the same, decides the rest.
    fn check_part(&self, chunk: &ContainerId) -> Result<(), BlockError> {
        let refused = |reason: String| Err(BlockError::Refused(reason));
        let file = self.store.open(&chunk.shown()).map_err(SourceError::from)?.into_source();
        let format = chunk.format;
        match tree::detect(&[format], &*file, chunk.path.name().as_encoded_bytes())? {
            Detected::Container(_) => {}
            Detected::Refused(_, error) => return refused(error.to_string()),
            Detected::Plain => return refused(format!("not a {} file", format.title)),
        }
        match (format.check_part)(&*file) {
            Ok(()) => Ok(()),
            Err(PartError::Source(error)) => Err(error.into()),
            Err(PartError::Damaged(reason)) => refused(reason),
        }
    }
}

/// Returns whether all users who may read the first file may read the second.
fn may_read_both(first: &Stat, second: &Stat) -> bool {
    let missing = if (first.uid, first.gid) == (second.uid, second.gid) { first.mode } else { 0o444 };
    missing & 0o444 & !second.mode == 0
}

/// A digest, once it is computed.
type Slot = Arc<SingleFlight<[u8; 32]>>;

/// SHA-256 of whole files, each computed once.
pub(super) struct Digests {
    known: Mutex<LruCache<Version, Slot>>,
}

impl Default for Digests {
    fn default() -> Self {
        Self { known: Mutex::new(LruCache::new(nonzero(DIGESTS))) }
    }
}

impl Digests {
    /// Returns the digest of an opened file. Other threads that need it wait for the one that computes it.
    fn of(&self, opened: &Opened) -> Result<[u8; 32], SourceError> {
        let slot = self.known.lock().get_or_insert(opened.state, Default::default).clone();
        slot.get_or_try_init(|| {
            let source = &*opened.reader.source;
            let (mut hash, mut at) = (Sha256::new(), 0);
            while at < source.len() {
                wanted::check()?;
                let piece = source.read(at..source.len().min(at + limits::PIECE as u64))?;
                hash.update(&piece);
                at += piece.len() as u64;
            }
            Ok(hash.finalize().into())
        })
    }
}
