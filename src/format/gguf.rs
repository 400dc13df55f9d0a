//! GGUF files (`docs/formats/gguf.md`): metadata, descriptions of tensors, then the tensors' bytes.
//!
//! Everything before the data is read once, in pieces. For long values the place is kept instead of the value. The
//! rules are those of sections 1 and 3 of that page.

pub mod blocks;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, ops::Range};

use super::{
    Class, DType, Fields, FormatError, Front, Recognition,
    cursor::Cursor,
    packed::{Asked, Packed},
};
use crate::{
    limits,
    source::{Memory, Source, SourceError, Unlimited, check_room},
};
use blocks::Quantised;

/// The first bytes of every such file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Bytes of the header.
pub const HEADER: u64 = 24;

/// The usual suffix.
pub const SUFFIX: &str = ".gguf";

/// Alignment of files that do not state one.
const ALIGNMENT: u64 = 32;

/// The least bytes of a pair and of a tensor's description.
const PAIR: u64 = 13;
const INFO: u64 = 24;

/// Bytes that a pair and a tensor take in memory in addition to their names, while the container is opened.
const PAIR_MEMORY: u64 = 150;
const TENSOR_MEMORY: u64 = 400;

/// Longest text of a pair that is kept, in bytes.
const SHORT: u64 = 256;

/// How a tensor's elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One by one.
    Plain(DType),
    /// In blocks.
    Blocks {
        /// Elements of a block.
        elements: u64,
        /// Bytes of a block.
        bytes: u64,
        /// How they become numbers, if known.
        quantised: Option<Quantised>,
    },
}

/// A type of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// Its number.
    pub code: u32,
    /// Its name.
    pub name: &'static str,
    /// How elements are stored.
    pub kind: Kind,
}

const fn plain(code: u32, name: &'static str, dtype: DType) -> Type {
    Type { code, name, kind: Kind::Plain(dtype) }
}

const fn known(code: u32, name: &'static str, elements: u64, bytes: u64, quantised: Quantised) -> Type {
    Type { code, name, kind: Kind::Blocks { elements, bytes, quantised: Some(quantised) } }
}

const fn opaque(code: u32, name: &'static str, elements: u64, bytes: u64) -> Type {
    Type { code, name, kind: Kind::Blocks { elements, bytes, quantised: None } }
}

/// Section 1.
static TYPES: [Type; 34] = [
    plain(0, "F32", DType::F32),
    plain(1, "F16", DType::F16),
    known(2, "Q4_0", 32, 18, Quantised::Q4_0),
    known(3, "Q4_1", 32, 20, Quantised::Q4_1),
    known(6, "Q5_0", 32, 22, Quantised::Q5_0),
    known(7, "Q5_1", 32, 24, Quantised::Q5_1),
    known(8, "Q8_0", 32, 34, Quantised::Q8_0),
    opaque(9, "Q8_1", 32, 40),
    known(10, "Q2_K", 256, 84, Quantised::Q2K),
    known(11, "Q3_K", 256, 110, Quantised::Q3K),
    known(12, "Q4_K", 256, 144, Quantised::Q4K),
    known(13, "Q5_K", 256, 176, Quantised::Q5K),
    known(14, "Q6_K", 256, 210, Quantised::Q6K),
    opaque(15, "Q8_K", 256, 292),
    opaque(16, "IQ2_XXS", 256, 66),
    opaque(17, "IQ2_XS", 256, 74),
    opaque(18, "IQ3_XXS", 256, 98),
    opaque(19, "IQ1_S", 256, 50),
    known(20, "IQ4_NL", 32, 18, Quantised::Iq4Nl),
    opaque(21, "IQ3_S", 256, 110),
    opaque(22, "IQ2_S", 256, 82),
    known(23, "IQ4_XS", 256, 136, Quantised::Iq4Xs),
    plain(24, "I8", DType::I8),
    plain(25, "I16", DType::I16),
    plain(26, "I32", DType::I32),
    plain(27, "I64", DType::I64),
    plain(28, "F64", DType::F64),
    opaque(29, "IQ1_M", 256, 56),
    plain(30, "BF16", DType::Bf16),
    opaque(34, "TQ1_0", 256, 54),
    opaque(35, "TQ2_0", 256, 66),
    known(39, "MXFP4", 32, 17, Quantised::Mxfp4),
    opaque(40, "NVFP4", 64, 36),
    opaque(41, "Q1_0", 128, 18),
];

