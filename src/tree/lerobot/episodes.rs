//! Which episodes a data set has, and where their parts are (`docs/formats/lerobot.md` 3 and 4).

use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use super::{MAIN, fault};
use crate::format::parquet::{Form, Leaf, Values};
use crate::{
    cache::BlockError,
    format::lerobot::{EpisodeLine, Field, Info, Kind, TaskLine, lines, object},
    limits,
    source::{Memory, Source, SourceError},
    tree::{
        Siblings, WorkingMemory,
        columns::{Columns, is_damage, plain},
    },
    view::{Fault, ReadContext},
};

/// The folder of v3's metadata of episodes.
const FOLDER: &str = "meta/episodes";

/// Most problems of the metadata that are told one by one.
const TOLD: usize = 100;

/// An episode of the metadata.
#[derive(Debug, Clone)]
pub(super) struct Episode {
    /// Its `episode_index`.
    pub(super) index: u64,
    /// Its steps.
    pub(super) length: u64,
    /// The first of its tasks in [`Episodes::tasks_of`], and how many.
    tasks: (u32, u32),
    /// Its row file, by the place in [`Episodes::files`].
    file: Option<u32>,
    /// Its rows, counted over the whole data set, if they are known.
    rows: Option<(u64, u64)>,
}

/// Rows that several episodes share.
#[derive(Debug, Clone, Copy)]
struct RowFile {
    chunk: u64,
    file: u64,
    /// The smallest number of a row in it, over the whole data set.
    base: u64,
}

/// Where the frames of a camera are.
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
    /// Names of tasks, each once, and the tasks of all episodes.
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

/// Collects episodes in the order of the metadata.
struct Found<'a> {
    episodes: Episodes,
    known: HashMap<u64, ()>,
    ids: HashMap<Box<str>, u32>,
    files: HashMap<(u64, u64), u32>,
    videos: HashMap<(u64, u64), u32>,
    warnings: &'a mut Vec<String>,
    told: usize,
    memory: &'a WorkingMemory<'a>,
}

/// One row of the metadata.
struct Row {
    index: Option<i64>,
    length: Option<i64>,
    tasks: Vec<String>,
    /// Chunk, file and first and last row of v3.
    file: Option<(u64, u64)>,
    rows: Option<(u64, u64)>,
    footings: Vec<Option<((u64, u64), f64)>>,
}

