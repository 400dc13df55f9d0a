//! Blocks of vectors and of text, indexed once so that any slot is found without walking (`formats/idv.md` 7.6, 7.7).

use std::{ops::Deref, ops::Range, sync::Arc};

use super::{Item, text};
use crate::format::Fields;

/// Numbers at the front of an index.
const HEAD: usize = 5 * 8;
/// In place of a length that all vectors have: each has its own.
const OWN: u64 = u64::MAX;

/// A decoded block of texts, vectors, or vectors of texts, with its index.
///
/// A *slot* is an element of a vector as it is shown; an *item* is one that is stored. A scalar is a vector of one
/// slot, and its item is there.
///
/// The index is bytes, so that the cache can count them: rows, items, slots of each row, where the items and the text
/// begin; per row the items and indices in front of it (u32 each); where lengths differ the slots in front of it (u64);
/// of text what `text::parse` gives.
#[derive(Debug, Clone)]
pub struct Content<B> {
    bytes: Arc<B>,
    index: Arc<B>,
    is_vector: bool,
    /// Where in the index texts begin.
    texts: usize,
    /// Where in the block the counts are, and the indices.
    counts: usize,
    indices: usize,
}

/// Slots that follow each other: stored items from a number on, or absent ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The slots, counted from the start of the block.
    pub slots: Range<u64>,
    /// The item of the first one; `None` where they are zero, false or empty.
    pub items: Option<u64>,
    /// How many items there are before this run.
    pub before: u64,
}

/// The most bytes that the index of a block can have: known before it is made.
pub fn index_size(block: &[u8], rows: u64, item: Item) -> u64 {
    let texts = if item == Item::Text { block.len() as u64 + 8 } else { 0 };
    // Each row takes 4 bytes of the block, or it is no such block and gets no index.
    let rows = rows.min(block.len() as u64 / 4);
    HEAD as u64 + 16 * (rows + 1) + texts
}

/// Makes the index of a block. `slots` is `None` for scalars, 0 for vectors of any length.
///
/// # Errors
/// What is wrong with the block.
pub fn index(block: &[u8], rows: u64, slots: Option<u64>, item: Item) -> Result<Vec<u8>, String> {
    let mut index = vec![0; HEAD];
    let (common, items_at, items) = match slots {
        None => (1, 0, rows),
        Some(slots) => rows_of(block, rows, slots, &mut index)?,
    };
    let stored = &block[items_at..];
    let mut text_at = 0;
    if item == Item::Text {
        if items == 0 && stored.is_empty() && slots.is_some() {
            index.extend(0u32.to_le_bytes());
        } else {
            text_at = items_at + text::parse(stored, items, &mut index)?.start;
        }
    } else if (stored.len() as u64) < item.stored(items) {
        return Err(format!("{} bytes are too few for {items} values", stored.len()));
    }
    for (place, number) in [rows, items, common, items_at as u64, text_at as u64].into_iter().enumerate() {
        index[8 * place..8 * place + 8].copy_from_slice(&number.to_le_bytes());
    }
    index.shrink_to_fit();
    Ok(index)
}

/// Indexes the rows of vectors: the slots that all have (or [`OWN`]), where the items begin, and how many they are.
fn rows_of(block: &[u8], rows: u64, slots: u64, index: &mut Vec<u8>) -> Result<(u64, usize, u64), String> {
    let short = || format!("{} bytes are too few for {rows} vectors", block.len());
    let vectors = block.u32(0).ok_or_else(short)?;
    if u64::from(vectors) != rows {
        return Err(format!("it has {vectors} vectors, expected are {rows}"));
    }
    let length = common_length(block.u32(4).ok_or_else(short)?, slots)?;
    let rows = rows as usize;
    let lengths = if length == 0 { block.get(8..8 + 4 * rows).ok_or_else(short)? } else { &[] };
    let counts_at = 8 + lengths.len();
    let counts = block.get(counts_at..counts_at + 4 * rows).ok_or_else(short)?;
    let indices_at = counts_at + counts.len() + 4;
    let total = block.u32(indices_at - 4).ok_or_else(short)?;
    let stored = block.get(indices_at..).and_then(|rest| rest.get(..4 * total as usize));
    let stored = stored.ok_or_else(|| format!("{total} indices are not there"))?;
    let mut starts = Vec::with_capacity(if length == 0 { 8 * (rows + 1) } else { 0 });
    let (mut items, mut indices, mut at) = (0u64, 0usize, 0u64);
    let mut mark = |items: u64, indices: usize, at: u64| {
        index.extend((items as u32).to_le_bytes());
        index.extend((indices as u32).to_le_bytes());
        if length == 0 {
            starts.extend(at.to_le_bytes());
        }
    };
    for (row, count) in counts.chunks_exact(4).enumerate() {
        mark(items, indices, at);
        let slots = if length == 0 { lengths.u32(4 * row).unwrap_or(0) } else { length };
        if slots > i32::MAX as u32 {
            return Err(format!("vector {row} has a length of {}", slots as i32));
        }
        let count = count.u32(0).unwrap_or(0) as i32;
        if count == -1 {
            items += u64::from(slots);
        } else {
            let Some(count) = u32::try_from(count).ok().filter(|count| *count < slots) else {
                return Err(format!("vector {row} has {count} values of {slots}"));
            };
            let own = stored.get(4 * indices..4 * (indices + count as usize));
            let own = own.ok_or_else(|| format!("vector {row} has more indices than there are"))?;
            check_indices(own, slots).map_err(|reason| format!("vector {row}: {reason}"))?;
            indices += count as usize;
            items += u64::from(count);
        }
        at += u64::from(slots);
        if items > i32::MAX as u64 {
            return Err("it has more than 2147483647 values".into());
        }
    }
    if indices != total as usize {
        return Err(format!("it has {total} indices, its vectors {indices}"));
    }
    mark(items, indices, at);
    index.extend(starts);
    let common = if length == 0 { OWN } else { u64::from(length) };
    Ok((common, indices_at + stored.len(), items))
}

