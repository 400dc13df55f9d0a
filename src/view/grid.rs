//! Arrays that are stored as a grid of chunks.
//!
//! A range of the array in C order touches whole rows of chunks. A *slab* is the chunks that contain the next rows of
//! the array: one step along the first axis on which a chunk has more than one element, and all steps along the later
//! axes. A reader that goes through the array decodes each chunk only once, if a slab fits the cache. While a slab is
//! read, a proportional part of the next one is decoded ahead. If a slab is larger than the cache, its first chunks stay
//! and the others make room for each other. Otherwise each read would evict the chunks that the next one needs first.

mod gather;
mod region;
mod strided;

pub use gather::Turn;
pub use strided::Strided;

use std::{
    fmt::Debug,
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use parking_lot::Mutex;

use self::gather::Axis;
pub(super) use self::gather::Gather;
use self::region::{Part, Region, regions};
use super::{Bytes, Fault, ReadContext, Rendered, Slice, View, pieces};
use crate::{
    cache::{BlockError, Key, Tag},
    codec::Codec,
    format::Block,
    limits, parallel,
    source::{Source, Wait},
};

/// Most chunks that are looked up before the first of them is decoded.
const BATCH: usize = 1024;

/// Bytes of small slabs whose chunks are decoded together. Starting and ending threads for less takes a part of the time.
/// Of more, a store would fetch too much ahead.
const TOGETHER: u64 = 16 << 20;

/// Largest distance in bytes between the end of a read and the beginning of the next one of a reader that goes through
/// the array. It is not 0 because readers that fetch ahead do not read in order.
const NEAR: u64 = 2 << 20;

/// Where the chunks of an array are.
pub trait Chunks: Debug + Send + Sync {
    /// Returns where the chunk at a place of the grid is. `at` has a number for each axis of the array.
    ///
    /// # Errors
    /// [`Fault`] if that cannot be found, or if a chunk is missing that should exist.
    fn chunk(&self, reader: &ReadContext, at: &[u64]) -> Result<Chunk, Fault>;

    /// Calls `found` with the answers of [`Self::chunk`] for places that one read touches, in their order. A format that
    /// finds many chunks by one index looks it up once for neighbours.
    ///
    /// # Errors
    /// As [`Self::chunk`], and those of `found`.
    fn chunks(
        &self,
        reader: &ReadContext,
        places: &mut dyn Iterator<Item = &[u64]>,
        found: &mut dyn FnMut(Chunk) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for at in places {
            found(self.chunk(reader, at)?)?;
        }
        Ok(())
    }

    /// Returns how many chunks should be looked up at once, if each takes a request.
    fn at_once(&self) -> usize {
        1
    }
}

/// Where a chunk is.
#[derive(Clone)]
pub enum Chunk {
    /// Nowhere: all of its elements have the fill value.
    Absent,
    /// In the container's file.
    Stored(Block),
    /// In another file.
    Elsewhere(Arc<dyn Source>, Block),
}

/// The description of an array, known without reading its chunks.
#[derive(Debug, Clone)]
pub struct Layout {
    /// A number that no other grid of the container has.
    pub number: u64,
    /// Elements along each axis, the outermost first.
    pub shape: Vec<u64>,
    /// Elements of a chunk along each axis. Chunks at the edge are stored whole.
    pub chunk: Vec<u64>,
    /// Bytes of an element.
    pub element: u64,
    /// The axes of a chunk in the order in which they are stored, the outermost first. `None` is C order.
    pub order: Option<Vec<usize>>,
    /// The change of byte order that makes elements little-endian.
    pub turn: Turn,
    /// An element of absent chunks, as it would be stored.
    pub fill: Vec<u8>,
}

/// An array of chunks, as a file shows it: little-endian, in C order.
///
/// It remembers how it was read, so a format should keep it with the container instead of making it for each read.
#[derive(Debug)]
pub struct Grid {
    layout: Layout,
    /// Axes of the array. An array without axes is stored with one axis of one element.
    rank: usize,
    /// Elements between neighbours along each axis in a chunk.
    strides: Vec<u64>,
    /// Bytes of a chunk.
    chunk_size: u64,
    /// The first axis on which a chunk has more than one element, or the last one.
    slab_axis: usize,
    /// Chunks of a slab.
    slab: u64,
    chunks: Box<dyn Chunks>,
    /// Where the last read ended.
    last: AtomicU64,
    /// Whether a reader goes through slabs that are larger than the cache.
    is_tight: AtomicBool,
    was_noticed: AtomicBool,
}

/// A chunk that a read touches, with the wanted elements.
struct Visit<'a> {
    at: Vec<u64>,
    wanted: Vec<Gather>,
    block: Option<(ReadContext, Block)>,
    grid: &'a Grid,
}

