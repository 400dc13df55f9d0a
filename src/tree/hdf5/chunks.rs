//! The chunks of a dataset, and the array that they form.

use std::{fmt, sync::Arc};

use super::store::{Store, fault};
use crate::{
    codec::Codec,
    format::{
        Block,
        hdf5::{
            Chunked, Dataset, Layout, Object, Place, Reader, Result,
            chunks::{self, Chunks, StoredChunk},
        },
    },
    limits,
    view::{
        Fault, ReadContext,
        grid::{self, Chunk, Grid, Turn},
    },
};

/// Most bytes of a chunk (section 10).
pub(super) const LARGEST: u64 = 1 << 30;

/// The chunks of a dataset, by their numbers in C order.
#[derive(Debug)]
pub(super) struct ChunkTable {
    chunks: Vec<(u64, StoredChunk)>,
}

/// Returns the bytes of a chunk.
pub(super) fn chunk_size(chunked: &Chunked) -> Option<u64> {
    let size = chunked.chunk.iter().try_fold(chunked.element, |size, axis| size.checked_mul(*axis));
    size.filter(|size| *size <= LARGEST)
}

/// Returns the number of chunks along each axis.
fn counts<'a>(dims: &'a [u64], chunked: &'a Chunked) -> impl Iterator<Item = u64> + Clone + 'a {
    dims.iter().zip(&chunked.chunk).map(|(axis, chunk)| axis.div_ceil(*chunk))
}

/// Reads the index of a dataset's chunks.
pub(super) fn read(reader: &Reader<'_>, object: &Object) -> Result<ChunkTable> {
    let damaged = |reason: &str| reader.damaged(object.at, reason);
    let Some(dataset @ Dataset { layout: Layout::Chunked(chunked), space, pipeline, .. }) = object.dataset() else {
        return Err(damaged("a dataset that is not stored in chunks"));
    };
    let _ = dataset;
    let dims = space.dims.as_deref().unwrap_or_default();
    let chunk_size = chunk_size(chunked).ok_or_else(|| damaged("a chunk that is too large"))?;
    let index = Chunks { space, chunked, chunk_size, is_filtered: !pipeline.steps.is_empty() };
    let mut found: Vec<(u64, StoredChunk)> = Vec::new();
    chunks::visit(reader, index, &mut |at, chunk| {
        let mut axes = at.iter().zip(counts(dims, chunked));
        // Chunks outside the shape remain from before the dataset shrank.
        if !axes.clone().all(|(at, count)| *at < count) {
            return Ok(());
        }
        let number = axes.try_fold(0u64, |number, (at, count)| number.checked_mul(count)?.checked_add(*at));
        let number = number.ok_or_else(|| damaged("more chunks than can be counted"))?;
        if found.len() == found.capacity() {
            let more = found.len().max(16);
            reader.memory.reserve((2 * more * size_of::<(u64, StoredChunk)>()) as u64)?;
            found.reserve_exact(more);
        }
        found.push((number, chunk));
        Ok(())
    })?;
    found.sort_unstable_by_key(|(number, _)| *number);
    if found.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        return Err(damaged("two chunks at one place"));
    }
    Ok(ChunkTable { chunks: found })
}

impl ChunkTable {
    /// Returns the bytes of memory that it takes.
    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.chunks.capacity() * size_of::<(u64, StoredChunk)>()
    }

    /// Returns the number of stored chunks.
    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Returns a chunk by its place among the stored ones, with its number in C order.
    pub(super) fn stored(&self, place: usize) -> Option<(u64, StoredChunk)> {
        self.chunks.get(place).copied()
    }

    /// Returns the place of a chunk among the stored ones.
    pub(super) fn find(&self, number: u64) -> Option<usize> {
        self.chunks.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

/// Finds the chunks of a dataset for its array.
pub(super) struct Finder {
    store: Arc<Store>,
    at: Place,
    counts: Vec<u64>,
    /// The shape and the chunk shape, if chunks at the edge have no filters.
    edges: Option<(Vec<u64>, Vec<u64>)>,
    pipeline: crate::format::hdf5::Pipeline,
    chunk_size: u64,
    /// The codec of chunks that leave no filter out.
    codec: std::result::Result<Codec, String>,
}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunks of {:x}", self.at)
    }
}

impl grid::Chunks for Finder {
    fn chunk(&self, reader: &ReadContext, at: &[u64]) -> std::result::Result<Chunk, Fault> {
        let table = self.store.chunks(reader, self.at)?;
        let table = table.found.as_ref().map_err(super::store::Damage::fault)?;
        let number = at.iter().zip(&self.counts).fold(0u64, |number, (at, count)| number * count + at);
        let Some((_, chunk)) = table.find(number).and_then(|place| table.stored(place)) else {
            return Ok(Chunk::Absent);
        };
        let offset = self.store.superblock.sizes.base.saturating_add(chunk.place);
        let is_plain = self.edges.as_ref().is_some_and(|(dims, chunks)| {
            at.iter().zip(dims.iter().zip(chunks)).any(|(at, (axis, chunk))| (at + 1) * chunk > *axis)
        });
        let codec = match chunk.mask {
            _ if is_plain => Ok(Codec::None),
            0 => self.codec.clone(),
            mask => self.pipeline.codec(mask, self.chunk_size),
        };
        let codec = codec.map_err(|reason| fault(offset, &reason))?;
        if codec == Codec::None && chunk.size != self.chunk_size {
            let reason = format!("a chunk of {} bytes, where {} are needed", chunk.size, self.chunk_size);
            return Err(fault(offset, &reason));
        }
        let is_inside = offset.checked_add(chunk.size).is_some_and(|end| end <= reader.source.len());
        if !is_inside {
            return Err(fault(offset, &format!("a chunk of {} bytes that is not in the file", chunk.size)));
        }
        Ok(Chunk::Stored(Block { offset, stored_size: chunk.size, size: self.chunk_size, codec, crc: None }))
    }
}

/// Returns the array of a dataset in chunks. Elements are as stored, except for their byte order.
pub(super) fn grid(
    store: &Arc<Store>,
    at: Place,
    dataset: &Dataset,
    turn: Turn,
) -> std::result::Result<Arc<Grid>, Fault> {
    let place = store.superblock.sizes.base.saturating_add(at);
    let (Layout::Chunked(chunked), Some(dims)) = (&dataset.layout, &dataset.space.dims) else {
        return Err(fault(place, "a dataset that is not stored in chunks"));
    };
    let chunk_size = chunk_size(chunked).ok_or_else(|| fault(place, "a chunk that is too large"))?;
    let finder = Finder {
        store: store.clone(),
        at,
        counts: counts(dims, chunked).collect(),
        edges: chunked.has_plain_edges.then(|| (dims.clone(), chunked.chunk.clone())),
        codec: dataset.pipeline.codec(0, chunk_size),
        pipeline: dataset.pipeline.clone(),
        chunk_size,
    };
    let element = dataset.datatype.size;
    let fill = match dataset.missing() {
        Some(fill) => fill.to_vec(),
        None if element > limits::PIECE as u64 => return Err(fault(place, "elements that are too large")),
        None => vec![0; element as usize],
    };
    let layout = grid::Layout {
        number: store.grid_number(at),
        shape: dims.clone(),
        chunk: chunked.chunk.clone(),
        element,
        order: None,
        turn,
        fill,
    };
    Grid::new(layout, finder).map_err(|reason| fault(place, &reason))
}
