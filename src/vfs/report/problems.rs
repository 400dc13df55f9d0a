//! Problems so far. Each is logged once, and is listed in `.shardfs/problems.jsonl`.
//!
//! Everything is bounded: the number of problems, the length of their texts, and the lines in the log per minute.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt, io,
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use crate::{limits, store::unveiled::shown, vfs::Error};

/// Failures of a store or disk are noted once in so much time for each errno. When one stops answering, every path fails.
const FAILURES: Duration = Duration::from_secs(10);

/// What is wrong with a file that has a container's name but is none, where nothing more is known.
pub(crate) const NO_CONTAINER: &str = "not a container, though it is named like one";

/// A problem of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Problem {
    /// The container, relative to SOURCE.
    pub container: PathBuf,
    /// The path in it; empty for the container itself.
    pub path: String,
    /// The block's stored name.
    pub block: Option<String>,
    /// Offset in the container, in bytes.
    pub offset: Option<u64>,
    /// What was wrong.
    pub message: String,
    /// Whether bytes, or memory for them, could not be had. What is there is then not known.
    pub is_unread: bool,
    /// Whether it is only advice: nothing is wrong, but something could be faster.
    pub is_advice: bool,
}

impl Problem {
    /// Returns a problem of a container as a whole.
    pub(crate) fn of(container: PathBuf, message: String) -> Self {
        let (path, block, offset, is_unread, is_advice) = Default::default();
        Self { container: shown(container), path, block, offset, message, is_unread, is_advice }
    }

    /// Identifies a problem. A block that cannot be read is one problem, whichever of its files is read and where.
    /// `start` is where the block begins, because several blocks may have one name.
    fn identity(&self, start: Option<u64>) -> u128 {
        let mut hash = Xxh3::new();
        let mut part = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(self.container.as_os_str().as_bytes());
        match self.block.as_ref().filter(|block| !block.is_empty()) {
            Some(block) => {
                part(block.as_bytes());
                part(&start.unwrap_or(u64::MAX).to_le_bytes());
            }
            None => part(self.path.as_bytes()),
        }
        part(self.message.as_bytes());
        hash.digest128()
    }

    /// Cuts long texts.
    fn shorten(&mut self) {
        for text in [&mut self.path, &mut self.message].into_iter().chain(&mut self.block) {
            if text.len() > limits::PROBLEM_TEXT {
                let end = (0..=limits::PROBLEM_TEXT).rev().find(|&end| text.is_char_boundary(end));
                text.truncate(end.unwrap_or(0));
                text.push('…');
            }
        }
    }

    /// Returns what was wrong, with block and offset but without the path.
    pub fn detail(&self) -> String {
        let block = self.block.as_ref().filter(|block| !block.is_empty());
        match (block, self.offset) {
            (Some(block), Some(offset)) => {
                format!("block '{}' at byte {offset}: {}", block.escape_debug(), self.message)
            }
            (Some(block), None) => format!("block '{}': {}", block.escape_debug(), self.message),
            (None, Some(offset)) => format!("at byte {offset}: {}", self.message),
            (None, None) => self.message.clone(),
        }
    }
}

impl Logged {
    /// Logs the problem, unless the minute's share is used up.
    fn log(&mut self, problem: &Problem, minute: u64) {
        if minute != self.minute {
            if self.left_out > 0 {
                log::warn!("{} more problems; .shardfs/problems.jsonl has the newest", self.left_out);
            }
            *self = Self { minute, ..Self::default() };
        }
        if self.lines < limits::LOGGED_A_MINUTE {
            self.lines += 1;
            log::warn!("{problem}");
        } else {
            self.left_out += 1;
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { self.container.clone() } else { self.container.join(&self.path) };
        write!(f, "{}: {}", place.display(), self.detail())
    }
}

/// The problems: bounded, each once.
#[derive(Debug, Default)]
pub(crate) struct Problems(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    /// The identities of all problems.
    seen: HashSet<u128>,
    /// Each with the time at which it was first seen (seconds since 1970) and its identity.
    in_order: VecDeque<(f64, u128, Problem)>,
    logged: Logged,
    /// When a failure of the store was last noted, by its errno.
    failures: HashMap<i32, Instant>,
}

/// Lines logged during this minute.
#[derive(Debug, Default)]
struct Logged {
    minute: u64,
    lines: u32,
    left_out: u32,
}

impl Problems {
    /// Logs and keeps a problem, unless it is known.
    pub(crate) fn note(&self, problem: Problem) {
        self.note_at(problem, None);
    }

    /// Does the same as [`Self::note`] for a block that begins at `start`, if that is known.
    pub(crate) fn note_at(&self, mut problem: Problem, start: Option<u64>) {
        let hash = problem.identity(start);
        let mut list = self.0.lock();
        if !list.seen.insert(hash) {
            return;
        }
        problem.shorten();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        list.logged.log(&problem, now.as_secs() / 60);
        if list.in_order.len() == limits::PROBLEMS
            && let Some((_, oldest, _)) = list.in_order.pop_front()
        {
            list.seen.remove(&oldest);
        }
        list.in_order.push_back((now.as_secs_f64(), hash, problem));
    }

