//! Tables of a container as Parquet files (`docs/TREE.md`, section 7): the part that all formats share.
//!
//! A table is laid out when its size is first needed. `Container::is_table` lets `--no-tables` hide it.

use std::{collections::HashSet, ops::Range, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    ItemInfo,
    memory::{WorkingMemory, with_memory},
    names,
    rows::{FixedTexts, Padding, Rows},
};
use crate::{
    cache::{Key, Tag},
    format::{DType, DateUnit, Field, TimeUnit},
    limits,
    source::Memory,
    view::{
        Array, Fault, ReadContext, Rendered, View,
        parquet::{Column, Element, Missing, Parquet, Strings, Table},
    },
};

/// The suffix of their names.
pub(super) const SUFFIX: &str = ".parquet";

/// Bytes of memory that a column of a table takes, in addition to several times its texts.
pub(super) const COLUMN_MEMORY: u64 = 2048;

/// Description of a table in `container.json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Described {
    /// Its path in the container.
    pub(super) path: String,
    /// Number of rows, if it is known without reading the whole container.
    pub(super) rows: Option<u64>,
    pub(super) columns: Option<usize>,
    /// Columns that are left out, with reasons.
    pub(super) left_out: Vec<LeftOut>,
    /// Number of further columns that are left out because there are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) left_out_behind: u64,
}

impl Described {
    /// Returns the description of a table at a path. If its columns are damaged, their number is not known.
    ///
    /// # Errors
    /// Those of the columns that are no damage.
    pub(super) fn of(path: String, columns: Result<TableColumns, Fault>) -> Result<Self, Fault> {
        let (rows, count, left_out) = match columns {
            Ok(columns) => (Some(columns.rows), Some(columns.columns.len()), columns.left_out),
            Err(fault) if fault.error.is_damage() => (None, None, Vec::new()),
            Err(fault) => return Err(fault),
        };
        Ok(Self { path, rows, columns: count, left_out, left_out_behind: 0 })
    }
}

