//! Walks through a [`Vfs`], and what must hold wherever one goes.

use std::{ffi::OsStr, ops::ControlFlow, path::Path};

use shardfs::vfs::{Attr, FileKind, Options, ROOT, Vfs};

/// A node with its path below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) attr: Attr,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) next: u64,
    pub(crate) name: String,
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
    pub(crate) attr: Option<Attr>,
}

pub(crate) fn open(source: &Path, options: Options) -> Vfs {
    Vfs::open(source, options).unwrap_or_else(|error| panic!("{}: {error}", source.display()))
}

/// Up to `at_most` entries from a position on.
pub(crate) fn list(vfs: &Vfs, ino: u64, from: u64, at_most: usize, plus: bool) -> Vec<Listed> {
    let mut listed = Vec::new();
    vfs.read_dir(ino, from, plus, &mut |entry| {
        if listed.len() == at_most {
            return ControlFlow::Break(());
        }
        let name = entry.name.to_str().expect("a name that is not UTF-8").to_owned();
        listed.push(Listed { next: entry.next, name, ino: entry.ino, kind: entry.kind, attr: entry.attr });
        ControlFlow::Continue(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
    listed
}

/// The same in steps, each from where the one before ended.
pub(crate) fn list_in_steps(vfs: &Vfs, ino: u64, step: usize, plus: bool) -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    loop {
        let from = all.last().map_or(0, |last| last.next);
        let part = list(vfs, ino, from, step, plus);
        if part.is_empty() {
            return all;
        }
        all.extend(part);
    }
}

/// What a name is in a folder.
pub(crate) fn lookup(vfs: &Vfs, parent: u64, name: &str) -> Option<Attr> {
    vfs.lookup(parent, OsStr::new(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What stands at a path, step by step.
pub(crate) fn resolve(vfs: &Vfs, path: &str) -> Option<Attr> {
    let root = vfs.attr(ROOT).unwrap_or_else(|error| panic!("{error}"));
    path.split('/').try_fold(root, |at, part| lookup(vfs, at.ino, part))
}

/// A path with one more part.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Everything below the root, also in the hidden folders of containers, by path.
pub(crate) fn tree(vfs: &Vfs) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut folders = vec![(String::new(), ROOT)];
    while let Some((folder, ino)) = folders.pop() {
        let listed = list(vfs, ino, 0, usize::MAX, true);
        let mut found: Vec<(String, Attr)> = listed
            .into_iter()
            .filter(|entry| entry.name != "." && entry.name != "..")
            .filter_map(|entry| {
                // A size that takes decoding is left out of a listing, and there when it is asked for. If what has to be
                // decoded is damaged, there is none.
                let attr = entry.attr.or_else(|| match vfs.lookup(ino, OsStr::new(&entry.name)) {
                    Err(error) if error.errno() == libc::EIO => None,
                    found => found.unwrap_or_else(|error| panic!("{folder}/{}: {error}", entry.name)),
                });
                if attr.is_none() && vfs.lookup(ino, OsStr::new(&entry.name)).is_err() {
                    return None;
                }
                let attr = attr.unwrap_or_else(|| panic!("{folder}: no attributes for {}", entry.name));
                Some((entry.name, attr))
            })
            .collect();
        found.extend(lookup(vfs, ino, ".raw").map(|attr| (".raw".to_owned(), attr)));
        for (name, attr) in found {
            let path = join(&folder, &name);
            if attr.kind == FileKind::Folder {
                folders.push((path.clone(), attr.ino));
            }
            nodes.push(Node { path, attr });
        }
    }
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    nodes
}

/// The files among the nodes.
pub(crate) fn files(vfs: &Vfs) -> Vec<Node> {
    tree(vfs).into_iter().filter(|node| node.attr.kind == FileKind::File).collect()
}

/// Bytes of a file; the errno where it has none to give.
pub(crate) fn read(vfs: &Vfs, ino: u64, offset: u64, length: u64) -> Result<Vec<u8>, i32> {
    match vfs.read(ino, offset, length) {
        Ok(bytes) => Ok(bytes.as_syscall_buf().to_vec()),
        Err(error) => Err(error.errno()),
    }
}

/// All bytes of a file.
pub(crate) fn read_all(vfs: &Vfs, attr: &Attr) -> Result<Vec<u8>, i32> {
    read(vfs, attr.ino, 0, attr.size)
}

/// What every name must be, whatever was stored.
pub(crate) fn check_name(name: &str) {
    assert!(!name.is_empty() && name != "." && name != "..", "{name:?} is no name");
    assert!(!name.contains(['/', '\0']), "{name:?} holds a byte that no name may");
    assert!(name.len() <= 255, "{name:?} has {} bytes", name.len());
}
