//! Texts as JSON, one row per line: a string, `null`, or an array of them (`docs/TREE.md`, section 6).
//!
//! The place of a line or text in the output follows from where its text begins, and from the bytes that escapes and
//! missing values add. Marks store these sums at regular distances, so a read of any range starts near it. Slots that a
//! sparse vector leaves out cost nothing until they are read.

use std::{ops::Range, sync::Arc};

use super::{ColumnPart, Fault, ReadContext, Values};
use crate::{
    cache::Buffer,
    format::{
        Block, Fields,
        idv::{Content, Place},
    },
};

/// Bytes of text between two marks.
const STRIDE: u64 = 256;

/// Texts between two marks.
const ITEMS: u64 = 32;

const NULL: &[u8] = b"null";

/// A block's lines.
struct Lines {
    content: Content<Buffer>,
    /// How many bytes escapes add before each mark of the text, and in all (u64); how many texts are missing before
    /// each mark of the texts (u32).
    index: Arc<Buffer>,
    is_vector: bool,
}

/// Returns the bytes of a block's lines.
pub(super) fn size(values: &Values, reader: &ReadContext, number: u64, block: &Block) -> Result<u64, Fault> {
    let lines = Lines::of(values, reader, number, block)?;
    Ok(lines.row_start(&lines.content.place(lines.content.rows())))
}

/// Fills `out` with a part of a block's lines.
pub(super) fn fill(
    values: &Values,
    reader: &ReadContext,
    number: u64,
    block: &Block,
    part: Range<u64>,
    out: &mut [u8],
) -> Result<(), Fault> {
    Lines::of(values, reader, number, block)?.fill(part, out);
    Ok(())
}

/// Returns how many bytes escaping a byte adds.
fn extra(byte: u8) -> u64 {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 1,
        0..0x20 => 5,
        _ => 0,
    }
}

fn extras(text: &[u8]) -> u64 {
    text.iter().map(|&byte| extra(byte)).sum()
}

/// Returns the number of marks of the text: one before each part, and one at the end.
fn marks(content: &Content<Buffer>) -> usize {
    content.text().len() / STRIDE as usize + 2
}

fn index_size(content: &Content<Buffer>) -> u64 {
    8 * marks(content) as u64 + 4 * (content.items() / ITEMS + 1)
}

fn fill_index(content: &Content<Buffer>, index: &mut [u8]) {
    let (marks, missing) = index.split_at_mut(8 * marks(content));
    let mut parts = content.text().chunks(STRIDE as usize);
    let mut before = 0u64;
    for mark in marks.chunks_exact_mut(8) {
        mark.copy_from_slice(&before.to_le_bytes());
        before += parts.next().map_or(0, extras);
    }
    let mut before = 0u32;
    for (number, mark) in (0..).zip(missing.chunks_exact_mut(4)) {
        mark.copy_from_slice(&before.to_le_bytes());
        let items = number * ITEMS..content.items().min((number + 1) * ITEMS);
        before += items.map(|item| u32::from(content.is_missing(item))).sum::<u32>();
    }
}

impl Lines {
    fn of(values: &Values, reader: &ReadContext, number: u64, block: &Block) -> Result<Self, Fault> {
        let is_vector = values.ty.dims.is_some();
        // As in `Values::content`, block and index are kept with the lines' own index.
        let made = reader.get_or_insert_with(values.key(reader, ColumnPart::Lines, number), || {
            let content = values.content(reader, number, block).map_err(|fault| fault.error)?;
            let mut lines = reader.cache.buffer(index_size(&content), content.memory())?;
            fill_index(&content, &mut lines);
            let (bytes, index) = content.into_parts();
            Ok(vec![bytes, index, Arc::new(lines)])
        });
        let mut parts = made.map_err(|error| values.shared_fault(number, block.offset, error))?.into_iter();
        let mut next = || parts.next().unwrap_or_default();
        Ok(Self { content: Content::new(next(), next()), index: next(), is_vector })
    }

    /// Returns where a row begins, or where all rows end.
    fn row_start(&self, place: &Place) -> u64 {
        let Place { row, slots, items, filled, .. } = *place;
        if !self.is_vector {
            return row + self.item_start(row);
        }
        // Brackets and line ends, absent texts, and commas between elements.
        3 * row + self.item_start(items) + 2 * (slots - items) + (slots - filled)
    }

    /// Returns where an item begins among all items, without brackets and commas.
    fn item_start(&self, item: u64) -> u64 {
        let start = self.content.text_start(item);
        // Quotes, or `null` instead.
        2 * item + 2 * self.missing_before(item) + start + self.extra_before(start)
    }

    fn missing_before(&self, item: u64) -> u64 {
        let mark = item / ITEMS;
        let before = self.index.u32(8 * marks(&self.content) + 4 * mark as usize).unwrap_or(0);
        let here = (mark * ITEMS..item).map(|item| u64::from(self.content.is_missing(item)));
        u64::from(before) + here.sum::<u64>()
    }

    /// Returns how many bytes escapes add before a byte of the text.
    fn extra_before(&self, at: u64) -> u64 {
        let mark = at / STRIDE;
        let number = |mark: u64| self.index.u64(8 * mark as usize).unwrap_or(0);
        let before = number(mark);
        if number(mark + 1) == before {
            return before;
        }
        before + extras(&self.content.text()[(mark * STRIDE) as usize..at as usize])
    }

