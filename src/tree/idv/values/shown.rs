//! The files of a column (`docs/TREE.md`, section 6). Each is computed for the range that is read.

use std::{ops::Range, sync::Arc};

use super::{
    Block, BlockError, ColumnPart, Fault, Item, ReadContext, Values,
    items::{self, ItemError},
    lines,
    totals::Sum,
};
use crate::{
    cache::Key,
    format::DType,
    limits,
    view::{Array, Bytes, Rendered, View},
};

/// Most blocks that a read may touch and still be answered on the spot.
const FEW: u64 = 4;

/// Records of a lookup table that are read together.
const RECORDS: u64 = 256;

/// Bytes of a number in an offsets file.
const WIDE: u64 = 8;

/// Which file of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Show {
    /// The values, dense.
    Values,
    /// Where each row begins among all slots.
    Rows,
    /// Where each text begins.
    Offsets,
    /// All texts.
    Text,
    /// Which texts are missing.
    Missing,
    /// Texts as JSON.
    Lines,
}

/// A file that shows values.
pub(crate) enum File {
    /// An array.
    Array(Array),
    /// Text, lines of JSON, or other bytes.
    Other(View),
}

impl File {
    pub(crate) fn view(self) -> View {
        match self {
            Self::Array(array) => array.npy(),
            Self::Other(view) => view,
        }
    }

    /// Returns the bytes, for an array without its header.
    pub(crate) fn data(self) -> View {
        match self {
            Self::Array(array) => array.data,
            Self::Other(view) => view,
        }
    }

    pub(crate) fn array(self) -> Option<Array> {
        match self {
            Self::Array(array) => Some(array),
            Self::Other(_) => None,
        }
    }
}

/// The values of a column, as one of its files shows them.
#[derive(Debug)]
pub(crate) struct Shown {
    values: Arc<Values>,
    show: Show,
}

impl Shown {
    /// Returns the file.
    ///
    /// # Errors
    /// [`Fault`] if the size depends on blocks that are damaged or cannot be read.
    pub(crate) fn open(values: &Arc<Values>, show: Show, reader: &ReadContext) -> Result<File, Fault> {
        let this = Self { values: values.clone(), show };
        let slots = this.elements(reader)?;
        let too_long = || {
            let reason = BlockError::Refused("it would have more than 2^63 bytes".into());
            values.fault(0, 0, reason)
        };
        let length = slots.checked_mul(this.width()).filter(|length| *length < i64::MAX as u64 - 4096);
        let length = length.ok_or_else(too_long)?;
        let array_type = match show {
            Show::Text | Show::Lines => None,
            Show::Rows | Show::Offsets => Some((DType::I64, vec![slots])),
            Show::Missing => Some((DType::Bool, vec![slots])),
            Show::Values => values.ty.item.dtype().map(|dtype| (dtype, values.shape(slots))),
        };
        let data = View::default().with_rendered(length, this);
        Ok(match array_type {
            Some((dtype, shape)) => File::Array(Array::new(dtype, shape, data)),
            None => File::Other(data),
        })
    }

    /// Returns all texts without knowing their length. Reading past their end fails.
    pub(crate) fn unsized_text(values: &Arc<Values>) -> View {
        View::default().with_rendered(limits::LARGEST_BLOCK, Self { values: values.clone(), show: Show::Text })
    }

    /// Returns the number of elements of the file; for texts, of bytes.
    fn elements(&self, reader: &ReadContext) -> Result<u64, Fault> {
        let values = &self.values;
        match self.show {
            Show::Rows => Ok(values.rows.saturating_add(1)),
            Show::Text => values.totals(reader, Sum::Text)?.all(),
            Show::Lines => values.totals(reader, Sum::Lines)?.all(),
            Show::Values | Show::Missing => self.slots(reader),
            Show::Offsets => Ok(self.slots(reader)?.saturating_add(1)),
        }
    }

    fn slots(&self, reader: &ReadContext) -> Result<u64, Fault> {
        match self.values.slots() {
            Some(slots) => Ok(self.values.rows.saturating_mul(slots)),
            None => self.values.totals(reader, Sum::Slots)?.all(),
        }
    }

