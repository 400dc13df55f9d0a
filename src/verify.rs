//! Verifying: every file of every container is read to its end, every checksum compared.
//!
//! Works on what a mount would show, so whatever a format shows is verified without a word here about the format.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::{OsStr, OsString},
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    limits::PIECE,
    tree::should_be_container,
    vfs::{Attr, Error, FileKind, Problem, Vfs},
};

/// Message for a file that has a container's name but is none.
const NO_CONTAINER: &str = "not a container, though it is named like one";

/// Entries of a folder that become tasks at once. The rest follow when these are done.
const BATCH: usize = 512;

/// Rendered files larger than this, and larger than this many times their container, are read at this many places only.
const RENDERED: u64 = 1 << 28;
const EXPANDED: u64 = 64;
const PROBES: u64 = 1 << 16;

/// Counters that other threads may read meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    /// Containers that were begun.
    pub containers: AtomicU64,
    /// Files of containers read.
    pub files: AtomicU64,
    /// Bytes of them.
    pub bytes: AtomicU64,
    /// Bytes to read, as far as [`expect`] has counted.
    pub expected: AtomicU64,
    /// Ordinary files, which cannot be verified.
    pub others: AtomicU64,
    /// Symbolic links that were not followed.
    pub links: AtomicU64,
    /// Links of these that lead outside the source directory.
    pub outside: AtomicU64,
    /// Links of these that lead to nothing.
    pub dangling: AtomicU64,
    /// Problems, before those with one cause are merged.
    pub problems: AtomicU64,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is wrong: each block once, in order.
    pub problems: Vec<Problem>,
    /// Files and folders of the source directory that cannot be read, so nothing is known of them.
    pub unread: Vec<Problem>,
}

/// Which files of containers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All, including those in `.raw`.
    All,
    /// Only those for which blocks are decoded: no pictures made of decoded pixels, no other views of what `.npy` files
    /// hold, nothing uncompressed.
    Decoded {
        /// Whether a file that is one block with bytes before it is kept as a plain file, if possible.
        as_files: bool,
    },
}

impl Which {
    /// Returns whether a file of this name is read.
    fn has(self, name: &OsStr) -> bool {
        let other_views = [".png", ".jpg", ".jpeg", ".parquet", ".file", "container.json"];
        self == Self::All || !other_views.iter().any(|end| name.as_bytes().ends_with(end.as_bytes()))
    }
}

/// Verifies everything below a node on `threads` threads.
///
/// The filesystem must verify strictly (`Verify::Strict`). Otherwise large blocks are only read.
pub fn verify(vfs: &Vfs, node: &Attr, threads: usize, progress: &Progress) -> Findings {
    read_all(vfs, node, threads, progress, Which::All)
}

/// Reads files of all containers below a node to their end, on `threads` threads.
pub fn read_all(vfs: &Vfs, node: &Attr, threads: usize, progress: &Progress, which: Which) -> Findings {
    let inside = matches!(vfs.container(node.ino), Ok(Some(_)));
    let first = match node.kind {
        FileKind::Folder if inside => Task::Container(node.ino, PathBuf::new()),
        FileKind::Folder => Task::Folder(node.ino, Some(PathBuf::new()), 0),
        _ => Task::File(node.ino, node.size),
    };
    let run = Run {
        vfs,
        progress,
        which,
        queue: Mutex::default(),
        more: Condvar::new(),
        found: Mutex::default(),
        unread: Mutex::default(),
    };
    run.queue.lock().tasks.push(first);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| run.work());
        }
    });
    run.take_noticed();
    let unread: BTreeMap<Identity, Problem> = run.unread.into_inner();
    let mut found = run.found.into_inner();
    found.retain(|identity, _| !unread.contains_key(identity));
    let mut found: Vec<Problem> = found.into_values().collect();
    // If a reason is reported for a file, "not a container" is left out.
    let explained: HashSet<PathBuf> = found
        .iter()
        .filter(|problem| problem.message != NO_CONTAINER)
        .map(|problem| problem.container.clone())
        .collect();
    found.retain(|problem| problem.message != NO_CONTAINER || !explained.contains(&problem.container));
    Findings { problems: found, unread: unread.into_values().collect() }
}

/// Counts what there is to read below a folder, without reading it, until `stop` is set. For a progress bar. Sizes that
/// need decoding are left out.
pub fn expect(vfs: &Vfs, top: u64, which: Which, progress: &Progress, stop: &AtomicBool) {
    let is_container = |ino| matches!(vfs.container(ino), Ok(Some(_)));
    // Each folder with whether it is in a container, so that its files count.
    let mut folders = vec![(top, is_container(top))];
    while let Some((folder, inside)) = folders.pop() {
        let mut entries = Vec::new();
        // The thread that reads reports what cannot be listed.
        let _ = vfs.read_dir(folder, 2, true, &mut |entry| {
            let size = if which.has(entry.name) { entry.attr.map_or(0, |attr| attr.size) } else { 0 };
            entries.push((entry.ino, entry.kind, size));
            ControlFlow::Continue(())
        });
        if inside
            && which == Which::All
            && let Ok(Some(raw)) = vfs.lookup(folder, OsStr::new(".raw"))
        {
            entries.push((raw.ino, raw.kind, 0));
        }
        for (ino, kind, size) in entries {
            if stop.load(Relaxed) {
                return;
            }
            if kind == FileKind::Folder {
                folders.push((ino, inside || is_container(ino)));
                continue;
            }
            if inside {
                let bytes = if is_rendered(vfs, ino, size) { PROBES } else { size };
                progress.expected.fetch_add(bytes, Relaxed);
            }
            vfs.forget(ino, 1);
        }
        if folder != top {
            vfs.forget(folder, 1);
        }
    }
}

