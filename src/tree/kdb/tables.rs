//! `episodes.parquet` and `steps.parquet` of a KDB file: one row per episode, and one row per step of all episodes
//! (`docs/TREE.md`, section 7).
//!
//! Sizes follow from the index alone, which bounds the length of an episode's texts. A text that is not UTF-8 gets
//! longer when it is converted; if it then has no room, it is null.

use std::{ops::Range, sync::Arc};

use parking_lot::Mutex;
use serde_json::Map;

use super::{KDB, Kdb, fault};
use crate::{
    cache::BlockError,
    format::{
        DType,
        kdb::{ENTRY, Episode, Header, LONGEST_TEXT, META_FRONT, Meta, PartError},
    },
    limits,
    source::{Memory, Source, SourceError, check_room},
    tree::tables::{Described, LeftOut, described_tables},
    view::{
        Fault, ReadContext, Rendered, Strided, View,
        parquet::{Bounds, Column, Element, Missing, Parquet, Strings, Table},
        pieces::Pieces,
    },
};

/// The tables' names in the root.
pub(super) const EPISODES: &str = "episodes.parquet";
pub(super) const STEPS: &str = "steps.parquet";

/// Index entries that are read together.
const TOGETHER: u64 = 1024;

/// Rows per unit in the episodes' table: each is a record of its own.
const UNIT: u64 = 1;

/// The steps of all episodes, and which episode each belongs to.
#[derive(Debug)]
pub(super) struct Steps {
    header: Header,
    /// Number of steps before each episode, and in all. An episode with damaged rows has none.
    starts: Vec<u64>,
    /// Numbers in a state, and in an action, if all episodes with steps have the same; otherwise `None`.
    state: Option<u16>,
    action: Option<u16>,
}

/// The steps of a file, once they are known.
pub(super) type KnownSteps = Mutex<Option<Arc<Steps>>>;

/// Goes through the index.
fn each_episode(
    header: &Header,
    source: &dyn Source,
    rows: Range<u64>,
    mut each: impl FnMut(Episode),
) -> Result<(), Fault> {
    for first in rows.clone().step_by(TOGETHER as usize) {
        let count = TOGETHER.min(rows.end - first);
        header.episodes_from(source, first, count)?.into_iter().for_each(&mut each);
    }
    Ok(())
}

/// Goes through the index, with the metadata of each episode. These are fetched together.
fn each_meta(
    header: &Header,
    source: &dyn Source,
    rows: Range<u64>,
    mut each: impl FnMut(&Episode, Option<Meta>),
) -> Result<(), Fault> {
    for first in rows.clone().step_by(TOGETHER as usize) {
        let episodes = header.episodes_from(source, first, TOGETHER.min(rows.end - first))?;
        let soon: Vec<_> = episodes.iter().filter_map(|episode| episode.meta.range(source).ok()).collect();
        source.prefetch(&soon);
        for episode in episodes {
            each(&episode, meta_of(source, &episode)?);
        }
    }
    Ok(())
}

/// Returns an episode's metadata; `None` if they are damaged, so that there is no `meta.json` either.
fn meta_of(source: &dyn Source, episode: &Episode) -> Result<Option<Meta>, Fault> {
    match episode.read_meta(source) {
        Ok(meta) => Ok(Some(meta)),
        Err(PartError::Damaged(_)) => Ok(None),
        Err(PartError::Source(error)) => Err(fault(episode.meta.offset, error.into())),
    }
}

/// Returns the longest that a text of an episode can be, by its index entry; 0 if its metadata are not in the file.
fn longest_text(episode: &Episode, source: &dyn Source) -> u64 {
    match episode.meta.range(source) {
        Ok(_) => LONGEST_TEXT.min(episode.meta.length.saturating_sub(META_FRONT)),
        Err(_) => 0,
    }
}

/// A text of each episode.
#[derive(Debug)]
struct Texts {
    header: Header,
    text: fn(Meta) -> String,
}

impl Strings for Texts {
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let source = &*reader.source;
        let mut size = 0u64;
        each_episode(&self.header, source, rows, |episode| {
            size = size.saturating_add(longest_text(&episode, source));
        })?;
        // The metadata of episodes do not share bytes.
        if size > source.len() {
            let reason = format!("metadata of {size} bytes do not fit the file of {}", source.len());
            return Err(fault(self.header.index_offset, BlockError::Refused(reason)));
        }
        Ok(size)
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let source = &*reader.source;
        let mut at = 0;
        each_meta(&self.header, source, rows, |episode, meta| {
            let text = meta.map(self.text).filter(|text| text.len() as u64 <= longest_text(episode, source));
            let Some(text) = text else { return each(None) };
            // All texts together fit.
            let end = at + text.len();
            if let Some(out) = out.get_mut(at..end) {
                out.copy_from_slice(text.as_bytes());
            }
            at = end;
            each(Some(text.len() as u64));
        })
    }
}

