//! Decoded blocks under one budget in bytes. Each block is decoded once, however many readers want it.
//!
//! A block of up to [`limits::WHOLE_BLOCK`] is decoded and checked before a reader gets a byte of it. A larger block of a
//! codec that streams is decoded by a thread of its own, and readers take each piece as it comes; the last piece is held
//! back until the checksum is known. Uncompressed blocks are not copied: the cache only remembers whether their checksum
//! was right.
//!
//! If the kernel reads finished files by itself, these files are in the same cache ([`FileSlot`]): the decoder writes into
//! a file in memory instead of the heap, and its bytes count against the same budget. A file that the kernel holds open
//! is not evicted.
//!
//! Stored bytes of far files are entries too (`fetched.rs`): each is filled by one request, and readers take what has come.
//!
//! What formats parse is in it too ([`Cache::parsed`]), as values of any type under keys of the same kind.
//!
//! Decoded blocks may also be kept on a local disk ([`DiskTier`]) and are found again there when they were evicted.
//!
//! All memory that grows with what files hold is reserved from one [`Budget`] before it is taken ([`Cache::reserve`],
//! [`Cache::buffer`]): decoded blocks, stored bytes, windows of zstd, indexes, and what opening a container needs.

mod budget;
mod buffer;
mod buffer_pool;
mod decode;
mod disk_tier;
mod entries;
mod entry;
mod error;
mod fetched;
mod file;
mod files;
mod filling;
mod kept;
mod key;
mod late;
mod notices;
mod parsed;
mod ready;
mod room;
mod slot;
mod sums;
mod whole;

pub(crate) use budget::Alone;
pub use budget::{Budget, Reservation, TooMuch};
pub use buffer::{Buffer, limit_heap, trim_heap};
pub(crate) use decode::Stored;
use entries::Entries;
pub(crate) use entry::Lent;
use entry::{Cached, SlotInUse};
pub use error::BlockError;
pub(crate) use error::refused_memory;
use file::FileCount;
pub use file::FileSlot;
pub use kept::KeptName;
pub use key::{Key, Tag, pair};
pub use late::LateFailures;
use late::OnLateFailure;
pub use notices::Notices;
use room::GiveUp;
use slot::OVERHEAD;
pub use slot::Piece;
pub(crate) use slot::Slot;

pub use disk_tier::{DiskTier, DiskTierOptions};
pub(crate) use disk_tier::{FileOfBlock, sha256};

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sums::Sums;

use crate::{
    codec::{Codec, DecodeError},
    disk::Disk,
    format::{Block, Crc},
    limits,
    pool::{Place, pool},
    source::{Source, Wait},
    sync,
};

/// When checksums are verified (`docs/TREE.md`, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum Verify {
    /// Blocks of up to 64 MiB before their first byte is read, larger ones while they are read
    #[default]
    Lazy,
    /// Every block whole before its first byte is read
    Strict,
    /// Never
    Off,
}

/// Counters since the start, for `stats.json`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests answered by a block that was in the cache or being decoded.
    pub hits: AtomicU64,
    /// Blocks decoded or checked.
    pub misses: AtomicU64,
    /// Blocks evicted to make room.
    pub evictions: AtomicU64,
    /// Bytes decoded.
    pub decoded_bytes: AtomicU64,
    /// Nanoseconds spent on decoding and checking, summed over all threads.
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

/// Decoded blocks, results of checksums, files in memory and parsed values, under one budget.
pub struct Cache {
    /// The disk cache. It is dropped before the entries, because some of them may wait to be written to it.
    disk: Option<DiskTier>,
    /// The disk on which a store keeps bytes of far files.
    disk_of_store: OnceLock<Arc<Disk>>,
    budget: Arc<Budget>,
    verify: Verify,
    entries: Entries<Key, Cached>,
    /// Whether a block becomes the first to be evicted once all of it was served.
    readers_keep: AtomicBool,
    /// Called for a container when one of its blocks fails after bytes of it may have been served.
    late_failures: Mutex<HashMap<u64, OnLateFailure>>,
    /// The parsed values.
    values: Arc<parsed::Values>,
    /// The files in memory.
    files: Arc<FileCount>,
    /// Gives up memory outside the cache when nothing cached is left to evict.
    last_resort: Mutex<Vec<GiveUp>>,
    /// What happened so far.
    pub counters: Counters,
    /// What readers should be told.
    pub notices: Notices,
}

