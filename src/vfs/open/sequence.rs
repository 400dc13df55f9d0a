//! Detects programs that go through something in order: the containers of a folder, files with numbers in their names.
//!
//! A *run* is a series of places, each a little further than the one before. From the third place on, the next ones are
//! worth preparing, and more of them the longer the run. A program that jumps about has nothing prepared.

use std::{collections::VecDeque, ops::Range};

/// Number of steps after which places in order count as a run.
const STEPS: u64 = 2;

/// Follows the runs of several programs at once. `K` says what they go through.
#[derive(Debug)]
pub(crate) struct SequenceDetector<K> {
    limits: Limits,
    /// The run that continued most recently is last.
    runs: VecDeque<Run<K>>,
}

/// How runs are followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most runs that are followed. Programs that go through something side by side have one each.
    pub(crate) runs: usize,
    /// How far out of order places may come, because several readers may share a run.
    pub(crate) reach: u64,
    /// Most places that are prepared ahead of each run.
    pub(crate) ahead: u64,
}

#[derive(Debug)]
struct Run<K> {
    key: K,
    /// The highest place that was reached.
    at: u64,
    steps: u64,
    /// End of the places that are prepared or being prepared.
    end: u64,
}

impl<K: PartialEq> SequenceDetector<K> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, runs: VecDeque::new() }
    }

    /// Notes that a place is used. Returns the places to prepare.
    pub(crate) fn note(&mut self, key: K, at: u64) -> Range<u64> {
        let is_near = |run: &Run<K>| run.key == key && run.at.abs_diff(at) <= self.limits.reach;
        let found = self.runs.iter().position(is_near).and_then(|index| self.runs.remove(index));
        if self.runs.len() == self.limits.runs {
            self.runs.pop_front();
        }
        let after = at.saturating_add(1);
        let mut run = found.unwrap_or(Run { key, at, steps: 0, end: after });
        let is_step = run.at < at;
        let begin = run.end.max(after);
        if is_step {
            run.at = at;
            run.steps += 1;
        }
        let ahead = if is_step && run.steps >= STEPS { (2 * run.steps).min(self.limits.ahead) } else { 0 };
        let next = begin..after.saturating_add(ahead).max(begin);
        run.end = next.end;
        self.runs.push_back(run);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector(ahead: u64) -> SequenceDetector<String> {
        SequenceDetector::new(Limits { runs: 8, reach: 16, ahead })
    }

    fn notes(
        detector: &mut SequenceDetector<String>,
        key: &str,
        places: impl IntoIterator<Item = u64>,
    ) -> Vec<Range<u64>> {
        places.into_iter().map(|at| detector.note(key.to_owned(), at)).collect()
    }

    #[test]
    fn a_run_is_ahead_of_by_more_and_more() {
        let mut detector = detector(8);
        assert_eq!(notes(&mut detector, "a", 10..17), [11..11, 12..12, 13..17, 17..20, 20..23, 23..24, 24..25]);
    }

    #[test]
    fn each_place_is_prepared_once_whatever_is_left_out() {
        let mut detector = detector(8);
        let opened: Vec<_> = notes(&mut detector, "a", (0..200).step_by(3)).into_iter().flatten().collect();
        assert!(opened.is_sorted() && opened.windows(2).all(|pair| pair[0] < pair[1]), "{opened:?}");
    }

    #[test]
    fn readers_that_go_through_one_thing_together_make_one_run() {
        let mut detector = detector(8);
        let places = [0, 2, 1, 3, 5, 4, 7, 6];
        let opened: Vec<_> = notes(&mut detector, "a", places).into_iter().flatten().collect();
        assert_eq!(detector.runs.len(), 1);
        assert!(opened.iter().eq((4..16).collect::<Vec<_>>().iter()), "{opened:?}");
    }

    #[test]
    fn programs_that_jump_about_have_nothing_prepared() {
        let mut detector = detector(8);
        let places = (0..500).map(|step| step * 389 % 10_000);
        assert!(notes(&mut detector, "a", places).into_iter().all(|next| next.is_empty()));
        let backwards = (0..500).rev();
        assert!(notes(&mut detector, "b", backwards).into_iter().all(|next| next.is_empty()));
    }

    #[test]
    fn runs_side_by_side_are_told_apart() {
        let mut detector = detector(4);
        for step in 0..5 {
            let next = ["a", "b"].map(|key| notes(&mut detector, key, [step]).remove(0));
            let far = notes(&mut detector, "a", [5000 + step]).remove(0);
            assert_eq!(next[0], next[1]);
            assert_eq!(far.end - far.start, next[0].end - next[0].start);
            assert_eq!(next[0].is_empty(), step < 2);
        }
        assert_eq!(detector.runs.len(), 3);
        for other in 0..100 {
            notes(&mut detector, &format!("{other}"), [0]);
            assert!(detector.runs.len() <= 8);
        }
    }

    #[test]
    fn the_last_places_of_all_are_places() {
        let mut detector = detector(8);
        let last = notes(&mut detector, "a", u64::MAX - 4..=u64::MAX);
        assert!(last.iter().all(|next| next.start <= next.end));
    }
}
