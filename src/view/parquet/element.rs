//! Converts stored elements to Parquet values: their types, and their PLAIN bytes.

use super::compact::{Logical, Type};
use crate::format::{DType, DateUnit, TimeUnit, half};

/// Number of stored elements that are converted together.
pub(super) const TOGETHER: u64 = 8192;

/// Ticks of 100 ns from the year 1 to 1970.
const EPOCH: i64 = 621_355_968_000_000_000;

/// Ticks of a minute.
const MINUTE: i64 = 600_000_000;

/// Bytes of a record of ticks and minutes.
const ZONED: u64 = 10;

/// A stored element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// An element of an array.
    Of(DType),
    /// Ticks of 100 ns since the year 1, shown as microseconds since 1970.
    Ticks,
    /// Records of 10 bytes: ticks of local time since the year 1 (i64), and minutes by which it is ahead of UTC (i16).
    /// Shown as microseconds since 1970, UTC.
    Zoned,
    /// Nanoseconds since 1970, UTC.
    Nanos,
    /// 16 bytes.
    Bytes16,
    /// The same as bytes of any length, for lists: pandas cannot have lists of bytes of a fixed length.
    Prefixed16,
}

/// The type of a column's values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueType {
    pub(super) physical: Type,
    /// Bytes of a value, if its physical type does not give them.
    pub(super) length: Option<i32>,
    pub(super) logical: Option<Logical>,
}

impl ValueType {
    fn of(physical: Type, logical: Option<Logical>) -> Self {
        Self { physical, length: None, logical }
    }

    /// Returns the type of texts or other bytes.
    pub(super) fn of_bytes(is_text: bool) -> Self {
        Self::of(Type::Bytes, is_text.then_some(Logical::Text))
    }
}

impl Element {
    /// Returns the [`Self::Ticks`] of a number of microseconds since 1970.
    pub fn ticks(micros: i64) -> i64 {
        micros.saturating_mul(10).saturating_add(EPOCH)
    }

    /// Returns whether Parquet has dates of a unit. It has milliseconds, microseconds and nanoseconds.
    pub fn has_dates(unit: DateUnit) -> bool {
        let bases = [TimeUnit::Milli, TimeUnit::Micro, TimeUnit::Nano];
        bases.map(DateUnit::one).contains(&unit)
    }

    /// Returns the bytes of a stored element.
    pub(super) fn stored_width(self) -> u64 {
        match self {
            Self::Of(dtype) => dtype.size(),
            Self::Ticks | Self::Nanos => 8,
            Self::Zoned => ZONED,
            Self::Bytes16 | Self::Prefixed16 => 16,
        }
    }

    /// Returns the element as lists have it.
    pub(super) fn in_lists(self) -> Self {
        if self == Self::Bytes16 { Self::Prefixed16 } else { self }
    }

    /// Returns whether a stored element is the smallest of its type; of records, whether their ticks are.
    pub(super) fn is_least(self, stored: &[u8]) -> bool {
        let number = if self == Self::Zoned { stored.get(..8).unwrap_or_default() } else { stored };
        number.split_last().is_some_and(|(last, rest)| *last == 0x80 && rest.iter().all(|byte| *byte == 0))
    }

    /// Returns whether eight values share a byte.
    pub(super) fn is_bit(self) -> bool {
        self == Self::Of(DType::Bool)
    }

    /// Returns the bytes of a value in a page; 1 for a bit, before it is packed.
    pub(super) fn width(self) -> u64 {
        match self {
            Self::Of(DType::Bool) => 1,
            Self::Of(DType::Void(size)) => size.get().into(),
            Self::Of(dtype) => dtype.size().max(4),
            Self::Ticks | Self::Zoned | Self::Nanos => 8,
            Self::Bytes16 => 16,
            Self::Prefixed16 => 20,
        }
    }

    /// Returns the bytes of `count` values in a page.
    pub(super) fn packed(self, count: u64) -> u64 {
        if self.is_bit() { count.div_ceil(8) } else { count.saturating_mul(self.width()) }
    }

    /// Returns whether values are the stored bytes.
    pub(super) fn is_copy(self) -> bool {
        match self {
            Self::Of(
                DType::I32
                | DType::U32
                | DType::I64
                | DType::U64
                | DType::F32
                | DType::F64
                | DType::Void(_)
                | DType::Date(_),
            )
            | Self::Nanos
            | Self::Bytes16 => true,
            Self::Of(_) | Self::Ticks | Self::Zoned | Self::Prefixed16 => false,
        }
    }

