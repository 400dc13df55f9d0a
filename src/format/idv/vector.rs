//! Blocks of vectors and of text, indexed once so that any slot is found without walking (`docs/formats/idv.md` 7.6,
//! 7.7).

use std::{ops::Deref, ops::Range, sync::Arc};

use super::{Item, text};
use crate::{format::Fields, source::to_usize};

/// Number of numbers at the front of an index, of 8 bytes each.
const NUMBERS: usize = 8;
const HEAD: usize = 8 * NUMBERS;
/// Stands for the common length if each vector has its own.
const OWN: u64 = u64::MAX;

/// Rows between two marks, and bytes of a mark.
const MARK_ROWS: u64 = 32;
const MARK: usize = 20;

/// Result of a pass over a block: its rows are sound, and its index has this size.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    rows: u64,
    items: u64,
    /// Slots of each row, if all rows have the same number.
    common: Option<u64>,
    /// Whether the block stores a length for each row, even if all are the same.
    has_lengths: bool,
    /// Whether every slot is an item.
    is_dense: bool,
    /// Offset of the items in the block.
    items_at: usize,
    /// Offset and length of the text, if items are texts.
    text: Option<(usize, usize)>,
    /// Whether characters, UTF-16 units and bytes of the text are equally many.
    is_ascii: bool,
}

/// A decoded block of texts, vectors, or vectors of texts, with its index.
///
/// A *slot* is an element of a vector as shown; an *item* is one that is stored. A scalar is a vector of one slot with
/// its item.
///
/// The index is bytes, so that the cache can count it: the numbers of its [`Plan`]; a mark for every 32 rows
/// with the numbers of slots, items and rows before it, if they are no simple product; and where each text begins (u32
/// with a bit for "missing"), unless the block itself says it. Between a mark and a row the block is read.
#[derive(Debug, Clone)]
pub struct Content<B> {
    bytes: Arc<B>,
    index: Arc<B>,
    plan: Plan,
}

/// A row, and the numbers of what comes before it in its block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// The number of the row.
    pub row: u64,
    /// Slots.
    pub slots: u64,
    /// Stored items.
    pub items: u64,
    /// Rows that have slots.
    pub filled: u64,
    indices: u64,
}

/// Consecutive slots: stored items from a number on, or absent ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The slots, counted from the start of the block.
    pub slots: Range<u64>,
    /// Number of the first item; `None` if the slots are zero, false or empty.
    pub items: Option<u64>,
    /// Number of items before this run.
    pub before: u64,
}

impl Plan {
    /// Examines a block. `slots` is `None` for scalars and 0 for vectors of any length.
    ///
    /// # Errors
    /// What is wrong with the block.
    pub fn of(block: &[u8], rows: u64, slots: Option<u64>, item: Item) -> Result<Self, String> {
        let mut plan = match slots {
            None => Self {
                rows,
                items: rows,
                common: Some(1),
                has_lengths: false,
                is_dense: true,
                items_at: 0,
                text: None,
                is_ascii: true,
            },
            Some(slots) => Self::of_vectors(block, rows, slots)?,
        };
        let (stored, items) = (block.get(plan.items_at..).unwrap_or_default(), plan.items);
        if item == Item::Text {
            if items > 0 || !stored.is_empty() || slots.is_none() {
                let (text, is_ascii) = text::check(stored, items)?;
                plan.text = Some((plan.items_at + text.start, plan.items_at + text.end));
                plan.is_ascii = is_ascii;
            }
        } else if (stored.len() as u64) < item.stored(items) {
            return Err(format!("{} bytes are too few for {items} values", stored.len()));
        }
        Ok(plan)
    }

