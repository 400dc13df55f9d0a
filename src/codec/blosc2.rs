//! Contiguous frames of Blosc 2 with one chunk, as HDF5's filter 32026 writes them (c-blosc2, README_CFRAME_FORMAT.rst and
//! README_B2ND_METALAYER.rst).
//!
//! A header in msgpack, the chunk, and a chunk with the offset of the first one. If there is a layer `b2nd` in the
//! header, the blocks of the chunk are the blocks of an array of several axes, and otherwise consecutive bytes.

use super::{DecodeError, blosc, memory, to_usize};

/// First bytes of a frame.
const MAGIC: &[u8] = b"\x9e\xa8b2frame\0";

/// Places in the header.
const HEADER_LENGTH: usize = 11;
const FRAME_LENGTH: usize = 16;
const VERSION: usize = 25;
const KIND: usize = 26;
const SIZE: usize = 30;
const STORED_SIZE: usize = 39;
const WIDTH: usize = 48;
const CHUNK_SIZE: usize = 58;
const LAYERS: usize = 91;

/// Latest version that is known.
const LATEST: u64 = 2;

/// Most layers, and most axes of an array.
const MOST_LAYERS: u64 = 16;
const MOST_AXES: usize = 16;

fn bad(reason: impl ToString) -> DecodeError {
    DecodeError::Corrupt { codec: "blosc2", reason: reason.to_string() }
}

/// Returns a big-endian number of `N` bytes at a place.
fn big<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, DecodeError> {
    let number = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<N>());
    let number = number.ok_or_else(|| bad("it ends in its header"))?;
    Ok(number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The only chunk of a frame.
struct Frame<'a> {
    /// Bytes when decoded, with what fills up blocks at the edges.
    size: u64,
    chunk: Chunk<'a>,
    /// The axes of its elements, if its blocks are blocks of them.
    array: Option<Array>,
}

/// A chunk.
enum Chunk<'a> {
    Stored(&'a [u8]),
    Zeros,
    /// Floats of this many bytes that are no number.
    Nan(u64),
}

/// An array in blocks.
struct Array {
    /// Bytes of an element.
    width: u64,
    shape: Vec<u64>,
    block: Vec<u64>,
}

impl<'a> Frame<'a> {
    fn parse(stored: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, length) = (big::<4>(stored, HEADER_LENGTH)?, big::<8>(stored, FRAME_LENGTH)?);
        let stored = stored.get(..to_usize(length)).ok_or_else(|| bad("it ends early"))?;
        let (version, kind) = (big::<1>(stored, VERSION)?, big::<1>(stored, KIND)?);
        if version & 0xf > LATEST || kind != 0 {
            return Err(bad(format!("a frame of version {} and kind {kind} is not known", version & 0xf)));
        }
        let (size, stored_size) = (big::<8>(stored, SIZE)?, big::<8>(stored, STORED_SIZE)?);
        let (width, chunk_size) = (big::<4>(stored, WIDTH)?, big::<4>(stored, CHUNK_SIZE)?);
        if size > chunk_size {
            return Err(bad("it has more than one chunk"));
        }
        let array = Array::find(stored, width)?;
        let part = |at: Option<u64>| {
            let at = at.and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| stored.get(at..)).ok_or_else(|| bad("its chunk stands outside"))
        };
        let mut offset = [0; 8];
        blosc::decode_into(part(header.checked_add(stored_size))?, &mut offset)?;
        // An offset below zero says what all elements are.
        let chunk = match (i64::from_le_bytes(offset), offset[7] & 0x7f) {
            (0.., _) => Chunk::Stored(part(header.checked_add(u64::from_le_bytes(offset)))?),
            // Bytes that were never set may be any; they are shown as zeros.
            (_, 1 | 4) => Chunk::Zeros,
            (_, 2) => Chunk::Nan(width),
            (_, other) => return Err(bad(format!("special elements of kind {other} are not known"))),
        };
        Ok(Self { size, chunk, array })
    }

    /// Returns the bytes of its elements.
    fn size(&self) -> Result<u64, DecodeError> {
        match &self.array {
            Some(array) => product(array.width, &array.shape),
            None => Ok(self.size),
        }
    }
}

fn product(width: u64, axes: &[u64]) -> Result<u64, DecodeError> {
    let product = axes.iter().try_fold(width, |size, axis| size.checked_mul(*axis));
    product.ok_or_else(|| bad("an array with too many elements"))
}

impl Array {
    /// Finds the array among the layers of a header.
    fn find(stored: &[u8], width: u64) -> Result<Option<Self>, DecodeError> {
        let (mut at, count) = (LAYERS + 3, big::<2>(stored, LAYERS + 1)?);
        for _ in 0..count.min(MOST_LAYERS) {
            let name = to_usize(big::<1>(stored, at)? & 0x1f);
            let is_array = stored.get(at + 1..at + 1 + name) == Some(b"b2nd");
            at += 1 + name;
            let place = big::<4>(stored, at + 1)?;
            at += 5;
            if is_array {
                return Self::parse(stored, to_usize(place), width).map(Some);
            }
        }
        Ok(None)
    }

