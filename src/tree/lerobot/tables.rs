//! `episodes.parquet` and `steps.parquet` of a data set (`docs/formats/lerobot.md` 11). Their sizes follow from the
//! metadata; no row file is opened for them.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Weak},
};

use serde_json::Map;

use super::{LEROBOT, Lerobot};
use crate::{
    format::{DType, lerobot::Kind},
    limits,
    source::Memory,
    tree::tables::{ColumnNames, Described, LeftOut, described_tables, slots},
    view::{
        Fault, ReadContext, Rendered, View,
        parquet::{Bounds, Column, Element, Parquet, Strings, Table},
        pieces::Pieces,
    },
};

/// The tables' names in the root.
pub(super) const EPISODES: &str = "episodes.parquet";
pub(super) const STEPS: &str = "steps.parquet";

/// Rows that are stored as one unit.
const UNIT: u64 = 1;

/// Bytes of memory that a column takes.
const COLUMN: u64 = 1024;

/// The data set, as long as it is open.
type Owner = Weak<Lerobot>;

fn owner(owner: &Owner) -> Result<Arc<Lerobot>, Fault> {
    owner.upgrade().ok_or_else(|| Fault::from(crate::source::SourceError::Changed))
}

/// Passes on the parts of an episode's text. Passes on nothing if the text is missing.
type Text = fn(&Lerobot, u64, &mut dyn FnMut(&str));

/// A text of each episode.
struct Texts {
    owner: Owner,
    text: Text,
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text of each episode")
    }
}

impl Strings for Texts {
    fn size(&self, _: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let (owner, mut size) = (owner(&self.owner)?, 0);
        rows.for_each(|row| (self.text)(&owner, row, &mut |part| size += part.len() as u64));
        Ok(size)
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        reader.may_work()?;
        let (owner, mut at) = (owner(&self.owner)?, 0);
        for row in rows {
            let (start, mut is_there) = (at, false);
            (self.text)(&owner, row, &mut |part| {
                is_there = true;
                if let Some(out) = out.get_mut(at..at + part.len()) {
                    out.copy_from_slice(part.as_bytes());
                }
                at += part.len();
            });
            each(is_there.then_some((at - start) as u64));
        }
        Ok(())
    }
}

/// A number for each episode; or, for each step, its number or that of its episode.
struct Counts {
    owner: Owner,
    of: Count,
    /// The first step of each episode, and the end of the last; empty for the table of episodes.
    starts: Arc<[u64]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    Index,
    Length,
    Step,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt(f)
    }
}

/// Returns the episode of a step.
fn episode_of(starts: &[u64], step: u64) -> u64 {
    starts.partition_point(|start| *start <= step).saturating_sub(1) as u64
}

fn start_of(starts: &[u64], episode: u64) -> u64 {
    starts.get(episode as usize).copied().unwrap_or(0)
}

impl Counts {
    fn value(&self, owner: &Lerobot, row: u64) -> u64 {
        let episode = if self.starts.is_empty() { row } else { episode_of(&self.starts, row) };
        let found = owner.episodes.get(episode);
        match self.of {
            Count::Index => found.map_or(0, |episode| episode.index),
            Count::Length => found.map_or(0, |episode| episode.length),
            Count::Step => row - start_of(&self.starts, episode),
        }
    }
}

impl Rendered for Counts {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(part.end - part.start <= limits::QUICK)?;
        let owner = owner(&self.owner)?;
        let mut pieces = Pieces { part, out };
        for row in pieces.part.start / 8..pieces.part.end.div_ceil(8) {
            pieces.take(8 * row, &self.value(&owner, row).to_le_bytes());
        }
        Ok(())
    }
}

/// Episodes are in the order of their indices, so the first and the last row have the bounds.
impl Bounds for Counts {
    fn bounds(&self, rows: Range<u64>) -> [i64; 2] {
        let Ok(owner) = owner(&self.owner) else { return [i64::MIN, i64::MAX] };
        [rows.start, rows.end.saturating_sub(1)].map(|row| i64::try_from(self.value(&owner, row)).unwrap_or(i64::MAX))
    }
}

/// The numbers of a feature in all episodes, in order.
struct Steps {
    owner: Owner,
    feature: usize,
    /// Bytes of a step.
    width: u64,
    starts: Arc<[u64]>,
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "feature {} of all episodes", self.feature)
    }
}

impl Rendered for Steps {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.may_work()?;
        let owner = owner(&self.owner)?;
        let (mut at, mut rest) = (part.start, out);
        while at < part.end {
            crate::wanted::check().map_err(crate::source::SourceError::from)?;
            let episode = episode_of(&self.starts, at / self.width);
            let start = start_of(&self.starts, episode) * self.width;
            let end = (start_of(&self.starts, episode + 1) * self.width).min(part.end);
            if end <= at {
                return Err(Fault::refused("there are no such steps"));
            }
            let (here, after) = rest.split_at_mut((end - at) as usize);
            let numbers = owner.numbers_for_table(reader, episode, self.feature)?;
            numbers.fill(reader, at - start..end - start, here)?;
            (at, rest) = (end, after);
        }
        Ok(())
    }
}

/// The columns of features in `steps.parquet`, and those that are left out.
struct Columns {
    /// Feature, name, type, and values of a step if it is a list.
    shown: Vec<(usize, String, DType, Option<u64>)>,
    left_out: Vec<LeftOut>,
    /// Names of the first two columns.
    front: [String; 2],
}

impl Lerobot {
    /// Returns whether there is a table of all steps. There is none for too many episodes.
    pub(super) fn has_steps_table(&self) -> bool {
        self.episodes.all.len() as u64 <= limits::TABLE_EPISODES
    }

