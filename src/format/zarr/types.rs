//! The element types of arrays (`docs/formats/zarr.md` 4.1).

use std::{num::NonZeroU32, ops::Range};

use super::json::Json;
use crate::{
    format::{DType, DateUnit, ElementType, Field, Record},
    source::to_usize,
};

/// Most values of a record that are stored big-endian.
const SWAPPED: usize = 1 << 16;

/// Most levels of nested records.
const DEPTH: usize = 8;

/// The elements of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elements {
    /// Elements of one size.
    Fixed(Fixed),
    /// Texts.
    Text,
    /// Rows of bytes.
    Bytes,
}

/// Elements of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// Their type as they are shown, little-endian.
    pub element: ElementType,
    /// How their bits are shown, if numpy has no type for them.
    pub bits: Bits,
    /// The values of an element whose bytes are stored in the opposite order.
    pub swapped: Vec<Range<usize>>,
}

/// Types with special fill values (section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// The fill values of the type itself.
    Own,
    /// bf16.
    Bf16,
    /// An 8-bit float.
    F8,
    /// `r<8n>`: bytes, whose fill value is a list.
    Raw,
}

impl Fixed {
    fn own(element: impl Into<ElementType>, swapped: Vec<Range<usize>>) -> Self {
        Self { element: element.into(), bits: Bits::Own, swapped }
    }

    /// Returns the bytes of an element.
    pub fn size(&self) -> u64 {
        self.element.size()
    }

    /// Returns the same type with all values big-endian.
    ///
    /// # Errors
    /// If an element has too many values.
    pub fn into_big(self) -> Result<Self, String> {
        let mut swapped = Vec::new();
        add_units(&self.element, 0, &mut swapped)?;
        Ok(Self { swapped, ..self })
    }
}

/// Returns the bytes of each value whose bytes have an order; 1 if they have none.
fn unit(dtype: DType) -> u64 {
    match dtype {
        DType::Bytes(_) | DType::Void(_) => 1,
        DType::Utf32(_) => 4,
        _ => dtype.parts().unwrap_or(dtype).size(),
    }
}

/// Adds the places of all values that have a byte order, in an element at a place.
fn add_units(element: &ElementType, at: u64, units: &mut Vec<Range<usize>>) -> Result<(), String> {
    let mut add = |at: u64, unit: u64| {
        if units.len() == SWAPPED {
            return Err(format!("a type of more than {SWAPPED} big-endian values"));
        }
        units.push(to_usize(at)..to_usize(at + unit));
        Ok(())
    };
    match element {
        ElementType::Plain(dtype) => {
            let unit = unit(*dtype);
            let count = if unit > 1 { dtype.size() / unit } else { 0 };
            (0..count).try_for_each(|number| add(at + number * unit, unit))
        }
        ElementType::Record(record) => record.fields().iter().try_for_each(|field| {
            let size = field.element.size();
            let count = field.size() / size.max(1);
            (0..count).try_for_each(|number| add_units(&field.element, at + field.offset + number * size, units))
        }),
    }
}

/// Returns the elements of a v2 array. `first` is the id of its first filter.
///
/// # Errors
/// Why the type cannot be shown.
pub fn of_v2(dtype: &Json, first: Option<&str>) -> Result<Elements, String> {
    // zarr-python 3.0 writes the type of fixed-length texts and bytes beside these codecs.
    let is_object = dtype.as_str() == Some("|O");
    let is_of = |kind: &str| is_object || dtype.as_str().and_then(|descr| descr.get(1..2)) == Some(kind);
    match first {
        Some("vlen-utf8") if is_of("U") => return Ok(Elements::Text),
        Some("vlen-bytes") if is_of("S") => return Ok(Elements::Bytes),
        _ if is_object => return Err("objects without a codec of texts or bytes".into()),
        _ => {}
    }
    let mut swapped = Vec::new();
    let element = v2_element(dtype, 0, 0, &mut swapped)?;
    let bits = dtype.as_str().map_or(Bits::Own, bits_of);
    Ok(Elements::Fixed(Fixed { bits, ..Fixed::own(element, swapped) }))
}

