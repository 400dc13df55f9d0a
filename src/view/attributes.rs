//! Attributes: metadata of groups and arrays, shown as one JSON object (`docs/TREE.md`, section 2).
//!
//! A format fills [`Attributes`] with the stored values. [`Attributes::document`] writes them. Arrays are read only
//! when the document is written, so it takes memory for its own bytes and for one small array at a time.

use std::cell::{Cell, RefCell};

use base64::{Engine, display::Base64Display, engine::general_purpose::STANDARD};
use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

use super::{Array, Fault, ReadContext, json};
/// Returns a name as a key: bytes that are not UTF-8 as `%` and two digits.
pub(crate) use crate::escape::escape_bytes as key;
use crate::{
    cache::Buffer,
    format::{DType, ElementType, Field, bf16, half, utf32, without_nuls},
    source::{Memory, SourceError},
};

/// Most elements of an array that are written into the JSON. Larger arrays have their own `.npy` file.
pub const INLINE: u64 = 4096;

/// The value of an attribute.
///
/// Lists and records may contain others. A format must bound their depth before it makes them.
#[derive(Debug, Clone)]
pub enum Value {
    /// A missing value: `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A number of single precision, in its shortest form. NaN and infinities are `null`.
    F32(f32),
    /// A number of double precision. NaN and infinities are `null`.
    F64(f64),
    /// A text: a string if it is UTF-8, otherwise `{"base64": "…"}`.
    Text(Box<[u8]>),
    /// A reference to another object, by its path in the container: `{"path": "/a/b"}`.
    Path(Box<str>),
    /// A list.
    List(Vec<Self>),
    /// A record, or an object: names and values in stored order.
    Record(Vec<(Box<str>, Self)>),
    /// Elements of a shape in C order, as nested lists. A shape without axes is the one element.
    Nested(Box<[u64]>, Vec<Self>),
    /// Numbers of a shape in C order, as nested lists. If there are more than [`INLINE`], the array gets its own file.
    Array(Array),
    /// A value that already is JSON, such as a number of any size.
    Json(Box<[u8]>),
    /// A value that cannot be read, with the reason: `{"error": "…"}`.
    Failed(Box<str>),
}

impl Value {
    /// Returns the array, if it gets its own file.
    pub fn large(&self) -> Option<&Array> {
        match self {
            Self::Array(array) if elements(&array.shape).is_none_or(|count| count > INLINE) => Some(array),
            _ => None,
        }
    }

    /// Returns the value as JSON on one line, without a line end. Arrays of any size are written completely.
    ///
    /// # Errors
    /// [`Fault`] if memory or bytes of the container cannot be had.
    pub fn line(&self, reader: &ReadContext, memory: &dyn Memory) -> Result<Vec<u8>, Fault> {
        self.written(reader, memory, false)
    }

    /// Does the same for programs, which get every value back as it is. Objects whose only key is empty stand for what
    /// JSON has no form for: `{"": [kind, …]}`. The kinds are `path`, `base64`, `number` (`NaN` or an infinity), `array`
    /// (short name and type string of the elements, shape, bytes in base64), and `record` (an object whose only key is
    /// empty: its value).
    ///
    /// # Errors
    /// As [`Self::line`].
    pub fn exact_line(&self, reader: &ReadContext, memory: &dyn Memory) -> Result<Vec<u8>, Fault> {
        self.written(reader, memory, true)
    }

    fn written(&self, reader: &ReadContext, memory: &dyn Memory, is_exact: bool) -> Result<Vec<u8>, Fault> {
        let writing = Writing { reader, failed: RefCell::default(), reserved: Cell::new(0), memory, is_exact };
        let written = serde_json::to_vec(&Shown { value: self, file: None, writing: &writing });
        let error = |error| SourceError::from(std::io::Error::from(error));
        written.map_err(|failed| writing.failed.take().unwrap_or_else(|| error(failed).into()))
    }
}

