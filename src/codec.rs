//! Compressed bytes to bytes, bounded by the size that the container states.
//!
//! No function here allocates more than the stored bytes can really expand to ([`Codec::max_size`]).

// An index or a cast that is safe says why. Tests may panic.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation, clippy::indexing_slicing))]

mod bits;
mod blosc;
mod blosc2;
mod chain;
mod checksum;
mod crc;
mod deflate;
mod delta;
mod filter;
mod lz4;
mod lz77;
mod nbit;
mod picture;
mod scale_offset;
mod scaled;
mod shuffle;
mod stream;
mod szip;

pub use chain::Chain;
pub use checksum::ChecksumKind;
pub use crc::{Crc, CrcKind};
pub use delta::{Delta, Number, NumberKind};
pub use filter::{Bitshuffle, BlockCodec, Filter};
pub use nbit::Nbit;
pub use scale_offset::ScaleOffset;
pub use scaled::Scaled;
pub use stream::{Stream, decode_zstd};
pub use szip::Szip;

use std::{io, sync::Arc};

use crate::{
    limits,
    source::{SourceError, to_usize},
};

/// How a block is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Uncompressed.
    None,
    /// Standard zstd frames.
    Zstd,
    /// One bare lz4 block: no frame, no size prefix (`docs/formats/wshard.md` 6).
    Lz4,
    /// One raw DEFLATE stream, which may go on after the block's last byte.
    Deflate,
    /// One raw DEFLATE stream that ends with the block's last byte.
    DeflateExact,
    /// One zlib stream, which may go on after the block's last byte.
    Zlib,
    /// One zlib stream that ends with the block's last byte.
    ZlibExact,
    /// A JPEG file of this width, height and number of channels.
    Jpeg(u32, u32, u8),
    /// A PNG file of this width, height and number of channels.
    Png(u32, u32, u8),
    /// Several filters, one after the other, or a single one that is none of the above.
    Chain(Arc<Chain>),
}

/// Why a block did not decode.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The stated size is more than the codec can make of the stored bytes.
    #[error("{codec} cannot expand {stored} stored bytes to the stated {size}")]
    Impossible {
        /// The codec's name.
        codec: &'static str,
        /// Bytes stored.
        stored: u64,
        /// Bytes stated.
        size: u64,
    },
    /// More bytes are stored than any encoder needs for the stated size.
    #[error("{stored} bytes are stored for {size} decoded ones; {codec} never needs that many")]
    Excess {
        /// The codec's name.
        codec: &'static str,
        /// Bytes stored.
        stored: u64,
        /// Bytes stated.
        size: u64,
    },
    /// A zstd frame needs a larger window than there is room for; its size in bytes.
    #[error("zstd: a frame asks for a window of {0} bytes")]
    Window(u64),
    /// The decoded bytes are fewer or more than stated.
    #[error("decodes to {got} bytes, the index says {size}")]
    Size {
        /// Bytes that came out. If decoding stopped at the stated size, one more than stated.
        got: u64,
        /// Bytes stated.
        size: u64,
    },
    /// There was no memory for the decoded bytes.
    #[error("no memory for {0} bytes")]
    Memory(u64),
    /// The stored bytes could not be read while they were decoded.
    #[error(transparent)]
    Source(SourceError),
    /// A checksum stored among the filters of a chain does not match.
    #[error("{kind} is {computed:08x}, stored is {stored:08x}")]
    Checksum {
        /// The kind of checksum.
        kind: &'static str,
        /// The stored checksum.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The payload is damaged.
    #[error("{codec}: {reason}")]
    Corrupt {
        /// The codec's name.
        codec: &'static str,
        /// What the decoder said.
        reason: String,
    },
}

impl DecodeError {
    /// Returns the read error that this one stands for, if the stored bytes are not at fault: they could not be read,
    /// or there was no memory.
    ///
    /// # Errors
    /// This error, if they are.
    pub(crate) fn of_source(self) -> Result<SourceError, Self> {
        match self {
            Self::Source(error) => Ok(error),
            Self::Memory(_) => Ok(io::Error::from(io::ErrorKind::OutOfMemory).into()),
            error => Err(error),
        }
    }
}

