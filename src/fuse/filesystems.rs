//! Which mounted filesystem a request may have to wait for.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::{mounts, pool::Place};

/// Which mounted filesystem a path is on, by the kernel's table; no filesystem is asked.
pub(super) struct Filesystems(Mutex<Table>);

struct Table {
    source: PathBuf,
    watch: Option<mounts::TableWatch>,
    /// Mount points, longest first, with the numbers of their mounts.
    all: Vec<(PathBuf, u64)>,
    /// Whether any of them is below SOURCE.
    any_below: bool,
}

impl Filesystems {
    pub(super) fn new(source: &Path) -> Self {
        Self(Mutex::new(Table::new(source)))
    }

    /// Returns where a request that touches a path may have to wait. Does not look at the path.
    pub(super) fn place(&self, path: &Path) -> Place {
        Place::Filesystem(self.0.lock().of(path))
    }
}

impl Table {
    fn new(source: &Path) -> Self {
        let mut this = Self {
            source: source.to_owned(),
            watch: mounts::TableWatch::new().ok(),
            all: Vec::new(),
            any_below: false,
        };
        this.read();
        this
    }

    fn read(&mut self) {
        let table = mounts::all().unwrap_or_default();
        self.all = table.into_iter().map(|mount| (mount.at, mount.id)).collect();
        // Of several mounts at one place the last is on top.
        self.all.reverse();
        self.all.sort_by_key(|(at, _)| std::cmp::Reverse(at.as_os_str().len()));
        self.any_below = self.all.iter().any(|(at, _)| *at != self.source && at.starts_with(&self.source));
    }

    fn of(&mut self, path: &Path) -> u64 {
        if self.watch.as_ref().is_some_and(mounts::TableWatch::has_changed) {
            self.read();
        }
        let below = path.starts_with(&self.source);
        if below && !self.any_below {
            return 0;
        }
        let found = self.all.iter().find(|(at, _)| path.starts_with(at));
        // Paths on the filesystem of SOURCE itself, above or below a mount.
        found.filter(|(at, _)| !(below && self.source.starts_with(at))).map_or(0, |(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_on_the_innermost_mount() {
        let mut filesystems = Table::new(Path::new("/srv/data"));
        filesystems.watch = None;
        let table = [("/srv/data/far/deep", 5), ("/srv/data/far", 4), ("/mnt", 3), ("/srv", 2), ("/", 1)];
        filesystems.all = table.map(|(at, id)| (PathBuf::from(at), id)).to_vec();
        filesystems.any_below = true;
        let of = |filesystems: &mut Table, path: &str| filesystems.of(Path::new(path));
        assert_eq!(of(&mut filesystems, "/srv/data/near/file"), 0);
        assert_eq!(of(&mut filesystems, "/srv/data/far"), 4);
        assert_eq!(of(&mut filesystems, "/srv/data/far/deep/x"), 5);
        assert_eq!(of(&mut filesystems, "/srv/data/farther"), 0);
        assert_eq!(of(&mut filesystems, "/mnt/elsewhere"), 3);
    }
}
