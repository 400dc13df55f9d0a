//! The bytes of objects: fetched by range, once for all readers, and kept in memory and on disk.
//!
//! - `run`: consecutive bytes on their way, or there. A reader waits only for the bytes that it wants. Each is an entry
//!   of the cache.
//! - `ahead`: how much is fetched ahead of all readers.
//! - `streams`: readers that read an object in order, and how far ahead of them it is fetched.
//! - `kept`: bytes on the local disk ([`crate::disk`]).
//!
//! A read looks for its bytes in memory, then on disk, and asks the server for what is missing: in granules of 64 KiB,
//! requests of up to 4 MiB, several in flight. Requests run on their own, so a reader that is killed keeps no other
//! waiting, and bytes that came for it serve the next one. No lock is held while anything is waited for.

mod ahead;
mod kept;
mod run;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use self::{
    ahead::Ahead,
    kept::Unit,
    run::{Run, WeakRun},
    streams::{MOST_AHEAD, Streams, request_size},
};
use super::object::{Fetch, FetchError, ObjectId};
use crate::{
    cache::{Cache, Key, Reservation, Tag},
    disk::Disk,
    source::{SharedBytes, Source, SourceError, Wait, check_range},
};

/// Smallest request in bytes. Requests start at multiples of it.
const GRANULE: u64 = 64 << 10;

/// Size in bytes of a file in the disk cache, and the longest run.
const BLOCK: u64 = 1 << 20;

/// Bytes fetched in one request when any byte of an object's front is needed. The format, and most indexes, are found
/// there.
const FRONT: u64 = 256 << 10;

/// Bytes fetched in one request at an object's end, because some formats have their index there.
const TAIL: u64 = 256 << 10;

/// Largest object, in bytes, that is fetched whole. It is fetched whole only if recent small objects were read beyond
/// their fronts.
const SMALL: u64 = BLOCK + (256 << 10);

/// How much one object that was read beyond its front counts. One that was not (or not yet) counts 1 against it.
const BEYOND: i32 = 4;

/// Most objects in a row that are fetched whole without being read beyond their fronts.
const LEAN: i32 = 16;

/// Most units of an object whose presence on disk is remembered.
const REMEMBERED_UNITS: usize = 1 << 16;

/// What happened since the start, as in `stats.json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counters {
    /// Bytes of reads that were answered from memory, from disk, and after waiting for a server.
    pub(crate) bytes_from_memory: AtomicU64,
    pub(crate) bytes_from_disk: AtomicU64,
    pub(crate) bytes_waited_for: AtomicU64,
    /// Bytes requested ahead of readers.
    pub(crate) bytes_ahead: AtomicU64,
    /// Bytes that came of all requests.
    #[serde(skip)]
    pub(crate) fetched_bytes: AtomicU64,
}

/// Numbers of stores and of files, so that no two have the same keys in a cache.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Bytes of an open object that the cache counts in addition to those of its name.
const OBJECT: u64 = 1024;

/// The bytes of all objects of a store.
pub(crate) struct Blocks {
    runtime: Handle,
    /// Holds the objects and their bytes.
    cache: Arc<Cache>,
    /// The store's number in the keys of the cache.
    number: u64,
    ahead: Ahead,
    pub(super) disk: Option<Arc<Disk>>,
    /// Above 0 if recent small objects were read beyond their fronts ([`BEYOND`]).
    small: AtomicI32,
    /// What happened so far.
    pub(crate) counters: Counters,
}

impl Blocks {
    /// Returns bytes of objects: fetched by tasks of `runtime`, at most `ahead` bytes before they are read, and kept in
    /// `cache` and on `disk` if there is one.
    pub(crate) fn new(runtime: Handle, disk: Option<Arc<Disk>>, cache: Arc<Cache>, ahead: u64) -> Arc<Self> {
        if let Some(disk) = &disk {
            // What waits to be written to a disk that does not answer counts against the budget.
            let disk = Arc::downgrade(disk);
            cache.add_last_resort(move || disk.upgrade().map(|disk| disk.give_up_queue()));
        }
        Arc::new(Self {
            runtime,
            cache,
            number: NUMBERS.fetch_add(1, Relaxed),
            ahead: Ahead::new(ahead),
            disk,
            small: AtomicI32::new(0),
            counters: Counters::default(),
        })
    }