/// Returns what follows the items in `container.json`: the tables, if there are any.
pub(super) fn described_tables(tables: Vec<Described>) -> Map<String, Value> {
    let mut back = Map::new();
    if !tables.is_empty() {
        back.insert("tables".into(), json!(tables));
    }
    back
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A column that is left out of a table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LeftOut {
    pub(super) column: String,
    pub(super) reason: String,
}

/// Names of a table's columns: the stored names, except those that paths cannot have either.
#[derive(Debug, Default)]
pub(super) struct ColumnNames {
    taken: HashSet<String>,
}

impl ColumnNames {
    /// Returns a name for a column that no other column gets.
    pub(super) fn name(&mut self, stored: &[u8]) -> String {
        let plain = std::str::from_utf8(stored)
            .ok()
            .filter(|name| !name.is_empty() && name.len() <= names::NAME_MAX && !name.chars().any(char::is_control));
        let mut name = plain.map_or_else(|| names::file(stored, "", 1), ToOwned::to_owned);
        for number in 2.. {
            if self.taken.insert(name.clone()) {
                break;
            }
            name = names::file(stored, "", number);
        }
        name
    }
}

/// The columns of a table, and those that are left out.
#[derive(Default)]
pub(super) struct TableColumns {
    pub(super) rows: u64,
    pub(super) columns: Vec<Column>,
    pub(super) left_out: Vec<LeftOut>,
    names: ColumnNames,
}

impl TableColumns {
    /// Returns a table without columns.
    pub(super) fn new(rows: u64) -> Self {
        Self { rows, ..Self::default() }
    }

    /// Adds a column. `make` gets its name in the table, and returns why it cannot be a column.
    ///
    /// # Errors
    /// Those of `make`, and if there is no memory.
    pub(super) fn add(
        &mut self,
        memory: &dyn Memory,
        stored: &[u8],
        make: impl FnOnce(String) -> Result<Result<Column, String>, Fault>,
    ) -> Result<(), Fault> {
        memory.reserve(COLUMN_MEMORY)?;
        let made = match self.columns.len() < limits::TABLE_COLUMNS {
            true => make(self.names.name(stored))?,
            false => Err("there are too many columns".into()),
        };
        match made {
            Ok(column) => self.columns.push(column),
            Err(reason) => {
                let column = String::from_utf8_lossy(stored).into_owned();
                self.left_out.push(LeftOut { column, reason });
            }
        }
        Ok(())
    }

    /// Lays out the table. `format` is the name of the container's format.
    ///
    /// # Errors
    /// Those of [`Parquet::new`], and if there are no columns.
    pub(super) fn table(
        self,
        reader: &ReadContext,
        number: u64,
        format: &str,
        memory: &dyn Memory,
    ) -> Result<Parquet, Fault> {
        if self.columns.is_empty() {
            return Err(Fault::refused("a table without columns"));
        }
        let about = Map::from_iter([("format".into(), Value::from(format))]);
        Parquet::new(reader, Table { number, rows: self.rows, unit: 1, columns: self.columns, about }, memory)
    }
}

/// Returns rows as a column of texts, or of other bytes. Those for which a byte of `mask` is not 0 are missing.
///
/// # Errors
/// Why it cannot be a column.
pub(super) fn text_column(
    name: String,
    rows: Arc<dyn Rows>,
    is_text: bool,
    mask: Option<View>,
) -> Result<Column, String> {
    // The sizes of pages take a walk over all texts.
    if rows.count() > limits::TEXT_ROWS {
        return Err(format!("it has more than {} texts", limits::TEXT_ROWS));
    }
    let is_nullable = mask.is_some();
    Ok(Column::strings(name, Arc::new(TextColumn { rows, mask }), is_text, is_nullable))
}

/// Rows of texts as a column.
#[derive(Debug)]
struct TextColumn {
    rows: Arc<dyn Rows>,
    /// A byte for each row, not 0 for one that is missing.
    mask: Option<View>,
}

impl Strings for TextColumn {
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let mut size = 0u64;
        self.rows.lengths(reader, &memory, rows, &mut |length| {
            size = size.saturating_add(length);
            Ok(())
        })?;
        Ok(size)
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let mask = match &self.mask {
            Some(mask) => Some(mask.copy_at(reader, rows.start, rows.end - rows.start)?),
            None => None,
        };
        let (mut rest, mut number) = (out, 0);
        self.rows.each(reader, &memory, rows, &mut |row| {
            let is_missing = mask.as_ref().is_some_and(|mask| mask.get(number).is_some_and(|mark| *mark != 0));
            number += 1;
            if is_missing {
                each(None);
                return Ok(());
            }
            let row = row.unwrap_or_default();
            let (here, after) = std::mem::take(&mut rest)
                .split_at_mut_checked(row.len())
                .ok_or_else(|| Fault::refused("a row has another length than stated"))?;
            here.copy_from_slice(row);
            rest = after;
            each(Some(row.len() as u64));
            Ok(())
        })
    }
}

/// Returns the column of an array whose first axis is the rows.
///
/// # Errors
/// Why it cannot be a column.
pub(super) fn array_column(name: &str, array: &Array) -> Result<Column, String> {
    let Some(dtype) = array.dtype.plain() else { return Err("its elements are records".into()) };
    let slots = slots(dtype, &array.shape)?;
    let column = Column::fixed(name.into(), Element::Of(dtype), slots, array.data.clone());
    let column = if let DType::Date(_) = dtype { column.with_missing(Missing::Least) } else { column };
    Ok(match array.shape.get(1..) {
        Some(axes) if axes.len() > 1 => column.with_about("shape", axes),
        _ => column,
    })
}

/// Returns whether a field of records can be a column.
pub(super) fn is_column(field: &Field) -> bool {
    match field.element.plain() {
        Some(DType::Bytes(_) | DType::Utf32(_)) => field.shape.is_empty(),
        Some(dtype) => slots(dtype, &[&[1], &*field.shape].concat()).is_ok(),
        None => false,
    }
}

