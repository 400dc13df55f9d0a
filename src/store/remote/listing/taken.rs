//! Memory of a listing, counted in the cache's budget as it grows.

use std::fmt;

use crate::store::ListingRoom;

/// Least bytes that are counted at once.
const STEP: u64 = 64 << 10;

/// Memory that something takes, until it is dropped. Without a room nothing is counted.
#[derive(Default)]
pub(in crate::store::remote) struct Taken {
    room: Option<ListingRoom>,
    bytes: u64,
    held: Vec<Box<dyn Send + Sync>>,
}

impl Taken {
    pub(in crate::store::remote) fn within(room: Option<ListingRoom>) -> Self {
        Self { room, ..Self::default() }
    }

    /// The same room, with nothing taken.
    pub(in crate::store::remote) fn fresh(&self) -> Self {
        Self::within(self.room.clone())
    }

    /// Returns the bytes that are counted.
    pub(in crate::store::remote) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts more, so that `needed` bytes may be taken in all.
    ///
    /// # Errors
    /// That it is more than there may be.
    pub(in crate::store::remote) fn grow(&mut self, needed: u64) -> Result<(), String> {
        let Some(room) = self.room.as_ref().filter(|_| needed > self.bytes) else { return Ok(()) };
        if needed > room.most {
            return Err(format!(
                "a listing of names takes more than {} MiB of memory at once: a larger --cache-size takes it",
                room.most >> 20
            ));
        }
        let ahead = self.bytes + (self.bytes / 2).max(STEP);
        let all = ahead.min(room.most).max(needed);
        self.held.push((room.hold)(all - self.bytes));
        self.bytes = all;
        Ok(())
    }

    /// Counts these bytes instead of all that was counted: nothing grows any more.
    pub(in crate::store::remote) fn settle(&mut self, bytes: u64) {
        let Some(room) = &self.room else { return };
        self.held.clear();
        self.held.push((room.hold)(bytes));
        self.bytes = bytes;
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Taken({})", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_taken_is_counted_and_bounded() {
        let all = Arc::new(());
        let counter = all.clone();
        let mut taken =
            Taken::within(Some(ListingRoom { most: 1 << 20, hold: Arc::new(move |_| Box::new(counter.clone())) }));
        let before = Arc::strong_count(&all);
        assert!(taken.grow(1).is_ok() && taken.bytes() == STEP);
        assert!(taken.grow(1 << 20).is_ok() && taken.bytes() == 1 << 20);
        assert!(taken.grow((1 << 20) + 1).unwrap_err().contains("--cache-size"));
        taken.settle(5);
        assert_eq!((taken.bytes(), Arc::strong_count(&all)), (5, before + 1));
        drop(taken);
        assert_eq!(Arc::strong_count(&all), 1);
    }
}
