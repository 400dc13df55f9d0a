//! safetensors files (`docs/formats/safetensors.md`): a JSON header, then the tensors' bytes.
//!
//! The header is parsed as a stream. Only names, shapes, places and metadata are kept. The rules are those of sections
//! 2 and 3 of that page.

mod index;
mod json;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, fmt, ops::Range};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::{
    Class, DType, Fields, FormatError, Front, PartError, Recognition, has_suffix,
    packed::{Asked, Packed},
};
use crate::{
    limits,
    source::{Memory, Source, SourceError, Unlimited, check_room, to_usize},
};
pub use index::{Index, Joined, SUFFIX as INDEX_SUFFIX, Shards, parse_index};
use json::{Any, Refusal, Seed, parse_object};

/// Bytes before the header: its length.
pub const LENGTH: u64 = 8;

/// The usual suffix.
pub const SUFFIX: &str = ".safetensors";

/// The key of the header that is not a tensor.
const METADATA: &str = "__metadata__";

/// Bytes that a tensor takes in memory in addition to its name and shape, while the container is opened. Includes its
/// place in the tree.
const TENSOR_MEMORY: u64 = 260;

/// A type of elements, with its name in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// The name.
    pub name: &'static str,
    /// Bits of an element.
    pub bits: u8,
    /// The type as an array; `None` for types of less than a byte.
    pub dtype: Option<DType>,
}

/// Section 1.
static TYPES: [Type; 22] = [
    Type::of("BOOL", DType::Bool, 8),
    Type::of("U8", DType::U8, 8),
    Type::of("I8", DType::I8, 8),
    Type::of("U16", DType::U16, 16),
    Type::of("I16", DType::I16, 16),
    Type::of("U32", DType::U32, 32),
    Type::of("I32", DType::I32, 32),
    Type::of("U64", DType::U64, 64),
    Type::of("I64", DType::I64, 64),
    Type::of("F64", DType::F64, 64),
    Type::of("F32", DType::F32, 32),
    Type::of("F16", DType::F16, 16),
    Type::of("BF16", DType::Bf16, 16),
    Type::of("C64", DType::C64, 64),
    Type::of("F8_E4M3", DType::F8E4M3Fn, 8),
    Type::of("F8_E5M2", DType::F8E5M2, 8),
    Type::of("F8_E8M0", DType::F8E8M0Fnu, 8),
    Type::of("F8_E4M3FNUZ", DType::F8E4M3Fnuz, 8),
    Type::of("F8_E5M2FNUZ", DType::F8E5M2Fnuz, 8),
    Type { name: "F4", bits: 4, dtype: None },
    Type { name: "F6_E2M3", bits: 6, dtype: None },
    Type { name: "F6_E3M2", bits: 6, dtype: None },
];

impl Type {
    const fn of(name: &'static str, dtype: DType, bits: u8) -> Self {
        Self { name, bits, dtype: Some(dtype) }
    }

    fn of_name(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|known| known.name == name)
    }
}

/// The tensors of a file, and the metadata of its header.
#[derive(Debug, Default)]
pub struct Safetensors {
    names: Packed<u8>,
    /// Empty for tensors with more dimensions than an array can have.
    shapes: Packed<u64>,
    places: Vec<Place>,
    /// The pairs of `__metadata__`, in stored order.
    pub metadata: Vec<(Box<str>, Box<str>)>,
}

/// A tensor without its name.
#[derive(Debug, Clone, Copy)]
struct Place {
    dtype: &'static Type,
    has_shape: bool,
    /// The number of the shape.
    shape: u32,
    begin: u64,
    end: u64,
}

/// One tensor.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Its name: UTF-8.
    pub name: &'a [u8],
    /// The type of its elements.
    pub dtype: &'static Type,
    /// Elements along each axis; `None` if there are more axes than an array can have.
    pub shape: Option<&'a [u64]>,
    /// Where it begins and ends in the file.
    begin: u64,
    end: u64,
}

