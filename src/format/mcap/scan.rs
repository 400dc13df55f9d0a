//! Reads all records of a file whose indexes cannot be relied on (`docs/formats/mcap.md`, section 3).

use std::ops::Range;

use super::{
    Attachment, Chunk, Damage, Mcap, Metadata, Places, chunk_block, ends,
    record::{self, HEAD, MESSAGE_HEAD, Record, next},
    summary::{Found, RECORD, Runs},
};
use crate::{
    format::{
        Class, Fields, FormatError, PartError,
        recording::{Decode, MESSAGES, Run, Window},
    },
    source::{Memory, Source, SourceError},
};

/// Most bytes of messages outside of chunks that are kept as one part.
const LOOSE: u64 = 1 << 20;

/// What a scan has found so far.
struct Scan<'a> {
    memory: &'a dyn Memory,
    found: Found,
    chunks: Vec<Chunk>,
    runs: Runs,
    damage: Damage,
    messages: u64,
    times: Option<(u64, u64)>,
}

/// Reads all records of a file. `begun` has its header; `decode` decodes chunks.
///
/// # Errors
/// [`FormatError`] if it cannot be read, or there is not enough memory for what is found.
pub fn scan(
    source: &dyn Source,
    memory: &dyn Memory,
    begun: Mcap,
    decode: &mut Decode<'_>,
) -> Result<Mcap, FormatError> {
    let ends = ends(source)?;
    let (found, chunks, runs) = (Found::default(), Vec::new(), Runs::new());
    let mut scan = Scan { memory, found, chunks, runs, damage: Damage::default(), messages: 0, times: None };
    let mut parsed = begun;
    scan.records(source, ends.header_end..ends.footer, &mut parsed, decode).map_err(|error| match error {
        PartError::Damaged(reason) => FormatError::refused(Class::BadFormat, reason),
        PartError::Source(error) => error.into(),
    })?;
    let Scan { found, chunks, mut runs, mut damage, times, .. } = scan;
    let unknown = runs.iter().filter(|(id, _)| !found.has_channel(**id));
    damage.without_channel = unknown.flat_map(|(_, (runs, _))| runs).map(|run| u64::from(run.count)).sum();
    runs.retain(|id, _| found.has_channel(*id));
    let (mut recording, channels, left_out) = found.finish(runs);
    let counted = std::mem::take(&mut parsed.recording);
    (recording.stored_size, recording.size) = (counted.stored_size, counted.size);
    (recording.compressions, recording.times) = (counted.compressions, times);
    let ids = channels.iter().map(|channel| channel.id).collect();
    Ok(Mcap { recording, channels, damage, left_out, places: Places { chunks, ids }, ..parsed })
}