impl Grid {
    /// Returns the array.
    ///
    /// # Errors
    /// What is wrong with the layout: a size or product that no array has.
    pub fn new(mut layout: Layout, chunks: impl Chunks + 'static) -> Result<Arc<Self>, String> {
        let rank = layout.shape.len();
        let is_order = |order: &Vec<usize>| {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted.into_iter().eq(0..rank)
        };
        if rank > limits::DIMENSIONS || layout.chunk.len() != rank || !layout.order.as_ref().is_none_or(is_order) {
            return Err(format!("{rank} axes, and {} of a chunk", layout.chunk.len()));
        }
        let product = |axes: &[u64]| axes.iter().try_fold(layout.element, |size, axis| size.checked_mul(*axis));
        let size = product(&layout.shape).filter(|size| *size <= limits::LARGEST_BLOCK);
        let chunk_size = product(&layout.chunk).filter(|size| (1..=limits::CHUNK).contains(size));
        let (Some(_), Some(chunk_size)) = (size, chunk_size) else {
            return Err(format!("chunks {:?} of an array {:?} are too large, or empty", layout.chunk, layout.shape));
        };
        // If a read ends inside an element, the whole element is copied.
        if layout.element > limits::PIECE as u64 {
            return Err(format!("elements of {} bytes; at most {}", layout.element, limits::PIECE));
        }
        let element = usize::try_from(layout.element).unwrap_or(usize::MAX);
        if layout.fill.len() != element || !layout.turn.fits(element) {
            return Err(format!("a fill value of {} bytes, elements of {element}", layout.fill.len()));
        }
        if rank == 0 {
            (layout.shape, layout.chunk, layout.order) = (vec![1], vec![1], None);
        }
        let (own, rank) = (rank, layout.shape.len());
        let order = layout.order.clone().unwrap_or_else(|| (0..rank).collect());
        let (mut strides, mut stride) = (vec![0; rank], 1);
        for axis in order.into_iter().rev() {
            strides[axis] = stride;
            stride *= layout.chunk[axis];
        }
        let slab_axis = layout.chunk.iter().position(|axis| *axis > 1).unwrap_or(rank - 1);
        let counts = (slab_axis + 1..rank).map(|axis| layout.shape[axis].div_ceil(layout.chunk[axis]));
        let slab = counts.fold(1, u64::saturating_mul);
        Ok(Arc::new(Self {
            layout,
            rank: own,
            strides,
            chunk_size,
            slab_axis,
            slab,
            chunks: Box::new(chunks),
            last: AtomicU64::new(u64::MAX),
            is_tight: AtomicBool::new(false),
            was_noticed: AtomicBool::new(false),
        }))
    }

    /// Returns the bytes of all elements.
    pub fn view(self: &Arc<Self>) -> View {
        View::default().with(self.size(), super::Data::Rendered(self.clone()))
    }

    /// Returns the number of bytes of all elements.
    pub fn size(&self) -> u64 {
        self.layout.shape.iter().product::<u64>() * self.layout.element
    }

    /// Returns a chunk with all filters undone (`.raw/<name>/<i>.<j>.bin`); `None` if it is absent or outside the grid.
    ///
    /// # Errors
    /// As [`Chunks::chunk`].
    pub fn raw(self: &Arc<Self>, reader: &ReadContext, at: &[u64]) -> Result<Option<View>, Fault> {
        let mut axes = at.iter().zip(self.layout.shape.iter().zip(&self.layout.chunk));
        let is_inside = at.len() == self.rank && axes.all(|(at, (shape, chunk))| *at < shape.div_ceil(*chunk));
        let located = if is_inside { self.locate(reader, at)? } else { None };
        let whole = || Whole { grid: self.clone(), at: at.to_vec() };
        Ok(located.map(|_| View::default().with_rendered(self.chunk_size, whole())))
    }

