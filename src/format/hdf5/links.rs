//! Links of a group: symbol tables, link messages, and dense storage (section 4).

use std::ops::Range;

use super::{
    Place, Reader, Result, Structure, btree1, btree2,
    fractal_heap::{Heap, in_heap},
    header::{self, Header},
};

/// Bytes of a symbol table node that are read first: the size that all writers use.
const AT_ONCE: u64 = 328;

/// The most bytes of all names of a group.
const NAMES: u64 = u32::MAX as u64;

/// Where the links of a group are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// In a symbol table: its B-tree and its heap.
    Table(Place, Place),
    /// In the messages of its header.
    Messages,
    /// In a fractal heap, with the index of their names.
    Dense(Place, Place),
}

/// The file (empty for a soft link) and the path that a link leads to.
type Texts = (Box<[u8]>, Box<[u8]>);

/// The links of a group by the bytes of their names.
#[derive(Debug, Default)]
pub struct Links {
    names: Vec<u8>,
    entries: Vec<Entry>,
    /// Paths of soft links; files and paths of external ones.
    texts: Vec<Texts>,
}

/// A link as it is kept.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    length: u32,
    kind: Kind,
    /// The address, or the number of its texts.
    value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hard,
    /// The same, to an object that the entry says to be a group.
    Group,
    Soft,
    External,
    User(u8),
}

/// Where a link leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// To the object at an address.
    Hard(Place),
    /// To a path.
    Soft(&'a [u8]),
    /// To a path in another file.
    External(&'a [u8], &'a [u8]),
    /// A user-defined link of this type.
    User(u8),
}

impl Stored {
    /// Returns where the links of an object are; `None` if it is not a group.
    pub(super) fn of(reader: &Reader<'_>, header: &Header) -> Result<Option<Self>> {
        if let Some(message) = header.find(header::SYMBOL_TABLE) {
            let body = header.body(reader, message)?;
            let mut message = body.structure(reader);
            return Ok(Some(Self::Table(message.defined()?, message.defined()?)));
        }
        if let Some(message) = header.find(header::LINK_INFO) {
            let body = header.body(reader, message)?;
            let mut info = body.structure(reader);
            info.version("link info", 0..=0)?;
            let flags = info.u8()?;
            info.skip(if flags & 1 == 0 { 0 } else { 8 })?;
            if let Some(heap) = info.address()? {
                return Ok(Some(Self::Dense(heap, info.defined()?)));
            }
            return Ok(Some(Self::Messages));
        }
        let is_group = header.find(header::LINK).or_else(|| header.find(header::GROUP_INFO)).is_some();
        Ok(is_group.then_some(Self::Messages))
    }
}

impl Links {
    /// Reads all links of a group whose header is at an address.
    ///
    /// # Errors
    /// Damage.
    pub fn read(reader: &Reader<'_>, at: Place, stored: Stored) -> Result<Self> {
        let mut links = Self::default();
        match stored {
            Stored::Table(tree, heap) => links.add_table(reader, tree, heap)?,
            Stored::Messages => {
                let header = header::read(reader, at)?;
                for message in header.all(header::LINK) {
                    let body = header.body(reader, message)?;
                    links.add_message(reader, body.structure(reader))?;
                }
            }
            Stored::Dense(heap, index) => links.add_dense(reader, heap, index)?,
        }
        links.sort(reader, at)?;
        Ok(links)
    }

    /// Returns the number of links.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a link by its number in the order of names.
    pub fn get(&self, number: usize) -> Option<(&[u8], Target<'_>)> {
        let entry = self.entries.get(number)?;
        let text = || self.texts.get(entry.value as usize);
        let target = match entry.kind {
            Kind::Hard | Kind::Group => Target::Hard(entry.value),
            Kind::Soft => Target::Soft(&text()?.0),
            Kind::External => Target::External(&text()?.0, &text()?.1),
            Kind::User(kind) => Target::User(kind),
        };
        Some((self.name(entry), target))
    }

    /// Returns whether a link is said to lead to a group, so that its header need not be read for that.
    pub fn is_group(&self, number: usize) -> bool {
        self.entries.get(number).is_some_and(|entry| entry.kind == Kind::Group)
    }