/// A block of a container that is asked for.
#[derive(Clone, Copy)]
pub struct KeyedBlock<'a> {
    /// Its key in the cache.
    pub key: Key,
    /// How it is stored.
    pub block: &'a Block,
    /// The bytes of the container.
    pub source: &'a Arc<dyn Source>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("budget", &self.budget).field("verify", &self.verify).finish_non_exhaustive()
    }
}

impl Cache {
    /// Returns a cache of at most `budget` bytes. Requests that cannot wait may take [`limits::BEYOND_BUDGET`] more.
    pub fn new(budget: u64, verify: Verify) -> Arc<Self> {
        Self::with_disk_tier(budget, verify, None)
    }

    /// Does the same as [`Self::new`], with a disk cache below.
    pub fn with_disk_tier(budget: u64, verify: Verify, disk: Option<DiskTier>) -> Arc<Self> {
        Self::with_bound(budget, budget.saturating_add(limits::BEYOND_BUDGET), verify, disk)
    }

    /// Does the same as [`Self::with_disk_tier`]; requests that cannot wait may take up to `most` bytes in all.
    pub fn with_bound(budget: u64, most: u64, verify: Verify, disk: Option<DiskTier>) -> Arc<Self> {
        let budget = Budget::new(budget, most);
        // Blobs that wait to be written to a disk that does not answer.
        let queue = disk.as_ref().map(|tier| tier.disk().clone());
        let last_resort = queue.map(|disk| -> GiveUp { Arc::new(move || Some(disk.give_up_queue())) });
        Arc::new(Self {
            entries: Entries::new(budget.clone()),
            budget,
            verify,
            readers_keep: AtomicBool::new(false),
            late_failures: Mutex::default(),
            values: Arc::default(),
            files: Arc::default(),
            disk,
            disk_of_store: OnceLock::new(),
            last_resort: Mutex::new(last_resort.into_iter().collect()),
            counters: Counters::default(),
            notices: Notices::default(),
        })
    }

    /// Returns the budget in bytes, and how much of it is reserved.
    pub fn usage(&self) -> (u64, u64) {
        (self.budget.total(), self.budget.used())
    }

    /// Returns the disk cache, if there is one.
    pub fn disk_tier(&self) -> Option<&DiskTier> {
        self.disk.as_ref()
    }

    /// Sets that readers keep what they read, as a kernel does. A block that was served from end to end is then the
    /// next to be evicted, because the kernel has the file too. Until its room is needed it stays, for other files that
    /// show it.
    pub fn set_readers_keep(&self) {
        self.readers_keep.store(true, Relaxed);
    }

    /// Counts bytes of a decoded block that were served.
    pub(crate) fn add_served(&self, lent: &Lent, bytes: u64) {
        let Some(slot) = &lent.slot else { return };
        if self.readers_keep.load(Relaxed) && slot.add_served(bytes, limits::PIECE as u64) {
            self.entries.demote(&lent.key, |entry| entry.is(slot));
        }
    }

    /// Makes a block the next to be evicted, for a reader that wants it again only after others.
    pub(crate) fn evict_first(&self, key: &Key) {
        self.entries.demote(key, |_| true);
    }

    /// Returns whether more than half of a decoded block was served: then it is being read from end to end.
    pub fn is_mostly_read(&self, key: Key, size: u64) -> bool {
        self.peek(&key, |slot| slot.served() > size / 2).unwrap_or(false)
    }

