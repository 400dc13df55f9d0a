//! Rows of a Parquet file for people, wherever the file comes from. Any rows cost the pages that they are in.

use std::{ops::Range, sync::Arc};

use super::{
    Cell, Cells, Text,
    columns::{Columns, Page, Slot},
};
use crate::{
    cache::Reservation,
    format::{
        DType, DateUnit, TimeUnit,
        parquet::{Form, Leaf, Physical, Values},
    },
    source::Source,
    view::{Fault, ReadContext},
};

/// Day 0 of Unix in the count of days of the old time stamps (`INT96`).
const EPOCH: i128 = 2_440_588;

/// A Parquet file as a table. Its columns are the leaves of the schema.
pub(crate) struct TableFile {
    columns: Columns,
    _room: Reservation,
}

/// A column.
#[derive(Debug)]
pub(crate) struct FileColumn {
    pub(crate) name: String,
    /// What its values are.
    pub(crate) kind: String,
    /// Whether each row has a number.
    pub(crate) is_numeric: bool,
}

impl TableFile {
    /// Reads the footer of a file. `name` is its name in messages. The context's number in the cache must be that of no
    /// container.
    ///
    /// # Errors
    /// [`Fault`] if it is no Parquet file, or cannot be read.
    pub(crate) fn open(reader: &ReadContext, source: Arc<dyn Source>, name: &str) -> Result<Self, Fault> {
        let (columns, room) = Columns::open(reader, source, name, 0)?;
        Ok(Self { columns, _room: room })
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.columns.file().rows
    }

    /// Returns the number of columns.
    pub(crate) fn width(&self) -> usize {
        self.columns.file().leaves.len()
    }

    /// Returns what is known of a column.
    pub(crate) fn column(&self, number: usize) -> Option<FileColumn> {
        let leaf = self.columns.file().leaves.get(number)?;
        let name = match (leaf.form, &*leaf.path) {
            // The other names are those of the parts of a list.
            (Form::List, [name, ..]) => name.to_string(),
            (_, path) => path.join("."),
        };
        let kind = match leaf.values {
            Values::Numbers(dtype) => leaf.narrow.unwrap_or(dtype).name().into_owned(),
            Values::Times(base) => format!("time{}", DateUnit::one(base)),
            Values::Dates(base) => {
                let name = DType::Date(DateUnit::one(base)).name();
                if leaf.is_utc { format!("UTC {name}") } else { name.into_owned() }
            }
            Values::Decimals(_) => "decimal".into(),
            Values::Texts => "text".into(),
            Values::Bytes | Values::Other => match leaf.physical {
                Physical::Int32 => "i32".into(),
                Physical::Int64 => "i64".into(),
                Physical::Int96 => "date".into(),
                _ => "bytes".into(),
            },
        };
        let is_numeric = !leaf.has_lists() && matches!(leaf.values, Values::Numbers(_) | Values::Decimals(_));
        // The values of lists within lists are shown as one list.
        let flat = if leaf.depth() > 1 { ", flat" } else { "" };
        Some(FileColumn { name, kind: kind + &"[]".repeat(leaf.depth()) + flat, is_numeric })
    }

    /// Returns some rows of a column, at most `values` values of each and `bytes` bytes of a value. Memory for them is
    /// not reserved.
    ///
    /// # Errors
    /// [`Fault`] if one of them cannot be read.
    pub(crate) fn read(
        &self,
        reader: &ReadContext,
        column: usize,
        rows: Range<u64>,
        values: usize,
        bytes: usize,
    ) -> Result<Vec<Cells>, Fault> {
        let leaf = self.columns.file().leaves.get(column).ok_or_else(|| Fault::refused("there is no such column"))?;
        self.columns.check(column, &rows).map_err(|reason| Fault::refused(&reason))?;
        let mut found: Vec<Cells> = Vec::new();
        self.columns.lists(reader, column, rows.clone(), &mut |row, part| {
            let at = row.saturating_sub(rows.start) as usize;
            if found.len() <= at {
                let count = leaf.has_lists().then_some(0);
                found.resize_with(at + 1, || Cells { count, elements: Vec::new() });
            }
            let Some(found) = found.get_mut(at) else { return Ok(()) };
            let has_one = part.slots.len() == 1;
            let first = part.page.slot(part.slots.start);
            if has_one && (first == Slot::NullList || first == Slot::Null && !leaf.has_lists()) {
                found.count = None;
                return Ok(());
            }
            found.count = found.count.map(|count| count + part.slots.len() as u64);
            let room = values.saturating_sub(found.elements.len());
            for slot in part.slots.take(room) {
                let is_there = part.page.slot(slot) == Slot::Value;
                found.elements.push(is_there.then(|| value(leaf, part.page, slot, bytes)));
            }
            Ok(())
        })?;
        Ok(found)
    }
}

