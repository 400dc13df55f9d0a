//! Decoded blocks: one budget in bytes, each block decoded once however many readers want it.
//!
//! A block of up to [`limits::WHOLE_BLOCK`] is decoded and checked before anybody sees a byte of it. A larger block of
//! a codec that streams is decoded by a thread of its own, piece by piece, and readers take each piece as it comes; the
//! last piece is held back until the checksum is known. Uncompressed blocks are never copied here: for them the cache
//! remembers only whether their checksum was right.
//!
//! Where the kernel serves finished files by itself, these are in the same cache: the decoder writes into a
//! [`MemoryFile`] in place of the heap, and its bytes count against the same budget. A file that the kernel holds open
//! is not given up.

mod buffer;
mod decode;
mod slot;

pub use buffer::{Buffer, trim_heap};
use decode::Pieces;
pub(crate) use decode::{Stored, inflate};
pub use slot::{Piece, Slot};

use std::{
    collections::HashSet,
    num::NonZeroUsize,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::{Condvar, Mutex};

use crate::{
    codec::{Codec, DecodeError},
    format::Block,
    limits,
    memfd::MemoryFile,
    source::{Source, SourceError},
};

/// When checksums are verified (`docs/TREE.md`, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum Verify {
    /// Blocks of up to 64 MiB before their first byte is handed out, larger ones while they are read.
    #[default]
    Lazy,
    /// Every block whole before its first byte.
    Strict,
    /// None.
    Off,
}

/// Why a block can't be served.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The stored bytes could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The stored bytes did not decode.
    #[error(transparent)]
    Decode(DecodeError),
    /// The bytes are not those that the checksum was made over.
    #[error("checksum is 0x{computed:08x}, the index says 0x{stored:08x}")]
    Checksum {
        /// The container's value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A chunk of a joined episode failed.
    #[error("chunk {uri}, {path}: {error}")]
    Chunk {
        /// The chunk's file, as the manifest names it.
        uri: Box<str>,
        /// The array's path in the chunk.
        path: String,
        /// What was wrong.
        error: Arc<Self>,
    },
    /// The format says that this block can't be served.
    #[error("{0}")]
    Refused(String),
}

impl From<DecodeError> for BlockError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Source(error) => Self::Source(error),
            error => Self::Decode(error),
        }
    }
}

/// A block in the cache: which container (a number of its own for each state of each file), which block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The opened container.
    pub container: u64,
    /// The block's number in it, or where it stands.
    pub block: u64,
}

impl Key {
    /// The file of an inode number, as a whole. Containers are counted up and never get this number.
    pub fn file(ino: u64) -> Self {
        Self { container: u64::MAX, block: ino }
    }

    /// What a container's `container.json` says. No block has this number.
    pub fn description(container: u64) -> Self {
        Self { container, block: u64::MAX }
    }

    fn is_file(self) -> bool {
        self.container == u64::MAX
    }
}

/// What a verdict or an empty block counts against the budget.
const OVERHEAD: u64 = 256;

/// Counters since the start, for `stats.json`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests answered by a block that was there or being decoded.
    pub hits: AtomicU64,
    /// Blocks decoded or checked.
    pub misses: AtomicU64,
    /// Blocks given up for others.
    pub evictions: AtomicU64,
    /// Bytes decoded.
    pub decoded_bytes: AtomicU64,
    /// Nanoseconds that decoding and checking took, all threads together.
    pub decode_nanos: AtomicU64,
    /// Nanoseconds of the slowest block.
    pub slowest_nanos: AtomicU64,
    /// Files that were finished in memory.
    pub files_finished: AtomicU64,
}

impl Counters {
    fn took(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.decode_nanos.fetch_add(nanos, Relaxed);
        self.slowest_nanos.fetch_max(nanos, Relaxed);
    }
}

/// The cache.
#[derive(Debug)]
pub struct Cache {
    budget: u64,
    verify: Verify,
    state: Mutex<State>,
    /// Signalled when a block is finished, so that somebody who waits for room can look again.
    finished: Condvar,
    /// Whether whoever reads keeps what was read.
    reader_keeps: AtomicBool,
    /// Containers of which a block failed when some of it may have been handed out already.
    late_failures: Mutex<HashSet<u64>>,
    /// What happened so far.
    pub counters: Counters,
}

#[derive(Debug)]
struct State {
    slots: LruCache<Key, Arc<Slot>>,
    /// Bytes of all slots, those being decoded included.
    used: u64,
    /// How many of them are files in memory, and their bytes.
    files: usize,
    file_bytes: u64,
}

