//! ROS 1 bags, version 2.0 (`docs/formats/rosbag.md`).
//!
//! [`probe`] and [`parse`] read the index section at the end of the file. [`Bag::find`] then reads the head of each chunk
//! and the index data after it. Chunks without index data are decoded by [`Found::count`].

mod record;

use std::{collections::HashMap, ops::Range};

use serde::{Deserialize, Serialize};

use super::{
    Block, Class, Fields, FormatError, Front as FileFront, PartError, Recognition,
    recording::{
        Bytes, CHUNK, Entry, Folder, Layout, MESSAGES, Parts, Placed, Recording, Run, SchemaText, TOPIC, Window,
    },
};
use crate::{
    codec::{Chain, Codec, Filter},
    source::{Memory, Source, to_usize},
};
use record::{Header, time};

/// First bytes of a file.
pub const MAGIC: &[u8] = b"#ROSBAG V2.0\n";

/// First bytes of files of any version.
const ANY: &[u8] = b"#ROSBAG V";

/// The suffix of its files.
pub const SUFFIX: &str = ".bag";

/// Most connections.
const CONNECTIONS: u64 = 65_535;

/// Memory of a connection or chunk in addition to its texts.
const RECORD: u64 = 256;

/// Chunks whose heads are asked for at once.
const TOGETHER: usize = 64;

/// Bytes before and after the beginning of a chunk that are asked for first.
const NEAR: u64 = 4 << 10;

/// Longest header of a record in a chunk, in bytes.
const LONGEST: u64 = 1 << 20;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its number.
    pub id: u32,
    /// Fields of its data; `None` if absent.
    pub callerid: Option<Box<[u8]>>,
    /// See [`Self::callerid`].
    pub latching: Option<Box<[u8]>>,
    /// See [`Self::callerid`].
    pub md5sum: Option<Box<[u8]>>,
}

/// A chunk.
#[derive(Debug)]
struct Chunk {
    record: Range<u64>,
    /// Its index data, if they are used.
    indexes: Option<Indexes>,
    /// Whether it is compressed, so that it is read whole.
    is_compressed: bool,
}

/// The index data of a chunk.
#[derive(Debug)]
struct Indexes {
    range: Range<u64>,
    /// The first and last time in them.
    times: (u64, u64),
}

/// The damage that was found.
#[derive(Debug, Default, Clone)]
pub struct Damage {
    /// Chunks that cannot be read, or not to their end.
    pub chunks: u64,
    /// Messages of connections that are not in the file.
    pub without_channel: u64,
}

/// A parsed bag.
#[derive(Debug, Default)]
pub struct Bag {
    /// Topics and schemas.
    pub recording: Recording,
    /// The connections of each folder.
    pub connections: Vec<Vec<Connection>>,
    /// The damage that was found.
    pub damage: Damage,
    /// Connections whose topic is too long.
    pub left_out: u64,
    /// Where the chunks are.
    pub places: Places,
    /// Chunk infos in the order of their places.
    infos: Vec<Info>,
    index_pos: u64,
}

/// Where chunks and the messages in them are.
#[derive(Debug, Default)]
pub struct Places {
    chunks: Vec<Chunk>,
    /// The folder of each connection.
    folders: HashMap<u32, u32>,
}

/// A chunk info: where a chunk is, and how many messages of each connection it has.
#[derive(Debug)]
struct Info {
    offset: u64,
    counts: Vec<(u32, u32)>,
}

/// The chunks of a bag, before their messages are counted.
#[derive(Debug)]
pub struct Found {
    chunks: Vec<Candidate>,
    /// Chunks that cannot be found.
    damaged: u64,
}

#[derive(Debug)]
struct Candidate {
    /// The number of its info.
    info: usize,
    block: Block,
    compression: &'static str,
    chunk: Chunk,
}

/// The messages of the chunks without index data, in the order of these chunks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts(Vec<Option<Counted>>);

/// The messages of a chunk.
#[derive(Debug, Serialize, Deserialize)]
struct Counted {
    /// Connections, and how many messages each has.
    messages: Vec<(u32, u32)>,
    /// Whether the chunk was read to its end.
    is_whole: bool,
}

impl Found {
    /// Returns the part of the file with all chunks that have no index data; `None` if there are none.
    pub fn unindexed(&self) -> Option<Range<u64>> {
        let mut records = self.unindexed_chunks().map(|candidate| &candidate.chunk.record);
        let first = records.next()?;
        Some(first.start..records.last().unwrap_or(first).end)
    }