    /// Returns the number of the link with a name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| self.name(entry).cmp(name)).ok()
    }

    /// Returns all links in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Target<'_>)> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// Returns the addresses of the targets of all hard links in a range.
    pub fn objects(&self, numbers: Range<usize>) -> impl Iterator<Item = Place> {
        let entries = self.entries.get(numbers.start..numbers.end.min(self.len())).unwrap_or_default();
        entries.iter().filter(|entry| matches!(entry.kind, Kind::Hard)).map(|entry| entry.value)
    }

    /// Returns the bytes of memory that they take.
    pub fn memory_usage(&self) -> usize {
        let texts = self.texts.iter().map(|(a, b)| a.len() + b.len() + 64);
        size_of::<Self>() + self.names.capacity() + self.entries.capacity() * size_of::<Entry>() + texts.sum::<usize>()
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.start as usize;
        self.names.get(start..start + entry.length as usize).unwrap_or_default()
    }

    fn push(&mut self, reader: &Reader<'_>, entry: Entry) -> Result<()> {
        // Memory is reserved for the old and the new list, because a list that grows is copied.
        if self.entries.len() == self.entries.capacity() {
            let more = self.entries.len().max(16);
            reader.memory.reserve((2 * more * size_of::<Entry>()) as u64)?;
            self.entries.reserve_exact(more);
        }
        self.entries.push(entry);
        Ok(())
    }

    fn add_text(&mut self, reader: &Reader<'_>, first: &[u8], second: &[u8]) -> Result<u64> {
        reader.memory.reserve((first.len() + second.len() + 128) as u64)?;
        self.texts.push((first.into(), second.into()));
        Ok(self.texts.len() as u64 - 1)
    }

    fn sort(&mut self, reader: &Reader<'_>, at: Place) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|a, b| self.name(a).cmp(self.name(b)));
        let twice = entries.windows(2).find(|pair| matches!(pair, [a, b] if self.name(a) == self.name(b)));
        if let Some([entry, _]) = twice {
            let name = String::from_utf8_lossy(self.name(entry)).into_owned();
            return Err(reader.damaged(at, format!("two links of the name {name:?}")));
        }
        self.entries = entries;
        Ok(())
    }

    fn add_table(&mut self, reader: &Reader<'_>, tree: Place, heap: Place) -> Result<()> {
        let (offset, length) = (u64::from(reader.sizes.offset), u64::from(reader.sizes.length));
        let entry = 2 * offset + 24;
        reader.expect([tree, heap], AT_ONCE);
        let mut nodes = Vec::new();
        btree1::walk(reader, tree, btree1::Kind::Group, length, &mut |_, at| {
            // Twice, because a list grows to twice its length.
            reader.memory.reserve(2 * size_of::<Place>() as u64)?;
            nodes.push(at);
            Ok(())
        })?;
        // Nodes are on their way while the names are read.
        self.names = local_heap(reader, heap)?;
        for at in nodes {
            let mut bytes = reader.read_up_to(at, AT_ONCE)?;
            reader.check_signature(at, b"SNOD", &bytes)?;
            let mut head = reader.structure(at, &bytes);
            head.skip(4)?;
            head.version("a node of a symbol table", 1..=1)?;
            head.skip(1)?;
            let count = u64::from(head.u16()?);
            if 8 + count * entry > bytes.len() as u64 {
                bytes = reader.read(at, 8 + count * entry)?;
            }
            let mut node = reader.structure(at, &bytes);
            node.skip(8)?;
            for _ in 0..count {
                self.add_entry(reader, &mut node)?;
            }
        }
        Ok(())
    }

    fn add_dense(&mut self, reader: &Reader<'_>, heap: Place, index: Place) -> Result<()> {
        /// Bytes of a link's ID in the heap, after the checksum of its name.
        const ID: usize = 7;
        let mut ids: Vec<[u8; ID]> = Vec::new();
        btree2::walk(reader, index, &[5], &mut |_, mut record| {
            record.skip(4)?;
            let id = record.rest().first_chunk().copied().ok_or_else(|| record.damaged("a link without an ID"))?;
            reader.memory.reserve(2 * ID as u64)?;
            ids.push(id);
            Ok(())
        })?;
        // In the order of the heap, so that each block is read once.
        ids.sort_unstable_by_key(in_heap);
        let mut heap = Heap::open(reader, heap)?;
        for id in ids {
            self.add_message(reader, heap.object(&id)?.structure(reader))?;
        }
        Ok(())
    }

    /// Returns where the text at an offset of the heap is.
    fn heap_text(&self, offset: u64, entry: &Structure<'_>) -> Result<(u32, u32)> {
        let text = usize::try_from(offset).ok().and_then(|offset| self.names.get(offset..));
        let length = text.and_then(|text| text.iter().position(|byte| *byte == 0));
        let length = length.ok_or_else(|| entry.damaged("a name without an end in the heap of its group"))?;
        // The heap has fewer than 2^32 bytes.
        Ok((offset as u32, length as u32))
    }

    fn add_entry(&mut self, reader: &Reader<'_>, node: &mut Structure<'_>) -> Result<()> {
        let name = node.uint(reader.sizes.offset.into())?;
        let (start, length) = self.heap_text(name, node)?;
        let object = node.address()?;
        let kind = node.u32()?;
        node.skip(4)?;
        let mut scratch = node.part(16)?;
        let (kind, value) = match (kind, object) {
            (2, _) => {
                let (start, length) = self.heap_text(scratch.u32()?.into(), node)?;
                let text = self.names.get(start as usize..start as usize + length as usize).unwrap_or_default();
                let text: Box<[u8]> = text.into();
                (Kind::Soft, self.add_text(reader, &text, b"")?)
            }
            (0, Some(object)) => (Kind::Hard, object),
            (1, Some(object)) => (Kind::Group, object),
            (kind, _) => return Err(node.damaged(format!("an entry of kind {kind} in a symbol table"))),
        };
        self.push(reader, Entry { start, length, kind, value })
    }

    /// Adds the link of a message.
    pub(super) fn add_message(&mut self, reader: &Reader<'_>, mut message: Structure<'_>) -> Result<()> {
        message.version("a link", 1..=1)?;
        let flags = message.u8()?;
        let kind = if flags & 8 == 0 { 0 } else { message.u8()? };
        message.skip(if flags & 4 == 0 { 0 } else { 8 })?;
        message.skip(if flags & 16 == 0 { 0 } else { 1 })?;
        let length = message.uint(1 << (flags & 3))?;
        let name = message.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        let start = self.names.len();
        if (start + name.len()) as u64 > NAMES {
            return Err(message.damaged("a group whose names have too many bytes"));
        }
        reader.memory.reserve(2 * length)?;
        self.names.extend_from_slice(name);
        let (kind, value) = match kind {
            0 => (Kind::Hard, message.defined()?),
            1 => {
                let length = message.u16()?.into();
                (Kind::Soft, self.add_text(reader, message.take(length)?, b"")?)
            }
            64 => {
                let length = message.u16()?.into();
                let mut value = message.part(length)?;
                value.skip(1)?;
                let (file, path) = (value.text()?, value.text()?);
                (Kind::External, self.add_text(reader, file, path)?)
            }
            65.. => (Kind::User(kind), 0),
            kind => return Err(message.damaged(format!("a link of type {kind}"))),
        };
        self.push(reader, Entry { start: start as u32, length: length as u32, kind, value })
    }
}

/// Reads the data of a local heap.
pub(super) fn local_heap(reader: &Reader<'_>, at: Place) -> Result<Vec<u8>> {
    let size = 8 + 2 * u64::from(reader.sizes.length) + u64::from(reader.sizes.offset);
    let bytes = reader.signed(at, b"HEAP", size)?;
    let mut head = reader.structure(at, &bytes);
    head.skip(4)?;
    head.version("a heap of names", 0..=0)?;
    head.skip(3)?;
    let size = head.length()?;
    head.length()?;
    let data = head.defined()?;
    if size > NAMES {
        return Err(reader.damaged(at, format!("a heap of {size} bytes of names")));
    }
    reader.read(data, size)
}