    /// Returns the bytes that may be in memory, and those that are.
    pub(crate) fn memory(&self) -> (u64, u64) {
        (self.cache.usage().0, self.cache.fetched_bytes(self.number))
    }

    /// Returns room for bytes that are fetched ahead, if there is some.
    fn try_take(&self, bytes: u64) -> Option<Reservation> {
        if self.ahead.fits(bytes) { self.cache.try_reserve(bytes) } else { None }
    }

    /// Returns the bytes of one object in one state. Files opened in the same state share what was fetched.
    pub(crate) fn file(self: &Arc<Self>, fetch: Arc<dyn Fetch>) -> Arc<RemoteFile> {
        let name = kept::key(fetch.id(), &(0..0));
        let key = Key::of_name(self.number, Tag::FarFile, &name);
        if let Some(known) = self.cache.parsed::<RemoteFile>(key) {
            if !known.has_changed.load(Relaxed) {
                return known;
            }
            self.cache.forget_parsed(key);
        }
        let file = Arc::new_cyclic(|own| RemoteFile {
            own: own.clone(),
            blocks: Arc::downgrade(self),
            cache: Arc::downgrade(&self.cache),
            number: NUMBERS.fetch_add(1, Relaxed),
            fetch,
            state: Mutex::default(),
            has_changed: AtomicBool::new(false),
        });
        self.cache.keep_shared(key, file, self.cache.hold(OBJECT + name.len() as u64))
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.cache.forget_store(self.number);
    }
}

/// One object in one state, as bytes by range.
pub(crate) struct RemoteFile {
    own: Weak<Self>,
    /// Both weak, because the cache holds this file.
    blocks: Weak<Blocks>,
    cache: Weak<Cache>,
    /// Its number in the keys of its bytes.
    number: u64,
    fetch: Arc<dyn Fetch>,
    state: Mutex<State>,
    /// Whether the server has another state now.
    has_changed: AtomicBool,
}

/// Nothing finds its bytes any more.
impl Drop for RemoteFile {
    fn drop(&mut self) {
        let Some(cache) = self.cache.upgrade() else { return };
        self.state.get_mut().runs.values().for_each(|run| cache.forget_fetched(run.key, &run.bytes));
    }
}

#[derive(Debug, Default)]
struct State {
    /// The run of each granule, by its number; eviction drops the runs themselves.
    runs: HashMap<u64, WeakRun>,
    /// Number of entries at which the entries of evicted runs are removed.
    sweep_at: usize,
    /// Whether a unit is on disk, by its range; only for units that were looked for.
    kept: HashMap<Unit, bool>,
    streams: Streams,
    /// Whether the front was requested, and whether anything beyond it was read.
    has_front: bool,
    is_read_beyond: bool,
}

impl State {
    /// Returns the run that holds the byte at `offset`; `None` also if its request failed.
    fn run(&self, offset: u64) -> Option<Run> {
        let run = self.runs.get(&(offset / GRANULE))?.upgrade()?;
        run.bytes.failure().is_ok().then_some(run)
    }

    /// Returns the runs that cover a range; `None` if one is missing.
    fn all_runs(&self, range: &Range<u64>) -> Option<Vec<Run>> {
        let (mut at, mut runs) = (range.start, Vec::new());
        while at < range.end {
            let run = self.run(at)?;
            at = run.range.end;
            runs.push(run);
        }
        Some(runs)
    }

    fn add(&mut self, run: &Run) {
        if self.runs.len() >= self.sweep_at.max(64) {
            self.runs.retain(|_, run| run.bytes.strong_count() > 0);
            self.sweep_at = 2 * self.runs.len();
        }
        for granule in run.range.start / GRANULE..run.range.end.div_ceil(GRANULE) {
            self.runs.insert(granule, run.downgrade());
        }
    }

