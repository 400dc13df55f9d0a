//! Verifying: every file of every container is read to its end, every checksum compared. Folders of pictures that repeat
//! an array are left out: there may be millions of which no element is stored.
//!
//! Works on what a mount would show, so whatever a format shows is verified without a word here about the format.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    limits::PIECE,
    parallel,
    source::Wait,
    tree,
    vfs::{self, Covering, FileKind, NO_CONTAINER, Problem},
    volume::{Entry, Error, ErrorKind, Listed},
};

/// The hidden folder of blocks in a container.
const RAW: &str = ".raw";

/// Entries of a folder that become tasks at once. The rest follow when these are done.
const BATCH: usize = 512;

/// Rendered files larger than this, and larger than this many times their container, are read at this many places only.
const RENDERED: u64 = 1 << 28;
const EXPANDED: u64 = 64;
const PROBES: u64 = 1 << 16;

/// Counters that other threads may read meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Containers that were begun.
    pub containers: AtomicU64,
    /// Files of containers read.
    pub files: AtomicU64,
    /// Bytes of them.
    pub bytes: AtomicU64,
    /// Bytes to read, as far as `expect` has counted.
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
pub(crate) struct Findings {
    /// What is wrong: each block once, in order.
    pub problems: Vec<Problem>,
    /// What cannot be read, so nothing is known of it: this user may not, the disk or server fails, memory is too small,
    /// it is replaced all the time.
    pub unread: Vec<Problem>,
    /// What could be faster.
    pub advice: Vec<Problem>,
    /// How many bytes the containers' files have (of a part of a container, how many were read), and how many of them no
    /// checksum covers; zeros unless the volume counts them (`vfs::Options::coverage`).
    pub covering: Covering,
}

/// Which files of containers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
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

/// Reads files of all containers below an entry to their end, on `threads` threads. With `counts`, what there is to read
/// is counted meanwhile.
///
/// That verifies it if the volume verifies strictly (`Verify::Strict`). Otherwise large blocks are only read.
pub(crate) fn read_all(top: &Entry, threads: usize, progress: &Progress, which: Which, counts: bool) -> Findings {
    let first = match top.is_folder() {
        true if top.is_inside() => Task::Container(top.clone(), PathBuf::new()),
        true => Task::Folder(top.clone(), Some(PathBuf::new()), 0),
        false => Task::File(top.clone()),
    };
    let coverage = top.vfs().options().coverage.as_ref();
    if let Some(coverage) = coverage.filter(|_| top.is_inside() && !top.is_root_of_container()) {
        coverage.count_what_is_read();
    }
    let run = Run { top, progress, which, queue: Mutex::default(), more: Condvar::new(), found: Mutex::default() };
    run.queue.lock().tasks.push(first);
    let (threads, has_read) = (threads.max(1), AtomicBool::new(false));
    parallel::for_each(threads + usize::from(counts), threads + usize::from(counts), |number| {
        if number == threads {
            expect(top, which, progress, &has_read);
        } else {
            run.work();
            has_read.store(true, Relaxed);
        }
        ControlFlow::Continue(())
    });
    run.take_noticed();
    let covering = coverage.map(|coverage| coverage.total()).unwrap_or_default();
    let mut findings = Findings { covering, ..Findings::default() };
    let found = run.found.into_inner().into_values();
    let (advice, found): (Vec<_>, Vec<_>) = found.partition(|problem| problem.is_advice);
    findings.advice = advice;
    (findings.unread, findings.problems) = found.into_iter().partition(|problem| problem.is_unread);
    // A file of which neither kind nor content can be found out is one.
    findings.unread.dedup_by(|a, b| a.container == b.container && a.path.is_empty() && b.path.is_empty());
    leave_out_repeated(&mut findings.problems);
    findings
}

/// Leaves out what is said of a container as a whole where another problem says it with its reason.
fn leave_out_repeated(problems: &mut Vec<Problem>) {
    let mut said: HashMap<PathBuf, Vec<String>> = HashMap::new();
    for problem in &*problems {
        said.entry(problem.container.clone()).or_default().push(problem.message.clone());
    }
    let says_more = |other: &str, message: &str| {
        other.len() > message.len() && other.ends_with(message)
            || message.ends_with(NO_CONTAINER) && !other.ends_with(NO_CONTAINER)
    };
    problems.retain(|problem| {
        let is_whole = problem.path.is_empty() && problem.block.is_none();
        let others = said.get(&problem.container).into_iter().flatten();
        !is_whole || !others.clone().any(|other| says_more(other, &problem.message))
    });
}

