//! Columns of a table: the source of their values, and the size and bytes of the page of some rows.

use std::{fmt, ops::Range, sync::Arc};

use serde_json::{Map, Value};

use super::{
    compact::{Encoding, Logical, Repetition, SchemaElement, chunk_front, dictionary_header},
    element::{Element, TOGETHER, ValueType, packed},
    levels::{self, Lists},
    strings::{Strings, fill_strings, unsound},
    varying::{Elements, Starts, Varying},
};
use crate::{
    format::DType,
    limits,
    view::{Fault, ReadContext, Rendered, View, pieces::Pieces},
};

/// A column.
#[derive(Debug)]
pub struct Column {
    /// Its name, different from those of all other columns.
    pub name: String,
    /// Description of the column by its format, for the file's metadata.
    pub about: Map<String, Value>,
    pub(super) values: Values,
    bounds: Option<Arc<dyn Bounds>>,
}

/// Smallest and largest value of some rows, known without reading values.
pub trait Bounds: fmt::Debug + Send + Sync {
    /// Returns the bounds of at least one row.
    fn bounds(&self, rows: Range<u64>) -> [i64; 2];
}

/// How missing elements are marked.
#[derive(Debug, Clone)]
pub enum Missing {
    /// Those with the smallest value of their type.
    Least,
    /// Those that are 0.
    Zero,
    /// Those with the value 2, for bools that are otherwise 0 or 1.
    Two,
    /// Those for which another array, with one byte for each element, is not 0.
    Marked(View),
}

/// Which lists are missing.
pub trait Missed: fmt::Debug + Send + Sync {
    /// Returns how many rows of a range are missing.
    ///
    /// # Errors
    /// [`Fault`] if that needs bytes which cannot be read or are damaged.
    fn count(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault>;

    /// Returns a byte for each row, not 0 for those that are missing.
    fn view(&self) -> View;
}

/// Source of the values.
#[derive(Debug)]
pub(super) enum Values {
    /// Elements of a fixed size, none missing. Pages are made for the range that is read.
    Fixed(Fixed),
    /// The same, but some may be missing. Pages of this and of all following kinds are made whole.
    Nullable(Fixed, Missing),
    /// Lists of one length, some of which may be missing.
    Lists(Fixed, Arc<dyn Missed>),
    Strings {
        strings: Arc<dyn Strings>,
        is_text: bool,
        is_nullable: bool,
    },
    Keys(Keys),
    /// Lists of varying length, and lists of texts.
    Varying(Varying),
}

/// Elements of a fixed size.
#[derive(Debug)]
pub(super) struct Fixed {
    element: Element,
    /// For lists, the number of elements of each.
    slots: Option<u64>,
    /// The stored elements; for records, those of one field.
    data: View,
    /// Offset of the elements in the bytes of a row, and bytes per row.
    at: u64,
    stride: u64,
}

/// Keys that stand for texts.
#[derive(Debug)]
pub(super) struct Keys {
    /// The keys, from 1; all others are missing.
    data: View,
    dtype: DType,
    /// The texts, each after its length of 4 bytes, and their number.
    dictionary: Vec<u8>,
    count: u64,
}

impl Column {
    fn new(name: String, values: Values) -> Self {
        Self { name, about: Map::new(), values, bounds: None }
    }

    /// Returns a column of elements of a fixed size, with `slots` elements in each row if rows are lists. `data` are
    /// the elements of all rows.
    pub fn fixed(name: String, element: Element, slots: Option<u64>, data: View) -> Self {
        let element = if slots.is_some() { element.in_lists() } else { element };
        let stride = element.stored_width() * slots.unwrap_or(1);
        let column = Self::new(name, Values::Fixed(Fixed { element, slots, data, at: 0, stride })).with_dtype(element);
        match slots {
            Some(slots) => column.with_about("shape", [slots].as_slice()),
            None => column,
        }
    }

    /// Returns a column of one field of records, at the offset `at` of each row of `stride` bytes.
    pub fn field(name: String, element: Element, data: View, at: u64, stride: u64) -> Self {
        Self::new(name, Values::Fixed(Fixed { element, slots: None, data, at, stride })).with_dtype(element)
    }

