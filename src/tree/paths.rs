//! Folders and files of a container whose items are known when it is opened: one sorted table, no object per node.

use std::{collections::HashMap, ops::Range};

use indexmap::{Equivalent, IndexMap, map::Entry};

use super::{HEAP, names};
use crate::limits;

/// Number of a node in the container; 0 is the root. Numbers follow the order of the container's items, so they are the
/// same each time it is opened.
pub type NodeIndex = u32;

/// The root's number.
pub const ROOT: NodeIndex = 0;

/// Kind of a node: a folder, or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<F> {
    /// A folder.
    Folder,
    /// A file.
    File(F),
}

#[derive(Debug)]
struct Node<F> {
    parent: NodeIndex,
    name: Box<str>,
    kind: Kind<F>,
    hidden: bool,
    /// A folder's children, as a range of `Paths::sorted`.
    children: Range<u32>,
}

/// The finished table.
#[derive(Debug)]
pub struct Paths<F> {
    nodes: Vec<Node<F>>,
    /// All nodes except the root by parent and name, so the children of a folder are adjacent.
    sorted: Vec<NodeIndex>,
}

impl<F: Copy> Paths<F> {
    /// Returns the kind of a node; `None` if it does not exist.
    pub fn kind(&self, node: NodeIndex) -> Option<Kind<F>> {
        Some(self.nodes.get(node as usize)?.kind)
    }

    /// Returns the folder that contains the node; the root for the root itself.
    pub fn parent(&self, node: NodeIndex) -> NodeIndex {
        self.nodes.get(node as usize).map_or(ROOT, |node| node.parent)
    }

    /// Returns the child with a name, even a hidden one.
    pub fn lookup(&self, folder: NodeIndex, name: &str) -> Option<NodeIndex> {
        let children = self.all_children(folder);
        let at = children.binary_search_by(|&child| self.name(child).cmp(name)).ok()?;
        children.get(at).copied()
    }

    /// Returns the listed children, in order of their names.
    pub fn children(&self, folder: NodeIndex) -> impl Iterator<Item = (&str, NodeIndex)> {
        self.children_from(folder, 0).map(|(_, name, child)| (name, child))
    }

    /// Does the same as [`Self::children`] from a position on. Each child comes with the next position.
    pub fn children_from(&self, folder: NodeIndex, from: u64) -> impl Iterator<Item = (u64, &str, NodeIndex)> {
        let children = self.all_children(folder);
        let from = usize::try_from(from).map_or(children.len(), |from| from.min(children.len()));
        let numbered = (from as u64 + 1..).zip(&children[from..]);
        let shown = |&(_, &child): &(u64, &NodeIndex)| !self.nodes[child as usize].hidden;
        numbered.filter(shown).map(|(next, &child)| (next, self.name(child), child))
    }

    /// Returns the number of children including hidden ones, which is the end of its listing's positions.
    pub fn count(&self, folder: NodeIndex) -> u64 {
        self.all_children(folder).len() as u64
    }

    /// Returns the number of listed sub-folders.
    pub fn subfolders(&self, folder: NodeIndex) -> u32 {
        let is_folder = |node: NodeIndex| matches!(self.kind(node), Some(Kind::Folder));
        self.children(folder).filter(|&(_, child)| is_folder(child)).count() as u32
    }

    /// Returns the node's path below the root.
    pub fn path(&self, mut node: NodeIndex) -> String {
        let mut parts = Vec::new();
        while node != ROOT {
            parts.push(self.name(node));
            node = self.parent(node);
        }
        parts.reverse();
        parts.join("/")
    }

    /// Returns the number of files, and the bytes of all their paths.
    pub fn files(&self) -> (u64, u64) {
        let mut lengths = vec![0u64; self.nodes.len()];
        let (mut files, mut bytes) = (0, 0u64);
        // A folder is added before its children.
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let above = lengths.get(node.parent as usize).copied().unwrap_or_default();
            lengths[number] = above.saturating_add(node.name.len() as u64 + 1);
            if matches!(node.kind, Kind::File(_)) {
                files += 1;
                bytes = bytes.saturating_add(lengths[number]);
            }
        }
        (files, bytes)
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let names: usize = self.nodes.iter().map(|node| node.name.len() + HEAP).sum();
        self.nodes.len() * (size_of::<Node<F>>() + size_of::<NodeIndex>()) + names
    }

    fn name(&self, node: NodeIndex) -> &str {
        &self.nodes[node as usize].name
    }

    fn all_children(&self, folder: NodeIndex) -> &[NodeIndex] {
        let range = self.nodes.get(folder as usize).map_or(0..0, |node| node.children.clone());
        &self.sorted[range.start as usize..range.end as usize]
    }
}

