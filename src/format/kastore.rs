//! kastore stores, `.trees` files among them (`docs/formats/kastore.md`).
//!
//! The rules are those of section 6 of that page, in its order. Comments name them by number.

use std::{collections::HashSet, ops::Range};

use super::{Class, DType, Fields, FormatError};
use crate::{
    limits,
    source::{Memory, Source, SourceError, Unlimited, check_room, to_usize},
};

/// `\x89KAS\r\n\x1a\n`, section 1.1.
pub const SIGNATURE: [u8; 8] = *b"\x89KAS\r\n\x1a\n";
/// Bytes of the header, and of each descriptor.
pub const HEADER: u64 = 64;

/// One array under its key. kastore and KAST store the same thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The key's bytes, as stored.
    pub key: Vec<u8>,
    /// Element type, one of ten.
    pub dtype: DType,
    /// Number of elements.
    pub count: u64,
    /// The elements' bytes in the file.
    pub data: Range<u64>,
}

/// One store; a file may hold several (section 8).
#[derive(Debug)]
pub struct Store {
    /// Major and minor version.
    pub version: (u16, u16),
    /// The store's bytes in the file.
    pub range: Range<u64>,
    /// The items in stored order.
    pub items: Vec<Item>,
}

/// All stores of a file.
#[derive(Debug)]
pub struct Kastore {
    /// At least one.
    pub stores: Vec<Store>,
    /// Bytes after the last store that are no store: how many, and what is wrong with them.
    pub trailing: Option<(u64, FormatError)>,
}

/// Returns the element type of a type code (section 1.3). KAST uses the same codes.
pub fn dtype_of_code(code: u32) -> Option<DType> {
    const TYPES: [DType; 10] = [
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::F32,
        DType::F64,
    ];
    TYPES.get(usize::try_from(code).ok()?).copied()
}

/// Checks whether the first store opens, which is all that detection needs.
///
/// # Errors
/// As [`parse`].
pub fn probe(source: &dyn Source) -> Result<(), FormatError> {
    parse_store(source, 0, &Unlimited).map(drop)
}

/// Reads the header, descriptors and keys of every store in the file.
///
/// # Errors
/// The class of section 6 that the first store fails; later ones only end the series.
pub fn parse(source: &dyn Source) -> Result<Kastore, FormatError> {
    parse_within(source, &Unlimited)
}

/// Does the same as [`parse`], with memory reserved first.
///
/// # Errors
/// As [`parse`]; `Source` if there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Kastore, FormatError> {
    let first = parse_store(source, 0, memory)?;
    let mut base = first.range.end;
    let mut stores = vec![first];
    let mut trailing = None;
    while base < source.len() {
        match parse_store(source, base, memory) {
            Ok(store) => {
                base = store.range.end;
                stores.push(store);
            }
            Err(FormatError::Source(error)) => return Err(error.into()),
            Err(error) => {
                trailing = Some((source.len() - base, error));
                break;
            }
        }
    }
    Ok(Kastore { stores, trailing })
}

fn bad(reason: impl Into<String>) -> FormatError {
    FormatError::refused(Class::BadFormat, reason)
}