impl Found<'_> {
    fn tell(&mut self, reason: impl FnOnce() -> String) {
        self.told += 1;
        match self.told {
            ..TOLD => self.warnings.push(reason()),
            TOLD => self.warnings.push("more of the metadata is wrong".into()),
            _ => {}
        }
    }

    fn add(&mut self, place: &dyn Fn() -> String, row: Row) -> Result<(), Fault> {
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
        if self.known.insert(index, ()).is_some() {
            self.tell(|| format!("{}: a second episode {index}", place()));
            return Ok(());
        }
        let first = self.episodes.tasks_of.len() as u32;
        for task in &row.tasks {
            let id = self.text(task)?;
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
}

/// Bytes of memory of an episode, of the tables that find it, and of a camera of it.
const EPISODE: u64 = 2 * size_of::<Episode>() as u64 + 160;
const FOOTING: u64 = 2 * size_of::<Option<Footing>>() as u64 + 96;

impl Episodes {
    /// Reads the metadata. What is wrong with them goes to `warnings`.
    ///
    /// # Errors
    /// [`Fault`] if bytes or memory cannot be had.
    pub(super) fn read(
        info: &Info,
        siblings: &dyn Siblings,
        reader: &ReadContext,
        memory: &WorkingMemory<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Fault> {
        let videos = info.features.iter().enumerate().filter(|(_, feature)| feature.kind == Kind::Video);
        let cameras: Vec<usize> = videos.map(|(at, _)| at).collect();
        let mut found = Found {
            episodes: Self { cameras, ..Self::default() },
            known: HashMap::new(),
            ids: HashMap::new(),
            files: HashMap::new(),
            videos: HashMap::new(),
            warnings,
            told: 0,
            memory,
        };
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

    /// Returns the tasks of an episode.
    pub(super) fn tasks_of(&self, episode: &Episode) -> impl Iterator<Item = &str> {
        let (first, count) = (episode.tasks.0 as usize, episode.tasks.1 as usize);
        let ids = self.tasks_of.get(first..first + count).unwrap_or_default();
        ids.iter().filter_map(|id| self.texts.get(*id as usize).map(|text| &**text))
    }

    /// Returns the steps of all episodes.
    pub(super) fn steps(&self) -> u64 {
        self.all.iter().map(|episode| episode.length).sum()
    }

    /// Returns the number of an episode's row file in this container, and its path if it leads to a place.
    pub(super) fn row_file(&self, info: &Info, at: u64) -> Option<(u32, Option<String>)> {
        let episode = self.get(at)?;
        if info.version.has_file_an_episode() {
            return Some((at as u32, info.data_path.path(|field| by_episode(info, episode.index, field))));
        }
        let number = episode.file?;
        let RowFile { chunk, file, .. } = *self.files.get(number as usize)?;
        Some((number, info.data_path.path(|field| by_file(chunk, file, field))))
    }

    /// Returns the first row of an episode in its row file, and how many rows that file must have: exactly for v2, at
    /// least for v3.
    ///
    /// # Errors
    /// Why it has none.
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

    /// Returns where a camera of an episode is, by its place in [`Self::cameras`], and the path of the video if it leads
    /// to a place. `None` if the metadata do not say.
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

    /// Returns the bytes of memory that they take, about.
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

/// Opens a file of the folder; `Err` inside says why it cannot be used.
pub(super) fn open(siblings: &dyn Siblings, path: &str) -> Result<Result<Arc<dyn Source>, String>, Fault> {
    match siblings.file(path) {
        Ok(Some(source)) => Ok(Ok(source)),
        Ok(None) => Ok(Err(format!("{path} is missing"))),
        Err(BlockError::Refused(reason)) => Ok(Err(format!("{path}: {reason}"))),
        Err(BlockError::Source(SourceError::Io(error))) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Ok(Err(format!("{path}: {error}")))
        }
        Err(error) => Err(fault(error)),
    }
}

/// The metadata of v2.
impl Found<'_> {
    fn read_lines(&mut self, siblings: &dyn Siblings) -> Result<(), Fault> {
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
                    let (index, length, tasks) = (Some(episode_index), Some(length), tasks.unwrap_or_default());
                    let row = Row { index, length, tasks, file: None, rows: None, footings: Vec::new() };
                    self.add(&place, row)?;
                }
            }
            Ok::<_, Fault>(())
        })
    }

    fn task_lines(&mut self, siblings: &dyn Siblings) -> Result<Vec<(i64, Box<str>)>, Fault> {
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

    fn add_task(&mut self, tasks: &mut Vec<(i64, Box<str>)>, index: i64, task: &str) -> Result<(), Fault> {
        if tasks.len() >= limits::LEROBOT_TASKS {
            self.tell(|| format!("more than {} tasks; later ones are not shown", limits::LEROBOT_TASKS));
            return Ok(());
        }
        self.memory.reserve(task.len() as u64 + 64)?;
        tasks.push((index, task.into()));
        Ok(())
    }
}

fn is_integer(leaf: &Leaf) -> bool {
    use crate::format::DType::{I32, I64, U32, U64};
    matches!((leaf.form, leaf.values), (Form::Scalar, Values::Numbers(I32 | I64 | U32 | U64)))
}

fn is_float(leaf: &Leaf) -> bool {
    use crate::format::DType::{F32, F64};
    matches!((leaf.form, leaf.values), (Form::Scalar, Values::Numbers(F32 | F64)))
}

/// A number of a page, widened.
fn number(leaf: &Leaf, bytes: &[u8]) -> Number {
    use crate::format::{DType, Fields};
    let Values::Numbers(dtype) = leaf.values else { return Number::None };
    match dtype {
        DType::I32 => bytes.u32(0).map(|bits| Number::Integer((bits as i32).into())),
        DType::U32 => bytes.u32(0).map(|bits| Number::Integer(bits.into())),
        DType::I64 => bytes.u64(0).map(|bits| Number::Integer(bits as i64)),
        DType::U64 => bytes.u64(0).and_then(|bits| i64::try_from(bits).ok()).map(Number::Integer),
        DType::F32 => bytes.u32(0).map(|bits| Number::Float(f32::from_bits(bits).into())),
        DType::F64 => bytes.u64(0).map(|bits| Number::Float(f64::from_bits(bits))),
        _ => None,
    }
    .unwrap_or(Number::None)
}

#[derive(Debug, Clone, Copy)]
enum Number {
    None,
    Integer(i64),
    Float(f64),
}

impl Number {
    fn integer(self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(number) } else { None }
    }

    fn unsigned(self) -> Option<u64> {
        self.integer().and_then(|number| u64::try_from(number).ok())
    }
}

