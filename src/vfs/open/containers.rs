//! Open containers: an LRU, so that a folder of 100,000 of them does not need as many maps and descriptors.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;

use super::opened::Opened;
use crate::{
    cache::{Cache, Reservation, nonzero, trim_heap},
    limits,
    single_flight::SingleFlight,
    source::{Source, Wait},
    store::{File, Watch},
    tree,
    vfs::{
        Error,
        changes::{Invalidations, Stale},
        namespace::{container_id::ContainerId, folder_states::Marker, source_tree::SourceTree},
        report::{coverage::Coverage, problems::Problem},
    },
    view::ReadContext,
    wanted,
};

/// Freed bytes in small pieces from which the heap is trimmed, because it would keep them.
const WORTH_TRIMMING: usize = 4 << 20;

/// Next number in the cache, which several volumes may share: of a folder that is opened, or of all containers of a volume.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Set in the cache's numbers of folders, so that no file has them.
const FOLDER: u64 = 1 << 63;

/// A context for bytes that belong to no container. The cache forgets with it what is kept under its number.
pub(crate) struct Apart(ReadContext);

impl Apart {
    /// Returns the context.
    pub(crate) fn reader(&self) -> &ReadContext {
        &self.0
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.0.cache.forget(self.0.container);
    }
}

/// The open containers, least recently used last.
pub(crate) struct Containers {
    source: Arc<SourceTree>,
    state: Mutex<State>,
    /// Tells the containers of this volume from those of others in the same cache.
    volume: u64,
    /// Bytes of memory that they may take together. A single one may take more.
    budget: usize,
    /// How many were opened and closed so far.
    pub(crate) counters: Counters,
    invalidations: Arc<Invalidations>,
    /// Counts what checksums cover of the files.
    coverage: Option<Arc<Coverage>>,
}

/// Counters since the start, for `stats.json`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) opened: AtomicU64,
    pub(crate) closed: AtomicU64,
}

/// An opening of a container under way, for which others may wait.
type Opening = SingleFlight<Result<Arc<Opened>, Error>>;

struct State {
    open: LruCache<Arc<ContainerId>, Open>,
    /// Containers that are being opened, each by one thread.
    opening: HashMap<Arc<ContainerId>, Arc<Opening>>,
    /// Bytes of memory that the open ones take, about, and after how many openings they are added up again: they grow
    /// while they are used, and adding all up at each opening would take the square of their number.
    weight: usize,
    unsummed: usize,
}

/// An open container.
#[derive(Clone)]
struct Open {
    opened: Arc<Opened>,
    file: Arc<dyn File>,
    used: Instant,
}

impl State {
    /// A container that is open, and in use from now on.
    fn get(&mut self, id: &Arc<ContainerId>) -> Option<Arc<Opened>> {
        let open = self.open.get_mut(id)?;
        open.used = Instant::now();
        Some(open.opened.clone())
    }
}

/// Ends an opening on drop, even one that panicked.
struct Ending<'a>(&'a Containers, &'a Arc<ContainerId>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().opening.remove(self.1);
    }
}

impl Containers {
    pub(crate) fn new(
        source: Arc<SourceTree>,
        invalidations: Arc<Invalidations>,
        coverage: Option<Arc<Coverage>>,
    ) -> Arc<Self> {
        let budget = (source.cache.usage().0 / limits::OPEN_MEMORY_PART).max(limits::OPEN_MEMORY);
        let this = Arc::new(Self {
            source,
            state: Mutex::new(State {
                open: LruCache::new(nonzero(descriptors())),
                opening: HashMap::new(),
                weight: 0,
                unsummed: 0,
            }),
            volume: NEXT_NUMBER.fetch_add(1, Relaxed),
            budget: usize::try_from(budget).unwrap_or(usize::MAX),
            counters: Counters::default(),
            invalidations,
            coverage,
        });
        let weak = Arc::downgrade(&this);
        this.cache().add_last_resort(move || weak.upgrade().map(|containers| containers.close_idle()));
        this
    }

