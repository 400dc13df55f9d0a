//! Requests that wait in the pool, and the answers that they get when they wait long.
//!
//! A reader that was killed stays until its request is answered, because the kernel waits for that. (fuser answers the
//! kernel's INTERRUPT with "not implemented", and the kernel then sends no more.) So a thread checks the readers of
//! requests that take long, and answers for those that were killed; the work goes on without a reader. The same thread
//! gives answers from memory, if there are any.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use fuser::{
    Errno, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr,
};
use parking_lot::Mutex;

/// How long a request waits before it is looked after.
pub(super) const LONG: Duration = Duration::from_secs(1);
/// Readers that are checked in one go.
const AT_ONCE: usize = 500;

/// A reply that can be an error.
pub(super) trait Fails: Send + 'static {
    /// Whether the kernel holds pages of the file until it has this reply.
    const HOLDS_PAGES: bool;

    fn fail(self, errno: Errno);
}

macro_rules! fails {
    ($($reply:ty: $holds_pages:literal),*) => {
        $(impl Fails for $reply {
            const HOLDS_PAGES: bool = $holds_pages;

            fn fail(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

fails!(
    ReplyAttr: false,
    ReplyData: true,
    ReplyDirectory: false,
    ReplyDirectoryPlus: false,
    ReplyEntry: false,
    ReplyOpen: false,
    ReplyStatfs: false,
    ReplyXattr: false
);

/// A reply that is given once: by the request's own thread, or by the one that looks after it. fuser turns a dropped
/// reply into EIO.
pub(super) struct Slot<R>(Mutex<Option<R>>);

impl<R: Fails> Slot<R> {
    pub(super) fn new(reply: R) -> Self {
        Self(Mutex::new(Some(reply)))
    }

    /// Takes the reply, unless it was given.
    pub(super) fn take(&self) -> Option<R> {
        self.0.lock().take()
    }

    /// Answers with an error, unless the reply was given.
    pub(super) fn fail(&self, errno: Errno) {
        if let Some(reply) = self.take() {
            reply.fail(errno);
        }
    }

    /// Does something with the reply, unless it was given.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut R) -> T) -> Option<T> {
        self.0.lock().as_mut().map(work)
    }
}

/// The waiting requests.
#[derive(Default)]
pub(super) struct Pending {
    all: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

struct Entry {
    ino: u64,
    holds_pages: bool,
    since: Instant,
    looked: Instant,
    reader: u32,
    is_given_up: Arc<AtomicBool>,
    fail: Box<dyn Fn(Errno) + Send>,
    from_memory: Option<Box<dyn FnOnce() + Send>>,
}

/// A request under way. It ends when this is dropped.
pub(super) struct Ticket {
    pending: Arc<Pending>,
    number: u64,
    pub(super) is_given_up: Arc<AtomicBool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let ended = self.pending.all.lock().remove(&self.number);
        // Outside the lock, because this may drop the reply.
        drop(ended);
    }
}

impl Pending {
    /// Looks after a request from now on. `from_memory` gives the answer to use if no better one comes.
    pub(super) fn begin<R: Fails>(
        self: &Arc<Self>,
        (ino, reader): (u64, u32),
        slot: &Arc<Slot<R>>,
        from_memory: Option<Box<dyn FnOnce() + Send>>,
    ) -> Ticket {
        let number = self.next.fetch_add(1, Relaxed);
        let is_given_up = Arc::<AtomicBool>::default();
        let slot = slot.clone();
        let fail = Box::new(move |errno| slot.fail(errno));
        let since = Instant::now();
        let entry = Entry {
            ino,
            holds_pages: R::HOLDS_PAGES,
            since,
            looked: since,
            reader,
            is_given_up: is_given_up.clone(),
            fail,
            from_memory,
        };
        self.all.lock().insert(number, entry);
        Ticket { pending: self.clone(), number, is_given_up }
    }

    /// Returns the nodes of which the kernel holds pages until a read is answered.
    pub(super) fn nodes(&self) -> HashSet<u64> {
        let all = self.all.lock();
        let holds_pages = |entry: &&Entry| entry.holds_pages && !entry.is_given_up.load(Relaxed);
        all.values().filter(holds_pages).map(|entry| entry.ino).collect()
    }

    /// Answers requests that have waited long: from memory if possible, with EINTR if the reader was killed. Returns
    /// whether any was answered.
    pub(super) fn look_after(&self) -> bool {
        let now = Instant::now();
        let (mut late, mut from_memory) = (Vec::new(), Vec::new());
        for (number, entry) in self.all.lock().iter_mut() {
            if now.duration_since(entry.since) >= LONG && !entry.is_given_up.load(Relaxed) {
                match entry.from_memory.take() {
                    Some(answer) => {
                        // Its work goes on, because its end shows that the disk answers again.
                        entry.reader = 0;
                        from_memory.push(answer);
                    }
                    None => late.push((entry.looked, *number, entry.reader)),
                }
            }
        }
        let mut any = !from_memory.is_empty();
        from_memory.into_iter().for_each(|answer| answer());
        late.sort_unstable();
        for (_, number, reader) in late.into_iter().take(AT_ONCE) {
            let was_killed = was_killed(reader);
            let mut all = self.all.lock();
            let Some(entry) = all.get_mut(&number) else { continue };
            entry.looked = now;
            if was_killed {
                entry.is_given_up.store(true, Relaxed);
                (entry.fail)(Errno::EINTR);
                any = true;
            }
        }
        any
    }
}

/// Returns whether a thread has to end and waits only for our answer: SIGKILL is pending for it. Ctrl-C leads to the
/// same if the program does not handle it. Readers of other process namespaces have no number, and are left alone.
fn was_killed(thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (9 - 1);
    if thread == 0 {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let mut pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    pending.any(|mask| mask & SIGKILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_was_not_killed() {
        assert!(!was_killed(std::process::id()) && !was_killed(0) && !was_killed(u32::MAX));
    }
}
