//! Rows and columns: of tables, of folders of arrays of one length, and of arrays.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{cells::Column, elements::Elements, folder, query::Query};
use crate::{
    limits,
    serve::http::paths,
    tree::{
        self,
        overview::{self, Contents, Overview},
    },
    volume::{self, Entry, Error},
};

/// Rows of one answer.
const ROWS: u64 = 200;
/// Columns of one answer.
const COLUMNS: u64 = 32;
/// Bytes of the cells of one answer. Columns after that have an error instead of cells.
const CELLS: usize = 1 << 20;
/// Entries of a folder that may be columns; a folder with more is no table.
const ENTRIES: usize = 256;
/// Bytes of the names of keys that are read.
const KEY_NAMES: u64 = 1 << 20;
/// Entries of a column's folder that are listed: the files of its values come before its blocks.
const FILES: usize = 16;

/// A table.
pub(super) struct Table {
    pub(super) rows: u64,
    columns: Columns,
}

/// The columns of a table.
enum Columns {
    /// Those of an array, which may be very many.
    Parts(Elements),
    Heads(Vec<Head>),
}

/// What is known of a column before it is opened.
#[derive(Clone)]
struct Head {
    name: String,
    kind: String,
    source: Source,
}

/// Where a column comes from.
#[derive(Clone)]
enum Source {
    /// A column of a container that is a table: its folder, by its path in it, and the file with the names of keys.
    Folder {
        container: Entry,
        path: String,
        is_key: bool,
        key_names: Option<String>,
    },
    Open(Column),
    /// Why there is nothing to show.
    Unusable(String),
}

impl Table {
    /// Returns the table of a folder or an array; `None` for everything else. `inside` is the folder's path in its
    /// container, and `overview` describes the container.
    ///
    /// # Errors
    /// Those of reading the container.
    pub(super) fn of(entry: &Entry, overview: Option<&Overview>, inside: &str) -> Result<Option<Self>, Error> {
        if let Some(array) = Elements::of(entry)? {
            return Ok(Some(Self { rows: array.rows, columns: Columns::Parts(array) }));
        }
        if is_stored(entry) {
            return Ok(Some(Self::of_stored(entry)?));
        }
        match overview {
            Some(Overview { contents: Contents::Table(table), .. }) if inside.is_empty() => {
                Ok(Some(Self::of_table(entry, table)))
            }
            Some(Overview { contents: Contents::Items { .. }, .. }) if entry.is_folder() => match table_beside(entry) {
                Some(file) => Ok(Some(Self::of_stored(&file)?)),
                None => Self::of_arrays(entry),
            },
            _ => Ok(None),
        }
    }

    /// Returns the table that a Parquet file is.
    ///
    /// # Errors
    /// If it is none, and those of reading it.
    pub(super) fn of_stored(file: &Entry) -> Result<Self, Error> {
        let table = Arc::new(volume::Table::open(file)?);
        let head = |(number, column): (usize, tree::FileColumn)| {
            let tree::FileColumn { name, kind, is_numeric } = column;
            let source = Source::Open(Column::Stored { table: table.clone(), number, is_numeric });
            Head { name, kind, source }
        };
        Ok(Self { rows: table.rows(), columns: Columns::Heads(table.columns().enumerate().map(head).collect()) })
    }

    fn of_table(container: &Entry, table: &overview::Table) -> Self {
        let head = |column: &overview::Column| {
            let source = match &column.unusable {
                Some((status, reason)) => Source::Unusable(format!("{status}: {reason}")),
                None => Source::Folder {
                    container: container.clone(),
                    path: column.path.clone(),
                    is_key: column.key.is_some(),
                    key_names: column.key_names.clone(),
                },
            };
            Head { name: column.name.clone(), kind: column.kind.clone(), source }
        };
        let shown = table.columns.iter().filter(|column| !column.hidden);
        Self { rows: table.rows, columns: Columns::Heads(shown.map(head).collect()) }
    }

    /// Returns the arrays of a folder as columns, if they are all of one length.
    fn of_arrays(folder: &Entry) -> Result<Option<Self>, Error> {
        let mut arrays = BTreeMap::new();
        let is_long = folder::first_rows(folder, ENTRIES + 1)?.len() > ENTRIES;
        for entry in folder.entries().take(if is_long { 0 } else { ENTRIES }) {
            let entry = entry?;
            let name = entry.name().to_string_lossy();
            if let Some(name) = name.strip_suffix(".npy")
                && let Some(array) = Elements::known(&entry)?
            {
                arrays.insert(name.to_owned(), array);
            }
        }
        let mut rows = None;
        let mut columns = Vec::new();
        for (name, array) in arrays {
            if array.shape.is_empty() || *rows.get_or_insert(array.rows) != array.rows {
                return Ok(None);
            }
            let axes = array.shape.get(1..).unwrap_or_default();
            let kind = if axes.is_empty() { String::new() } else { format!("[{}]", super::elements::shape_text(axes)) };
            let kind = format!("{}{kind}", array.dtype);
            columns.push(Head { name, kind, source: Source::Open(Column::Elements(array)) });
        }
        // A single column is better seen as an array.
        Ok(rows.filter(|_| columns.len() > 1).map(|rows| Self { rows, columns: Columns::Heads(columns) }))
    }

    /// Returns the number of columns.
    pub(super) fn width(&self) -> u64 {
        match &self.columns {
            Columns::Parts(array) => array.columns,
            Columns::Heads(heads) => heads.len() as u64,
        }
    }