    /// Checks the rows of vectors.
    fn of_vectors(block: &[u8], rows: u64, slots: u64) -> Result<Self, String> {
        let short = || format!("{} bytes are too few for {rows} vectors", block.len());
        let vectors = block.u32(0).ok_or_else(short)?;
        if u64::from(vectors) != rows {
            return Err(format!("it has {vectors} vectors, expected are {rows}"));
        }
        let length = common_length(block.u32(4).ok_or_else(short)?, slots)?;
        let count = to_usize(rows);
        let lengths = if length == 0 { block.get(8..8 + 4 * count).ok_or_else(short)? } else { &[] };
        let counts_at = 8 + lengths.len();
        let counts = block.get(counts_at..counts_at + 4 * count).ok_or_else(short)?;
        let indices_at = counts_at + counts.len() + 4;
        let total = block.u32(indices_at - 4).ok_or_else(short)?;
        let stored = block.get(indices_at..).and_then(|rest| rest.get(..4 * total as usize));
        let stored = stored.ok_or_else(|| format!("{total} indices are not there"))?;
        let first = lengths.u32(0).unwrap_or(length);
        let (mut is_same, mut is_dense) = (true, true);
        let (mut items, mut indices) = (0u64, 0usize);
        for (row, count) in counts.chunks_exact(4).enumerate() {
            let slots = if length == 0 { lengths.u32(4 * row).unwrap_or(0) } else { length };
            if slots > i32::MAX as u32 {
                return Err(format!("vector {row} has a length of {}", slots as i32));
            }
            is_same &= slots == first;
            let count = count.u32(0).unwrap_or(0) as i32;
            if count == -1 {
                items += u64::from(slots);
            } else {
                is_dense = false;
                let Some(count) = u32::try_from(count).ok().filter(|count| *count < slots) else {
                    return Err(format!("vector {row} has {count} values of {slots}"));
                };
                let own = stored.get(4 * indices..4 * (indices + count as usize));
                let own = own.ok_or_else(|| format!("vector {row} has more indices than there are"))?;
                check_indices(own, slots).map_err(|reason| format!("vector {row}: {reason}"))?;
                indices += count as usize;
                items += u64::from(count);
            }
            if items > i32::MAX as u64 {
                return Err("it has more than 2147483647 values".into());
            }
        }
        if indices != total as usize {
            return Err(format!("it has {total} indices, its vectors {indices}"));
        }
        Ok(Self {
            rows,
            items,
            common: is_same.then_some(first.into()),
            has_lengths: length == 0,
            is_dense,
            items_at: indices_at + stored.len(),
            text: None,
            is_ascii: true,
        })
    }

    /// Returns the size of the index in bytes.
    pub fn size(&self) -> u64 {
        (self.texts_at() + if self.is_ascii { 0 } else { 4 * (to_usize(self.items) + 1) }) as u64
    }

    /// Writes the index of the block into `index`, which has exactly its size.
    ///
    /// # Errors
    /// What is wrong with the block's texts.
    pub fn fill(&self, block: &[u8], index: &mut [u8]) -> Result<(), String> {
        let (text_at, text_end) = self.text.unwrap_or_default();
        let flags = u64::from(self.has_lengths) | u64::from(self.is_dense) << 1 | u64::from(self.is_ascii) << 2;
        let numbers: [u64; NUMBERS] = [
            self.rows,
            self.items,
            self.common.unwrap_or(OWN),
            self.items_at as u64,
            u64::from(self.text.is_some()),
            text_at as u64,
            text_end as u64,
            flags,
        ];
        let (head, rest) = index.split_at_mut(HEAD);
        for (number, out) in numbers.iter().zip(head.chunks_exact_mut(8)) {
            out.copy_from_slice(&number.to_le_bytes());
        }
        let (marks, texts) = rest.split_at_mut(self.texts_at() - HEAD);
        let mut place = Place::default();
        for mark in marks.chunks_exact_mut(MARK) {
            let (slots, numbers) = mark.split_at_mut(8);
            slots.copy_from_slice(&place.slots.to_le_bytes());
            #[expect(clippy::cast_possible_truncation, reason = "each of these is at most 2^31")]
            for (number, out) in [place.items, place.indices, place.filled].iter().zip(numbers.chunks_exact_mut(4)) {
                out.copy_from_slice(&(*number as u32).to_le_bytes());
            }
            (0..MARK_ROWS).for_each(|_| self.step(block, &mut place));
        }
        if self.is_ascii {
            return Ok(());
        }
        let mut texts = texts.chunks_exact_mut(4);
        let part = |range: Range<usize>| block.get(range).unwrap_or_default();
        text::bounds(part(self.items_at..block.len()), self.items, part(text_at..text_end), |entry| {
            if let Some(out) = texts.next() {
                out.copy_from_slice(&entry.to_le_bytes());
            }
        })
    }

