//! Types of single values: numbers, texts of one size, opaque bytes, dates. Records of them are in `record.rs`.

use std::{borrow::Cow, fmt, num::NonZeroU32};

use serde::{Serialize, Serializer};

use crate::limits;

/// The type of one value, under the short names that the formats share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "numpy's names, abbreviated")]
#[non_exhaustive]
pub enum DType {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    C64,
    C128,
    /// A complex number of two f16.
    C32,
    /// The 8-bit floats of ONNX, under its names. numpy has none of them: arrays show their bits.
    F8E4M3Fn,
    F8E5M2,
    F8E8M0Fnu,
    F8E4M3Fnuz,
    F8E5M2Fnuz,
    /// IDV's date with an offset: ticks of 100 ns since the year 1 (i64), then the offset in minutes (i16), packed.
    DateTimeOffset,
    /// A text or other bytes of this size, padded with NULs.
    Bytes(NonZeroU32),
    /// A text of so many characters of 4 bytes (UTF-32), padded with NULs.
    Utf32(NonZeroU32),
    /// Opaque bytes of this size.
    Void(NonZeroU32),
    /// A point in time: an i64 of this unit since 1970. The least one stands for none.
    Date(DateUnit),
    /// A span of time: an i64 of this unit. The least one stands for none.
    Span(DateUnit),
}

/// A unit of dates and spans, in numpy's terms: `count` times `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DateUnit {
    /// How many of the base unit.
    pub count: NonZeroU32,
    /// The base unit.
    pub base: TimeUnit,
}

/// A base unit of time. numpy's `generic`, a date without a unit, has no other meaning than its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TimeUnit {
    Generic,
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Milli,
    Micro,
    Nano,
    Pico,
    Femto,
    Atto,
}

/// numpy's letters of all base units but the generic one.
const UNITS: [(TimeUnit, &str); 13] = [
    (TimeUnit::Year, "Y"),
    (TimeUnit::Month, "M"),
    (TimeUnit::Week, "W"),
    (TimeUnit::Day, "D"),
    (TimeUnit::Hour, "h"),
    (TimeUnit::Minute, "m"),
    (TimeUnit::Second, "s"),
    (TimeUnit::Milli, "ms"),
    (TimeUnit::Micro, "us"),
    (TimeUnit::Nano, "ns"),
    (TimeUnit::Pico, "ps"),
    (TimeUnit::Femto, "fs"),
    (TimeUnit::Atto, "as"),
];

impl DateUnit {
    /// Returns one base unit.
    pub fn one(base: TimeUnit) -> Self {
        Self { count: NonZeroU32::MIN, base }
    }

    /// Returns the unit of a text such as `ns` or `25s`; an empty one is the generic unit.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text == "generic" {
            return Some(Self::one(TimeUnit::Generic));
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, letters) = text.split_at(digits);
        let count = if count.is_empty() { NonZeroU32::MIN } else { count.parse().ok()? };
        let (base, _) = UNITS.iter().find(|(_, known)| *known == letters)?;
        // numpy's counts are signed numbers of 32 bits.
        (count.get() <= i32::MAX as u32).then_some(Self { count, base: *base })
    }
}

/// Writes the unit as numpy does behind `M8` or `m8`: `[ns]`, `[25s]`, nothing for the generic one.
impl fmt::Display for DateUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, letters)) = UNITS.iter().find(|(base, _)| *base == self.base) else { return Ok(()) };
        match self.count.get() {
            1 => write!(f, "[{letters}]"),
            count => write!(f, "[{count}{letters}]"),
        }
    }
}

/// Returns year, month and day of a day that is counted from 1970-01-01, in the proleptic Gregorian calendar. Years are
/// counted from March, so that the leap day is the last of its year.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let from_march = days + 719_468;
    let era = from_march.div_euclid(146_097);
    let day_of_era = from_march.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + next, month, day)
}

impl DType {
    /// Bytes of one value; at least 1.
    pub fn size(self) -> u64 {
        match self {
            Self::Bytes(size) | Self::Void(size) => size.get().into(),
            Self::Utf32(characters) => 4 * u64::from(characters.get()),
            Self::Date(_) | Self::Span(_) => 8,
            Self::C128 => 16,
            Self::F64 | Self::I64 | Self::U64 | Self::C64 => 8,
            Self::F32 | Self::I32 | Self::U32 | Self::C32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F8E4M3Fn | Self::F8E5M2 | Self::F8E8M0Fnu | Self::F8E4M3Fnuz | Self::F8E5M2Fnuz => 1,
            Self::DateTimeOffset => 10,
        }
    }