/// Returns the type of a value, or of an array's elements, that is neither a string nor an array.
pub(crate) fn scalar(code: u32) -> Option<DType> {
    Some(match code {
        0 => DType::U8,
        1 => DType::I8,
        2 => DType::U16,
        3 => DType::I16,
        4 => DType::U32,
        5 => DType::I32,
        6 => DType::F32,
        7 => DType::Bool,
        10 => DType::U64,
        11 => DType::I64,
        12 => DType::F64,
        _ => return None,
    })
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// The value of a pair, by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number or a boolean; its bits, in the order of this machine.
    Scalar(DType, u64),
    /// A text: the place of its bytes, and the text if it is short.
    Text(Range<u64>, Option<Box<str>>),
    /// Numbers or booleans: how many, and the place of their bytes.
    Array(DType, u64, Range<u64>),
    /// Texts: how many, and the place of all of them, each after its length.
    Texts(u64, Range<u64>),
}

/// The content of a file.
#[derive(Debug)]
pub struct Gguf {
    /// 2 or 3.
    pub version: u32,
    /// Whether all numbers are big-endian.
    pub is_big: bool,
    /// Alignment of tensors in bytes: their offsets are multiples of it.
    pub alignment: u64,
    keys: Packed<u8>,
    values: Vec<Value>,
    names: Packed<u8>,
    shapes: Packed<u64>,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    code: u32,
    begin: u64,
    end: u64,
}

/// One tensor.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Its name, which may be any bytes.
    pub name: &'a [u8],
    /// The number of its type.
    pub code: u32,
    /// Elements along each axis, the outermost first.
    pub shape: &'a [u64],
    begin: u64,
    end: u64,
}

impl Tensor<'_> {
    /// Returns its type, if that is known.
    pub fn kind(&self) -> Option<&'static Type> {
        type_of(self.code)
    }

    /// Returns the place of its bytes in the file.
    pub fn data(&self) -> Range<u64> {
        self.begin..self.end
    }

    /// Returns how many elements it has.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |all, axis| all.saturating_mul(*axis))
    }
}

fn type_of(code: u32) -> Option<&'static Type> {
    TYPES.iter().find(|known| known.code == code)
}

impl Gguf {
    /// Returns how many tensors there are.
    pub fn tensors(&self) -> usize {
        self.places.len()
    }

    /// Returns a tensor by its number.
    pub fn tensor(&self, number: usize) -> Option<Tensor<'_>> {
        let &Place { code, begin, end } = self.places.get(number)?;
        Some(Tensor { name: self.names.get(number), code, shape: self.shapes.get(number), begin, end })
    }

    /// Iterates over the tensors, in stored order.
    pub fn iter(&self) -> impl Iterator<Item = Tensor<'_>> + Clone {
        (0..self.places.len()).filter_map(|number| self.tensor(number))
    }

    /// Iterates over keys and values, in stored order. Keys are UTF-8.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &Value)> + Clone {
        self.keys.iter().zip(&self.values).map(|(key, value)| (std::str::from_utf8(key).unwrap_or_default(), value))
    }

    /// Returns the value of the pair with a number.
    pub fn value_at(&self, number: usize) -> Option<&Value> {
        self.values.get(number)
    }

    /// Returns the value of a key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.pairs().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let lists = self.keys.memory_usage() + self.names.memory_usage() + self.shapes.memory_usage();
        let texts: usize =
            self.values.iter().map(|value| if let Value::Text(_, Some(text)) = value { text.len() } else { 0 }).sum();
        lists + texts + self.values.capacity() * size_of::<Value>() + self.places.capacity() * size_of::<Place>()
    }
}

/// Passes the texts of a [`Value::Texts`] to `each`. Calls `memory` with the length in bytes before it reads a long
/// text.
///
/// # Errors
/// `Source`, and those of `memory` and `each`.
pub fn each_text<E: From<FormatError>>(
    source: &dyn Source,
    is_big: bool,
    (count, place): (u64, &Range<u64>),
    memory: impl Fn(u64) -> Result<(), SourceError>,
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut cursor = Cursor::new(source, place.start, is_big, limits::GGUF_FRONT);
    for _ in 0..count {
        each(&cursor.text(&memory)?)?;
    }
    Ok(())
}

/// Recognises files by magic or suffix.
pub fn recognise(front: &Front<'_>) -> Recognition {
    if front.has_suffix(&[SUFFIX]) { Recognition::Meant } else { front.by_magic(&MAGIC, HEADER) }
}

/// Reads everything in front of the data.
///
/// # Errors
/// The class of section 3 that it fails.
pub fn parse(source: &dyn Source) -> Result<Gguf, FormatError> {
    parse_within(source, &Unlimited)
}

