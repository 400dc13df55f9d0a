//! Assembles a wanted part of a file from small pieces.

use std::ops::Range;

/// A part of a file that is filled piece by piece.
pub(crate) struct Pieces<'a> {
    /// The range of the file that is wanted.
    pub(crate) part: Range<u64>,
    /// The bytes of that range.
    pub(crate) out: &'a mut [u8],
}

impl Pieces<'_> {
    /// Returns the part of a range of the file that is wanted.
    pub(crate) fn overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = (range.start.max(self.part.start), range.end.min(self.part.end));
        (start < end).then_some(start..end)
    }

    /// Returns whether a range of the file has bytes that are wanted.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        self.overlap(range).is_some()
    }

    /// Returns the place in `out` of a wanted range.
    pub(crate) fn slot(&mut self, range: &Range<u64>) -> &mut [u8] {
        &mut self.out[(range.start - self.part.start) as usize..(range.end - self.part.start) as usize]
    }

    /// Copies the wanted part of `bytes`, which begin at `at` in the file.
    pub(crate) fn take(&mut self, at: u64, bytes: &[u8]) {
        if let Some(wanted) = self.overlap(&(at..at + bytes.len() as u64)) {
            let from = (wanted.start - at) as usize;
            let length = (wanted.end - wanted.start) as usize;
            self.slot(&wanted).copy_from_slice(&bytes[from..from + length]);
        }
    }
}

/// Fills `out` with a range of bytes of elements of `size` bytes. `fill` writes whole elements, by their numbers.
pub(super) fn fill_elements<E>(
    part: Range<u64>,
    size: u64,
    out: &mut [u8],
    mut fill: impl FnMut(Range<u64>, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut at, mut rest) = (part.start, out);
    while at < part.end {
        let (number, skip) = (at / size, at % size);
        let whole = if skip == 0 { (part.end - at) / size } else { 0 };
        let length = if whole > 0 { whole * size } else { (size - skip).min(part.end - at) };
        let (here, after) = rest.split_at_mut(length as usize);
        if whole > 0 {
            fill(number..number + whole, here)?;
        } else {
            // Only some bytes of the first and the last element may be wanted.
            let mut element = vec![0; size as usize];
            fill(number..number + 1, &mut element)?;
            here.copy_from_slice(&element[skip as usize..][..here.len()]);
        }
        (at, rest) = (at + length, after);
    }
    Ok(())
}
