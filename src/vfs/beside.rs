//! Finds files beside a container or below its folder, without leaving the folder, if all readers of the container may
//! read them.

use std::{
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use crate::{
    source::{Source, SourceError, Wait},
    store::{FilePath, Kind, Stat, Store},
    tree::{self, NotThere, Reach},
};

/// Why a file is not opened.
const LINK: &str = "a symbolic link is on the way to it";
pub(super) const NOWHERE: &str = "it is not there";
pub(super) const NO_FILE: &str = "not an ordinary file";

/// Finds files in the folder of one container.
pub(super) struct Beside<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) path: &'a FilePath,
    pub(super) stat: &'a Stat,
}

impl Beside<'_> {
    /// Returns the current path and attributes of a file.
    pub(super) fn find(&self, path: &str, reach: Reach) -> Result<(FilePath, Stat), NotThere> {
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
        if !may_read_both(self.stat, &stat) {
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
            true => Ok(file.into_source()),
            false => Err(SourceError::Changed.into()),
        }
    }
}

/// Checks that all readers of a container may enter the folders on the way to a path below its folder.
pub(super) fn check_way(store: &dyn Store, own: &Stat, base: &Path, path: &Path) -> Result<(), NotThere> {
    for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        let stat = store.stat(&base.join(folder), Wait::Always).map_err(SourceError::from)?;
        let Some(stat) = stat else { return Err(SourceError::Changed.into()) };
        let needed = if (own.uid, own.gid) == (stat.uid, stat.gid) { own.mode & 0o444 } else { 0o444 };
        if needed >> 2 & !stat.mode != 0 {
            return Err(NotThere::NotReadable);
        }
    }
    Ok(())
}

/// Returns whether all users who may read the first file may read the second.
pub(super) fn may_read_both(first: &Stat, second: &Stat) -> bool {
    let missing = if (first.uid, first.gid) == (second.uid, second.gid) { first.mode } else { 0o444 };
    missing & 0o444 & !second.mode == 0
}
