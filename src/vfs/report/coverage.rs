//! How much of the containers' files checksums cover, for `verify`.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::{
    source::{Source, SourceError, Wait},
    store::{File, FileId},
};

/// Largest gap between two checked ranges that counts with them: the length and the checksums that frame a record.
const FRAMING: u64 = 16;

/// What checksums cover of each file that was opened for a container.
#[derive(Debug, Default)]
pub struct Coverage {
    files: Mutex<HashMap<FileId, Arc<Covered>>>,
    /// Whether only what is read counts, and not whole files.
    counts_read: Arc<AtomicBool>,
}

/// Sums over all files that were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Covering {
    /// Bytes of the files, or those of them that were read.
    pub stored: u64,
    /// Bytes of them that no checksum covers, or none that was compared and right.
    pub unchecked: u64,
}

#[derive(Debug)]
struct Covered {
    len: u64,
    checked: Mutex<Ranges>,
    read: Mutex<Ranges>,
    counts_read: Arc<AtomicBool>,
}

/// Ranges that do not touch, by their starts.
#[derive(Debug, Default, Clone)]
struct Ranges(BTreeMap<u64, u64>);

impl Coverage {
    /// Returns the sums so far.
    pub fn total(&self) -> Covering {
        let files = self.files.lock();
        files.values().fold(Covering::default(), |sum, file| {
            let (stored, checked) = file.bytes();
            Covering { stored: sum.stored + stored, unchecked: sum.unchecked + (stored - checked) }
        })
    }

    /// Makes only what is read from now on count, and what is checked.
    pub(crate) fn count_what_is_read(&self) {
        self.counts_read.store(true, Relaxed);
    }

    /// Returns a file as a source that notes what is checked.
    pub(crate) fn noting(&self, file: Arc<dyn File>) -> Arc<dyn Source> {
        let (id, source): (_, Arc<dyn Source>) = (file.version().file(), file);
        let new = || {
            let (checked, read) = Default::default();
            Arc::new(Covered { len: source.len(), checked, read, counts_read: self.counts_read.clone() })
        };
        let covered = self.files.lock().entry(id).or_insert_with(new).clone();
        Arc::new(Noting { source, covered })
    }
}

impl Covered {
    /// Returns how many bytes count, and how many of them are checked.
    fn bytes(&self) -> (u64, u64) {
        let checked = self.checked.lock();
        let mut all = self.read.lock().clone();
        checked.0.iter().for_each(|(start, end)| all.add(&(*start..*end)));
        let stored = if self.counts_read.load(Relaxed) { all.bytes().min(self.len) } else { self.len };
        (stored, checked.bytes().min(stored))
    }
}

impl Ranges {
    fn add(&mut self, range: &Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if start >= end {
            return;
        }
        // From the right, those that touch it.
        while let Some((&from, &to)) = self.0.range(..=end.saturating_add(FRAMING)).next_back()
            && to.saturating_add(FRAMING) >= start
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

struct Noting {
    source: Arc<dyn Source>,
    covered: Arc<Covered>,
}

impl Source for Noting {
    fn note_checked(&self, range: &Range<u64>) {
        self.covered.checked.lock().add(range);
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.source)
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        if self.covered.counts_read.load(Relaxed) {
            self.covered.read.lock().add(&(offset..offset.saturating_add(buf.len() as u64)));
        }
        self.source.read_at(offset, buf, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_any_order_and_what_frames_them() {
        let mut ranges = Ranges::default();
        for range in [100..200, 300..400, 0..50, 216..300, 150..160, 7..7, 350..420] {
            ranges.add(&range);
        }
        assert_eq!(ranges.0.into_iter().collect::<Vec<_>>(), [(0, 50), (100, 420)]);
        let mut all = Ranges::default();
        for start in [500, 18, 0, u64::MAX - 5] {
            all.add(&(start..start.saturating_add(1)));
        }
        assert_eq!(all.bytes(), 4);
        all.add(&(0..u64::MAX));
        assert_eq!(all.bytes(), u64::MAX);
    }
}
