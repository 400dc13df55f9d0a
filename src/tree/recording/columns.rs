//! Files with a value for each message: times, and the columns of its fields.

use std::{ops::Range, sync::Arc};

use super::{
    Core,
    batch::{DAMAGED, NO_TEXT, NONE_FAILS, SOUND, STATE, Slot, UNDECODED, take_columns},
    chunks::Message,
    totals::{DAMAGED_ROWS, place_of},
};
use crate::{
    format::{
        DType, PartError,
        messages::flat::{Element, Shape, Take},
    },
    limits,
    view::{Array, Fault, ReadContext, Rendered, View, pieces::Pieces},
};

/// The content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// When messages were recorded, from the index.
    Time,
    /// The number of the messages' channel or connection, from the index.
    Source,
    /// Values that every batch has. Rows with this state or a worse one fail. Other rows without a value are 0.
    Kept(Slot, u8),
    /// One byte for each row: 1 if the message does not decode.
    Missing,
    /// A wide column. In tables, rows that cannot be read are 0.
    Wide(usize, u64, bool),
    /// For a column of varying length: the number of elements before each row, and of all.
    Offsets(usize),
    /// The elements of a column of varying length.
    Values(usize),
}

/// A column of a folder.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) core: Arc<Core>,
    pub(super) folder: u32,
    pub(super) what: What,
}

impl Column {
    fn width(&self) -> u64 {
        match self.what {
            What::Time | What::Offsets(_) => 8,
            What::Source => 4,
            What::Kept(Slot::Values { width, .. }, _) => width as u64,
            What::Kept(..) | What::Missing | What::Values(_) => 1,
            What::Wide(_, width, _) => width,
        }
    }

    /// Returns the column of all messages as bytes.
    pub(super) fn view(self) -> View {
        let size = self.core.messages(self.folder).saturating_mul(self.width());
        View::default().with_rendered(size, self)
    }

    fn fill_entries(&self, reader: &ReadContext, rows: Range<u64>, pieces: &mut Pieces<'_>) -> Result<(), Fault> {
        self.core.each_entry(reader, self.folder, rows, |row, entry, _| {
            match self.what {
                What::Time => pieces.take(8 * row, &entry.time.to_le_bytes()),
                _ => pieces.take(4 * row, &entry.source.to_le_bytes()),
            }
            Ok(())
        })
    }

    fn fill_kept(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        slot: Slot,
        failing: u8,
        pieces: &mut Pieces<'_>,
    ) -> Result<(), Fault> {
        let (mut row, width) = (rows.start, self.width());
        while row < rows.end {
            let batch = self.core.batch(reader, self.folder, row)?;
            let end = batch.rows.end.min(rows.end);
            let from = (row - batch.rows.start) as usize;
            let states = batch.states().get(from..(end - batch.rows.start) as usize).unwrap_or_default();
            if let Some(at) = states.iter().position(|state| *state >= failing) {
                return Err(self.core.why(reader, self.folder, row + at as u64, states[at]));
            }
            let values = batch.values(slot).get(from * width as usize..).unwrap_or_default();
            pieces.take(row * width, values.get(..states.len() * width as usize).unwrap_or_default());
            row = end.max(row + 1);
        }
        Ok(())
    }

    fn fill_wide(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        (leaf, is_lenient): (usize, bool),
        pieces: &mut Pieces<'_>,
    ) -> Result<(), Fault> {
        let width = self.width();
        self.core.each_message(reader, self.folder, rows, |Message { row, placed }| {
            let mut pick = Pick { leaf, at: row * width, pieces };
            let is_sound = match (placed, is_lenient) {
                (Ok((_, bytes)), _) => self.core.pick(reader, self.folder, bytes, &mut pick)?,
                (Err(_), true) => false,
                (Err(fault), false) => return Err(fault),
            };
            match is_sound || is_lenient {
                true if is_sound => Ok(()),
                true => {
                    if let Some(wanted) = pieces.overlap(&(row * width..(row + 1) * width)) {
                        pieces.slot(&wanted).fill(0);
                    }
                    Ok(())
                }
                false => Err(self.core.why(reader, self.folder, row, UNDECODED)),
            }
        })
    }

