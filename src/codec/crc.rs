//! CRCs of blocks, computed part by part.

use super::to_usize;

/// The CRC of a block's decoded bytes, as its container states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc {
    /// How it is computed.
    pub kind: CrcKind,
    /// The stored value.
    pub value: u32,
}

/// How a CRC is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrcKind {
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-32 as in zip, gzip and PNG files.
    Crc32,
}

impl Crc {
    /// Returns a CRC-32C with this value.
    pub fn crc32c(value: u32) -> Self {
        Self { kind: CrcKind::Crc32c, value }
    }

    /// Returns a CRC-32 with this value.
    pub fn crc32(value: u32) -> Self {
        Self { kind: CrcKind::Crc32, value }
    }
}

impl CrcKind {
    /// Returns the name in `container.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Crc32 => "crc32",
        }
    }

    /// Returns the CRC of these bytes.
    pub fn of(self, bytes: &[u8]) -> u32 {
        self.append(0, bytes)
    }

    /// Continues a CRC by the bytes that follow. The CRC of no bytes is 0.
    pub fn append(self, sum: u32, bytes: &[u8]) -> u32 {
        match self {
            Self::Crc32c => crc32c::crc32c_append(sum, bytes),
            Self::Crc32 => {
                let mut hasher = crc32fast::Hasher::new_with_initial(sum);
                hasher.update(bytes);
                hasher.finalize()
            }
        }
    }

    /// Continues a CRC by that of the `length` bytes that follow.
    pub fn combine(self, sum: u32, following: u32, length: u64) -> u32 {
        match self {
            Self::Crc32c => crc32c::crc32c_combine(sum, following, to_usize(length)),
            Self::Crc32 => {
                let mut hasher = crc32fast::Hasher::new_with_initial(sum);
                hasher.combine(&crc32fast::Hasher::new_with_initial_len(following, length));
                hasher.finalize()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_the_check_string_whole_and_in_parts() {
        // The check values of the catalogue of parametrised CRC algorithms.
        for (kind, value) in [(CrcKind::Crc32c, 0xe306_9283), (CrcKind::Crc32, 0xcbf4_3926)] {
            assert_eq!(kind.of(b"123456789"), value);
            assert_eq!(kind.of(b""), 0);
            for at in 0..=9 {
                let (front, back) = b"123456789".split_at(at);
                assert_eq!(kind.append(kind.of(front), back), value);
                assert_eq!(kind.combine(kind.of(front), kind.of(back), back.len() as u64), value);
            }
        }
    }
}
