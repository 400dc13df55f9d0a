//! Codec definitions: the types of a column's values (`docs/formats/idv.md` 5).

use std::borrow::Cow;

use super::{PartError, cursor::Cursor};
use crate::{
    format::DType,
    limits,
    source::{Source, SourceError},
};

/// Deepest nesting of definitions: a vector of keys of integers.
const DEEPEST: u32 = 3;

/// A codec definition as it is stored, and what it means.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The load name.
    pub name: Vec<u8>,
    /// The parameters; empty if they are unreasonably long.
    pub parameters: Vec<u8>,
    /// Bytes of the parameters.
    pub parameters_length: u64,
    /// Type of the values.
    pub meaning: Result<Type, Unusable>,
}

/// Why there are no values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// The codec or the compression is not known: *dead*, which is no damage.
    Dead(String),
    /// The definition or the table is wrong: *bad*.
    Bad(String),
}

impl Unusable {
    /// The reason.
    pub fn reason(&self) -> &str {
        match self {
            Self::Dead(reason) | Self::Bad(reason) => reason,
        }
    }
}

/// Type of the values of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// One value, or one slot of a vector.
    pub item: Item,
    /// For keys, what they stand for.
    pub key: Option<Key>,
    /// For vectors, the stored dimensions.
    pub dims: Option<Vec<u64>>,
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A number: integers, floats, keys, ticks.
    Number(DType),
    /// 128 bits: low and high half.
    RowId,
    /// Minutes and ticks.
    DateTimeOffset,
    /// One bit.
    Boolean,
    /// Two bits: false, true, missing.
    DvBool,
    /// Text.
    Text,
}

/// What the raw values of a key stand for; 0 is always "missing".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Number of keys; 0 if unbounded.
    pub count: u64,
    /// The logical value of raw 1.
    pub min: u64,
    /// Whether all numbers in between are keys.
    pub contiguous: bool,
}

impl Item {
    /// Returns the bytes of a value as shown; 0 for text.
    pub fn width(self) -> u64 {
        let elements = if self == Self::RowId { 2 } else { 1 };
        self.dtype().map_or(0, |dtype| elements * dtype.size())
    }

    /// Returns the bytes of `count` values in a block (`docs/formats/idv.md` 7); for text the least.
    pub fn stored(self, count: u64) -> u64 {
        match self {
            Self::Boolean => count.div_ceil(8),
            Self::DvBool => count.div_ceil(16).saturating_mul(4),
            Self::Text => count.saturating_mul(4).saturating_add(5),
            _ => count.saturating_mul(self.width()),
        }
    }

    /// Returns the element type of the array that shows it; `None` for text.
    pub fn dtype(self) -> Option<DType> {
        Some(match self {
            Self::Number(dtype) => dtype,
            Self::RowId => DType::U64,
            Self::DateTimeOffset => DType::DateTimeOffset,
            Self::Boolean => DType::Bool,
            Self::DvBool => DType::U8,
            Self::Text => return None,
        })
    }

    /// Returns the short name used in `container.json`.
    pub fn name(self) -> Cow<'static, str> {
        self.dtype().map_or("text".into(), DType::name)
    }
}

impl Type {
    /// Slots of a vector: `None` of a scalar, 0 where each row has its own number.
    pub fn slots(&self) -> Option<u64> {
        // Checked when it was parsed: below 2^31.
        self.dims.as_ref().map(|dims| if dims.is_empty() { 0 } else { dims.iter().product() })
    }

    /// The axes of one row's values; `None` where each row has its own number of them.
    pub fn row_shape(&self) -> Option<Vec<u64>> {
        let mut shape = self.dims.clone().unwrap_or_default();
        shape.extend((self.item == Item::RowId).then_some(2));
        (self.slots() != Some(0)).then_some(shape)
    }

    /// The type as people write it: `u32 key`, `f32[2,3]`, `text[]`.
    pub fn describe(&self) -> String {
        let key = if self.key.is_some() { " key" } else { "" };
        let item = match self.item {
            Item::RowId => "row id".into(),
            Item::DateTimeOffset => "ticks and minutes".into(),
            Item::DvBool => "bool or missing".into(),
            item => item.name(),
        };
        let dims = match (&self.dims, self.slots()) {
            (None, _) => String::new(),
            (_, Some(0)) => "[]".into(),
            (Some(dims), _) => format!("[{}]", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(",")),
        };
        format!("{item}{key}{dims}")
    }
}

/// Reads a definition.
pub(super) fn definition(cursor: &mut Cursor<'_>) -> Result<Definition, PartError> {
    let name = cursor.string("a codec's name", limits::IDV_NAME)?;
    if name.is_empty() {
        return PartError::damaged(format!("a codec without a name at {}", cursor.at()));
    }
    let parameters_length = cursor.leb("the length of a codec's parameters")?;
    if parameters_length > limits::IDV_PARAMETERS {
        cursor.skip(parameters_length, "a codec's parameters")?;
        let meaning = Err(Unusable::Dead(format!("its codec has {parameters_length} bytes of parameters")));
        return Ok(Definition { name, parameters: Vec::new(), parameters_length, meaning });
    }
    let parameters = cursor.bytes(parameters_length, "a codec's parameters")?;
    let meaning = meaning(&name, &parameters, 0)?;
    Ok(Definition { name, parameters, parameters_length, meaning })
}