impl Tensor<'_> {
    /// Returns the range of its bytes in the file.
    pub fn data(&self) -> Range<u64> {
        self.begin..self.end
    }

    /// Returns its type as an array; `None` if it cannot be one.
    pub fn array_type(&self) -> Option<DType> {
        self.dtype.dtype.filter(|_| self.shape.is_some())
    }
}

impl Safetensors {
    /// Returns how many tensors there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns a tensor by its number in the header.
    pub fn get(&self, number: usize) -> Option<Tensor<'_>> {
        let &Place { dtype, has_shape, shape, begin, end } = self.places.get(number)?;
        let shape = has_shape.then(|| self.shapes.get(shape as usize));
        Some(Tensor { name: self.names.get(number), dtype, shape, begin, end })
    }

    /// Iterates over all tensors, in the order of the header.
    pub fn iter(&self) -> impl Iterator<Item = Tensor<'_>> + Clone {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let metadata: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
        let lists = self.names.memory_usage() + self.shapes.memory_usage();
        lists + self.places.capacity() * size_of::<Place>() + metadata
    }
}

/// Recognises files by their front (section 2): a length that the file has room for, and the beginning of an object of
/// objects. A file with one of the suffixes is always meant to be of this format.
pub fn recognise(front: &Front<'_>) -> Recognition {
    if front.has_suffix(&[SUFFIX, INDEX_SUFFIX]) {
        return Recognition::Meant;
    }
    let length = header_length(front.bytes, front.len);
    let header = front.bytes.get(to_usize(LENGTH)..).unwrap_or_default();
    if length.is_ok_and(|length| begins_as_header(header.get(..to_usize(length)).unwrap_or(header))) {
        Recognition::Maybe
    } else {
        Recognition::No
    }
}

/// Returns the length of the header of a file of `length` bytes that begins with `front`.
fn header_length(front: &[u8], length: u64) -> Result<u64, FormatError> {
    let refused = |reason: String| Err(FormatError::refused(Class::BadHeaderLength, reason));
    let Some(stated) = front.u64(0) else {
        return refused(format!("{length} bytes, the length of the header alone has {LENGTH}"));
    };
    match length.checked_sub(LENGTH) {
        _ if stated > limits::TENSOR_HEADER => {
            refused(format!("a header of {stated} bytes, the most is {}", limits::TENSOR_HEADER))
        }
        _ if stated < 2 => refused(format!("a header of {stated} bytes, which is no JSON object")),
        Some(room) if stated <= room => Ok(stated),
        _ => refused(format!("a header of {stated} bytes in a file of {length}: incomplete copy?")),
    }
}

