//! A column of a table as texts, row by row. The cost of a cell does not depend on where its row is.

use std::sync::Arc;

use super::{elements::Elements, numbers};
use crate::{
    tree,
    volume::{self, Entry, Error, ErrorKind},
};

/// Bytes of one cell's text that are shown.
const LONGEST: u64 = 400;
/// Elements of a row with several of them that are shown.
const ELEMENTS: u64 = 12;

/// What a cell shows; `None` is a missing value.
pub(super) type Cell = Option<String>;

/// A column, as the files of the tree give it.
#[derive(Clone)]
pub(super) enum Column {
    /// One element a row, or several.
    Elements(Elements),
    /// One column of an array of several axes.
    Part(Elements, u64),
    /// Numbers that stand for names; 0 is missing.
    Key(Elements, Vec<String>),
    /// The folder of a column of an IDV file whose rows differ in length: only blocks with the wanted rows are read.
    Rows(Entry),
    /// A column of a Parquet file, by its number.
    Stored { table: Arc<volume::Table>, number: usize, is_numeric: bool },
}

impl Column {
    /// Returns the cells of `count` rows from row `from` on, all of which the table must have.
    ///
    /// # Errors
    /// Those of reading the files.
    pub(super) fn cells(&self, from: u64, count: u64) -> Result<Vec<Cell>, Error> {
        match self {
            Self::Elements(array) if array.columns == 1 => {
                let bytes = array.read(from, count)?;
                let elements = bytes.chunks_exact(array.width());
                Ok(elements.map(|element| Some(numbers::text(&array.dtype, element))).collect())
            }
            Self::Elements(array) => (from..from + count)
                .map(|row| Ok(Some(list(array, row.saturating_mul(array.columns), array.columns)?)))
                .collect(),
            Self::Part(array, column) => (from..from + count)
                .map(|row| {
                    let element = array.read_part(row, *column, 1)?;
                    Ok(Some(numbers::text(&array.dtype, &element)))
                })
                .collect(),
            Self::Key(array, names) => {
                let bytes = array.read(from, count)?;
                let keys = bytes.chunks_exact(array.width()).map(|element| numbers::value(&array.dtype, element));
                Ok(keys.map(|key| key_text(key, names)).collect())
            }
            Self::Rows(folder) => {
                let rows = folder.rows(from..from + count, ELEMENTS, LONGEST)?;
                let rows = rows.ok_or_else(|| {
                    let reason = format!("{}: its values can't be shown", folder.path().display());
                    Error::new(ErrorKind::NotAnArray, reason)
                })?;
                Ok(rows.into_iter().map(row).collect())
            }
            Self::Stored { table, number, .. } => {
                let rows = table.read(*number, from..from + count, ELEMENTS as usize, LONGEST as usize)?;
                Ok(rows.into_iter().map(row).collect())
            }
        }
    }

    /// Returns whether cells are aligned to the right.
    pub(super) fn is_numeric(&self) -> bool {
        match self {
            Self::Elements(array) => array.columns == 1,
            Self::Stored { is_numeric, .. } => *is_numeric,
            Self::Part(..) => true,
            Self::Key(..) | Self::Rows(_) => false,
        }
    }
}

fn key_text(key: f64, names: &[String]) -> Cell {
    if key < 1.0 {
        return None;
    }
    Some(names.get(key as usize - 1).map_or_else(|| format!("{key}"), |name| format!("{key} · {name}")))
}

/// Formats the first elements of a range as a list.
fn list(array: &Elements, from: u64, count: u64) -> Result<String, Error> {
    let bytes = array.read(from, count.min(ELEMENTS))?;
    let elements = bytes.chunks_exact(array.width());
    Ok(in_brackets(elements.map(|element| numbers::text(&array.dtype, element)).collect(), count))
}

/// Formats the first of `count` parts as a list.
fn in_brackets(mut parts: Vec<String>, count: u64) -> String {
    if count > ELEMENTS {
        parts.push(format!("… {} in all", super::html::grouped(count)));
    }
    format!("[{}]", parts.join(", "))
}

/// Returns the front of `whole` bytes as text; `None` if they are no text.
pub(super) fn text(bytes: &[u8], whole: u64) -> Option<String> {
    shortened(bytes, whole).filter(|text| !text.chars().any(|c| c.is_control() && !c.is_whitespace()))
}

/// Formats the front of `whole` bytes as text, or as digits if they are no text.
fn text_or_digits(bytes: &[u8], whole: u64) -> String {
    match text(bytes, whole) {
        Some(text) => text,
        None => {
            let digits: String = bytes.iter().take(24).map(|byte| format!("{byte:02x}")).collect();
            let more = if whole > 24 { format!("… {} bytes", super::html::grouped(whole)) } else { String::new() };
            format!("0x{digits}{more}")
        }
    }
}

/// Returns the cell of a row of a column of an IDV or Parquet file.
fn row(tree::Cells { count, elements }: tree::Cells) -> Cell {
    use tree::Cell::{Bytes, Number, Text, Written};
    let mut elements = elements.into_iter().map(|element| {
        element.map(|element| match element {
            Number(dtype, bytes) => numbers::text(&dtype.into(), &bytes),
            Text(text) if count.is_some() => format!("“{}”", lossy(&text.bytes, text.length)),
            Text(text) => lossy(&text.bytes, text.length),
            Bytes(text) => text_or_digits(&text.bytes, text.length),
            Written(text) => text,
        })
    });
    match count {
        None => elements.next().flatten(),
        Some(count) => {
            Some(in_brackets(elements.map(|element| element.unwrap_or_else(|| "missing".into())).collect(), count))
        }
    }
}

/// Returns bytes as text, which may be cut within a character; `None` if they are not UTF-8.
fn shortened(bytes: &[u8], whole: u64) -> Option<String> {
    let is_cut = (bytes.len() as u64) < whole;
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(if is_cut { format!("{text}…") } else { text.to_owned() }),
        Err(error) if is_cut && error.error_len().is_none() => {
            Some(String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned() + "…")
        }
        Err(_) => None,
    }
}

/// Returns the front of a text of `whole` bytes, with replacement characters for what is not UTF-8.
fn lossy(bytes: &[u8], whole: u64) -> String {
    shortened(bytes, whole).unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned())
}
