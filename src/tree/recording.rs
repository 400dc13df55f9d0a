//! Recordings: a folder for each topic, with times, messages, fields and pictures (`docs/formats/mcap.md`, sections 5
//! to 12). What only one format has comes from [`Recorded`].
//!
//! Nodes are computed. Only the topics, the chunks, and the number of each topic's messages in each chunk are in
//! memory. Messages are found again by the chunks' indexes.

mod batch;
mod chunks;
mod columns;
mod describe;
mod files;
mod lines;
mod nodes;
mod order;
mod pictures;
mod table;
mod totals;

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::{
    overview::Overview,
    paths::{self, Builder, NodeIndex, Paths},
};
use crate::{
    cache::{BlockError, Key, Tag},
    escape,
    format::{
        FormatError, PartError,
        messages::{self, Schema, flat::Flat},
        recording::{Layout, Recording},
    },
    source::{Memory, SourceError},
    view::{Fault, ReadContext, View},
};
use batch::{Plan, Slot};
pub(super) use chunks::decoded;
use files::FileOf;
use order::Order;
use pictures::Kind;

/// Most bytes that a topic may weigh if its decoded files are listed.
const LIGHT: u64 = 64 << 20;

/// Tag in the cache of the names of a topic's files, by its folder.
const FILES: Tag = Tag::Parsed(0);

/// Names of folders that are reserved below `topics`.
const RESERVED: [&str; 3] = [".raw", ".shardfs", "images"];

/// The kinds of cache entries of a folder of messages.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// The entries of a segment, by its number.
    Entries,
    /// A batch of columns, by its number.
    Batch,
    /// Lines from a mark on, by its number.
    Lines,
    /// Sums of columns (0) or of lines (1).
    Totals,
    /// A decompressed message, by its row.
    Message,
}

impl Part {
    fn key(self, reader: &ReadContext, folder: u32, number: u64) -> Key {
        Key::new(reader.container, Tag::Own(self as u8), folder.into(), number)
    }
}

/// What a format has in addition to other recordings.
pub(super) trait Recorded: Send + Sync + 'static {
    /// Returns the name of the format.
    fn format(&self) -> &'static str;

    /// Returns `channel.json` of a folder.
    fn channel(&self, folder: usize, recording: &Recording) -> Value;

    /// Returns the keys of `container.json` for the whole file.
    fn front(&self, recording: &Recording) -> Map<String, Value>;

    /// Returns the other folders in the root.
    fn extras(&self) -> &[Extra];

    /// Returns the item of a file of another folder, without its path.
    fn extra_item(&self, extra: usize, file: usize) -> Map<String, Value>;

    /// Returns the bytes of a file of another folder.
    ///
    /// # Errors
    /// [`Fault`] if they cannot be read.
    fn extra(&self, reader: &ReadContext, extra: usize, file: usize) -> Result<View, Fault>;

    /// Checks the rest of the file; see [`Container::verify_rest`](super::Container::verify_rest).
    ///
    /// # Errors
    /// [`Fault`] if the file cannot be read.
    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        let _ = reader;
        Ok(Vec::new())
    }

    /// Returns the name of a block that is not a chunk, for messages.
    fn block_name(&self, block: u32) -> Option<String> {
        let _ = block;
        None
    }

    /// Returns the problems that were found when the file was opened.
    fn warnings(&self) -> &[String];

    /// Returns the bytes of memory that it takes.
    fn memory_usage(&self) -> usize;
}

/// A folder in the root beside `topics`.
pub(super) struct Extra {
    /// Its name.
    pub(super) name: &'static str,
    /// The names of its files, in order.
    pub(super) files: Vec<String>,
    by_name: HashMap<String, u32>,
}

impl Extra {
    /// Returns a folder of files with these names, which must be different.
    pub(super) fn new(name: &'static str, files: Vec<String>) -> Self {
        let by_name = files.iter().cloned().zip(0..).collect();
        Self { name, files, by_name }
    }
}

/// A schema that decodes messages, with its columns.
#[derive(Debug)]
pub(super) struct Shown {
    schema: Schema,
    flat: Flat,
    slots: Arc<[Slot]>,
    row_width: usize,
    files: Vec<(String, FileOf)>,
    pictures: Option<Kind>,
}

