//! The summary of a file, and whether its indexes can be relied on (`docs/formats/mcap.md`, section 3).

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use super::{
    Attachment, Channel, Chunk, Ends, Mcap, Metadata, Places, indexes_in,
    record::{self, HEAD},
};
use crate::{
    format::{
        CrcKind, Fields, PartError,
        recording::{Folder, Front, MESSAGES, Recording, Run, SchemaText, TOPIC, Window},
    },
    source::{Memory, Source, SourceError, to_usize},
};

/// Memory of a record in addition to its texts.
pub(super) const RECORD: u64 = 256;

/// Chunks whose message indexes are asked for at once.
const TOGETHER: usize = 64;

/// Bytes of a message index before its entries: channel and length.
const INDEX_FRONT: u64 = 6;

/// Bytes of an entry of a message index.
const ENTRY: u64 = 16;

/// The runs of each channel, and its weight (see `Folder::weight`).
pub(super) type Runs = HashMap<u16, (Vec<Run>, u64)>;

/// Channels and schemas as they are found. If an id occurs twice, the first counts.
#[derive(Default)]
pub(super) struct Found {
    schemas: BTreeMap<u16, u32>,
    texts: Vec<SchemaText>,
    channels: BTreeMap<u16, (Folder, Channel)>,
}

impl Found {
    /// Adds a schema record. Returns whether it is sound.
    pub(super) fn add_schema(&mut self, content: &[u8], memory: &dyn Memory) -> Result<bool, SourceError> {
        let Some(schema) = record::schema(content) else { return Ok(false) };
        if schema.id != 0 && !self.schemas.contains_key(&schema.id) {
            memory.reserve(content.len() as u64 + RECORD)?;
            #[expect(clippy::cast_possible_truncation, reason = "ids have 16 bits")]
            self.schemas.insert(schema.id, self.texts.len() as u32);
            let (name, encoding, data) = (schema.name.into(), schema.encoding.into(), schema.data.into());
            self.texts.push(SchemaText { name, encoding, data });
        }
        Ok(true)
    }

    /// Adds a channel record. Returns whether it is sound.
    pub(super) fn add_channel(&mut self, content: &[u8], memory: &dyn Memory) -> Result<bool, SourceError> {
        let Some(channel) = record::channel(content) else { return Ok(false) };
        if !self.has_channel(channel.id) {
            memory.reserve(content.len() as u64 + record::pairs_memory(channel.metadata) + 2 * RECORD)?;
            let folder = Folder {
                topic: channel.topic.into(),
                message_encoding: channel.message_encoding.into(),
                ..Folder::default()
            };
            let metadata = record::pairs(channel.metadata);
            let more = Channel { id: channel.id, schema_id: channel.schema_id, metadata };
            self.channels.insert(channel.id, (folder, more));
        }
        Ok(true)
    }

    pub(super) fn has_channel(&self, id: u16) -> bool {
        self.channels.contains_key(&id)
    }

    /// Returns a channel whose schema is missing.
    fn without_schema(&self) -> Option<u16> {
        let has_none = |channel: &&Channel| channel.schema_id != 0 && !self.schemas.contains_key(&channel.schema_id);
        self.channels.values().map(|(_, channel)| channel).find(has_none).map(|channel| channel.id)
    }

    /// Returns the topics, a channel for each of them, and how many channels are left out.
    pub(super) fn finish(self, mut runs: Runs) -> (Recording, Vec<Channel>, u64) {
        let (mut folders, mut channels, mut left_out) = (Vec::new(), Vec::new(), 0);
        for (id, (mut folder, channel)) in self.channels {
            if folder.topic.len() > TOPIC {
                left_out += 1;
                continue;
            }
            let (runs, weight) = runs.remove(&id).unwrap_or_default();
            folder.messages = runs.iter().map(|run| u64::from(run.count)).sum();
            (folder.runs, folder.weight) = (runs, weight);
            folder.schema = self.schemas.get(&channel.schema_id).copied();
            folders.push(folder);
            channels.push(channel);
        }
        (Recording { folders, schemas: self.texts, ..Recording::default() }, channels, left_out)
    }
}

fn damaged<T>(reason: impl Into<String>) -> Result<T, PartError> {
    Err(PartError::Damaged(reason.into()))
}

/// A chunk index.
struct ChunkIndex {
    times: (u64, u64),
    offset: u64,
    length: u64,
    /// The channels that have a message index, and where it is.
    channels: Box<[(u16, u64)]>,
    indexes: u64,
    size: u64,
}

impl ChunkIndex {
    /// Where the message indexes are. Only for chunks that lie inside the file.
    fn indexes(&self) -> Range<u64> {
        let start = self.offset + self.length;
        start..start + self.indexes
    }

