//! Collects the episodes of a data set, for all versions of the metadata.

use std::collections::{HashMap, HashSet};

use super::{Episode, Episodes, Footing, NO_TASK, RowFile};
use crate::{limits, source::Memory, tree::WorkingMemory, view::Fault};

/// Most problems of the metadata that are reported one by one.
const TOLD: usize = 100;

/// Bytes of memory of an episode, of the tables that find it, and of a camera of it.
const EPISODE: u64 = 2 * size_of::<Episode>() as u64 + 160;
const FOOTING: u64 = 2 * size_of::<Option<Footing>>() as u64 + 96;

/// Collects episodes in the order of the metadata.
pub(super) struct Found<'a> {
    pub(super) episodes: Episodes,
    known: HashSet<u64>,
    ids: HashMap<Box<str>, u32>,
    files: HashMap<(u64, u64), u32>,
    videos: HashMap<(u64, u64), u32>,
    warnings: &'a mut Vec<String>,
    told: usize,
    pub(super) memory: &'a WorkingMemory<'a>,
}

/// One row of the metadata.
pub(super) struct Row {
    pub(super) index: Option<i64>,
    pub(super) length: Option<i64>,
    pub(super) tasks: Vec<Option<String>>,
    /// Chunk, file and first and last row of v3.
    pub(super) file: Option<(u64, u64)>,
    pub(super) rows: Option<(u64, u64)>,
    pub(super) footings: Vec<Option<((u64, u64), f64)>>,
}

impl<'a> Found<'a> {
    pub(super) fn new(episodes: Episodes, memory: &'a WorkingMemory<'a>, warnings: &'a mut Vec<String>) -> Self {
        let (known, ids, files, videos) = (HashSet::new(), HashMap::new(), HashMap::new(), HashMap::new());
        Self { episodes, known, ids, files, videos, warnings, told: 0, memory }
    }

    /// Reports a problem of the metadata.
    pub(super) fn tell(&mut self, reason: impl FnOnce() -> String) {
        self.told += 1;
        match self.told {
            ..TOLD => self.warnings.push(reason()),
            TOLD => self.warnings.push("more of the metadata is wrong".into()),
            _ => {}
        }
    }

    /// Adds an episode, unless it is not valid. `place` returns where it is, for messages.
    pub(super) fn add(&mut self, place: &dyn Fn() -> String, row: Row) -> Result<(), Fault> {
        let index = row.index.and_then(|index| u64::try_from(index).ok());
        let Some(index) = index else {
            self.tell(|| format!("{}: an episode without a number that is at least 0", place()));
            return Ok(());
        };
        let length = row.length.and_then(|length| u64::try_from(length).ok());
        let Some(length) = length.filter(|length| *length <= limits::LEROBOT_STEPS) else {
            let most = limits::LEROBOT_STEPS;
            self.tell(|| format!("{}: episode {index} has no length from 0 to {most}", place()));
            return Ok(());
        };
        if self.episodes.all.len() >= limits::LEROBOT_EPISODES {
            let most = limits::LEROBOT_EPISODES;
            self.tell(|| format!("{}: more than {most} episodes; later ones are not shown", place()));
            return Ok(());
        }
        self.memory.reserve(EPISODE + FOOTING * row.footings.len() as u64)?;
        if !self.known.insert(index) {
            self.tell(|| format!("{}: a second episode {index}", place()));
            return Ok(());
        }
        let first = self.episodes.tasks_of.len() as u32;
        for task in &row.tasks {
            let id = task.as_ref().map_or(Ok(NO_TASK), |task| self.text(task))?;
            self.memory.reserve(8)?;
            self.episodes.tasks_of.push(id);
        }
        let file = row.file.map(|(chunk, file)| {
            let base = row.rows.map_or(u64::MAX, |(from, _)| from);
            let files = &mut self.episodes.files;
            let at = *self.files.entry((chunk, file)).or_insert_with(|| {
                files.push(RowFile { chunk, file, base });
                files.len() as u32 - 1
            });
            if let Some(known) = files.get_mut(at as usize) {
                known.base = known.base.min(base);
            }
            at
        });
        for footing in row.footings {
            let footing = footing.map(|(numbers, from)| {
                let videos = &mut self.episodes.videos;
                let file = *self.videos.entry(numbers).or_insert_with(|| {
                    videos.push(numbers);
                    videos.len() as u32 - 1
                });
                Footing { file, from }
            });
            self.episodes.footings.push(footing);
        }
        let tasks = (first, row.tasks.len() as u32);
        self.episodes.all.push(Episode { index, length, tasks, file, rows: row.rows });
        Ok(())
    }

    /// Returns the number of a task's name.
    fn text(&mut self, text: &str) -> Result<u32, Fault> {
        if let Some(known) = self.ids.get(text) {
            return Ok(*known);
        }
        self.memory.reserve(2 * text.len() as u64 + 128)?;
        let id = self.episodes.texts.len() as u32;
        self.episodes.texts.push(text.into());
        self.ids.insert(text.into(), id);
        Ok(id)
    }

    /// Adds a task.
    pub(super) fn add_task(&mut self, tasks: &mut Vec<(i64, Box<str>)>, index: i64, task: &str) -> Result<(), Fault> {
        if tasks.len() >= limits::LEROBOT_TASKS {
            self.tell(|| format!("more than {} tasks; later ones are not shown", limits::LEROBOT_TASKS));
            return Ok(());
        }
        self.memory.reserve(task.len() as u64 + 64)?;
        tasks.push((index, task.into()));
        Ok(())
    }
}