impl Codec {
    /// Returns the name used in `container.json`.
    pub fn name(&self) -> &str {
        match self {
            Self::Chain(chain) => chain.name(),
            _ => self.kind(),
        }
    }

    /// Returns the name of the kind of codec. All chains have the same.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Deflate | Self::DeflateExact => "deflate",
            Self::Zlib | Self::ZlibExact => "zlib",
            Self::Jpeg(..) => "jpeg",
            Self::Png(..) => "png",
            Self::Chain(_) => "chain of filters",
        }
    }

    /// Returns the most bytes that `stored` bytes can decode to: zstd makes at most 128 KiB of a block of 4 bytes, lz4
    /// 255 bytes of one byte, DEFLATE 258 bytes of 2 bits.
    pub fn max_size(&self, stored: u64) -> u64 {
        match self {
            Self::None => stored,
            Self::Chain(chain) => chain.max_size(stored),
            Self::Zstd => stored.saturating_mul(1 << 15),
            Self::Lz4 => stored.saturating_mul(255).saturating_add(64),
            Self::Deflate | Self::DeflateExact | Self::Zlib | Self::ZlibExact => {
                stored.saturating_mul(1032).saturating_add(64)
            }
            // DEFLATE makes 258 bytes of 2 bits.
            Self::Png(..) => stored.saturating_mul(1032).min(limits::PICTURE),
            // At most 32 x 32 pixels of three channels for each stored bit, if only the coarsest component is stored.
            Self::Jpeg(..) => stored.saturating_mul(8 * 32 * 32 * 3).min(limits::PICTURE),
        }
    }

    /// Decodes a whole block of `size` bytes.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing is allocated for an impossible size.
    pub fn decode(&self, stored: &[u8], size: u64) -> Result<Vec<u8>, DecodeError> {
        self.check_size(stored.len() as u64, size)?;
        match self {
            Self::Deflate | Self::DeflateExact | Self::Zlib | Self::ZlibExact => {
                let mut stream = Stream::new(self, stored, 0)?;
                let out = stream.take(size)?;
                stream.finish(out.len() as u64, size)?;
                Ok(out)
            }
            Self::Chain(chain) => {
                let mut out = memory(size)?;
                chain.decode_into(stored, &mut out, true)?;
                Ok(out)
            }
            Self::Jpeg(..) | Self::Png(..) => picture::decode(self, stored, size),
            Self::None | Self::Zstd | Self::Lz4 => {
                let mut out = memory(size)?;
                self.decode_into(stored, &mut out)?;
                Ok(out)
            }
        }
    }

    /// Decodes a whole block into `out`, which has its size.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` may then hold anything.
    pub fn decode_into(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let size = out.len() as u64;
        if *self == Self::Zstd {
            check_windows(stored)?;
        }
        match self {
            // In one go: a fifth faster than a stream, and without a window.
            Self::Zstd => match stream::decompress(out, stored) {
                Ok(got) if got as u64 == size => Ok(()),
                Ok(got) => Err(DecodeError::Size { got: got as u64, size }),
                Err(code) => Err(stream::failed(code, size, 0)),
            },
            Self::Deflate | Self::DeflateExact | Self::Zlib | Self::ZlibExact => {
                let mut stream = Stream::new(self, stored, 0)?;
                let filled = stream.fill(out)?;
                stream.finish(filled as u64, size)
            }
            Self::Lz4 => lz4::decode_padded(&[stored, &[0]].concat(), out, false),
            Self::Chain(chain) => chain.decode_into(stored, out, true),
            Self::None | Self::Jpeg(..) | Self::Png(..) => {
                let bytes = if *self == Self::None { stored.to_vec() } else { picture::decode(self, stored, size)? };
                if bytes.len() != out.len() {
                    return Err(DecodeError::Size { got: bytes.len() as u64, size });
                }
                out.copy_from_slice(&bytes);
                Ok(())
            }
        }
    }

    /// Decodes a block whose decoded size is not known, to at most `most` bytes. Checksums among the filters are
    /// compared.
    ///
    /// # Errors
    /// [`DecodeError`]; `Size` if it decodes to more.
    pub fn decode_up_to(&self, stored: &[u8], most: u64) -> Result<Vec<u8>, DecodeError> {
        match self {
            Self::Chain(chain) => chain.decode_up_to(stored, most, true),
            Self::Zstd => Filter::Zstd.decode_up_to(stored, most),
            Self::Zlib | Self::ZlibExact => Filter::Zlib.decode_up_to(stored, most),
            _ => self.decode(stored, (stored.len() as u64).min(most)),
        }
    }

    /// Does the same as [`Self::decode_into`] from `padded`, which is the stored bytes and one zero byte. Some lz4
    /// blocks need that byte, and here need no copy for it. `is_checked` says that the caller compares the decoded
    /// bytes with a checksum afterwards.
    ///
    /// # Errors
    /// As [`Self::decode_into`].
    pub fn decode_padded(&self, padded: &[u8], out: &mut [u8], is_checked: bool) -> Result<(), DecodeError> {
        match (self, padded.split_last()) {
            (Self::Lz4, _) => lz4::decode_padded(padded, out, is_checked),
            (_, Some((_, stored))) => self.decode_into(stored, out),
            (_, None) => self.decode_into(padded, out),
        }
    }

    /// Decodes up to `limit` bytes from the front of a block. `stored` is the block or its beginning.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] if not even that much decodes.
    pub fn decode_front(&self, stored: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        match self {
            Self::None => Ok(stored.get(..limit).unwrap_or(stored).to_vec()),
            Self::Zstd => {
                let mut out = vec![0; limit];
                // The window takes only as much memory as is decoded.
                let filled = Stream::new(self, stored, MOST_WINDOW)?.fill(&mut out)?;
                out.truncate(filled);
                Ok(out)
            }
            Self::Lz4 => lz4::decode_front(stored, limit),
            Self::Deflate | Self::DeflateExact | Self::Zlib | Self::ZlibExact => {
                Stream::new(self, stored, 0)?.take(limit as u64)
            }
            Self::Jpeg(..) | Self::Png(..) | Self::Chain(_) => Err(self.corrupt("it is decoded whole")),
        }
    }

    /// Returns whether [`Stream`] decodes it.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Zstd | Self::Deflate | Self::DeflateExact | Self::Zlib | Self::ZlibExact)
    }

    /// Returns the most bytes that may be stored for `size` decoded ones. Encoders add at most 1 % to incompressible
    /// data, and a few bytes for each piece that is flushed. Pictures may carry profiles and previews.
    pub fn max_stored(&self, size: u64) -> u64 {
        if let Self::Chain(chain) = self {
            return chain.max_stored(size);
        }
        let beside = if matches!(self, Self::Jpeg(..) | Self::Png(..)) { limits::PICTURE_CHUNKS } else { 64 << 10 };
        size.saturating_mul(2).saturating_add(beside)
    }

    /// Checks that `stored` bytes can decode to `size` bytes.
    ///
    /// # Errors
    /// `Impossible` if they cannot become that many, `Excess` if no encoder stores so much for `size` bytes.
    pub fn check_size(&self, stored: u64, size: u64) -> Result<(), DecodeError> {
        let codec = self.kind();
        if size > self.max_size(stored) {
            return Err(DecodeError::Impossible { codec, stored, size });
        }
        if stored > self.max_stored(size) {
            return Err(DecodeError::Excess { codec, stored, size });
        }
        Ok(())
    }

    /// Returns the bytes of memory that decoding takes in addition to the stored and the decoded bytes. `window` is
    /// what a zstd stream may use as its window, 0 if a block is decoded whole. The two sizes are those of the block.
    pub fn working_memory(&self, window: u64, stored: u64, size: u64) -> u64 {
        /// Tables of a decoder, and the pieces in which it reads its input.
        const CONTEXT: u64 = 640 << 10;
        match self {
            Self::None => 0,
            Self::Chain(chain) => chain.working_memory(stored, size),
            Self::Zstd => CONTEXT.saturating_add(window),
            Self::Lz4 | Self::Deflate | Self::DeflateExact | Self::Zlib | Self::ZlibExact => CONTEXT,
            // Coefficients of three components for each pixel, and the pixels themselves.
            Self::Jpeg(width, height, channels) => {
                CONTEXT + pixels(*width, *height).saturating_mul(8 + u64::from(*channels))
            }
            // As much as the decoder's limits below permit.
            Self::Png(width, height, channels) => {
                let size = pixels(*width, *height).saturating_mul((*channels).into());
                limits::PICTURE_CHUNKS.saturating_add(size.saturating_mul(4))
            }
        }
    }

    /// Converts the error of a decoder that reads a source by itself: either the decoder or the source may have failed.
    fn failed(&self, error: io::Error) -> DecodeError {
        error.downcast().map_or_else(|error| self.corrupt(error), DecodeError::Source)
    }

    fn corrupt(&self, reason: impl ToString) -> DecodeError {
        DecodeError::Corrupt { codec: self.kind(), reason: reason.to_string() }
    }
}

