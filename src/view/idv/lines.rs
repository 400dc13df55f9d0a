//! Texts as JSON, a row a line: a string, `null`, or an array of them (contract, section 6).
//!
//! Where each line and each text begins in the output is indexed once a block, with marks inside the text, so that any
//! range begins where it begins. Slots that a sparse vector leaves out cost nothing until somebody reads them.

use std::{ops::Range, sync::Arc};

use super::{Fault, Kept, Reader, Values};
use crate::{
    cache::{BlockError, Buffer},
    format::{Block, Fields, idv::Content},
};

/// Bytes of text between two marks.
const STRIDE: u64 = 8192;

const NULL: &[u8] = b"null";

/// A block's lines.
struct Lines {
    content: Content<Buffer>,
    /// Where each row begins, and all end; where each item begins of all items without what stands between them, and
    /// all end; how many bytes escapes add in front of each mark.
    index: Arc<Buffer>,
    is_vector: bool,
}

/// Bytes of a block's lines.
pub(super) fn size(values: &Values, reader: &Reader, number: u64, block: &Block) -> Result<u64, Fault> {
    let lines = Lines::of(values, reader, number, block)?;
    Ok(lines.row_start(lines.content.rows()))
}

/// Fills `out` with a part of a block's lines.
pub(super) fn fill(
    values: &Values,
    reader: &Reader,
    number: u64,
    block: &Block,
    part: Range<u64>,
    out: &mut [u8],
) -> Result<(), Fault> {
    Lines::of(values, reader, number, block)?.fill(part, out);
    Ok(())
}

/// Whether that would go without making anything.
pub(super) fn is_ready(values: &Values, reader: &Reader, number: u64, block: &Block) -> bool {
    reader.cache.at_hand(values.key(reader, Kept::Lines, number)).is_some() && values.is_parsed(reader, number, block)
}

/// What a byte adds when it is escaped.
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