    /// Returns the number of messages of each channel, by the distances between its message indexes. `None` unless these
    /// follow each other without a gap and fill the place after the chunk.
    fn counts(&self) -> Option<Vec<(u16, u32)>> {
        let Range { start, end } = self.indexes();
        let mut at = start;
        let mut counts = Vec::with_capacity(self.channels.len());
        for (number, (channel, offset)) in self.channels.iter().enumerate() {
            let next = self.channels.get(number + 1).map_or(end, |(_, next)| *next);
            let entries = next.checked_sub(*offset)?.checked_sub(HEAD + INDEX_FRONT)?;
            if *offset != at || !entries.is_multiple_of(ENTRY) {
                return None;
            }
            counts.push((*channel, u32::try_from(entries / ENTRY).ok()?));
            at = next;
        }
        (at == end).then_some(counts)
    }
}

/// The counts of the statistics record, and the first and last time.
struct Statistics {
    messages: u64,
    /// Chunks, attachments, metadata.
    counts: [u64; 3],
    times: (u64, u64),
    /// Messages of each channel, as stored: pairs of u16 and u64. May be empty.
    channels: Box<[u8]>,
}

/// What the summary has in addition to channels and schemas.
#[derive(Default)]
struct Indexes {
    chunks: Vec<ChunkIndex>,
    attachments: Vec<Attachment>,
    metadata: Vec<Metadata>,
    statistics: Option<Statistics>,
}

impl Indexes {
    /// Adds a record. Returns whether it is sound.
    fn add(
        &mut self,
        op: u8,
        content: &[u8],
        recording: &mut Recording,
        memory: &dyn Memory,
    ) -> Result<bool, SourceError> {
        let mut front = Front(content);
        let added = match op {
            record::CHUNK_INDEX => {
                // The channels are in memory twice while they are sorted.
                memory.reserve(RECORD + 4 * content.len() as u64)?;
                self.chunk(&mut front, recording)
            }
            record::ATTACHMENT_INDEX => {
                memory.reserve(RECORD + content.len() as u64)?;
                self.attachment(&mut front)
            }
            record::METADATA_INDEX => {
                memory.reserve(RECORD + content.len() as u64)?;
                self.metadata(&mut front)
            }
            record::STATISTICS => {
                memory.reserve(RECORD + 4 * content.len() as u64)?;
                self.statistics(&mut front)
            }
            _ => Some(()),
        };
        Ok(added.is_some())
    }

    fn chunk(&mut self, front: &mut Front<'_>, recording: &mut Recording) -> Option<()> {
        let times = (front.u64()?, front.u64()?);
        let (offset, length) = (front.u64()?, front.u64()?);
        let map = front.string()?;
        let indexes = front.u64()?;
        let (compression, stored, size) = (front.string()?, front.u64()?, front.u64()?);
        if map.len() % 10 != 0 {
            return None;
        }
        let pair = |pair: &[u8]| Some((pair.u16(0)?, pair.u64(2)?));
        let mut channels: Box<[_]> = map.chunks_exact(10).filter_map(pair).collect();
        channels.sort_unstable_by_key(|(_, offset)| *offset);
        recording.add_chunk(compression, stored, size);
        self.chunks.push(ChunkIndex { times, offset, length, channels, indexes, size });
        Some(())
    }

    fn attachment(&mut self, front: &mut Front<'_>) -> Option<()> {
        self.attachments.push(Attachment {
            offset: front.u64()?,
            length: front.u64()?,
            log_time: front.u64()?,
            create_time: front.u64()?,
            size: front.u64()?,
            name: front.string()?.into(),
            media_type: front.string()?.into(),
        });
        Some(())
    }

    fn metadata(&mut self, front: &mut Front<'_>) -> Option<()> {
        self.metadata.push(Metadata { offset: front.u64()?, length: front.u64()?, name: front.string()?.into() });
        Some(())
    }

    fn statistics(&mut self, front: &mut Front<'_>) -> Option<()> {
        let messages = front.u64()?;
        // The numbers of schemas and channels are not needed.
        front.bytes(6)?;
        let [attachments, metadata, chunks] = [front.u32()?, front.u32()?, front.u32()?].map(u64::from);
        let times = (front.u64()?, front.u64()?);
        let channels: Box<[u8]> = front.string()?.into();
        let is_sound = channels.len().is_multiple_of(10);
        let counts = [chunks, attachments, metadata];
        self.statistics.get_or_insert(Statistics { messages, counts, times, channels });
        is_sound.then_some(())
    }

