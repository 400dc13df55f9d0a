//! Where the chunks of a dataset are, by any of the indexes (section 6.2).

use super::{
    Chunked, Dataspace, Index, Place, Reader, Result, Structure, btree1, btree2, extensible_array, fixed_array,
};

/// A dataset as an index of its chunks needs it.
#[derive(Debug, Clone, Copy)]
pub struct Chunks<'a> {
    /// The dataset's shape. Indexes that number chunks count by the most that it may grow to.
    pub space: &'a Dataspace,
    /// Its chunks.
    pub chunked: &'a Chunked,
    /// Bytes of a decoded chunk.
    pub chunk_size: u64,
    /// Whether chunks go through filters. Only then their sizes are stored.
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

/// Passes all stored chunks to `each`, with the place of each in the grid: its number along each axis. Some may lie
/// outside the dataset's current shape. Chunks of size 0 or at undefined addresses are left out.
///
/// # Errors
/// Damage of the index.
pub fn visit(
    reader: &Reader<'_>,
    chunks: Chunks<'_>,
    each: &mut dyn FnMut(&[u64], StoredChunk) -> Result<()>,
) -> Result<()> {
    let Some(address) = chunks.chunked.address else { return Ok(()) };
    let axes = &chunks.chunked.chunk;
    match chunks.chunked.index {
        Index::BTree1 => {
            let mut at = vec![0; axes.len()];
            btree1::walk(
                reader,
                address,
                btree1::Kind::Chunks,
                8 + 8 * (axes.len() as u64 + 1),
                &mut |mut key, place| {
                    let (size, mask) = (u64::from(key.u32()?), key.u32()?);
                    for (at, chunk) in at.iter_mut().zip(axes) {
                        let offset = key.u64()?;
                        if offset % chunk != 0 {
                            return Err(key.damaged(format!("a chunk at element {offset}, where chunks have {chunk}")));
                        }
                        *at = offset / chunk;
                    }
                    if key.u64()? != 0 {
                        return Err(key.damaged("a chunk that begins inside an element"));
                    }
                    if size == 0 { Ok(()) } else { each(&at, StoredChunk { place, size, mask }) }
                },
            )
        }
        Index::Single(filtered) => {
            let (size, mask) = filtered.unwrap_or((chunks.chunk_size, 0));
            let chunk = StoredChunk { place: address, size, mask };
            if size == 0 { Ok(()) } else { each(&vec![0; axes.len()], chunk) }
        }
        Index::Implicit => implicit(reader, chunks, address, each),
        Index::FixedArray { .. } => {
            let numbers = Numbers::new(chunks, None);
            fixed_array::visit(reader, address, Element::of(chunks), &numbers, each)
        }
        Index::ExtensibleArray { .. } => {
            let mut growing =
                (0..).zip(&chunks.space.most).filter(|(_, most)| **most == u64::MAX).map(|(axis, _)| axis);
            let (unlimited, None) = (growing.next(), growing.next()) else {
                return Err(reader.damaged(address, "an extensible array of a dataset that grows along several axes"));
            };
            if unlimited.is_none() {
                return Err(reader.damaged(address, "an extensible array of a dataset that does not grow"));
            }
            let numbers = Numbers::new(chunks, unlimited);
            extensible_array::visit(reader, address, Element::of(chunks), &numbers, each)
        }
        Index::BTree2 => {
            let mut at = vec![0; axes.len()];
            let kind = if chunks.is_filtered { 11 } else { 10 };
            btree2::walk(reader, address, &[kind], &mut |_, mut record| {
                let beside = 8 * axes.len();
                let size =
                    record.left().checked_sub(beside).ok_or_else(|| record.damaged("a record that is too short"))?;
                let element = Element::of(chunks).sized(size as u64, &record)?;
                let chunk = element.read(&mut record)?;
                for at in &mut at {
                    *at = record.u64()?;
                }
                chunk.map_or(Ok(()), |chunk| each(&at, chunk))
            })
        }
    }
}

/// Passes all chunks of the dataset as it is now. All that it may grow to have room in the file.
fn implicit(
    reader: &Reader<'_>,
    chunks: Chunks<'_>,
    address: Place,
    each: &mut dyn FnMut(&[u64], StoredChunk) -> Result<()>,
) -> Result<()> {
    let numbers = Numbers::new(chunks, None);
    let dims = chunks.space.dims.as_deref().unwrap_or_default();
    let counts: Vec<u64> = dims.iter().zip(&chunks.chunked.chunk).map(|(dim, chunk)| dim.div_ceil(*chunk)).collect();
    if counts.contains(&0) {
        return Ok(());
    }
    let place = |at: &[u64]| {
        let before = numbers.number(at)?.checked_mul(chunks.chunk_size)?;
        address.checked_add(before)
    };
    // Each chunk has bytes of its own, so the file bounds how many there are.
    let last: Vec<u64> = counts.iter().map(|count| count - 1).collect();
    let end = place(&last).and_then(|last| reader.place(last).checked_add(chunks.chunk_size));
    if end.is_none_or(|end| end > reader.source.len()) {
        return Err(reader.damaged(address, "chunks that pass the end of the file"));
    }
    let mut at = vec![0; counts.len()];
    loop {
        if let Some(place) = place(&at) {
            each(&at, StoredChunk { place, size: chunks.chunk_size, mask: 0 })?;
        }
        // The next place in the grid: the last axis first.
        let mut axes = at.iter_mut().zip(&counts).rev();
        loop {
            let Some((at, count)) = axes.next() else { return Ok(()) };
            *at += 1;
            if *at < *count {
                break;
            }
            *at = 0;
        }
    }
}

/// What an index says of a chunk: its address and, if chunks are filtered, its size and mask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    /// Bytes of all of that.
    pub size: u64,
    is_filtered: bool,
    chunk_size: u64,
}

impl Element {
    fn of(chunks: Chunks<'_>) -> Self {
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

    /// Fails if elements cannot have that many bytes.
    fn sized(self, size: u64, head: &Structure<'_>) -> Result<Self> {
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
                (fields.uint(width as usize)?, fields.u32()?)
            }
            false => (self.chunk_size, 0),
        };
        Ok(place.filter(|_| size > 0).map(|place| StoredChunk { place, size, mask }))
    }
}

/// How an array numbers chunks: in C order over the most chunks that there can be along each axis.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The axes, the slowest first, each with the most chunks along it.
    axes: Vec<(usize, u64)>,
}

impl Numbers {
    /// The axis that is not bounded, if there is one, counts as the slowest.
    fn new(chunks: Chunks<'_>, unlimited: Option<usize>) -> Self {
        let counts = chunks.space.most.iter().zip(&chunks.chunked.chunk).map(|(most, chunk)| most.div_ceil(*chunk));
        let mut axes: Vec<(usize, u64)> = counts.enumerate().collect();
        axes.sort_by_key(|(axis, _)| Some(*axis) != unlimited);
        Self { axes }
    }

    /// Returns the most chunks that there can be, if a number has room for it.
    pub(super) fn count(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |product, (_, count)| product.checked_mul(*count))
    }

    /// Returns the place in the grid of the chunk of a number.
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
    fn number(&self, at: &[u64]) -> Option<u64> {
        self.axes
            .iter()
            .try_fold(0u64, |number, (axis, count)| number.checked_mul(*count)?.checked_add(*at.get(*axis)?))
    }
}
