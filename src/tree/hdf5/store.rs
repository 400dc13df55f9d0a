//! Keeps what was read of a file: objects, links and chunks by their addresses, each within the budget. The least
//! recently used entries are dropped, and read again when they are needed.

use std::{
    cell::Cell,
    fmt,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering::Relaxed},
};

use lru::LruCache;
use parking_lot::Mutex;

use super::{
    chunks::{self, ChunkTable},
    form::Form,
    outside::Outside,
    walk::Walk,
};
use crate::{
    cache::{BlockError, Buffer, Reservation},
    format::hdf5::{
        self, Error, Layout, Links, Mapping, Object, Place, Reader, Slot, Superblock,
        attribute::{self, Attribute},
        global_heap::{self, Collection},
    },
    limits,
    source::{Memory, SourceError, Unlimited, Wait},
    tree::memory::{WorkingMemory, with_memory},
    view::{Fault, ReadContext, grid::Grid},
};

/// Most bytes of memory of all entries. Beyond it, the least recently used are dropped.
const KEPT: usize = 48 << 20;

/// Something that was read, or why it cannot be read.
pub(super) type Known<T> = Result<T, Damage>;

/// Something that was read, with its part of the budget.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) found: Known<T>,
    _room: Reservation,
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

/// The key of an entry: what it is, and its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Object(Place),
    Links(Place),
    Chunks(Place),
    Heap(Place),
    Attributes(Place),
    Mappings(Place),
    Slots(Place),
    Document(u128),
}

#[derive(Clone)]
enum Value {
    Object(Arc<Held<Described>>),
    Links(Arc<Held<Links>>),
    Chunks(Arc<Held<ChunkTable>>),
    Heap(Arc<Held<Collection>>),
    Attributes(Arc<Held<Vec<Attribute>>>),
    Mappings(Arc<Held<Vec<Mapping>>>),
    Slots(Arc<Held<Vec<Slot>>>),
    Document(Arc<Buffer>),
}

struct Kept {
    value: Value,
    usage: usize,
}