/// Like [`parse`], for a caller that has to ask for memory.
///
/// # Errors
/// Like [`parse`]; `Source` if there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Gguf, FormatError> {
    let front = source.read(0..source.len().min(HEADER))?;
    if !front.starts_with(&MAGIC) {
        return Err(FormatError::refused(Class::BadMagic, "the first 4 bytes are not GGUF"));
    }
    let (Some(version), true) = (front.u32(4), front.len() as u64 == HEADER) else {
        return Err(truncated(format!("{} bytes, the header has {HEADER}", front.len())));
    };
    let is_big = version & 0xffff == 0;
    let version = if is_big { version.swap_bytes() } else { version };
    if !(2..=3).contains(&version) {
        return Err(FormatError::refused(Class::BadVersion, format!("version {version}, this reads 2 and 3")));
    }
    let mut cursor = Cursor::new(source, 8, is_big, limits::GGUF_FRONT);
    let (tensors, pairs) = (cursor.u64()?, cursor.u64()?);
    let needed = tensors.checked_mul(INFO).zip(pairs.checked_mul(PAIR)).and_then(|(a, b)| a.checked_add(b));
    if needed.is_none_or(|needed| needed > source.len() - HEADER) {
        return Err(truncated(format!("{pairs} pairs and {tensors} tensors do not fit in {} bytes", source.len())));
    }
    for (count, what) in [(pairs, "pairs"), (tensors, "tensors")] {
        if count > limits::TENSORS as u64 {
            return Err(FormatError::refused(
                Class::TooMany,
                format!("{count} {what}, the most is {}", limits::TENSORS),
            ));
        }
    }
    let mut asked = Asked::new(memory);
    let mut found = Gguf {
        version,
        is_big,
        alignment: ALIGNMENT,
        keys: Packed::default(),
        values: Vec::new(),
        names: Packed::default(),
        shapes: Packed::default(),
        places: Vec::new(),
    };
    for number in 0..pairs {
        read_pair(&mut cursor, &mut found, &mut asked).map_err(|error| in_part(error, "pair", number))?;
    }
    check_names(&found.keys, "key")?;
    found.alignment = alignment(&found)?;
    for number in 0..tensors {
        read_tensor(&mut cursor, &mut found, &mut asked).map_err(|error| in_part(error, "tensor", number))?;
    }
    check_names(&found.names, "tensor")?;
    place(&mut found, cursor.position(), source.len())?;
    found.keys.shrink();
    found.names.shrink();
    found.shapes.shrink();
    Ok(found)
}

fn truncated(reason: impl Into<String>) -> FormatError {
    FormatError::refused(Class::Truncated, reason)
}

/// Adds to an error the part in which it is.
fn in_part(error: FormatError, what: &str, number: u64) -> FormatError {
    match error {
        FormatError::Refused { class, reason } => FormatError::refused(class, format!("{what} {number}: {reason}")),
        error => error,
    }
}

fn read_pair(cursor: &mut Cursor<'_>, found: &mut Gguf, asked: &mut Asked<'_>) -> Result<(), FormatError> {
    let key = cursor.name()?;
    if key.is_empty() || std::str::from_utf8(&key).is_err() {
        return Err(FormatError::refused(
            Class::BadKey,
            if key.is_empty() { "its key is empty" } else { "its key is not UTF-8" },
        ));
    }
    asked.take(PAIR_MEMORY + 4 * key.len() as u64)?;
    let bad_type = |code: u32| FormatError::refused(Class::BadType, format!("type {code}"));
    let value = match cursor.u32()? {
        STRING => {
            let length = cursor.u64()?;
            let at = cursor.position();
            let short = if length <= SHORT { String::from_utf8(cursor.bytes(length)?).ok() } else { None };
            if length > SHORT {
                cursor.skip(length)?;
            }
            asked.take(if short.is_some() { length + 16 } else { 0 })?;
            Value::Text(at..at + length, short.map(String::into_boxed_str))
        }
        ARRAY => {
            let (code, count) = (cursor.u32()?, cursor.u64()?);
            let at = cursor.position();
            match (code, scalar(code)) {
                (ARRAY, _) => return Err(FormatError::refused(Class::NestedArray, "an array of arrays")),
                (STRING, _) => {
                    cursor.skip_texts(count)?;
                    Value::Texts(count, at..cursor.position())
                }
                (_, Some(dtype)) => {
                    let size = count.checked_mul(dtype.size());
                    cursor.skip(size.ok_or_else(|| truncated(format!("an array of {count} elements")))?)?;
                    Value::Array(dtype, count, at..cursor.position())
                }
                (_, None) => return Err(bad_type(code)),
            }
        }
        code => {
            let dtype = scalar(code).ok_or_else(|| bad_type(code))?;
            Value::Scalar(dtype, cursor.bits(dtype)?)
        }
    };
    found.keys.push(&key);
    found.values.push(value);
    Ok(())
}

