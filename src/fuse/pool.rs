//! Threads for requests that may wait: for a decoder, a disk, a server.
//!
//! A system call on a server that is gone cannot be ended, so a thread in it is lost until the server comes back.
//! Therefore each filesystem below SOURCE has its own share of threads. Requests beyond that share wait in the
//! filesystem's own queue and hold no thread; requests to other filesystems go on.

use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rustix::process::{Resource, getrlimit};

use crate::{limits, mounts, wanted};

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(5);

/// Jobs per idle thread before another thread is started.
const JOBS_AN_IDLE_THREAD: usize = 5;

/// What several requests may have to wait for together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A mounted filesystem, by the number of its mount; 0 for the one of SOURCE itself.
    Filesystem(u64),
    /// The kernel, when it drops pages that are being read.
    Pages,
    /// A check of everything, because changes were missed.
    Lost,
    /// A check whether the files of open containers still exist.
    Sweep,
}

/// Work for the pool.
pub(super) struct Job {
    pub(super) run: Box<dyn FnOnce() + Send>,
    /// Set when its request has ended without it. A job that has not begun is dropped, and one that has may end early
    /// ([`wanted::check`]).
    pub(super) is_given_up: Arc<AtomicBool>,
}

/// The pool; see the module's documentation.
pub(super) struct Pool {
    shared: Arc<Shared>,
    filesystems: Mutex<Filesystems>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Most threads for requests to one filesystem.
    share: usize,
    /// Most threads in all. Each filesystem may have one more.
    most: usize,
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
        wanted::until(self.is_given_up, self.run);
    }
}

impl Pool {
    /// Returns a pool without threads, for requests below `source`.
    pub(super) fn new(source: &Path) -> Self {
        let space = getrlimit(Resource::As).current.map(|limit| limit / limits::ADDRESS_SPACE_A_THREAD);
        let most = space.map_or(limits::POOL_THREADS, |threads| threads.clamp(2, 64) as usize);
        let share = (most / limits::POOL_PART).max(8.min(most / 2));
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), share, most };
        Self { shared: Arc::new(shared), filesystems: Mutex::new(Filesystems::new(source)) }
    }

    /// Returns where a request that touches a path may have to wait. Does not look at the path.
    pub(super) fn place(&self, path: &Path) -> Place {
        Place::Filesystem(self.filesystems.lock().of(path))
    }

    /// Runs a job on a thread: now, or when its place has one to spare. If this process cannot have a single thread
    /// more, runs it here.
    pub(super) fn run(&self, place: Place, job: Job) {
        let mut state = self.shared.state.lock();
        let busy = state.busy.entry(place).or_default();
        if busy.running >= self.shared.share {
            busy.waiting.push_back(job);
            return;
        }
        busy.running += 1;
        // A place without a thread never waits behind one that has many.
        if busy.running == 1 {
            state.ready.push_front((place, job))
        } else {
            state.ready.push_back((place, job))
        }
        self.shared.work.notify_one();
        self.shared.clone().grow(&mut state);
        if state.threads == 0
            && let Some((place, job)) = state.ready.pop_front()
        {
            drop(state);
            job.run();
            self.shared.end(&mut self.shared.state.lock(), place);
        }
    }

    /// Drops waiting jobs whose requests have ended.
    pub(super) fn drop_given_up(&self) {
        for busy in self.shared.state.lock().busy.values_mut() {
            busy.waiting.retain(|job| !job.is_given_up.load(Relaxed));
        }
    }

    /// Returns the numbers of requests on threads, and of those that wait for one.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let state = self.shared.state.lock();
        state.busy.values().fold((0, 0), |(run, wait), busy| (run + busy.running, wait + busy.waiting.len()))
    }
}

