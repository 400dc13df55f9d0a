//! Virtual files: a list of extents, with a size that is known without decoding and a read of any range.
//!
//! Every format describes its files with these; none reads by itself.

mod frames;
pub mod idv;
pub mod json;
mod memory;
pub mod npy;
pub mod png;
pub mod rows;
mod signs;
pub mod strided;

pub use memory::Layout;

use std::{ops::Range, sync::Arc};

use crate::{
    cache::{BlockError, Buffer, Cache, Key, Piece},
    codec::Codec,
    format::{
        Block,
        wshard::{Interleave, Residual},
    },
    memfd::MemoryFile,
    source::{Mapped, Source, SourceError, zeros},
};
pub use frames::Frames;
use png::Png;
use rows::Rows;
use strided::Strided;

/// One virtual file.
#[derive(Debug, Clone, Default)]
pub struct View {
    extents: Vec<Extent>,
    size: u64,
}

/// A run of a virtual file's bytes.
#[derive(Debug, Clone)]
struct Extent {
    start: u64,
    length: u64,
    data: Data,
    /// Each byte that is not 0 becomes 1: numpy's bool.
    as_bool: bool,
}

/// Where the bytes of an extent come from.
#[derive(Debug, Clone)]
pub enum Data {
    /// They are here.
    Inline(Arc<Buffer>),
    /// A range of the container, as it stands there.
    Stored(Range<u64>),
    /// A range of a decoded block.
    Block(BlockRef, Range<u64>),
    /// A lane of an interleaved stream file, put back in order (`docs/formats/wshard.md` 16).
    Lane(BlockRef, Interleave),
    /// The signs in a residual block, as i8 (`docs/formats/wshard.md` 13).
    Signs(BlockRef, Residual),
    /// Rows of a ragged column, one a line (`docs/TREE.md`, section 5).
    Rows(Arc<Rows>),
    /// One field of interleaved rows (`docs/formats/kdb.md` 5).
    Strided(Strided),
    /// Raw pixels as a PNG file.
    Png(Arc<Png>),
    /// Frames of one size, each somewhere else.
    Frames(Arc<dyn Frames>),
    /// What a format renders for the range that is asked for.
    Computed(Arc<dyn Computed>),
}

/// A run of bytes that no list of extents could describe: it has a part for each of a million blocks, or most of it is
/// not stored at all. Ranges are counted from the start of the extent.
pub trait Computed: std::fmt::Debug + Send + Sync {
    /// Whether [`Self::fill`] would go without decoding or waiting for a decoder.
    fn is_ready(&self, reader: &Reader, part: &Range<u64>) -> bool;

    /// An answer that copies nothing, where there is one; `part` is not empty.
    ///
    /// # Errors
    /// [`Fault`] when a block that the range touches can't be served.
    fn borrow(&self, reader: &Reader, part: Range<u64>) -> Result<Option<Bytes>, Fault>;

    /// Fills `out` with a part, which is not empty.
    ///
    /// # Errors
    /// As [`Self::borrow`].
    fn fill(&self, reader: &Reader, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault>;
}

/// A block with its number in the container.
#[derive(Debug, Clone)]
pub struct BlockRef {
    /// The number: index of the entry.
    pub number: u32,
    /// Where it stands.
    pub block: Block,
    /// Why it can never be served, where the front matter says so.
    pub error: Option<Arc<str>>,
}

/// Bytes of a read, as little copied as possible.
#[derive(Debug, Clone)]
pub enum Bytes {
    /// Put together for this read.
    Owned(Vec<u8>),
    /// A part of a decoded piece.
    Decoded(Arc<Buffer>, Range<usize>),
    /// A part of the mapped file, which only a system call may look at.
    Mapped(Mapped),
    /// A part of a file in memory.
    Memory(Arc<MemoryFile>, Range<usize>),
}

impl Bytes {
    /// The bytes as the buffer of a system call.
    pub fn for_kernel(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Decoded(bytes, range) => &bytes[range.clone()],
            Self::Mapped(mapped) => mapped.for_kernel(),
            Self::Memory(memory, range) => memory.bytes(range.clone()),
        }
    }
}