    /// Returns the type of numbers with a name of numpy or, for `bfloat16`, of ml_dtypes.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int8" => Self::I8,
            "int16" => Self::I16,
            "int32" => Self::I32,
            "int64" => Self::I64,
            "uint8" => Self::U8,
            "uint16" => Self::U16,
            "uint32" => Self::U32,
            "uint64" => Self::U64,
            "float16" => Self::F16,
            "bfloat16" => Self::Bf16,
            "float32" => Self::F32,
            "float64" => Self::F64,
            _ => return None,
        })
    }

    /// The short name, as `container.json` gives it: numpy's for texts, opaque bytes and dates.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U64 => "u64",
            Self::U32 => "u32",
            Self::U16 => "u16",
            Self::U8 => "u8",
            Self::Bool => "bool",
            Self::C64 => "c64",
            Self::C128 => "c128",
            Self::C32 => "c32",
            Self::F8E4M3Fn => "f8_e4m3fn",
            Self::F8E5M2 => "f8_e5m2",
            Self::F8E8M0Fnu => "f8_e8m0fnu",
            Self::F8E4M3Fnuz => "f8_e4m3fnuz",
            Self::F8E5M2Fnuz => "f8_e5m2fnuz",
            Self::DateTimeOffset => "record",
            Self::Bytes(_) | Self::Utf32(_) | Self::Void(_) | Self::Date(_) | Self::Span(_) => return self.descr(),
        })
    }

    /// Returns numpy's `descr` (`docs/TREE.md`, section 2): a type string, or the list of a record's fields. numpy has
    /// none for bf16 and 8-bit floats; their bits are unsigned integers.
    pub fn descr(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::F64 => "<f8",
            Self::F32 => "<f4",
            Self::F16 => "<f2",
            Self::I64 => "<i8",
            Self::I32 => "<i4",
            Self::I16 => "<i2",
            Self::I8 => "|i1",
            Self::U64 => "<u8",
            Self::U32 => "<u4",
            Self::U16 | Self::Bf16 => "<u2",
            Self::U8 | Self::F8E4M3Fn | Self::F8E5M2 | Self::F8E8M0Fnu | Self::F8E4M3Fnuz | Self::F8E5M2Fnuz => "|u1",
            Self::Bool => "|b1",
            Self::C64 => "<c8",
            Self::C128 => "<c16",
            Self::C32 => "[('r', '<f2'), ('i', '<f2')]",
            Self::DateTimeOffset => "[('ticks', '<i8'), ('offset_minutes', '<i2')]",
            Self::Bytes(size) => return format!("|S{size}").into(),
            Self::Utf32(characters) => return format!("<U{characters}").into(),
            Self::Void(size) => return format!("|V{size}").into(),
            Self::Date(unit) => return format!("<M8{unit}").into(),
            Self::Span(unit) => return format!("<m8{unit}").into(),
        })
    }

    /// Returns the type of a type string of numpy, such as `<f8`, `|S4` or `>M8[ns]`, and whether it is big-endian.
    /// `None` for others, and for those of no bytes.
    pub fn of_descr(descr: &str) -> Option<(Self, bool)> {
        let (order, kind) = descr.split_at_checked(1)?;
        let is_big = match order {
            "<" | "|" => false,
            ">" => true,
            _ => return None,
        };
        let (letter, size) = kind.split_at_checked(1)?;
        let dtype = match (letter, size) {
            ("S" | "a", size) => Self::Bytes(size.parse().ok()?),
            ("U", size) => Self::Utf32(size.parse().ok()?),
            ("V", size) => Self::Void(size.parse().ok()?),
            ("M" | "m", unit) => {
                let unit = unit.strip_prefix('8')?;
                let unit = match unit {
                    "" => unit,
                    unit => unit.strip_prefix('[')?.strip_suffix(']')?,
                };
                let unit = DateUnit::parse(unit)?;
                if letter == "M" { Self::Date(unit) } else { Self::Span(unit) }
            }
            ("b", "1") => Self::Bool,
            ("i", "1") => Self::I8,
            ("i", "2") => Self::I16,
            ("i", "4") => Self::I32,
            ("i", "8") => Self::I64,
            ("u", "1") => Self::U8,
            ("u", "2") => Self::U16,
            ("u", "4") => Self::U32,
            ("u", "8") => Self::U64,
            ("f", "2") => Self::F16,
            ("f", "4") => Self::F32,
            ("f", "8") => Self::F64,
            ("c", "8") => Self::C64,
            ("c", "16") => Self::C128,
            _ => return None,
        };
        (dtype.size() <= limits::ELEMENT).then_some((dtype, is_big))
    }

    /// Whether a value is a number, or a truth value: what can be drawn and summed up.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Bytes(_) | Self::Utf32(_) | Self::Void(_) | Self::Date(_) | Self::Span(_))
    }

    /// Whether the elements are floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16) || self.small_float().is_some()
    }

    /// The type of the two numbers that a complex one is made of: the real part, then the imaginary one.
    pub fn parts(self) -> Option<Self> {
        match self {
            Self::C128 => Some(Self::F64),
            Self::C64 => Some(Self::F32),
            Self::C32 => Some(Self::F16),
            _ => None,
        }
    }

    /// How the bits of an 8-bit float are to be read.
    pub fn small_float(self) -> Option<SmallFloat> {
        let (mantissa, bias, special) = match self {
            Self::F8E4M3Fn => (3, 7, Special::NanOfOnes),
            Self::F8E5M2 => (2, 15, Special::Ieee),
            Self::F8E8M0Fnu => (0, 127, Special::Scale),
            Self::F8E4M3Fnuz => (3, 8, Special::NanOfSign),
            Self::F8E5M2Fnuz => (2, 16, Special::NanOfSign),
            _ => return None,
        };
        Some(SmallFloat { mantissa, bias, special })
    }
}

