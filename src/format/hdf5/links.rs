//! Links of a group: symbol tables, link messages, and dense storage (section 4). The links of a group that has many are
//! found one by one through the group's own index. They are read together only to list them.

use std::{borrow::Cow, cmp::Ordering, ops::Range};

use super::{
    Place, Reader, Result, Structure, btree1, btree2,
    fractal_heap::{Heap, in_heap},
    header::{self, Header},
    lookup3,
};

/// Bytes of a symbol table node that are read first: the size that all writers use.
const AT_ONCE: u64 = 328;

/// The most bytes of all names of a group.
const NAMES: u64 = u32::MAX as u64;

/// The most links in dense storage, and bytes of names of a symbol table, that are read when a group is opened.
const FEW: u64 = 1 << 16;
const FEW_NAMES: u64 = 1 << 20;

/// Bytes of a link's ID in a fractal heap.
const ID: usize = 7;

/// Most bytes of a name in a symbol table of many links.
const NAME: u64 = 64 << 10;

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
    /// Where they are found if they are many.
    index: Option<Index>,
}

/// The index of the names of a group of many links. It gives each link a number that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    /// A B-tree of version 2 and its heap. The number is the link's ID in the heap.
    Dense { tree: Place, heap: Place },
    /// A B-tree of version 1, and the data of the heap of names. The number is the address of the link's entry.
    Table { tree: Place, names: Text, end: Place },
}

/// The data of a local heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Text {
    at: Place,
    size: u64,
}

/// A link of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link<'a> {
    /// Its number in the group, less than [`Links::bound`]. It is the place in the order of names, unless the group has
    /// many links.
    pub number: u64,
    /// Its name.
    pub name: Cow<'a, [u8]>,
    /// Where it leads.
    pub target: Target<'a>,
    /// Whether it is said to lead to a group, so that its header need not be read for that.
    pub is_group: bool,
}

/// A link as it is kept.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    length: u32,
    kind: Kind,
    /// The address, or the number of its texts.
    value: u64,
    /// Its number in the index of a group of many links.
    number: u64,
}

/// An entry of a symbol table.
struct TableEntry {
    /// Where its name is in the heap.
    name: u64,
    kind: Kind,
    /// The address of its object; of a soft link, where its path is in the heap.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target<'a> {
    /// To the object at an address.
    Hard(Place),
    /// To a path.
    Soft(Cow<'a, [u8]>),
    /// To a path in another file.
    External(Cow<'a, [u8]>, Cow<'a, [u8]>),
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

impl Link<'_> {
    /// Returns the link with texts of its own.
    fn into_owned(self) -> Link<'static> {
        let owned = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        let target = match self.target {
            Target::Hard(at) => Target::Hard(at),
            Target::Soft(path) => Target::Soft(owned(path)),
            Target::External(file, path) => Target::External(owned(file), owned(path)),
            Target::User(kind) => Target::User(kind),
        };
        Link { number: self.number, name: owned(self.name), target, is_group: self.is_group }
    }
}

impl Index {
    /// Returns the index of a group of many links; `None` if it has few.
    fn of(reader: &Reader<'_>, stored: Stored) -> Result<Option<Self>> {
        Ok(match Self::stored(reader, stored)? {
            Some((index, true)) => Some(index),
            _ => None,
        })
    }

    /// Returns the index of a group, and whether it has many links. `None` if the links are in its header.
    fn stored(reader: &Reader<'_>, stored: Stored) -> Result<Option<(Self, bool)>> {
        Ok(match stored {
            Stored::Messages => None,
            Stored::Dense(heap, tree) => {
                let count = btree2::count(reader, tree, &[5])?;
                Some((Self::Dense { tree, heap }, count > FEW))
            }
            Stored::Table(tree, heap) => {
                reader.expect([tree, heap], AT_ONCE);
                let names = Text::of(reader, heap)?;
                let end = reader.source.len().saturating_sub(reader.sizes.base);
                Some((Self::Table { tree, names, end }, names.size > FEW_NAMES))
            }
        })
    }

    /// Returns a number that is greater than that of each link.
    fn bound(self) -> u64 {
        match self {
            Self::Dense { .. } => 1 << (8 * ID - 4),
            Self::Table { end, .. } => end,
        }
    }

