//! B-trees of version 2: indexes of dense links and attributes, of large objects of heaps, and of chunks (section 5).

use std::{cmp::Ordering, collections::HashSet, ops::Range};

use super::{Place, Reader, Result, Structure};
use crate::source::to_usize;

/// Bytes of a node in addition to its records and children: signature, version, kind and checksum.
const BESIDE: u64 = 10;

/// Most levels above the leaves. A deeper tree does not fit any file, even if its nodes have only two children.
const DEPTH: u16 = 64;

/// Memory for the place of a node that was visited.
const VISITED: u64 = 48;

/// What a tree states for all its nodes.
struct Tree {
    kind: u8,
    /// Bytes of a node.
    node: u64,
    /// Bytes of a record.
    record: u64,
    /// By level.
    levels: Vec<Level>,
}

/// What a tree states for the nodes of a level. Leaves are level 0.
struct Level {
    /// Most records of a node.
    most: u64,
    /// Bytes of the field that counts a node's records and all records below it.
    total_width: u64,
}

/// A node that is to be read.
struct Next {
    at: Place,
    records: u64,
    /// Its records and all below it, as its parent says.
    total: u64,
    level: usize,
}

impl Next {
    /// Fails if its records and those `below` it are not as many as its parent says.
    fn check_total(&self, reader: &Reader<'_>, below: u64) -> Result<()> {
        let (records, total) = (self.records, self.total);
        match below.saturating_add(records) == total {
            true => Ok(()),
            false => {
                let reason = format!("a node of a B-tree with {records} records and {below} below it, and not {total}");
                Err(reader.damaged(self.at, reason))
            }
        }
    }
}

/// A node that was read.
struct Node {
    /// Its bytes without the checksum.
    bytes: Vec<u8>,
    /// Bytes of the fields of a child that count its records, and those with all below it.
    width: u64,
    total_width: u64,
}

/// Returns the number of bytes that store a number up to `most`.
pub(super) fn width_of(most: u64) -> u64 {
    u64::from(most.max(1).ilog2()) / 8 + 1
}

/// What the header of a tree states.
struct Head {
    tree: Tree,
    root: Option<Place>,
    /// Records of the root, and of all nodes.
    records: u64,
    all: u64,
}