/// Returns the fields of an array of records as columns. Texts of UTF-32 are strings, and other texts are bytes.
///
/// # Errors
/// If there is no memory.
pub(super) fn record_columns(array: &Array, memory: &dyn Memory) -> Result<TableColumns, Fault> {
    let (Some(record), [rows]) = (array.dtype.record(), &*array.shape) else { return Ok(TableColumns::default()) };
    let mut columns = TableColumns::new(*rows);
    for field in record.fields() {
        let (stride, width) = (array.dtype.size(), field.size());
        let values = FieldValues { records: array.data.clone(), stride, at: field.offset, width };
        let data = View::default().with_rendered(rows.saturating_mul(width), values);
        columns.add(memory, field.name.as_bytes(), |name| {
            let (padding, is_text) = match field.element.plain() {
                Some(DType::Bytes(_)) if field.shape.is_empty() => (Padding::Nuls, false),
                Some(DType::Utf32(_)) if field.shape.is_empty() => (Padding::Utf32, true),
                _ => {
                    let shape = [&[*rows], &*field.shape].concat();
                    return Ok(array_column(&name, &Array::new(field.element.clone(), shape, data)));
                }
            };
            Ok(text_column(name, Arc::new(FixedTexts::new(data, width, padding)), is_text, None))
        })?;
    }
    Ok(columns)
}

/// The values of one field of records.
#[derive(Debug)]
struct FieldValues {
    records: View,
    /// Bytes of a record.
    stride: u64,
    /// Where the field begins in a record, and its bytes.
    at: u64,
    width: u64,
}

impl Rendered for FieldValues {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        /// Bytes of records that are read at a time. Of longer records only the field is read.
        const TOGETHER: u64 = 64 << 10;
        let many = TOGETHER / self.stride.max(1);
        let (mut at, mut rest) = (part.start, out);
        while !rest.is_empty() {
            let (row, skip) = (at / self.width, at % self.width);
            let count = (skip + rest.len() as u64).div_ceil(self.width).min(many);
            let length = (count.max(1) * self.width - skip).min(rest.len() as u64);
            let (here, after) = std::mem::take(&mut rest).split_at_mut(length as usize);
            if count < 2 {
                self.records.fill_at(reader, row * self.stride + self.at + skip, here)?;
            } else {
                let records = self.records.copy_at(reader, row * self.stride, count * self.stride)?;
                let fields = records.chunks_exact(self.stride as usize).flat_map(|record| {
                    record.get(self.at as usize..(self.at + self.width) as usize).unwrap_or_default()
                });
                here.iter_mut().zip(fields.skip(skip as usize)).for_each(|(to, from)| *to = *from);
            }
            (at, rest) = (at + length, after);
        }
        Ok(())
    }
}

/// Returns the elements of a row of an array as a column; `None` if rows are not lists.
///
/// # Errors
/// Why it cannot be a column.
pub(super) fn slots(dtype: DType, shape: &[u64]) -> Result<Option<u64>, String> {
    if dtype == DType::DateTimeOffset {
        return Err("its elements are records".into());
    }
    let is_known = match dtype {
        DType::Date(unit) => Element::has_dates(unit),
        DType::Span(_) | DType::Bytes(_) | DType::Utf32(_) => false,
        dtype => dtype.parts().is_none() && dtype.small_float().is_none(),
    };
    if dtype == DType::Date(DateUnit::one(TimeUnit::Day)) {
        return Err("Parquet's dates have 32 bits".into());
    }
    if !is_known {
        return Err(format!("Parquet has no type for {dtype}"));
    }
    match shape.get(1..) {
        None => Err("it has no rows".into()),
        Some([]) => Ok(None),
        Some(axes) => match axes.iter().try_fold(1u64, |slots, axis| slots.checked_mul(*axis)) {
            Some(0) => Err("its rows are empty".into()),
            Some(slots) if slots <= limits::TABLE_LIST => Ok(Some(slots)),
            _ => Err(format!("its rows have more than {} elements", limits::TABLE_LIST)),
        },
    }
}

