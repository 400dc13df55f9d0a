//! B-trees of version 1: the index of a symbol table, and of chunks (sections 4 and 6.2).

use std::collections::HashSet;

use super::{Place, Reader, Result, Structure};

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

/// Passes the children of all leaves to `each`, with the key before each. A key has `key` bytes.
pub(super) fn walk(
    reader: &Reader<'_>,
    root: Place,
    kind: Kind,
    key: u64,
    each: &mut dyn FnMut(Structure<'_>, Place) -> Result<()>,
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
        node.skip(head as usize)?;
        if its_level > 0 || kind == Kind::Group {
            let mut ahead = node.clone();
            let children = (0..count).map_while(|_| {
                ahead.skip(key as usize).ok()?;
                ahead.defined().ok()
            });
            reader.expect(children, AT_ONCE);
        }
        let first = next.len();
        for _ in 0..count {
            let (key, child) = (node.part(key as usize)?, node.defined()?);
            match its_level {
                0 => each(key, child)?,
                level => next.push((child, Some(level - 1))),
            }
        }
        // The first child comes first.
        next.get_mut(first..).unwrap_or_default().reverse();
    }
    Ok(())
}
