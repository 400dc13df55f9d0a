//! Checksums that containers store.

use super::{CrcKind, DecodeError};

/// A kind of 32-bit checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// A cyclic redundancy check.
    Crc(CrcKind),
    /// Adler-32, as zlib has it.
    Adler32,
    /// Fletcher-32 of big-endian words of 16 bits, as HDF5 has it.
    Fletcher32,
}

impl ChecksumKind {
    /// Returns the name in `container.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc(kind) => kind.name(),
            Self::Adler32 => "adler32",
            Self::Fletcher32 => "fletcher32",
        }
    }

    /// Returns the checksum of these bytes.
    pub fn of(self, bytes: &[u8]) -> u32 {
        match self {
            Self::Crc(kind) => kind.of(bytes),
            Self::Adler32 => simd_adler32::adler32(&bytes),
            Self::Fletcher32 => fletcher32(bytes),
        }
    }

    /// Compares a stored checksum with that of the bytes.
    ///
    /// # Errors
    /// [`DecodeError::Checksum`] if they differ.
    pub fn check(self, stored: u32, bytes: &[u8]) -> Result<(), DecodeError> {
        let computed = self.of(bytes);
        // HDF5 before 1.6.3 wrote the bytes of each half in the wrong order. Newer versions read both orders.
        let is_right = computed == stored || self == Self::Fletcher32 && swap_halves(computed) == stored;
        if is_right { Ok(()) } else { Err(DecodeError::Checksum { kind: self.name(), stored, computed }) }
    }
}

fn swap_halves(sum: u32) -> u32 {
    (sum & 0x00ff_00ff) << 8 | sum >> 8 & 0x00ff_00ff
}

#[expect(clippy::cast_possible_truncation, reason = "the sums are folded to 16 bits")]
fn fletcher32(bytes: &[u8]) -> u32 {
    /// Words that are added up before the sums are folded. Their sums fit 64 bits, and they fit the processor's cache.
    const WORDS: usize = 4096;
    let (mut first, mut second) = (0u64, 0u64);
    for part in bytes.chunks(2 * WORDS) {
        let (words, rest) = part.as_chunks::<2>();
        let words = words.iter().map(|word| u64::from(u16::from_be_bytes(*word)));
        let rest = rest.iter().map(|byte| u64::from(*byte) << 8);
        for word in words.chain(rest) {
            first += word;
            second += first;
        }
        (first, second) = (fold(first), fold(second));
    }
    (second << 16 | first) as u32
}

/// Returns the value below 2^16 that is the same modulo 65535, and 0 only for 0.
fn fold(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // "123456789": the check values of the catalogue of CRC algorithms, and of RFC 1950.
        let known = [
            (ChecksumKind::Crc(CrcKind::Crc32c), 0xe306_9283),
            (ChecksumKind::Crc(CrcKind::Crc32), 0xcbf4_3926),
            (ChecksumKind::Adler32, 0x091e_01de),
        ];
        for (kind, sum) in known {
            assert_eq!(kind.of(b"123456789"), sum, "{}", kind.name());
            kind.check(sum, b"123456789").unwrap();
            assert!(kind.check(sum ^ 1, b"123456789").is_err());
        }
    }

    /// Values of numcodecs 0.16. Those of HDF5 are in `tests/golden/filters`.
    #[test]
    fn fletcher32_of_odd_and_long_data() {
        assert_eq!(ChecksumKind::Fletcher32.of(&[1, 0, 0, 0, 2, 0, 0, 0]), 0x0800_0300);
        assert_eq!(ChecksumKind::Fletcher32.of(&[]), 0);
        // One byte is the high half of a word.
        assert_eq!(ChecksumKind::Fletcher32.of(&[1]), 0x0100_0100);
        // Sums that are a multiple of 65535 are not 0.
        assert_eq!(ChecksumKind::Fletcher32.of(&[0xff; 2]), 0xffff_ffff);
        assert_eq!(ChecksumKind::Fletcher32.of(&[0xff; 100_000]), 0xffff_ffff);
        ChecksumKind::Fletcher32.check(0x0008_0003, &[1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    }
}