    fn note_kept(&mut self, unit: &Unit, is_there: bool) {
        if self.kept.len() >= REMEMBERED_UNITS {
            self.kept.clear();
        }
        self.kept.insert(unit.clone(), is_there);
    }
}

impl RemoteFile {
    /// Returns the object and its state.
    pub(crate) fn id(&self) -> &ObjectId {
        self.fetch.id()
    }

    /// Adds bytes of the front that came with another answer, as when the object was looked up.
    pub(crate) fn add_front(&self, bytes: &[u8]) {
        let Some(blocks) = self.blocks.upgrade() else { return };
        let size = self.id().size;
        let length = (bytes.len() as u64).min(size);
        // Whole granules, or the whole object.
        let length = if length == size { length } else { length / GRANULE * GRANULE }.min(BLOCK);
        let mut state = self.state.lock();
        if length == 0 || state.run(0).is_some() {
            return;
        }
        let Ok(run) = self.new_run(&blocks, 0..length, blocks.cache.take(length)) else { return };
        run.bytes.add(bytes);
        state.add(&run);
        drop(state);
        blocks.cache.keep_fetched(run.key, &run.bytes);
        self.finished(&blocks, &[run]);
    }

    /// Returns memory for bytes that will come.
    fn new_run(&self, blocks: &Blocks, range: Range<u64>, room: Reservation) -> Result<Run, FetchError> {
        let key = Key::new(blocks.number, Tag::Fetched, self.number, range.start);
        let bytes = blocks.cache.expect_fetched(room).map_err(|error| FetchError::Failed(error.to_string()))?;
        Ok(Run { key, range, bytes, ahead: None })
    }

    /// Returns the range to request for `part`, including what is fetched ahead.
    fn wanted(&self, blocks: &Blocks, state: &mut State, part: &Range<u64>, ahead: u64) -> Range<u64> {
        let size = self.id().size;
        let (mut start, mut end) = (part.start / GRANULE * GRANULE, part.end.max(ahead));
        let is_small = size <= SMALL;
        if part.end > FRONT && is_small && !std::mem::replace(&mut state.is_read_beyond, true) {
            blocks.small.fetch_add(BEYOND, Relaxed);
        }
        if part.start < FRONT {
            end = end.max(FRONT);
            if !std::mem::replace(&mut state.has_front, true) && is_small {
                let lean = blocks.small.load(Relaxed).clamp(-BEYOND, LEAN);
                blocks.small.store(lean - 1, Relaxed);
                end = if lean > 0 { size } else { end };
            }
        } else if part.start >= size.saturating_sub(TAIL) && ahead <= part.end {
            // Some formats have their index there.
            (start, end) = (size.saturating_sub(TAIL) / GRANULE * GRANULE, size);
        }
        start..end.next_multiple_of(GRANULE).min(size)
    }

    /// Requests what is expected after a read of bytes that are in memory.
    fn go_ahead(&self, blocks: &Arc<Blocks>, range: &Range<u64>) {
        let mut state = self.state.lock();
        let ahead = state.streams.read(range, self.id().size);
        let wanted = self.wanted(blocks, &mut state, range, ahead);
        drop(state);
        if wanted.end > range.end.next_multiple_of(FRONT) {
            let on_disk = self.look_ahead(blocks, &wanted);
            // The reader has its bytes.
            let _ = self.start(blocks, &mut self.state.lock(), &wanted, range, &on_disk);
        }
    }

