//! What the player needs of an episode: its rate and units, by what its metadata say.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Blocks, File};
use crate::{
    limits,
    source::Memory,
    tree::{
        Timeline, WorkingMemory,
        paths::{Kind, NodeIndex, Paths, ROOT},
        table::Entry,
    },
    view::{Fault, ReadContext},
};

/// Folder and names of the documents of metadata that are shown.
const META: &str = "meta";
const DOCUMENTS: [&str; 3] = ["episode", "wshard", "manifest"];
/// Most characters of a unit.
const UNIT: usize = 24;

/// Returns what the player needs; `None` if the container is no episode.
///
/// # Errors
/// [`Fault`] if metadata cannot be read; malformed ones say nothing.
pub(super) fn of(blocks: &Blocks, reader: &ReadContext, paths: &Paths<Entry<File>>) -> Result<Option<Timeline>, Fault> {
    let is_episode = blocks.shard.header.role == EPISODE;
    if !is_episode && blocks.joined.is_empty() {
        return Ok(None);
    }
    let mut timeline = Timeline {
        steps: blocks.shard.episode.length_t.filter(|_| is_episode),
        stacks: Some("signal/"),
        ..Timeline::default()
    };
    for name in DOCUMENTS {
        let file = format!("{name}.json");
        if let Some(rate) = document(blocks, reader, paths, &file, rate_of)? {
            timeline.rate = timeline.rate.or(rate);
            timeline.documents.push((name, format!("{META}/{file}")));
        }
    }
    timeline.units = document(blocks, reader, paths, "channels.json", units_of)?.unwrap_or_default();
    Ok(Some(timeline))
}

/// The role of an episode (`docs/formats/wshard.md` 2).
pub(super) const EPISODE: u8 = 5;

/// Returns what `take` finds in a document; `None` if it is not there, malformed, damaged or too large.
fn document<T>(
    blocks: &Blocks,
    reader: &ReadContext,
    paths: &Paths<Entry<File>>,
    name: &str,
    take: fn(&Map<String, Value>) -> T,
) -> Result<Option<T>, Fault> {
    let found = paths.lookup(ROOT, META).and_then(|folder: NodeIndex| paths.lookup(folder, name));
    let Some(Kind::File(Entry::Of(file))) = found.and_then(|node| paths.kind(node)) else { return Ok(None) };
    let view = super::Content::view(blocks, file);
    if view.size() > limits::METADATA_JSON {
        return Ok(None);
    }
    let memory = WorkingMemory::of_reader(reader);
    memory.reserve(view.size() * (limits::JSON_ROOM + 1))?;
    // Reading the document may reserve other memory.
    memory.hold();
    let bytes = match view.copy_at(reader, 0, view.size()) {
        Ok(bytes) => bytes,
        Err(fault) if fault.would_block_for().is_some() => return Err(fault),
        Err(_) => return Ok(None),
    };
    Ok(serde_json::from_slice(&bytes).ok().as_ref().map(take))
}

/// Returns steps per second (`docs/formats/wshard.md`, section 14).
fn rate_of(document: &Map<String, Value>) -> Option<f64> {
    let timebase = document.get("timebase")?;
    let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0;
    let number = |name: &str| timebase.get(name).and_then(Value::as_f64).filter(is_rate);
    number("tick_hz").or_else(|| number("dt_ns").map(|nanos| 1e9 / nanos))
}

/// Returns the unit of each block that has one.
fn units_of(channels: &Map<String, Value>) -> HashMap<String, String> {
    let channels = channels.get("channels").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let unit = |channel: &Value| {
        let text = |name: &str| channel.get(name).and_then(Value::as_str);
        let unit = text("unit")?;
        let unit = match unit.char_indices().nth(UNIT) {
            Some((end, _)) => format!("{}…", &unit[..end]),
            None => unit.to_owned(),
        };
        Some((text("signal_block")?.to_owned(), unit))
    };
    channels.iter().filter_map(unit).collect()
}
