//! Converts stored elements to shown ones, which are little-endian and packed.

use std::ops::Range;

use crate::{
    format::hdf5::Order,
    limits,
    source::{Memory, zeros},
    tree::memory::WorkingMemory,
    view::{Fault, ReadContext, Rendered, View, grid::Turn},
};

/// How stored bytes become a shown value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Conversion {
    /// This many bytes are shown unchanged.
    Copy(u64),
    /// Units whose bytes are reversed: the size of a unit, and the number of units.
    Reverse(u64, u64),
    /// A boolean: a byte that is 0 or not.
    Bool,
    /// An integer that uses some bits of its bytes.
    Bits {
        /// Bytes.
        size: u8,
        order: Order,
        is_signed: bool,
        offset: u16,
        precision: u16,
    },
    /// A floating-point number whose parts have other places or sizes than those of numpy's types.
    Float(Parts),
    /// Members, with the place where each begins in the stored element. Holes are left out.
    Members(Box<[(u64, Self)]>),
    /// Several values of one kind: their number, the stored bytes of each, and the conversion of each.
    Each(u64, u64, Box<Self>),
}

/// Where the parts of a floating-point number are, and the bytes of the number that is shown: 4 or 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// Stored bytes, at most 8.
    pub(super) size: u8,
    pub(super) order: Order,
    pub(super) sign: u8,
    /// Place and number of bits.
    pub(super) exponent: (u8, u8),
    pub(super) mantissa: (u8, u8),
    pub(super) bias: u32,
    pub(super) shown: u8,
}

impl Parts {
    /// Returns the number of stored bytes.
    fn number(&self, stored: &[u8]) -> f64 {
        let bits = bits(stored.get(..self.size.into()).unwrap_or_default(), self.order);
        let field = |(place, size): (u8, u8)| bits >> place & ((1 << size) - 1);
        let (exponent, mantissa) = (field(self.exponent), field(self.mantissa));
        let sign = bits >> self.sign << 63;
        let fraction = mantissa as f64 / (1u64 << self.mantissa.1) as f64;
        let size = if exponent == (1 << self.exponent.1) - 1 {
            if mantissa == 0 { f64::INFINITY } else { f64::NAN }
        } else if exponent == 0 {
            fraction * 2f64.powi(1 - self.bias as i32)
        } else {
            (1.0 + fraction) * 2f64.powi(exponent as i32 - self.bias as i32)
        };
        f64::from_bits(size.to_bits() | sign)
    }
}

/// Returns up to 8 bytes as a number.
fn bits(bytes: &[u8], order: Order) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match order {
        Order::Little => bytes.iter().rev().fold(0, add),
        Order::Big => bytes.iter().fold(0, add),
    }
}

impl Conversion {
    /// Returns the bytes of the shown value.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Copy(size) => *size,
            Self::Reverse(unit, count) => unit.saturating_mul(*count),
            Self::Bool => 1,
            Self::Bits { size, .. } => (*size).into(),
            Self::Float(parts) => parts.shown.into(),
            Self::Members(members) => members.iter().fold(0, |size, (_, member)| size.saturating_add(member.size())),
            Self::Each(count, _, each) => count.saturating_mul(each.size()),
        }
    }

    /// Returns the conversion of `count` consecutive values of `stored` bytes.
    pub(super) fn repeated(self, count: u64, stored: u64) -> Self {
        match self {
            Self::Copy(size) if size == stored => Self::Copy(size.saturating_mul(count)),
            Self::Reverse(unit, each) if unit.saturating_mul(each) == stored => {
                Self::Reverse(unit, each.saturating_mul(count))
            }
            each => Self::Each(count, stored, Box::new(each)),
        }
    }

    /// Returns the change of byte order, if elements of `stored` bytes need nothing else.
    pub(super) fn turn(&self, stored: u64) -> Option<Turn> {
        if self.size() != stored {
            return None;
        }
        match self {
            Self::Copy(_) => Some(Turn::No),
            Self::Reverse(unit, _) => Some(Turn::Units(usize::try_from(*unit).ok()?)),
            Self::Members(members) => {
                let fields = members.iter().filter_map(|(at, member)| match member.turn(member.size()) {
                    Some(Turn::No) => None,
                    Some(turn) => {
                        let place = usize::try_from(*at).ok()?..usize::try_from(at + member.size()).ok()?;
                        Some(Some((place.clone(), place.len(), turn)))
                    }
                    None => Some(None),
                });
                let fields = fields.collect::<Option<Vec<_>>>()?;
                // Without holes, members are shown where they are stored.
                Some(if fields.is_empty() { Turn::No } else { Turn::Fields(fields) })
            }
            Self::Bool | Self::Bits { .. } | Self::Float(_) | Self::Each(..) => None,
        }
    }

    /// Converts stored bytes. `out` must have the size of the result.
    pub(super) fn apply(&self, stored: &[u8], out: &mut [u8]) {
        let part = |range: Range<u64>| stored.get(range.start as usize..range.end as usize).unwrap_or_default();
        match self {
            Self::Copy(size) => copy(part(0..*size), out),
            Self::Reverse(unit, count) => {
                copy(part(0..unit * count), out);
                out.chunks_exact_mut((*unit).max(1) as usize).for_each(<[u8]>::reverse);
            }
            Self::Bool => out.iter_mut().zip(stored).for_each(|(to, from)| *to = u8::from(*from != 0)),
            Self::Bits { size, order, is_signed, offset, precision } => {
                let number = bits(part(0..u64::from(*size)), *order);
                let unused = 64 - u32::from(*precision).min(64);
                let top = (number >> offset.min(&63)) << unused;
                let number = if *is_signed { ((top as i64) >> unused) as u64 } else { top >> unused };
                out.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
            }
            Self::Float(parts) => match (parts.number(stored), parts.shown) {
                (number, 4) => copy(&(number as f32).to_le_bytes(), out),
                (number, _) => copy(&number.to_le_bytes(), out),
            },
            Self::Members(members) => {
                let mut rest = out;
                for (at, member) in members {
                    let (here, after) = rest.split_at_mut((member.size() as usize).min(rest.len()));
                    member.apply(stored.get(*at as usize..).unwrap_or_default(), here);
                    rest = after;
                }
            }
            Self::Each(_, from, each) => {
                let (from, to) = ((*from).max(1) as usize, each.size().max(1) as usize);
                for (stored, out) in stored.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
                    each.apply(stored, out);
                }
            }
        }
    }
}

