//! One state of one container file, which is what the kernel's inode numbers and the caches are made of.

use std::{
    ffi::OsStr,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::number_key::NumberKey;
use crate::{
    store::{FilePath, Stat},
    tree::Format,
};

/// One state of one container file.
#[derive(Debug, Clone)]
pub(crate) struct ContainerId {
    /// A keyed hash of all other fields but the format, computed once because every request looks its container up.
    pub(crate) number: u128,
    /// Path below SOURCE, as it is shown.
    pub(crate) path: FilePath,
    /// Until the file is looked into, the format that its name says. It tells no containers apart: a file in one state
    /// has one format.
    pub(crate) format: &'static Format,
    pub(crate) stat: Stat,
    /// State of the other files that it shows, such as a manifest's chunks; 0 if there are none.
    pub(crate) others: u64,
    /// If the container is a folder: the path below it of the file that makes it one.
    pub(crate) marker: Option<&'static str>,
    /// The number of the state of what was read of other files. A part of [`Self::others`].
    pub(crate) generation: u64,
}

impl PartialEq for ContainerId {
    fn eq(&self, other: &Self) -> bool {
        let parts = |id: &Self| (id.number, id.stat, id.others, id.marker, id.generation);
        parts(self) == parts(other) && self.path == other.path
    }
}

impl Eq for ContainerId {}

impl Hash for ContainerId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl ContainerId {
    /// Returns the identity of a file, or of a folder with its marker, in a state; and in a state of the other files that it
    /// names and of those that were found to be needed when it was read (`others`, `generation`).
    pub(crate) fn new(
        key: &NumberKey,
        path: FilePath,
        (format, marker): (&'static Format, Option<&'static str>),
        stat: Stat,
        (others, generation): (u64, u64),
    ) -> Self {
        let others = Self::others_in(key, others, generation, marker.is_some());
        let [folder, name] = path.parts();
        let rights = [stat.mode, stat.uid, stat.gid].map(u32::to_le_bytes);
        let number =
            key.hash128(&[&stat.version.to_bytes(), &others.to_le_bytes(), rights.as_flattened(), folder, b"/", name]);
        Self { number, path, format, stat, others, marker, generation }
    }

    /// Returns the state of all other files. Never 0 for a folder, which always shows other files.
    pub(crate) fn others_in(key: &NumberKey, others: u64, generation: u64, is_folder: bool) -> u64 {
        match generation {
            0 if !is_folder => others,
            _ => key.hash(&[&others.to_le_bytes(), &generation.to_le_bytes()]).max(1),
        }
    }

    /// Returns the container's number in a cache that several volumes share. It is a part of [`Self::number`], which
    /// nobody can choose.
    pub(crate) fn number_in(&self, volume: u64) -> u64 {
        // Odd, so that each volume has another factor.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.number >> 64) as u64 ^ volume.wrapping_mul(SPREAD)
    }

    /// Returns the path of the file that is opened, with the container's own folder as its folder.
    pub(crate) fn file(&self) -> FilePath {
        match self.marker {
            Some(marker) => FilePath::new(self.shown().into(), OsStr::new(marker)),
            None => self.path.clone(),
        }
    }

    /// Returns the folder in which it finds other files.
    pub(crate) fn folder(&self) -> Arc<Path> {
        self.file().folder().clone()
    }

    /// Returns the container's path below SOURCE, for messages.
    pub(crate) fn shown(&self) -> PathBuf {
        self.path.to_path_buf()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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
            ContainerId::new(&NumberKey::new([7; 16]), path, (FORMATS[0], None), stat, (others, 0)).number
        };
        let numbers: HashSet<u128> = all.iter().map(number).collect();
        assert_eq!(numbers.len(), all.len());
        assert_eq!(number(&all[0]), number(&("a", stat(same), 0)));
    }
}