    /// Starts to decode a block that will be wanted soon and is not in the disk cache. Takes only unused room, or, with
    /// `may_evict`, up to a quarter of the budget by evicting idle entries.
    pub fn decode_ahead(self: &Arc<Self>, of: KeyedBlock<'_>, may_evict: bool) {
        let KeyedBlock { key, block, source } = of;
        let name = || self.spilled_name(block, &**source, false);
        let is_spilled = || self.disk.as_ref().is_some_and(|spill| name().is_some_and(|name| spill.has(&name, 0)));
        if self.peek(&key, |_| ()).is_some() || self.check_size(block).is_err() || is_spilled() {
            return;
        }
        let needs = self.needs(block, &**source, 0);
        let room = match may_evict && needs.all() <= self.budget.total() / 4 {
            true => self.try_reserve(needs.all()),
            false => self.budget.try_reserve(needs.all(), |_| false),
        };
        let Some(room) = room else { return };
        let (cache, block, source) = (self.clone(), block.clone(), source.clone());
        pool().run_if_free(Place::Task("decode ahead"), move || {
            if cache.peek(&key, |_| ()).is_some() {
                return;
            }
            let (slot, is_new) = cache.acquire(key, cache.window(&block));
            if is_new {
                // An error is not lost: the next reader gets it.
                cache.fill(KeyedBlock { key, block: &block, source: &source }, &slot, &needs, Ok(room));
            }
        });
    }

    /// How checksums are verified.
    pub fn verify(&self) -> Verify {
        self.verify
    }

    /// Returns whether a block was decoded or checked, or is known to be bad.
    pub fn is_decoded(&self, key: Key) -> bool {
        self.peek(&key, |slot| slot.verdict().is_some()).unwrap_or(false)
    }

    /// Fails if an uncompressed block may not be served for `range`. It may if its checksum is right, or if this range
    /// need not wait for the verdict.
    ///
    /// # Errors
    /// [`BlockError`], the same one for all readers; `WouldBlock` for a caller that does not wait for a checksum.
    pub fn check(self: &Arc<Self>, of: KeyedBlock<'_>, range: &Range<u64>, wait: Wait) -> Result<(), Arc<BlockError>> {
        if !self.needs_slot(of.block, range) {
            // A known verdict holds for every range.
            return self.known_failure(of.key, of.block);
        }
        if wait == Wait::Always {
            return self.slot(of, 0)?.wait_done();
        }
        let verdict = self.ready_slot(of, wait).and_then(|slot| slot.verdict());
        verdict.unwrap_or_else(|| Err(Arc::new(BlockError::WouldBlock)))
    }

    /// Notes bytes of an uncompressed block that a reader was given; they begin at `offset` in the block.
    pub(crate) fn note_read(&self, key: Key, block: &Block, offset: u64, bytes: &[u8]) {
        let is_due_later = block.size > limits::WHOLE_BLOCK && self.verify == Verify::Lazy;
        let Some(Crc { kind, .. }) = block.crc.filter(|_| is_due_later && block.codec == Codec::None) else {
            return;
        };
        if self.peek(&key, |_| ()).is_some() {
            return;
        }
        let Some(key) = key.sums() else { return };
        let sums = self.parsed_default::<Mutex<Sums>>(key, Sums::MEMORY);
        // Continuing a checksum costs less than combining two.
        let before = sums.lock().take_until(offset);
        let (start, crc) = before.unwrap_or((offset, 0));
        let crc = kind.append(crc, bytes);
        let length = offset - start + bytes.len() as u64;
        sums.lock().add(kind, start, length, crc);
    }

    /// Returns the decoded piece of a compressed block that holds the first byte of `range`, which must not be empty.
    /// It may end before the range does, except for blocks that are not shown in pieces: there it is the whole block.
    ///
    /// # Errors
    /// [`BlockError`], the same one for all readers.
    pub fn piece(self: &Arc<Self>, of: KeyedBlock<'_>, range: &Range<u64>) -> Result<Piece, Arc<BlockError>> {
        self.lend(of, range, Wait::Always).map(|lent| lent.piece)
    }

