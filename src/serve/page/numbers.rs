//! Elements of arrays as numbers and as text.

use crate::format::{DType, bf16, half};

/// Returns an element as a number: the ticks of a date with an offset, the magnitude of a complex number. Integers
/// above 2^53 are rounded.
pub(super) fn value(dtype: DType, bytes: &[u8]) -> f64 {
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
    }
}

/// Returns an element as text: exact, with as few digits as its type needs.
pub(super) fn text(dtype: DType, bytes: &[u8]) -> String {
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
            let imaginary = text(part, imaginary);
            let sign = if imaginary.starts_with('-') { "" } else { "+" };
            format!("{}{sign}{imaginary}i", text(part, real))
        }
        _ if dtype.is_float() => float(small(dtype, bytes)),
        _ => format!("{}", value(dtype, bytes)),
    }
}

/// The two parts of a complex number.
fn complex(dtype: DType, bytes: &[u8]) -> [f64; 2] {
    let part = dtype.parts().unwrap_or(DType::F64);
    let (real, imaginary) = bytes.split_at(bytes.len().min(part.size() as usize));
    [value(part, real), value(part, imaginary)]
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

/// Formats ticks of 100 ns since the year 1, and minutes east of Greenwich, as ISO 8601.
fn date(ticks: i64, offset: i16) -> String {
    let seconds = ticks.div_euclid(10_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let sign = if offset < 0 { '-' } else { '+' };
    let offset = offset.unsigned_abs();
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}{sign}{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60,
        offset / 60,
        offset % 60,
    )
}

/// Returns the date of a day counted from 0001-01-01 in the Gregorian calendar. Years are counted from March, so that
/// the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_march = days + 306;
    let era = from_march.div_euclid(146_097);
    let day_of_era = from_march.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

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
