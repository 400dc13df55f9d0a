//! Listing folders, of SOURCE and of containers.

use std::{ffi::OsStr, ops::ControlFlow, path::Path, sync::Arc};

use crate::{
    source::Wait,
    store::{FileId, FilePath},
    tree::{self, NodeKind},
    vfs::{
        Attr, Error, FileKind, Node, Vfs,
        changes::Stale,
        open::detection::Entered,
        report::{control, slow::Operation},
    },
};

/// An entry of a listing.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// Position at which the listing continues after this entry.
    pub next: u64,
    /// The name.
    pub name: &'a OsStr,
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileKind,
    /// All attributes, if they were requested and could be read.
    pub attr: Option<Attr>,
}

/// What takes the entries of a listing, until it breaks.
pub(crate) type Each<'a> = dyn FnMut(DirEntry<'_>) -> ControlFlow<()> + 'a;

impl Vfs {
    /// Lists a folder from a position (0 at first) until `each` breaks: `.`, `..` and what the folder shows. With
    /// `plus`, entries carry their attributes if these need little work, and each entry that `each` accepts counts as a
    /// look-up, except `.` and `..`.
    ///
    /// # Errors
    /// [`Error`] if the folder cannot be read.
    pub fn read_dir(&self, ino: u64, from: u64, plus: bool, each: &mut Each<'_>) -> Result<(), Error> {
        self.read_dir_with(ino, from, plus, Wait::Always, each)
    }

