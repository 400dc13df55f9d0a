//! Which mounted filesystem a request may have to wait for.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::{mounts::OfTable, pool::Place};

/// Which mounted filesystem a path is on, by the kernel's table; no filesystem is asked.
pub(super) struct Filesystems {
    source: PathBuf,
    mounts: Mutex<OfTable<Mounts>>,
}

struct Mounts {
    /// Mount points, longest first, with the numbers of their mounts.
    all: Vec<(PathBuf, u64)>,
    /// Whether any of them is below SOURCE.
    any_below: bool,
}

impl Filesystems {
    pub(super) fn new(source: &Path) -> Self {
        Self { source: source.to_owned(), mounts: Mutex::new(OfTable::new()) }
    }

    /// Returns where a request that touches a path may have to wait. Does not look at the path.
    pub(super) fn place(&self, path: &Path) -> Place {
        let mut mounts = self.mounts.lock();
        let table = mounts.now(|table| Mounts::new(table.into_iter().map(|mount| (mount.at, mount.id)), &self.source));
        Place::Filesystem(table.map_or(0, |table| table.of(path, &self.source)))
    }
}

impl Mounts {
    fn new(table: impl Iterator<Item = (PathBuf, u64)>, source: &Path) -> Self {
        let mut all: Vec<_> = table.collect();
        // Of several mounts at one place the last is on top.
        all.reverse();
        all.sort_by_key(|(at, _)| std::cmp::Reverse(at.as_os_str().len()));
        let any_below = all.iter().any(|(at, _)| *at != source && at.starts_with(source));
        Self { all, any_below }
    }

    fn of(&self, path: &Path, source: &Path) -> u64 {
        let below = path.starts_with(source);
        if below && !self.any_below {
            return 0;
        }
        let found = self.all.iter().find(|(at, _)| path.starts_with(at));
        // Paths on the filesystem of SOURCE itself, above or below a mount.
        found.filter(|(at, _)| !(below && source.starts_with(at))).map_or(0, |(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_on_the_innermost_mount() {
        let source = Path::new("/srv/data");
        let table = [("/", 1), ("/srv", 2), ("/mnt", 3), ("/srv/data/far", 8), ("/srv/data/far/deep", 5)];
        let table = table.into_iter().chain([("/srv/data/far", 4)]);
        let mounts = Mounts::new(table.map(|(at, id)| (PathBuf::from(at), id)), source);
        let of = |path: &str| mounts.of(Path::new(path), source);
        assert_eq!(of("/srv/data/near/file"), 0);
        assert_eq!(of("/srv/data/far"), 4);
        assert_eq!(of("/srv/data/far/deep/x"), 5);
        assert_eq!(of("/srv/data/farther"), 0);
        assert_eq!(of("/mnt/elsewhere"), 3);
        let near = Mounts::new([(PathBuf::from("/srv/data"), 1)].into_iter(), source);
        assert_eq!((near.of(Path::new("/srv/data/far"), source), near.any_below), (0, false));
    }
}
