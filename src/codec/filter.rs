//! One step of decoding a block ([`Chain`](super::Chain)).

use std::{
    io::{self, Read},
    sync::Arc,
};

use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};

use super::{
    ChecksumKind, Codec, CrcKind, DecodeError, Delta, Nbit, ScaleOffset, Scaled, Szip, blosc, blosc2, chain::Size,
    lz77, memory, shuffle, to_usize,
};

/// A step of a chain: bytes to bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// A DEFLATE stream.
    Deflate,
    /// A zlib stream. Bytes after it are ignored.
    Zlib,
    /// Consecutive gzip members, and zeros after the last.
    Gzip,
    /// Consecutive zstd frames.
    Zstd,
    /// One zstd frame. Bytes after it are ignored.
    ZstdFrame,
    /// Consecutive bzip2 streams.
    Bzip2,
    /// One bzip2 stream. Bytes after it are ignored.
    Bzip2Stream,
    /// One lz4 block without a size.
    Lz4,
    /// The size as a little-endian u32, and one lz4 block, as numcodecs writes them.
    Lz4Sized,
    /// HDF5's filter 32004: the size as a big-endian u64, the size of a block as a u32, then blocks, each after its
    /// stored size.
    Lz4Blocks,
    /// One lz4 frame. Bytes after it are ignored.
    Lz4Frame,
    /// LZF without a header.
    Lzf,
    /// A Snappy block.
    Snappy,
    /// A Blosc 1 buffer, or a chunk of Blosc 2.
    Blosc,
    /// The first bytes of a Blosc 1 buffer, or of a chunk of Blosc 2, that decodes to this size.
    BloscFront(u64),
    /// HDF5's filter 32026: a frame of Blosc 2 with one chunk, or a chunk.
    Blosc2,
    /// Byte shuffle of elements of this many bytes: first the first byte of every element, then the second, and so on.
    Shuffle(u32),
    /// Bit shuffle: first the lowest bit of every element, then the next, and so on.
    Bitshuffle(Bitshuffle),
    /// Differences of numbers.
    Delta(Delta),
    /// HDF5's filter 4: the size as a little-endian u32, then losslessly coded samples.
    Szip(Szip),
    /// HDF5's filter 5: only the significant bits of elements.
    Nbit(Arc<Nbit>),
    /// HDF5's filter 6: distances from the least value of a chunk.
    ScaleOffset(ScaleOffset),
    /// Numbers that were scaled and rounded.
    Scaled(Scaled),
    /// Booleans as bits, the highest first, after a byte with the number of unused bits in the last byte.
    PackBits,
    /// A checksum of the other bytes, little-endian.
    Checksum {
        /// Its kind.
        kind: ChecksumKind,
        /// Whether it stands before the bytes, not behind them.
        is_in_front: bool,
    },
    /// Changes nothing: checks the size and the CRC-32, which are known from elsewhere.
    Known {
        /// Bytes.
        size: u64,
        /// The CRC-32.
        crc: u32,
    },
}

/// How elements are bit-shuffled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bitshuffle {
    /// Bytes of an element.
    pub width: u32,
    /// Elements of a block, a multiple of 8; 0 for the library's own choice.
    pub block: u32,
    /// How each block is compressed: lz4, zstd, or not at all. If it is, a header of 12 bytes with the sizes comes
    /// first.
    pub compressed: Option<BlockCodec>,
}

/// What compresses the blocks of [`Bitshuffle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "their names say it")]
pub enum BlockCodec {
    Lz4,
    Zstd,
}

/// Memory that a stream decoder takes, in bytes.
const CONTEXT: u64 = 640 << 10;

/// Memory that a bzip2 decoder takes for blocks of 900,000 bytes, 4 bytes of tables for each.
const BZIP2_TABLES: u64 = 4 << 20;

