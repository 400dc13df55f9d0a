//! Problems seen so far: each is logged once, and stands in `.shardfs/problems.jsonl`.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use crate::limits;

/// One thing that is wrong with a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The container, relative to SOURCE.
    pub container: PathBuf,
    /// The path in it; empty for the container itself.
    pub path: String,
    /// The block's stored name.
    pub block: Option<String>,
    /// Where in the container, in bytes.
    pub offset: Option<u64>,
    /// What was wrong.
    pub message: String,
}

impl Problem {
    /// A problem of a container as a whole.
    pub(super) fn of(container: PathBuf, message: String) -> Self {
        Self { container, path: String::new(), block: None, offset: None, message }
    }
}

impl Problem {
    /// What was wrong, with block and offset but without the path.
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

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { self.container.clone() } else { self.container.join(&self.path) };
        write!(f, "{}: {}", place.display(), self.detail())
    }
}

/// The list: bounded, each problem once.
#[derive(Debug, Default)]
pub(super) struct Problems(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    seen: HashSet<Problem>,
    /// With the time at which each was first seen, in seconds since 1970.
    in_order: VecDeque<(f64, Problem)>,
}

impl Problems {
    /// Logs and keeps a problem, unless it is known.
    pub(super) fn note(&self, problem: Problem) {
        let mut list = self.lock();
        if !list.seen.insert(problem.clone()) {
            return;
        }
        log::warn!("{problem}");
        if list.in_order.len() == limits::PROBLEMS
            && let Some((_, oldest)) = list.in_order.pop_front()
        {
            list.seen.remove(&oldest);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        list.in_order.push_back((now.as_secs_f64(), problem));
    }

    /// All that are kept, oldest first.
    pub(super) fn all(&self) -> Vec<Problem> {
        self.lock().in_order.iter().map(|(_, problem)| problem.clone()).collect()
    }

    /// What the newest says.
    pub(super) fn last_message(&self) -> Option<String> {
        self.lock().in_order.back().map(|(_, problem)| problem.message.clone())
    }

    /// `problems.jsonl`: an object a line.
    pub(super) fn to_jsonl(&self) -> String {
        let line = |(time, problem): &(f64, Problem)| {
            let Problem { container, path, block, offset, message } = problem;
            let container = container.to_string_lossy();
            let object = json!({"time": time, "container": container, "path": path, "block": block, "offset": offset,
                                "message": message});
            format!("{object}\n")
        };
        self.lock().in_order.iter().map(line).collect()
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
