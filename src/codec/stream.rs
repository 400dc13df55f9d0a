//! Codecs that can be decoded from the front as far as somebody wants: large blocks are served while they are decoded.

use std::io::{self, Read};

use super::{Codec, DecodeError, deflate::Inflater};
use crate::{limits, source::check_room};

/// What is made room for before anything has come out.
const FIRST: u64 = 1 << 20;

/// A block being decoded, from the front.
pub struct Stream<R: Read>(Decoder<R>);

enum Decoder<R: Read> {
    Zstd(zstd::stream::read::Decoder<'static, io::BufReader<R>>),
    Inflate(Inflater<R>),
}

impl<R: Read> Stream<R> {
    /// Starts decoding: zstd frames joined as one, or a DEFLATE or zlib stream.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] if no decoder could be made, as for a codec that decodes whole blocks only.
    pub fn new(codec: Codec, stored: R) -> Result<Self, DecodeError> {
        match codec {
            Codec::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(stored).map_err(|e| codec.corrupt(e))?;
                decoder.window_log_max(limits::ZSTD_WINDOW_LOG).map_err(|e| codec.corrupt(e))?;
                Ok(Self(Decoder::Zstd(decoder)))
            }
            Codec::Deflate | Codec::Zlib => Ok(Self(Decoder::Inflate(Inflater::new(codec, stored)))),
            _ => Err(codec.corrupt("it is decoded whole")),
        }
    }

    /// Decodes until `out` is full or the data end; how much came.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged payload, of zstd also for a cut one.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let decoder = match &mut self.0 {
            Decoder::Zstd(decoder) => decoder,
            Decoder::Inflate(inflater) => return inflater.fill(out),
        };
        let mut filled = 0;
        while filled < out.len() {
            match decoder.read(&mut out[filled..]).map_err(|e| Codec::Zstd.failed(e))? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }

    /// Decodes `size` bytes, or as many as there are. Room is made for what came, never for what was stated.
    ///
    /// # Errors
    /// As [`Self::fill`]; [`DecodeError::Memory`] where there is no room.
    pub fn take(&mut self, size: u64) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        while (out.len() as u64) < size {
            let from = out.len();
            let more = (size - from as u64).min(FIRST.max(from as u64));
            check_room(more, 1).map_err(|_| DecodeError::Memory(size))?;
            out.try_reserve_exact(more as usize).map_err(|_| DecodeError::Memory(size))?;
            out.resize(from + more as usize, 0);
            let filled = self.fill(&mut out[from..])?;
            if (filled as u64) < more {
                out.truncate(from + filled);
                break;
            }
        }
        Ok(out)
    }

    /// Checks that the block ends as it should: `got` bytes came, `size` were stated, and of zstd nothing follows.
    ///
    /// # Errors
    /// [`DecodeError::Size`], or `Corrupt` if the end of the payload is damaged.
    pub fn finish(&mut self, got: u64, size: u64) -> Result<(), DecodeError> {
        if let Decoder::Inflate(inflater) = &mut self.0 {
            return inflater.finish(got, size);
        }
        if got < size {
            return Err(DecodeError::Size { got, size });
        }
        match self.fill(&mut [0; 1])? {
            0 => Ok(()),
            _ => Err(DecodeError::Size { got: size + 1, size }),
        }
    }
}
