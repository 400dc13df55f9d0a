//! Rows of metadata with the codec `struct` or `json+struct`: the layout that a schema describes, and where a row has
//! each value (`docs/formats/kastore.md` 11). Decodes what tskit decodes.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range};

use serde::{Deserialize, de::IgnoredAny};

use crate::{
    format::{DType, Fields},
    limits,
};

/// What a schema says of a row.
#[derive(Debug)]
pub(super) struct Layout {
    row: Packed,
    /// Whether a row without bytes is null.
    pub(super) is_nullable: bool,
    /// The values of a row, in stored order. With the codec `json+struct` the JSON of a row is the last.
    pub(super) fields: Vec<Field>,
    /// The field of JSON.
    json: Option<usize>,
}

/// A value of each row, or a list of them.
#[derive(Debug)]
pub(super) struct Field {
    /// The names of the objects that it is in and its own, joined by dots.
    pub(super) name: String,
    pub(super) value: Value,
    /// The lengths of the lists of one length that it is in, outermost first.
    pub(super) axes: Vec<u64>,
    /// The number of lists with a length of their own that it is in.
    pub(super) lists: u32,
}

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(DType),
    Text {
        width: u64,
        /// Whether the first byte says how many of the others are the text.
        is_pascal: bool,
        encoding: Encoding,
        ends_at_nul: bool,
    },
    Bytes {
        width: u64,
        /// See [`Self::Text`].
        is_pascal: bool,
    },
    /// Bytes without a meaning.
    Null(u64),
}

/// How texts are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Ascii,
    Latin1,
    /// Units of two bytes.
    Utf16(Order),
    /// Units of four bytes.
    Utf32(Order),
    Other(String),
}

/// The order of bytes in a unit of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
    /// Little, unless a mark at the front says otherwise.
    Marked,
}

/// Name of the field of JSON.
const JSON: &str = "json";

/// First bytes of a row of the codec `json+struct`. A version follows, and the lengths of both parts.
const JSON_MAGIC: &[u8] = b"JBLB\x01";

/// Bytes in front of the JSON of a row. What is behind it begins at a multiple of [`JSON_ALIGN`].
const JSON_HEADER: u64 = 21;
/// See [`JSON_HEADER`].
const JSON_ALIGN: u64 = 8;

/// A row has fewer bytes than its values need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Short;

/// A part of a row.
#[derive(Debug)]
struct Packed {
    shape: Shape,
    /// Its bytes, if they are the same in each row. Otherwise the least.
    size: Result<u64, u64>,
    /// The fields in it.
    fields: Range<usize>,
}

#[derive(Debug)]
enum Shape {
    Value,
    /// Parts of fixed size, by their offsets.
    Record(Vec<(u64, Packed)>),
    /// Parts that follow each other.
    Sequence(Vec<Packed>),
    /// Elements of fixed size, as many in each row.
    Array(Box<Packed>),
    List(Count, Box<Packed>),
}

/// The number of elements of a list.
#[derive(Debug, Clone, Copy)]
enum Count {
    Fixed(u64),
    /// It comes before the elements, in so many bytes.
    Stated(u64),
    /// As many as the rest of the row has.
    Rest,
}

/// A part of a schema. Everything else that it holds is skipped.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    r#type: Kind,
    properties: Option<BTreeMap<String, Self>>,
    items: Option<Box<Self>>,
    binary_format: Option<String>,
    index: Option<f64>,
    array_length_format: Option<String>,
    length: Option<u64>,
    no_length_encoding_exhaust_buffer: Option<bool>,
    string_encoding: Option<String>,
    null_terminated: Option<bool>,
}

/// The two schemas of the codec `json+struct`.
#[derive(Debug, Deserialize)]
struct Schemas {
    json: Names,
    r#struct: Schema,
}

