//! The messages of a folder in order: by time, then by their place (`docs/formats/mcap.md`, section 3).
//!
//! Chunks may overlap in time, and messages in a chunk are in any order. The chunks of a folder are grouped to segments
//! that do not overlap. The entries of a segment are read and sorted when they are needed, and kept in the cache. If
//! chunks that overlap have very many messages, they are divided at the times of sampled messages.

use std::{ops::Range, sync::Arc};

use super::{Core, Part, damaged, fault_of};
use crate::{
    cache::{BlockError, Buffer, Reservation},
    format::{Fields, recording::Entry},
    source::Memory,
    tree::{WorkingMemory, memory::with_memory},
    view::{Fault, ReadContext},
};

/// About the number of entries in a segment.
const SEGMENT: u64 = 1 << 16;

/// Bytes of an entry in the cache: time, offset, chunk, source.
const ENTRY: usize = 24;

/// The key that messages are ordered by: time and chunk.
type Place = (u64, u32);

/// Messages with consecutive rows.
#[derive(Debug)]
struct Segment {
    /// The row of the first.
    first: u64,
    /// Chunks in [`Order::chunks`].
    chunks: Range<usize>,
    /// If set, only messages from the first place on, and before the second.
    bounds: Option<(Place, Option<Place>)>,
}

/// The order of a folder's messages.
#[derive(Debug)]
pub(super) struct Order {
    /// Chunks, with the number of messages in each.
    chunks: Vec<(u32, u32)>,
    segments: Vec<Segment>,
    rows: u64,
    _room: Reservation,
}

/// Entries of a segment.
pub(super) struct Entries {
    buffer: Arc<Buffer>,
    /// The row of the first.
    pub(super) first: u64,
}

impl Entries {
    /// Returns an entry and its chunk.
    pub(super) fn get(&self, row: u64) -> Option<(Entry, u32)> {
        let at = usize::try_from(row.checked_sub(self.first)?).ok()?.checked_mul(ENTRY)?;
        let bytes = self.buffer.get(at..at.checked_add(ENTRY)?)?;
        let entry = Entry { time: bytes.u64(0)?, offset: bytes.u64(8)?, source: bytes.u32(20)? };
        Some((entry, bytes.u32(16)?))
    }

    /// Returns the row after the last.
    pub(super) fn end(&self) -> u64 {
        self.first + (self.buffer.len() / ENTRY) as u64
    }
}

impl Core {
    /// Passes on the entries of a folder in a chunk, in any order.
    pub(super) fn entries_in(
        &self,
        reader: &ReadContext,
        folder: u32,
        chunk: u32,
        each: &mut dyn FnMut(Entry),
    ) -> Result<(), Fault> {
        if self.layout.is_indexed(chunk) {
            return self.layout.entries(&*reader.source, chunk, folder, each).map_err(|error| fault_of(chunk, error));
        }
        let bytes = self.chunk(reader, chunk)?;
        bytes
            .with(reader, |bytes| self.layout.walk(bytes, folder, each))
            .map(drop)
            .map_err(|error| fault_of(chunk, error))
    }

    /// Returns the order of a folder's messages.
    pub(super) fn order(&self, reader: &ReadContext, folder: u32) -> Result<Arc<Order>, Fault> {
        let known = self.orders.lock().get(&folder).cloned();
        if let Some(order) = known {
            return Ok(order);
        }
        reader.may_work()?;
        let order = Arc::new(with_memory(&reader.cache, |memory| {
            memory.hold();
            self.make_order(reader, folder, memory)
        })?);
        Ok(self.orders.lock().entry(folder).or_insert(order).clone())
    }

    fn make_order(&self, reader: &ReadContext, folder: u32, memory: WorkingMemory<'_>) -> Result<Order, Fault> {
        let runs = self.recording.folders.get(folder as usize).map_or(&[][..], |folder| &folder.runs);
        memory.reserve(64 * runs.len() as u64)?;
        let mut spans = Vec::with_capacity(runs.len());
        for run in runs {
            let (mut first, mut last, mut count) = (u64::MAX, 0, 0u64);
            self.entries_in(reader, folder, run.chunk, &mut |entry| {
                (first, last, count) = (first.min(entry.time), last.max(entry.time), count + 1);
            })?;
            if count != u64::from(run.count) {
                return Err(damaged(run.chunk, "its index has changed"));
            }
            spans.push((first, run.chunk, last, run.count));
        }
        spans.sort_unstable();
        let chunks = spans.iter().map(|(_, chunk, _, count)| (*chunk, *count)).collect();
        let mut order = Order { chunks, segments: Vec::new(), rows: 0, _room: reader.cache.hold(0) };
        // Chunks that overlap form a group; several small groups form a segment.
        let (mut start, mut count, mut group, mut group_count) = (0, 0u64, 0, 0u64);
        let mut last: Option<Place> = None;
        for (number, (first, chunk, until, here)) in spans.iter().enumerate() {
            if last.is_some_and(|last| (*first, *chunk) > last) {
                if count > 0 && count + group_count > SEGMENT {
                    self.add_segments(reader, folder, &mut order, start..group, count, &memory)?;
                    (start, count) = (group, 0);
                }
                (count, group, group_count, last) = (count + group_count, number, 0, None);
            }
            let (time, highest) = last.unwrap_or((*until, *chunk));
            last = Some((time.max(*until), highest.max(*chunk)));
            group_count += u64::from(*here);
        }
        if count > 0 && count + group_count > SEGMENT {
            self.add_segments(reader, folder, &mut order, start..group, count, &memory)?;
            (start, count) = (group, 0);
        }
        self.add_segments(reader, folder, &mut order, start..spans.len(), count + group_count, &memory)?;
        let usage = 8 * order.chunks.len() + size_of::<Segment>() * order.segments.len();
        order._room = memory.keep(usage as u64)?;
        Ok(order)
    }

