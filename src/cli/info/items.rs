//! A container whose items say all.

use std::io::Write;

use serde_json::Value;

use super::lines;

/// The front matter a line each, then the items as a table.
pub(super) fn describe(out: &mut impl Write, description: &Value) -> anyhow::Result<()> {
    let Value::Object(fields) = description else { return Ok(()) };
    for (key, value) in fields.iter().filter(|(key, _)| !["items", "joined"].contains(&key.as_str())) {
        match value {
            Value::String(text) => writeln!(out, "  {key}: {text}")?,
            value => writeln!(out, "  {key}: {value}")?,
        }
    }
    let rows_of = |key: &str| fields.get(key).and_then(Value::as_array).into_iter().flatten().map(row);
    let header = ["path", "dtype", "shape", "codec", "stored", "size", ""].map(String::from).to_vec();
    let joined = rows_of("joined").map(|mut row| {
        row[6] = "joined".into();
        row
    });
    let rows: Vec<_> = std::iter::once(header).chain(rows_of("items")).chain(joined).collect();
    lines::table(out, &rows, &[4, 5])
}

fn row(item: &Value) -> Vec<String> {
    let text = |key: &str| item[key].as_str().unwrap_or("").to_owned();
    let number = |key: &str| item[key].as_u64().map_or_else(String::new, |n| n.to_string());
    let shape = item["shape"].as_array().map_or_else(String::new, |shape| {
        let axes: Vec<String> = shape.iter().map(Value::to_string).collect();
        format!("[{}]", axes.join(","))
    });
    let mut notes = Vec::new();
    if item["inferred"] == true {
        notes.push("guess".to_owned());
    }
    if item["recovered"] == true {
        notes.push("put back".to_owned());
    }
    notes.extend(item["error"].as_str().map(|error| format!("damaged: {error}")));
    vec![text("path"), text("dtype"), shape, text("codec"), number("stored_size"), number("size"), notes.join(", ")]
}
