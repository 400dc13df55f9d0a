//! The metadata JSON of an episode: section 11 of the format's page.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::{Entry, Notes, block::Fault, shown};
use crate::{
    format::{DType, FormatError},
    limits,
    source::{Memory, Source, SourceError},
};

/// Longest word of a channel that is kept, in bytes. Any number of blocks can have it.
const WORD: usize = 256;

/// What `meta/episode` and `meta/wshard` say (section 11).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Episode {
    /// `episode_id`, or Go's `id`.
    pub episode_id: Option<String>,
    /// `env_id`.
    pub env_id: Option<String>,
    /// `length_T` as stated; an unchecked claim.
    pub length_t: Option<u64>,
    /// Number of steps to use: `length_t`, or else what the size of `done`, `reward` or `time/*` gives (section 12).
    pub steps: Option<u64>,
    /// The name of the block that gave `steps`.
    pub steps_source: Option<&'static str>,
    /// `timebase`: an object with those of `type`, `tick_hz` and `dt_ns` that exist, from `meta/episode` or else from
    /// `meta/wshard` (section 14).
    pub timebase: Option<Json>,
    /// Steps per second (section 14).
    pub rate_hz: Option<f64>,
    /// `chunk_index` (section 15).
    pub chunk_index: Option<u64>,
    /// `total_chunks`.
    pub total_chunks: Option<u64>,
    /// `timestep_range`, last inclusive; only if there is a `chunk_index`.
    pub timestep_range: Option<[u64; 2]>,
    /// `streaming` of `meta/wshard` (section 16).
    pub streaming: bool,
}

/// One element of `meta/channels` (section 11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Channel id, without prefix.
    pub id: String,
    /// Full name of the block described: `signal_block`, `signal/<id>`, or the key of the legacy form.
    pub block: String,
    /// Element type; f32 if none is stated, `None` if the name is unknown.
    pub dtype: Option<DType>,
    /// Shape of one step; `None` if it is no list of non-negative integers, or longer than any array's shape.
    pub shape: Option<Vec<u64>>,
    /// Its modality and unit, if stated.
    pub words: Option<Arc<Words>>,
}

/// A channel's modality and unit (section 11), if they are short enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// Modality.
    pub modality: Option<String>,
    /// Unit of the values.
    pub unit: Option<String>,
}

/// Everything that the metadata of an episode says.
#[derive(Debug, Default)]
pub(super) struct Meta {
    pub episode: Episode,
    pub channels: Vec<Channel>,
    /// `action_spaces` of `meta/episode`: full block names.
    pub action_spaces: Vec<Channel>,
    /// `meta/wshard` is there but could not be interpreted.
    pub wshard_unknown: bool,
    /// `meta/episode` or `meta/channels` is there but could not be interpreted: what it may say is not guessed.
    pub lanes_unknown: bool,
    /// No block of the file gets a typed view.
    pub untyped: bool,
}

impl Meta {
    /// Reads the three metadata blocks, as far as they can be interpreted.
    pub(super) fn read(
        source: &dyn Source,
        entries: &[Entry],
        memory: &dyn Memory,
        notes: &mut Notes,
    ) -> Result<Self, FormatError> {
        let mut object = |name| object(source, entries, name, memory, notes);
        let wshard = object("meta/wshard")?;
        let episode = object("meta/episode")?;
        let channels = object("meta/channels")?;
        let is_unknown = |read: &Option<_>, name: &[u8]| read.is_none() && find(entries, name).is_some();
        let wshard_unknown = is_unknown(&wshard, b"meta/wshard");
        let episode_unknown = is_unknown(&episode, b"meta/episode");
        let lanes_unknown = episode_unknown || is_unknown(&channels, b"meta/channels");
        let (wshard, episode) = (wshard.unwrap_or_default(), episode.unwrap_or_default());
        let (channels, skipped) = read_channels(&channels.unwrap_or_default());
        if skipped > 0 {
            notes.add(format_args!("meta/channels: {skipped} elements describe no block"));
        }
        Ok(Self {
            action_spaces: read_action_spaces(&episode),
            episode: match episode_unknown {
                true => Episode { streaming: is_streaming(&wshard), ..Episode::default() },
                false => read_episode(&episode, &wshard, entries, notes),
            },
            channels,
            wshard_unknown,
            lanes_unknown,
            untyped: false,
        })
    }
}

/// Returns the visible block of this name.
fn find<'e>(entries: &'e [Entry], name: &[u8]) -> Option<&'e Entry> {
    entries.iter().rev().find(|e| *e.name == *name)
}