    /// Returns the rows and columns that the query asks for, within limits: how many there are, the first row and column
    /// of the answer, and for each of its columns what is known of it and its cells. A missing value is `null`.
    pub(super) fn rows(&self, query: &Query) -> Value {
        let count = query.number("count").unwrap_or(50).clamp(1, ROWS);
        let from = query.number("from").unwrap_or(0).min(self.rows.saturating_sub(1));
        let count = count.min(self.rows - from.min(self.rows));
        let total = self.width();
        let column = query.number("column").unwrap_or(0).min(total.saturating_sub(1));
        let columns = query.number("columns").unwrap_or(COLUMNS).clamp(1, COLUMNS);
        let (mut heads, mut shown, mut bytes) = (Vec::new(), Vec::new(), 0);
        let range = column..total.min(column.saturating_add(columns));
        let asked: Vec<Head> = match &self.columns {
            Columns::Parts(array) => range.map(|number| Head::part(array, number)).collect(),
            Columns::Heads(heads) => heads.get(range.start as usize..range.end as usize).unwrap_or_default().to_vec(),
        };
        for head in asked {
            let opened = head.open();
            let (cells, numeric) = match &opened {
                _ if bytes > CELLS => (Err("there is no room for more text in one answer".to_owned()), false),
                Ok(column) => (column.cells(from, count).map_err(|error| error.to_string()), column.is_numeric()),
                Err(reason) => (Err(reason.clone()), false),
            };
            heads.push(json!({
                "name": head.name,
                "kind": head.kind,
                "numeric": numeric,
                // The address of the page of the column, if it has one.
                "page": head.page(),
                // Why it has no cells.
                "error": cells.as_ref().err(),
            }));
            let cells = cells.unwrap_or_default();
            bytes += cells.iter().flatten().map(String::len).sum::<usize>();
            shown.push(cells);
        }
        json!({
            "rows": self.rows,
            "from": from,
            "columns": total,
            "column": column,
            "heads": heads,
            "cells": shown,
        })
    }
}

impl Head {
    /// A column of an array: its name is the indexes along the axes behind the first.
    fn part(array: &Elements, number: u64) -> Self {
        let (mut rest, mut parts) = (number, Vec::new());
        for axis in array.shape.iter().skip(1).rev() {
            parts.push((rest % axis.max(&1)).to_string());
            rest /= axis.max(&1);
        }
        parts.reverse();
        let name = if parts.is_empty() { "value".into() } else { parts.join(",") };
        let source = Source::Open(Column::Part(array.clone(), number));
        Self { name, kind: array.dtype.name().into_owned(), source }
    }

    fn page(&self) -> Option<String> {
        match &self.source {
            Source::Folder { container, path, .. } => {
                Some(format!("/files/{}/", paths::encode(&container.path().join(path))))
            }
            Source::Open(Column::Elements(array)) => Some(super::address(&array.entry)),
            Source::Open(_) | Source::Unusable(_) => None,
        }
    }

    /// Opens the files of the column, or returns why that failed.
    fn open(&self) -> Result<Column, String> {
        match &self.source {
            Source::Unusable(reason) => Err(reason.clone()),
            Source::Open(column) => Ok(column.clone()),
            Source::Folder { container, path, is_key, key_names } => {
                let folder = container.get(path).map_err(|error| error.to_string())?;
                let names = || key_names.as_ref().and_then(|path| names_of_keys(container, path)).unwrap_or_default();
                column(&folder, is_key.then_some(names))
            }
        }
    }
}

/// Returns the file in which a container shows one of its folders as a table.
fn table_beside(folder: &Entry) -> Option<Entry> {
    let mut path = folder.path().to_owned().into_os_string();
    path.push(".parquet");
    folder.volume().get(path).ok().filter(|file| file.is_inside() && file.is_file())
}

/// Returns whether a file is named like a Parquet file.
pub(super) fn is_stored(entry: &Entry) -> bool {
    let suffix = entry.path().extension().unwrap_or_default();
    entry.is_file() && ["parquet", "pq"].iter().any(|known| suffix.eq_ignore_ascii_case(known))
}

/// Opens a column by its folder. `key_names` are the names of its values, if it is one of keys.
fn column(folder: &Entry, key_names: Option<impl FnOnce() -> Vec<String>>) -> Result<Column, String> {
    let files = folder::first_rows(folder, FILES).map_err(|error| error.to_string())?;
    let has = |name: &str| files.iter().any(|row| row.name() == name);
    // Rows that differ in length: texts, and vectors of any number of elements.
    if has("offsets.npy") {
        return Ok(Column::Rows(folder.clone()));
    }
    if !has("values.npy") {
        return Err("its values can't be shown; the folder has its blocks".into());
    }
    let values = folder.get("values.npy").and_then(|file| Elements::of(&file)).map_err(|error| error.to_string())?;
    let values = values.ok_or("values.npy: not an array")?;
    Ok(match key_names {
        Some(names) if values.columns == 1 => Column::Key(values, names()),
        _ => Column::Elements(values),
    })
}

/// Returns what the values of a key column stand for; nothing if the file does not say, or the names are too long.
fn names_of_keys(container: &Entry, path: &str) -> Option<Vec<String>> {
    let file = container.get(path).ok().filter(|file| file.size() <= KEY_NAMES)?;
    let json = file.read().ok()?;
    // A name takes at least its quotes and a comma; an empty one takes 24 bytes, in a list that doubles.
    let _room = file.vfs().cache().reserve(file.size() * limits::JSON_ROOM).ok()?;
    serde_json::from_slice(&json).ok()
}
