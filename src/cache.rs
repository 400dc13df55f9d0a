//! Decoded blocks: one budget in bytes, each block decoded once however many readers want it.
//!
//! A block of up to [`limits::WHOLE_BLOCK`] is decoded and checked before a reader gets a byte of it. A larger block of
//! a codec that streams is decoded by a thread of its own, piece by piece, and readers take each piece as it comes; the
//! last piece is held back until the checksum is known. Uncompressed blocks are never copied here: for them the cache
//! remembers only whether their checksum was right.
//!
//! Where the kernel serves finished files by itself, these are in the same cache ([`FileSlot`]): the decoder writes
//! into a file in memory in place of the heap, and its bytes count against the same budget. A file that the kernel
//! holds open is not evicted.
//!
//! Decoded blocks may be kept on a local disk too ([`Spill`]), where those that have no room here are found again.
//!
//! All memory in proportion to what files hold is reserved from one [`Budget`] before it is taken ([`Cache::reserve`],
//! [`Cache::buffer`]): decoded blocks, stored bytes, windows of zstd, indexes, and what opening a container needs.

mod budget;
mod buffer;
mod decode;
mod entries;
mod file;
mod files;
mod key;
mod ready;
mod slot;
mod spill;
mod sums;
mod sync;

pub use budget::{Budget, Reservation, TooMuch};
pub use buffer::{Buffer, limit_heap, trim_heap};
use decode::Pieces;
pub(crate) use decode::Stored;
use entries::{Entries, Entry, InUse};
use file::FileCount;
pub use file::FileSlot;
pub use key::{ColumnPart, Key};
pub use slot::Piece;
use slot::{OVERHEAD, Slot};

pub use spill::{Spill, SpillOptions};

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    ops::{Deref, Range},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;
use sums::Sums;

use crate::{
    codec::{Codec, DecodeError},
    format::Block,
    limits,
    source::{Source, SourceError},
};

/// Large uncompressed blocks of which checksums of parts are remembered.
const SUMS: usize = 64;

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
    /// It would have to be decoded, checked or computed, and the caller does not wait for that.
    #[error("it would have to be waited for")]
    WouldBlock,
    /// The format says that this block can't be served.
    #[error("{0}")]
    Refused(String),
    /// It takes more memory than the budget allows.
    #[error(transparent)]
    Memory(#[from] TooMuch),
}

impl From<DecodeError> for BlockError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Source(error) => Self::Source(error),
            error => Self::Decode(error),
        }
    }
}

/// Counters since the start, for `stats.json`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests answered by a block that was there or being decoded.
    pub hits: AtomicU64,
    /// Blocks decoded or checked.
    pub misses: AtomicU64,
    /// Blocks evicted for others.
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

/// An entry of the cache.
#[derive(Debug, Clone)]
enum Cached {
    Bytes(Arc<Slot>),
    File(Arc<FileSlot>),
}

impl Cached {
    fn slot(&self) -> Option<&Arc<Slot>> {
        match self {
            Self::Bytes(slot) => Some(slot),
            Self::File(_) => None,
        }
    }
}

impl Entry for Cached {
    fn users(&self) -> &AtomicUsize {
        match self {
            Self::Bytes(slot) => slot.users(),
            Self::File(file) => &file.users,
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Bytes(slot) => slot.is_idle(),
            // Each user of a file holds it, and takes it under the lock that is held here.
            Self::File(file) => file.is_done() && Arc::strong_count(file) == 1,
        }
    }

    fn cost(&self) -> u64 {
        match self {
            Self::Bytes(slot) => slot.cost(),
            Self::File(file) => file.cost(),
        }
    }

    fn give_up(&self) {
        if let Self::Bytes(slot) = self {
            slot.give_up();
        }
    }
}

/// A slot that is not evicted while it is in use.
struct SlotInUse {
    slot: Arc<Slot>,
    _entry: InUse<Cached>,
}

impl Deref for SlotInUse {
    type Target = Arc<Slot>;

    fn deref(&self) -> &Arc<Slot> {
        &self.slot
    }
}

/// A piece of a decoded block, in use.
pub(crate) struct Lent {
    pub(crate) piece: Piece,
    key: Key,
    /// `None` for a piece that was read from the disk below.
    slot: Option<SlotInUse>,
}

