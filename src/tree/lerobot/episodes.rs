//! The episodes of a data set, and where their parts are (`docs/formats/lerobot.md` 3 and 4).

mod found;
mod v2;
mod v3;

use std::sync::Arc;

use crate::{
    cache::BlockError,
    format::lerobot::{Field, Info, Kind},
    source::{Source, SourceError},
    tree::{Siblings, WorkingMemory},
    view::{Fault, ReadContext},
};
use found::Found;

/// An episode of the metadata.
#[derive(Debug, Clone)]
pub(super) struct Episode {
    /// Its `episode_index`.
    pub(super) index: u64,
    /// Its steps.
    pub(super) length: u64,
    /// Its tasks: the first in [`Episodes::tasks_of`], and the number of tasks.
    tasks: (u32, u32),
    /// Its row file, by the place in [`Episodes::files`].
    file: Option<u32>,
    /// Its rows, counted over the whole data set, if they are known.
    rows: Option<(u64, u64)>,
}

/// A row file that several episodes share.
#[derive(Debug, Clone, Copy)]
struct RowFile {
    chunk: u64,
    file: u64,
    /// The smallest number of a row in it, over the whole data set.
    base: u64,
}

/// Where the frames of a camera in an episode are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Footing {
    /// The video, by its place in [`Episodes::videos`].
    pub(super) file: u32,
    /// Seconds in it at which the episode begins.
    pub(super) from: f64,
}

/// All episodes of a data set, by rising index.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    pub(super) all: Vec<Episode>,
    /// Names of tasks, each once, and the tasks of all episodes, by their places there; [`NO_TASK`] for null.
    texts: Vec<Box<str>>,
    tasks_of: Vec<u32>,
    /// Row files of v3.
    files: Vec<RowFile>,
    /// Videos of v3: chunk and file.
    videos: Vec<(u64, u64)>,
    /// For v3, where each camera of each episode is, in the order of [`Self::cameras`].
    footings: Vec<Option<Footing>>,
    /// The features that are videos.
    pub(super) cameras: Vec<usize>,
    /// The tasks by number.
    pub(super) tasks: Vec<(i64, Box<str>)>,
}

/// See [`Episodes::tasks_of`].
const NO_TASK: u32 = u32::MAX;

