//! HDF5's filter 4, szip: the size as a little-endian u32, then losslessly coded samples (CCSDS 121.0-B), as libaec
//! stores them.
//!
//! Samples come in lines of whole blocks. If differences are stored, a line starts with a reference sample. Words of 32
//! or 64 bits are stored byte by byte: first the first byte of every word, then the second, and so on.

use super::{DecodeError, bits::Bits, memory, shuffle};

/// Option bits.
const BIG: u32 = 16;
const DIFFERENCES: u32 = 32;

/// The number of zero blocks that means "the rest of the segment", and the blocks of a segment.
const REST: u64 = 5;
const SEGMENT: usize = 64;

/// Greatest sum of a pair that the second extension has codes for.
const SUMS: u32 = 12;

/// How samples are stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Szip {
    is_big: bool,
    has_differences: bool,
    /// Samples of a block.
    block: u32,
    /// Bits of a sample.
    bits: u32,
    /// Bytes of words that are stored byte by byte.
    word: Option<u32>,
    /// Samples of a line.
    line: u32,
}

fn bad(reason: impl ToString) -> DecodeError {
    DecodeError::Corrupt { codec: "szip", reason: reason.to_string() }
}

impl Szip {
    /// Returns what the filter's parameters describe: options, samples of a block, bits of a sample, samples of a line.
    /// Returns `None` for parameters that no encoder uses.
    pub fn new(parameters: &[u32]) -> Option<Self> {
        let &[options, block, bits, line, ..] = parameters else { return None };
        let is_block = (2..=64).contains(&block) && block.is_multiple_of(2);
        // A line is at most 4096 blocks.
        let is_line = line >= 1 && line.div_ceil(block.max(1)) <= 4096;
        let (bits, word) = match bits {
            32 | 64 => (8, Some(bits / 8)),
            1..=31 => (bits, None),
            _ => return None,
        };
        let (is_big, has_differences) = (options & BIG != 0, options & DIFFERENCES != 0);
        (is_block && is_line).then_some(Self { is_big, has_differences, block, bits, word, line })
    }

    /// Returns how many bytes come out, as stated.
    pub(super) fn size(stored: &[u8]) -> Result<u64, DecodeError> {
        let size = stored.first_chunk().ok_or_else(|| bad("it ends in its size"))?;
        Ok(u32::from_le_bytes(*size).into())
    }

    /// Returns how many bytes of memory it takes to decode to `size` bytes, in addition to these.
    pub(super) fn working_memory(&self, size: u64) -> u64 {
        // A line of samples, and the words before they are unshuffled.
        let words = if self.word.is_some() { size.saturating_add(shuffle::WORKING) } else { 0 };
        words.saturating_add(4 * u64::from(self.line.next_multiple_of(self.block)))
    }

    /// Decodes to exactly the size of `out`.
    pub(super) fn decode_into(&self, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let (stated, size) = (Self::size(stored)?, out.len() as u64);
        if stated != size {
            return Err(DecodeError::Size { got: stated, size });
        }
        let mut stream = Bits::new(stored.get(4..).unwrap_or_default());
        let Some(word) = self.word else { return self.lines(&mut stream, out) };
        // Bytes after the last whole word are not stored.
        let whole = out.len() / word as usize * word as usize;
        if whole != out.len() {
            return Err(bad("its words are not whole"));
        }
        let mut planes = memory(size)?;
        self.lines(&mut stream, &mut planes)?;
        shuffle::unshuffle(word as usize, &planes, out);
        Ok(())
    }

    fn lines(&self, stream: &mut Bits, out: &mut [u8]) -> Result<(), DecodeError> {
        let width = match self.bits {
            1..=8 => 1,
            9..=16 => 2,
            _ => 4,
        };
        if !out.len().is_multiple_of(width) {
            return Err(bad("its samples are not whole"));
        }
        let mut samples = vec![0u32; self.line.next_multiple_of(self.block) as usize];
        let mut stream = Blocks { szip: self, stream };
        for out in out.chunks_mut(self.line as usize * width) {
            let wanted = out.len() / width;
            stream.line(&mut samples, wanted).ok_or_else(|| bad("it ends in a block, or a block passes its line"))?;
            if self.has_differences {
                self.sum(samples.get_mut(..wanted).unwrap_or_default());
            }
            match width {
                1 => out.iter_mut().zip(&samples).for_each(|(out, sample)| *out = sample.to_le_bytes()[0]),
                2 => self.write::<2>(&samples, out),
                _ => self.write::<4>(&samples, out),
            }
        }
        Ok(())
    }