/// Fails if a name occurs twice.
fn check_names(names: &Packed<u8>, what: &str) -> Result<(), FormatError> {
    check_room(names.len() as u64, 40).map_err(SourceError::from)?;
    let mut seen = HashSet::with_capacity(names.len());
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(FormatError::refused(Class::Duplicate, format!("{what} {} stands there twice", shown(name)))),
        None => Ok(()),
    }
}

/// Returns a name for a message, shortened.
fn shown(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    format!("{:?}", name.chars().take(100).collect::<String>())
}

fn alignment(found: &Gguf) -> Result<u64, FormatError> {
    match found.value("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(&Value::Scalar(DType::U32, bits)) if bits.is_power_of_two() => Ok(bits),
        Some(_) => Err(FormatError::refused(Class::BadAlignment, "general.alignment is no u32 that is a power of two")),
    }
}

fn read_tensor(cursor: &mut Cursor<'_>, found: &mut Gguf, asked: &mut Asked<'_>) -> Result<(), FormatError> {
    let name = cursor.name()?;
    let rank = cursor.u32()?;
    let bad = |reason: String| FormatError::refused(Class::BadShape, format!("{}: {reason}", shown(&name)));
    if rank > 4 {
        return Err(bad(format!("{rank} dimensions, the most is 4")));
    }
    asked.take(TENSOR_MEMORY + 4 * name.len() as u64)?;
    // Stored fastest first.
    let mut shape = [1; 4];
    let shape = shape.get_mut(..rank as usize).unwrap_or_default();
    for axis in &mut *shape {
        *axis = cursor.u64()?;
    }
    let (code, offset) = (cursor.u32()?, cursor.u64()?);
    let fastest = shape.first().copied().unwrap_or(1);
    shape.reverse();
    let kind = type_of(code).map(|known| known.kind);
    let width = match kind {
        Some(Kind::Plain(dtype)) => dtype.size(),
        Some(Kind::Blocks { .. }) => 4,
        None => 1,
    };
    let largest = shape.iter().try_fold(width, |size, &axis| size.checked_mul(axis.max(1)));
    if largest.is_none_or(|size| i64::try_from(size).is_err()) || shape.iter().any(|&axis| i64::try_from(axis).is_err())
    {
        return Err(bad("no array can have its shape".into()));
    }
    let elements: u64 = shape.iter().product();
    let size = match kind {
        Some(Kind::Plain(dtype)) => elements * dtype.size(),
        Some(Kind::Blocks { elements: block, bytes, .. }) => {
            if !fastest.is_multiple_of(block) {
                return Err(bad(format!("rows of {fastest} elements in blocks of {block}")));
            }
            (elements / block).checked_mul(bytes).ok_or_else(|| bad("no array can have its shape".into()))?
        }
        None => 0,
    };
    if !offset.is_multiple_of(found.alignment) {
        let reason = format!("{}: offset {offset} is no multiple of {}", shown(&name), found.alignment);
        return Err(FormatError::refused(Class::BadOffset, reason));
    }
    found.names.push(&name);
    found.shapes.push(shape);
    // Offsets count from the beginning of the data, which is not known yet.
    let end = offset.checked_add(size).ok_or_else(|| truncated(format!("tensor {} ends past 2^64", shown(&name))))?;
    found.places.push(Place { code, begin: offset, end });
    Ok(())
}

/// Sets the places of the tensors in the file. They must be after `position`, inside the file, and must not overlap.
fn place(found: &mut Gguf, position: u64, length: u64) -> Result<(), FormatError> {
    if found.places.is_empty() {
        return Ok(());
    }
    let start = position.checked_next_multiple_of(found.alignment);
    let mut order = Vec::new();
    for (number, place) in (0u32..).zip(&mut found.places) {
        let is_known = type_of(place.code).is_some() && place.end > place.begin;
        let moved = start.and_then(|start| Some((start.checked_add(place.begin)?, start.checked_add(place.end)?)));
        match moved.filter(|(_, end)| *end <= length) {
            Some((begin, end)) => (place.begin, place.end) = (begin, end),
            // A tensor of an unknown size is never read.
            None if !is_known => (place.begin, place.end) = (0, 0),
            None => {
                let name = shown(found.names.get(number as usize));
                let reason = format!("tensor {name} ends behind the file of {length} bytes: incomplete copy?");
                return Err(truncated(reason));
            }
        }
        if is_known {
            order.push(number);
        }
    }
    let range = |number: &u32| found.places.get(*number as usize).map_or((0, 0), |place| (place.begin, place.end));
    order.sort_unstable_by_key(range);
    for pair in order.windows(2) {
        let &[first, second] = pair else { continue };
        if range(&second).0 < range(&first).1 {
            let names = [first, second].map(|number| shown(found.names.get(number as usize)));
            return Err(FormatError::refused(Class::BadOffset, format!("tensors {} share bytes", names.join(" and "))));
        }
    }
    Ok(())
}
