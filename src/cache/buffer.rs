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

use super::budget::Reservation;
use crate::source::zeros;

/// Buffers from this size on are maps of their own.
const LARGE: usize = 256 << 10;
/// What others ask the heap for is a map of its own from this size on.
const HEAP: usize = 512 << 10;
/// From this size on, large pages are worth asking for.
const LARGE_PAGES: usize = 4 << 20;

/// Bytes, zero at first, with the reservation that they are counted by.
#[derive(Debug)]
pub struct Buffer {
    // In this order: memory is freed before its room is given to others.
    bytes: Kind,
    room: Option<Reservation>,
}

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
            return Ok(Self { bytes: Kind::Map(map), room: None });
        }
        zeros(size).map(Self::from)
    }

    /// These bytes, counted by a reservation, which is given back with them.
    #[must_use]
    pub fn with_room(self, room: Reservation) -> Self {
        Self { room: Some(room), ..self }
    }

    /// Frees the memory, for the room that it was counted by.
    pub(super) fn into_room(self) -> Option<Reservation> {
        self.room
    }
}

/// Keeps the heap from keeping what is freed: two arenas in place of eight a core, large pieces straight from the
/// operating system whatever was freed before (but not the HTTP client's buffers of 408 KiB, of which a request takes
/// many), and no more than a MiB kept at the end of an arena. To be called by a
/// process that lives long, before it starts threads.
pub fn limit_heap() {
    #[cfg(target_env = "gnu")]
    for (what, value) in
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, HEAP as i32), (libc::M_TRIM_THRESHOLD, 1 << 20)]
    {
        #[allow(unsafe_code, reason = "memory is this module's job; these settings have no conditions")]
        // SAFETY: glibc takes its own locks, and these values only choose where memory comes from.
        if unsafe { libc::mallopt(what, value) } == 0 {
            log::debug!("the heap would not take setting {what}");
        }
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
        Self { bytes: Kind::Heap(bytes), room: None }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Kind::Heap(bytes) => bytes,
            Kind::Map(map) => map,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Kind::Heap(bytes) => bytes,
            Kind::Map(map) => map,
        }
    }
}
