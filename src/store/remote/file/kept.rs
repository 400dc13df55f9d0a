//! Bytes of objects on the local disk.
//!
//! They are kept in units of three kinds: whole blocks of 1 MiB, the front of an object, and granules of 64 KiB for
//! random readers. The key of a unit holds the object's store, key, entity tag and size, so bytes of one
//! state are never found under another.

use std::{
    io,
    ops::Range,
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{BLOCK, Blocks, FRONT, GRANULE, run::Run};
use crate::{
    cache::Buffer,
    disk::{Disk, Slice},
    store::remote::object::ObjectId,
};

/// Longest wait for a disk that is not on this machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// A unit by its range. Units of two kinds with equal ranges hold the same bytes.
pub(super) type Unit = Range<u64>;

/// Returns the units that hold the byte at `offset`, largest first.
pub(super) fn units(offset: u64, size: u64) -> impl Iterator<Item = Unit> {
    let front = (offset < FRONT).then(|| 0..FRONT.min(size));
    let mut units = vec![block(offset, size)];
    units.extend(front);
    units.push(aligned(offset, GRANULE, size));
    units.dedup();
    units.into_iter()
}

/// Returns the block that holds the byte at `offset`.
pub(super) fn block(offset: u64, size: u64) -> Unit {
    aligned(offset, BLOCK, size)
}

/// Returns the unit of a length that holds the byte at `offset`.
fn aligned(offset: u64, length: u64, size: u64) -> Unit {
    let start = offset / length * length;
    start..(start + length).min(size)
}

/// Returns the key that a unit is stored under.
pub(super) fn key(id: &ObjectId, unit: &Unit) -> Vec<u8> {
    let mut key = id.to_bytes();
    key.extend([unit.start, unit.end].map(u64::to_le_bytes).as_flattened());
    key
}

/// Returns whether the object's tag is the server's own. A time used instead of a tag may be the same for two states.
pub(super) fn tells_states_apart(id: &ObjectId) -> bool {
    !id.etag.is_empty() && !id.etag.starts_with("modified ")
}

impl Blocks {
    /// Returns the disk cache, if the object's tag tells its states apart for certain. A time does not.
    pub(super) fn disk_for(&self, id: &ObjectId) -> Option<&Arc<Disk>> {
        self.disk.as_ref().filter(|_| tells_states_apart(id))
    }

    /// Runs `task` on the disk: directly if the disk is local, and otherwise in another thread with a time limit,
    /// because the disk may not answer.
    fn with_disk<T: Send + 'static>(
        &self,
        disk: &Arc<Disk>,
        task: impl FnOnce(&Disk) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        if disk.is_resting() {
            return None;
        }
        if disk.is_local() {
            return task(disk);
        }
        let (answer, answered) = mpsc::sync_channel(1);
        let own = disk.clone();
        self.runtime.spawn_blocking(move || answer.send(task(&own)));
        answered.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            disk.rest("it does not answer");
            None
        })
    }

    /// Returns whether a unit is on disk. The disk begins to read it.
    pub(super) fn read_ahead(&self, id: &ObjectId, unit: &Unit) -> bool {
        let Some(disk) = self.disk_for(id) else { return false };
        let key = key(id, unit);
        self.with_disk(disk, move |disk| disk.read_ahead(&key).then_some(())).is_some()
    }

    /// Reads a range of a unit from the disk. Returns whether it was there and intact.
    pub(super) fn read_kept(&self, id: &ObjectId, unit: &Unit, from: u64, out: &mut [u8]) -> bool {
        let Some(disk) = self.disk_for(id) else { return false };
        let (key, length, from) = (key(id, unit), unit.end - unit.start, from - unit.start);
        let read = move |disk: &Disk, out: &mut [u8]| -> Option<()> {
            let blob = disk.get(&key).filter(|blob| blob.len() == length)?;
            blob.read_at(from, out).ok()
        };
        if disk.is_local() {
            return read(disk, out).is_some();
        }
        let wanted = out.len();
        let bytes = self.with_disk(disk, move |disk| {
            let mut bytes = crate::source::zeros(wanted).ok()?;
            read(disk, &mut bytes).map(|()| bytes)
        });
        bytes.inspect(|bytes| out.copy_from_slice(bytes)).is_some()
    }

    /// Queues a finished run for writing, in units. Returns the units that the disk accepted.
    pub(super) fn store(&self, id: &ObjectId, run: &Run) -> Vec<Unit> {
        let (Some(disk), Some(bytes)) = (self.disk_for(id), run.bytes.whole()) else { return Vec::new() };
        let range = &run.range;
        let whole = [block(range.start, id.size), 0..FRONT.min(id.size)];
        // They are equal for a small object.
        let mut units: Vec<Unit> = whole.into_iter().find(|unit| unit == range).into_iter().collect();
        if units.is_empty() {
            let starts = (range.start..range.end).step_by(GRANULE as usize);
            units.extend(starts.map(|start| start..(start + GRANULE).min(range.end)));
        }
        units.truncate((BLOCK / GRANULE) as usize);
        units.retain(|unit| {
            let part = (unit.start - range.start) as usize..(unit.end - range.start) as usize;
            disk.put(&key(id, unit), Arc::new(Slice(bytes.clone(), part)))
        });
        units
    }

    /// Queues a block for writing whose parts came with several requests.
    pub(super) fn store_block(&self, id: &ObjectId, unit: &Unit, parts: &[Run]) -> io::Result<bool> {
        let Some(disk) = self.disk_for(id) else { return Ok(false) };
        let size = unit.end - unit.start;
        let mut whole = Buffer::zeroed(size as usize)?.with_room(self.cache.take(size));
        let mut rest = &mut *whole;
        for part in parts {
            let bytes = part.bytes.whole().ok_or(io::ErrorKind::UnexpectedEof)?;
            let (here, after) = rest.split_at_mut_checked(bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            here.copy_from_slice(&bytes);
            rest = after;
        }
        Ok(rest.is_empty() && disk.put(&key(id, unit), Arc::new(whole)))
    }
}
