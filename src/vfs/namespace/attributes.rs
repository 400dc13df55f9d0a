//! What `stat` says of a node, and for how long the kernel may trust it.

use crate::{
    source::Wait,
    store::Stat,
    tree::{self, NodeId, NodeKind},
    vfs::{
        Error, Node, Options, Vfs,
        changes::Stale,
        open::opened::Opened,
        report::{control, slow::Operation},
    },
};

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// A folder, which may be a container.
    Folder,
    /// A file.
    File,
    /// A symbolic link that is not followed.
    Link,
}

/// How long a name and its attributes may be trusted without asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// Not at all: control files are new at each look-up.
    None,
    /// As long as SOURCE is trusted: the name may come to mean something else while mounted.
    Source,
    /// As long as a container stays in one state, whose end is announced.
    Container,
}

/// What `stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u16,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time: seconds and nanoseconds. The other times are the same.
    pub mtime: (i64, u32),
    /// How long the name and these attributes may be trusted.
    pub ttl: Ttl,
}

impl Vfs {
    /// A node's attributes.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened or has changed.
    pub fn attr(&self, ino: u64) -> Result<Attr, Error> {
        self.attr_with(ino, Wait::Always)
    }

    /// Does the same as [`Self::attr`], for a caller that waits for no more than `wait`.
    ///
    /// # Errors
    /// As [`Self::attr`], and one of which [`Error::is_would_block`] is true.
    pub fn attr_with(&self, ino: u64, wait: Wait) -> Result<Attr, Error> {
        let _timer = self.time_operation(Operation::Stat, ino, None);
        self.attr_of(&self.node_with(ino, wait)?, wait)
    }

    pub(crate) fn attr_of(&self, node: &Node, wait: Wait) -> Result<Attr, Error> {
        match node {
            Node::SourceFolder(_) | Node::SourceLink(_) | Node::SourceFile(..) | Node::InContainer(_, tree::ROOT)
                if wait == Wait::Never =>
            {
                Err(Error::would_block(Wait::Disk))
            }
            Node::InContainer(id, tree::ROOT) => {
                // The attributes of a container's folder are known without opening it, so listing a folder opens none.
                match self.source.find(id.path.folder(), id.path.name(), Wait::Always)? {
                    Some((now, stat)) if now == *node => Ok(self.attr_at(node, &stat)),
                    _ => Err(Error::stale(id.shown())),
                }
            }
            Node::InContainer(id, child) => self.attr_inside(&*self.opened(id, wait)?, *child, wait),
            Node::SourceFolder(path) | Node::SourceLink(path) => match self.source.find_path(path)? {
                Some((now, stat)) if now == *node => Ok(self.attr_at(node, &stat)),
                // It was looked up before it was entered, and then proved to be a container.
                Some((Node::InContainer(id, _), stat))
                    if matches!(node, Node::SourceFolder(_))
                        && id.marker.is_some()
                        && self.source.store.detects_by_name() =>
                {
                    Ok(self.attr_at(node, &stat))
                }
                // The path is something else now, or does not exist.
                _ => Err(Error::stale(path.to_path_buf())),
            },
            Node::SourceFile(path, file) => {
                let stat = match self.source.find(path.folder(), path.name(), Wait::Always)? {
                    Some((now, stat)) if now == *node => stat,
                    // Another file is at the path now; this one may still be open.
                    _ => self.files.stat(path, *file)?,
                };
                Ok(self.attr_at(node, &stat))
            }
            Node::ControlFolder | Node::ControlFile(_) => Ok(self.attr_at(node, &self.mounted)),
        }
    }

    /// Returns the attributes of a node of SOURCE with known `stat`, or of a control file.
    pub(crate) fn attr_at(&self, node: &Node, stat: &Stat) -> Attr {
        let (kind, size, nlink, ttl) = match node {
            // Counting the sub-folders, including containers, would need a walk.
            Node::SourceFolder(_) | Node::InContainer(..) => (FileKind::Folder, 0, 1, Ttl::Source),
            Node::SourceLink(_) => (FileKind::Link, stat.size, 1, Ttl::Source),
            Node::SourceFile(..) => (FileKind::File, stat.size, 1, Ttl::Source),
            Node::ControlFolder => (FileKind::Folder, 0, 2, Ttl::Source),
            Node::ControlFile(snapshot) => (FileKind::File, snapshot.size(), 1, Ttl::None),
        };
        let mut attr = self.attr_from(node, kind, size, stat, nlink, ttl);
        match node {
            Node::SourceFile(..) if self.inodes.see(attr.ino, stat.version) => {
                self.invalidations.push(Stale::Node(attr.ino))
            }
            Node::ControlFolder | Node::ControlFile(_) => {
                attr.mtime = control::now();
                // They name paths everywhere in SOURCE, so only the user who mounted may read them.
                attr.mode &= 0o500;
                attr.uid = rustix::process::geteuid().as_raw();
            }
            _ => {}
        }
        attr
    }

    pub(crate) fn attr_inside(&self, opened: &Opened, child: NodeId, wait: Wait) -> Result<Attr, Error> {
        let id = &opened.id;
        let node = Node::InContainer(id.clone(), child);
        let fault = |fault| self.fault(opened, child, fault, wait);
        let (kind, size, nlink) = match opened.kind(child, wait).map_err(fault)? {
            Some(NodeKind::Folder { subfolders }) => {
                (FileKind::Folder, 0, subfolders.map_or(1, |n| n.saturating_add(2)))
            }
            Some(NodeKind::File) => {
                let size = opened.view(child, wait).map_err(fault)?.size();
                // The document of attributes is made here, and says which of them are damaged.
                self.note_warnings(opened);
                (FileKind::File, size, 1)
            }
            Some(NodeKind::Link) => {
                let target = opened.link_target(child, wait).map_err(fault)?;
                (FileKind::Link, target.map_or(0, |target| target.len() as u64), 1)
            }
            None => return Err(Error::stale(id.shown())),
        };
        // In the root of a container that is SOURCE, names mean other nodes after it has changed.
        let may_change = self.alone.is_some() && opened.parent(child, wait).map_err(fault)? == tree::ROOT;
        let ttl = if opened.is_watched() && !may_change { Ttl::Container } else { Ttl::Source };
        Ok(self.attr_from(&node, kind, size, &id.stat, nlink, ttl))
    }

    fn attr_from(&self, node: &Node, kind: FileKind, size: u64, stat: &Stat, nlink: u32, ttl: Ttl) -> Attr {
        let Options { uid, gid, umask, .. } = self.options;
        let read = stat.mode & 0o444;
        let mode = match (kind, node) {
            // SOURCE's own folders can be entered by those whom their modes let in.
            (FileKind::Folder, Node::SourceFolder(_)) => stat.mode & 0o555,
            // A container's folder can be entered by every reader of the file.
            (FileKind::Folder, _) => read | read >> 2,
            (FileKind::File, _) => read,
            (FileKind::Link, _) => 0o777,
        };
        Attr {
            ino: self.ino(node),
            kind,
            size,
            mode: (mode & !umask) as u16,
            nlink,
            uid: uid.unwrap_or(stat.uid),
            gid: gid.unwrap_or(stat.gid),
            mtime: stat.mtime,
            ttl,
        }
    }
}
