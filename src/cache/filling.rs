//! How a block comes into the cache: what decoding it takes, whether it is shown in pieces, and the work itself.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use parking_lot::Mutex;

use super::{
    BlockError, Cache, Key, KeyedBlock, Reservation, Slot, SlotInUse, Verify,
    decode::{self, Decoding, Pieces},
    sums::Sums,
};
use crate::{
    codec::{Codec, DecodeError},
    format::Block,
    limits,
    source::Source,
    wanted,
};

/// Bytes of memory that decoding a block takes.
pub(super) struct Needs {
    /// Bytes that are kept.
    kept: u64,
    /// Bytes that are taken in addition while it is decoded.
    working: u64,
    /// The part of them that zstd may use as its window; 0 if the block is decoded in one go.
    zstd_window: u64,
}

impl Needs {
    pub(super) fn all(&self) -> u64 {
        self.kept.saturating_add(self.working)
    }
}

impl Cache {
    /// Returns whether serving `range` depends on this block's slot.
    pub(super) fn needs_slot(&self, block: &Block, range: &Range<u64>) -> bool {
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

    /// Returns whether a compressed block is shown piece by piece, because decoding takes so long that no reader should
    /// wait for all of it.
    pub fn in_pieces(&self, block: &Block) -> bool {
        // A zlib stream ends with a checksum of its own.
        let is_checked = block.crc.is_some() || matches!(block.codec, Codec::Zlib | Codec::ZlibExact);
        let strict = self.verify == Verify::Strict && is_checked;
        block.codec.is_stream() && block.size > limits::WHOLE_BLOCK && !strict
    }

    /// Returns how many bytes are kept of a block that has no room beside others. Such a block is decoded only a little
    /// ahead of its readers, and again from the front for a reader that goes back.
    pub(super) fn window(&self, block: &Block) -> Option<u64> {
        let is_large = self.in_pieces(block) && block.size > self.budget.total() / 2;
        is_large.then_some((self.budget.total() / 4).max(limits::SMALLEST_WINDOW))
    }

    /// Returns what decoding a block takes, with a zstd window of at least `least` bytes.
    pub(super) fn needs(&self, block: &Block, source: &dyn Source, least: u64) -> Needs {
        let zstd_window = if self.in_pieces(block) { decode::window(block, source).max(least) } else { 0 };
        let kept = if block.codec == Codec::None { 0 } else { self.window(block).unwrap_or(block.size) };
        Needs { kept, working: decode::working(block, zstd_window), zstd_window }
    }

    pub(super) fn check_size(&self, block: &Block) -> Result<(), DecodeError> {
        block.codec.check_size(block.stored_size, block.size)
    }

    /// Tells the source that a block was decoded and its checksum was right, if it has one.
    pub(super) fn note_checked(&self, block: &Block, source: &dyn Source) {
        if self.verify != Verify::Off && block.is_checked() {
            source.note_checked(&block.stored());
        }
    }

    /// Finds the block or decodes it. The first reader reserves the memory; the others wait for the block and hold
    /// nothing. A zstd stream gets a window of at least `zstd_window` bytes.
    pub(super) fn slot(self: &Arc<Self>, of: KeyedBlock<'_>, zstd_window: u64) -> Result<SlotInUse, Arc<BlockError>> {
        let KeyedBlock { key, block, source } = of;
        self.check_size(block).map_err(|e| Arc::new(e.into()))?;
        let (slot, is_new) = self.acquire(key, self.window(block));
        if is_new {
            let needs = self.needs(block, &**source, zstd_window);
            let room = match block.codec {
                // A verdict takes almost no memory and files in memory wait for it, so it does not wait for room.
                Codec::None => Ok(self.budget.reserve_small(0)),
                _ => self.reserve(needs.all()).map_err(BlockError::from),
            };
            self.fill(of, &slot, &needs, room);
        }
        Ok(slot)
    }

    /// Fills a new slot, on a thread of its own if readers are served meanwhile.
    pub(super) fn fill(
        self: &Arc<Self>,
        KeyedBlock { key, block, source }: KeyedBlock<'_>,
        slot: &Arc<Slot>,
        needs: &Needs,
        room: Result<Reservation, BlockError>,
    ) {
        let mut room = match room {
            Ok(room) => room,
            Err(error) => return self.finish(key, slot, || Err(error)),
        };
        let mut working = room.split(needs.working);
        slot.set_room(room);
        // Smaller blocks are served only after all of it was checked.
        let late = if block.size > limits::WHOLE_BLOCK { self.late_failure(key) } else { None };
        if !self.in_pieces(block) {
            let is_late = |_: &BlockError| late.iter().for_each(|announce| announce());
            let mut stored = working.split(decode::stored(block));
            let decoding = Decoding::new(block, &**source, self.verify);
            let mut whole = || {
                if block.codec == Codec::None {
                    decoding.check(&self.take_sums(key))?;
                    self.note_checked(block, &**source);
                    return Ok(block.size);
                }
                let spilled = self.spilled(block, &**source);
                let mut bytes = decode::used(block.size, self.room_for(slot, block.size, &working)?)?;
                if spilled.as_ref().is_some_and(|(spill, name)| spill.has(name, 0) && spill.read(name, 0, &mut bytes)) {
                    slot.push(bytes);
                    return Ok(0);
                }
                let start = Instant::now();
                decoding.fill(&mut stored, &mut bytes)?;
                self.note_checked(block, &**source);
                let (took, bytes) = (start.elapsed(), Arc::new(bytes));
                slot.push_shared(bytes.clone());
                if let Some((spill, name)) = spilled {
                    self.keep(spill, &name, block, took, bytes);
                }
                Ok(block.size)
            };
            self.finish(key, slot, || whole().inspect_err(is_late));
            return drop(working);
        }
        let zstd_window = needs.zstd_window;
        let decode = {
            let (cache, slot, block, source) = (self.clone(), slot.clone(), block.clone(), source.clone());
            move || {
                let show_pieces = || {
                    let mut pieces = Pieces::new(Decoding::new(&block, &*source, cache.verify), zstd_window)?;
                    let mut spilled = cache.spilled(&block, &*source).filter(|_| cache.verify != Verify::Off);
                    let mut start = 0;
                    while pieces.next_size() > 0 {
                        let room = cache.room_for(&slot, pieces.next_size(), &working)?;
                        let piece = Arc::new(pieces.next(room)?);
                        slot.push_shared(piece.clone());
                        let length = piece.len() as u64;
                        spilled = spilled.filter(|(spill, name)| spill.keep_piece(name, start, piece));
                        start += length;
                    }
                    cache.note_checked(&block, &*source);
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
            let error = std::io::Error::other(format!("a thread for its decoder cannot be started: {error}"));
            self.finish(key, slot, || Err(BlockError::Source(error.into())));
        }
    }

    /// Takes out the checksums of the parts of a block that were read.
    fn take_sums(&self, key: Key) -> Sums {
        let Some(key) = key.sums() else { return Sums::default() };
        let known = self.parsed::<Mutex<Sums>>(key);
        self.forget_parsed(key);
        known.map(|known| std::mem::take(&mut *known.lock())).unwrap_or_default()
    }

    /// Returns room for a slot's next piece, out of what is reserved for the slot. If that is a window, waits for its
    /// readers. The decoder has `working` in addition.
    fn room_for(&self, slot: &Slot, size: u64, working: &Reservation) -> Result<Reservation, BlockError> {
        let reserve = |bytes, holding: u64| Ok(self.reserve_more(bytes, holding + working.bytes())?);
        slot.room_for(size, || self.budget.note_idle(), reserve)
    }

    /// Runs a decoder to its end, and wakes the threads that wait for the block or for room. `decode` returns how many
    /// bytes it made.
    pub(super) fn finish<E: Into<Arc<BlockError>>>(
        &self,
        key: Key,
        slot: &Arc<Slot>,
        decode: impl FnOnce() -> Result<u64, E>,
    ) {
        let start = Instant::now();
        slot.run(|| {
            // Other readers may wait for it too, so it goes on if the reader that began it is killed.
            let bytes = wanted::until(Arc::default(), decode).map_err(Into::into)?;
            self.counters.decoded_bytes.fetch_add(bytes, Relaxed);
            Ok(())
        });
        self.counters.took(start.elapsed());
        // Bytes that could not be had and memory that was refused are no verdict on the block, so the next reader tries
        // again. Readers that already wait get the error.
        if let Err(error) = slot.failure()
            && !error.is_damage()
        {
            self.entries.remove(&key, |entry| entry.is(slot));
        }
        self.budget.note_idle();
    }
}
