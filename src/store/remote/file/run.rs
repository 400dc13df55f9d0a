//! Consecutive bytes of an object: on their way from the server, and then in memory.

use std::{
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::{Condvar, Mutex};

use super::{
    super::object::FetchError,
    room::{Room, Space},
};

/// A run of bytes, filled from its front by one request. A reader waits for its own bytes only.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) range: Range<u64>,
    filling: Mutex<Filling>,
    /// Signalled when bytes came that a reader waits for, and when no more will come.
    came: Condvar,
    /// All bytes, once they are there.
    whole: OnceLock<Space>,
    /// Whether any of it was read, and whether it was read since eviction last passed it.
    pub(super) was_read: AtomicBool,
    pub(super) is_used: AtomicBool,
    pub(super) born: Instant,
    room: Room,
}

#[derive(Debug, Default)]
struct Filling {
    space: Space,
    /// The fewest bytes that a reader waits for. Bytes come in pieces of some KiB, and a reader wants up to 1 MiB, so
    /// it is not woken for each piece.
    awaited: Option<usize>,
    /// Why no more bytes will come.
    error: Option<FetchError>,
}

impl Run {
    /// A run to be filled. `room` counts its memory.
    pub(super) fn new(range: Range<u64>, mut room: Room) -> Self {
        Self {
            range,
            filling: Mutex::new(Filling { space: room.buffer(), ..Filling::default() }),
            came: Condvar::new(),
            whole: OnceLock::new(),
            was_read: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            born: Instant::now(),
            room,
        }
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Adds bytes up to the end of the run. Returns how many were taken.
    pub(super) fn push(&self, bytes: &[u8]) -> usize {
        if self.whole.get().is_some() {
            return 0;
        }
        let mut filling = self.filling.lock();
        let taken = bytes.len().min(self.len() - filling.space.bytes().len());
        filling.space.push(&bytes[..taken], self.len());
        let length = filling.space.bytes().len();
        if length == self.len() {
            let _ = self.whole.set(std::mem::take(&mut filling.space));
        }
        let wakes = filling.awaited.take_if(|awaited| *awaited <= length).is_some();
        drop(filling);
        if wakes {
            self.came.notify_all();
        }
        taken
    }

    /// Notes that no more bytes will come.
    pub(super) fn fail(&self, error: &FetchError) {
        if self.whole.get().is_none() {
            self.filling.lock().error.get_or_insert_with(|| error.clone());
            self.came.notify_all();
        }
    }

    /// Returns whether its request failed, so that a reader of these bytes has to request them again.
    pub(super) fn has_failed(&self) -> bool {
        self.whole.get().is_none() && self.filling.lock().error.is_some()
    }

    /// Returns all bytes, if they are there.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.whole.get().map(Space::bytes)
    }

    /// Returns whether no more bytes will come: all are there, or the request failed.
    pub(super) fn is_done(&self) -> bool {
        self.whole.get().is_some() || self.has_failed()
    }

    /// Returns whether all bytes before `end` are there.
    pub(super) fn is_ready(&self, end: u64) -> bool {
        self.whole.get().is_some() || self.filling.lock().space.bytes().len() as u64 >= end - self.range.start
    }

    /// Notes that a reader uses it, for eviction.
    pub(super) fn note_read(&self) {
        self.was_read.store(true, Relaxed);
        self.is_used.store(true, Relaxed);
    }

    /// Copies a part of it, from `offset` in the object on. Waits until the part has come.
    ///
    /// # Errors
    /// That of its request.
    pub(super) fn copy(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        self.note_read();
        let from = (offset - self.range.start) as usize;
        let part = from..from + out.len();
        if self.whole.get().is_none() {
            let mut filling = self.filling.lock();
            loop {
                if self.whole.get().is_some() {
                    break;
                }
                if let Some(bytes) = filling.space.bytes().get(part.clone()) {
                    out.copy_from_slice(bytes);
                    return Ok(());
                }
                if let Some(error) = &filling.error {
                    return Err(error.clone());
                }
                let awaited = filling.awaited.map_or(part.end, |awaited| awaited.min(part.end));
                filling.awaited = Some(awaited);
                self.came.wait(&mut filling);
            }
        }
        let bytes = self.whole().and_then(|bytes| bytes.get(part));
        out.copy_from_slice(bytes.unwrap_or_default());
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let part = std::mem::take(&mut self.filling.get_mut().space);
        self.room.give_back(self.whole.take().unwrap_or(part));
    }
}

/// The bytes of a complete run.
impl AsRef<[u8]> for Run {
    fn as_ref(&self) -> &[u8] {
        self.whole().unwrap_or_default()
    }
}