/// The length that all vectors of a block have, 0 where each has its own; `slots` is that of the type.
///
/// # Errors
/// For one that the type does not allow.
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
    /// A block with the index that [`index`] made of it.
    pub fn new(bytes: Arc<B>, index: Arc<B>, is_vector: bool) -> Self {
        let mut content = Self { bytes, index, is_vector, texts: HEAD, counts: 0, indices: 0 };
        if is_vector {
            let rows = content.rows() as usize;
            let is_own = content.head(2) == OWN;
            content.texts = HEAD + 8 * (rows + 1) + if is_own { 8 * (rows + 1) } else { 0 };
            content.counts = 8 + if is_own { 4 * rows } else { 0 };
            content.indices = content.counts + 4 * rows + 4;
        }
        content
    }

    fn head(&self, place: usize) -> u64 {
        self.index.u64(8 * place).unwrap_or(0)
    }

    /// Rows of the block.
    pub fn rows(&self) -> u64 {
        self.head(0)
    }

    /// Stored items.
    pub fn items(&self) -> u64 {
        self.head(1)
    }

    /// Slots of all rows.
    pub fn slots(&self) -> u64 {
        self.first_slot(self.rows())
    }

    /// The stored items, in the block form of their codec.
    pub fn stored(&self) -> &[u8] {
        self.bytes.get(self.head(3) as usize..).unwrap_or(&[])
    }

    /// The text of all items.
    pub fn text(&self) -> &[u8] {
        let from = self.head(4) as usize;
        self.bytes.get(from..from + self.text_start(self.items()) as usize).unwrap_or(&[])
    }

    /// Where an item's text begins, or all of it ends.
    pub fn text_start(&self, item: u64) -> u64 {
        text::bound(self.index.u32(self.texts + 4 * item as usize).unwrap_or(0)).0
    }

    /// Whether an item is missing.
    pub fn is_missing(&self, item: u64) -> bool {
        text::bound(self.index.u32(self.texts + 4 * item as usize).unwrap_or(0)).1
    }

    /// The slots in front of a row.
    pub fn first_slot(&self, row: u64) -> u64 {
        match self.head(2) {
            OWN => self.index.u64(HEAD + 8 * (self.rows() + 1 + row) as usize).unwrap_or(0),
            common => row * common,
        }
    }

    /// The items in front of a row.
    pub fn first_item(&self, row: u64) -> u64 {
        if !self.is_vector {
            return row;
        }
        self.index.u32(HEAD + 8 * row as usize).unwrap_or(0).into()
    }

    fn first_index(&self, row: u64) -> u64 {
        self.index.u32(HEAD + 8 * row as usize + 4).unwrap_or(0).into()
    }

    /// The row that holds a slot.
    pub fn row_of(&self, slot: u64) -> u64 {
        match self.head(2) {
            OWN => {
                // The last row that begins at the slot or before it: empty rows in front of it have none.
                let (mut low, mut high) = (0, self.rows());
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    if self.first_slot(middle) <= slot { low = middle } else { high = middle }
                }
                low
            }
            common => slot / common.max(1),
        }
    }

    fn is_dense(&self, row: u64) -> bool {
        !self.is_vector || self.bytes.u32(self.counts + 4 * row as usize) == Some(u32::MAX)
    }

    /// How many of a row's items stand in slots in front of `slot`, counted from the row's start.
    fn items_before(&self, row: u64, slot: u64) -> u64 {
        if self.is_dense(row) {
            return slot;
        }
        let (first, end) = (self.first_index(row), self.first_index(row + 1));
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.index_at(middle) < slot { low = middle + 1 } else { high = middle }
        }
        low - first
    }

    fn index_at(&self, number: u64) -> u64 {
        self.bytes.u32(self.indices + 4 * number as usize).unwrap_or(0).into()
    }

    /// How many items stand in front of a slot of the block.
    pub fn items_in_front(&self, slot: u64) -> u64 {
        if slot >= self.slots() {
            return self.items();
        }
        let row = self.row_of(slot);
        self.first_item(row) + self.items_before(row, slot - self.first_slot(row))
    }

    /// Goes through slots as runs, in order, until `each` says that it is enough.
    pub fn runs(&self, slots: Range<u64>, mut each: impl FnMut(Run) -> bool) {
        let mut at = slots.start;
        if at >= slots.end {
            return;
        }
        let mut row = self.row_of(at);
        while at < slots.end && row < self.rows() {
            let start = self.first_slot(row);
            let end = self.first_slot(row + 1).min(slots.end);
            let first = self.first_item(row);
            if at < end && self.is_dense(row) {
                let items = first + (at - start);
                if !each(Run { slots: at..end, items: Some(items), before: items }) {
                    return;
                }
                at = end;
            }
            if at < end {
                let mut number = self.items_before(row, at - start);
                let count = self.first_item(row + 1) - first;
                let index = self.first_index(row);
                while at < end {
                    let next = if number < count { start + self.index_at(index + number) } else { end };
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
            }
            row += 1;
        }
    }
}