    /// Reads the plan back from an index that [`Self::fill`] wrote.
    fn read(index: &[u8]) -> Self {
        let number = |place: usize| index.u64(8 * place).unwrap_or(0);
        let flag = |bit: u32| number(7) >> bit & 1 == 1;
        Self {
            rows: number(0),
            items: number(1),
            common: Some(number(2)).filter(|common| *common != OWN),
            has_lengths: flag(0),
            is_dense: flag(1),
            items_at: to_usize(number(3)),
            text: (number(4) != 0).then_some((to_usize(number(5)), to_usize(number(6)))),
            is_ascii: flag(2),
        }
    }

    /// Returns the slots of each row, if the slots and items before each row follow by multiplication.
    fn simple(&self) -> Option<u64> {
        self.common.filter(|_| self.is_dense)
    }

    /// Returns the offset of the texts in the index, after the marks.
    fn texts_at(&self) -> usize {
        let marks = if self.simple().is_some() { 0 } else { self.rows / MARK_ROWS + 1 };
        HEAD + MARK * to_usize(marks)
    }

    fn counts_at(&self) -> usize {
        8 + if self.has_lengths { 4 * to_usize(self.rows) } else { 0 }
    }

    fn indices_at(&self) -> usize {
        self.counts_at() + 4 * to_usize(self.rows) + 4
    }

    /// Slots of a row.
    fn length(&self, block: &[u8], row: u64) -> u64 {
        self.common.unwrap_or_else(|| block.u32(8 + 4 * to_usize(row)).unwrap_or(0).into())
    }

    /// Stored items of a sparse row.
    fn count(&self, block: &[u8], row: u64) -> Option<u64> {
        if self.is_dense {
            return None;
        }
        block.u32(self.counts_at() + 4 * to_usize(row)).filter(|count| *count != u32::MAX).map(u64::from)
    }

    /// Moves to the next row, if there is one.
    fn step(&self, block: &[u8], place: &mut Place) {
        if place.row >= self.rows {
            return;
        }
        let slots = self.length(block, place.row);
        match self.count(block, place.row) {
            None => place.items += slots,
            Some(count) => {
                place.items += count;
                place.indices += count;
            }
        }
        place.slots += slots;
        place.filled += u64::from(slots > 0);
        place.row += 1;
    }
}

/// Returns the length that all vectors of a block have, or 0 if each has its own. `slots` is the length in the type.
///
/// # Errors
/// If the type does not allow this length.
pub fn common_length(stored: u32, slots: u64) -> Result<u32, String> {
    if stored > i32::MAX as u32 || slots > 0 && u64::from(stored) != slots {
        return Err(format!("its vectors have a length of {}, the type says {slots}", stored as i32));
    }
    Ok(stored)
}

fn check_indices(indices: &[u8], slots: u32) -> Result<(), String> {
    let mut least = 0;
    for (number, index) in indices.chunks_exact(4).enumerate() {
        let index = index.u32(0).unwrap_or(0);
        if index < least || index >= slots {
            return Err(format!("index {number} is {}, of {slots}", index as i32));
        }
        least = index + 1;
    }
    Ok(())
}

impl<B: Deref<Target = [u8]>> Content<B> {
    /// A block with the index that [`Plan::fill`] made of it.
    pub fn new(bytes: Arc<B>, index: Arc<B>) -> Self {
        let plan = Plan::read(&index);
        Self { bytes, index, plan }
    }

    /// Returns the block and its index.
    pub fn into_parts(self) -> (Arc<B>, Arc<B>) {
        (self.bytes, self.index)
    }

    /// Returns the bytes of memory that the block and its index take.
    pub fn memory(&self) -> u64 {
        (self.bytes.len() + self.index.len()) as u64
    }

    /// Rows of the block.
    pub fn rows(&self) -> u64 {
        self.plan.rows
    }

    /// Stored items.
    pub fn items(&self) -> u64 {
        self.plan.items
    }

    /// Slots of all rows.
    pub fn slots(&self) -> u64 {
        self.place(self.rows()).slots
    }

    /// The stored items, in the block form of their codec.
    pub fn stored(&self) -> &[u8] {
        self.bytes.get(self.plan.items_at..).unwrap_or(&[])
    }

    /// The text of all items.
    pub fn text(&self) -> &[u8] {
        self.plan.text.and_then(|(from, to)| self.bytes.get(from..to)).unwrap_or(&[])
    }

