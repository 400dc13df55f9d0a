//! The metadata of a table as columns, one for each field, if its codec is `struct` or
//! `json+struct` (`docs/TREE.md`, section 7).

use std::{ops::Range, sync::Arc};

use super::packed::{Encoding, Field, Layout, Value};
use crate::{
    cache::BlockError,
    format::{DType, Fields},
    limits,
    source::{Memory, SourceError},
    tree::{
        WorkingMemory,
        rows::{EachRow, Form, RowFiles, Rows},
        tables::LeftOut,
    },
    view::{
        Fault, ReadContext, Rendered, View,
        parquet::{Column, Element, Elements, Missed, Missing, Starts, Strings},
        pieces::Pieces,
    },
    wanted,
};

/// Rows whose offsets are read together.
const TOGETHER: u64 = 4096;

/// Numbers of documents that a table's fields may use.
const DOCUMENTS: u64 = 2 * limits::TABLE_COLUMNS as u64;

/// Takes a row: its number, where it begins in the metadata, and its bytes, or why it has none.
type EachStored<'a> = dyn FnMut(u64, u64, Result<&[u8], Fault>) -> Result<(), Fault> + 'a;

/// Takes the number of a row, and its values, one after the other; `None` for a null row.
type EachValues<'a> = dyn FnMut(u64, Result<Option<&[u8]>, Fault>) -> Result<(), Fault> + 'a;

/// The metadata of all rows of a table.
#[derive(Debug)]
pub(super) struct Metadata {
    /// The key of the metadata, for messages.
    pub(super) key: String,
    pub(super) data: Range<u64>,
    pub(super) offsets: Range<u64>,
    /// The type of the offsets: u32 or u64.
    pub(super) dtype: DType,
    pub(super) rows: u64,
    pub(super) layout: Arc<Layout>,
}

/// Returns the fields that are columns of a table of `rows` rows, by their numbers, and those that are left out.
pub(super) fn shown(layout: &Layout, rows: u64) -> (Vec<usize>, Vec<LeftOut>) {
    let (mut columns, mut left_out) = (Vec::new(), Vec::new());
    for (number, field) in layout.fields.iter().enumerate() {
        match why_not(field, rows) {
            None => columns.push(number),
            Some(reason) => left_out.push(LeftOut { column: column_name(field), reason }),
        }
    }
    (columns, left_out)
}

/// Returns the stored name of a field's column.
fn column_name(field: &Field) -> String {
    format!("metadata.{}", field.name)
}

/// Returns why a field is no column, if it is none.
fn why_not(field: &Field, rows: u64) -> Option<String> {
    let in_lists = !field.axes.is_empty() || field.lists > 0;
    match &field.value {
        Value::Null(_) => Some("it has no values".into()),
        Value::Text { encoding: Encoding::Other(name), .. } => Some(format!("its texts are encoded as {name}")),
        Value::Bytes { .. } if in_lists => Some("its rows are lists of bytes".into()),
        _ if field.lists > 1 || field.lists == 1 && !field.axes.is_empty() => {
            Some("its rows are lists of lists".into())
        }
        _ => match slots(field) {
            Some(0) => Some("its rows are empty".into()),
            Some(slots) if slots > limits::TABLE_LIST => {
                Some(format!("its rows have more than {} elements", limits::TABLE_LIST))
            }
            _ if in_lists && rows > limits::TEXT_ROWS => Some(format!("it has more than {} rows", limits::TEXT_ROWS)),
            _ => None,
        },
    }
}

/// Returns the number of values in each row of a list of one length.
fn slots(field: &Field) -> Option<u64> {
    let is_list = !field.axes.is_empty();
    is_list.then(|| field.axes.iter().fold(1u64, |slots, axis| slots.saturating_mul(*axis)))
}

