//! zstd as a stream: large blocks are served while they are being decoded.

use std::io::{self, Read};

use super::{Codec, DecodeError};
use crate::limits;

/// A block being decoded, from the front.
pub struct Stream<R: Read> {
    decoder: zstd::stream::read::Decoder<'static, io::BufReader<R>>,
}

impl<R: Read> Stream<R> {
    /// Starts decoding zstd frames, joined as one.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] if no decoder could be made.
    pub fn zstd(stored: R) -> Result<Self, DecodeError> {
        let mut decoder = zstd::stream::read::Decoder::new(stored).map_err(|e| Codec::Zstd.corrupt(e))?;
        decoder.window_log_max(limits::ZSTD_WINDOW_LOG).map_err(|e| Codec::Zstd.corrupt(e))?;
        Ok(Self { decoder })
    }

    /// Decodes until `out` is full or the data end; how much came.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged or cut payload.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.decoder.read(&mut out[filled..]).map_err(|e| Codec::Zstd.corrupt(e))? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }

    /// Checks that the block ends here: `got` bytes came, `size` were stated, and nothing follows.
    ///
    /// # Errors
    /// [`DecodeError::Size`], or `Corrupt` if the end of the payload is damaged.
    pub fn finish(&mut self, got: u64, size: u64) -> Result<(), DecodeError> {
        if got < size {
            return Err(DecodeError::Size { got, size });
        }
        match self.fill(&mut [0; 1])? {
            0 => Ok(()),
            _ => Err(DecodeError::Size { got: size + 1, size }),
        }
    }
}