/// Why a range could not be read.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The block that failed; `None` for bytes that belong to none.
    pub block: Option<u32>,
    /// Where in the container the trouble is.
    pub offset: u64,
    /// What was wrong.
    pub error: Arc<BlockError>,
}

/// Bytes that belong to no block, and could not be had.
impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Self {
        Self { block: None, offset: 0, error: Arc::new(error.into()) }
    }
}

/// What reading needs: where the bytes are, and the blocks that are decoded already.
#[derive(Clone)]
pub struct Reader {
    /// The container's bytes.
    pub source: Arc<dyn Source>,
    /// Decoded blocks of all containers.
    pub cache: Arc<Cache>,
    /// The container's number in the cache.
    pub container: u64,
}

impl View {
    /// A file of bytes that are known.
    pub fn inline(bytes: impl Into<Vec<u8>>) -> Self {
        Self::shared(Arc::new(Buffer::from(bytes.into())))
    }

    /// A file of bytes that others hold too.
    pub fn shared(bytes: Arc<Buffer>) -> Self {
        let length = bytes.len() as u64;
        Self::default().with(length, Data::Inline(bytes))
    }

    /// A file that is a range of the container.
    pub fn stored(range: Range<u64>) -> Self {
        Self::default().with(range.end - range.start, Data::Stored(range))
    }

    /// The file with one more extent at its end.
    #[must_use]
    pub fn with(mut self, length: u64, data: Data) -> Self {
        if length > 0 {
            self.extents.push(Extent { start: self.size, length, data, as_bool: false });
            self.size += length;
        }
        self
    }

    /// The file with its last extent's bytes as numpy's bool.
    #[must_use]
    pub fn as_bool(mut self) -> Self {
        if let Some(extent) = self.extents.last_mut() {
            extent.as_bool = true;
        }
        self
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether [`Self::read_at`] would answer this range without decoding, checking or waiting for a decoder.
    pub fn is_ready(&self, reader: &Reader, offset: u64, length: u64) -> bool {
        self.touched(offset, length).all(|(extent, part)| reader.is_data_ready(&extent.data, part))
    }

    /// The bytes from `offset` on, `length` of them or as many as the file has.
    ///
    /// # Errors
    /// [`Fault`] when any block that the range touches can't be served.
    pub fn read_at(&self, reader: &Reader, offset: u64, length: u64) -> Result<Bytes, Fault> {
        let length = length.min(self.size.saturating_sub(offset));
        let mut touched = self.touched(offset, length);
        if let (Some((extent, part)), None) = (touched.next(), touched.next())
            && !extent.as_bool
            && let Some(bytes) = reader.borrow(&extent.data, part)?
        {
            return Ok(bytes);
        }
        self.copy_at(reader, offset, length).map(Bytes::Owned)
    }

    /// As [`Self::read_at`], as memory of one's own, which may be looked at.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn copy_at(&self, reader: &Reader, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
        let length = length.min(self.size.saturating_sub(offset));
        // Bounded by the length of the request, which the kernel and `cat` keep small.
        let mut out = zeros(usize::try_from(length).unwrap_or(usize::MAX)).map_err(|error| Fault {
            block: None,
            offset: 0,
            error: Arc::new(SourceError::from(error).into()),
        })?;
        self.fill_at(reader, offset, &mut out)?;
        Ok(out)
    }

    /// Fills `out` with the bytes from `offset` on. What lies past the file's end is left as it is.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn fill_at(&self, reader: &Reader, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let mut rest = &mut *out;
        for (extent, part) in self.touched(offset, rest.len() as u64) {
            let (here, after) = rest.split_at_mut((part.end - part.start) as usize);
            reader.fill(&extent.data, part, here)?;
            if extent.as_bool {
                here.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            rest = after;
        }
        Ok(())
    }