    /// Returns where an item's text begins, or where all text ends.
    pub fn text_start(&self, item: u64) -> u64 {
        let entry = if !self.plan.is_ascii {
            self.index.u32(self.plan.texts_at() + 4 * to_usize(item))
        } else if item > 0 {
            text::end(self.stored(), item - 1)
        } else {
            None
        };
        text::bound(entry.unwrap_or(0)).0
    }

    /// Whether an item is missing.
    pub fn is_missing(&self, item: u64) -> bool {
        text::bound(text::end(self.stored(), item).unwrap_or(0)).1
    }

    /// Returns a row; the number of rows gives the end.
    pub fn place(&self, row: u64) -> Place {
        let row = row.min(self.rows());
        if let Some(common) = self.plan.simple() {
            let slots = row * common;
            return Place { row, slots, items: slots, filled: if common > 0 { row } else { 0 }, indices: 0 };
        }
        let mut place = self.mark(row / MARK_ROWS);
        while place.row < row {
            self.step(&mut place);
        }
        place
    }

    fn mark(&self, number: u64) -> Place {
        let at = HEAD + MARK * to_usize(number);
        let small = |at: usize| self.index.u32(at).unwrap_or(0).into();
        Place {
            row: number * MARK_ROWS,
            slots: self.index.u64(at).unwrap_or(0),
            items: small(at + 8),
            indices: small(at + 12),
            filled: small(at + 16),
        }
    }

    /// Moves to the next row, if there is one.
    pub fn step(&self, place: &mut Place) {
        self.plan.step(&self.bytes, place);
    }

    /// Slots of a row.
    pub fn length(&self, row: u64) -> u64 {
        self.plan.length(&self.bytes, row)
    }

    /// Returns the row that holds a slot.
    fn place_of(&self, slot: u64) -> Place {
        if let Some(common) = self.plan.common {
            return self.place(slot / common.max(1));
        }
        // The last row that begins at or before the slot. Empty rows before it have no slots.
        let (mut low, mut high) = (0, self.rows().div_ceil(MARK_ROWS));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.mark(middle).slots <= slot { low = middle } else { high = middle }
        }
        let mut place = self.mark(low);
        loop {
            let mut next = place;
            self.step(&mut next);
            if next.row >= self.rows() || next.slots > slot {
                return place;
            }
            place = next;
        }
    }

    /// Returns how many of a row's items are in its first `slots` slots.
    fn items_before(&self, place: &Place, slots: u64) -> u64 {
        let Some(count) = self.plan.count(&self.bytes, place.row) else { return slots };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.index_at(place.indices + middle) < slots { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn index_at(&self, number: u64) -> u64 {
        self.bytes.u32(self.plan.indices_at() + 4 * to_usize(number)).unwrap_or(0).into()
    }

    /// Returns how many items come before a slot of the block that lies in the row of `place`.
    pub fn items_in_front(&self, place: &Place, slot: u64) -> u64 {
        place.items + self.items_before(place, slot - place.slots)
    }

    /// Passes slots as runs, in order, to `each` until it returns `false`.
    pub fn runs(&self, slots: Range<u64>, each: impl FnMut(Run) -> bool) {
        self.runs_from(self.place_of(slots.start), slots, each);
    }

    /// Does the same as [`Self::runs`] if the row of the first slot is known.
    pub fn runs_from(&self, mut place: Place, slots: Range<u64>, mut each: impl FnMut(Run) -> bool) {
        let mut at = slots.start;
        if self.plan.is_dense {
            if at < slots.end {
                each(Run { items: Some(at), before: at, slots });
            }
            return;
        }
        while at < slots.end && place.row < self.rows() {
            let (start, first) = (place.slots, place.items);
            let mut next = place;
            self.step(&mut next);
            let end = next.slots.min(slots.end);
            let Some(count) = self.plan.count(&self.bytes, place.row) else {
                let items = first + (at - start);
                if at < end && !each(Run { slots: at..end, items: Some(items), before: items }) {
                    return;
                }
                (at, place) = (end, next);
                continue;
            };
            let mut number = self.items_before(&place, at - start);
            while at < end {
                let next = if number < count { start + self.index_at(place.indices + number) } else { end };
                let before = first + number;
                let run = if next > at {
                    Run { slots: at..next.min(end), items: None, before }
                } else {
                    number += 1;
                    Run { slots: at..at + 1, items: Some(before), before }
                };
                at = run.slots.end;
                if !each(run) {
                    return;
                }
            }
            place = next;
        }
    }
}
