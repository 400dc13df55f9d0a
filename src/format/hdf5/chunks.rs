//! Where the chunks of a dataset are, by any of the indexes (section 6.2).

use super::{Chunked, Dataspace, Index, Place, Reader, Result, btree1};

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
        Index::Implicit | Index::FixedArray { .. } | Index::ExtensibleArray { .. } | Index::BTree2 => {
            Err(reader.damaged(address, "an index of chunks that is not supported"))
        }
    }
}
