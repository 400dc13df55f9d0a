//! HDF5's filter 5, n-bit: only the significant bits of elements are stored, one after the other.

use super::{DecodeError, bits::Bits, to_usize};

/// Most levels of nesting in the type of an element.
const DEPTH: u32 = 32;

/// How the elements of a chunk are packed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nbit {
    elements: u64,
    part: Part,
    /// Bits that are stored for an element.
    bits: u64,
}

/// An element or a part of it. `size` is its bytes when decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Part {
    size: u64,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    /// A number: `precision` bits are stored, above `offset` lower bits that are not.
    Number { is_big: bool, precision: u32, offset: u32 },
    /// All bits are stored.
    Bytes,
    /// As many of these parts as fit the size.
    Array(Box<Part>),
    /// Members, each with the byte where it begins.
    Compound(Vec<(u64, Part)>),
}

impl Nbit {
    /// Returns what the filter's parameters describe, without the first two (their number, and whether nothing is
    /// packed). `None` if they contradict themselves.
    pub fn new(parameters: &[u32]) -> Option<Self> {
        let (elements, rest) = parameters.split_first()?;
        let part = Part::parse(&mut { rest }, DEPTH)?;
        let bits = part.bits()?;
        (bits > 0).then_some(Self { elements: (*elements).into(), part, bits })
    }

    /// Returns how many bytes come out.
    pub(super) fn size(&self) -> u64 {
        self.elements.saturating_mul(self.part.size)
    }

    /// Returns the most bytes that `stored` bytes can decode to.
    pub(super) fn max_size(&self, stored: u64) -> u64 {
        let elements = stored.saturating_mul(8) / self.bits;
        elements.min(self.elements).saturating_mul(self.part.size)
    }

    /// Unpacks to exactly the size of `out`.
    pub(super) fn decode_into(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let size = out.len() as u64;
        if self.size() != size {
            return Err(DecodeError::Size { got: self.size(), size });
        }
        out.fill(0);
        let mut bits = Bits::new(stored);
        let ends = || DecodeError::Corrupt { codec: "nbit", reason: "it ends in an element".into() };
        out.chunks_exact_mut(to_usize(self.part.size))
            .try_for_each(|out| self.part.decode(&mut bits, out))
            .ok_or_else(ends)
    }
}

impl Part {
    fn parse(parameters: &mut &[u32], depth: u32) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let mut next = || {
            let (first, rest) = parameters.split_first()?;
            *parameters = rest;
            Some(*first)
        };
        let (class, size) = (next()?, u64::from(next()?));
        if size == 0 {
            return None;
        }
        let kind = match class {
            1 => {
                let (order, precision, offset) = (next()?, next()?, next()?);
                let end = u64::from(precision) + u64::from(offset);
                if order > 1 || precision == 0 || end > 8 * size {
                    return None;
                }
                Kind::Number { is_big: order == 1, precision, offset }
            }
            2 => {
                let part = Self::parse(parameters, depth)?;
                if !size.is_multiple_of(part.size) {
                    return None;
                }
                Kind::Array(Box::new(part))
            }
            3 => {
                let count = next()?;
                let (mut members, mut used) = (Vec::new(), 0);
                for _ in 0..count {
                    let (offset, rest) = parameters.split_first()?;
                    *parameters = rest;
                    let (offset, part) = (u64::from(*offset), Self::parse(parameters, depth)?);
                    used += part.size;
                    if offset + part.size > size || used > size {
                        return None;
                    }
                    members.push((offset, part));
                }
                Kind::Compound(members)
            }
            4 => Kind::Bytes,
            _ => return None,
        };
        Some(Self { size, kind })
    }

    /// Returns how many bits are stored.
    fn bits(&self) -> Option<u64> {
        match &self.kind {
            Kind::Number { precision, .. } => Some((*precision).into()),
            Kind::Bytes => Some(8 * self.size),
            Kind::Array(part) => part.bits()?.checked_mul(self.size / part.size),
            Kind::Compound(members) => members.iter().try_fold(0u64, |sum, (_, part)| sum.checked_add(part.bits()?)),
        }
    }

    /// Unpacks into zeros.
    fn decode(&self, bits: &mut Bits, out: &mut [u8]) -> Option<()> {
        match &self.kind {
            Kind::Number { is_big, precision, offset } => number(*is_big, *precision, *offset, bits, out),
            #[expect(clippy::cast_possible_truncation, reason = "8 bits are taken")]
            Kind::Bytes => out.iter_mut().try_for_each(|byte| {
                *byte = bits.take(8)? as u8;
                Some(())
            }),
            Kind::Array(part) => out.chunks_exact_mut(to_usize(part.size)).try_for_each(|out| part.decode(bits, out)),
            Kind::Compound(members) => members.iter().try_for_each(|(offset, part)| {
                let (start, size) = (to_usize(*offset), to_usize(part.size));
                part.decode(bits, out.get_mut(start..start + size)?)
            }),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "at most 8 bytes, or 8 bits of each byte"
)]
fn number(is_big: bool, precision: u32, offset: u32, bits: &mut Bits, out: &mut [u8]) -> Option<()> {
    let size = out.len();
    if size <= 8 {
        let value = bits.take_wide(precision)? << offset;
        match is_big {
            true => out.copy_from_slice(&value.to_be_bytes()[8 - size..]),
            false => out.copy_from_slice(&value.to_le_bytes()[..size]),
        }
        return Some(());
    }
    let end = offset + precision;
    for byte in (offset / 8..end.div_ceil(8)).rev() {
        let (low, high) = (offset.max(8 * byte), end.min(8 * byte + 8));
        let value = (bits.take(high - low)? << (low - 8 * byte)) as u8;
        let at = if is_big { size - 1 - byte as usize } else { byte as usize };
        *out.get_mut(at)? = value;
    }
    Some(())
}