/// Counts what there is to read below a folder, without reading it, until `stop` is set. For a progress bar. Sizes that
/// need decoding are left out.
fn expect(top: &Entry, which: Which, progress: &Progress, stop: &AtomicBool) {
    // Each folder with whether it is in a container, so that its files count.
    let mut folders = vec![(top.clone(), top.is_inside())];
    while let Some((folder, inside)) = folders.pop() {
        // The thread that reads reports what cannot be listed.
        let (entries, _) = folder.list(0, usize::MAX);
        let mut open = |entry: Entry| folders.push((entry.clone(), inside || entry.is_inside()));
        if inside && which == Which::All {
            folder.child(OsStr::new(RAW)).ok().flatten().map(&mut open);
        }
        for listed in entries {
            if stop.load(Relaxed) {
                return;
            }
            let size = if which.has(listed.name()) { listed.attr.map_or(0, |attr| attr.size) } else { 0 };
            if listed.kind == FileKind::Folder {
                listed.entry().ok().filter(|entry| !entry.repeats_array()).map(&mut open);
            } else if inside {
                let is_probed = size >= RENDERED && listed.entry().is_ok_and(|file| is_rendered(&file));
                progress.expected.fetch_add(if is_probed { PROBES } else { size }, Relaxed);
            }
        }
    }
}

/// Returns whether most of a file is computed when it is read: a dense view of sparse rows. Such a file is read at
/// places all along its length, so that each block is decoded and checked, but not every zero is read.
fn is_rendered(file: &Entry) -> bool {
    file.size() >= RENDERED && file.stored_size().is_some_and(|stored| file.size() / EXPANDED > stored)
}

/// A task.
#[derive(Debug)]
enum Task {
    /// The root of a container, with the path of its file below SOURCE.
    Container(Entry, PathBuf),
    /// A folder from a position on, with its path if it is a folder of SOURCE.
    Folder(Entry, Option<PathBuf>, u64),
    File(Entry),
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
    top: &'a Entry,
    progress: &'a Progress,
    which: Which,
    queue: Mutex<Queue>,
    more: Condvar,
    found: Mutex<BTreeMap<Identity, Problem>>,
}

