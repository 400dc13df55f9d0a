//! Inode numbers: a keyed hash of what the node is, and the nodes that the kernel holds.
//!
//! The nodes that the kernel holds inside a container are kept by container. When a watched container changes, they are
//! invalidated one by one, because processes whose current folder is inside it do not look up the container's name again.
//! Where changes cannot be watched, attributes inside containers are valid for half a second only.

use std::{
    collections::{HashMap, HashSet},
    os::unix::ffi::OsStrExt,
    sync::Arc,
};

use indexmap::{IndexMap, map::Entry};
use parking_lot::RwLock;

use super::{container_id::ContainerId, number_key::NumberKey};
use crate::{
    store::Version,
    tree,
    vfs::{Node, ROOT},
};

/// Bit of the numbers of control files, which count up.
const CONTROL: u64 = 1 << 63;
/// The number of the control folder.
const CONTROL_FOLDER: u64 = 2;
/// Smallest hash.
const FIRST: u64 = 16;

/// If the tables have room for this many times their nodes, most of the room is given back.
const SPARSE: usize = 8;
const LEAST_ROOM: usize = 1 << 10;

/// Nodes that were looked up and not yet forgotten.
#[derive(Debug)]
pub(crate) struct Inodes {
    key: NumberKey,
    held: RwLock<Nodes>,
}

#[derive(Debug, Default)]
struct Nodes {
    by_number: IndexMap<u64, Held>,
    /// For each container, the numbers of the nodes inside it.
    inside: HashMap<Arc<ContainerId>, HashSet<u64>>,
    /// For ordinary files, the state in which each was last seen.
    seen: HashMap<u64, Version>,
}

#[derive(Debug)]
struct Held {
    node: Node,
    lookups: u64,
}

impl Inodes {
    pub(crate) fn new(key: NumberKey) -> Self {
        Self { key, held: RwLock::default() }
    }

    /// Returns a node's number. If two nodes have the same hash while one is held, the later one gets the next number.
    /// That happens once in billions of nodes; its number may then differ after a remount.
    pub(crate) fn number(&self, node: &Node) -> u64 {
        let held = &self.held.read().by_number;
        (0..)
            .map(|salt| self.hash(node, salt))
            .find(|ino| held.get(ino).is_none_or(|held| held.node == *node))
            .unwrap_or(ROOT)
    }

    /// Holds a node for one more look-up.
    pub(crate) fn remember(&self, ino: u64, node: Node) {
        if ino == ROOT {
            return;
        }
        let mut nodes = self.held.write();
        match nodes.by_number.entry(ino) {
            Entry::Occupied(mut entry) => {
                let held = entry.get_mut();
                // The format of a container may have become known.
                held.node = node;
                held.lookups += 1;
            }
            Entry::Vacant(entry) => {
                let container = inside(&node).cloned();
                entry.insert(Held { node, lookups: 1 });
                if let Some(id) = container {
                    nodes.inside.entry(id).or_default().insert(ino);
                }
            }
        }
    }

