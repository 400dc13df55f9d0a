//! Parses single records of MCAP.

use std::ops::Range;

use crate::format::{
    Fields, PartError,
    mcap::Pairs,
    recording::{Bytes, Front},
};

pub(super) const HEADER: u8 = 1;
pub(super) const FOOTER: u8 = 2;
pub(super) const SCHEMA: u8 = 3;
pub(super) const CHANNEL: u8 = 4;
pub(super) const MESSAGE: u8 = 5;
pub(super) const CHUNK_RECORD: u8 = 6;
pub(super) const MESSAGE_INDEX: u8 = 7;
pub(super) const CHUNK_INDEX: u8 = 8;
pub(super) const ATTACHMENT: u8 = 9;
pub(super) const ATTACHMENT_INDEX: u8 = 10;
pub(super) const STATISTICS: u8 = 11;
pub(super) const METADATA: u8 = 12;
pub(super) const METADATA_INDEX: u8 = 13;
pub(super) const DATA_END: u8 = 15;

/// Bytes of a record before its content.
pub(super) const HEAD: u64 = 9;

/// Bytes of a message's content before its data.
pub(super) const MESSAGE_HEAD: u64 = 22;

/// Returns the opcode of the record that `bytes` begin with, and where its content is. The record begins at `at` and
/// must not reach past `end`.
pub(super) fn next(bytes: &[u8], at: u64, end: u64) -> Result<(u8, Range<u64>), PartError> {
    let head = bytes.first().copied().zip(bytes.u64(1));
    let sound = head.and_then(|(op, length)| {
        let start = at.checked_add(HEAD)?;
        Some((op, start..start.checked_add(length)?))
    });
    match sound {
        Some((0, _)) => Err(PartError::Damaged(format!("the record at {at} has the opcode 0"))),
        Some((op, content)) if content.end <= end => Ok((op, content)),
        _ => Err(PartError::Damaged(format!("the record at {at} does not end before {end}"))),
    }
}

/// A schema record.
pub(super) struct Schema<'a> {
    pub(super) id: u16,
    pub(super) name: &'a [u8],
    pub(super) encoding: &'a [u8],
    pub(super) data: &'a [u8],
}

/// Parses the content of a schema record.
pub(super) fn schema(content: &[u8]) -> Option<Schema<'_>> {
    let mut front = Front(content);
    Some(Schema { id: front.u16()?, name: front.string()?, encoding: front.string()?, data: front.string()? })
}

/// A channel record.
pub(super) struct Channel<'a> {
    pub(super) id: u16,
    pub(super) schema_id: u16,
    pub(super) topic: &'a [u8],
    pub(super) message_encoding: &'a [u8],
    pub(super) metadata: &'a [u8],
}

/// Parses the content of a channel record.
pub(super) fn channel(content: &[u8]) -> Option<Channel<'_>> {
    let mut front = Front(content);
    let channel = Channel {
        id: front.u16()?,
        schema_id: front.u16()?,
        topic: front.string()?,
        message_encoding: front.string()?,
        metadata: front.string()?,
    };
    pairs_in(channel.metadata).map(|_| channel)
}

/// Returns the number of pairs of a map; `None` if it is not sound.
fn pairs_in(map: &[u8]) -> Option<usize> {
    let (mut front, mut count) = (Front(map), 0);
    while !front.0.is_empty() {
        front.string()?;
        front.string()?;
        count += 1;
    }
    Some(count)
}

/// Returns the bytes of memory that the pairs of a map take.
pub(super) fn pairs_memory(map: &[u8]) -> u64 {
    (pairs_in(map).unwrap_or(0) * 64 + map.len()) as u64
}

/// Returns the pairs of a map.
pub(super) fn pairs(map: &[u8]) -> Pairs {
    let (mut front, mut pairs) = (Front(map), Vec::new());
    while let Some((key, value)) = front.string().and_then(|key| Some((key, front.string()?))) {
        pairs.push((key.into(), value.into()));
    }
    pairs
}

/// Parses the content of a metadata record: its name, and its map.
pub(super) fn metadata(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut front = Front(content);
    let (name, map) = (front.string()?, front.string()?);
    pairs_in(map).map(|_| (name, map))
}

/// The head of a chunk record.
pub(super) struct ChunkHead<'a> {
    pub(super) size: u64,
    pub(super) crc: u32,
    pub(super) compression: &'a [u8],
    pub(super) stored_size: u64,
    /// Bytes of the content before the records.
    pub(super) length: u64,
}

/// Parses the front of a chunk's content.
pub(super) fn chunk(content: &[u8]) -> Option<ChunkHead<'_>> {
    let mut front = Front(content);
    front.bytes(16)?;
    let (size, crc, compression, stored_size) = (front.u64()?, front.u32()?, front.string()?, front.u64()?);
    Some(ChunkHead { size, crc, compression, stored_size, length: (content.len() - front.0.len()) as u64 })
}

/// A record in a chunk.
pub(super) enum Record<'a> {
    /// The content of a schema record.
    Schema(&'a [u8]),
    /// The content of a channel record.
    Channel(&'a [u8]),
    /// A message, with where its record begins and the bytes of its data.
    Message { offset: u64, channel: u16, time: u64, size: u64 },
    /// A message that is too short.
    Short,
}

/// Goes through the records of a chunk, up to one that is not sound. Returns whether all are sound.
pub(super) fn walk(
    chunk: &dyn Bytes,
    each: &mut dyn FnMut(Record<'_>) -> Result<(), PartError>,
) -> Result<bool, PartError> {
    let (mut at, end) = (0, chunk.length());
    let mut steps = 0u32;
    while at < end {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(4096) {
            crate::wanted::check().map_err(crate::source::SourceError::from)?;
        }
        let bytes = chunk.get(at, (end - at).min(HEAD + MESSAGE_HEAD))?;
        let Ok((op, content)) = next(&bytes, at, end) else { return Ok(false) };
        let length = content.end - content.start;
        match op {
            MESSAGE => match (bytes.u16(9), bytes.u64(15)) {
                (Some(channel), Some(time)) if length >= MESSAGE_HEAD => {
                    each(Record::Message { offset: at, channel, time, size: length - MESSAGE_HEAD })?;
                }
                _ => each(Record::Short)?,
            },
            SCHEMA => each(Record::Schema(&chunk.get(content.start, length)?))?,
            CHANNEL => each(Record::Channel(&chunk.get(content.start, length)?))?,
            _ => {}
        }
        at = content.end;
    }
    Ok(true)
}
