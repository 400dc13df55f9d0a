//! The chunks of an episode: containers that a manifest names, found in its own folder and nowhere else.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Weak},
};

use lru::LruCache;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{
    FollowLinks,
    containers::Containers,
    host::{ContainerId, FileMeta},
};
use crate::{
    cache::{BlockError, nonzero},
    format::{FormatError, wshard},
    limits,
    source::{Fingerprint, MappedFile, SourceError},
    tree::{self, Detected, Opened, WSHARD},
};

/// Files whose SHA-256 is remembered.
const DIGESTS: usize = 1 << 16;

/// The folder of one manifest.
pub(super) struct Siblings {
    containers: Weak<Containers>,
    manifest: Arc<ContainerId>,
    follow_links: FollowLinks,
}

impl Siblings {
    pub(super) fn of(manifest: Arc<ContainerId>, containers: Weak<Containers>, follow_links: FollowLinks) -> Self {
        Self { containers, manifest, follow_links }
    }

    /// What a chunk's file is now.
    fn find(&self, uri: &str) -> Result<ContainerId, BlockError> {
        let refused = |reason: &str| Err(BlockError::Refused(reason.into()));
        let folder = self.manifest.full.parent().unwrap_or(Path::new("/")).canonicalize().map_err(SourceError::from)?;
        let below: PathBuf = Path::new(uri).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let full = folder.join(&below).canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BlockError::Refused("it is not there".into()),
            _ => SourceError::from(error).into(),
        })?;
        let stays = if self.follow_links.follows() { full.starts_with(&folder) } else { full == folder.join(&below) };
        if !stays {
            return refused("a symbolic link is on the way to it");
        }
        let stat = fs::symlink_metadata(&full).map_err(SourceError::from)?;
        if !stat.is_file() {
            return refused("not an ordinary file");
        }
        let meta = FileMeta::of(&stat);
        if !may_read_both(&self.manifest.meta, &meta) {
            return refused("not everybody who may read the manifest may read it");
        }
        let path = self.manifest.path.parent().unwrap_or(Path::new("")).join(below);
        Ok(ContainerId::new(path, full, &WSHARD, meta, 0))
    }
}

impl tree::Siblings for Siblings {
    fn open(&self, uri: &str) -> Result<Arc<Opened>, BlockError> {
        let Some(containers) = self.containers.upgrade() else { return Err(SourceError::Changed.into()) };
        let id = Arc::new(self.find(uri)?);
        if !containers.is_open(&id) {
            check_episode(&id.full)?;
        }
        containers.open(&id).map_err(|error| BlockError::Refused(error.to_problem().detail()))
    }

    fn sha256(&self, opened: &Opened) -> Result<[u8; 32], SourceError> {
        let Some(containers) = self.containers.upgrade() else { return Err(SourceError::Changed) };
        containers.digests.of(opened)
    }
}

/// Whether everybody who may read the first file may read the second.
fn may_read_both(first: &FileMeta, second: &FileMeta) -> bool {
    let missing = if (first.uid, first.gid) == (second.uid, second.gid) { first.mode } else { 0o444 };
    missing & 0o444 & !second.mode == 0
}

/// A manifest as a chunk, also of itself, would be joined without end.
fn check_episode(path: &Path) -> Result<(), BlockError> {
    let refused = |reason: String| Err(BlockError::Refused(reason));
    let file = MappedFile::open(path).map_err(SourceError::from)?;
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    match tree::detect(&[&WSHARD], &file, name)? {
        Detected::Container(_) => {}
        Detected::Refused(_, error) => return refused(error.to_string()),
        _ => return refused("not a Shard file".into()),
    }
    match wshard::header(&file) {
        Ok(header) if header.role == wshard::ROLE_EPISODE => Ok(()),
        Ok(header) => refused(format!("not an episode: its role is {}", header.role)),
        Err(FormatError::Source(error)) => Err(error.into()),
        Err(error) => refused(error.to_string()),
    }
}

/// A digest, once it is computed; who holds the lock computes it.
type Slot = Arc<Mutex<Option<[u8; 32]>>>;

/// SHA-256 of whole files, each computed once.
pub(super) struct Digests {
    known: Mutex<LruCache<Fingerprint, Slot>>,
}

impl Default for Digests {
    fn default() -> Self {
        Self { known: Mutex::new(LruCache::new(nonzero(DIGESTS))) }
    }
}

impl Digests {
    /// The digest of an opened file. Who comes while it is computed waits for it.
    fn of(&self, opened: &Opened) -> Result<[u8; 32], SourceError> {
        let slot = self.known.lock().get_or_insert(opened.state, Default::default).clone();
        let mut digest = slot.lock();
        if let Some(known) = *digest {
            return Ok(known);
        }
        let source = &*opened.reader.source;
        let (mut hash, mut at) = (Sha256::new(), 0);
        while at < source.len() {
            let piece = source.read(at..source.len().min(at + limits::PIECE as u64))?;
            hash.update(&piece);
            at += piece.len() as u64;
        }
        Ok(*digest.insert(hash.finalize().into()))
    }
}
