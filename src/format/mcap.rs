//! MCAP, recordings of robots with an index (`docs/formats/mcap.md`).
//!
//! [`probe`] reads the front and the tail. [`parse`] reads the summary. If it cannot be relied on, [`scan::scan`] reads
//! the whole file once.

mod extra;
mod record;
pub mod scan;
mod summary;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{
    Block, Class, Crc, Fields, FormatError, Front as FileFront, PartError, Recognition,
    recording::{Bytes, CHUNK, Entry, Layout, Parts, Placed, Recording, Window},
};
use crate::{
    codec::{Chain, Codec, CrcKind, Filter},
    limits::PIECE,
    source::{Memory, Source, SourceError, to_usize},
};
use record::{CHUNK_RECORD, HEAD, MESSAGE, MESSAGE_HEAD, MESSAGE_INDEX, Record, next};

/// First and last bytes of a file.
pub const MAGIC: [u8; 8] = *b"\x89MCAP0\r\n";

/// The suffix of its files.
pub const SUFFIX: &str = ".mcap";

/// Bytes of the footer record and the magic after it.
const TAIL: u64 = 37;

/// Bytes of the record at the end of the data section.
const DATA_END: u64 = 13;

/// Least bytes of a file: magic, header with two empty strings, footer, magic.
const SMALLEST: u64 = 62;

/// Bytes that are read of a chunk record to find its records: the fields before them, and the name of the compression.
const CHUNK_FRONT: u64 = 256;

/// What a channel has in addition to what topics of all recordings have.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Channel {
    /// Its number.
    pub id: u16,
    /// The number of its schema; 0 for none.
    pub schema_id: u16,
    /// Its metadata.
    pub metadata: Pairs,
}

/// Keys and values in stored order.
pub type Pairs = Vec<(Box<[u8]>, Box<[u8]>)>;

/// An attachment.
#[derive(Debug, Serialize, Deserialize)]
pub struct Attachment {
    /// Where its record begins.
    pub offset: u64,
    /// Bytes of the record.
    pub length: u64,
    /// When it was recorded.
    pub log_time: u64,
    /// When it was made.
    pub create_time: u64,
    /// Bytes of its data.
    pub size: u64,
    /// Its name.
    pub name: Box<[u8]>,
    /// The type of its data.
    pub media_type: Box<[u8]>,
}

/// A record of metadata.
#[derive(Debug, Serialize, Deserialize)]
pub struct Metadata {
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Its name.
    pub name: Box<[u8]>,
}

/// A chunk, or consecutive messages outside of chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Chunk {
    /// A chunk record, the message indexes after it, and the first and last time of its messages.
    Indexed { record: Range<u64>, indexes: Range<u64>, times: Option<(u64, u64)> },
    /// A chunk record whose indexes are not used.
    Walked { record: Range<u64> },
    /// Records of messages.
    Loose(Range<u64>),
}

/// What a scan could not use.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Damage {
    /// Chunks that cannot be read, or not to their end.
    pub chunks: u64,
    /// Records that are too short.
    pub records: u64,
    /// Messages of channels that are not in the file.
    pub without_channel: u64,
    /// Where and why the scan stopped early.
    pub stopped: Option<(u64, String)>,
}

/// A parsed file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Mcap {
    /// The profile of the header.
    pub profile: Box<[u8]>,
    /// The library that wrote it.
    pub library: Box<[u8]>,
    /// Whether the indexes of the file are used.
    pub is_indexed: bool,
    /// Why they are not.
    pub reason: String,
    /// Topics and schemas.
    pub recording: Recording,
    /// The channel of each topic folder.
    pub channels: Vec<Channel>,
    /// Attachments in order.
    pub attachments: Vec<Attachment>,
    /// Metadata in order.
    pub metadata: Vec<Metadata>,
    /// What a scan left out.
    pub damage: Damage,
    /// Channels whose topic is too long.
    pub left_out: u64,
    /// Where the chunks are.
    pub places: Places,
}

/// Where chunks and the messages in them are.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Places {
    chunks: Vec<Chunk>,
    /// The number of the channel of each folder.
    ids: Vec<u16>,
}

/// Returns whether a file may be of this format.
pub fn recognise(front: &FileFront<'_>) -> Recognition {
    let begins = front.bytes.starts_with(&MAGIC[..5]) && front.bytes.get(6..8) == Some(&MAGIC[6..]);
    if begins || front.has_suffix(&[SUFFIX]) { Recognition::Meant } else { Recognition::No }
}

/// Reads the front and the tail of a file, and refuses it by the rules of section 2.
///
/// # Errors
/// [`FormatError`].
pub fn probe(source: &dyn Source) -> Result<(), FormatError> {
    ends(source).map(drop)
}

