//! Filling a slot: read, decode, check.

use std::{
    io::{self, Read},
    ops::Range,
    thread,
};

use super::{BlockError, Buffer, Reservation, Verify, sums::Sums};
use crate::{
    codec::{Codec, DecodeError, Stream, ZSTD_HEADER, decode_zstd, zstd_window},
    format::{Block, Crc, CrcKind},
    limits::{DECODED_PIECE, FIRST_PIECE, PIECE},
    parallel,
    source::{Source, SourceError, check_range},
};

/// Smallest zstd block in bytes that is not read whole before it is decoded.
const LARGE_BLOCK: u64 = 1 << 20;

/// Bytes of an uncompressed block that each of several threads reads at a time.
const PART: usize = 8 << 20;

/// Bytes that are read at a time if only the checksum is wanted: few enough to stay in the processor's cache, and in
/// memory that the process already has.
const SUMMED: u64 = 128 << 10;

/// Returns the bytes of memory that decoding a block takes in addition to the decoded bytes. `window` is for a zstd
/// stream.
pub(super) fn working(block: &Block, window: u64) -> u64 {
    let stored = if window > 0 && block.codec == Codec::Zstd { 0 } else { stored(block) };
    block.codec.working_memory(window, block.stored_size, block.size).saturating_add(stored)
}

/// Returns how many of them are for the stored bytes, which decoding in one go needs all in memory.
pub(super) fn stored(block: &Block) -> u64 {
    match block.codec {
        Codec::Zstd if goes_to_its_place(block) => 0,
        Codec::None | Codec::Deflate | Codec::DeflateExact | Codec::Zlib | Codec::ZlibExact => 0,
        // One byte more, with which some lz4 blocks are decoded.
        Codec::Zstd | Codec::Lz4 | Codec::Jpeg(..) | Codec::Png(..) | Codec::Chain(_) => {
            block.stored_size.saturating_add(1)
        }
    }
}

/// Returns the window that decoding a block in pieces takes, as its first frame asks. Meaningless for blocks that are
/// not zstd.
pub(super) fn window(block: &Block, source: &dyn Source) -> u64 {
    let mut front = [0; ZSTD_HEADER];
    let front = &mut front[..usize::try_from(block.stored_size).map_or(ZSTD_HEADER, |stored| stored.min(ZSTD_HEADER))];
    match block.codec {
        // A read error is reported when the block is read.
        Codec::Zstd => source.fill(block.offset, front).map_or(zstd_window(&[]), |()| zstd_window(front)),
        _ => 0,
    }
}

/// The decoding of one block.
#[derive(Clone, Copy)]
pub(super) struct Decoding<'a> {
    block: &'a Block,
    source: &'a dyn Source,
    verify: Verify,
    /// The checksum to compare with.
    crc: Option<Crc>,
}

impl<'a> Decoding<'a> {
    pub(super) fn new(block: &'a Block, source: &'a dyn Source, verify: Verify) -> Self {
        Self { block, source, verify, crc: block.crc.filter(|_| verify != Verify::Off) }
    }

    /// Checks an uncompressed block. Parts that `sums` knows are not read again.
    pub(super) fn check(&self, sums: &Sums) -> Result<(), BlockError> {
        self.crc.map_or(Ok(()), |crc| compare(crc.value, self.stored_sum(crc.kind, sums)?))
    }

    /// Decodes and checks a compressed block straight into `out`. The memory of the stored bytes is taken out of
    /// `working`.
    pub(super) fn fill(&self, working: &mut Reservation, out: &mut [u8]) -> Result<(), BlockError> {
        let codec = &self.block.codec;
        match codec {
            Codec::Zstd if goes_to_its_place(self.block) => return self.zstd_into(out),
            Codec::Deflate | Codec::DeflateExact | Codec::Zlib | Codec::ZlibExact => return self.inflate_into(out),
            _ => {}
        }
        let padded = self.padded(working)?;
        let stored = padded.split_last().map_or(&*padded, |(_, stored)| stored);
        if let Codec::Chain(chain) = codec {
            chain.decode_into(stored, out, self.verify != Verify::Off)?;
            return self.crc.map_or(Ok(()), |crc| compare(crc.value, crc.kind.of(out)));
        }
        codec.decode_padded(&padded, out, self.crc.is_some())?;
        let Some(crc) = self.crc else { return Ok(()) };
        let got = crc.kind.of(out);
        compare_either(crc, got, || Ok(crc.kind.of(stored)))?;
        // If the checksum is over the stored bytes, the decoded bytes have none.
        if got == crc.value { Ok(()) } else { Ok(codec.decode_padded(&padded, out, false)?) }
    }