    /// Copies a part, which lies in one block, from memory, disk or server. Also requests the bytes up to `ahead`.
    fn read_part(&self, blocks: &Arc<Blocks>, part: Range<u64>, ahead: u64, out: &mut [u8]) -> Result<(), FetchError> {
        let mut state = self.state.lock();
        let wanted = self.wanted(blocks, &mut state, &part, ahead);
        let there = state.all_runs(&part);
        if let Some(runs) = &there
            && wanted.end <= part.end.next_multiple_of(FRONT)
        {
            drop(state);
            return copy(blocks, runs, &part, out);
        }
        drop(state);
        if there.is_none() && self.read_from_disk(blocks, &part, out) {
            blocks.counters.bytes_from_disk.fetch_add(out.len() as u64, Relaxed);
            // The next bytes are probably on disk too. If not, they are requested when one of them is read.
            self.look_ahead(blocks, &(part.end..wanted.end.max(part.end)));
            return Ok(());
        }
        let on_disk = self.look_ahead(blocks, &wanted);
        let mut state = self.state.lock();
        if there.is_none() {
            state.streams.lost(part.end);
        }
        let runs = self.start(blocks, &mut state, &wanted, &part, &on_disk);
        drop(state);
        copy(blocks, &runs?, &part, out)
    }

    /// Reads a part from memory and disk. Returns `false` if bytes are in neither.
    fn read_from_disk(&self, blocks: &Arc<Blocks>, part: &Range<u64>, out: &mut [u8]) -> bool {
        let id = self.id();
        if blocks.disk_for(id).is_none() {
            return false;
        }
        let mut at = part.start;
        while at < part.end {
            let run = self.state.lock().run(at);
            if let Some(run) = run.filter(|run| run.is_ready(part.end.min(run.range.end))) {
                let end = part.end.min(run.range.end);
                let out = &mut out[(at - part.start) as usize..(end - part.start) as usize];
                if run.copy(blocks, at, out).is_err() {
                    return false;
                }
                at = end;
                continue;
            }
            let Some(end) = self.read_unit(blocks, at, part, out) else { return false };
            at = end;
        }
        true
    }

    /// Reads bytes from `at` on from the first unit that the disk has. Returns where they end.
    fn read_unit(&self, blocks: &Arc<Blocks>, at: u64, part: &Range<u64>, out: &mut [u8]) -> Option<u64> {
        let id = self.id();
        for unit in kept::units(at, id.size) {
            if self.state.lock().kept.get(&unit) == Some(&false) {
                continue;
            }
            let end = part.end.min(unit.end);
            let out = &mut out[(at - part.start) as usize..(end - part.start) as usize];
            // Bytes around a small part are read too: they are probably wanted next.
            let around = match unit.end - unit.start {
                ..=FRONT => unit.clone(),
                _ => at / GRANULE * GRANULE..end.next_multiple_of(GRANULE).min(unit.end),
            };
            let is_there = if end - at >= GRANULE {
                blocks.read_kept(id, &unit, at, out)
            } else {
                let mut bytes = vec![0; (around.end - around.start) as usize];
                blocks.read_kept(id, &unit, around.start, &mut bytes) && {
                    let from = (at - around.start) as usize;
                    out.copy_from_slice(&bytes[from..from + out.len()]);
                    if let Ok(run) = self.new_run(blocks, around.clone(), blocks.cache.take(bytes.len() as u64)) {
                        run.bytes.add(&bytes);
                        self.state.lock().add(&run);
                        blocks.cache.keep_fetched(run.key, &run.bytes);
                    }
                    true
                }
            };
            self.state.lock().note_kept(&unit, is_there);
            if is_there {
                return Some(end);
            }
        }
        None
    }

    /// Returns the units of a wanted range that are on disk. The disk begins to read them.
    fn look_ahead(&self, blocks: &Arc<Blocks>, wanted: &Range<u64>) -> Vec<Unit> {
        let id = self.id();
        if blocks.disk_for(id).is_none() {
            return Vec::new();
        }
        let starts = (wanted.start / BLOCK * BLOCK..wanted.end).step_by(BLOCK as usize);
        let front = (wanted.start < FRONT).then(|| 0..FRONT.min(id.size));
        // Small parts are kept one by one.
        let is_small = wanted.end.saturating_sub(wanted.start) <= BLOCK;
        let granules = if is_small { wanted.start / GRANULE * GRANULE..wanted.end } else { 0..0 };
        let granules = granules.step_by(GRANULE as usize).map(|start| start..(start + GRANULE).min(id.size));
        let blocks_of = starts.map(|start| kept::block(start, id.size));
        let mut found: Vec<Unit> = blocks_of.chain(front).chain(granules).collect();
        found.retain(|unit| {
            let known = self.state.lock().kept.get(unit).copied();
            known.unwrap_or_else(|| {
                let is_there = blocks.read_ahead(id, unit);
                self.state.lock().note_kept(unit, is_there);
                is_there
            })
        });
        found
    }

