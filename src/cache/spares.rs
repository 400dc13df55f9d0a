//! Memory of blocks that were evicted, for the blocks that come in their place: of memory that is new to the process the
//! kernel clears each page first, which takes about as long as a third of decoding zstd.

use memmap2::MmapMut;

use super::sync::{AtomicU64, Mutex, Ordering::SeqCst};

/// Kept beyond the budget where all of it is reserved: what one thread frees just before another reserves it.
const BEYOND: u64 = 16 << 20;

/// The most that is kept at all.
const MOST: u64 = 64 << 20;

/// Maps that no buffer uses. They are not reserved: they and what is reserved are never more than the budget and
/// [`BEYOND`].
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// The newest at the end.
    maps: Mutex<Vec<MmapMut>>,
    bytes: AtomicU64,
}

impl Spares {
    /// Keeps a map. `unreserved` says how many bytes of the budget are not reserved, those of this map among them.
    pub(super) fn put(&self, map: MmapMut, unreserved: impl FnOnce() -> u64) {
        let mut maps = self.maps.lock();
        self.bytes.fetch_add(map.len() as u64, SeqCst);
        maps.push(map);
        // Read under the lock: a thread that reserves more from now on looks at what is kept afterwards.
        let freed = self.surplus(&mut maps, unreserved());
        drop(maps);
        drop(freed);
    }

    /// Frees what has no room any more beside what is reserved.
    pub(super) fn trim(&self, unreserved: u64) {
        if self.bytes.load(SeqCst) > unreserved.saturating_add(BEYOND).min(MOST) {
            let freed = self.surplus(&mut self.maps.lock(), unreserved);
            drop(freed);
        }
    }

    /// The map whose size comes next to `size`; larger ones first.
    pub(super) fn take(&self, size: usize) -> Option<MmapMut> {
        let mut maps = self.maps.lock();
        let nearest = |(at, map): (usize, &MmapMut)| (map.len() < size, map.len().abs_diff(size), at);
        let (.., at) = maps.iter().enumerate().map(nearest).min()?;
        let map = maps.remove(at);
        self.bytes.fetch_sub(map.len() as u64, SeqCst);
        Some(map)
    }

    /// Takes out the oldest, until the others fit.
    fn surplus(&self, maps: &mut Vec<MmapMut>, unreserved: u64) -> Vec<MmapMut> {
        let most = unreserved.saturating_add(BEYOND).min(MOST);
        let (mut kept, mut count) = (self.bytes.load(SeqCst), 0);
        while let Some(oldest) = maps.get(count).filter(|_| kept > most) {
            kept -= oldest.len() as u64;
            count += 1;
        }
        self.bytes.store(kept, SeqCst);
        maps.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(mib: usize) -> MmapMut {
        MmapMut::map_anon(mib << 20).unwrap()
    }

    #[test]
    fn what_is_kept_fits_beside_what_is_reserved() {
        let spares = Spares::default();
        for _ in 0..3 {
            spares.put(map(10), || 20 << 20);
        }
        assert_eq!(spares.bytes.load(SeqCst), 30 << 20);
        spares.put(map(10), || 20 << 20);
        assert_eq!(spares.bytes.load(SeqCst), 30 << 20, "36 MiB at most");
        spares.trim(0);
        assert_eq!(spares.bytes.load(SeqCst), 10 << 20);
        for _ in 0..9 {
            spares.put(map(10), || 1 << 40);
        }
        assert_eq!(spares.bytes.load(SeqCst), 60 << 20);
        spares.put(map(100), || 1 << 40);
        assert_eq!(spares.bytes.load(SeqCst), 0);
    }

    #[test]
    fn the_map_that_fits_best_is_used_again() {
        let spares = Spares::default();
        for mib in [3, 1, 7, 5] {
            spares.put(map(mib), || 1 << 40);
        }
        let take = |mib: usize| spares.take(mib << 20).map(|map| map.len() >> 20);
        assert_eq!([take(4), take(4), take(4), take(1), take(1)], [Some(5), Some(7), Some(3), Some(1), None]);
        assert_eq!(spares.bytes.load(SeqCst), 0);
    }
}
