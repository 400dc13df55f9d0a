//! Notifies the kernel of what to forget, and looks after requests that wait: two threads that themselves wait for
//! nothing.
//!
//! A notification that drops a name waits in the kernel for the folder's lock. Every look-up in that folder holds that
//! lock until it is answered, and each later look-up waits behind the notification. So names are never dropped; they
//! are trusted for half a second only. Dropping the pages of a file waits for reads that are under way. If a process is
//! killed while one of its threads waits for that, the kernel frees neither it nor its readers until the mount is taken
//! down by force. So pages are dropped some time later, in the pool, and only after all reads of the file have been
//! answered. Forgetting attributes waits for no request. The pool also looks at what changed.

use std::{
    collections::{HashMap, VecDeque},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;

use super::{filesystems::Filesystems, guard::guarded, pending::Pending};
use crate::{
    pool::{Place, pool},
    store::Changes,
    vfs::{Error, Vfs},
};

/// How often the threads check whether they are still needed.
const LOOK_UP: Duration = Duration::from_secs(2);
/// How often deleted containers are closed.
const SWEEP: Duration = Duration::from_secs(5);
/// How often waiting requests are checked.
const LOOK_AFTER: Duration = Duration::from_millis(250);
/// Least time for reads of a changed file to end before its pages are dropped.
const READS_END: Duration = Duration::from_millis(400);
/// After this long without a sign, the notifying thread counts as lost.
const LOST: Duration = Duration::from_secs(20);

/// State that the threads share with the adapter.
#[derive(Clone)]
pub(super) struct Behind {
    pub(super) filesystems: Arc<Filesystems>,
    pub(super) pending: Arc<Pending>,
    /// Set once the mount exists.
    pub(super) notifier: Arc<OnceLock<Notifier>>,
    pub(super) pages: Arc<Pages>,
}

impl Behind {
    /// Returns the result of a request. If it is stale, the kernel first forgets what is out of date, so that the next
    /// look-up finds the new state.
    pub(super) fn checked<T>(&self, vfs: &Vfs, result: Result<T, Error>) -> Result<T, Error> {
        if result.as_ref().is_err_and(|error| error.errno() == libc::ESTALE)
            && let Some(notifier) = self.notifier.get()
        {
            forget(vfs.take_invalidated(), &self.pages, notifier);
        }
        result
    }
}

/// Nodes whose pages have to be dropped, with the time of the change.
#[derive(Default)]
pub(super) struct Pages(Mutex<VecDeque<(Instant, Vec<u64>)>>);

impl Pages {
    fn add(&self, nodes: Vec<u64>) {
        self.0.lock().push_back((Instant::now(), nodes));
    }

    /// Returns the nodes that changed long enough before `now` and of which no read waits. The others are due
    /// later.
    fn due(&self, now: Instant, pending: &Pending) -> Vec<u64> {
        let mut waiting = self.0.lock();
        let Some(&(oldest, _)) = waiting.front() else { return Vec::new() };
        let count = waiting.iter().take_while(|(since, _)| now.duration_since(*since) >= READS_END).count();
        let waited_for = pending.nodes();
        let nodes = waiting.drain(..count).flat_map(|(_, nodes)| nodes);
        let (later, due): (Vec<u64>, Vec<u64>) = nodes.partition(|node| waited_for.contains(node));
        if !later.is_empty() {
            waiting.push_front((oldest, later));
        }
        due
    }
}

/// Starts the threads. They end when the filesystem does.
pub(super) fn start(vfs: &Arc<Vfs>, behind: &Behind, notifier: Notifier) -> io::Result<()> {
    // Fails only if it is set already, by a second session of one adapter, which does not exist.
    let _ = behind.notifier.set(notifier.clone());
    let begun = Instant::now();
    let beat = Arc::<AtomicU64>::default();
    let (weak, its_behind, its_beat, its_notifier) =
        (Arc::downgrade(vfs), behind.clone(), beat.clone(), notifier.clone());
    thread::Builder::new().name("notify".into()).spawn(move || {
        let is_swept = Arc::new(AtomicBool::new(true));
        let mut swept = Instant::now();
        while let Some(vfs) = weak.upgrade() {
            its_beat.store(begun.elapsed().as_secs(), Relaxed);
            // A panic loses the changes of one round; names expire by themselves.
            guarded(&vfs, |_| tell(&vfs, &weak, &its_behind, &its_notifier));
            if swept.elapsed() > SWEEP && is_swept.swap(false, Relaxed) {
                swept = Instant::now();
                let (vfs, is_swept) = (vfs.clone(), is_swept.clone());
                // In the pool, because it looks at disks, which may not answer.
                run(Place::Task("sweep"), move || {
                    guarded(&vfs, Vfs::sweep);
                    is_swept.store(true, Relaxed);
                });
            }
        }
    })?;
    let (weak, behind) = (Arc::downgrade(vfs), behind.clone());
    let look_after = move || {
        let mut is_lost = false;
        while let Some(vfs) = weak.upgrade() {
            if behind.pending.look_after() {
                pool().drop_given_up();
            }
            let nodes = behind.pages.due(Instant::now(), &behind.pending);
            if !nodes.is_empty() {
                let notifier = notifier.clone();
                // The kernel waits for reads of these pages.
                run(Place::Task("pages"), move || forget_each(&nodes, &notifier, EVERYTHING));
            }
            let silent = begun.elapsed().as_secs().saturating_sub(beat.load(Relaxed));
            if (silent > LOST.as_secs()) != is_lost {
                is_lost = !is_lost;
                vfs.note_notifier(is_lost);
            }
            drop(vfs);
            thread::sleep(LOOK_AFTER);
        }
    };
    thread::Builder::new()
        .name("look after".into())
        .spawn(move || drop(catch_unwind(AssertUnwindSafe(look_after))))
        .map(drop)
}

/// Waits for changes and notifies the kernel. The pool looks at what changed, each filesystem by itself.
fn tell(vfs: &Arc<Vfs>, weak: &Weak<Vfs>, behind: &Behind, notifier: &Notifier) {
    let Changes { events, lost, overflowed } = vfs.wait_for_changes(LOOK_UP);
    forget(vfs.take_invalidated(), &behind.pages, notifier);
    let mut by_place: HashMap<Place, Changes> = HashMap::new();
    for event in events {
        let place = behind.filesystems.place(&vfs.full(&event.folder.join(&event.name)));
        by_place.entry(place).or_default().events.insert(event);
    }
    if overflowed || !lost.is_empty() {
        by_place.insert(Place::Task("lost changes"), Changes { lost, overflowed, ..Changes::default() });
    }
    for (place, changes) in by_place {
        let (weak, pages, notifier) = (weak.clone(), behind.pages.clone(), notifier.clone());
        run(place, move || {
            if let Some(vfs) = weak.upgrade() {
                guarded(&vfs, |vfs| forget(vfs.changed_nodes(changes), &pages, &notifier));
            }
        });
    }
}

/// Offsets by which the kernel forgets only the attributes of a node, or also all of its bytes.
const ATTRIBUTES: i64 = -1;
const EVERYTHING: i64 = 0;

/// Makes the kernel forget nodes: attributes now, bytes as soon as reads of them have ended.
fn forget(nodes: Vec<u64>, pages: &Pages, notifier: &Notifier) {
    if !nodes.is_empty() {
        forget_each(&nodes, notifier, ATTRIBUTES);
        pages.add(nodes);
    }
}

fn forget_each(nodes: &[u64], notifier: &Notifier, what: i64) {
    for &ino in nodes {
        if let Err(error) = notifier.inval_inode(INodeNo(ino), what, 0) {
            // The mount is gone, or the kernel is too old for this: attributes expire by themselves.
            log::debug!("node {ino}: not forgotten: {error}");
        }
    }
}

fn run(place: Place, job: impl FnOnce() + Send + 'static) {
    pool().run(place, Arc::default(), job);
}

#[cfg(test)]
mod tests {
    use fuser::Errno;

    use super::{
        super::pending::{Fails, Slot},
        *,
    };

    struct Reply<const READS: bool>;

    impl<const READS: bool> Fails for Reply<READS> {
        const HOLDS_PAGES: bool = READS;

        fn fail(self, _: Errno) {}
    }

    #[test]
    fn pages_are_dropped_when_no_read_waits_for_them() {
        let (pages, pending) = (Pages::default(), Arc::<Pending>::default());
        let read = pending.begin((7, 0), &Arc::new(Slot::new(Reply::<true>)), None);
        let _open = pending.begin((8, 0), &Arc::new(Slot::new(Reply::<false>)), None);
        pages.add(vec![7, 8]);
        let now = Instant::now();
        assert!(pages.due(now, &pending).is_empty(), "reads are given time to end");
        assert_eq!(pages.due(now + READS_END, &pending), [8]);
        assert!(pages.due(now + READS_END, &pending).is_empty(), "one is waited for");
        drop(read);
        assert_eq!(pages.due(now + READS_END, &pending), [7]);
        assert!(pages.due(now + READS_END, &pending).is_empty());
    }
}
