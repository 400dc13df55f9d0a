//! The other files that containers read, in their folder or in the folder that is the container, with the versions that
//! they had. If any of these files changes, the container has a new state.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;

use crate::{
    cache::nonzero,
    source::{Source, SourceError, Wait},
    store::{Version, unveiled::Unveiled},
};

/// How often the files are checked again, if nothing announces changes.
const INTERVAL: Duration = Duration::from_millis(250);

/// Most files of one folder that are checked again. If more were read, any announced change below the folder counts.
const FILES: usize = 1024;

/// The same for a store in which each check may take a request.
const FILES_FAR: usize = 64;

/// Folders whose files are remembered: about 10 MiB if each has the most files.
const FOLDERS: usize = 64;

/// Folders whose generation is remembered.
const GENERATIONS: usize = 1 << 16;

/// The containers that read other files, and the files that they read.
pub(crate) struct FolderStates {
    store: Arc<Unveiled>,
    state: Mutex<State>,
}

struct State {
    folders: LruCache<PathBuf, Files>,
    /// How often each was found to have changed, counted over all folders so that no number comes twice.
    generations: LruCache<PathBuf, u64>,
    last: u64,
}

/// The files that were read for one container.
struct Files {
    /// The folder that paths count from: the container's own path if it is a folder.
    base: PathBuf,
    /// Their versions by their paths below the folder; `None` for a file that did not exist.
    seen: HashMap<Box<Path>, Option<Version>>,
    has_more: bool,
    looked: Instant,
    is_due: bool,
}

impl State {
    fn generation(&mut self, folder: &Path) -> u64 {
        self.generations.get(folder).copied().unwrap_or(0)
    }

    /// Begins a new state of a folder.
    fn renew(&mut self, folder: &Path) {
        self.folders.pop(folder);
        self.last += 1;
        self.generations.put(folder.to_path_buf(), self.last);
    }
}

impl FolderStates {
    pub(crate) fn new(store: Arc<Unveiled>) -> Arc<Self> {
        let (folders, generations) = (LruCache::new(nonzero(FOLDERS)), LruCache::new(nonzero(GENERATIONS)));
        let state = State { folders, generations, last: 0 };
        Arc::new(Self { store, state: Mutex::new(state) })
    }

    /// Returns the number of the folder's state. Checks the files first if that is due; returns `None` if the caller
    /// would have to wait for that.
    pub(crate) fn generation(&self, folder: &Path, wait: Wait) -> Option<u64> {
        if wait == Wait::Never {
            let mut state = self.state.lock();
            let is_due = |files: &Files| files.is_due || files.looked.elapsed() >= INTERVAL;
            return (!state.folders.peek(folder).is_some_and(is_due)).then(|| state.generation(folder));
        }
        self.look_again(folder, wait);
        Some(self.state.lock().generation(folder))
    }

    /// Lets the next look-up of the containers on the way to a path check their files, however short ago they were
    /// checked. A far store answers with what it last heard of them in any case.
    pub(crate) fn expire(&self, path: &Path) {
        if self.store.is_far() {
            return;
        }
        let mut state = self.state.lock();
        for folder in path.ancestors() {
            if let Some(files) = state.folders.peek_mut(folder) {
                files.is_due = true;
            }
        }
    }

    /// Returns whether the folder is still in a state. Waits for no disk and no request.
    fn is_in(&self, folder: &Path, generation: u64) -> bool {
        if !self.store.is_far() {
            self.look_again(folder, Wait::Never);
        }
        self.state.lock().generation(folder) == generation
    }

    /// Checks the files of a folder, as far as that takes no longer than `wait`.
    fn look_again(&self, folder: &Path, wait: Wait) {
        let seen: Vec<_> = {
            let mut state = self.state.lock();
            let Some(files) = state.folders.peek_mut(folder) else { return };
            if !files.is_due && files.looked.elapsed() < INTERVAL {
                return;
            }
            (files.is_due, files.looked) = (false, Instant::now());
            files.seen.iter().map(|(path, version)| (files.base.join(path), *version)).collect()
        };
        let most = if self.store.is_far() { FILES_FAR } else { FILES };
        let look = |path: &Path| self.store.stat(path, wait).map(|stat| stat.map(|stat| stat.version));
        let has_changed = seen.iter().take(most).any(|(path, known)| look(path).is_ok_and(|now| now != *known));
        if has_changed {
            self.state.lock().renew(folder);
        }
    }

    /// Records the version of a file that was read for a container in a state. `folder` is the container's path, and
    /// `base` is the folder that the file's path counts from.
    ///
    /// # Errors
    /// `Changed` if the container has a new state since, or the file had another version before.
    pub(crate) fn note(
        &self,
        (folder, base): (&Path, &Path),
        generation: u64,
        path: &Path,
        version: Option<Version>,
    ) -> Result<(), SourceError> {
        let mut state = self.state.lock();
        if state.generation(folder) != generation {
            return Err(SourceError::Changed);
        }
        if !state.folders.contains(folder) {
            let (base, seen, looked) = (base.to_path_buf(), HashMap::new(), Instant::now());
            let files = Files { base, seen, has_more: false, looked, is_due: false };
            // A folder that is no longer checked must count as changed.
            if let Some((gone, _)) = state.folders.push(folder.to_path_buf(), files) {
                state.renew(&gone);
            }
        }
        let Some(files) = state.folders.get_mut(folder) else { return Ok(()) };
        match files.seen.get(path) {
            Some(known) if *known == version => {}
            Some(_) => {
                state.renew(folder);
                return Err(SourceError::Changed);
            }
            None if files.seen.len() < FILES => {
                files.seen.insert(path.into(), version);
            }
            None => files.has_more = true,
        }
        Ok(())
    }

    /// Returns whether other files were read for a container.
    pub(crate) fn is_noted(&self, folder: &Path) -> bool {
        self.state.lock().folders.contains(folder)
    }

    /// Records that something changed at a path or below it, which may or may not have been read.
    pub(crate) fn touch(&self, path: &Path) {
        let mut state = self.state.lock();
        let mut renewed = Vec::new();
        for (folder, files) in &mut state.folders {
            if path.starts_with(&files.base) || folder.starts_with(path) {
                files.is_due = true;
                if files.has_more && path.starts_with(&files.base) {
                    renewed.push(folder.clone());
                }
            }
        }
        renewed.iter().for_each(|folder| state.renew(folder));
    }
}

/// The marker of a folder that is a container, as its source: unchanged as long as all files that were read are
/// unchanged.
pub(crate) struct Marker {
    pub(crate) file: Arc<dyn Source>,
    pub(crate) states: Arc<FolderStates>,
    pub(crate) folder: PathBuf,
    pub(crate) generation: u64,
}

impl Source for Marker {
    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.file)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        self.file.read_at(offset, buf, wait)
    }

    fn check_unchanged(&self, wait: Wait) -> Result<(), SourceError> {
        self.file.check_unchanged(wait)?;
        match self.states.is_in(&self.folder, self.generation) {
            true => Ok(()),
            false => Err(SourceError::Changed),
        }
    }
}
