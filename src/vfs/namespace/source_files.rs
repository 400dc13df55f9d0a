//! The bytes of ordinary files of SOURCE, as they are now.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;

use crate::{
    cache::nonzero,
    limits,
    source::Wait,
    store::{File, FileId, FilePath, Stat, unveiled::Unveiled},
    vfs::{Error, open::containers::descriptors, report::problems::Problems},
    view::Bytes,
};

type Key = (Arc<FilePath>, FileId);

/// A file, and when it was last read.
type Open = (Arc<dyn File>, Instant);

/// Ordinary files, kept open for a while so that one that is replaced can be read to its end.
pub(crate) struct SourceFiles {
    store: Arc<Unveiled>,
    problems: Arc<Problems>,
    open: Mutex<LruCache<Key, Open>>,
}

impl SourceFiles {
    pub(crate) fn new(store: Arc<Unveiled>, problems: Arc<Problems>) -> Self {
        Self { store, problems, open: Mutex::new(LruCache::new(nonzero(limits::OPEN_FILES.min(descriptors())))) }
    }

    /// Returns bytes of a file from an offset on; fewer than `length` at its end.
    ///
    /// # Errors
    /// [`Error`] if it cannot be opened or read, or if another file has taken its place and it is no longer open.
    pub(crate) fn read(&self, path: &Arc<FilePath>, file: FileId, offset: u64, length: u64) -> Result<Bytes, Error> {
        let file = self.open(path, file)?;
        let range = offset.min(file.len())..offset.saturating_add(length).min(file.len());
        if let Some((bytes, part)) = file.shared(&range) {
            return Ok(Bytes::Shared(bytes, part));
        }
        if let Some(mapped) = file.mapped(range, Wait::Always) {
            return Ok(Bytes::Mapped(mapped));
        }
        self.copy(&*file, path, offset, length).map(Bytes::from)
    }

    /// Returns the same in memory of its own, never lent from a map.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_copied(
        &self,
        path: &Arc<FilePath>,
        file: FileId,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, Error> {
        self.copy(&*self.open(path, file)?, path, offset, length)
    }

    fn copy(&self, file: &dyn File, path: &FilePath, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let bytes = file.stat_now().and_then(|now| {
            let length = length.min(now.size.saturating_sub(offset));
            file.read_now(offset, usize::try_from(length).unwrap_or(usize::MAX))
        });
        bytes.map_err(|e| self.problems.failed(&e, "read", path.to_path_buf()))
    }

    /// Returns a file for the kernel to read by itself.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn descriptor(&self, path: &Arc<FilePath>, file: FileId) -> Result<fs::File, Error> {
        self.open(path, file)?.descriptor().map_err(|e| self.problems.failed(&e, "open", path.to_path_buf()))
    }

    /// Returns the attributes of an open file, even if its name is gone.
    ///
    /// # Errors
    /// [`Error`] if it is not open.
    pub(crate) fn stat(&self, path: &Arc<FilePath>, file: FileId) -> Result<Stat, Error> {
        let open = self.open.lock().get(&(path.clone(), file)).cloned();
        open.and_then(|(file, _)| file.stat_now().ok()).ok_or_else(|| Error::stale(path.to_path_buf()))
    }

    /// Closes files that have lost their last name, so that their space is given back to the disk; and those that keep a
    /// filesystem below SOURCE from being unmounted and were not read for `idle`.
    pub(crate) fn sweep(&self, idle: Duration) {
        let open: Vec<(Key, Open)> = self.open.lock().iter().map(|(key, open)| (key.clone(), open.clone())).collect();
        let is_idle = |(key, (_, used)): &(Key, Open)| used.elapsed() >= idle && self.store.is_elsewhere(key.1);
        // First of all, for what follows waits where a disk does not answer.
        let (idle, open): (Vec<_>, Vec<_>) = open.into_iter().partition(is_idle);
        for (key, _) in idle {
            self.open.lock().pop(&key);
        }
        for (key, (file, _)) in open {
            if file.is_deleted() {
                self.open.lock().pop(&key);
            }
        }
    }

    fn open(&self, path: &Arc<FilePath>, file: FileId) -> Result<Arc<dyn File>, Error> {
        let key = (path.clone(), file);
        let known = self.open.lock().get_mut(&key).map(|(file, used)| {
            *used = Instant::now();
            file.clone()
        });
        if let Some(file) = known.as_ref().filter(|file| file.check_unchanged(Wait::Always).is_ok()) {
            return Ok(file.clone());
        }
        let opened = match self.store.open(&path.to_path_buf(), Wait::Always) {
            Ok(opened) if opened.version().file() == file => opened,
            // Another file is there now. This one can be read as long as it is open.
            Ok(_) => return known.ok_or_else(|| Error::stale(path.to_path_buf())),
            Err(e) => return known.ok_or_else(|| self.problems.failed_to_open(&e, "open", path.to_path_buf())),
        };
        self.open.lock().put(key, (opened.clone(), Instant::now()));
        Ok(opened)
    }
}
