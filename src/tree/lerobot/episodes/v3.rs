//! Reads the metadata of v3: Parquet files.

use std::ops::ControlFlow;

use super::{
    super::MAIN,
    found::{Found, Row},
    open,
};
use crate::{
    cache::BlockError,
    format::{
        DType, Fields,
        lerobot::Info,
        parquet::{Form, Leaf, Values},
    },
    limits,
    source::{Memory, SourceError},
    tree::{
        Siblings,
        columns::{Columns, Slot, plain},
    },
    view::{Fault, ReadContext},
    wanted,
};

/// The folder of the metadata of episodes.
const FOLDER: &str = "meta/episodes";

fn is_integer(leaf: &Leaf) -> bool {
    use DType::{I32, I64, U32, U64};
    matches!((leaf.form, leaf.values), (Form::Scalar, Values::Numbers(I32 | I64 | U32 | U64)))
}

fn is_float(leaf: &Leaf) -> bool {
    use DType::{F32, F64};
    matches!((leaf.form, leaf.values), (Form::Scalar, Values::Numbers(F32 | F64)))
}

/// Returns a number of a page, widened.
fn number(leaf: &Leaf, bytes: &[u8]) -> Number {
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

impl Found<'_> {
    pub(super) fn read_tables(
        &mut self,
        info: &Info,
        siblings: &dyn Siblings,
        reader: &ReadContext,
    ) -> Result<(), Fault> {
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
                Err(fault) if fault.error.is_damage() => {
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
        let (columns, _room) = Columns::open(reader, source, path, number)?;
        let rows = columns.file().rows;
        if rows > limits::LEROBOT_EPISODES as u64 {
            return Err(Fault::refused("it has too many rows"));
        }
        let cameras: Vec<String> = (self.episodes.cameras.iter())
            .filter_map(|at| info.features.get(*at).map(|feature| feature.name.clone()))
            .collect();
        let needed = |name: &str| {
            let leaf = columns.file().leaf(name, is_integer);
            leaf.ok_or_else(|| Fault::refused(format!("it has no column {name} of integers")))
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
            wanted::check().map_err(SourceError::from)?;
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

    /// Returns the numbers of a column that may be missing. Reports it if the column is damaged.
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
            Err(fault) if fault.error.is_damage() => {
                self.tell(|| format!("{path}, column {name}: {}", plain(&fault.error)));
                Ok(Vec::new())
            }
            done => done,
        }
    }

    fn task_lists(
        &mut self,
        columns: &Columns,
        reader: &ReadContext,
        path: &str,
    ) -> Result<Vec<Vec<Option<String>>>, Fault> {
        let is_texts = |leaf: &Leaf| matches!(leaf.values, Values::Texts | Values::Bytes) && leaf.form == Form::List;
        let Some(leaf) = columns.file().leaf("tasks", is_texts) else {
            if columns.file().leaf("tasks", |_| true).is_some() {
                self.tell(|| format!("{path}, column tasks: it has no lists of texts"));
            }
            return Ok(Vec::new());
        };
        let rows = columns.file().rows;
        self.memory.reserve(rows * 24)?;
        let mut tasks = vec![Vec::new(); rows as usize];
        let memory = self.memory;
        let read = columns.lists(reader, leaf, 0..rows, &mut |row, values| {
            let Some(list) = tasks.get_mut(row as usize) else { return Ok(()) };
            for slot in values.slots {
                let text = match values.page.slot(slot) {
                    Slot::Value => Some(values.page.bytes(slot)),
                    Slot::Null => None,
                    _ => continue,
                };
                memory.reserve(text.map_or(0, <[u8]>::len) as u64 + 48)?;
                list.push(text.map(|text| String::from_utf8_lossy(text).into_owned()));
            }
            Ok(())
        });
        match read {
            Err(fault) if fault.error.is_damage() => {
                self.tell(|| format!("{path}, column tasks: {}", plain(&fault.error)));
                Ok(Vec::new())
            }
            done => done.map(|()| tasks),
        }
    }

    pub(super) fn task_table(
        &mut self,
        siblings: &dyn Siblings,
        reader: &ReadContext,
    ) -> Result<Vec<(i64, Box<str>)>, Fault> {
        const PATH: &str = "meta/tasks.parquet";
        let mut tasks = Vec::new();
        match self.read_tasks(siblings, reader, PATH, &mut tasks) {
            Err(fault) if fault.error.is_damage() => {
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
        let (columns, _room) = Columns::open(reader, source, path, MAIN - 1)?;
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
        (Err(error), None) => Err(error.into()),
        (Ok(()), None) => Ok(names),
    }
}
