//! Batches of messages as columns. A batch has the values of all narrow columns of its rows, and the lengths of the
//! rows of columns of varying length.

use std::{ops::Range, sync::Arc};

use super::{Core, Decoder, Part, chunks::Message};
use crate::{
    cache::{BlockError, Buffer},
    format::{
        PartError,
        messages::{
            self, Schema,
            flat::{Columns, Flat, NARROW, Shape, Take},
        },
        recording::Folder,
    },
    tree::WorkingMemory,
    view::{Fault, ReadContext},
};

/// About the bytes of the rows of a batch.
const BATCH: usize = 256 << 10;

/// Least and most rows of a batch.
const ROWS: [u64; 2] = [64, 4096];

/// About the bytes of the messages of a batch.
const DECODED: u64 = 4 << 20;

/// Most marks of sizes in a batch.
pub(super) const MARKS: u64 = 64;

/// The state of a row.
pub(super) const SOUND: u8 = 0;
/// The message does not decode.
pub(super) const UNDECODED: u8 = 1;
/// The message cannot be read.
pub(super) const DAMAGED: u8 = 2;

/// A limit above all states: no row fails.
pub(super) const NONE_FAILS: u8 = 3;

/// The length of a text that is not UTF-8.
pub(super) const NO_TEXT: u64 = u64::MAX;

/// What a batch contains of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Its values, `width` bytes for each row, after other columns with `before` bytes for each row.
    Values { before: usize, width: usize },
    /// The number of values of each row, in 8 bytes.
    Lengths { before: usize, element: usize, is_text: bool },
    /// Nothing: it is wide, or left out.
    None,
}

/// The layout of the batches of a folder's messages.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Rows of a batch.
    pub(super) rows: u64,
    /// Rows between marks of sizes.
    pub(super) marks: u64,
    slots: Arc<[Slot]>,
    row_width: usize,
}

/// Columns that every batch has: state, publish time, sequence.
pub(super) const STATE: Slot = Slot::Values { before: 0, width: 1 };
pub(super) const PUBLISH_TIME: Slot = Slot::Values { before: 1, width: 8 };
pub(super) const SEQUENCE: Slot = Slot::Values { before: 9, width: 4 };
const OWN: usize = 13;

/// Returns the places of columns in batches, and the bytes of a row.
pub(super) fn slots(flat: &Flat) -> (Arc<[Slot]>, usize) {
    let mut width = OWN;
    let slot = |leaf: &messages::flat::Leaf| {
        let before = width;
        let slot = match (leaf.shape, leaf.shape.width()) {
            (_, Some(wide)) if wide > NARROW => Slot::None,
            (_, Some(narrow)) => Slot::Values { before, width: narrow },
            (Shape::Ragged(element), _) => Slot::Lengths { before, element: element.size(), is_text: false },
            (Shape::Bytes, _) => Slot::Lengths { before, element: 1, is_text: false },
            (Shape::Text, _) => Slot::Lengths { before, element: 1, is_text: true },
            _ => Slot::None,
        };
        width += match slot {
            Slot::Values { width, .. } => width,
            Slot::Lengths { .. } => 8,
            Slot::None => 0,
        };
        slot
    };
    let slots = flat.leaves.iter().map(slot).collect();
    (slots, width)
}

impl Plan {
    /// Chooses the number of rows of a batch.
    pub(super) fn new(folder: &Folder, slots: Arc<[Slot]>, row_width: usize) -> Self {
        let row = (folder.weight / folder.messages.max(1)).max(1);
        let by_weight = (DECODED / row).clamp(ROWS[0], ROWS[1]);
        let by_width = (BATCH / row_width.max(1)).max(1) as u64;
        // A power of two, so that it is a multiple of the number of marks.
        let rows = by_weight.min(by_width);
        let rows = if rows.is_power_of_two() { rows } else { rows.next_power_of_two() / 2 };
        Self { rows, marks: (rows / MARKS).max(1), slots, row_width }
    }