    fn parse(stored: &[u8], place: usize, width: u64) -> Result<Self, DecodeError> {
        // A type and a length, then the length of the list, its version and the number of axes.
        let rank = to_usize(big::<1>(stored, place + 7)?);
        if rank == 0 || rank > MOST_AXES {
            return Err(bad(format!("an array of {rank} axes")));
        }
        let mut at = place + 8;
        let mut axes = |is_wide: bool| -> Result<Vec<u64>, DecodeError> {
            at += 1;
            let axes = (0..rank).map(|axis| match is_wide {
                true => big::<8>(stored, at + 9 * axis + 1),
                false => big::<4>(stored, at + 5 * axis + 1),
            });
            let axes = axes.collect();
            at += rank * if is_wide { 9 } else { 5 };
            axes
        };
        let (shape, chunk, block) = (axes(true)?, axes(false)?, axes(false)?);
        let is_inside = |(block, shape): (&u64, &u64)| (1..=*shape).contains(block);
        match shape == chunk && block.iter().zip(&shape).all(is_inside) {
            true => Ok(Self { width, shape, block }),
            false => Err(bad("blocks and shape of its array are not those of one chunk")),
        }
    }

    /// Returns the number of blocks along each axis.
    fn counts(&self) -> Vec<u64> {
        self.shape.iter().zip(&self.block).map(|(shape, block)| shape.div_ceil(*block)).collect()
    }

    /// Copies the elements of a block to their places.
    fn place(&self, number: u64, block: &[u8], out: &mut [u8]) -> Option<()> {
        let rank = self.shape.len();
        // Of each axis: the first element of the block, and how many of it are inside of the array.
        let (mut starts, mut lengths, mut rest) = (vec![0; rank], vec![0; rank], number);
        for (axis, count) in self.counts().into_iter().enumerate().rev() {
            let start = rest % count * self.block.get(axis)?;
            rest /= count;
            *starts.get_mut(axis)? = start;
            *lengths.get_mut(axis)? = self.shape.get(axis)?.saturating_sub(start).min(*self.block.get(axis)?);
        }
        let (last, outer) = lengths.split_last()?;
        let bytes = usize::try_from(last * self.width).ok()?;
        let rows: u64 = outer.iter().product();
        for row in 0..if bytes == 0 { 0 } else { rows } {
            let (mut rest, mut from, mut to, mut block_step, mut step) = (row, 0, *starts.last()?, 1, 1);
            for axis in (0..rank - 1).rev() {
                block_step *= self.block.get(axis + 1)?;
                step *= self.shape.get(axis + 1)?;
                let at = rest % outer.get(axis)?;
                rest /= outer.get(axis)?;
                from += at * block_step;
                to += (starts.get(axis)? + at) * step;
            }
            let (from, to) = (to_usize(from * self.width), to_usize(to * self.width));
            out.get_mut(to..to + bytes)?.copy_from_slice(block.get(from..from + bytes)?);
        }
        Some(())
    }
}

/// Returns how many bytes a chunk or a frame with one decodes to, as stated.
pub(super) fn size(stored: &[u8]) -> Result<u64, DecodeError> {
    if stored.starts_with(MAGIC) { Frame::parse(stored)?.size() } else { blosc::size(stored) }
}

/// Decodes a chunk, or a frame with one, to exactly the size of `out`. Takes at most memory for three blocks, of which
/// none is larger than `out`.
pub(super) fn decode_into(stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    if !stored.starts_with(MAGIC) {
        return blosc::decode_into(stored, out);
    }
    let frame = Frame::parse(stored)?;
    let (got, size) = (frame.size()?, out.len() as u64);
    if got != size {
        return Err(DecodeError::Size { got, size });
    }
    let chunk = match frame.chunk {
        Chunk::Stored(chunk) => chunk,
        Chunk::Zeros => {
            out.fill(0);
            return Ok(());
        }
        Chunk::Nan(width) => return blosc::fill_nan(to_usize(width), out),
    };
    let Some(array) = frame.array else { return blosc::decode_into(chunk, out) };
    let block = product(array.width, &array.block)?;
    let count = product(1, &array.counts())?;
    let all = block.checked_mul(count).ok_or_else(|| bad("an array with too many elements"))?;
    let Some(mut blocks) = blosc::Blocks::open(chunk, (block, all), out)? else { return Ok(()) };
    let (mut decoded, mut first) = (memory(block)?, Vec::new());
    for number in 0..count {
        let reference = (number > 0).then_some(&*first);
        blocks.decode(to_usize(number), reference, &mut decoded)?;
        if number == 0 && blocks.have_reference() {
            first = memory(block)?;
            first.copy_from_slice(&decoded);
        }
        array.place(number, &decoded, out).ok_or_else(|| bad("a block stands outside of its array"))?;
    }
    Ok(())
}
