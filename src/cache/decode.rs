//! Filling a slot: read, decode, check.

use std::{
    io::{self, Read},
    ops::Range,
};

use super::{BlockError, Buffer, Slot, Verify};
use crate::{
    codec::{Codec, DecodeError, Stream},
    format::Block,
    limits::{FIRST_PIECE, PIECE},
    source::Source,
};

/// Decodes and checks a block before anybody sees it. Of an uncompressed block only the verdict is kept.
pub(super) fn whole(block: &Block, source: &dyn Source, verify: Verify, slot: &Slot) -> Result<(), BlockError> {
    let crc = block.crc.filter(|_| verify != Verify::Off);
    if block.codec == Codec::None {
        let Some(crc) = crc else { return Ok(()) };
        return compare(crc, stored_crc(block, source)?);
    }
    if matches!(block.codec, Codec::Deflate | Codec::Zlib) {
        // Nothing is allocated for a size, stored or decoded, that the file only claims.
        return slot.push(inflate(block, source)?.into(), || ());
    }
    let stored = stored(block, source)?;
    // Nothing is allocated for a size that the codec can't make of these bytes.
    block.codec.check_size(block.stored_size, block.size)?;
    let mut bytes = room(block.size)?;
    block.codec.decode_into(&stored, &mut bytes)?;
    check(crc, &bytes, &stored)?;
    slot.push(bytes, || ())
}

/// Decodes and checks a compressed block straight to its place.
pub(super) fn into(block: &Block, source: &dyn Source, verify: Verify, out: &mut [u8]) -> Result<(), BlockError> {
    let stored = stored(block, source)?;
    block.codec.decode_into(&stored, out)?;
    check(block.crc.filter(|_| verify != Verify::Off), out, &stored)
}

fn room(size: u64) -> Result<Buffer, DecodeError> {
    Buffer::zeroed(usize::try_from(size).unwrap_or(usize::MAX)).map_err(|_| DecodeError::Memory(size))
}

fn stored(block: &Block, source: &dyn Source) -> Result<Buffer, BlockError> {
    let range = block.stored();
    if range.end > source.len() {
        // Says what is wrong.
        return Ok(source.read(range)?.into());
    }
    let mut bytes = room(block.stored_size)?;
    source.read_at(range.start, &mut bytes)?;
    Ok(bytes)
}

fn check(crc: Option<u32>, bytes: &[u8], stored: &[u8]) -> Result<(), BlockError> {
    let Some(crc) = crc else { return Ok(()) };
    // A quirk of one stream writer: the checksum of a compressed block over its stored bytes. Decoding has given
    // exactly the stated size by now (formats/wshard.md 7).
    compare(crc, crc32c::crc32c(bytes)).or_else(|error| if crc32c::crc32c(stored) == crc { Ok(()) } else { Err(error) })
}

/// The bytes of a DEFLATE or zlib block; its container has no checksum of its own.
pub(crate) fn inflate(block: &Block, source: &dyn Source) -> Result<Vec<u8>, BlockError> {
    let mut stream = Stream::new(block.codec, Stored::new(source, block.stored()))?;
    let bytes = stream.take(block.size)?;
    stream.finish(bytes.len() as u64, block.size)?;
    Ok(bytes)
}

/// Decodes a large block of a codec that streams, handing out each piece as it comes, but the last only after the checksum.
pub(super) fn in_pieces(
    block: &Block,
    source: &dyn Source,
    verify: Verify,
    each: &mut dyn FnMut(Buffer) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    let range = block.stored();
    let mut stream = Stream::new(block.codec, Stored::new(source, range))?;
    let (mut got, mut crc) = (0u64, 0);
    loop {
        let left = block.size - got;
        // Small ones first: who wants the front should not wait for a MiB.
        let next = usize::try_from(got).unwrap_or(PIECE).clamp(FIRST_PIECE, PIECE);
        let mut piece = room(left.min(next as u64))?;
        let filled = stream.fill(&mut piece)?;
        got += filled as u64;
        if filled < piece.len() {
            return Err(DecodeError::Size { got, size: block.size }.into());
        }
        crc = crc32c::crc32c_append(crc, &piece);
        if got == block.size {
            stream.finish(got, block.size)?;
            if let Some(expected) = block.crc.filter(|_| verify != Verify::Off) {
                compare(expected, crc)
                    .or_else(|error| if stored_crc(block, source)? == expected { Ok(()) } else { Err(error) })?;
            }
            return each(piece);
        }
        each(piece)?;
    }
}

fn compare(stored: u32, computed: u32) -> Result<(), BlockError> {
    if stored == computed { Ok(()) } else { Err(BlockError::Checksum { stored, computed }) }
}

/// The checksum of the stored bytes, read piece by piece.
fn stored_crc(block: &Block, source: &dyn Source) -> Result<u32, BlockError> {
    let range = block.stored();
    let (mut crc, mut at) = (0, range.start);
    while at < range.end {
        let end = range.end.min(at + PIECE as u64);
        crc = crc32c::crc32c_append(crc, &source.read(at..end)?);
        at = end;
    }
    Ok(crc)
}

/// The stored bytes of a block as a reader.
pub(crate) struct Stored<'a> {
    source: &'a dyn Source,
    at: u64,
    end: u64,
}

impl<'a> Stored<'a> {
    pub(crate) fn new(source: &'a dyn Source, range: Range<u64>) -> Self {
        Self { source, at: range.start, end: range.end }
    }
}

impl Read for Stored<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.end - self.at).map_or(buf.len(), |left| left.min(buf.len()));
        self.source.read_at(self.at, &mut buf[..length]).map_err(io::Error::other)?;
        self.at += length as u64;
        Ok(length)
    }
}
