//! HDF5's filter 6, scale-offset: the least value of a chunk, then the distance of each element from it, in as few bits
//! as the greatest distance needs. Floats are first multiplied by a power of ten and rounded.

use super::{DecodeError, bits::Bits};

/// Bytes before the distances: the bits of a distance, the size of the least value, the least value, and a gap.
const HEAD: usize = 21;

/// How the elements of a chunk are packed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScaleOffset {
    /// Floats were multiplied by 10 to this power. `None` for integers.
    scale: Option<i32>,
    elements: u32,
    /// Bytes of an element.
    width: u32,
    is_big: bool,
    /// The value that a distance of all ones stands for.
    fill: Option<u64>,
}

fn bad(reason: impl ToString) -> DecodeError {
    DecodeError::Corrupt { codec: "scaleoffset", reason: reason.to_string() }
}

impl ScaleOffset {
    /// Returns what the filter's parameters describe. `None` for elements that the filter does not support, or numbers
    /// that contradict each other.
    pub fn new(parameters: &[u32]) -> Option<Self> {
        let &[kind, factor, elements, class, width, _sign, order, has_fill, ref fill @ ..] = parameters else {
            return None;
        };
        let scale = match (kind, class) {
            (0, 1) if matches!(width, 4 | 8) => Some(factor as i32),
            (2, 0) if matches!(width, 1 | 2 | 4 | 8) => None,
            _ => return None,
        };
        let word = |at| fill.get(at).copied().map_or(0, u64::from);
        let fill = (has_fill == 1).then(|| (word(0) | word(1) << 32) & mask(8 * width));
        (order <= 1 && has_fill <= 1).then_some(Self { scale, elements, width, is_big: order == 1, fill })
    }

    /// Returns how many bytes come out.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.elements) * u64::from(self.width)
    }

    /// Unpacks to exactly the size of `out`.
    pub(super) fn decode_into(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let size = out.len() as u64;
        if self.size() != size {
            return Err(DecodeError::Size { got: self.size(), size });
        }
        let Some((head, packed)) = stored.split_first_chunk::<HEAD>() else { return Err(bad("it ends in its head")) };
        let [a, b, c, d, length, rest @ ..] = *head;
        let bits = u32::from_le_bytes([a, b, c, d]);
        if bits > 8 * self.width {
            return Err(bad(format!("{bits} bits of {} bytes are stored", self.width)));
        }
        let least = rest.first_chunk().copied().map_or(0, u64::from_le_bytes) & mask(8 * u32::from(length.min(8)));
        if bits == 8 * self.width {
            let plain = packed.get(..out.len()).ok_or_else(|| bad("it ends in an element"))?;
            out.copy_from_slice(plain);
            if self.is_big {
                // They are little-endian whatever the type says.
                out.chunks_exact_mut(self.width as usize).for_each(<[u8]>::reverse);
            }
            return Ok(());
        }
        match self.width {
            1 => self.unpack::<1>(packed, bits, least, out),
            2 => self.unpack::<2>(packed, bits, least, out),
            4 => self.unpack::<4>(packed, bits, least, out),
            _ => self.unpack::<8>(packed, bits, least, out),
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "numbers have N bytes, at most 8")]
    fn unpack<const N: usize>(&self, packed: &[u8], bits: u32, least: u64, out: &mut [u8]) -> Result<(), DecodeError> {
        // A distance of all ones stands for the fill value.
        let ones = self.fill.map(|_| mask(bits));
        let fill = self.fill.unwrap_or_default();
        let scale = self.scale.unwrap_or_default();
        let (scale_f32, scale_f64) = (10f32.powf(scale as f32), 10f64.powf(scale.into()));
        let value = |distance: u64| match (self.scale, N) {
            _ if ones == Some(distance) => fill,
            (None, _) => distance.wrapping_add(least),
            // As the library calculates: in the type of the elements.
            (Some(_), 4) => u64::from((distance as i32 as f32 / scale_f32 + f32::from_bits(least as u32)).to_bits()),
            (Some(_), _) => (distance as i64 as f64 / scale_f64 + f64::from_bits(least)).to_bits(),
        };
        let mut stream = Bits::new(packed);
        for out in out.as_chunks_mut::<N>().0 {
            let distance = stream.take_wide(bits).ok_or_else(|| bad("it ends in an element"))?;
            out.copy_from_slice(&value(distance).to_le_bytes()[..N]);
            if self.is_big {
                out.reverse();
            }
        }
        Ok(())
    }
}

/// Returns ones in the lowest bits.
fn mask(bits: u32) -> u64 {
    1u64.checked_shl(bits).map_or(u64::MAX, |bit| bit - 1)
}