    /// Returns where a chunk is and the context that reads it; `None` for an absent one.
    fn locate(&self, reader: &ReadContext, at: &[u64]) -> Result<Option<(ReadContext, Block)>, Fault> {
        self.located(reader, at, self.chunks.chunk(reader, self.place(at))?)
    }

    /// Returns the place of a chunk as the format counts: without numbers if the array has no axes.
    fn place<'a>(&self, at: &'a [u64]) -> &'a [u64] {
        &at[..at.len().min(self.rank)]
    }

    /// Returns the block of a chunk and the context that reads it.
    fn located(&self, reader: &ReadContext, at: &[u64], chunk: Chunk) -> Result<Option<(ReadContext, Block)>, Fault> {
        let (reader, block) = match chunk {
            Chunk::Absent => return Ok(None),
            Chunk::Stored(block) => (reader.clone(), block),
            Chunk::Elsewhere(source, block) => (reader.with_source(source), block),
        };
        if block.size != self.chunk_size || block.codec == Codec::None && block.stored_size != block.size {
            let size = if block.codec == Codec::None { block.stored_size } else { block.size };
            let (at, needed) = (self.place(at), self.chunk_size);
            let reason = format!("chunk {at:?} of {size} bytes, where {needed} are needed");
            return Err(fault(&block, Arc::new(BlockError::Refused(reason))));
        }
        Ok(Some((reader, block)))
    }

    /// Returns the number of a chunk: its place in C order.
    fn number(&self, at: &[u64]) -> u64 {
        let axes = self.layout.shape.iter().zip(&self.layout.chunk);
        at.iter().zip(axes).fold(0, |number, (at, (shape, chunk))| number * shape.div_ceil(*chunk) + at)
    }

    fn key(&self, reader: &ReadContext, at: &[u64]) -> Key {
        Key::new(reader.container, Tag::Chunk, self.layout.number, self.number(at))
    }

    /// Returns the elements of a chunk that the regions want, for the region with the number `first`. Empty if an
    /// earlier region already touches the chunk.
    fn wanted(&self, regions: &[Region], first: usize, at: &[u64]) -> Vec<Gather> {
        let earlier = &regions[..first];
        if earlier.iter().any(|region| region.part(at, &self.layout.chunk).is_some()) {
            return Vec::new();
        }
        let parts = regions[first..].iter();
        parts.filter_map(|region| Some(self.gather(region, &region.part(at, &self.layout.chunk)?, at))).collect()
    }

    /// Returns the copy of a part of a region from its chunk. All numbers are below sizes in memory, so nothing
    /// overflows.
    fn gather(&self, region: &Region, part: &[Part], at: &[u64]) -> Gather {
        let element = self.layout.element;
        let (mut from, mut to, mut stride) = (0, region.offset, 1);
        let mut axes = Vec::with_capacity(part.len());
        for axis in (0..part.len()).rev() {
            let (slice, part) = (&region.slices[axis], &part[axis]);
            let first = slice.start + part.start * slice.step - at[axis] * self.layout.chunk[axis];
            from += first * self.strides[axis];
            to += part.start * stride;
            axes.push(Axis {
                count: (part.end - part.start) as usize,
                from: (self.strides[axis] * slice.step.min(self.layout.chunk[axis]) * element) as usize,
                to: (stride * element) as usize,
            });
            stride *= slice.count;
        }
        Gather::new(element as usize, (from * element) as usize, (to * element) as usize, axes.into_iter().rev())
    }

    /// Fills `out` with elements of regions, which have no element in common. With `is_kept`, the reader keeps what it
    /// reads, so the cache does not.
    fn fill_regions(
        &self,
        reader: &ReadContext,
        regions: &[Region],
        is_kept: bool,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let mut batch = Vec::new();
        for (number, region) in regions.iter().enumerate() {
            for at in region.places(&self.layout.chunk, 0..u64::MAX) {
                let wanted = self.wanted(regions, number, &at);
                if wanted.is_empty() {
                    continue;
                }
                batch.push(Visit { at, wanted, block: None, grid: self });
                if batch.len() == BATCH {
                    self.locate_all(reader, &mut batch)?;
                    visit(reader, std::mem::take(&mut batch), is_kept, out)?;
                }
            }
        }
        self.locate_all(reader, &mut batch)?;
        visit(reader, batch, is_kept, out)?;
        self.layout.turn.apply(self.layout.element as usize, out);
        Ok(())
    }

    /// Looks up chunks, several at a time if each takes a request.
    fn locate_all(&self, reader: &ReadContext, visits: &mut [Visit<'_>]) -> Result<(), Fault> {
        let at_once = self.chunks.at_once().min(visits.len());
        if at_once < 2 || reader.wait() != Wait::Always {
            let mut found = Vec::with_capacity(visits.len());
            let mut places = visits.iter().map(|visit| self.place(&visit.at));
            self.chunks.chunks(reader, &mut places, &mut |chunk| {
                let at = visits.get(found.len()).map_or(&[][..], |visit| &visit.at);
                found.push(self.located(reader, at, chunk)?);
                Ok(())
            })?;
            visits.iter_mut().zip(found).for_each(|(visit, block)| visit.block = block);
            return Ok(());
        }
        let found: Vec<_> = visits.iter().map(|_| Mutex::new(None)).collect();
        parallel::for_each(at_once, visits.len(), |number| {
            let located = self.locate(reader, &visits[number].at);
            let next = if located.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
            *found[number].lock() = Some(located);
            next
        });
        let (mut soon, mut failed) = (Vec::new(), None);
        for (visit, found) in visits.iter_mut().zip(found) {
            match found.into_inner() {
                Some(Ok(block)) => visit.block = block,
                Some(Err(fault)) if failed.is_none() => failed = Some(fault),
                _ => {}
            }
            soon.extend(visit.block.as_ref().filter(|(own, _)| !Arc::ptr_eq(&own.source, &reader.source)));
        }
        if let Some(fault) = failed {
            return Err(fault);
        }
        soon.into_iter().for_each(|(own, block)| own.source.prefetch(&[block.stored()]));
        Ok(())
    }

    /// Fills `out` with whole elements, the first of which has this number in C order. `is_kept` is that of
    /// [`Self::fill_regions`].
    fn fill_elements(
        &self,
        reader: &ReadContext,
        elements: Range<u64>,
        is_kept: bool,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let mut rest = out;
        let mut at = elements.start;
        // Several slabs of small chunks at a time, because each time takes threads.
        let slab_size = self.slab.saturating_mul(self.chunk_size).max(1);
        let slabs = (BATCH as u64 / self.slab.max(1)).min(TOGETHER / slab_size);
        while at < elements.end {
            let mut end = self.slab_at(at).end;
            for _ in 1..slabs {
                end = if end < elements.end { self.slab_at(end).end } else { break };
            }
            let end = end.min(elements.end);
            let (here, after) = rest.split_at_mut(((end - at) * self.layout.element) as usize);
            self.fill_regions(reader, &regions(&self.layout.shape, at..end), is_kept, here)?;
            (at, rest) = (end, after);
        }
        Ok(())
    }

    /// Returns the elements of the slab that an element is in.
    fn slab_at(&self, element: u64) -> Range<u64> {
        let (shape, axis) = (&self.layout.shape, self.slab_axis);
        let row: u64 = shape[axis + 1..].iter().product();
        let (before, at) = (element / row / shape[axis], element / row % shape[axis]);
        let first = at / self.layout.chunk[axis] * self.layout.chunk[axis];
        let end = first.saturating_add(self.layout.chunk[axis]).min(shape[axis]);
        (before * shape[axis] + first) * row..(before * shape[axis] + end) * row
    }

    /// Records a read. If it continues where the last one ended, as many chunks of the next slab are decoded ahead as
    /// it read of its own slab.
    fn read_ahead(&self, reader: &ReadContext, part: &Range<u64>) {
        let is_near = part.start.abs_diff(self.last.swap(part.end, Relaxed)) <= NEAR;
        let (budget, slab) = (reader.cache.usage().0, self.slab.saturating_mul(self.chunk_size));
        let is_tight = is_near && self.slab > 1 && slab > budget / 2;
        self.is_tight.store(is_tight, Relaxed);
        if !is_near || reader.wait() != Wait::Always {
            return;
        }
        if is_tight {
            self.note_small_cache(reader, slab);
        }
        if slab > budget / 3 {
            return;
        }
        let element = self.layout.element;
        let here = self.slab_at(part.start / element);
        let (start, end) = (here.start * element, here.end * element);
        if end >= self.size() {
            return;
        }
        // The part of the slab that was read, in chunks.
        let share = |at: u64| u128::from(at - start) * u128::from(self.slab) / u128::from(end - start);
        let (from, to) = (share(part.start) as u64, share(part.end.min(end)) as u64 + 1);
        let next = &regions(&self.layout.shape, self.slab_at(here.end))[0];
        for at in next.places(&self.layout.chunk, from..to.min(self.slab)) {
            // Its errors are reported when it is read.
            let Ok(Some((reader, block))) = self.locate(reader, &at) else { continue };
            if block.codec != Codec::None {
                reader.cache.decode_ahead(reader.keyed(self.key(&reader, &at), &block), true);
            }
        }
    }

    /// Makes room first for other chunks, after one was read that the cache has no room for beside those in front of it.
    fn release(&self, reader: &ReadContext, at: &[u64]) {
        let kept = reader.cache.usage().0 / 2 / self.chunk_size.max(1);
        if self.is_tight.load(Relaxed) && self.number(at) % self.slab >= kept {
            reader.cache.evict_first(&self.key(reader, at));
        }
    }

    /// Returns how many chunks may be decoded at once. Beside the chunks that are kept, there must be room for each
    /// chunk and for what its decoder needs.
    fn decoders(&self, reader: &ReadContext) -> usize {
        match self.is_tight.load(Relaxed) {
            true => (reader.cache.usage().0 / 4 / self.chunk_size.max(1)).max(1) as usize,
            false => usize::MAX,
        }
    }

    fn note_small_cache(&self, reader: &ReadContext, slab: u64) {
        if !self.was_noticed.swap(true, Relaxed) {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let notice = format!(
                "a row of chunks takes {} MiB decoded, too much for the cache, so chunks are decoded more than once; \
                 set --cache-size={}M or more",
                mib(slab),
                mib(slab.saturating_mul(3))
            );
            reader.cache.notices.add(reader.container, notice);
        }
    }
}