    /// Adds the messages of some chunks to the order, in several segments if there are very many.
    fn add_segments(
        &self,
        reader: &ReadContext,
        folder: u32,
        order: &mut Order,
        chunks: Range<usize>,
        count: u64,
        memory: &dyn Memory,
    ) -> Result<(), Fault> {
        let add = |order: &mut Order, bounds, count: u64| {
            if count > 0 {
                order.segments.push(Segment { first: order.rows, chunks: chunks.clone(), bounds });
                order.rows += count;
            }
        };
        if count <= 2 * SEGMENT {
            add(order, None, count);
            return Ok(());
        }
        let step = count.div_ceil(SEGMENT);
        memory.reserve(4 * SEGMENT * size_of::<Place>() as u64)?;
        let mut sample: Vec<Place> = Vec::new();
        let mut seen = 0u64;
        for (chunk, _) in &order.chunks[chunks.clone()] {
            self.entries_in(reader, folder, *chunk, &mut |entry| {
                if seen.is_multiple_of(step) {
                    sample.push((entry.time, *chunk));
                }
                seen += 1;
            })?;
        }
        sample.sort_unstable();
        let every = (SEGMENT / step).max(1) as usize;
        let mut cuts: Vec<Place> = vec![(0, 0)];
        cuts.extend(sample.iter().skip(every).step_by(every));
        cuts.dedup();
        let mut counts = vec![0u64; cuts.len()];
        for (chunk, _) in &order.chunks[chunks.clone()] {
            self.entries_in(reader, folder, *chunk, &mut |entry| {
                let segment = cuts.partition_point(|cut| *cut <= (entry.time, *chunk)).saturating_sub(1);
                counts[segment] += 1;
            })?;
        }
        for (number, count) in counts.into_iter().enumerate() {
            add(order, Some((cuts[number], cuts.get(number + 1).copied())), count);
        }
        Ok(())
    }

    /// Returns the entries of the segment that contains a row.
    pub(super) fn entries(&self, reader: &ReadContext, folder: u32, row: u64) -> Result<Entries, Fault> {
        let order = self.order(reader, folder)?;
        let number = order.segments.partition_point(|segment| segment.first <= row).saturating_sub(1);
        let Some(segment) = order.segments.get(number).filter(|_| row < order.rows) else {
            return Err(damaged(0, &format!("there is no message {row}")));
        };
        let end = order.segments.get(number + 1).map_or(order.rows, |next| next.first);
        let count = (end - segment.first) as usize;
        let key = Part::Entries.key(reader, folder, number as u64);
        let parts = reader.get_or_insert_with(key, || {
            let size = (count * ENTRY) as u64;
            // Chunks may be decoded meanwhile, so this memory is not free soon and others must not wait for it.
            let mut room = reader.cache.reserve(2 * size).map_err(BlockError::from)?;
            room.hold();
            let mut found: Vec<(u64, u32, u64, u32)> = Vec::with_capacity(count);
            for (chunk, _) in &order.chunks[segment.chunks.clone()] {
                let mut is_more = false;
                let each = &mut |entry: Entry| {
                    let place = (entry.time, *chunk);
                    let is_inside =
                        segment.bounds.is_none_or(|(from, to)| from <= place && to.is_none_or(|to| place < to));
                    if is_inside && found.len() < count {
                        found.push((entry.time, *chunk, entry.offset, entry.source));
                    } else if is_inside {
                        is_more = true;
                    }
                };
                self.entries_in(reader, folder, *chunk, each).map_err(|fault| fault.error)?;
                if is_more {
                    return Err(Arc::new(BlockError::Refused("its index has changed".into())));
                }
            }
            if found.len() != count {
                return Err(Arc::new(BlockError::Refused("its index has changed".into())));
            }
            found.sort_unstable();
            let mut buffer =
                Buffer::zeroed(size as usize).map_err(crate::source::SourceError::from).map_err(BlockError::from)?;
            for ((time, chunk, offset, source), out) in found.iter().zip(buffer.chunks_exact_mut(ENTRY)) {
                out[..8].copy_from_slice(&time.to_le_bytes());
                out[8..16].copy_from_slice(&offset.to_le_bytes());
                out[16..20].copy_from_slice(&chunk.to_le_bytes());
                out[20..].copy_from_slice(&source.to_le_bytes());
            }
            drop(found);
            room.shrink_to(size);
            Ok(vec![Arc::new(buffer.with_room(room))])
        });
        let parts = parts.map_err(|error| Fault { block: None, offset: 0, error })?;
        Ok(Entries { buffer: parts.into_iter().next().unwrap_or_default(), first: segment.first })
    }
}
