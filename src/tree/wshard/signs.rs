//! Residual blocks: one bit a step becomes +1 or -1 (`docs/formats/wshard.md` 13, the Python and Go rule).

use std::{ops::Range, sync::Arc};

use crate::{
    cache::BlockError,
    format::wshard::Residual,
    limits::QUICK,
    view::{BlockRef, Fault, ReadContext, Rendered},
};

/// The signs of a residual block, as i8.
#[derive(Debug)]
pub(super) struct SignBits {
    pub(super) block: BlockRef,
    pub(super) residual: Residual,
}

impl Rendered for SignBits {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(part.end - part.start <= QUICK)?;
        let damaged = |reason| self.block.fault(Arc::new(BlockError::Refused(reason)));
        fill(&self.residual, part, out, |at, buf| reader.fill_block(&self.block, at, buf), damaged)
    }
}

/// Fills `out` with a part of the decoded `[T]` or `[T, D]` array. `read` copies bytes of the block from an offset on;
/// `damaged` makes the error for a block that contradicts itself.
fn fill<E>(
    residual: &Residual,
    part: Range<u64>,
    out: &mut [u8],
    read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    damaged: impl Fn(String) -> E,
) -> Result<(), E> {
    let dims = residual.dims;
    if part.is_empty() || dims == 0 {
        return Ok(());
    }
    // The steps that the part touches are in these bytes of each dimension.
    let (first, last) = (part.start / dims / 8, (part.end - 1) / dims / 8);
    let mut bits = vec![0; (last - first + 1) as usize];
    // For a part that is shorter than a row, only its dimensions: a file may claim any number of them.
    for element in part.start..part.end.min(part.start.saturating_add(dims)) {
        let d = element % dims;
        if residual.skip == 4 {
            let mut stated = [0; 4];
            read(d * residual.stride, &mut stated)?;
            let (stated, length) = (u64::from(u32::from_le_bytes(stated)), residual.stride - 4);
            if stated != length {
                return Err(damaged(format!("dimension {d} states {stated} bytes of signs, it has {length}")));
            }
        }
        read(d * residual.stride + residual.skip + first, &mut bits)?;
        let mut element = element;
        while element < part.end {
            let step = element / dims;
            let bit = bits[(step / 8 - first) as usize] >> (step % 8) & 1;
            out[(element - part.start) as usize] = if bit == 1 { 1 } else { 0xFF };
            element = element.saturating_add(dims);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(residual: &Residual, block: &[u8], part: Range<u64>) -> Vec<u8> {
        let mut out = vec![0; (part.end - part.start) as usize];
        let read = |at: u64, buf: &mut [u8]| -> Result<(), ()> {
            buf.copy_from_slice(&block[at as usize..at as usize + buf.len()]);
            Ok(())
        };
        fill(residual, part, &mut out, read, |_| ()).unwrap();
        out
    }

    #[test]
    fn the_vector_of_the_format_page() {
        // docs/formats/wshard.md 23: byte 0x05, T = 4.
        let residual = Residual { steps: 4, dims: 1, stride: 1, skip: 0 };
        assert_eq!(decode(&residual, &[0x05], 0..4), [1, 0xFF, 1, 0xFF]);
    }

    /// A file that is cut short may claim a block of petabytes; its error must not wait for as many dimensions.
    #[test]
    fn dimensions_that_nobody_asks_for_cost_nothing() {
        let residual = Residual { steps: 12, dims: u64::MAX / 16, stride: 2, skip: 0 };
        let refuse = |_, _: &mut [u8]| Err("past the end");
        let start = residual.dims - 2;
        assert_eq!(fill(&residual, start..start + 4, &mut [0; 4], refuse, |_| ""), Err("past the end"));
    }

    #[test]
    fn any_part_is_the_slice_of_the_whole() {
        let residual = Residual { steps: 13, dims: 3, stride: 6, skip: 4 };
        let mut block: Vec<u8> = (0..18u8).map(|i| i.wrapping_mul(37)).collect();
        block.chunks_mut(6).for_each(|dimension| dimension[..4].copy_from_slice(&[2, 0, 0, 0]));
        let whole = decode(&residual, &block, 0..39);
        for start in 0..39 {
            for end in start..=39 {
                assert_eq!(decode(&residual, &block, start..end), whole[start as usize..end as usize]);
            }
        }
        assert_eq!(whole[3 * 9 + 2], if block[12 + 4 + 1] >> 1 & 1 == 1 { 1 } else { 0xFF });
    }
}