impl State {
    /// Books a slot that came or went.
    fn book(&mut self, key: Key, slot: &Slot, came: bool) {
        let files = usize::from(key.is_file());
        let file_bytes = if key.is_file() { slot.cost } else { 0 };
        if came {
            (self.used, self.files, self.file_bytes) =
                (self.used + slot.cost, self.files + files, self.file_bytes + file_bytes);
        } else {
            (self.used, self.files, self.file_bytes) =
                (self.used - slot.cost, self.files - files, self.file_bytes - file_bytes);
        }
    }
}

impl Cache {
    /// A cache of at most `budget` bytes.
    pub fn new(budget: u64, verify: Verify) -> Arc<Self> {
        Arc::new(Self {
            budget,
            verify,
            state: Mutex::new(State { slots: LruCache::unbounded(), used: 0, files: 0, file_bytes: 0 }),
            finished: Condvar::new(),
            reader_keeps: AtomicBool::new(false),
            late_failures: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// The budget in bytes, and how much of it is taken.
    pub fn usage(&self) -> (u64, u64) {
        (self.budget, self.state.lock().used)
    }

    /// Files in memory: how many, and their bytes.
    pub fn files(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.files, state.file_bytes)
    }

    /// Says that whoever reads keeps what was read (a kernel does): a block that was handed out from end to end is
    /// then given up at once, for it would only be there twice.
    pub fn reader_keeps(&self) {
        self.reader_keeps.store(true, Relaxed);
    }

    /// Notes that bytes of a decoded block were handed out.
    pub fn handed_out(&self, key: Key, size: u64, bytes: u64) {
        if !self.reader_keeps.load(Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let Some(slot) = state.slots.peek(&key) else { return };
        // A small block costs little, and stands for files that share it.
        if slot.hand_out(bytes) >= size && size > limits::PIECE as u64 && slot.is_done() {
            self.drop_slot(&mut state, key);
        }
    }

    /// Whether since the last call a block of this container failed of which some bytes may have been handed out
    /// before.
    pub fn failed_late(&self, container: u64) -> bool {
        self.late_failures.lock().remove(&container)
    }

    /// Whether more than half of a decoded block was handed out: then it is being read from end to end.
    pub fn is_mostly_read(&self, key: Key, size: u64) -> bool {
        self.state.lock().slots.peek(&key).is_some_and(|slot| slot.hand_out(0) > size / 2)
    }

    /// Begins to decode a block that somebody will want soon, if there is room for it that nobody uses.
    pub fn decode_ahead(self: &Arc<Self>, key: Key, block: &Block, source: &Arc<dyn Source>) {
        let state = self.state.lock();
        if state.slots.contains(&key) || state.used.saturating_add(block.size + OVERHEAD) > self.budget {
            return;
        }
        drop(state);
        let (cache, block, source) = (self.clone(), *block, source.clone());
        // Whoever wants it gets the error, if it is one.
        blocking::unblock(move || drop(cache.slot(key, &block, &source))).detach();
    }

    fn drop_slot(&self, state: &mut State, key: Key) {
        if let Some(slot) = state.slots.pop(&key) {
            state.book(key, &slot, false);
            slot.give_up();
        }
        self.finished.notify_all();
    }

    /// The file in memory of an inode: growing, finished, or known to fail.
    pub fn file(&self, ino: u64) -> Option<Arc<Slot>> {
        self.state.lock().slots.get(&Key::file(ino)).cloned()
    }

    /// Makes room for a file in memory, which the caller then fills (`Slot::run`) and ends with [`Self::end_file`].
    /// `None` if it is there already, or there is no room for it now.
    pub fn start_file(&self, ino: u64, size: u64) -> Option<Arc<Slot>> {
        let (key, cost) = (Key::file(ino), size.next_multiple_of(4096).saturating_add(OVERHEAD));
        let mut state = self.state.lock();
        if size > self.largest_file() || state.slots.contains(&key) {
            return None;
        }
        self.make_room(&mut state, cost);
        if state.files >= limits::memory_files() {
            self.drop_oldest_file(&mut state);
        }
        if state.used.saturating_add(cost) > self.budget || state.files >= limits::memory_files() {
            return None;
        }
        let memory = MemoryFile::new(size).map_err(|error| log::debug!("a file in memory: {error}")).ok()?;
        let slot = Arc::new(Slot::of_file(cost, memory));
        state.book(key, &slot, true);
        state.slots.put(key, slot.clone());
        self.counters.misses.fetch_add(1, Relaxed);
        Some(slot)
    }

    /// Gives up the file in memory that was used longest ago, if one is neither open nor being filled: its descriptor
    /// is wanted for another.
    fn drop_oldest_file(&self, state: &mut State) {
        let is_idle =
            |(key, slot): &(&Key, &Arc<Slot>)| key.is_file() && slot.is_idle() && Arc::strong_count(slot) == 1;
        let oldest = state.slots.iter().rev().find(is_idle).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.drop_slot(state, key);
            self.counters.evictions.fetch_add(1, Relaxed);
        }
    }

    /// Ends what [`Self::start_file`] began. Of a file that failed nothing is kept: its readers go to its blocks, which
    /// say what is wrong.
    pub fn end_file(&self, ino: u64, slot: &Slot) {
        let mut state = self.state.lock();
        if slot.is_whole() {
            self.counters.files_finished.fetch_add(1, Relaxed);
            self.finished.notify_all();
        } else {
            self.drop_slot(&mut state, Key::file(ino));
        }
    }

    /// The largest file that is finished in memory: others must have room beside it.
    pub fn largest_file(&self) -> u64 {
        self.budget / 4
    }

    /// Decodes and checks a compressed block into a file in memory from `at` on, showing it to readers as it goes.
    ///
    /// # Errors
    /// [`BlockError`]; of the block nothing is then shown, or, where it comes in pieces, not its end.
    pub fn decode_to(
        &self,
        block: &Block,
        source: &Arc<dyn Source>,
        slot: &Slot,
        memory: &MemoryFile,
        at: u64,
    ) -> Result<(), BlockError> {
        block.codec.check_size(block.stored_size, block.size)?;
        let start = Instant::now();
        if self.in_pieces(block) {
            let mut pieces = Pieces::new(block, &**source, self.verify)?;
            // Copied there, out of one buffer: decoded there piece by piece, the file would not lie in large pages.
            let mut piece = Buffer::zeroed(limits::DECODED_PIECE).map_err(SourceError::from)?;
            let mut at = at;
            while pieces.next_size() > 0 {
                let piece = &mut piece[..pieces.next_size() as usize];
                pieces.fill(piece)?;
                memory.write(piece, at).map_err(SourceError::from)?;
                at += piece.len() as u64;
                slot.advance(at);
            }
        } else {
            memory
                .fill(at..at + block.size, |out| decode::into(block, &**source, self.verify, out))
                .map_err(SourceError::from)??;
            slot.advance(at + block.size);
        }
        self.counters.took(start.elapsed());
        self.counters.decoded_bytes.fetch_add(block.size, Relaxed);
        Ok(())
    }

    /// How checksums are verified.
    pub fn verify(&self) -> Verify {
        self.verify
    }

    /// Whether [`Self::piece`] or [`Self::check`] would answer without decoding, checking or waiting.
    pub fn is_ready(&self, key: Key, block: &Block, range: &Range<u64>) -> bool {
        if !self.needs_slot(block, range) {
            return true;
        }
        let slot = self.state.lock().slots.peek(&key).cloned();
        slot.is_some_and(|slot| slot.is_ready(range))
    }

    /// Makes sure that an uncompressed block may be handed out for `range`: its checksum is right, or this range need
    /// not wait for the verdict.
    ///
    /// # Errors
    /// [`BlockError`], the same one for everybody who asks.
    pub fn check(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
        range: &Range<u64>,
    ) -> Result<(), Arc<BlockError>> {
        if self.needs_slot(block, range) {
            return self.slot(key, block, source)?.wait_done();
        }
        // A verdict that is known holds for every range.
        let slot = self.state.lock().slots.peek(&key).cloned();
        slot.map_or(Ok(()), |slot| slot.failure())
    }

    /// The decoded piece of a compressed block that holds the byte at `offset`.
    ///
    /// # Errors
    /// [`BlockError`], the same one for everybody who asks.
    pub fn piece(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
        offset: u64,
    ) -> Result<Piece, Arc<BlockError>> {
        loop {
            let slot = self.slot(key, block, source)?;
            if let Some(piece) = slot.piece(offset)? {
                return Ok(piece);
            }
            // A window that has moved on: from the front again, unless somebody else has done that already.
            let mut state = self.state.lock();
            if state.slots.peek(&key).is_some_and(|now| Arc::ptr_eq(now, &slot)) {
                self.drop_slot(&mut state, key);
            }
        }
    }

    /// Whether serving `range` depends on this block's slot at all.
    fn needs_slot(&self, block: &Block, range: &Range<u64>) -> bool {
        if block.codec != Codec::None {
            return true;
        }
        let early = block.size > limits::WHOLE_BLOCK && range.end < block.size;
        match self.verify {
            Verify::Off => false,
            Verify::Lazy => block.crc.is_some() && !early,
            Verify::Strict => block.crc.is_some(),
        }
    }

    /// Whether a compressed block is shown piece by piece: decoding it takes so long that nobody should wait for all of
    /// it.
    pub fn in_pieces(&self, block: &Block) -> bool {
        // A zlib stream ends with a checksum of its own.
        let is_checked = block.crc.is_some() || block.codec == Codec::Zlib;
        let strict = self.verify == Verify::Strict && is_checked;
        block.codec.is_stream() && block.size > limits::WHOLE_BLOCK && !strict
    }

    /// How much is kept of a block that has no room beside others: shown piece by piece, it is decoded only so far
    /// ahead of its readers, and again from the front for one who goes back.
    fn window(&self, block: &Block) -> Option<u64> {
        let is_large = self.in_pieces(block) && block.size > self.budget / 2;
        is_large.then_some((self.budget / 4).max(limits::SMALLEST_WINDOW))
    }

    /// Finds the block, or decodes it; waits for room where others hold it.
    fn slot(self: &Arc<Self>, key: Key, block: &Block, source: &Arc<dyn Source>) -> Result<Arc<Slot>, Arc<BlockError>> {
        block.codec.check_size(block.stored_size, block.size).map_err(|e| Arc::new(e.into()))?;
        let window = self.window(block);
        let cost = OVERHEAD + if block.codec == Codec::None { 0 } else { window.unwrap_or(block.size) };
        let (slot, is_new) = self.enter(key, cost, window);
        if !is_new {
            return Ok(slot);
        }
        if self.in_pieces(block) {
            let (cache, slot, block, source) = (self.clone(), slot.clone(), *block, source.clone());
            let spawned = std::thread::Builder::new().name("decode".into()).spawn({
                let slot = slot.clone();
                move || {
                    let start = Instant::now();
                    let show_pieces = || {
                        let mut pieces = Pieces::new(&block, &*source, cache.verify)?;
                        while let Some(piece) = pieces.next()? {
                            slot.push(piece, || _ = cache.finished.notify_all())?;
                        }
                        Ok(())
                    };
                    slot.run(|| show_pieces().inspect_err(|_| cache.note_late_failure(key)));
                    cache.counters.took(start.elapsed());
                    cache.forget_passing_failure(key, &slot);
                    cache.wake(&slot, block.size);
                }
            });
            if let Err(error) = spawned {
                slot.run(|| Err(BlockError::Source(error.into())));
                self.forget_passing_failure(key, &slot);
                self.wake(&slot, 0);
            }
        } else {
            let start = Instant::now();
            let is_late = |_: &BlockError| {
                if block.size > limits::WHOLE_BLOCK {
                    self.note_late_failure(key);
                }
            };
            slot.run(|| decode::whole(block, &**source, self.verify, &slot).inspect_err(is_late));
            self.counters.took(start.elapsed());
            self.forget_passing_failure(key, &slot);
            self.wake(&slot, block.size);
        }
        Ok(slot)
    }

    /// The slot of a key, and whether it is new, so that the caller must fill it; waits for room where others hold it.
    fn enter(&self, key: Key, cost: u64, window: Option<u64>) -> (Arc<Slot>, bool) {
        let mut state = self.state.lock();
        loop {
            if let Some(slot) = state.slots.get(&key) {
                self.counters.hits.fetch_add(1, Relaxed);
                return (slot.clone(), false);
            }
            let busy = self.make_room(&mut state, cost);
            // What is still in the way is being decoded, or a file that the kernel holds, which is not waited for. A
            // block larger than the whole budget goes alone.
            if !busy || state.used.saturating_add(cost) <= self.budget {
                let slot = window.map_or_else(|| Slot::new(cost), |window| Slot::of_window(cost, window));
                let slot = Arc::new(slot);
                state.book(key, &slot, true);
                state.slots.put(key, slot.clone());
                self.counters.misses.fetch_add(1, Relaxed);
                return (slot, true);
            }
            // A decoder that comes to wait for its readers does not take the lock to say so.
            self.finished.wait_for(&mut state, Duration::from_millis(50));
        }
    }

    /// Bytes that are made of a container's, `size` of them: made once, under the same budget. `make` must not ask the
    /// cache for anything, for it may be waiting for the room that is held here.
    ///
    /// # Errors
    /// [`BlockError`], the same one for everybody who asks.
    pub fn made(
        &self,
        key: Key,
        size: u64,
        make: impl FnOnce() -> Result<Vec<u8>, BlockError>,
    ) -> Result<Arc<Buffer>, Arc<BlockError>> {
        let (slot, is_new) = self.enter(key, OVERHEAD.saturating_add(size), None);
        if is_new {
            slot.run(|| slot.push(make()?.into(), || ()));
            self.forget_passing_failure(key, &slot);
            self.wake(&slot, size);
        }
        slot.whole()
    }

    /// Keeps what was made of a container's bytes for the next who wants it, unless all the room is taken by blocks
    /// that are being decoded: it can be made again.
    pub fn keep(&self, key: Key, bytes: Buffer) -> Arc<Buffer> {
        let bytes = Arc::new(bytes);
        let cost = OVERHEAD.saturating_add(bytes.len() as u64);
        let slot = Arc::new(Slot::of_bytes(cost, bytes.clone()));
        let mut state = self.state.lock();
        self.drop_slot(&mut state, key);
        if !self.make_room(&mut state, cost) || state.used.saturating_add(cost) <= self.budget {
            state.book(key, &slot, true);
            state.slots.put(key, slot);
        }
        bytes
    }

    /// What [`Self::made`] would give without making anything or waiting.
    pub fn at_hand(&self, key: Key) -> Option<Result<Arc<Buffer>, Arc<BlockError>>> {
        let slot = self.state.lock().slots.get(&key).cloned().filter(|slot| slot.is_done())?;
        Some(slot.whole())
    }

    /// Gives up what was not used for longest until `cost` fits or only blocks being decoded and files that somebody
    /// holds are left. Whether any of those left is being decoded.
    fn make_room(&self, state: &mut State, cost: u64) -> bool {
        let mut kept = Vec::new();
        while state.used.saturating_add(cost) > self.budget {
            let Some((key, slot)) = state.slots.pop_lru() else { break };
            if !slot.is_idle() || key.is_file() && Arc::strong_count(&slot) > 1 {
                kept.push((key, slot));
            } else {
                state.book(key, &slot, false);
                slot.give_up();
                self.counters.evictions.fetch_add(1, Relaxed);
            }
        }
        let busy = kept.iter().any(|(_, slot)| !slot.is_idle());
        for (key, slot) in kept {
            state.slots.put(key, slot);
        }
        busy
    }

    /// Bytes that could not be had and memory that was refused are no verdict on the block: whoever comes next tries
    /// again.
    fn forget_passing_failure(&self, key: Key, slot: &Arc<Slot>) {
        let Err(error) = slot.failure() else { return };
        if !matches!(&*error, BlockError::Source(_) | BlockError::Decode(DecodeError::Memory(_))) {
            return;
        }
        let mut state = self.state.lock();
        if state.slots.peek(&key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            // Not given up, which would send those who wait for it to try again at once, and for ever.
            state.slots.pop(&key);
            state.book(key, slot, false);
            self.finished.notify_all();
        }
    }

    /// Notes that a block failed which is handed out while it is being decoded or checked.
    fn note_late_failure(&self, key: Key) {
        self.late_failures.lock().insert(key.container);
    }

    /// Tells those who wait for room that a block is finished.
    fn wake(&self, slot: &Slot, bytes: u64) {
        if slot.failure().is_ok() {
            self.counters.decoded_bytes.fetch_add(bytes, Relaxed);
        }
        drop(self.state.lock());
        self.finished.notify_all();
    }

    /// Forgets what is known of a container that is no longer open.
    pub fn forget(&self, container: u64) {
        let mut state = self.state.lock();
        let keys: Vec<Key> = state.slots.iter().map(|(key, _)| *key).filter(|key| key.container == container).collect();
        for key in keys {
            if state.slots.peek(&key).is_some_and(|slot| slot.is_done()) {
                self.drop_slot(&mut state, key);
            }
        }
    }
}

/// A sensible share of this machine's memory: an eighth, between 64 MiB and 4 GiB.
pub fn default_budget() -> u64 {
    const MIB: u64 = 1 << 20;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse::<u64>().ok());
    (kib.unwrap_or(0) * 1024 / 8).clamp(64 * MIB, 4096 * MIB)
}

/// A count known not to be zero, for the LRUs of this crate.
pub(crate) fn nonzero(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests;
