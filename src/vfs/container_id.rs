//! One state of one container file, which is what the kernel's inode numbers and the caches are made of.

use std::{
    hash::{Hash, Hasher},
    path::PathBuf,
};

use super::inodes::NumberKey;
use crate::{
    store::{FilePath, Stat},
    tree::Format,
};

/// One state of one container file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContainerId {
    /// A keyed hash of all other fields, computed once because every request looks its container up.
    pub(super) number: u128,
    /// Path below SOURCE, as it is shown.
    pub(super) path: FilePath,
    pub(super) format: &'static Format,
    pub(super) stat: Stat,
    /// State of the other files that it shows, such as a manifest's chunks; 0 if there are none.
    pub(super) others: u64,
}

impl Hash for ContainerId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl ContainerId {
    /// Returns the identity of a file in a state, with the state of the other files that it shows.
    pub(super) fn new(key: &NumberKey, path: FilePath, format: &'static Format, stat: Stat, others: u64) -> Self {
        let [folder, name] = path.parts();
        let rights = [stat.mode, stat.uid, stat.gid].map(u32::to_le_bytes);
        let number =
            key.hash128(&[&stat.version.to_bytes(), &others.to_le_bytes(), rights.as_flattened(), folder, b"/", name]);
        Self { number, path, format, stat, others }
    }

    /// Returns the container's path below SOURCE, for messages.
    pub(super) fn shown(&self) -> PathBuf {
        self.path.to_path_buf()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, ffi::OsStr, path::Path, sync::Arc};

    use super::*;
    use crate::{
        store::{Kind, Version},
        tree::FORMATS,
    };

    /// Even when the kernel no longer holds the first node: files in memory are found by these numbers as long as they
    /// are kept.
    #[test]
    fn states_that_differ_in_anything_have_different_numbers() {
        let version = |dev, ino, size, mtime, ctime| Version::local(dev, ino, size, (mtime, 5), (ctime, 5));
        let same = version(1, 2, 3, 4, 6);
        let versions = [
            same,
            version(9, 2, 3, 4, 6),
            version(1, 9, 3, 4, 6),
            version(1, 2, 9, 4, 6),
            version(1, 2, 3, 9, 6),
            version(1, 2, 3, 4, 9),
            Version::local(1, 2, 3, (4, 9), (6, 5)),
            Version::local(1, 2, 3, (4, 5), (6, 9)),
        ];
        let stat = |version| Stat {
            kind: Kind::File,
            size: 3,
            mtime: (4, 5),
            mode: 0o644,
            uid: 0,
            gid: 0,
            via_link: false,
            version,
        };
        let mut all: Vec<(&str, Stat, u64)> = versions.iter().map(|&version| ("a", stat(version), 0)).collect();
        all.extend([("b", stat(same), 0), ("a", stat(same), 1), ("a", Stat { mode: 0, ..stat(same) }, 0)]);
        all.extend([("a", Stat { uid: 1, ..stat(same) }, 0), ("a", Stat { gid: 1, ..stat(same) }, 0)]);
        let number = |&(name, stat, others): &(&str, Stat, u64)| {
            let path = FilePath::new(Arc::from(Path::new("folder")), OsStr::new(name));
            ContainerId::new(&NumberKey::new([7; 16]), path, FORMATS[0], stat, others).number
        };
        let numbers: HashSet<u128> = all.iter().map(number).collect();
        assert_eq!(numbers.len(), all.len());
        assert_eq!(number(&all[0]), number(&("a", stat(same), 0)));
    }
}