/// What counts of the schema of the JSON.
#[derive(Debug, Deserialize)]
struct Names {
    properties: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Kind {
    One(String),
    Several(Vec<String>),
}

impl Layout {
    /// Returns the layout that a schema describes.
    ///
    /// # Errors
    /// Why rows cannot be decoded by it.
    pub(super) fn of(schema: &str) -> Result<Self, String> {
        Self::of_struct(&serde_json::from_str(schema).map_err(|error| error.to_string())?)
    }

    /// Returns the layout that a schema of the codec `json+struct` describes.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(super) fn with_json(schema: &str) -> Result<Self, String> {
        let Schemas { json, r#struct } = serde_json::from_str(schema).map_err(|error| error.to_string())?;
        let names = json.properties.unwrap_or_default();
        let own = r#struct.properties.as_ref();
        if let Some(name) = own.and_then(|own| own.keys().find(|name| names.contains_key(*name))) {
            return Err(format!("both of its schemas have {name:?}"));
        }
        let mut layout = Self::of_struct(&r#struct)?;
        if layout.is_nullable {
            return Err("rows of its schema \"struct\" may be null".into());
        }
        layout.json = Some(layout.fields.len());
        let value =
            Value::Text { width: limits::PACKED_ROW, is_pascal: false, encoding: Encoding::Utf8, ends_at_nul: false };
        layout.fields.push(Field { name: JSON.into(), value, axes: Vec::new(), lists: 0 });
        Ok(layout)
    }

    fn of_struct(schema: &Schema) -> Result<Self, String> {
        let (kind, is_nullable) = match &schema.r#type {
            Kind::One(kind) => (kind.as_str(), false),
            Kind::Several(kinds) if *kinds == ["object", "null"] => ("object", true),
            Kind::Several(kinds) => return Err(format!("the type {kinds:?} is not known")),
        };
        if kind != "object" {
            return Err(format!("rows are of the type {kind:?} instead of \"object\""));
        }
        let mut building = Building::default();
        let row = building.object(schema, &mut Place::default())?;
        Ok(Self { row, is_nullable, fields: building.fields, json: None })
    }

    /// Passes the bytes of each value of a field to `each`.
    ///
    /// # Errors
    /// [`Short`] if the row has too few bytes for any of its fields. Then the values that `each` got mean nothing.
    pub(super) fn values(&self, row: &[u8], field: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), Short> {
        if self.is_null(row) {
            return Ok(());
        }
        let (json, mut packed) = if self.json.is_some() { parts(row)? } else { (&[][..], row) };
        // Like tskit, it does not look at what follows.
        self.row.walk(&mut packed, field, each)?;
        if self.json == Some(field) {
            each(json);
        }
        Ok(())
    }

    /// Returns whether a row is null.
    pub(super) fn is_null(&self, row: &[u8]) -> bool {
        self.is_nullable && row.is_empty()
    }

    /// Returns about how many bytes of memory it takes.
    pub(super) fn memory_usage(&self) -> usize {
        let each = size_of::<Field>() + 2 * size_of::<Packed>();
        self.fields.iter().map(|field| each + field.name.len()).sum::<usize>() + size_of::<Self>()
    }
}

/// Returns the JSON and the values of a row of the codec `json+struct`.
fn parts(row: &[u8]) -> Result<(&[u8], &[u8]), Short> {
    let mut rest = row;
    let header = take(&mut rest, JSON_HEADER)?;
    let length = |at| header.u64(at).ok_or(Short);
    if !header.starts_with(JSON_MAGIC) {
        return Err(Short);
    }
    let (json, values) = (length(JSON_MAGIC.len())?, length(JSON_MAGIC.len() + size_of::<u64>())?);
    let text = take(&mut rest, json)?;
    let end = JSON_HEADER + text.len() as u64;
    take(&mut rest, end.next_multiple_of(JSON_ALIGN) - end)?;
    Ok((text, take(&mut rest, values)?))
}

/// No field of a row.
const NONE: usize = usize::MAX;

/// Takes bytes from the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], bytes: u64) -> Result<&'a [u8], Short> {
    let bytes = usize::try_from(bytes).map_err(|_| Short)?;
    let (taken, behind) = rest.split_at_checked(bytes).ok_or(Short)?;
    *rest = behind;
    Ok(taken)
}