/// A number of each episode's metadata.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    header: Header,
    width: u64,
    /// Returns the number, little-endian; called with `None` for damaged metadata.
    number: fn(Option<Meta>) -> [u8; 4],
}

impl Numbers {
    fn view(self) -> View {
        View::default().with_rendered(self.header.episodes() * self.width, self)
    }
}

impl Rendered for Numbers {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        // Each episode needs a read of the file.
        reader.may_work()?;
        let source = &*reader.source;
        let rows = part.start / self.width..part.end.div_ceil(self.width);
        each_meta(&self.header, source, rows, |episode, meta| {
            let start = episode.position * self.width;
            for (at, byte) in (start..start + self.width).zip((self.number)(meta)) {
                if part.contains(&at) {
                    out[(at - part.start) as usize] = byte;
                }
            }
        })
    }
}

/// A field of all steps, episode after episode.
#[derive(Debug)]
struct Field {
    steps: Arc<Steps>,
    width: u64,
    /// Returns the offset of the field in a row of the given size.
    at: fn(&Episode, u64) -> u64,
}

impl Rendered for Field {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.may_work()?;
        let (mut at, mut rest, mut fields) = (part.start, out, Vec::new());
        while at < part.end {
            let position = self.steps.episode_of(at / self.width);
            let (start, end) = (self.steps.starts[position] * self.width, self.steps.starts[position + 1] * self.width);
            let episode = self.steps.header.episode(&*reader.source, position as u64)?;
            let place = |episode: &Episode| {
                let rows = episode.locate_rows(&*reader.source).ok()?;
                Some(Strided {
                    start: rows.start + (self.at)(episode, rows.stride),
                    stride: rows.stride,
                    width: self.width,
                    swap: 1,
                })
            };
            let Some(field) = episode.as_ref().and_then(place) else {
                let reason = format!("the rows of episode {position} are not there");
                return Err(fault(self.steps.header.index_offset, BlockError::Refused(reason)));
            };
            let end = end.min(part.end);
            let (here, after) = rest.split_at_mut((end - at) as usize);
            fields.push((field, at - start..end - start, here));
            (at, rest) = (end, after);
        }
        let soon: Vec<_> = fields.iter().map(|(field, part, _)| field.rows(part)).collect();
        reader.source.prefetch(&soon);
        fields.into_iter().try_for_each(|(field, part, out)| field.fill(reader, part, out))
    }
}

/// The time of each step in seconds from the start of its episode: its number divided by the episode's rate, if that is
/// known.
#[derive(Debug)]
struct Time {
    steps: Arc<Steps>,
    /// Whether it shows which times are known, a byte per step, instead of the times.
    is_mark: bool,
}

impl Time {
    fn view(steps: &Arc<Steps>, is_mark: bool) -> View {
        let width = if is_mark { 1 } else { 8 };
        View::default().with_rendered(steps.steps() * width, Self { steps: steps.clone(), is_mark })
    }
}

impl Rendered for Time {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.may_work()?;
        let source = &*reader.source;
        let width = if self.is_mark { 1 } else { 8 };
        let mut pieces = Pieces { part, out };
        let rows = pieces.part.start / width..pieces.part.end.div_ceil(width);
        let mut row = rows.start;
        while row < rows.end {
            let position = self.steps.episode_of(row);
            let (first, end) = (self.steps.starts[position], self.steps.starts[position + 1].min(rows.end));
            let episode = self.steps.header.episode(source, position as u64)?;
            let meta = episode.map(|episode| meta_of(source, &episode)).transpose()?.flatten();
            let rate = meta.map(|meta| f64::from(meta.fps)).filter(|rate| rate.is_finite() && *rate > 0.0);
            for row in row..end {
                match self.is_mark {
                    true => pieces.take(row, &[u8::from(rate.is_none())]),
                    false => pieces.take(8 * row, &rate.map_or(0.0, |rate| (row - first) as f64 / rate).to_le_bytes()),
                }
            }
            row = end;
        }
        Ok(())
    }
}

/// A number for each step: that of its episode, or its own within the episode.
#[derive(Debug)]
struct Count {
    steps: Arc<Steps>,
    is_episode: bool,
}

impl Count {
    fn of(&self, row: u64) -> u64 {
        let episode = self.steps.episode_of(row);
        if self.is_episode { episode as u64 } else { row - self.steps.starts[episode] }
    }
}