    /// Requests the missing bytes of a range: all of `demanded`, and of the rest what is not on disk, as far as there is
    /// memory. Returns the runs that cover `demanded`.
    ///
    /// # Errors
    /// If the system has no memory for them.
    fn start(
        &self,
        blocks: &Arc<Blocks>,
        state: &mut State,
        wanted: &Range<u64>,
        demanded: &Range<u64>,
        on_disk: &[Unit],
    ) -> Result<Vec<Run>, FetchError> {
        let is_demanded = |range: &Range<u64>| range.start < demanded.end && range.end > demanded.start;
        // Requests begin at multiples of their size, as servers divide large objects, unless that makes two of a short
        // one; a small object is one request.
        let request = if self.id().size <= SMALL { SMALL } else { request_size(wanted.end - wanted.start) };
        let (mut demanded_runs, mut new): (Vec<Run>, Vec<Run>) = (Vec::new(), Vec::new());
        let mut at = wanted.start;
        let mut failed = None;
        while at < wanted.end {
            if let Some(run) = state.run(at) {
                at = run.range.end;
                if is_demanded(&run.range) {
                    demanded_runs.push(run);
                }
                continue;
            }
            let end = kept::block(at, self.id().size).end.min(wanted.end);
            // Up to the next run in memory, but at least one granule.
            let mut granules = (at + GRANULE..end).step_by(GRANULE as usize);
            let mut end = granules.find(|next| state.run(*next).is_some()).unwrap_or(end);
            // Expected bytes share the run of demanded bytes if there is memory for both.
            let mut room = None;
            // A short run is cheap.
            if is_demanded(&(at..end)) && demanded.end.next_multiple_of(GRANULE) < end && end - at > FRONT {
                room = blocks.try_take(end - at);
                if room.is_none() {
                    end = demanded.end.next_multiple_of(GRANULE);
                }
            }
            let range = at..end;
            at = end;
            let room = match is_demanded(&range) {
                true => room.unwrap_or_else(|| blocks.cache.take(range.end - range.start)),
                false if are_in(on_disk, &range) => continue,
                false => match blocks.try_take(range.end - range.start) {
                    Some(room) => room,
                    // Demanded bytes may follow.
                    None if range.end <= demanded.start => continue,
                    None => break,
                },
            };
            let mut run = match self.new_run(blocks, range, room) {
                Ok(run) => run,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            if is_demanded(&run.range) {
                demanded_runs.push(run.clone());
            } else {
                run.ahead = Some(blocks.ahead.add(run.len()));
                blocks.counters.bytes_ahead.fetch_add(run.len(), Relaxed);
            }
            state.add(&run);
            let follows = new.last().is_some_and(|last: &Run| last.range.end == run.range.start);
            let length = new.first().map_or(0, |first: &Run| run.range.start - first.range.start);
            let is_full = run.range.start.is_multiple_of(request) && length >= request / 2;
            if !new.is_empty() && (!follows || is_full) {
                self.ask(blocks, std::mem::take(&mut new));
            }
            new.push(run);
        }
        if !new.is_empty() {
            self.ask(blocks, new);
        }
        failed.map_or(Ok(demanded_runs), Err)
    }

    /// Requests consecutive runs in one request.
    fn ask(&self, blocks: &Arc<Blocks>, runs: Vec<Run>) {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return };
        let range = first.range.start..last.range.end;
        runs.iter().for_each(|run| blocks.cache.keep_fetched(run.key, &run.bytes));
        let (fetch, blocks, file) = (self.fetch.clone(), blocks.clone(), self.own.clone());
        let runtime = blocks.runtime.clone();
        runtime.spawn(async move {
            // If the runtime ends, it is dropped without an answer and wakes the waiting readers.
            let mut filling = Filling { runs, at: 0, cache: blocks.cache.clone() };
            let mut came = 0;
            let mut sink = |bytes: bytes::Bytes| {
                came += bytes.len() as u64;
                filling.push(&bytes);
            };
            let answer = fetch.fetch(range, &mut sink).await;
            let error = match answer {
                Ok(()) if filling.is_full() => None,
                Ok(()) => Some(FetchError::Failed(format!("{}: fewer bytes than were asked for", fetch.id().store))),
                Err(error) => Some(error),
            };
            let file = file.upgrade();
            if let Some(error) = error {
                if matches!(error, FetchError::Changed | FetchError::Gone)
                    && let Some(file) = &file
                {
                    file.has_changed.store(true, Relaxed);
                }
                filling.fail(&error);
            }
            let runs: Vec<Run> = filling.runs.iter().filter(|run| run.bytes.whole().is_some()).cloned().collect();
            match file {
                Some(file) => file.finished(&blocks, &runs),
                None => runs.iter().for_each(|run| drop(blocks.store(fetch.id(), run))),
            }
            // Counted last, so that who sees the count finds the bytes on their way to disk.
            blocks.counters.fetched_bytes.fetch_add(came, Relaxed);
        });
    }

