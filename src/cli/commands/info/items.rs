//! A container whose items say all.

use std::io::Write;

use serde_json::{Map, Value};

use super::lines;
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
    let header = ["path", "dtype", "shape", "codec", "stored", "size", ""].map(String::from).to_vec();
    let is_below = |item: &Item| {
        item.path.strip_prefix(part).is_some_and(|rest| part.is_empty() || rest.is_empty() || rest.starts_with('/'))
    };
    let rows: Vec<_> = std::iter::once(header).chain(items.iter().filter(|item| is_below(item)).map(row)).collect();
    if rows.len() == 1 && !part.is_empty() {
        return Ok(writeln!(out, "  nothing is stored under this path itself: shardfs makes what it shows")?);
    }
    lines::table(out, &rows, &[4, 5])
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
    let join = |parts: Vec<String>, between| parts.join(between);
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            join(fields.iter().map(|(name, value)| format!("{name} {}", flat(value))).collect(), ", ")
        }
        Value::Array(list) if list.iter().any(|value| value.is_object()) => join(list.iter().map(flat).collect(), "; "),
        Value::Array(list) => join(list.iter().map(flat).collect(), ", "),
        Value::Null => "none".into(),
        value => value.to_string(),
    }
}

fn row(item: &Item) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
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
    vec![item.path.clone(), dtype, shape, codec, number(item.info.stored_size), number(item.size), notes.join(", ")]
}