impl Filter {
    /// Returns the name in `container.json`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Zlib => "zlib",
            Self::Gzip => "gzip",
            Self::Zstd | Self::ZstdFrame => "zstd",
            Self::Bzip2 | Self::Bzip2Stream => "bzip2",
            Self::Lz4 | Self::Lz4Sized | Self::Lz4Blocks | Self::Lz4Frame => "lz4",
            Self::Lzf => "lzf",
            Self::Snappy => "snappy",
            Self::Blosc | Self::BloscFront(_) => "blosc",
            Self::Blosc2 => "blosc2",
            Self::Shuffle(_) => "shuffle",
            Self::Bitshuffle(_) => "bitshuffle",
            Self::Delta(_) => "delta",
            Self::Szip(_) => "szip",
            Self::Nbit(_) => "nbit",
            Self::ScaleOffset(_) => "scaleoffset",
            Self::Scaled(_) => "fixedscaleoffset",
            Self::PackBits => "packbits",
            Self::Known { .. } => "crc32",
            Self::Checksum { kind, .. } => kind.name(),
        }
    }

    /// Returns the codec that does the same for a whole block.
    pub(super) fn codec(&self) -> Option<Codec> {
        match self {
            Self::Zlib => Some(Codec::ZlibExact),
            Self::Zstd => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Returns the number of stored bytes for `size` decoded ones: exactly, or an upper bound.
    pub(super) fn stored(&self, size: Size) -> Size {
        match self {
            Self::Shuffle(_) | Self::Bitshuffle(Bitshuffle { compressed: None, .. }) => size,
            Self::Delta(delta) => size.map(|size| delta.stored_size(size)),
            Self::Scaled(scaled) => size.map(|size| scaled.stored_size(size)),
            Self::PackBits => size.map(|size| size.div_ceil(8).saturating_add(1)),
            Self::Known { size, .. } => Size::exactly(*size),
            Self::Checksum { .. } => size.map(|size| size.saturating_add(4)),
            _ => Size::up_to(Codec::Zlib.max_stored(size.most)),
        }
    }

    /// Returns the most bytes that `stored` bytes can decode to.
    pub(super) fn max_size(&self, stored: u64) -> u64 {
        let times = |factor: u64| stored.saturating_mul(factor).saturating_add(64);
        match self {
            Self::Deflate | Self::Zlib | Self::Gzip => times(1032),
            Self::Zstd | Self::ZstdFrame => Codec::Zstd.max_size(stored),
            // A block of some 32 bytes holds 900,000 runs of up to 255 bytes, each stored as 5.
            Self::Bzip2 | Self::Bzip2Stream => times(1 << 21),
            Self::Lz4 | Self::Lz4Sized | Self::Lz4Blocks | Self::Lz4Frame => times(255),
            // A match of 264 bytes takes 3.
            Self::Lzf => times(88),
            // A match of 64 bytes takes 3.
            Self::Snappy => times(22),
            // A chunk of Blosc 2 whose elements are all equal has 32 bytes.
            Self::Blosc | Self::BloscFront(_) | Self::Blosc2 => times(1 << 21),
            // zstd is the codec that expands most.
            Self::Bitshuffle(Bitshuffle { compressed: Some(_), .. }) => times(1 << 15),
            Self::Shuffle(_) | Self::Bitshuffle(_) => stored,
            Self::Delta(delta) => delta.size(stored),
            // 64 blocks of 64 samples of 4 bytes, all of them 0, take 9 bits.
            Self::Szip(_) => times(1 << 14),
            Self::Nbit(nbit) => nbit.max_size(stored),
            // Elements that are all the same take no bits.
            Self::ScaleOffset(scale) => scale.size(),
            Self::Scaled(scaled) => scaled.size(stored),
            Self::PackBits => stored.saturating_mul(8),
            Self::Checksum { .. } => stored.saturating_sub(4),
            Self::Known { size, .. } => stored.min(*size),
        }
    }

    /// Returns the bytes of memory that it takes to decode to `size` bytes, in addition to these and the stored ones.
    pub(super) fn working_memory(&self, size: u64) -> u64 {
        match self {
            Self::Delta(_) | Self::Nbit(_) | Self::ScaleOffset(_) | Self::Scaled(_) | Self::PackBits => 0,
            Self::Checksum { .. } | Self::Known { .. } | Self::Lzf | Self::Snappy | Self::Lz4Blocks => 0,
            Self::Szip(szip) => szip.working_memory(size),
            Self::Shuffle(_) => shuffle::WORKING,
            Self::Bzip2 | Self::Bzip2Stream => BZIP2_TABLES,
            // Two blocks of up to 4 MiB, and what matches of the next ones may reach.
            Self::Lz4Frame => 9 << 20,
            Self::Blosc | Self::Bitshuffle(Bitshuffle { compressed: Some(_), .. }) => size.saturating_add(CONTEXT),
            // Three blocks, which may be as large as the chunk.
            Self::Blosc2 => size.saturating_mul(3).saturating_add(CONTEXT),
            // Two blocks, which may be as large as the buffer.
            Self::BloscFront(whole) => whole.saturating_mul(2).saturating_add(CONTEXT),
            _ => CONTEXT,
        }
    }

    /// Decodes to exactly the size of `out`.
    pub(super) fn decode_into(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let size = out.len() as u64;
        match self {
            Self::Deflate | Self::Zlib => self.inflate(stored, out),
            Self::Gzip => gunzip(stored, out),
            Self::Zstd => Codec::Zstd.decode_into(stored, out),
            Self::ZstdFrame => Codec::Zstd.decode_into(self.first_frame(stored)?, out),
            Self::Bzip2 | Self::Bzip2Stream => self.read_exactly(Bunzip2::new(self, stored)?, out),
            Self::Lz4 => Codec::Lz4.decode_into(stored, out),
            Self::Lz4Sized => {
                let (stated, block) = self.split_u32(stored)?;
                self.exact(stated.into(), size)?;
                Codec::Lz4.decode_into(block, out)
            }
            Self::Lz4Blocks => self.lz4_blocks(stored, out),
            Self::Lz4Frame => self.read_exactly(One::new(lz4_flex::frame::FrameDecoder::new(stored)), out),
            Self::Lzf => lz77::lzf(stored, out),
            Self::Snappy => {
                let stated = snap::raw::decompress_len(stored).map_err(|error| self.corrupt(error))?;
                self.exact(stated as u64, size)?;
                let got = snap::raw::Decoder::new().decompress(stored, out).map_err(|error| self.corrupt(error))?;
                self.exact(got as u64, size)
            }
            Self::Blosc => blosc::decode_into(stored, out),
            Self::Blosc2 => blosc2::decode_into(stored, out),
            Self::BloscFront(whole) => blosc::decode_front(stored, *whole, out),
            Self::Shuffle(width) => {
                self.exact(stored.len() as u64, size)?;
                shuffle::unshuffle(*width as usize, stored, out);
                Ok(())
            }
            Self::Bitshuffle(bits) => bits.decode_into(self, stored, out),
            Self::Delta(delta) => delta.decode_into(stored, out),
            Self::Szip(szip) => szip.decode_into(stored, out),
            Self::Nbit(nbit) => nbit.decode_into(stored, out),
            Self::ScaleOffset(scale) => scale.decode_into(stored, out),
            Self::Scaled(scaled) => scaled.decode_into(stored, out),
            Self::PackBits => self.unpack_bits(stored, out),
            Self::Checksum { .. } | Self::Known { .. } => {
                let bytes = self.check(stored, true)?;
                self.exact(bytes.len() as u64, size)?;
                out.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Decodes to all bytes that come out, at most `most`.
    pub(super) fn decode_up_to(&self, stored: &[u8], most: u64) -> Result<Vec<u8>, DecodeError> {
        let most = most.min(self.max_size(stored.len() as u64));
        let stated = match self {
            Self::Shuffle(_) | Self::Bitshuffle(Bitshuffle { compressed: None, .. }) => stored.len() as u64,
            Self::Delta(delta) => delta.size(stored.len() as u64),
            Self::Szip(_) => Szip::size(stored)?,
            Self::Nbit(nbit) => nbit.size(),
            Self::ScaleOffset(scale) => scale.size(),
            Self::Scaled(scaled) => scaled.size(stored.len() as u64),
            Self::Known { size, .. } => *size,
            Self::PackBits => {
                let unused = stored.first().copied().unwrap_or_default().into();
                (stored.len() as u64).saturating_sub(1).saturating_mul(8).saturating_sub(unused)
            }
            Self::Checksum { .. } => (stored.len() as u64).saturating_sub(4),
            Self::Lz4Sized => self.split_u32(stored)?.0.into(),
            Self::Lz4Blocks | Self::Bitshuffle(_) => match stored.first_chunk() {
                Some(size) => u64::from_be_bytes(*size),
                None => return Err(self.corrupt("it ends in its head")),
            },
            Self::Snappy => snap::raw::decompress_len(stored).map_err(|error| self.corrupt(error))? as u64,
            Self::Blosc => blosc::size(stored)?,
            Self::Blosc2 => blosc2::size(stored)?,
            Self::BloscFront(_) => most,
            Self::Lzf => lz77::lzf_size(stored).ok_or_else(|| self.corrupt("it ends in a match or in its literals"))?,
            Self::Lz4 => return Err(self.corrupt("it does not say how many bytes it decodes to")),
            Self::Deflate => return self.read_up_to(DeflateDecoder::new(stored), most),
            Self::Zlib => return self.read_up_to(ZlibDecoder::new(stored), most),
            Self::Gzip => return self.read_up_to(Members::new(stored), most),
            Self::Zstd => {
                let mut stream = super::Stream::new(&Codec::Zstd, stored, super::MOST_WINDOW)?;
                let out = stream.take(most)?;
                stream.finish(out.len() as u64, out.len() as u64)?;
                return Ok(out);
            }
            Self::ZstdFrame => return Self::Zstd.decode_up_to(self.first_frame(stored)?, most),
            Self::Bzip2 | Self::Bzip2Stream => return self.read_up_to(Bunzip2::new(self, stored)?, most),
            Self::Lz4Frame => return self.read_up_to(One::new(lz4_flex::frame::FrameDecoder::new(stored)), most),
        };
        if stated > most {
            return Err(DecodeError::Size { got: stated, size: most });
        }
        let mut out = memory(stated)?;
        self.decode_into(stored, &mut out)?;
        Ok(out)
    }

    /// Returns whether undoing it changes no bytes.
    pub(super) fn is_check(&self) -> bool {
        matches!(self, Self::Checksum { .. } | Self::Known { .. })
    }

    /// States that the stored numbers are big-endian.
    pub fn set_big_endian(&mut self) {
        match self {
            Self::Delta(delta) => delta.set_big_endian(),
            Self::Scaled(scaled) => scaled.set_big_endian(),
            _ => {}
        }
    }

    /// Returns the number of stored bytes for `size` decoded ones; `None` if it depends on the data.
    pub fn stored_size(&self, size: u64) -> Option<u64> {
        let stored = self.stored(Size::exactly(size));
        stored.is_exact.then_some(stored.most)
    }

    /// Returns the bytes without their checksum, which is compared if `is_asked`.
    pub(super) fn check<'a>(&self, stored: &'a [u8], is_asked: bool) -> Result<&'a [u8], DecodeError> {
        if let Self::Known { size, crc } = self {
            self.exact(stored.len() as u64, *size)?;
            if is_asked {
                ChecksumKind::Crc(CrcKind::Crc32).check(*crc, stored)?;
            }
            return Ok(stored);
        }
        let Self::Checksum { kind, is_in_front } = self else { return Ok(stored) };
        let parts = match is_in_front {
            true => stored.split_first_chunk::<4>().map(|(sum, bytes)| (bytes, sum)),
            false => stored.split_last_chunk::<4>(),
        };
        let (bytes, sum) = parts.ok_or_else(|| self.corrupt("it has no room for a checksum"))?;
        if is_asked {
            kind.check(u32::from_le_bytes(*sum), bytes)?;
        }
        Ok(bytes)
    }

    fn unpack_bits(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let (unused, bits) = stored.split_first().ok_or_else(|| self.corrupt("it is empty"))?;
        let count = (bits.len() as u64 * 8).checked_sub(u64::from(*unused)).filter(|_| *unused < 8);
        self.exact(count.ok_or_else(|| self.corrupt("more bits are unused than there are"))?, out.len() as u64)?;
        for (out, byte) in out.chunks_mut(8).zip(bits) {
            out.iter_mut().zip((0..8).rev()).for_each(|(out, bit)| *out = byte >> bit & 1);
        }
        Ok(())
    }

    fn lz4_blocks(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let (head, mut rest) = stored.split_first_chunk::<12>().ok_or_else(|| self.corrupt("it ends in its head"))?;
        let (size, block) = sizes(head);
        self.exact(size, out.len() as u64)?;
        if block == 0 && !out.is_empty() {
            return Err(self.corrupt("its blocks have no bytes"));
        }
        for out in out.chunks_mut(to_usize(block).max(1)) {
            let stored = self.next_block(&mut rest)?;
            match stored.len() == out.len() {
                true => out.copy_from_slice(stored),
                false => Codec::Lz4.decode_into(stored, out)?,
            }
        }
        Ok(())
    }

    /// Returns the first zstd frame.
    fn first_frame<'a>(&self, stored: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let size = zstd::zstd_safe::find_frame_compressed_size(stored);
        let size = size.map_err(|code| self.corrupt(zstd::zstd_safe::get_error_name(code)))?;
        stored.get(..size).ok_or_else(|| self.corrupt("it ends in a frame"))
    }

    /// Returns the next block, which follows its big-endian size.
    fn next_block<'a>(&self, rest: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let split = rest.split_first_chunk::<4>();
        let split = split.and_then(|(size, rest)| rest.split_at_checked(u32::from_be_bytes(*size) as usize));
        let (block, after) = split.ok_or_else(|| self.corrupt("it ends in a block"))?;
        *rest = after;
        Ok(block)
    }

    fn split_u32<'a>(&self, stored: &'a [u8]) -> Result<(u32, &'a [u8]), DecodeError> {
        let split = stored.split_first_chunk().ok_or_else(|| self.corrupt("it ends in its size"))?;
        Ok((u32::from_le_bytes(*split.0), split.1))
    }

    fn read_exactly(&self, reader: impl Read, out: &mut [u8]) -> Result<(), DecodeError> {
        let size = out.len() as u64;
        let mut reader = Exactly { filter: self, reader };
        let filled = reader.fill(out)?;
        // Reading on shows damage at the end of the stream.
        let more = reader.fill(&mut [0; 1])?;
        self.exact(filled as u64 + more as u64, size)
    }

    fn read_up_to(&self, reader: impl Read, most: u64) -> Result<Vec<u8>, DecodeError> {
        /// Bytes of the first allocation.
        const FIRST: u64 = 64 << 10;
        let mut reader = Exactly { filter: self, reader };
        let mut out = Vec::new();
        loop {
            let from = out.len();
            // One byte more than the most shows that there is too much.
            let size = most.saturating_add(1).min((from as u64).saturating_mul(2).max(FIRST));
            let length = to_usize(size);
            out.try_reserve_exact(length.saturating_sub(from)).map_err(|_| DecodeError::Memory(size))?;
            out.resize(length, 0);
            let filled = from + reader.fill(out.get_mut(from..).unwrap_or_default())?;
            if filled < length {
                out.truncate(filled);
                return Ok(out);
            }
            if size > most {
                return Err(DecodeError::Size { got: size, size: most });
            }
        }
    }

    fn exact(&self, got: u64, size: u64) -> Result<(), DecodeError> {
        if got == size { Ok(()) } else { Err(DecodeError::Size { got, size }) }
    }

    pub(super) fn corrupt(&self, reason: impl ToString) -> DecodeError {
        DecodeError::Corrupt { codec: self.name(), reason: reason.to_string() }
    }
}

