//! A chunk of a dataset, as the chunk indexes describe it (section 6.2).

use super::{Chunked, Dataspace, Place, Result, Structure};
use crate::source::to_usize;

/// What a chunk index needs to know of a dataset.
#[derive(Debug, Clone, Copy)]
pub struct Chunks<'a> {
    /// The dataset's shape. Indexes that number chunks use its maximum shape.
    pub space: &'a Dataspace,
    /// Its chunk layout.
    pub chunked: &'a Chunked,
    /// Bytes of a decoded chunk.
    pub chunk_size: u64,
    /// Whether chunks go through filters. Indexes store the sizes of chunks only if they do.
    pub is_filtered: bool,
}

/// A chunk that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredChunk {
    /// Where it is.
    pub place: Place,
    /// Bytes that are stored.
    pub size: u64,
    /// Bit i: filter i was left out.
    pub mask: u32,
}

/// An index's entry for a chunk: the address and, if chunks are filtered, the size and mask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    /// Bytes of the entry.
    pub size: u64,
    is_filtered: bool,
    chunk_size: u64,
}

impl Element {
    pub(super) fn of(chunks: Chunks<'_>) -> Self {
        Self { size: 0, is_filtered: chunks.is_filtered, chunk_size: chunks.chunk_size }
    }

    /// Takes the kind and size of elements from the head of an array.
    pub(super) fn of_array(self, head: &mut Structure<'_>) -> Result<Self> {
        let is_filtered = head.u8()?;
        if is_filtered != u8::from(self.is_filtered) {
            return Err(head.damaged(format!("an array of chunks of kind {is_filtered}")));
        }
        let size = head.u8()?;
        self.sized(size.into(), head)
    }

    /// Returns the kind that the blocks of an array of such elements have.
    pub(super) fn kind(&self) -> Option<u8> {
        Some(self.is_filtered.into())
    }

    /// Sets the bytes of an element. Fails if elements cannot have that many.
    pub(super) fn sized(self, size: u64, head: &Structure<'_>) -> Result<Self> {
        let offset = u64::from(head.sizes().offset);
        // A size is stored in 1 to 8 bytes.
        let is_right = if self.is_filtered { (offset + 5..=offset + 12).contains(&size) } else { size == offset };
        match is_right {
            true => Ok(Self { size, ..self }),
            false => Err(head.damaged(format!("{size} bytes for each chunk in an index"))),
        }
    }

    /// Reads the next element; `None` for a chunk that is not stored.
    pub(super) fn read(&self, fields: &mut Structure<'_>) -> Result<Option<StoredChunk>> {
        let place = fields.address()?;
        let (size, mask) = match self.is_filtered {
            true => {
                let width = self.size.saturating_sub(4 + u64::from(fields.sizes().offset));
                (fields.uint(to_usize(width))?, fields.u32()?)
            }
            false => (self.chunk_size, 0),
        };
        Ok(place.map(|place| StoredChunk { place, size, mask }))
    }
}

/// How an array numbers chunks: in C order over the largest grid that the maximum shape allows.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The axes, the slowest first, each with the largest number of chunks along it.
    axes: Vec<(usize, u64)>,
}

impl Numbers {
    /// Numbers the chunks of a dataset. If an axis is unlimited, it is the slowest.
    pub(super) fn new(chunks: Chunks<'_>, unlimited: Option<usize>) -> Self {
        let counts = chunks.space.most.iter().zip(&chunks.chunked.chunk).map(|(most, chunk)| most.div_ceil(*chunk));
        let mut axes: Vec<(usize, u64)> = counts.enumerate().collect();
        axes.sort_by_key(|(axis, _)| Some(*axis) != unlimited);
        Self { axes }
    }

    /// Returns the largest number of chunks; `None` if it does not fit 64 bits.
    pub(super) fn count(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |product, (_, count)| product.checked_mul(*count))
    }

    /// Returns the place in the grid of the chunk with a number.
    pub(super) fn place(&self, mut number: u64) -> Vec<u64> {
        let mut at = vec![0; self.axes.len()];
        for (place, (axis, count)) in self.axes.iter().enumerate().rev() {
            if let Some(at) = at.get_mut(*axis) {
                let count = if place == 0 { u64::MAX } else { (*count).max(1) };
                (*at, number) = (number % count, number / count);
            }
        }
        at
    }

    /// Returns the number of the chunk at a place in the grid.
    pub(super) fn number(&self, at: &[u64]) -> Option<u64> {
        self.axes
            .iter()
            .try_fold(0u64, |number, (axis, count)| number.checked_mul(*count)?.checked_add(*at.get(*axis)?))
    }
}