/// Returns whether bytes may be the front of a header: `{}`, or `{`, a key and the beginning of an object.
fn begins_as_header(header: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let skip = |bytes: &mut &[u8]| {
        while let Some((_, rest)) = bytes.split_first().filter(|(first, _)| is_space(first)) {
            *bytes = rest;
        }
    };
    let Some(mut rest) = header.strip_prefix(b"{") else { return false };
    skip(&mut rest);
    let Some(&[first, ref key @ ..]) = rest.split_at_checked(1).map(|_| rest) else { return true };
    if first != b'"' {
        return first == b'}';
    }
    let mut is_escaped = false;
    let end = key.iter().position(|&byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    // A key may be longer than the front.
    let Some(end) = end else { return true };
    let mut rest = key.get(end + 1..).unwrap_or_default();
    skip(&mut rest);
    let Some(mut rest) = rest.strip_prefix(b":") else { return rest.is_empty() };
    skip(&mut rest);
    rest.first().is_none_or(|first| matches!(first, b'{' | b'n'))
}

/// What a file of this format is.
#[derive(Debug)]
pub enum Parsed {
    /// The tensors of a file.
    Tensors(Safetensors),
    /// The index of several files.
    Index(Index),
}

/// Reads the header of a file, or the index of several.
///
/// # Errors
/// As [`parse_within`] and [`parse_index`].
pub fn parse_any(source: &dyn Source, memory: &dyn Memory) -> Result<Parsed, FormatError> {
    match is_index(source)? {
        true => parse_index(source, memory).map(Parsed::Index),
        false => parse_within(source, memory).map(Parsed::Tensors),
    }
}

/// Does the same for a file of a name. Fails unless the name is that of an index, if the file is one.
///
/// # Errors
/// As [`parse_any`].
pub fn probe(source: &dyn Source, name: &[u8], memory: &dyn Memory) -> Result<Parsed, FormatError> {
    match has_suffix(name, INDEX_SUFFIX) {
        true => parse_any(source, memory),
        false => parse_within(source, memory).map(Parsed::Tensors),
    }
}

/// Returns whether a recognised file is an index. JSON never begins with a valid length of a header.
///
/// # Errors
/// `Source`.
pub fn is_index(source: &dyn Source) -> Result<bool, SourceError> {
    let front = source.read(0..source.len().min(LENGTH))?;
    Ok(header_length(&front, source.len()).is_err())
}

/// Returns the files of a joined model. A damaged index names none.
///
/// # Errors
/// Those of reading.
pub fn shard_files(source: &dyn Source, memory: &dyn Memory) -> Result<Vec<Box<str>>, SourceError> {
    if !is_index(source)? {
        return Ok(Vec::new());
    }
    match parse_index(source, memory) {
        Ok(index) => Ok(index.shards),
        Err(FormatError::Source(error)) => Err(error),
        Err(FormatError::Refused { .. }) => Ok(Vec::new()),
    }
}

/// Fails for an index, because models are joined from files, not from other models.
///
/// # Errors
/// [`PartError`].
pub fn check_shard(source: &dyn Source) -> Result<(), PartError> {
    if is_index(source)? { PartError::damaged("it is the index of a model") } else { Ok(()) }
}

/// Reads the header.
///
/// # Errors
/// The class of section 3 that it fails.
pub fn parse(source: &dyn Source) -> Result<Safetensors, FormatError> {
    parse_within(source, &Unlimited)
}

/// Like [`parse`], for a caller that has to ask for memory.
///
/// # Errors
/// As [`parse`]; `Source` if there is not enough memory.
pub fn parse_within(source: &dyn Source, memory: &dyn Memory) -> Result<Safetensors, FormatError> {
    let front = source.read(0..source.len().min(LENGTH))?;
    let length = header_length(&front, source.len())?;
    let start = LENGTH + length;
    memory.reserve(length)?;
    let header = source.read(LENGTH..start)?;
    reserve_unescaped(&header, memory)?;
    if header.first() != Some(&b'{') {
        return Err(FormatError::refused(Class::BadHeader, "the header does not begin with {"));
    }
    let size = source.len() - start;
    let mut parser =
        Parser { found: Safetensors::default(), has_metadata: false, asked: Asked::new(memory), shape: vec![] };
    parse_object(&header, Class::BadHeader, &mut parser)?;
    let mut found = parser.found;
    drop(header);
    found.names.shrink();
    found.shapes.shrink();
    found.places.shrink_to_fit();
    check_names(&found.names)?;
    check_places(&found, size)?;
    for place in &mut found.places {
        (place.begin, place.end) = (place.begin + start, place.end + start);
    }
    Ok(found)
}

/// Reserves memory to unescape a text, which may be as long as the JSON. The unescaped text exists twice for a while.
fn reserve_unescaped(json: &[u8], memory: &dyn Memory) -> Result<(), SourceError> {
    if json.contains(&b'\\') { memory.reserve(3 * json.len() as u64) } else { Ok(()) }
}

/// Fails if two tensors have the same name.
fn check_names(names: &Packed<u8>) -> Result<(), FormatError> {
    // Most writers sort them.
    if names.iter().is_sorted_by(|before, name| before < name) {
        return Ok(());
    }
    check_room(names.len() as u64, 40).map_err(SourceError::from)?;
    let mut seen = HashSet::with_capacity(names.len());
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(FormatError::refused(Class::Duplicate, format!("tensor {} stands there twice", shown(name)))),
        None => Ok(()),
    }
}

