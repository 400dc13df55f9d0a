//! A container whose items say all.

use std::io::Write;

use serde_json::{Map, Value};

use super::lines::{self, cell};
use crate::tree::overview::Item;

/// Most characters of a line of front matter.
const LONGEST: usize = 400;

/// Prints a line for each value of the front matter, then the items below `part` as a table; all items if it is empty.
pub(super) fn describe(
    out: &mut impl Write,
    format: &str,
    front: &Map<String, Value>,
    items: &[Item],
    part: &str,
) -> anyhow::Result<()> {
    if part.is_empty() {
        writeln!(out, "  format: {format}")?;
        write_front(out, front, &["format", "role_name"])?;
    }
    let rows: Vec<_> = items.iter().filter(|item| lines::is_below(&item.path, part)).map(row).collect();
    if rows.is_empty() && !part.is_empty() {
        return Ok(writeln!(out, "  nothing is stored under this path itself: shardfs makes what it shows")?);
    }
    if rows.is_empty() {
        return Ok(());
    }
    lines::table(out, &["path", "dtype", "shape", "codec", "stored", "size", ""], &rows, &[4, 5])
}

/// Prints a line for each value of the front matter but some.
pub(super) fn write_front(out: &mut impl Write, front: &Map<String, Value>, without: &[&str]) -> anyhow::Result<()> {
    for (key, value) in front.iter().filter(|(key, _)| !without.contains(&&***key)) {
        let text = match front.get("role_name") {
            Some(Value::String(name)) if key == "role" => format!("{name} ({value})"),
            _ => flat(value),
        };
        writeln!(out, "  {key}: {}", lines::shown(&text, LONGEST))?;
    }
    Ok(())
}

/// Returns a value of the front matter as text: names and values separated by commas, elements of a list by semicolons.
fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name} {}", flat(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
        Value::Array(list) => {
            let between = if list.iter().any(Value::is_object) { "; " } else { ", " };
            list.iter().map(flat).collect::<Vec<_>>().join(between)
        }
        Value::Null => "none".into(),
        value => value.to_string(),
    }
}

fn row(item: &Item) -> Vec<String> {
    let error = item.error.as_ref().map(|error| format!("damaged: {error}"));
    let guess = item.info.inferred.then_some("guess");
    let recovered = item.recovered.then_some("put back");
    let notes: Vec<&str> = match item.joined {
        true => vec!["joined"],
        false => [guess, recovered, error.as_deref()].into_iter().flatten().collect(),
    };
    let shape = item.info.shape_text().unwrap_or_default();
    let dtype = item.info.dtype.as_ref().map(|dtype| dtype.name().into());
    let dtype = dtype.or_else(|| item.info.stored_type.map(str::to_owned)).unwrap_or_default();
    let codec = item.info.codec.clone().unwrap_or_default().into_owned();
    vec![item.path.clone(), dtype, shape, codec, cell(item.info.stored_size), cell(item.size), notes.join(", ")]
}