impl Rendered for Grid {
    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        let Layout { shape, chunk, element, turn, order, .. } = &self.layout;
        if *turn != Turn::No || order.is_some() {
            return Ok(None);
        }
        // On all axes after this one, a chunk has all elements of the array. So along it, elements are contiguous in
        // both.
        let axis = (0..shape.len()).rev().find(|axis| chunk[*axis] != shape[*axis]).unwrap_or(0);
        let inner: u64 = shape[axis + 1..].iter().product::<u64>() * element;
        let (first, last) = (part.start / inner, (part.end - 1) / inner);
        let chunk_of = |row: u64| (row / shape[axis], row % shape[axis] / chunk[axis]);
        if chunk_of(first) != chunk_of(last) {
            return Ok(None);
        }
        let mut coordinates = vec![0; shape.len()];
        let mut rest = first;
        let mut inside = part.start % inner;
        for at in (0..=axis).rev() {
            let index = rest % shape[at];
            rest /= shape[at];
            coordinates[at] = index / chunk[at];
            inside += index % chunk[at] * self.strides[at] * element;
        }
        let Some((own, block)) = self.locate(reader, &coordinates)? else { return Ok(None) };
        let range = inside..inside + (part.end - part.start);
        let key = self.key(&own, &coordinates);
        let borrowed = own.borrow_range(key, &block, range).map_err(|error| fault(&block, error))?;
        if borrowed.is_some() {
            self.release(&own, &coordinates);
            self.read_ahead(reader, &part);
        }
        Ok(borrowed)
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        pieces::fill_elements(part.clone(), self.layout.element, out, |elements, out| {
            self.fill_elements(reader, elements, false, out)
        })?;
        self.read_ahead(reader, &part);
        Ok(())
    }

    fn fill_slices(&self, reader: &ReadContext, slices: &[Slice], out: &mut [u8]) -> Option<Result<(), Fault>> {
        let slices = if slices.is_empty() { &[Slice { start: 0, step: 1, count: 1 }] } else { slices };
        Some(self.fill_regions(reader, &[Region { slices: slices.to_vec(), offset: 0 }], false, out))
    }

    fn fill_kept(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        if part != (0..self.size()) {
            return self.fill(reader, part, out);
        }
        self.fill_elements(reader, 0..part.end / self.layout.element, true, out)
    }
}

