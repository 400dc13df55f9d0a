//! Containers that are open: an LRU, so that a folder of 100,000 of them never means as many maps and descriptors.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use lru::LruCache;
use parking_lot::Mutex;

use super::{
    Error, FollowLinks,
    host::{ContainerId, descriptors, open_patiently},
    problems::{Problem, Problems},
    siblings::{Digests, Siblings},
};
use crate::{
    cache::{Cache, nonzero, trim_heap},
    limits,
    source::{Fingerprint, Source},
    tree::{NodeId, Opened},
    view::Reader,
};

/// Bytes of small pieces that are freed at once, and that the heap would keep for later.
const WORTH_TRIMMING: usize = 4 << 20;

/// The open containers, least recently used last.
pub(super) struct Containers {
    cache: Arc<Cache>,
    open: Mutex<LruCache<Arc<ContainerId>, Arc<Opened>>>,
    /// Bytes of memory that they may take all together; one may take more.
    room: usize,
    /// Numbers containers for the cache.
    next: AtomicU64,
    problems: Arc<Problems>,
    /// See [`super::Options::follow_links`].
    follow_links: FollowLinks,
    pub(super) digests: Digests,
    /// Itself, for manifests whose chunks are opened when they are read.
    this: Weak<Self>,
}

impl Containers {
    pub(super) fn new(cache: Arc<Cache>, problems: Arc<Problems>, follow_links: FollowLinks) -> Arc<Self> {
        let room = (cache.usage().0 / limits::OPEN_MEMORY_PART).max(limits::OPEN_MEMORY);
        Arc::new_cyclic(|this| Self {
            cache,
            room: usize::try_from(room).unwrap_or(usize::MAX),
            open: Mutex::new(LruCache::new(nonzero(descriptors()))),
            next: AtomicU64::new(0),
            problems,
            follow_links,
            digests: Digests::default(),
            this: this.clone(),
        })
    }

    pub(super) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.open.lock().len()
    }

    pub(super) fn is_open(&self, id: &Arc<ContainerId>) -> bool {
        self.open.lock().contains(id)
    }

    /// Whether the container is open, and operations on the node need little of it.
    pub(super) fn is_at_hand(&self, id: &Arc<ContainerId>, node: NodeId) -> bool {
        let opened = self.open.lock().peek(id).cloned();
        opened.is_some_and(|opened| opened.is_at_hand(node))
    }

    /// The container, opened if it is not.
    ///
    /// # Errors
    /// [`Error`] when the file is gone, has changed, or can't be parsed.
    pub(super) fn open(&self, id: &Arc<ContainerId>) -> Result<Arc<Opened>, Error> {
        let opened = self.open.lock().get(id).cloned();
        if let Some(opened) = opened {
            // One that was replaced or deleted is still there for whoever has it open; one that was rewritten is not.
            return match opened.reader.source.check_known() {
                Ok(()) => Ok(opened),
                Err(_) => {
                    self.close(id);
                    Err(Error::stale(id.shown()))
                }
            };
        }
        // Not under the lock: others go on. Two who open one container at once both parse it, and one is kept.
        let file = open_patiently(&id.full).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => Error::stale(id.shown()),
            _ => Error::os(&e, "open", id.shown()),
        })?;
        if !file.fingerprint().same_content(&id.meta.fingerprint) {
            return Err(Error::stale(id.shown()));
        }
        // A state that is parsed and read while the write that made it goes on would be a mix, and no later one tells.
        std::thread::sleep(file.fingerprint().unsettled());
        file.check_unchanged().map_err(|_| Error::stale(id.shown()))?;
        let state = file.fingerprint();
        let container = self.next.fetch_add(1, Relaxed);
        let reader = Reader { source: Arc::new(file), cache: self.cache.clone(), container };
        let siblings = Arc::new(Siblings::of(id.clone(), self.this.clone(), self.follow_links));
        let tree = id.format.open(&reader, Some(siblings)).map_err(|error| Error::format(id.shown(), error))?;
        for remark in tree.remarks() {
            self.problems.note(Problem::of(id.shown(), remark.clone()));
        }
        let opened = Arc::new(Opened { reader, tree, state });
        let mut open = self.open.lock();
        if let Some(first) = open.get(id) {
            return Ok(first.clone());
        }
        let mut closed: Vec<_> = open.push(id.clone(), opened.clone()).into_iter().collect();
        let mut weight: usize = open.iter().map(|(_, opened)| opened.tree.weight()).sum();
        while weight > self.room && open.len() > 1 {
            let Some(oldest) = open.pop_lru() else { break };
            weight = weight.saturating_sub(oldest.1.tree.weight());
            closed.push(oldest);
        }
        drop(open);
        let freed: usize = closed.iter().map(|(_, closed)| closed.tree.weight()).sum();
        for (_, closed) in closed {
            self.cache.forget(closed.reader.container);
        }
        if freed > WORTH_TRIMMING {
            trim_heap();
        }
        Ok(opened)
    }

    /// Closes those whose file no longer stands at its path: a deleted container's space is given back to the disk.
    pub(super) fn sweep(&self) {
        let open: Vec<Arc<ContainerId>> = self.open.lock().iter().map(|(id, _)| id.clone()).collect();
        for id in open {
            let now = std::fs::symlink_metadata(&id.full).map(|meta| Fingerprint::of(&meta));
            if now.is_ok_and(|now| now.same_content(&id.meta.fingerprint)) {
                continue;
            }
            self.close(&id);
        }
    }

    fn close(&self, id: &Arc<ContainerId>) {
        let closed = self.open.lock().pop(id);
        if let Some(closed) = closed {
            self.cache.forget(closed.reader.container);
        }
    }
}
