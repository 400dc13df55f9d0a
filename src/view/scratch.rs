//! Memory in which replies are assembled. It is kept for the next replies, because fresh memory costs page faults,
//! which were a third of the time of a sequential read.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use parking_lot::Mutex;

use crate::source::zeros;

/// Most pieces of memory that are kept, and their smallest and largest size in bytes.
const SPARES: usize = 4;
const SMALLEST: usize = 64 << 10;
const LARGEST: usize = 1 << 20;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Bytes of one reply, initially zero.
#[derive(Clone)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// Returns `length` zeros.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn zeroed(length: usize) -> io::Result<Self> {
        match Self::spare(length) {
            Some(mut spare) => {
                spare.0.resize(length, 0);
                Ok(spare)
            }
            None => zeros(length).map(Self),
        }
    }

    /// Returns a copy of bytes, for a reply that is sent later.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::spare(bytes.len()).unwrap_or_else(|| Self(Vec::new()));
        copy.0.extend_from_slice(bytes);
        copy
    }

    /// Returns an empty one with memory for `length` bytes, if one is kept.
    fn spare(length: usize) -> Option<Self> {
        let is_kept = (SMALLEST..=LARGEST).contains(&length);
        let mut bytes = is_kept.then(|| SPARE.lock().pop()).flatten().filter(|bytes| bytes.capacity() >= length)?;
        bytes.clear();
        Some(Self(bytes))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if (SMALLEST..=LARGEST).contains(&self.0.capacity()) {
            let mut spare = SPARE.lock();
            if spare.len() < SPARES {
                spare.push(std::mem::take(&mut self.0));
            }
        }
    }
}

impl From<Vec<u8>> for Scratch {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for Scratch {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_reply_is_used_again_as_zeros() {
        for length in [LARGEST, SMALLEST, LARGEST / 2, LARGEST] {
            let mut scratch = Scratch::zeroed(length).unwrap();
            assert!(scratch.len() == length && scratch.iter().all(|byte| *byte == 0));
            scratch.fill(7);
            assert!(*Scratch::copy_of(&scratch) == *scratch);
        }
        assert!((1..=SPARES).contains(&SPARE.lock().len()));
    }
}