impl Scan<'_> {
    fn records(
        &mut self,
        source: &dyn Source,
        range: Range<u64>,
        parsed: &mut Mcap,
        decode: &mut Decode<'_>,
    ) -> Result<(), PartError> {
        let (mut at, mut window) = (range.start, Window::new(source, range.end));
        let full = || format!("there are more than {MESSAGES} messages");
        while at < range.end {
            let bytes = window.from(at, HEAD + MESSAGE_HEAD)?;
            let (op, content) = match next(bytes, at, range.end) {
                Ok(found) => found,
                Err(error) => {
                    self.stop(at, error.to_string());
                    return Ok(());
                }
            };
            let length = content.end - content.start;
            match op {
                record::DATA_END | record::FOOTER => return Ok(()),
                record::SCHEMA | record::CHANNEL => {
                    self.memory.reserve(length)?;
                    let bytes = source.read(content.clone())?;
                    self.definition(op, &bytes)?;
                }
                record::MESSAGE => match (bytes.u16(9), bytes.u64(15)) {
                    (Some(channel), Some(time)) if length >= MESSAGE_HEAD => {
                        let chunk = self.loose(at..content.end)?;
                        if !self.message(chunk, channel, time, length - MESSAGE_HEAD)? {
                            self.stop(at, full());
                            return Ok(());
                        }
                    }
                    _ => self.damage.records += 1,
                },
                record::CHUNK_RECORD => {
                    let has_room = self.chunk(source, at..content.end, parsed, decode)?;
                    if !has_room {
                        self.stop(at, full());
                        return Ok(());
                    }
                }
                record::ATTACHMENT => match attachment(source, at, &content, self.memory)? {
                    Some(attachment) => parsed.attachments.push(attachment),
                    None => self.damage.records += 1,
                },
                record::METADATA => {
                    self.memory.reserve(length.saturating_add(RECORD))?;
                    let bytes = source.read(content.clone())?;
                    match record::metadata(&bytes) {
                        Some((name, _)) => {
                            let (name, length) = (name.into(), content.end - at);
                            parsed.metadata.push(Metadata { offset: at, length, name });
                        }
                        None => self.damage.records += 1,
                    }
                }
                _ => {}
            }
            at = content.end;
        }
        Ok(())
    }

    fn stop(&mut self, at: u64, reason: String) {
        self.damage.stopped = Some((at, reason));
    }

    /// Adds a schema or channel record.
    fn definition(&mut self, op: u8, content: &[u8]) -> Result<(), SourceError> {
        let is_sound = match op {
            record::SCHEMA => self.found.add_schema(content, self.memory)?,
            _ => self.found.add_channel(content, self.memory)?,
        };
        self.damage.records += u64::from(!is_sound);
        Ok(())
    }

    /// Returns the number of the part of the file that a message outside of chunks belongs to.
    fn loose(&mut self, record: Range<u64>) -> Result<u32, SourceError> {
        match self.chunks.last_mut() {
            Some(Chunk::Loose(range)) if range.end == record.start && record.end - range.start <= LOOSE => {
                range.end = record.end;
            }
            _ => {
                self.memory.reserve(2 * size_of::<Chunk>() as u64)?;
                self.chunks.push(Chunk::Loose(record));
            }
        }
        Ok(u32::try_from(self.chunks.len() - 1).unwrap_or(u32::MAX))
    }

    /// Counts a message. Returns whether there is room for it.
    fn message(&mut self, chunk: u32, channel: u16, time: u64, size: u64) -> Result<bool, SourceError> {
        if self.messages == MESSAGES {
            return Ok(false);
        }
        self.messages += 1;
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
        let (runs, weight) = self.runs.entry(channel).or_default();
        *weight = weight.saturating_add(size);
        match runs.last_mut() {
            Some(run) if run.chunk == chunk => run.count += 1,
            _ => {
                // Twice the size, because a list grows to twice its length.
                self.memory.reserve(2 * size_of::<Run>() as u64)?;
                runs.push(Run { chunk, count: 1 });
            }
        }
        Ok(true)
    }

    /// Reads a chunk. Returns whether there was room for its messages.
    fn chunk(
        &mut self,
        source: &dyn Source,
        record: Range<u64>,
        parsed: &mut Mcap,
        decode: &mut Decode<'_>,
    ) -> Result<bool, PartError> {
        let (block, compression) = match chunk_block(source, &record) {
            Ok(block) => block,
            Err(PartError::Damaged(_)) => {
                self.damage.chunks += 1;
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        self.memory.reserve(2 * size_of::<Chunk>() as u64)?;
        let number = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let (mut is_whole, mut has_room) = (true, true);
        let decoded = decode(number, &block, &mut |chunk| {
            is_whole = record::walk(chunk, &mut |record| {
                match record {
                    Record::Schema(content) => self.definition(record::SCHEMA, content)?,
                    Record::Channel(content) => self.definition(record::CHANNEL, content)?,
                    Record::Message { channel, time, size, .. } => {
                        has_room = has_room && self.message(number, channel, time, size)?;
                    }
                    Record::Short => self.damage.records += 1,
                }
                Ok(())
            })?;
            Ok(())
        });
        match decoded {
            Ok(()) => {
                parsed.recording.add_chunk(&compression, block.stored_size, block.size);
                self.damage.chunks += u64::from(!is_whole);
                self.chunks.push(Chunk::Walked { record });
                Ok(has_room)
            }
            Err(PartError::Damaged(_)) => {
                self.damage.chunks += 1;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads the fields of an attachment record; `None` if it is too short.
fn attachment(
    source: &dyn Source,
    at: u64,
    content: &Range<u64>,
    memory: &dyn Memory,
) -> Result<Option<Attachment>, SourceError> {
    let mut fixed = [0; 16];
    let mut place = content.start + 16;
    if place + 4 > content.end {
        return Ok(None);
    }
    source.fill(content.start, &mut fixed)?;
    let mut texts = [Box::<[u8]>::default(), Box::default()];
    for text in &mut texts {
        let mut length = [0; 4];
        if place + 4 > content.end {
            return Ok(None);
        }
        source.fill(place, &mut length)?;
        let range = place + 4..place + 4 + u64::from(u32::from_le_bytes(length));
        if range.end > content.end {
            return Ok(None);
        }
        memory.reserve(range.end - range.start)?;
        *text = source.read(range.clone())?.into();
        place = range.end;
    }
    let mut size = [0; 8];
    if place + 8 > content.end {
        return Ok(None);
    }
    source.fill(place, &mut size)?;
    let size = u64::from_le_bytes(size);
    let end = (place + 8).checked_add(size).and_then(|at| at.checked_add(4));
    if end.is_none_or(|end| end > content.end) {
        return Ok(None);
    }
    memory.reserve(RECORD)?;
    let [name, media_type] = texts;
    let [log_time, create_time] = [0, 8].map(|at| fixed.u64(at).unwrap_or(0));
    Ok(Some(Attachment { offset: at, length: content.end - at, log_time, create_time, size, name, media_type }))
}