fn fault(block: &Block, error: Arc<BlockError>) -> Fault {
    Fault { block: None, offset: block.offset, error }
}

impl Visit<'_> {
    fn key(&self, reader: &ReadContext) -> Key {
        self.grid.key(reader, &self.at)
    }

    /// Returns the bytes of the output from the first wanted element to the end of the last one.
    fn span(&self) -> Range<usize> {
        let spans = || self.wanted.iter().map(Gather::span_out);
        spans().map(|span| span.start).min().unwrap_or(0)..spans().map(|span| span.end).max().unwrap_or(0)
    }

    /// Returns whether there is something to decode.
    fn is_work(&self) -> bool {
        self.block
            .as_ref()
            .is_some_and(|(reader, block)| block.codec != Codec::None && !reader.cache.is_decoded(self.key(reader)))
    }

    /// Copies the wanted elements. With `is_kept`, the cache does not keep the chunk, which is decoded straight into
    /// `out` if it is contiguous there.
    fn copy(&self, is_kept: bool, out: &Section<'_>) -> Result<(), Fault> {
        let Some((reader, block)) = &self.block else {
            out.change(|start, out| {
                self.wanted.iter().for_each(|wanted| wanted.at(start).fill(&self.grid.layout.fill, out))
            });
            return Ok(());
        };
        let (key, fault) = (self.key(reader), |error| fault(block, error));
        if is_kept
            && let [wanted] = self.wanted.as_slice()
            && wanted.run().is_some_and(|run| run as u64 == block.size)
        {
            let decode = |out: &mut [u8]| reader.cache.read_whole(reader.keyed(key, block), out);
            return out
                .change(|start, out| decode(&mut out[wanted.to - start..][..block.size as usize]))
                .map_err(fault);
        }
        let bytes = match is_kept {
            true => reader.cache.read_once(reader.keyed(key, block)),
            false => reader.piece(key, block, &(0..block.size)).map(|piece| piece.bytes),
        };
        let bytes = bytes.map_err(fault)?;
        if bytes.len() as u64 != block.size {
            return Err(fault(Arc::new(BlockError::Refused("a chunk has another size than stated".into()))));
        }
        out.change(|start, out| self.wanted.iter().for_each(|wanted| wanted.at(start).copy(&bytes, out)));
        self.grid.release(reader, &self.at);
        Ok(())
    }

    /// Returns whether the chunk is read range by range: it is uncompressed, or served while it is decoded.
    fn is_in_parts(&self) -> bool {
        self.block.as_ref().is_some_and(|(reader, block)| block.codec == Codec::None || reader.cache.in_pieces(block))
    }

    fn read(&self, out: &mut [u8]) -> Result<(), Fault> {
        let Some((reader, block)) = &self.block else { return Ok(()) };
        let key = self.key(reader);
        reader.check_chunk(key, block).map_err(|error| fault(block, error))?;
        let mut read = |at: usize, out: &mut [u8]| reader.fill_range(key, block, at as u64, out);
        let mut buffer = Vec::new();
        let mut all = self.wanted.iter();
        all.try_for_each(|wanted| wanted.read(&mut read, &mut buffer, out)).map_err(|error| fault(block, error))
    }
}