/// Returns the two sizes that stand before the blocks.
fn sizes(head: &[u8; 12]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, block @ ..] = *head;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes(block).into())
}

impl Bitshuffle {
    /// Returns the number of elements in a block. By default the library makes blocks of 8 KiB, but of at least 128
    /// elements.
    fn block(&self) -> u64 {
        match self.block {
            0 => (8192 / u64::from(self.width.max(1)) / 8 * 8).max(128),
            block => block.into(),
        }
    }

    fn decode_into(&self, filter: &Filter, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let width = to_usize(u64::from(self.width).max(1));
        let Some(codec) = self.compressed else {
            filter.exact(stored.len() as u64, out.len() as u64)?;
            let block = to_usize(self.block().saturating_mul(width as u64)).max(8 * width);
            for (stored, out) in stored.chunks(block).zip(out.chunks_mut(block)) {
                shuffle::unshuffle_bits(width, stored, out);
            }
            return Ok(());
        };
        let Some((head, mut rest)) = stored.split_first_chunk::<12>() else {
            return Err(filter.corrupt("it ends in its head"));
        };
        let (size, block) = sizes(head);
        filter.exact(size, out.len() as u64)?;
        let block = match block {
            0 => to_usize(self.block().saturating_mul(width as u64)),
            block => to_usize(block),
        };
        if !block.is_multiple_of(8 * width) {
            return Err(filter.corrupt("its blocks have no whole elements"));
        }
        // Elements after the last whole group of 8 are stored as they are.
        let (whole, end) = out.split_at_mut(out.len() / (8 * width) * (8 * width));
        let mut shuffled = memory(block.min(whole.len()) as u64)?;
        for out in whole.chunks_mut(block) {
            let stored = filter.next_block(&mut rest)?;
            let shuffled = shuffled.get_mut(..out.len()).unwrap_or_default();
            match codec {
                BlockCodec::Lz4 => Codec::Lz4.decode_into(stored, shuffled)?,
                BlockCodec::Zstd => Codec::Zstd.decode_into(stored, shuffled)?,
            }
            shuffle::unshuffle_bits(width, shuffled, out);
        }
        filter.exact((whole.len() + rest.len()) as u64, size)?;
        end.copy_from_slice(rest);
        Ok(())
    }
}

