//! The lanes of an interrupted stream, which its writer interleaved, put back in order (`docs/formats/wshard.md` 16).

use std::ops::Range;

use crate::{
    format::wshard::Interleave,
    view::{BlockRef, Fault, ReadContext, Rendered},
};

/// One lane.
#[derive(Debug)]
pub(super) struct Interleaved {
    pub(super) block: BlockRef,
    pub(super) lane: Interleave,
}

impl Rendered for Interleaved {
    fn is_copy(&self) -> bool {
        true
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        // Each piece needs a read of the file.
        reader.check_quick(false)?;
        // The checksum covers the bytes that the index names, still interleaved.
        reader.check(&self.block, &(0..self.block.block.size))?;
        let mut rest = out;
        for range in self.lane.pieces(part) {
            let (here, after) = rest.split_at_mut((range.end - range.start) as usize);
            reader.fill_stored(Some(&self.block), range.start, here)?;
            rest = after;
        }
        Ok(())
    }
}
