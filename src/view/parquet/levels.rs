//! Levels of a page: where lists begin, and which values are missing. They are a length of 4 bytes and runs, whose size
//! does not depend on any value.

use super::compact::varint;
use crate::view::pieces::Pieces;

/// Longest lists that get a bit for each element instead of two runs for each list.
const SHORT: u64 = 32;

/// Returns the head of a run of `groups` groups of eight values, packed as bits.
fn packed_head(groups: u64) -> Vec<u8> {
    let mut head = Vec::new();
    varint(&mut head, groups << 1 | 1);
    head
}

/// Returns a run of one level.
fn run(level: u8, count: u64) -> Vec<u8> {
    let mut run = Vec::new();
    varint(&mut run, count << 1);
    run.push(level);
    run
}

/// The levels of lists of one length.
#[derive(Debug, Clone)]
pub(super) struct Lists {
    lists: u64,
    slots: u64,
    /// Head of the run, or the runs of one list.
    head: Vec<u8>,
    /// The run that marks every element as present.
    all: Vec<u8>,
}

impl Lists {
    /// Returns the levels of `lists` lists (at least one) of `slots` elements.
    pub(super) fn new(lists: u64, slots: u64) -> Self {
        let count = lists * slots;
        let head = match slots {
            1 => run(0, count),
            2..=SHORT => packed_head(count.div_ceil(8)),
            _ => [run(0, 1), run(1, slots - 1)].concat(),
        };
        Self { lists, slots, head, all: run(1, count) }
    }

    /// Returns the bytes of the runs that mark where lists begin.
    fn repetition(&self) -> u64 {
        let head = self.head.len() as u64;
        match self.slots {
            1 => head,
            2..=SHORT => head + (self.lists * self.slots).div_ceil(8),
            _ => head * self.lists,
        }
    }

    /// Returns the bytes of the levels.
    pub(super) fn size(&self) -> u64 {
        4 + self.repetition() + 4 + self.all.len() as u64
    }

    /// Fills the wanted part of the levels, which begin at 0.
    pub(super) fn fill(&self, pieces: &mut Pieces<'_>) {
        let runs = self.repetition();
        pieces.take(0, &(runs as u32).to_le_bytes());
        let head = self.head.len() as u64;
        match self.slots {
            1 => pieces.take(4, &self.head),
            2..=SHORT => {
                pieces.take(4, &self.head);
                if let Some(wanted) = pieces.overlap(&(4 + head..4 + runs)) {
                    let first = wanted.start - 4 - head;
                    // The level of an element is 0 if it begins a list. Bits after the last element are not read. The
                    // bytes come again after as many as a list has elements.
                    let byte = |byte: u64| {
                        let bits = (0..8).map(|bit| u8::from(!(8 * byte + bit).is_multiple_of(self.slots)) << bit);
                        bits.fold(0, |byte, bit| byte | bit)
                    };
                    let period: Vec<u8> = (first..first + self.slots).map(byte).collect();
                    for out in pieces.slot(&wanted).chunks_mut(period.len()) {
                        out.copy_from_slice(period.get(..out.len()).unwrap_or_default());
                    }
                }
            }
            _ => {
                if let Some(wanted) = pieces.overlap(&(4..4 + runs)) {
                    let skip = (wanted.start - 4) % head;
                    let repeated = self.head.iter().cycle().skip(skip as usize);
                    pieces.slot(&wanted).iter_mut().zip(repeated).for_each(|(out, byte)| *out = *byte);
                }
            }
        }
        pieces.take(4 + runs, &(self.all.len() as u32).to_le_bytes());
        pieces.take(8 + runs, &self.all);
    }
}

/// Returns the bytes of `count` levels of `bits` bits each.
pub(super) fn packed_size(count: u64, bits: u64) -> u64 {
    4 + packed_head(count.div_ceil(8)).len() as u64 + bits * count.div_ceil(8)
}

/// Writes these levels, all 0, to the front of `out`. Returns their bits, and what follows them.
pub(super) fn split_packed(count: u64, bits: u64, out: &mut [u8]) -> (&mut [u8], &mut [u8]) {
    let head = packed_head(count.div_ceil(8));
    let size = packed_size(count, bits);
    let (levels, rest) = out.split_at_mut(size as usize);
    levels[..4].copy_from_slice(&(size as u32 - 4).to_le_bytes());
    levels[4..4 + head.len()].copy_from_slice(&head);
    (&mut levels[4 + head.len()..], rest)
}

/// Returns the head of the indices of a dictionary: their width in bits, and one run of all.
pub(super) fn indices_head(rows: u64, width: u64) -> Vec<u8> {
    [vec![8 * width as u8], packed_head(rows.div_ceil(8))].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(lists: &Lists, part: std::ops::Range<u64>) -> Vec<u8> {
        let mut out = vec![0xee; (part.end - part.start) as usize];
        lists.fill(&mut Pieces { part, out: &mut out });
        out
    }

    /// Decodes runs of levels of one bit.
    fn levels(mut runs: &[u8], count: usize) -> Vec<u8> {
        let mut levels = Vec::new();
        while !runs.is_empty() {
            let (mut head, mut shift) = (0u64, 0);
            loop {
                let byte = runs[0];
                runs = &runs[1..];
                head |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            let length = (head >> 1) as usize;
            if head & 1 == 1 {
                let (bits, rest) = runs.split_at(length);
                levels.extend(bits.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)));
                runs = rest;
            } else {
                levels.extend(std::iter::repeat_n(runs[0], length));
                runs = &runs[1..];
            }
        }
        assert!(levels.len() >= count && levels.len() < count + 8);
        levels.truncate(count);
        levels
    }

    #[test]
    fn lists_begin_where_they_should() {
        for (lists, slots) in [(1, 1), (5, 1), (3, 2), (100, 7), (9, 32), (9, 33), (4, 4096)] {
            let made = Lists::new(lists, slots);
            let whole = bytes(&made, 0..made.size());
            let first = u32::from_le_bytes(whole[..4].try_into().unwrap()) as usize;
            let expected: Vec<u8> = (0..lists * slots).map(|i| u8::from(i % slots != 0)).collect();
            assert_eq!(levels(&whole[4..4 + first], expected.len()), expected, "{lists} {slots}");
            let second = u32::from_le_bytes(whole[4 + first..8 + first].try_into().unwrap()) as usize;
            assert_eq!(whole.len(), 8 + first + second);
            assert_eq!(levels(&whole[8 + first..], expected.len()), vec![1; expected.len()]);
            for start in 0..made.size() {
                for end in [start, start + 1, start + 5, made.size()].map(|end| end.min(made.size())) {
                    assert_eq!(bytes(&made, start..end), whole[start as usize..end as usize]);
                }
            }
        }
    }
}