    fn unindexed_chunks(&self) -> impl Iterator<Item = &Candidate> {
        self.chunks.iter().filter(|candidate| candidate.chunk.indexes.is_none())
    }

    /// Counts the messages of the chunks without index data, which are decoded by `decode`.
    ///
    /// # Errors
    /// [`FormatError`] if something cannot be read, or there is not enough memory.
    pub fn count(&self, memory: &dyn Memory, decode: &mut super::recording::Decode<'_>) -> Result<Counts, FormatError> {
        let (mut number, mut counts) = (0, Vec::new());
        for Candidate { block, compression, chunk, .. } in &self.chunks {
            if chunk.indexes.is_some() {
                number += 1;
                continue;
            }
            let mut here: HashMap<u32, u32> = HashMap::new();
            let mut is_whole = true;
            let counted = sound(block, compression, chunk.record.start).and_then(|()| {
                decode(number, block, &mut |chunk| {
                    is_whole = record::messages(chunk, &mut |entry| *here.entry(entry.source).or_default() += 1)?;
                    Ok(())
                })
            });
            // Twice, because a list grows to twice its length.
            memory.reserve((2 * size_of::<Option<Counted>>() + 8 * here.len()) as u64)?;
            counts.push(match counted {
                Ok(()) => {
                    number += 1;
                    Some(Counted { messages: here.into_iter().collect(), is_whole })
                }
                Err(PartError::Damaged(_)) => None,
                Err(PartError::Source(error)) => return Err(error.into()),
            });
        }
        Ok(Counts(counts))
    }
}

/// Returns whether a file may be of this format.
pub fn recognise(front: &FileFront<'_>) -> Recognition {
    if is_version(front.bytes) || front.has_suffix(&[SUFFIX]) { Recognition::Meant } else { Recognition::No }
}

/// Returns whether a file begins like a bag of any version.
fn is_version(front: &[u8]) -> bool {
    let version = front.strip_prefix(ANY).and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = version.unwrap_or_default().splitn(2, |byte| *byte == b'.');
    version.is_some_and(|version| front.len() > ANY.len() + version.len())
        && parts.next().is_some_and(is_number)
        && parts.next().is_some_and(is_number)
}

/// Parses the index section, and refuses the file by the rules of section 2.
///
/// # Errors
/// [`FormatError`].
pub fn probe(source: &dyn Source, memory: &dyn Memory) -> Result<(), FormatError> {
    parse(source, memory).map(drop)
}

fn refused<T>(class: Class, reason: impl Into<String>) -> Result<T, FormatError> {
    Err(FormatError::refused(class, reason))
}

/// Parses the index section.
///
/// # Errors
/// [`FormatError`] if it must be refused, cannot be read, or there is not enough memory for it.
pub fn parse(source: &dyn Source, memory: &dyn Memory) -> Result<Bag, FormatError> {
    let mut front = [0; 64];
    let length = usize::try_from(source.len()).map_or(front.len(), |len| len.min(front.len()));
    let front = front.get_mut(..length).unwrap_or_default();
    source.fill(0, front)?;
    if !is_version(front) {
        return refused(Class::NotBag, "it does not begin with the magic");
    }
    if !front.starts_with(MAGIC) {
        return refused(Class::Version, "it is not of version 2.0; try `rosbag fix`");
    }
    let start = MAGIC.len() as u64;
    let mut window = Window::new(source, source.len());
    let head = record::read(source, &mut window, start, source.len(), Some(memory))?;
    let Some((header, data)) = head.filter(|(header, _)| header.op() == Some(3)) else {
        return refused(Class::BadHeader, "the first record is no bag header");
    };
    let (index_pos, connections, chunks) =
        (header.u64("index_pos"), header.u32("conn_count"), header.u32("chunk_count"));
    let (Some(index_pos), Some(connections), Some(chunks)) = (index_pos, connections, chunks) else {
        return refused(Class::BadHeader, "the bag header lacks a field");
    };
    if header.get("encryptor").is_some_and(|encryptor| !encryptor.is_empty()) {
        return refused(Class::Encrypted, "it is encrypted");
    }
    if index_pos == 0 || index_pos > source.len() {
        return refused(Class::Unindexed, "recording was interrupted, or the file was cut; try `rosbag reindex`");
    }
    if index_pos < data.end || u64::from(connections) > CONNECTIONS {
        return refused(Class::BadIndex, "the index section is not sound; try `rosbag reindex`");
    }
    let mut bag = Bag { index_pos, ..Bag::default() };
    let after = bag.read_connections(source, &mut window, connections, memory)?;
    bag.read_infos(source, &mut window, (after, data.end), chunks, memory)?;
    Ok(bag)
}

