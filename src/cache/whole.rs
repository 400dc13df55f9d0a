//! Blocks that are read whole into memory of the reader's, and not kept.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use super::{
    BlockError, Buffer, Cache, Key, Reservation, TooMuch,
    decode::{self, Pieces},
};
use crate::{codec::Codec, format::Block, limits, source::Source};

impl Cache {
    /// Fills `out`, which has the block's size, with all of a block: decoded and checked, or copied out of the cache if
    /// it is there. The cache does not keep the block, because the reader does.
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
        if self.is_decoded(key) && block.codec != Codec::None {
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
        self.once(block, &**source, || self.decode_into(block, source, || self.reserve(decode::working(block, 0)), out))
    }

    /// Returns all of a compressed block that is not shown in pieces. Unless the cache has it, the memory is given back
    /// after it was used.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(crate) fn read_once(
        self: &Arc<Self>,
        key: Key,
        block: &Block,
        source: &Arc<dyn Source>,
    ) -> Result<Arc<Buffer>, Arc<BlockError>> {
        if self.is_decoded(key) {
            return self.piece(key, block, source, &(0..block.size)).map(|piece| piece.bytes);
        }
        self.once(block, &**source, || {
            self.check_size(block)?;
            let mut working = self.reserve(block.size.saturating_add(decode::working(block, 0)))?;
            let mut bytes = decode::used(block.size, working.split(block.size))?;
            self.decode_into(block, source, || Ok(working), &mut bytes)?;
            Ok(Arc::new(bytes))
        })
    }

    /// Decodes a block that is not kept, and counts that.
    fn once<T>(
        &self,
        block: &Block,
        source: &dyn Source,
        decode: impl FnOnce() -> Result<T, BlockError>,
    ) -> Result<T, Arc<BlockError>> {
        let start = Instant::now();
        let decoded = decode().map_err(Arc::new)?;
        self.note_checked(block, source);
        self.counters.misses.fetch_add(1, Relaxed);
        self.counters.took(start.elapsed());
        self.counters.decoded_bytes.fetch_add(block.size, Relaxed);
        Ok(decoded)
    }

    /// Decodes a block into `out`. `working` reserves what that takes.
    fn decode_into(
        &self,
        block: &Block,
        source: &Arc<dyn Source>,
        working: impl FnOnce() -> Result<Reservation, TooMuch>,
        out: &mut [u8],
    ) -> Result<(), BlockError> {
        self.check_size(block)?;
        if block.codec == Codec::None {
            return decode::read_into(block, &**source, self.verify, out);
        }
        if self.read_spilled(block, &**source, out) {
            return Ok(());
        }
        let mut working = working()?;
        // Codecs that stream need only a window in addition to the bytes that they make.
        if block.codec == Codec::Zstd || block.size <= limits::WHOLE_BLOCK || !block.codec.is_stream() {
            return decode::into(block, &**source, self.verify, &mut working, out);
        }
        self.stream_into(block, source, out)
    }

    fn stream_into(&self, block: &Block, source: &Arc<dyn Source>, mut out: &mut [u8]) -> Result<(), BlockError> {
        let mut pieces = Pieces::new(block, &**source, self.verify, 0)?;
        while pieces.next_size() > 0 {
            let (here, after) = out.split_at_mut(pieces.next_size() as usize);
            pieces.fill(here)?;
            out = after;
        }
        Ok(())
    }
}