/// The attributes of a group or an array, in stored order.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    all: Vec<(Box<[u8]>, Value)>,
}

impl FromIterator<(Box<[u8]>, Value)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (Box<[u8]>, Value)>>(all: I) -> Self {
        Self { all: all.into_iter().collect() }
    }
}

impl Attributes {
    /// Returns whether there are none. Then there is no file of them either.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        self.all.iter().map(|(name, value)| (&**name, value))
    }

    /// Returns the arrays that get their own file: the number of each attribute, its name, and the array.
    pub fn large(&self) -> impl Iterator<Item = (usize, &[u8], &Array)> {
        self.iter().enumerate().filter_map(|(number, (name, value))| Some((number, name, value.large()?)))
    }

    /// Returns the JSON object. `file` returns the path of a large array, relative to the folder of the JSON, by the
    /// number of its attribute (see [`Self::large`]).
    ///
    /// Small arrays whose elements are damaged are `{"error": "…"}`.
    ///
    /// # Errors
    /// [`Fault`] if memory or bytes of the container cannot be had.
    pub fn document(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        file: &dyn Fn(usize) -> String,
    ) -> Result<Buffer, Fault> {
        let writing = Writing { reader, failed: RefCell::default(), reserved: Cell::new(0), memory, is_exact: false };
        let written = json::large_document(&Document { attributes: self, writing: &writing, file }, memory);
        written.map_err(|error| writing.failed.take().unwrap_or_else(|| error.into()))
    }
}

/// What writing needs, and the error that ended it, because serde's errors cannot contain it.
struct Writing<'a> {
    reader: &'a ReadContext,
    memory: &'a dyn Memory,
    failed: RefCell<Option<Fault>>,
    /// Bytes that were reserved for the elements of one array.
    reserved: Cell<u64>,
    /// Whether values are written as [`Value::exact_line`] does.
    is_exact: bool,
}

impl Writing<'_> {
    /// Reads the elements of a small array. Returns the reason if they are damaged.
    fn read(&self, array: &Array) -> Result<Result<Vec<u8>, String>, Fault> {
        let size = array.data.size();
        self.memory.reserve(size.saturating_sub(self.reserved.get()))?;
        self.reserved.set(self.reserved.get().max(size));
        match array.data.copy_at(self.reader, 0, size) {
            Ok(bytes) => Ok(Ok(bytes)),
            Err(fault) if fault.error.is_damage() => Ok(Err(fault.error.to_string())),
            Err(fault) => Err(fault),
        }
    }
}

struct Document<'a> {
    attributes: &'a Attributes,
    writing: &'a Writing<'a>,
    file: &'a dyn Fn(usize) -> String,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { attributes, writing, file } = self;
        let pairs = attributes.iter().enumerate().map(|(number, (name, value))| {
            let file = value.large().map(|_| file(number));
            (key(name), Shown { value, file, writing })
        });
        serializer.collect_map(pairs)
    }
}