    fn write<const N: usize>(&self, samples: &[u32], out: &mut [u8]) {
        for (out, sample) in out.as_chunks_mut::<N>().0.iter_mut().zip(samples) {
            let bytes = match self.is_big {
                true => sample.to_be_bytes().last_chunk().copied(),
                false => sample.to_le_bytes().first_chunk().copied(),
            };
            *out = bytes.unwrap_or(*out);
        }
    }

    /// Turns mapped differences into samples; the first one is a sample.
    fn sum(&self, samples: &mut [u32]) {
        let most = u32::MAX >> (32 - self.bits);
        let half = most / 2 + 1;
        let Some((first, rest)) = samples.split_first_mut() else { return };
        let mut last = *first;
        for sample in rest {
            let difference = *sample;
            // Differences that could have either sign alternate; beyond the nearer limit there is one sign.
            let mask = if last & half == 0 { 0 } else { most };
            last = match (difference >> 1) + (difference & 1) <= mask ^ last {
                true if difference & 1 == 0 => last.wrapping_add(difference >> 1),
                true => last.wrapping_sub((difference >> 1) + 1),
                false => mask ^ difference,
            };
            *sample = last;
        }
    }
}

/// The blocks of a stream.
struct Blocks<'a, 'b, 'c> {
    szip: &'a Szip,
    stream: &'b mut Bits<'c>,
}

impl Blocks<'_, '_, '_> {
    /// Decodes a line as far as it is wanted. Returns `None` if the stream ends or contradicts itself.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        reason = "whole blocks of up to 31 bits a sample"
    )]
    fn line(&mut self, samples: &mut [u32], wanted: usize) -> Option<()> {
        let (block, bits) = (self.szip.block as usize, self.szip.bits);
        // Bits of the number that says how a block is stored.
        let id_bits = match bits {
            1..=8 => 3,
            9..=16 => 4,
            _ => 5,
        };
        let whole = (1 << id_bits) - 1;
        let stream = &mut *self.stream;
        let mut at = 0;
        while at < wanted {
            let has_reference = at == 0 && self.szip.has_differences;
            let first = usize::from(has_reference);
            let id = stream.take(id_bits)?;
            let is_extended = id == 0 && stream.take(1)? == 1;
            let rest = samples.len() / block - at / block;
            let (here, after) = samples[at..].split_at_mut(block);
            if has_reference && id != whole {
                here[0] = stream.take(bits)? as u32;
            }
            match id {
                0 if is_extended => second_extension(stream, first, here)?,
                0 => {
                    let blocks = match stream.zeros()?.checked_add(1)? {
                        REST => rest.min(SEGMENT - at / block % SEGMENT) as u64,
                        more if more > REST => more - 1,
                        few => few,
                    };
                    here[first..].fill(0);
                    let more = usize::try_from(blocks - 1).ok()?.checked_mul(block)?;
                    after.get_mut(..more)?.fill(0);
                    at += more;
                }
                id if id == whole => {
                    for sample in here {
                        *sample = stream.take(bits)? as u32;
                    }
                }
                id => {
                    let low = id as u32 - 1;
                    for sample in &mut here[first..] {
                        *sample = u32::try_from(stream.zeros()?).ok()?.checked_shl(low)?;
                    }
                    if low > 0 {
                        for sample in &mut here[first..] {
                            *sample = sample.wrapping_add(stream.take(low)? as u32);
                        }
                    }
                }
            }
            at += block;
        }
        Some(())
    }
}

/// Decodes pairs of samples. One code gives the sum of a pair and its second sample.
fn second_extension(stream: &mut Bits, first: usize, samples: &mut [u32]) -> Option<()> {
    let mut at = first;
    while at < samples.len() {
        let code = u32::try_from(stream.zeros()?).ok()?;
        let sum = (0..=SUMS).rev().find(|sum| sum * (sum + 1) / 2 <= code)?;
        let second = code - sum * (sum + 1) / 2;
        if second > sum {
            return None;
        }
        // In the first pair of a line only the second sample is stored.
        if at.is_multiple_of(2) {
            *samples.get_mut(at)? = sum - second;
            at += 1;
        }
        *samples.get_mut(at)? = second;
        at += 1;
    }
    Some(())
}