fn index(content: &Content<Buffer>, is_vector: bool) -> Vec<u8> {
    let text = content.text();
    let (rows, items) = (content.rows(), content.items());
    let mut marks = Vec::with_capacity(text.len() / STRIDE as usize + 1);
    let mut before = 0;
    for chunk in text.chunks(STRIDE as usize) {
        marks.push(before);
        before += extras(chunk);
    }
    let mut starts = Vec::with_capacity(items as usize + 1);
    let mut at = 0u64;
    for item in 0..items {
        starts.push(at);
        at += if content.is_missing(item) {
            NULL.len() as u64
        } else {
            let text = &text[content.text_start(item) as usize..content.text_start(item + 1) as usize];
            2 + text.len() as u64 + extras(text)
        };
    }
    starts.push(at);
    let mut bytes = Vec::with_capacity(8 * (rows as usize + 1 + starts.len() + marks.len()));
    let mut filled = 0;
    for row in 0..=rows {
        let items = content.first_item(row);
        let inner = starts.get(items as usize).copied().unwrap_or(at);
        let start = if is_vector {
            // Brackets and the line's end, absent texts, and commas between what there is.
            let slots = content.first_slot(row);
            3 * row + inner + 2 * (slots - items) + (slots - filled)
        } else {
            row + inner
        };
        filled += u64::from(row < rows && content.first_slot(row + 1) > content.first_slot(row));
        bytes.extend(start.to_le_bytes());
    }
    starts.iter().chain(&marks).for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

impl Lines {
    fn of(values: &Values, reader: &Reader, number: u64, block: &Block) -> Result<Self, Fault> {
        let content = values.content(reader, number, block)?;
        let is_vector = values.ty.dims.is_some();
        let key = values.key(reader, Kept::Lines, number);
        let made = match reader.cache.at_hand(key) {
            Some(made) => made,
            None => {
                let marks = content.text().len() as u64 / STRIDE + 1;
                let size = 8 * (content.rows() + content.items() + 2 + marks);
                reader.cache.made(key, size, || Ok::<_, BlockError>(index(&content, is_vector)))
            }
        };
        let index = made.map_err(|error| values.shared_fault(number, block.offset, error))?;
        Ok(Self { content, index, is_vector })
    }

    fn number(&self, place: u64) -> u64 {
        self.index.u64(8 * place as usize).unwrap_or(0)
    }

    fn row_start(&self, row: u64) -> u64 {
        self.number(row)
    }

    /// Where an item begins, of all items without what stands between them.
    fn item_start(&self, item: u64) -> u64 {
        self.number(self.content.rows() + 1 + item)
    }

    /// How many bytes escapes add in front of a byte of the text.
    fn extra_before(&self, at: u64) -> u64 {
        let mark = at / STRIDE;
        let first = self.content.rows() + self.content.items() + 2;
        let from = mark * STRIDE;
        self.number(first + mark) + extras(&self.content.text()[from as usize..at as usize])
    }

    fn fill(&self, part: Range<u64>, out: &mut [u8]) {
        let mut sink = Sink { part, out };
        let rows = self.content.rows();
        let (mut low, mut high) = (0, rows);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.row_start(middle) <= sink.part.start { low = middle } else { high = middle }
        }
        for row in low..rows {
            let start = self.row_start(row);
            if start >= sink.part.end {
                return;
            }
            if self.is_vector {
                self.fill_row(row, start, &mut sink);
            } else {
                self.fill_item(row, start, &mut sink);
            }
            sink.put(self.row_start(row + 1) - 1, b"\n");
        }
    }

    /// Where an element of a row begins.
    fn element_start(&self, row: u64, slot: u64) -> u64 {
        let first = self.content.first_slot(row);
        let items = self.content.items_in_front(slot) - self.content.first_item(row);
        let inner =
            self.item_start(self.content.first_item(row) + items) - self.item_start(self.content.first_item(row));
        // A bracket, the items and the absent ones, and a comma behind each.
        self.row_start(row) + 1 + inner + 2 * (slot - first - items) + (slot - first)
    }

    fn fill_row(&self, row: u64, start: u64, sink: &mut Sink<'_>) {
        let (first, end) = (self.content.first_slot(row), self.content.first_slot(row + 1));
        sink.put(start, b"[");
        let (mut low, mut high) = (first, end);
        while high > low && high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.element_start(row, middle) <= sink.part.start { low = middle } else { high = middle }
        }
        let mut at = if low < end { self.element_start(row, low) } else { start + 1 };
        self.content.runs(low..end, |run| {
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
        sink.put(self.row_start(row + 1) - 2, b"]");
    }

    /// One text; where it ends.
    fn fill_item(&self, item: u64, start: u64, sink: &mut Sink<'_>) -> u64 {
        let end = start + self.item_start(item + 1) - self.item_start(item);
        if end <= sink.part.start {
            return end;
        }
        if self.content.is_missing(item) {
            sink.put(start, NULL);
            return end;
        }
        sink.put(start, b"\"");
        sink.put(end - 1, b"\"");
        let range = self.content.text_start(item)..self.content.text_start(item + 1);
        let text = self.content.text();
        let (from, mut at) = self.text_from(&range, start + 1, sink.part.start);
        let mut plain = from;
        for here in from..range.end {
            if at >= sink.part.end {
                return end;
            }
            let byte = text[here as usize];
            if extra(byte) == 0 {
                // Runs of plain bytes go together.
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

    /// Where in a long text to begin, and where that is in the output: a mark in front of what is wanted. The text is
    /// at `range` of all, and begins at `start` of the output.
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
    /// Copies what is wanted of `bytes`, which stand at `at`.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (from, to) = (at.max(self.part.start), (at + bytes.len() as u64).min(self.part.end));
        if from < to {
            let target = &mut self.out[(from - self.part.start) as usize..(to - self.part.start) as usize];
            target.copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        }
    }
}