/// Reads a metadata block of up to `limit` bytes as JSON. Each byte can take `room` bytes of memory. `None` if there is
/// none or it cannot be interpreted, which is noted.
pub(super) fn json<T: DeserializeOwned>(
    source: &dyn Source,
    entries: &[Entry],
    (name, limit, room): (&str, u64, u64),
    memory: &dyn Memory,
    notes: &mut Notes,
) -> Result<Option<T>, SourceError> {
    let Some(entry) = find(entries, name.as_bytes()) else { return Ok(None) };
    // A larger one is not interpreted. One that is shorter than stated does not decode.
    if entry.block.extent.size <= limit {
        memory.reserve(entry.block.extent.size * room)?;
    }
    let bytes = match entry.block.load(source, limit) {
        Ok(bytes) => bytes,
        Err(Fault::Changed) => return Err(SourceError::Changed),
        Err(Fault::Block(reason)) => {
            notes.add(format_args!("{name} at byte {}: {reason}", entry.block.extent.offset));
            return Ok(None);
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let what = if error.is_data() { "does not say what it should" } else { "is not JSON" };
            notes.add(format_args!("{name} {what}: {}", plain(&error)));
            Ok(None)
        }
    }
}

/// Returns what serde says is wrong, in words of JSON instead of Rust.
fn plain(error: &serde_json::Error) -> String {
    let words = [("expected u64", "expected a whole number"), ("sequence", "array"), (": map", ": object")];
    words.iter().fold(error.to_string(), |said, (rust, json)| said.replace(rust, json))
}

fn object(
    source: &dyn Source,
    entries: &[Entry],
    name: &str,
    memory: &dyn Memory,
    notes: &mut Notes,
) -> Result<Option<Map<String, Json>>, SourceError> {
    match json(source, entries, (name, limits::METADATA_JSON, limits::JSON_ROOM), memory, notes)? {
        Some(Json::Object(map)) => Ok(Some(map)),
        Some(_) => {
            notes.add(format_args!("{name} is not a JSON object"));
            Ok(None)
        }
        None => Ok(None),
    }
}

fn text(map: &Map<String, Json>, key: &str) -> Option<String> {
    map.get(key)?.as_str().map(str::to_owned)
}

fn read_episode(
    episode: &Map<String, Json>,
    wshard: &Map<String, Json>,
    entries: &[Entry],
    notes: &mut Notes,
) -> Episode {
    let number = |key: &str| episode.get(key)?.as_u64();
    let stated = episode.get("length_T").or_else(|| episode.get("length_t"));
    let length_t = stated.and_then(Json::as_u64);
    if let Some(stated) = stated.filter(|_| length_t.is_none()) {
        notes.add(format_args!("length_T is no number of steps: {}", shown(stated.to_string().as_bytes())));
    }
    let (steps, steps_source) = match length_t {
        Some(steps) => (Some(steps), Some("meta/episode")),
        None => steps_by_size(entries).unzip(),
    };
    let bases = [timebase(episode), timebase(wshard)];
    let chunk_index = number("chunk_index");
    let range = episode.get("timestep_range").filter(|_| chunk_index.is_some()).and_then(Json::as_array);
    let timestep_range = range.and_then(|range| match range.as_slice() {
        [first, last] => Some([first.as_u64()?, last.as_u64()?]),
        _ => None,
    });
    Episode {
        episode_id: text(episode, "episode_id").or_else(|| text(episode, "id")),
        env_id: text(episode, "env_id"),
        length_t,
        steps,
        steps_source,
        rate_hz: rate(&bases),
        timebase: bases.into_iter().flatten().next().map(Json::Object),
        chunk_index,
        total_chunks: number("total_chunks"),
        timestep_range,
        streaming: is_streaming(wshard),
    }
}

fn is_streaming(wshard: &Map<String, Json>) -> bool {
    wshard.get("streaming") == Some(&Json::Bool(true))
}

/// Section 12: without a usable length_T, the first of these blocks whose size determines the steps.
fn steps_by_size(entries: &[Entry]) -> Option<(u64, &'static str)> {
    [("done", 1), ("reward", 4), ("time/ticks", 4), ("time/timestamps_ns", 8)].into_iter().find_map(|(name, width)| {
        let block = &find(entries, name.as_bytes())?.block;
        (block.error.is_none() && block.extent.size.is_multiple_of(width)).then_some((block.extent.size / width, name))
    })
}

/// The known keys of a `timebase`; a bare string is its type (section 14).
fn timebase(map: &Map<String, Json>) -> Option<Map<String, Json>> {
    let mut known = Map::new();
    match map.get("timebase")? {
        Json::String(kind) => {
            known.insert("type".to_owned(), Json::String(kind.clone()));
        }
        Json::Object(base) => {
            for (key, fits) in [
                ("type", Json::is_string as fn(&Json) -> bool),
                ("tick_hz", Json::is_number),
                ("dt_ns", Json::is_number),
            ] {
                if let Some(value) = base.get(key).filter(|v| fits(v)) {
                    known.insert(key.to_owned(), value.clone());
                }
            }
        }
        _ => return None,
    }
    Some(known)
}

