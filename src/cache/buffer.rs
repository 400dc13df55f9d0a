//! Memory for decoded bytes, large ones straight from the operating system.
//!
//! What the heap gets back it keeps for later, up to dozens of MiB a thread; a budget that users set must mean what it
//! says. Large buffers are therefore maps of their own, which also lets them ask for large pages: filling those costs a
//! tenth of the page faults.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut};

use crate::source::zeros;

/// Buffers from this size on are maps of their own.
const LARGE: usize = 256 << 10;
/// From this size on, large pages are worth asking for.
const LARGE_PAGES: usize = 4 << 20;

/// Bytes, zero at first.
#[derive(Debug)]
pub struct Buffer(Kind);

#[derive(Debug)]
enum Kind {
    Heap(Vec<u8>),
    Map(MmapMut),
}

impl Buffer {
    /// Zeros.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn zeroed(size: usize) -> io::Result<Self> {
        if size >= LARGE
            && let Ok(map) = MmapMut::map_anon(size)
        {
            if size >= LARGE_PAGES {
                // As good as it goes: it works without.
                let _ = map.advise(Advice::HugePage);
            }
            return Ok(Self(Kind::Map(map)));
        }
        zeros(size).map(|bytes| Self(Kind::Heap(bytes)))
    }
}

/// Gives the operating system what the heap has kept of small pieces: after much was freed.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code, reason = "memory is this module's job; the call has no conditions")]
    // SAFETY: glibc takes its own locks, and touches only what is free.
    let _ = unsafe { libc::malloc_trim(0) };
}

impl Default for Buffer {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Heap(bytes))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Heap(bytes) => bytes,
            Kind::Map(map) => map,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Heap(bytes) => bytes,
            Kind::Map(map) => map,
        }
    }
}
