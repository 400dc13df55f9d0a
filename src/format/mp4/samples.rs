//! The tables of a track's samples: their sizes, chunks, times and key frames.

use super::{SAMPLES, Sample, boxes::Boxes};
use crate::{
    format::{Fields, PartError},
    source::to_usize,
};

/// The tables of `stbl`. All are complete.
pub(super) struct Tables<'a> {
    count: u64,
    sizes: Sizes<'a>,
    /// `stsc`: first chunk, samples a chunk, sample entry.
    chunks: &'a [u8],
    /// `stco` or `co64`, with the bytes of an entry.
    offsets: (&'a [u8], usize),
    /// `stts`: samples, duration.
    times: &'a [u8],
    /// `ctts`: samples, composition offset.
    compositions: Option<&'a [u8]>,
    /// `stss`: numbers of key frames from 1 on.
    keys: Option<&'a [u8]>,
}

/// Sizes of samples in bytes.
enum Sizes<'a> {
    Same(u32),
    /// Numbers of this many bits.
    Each(&'a [u8], u32),
}

impl Sizes<'_> {
    fn get(&self, sample: usize) -> Option<u32> {
        match *self {
            Self::Same(size) => Some(size),
            Self::Each(bytes, 4) => {
                let byte = *bytes.get(sample / 2)?;
                Some(u32::from(if sample.is_multiple_of(2) { byte >> 4 } else { byte & 15 }))
            }
            Self::Each(bytes, 8) => bytes.get(sample).copied().map(u32::from),
            Self::Each(bytes, 16) => bytes.array(2 * sample).map(|two| u16::from_be_bytes(two).into()),
            Self::Each(bytes, _) => bytes.array(4 * sample).map(u32::from_be_bytes),
        }
    }
}

/// Returns the pairs of 32-bit numbers of a table.
fn pairs(table: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    table.chunks_exact(8).map(|entry| {
        let number = |at| entry.array(at).map_or(0, u32::from_be_bytes);
        (number(0), number(4))
    })
}

impl<'a> Tables<'a> {
    pub(super) fn new(table: &Boxes<'a>) -> Result<Self, PartError> {
        let (count, sizes) = match (table.find(b"stsz")?, table.find(b"stz2")?) {
            (Some(stsz), _) => match stsz.u32(4)? {
                0 => (stsz.u32(8)?, Sizes::Each(stsz.table(8, 4)?, 32)),
                size => (stsz.u32(8)?, Sizes::Same(size)),
            },
            (None, Some(stz2)) => {
                let ([bits], count) = (stz2.bytes(7)?, stz2.u32(8)?);
                if !matches!(bits, 4 | 8 | 16) {
                    return PartError::damaged(format!("sizes of samples of {bits} bits"));
                }
                let length = (u64::from(count) * u64::from(bits)).div_ceil(8);
                match stz2.after(12)?.content().get(..to_usize(length)) {
                    Some(sizes) => (count, Sizes::Each(sizes, bits.into())),
                    None => return PartError::damaged(format!("no room for the sizes of {count} samples")),
                }
            }
            (None, None) => return PartError::damaged("no box stsz"),
        };
        if u64::from(count) > SAMPLES {
            return PartError::damaged(format!("{count} samples, more than {SAMPLES}"));
        }
        let offsets = match table.find(b"stco")? {
            Some(offsets) => (offsets.table(4, 4)?, 4),
            None => (table.need(b"co64")?.table(4, 8)?, 8),
        };
        Ok(Self {
            count: count.into(),
            sizes,
            chunks: table.need(b"stsc")?.table(4, 12)?,
            offsets,
            times: table.need(b"stts")?.table(4, 8)?,
            compositions: table.find(b"ctts")?.map(|compositions| compositions.table(4, 8)).transpose()?,
            keys: table.find(b"stss")?.map(|keys| keys.table(4, 4)).transpose()?,
        })
    }

