//! The messages of a folder in order: by time, then by their place (`docs/formats/mcap.md`, section 3).
//!
//! Chunks may overlap in time, and messages in a chunk are in any order. The chunks of a folder are grouped to segments
//! that do not overlap: by the times that the file states for each chunk, and where these overlap by the chunks' indexes.
//! The entries of a segment are read and sorted when they are needed, and kept in the cache. If chunks that overlap have
//! very many messages, they are divided at the times of sampled messages.

use std::{ops::Range, sync::Arc};

use super::{Core, Part, damaged, fault_of};
use crate::{
    cache::{BlockError, Buffer, Reservation},
    format::{
        Fields, PartError,
        recording::{Entry, Parts, Run},
    },
    source::Memory,
    tree::{WorkingMemory, memory::with_memory},
    view::{Fault, ReadContext},
};

/// About the number of entries in a segment.
const SEGMENT: u64 = 1 << 16;

/// About the most segments of a folder whose chunks are small. A segment of one chunk is the quickest to read.
const SEGMENTS: usize = 4096;

/// Chunks whose indexes are asked for at once.
const TOGETHER: usize = 64;

/// Largest chunk in bytes that is asked for together with its index.
const WHOLE: u64 = 4 << 20;

/// Bytes of an entry in the cache: time, offset, chunk, source.
const ENTRY: usize = 24;

/// The key that messages are ordered by: time and chunk.
type Place = (u64, u32);

/// What will be read after the entries of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Then {
    /// The entries of the following rows, up to this one.
    Rows(u64),
    /// The message.
    Message,
}

/// Reads entries and passes them on.
type ReadEntries<'a> = dyn FnMut(&mut dyn FnMut(Entry)) -> Result<(), PartError> + 'a;

/// A chunk of a folder, and times between which its messages are.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: u64,
    last: u64,
    run: Run,
}

impl Span {
    /// Sorts spans, and passes on the groups whose times overlap.
    fn each_group(spans: &mut [Self], mut each: impl FnMut(&mut [Self]) -> Result<(), Fault>) -> Result<(), Fault> {
        spans.sort_unstable_by_key(|span| (span.first, span.run.chunk));
        let mut rest = spans;
        while let Some(first) = rest.first() {
            let mut last = (first.last, first.run.chunk);
            let more = rest.iter().skip(1).take_while(|span| {
                let overlaps = (span.first, span.run.chunk) <= last;
                last = (last.0.max(span.last), last.1.max(span.run.chunk));
                overlaps
            });
            let (group, after) = rest.split_at_mut(1 + more.count());
            each(group)?;
            rest = after;
        }
        Ok(())
    }
}

/// Messages with consecutive rows.
#[derive(Debug)]
struct Segment {
    /// The row of the first.
    first: u64,
    /// Chunks in [`Order::runs`].
    chunks: Range<usize>,
    /// If set, only messages from the first place on, and before the second.
    bounds: Option<(Place, Option<Place>)>,
}