/// Where the parts of a file are.
#[derive(Debug, Clone)]
struct Ends {
    /// The strings of the header.
    strings: [Range<u64>; 2],
    /// Where the header ends.
    header_end: u64,
    /// Where the footer begins.
    footer: u64,
    summary_start: u64,
    summary_offset_start: u64,
    summary_crc: u32,
}

impl Ends {
    /// Returns what the CRC of the summary is of: everything from there on but itself and the magic at the end.
    fn summary_range(&self) -> Range<u64> {
        self.summary_start..self.footer + TAIL - 12
    }
}

fn ends(source: &dyn Source) -> Result<Ends, FormatError> {
    let refused = |class, reason: &str| Err(FormatError::refused(class, reason));
    let len = source.len();
    let mut front = [0; 17];
    let read = usize::try_from(len).map_or(front.len(), |len| len.min(front.len()));
    source.fill(0, front.get_mut(..read).unwrap_or_default())?;
    if front[..5] != MAGIC[..5] || front[6..8] != MAGIC[6..] {
        return refused(Class::NotMcap, "it does not begin with the magic");
    }
    if front[5] != MAGIC[5] {
        let version = char::from(front[5]).escape_default();
        return refused(Class::Version, &format!("its version is {version}, not 0"));
    }
    const RECOVER: &str = "recording was interrupted, or is not finished; try `mcap recover`";
    if len < SMALLEST {
        return refused(Class::Unfinished, &format!("it has {len} bytes: {RECOVER}"));
    }
    let mut tail = [0; to_usize(TAIL)];
    let footer = len - TAIL;
    source.fill(footer, &mut tail)?;
    let is_finished = tail.ends_with(&MAGIC);
    let header = header(source, &front, footer)?;
    let Some(strings) = header else {
        return match is_finished {
            true => refused(Class::BadHeader, "the header record at 8 is not sound"),
            false => refused(Class::Unfinished, RECOVER),
        };
    };
    if !is_finished || tail[0] != record::FOOTER || tail.u64(1) != Some(20) {
        return refused(Class::Unfinished, RECOVER);
    }
    let header_end = 17 + front.u64(9).unwrap_or(0);
    let [summary_start, summary_offset_start] = [9, 17].map(|at| tail.u64(at).unwrap_or(0));
    if summary_start != 0 && !(header_end..=footer).contains(&summary_start) {
        return refused(
            Class::BadFooter,
            &format!("the summary begins at {summary_start}, outside {header_end}..{footer}"),
        );
    }
    let summary_crc = tail.u32(25).unwrap_or(0);
    Ok(Ends { strings, header_end, footer, summary_start, summary_offset_start, summary_crc })
}

/// Returns where the strings of the header are; `None` if it is not sound.
fn header(source: &dyn Source, front: &[u8; 17], footer: u64) -> Result<Option<[Range<u64>; 2]>, FormatError> {
    let end = front.u64(9).and_then(|length| length.checked_add(17)).filter(|end| *end <= footer);
    let Some(end) = end.filter(|_| front[8] == record::HEADER) else { return Ok(None) };
    let mut at = 17;
    let mut strings = [0..0, 0..0];
    for string in &mut strings {
        if at + 4 > end {
            return Ok(None);
        }
        let mut length = [0; 4];
        source.fill(at, &mut length)?;
        *string = at + 4..at + 4 + u64::from(u32::from_le_bytes(length));
        at = string.end;
    }
    Ok((at <= end).then_some(strings))
}

/// Parses a file by its indexes. If they cannot be relied on, returns only the header, and `reason` says why.
///
/// # Errors
/// [`FormatError`] if it must be refused, cannot be read, or there is not enough memory for it.
pub fn parse(source: &dyn Source, memory: &dyn Memory) -> Result<Mcap, FormatError> {
    let ends = ends(source)?;
    let mut strings = Vec::new();
    for range in &ends.strings {
        memory.reserve(range.end - range.start)?;
        strings.push(source.read(range.clone())?.into_boxed_slice());
    }
    let mut strings = strings.into_iter();
    let (profile, library) = (strings.next().unwrap_or_default(), strings.next().unwrap_or_default());
    let parsed = match summary::parse(source, &ends, memory) {
        Ok(parsed) => parsed,
        Err(PartError::Damaged(reason)) => Mcap { reason, ..Mcap::default() },
        Err(PartError::Source(error)) => return Err(error.into()),
    };
    Ok(Mcap { profile, library, ..parsed })
}

