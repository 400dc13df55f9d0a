//! The KAST draft, by the strict rules of `docs/formats/kast.md` 3. Comments name them by number.

use std::ops::Range;

use super::{
    Class, DType, Fields, FormatError, Front, Recognition,
    kastore::{ITEM_MEMORY, Item, TOGETHER, dtype_of_code},
};
use crate::{
    limits,
    source::{Memory, Source, SourceError, Unlimited, check_room, to_usize},
};

/// Bytes of the header.
pub const HEADER: u64 = 40;
const ENTRY: u64 = 32;

/// A KAST file.
#[derive(Debug)]
pub struct Kast {
    /// Major and minor version.
    pub version: (u16, u16),
    /// The items in stored order, which is that of their keys.
    pub items: Vec<Item>,
    /// Bytes after the last array, ignored.
    pub trailing: u64,
}

/// The header's fields after rules 1 to 8.
struct Header {
    minor: u16,
    n: u32,
    table: u64,
    data: u64,
}

fn bad(reason: impl Into<String>) -> FormatError {
    FormatError::refused(Class::BadFormat, reason)
}

/// The header of a file of `length` bytes, of which these are the first, the header's or more.
fn parse_header(header: &[u8], length: u64) -> Result<Header, FormatError> {
    if length == 0 {
        return Err(FormatError::refused(Class::Empty, "no bytes")); // 1
    }
    let present = header.len().min(4);
    if header.get(..present) != b"KAST".get(..present) {
        return Err(FormatError::refused(Class::BadMagic, "the first 4 bytes are not KAST")); // 2
    }
    let fields = (header.u16(4), header.u16(6), header.u32(8), header.u32(12), header.u64(16), header.u64(24));
    let (Some(major), Some(minor), Some(flags), Some(n), Some(table), Some(data)) = fields else {
        return Err(FormatError::refused(Class::Truncated, format!("{length} bytes, but a header has {HEADER}")));
    };
    if length < HEADER {
        return Err(FormatError::refused(Class::Truncated, format!("{length} bytes, but a header has {HEADER}"))); // 3
    }
    match major {
        0 => return Err(FormatError::refused(Class::VersionTooOld, "major version 0, this reads 1")), // 4
        1 => {}
        _ => return Err(FormatError::refused(Class::VersionTooNew, format!("major version {major}, this reads 1"))),
    }
    if flags != 0 {
        return Err(FormatError::refused(Class::UnsupportedFlags, format!("flags {flags:#x}, this reads 0"))); // 5
    }
    if table % 8 != 0 || table < HEADER || table > length {
        return Err(bad(format!("keys table at {table} of {length} bytes"))); // 6
    }
    let table_end = table + ENTRY * u64::from(n);
    if table_end > length {
        return Err(bad(format!("keys table of {n} entries at {table} passes the end at {length}: incomplete copy?"))); // 7
    }
    if data % 8 != 0 || data < table_end || data > length {
        return Err(bad(format!("data blocks at {data}, table ends at {table_end}, file at {length}"))); // 8
    }
    Ok(Header { minor, n, table, data })
}

/// Recognises KAST files by their front. One claims to be KAST strongly enough that a refusal is worth telling if rules 4
/// to 8 hold (section 5).
pub fn recognise(front: &Front<'_>) -> Recognition {
    match (front.by_magic(b"KAST", HEADER), parse_header(front.bytes, front.len)) {
        (Recognition::No, _) => Recognition::No,
        (_, Ok(_)) => Recognition::Meant,
        (_, Err(_)) => Recognition::Maybe,
    }
}

/// Reads the header, the keys table and the keys.
///
/// # Errors
/// The class of section 3 that the file fails first.
pub fn parse(source: &dyn Source) -> Result<Kast, FormatError> {
    parse_within(source, &Unlimited)
}

