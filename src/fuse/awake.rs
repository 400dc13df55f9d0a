//! A thread that reads requests stays awake for a short while after an answer, where that makes requests come faster.
//!
//! A reader waits for the thread that answers, and that thread for the reader, by turns. Where the two are on cores that
//! sleep meanwhile, waking the other one takes longer than most requests do, above all in a virtual machine; on one core
//! there is nobody to wake. So both ways are tried, a few requests each, and the faster one is kept for a while. No
//! request comes for a tenth of a millisecond: the thread sleeps.
//!
//! In a virtual machine, waking a sleeping core takes 30 us: half of it for the interrupt between processors, half for
//! leaving the idle state. The thread yields to everything else that wants its core, and with only one core it never stays
//! awake.

use std::{
    cell::Cell,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a thread stays awake after an answer.
const LONGEST: Duration = Duration::from_micros(100);
/// Answers in one trial of a way (awake or asleep).
const TRIAL: u32 = 32;
/// How many trials the faster way is kept before the other one is tried again.
const KEPT: u32 = 32;
/// If this many waits of a trial end without a request, staying awake has failed.
const VAIN: u32 = TRIAL / 8;
/// Requests that are further apart than this are no stream, and neither way makes them faster.
const STREAM: Duration = Duration::from_micros(500);

/// What a thread has measured of both ways.
#[derive(Clone, Copy)]
struct Ways {
    is_awake: bool,
    /// Trials before the other way is tried again.
    left: u32,
    /// When this trial began, and its answers so far.
    since: Option<Instant>,
    answers: u32,
    /// How many waits of this trial ended without a request.
    vain: u32,
    /// The last time for a trial's answers, asleep and awake.
    took: [Duration; 2],
}

thread_local! {
    static WAYS: Cell<Ways> = const {
        Cell::new(Ways { is_awake: false, left: 0, since: None, answers: 0, vain: 0, took: [Duration::ZERO; 2] })
    };
}

/// Waits for requests on the device.
pub(super) struct Awake {
    device: OwnedFd,
    /// Whether a thread stays awake now. One is enough.
    is_taken: AtomicBool,
}

impl Awake {
    pub(super) fn new(device: OwnedFd) -> Self {
        Self { device, is_taken: AtomicBool::new(false) }
    }

    /// Called after an answer: waits a short while for the next request if that is the faster way.
    pub(super) fn wait(&self) {
        let now = Instant::now();
        let mut ways = WAYS.get();
        ways.answered(now);
        if ways.is_awake && !self.is_taken.swap(true, Relaxed) {
            if !self.has_come(now) {
                ways.fails();
            }
            self.is_taken.store(false, Relaxed);
        }
        WAYS.set(ways);
    }

    /// Returns whether a request comes soon. Other threads that wait for this core go first.
    fn has_come(&self, since: Instant) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let mut device = [PollFd::new(&self.device, PollFlags::IN)];
            let is_there = poll(&mut device, Some(&at_once)).map_or(true, |ready| ready > 0);
            if is_there || since.elapsed() > LONGEST {
                // If another thread had this core for long, a sleeping thread would have taken the request earlier.
                return is_there && since.elapsed() < 2 * STREAM;
            }
            std::thread::yield_now();
        }
    }
}

impl Ways {
    /// Notes an answer. After a trial's answers it chooses the way for the next ones.
    fn answered(&mut self, now: Instant) {
        let Some(since) = self.since else {
            (self.since, self.answers, self.vain) = (Some(now), 0, 0);
            return;
        };
        self.answers += 1;
        let took = now.duration_since(since);
        if took > STREAM * (self.answers + 1) {
            // Requests come too slowly: stay asleep if asleep, and count the trial as failed if awake.
            (self.since, self.answers) = (None, 0);
            self.is_awake = false;
            return;
        }
        if self.answers < TRIAL {
            return;
        }
        self.took[usize::from(self.is_awake)] = took / TRIAL;
        (self.since, self.answers, self.vain) = (Some(now), 0, 0);
        if self.left == 0 {
            self.is_awake = !self.is_awake;
            self.left = KEPT;
        } else {
            let [asleep, awake] = self.took;
            self.is_awake = awake < asleep - asleep / 8;
            self.left -= 1;
        }
    }

    /// Ends a trial in which staying awake gained nothing.
    fn fails(&mut self) {
        self.vain += 1;
        if self.vain > VAIN {
            self.took[1] = Duration::MAX;
            (self.is_awake, self.since, self.left) = (false, None, KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers that take so many microseconds, asleep or awake; how many of them were awake.
    fn awake_of(answers: u32, asleep: u64, awake: u64) -> u32 {
        let mut ways = WAYS.get();
        let mut now = Instant::now();
        let mut count = 0;
        for _ in 0..answers {
            ways.answered(now);
            count += u32::from(ways.is_awake);
            now += Duration::from_micros(if ways.is_awake { awake } else { asleep });
        }
        count
    }

    #[test]
    fn the_faster_way_is_taken() {
        assert!(awake_of(10_000, 80, 50) > 9_000);
        assert!((1..1_000).contains(&awake_of(10_000, 50, 80)), "the other way is tried now and then");
        // A little faster is not worth a core.
        assert!(awake_of(10_000, 80, 75) < 1_000);
    }

    #[test]
    fn a_thread_that_is_awake_in_vain_sleeps() {
        let mut ways = WAYS.get();
        (ways.is_awake, ways.left) = (true, KEPT);
        (0..VAIN).for_each(|_| ways.fails());
        assert!(ways.is_awake, "a reader may pause now and then");
        ways.fails();
        assert!(!ways.is_awake);
    }

    #[test]
    fn slow_requests_let_the_thread_sleep() {
        assert_eq!(awake_of(10_000, 2_000, 1_000), 0);
    }
}