    /// The extents that a range touches, each with the part of it that is meant, counted from the extent's start.
    fn touched(&self, offset: u64, length: u64) -> impl Iterator<Item = (&Extent, Range<u64>)> {
        let end = offset.saturating_add(length).min(self.size);
        let first = self.extents.partition_point(|extent| extent.start + extent.length <= offset);
        self.extents[first..].iter().take_while(move |extent| extent.start < end).map(move |extent| {
            let from = offset.max(extent.start) - extent.start;
            (extent, from..end.min(extent.start + extent.length) - extent.start)
        })
    }
}

impl BlockRef {
    fn fault(&self, error: Arc<BlockError>) -> Fault {
        Fault { block: Some(self.number), offset: self.block.offset, error }
    }
}

/// Pixels that are put into a PNG at once, where a thread of the pool would cost more.
const FEW_PIXELS: u64 = 1 << 20;

/// Bytes of rows that are more work to gather a field from than a thread of the pool costs.
const MUCH: u64 = 4 << 20;

impl Reader {
    fn key(&self, block: &BlockRef) -> Key {
        Key { container: self.container, block: block.number.into() }
    }

    fn is_data_ready(&self, data: &Data, part: Range<u64>) -> bool {
        match data {
            Data::Inline(_) => true,
            Data::Stored(range) => self.source.is_resident(&(range.start + part.start..range.start + part.end)),
            Data::Strided(field) => {
                let rows = field.rows(&part);
                rows.end - rows.start <= MUCH && self.source.is_resident(&rows)
            }
            Data::Block(block, range) => self.is_ready(block, &(range.start + part.start..range.start + part.end)),
            Data::Png(png) => {
                let (pixels, needed) = png.needs(&part);
                needed.end - needed.start <= FEW_PIXELS && self.is_data_ready(pixels, needed)
            }
            Data::Computed(computed) => computed.is_ready(self, &part),
            Data::Lane(..) | Data::Signs(..) | Data::Rows(_) | Data::Frames(_) => false,
        }
    }

    fn is_ready(&self, block: &BlockRef, range: &Range<u64>) -> bool {
        block.error.is_some() || self.is_block_ready(self.key(block), &block.block, range)
    }

    /// Whether a part of a block can be had without decoding it, checking it, or waiting for a disk.
    pub(crate) fn is_block_ready(&self, key: Key, block: &Block, part: &Range<u64>) -> bool {
        let is_stored = block.codec == Codec::None;
        self.cache.is_ready(key, block, part)
            && (!is_stored || self.source.is_resident(&(block.offset + part.start..block.offset + part.end)))
    }

    /// An answer that copies nothing, where there is one.
    fn borrow(&self, data: &Data, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        match data {
            Data::Stored(range) => {
                Ok(self.source.mapped(range.start + part.start..range.start + part.end).map(Bytes::Mapped))
            }
            Data::Block(block, range) => {
                let range = range.start + part.start..range.start + part.end;
                if block.block.codec == Codec::None {
                    self.check(block, &range)?;
                    let at = block.block.offset;
                    return Ok(self.source.mapped(at + range.start..at + range.end).map(Bytes::Mapped));
                }
                let piece = self.piece(block, range.start)?;
                let (from, to) = ((range.start - piece.start) as usize, (range.end - piece.start) as usize);
                if to <= piece.bytes.len() {
                    self.cache.handed_out(self.key(block), block.block.size, range.end - range.start);
                }
                Ok((to <= piece.bytes.len()).then_some(Bytes::Decoded(piece.bytes, from..to)))
            }
            Data::Inline(bytes) => Ok(Some(Bytes::Decoded(bytes.clone(), part.start as usize..part.end as usize))),
            Data::Computed(computed) if !part.is_empty() => computed.borrow(self, part),
            _ => Ok(None),
        }
    }

