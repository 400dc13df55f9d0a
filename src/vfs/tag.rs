//! What tells one state of a file's bytes from another: entity tags over HTTP are made of it.

use super::{Error, Node, Vfs, source_tree::SourceEntry};

impl Vfs {
    /// A number that changes when the bytes which a file shows may have changed: a keyed hash of the container's (or the
    /// file's) version, of the node in it, and of this program's version, for decoders of pictures may differ between
    /// two. `None` for folders, links and what is made anew at each look.
    ///
    /// # Errors
    /// [`Error`] when the file is not there any more, or is another one.
    pub(crate) fn tag(&self, ino: u64) -> Result<Option<u128>, Error> {
        let program = env!("CARGO_PKG_VERSION").as_bytes();
        let key = self.inodes.key();
        Ok(match self.node(ino)? {
            Node::InContainer(id, node) => {
                Some(key.hash128(&[b"c", &id.number.to_le_bytes(), &node.0.to_le_bytes(), program]))
            }
            Node::SourceFile(path, file) => match self.source.find(path.folder(), path.name())? {
                Some(SourceEntry::File(_, stat)) if stat.version.file() == file => {
                    Some(key.hash128(&[b"f", &stat.version.to_bytes(), program]))
                }
                _ => return Err(Error::stale(path.to_path_buf())),
            },
            Node::SourceFolder(_) | Node::SourceLink(_) | Node::ControlFolder | Node::ControlFile(_) => None,
        })
    }

    /// Whether the path of a node inside a container still leads to it: the container's file stands where it stood, in
    /// the same state. Waits for nothing, and is false where it would have to, and for what lies in no container.
    pub(crate) fn is_still_there(&self, ino: u64) -> bool {
        match self.inodes.get(ino) {
            // What joins other files is looked at as a whole.
            Some(Node::InContainer(id, _)) if id.others == 0 => {
                self.source.store().stat_at_once(&id.path) == Some(id.stat)
            }
            _ => false,
        }
    }
}