fn unsound<T>(at: u64) -> Result<T, FormatError> {
    refused(Class::BadIndex, format!("the record at {at} of the index section is not sound; try `rosbag reindex`"))
}

impl Bag {
    /// Reads the connection records; returns where they end.
    fn read_connections(
        &mut self,
        source: &dyn Source,
        window: &mut Window<'_>,
        count: u32,
        memory: &dyn Memory,
    ) -> Result<u64, FormatError> {
        type Same = (Box<[u8]>, Box<[u8]>, Box<[u8]>);
        let mut folders: HashMap<Same, u32> = HashMap::new();
        let (mut at, mut found) = (self.index_pos, Vec::new());
        for _ in 0..count {
            let record = record::read(source, window, at, source.len(), Some(memory))?;
            let Some((header, data)) = record.filter(|(header, _)| header.op() == Some(7)) else { return unsound(at) };
            let (Some(id), Some(topic)) = (header.u32("conn"), header.get("topic")) else { return unsound(at) };
            memory.reserve(3 * (data.end - data.start) + topic.len() as u64 + 4 * RECORD)?;
            let bytes = source.read(data.clone())?;
            let Some(fields) = Header::parse(&bytes) else { return unsound(at) };
            let (Some(kind), Some(definition)) = (fields.get("type"), fields.get("message_definition")) else {
                return unsound(at);
            };
            let own = |name| fields.get(name).map(Box::from);
            let (callerid, latching, md5sum) = (own("callerid"), own("latching"), own("md5sum"));
            let same: Same = (topic.into(), kind.into(), definition.into());
            found.push((Connection { id, callerid, latching, md5sum }, same));
            at = data.end;
        }
        // If a connection has two records, the first counts.
        found.sort_by_key(|(connection, _)| connection.id);
        found.dedup_by_key(|(connection, _)| connection.id);
        for (connection, same) in found {
            let id = connection.id;
            if same.0.len() > TOPIC {
                self.left_out += 1;
                continue;
            }
            let folder = match folders.get(&same) {
                Some(folder) => *folder,
                None => {
                    #[expect(clippy::cast_possible_truncation, reason = "`CONNECTIONS` bounds them")]
                    let folder = self.connections.len() as u32;
                    let (topic, name, data) = same.clone();
                    self.recording.schemas.push(SchemaText { name, encoding: (*b"ros1msg").into(), data });
                    let schema = Some(folder);
                    let message_encoding = (*b"ros1").into();
                    self.recording.folders.push(Folder { topic, message_encoding, schema, ..Folder::default() });
                    self.connections.push(Vec::new());
                    folders.insert(same, folder);
                    folder
                }
            };
            self.places.folders.insert(id, folder);
            if let Some(connections) = self.connections.get_mut(folder as usize) {
                connections.push(connection);
            }
        }
        Ok(at)
    }

    /// Reads the chunk infos after the connections.
    fn read_infos(
        &mut self,
        source: &dyn Source,
        window: &mut Window<'_>,
        (start, header_end): (u64, u64),
        count: u32,
        memory: &dyn Memory,
    ) -> Result<(), FormatError> {
        let (mut at, mut messages, mut times) = (start, 0u64, None);
        for _ in 0..count {
            let record = record::read(source, window, at, source.len(), Some(memory))?;
            let Some((header, data)) = record.filter(|(header, _)| header.op() == Some(6)) else { return unsound(at) };
            let (Some(1), Some(offset), Some(count)) =
                (header.u32("ver"), header.u64("chunk_pos"), header.u32("count"))
            else {
                return unsound(at);
            };
            let (Some(first), Some(last)) = (header.get("start_time"), header.get("end_time")) else {
                return unsound(at);
            };
            let (Some(first), Some(last)) = (time(first), time(last)) else { return unsound(at) };
            if data.end - data.start != 8 * u64::from(count) {
                return unsound(at);
            }
            memory.reserve(4 * (data.end - data.start) + RECORD)?;
            let bytes = source.read(data.clone())?;
            let pair = |bytes: &[u8]| Some((bytes.u32(0)?, bytes.u32(4)?));
            let counts: Vec<_> = bytes.chunks_exact(8).filter_map(pair).collect();
            let here: u64 = counts.iter().map(|(_, count)| u64::from(*count)).sum();
            messages = messages.saturating_add(here);
            if here > 0 {
                let (before, after) = times.unwrap_or((first, last));
                times = Some((first.min(before), last.max(after)));
            }
            self.infos.push(Info { offset, counts });
            at = data.end;
        }
        if messages > MESSAGES {
            return refused(Class::BadIndex, format!("it has {messages} messages, the most is {MESSAGES}"));
        }
        self.recording.times = times;
        self.infos.sort_by_key(|info| info.offset);
        let is_sound = |info: &Info| (header_end..self.index_pos).contains(&info.offset);
        let are_different = self.infos.is_sorted_by(|one, next| one.offset < next.offset);
        match self.infos.iter().all(is_sound) && are_different {
            true => Ok(()),
            false => refused(Class::BadIndex, "two chunks have one place, or one lies outside; try `rosbag reindex`"),
        }
    }