/// A value with the path of its file, if it has one.
struct Shown<'a> {
    value: &'a Value,
    file: Option<String>,
    writing: &'a Writing<'a>,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value, file, writing } = self;
        let shown = |value| Shown { value, file: None, writing };
        match value {
            Value::F32(value) if writing.is_exact && !value.is_finite() => {
                marked("number", non_finite((*value).into()), serializer)
            }
            Value::F64(value) if writing.is_exact && !value.is_finite() => {
                marked("number", non_finite(*value), serializer)
            }
            Value::Text(bytes) if writing.is_exact && std::str::from_utf8(bytes).is_err() => {
                marked("base64", STANDARD.encode(bytes), serializer)
            }
            Value::Path(path) if writing.is_exact => marked("path", path, serializer),
            Value::Record(fields) if writing.is_exact && matches!(&**fields, [(name, _)] if name.is_empty()) => {
                marked("record", fields.first().map(|(_, value)| shown(value)), serializer)
            }
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(value) => serializer.serialize_i64(*value),
            Value::Uint(value) => serializer.serialize_u64(*value),
            Value::F32(value) => serializer.serialize_f32(*value),
            Value::F64(value) => serializer.serialize_f64(*value),
            Value::Text(text) => Text(text).serialize(serializer),
            Value::Path(path) => serializer.collect_map([("path", path)]),
            Value::Json(json) => {
                serde_json::from_slice::<&RawValue>(json).map_err(S::Error::custom)?.serialize(serializer)
            }
            Value::Failed(reason) => serializer.collect_map([("error", reason)]),
            Value::List(list) => serializer.collect_seq(list.iter().map(shown)),
            Value::Record(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, shown(value)))),
            Value::Nested(shape, list) => nested(shape, list.len(), &|at| list.get(at).map(shown), serializer),
            Value::Array(array) => {
                if let Some(file) = file {
                    return serializer.collect_map([("npy", file)]);
                }
                let bytes = match writing.read(array) {
                    Ok(Ok(bytes)) => bytes,
                    Ok(Err(reason)) => return serializer.collect_map([("error", reason)]),
                    Err(fault) => {
                        *writing.failed.borrow_mut() = Some(fault);
                        return Err(S::Error::custom("not read"));
                    }
                };
                if writing.is_exact {
                    let elements = (array.dtype.name(), array.dtype.descr(), &array.shape, STANDARD.encode(bytes));
                    return marked("array", elements, serializer);
                }
                let width = array.dtype.size() as usize;
                let element = |at: usize| Some(Element(&array.dtype, bytes.get(at * width..(at + 1) * width)?));
                nested(&array.shape, bytes.len() / width.max(1), &element, serializer)
            }
        }
    }
}

/// Writes what JSON has no form for ([`Value::exact_line`]).
fn marked<S: Serializer>(kind: &str, value: impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([("", (kind, value))])
}

/// Returns NaN or an infinity as Python's `float` reads it.
fn non_finite(value: f64) -> &'static str {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "NaN",
        (false, true) => "Infinity",
        (false, false) => "-Infinity",
    }
}

/// Returns the number of elements of a shape.
fn elements(shape: &[u64]) -> Option<u64> {
    match shape.contains(&0) {
        true => Some(0),
        false => shape.iter().try_fold(1u64, |count, axis| count.checked_mul(*axis)),
    }
}

/// Writes `count` elements in nested lists, or the reason why they do not fit the shape.
fn nested<T: Serialize, S: Serializer>(
    shape: &[u64],
    count: usize,
    element: &dyn Fn(usize) -> Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    // The lists outside of an axis without elements also take room.
    let lists = shape.iter().take_while(|axis| **axis > 0).try_fold(1u64, |lists, axis| lists.checked_mul(*axis));
    let has_none = elements(shape) == Some(0);
    if elements(shape) != Some(count as u64) || (has_none && lists.is_none_or(|lists| lists > INLINE)) {
        return serializer.collect_map([("error", format!("{count} elements do not fit the shape {shape:?}"))]);
    }
    Lists { shape, element, next: &Cell::new(0) }.serialize(serializer)
}

struct Lists<'a, T> {
    shape: &'a [u64],
    element: &'a dyn Fn(usize) -> Option<T>,
    /// The next element to be written. Elements are written in order.
    next: &'a Cell<usize>,
}

impl<T: Serialize> Serialize for Lists<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { shape, element, next } = *self;
        let Some((axis, shape)) = shape.split_first() else {
            return element(next.replace(next.get() + 1)).serialize(serializer);
        };
        serializer.collect_seq((0..*axis).map(|_| Lists { shape, element, next }))
    }
}

/// A text: a string, or base64 of its bytes if they are not UTF-8.
#[derive(Debug)]
pub struct Text<'a>(pub &'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => encoded(self.0, serializer),
        }
    }
}

fn encoded<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let text = Base64Display::new(bytes, &STANDARD);
    serializer.collect_map([("base64", format_args!("{text}"))])
}