fn copy(from: &[u8], to: &mut [u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// Elements that are converted when they are read.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) stored: View,
    /// Bytes of a stored element, and of one that is shown.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) conversion: Conversion,
}

impl Rendered for Converted {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let (from, to) = (self.from.max(1), self.to.max(1));
        let at_once = (limits::PIECE as u64 / from.max(to)).max(1);
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        if at_once == 1 {
            // The file says how large an element is.
            memory.reserve(from.saturating_add(to))?;
        }
        let (mut at, mut rest) = (part.start, out);
        while at < part.end {
            let (first, skip) = (at / to, at % to);
            let count = (part.end - first * to).div_ceil(to).min(at_once);
            let stored = self.stored.copy_at(reader, first * from, count * from)?;
            let whole = skip == 0 && count * to <= rest.len() as u64;
            let length = if whole { count * to } else { (count * to - skip).min(rest.len() as u64) };
            let (here, after) = rest.split_at_mut(length as usize);
            let mut made = if whole { Vec::new() } else { zeros((count * to) as usize).map_err(io)? };
            let target: &mut [u8] = if whole { &mut *here } else { &mut made };
            for (stored, out) in stored.chunks_exact(from as usize).zip(target.chunks_exact_mut(to as usize)) {
                self.conversion.apply(stored, out);
            }
            if !whole {
                copy(made.get(skip as usize..).unwrap_or_default(), here);
            }
            (at, rest) = (at + length, after);
        }
        Ok(())
    }
}

fn io(error: std::io::Error) -> Fault {
    crate::source::SourceError::from(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_widened_with_their_sign() {
        let bits =
            |order, is_signed, offset, precision| Conversion::Bits { size: 2, order, is_signed, offset, precision };
        let made = |conversion: Conversion, stored: &[u8]| {
            let mut out = [0; 2];
            conversion.apply(stored, &mut out);
            i16::from_le_bytes(out)
        };
        assert_eq!(made(bits(Order::Little, true, 4, 8), &[0xf0, 0x0f]), -1);
        assert_eq!(made(bits(Order::Little, false, 4, 8), &[0xf0, 0x0f]), 255);
        assert_eq!(made(bits(Order::Big, true, 0, 12), &[0x07, 0xff]), 2047);
        assert_eq!(made(bits(Order::Big, true, 0, 12), &[0xf8, 0x00]), -2048);
    }

    #[test]
    fn members_lose_their_holes() {
        let members = Conversion::Members([(0, Conversion::Copy(1)), (4, Conversion::Reverse(2, 2))].into());
        let mut out = [0; 10];
        members.repeated(2, 8).apply(&[1, 0, 0, 0, 2, 3, 4, 5, 6, 0, 0, 0, 7, 8, 9, 10], &mut out);
        assert_eq!(out, [1, 3, 2, 5, 4, 6, 8, 7, 10, 9]);
    }
}
