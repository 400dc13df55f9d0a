//! The files of a folder of messages.

use std::{collections::HashSet, sync::Arc};

use super::{Decoder, FILES, Recorded, Tree};
use crate::{
    cache::Key,
    format::messages::flat::{Flat, Shape},
    tree::names,
    view::{Fault, ReadContext},
};

/// The content of a file in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOf {
    Time,
    PublishTime,
    Sequence,
    Connection,
    Channel,
    Schema,
    Lines,
    Table,
    /// A column whose rows all have the same length.
    Array(u32),
    /// Where the rows of a column of varying length begin.
    Offsets(u32),
    /// Its elements.
    Values(u32),
    /// The folder of pictures.
    Images,
}

impl FileOf {
    /// Packs it into a number.
    pub(super) fn pack(self) -> u64 {
        let (kind, column) = match self {
            Self::Time => (0, 0),
            Self::PublishTime => (1, 0),
            Self::Sequence => (2, 0),
            Self::Connection => (3, 0),
            Self::Channel => (4, 0),
            Self::Schema => (5, 0),
            Self::Lines => (6, 0),
            Self::Table => (7, 0),
            Self::Array(column) => (8, column),
            Self::Offsets(column) => (9, column),
            Self::Values(column) => (10, column),
            Self::Images => (11, 0),
        };
        kind << 32 | u64::from(column)
    }

    /// Returns whether its size depends on all messages.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::Lines | Self::Table | Self::Values(_))
    }
}

/// The files of a folder, each with its name and whether it is hidden.
#[derive(Debug)]
pub(super) struct Files(pub(super) Vec<(String, FileOf, bool)>);

/// Returns the files of columns.
pub(super) fn of_columns(flat: &Flat, has_heads: bool) -> Vec<(String, FileOf)> {
    let own: &[&str] = if has_heads { &["time", "publish_time", "sequence"] } else { &["time", "connection"] };
    let (mut taken, mut files) = (HashSet::new(), Vec::new());
    for (column, leaf) in (0u32..).zip(&flat.leaves) {
        let named: &[(&str, FileOf)] = match leaf.shape {
            Shape::One(_) | Shape::Fixed(..) => &[(".npy", FileOf::Array(column))],
            Shape::Ragged(_) | Shape::Bytes => {
                &[(".offsets.npy", FileOf::Offsets(column)), (".values.npy", FileOf::Values(column))]
            }
            Shape::Text | Shape::None(_) => &[],
        };
        let mut number = if own.contains(&leaf.name.as_str()) { 2 } else { 1 };
        let name = |suffix: &str, number| names::file(leaf.name.as_bytes(), suffix, number);
        while named.iter().any(|(suffix, _)| taken.contains(&name(suffix, number))) {
            number += 1;
        }
        for (suffix, file) in named {
            taken.insert(name(suffix, number));
            files.push((name(suffix, number), *file));
        }
    }
    files
}

/// Returns the name of the file of a schema.
fn schema_name(encoding: &[u8]) -> &'static str {
    match encoding {
        b"ros1msg" | b"ros2msg" => "schema.msg",
        b"ros2idl" | b"omgidl" => "schema.idl",
        b"protobuf" => "schema.proto.bin",
        b"jsonschema" => "schema.json",
        _ => "schema.bin",
    }
}

impl<R: Recorded> Tree<R> {
    /// Returns the files of a folder of messages.
    pub(super) fn files(&self, reader: &ReadContext, folder: u32) -> Result<Arc<Files>, Fault> {
        reader.cache.parsed_or_make(Key::new(reader.container, FILES, folder.into(), 0), || {
            let images = self.core.pictures(reader, folder)?.is_some();
            let files = self.list_files(folder, images);
            let usage =
                files.iter().map(|(name, ..)| size_of_val(name) + name.len() + size_of::<FileOf>()).sum::<usize>();
            Ok((Files(files), reader.cache.hold(usage as u64)))
        })
    }

    /// Returns the files of a folder without reading messages.
    pub(super) fn list_files(&self, folder: u32, images: bool) -> Vec<(String, FileOf, bool)> {
        let core = &self.core;
        let is_heavy = core.is_heavy(folder);
        let mut files = vec![("time.npy".to_owned(), FileOf::Time, false)];
        match core.has_heads {
            true => {
                files.push(("publish_time.npy".into(), FileOf::PublishTime, false));
                files.push(("sequence.npy".into(), FileOf::Sequence, false));
            }
            false => files.push(("connection.npy".into(), FileOf::Connection, false)),
        }
        files.push(("channel.json".into(), FileOf::Channel, false));
        let recorded = core.recording.folders.get(folder as usize);
        let schema = recorded.and_then(|folder| core.recording.schemas.get(folder.schema? as usize));
        if let Some(schema) = schema.filter(|schema| !(schema.encoding.is_empty() && schema.data.is_empty())) {
            files.push((schema_name(&schema.encoding).into(), FileOf::Schema, false));
        }
        if !core.decoder(folder).is_none() {
            files.push(("messages.jsonl".into(), FileOf::Lines, is_heavy));
            files.push(("messages.parquet".into(), FileOf::Table, is_heavy));
        }
        if let Decoder::Schema(shown) = core.decoder(folder) {
            let columns = shown.files.iter();
            files.extend(columns.map(|(name, file)| (name.clone(), *file, is_heavy && file.is_whole())));
        }
        if images {
            files.push(("images".into(), FileOf::Images, false));
        }
        files
    }
}
