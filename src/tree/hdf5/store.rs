//! Keeps what was read of a file in the cache: objects, links and chunks by their addresses. Evicted entries are read
//! again when they are needed.

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{
    chunks::{self, ChunkTable},
    form::Form,
    outside::{self, Outside},
    walk::Walk,
};
use crate::{
    cache::{BlockError, Buffer, Key, Reservation, Tag},
    format::hdf5::{
        self, Error, Kind, Layout, Links, Mapping, Object, Page, Place, Reader, Slot, Superblock,
        attribute::{self, Attribute},
        global_heap::{self, Collection},
    },
    limits,
    source::{Memory, SourceError, Unlimited, Wait},
    tree::memory::{WorkingMemory, with_memory},
    view::{Fault, ReadContext, grid::Grid},
};

/// Next number of a file, and of a grid of another file than the container's own.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The first number of grids of other files. Those of the container's own file are addresses.
const OTHERS: u64 = 1 << 63;

/// Tags in the cache of what is kept of files, by the file's number and an address.
const OBJECT: Tag = Tag::Parsed(0);
const LINKS: Tag = Tag::Parsed(1);
const CHUNKS: Tag = Tag::Parsed(2);
const HEAP: Tag = Tag::Parsed(3);
const ATTRIBUTES: Tag = Tag::Parsed(4);
const MAPPINGS: Tag = Tag::Parsed(5);
const SLOTS: Tag = Tag::Parsed(6);
const GRID: Tag = Tag::Parsed(7);
const HIDDEN_GRID: Tag = Tag::Parsed(8);
const PAGE: Tag = Tag::Parsed(11);
const EXTENDED: Tag = Tag::Parsed(12);

/// Tag of documents, by their places.
const DOCUMENT: Tag = Tag::Own(0);

/// About the bytes of memory that an array in chunks takes.
const GRID_MEMORY: u64 = 2048;

/// Something that was read, or why it cannot be read.
pub(super) type Known<T> = Result<T, Damage>;

/// Something that was read and is in the cache.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) found: Known<T>,
}

/// A page of links, with its memory if the cache does not keep it.
pub(super) struct Paged {
    pub(super) page: Page,
    _room: Option<Reservation>,
}

/// Damage of a part of a file.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    /// Where it is, in bytes from the start of the file.
    pub(super) place: u64,
    /// What is wrong.
    pub(super) reason: Arc<str>,
}

/// An object and how it is shown.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) object: Object,
    /// How the dataset is shown.
    pub(super) form: Option<Form>,
}

/// What was read of a file.
pub(super) struct Store {
    pub(super) superblock: Superblock,
    /// The file's number in the cache.
    number: u64,
    /// The other files of the container, and the folder of this file below the container's folder.
    pub(super) outside: Arc<Outside>,
    pub(super) folder: Box<str>,
    /// Whether it is the container's own file.
    is_own: bool,
    walk: Mutex<Option<Arc<Walk>>>,
}

/// Memory for work on a file. The work fails if it becomes too much for a reader that must not wait.
struct Bounded<'a, 'b> {
    memory: &'b WorkingMemory<'a>,
    left: Cell<u64>,
    is_over: Cell<bool>,
    may_wait: bool,
}

impl Memory for Bounded<'_, '_> {
    fn reserve(&self, bytes: u64) -> Result<(), SourceError> {
        if !self.may_wait {
            match self.left.get().checked_sub(bytes) {
                Some(left) => self.left.set(left),
                None => {
                    self.is_over.set(true);
                    return Err(SourceError::WouldBlock);
                }
            }
        }
        self.memory.reserve(bytes)
    }
}

impl Described {
    fn memory_usage(&self) -> usize {
        self.object.memory_usage() + self.form.as_ref().map_or(0, Form::memory_usage)
    }
}

