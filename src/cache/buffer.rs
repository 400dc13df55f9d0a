//! Memory for decoded bytes, large ones straight from the operating system.
//!
//! The heap keeps freed memory for later, up to dozens of MiB a thread, which would not count against the budget. So large
//! buffers are maps of their own. Maps can also have large pages; filling those costs a tenth of the page faults.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut, MmapOptions, RemapOptions};

use super::budget::Reservation;
use crate::source::zeros;

/// Smallest buffer in bytes that gets a map of its own.
const LARGE: usize = 256 << 10;
/// Smallest allocation in bytes for which the heap uses a map of its own.
const HEAP: usize = 512 << 10;
/// Smallest buffer in bytes for which large pages are asked for.
const LARGE_PAGES: usize = 4 << 20;

/// Bytes, with the reservation that counts them.
#[derive(Debug, Default)]
pub struct Buffer {
    /// The bytes of a small one, without a map.
    heap: Vec<u8>,
    map: Option<MmapMut>,
    room: Option<Reservation>,
}

impl Buffer {
    /// Returns zeros.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn zeroed(size: usize) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        if size < LARGE_PAGES {
            // All of it is filled. The kernel gives all small pages at once in two thirds of the time of faults.
            options.populate();
        }
        if size >= LARGE
            && let Ok(map) = options.len(size).map_anon()
        {
            if size >= LARGE_PAGES {
                // Only a hint: without large pages it is slower.
                let _ = map.advise(Advice::HugePage);
            }
            return Ok(Self { heap: Vec::new(), map: Some(map), room: None });
        }
        zeros(size).map(Self::from)
    }

    /// Returns memory counted by a reservation, reused from an earlier buffer if possible. It may hold that buffer's
    /// bytes, so all of it must be written before any is shown.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn used(size: usize, room: Reservation) -> io::Result<Self> {
        let spare = if size >= LARGE { room.budget().take_spare(size) } else { None };
        let fitting = spare.and_then(|mut map| (map.len() == size || resize(&mut map, size)).then_some(map));
        match fitting {
            Some(map) => Ok(Self { heap: Vec::new(), map: Some(map), room: Some(room) }),
            None => Ok(Self::zeroed(size)?.with_room(room)),
        }
    }

    /// Returns these bytes with the reservation that counts them; it is given back with them.
    #[must_use]
    pub fn with_room(mut self, room: Reservation) -> Self {
        self.room = Some(room);
        self
    }

    /// Frees the memory and returns the reservation that counted it.
    pub(super) fn into_room(mut self) -> Option<Reservation> {
        let room = self.room.take();
        if let (Some(room), Some(map)) = (&room, self.map.take()) {
            room.budget().keep_spare(map, 0);
        }
        room
    }
}

/// Frees the memory before others get its room.
impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(room), Some(map)) = (&self.room, self.map.take()) {
            room.budget().keep_spare(map, room.bytes());
        }
    }
}

/// Resizes a map and returns whether that succeeded.
fn resize(map: &mut MmapMut, size: usize) -> bool {
    #[allow(unsafe_code, reason = "memory is this module's job")]
    // SAFETY: no reference into the map exists, because it is borrowed mutably; what is added is anonymous memory.
    unsafe { map.remap(size, RemapOptions::new().may_move(true)) }.is_ok()
}

/// Limits what the heap keeps of freed memory: two arenas instead of eight per core, maps for large allocations
/// whatever was freed before (except the HTTP client's buffers of 408 KiB, of which a request takes many), and at most
/// 1 MiB kept at the end of an arena. A long-lived process calls it before it starts threads.
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

/// Returns to the operating system what the heap has kept of small pieces. Called after much was freed.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code, reason = "memory is this module's job; the call has no conditions")]
    // SAFETY: glibc takes its own locks, and touches only what is free.
    let _ = unsafe { libc::malloc_trim(0) };
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { heap: bytes, map: None, room: None }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&self.heap)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or(&mut self.heap)
    }
}
