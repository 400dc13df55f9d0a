//! Messages of recordings: parses schemas and decodes messages (`docs/formats/mcap.md`, sections 6 and 7).
//!
//! A schema is parsed once for a channel: `definition` parses message definitions of ROS 1 and ROS 2, `descriptor`
//! those of protobuf. [`walk`] then goes through one message and passes its values to a [`Sink`] in the order of their
//! definition. [`flat::Flat`] makes columns of a message, [`text::Line`] a line of JSON.

mod definition;
mod descriptor;
pub mod flat;
mod ros;
mod schema;
pub mod text;
mod wire;

pub use schema::{Absent, Count, Encoding, Field, Kind, Message, Number, Schema, Time};

use super::{PartError, recording::CHUNK};
use crate::{
    codec::{Codec, zstd_size},
    source::{Memory, SourceError, to_usize, zeros},
};

/// Most levels of nested definitions, and of nested messages in a protobuf message.
pub const DEPTH: usize = 64;

/// Takes the values of a message, in the order of their definition.
pub trait Sink {
    /// A message begins: the whole one, the value of a field, or an element of a list.
    fn begin(&mut self, message: u32);

    /// The next value is that of this field, in the innermost message that has not ended.
    fn field(&mut self, field: &Field);

    /// The innermost message ends.
    fn end(&mut self);

    /// The field has presence and is absent: it has no value.
    fn absent(&mut self, field: &Field);

    /// A list of texts, byte strings, times, messages or numbers begins.
    fn begin_list(&mut self);

    /// The list ends.
    fn end_list(&mut self);

    /// A number, as the lowest bits.
    fn number(&mut self, number: Number, bits: u64);

    /// All numbers of a list.
    fn numbers(&mut self, number: Number, bytes: &[u8], is_big: bool);

    /// A text, which need not be UTF-8.
    fn text(&mut self, text: &[u8]);

    /// A byte string.
    fn bytes(&mut self, bytes: &[u8]);

    /// A time or duration.
    fn time(&mut self, time: Time, seconds: i64, nanos: i64);
}

/// Parses the schema of a channel. The error says why its messages are not decoded.
///
/// # Errors
/// The reason.
pub fn parse(message_encoding: &[u8], schema_encoding: &[u8], name: &[u8], data: &[u8]) -> Result<Schema, String> {
    match (message_encoding, schema_encoding) {
        (b"ros1", b"ros1msg") => definition::parse(name, data, Encoding::Ros1),
        (b"cdr", b"ros2msg") => definition::parse(name, data, Encoding::Cdr),
        (b"protobuf", b"protobuf") => descriptor::parse(name, data),
        _ => {
            let shown = |text: &[u8]| String::from_utf8_lossy(text).chars().take(64).collect::<String>();
            Err(format!("messages of `{}` by schemas of `{}`", shown(message_encoding), shown(schema_encoding)))
        }
    }
}

/// Returns the decompressed size of a message that is compressed by itself, as one zstd frame; `None` for all others.
///
/// # Errors
/// `Damaged` if it cannot have that size.
pub fn compressed(schema: &Schema, bytes: &[u8]) -> Result<Option<u64>, PartError> {
    /// The first bytes of a zstd frame. The first byte of CDR is 0.
    const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    if schema.encoding != Encoding::Cdr || !bytes.starts_with(&FRAME) {
        return Ok(None);
    }
    match zstd_size(bytes) {
        Some(size) if size <= CHUNK && Codec::Zstd.check_size(bytes.len() as u64, size).is_ok() => Ok(Some(size)),
        _ => bad("its zstd frame has no size, or one that cannot be"),
    }
}

/// Goes through a message. If it does not decode, the sink may have received some of its values.
///
/// # Errors
/// `Damaged` if it does not decode, `Source` if there is not enough memory for it.
pub fn walk(schema: &Schema, bytes: &[u8], memory: &dyn Memory, sink: &mut dyn Sink) -> Result<(), PartError> {
    let mut bytes = bytes;
    let mut decompressed;
    if let Some(size) = compressed(schema, bytes)? {
        memory.reserve(size.saturating_add(Codec::Zstd.working_memory(0, bytes.len() as u64, size)))?;
        decompressed = zeros(to_usize(size)).map_err(SourceError::from)?;
        let done = Codec::Zstd.decode_into(bytes, &mut decompressed);
        done.map_err(|error| PartError::Damaged(error.to_string()))?;
        bytes = &decompressed;
    }
    match schema.encoding {
        Encoding::Ros1 | Encoding::Cdr => ros::walk(schema, bytes, sink),
        Encoding::Protobuf => wire::walk(schema, bytes, memory, sink),
    }
}

fn bad<T>(reason: &str) -> Result<T, PartError> {
    Err(PartError::Damaged(reason.to_owned()))
}
