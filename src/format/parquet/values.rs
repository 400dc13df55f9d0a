//! Decodes the values of a page, in the order of rows.

use super::{
    super::{CrcKind, PartError},
    Codec, Leaf,
    encoding::{self, Reason},
    page::{Header, Kind},
    schema::{Physical, Stop},
};
use crate::{
    codec::Codec as Decoder,
    limits,
    source::{Memory, to_usize, zeros},
    wanted,
};

/// A slot with a value.
pub const VALUE: u8 = 0;
/// A slot of a missing value.
pub const NULL: u8 = 1;
/// A slot of a missing list.
pub const NULL_LIST: u8 = 2;

/// The values of a page. Each value, missing value and missing list has a slot; a list without elements has none.
#[derive(Debug, Default)]
pub struct Decoded {
    /// For leaves with lists: the first slot of each row that begins in this page, then the number of slots, as
    /// little-endian `u32`. Empty if each row has one slot.
    pub starts: Vec<u8>,
    /// The kind of each slot ([`VALUE`] and so on); empty if all have values.
    pub marks: Vec<u8>,
    /// A value for each slot. A value of any length is 8 bytes: its offset in [`Self::bytes`] and its length, both
    /// `u32`.
    pub slots: Vec<u8>,
    /// The bytes of values of any length, unless they are in the dictionary.
    pub bytes: Vec<u8>,
    /// Whether values of any length are in the dictionary's bytes.
    pub is_in_dictionary: bool,
}

/// Bytes of a slot for a value of any length.
pub const SPAN: usize = 8;

/// The values to which indices refer.
#[derive(Debug, Clone, Copy)]
pub struct Dictionary<'a> {
    /// As [`Decoded::slots`].
    pub slots: &'a [u8],
}

impl Decoded {
    /// Returns the bytes of memory that all parts take.
    pub fn memory_usage(&self) -> u64 {
        [&self.starts, &self.marks, &self.slots, &self.bytes].map(|part| part.capacity() as u64).iter().sum()
    }
}

fn damaged<T>(reason: impl Into<String>) -> Result<T, PartError> {
    Err(PartError::Damaged(reason.into()))
}

fn broken(reason: Reason) -> PartError {
    PartError::Damaged(reason.into())
}

fn memory(size: u64, memory: &dyn Memory) -> Result<Vec<u8>, PartError> {
    if size > limits::PARQUET_PAGE {
        return damaged(format!("its values take {size} bytes; at most {} are decoded", limits::PARQUET_PAGE));
    }
    memory.reserve(size)?;
    wanted::check().map_err(crate::source::SourceError::from)?;
    Ok(zeros(to_usize(size)).map_err(crate::source::SourceError::from)?)
}

/// Returns the bytes of memory that it takes to decompress a page, in addition to the result.
fn working(codec: &Decoder, stored: usize, size: u32) -> u64 {
    codec.working_memory(0, stored as u64, size.into())
}

/// Decompresses to exactly `size` bytes.
fn decompress(codec: &Codec, stored: &[u8], size: u32, memory: &dyn Memory) -> Result<Vec<u8>, PartError> {
    let Codec::Known(codec) = codec else { return damaged(format!("its codec is {codec}")) };
    if stored.is_empty() && size == 0 {
        return Ok(Vec::new());
    }
    memory.reserve(u64::from(size).saturating_add(working(codec, stored.len(), size)))?;
    codec.decode(stored, size.into()).map_err(|error| match error.of_source() {
        Ok(error) => error.into(),
        Err(error) => PartError::Damaged(error.to_string()),
    })
}

/// Compares the checksum of a page, if it has one.
///
/// # Errors
/// `Damaged`.
pub fn check(header: &Header, stored: &[u8]) -> Result<(), PartError> {
    let Some(expected) = header.crc else { return Ok(()) };
    let value = CrcKind::Crc32.of(stored);
    match value == expected {
        true => Ok(()),
        false => damaged(format!("checksum is 0x{value:08x}, the page says 0x{expected:08x}")),
    }
}

/// Decodes the dictionary of a chunk from the stored bytes of its page.
///
/// # Errors
/// `Damaged`, and `Source` if there is not enough memory.
pub fn dictionary(
    leaf: &Leaf,
    header: &Header,
    codec: &Codec,
    stored: &[u8],
    memory: &dyn Memory,
) -> Result<Decoded, PartError> {
    let bytes = decompress(codec, stored, header.size, memory)?;
    if !matches!(header.encoding, 0 | 2) {
        return damaged(format!("a dictionary with the encoding {}", header.encoding));
    }
    values(leaf, bytes, 0, 0, header.values as usize, None, memory)
}