    fn fill_offsets(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        leaf: usize,
        pieces: &mut Pieces<'_>,
    ) -> Result<(), Fault> {
        let core = &self.core;
        let plan = core.plan(self.folder);
        let totals = core.columns_totals(reader, self.folder)?;
        let (place, all) = (place_of(&plan, leaf), core.messages(self.folder));
        if rows.end > all {
            core.check_whole(reader, self.folder, &totals)?;
            pieces.take(8 * all, &totals.all(place).to_le_bytes());
        }
        let (mut row, last) = (rows.start, rows.end.min(all));
        while row < last {
            let batch = core.batch(reader, self.folder, row)?;
            let mark = batch.rows.start / totals.step.max(1);
            let mut sum = totals.at(mark, place);
            let mut is_damaged = totals.at(mark, DAMAGED_ROWS) > 0;
            let lengths = batch.lengths(plan.slot(leaf)).zip(batch.states());
            for (at, (length, state)) in (batch.rows.start..).zip(lengths) {
                if at >= last {
                    break;
                }
                if at >= row && is_damaged {
                    core.check_whole(reader, self.folder, &totals)?;
                }
                pieces.take(8 * at, &sum.to_le_bytes());
                sum = sum.saturating_add(if length == NO_TEXT { 0 } else { length });
                is_damaged |= *state == DAMAGED;
            }
            row = batch.rows.end.max(row + 1);
        }
        Ok(())
    }

