//! B-trees of version 1: the index of a symbol table, and of chunks (sections 4 and 6.2).

use std::{
    collections::HashSet,
    ops::{ControlFlow, Range},
};

use super::{Place, Reader, Result, Structure};
use crate::source::to_usize;

/// What a tree indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Links of a group: the key is a length.
    Group = 0,
    /// Chunks.
    Chunks = 1,
}

/// Bytes of a node that are read first.
const AT_ONCE: u64 = 4 << 10;

/// Memory for the place of a node that was visited.
const VISITED: u64 = 48;

/// The keys of a node: one before each child, and one after the last.
pub(super) struct Keys<'a> {
    /// The node after its head.
    fields: Structure<'a>,
    /// Bytes of a key, and of a key and a child.
    key: usize,
    step: usize,
    /// The number of children.
    pub(super) children: usize,
}

impl Keys<'_> {
    /// Returns the key before a child; for the number of children, the last one.
    pub(super) fn get(&self, number: usize) -> Result<Structure<'_>> {
        let mut fields = self.fields.clone();
        fields.skip(number.saturating_mul(self.step))?;
        fields.part(self.key)
    }
}

/// Passes the children of all leaves to `each`, with the key before each. A key has `key` bytes.
pub(super) fn walk(
    reader: &Reader<'_>,
    root: Place,
    kind: Kind,
    key: u64,
    each: &mut dyn FnMut(Structure<'_>, Place) -> Result<()>,
) -> Result<()> {
    let mut each = |key: Structure<'_>, child| each(key, child).map(ControlFlow::Continue);
    search(reader, root, kind, key, &|keys| Ok(0..keys.children), &mut each)
}

/// Does the same in the order of keys for those children of each node that `choose` returns, until `each` breaks.
pub(super) fn search(
    reader: &Reader<'_>,
    root: Place,
    kind: Kind,
    key: u64,
    choose: &dyn Fn(&Keys<'_>) -> Result<Range<usize>>,
    each: &mut dyn FnMut(Structure<'_>, Place) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut visited = HashSet::new();
    // Each node with the level that it must have. The root's level is not known.
    let mut next = vec![(root, None)];
    let offset = u64::from(reader.sizes.offset);
    let head = 8 + 2 * offset;
    while let Some((at, level)) = next.pop() {
        reader.memory.reserve(VISITED)?;
        if !visited.insert(at) {
            return Err(reader.damaged(at, "a node of a B-tree that has two parents"));
        }
        let mut bytes = reader.read_up_to(at, AT_ONCE)?;
        let mut node = reader.structure(at, &bytes);
        reader.check_signature(at, b"TREE", &bytes)?;
        node.skip(4)?;
        let (its_kind, its_level, count) = (node.u8()?, node.u8()?, node.u16()?);
        if its_kind != kind as u8 || level.is_some_and(|level| level != its_level) {
            return Err(reader.damaged(at, format!("a node of kind {its_kind} and level {its_level} of a B-tree")));
        }
        let size = head + u64::from(count) * (key + offset) + key;
        if size > bytes.len() as u64 {
            bytes = reader.read(at, size)?;
        }
        let mut node = reader.structure(at, &bytes);
        node.skip(to_usize(head))?;
        let (key_size, step) = (to_usize(key), to_usize(key + offset));
        let keys = Keys { fields: node.clone(), key: key_size, step, children: usize::from(count) };
        let chosen = choose(&keys)?;
        node.skip(chosen.start.saturating_mul(step))?;
        if its_level > 0 || kind == Kind::Group {
            let mut ahead = node.clone();
            let children = chosen.clone().map_while(|_| {
                ahead.skip(to_usize(key)).ok()?;
                ahead.defined().ok()
            });
            reader.expect(children, AT_ONCE);
        }
        let first = next.len();
        for _ in chosen {
            let (key, child) = (node.part(to_usize(key))?, node.defined()?);
            match its_level {
                0 if each(key, child)?.is_break() => return Ok(()),
                0 => {}
                level => next.push((child, Some(level - 1))),
            }
        }
        // The first child comes first.
        next.get_mut(first..).unwrap_or_default().reverse();
    }
    Ok(())
}