/// Decodes a page from its stored bytes.
///
/// # Errors
/// `Damaged`, and `Source` if there is not enough memory.
pub fn page(
    leaf: &Leaf,
    header: &Header,
    codec: &Codec,
    stored: &[u8],
    dictionary: Option<Dictionary<'_>>,
    memory: &dyn Memory,
) -> Result<Decoded, PartError> {
    let (bytes, repeated, defined, at) = match header.kind {
        Kind::DataV2 { defined, repeated, is_compressed, .. } => {
            let (front, at) = (u64::from(repeated) + u64::from(defined), repeated as usize);
            let Some((levels, rest)) = usize::try_from(front).ok().and_then(|front| stored.split_at_checked(front))
            else {
                return damaged("its levels are longer than the page");
            };
            let Some(size) = u32::try_from(front).ok().and_then(|front| header.size.checked_sub(front)) else {
                return damaged("its levels are longer than the page");
            };
            let bytes = match is_compressed {
                true => decompress(codec, rest, size, memory)?,
                false if rest.len() as u64 == u64::from(size) => {
                    memory.reserve(size.into())?;
                    rest.to_vec()
                }
                false => return damaged("it is not compressed, and has another size than stated"),
            };
            let (repeated, defined) = levels.split_at(at);
            return build(leaf, header, (repeated, defined), bytes, 0, dictionary, memory);
        }
        _ => {
            let bytes = decompress(codec, stored, header.size, memory)?;
            let mut at = 0;
            let mut levels = |is_there: bool| -> Result<std::ops::Range<usize>, PartError> {
                if !is_there {
                    return Ok(0..0);
                }
                let length = bytes.get(at..).and_then(<[u8]>::first_chunk).map(|length| u32::from_le_bytes(*length));
                let start = at + 4;
                let end = length.and_then(|length| start.checked_add(length as usize));
                let Some(end) = end.filter(|end| *end <= bytes.len()) else {
                    return damaged("its levels are longer than the page");
                };
                at = end;
                Ok(start..end)
            };
            let (repeated, defined) = (levels(leaf.most_repeated > 0)?, levels(leaf.most_defined() > 0)?);
            (bytes, repeated, defined, at)
        }
    };
    let [repeated, defined] = [repeated, defined].map(|range| bytes.get(range).unwrap_or_default().to_vec());
    build(leaf, header, (&repeated, &defined), bytes, at, dictionary, memory)
}

/// Decodes the levels of a page: one for each value, and for each missing or empty list.
fn levels(bytes: &[u8], most: u8, count: usize, memory: &dyn Memory) -> Result<Vec<u8>, PartError> {
    if most == 0 {
        return Ok(Vec::new());
    }
    let mut out = self::memory(count as u64, memory)?;
    let width = 8 - most.leading_zeros();
    let read = encoding::hybrid(bytes, width, &mut out, |level| level.to_le_bytes()[0]).map_err(broken)?;
    // Another length than stated means that values would be looked for at a wrong place.
    if count > 0 && read != bytes.len() {
        return damaged(format!("its levels have {read} bytes, {} are stated", bytes.len()));
    }
    match out.iter().copied().fold(0, u8::max) > most {
        true => damaged(format!("a level above {most}")),
        false => Ok(out),
    }
}

/// Returns how many levels are this one. Sums of bytes, which the compiler makes several of at once.
fn count_of(levels: &[u8], wanted: u8) -> usize {
    let of = |levels: &[u8]| levels.iter().fold(0u8, |sum, level| sum.wrapping_add(u8::from(*level == wanted)));
    levels.chunks(usize::from(u8::MAX)).map(|levels| usize::from(of(levels))).sum()
}