impl Packed {
    /// Takes the part from the front of `rest`, and passes the values of a field to `each`.
    fn walk(&self, rest: &mut &[u8], field: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), Short> {
        if let Ok(size) = self.size {
            self.pick(take(rest, size)?, field, each);
            return Ok(());
        }
        match &self.shape {
            Shape::Sequence(parts) => parts.iter().try_for_each(|part| part.walk(rest, field, each)),
            Shape::List(count, element) => element.walk_all(*count, rest, field, each),
            // Their size is fixed.
            Shape::Value | Shape::Record(_) | Shape::Array(_) => Err(Short),
        }
    }

    /// Takes several of this part, which is the element of a list.
    fn walk_all(&self, count: Count, rest: &mut &[u8], field: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), Short> {
        let count = match count {
            Count::Fixed(count) => Some(count),
            Count::Stated(width) => Some(take(rest, width)?.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))),
            Count::Rest => None,
        };
        match (self.size, count) {
            (Ok(size), _) => {
                let count_of_rest = (rest.len() as u64).checked_div(size).unwrap_or(0);
                let elements = take(rest, count.unwrap_or(count_of_rest).saturating_mul(size))?;
                if self.fields.contains(&field) {
                    elements.chunks_exact(size as usize).for_each(|element| self.pick(element, field, each));
                }
                if count.is_none() {
                    *rest = &[];
                }
                Ok(())
            }
            // Each takes at least a byte.
            (Err(_), Some(count)) => (0..count).try_for_each(|_| self.walk(rest, field, each)),
            (Err(_), None) => {
                while !rest.is_empty() {
                    let mut behind = *rest;
                    if self.walk(&mut behind, NONE, &mut |_| {}).is_err() {
                        // An element that is not complete does not count, and takes what is left.
                        *rest = &[];
                        break;
                    }
                    self.walk(rest, field, each)?;
                }
                Ok(())
            }
        }
    }

    /// Passes the values of a field to `each`. `bytes` are this part, whose size is fixed.
    fn pick(&self, bytes: &[u8], field: usize, each: &mut dyn FnMut(&[u8])) {
        if !self.fields.contains(&field) {
            return;
        }
        match &self.shape {
            Shape::Value => each(bytes),
            Shape::Record(parts) => {
                let at = parts.partition_point(|(_, part)| part.fields.end <= field);
                if let Some((at, part)) = parts.get(at)
                    && let Ok(size) = part.size
                    && let Some(bytes) = bytes.get(*at as usize..(*at + size) as usize)
                {
                    part.pick(bytes, field, each);
                }
            }
            Shape::Array(element) => {
                let size = element.size.unwrap_or(0).max(1) as usize;
                bytes.chunks_exact(size).for_each(|bytes| element.pick(bytes, field, each));
            }
            // Their size is not fixed.
            Shape::Sequence(_) | Shape::List(..) => {}
        }
    }

    /// Returns the least number of bytes.
    fn least(&self) -> u64 {
        self.size.unwrap_or_else(|least| least)
    }
}

/// What was found so far.
#[derive(Debug, Default)]
struct Building {
    fields: Vec<Field>,
    lists: usize,
}

/// Where in a row a part is.
#[derive(Debug, Default, Clone)]
struct Place {
    name: String,
    axes: Vec<u64>,
    lists: u32,
}