/// An element of an array, by its type and its little-endian bytes. A number is written in the shortest form that reads
/// back as the same number of its type; NaN and infinities are `null`. 8-bit floats are written as their bits, dates as
/// numbers. Complex numbers and dates with an offset are lists of their parts. Texts lose the NULs at their end.
/// Records are objects.
#[derive(Debug)]
pub struct Element<'a>(pub &'a ElementType, pub &'a [u8]);

impl Serialize for Element<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(element, bytes) = *self;
        let dtype = match element {
            ElementType::Plain(dtype) => *dtype,
            ElementType::Record(record) => {
                let fields = record.fields().iter().map(|field| {
                    let at = field.offset as usize..(field.offset + field.size()) as usize;
                    (&*field.name, FieldOf(field, bytes.get(at).unwrap_or_default()))
                });
                return serializer.collect_map(fields);
            }
        };
        let bits = bytes.iter().take(8).rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        if let Some(part) = dtype.parts() {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            return serializer.collect_seq([Element(&part.into(), real), Element(&part.into(), imaginary)]);
        }
        match dtype {
            DType::F64 => serializer.serialize_f64(f64::from_bits(bits)),
            DType::F32 => serializer.serialize_f32(f32::from_bits(bits as u32)),
            DType::F16 => serializer.serialize_f64(shortest(bits as u16, half)),
            DType::Bf16 => serializer.serialize_f64(shortest(bits as u16, bf16)),
            DType::Bool => serializer.serialize_bool(bits != 0),
            DType::I64 | DType::Date(_) | DType::Span(_) => serializer.serialize_i64(bits as i64),
            DType::I32 => serializer.serialize_i32(bits as i32),
            DType::I16 => serializer.serialize_i16(bits as i16),
            DType::I8 => serializer.serialize_i8(bits as i8),
            DType::DateTimeOffset => {
                let (ticks, offset) = bytes.split_at(bytes.len().min(8));
                serializer.collect_seq([Element(&DType::I64.into(), ticks), Element(&DType::I16.into(), offset)])
            }
            DType::Bytes(_) => Text(without_nuls(bytes)).serialize(serializer),
            DType::Utf32(_) => serializer.serialize_str(&utf32(bytes)),
            DType::Void(_) => encoded(bytes, serializer),
            _ => serializer.serialize_u64(bits),
        }
    }
}

/// A field of a record, by its bytes: one value, or nested lists of them.
struct FieldOf<'a>(&'a Field, &'a [u8]);

impl Serialize for FieldOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(field, bytes) = *self;
        let width = field.element.size() as usize;
        let element = |at: usize| Some(Element(&field.element, bytes.get(at * width..(at + 1) * width)?));
        nested(&field.shape, bytes.len() / width, &element, serializer)
    }
}

/// Returns the number with the fewest digits that rounds to a float of 16 bits.
fn shortest(bits: u16, value: fn(u16) -> f32) -> f64 {
    let [exact, magnitude] = [bits, bits & 0x7fff].map(|bits| f64::from(value(bits)));
    if !exact.is_finite() || magnitude == 0.0 {
        return exact;
    }
    let below = f64::from(value((bits & 0x7fff) - 1));
    let above = f64::from(value((bits & 0x7fff) + 1));
    // Beyond the largest number, rounding works as if there were a next one.
    let above = if above.is_finite() { above } else { magnitude + (magnitude - below) };
    let (low, high) = ((below + magnitude) / 2.0, (magnitude + above) / 2.0);
    // Ties go to the even one.
    let is_even = bits & 1 == 0;
    let fits = |short: f64| (low < short && short < high) || (is_even && (short == low || short == high));
    let found = (0..9).find_map(|digits| format!("{magnitude:.digits$e}").parse().ok().filter(|short| fits(*short)));
    found.unwrap_or(magnitude).copysign(exact)
}

#[cfg(test)]
mod tests;