    /// Returns the bytes of an element.
    fn width(&self) -> u64 {
        match self.show {
            Show::Values => self.values.ty.item.width(),
            Show::Rows | Show::Offsets => WIDE,
            Show::Text | Show::Missing | Show::Lines => 1,
        }
    }

    /// Returns which sum says where blocks begin in the file; `None` if all have equally many elements.
    fn sum(&self) -> Option<Sum> {
        match self.show {
            Show::Text => Some(Sum::Text),
            Show::Lines => Some(Sum::Lines),
            Show::Rows => None,
            _ => self.values.slots().is_none().then_some(Sum::Slots),
        }
    }

    /// Returns the elements of a full block, if all have equally many.
    fn per_block(&self) -> u64 {
        let slots = if self.show == Show::Rows { 1 } else { self.values.slots().unwrap_or(1) };
        self.values.rows_per_block.saturating_mul(slots).max(1)
    }

    /// Returns the block that holds an element, and the element's number in it.
    fn locate(&self, reader: &ReadContext, element: u64) -> Result<(u64, u64), Fault> {
        match self.sum() {
            Some(sum) => {
                let totals = self.values.totals(reader, sum)?;
                let block = totals.find(element);
                Ok((block, element - totals.start(block)?))
            }
            // The last number of an offsets file comes after all blocks.
            None if element >= self.full() => Ok((self.values.blocks, element - self.full())),
            None => Ok((element / self.per_block(), element % self.per_block())),
        }
    }

    /// Returns the end of a block's elements.
    fn end_of(&self, reader: &ReadContext, block: u64) -> Result<u64, Fault> {
        match self.sum() {
            Some(sum) => self.values.totals(reader, sum)?.start(block + 1),
            None => Ok((block + 1).saturating_mul(self.per_block()).min(self.full())),
        }
    }

    /// Returns the elements of all blocks, if all have equally many.
    fn full(&self) -> u64 {
        let slots = if self.show == Show::Rows { 1 } else { self.values.slots().unwrap_or(1) };
        self.values.rows.saturating_mul(slots)
    }

    /// Returns whether ranges of blocks are read, without parsing the whole block.
    fn is_plain(&self) -> bool {
        self.show == Show::Values && self.values.ty.dims.is_none()
    }

    /// Goes through the blocks that some elements touch, with number, place, and which of its elements.
    fn each_block(
        &self,
        reader: &ReadContext,
        elements: Range<u64>,
        mut each: impl FnMut(u64, Result<Block, Fault>, Range<u64>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut records, mut first) = (Vec::new(), 0);
        let mut at = elements.start;
        let last = if elements.is_empty() { 0 } else { self.locate(reader, elements.end - 1)?.0 };
        while at < elements.end {
            let (number, from) = self.locate(reader, at)?;
            let is_behind = number >= self.values.blocks;
            let end = if is_behind { elements.end } else { self.end_of(reader, number)?.min(elements.end) };
            let block = if is_behind {
                Err(self.values.fault(number, 0, BlockError::Refused("it is behind the last block".into())))
            } else {
                if number - first >= records.len() as u64 {
                    first = number;
                    records = self.values.blocks(reader, first, RECORDS.min(last - number + 1))?;
                    records.reverse();
                }
                while first < number {
                    records.pop();
                    first += 1;
                }
                first += 1;
                records.pop().unwrap_or_else(|| self.values.block(reader, number))
            };
            each(number, block, from..from + (end - at))?;
            at = end;
        }
        Ok(())
    }