    /// Checks that what the indexes point to lies in the data section, and that nothing overlaps.
    fn check_places(&self, data: Range<u64>, memory: &dyn Memory) -> Result<(), PartError> {
        let chunks = self.chunks.iter().map(|chunk| (chunk.offset, chunk.length, chunk.indexes));
        let attachments = self.attachments.iter().map(|attachment| (attachment.offset, attachment.length, 0));
        let metadata = self.metadata.iter().map(|metadata| (metadata.offset, metadata.length, 0));
        let count = self.chunks.len() + self.attachments.len() + self.metadata.len();
        memory.reserve(16 * count as u64)?;
        let mut places = Vec::with_capacity(count);
        for (start, length, more) in chunks.chain(attachments).chain(metadata) {
            let end = start.checked_add(length).and_then(|end| end.checked_add(more)).filter(|end| *end <= data.end);
            match end.filter(|_| length >= HEAD && start >= data.start) {
                Some(end) => places.push((start, end)),
                None => {
                    return damaged(format!("an index points to {length} bytes at {start}, outside the data section"));
                }
            }
        }
        places.sort_unstable();
        match places.iter().zip(places.iter().skip(1)).find(|(first, next)| first.1 > next.0) {
            Some((first, next)) => damaged(format!("indexes point to {} and to {}, which overlap", first.0, next.0)),
            None => Ok(()),
        }
    }
}

/// Parses the summary. Message indexes are read only if the summary does not say how many messages they have.
pub(super) fn parse(source: &dyn Source, ends: &Ends, memory: &dyn Memory) -> Result<Mcap, PartError> {
    let (start, footer) = (ends.summary_start, ends.footer);
    if start == 0 {
        return damaged("there is no summary");
    }
    let offsets = ends.summary_offset_start;
    if offsets != 0 && !(start..=footer).contains(&offsets) {
        return damaged(format!("the summary offsets begin at {offsets}, outside the summary"));
    }
    let range = ends.summary_range();
    memory.reserve(range.end - range.start)?;
    let summary = source.read(range.clone())?;
    if ends.summary_crc != 0 {
        let computed = CrcKind::Crc32.of(&summary);
        if computed != ends.summary_crc {
            return damaged(format!("the CRC of the summary is {computed:08x}, stored is {:08x}", ends.summary_crc));
        }
        source.note_checked(&range);
    }
    let (mut found, mut indexes, mut counted) = (Found::default(), Indexes::default(), Recording::default());
    let (mut at, end) = (0, footer - start);
    while at < end {
        let bytes = summary.get(to_usize(at)..).unwrap_or_default();
        let place = start + at;
        let unsound = |_| PartError::Damaged(format!("the record at {place} of the summary is not sound"));
        let (op, range) = record::next(bytes, at, end).map_err(unsound)?;
        let content = summary.get(to_usize(range.start)..to_usize(range.end)).unwrap_or_default();
        let is_sound = match op {
            record::SCHEMA => found.add_schema(content, memory)?,
            record::CHANNEL => found.add_channel(content, memory)?,
            op => indexes.add(op, content, &mut counted, memory)?,
        };
        if !is_sound {
            return damaged(format!("the record at {place} of the summary is too short"));
        }
        at = range.end;
    }
    let Some(statistics) = indexes.statistics.take() else { return damaged("there are no statistics") };
    let counts = [indexes.chunks.len(), indexes.attachments.len(), indexes.metadata.len()].map(|count| count as u64);
    if statistics.counts != counts {
        let stated = statistics.counts;
        return damaged(format!("of chunks, attachments and metadata {stated:?} are counted, {counts:?} indexed"));
    }
    indexes.chunks.sort_by_key(|chunk| chunk.offset);
    indexes.check_places(ends.header_end..start, memory)?;
    if let Some(id) = found.without_schema() {
        return damaged(format!("the schema of channel {id} is not in the summary"));
    }
    let runs = match stated(&indexes.chunks, &statistics, &found, memory)? {
        Some(runs) => runs,
        None => count(source, &indexes.chunks, statistics.messages, &found, memory)?,
    };
    let are_times_sound = are_times_sound(&indexes.chunks, &statistics);
    let (mut recording, channels, left_out) = found.finish(runs);
    (recording.stored_size, recording.size) = (counted.stored_size, counted.size);
    recording.compressions = counted.compressions;
    recording.times = Some(statistics.times).filter(|_| statistics.messages > 0);
    let ids = channels.iter().map(|channel| channel.id).collect();
    let chunks = indexes.chunks.iter().map(|chunk| Chunk::Indexed {
        record: chunk.offset..chunk.offset + chunk.length,
        indexes: chunk.indexes(),
        // Both are 0 in a chunk without messages, and where a program did not know them.
        times: Some(chunk.times).filter(|times| are_times_sound && *times != (0, 0)),
    });
    Ok(Mcap {
        is_indexed: true,
        recording,
        channels,
        attachments: indexes.attachments,
        metadata: indexes.metadata,
        left_out,
        places: Places { chunks: chunks.collect(), ids },
        ..Mcap::default()
    })
}