    /// Returns the number of samples.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns all samples in the order of decoding, and how long each lasts.
    pub(super) fn samples(&self) -> Result<(Vec<Sample>, Vec<u32>), PartError> {
        let mut samples = self.places()?;
        let (mut time, mut durations) = (0i64, Vec::with_capacity(samples.len()));
        for (count, duration) in pairs(self.times) {
            let Some(these) = samples.get_mut(durations.len()..durations.len() + count as usize) else {
                return PartError::damaged(format!("stts has more than the {} samples of stsz", self.count));
            };
            for sample in these {
                sample.time = time;
                time = time.saturating_add(duration.into());
                durations.push(duration);
            }
        }
        if durations.len() != samples.len() {
            return PartError::damaged(format!("stts has {} samples, stsz {}", durations.len(), self.count));
        }
        let mut composed = 0;
        for (count, offset) in self.compositions.into_iter().flat_map(pairs) {
            let Some(these) = samples.get_mut(composed..composed + count as usize) else {
                return PartError::damaged(format!("ctts has more than the {} samples of stsz", self.count));
            };
            // In version 0 the offset is unsigned by the standard, but some writers store signed numbers. No real
            // offset needs the highest bit.
            these.iter_mut().for_each(|sample| sample.time = sample.time.saturating_add(offset.cast_signed().into()));
            composed += count as usize;
        }
        if self.compositions.is_some() && composed != samples.len() {
            return PartError::damaged(format!("ctts has {composed} samples, stsz {}", self.count));
        }
        Ok((samples, durations))
    }

    /// Returns the samples with their places and sizes.
    fn places(&self) -> Result<Vec<Sample>, PartError> {
        let (offsets, each) = self.offsets;
        let chunks = (offsets.len() / each) as u64;
        let mut samples = Vec::with_capacity(to_usize(self.count));
        let mut runs = self.chunks.chunks_exact(12).peekable();
        let field = |run: &[u8], at| u64::from(run.array(at).map_or(0, u32::from_be_bytes));
        if let Some(first) = runs.peek().map(|run| field(run, 0)).filter(|&first| first != 1) {
            return PartError::damaged(format!("stsc begins with chunk {first}"));
        }
        while let Some(run) = runs.next() {
            let (first, samples_a_chunk, entry) = (field(run, 0), field(run, 4), field(run, 8));
            let end = runs.peek().map_or(chunks + 1, |next| field(next, 0));
            if end <= first && chunks > 0 || end > chunks + 1 {
                return PartError::damaged(format!("stsc names chunk {end} after {first}, of {chunks}"));
            }
            if entry != 1 {
                return PartError::damaged(format!("samples of sample entry {entry}"));
            }
            for chunk in first..end {
                let at = to_usize(chunk - 1) * each;
                let offset = match each {
                    4 => offsets.array(at).map(|four| u32::from_be_bytes(four).into()),
                    _ => offsets.array(at).map(u64::from_be_bytes),
                };
                let mut offset: u64 = offset.unwrap_or(u64::MAX);
                if samples_a_chunk > self.count - samples.len() as u64 {
                    return PartError::damaged(format!("stsc has more than the {} samples of stsz", self.count));
                }
                for _ in 0..samples_a_chunk {
                    let Some(size) = self.sizes.get(samples.len()) else { break };
                    samples.push(Sample { offset, size, time: 0 });
                    offset = offset.saturating_add(size.into());
                }
            }
        }
        match samples.len() as u64 == self.count {
            true => Ok(samples),
            false => PartError::damaged(format!("stsc has {} samples, stsz {}", samples.len(), self.count)),
        }
    }

    /// Returns the numbers of the samples at which decoding can begin, from 0 on.
    pub(super) fn keys(&self) -> Result<Vec<u32>, PartError> {
        let Some(table) = self.keys else { return Ok((0..).take(to_usize(self.count)).collect()) };
        let mut keys: Vec<u32> = Vec::with_capacity(table.len() / 4);
        for entry in table.chunks_exact(4) {
            let key = entry.array(0).map_or(0, u32::from_be_bytes);
            let after = keys.last().map_or(0, |last| last + 1);
            match key.checked_sub(1).filter(|&key| key >= after && u64::from(key) < self.count) {
                Some(key) => keys.push(key),
                None => return PartError::damaged(format!("stss names sample {key} of {}", self.count)),
            }
        }
        Ok(keys)
    }
}