impl Filter {
    /// Inflates a DEFLATE or zlib stream to exactly the size of `out`.
    pub(super) fn inflate(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        match self {
            Self::Deflate => self.read_exactly(DeflateDecoder::new(stored), out),
            _ => self.read_exactly(ZlibDecoder::new(stored), out),
        }
    }
}

fn gunzip(stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    Filter::Gzip.read_exactly(Members::new(stored), out)
}

/// Consecutive gzip members.
struct Members<'a>(GzDecoder<&'a [u8]>);

impl<'a> Members<'a> {
    fn new(stored: &'a [u8]) -> Self {
        Self(GzDecoder::new(stored))
    }
}

impl Read for Members<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            let rest = *self.0.get_ref();
            if rest.iter().all(|byte| *byte == 0) {
                return Ok(0);
            }
            self.0 = GzDecoder::new(rest);
        }
    }
}

/// bzip2 streams. The library's own reader takes want of memory for damage.
struct Bunzip2<'a> {
    /// The bytes that are not used yet.
    stored: &'a [u8],
    decoder: bzip2::Decompress,
    has_ended: bool,
    is_one: bool,
}

impl<'a> Bunzip2<'a> {
    fn new(filter: &Filter, stored: &'a [u8]) -> Result<Self, DecodeError> {
        let decoder = Self::decoder().map_err(|_| DecodeError::Memory(BZIP2_TABLES))?;
        Ok(Self { stored, decoder, has_ended: false, is_one: *filter == Filter::Bzip2Stream })
    }

