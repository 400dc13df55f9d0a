//! Ragged text columns of tree sequences, one row per line (`docs/TREE.md`, section 5; `docs/formats/kastore.md` 11).

use std::{ops::Range, sync::Arc};

use crate::{
    format::DType,
    source::{Source, SourceError},
    view::{Fault, ReadContext, Rendered},
};

/// Rows between two entries of the index. As many offsets are read at once.
const STRIDE: u64 = 4096;

/// The rows of one column: where text and offsets are in the file, and where in the output every [`STRIDE`]th row
/// begins.
#[derive(Debug)]
pub(super) struct Rows {
    data: Range<u64>,
    offsets: Range<u64>,
    wide: bool,
    rows: u64,
    /// Text of an empty row.
    empty: &'static [u8],
    index: Vec<u64>,
    size: u64,
}

impl Rows {
    /// Walks the offsets once. `Ok(None)` if they are not sound (from 0, never falling, ending at the length); then
    /// there is no such view.
    ///
    /// # Errors
    /// [`SourceError`] if the offsets could not be read.
    pub(super) fn new(
        source: &dyn Source,
        data: Range<u64>,
        offsets: Range<u64>,
        dtype: DType,
        empty: &'static [u8],
    ) -> Result<Option<Self>, SourceError> {
        let wide = match dtype {
            DType::U32 => false,
            DType::U64 => true,
            _ => return Ok(None),
        };
        let Some(rows) = ((offsets.end - offsets.start) / dtype.size()).checked_sub(1) else { return Ok(None) };
        let length = data.end - data.start;
        let mut this = Self { data, offsets, wide, rows, empty, index: Vec::new(), size: 0 };
        let mut previous = 0;
        let mut at = 0;
        while at < rows {
            this.index.push(this.size);
            let bounds = this.bounds(source, at)?;
            if bounds.first() != Some(&previous) {
                return Ok(None);
            }
            for pair in bounds.windows(2) {
                if pair[1] < pair[0] || pair[1] > length {
                    return Ok(None);
                }
                this.size += this.line_length(pair[1] - pair[0]);
                previous = pair[1];
            }
            at += STRIDE;
        }
        let from_zero = rows > 0 || this.bounds(source, 0)? == [0];
        Ok((from_zero && previous == length).then_some(this))
    }

    /// Returns the size of the text in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Fills `out` with a part of the text.
    ///
    /// # Errors
    /// [`SourceError`] if the column cannot be read.
    fn fill_from(&self, source: &dyn Source, part: Range<u64>, out: &mut [u8]) -> Result<(), SourceError> {
        let group = self.index.partition_point(|&start| start <= part.start).saturating_sub(1);
        let mut row = group as u64 * STRIDE;
        let mut at = self.index.get(group).copied().unwrap_or(0);
        while at < part.end && row < self.rows {
            for pair in self.bounds(source, row)?.windows(2) {
                // The source notices offsets that changed since the walk; they are not trusted here.
                let length = pair[1].saturating_sub(pair[0]);
                let line = at..at + self.line_length(length);
                if line.end > part.start && line.start < part.end {
                    let from = part.start.max(line.start) - line.start;
                    let to = part.end.min(line.end) - line.start;
                    let target =
                        &mut out[(line.start + from - part.start) as usize..(line.start + to - part.start) as usize];
                    self.fill_line(source, pair[0]..pair[0] + length, from, target)?;
                }
                at = line.end;
                if at >= part.end {
                    break;
                }
            }
            row += STRIDE;
        }
        Ok(())
    }

    /// Writes a part of one line, from its byte `from` on.
    fn fill_line(&self, source: &dyn Source, row: Range<u64>, from: u64, out: &mut [u8]) -> Result<(), SourceError> {
        if row.is_empty() {
            let line = [self.empty, b"\n"].concat();
            out.copy_from_slice(&line[from as usize..from as usize + out.len()]);
            return Ok(());
        }
        let length = row.end - row.start;
        let text = length.saturating_sub(from).min(out.len() as u64) as usize;
        let (text, newline) = out.split_at_mut(text);
        source.fill(self.data.start + row.start + from, text)?;
        for byte in text.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        newline.fill(b'\n');
        Ok(())
    }

