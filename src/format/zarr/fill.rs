//! Fill values: the elements of chunks that are not stored (`docs/formats/zarr.md` 4.2).

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    json::Json,
    types::{Bits, Elements, Fixed},
};
use crate::format::{DType, ElementType, to_bf16, to_half};

/// Returns the bytes of an element of absent chunks, little-endian. For texts and rows of bytes, returns the row.
///
/// # Errors
/// Why the fill value does not fit this type.
pub(super) fn of(value: &Json, elements: &Elements, is_v3: bool) -> Result<Vec<u8>, String> {
    let bad = || format!("fill value {}", shown(value));
    match elements {
        Elements::Fixed(fixed) => fixed_fill(value, fixed, is_v3),
        Elements::Text => match value {
            Json::Null if !is_v3 => Ok(Vec::new()),
            Json::Number(token) => Ok(token.as_bytes().to_vec()),
            value => value.as_str().map(|text| text.as_bytes().to_vec()).ok_or_else(bad),
        },
        Elements::Bytes => match value {
            Json::Null if !is_v3 => Ok(Vec::new()),
            // zarr-python 2 writes it where no fill value was given.
            Json::Number(token) if !is_v3 && &**token == "0" => Ok(Vec::new()),
            Json::List(bytes) if is_v3 => byte_list(bytes).ok_or_else(bad),
            value => STANDARD.decode(value.as_str().ok_or_else(bad)?).map_err(|_| bad()),
        },
    }
}

/// Returns a value for messages, cut after 64 bytes.
pub(super) fn shown(value: &Json) -> String {
    let mut text = match value {
        Json::List(_) => "that is a list".into(),
        Json::Object(_) => "that is an object".into(),
        value => value.to_serde().to_string(),
    };
    if text.len() > 64 {
        let end = (0..=64).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

fn byte_list(bytes: &[Json]) -> Option<Vec<u8>> {
    bytes.iter().map(|byte| byte.as_size()?.try_into().ok()).collect()
}

fn fixed_fill(value: &Json, fixed: &Fixed, is_v3: bool) -> Result<Vec<u8>, String> {
    let bad = || format!("fill value {}", shown(value));
    let size = usize::try_from(fixed.size()).map_err(|_| bad())?;
    if size > crate::limits::PIECE {
        return Err(format!("elements of {size} bytes"));
    }
    if value.is_null() {
        return match (&fixed.element, is_v3) {
            (ElementType::Plain(DType::Date(_) | DType::Span(_)), false) => Ok(i64::MIN.to_le_bytes().into()),
            (ElementType::Plain(DType::Date(_) | DType::Span(_)) | ElementType::Record(_), true) => Err(bad()),
            _ => Ok(vec![0; size]),
        };
    }
    let dtype = match &fixed.element {
        ElementType::Plain(dtype) => *dtype,
        ElementType::Record(record) => {
            if let (Json::Object(values), true) = (value, is_v3) {
                let mut out = Vec::with_capacity(size);
                for field in record.fields() {
                    let value = values.get(field.name.as_bytes()).ok_or_else(bad)?;
                    let own = Fixed { element: field.element.clone(), bits: Bits::Own, swapped: Vec::new() };
                    out.extend(fixed_fill(value, &own, is_v3)?);
                }
                return Ok(out);
            }
            let mut fill = padded(value, size).ok_or_else(bad)?;
            for unit in &fixed.swapped {
                fill.get_mut(unit.clone()).unwrap_or_default().reverse();
            }
            return Ok(fill);
        }
    };
    let found = match fixed.bits {
        Bits::Bf16 | Bits::F8 => match value.as_str().filter(|_| is_v3).and_then(|text| hexadecimal(text, size)) {
            None if fixed.bits == Bits::Bf16 => float(value, 4, false)
                .and_then(|bytes| Some(to_bf16(f32::from_le_bytes(bytes.try_into().ok()?)).to_le_bytes().into())),
            None => (value.as_double() == Some(0.0)).then(|| vec![0; size]),
            bits => bits,
        },
        Bits::Raw => match value {
            Json::List(bytes) => byte_list(bytes).filter(|bytes| bytes.len() == size),
            value => padded(value, size),
        },
        Bits::Own => plain(value, dtype, size, is_v3),
    };
    found.ok_or_else(bad)
}

fn plain(value: &Json, dtype: DType, size: usize, is_v3: bool) -> Option<Vec<u8>> {
    match dtype {
        DType::Bool => match value {
            Json::Bool(value) => Some(vec![u8::from(*value)]),
            value => value.as_size().filter(|value| *value < 2).map(|value| vec![u8::from(value == 1)]),
        },
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let number = integral(value)?;
            let limit = 1i128 << (8 * size - 1);
            (-limit..limit).contains(&number).then(|| number.to_le_bytes().into_iter().take(size).collect())
        }
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            let number = integral(value)?;
            (0..1i128 << (8 * size)).contains(&number).then(|| number.to_le_bytes().into_iter().take(size).collect())
        }
        DType::F16 | DType::F32 | DType::F64 => float(value, size, is_v3),
        DType::C64 | DType::C128 => match value.as_list()? {
            [real, imaginary] => Some([float(real, size / 2, is_v3)?, float(imaginary, size / 2, is_v3)?].concat()),
            _ => None,
        },
        DType::Date(_) | DType::Span(_) => match value.as_str() {
            Some("NaT") => Some(i64::MIN.to_le_bytes().into()),
            Some(text) if !is_v3 && matches!(dtype, DType::Date(_)) => is_epoch(text).then(|| vec![0; size]),
            _ => Some(i64::try_from(value.as_int()?).ok()?.to_le_bytes().into()),
        },
        DType::Utf32(_) => {
            let mut text: Vec<u8> = value.as_str()?.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
            (text.len() <= size).then(|| {
                text.resize(size, 0);
                text
            })
        }
        DType::Bytes(_) | DType::Void(_) => padded(value, size),
        _ => None,
    }
}

