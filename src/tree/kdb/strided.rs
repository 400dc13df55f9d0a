//! One field of interleaved rows as an array of its own (`docs/formats/kdb.md` 5).

use std::ops::Range;

use crate::{
    limits::PIECE,
    view::{Fault, ReadContext, Rendered},
};

/// Location of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strided {
    /// The field's first byte in the first row, in the file.
    pub(super) start: u64,
    /// Bytes of a row.
    pub(super) stride: u64,
    /// Bytes of the field.
    pub(super) width: u64,
}

/// Largest gap in bytes between the fields of two rows that is read instead of skipped.
const GAP: u64 = 4096;

/// Bytes of rows from which gathering a field costs more than a thread of the pool.
const MUCH: u64 = 4 << 20;

impl Strided {
    /// Returns the range of the file from the first row that a part needs to the end of the last.
    pub(super) fn rows(&self, part: &Range<u64>) -> Range<u64> {
        let Self { start, stride, width } = *self;
        if part.is_empty() || width == 0 {
            return start..start;
        }
        start + part.start / width * stride..start + (part.end - 1) / width * stride + width
    }

    /// Fills `out` with a part of the gathered field; `read` copies bytes of the file from an offset on.
    fn gather<E>(
        &self,
        part: Range<u64>,
        out: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { start, stride, width } = *self;
        if width == 0 {
            return Ok(());
        }
        let together = if stride.saturating_sub(width) > GAP { 1 } else { (PIECE as u64 / stride.max(1)).max(1) };
        let mut buffer = Vec::new();
        let (mut at, mut rest) = (part.start, out);
        while at < part.end {
            let (row, skip) = (at / width, at % width);
            let end = part.end.min((row + together) * width);
            let (here, after) = rest.split_at_mut((end - at) as usize);
            let last = (end - 1) / width;
            if last == row {
                read(start + row * stride + skip, here)?;
            } else {
                // From the first row's field to the end of the last row's.
                buffer.resize(((last - row) * stride + width) as usize, 0);
                read(start + row * stride, &mut buffer)?;
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
        self.gather(part, out, |at, buf| reader.fill_stored(None, at, buf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_is_the_slice_of_the_whole() {
        for (stride, width, rows) in [(13u64, 4u64, 9u64), (5, 1, 40), (7, 7, 5), (6000, 3, 4)] {
            let file: Vec<u8> = (0..2 + stride * rows).map(|i| (i * 7 % 253) as u8).collect();
            let field = Strided { start: 2, stride, width };
            let whole: Vec<u8> =
                (0..rows).flat_map(|r| file[(2 + r * stride) as usize..][..width as usize].to_vec()).collect();
            for start in 0..whole.len() {
                for end in start..=whole.len() {
                    let mut out = vec![0; end - start];
                    let read = |at: u64, buf: &mut [u8]| -> Result<(), ()> {
                        buf.copy_from_slice(&file[at as usize..at as usize + buf.len()]);
                        Ok(())
                    };
                    field.gather(start as u64..end as u64, &mut out, read).unwrap();
                    assert_eq!(out, whole[start..end]);
                }
            }
        }
    }
}
