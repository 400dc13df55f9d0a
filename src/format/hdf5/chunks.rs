//! Finds the chunks of a dataset, by any of the indexes (section 6.2).

pub use super::chunk::{Chunks, StoredChunk};
use super::{
    Index, Place, Reader, Result, Structure, btree1, btree2,
    chunk::{Element, Numbers},
    extensible_array, fixed_array,
};

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
            let (mut at, mut order) = (vec![0; axes.len()], Order::of(chunks));
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
                    order.check(&at, &key)?;
                    each(&at, StoredChunk { place, size, mask })
                },
            )
        }
        Index::Single(filtered) => {
            let (size, mask) = filtered.unwrap_or((chunks.chunk_size, 0));
            let chunk = StoredChunk { place: address, size, mask };
            each(&vec![0; axes.len()], chunk)
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
            let (mut at, mut order) = (vec![0; axes.len()], Order::of(chunks));
            let kind = if chunks.is_filtered { 11 } else { 10 };
            let all = btree2::range(reader, address, &[kind], 0..u64::MAX, &mut |mut record| {
                let beside = 8 * axes.len();
                let size =
                    record.left().checked_sub(beside).ok_or_else(|| record.damaged("a record that is too short"))?;
                let element = Element::of(chunks).sized(size as u64, &record)?;
                let chunk = element.read(&mut record)?;
                for at in &mut at {
                    *at = record.u64()?;
                }
                order.check(&at, &record)?;
                chunk.map_or(Ok(()), |chunk| each(&at, chunk))
            });
            all.map(|_| ())
        }
    }
}

/// The order of the chunks in a B-tree. It shows most damage of their places.
struct Order {
    /// The most chunks along each axis.
    most: Vec<u64>,
    /// The place of the last chunk.
    last: Vec<u64>,
}

impl Order {
    fn of(chunks: Chunks<'_>) -> Self {
        let most = chunks.space.most.iter().zip(&chunks.chunked.chunk).map(|(most, chunk)| most.div_ceil(*chunk));
        Self { most: most.collect(), last: Vec::new() }
    }

    /// Fails if the next chunk does not come after the last one, or is where the dataset can never have one.
    fn check(&mut self, at: &[u64], key: &Structure<'_>) -> Result<()> {
        if at <= &*self.last {
            return Err(key.damaged("chunks that do not ascend"));
        }
        if at.iter().zip(&self.most).any(|(at, most)| at >= most) {
            return Err(key.damaged("a chunk beyond the greatest shape"));
        }
        self.last.clear();
        self.last.extend(at);
        Ok(())
    }
}

/// Passes on all chunks within the current shape. The file has room for those of the maximum shape.
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
    // Each chunk has its own bytes, so the file's length bounds the number of chunks.
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
        // Go to the next place in the grid; the last axis is the fastest.
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
