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

/// What is said of a file that has such a name for no reason.
const NO_CONTAINER: &str = "not a container, though it is named like one";

/// Entries of a folder that become work at once; the rest follow when these are done.
const BATCH: usize = 512;

/// Files of more than this, and so many times the size of their container, are looked into at so many places.
const RENDERED: u64 = 1 << 28;
const EXPANDED: u64 = 64;
const PROBES: u64 = 1 << 16;

/// What was looked at so far; others may look on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Containers begun.
    pub containers: AtomicU64,
    /// Files of containers read.
    pub files: AtomicU64,
    /// Bytes of them.
    pub bytes: AtomicU64,
    /// Bytes that there are to read, as far as [`expect`] has counted.
    pub expected: AtomicU64,
    /// Ordinary files, which have nothing that could be verified.
    pub others: AtomicU64,
    /// Symbolic links that were not followed.
    pub links: AtomicU64,
    /// Of these, the ones that lead to a place outside the source directory.
    pub outside: AtomicU64,
    /// Of these, the ones that lead to nothing.
    pub dangling: AtomicU64,
    /// Problems, before those with one cause are put together.
    pub problems: AtomicU64,
}

/// What was found out.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is wrong: each block once, in order.
    pub problems: Vec<Problem>,
    /// Files and folders of the source directory that can't be read, so that nothing is known of them.
    pub unread: Vec<Problem>,
}

/// Which files of containers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All, also those in `.raw`.
    All,
    /// Those for which blocks are decoded: not pictures made of decoded pixels, nor other views of what `.npy` files
    /// hold, nor what is stored as it is shown.
    Decoded {
        /// Whether one that is a block, and bytes before it, is kept as the file that it is where that can be done.
        as_files: bool,
    },
}

impl Which {
    /// Whether a file of this name is read.
    fn has(self, name: &OsStr) -> bool {
        let other_views = [".png", ".jpg", ".jpeg", ".parquet", ".file", "container.json"];
        self == Self::All || !other_views.iter().any(|end| name.as_bytes().ends_with(end.as_bytes()))
    }
}

/// Verifies everything below a node on so many threads.
///
/// The filesystem has to verify strictly (`Verify::Strict`), or large blocks are only read.
pub fn verify(vfs: &Vfs, node: &Attr, threads: usize, progress: &Progress) -> Findings {
    read_all(vfs, node, threads, progress, Which::All)
}

/// Reads files of all containers below a node to their end, on so many threads.
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
    // That a file is no container goes without saying where the reason is said.
    let explained: HashSet<PathBuf> = found
        .iter()
        .filter(|problem| problem.message != NO_CONTAINER)
        .map(|problem| problem.container.clone())
        .collect();
    found.retain(|problem| problem.message != NO_CONTAINER || !explained.contains(&problem.container));
    Findings { problems: found, unread: unread.into_values().collect() }
}

/// Counts what there is to read below a folder, without reading it, until `stop`: for a progress bar. A size that is
/// not known without decoding is left out.
pub fn expect(vfs: &Vfs, top: u64, which: Which, progress: &Progress, stop: &AtomicBool) {
    let is_container = |ino| matches!(vfs.container(ino), Ok(Some(_)));
    // With each folder whether it lies in a container, so that its files count.
    let mut folders = vec![(top, is_container(top))];
    while let Some((folder, inside)) = folders.pop() {
        let mut entries = Vec::new();
        // What can't be listed is reported by the thread that reads.
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

/// Whether most of a file is made as it is read: a dense view of sparse rows. It is looked into all along its length,
/// so that each block is decoded and checked, but not every zero is read.
fn is_rendered(vfs: &Vfs, ino: u64, size: u64) -> bool {
    if size < RENDERED {
        return false;
    }
    let stored = vfs.stored(ino).ok().flatten();
    stored.is_some_and(|stored| size / EXPANDED > stored.len())
}

/// Something to do; each holds a look-up of its node, which it gives back.
#[derive(Debug)]
enum Task {
    /// The root of a container, with the path of its file below SOURCE.
    Container(u64, PathBuf),
    /// A folder from a position on; with its path if it is a folder of SOURCE.
    Folder(u64, Option<PathBuf>, u64),
    File(u64, u64),
}

#[derive(Debug, Default)]
struct Queue {
    /// The last is done first: what waits is never more than a few batches a level.
    tasks: Vec<Task>,
    /// Tasks being done, which may bring new ones.
    busy: usize,
}

/// What makes two reports one: container, block or else path, offset, message.
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
                // Hidden, and never more than one a container.
                if self.which == Which::All
                    && let Ok(Some(raw)) = self.vfs.lookup(ino, OsStr::new(".raw"))
                {
                    self.add(vec![Task::Folder(raw.ino, None, 0)]);
                }
                // What can't be opened says so when it is listed.
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

    /// Makes a task of each entry.
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

    /// Takes over what the filesystem noticed: files that look like containers, parts that are left out. It keeps only
    /// so many, and is asked after each batch.
    fn take_noticed(&self) {
        self.vfs.take_problems().into_iter().for_each(|problem| self.note(problem));
    }

    fn entry(&self, folder: Option<&Path>, name: &OsString, ino: u64, attr: Option<Attr>) -> Option<Task> {
        // Attributes that could not be had: asked for once more, for the reason.
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

    /// Counts a link that is not followed, by where it leads.
    fn link(&self, path: &Path) {
        self.progress.links.fetch_add(1, Relaxed);
        match self.vfs.source().join(path).canonicalize() {
            Ok(target) if target.starts_with(self.vfs.source()) => {}
            Ok(_) => drop(self.progress.outside.fetch_add(1, Relaxed)),
            Err(_) => drop(self.progress.dangling.fetch_add(1, Relaxed)),
        }
    }

    /// Reads a file to its end. Behind an error it goes on with the next megabyte: another block may be bad, too.
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

    /// Notes a file or folder that can't be read, in the words that the filesystem has for it.
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
        // Of the paths that lead to one block, the plainest.
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

/// Whether this user may not look at something, so that nothing is known of it.
fn is_refused(error: &Error) -> bool {
    matches!(error.errno(), libc::EACCES | libc::EPERM)
}