/// Returns the columns of some fields with their stored names. `table` is the number of the table.
///
/// # Errors
/// [`Fault`] if the lengths of lists cannot be read.
pub(super) fn columns(
    metadata: &Arc<Metadata>,
    reader: &ReadContext,
    table: u64,
    fields: &[usize],
) -> Result<Vec<Column>, Fault> {
    let columns = fields.iter().filter_map(|&number| Some((number, metadata.layout.fields.get(number)?)));
    let column = |(number, field): (usize, &Field)| {
        let of = || FieldOf { metadata: metadata.clone(), number, width: field.value.width() };
        let document = table.saturating_mul(DOCUMENTS).saturating_add(2 * number as u64 + 1);
        let column = of().column(field, || RowFiles::new(of(), document), reader)?;
        Ok(if field.axes.len() > 1 { column.with_about("shape", &*field.axes) } else { column })
    };
    columns.map(column).collect()
}

impl Metadata {
    /// Returns where some rows begin, and where the last one ends.
    fn bounds(&self, reader: &ReadContext, rows: &Range<u64>) -> Result<Vec<u64>, Fault> {
        let width = self.dtype.size();
        let at = self.offsets.start;
        let bytes = reader.source.read(at + rows.start * width..at + (rows.end + 1) * width)?;
        let number = |bytes: &[u8]| if width == 4 { bytes.u32(0).map(u64::from) } else { bytes.u64(0) };
        Ok(bytes.chunks_exact(width as usize).map(|bytes| number(bytes).unwrap_or(0)).collect())
    }

    fn length(&self) -> u64 {
        self.data.end - self.data.start
    }

    /// Returns the failure of a row. `at` is where it begins in the metadata.
    fn fault(&self, row: u64, at: u64, reason: &str) -> Fault {
        let reason = format!("{} row {row}: {reason}", self.key);
        let offset = self.data.start.saturating_add(at);
        Fault { block: None, offset, error: Arc::new(BlockError::Refused(reason)) }
    }

    /// Passes some rows to `each`, in order.
    fn each(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut EachStored<'_>,
    ) -> Result<(), Fault> {
        let length = self.length();
        let mut reserved = 0;
        for first in rows.clone().step_by(TOGETHER as usize) {
            wanted::check().map_err(SourceError::from)?;
            let bounds = self.bounds(reader, &(first..rows.end.min(first + TOGETHER)))?;
            let is_sound = |at: usize| bounds[at] <= bounds[at + 1] && bounds[at + 1] <= length;
            let mut at = 0;
            while at + 1 < bounds.len() {
                let (row, start) = (first + at as u64, bounds[at]);
                if !is_sound(at) {
                    each(row, start.min(length), Err(self.fault(row, 0, "its offsets are not sound")))?;
                    at += 1;
                    continue;
                }
                let mut end = at + 1;
                while end + 1 < bounds.len() && is_sound(end) && bounds[end + 1] - start <= limits::PIECE as u64 {
                    end += 1;
                }
                let size = bounds[end] - start;
                if size > limits::PACKED_ROW {
                    let reason = format!("it has {size} bytes, more than {}", limits::PACKED_ROW);
                    each(row, start, Err(self.fault(row, start, &reason)))?;
                    at = end;
                    continue;
                }
                if size > reserved {
                    memory.reserve(size - reserved)?;
                    reserved = size;
                }
                let bytes = reader.source.read(self.data.start + start..self.data.start + bounds[end])?;
                for (at, pair) in (at..end).zip(bounds[at..=end].windows(2)) {
                    let row = bytes.get((pair[0] - start) as usize..(pair[1] - start) as usize);
                    each(first + at as u64, pair[0], Ok(row.unwrap_or_default()))?;
                }
                at = end;
            }
        }
        Ok(())
    }
}

/// A field of all rows.
#[derive(Debug)]
struct FieldOf {
    metadata: Arc<Metadata>,
    number: usize,
    /// Bytes of a stored value.
    width: u64,
}