    /// Returns the error of a path of SOURCE at which the store failed, and notes it.
    pub(crate) fn failed(&self, error: &io::Error, doing: &'static str, path: PathBuf) -> Error {
        self.note_failure(Error::os(error, doing, path), error)
    }

    /// Does the same for a path that could not be opened; stale if the file that was looked up is no longer there.
    pub(crate) fn failed_to_open(&self, error: &io::Error, doing: &'static str, path: PathBuf) -> Error {
        self.note_failure(Error::opening(error, doing, path), error)
    }

    /// Notes that a store or disk does not answer, answers with errors, or refuses what it gave before. Other failures
    /// are answers to a request: no such name, no permission for a file of this machine.
    fn note_failure(&self, error: Error, cause: &io::Error) -> Error {
        let errno = error.errno();
        let is_of_store = match errno {
            libc::EIO | libc::ETIMEDOUT | libc::ENXIO | libc::EREMOTEIO | libc::ENODEV | libc::EHOSTDOWN => true,
            libc::EACCES => cause.raw_os_error().is_none(),
            _ => false,
        };
        if is_of_store {
            let mut list = self.0.lock();
            let is_new = list.failures.get(&errno).is_none_or(|last| last.elapsed() >= FAILURES);
            if is_new {
                list.failures.insert(errno, Instant::now());
                // What failed once is a problem again when it fails again.
                let problem = error.to_problem();
                let identity = problem.identity(None);
                if list.seen.remove(&identity) {
                    list.in_order.retain(|(_, known, _)| *known != identity);
                }
                drop(list);
                self.note(problem);
            }
        }
        error
    }

    /// Returns all kept problems, oldest first.
    pub(crate) fn all(&self) -> Vec<Problem> {
        self.0.lock().in_order.iter().map(|(_, _, problem)| problem.clone()).collect()
    }

    /// Returns how many are kept, without advice.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().in_order.iter().filter(|(_, _, problem)| !problem.is_advice).count()
    }

    /// Shows all kept problems, newest first, until `show` breaks off.
    pub(crate) fn each(&self, show: &mut dyn FnMut(&Problem) -> ControlFlow<()>) {
        let list = self.0.lock();
        let _ = list.in_order.iter().rev().try_for_each(|(_, _, problem)| show(problem));
    }

    /// Returns all kept problems, oldest first, and forgets them.
    pub(crate) fn take(&self) -> Vec<Problem> {
        let mut list = self.0.lock();
        list.seen.clear();
        list.in_order.drain(..).map(|(_, _, problem)| problem).collect()
    }

    /// Returns the message of the newest problem.
    pub(crate) fn last_message(&self) -> Option<String> {
        self.0.lock().in_order.back().map(|(_, _, problem)| problem.message.clone())
    }

    /// Returns the message of the newest problem of a file.
    pub(crate) fn last_of(&self, file: &Path) -> Option<String> {
        let list = self.0.lock();
        let mut found = list.in_order.iter().rev().map(|(_, _, problem)| problem);
        found.find(|problem| problem.container == file).map(|problem| problem.message.clone())
    }

    /// Returns `problems.jsonl`: one object per line.
    pub(crate) fn to_jsonl(&self) -> String {
        let line = |(time, _, problem): &(f64, u128, Problem)| {
            let Problem { container, path, block, offset, message, is_advice, .. } = problem;
            let container = container.to_string_lossy();
            let mut object = json!({"time": time, "container": container, "path": path, "block": block, "offset": offset,
                                    "message": message});
            if *is_advice {
                object["advice"] = true.into();
            }
            format!("{object}\n")
        };
        self.0.lock().in_order.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreadable(path: &str, offset: u64) -> Problem {
        let block = (path != "other").then(|| "signal/x".to_owned());
        let problem = Problem::of("a.wshard".into(), "Input/output error (os error 5)".into());
        Problem { path: path.into(), block, offset: Some(offset), is_unread: true, ..problem }
    }

    #[test]
    fn a_block_that_cannot_be_read_is_one_problem() {
        let problems = Problems::default();
        for offset in 0..1000 {
            problems.note(unreadable("signal/x.npy", offset * 4096));
            problems.note(unreadable(".raw/signal/x.bin", offset * 4096));
            problems.note(unreadable("other", offset * 4096));
        }
        let all = problems.all();
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!((all[0].path.as_str(), all[0].offset), ("signal/x.npy", Some(0)));
    }

    #[test]
    fn blocks_of_one_name_are_several() {
        let problems = Problems::default();
        for start in [100, 200, 100] {
            problems.note_at(unreadable("signal/x.npy", start), Some(start));
        }
        assert_eq!(problems.all().len(), 2);
    }

    #[test]
    fn the_list_and_its_texts_are_bounded() {
        let problems = Problems::default();
        for number in 0..limits::PROBLEMS + 10 {
            let message = format!("{number} {}", "ü".repeat(2000));
            problems.note(Problem::of("x".into(), message));
        }
        let all = problems.all();
        assert_eq!(all.len(), limits::PROBLEMS);
        assert!(all[0].message.starts_with("10 ") && all[0].message.len() <= limits::PROBLEM_TEXT + 3);
        // Nothing is remembered of those that made room.
        assert_eq!(problems.0.lock().seen.len(), limits::PROBLEMS);
    }
}