/// Collects nodes: first stored items, then what shardfs adds, which gets other names if necessary.
pub struct Builder<F> {
    /// By parent and name. A node's number is its index.
    nodes: IndexMap<(NodeIndex, Box<str>), Made<F>>,
    /// For a file name that was requested more than once, the number to try next.
    next_number: HashMap<(NodeIndex, Box<str>), u32>,
    /// Folders that may still be made for stored names. A name of slashes alone asks for one with each byte.
    folders_left: usize,
}

struct Made<F> {
    kind: Kind<F>,
    hidden: bool,
}

/// A key of [`Builder::nodes`] to look for.
#[derive(Hash)]
struct At<'a>(NodeIndex, &'a str);

impl Equivalent<(NodeIndex, Box<str>)> for At<'_> {
    fn equivalent(&self, key: &(NodeIndex, Box<str>)) -> bool {
        (self.0, self.1) == (key.0, &*key.1)
    }
}

impl<F: Copy> Default for Builder<F> {
    fn default() -> Self {
        let root = ((ROOT, "".into()), Made { kind: Kind::Folder, hidden: false });
        Self { nodes: IndexMap::from([root]), next_number: HashMap::new(), folders_left: limits::FOLDERS }
    }
}

impl<F: Copy> Builder<F> {
    /// Returns the folder with exactly this name. Makes it if necessary.
    pub fn folder(&mut self, parent: NodeIndex, name: &str) -> NodeIndex {
        let made = self.nodes.get_index_of(&At(parent, name));
        made.map_or_else(|| self.push(parent, name.into(), Kind::Folder), |node| node as NodeIndex)
    }

    /// Does the same as [`Self::folder`], for a hidden folder.
    pub fn hidden_folder(&mut self, parent: NodeIndex, name: &str) -> NodeIndex {
        let node = self.folder(parent, name);
        self.nodes[node as usize].hidden = true;
        node
    }

    /// Returns the folder that a node is in, and its name.
    pub fn place(&self, node: NodeIndex) -> (NodeIndex, &str) {
        self.nodes.get_index(node as usize).map_or((ROOT, ""), |((folder, name), _)| (*folder, name))
    }

    /// Adds a folder for files that shardfs adds, under the first free name: plain, `%_2`, `%_3` …
    pub fn free_folder(&mut self, parent: NodeIndex, part: &[u8]) -> NodeIndex {
        let mut name = names::folder(part, &names::RESERVED, 1);
        for number in 2.. {
            if !self.is_taken(parent, &name) {
                break;
            }
            name = names::folder(part, &names::RESERVED, number);
        }
        self.push(parent, name, Kind::Folder)
    }