/// Returns a float that numpy has no type for, by its name in both versions.
fn small_float(name: &str) -> Option<DType> {
    Some(match name {
        "bfloat16" => DType::Bf16,
        "float8_e4m3fn" => DType::F8E4M3Fn,
        "float8_e4m3fnuz" => DType::F8E4M3Fnuz,
        "float8_e5m2" => DType::F8E5M2,
        "float8_e5m2fnuz" => DType::F8E5M2Fnuz,
        "float8_e8m0fnu" => DType::F8E8M0Fnu,
        "float8_e4m3" | "float8_e4m3b11fnuz" | "float8_e3m4" => DType::U8,
        _ => return None,
    })
}

/// Returns how the bits of a type with a name are shown.
fn bits_of(name: &str) -> Bits {
    match name {
        "bfloat16" => Bits::Bf16,
        name if name.starts_with("float8") => Bits::F8,
        _ => Bits::Own,
    }
}

/// Returns a type, and adds the places of its big-endian values. The type begins at `at` in the whole element.
fn v2_element(dtype: &Json, at: u64, depth: usize, swapped: &mut Vec<Range<usize>>) -> Result<ElementType, String> {
    if let Some(descr) = dtype.as_str() {
        if let Some(dtype) = small_float(descr) {
            return Ok(dtype.into());
        }
        let (dtype, is_big) = plain(descr).ok_or_else(|| format!("data type {descr}"))?;
        if is_big {
            add_units(&dtype.into(), at, swapped)?;
        }
        return Ok(dtype.into());
    }
    let fields = dtype.as_list().filter(|fields| !fields.is_empty() && depth < DEPTH).ok_or("data type")?;
    let mut made: Vec<Field> = Vec::new();
    let mut place = at;
    for field in fields {
        let (name, of, shape) = match field.as_list() {
            Some([name, of]) => (name, of, &[][..]),
            Some([name, of, shape]) => (name, of, shape.as_list().ok_or("the shape of a field")?),
            _ => return Err("a field of a record".into()),
        };
        let name = name.as_str().ok_or("the name of a field")?;
        let shape: Vec<u64> = shape.iter().map(Json::as_size).collect::<Option<_>>().ok_or("the shape of a field")?;
        let mut units = Vec::new();
        let element = v2_element(of, 0, depth + 1, &mut units)?;
        let size = element.size();
        let field = Field::of_shape(name, element, &shape);
        let count = if units.is_empty() { 0 } else { field.size() / size };
        if to_usize(count).saturating_mul(units.len()) > SWAPPED.saturating_sub(swapped.len()) {
            return Err(format!("a type of more than {SWAPPED} big-endian values"));
        }
        for number in 0..count {
            let from = to_usize(place + number * size);
            swapped.extend(units.iter().map(|unit| unit.start + from..unit.end + from));
        }
        place = place.saturating_add(field.size());
        made.push(field);
    }
    Ok(Record::new(made)?.into())
}

/// Returns the type of a v2 type string, and whether it is big-endian. Types of one byte have no order; all others must
/// state it.
fn plain(descr: &str) -> Option<(DType, bool)> {
    let descr = descr.replace("\u{3bc}s]", "us]");
    let (dtype, is_big) = DType::of_descr(&descr)?;
    let has_order = unit(dtype) > 1;
    let is_known = !descr.get(1..)?.starts_with('a') && (!has_order || !descr.starts_with('|'));
    is_known.then_some((dtype, is_big && has_order))
}

/// Returns the name and the configuration of an extension of v3: an object, or the bare name.
///
/// # Errors
/// If it is neither.
pub fn named(extension: &Json) -> Result<(&str, Option<&Json>), String> {
    if let Some(name) = extension.as_str() {
        return Ok((name, None));
    }
    let name = extension.get("name").and_then(Json::as_str).ok_or("an extension without a name")?;
    match extension.get("configuration") {
        None => Ok((name, None)),
        Some(configuration @ Json::Object(_)) => Ok((name, Some(configuration))),
        Some(_) => Err(format!("the configuration of {name}")),
    }
}

/// Returns the elements of a v3 array.
///
/// # Errors
/// Why the type cannot be shown.
pub fn of_v3(data_type: &Json) -> Result<Elements, String> {
    match named(data_type)?.0 {
        "string" => Ok(Elements::Text),
        "bytes" | "variable_length_bytes" => Ok(Elements::Bytes),
        _ => v3_element(data_type, 0).map(Elements::Fixed),
    }
}

