//! Finds files beside a container or below its folder, without leaving the folder, if all readers of the container may
//! read them.

use std::{
    collections::HashMap,
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    source::{Source, SourceError, Wait},
    store::{FilePath, Kind, Stat, unveiled::Unveiled},
    tree::{self, NotThere, Reach},
};

/// Why a file is not opened.
const LINK: &str = "a symbolic link is on the way to it";
pub(crate) const NOWHERE: &str = "it is not there";
pub(crate) const NO_FILE: &str = "not an ordinary file";

/// For how long a folder that may be entered is not looked at again.
const WAY_AGE: Duration = Duration::from_millis(250);

/// Most folders of one container of which that is remembered.
const WAYS: usize = 1024;

/// Finds files in the folder of one container.
pub(crate) struct Beside<'a> {
    pub(crate) store: &'a Unveiled,
    pub(crate) path: &'a FilePath,
    pub(crate) stat: &'a Stat,
}

impl Beside<'_> {
    /// Returns the current path and attributes of a file.
    pub(crate) fn find(&self, path: &str, reach: Reach) -> Result<(FilePath, Stat), NotThere> {
        let folder = self.path.folder();
        let path = match reach {
            Reach::Stored => self.stored(path)?,
            Reach::Shown => folder.join(path),
        };
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(NotThere::Missing(NOWHERE));
        };
        let Some(stat) = self.store.stat(&path, Wait::Always).map_err(SourceError::from)? else {
            return Err(NotThere::Missing(if self.has_link(&path) { LINK } else { NOWHERE }));
        };
        match stat.kind {
            Kind::File => {}
            Kind::Link => return Err(NotThere::Missing(LINK)),
            Kind::Folder | Kind::Other => return Err(NotThere::Missing(NO_FILE)),
        }
        if !may_read_both(self.store, self.stat, &stat) {
            return Err(NotThere::NotReadable);
        }
        Ok((FilePath::new(folder.into(), name), stat))
    }

    /// Returns the path of a file that lies in the folder itself, without links on the way.
    fn stored(&self, path: &str) -> Result<PathBuf, NotThere> {
        let below: PathBuf = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let folder = self.path.folder();
        let real = match self.store.without_links(&folder.join(below)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(NotThere::Missing(NOWHERE)),
            real => real.map_err(SourceError::from)?,
        };
        let own = self.store.without_links(folder).map_err(SourceError::from)?;
        real.filter(|real| own.is_some_and(|own| real.starts_with(own))).ok_or(NotThere::Missing(LINK))
    }

    /// Returns whether a folder on the way to a path is a link.
    fn has_link(&self, path: &Path) -> bool {
        let is_link = |folder: &Path| {
            self.store.stat(folder, Wait::Always).is_ok_and(|at| at.is_some_and(|at| at.kind == Kind::Link))
        };
        path.ancestors().skip(1).any(is_link)
    }
}

impl tree::Beside for Beside<'_> {
    fn open(&self, path: &str, reach: Reach) -> Result<Arc<dyn Source>, NotThere> {
        let (path, stat) = self.find(path, reach)?;
        let file = self.store.open(&path.to_path_buf(), Wait::Always).map_err(SourceError::from)?;
        match file.version() == stat.version {
            true => Ok(file),
            false => Err(SourceError::Changed.into()),
        }
    }
}

/// Checks that all readers of a container may enter a folder.
fn check_folder(store: &Unveiled, own: &Stat, folder: &Path) -> Result<(), NotThere> {
    if !store.is_for_others {
        return Ok(());
    }
    let stat = store.stat(folder, Wait::Always).map_err(SourceError::from)?;
    let Some(stat) = stat else { return Err(SourceError::Changed.into()) };
    let needed = if (own.uid, own.gid) == (stat.uid, stat.gid) { own.mode & 0o444 } else { 0o444 };
    match needed >> 2 & !stat.mode {
        0 => Ok(()),
        _ => Err(NotThere::NotReadable),
    }
}

/// The folders below a container that all its readers may enter, each with the time when that was found. Thousands of
/// files in one folder take one look at it a few times a second.
#[derive(Debug, Default)]
pub(crate) struct Ways(Mutex<HashMap<Box<Path>, Instant>>);

impl Ways {
    /// Checks that all readers of a container may enter the folders on the way to a path below `base`.
    ///
    /// # Errors
    /// Why that is not so.
    pub(crate) fn check(&self, store: &Unveiled, own: &Stat, base: &Path, path: &Path) -> Result<(), NotThere> {
        // The nearest first.
        for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            if self.0.lock().get(folder).is_some_and(|found| found.elapsed() < WAY_AGE) {
                continue;
            }
            let now = Instant::now();
            check_folder(store, own, &base.join(folder))?;
            let mut known = self.0.lock();
            if known.len() >= WAYS {
                known.clear();
            }
            known.insert(folder.into(), now);
        }
        Ok(())
    }
}

/// Returns whether all users who may read the first file may read the second.
pub(crate) fn may_read_both(store: &Unveiled, first: &Stat, second: &Stat) -> bool {
    if !store.is_for_others {
        return true;
    }
    let missing = if (first.uid, first.gid) == (second.uid, second.gid) { first.mode } else { 0o444 };
    missing & 0o444 & !second.mode == 0
}
