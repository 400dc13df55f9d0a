//! Symbol tables: nodes of entries, and the heap of their names (section 4).

use super::{Place, Reader, Result, Structure, links::Kind};

/// Bytes of a node that are read first: the size that all writers use.
pub(super) const AT_ONCE: u64 = 328;

/// The most bytes of all names of a group.
pub(super) const NAMES: u64 = u32::MAX as u64;

/// Most bytes of a name in a symbol table of many links.
const NAME: u64 = 64 << 10;

/// The data of a local heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) at: Place,
    pub(super) size: u64,
}

/// An entry of a symbol table.
pub(super) struct TableEntry {
    /// Where its name is in the heap.
    pub(super) name: u64,
    pub(super) kind: Kind,
    /// The address of its object; of a soft link, where its path is in the heap.
    pub(super) value: u64,
}

impl Text {
    /// Reads where the data of a local heap are.
    pub(super) fn of(reader: &Reader<'_>, heap: Place) -> Result<Self> {
        let size = 8 + 2 * u64::from(reader.sizes.length) + u64::from(reader.sizes.offset);
        let bytes = reader.signed(heap, b"HEAP", size)?;
        let mut head = reader.structure(heap, &bytes);
        head.skip(4)?;
        head.version("a heap of names", 0..=0)?;
        head.skip(3)?;
        let size = head.length()?;
        head.length()?;
        let at = head.defined()?;
        if size > NAMES {
            return Err(reader.damaged(heap, format!("a heap of {size} bytes of names")));
        }
        Ok(Self { at, size })
    }

    /// Reads the text at an offset.
    pub(super) fn get(self, reader: &Reader<'_>, offset: u64) -> Result<Vec<u8>> {
        /// Bytes that are read first.
        const FIRST: u64 = 64;
        let missing = || reader.damaged(self.at, format!("no name at {offset} in a heap of {} bytes", self.size));
        let room = self.size.checked_sub(offset).ok_or_else(missing)?.min(NAME);
        let at = self.at.checked_add(offset).ok_or_else(missing)?;
        let mut most = FIRST;
        loop {
            let mut text = reader.read(at, most.min(room))?;
            if let Some(end) = text.iter().position(|byte| *byte == 0) {
                text.truncate(end);
                return Ok(text);
            }
            if most >= room {
                return Err(reader.damaged(at, "a name without an end in the heap of its group"));
            }
            most *= 8;
        }
    }
}

/// Reads the data of a local heap.
pub(super) fn local_heap(reader: &Reader<'_>, at: Place) -> Result<Vec<u8>> {
    let Text { at, size } = Text::of(reader, at)?;
    reader.read(at, size)
}

/// Reads the entry at an address.
pub(super) fn entry_at(reader: &Reader<'_>, at: Place) -> Result<TableEntry> {
    let bytes = reader.read(at, entry_size(reader))?;
    entry(&mut reader.structure(at, &bytes))
}

/// Passes the entries of the node at an address to `each`, with their addresses.
pub(super) fn each_entry(
    reader: &Reader<'_>,
    at: Place,
    each: &mut dyn FnMut(Place, TableEntry) -> Result<()>,
) -> Result<()> {
    let size = entry_size(reader);
    let mut bytes = reader.read_up_to(at, AT_ONCE)?;
    reader.check_signature(at, b"SNOD", &bytes)?;
    let mut head = reader.structure(at, &bytes);
    head.skip(4)?;
    head.version("a node of a symbol table", 1..=1)?;
    head.skip(1)?;
    let count = u64::from(head.u16()?);
    if 8 + count * size > bytes.len() as u64 {
        bytes = reader.read(at, 8 + count * size)?;
    }
    let mut node = reader.structure(at, &bytes);
    node.skip(8)?;
    for number in 0..count {
        each(at.saturating_add(8 + number * size), entry(&mut node)?)?;
    }
    Ok(())
}

/// Returns the bytes of an entry.
fn entry_size(reader: &Reader<'_>) -> u64 {
    u64::from(reader.sizes.length) + u64::from(reader.sizes.offset) + 24
}

fn entry(node: &mut Structure<'_>) -> Result<TableEntry> {
    let name = node.length()?;
    let object = node.address()?;
    let kind = node.u32()?;
    node.skip(4)?;
    let mut scratch = node.part(16)?;
    let (kind, value) = match (kind, object) {
        (2, _) => (Kind::Soft, scratch.u32()?.into()),
        (0, Some(object)) => (Kind::Hard, object),
        (1, Some(object)) => (Kind::Group, object),
        (kind, _) => return Err(node.damaged(format!("an entry of kind {kind} in a symbol table"))),
    };
    Ok(TableEntry { name, kind, value })
}