/// Returns whether most of a file is computed when it is read: a dense view of sparse rows. Such a file is read at
/// places all along its length, so that each block is decoded and checked, but not every zero is read.
fn is_rendered(vfs: &Vfs, ino: u64, size: u64) -> bool {
    if size < RENDERED {
        return false;
    }
    let stored = vfs.stored(ino).ok().flatten();
    stored.is_some_and(|stored| size / EXPANDED > stored.len())
}

/// A task. Each holds a look-up of its node, which it gives back.
#[derive(Debug)]
enum Task {
    /// The root of a container, with the path of its file below SOURCE.
    Container(u64, PathBuf),
    /// A folder from a position on, with its path if it is a folder of SOURCE.
    Folder(u64, Option<PathBuf>, u64),
    File(u64, u64),
}

#[derive(Debug, Default)]
struct Queue {
    /// The last one is done first, so at most a few batches per level wait.
    tasks: Vec<Task>,
    /// Number of tasks under way, which may add new ones.
    busy: usize,
}

/// What makes two reports the same: container, block or else path, offset, message.
type Identity = (PathBuf, u64, String, String);

struct Run<'a> {
    vfs: &'a Vfs,
    progress: &'a Progress,
    which: Which,
    queue: Mutex<Queue>,
    more: Condvar,
    found: Mutex<BTreeMap<Identity, Problem>>,
    unread: Mutex<BTreeMap<Identity, Problem>>,
}