/// Checks the CRC of the data section. Reads all of it, a piece at a time. Accepts a file without this CRC.
///
/// # Errors
/// `Damaged` if it differs; `Source` if the file cannot be read.
pub fn check_data_section(source: &dyn Source) -> Result<(), PartError> {
    let Ok(ends) = ends(source) else { return Ok(()) };
    let end = if ends.summary_start == 0 { ends.footer } else { ends.summary_start };
    let Some(at) = end.checked_sub(DATA_END).filter(|at| *at >= ends.header_end) else { return Ok(()) };
    let mut record = [0; to_usize(DATA_END)];
    source.fill(at, &mut record)?;
    let stored = record.u32(9).filter(|_| record[0] == record::DATA_END && record.u64(1) == Some(4)).unwrap_or(0);
    if stored == 0 {
        return Ok(());
    }
    check_crc(source, 0..at, stored, || format!("data section, which the record at {at} has"))
}

/// Checks the CRC of the summary, a piece at a time. Accepts a file without a summary, or without this CRC.
///
/// # Errors
/// As [`check_data_section`].
pub fn check_summary(source: &dyn Source) -> Result<(), PartError> {
    let Ok(ends) = ends(source) else { return Ok(()) };
    if ends.summary_start == 0 || ends.summary_crc == 0 {
        return Ok(());
    }
    check_crc(source, ends.summary_range(), ends.summary_crc, || "summary, which the footer has".into())
}

fn check_crc(
    source: &dyn Source,
    range: Range<u64>,
    stored: u32,
    of: impl FnOnce() -> String,
) -> Result<(), PartError> {
    let (mut sum, mut from) = (0, range.start);
    while from < range.end {
        crate::wanted::check().map_err(SourceError::from)?;
        let to = range.end.min(from + PIECE as u64);
        sum = CrcKind::Crc32.append(sum, &source.read(from..to)?);
        from = to;
    }
    match sum == stored {
        true => Ok(()),
        false => Err(PartError::Damaged(format!("the CRC-32 of the {}, is {stored:08x}, not {sum:08x}", of()))),
    }
}

impl Mcap {
    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let pairs = |pairs: &Pairs| pairs.iter().map(|(key, value)| key.len() + value.len() + 64).sum::<usize>();
        let channels = self.channels.iter().map(|channel| size_of::<Channel>() + pairs(&channel.metadata));
        let attachments =
            self.attachments.iter().map(|a| size_of::<Attachment>() + a.name.len() + a.media_type.len() + 32);
        let metadata = self.metadata.iter().map(|m| size_of::<Metadata>() + m.name.len() + 16);
        channels.chain(attachments).chain(metadata).sum::<usize>() + self.profile.len() + self.library.len()
    }
}

/// Returns the codec of a compression; `None` for an unknown one.
fn codec(compression: &[u8]) -> Option<Codec> {
    match compression {
        b"" => Some(Codec::None),
        b"lz4" => Chain::of([Filter::Lz4Frame]),
        b"zstd" => Chain::of([Filter::ZstdFrame]),
        _ => None,
    }
}

/// Reads the head of a chunk record.
fn chunk_block(source: &dyn Source, record: &Range<u64>) -> Result<(Block, Box<[u8]>), PartError> {
    let damaged = |reason: &str| PartError::Damaged(format!("{reason} at {}", record.start));
    let end = record.start.saturating_add(CHUNK_FRONT).min(record.end);
    let bytes = source.read(record.start..end)?;
    let is_chunk = bytes.first() == Some(&CHUNK_RECORD) && bytes.u64(1) == Some(record.end - record.start - HEAD);
    let bytes = bytes.get(to_usize(HEAD)..).filter(|_| is_chunk).ok_or_else(|| damaged("there is no chunk"))?;
    let head = record::chunk(bytes).ok_or_else(|| damaged("the fields of the chunk do not fit"))?;
    let start = record.start + HEAD + head.length;
    if start.checked_add(head.stored_size).is_none_or(|end| end > record.end) {
        return Err(damaged("the records of the chunk do not fit"));
    }
    if head.size > CHUNK {
        return Err(damaged("a chunk of more than 1 GiB"));
    }
    let codec = codec(head.compression).ok_or_else(|| damaged("a chunk of an unknown compression"))?;
    if codec == Codec::None && head.size != head.stored_size {
        return Err(damaged("a chunk that is not compressed has two sizes"));
    }
    let crc = (head.crc != 0).then(|| Crc::crc32(head.crc));
    let block = Block { offset: start, stored_size: head.stored_size, size: head.size, codec, crc };
    Ok((block, head.compression.into()))
}

impl Layout for Places {
    fn block(&self, source: &dyn Source, chunk: u32) -> Result<Block, PartError> {
        match self.chunks.get(chunk as usize) {
            Some(Chunk::Indexed { record, .. } | Chunk::Walked { record }) => {
                chunk_block(source, record).map(|(block, _)| block)
            }
            Some(Chunk::Loose(range)) => {
                let size = range.end - range.start;
                Ok(Block { offset: range.start, stored_size: size, size, codec: Codec::None, crc: None })
            }
            None => Err(PartError::Damaged(format!("there is no chunk {chunk}"))),
        }
    }

