//! What the kernel's inode numbers stand for.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::container_id::ContainerId;
use crate::{
    source::Wait,
    store::{FileId, FilePath, unveiled},
    tree::{self, NodeId},
    vfs::{Error, ROOT, Vfs, changes::Stale, open::detection::Entered, report::control},
};

/// Identity of a node. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// A folder of SOURCE, by its path below it.
    SourceFolder(Arc<Path>),
    /// A link of SOURCE, by its path.
    SourceLink(Arc<Path>),
    /// An ordinary file of SOURCE.
    SourceFile(Arc<FilePath>, FileId),
    /// A node of a container.
    InContainer(Arc<ContainerId>, NodeId),
    /// `.shardfs`.
    ControlFolder,
    /// One of the files in it, as a snapshot of its look-up.
    ControlFile(Arc<control::Snapshot>),
}

impl Vfs {
    /// Returns the node of an inode number.
    ///
    /// # Errors
    /// [`Error`] for a number that the kernel has forgotten.
    pub(crate) fn node(&self, ino: u64) -> Result<Node, Error> {
        if ino == ROOT {
            return self.root_now();
        }
        self.inodes.get(ino).ok_or_else(|| Error::stale(PathBuf::new()))
    }

    /// Does the same as [`Self::node`], for a caller that waits for no more than `wait`: SOURCE itself may have to be
    /// looked at.
    ///
    /// # Errors
    /// As [`Self::node`], and `WouldBlock`.
    pub(crate) fn node_with(&self, ino: u64, wait: Wait) -> Result<Node, Error> {
        if ino == ROOT && wait == Wait::Never && self.alone.is_some() {
            return Err(Error::would_block(Wait::Disk));
        }
        self.node(ino)
    }

    /// Returns the node whose names a folder shows: the root of a container if the folder proves to be one when it is
    /// entered, and the folder itself otherwise.
    ///
    /// # Errors
    /// [`Error`] if it cannot be found out, and `WouldBlock`.
    pub(crate) fn entered(&self, node: Node, entered: Entered, wait: Wait) -> Result<Node, Error> {
        let Node::SourceFolder(path) = &node else { return Ok(node) };
        let Some((id, is_new)) = self.source.enter(path, entered, wait)? else { return Ok(node) };
        if is_new {
            // The kernel may have what it listed before the marker came.
            self.invalidations.push(Stale::Node(self.ino(&node)));
        }
        Ok(Node::InContainer(id, tree::ROOT))
    }

    /// Returns the inode number of a node.
    pub(crate) fn ino(&self, node: &Node) -> u64 {
        if *node == *self.root.read() { ROOT } else { self.inodes.number(node) }
    }

    /// Returns the node of SOURCE now. A container may have been replaced by another one.
    fn root_now(&self) -> Result<Node, Error> {
        let Some(alone) = &self.alone else { return Ok(self.root.read().clone()) };
        match self.source.find(alone.folder(), alone.name(), Wait::Always)? {
            Some((node @ Node::InContainer(..), _)) => {
                if *self.root.read() != node {
                    *self.root.write() = node.clone();
                }
                Ok(node)
            }
            // It does not exist or is being written. It may come back.
            _ => Err(Error::stale(alone.to_path_buf())),
        }
    }

    /// Returns the inode number of the folder that contains a node.
    pub(crate) fn parent(&self, ino: u64, node: &Node, wait: Wait) -> Result<u64, Error> {
        if ino == ROOT {
            return Ok(ROOT);
        }
        Ok(match node {
            Node::SourceFolder(path) | Node::SourceLink(path) => match unveiled::container_of(path) {
                // `.source` is in the root of the container.
                Some(folder) => {
                    let found = self.source.find_path(folder)?.ok_or_else(|| Error::stale(path.to_path_buf()))?;
                    self.ino(&found.0)
                }
                None => self.ino(&Node::SourceFolder(path.parent().unwrap_or(Path::new("")).into())),
            },
            Node::SourceFile(path, _) => self.ino(&Node::SourceFolder(path.folder().clone())),
            Node::InContainer(id, tree::ROOT) => self.ino(&Node::SourceFolder(id.path.folder().clone())),
            Node::InContainer(id, child) => {
                let opened = self.opened(id, wait)?;
                let parent = opened.parent(*child, wait).map_err(|fault| self.fault(&opened, *child, fault, wait))?;
                self.ino(&Node::InContainer(id.clone(), parent))
            }
            Node::ControlFolder | Node::ControlFile(_) => ROOT,
        })
    }

    /// Returns a node's path below SOURCE, for messages.
    pub(crate) fn place(&self, node: &Node) -> PathBuf {
        unveiled::shown(match node {
            Node::SourceFolder(path) | Node::SourceLink(path) => path.to_path_buf(),
            Node::SourceFile(path, _) => path.to_path_buf(),
            Node::InContainer(id, _) => id.shown(),
            Node::ControlFolder | Node::ControlFile(_) => control::FOLDER.into(),
        })
    }
}