impl Rendered for Count {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(part.end - part.start <= limits::QUICK)?;
        let mut at = part.start;
        while at < part.end {
            let (row, skip) = (at / 8, (at % 8) as usize);
            let bytes = self.of(row).to_le_bytes();
            let count = (8 - skip).min((part.end - at) as usize);
            let from = (at - part.start) as usize;
            out[from..from + count].copy_from_slice(&bytes[skip..skip + count]);
            at += count as u64;
        }
        Ok(())
    }
}

impl Bounds for Count {
    fn bounds(&self, rows: Range<u64>) -> [i64; 2] {
        let (first, last) = (self.of(rows.start), self.of(rows.end - 1));
        let [from, to] = [rows.start, rows.end - 1].map(|row| self.steps.episode_of(row));
        if self.is_episode || from == to {
            return [first as i64, last as i64];
        }
        // An episode that begins here has its first step here; the longest that ends here has the largest number.
        let starts = &self.steps.starts;
        let ends = (from..to).map(|episode| starts[episode + 1] - starts[episode]).filter(|steps| *steps > 0);
        [0, ends.map(|steps| steps - 1).chain([last]).max().unwrap_or(0) as i64]
    }
}

impl Steps {
    fn of(header: Header, source: &dyn Source) -> Result<Self, Fault> {
        let episodes = header.episodes();
        check_room(episodes, size_of::<u64>()).map_err(SourceError::from)?;
        let mut starts = Vec::with_capacity(episodes as usize + 1);
        starts.push(0u64);
        let (mut at, mut dims) = (0u64, [None::<Option<u16>>; 2]);
        each_episode(&header, source, 0..episodes, |episode| {
            let steps = if episode.locate_rows(source).is_ok() { u64::from(episode.num_frames) } else { 0 };
            if steps > 0 {
                for (known, dim) in dims.iter_mut().zip([episode.state_dim, episode.action_dim]) {
                    *known = match known {
                        None => Some(Some(dim)),
                        Some(known) => Some(known.filter(|known| *known == dim)),
                    };
                }
            }
            at = at.saturating_add(steps);
            starts.push(at);
        })?;
        let [state, action] = dims.map(|dim| dim.unwrap_or(Some(0)));
        Ok(Self { header, starts, state, action })
    }

    fn steps(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the episode of an existing step.
    fn episode_of(&self, step: u64) -> usize {
        self.starts.partition_point(|start| *start <= step).saturating_sub(1).min(self.starts.len().saturating_sub(2))
    }

    pub(super) fn memory_usage(&self) -> usize {
        size_of_val(&*self.starts)
    }
}

impl Kdb {
    /// Returns the steps of all episodes, from one pass over the index.
    fn steps(&self, reader: &ReadContext) -> Result<Arc<Steps>, Fault> {
        if let Some(known) = &*self.steps.lock() {
            return Ok(known.clone());
        }
        let made = Arc::new(Steps::of(self.header, &*reader.source)?);
        Ok(self.steps.lock().get_or_insert(made).clone())
    }

    /// Returns whether there are tables. Their contents need the whole index, which can have any size.
    pub(super) fn has_tables(&self) -> bool {
        self.header.episodes() <= limits::TABLE_EPISODES
    }

    /// Returns the description of the tables in `container.json`. For many episodes it leaves out the number of steps,
    /// which needs the whole index.
    pub(super) fn described_tables(&self, reader: &ReadContext) -> Result<Map<String, serde_json::Value>, Fault> {
        let episodes = self.header.episodes();
        if !self.has_tables() {
            let reason = format!("there are more than {} episodes", limits::TABLE_EPISODES);
            return Ok(Map::from_iter([("tables_left_out".into(), reason.into())]));
        }
        let table = |path: &str, rows, columns, left_out| Described {
            path: path.into(),
            rows,
            columns,
            left_out,
            left_out_behind: 0,
        };
        let mut tables = vec![table(EPISODES, Some(episodes), Some(10), Vec::new())];
        if episodes > limits::TABLE_EPISODES_DESCRIBED {
            tables.push(table(STEPS, None, None, Vec::new()));
        } else {
            let steps = self.steps(reader)?;
            let dims = [("state", steps.state), ("action", steps.action)];
            let left_out = dims.iter().filter_map(|(column, dim)| {
                let reason = match dim {
                    None => "episodes have different numbers of values".into(),
                    Some(0) => "its rows are empty".into(),
                    Some(dim) if u64::from(*dim) > limits::TABLE_LIST => {
                        format!("its rows have more than {} elements", limits::TABLE_LIST)
                    }
                    Some(_) => return None,
                };
                Some(LeftOut { column: (*column).into(), reason })
            });
            let left_out: Vec<LeftOut> = left_out.collect();
            tables.push(table(STEPS, Some(steps.steps()), Some(7 - left_out.len()), left_out));
        }
        Ok(described_tables(tables))
    }