    /// Gives look-ups of a node back.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        let mut nodes = self.held.write();
        if let Entry::Occupied(mut entry) = nodes.by_number.entry(ino) {
            let held = entry.get_mut();
            held.lookups = held.lookups.saturating_sub(lookups);
            if held.lookups == 0 {
                let Held { node, .. } = entry.swap_remove();
                nodes.seen.remove(&ino);
                if let Some(id) = inside(&node)
                    && let Some(numbers) = nodes.inside.get_mut(id)
                {
                    numbers.remove(&ino);
                    if numbers.is_empty() {
                        nodes.inside.remove(id);
                    }
                }
            }
        }
        // The kernel holds millions of nodes after a walk, and forgets most of them when memory is short.
        let all = &mut nodes.by_number;
        if all.len() < all.capacity() / SPARSE {
            let room = (2 * all.len()).max(LEAST_ROOM);
            all.shrink_to(room);
            nodes.inside.shrink_to(room);
            nodes.seen.shrink_to(room);
        }
    }

    pub(crate) fn get(&self, ino: u64) -> Option<Node> {
        self.held.read().by_number.get(&ino).map(|held| held.node.clone())
    }

    /// Returns the numbers of the nodes that are held inside a container.
    pub(crate) fn of_container(&self, id: &ContainerId) -> Vec<u64> {
        self.held.read().inside.get(id).into_iter().flatten().copied().collect()
    }

    /// Returns the containers inside which nodes are held and that `wanted` accepts.
    pub(crate) fn containers(&self, wanted: impl Fn(&ContainerId) -> bool) -> Vec<Arc<ContainerId>> {
        self.held.read().inside.keys().filter(|id| wanted(id)).cloned().collect()
    }

    /// Notes the state in which an ordinary file is seen now. Returns whether the kernel may keep bytes of another
    /// state without noticing, because it compares only size and modification time.
    pub(crate) fn see(&self, ino: u64, version: Version) -> bool {
        if self.held.read().seen.get(&ino) == Some(&version) {
            return false;
        }
        let mut nodes = self.held.write();
        if !nodes.by_number.contains_key(&ino) {
            return false;
        }
        nodes.seen.insert(ino, version).is_some_and(|before| before.looks_like(&version))
    }

    /// Returns how many nodes are held.
    pub(crate) fn count(&self) -> usize {
        self.held.read().by_number.len()
    }

    fn hash(&self, node: &Node, salt: u64) -> u64 {
        let salt = salt.to_le_bytes();
        let hash = match node {
            Node::SourceFolder(path) => self.key.hash(&[b"p", &salt, path.as_os_str().as_bytes()]),
            Node::SourceLink(path) => self.key.hash(&[b"l", &salt, path.as_os_str().as_bytes()]),
            Node::SourceFile(path, file) => {
                let [folder, name] = path.parts();
                self.key.hash(&[b"f", &salt, &file.to_bytes(), folder, b"/", name])
            }
            // The state of the container is part of its nodes' identity.
            Node::InContainer(id, node) => {
                self.key.hash(&[b"c", &salt, &id.number.to_le_bytes(), &node.0.to_le_bytes()])
            }
            Node::ControlFolder => return CONTROL_FOLDER,
            Node::ControlFile(snapshot) => return CONTROL | snapshot.number,
        };
        (hash & !CONTROL).max(FIRST)
    }
}

/// Returns the container that contains a node; none for a container's own folder, which listing SOURCE holds.
fn inside(node: &Node) -> Option<&Arc<ContainerId>> {
    match node {
        Node::InContainer(id, node) if *node != tree::ROOT => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_forgotten_takes_no_room() {
        let inodes = Inodes::new(NumberKey::random());
        let node = Node::SourceFolder(Arc::from(Path::new("folder")));
        (FIRST..100_000).for_each(|ino| inodes.remember(ino, node.clone()));
        let most = inodes.held.read().by_number.capacity();
        (FIRST + 10..100_000).for_each(|ino| inodes.forget(ino, 1));
        assert_eq!((inodes.count(), inodes.get(FIRST).as_ref()), (10, Some(&node)));
        let left = inodes.held.read().by_number.capacity();
        assert!(most >= 99_000 && left < LEAST_ROOM * SPARSE, "room for {left} nodes");
    }

    #[test]
    fn numbers_depend_on_the_key() {
        let node = Node::SourceFolder(Arc::from(Path::new("folder")));
        let number = |key| Inodes::new(key).number(&node);
        assert_eq!(number(NumberKey::new([7; 16])), number(NumberKey::new([7; 16])));
        assert_ne!(number(NumberKey::new([7; 16])), number(NumberKey::new([8; 16])));
        assert_ne!(number(NumberKey::random()), number(NumberKey::random()));
    }
}
