//! Header, index and string table: what decides whether the container opens.

use std::io;

use super::{Block, Entry, Notes, Value};
use crate::{
    format::{Class, Fields, FormatError},
    limits,
    source::{Memory, Source, SourceError, check_room, to_usize},
};

/// Bytes of the header (section 2).
pub const HEADER: u64 = 64;

/// Bytes of an index entry (section 3).
const INDEX_ENTRY: u64 = 48;

/// Index entries that are read at once.
const BATCH: u32 = 16_384;

/// Bytes of memory that an entry and its two files take while the container is opened, without their names; and what
/// each byte of a name takes, in the entry and in the table of paths.
const ENTRY_ROOM: u64 = 700;
const NAME_ROOM: u64 = 7;

/// The header's fields as stored (section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the table in section 2")]
pub struct Header {
    pub role: u8,
    pub flags: u16,
    pub alignment: u8,
    pub compression_default: u8,
    pub entry_count: u32,
    pub string_table_offset: u64,
    pub data_section_offset: u64,
    pub schema_offset: u64,
    pub total_file_size: u64,
}

impl Header {
    /// Header flag 0x0004: data are big-endian, so there are no typed views (sections 2 and 22).
    pub fn big_endian(&self) -> bool {
        self.flags & 0x0004 != 0
    }

    /// Header flag 0x0020: a stored checksum of 0 is a checksum too (section 7).
    pub fn checksums(&self) -> bool {
        self.flags & 0x0020 != 0
    }
}

/// Decides by the first 64 bytes and the length whether the container opens. A `partial` file counts only if it is
/// complete (section 16).
///
/// # Errors
/// `Refused` with the violated rule of section 22; `Source` if the header could not be read.
pub fn probe(source: &dyn Source, partial: bool) -> Result<(), FormatError> {
    let header = header(source)?;
    if partial && header.total_file_size != source.len() {
        let reason = format!(
            "unfinished recording: total_file_size is {}, the file has {} bytes",
            header.total_file_size,
            source.len()
        );
        return Err(FormatError::refused(Class::Truncated, reason));
    }
    Ok(())
}

/// Reads and checks the header (section 22, "must be rejected").
pub fn header(source: &dyn Source) -> Result<Header, FormatError> {
    let length = source.len();
    if length == 0 {
        return Err(FormatError::refused(Class::Empty, "the file is empty"));
    }
    if length < HEADER {
        return Err(FormatError::refused(Class::Truncated, format!("{length} bytes are no header of {HEADER}")));
    }
    let bytes = source.read(0..HEADER)?;
    let (header, version, entry_size) =
        fields(&bytes).ok_or_else(|| FormatError::refused(Class::Truncated, "the header is cut"))?;
    if !bytes.starts_with(b"SHRD") {
        return Err(FormatError::refused(Class::BadMagic, "the file does not start with SHRD"));
    }
    if version != 2 {
        let class = if version < 2 { Class::VersionTooOld } else { Class::VersionTooNew };
        return Err(FormatError::refused(class, format!("version {version}, not 2")));
    }
    let bad = |reason| Err(FormatError::refused(Class::BadFormat, reason));
    if u64::from(entry_size) != INDEX_ENTRY {
        return bad(format!("index entries of {entry_size} bytes, not {INDEX_ENTRY}"));
    }
    let Header { entry_count, string_table_offset: strings, data_section_offset: data, .. } = header;
    if entry_count > limits::SHARD_ENTRIES {
        return bad(format!("{entry_count} entries are more than {}", limits::SHARD_ENTRIES));
    }
    let index_end = HEADER + INDEX_ENTRY * u64::from(entry_count);
    if index_end > length {
        let reason = format!("the index of {entry_count} entries ends at {index_end}, the file at {length}");
        return Err(FormatError::refused(Class::Truncated, reason));
    }
    if strings < index_end {
        return bad(format!("the string table at {strings} begins inside the index, which ends at {index_end}"));
    }
    if strings > data {
        return bad(format!("the string table at {strings} begins after the data section at {data}"));
    }
    if data > length {
        let reason = format!("the data section begins at {data}, the file ends at {length}");
        return Err(FormatError::refused(Class::Truncated, reason));
    }
    if data - strings > limits::SHARD_STRING_TABLE {
        return bad(format!("a string table of {} bytes is more than {}", data - strings, limits::SHARD_STRING_TABLE));
    }
    Ok(header)
}