/// A kind of 8-bit float.
#[derive(Debug, Clone, Copy)]
pub struct SmallFloat {
    /// Bits of the mantissa; the exponent has all others but that of the sign.
    mantissa: u32,
    bias: i32,
    special: Special,
}

/// Which bits stand for no finite number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    /// The largest exponent: infinities and NaN.
    Ieee,
    /// All ones but for the sign: NaN. There are no infinities.
    NanOfOnes,
    /// The sign alone: NaN. There are no infinities and no negative zero.
    NanOfSign,
    /// No sign and no zero, all bits are the exponent; all ones: NaN.
    Scale,
}

impl SmallFloat {
    /// The number that some bits stand for; f32 has all of them.
    pub fn value(self, bits: u8) -> f32 {
        let Self { mantissa, bias, special } = self;
        if special == Special::Scale {
            return if bits == 0xff { f32::NAN } else { 2f32.powi(i32::from(bits) - bias) };
        }
        let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (i32::from((bits & 0x7f) >> mantissa), f32::from(bits & ((1 << mantissa) - 1)));
        let largest = 0x7f >> mantissa;
        match special {
            Special::Ieee if exponent == largest && fraction == 0.0 => return sign * f32::INFINITY,
            Special::Ieee if exponent == largest => return f32::NAN,
            Special::NanOfOnes if bits & 0x7f == 0x7f => return f32::NAN,
            Special::NanOfSign if bits == 0x80 => return f32::NAN,
            _ => {}
        }
        let unit = 2f32.powi(exponent.max(1) - bias - mantissa as i32);
        let leading = if exponent == 0 { 0.0 } else { (1u32 << mantissa) as f32 };
        sign * (leading + fraction) * unit
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_strings_are_those_of_numpy() {
        // numpy 2.4: np.dtype(…).str of each.
        for descr in
            ["<f8", "|u1", "|b1", "<c16", "|S5", "<U3", "|V3", "<M8[D]", "<M8[10ms]", "<m8[25s]", "<m8", "<M8[as]"]
        {
            let (dtype, is_big) = DType::of_descr(descr).unwrap();
            assert_eq!((&*dtype.descr(), is_big), (descr, false));
        }
        let (dtype, is_big) = DType::of_descr(">U3").unwrap();
        assert_eq!((&*dtype.descr(), dtype.size(), is_big), ("<U3", 12, true));
        for descr in
            ["", "<", "f8", "|S0", "|S", "|S-1", "<U4294967295", "<M8[0s]", "<M8[s", "<M8[x]", "|O", "<f16", "é"]
        {
            assert_eq!(DType::of_descr(descr), None, "{descr}");
        }
    }

    #[test]
    fn small_floats_are_those_of_ml_dtypes() {
        // ml_dtypes 0.6: np.uint8(bits).view(dtype).astype("f4") for these bits.
        const BITS: [u8; 8] = [0x00, 0x01, 0x3a, 0x7b, 0x7c, 0x7f, 0x80, 0xff];
        const NAN: f32 = f32::NAN;
        for (dtype, expected) in [
            (DType::F8E4M3Fn, [0.0, 0.001953125, 1.25, 352.0, 384.0, NAN, -0.0, NAN]),
            (DType::F8E5M2, [0.0, 1.5258789e-05, 0.75, 57344.0, f32::INFINITY, NAN, -0.0, NAN]),
            (DType::F8E8M0Fnu, [5.877472e-39, 1.1754944e-38, 1.6940659e-21, 0.0625, 0.125, 1.0, 2.0, NAN]),
            (DType::F8E4M3Fnuz, [0.0, 0.0009765625, 0.625, 176.0, 192.0, 240.0, NAN, -240.0]),
            (DType::F8E5M2Fnuz, [0.0, 7.6293945e-06, 0.375, 28672.0, 32768.0, 57344.0, NAN, -57344.0]),
        ] {
            let found = BITS.map(|bits| dtype.small_float().unwrap().value(bits));
            for (found, expected) in found.iter().zip(expected) {
                let is_same = found.to_bits() == f32::to_bits(expected) || found.is_nan() && expected.is_nan();
                assert!(is_same, "{dtype}: {found}, {expected}");
            }
        }
    }
}