/// Returns whether a date of any unit is the epoch: zarr-python 3.0 writes fill values as dates, and this where none was
/// given.
fn is_epoch(date: &str) -> bool {
    date.len() >= 4 && "1970-01-01T00:00:00.000000000000000000".starts_with(date)
}

/// Returns an integer, which may be written as a float.
#[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^100")]
fn integral(value: &Json) -> Option<i128> {
    if let Some(number) = value.as_int() {
        return Some(number);
    }
    let number = value.as_double()?;
    (number.fract() == 0.0 && number.abs() < 2f64.powi(100)).then_some(number as i128)
}

/// Returns the bits of a float of this many bytes.
fn float(value: &Json, size: usize, is_v3: bool) -> Option<Vec<u8>> {
    let number = match value.as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        Some(text) => return hexadecimal(text, size).filter(|_| is_v3),
        None => value.as_double()?,
    };
    Some(match size {
        2 if number.is_nan() => 0x7e00u16.to_le_bytes().into(),
        2 => to_half(number).to_le_bytes().into(),
        4 if number.is_nan() => 0x7fc0_0000u32.to_le_bytes().into(),
        #[expect(clippy::cast_possible_truncation, reason = "the nearest one is meant")]
        4 => (number as f32).to_le_bytes().into(),
        _ if number.is_nan() => 0x7ff8_0000_0000_0000u64.to_le_bytes().into(),
        _ => number.to_le_bytes().into(),
    })
}

/// Returns the bits of `0x…`, which has exactly two digits a byte, the most significant first.
fn hexadecimal(text: &str, size: usize) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 2 * size && digits.is_ascii())?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let bytes = (0..size).rev().map(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok());
    bytes.collect()
}