    /// Does the same as [`Self::read_dir`], for a caller that waits for no more than `wait`.
    ///
    /// # Errors
    /// As [`Self::read_dir`], and one of which [`Error::is_would_block`] is true. Some entries may have been passed
    /// before it.
    pub fn read_dir_with(&self, ino: u64, from: u64, plus: bool, wait: Wait, each: &mut Each<'_>) -> Result<(), Error> {
        let _timer = self.time_operation(Operation::List, ino, None);
        let node = self.entered(self.node_with(ino, wait)?, Entered::ToList, wait)?;
        let dots = if from < 2 { vec![(1, ".", ino), (2, "..", self.parent(ino, &node, wait)?)] } else { Vec::new() };
        let mut dots = dots.into_iter().skip(from as usize);
        // They come with the first entry: an answer of these two alone would make the kernel ask for the rest without
        // attributes, and then for the attributes of each name by itself.
        let mut add_dots = |each: &mut Each<'_>| {
            dots.try_for_each(|(next, name, ino)| {
                each(DirEntry { next, name: OsStr::new(name), ino, kind: FileKind::Folder, attr: None })
            })
        };
        let mut is_empty = true;
        let mut each_after_dots = |entry: DirEntry<'_>| {
            is_empty = false;
            add_dots(each)?;
            each(entry)
        };
        self.list_entries(&node, from.saturating_sub(2), plus, wait, &mut each_after_dots)?;
        if is_empty {
            let _ = add_dots(each);
        }
        Ok(())
    }

    fn list_entries(&self, node: &Node, from: u64, plus: bool, wait: Wait, each: &mut Each<'_>) -> Result<(), Error> {
        match node {
            Node::SourceFolder(_) if wait == Wait::Never => Err(Error::would_block(Wait::Disk)),
            Node::SourceFolder(path) => self.list_source(path, from, plus, each),
            Node::InContainer(id, folder) => {
                let opened = self.opened(id, wait)?;
                // Sizes that must be computed are left out of a listing (`docs/TREE.md`, section 6).
                let for_size = wait.min(Wait::Disk);
                let mut late = None;
                let listed = opened.tree.list(opened.reader(wait), *folder, from, &mut |child| {
                    if !self.shows(&opened, child.node) {
                        return ControlFlow::Continue(());
                    }
                    let node = Node::InContainer(id.clone(), child.node);
                    let kind = match child.is_folder {
                        true => FileKind::Folder,
                        false if matches!(opened.kind(child.node, wait), Ok(Some(NodeKind::Link))) => FileKind::Link,
                        false => FileKind::File,
                    };
                    let attr = match plus.then(|| self.attr_inside(&opened, child.node, for_size)) {
                        // Stored bytes that are not in memory yet are no reason to leave it out.
                        Some(Err(error)) if error.would_block_for() == Some(Wait::Disk) => {
                            late = Some(error);
                            return ControlFlow::Break(());
                        }
                        attr => attr.and_then(Result::ok),
                    };
                    let ino = attr.as_ref().map_or_else(|| self.ino(&node), |attr| attr.ino);
                    let entry = DirEntry { next: child.next + 2, name: OsStr::new(child.name), ino, kind, attr };
                    self.take(node, plus, entry, each)
                });
                self.note_warnings(&opened);
                listed.map_err(|fault| self.fault(&opened, *folder, fault, wait))?;
                late.map_or(Ok(()), Err)
            }
            Node::ControlFolder => {
                for (next, name) in (from + 3..).zip(control::FILES.iter().skip(from as usize)) {
                    let name = OsStr::new(name);
                    let Some(node) = self.control.lookup(name, self).map(Node::ControlFile) else { continue };
                    let attr = self.attr_of(&node, wait)?;
                    let entry = DirEntry { next, name, ino: attr.ino, kind: attr.kind, attr: plus.then_some(attr) };
                    if self.take(node, plus, entry, each).is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Node::SourceLink(_) | Node::SourceFile(..) | Node::ControlFile(_) => {
                Err(Error::plain(libc::ENOTDIR, "not a folder", self.place(node)))
            }
        }
    }

    fn list_source(&self, path: &Arc<Path>, from: u64, plus: bool, each: &mut Each<'_>) -> Result<(), Error> {
        let watch = self.source.store.watch(path, Wait::Always);
        let folder = self.source.folder(path)?;
        let names = self.source.names(path, &*folder, from == 0)?;
        if from == 0 {
            self.source.look_into_all(path, &*names);
        }
        // The kernel keeps a listing until it is notified of a change or the folder's time changes. That time does not
        // change when a recording becomes a container.
        let is_kept = self.options.watch && !self.source.store.is_far() && !watch.is_alive();
        let mut may_become = false;
        for index in usize::try_from(from).unwrap_or(usize::MAX)..names.len() {
            let name = names.name(index);
            if **path == *Path::new("") && name == control::FOLDER {
                continue;
            }
            let (kind, node, attr) = match self.source.find_in(&*folder, path, name) {
                Ok(Some((node, stat))) => {
                    let kind = match node {
                        Node::SourceFile(..) => FileKind::File,
                        Node::SourceLink(_) => FileKind::Link,
                        _ => FileKind::Folder,
                    };
                    may_become |= kind == FileKind::File && tree::is_container_name(self.options.formats, name);
                    let attr = plus.then(|| self.attr_at(&node, &stat));
                    (kind, node, attr)
                }
                // The kernel keeps a listing, so nothing is left out because of a temporary failure.
                Err(error) if error.is_passing() => return Err(error),
                // The entry was removed, is of a kind that is not shown, or may not be looked at by this user.
                Ok(None) => continue,
                // A server lists it, and refuses what others get.
                Err(error) if matches!(error.errno(), libc::EACCES | libc::EPERM) && !self.source.store.is_far() => {
                    continue;
                }
                // A disk or server fails. If the name were left out, the file would seem to be removed.
                Err(_) => {
                    let file = FilePath::new(path.clone(), name);
                    (FileKind::File, Node::SourceFile(Arc::new(file), FileId::UNKNOWN), None)
                }
            };
            let ino = attr.as_ref().map_or_else(|| self.ino(&node), |attr| attr.ino);
            let entry = DirEntry { next: index as u64 + 3, name, ino, kind, attr };
            if self.take(node, plus, entry, each).is_break() {
                break;
            }
        }
        if is_kept && may_become {
            self.invalidations.push(Stale::Node(self.ino(&Node::SourceFolder(path.clone()))));
        }
        Ok(())
    }

    /// Offers an entry, and remembers its node if it was taken in a listing with attributes.
    fn take(&self, node: Node, plus: bool, entry: DirEntry<'_>, each: &mut Each<'_>) -> ControlFlow<()> {
        let ino = entry.ino;
        each(entry)?;
        if plus {
            self.inodes.remember(ino, node);
        }
        ControlFlow::Continue(())
    }
}
