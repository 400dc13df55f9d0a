//! Blosc 1 buffers.
//!
//! A header of 16 bytes, then blocks that are decoded independently. A block has one stream, or one for each byte of an
//! element.

use super::{Codec, DecodeError, Filter, lz77, memory, shuffle};

/// Bytes of the header.
const HEAD: usize = 16;

const SHUFFLED: u8 = 1;
const COPIED: u8 = 2;
const BIT_SHUFFLED: u8 = 4;
const NOT_SPLIT: u8 = 16;

/// Blocks are not split if an element has more bytes or if the block has fewer elements.
const MOST_SPLIT: usize = 16;
const LEAST_ELEMENTS: usize = 128;

fn bad(reason: impl ToString) -> DecodeError {
    DecodeError::Corrupt { codec: "blosc", reason: reason.to_string() }
}

/// The header of a buffer.
struct Head {
    flags: u8,
    /// Bytes of an element.
    width: usize,
    /// Bytes when decoded.
    size: usize,
    /// Bytes of a block.
    block: usize,
    /// Bytes of the buffer.
    stored: usize,
}

impl Head {
    fn parse(stored: &[u8]) -> Result<Self, DecodeError> {
        let Some(&[version, _, flags, width, ref sizes @ ..]) = stored.first_chunk::<HEAD>() else {
            return Err(bad("it is shorter than its head"));
        };
        let [size, block, length] = [0, 4, 8].map(|at| little(sizes, at).unwrap_or_default());
        if !matches!(version, 1 | 2) {
            return Err(bad(format!("version {version} is not known")));
        }
        if flags & 8 != 0 {
            return Err(bad("it is of Blosc 2"));
        }
        if length < HEAD || length > stored.len() {
            return Err(bad(format!("it says that it has {length} bytes, and has {}", stored.len())));
        }
        Ok(Self { flags, width: width.into(), size, block, stored: length })
    }
}

/// Returns the 32-bit number at a place.
fn little(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

/// Returns how many bytes a buffer decodes to, as stated.
pub(super) fn size(stored: &[u8]) -> Result<u64, DecodeError> {
    Ok(Head::parse(stored)?.size as u64)
}

/// Decodes a buffer to exactly the size of `out`. If blocks are shuffled, takes at most the same amount of memory
/// again.
pub(super) fn decode_into(stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    decode_front(stored, out.len() as u64, out)
}

/// Fills `out` with the first bytes of a buffer that decodes to `size` bytes. Later blocks are not read. Takes memory
/// for two blocks.
pub(super) fn decode_front(stored: &[u8], size: u64, out: &mut [u8]) -> Result<(), DecodeError> {
    let head = Head::parse(stored)?;
    if head.size as u64 != size || out.len() > head.size {
        return Err(DecodeError::Size { got: head.size as u64, size });
    }
    let stored = &stored[..head.stored];
    if head.flags & COPIED != 0 {
        let bytes = stored.get(HEAD..HEAD + head.size).ok_or_else(|| bad("it ends early"))?;
        out.copy_from_slice(&bytes[..out.len()]);
        return Ok(());
    }
    if out.is_empty() {
        return Ok(());
    }
    if head.block == 0 || head.width == 0 {
        return Err(bad("blocks or elements have no bytes"));
    }
    let blocks = head.size.div_ceil(head.block);
    let first = blocks.checked_mul(4).and_then(|size| size.checked_add(HEAD)).filter(|first| *first <= stored.len());
    let first = first.ok_or_else(|| bad("it ends in the offsets of its blocks"))?;
    let is_shuffled = head.width > 1 && head.flags & SHUFFLED != 0 || head.flags & BIT_SHUFFLED != 0;
    let largest = head.block.min(head.size) as u64;
    // Checked before memory is taken for a whole block when only a part is wanted.
    let most = Filter::Blosc.max_size(stored.len() as u64);
    if largest > most {
        return Err(DecodeError::Impossible { codec: "blosc", stored: stored.len() as u64, size: largest });
    }
    let mut shuffled = if is_shuffled { memory(largest)? } else { Vec::new() };
    let mut whole = Vec::new();
    for (number, wanted) in out.chunks_mut(head.block).enumerate() {
        // The last one may be wanted in part.
        let length = head.block.min(head.size - number * head.block);
        if wanted.len() < length {
            whole = memory(length as u64)?;
        }
        let is_part = wanted.len() < length;
        let out = if is_part { &mut *whole } else { &mut *wanted };
        let at = little(stored, HEAD + 4 * number).filter(|at| *at >= first);
        let from = at.and_then(|at| stored.get(at..)).ok_or_else(|| bad("a block stands outside"))?;
        if is_shuffled {
            let shuffled = &mut shuffled[..out.len()];
            decode_block(&head, from, shuffled)?;
            match head.flags & BIT_SHUFFLED != 0 {
                // The library does not shuffle a block whose number of elements is not a multiple of 8.
                true if out.len() / head.width % 8 != 0 => out.copy_from_slice(shuffled),
                true => shuffle::unshuffle_bits(head.width, shuffled, out),
                false => shuffle::unshuffle(head.width, shuffled, out),
            }
        } else {
            decode_block(&head, from, out)?;
        }
        if is_part {
            wanted.copy_from_slice(&whole[..wanted.len()]);
        }
    }
    Ok(())
}

/// Decodes the streams of a block.
fn decode_block(head: &Head, mut from: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let is_split = head.flags & NOT_SPLIT == 0
        && head.width <= MOST_SPLIT
        && head.block / head.width >= LEAST_ELEMENTS
        && out.len() == head.block;
    let streams = if is_split { head.width } else { 1 };
    if !out.len().is_multiple_of(streams) {
        return Err(bad("a block has no whole elements"));
    }
    for out in out.chunks_exact_mut(out.len() / streams) {
        let length = little(from, 0).filter(|length| *length > 0);
        let stream = length.and_then(|length| from.get(4..4usize.checked_add(length)?));
        let stream = stream.ok_or_else(|| bad("a stream stands outside"))?;
        from = from.get(4 + stream.len()..).unwrap_or_default();
        if stream.len() == out.len() {
            out.copy_from_slice(stream);
            continue;
        }
        match head.flags >> 5 {
            0 => lz77::blosclz(stream, out)?,
            1 => Codec::Lz4.decode_into(stream, out)?,
            3 => Filter::Zlib.inflate(stream, out)?,
            4 => Codec::Zstd.decode_into(stream, out)?,
            other => return Err(bad(format!("codec {other} is not known"))),
        }
    }
    Ok(())
}