fn parse_store(source: &dyn Source, base: u64, memory: &dyn Memory) -> Result<Store, FormatError> {
    let available = source.len().saturating_sub(base);
    if available == 0 {
        return Err(FormatError::refused(Class::Empty, "no bytes")); // 1
    }
    let header = source.read(base..base + available.min(HEADER))?;
    let length = header.len().min(8);
    if header.get(..length) != SIGNATURE.get(..length) {
        return Err(FormatError::refused(Class::BadMagic, "the first 8 bytes are not the kastore signature")); // 2
    }
    let fields = (header.u16(8), header.u16(10), header.u32(12), header.u64(16), available >= HEADER);
    let (Some(major), Some(minor), Some(n), Some(file_size), true) = fields else {
        let reason = format!("{available} bytes, but a header has {HEADER}");
        return Err(FormatError::refused(Class::Truncated, reason)); // 3
    };
    match major {
        0 => return Err(FormatError::refused(Class::VersionTooOld, "major version 0, this reads 1")), // 4
        1 => {}
        _ => return Err(FormatError::refused(Class::VersionTooNew, format!("major version {major}, this reads 1"))),
    }
    let descriptors_end = HEADER + 64 * u64::from(n);
    if file_size < HEADER {
        return Err(bad(format!("header says {file_size} bytes, less than a header"))); // 5
    }
    if descriptors_end > file_size {
        return Err(bad(format!("{n} descriptors do not fit in the {file_size} bytes that the header says"))); // 6
    }
    if n == 0 && file_size != HEADER {
        return Err(bad(format!("no items but header says {file_size} bytes, not {HEADER}"))); // 7
    }
    if file_size > available {
        let reason = format!("header says {file_size} bytes, file has {available}: incomplete copy?");
        return Err(FormatError::refused(Class::Truncated, reason)); // 8
    }
    let items = parse_items(source, base..base + file_size, descriptors_end, memory)?;
    Ok(Store { version: (major, minor), range: base..base + file_size, items })
}

/// Bytes of memory that an item takes in addition to its key, including its place in the tree.
pub(super) const ITEM_MEMORY: u64 = 500;

/// Descriptors that are read together. A file that is no store is refused by its first ones, however many it claims.
pub(super) const TOGETHER: u64 = 1 << 14;

/// Rules 9 to 12. The number of items is now bounded by the store's real bytes.
fn parse_items(
    source: &dyn Source,
    store: Range<u64>,
    keys: u64,
    memory: &dyn Memory,
) -> Result<Vec<Item>, FormatError> {
    let (base, file_size) = (store.start, store.end - store.start);
    let mut found = Vec::new();
    let mut position = keys;
    while found.len() as u64 * 64 < keys - HEADER {
        let from = HEADER + found.len() as u64 * 64;
        let descriptors = source.read(base + from..base + keys.min(from + 64 * TOGETHER))?;
        let needed = descriptors.len() as u64 / 64 * ITEM_MEMORY;
        memory.reserve(needed)?;
        check_room(needed, 1).map_err(SourceError::from)?;
        for descriptor in descriptors.chunks_exact(64) {
            let j = found.len();
            let code = descriptor.first().copied().map_or(0, u32::from);
            let fields = (descriptor.u64(8), descriptor.u64(16), descriptor.u64(24), descriptor.u64(32));
            let (Some(key_start), Some(key_len), Some(array_start), Some(count)) = fields else { break };
            let Some(dtype) = dtype_of_code(code) else {
                return Err(FormatError::refused(Class::BadType, format!("item {j}: type code {code}"))); // 9
            };
            let inside = |start: u64, size: Option<u64>| {
                let end = size.and_then(|size| start.checked_add(size))?;
                (end <= file_size).then_some(start..end)
            };
            let Some(key) = inside(key_start, Some(key_len)).filter(|key| !key.is_empty()) else {
                let reason = "is empty or outside the store";
                return Err(bad(format!("item {j}: key of {key_len} bytes at {key_start} {reason}"))); // 10
            };
            let Some(data) = inside(array_start, count.checked_mul(dtype.size())) else {
                let reason = "is outside the store";
                return Err(bad(format!("item {j}: array of {count} elements at {array_start} {reason}"))); // 10
            };
            found.push((key, dtype, count, data));
        }
    }
    for (j, (key, ..)) in found.iter().enumerate() {
        if key.start != position {
            return Err(bad(format!("item {j}: key starts at {}, expected {position}", key.start))); // 11
        }
        position = key.end;
    }
    if position - keys > limits::STORE_KEYS {
        return Err(bad(format!("{} bytes of keys, this reads {}", position - keys, limits::STORE_KEYS)));
    }
    let needed = 2 * (position - keys);
    memory.reserve(needed)?;
    check_room(needed, 1).map_err(SourceError::from)?;
    let key_bytes = source.read(base + keys..base + position)?;
    for (j, (.., data)) in found.iter().enumerate() {
        let expected = position.next_multiple_of(8);
        if data.start != expected {
            return Err(bad(format!("item {j}: array starts at {}, expected {expected}", data.start)));
        }
        position = data.end;
    }
    if position != file_size {
        return Err(bad(format!("the last array ends at {position}, header says {file_size}")));
    }
    let mut seen = HashSet::with_capacity(found.len());
    let mut items = Vec::with_capacity(found.len());
    for (j, (key, dtype, count, data)) in found.into_iter().enumerate() {
        let key = slice(&key_bytes, keys, &key);
        if !seen.insert(key) {
            return Err(bad(format!("item {j}: key {:?} occurs twice", String::from_utf8_lossy(key)))); // 12
        }
        items.push(Item { key: key.to_vec(), dtype, count, data: base + data.start..base + data.end });
    }
    Ok(items)
}

