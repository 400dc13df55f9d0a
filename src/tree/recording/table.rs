//! `messages.parquet`: the columns of a folder as a table.

use std::{ops::Range, sync::Arc};

use serde_json::Map;

use super::{
    Core, Decoder,
    batch::{self, NO_TEXT, SOUND, Slot},
    chunks::Message,
    columns::{self, Pick, What},
    totals::{UNDECODED_ROWS, place_of},
};
use crate::{
    format::{
        DType,
        messages::flat::{Element as Stored, Shape},
    },
    limits,
    source::Memory,
    tree::tables::{COLUMN_MEMORY, ColumnNames, LeftOut},
    view::{
        Fault, ReadContext, View,
        parquet::{Column, Element, Missed, Missing, Parquet, Strings, Table},
        pieces::Pieces,
    },
};

/// Columns of a table, and those that are left out.
pub(super) struct Columns {
    /// Name and field of each.
    fields: Vec<(String, usize)>,
    pub(super) left_out: Vec<LeftOut>,
    own: usize,
}

impl Columns {
    pub(super) fn count(&self) -> usize {
        self.own + self.fields.len()
    }
}

/// Returns why a field is left out; `None` if it can be a column.
fn left_out(shape: Shape) -> Option<String> {
    match shape {
        Shape::Ragged(_) => Some("rows of varying length".into()),
        Shape::Fixed(_, count) if u64::from(count) > limits::TABLE_LIST => {
            Some(format!("more than {} elements", limits::TABLE_LIST))
        }
        _ => None,
    }
}

impl Core {
    /// Returns the columns of a folder's table.
    pub(super) fn table_columns(&self, folder: u32) -> Columns {
        let mut names = ColumnNames::default();
        let own = self.own_columns();
        own.iter().for_each(|own| drop(names.name(own.as_bytes())));
        let mut columns = Columns { fields: Vec::new(), left_out: Vec::new(), own: own.len() };
        if self.decoder(folder).is_json() {
            columns.fields.push((names.name(b"message"), 0));
        }
        let Some(shown) = self.decoder(folder).schema() else { return columns };
        let mut behind = Vec::new();
        for (number, leaf) in shown.flat.leaves.iter().enumerate() {
            let left = |reason: String| LeftOut { column: leaf.name.clone(), reason };
            match (leaf.shape, left_out(leaf.shape)) {
                (Shape::None(reason), _) => columns.left_out.push(left(reason.into())),
                (_, Some(reason)) => behind.push(left(reason)),
                _ => columns.fields.push((names.name(leaf.name.as_bytes()), number)),
            }
        }
        columns.left_out.extend(behind);
        columns
    }

    fn own_columns(&self) -> &'static [&'static str] {
        match self.has_heads {
            true => &["log_time", "publish_time", "sequence"],
            false => &["log_time", "connection"],
        }
    }
}

/// Lays out the table of a folder.
pub(super) fn table(
    core: &Arc<Core>,
    reader: &ReadContext,
    folder: u32,
    memory: &dyn Memory,
) -> Result<Parquet, Fault> {
    let rows = core.messages(folder);
    // The sizes of pages depend on texts, and on the messages that do not decode.
    let totals = core.columns_totals(reader, folder)?;
    core.check_whole(reader, folder, &totals)?;
    let chosen = core.table_columns(folder);
    memory.reserve(COLUMN_MEMORY * chosen.count() as u64)?;
    let view = |what| columns::Column { core: core.clone(), folder, what }.view();
    let mut table = Vec::new();
    for name in core.own_columns() {
        let (element, what) = match *name {
            "log_time" => (Element::Nanos, What::Time),
            "publish_time" => (Element::Nanos, What::Kept(batch::PUBLISH_TIME, batch::NONE_FAILS)),
            "sequence" => (Element::Of(DType::U32), What::Kept(batch::SEQUENCE, batch::NONE_FAILS)),
            _ => (Element::Of(DType::U32), What::Source),
        };
        table.push(Column::fixed((*name).into(), element, None, view(what)));
    }
    let plan = core.plan(folder);
    let missed = Arc::new(Undecoded { core: core.clone(), folder });
    for (name, leaf) in chosen.fields {
        let texts = |is_text| {
            let texts = Arc::new(Texts { core: core.clone(), folder, leaf, is_text });
            Column::strings(name.clone(), texts, is_text, true)
        };
        let shape = core.decoder(folder).schema().and_then(|shown| shown.flat.leaves.get(leaf)).map(|leaf| leaf.shape);
        let (stored, slots) = match shape {
            Some(Shape::One(stored)) => (stored, None),
            Some(Shape::Fixed(stored, count)) => (stored, Some(u64::from(count))),
            Some(Shape::Bytes) => {
                table.push(texts(false));
                continue;
            }
            _ => {
                table.push(texts(true));
                continue;
            }
        };
        let element = match stored {
            Stored::Time(time) if !time.is_duration => Element::Nanos,
            Stored::Time(_) => Element::Of(DType::I64),
            Stored::Number(number) => Element::Of(number.dtype()),
        };
        let what = match plan.slot(leaf) {
            slot @ Slot::Values { .. } => What::Kept(slot, batch::NONE_FAILS),
            _ => What::Wide(leaf, shape.and_then(Shape::width).unwrap_or(0) as u64, true),
        };
        let column = Column::fixed(name, element, slots, view(what));
        table.push(match slots {
            None => column.with_missing(Missing::Marked(view(What::Missing))),
            Some(_) => column.with_missing_lists(missed.clone()),
        });
    }
    let table = Table { number: folder.into(), rows, unit: plan.marks, columns: table, about: Map::new() };
    Parquet::new(reader, table, memory)
}

