//! `steps.parquet`: the arrays of an episode whose first axis is time, one row per step (`docs/TREE.md`, section 7).

use std::{collections::HashMap, ops::Range};

use serde_json::Map;

use super::{Blocks, File, Pictures, WSHARD};
use crate::{
    format::{DType, wshard::Value},
    limits,
    source::Memory,
    tree::{
        names::NAME_MAX,
        tables::{COLUMN_MEMORY, ColumnNames, Described, LeftOut, array_column, slots},
    },
    view::{
        Fault, ReadContext, Rendered, View,
        parquet::{Column, Element, Parquet, Table},
        pieces::Pieces,
    },
};

/// The stored name of the table.
pub(super) const NAME: &[u8] = b"steps";

/// Prefix of channel names, which columns drop.
const SIGNAL: &[u8] = b"signal/";

/// The steps of an episode.
#[derive(Debug)]
pub(super) struct Steps {
    steps: u64,
    /// Steps per second.
    rate: Option<f64>,
    columns: Vec<File>,
    left_out: Vec<LeftOut>,
    left_out_behind: u64,
}

impl Steps {
    /// Returns the steps of a file; `None` if it is no episode, or has no array with as many steps.
    pub(super) fn of(blocks: &Blocks) -> Option<Self> {
        let entries = blocks.shard.entries.iter().zip(0..).filter(|(entry, _)| entry.visible);
        let own = entries.filter_map(|(entry, i)| {
            let is_array = entry.residual.is_some() || matches!(entry.value, Value::Array { .. });
            let file = if entry.residual.is_some() { File::Signs(i) } else { File::Value(i) };
            is_array.then_some((file, &*entry.name, Pictures::of_entry(i, entry).is_some()))
        });
        let joined =
            blocks.joined.iter().zip(0..).map(|((array, _), i)| (File::Joined(i), &*array.name, array.pictures));
        let joined = joined.map(|(file, name, pictures)| (file, name, pictures && is_picture(blocks, file, name)));
        let candidates: Vec<_> = own.chain(joined).collect();
        let steps = match blocks.shard.header.role {
            EPISODE => blocks.shard.episode.steps?,
            // A joined episode has as many steps as most of its arrays.
            _ if !blocks.joined.is_empty() => {
                let mut counts = HashMap::<u64, usize>::new();
                for steps in blocks.joined.iter().filter_map(|(array, _)| array.shape.first()) {
                    *counts.entry(*steps).or_default() += 1;
                }
                counts.into_iter().max_by_key(|&(steps, count)| (count, steps))?.0
            }
            _ => return None,
        };
        let rate = blocks.shard.episode.rate_hz.filter(|rate| rate.is_finite() && *rate > 0.0);
        let mut this = Self { steps, rate, columns: Vec::new(), left_out: Vec::new(), left_out_behind: 0 };
        for (file, name, is_picture) in candidates {
            let Some(array) = super::array_type(blocks, file) else { continue };
            if array.1.first() != Some(&steps) {
                continue;
            }
            let reason = match slots(array.0, &array.1) {
                _ if is_picture => Some("its steps are pictures".into()),
                _ if blocks.unserved(file).is_some() => Some("its block can't be read".into()),
                Err(reason) => Some(reason),
                Ok(_) => None,
            };
            match reason {
                Some(reason) => {
                    this.left_out.push(LeftOut { column: String::from_utf8_lossy(name).into_owned(), reason });
                }
                // Two columns are the number and the time of the step.
                None if this.columns.len() + 2 < limits::TABLE_COLUMNS => this.columns.push(file),
                None => this.left_out_behind += 1,
            }
        }
        (!this.columns.is_empty()).then_some(this)
    }

    /// Returns the description in `container.json`.
    pub(super) fn described(&self, path: String) -> Described {
        Described {
            path,
            rows: Some(self.steps),
            columns: Some(self.columns.len() + 1 + usize::from(self.rate.is_some())),
            left_out: self.left_out.clone(),
            left_out_behind: self.left_out_behind,
        }
    }
}

