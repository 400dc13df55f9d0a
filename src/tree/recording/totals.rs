//! Sums that need all messages of a folder to be decoded: the lengths of lines, and the numbers of values in columns of
//! varying length.

use std::sync::Arc;

use super::{
    Core, Decoder, Part,
    batch::{DAMAGED, NO_TEXT, Plan, SOUND, Slot},
    chunks::Message,
};
use crate::{
    cache::{BlockError, Buffer},
    format::{
        Fields, PartError,
        messages::{
            self,
            text::{Counted, Line, Out},
        },
    },
    tree::WorkingMemory,
    view::{Fault, ReadContext},
};

/// For each mark, sums over all rows before it.
pub(super) struct Totals {
    buffer: Arc<Buffer>,
    /// Numbers of a mark.
    width: usize,
    /// Rows between marks.
    pub(super) step: u64,
    rows: u64,
}

/// The numbers of a mark in [`Core::columns_totals`]: rows that do not decode, rows that cannot be read, and for each
/// column of varying length its elements.
pub(super) const UNDECODED_ROWS: usize = 0;
pub(super) const DAMAGED_ROWS: usize = 1;
const OWN: usize = 2;

impl Totals {
    /// Returns a sum at a mark.
    pub(super) fn at(&self, mark: u64, number: usize) -> u64 {
        let place = usize::try_from(mark).unwrap_or(usize::MAX).saturating_mul(self.width).saturating_add(number);
        self.buffer.u64(place.saturating_mul(8)).unwrap_or(0)
    }

    /// Returns the number of marks, including the one after the last row.
    pub(super) fn marks(&self) -> u64 {
        self.rows.div_ceil(self.step) + 1
    }

    /// Returns a sum over all rows.
    pub(super) fn all(&self, number: usize) -> u64 {
        self.at(self.marks() - 1, number)
    }

    /// Returns the last mark before which the sum is at most `most`.
    pub(super) fn find(&self, number: usize, most: u64) -> u64 {
        let (mut low, mut high) = (0, self.marks());
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.at(middle, number) <= most { low = middle } else { high = middle }
        }
        low
    }

    /// Returns the rows between a mark and the next.
    pub(super) fn rows_of(&self, mark: u64) -> std::ops::Range<u64> {
        let start = mark.saturating_mul(self.step).min(self.rows);
        start..start.saturating_add(self.step).min(self.rows)
    }
}

/// Returns the place of a column in the marks of [`Core::columns_totals`].
pub(super) fn place_of(plan: &Plan, leaf: usize) -> usize {
    let is_length = |slot: &&Slot| matches!(slot, Slot::Lengths { .. });
    OWN + plan.slots().iter().take(leaf).filter(is_length).count()
}

impl Core {
    /// Returns the sums of a folder's columns of varying length.
    pub(super) fn columns_totals(&self, reader: &ReadContext, folder: u32) -> Result<Totals, Fault> {
        let plan = self.plan(folder);
        let slots: Vec<Slot> =
            plan.slots().iter().copied().filter(|slot| matches!(slot, Slot::Lengths { .. })).collect();
        let width = OWN + slots.len();
        self.totals(reader, folder, 0, width, plan.marks, |add| {
            let mut sums = vec![0u64; width];
            let batches = self.messages(folder).div_ceil(plan.rows.max(1));
            for block in 0..batches {
                let batch = self.make_batch(reader, folder, self.batch_rows(folder, &plan, block))?;
                let count = (batch.rows.end - batch.rows.start) as usize;
                let step = plan.marks as usize;
                for from in (0..count).step_by(step) {
                    add(&sums);
                    let here = from..count.min(from + step);
                    for state in batch.states().get(here.clone()).unwrap_or_default() {
                        sums[UNDECODED_ROWS] += u64::from(*state != SOUND);
                        sums[DAMAGED_ROWS] += u64::from(*state == DAMAGED);
                    }
                    for (slot, sum) in slots.iter().zip(&mut sums[OWN..]) {
                        let lengths = batch.lengths(*slot).skip(from).take(here.len());
                        *sum = lengths.filter(|length| *length != NO_TEXT).fold(*sum, u64::saturating_add);
                    }
                }
            }
            add(&sums);
            Ok(())
        })
    }

