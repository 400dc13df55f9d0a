//! Work on many things at once where each is mostly waited for: requests to a server, reads of a disk.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use parking_lot::Mutex;

use crate::held::{self, Held};

/// Calls `each` with every number below `count`, on up to `threads` threads including this one, until all are done or
/// one breaks. If a thread cannot be started, the others do its part.
pub(crate) fn for_each(threads: usize, count: usize, each: impl Fn(usize) -> ControlFlow<()> + Sync) {
    let (next, has_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        while !has_ended.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            if number >= count {
                break;
            }
            if each(number).is_break() {
                has_ended.store(true, Relaxed);
            }
        }
    };
    let held = held::by_this_work();
    let help = || {
        let _held = Held::new(held);
        work();
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            let _ = thread::Builder::new().name("parallel".into()).spawn_scoped(scope, help);
        }
        work();
    });
}

/// Returns what `make` makes of each item, in their order; on up to `threads` threads including this one.
pub(crate) fn map<T: Send, U: Send>(
    threads: usize,
    items: impl Iterator<Item = T> + Send,
    make: impl Fn(T) -> U + Sync,
) -> Vec<U> {
    let (items, done) = (Mutex::new(items.enumerate()), Mutex::new(Vec::new()));
    for_each(threads, usize::MAX, |_| {
        // A statement of its own, so that the lock is not held meanwhile.
        let next = items.lock().next();
        let Some((number, item)) = next else { return ControlFlow::Break(()) };
        let made = make(item);
        done.lock().push((number, made));
        ControlFlow::Continue(())
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn what_a_thread_holds_counts_for_those_that_help_it() {
        let mut held = Held::new(5);
        held.add(2);
        assert_eq!(map(4, 0..8, |_| held::by_this_work()), [7; 8]);
        drop(held);
        assert_eq!(held::by_this_work(), 0);
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        assert_eq!(map(4, 0..100, |number| number * 2), (0..200).step_by(2).collect::<Vec<_>>());
        assert!(map(4, 0..0, |number| number).is_empty());
    }

    #[test]
    fn each_is_done_once_and_so_many_at_a_time() {
        let (done, together) = (Mutex::new(Vec::new()), Barrier::new(4));
        for_each(4, 12, |number| {
            together.wait();
            done.lock().push(number);
            ControlFlow::Continue(())
        });
        let mut done = done.into_inner();
        done.sort_unstable();
        assert_eq!(done, (0..12).collect::<Vec<_>>());
        for_each(0, 3, |_| ControlFlow::Continue(()));
        for_each(4, 0, |_| panic!("there is none"));
    }

    #[test]
    fn none_is_begun_after_one_broke() {
        let done = Mutex::new(0);
        for_each(1, 100, |number| {
            *done.lock() += 1;
            if number == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(*done.lock(), 8);
    }
}