/// Fails unless the tensors' bytes cover the data exactly.
fn check_places(found: &Safetensors, size: u64) -> Result<(), FormatError> {
    let mut order: Vec<u32> = (0..).take(found.places.len()).collect();
    let range = |number: &u32| found.places.get(*number as usize).map_or((0, 0), |place| (place.begin, place.end));
    order.sort_unstable_by_key(range);
    let mut position = 0;
    for number in &order {
        let (begin, end) = range(number);
        if begin != position {
            let name = shown(found.names.get(*number as usize));
            let what = if begin > position { "a hole before it" } else { "which other tensors have too" };
            let reason = format!("tensor {name} is at {begin}, {what}: expected {position}");
            return Err(FormatError::refused(Class::BadOffsets, reason));
        }
        position = end;
    }
    match position == size {
        true => Ok(()),
        false => {
            let hint = if position > size { ": incomplete copy?" } else { "" };
            let reason = format!("the tensors have {position} bytes, behind the header there are {size}{hint}");
            Err(FormatError::refused(Class::NotCovered, reason))
        }
    }
}

/// Returns a name for a message, shortened.
fn shown(name: &[u8]) -> String {
    const MOST: usize = 100;
    let name = String::from_utf8_lossy(name);
    match name.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", &name[..end]),
        None => format!("{name:?}"),
    }
}

/// Collects the header while it is parsed.
struct Parser<'m> {
    found: Safetensors,
    has_metadata: bool,
    asked: Asked<'m>,
    /// The shape of the tensor that is being read.
    shape: Vec<u64>,
}

impl<'de> Visitor<'de> for Seed<'_, Parser<'_>> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, refusal } = self;
        while let Some(name) = map.next_key_seed(json::Text)? {
            let seed = Seed { state: &mut *state, refusal: &mut *refusal };
            if *name == *METADATA {
                if std::mem::replace(&mut seed.state.has_metadata, true) {
                    return Err(refusal.refuse(Class::Duplicate, format!("{METADATA} stands there twice")));
                }
                map.next_value_seed(Metadata(seed))?;
                continue;
            }
            map.next_value_seed(TensorOf(seed, &name))?;
        }
        Ok(())
    }
}

/// `__metadata__`.
struct Metadata<'a, 'm>(Seed<'a, Parser<'m>>);

impl<'de> DeserializeSeed<'de> for Metadata<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings, or null, as __metadata__")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Seed { state, refusal } = self.0;
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key_seed(json::Text)? {
            let value = map.next_value_seed(json::Text)?;
            state.asked.take((2 * key.len() + value.len() + 200) as u64).map_err(|error| refusal.fail(error))?;
            if !keys.insert(key.to_string()) {
                let reason = format!("key {} of {METADATA} stands there twice", shown(key.as_bytes()));
                return Err(refusal.refuse(Class::Duplicate, reason));
            }
            state.found.metadata.push((key.into(), value.into()));
        }
        Ok(())
    }
}