impl FieldOf {
    /// Returns the column of the field. `files` returns its values as rows of varying length.
    fn column(self, field: &Field, files: impl Fn() -> RowFiles, reader: &ReadContext) -> Result<Column, Fault> {
        let (name, is_nullable) = (column_name(field), self.metadata.layout.is_nullable);
        let (rows, slots) = (self.metadata.rows, slots(field));
        let marks = is_nullable.then(|| Marks(self.metadata.clone()));
        let value = field.value.clone();
        let is_text = matches!(value, Value::Text { .. });
        if field.lists > 0 || is_text && slots.is_some() {
            let starts = Starts::At(files().offsets(self.width).data, DType::I64);
            let data = files().view(reader, Form::Joined)?;
            let elements = match value {
                Value::Number(dtype) => Elements::Fixed(Element::Of(dtype), data),
                value => Elements::Texts(Arc::new(Texts { data, value, metadata: self.metadata })),
            };
            let column = Column::varying(name, starts, elements);
            return Ok(match marks {
                Some(marks) => column.with_missing_lists(Arc::new(marks)),
                None => column,
            });
        }
        let Value::Number(dtype) = value else {
            return Ok(Column::strings(name, Arc::new(self), is_text, is_nullable));
        };
        let data = View::default().with_rendered(rows.saturating_mul(self.width * slots.unwrap_or(1)), Numbers(self));
        let column = Column::fixed(name, Element::Of(dtype), slots, data);
        Ok(match marks {
            None => column,
            Some(marks) if slots.is_some() => column.with_missing_lists(Arc::new(marks)),
            Some(marks) => column.with_missing(Missing::Marked(View::default().with_rendered(rows, marks))),
        })
    }

    fn field(&self) -> Option<&Field> {
        self.metadata.layout.fields.get(self.number)
    }

    /// Passes the values of each of some rows to `each`.
    fn each_row(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut EachValues<'_>,
    ) -> Result<(), Fault> {
        let layout = &self.metadata.layout;
        let (mut values, mut reserved) = (Vec::new(), 0);
        self.metadata.each(reader, memory, rows, &mut |row, at, bytes| {
            let bytes = match bytes {
                Ok(bytes) if layout.is_null(bytes) => return each(row, Ok(None)),
                Ok(bytes) => bytes,
                Err(fault) => return each(row, Err(fault)),
            };
            values.clear();
            // The values are some of the row's bytes, and a vector grows to twice of that at most.
            let most = 2 * bytes.len() as u64;
            if most > reserved {
                memory.reserve(most - reserved)?;
                reserved = most;
            }
            match layout.values(bytes, self.number, &mut |value| values.extend_from_slice(value)) {
                Ok(()) => each(row, Ok(Some(&values))),
                Err(_) => {
                    let reason = format!("its {} bytes are not what its schema describes", bytes.len());
                    each(row, Err(self.metadata.fault(row, at, &reason)))
                }
            }
        })
    }
}

/// Values of varying length: lists.
impl Rows for FieldOf {
    fn count(&self) -> u64 {
        self.metadata.rows
    }

    fn each(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: EachRow<'_>,
    ) -> Result<(), Fault> {
        self.each_row(reader, memory, rows, &mut |_, values| each(values?))
    }

    /// A row that cannot be decoded counts as one with an element, so that other rows can be read, and reading it fails.
    fn lengths(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.each_row(reader, memory, rows, &mut |_, values| {
            each(values.map_or(self.width, |values| values.map_or(0, |values| values.len() as u64)))
        })
    }
}