impl Run<'_> {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            match queue.tasks.pop() {
                Some(task) => {
                    queue.busy += 1;
                    MutexGuard::unlocked(&mut queue, || self.run(task));
                    queue.busy -= 1;
                    if queue.busy == 0 && queue.tasks.is_empty() {
                        self.more.notify_all();
                    }
                }
                None if queue.busy == 0 => return,
                None => self.more.wait(&mut queue),
            }
        }
    }

    fn run(&self, task: Task) {
        match task {
            Task::Container(root, path) => {
                self.progress.containers.fetch_add(1, Relaxed);
                if self.which == Which::All {
                    // Hidden, and at most one per container.
                    if let Ok(Some(raw)) = root.child(OsStr::new(RAW)) {
                        self.add(vec![Task::Folder(raw, None, 0)]);
                    }
                    // A container that cannot be opened is reported when it is listed.
                    for message in root.verify_rest().unwrap_or_default() {
                        self.note(Problem::of(path.clone(), message));
                    }
                }
                self.folder(root, None, 0);
            }
            Task::Folder(folder, path, from) => self.folder(folder, path, from),
            Task::File(file) => {
                self.progress.files.fetch_add(1, Relaxed);
                self.read(&file);
            }
        }
    }

    /// Makes a task for each entry.
    fn folder(&self, folder: Entry, path: Option<PathBuf>, from: u64) {
        let (entries, next) = folder.list(from, BATCH);
        let mut tasks = Vec::with_capacity(entries.len() + 1);
        match next {
            Ok(Some(next)) => tasks.push(Task::Folder(folder, path.clone(), next)),
            Ok(None) => {}
            Err(error) => self.failed(path.as_deref(), &error),
        }
        tasks.extend(entries.into_iter().filter_map(|listed| self.entry(path.as_deref(), listed)));
        self.add(tasks);
        self.take_noticed();
    }

    /// Takes over problems that the filesystem noticed: files that look like containers, parts that are left out. It
    /// keeps a limited number, so it is asked after each batch.
    fn take_noticed(&self) {
        self.top.vfs().problems.take().into_iter().for_each(|problem| self.note(problem));
    }

    fn entry(&self, folder: Option<&Path>, listed: Listed) -> Option<Task> {
        let name = listed.name().to_owned();
        // If attributes could not be read, they are asked for again, to get the reason.
        let path = folder.map(|folder| folder.join(&name));
        let entry = listed.entry().inspect_err(|error| self.failed(path.as_deref(), error)).ok()?;
        let kind = entry.attr().kind;
        let Some(path) = path else {
            return match kind {
                FileKind::Folder => (!entry.repeats_array()).then_some(Task::Folder(entry, None, 0)),
                // What a link in a container leads to is read at its own place.
                FileKind::Link => None,
                FileKind::File => self.which.has(&name).then_some(Task::File(entry)),
            };
        };
        let entry = entry.entered().inspect_err(|error| self.failed(None, error)).ok()?;
        match (entry.attr().kind, entry.warnings()) {
            (FileKind::Folder, Ok(None)) => return Some(Task::Folder(entry, Some(path), 0)),
            (FileKind::Folder, Ok(Some(_))) => return Some(Task::Container(entry, path)),
            (FileKind::Folder, Err(error)) => self.failed(Some(&path), &error),
            (FileKind::Link, _) => self.link(&path),
            (FileKind::File, _) => match entry.read_at(0, 1) {
                // Any file may be a container, whatever its name.
                Err(error) if error.is_unread() && error.kind() != ErrorKind::Changed => {
                    self.failed(Some(&path), &error);
                }
                _ => {
                    self.progress.others.fetch_add(1, Relaxed);
                    if tree::should_be_container(entry.vfs().options().formats, &name) {
                        self.note(Problem::of(path, NO_CONTAINER.to_owned()));
                    }
                }
            },
        }
        None
    }

    /// Counts a link that is not followed, by its target.
    fn link(&self, path: &Path) {
        self.progress.links.fetch_add(1, Relaxed);
        let source = self.top.vfs().source();
        match source.join(path).canonicalize() {
            Ok(target) if target.starts_with(source) => {}
            Ok(_) => drop(self.progress.outside.fetch_add(1, Relaxed)),
            Err(_) => drop(self.progress.dangling.fetch_add(1, Relaxed)),
        }
    }

    /// Reads a file to its end. After an error it continues with the next megabyte, because another block may be bad
    /// too.
    fn read(&self, file: &Entry) {
        let size = file.size();
        let as_file = self.which == Which::Decoded { as_files: true };
        if as_file && file.keep().is_ok_and(|is_kept| is_kept) {
            self.progress.bytes.fetch_add(size, Relaxed);
            return;
        }
        let (length, step) = if is_rendered(file) { (1, size / PROBES) } else { (PIECE as u64, 0) };
        let mut offset = 0;
        while offset < size {
            let next = match file.read_copied(offset, length, Wait::Always) {
                Ok(bytes) if bytes.is_empty() => {
                    return self.note(vfs::Error::short(file.place(), offset, size).to_problem());
                }
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

    /// Notes an error. `path` is given for what is in a folder of SOURCE: of that, this user may be refused to read some.
    fn failed(&self, path: Option<&Path>, error: &Error) {
        match path.filter(|_| error.kind() == ErrorKind::PermissionDenied) {
            Some(path) => {
                let reason = std::io::Error::from_raw_os_error(error.errno());
                let problem = Problem::of(path.to_owned(), format!("can't be read: {reason}"));
                self.note(Problem { is_unread: true, ..problem });
            }
            None => self.note(error.to_problem()),
        }
    }

    fn note(&self, problem: Problem) {
        self.progress.problems.fetch_add(u64::from(!problem.is_unread && !problem.is_advice), Relaxed);
        let mut found = self.found.lock();
        let known = found.entry(identity(&problem)).or_insert_with(|| problem.clone());
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
