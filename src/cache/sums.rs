//! The checksum of a large uncompressed block, computed from the parts that readers were given. A block that was read in
//! order then needs no second pass for its verdict, which for an object store would be a second download.

use std::collections::BTreeMap;

use crate::format::CrcKind;

/// Most parts of one block whose checksum is remembered.
const PARTS: usize = 4096;

/// Checksums of parts of a block. Adjacent parts are combined.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// By start: the end, and the checksum of the bytes between.
    parts: BTreeMap<u64, (u64, u32)>,
}

impl Sums {
    /// Bytes of memory that the most parts take, about.
    pub(super) const MEMORY: u64 = 40 * PARTS as u64;

    /// Adds a part. A part that overlaps another is left out, because some of its bytes are known already.
    pub(super) fn add(&mut self, kind: CrcKind, start: u64, length: u64, crc: u32) {
        let end = start.saturating_add(length);
        let before = self.parts.range(..end).next_back().map(|(&start, &(end, crc))| (start, end, crc));
        if length == 0 || before.is_some_and(|(_, end, _)| end > start) {
            return;
        }
        let (mut start, mut part) = (start, (end, crc));
        if let Some((from, to, crc)) = before.filter(|(_, to, _)| *to == start) {
            part.1 = kind.combine(crc, part.1, part.0 - to);
            start = from;
        }
        if let Some((to, crc)) = self.parts.remove(&end) {
            part = (to, kind.combine(part.1, crc, to - end));
        }
        if self.parts.len() < PARTS || self.parts.contains_key(&start) {
            self.parts.insert(start, part);
        }
    }

    /// Takes out the part that ends at `end`: its start and its checksum.
    pub(super) fn take_until(&mut self, end: u64) -> Option<(u64, u32)> {
        let (&start, &(to, crc)) = self.parts.range(..end).next_back()?;
        (to == end).then(|| {
            self.parts.remove(&start);
            (start, crc)
        })
    }

    /// Returns the end and the checksum of the part that begins at `start`.
    pub(super) fn at(&self, start: u64) -> Option<(u64, u32)> {
        self.parts.get(&start).copied()
    }

    /// Returns the start of the first part after an offset.
    pub(super) fn next(&self, offset: u64) -> Option<u64> {
        self.parts.range(offset..).next().map(|(&start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: CrcKind = CrcKind::Crc32c;

    #[test]
    fn parts_in_any_order_give_the_checksum_of_all() {
        let bytes: Vec<u8> = (0..10_000u32).map(|number| (number * 7 + number / 256) as u8).collect();
        for (kind, step) in
            [CrcKind::Crc32c, CrcKind::Crc32].into_iter().flat_map(|kind| [1usize, 3, 7, 997].map(|step| (kind, step)))
        {
            let whole = kind.of(&bytes);
            let mut sums = Sums::default();
            let mut starts: Vec<usize> = (0..bytes.len()).step_by(step).collect();
            starts.sort_by_key(|start| start.wrapping_mul(2_654_435_761) % 1009);
            for start in &starts {
                let part = &bytes[*start..(start + step).min(bytes.len())];
                sums.add(kind, *start as u64, part.len() as u64, kind.of(part));
                // What is known already changes nothing, whatever it says.
                sums.add(kind, *start as u64, part.len() as u64, 7);
            }
            if starts.len() < PARTS {
                assert_eq!(sums.at(0), Some((bytes.len() as u64, whole)), "{step}");
            }
        }
    }

    #[test]
    fn parts_that_overlap_are_left_out_and_their_number_is_bounded() {
        let mut sums = Sums::default();
        sums.add(KIND, 100, 50, 1);
        for (start, length) in [(100, 1), (90, 11), (149, 10), (120, 5), (0, 1000)] {
            sums.add(KIND, start, length, 2);
        }
        assert_eq!((sums.at(100), sums.parts.len()), (Some((150, 1)), 1));
        assert_eq!((sums.take_until(140), sums.take_until(150), sums.take_until(150)), (None, Some((100, 1)), None));
        sums.add(KIND, 100, 50, 1);
        assert_eq!((sums.next(0), sums.next(101)), (Some(100), None));
        (0..2 * PARTS as u64).for_each(|number| sums.add(KIND, 1000 + 10 * number, 5, 3));
        assert_eq!(sums.parts.len(), PARTS);
    }
}