impl Shared {
    /// Starts a thread if there are many more jobs than idle threads. Not one thread for each job: those of one reader
    /// often come together, and the first does the work for all.
    fn grow(self: Arc<Self>, state: &mut State) {
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
            Err(error) => log::debug!("no thread for a request: {error}"),
        }
    }

    /// The loop of each thread, which begins idle.
    fn serve(self: Arc<Self>) {
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
            self.clone().grow(&mut state);
            drop(state);
            if !job.is_given_up.load(Relaxed) {
                job.run();
            }
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

/// Which mounted filesystem a path is on, by the kernel's table; no filesystem is asked.
struct Filesystems {
    source: PathBuf,
    watch: Option<mounts::TableWatch>,
    /// Mount points, longest first, with the numbers of their mounts.
    all: Vec<(PathBuf, u64)>,
    /// Whether any of them is below SOURCE.
    any_below: bool,
}

impl Filesystems {
    fn new(source: &Path) -> Self {
        let mut this = Self {
            source: source.to_owned(),
            watch: mounts::TableWatch::new().ok(),
            all: Vec::new(),
            any_below: false,
        };
        this.read();
        this
    }

    fn read(&mut self) {
        let table = mounts::all().unwrap_or_default();
        self.all = table.into_iter().map(|mount| (mount.at, mount.id)).collect();
        // Of several mounts at one place the last is on top.
        self.all.reverse();
        self.all.sort_by_key(|(at, _)| std::cmp::Reverse(at.as_os_str().len()));
        self.any_below = self.all.iter().any(|(at, _)| *at != self.source && at.starts_with(&self.source));
    }

    fn of(&mut self, path: &Path) -> u64 {
        if self.watch.as_ref().is_some_and(mounts::TableWatch::has_changed) {
            self.read();
        }
        let below = path.starts_with(&self.source);
        if below && !self.any_below {
            return 0;
        }
        let found = self.all.iter().find(|(at, _)| path.starts_with(at));
        // Paths on the filesystem of SOURCE itself, above or below a mount.
        found.filter(|(at, _)| !(below && self.source.starts_with(at))).map_or(0, |(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn pool(share: usize, most: usize) -> Pool {
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), share, most };
        Pool { shared: Arc::new(shared), filesystems: Mutex::new(Filesystems::new(Path::new("/"))) }
    }

    fn job(run: impl FnOnce() + Send + 'static) -> Job {
        Job { run: Box::new(run), is_given_up: Arc::default() }
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
                pool.run(
                    Place::Filesystem(place),
                    job(move || {
                        let _ = wait.lock().recv();
                        let _ = done.send(());
                    }),
                );
            }
        }
        assert_eq!(pool.counts(), (15, 485));
        let (sender, answer) = mpsc::channel();
        pool.run(Place::Filesystem(99), job(move || sender.send(7).unwrap()));
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
        pool.run(Place::Pages, job(move || assert!(wait.recv().is_err())));
        let (sender, answer) = mpsc::channel::<()>();
        let given_up = job(move || sender.send(()).unwrap());
        given_up.is_given_up.store(true, Relaxed);
        pool.run(Place::Pages, given_up);
        assert_eq!(pool.counts(), (1, 1));
        pool.drop_given_up();
        assert_eq!(pool.counts(), (1, 0));
        assert!(answer.recv().is_err());
        drop(go);
    }

    #[test]
    fn a_path_lies_on_the_innermost_mount() {
        let mut filesystems = Filesystems::new(Path::new("/srv/data"));
        filesystems.watch = None;
        let table = [("/srv/data/far/deep", 5), ("/srv/data/far", 4), ("/mnt", 3), ("/srv", 2), ("/", 1)];
        filesystems.all = table.map(|(at, id)| (PathBuf::from(at), id)).to_vec();
        filesystems.any_below = true;
        let of = |filesystems: &mut Filesystems, path: &str| filesystems.of(Path::new(path));
        assert_eq!(of(&mut filesystems, "/srv/data/near/file"), 0);
        assert_eq!(of(&mut filesystems, "/srv/data/far"), 4);
        assert_eq!(of(&mut filesystems, "/srv/data/far/deep/x"), 5);
        assert_eq!(of(&mut filesystems, "/srv/data/farther"), 0);
        assert_eq!(of(&mut filesystems, "/mnt/elsewhere"), 3);
    }
}