    /// Adds the dtype to the description, if the elements have one.
    fn with_dtype(self, element: Element) -> Self {
        if let Element::Of(dtype) = element { self.with_about("dtype", dtype.name()) } else { self }
    }

    /// Returns a column of row numbers, from 0.
    pub fn row_numbers(name: &str, dtype: DType, rows: u64) -> Self {
        let data = View::default().with_rendered(rows.saturating_mul(dtype.size()), RowNumbers(dtype));
        Self::fixed(name.into(), Element::Of(dtype), None, data).with_bounds(Arc::new(RowNumbers(dtype)))
    }

    /// Returns a column of texts or other bytes.
    pub fn strings(name: String, strings: Arc<dyn Strings>, is_text: bool, is_nullable: bool) -> Self {
        Self::new(name, Values::Strings { strings, is_text, is_nullable })
    }

    /// Returns a column of lists whose length varies, or whose elements are texts. No list is missing
    /// ([`Self::with_missing_lists`]).
    pub fn varying(name: String, starts: Starts, elements: Elements) -> Self {
        let column = |elements| Self::new(name, Values::Varying(Varying { starts, elements, missing: None }));
        match elements {
            Elements::Fixed(element, data) => column(Elements::Fixed(element.in_lists(), data)).with_dtype(element),
            texts => column(texts),
        }
    }

    /// Returns a column of unsigned keys for `count` texts, each after its length of 4 bytes in `dictionary`.
    pub fn keys(name: String, dtype: DType, data: View, dictionary: Vec<u8>, count: u64) -> Self {
        Self::new(name, Values::Keys(Keys { data, dtype, dictionary, count }))
    }

    /// Returns the column with some values missing. Has no effect on lists and texts.
    #[must_use]
    pub fn with_missing(mut self, missing: Missing) -> Self {
        self.values = match self.values {
            Values::Fixed(fixed) if fixed.slots.is_none() => Values::Nullable(fixed, missing),
            values => values,
        };
        self
    }

    /// Returns a column of lists with some of them missing. Of lists whose length varies, those have no elements.
    #[must_use]
    pub fn with_missing_lists(mut self, missed: Arc<dyn Missed>) -> Self {
        self.values = match self.values {
            Values::Fixed(fixed) if fixed.slots.is_some() => Values::Lists(fixed, missed),
            Values::Varying(varying) => Values::Varying(Varying { missing: Some(missed.view()), ..varying }),
            values => values,
        };
        self
    }

    /// Returns the column with its smallest and largest values.
    #[must_use]
    pub fn with_bounds(mut self, bounds: Arc<dyn Bounds>) -> Self {
        self.bounds = Some(bounds);
        self
    }

    /// Returns the column with an addition to its description.
    #[must_use]
    pub fn with_about(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.about.insert(key.into(), value.into());
        self
    }

    /// Returns the bytes of a row in a page, as far as they do not depend on values.
    pub(super) fn row_width(&self) -> u64 {
        match &self.values {
            Values::Fixed(fixed) | Values::Nullable(fixed, _) | Values::Lists(fixed, _) => {
                fixed.element.width().saturating_mul(fixed.slots.unwrap_or(1))
            }
            Values::Strings { .. } => 4,
            Values::Varying(_) => 1,
            Values::Keys(keys) => keys.width(),
        }
    }

    /// Returns whether the size of a page depends on its texts, or on the lengths of its lists.
    pub(super) fn is_sized_by_texts(&self) -> bool {
        matches!(self.values, Values::Strings { .. } | Values::Varying(_))
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn memory_usage(&self) -> usize {
        let texts = match &self.values {
            Values::Keys(keys) => keys.dictionary.len(),
            Values::Strings { strings, .. } => strings.memory_usage(),
            _ => 0,
        };
        size_of::<Self>() + self.name.len() + texts
    }

    /// Returns whether the size of a page depends on its rows.
    pub(super) fn is_sized_by_rows(&self) -> bool {
        self.is_sized_by_texts() || matches!(self.values, Values::Lists(..))
    }

    /// Returns the bytes of the texts of some rows, or of the values of lists whose length varies; 0 if the page has
    /// neither.
    pub(super) fn text_size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        match &self.values {
            Values::Strings { strings, .. } => strings.size(reader, rows),
            Values::Varying(varying) => varying.values_size(reader, &rows),
            _ => Ok(0),
        }
    }

