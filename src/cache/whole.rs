//! Blocks that are read whole into memory of the reader's, and not kept.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use super::{
    BlockError, Buffer, Cache, KeyedBlock, Reservation, TooMuch,
    decode::{self, Decoding},
};
use crate::{codec::Codec, format::Block, source::Source};

impl Cache {
    /// Fills `out`, which has the block's size, with all of a block: decoded and checked, or copied out of the cache if
    /// it is there. The cache does not keep the block, because the reader does.
    ///
    /// # Errors
    /// [`BlockError`]; `out` then holds anything.
    pub fn read_whole(self: &Arc<Self>, of: KeyedBlock<'_>, out: &mut [u8]) -> Result<(), Arc<BlockError>> {
        let KeyedBlock { key, block, source } = of;
        if self.is_decoded(key) && block.codec != Codec::None {
            let mut rest = out;
            let mut at = 0;
            while !rest.is_empty() {
                let piece = self.piece(of, &(at..block.size))?;
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
    pub(crate) fn read_once(self: &Arc<Self>, of: KeyedBlock<'_>) -> Result<Arc<Buffer>, Arc<BlockError>> {
        let KeyedBlock { key, block, source } = of;
        if self.is_decoded(key) {
            return self.piece(of, &(0..block.size)).map(|piece| piece.bytes);
        }
        self.once(block, &**source, || {
            self.check_size(block)?;
            self.decoded(block, source).map(Arc::new)
        })
    }

    /// Returns all of a compressed block of any size in one piece, reserved first. The cache does not keep it.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(crate) fn decoded(&self, block: &Block, source: &Arc<dyn Source>) -> Result<Buffer, BlockError> {
        let mut working = self.reserve(block.size.saturating_add(decode::working(block, 0)))?;
        let mut bytes = decode::used(block.size, working.split(block.size))?;
        self.decode_into(block, source, || Ok(working), &mut bytes)?;
        Ok(bytes)
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
        let decoding = Decoding::new(block, &**source, self.verify);
        if block.codec == Codec::None {
            return decoding.read_into(out);
        }
        if self.read_spilled(block, &**source, out) {
            return Ok(());
        }
        decoding.fill(&mut working()?, out)
    }
}