impl Damage {
    /// Returns damage at an address.
    pub(super) fn new(place: u64, reason: impl Into<Arc<str>>) -> Self {
        Self { place, reason: reason.into() }
    }

    /// Returns the failure of a read that needs the part.
    pub(super) fn fault(&self) -> Fault {
        fault(self.place, &self.reason)
    }
}

/// Returns the failure of a read because of damage at a place.
pub(super) fn fault(place: u64, reason: &str) -> Fault {
    Fault { block: None, offset: place, error: Arc::new(BlockError::Refused(reason.to_owned())) }
}

/// Returns damage as a value, and other errors as failures of the read.
pub(super) fn known<T>(found: Result<T, Error>) -> Result<Known<T>, Fault> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(Error::Damaged { place, reason }) => Ok(Err(Damage::new(place, reason))),
        Err(Error::Source(error)) => Err(error.into()),
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.superblock)
    }
}

impl Store {
    /// Returns the store of the container's file.
    pub(super) fn new(superblock: Superblock, outside: Arc<Outside>) -> Self {
        Self { is_own: true, ..Self::of_other(superblock, outside, "".into()) }
    }

    /// Returns the store of another file, which is in a folder below that of the container.
    pub(super) fn of_other(superblock: Superblock, outside: Arc<Outside>, folder: Box<str>) -> Self {
        Self { superblock, outside, folder, is_own: false, number: NEXT.fetch_add(1, Relaxed), walk: Mutex::default() }
    }

    /// Returns the bytes of memory that everything takes, about.
    pub(super) fn memory_usage(&self) -> usize {
        let walk = self.walk.lock().as_ref().map_or(0, |walk| walk.memory_usage());
        size_of::<Self>() + walk
    }

    /// Runs work that reads structures of the file. The work returns a result to be kept, and its bytes of memory.
    fn read_keeping<T>(
        &self,
        context: &ReadContext,
        mut work: impl FnMut(&Reader<'_>) -> Result<(T, usize), Fault>,
    ) -> Result<(T, Reservation), Fault> {
        let mut once = |memory: WorkingMemory<'_>| {
            let may_wait = context.wait() == Wait::Always;
            let is_over = Cell::new(false);
            let bounded = Bounded { memory: &memory, left: Cell::new(limits::QUICK), is_over, may_wait };
            let found = work(&self.superblock.reader(&*context.source, &bounded));
            if bounded.is_over.get() {
                return Err(BlockError::WouldBlock.into());
            }
            let (found, usage) = found?;
            Ok((found, memory.keep(usage as u64)?))
        };
        match context.wait() {
            Wait::Always => with_memory(&context.cache, once),
            _ => once(WorkingMemory::of_reader(context)),
        }
    }

    /// Bytes of memory that an entry takes in addition to its value.
    const ENTRY: usize = 128;

    fn key(&self, context: &ReadContext, tag: Tag, at: Place) -> Key {
        Key::new(context.container, tag, self.number, at)
    }

    /// Returns what is at an address. Reads it unless the cache has it. `usage` returns its bytes of memory.
    fn held<T: Send + Sync + 'static>(
        &self,
        context: &ReadContext,
        (tag, at): (Tag, Place),
        mut read: impl FnMut(&Reader<'_>) -> Result<Known<T>, Fault>,
        usage: fn(&T) -> usize,
    ) -> Result<Arc<Held<T>>, Fault> {
        context.cache.parsed_or_make(self.key(context, tag, at), || {
            self.read_keeping(context, |reader| {
                let found = read(reader)?;
                let usage = Self::ENTRY + found.as_ref().map_or_else(|damage| damage.reason.len(), usage);
                Ok((Held { found }, usage))
            })
        })
    }