/// The description of a tensor.
struct TensorOf<'a, 'm>(Seed<'a, Parser<'m>>, &'a str);

impl<'de> DeserializeSeed<'de> for TensorOf<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TensorOf<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object for tensor {}", shown(self.1.as_bytes()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (Seed { state, refusal }, name) = (self.0, self.1);
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(member) = map.next_key_seed(json::Text)? {
            let is_again = match &*member {
                "dtype" => {
                    let found = map.next_value_seed(json::Text)?;
                    let known = Type::of_name(&found).ok_or_else(|| {
                        let reason = format!("tensor {}: dtype {}", shown(name.as_bytes()), shown(found.as_bytes()));
                        refusal.refuse(Class::BadDtype, reason)
                    })?;
                    dtype.replace(known).is_some()
                }
                "shape" => {
                    let seed = Seed { state: &mut *state, refusal: &mut *refusal };
                    shape.replace(map.next_value_seed(ShapeOf(seed))?).is_some()
                }
                "data_offsets" => offsets.replace(map.next_value::<[u64; 2]>()?).is_some(),
                _ => {
                    map.next_value_seed(Any)?;
                    false
                }
            };
            if is_again {
                let reason = format!("tensor {}: {member} stands there twice", shown(name.as_bytes()));
                return Err(refusal.refuse(Class::Duplicate, reason));
            }
        }
        let missing = |what| A::Error::custom(format!("tensor {} has no {what}", shown(name.as_bytes())));
        let dtype = dtype.ok_or_else(|| missing("dtype"))?;
        let rank = shape.ok_or_else(|| missing("shape"))?;
        let [begin, end] = offsets.ok_or_else(|| missing("data_offsets"))?;
        let refuse = |refusal: &mut Refusal, class, reason: String| {
            Err(refusal.refuse(class, format!("tensor {}: {reason}", shown(name.as_bytes()))))
        };
        let Some(size) = end.checked_sub(begin) else {
            return refuse(refusal, Class::BadOffsets, format!("it ends at {end}, before it begins at {begin}"));
        };
        match rank.size(dtype.bits) {
            Some(expected) if expected == size => {}
            Some(expected) => {
                return refuse(refusal, Class::BadSize, format!("its shape takes {expected} bytes, it has {size}"));
            }
            None => return refuse(refusal, Class::BadSize, "no array can have its shape".into()),
        }
        if state.found.places.len() >= limits::TENSORS {
            return Err(refusal.refuse(Class::TooMany, format!("more than {} tensors", limits::TENSORS)));
        }
        let taken = TENSOR_MEMORY + 4 * name.len() as u64 + 16 * state.shape.len() as u64;
        state.asked.take(taken).map_err(|error| refusal.fail(error))?;
        let has_shape = rank.dimensions <= limits::DIMENSIONS;
        state.found.names.push(name.as_bytes());
        state.found.shapes.push(if has_shape { &state.shape } else { &[] });
        #[expect(clippy::cast_possible_truncation, reason = "`TENSORS` bounds them")]
        let shape = state.found.places.len() as u32;
        state.found.places.push(Place { dtype, has_shape, shape, begin, end });
        Ok(())
    }
}

/// Reads a shape. Its first dimensions go to the parser's list.
struct ShapeOf<'a, 'm>(Seed<'a, Parser<'m>>);

/// The number of elements of a shape with any number of dimensions.
struct Elements {
    dimensions: usize,
    /// The product of the dimensions that are not 0; `None` beyond 2^64.
    product: Option<u64>,
    has_zero: bool,
    /// Whether a dimension is larger than any array can have.
    is_too_long: bool,
}

impl Elements {
    /// Returns the elements' size in bytes; `None` if no array can have it, or it is not a whole number of bytes.
    fn size(&self, bits: u8) -> Option<u64> {
        let product = self.product.filter(|_| !self.is_too_long)?;
        let bits = u128::from(product) * u128::from(bits);
        u64::try_from(bits.div_ceil(8)).ok().filter(|bytes| i64::try_from(*bytes).is_ok())?;
        match self.has_zero {
            true => Some(0),
            false if !bits.is_multiple_of(8) => None,
            false => u64::try_from(bits / 8).ok(),
        }
    }
}

impl<'de> DeserializeSeed<'de> for ShapeOf<'_, '_> {
    type Value = Elements;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Elements, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ShapeOf<'_, '_> {
    type Value = Elements;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shape: an array of sizes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Elements, A::Error> {
        let shape = &mut self.0.state.shape;
        shape.clear();
        let mut found = Elements { dimensions: 0, product: Some(1), has_zero: false, is_too_long: false };
        while let Some(size) = seq.next_element::<u64>()? {
            if found.dimensions < limits::DIMENSIONS {
                shape.push(size);
            }
            found.dimensions += 1;
            found.has_zero |= size == 0;
            found.is_too_long |= i64::try_from(size).is_err();
            found.product = found.product.and_then(|product| product.checked_mul(size.max(1)));
        }
        Ok(found)
    }
}