    /// Fills `out` with whole elements of a block.
    fn fill_block(
        &self,
        reader: &ReadContext,
        number: u64,
        block: Result<Block, Fault>,
        elements: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let values = &self.values;
        match self.show {
            Show::Values if self.is_plain() => {
                let (block, rows) = (block?, values.rows_of(number));
                let item = values.ty.item;
                if block.size < item.stored(rows) {
                    let reason = format!("{} bytes are too few for {rows} values", block.size);
                    return Err(values.fault(number, block.offset, BlockError::Refused(reason)));
                }
                let read = |at, out: &mut [u8]| values.read(reader, number, &block, at, out);
                items::fill(item, rows, elements, read, out).map_err(|error| match error {
                    ItemError::Read(fault) => fault,
                    ItemError::Damaged(reason) => values.fault(number, block.offset, BlockError::Refused(reason)),
                })
            }
            Show::Values => self.fill_slots(reader, number, &block?, elements, out),
            Show::Rows => {
                let base = values.slots_start(reader, number)?;
                // The first element of a block is known without it.
                if elements == (0..1) {
                    out.copy_from_slice(&base.to_le_bytes());
                    return Ok(());
                }
                let content = values.content(reader, number, &block?)?;
                let mut place = content.place(elements.start);
                for out in out.chunks_exact_mut(WIDE as usize) {
                    out.copy_from_slice(&(base + place.slots).to_le_bytes());
                    content.step(&mut place);
                }
                Ok(())
            }
            Show::Offsets => {
                let texts = values.totals(reader, Sum::Text)?;
                let base = texts.start(number)?;
                if elements == (0..1) {
                    out.copy_from_slice(&base.to_le_bytes());
                    return Ok(());
                }
                let content = self.text_of(reader, number, &block?)?;
                let mut starts = out.chunks_exact_mut(WIDE as usize);
                content.runs(elements, |run| {
                    for number in 0..run.slots.end - run.slots.start {
                        let item = run.items.map_or(run.before, |first| first + number);
                        let Some(out) = starts.next() else { return false };
                        out.copy_from_slice(&(base + content.text_start(item)).to_le_bytes());
                    }
                    true
                });
                Ok(())
            }
            Show::Missing => {
                let content = values.content(reader, number, &block?)?;
                let mut marks = out.iter_mut();
                content.runs(elements, |run| {
                    for number in 0..run.slots.end - run.slots.start {
                        let Some(out) = marks.next() else { return false };
                        *out = u8::from(run.items.is_some_and(|first| content.is_missing(first + number)));
                    }
                    true
                });
                Ok(())
            }
            Show::Text => {
                let content = self.text_of(reader, number, &block?)?;
                out.copy_from_slice(&content.text()[elements.start as usize..elements.end as usize]);
                Ok(())
            }
            Show::Lines => lines::fill(values, reader, number, &block?, elements, out),
        }
    }

    /// Returns a block, after checking that its text has the length that the files assume.
    fn text_of(
        &self,
        reader: &ReadContext,
        number: u64,
        block: &Block,
    ) -> Result<crate::format::idv::Content<crate::cache::Buffer>, Fault> {
        let content = self.values.content(reader, number, block)?;
        let texts = self.values.totals(reader, Sum::Text)?;
        let (length, stated) = (content.text().len() as u64, texts.start(number + 1)? - texts.start(number)?);
        if length != stated {
            let reason = format!("its text has {length} bytes, by its size it would have {stated}");
            return Err(self.values.fault(number, block.offset, BlockError::Refused(reason)));
        }
        Ok(content)
    }

    /// Fills `out` with dense slots of vectors.
    fn fill_slots(
        &self,
        reader: &ReadContext,
        number: u64,
        block: &Block,
        slots: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let content = self.values.content(reader, number, block)?;
        let item = self.values.ty.item;
        let stored = content.stored();
        let read = |at: u64, out: &mut [u8]| {
            let bytes = usize::try_from(at).ok().and_then(|at| stored.get(at..)?.get(..out.len()));
            out.copy_from_slice(bytes.ok_or("its values are cut short")?);
            Ok::<(), &str>(())
        };
        let (first, width) = (slots.start, item.width());
        let mut result = Ok(());
        content.runs(slots, |run| {
            let place = ((run.slots.start - first) * width) as usize..((run.slots.end - first) * width) as usize;
            // Absent slots are zero already.
            let Some(items) = run.items else { return true };
            let items = items..items + (run.slots.end - run.slots.start);
            result = items::fill(item, content.items(), items, read, &mut out[place]);
            result.is_ok()
        });
        result.map_err(|error| {
            let reason = match error {
                ItemError::Read(reason) => reason.to_owned(),
                ItemError::Damaged(reason) => reason,
            };
            self.values.fault(number, block.offset, BlockError::Refused(reason))
        })
    }
}