/// The metadata of v3.
impl Found<'_> {
    fn read_tables(&mut self, info: &Info, siblings: &dyn Siblings, reader: &ReadContext) -> Result<(), Fault> {
        let mut paths: Vec<String> = Vec::new();
        for folder in names(siblings, FOLDER, self.memory)? {
            let folder = format!("{FOLDER}/{folder}");
            let files = names(siblings, &folder, self.memory)?;
            paths.extend(
                files.into_iter().filter(|name| name.ends_with(".parquet")).map(|name| format!("{folder}/{name}")),
            );
        }
        paths.sort_unstable();
        if paths.is_empty() {
            self.tell(|| format!("{FOLDER} has no files: no episode is known"));
        }
        for (number, path) in (MAIN..).zip(paths) {
            match self.read_table(info, siblings, reader, &path, number) {
                Err(fault) if is_damage(&fault.error) => {
                    self.tell(|| format!("{path}: {}; its episodes are not shown", plain(&fault.error)));
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn read_table(
        &mut self,
        info: &Info,
        siblings: &dyn Siblings,
        reader: &ReadContext,
        path: &str,
        number: u64,
    ) -> Result<(), Fault> {
        let source = open(siblings, path)?.map_err(|reason| Fault::refused(&reason))?;
        let columns = Columns::open(reader, source, path, number)?;
        let rows = columns.file().rows;
        if rows > limits::LEROBOT_EPISODES as u64 {
            return Err(Fault::refused("it has too many rows"));
        }
        let cameras: Vec<String> = (self.episodes.cameras.iter())
            .filter_map(|at| info.features.get(*at).map(|feature| feature.name.clone()))
            .collect();
        let needed = |name: &str| {
            let leaf = columns.file().leaf(name, is_integer);
            leaf.ok_or_else(|| Fault::refused(&format!("it has no column {name} of integers")))
        };
        let indices = self.numbers(&columns, reader, needed("episode_index")?)?;
        let lengths = self.numbers(&columns, reader, needed("length")?)?;
        let integers = |this: &mut Self, name: &str| this.optional(&columns, reader, path, name, is_integer);
        let chunks = integers(self, "data/chunk_index")?;
        let files = integers(self, "data/file_index")?;
        let from = integers(self, "dataset_from_index")?;
        let to = integers(self, "dataset_to_index")?;
        let mut videos = Vec::new();
        for camera in &cameras {
            let name = |part: &str| format!("videos/{camera}/{part}");
            videos.push((
                integers(self, &name("chunk_index"))?,
                integers(self, &name("file_index"))?,
                self.optional(&columns, reader, path, &name("from_timestamp"), is_float)?,
            ));
        }
        let mut tasks = self.task_lists(&columns, reader, path)?.into_iter();
        let at = |column: &[Number], row: usize| column.get(row).copied().unwrap_or(Number::None);
        for row in 0..rows as usize {
            crate::wanted::check().map_err(SourceError::from)?;
            let file = at(&chunks, row).unsigned().zip(at(&files, row).unsigned());
            let footings = videos.iter().map(|(chunks, files, from)| {
                let file = at(chunks, row).unsigned().zip(at(files, row).unsigned());
                let from = if let Number::Float(from) = at(from, row) { Some(from) } else { None };
                file.zip(from.filter(|from| from.is_finite()))
            });
            let footings = footings.collect();
            let row = Row {
                index: at(&indices, row).integer(),
                length: at(&lengths, row).integer(),
                tasks: tasks.next().unwrap_or_default(),
                file,
                rows: at(&from, row).unsigned().zip(at(&to, row).unsigned()),
                footings,
            };
            self.add(&|| path.to_owned(), row)?;
        }
        Ok(())
    }

    /// Returns the numbers of a column.
    fn numbers(&self, columns: &Columns, reader: &ReadContext, leaf: usize) -> Result<Vec<Number>, Fault> {
        let (rows, Some(of)) = (columns.file().rows, columns.file().leaves.get(leaf)) else { return Ok(Vec::new()) };
        self.memory.reserve(rows * size_of::<Number>() as u64)?;
        let mut numbers = vec![Number::None; rows as usize];
        let width = if let Values::Numbers(dtype) = of.values { dtype.size() as usize } else { 0 };
        columns.scalars(reader, leaf, 0..rows, &mut |row, value| {
            if let (Some(slot), Some((page, at))) = (numbers.get_mut(row as usize), value) {
                *slot = number(of, page.numbers(at..at + 1, width));
            }
            Ok(())
        })?;
        Ok(numbers)
    }

    /// Returns the numbers of a column that may be missing; that it is damaged is told.
    fn optional(
        &mut self,
        columns: &Columns,
        reader: &ReadContext,
        path: &str,
        name: &str,
        is_wanted: fn(&Leaf) -> bool,
    ) -> Result<Vec<Number>, Fault> {
        let Some(leaf) = columns.file().leaf(name, is_wanted) else { return Ok(Vec::new()) };
        match self.numbers(columns, reader, leaf) {
            Err(fault) if is_damage(&fault.error) => {
                self.tell(|| format!("{path}, column {name}: {}", plain(&fault.error)));
                Ok(Vec::new())
            }
            done => done,
        }
    }

    fn task_lists(&mut self, columns: &Columns, reader: &ReadContext, path: &str) -> Result<Vec<Vec<String>>, Fault> {
        let is_texts = |leaf: &Leaf| matches!(leaf.values, Values::Texts | Values::Bytes) && leaf.form == Form::List;
        let Some(leaf) = columns.file().leaf("tasks", is_texts) else { return Ok(Vec::new()) };
        let rows = columns.file().rows;
        self.memory.reserve(rows * 24)?;
        let mut tasks = vec![Vec::new(); rows as usize];
        let memory = self.memory;
        let read = columns.lists(reader, leaf, 0..rows, &mut |row, values| {
            let Some(list) = tasks.get_mut(row as usize) else { return Ok(()) };
            for slot in values.slots {
                if values.page.slot(slot) == crate::tree::columns::Slot::Value {
                    let bytes = values.page.bytes(slot);
                    memory.reserve(bytes.len() as u64 + 48)?;
                    list.push(String::from_utf8_lossy(bytes).into_owned());
                }
            }
            Ok(())
        });
        match read {
            Err(fault) if is_damage(&fault.error) => {
                self.tell(|| format!("{path}, column tasks: {}", plain(&fault.error)));
                Ok(Vec::new())
            }
            done => done.map(|()| tasks),
        }
    }

    fn task_table(&mut self, siblings: &dyn Siblings, reader: &ReadContext) -> Result<Vec<(i64, Box<str>)>, Fault> {
        const PATH: &str = "meta/tasks.parquet";
        let mut tasks = Vec::new();
        match self.read_tasks(siblings, reader, PATH, &mut tasks) {
            Err(fault) if is_damage(&fault.error) => {
                self.tell(|| format!("{PATH}: {}; no tasks are known", plain(&fault.error)));
                Ok(Vec::new())
            }
            done => done.map(|()| tasks),
        }
    }

    fn read_tasks(
        &mut self,
        siblings: &dyn Siblings,
        reader: &ReadContext,
        path: &str,
        tasks: &mut Vec<(i64, Box<str>)>,
    ) -> Result<(), Fault> {
        let source = match open(siblings, path)? {
            Ok(source) => source,
            Err(reason) => {
                self.tell(|| reason);
                return Ok(());
            }
        };
        let columns = Columns::open(reader, source, path, MAIN - 1)?;
        let is_text = |leaf: &Leaf| matches!(leaf.values, Values::Texts | Values::Bytes) && leaf.form == Form::Scalar;
        let text = ["task", "__index_level_0__"].iter().find_map(|name| columns.file().leaf(name, is_text));
        let (Some(text), Some(index)) = (text, columns.file().leaf("task_index", is_integer)) else {
            return Err(Fault::refused("it has no columns task and task_index"));
        };
        let rows = columns.file().rows;
        let numbers = self.numbers(&columns, reader, index)?;
        columns.scalars(reader, text, 0..rows, &mut |row, value| {
            let number = numbers.get(row as usize).and_then(|number| number.integer());
            match (number, value) {
                (Some(number), Some((page, slot))) => {
                    self.add_task(tasks, number, &String::from_utf8_lossy(page.bytes(slot)))
                }
                _ => {
                    self.tell(|| format!("{path}: row {row} has no task or no number"));
                    Ok(())
                }
            }
        })
    }
}

/// Returns the names in a folder.
fn names(siblings: &dyn Siblings, path: &str, memory: &dyn Memory) -> Result<Vec<String>, Fault> {
    let (mut names, mut failed) = (Vec::new(), None);
    let listed = siblings.names(path, &mut |name| {
        let Some(name) = name.to_str() else { return ControlFlow::Continue(()) };
        if let Err(error) = memory.reserve(name.len() as u64 + 48) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        names.push(name.to_owned());
        ControlFlow::Continue(())
    });
    match (listed, failed) {
        (_, Some(error)) => Err(error.into()),
        (Err(BlockError::Refused(_)), None) => Ok(Vec::new()),
        (Err(error), None) => Err(fault(error)),
        (Ok(()), None) => Ok(names),
    }
}