/// Passes all records of the tree whose header is at an address to `each`, in no particular order. `kinds` are the
/// kinds of trees that the caller knows. `each` also gets the tree's kind.
pub(super) fn walk(
    reader: &Reader<'_>,
    at: Place,
    kinds: &[u8],
    each: &mut dyn FnMut(u8, Structure<'_>) -> Result<()>,
) -> Result<()> {
    search(reader, at, kinds, &|_| Ok(Ordering::Equal), each)
}

/// Returns the number of records of a tree.
pub(super) fn count(reader: &Reader<'_>, at: Place, kinds: &[u8]) -> Result<u64> {
    Ok(head(reader, at, kinds)?.all)
}

/// Passes the records that are equal to what is searched to `each`. `compare` compares a record with that.
pub(super) fn search(
    reader: &Reader<'_>,
    at: Place,
    kinds: &[u8],
    compare: &dyn Fn(Structure<'_>) -> Result<Ordering>,
    each: &mut dyn FnMut(u8, Structure<'_>) -> Result<()>,
) -> Result<()> {
    let Head { tree, root, records, all } = head(reader, at, kinds)?;
    let Some(root) = root.filter(|_| records > 0) else { return Ok(()) };
    let mut visited = HashSet::new();
    let mut next = vec![Next { at: root, records, total: all, level: tree.levels.len() - 1 }];
    while let Some(node) = next.pop() {
        reader.memory.reserve(VISITED)?;
        if !visited.insert(node.at) {
            return Err(reader.damaged(node.at, "a node of a B-tree that has two parents"));
        }
        tree.read(reader, &node, &mut next, compare, each)?;
    }
    Ok(())
}

/// Passes the records whose ranks are in a range to `each`, in their order. Returns the number of all records.
pub(super) fn range(
    reader: &Reader<'_>,
    at: Place,
    kinds: &[u8],
    ranks: Range<u64>,
    each: &mut dyn FnMut(Structure<'_>) -> Result<()>,
) -> Result<u64> {
    let Head { tree, root, records, all } = head(reader, at, kinds)?;
    // Nodes that were visited are not remembered from one range to the next. This bounds all ranges together.
    if all.checked_mul(tree.record).is_none_or(|bytes| bytes > reader.source.len()) {
        return Err(reader.damaged(at, format!("a B-tree of {all} records, which a file of this length cannot hold")));
    }
    if let Some(root) = root.filter(|_| records > 0) {
        let root = Next { at: root, records, total: all, level: tree.levels.len() - 1 };
        tree.read_range(reader, &root, 0, &ranks, each)?;
    }
    Ok(all)
}

fn head(reader: &Reader<'_>, at: Place, kinds: &[u8]) -> Result<Head> {
    let sizes = reader.sizes;
    let bytes = reader.checked(at, b"BTHD", 22 + u64::from(sizes.offset) + u64::from(sizes.length))?;
    let mut head = reader.structure(at, &bytes);
    head.skip(4)?;
    head.version("a B-tree", 0..=0)?;
    let kind = head.u8()?;
    if !kinds.contains(&kind) {
        return Err(head.damaged(format!("a B-tree of kind {kind}; expected is one of {kinds:?}")));
    }
    let (node, record, depth) = (u64::from(head.u32()?), u64::from(head.u16()?), head.u16()?);
    head.skip(2)?;
    let (root, records, all) = (head.address()?, u64::from(head.u16()?), head.length()?);
    if record == 0 || node < BESIDE + record || depth > DEPTH {
        return Err(head.damaged(format!("a B-tree of depth {depth}, nodes of {node} bytes, records of {record}")));
    }
    if (root.is_none() || records == 0) != (all == 0) {
        return Err(head.damaged(format!("a B-tree of {all} records with {records} in its root")));
    }
    let tree = Tree { kind, node, record, levels: levels(node, record, u64::from(sizes.offset), depth) };
    Ok(Head { tree, root, records, all })
}

/// Returns what nodes of each level may hold.
fn levels(node: u64, record: u64, address: u64, depth: u16) -> Vec<Level> {
    let most = (node - BESIDE) / record;
    let width = width_of(most);
    let mut levels = vec![Level { most, total_width: 0 }];
    let (mut below, mut total_width) = (most, 0);
    for _ in 0..depth {
        let pointer = address + width + total_width;
        let most = node.saturating_sub(BESIDE + pointer) / (record + pointer);
        below = most.saturating_add(1).saturating_mul(below).saturating_add(most);
        total_width = width_of(below);
        levels.push(Level { most, total_width });
    }
    levels
}

impl Tree {
    /// Reads a node.
    fn node(&self, reader: &Reader<'_>, next: &Next) -> Result<Node> {
        let &Next { at, records, level, .. } = next;
        let room = self.levels.get(level).map_or(0, |level| level.most);
        if records > room {
            return Err(reader.damaged(at, format!("a node of a B-tree with {records} records and room for {room}")));
        }
        let below = level.checked_sub(1).and_then(|below| self.levels.get(below));
        let width = width_of(self.levels.first().map_or(0, |leaf| leaf.most));
        let total_width = below.map_or(0, |below| below.total_width);
        let pointers = below.map_or(0, |_| (records + 1) * (u64::from(reader.sizes.offset) + width + total_width));
        let signature = if level == 0 { b"BTLF" } else { b"BTIN" };
        // The checksum follows the used bytes; it is not at the end of the node.
        let bytes = reader.checked(at, signature, (BESIDE + records * self.record + pointers).min(self.node))?;
        let mut fields = reader.structure(at, &bytes);
        fields.skip(4)?;
        fields.version("a node of a B-tree", 0..=0)?;
        let kind = fields.u8()?;
        if kind != self.kind {
            return Err(fields.damaged(format!("a node of kind {kind} in a B-tree of kind {}", self.kind)));
        }
        Ok(Node { bytes, width, total_width })
    }

    /// Reads a node: passes its equal records on, and adds the children that may have such records to `next`.
    fn read(
        &self,
        reader: &Reader<'_>,
        node: &Next,
        next: &mut Vec<Next>,
        compare: &dyn Fn(Structure<'_>) -> Result<Ordering>,
        each: &mut dyn FnMut(u8, Structure<'_>) -> Result<()>,
    ) -> Result<()> {
        let read = self.node(reader, node)?;
        let mut fields = read.fields(reader, node.at)?;
        // Children from this one on may have equal records, up to the one before the first greater record.
        let (mut from, mut to) = (0, None);
        for number in 0..node.records {
            let record = fields.part(to_usize(self.record))?;
            match compare(record.clone())? {
                Ordering::Less => from = number + 1,
                Ordering::Equal => each(self.kind, record)?,
                Ordering::Greater => {
                    to.get_or_insert(number);
                }
            }
        }
        let mut below = 0u64;
        if node.level > 0 {
            let first = next.len();
            for number in 0..=node.records {
                let child = read.child(&mut fields, node.level)?;
                below = below.saturating_add(child.total);
                if number >= from && to.is_none_or(|to| number <= to) {
                    next.push(child);
                }
            }
            reader.expect(next.iter().skip(first).map(|child| child.at), self.node);
        }
        node.check_total(reader, below)
    }

    /// Passes the records of a node and of all below it to `each`, in their order, if their ranks are in the range.
    /// `rank` is that of the first.
    fn read_range(
        &self,
        reader: &Reader<'_>,
        node: &Next,
        mut rank: u64,
        ranks: &Range<u64>,
        each: &mut dyn FnMut(Structure<'_>) -> Result<()>,
    ) -> Result<()> {
        let read = self.node(reader, node)?;
        let mut fields = read.fields(reader, node.at)?;
        let mut records = fields.part(to_usize(node.records * self.record))?;
        let mut children = Vec::new();
        if node.level > 0 {
            for _ in 0..=node.records {
                reader.memory.reserve(size_of::<Next>() as u64)?;
                children.push(read.child(&mut fields, node.level)?);
            }
        }
        let below = children.iter().fold(0, |all: u64, child| all.saturating_add(child.total));
        node.check_total(reader, below)?;
        // Those of the range are read soon.
        let mut start = rank;
        let wanted = children.iter().filter(|child| {
            let from = start;
            start = start.saturating_add(child.total).saturating_add(1);
            from < ranks.end && ranks.start < from.saturating_add(child.total)
        });
        reader.expect(wanted.map(|child| child.at), self.node);
        let mut children = children.into_iter();
        for number in 0..=node.records {
            if let Some(child) = children.next() {
                let end = rank.saturating_add(child.total);
                if rank < ranks.end && ranks.start < end {
                    self.read_range(reader, &child, rank, ranks, each)?;
                }
                rank = end;
            }
            if number < node.records {
                let record = records.part(to_usize(self.record))?;
                if ranks.contains(&rank) {
                    each(record)?;
                }
                rank = rank.saturating_add(1);
            }
        }
        Ok(())
    }
}

impl Node {
    /// Returns the fields after the head.
    fn fields<'a>(&'a self, reader: &Reader<'_>, at: Place) -> Result<Structure<'a>> {
        let mut fields = reader.structure(at, &self.bytes);
        fields.skip(6)?;
        Ok(fields)
    }

    /// Returns the next child of a node of a level.
    fn child(&self, fields: &mut Structure<'_>, level: usize) -> Result<Next> {
        let (at, records) = (fields.defined()?, fields.uint(to_usize(self.width))?);
        let total = if self.total_width == 0 { records } else { fields.uint(to_usize(self.total_width))? };
        Ok(Next { at, records, total, level: level - 1 })
    }
}
