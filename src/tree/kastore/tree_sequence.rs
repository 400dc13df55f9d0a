//! Which keys of a tree sequence file are text (`docs/formats/kastore.md` 11; `docs/TREE.md`, section 5).

use std::collections::HashMap;

use super::schema::{self, Codec};
use crate::{
    format::{DType, kastore::Item},
    limits,
    source::{Source, SourceError},
};

/// How a key is shown as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// The stored bytes.
    Whole,
    /// One row per line; the item of that number has the offsets.
    Rows {
        /// Number of the item that holds the offsets.
        offsets: usize,
        /// Text of an empty row.
        empty: &'static [u8],
    },
}

const PLAIN: [&str; 5] = ["format/name", "uuid", "time_units", "reference_sequence/data", "reference_sequence/url"];

const SCHEMAS: [&str; 9] = [
    "metadata_schema",
    "nodes/metadata_schema",
    "edges/metadata_schema",
    "sites/metadata_schema",
    "mutations/metadata_schema",
    "migrations/metadata_schema",
    "individuals/metadata_schema",
    "populations/metadata_schema",
    "reference_sequence/metadata_schema",
];

/// The text views of a store.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// How, under which suffix, and of which item.
    pub(super) views: Vec<(Text, &'static str, usize)>,
    /// Why an expected view does not exist.
    pub(super) warnings: Vec<String>,
    /// Whether the store is a tree sequence.
    pub(super) is_tree_sequence: bool,
}

/// Returns the text views of a store; none if it is no tree sequence.
///
/// # Errors
/// [`SourceError`] if the name or a schema cannot be read.
pub(super) fn texts(source: &dyn Source, items: &[Item]) -> Result<Texts, SourceError> {
    // Top-level strings are i8, those in tables u8: the key decides, not the type.
    let is_text = |item: &Item| matches!(item.dtype, DType::I8 | DType::U8);
    let by_key: HashMap<&[u8], usize> = items.iter().enumerate().map(|(i, item)| (item.key.as_slice(), i)).collect();
    let find = |key: &str| by_key.get(key.as_bytes()).copied();
    let text = |key: &str| find(key).filter(|&i| is_text(&items[i]));
    let read = |i: usize| source.read(items[i].data.clone());
    let stored = |&i: &usize| items[i].count > 0;

    let is_tree_sequence = match text("format/name") {
        Some(name) if items[name].count == 11 => read(name)? == b"tskit.trees",
        _ => false,
    };
    if !is_tree_sequence {
        return Ok(Texts::default());
    }
    // The codec of a table's metadata says which columns it has.
    let schemas = SCHEMAS.iter().filter_map(|key| text(key)).filter(stored);
    source.prefetch_small(schemas.map(|i| items[i].data.clone()).collect());
    let mut warnings = Vec::new();
    let mut codec_is_json = |name: &str| -> Result<bool, SourceError> {
        let Some(schema) = text(name).filter(stored) else { return Ok(false) };
        if items[schema].count > limits::METADATA_JSON {
            warnings.push(format!("{name}: not interpreted, for its {} bytes", items[schema].count));
            return Ok(false);
        }
        Ok(schema::codec(&read(schema)?).map_or_else(
            |error| {
                warnings.push(format!("{name} is not JSON: {error}"));
                false
            },
            |codec| codec == Codec::Json,
        ))
    };
    let (metadata_is_json, populations_are_json) =
        (codec_is_json("metadata_schema")?, codec_is_json("populations/metadata_schema")?);
    let mut rows = |key: &str, empty: &'static [u8]| {
        let i = find(key)?;
        let offsets = find(&format!("{key}_offset"));
        if offsets.is_none() || !is_text(&items[i]) {
            let reason = if offsets.is_none() { "there are no offsets for it" } else { "it is not of single bytes" };
            warnings.push(format!("{key}: {reason}, so it is not shown as rows of text"));
        }
        offsets.filter(|_| is_text(&items[i])).map(|offsets| (Text::Rows { offsets, empty }, i))
    };

    let mut found = Vec::new();
    found.extend(PLAIN.iter().filter_map(|key| text(key)).map(|i| (Text::Whole, ".txt", i)));
    found.extend(SCHEMAS.iter().filter_map(|key| text(key)).filter(stored).map(|i| (Text::Whole, ".json", i)));
    if metadata_is_json {
        found.extend(text("metadata").filter(stored).map(|i| (Text::Whole, ".json", i)));
    }
    if populations_are_json {
        found.extend(rows("populations/metadata", b"{}").map(|(text, i)| (text, ".jsonl", i)));
    }
    found.extend(rows("provenances/record", b"{}").map(|(text, i)| (text, ".jsonl", i)));
    found.extend(rows("provenances/timestamp", b"").map(|(text, i)| (text, ".txt", i)));
    Ok(Texts { views: found, warnings, is_tree_sequence })
}