    /// Queues complete runs for writing to disk, and the blocks that they complete.
    fn finished(&self, blocks: &Arc<Blocks>, runs: &[Run]) {
        let id = self.id();
        if blocks.disk_for(id).is_none() {
            return;
        }
        for run in runs {
            let block = kept::block(run.range.start, id.size);
            let parts = match run.range == block {
                true => None,
                false if self.state.lock().kept.get(&block) == Some(&true) => continue,
                false => self.state.lock().all_runs(&block),
            };
            let whole = parts.filter(|parts| {
                let fit = parts.first().is_some_and(|first| first.range.start == block.start)
                    && parts.last().is_some_and(|last| last.range.end == block.end);
                fit && parts.iter().all(|part| part.bytes.whole().is_some())
            });
            match whole {
                Some(parts) => {
                    let is_taken = blocks.store_block(id, &block, &parts).unwrap_or(false);
                    self.state.lock().note_kept(&block, is_taken);
                }
                None => {
                    let units = blocks.store(id, run);
                    let mut state = self.state.lock();
                    units.iter().for_each(|unit| state.note_kept(unit, true));
                }
            }
        }
    }
}

/// Returns whether units hold all bytes of a range that begins with a granule.
fn are_in(units: &[Unit], range: &Range<u64>) -> bool {
    let mut granules = (range.start..range.end).step_by(GRANULE as usize);
    granules.all(|start| {
        let end = (start + GRANULE).min(range.end);
        units.iter().any(|unit| unit.start <= start && end <= unit.end)
    })
}

/// Copies a part out of the runs that hold it, each as it comes.
fn copy(blocks: &Blocks, runs: &[Run], part: &Range<u64>, out: &mut [u8]) -> Result<(), FetchError> {
    let has_waited = runs.iter().any(|run| !run.is_ready(part.end.min(run.range.end)));
    let counters = &blocks.counters;
    let counter = if has_waited { &counters.bytes_waited_for } else { &counters.bytes_from_memory };
    counter.fetch_add(out.len() as u64, Relaxed);
    let mut at = part.start;
    for run in runs {
        let end = part.end.min(run.range.end);
        if run.range.start <= at && at < end {
            run.copy(blocks, at, &mut out[(at - part.start) as usize..(end - part.start) as usize])?;
            at = end;
        }
    }
    // No byte of `out` may be left as it was.
    match at == part.end {
        true => Ok(()),
        false => Err(FetchError::Failed(format!("the bytes from {at} on were not fetched"))),
    }
}

/// Runs that one request fills, in order.
struct Filling {
    runs: Vec<Run>,
    at: usize,
    cache: Arc<Cache>,
}

