//! Numbers stored as differences (numcodecs' `delta`).

use super::DecodeError;
use crate::float16::{half, to_half};

/// How a number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    /// What it is.
    pub kind: NumberKind,
    /// Bytes: 1, 2, 4 or 8; 2, 4 or 8 for a float.
    pub width: u8,
    /// Whether the highest byte comes first.
    pub is_big: bool,
}

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumberKind {
    /// An integer.
    Signed,
    /// An integer of 0 or more.
    Unsigned,
    /// IEEE 754.
    Float,
}

impl Number {
    pub(super) fn is_sound(self) -> bool {
        matches!(
            (self.kind, self.width),
            (NumberKind::Float, 2 | 4 | 8) | (NumberKind::Signed | NumberKind::Unsigned, 1 | 2 | 4 | 8)
        )
    }
}

/// Differences of one type, which add up to values of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delta {
    stored: Number,
    values: Number,
}

impl Delta {
    /// Returns the step that adds up differences; `None` for unknown types, or if one is a float and the other is not
    /// the same float.
    pub fn new(stored: Number, values: Number) -> Option<Self> {
        let is_float = |number: Number| (number.kind == NumberKind::Float).then_some(number.width);
        let is_sound = stored.is_sound() && values.is_sound() && is_float(stored) == is_float(values);
        is_sound.then_some(Self { stored, values })
    }

    /// States that the stored differences are big-endian.
    pub(super) fn set_big_endian(&mut self) {
        self.stored.is_big = self.stored.width > 1;
    }

    /// Returns how many bytes are stored for `size` decoded ones.
    pub(super) fn stored_size(self, size: u64) -> u64 {
        (size / u64::from(self.values.width)).saturating_mul(self.stored.width.into())
    }

    /// Returns how many bytes `stored` ones decode to.
    pub(super) fn size(self, stored: u64) -> u64 {
        (stored / u64::from(self.stored.width)).saturating_mul(self.values.width.into())
    }

    /// Adds up all differences.
    pub(super) fn decode_into(self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let Self { stored: from, values: to } = self;
        let (width, size) = (usize::from(from.width), self.size(stored.len() as u64));
        if size != out.len() as u64 || !stored.len().is_multiple_of(width) {
            return Err(DecodeError::Size { got: size, size: out.len() as u64 });
        }
        match (from.kind, from.width, to.width) {
            #[expect(clippy::cast_possible_truncation, reason = "the float is the low quarter")]
            (NumberKind::Float, 2, _) => {
                add(stored, out, from, to, |sum, next| to_half(half(sum as u16).add(half(next as u16)).into()).into())
            }
            #[expect(clippy::cast_possible_truncation, reason = "the float is the low half")]
            (NumberKind::Float, 4, _) => add(stored, out, from, to, |sum, next| {
                f32::from_bits(sum as u32).add(f32::from_bits(next as u32)).to_bits().into()
            }),
            (NumberKind::Float, ..) => {
                add(stored, out, from, to, |sum, next| f64::from_bits(sum).add(f64::from_bits(next)).to_bits());
            }
            _ => add(stored, out, from, to, u64::wrapping_add),
        }
        Ok(())
    }
}

use std::ops::Add as _;

fn add(stored: &[u8], out: &mut [u8], from: Number, to: Number, add: impl Fn(u64, u64) -> u64) {
    match (from.width, to.width) {
        (1, 1) => add_of::<1, 1>(stored, out, from, to, add),
        (2, 2) => add_of::<2, 2>(stored, out, from, to, add),
        (4, 4) => add_of::<4, 4>(stored, out, from, to, add),
        (8, 8) => add_of::<8, 8>(stored, out, from, to, add),
        (1, 2) => add_of::<1, 2>(stored, out, from, to, add),
        (1, 4) => add_of::<1, 4>(stored, out, from, to, add),
        (1, 8) => add_of::<1, 8>(stored, out, from, to, add),
        (2, 1) => add_of::<2, 1>(stored, out, from, to, add),
        (2, 4) => add_of::<2, 4>(stored, out, from, to, add),
        (2, 8) => add_of::<2, 8>(stored, out, from, to, add),
        (4, 1) => add_of::<4, 1>(stored, out, from, to, add),
        (4, 2) => add_of::<4, 2>(stored, out, from, to, add),
        (4, 8) => add_of::<4, 8>(stored, out, from, to, add),
        (8, 1) => add_of::<8, 1>(stored, out, from, to, add),
        (8, 2) => add_of::<8, 2>(stored, out, from, to, add),
        _ => add_of::<8, 4>(stored, out, from, to, add),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "FROM and TO are at most 8")]
fn add_of<const FROM: usize, const TO: usize>(
    stored: &[u8],
    out: &mut [u8],
    from: Number,
    to: Number,
    add: impl Fn(u64, u64) -> u64,
) {
    let mut sum = None;
    for (bytes, out) in stored.as_chunks::<FROM>().0.iter().zip(out.as_chunks_mut::<TO>().0) {
        let mut word = [0; 8];
        word[..FROM].copy_from_slice(bytes);
        if from.is_big {
            word[..FROM].reverse();
        }
        let mut next = u64::from_le_bytes(word);
        if from.kind == NumberKind::Signed {
            let shift = 64 - 8 * FROM as u32;
            next = ((next << shift) as i64 >> shift) as u64;
        }
        // The first one is taken as it is: 0 + -0 would turn -0 into 0.
        let value = sum.map_or(next, |sum| add(sum, next));
        sum = Some(value);
        out.copy_from_slice(&value.to_le_bytes()[..TO]);
        if to.is_big {
            out.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(kind: NumberKind, width: u8) -> Number {
        Number { kind, width, is_big: false }
    }

    #[test]
    fn sums_wrap_and_keep_their_sign() {
        let narrow = Delta::new(number(NumberKind::Signed, 1), number(NumberKind::Signed, 4)).unwrap();
        let mut out = [0; 12];
        narrow.decode_into(&[5, 0xff, 0x80], &mut out).unwrap();
        assert_eq!(out, *[5i32, 4, -124].map(i32::to_le_bytes).as_flattened());
        let bytes = Delta::new(number(NumberKind::Unsigned, 1), number(NumberKind::Unsigned, 1)).unwrap();
        let mut out = [0; 3];
        bytes.decode_into(&[200, 100, 255], &mut out).unwrap();
        assert_eq!(out, [200, 44, 43]);
        assert!(bytes.decode_into(&[200, 100], &mut out).is_err());
        let big = Number { is_big: true, ..number(NumberKind::Unsigned, 2) };
        let mut out = [0; 4];
        Delta::new(big, big).unwrap().decode_into(&[1, 0, 0, 255], &mut out).unwrap();
        assert_eq!(out, [1, 0, 1, 255]);
        assert!(Delta::new(number(NumberKind::Float, 4), number(NumberKind::Signed, 4)).is_none());
        assert!(Delta::new(number(NumberKind::Signed, 3), number(NumberKind::Signed, 4)).is_none());
    }
}
