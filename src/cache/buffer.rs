//! Memory for decoded bytes, large ones straight from the operating system.
//!
//! What the heap gets back it keeps for later, up to dozens of MiB a thread; a budget that users set must mean what it
//! says. Large buffers are therefore maps of their own, which also lets them ask for large pages: filling those costs a
//! tenth of the page faults.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut, RemapOptions};

use super::budget::Reservation;
use crate::source::zeros;

/// Buffers from this size on are maps of their own.
const LARGE: usize = 256 << 10;
/// What others ask the heap for is a map of its own from this size on.
const HEAP: usize = 512 << 10;
/// From this size on, large pages are worth asking for.
const LARGE_PAGES: usize = 4 << 20;

/// Bytes, with the reservation that they are counted by.
#[derive(Debug)]
pub struct Buffer {
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

    /// Memory that is counted by a reservation, of an earlier buffer if there is some: it may hold that one's bytes, and
    /// all of it is to be written before any is shown.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn used(size: usize, room: Reservation) -> io::Result<Self> {
        let spare = if size >= LARGE { room.budget().take_spare(size) } else { None };
        let fitting = spare.and_then(|mut map| (map.len() == size || resize(&mut map, size)).then_some(map));
        match fitting {
            Some(map) => Ok(Self { bytes: Kind::Map(map), room: Some(room) }),
            None => Ok(Self::zeroed(size)?.with_room(room)),
        }
    }

    /// These bytes, counted by a reservation, which is given back with them.
    #[must_use]
    pub fn with_room(mut self, room: Reservation) -> Self {
        self.room = Some(room);
        self
    }

    /// Gives up the memory, for the room that it was counted by.
    pub(super) fn into_room(mut self) -> Option<Reservation> {
        let room = self.room.take();
        if let (Some(room), Kind::Map(map)) = (&room, std::mem::take(&mut self.bytes)) {
            room.budget().keep_spare(map, 0);
        }
        room
    }
}

/// Memory is given up before its room is given to others.
impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(room), Kind::Map(map)) = (&self.room, std::mem::take(&mut self.bytes)) {
            room.budget().keep_spare(map, room.bytes());
        }
    }
}

impl Default for Kind {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

/// Gives a map another size. Whether that could be done.
fn resize(map: &mut MmapMut, size: usize) -> bool {
    #[allow(unsafe_code, reason = "memory is this module's job")]
    // SAFETY: no reference into the map exists, since it is borrowed mutably; what is added is anonymous memory.
    unsafe { map.remap(size, RemapOptions::new().may_move(true)) }.is_ok()
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