impl Filling {
    fn push(&mut self, mut bytes: &[u8]) {
        while let Some(run) = self.runs.get(self.at).filter(|_| !bytes.is_empty()) {
            let taken = run.bytes.add(bytes);
            bytes = &bytes[taken..];
            if run.bytes.whole().is_some() {
                self.at += 1;
                self.cache.note_complete();
            } else if taken == 0 {
                break;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.at == self.runs.len()
    }

    fn fail(&self, error: &FetchError) {
        self.runs
            .iter()
            .filter(|run| run.bytes.whole().is_none())
            .for_each(|run| self.cache.fail_fetched(run.key, &run.bytes, error.clone().into()));
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if !self.is_full() {
            self.fail(&FetchError::Failed("the request was given up".into()));
        }
    }
}

impl Source for RemoteFile {
    fn len(&self) -> u64 {
        self.id().size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        let size = self.id().size;
        let end = offset.saturating_add(buf.len() as u64);
        check_range(&(offset..end), size)?;
        self.check_unchanged(wait)?;
        let blocks = self.blocks.upgrade().ok_or(SourceError::Changed)?;
        if wait == Wait::Never {
            // The runs are held until they are copied, so that no eviction makes this wait.
            let runs = self.state.lock().all_runs(&(offset..end));
            let runs = runs.filter(|runs| runs.iter().all(|run| run.is_ready(end.min(run.range.end))));
            let runs = runs.ok_or(SourceError::WouldBlock)?;
            self.go_ahead(&blocks, &(offset..end));
            return Ok(copy(&blocks, &runs, &(offset..end), buf)?);
        }
        let ahead = self.state.lock().streams.read(&(offset..end), size);
        let mut at = offset;
        while at < end {
            let stop = end.min(kept::block(at, size).end);
            let out = &mut buf[(at - offset) as usize..(stop - offset) as usize];
            // The whole read is requested while its first part is copied.
            let ahead = end.min(at.saturating_add(MOST_AHEAD)).max(ahead);
            self.read_part(&blocks, at..stop, ahead, out)?;
            at = stop;
        }
        Ok(())
    }

    fn check_unchanged(&self, _: Wait) -> Result<(), SourceError> {
        if self.has_changed.load(Relaxed) { Err(SourceError::Changed) } else { Ok(()) }
    }

    fn shared(&self, range: &Range<u64>) -> Option<(SharedBytes, Range<usize>)> {
        self.check_unchanged(Wait::Never).ok()?;
        let blocks = self.blocks.upgrade()?;
        let run = self.state.lock().run(range.start)?;
        let whole = run.bytes.whole().filter(|_| range.end <= run.range.end && !range.is_empty())?;
        run.note_read(&blocks, range.end - range.start);
        self.go_ahead(&blocks, range);
        blocks.counters.bytes_from_memory.fetch_add(range.end - range.start, Relaxed);
        let part = (range.start - run.range.start) as usize..(range.end - run.range.start) as usize;
        Some((whole, part))
    }

    fn state_key(&self) -> Option<[u8; 32]> {
        let id = self.id();
        let is_certain = kept::tells_states_apart(id);
        is_certain.then(|| Sha256::digest([b"object\0", &kept::key(id, &(0..0))[..]].concat()).into())
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        let Some(blocks) = self.blocks.upgrade() else { return };
        let size = self.id().size;
        let mut left = MOST_AHEAD;
        for range in ranges {
            let range = range.start.min(size)..range.end.min(size);
            let length = range.end - range.start.min(range.end);
            if length == 0 || left == 0 {
                continue;
            }
            let mut state = self.state.lock();
            let most = left.min(length);
            let end = match length >= BLOCK {
                true => state.streams.expect(&range, most),
                // A small array is one read in however many pieces it comes, so nothing behind it is fetched.
                false if ranges.len() == 1 => state.streams.read(&range, size),
                false => range.start + most,
            };
            left -= most;
            drop(state);
            let wanted = range.start / GRANULE * GRANULE..end.next_multiple_of(GRANULE).min(size);
            let on_disk = self.look_ahead(&blocks, &wanted);
            let _ = self.start(&blocks, &mut self.state.lock(), &wanted, &(0..0), &on_disk);
        }
    }
}