    /// Closes the least recently used container that no request uses. Returns whether there was one.
    fn close_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = |open: &Open| Arc::strong_count(&open.opened) == 1 && open.opened.tree.memory_usage() > 0;
        let oldest = state.open.iter().rev().find(|(_, open)| is_idle(open)).map(|(id, _)| id.clone());
        let closed = oldest.and_then(|id| state.open.pop(&id));
        drop(state);
        closed.inspect(|closed| self.note_closed(closed)).is_some()
    }

    /// Counts a container that was closed to make room. The cache keeps blocks of a file: they are found again when the
    /// same state of it is opened again. What is cached of a folder may be out of date then.
    fn note_closed(&self, closed: &Open) {
        self.counters.closed.fetch_add(1, Relaxed);
        let number = closed.opened.reader.container;
        match number & FOLDER {
            0 => self.cache().forget_values(number),
            _ => self.cache().forget(number),
        }
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.source.cache
    }

    /// Returns how many may be open.
    pub(crate) fn most(&self) -> usize {
        self.state.lock().open.cap().get()
    }

    /// Returns how many are open.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().open.len()
    }

    pub(crate) fn is_open(&self, id: &Arc<ContainerId>) -> bool {
        self.state.lock().open.contains(id)
    }

    /// Returns the container if it is open. Takes one lock and checks the file's times.
    ///
    /// # Errors
    /// [`Error`] if the file has changed.
    pub(crate) fn get(&self, id: &Arc<ContainerId>) -> Result<Option<Arc<Opened>>, Error> {
        let found = self.state.lock().get(id);
        let Some(opened) = found else { return Ok(None) };
        if opened.reader.source.check_unchanged(Wait::Never).is_err() {
            self.close(id);
            return Err(Error::stale(id.shown()));
        }
        Ok(Some(opened))
    }

    /// Returns the container, and opens it if necessary: on one thread, for which others wait. `siblings` finds the files
    /// that it shows. A caller who waits for nothing has it opened on the spot, if its file can be opened and read as far as
    /// necessary without waiting for a disk or for others.
    ///
    /// # Errors
    /// [`Error`] if the file is gone, has changed, or cannot be parsed, or if the caller would have to wait.
    pub(crate) fn open(
        &self,
        id: &Arc<ContainerId>,
        wait: Wait,
        siblings: Option<Arc<dyn tree::Siblings>>,
    ) -> Result<Arc<Opened>, Error> {
        if let Some(opened) = self.get(id)? {
            return Ok(opened);
        }
        if wait == Wait::Never {
            let opened = self.open_at_once(id, siblings);
            return opened.ok_or_else(|| Error::would_block(Wait::Disk));
        }
        let mut state = self.state.lock();
        if let Some(opened) = state.get(id) {
            // It was opened just now.
            return Ok(opened);
        }
        let opening = state.opening.entry(id.clone()).or_default().clone();
        drop(state);
        let wants = || wanted::check().map_err(|error| Error::os(&error, "open", id.shown()));
        opening.get_or_try_init_while(wants, || {
            let _ending = Ending(self, id);
            match self.open_now(id, siblings) {
                // The reader of this thread was killed; those of others were not.
                Err(error) if error.errno() == libc::EINTR => Err(error),
                done => Ok(done),
            }
        })?
    }

    fn open_at_once(&self, id: &Arc<ContainerId>, siblings: Option<Arc<dyn tree::Siblings>>) -> Option<Arc<Opened>> {
        let version = id.stat.version;
        let is_simple = id.others == 0 && !id.stat.via_link && version.unsettled().is_zero();
        if !is_simple || self.state.lock().opening.contains_key(id) {
            return None;
        }
        let watch = self.source.store.watch(id.path.folder(), Wait::Never);
        let (file, probed) = self.source.detection.take_last(version, Wait::Never);
        let file = file.or_else(|| self.source.store.open(&id.shown(), Wait::Never).ok());
        let file = file.filter(|file| file.version() == version)?;
        let reader = self.reader(id, &file);
        // The open that waits finds errors again and reports them.
        let (quick, source) = reader.for_quick_open();
        let opened = id.format.open_within(&quick, probed, None).ok();
        // A manifest's tree is made with its chunks. Bytes that were refused may have been taken for damage.
        if source.has_refused() {
            self.cache().forget(reader.container);
            return None;
        }
        let (tree, room) = opened.filter(|(tree, _)| !tree.has_parts())?;
        if let Some(siblings) = siblings {
            tree.reach(siblings);
        }
        Some(self.insert(id, reader, tree, room, watch, file))
    }

    /// Returns the context for reading a container. A file in one state always has the same number in the cache.
    fn reader(&self, id: &ContainerId, file: &Arc<dyn File>) -> ReadContext {
        let number = match id.marker {
            Some(_) => NEXT_NUMBER.fetch_add(1, Relaxed) | FOLDER,
            None => id.number_in(self.volume) & !FOLDER,
        };
        ReadContext::new(self.source(file.clone()), self.cache().clone(), number)
    }

    /// Returns a context for bytes that belong to no container.
    pub(crate) fn apart(&self, source: Arc<dyn Source>) -> Apart {
        let number = NEXT_NUMBER.fetch_add(1, Relaxed) | FOLDER;
        Apart(ReadContext::new(source, self.cache().clone(), number))
    }

    /// Returns the bytes of a file of a container.
    pub(crate) fn source(&self, file: Arc<dyn File>) -> Arc<dyn Source> {
        match &self.coverage {
            Some(coverage) => coverage.noting(file),
            None => file,
        }
    }

    fn open_now(&self, id: &Arc<ContainerId>, siblings: Option<Arc<dyn tree::Siblings>>) -> Result<Arc<Opened>, Error> {
        let stale = || Error::stale(id.shown());
        // Before the file is looked at, so that no change is missed. The target of a followed link is in another
        // folder, and the chunks of a manifest may be.
        let watch = self.source.store.watch(id.path.folder(), Wait::Always);
        let watch = if id.stat.via_link || id.others != 0 { Watch::default() } else { watch };
        let (file, probed) = self.source.detection.take_last(id.stat.version, Wait::Always);
        let file = file.map_or_else(|| self.source.store.open(&id.file().to_path_buf(), Wait::Always), Ok);
        let file = file.map_err(|e| self.source.problems.failed_to_open(&e, "open", id.shown()))?;
        let state = file.version();
        if state != id.stat.version {
            return Err(stale());
        }
        // Parsing while the write that made this state goes on could give a mix, and no later time stamp would show it.
        std::thread::sleep(state.unsettled());
        let mut reader = self.reader(id, &file);
        if id.marker.is_some() {
            let (folder, states) = (id.shown(), self.source.folders.clone());
            let source = Marker { file: reader.source.clone(), states, folder, generation: id.generation };
            reader = reader.with_source(Arc::new(source));
        }
        reader.source.check_unchanged(Wait::Always).map_err(|_| stale())?;
        // It may have been opened before, and the files that it joins be in a later state by now.
        self.source.check_others(id)?;
        let opened = id.format.open_within(&reader, probed, siblings);
        let (tree, room) = opened.map_err(|error| Error::format(id.shown(), error))?;
        self.source.check_others(id)?;
        Ok(self.insert(id, reader, tree, room, watch, file))
    }

    /// Adds an opened container, and closes the least recently used ones until the budget holds.
    fn insert(
        &self,
        id: &Arc<ContainerId>,
        reader: ReadContext,
        tree: Arc<dyn tree::Container>,
        room: Reservation,
        watch: Watch,
        file: Arc<dyn File>,
    ) -> Arc<Opened> {
        for warning in tree.warnings() {
            self.source.problems.note(Problem::of(id.shown(), warning.clone()));
        }
        // Bytes that were served before the checksum was known to be wrong must not be served from the kernel's cache.
        let (invalidations, stale) = (self.invalidations.clone(), id.clone());
        let late = move || invalidations.push(Stale::Container(stale.clone()));
        let late = self.cache().on_late_failure(reader.container, Arc::new(late));
        let opened = Arc::new(Opened::new(id.clone(), reader, tree, room, watch, late));
        let open = Open { opened: opened.clone(), file, used: Instant::now() };
        let mut state = self.state.lock();
        let mut closed: Vec<_> = state.open.push(id.clone(), open).into_iter().collect();
        if state.unsummed == 0 {
            state.unsummed = state.open.len() / 8 + 1;
            state.weight = state.open.iter().map(|(_, open)| open.opened.tree.memory_usage()).sum();
        } else {
            state.weight = state.weight.saturating_add(opened.tree.memory_usage());
        }
        state.unsummed -= 1;
        while state.weight > self.budget && state.open.len() > 1 {
            let Some(oldest) = state.open.pop_lru() else { break };
            state.weight = state.weight.saturating_sub(oldest.1.opened.tree.memory_usage());
            closed.push(oldest);
        }
        drop(state);
        self.counters.opened.fetch_add(1, Relaxed);
        let freed: usize = closed.iter().map(|(_, closed)| closed.opened.tree.memory_usage()).sum();
        for (_, closed) in closed {
            self.note_closed(&closed);
        }
        if freed > WORTH_TRIMMING {
            trim_heap();
        }
        opened
    }

    /// Closes those whose file has lost its last name or is in another state, so that a deleted container's space is given
    /// back to the disk; and those that keep a filesystem below SOURCE from being unmounted and were not used for `idle`.
    pub(crate) fn sweep(&self, idle: Duration) {
        let is_idle = |id: &ContainerId, open: &Open| {
            open.used.elapsed() >= idle && self.source.store.is_elsewhere(id.stat.version.file())
        };
        let state = self.state.lock();
        let idle: Vec<_> = state.open.iter().filter(|(id, open)| is_idle(id, open)).map(|(id, _)| id.clone()).collect();
        drop(state);
        for id in idle {
            self.close(&id);
        }
        let open: Vec<_> = self.state.lock().open.iter().map(|(id, open)| (id.clone(), open.file.clone())).collect();
        for (id, file) in open {
            if file.is_deleted() || file.check_unchanged(Wait::Never).is_err() {
                self.close(&id);
            }
        }
    }

    /// Closes a container whose file is gone or in another state, with what is cached of it.
    pub(crate) fn close(&self, id: &Arc<ContainerId>) {
        let closed = self.state.lock().open.pop(id);
        if let Some(closed) = closed {
            self.counters.closed.fetch_add(1, Relaxed);
            self.cache().forget(closed.opened.reader.container);
        }
    }
}

/// Returns how many files of each kind this process may keep open.
pub(crate) fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / limits::DESCRIPTORS_PART).unwrap_or(usize::MAX).clamp(8, limits::OPEN_SOURCES)
}