impl Run<'_> {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop() {
                queue.busy += 1;
                drop(queue);
                self.run(task);
                queue = self.queue.lock();
                queue.busy -= 1;
                if queue.busy == 0 && queue.tasks.is_empty() {
                    self.more.notify_all();
                }
            } else if queue.busy == 0 {
                return;
            } else {
                self.more.wait(&mut queue);
            }
        }
    }

    fn run(&self, task: Task) {
        let ino = match task {
            Task::Container(ino, path) => {
                self.progress.containers.fetch_add(1, Relaxed);
                // Hidden, and at most one per container.
                if self.which == Which::All
                    && let Ok(Some(raw)) = self.vfs.lookup(ino, OsStr::new(".raw"))
                {
                    self.add(vec![Task::Folder(raw.ino, None, 0)]);
                }
                // A container that cannot be opened is reported when it is listed.
                if self.which == Which::All
                    && let Ok(Some(container)) = self.vfs.container(ino)
                {
                    for message in container.verify_others() {
                        self.note(Problem::of(path.clone(), message));
                    }
                }
                return self.folder(ino, None, 0);
            }
            Task::Folder(ino, path, from) => return self.folder(ino, path, from),
            Task::File(ino, size) => {
                self.progress.files.fetch_add(1, Relaxed);
                self.read(ino, size);
                ino
            }
        };
        self.vfs.forget(ino, 1);
    }

    /// Makes a task for each entry.
    fn folder(&self, ino: u64, path: Option<PathBuf>, from: u64) {
        let (mut entries, mut rest) = (Vec::new(), None);
        let listed = self.vfs.read_dir(ino, from.max(2), true, &mut |entry| {
            if entries.len() == BATCH {
                return ControlFlow::Break(());
            }
            rest = Some(entry.next);
            entries.push((entry.name.to_owned(), entry.ino, entry.attr));
            ControlFlow::Continue(())
        });
        match (listed, &path) {
            (Ok(()), _) => {}
            (Err(error), Some(path)) if is_refused(&error) => self.note_unread(path.clone(), &error),
            (Err(error), _) => self.note(error.to_problem()),
        }
        let mut tasks = Vec::with_capacity(entries.len() + 1);
        match rest.filter(|_| entries.len() == BATCH) {
            Some(next) => tasks.push(Task::Folder(ino, path.clone(), next)),
            None => self.vfs.forget(ino, 1),
        }
        let children =
            entries.into_iter().filter_map(|(name, ino, attr)| self.entry(path.as_deref(), &name, ino, attr));
        tasks.extend(children);
        self.add(tasks);
        self.take_noticed();
    }

    /// Takes over problems that the filesystem noticed: files that look like containers, parts that are left out. It
    /// keeps a limited number, so it is asked after each batch.
    fn take_noticed(&self) {
        self.vfs.take_problems().into_iter().for_each(|problem| self.note(problem));
    }

    fn entry(&self, folder: Option<&Path>, name: &OsString, ino: u64, attr: Option<Attr>) -> Option<Task> {
        // Attributes could not be read: ask again, to get the reason.
        let attr = match attr.map_or_else(|| self.vfs.attr(ino), Ok) {
            Ok(attr) => attr,
            Err(error) => {
                match folder {
                    Some(folder) if is_refused(&error) => self.note_unread(folder.join(name), &error),
                    _ => self.note(error.to_problem()),
                }
                self.vfs.forget(ino, 1);
                return None;
            }
        };
        let Some(folder) = folder else {
            if attr.kind != FileKind::Folder && !self.which.has(name) {
                self.vfs.forget(ino, 1);
                return None;
            }
            return Some(match attr.kind {
                FileKind::Folder => Task::Folder(ino, None, 0),
                _ => Task::File(ino, attr.size),
            });
        };
        let path = folder.join(name);
        match (attr.kind, self.vfs.container(ino)) {
            (FileKind::Folder, Ok(None)) => return Some(Task::Folder(ino, Some(path), 0)),
            (FileKind::Folder, Ok(Some(_))) => return Some(Task::Container(ino, path)),
            (FileKind::Folder, Err(error)) if is_refused(&error) => self.note_unread(path, &error),
            (FileKind::Folder, Err(error)) => self.note(error.to_problem()),
            (FileKind::Link, _) => self.link(&path),
            (FileKind::File, _) => match self.vfs.read(ino, 0, 1) {
                // Any file may be a container, whatever its name.
                Err(error) if is_refused(&error) => self.note_unread(path, &error),
                _ => {
                    self.progress.others.fetch_add(1, Relaxed);
                    if should_be_container(self.vfs.options().formats, name) {
                        self.note(Problem::of(path, NO_CONTAINER.to_owned()));
                    }
                }
            },
        }
        self.vfs.forget(ino, 1);
        None
    }

    /// Counts a link that is not followed, by its target.
    fn link(&self, path: &Path) {
        self.progress.links.fetch_add(1, Relaxed);
        match self.vfs.source().join(path).canonicalize() {
            Ok(target) if target.starts_with(self.vfs.source()) => {}
            Ok(_) => drop(self.progress.outside.fetch_add(1, Relaxed)),
            Err(_) => drop(self.progress.dangling.fetch_add(1, Relaxed)),
        }
    }

    /// Reads a file to its end. After an error it continues with the next megabyte, because another block may be bad
    /// too.
    fn read(&self, ino: u64, size: u64) {
        let as_file = self.which == Which::Decoded { as_files: true };
        if as_file && self.vfs.keep_file(ino).is_ok_and(|is_kept| is_kept) {
            self.progress.bytes.fetch_add(size, Relaxed);
            return;
        }
        let (length, step) = if is_rendered(self.vfs, ino, size) { (1, size / PROBES) } else { (PIECE as u64, 0) };
        let mut offset = 0;
        while offset < size {
            let next = match self.vfs.read_copied(ino, offset, length) {
                Ok(bytes) if bytes.is_empty() => return self.ended(ino, offset, size),
                Ok(bytes) => {
                    self.progress.bytes.fetch_add(bytes.len() as u64, Relaxed);
                    offset + bytes.len() as u64
                }
                Err(error) => {
                    self.note(error.to_problem());
                    offset + PIECE as u64
                }
            };
            offset = next.max(offset + step);
        }
    }

    fn ended(&self, ino: u64, offset: u64, size: u64) {
        let problem = Error::short(self.vfs.path_of(ino), offset, size).to_problem();
        self.note(problem);
    }

    /// Notes a file or folder that cannot be read, with the filesystem's message.
    fn note_unread(&self, path: PathBuf, error: &Error) {
        let reason = std::io::Error::from_raw_os_error(error.errno());
        let problem = Problem::of(path, format!("can't be read: {reason}"));
        self.unread.lock().insert(identity(&problem), problem);
    }

    fn note(&self, problem: Problem) {
        self.progress.problems.fetch_add(1, Relaxed);
        let identity = identity(&problem);
        let mut found = self.found.lock();
        let known = found.entry(identity).or_insert_with(|| problem.clone());
        // Of several paths that lead to one block, choose the simplest.
        let rank = |path: &str| (path.starts_with(".raw/"), path.len(), path.to_owned());
        if rank(&problem.path) < rank(&known.path) {
            *known = problem;
        }
    }

    fn add(&self, tasks: Vec<Task>) {
        self.queue.lock().tasks.extend(tasks);
        self.more.notify_all();
    }
}

/// See [`Identity`].
fn identity(problem: &Problem) -> Identity {
    let place = problem.block.clone().filter(|block| !block.is_empty()).unwrap_or_else(|| problem.path.clone());
    (problem.container.clone(), problem.offset.unwrap_or(0), place, problem.message.clone())
}

/// Returns whether this user may not look at something, so that nothing is known of it.
fn is_refused(error: &Error) -> bool {
    matches!(error.errno(), libc::EACCES | libc::EPERM)
}