    fn decoder() -> io::Result<bzip2::Decompress> {
        // The library panics if its first memory is refused.
        Vec::<u8>::new().try_reserve_exact(to_usize(BZIP2_TABLES))?;
        Ok(bzip2::Decompress::new(false))
    }
}

impl Read for Bunzip2<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.has_ended {
                if self.is_one || self.stored.is_empty() {
                    return Ok(0);
                }
                (self.decoder, self.has_ended) = (Self::decoder()?, false);
            }
            let (before_in, before_out) = (self.decoder.total_in(), self.decoder.total_out());
            let status = self.decoder.decompress(self.stored, buf)?;
            let taken = to_usize(self.decoder.total_in() - before_in);
            let came = to_usize(self.decoder.total_out() - before_out);
            self.stored = self.stored.get(taken..).unwrap_or_default();
            match status {
                bzip2::Status::MemNeeded => return Err(io::ErrorKind::OutOfMemory.into()),
                bzip2::Status::StreamEnd => self.has_ended = true,
                _ if taken == 0 && came == 0 => return Err(io::Error::other("it ends early")),
                _ => {}
            }
            if came > 0 {
                return Ok(came);
            }
        }
    }
}

/// The bytes of one frame. The reader inside would go on with the next frame after it reported the end.
struct One<R> {
    reader: R,
    is_done: bool,
}

impl<R: Read> One<R> {
    fn new(reader: R) -> Self {
        Self { reader, is_done: false }
    }
}

impl<R: Read> Read for One<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.is_done || buf.is_empty() {
            return Ok(0);
        }
        let read = self.reader.read(buf)?;
        self.is_done = read == 0;
        Ok(read)
    }
}

struct Exactly<'a, R> {
    filter: &'a Filter,
    reader: R,
}

impl<R: Read> Exactly<'_, R> {
    fn fill(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let mut filled = 0;
        while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                    return Err(DecodeError::Memory(self.filter.working_memory(out.len() as u64)));
                }
                Err(error) => return Err(self.filter.corrupt(error)),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests;