    fn fill(&self, part: Range<u64>, out: &mut [u8]) {
        let mut sink = Sink { part, out };
        let rows = self.content.rows();
        let (mut low, mut high) = (0, rows);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.row_start(&self.content.place(middle)) <= sink.part.start { low = middle } else { high = middle }
        }
        let mut place = self.content.place(low);
        let mut at = self.row_start(&place);
        while place.row < rows && at < sink.part.end {
            at = if self.is_vector {
                self.fill_row(&place, at, &mut sink)
            } else {
                self.fill_item(place.row, at, &mut sink)
            };
            sink.put(at, b"\n");
            at += 1;
            self.content.step(&mut place);
        }
    }

    /// Returns where an element of a row begins; the row begins at `start`.
    fn element_start(&self, place: &Place, start: u64, slot: u64) -> u64 {
        let items = self.content.items_in_front(place, slot);
        let inner = self.item_start(items) - self.item_start(place.items);
        let slots = slot - place.slots;
        // A bracket, the items and absent elements, and a comma after each.
        start + 1 + inner + 2 * (slots - (items - place.items)) + slots
    }

    /// Writes one row. Returns where it ends, or a place after the range that is read.
    fn fill_row(&self, place: &Place, start: u64, sink: &mut Sink<'_>) -> u64 {
        let (first, end) = (place.slots, place.slots + self.content.length(place.row));
        sink.put(start, b"[");
        let (mut low, mut high) = (first, end);
        while start < sink.part.start && high > low && high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.element_start(place, start, middle) <= sink.part.start { low = middle } else { high = middle }
        }
        let mut at = if low > first { self.element_start(place, start, low) } else { start + 1 };
        self.content.runs_from(*place, low..end, |run| {
            for (number, slot) in (0..).zip(run.slots) {
                match run.items {
                    Some(item) => at = self.fill_item(item + number, at, sink),
                    None => {
                        sink.put(at, b"\"\"");
                        at += 2;
                    }
                }
                if slot + 1 < end {
                    sink.put(at, b",");
                    at += 1;
                }
                if at >= sink.part.end {
                    return false;
                }
            }
            true
        });
        sink.put(at, b"]");
        at + 1
    }

    /// Writes one text. Returns where it ends.
    fn fill_item(&self, item: u64, start: u64, sink: &mut Sink<'_>) -> u64 {
        let range = self.content.text_start(item)..self.content.text_start(item + 1);
        let length = if self.content.is_missing(item) {
            NULL.len() as u64
        } else {
            2 + (range.end - range.start) + self.extra_before(range.end) - self.extra_before(range.start)
        };
        let end = start + length;
        if end <= sink.part.start {
            return end;
        }
        if self.content.is_missing(item) {
            sink.put(start, NULL);
            return end;
        }
        sink.put(start, b"\"");
        sink.put(end - 1, b"\"");
        let text = self.content.text();
        let (from, mut at) = self.text_from(&range, start + 1, sink.part.start);
        let mut plain = from;
        for here in from..range.end {
            if at >= sink.part.end {
                return end;
            }
            let byte = text[here as usize];
            if extra(byte) == 0 {
                // Plain bytes are written in runs.
                if here + 1 < range.end && here + 1 - plain < STRIDE && extra(text[here as usize + 1]) == 0 {
                    continue;
                }
                let run = &text[plain as usize..=here as usize];
                sink.put(at, run);
                at += run.len() as u64;
            } else {
                let mut escape = *b"\\u0000";
                let escape: &[u8] = match byte {
                    b'"' => b"\\\"",
                    b'\\' => b"\\\\",
                    b'\n' => b"\\n",
                    b'\r' => b"\\r",
                    b'\t' => b"\\t",
                    8 => b"\\b",
                    12 => b"\\f",
                    _ => {
                        escape[4] = b'0' + (byte >> 4);
                        escape[5] = b"0123456789abcdef"[usize::from(byte & 15)];
                        &escape
                    }
                };
                sink.put(at, escape);
                at += escape.len() as u64;
            }
            plain = here + 1;
        }
        end
    }

    /// Returns where in a long text to begin, and the place of that in the output: the mark before what is wanted. The
    /// text is at `range` of all text, and begins at `start` of the output.
    fn text_from(&self, range: &Range<u64>, start: u64, wanted: u64) -> (u64, u64) {
        if wanted <= start || range.end - range.start <= STRIDE {
            return (range.start, start);
        }
        let base = self.extra_before(range.start);
        let place = |mark: u64| {
            let at = (mark * STRIDE).max(range.start);
            (at, start + (at - range.start) + self.extra_before(at) - base)
        };
        let (mut low, mut high) = (range.start / STRIDE, range.end.div_ceil(STRIDE));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if place(middle).1 <= wanted { low = middle } else { high = middle }
        }
        place(low)
    }
}

/// A part of the output, filled piece by piece.
struct Sink<'a> {
    part: Range<u64>,
    out: &'a mut [u8],
}

impl Sink<'_> {
    /// Copies the wanted part of `bytes`, which begin at `at`.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (from, to) = (at.max(self.part.start), (at + bytes.len() as u64).min(self.part.end));
        if from < to {
            let target = &mut self.out[(from - self.part.start) as usize..(to - self.part.start) as usize];
            target.copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        }
    }
}