/// Section 14: `tick_hz` of the episode, else that of `meta/wshard` if it agrees with `dt_ns`, else by `dt_ns`.
fn rate([episode, wshard]: &[Option<Map<String, Json>>; 2]) -> Option<f64> {
    let positive = |base: &Option<Map<String, Json>>, key: &str| {
        base.as_ref()?.get(key)?.as_f64().filter(|x| x.is_finite() && *x > 0.0)
    };
    if let Some(hz) = positive(episode, "tick_hz") {
        return Some(hz);
    }
    let dt_ns = positive(episode, "dt_ns");
    match (positive(wshard, "tick_hz"), dt_ns) {
        (Some(hz), None) => Some(hz),
        (Some(hz), Some(dt)) if (1e9 / hz - dt).abs() <= 1.0 => Some(hz),
        (_, dt) => dt.or_else(|| positive(wshard, "dt_ns")).map(|dt| 1e9 / dt),
    }
}

/// Reads both forms of `meta/channels`. Also returns how many elements describe no block.
fn read_channels(map: &Map<String, Json>) -> (Vec<Channel>, usize) {
    let Some(list) = map.get("channels") else {
        let legacy = map.iter().filter_map(|(key, value)| {
            let value = value.as_object()?;
            let id = text(value, "id").unwrap_or_else(|| bare(key).to_owned());
            Some(channel(value, id, key.clone()))
        });
        return (legacy.collect(), 0);
    };
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let channels: Vec<Channel> = list.iter().filter_map(element).collect();
    let skipped = list.len() - channels.len();
    (channels, skipped)
}

fn element(value: &Json) -> Option<Channel> {
    let map = value.as_object()?;
    let block = text(map, "signal_block").filter(|name| !name.is_empty());
    let (id, block) = match (text(map, "id"), block) {
        (Some(id), Some(block)) => (id, block),
        (None, Some(block)) => (bare(&block).to_owned(), block),
        // The TypeScript writer does not double an existing prefix (section 10).
        (Some(id), None) if id.starts_with("signal/") => (bare(&id).to_owned(), id),
        (Some(id), None) => (id.clone(), format!("signal/{id}")),
        (None, None) => return None,
    };
    Some(channel(map, id, block))
}

/// `action_spaces`: read by Python, written by no known program (section 11).
fn read_action_spaces(episode: &Map<String, Json>) -> Vec<Channel> {
    let list = episode.get("action_spaces").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let space = |value: &Json| {
        let map = value.as_object()?;
        let name = text(map, "name")?;
        Some(channel(map, bare(&name).to_owned(), name))
    };
    list.iter().filter_map(space).collect()
}

/// Returns a block's name without the prefix of its lane.
fn bare(name: &str) -> &str {
    name.strip_prefix("signal/").or_else(|| name.strip_prefix("action/")).unwrap_or(name)
}

fn channel(map: &Map<String, Json>, id: String, block: String) -> Channel {
    let dtype = match map.get("dtype") {
        None | Some(Json::Null) => Some(DType::F32),
        Some(name) => name.as_str().and_then(dtype),
    };
    let shape = match map.get("shape") {
        None | Some(Json::Null) => Some(Vec::new()),
        Some(shape) => {
            // Any number of blocks can have this description, so it must be cheap for each.
            let list = shape.as_array().filter(|list| list.len() <= limits::DIMENSIONS);
            list.and_then(|list| list.iter().map(Json::as_u64).collect())
        }
    };
    let word = |key| text(map, key).filter(|word| word.len() <= WORD);
    let words = Words { modality: word("modality"), unit: word("unit") };
    let words = (words != Words::default()).then(|| Arc::new(words));
    Channel { id, block, dtype, shape, words }
}

/// The thirteen short names, and the long names that the Go reader accepts for them (section 11).
fn dtype(name: &str) -> Option<DType> {
    Some(match name.to_ascii_lowercase().as_str() {
        "f64" => DType::F64,
        "f32" => DType::F32,
        "f16" => DType::F16,
        "bf16" => DType::Bf16,
        "i64" => DType::I64,
        "i32" => DType::I32,
        "i16" => DType::I16,
        "i8" => DType::I8,
        "u64" => DType::U64,
        "u32" => DType::U32,
        "u16" => DType::U16,
        "u8" => DType::U8,
        long => return DType::of_name(long),
    })
}
