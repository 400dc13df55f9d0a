//! `container.json` and overviews of recordings (`docs/formats/mcap.md`, section 14).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Decoder, Recorded, Tree, files::FileOf, text};
use crate::{
    cache::Buffer,
    limits::DESCRIBED,
    tree::{
        describe,
        overview::{Contents, LEAST, Overview, Recording, Topic},
    },
    view::{Fault, ReadContext},
};

/// Bytes of memory that a topic takes in an overview in addition to its texts.
const TOPIC: u64 = 256;

/// Returns `container.json`.
pub(super) fn description<R: Recorded>(tree: &Tree<R>, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
    describe::kept(reader, 0, |memory| {
        let mut back = Map::new();
        let all = tree.core.recording.folders.len() + tree.own.extras().iter().map(|e| e.files.len()).sum::<usize>();
        if all > DESCRIBED {
            back.insert("items_left_out".into(), (all - DESCRIBED).into());
        }
        let tables: Vec<Value> = (0..tree.core.recording.folders.len().min(DESCRIBED) as u32)
            .filter_map(|folder| table(tree, folder))
            .collect();
        back.insert("tables".into(), tables.into());
        let folders = (0..tree.core.recording.folders.len() as u32).flat_map(|folder| folder_items(tree, folder));
        let extras = (0..).zip(tree.own.extras()).flat_map(|(number, extra)| {
            (0..).zip(&extra.files).map(move |(file, name)| {
                let mut item = tree.own.extra_item(number, file);
                let path = format!("{}/{name}", extra.name);
                // The path comes after the name.
                let name = item.shift_remove("name").unwrap_or_default();
                let mut whole = Map::from_iter([("name".to_owned(), name), ("path".to_owned(), path.into())]);
                whole.append(&mut item);
                Value::Object(whole)
            })
        });
        let front = tree.own.front(&tree.core.recording);
        describe::document(&front, folders.chain(extras).take(DESCRIBED), &back, memory)
    })
}

fn path<R: Recorded>(tree: &Tree<R>, folder: u32) -> String {
    let place = tree.places.get(folder as usize).copied().unwrap_or_default();
    format!("topics/{}", tree.topics.path(place))
}

/// Returns the items of a folder: itself, and its hidden files.
fn folder_items<R: Recorded>(tree: &Tree<R>, folder: u32) -> Vec<Value> {
    let core = &tree.core;
    let name = core.recording.folders.get(folder as usize).map_or(Value::Null, |folder| text(&folder.topic));
    let path = path(tree, folder);
    let mut item = json!({"name": name, "path": path, "messages": core.messages(folder)});
    if let Some(item) = item.as_object_mut() {
        item.insert("decoded".into(), (!core.decoder(folder).is_none()).into());
        if let Decoder::None(reason) = core.decoder(folder) {
            item.insert("reason".into(), (&**reason).into());
        }
    }
    let hidden = match core.is_heavy(folder) {
        true => tree.list_files(folder, false),
        false => Vec::new(),
    };
    let hidden = hidden.into_iter().filter(|(.., is_hidden)| *is_hidden);
    let hidden = hidden.map(|(file, ..)| json!({"name": name, "path": format!("{path}/{file}"), "hidden": true}));
    std::iter::once(item).chain(hidden).collect()
}

/// Returns the description of a folder's table.
fn table<R: Recorded>(tree: &Tree<R>, folder: u32) -> Option<Value> {
    let core = &tree.core;
    if core.decoder(folder).is_none() {
        return None;
    }
    let columns = core.table_columns(folder);
    let mut table = json!({
        "path": format!("{}/messages.parquet", path(tree, folder)),
        "rows": core.messages(folder),
        "columns": columns.count(),
        "left_out": columns.left_out,
    });
    if let Some(table) = table.as_object_mut() {
        if core.decoder(folder).schema().is_some_and(|shown| shown.flat.has_more) {
            table.insert("left_out_behind".into(), true.into());
        }
        if core.is_heavy(folder) {
            table.insert("hidden".into(), true.into());
        }
    }
    Some(table)
}

/// Returns an overview.
pub(super) fn overview<R: Recorded>(tree: &Tree<R>) -> Overview {
    let core = &tree.core;
    let recording = &core.recording;
    let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let topics = (0u32..).zip(&recording.folders).take(DESCRIBED).map(|(number, folder)| {
        let schema = folder.schema.and_then(|schema| recording.schemas.get(schema as usize));
        Topic {
            name: lossy(&folder.topic),
            path: path(tree, number),
            kind: schema.map_or_else(String::new, |schema| lossy(&schema.name)),
            encoding: lossy(&folder.message_encoding),
            messages: folder.messages,
            pictures: core.decoder(number).schema().is_some_and(|shown| shown.pictures.is_some()),
            undecoded: match core.decoder(number) {
                Decoder::None(reason) => Some((**reason).to_owned()),
                _ => None,
            },
            arrays: arrays(tree, number),
        }
    });
    let mut front = tree.own.front(recording);
    front.retain(|_, value| !value.is_array());
    let others = tree.own.extras().iter().map(|extra| (extra.name, extra.files.len() as u64));
    let contents = Contents::Recording(Recording {
        front,
        times: core.times(),
        messages: recording.messages(),
        topic_count: recording.folders.len() as u64,
        topics: topics.collect(),
        stored_size: recording.stored_size,
        size: recording.size,
        compressions: recording.compressions.clone(),
        others: others.filter(|(_, count)| *count > 0).collect(),
    });
    Overview { format: tree.own.format(), contents }
}

/// Returns the names of some arrays of a folder that have a number for each message.
fn arrays<R: Recorded>(tree: &Tree<R>, folder: u32) -> Vec<String> {
    /// Most arrays that are named.
    const MOST: usize = 64;
    let Some(shown) = tree.core.decoder(folder).schema() else { return Vec::new() };
    let is_array = |file: &&(String, FileOf)| matches!(file.1, FileOf::Array(_));
    shown.files.iter().filter(is_array).take(MOST).map(|(name, _)| name.clone()).collect()
}

/// Returns the most bytes of memory that an overview takes.
pub(super) fn overview_memory<R: Recorded>(tree: &Tree<R>) -> u64 {
    let folders = tree.core.recording.folders.iter().take(DESCRIBED);
    let texts = folders.map(|folder| TOPIC + 4 * folder.topic.len() as u64 + (64 << 8));
    LEAST + texts.sum::<u64>() + tree.core.recording.schemas.iter().map(|schema| schema.name.len() as u64).sum::<u64>()
}