    fn line_length(&self, row: u64) -> u64 {
        1 + if row == 0 { self.empty.len() as u64 } else { row }
    }

    /// Returns the offsets from row `at` on: of up to [`STRIDE`] rows, and the end of the last.
    fn bounds(&self, source: &dyn Source, at: u64) -> Result<Vec<u64>, SourceError> {
        let width = if self.wide { 8 } else { 4 };
        let end = (at + STRIDE).min(self.rows) + 1;
        let bytes = source.read(self.offsets.start + at * width..self.offsets.start + end * width)?;
        let wide = |b: &[u8]| b.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        Ok(bytes.chunks_exact(width as usize).map(wide).collect())
    }
}

impl Rendered for Rows {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        // Each line needs a read of the file.
        reader.check_quick(false)?;
        let fault = |error: SourceError| Fault { block: None, offset: self.data.start, error: Arc::new(error.into()) };
        self.fill_from(&*reader.source, part, out).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text at 0, then u32 offsets.
    fn column(rows: &[&str]) -> (Vec<u8>, Range<u64>, Range<u64>) {
        let mut bytes: Vec<u8> = rows.concat().into_bytes();
        let data = 0..bytes.len() as u64;
        let mut at = 0u32;
        bytes.extend(at.to_le_bytes());
        for row in rows {
            at += row.len() as u32;
            bytes.extend(at.to_le_bytes());
        }
        let offsets = data.end..bytes.len() as u64;
        (bytes, data, offsets)
    }

    fn text(rows: &[&str], empty: &'static [u8]) -> Vec<u8> {
        let (bytes, data, offsets) = column(rows);
        let view = Rows::new(&bytes, data, offsets, DType::U32, empty).unwrap().unwrap();
        let mut whole = vec![0; view.size() as usize];
        view.fill_from(&bytes, 0..view.size(), &mut whole).unwrap();
        for start in (0..view.size()).step_by(1 + whole.len() / 50) {
            for end in (start..=view.size()).step_by(1 + whole.len() / 50) {
                let mut part = vec![0; (end - start) as usize];
                view.fill_from(&bytes, start..end, &mut part).unwrap();
                assert_eq!(part, whole[start as usize..end as usize]);
            }
        }
        whole
    }

    #[test]
    fn line_breaks_become_spaces_and_empty_rows_objects() {
        assert_eq!(text(&["{\"a\":\n1}", "", "x\r\ny"], b"{}"), b"{\"a\": 1}\n{}\nx  y\n");
        assert_eq!(text(&["", ""], b""), b"\n\n");
        assert_eq!(text(&[], b"{}"), b"");
    }

    #[test]
    fn many_rows_cross_the_index() {
        let rows: Vec<String> = (0..10_000).map(|i| if i % 3 == 0 { String::new() } else { format!("{i}") }).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let expected: String =
            rows.iter().map(|row| format!("{}\n", if row.is_empty() { "{}" } else { row })).collect();
        assert_eq!(text(&rows, b"{}"), expected.as_bytes());
    }

    #[test]
    fn unsound_offsets_give_no_view() {
        for change in [(0, 1u8), (4, 9), (8, 2)] {
            let (mut bytes, data, offsets) = column(&["ab", "cd"]);
            bytes[offsets.start as usize + change.0] = change.1;
            assert!(Rows::new(&bytes, data, offsets, DType::U32, b"").unwrap().is_none(), "{change:?}");
        }
        let (bytes, data, offsets) = column(&["ab"]);
        assert!(Rows::new(&bytes, data.clone(), offsets, DType::I32, b"").unwrap().is_none());
        assert!(Rows::new(&bytes, data, 2..2, DType::U32, b"").unwrap().is_none());
    }
}
