//! How much is fetched ahead of all readers of a store.
//!
//! Bytes that were fetched ahead count until they are read, or were there for some seconds: a reader that wants them
//! comes sooner. So what is fetched ahead for one reader does not evict what was fetched ahead for another.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Bytes that were asked for in one such time, or in the one before, count.
const FRESH: Duration = Duration::from_secs(5);

/// The count.
#[derive(Debug)]
pub(super) struct Ahead {
    most: u64,
    start: Instant,
    /// The times in which bytes were asked for, and how many of these were not read; the newest at the end.
    unread: Mutex<VecDeque<(u64, u64)>>,
}

impl Ahead {
    /// Returns a count of at most `most` bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { most, start: Instant::now(), unread: Mutex::default() }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_secs() / FRESH.as_secs()
    }

    /// Returns whether more bytes may be asked for.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        let now = self.now();
        let mut unread = self.unread.lock();
        while unread.front().is_some_and(|(time, _)| *time + 1 < now) {
            unread.pop_front();
        }
        unread.iter().map(|(_, unread)| unread).sum::<u64>().saturating_add(bytes) <= self.most
    }

    /// Counts bytes that are asked for. Returns the time, for [`Self::read`].
    pub(super) fn add(&self, bytes: u64) -> u64 {
        let now = self.now();
        let mut unread = self.unread.lock();
        match unread.back_mut().filter(|(time, _)| *time == now) {
            Some((_, unread)) => *unread += bytes,
            None => unread.push_back((now, bytes)),
        }
        now
    }

    /// Notes that bytes are read that were asked for in a time.
    pub(super) fn read(&self, time: u64, bytes: u64) {
        if let Some((_, unread)) = self.unread.lock().iter_mut().find(|(known, _)| *known == time) {
            *unread = unread.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_they_are_read() {
        let ahead = Ahead::new(100);
        assert!(ahead.fits(100) && !ahead.fits(101));
        let time = ahead.add(80);
        assert!(ahead.fits(20) && !ahead.fits(21));
        ahead.read(time, 50);
        assert!(ahead.fits(70) && !ahead.fits(71));
        ahead.read(time + 9, 30);
        assert!(!ahead.fits(71));
    }
}