/// What decoding a block takes, in bytes.
struct Needs {
    /// Bytes that are kept.
    kept: u64,
    /// Bytes that are taken beside them while it is decoded.
    working: u64,
    /// How many of these zstd may take as its window; 0 if the block is decoded in one go.
    zstd_window: u64,
}

impl Needs {
    fn all(&self) -> u64 {
        self.kept.saturating_add(self.working)
    }
}

/// See [`Cache::add_last_resort`].
#[derive(Default)]
struct LastResort(Mutex<Vec<GiveUp>>);

type GiveUp = Arc<dyn Fn() -> Option<bool> + Send + Sync>;

/// What is called when a block fails late.
pub(crate) type OnLateFailure = Arc<dyn Fn() + Send + Sync>;

/// Until it is dropped, late failures of a container's blocks are announced (`Cache::on_late_failure`).
pub struct LateFailures {
    cache: Arc<Cache>,
    container: u64,
}

impl Drop for LateFailures {
    fn drop(&mut self) {
        self.cache.late_failures.lock().remove(&self.container);
    }
}

/// The cache.
pub struct Cache {
    budget: Arc<Budget>,
    verify: Verify,
    entries: Entries<Key, Cached>,
    /// Whether a block is evicted before all others once all of it was handed out.
    readers_keep: AtomicBool,
    /// What is called for a container of which a block fails when some of it may have been handed out already.
    late_failures: Mutex<HashMap<u64, OnLateFailure>>,
    /// What is known of large uncompressed blocks whose verdict is not due yet.
    sums: Mutex<LruCache<Key, Sums>>,
    /// The files in memory.
    files: Arc<FileCount>,
    /// Decoded blocks on disk.
    spill: Option<Spill>,
    /// What gives up memory that others keep, where nothing cached is left to evict.
    last_resort: LastResort,
    /// What happened so far.
    pub counters: Counters,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("budget", &self.budget).field("verify", &self.verify).finish_non_exhaustive()
    }
}

impl Cache {
    /// A cache of at most `budget` bytes. What can't wait may take [`limits::BEYOND_BUDGET`] more.
    pub fn new(budget: u64, verify: Verify) -> Arc<Self> {
        Self::with_spill(budget, verify, None)
    }

    /// As [`Self::new`], with a disk below.
    pub fn with_spill(budget: u64, verify: Verify, spill: Option<Spill>) -> Arc<Self> {
        Self::with_bound(budget, budget.saturating_add(limits::BEYOND_BUDGET), verify, spill)
    }

    /// As [`Self::with_spill`], where what can't wait may take up to `most` bytes.
    pub fn with_bound(budget: u64, most: u64, verify: Verify, spill: Option<Spill>) -> Arc<Self> {
        let budget = Budget::new(budget, most);
        Arc::new(Self {
            entries: Entries::new(budget.clone()),
            budget,
            verify,
            readers_keep: AtomicBool::new(false),
            late_failures: Mutex::default(),
            sums: Mutex::new(LruCache::new(nonzero(SUMS))),
            files: Arc::default(),
            spill,
            last_resort: LastResort::default(),
            counters: Counters::default(),
        })
    }

    /// The budget in bytes, and how much of it is reserved.
    pub fn usage(&self) -> (u64, u64) {
        (self.budget.total(), self.budget.used())
    }

    /// The disk below, if there is one.
    pub fn spill(&self) -> Option<&Spill> {
        self.spill.as_ref()
    }

