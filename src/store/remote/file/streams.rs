//! Readers that read an object in order, and how far ahead of them it is fetched.

use std::ops::Range;

/// Most readers of one object that are told apart.
const STREAMS: usize = 8;

/// Bytes read in order after which more are fetched ahead.
const SURE: u64 = 128 << 10;

/// Requests of one reader overtake each other. A read this far before or behind the expected place belongs to the same
/// reader, and so does one within what was fetched ahead.
const BEFORE: u64 = 1 << 20;
const BEHIND: u64 = 256 << 10;

/// Most bytes that are fetched ahead of one reader.
pub(super) const MOST_AHEAD: u64 = 32 << 20;

/// The readers of an object, by where each goes on.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    clock: u64,
}

#[derive(Debug, Clone)]
struct Stream {
    /// The end of what was read.
    next: u64,
    /// Bytes read in order, and by how many requests.
    run: u64,
    requests: u64,
    /// The end of what was asked for.
    asked: u64,
    /// Where it is known to end; the object's end if that is not known.
    end: u64,
    /// When it was used last.
    used: u64,
}

impl Stream {
    /// Returns how many bytes to have in flight or in memory ahead of it. The window grows with the bytes read in
    /// order, so at most a few times as many bytes are fetched without use.
    fn window(&self) -> u64 {
        match self.run {
            _ if self.requests < 2 => 0,
            0..SURE => 0,
            run @ SURE..0x10_0000 => (2 * run).min(MOST_AHEAD),
            run => run.saturating_mul(4).min(MOST_AHEAD),
        }
    }
}

impl Streams {
    /// Notes that a range is read. Returns the end of what should be fetched by now: the end of the range for readers
    /// that are not known to read on. `size` is the object's.
    pub(super) fn read(&mut self, range: &Range<u64>, size: u64) -> u64 {
        self.clock += 1;
        let clock = self.clock;
        let place = |stream: &Stream| {
            let reach = stream.next.saturating_add(stream.window().max(BEHIND));
            range.start >= stream.next.saturating_sub(BEFORE) && range.start <= reach
        };
        let nearest = self.streams.iter_mut().filter(|stream| place(stream));
        let Some(stream) = nearest.min_by_key(|stream| stream.next.abs_diff(range.start)) else {
            self.add(Stream {
                next: range.end,
                run: range.end - range.start,
                requests: 1,
                asked: range.end,
                end: size,
                used: clock,
            });
            return range.end;
        };
        stream.used = clock;
        let fresh = range.end.saturating_sub(stream.next.max(range.start));
        if fresh == 0 {
            return range.end;
        }
        stream.run += fresh;
        stream.requests += 1;
        stream.next = range.end;
        if stream.next >= stream.end && stream.end < size {
            // It reads beyond the announced range.
            (stream.end, stream.run, stream.requests) = (size, 0, 0);
        }
        let window = stream.window();
        // Up to the end of a request, which is also the end of a block, the unit of the disk cache.
        let target = stream.next.saturating_add(window).next_multiple_of(request_size(window)).min(stream.end);
        // Requests are large, instead of a few bytes after each read.
        if window == 0 || target < stream.end && target < stream.asked.saturating_add(request_size(window)) {
            return range.end;
        }
        stream.asked = target.max(stream.asked);
        target.max(range.end)
    }

    /// Notes that a range will be read from its front to its end. Returns the end of what should be fetched by now.
    pub(super) fn expect(&mut self, range: &Range<u64>, most: u64) -> u64 {
        self.clock += 1;
        let asked = range.end.min(range.start.saturating_add(most));
        let run = range.end - range.start;
        self.add(Stream { next: range.start, run, requests: 2, asked, end: range.end, used: self.clock });
        asked
    }

    /// Notes that bytes which were asked for ahead are not there any more.
    pub(super) fn lost(&mut self, offset: u64) {
        for stream in &mut self.streams {
            if stream.next >= offset.saturating_sub(BEFORE) && stream.asked > offset {
                stream.asked = stream.next;
            }
        }
    }

    fn add(&mut self, stream: Stream) {
        if self.streams.len() < STREAMS {
            return self.streams.push(stream);
        }
        if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *oldest = stream;
        }
    }
}

/// Returns the size of one request of a window. Several are in flight, because one connection is slow.
pub(super) fn request_size(window: u64) -> u64 {
    (window / 8).next_multiple_of(1 << 20).clamp(1 << 20, 4 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 30;

    fn ahead(streams: &mut Streams, start: u64, length: u64) -> u64 {
        streams.read(&(start..start + length), SIZE) - (start + length)
    }

    #[test]
    fn a_window_grows_while_reads_are_in_order() {
        let mut streams = Streams::default();
        let mut at = 5_000_000;
        let mut aheads = Vec::new();
        for _ in 0..200 {
            aheads.push(ahead(&mut streams, at, 128 << 10));
            at += 128 << 10;
        }
        assert_eq!(aheads[0], 0, "one read is no reader in order");
        assert!(aheads[1] <= 2 << 20);
        assert!(*aheads.iter().max().unwrap() >= MOST_AHEAD, "{aheads:?}");
        // If it ends here, a few times the bytes that were read were fetched without use.
        for (reads, ahead) in (1_u64..).zip(&aheads) {
            let most = 4 * reads * (128 << 10);
            assert!(*ahead <= most + request_size(most));
        }
    }

    #[test]
    fn readers_at_random_get_what_they_ask_for() {
        let mut streams = Streams::default();
        let mut place = 12345_u64;
        let mut more = 0;
        for _ in 0..300 {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            more += ahead(&mut streams, (place >> 34) / 4096 * 4096, 4096);
        }
        assert_eq!(more, 0);
    }

    #[test]
    fn readers_that_overtake_each_other_are_one() {
        let mut streams = Streams::default();
        let mut most = 0;
        for at in [0, 2, 1, 3, 5, 4, 7, 6, 8, 9, 11, 10] {
            most = most.max(ahead(&mut streams, at << 17, 1 << 17));
        }
        assert!(most >= 1 << 20);
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn what_was_announced_is_fetched_to_its_end_and_no_further() {
        let mut streams = Streams::default();
        assert_eq!(streams.expect(&(1000..10_001_000), MOST_AHEAD), 10_001_000);
        assert_eq!(ahead(&mut streams, 1000, 1_000_000), 9_000_000);
        let end = streams.read(&(9_000_000..10_001_000), SIZE);
        assert_eq!(end, 10_001_000);
        assert_eq!(ahead(&mut streams, 10_001_000, 4096), 0);
    }
}
