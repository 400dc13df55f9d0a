//! One container in memory, from its bytes to the bytes of its files, without a filesystem around it.

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use shardfs::{
    cache::{Cache, Verify},
    source::Source,
    tree::{self, Container, Detected, NodeId, NodeKind},
    view::{ReadContext, View},
};

/// Children of one folder that a walk looks at.
const MOST_CHILDREN: usize = 3000;

/// An opened container and what reading it needs.
pub(crate) struct Opened {
    pub(crate) tree: Arc<dyn Container>,
    pub(crate) reader: ReadContext,
}

/// A file of the container.
pub(crate) struct File {
    pub(crate) node: NodeId,
    pub(crate) view: View,
}

/// Detects and opens; `None` for what is no container, or turns out to be none.
pub(crate) fn open(bytes: Vec<u8>) -> Option<Opened> {
    open_source(Arc::new(bytes))
}

/// As [`open`], from anywhere.
pub(crate) fn open_source(source: Arc<dyn Source>) -> Option<Opened> {
    let Ok(Detected::Container(format)) = tree::detect(tree::known_formats(), &*source, b"file") else { return None };
    // Little is kept, and everything is decoded, whatever it takes.
    let cache = Cache::with_bound(1 << 20, u64::MAX, Verify::Lazy, None);
    let reader = ReadContext::new(source, cache, 0);
    let tree = format.open(&reader, None).ok()?;
    Some(Opened { tree, reader })
}

impl Opened {
    /// All files, those in hidden folders too, with what listing them with their sizes asks for. Checks on the way
    /// that names are names and the tree is a tree.
    pub(crate) fn walk(&self) -> Vec<File> {
        let (tree, reader) = (&*self.tree, &self.reader);
        let (mut files, mut folders, mut seen) = (Vec::new(), vec![tree::ROOT], HashSet::from([tree::ROOT]));
        while let Some(folder) = folders.pop() {
            let mut children = Vec::new();
            let mut names = HashSet::new();
            let listed = tree.list(reader, folder, 0, &mut |child| {
                super::walk::check_name(child.name);
                assert!(names.insert(child.name.to_owned()), "{:?} is there twice", child.name);
                children.push((child.node, child.is_folder));
                // A damaged file can describe millions of pictures in a block of a few bytes.
                if children.len() < MOST_CHILDREN { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if listed.is_err() {
                continue;
            }
            if let Ok(Some(hidden)) = tree.lookup(reader, folder, ".raw") {
                assert!(!children.iter().any(|&(node, _)| node == hidden), "a hidden folder is listed");
                children.push((hidden, true));
            }
            for (node, is_folder) in children {
                assert!(seen.insert(node), "{node:?} is there twice");
                assert_eq!(tree.parent(reader, node).unwrap(), folder);
                assert_eq!(matches!(tree.kind(reader, node).unwrap(), Some(NodeKind::Folder { .. })), is_folder);
                if is_folder {
                    folders.push(node);
                } else if let Ok(view) = tree.view(reader, node) {
                    files.push(File { node, view });
                }
            }
        }
        files
    }

    /// Reads the first megabyte of a file and its end. How many reads succeeded; each must have given what the size
    /// promised.
    pub(crate) fn read(&self, file: &File) -> u32 {
        let size = file.view.size();
        let near_end = size.saturating_sub(16);
        let mut good = 0;
        for (offset, length) in [(0, size.min(1 << 20)), (near_end, 64), (size, 10), (u64::MAX, u64::MAX)] {
            if let Ok(bytes) = file.view.read_at(&self.reader, offset, length) {
                let promised = length.min(size.saturating_sub(offset));
                let got = bytes.as_syscall_buf().len() as u64;
                assert_eq!(got, promised, "{} of {size} bytes at {offset}", self.path(file.node));
                good += 1;
            }
        }
        good
    }

    /// A file's path in the container.
    pub(crate) fn path(&self, node: NodeId) -> String {
        self.tree.path(&self.reader, node).unwrap()
    }

    /// All of a small file.
    pub(crate) fn content(&self, file: &File) -> Vec<u8> {
        file.view.read_at(&self.reader, 0, file.view.size()).unwrap().as_syscall_buf().to_vec()
    }
}