    /// Fills `out` with a part of an extent.
    fn fill(&self, data: &Data, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        match data {
            Data::Inline(bytes) => {
                out.copy_from_slice(&bytes[part.start as usize..part.end as usize]);
                Ok(())
            }
            Data::Stored(range) => self.fill_stored(None, range.start + part.start, out),
            Data::Block(block, range) => self.fill_block(block, range.start + part.start, out),
            Data::Lane(block, lane) => {
                // The checksum is over the extent that was recorded, mixed as it is.
                self.check(block, &(0..block.block.size))?;
                let mut rest = out;
                for range in lane.pieces(part) {
                    let (here, after) = rest.split_at_mut((range.end - range.start) as usize);
                    self.fill_stored(Some(block), range.start, here)?;
                    rest = after;
                }
                Ok(())
            }
            Data::Signs(block, residual) => {
                let damaged = |reason| block.fault(Arc::new(BlockError::Refused(reason)));
                signs::fill(residual, part, out, |at, buf| self.fill_block(block, at, buf), damaged)
            }
            Data::Rows(rows) => rows.fill(&*self.source, part, out).map_err(|error| Fault {
                block: None,
                offset: rows.data().start,
                error: Arc::new(error.into()),
            }),
            Data::Strided(field) => field.fill(part, out, |at, buf| self.fill_stored(None, at, buf)),
            Data::Png(png) => {
                let pixels = png.needs(&part).0;
                png.fill(part, out, &|at, buf| self.fill(pixels, at..at + buf.len() as u64, buf))
            }
            Data::Computed(computed) => computed.fill(self, part, out),
            Data::Frames(frames) => frames::fill(self, &**frames, part, out),
        }
    }

    /// Copies from a block, decoded or as it stands.
    fn fill_block(&self, block: &BlockRef, mut at: u64, out: &mut [u8]) -> Result<(), Fault> {
        if block.block.codec == Codec::None {
            self.check(block, &(at..at + out.len() as u64))?;
            return self.fill_stored(Some(block), block.block.offset + at, out);
        }
        let mut rest = out;
        while !rest.is_empty() {
            let piece = self.piece(block, at)?;
            let from = &piece.bytes[(at - piece.start) as usize..];
            let length = from.len().min(rest.len());
            let (here, after) = rest.split_at_mut(length);
            here.copy_from_slice(&from[..length]);
            at += length as u64;
            rest = after;
            self.cache.handed_out(self.key(block), block.block.size, length as u64);
        }
        Ok(())
    }

    fn fill_stored(&self, block: Option<&BlockRef>, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.source.read_at(offset, out).map_err(|error: SourceError| Fault {
            block: block.map(|block| block.number),
            offset,
            error: Arc::new(error.into()),
        })
    }

    fn check(&self, block: &BlockRef, range: &Range<u64>) -> Result<(), Fault> {
        if let Some(reason) = &block.error {
            return Err(block.fault(Arc::new(BlockError::Refused(reason.to_string()))));
        }
        self.cache.check(self.key(block), &block.block, &self.source, range).map_err(|error| block.fault(error))
    }

    fn piece(&self, block: &BlockRef, offset: u64) -> Result<Piece, Fault> {
        if let Some(reason) = &block.error {
            return Err(block.fault(Arc::new(BlockError::Refused(reason.to_string()))));
        }
        self.cache.piece(self.key(block), &block.block, &self.source, offset).map_err(|error| block.fault(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Verify;

    #[test]
    fn any_range_is_the_slice_of_the_whole() {
        let source: Arc<dyn Source> = Arc::new((0..=255u8).collect::<Vec<u8>>());
        let reader = Reader { source, cache: Cache::new(1 << 20, Verify::Lazy), container: 0 };
        let block = BlockRef {
            number: 0,
            block: Block { offset: 100, stored_size: 40, size: 40, codec: Codec::None, crc: None },
            error: None,
        };
        let view = View::inline(*b"header")
            .with(10, Data::Stored(0..10))
            .as_bool()
            .with(40, Data::Block(block, 0..40))
            .with(0, Data::Inline(Arc::default()));
        assert_eq!(view.size(), 56);
        let whole = view.read_at(&reader, 0, 1000).unwrap().for_kernel().to_vec();
        assert_eq!(&whole[..17], b"header\x00\x01\x01\x01\x01\x01\x01\x01\x01\x01\x64");
        for offset in 0..60u64 {
            for length in 0..60u64 {
                let expected: Vec<u8> = whole.iter().skip(offset as usize).take(length as usize).copied().collect();
                assert_eq!(view.read_at(&reader, offset, length).unwrap().for_kernel(), expected);
            }
        }
    }
}
