//! Runs of bytes at equal distances in the file, shown as one array: a field of interleaved rows, or a variable of
//! records. Big-endian elements are shown little-endian.

use std::ops::Range;

use super::{Fault, ReadContext, Rendered, grid::Turn, pieces};
use crate::limits::PIECE;

/// The place of the runs, and their elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strided {
    /// The first byte of the first run, in the file.
    pub start: u64,
    /// Bytes from the beginning of a run to that of the next.
    pub stride: u64,
    /// Bytes of a run.
    pub width: u64,
    /// Bytes of a big-endian element; a run has a whole number of them. 1 for bytes that are shown unchanged.
    pub swap: u64,
}

/// Largest gap in bytes between two runs that is read instead of skipped.
const GAP: u64 = 4096;

/// Least bytes of the file for which gathering runs costs more than a thread of the pool.
const MUCH: u64 = 4 << 20;

impl Strided {
    /// Returns one run of big-endian elements of `swap` bytes.
    pub fn one(place: Range<u64>, swap: u64) -> Self {
        let width = place.end.saturating_sub(place.start);
        Self { start: place.start, stride: width, width, swap }
    }

    /// Returns where a run begins. Saturates at a place that no file has.
    fn run(&self, number: u64) -> u64 {
        self.start.saturating_add(number.saturating_mul(self.stride))
    }

    /// Returns the range of the file from the first run that a part needs to the end of the last.
    pub fn rows(&self, part: &Range<u64>) -> Range<u64> {
        if part.is_empty() || self.width == 0 {
            return self.start..self.start;
        }
        self.run(part.start / self.width)..self.run((part.end - 1) / self.width).saturating_add(self.width)
    }

    /// Fills `out` with a part of the array. `read` copies bytes of the file from an offset on.
    fn fill_from<E>(
        &self,
        part: Range<u64>,
        out: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let size = self.swap.max(1);
        pieces::fill_elements(part, size, out, |elements, out| {
            self.gather(elements.start * size..elements.end * size, out, &read)?;
            Turn::Units(size as usize).apply(size as usize, out);
            Ok(())
        })
    }

    /// Fills `out` with bytes of the runs as they are stored.
    fn gather<E>(
        &self,
        part: Range<u64>,
        out: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { stride, width, .. } = *self;
        if width == 0 {
            return Ok(());
        }
        let together = if stride.saturating_sub(width) > GAP { 1 } else { (PIECE as u64 / stride.max(1)).max(1) };
        let mut buffer = Vec::new();
        let (mut at, mut rest) = (part.start, out);
        while at < part.end {
            let (row, skip) = (at / width, at % width);
            let end = part.end.min((row + together).saturating_mul(width));
            let (here, after) = rest.split_at_mut((end - at) as usize);
            let last = (end - 1) / width;
            if last == row {
                read(self.run(row).saturating_add(skip), here)?;
            } else {
                // From the beginning of the first run to the end of the last.
                buffer.resize(((last - row) * stride + width) as usize, 0);
                read(self.run(row), &mut buffer)?;
                let mut fields = buffer.chunks(stride as usize).flat_map(|row| &row[..width as usize]);
                let mut fields = fields.by_ref().skip(skip as usize);
                here.iter_mut().zip(&mut fields).for_each(|(to, from)| *to = *from);
            }
            (at, rest) = (end, after);
        }
        Ok(())
    }
}

impl Rendered for Strided {
    fn is_copy(&self) -> bool {
        true
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let rows = self.rows(&part);
        reader.check_quick(rows.end - rows.start <= MUCH)?;
        self.fill_from(part, out, |at, buf| reader.fill_stored(None, at, buf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Source, SourceError};

    fn read(field: &Strided, file: &dyn Source, part: Range<u64>, out: &mut [u8]) -> Result<(), SourceError> {
        field.fill_from(part, out, |at, buf| file.fill(at, buf))
    }

    #[test]
    fn any_part_is_the_slice_of_the_whole() {
        // The last three are big-endian.
        let cases = [
            (13, 4, 9, 1),
            (5, 1, 40, 1),
            (7, 7, 5, 1),
            (6000, 3, 4, 1),
            (13, 4, 9, 4),
            (20, 16, 4, 8),
            (24, 24, 1, 2),
        ];
        for (stride, width, rows, swap) in cases {
            let file: Vec<u8> = (0..2 + stride * rows).map(|i| (i * 7 % 253) as u8).collect();
            let field = Strided { start: 2, stride, width, swap };
            let mut whole: Vec<u8> =
                (0..rows).flat_map(|r| file[(2 + r * stride) as usize..][..width as usize].to_vec()).collect();
            whole.chunks_exact_mut(swap as usize).for_each(<[u8]>::reverse);
            for start in 0..whole.len() {
                for end in start..=whole.len() {
                    let mut out = vec![0; end - start];
                    read(&field, &file, start as u64..end as u64, &mut out).unwrap();
                    assert_eq!(out, whole[start..end]);
                }
            }
        }
    }

    #[test]
    fn runs_beyond_the_largest_file_fail() {
        let file = vec![0; 64];
        for (start, stride) in [(u64::MAX, 8), (1 << 62, 1 << 62), (60, 8)] {
            let field = Strided { start, stride, width: 8, swap: 4 };
            assert!(read(&field, &file, 8..64, &mut [0; 56]).is_err());
        }
    }
}
