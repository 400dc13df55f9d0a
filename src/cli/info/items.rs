//! A container whose items say all.

use std::{fmt, io::Write};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use super::lines;

/// `container.json` of such a container: there can be a million items, so of each only what is shown is kept.
#[derive(Default)]
pub(super) struct Description {
    front: Vec<(String, Value)>,
    items: Vec<Item>,
    joined: Vec<Item>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    path: String,
    dtype: Option<String>,
    shape: Option<Vec<u64>>,
    codec: String,
    stored_size: Option<u64>,
    size: Option<u64>,
    inferred: bool,
    recovered: bool,
    error: Option<String>,
}

impl<'de> Deserialize<'de> for Description {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Description;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Description, A::Error> {
                let mut description = Description::default();
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "items" => description.items = map.next_value()?,
                        "joined" => description.joined = map.next_value()?,
                        _ => description.front.push((key, map.next_value()?)),
                    }
                }
                Ok(description)
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// The front matter a line each, then the items as a table.
pub(super) fn describe(out: &mut impl Write, description: Description) -> anyhow::Result<()> {
    for (key, value) in description.front {
        match value {
            Value::String(text) => writeln!(out, "  {key}: {text}")?,
            value => writeln!(out, "  {key}: {value}")?,
        }
    }
    let header = ["path", "dtype", "shape", "codec", "stored", "size", ""].map(String::from).to_vec();
    let items = description.items.into_iter().map(|item| row(item, None));
    let joined = description.joined.into_iter().map(|item| row(item, Some("joined")));
    let rows: Vec<_> = std::iter::once(header).chain(items).chain(joined).collect();
    lines::table(out, &rows, &[4, 5])
}

fn row(item: Item, note: Option<&str>) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
    let shape = item.shape.map_or_else(String::new, |shape| {
        let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
        format!("[{}]", axes.join(","))
    });
    let error = item.error.map(|error| format!("damaged: {error}"));
    let guess = item.inferred.then_some("guess");
    let recovered = item.recovered.then_some("put back");
    let notes: Vec<&str> = match note {
        Some(note) => vec![note],
        None => [guess, recovered, error.as_deref()].into_iter().flatten().collect(),
    };
    let dtype = item.dtype.unwrap_or_default();
    vec![item.path, dtype, shape, item.codec, number(item.stored_size), number(item.size), notes.join(", ")]
}
