//! Tables of a container as Parquet files (`docs/TREE.md`, section 7): the part that all formats share.
//!
//! A table is laid out when its size is first needed. `Container::is_table` lets `--no-tables` hide it.

use std::{collections::HashSet, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    ItemInfo,
    memory::{WorkingMemory, with_memory},
    names,
};
use crate::{
    cache::{Key, Tag},
    format::DType,
    limits,
    view::{
        Array, Fault, ReadContext,
        parquet::{Column, Element, Missing, Parquet},
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
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_as_stored_where_that_can_be() {
        let mut names = ColumnNames::default();
        let stored: [&[u8]; 9] = [b"a", b"a", b"", b"x/y", b"A", b"\xff", b"two\nlines", b"", b"50%"];
        let expected = ["a", "a%_2", "%empty", "x/y", "A", "%FF", "two%0Alines", "%empty%_2", "50%"];
        assert_eq!(stored.map(|name| names.name(name)), expected);
        assert_eq!(names.name(&[b'x'; 256]).len(), 255);
    }
}