/// Builds rows from levels and values.
fn build(
    leaf: &Leaf,
    header: &Header,
    (repeated, defined): (&[u8], &[u8]),
    bytes: Vec<u8>,
    at: usize,
    dictionary: Option<Dictionary<'_>>,
    memory: &dyn Memory,
) -> Result<Decoded, PartError> {
    let count = header.values as usize;
    let most = leaf.most_defined();
    let repeated = levels(repeated, leaf.most_repeated, count, memory)?;
    let defined = levels(defined, most, count, memory)?;
    let present = if most == 0 { count } else { count_of(&defined, most) };
    let mut decoded = values(leaf, bytes, at, header.encoding, present, dictionary, memory)?;
    if leaf.most_repeated > 0 {
        let rows = count_of(&repeated, 0);
        if let Kind::DataV2 { rows: stated, .. } = header.kind
            && (rows as u64 != u64::from(stated) || repeated.first().is_some_and(|level| *level > 0))
        {
            return damaged(format!("it states {stated} rows, {rows} begin in it"));
        }
        let defined = if present < count { &defined[..] } else { &[] };
        decoded.starts = starts(leaf, &repeated, defined, rows, memory)?;
    }
    if present < count {
        decoded.marks = marks(leaf, &defined, memory)?;
        let slots = std::mem::take(&mut decoded.slots);
        decoded.slots = spread(&slots, &decoded.marks, leaf.physical.width().unwrap_or(SPAN), memory)?;
        if decoded.marks.iter().all(|mark| *mark == VALUE) {
            decoded.marks = Vec::new();
        }
    }
    Ok(decoded)
}

/// Returns the kind of slot that a definition level means; `None` if it has no slot.
fn mark(leaf: &Leaf, level: u8) -> Option<u8> {
    match leaf.stops.get(usize::from(level)) {
        None => Some(VALUE),
        Some(Stop::Null) => Some(NULL),
        Some(Stop::NullList) => Some(NULL_LIST),
        Some(Stop::Empty) => None,
    }
}

/// Returns [`Decoded::starts`]. `defined` is empty if all values are there.
fn starts(
    leaf: &Leaf,
    repeated: &[u8],
    defined: &[u8],
    rows: usize,
    memory: &dyn Memory,
) -> Result<Vec<u8>, PartError> {
    let mut starts = self::memory(4 * (rows as u64 + 1), memory)?;
    let mut out = starts.chunks_exact_mut(4);
    let mut slot = 0u32;
    let mut put = |slot: u32| {
        if let Some(out) = out.next() {
            out.copy_from_slice(&slot.to_le_bytes());
        }
    };
    if defined.is_empty() {
        (0u32..).zip(repeated).filter(|(_, level)| **level == 0).for_each(|(entry, _)| put(entry));
        #[expect(clippy::cast_possible_truncation, reason = "`PARQUET_VALUES` bounds them")]
        put(repeated.len() as u32);
        return Ok(starts);
    }
    for (entry, level) in repeated.iter().enumerate() {
        if *level == 0 {
            put(slot);
        }
        let level = defined.get(entry).copied().unwrap_or(leaf.most_defined());
        slot += u32::from(mark(leaf, level).is_some());
    }
    put(slot);
    Ok(starts)
}

#[expect(clippy::indexing_slicing, reason = "a level has at most one mark")]
fn marks(leaf: &Leaf, defined: &[u8], memory: &dyn Memory) -> Result<Vec<u8>, PartError> {
    let mut marks = self::memory(defined.len() as u64, memory)?;
    let mut count = 0;
    for level in defined {
        if let Some(mark) = mark(leaf, *level) {
            marks[count] = mark;
            count += 1;
        }
    }
    marks.truncate(count);
    Ok(marks)
}

/// Gives each slot of `width` bytes its value. Slots without a value get zeros.
fn spread(values: &[u8], marks: &[u8], width: usize, memory: &dyn Memory) -> Result<Vec<u8>, PartError> {
    if width == 0 {
        return Ok(Vec::new());
    }
    let mut slots = self::memory((marks.len() * width) as u64, memory)?;
    let mut values = values.chunks_exact(width);
    for (slot, mark) in slots.chunks_exact_mut(width).zip(marks) {
        if *mark == VALUE
            && let Some(value) = values.next()
        {
            slot.copy_from_slice(value);
        }
    }
    Ok(slots)
}

