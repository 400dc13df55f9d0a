//! Inode numbers: a hash of what the node is, and the nodes that the kernel holds.

use std::{
    collections::{HashMap, hash_map::Entry},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Node, ROOT, host::ContainerId};

/// Numbers of control files have this bit; they count up and mean nothing.
const CONTROL: u64 = 1 << 63;
/// The number of the control folder.
const CONTROL_FOLDER: u64 = 2;
/// Hashes are at least this.
const FIRST: u64 = 16;

/// Room for this many times the nodes that there are is given back, but for some.
const SPARSE: usize = 8;
const LEAST_ROOM: usize = 1 << 10;

/// The nodes that were looked up and not yet forgotten.
#[derive(Debug, Default)]
pub(super) struct Inodes(RwLock<HashMap<u64, Held>>);

#[derive(Debug)]
struct Held {
    node: Node,
    lookups: u64,
}

impl Inodes {
    /// A node's number. Should two nodes ever hash to one number, the one that comes while the other is held gets the
    /// next hash: rare enough (once in billions of nodes) that its number may then differ after a remount.
    pub(super) fn number(&self, node: &Node) -> u64 {
        let held = self.0.read();
        (0..)
            .map(|salt| hash(node, salt))
            .find(|ino| held.get(ino).is_none_or(|held| held.node == *node))
            .unwrap_or(ROOT)
    }

    /// Holds a node for one more look-up.
    pub(super) fn remember(&self, ino: u64, node: Node) {
        if ino == ROOT {
            return;
        }
        match self.0.write().entry(ino) {
            Entry::Occupied(mut entry) => entry.get_mut().lookups += 1,
            Entry::Vacant(entry) => drop(entry.insert(Held { node, lookups: 1 })),
        }
    }

    /// Gives look-ups back.
    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        let mut all = self.0.write();
        if let Entry::Occupied(mut entry) = all.entry(ino) {
            let held = entry.get_mut();
            held.lookups = held.lookups.saturating_sub(lookups);
            if held.lookups == 0 {
                entry.remove();
            }
        }
        // The kernel holds millions after a walk, and forgets most of them when memory is short.
        if all.len() < all.capacity() / SPARSE {
            let room = (2 * all.len()).max(LEAST_ROOM);
            all.shrink_to(room);
        }
    }

    pub(super) fn get(&self, ino: u64) -> Option<Node> {
        self.0.read().get(&ino).map(|held| held.node.clone())
    }

    /// The numbers of the nodes that are held of a container.
    pub(super) fn of_container(&self, id: &ContainerId) -> Vec<u64> {
        let is_of = |node: &Node| matches!(node, Node::Inside(of, _) if **of == *id);
        self.0.read().iter().filter(|(_, held)| is_of(&held.node)).map(|(ino, _)| *ino).collect()
    }

    /// How many nodes are held.
    pub(super) fn count(&self) -> usize {
        self.0.read().len()
    }
}

fn hash(node: &Node, salt: u64) -> u64 {
    let of_path = |kind: u64, path: &Path| xxh3_64_with_seed(path.as_os_str().as_bytes(), salt.wrapping_add(kind));
    let hash = match node {
        Node::Plain(path) => of_path(1 << 32, path),
        Node::File(path, host) => of_path(2 << 32, path) ^ xxh3_64_with_seed(&host.ino.to_le_bytes(), salt),
        // The state of the container is part of what its nodes are.
        Node::Inside(id, node) => {
            let mut key = [0; 24];
            key[..8].copy_from_slice(&id.number.to_le_bytes());
            key[8..].copy_from_slice(&node.0.to_le_bytes());
            xxh3_64_with_seed(&key, salt)
        }
        Node::ControlFolder => return CONTROL_FOLDER,
        Node::ControlFile(snapshot) => return CONTROL | snapshot.number(),
    };
    (hash & !CONTROL).max(FIRST)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_forgotten_takes_no_room() {
        let inodes = Inodes::default();
        let node = Node::Plain(Arc::from(Path::new("folder")));
        (FIRST..100_000).for_each(|ino| inodes.remember(ino, node.clone()));
        let most = inodes.0.read().capacity();
        (FIRST + 10..100_000).for_each(|ino| inodes.forget(ino, 1));
        assert_eq!((inodes.count(), inodes.get(FIRST).as_ref()), (10, Some(&node)));
        let left = inodes.0.read().capacity();
        assert!(most >= 99_000 && left < LEAST_ROOM * SPARSE, "room for {left} nodes");
    }
}