/// How messages of a folder are decoded.
#[derive(Debug, Clone)]
enum Decoder {
    /// They are JSON already.
    Json,
    /// By their schema.
    Schema(Arc<Shown>),
    /// They are not decoded, for this reason.
    None(Arc<str>),
}

impl Decoder {
    fn schema(&self) -> Option<&Shown> {
        if let Self::Schema(shown) = self { Some(shown) } else { None }
    }

    fn is_json(&self) -> bool {
        matches!(self, Self::Json)
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::None(_))
    }
}

/// The part of a recording that its files share.
#[derive(Debug)]
pub(super) struct Core {
    recording: Recording,
    layout: Box<dyn Layout>,
    /// Whether messages have a publish time and a sequence number.
    has_heads: bool,
    decoders: Vec<Decoder>,
    plans: Vec<Plan>,
    orders: Mutex<HashMap<u32, Arc<Order>>>,
    /// The suffix of the pictures of each folder that was opened.
    suffixes: Mutex<HashMap<u32, Option<&'static str>>>,
}

impl Core {
    fn messages(&self, folder: u32) -> u64 {
        self.recording.folders.get(folder as usize).map_or(0, |folder| folder.messages)
    }

    fn decoder(&self, folder: u32) -> &Decoder {
        static JSON: Decoder = Decoder::Json;
        self.decoders.get(folder as usize).unwrap_or(&JSON)
    }

    fn plan(&self, folder: u32) -> Plan {
        self.plans.get(folder as usize).cloned().unwrap_or_else(|| Plan::new(&Default::default(), Arc::default(), 1))
    }

    /// Returns whether the files of a folder that need all its messages are hidden.
    fn is_heavy(&self, folder: u32) -> bool {
        let weight = self.recording.folders.get(folder as usize).map_or(0, |folder| folder.weight);
        weight > LIGHT && self.messages(folder) > 0 && !self.decoder(folder).is_none()
    }
}

/// A recording.
pub(super) struct Tree<R: Recorded> {
    core: Arc<Core>,
    own: R,
    /// Folders below `topics`.
    topics: Paths<()>,
    /// The number of the folder of messages at each place below `topics`, and the place of each number.
    at: HashMap<NodeIndex, u32>,
    places: Vec<NodeIndex>,
    memory_usage: usize,
}

/// Returns the tree of a recording.
///
/// # Errors
/// [`FormatError`] if there is not enough memory.
pub(super) fn open<R: Recorded>(
    recording: Recording,
    layout: Box<dyn Layout>,
    has_heads: bool,
    own: R,
    memory: &dyn Memory,
) -> Result<Tree<R>, FormatError> {
    let (decoders, plans) = decoders(&recording, has_heads, memory)?;
    let (topics, places) = topics(&recording, memory)?;
    let at = places.iter().copied().zip(0..).collect();
    let schemas: HashMap<*const Shown, usize> = decoders
        .iter()
        .filter_map(Decoder::schema)
        .map(|shown| (std::ptr::from_ref(shown), shown.memory_usage()))
        .collect();
    let memory_usage = recording.memory_usage()
        + layout.memory_usage()
        + own.memory_usage()
        + topics.memory_usage()
        + decoders.len() * (size_of::<Decoder>() + size_of::<Plan>() + 32)
        + schemas.values().sum::<usize>();
    let (orders, suffixes) = (Mutex::default(), Mutex::default());
    let core = Arc::new(Core { recording, layout, has_heads, decoders, plans, orders, suffixes });
    Ok(Tree { core, own, topics, at, places, memory_usage })
}

impl Shown {
    fn memory_usage(&self) -> usize {
        self.schema.memory_usage()
            + self.flat.memory_usage()
            + size_of_val(&*self.slots)
            + self.files.iter().map(|(name, _)| name.len() + 64).sum::<usize>()
    }
}