/// Returns whether the times of the chunks can be relied on: each ends after it begins, and the first and the last are
/// those of the statistics.
fn are_times_sound(chunks: &[ChunkIndex], statistics: &Statistics) -> bool {
    let filled = || chunks.iter().filter(|chunk| chunk.indexes > 0);
    let first = filled().map(|chunk| chunk.times.0).min();
    let last = filled().map(|chunk| chunk.times.1).max();
    filled().all(|chunk| chunk.times.0 <= chunk.times.1) && first.zip(last) == Some(statistics.times)
}

/// Notes the messages of a channel in a chunk.
fn add_run(
    runs: &mut Runs,
    channel: u16,
    run: Run,
    chunk: &ChunkIndex,
    memory: &dyn Memory,
) -> Result<(), SourceError> {
    let (runs, weight) = runs.entry(channel).or_default();
    match runs.last_mut() {
        Some(last) if last.chunk == run.chunk => last.count = last.count.saturating_add(run.count),
        _ => {
            // Twice the size, because a list grows to twice its length.
            memory.reserve(2 * size_of::<Run>() as u64)?;
            runs.push(run);
            *weight = weight.saturating_add(chunk.size);
        }
    }
    Ok(())
}

/// Returns how many messages each channel has in each chunk, by the summary alone; `None` if the summary does not say it,
/// or contradicts itself.
fn stated(
    chunks: &[ChunkIndex],
    statistics: &Statistics,
    found: &Found,
    memory: &dyn Memory,
) -> Result<Option<Runs>, SourceError> {
    let mut runs = Runs::new();
    let mut all = 0u64;
    for (number, chunk) in (0u32..).zip(chunks) {
        let Some(counts) = chunk.counts() else { return Ok(None) };
        for (channel, count) in counts {
            all = all.saturating_add(count.into());
            if count > 0 && !found.has_channel(channel) || all > statistics.messages.min(MESSAGES) {
                return Ok(None);
            }
            if count > 0 {
                add_run(&mut runs, channel, Run { chunk: number, count }, chunk, memory)?;
            }
        }
    }
    let stated = statistics.channels.chunks_exact(10).filter_map(|pair| Some((pair.u16(0)?, pair.u64(2)?)));
    let mut stated: HashMap<u16, u64> = stated.filter(|(_, count)| *count > 0).collect();
    let is_same = runs.iter().all(|(channel, (runs, _))| {
        stated.remove(channel) == Some(runs.iter().map(|run| u64::from(run.count)).sum::<u64>())
    });
    let are_channels_right = statistics.channels.is_empty() || is_same && stated.is_empty();
    Ok(Some(runs).filter(|_| all == statistics.messages && are_channels_right))
}

/// Counts the entries of the message indexes by channel and chunk, and adds up the sizes of the chunks of each channel.
fn count(
    source: &dyn Source,
    chunks: &[ChunkIndex],
    stated: u64,
    found: &Found,
    memory: &dyn Memory,
) -> Result<Runs, PartError> {
    let mut runs = Runs::new();
    let mut all = 0u64;
    for (number, chunk) in (0u32..).zip(chunks) {
        if (number as usize).is_multiple_of(TOGETHER) {
            let next = chunks.iter().skip(number as usize).take(TOGETHER).map(ChunkIndex::indexes);
            source.prefetch(&next.filter(|range| !range.is_empty()).collect::<Vec<_>>());
        }
        let range = chunk.indexes();
        let mut window = Window::new(source, range.end);
        indexes_in(&mut window, &range, &mut |_, channel, entries| {
            let entries = (entries.end - entries.start) / ENTRY;
            if entries == 0 {
                return Ok(());
            }
            if !found.has_channel(channel) {
                return damaged(format!("a message index at {} names the unknown channel {channel}", range.start));
            }
            all = all.saturating_add(entries);
            if all > stated.min(MESSAGES) {
                return damaged(format!("the message indexes have more than {} entries", stated.min(MESSAGES)));
            }
            let count = u32::try_from(entries).unwrap_or(u32::MAX);
            Ok(add_run(&mut runs, channel, Run { chunk: number, count }, chunk, memory)?)
        })?;
    }
    match all == stated {
        true => Ok(runs),
        false => damaged(format!("the message indexes have {all} entries, the statistics count {stated} messages")),
    }
}