    /// Reads and checks an uncompressed block straight into `out`, in one read; [`Self::check`] and a copy would read it
    /// twice.
    pub(super) fn read_into(&self, out: &mut [u8]) -> Result<(), BlockError> {
        let got = read_parts(self.block.offset, self.source, self.crc.map(|crc| crc.kind), out)?;
        self.crc.map_or(Ok(()), |crc| compare(crc.value, got))
    }

    /// Decodes and checks a zstd block straight into `out`. Neither stored bytes nor a window take memory, whose pages the
    /// kernel would have to clear first, and bytes are checked while they are in the processor's cache.
    fn zstd_into(&self, out: &mut [u8]) -> Result<(), BlockError> {
        self.source.prefetch(&[self.block.stored()]);
        let mut got = 0;
        decode_zstd(Stored::new(self.source, self.block.stored()), out, |bytes| {
            got = self.crc.map_or(0, |crc| crc.kind.append(got, bytes));
        })?;
        self.compare_decoded(got)
    }

    /// Inflates and checks a block straight into `out`.
    fn inflate_into(&self, out: &mut [u8]) -> Result<(), BlockError> {
        self.source.prefetch(&[self.block.stored()]);
        let mut stream = Stream::new(&self.block.codec, Stored::new(self.source, self.block.stored()), 0)?;
        let (mut filled, mut got) = (0, 0);
        for piece in out.chunks_mut(PIECE) {
            let came = stream.fill(piece)?;
            filled += came as u64;
            // Now, while the bytes are in the processor's cache.
            got = self.crc.map_or(0, |crc| crc.kind.append(got, &piece[..came]));
            if came < piece.len() {
                break;
            }
        }
        stream.finish(filled, self.block.size)?;
        self.crc.map_or(Ok(()), |crc| compare(crc.value, got))
    }

    /// Compares the checksum of bytes that were decoded piece by piece.
    fn compare_decoded(&self, got: u32) -> Result<(), BlockError> {
        let Some(expected) = self.crc else { return Ok(()) };
        compare_either(expected, got, || self.stored_sum(expected.kind, &Sums::default()))
    }

    /// Returns the stored bytes, followed by a byte 0.
    fn padded(&self, working: &mut Reservation) -> Result<Buffer, BlockError> {
        let block = self.block;
        check_range(&(block.offset..block.offset.saturating_add(block.stored_size)), self.source.len())?;
        self.source.prefetch(std::slice::from_ref(&block.stored()));
        // The memory of an earlier block has pages already, and serves again after this one.
        let mut bytes = used(block.stored_size + 1, working.split(block.stored_size + 1))?;
        if let Some((last, bytes)) = bytes.split_last_mut() {
            self.source.fill(block.offset, bytes)?;
            *last = 0;
        }
        Ok(bytes)
    }

    /// Returns the checksum of the stored bytes; parts that `known` does not have are read piece by piece.
    fn stored_sum(&self, kind: CrcKind, known: &Sums) -> Result<u32, BlockError> {
        let range = self.block.stored();
        let (mut crc, mut at) = (0, range.start);
        if known.next(0).is_none() {
            self.source.prefetch(std::slice::from_ref(&range));
        }
        let mut piece = zeroed((range.end - range.start).min(SUMMED))?;
        while at < range.end {
            if let Some((end, part)) = known.at(at - range.start) {
                let end = range.start.saturating_add(end);
                crc = kind.combine(crc, part, end - at);
                at = end;
                continue;
            }
            let next = known.next(at - range.start).map_or(range.end, |next| range.start.saturating_add(next));
            let end = range.end.min(at + SUMMED).min(next);
            let piece = &mut piece[..(end - at) as usize];
            self.source.fill(at, piece)?;
            crc = kind.append(crc, piece);
            at = end;
        }
        Ok(crc)
    }
}

/// Reads `out` from `offset` on, large ranges on all cores. Returns the checksum, or 0 without a kind.
fn read_parts(offset: u64, source: &dyn Source, kind: Option<CrcKind>, out: &mut [u8]) -> Result<u32, SourceError> {
    let most = out.len() / PART;
    let threads = if most > 1 { thread::available_parallelism().map_or(1, usize::from).min(most) } else { 1 };
    if threads == 1 {
        return read_part(offset, source, kind, out);
    }
    let parts = out.chunks_mut(PART).enumerate();
    let sums = parallel::map(threads, parts, |(number, part)| {
        let at = offset.saturating_add((number * PART) as u64);
        read_part(at, source, kind, part).map(|crc| (crc, part.len()))
    });
    let append = |before, (sum, length)| kind.map_or(0, |kind| kind.combine(before, sum, length as u64));
    sums.into_iter().try_fold(0, |before, part| part.map(|part| append(before, part)))
}