impl Episodes {
    /// Reads the metadata. Problems are added to `warnings`.
    ///
    /// # Errors
    /// [`Fault`] if bytes cannot be read or there is not enough memory.
    pub(super) fn read(
        info: &Info,
        siblings: &dyn Siblings,
        reader: &ReadContext,
        memory: &WorkingMemory<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Fault> {
        let videos = info.features.iter().enumerate().filter(|(_, feature)| feature.kind == Kind::Video);
        let cameras: Vec<usize> = videos.map(|(at, _)| at).collect();
        let mut found = Found::new(Self { cameras, ..Self::default() }, memory, warnings);
        match info.version.has_file_an_episode() {
            true => found.read_lines(siblings)?,
            false => found.read_tables(info, siblings, reader)?,
        }
        let tasks = match info.version.has_file_an_episode() {
            true => found.task_lines(siblings)?,
            false => found.task_table(siblings, reader)?,
        };
        let mut episodes = found.episodes;
        episodes.tasks = tasks;
        episodes.tasks.sort_by_key(|(index, _)| *index);
        episodes.sort();
        Ok(episodes)
    }

    fn sort(&mut self) {
        if self.all.is_sorted_by_key(|episode| episode.index) {
            return;
        }
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        order.sort_by_key(|at| self.all.get(*at as usize).map(|episode| episode.index));
        let count = self.cameras.len();
        if !self.footings.is_empty() {
            let of = |at: u32| self.footings.get(at as usize * count..).and_then(|rest| rest.get(..count));
            self.footings = order.iter().flat_map(|at| of(*at).unwrap_or_default().to_vec()).collect();
        }
        self.all = order.iter().filter_map(|at| self.all.get(*at as usize).cloned()).collect();
    }

    /// Returns the place of an episode by its index.
    pub(super) fn find(&self, index: u64) -> Option<u64> {
        self.all.binary_search_by_key(&index, |episode| episode.index).ok().map(|at| at as u64)
    }

    /// Returns an episode by its place.
    pub(super) fn get(&self, at: u64) -> Option<&Episode> {
        self.all.get(usize::try_from(at).ok()?)
    }

    /// Returns the tasks of an episode; `None` for each that is null.
    pub(super) fn tasks_of(&self, episode: &Episode) -> impl Iterator<Item = Option<&str>> {
        let (first, count) = (episode.tasks.0 as usize, episode.tasks.1 as usize);
        let ids = self.tasks_of.get(first..first + count).unwrap_or_default();
        ids.iter().map(|id| self.texts.get(*id as usize).map(|text| &**text))
    }

    /// Returns the steps of all episodes.
    pub(super) fn steps(&self) -> u64 {
        self.all.iter().map(|episode| episode.length).sum()
    }

    /// Returns the number of an episode's row file in this container, and its path if the path is valid.
    pub(super) fn row_file(&self, info: &Info, at: u64) -> Option<(u32, Option<String>)> {
        let episode = self.get(at)?;
        if info.version.has_file_an_episode() {
            return Some((at as u32, info.data_path.path(|field| by_episode(info, episode.index, field))));
        }
        let number = episode.file?;
        let RowFile { chunk, file, .. } = *self.files.get(number as usize)?;
        Some((number, info.data_path.path(|field| by_file(chunk, file, field))))
    }

    /// Returns the first row of an episode in its row file, and the number of rows that the file must have: exactly for
    /// v2, at least for v3.
    ///
    /// # Errors
    /// Why its rows are unknown.
    pub(super) fn rows(&self, info: &Info, at: u64) -> Result<(u64, u64), String> {
        let none = || String::from("the metadata do not say which rows it has");
        let episode = self.get(at).ok_or_else(none)?;
        if info.version.has_file_an_episode() {
            return Ok((0, episode.length));
        }
        let file = episode.file.and_then(|file| self.files.get(file as usize)).ok_or_else(none)?;
        let (from, to) = episode.rows.ok_or_else(none)?;
        if to.checked_sub(from) != Some(episode.length) {
            return Err(format!("its rows are {from} to {to}, and its length is {}", episode.length));
        }
        Ok((from.saturating_sub(file.base), to.saturating_sub(file.base)))
    }

    /// Returns where the frames of a camera in an episode are, and the path of the video if the path is valid. `camera`
    /// is the place in [`Self::cameras`]. Returns `None` if the metadata do not state it.
    pub(super) fn video(&self, info: &Info, at: u64, camera: usize) -> Option<(Footing, Option<String>)> {
        let (template, episode) = (info.video_path.as_ref()?, self.get(at)?);
        let key = &info.features.get(*self.cameras.get(camera)?)?.name;
        let named = |field, value: Option<String>| if field == Field::VideoKey { Some(key.clone()) } else { value };
        if info.version.has_file_an_episode() {
            let path = template.path(|field| named(field, by_episode(info, episode.index, field)));
            return Some((Footing { file: at as u32, from: 0.0 }, path));
        }
        let footing = (*self.footings.get(at as usize * self.cameras.len() + camera)?)?;
        let (chunk, file) = *self.videos.get(footing.file as usize)?;
        Some((footing, template.path(|field| named(field, by_file(chunk, file, field)))))
    }

    /// Returns about how many bytes of memory they take.
    pub(super) fn memory_usage(&self) -> usize {
        let texts: usize = self.texts.iter().map(|text| text.len() + 16).sum();
        let tasks: usize = self.tasks.iter().map(|(_, text)| text.len() + 24).sum();
        size_of_val(&*self.all)
            + size_of_val(&*self.footings)
            + 4 * self.tasks_of.len()
            + texts
            + tasks
            + size_of_val(&*self.files)
            + size_of_val(&*self.videos)
    }
}

fn by_episode(info: &Info, index: u64, field: Field) -> Option<String> {
    match field {
        Field::EpisodeChunk => Some((index / info.chunk).to_string()),
        Field::EpisodeIndex => Some(index.to_string()),
        _ => None,
    }
}

fn by_file(chunk: u64, file: u64, field: Field) -> Option<String> {
    match field {
        Field::ChunkIndex => Some(chunk.to_string()),
        Field::FileIndex => Some(file.to_string()),
        _ => None,
    }
}

/// Opens a file of the folder. The inner `Err` tells why it cannot be used.
pub(super) fn open(siblings: &dyn Siblings, path: &str) -> Result<Result<Arc<dyn Source>, String>, Fault> {
    match siblings.file(path) {
        Ok(Some(source)) => Ok(Ok(source)),
        Ok(None) => Ok(Err(format!("{path} is missing"))),
        Err(BlockError::Refused(reason)) => Ok(Err(format!("{path}: {reason}"))),
        Err(BlockError::Source(SourceError::Io(error))) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Ok(Err(format!("{path}: {error}")))
        }
        Err(error) => Err(error.into()),
    }
}
