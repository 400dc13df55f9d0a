//! TFDS data sets, such as RLDS: splits in shards of TFRecord files, described by two JSON files
//! (`docs/formats/rlds.md` 5 and 6).

mod features;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::{Class, FormatError, Front, Recognition};
use crate::{
    limits::JSON_ROOM,
    source::{Memory, Source, SourceError},
};
pub use features::{Encoding, Features, Leaf, LeafKind, parse_features};

/// The files that make a folder a data set. The first is the marker.
pub const FEATURES: &str = "features.json";
/// See [`FEATURES`].
pub const INFO: &str = "dataset_info.json";

/// Largest of these files in bytes.
const DOCUMENT: u64 = 16 << 20;
/// Most records of a data set.
const RECORDS: u64 = 1_000_000_000;
/// The only file format that is supported.
const TFRECORD: &str = "tfrecord";
/// The name of shards if the description does not state it.
const TEMPLATE: &str = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}";
/// A name that no split can have, because a file in the root has it.
const TAKEN: &str = "container.json";

/// Recognises `features.json`. Only the other file tells whether the folder is a data set.
pub fn recognise(front: &Front<'_>) -> Recognition {
    let is_object = front.bytes.trim_ascii_start().first() == Some(&b'{');
    if is_object && front.name == FEATURES.as_bytes() { Recognition::Maybe } else { Recognition::No }
}

/// Accepts every `features.json`; see [`recognise`].
///
/// # Errors
/// None.
pub fn probe(_: &dyn Source, _: &[u8], _: &dyn Memory) -> Result<(), FormatError> {
    Ok(())
}

/// Returns the other file that describes a data set.
///
/// # Errors
/// None.
pub fn others(_: &dyn Source, _: &dyn Memory) -> Result<Vec<Box<str>>, SourceError> {
    Ok(vec![INFO.into()])
}

/// A data set, without its features.
#[derive(Debug)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Its version, if stated.
    pub version: Option<String>,
    /// Its splits.
    pub splits: Vec<Split>,
}

/// A part of a data set.
#[derive(Debug)]
pub struct Split {
    /// Its name, one part of a path.
    pub name: String,
    /// The number of records of the data set before it.
    pub first: u64,
    /// The number of records before each shard, then the number of all.
    starts: Vec<u64>,
    /// The name of a shard, with fields in braces.
    template: String,
}

impl Split {
    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        u32::try_from(self.starts.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Returns the shard of a record, and the record's number in it.
    pub fn place(&self, record: u64) -> Option<(u32, u64)> {
        let shard = self.starts.partition_point(|&start| start <= record).checked_sub(1)?;
        let within = record - self.starts.get(shard)?;
        u32::try_from(shard).ok().filter(|_| record < self.records()).map(|shard| (shard, within))
    }

    /// Returns how many records a shard should have.
    pub fn records_of(&self, shard: u32) -> u64 {
        let at = shard as usize;
        let (Some(start), Some(end)) = (self.starts.get(at), self.starts.get(at + 1)) else { return 0 };
        end - start
    }

    /// Returns the name of a shard's file.
    pub fn shard_name(&self, data_set: &str, shard: u32) -> String {
        fill(&self.template, data_set, &self.name, (shard, self.shards())).unwrap_or_default()
    }
}

/// Longest name of a file in bytes.
const NAME: usize = 255;

/// Fills in a template; `None` if it has an unknown field, or the name is too long.
fn fill(template: &str, data_set: &str, split: &str, (shard, shards): (u32, u32)) -> Option<String> {
    let (mut name, mut rest) = (String::new(), template);
    while let Some(start) = rest.find('{') {
        let end = start + rest.get(start..)?.find('}')?;
        name += rest.get(..start)?;
        let field: Cow<'_, str> = match rest.get(start + 1..end)? {
            "DATASET" => data_set.into(),
            "SPLIT" => split.into(),
            "FILEFORMAT" => TFRECORD.into(),
            "SHARD_X_OF_Y" => format!("{shard:05}-of-{shards:05}").into(),
            "SHARD_INDEX" => format!("{shard:05}").into(),
            "NUM_SHARDS" => format!("{shards:05}").into(),
            _ => return None,
        };
        if name.len() + field.len() > NAME {
            return None;
        }
        name += &field;
        rest = rest.get(end + 1..)?;
    }
    name += rest;
    Some(name).filter(|name| name.len() <= NAME)
}