fn value(leaf: &Leaf, page: &Page, slot: usize, most: usize) -> Cell {
    let Some(width) = leaf.physical.width() else {
        let bytes = page.bytes(slot);
        if let Values::Decimals(scale) = leaf.values
            && let Some(number) = big_endian(bytes)
        {
            return decimal(number, scale);
        }
        let text = front(bytes, most);
        return if leaf.values == Values::Texts { Cell::Text(text) } else { Cell::Bytes(text) };
    };
    let bytes = page.numbers(slot..slot + 1, width);
    // Numbers of 4 or 8 bytes are little-endian.
    let integer = || match bytes.first_chunk() {
        Some(bytes) => i64::from_le_bytes(*bytes),
        None => bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes).into()),
    };
    match (leaf.values, leaf.physical) {
        (Values::Numbers(dtype), _) => Cell::Number(dtype, bytes.to_vec()),
        (Values::Dates(base), _) => date(integer(), base),
        (Values::Times(base), _) if let Some(text) = time_of_day(integer(), base) => Cell::Written(text),
        (Values::Decimals(scale), Physical::Int32 | Physical::Int64) => decimal(integer().into(), scale),
        (Values::Decimals(scale), _) if let Some(number) = big_endian(bytes) => decimal(number, scale),
        (_, Physical::Int32 | Physical::Int64) => Cell::Number(DType::I64, integer().to_le_bytes().to_vec()),
        (_, Physical::Int96) => old_date(bytes),
        _ => Cell::Bytes(front(bytes, most)),
    }
}

fn front(bytes: &[u8], most: usize) -> Text {
    Text { bytes: bytes.get(..most).unwrap_or(bytes).to_vec(), length: bytes.len() as u64 }
}

fn date(number: i64, base: TimeUnit) -> Cell {
    Cell::Number(DType::Date(DateUnit::one(base)), number.to_le_bytes().to_vec())
}

/// Returns a time of day as text, as finely as its unit is; `None` if a day has no such time.
fn time_of_day(number: i64, base: TimeUnit) -> Option<String> {
    let digits = match base {
        TimeUnit::Milli => 3,
        TimeUnit::Micro => 6,
        _ => 9,
    };
    let one = 10i64.pow(digits as u32);
    let (second, part) = (number.div_euclid(one), number.rem_euclid(one));
    let (hour, minute) = (second / 3600, second / 60 % 60);
    (0..86_400).contains(&second).then(|| format!("{hour:02}:{minute:02}:{:02}.{part:0digits$}", second % 60))
}

/// Returns a time stamp of the old kind: the nanoseconds of a day, then the day.
fn old_date(bytes: &[u8]) -> Cell {
    let (nanos, day) = bytes.split_at(bytes.len().min(8));
    let nanos = nanos.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
    let day = day.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let all = (i128::from(day) - EPOCH) * 86_400_000_000_000 + i128::from(nanos);
    match i64::try_from(all) {
        Ok(nanos) => date(nanos, TimeUnit::Nano),
        Err(_) => date(i64::try_from(all.div_euclid(1000)).unwrap_or(i64::MIN), TimeUnit::Micro),
    }
}

/// Returns a signed number; `None` if it has more than 16 bytes.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first().is_some_and(|first| *first >= 0x80) { -1 } else { 0 };
    (bytes.len() <= 16).then(|| bytes.iter().fold(sign, |number, byte| number << 8 | i128::from(*byte)))
}

/// Writes a number of which the last `scale` digits are behind the point.
fn decimal(number: i128, scale: u32) -> Cell {
    let scale = scale as usize;
    let digits = format!("{:0width$}", number.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if number < 0 { "-" } else { "" };
    let text = if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") };
    Cell::Written(text)
}