    pub(super) fn slot(&self, leaf: usize) -> Slot {
        self.slots.get(leaf).copied().unwrap_or(Slot::None)
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

/// Columns of some rows.
pub(super) struct Batch {
    buffer: Arc<Buffer>,
    pub(super) rows: Range<u64>,
}

impl Batch {
    fn count(&self) -> usize {
        (self.rows.end - self.rows.start) as usize
    }

    /// Returns the values of a column.
    pub(super) fn values(&self, slot: Slot) -> &[u8] {
        let (before, width) = match slot {
            Slot::Values { before, width } => (before, width),
            Slot::Lengths { before, .. } => (before, 8),
            Slot::None => return &[],
        };
        let start = before * self.count();
        self.buffer.get(start..start + width * self.count()).unwrap_or_default()
    }

    /// Returns the states of its rows.
    pub(super) fn states(&self) -> &[u8] {
        self.values(STATE)
    }

    /// Returns the lengths of a column's rows.
    pub(super) fn lengths(&self, slot: Slot) -> impl Iterator<Item = u64> {
        self.values(slot).as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Writes the values of one message to its row.
struct Row<'a> {
    slots: &'a [Slot],
    /// The bytes that were written to each column.
    filled: &'a mut [u32],
    out: &'a mut [u8],
    rows: usize,
    row: usize,
}

impl Row<'_> {
    fn place(&mut self, before: usize, width: usize) -> Option<&mut [u8]> {
        let start = before * self.rows + width * self.row;
        self.out.get_mut(start..start + width)
    }

    fn set(&mut self, slot: Slot, bytes: &[u8]) {
        if let Slot::Values { before, width } = slot
            && let Some(place) = self.place(before, width)
        {
            place.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
        }
    }

    /// Clears what was written of a message that does not decode.
    fn clear(&mut self) {
        let slots = self.slots;
        for slot in slots {
            let (before, width) = match *slot {
                Slot::Values { before, width } => (before, width),
                Slot::Lengths { before, .. } => (before, 8),
                Slot::None => continue,
            };
            if let Some(place) = self.place(before, width) {
                place.fill(0);
            }
        }
    }
}

impl Take for Row<'_> {
    fn take(&mut self, leaf: usize, bytes: &[u8]) {
        match self.slots.get(leaf) {
            Some(Slot::Values { before, width }) => {
                let from = self.filled.get(leaf).map_or(0, |filled| *filled as usize);
                if let Some(rest) = self.place(*before, *width).and_then(|place| place.get_mut(from..)) {
                    rest.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
                }
                if let Some(filled) = self.filled.get_mut(leaf) {
                    *filled = filled.saturating_add(bytes.len() as u32);
                }
            }
            Some(Slot::Lengths { before, element, is_text }) => {
                let count = match is_text {
                    true if std::str::from_utf8(bytes).is_err() => NO_TEXT,
                    _ => (bytes.len() / (*element).max(1)) as u64,
                };
                if let Some(place) = self.place(*before, 8).and_then(|place| place.first_chunk_mut()) {
                    *place = u64::from_le_bytes(*place).saturating_add(count).to_le_bytes();
                }
            }
            _ => {}
        }
    }
}

/// Goes through a message, and passes the values of its columns to `to`.
pub(super) fn take_columns(
    reader: &ReadContext,
    schema: &Schema,
    flat: &Flat,
    bytes: &[u8],
    to: &mut dyn Take,
) -> Result<(), PartError> {
    let memory = WorkingMemory::held(&reader.cache);
    messages::walk(schema, bytes, &memory, &mut Columns::new(schema, flat, to))
}

impl Core {
    /// Returns the batch that contains a row, from the cache or newly decoded.
    pub(super) fn batch(&self, reader: &ReadContext, folder: u32, row: u64) -> Result<Batch, Fault> {
        let plan = self.plan(folder);
        let block = row / plan.rows.max(1);
        let rows = self.batch_rows(folder, &plan, block);
        let key = Part::Batch.key(reader, folder, block);
        let parts = reader.get_or_insert_with(key, || {
            let batch = self.make_batch(reader, folder, rows.clone()).map_err(|fault| fault.error)?;
            Ok(vec![batch.buffer])
        })?;
        Ok(Batch { buffer: parts.into_iter().next().unwrap_or_default(), rows })
    }

    pub(super) fn batch_rows(&self, folder: u32, plan: &Plan, block: u64) -> Range<u64> {
        let all = self.messages(folder);
        let start = block.saturating_mul(plan.rows).min(all);
        start..start.saturating_add(plan.rows).min(all)
    }

    /// Decodes the messages of some rows.
    pub(super) fn make_batch(&self, reader: &ReadContext, folder: u32, rows: Range<u64>) -> Result<Batch, Fault> {
        let plan = self.plan(folder);
        let count = (rows.end - rows.start) as usize;
        let size = count.saturating_mul(plan.row_width);
        // Chunks are decoded meanwhile, so this memory is not free soon and others must not wait for it.
        let mut room = reader.cache.reserve(size as u64).map_err(BlockError::from)?;
        room.hold();
        let buffer = Buffer::zeroed(size).map_err(crate::source::SourceError::from)?;
        let mut buffer = buffer.with_room(room);
        let decoder = self.decoder(folder);
        let mut filled = vec![0; plan.slots.len()];
        self.each_message(reader, folder, rows.clone(), |Message { row, placed }| {
            filled.fill(0);
            let row = (row - rows.start) as usize;
            let mut out = Row { slots: &plan.slots, filled: &mut filled, out: &mut buffer, rows: count, row };
            let Ok((placed, bytes)) = placed else {
                out.set(STATE, &[DAMAGED]);
                return Ok(());
            };
            out.set(PUBLISH_TIME, &placed.publish_time.to_le_bytes());
            out.set(SEQUENCE, &placed.sequence.to_le_bytes());
            if let Decoder::Schema(shown) = decoder {
                match take_columns(reader, &shown.schema, &shown.flat, bytes, &mut out) {
                    Ok(()) => {}
                    Err(PartError::Damaged(_)) => {
                        out.clear();
                        out.set(STATE, &[UNDECODED]);
                    }
                    Err(PartError::Source(error)) => return Err(error.into()),
                }
            }
            Ok(())
        })?;
        Ok(Batch { buffer: Arc::new(buffer), rows })
    }

    /// Returns why a row of a column cannot be read.
    pub(super) fn why(&self, reader: &ReadContext, folder: u32, row: u64, state: u8) -> Fault {
        match state {
            DAMAGED => match self.find(reader, folder, row) {
                Err(fault) => fault,
                Ok(_) => Fault::refused(format!("message {row} could not be read")),
            },
            _ => match self.find(reader, folder, row) {
                Ok((chunk, placed)) => {
                    let offset = chunk.block.block.offset.saturating_add(placed.data.start);
                    let error = Arc::new(BlockError::Refused(format!("message {row} does not decode")));
                    Fault { block: Some(chunk.block.number), offset, error }
                }
                Err(fault) => fault,
            },
        }
    }
}