    /// Finds each chunk and its index data.
    ///
    /// # Errors
    /// [`FormatError`] if something cannot be read, or there is not enough memory.
    pub fn find(&self, source: &dyn Source, memory: &dyn Memory) -> Result<Found, FormatError> {
        let mut found = Found { chunks: Vec::new(), damaged: 0 };
        for (at, info) in self.infos.iter().enumerate() {
            if at.is_multiple_of(TOGETHER) {
                // The index data of a chunk end where the next chunk begins.
                let some = self.infos.iter().skip(at).take(TOGETHER).map(|info| info.offset);
                let some = some.map(|offset| offset.saturating_sub(NEAR)..offset.saturating_add(NEAR));
                source.prefetch_small(some.map(|range| range.start..range.end.min(source.len())).collect());
            }
            let reach = self.infos.get(at + 1).map_or(self.index_pos, |next| next.offset);
            let candidate = chunk_block(source, info.offset, reach).and_then(|(block, compression)| {
                let end = block.offset + block.stored_size;
                memory.reserve(2 * size_of::<Candidate>() as u64)?;
                let indexes = indexed(source, info, end..reach, block.size)?;
                let chunk = Chunk { record: info.offset..end, indexes, is_compressed: block.codec != Codec::None };
                Ok(Candidate { info: at, block, compression, chunk })
            });
            match candidate {
                Ok(candidate) => found.chunks.push(candidate),
                Err(PartError::Damaged(_)) => found.damaged += 1,
                Err(PartError::Source(error)) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Adds the chunks that were found, with the messages of those without index data.
    ///
    /// # Errors
    /// [`FormatError`] if there are too many messages, or there is not enough memory.
    pub fn add(&mut self, found: Found, counts: Counts, memory: &dyn Memory) -> Result<(), FormatError> {
        let (infos, mut counts) = (std::mem::take(&mut self.infos), counts.0.into_iter());
        self.damage.chunks += found.damaged;
        for Candidate { info, block, compression, chunk } in found.chunks {
            let messages = match (&chunk.indexes, infos.get(info)) {
                (Some(_), Some(info)) => {
                    let mut messages: HashMap<u32, u32> = HashMap::new();
                    for (id, count) in &info.counts {
                        *messages.entry(*id).or_default() += *count;
                    }
                    messages
                }
                _ => {
                    let Some(counted) = counts.next().flatten() else {
                        self.damage.chunks += 1;
                        continue;
                    };
                    self.damage.chunks += u64::from(!counted.is_whole);
                    counted.messages.into_iter().collect()
                }
            };
            self.add_chunk(&block, compression, chunk, messages, memory)?;
        }
        match self.recording.messages() > MESSAGES {
            true => refused(Class::BadIndex, format!("it has more than {MESSAGES} messages")),
            false => Ok(()),
        }
    }

    fn add_chunk(
        &mut self,
        block: &Block,
        compression: &str,
        chunk: Chunk,
        messages: HashMap<u32, u32>,
        memory: &dyn Memory,
    ) -> Result<(), FormatError> {
        memory.reserve(2 * size_of::<Chunk>() as u64)?;
        #[expect(clippy::cast_possible_truncation, reason = "the bag counts them in 32 bits")]
        let number = self.places.chunks.len() as u32;
        self.places.chunks.push(chunk);
        let name = if compression == "none" { "" } else { compression };
        self.recording.add_chunk(name.as_bytes(), block.stored_size, block.size);
        let mut by_folder: Vec<(u32, u32)> = Vec::new();
        for (id, count) in messages {
            match self.places.folders.get(&id) {
                Some(folder) => by_folder.push((*folder, count)),
                None => self.damage.without_channel += u64::from(count),
            }
        }
        by_folder.sort_unstable();
        for (folder, count) in by_folder {
            let Some(folder) = self.recording.folders.get_mut(folder as usize).filter(|_| count > 0) else { continue };
            folder.messages += u64::from(count);
            match folder.runs.last_mut() {
                Some(run) if run.chunk == number => run.count = run.count.saturating_add(count),
                _ => {
                    memory.reserve(2 * size_of::<Run>() as u64)?;
                    folder.runs.push(Run { chunk: number, count });
                    folder.weight = folder.weight.saturating_add(block.size);
                }
            }
        }
        Ok(())
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let text = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        let of = |connection: &Connection| {
            size_of::<Connection>()
                + text(&connection.callerid)
                + text(&connection.latching)
                + text(&connection.md5sum)
                + 64
        };
        self.connections.iter().flatten().map(of).sum::<usize>() + 24 * self.connections.len()
    }
}

/// Reads the head of a chunk record, which must end before `reach`.
fn chunk_block(source: &dyn Source, at: u64, reach: u64) -> Result<(Block, &'static str), PartError> {
    let damaged = || PartError::Damaged(format!("there is no sound chunk at {at}"));
    let mut window = Window::new(source, reach);
    let record = record::read(source, &mut window, at, reach, None)?;
    let (header, data) = record.filter(|(header, _)| header.op() == Some(5)).ok_or_else(damaged)?;
    let (compression, size) = header.get("compression").zip(header.u32("size")).ok_or_else(damaged)?;
    let (name, codec) = match compression {
        b"none" => ("none", Some(Codec::None)),
        b"bz2" => ("bz2", Chain::of([Filter::Bzip2Stream])),
        b"lz4" => ("lz4", Chain::of([Filter::Lz4Frame])),
        // The index tells which messages it has; they cannot be read.
        _ => ("other", None),
    };
    let (stored_size, size) = (data.end - data.start, u64::from(size));
    let block = Block { offset: data.start, stored_size, size, codec: codec.unwrap_or(Codec::None), crc: None };
    Ok((block, name))
}

/// Fails for a chunk that cannot be decoded.
fn sound(block: &Block, compression: &str, at: u64) -> Result<(), PartError> {
    if compression == "other" {
        return Err(PartError::Damaged(format!("the chunk at {at} has an unknown compression")));
    }
    if block.size > CHUNK || block.codec == Codec::None && block.size != block.stored_size {
        return Err(PartError::Damaged(format!("the chunk at {at} has a wrong size")));
    }
    Ok(())
}

/// Returns where the index data of a chunk are; `None` if they do not have one record for each connection of the chunk
/// info.
fn indexed(source: &dyn Source, info: &Info, range: Range<u64>, size: u64) -> Result<Option<Indexes>, PartError> {
    let mut times = (u64::MAX, 0);
    let mut counts: HashMap<u32, u64> = HashMap::new();
    let mut window = Window::new(source, range.end);
    let mut at = range.start;
    for _ in 0..info.counts.len() {
        let Some((header, data)) = index_data(source, &mut window, at, range.end)? else { return Ok(None) };
        let mut place = data.start;
        while place < data.end {
            let bytes = window.from(place, 12)?;
            let here = bytes.get(..to_usize((data.end - place).min(bytes.len() as u64))).unwrap_or_default();
            let mut read = 0;
            for entry in here.chunks_exact(12) {
                if entry.u32(8).is_none_or(|offset| u64::from(offset) >= size) {
                    return Ok(None);
                }
                let time = entry.get(..8).and_then(time).unwrap_or(0);
                times = (times.0.min(time), times.1.max(time));
                read += 12;
            }
            if read == 0 {
                return Ok(None);
            }
            place += read;
        }
        *counts.entry(header).or_default() += (data.end - data.start) / 12;
        at = data.end;
    }
    let mut stated: HashMap<u32, u64> = HashMap::new();
    for (id, count) in &info.counts {
        *stated.entry(*id).or_default() += u64::from(*count);
    }
    Ok((counts == stated).then_some(Indexes { range: range.start..at, times }))
}

/// Reads the head of an index data record: its connection, and where its entries are.
fn index_data(
    source: &dyn Source,
    window: &mut Window<'_>,
    at: u64,
    end: u64,
) -> Result<Option<(u32, Range<u64>)>, PartError> {
    let Some((header, data)) = record::read(source, window, at, end, None)? else { return Ok(None) };
    let (Some(4), Some(1), Some(id), Some(count)) =
        (header.op(), header.u32("ver"), header.u32("conn"), header.u32("count"))
    else {
        return Ok(None);
    };
    Ok((data.end - data.start == 12 * u64::from(count)).then_some((id, data)))
}

impl Layout for Places {
    fn block(&self, source: &dyn Source, chunk: u32) -> Result<Block, PartError> {
        let Some(Chunk { record, .. }) = self.chunks.get(chunk as usize) else {
            return Err(PartError::Damaged(format!("there is no chunk {chunk}")));
        };
        let (block, compression) = chunk_block(source, record.start, record.end)?;
        sound(&block, compression, record.start)?;
        Ok(block)
    }

    fn is_indexed(&self, chunk: u32) -> bool {
        self.chunks.get(chunk as usize).is_some_and(|chunk| chunk.indexes.is_some())
    }

    fn times(&self, chunk: u32) -> Option<(u64, u64)> {
        self.chunks.get(chunk as usize)?.indexes.as_ref().map(|indexes| indexes.times)
    }

    fn parts(&self, chunk: u32) -> Parts {
        let Some(Chunk { record, indexes, is_compressed }) = self.chunks.get(chunk as usize) else {
            return Parts::default();
        };
        let index = indexes.as_ref().map_or(0..0, |indexes| indexes.range.clone());
        let whole = if *is_compressed { record.start..record.end.max(index.end) } else { 0..0 };
        Parts { index, whole }
    }

    fn entries(
        &self,
        source: &dyn Source,
        chunk: u32,
        folder: u32,
        each: &mut dyn FnMut(Entry),
    ) -> Result<(), PartError> {
        let indexes = self.chunks.get(chunk as usize).and_then(|chunk| chunk.indexes.as_ref());
        let Some(Indexes { range, .. }) = indexes else { return Ok(()) };
        let mut window = Window::new(source, range.end);
        let mut at = range.start;
        while at < range.end {
            let changed = || PartError::Damaged(format!("the index data at {at} are not sound"));
            let (id, data) = index_data(source, &mut window, at, range.end)?.ok_or_else(changed)?;
            let mut place = data.start;
            while self.folders.get(&id) == Some(&folder) && place < data.end {
                let bytes = window.from(place, 12)?;
                let here = bytes.get(..to_usize((data.end - place).min(bytes.len() as u64))).unwrap_or_default();
                let mut read = 0;
                for entry in here.chunks_exact(12) {
                    let offset = entry.u32(8).map_or(0, u64::from);
                    each(Entry { time: entry.get(..8).and_then(time).unwrap_or(0), offset, source: id });
                    read += 12;
                }
                if read == 0 {
                    return Err(changed());
                }
                place += read;
            }
            at = data.end;
        }
        Ok(())
    }

    fn walk(&self, chunk: &dyn Bytes, folder: u32, each: &mut dyn FnMut(Entry)) -> Result<bool, PartError> {
        record::messages(chunk, &mut |entry| {
            if self.folders.get(&entry.source) == Some(&folder) {
                each(entry);
            }
        })
    }

    fn place(&self, chunk: &dyn Bytes, entry: &Entry) -> Result<Placed, PartError> {
        let wrong = || PartError::Damaged(format!("at {} in its chunk is another message or none", entry.offset));
        let mut at = entry.offset;
        loop {
            let (header, data) = record::inside(chunk, at)?.ok_or_else(wrong)?;
            let header = Header::parse(&header).ok_or_else(wrong)?;
            match header.op() {
                // Pass over connection records before the message.
                Some(7) => at = data.end,
                Some(2) => {
                    let time = header.get("time").and_then(time);
                    if header.u32("conn") != Some(entry.source) || time != Some(entry.time) {
                        return Err(wrong());
                    }
                    return Ok(Placed { data, publish_time: 0, sequence: 0 });
                }
                _ => return Err(wrong()),
            }
        }
    }

    fn memory_usage(&self) -> usize {
        size_of_val(&self.chunks[..]) + 16 * self.folders.len()
    }
}