    /// Returns the columns of `steps.parquet`. If names collide, features keep theirs.
    fn columns_of_steps(&self) -> Columns {
        let (mut names, mut shown, mut left_out) = (ColumnNames::default(), Vec::new(), Vec::new());
        for (number, feature) in self.info.features.iter().enumerate() {
            let column = || feature.name.clone();
            let reason = match feature.kind {
                Kind::Numbers(dtype) if self.shown.left_out(number).is_none() => {
                    let shape = if feature.is_scalar() { &[] } else { feature.shape.as_slice() };
                    match slots(dtype, &[&[self.episodes.steps()], shape].concat()) {
                        Ok(_) if shown.len() + 2 >= limits::TABLE_COLUMNS => "there are too many columns".into(),
                        Ok(slots) => {
                            shown.push((number, names.name(feature.name.as_bytes()), dtype, slots));
                            continue;
                        }
                        Err(reason) => reason,
                    }
                }
                Kind::Numbers(_) | Kind::Other => continue,
                Kind::Text => "its values are texts".into(),
                Kind::Image | Kind::Video => "its values are pictures".into(),
            };
            left_out.push(LeftOut { column: column(), reason });
        }
        let front = ["episode", "step"].map(|name| names.name(name.as_bytes()));
        Columns { shown, left_out, front }
    }

    /// Returns the description of the tables in `container.json`.
    pub(super) fn described_tables(&self) -> Map<String, serde_json::Value> {
        let table = |path: &str, rows, columns, left_out| Described {
            path: path.into(),
            rows: Some(rows),
            columns: Some(columns),
            left_out,
            left_out_behind: 0,
        };
        let mut tables = vec![table(EPISODES, self.episodes.all.len() as u64, 5, Vec::new())];
        if self.has_steps_table() {
            let Columns { shown, left_out, .. } = self.columns_of_steps();
            tables.push(table(STEPS, self.episodes.steps(), shown.len() + 2, left_out));
        }
        described_tables(tables)
    }

    fn count(&self, name: &str, of: Count, starts: &Arc<[u64]>, rows: u64) -> Column {
        let counts = || Counts { owner: self.own.clone(), of, starts: starts.clone() };
        let data = View::default().with_rendered(8 * rows, counts());
        let column = Column::fixed(name.into(), Element::Of(DType::I64), None, data);
        if of == Count::Index { column.with_bounds(Arc::new(counts())) } else { column }
    }

    /// Returns `episodes.parquet`.
    pub(super) fn episodes_table(&self, reader: &ReadContext, memory: &dyn Memory) -> Result<Parquet, Fault> {
        let (rows, none) = (self.episodes.all.len() as u64, Arc::from([]));
        let text = |name: &str, text| {
            let texts = Texts { owner: self.own.clone(), text };
            Column::strings(name.into(), Arc::new(texts), true, true)
        };
        let fps = View::default().with_rendered(8 * rows, Rate(self.info.rate()));
        let columns = vec![
            self.count("episode", Count::Index, &none, rows),
            text("task", |owner, row, each| {
                let Some(episode) = owner.episodes.get(row) else { return };
                for (number, task) in owner.episodes.tasks_of(episode).flatten().enumerate() {
                    if number > 0 {
                        each("\n");
                    }
                    each(task);
                }
            }),
            text("embodiment", |owner, _, each| owner.info.robot.iter().for_each(|robot| each(robot))),
            Column::fixed("fps".into(), Element::Of(DType::F64), None, fps),
            self.count("num_frames", Count::Length, &none, rows),
        ];
        memory.reserve(COLUMN * columns.len() as u64)?;
        Parquet::new(reader, Table { number: 0, rows, unit: UNIT, columns, about: self.about() }, memory)
    }

    /// Returns `steps.parquet`.
    pub(super) fn steps_table(&self, reader: &ReadContext, memory: &dyn Memory) -> Result<Parquet, Fault> {
        let Columns { shown, front, .. } = self.columns_of_steps();
        memory.reserve(16 * (self.episodes.all.len() as u64 + 1) + COLUMN * (shown.len() as u64 + 2))?;
        let mut at = 0;
        let before = self.episodes.all.iter().map(|episode| {
            let start = at;
            at += episode.length;
            start
        });
        let mut starts: Vec<u64> = before.collect();
        starts.push(at);
        let (rows, starts): (_, Arc<[u64]>) = (at, starts.into());
        let [episode, step] = front;
        let mut columns =
            vec![self.count(&episode, Count::Index, &starts, rows), self.count(&step, Count::Step, &starts, rows)];
        for (feature, name, dtype, slots) in shown {
            let width = dtype.size() * slots.unwrap_or(1);
            let steps = Steps { owner: self.own.clone(), feature, width, starts: starts.clone() };
            let data = View::default().with_rendered(rows * width, steps);
            let column = Column::fixed(name, Element::Of(dtype), slots, data);
            let shape = self.info.features.get(feature).map(|feature| feature.shape.as_slice()).unwrap_or_default();
            columns.push(if shape.len() > 1 { column.with_about("shape", shape) } else { column });
        }
        Parquet::new(reader, Table { number: 1, rows, unit: UNIT, columns, about: self.about() }, memory)
    }

    fn about(&self) -> Map<String, serde_json::Value> {
        let mut about = Map::new();
        about.insert("format".into(), LEROBOT.name.into());
        about.insert("version".into(), self.info.version.name().into());
        about
    }
}

/// The same number in every row.
#[derive(Debug)]
struct Rate(f64);

impl Rendered for Rate {
    fn fill(&self, _: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.0.to_le_bytes();
        for (at, out) in part.zip(out) {
            *out = bytes[(at % 8) as usize];
        }
        Ok(())
    }
}
