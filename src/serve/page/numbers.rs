//! Elements of arrays as numbers and as text.

use crate::format::{DType, DateUnit, ElementType, TimeUnit, bf16, civil, half, utf32, without_nuls};

/// Returns an element as a number: the ticks of a date with an offset, the magnitude of a complex number, NaN for what
/// is no number. Integers above 2^53 are rounded.
pub(super) fn value(element: &ElementType, bytes: &[u8]) -> f64 {
    element.plain().map_or(f64::NAN, |dtype| number(dtype, bytes))
}

fn number(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes(fixed(bytes)),
        DType::F32 => f32::from_le_bytes(fixed(bytes)).into(),
        DType::F16 => half(u16::from_le_bytes(fixed(bytes))).into(),
        DType::Bf16 => bf16(u16::from_le_bytes(fixed(bytes))).into(),
        DType::I64 | DType::DateTimeOffset => i64::from_le_bytes(fixed(bytes)) as f64,
        DType::I32 => i32::from_le_bytes(fixed(bytes)).into(),
        DType::I16 => i16::from_le_bytes(fixed(bytes)).into(),
        DType::I8 => i8::from_le_bytes(fixed(bytes)).into(),
        DType::U64 => u64::from_le_bytes(fixed(bytes)) as f64,
        DType::U32 => u32::from_le_bytes(fixed(bytes)).into(),
        DType::U16 => u16::from_le_bytes(fixed(bytes)).into(),
        DType::U8 | DType::Bool => u8::from_le_bytes(fixed(bytes)).into(),
        DType::C64 | DType::C128 | DType::C32 => {
            let [real, imaginary] = complex(dtype, bytes);
            real.hypot(imaginary)
        }
        DType::F8E4M3Fn | DType::F8E5M2 | DType::F8E8M0Fnu | DType::F8E4M3Fnuz | DType::F8E5M2Fnuz => {
            small(dtype, bytes).into()
        }
        DType::Bytes(_) | DType::Utf32(_) | DType::Void(_) | DType::Date(_) | DType::Span(_) => f64::NAN,
    }
}