/// Returns zeros, for decoding.
///
/// # Errors
/// `Memory` if there is not enough memory.
pub(crate) fn memory(size: u64) -> Result<Vec<u8>, DecodeError> {
    crate::source::zeros(to_usize(size)).map_err(|_| DecodeError::Memory(size))
}

fn pixels(width: u32, height: u32) -> u64 {
    u64::from(width).saturating_mul(height.into())
}

/// The smallest window of zstd, in bytes.
const LEAST_WINDOW: u64 = 1 << 10;

/// The largest window that a zstd frame may ask for, in bytes.
pub const MOST_WINDOW: u64 = 1 << limits::ZSTD_WINDOW_LOG;

/// Returns the window that the zstd frame at the front of a block asks for; the smallest if there is no frame or it is
/// damaged. Later frames that need more fail with [`DecodeError::Window`].
pub fn zstd_window(front: &[u8]) -> u64 {
    window(front).unwrap_or(0).clamp(LEAST_WINDOW, MOST_WINDOW)
}

/// Returns the decoded size that the zstd frame at the front of a block states.
pub fn zstd_size(front: &[u8]) -> Option<u64> {
    zstd::zstd_safe::get_frame_content_size(front).ok().flatten()
}

/// Bytes at the front of a block that [`zstd_window`] needs.
pub const ZSTD_HEADER: usize = 18;

