//! Lists of varying length, and lists of texts: which elements each row has, and the page of some rows.

use std::{ops::Range, sync::Arc};

use super::{
    element::{Element, TOGETHER, packed},
    levels,
    strings::{ABSENT, Strings, offset, offsets, texts_into},
};
use crate::{
    format::DType,
    source::SourceError,
    view::{Fault, ReadContext, View},
    wanted,
};

/// Where the elements of each row begin among all elements.
#[derive(Debug)]
pub enum Starts {
    /// An array of offsets of the type i64, u32 or u64: where each row begins, and where the last one ends.
    At(View, DType),
    /// Each row has as many elements.
    Every(u64),
}

/// The elements of all rows, row after row.
#[derive(Debug)]
pub enum Elements {
    /// Elements of a fixed size. None is missing.
    Fixed(Element, View),
    /// Texts, some of which may be missing.
    Texts(Arc<dyn Strings>),
}

/// A column of lists.
#[derive(Debug)]
pub(super) struct Varying {
    pub(super) starts: Starts,
    pub(super) elements: Elements,
    /// If lists may be missing, a byte for each row, not 0 for those that are. A missing list has no elements.
    pub(super) missing: Option<View>,
}

impl Starts {
    /// Passes the start of each of some rows, and the end of the last one, to `each`.
    fn each(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (view, dtype) = match self {
            Self::Every(count) => {
                return (rows.start..=rows.end).try_for_each(|row| each(row.saturating_mul(*count)));
            }
            Self::At(view, dtype) => (view, *dtype),
        };
        for first in (rows.start..=rows.end).step_by(TOGETHER as usize) {
            wanted::check().map_err(SourceError::from)?;
            let count = TOGETHER.min(rows.end + 1 - first);
            offsets(view, dtype, reader, first, count)?.into_iter().try_for_each(&mut *each)?;
        }
        Ok(())
    }

    /// Returns the elements of some rows.
    fn range(&self, reader: &ReadContext, rows: &Range<u64>) -> Result<Range<u64>, Fault> {
        let at = |row: u64| match self {
            Self::Every(count) => Ok(row.saturating_mul(*count)),
            Self::At(view, dtype) => offset(view, *dtype, reader, row),
        };
        let elements = at(rows.start)?..at(rows.end)?;
        if elements.start > elements.end { Err(unsound(rows.start)) } else { Ok(elements) }
    }

    /// Passes the number of elements of each of some rows to `each`.
    fn lengths(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut last, mut row) = (None, rows.start);
        self.each(reader, rows, &mut |start| {
            if let Some(last) = last.replace(start) {
                each(start.checked_sub(last).ok_or_else(|| unsound(row))?)?;
                row += 1;
            }
            Ok(())
        })
    }
}

impl Varying {
    /// Returns whether elements may be missing.
    pub(super) fn has_missing(&self) -> bool {
        matches!(self.elements, Elements::Texts(_))
    }

    /// Returns the bytes of the values of some rows.
    pub(super) fn values_size(&self, reader: &ReadContext, rows: &Range<u64>) -> Result<u64, Fault> {
        let elements = self.starts.range(reader, rows)?;
        let count = elements.end - elements.start;
        match &self.elements {
            Elements::Fixed(element, data) => {
                let end = elements.end.checked_mul(element.stored_width());
                if end.is_none_or(|end| end > data.size()) {
                    return Err(unsound(rows.start));
                }
                Ok(element.packed(count))
            }
            Elements::Texts(texts) => {
                Ok(count.saturating_mul(4).saturating_add(if count == 0 { 0 } else { texts.size(reader, elements)? }))
            }
        }
    }

    /// Returns the number of levels of some rows: one for each element, and one for each row without any.
    pub(super) fn entries(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        // Offsets that lead nowhere count nothing.
        self.values_size(reader, &rows)?;
        let mut entries = 0u64;
        self.starts.lengths(reader, rows, &mut |length| {
            entries = entries.saturating_add(length.max(1));
            Ok(())
        })?;
        Ok(entries)
    }

    /// Returns the bytes of the levels.
    pub(super) fn levels_size(&self, entries: u64) -> u64 {
        levels::packed_size(entries, 1).saturating_add(levels::packed_size(entries, self.bits()))
    }