/// The bytes of an output from `start` on, for one thread at a time.
struct Section<'a> {
    start: usize,
    bytes: Mutex<&'a mut [u8]>,
}

impl Section<'_> {
    /// Calls `change` with the place of the bytes in the output, and the bytes.
    fn change<T>(&self, change: impl FnOnce(usize, &mut [u8]) -> T) -> T {
        change(self.start, &mut self.bytes.lock())
    }
}

/// Divides `out` into sections, of which each visit changes one. Returns them and the section of each visit. Chunks whose
/// elements lie between each other in `out` have the same one.
fn divide<'a>(visits: &[Visit<'_>], mut out: &'a mut [u8]) -> (Vec<Section<'a>>, Vec<usize>) {
    let mut spans: Vec<(Range<usize>, usize)> = visits.iter().map(Visit::span).zip(0..).collect();
    spans.sort_unstable_by_key(|(span, _)| span.start);
    let (mut sections, mut section_of, mut start, mut end) = (Vec::new(), vec![0; visits.len()], 0, 0);
    for (at, (span, number)) in spans.iter().enumerate() {
        section_of[*number] = sections.len();
        end = span.end.max(end);
        if spans.get(at + 1).is_none_or(|(next, _)| next.start >= end) {
            let (bytes, rest) = std::mem::take(&mut out).split_at_mut(end - start);
            sections.push(Section { start, bytes: Mutex::new(bytes) });
            (out, start) = (rest, end);
        }
    }
    (sections, section_of)
}

