//! What `shardfs info` says of a table: its columns as lines that a person reads.

use std::io::Write;

use super::lines::{self, cell};
use crate::tree::overview::{Column, Key, Table};

/// Most characters of a name.
const LONGEST: usize = 48;

const HEADINGS: [&str; 9] = ["column", "type", "keys", "blocks", "rows/block", "compression", "stored", "size", ""];
/// Columns of numbers.
const NUMBERS: [usize; 5] = [2, 3, 4, 6, 7];

/// Prints a line for each value of the front matter, then a line for each column; for the folder of a column only for
/// that column.
pub(super) fn describe(out: &mut impl Write, format: &str, table: &Table, only: Option<&str>) -> anyhow::Result<()> {
    let Table { version, compatible_version, rows, column_count, columns, left_out } = table;
    if only.is_none() {
        let compatible = match compatible_version {
            compatible if compatible == version => String::new(),
            compatible => format!(" (readers from {compatible} on)"),
        };
        writeln!(
            out,
            "  format: {format}\n  version: {version}{compatible}\n  rows: {rows}\n  columns: {column_count}"
        )?;
    }
    let is_wanted = |column: &&Column| only.is_none_or(|only| !column.hidden && column.path == only);
    if columns.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = columns.iter().filter(is_wanted).map(row).collect();
    lines::table(out, &HEADINGS, &rows, &NUMBERS)?;
    if *left_out > 0 && only.is_none() {
        writeln!(out, "  ... and {left_out} columns more")?;
    }
    Ok(())
}

fn row(column: &Column) -> Vec<String> {
    let keys = match column.key {
        Some(Key { count: 0, .. }) => "open".into(),
        Some(Key { count, min: 0, .. }) => count.to_string(),
        Some(Key { count, min, .. }) => format!("{count} from {min}"),
        None => String::new(),
    };
    let unknown = || format!("unknown ({})", column.compression_kind);
    let mut notes = Vec::new();
    if column.hidden {
        notes.push("hidden".to_owned());
    }
    notes.extend(column.unusable.as_ref().map(|(status, reason)| format!("{status}: {reason}")));
    vec![
        lines::shown(&column.name, LONGEST),
        column.kind.clone(),
        keys,
        column.blocks.to_string(),
        column.rows_per_block.to_string(),
        column.compression.map_or_else(unknown, str::to_owned),
        cell(column.stored_size),
        cell(column.size),
        notes.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table() {
        let (blocks, rows_per_block) = (1, 9);
        let label = Column {
            name: "label".into(),
            kind: "u32 key".into(),
            key: Some(Key { count: 3, min: 0, contiguous: true }),
            compression: Some("deflate"),
            stored_size: Some(20),
            size: Some(36),
            hidden: true,
            blocks,
            rows_per_block,
            ..Column::default()
        };
        let odd = Column {
            name: "odd".into(),
            kind: "Fancy".into(),
            compression: Some("none"),
            stored_size: Some(7),
            size: Some(7),
            unusable: Some(("dead", "codec 'Fancy' is not known".into())),
            blocks,
            rows_per_block,
            ..Column::default()
        };
        let table = Table {
            version: "1.1.1.6".into(),
            compatible_version: "1.1.1.6".into(),
            rows: 9,
            column_count: 2,
            columns: vec![label, odd],
            left_out: 0,
        };
        let mut out = Vec::new();
        describe(&mut out, "toy", &table, None).unwrap();
        let expected = "  format: toy
  version: 1.1.1.6
  rows: 9
  columns: 2
  column  type     keys  blocks  rows/block  compression  stored  size
  label   u32 key     3       1           9  deflate          20    36  hidden
  odd     Fancy               1           9  none              7     7  dead: codec 'Fancy' is not known
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
