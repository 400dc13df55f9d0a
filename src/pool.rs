//! Threads for work that may wait: for a decoder, a disk, a server. One pool in a process.
//!
//! A system call on a server that is gone cannot be ended, so a thread in it is lost until the server comes back.
//! Therefore each filesystem below SOURCE has its own share of threads, and so has each kind of work that no request
//! names. Work beyond that share waits in the place's own queue and holds no thread; work for other places goes on.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rustix::process::{Resource, getrlimit};

use crate::{limits, per_process::PerProcess, wanted};

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(5);

/// Jobs per idle thread before another thread is started.
const JOBS_AN_IDLE_THREAD: usize = 5;

/// What several requests may have to wait for together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A mounted filesystem, by the number of its mount; 0 for the one of SOURCE itself.
    Filesystem(u64),
    /// Work of one kind that no request names, such as decoding ahead.
    Task(&'static str),
}

/// Work for the pool.
struct Job {
    run: Box<dyn FnOnce() + Send>,
    /// Set when its request has ended without it. A job that has not begun is dropped, and one that has may end early
    /// ([`wanted::check`]).
    is_given_up: Arc<AtomicBool>,
}

/// The threads; see the module's documentation.
pub(crate) struct Pool {
    state: Mutex<State>,
    work: Condvar,
    /// Most threads for one place.
    share: usize,
    /// Most threads in all. Each place may have one more, for what has to run.
    most: usize,
}

static POOL: PerProcess<Pool> = PerProcess::new();

/// Returns the pool of this process.
pub(crate) fn pool() -> &'static Pool {
    let Ok(pool) = POOL.get_or_try_init(|| Ok::<_, Infallible>(Pool::new()));
    pool
}

#[derive(Default)]
struct State {
    /// Places with requests under way.
    busy: HashMap<Place, Busy>,
    /// Jobs within their place's share, which the next free thread takes.
    ready: VecDeque<(Place, Job)>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Busy {
    running: usize,
    waiting: VecDeque<Job>,
}

impl Job {
    fn run(self) {
        if !self.is_given_up.load(Relaxed) {
            // The text of a panic is in the log. The thread goes on with the next job.
            let _ = catch_unwind(AssertUnwindSafe(|| wanted::until(self.is_given_up, self.run)));
        }
    }
}

impl Pool {
    /// Returns a pool without threads.
    fn new() -> Self {
        let space = getrlimit(Resource::As).current.map(|limit| limit / limits::ADDRESS_SPACE_A_THREAD);
        let most = space.map_or(limits::POOL_THREADS, |threads| threads.clamp(2, 64) as usize);
        Self::of((most / limits::POOL_PART).max(8.min(most / 2)), most)
    }

    fn of(share: usize, most: usize) -> Self {
        Self { state: Mutex::default(), work: Condvar::new(), share, most }
    }

    /// Runs a job on a thread: now, or when its place has one to spare. If this process cannot have a single thread
    /// more, runs it here. When `is_given_up` is set, a job that has not begun is dropped.
    pub(crate) fn run(&'static self, place: Place, is_given_up: Arc<AtomicBool>, run: impl FnOnce() + Send + 'static) {
        let job = Job { run: Box::new(run), is_given_up };
        let mut state = self.state.lock();
        let busy = state.busy.entry(place).or_default();
        if busy.running >= self.share {
            busy.waiting.push_back(job);
            return;
        }
        if let Some((place, job)) = self.begin(&mut state, place, job) {
            drop(state);
            job.run();
            self.end(&mut self.state.lock(), place);
        }
    }

    /// Runs a job that nothing depends on, if its place has a thread to spare. Otherwise drops it and returns `false`.
    pub(crate) fn run_if_free(&'static self, place: Place, run: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.state.lock();
        let is_full = state.busy.get(&place).is_some_and(|busy| busy.running >= self.share);
        if is_full || state.threads >= self.most && state.idle <= state.ready.len() {
            return false;
        }
        let job = Job { run: Box::new(run), is_given_up: Arc::default() };
        let left = self.begin(&mut state, place, job);
        if let Some((place, _)) = &left {
            self.end(&mut state, *place);
        }
        drop(state);
        left.is_none()
    }

    /// Hands a job to the threads. Returns a job back if there is no thread at all.
    fn begin(&'static self, state: &mut State, place: Place, job: Job) -> Option<(Place, Job)> {
        let busy = state.busy.entry(place).or_default();
        busy.running += 1;
        // A place without a thread never waits behind one that has many.
        if busy.running == 1 {
            state.ready.push_front((place, job));
        } else {
            state.ready.push_back((place, job));
        }
        self.work.notify_one();
        self.grow(state);
        if state.threads == 0 { state.ready.pop_front() } else { None }
    }

