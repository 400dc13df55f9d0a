//! DEFLATE and zlib (RFC 1951 and 1950) as a stream that never inflates past what is asked for.

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};

use super::{Codec, DecodeError, to_usize};

/// Stored bytes that are read first, and at most at once. Most blocks are small, or only their front is wanted.
const INPUT: (usize, usize) = (4 << 10, 128 << 10);

/// A stream being inflated.
pub(super) struct Inflater<R: Read> {
    codec: Codec,
    stored: R,
    inflate: Decompress,
    input: Vec<u8>,
    /// Offset of the bytes in `input` that are not used yet.
    from: usize,
    to: usize,
    ended: bool,
}

impl<R: Read> Inflater<R> {
    /// Starts to inflate. `codec` must be one of DEFLATE or zlib.
    pub(super) fn new(codec: Codec, stored: R) -> Self {
        let inflate = Decompress::new(matches!(codec, Codec::Zlib | Codec::ZlibExact));
        Self { codec, stored, inflate, input: Vec::new(), from: 0, to: 0, ended: false }
    }

    /// Inflates until `out` is full or the stream ends, even if it ends too early. Returns the number of bytes written.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let mut filled = 0;
        while filled < out.len() && !self.ended {
            if self.from == self.to {
                self.from = 0;
                self.input.resize((4 * self.input.len()).clamp(INPUT.0, INPUT.1), 0);
                self.to = self.stored.read(&mut self.input).map_err(|e| self.codec.failed(e))?;
            }
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let input = self.input.get(self.from..self.to).unwrap_or_default();
            let is_last = input.is_empty();
            let out = out.get_mut(filled..).unwrap_or_default();
            let status = self.inflate.decompress(input, out, FlushDecompress::None);
            let status = status.map_err(|e| self.codec.corrupt(e))?;
            self.from += to_usize(self.inflate.total_in() - before_in);
            let came = to_usize(self.inflate.total_out() - before_out);
            filled += came;
            self.ended = status == Status::StreamEnd;
            if is_last && came == 0 {
                break;
            }
        }
        Ok(filled)
    }

    /// Fails unless `got` equals `size`. Data after these bytes are an error for `DeflateExact` and `ZlibExact`, and
    /// are otherwise ignored. If a zlib stream ends there, its checksum is compared.
    pub(super) fn finish(&mut self, got: u64, size: u64) -> Result<(), DecodeError> {
        if got < size {
            return Err(DecodeError::Size { got, size });
        }
        if self.codec == Codec::Deflate {
            return Ok(());
        }
        match (self.fill(&mut [0; 1])?, &self.codec) {
            (0, Codec::Zlib | Codec::ZlibExact) if !self.ended => {
                Err(self.codec.corrupt("it ends before its checksum"))
            }
            (0, _) if !self.ended => Err(self.codec.corrupt("it ends early")),
            (1.., Codec::DeflateExact | Codec::ZlibExact) => Err(DecodeError::Size { got: size + 1, size }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(codec: &Codec, bytes: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::fast();
        if *codec == Codec::Zlib {
            let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), level);
            writer.write_all(bytes).unwrap();
            return writer.finish().unwrap();
        }
        let mut writer = flate2::write::DeflateEncoder::new(Vec::new(), level);
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn exactly_the_stated_size() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| ((i * 7919) >> 7) as u8).collect();
        for codec in [Codec::Deflate, Codec::Zlib] {
            let stored = packed(&codec, &bytes);
            assert_eq!(codec.decode(&stored, 200_000).unwrap(), bytes);
            // More than stated is not inflated; more stored than needed is not looked at.
            assert_eq!(codec.decode(&stored, 1000).unwrap(), bytes[..1000]);
            assert_eq!(codec.decode(&[&stored[..], b"surplus"].concat(), 200_000).unwrap(), bytes);
            assert_eq!(codec.decode_front(&stored, 77).unwrap(), bytes[..77]);
            assert!(matches!(codec.decode(&stored, 200_001), Err(DecodeError::Size { got: 200_000, .. })));
            assert!(codec.decode(&stored[..stored.len() / 2], 200_000).is_err());
            assert!(codec.decode(&[0xff; 100], 100).is_err());
            assert!(matches!(codec.decode(&stored[..10], 1 << 40), Err(DecodeError::Impossible { .. })));
        }
    }

    #[test]
    fn exact_streams_end_with_the_block() {
        let bytes: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
        for (written, codec) in [(Codec::Deflate, Codec::DeflateExact), (Codec::Zlib, Codec::ZlibExact)] {
            let stored = packed(&written, &bytes);
            assert_eq!(codec.decode(&stored, 4000).unwrap(), bytes);
            // One byte more is as wrong as many.
            for size in [0, 1, 3999] {
                assert!(matches!(codec.decode(&stored, size), Err(DecodeError::Size { .. })), "{size}");
                let mut out = vec![0; size as usize];
                assert!(codec.decode_into(&stored, &mut out).is_err(), "{size}");
            }
            assert!(codec.decode(&stored, 4001).is_err());
        }
    }

    #[test]
    fn zlib_checksum() {
        let stored = packed(&Codec::Zlib, b"some bytes");
        for at in stored.len() - 4..stored.len() {
            let mut wrong = stored.clone();
            wrong[at] ^= 1;
            assert!(Codec::Zlib.decode(&wrong, 10).is_err());
            assert!(Codec::Zlib.decode(&stored[..at], 10).is_err());
        }
        assert_eq!(Codec::Zlib.decode(&stored, 10).unwrap(), b"some bytes");
    }
}
