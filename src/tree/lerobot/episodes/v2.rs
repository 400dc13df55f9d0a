//! Reads the metadata of v2: JSON lines.

use super::{
    found::{Found, Row},
    open,
};
use crate::{
    format::lerobot::{EpisodeLine, TaskLine, lines, object},
    tree::Siblings,
    view::Fault,
};

impl Found<'_> {
    pub(super) fn read_lines(&mut self, siblings: &dyn Siblings) -> Result<(), Fault> {
        const PATH: &str = "meta/episodes.jsonl";
        let source = match open(siblings, PATH)? {
            Ok(source) => source,
            Err(reason) => {
                self.tell(|| reason);
                return Ok(());
            }
        };
        let memory = self.memory;
        lines(&*source, memory, |number, line| {
            let place = || format!("{PATH}, line {number}");
            match line.ok_or_else(|| "it is too long".into()).and_then(object::<EpisodeLine>) {
                Err(reason) => self.tell(|| format!("{}: {reason}", place())),
                Ok(EpisodeLine { episode_index, length, tasks }) => {
                    let tasks = tasks.into_iter().flatten().map(Some).collect();
                    let (index, length) = (Some(episode_index), Some(length));
                    let row = Row { index, length, tasks, file: None, rows: None, footings: Vec::new() };
                    self.add(&place, row)?;
                }
            }
            Ok::<_, Fault>(())
        })
    }

    pub(super) fn task_lines(&mut self, siblings: &dyn Siblings) -> Result<Vec<(i64, Box<str>)>, Fault> {
        const PATH: &str = "meta/tasks.jsonl";
        let mut tasks = Vec::new();
        let source = match open(siblings, PATH)? {
            Ok(source) => source,
            Err(reason) => {
                self.tell(|| reason);
                return Ok(tasks);
            }
        };
        let memory = self.memory;
        lines(&*source, memory, |number, line| {
            match line.ok_or_else(|| "it is too long".into()).and_then(object::<TaskLine>) {
                Err(reason) => self.tell(|| format!("{PATH}, line {number}: {reason}")),
                Ok(TaskLine { task_index, task }) => self.add_task(&mut tasks, task_index, &task)?,
            }
            Ok::<_, Fault>(())
        })?;
        Ok(tasks)
    }
}
