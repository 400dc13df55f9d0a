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
#[derive(Debug, PartialEq, Eq)]
pub(in crate::vfs) struct ContainerId {
    /// A keyed hash of all other fields, computed once because every request looks its container up.
    pub(in crate::vfs) number: u128,
    /// Path below SOURCE, as it is shown.
    pub(in crate::vfs) path: FilePath,
    pub(in crate::vfs) format: &'static Format,
    pub(in crate::vfs) stat: Stat,
    /// State of the other files that it shows, such as a manifest's chunks; 0 if there are none.
    pub(in crate::vfs) others: u64,
    /// If the container is a folder: the file in it that makes it one.
    pub(in crate::vfs) marker: Option<Marked>,
    /// If it is a file: the number of the state of what was read of other files. A part of [`Self::others`].
    pub(in crate::vfs) generation: u64,
}

/// The file that makes a folder a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::vfs) struct Marked {
    /// Its path below the folder.
    pub(in crate::vfs) path: &'static str,
    /// The number of the state of what else was read of the folder.
    pub(in crate::vfs) generation: u64,
}

impl Hash for ContainerId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl ContainerId {
    /// Returns the identity of a file in a state, with the state of the other files that it shows.
    pub(in crate::vfs) fn new(
        key: &NumberKey,
        path: FilePath,
        format: &'static Format,
        stat: Stat,
        others: u64,
    ) -> Self {
        let [folder, name] = path.parts();
        let rights = [stat.mode, stat.uid, stat.gid].map(u32::to_le_bytes);
        let number =
            key.hash128(&[&stat.version.to_bytes(), &others.to_le_bytes(), rights.as_flattened(), folder, b"/", name]);
        Self { number, path, format, stat, others, marker: None, generation: 0 }
    }

    /// Returns the identity of a file, in a state of the other files that it names and of those that were found to be
    /// needed when it was read.
    pub(in crate::vfs) fn of_file(
        key: &NumberKey,
        path: FilePath,
        format: &'static Format,
        stat: Stat,
        (others, generation): (u64, u64),
    ) -> Self {
        Self { generation, ..Self::new(key, path, format, stat, Self::others_in(key, others, generation)) }
    }

    /// Returns the state of all other files.
    pub(in crate::vfs) fn others_in(key: &NumberKey, others: u64, generation: u64) -> u64 {
        match generation {
            0 => others,
            _ => key.hash(&[&others.to_le_bytes(), &generation.to_le_bytes()]).max(1),
        }
    }

    /// Returns the identity of a folder that is a container, in a state of its marker and of other files.
    pub(in crate::vfs) fn of_folder(
        key: &NumberKey,
        path: FilePath,
        (format, marker): (&'static Format, Marked),
        stat: Stat,
        others: u64,
    ) -> Self {
        // Never 0: such a container always shows other files.
        let others = key.hash(&[&others.to_le_bytes(), &marker.generation.to_le_bytes()]).max(1);
        Self { marker: Some(marker), ..Self::new(key, path, format, stat, others) }
    }

    /// Returns the container's number in a cache that several volumes share. It is a part of [`Self::number`], which
    /// nobody can choose.
    pub(in crate::vfs) fn number_in(&self, volume: u64) -> u64 {
        // Odd, so that each volume has another factor.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.number >> 64) as u64 ^ volume.wrapping_mul(SPREAD)
    }

    /// Returns the path of the file that is opened, with the container's own folder as its folder.
    pub(in crate::vfs) fn file(&self) -> FilePath {
        match self.marker {
            Some(marker) => FilePath::new(self.shown().into(), OsStr::new(marker.path)),
            None => self.path.clone(),
        }
    }

    /// Returns the number of the state of what was read of other files.
    pub(in crate::vfs) fn generation(&self) -> u64 {
        self.marker.map_or(self.generation, |marker| marker.generation)
    }

    /// Returns the folder in which it finds other files.
    pub(in crate::vfs) fn folder(&self) -> Arc<Path> {
        self.file().folder().clone()
    }

    /// Returns the container's path below SOURCE, for messages.
    pub(in crate::vfs) fn shown(&self) -> PathBuf {
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
            ContainerId::new(&NumberKey::new([7; 16]), path, FORMATS[0], stat, others).number
        };
        let numbers: HashSet<u128> = all.iter().map(number).collect();
        assert_eq!(numbers.len(), all.len());
        assert_eq!(number(&all[0]), number(&("a", stat(same), 0)));
    }
}
