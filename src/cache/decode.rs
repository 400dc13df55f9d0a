//! Filling a slot: read, decode, check.

use std::{
    io::{self, Read},
    ops::Range,
};

use super::{BlockError, Buffer, Slot, Verify};
use crate::{
    codec::{Codec, DecodeError, Stream},
    format::Block,
    limits::{DECODED_PIECE, FIRST_PIECE, PIECE},
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
    // exactly the stated size by now (docs/formats/wshard.md 7).
    compare(crc, crc32c::crc32c(bytes)).or_else(|error| if crc32c::crc32c(stored) == crc { Ok(()) } else { Err(error) })
}

/// The bytes of a DEFLATE or zlib block; its container has no checksum of its own.
pub(crate) fn inflate(block: &Block, source: &dyn Source) -> Result<Vec<u8>, BlockError> {
    let mut stream = Stream::new(block.codec, Stored::new(source, block.stored()))?;
    let bytes = stream.take(block.size)?;
    stream.finish(bytes.len() as u64, block.size)?;
    Ok(bytes)
}

/// A large block of a codec that streams, decoded piece by piece, each of which may be shown as soon as it is there.
pub(super) struct Pieces<'a> {
    block: &'a Block,
    source: &'a dyn Source,
    /// The checksum to compare with.
    expected: Option<u32>,
    stream: Stream<Stored<'a>>,
    /// Bytes decoded so far, and their checksum.
    got: u64,
    crc: u32,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(block: &'a Block, source: &'a dyn Source, verify: Verify) -> Result<Self, BlockError> {
        let stream = Stream::new(block.codec, Stored::new(source, block.stored()))?;
        let expected = block.crc.filter(|_| verify != Verify::Off);
        Ok(Self { block, source, expected, stream, got: 0, crc: 0 })
    }

    /// The size of the next piece; 0 behind the last. Small ones come first: who wants the front should not wait for a
    /// MiB.
    pub(super) fn next_size(&self) -> u64 {
        let size = usize::try_from(self.got).unwrap_or(usize::MAX).clamp(FIRST_PIECE, DECODED_PIECE);
        (self.block.size - self.got).min(size as u64)
    }

    /// Decodes the next piece, for which `out` has exactly the room. The last one is good only if the checksum is
    /// right.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> Result<(), BlockError> {
        let size = self.block.size;
        let filled = self.stream.fill(out)?;
        self.got += filled as u64;
        if filled < out.len() {
            return Err(DecodeError::Size { got: self.got, size }.into());
        }
        if self.expected.is_some() {
            self.crc = crc32c::crc32c_append(self.crc, out);
        }
        if self.got < size {
            return Ok(());
        }
        self.stream.finish(self.got, size)?;
        let Some(expected) = self.expected else { return Ok(()) };
        compare(expected, self.crc).or_else(|error| {
            // The quirk of `check`.
            if stored_crc(self.block, self.source)? == expected { Ok(()) } else { Err(error) }
        })
    }

    /// The next piece as memory of its own; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Buffer>, BlockError> {
        let size = self.next_size();
        if size == 0 {
            return Ok(None);
        }
        let mut piece = room(size)?;
        self.fill(&mut piece)?;
        Ok(Some(piece))
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
