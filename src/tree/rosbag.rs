//! ROS 1 bags: what they have in addition to what all recordings have (`docs/formats/rosbag.md`, section 4).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    Format, WorkingMemory, found,
    recording::{self, Extra, Recorded, Tree, decoded, text},
};
use crate::{
    format::{
        FormatError,
        recording::{EachChunk, Recording},
        rosbag::{self, Connection, Damage},
    },
    source::Memory,
    view::{Fault, ReadContext, View},
};

/// ROS 1 bags. Other programs have files of the same suffix.
pub static ROSBAG: Format = Format {
    name: "rosbag",
    title: "ROS bag",
    summary: "recordings of ROS 1",
    suffixes: &[rosbag::SUFFIX],
    recognise: rosbag::recognise,
    probe: |source, _, memory| rosbag::probe(source, memory),
    open: |reader, _, memory| Ok(Arc::new(open(reader, memory)?)),
    fixtures: &["drive.bag"],
    ..Format::DEFAULT
};

/// What a bag has in addition to topics.
struct Own {
    connections: Vec<Vec<Connection>>,
    damage: Damage,
    left_out: u64,
    warnings: Vec<String>,
    memory_usage: usize,
}

/// Opens a bag, and looks at each of its chunks.
///
/// # Errors
/// [`FormatError`] if it must be refused, cannot be read, or there is not enough memory for it.
fn open(reader: &ReadContext, memory: &WorkingMemory<'_>) -> Result<impl super::Container + use<>, FormatError> {
    let source = &*reader.source;
    let mut bag = rosbag::parse(source, memory)?;
    // Chunks may have to be decoded, which reserves other memory.
    memory.hold();
    let decode = &mut |number, block: &_, each: &mut EachChunk<'_>| decoded(reader, number, block, each);
    let found = bag.find(source, memory)?;
    let counts = match found.unindexed() {
        Some(part) => found::once(reader, "rosbag counts 1", part, memory, || found.count(memory, decode))?,
        None => rosbag::Counts::default(),
    };
    bag.add(found, counts, memory)?;
    tree(bag, memory)
}

fn tree(bag: rosbag::Bag, memory: &dyn Memory) -> Result<Tree<Own>, FormatError> {
    let memory_usage = bag.memory_usage();
    let mut warnings = Vec::new();
    for (count, what) in [
        (bag.damage.chunks, "damaged chunks are not shown, or not to their end"),
        (bag.damage.without_channel, "messages are of connections that are nowhere, and not shown"),
        (bag.left_out, "connections have topics of more than 32768 bytes, and are not shown"),
    ] {
        if count > 0 {
            warnings.push(format!("{count} {what}"));
        }
    }
    let own = Own { connections: bag.connections, damage: bag.damage, left_out: bag.left_out, warnings, memory_usage };
    recording::open(bag.recording, Box::new(bag.places), false, own, memory)
}

impl Recorded for Own {
    fn format(&self) -> &'static str {
        ROSBAG.name
    }

    fn channel(&self, folder: usize, recording: &Recording) -> Value {
        let (Some(connections), Some(folder)) = (self.connections.get(folder), recording.folders.get(folder)) else {
            return Value::Null;
        };
        let schema = folder.schema.and_then(|schema| recording.schemas.get(schema as usize));
        let schema = schema.map(|schema| json!({"name": text(&schema.name), "encoding": text(&schema.encoding)}));
        let own = |field: &Option<Box<[u8]>>| field.as_ref().map_or(Value::Null, |field| text(field));
        let connections = connections.iter().map(|connection| {
            json!({
                "id": connection.id,
                "callerid": own(&connection.callerid),
                "latching": own(&connection.latching),
                "md5sum": own(&connection.md5sum),
            })
        });
        json!({
            "topic": text(&folder.topic),
            "message_encoding": text(&folder.message_encoding),
            "schema": schema,
            "connections": connections.collect::<Vec<_>>(),
            "messages": folder.messages,
        })
    }

    fn front(&self, recording: &Recording) -> Map<String, Value> {
        let mut front = Map::new();
        let mut put = |name: &str, value: Value| drop(front.insert(name.into(), value));
        put("format", ROSBAG.name.into());
        put("version", "2.0".into());
        put("messages", recording.messages().into());
        put("channels", recording.folders.len().into());
        for (name, count) in [
            ("chunks_damaged", self.damage.chunks),
            ("messages_without_channel", self.damage.without_channel),
            ("channels_left_out", self.left_out),
        ] {
            if count > 0 {
                put(name, count.into());
            }
        }
        front
    }

    fn extras(&self) -> &[Extra] {
        &[]
    }

    fn extra_item(&self, _: usize, _: usize) -> Map<String, Value> {
        Map::new()
    }

    fn extra(&self, _: &ReadContext, _: usize, _: usize) -> Result<View, Fault> {
        Ok(View::default())
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn memory_usage(&self) -> usize {
        self.memory_usage
    }
}