/// Texts or bytes, one for each row.
impl Strings for FieldOf {
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let bound = |row| self.metadata.bounds(reader, &(row..row)).map(|bounds| bounds.first().copied().unwrap_or(0));
        let (start, end) = (bound(rows.start)?, bound(rows.end)?);
        let stored = end.checked_sub(start).filter(|_| end <= self.metadata.length());
        let stored = stored.ok_or_else(|| self.metadata.fault(rows.start, 0, "its offsets are not sound"))?;
        let texts = (rows.end - rows.start).saturating_mul(self.width);
        Ok(texts.min(stored).saturating_mul(self.field().map_or(1, |field| field.value.growth())))
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        reader.may_work()?;
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let mut at = 0;
        self.each_row(reader, &memory, rows, &mut |row, values| {
            let Some(stored) = values? else {
                each(None);
                return Ok(());
            };
            let text = self.field().and_then(|field| field.value.text(stored));
            let failed = || self.metadata.fault(row, 0, "its text is not in the encoding that its schema states");
            let text = text.ok_or_else(failed)?;
            let place = out.get_mut(at..at + text.len()).ok_or_else(failed)?;
            place.copy_from_slice(&text);
            at += text.len();
            each(Some(text.len() as u64));
            Ok(())
        })
    }
}

/// Numbers, as many in each row; zeros for a null row.
#[derive(Debug)]
struct Numbers(FieldOf);

impl Rendered for Numbers {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.may_work()?;
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let slots = self.0.field().and_then(slots).unwrap_or(1);
        let width = (self.0.width * slots).max(1);
        out.fill(0);
        let mut pieces = Pieces { part, out };
        let rows = pieces.part.start / width..pieces.part.end.div_ceil(width);
        self.0.each_row(reader, &memory, rows, &mut |row, values| {
            pieces.take(row * width, values?.unwrap_or_default());
            Ok(())
        })
    }
}

/// Which rows are null.
#[derive(Debug)]
struct Marks(Arc<Metadata>);

impl Rendered for Marks {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let mut marks = out.iter_mut();
        for first in part.clone().step_by(TOGETHER as usize) {
            wanted::check().map_err(SourceError::from)?;
            let bounds = self.0.bounds(reader, &(first..part.end.min(first + TOGETHER)))?;
            bounds.windows(2).zip(&mut marks).for_each(|(pair, mark)| *mark = u8::from(pair[0] == pair[1]));
        }
        Ok(())
    }
}

impl Missed for Marks {
    fn count(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let mut count = 0;
        for first in rows.clone().step_by(TOGETHER as usize) {
            wanted::check().map_err(SourceError::from)?;
            let bounds = self.0.bounds(reader, &(first..rows.end.min(first + TOGETHER)))?;
            count += bounds.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        }
        Ok(count)
    }

    fn view(&self) -> View {
        View::default().with_rendered(self.0.rows, Self(self.0.clone()))
    }
}

/// The texts of lists.
#[derive(Debug)]
struct Texts {
    /// Their stored bytes.
    data: View,
    value: Value,
    metadata: Arc<Metadata>,
}

impl Strings for Texts {
    fn size(&self, _: &ReadContext, texts: Range<u64>) -> Result<u64, Fault> {
        // A row that cannot be decoded counts as one text, which may be longer than all metadata.
        let stored = (texts.end - texts.start).saturating_mul(self.value.width());
        Ok(stored.min(self.metadata.length()).saturating_mul(self.value.growth()))
    }

    fn fill(
        &self,
        reader: &ReadContext,
        texts: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let width = self.value.width();
        let many = (limits::PIECE as u64 / width.max(1)).max(1);
        let mut at = 0;
        for first in texts.clone().step_by(many as usize) {
            let count = many.min(texts.end - first);
            // A text that is longer than all metadata is that of a row that cannot be decoded.
            let length = if width > self.metadata.length() { 1 } else { count * width };
            let stored = self.data.copy_at(reader, first * width, length)?;
            for stored in stored.chunks_exact(width.max(1) as usize) {
                let key = &self.metadata.key;
                let failed = || Fault::refused(format!("{key}: a text is not in the encoding that its schema states"));
                let text = self.value.text(stored).ok_or_else(failed)?;
                out.get_mut(at..at + text.len()).ok_or_else(failed)?.copy_from_slice(&text);
                at += text.len();
                each(Some(text.len() as u64));
            }
        }
        Ok(())
    }
}
