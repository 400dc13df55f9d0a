//! Inode numbers: a hash of what the node is, and the nodes that the kernel holds.

use std::{
    collections::{HashMap, hash_map::Entry},
    os::unix::ffi::OsStrExt,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use xxhash_rust::xxh3::Xxh3;

use super::{Node, ROOT};

/// Numbers of control files have this bit; they count up and mean nothing.
const CONTROL: u64 = 1 << 63;
/// The number of the control folder.
const CONTROL_FOLDER: u64 = 2;
/// Hashes are at least this.
const FIRST: u64 = 16;

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
        let held = self.read();
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
        match self.write().entry(ino) {
            Entry::Occupied(mut entry) => entry.get_mut().lookups += 1,
            Entry::Vacant(entry) => drop(entry.insert(Held { node, lookups: 1 })),
        }
    }

    /// Gives look-ups back.
    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        if let Entry::Occupied(mut entry) = self.write().entry(ino) {
            let held = entry.get_mut();
            held.lookups = held.lookups.saturating_sub(lookups);
            if held.lookups == 0 {
                entry.remove();
            }
        }
    }

    pub(super) fn get(&self, ino: u64) -> Option<Node> {
        self.read().get(&ino).map(|held| held.node.clone())
    }

    /// How many nodes are held.
    pub(super) fn count(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<u64, Held>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<u64, Held>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(node: &Node, salt: u64) -> u64 {
    let mut hash = Xxh3::with_seed(salt);
    match node {
        Node::Plain(path) => {
            hash.update(b"plain");
            hash.update(path.as_os_str().as_bytes());
        }
        Node::File(path, host) => {
            hash.update(b"file");
            hash.update(&host.ino.to_le_bytes());
            hash.update(path.as_os_str().as_bytes());
        }
        Node::Inside(id, node) => {
            // The state of the container is part of what its nodes are: its change time, too, which tells a file that was
            // rewritten and given its old modification time. Device and inode number are not, since they may differ
            // after a reboot.
            let state = id.meta.fingerprint;
            hash.update(b"inside");
            hash.update(&state.size.to_le_bytes());
            for (seconds, nanos) in [state.mtime, state.ctime] {
                hash.update(&seconds.to_le_bytes());
                hash.update(&nanos.to_le_bytes());
            }
            hash.update(&id.others.to_le_bytes());
            hash.update(&node.0.to_le_bytes());
            hash.update(id.path.as_os_str().as_bytes());
        }
        Node::ControlFolder => return CONTROL_FOLDER,
        Node::ControlFile(snapshot) => return CONTROL | snapshot.number(),
    }
    (hash.digest() & !CONTROL).max(FIRST)
}