    /// Drops waiting jobs whose requests have ended.
    pub(crate) fn drop_given_up(&self) {
        for busy in self.state.lock().busy.values_mut() {
            busy.waiting.retain(|job| !job.is_given_up.load(Relaxed));
        }
    }

    /// Starts a thread if there are many more jobs than idle threads. Not one thread for each job: those of one reader
    /// often come together, and the first does the work for all.
    fn grow(&'static self, state: &mut State) {
        let Some((place, _)) = state.ready.front() else { return };
        let is_first = state.busy.get(place).is_some_and(|busy| busy.running == 1);
        if state.ready.len() <= JOBS_AN_IDLE_THREAD * state.idle || state.threads >= self.most && !is_first {
            return;
        }
        match thread::Builder::new().name("waiting".into()).spawn(move || self.serve()) {
            Ok(_) => {
                state.threads += 1;
                state.idle += 1;
            }
            Err(error) => log::debug!("no thread for the pool: {error}"),
        }
    }

    /// The loop of each thread, which begins idle.
    fn serve(&'static self) {
        let mut state = self.state.lock();
        loop {
            let Some((place, job)) = state.ready.pop_front() else {
                let is_late = self.work.wait_for(&mut state, IDLE).timed_out();
                if is_late && state.ready.is_empty() {
                    state.idle -= 1;
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            state.idle -= 1;
            self.grow(&mut state);
            drop(state);
            job.run();
            state = self.state.lock();
            self.end(&mut state, place);
            state.idle += 1;
        }
    }

    /// Ends a job: its share goes to the next one that waits for the same place.
    fn end(&self, state: &mut State, place: Place) {
        let Some(busy) = state.busy.get_mut(&place) else { return };
        match busy.waiting.pop_front() {
            Some(next) => {
                state.ready.push_back((place, next));
                self.work.notify_one();
            }
            None => {
                busy.running -= 1;
                if busy.running == 0 {
                    state.busy.remove(&place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    impl Pool {
        /// Returns the numbers of jobs on threads, and of those that wait for one.
        fn counts(&self) -> (usize, usize) {
            let state = self.state.lock();
            state.busy.values().fold((0, 0), |(run, wait), busy| (run + busy.running, wait + busy.waiting.len()))
        }
    }

    fn pool(share: usize, most: usize) -> &'static Pool {
        Box::leak(Box::new(Pool::of(share, most)))
    }

    fn run(pool: &'static Pool, place: Place, job: impl FnOnce() + Send + 'static) {
        pool.run(place, Arc::default(), job);
    }

    #[test]
    fn a_place_that_is_stuck_holds_up_no_other() {
        let pool = pool(3, 6);
        let (stuck, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let (done, all_done) = mpsc::channel();
        // More places than there are threads for, and more requests to each than it has a share.
        for place in 0..5 {
            for _ in 0..100 {
                let (wait, done) = (wait.clone(), done.clone());
                run(pool, Place::Filesystem(place), move || {
                    let _ = wait.lock().recv();
                    let _ = done.send(());
                });
            }
        }
        assert_eq!(pool.counts(), (15, 485));
        let (sender, answer) = mpsc::channel();
        run(pool, Place::Filesystem(99), move || sender.send(7).unwrap());
        // What nothing depends on is left out, unless there is a thread for it.
        assert!(!pool.run_if_free(Place::Filesystem(0), || panic!("its place has no thread to spare")));
        assert_eq!(answer.recv_timeout(Duration::from_secs(20)), Ok(7));
        // When the others answer again, every request is done.
        drop(stuck);
        for _ in 0..500 {
            all_done.recv_timeout(Duration::from_secs(20)).unwrap();
        }
    }

    #[test]
    fn what_nobody_waits_for_is_dropped() {
        let pool = pool(1, 1);
        let (go, wait) = mpsc::channel::<()>();
        let place = Place::Task("test");
        run(pool, place, move || assert!(wait.recv().is_err()));
        let (sender, answer) = mpsc::channel::<()>();
        pool.run(place, Arc::new(true.into()), move || sender.send(()).unwrap());
        assert_eq!(pool.counts(), (1, 1));
        pool.drop_given_up();
        assert_eq!(pool.counts(), (1, 0));
        assert!(answer.recv().is_err());
        drop(go);
    }

    #[test]
    fn a_panic_takes_no_thread_away() {
        let pool = pool(1, 1);
        for _ in 0..3 {
            run(pool, Place::Task("test"), || panic!("for the test"));
        }
        let (sender, answer) = mpsc::channel();
        run(pool, Place::Task("test"), move || sender.send(7).unwrap());
        assert_eq!(answer.recv_timeout(Duration::from_secs(20)), Ok(7));
    }
}