    /// Returns the folder for all parts of a stored name except the last (split at `/`), and that last part. `reserved`
    /// are the names that `top` reserves, in addition to those of every folder. If a container asks for too many
    /// folders ([`limits::FOLDERS`]), the rest of the name is one part, including slashes.
    pub fn folders_of<'a>(&mut self, top: NodeIndex, name: &'a [u8], reserved: &[&str]) -> (NodeIndex, &'a [u8]) {
        self.folders_left = self.folders_left.saturating_add(limits::FOLDERS_A_NAME);
        if !name.contains(&b'/') {
            return (top, name);
        }
        let first: Vec<&str> = names::RESERVED.iter().chain(reserved).copied().collect();
        let (mut folder, mut rest, mut reserved) = (top, name, &first[..]);
        while self.folders_left > 0
            && let Some(slash) = rest.iter().position(|&byte| byte == b'/')
        {
            let before = self.nodes.len();
            folder = self.folder(folder, &names::folder(&rest[..slash], reserved, 1));
            self.folders_left -= self.nodes.len() - before;
            (rest, reserved) = (&rest[slash + 1..], &names::RESERVED);
        }
        (folder, rest)
    }

    /// Adds a folder for a part of a name, under the first free name: plain, `%_2`, `%_3` …
    pub fn own_folder(&mut self, parent: NodeIndex, part: &[u8]) -> NodeIndex {
        let mut number = 1;
        loop {
            let name = names::folder(part, &names::RESERVED, number);
            if !self.is_taken(parent, &name) {
                return self.push(parent, name, Kind::Folder);
            }
            number += 1;
        }
    }

    /// Adds a file for the last part of a name, under the first free name: plain, `%_2`, `%_3` …
    pub fn file(&mut self, folder: NodeIndex, part: &[u8], suffix: &str, file: F) -> NodeIndex {
        let made = Made { kind: Kind::File(file), hidden: false };
        let key = match self.nodes.entry((folder, names::file(part, suffix, 1).into())) {
            Entry::Vacant(free) => return free.insert_entry(made).index() as NodeIndex,
            Entry::Occupied(taken) => taken.key().clone(),
        };
        let mut number = self.next_number.get(&key).copied().unwrap_or(2);
        loop {
            let name = names::file(part, suffix, number);
            number += 1;
            if !self.is_taken(folder, &name) {
                self.next_number.insert(key, number);
                return self.push(folder, name, Kind::File(file));
            }
        }
    }

    /// Adds a file that belongs to another file of the same part: under that file's name with its own suffix instead,
    /// or, if that is taken, under the first free name.
    pub fn beside(&mut self, other: NodeIndex, part: &[u8], [suffix, own]: [&str; 2], file: F) -> NodeIndex {
        let Some(((folder, name), _)) = self.nodes.get_index(other as usize) else { return ROOT };
        let (folder, name) = (*folder, format!("{}{own}", name.strip_suffix(suffix).unwrap_or(name)));
        match self.is_taken(folder, &name) {
            true => self.file(folder, part, own, file),
            false => self.push(folder, name, Kind::File(file)),
        }
    }

    fn is_taken(&self, folder: NodeIndex, name: &str) -> bool {
        self.nodes.contains_key(&At(folder, name))
    }

    fn push(&mut self, parent: NodeIndex, name: String, kind: Kind<F>) -> NodeIndex {
        self.nodes.insert_full((parent, name.into()), Made { kind, hidden: false }).0 as NodeIndex
    }

    /// Sorts the table.
    pub fn finish(self) -> Paths<F> {
        let node = |((parent, name), Made { kind, hidden })| Node { parent, name, kind, hidden, children: 0..0 };
        let mut nodes: Vec<Node<F>> = self.nodes.into_iter().map(node).collect();
        let mut sorted: Vec<NodeIndex> = (1..nodes.len() as NodeIndex).collect();
        sorted.sort_unstable_by(|&a, &b| {
            let (a, b) = (&nodes[a as usize], &nodes[b as usize]);
            (a.parent, &a.name).cmp(&(b.parent, &b.name))
        });
        let mut start = 0;
        while let Some(&first) = sorted.get(start as usize) {
            let parent = nodes[first as usize].parent;
            let siblings = sorted[start as usize..].partition_point(|&node| nodes[node as usize].parent == parent);
            let end = start + siblings as u32;
            nodes[parent as usize].children = start..end;
            start = end;
        }
        Paths { nodes, sorted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_prefix_live_together() {
        let mut builder = Builder::default();
        for (i, key) in ["a", "a/b", "a.npy/b", "/abs", "dir/"].iter().enumerate() {
            let (folder, part) = builder.folders_of(ROOT, key.as_bytes(), &[]);
            builder.file(folder, part, ".npy", i);
        }
        let paths = builder.finish();
        let names: Vec<&str> = paths.children(ROOT).map(|(name, _)| name).collect();
        assert_eq!(names, ["%empty", "a", "a%2Enpy", "a.npy", "dir"]);
        let dir = paths.lookup(ROOT, "dir").unwrap();
        let file = paths.lookup(dir, "%empty.npy").unwrap();
        assert_eq!(paths.kind(file), Some(Kind::File(4)));
        assert_eq!(paths.path(file), "dir/%empty.npy");
        assert_eq!(paths.subfolders(ROOT), 4);
        assert_eq!(paths.lookup(ROOT, "b"), None);
    }

    #[test]
    fn a_name_of_slashes_ends_in_one_part() {
        let mut builder = Builder::default();
        let name = [b"/".repeat(3 * limits::FOLDERS), b"end".to_vec()].concat();
        let (folder, part) = builder.folders_of(ROOT, &name, &[]);
        builder.file(folder, part, ".npy", 0);
        // Another name still gets its few folders.
        let (folder, part) = builder.folders_of(ROOT, b"a/b/c", &[]);
        let file = builder.file(folder, part, ".npy", 1);
        let paths = builder.finish();
        assert!(paths.nodes.len() < limits::FOLDERS + 100);
        assert_eq!(paths.path(file), "a/b/c.npy");
        let last = (0..paths.nodes.len() as NodeIndex).find(|&node| paths.kind(node) == Some(Kind::File(0))).unwrap();
        let name = paths.name(last);
        assert!(name.starts_with("%2F%2F") && name.ends_with(".npy") && name.len() <= names::NAME_MAX, "{name}");
    }

    #[test]
    fn duplicates_are_numbered_and_hidden_folders_are_found() {
        let mut builder = Builder::default();
        for i in 0..3 {
            builder.file(ROOT, b"x", ".bin", i);
        }
        builder.hidden_folder(ROOT, ".raw");
        let paths = builder.finish();
        let names: Vec<&str> = paths.children(ROOT).map(|(name, _)| name).collect();
        assert_eq!(names, ["x%_2.bin", "x%_3.bin", "x.bin"]);
        assert!(paths.lookup(ROOT, ".raw").is_some());
    }
}
