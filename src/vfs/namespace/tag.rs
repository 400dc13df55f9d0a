//! Distinguishes states of a file's bytes. Entity tags over HTTP are made from it.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

use crate::{
    source::Wait,
    vfs::{Error, Node, Vfs},
};

/// A number of this process. States of a folder that is a container are counted from its start.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

impl Vfs {
    /// Returns a number that changes when the bytes of a file may have changed: a keyed hash of the version of the
    /// container (or the file), of the node in it, and of this program's version, because decoders of pictures may
    /// differ between two. `None` for folders, links and files that are made at each look-up.
    ///
    /// # Errors
    /// [`Error`] if the file no longer exists, or is another one.
    pub(crate) fn tag(&self, ino: u64) -> Result<Option<u128>, Error> {
        let program = env!("CARGO_PKG_VERSION").as_bytes();
        let key = self.options.number_key;
        let node = self.node(ino)?;
        Ok(match &node {
            Node::InContainer(id, node) => {
                let process = if id.marker.is_some() { *PROCESS } else { 0 };
                let parts = [&id.number.to_le_bytes()[..], &node.0.to_le_bytes(), &process.to_le_bytes(), program];
                Some(key.hash128(&[b"c", &parts.concat()]))
            }
            Node::SourceFile(path, _) => match self.source.find(path.folder(), path.name(), Wait::Always)? {
                Some((now, stat)) if now == node => Some(key.hash128(&[b"f", &stat.version.to_bytes(), program])),
                _ => return Err(Error::stale(path.to_path_buf())),
            },
            Node::SourceFolder(_) | Node::SourceLink(_) | Node::ControlFolder | Node::ControlFile(_) => None,
        })
    }

    /// Returns whether the path of a node inside a container still leads to it: the container's file is at its path, in
    /// the same state. Waits for nothing. Returns `false` if it would have to wait, and for nodes outside of
    /// containers.
    pub(crate) fn is_still_there(&self, ino: u64) -> bool {
        match self.inodes.get(ino) {
            // A container that joins other files needs a full look-up.
            Some(Node::InContainer(id, _)) if id.others == 0 => {
                let stat = self.source.store.stat(&id.path.to_path_buf(), Wait::Never);
                stat.is_ok_and(|stat| stat == Some(id.stat))
            }
            _ => false,
        }
    }
}
