//! Finds files that a container names and shows parts of, such as the chunks of an episode. Only its own folder is
//! searched.

use std::{
    ffi::OsStr,
    io,
    ops::ControlFlow,
    path::{Component, Path, PathBuf},
    sync::{Arc, Weak},
};

use super::{
    beside::{Beside, NO_FILE, NOWHERE, Ways, may_read_both},
    container_id::ContainerId,
    source_tree::SourceTree,
};
use crate::{
    cache::{BlockError, Cache, Key, refused_memory, sha256},
    format::PartError,
    single_flight::SingleFlight,
    source::{Source, SourceError, Wait},
    store::{File, Kind, Version},
    tree::{self, Detected, NotThere, OpenPart, Reach, WorkingMemory},
    vfs::open::containers::Containers,
};

/// Chunks of a remote store that are opened at once.
const TOGETHER: usize = 16;

/// The version of a file, if there is one, and the file if it is open already.
type Found = (Option<Version>, Option<Arc<dyn File>>);

/// Finds the containers that one container shows parts of, in its folder.
pub(crate) struct Siblings {
    pub(crate) container: Arc<ContainerId>,
    pub(crate) source: Arc<SourceTree>,
    /// The open containers, which own this.
    pub(crate) containers: Weak<Containers>,
    /// The folders on the way to files that were read.
    pub(crate) ways: Ways,
}

impl Siblings {
    /// Returns the path by which the store shows what a path below a folder names. Containers name files by what they
    /// are called, such as the keys of objects.
    fn shown(&self, base: &Path, path: &Path) -> PathBuf {
        let mut shown = PathBuf::new();
        for part in path {
            let name = self.source.store.name_of(&base.join(&shown), part);
            shown.push(name);
        }
        shown
    }

    /// Finds a file below the container's folder.
    fn look_up(&self, path: &Path, full: &Path) -> Result<Found, BlockError> {
        // In one step, unless something is in the way. What that is, the look step by step says.
        if !self.source.store.is_far() {
            match self.source.store.open(full, Wait::Always) {
                Ok(file) if may_read_both(&self.source.store, &self.container.stat, file.stat()) => {
                    return Ok((Some(file.version()), Some(file)));
                }
                // A link on the way would be another error.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return Ok((None, None));
                }
                _ => {}
            }
        }
        let beside = Beside { store: &self.source.store, path: &self.container.file(), stat: &self.container.stat };
        match beside.find(path.to_str().unwrap_or_default(), Reach::Shown) {
            Ok((_, stat)) => Ok((Some(stat.version), None)),
            Err(NotThere::Missing(NOWHERE | NO_FILE)) => Ok((None, None)),
            Err(error) => Err(refused(error)),
        }
    }

    /// Returns the current state of a file of the container's format.
    fn find(&self, path: &str, reach: Reach) -> Result<ContainerId, BlockError> {
        let ContainerId { stat, format, .. } = &*self.container;
        let found = Beside { store: &self.source.store, path: &self.container.file(), stat }.find(path, reach);
        let (path, stat) = found.map_err(refused)?;
        Ok(ContainerId::new(&self.source.key, path, (*format, None), stat, (0, 0)))
    }
}

impl tree::Siblings for Siblings {
    fn file(&self, path: &str) -> Result<Option<Arc<dyn Source>>, BlockError> {
        let base = self.container.folder();
        let path = &self.shown(&base, below(path)?);
        let full = base.join(path);
        // Watched before it is read, so that no change is missed.
        full.parent().map(|folder| self.source.store.watch(folder, Wait::Always));
        if self.container.marker.is_some() {
            self.source.store.expect(&full);
        }
        let (found, opened) = self.look_up(path, &full)?;
        self.note(&base, path, found)?;
        let Some(version) = found else { return Ok(None) };
        // All objects of a remote store have the same readers.
        if !self.source.store.is_far() {
            self.ways.check(&self.source.store, &self.container.stat, &base, path).map_err(refused)?;
        }
        let file = match opened {
            Some(file) => file,
            None => self.source.store.open(&full, Wait::Always).map_err(SourceError::from)?,
        };
        if file.version() != version {
            return Err(SourceError::Changed.into());
        }
        Ok(Some(match self.containers.upgrade() {
            Some(containers) => containers.source(file),
            None => file,
        }))
    }

