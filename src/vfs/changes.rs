//! What changed below SOURCE, and what of it the kernel should forget.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{Node, ROOT, Vfs, namespace::container_id::ContainerId};
use crate::{
    cache::{Cache, Key},
    limits,
    source::Wait,
    store::{Changes, DirEvent, Kind, unveiled::Unveiled},
    tree,
};

/// What the kernel has to forget. This is the only queue, for requests that find something out of date and for decoders
/// that find damage after bytes were served. Each entry wakes the thread that notifies the kernel.
pub(super) struct Invalidations {
    queue: Mutex<Vec<Stale>>,
    store: Arc<Unveiled>,
    /// Knows the containers that have changed and of which the kernel was notified.
    cache: Arc<Cache>,
}

impl Invalidations {
    pub(super) fn new(store: Arc<Unveiled>, cache: Arc<Cache>) -> Self {
        Self { queue: Mutex::default(), store, cache }
    }

    pub(super) fn push(&self, stale: Stale) {
        self.queue.lock().push(stale);
        self.store.wake();
    }

    /// Adds a container that has left the state that the kernel knows, unless it was added before: a state never comes
    /// back. When the kernel has forgotten its attributes, the next path that leads into it is looked up again.
    pub(super) fn push_gone(&self, id: &Arc<ContainerId>) {
        let is_known = self.cache.parsed_default::<AtomicBool>(Key::named("gone", &id.number.to_le_bytes()), 0);
        if !is_known.swap(true, Relaxed) {
            self.push(Stale::Container(id.clone()));
        }
    }

    fn take(&self) -> Vec<Stale> {
        std::mem::take(&mut *self.queue.lock())
    }
}

/// What turned out to be out of date while a request was answered.
#[derive(Debug)]
pub(super) enum Stale {
    /// The container has changed, or bytes of it were served before they turned out to be bad.
    Container(Arc<ContainerId>),
    /// An ordinary file was changed without a new size or modification time, so the kernel does not see it.
    Node(u64),
}

impl Vfs {
    /// Waits for changes below SOURCE, for at most `timeout`. Asks no disk.
    pub(crate) fn wait_for_changes(&self, timeout: Duration) -> Changes {
        self.source.store.wait_for_changes(timeout)
    }

    /// Returns the nodes that turned out to be out of date, for the kernel to forget.
    pub(crate) fn take_invalidated(&self) -> Vec<u64> {
        let stale = self.invalidations.take();
        let nodes = stale.into_iter().map(|stale| match stale {
            Stale::Container(id) => {
                let mut nodes = self.inodes.of_container(&id);
                nodes.push(self.ino(&Node::InContainer(id, tree::ROOT)));
                nodes
            }
            Stale::Node(ino) => vec![ino],
        });
        nodes.flatten().collect()
    }

    /// Returns the nodes that the kernel should forget after changes below SOURCE. This looks at the changed files.
    /// Names in SOURCE are not included, because the kernel soon asks for each again.
    pub(crate) fn changed_nodes(&self, changes: Changes) -> Vec<u64> {
        let Changes { events, lost, overflowed } = changes;
        let mut changed = Vec::new();
        let mut touched: BTreeSet<PathBuf> = BTreeSet::new();
        for DirEvent { folder, name, listed } in events {
            let path = folder.join(&name);
            if let Some(alone) = &self.alone {
                // Its folder is watched, in which it is one of many names.
                if path.starts_with(alone.to_path_buf()) && !changed.contains(&ROOT) {
                    changed.push(ROOT);
                }
                touched.insert(path);
                continue;
            }
            if listed {
                changed.push(self.ino(&Node::SourceFolder(folder.as_path().into())));
            } else {
                // If it is a container now, the next look-up of the name finds that.
                changed.extend(self.held_file(&path));
            }
            touched.insert(path);
        }
        touched.iter().chain(&lost).for_each(|path| self.source.folders.touch(path));
        if overflowed {
            self.source.folders.touch(Path::new(""));
        }
        // Another folder may be at the path, and the kernel takes two folders with one modification time for the same.
        changed.extend(lost.iter().map(|folder| self.ino(&Node::SourceFolder(folder.as_path().into()))));
        // A process whose current folder is inside a container does not look up the container's name, so the nodes
        // inside are invalidated one by one.
        let is_concerned = |id: &ContainerId| {
            let path = id.shown();
            overflowed
                || touched.contains(&path)
                || lost.iter().any(|folder| path.starts_with(folder))
                || (id.others != 0 || self.source.folders.is_noted(&path))
                    && touched.iter().any(|touched| touched.starts_with(id.folder()))
        };
        if overflowed || !touched.is_empty() || !lost.is_empty() {
            for id in self.inodes.containers(is_concerned) {
                if !self.is_current(&id) {
                    self.containers.close(&id);
                    changed.extend(self.inodes.of_container(&id));
                } else if lost.iter().any(|folder| id.shown().starts_with(folder)) {
                    // From now on its attributes are trusted only as long as those of an unwatched folder.
                    changed.extend(self.inodes.of_container(&id));
                }
            }
        }
        changed
    }

    /// Forgets what is remembered of SOURCE's names if they are not watched.
    pub(crate) fn refresh(&self) {
        self.source.store.refresh();
    }

    /// Gives back what is held only for files that are no longer there, and files on other filesystems than SOURCE's own
    /// that were not used for a while. To be called now and then.
    pub fn sweep(&self) {
        let idle = Duration::from_secs(limits::IDLE_SECONDS);
        self.containers.sweep(idle);
        self.files.sweep(idle);
        self.source.detection.forget_last();
    }

    /// Returns whether a container is still in the state in which it was found.
    fn is_current(&self, id: &Arc<ContainerId>) -> bool {
        let found = self.source.find(id.path.folder(), id.path.name(), Wait::Always);
        matches!(found, Ok(Some((Node::InContainer(now, _), _))) if now == *id)
    }

    /// Returns the inode number of the ordinary file at a path, if the kernel holds it. Does not look into the file,
    /// which may be large or on a disk that does not answer.
    fn held_file(&self, path: &Path) -> Option<u64> {
        let stat = self.source.store.stat(path, Wait::Always).ok().flatten().filter(|stat| stat.kind == Kind::File)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let path = crate::store::FilePath::new(folder.into(), path.file_name()?);
        let ino = self.inodes.number(&Node::SourceFile(Arc::new(path), stat.version.file()));
        self.inodes.get(ino).map(|_| ino)
    }
}
