//! Reads numbers of any number of bits, the highest bit first.

/// The rest of a stream of bits.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next `count` bits, from the highest on. The bits after them may already be set from `bytes`.
    buffer: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, buffer: 0, count: 0 }
    }

    /// Fills the buffer with whole bytes until it has more than 56 bits, or all that are left.
    fn fill(&mut self) {
        if let Some(next) = self.bytes.first_chunk() {
            self.buffer |= u64::from_be_bytes(*next) >> self.count;
            let taken = (63 - self.count) / 8;
            self.bytes = self.bytes.get(taken as usize..).unwrap_or_default();
            self.count += 8 * taken;
            return;
        }
        while self.count <= 56
            && let Some((byte, rest)) = self.bytes.split_first()
        {
            self.buffer |= u64::from(*byte) << (56 - self.count);
            self.bytes = rest;
            self.count += 8;
        }
    }

    /// Returns the next number of up to 56 bits; `None` if there are not that many.
    pub(super) fn take(&mut self, bits: u32) -> Option<u64> {
        if bits == 0 {
            return Some(0);
        }
        if self.count < bits {
            self.fill();
            if self.count < bits {
                return None;
            }
        }
        let value = self.buffer >> (64 - bits);
        self.buffer <<= bits;
        self.count -= bits;
        Some(value)
    }

    /// Returns the next number of up to 64 bits; `None` if there are not that many.
    pub(super) fn take_wide(&mut self, bits: u32) -> Option<u64> {
        match bits {
            0..=56 => self.take(bits),
            _ => Some(self.take(bits - 32)? << 32 | self.take(32)?),
        }
    }

    /// Returns the number of zero bits before the next one bit, and takes them and the one bit; `None` if no one bit
    /// follows.
    pub(super) fn zeros(&mut self) -> Option<u64> {
        let mut zeros = 0;
        loop {
            if self.count == 0 {
                self.fill();
                if self.count == 0 {
                    return None;
                }
            }
            let here = self.buffer.leading_zeros();
            if here < self.count {
                self.buffer = self.buffer << here << 1;
                self.count -= here + 1;
                return Some(zeros + u64::from(here));
            }
            zeros += u64::from(self.count);
            (self.buffer, self.count) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_widths_are_those_bits() {
        let bytes: Vec<u8> = (0..200u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let bit = |at: usize| u64::from(bytes[at / 8] >> (7 - at % 8) & 1);
        for seed in 0..50u32 {
            let (mut bits, mut at, mut width) = (Bits::new(&bytes), 0, seed % 57);
            while at + width as usize <= 1600 {
                let expected = (at..at + width as usize).fold(0, |value, at| value << 1 | bit(at));
                assert_eq!(bits.take_wide(width), Some(expected), "{width} bits at {at}");
                at += width as usize;
                width = (width * 7 + seed + 3) % 65;
            }
            assert_eq!(bits.take_wide(64), None);
        }
        let mut bits = Bits::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff, 0]);
        assert_eq!((bits.zeros(), bits.zeros(), bits.take(7)), (Some(87), Some(0), Some(0x7f)));
        assert_eq!(bits.zeros(), None);
    }
}