/// The order of a folder's messages.
#[derive(Debug)]
pub(super) struct Order {
    /// Chunks, with the number of messages in each.
    runs: Vec<Run>,
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

impl Order {
    /// Returns the chunks in a part of the list.
    fn chunks_in(&self, part: Range<usize>) -> impl Iterator<Item = u32> {
        self.runs.get(part).unwrap_or_default().iter().map(|run| run.chunk)
    }
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
    /// Passes the entries of a folder in a chunk, in any order, to a new value, and returns it. If the chunk's index is not
    /// sound, or has not the messages that the file states, the chunk is decoded.
    fn entries_in<T>(
        &self,
        reader: &ReadContext,
        folder: u32,
        run: Run,
        new: impl Fn() -> T,
        mut take: impl FnMut(&mut T, Entry),
    ) -> Result<T, Fault> {
        let Run { chunk, count } = run;
        let is_indexed = self.layout.is_indexed(chunk);
        let times = self.layout.times(chunk);
        let mut found = |read: &mut ReadEntries<'_>| {
            let (mut made, mut seen, mut are_inside) = (new(), 0, true);
            read(&mut |entry| {
                seen += 1;
                are_inside &= times.is_none_or(|(first, last)| (first..=last).contains(&entry.time));
                if seen <= count && are_inside {
                    take(&mut made, entry);
                }
            })?;
            Ok((seen == count && are_inside).then_some(made))
        };
        if is_indexed {
            match found(&mut |each| self.layout.entries(&*reader.source, chunk, folder, each)) {
                Ok(Some(made)) => return Ok(made),
                Ok(None) | Err(PartError::Damaged(_)) => {}
                Err(error) => return Err(fault_of(chunk, error)),
            }
        }
        let bytes = self.chunk(reader, chunk)?;
        let walked = bytes.with(reader, |bytes| found(&mut |each| self.layout.walk(bytes, folder, each).map(drop)));
        walked.map_err(|error| fault_of(chunk, error))?.ok_or_else(|| {
            damaged(chunk, &format!("it has not the {count} messages, or not the times, that the file states"))
        })
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
            // Unknown times overlap with all others, so they are measured.
            let (first, last) = self.layout.times(run.chunk).unwrap_or((0, u64::MAX));
            spans.push(Span { first, last, run: *run });
        }
        let mut order = Order { runs: Vec::new(), segments: Vec::new(), rows: 0, _room: reader.cache.hold(0) };
        let most = runs.len().div_ceil(SEGMENTS);
        // Several small groups form a segment.
        let (mut start, mut count) = (0, 0);
        let mut add = |order: &mut Order, group: &[Span]| {
            let here = group.iter().map(|span| u64::from(span.run.count)).sum::<u64>();
            let end = order.runs.len();
            if count > 0 && (count + here > SEGMENT || end - start >= most) {
                self.add_segments(reader, folder, order, start..end, count, &memory)?;
                (start, count) = (end, 0);
            }
            order.runs.extend(group.iter().map(|span| span.run));
            count += here;
            Ok(())
        };
        Span::each_group(&mut spans, |group| {
            if let [_] = group {
                return add(&mut order, group);
            }
            self.measure(reader, folder, group)?;
            Span::each_group(group, |group| add(&mut order, group))
        })?;
        let end = order.runs.len();
        self.add_segments(reader, folder, &mut order, start..end, count, &memory)?;
        let usage = size_of::<Run>() * order.runs.len() + size_of::<Segment>() * order.segments.len();
        order._room = memory.keep(usage as u64)?;
        Ok(order)
    }

    /// Finds the times of the first and last message of each chunk, by its entries.
    fn measure(&self, reader: &ReadContext, folder: u32, spans: &mut [Span]) -> Result<(), Fault> {
        for some in spans.chunks_mut(TOGETHER) {
            self.announce(reader, some.iter().map(|span| span.run.chunk));
            for span in some {
                let none = || (u64::MAX, 0);
                (span.first, span.last) = self.entries_in(reader, folder, span.run, none, |(first, last), entry| {
                    (*first, *last) = ((*first).min(entry.time), (*last).max(entry.time));
                })?;
            }
        }
        Ok(())
    }

    /// Has the indexes of some chunks fetched.
    fn announce(&self, reader: &ReadContext, chunks: impl Iterator<Item = u32>) {
        let indexes = chunks.map(|chunk| self.layout.parts(chunk).index).filter(|index| !index.is_empty());
        reader.source.prefetch_small(indexes.collect());
    }

    /// Has what will be read from a segment on fetched.
    fn announce_from(&self, reader: &ReadContext, order: &Order, number: usize, then: Then) {
        let chunks = order.segments.get(number).map_or(0..0, |segment| segment.chunks.clone());
        match (then, order.runs.get(chunks.clone())) {
            (Then::Message, Some([run])) => {
                let Parts { index, whole } = self.layout.parts(run.chunk);
                let is_short = whole.end - whole.start <= WHOLE && !whole.is_empty();
                reader.source.prefetch(&[if is_short { whole } else { index }]);
            }
            (Then::Message, _) => self.announce(reader, order.chunks_in(chunks.start..chunks.end)),
            (Then::Rows(end), _) => {
                let segments = order.segments.iter().skip(number).take_while(|segment| segment.first < end);
                let until = segments.last().map_or(chunks.end, |segment| segment.chunks.end);
                self.announce(reader, order.chunks_in(chunks.start..until.min(chunks.start + TOGETHER)));
            }
        }
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
        let mut before = 0u64;
        for run in order.runs.get(chunks.clone()).unwrap_or_default() {
            let new = || (before, Vec::new());
            let (seen, here) = self.entries_in(reader, folder, *run, new, |(seen, here), entry| {
                if seen.is_multiple_of(step) {
                    here.push((entry.time, run.chunk));
                }
                *seen += 1;
            })?;
            before = seen;
            sample.extend(here);
        }
        sample.sort_unstable();
        let every = (SEGMENT / step).max(1) as usize;
        let mut cuts: Vec<Place> = vec![(0, 0)];
        cuts.extend(sample.iter().skip(every).step_by(every));
        cuts.dedup();
        let mut counts = vec![0u64; cuts.len()];
        for run in order.runs.get(chunks.clone()).unwrap_or_default() {
            counts = self.entries_in(
                reader,
                folder,
                *run,
                || counts.clone(),
                |counts, entry| {
                    let segment = cuts.partition_point(|cut| *cut <= (entry.time, run.chunk)).saturating_sub(1);
                    counts[segment] += 1;
                },
            )?;
        }
        for (number, count) in counts.into_iter().enumerate() {
            add(order, Some((cuts[number], cuts.get(number + 1).copied())), count);
        }
        Ok(())
    }

    /// Returns the first chunk of the segment after a row, if that begins before another row. Only of a known order.
    pub(super) fn chunk_after(&self, folder: u32, row: u64, end: u64) -> Option<u32> {
        let order = self.orders.lock().get(&folder).cloned()?;
        let next = order.segments.partition_point(|segment| segment.first <= row);
        let next = order.segments.get(next).filter(|segment| segment.first < end)?;
        order.runs.get(next.chunks.start).map(|run| run.chunk)
    }

    /// Returns the row after the last of the segment that contains a row.
    pub(super) fn end_of_segment(&self, reader: &ReadContext, folder: u32, row: u64) -> Result<u64, Fault> {
        let order = self.order(reader, folder)?;
        let next = order.segments.partition_point(|segment| segment.first <= row);
        Ok(order.segments.get(next).map_or(order.rows, |segment| segment.first))
    }

    /// Returns the entries of the segment that contains a row.
    pub(super) fn entries(&self, reader: &ReadContext, folder: u32, row: u64, then: Then) -> Result<Entries, Fault> {
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
            // Chunks may be decoded meanwhile, so this memory is not free soon and others must not wait for it. A list
            // may have twice the size of what is in it.
            let mut room = reader.cache.reserve(3 * size).map_err(BlockError::from)?;
            room.hold();
            self.announce_from(reader, &order, number, then);
            let mut found: Vec<(u64, u32, u64, u32)> = Vec::with_capacity(count);
            for Run { chunk, count: stated } in order.runs.get(segment.chunks.clone()).unwrap_or_default() {
                let left = count - found.len().min(count);
                let take = |here: &mut Vec<_>, entry: Entry| {
                    let place = (entry.time, *chunk);
                    let is_inside =
                        segment.bounds.is_none_or(|(from, to)| from <= place && to.is_none_or(|to| place < to));
                    // One more than there may be shows that there are too many.
                    if is_inside && here.len() <= left {
                        here.push((entry.time, *chunk, entry.offset, entry.source));
                    }
                };
                let run = Run { chunk: *chunk, count: *stated };
                let here = self.entries_in(reader, folder, run, Vec::new, take).map_err(|fault| fault.error)?;
                if here.len() > left {
                    return Err(Arc::new(BlockError::Refused("its index has changed".into())));
                }
                found.extend(here);
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
        })?;
        Ok(Entries { buffer: parts.into_iter().next().unwrap_or_default(), first: segment.first })
    }
}