/// Returns an element as text: exact, with as few digits as its type needs.
pub(super) fn text(element: &ElementType, bytes: &[u8]) -> String {
    match element {
        ElementType::Plain(dtype) => plain(*dtype, bytes),
        ElementType::Record(record) => {
            let fields = record.fields().iter().map(|field| {
                let at = field.offset as usize..(field.offset + field.size()) as usize;
                let values = bytes.get(at).unwrap_or_default().chunks_exact(field.element.size() as usize);
                let values: Vec<String> = values.map(|value| text(&field.element, value)).collect();
                if field.shape.is_empty() { values.concat() } else { format!("[{}]", values.join(", ")) }
            });
            format!("({})", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn plain(dtype: DType, bytes: &[u8]) -> String {
    match dtype {
        DType::F64 => float(f64::from_le_bytes(fixed(bytes))),
        DType::F32 => float(f32::from_le_bytes(fixed(bytes))),
        DType::F16 => float(half(u16::from_le_bytes(fixed(bytes)))),
        DType::Bf16 => float(bf16(u16::from_le_bytes(fixed(bytes)))),
        DType::I64 => i64::from_le_bytes(fixed(bytes)).to_string(),
        DType::U64 => u64::from_le_bytes(fixed(bytes)).to_string(),
        DType::Bool => if bytes.first().is_some_and(|&byte| byte != 0) { "true" } else { "false" }.into(),
        DType::DateTimeOffset => {
            let offset = i16::from_le_bytes(fixed(bytes.get(8..).unwrap_or_default()));
            date(i64::from_le_bytes(fixed(bytes)), offset)
        }
        DType::C64 | DType::C128 | DType::C32 => {
            let part = dtype.parts().unwrap_or(DType::F64);
            let (real, imaginary) = bytes.split_at(bytes.len().min(part.size() as usize));
            let imaginary = plain(part, imaginary);
            let sign = if imaginary.starts_with('-') { "" } else { "+" };
            format!("{}{sign}{imaginary}i", plain(part, real))
        }
        DType::Bytes(_) => shown(&String::from_utf8_lossy(without_nuls(bytes))),
        DType::Utf32(_) => shown(&utf32(bytes)),
        DType::Void(_) => bytes.iter().fold("0x".into(), |text, byte| text + &format!("{byte:02x}")),
        DType::Date(unit) | DType::Span(unit) => match (i64::from_le_bytes(fixed(bytes)), dtype) {
            (i64::MIN, _) => "NaT".into(),
            (number, DType::Date(_)) => instant(number, unit),
            (number, _) => format!("{number}{unit}"),
        },
        _ if dtype.is_float() => float(small(dtype, bytes)),
        _ => format!("{}", number(dtype, bytes)),
    }
}

/// The two parts of a complex number.
fn complex(dtype: DType, bytes: &[u8]) -> [f64; 2] {
    let part = dtype.parts().unwrap_or(DType::F64);
    let (real, imaginary) = bytes.split_at(bytes.len().min(part.size() as usize));
    [number(part, real), number(part, imaginary)]
}

/// An 8-bit float.
fn small(dtype: DType, bytes: &[u8]) -> f32 {
    let bits = u8::from_le_bytes(fixed(bytes));
    dtype.small_float().map_or(f32::NAN, |small| small.value(bits))
}

/// Returns the first bytes as an array, padded with zeros.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes) {
        *to = *from;
    }
    array
}

/// Formats like `Display`, but with an exponent instead of many zeros.
fn float(number: impl Into<f64> + Copy + std::fmt::Display + std::fmt::LowerExp) -> String {
    let magnitude = number.into().abs();
    if magnitude != 0.0 && magnitude.is_finite() && !(1e-4..1e16).contains(&magnitude) {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

/// Returns a text on one line.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Formats a date as ISO 8601, as finely as its unit is; a number of units if there is no such date.
fn instant(number: i64, unit: DateUnit) -> String {
    let all = i128::from(number) * i128::from(unit.count.get());
    // Seconds of a unit, or units of a second.
    let (seconds, fraction, digits) = match unit.base {
        TimeUnit::Generic => return number.to_string(),
        TimeUnit::Year | TimeUnit::Month => {
            let months = if unit.base == TimeUnit::Year { all * 12 } else { all };
            let (year, month) = (1970 + months.div_euclid(12), months.rem_euclid(12) + 1);
            return if unit.base == TimeUnit::Year { format!("{year:04}") } else { format!("{year:04}-{month:02}") };
        }
        TimeUnit::Week => (all * 604_800, 0, 0),
        TimeUnit::Day => (all * 86_400, 0, 0),
        TimeUnit::Hour => (all * 3600, 0, 0),
        TimeUnit::Minute => (all * 60, 0, 0),
        TimeUnit::Second => (all, 0, 0),
        TimeUnit::Milli => (all.div_euclid(1000), all.rem_euclid(1000), 3),
        TimeUnit::Micro => (all.div_euclid(1_000_000), all.rem_euclid(1_000_000), 6),
        TimeUnit::Nano => (all.div_euclid(1_000_000_000), all.rem_euclid(1_000_000_000), 9),
        TimeUnit::Pico => (all.div_euclid(10i128.pow(12)), all.rem_euclid(10i128.pow(12)), 12),
        TimeUnit::Femto => (all.div_euclid(10i128.pow(15)), all.rem_euclid(10i128.pow(15)), 15),
        TimeUnit::Atto => (all.div_euclid(10i128.pow(18)), all.rem_euclid(10i128.pow(18)), 18),
    };
    let days = i64::try_from(seconds.div_euclid(86_400)).ok().filter(|days| days.abs() < i64::MAX / 400);
    let Some(days) = days else { return format!("{number}{unit}") };
    let (year, month, day) = civil(days);
    let date = format!("{year:04}-{month:02}-{day:02}");
    let second = seconds.rem_euclid(86_400);
    let time = match unit.base {
        TimeUnit::Week | TimeUnit::Day => return date,
        TimeUnit::Hour => format!("{:02}", second / 3600),
        TimeUnit::Minute => format!("{:02}:{:02}", second / 3600, second / 60 % 60),
        _ => format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60),
    };
    if digits == 0 { format!("{date}T{time}") } else { format!("{date}T{time}.{fraction:0digits$}") }
}

/// Days from the year 1 to 1970.
const EPOCH: i64 = 719_162;

/// Formats ticks of 100 ns since the year 1, and minutes east of Greenwich, as ISO 8601.
fn date(ticks: i64, offset: i16) -> String {
    let seconds = ticks.div_euclid(10_000_000) - EPOCH * 86_400;
    let sign = if offset < 0 { '-' } else { '+' };
    let offset = offset.unsigned_abs();
    format!("{}{sign}{:02}:{:02}", instant(seconds, DateUnit::one(TimeUnit::Second)), offset / 60, offset % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Field, Record};

    fn text(dtype: DType, bytes: &[u8]) -> String {
        super::text(&dtype.into(), bytes)
    }

    fn value(dtype: DType, bytes: &[u8]) -> f64 {
        super::value(&dtype.into(), bytes)
    }

    #[test]
    fn texts_dates_and_records() {
        let of = |descr: &str| DType::of_descr(descr).unwrap().0;
        assert_eq!(text(of("|S4"), b"a\nb\0"), "a\u{fffd}b");
        assert_eq!(text(of("<U2"), &[0xe5, 0x65, 0, 0, 0, 0, 0, 0]), "日");
        assert_eq!(text(of("|V3"), &[1, 2, 0xff]), "0x0102ff");
        // numpy 2.4: str(np.datetime64(number, unit)).
        for (descr, number, expected) in [
            ("<M8[ns]", -1i64, "1969-12-31T23:59:59.999999999"),
            ("<M8[10ms]", 5, "1970-01-01T00:00:00.050"),
            ("<M8[M]", -13, "1968-12"),
            ("<M8[Y]", 54, "2024"),
            ("<M8[W]", 1, "1970-01-08"),
            ("<M8[h]", 25, "1970-01-02T01"),
            ("<M8[D]", 19_782, "2024-02-29"),
            ("<M8[s]", i64::MIN, "NaT"),
            ("<m8[25s]", 3, "3[25s]"),
        ] {
            assert_eq!(text(of(descr), &number.to_le_bytes()), expected, "{descr}");
        }
        assert!(value(of("<M8[s]"), &[0; 8]).is_nan());
        let fields =
            vec![Field::new("a", DType::I16), Field::of_shape("b", DType::F32, &[2]), Field::new("s", of("|S2"))];
        let record = Record::new(fields).unwrap().into();
        assert_eq!(super::text(&record, &[1, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, b'x', 0]), "(1, [1, 2], x)");
    }

    #[test]
    fn elements() {
        assert_eq!(text(DType::F32, &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(text(DType::F64, &1e300f64.to_le_bytes()), "1e300");
        assert_eq!(text(DType::U64, &u64::MAX.to_le_bytes()), "18446744073709551615");
        assert_eq!(text(DType::F16, &0x3555u16.to_le_bytes()), "0.33325195");
        assert_eq!(text(DType::F16, &0x8001u16.to_le_bytes()), "-5.9604645e-8");
        assert_eq!(text(DType::Bf16, &0x3fc0u16.to_le_bytes()), "1.5");
        assert_eq!(text(DType::Bool, &[1]), "true");
        assert_eq!(text(DType::F8E4M3Fn, &[0xb8]), "-1");
        let complex: Vec<u8> = [3f32, -4.5].iter().flat_map(|part| part.to_le_bytes()).collect();
        assert_eq!(text(DType::C64, &complex), "3-4.5i");
        assert_eq!(value(DType::C64, &[0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40]), 5.0);
        assert_eq!(text(DType::I8, &[0xff]), "-1");
        assert_eq!(text(DType::F32, &f32::NAN.to_le_bytes()), "NaN");
        assert_eq!(value(DType::I16, &[0xfe, 0xff]), -2.0);
    }

    #[test]
    fn dates() {
        // What .NET says of these ticks.
        assert_eq!(date(0, 0), "0001-01-01T00:00:00+00:00");
        assert_eq!(date(637_134_336_000_000_000, 60), "2020-01-01T00:00:00+01:00");
        assert_eq!(date(637_186_175_990_000_000, -330), "2020-02-29T23:59:59-05:30");
        assert_eq!(date(3_155_378_975_999_999_999, 0), "9999-12-31T23:59:59+00:00");
    }
}