    /// Does the same as [`Self::piece`]. The piece stays in use until it is dropped.
    ///
    /// # Errors
    /// As [`Self::piece`], and `WouldBlock` for a caller that does not wait for a decoder.
    pub(crate) fn lend(
        self: &Arc<Self>,
        of: KeyedBlock<'_>,
        range: &Range<u64>,
        wait: Wait,
    ) -> Result<Lent, Arc<BlockError>> {
        let key = of.key;
        if wait != Wait::Always {
            let slot = self.ready_slot(of, wait).ok_or(BlockError::WouldBlock)?;
            let piece = slot.try_piece(range.start)?.ok_or(BlockError::WouldBlock)?;
            return Ok(Lent { piece, key, slot: Some(slot) });
        }
        if let Some(piece) = self.spilled_part(of, range)? {
            return Ok(Lent { piece, key, slot: None });
        }
        let offset = range.start;
        let mut zstd_window = 0;
        loop {
            let slot = self.slot(of, zstd_window)?;
            match slot.piece(offset) {
                Ok(Some(piece)) => return Ok(Lent { piece, key, slot: Some(slot) }),
                // The slot was given up: decode the block again from its front.
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

    /// Looks at a slot of the cache, if there is one.
    fn peek<T>(&self, key: &Key, look: impl FnOnce(&Arc<Slot>) -> T) -> Option<T> {
        self.entries.peek(key, |entry| entry.slot().map(look)).flatten()
    }

    fn count_hit(&self) {
        self.counters.hits.fetch_add(1, Relaxed);
    }

    /// Returns the slot of a key, and whether it is new, so that the caller must fill it.
    fn acquire(&self, key: Key, window: Option<u64>) -> (SlotInUse, bool) {
        let (entry, is_new) = self.entries.acquire(key, || Cached::Bytes(Slot::new(&self.budget, window)));
        if is_new {
            self.counters.misses.fetch_add(1, Relaxed);
        } else {
            self.count_hit();
        }
        match entry.slot().cloned() {
            Some(slot) => (SlotInUse { slot, _entry: entry }, is_new),
            // Unreachable: no file has the key of a block.
            None => (SlotInUse { slot: Slot::new(&self.budget, window), _entry: entry }, true),
        }
    }

    /// Returns what `make` computes from a container's bytes: one or more parts, computed once and kept. Parts that
    /// other entries also have are shared. `make` reserves the memory that it takes ([`Self::buffer`]), in several
    /// steps if necessary ([`Self::in_steps`]). Other callers wait for it meanwhile and must hold no reserved memory,
    /// because `make` may wait for that.
    ///
    /// # Errors
    /// [`BlockError`], the same one for all readers; `WouldBlock` if it is not ready, except with [`Wait::Always`].
    pub fn get_or_insert_with(
        &self,
        key: Key,
        wait: Wait,
        make: impl FnMut() -> Result<Vec<Arc<Buffer>>, Arc<BlockError>>,
    ) -> Result<Vec<Arc<Buffer>>, Arc<BlockError>> {
        if wait != Wait::Always {
            return self.get(key).unwrap_or_else(|| Err(Arc::new(BlockError::WouldBlock)));
        }
        let (slot, is_new) = self.acquire(key, None);
        if is_new {
            self.finish(key, &slot, || {
                let parts = self.in_steps(|error: &Arc<BlockError>| error.refused_memory(), make)?;
                let size = parts.last().map_or(0, |part| part.len() as u64);
                parts.into_iter().for_each(|part| slot.push_shared(part));
                Ok::<_, Arc<BlockError>>(size)
            });
        }
        slot.parts()
    }

    /// Keeps bytes that were computed from a container's, for the next reader.
    pub fn insert(&self, key: Key, bytes: Buffer) -> Arc<Buffer> {
        let bytes = Arc::new(bytes);
        self.entries.put(key, Cached::Bytes(Slot::of_bytes(&self.budget, bytes.clone())));
        bytes
    }

    /// Returns what is kept under a key, if it is ready.
    pub fn get(&self, key: Key) -> Option<Result<Vec<Arc<Buffer>>, Arc<BlockError>>> {
        let entry = self.entries.get(&key)?;
        let slot = entry.slot().filter(|slot| slot.verdict().is_some())?;
        Some(slot.parts())
    }

    /// Forgets everything about a container that is no longer open.
    pub fn forget(&self, container: u64) {
        self.forget_values(container);
        self.entries.remove_idle(|key| key.container() == Some(container));
    }
}

/// Returns the default budget in bytes: an eighth of this machine's memory, between 64 MiB and 4 GiB.
pub fn default_budget() -> u64 {
    const MIB: u64 = 1 << 20;
    // Not sysinfo(2): in a container of LXC, only this file tells its share of the memory.
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse::<u64>().ok());
    (kib.unwrap_or(0) * 1024 / 8).clamp(64 * MIB, 4096 * MIB)
}

/// Returns a size for an LRU of this crate; 0 counts as 1.
pub(crate) fn nonzero(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests;