impl Building {
    fn part(&mut self, schema: &Schema, place: &mut Place) -> Result<Packed, String> {
        let Kind::One(kind) = &schema.r#type else {
            return Err(format!("{} has a union of types", place.name));
        };
        let value = match kind.as_str() {
            "object" => return self.object(schema, place),
            "array" => return self.array(schema, place),
            "null" => match &schema.binary_format {
                None => Value::Null(0),
                Some(format) => match format.strip_suffix('x') {
                    Some(count) => Value::Null(repeated(count)?),
                    None => return Err(format!("{} is null, but has the format {format:?}", place.name)),
                },
            },
            "string" | "number" | "integer" | "boolean" => {
                value(schema, kind == "string").map_err(|reason| format!("{}: {reason}", place.name))?
            }
            kind => return Err(format!("{} has the type {kind:?}", place.name)),
        };
        let (size, first) = (value.width(), self.fields.len());
        let Place { name, axes, lists } = place.clone();
        self.fields.push(Field { name, value, axes, lists });
        Ok(Packed { shape: Shape::Value, size: Ok(size), fields: first..first + 1 })
    }

    fn object(&mut self, schema: &Schema, place: &mut Place) -> Result<Packed, String> {
        let Some(properties) = &schema.properties else { return Err(format!("{} has no properties", place.name)) };
        // They are sorted by their names already, and this keeps the order of those with one index.
        let mut properties: Vec<_> = properties.iter().collect();
        let index = |schema: &Schema| schema.index.unwrap_or(0.0);
        properties.sort_by(|(_, a), (_, b)| index(a).partial_cmp(&index(b)).unwrap_or(Ordering::Equal));
        let first = self.fields.len();
        let (mut parts, mut run) = (Vec::new(), Vec::new());
        for (name, schema) in properties {
            let before = place.name.len();
            if before > 0 {
                place.name.push('.');
            }
            place.name.push_str(name);
            let part = self.part(schema, place)?;
            place.name.truncate(before);
            match part.size {
                Ok(_) => run.push(part),
                Err(_) => {
                    parts.extend(record(&mut run));
                    parts.push(part);
                }
            }
        }
        parts.extend(record(&mut run));
        let fields = first..self.fields.len();
        let is_fixed = parts.iter().all(|part| part.size.is_ok());
        Ok(match parts.pop() {
            None => Packed { shape: Shape::Record(Vec::new()), size: Ok(0), fields },
            Some(only) if is_fixed => only,
            Some(last) => {
                parts.push(last);
                let least = parts.iter().fold(0u64, |least, part| least.saturating_add(part.least()));
                Packed { shape: Shape::Sequence(parts), size: Err(least), fields }
            }
        })
    }

    fn array(&mut self, schema: &Schema, place: &mut Place) -> Result<Packed, String> {
        let Some(items) = &schema.items else { return Err(format!("{} has no items", place.name)) };
        let count = match (schema.length, schema.no_length_encoding_exhaust_buffer) {
            (Some(length), _) => Count::Fixed(length),
            (None, Some(true)) => Count::Rest,
            _ => Count::Stated(match schema.array_length_format.as_deref() {
                Some("B") => 1,
                Some("H") => 2,
                None | Some("I" | "L") => 4,
                Some("Q") => 8,
                Some(format) => return Err(format!("{} has the length format {format:?}", place.name)),
            }),
        };
        let outer = (place.axes.len(), place.lists);
        match count {
            Count::Fixed(length) => place.axes.push(length),
            _ => place.lists += 1,
        }
        let first = self.fields.len();
        let element = self.part(items, place)?;
        place.axes.truncate(outer.0);
        place.lists = outer.1;
        if element.least() == 0 {
            return Err(format!("{} has elements that may have no bytes", place.name));
        }
        let fields = first..self.fields.len();
        if let (Count::Fixed(length), Ok(size)) = (count, element.size) {
            let size = Ok(size.saturating_mul(length));
            return Ok(Packed { shape: Shape::Array(Box::new(element)), size, fields });
        }
        self.lists += 1;
        if self.lists > limits::PACKED_LISTS {
            return Err(format!("it has more than {} lists of varying length", limits::PACKED_LISTS));
        }
        let least = match count {
            Count::Fixed(length) => element.least().saturating_mul(length),
            Count::Stated(width) => width,
            Count::Rest => 0,
        };
        Ok(Packed { shape: Shape::List(count, Box::new(element)), size: Err(least), fields })
    }
}