    /// Returns how many lists of some rows are missing; if the length of lists varies, how many levels they have; 0 if
    /// rows are not lists. If damage makes lengths unknown, the page has no levels, and reading it reports the damage.
    pub(super) fn missing(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        match &self.values {
            Values::Lists(_, missed) => Ok(missed.count(reader, rows.clone())?.min(rows.end - rows.start)),
            Values::Varying(varying) => match varying.entries(reader, rows) {
                Err(fault) if fault.error.is_damage() => Ok(0),
                entries => entries,
            },
            _ => Ok(0),
        }
    }

    /// Returns the bytes of the page of `rows` rows, whose texts have `text` bytes; `missing` of the rows are missing
    /// lists.
    pub(super) fn page_size(&self, rows: u64, text: u64, missing: u64) -> u64 {
        match &self.values {
            Values::Fixed(fixed) => fixed.levels(rows).map_or(0, |levels| levels.size()) + fixed.values_size(rows),
            Values::Nullable(fixed, _) => levels::packed_size(rows, 1) + fixed.values_size(rows),
            Values::Lists(fixed, _) => fixed.lists_size(rows, missing),
            Values::Strings { is_nullable, .. } => {
                let levels = if *is_nullable { levels::packed_size(rows, 1) } else { 0 };
                levels.saturating_add(4 * rows).saturating_add(text)
            }
            Values::Varying(varying) => varying.levels_size(missing).saturating_add(text),
            Values::Keys(keys) => {
                let indices =
                    levels::indices_head(rows, keys.width()).len() as u64 + 8 * rows.div_ceil(8) * keys.width();
                levels::packed_size(rows, 1) + indices
            }
        }
    }

    /// Returns the number of values in the page of `rows` rows; `missing` of the rows are missing lists.
    pub(super) fn values_in(&self, rows: u64, missing: u64) -> u64 {
        match &self.values {
            Values::Lists(fixed, _) => fixed.entries(rows, missing),
            Values::Varying(_) => missing,
            Values::Fixed(fixed) => rows.saturating_mul(fixed.slots.unwrap_or(1)),
            _ => rows,
        }
    }

    /// Returns how values are encoded in a page.
    pub(super) fn encoding(&self) -> Encoding {
        if matches!(self.values, Values::Keys(_)) { Encoding::RleDictionary } else { Encoding::Plain }
    }

    /// Returns the texts of keys as a page with its header; empty for all other columns.
    pub(super) fn dictionary(&self) -> (Vec<u8>, &[u8]) {
        match &self.values {
            Values::Keys(keys) => (dictionary_header(keys.count, keys.dictionary.len() as u64), &keys.dictionary),
            _ => Default::default(),
        }
    }

    /// Returns the smallest and largest value of some rows in the footer's form, if they are known.
    pub(super) fn statistics(&self, rows: Range<u64>) -> Option<[Vec<u8>; 2]> {
        let bounds = self.bounds.as_ref().filter(|_| !self.is_nullable())?.bounds(rows);
        let width = self.row_width() as usize;
        Some(bounds.map(|bound| bound.to_le_bytes()[..width].to_vec()))
    }

    pub(super) fn value_type(&self) -> ValueType {
        match &self.values {
            Values::Fixed(fixed) | Values::Nullable(fixed, _) | Values::Lists(fixed, _) => fixed.element.value_type(),
            Values::Strings { is_text, .. } => ValueType::of_bytes(*is_text),
            Values::Varying(Varying { elements: Elements::Fixed(element, _), .. }) => element.value_type(),
            Values::Varying(_) | Values::Keys(_) => ValueType::of_bytes(true),
        }
    }

