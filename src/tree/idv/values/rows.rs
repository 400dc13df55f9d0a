//! Some rows of a column, read from only the blocks that contain them. The files of a column of texts need the sizes of
//! all blocks first, which takes long if there are many.

use std::{ops::Range, sync::Arc};

use super::{Fault, Item, ReadContext, Show, Shown, Values};
use crate::{
    format::DType,
    tree::{Cell, Cells, Text},
};

/// Returns rows of a column: at most the first `elements` slots of each, and at most the first `bytes` of a text.
/// `None` if the values are neither texts nor of an element type.
///
/// # Errors
/// [`Fault`] if a block cannot be read.
pub(in crate::tree::idv) fn rows(
    values: &Values,
    reader: &ReadContext,
    rows: Range<u64>,
    elements: u64,
    bytes: u64,
) -> Result<Option<Vec<Cells>>, Fault> {
    let item = values.ty.item;
    let dtype = item.dtype().filter(|_| item != Item::RowId);
    if item != Item::Text && dtype.is_none() {
        return Ok(None);
    }
    let mut cells = Vec::new();
    let mut at = rows.start;
    while at < rows.end.min(values.rows) {
        let block = at / values.rows_per_block.max(1);
        let first = block * values.rows_per_block;
        let Some(part) = values.part(block) else { return Ok(None) };
        let here = at - first..(rows.end - first).min(part.rows);
        at = first + here.end;
        let part = Part { values: Arc::new(part), reader };
        let starts = part.starts(&here)?;
        for slots in starts.windows(2) {
            let count = slots[1].saturating_sub(slots[0]);
            let slots = slots[0]..slots[0] + count.min(elements);
            let elements = match dtype {
                Some(dtype) => part.numbers(slots, dtype)?,
                None => part.texts(&slots, bytes)?,
            };
            cells.push(Cells { count: values.ty.dims.as_ref().map(|_| count), elements });
        }
    }
    Ok(Some(cells))
}

/// One block.
struct Part<'a> {
    values: Arc<Values>,
    reader: &'a ReadContext,
}

impl Part<'_> {
    fn read(&self, show: Show, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
        Shown::open(&self.values, show, self.reader)?.data().copy_at(self.reader, offset, length)
    }

    fn wide(&self, show: Show, range: &Range<u64>) -> Result<Vec<u64>, Fault> {
        let bytes = self.read(show, 8 * range.start, 8 * (range.end - range.start))?;
        Ok(bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }

    /// Returns where the slots of rows begin, and where those of the last end.
    fn starts(&self, rows: &Range<u64>) -> Result<Vec<u64>, Fault> {
        match self.values.slots() {
            Some(slots) => Ok((rows.start..=rows.end).map(|row| row.saturating_mul(slots)).collect()),
            None => self.wide(Show::Rows, &(rows.start..rows.end + 1)),
        }
    }

    fn numbers(&self, slots: Range<u64>, dtype: DType) -> Result<Vec<Option<Cell>>, Fault> {
        let width = dtype.size();
        let bytes = self.read(Show::Values, slots.start * width, (slots.end - slots.start) * width)?;
        let numbers = bytes.chunks_exact((width as usize).max(1));
        Ok(numbers.map(|number| Some(Cell::Number(dtype, number.to_vec()))).collect())
    }

    /// Returns the first bytes of texts; `None` for missing ones.
    fn texts(&self, slots: &Range<u64>, most: u64) -> Result<Vec<Option<Cell>>, Fault> {
        let starts = self.wide(Show::Offsets, &(slots.start..slots.end + 1))?;
        let missing = self.read(Show::Missing, slots.start, slots.end - slots.start)?;
        let texts = starts.windows(2).zip(missing).map(|(text, missing)| {
            let length = text[1].saturating_sub(text[0]);
            match missing {
                0 => Ok(Some(Cell::Text(Text { bytes: self.read(Show::Text, text[0], length.min(most))?, length }))),
                _ => Ok(None),
            }
        });
        texts.collect()
    }
}