/// Returns the table with a number. If it is not laid out yet, `make` lays it out.
///
/// # Errors
/// Those of `make`; `WouldBlock` if it would have to be laid out for a caller that does not wait.
pub(super) fn laid_out(
    reader: &ReadContext,
    number: u64,
    mut make: impl FnMut(&WorkingMemory<'_>) -> Result<Parquet, Fault>,
) -> Result<Arc<Parquet>, Fault> {
    reader.cache.parsed_or_make(Key::new(reader.container, Tag::Table, number, 0), || {
        reader.may_work()?;
        // Without a lock, because lengths and keys may have to be read from blocks. If two threads do it at once,
        // the first result is kept.
        with_memory(&reader.cache, |memory| {
            memory.hold();
            let made = make(&memory)?;
            let usage = made.memory_usage() as u64;
            let room = memory.keep(usage)?;
            Ok((made, room))
        })
    })
}

/// Returns the description of a table as an item: its rows and columns.
pub(super) fn item_info(table: &Parquet) -> ItemInfo {
    ItemInfo { shape: Some(table.shape().to_vec()), ..ItemInfo::default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{
        cache::{Cache, Verify},
        format::{ElementType, Record},
        source::Unlimited,
    };

    #[test]
    fn fields_are_read_from_any_byte_to_any_other() {
        // Of the longer records, only the field is read.
        for (rows, padding) in [(5000u64, 7), (3, 40_000)] {
            let fields = vec![Field::new("id", DType::U32), Field::of_shape("rest", DType::U8, &[padding])];
            let record = Record::new(fields).unwrap();
            let mut bytes = Vec::new();
            let mut ids: Vec<u8> = Vec::new();
            for row in 0..rows as u32 {
                ids.extend((row * 65537).to_le_bytes());
                bytes.extend((row * 65537).to_le_bytes());
                bytes.resize(bytes.len() + padding as usize, 0xff);
            }
            let reader = ReadContext::new(Arc::new(bytes), Cache::new(1 << 20, Verify::Lazy), 0);
            let size = rows * (4 + padding);
            let array = Array::new(ElementType::Record(record), [rows], View::stored(0..size));
            let columns = record_columns(&array, &Unlimited).unwrap();
            // The rest has too many elements to be a list in the second case.
            assert_eq!((columns.columns.len(), columns.left_out.len()), if rows > 3 { (2, 0) } else { (1, 1) });
            let view = View::default()
                .with_rendered(4 * rows, FieldValues { records: array.data, stride: 4 + padding, at: 0, width: 4 });
            for (start, end) in [(0, 4 * rows), (1, 4 * rows - 1), (3, 5), (4, 8), (2, 3), (4 * rows - 3, 4 * rows)] {
                let found = view.copy_at(&reader, start, end - start).unwrap();
                assert_eq!(*found, ids[start as usize..end as usize], "{start}..{end}");
            }
        }
    }

    #[test]
    fn texts_that_are_too_many_to_walk_over_are_no_column() {
        let many = FixedTexts::new(View::stored(0..2 * limits::TEXT_ROWS + 2), 2, Padding::Nuls);
        assert!(text_column("a".into(), Arc::new(many), true, None).unwrap_err().contains("100000000"));
    }

    #[test]
    fn columns_are_named_as_stored_where_that_can_be() {
        let mut names = ColumnNames::default();
        let stored: [&[u8]; 9] = [b"a", b"a", b"", b"x/y", b"A", b"\xff", b"two\nlines", b"", b"50%"];
        let expected = ["a", "a%_2", "%empty", "x/y", "A", "%FF", "two%0Alines", "%empty%_2", "50%"];
        assert_eq!(stored.map(|name| names.name(name)), expected);
        assert_eq!(names.name(&[b'x'; 256]).len(), 255);
    }
}