    fn is_indexed(&self, chunk: u32) -> bool {
        matches!(self.chunks.get(chunk as usize), Some(Chunk::Indexed { .. }))
    }

    fn times(&self, chunk: u32) -> Option<(u64, u64)> {
        if let Some(Chunk::Indexed { times, .. }) = self.chunks.get(chunk as usize) { *times } else { None }
    }

    fn parts(&self, chunk: u32) -> Parts {
        match self.chunks.get(chunk as usize) {
            Some(Chunk::Indexed { record, indexes, .. }) => {
                Parts { index: indexes.clone(), whole: record.start..indexes.end }
            }
            Some(Chunk::Walked { record }) => Parts { index: 0..0, whole: record.clone() },
            Some(Chunk::Loose(_)) | None => Parts::default(),
        }
    }

    fn entries(
        &self,
        source: &dyn Source,
        chunk: u32,
        folder: u32,
        each: &mut dyn FnMut(Entry),
    ) -> Result<(), PartError> {
        let (Some(Chunk::Indexed { indexes, .. }), Some(id)) =
            (self.chunks.get(chunk as usize), self.ids.get(folder as usize))
        else {
            return Ok(());
        };
        let mut window = Window::new(source, indexes.end);
        indexes_in(&mut window, indexes, &mut |window, found, range| {
            let mut at = range.start;
            while found == *id && at < range.end {
                let bytes = window.from(at, 16)?;
                let here = bytes.get(..to_usize((range.end - at).min(bytes.len() as u64))).unwrap_or_default();
                let mut count = 0;
                for pair in here.chunks_exact(16) {
                    let [time, offset] = [0, 8].map(|at| pair.u64(at).unwrap_or(0));
                    each(Entry { time, offset, source: u32::from(*id) });
                    count += 16;
                }
                if count == 0 {
                    return Err(PartError::Damaged(format!("the message index at {at} is cut off")));
                }
                at += count;
            }
            Ok(())
        })
    }

    fn walk(&self, chunk: &dyn Bytes, folder: u32, each: &mut dyn FnMut(Entry)) -> Result<bool, PartError> {
        let id = self.ids.get(folder as usize).copied();
        record::walk(chunk, &mut |record| {
            if let Record::Message { offset, channel, time, .. } = record
                && Some(channel) == id
            {
                each(Entry { time, offset, source: channel.into() });
            }
            Ok(())
        })
    }

    fn place(&self, chunk: &dyn Bytes, entry: &Entry) -> Result<Placed, PartError> {
        let wrong = || PartError::Damaged(format!("at {} in its chunk is another message or none", entry.offset));
        let bytes = chunk.get(entry.offset, HEAD + MESSAGE_HEAD)?;
        let length = bytes.u64(1).filter(|length| *length >= MESSAGE_HEAD).ok_or_else(wrong)?;
        let start = entry.offset + HEAD;
        let end = start.checked_add(length).filter(|end| *end <= chunk.length()).ok_or_else(wrong)?;
        let is_it = bytes.first() == Some(&MESSAGE)
            && bytes.u16(9).map(u32::from) == Some(entry.source)
            && bytes.u64(15) == Some(entry.time);
        if !is_it {
            return Err(wrong());
        }
        let (publish_time, sequence) = (bytes.u64(23).unwrap_or(0), bytes.u32(11).unwrap_or(0));
        Ok(Placed { data: start + MESSAGE_HEAD..end, publish_time, sequence })
    }

    fn memory_usage(&self) -> usize {
        size_of_val(&self.chunks[..]) + size_of_val(&self.ids[..])
    }
}

/// Takes a message index: its channel, and where its entries are.
type EachIndex<'a, 's> = dyn FnMut(&mut Window<'s>, u16, Range<u64>) -> Result<(), PartError> + 'a;

/// Goes through the message indexes in a part of a file.
fn indexes_in<'s>(window: &mut Window<'s>, range: &Range<u64>, each: &mut EachIndex<'_, 's>) -> Result<(), PartError> {
    let mut at = range.start;
    while at < range.end {
        let bytes = window.from(at, HEAD + 6)?;
        let (op, content) = next(bytes, at, range.end)?;
        if op == MESSAGE_INDEX {
            let (channel, length) = (bytes.u16(9), bytes.u32(11).map(u64::from));
            let entries = content.start + 6;
            let end = length.and_then(|length| entries.checked_add(length)).filter(|end| *end <= content.end);
            let sound =
                channel.zip(end).filter(|(_, end)| (end - entries) % 16 == 0 && content.end - content.start >= 6);
            let Some((channel, end)) = sound else {
                return Err(PartError::Damaged(format!("the message index at {at} is not sound")));
            };
            each(window, channel, entries..end)?;
        }
        at = content.end;
    }
    Ok(())
}