fn v3_element(data_type: &Json, depth: usize) -> Result<Fixed, String> {
    let (name, configuration) = named(data_type)?;
    let unknown = || format!("data type {name}");
    let setting = |key: &str| configuration.and_then(|configuration| configuration.get(key));
    let is_bare = configuration.and_then(Json::as_object).is_none_or(|object| object.is_empty());
    let dtype = match name {
        "complex64" => DType::C64,
        "complex128" => DType::C128,
        "null_terminated_bytes" | "raw_bytes" | "fixed_length_utf32" => {
            let length = setting("length_bytes").and_then(Json::as_size).and_then(|length| u32::try_from(length).ok());
            let length = length.and_then(NonZeroU32::new).ok_or_else(|| format!("length_bytes of {name}"))?;
            return Ok(Fixed::own(
                match name {
                    "null_terminated_bytes" => DType::Bytes(length),
                    "raw_bytes" => DType::Void(length),
                    _ => {
                        let characters = NonZeroU32::new(length.get() / 4).filter(|_| length.get() % 4 == 0);
                        DType::Utf32(characters.ok_or_else(|| format!("length_bytes of {name}"))?)
                    }
                },
                Vec::new(),
            ));
        }
        "numpy.datetime64" | "numpy.timedelta64" => {
            let unit = setting("unit").and_then(Json::as_str).ok_or_else(unknown)?;
            let unit = if unit == "\u{3bc}s" { "us" } else { unit };
            let count = setting("scale_factor").and_then(Json::as_size).filter(|count| (1..1 << 31).contains(count));
            let count = count.ok_or_else(unknown)?;
            let unit = if unit == "generic" { DateUnit::parse("") } else { DateUnit::parse(&format!("{count}{unit}")) };
            let unit = unit.filter(|_| setting("unit").is_some()).ok_or_else(unknown)?;
            let dtype = if name == "numpy.datetime64" { DType::Date(unit) } else { DType::Span(unit) };
            return Ok(Fixed::own(dtype, Vec::new()));
        }
        "structured" | "struct" => {
            let fields = setting("fields").and_then(Json::as_list).filter(|_| depth < DEPTH).ok_or_else(unknown)?;
            let mut made = Vec::new();
            for field in fields {
                let (name, of) = match field {
                    Json::Object(_) => (field.get("name"), field.get("data_type")),
                    Json::List(pair) => (pair.first(), pair.get(1)),
                    _ => (None, None),
                };
                let (Some(name), Some(of)) = (name.and_then(Json::as_str), of) else { return Err(unknown()) };
                made.push(Field::new(name, v3_element(of, depth + 1)?.element));
            }
            return Ok(Fixed::own(Record::new(made)?, Vec::new()));
        }
        _ => {
            if let Some(dtype) = small_float(name).or_else(|| DType::of_name(name)) {
                dtype
            } else {
                let bits = name.strip_prefix('r').filter(|bits| bits.bytes().all(|digit| digit.is_ascii_digit()));
                let bits = bits.and_then(|bits| bits.parse::<u32>().ok()).filter(|bits| bits.is_multiple_of(8));
                let size = bits.and_then(|bits| NonZeroU32::new(bits / 8)).ok_or_else(unknown)?;
                return Ok(Fixed { bits: Bits::Raw, ..Fixed::own(DType::Void(size), Vec::new()) });
            }
        }
    };
    if !is_bare {
        return Err(unknown());
    }
    Ok(Fixed { bits: bits_of(name), ..Fixed::own(dtype, Vec::new()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Unlimited;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), &Unlimited).unwrap()
    }

    #[test]
    fn types_of_version_2() {
        let found = |text: &str| match of_v2(&json(text), None) {
            Ok(Elements::Fixed(fixed)) => Ok((fixed.element.descr().into_owned(), fixed.swapped)),
            other => Err(format!("{other:?}")),
        };
        assert_eq!(found("\">i2\""), Ok(("<i2".into(), std::iter::once(0..2).collect())));
        assert_eq!(found("\"<b1\""), Ok(("|b1".into(), vec![])));
        assert_eq!(found("\">u1\""), Ok(("|u1".into(), vec![])));
        assert_eq!(found("\">U2\""), Ok(("<U2".into(), vec![0..4, 4..8])));
        assert_eq!(found("\">c8\""), Ok(("<c8".into(), vec![0..4, 4..8])));
        assert_eq!(found("\"bfloat16\""), Ok(("<u2".into(), vec![])));
        assert_eq!(found("\"float8_e5m2\""), Ok(("|u1".into(), vec![])));
        assert_eq!(found("\"<M8[25\u{3bc}s]\""), Ok(("<M8[25us]".into(), vec![])));
        assert_eq!(
            found(r#"[["a", ">i2"], ["in", [["x", "<f4"], ["m", ">u2", [2, 2]]]]]"#),
            Ok((
                "[('a', '<i2'), ('in', [('x', '<f4'), ('m', '<u2', (2, 2))])]".into(),
                vec![0..2, 6..8, 8..10, 10..12, 12..14]
            ))
        );
        for refused in ["=i4", "|i4", "<f16", "|O", "|t4", "i4", "int4", "<bfloat16", "|S0", "|a3", "<M8[s", ""] {
            assert!(found(&format!("\"{refused}\"")).is_err(), "{refused}");
        }
        for refused in ["[]", r#"[["a", "|O"]]"#, r#"[["a"]]"#, r#"[["", "<i4"]]"#, r#"[["a", ">i2", [1000, 1000]]]"#] {
            assert!(found(refused).is_err(), "{refused}");
        }
        assert_eq!(of_v2(&json("\"|O\""), Some("vlen-utf8")), Ok(Elements::Text));
        assert!(of_v2(&json("\"|O\""), Some("pickle")).is_err());
        // zarr-python 3.0.8 writes these for the types U3, S3 and bytes.
        assert_eq!(of_v2(&json("\"<U3\""), Some("vlen-utf8")), Ok(Elements::Text));
        assert_eq!(of_v2(&json("\"|S3\""), Some("vlen-bytes")), Ok(Elements::Bytes));
        assert_eq!(of_v2(&json("\"|S0\""), Some("vlen-bytes")), Ok(Elements::Bytes));
        assert!(matches!(of_v2(&json("\"<i4\""), Some("vlen-utf8")), Ok(Elements::Fixed(_))));
    }

    #[test]
    fn types_of_version_3() {
        let found = |text: &str| match of_v3(&json(text)) {
            Ok(Elements::Fixed(fixed)) => Ok(fixed.element.descr().into_owned()),
            other => Err(format!("{other:?}")),
        };
        for (stored, descr) in [
            (r#""float8_e3m4""#, "|u1"),
            (r#""r24""#, "|V3"),
            (r#"{"name": "uint8"}"#, "|u1"),
            (r#"{"name": "fixed_length_utf32", "configuration": {"length_bytes": 12}}"#, "<U3"),
            (r#"{"name": "numpy.timedelta64", "configuration": {"unit": "generic", "scale_factor": 1}}"#, "<m8"),
            (r#"{"name": "numpy.datetime64", "configuration": {"unit": "ms", "scale_factor": 10}}"#, "<M8[10ms]"),
        ] {
            assert_eq!(found(stored).as_deref(), Ok(descr), "{stored}");
        }
        for refused in [
            r#""int4""#,
            r#""r12""#,
            r#""r0""#,
            r#""r""#,
            "3",
            r#"{"name": "int8", "configuration": {"x": 1}}"#,
            r#"{"name": "fixed_length_utf32", "configuration": {"length_bytes": 6}}"#,
            r#"{"name": "raw_bytes", "configuration": {"length_bytes": 0}}"#,
            r#"{"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 0}}"#,
        ] {
            assert!(found(refused).is_err(), "{refused}");
        }
        let Ok(Elements::Fixed(record)) =
            of_v3(&json(r#"{"name": "struct", "configuration": {"fields": [["a", "int16"], ["b", "uint8"]]}}"#))
        else {
            panic!()
        };
        assert_eq!(record.into_big().unwrap().swapped, std::iter::once(0..2).collect::<Vec<_>>());
    }
}