/// What was read of a file.
pub(super) struct Store {
    pub(super) superblock: Superblock,
    kept: Mutex<LruCache<Key, Kept>>,
    usage: AtomicUsize,
    /// Arrays of datasets in chunks: those that are shown, and those that virtual datasets take elements from.
    grids: Mutex<LruCache<(Place, bool), Arc<Grid>>>,
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
        Self {
            superblock,
            outside,
            folder,
            is_own: false,
            kept: Mutex::new(LruCache::unbounded()),
            usage: AtomicUsize::new(0),
            grids: Mutex::new(LruCache::new(crate::cache::nonzero(256))),
            walk: Mutex::default(),
        }
    }

    /// Returns the bytes of memory that everything takes, about.
    pub(super) fn memory_usage(&self) -> usize {
        let walk = self.walk.lock().as_ref().map_or(0, |walk| walk.memory_usage());
        size_of::<Self>() + self.usage.load(Relaxed) + walk
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
                return Err(Fault::would_block(BlockError::WouldBlock));
            }
            let (found, usage) = found?;
            Ok((found, memory.keep(usage as u64)?))
        };
        match context.wait() {
            Wait::Always => with_memory(&context.cache, once),
            _ => once(WorkingMemory::of_reader(context)),
        }
    }

    fn get(&self, key: Key) -> Option<Value> {
        self.kept.lock().get(&key).map(|kept| kept.value.clone())
    }

    fn keep(&self, key: Key, value: Value, usage: usize) {
        let mut kept = self.kept.lock();
        self.usage.fetch_add(usage, Relaxed);
        if let Some(old) = kept.put(key, Kept { value, usage }) {
            self.usage.fetch_sub(old.usage, Relaxed);
        }
        while self.usage.load(Relaxed) > KEPT && kept.len() > 1 {
            let Some((_, old)) = kept.pop_lru() else { break };
            self.usage.fetch_sub(old.usage, Relaxed);
        }
    }

    /// Bytes of memory that an entry takes in addition to its value.
    const ENTRY: usize = size_of::<Kept>() + size_of::<Key>() + 128;

    /// Reads what is at an address, and keeps it. `usage` returns its bytes of memory.
    fn held<T>(
        &self,
        context: &ReadContext,
        key: Key,
        wrap: fn(Arc<Held<T>>) -> Value,
        mut read: impl FnMut(&Reader<'_>) -> Result<Known<T>, Fault>,
        usage: fn(&T) -> usize,
    ) -> Result<Arc<Held<T>>, Fault> {
        let ((found, usage), room) = self.read_keeping(context, |reader| {
            let found = read(reader)?;
            let usage = Self::ENTRY + found.as_ref().map_or_else(|damage| damage.reason.len(), usage);
            Ok(((found, usage), usage))
        })?;
        let held = Arc::new(Held { found, _room: room });
        self.keep(key, wrap(held.clone()), usage);
        Ok(held)
    }

    /// Announces that objects at these addresses will be read soon.
    pub(super) fn expect(&self, context: &ReadContext, places: impl Iterator<Item = Place>) {
        /// Bytes of an object's header that are fetched.
        const HEADER: u64 = 1 << 10;
        if context.wait() != Wait::Always {
            return;
        }
        let kept = self.kept.lock();
        let unknown: Vec<Place> = places.filter(|at| !kept.contains(&Key::Object(*at))).collect();
        drop(kept);
        self.superblock.reader(&*context.source, &Unlimited).expect(unknown, HEADER);
    }

    /// Returns the object at an address.
    pub(super) fn object(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Described>>, Fault> {
        if let Some(Value::Object(found)) = self.get(Key::Object(at)) {
            return Ok(found);
        }
        let read = |reader: &Reader<'_>| {
            Ok(known(Object::read(reader, at))?.map(|object| {
                let form = object.dataset().map(|dataset| Form::of(dataset, reader.place(at)));
                Described { object, form }
            }))
        };
        self.held(context, Key::Object(at), Value::Object, read, Described::memory_usage)
    }

    /// Returns the links of the group at an address.
    pub(super) fn links(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Links>>, Fault> {
        if let Some(Value::Links(found)) = self.get(Key::Links(at)) {
            return Ok(found);
        }
        let object = self.object(context, at)?;
        let read = |reader: &Reader<'_>| match &object.found {
            Ok(Described { object, .. }) => known(hdf5::read_links(reader, object)),
            Err(damage) => Ok(Err(damage.clone())),
        };
        self.held(context, Key::Links(at), Value::Links, read, Links::memory_usage)
    }

    /// Returns where the chunks of the dataset at an address are.
    pub(super) fn chunks(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<ChunkTable>>, Fault> {
        if let Some(Value::Chunks(found)) = self.get(Key::Chunks(at)) {
            return Ok(found);
        }
        let object = self.object(context, at)?;
        let read = |reader: &Reader<'_>| match &object.found {
            Ok(Described { object, .. }) => known(chunks::read(reader, object)),
            Err(damage) => Ok(Err(damage.clone())),
        };
        self.held(context, Key::Chunks(at), Value::Chunks, read, ChunkTable::memory_usage)
    }

    /// Returns a collection of the global heap.
    pub(super) fn heap(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Collection>>, Fault> {
        if let Some(Value::Heap(found)) = self.get(Key::Heap(at)) {
            return Ok(found);
        }
        let read = |reader: &Reader<'_>| known(global_heap::read(reader, at));
        self.held(context, Key::Heap(at), Value::Heap, read, Collection::memory_usage)
    }

    /// Returns the attributes of an object.
    pub(super) fn attributes(
        &self,
        context: &ReadContext,
        object: &Object,
    ) -> Result<Arc<Held<Vec<Attribute>>>, Fault> {
        if let Some(Value::Attributes(found)) = self.get(Key::Attributes(object.at)) {
            return Ok(found);
        }
        let read = |reader: &Reader<'_>| known(attribute::read(reader, object.at, object.attributes));
        self.held(context, Key::Attributes(object.at), Value::Attributes, read, |found| Self::attributes_usage(found))
    }

    /// Returns the document of a place, if it is known.
    pub(super) fn document(&self, place: u128) -> Option<Arc<Buffer>> {
        match self.get(Key::Document(place)) {
            Some(Value::Document(document)) => Some(document),
            _ => None,
        }
    }

    /// Keeps the document of a place. The buffer has its own reservation of memory.
    pub(super) fn keep_document(&self, place: u128, document: Arc<Buffer>) {
        let usage = Self::ENTRY + document.len();
        self.keep(Key::Document(place), Value::Document(document), usage);
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
        if let Some(Value::Mappings(found)) = self.get(Key::Mappings(at)) {
            return Ok(found);
        }
        let object = self.object(context, at)?;
        let read = |reader: &Reader<'_>| match &object.found {
            Ok(Described { object, .. }) => known(mappings(reader, object)),
            Err(damage) => Ok(Err(damage.clone())),
        };
        // Each with its names and what is selected on each axis.
        let usage = |all: &Vec<Mapping>| all.iter().map(Mapping::memory_usage).sum();
        self.held(context, Key::Mappings(at), Value::Mappings, read, usage)
    }

    /// Returns the parts in other files of the dataset at an address.
    pub(super) fn slots(&self, context: &ReadContext, at: Place) -> Result<Arc<Held<Vec<Slot>>>, Fault> {
        if let Some(Value::Slots(found)) = self.get(Key::Slots(at)) {
            return Ok(found);
        }
        let object = self.object(context, at)?;
        let read = |reader: &Reader<'_>| match &object.found {
            Ok(Described { object, .. }) => {
                let files = object.dataset().and_then(|dataset| dataset.external.as_ref());
                known(files.map_or_else(|| Ok(Vec::new()), |files| files.slots(reader)))
            }
            Err(damage) => Ok(Err(damage.clone())),
        };
        let usage = |all: &Vec<Slot>| all.iter().map(|slot| size_of_val(slot) + slot.file.len()).sum();
        self.held(context, Key::Slots(at), Value::Slots, read, usage)
    }

    /// Returns a number for the grid of the dataset at an address. No other dataset of the container has it.
    pub(super) fn grid_number(&self, at: Place) -> u64 {
        if self.is_own { at } else { self.outside.next_grid() }
    }

    /// Returns the array of the dataset in chunks at an address. It is made only once while it is kept.
    pub(super) fn grid(
        &self,
        at: Place,
        is_shown: bool,
        make: impl FnOnce() -> Result<Arc<Grid>, Fault>,
    ) -> Result<Arc<Grid>, Fault> {
        if let Some(grid) = self.grids.lock().get(&(at, is_shown)) {
            return Ok(grid.clone());
        }
        let grid = make()?;
        let mut grids = self.grids.lock();
        // Another thread may have made it meanwhile. All readers share one, because it remembers how it was read.
        Ok(grids.get_or_insert((at, is_shown), || grid).clone())
    }
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