/// Decodes base64 of at most `size` bytes and pads it with NULs.
fn padded(value: &Json, size: usize) -> Option<Vec<u8>> {
    let mut bytes = STANDARD.decode(value.as_str()?).ok().filter(|bytes| bytes.len() <= size)?;
    bytes.resize(size, 0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{super::types, *};
    use crate::source::Unlimited;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), &Unlimited).unwrap()
    }

    #[test]
    fn values_are_those_of_their_type() {
        let v3 = |dtype: &str, value: &str| of(&json(value), &types::of_v3(&json(dtype)).unwrap(), true).ok();
        assert_eq!(v3("\"int16\"", "5.0"), Some(vec![5, 0]));
        assert_eq!(v3("\"int16\"", "null"), Some(vec![0, 0]));
        assert_eq!(v3("\"uint64\"", "18446744073709551615"), Some(vec![0xff; 8]));
        assert_eq!(v3("\"int8\"", "-128"), Some(vec![0x80]));
        assert_eq!(v3("\"float32\"", "\"0x7fc00001\""), Some(vec![1, 0, 0xc0, 0x7f]));
        assert_eq!(v3("\"float32\"", "NaN"), Some(vec![0, 0, 0xc0, 0x7f]));
        assert_eq!(v3("\"bfloat16\"", "\"NaN\""), Some(vec![0xc0, 0x7f]));
        // tensorstore 0.1.86 reads these bits.
        assert_eq!(v3("\"bfloat16\"", "1.5"), Some(vec![0xc0, 0x3f]));
        assert_eq!(v3("\"bool\"", "1"), Some(vec![1]));
        assert_eq!(v3("\"r24\"", "[1, 2, 3]"), Some(vec![1, 2, 3]));
        for (dtype, value) in [
            ("uint8", "256"),
            ("uint8", "-1"),
            ("uint8", "1.5"),
            ("uint8", "true"),
            ("uint8", "\"1\""),
            ("bool", "1.0"),
            ("bool", "2"),
            ("float32", "true"),
            ("float32", "\"0x7fc0\""),
            ("float32", "\"0x7fc0000\u{e9}\""),
            ("bfloat16", "\"1\""),
            ("float8_e5m2", "1.5"),
            ("r24", "[1, 2]"),
            ("complex64", "[1]"),
            ("string", "null"),
        ] {
            assert_eq!(v3(&format!("\"{dtype}\""), value), None, "{dtype} {value}");
        }
        let v2 = |dtype: &str, value: &str| of(&json(value), &types::of_v2(&json(dtype), None).unwrap(), false).ok();
        assert_eq!(v2("\"<f4\"", "null"), Some(vec![0; 4]));
        assert_eq!(v2("\"<M8[ns]\"", "null"), Some(vec![0, 0, 0, 0, 0, 0, 0, 0x80]));
        assert_eq!(v2("\"<f4\"", "\"0x7fc00001\""), None);
        assert_eq!(v2("\"bfloat16\"", "\"0x7fc0\""), None);
        assert_eq!(v2("\"|S5\"", "\"YWI=\""), Some(b"ab\0\0\0".to_vec()));
        // zarr-python 3.0.8 writes these where no fill value was given, and the others for 100,000.
        for (dtype, value) in [
            ("<M8[Y]", "1970"),
            ("<M8[M]", "1970-01"),
            ("<M8[W]", "1970-01-01"),
            ("<M8[h]", "1970-01-01T00"),
            ("<M8[ns]", "1970-01-01T00:00:00.000000000"),
        ] {
            assert_eq!(v2(&format!("\"{dtype}\""), &format!("\"{value}\"")), Some(vec![0; 8]), "{dtype}");
        }
        assert_eq!(v2("\"<M8[D]\"", "\"2243-10-17\""), None);
        assert_eq!(v2("\"<M8[ns]\"", "\"1970-01-01T00:00:00.000100000\""), None);
        assert_eq!(v2("\"<U2\"", "\"abc\""), None);
        // zarr-python 2.18.7 writes 0 where no fill value was given; in a chunk that has other rows, the row is empty.
        let bytes = |value: &str| of(&json(value), &Elements::Bytes, false).ok();
        assert_eq!((bytes("0"), bytes("\"\""), bytes("1")), (Some(vec![]), Some(vec![]), None));
        assert_eq!(v2("\">U2\"", "\"\u{e9}\""), Some(vec![0xe9, 0, 0, 0, 0, 0, 0, 0]));
        // zarr-python 3.1.6 writes this for (5, 1.5, "ab", 7).
        let stored = "\"AAU/wAAAAAAAYQAAAGIHAAAA\"";
        let record = r#"[["a", ">i2"], ["b", ">f4"], ["u", ">U2"], ["c", "<i4"]]"#;
        let expected =
            [&5i16.to_le_bytes()[..], &1.5f32.to_le_bytes(), b"a\0\0\0b\0\0\0", &7i32.to_le_bytes()].concat();
        assert_eq!(v2(record, stored), Some(expected));
    }
}
