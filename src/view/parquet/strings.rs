//! Columns of texts: where texts come from, and the page of some of them.

use std::{fmt, ops::Range};

use super::{element::TOGETHER, levels};
use crate::{
    format::{DType, Fields},
    view::{Fault, ReadContext, View},
};

/// Texts, one per row.
pub trait Strings: fmt::Debug + Send + Sync {
    /// Returns the bytes of the texts of some rows, or an upper bound.
    ///
    /// # Errors
    /// [`Fault`] if that needs bytes which cannot be read or are damaged.
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault>;

    /// Writes the texts of some rows to the front of `out`, one after the other; `out` has [`Self::size`] bytes.
    /// Returns for each row the length of its text; `None` if it is missing.
    ///
    /// # Errors
    /// As [`Self::size`].
    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault>;

    /// Returns the bytes of memory that the texts take as long as the table is kept.
    fn memory_usage(&self) -> usize {
        0
    }
}

/// Makes the page of some rows of texts in `out`, which is zeros.
pub(super) fn fill_strings(
    strings: &dyn Strings,
    reader: &ReadContext,
    rows: Range<u64>,
    is_nullable: bool,
    out: &mut [u8],
) -> Result<(), Fault> {
    let count = rows.end - rows.start;
    let (levels, values) = if is_nullable { levels::split_packed(count, 1, out) } else { out.split_at_mut(0) };
    let lengths = texts_into(strings, reader, rows, is_nullable, values)?;
    for (row, _) in lengths.iter().enumerate().filter(|(_, length)| is_nullable && **length != ABSENT) {
        levels[row / 8] |= 1 << (row % 8);
    }
    Ok(())
}

/// Writes texts to the front of `values`, each after its length, and zeros behind them. Missing ones are left out if
/// that `is_nullable`, and empty otherwise. Returns the length of each, [`ABSENT`] for those that are missing.
pub(super) fn texts_into(
    strings: &dyn Strings,
    reader: &ReadContext,
    rows: Range<u64>,
    is_nullable: bool,
    values: &mut [u8],
) -> Result<Vec<u32>, Fault> {
    let count = rows.end - rows.start;
    let text = strings.size(reader, rows.clone())?;
    // The texts are first written to the end of the page. From there, each moves forward to its place, because lengths
    // take 4 bytes for each row.
    let texts = 4 * count as usize;
    let Some(room) = usize::try_from(text).ok().and_then(|text| values.get_mut(texts..)?.get_mut(..text)) else {
        return Err(unsound(rows.start));
    };
    let mut lengths = Vec::with_capacity(count as usize);
    strings.fill(reader, rows, room, &mut |length| {
        lengths.push(length.map_or(ABSENT, |length| length as u32));
    })?;
    let (mut from, mut to) = (texts, 0);
    for &length in &lengths {
        if length == ABSENT && is_nullable {
            continue;
        }
        let length = if length == ABSENT { 0 } else { length as usize };
        values[to..to + 4].copy_from_slice(&(length as u32).to_le_bytes());
        values.copy_within(from..from + length, to + 4);
        (from, to) = (from + length, to + 4 + length);
    }
    values[to..].fill(0);
    Ok(lengths)
}

/// Stands for the length of a missing text; pages are shorter than this.
pub(super) const ABSENT: u32 = u32::MAX;

/// Consecutive texts, with an array of offsets: where each text begins, and where the last one ends.
#[derive(Debug)]
pub struct Ragged {
    /// The offsets in `data`.
    pub offsets: View,
    /// The type of the offsets: i64, u32 or u64.
    pub dtype: DType,
    /// The texts.
    pub data: View,
    /// A byte per row, not 0 if the text is missing.
    pub missing: Option<View>,
}

impl Ragged {
    fn offset(&self, reader: &ReadContext, row: u64) -> Result<u64, Fault> {
        offset(&self.offsets, self.dtype, reader, row)
    }
}

/// Reads one offset of the type i64, u32 or u64.
pub(super) fn offset(view: &View, dtype: DType, reader: &ReadContext, row: u64) -> Result<u64, Fault> {
    Ok(offsets(view, dtype, reader, row, 1)?.first().copied().unwrap_or(0))
}

/// Reads some offsets of the type i64, u32 or u64.
pub(super) fn offsets(
    view: &View,
    dtype: DType,
    reader: &ReadContext,
    first: u64,
    count: u64,
) -> Result<Vec<u64>, Fault> {
    let width = dtype.size();
    let mut bytes = vec![0; (count * width) as usize];
    view.fill_at(reader, first * width, &mut bytes)?;
    let number = |bytes: &[u8]| if width == 4 { bytes.u32(0).map(u64::from) } else { bytes.u64(0) };
    Ok(bytes.chunks_exact(width as usize).map(|bytes| number(bytes).unwrap_or(0)).collect())
}

pub(super) fn unsound(row: u64) -> Fault {
    Fault::refused(format!("the offsets of its texts are not sound at row {row}"))
}

impl Strings for Ragged {
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let (start, end) = (self.offset(reader, rows.start)?, self.offset(reader, rows.end)?);
        match end.checked_sub(start) {
            Some(size) if end <= self.data.size() => Ok(size),
            _ => Err(unsound(rows.start)),
        }
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let mut at = self.offset(reader, rows.start)?;
        let end = at.checked_add(out.len() as u64).filter(|end| *end <= self.data.size());
        let end = end.ok_or_else(|| unsound(rows.start))?;
        self.data.fill_at(reader, at, out)?;
        for first in rows.clone().step_by(TOGETHER as usize) {
            let count = TOGETHER.min(rows.end - first);
            let offsets = offsets(&self.offsets, self.dtype, reader, first + 1, count)?;
            let mut marks = vec![0; count as usize];
            if let Some(missing) = &self.missing {
                missing.fill_at(reader, first, &mut marks)?;
            }
            for ((row, offset), mark) in (first..).zip(offsets).zip(marks) {
                let length = offset.checked_sub(at).filter(|_| offset <= end).ok_or_else(|| unsound(row))?;
                at = offset;
                if mark != 0 && length > 0 {
                    return Err(unsound(row));
                }
                each((mark == 0).then_some(length));
            }
        }
        if at == end { Ok(()) } else { Err(unsound(rows.end)) }
    }
}