/// Parses the schemas of all folders, each once.
fn decoders(
    recording: &Recording,
    has_heads: bool,
    memory: &dyn Memory,
) -> Result<(Vec<Decoder>, Vec<Plan>), SourceError> {
    memory.reserve((recording.folders.len() * (size_of::<Decoder>() + size_of::<Plan>() + 32)) as u64)?;
    let mut known: HashMap<(Option<u32>, &[u8]), Decoder> = HashMap::new();
    let (mut decoders, mut plans) = (Vec::new(), Vec::new());
    for folder in &recording.folders {
        let key = (folder.schema, &*folder.message_encoding);
        let decoder = match known.get(&key) {
            Some(decoder) => decoder.clone(),
            None => {
                let schema = folder.schema.and_then(|schema| recording.schemas.get(schema as usize));
                let decoder = if &*folder.message_encoding == b"json" {
                    Decoder::Json
                } else if let Some(text) = schema {
                    // A line of a definition has at least 7 bytes, and takes a few hundred bytes of memory.
                    memory.reserve((text.data.len() as u64).saturating_mul(32))?;
                    match messages::parse(&folder.message_encoding, &text.encoding, &text.name, &text.data) {
                        Ok(schema) => {
                            let shown = shown(&text.name, schema, has_heads);
                            memory.reserve(shown.memory_usage() as u64)?;
                            Decoder::Schema(Arc::new(shown))
                        }
                        Err(reason) => Decoder::None(reason.into()),
                    }
                } else {
                    Decoder::None("it has no schema".into())
                };
                known.insert(key, decoder.clone());
                decoder
            }
        };
        let (slots, width) = match &decoder {
            Decoder::Schema(shown) => (shown.slots.clone(), shown.row_width),
            _ => batch::slots(&Flat::default()),
        };
        plans.push(Plan::new(folder, slots, width));
        decoders.push(decoder);
    }
    Ok((decoders, plans))
}

fn shown(name: &[u8], schema: Schema, has_heads: bool) -> Shown {
    let flat = Flat::of(&schema);
    let (slots, row_width) = batch::slots(&flat);
    let files = files::of_columns(&flat, has_heads);
    let pictures = pictures::kind(name, &schema, &flat);
    Shown { schema, flat, slots, row_width, files, pictures }
}

/// Returns the folders below `topics`, and the place of each folder of messages.
fn topics(recording: &Recording, memory: &dyn Memory) -> Result<(Paths<()>, Vec<NodeIndex>), SourceError> {
    /// About the bytes of a folder in the table.
    const FOLDER: usize = 192;
    let mut builder = Builder::default();
    let mut taken: HashMap<(NodeIndex, &[u8]), u32> = HashMap::new();
    let mut places = Vec::new();
    for folder in &recording.folders {
        let topic = folder.topic.strip_prefix(b"/").unwrap_or(&folder.topic);
        let parts = topic.iter().filter(|byte| **byte == b'/').count() + 1;
        memory.reserve((parts * FOLDER + 3 * topic.len()) as u64)?;
        let mut parts = topic.split(|byte| *byte == b'/');
        let last = parts.next_back().unwrap_or_default();
        let mut place = paths::ROOT;
        for part in parts {
            place = builder.folder(place, &super::names::folder(part, &RESERVED, 1));
        }
        let number = taken.entry((place, last)).or_default();
        *number += 1;
        places.push(builder.folder(place, &super::names::folder(last, &RESERVED, *number)));
    }
    Ok((builder.finish(), places))
}

impl<R: Recorded> Tree<R> {
    fn overview_of(&self) -> Overview {
        describe::overview(self)
    }
}

/// Returns a text as a JSON value.
pub(super) fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, bytes);
            Value::Object(Map::from_iter([("base64".into(), encoded.into())]))
        }
    }
}

/// Returns a key as JSON shows it.
pub(super) fn key(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| escape::escape_all(bytes), str::to_owned)
}

/// Returns the failure of a read because of damage of a chunk.
fn damaged(chunk: u32, reason: &str) -> Fault {
    Fault { block: Some(chunk), offset: 0, error: Arc::new(BlockError::Refused(reason.to_owned())) }
}

/// Converts an error in a part of a file to a failure of the chunk.
fn fault_of(chunk: u32, error: PartError) -> Fault {
    match error {
        PartError::Damaged(reason) => damaged(chunk, &reason),
        PartError::Source(error) => error.into(),
    }
}