impl Values {
    /// Returns the shape of the values. A metadata value is one row, shown without that axis.
    fn shape(&self, slots: u64) -> Vec<u64> {
        let rows = match self.ty.row_shape() {
            None => Some(slots),
            Some(_) => matches!(self.place, super::Place::Table { .. }).then_some(self.rows),
        };
        let row = self.ty.row_shape().unwrap_or_else(|| if self.ty.item == Item::RowId { vec![2] } else { vec![] });
        rows.into_iter().chain(row).collect()
    }

    /// Returns the number of slots before a block.
    fn slots_start(&self, reader: &ReadContext, block: u64) -> Result<u64, Fault> {
        self.totals(reader, Sum::Slots)?.start(block)
    }
}

impl Rendered for Shown {
    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        if !self.is_plain() || !matches!(self.values.ty.item, Item::Number(_) | Item::RowId) {
            return Ok(None);
        }
        let width = self.width();
        let (first, last) = (part.start / width, (part.end - 1) / width);
        let ((number, from), (end, _)) = (self.locate(reader, first)?, self.locate(reader, last)?);
        if number != end {
            return Ok(None);
        }
        let block = self.values.block(reader, number)?;
        if block.size < self.values.ty.item.stored(self.values.rows_of(number)) {
            return Ok(None);
        }
        let at = from * width + part.start % width;
        let key = self.values.key(reader, ColumnPart::Block, number);
        reader
            .borrow_range(key, &block, at..at + (part.end - part.start))
            .map_err(|error| self.values.shared_fault(number, block.offset, error))
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let width = self.width();
        let elements = part.start / width..part.end.div_ceil(width);
        let first = elements.start;
        let (last, first_block) = (self.locate(reader, elements.end - 1)?.0, self.locate(reader, first)?.0);
        reader.check_quick(last - first_block < FEW)?;
        if part.start.is_multiple_of(width) && part.end.is_multiple_of(width) {
            // Absent slots stay zero.
            out.fill(0);
            return self.fill_elements(reader, elements, out);
        }
        // No longer than the request, and one element at each end.
        let mut whole = vec![0; ((elements.end - first) * width) as usize];
        self.fill_elements(reader, elements, &mut whole)?;
        let from = (part.start - first * width) as usize;
        out.copy_from_slice(&whole[from..from + out.len()]);
        Ok(())
    }
}

impl Shown {
    fn fill_elements(&self, reader: &ReadContext, elements: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let mut rest = out;
        let width = self.width();
        self.each_block(reader, elements, |number, block, elements| {
            let (here, after) =
                std::mem::take(&mut rest).split_at_mut(((elements.end - elements.start) * width) as usize);
            rest = after;
            self.fill_block(reader, number, block, elements, here)
        })
    }
}

/// A decoded block of any column.
#[derive(Debug)]
pub(crate) struct Raw {
    column: u32,
    number: u64,
    block: Block,
}

impl Raw {
    /// Returns the block of a number in a column as a file.
    pub(crate) fn view(column: u32, number: u64, block: Block) -> View {
        View::default().with_rendered(block.size, Self { column, number, block })
    }

    fn key(&self, reader: &ReadContext) -> Key {
        ColumnPart::Block.key(reader, self.column, self.number)
    }

    fn fault(&self, error: Arc<BlockError>) -> Fault {
        Fault { block: Some(self.number as u32), offset: self.block.offset, error }
    }
}

impl Rendered for Raw {
    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        reader.borrow_range(self.key(reader), &self.block, part).map_err(|error| self.fault(error))
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.fill_range(self.key(reader), &self.block, part.start, out).map_err(|error| self.fault(error))
    }
}
