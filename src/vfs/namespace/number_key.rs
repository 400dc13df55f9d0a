//! Keyed hashes: inode numbers, and what containers and paths are known by.

use std::hash::Hasher;

use siphasher::{sip::SipHasher24, sip128::Hasher128, sip128::SipHasher24 as SipHasher24x128};

/// The secret key of inode numbers. Without it, nobody can make files whose numbers collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NumberKey([u8; 16]);

impl std::fmt::Debug for NumberKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NumberKey")
    }
}

impl NumberKey {
    /// Returns a key of these bytes. A key that is kept gives the same numbers in each mount.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns its bytes. Keep them where only their owner can read them.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns a new random key.
    pub fn random() -> Self {
        // The standard library seeds each hasher's keys from the operating system.
        use std::hash::{BuildHasher, RandomState};
        let [mut first, mut second] = [(); 2].map(|()| RandomState::new().build_hasher());
        first.write_u8(1);
        second.write_u8(2);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first.finish().to_le_bytes());
        bytes[8..].copy_from_slice(&second.finish().to_le_bytes());
        Self(bytes)
    }

    /// Returns the hash of consecutive parts.
    pub(crate) fn hash(&self, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish()
    }

    /// Does the same as [`Self::hash`], with 128 bits.
    pub(crate) fn hash128(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = SipHasher24x128::new_with_key(&self.0);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish128().as_u128()
    }
}