/// The time of each step in seconds from the first: its number divided by the rate.
#[derive(Debug)]
struct Time {
    rate: f64,
}

impl Rendered for Time {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(part.end - part.start <= limits::QUICK)?;
        let mut pieces = Pieces { part, out };
        for step in pieces.part.start / 8..pieces.part.end.div_ceil(8) {
            pieces.take(8 * step, &(step as f64 / self.rate).to_le_bytes());
        }
        Ok(())
    }
}

/// The role of an episode (`docs/formats/wshard.md` 2).
const EPISODE: u8 = 5;

fn is_picture(blocks: &Blocks, file: File, name: &[u8]) -> bool {
    let (File::Joined(i), Some((dtype, shape))) = (file, super::array_type(blocks, file)) else { return false };
    Pictures::of_joined(i, name, dtype, &shape).is_some()
}

impl Blocks {
    /// Returns the stored name of an array.
    fn stored_name(&self, file: File) -> &[u8] {
        match file {
            File::Joined(i) => self.joined.get(i as usize).map_or(b"", |(array, _)| &array.name),
            File::Value(i) | File::Bytes(i) | File::Signs(i) => {
                self.shard.entries.get(i as usize).map_or(b"", |entry| &entry.name)
            }
            File::Schema => b"",
        }
    }

    /// Returns the unit of an array's values, if its channel states one.
    fn unit(&self, file: File) -> Option<&str> {
        match file {
            File::Joined(i) => self.joined.get(i as usize)?.0.unit.as_deref(),
            File::Value(i) => self.shard.entries.get(i as usize)?.unit(),
            File::Bytes(_) | File::Signs(_) | File::Schema => None,
        }
    }

    /// Lays out the table of steps.
    pub(super) fn lay_out(&self, reader: &ReadContext, steps: &Steps, memory: &dyn Memory) -> Result<Parquet, Fault> {
        memory.reserve(COLUMN_MEMORY * (steps.columns.len() as u64 + 2))?;
        // Without the prefix of the channel's name, if no other column has the rest as its name.
        let short = |file| {
            let name = self.stored_name(file);
            name.strip_prefix(SIGNAL).unwrap_or(name)
        };
        let mut uses = HashMap::<&[u8], u32>::new();
        steps.columns.iter().for_each(|&file| *uses.entry(short(file)).or_default() += 1);
        let mut names = ColumnNames::default();
        let mut columns = Vec::with_capacity(steps.columns.len() + 1);
        for &file in &steps.columns {
            let short = short(file);
            let stored = if uses.get(short) == Some(&1) { short } else { self.stored_name(file) };
            let Some(column) =
                super::Content::array(self, file).and_then(|array| array_column(&names.name(stored), &array).ok())
            else {
                continue;
            };
            let column = self.unit(file).into_iter().fold(column, |column, unit| column.with_about("units", unit));
            // Names may share their bytes in the file, so long ones would take more memory than it has bytes.
            let stored = Some(self.stored_name(file)).filter(|stored| stored.len() <= NAME_MAX);
            columns.push(
                stored
                    .into_iter()
                    .fold(column, |column, stored| column.with_about("block", String::from_utf8_lossy(stored))),
            );
        }
        columns.insert(0, Column::row_numbers(&names.name(b"step"), DType::I64, steps.steps));
        if let Some(rate) = steps.rate {
            let data = View::default().with_rendered(steps.steps.saturating_mul(8), Time { rate });
            let time = Column::fixed(names.name(b"time"), Element::Of(DType::F64), None, data);
            columns.insert(1, time.with_about("units", "s"));
        }
        let mut about = Map::new();
        about.insert("format".into(), WSHARD.name.into());
        about.insert("version".into(), "2".into());
        Parquet::new(reader, Table { number: 0, rows: steps.steps, unit: 1, columns, about }, memory)
    }
}
