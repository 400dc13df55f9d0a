//! Memory of evicted blocks, reused for the next ones. The kernel clears each page of fresh memory first, which takes
//! about a third of the time of decoding zstd.

use memmap2::MmapMut;

use super::sync::{AtomicU64, Mutex, Ordering::SeqCst};

/// Bytes that may be kept beyond the budget if all of it is reserved: one thread frees them just before another
/// reserves them.
const BEYOND: u64 = 16 << 20;

/// Most bytes that are kept at all.
const MOST: u64 = 64 << 20;

/// Maps that no buffer uses. They are not reserved. They and all reserved bytes together never exceed the budget and
/// [`BEYOND`].
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    /// The newest at the end.
    maps: Mutex<Vec<MmapMut>>,
    bytes: AtomicU64,
}

impl BufferPool {
    /// Keeps a map. `unreserved` returns how many bytes of the budget are not reserved, including those of this map.
    pub(super) fn put(&self, map: MmapMut, unreserved: impl FnOnce() -> u64) {
        if map.len() as u64 > MOST {
            return;
        }
        let mut maps = self.maps.lock();
        self.bytes.fetch_add(map.len() as u64, SeqCst);
        maps.push(map);
        // Called under the lock: a thread that reserves more from now on looks at the kept maps afterwards.
        let freed = self.surplus(&mut maps, unreserved());
        drop(maps);
        drop(freed);
    }

    /// Returns the bytes that are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// Frees maps for which there is no room beside what is reserved.
    pub(super) fn trim(&self, unreserved: u64) {
        if self.bytes() > unreserved.saturating_add(BEYOND).min(MOST) {
            let freed = self.surplus(&mut self.maps.lock(), unreserved);
            drop(freed);
        }
    }

    /// Returns the map whose size is closest to `size`; larger ones first.
    pub(super) fn take(&self, size: usize) -> Option<MmapMut> {
        let mut maps = self.maps.lock();
        let nearest = |(at, map): (usize, &MmapMut)| (map.len() < size, map.len().abs_diff(size), at);
        let (.., at) = maps.iter().enumerate().map(nearest).min()?;
        let map = maps.remove(at);
        self.bytes.fetch_sub(map.len() as u64, SeqCst);
        Some(map)
    }

    /// Takes out the oldest maps until the others fit.
    fn surplus(&self, maps: &mut Vec<MmapMut>, unreserved: u64) -> Vec<MmapMut> {
        let most = unreserved.saturating_add(BEYOND).min(MOST);
        let (mut kept, mut count) = (self.bytes(), 0);
        while let Some(oldest) = maps.get(count).filter(|_| kept > most) {
            kept -= oldest.len() as u64;
            count += 1;
        }
        self.bytes.store(kept, SeqCst);
        maps.drain(..count).collect()
    }
}
