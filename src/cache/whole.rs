//! Blocks that are read whole into memory of the reader's, and not kept.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use super::{
    BlockError, Cache, Key,
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
        self.note_checked(block, &**source);
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
        // Codecs that stream need only a window in addition to the bytes that they make.
        if block.codec == Codec::Zstd || block.size <= limits::WHOLE_BLOCK || !block.codec.is_stream() {
            let mut working = self.reserve(decode::working(block, 0))?;
            return decode::into(block, &**source, self.verify, &mut working, out);
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
}