/// Returns parts of fixed size as one, if there are any.
fn record(run: &mut Vec<Packed>) -> Option<Packed> {
    if run.len() < 2 {
        return run.pop();
    }
    let fields = run.first()?.fields.start..run.last()?.fields.end;
    let mut size = 0u64;
    let place = |part: Packed| {
        let at = size;
        size = size.saturating_add(part.least());
        (at, part)
    };
    let parts = run.drain(..).map(place).collect();
    Some(Packed { shape: Shape::Record(parts), size: Ok(size), fields })
}

/// Returns the number before the letter of a format; 1 if there is none.
fn repeated(count: &str) -> Result<u64, String> {
    match count {
        "" => Ok(1),
        _ if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            count.parse().ok().filter(|count| *count <= i64::MAX as u64).ok_or_else(|| format!("{count} is too long"))
        }
        _ => Err(format!("{count:?} is no number of bytes")),
    }
}

/// Returns the value of a format.
fn value(schema: &Schema, is_text: bool) -> Result<Value, String> {
    let Some(format) = schema.binary_format.as_deref() else { return Err("it has no binaryFormat".into()) };
    let unknown = || format!("it has the format {format:?}");
    let (count, letter) = format.split_at_checked(format.len().saturating_sub(1)).ok_or_else(unknown)?;
    let number = match format {
        "?" => Some(DType::Bool),
        "b" => Some(DType::I8),
        "B" => Some(DType::U8),
        "h" => Some(DType::I16),
        "H" => Some(DType::U16),
        "i" | "l" => Some(DType::I32),
        "I" | "L" => Some(DType::U32),
        "q" => Some(DType::I64),
        "Q" => Some(DType::U64),
        "f" => Some(DType::F32),
        "d" => Some(DType::F64),
        _ => None,
    };
    let width = match letter {
        _ if number.is_some() => 0,
        "c" if count.is_empty() => 1,
        "s" | "p" => repeated(count)?,
        _ => return Err(unknown()),
    };
    let is_pascal = letter == "p";
    match number {
        Some(_) if is_text => Err(unknown()),
        Some(number) => Ok(Value::Number(number)),
        None if is_text => Ok(Value::Text {
            width,
            is_pascal,
            encoding: Encoding::of(schema.string_encoding.as_deref().unwrap_or("utf-8")),
            ends_at_nul: schema.null_terminated.unwrap_or(false),
        }),
        None => Ok(Value::Bytes { width, is_pascal }),
    }
}

impl Value {
    /// Returns its stored bytes.
    pub(super) fn width(&self) -> u64 {
        match self {
            Self::Number(dtype) => dtype.size(),
            Self::Text { width, .. } | Self::Bytes { width, .. } | Self::Null(width) => *width,
        }
    }

    /// Returns how many bytes a stored byte of a text can be at most.
    pub(super) fn growth(&self) -> u64 {
        match self {
            Self::Text { encoding: Encoding::Latin1 | Encoding::Utf16(_), .. } => 2,
            _ => 1,
        }
    }

    /// Returns the text as UTF-8, or the bytes; `None` if it is not in its encoding.
    pub(super) fn text(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let of_pascal = |is_pascal: bool| match stored.split_first() {
            Some((length, text)) if is_pascal => &text[..text.len().min(usize::from(*length))],
            _ => stored,
        };
        match self {
            Self::Text { is_pascal, encoding, ends_at_nul, .. } => {
                let mut text = encoding.decode(of_pascal(*is_pascal))?;
                if *ends_at_nul && let Some(nul) = text.find('\0') {
                    text.truncate(nul);
                }
                Some(text.into_bytes())
            }
            Self::Bytes { is_pascal, .. } => Some(of_pascal(*is_pascal).to_vec()),
            Self::Number(_) | Self::Null(_) => None,
        }
    }
}