/// Does the same as [`parse`], with memory reserved first.
///
/// # Errors
/// As [`parse`]; `Source` if there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Kast, FormatError> {
    let length = source.len();
    let header = source.read(0..length.min(HEADER))?;
    let Header { minor, n, table, data } = parse_header(&header, length)?;
    let keys_start = table + ENTRY * u64::from(n);
    let mut items: Vec<Item> = Vec::new();
    let mut keys_size = 0;
    while items.len() < n as usize {
        let from = table + ENTRY * items.len() as u64;
        let entries = source.read(from..keys_start.min(from + ENTRY * TOGETHER))?;
        let needed = entries.len() as u64 / ENTRY * ITEM_MEMORY;
        memory.reserve(needed)?;
        check_room(needed, 1).map_err(SourceError::from)?;
        for entry in entries.chunks_exact(to_usize(ENTRY)) {
            let j = items.len();
            let fields = (entry.u32(0), entry.u64(4), entry.u32(12), entry.u64(16), entry.u64(24));
            let (Some(key_len), Some(key_at), Some(code), Some(count), Some(at)) = fields else { break };
            let Some(dtype) = dtype_of_code(code) else {
                return Err(FormatError::refused(Class::BadType, format!("entry {j}: type code {code}"))); // 9
            };
            // Keys may share their bytes, so their sum can be far more than the file holds.
            keys_size += u64::from(key_len);
            if keys_size > limits::STORE_KEYS {
                return Err(bad(format!("entry {j}: more than {} bytes of keys", limits::STORE_KEYS)));
            }
            memory.reserve(key_len.into())?;
            let Some(key) = read_key(source, key_at, key_len, keys_start..data)? else {
                let reason = "is empty, outside the keys area, not terminated, or has a null inside";
                return Err(bad(format!("entry {j}: key of {key_len} bytes at {key_at} {reason}"))); // 10
            };
            let Some(range) = array_range(dtype, count, at).filter(|r| r.start >= data && r.end <= length) else {
                return Err(bad(format!("entry {j}: data range {at} + {count} elements"))); // 11
            };
            if items.last().is_some_and(|last| last.key >= key) {
                return Err(bad(format!("entry {j}: keys not in strictly rising order"))); // 12
            }
            items.push(Item { key, dtype, count, data: range });
        }
    }
    let mut ranges: Vec<&Range<u64>> = items.iter().map(|item| &item.data).filter(|r| !r.is_empty()).collect();
    ranges.sort_by_key(|range| range.start);
    if let Some((first, next)) = ranges.iter().zip(ranges.iter().skip(1)).find(|(first, next)| first.end > next.start) {
        return Err(bad(format!("arrays at {} and {} overlap", first.start, next.start))); // 13
    }
    let end = ranges.last().map_or(data, |range| range.end);
    Ok(Kast { version: (1, minor), items, trailing: length - end })
}

/// Returns the key of an entry, if it lies in `area` with its terminator. The area itself may have any size.
fn read_key(source: &dyn Source, at: u64, length: u32, area: Range<u64>) -> Result<Option<Vec<u8>>, FormatError> {
    let end = at.checked_add(u64::from(length) + 1).filter(|&end| at >= area.start && end <= area.end && length > 0);
    let Some(end) = end else { return Ok(None) };
    let mut key = source.read(at..end)?;
    Ok((key.pop() == Some(0) && !key.contains(&0)).then_some(key))
}

fn array_range(dtype: DType, count: u64, at: u64) -> Option<Range<u64>> {
    let end = at.checked_add(count.checked_mul(dtype.size())?)?;
    at.is_multiple_of(8).then_some(at..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_begins_with_the_letters_claims_nothing() {
        let bytes = b"KASTORE is a file format of some forty bytes";
        let recognised = recognise(&Front { bytes, len: bytes.len() as u64, name: b"a.kast" });
        assert_eq!(recognised, Recognition::Maybe);
    }

    /// A store of empty arrays, whose keys are the ends of one long one.
    fn shared_keys(count: u32) -> Vec<u8> {
        let keys_start = 40 + 32 * u64::from(count);
        let keys_end = keys_start + u64::from(count) + 1;
        let data = keys_end.next_multiple_of(8);
        let mut bytes = b"KAST\x01\x00\x00\x00\x00\x00\x00\x00".to_vec();
        bytes.extend(count.to_le_bytes());
        bytes.extend([40, data, 0].map(u64::to_le_bytes).concat());
        for length in 1..=count {
            bytes.extend(length.to_le_bytes());
            bytes.extend((keys_end - 1 - u64::from(length)).to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            bytes.extend([0, data].map(u64::to_le_bytes).concat());
        }
        bytes.resize(keys_end as usize - 1, b'a');
        bytes.resize(data as usize, 0);
        bytes
    }

    #[test]
    fn keys_that_share_their_bytes_are_bounded_by_their_sum() {
        let few = parse(&shared_keys(100)).unwrap();
        assert_eq!((few.items.len(), &*few.items[2].key), (100, &b"aaa"[..]));
        let many = parse(&shared_keys(6000)).unwrap_err();
        assert!(many.to_string().contains("bytes of keys"), "{many}");
    }

    #[test]
    fn the_empty_store_is_its_header() {
        let mut bytes = b"KAST\x01\x00\x00\x00".to_vec();
        bytes.resize(40, 0);
        bytes[16] = 40;
        bytes[24] = 40;
        let kast = parse(&bytes).unwrap();
        assert_eq!((kast.items.len(), kast.trailing), (0, 0));
        bytes.truncate(39);
        assert!(matches!(parse(&bytes), Err(FormatError::Refused { class: Class::Truncated, .. })));
    }
}
