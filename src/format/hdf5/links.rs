//! Links of a group: symbol tables, link messages, and dense storage (section 4). Those of a group of few links are read
//! together; those of a group of many are found through its own index.

use std::{borrow::Cow, ops::Range};

use super::{
    Place, Reader, Result, Structure, btree1, btree2,
    fractal_heap::{Heap, in_heap},
    header::{self, Header},
    link_index::{ID, LinkIndex, Page, id_of},
    symbol_table::{AT_ONCE, NAMES, TableEntry, Text, each_entry, local_heap},
};
use crate::source::to_usize;

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
    index: Option<LinkIndex>,
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

/// Kinds of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub(super) fn into_owned(self) -> Link<'static> {
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

impl Links {
    /// Returns no links.
    pub const fn new() -> Self {
        Self { names: Vec::new(), entries: Vec::new(), texts: Vec::new(), index: None }
    }

    /// Returns no links yet of a group of many.
    pub(super) fn many(index: LinkIndex) -> Self {
        Self { index: Some(index), ..Self::default() }
    }

    /// Opens the links of a group whose header is at an address: reads all if they are few, and otherwise only where
    /// their index is.
    ///
    /// # Errors
    /// Damage.
    pub fn open(reader: &Reader<'_>, at: Place, stored: Stored) -> Result<Self> {
        match LinkIndex::stored(reader, stored)? {
            Some((index, true)) => Ok(Self::many(index)),
            _ => Self::read(reader, at, stored),
        }
    }

    /// Reads all links of a group whose header is at an address.
    fn read(reader: &Reader<'_>, at: Place, stored: Stored) -> Result<Self> {
        let mut links = Self::default();
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

    /// Reads the page of many links that begins at a position; 0 is that of the first.
    ///
    /// # Errors
    /// Damage, also if the links are not in the order of their index.
    pub fn page(&self, reader: &Reader<'_>, from: u64) -> Result<Page> {
        match self.index {
            Some(index) => index.page(reader, from),
            None => Err(super::Error::damaged(0, "a group of few links has no pages")),
        }
    }

    /// Returns the position at which the page with a position begins. `None` if a page may begin anywhere.
    pub fn page_start(&self, position: u64) -> Option<u64> {
        self.index?.page_start(position)
    }

    /// Returns whether the links are many, and were not read.
    pub fn are_many(&self) -> bool {
        self.index.is_some()
    }

    /// Returns a number that is greater than that of each link.
    pub fn bound(&self) -> u64 {
        self.index.map_or(self.entries.len() as u64, LinkIndex::bound)
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
        let text = || self.texts.get(to_usize(entry.value));
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
        self.entries = entries;
        self.check_names(reader, at)
    }

    /// Fails if two neighbours have one name.
    fn check_names(&self, reader: &Reader<'_>, at: Place) -> Result<()> {
        let twice = self.entries.windows(2).find(|pair| matches!(pair, [a, b] if self.name(a) == self.name(b)));
        match twice {
            Some([entry, _]) => {
                let name = String::from_utf8_lossy(self.name(entry)).into_owned();
                Err(reader.damaged(at, format!("two links of the name {name:?}")))
            }
            _ => Ok(()),
        }
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
        self.reserve(reader, ids.len())?;
        let mut heap = Heap::open(reader, heap)?;
        for id in ids {
            let message = heap.object(&id)?;
            self.add_message(reader, message.structure(reader), 0)?;
        }
        Ok(())
    }

    /// Returns where the text at an offset of the heap is, for the entry at an address.
    fn heap_text(&self, reader: &Reader<'_>, entry: Place, offset: u64) -> Result<(u32, u32)> {
        let text = usize::try_from(offset).ok().and_then(|offset| self.names.get(offset..));
        let length = text.and_then(|text| text.iter().position(|byte| *byte == 0));
        // The heap has fewer than 2^32 bytes.
        let place = u32::try_from(offset).ok().zip(length.and_then(|length| u32::try_from(length).ok()));
        place.ok_or_else(|| reader.damaged(entry, "a name without an end in the heap of its group"))
    }

    /// Adds the link of a message, with its number in the index of many links. Returns its name.
    pub(super) fn add_message(
        &mut self,
        reader: &Reader<'_>,
        mut message: Structure<'_>,
        number: u64,
    ) -> Result<&[u8]> {
        message.version("a link", 1..=1)?;
        let flags = message.u8()?;
        let kind = if flags & 8 == 0 { 0 } else { message.u8()? };
        message.skip(if flags & 4 == 0 { 0 } else { 8 })?;
        message.skip(if flags & 16 == 0 { 0 } else { 1 })?;
        let length = message.uint(1 << (flags & 3))?;
        let name = message.take(to_usize(length))?;
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
        #[expect(clippy::cast_possible_truncation, reason = "`NAMES` bounds both")]
        let entry = Entry { start: start as u32, length: length as u32, kind, value, number };
        self.push(reader, entry)?;
        Ok(self.names.get(start..).unwrap_or_default())
    }

    /// Adds the link of an entry of a symbol table of many links, with its name and the entry's address.
    pub(super) fn add_entry(
        &mut self,
        reader: &Reader<'_>,
        heap: Text,
        number: Place,
        entry: &TableEntry,
        name: &[u8],
    ) -> Result<()> {
        let value = match entry.kind {
            Kind::Soft => self.add_text(reader, &heap.get(reader, entry.value)?, b"")?,
            _ => entry.value,
        };
        let start = self.names.len();
        if (start + name.len()) as u64 > NAMES {
            return Err(reader.damaged(number, "a group whose names have too many bytes"));
        }
        reader.memory.reserve(2 * name.len() as u64)?;
        self.names.extend_from_slice(name);
        #[expect(clippy::cast_possible_truncation, reason = "`NAMES` bounds both")]
        let entry = Entry { start: start as u32, length: name.len() as u32, kind: entry.kind, value, number };
        self.push(reader, entry)
    }

    /// Makes room for more links.
    pub(super) fn reserve(&mut self, reader: &Reader<'_>, count: usize) -> Result<()> {
        reader.memory.reserve((count * size_of::<Entry>()) as u64)?;
        self.entries.reserve_exact(count);
        Ok(())
    }

    /// Orders the links by the keys of their places, then by name. Fails if two have one name.
    pub(super) fn arrange(&mut self, reader: &Reader<'_>, at: Place, mut keys: Vec<(u32, u32)>) -> Result<()> {
        let name = |place: u32| self.entries.get(place as usize).map_or(&[][..], |entry| self.name(entry));
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        reader.memory.reserve((keys.len() * size_of::<Entry>()) as u64)?;
        self.entries = keys.iter().filter_map(|(_, place)| self.entries.get(*place as usize).copied()).collect();
        self.check_names(reader, at)
    }

    pub(super) fn remove_first(&mut self) {
        self.entries.drain(..1.min(self.entries.len()));
    }
}