    fn names(&self, path: &str, each: &mut dyn FnMut(&OsStr) -> ControlFlow<()>) -> Result<(), BlockError> {
        let base = self.container.folder();
        let path = &self.shown(&base, below(path)?);
        let full = base.join(path);
        self.source.store.watch(&full, Wait::Always);
        // Its listing also says that there is such a folder. What fails is asked again, and said there.
        let _ = self.source.store.expect_in(&full, &[], true);
        self.ways.check(&self.source.store, &self.container.stat, &base, path).map_err(refused)?;
        let found = self
            .source
            .store
            .stat(&full, Wait::Always)
            .map_err(SourceError::from)?
            .filter(|stat| stat.kind == Kind::Folder);
        self.note(&base, path, found.map(|stat| stat.version))?;
        let Some(stat) = found else { return Ok(()) };
        // Listing it is reading it.
        if !may_read_both(&self.source.store, &self.container.stat, &stat) {
            return Err(refused(NotThere::NotReadable));
        }
        let folder = self.source.store.folder(&full).map_err(SourceError::from)?;
        let names = folder.names().map_err(SourceError::from)?;
        let _ = (0..names.len()).try_for_each(|at| each(&self.source.store.part_of(&full, names.name(at))));
        Ok(())
    }

    fn open(&self, path: &str, reach: Reach) -> Result<Arc<dyn OpenPart>, BlockError> {
        let Some(containers) = self.containers.upgrade() else { return Err(SourceError::Changed.into()) };
        let id = Arc::new(self.find(path, reach)?);
        if !containers.is_open(&id) {
            self.check_part(&id, containers.cache())?;
        }
        let opened = containers.open(&id, Wait::Always, None).map_err(|error| match error.refused_memory() {
            Some(refused) => refused.into(),
            None if error.is_passing() => SourceError::Io(io::Error::from_raw_os_error(error.errno())).into(),
            None => BlockError::Refused(error.to_problem().detail()),
        })?;
        Ok(opened)
    }

    fn sha256(&self, part: &dyn OpenPart) -> Result<[u8; 32], SourceError> {
        let containers = self.containers.upgrade().ok_or(SourceError::Changed)?;
        let name = [&self.source.key.hash(&[]).to_le_bytes()[..], &part.state().to_bytes()].concat();
        let digest = containers.cache().parsed_default::<SingleFlight<[u8; 32]>>(Key::named("sha256", &name), 0);
        // Other threads that need it wait for the one that computes it.
        let source = &*part.context().source;
        digest.get_or_try_init(|| sha256(source, 0..source.len()))
    }

    fn opened_at_once(&self) -> usize {
        if self.source.store.is_far() { TOGETHER } else { 1 }
    }
}

impl Siblings {
    /// Checks that a file may be shown as a part of the manifest. Its format, which must be the same, decides the rest.
    fn check_part(&self, chunk: &ContainerId, cache: &Cache) -> Result<(), BlockError> {
        let refused = |reason: String| Err(BlockError::Refused(reason));
        let file = self.source.store.open(&chunk.shown(), Wait::Always).map_err(SourceError::from)?;
        let (format, name) = (chunk.format, chunk.path.name().as_encoded_bytes());
        let detected = cache.in_steps(refused_memory, || {
            let memory = WorkingMemory::new(cache);
            tree::detect_within(&[format], &*file, name, &memory).map_err(|unread| unread.error)
        });
        match detected? {
            Detected::Container(_) => {}
            Detected::Refused(_, error) => return refused(error.to_string()),
            Detected::Plain => return refused(format!("not a {} file", format.title)),
        }
        match format.check_part.map(|check| check(&*file)) {
            Some(Ok(())) => Ok(()),
            Some(Err(PartError::Source(error))) => Err(error.into()),
            Some(Err(PartError::Damaged(reason))) => refused(reason),
            None => refused("containers of its format are no parts of others".to_owned()),
        }
    }

    /// Records the version of a file that was read.
    fn note(&self, base: &Path, path: &Path, version: Option<Version>) -> Result<(), BlockError> {
        let container = &self.container;
        Ok(self.source.folders.note((&container.shown(), base), container.generation, path, version)?)
    }
}

/// Returns a path that leads to a place below a folder, if it does.
fn below(path: &str) -> Result<&Path, BlockError> {
    let is_below = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    match is_below && !path.contains('\0') {
        true => Ok(Path::new(path)),
        false => Err(BlockError::Refused(format!("the path {path:?} leads out of the container"))),
    }
}

/// Returns why something could not be found.
fn refused(error: NotThere) -> BlockError {
    match error {
        NotThere::Source(error) => error.into(),
        error => BlockError::Refused(error.to_string()),
    }
}