/// Returns a range of the store from bytes that begin at `from`. The range was checked to lie inside.
fn slice<'a>(bytes: &'a [u8], from: u64, range: &Range<u64>) -> &'a [u8] {
    bytes.get(to_usize(range.start - from)..to_usize(range.end - from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store of u8 arrays, by section 1.
    fn store(items: &[(&str, &[u8])]) -> Vec<u8> {
        let keys: usize = items.iter().map(|(key, _)| key.len()).sum();
        let (mut key_at, mut at) = (64 + 64 * items.len(), 64 + 64 * items.len() + keys);
        let mut descriptors = Vec::new();
        let mut data = Vec::new();
        for (key, bytes) in items {
            data.resize(data.len() + at.next_multiple_of(8) - at, 0);
            at = at.next_multiple_of(8);
            descriptors.extend(1u64.to_le_bytes());
            for field in [key_at, key.len(), at, bytes.len(), 0, 0, 0] {
                descriptors.extend((field as u64).to_le_bytes());
            }
            key_at += key.len();
            at += bytes.len();
            data.extend(*bytes);
        }
        let mut out = SIGNATURE.to_vec();
        out.extend(1u32.to_le_bytes());
        out.extend((items.len() as u32).to_le_bytes());
        out.extend((at as u64).to_le_bytes());
        out.resize(64, 0);
        out.extend(descriptors);
        items.iter().for_each(|(key, _)| out.extend(key.as_bytes()));
        out.extend(data);
        out
    }

    fn class(bytes: Vec<u8>) -> Class {
        match parse(&bytes) {
            Err(FormatError::Refused { class, .. }) => class,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn stores_follow_each_other_until_something_else_does() {
        let mut bytes = store(&[("a", b"123"), ("b/c", b"")]);
        let first = bytes.len() as u64;
        bytes.extend(store(&[("z", b"9")]));
        bytes.extend(b"junk");
        let parsed = parse(&bytes).unwrap();
        assert_eq!(parsed.stores.len(), 2);
        assert_eq!(parsed.stores[0].items[1].key, b"b/c");
        assert_eq!(parsed.stores[1].range.start, first);
        assert!(matches!(parsed.trailing, Some((4, FormatError::Refused { class: Class::BadMagic, .. }))));
    }

    #[test]
    fn duplicate_keys_are_refused() {
        assert_eq!(class(store(&[("a", b"1"), ("a", b"2")])), Class::BadFormat);
    }

    #[test]
    fn a_forged_count_costs_nothing() {
        let mut bytes = store(&[("a", b"1")]);
        bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(class(bytes.clone()), Class::BadFormat);
        bytes[16..24].copy_from_slice(&(1u64 << 60).to_le_bytes());
        assert_eq!(class(bytes), Class::Truncated);
    }
}
