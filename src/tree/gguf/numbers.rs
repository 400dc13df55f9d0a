//! Elements of quantised tensors as numbers. Only the range that is read is dequantised.

use std::ops::Range;

use crate::{
    format::gguf::{Kind, Tensor, blocks::Quantised},
    limits,
    source::SourceError,
    view::{Fault, ReadContext, Rendered},
};

/// Bytes of a file that are read at a time.
const PIECE: u64 = 64 << 10;

/// Quantised elements as f32.
#[derive(Debug)]
pub(super) struct Dequantised {
    place: Range<u64>,
    /// Bytes of a block, stored and decoded.
    bytes: u64,
    decoded: u64,
    kind: Quantised,
}

impl Dequantised {
    /// Returns the elements of a tensor if its type can be dequantised.
    pub(super) fn of(tensor: Tensor<'_>) -> Option<Self> {
        let Kind::Blocks { elements, bytes, quantised: Some(kind) } = tensor.kind()?.kind else { return None };
        Some(Self { place: tensor.data(), bytes, decoded: 4 * elements, kind })
    }
}

impl Rendered for Dequantised {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(out.len() as u64 <= limits::QUICK)?;
        let Self { place, bytes, decoded, kind } = self;
        let most = (PIECE / bytes).max(1);
        let (mut at, mut rest) = (part.start, out);
        let (mut stored, mut numbers) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let (block, skip) = (at / decoded, (at % decoded) as usize);
            let blocks = (skip as u64 + rest.len() as u64).div_ceil(*decoded).min(most);
            stored.resize((blocks * bytes) as usize, 0);
            numbers.resize((blocks * decoded / 4) as usize, 0.0);
            let start = place.start + block * bytes;
            if start + blocks * bytes > place.end {
                return Err(SourceError::Changed.into());
            }
            reader.fill_stored(None, start, &mut stored)?;
            kind.decode(&stored, &mut numbers);
            let length = (4 * numbers.len() - skip).min(rest.len());
            let (here, after) = rest.split_at_mut(length);
            copy(&numbers, skip, here);
            (at, rest) = (at + length as u64, after);
        }
        Ok(())
    }
}

/// Copies the bytes of numbers from a byte on.
fn copy(numbers: &[f32], skip: usize, out: &mut [u8]) {
    if skip.is_multiple_of(4) && out.len().is_multiple_of(4) {
        let numbers = numbers.get(skip / 4..).unwrap_or_default();
        for (out, number) in out.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
            *out = number.to_le_bytes();
        }
        return;
    }
    for (at, byte) in (skip..).zip(out) {
        *byte = numbers.get(at / 4).map_or(0, |number| number.to_le_bytes()[at % 4]);
    }
}