    /// Returns the number of the link with a name.
    fn find(self, reader: &Reader<'_>, name: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        match self {
            Self::Dense { tree, heap } => {
                let sum = lookup3(name);
                let compare = |mut record: Structure<'_>| Ok(record.u32()?.cmp(&sum));
                let mut numbers = Vec::new();
                btree2::search(reader, tree, &[5], &compare, &mut |_, mut record| {
                    record.skip(4)?;
                    reader.memory.reserve(2 * size_of::<u64>() as u64)?;
                    numbers.push(number_of(&id_of(&record)?));
                    Ok(())
                })?;
                let mut heap = Heap::open(reader, heap)?;
                for number in numbers {
                    if Links::one(reader, &mut heap, number)?.names == name {
                        found = Some(number);
                    }
                }
            }
            Self::Table { tree, names, .. } => {
                // A child has the names after the key before it, up to the key after it.
                let choose = |keys: &btree1::Keys<'_>| {
                    let (mut from, mut to) = (0, keys.children);
                    while from < to {
                        let middle = usize::midpoint(from, to);
                        let key = keys.get(middle + 1)?.length()?;
                        match names.get(reader, key)?.as_slice().cmp(name) {
                            Ordering::Less => from = middle + 1,
                            Ordering::Equal | Ordering::Greater => to = middle,
                        }
                    }
                    Ok(from..(from + 1).min(keys.children))
                };
                let length = reader.sizes.length.into();
                btree1::search(reader, tree, btree1::Kind::Group, length, &choose, &mut |_, at| {
                    each_entry(reader, at, &mut |place, entry| {
                        if names.get(reader, entry.name)? == name {
                            found = Some(place);
                        }
                        Ok(())
                    })
                })?;
            }
        }
        Ok(found)
    }

    /// Returns the link with a number as the only one.
    fn get(self, reader: &Reader<'_>, number: u64) -> Result<Links> {
        match self {
            Self::Dense { heap, .. } => Links::one(reader, &mut Heap::open(reader, heap)?, number),
            Self::Table { names, .. } => {
                let bytes = reader.read(number, entry_size(reader))?;
                let entry = table_entry(&mut reader.structure(number, &bytes))?;
                let mut link = Links { names: names.get(reader, entry.name)?, ..Links::default() };
                let value = match entry.kind {
                    Kind::Soft => link.add_text(reader, &names.get(reader, entry.value)?, b"")?,
                    _ => entry.value,
                };
                let length = link.names.len() as u32;
                link.push(reader, Entry { start: 0, length, kind: entry.kind, value, number })?;
                Ok(link)
            }
        }
    }
}