/// Returns the header's fields, its version and its index entry size.
fn fields(bytes: &[u8]) -> Option<(Header, u8, u16)> {
    let byte = |offset| bytes.get(offset).copied();
    let header = Header {
        role: byte(5)?,
        flags: bytes.u16(6)?,
        alignment: byte(8)?,
        compression_default: byte(9)?,
        entry_count: bytes.u32(12)?,
        string_table_offset: bytes.u64(16)?,
        data_section_offset: bytes.u64(24)?,
        schema_offset: bytes.u64(32)?,
        total_file_size: bytes.u64(40)?,
    };
    Some((header, byte(4)?, bytes.u16(10)?))
}

/// Reads the index and the string table (sections 3 and 4). The header has been checked before.
pub(super) fn entries(
    source: &dyn Source,
    header: &Header,
    memory: &dyn Memory,
    notes: &mut Notes,
) -> Result<Vec<Entry>, SourceError> {
    // Asked for before the index is interpreted: in memory it takes many times its size in a sparse file.
    let needed = u64::from(header.entry_count) * ENTRY_ROOM;
    memory.reserve(needed)?;
    check_room(needed, 1)?;
    let names = source.read(header.string_table_offset..header.data_section_offset)?;
    // Entries may share parts of the table, although no writer does that. A small table must not become gigabytes of
    // names.
    let mut budget = names.len().saturating_mul(2).saturating_add(64 << 10);
    let (mut outside, mut costly) = (0u32, 0u32);
    let mut entries = Vec::new();
    entries.try_reserve_exact(header.entry_count as usize).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    let mut index = 0;
    let mut at = HEADER;
    let end = HEADER + INDEX_ENTRY * u64::from(header.entry_count);
    while at < end {
        let batch = source.read(at..end.min(at + INDEX_ENTRY * u64::from(BATCH)))?;
        at += batch.len() as u64;
        for (raw, number) in batch.chunks_exact(to_usize(INDEX_ENTRY)).zip(index..) {
            let Some((name, mut entry)) = entry(source, header, raw, number, &names)? else {
                outside += 1;
                continue;
            };
            match budget.checked_sub(name.len()) {
                Some(rest) => budget = rest,
                None => {
                    costly += 1;
                    continue;
                }
            }
            entry.name = name.into();
            entries.push(entry);
        }
        index = index.saturating_add(BATCH);
    }
    let needed = entries.iter().map(|entry| entry.name.len() as u64 * NAME_ROOM).sum();
    memory.reserve(needed)?;
    check_room(needed, 1)?;
    if outside > 0 {
        notes.add(format_args!("{outside} entries left out: their names lie outside the string table"));
    }
    if costly > 0 {
        notes.add(format_args!("{costly} entries left out: the names add up to far more than the string table"));
    }
    Ok(entries)
}

/// Returns one index entry without its name, and the name; `None` if the name lies outside the string table.
fn entry<'n>(
    source: &dyn Source,
    header: &Header,
    raw: &[u8],
    index: u32,
    names: &'n [u8],
) -> Result<Option<(&'n [u8], Entry)>, SourceError> {
    let Some((offset, length)) = raw.u32(8).zip(raw.u16(12)) else { return Ok(None) };
    let start = offset as usize;
    let Some(name) = names.get(start..start.saturating_add(usize::from(length))) else { return Ok(None) };
    let Some(fields) = block_fields(raw) else { return Ok(None) };
    let entry = Entry {
        index,
        name: Box::default(),
        name_hash: raw.u64(0).unwrap_or_default(),
        flags: fields.flags,
        content_type: raw.u16(44).unwrap_or_default(),
        tag_bits: raw.u16(46).unwrap_or_default(),
        block: Block::new(source, header, &fields, index)?,
        value: Value::Bytes,
        visible: true,
        words: None,
        residual: None,
        language: false,
    };
    Ok(Some((name, entry)))
}

/// Fields of an index entry about its block, as stored (section 3).
pub(super) struct BlockFields {
    pub flags: u16,
    pub offset: u64,
    pub disk_size: u64,
    pub orig_size: u64,
    pub crc: u32,
}

fn block_fields(raw: &[u8]) -> Option<BlockFields> {
    Some(BlockFields {
        flags: raw.u16(14)?,
        offset: raw.u64(16)?,
        disk_size: raw.u64(24)?,
        orig_size: raw.u64(32)?,
        crc: raw.u32(40)?,
    })
}
