//! What `shardfs info` says of an IDV file: its columns as a table that a person reads.

use std::io::Write;

use serde_json::Value;

/// Where a name is cut.
const LONGEST: usize = 48;

const HEADINGS: [&str; 9] = ["column", "type", "keys", "blocks", "rows/block", "compression", "stored", "size", ""];
/// Those that stand above numbers.
const NUMBERS: [usize; 5] = [2, 3, 4, 6, 7];

/// The front matter a line each, then a line for each column.
pub(super) fn describe(out: &mut impl Write, description: &Value) -> anyhow::Result<()> {
    let text = |key: &str| plain(&description[key]);
    let compatible = match text("compatible_version") {
        compatible if compatible == text("version") => String::new(),
        compatible => format!(" (readers from {compatible} on)"),
    };
    writeln!(out, "  idv {}{compatible}: {} rows, {} columns", text("version"), text("rows"), text("columns"))?;
    let items = description["items"].as_array().map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return Ok(());
    }
    let headings = HEADINGS.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(headings).chain(items.iter().map(row)).collect();
    super::lines::table(out, &rows, &NUMBERS)?;
    if let Some(left_out) = description["columns_left_out"].as_u64() {
        writeln!(out, "  ... and {left_out} columns more")?;
    }
    Ok(())
}

fn row(item: &Value) -> Vec<String> {
    let text = |key: &str| plain(&item[key]);
    let kind = match &item["type"] {
        Value::String(kind) => kind.clone(),
        _ => text("codec"),
    };
    let keys = match (item["key"]["count"].as_u64(), item["key"]["min"].as_u64()) {
        (Some(0), _) => "open".into(),
        (Some(count), Some(0) | None) => count.to_string(),
        (Some(count), Some(min)) => format!("{count} from {min}"),
        (None, _) => String::new(),
    };
    let compression = match item["compression"].as_str() {
        Some("unknown") => format!("unknown ({})", text("compression_kind")),
        _ => text("compression"),
    };
    let mut notes = Vec::new();
    if item["hidden"] == true {
        notes.push("hidden".to_owned());
    }
    if item["status"] != "ok" {
        notes.push(format!("{}: {}", text("status"), text("reason")));
    }
    vec![
        super::lines::shown(&text("name"), LONGEST),
        kind,
        keys,
        text("blocks"),
        text("rows_per_block"),
        compression,
        text("stored_size"),
        text("size"),
        notes.join(", "),
    ]
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table() {
        let description = json!({
            "version": "1.1.1.6", "compatible_version": "1.1.1.6", "rows": 9, "columns": 2,
            "items": [
                {"name": "label", "type": "u32 key", "key": {"count": 3, "min": 0}, "blocks": 1, "rows_per_block": 9,
                 "compression": "deflate", "stored_size": 20, "size": 36, "hidden": true, "status": "ok"},
                {"name": "odd", "type": null, "codec": "Fancy", "key": null, "blocks": 1, "rows_per_block": 9,
                 "compression": "none", "stored_size": 7, "size": 7, "hidden": false, "status": "dead",
                 "reason": "codec 'Fancy' is not known"},
            ],
        });
        let mut out = Vec::new();
        describe(&mut out, &description).unwrap();
        let expected = "  idv 1.1.1.6: 9 rows, 2 columns
  column  type     keys  blocks  rows/block  compression  stored  size
  label   u32 key     3       1           9  deflate          20    36  hidden
  odd     Fancy               1           9  none              7     7  dead: codec 'Fancy' is not known
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