    /// `episodes.parquet`.
    pub(super) fn episodes_table(&self, reader: &ReadContext, memory: &dyn Memory) -> Result<Parquet, Fault> {
        let header = self.header;
        let index = View::stored(header.index_offset..header.index_offset + header.index_length);
        let field = |name: &str, dtype, at| Column::field(name.into(), Element::Of(dtype), index.clone(), at, ENTRY);
        let text = |name: &str, text| Column::strings(name.into(), Arc::new(Texts { header, text }), true, true);
        let number = |name: &str, dtype, number: fn(Option<Meta>) -> [u8; 4]| {
            let width = if dtype == DType::Bool { 1 } else { 4 };
            Column::fixed(name.into(), Element::Of(dtype), None, Numbers { header, width, number }.view())
        };
        let missing = |number| Missing::Marked(Numbers { header, width: 1, number }.view());
        let columns = vec![
            Column::row_numbers("episode", DType::I64, header.episodes()),
            field("episode_id", DType::U64, 0),
            text("task", |meta| meta.task),
            text("embodiment", |meta| meta.embodiment),
            number("fps", DType::F32, |meta| meta.map_or(0.0, |meta| meta.fps).to_le_bytes())
                .with_missing(missing(|meta| [u8::from(meta.is_none()), 0, 0, 0])),
            number("success", DType::Bool, |meta| [meta.and_then(|meta| meta.success).map_or(2, u8::from), 0, 0, 0])
                .with_missing(Missing::Two),
            number("total_reward", DType::F32, |meta| {
                meta.and_then(|meta| meta.total_reward).unwrap_or(0.0).to_le_bytes()
            })
            .with_missing(missing(|meta| [u8::from(meta.and_then(|meta| meta.total_reward).is_none()), 0, 0, 0])),
            field("num_frames", DType::U32, 8),
            field("state_dim", DType::U16, 14),
            field("action_dim", DType::U16, 12),
        ];
        let rows = header.episodes();
        Parquet::new(reader, Table { number: 0, rows, unit: UNIT, columns, about: self.about() }, memory)
    }

    /// `steps.parquet`.
    pub(super) fn steps_table(&self, reader: &ReadContext, memory: &dyn Memory) -> Result<Parquet, Fault> {
        memory.reserve(8 * (self.header.episodes() + 1))?;
        let steps = self.steps(reader)?;
        let rows = steps.steps();
        let count = |name: &str, is_episode| {
            let count = || Count { steps: steps.clone(), is_episode };
            let data = View::default().with_rendered(rows * 8, count());
            Column::fixed(name.into(), Element::Of(DType::I64), None, data).with_bounds(Arc::new(count()))
        };
        let field = |name: &str, dtype: DType, slots: Option<u64>, at| {
            let width = dtype.size() * slots.unwrap_or(1);
            let data = View::default().with_rendered(rows * width, Field { steps: steps.clone(), width, at });
            Column::fixed(name.into(), Element::Of(dtype), slots, data)
        };
        let dim = |dim: Option<u16>| dim.map(u64::from).filter(|dim| (1..=limits::TABLE_LIST).contains(dim));
        let time = Column::fixed("time".into(), Element::Of(DType::F64), None, Time::view(&steps, false))
            .with_missing(Missing::Marked(Time::view(&steps, true)))
            .with_about("units", "s");
        let mut columns = vec![count("episode", true), count("step", false), time];
        if let Some(state) = dim(steps.state) {
            columns.push(field("state", DType::F32, Some(state), |_, _| 0));
        }
        if let Some(action) = dim(steps.action) {
            columns.push(field("action", DType::F32, Some(action), |episode, _| 4 * u64::from(episode.state_dim)));
        }
        columns.push(field("reward", DType::F32, None, |_, stride| stride - 5));
        columns.push(field("is_terminal", DType::Bool, None, |_, stride| stride - 1));
        Parquet::new(reader, Table { number: 1, rows, unit: UNIT, columns, about: self.about() }, memory)
    }

    fn about(&self) -> Map<String, serde_json::Value> {
        let mut about = Map::new();
        about.insert("format".into(), KDB.name.into());
        let (major, minor) = self.header.version;
        about.insert("version".into(), format!("{major}.{minor}").into());
        about
    }
}