    /// Returns the bits of a level: two if there are levels of missing lists, empty ones, or missing elements.
    fn bits(&self) -> u64 {
        if self.has_missing() || self.missing.is_some() { 2 } else { 1 }
    }

    /// Returns the level of each of some rows without elements.
    fn levels_of_empty(&self, reader: &ReadContext, rows: &Range<u64>) -> Result<Vec<u8>, Fault> {
        let Some(missing) = &self.missing else { return Ok(Vec::new()) };
        let mut levels = vec![0; (rows.end - rows.start) as usize];
        missing.fill_at(reader, rows.start, &mut levels)?;
        levels.iter_mut().for_each(|mark| *mark = u8::from(*mark == 0));
        Ok(levels)
    }

    /// Makes the page of some rows in `out`, which is zeros.
    pub(super) fn fill(&self, reader: &ReadContext, rows: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let (entries, elements) = (self.entries(reader, rows.clone())?, self.starts.range(reader, &rows)?);
        let values = self.values_size(reader, &rows)?;
        let needed = self.levels_size(entries).saturating_add(values);
        if needed > out.len() as u64 {
            return Err(unsound(rows.start));
        }
        let (repetitions, rest) = levels::split_packed(entries, 1, out);
        let (definitions, values) = levels::split_packed(entries, self.bits(), rest);
        let width = self.bits() as usize;
        // The level of a missing element.
        let absent = 1 + u8::from(self.missing.is_some());
        let mut lengths = Vec::new();
        let mut present = absent;
        match &self.elements {
            Elements::Fixed(element, data) => fill_fixed(*element, data, reader, elements, values)?,
            Elements::Texts(texts) => {
                present += 1;
                if !elements.is_empty() {
                    lengths = texts_into(&**texts, reader, elements, true, values)?;
                }
            }
        }
        let empty = self.levels_of_empty(reader, &rows)?;
        self.each_entry(reader, rows, &mut |entry, row, element, is_first| {
            repetitions[entry / 8] |= u8::from(!is_first) << (entry % 8);
            let level = match element {
                None => empty.get(row).copied().unwrap_or(0),
                Some(at) if lengths.get(at) == Some(&ABSENT) => absent,
                Some(_) => present,
            };
            definitions[entry * width / 8] |= level << (entry * width % 8);
        })
    }

    /// Passes each entry of some rows to `each`: its number, that of its row among them, that of its element among
    /// those of the rows (`None` for a row without any), and whether it begins a row.
    fn each_entry(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        each: &mut dyn FnMut(usize, usize, Option<usize>, bool),
    ) -> Result<(), Fault> {
        let (mut entry, mut row, mut element) = (0, 0, 0);
        self.starts.lengths(reader, rows, &mut |length| {
            if length == 0 {
                each(entry, row, None, true);
                entry += 1;
            }
            for at in 0..length {
                each(entry, row, Some(element), at == 0);
                (entry, element) = (entry + 1, element + 1);
            }
            row += 1;
            Ok(())
        })
    }
}

/// Fills the front of `out` with converted elements.
fn fill_fixed(
    element: Element,
    data: &View,
    reader: &ReadContext,
    elements: Range<u64>,
    out: &mut [u8],
) -> Result<(), Fault> {
    let (stored_width, width) = (element.stored_width(), element.width() as usize);
    for first in elements.clone().step_by(TOGETHER as usize) {
        let count = TOGETHER.min(elements.end - first);
        let mut stored = vec![0; (count * stored_width) as usize];
        data.fill_at(reader, first * stored_width, &mut stored)?;
        // A step has whole bytes of bits.
        let at = (first - elements.start) as usize;
        if element.is_bit() {
            stored.chunks(8).zip(&mut out[at / 8..]).for_each(|(bits, out)| *out = packed(bits));
        } else {
            element.convert(&stored, &mut out[at * width..(at + count as usize) * width]);
        }
    }
    Ok(())
}

fn unsound(row: u64) -> Fault {
    Fault::refused(format!("the offsets of its lists are not sound at row {row}"))
}