    /// Adds the column to a schema.
    pub(super) fn add_to<'a>(&'a self, schema: &mut Vec<SchemaElement<'a>>) {
        let mut name = self.name.as_str();
        if self.is_list() {
            let repetition = if self.is_nullable() { Repetition::Optional } else { Repetition::Required };
            let group = |name, repetition, logical| SchemaElement {
                name,
                repetition: Some(repetition),
                children: Some(1),
                logical,
                ..SchemaElement::default()
            };
            schema.push(group(name, repetition, Some(Logical::List)));
            schema.push(group(LIST, Repetition::Repeated, None));
            name = ELEMENT;
        }
        let ValueType { physical, length, logical } = self.value_type();
        let is_nullable = if self.is_list() { self.has_missing_elements() } else { self.is_nullable() };
        let repetition = Some(if is_nullable { Repetition::Optional } else { Repetition::Required });
        schema.push(SchemaElement { name, repetition, children: None, physical: Some(physical), length, logical });
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.values, Values::Fixed(Fixed { slots: Some(_), .. }) | Values::Lists(..) | Values::Varying(_))
    }

    /// Returns whether every value of a chunk is there. An empty list has none.
    pub(super) fn is_full(&self) -> bool {
        !self.is_nullable() && !matches!(self.values, Values::Varying(_))
    }

    /// Returns whether values may be missing.
    pub(super) fn is_nullable(&self) -> bool {
        match self.values {
            Values::Fixed(_) => false,
            Values::Varying(Varying { ref missing, .. }) => missing.is_some(),
            Values::Strings { is_nullable, .. } => is_nullable,
            Values::Nullable(..) | Values::Lists(..) | Values::Keys(_) => true,
        }
    }

    /// Returns the number of elements of each list, if all lists have as many.
    pub(super) fn slots(&self) -> Option<u64> {
        match &self.values {
            Values::Fixed(fixed) | Values::Lists(fixed, _) => fixed.slots,
            _ => None,
        }
    }

    /// Returns whether elements of lists may be missing: only texts.
    pub(super) fn has_missing_elements(&self) -> bool {
        matches!(&self.values, Values::Varying(varying) if varying.has_missing())
    }

    /// Returns the part of the footer that is the same for each of its chunks.
    pub(super) fn chunk_front(&self) -> Vec<u8> {
        let encodings = match self.encoding() {
            Encoding::Plain => vec![Encoding::Plain, Encoding::Rle],
            other => vec![Encoding::Plain, Encoding::Rle, other],
        };
        let path = if self.is_list() { vec![&*self.name, LIST, ELEMENT] } else { vec![&*self.name] };
        chunk_front(self.value_type().physical, &encodings, &path)
    }
}

/// The name of the elements of a list, which Parquet and Arrow share.
pub(super) const ELEMENT: &str = "element";

/// The name of the repeated part of a list, as the format requires.
const LIST: &str = "list";

impl Fixed {
    fn levels(&self, rows: u64) -> Option<Lists> {
        self.slots.map(|slots| Lists::new(rows, slots))
    }

    /// Returns the bytes of the values of `rows` rows.
    fn values_size(&self, rows: u64) -> u64 {
        self.element.packed(rows.saturating_mul(self.slots.unwrap_or(1)))
    }

    /// Returns whether values are the stored bytes in order.
    fn is_copy(&self) -> bool {
        self.element.is_copy() && self.stride == self.element.stored_width() * self.slots.unwrap_or(1)
    }

    /// Returns the range of `data` that a part of a page shows unchanged; `None` if it shows other bytes.
    pub(super) fn stored(&self, rows: &Range<u64>, part: &Range<u64>) -> Option<(&View, Range<u64>)> {
        let levels = self.levels(rows.end - rows.start).map_or(0, |levels| levels.size());
        let start = rows.start * self.stride;
        let is_copy = self.is_copy() && part.start >= levels;
        is_copy.then(|| (&self.data, start + part.start - levels..start + part.end - levels))
    }

