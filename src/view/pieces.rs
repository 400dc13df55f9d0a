//! Files that are put together of small pieces, of which a read wants a part.

use std::ops::Range;

/// A part of a file, filled piece by piece: each at its place in the file.
pub(crate) struct Pieces<'a> {
    /// The range of the file that is wanted.
    pub(crate) part: Range<u64>,
    /// Its bytes.
    pub(crate) out: &'a mut [u8],
}

impl Pieces<'_> {
    /// The bytes of a range of the file that lie in the part.
    pub(crate) fn overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = (range.start.max(self.part.start), range.end.min(self.part.end));
        (start < end).then_some(start..end)
    }

    /// Whether a range of the file has bytes in the part.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        self.overlap(range).is_some()
    }

    /// The place of a range that lies in the part.
    pub(crate) fn slot(&mut self, range: &Range<u64>) -> &mut [u8] {
        &mut self.out[(range.start - self.part.start) as usize..(range.end - self.part.start) as usize]
    }

    /// Copies what is wanted of `bytes`, which stand at `at`.
    pub(crate) fn take(&mut self, at: u64, bytes: &[u8]) {
        if let Some(wanted) = self.overlap(&(at..at + bytes.len() as u64)) {
            let from = (wanted.start - at) as usize;
            let length = (wanted.end - wanted.start) as usize;
            self.slot(&wanted).copy_from_slice(&bytes[from..from + length]);
        }
    }
}
