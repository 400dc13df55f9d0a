//! Where the elements of a dataset are stored (section 6.2).

use super::{Place, Result, Structure};
use crate::source::to_usize;

/// Where the elements of a dataset are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// In the object header: the offset from the start of the file, and the number of bytes.
    Compact(u64, u64),
    /// In one piece: its address and size. Without an address, all elements are the fill value. Versions 1 and 2 do not
    /// state the size.
    Contiguous(Option<Place>, Option<u64>),
    /// In chunks.
    Chunked(Chunked),
    /// In other datasets: the object of the global heap that lists the mappings.
    Virtual(Option<Place>, u32),
}

/// Chunks of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunked {
    /// Elements of a chunk along each axis.
    pub chunk: Vec<u64>,
    /// Bytes of an element.
    pub element: u64,
    /// How chunks are found.
    pub index: Index,
    /// Where the index is; for a single chunk, the chunk. `None` if no chunk is stored.
    pub address: Option<Place>,
    /// Whether chunks that reach past the edge are stored without filters.
    pub has_plain_edges: bool,
}

/// How chunks are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// A B-tree of version 1.
    BTree1,
    /// There is one chunk. If it is filtered: its stored size and mask.
    Single(Option<(u64, u32)>),
    /// All chunks follow each other.
    Implicit,
    /// A fixed array.
    FixedArray {
        /// The logarithm of the number of elements of a page.
        page_bits: u8,
    },
    /// An extensible array.
    ExtensibleArray {
        /// Bits of the greatest number of elements.
        bits: u8,
        /// Elements in the index block.
        index_elements: u8,
        /// The fewest pointers of a super block.
        pointers: u8,
        /// The fewest elements of a data block.
        elements: u8,
        /// The logarithm of the number of elements of a page.
        page_bits: u8,
    },
    /// A B-tree of version 2.
    BTree2,
}

impl Layout {
    /// Parses a message of type 0x08.
    ///
    /// # Errors
    /// Damage.
    pub fn parse(mut message: Structure<'_>) -> Result<Self> {
        let version = message.version("a layout", 1..=5)?;
        if version < 3 { old(message) } else { new(message, version) }
    }
}

fn old(mut message: Structure<'_>) -> Result<Layout> {
    let (rank, class) = (message.u8()?, message.u8()?);
    message.skip(5)?;
    match class {
        0 => {
            message.skip(4 * usize::from(rank))?;
            let size = message.u32()?;
            compact(message, size.into())
        }
        1 => Ok(Layout::Contiguous(message.address()?, None)),
        2 => {
            let address = message.address()?;
            chunked(message, rank, 4, address)
        }
        class => Err(message.damaged(format!("a layout of class {class}"))),
    }
}

fn new(mut message: Structure<'_>, version: u8) -> Result<Layout> {
    match message.u8()? {
        0 => {
            let size = message.u16()?;
            compact(message, size.into())
        }
        1 => Ok(Layout::Contiguous(message.address()?, Some(message.length()?))),
        2 if version == 3 => {
            let (rank, address) = (message.u8()?, message.address()?);
            chunked(message, rank, 4, address)
        }
        2 => {
            let (flags, rank, width) = (message.u8()?, message.u8()?, message.u8()?);
            if !(1..=8).contains(&width) {
                return Err(message.damaged(format!("sizes of chunks in {width} bytes")));
            }
            let (chunk, element) = dims(&mut message, rank, width.into())?;
            let index = match message.u8()? {
                1 if flags & 2 == 0 => Index::Single(None),
                1 => Index::Single(Some((message.length()?, message.u32()?))),
                2 => Index::Implicit,
                3 => Index::FixedArray { page_bits: message.u8()? },
                4 => Index::ExtensibleArray {
                    bits: message.u8()?,
                    index_elements: message.u8()?,
                    pointers: message.u8()?,
                    elements: message.u8()?,
                    page_bits: message.u8()?,
                },
                5 => {
                    message.skip(6)?;
                    Index::BTree2
                }
                kind => return Err(message.damaged(format!("an index of chunks of kind {kind}"))),
            };
            let address = message.address()?;
            Ok(Layout::Chunked(Chunked { chunk, element, index, address, has_plain_edges: flags & 1 != 0 }))
        }
        3 => Ok(Layout::Virtual(message.address()?, message.u32()?)),
        class => Err(message.damaged(format!("a layout of class {class}"))),
    }
}

fn compact(mut message: Structure<'_>, size: u64) -> Result<Layout> {
    let place = message.place();
    message.take(to_usize(size))?;
    Ok(Layout::Compact(place, size))
}

/// Returns the elements of a chunk along each axis, and the bytes of an element, which are stored as one more axis.
fn dims(message: &mut Structure<'_>, rank: u8, width: usize) -> Result<(Vec<u64>, u64)> {
    if !(1..=33).contains(&rank) {
        return Err(message.damaged(format!("chunks of {rank} axes")));
    }
    let mut chunk = (0..rank).map(|_| message.uint(width)).collect::<Result<Vec<u64>>>()?;
    let element = chunk.pop().unwrap_or(0);
    match chunk.contains(&0) || element == 0 {
        true => Err(message.damaged("chunks of no elements")),
        false => Ok((chunk, element)),
    }
}

fn chunked(mut message: Structure<'_>, rank: u8, width: usize, address: Option<Place>) -> Result<Layout> {
    let (chunk, element) = dims(&mut message, rank, width)?;
    Ok(Layout::Chunked(Chunked { chunk, element, index: Index::BTree1, address, has_plain_edges: false }))
}
