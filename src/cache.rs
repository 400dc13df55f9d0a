//! Decoded blocks: one budget in bytes, each block decoded once however many readers want it.
//!
//! A block of up to [`limits::WHOLE_BLOCK`] is decoded and checked before anybody sees a byte of it. A larger block of
//! a codec that streams is decoded by a thread of its own, piece by piece, and readers take each piece as it comes; the last piece is held
//! back until the checksum is known. Uncompressed blocks are never copied here: for them the cache remembers only
//! whether their checksum was right.

mod decode;
mod slot;

pub(crate) use decode::{Stored, inflate};
pub use slot::{Piece, Slot};

use std::{
    num::NonZeroUsize,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use lru::LruCache;

use crate::{
    codec::{Codec, DecodeError},
    format::Block,
    limits,
    source::{Source, SourceError},
};

/// When checksums are verified (contract, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
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
    Decode(#[from] DecodeError),
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

/// A block in the cache: which container (a number of its own for each state of each file), which block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The opened container.
    pub container: u64,
    /// The block's number in it, or where it stands.
    pub block: u64,
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
}

/// The cache.
#[derive(Debug)]
pub struct Cache {
    budget: u64,
    verify: Verify,
    state: Mutex<State>,
    /// Signalled when a block is finished, so that somebody who waits for room can look again.
    finished: Condvar,
    /// What happened so far.
    pub counters: Counters,
}

#[derive(Debug)]
struct State {
    slots: LruCache<Key, Arc<Slot>>,
    /// Bytes of all slots, those being decoded included.
    used: u64,
}

impl Cache {
    /// A cache of at most `budget` bytes.
    pub fn new(budget: u64, verify: Verify) -> Arc<Self> {
        Arc::new(Self {
            budget,
            verify,
            state: Mutex::new(State { slots: LruCache::unbounded(), used: 0 }),
            finished: Condvar::new(),
            counters: Counters::default(),
        })
    }

    /// The budget in bytes, and how much of it is taken.
    pub fn usage(&self) -> (u64, u64) {
        (self.budget, self.lock().used)
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
        let slot = self.lock().slots.peek(&key).cloned();
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
        let slot = self.lock().slots.peek(&key).cloned();
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
        self.slot(key, block, source)?.piece(offset)
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

    /// Whether a compressed block is shown piece by piece.
    fn in_pieces(&self, block: &Block) -> bool {
        let strict = self.verify == Verify::Strict && block.crc.is_some();
        block.codec.is_stream() && block.size > limits::WHOLE_BLOCK && !strict
    }

    /// Finds the block, or decodes it; waits for room where others hold it.
    fn slot(self: &Arc<Self>, key: Key, block: &Block, source: &Arc<dyn Source>) -> Result<Arc<Slot>, Arc<BlockError>> {
        block.codec.check_size(block.stored_size, block.size).map_err(|e| Arc::new(e.into()))?;
        let cost = OVERHEAD + if block.codec == Codec::None { 0 } else { block.size };
        let (slot, is_new) = self.enter(key, cost);
        if !is_new {
            return Ok(slot);
        }
        if self.in_pieces(block) {
            let (cache, slot, block, source) = (self.clone(), slot.clone(), *block, source.clone());
            let spawned = std::thread::Builder::new().name("decode".into()).spawn({
                let slot = slot.clone();
                move || {
                    slot.run(|| decode::in_pieces(&block, &*source, cache.verify, &slot));
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
            slot.run(|| decode::whole(block, &**source, self.verify, &slot));
            self.forget_passing_failure(key, &slot);
            self.wake(&slot, block.size);
        }
        Ok(slot)
    }

    /// The slot of a key, and whether it is new, so that the caller must fill it; waits for room where others hold it.
    fn enter(&self, key: Key, cost: u64) -> (Arc<Slot>, bool) {
        let mut state = self.lock();
        loop {
            if let Some(slot) = state.slots.get(&key) {
                self.counters.hits.fetch_add(1, Relaxed);
                return (slot.clone(), false);
            }
            self.make_room(&mut state, cost);
            // What is still in the way is being decoded. A block larger than the whole budget goes alone.
            if state.used == 0 || state.used.saturating_add(cost) <= self.budget {
                let slot = Arc::new(Slot::new(cost));
                state.slots.put(key, slot.clone());
                state.used += cost;
                self.counters.misses.fetch_add(1, Relaxed);
                return (slot, true);
            }
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
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
    ) -> Result<Arc<Vec<u8>>, Arc<BlockError>> {
        let (slot, is_new) = self.enter(key, OVERHEAD.saturating_add(size));
        if is_new {
            slot.run(|| make().map(|bytes| slot.push(bytes)));
            self.wake(&slot, size);
        }
        slot.whole()
    }

    /// What [`Self::made`] would give without making anything or waiting.
    pub fn at_hand(&self, key: Key) -> Option<Result<Arc<Vec<u8>>, Arc<BlockError>>> {
        let slot = self.lock().slots.get(&key).cloned().filter(|slot| slot.is_done())?;
        Some(slot.whole())
    }

    /// Gives up what was not used for longest until `cost` fits or only blocks being decoded are left.
    fn make_room(&self, state: &mut State, cost: u64) {
        let mut busy = Vec::new();
        while state.used.saturating_add(cost) > self.budget {
            let Some((key, slot)) = state.slots.pop_lru() else { break };
            if slot.is_done() {
                state.used -= slot.cost;
                self.counters.evictions.fetch_add(1, Relaxed);
            } else {
                busy.push((key, slot));
            }
        }
        for (key, slot) in busy {
            state.slots.put(key, slot);
        }
    }

    /// Bytes that could not be had and memory that was refused are no verdict on the block: whoever comes next tries again.
    fn forget_passing_failure(&self, key: Key, slot: &Arc<Slot>) {
        let Err(error) = slot.failure() else { return };
        if !matches!(&*error, BlockError::Source(_) | BlockError::Decode(DecodeError::Memory(_))) {
            return;
        }
        let mut state = self.lock();
        if state.slots.peek(&key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            state.slots.pop(&key);
            state.used -= slot.cost;
        }
    }

    /// Tells those who wait for room that a block is finished.
    fn wake(&self, slot: &Slot, bytes: u64) {
        if slot.failure().is_ok() {
            self.counters.decoded_bytes.fetch_add(bytes, Relaxed);
        }
        drop(self.lock());
        self.finished.notify_all();
    }

    /// Forgets what is known of a container that is no longer open.
    pub fn forget(&self, container: u64) {
        let mut state = self.lock();
        let keys: Vec<Key> = state.slots.iter().map(|(key, _)| *key).filter(|key| key.container == container).collect();
        for key in keys {
            if state.slots.peek(&key).is_some_and(|slot| slot.is_done())
                && let Some(slot) = state.slots.pop(&key)
            {
                state.used -= slot.cost;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