    /// Returns the bytes of a folder's lines before each mark.
    pub(super) fn lines_totals(&self, reader: &ReadContext, folder: u32) -> Result<Totals, Fault> {
        let plan = self.plan(folder);
        self.totals(reader, folder, 1, 1, plan.marks, |add| {
            let (mut sum, all) = (0u64, self.messages(folder));
            self.each_message(reader, folder, 0..all, |Message { row, placed }| {
                if row.is_multiple_of(plan.marks) {
                    add(&[sum]);
                }
                let (_, bytes) = placed?;
                let mut counted = Counted::default();
                let is_sound = self.write_line(reader, folder, bytes, &mut counted)?;
                let length = if is_sound { counted.0 } else { NULL.len() as u64 };
                sum = sum.saturating_add(length).saturating_add(1);
                Ok(())
            })?;
            add(&[sum]);
            Ok(())
        })
    }

    fn totals(
        &self,
        reader: &ReadContext,
        folder: u32,
        block: u64,
        width: usize,
        step: u64,
        make: impl Fn(&mut dyn FnMut(&[u64])) -> Result<(), Fault>,
    ) -> Result<Totals, Fault> {
        let rows = self.messages(folder);
        let key = Part::Totals.key(reader, folder, block);
        let parts = reader.get_or_insert_with(key, || {
            let size = (rows.div_ceil(step) + 1).saturating_mul(8 * width as u64);
            let mut room = reader.cache.reserve(size).map_err(BlockError::from)?;
            room.hold();
            let zeroed = Buffer::zeroed(usize::try_from(size).unwrap_or(usize::MAX));
            let mut buffer =
                zeroed.map_err(crate::source::SourceError::from).map_err(BlockError::from)?.with_room(room);
            let mut places = buffer.as_chunks_mut::<8>().0.iter_mut();
            let made = make(&mut |sums| {
                for (sum, place) in sums.iter().zip(&mut places) {
                    *place = sum.to_le_bytes();
                }
            });
            made.map_err(|fault| fault.error)?;
            Ok(vec![Arc::new(buffer)])
        })?;
        Ok(Totals { buffer: parts.into_iter().next().unwrap_or_default(), width, step, rows })
    }

    /// Fails if a message of a folder cannot be read.
    pub(super) fn check_whole(&self, reader: &ReadContext, folder: u32, totals: &Totals) -> Result<(), Fault> {
        if totals.all(DAMAGED_ROWS) == 0 {
            return Ok(());
        }
        let mark = totals.find(DAMAGED_ROWS, 0);
        let rows = totals.rows_of(mark);
        let batch = self.batch(reader, folder, rows.start)?;
        let from = (rows.start - batch.rows.start) as usize;
        let at = batch.states().iter().skip(from).position(|state| *state == DAMAGED);
        Err(self.why(reader, folder, rows.start + at.unwrap_or(0) as u64, DAMAGED))
    }

    /// Writes the line of a message without its end. Returns whether it decodes; if not, something may have been
    /// written.
    pub(super) fn write_line(
        &self,
        reader: &ReadContext,
        folder: u32,
        bytes: &[u8],
        out: &mut impl Out,
    ) -> Result<bool, Fault> {
        match self.decoder(folder) {
            Decoder::Json if bytes.is_empty() => Ok(false),
            Decoder::Json => {
                for (number, part) in bytes.split(|byte| matches!(byte, b'\n' | b'\r')).enumerate() {
                    if number > 0 {
                        out.put(b" ");
                    }
                    out.put(part);
                }
                Ok(true)
            }
            Decoder::Schema(shown) => {
                let memory = WorkingMemory::held(&reader.cache);
                match messages::walk(&shown.schema, bytes, &memory, &mut Line::new(out)) {
                    Ok(()) => Ok(true),
                    Err(PartError::Damaged(_)) => Ok(false),
                    Err(PartError::Source(error)) => Err(error.into()),
                }
            }
            Decoder::None(_) => Ok(false),
        }
    }
}

/// The line of a message that does not decode.
pub(super) const NULL: &[u8] = b"null";