/// Checks the window of each zstd frame. Decoding in one go needs no window and does not check it, but whether a block
/// is served must not depend on how it is decoded. Bytes that are not a frame are left to the decoder.
fn check_windows(stored: &[u8]) -> Result<(), DecodeError> {
    let mut rest = stored;
    while let Some(window) = window(rest) {
        if window > MOST_WINDOW {
            let reason = format!("a frame asks for a window of {window} bytes, more than {MOST_WINDOW}");
            return Err(Codec::Zstd.corrupt(reason));
        }
        let Ok(size) = zstd::zstd_safe::find_frame_compressed_size(rest) else { break };
        rest = rest.get(size..).unwrap_or_default();
    }
    Ok(())
}

/// Returns the window that a zstd frame states in its header (RFC 8878, 3.1.1.1): the content size for a single
/// segment, 0 for a skippable frame, `None` without a whole header.
fn window(frame: &[u8]) -> Option<u64> {
    let magic = u32::from_le_bytes(*frame.first_chunk()?);
    let (descriptor, window) = (frame.get(4)?, frame.get(5)?);
    match magic {
        0x184d_2a50..=0x184d_2a5f => Some(0),
        0xfd2f_b528 if descriptor & 0x20 != 0 => zstd::zstd_safe::get_frame_content_size(frame).ok()?,
        0xfd2f_b528 => {
            let base = 1u64 << (10 + (window >> 3));
            Some(base + base / 8 * u64::from(window & 7))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused_before_allocating() {
        for codec in [Codec::Zstd, Codec::Lz4, Codec::Deflate, Codec::Zlib] {
            let error = codec.decode(&[0; 10], u64::MAX).unwrap_err();
            assert!(matches!(error, DecodeError::Impossible { .. }), "{error}");
        }
    }

    #[test]
    fn zstd_must_give_exactly_the_stated_size() {
        let stored = zstd::bulk::compress(&[5; 1000], 3).unwrap();
        assert_eq!(Codec::Zstd.decode(&stored, 1000).unwrap(), [5; 1000]);
        assert!(matches!(Codec::Zstd.decode(&stored, 999), Err(DecodeError::Size { .. })));
        assert!(matches!(Codec::Zstd.decode(&stored, 1001), Err(DecodeError::Size { .. })));
        assert!(Codec::Zstd.decode(&stored[..stored.len() - 2], 1000).is_err());
        assert_eq!(Codec::Zstd.decode_front(&stored, 10).unwrap(), [5; 10]);
    }

    #[test]
    fn more_stored_bytes_than_any_encoder_makes_are_refused() {
        for codec in [Codec::None, Codec::Zstd, Codec::Lz4, Codec::Deflate, Codec::Zlib, Codec::Png(10, 10, 1)] {
            let error = codec.check_size(3 << 30, 100).unwrap_err();
            assert!(matches!(error, DecodeError::Excess { stored: 0xc000_0000, size: 100, .. }), "{error}");
        }
        // A frame for each byte, as no encoder writes them, is still read.
        let bytes = vec![7; 5000];
        let stored: Vec<u8> = bytes.iter().flat_map(|byte| zstd::bulk::compress(&[*byte], 3).unwrap()).collect();
        Codec::Zstd.check_size(stored.len() as u64, 5000).unwrap();
        assert_eq!(Codec::Zstd.decode(&stored, 5000).unwrap(), bytes);
    }

    #[test]
    fn want_of_memory_is_no_damage() {
        // ZSTD_error_memory_allocation.
        let error = stream::failed(64usize.wrapping_neg(), 10, 1 << 20);
        assert!(matches!(error, DecodeError::Memory(1_048_577..)), "{error}");
        assert!(error.of_source().is_ok_and(|error| error.is_passing()));
    }

    #[test]
    fn several_zstd_frames_are_joined() {
        let mut stored = zstd::bulk::compress(b"one ", 3).unwrap();
        stored.extend(zstd::bulk::compress(b"two", 3).unwrap());
        assert_eq!(Codec::Zstd.decode(&stored, 7).unwrap(), b"one two");
    }

    #[test]
    fn zstd_windows_are_bounded_however_a_block_is_decoded() {
        let hello = [5 << 3 | 1, 0, 0, b'h', b'e', b'l', b'l', b'o'];
        let frame = |header: &[u8]| [&[0x28, 0xb5, 0x2f, 0xfd], header, &hello].concat();
        // Windows of 2^(10 + n / 8), n % 8 eighths more: 27 is the bound.
        for (window, good) in [(17 << 3, true), (17 << 3 | 1, false), (18 << 3, false), (21 << 3, false), (255, false)]
        {
            for header in [vec![0, window], vec![0x80, window, 5, 0, 0, 0]] {
                let frame = frame(&header);
                let joined = [zstd::bulk::compress(b"oh, ", 3).unwrap(), frame.clone()].concat();
                let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9], &*frame].concat();
                for (stored, size) in [(&frame, 5), (&joined, 9), (&skipped, 5)] {
                    match Codec::Zstd.decode(stored, size) {
                        Ok(bytes) => assert!(good && bytes.ends_with(b"hello"), "{header:?}"),
                        Err(error) => assert!(!good && error.to_string().contains("window"), "{header:?}: {error}"),
                    }
                }
            }
        }
        // A single segment has no window of its own.
        assert_eq!(Codec::Zstd.decode(&frame(&[0x20, 5]), 5).unwrap(), b"hello");
        let megabytes = vec![7; 3 << 20];
        assert_eq!(Codec::Zstd.decode(&zstd::bulk::compress(&megabytes, 3).unwrap(), 3 << 20).unwrap(), megabytes);
    }
}