impl Text {
    /// Reads where the data of a local heap are.
    fn of(reader: &Reader<'_>, heap: Place) -> Result<Self> {
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
    fn get(self, reader: &Reader<'_>, offset: u64) -> Result<Vec<u8>> {
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

/// Returns the number of a link by its ID: where it is in the heap, and the kind of its object.
fn number_of(id: &[u8; ID]) -> u64 {
    let rest = id.iter().skip(1).rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    rest << 4 | u64::from(id[0] >> 4)
}

/// Returns the ID of the link with a number.
fn id_with(number: u64) -> [u8; ID] {
    let mut id = [0; ID];
    let (kind, rest) = (number as u8 & 0x0f, (number >> 4).to_le_bytes());
    for (byte, value) in id.iter_mut().zip([kind << 4].into_iter().chain(rest)) {
        *byte = value;
    }
    id
}

/// Returns the ID at the end of a record.
fn id_of(record: &Structure<'_>) -> Result<[u8; ID]> {
    record.rest().first_chunk().copied().ok_or_else(|| record.damaged("a link without an ID"))
}

/// Returns the bytes of an entry of a symbol table.
fn entry_size(reader: &Reader<'_>) -> u64 {
    2 * u64::from(reader.sizes.offset) + 24
}

/// Passes the entries of a node of a symbol table to `each`, with their addresses.
fn each_entry(reader: &Reader<'_>, at: Place, each: &mut dyn FnMut(Place, TableEntry) -> Result<()>) -> Result<()> {
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
        each(at.saturating_add(8 + number * size), table_entry(&mut node)?)?;
    }
    Ok(())
}

fn table_entry(node: &mut Structure<'_>) -> Result<TableEntry> {
    let name = node.uint(node.sizes().offset.into())?;
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

impl Links {
    /// Returns no links.
    pub const fn new() -> Self {
        Self { names: Vec::new(), entries: Vec::new(), texts: Vec::new(), index: None }
    }

    /// Opens the links of a group whose header is at an address: reads all if they are few, and otherwise only where
    /// their index is.
    ///
    /// # Errors
    /// Damage.
    pub fn open(reader: &Reader<'_>, at: Place, stored: Stored) -> Result<Self> {
        match Index::of(reader, stored)? {
            Some(index) => Ok(Self { index: Some(index), ..Self::default() }),
            None => Self::read(reader, at, stored),
        }
    }

    /// Reads all links of a group whose header is at an address.
    ///
    /// # Errors
    /// Damage.
    pub fn read(reader: &Reader<'_>, at: Place, stored: Stored) -> Result<Self> {
        let mut links = Self { index: Index::of(reader, stored)?, ..Self::default() };
        match stored {
            Stored::Table(tree, heap) => links.add_table(reader, tree, heap)?,
            Stored::Messages => {
                let header = header::read(reader, at)?;
                for message in header.all(header::LINK) {
                    let body = header.body(reader, message)?;
                    links.add_message(reader, body.structure(reader), 0)?;
                }
            }
            Stored::Dense(heap, index) => links.add_dense(reader, heap, index)?,
        }
        links.sort(reader, at)?;
        Ok(links)
    }

    /// Reads the link with a number in a heap as the only one.
    fn one(reader: &Reader<'_>, heap: &mut Heap<'_, '_>, number: u64) -> Result<Self> {
        let mut link = Self::default();
        link.add_message(reader, heap.object(&id_with(number))?.structure(reader), number)?;
        Ok(link)
    }

    /// Returns whether the links are many, and were not read.
    pub fn are_many(&self) -> bool {
        self.index.is_some()
    }

    /// Returns a number that is greater than that of each link.
    pub fn bound(&self) -> u64 {
        self.index.map_or(self.entries.len() as u64, Index::bound)
    }

    /// Returns the number of links that were read.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether none were read.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a link that was read by its place in the order of names.
    pub fn nth(&self, place: usize) -> Option<Link<'_>> {
        let entry = self.entries.get(place)?;
        let text = || self.texts.get(entry.value as usize);
        let target = match entry.kind {
            Kind::Hard | Kind::Group => Target::Hard(entry.value),
            Kind::Soft => Target::Soft(Cow::Borrowed(&text()?.0)),
            Kind::External => Target::External(Cow::Borrowed(&text()?.0), Cow::Borrowed(&text()?.1)),
            Kind::User(kind) => Target::User(kind),
        };
        let number = if self.index.is_some() { entry.number } else { place as u64 };
        let is_group = entry.kind == Kind::Group;
        Some(Link { number, name: Cow::Borrowed(self.name(entry)), target, is_group })
    }

    /// Returns the link with a number.
    ///
    /// # Errors
    /// Damage of the index of many links.
    pub fn get(&self, reader: &Reader<'_>, number: u64) -> Result<Option<Link<'_>>> {
        let Some(index) = self.index.filter(|_| number < self.bound()) else {
            return Ok(usize::try_from(number).ok().and_then(|place| self.nth(place)));
        };
        let link = index.get(reader, number)?;
        Ok(link.nth(0).map(|found| Link { number, ..found.into_owned() }))
    }

    /// Returns the number of the link with a name.
    ///
    /// # Errors
    /// Damage of the index of many links.
    pub fn find(&self, reader: &Reader<'_>, name: &[u8]) -> Result<Option<u64>> {
        match self.index {
            Some(index) => index.find(reader, name),
            None => Ok(self.entries.binary_search_by(|entry| self.name(entry).cmp(name)).ok().map(|at| at as u64)),
        }
    }

    /// Returns all links that were read in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = Link<'_>> {
        (0..self.len()).filter_map(|place| self.nth(place))
    }

    /// Returns the addresses of the targets of all hard links in a range of places.
    pub fn objects(&self, places: Range<usize>) -> impl Iterator<Item = Place> {
        let entries = self.entries.get(places.start..places.end.min(self.len())).unwrap_or_default();
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
        reader.expect([tree, heap], AT_ONCE);
        let mut nodes = Vec::new();
        btree1::walk(reader, tree, btree1::Kind::Group, reader.sizes.length.into(), &mut |_, at| {
            // Twice, because a list grows to twice its length.
            reader.memory.reserve(2 * size_of::<Place>() as u64)?;
            nodes.push(at);
            Ok(())
        })?;
        // Nodes are on their way while the names are read.
        self.names = local_heap(reader, heap)?;
        for at in nodes {
            each_entry(reader, at, &mut |number, entry| {
                let (start, length) = self.heap_text(reader, number, entry.name)?;
                let value = match entry.kind {
                    Kind::Soft => {
                        let (start, length) = self.heap_text(reader, number, entry.value)?;
                        let text = self.names.get(start as usize..start as usize + length as usize);
                        let text: Box<[u8]> = text.unwrap_or_default().into();
                        self.add_text(reader, &text, b"")?
                    }
                    _ => entry.value,
                };
                self.push(reader, Entry { start, length, kind: entry.kind, value, number })
            })?;
        }
        Ok(())
    }

    fn add_dense(&mut self, reader: &Reader<'_>, heap: Place, index: Place) -> Result<()> {
        let mut ids: Vec<[u8; ID]> = Vec::new();
        btree2::walk(reader, index, &[5], &mut |_, mut record| {
            record.skip(4)?;
            reader.memory.reserve(2 * ID as u64)?;
            ids.push(id_of(&record)?);
            Ok(())
        })?;
        // In the order of the heap, so that each block is read once.
        ids.sort_unstable_by_key(in_heap);
        reader.memory.reserve((ids.len() * size_of::<Entry>()) as u64)?;
        self.entries.reserve_exact(ids.len());
        let mut heap = Heap::open(reader, heap)?;
        for id in ids {
            let message = heap.object(&id)?;
            self.add_message(reader, message.structure(reader), number_of(&id))?;
        }
        Ok(())
    }

    /// Returns where the text at an offset of the heap is, for the entry at an address.
    fn heap_text(&self, reader: &Reader<'_>, entry: Place, offset: u64) -> Result<(u32, u32)> {
        let text = usize::try_from(offset).ok().and_then(|offset| self.names.get(offset..));
        let length = text.and_then(|text| text.iter().position(|byte| *byte == 0));
        let length = length.ok_or_else(|| reader.damaged(entry, "a name without an end in the heap of its group"))?;
        // The heap has fewer than 2^32 bytes.
        Ok((offset as u32, length as u32))
    }

    /// Adds the link of a message, with its number in the index of many links.
    fn add_message(&mut self, reader: &Reader<'_>, mut message: Structure<'_>, number: u64) -> Result<()> {
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
        self.push(reader, Entry { start: start as u32, length: length as u32, kind, value, number })
    }
}

/// Reads the data of a local heap.
pub(super) fn local_heap(reader: &Reader<'_>, at: Place) -> Result<Vec<u8>> {
    let Text { at, size } = Text::of(reader, at)?;
    reader.read(at, size)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs, path::Path};

    use super::*;
    use crate::{
        format::hdf5::{Object, parse},
        source::Unlimited,
    };

    #[test]
    fn an_index_finds_each_link_of_the_golden_files() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hdf5");
        let (mut dense, mut tables) = (0, 0);
        for entry in fs::read_dir(golden).unwrap() {
            let path = entry.unwrap().path();
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(superblock) = parse(&bytes, None, &Unlimited) else { continue };
            let reader = superblock.reader(&bytes, &Unlimited);
            let (mut next, mut seen) = (vec![superblock.root], HashSet::new());
            while let Some(at) = next.pop().filter(|_| next.len() < 10_000) {
                let Some(stored) = Object::read(&reader, at).ok().and_then(|object| object.links()) else { continue };
                let (true, Ok(all)) = (seen.insert(at), Links::read(&reader, at, stored)) else { continue };
                assert!(!all.are_many());
                next.extend(all.objects(0..all.len()));
                next.extend(all.iter().filter(|link| link.is_group).filter_map(|link| match link.target {
                    Target::Hard(at) => Some(at),
                    _ => None,
                }));
                let Some((index, false)) = Index::stored(&reader, stored).unwrap() else { continue };
                let many = Links { index: Some(index), ..Links::default() };
                let count = if matches!(stored, Stored::Dense(..)) { &mut dense } else { &mut tables };
                let mut numbers = HashSet::new();
                for link in all.iter() {
                    let number = many.find(&reader, &link.name).unwrap().unwrap();
                    assert!(number < many.bound() && numbers.insert(number));
                    let found = many.get(&reader, number).unwrap().unwrap();
                    assert_eq!(found, Link { number, ..link.clone() }, "{}", path.display());
                    let missing = [&*link.name, b"-"].concat();
                    assert_eq!(many.find(&reader, &missing).unwrap(), None);
                    *count += 1;
                }
            }
        }
        println!("{dense} dense links, {tables} in symbol tables");
        assert!(dense > 8 && tables > 100);
    }

    #[test]
    fn ids_and_numbers_are_inverse() {
        for id in [[0, 1, 2, 3, 4, 5, 6], [0x10, 0xff, 0, 0, 0, 0, 0xff], [0; ID]] {
            assert_eq!(id_with(number_of(&id)), id);
        }
    }
}
