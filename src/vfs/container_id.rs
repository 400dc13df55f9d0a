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
    /// A keyed hash of everything else here, made once: every request looks its container up.
    pub(super) number: u128,
    /// Path below SOURCE, as it is shown.
    pub(super) path: FilePath,
    pub(super) format: &'static Format,
    pub(super) stat: Stat,
    /// The state of the other files that it shows: of a manifest's chunks. 0 where there are none.
    pub(super) others: u64,
}

impl Hash for ContainerId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl ContainerId {
    /// A file in a state, with the state of the other files that it shows.
    pub(super) fn new(key: &NumberKey, path: FilePath, format: &'static Format, stat: Stat, others: u64) -> Self {
        let [folder, name] = path.parts();
        let rights = [stat.mode, stat.uid, stat.gid].map(u32::to_le_bytes);
        let number =
            key.hash128(&[&stat.version.to_bytes(), &others.to_le_bytes(), rights.as_flattened(), folder, b"/", name]);
        Self { number, path, format, stat, others }
    }

    /// The container's path below SOURCE, for messages.
    pub(super) fn shown(&self) -> PathBuf {
        self.path.to_path_buf()
    }
}