/// Reads a JSON file.
///
/// # Errors
/// `Refused` if it is too large or no JSON object.
pub fn read_object(source: &dyn Source, name: &str, class: Class, memory: &dyn Memory) -> Result<Value, FormatError> {
    let length = source.len();
    if length > DOCUMENT {
        return Err(FormatError::refused(class, format!("{name} has {length} bytes, more than {DOCUMENT}")));
    }
    memory.reserve(length * JSON_ROOM)?;
    let bytes = source.read(0..length)?;
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(FormatError::refused(class, format!("{name} is no JSON object"))),
        Err(error) => Err(FormatError::refused(class, format!("{name} is no JSON: {error}"))),
    }
}

/// The fields of `dataset_info.json` that are used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    name: String,
    version: Option<String>,
    file_format: Option<String>,
    splits: Vec<StoredSplit>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredSplit {
    name: String,
    #[serde(default)]
    shard_lengths: Vec<Value>,
    filepath_template: Option<String>,
    num_shards: Option<Value>,
}

/// Returns a 64-bit number, which protobuf's JSON writes as a string.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    }
}

/// Interprets `dataset_info.json`.
///
/// # Errors
/// `Refused` with the reason.
pub fn parse_info(value: Value) -> Result<Info, FormatError> {
    let refused = |reason: String| FormatError::refused(Class::BadInfo, reason);
    let stored = Stored::deserialize(value).map_err(|error| refused(format!("{INFO}: {error}")))?;
    if let Some(format) = stored.file_format.filter(|format| format != TFRECORD) {
        return Err(FormatError::refused(Class::Format, format!("its files are {format}, not {TFRECORD}")));
    }
    let (mut splits, mut names, mut total) = (Vec::with_capacity(stored.splits.len()), HashSet::new(), 0u64);
    for split in stored.splits {
        let name = split.name;
        let is_part = !matches!(name.as_str(), "" | "." | ".." | TAKEN) && !name.contains('/');
        if !is_part || !names.insert(name.clone()) {
            return Err(refused(format!("a split is called {name:?}")));
        }
        let is_old = split.shard_lengths.is_empty() && split.num_shards.as_ref().and_then(whole).unwrap_or(0) > 0;
        if is_old {
            return Err(refused(format!("the split {name} has shards, but does not say how long they are")));
        }
        let first = total;
        let (mut starts, mut records) = (Vec::with_capacity(split.shard_lengths.len() + 1), 0u64);
        starts.push(0);
        for length in &split.shard_lengths {
            let length = whole(length).ok_or_else(|| refused(format!("{name}: {length} is no length of a shard")))?;
            records = records.saturating_add(length);
            total = total.saturating_add(length);
            starts.push(records);
        }
        if total > RECORDS {
            return Err(refused(format!("{total} records, more than {RECORDS}")));
        }
        let template = split.filepath_template.filter(|template| !template.is_empty()).unwrap_or(TEMPLATE.into());
        let is_known = fill(&template, &stored.name, &name, (0, 1))
            .is_some_and(|file| !file.contains(['/', '\0']) && !matches!(file.as_str(), "" | "." | ".."));
        if !is_known {
            return Err(refused(format!("{name}: {template:?} is no name of a shard in the folder")));
        }
        splits.push(Split { name, first, starts, template });
    }
    Ok(Info { name: stored.name, version: stored.version, splits })
}