/// Decodes `count` values that begin at a place of a page. `encoding` is the number of the format.
fn values(
    leaf: &Leaf,
    bytes: Vec<u8>,
    at: usize,
    encoding: i32,
    count: usize,
    dictionary: Option<Dictionary<'_>>,
    memory: &dyn Memory,
) -> Result<Decoded, PartError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let width = leaf.physical.width();
    if count == 0 {
        return Ok(Decoded::default());
    }
    if matches!(encoding, 2 | 8) {
        let Some(dictionary) = dictionary else { return damaged("its dictionary is not there") };
        let slots = indexed(rest, count, dictionary, width.unwrap_or(SPAN), memory)?;
        return Ok(Decoded { slots, is_in_dictionary: width.is_none(), ..Decoded::default() });
    }
    let Some(width) = width else { return spans(bytes, at, encoding, count, memory) };
    if width == 0 {
        return damaged("its values have no bytes");
    }
    let size = (count as u64).saturating_mul(width as u64);
    if encoding == 0 && leaf.physical != Physical::Boolean {
        return Ok(Decoded { slots: plain(bytes, at, size)?, ..Decoded::default() });
    }
    let mut out = self::memory(size, memory)?;
    match (encoding, leaf.physical) {
        (0, Physical::Boolean) => encoding::booleans(rest, &mut out).map_err(broken)?,
        (3, Physical::Boolean) => {
            let hybrid = rest.get(4..).unwrap_or_default();
            encoding::hybrid(hybrid, 1, &mut out, |value| value.to_le_bytes()[0]).map_err(broken)?;
        }
        (5, Physical::Int32 | Physical::Int64) => {
            let mut values = out.chunks_exact_mut(width);
            #[expect(clippy::indexing_slicing, reason = "they have 4 or 8 bytes")]
            let put = |value: i64| {
                if let Some(out) = values.next() {
                    out.copy_from_slice(&value.to_le_bytes()[..width]);
                }
            };
            encoding::deltas(rest, count, put).map_err(broken)?;
        }
        (7, Physical::Fixed(_)) => {
            let (spans, joined) = prefixed(rest, count, memory)?;
            if spans.chunks_exact(SPAN).any(|span| span_of(span).1 != width) || joined.len() != out.len() {
                return damaged("its values have different lengths");
            }
            out = joined;
        }
        (9, Physical::Float | Physical::Double | Physical::Int32 | Physical::Int64 | Physical::Fixed(_)) => {
            encoding::join_streams(rest, width, &mut out).map_err(broken)?;
        }
        _ => return damaged(format!("its encoding has the number {encoding}, which these values never have")),
    }
    Ok(Decoded { slots: out, ..Decoded::default() })
}

/// Returns values that are stored as they are, in the memory that has the page.
fn plain(mut bytes: Vec<u8>, at: usize, size: u64) -> Result<Vec<u8>, PartError> {
    let end = usize::try_from(size).ok().and_then(|size| at.checked_add(size)).filter(|end| *end <= bytes.len());
    let Some(end) = end else { return damaged("its values end early") };
    bytes.truncate(end);
    bytes.drain(..at);
    Ok(bytes)
}

/// Looks up values in a dictionary.
fn indexed(
    bytes: &[u8],
    count: usize,
    dictionary: Dictionary<'_>,
    width: usize,
    memory: &dyn Memory,
) -> Result<Vec<u8>, PartError> {
    let Some((bits, rest)) = bytes.split_first() else { return damaged("its indices end early") };
    let known = dictionary.slots.len().checked_div(width).unwrap_or(0);
    memory.reserve((count as u64).saturating_mul(4))?;
    let mut indices = vec![0u32; count];
    // The indices of a dictionary of one value need no bits, and then no runs.
    if *bits > 0 || known > 1 {
        encoding::hybrid(rest, u32::from(*bits), &mut indices, |index| index).map_err(broken)?;
    }
    let mut slots = self::memory((count as u64).saturating_mul(width as u64), memory)?;
    let missing = match width {
        4 => look_up::<4>(&indices, dictionary.slots, &mut slots),
        8 => look_up::<8>(&indices, dictionary.slots, &mut slots),
        _ => slots.chunks_exact_mut(width.max(1)).zip(&indices).find_map(|(slot, index)| {
            let at = (*index as usize).saturating_mul(width);
            let Some(value) = dictionary.slots.get(at..at.saturating_add(width)) else { return Some(*index) };
            slot.copy_from_slice(value);
            None
        }),
    };
    if let Some(index) = missing {
        return damaged(format!("the index {index} in a dictionary of {known}"));
    }
    Ok(slots)
}

/// Copies values of a width that the compiler knows. Returns the first index that the dictionary lacks.
fn look_up<const WIDTH: usize>(indices: &[u32], known: &[u8], slots: &mut [u8]) -> Option<u32> {
    let (known, _) = known.as_chunks::<WIDTH>();
    let (slots, _) = slots.as_chunks_mut::<WIDTH>();
    slots.iter_mut().zip(indices).find_map(|(slot, index)| {
        let Some(value) = known.get(*index as usize) else { return Some(*index) };
        *slot = *value;
        None
    })
}