/// Reads `out` from `offset` on. Returns the checksum, or 0 without a kind.
fn read_part(offset: u64, source: &dyn Source, kind: Option<CrcKind>, out: &mut [u8]) -> Result<u32, SourceError> {
    let (mut sum, mut at) = (0, offset);
    for piece in out.chunks_mut(PIECE) {
        source.fill(at, piece)?;
        at = at.saturating_add(piece.len() as u64);
        // Now, while the bytes are in the processor's cache.
        sum = kind.map_or(0, |kind| kind.append(sum, piece));
    }
    Ok(sum)
}

/// Returns whether a block is decoded from pieces of its stored bytes ([`zstd_into`]). Smaller ones are faster in one
/// go.
fn goes_to_its_place(block: &Block) -> bool {
    block.codec == Codec::Zstd && block.size >= LARGE_BLOCK
}

/// Returns zeros.
///
/// # Errors
/// `Memory` if there is none.
pub(super) fn zeroed(size: u64) -> Result<Buffer, DecodeError> {
    Buffer::zeroed(usize::try_from(size).unwrap_or(usize::MAX)).map_err(|_| DecodeError::Memory(size))
}

/// Returns memory to be filled ([`Buffer::used`]).
///
/// # Errors
/// `Memory` if there is none.
pub(super) fn used(size: u64, room: Reservation) -> Result<Buffer, DecodeError> {
    Buffer::used(usize::try_from(size).unwrap_or(usize::MAX), room).map_err(|_| DecodeError::Memory(size))
}

/// Compares the checksum of the decoded bytes, or else that of the stored ones: one stream writer computes the CRC32C of
/// a compressed block over its stored bytes. Decoding has given exactly the stated size by now (docs/formats/wshard.md 7).
fn compare_either(
    expected: Crc,
    decoded: u32,
    stored: impl FnOnce() -> Result<u32, BlockError>,
) -> Result<(), BlockError> {
    compare(expected.value, decoded).or_else(|error| {
        match expected.kind == CrcKind::Crc32c && stored()? == expected.value {
            true => Ok(()),
            false => Err(error),
        }
    })
}

/// Returns the size of the piece that begins at `start` in a block of `size` bytes; 0 after the last.
pub(super) fn piece_size(start: u64, size: u64) -> u64 {
    let most = usize::try_from(start).unwrap_or(usize::MAX).clamp(FIRST_PIECE, DECODED_PIECE);
    size.saturating_sub(start).min(most as u64)
}

/// Decodes a large block of a codec that streams, piece by piece. Each piece may be shown at once.
pub(super) struct Pieces<'a> {
    of: Decoding<'a>,
    stream: Stream<Stored<'a>>,
    /// Bytes decoded so far, and their checksum.
    got: u64,
    crc: u32,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(of: Decoding<'a>, window: u64) -> Result<Self, BlockError> {
        // All of it will be read in order, so the rest can be fetched while this decodes.
        of.source.prefetch(&[of.block.stored()]);
        let stream = Stream::new(&of.block.codec, Stored::new(of.source, of.block.stored()), window)?;
        Ok(Self { of, stream, got: 0, crc: 0 })
    }

    /// Returns the size of the next piece; 0 after the last. Small pieces come first, so that a reader of the front
    /// does not wait for a MiB.
    pub(super) fn next_size(&self) -> u64 {
        piece_size(self.got, self.of.block.size)
    }

    /// Decodes the next piece into `out`, which has exactly its size. Fails on the last piece if the checksum is wrong.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> Result<(), BlockError> {
        let size = self.of.block.size;
        let filled = self.stream.fill(out)?;
        self.got += filled as u64;
        if filled < out.len() {
            return Err(DecodeError::Size { got: self.got, size }.into());
        }
        if let Some(expected) = self.of.crc {
            self.crc = expected.kind.append(self.crc, out);
        }
        if self.got < size {
            return Ok(());
        }
        self.stream.finish(self.got, size)?;
        self.of.compare_decoded(self.crc)
    }

    /// Returns the next piece as memory of its own, counted by `room`.
    pub(super) fn next(&mut self, room: Reservation) -> Result<Buffer, BlockError> {
        let mut piece = used(self.next_size(), room)?;
        self.fill(&mut piece)?;
        Ok(piece)
    }
}

pub(super) fn compare(stored: u32, computed: u32) -> Result<(), BlockError> {
    if stored == computed { Ok(()) } else { Err(BlockError::Checksum { stored, computed }) }
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
        if length == 0 {
            return Ok(0);
        }
        self.source.fill(self.at, &mut buf[..length]).map_err(io::Error::other)?;
        self.at += length as u64;
        Ok(length)
    }
}