impl Encoding {
    /// Returns the encoding that Python knows by a name.
    fn of(name: &str) -> Self {
        match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "utf-8" | "utf8" => Self::Utf8,
            "ascii" | "us-ascii" => Self::Ascii,
            "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" => Self::Latin1,
            "utf-16" | "utf16" => Self::Utf16(Order::Marked),
            "utf-16-le" | "utf-16le" => Self::Utf16(Order::Little),
            "utf-16-be" | "utf-16be" => Self::Utf16(Order::Big),
            "utf-32" | "utf32" => Self::Utf32(Order::Marked),
            "utf-32-le" | "utf-32le" => Self::Utf32(Order::Little),
            "utf-32-be" | "utf-32be" => Self::Utf32(Order::Big),
            _ => Self::Other(name.into()),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Option<String> {
        let marked = |order: Order, mark: &[u8]| match order {
            Order::Marked => {
                let reversed: Vec<u8> = mark.iter().rev().copied().collect();
                match bytes {
                    _ if bytes.starts_with(mark) => (&bytes[mark.len()..], false),
                    _ if bytes.starts_with(&reversed) => (&bytes[mark.len()..], true),
                    _ => (bytes, false),
                }
            }
            order => (bytes, order == Order::Big),
        };
        match self {
            Self::Utf8 => String::from_utf8(bytes.to_vec()).ok(),
            Self::Ascii => bytes.is_ascii().then(|| bytes.iter().copied().map(char::from).collect()),
            Self::Latin1 => Some(bytes.iter().copied().map(char::from).collect()),
            Self::Utf16(order) => {
                let (bytes, is_big) = marked(*order, &[0xff, 0xfe]);
                let (units, []) = bytes.as_chunks::<2>() else { return None };
                let unit = |unit: &[u8; 2]| if is_big { u16::from_be_bytes(*unit) } else { u16::from_le_bytes(*unit) };
                char::decode_utf16(units.iter().map(unit)).collect::<Result<_, _>>().ok()
            }
            Self::Utf32(order) => {
                let (bytes, is_big) = marked(*order, &[0xff, 0xfe, 0, 0]);
                let (units, []) = bytes.as_chunks::<4>() else { return None };
                let unit = |unit: &[u8; 4]| if is_big { u32::from_be_bytes(*unit) } else { u32::from_le_bytes(*unit) };
                units.iter().map(|bytes| char::from_u32(unit(bytes))).collect()
            }
            Self::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"codec": "struct", "type": ["object", "null"], "properties": {
        "b": {"type": "number", "binaryFormat": "h"}, "a": {"type": "number", "binaryFormat": "B"},
        "z": {"type": "object", "index": -1.5, "properties": {
            "y": {"type": "null", "binaryFormat": "2x"}, "x": {"type": "boolean", "binaryFormat": "?"}}},
        "l": {"type": "array", "index": 1, "arrayLengthFormat": "B", "items": {
            "type": "array", "length": 2, "items": {"type": "number", "binaryFormat": "H"}}},
        "r": {"type": "array", "index": 2, "noLengthEncodingExhaustBuffer": true, "items": {
            "type": "object", "properties": {
                "k": {"type": "array", "arrayLengthFormat": "B", "items": {"type": "number", "binaryFormat": "b"}},
                "j": {"type": "number", "binaryFormat": "B"}}}}}}"#;

    const ROW: [u8; 24] = [1, 0, 0, 7, 2, 1, 2, 1, 0, 2, 0, 3, 0, 4, 0, 9, 2, 5, 6, 8, 0, 7, 3, 1];

    /// The name of a field, and its values.
    type Named = (String, Vec<Vec<u8>>);

    /// Returns the values of all fields with their names.
    fn values(layout: &Layout, row: &[u8]) -> Result<Vec<Named>, Short> {
        let values = layout.fields.iter().enumerate().map(|(number, field)| {
            let mut found = Vec::new();
            layout.values(row, number, &mut |value| found.push(value.to_vec()))?;
            Ok((field.name.clone(), found))
        });
        values.collect()
    }

    #[test]
    fn values_are_those_of_tskit() {
        // tskit 1.0.3, `MetadataSchema(SCHEMA).decode_row`: {'z': {'x': True, 'y': None}, 'a': 7, 'b': 258,
        // 'l': [[1, 2], [3, 4]], 'r': [{'j': 9, 'k': [5, 6]}, {'j': 8, 'k': []}]}. The third element of `r` is cut off.
        let layout = Layout::of(SCHEMA).unwrap();
        let of = |name: &str, values: &[&[u8]]| (name.to_owned(), values.iter().map(|value| value.to_vec()).collect());
        let expected: Vec<Named> = vec![
            of("z.x", &[&[1]]),
            of("z.y", &[&[0, 0]]),
            of("a", &[&[7]]),
            of("b", &[&[2, 1]]),
            of("l", &[&[1, 0], &[2, 0], &[3, 0], &[4, 0]]),
            of("r.j", &[&[9], &[8]]),
            of("r.k", &[&[5], &[6]]),
        ];
        assert_eq!(values(&layout, &ROW), Ok(expected.clone()));
        // Null, and the shortest row that tskit decodes.
        assert!(layout.is_null(&[]) && !layout.is_null(&ROW));
        assert!(values(&layout, &[]).unwrap().iter().all(|(_, values)| values.is_empty()));
        for length in 1..15 {
            assert_eq!(values(&layout, &ROW[..length]), Err(Short), "{length}");
        }
        for length in 15..=16 {
            let found = values(&layout, &ROW[..length]).unwrap();
            assert_eq!(found[..5], expected[..5]);
            assert!(found[5].1.is_empty() && found[6].1.is_empty());
        }
        let shapes: Vec<_> = layout.fields.iter().map(|field| (&*field.axes, field.lists)).collect();
        let none: &[u64] = &[];
        assert_eq!(shapes, [(none, 0), (none, 0), (none, 0), (none, 0), (&[2], 1), (none, 1), (none, 2)]);
    }

    #[test]
    fn json_comes_before_packed_values() {
        // tskit 1.0.3, `MetadataSchema(schema).validate_and_encode_row({"name": "ö", "n": 258, "r": [7, 9]})`.
        let schema = r#"{"codec": "json+struct", "json": {"type": "object", "properties": {"name": {"type": "string"}}},
            "struct": {"type": "object", "properties": {"n": {"type": "number", "binaryFormat": "H"}, "r": {
            "type": "array", "noLengthEncodingExhaustBuffer": true, "index": 1, "items": {
            "type": "number", "binaryFormat": "B"}}}}}"#;
        let row = *b"JBLB\x01\x11\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0{\"name\":\"\\u00f6\"}\0\0\x02\x01\x07\t";
        let layout = Layout::with_json(schema).unwrap();
        let of = |name: &str, values: &[&[u8]]| (name.to_owned(), values.iter().map(|value| value.to_vec()).collect());
        let expected =
            vec![of("n", &[&[2, 1]]), of("r", &[&[7], &[9]]), of("json", &[br#"{"name":"\u00f6"}"#.as_slice()])];
        assert_eq!(values(&layout, &row), Ok(expected));
        for length in 0..row.len() {
            assert_eq!(values(&layout, &row[..length]), Err(Short), "{length}");
        }
        // Other letters in front, another version, and lengths that no row has.
        for (at, byte) in [(0, b'j'), (4, 2), (5, 0x40), (12, 0xff), (13, 5), (20, 0xff)] {
            let mut row = row;
            row[at] = byte;
            assert_eq!(values(&layout, &row), Err(Short), "{at}");
        }
    }

    #[test]
    fn texts_are_those_of_tskit() {
        let text = |is_pascal, encoding: &str, ends_at_nul, stored: &[u8]| {
            let value = Value::Text { width: 4, is_pascal, encoding: Encoding::of(encoding), ends_at_nul };
            let text = value.text(stored).map(|text| String::from_utf8(text).unwrap());
            assert!(text.as_ref().is_none_or(|text| text.len() as u64 <= value.growth() * stored.len() as u64));
            text
        };
        assert_eq!(text(false, "utf-8", false, b"ab\0c").unwrap(), "ab\0c");
        assert_eq!(text(false, "utf-8", true, b"ab\0c").unwrap(), "ab");
        assert_eq!(text(true, "utf-8", false, b"\x02abc").unwrap(), "ab");
        assert_eq!(text(true, "utf-8", false, b"\xffabc").unwrap(), "abc");
        assert_eq!(text(true, "utf-8", false, b"\x05").unwrap(), "");
        assert_eq!(text(false, "utf-8", false, b"a\xc3\xbc\xff"), None);
        assert_eq!(text(false, "ASCII", false, b"a\xfcbc"), None);
        assert_eq!(text(false, "latin_1", false, b"a\xfcbc").unwrap(), "aübc");
        assert_eq!(text(false, "utf-16", false, b"\xff\xfea\0").unwrap(), "a");
        assert_eq!(text(false, "utf-16", false, b"\xfe\xff\0a").unwrap(), "a");
        assert_eq!(text(false, "utf-16", false, b"a\0b\0").unwrap(), "ab");
        assert_eq!(text(false, "utf-16-le", false, b"\xff\xfea\0").unwrap(), "\u{feff}a");
        assert_eq!(text(false, "utf-16", false, b"\0\xd8a\0"), None);
        assert_eq!(text(false, "utf-16", false, b"a\0b"), None);
        assert_eq!(text(false, "utf-32", false, b"a\0\0\0").unwrap(), "a");
        assert_eq!(text(false, "utf-32-be", false, b"\0\0\0a").unwrap(), "a");
        assert_eq!(text(false, "utf-32", false, b"\0\xd8\0\0"), None);
        assert_eq!(text(false, "utf-32", false, b"\xff\xfe\0\0").unwrap(), "");
        assert_eq!(text(false, "utf-32", false, b"\0\0\xfe\xff").unwrap(), "");
        assert_eq!(text(false, "cp500", false, b"abcd"), None);
    }

    #[test]
    fn lengths_that_lie_cost_nothing() {
        let of = |properties: &str| {
            let schema = format!(r#"{{"codec": "struct", "type": "object", "properties": {properties}}}"#);
            Layout::of(&schema).unwrap()
        };
        let huge = [0xff; 16];
        let lists = of(r#"{"a": {"type": "array", "arrayLengthFormat": "Q", "items": {
            "type": "array", "arrayLengthFormat": "B", "items": {"type": "number", "binaryFormat": "B"}}}}"#);
        let numbers = of(r#"{"a": {"type": "array", "arrayLengthFormat": "Q", "items": {
            "type": "number", "binaryFormat": "d"}}}"#);
        let fixed = of(r#"{"a": {"type": "array", "length": 18446744073709551615, "items": {
            "type": "number", "binaryFormat": "d"}}, "b": {"type": "number", "binaryFormat": "d"}}"#);
        let text = of(r#"{"a": {"type": "string", "binaryFormat": "9223372036854775807s"},
            "b": {"type": "string", "binaryFormat": "9223372036854775807s"},
            "c": {"type": "string", "binaryFormat": "9223372036854775807s"}}"#);
        for layout in [lists, numbers, fixed, text] {
            assert_eq!(values(&layout, &huge), Err(Short));
        }
    }
}