    /// Reserves memory before it is taken; evicts what is cached, and waits for others to finish where there is no
    /// room.
    ///
    /// A caller must hold no other reservation, nor anything that others need to finish (a lock, a place in a pool of
    /// few threads). Where it has to, because it finds out only later how much it needs, it says how many bytes it has
    /// with [`Self::reserve_more`], and gets room even beyond the budget before all wait for each other.
    ///
    /// # Errors
    /// [`TooMuch`] for more than the budget and [`limits::BEYOND_BUDGET`], or than is left of these beside what is
    /// held open.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, TooMuch> {
        self.reserve_more(bytes, 0)
    }

    /// As [`Self::reserve`], for a caller that has reserved `holding` bytes already and needs these too before it can
    /// give them back.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_more(&self, bytes: u64, holding: u64) -> Result<Reservation, TooMuch> {
        self.budget.reserve(bytes, holding, |short| self.evict(short))
    }

    /// Runs work that reserves memory in several steps: again from the start, having given back everything, where a
    /// later step finds no room beside what others hold.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn in_steps<T, E>(
        &self,
        refused: impl Fn(&E) -> Option<TooMuch>,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tries = limits::MEMORY_TRIES;
        loop {
            tries -= 1;
            let done = work();
            match done.as_ref().err().and_then(&refused) {
                // Waits until all of it has room at once.
                Some(refused) if tries > 0 && !refused.is_final => match self.reserve(refused.needed) {
                    Ok(room) => drop(room),
                    Err(_) => return done,
                },
                _ => return done,
            }
        }
    }

    /// Takes bytes of the budget for what is kept elsewhere, for as long as its owner pleases. Never waits.
    pub fn hold(&self, bytes: u64) -> Reservation {
        self.budget.reserve_small(bytes)
    }

    /// As [`Self::reserve`], or `None` where others are in the way.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        self.budget.try_reserve(bytes, |short| self.evict(short))
    }

    /// Evicts until about so many bytes come back. Whether anything was evicted.
    fn evict(&self, bytes: u64) -> bool {
        let evicted = self.entries.evict(bytes);
        self.counters.evictions.fetch_add(evicted as u64, Relaxed);
        evicted > 0 || self.give_up_kept()
    }

    /// Says how memory that others keep is given up when nothing cached is left to evict. `give_up` says whether it gave
    /// up anything, and `None` when it never will again.
    pub(crate) fn add_last_resort(&self, give_up: impl Fn() -> Option<bool> + Send + Sync + 'static) {
        self.last_resort.0.lock().push(Arc::new(give_up));
    }

    fn give_up_kept(&self) -> bool {
        // Called without the lock: what is given up may be large.
        let all = self.last_resort.0.lock().clone();
        all.iter().any(|give_up| match give_up() {
            Some(gave_up) => gave_up,
            None => {
                self.last_resort.0.lock().retain(|other| !Arc::ptr_eq(other, give_up));
                false
            }
        })
    }

    /// Zeros, for which room is reserved first, beside `holding` bytes that the caller has already.
    ///
    /// # Errors
    /// [`BlockError::Decode`] where there is no memory.
    pub fn buffer(&self, size: u64, holding: u64) -> Result<Buffer, BlockError> {
        let room = self.reserve_more(size, holding)?;
        Ok(decode::zeroed(size)?.with_room(room))
    }

    /// A DEFLATE or zlib block of any size in one piece, reserved first. Not kept.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(crate) fn inflate(&self, block: &Block, source: &dyn Source) -> Result<Buffer, BlockError> {
        let working = decode::working(block, 0);
        let mut room = self.reserve(block.size.saturating_add(working))?;
        let _working = room.split(working);
        Ok(decode::inflate(block, source)?.with_room(room))
    }

    /// Says that readers keep what they read (a kernel does): a block that was handed out from end to end is then the
    /// next to be evicted, for that file of it is there twice. Until there is need for its room it is kept, for other
    /// files that show it.
    pub fn set_readers_keep(&self) {
        self.readers_keep.store(true, Relaxed);
    }

    /// Counts bytes of a decoded block that were handed out.
    pub(crate) fn add_served(&self, lent: &Lent, bytes: u64) {
        let Some(slot) = &lent.slot else { return };
        if self.readers_keep.load(Relaxed) && slot.add_served(bytes, limits::PIECE as u64) {
            self.entries.demote(&lent.key, |entry| entry.is(slot));
        }
    }

    /// Has `call` called whenever a block of this container fails of which some bytes may have been handed out before.
    pub(crate) fn on_late_failure(self: &Arc<Self>, container: u64, call: OnLateFailure) -> LateFailures {
        self.late_failures.lock().insert(container, call);
        LateFailures { cache: self.clone(), container }
    }

    /// Whether more than half of a decoded block was handed out: then it is being read from end to end.
    pub fn is_mostly_read(&self, key: Key, size: u64) -> bool {
        self.peek(&key, |slot| slot.served() > size / 2).unwrap_or(false)
    }

    /// Begins to decode a block that will be wanted soon, if there is unused room for it.
    pub fn decode_ahead(self: &Arc<Self>, key: Key, block: &Block, source: &Arc<dyn Source>) {
        if self.peek(&key, |_| ()).is_some() || self.check_size(block).is_err() {
            return;
        }
        let needs = self.needs(block, &**source, 0);
        let Some(room) = self.budget.try_reserve(needs.all(), |_| false) else { return };
        let (slot, is_new) = self.acquire(key, self.window(block));
        if is_new {
            let (cache, block, source) = (self.clone(), *block, source.clone());
            // A reader gets the error, if it is one.
            blocking::unblock(move || cache.fill(key, &slot, &block, &source, &needs, Ok(room))).detach();
        }
    }

    /// How checksums are verified.
    pub fn verify(&self) -> Verify {
        self.verify
    }

    /// Whether a block was decoded or checked, or is known to be bad.
    pub fn is_decoded(&self, key: Key) -> bool {
        self.peek(&key, |slot| slot.is_done()).unwrap_or(false)
    }

    /// Makes sure that an uncompressed block may be handed out for `range`: its checksum is right, or this range need
    /// not wait for the verdict.
    ///
    /// # Errors
    /// [`BlockError`], the same one for all readers.
    pub fn check(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
        range: &Range<u64>,
    ) -> Result<(), Arc<BlockError>> {
        if self.needs_slot(block, range) {
            return self.slot(key, block, source, 0)?.wait_done();
        }
        // A verdict that is known holds for every range.
        self.known_failure(key, block)
    }

    /// Takes note of bytes of an uncompressed block that a reader was given, from `offset` in the block on.
    pub(crate) fn note_read(&self, key: Key, block: &Block, offset: u64, bytes: &[u8]) {
        let is_due_later = block.size > limits::WHOLE_BLOCK && block.crc.is_some() && self.verify == Verify::Lazy;
        if block.codec != Codec::None || !is_due_later || self.peek(&key, |_| ()).is_some() {
            return;
        }
        // Continuing a checksum costs less than putting two together.
        let before = self.sums.lock().get_or_insert_mut(key, Sums::default).take_until(offset);
        let (start, crc) = before.unwrap_or((offset, 0));
        let crc = crc32c::crc32c_append(crc, bytes);
        let length = offset - start + bytes.len() as u64;
        self.sums.lock().get_or_insert_mut(key, Sums::default).add(start, length, crc);
    }

    /// A decoded piece of a compressed block that holds the first byte of `range`, which must not be empty. It may end
    /// before the range does, unless that is the whole of a block that is not shown in pieces.
    ///
    /// # Errors
    /// [`BlockError`], the same one for all readers.
    pub fn piece(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
        range: &Range<u64>,
    ) -> Result<Piece, Arc<BlockError>> {
        self.lend(key, block, source, range).map(|lent| lent.piece)
    }

    /// As [`Self::piece`], in use until it is dropped.
    ///
    /// # Errors
    /// As [`Self::piece`].
    pub(crate) fn lend(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
        range: &Range<u64>,
    ) -> Result<Lent, Arc<BlockError>> {
        if let Some(piece) = self.spilled_part(key, block, source, range)? {
            return Ok(Lent { piece, key, slot: None });
        }
        let offset = range.start;
        let mut zstd_window = 0;
        loop {
            let slot = self.slot(key, block, source, zstd_window)?;
            match slot.piece(offset) {
                Ok(Some(piece)) => return Ok(Lent { piece, key, slot: Some(slot) }),
                // It was given up: from the front again.
                Ok(None) => {}
                // A later frame has a larger window than the first, for which room was reserved.
                Err(error) => match *error {
                    BlockError::Decode(DecodeError::Window(needed)) => zstd_window = needed,
                    _ => return Err(error),
                },
            }
            self.entries.remove(&key, |entry| entry.is(&slot));
        }
    }

    /// Fills `out`, which has the block's size, with all of a block: decoded and checked, or, where that needs no work,
    /// copied out of the cache. The block is not kept: for readers who keep it themselves.
    ///
    /// # Errors
    /// [`BlockError`]; `out` then holds anything.
    pub fn read_whole(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
        out: &mut [u8],
    ) -> Result<(), Arc<BlockError>> {
        if self.peek(&key, |slot| slot.is_done()).unwrap_or(false) && block.codec != Codec::None {
            let mut rest = out;
            let mut at = 0;
            while !rest.is_empty() {
                let piece = self.piece(key, block, source, &(at..block.size))?;
                let from = &piece.bytes[(at - piece.start) as usize..];
                let (here, after) = rest.split_at_mut(from.len().min(rest.len()));
                here.copy_from_slice(&from[..here.len()]);
                at += here.len() as u64;
                rest = after;
            }
            return Ok(());
        }
        let start = Instant::now();
        self.decode_into(block, source, out).map_err(Arc::new)?;
        self.counters.misses.fetch_add(1, Relaxed);
        self.counters.took(start.elapsed());
        self.counters.decoded_bytes.fetch_add(block.size, Relaxed);
        Ok(())
    }

    fn decode_into(&self, block: &Block, source: &Arc<dyn Source>, out: &mut [u8]) -> Result<(), BlockError> {
        self.check_size(block)?;
        if block.codec == Codec::None {
            return decode::read_into(block, &**source, self.verify, out);
        }
        if self.read_spilled(block, &**source, out) {
            return Ok(());
        }
        if block.codec == Codec::Zstd && block.size > limits::WHOLE_BLOCK {
            let _working = self.reserve(block.codec.working_memory(0))?;
            return decode::zstd_into(block, &**source, self.verify, out);
        }
        // What streams needs no more than a window beside the bytes that it makes.
        if block.size <= limits::WHOLE_BLOCK || !block.codec.is_stream() {
            let _working = self.reserve(decode::working(block, 0))?;
            return decode::into(block, &**source, self.verify, out);
        }
        self.stream_into(block, source, out)
    }

    fn stream_into(&self, block: &Block, source: &Arc<dyn Source>, mut out: &mut [u8]) -> Result<(), BlockError> {
        let _working = self.reserve(decode::working(block, 0))?;
        let mut pieces = Pieces::new(block, &**source, self.verify, 0)?;
        while pieces.next_size() > 0 {
            let (here, after) = out.split_at_mut(pieces.next_size() as usize);
            pieces.fill(here)?;
            out = after;
        }
        Ok(())
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

    /// Whether a compressed block is shown piece by piece: decoding it takes so long that no reader should wait for the
    /// whole.
    pub fn in_pieces(&self, block: &Block) -> bool {
        // A zlib stream ends with a checksum of its own.
        let is_checked = block.crc.is_some() || block.codec == Codec::Zlib;
        let strict = self.verify == Verify::Strict && is_checked;
        block.codec.is_stream() && block.size > limits::WHOLE_BLOCK && !strict
    }

    /// How much is kept of a block that has no room beside others: shown piece by piece, it is decoded only so far
    /// ahead of its readers, and again from the front for a reader that goes back.
    fn window(&self, block: &Block) -> Option<u64> {
        let is_large = self.in_pieces(block) && block.size > self.budget.total() / 2;
        is_large.then_some((self.budget.total() / 4).max(limits::SMALLEST_WINDOW))
    }

    /// What decoding a block takes, with a window of zstd that is no smaller than `least`.
    fn needs(&self, block: &Block, source: &dyn Source, least: u64) -> Needs {
        let zstd_window = if self.in_pieces(block) { decode::window(block, source).max(least) } else { 0 };
        let kept = if block.codec == Codec::None { 0 } else { self.window(block).unwrap_or(block.size) };
        Needs { kept, working: decode::working(block, zstd_window), zstd_window }
    }

    fn check_size(&self, block: &Block) -> Result<(), DecodeError> {
        block.codec.check_size(block.stored_size, block.size)
    }

    /// A slot of the cache, if it is there.
    fn peek<T>(&self, key: &Key, look: impl FnOnce(&Arc<Slot>) -> T) -> Option<T> {
        self.entries.peek(key, |entry| entry.slot().map(look)).flatten()
    }

    fn count_hit(&self) {
        self.counters.hits.fetch_add(1, Relaxed);
    }

    /// The slot of a key, and whether it is new, so that the caller must fill it.
    fn acquire(&self, key: Key, window: Option<u64>) -> (SlotInUse, bool) {
        let (entry, is_new) = self.entries.acquire(key, || Cached::Bytes(Slot::new(&self.budget, window)));
        if is_new {
            self.counters.misses.fetch_add(1, Relaxed);
        } else {
            self.count_hit();
        }
        match entry.slot().cloned() {
            Some(slot) => (SlotInUse { slot, _entry: entry }, is_new),
            // No file is kept under the key of a block.
            None => (SlotInUse { slot: Slot::new(&self.budget, window), _entry: entry }, true),
        }
    }

    /// Finds the block, or decodes it. The first reader reserves the memory; the others wait for the block and hold
    /// nothing. A stream of zstd gets a window of at least `zstd_window`.
    fn slot(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
        zstd_window: u64,
    ) -> Result<SlotInUse, Arc<BlockError>> {
        self.check_size(block).map_err(|e| Arc::new(e.into()))?;
        let (slot, is_new) = self.acquire(key, self.window(block));
        if is_new {
            let needs = self.needs(block, &**source, zstd_window);
            let room = match block.codec {
                // A verdict takes next to nothing, and files in memory wait for it: it does not wait.
                Codec::None => Ok(self.budget.reserve_small(0)),
                _ => self.reserve(needs.all()).map_err(BlockError::from),
            };
            self.fill(key, &slot, block, source, &needs, room);
        }
        Ok(slot)
    }

    /// Fills a new slot, in a thread of its own if readers are served meanwhile.
    fn fill(
        self: &Arc<Self>,
        key: Key,
        slot: &Arc<Slot>,
        block: &Block,
        source: &Arc<dyn Source>,
        needs: &Needs,
        room: Result<Reservation, BlockError>,
    ) {
        let mut room = match room {
            Ok(room) => room,
            Err(error) => return self.finish(key, slot, || Err(error)),
        };
        let working = room.split(needs.working);
        slot.set_room(room);
        // Bytes of smaller blocks are handed out when the whole is checked.
        let late = if block.size > limits::WHOLE_BLOCK { self.late_failure(key) } else { None };
        if !self.in_pieces(block) {
            let is_late = |_: &BlockError| late.iter().for_each(|announce| announce());
            let whole = || {
                let spilled = self.spilled(block, &**source);
                if let Some((spill, name)) = &spilled
                    && spill.has(name, 0)
                {
                    let mut bytes = decode::zeroed(block.size)?;
                    if spill.read(name, 0, &mut bytes) {
                        slot.push(bytes.with_room(self.room_for(slot, block.size, &working)?));
                        return Ok(0);
                    }
                }
                let start = Instant::now();
                let sums = self.sums.lock().pop(&key).unwrap_or_default();
                if let Some(bytes) = decode::whole(block, &**source, self.verify, &sums)? {
                    let took = start.elapsed();
                    let bytes = Arc::new(bytes.with_room(self.room_for(slot, block.size, &working)?));
                    slot.push_shared(bytes.clone());
                    if let Some((spill, name)) = spilled {
                        self.keep(spill, &name, block, took, bytes);
                    }
                }
                Ok(block.size)
            };
            self.finish(key, slot, || whole().inspect_err(is_late));
            return drop(working);
        }
        let zstd_window = needs.zstd_window;
        let decode = {
            let (cache, slot, block, source) = (self.clone(), slot.clone(), *block, source.clone());
            move || {
                let show_pieces = || {
                    let mut pieces = Pieces::new(&block, &*source, cache.verify, zstd_window)?;
                    let mut spilled = cache.spilled(&block, &*source).filter(|_| cache.verify != Verify::Off);
                    let mut start = 0;
                    while pieces.next_size() > 0 {
                        let room = cache.room_for(&slot, pieces.next_size(), &working)?;
                        let piece = Arc::new(pieces.next()?.with_room(room));
                        slot.push_shared(piece.clone());
                        let length = piece.len() as u64;
                        spilled = spilled.filter(|(spill, name)| spill.keep_piece(name, start, piece));
                        start += length;
                    }
                    if let Some((spill, name)) = spilled {
                        spill.keep_verdict(&name);
                    }
                    Ok(block.size)
                };
                let is_late = |error: &BlockError| {
                    let again = matches!(error, BlockError::Decode(DecodeError::Window(_)));
                    if !again && !slot.is_given_up() {
                        late.iter().for_each(|announce| announce());
                    }
                };
                cache.finish(key, &slot, || show_pieces().inspect_err(is_late));
                drop(working);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("decode".into()).spawn(decode) {
            self.finish(key, slot, || Err(BlockError::Source(error.into())));
        }
    }

    /// The room for a slot's next piece, out of what is reserved for the slot; waits for its readers where that is a
    /// window. Its decoder has `working` beside.
    fn room_for(&self, slot: &Slot, size: u64, working: &Reservation) -> Result<Reservation, BlockError> {
        let reserve = |bytes, holding: u64| Ok(self.reserve_more(bytes, holding + working.bytes())?);
        slot.room_for(size, || self.budget.note_idle(), reserve)
    }

    /// Runs a decoder to its end, and wakes the threads that wait for the block or for room. `decode` says how many
    /// bytes it made.
    fn finish<E: Into<Arc<BlockError>>>(&self, key: Key, slot: &Arc<Slot>, decode: impl FnOnce() -> Result<u64, E>) {
        let start = Instant::now();
        slot.run(|| {
            let bytes = decode().map_err(Into::into)?;
            self.counters.decoded_bytes.fetch_add(bytes, Relaxed);
            Ok(())
        });
        self.counters.took(start.elapsed());
        // Bytes that could not be had and memory that was refused are no verdict on the block: the next reader tries
        // again. Readers that wait already get the error.
        if let Err(error) = slot.failure()
            && matches!(
                &*error,
                BlockError::Source(_)
                    | BlockError::Memory(_)
                    | BlockError::Decode(DecodeError::Memory(_) | DecodeError::Window(_))
            )
        {
            self.entries.remove(&key, |entry| entry.is(slot));
        }
        self.budget.note_idle();
    }

    /// What is made of a container's bytes, once, and kept: one or more parts, of which those that other entries have
    /// too are shared with them. `make` reserves what it takes ([`Self::buffer`]), in several steps if need be
    /// ([`Self::in_steps`]); others that ask meanwhile wait for it, and must hold no reserved memory: `make` waits for
    /// that.
    ///
    /// # Errors
    /// [`BlockError`], the same one for all readers.
    pub fn get_or_insert_with(
        &self,
        key: Key,
        make: impl FnMut() -> Result<Vec<Arc<Buffer>>, Arc<BlockError>>,
    ) -> Result<Vec<Arc<Buffer>>, Arc<BlockError>> {
        let (slot, is_new) = self.acquire(key, None);
        if is_new {
            let refused = |error: &Arc<BlockError>| match **error {
                BlockError::Memory(refused) => Some(refused),
                _ => None,
            };
            self.finish(key, &slot, || {
                let parts = self.in_steps(refused, make)?;
                let size = parts.last().map_or(0, |part| part.len() as u64);
                parts.into_iter().for_each(|part| slot.push_shared(part));
                Ok::<_, Arc<BlockError>>(size)
            });
        }
        slot.parts()
    }

    /// Keeps bytes that were made of a container's, for the next reader.
    pub fn insert(&self, key: Key, bytes: Buffer) -> Arc<Buffer> {
        let bytes = Arc::new(bytes);
        self.entries.put(key, Cached::Bytes(Slot::of_bytes(&self.budget, bytes.clone())));
        bytes
    }

    /// What [`Self::get_or_insert_with`] would give without making anything or waiting.
    pub fn get_if_ready(&self, key: Key) -> Option<Result<Vec<Arc<Buffer>>, Arc<BlockError>>> {
        let entry = self.entries.get(&key)?;
        let slot = entry.slot().filter(|slot| slot.is_done())?;
        Some(slot.parts())
    }

    /// What announces that a block of this container failed which is handed out while it is being decoded or checked.
    fn late_failure(&self, key: Key) -> Option<OnLateFailure> {
        key.container().and_then(|container| self.late_failures.lock().get(&container).cloned())
    }

    /// Forgets what is known of a container that is no longer open.
    pub fn forget(&self, container: u64) {
        self.entries.remove_idle(|key| key.container() == Some(container));
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
