//! A container whose items say all.

use std::io::Write;

use serde_json::{Map, Value};

use super::lines;
use crate::tree::overview::Item;

/// The front matter a line each, then the items as a table.
pub(super) fn describe(out: &mut impl Write, front: &Map<String, Value>, items: Vec<Item>) -> anyhow::Result<()> {
    for (key, value) in front {
        match value {
            Value::String(text) => writeln!(out, "  {key}: {text}")?,
            value => writeln!(out, "  {key}: {value}")?,
        }
    }
    let header = ["path", "dtype", "shape", "codec", "stored", "size", ""].map(String::from).to_vec();
    let rows: Vec<_> = std::iter::once(header).chain(items.into_iter().map(row)).collect();
    lines::table(out, &rows, &[4, 5])
}

fn row(item: Item) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
    let error = item.error.map(|error| format!("damaged: {error}"));
    let guess = item.info.inferred.then_some("guess");
    let recovered = item.recovered.then_some("put back");
    let notes: Vec<&str> = match item.joined {
        true => vec!["joined"],
        false => [guess, recovered, error.as_deref()].into_iter().flatten().collect(),
    };
    let shape = item.info.shape_text().unwrap_or_default();
    let dtype = item.info.dtype.map_or_else(String::new, |dtype| dtype.name().into());
    let codec = item.info.codec.unwrap_or_default().to_owned();
    vec![item.path, dtype, shape, codec, number(item.info.stored_size), number(item.size), notes.join(", ")]
}