/// Which messages do not decode.
#[derive(Debug)]
struct Undecoded {
    core: Arc<Core>,
    folder: u32,
}

impl Missed for Undecoded {
    fn count(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let core = &self.core;
        let totals = core.columns_totals(reader, self.folder)?;
        // Most groups begin at marks.
        let before = |row: u64| {
            let mark = row / totals.step.max(1);
            let mut sum = totals.at(mark, UNDECODED_ROWS);
            let start = mark.saturating_mul(totals.step);
            if start < row && totals.all(UNDECODED_ROWS) > 0 {
                let batch = core.batch(reader, self.folder, start)?;
                let skip = (start - batch.rows.start) as usize;
                let here = batch.states().iter().skip(skip).take((row - start) as usize);
                sum += here.filter(|state| **state != SOUND).count() as u64;
            } else if start < row && row == core.messages(self.folder) {
                sum = totals.all(UNDECODED_ROWS);
            }
            Ok::<u64, Fault>(sum)
        };
        Ok(before(rows.end)?.saturating_sub(before(rows.start)?))
    }

    fn view(&self) -> View {
        columns::Column { core: self.core.clone(), folder: self.folder, what: What::Missing }.view()
    }
}

/// A column of texts or byte strings.
#[derive(Debug)]
struct Texts {
    core: Arc<Core>,
    folder: u32,
    leaf: usize,
    is_text: bool,
}

impl Texts {
    /// Passes on the length of each text of some rows; `None` for a missing one.
    fn lengths(&self, reader: &ReadContext, rows: Range<u64>, each: &mut dyn FnMut(Option<u64>)) -> Result<(), Fault> {
        let plan = self.core.plan(self.folder);
        let mut row = rows.start;
        while row < rows.end {
            let batch = self.core.batch(reader, self.folder, row)?;
            let (from, end) = ((row - batch.rows.start) as usize, batch.rows.end.min(rows.end));
            let lengths = batch.lengths(plan.slot(self.leaf)).zip(batch.states());
            for (length, state) in lengths.skip(from).take((end - row) as usize) {
                each(Some(length).filter(|length| *state == SOUND && *length != NO_TEXT));
            }
            row = end.max(row + 1);
        }
        Ok(())
    }

    /// Returns the line of a message; `None` if it is not UTF-8.
    fn line(&self, reader: &ReadContext, bytes: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let mut line = Vec::new();
        if !self.core.write_line(reader, self.folder, bytes, &mut line)? {
            line = super::totals::NULL.to_vec();
        }
        Ok(std::str::from_utf8(&line).is_ok().then_some(line))
    }
}

impl Strings for Texts {
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let core = &self.core;
        let (totals, number) = match core.decoder(self.folder) {
            Decoder::Json => (core.lines_totals(reader, self.folder)?, 0),
            _ => (core.columns_totals(reader, self.folder)?, place_of(&core.plan(self.folder), self.leaf)),
        };
        // An upper bound: marks around the rows. Most groups begin at marks.
        let (start, end) = (rows.start / totals.step.max(1), rows.end.div_ceil(totals.step.max(1)));
        Ok(totals.at(end, number).saturating_sub(totals.at(start, number)))
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let mut pieces = Pieces { part: 0..out.len() as u64, out };
        if let Decoder::Json = self.core.decoder(self.folder) {
            let mut at = 0;
            return self.core.each_message(reader, self.folder, rows, |Message { placed, .. }| {
                let line = self.line(reader, placed?.1)?;
                if let Some(line) = &line {
                    pieces.take(at, line);
                    at += line.len() as u64;
                }
                each(line.map(|line| line.len() as u64));
                Ok(())
            });
        }
        let mut lengths = Vec::new();
        self.lengths(reader, rows.clone(), &mut |length| lengths.push(length))?;
        let (mut at, start) = (0, rows.start);
        self.core.each_message(reader, self.folder, rows, |Message { row, placed }| {
            let length = lengths.get((row - start) as usize).copied().flatten();
            if let Some(length) = length.filter(|length| *length > 0) {
                let mut pick = Pick { leaf: self.leaf, at, pieces: &mut pieces };
                self.core.pick(reader, self.folder, placed?.1, &mut pick)?;
                at += length;
            }
            each(length);
            Ok(())
        })?;
        let _ = self.is_text;
        Ok(())
    }
}