/// Decodes chunks, several at a time, and copies the wanted elements of each. With `is_kept`, the reader keeps what it
/// reads, so the cache does not.
fn visit(reader: &ReadContext, visits: Vec<Visit<'_>>, is_kept: bool, out: &mut [u8]) -> Result<(), Fault> {
    let (in_parts, visits): (Vec<_>, Vec<_>) = visits.into_iter().partition(Visit::is_in_parts);
    in_parts.iter().try_for_each(|visit| visit.read(out))?;
    let work: Vec<_> = visits.iter().filter(|visit| visit.is_work()).collect();
    let most = visits.first().map_or(1, |visit| visit.grid.decoders(reader));
    let threads = work.len().min(thread::available_parallelism().map_or(1, usize::from)).min(most);
    let (sections, section_of) = divide(&visits, out);
    let copy = |number: usize| visits[number].copy(is_kept, &sections[section_of[number]]);
    if threads < 2 || reader.wait() != Wait::Always {
        return (0..visits.len()).try_for_each(copy);
    }
    let soon = work.iter().filter_map(|visit| visit.block.as_ref());
    // Chunks in other files have their own requests.
    let soon: Vec<_> =
        soon.filter(|(own, _)| Arc::ptr_eq(&own.source, &reader.source)).map(|(_, block)| block.stored()).collect();
    reader.source.prefetch(&soon);
    // A thread copies a chunk as soon as it is decoded, so that none holds a chunk while it waits for memory.
    let failed = Mutex::new(None::<(usize, Fault)>);
    parallel::for_each(threads, visits.len(), |number| {
        if let Err(fault) = copy(number) {
            let mut failed = failed.lock();
            // Report the failure that comes first in order, as if chunks were read one after the other.
            if failed.as_ref().is_none_or(|(first, _)| number < *first) {
                *failed = Some((number, fault));
            }
        }
        ControlFlow::Continue(())
    });
    failed.into_inner().map_or(Ok(()), |(_, fault)| Err(fault))
}

/// A decoded chunk as a file of its own.
#[derive(Debug)]
struct Whole {
    grid: Arc<Grid>,
    at: Vec<u64>,
}

impl Rendered for Whole {
    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        let Some((reader, block)) = self.grid.locate(reader, &self.at)? else { return Ok(None) };
        let key = self.grid.key(&reader, &self.at);
        reader.borrow_range(key, &block, part).map_err(|error| fault(&block, error))
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let Some((reader, block)) = self.grid.locate(reader, &self.at)? else {
            out.fill(0);
            return Ok(());
        };
        let key = self.grid.key(&reader, &self.at);
        reader.check_chunk(key, &block).map_err(|error| fault(&block, error))?;
        reader.fill_range(key, &block, part.start, out).map_err(|error| fault(&block, error))
    }
}

/// Returns the name of a chunk in `.raw/<name>/`: its numbers joined by dots, `0` for an array without axes.
pub fn chunk_name(at: &[u64], is_stored: bool) -> String {
    let numbers: Vec<String> = at.iter().map(u64::to_string).collect();
    let numbers = if numbers.is_empty() { "0".into() } else { numbers.join(".") };
    format!("{numbers}{}", if is_stored { ".stored.bin" } else { ".bin" })
}

/// Returns the chunk that a name of [`chunk_name`] means in an array with this many axes, and whether the name means
/// its stored bytes.
pub fn parse_chunk_name(name: &str, axes: usize) -> Option<(Vec<u64>, bool)> {
    let numbers = name.strip_suffix(".bin")?;
    let (numbers, is_stored) = numbers.strip_suffix(".stored").map_or((numbers, false), |numbers| (numbers, true));
    let at: Vec<u64> = numbers.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let at = if axes == 0 && at == [0] { Vec::new() } else { at };
    // Each chunk has one name: without signs and leading zeros.
    (at.len() == axes && chunk_name(&at, is_stored) == name).then_some((at, is_stored))
}

#[cfg(test)]
mod tests;