/// Returns where values of any length are.
fn spans(bytes: Vec<u8>, at: usize, encoding: i32, count: usize, memory: &dyn Memory) -> Result<Decoded, PartError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let slots = match encoding {
        0 => {
            // Each value follows its length.
            if rest.len() < count.saturating_mul(4) {
                return damaged("its values end early");
            }
            let mut slots = self::memory((count * SPAN) as u64, memory)?;
            let mut at = at;
            for slot in slots.chunks_exact_mut(SPAN) {
                let length = bytes.get(at..).and_then(<[u8]>::first_chunk).map(|length| u32::from_le_bytes(*length));
                let start = at + 4;
                let end = length.and_then(|length| start.checked_add(length as usize));
                let Some(end) = end.filter(|end| *end <= bytes.len()) else {
                    return damaged("its values end early");
                };
                put_span(slot, start, end - start);
                at = end;
            }
            slots
        }
        6 => {
            let (mut slots, front) = lengths(rest, count, memory)?;
            let mut start = at + front;
            for slot in slots.chunks_exact_mut(SPAN) {
                let length = span_of(slot).1;
                put_span(slot, start, length);
                start = start
                    .checked_add(length)
                    .filter(|end| *end <= bytes.len())
                    .ok_or_else(|| PartError::Damaged("its values end early".into()))?;
            }
            slots
        }
        7 => {
            let (slots, joined) = prefixed(rest, count, memory)?;
            return Ok(Decoded { slots, bytes: joined, ..Decoded::default() });
        }
        _ => return damaged(format!("its encoding has the number {encoding}, which these values never have")),
    };
    Ok(Decoded { slots, bytes, ..Decoded::default() })
}

fn put_span(slot: &mut [u8], start: usize, length: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "pages have fewer than 2^31 bytes")]
    let (start, length) = (start as u32, length as u32);
    slot.copy_from_slice(&(u64::from(length) << 32 | u64::from(start)).to_le_bytes());
}

/// Returns offset and length of a value of any length.
pub fn span_of(slot: &[u8]) -> (usize, usize) {
    let bits = slot.first_chunk().map_or(0, |bits| u64::from_le_bytes(*bits));
    (to_usize(bits & u64::from(u32::MAX)), (bits >> 32) as usize)
}

/// Reads delta-encoded lengths as spans without offsets. Returns them, and the number of bytes that were read.
fn lengths(bytes: &[u8], count: usize, memory: &dyn Memory) -> Result<(Vec<u8>, usize), PartError> {
    let mut slots = self::memory((count as u64).saturating_mul(SPAN as u64), memory)?;
    let mut is_sound = true;
    let mut out = slots.chunks_exact_mut(SPAN);
    let read = encoding::deltas(bytes, count, |length| {
        is_sound &= (0..=i64::from(i32::MAX)).contains(&length);
        if let Some(slot) = out.next() {
            put_span(slot, 0, to_usize(length.cast_unsigned()) & i32::MAX as usize);
        }
    });
    match (read, is_sound) {
        (Ok(read), true) => Ok((slots, read)),
        (Ok(_), false) => damaged("a length is negative or too large"),
        (Err(reason), _) => damaged(reason),
    }
}

/// Decodes values that share a prefix with the previous value (`DELTA_BYTE_ARRAY`). Returns their spans and their
/// bytes.
fn prefixed(bytes: &[u8], count: usize, memory: &dyn Memory) -> Result<(Vec<u8>, Vec<u8>), PartError> {
    let (mut slots, front) = lengths(bytes, count, memory)?;
    let rest = bytes.get(front..).unwrap_or_default();
    let (suffixes, front) = lengths(rest, count, memory)?;
    let mut rest = rest.get(front..).unwrap_or_default();
    let pairs = slots.chunks_exact(SPAN).zip(suffixes.chunks_exact(SPAN));
    let size: u64 = pairs.map(|(prefix, suffix)| (span_of(prefix).1 + span_of(suffix).1) as u64).sum();
    let mut joined = self::memory(size, memory)?;
    let (mut at, mut before) = (0, 0..0);
    for (slot, suffix) in slots.chunks_exact_mut(SPAN).zip(suffixes.chunks_exact(SPAN)) {
        let (prefix, suffix) = (span_of(slot).1, span_of(suffix).1);
        if prefix > before.len() {
            return damaged("a value shares more bytes with the one before than that has");
        }
        let Some((own, after)) = rest.split_at_checked(suffix) else { return damaged("its values end early") };
        joined.copy_within(before.start..before.start + prefix, at);
        if let Some(place) = joined.get_mut(at + prefix..at + prefix + suffix) {
            place.copy_from_slice(own);
        }
        put_span(slot, at, prefix + suffix);
        before = at..at + prefix + suffix;
        (at, rest) = (before.end, after);
    }
    Ok((slots, joined))
}
