//! Numbers that were scaled and rounded: numcodecs' `fixedscaleoffset`.

use super::{DecodeError, Number, NumberKind};
use crate::float16::{half, to_half};

/// How numbers were scaled: the stored ones are `(value - offset) * scale`, rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scaled {
    stored: Number,
    values: Number,
    /// Bits of doubles, so that they can be compared.
    scale: u64,
    offset: u64,
}

impl Scaled {
    /// Returns the step from stored numbers to values; `None` for unknown types.
    pub fn new(stored: Number, values: Number, scale: f64, offset: f64) -> Option<Self> {
        let is_sound = stored.is_sound() && values.is_sound();
        is_sound.then_some(Self { stored, values, scale: scale.to_bits(), offset: offset.to_bits() })
    }

    /// States that the stored numbers are big-endian.
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

    /// Computes all values: integers in double precision, floats in their own, as numpy does.
    #[expect(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "as numpy casts; at most 8 bytes")]
    pub(super) fn decode_into(self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let (from, to) = (usize::from(self.stored.width), usize::from(self.values.width));
        let size = self.size(stored.len() as u64);
        if size != out.len() as u64 || !stored.len().is_multiple_of(from) {
            return Err(DecodeError::Size { got: size, size: out.len() as u64 });
        }
        let (scale, offset) = (f64::from_bits(self.scale), f64::from_bits(self.offset));
        for (bytes, out) in stored.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
            let mut word = [0; 8];
            word[..from].copy_from_slice(bytes);
            if self.stored.is_big {
                word[..from].reverse();
            }
            let bits = u64::from_le_bytes(word);
            let rounded = |number: f64| half(to_half(number));
            let value = match (self.stored.kind, from) {
                (NumberKind::Float, 2) => {
                    let divided = rounded((half(bits as u16) / rounded(scale)).into());
                    rounded((divided + rounded(offset)).into()).into()
                }
                (NumberKind::Float, 4) => f64::from(f32::from_bits(bits as u32) / scale as f32 + offset as f32),
                (NumberKind::Float, _) => f64::from_bits(bits) / scale + offset,
                (NumberKind::Unsigned, _) => bits as f64 / scale + offset,
                (NumberKind::Signed, _) => {
                    let shift = 64 - 8 * u32::from(self.stored.width);
                    ((bits << shift) as i64 >> shift) as f64 / scale + offset
                }
            };
            let bits = match (self.values.kind, to) {
                (NumberKind::Float, 2) => to_half(value).into(),
                (NumberKind::Float, 4) => (value as f32).to_bits().into(),
                (NumberKind::Float, _) => value.to_bits(),
                (NumberKind::Unsigned, _) => value as u64,
                (NumberKind::Signed, _) => value as i64 as u64,
            };
            out.copy_from_slice(&bits.to_le_bytes()[..to]);
            if self.values.is_big {
                out.reverse();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_numcodecs() {
        let number = |kind, width| Number { kind, width, is_big: false };
        let (i2, f8, f4) = (number(NumberKind::Signed, 2), number(NumberKind::Float, 8), number(NumberKind::Float, 4));
        // numcodecs 0.16: FixedScaleOffset(offset=10, scale=100, dtype="<f8", astype="<i2").decode of 0, 50, -100.
        let scaled = Scaled::new(i2, f8, 100.0, 10.0).unwrap();
        let mut out = [0; 24];
        scaled.decode_into([0i16, 50, -100].map(i16::to_le_bytes).as_flattened(), &mut out).unwrap();
        assert_eq!(out, *[10f64, 10.5, 9.0].map(f64::to_le_bytes).as_flattened());
        // FixedScaleOffset(offset=0.1, scale=3, dtype="<i2", astype=">f4").decode of 10: in f32, cut toward zero.
        let mut scaled = Scaled::new(f4, i2, 3.0, 0.1).unwrap();
        scaled.set_big_endian();
        let mut out = [0; 2];
        scaled.decode_into(&10f32.to_be_bytes(), &mut out).unwrap();
        assert_eq!(out, 3i16.to_le_bytes());
        assert!(scaled.decode_into(&[0; 5], &mut out).is_err());
    }
}