    /// Fills `out` with a part of the page of some rows.
    pub(super) fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        part: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let count = rows.end - rows.start;
        let levels = self.levels(count);
        let front = levels.as_ref().map_or(0, Lists::size);
        let mut pieces = Pieces { part, out };
        if let Some(levels) = levels.filter(|_| pieces.part.start < front) {
            levels.fill(&mut pieces);
        }
        let Some(wanted) = pieces.overlap(&(front..front + self.values_size(count))) else { return Ok(()) };
        let values = wanted.start - front..wanted.end - front;
        self.fill_values(reader, rows, values, pieces.slot(&wanted))
    }

    fn fill_values(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        part: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        if self.is_copy() {
            return self.data.fill_at(reader, rows.start * self.stride + part.start, out);
        }
        let (element, slots) = (self.element, self.slots.unwrap_or(1));
        let all = (rows.end - rows.start) * slots;
        let mut converted = vec![0; (TOGETHER * element.width()) as usize];
        let mut pieces = Pieces { part, out };
        // Eight bits per byte, so each step begins at a whole byte.
        let first = match element.is_bit() {
            true => pieces.part.start * 8,
            false => pieces.part.start / element.width(),
        };
        for step in first / TOGETHER.. {
            let elements = step * TOGETHER..all.min((step + 1) * TOGETHER);
            let at = if element.is_bit() { elements.start / 8 } else { elements.start * element.width() };
            if elements.is_empty() || at >= pieces.part.end {
                break;
            }
            let count = (elements.end - elements.start) as usize;
            let converted = &mut converted[..count * element.width() as usize];
            self.convert(reader, rows.start * slots + elements.start, converted)?;
            if element.is_bit() {
                let bits: Vec<u8> = converted.chunks(8).map(packed).collect();
                pieces.take(at, &bits);
            } else {
                pieces.take(at, converted);
            }
        }
        Ok(())
    }

    /// Fills `out` with whole elements, from the table's element `first` on. Bits take a byte each.
    fn convert(&self, reader: &ReadContext, first: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (width, element) = (self.element.stored_width(), self.element);
        let count = out.len() as u64 / element.width();
        let slots = self.slots.unwrap_or(1);
        if self.stride == width * slots {
            let mut stored = vec![0; (count * width) as usize];
            self.data.fill_at(reader, first * width, &mut stored)?;
            element.convert(&stored, out);
            return Ok(());
        }
        // One field of records. There is one record for each row.
        let mut records = vec![0; (count * self.stride) as usize];
        self.data.fill_at(reader, first * self.stride, &mut records)?;
        for (record, out) in records.chunks(self.stride as usize).zip(out.chunks_mut(element.width() as usize)) {
            let field = record.get(self.at as usize..(self.at + width) as usize);
            element.convert(field.unwrap_or_default(), out);
        }
        Ok(())
    }
}

/// Makes a whole page in `out`, which is zeros.
pub(super) fn fill_page(values: &Values, reader: &ReadContext, rows: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
    match values {
        Values::Fixed(fixed) => fixed.fill(reader, rows, 0..out.len() as u64, out),
        Values::Nullable(fixed, missing) => fixed.fill_nullable(reader, rows, missing, out),
        Values::Lists(fixed, missed) => fixed.fill_lists(reader, rows, &**missed, out),
        Values::Strings { strings, is_nullable, .. } => fill_strings(&**strings, reader, rows, *is_nullable, out),
        Values::Keys(keys) => keys.fill(reader, rows, out),
        Values::Varying(varying) => varying.fill(reader, rows, out),
    }
}

impl Fixed {
    fn fill_nullable(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        missing: &Missing,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let count = rows.end - rows.start;
        let (levels, values) = levels::split_packed(count, 1, out);
        let (element, stored_width) = (self.element, self.element.stored_width() as usize);
        let mut present = Present { element, values, count: 0 };
        let mut row = 0usize;
        for start in rows.clone().step_by(TOGETHER as usize) {
            let end = rows.end.min(start + TOGETHER);
            let mut records = vec![0; ((end - start) * self.stride) as usize];
            self.data.fill_at(reader, start * self.stride, &mut records)?;
            let mut marks = vec![0; (end - start) as usize];
            if let Missing::Marked(view) = missing {
                view.fill_at(reader, start, &mut marks)?;
            }
            for (record, mark) in records.chunks_exact(self.stride as usize).zip(marks) {
                let stored = record.get(self.at as usize..self.at as usize + stored_width).unwrap_or_default();
                let is_missing = match missing {
                    Missing::Least => element.is_least(stored),
                    Missing::Zero => stored.iter().all(|byte| *byte == 0),
                    Missing::Two => stored.first() == Some(&2),
                    Missing::Marked(_) => mark != 0,
                };
                if !is_missing {
                    levels[row / 8] |= 1 << (row % 8);
                    present.push(stored);
                }
                row += 1;
            }
        }
        Ok(())
    }

    /// Returns the number of levels of `rows` lists, `missing` of which are missing.
    fn entries(&self, rows: u64, missing: u64) -> u64 {
        rows.saturating_sub(missing).saturating_mul(self.slots.unwrap_or(1)).saturating_add(missing)
    }