/// What a definition means. Parameters must be consumed exactly.
fn meaning(name: &[u8], parameters: &[u8], depth: u32) -> Result<Result<Type, Unusable>, SourceError> {
    let number = |dtype| Some(Item::Number(dtype));
    let item = match name {
        b"SByte" => number(DType::I8),
        b"Byte" => number(DType::U8),
        b"Int16" => number(DType::I16),
        b"UInt16" => number(DType::U16),
        b"Int32" => number(DType::I32),
        b"UInt32" => number(DType::U32),
        b"Int64" | b"TimeSpan" | b"DvTimeSpan" | b"DateTime" | b"DvDateTime" => number(DType::I64),
        b"UInt64" => number(DType::U64),
        b"Single" => number(DType::F32),
        b"Double" => number(DType::F64),
        b"Boolean" => Some(Item::Boolean),
        b"DvBool" => Some(Item::DvBool),
        b"TextSpan" => Some(Item::Text),
        b"DateTimeOffset" | b"DvDateTimeZone" => Some(Item::DateTimeOffset),
        b"DataViewRowId" | b"RowId" | b"UInt128" => Some(Item::RowId),
        _ => None,
    };
    if let Some(item) = item {
        if !parameters.is_empty() {
            let name = String::from_utf8_lossy(name);
            return Ok(Err(Unusable::Bad(format!("codec {name} has {} bytes of parameters", parameters.len()))));
        }
        return Ok(Ok(Type { item, key: None, dims: None }));
    }
    if !matches!(name, b"Key" | b"Key2" | b"VBuffer") {
        let name = String::from_utf8_lossy(name);
        return Ok(Err(Unusable::Dead(format!("codec '{}' is not known", name.escape_debug()))));
    }
    if depth == DEEPEST {
        return Ok(Err(Unusable::Bad("codecs are nested too deeply".into())));
    }
    match composed(name, &parameters.to_vec(), depth) {
        Ok(meaning) => Ok(meaning),
        Err(PartError::Damaged(reason)) => {
            let name = String::from_utf8_lossy(name);
            Ok(Err(Unusable::Bad(format!("parameters of codec {name}: {reason}"))))
        }
        Err(PartError::Source(error)) => Err(error),
    }
}

/// A key or a vector.
fn composed(name: &[u8], parameters: &Vec<u8>, depth: u32) -> Result<Result<Type, Unusable>, PartError> {
    let mut cursor = Cursor::new(parameters, 0, Source::len(parameters));
    let inner_name = cursor.string("the inner codec's name", limits::IDV_NAME)?;
    let length = cursor.leb("the length of the inner codec's parameters")?;
    let inner_parameters = cursor.bytes(length, "the inner codec's parameters")?;
    let inner = match meaning(&inner_name, &inner_parameters, depth + 1)? {
        Ok(inner) => inner,
        // Of an unknown codec nothing behind it matters.
        Err(unusable) => return Ok(Err(unusable)),
    };
    let outer = if name == b"VBuffer" { vector(inner, &mut cursor)? } else { key(name, inner, &mut cursor)? };
    match cursor.left() {
        0 => Ok(Ok(outer)),
        surplus => PartError::damaged(format!("{surplus} bytes too many")),
    }
}

fn key(name: &[u8], raw: Type, cursor: &mut Cursor<'_>) -> Result<Type, PartError> {
    let most = match raw {
        Type { item: Item::Number(DType::U8), key: None, dims: None } => u64::from(u8::MAX),
        Type { item: Item::Number(DType::U16), key: None, dims: None } => u64::from(u16::MAX),
        Type { item: Item::Number(DType::U32), key: None, dims: None } => u64::from(u32::MAX),
        Type { item: Item::Number(DType::U64), key: None, dims: None } => u64::MAX,
        _ => return PartError::damaged(format!("a key over {}", raw.describe())),
    };
    let key = if name == b"Key2" {
        let count = cursor.u64("the count of keys")?;
        if count == 0 {
            return PartError::damaged("a count of 0");
        }
        Key { count, min: 0, contiguous: true }
    } else {
        let contiguous = match cursor.u8("whether keys are contiguous")? {
            0 => false,
            1 => true,
            other => return PartError::damaged(format!("contiguous is {other}")),
        };
        let min = cursor.u64("the least key")?;
        let count = cursor.i32("the count of keys")?;
        let Ok(count) = u64::try_from(count) else { return PartError::damaged(format!("a count of {count}")) };
        if !contiguous && count > 0 {
            return PartError::damaged(format!("a count of {count}, and not contiguous"));
        }
        Key { count, min, contiguous }
    };
    if key.count > most {
        return PartError::damaged(format!("a count of {}, of {most} possible", key.count));
    }
    Ok(Type { key: Some(key), ..raw })
}

fn vector(item: Type, cursor: &mut Cursor<'_>) -> Result<Type, PartError> {
    if item.dims.is_some() {
        return PartError::damaged("a vector of vectors");
    }
    let count = cursor.i32("the number of dimensions")?;
    let Some(count) = u64::try_from(count).ok().filter(|count| count.saturating_mul(4) <= cursor.left()) else {
        return PartError::damaged(format!("{count} dimensions in {} bytes", cursor.left()));
    };
    let mut dims = Vec::new();
    for _ in 0..count {
        let dim = cursor.i32("a dimension")?;
        let Ok(dim) = u64::try_from(dim) else { return PartError::damaged(format!("a dimension of {dim}")) };
        dims.push(dim);
    }
    // An empty axis makes the whole product 0, whatever the others say.
    let size = dims.iter().try_fold(1u64, |size, &dim| size.checked_mul(dim));
    if !dims.contains(&0) && size.is_none_or(|size| size > i32::MAX as u64) {
        return PartError::damaged(format!("dimensions {dims:?} have too many slots"));
    }
    if dims.contains(&0) && size.is_none() {
        dims = vec![0];
    }
    if dims.len() >= limits::DIMENSIONS {
        return PartError::damaged(format!("{} dimensions, numpy has {}", dims.len() + 1, limits::DIMENSIONS));
    }
    Ok(Type { dims: Some(dims), ..item })
}
