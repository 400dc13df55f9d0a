//! What the adapter asks to decide where a request runs.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use crate::{
    store::unveiled,
    vfs::{Node, Problem, ROOT, Vfs, report::control},
};

impl Vfs {
    /// The file that an operation on a node, or on a name in it, looks at. Nothing is asked for that; a link on the way
    /// counts for where it stands.
    pub(crate) fn path_on_disk(&self, ino: u64, name: Option<&OsStr>) -> PathBuf {
        let below = match self.inodes.get(ino) {
            Some(Node::SourceFolder(path) | Node::SourceLink(path)) => path.to_path_buf(),
            Some(Node::SourceFile(path, _)) => path.to_path_buf(),
            Some(Node::InContainer(id, _)) => id.path.to_path_buf(),
            Some(Node::ControlFolder | Node::ControlFile(_)) | None => PathBuf::new(),
        };
        let mut path = self.full(&below);
        path.extend(name.filter(|_| self.alone.is_none()));
        path
    }

    /// Where a path below SOURCE is on the host.
    pub(crate) fn full(&self, path: &Path) -> PathBuf {
        let folder = if self.alone.is_some() { self.top.parent().unwrap_or(Path::new("/")) } else { &self.top };
        folder.join(unveiled::stored(path))
    }

    /// Whether this name is answered from memory, whatever its folder lies on.
    pub(crate) fn is_control(&self, parent: u64, name: &OsStr) -> bool {
        parent == ROOT && name == control::FOLDER
    }

    /// Notes that the thread that notifies the kernel of changes does not answer, or does again.
    pub(crate) fn note_notifier(&self, is_lost: bool) {
        if is_lost {
            let message = "the kernel is no longer notified of changes of SOURCE at once, because the thread that does \
                           so does not answer; report it";
            self.problems.note(Problem::of(PathBuf::new(), message.into()));
        } else {
            log::warn!("the kernel is notified of changes of SOURCE again");
        }
    }
}