    /// Does the same for something that an object has.
    fn held_of<T: Send + Sync + 'static>(
        &self,
        context: &ReadContext,
        (tag, at): (Tag, Place),
        read: impl Fn(&Reader<'_>, &Object) -> hdf5::Result<T>,
        usage: fn(&T) -> usize,
    ) -> Result<Arc<Held<T>>, Fault> {
        if let Some(known) = context.cache.parsed(self.key(context, tag, at)) {
            return Ok(known);
        }
        let object = self.stored(context, at)?;
        let read = |reader: &Reader<'_>| match &object.found {
            Ok(Described { object, .. }) => known(read(reader, object)),
            Err(damage) => Ok(Err(damage.clone())),
        };
        self.held(context, (tag, at), read, usage)
    }

    /// Announces that objects at these addresses will be read soon.
    pub(super) fn expect(&self, context: &ReadContext, places: impl Iterator<Item = Place>) {
        /// Bytes of an object's header that are fetched.
        const HEADER: u64 = 1 << 10;
        if context.wait() != Wait::Always {
            return;
        }
        let unknown: Vec<Place> =
            places.filter(|at| !context.cache.is_parsed(self.key(context, OBJECT, *at))).collect();
        self.superblock.reader(&*context.source, &Unlimited).expect(unknown, HEADER);
    }

    /// Returns the object at an address.
    pub(super) fn object(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Described>>, Fault> {
        self.object_at(context, at, 0)
    }

    /// Returns the object at an address. `depth` virtual datasets lead to it.
    pub(super) fn object_at(
        &self,
        context: &ReadContext,
        at: Place,
        depth: u32,
    ) -> Result<Arc<Held<Described>>, Fault> {
        let stored = self.stored(context, at)?;
        self.extended(context, stored, depth)
    }

    /// Returns the object at an address as its header describes it.
    fn stored(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Described>>, Fault> {
        self.held(context, (OBJECT, at), |reader| read_object(reader, at), Described::memory_usage)
    }

    /// Returns an object with the shape that it has: one of a virtual dataset may grow with other datasets.
    fn extended(
        &self,
        context: &ReadContext,
        stored: Arc<Held<Described>>,
        depth: u32,
    ) -> Result<Arc<Held<Described>>, Fault> {
        let Ok(Described { object, form: Some(_) }) = &stored.found else { return Ok(stored) };
        let Some(dataset) = object.dataset() else { return Ok(stored) };
        if !matches!(dataset.layout, Layout::Virtual(..)) || !dataset.space.most.contains(&u64::MAX) {
            return Ok(stored);
        }
        let key = self.key(context, EXTENDED, object.at);
        if let Some(known) = context.cache.parsed(key) {
            return Ok(known);
        }
        let mappings = self.mappings(context, object.at)?;
        // Damaged mappings are found when elements are read.
        let Ok(all) = &mappings.found else { return Ok(stored) };
        let dims = match outside::extent(self, context, (dataset, all), depth) {
            Ok(dims) => Ok(dims),
            Err(fault) if depth == 0 && fault.error.is_damage() => {
                Err(Damage::new(self.superblock.sizes.base.saturating_add(object.at), fault.error.to_string()))
            }
            Err(fault) => return Err(fault),
        };
        context.cache.parsed_or_make(key, || {
            self.read_keeping(context, |reader| {
                let mut object = object.clone();
                if let (Kind::Dataset(dataset), Ok(dims)) = (&mut object.kind, &dims) {
                    dataset.space.dims = Some(dims.clone());
                }
                let form = object.dataset().map(|dataset| match &dims {
                    Ok(_) => Form::of(dataset, reader.place(object.at)),
                    Err(damage) => Form::broken(damage.clone()),
                });
                let described = Described { object, form };
                let usage = Self::ENTRY + described.memory_usage();
                Ok((Held { found: Ok(described) }, usage))
            })
        })
    }

    /// Does the same without keeping the object: a listing of very many objects needs each only once.
    pub(super) fn object_once(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Described>>, Fault> {
        if let Some(known) = context.cache.parsed(self.key(context, OBJECT, at)) {
            return Ok(known);
        }
        let (found, _room) = self.read_keeping(context, |reader| {
            let found = read_object(reader, at)?;
            let usage = found.as_ref().map_or(0, Described::memory_usage);
            Ok((Held { found }, usage))
        })?;
        self.extended(context, Arc::new(found), 0)
    }

    /// Returns the links of the group at an address: all if they are few, and otherwise only where their index is.
    pub(super) fn links(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Links>>, Fault> {
        self.held_of(context, (LINKS, at), hdf5::open_links, Links::memory_usage)
    }

    /// Does the same for a group that was read, without keeping the links. Also returns the memory that they take.
    pub(super) fn links_once(
        &self,
        context: &ReadContext,
        group: &Object,
    ) -> Result<(Arc<Held<Links>>, Option<Reservation>), Fault> {
        if let Some(known) = context.cache.parsed(self.key(context, LINKS, group.at)) {
            return Ok((known, None));
        }
        let (found, room) = self.read_keeping(context, |reader| {
            let found = known(hdf5::open_links(reader, group))?;
            let usage = found.as_ref().map_or(0, Links::memory_usage);
            Ok((Held { found }, usage))
        })?;
        Ok((Arc::new(found), Some(room)))
    }

    /// Returns the page with a position of the many links of the group at an address.
    pub(super) fn page(
        &self,
        context: &ReadContext,
        at: Place,
        links: &Links,
        position: u64,
    ) -> Result<Arc<Paged>, Fault> {
        let start = links.page_start(position);
        let make = || {
            let (page, room) = self.read_keeping(context, |reader| {
                let page = known(links.page(reader, start.unwrap_or(position)))?.map_err(|damage| damage.fault())?;
                let usage = Self::ENTRY + page.links.memory_usage();
                Ok((page, usage))
            })?;
            Ok((page, room))
        };
        match start {
            // The kernel asks for a page of fixed bounds several times.
            Some(start) => context.cache.parsed_or_make(self.page_key(context, at, start), || {
                let (page, room) = make()?;
                Ok((Paged { page, _room: None }, room))
            }),
            None => make().map(|(page, room)| Arc::new(Paged { page, _room: Some(room) })),
        }
    }

    /// Forgets a page that was read to its end.
    pub(super) fn forget_page(&self, context: &ReadContext, at: Place, start: u64) {
        context.cache.forget_parsed(self.page_key(context, at, start));
    }

    fn page_key(&self, context: &ReadContext, at: Place, start: u64) -> Key {
        let name: Vec<u8> = [self.number, at, start].into_iter().flat_map(u64::to_le_bytes).collect();
        Key::of_name(context.container, PAGE, &name)
    }

    /// Runs work that reads structures of the file and keeps nothing large. Damage is a failure.
    pub(super) fn reading<T>(
        &self,
        context: &ReadContext,
        work: impl Fn(&Reader<'_>) -> hdf5::Result<T>,
    ) -> Result<T, Fault> {
        let (found, _room) = self.read_keeping(context, |reader| Ok((known(work(reader))?, 0)))?;
        found.map_err(|damage| damage.fault())
    }

    /// Returns where the chunks of the dataset at an address are.
    pub(super) fn chunks(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<ChunkTable>>, Fault> {
        self.held_of(context, (CHUNKS, at), chunks::read, ChunkTable::memory_usage)
    }

    /// Returns a collection of the global heap.
    pub(super) fn heap(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Collection>>, Fault> {
        self.held(context, (HEAP, at), |reader| known(global_heap::read(reader, at)), Collection::memory_usage)
    }

    /// Returns the attributes of an object.
    pub(super) fn attributes(
        &self,
        context: &ReadContext,
        object: &Object,
    ) -> Result<Arc<Held<Vec<Attribute>>>, Fault> {
        let read = |reader: &Reader<'_>| known(attribute::read(reader, object.at, object.attributes));
        self.held(context, (ATTRIBUTES, object.at), read, |found| Self::attributes_usage(found))
    }

    /// Returns the document of a place of the container, if it is known.
    pub(super) fn document(context: &ReadContext, place: u128) -> Option<Arc<Buffer>> {
        context.cache.get(Self::document_key(context, place))?.ok()?.into_iter().next()
    }

    /// Keeps the document of a place.
    pub(super) fn keep_document(context: &ReadContext, place: u128, document: Buffer) -> Arc<Buffer> {
        context.cache.insert(Self::document_key(context, place), document)
    }

    fn document_key(context: &ReadContext, place: u128) -> Key {
        Key::new(context.container, DOCUMENT, (place >> 64) as u64, place as u64)
    }

    /// Returns the walk over all objects. It is made only once.
    pub(super) fn walk(&self, context: &ReadContext) -> Result<Arc<Walk>, Fault> {
        if let Some(walk) = &*self.walk.lock() {
            return Ok(walk.clone());
        }
        let walk = Arc::new(Walk::new(self, context)?);
        Ok(self.walk.lock().get_or_insert(walk).clone())
    }

    /// Returns the mappings of the virtual dataset at an address.
    pub(super) fn mappings(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Vec<Mapping>>>, Fault> {
        // Each with its names and what is selected on each axis.
        let usage = |all: &Vec<Mapping>| all.iter().map(Mapping::memory_usage).sum();
        self.held_of(context, (MAPPINGS, at), mappings, usage)
    }

    /// Returns the parts in other files of the dataset at an address.
    pub(super) fn slots(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Vec<Slot>>>, Fault> {
        let read = |reader: &Reader<'_>, object: &Object| {
            let files = object.dataset().and_then(|dataset| dataset.external.as_ref());
            files.map_or_else(|| Ok(Vec::new()), |files| files.slots(reader))
        };
        let usage = |all: &Vec<Slot>| all.iter().map(|slot| size_of_val(slot) + slot.file.len()).sum();
        self.held_of(context, (SLOTS, at), read, usage)
    }

    /// Returns a number for the grid of the dataset at an address. No other dataset of the container has it.
    pub(super) fn grid_number(&self, at: Place) -> u64 {
        if self.is_own { at } else { OTHERS | NEXT.fetch_add(1, Relaxed) }
    }

    /// Returns the array of the dataset in chunks at an address. All readers share it, because it remembers how it was
    /// read. Virtual datasets take elements from a separate array.
    pub(super) fn grid(
        &self,
        context: &ReadContext,
        at: Place,
        is_shown: bool,
        make: impl FnOnce() -> Result<Arc<Grid>, Fault>,
    ) -> Result<Arc<Grid>, Fault> {
        let key = self.key(context, if is_shown { GRID } else { HIDDEN_GRID }, at);
        match context.cache.parsed(key) {
            Some(known) => Ok(known),
            None => Ok(context.cache.keep_shared(key, make()?, context.cache.hold(GRID_MEMORY))),
        }
    }
}

fn read_object(reader: &Reader<'_>, at: Place) -> Result<Known<Described>, Fault> {
    Ok(known(Object::read(reader, at))?.map(|object| {
        let form = object.dataset().map(|dataset| Form::of(dataset, reader.place(at)));
        Described { object, form }
    }))
}

fn mappings(reader: &Reader<'_>, object: &Object) -> hdf5::Result<Vec<Mapping>> {
    let Some(Layout::Virtual(heap, number)) = object.dataset().map(|dataset| &dataset.layout) else {
        return Ok(Vec::new());
    };
    let Some(heap) = *heap else { return Ok(Vec::new()) };
    let collection = global_heap::read(reader, heap)?;
    match collection.get(*number) {
        Some(bytes) => hdf5::mappings(reader, bytes, reader.place(heap)),
        None => Err(reader.damaged(heap, format!("no mappings {number} in a global heap"))),
    }
}