    fn fill_values(&self, reader: &ReadContext, leaf: usize, pieces: &mut Pieces<'_>) -> Result<(), Fault> {
        let core = &self.core;
        let plan = core.plan(self.folder);
        let totals = core.columns_totals(reader, self.folder)?;
        let Slot::Lengths { element, .. } = plan.slot(leaf) else { return Ok(()) };
        let (place, element) = (place_of(&plan, leaf), element as u64);
        let (first, end) = (pieces.part.start / element, pieces.part.end);
        for mark in totals.find(place, first)..totals.marks() {
            let mut at = totals.at(mark, place).saturating_mul(element);
            let rows = totals.rows_of(mark);
            if at >= end || rows.is_empty() {
                break;
            }
            let batch = core.batch(reader, self.folder, rows.start)?;
            let skip = (rows.start - batch.rows.start) as usize;
            // The rows that the read needs, and where the values of the first begin.
            let mut touched: Option<(u64, u64)> = None;
            let mut behind = rows.start;
            for (row, length) in rows.clone().zip(batch.lengths(plan.slot(leaf)).skip(skip)) {
                let length = if length == NO_TEXT { 0 } else { length.saturating_mul(element) };
                if pieces.touches(&(at..at.saturating_add(length))) {
                    touched.get_or_insert((row, at));
                    behind = row + 1;
                }
                at = at.saturating_add(length);
            }
            let Some((from, start)) = touched else { continue };
            let mut pick = Pick { leaf, at: start, pieces };
            core.each_message(reader, self.folder, from..behind, |Message { placed, .. }| {
                let before = pick.at;
                if !core.pick(reader, self.folder, placed?.1, &mut pick)? {
                    pick.at = before;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Rendered for Column {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let width = self.width().max(1);
        let rows = part.start / width..part.end.div_ceil(width);
        reader.check_quick(out.len() <= limits::PIECE)?;
        let mut pieces = Pieces { part, out };
        match self.what {
            What::Time | What::Source => self.fill_entries(reader, rows, &mut pieces),
            What::Kept(slot, failing) => self.fill_kept(reader, rows, slot, failing, &mut pieces),
            What::Missing => {
                self.fill_kept(reader, rows, STATE, NONE_FAILS, &mut pieces)?;
                pieces.out.iter_mut().for_each(|state| *state = u8::from(*state != SOUND));
                Ok(())
            }
            What::Wide(leaf, _, is_lenient) => {
                reader.may_work()?;
                self.fill_wide(reader, rows, (leaf, is_lenient), &mut pieces)
            }
            What::Offsets(leaf) => self.fill_offsets(reader, rows, leaf, &mut pieces),
            What::Values(leaf) => {
                reader.may_work()?;
                self.fill_values(reader, leaf, &mut pieces)
            }
        }
    }
}

/// Writes the values of one column to their place in a file.
pub(super) struct Pick<'a, 'b> {
    pub(super) leaf: usize,
    pub(super) at: u64,
    pub(super) pieces: &'a mut Pieces<'b>,
}

impl Take for Pick<'_, '_> {
    fn take(&mut self, leaf: usize, bytes: &[u8]) {
        if leaf == self.leaf {
            self.pieces.take(self.at, bytes);
            self.at = self.at.saturating_add(bytes.len() as u64);
        }
    }
}

impl Core {
    /// Passes the columns of a message on. Returns whether it decodes.
    pub(super) fn pick(
        &self,
        reader: &ReadContext,
        folder: u32,
        bytes: &[u8],
        to: &mut dyn Take,
    ) -> Result<bool, Fault> {
        let Some(shown) = self.decoder(folder).schema() else { return Ok(false) };
        match take_columns(reader, &shown.schema, &shown.flat, bytes, to) {
            Ok(()) => Ok(true),
            Err(PartError::Damaged(_)) => Ok(false),
            Err(PartError::Source(error)) => Err(error.into()),
        }
    }
}

fn dtype_of(element: Element) -> DType {
    match element {
        Element::Number(number) => number.dtype(),
        Element::Time(_) => DType::I64,
    }
}

/// Returns the array of a file of a folder; `None` if its size is not known without decoding ([`values_array`]).
pub(super) fn array(core: &Arc<Core>, folder: u32, leaf: usize, is_offsets: bool) -> Option<Array> {
    let shown = core.decoder(folder).schema()?;
    let shape = shown.flat.leaves.get(leaf)?.shape;
    let rows = core.messages(folder);
    let column = |what| Column { core: core.clone(), folder, what };
    if is_offsets {
        let size = rows.saturating_add(1).saturating_mul(8);
        let data = View::default().with_rendered(size, column(What::Offsets(leaf)));
        return Some(Array::new(DType::I64, [rows.saturating_add(1)], data));
    }
    let what = match core.plan(folder).slot(leaf) {
        slot @ Slot::Values { .. } => What::Kept(slot, UNDECODED),
        _ => What::Wide(leaf, shape.width()? as u64, false),
    };
    match shape {
        Shape::One(element) => Some(Array::new(dtype_of(element), [rows], column(what).view())),
        Shape::Fixed(element, count) => Some(Array::new(dtype_of(element), [rows, count.into()], column(what).view())),
        _ => None,
    }
}

/// Returns the array of all elements of a column of varying length.
pub(super) fn values_array(core: &Arc<Core>, reader: &ReadContext, folder: u32, leaf: usize) -> Result<Array, Fault> {
    let shape = core.decoder(folder).schema().and_then(|shown| shown.flat.leaves.get(leaf)).map(|leaf| leaf.shape);
    let dtype = match shape {
        Some(Shape::Ragged(element)) => dtype_of(element),
        _ => DType::U8,
    };
    let totals = core.columns_totals(reader, folder)?;
    core.check_whole(reader, folder, &totals)?;
    let count = totals.all(place_of(&core.plan(folder), leaf));
    let column = Column { core: core.clone(), folder, what: What::Values(leaf) };
    let data = View::default().with_rendered(count.saturating_mul(dtype.size()), column);
    Ok(Array::new(dtype, [count], data))
}