    pub(super) fn value_type(self) -> ValueType {
        let of = |physical| ValueType::of(physical, None);
        let integer = |physical, bits, is_signed| ValueType::of(physical, Some(Logical::Integer { bits, is_signed }));
        let time = |is_utc, unit| ValueType::of(Type::Int64, Some(Logical::Time { is_utc, unit }));
        match self {
            Self::Of(DType::F64) => of(Type::Double),
            Self::Of(DType::F32 | DType::F16 | DType::Bf16) => of(Type::Float),
            Self::Of(DType::I64) => of(Type::Int64),
            Self::Of(DType::I32) => of(Type::Int32),
            Self::Of(DType::I16) => integer(Type::Int32, 16, true),
            Self::Of(DType::I8) => integer(Type::Int32, 8, true),
            Self::Of(DType::U64) => integer(Type::Int64, 64, false),
            Self::Of(DType::U32) => integer(Type::Int32, 32, false),
            Self::Of(DType::U16) => integer(Type::Int32, 16, false),
            Self::Of(DType::U8) => integer(Type::Int32, 8, false),
            Self::Of(DType::Bool) => of(Type::Boolean),
            Self::Ticks => time(false, 2),
            Self::Zoned => time(true, 2),
            Self::Prefixed16 => ValueType::of_bytes(false),
            Self::Nanos => time(true, 3),
            Self::Of(DType::Date(unit)) => match unit.base {
                TimeUnit::Milli => time(false, 1),
                TimeUnit::Micro => time(false, 2),
                _ => time(false, 3),
            },
            Self::Bytes16 | Self::Of(_) => ValueType { length: Some(self.width() as i32), ..of(Type::FixedBytes) },
        }
    }

    /// Converts whole stored elements to values.
    pub(super) fn convert(self, stored: &[u8], out: &mut [u8]) {
        /// Converts each element of `N` bytes to one of `M` bytes.
        fn each<const N: usize, const M: usize>(stored: &[u8], out: &mut [u8], convert: impl Fn([u8; N]) -> [u8; M]) {
            for (from, to) in stored.as_chunks::<N>().0.iter().zip(out.as_chunks_mut::<M>().0) {
                *to = convert(*from);
            }
        }
        match self {
            Self::Of(DType::I8) => each(stored, out, |b| i32::from(i8::from_le_bytes(b)).to_le_bytes()),
            Self::Of(DType::U8) => each(stored, out, |[b]| [b, 0, 0, 0]),
            Self::Of(DType::I16) => each(stored, out, |b| i32::from(i16::from_le_bytes(b)).to_le_bytes()),
            Self::Of(DType::U16) => each(stored, out, |[a, b]| [a, b, 0, 0]),
            Self::Of(DType::F16) => each(stored, out, |b| half(u16::from_le_bytes(b)).to_le_bytes()),
            Self::Of(DType::Bf16) => each(stored, out, |[a, b]| [0, 0, a, b]),
            Self::Ticks => each(stored, out, |b| micros(i64::from_le_bytes(b), 0).to_le_bytes()),
            Self::Zoned => each::<{ ZONED as usize }, 8>(stored, out, |record| {
                let [ticks @ .., low, high] = record;
                micros(i64::from_le_bytes(ticks), i16::from_le_bytes([low, high])).to_le_bytes()
            }),
            Self::Prefixed16 => each::<16, 20>(stored, out, |bytes| {
                let mut value = [0; 20];
                value[0] = 16;
                value[4..].copy_from_slice(&bytes);
                value
            }),
            _ => out.copy_from_slice(stored),
        }
    }
}

/// Packs up to eight bytes, each 0 or not, into bits.
pub(super) fn packed(bytes: &[u8]) -> u8 {
    (0..8).zip(bytes).fold(0, |packed, (bit, byte)| packed | u8::from(*byte != 0) << bit)
}

/// Converts ticks since the year 1, at `minutes` ahead of UTC, to microseconds since 1970, rounded down.
fn micros(ticks: i64, minutes: i16) -> i64 {
    let since_1970 = i128::from(ticks) - i128::from(EPOCH) - i128::from(minutes) * i128::from(MINUTE);
    // A tenth of it always fits.
    since_1970.div_euclid(10) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_down() {
        assert_eq!(micros(EPOCH, 0), 0);
        assert_eq!(micros(EPOCH + 19, 0), 1);
        assert_eq!(micros(EPOCH - 1, 0), -1);
        assert_eq!(micros(0, 0), -62_135_596_800_000_000);
        // The whole range, as Python's integers have it.
        assert_eq!(micros(i64::MIN, 0), -984_472_800_485_477_581);
        assert_eq!(micros(i64::MIN, i16::MAX), -984_474_766_505_477_581);
        assert_eq!(micros(i64::MAX, i16::MIN), 860_203_572_965_477_580);
    }

    #[test]
    fn times_with_a_zone_are_shown_as_utc() {
        let utc = |ticks: i64, minutes: i16| {
            let stored = [&ticks.to_le_bytes()[..], &minutes.to_le_bytes()].concat();
            let mut out = [0; 8];
            Element::Zoned.convert(&stored, &mut out);
            assert_eq!(Element::Zoned.is_least(&stored), ticks == i64::MIN);
            i64::from_le_bytes(out)
        };
        // Two o'clock, two hours ahead of UTC, is midnight there.
        assert_eq!(utc(EPOCH + 2 * 60 * MINUTE, 120), 0);
        assert_eq!(utc(EPOCH, -30), 1_800_000_000);
    }

    #[test]
    fn integers_are_widened_with_their_sign() {
        let mut out = [0; 8];
        Element::Of(DType::I8).convert(&[0xff, 0x7f], &mut out);
        assert_eq!(out, [255, 255, 255, 255, 127, 0, 0, 0]);
        Element::Of(DType::U16).convert(&[0xff, 0xff, 1, 2], &mut out);
        assert_eq!(out, [255, 255, 0, 0, 1, 2, 0, 0]);
        Element::Of(DType::Bf16).convert(&[0x80, 0x3f, 0x80, 0xbf], &mut out);
        assert_eq!(out.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>(), [1.0, -1.0]);
    }
}
