//! Memory of a listing, counted in the cache's budget as it grows.

use std::sync::Arc;

use crate::cache::{Cache, Reservation};

/// Least bytes that are counted at once.
const STEP: u64 = 64 << 10;

/// Memory that something takes, until it is dropped.
pub(crate) struct Taken {
    cache: Arc<Cache>,
    /// Most bytes.
    most: u64,
    held: Reservation,
}

impl Taken {
    pub(crate) fn within(cache: &Arc<Cache>, most: u64) -> Self {
        Self { cache: cache.clone(), most, held: cache.hold(0) }
    }

    /// Returns the bytes that are counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Counts more, so that `needed` bytes may be taken in all.
    ///
    /// # Errors
    /// That it is more than there may be.
    pub(crate) fn grow(&mut self, needed: u64) -> Result<(), String> {
        if needed > self.most {
            return Err(format!(
                "a listing of names takes more than {} MiB of memory at once: a larger --cache-size takes it",
                self.most >> 20
            ));
        }
        let counted = self.bytes();
        if needed > counted {
            let ahead = counted + (counted / 2).max(STEP);
            self.held.merge(self.cache.hold(ahead.min(self.most).max(needed) - counted));
        }
        Ok(())
    }

    /// Gives back what is counted beyond these bytes: nothing grows any more.
    pub(crate) fn settle(&mut self, bytes: u64) {
        self.held.shrink_to(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Verify;

    #[test]
    fn what_is_taken_is_counted_and_bounded() {
        let cache = Cache::new(16 << 20, Verify::Lazy);
        let mut taken = Taken::within(&cache, 1 << 20);
        assert!(taken.grow(1).is_ok() && taken.bytes() == STEP && cache.usage().1 == STEP);
        assert!(taken.grow(1 << 20).is_ok() && taken.bytes() == 1 << 20);
        assert!(taken.grow((1 << 20) + 1).unwrap_err().contains("--cache-size"));
        taken.settle(5);
        assert_eq!((taken.bytes(), cache.usage().1), (5, 5));
        drop(taken);
        assert_eq!(cache.usage().1, 0);
    }
}