    /// Returns the bytes of the page of `rows` lists, `missing` of which are missing.
    fn lists_size(&self, rows: u64, missing: u64) -> u64 {
        let entries = self.entries(rows, missing);
        let levels = levels::packed_size(entries, 1).saturating_add(levels::packed_size(entries, 2));
        levels.saturating_add(self.values_size(rows - missing))
    }

    fn fill_lists(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        missed: &dyn Missed,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let (count, slots) = (rows.end - rows.start, self.slots.unwrap_or(1));
        let mut marks = vec![0; count as usize];
        missed.view().fill_at(reader, rows.start, &mut marks)?;
        let missing = marks.iter().filter(|mark| **mark != 0).count() as u64;
        let entries = self.entries(count, missing);
        if self.lists_size(count, missing) > out.len() as u64 {
            return Err(unsound(rows.start));
        }
        let (repetitions, rest) = levels::split_packed(entries, 1, out);
        let (levels, values) = levels::split_packed(entries, 2, rest);
        let stored = self.element.stored_width() as usize;
        let mut present = Present { element: self.element, values, count: 0 };
        let mut entry = 0usize;
        let mut record = vec![0; self.stride as usize];
        for (row, mark) in rows.zip(marks) {
            if mark != 0 {
                entry += 1;
                continue;
            }
            self.data.fill_at(reader, row * self.stride, &mut record)?;
            for slot in 0..slots as usize {
                repetitions[entry / 8] |= u8::from(slot > 0) << (entry % 8);
                levels[entry / 4] |= 2 << (2 * (entry % 4));
                present.push(record.get(slot * stored..(slot + 1) * stored).unwrap_or_default());
                entry += 1;
            }
        }
        Ok(())
    }
}

/// Values that are not missing, one after the other.
struct Present<'a> {
    element: Element,
    values: &'a mut [u8],
    count: usize,
}

impl Present<'_> {
    fn push(&mut self, stored: &[u8]) {
        let (at, width) = (self.count, self.element.width() as usize);
        if self.element.is_bit() {
            self.values[at / 8] |= u8::from(stored.first() != Some(&0)) << (at % 8);
        } else {
            self.element.convert(stored, &mut self.values[at * width..(at + 1) * width]);
        }
        self.count += 1;
    }
}

impl Keys {
    /// Returns the bytes of an index.
    fn width(&self) -> u64 {
        match self.count {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        }
    }

    fn fill(&self, reader: &ReadContext, rows: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let (count, width, stored) = (rows.end - rows.start, self.width() as usize, self.dtype.size());
        let (levels, indices) = levels::split_packed(count, 1, out);
        let head = levels::indices_head(count, width as u64);
        let (front, indices) = indices.split_at_mut(head.len());
        front.copy_from_slice(&head);
        let (mut filled, mut row) = (0usize, 0usize);
        for start in rows.clone().step_by(TOGETHER as usize) {
            let end = rows.end.min(start + TOGETHER);
            let mut keys = vec![0; ((end - start) * stored) as usize];
            self.data.fill_at(reader, start * stored, &mut keys)?;
            for key in keys.chunks_exact(stored as usize) {
                let key = key.iter().rev().fold(0u64, |key, byte| key << 8 | u64::from(*byte));
                if (1..=self.count).contains(&key) {
                    levels[row / 8] |= 1 << (row % 8);
                    indices[filled * width..(filled + 1) * width].copy_from_slice(&(key - 1).to_le_bytes()[..width]);
                    filled += 1;
                }
                row += 1;
            }
        }
        Ok(())
    }
}

/// Row numbers.
#[derive(Debug, Clone, Copy)]
struct RowNumbers(DType);

impl Rendered for RowNumbers {
    fn is_copy(&self) -> bool {
        true
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(out.len() <= limits::PIECE)?;
        let width = self.0.size();
        let mut pieces = Pieces { part, out };
        for row in pieces.part.start / width..pieces.part.end.div_ceil(width) {
            pieces.take(row * width, &row.to_le_bytes()[..width as usize]);
        }
        Ok(())
    }
}

impl Bounds for RowNumbers {
    fn bounds(&self, rows: Range<u64>) -> [i64; 2] {
        [rows.start as i64, rows.end as i64 - 1]
    }
}
