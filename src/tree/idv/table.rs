//! `table.parquet` of an IDV file: its visible columns as columns of a Parquet file (`docs/TREE.md`, section 7).

use std::sync::Arc;

use serde_json::Map;

use super::{
    IDV, Idv, part_fault,
    values::{Show, Shown, Values},
};
use crate::{
    cache::BlockError,
    format::{
        DType, Fields,
        idv::{Column, Item, Key},
    },
    limits,
    source::Memory,
    tree::{
        WorkingMemory,
        memory::with_memory,
        tables::{self, COLUMN_MEMORY, ColumnNames, Described, LeftOut},
    },
    view::{
        Fault, ReadContext, View,
        parquet::{self, Element, Elements, Missing, Parquet, Ragged, Starts, Table},
    },
};

/// The table's name in the root.
pub(super) const NAME: &str = "table.parquet";

/// The metadata with the texts of a column's keys.
const KEY_VALUES: &[u8] = b"KeyValues";

/// How a column of the file appears in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Elements of a fixed size, as stored; for lists, how many per row (0 if each row has its own number).
    Plain {
        element: Element,
        slots: Option<u64>,
    },
    /// The same, with the smallest value meaning "missing".
    OrLeast(Element),
    /// Bools of two bits.
    OrTwo,
    /// Two columns: times, and minutes by which local time is ahead of UTC.
    Offset {
        is_old: bool,
    },
    Text,
    /// Lists of texts; how many per row, 0 if each row has its own number.
    Texts(u64),
    Key(DType, Key),
}

/// The columns of a table, as far as they are known without reading values.
struct Plan {
    columns: Vec<(Column, Kind)>,
    left_out: Vec<LeftOut>,
    left_out_behind: u64,
}

impl Idv {
    /// Returns whether there is a table. A file without columns has none.
    pub(super) fn has_table(&self, reader: &ReadContext) -> Result<bool, Fault> {
        if let Some(known) = self.has_table.get() {
            return Ok(*known);
        }
        reader.may_work()?;
        let found = !with_memory(&reader.cache, |memory| self.plan(reader, 1, &memory))?.columns.is_empty();
        Ok(*self.has_table.get_or_init(|| found))
    }

    /// Returns how each visible column appears in the table, for up to `most` columns.
    fn plan(&self, reader: &ReadContext, most: usize, memory: &dyn Memory) -> Result<Plan, Fault> {
        let names = self.names(reader)?;
        let mut plan = Plan { columns: Vec::new(), left_out: Vec::new(), left_out_behind: 0 };
        // Columns that become two count twice.
        let mut room = most;
        for index in 0..self.file.columns() {
            if room == 0 || plan.left_out.len() >= limits::TABLE_COLUMNS {
                plan.left_out_behind = (self.file.columns() - index).into();
                break;
            }
            if names.is_hidden(index) {
                continue;
            }
            let needed = COLUMN_MEMORY + 8 * self.file.entry_size(index..index + 1);
            memory.reserve(needed)?;
            let Some(column) = self.file.column(&*reader.source, index).map_err(part_fault)? else { continue };
            match kind(&column, self.file.version.has_missing()) {
                Ok(kind) => {
                    room = room.saturating_sub(if matches!(kind, Kind::Offset { .. }) { 2 } else { 1 });
                    plan.columns.push((column, kind));
                }
                Err(reason) => {
                    plan.left_out.push(LeftOut { column: String::from_utf8_lossy(&column.name).into_owned(), reason });
                }
            }
        }
        Ok(plan)
    }

    /// Returns the table's description in `container.json`, if there is a table.
    pub(super) fn described_table(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
    ) -> Result<Option<Described>, Fault> {
        let Plan { columns, left_out, left_out_behind } = self.plan(reader, limits::TABLE_COLUMNS, memory)?;
        let count = |(_, kind): &(_, Kind)| if matches!(kind, Kind::Offset { .. }) { 2 } else { 1 };
        let columns: usize = columns.iter().map(count).sum();
        let (path, rows) = (NAME.into(), Some(self.file.rows));
        let described = Described { path, rows, columns: Some(columns), left_out, left_out_behind };
        Ok((columns > 0).then_some(described))
    }

    /// Returns the table.
    pub(super) fn table(&self, reader: &ReadContext) -> Result<Arc<Parquet>, Fault> {
        tables::laid_out(reader, 0, |memory| self.lay_out(reader, memory))
    }

    fn lay_out(&self, reader: &ReadContext, memory: &WorkingMemory<'_>) -> Result<Parquet, Fault> {
        let plan = self.plan(reader, limits::TABLE_COLUMNS, memory)?;
        let unit = unit(&plan.columns);
        let mut names = ColumnNames::default();
        let mut columns = Vec::with_capacity(plan.columns.len());
        let mut dictionaries = limits::TABLE_DICTIONARIES;
        for (column, kind) in plan.columns {
            let (index, stored) = (column.index, column.name.clone());
            let mut about = Map::new();
            about.insert("codec".into(), String::from_utf8_lossy(&column.codec.name).into());
            let Some(values) = Values::of_column(Arc::new(column), self.file.rows, self.file.tail) else { continue };
            about.insert("type".into(), values.ty().describe().into());
            let values = Arc::new(values);
            let mut add = |mut made: parquet::Column| {
                made.about.extend(about.clone());
                columns.push(made);
            };
            if let Kind::Offset { is_old } = kind {
                let data = shown(&values, Show::Values, reader)?;
                let (time, minutes) = (names.name(&stored), names.name(&[&stored[..], b"_offset_minutes"].concat()));
                let column = parquet::Column::fixed(time, Element::Zoned, None, data.clone());
                add(if is_old { column.with_missing(Missing::Least) } else { column });
                add(parquet::Column::field(minutes, Element::Of(DType::I16), data, 8, RECORD));
                continue;
            }
            let name = names.name(&stored);
            add(match kind {
                Kind::Text => parquet::Column::strings(name, Arc::new(texts(&values, reader)?), true, true),
                Kind::Texts(slots) => {
                    let starts = starts(&values, slots, reader)?;
                    parquet::Column::varying(name, starts, Elements::Texts(Arc::new(texts(&values, reader)?)))
                }
                Kind::Plain { element, slots: Some(0) } => {
                    let elements = Elements::Fixed(element, shown(&values, Show::Values, reader)?);
                    parquet::Column::varying(name, starts(&values, 0, reader)?, elements)
                }
                Kind::Plain { element, slots } => {
                    parquet::Column::fixed(name, element, slots, shown(&values, Show::Values, reader)?)
                }
                Kind::OrLeast(element) => {
                    let data = shown(&values, Show::Values, reader)?;
                    parquet::Column::fixed(name, element, None, data).with_missing(Missing::Least)
                }
                Kind::OrTwo | Kind::Offset { .. } => {
                    let data = shown(&values, Show::Values, reader)?;
                    parquet::Column::fixed(name, Element::Of(DType::Bool), None, data).with_missing(Missing::Two)
                }
                Kind::Key(dtype, key) => {
                    let data = shown(&values, Show::Values, reader)?;
                    match self.key_texts(reader, index, key, (dictionaries, memory))? {
                        Some((dictionary, count)) => {
                            dictionaries -= dictionary.len();
                            parquet::Column::keys(name, dtype, data, dictionary, count)
                                .with_about("dtype", dtype.name())
                        }
                        None => {
                            parquet::Column::fixed(name, Element::Of(dtype), None, data).with_missing(Missing::Zero)
                        }
                    }
                }
            });
        }
        let mut about = Map::new();
        about.insert("format".into(), IDV.name.into());
        about.insert("version".into(), self.file.version.to_string().into());
        Parquet::new(reader, Table { number: 0, rows: self.file.rows, unit, columns, about }, memory)
    }

    /// Returns the texts of keys as a dictionary, and their number. `None` if there are none, if they have too many
    /// bytes, or if damage makes them unreadable.
    fn key_texts(
        &self,
        reader: &ReadContext,
        column: u32,
        key: Key,
        (room, memory): (usize, &dyn Memory),
    ) -> Result<Option<(Vec<u8>, u64)>, Fault> {
        match self.read_key_texts(reader, column, key, (room.min(limits::TABLE_DICTIONARY), memory)) {
            Err(fault) if matches!(&*fault.error, BlockError::Source(_) | BlockError::Memory(_)) => Err(fault),
            Err(_) => Ok(None),
            found => found,
        }
    }

    fn read_key_texts(
        &self,
        reader: &ReadContext,
        column: u32,
        key: Key,
        (room, memory): (usize, &dyn Memory),
    ) -> Result<Option<(Vec<u8>, u64)>, Fault> {
        let loaded = self.metadata(reader, column)?;
        let found = loaded.entries_from(0).map(|(number, _)| number).find_map(|number| {
            let entry = loaded.entry(number).filter(|entry| entry.stored.kind == KEY_VALUES)?;
            entry.values.clone().filter(|values| values.ty().item == Item::Text)
        });
        let Some(values) = found else { return Ok(None) };
        let (offsets, text, missing) = (
            shown(&values, Show::Offsets, reader)?,
            shown(&values, Show::Text, reader)?,
            shown(&values, Show::Missing, reader)?,
        );
        let count = (offsets.size() / 8).saturating_sub(1);
        let count = if key.count > 0 { count.min(key.count) } else { count };
        let size = text.size().saturating_add(count.saturating_mul(4));
        if count == 0 || size > room as u64 {
            return Ok(None);
        }
        // For offsets, marks, texts and the dictionary.
        memory.reserve(17 * (count + 1) + 2 * size)?;
        let offsets = offsets.copy_at(reader, 0, 8 * (count + 1))?;
        if missing.copy_at(reader, 0, count)?.contains(&1) {
            return Ok(None);
        }
        let text = text.copy_at(reader, 0, text.size())?;
        let mut dictionary = Vec::with_capacity(size as usize);
        let bounds: Vec<usize> =
            offsets.chunks_exact(8).filter_map(|bytes| bytes.u64(0)).map(|at| at as usize).collect();
        for bounds in bounds.windows(2) {
            let text = text.get(bounds[0]..bounds[1]).unwrap_or_default();
            dictionary.extend((text.len() as u32).to_le_bytes());
            dictionary.extend(text);
        }
        Ok(Some((dictionary, count)))
    }
}

/// Bytes of a record of ticks and minutes.
const RECORD: u64 = 10;

/// Returns the bytes of one of a column's files, without a header.
fn shown(values: &Arc<Values>, show: Show, reader: &ReadContext) -> Result<View, Fault> {
    Ok(Shown::open(values, show, reader)?.data())
}

/// Returns where the elements of each row of lists begin; `slots` is how many each has, 0 if each has its own number.
fn starts(values: &Arc<Values>, slots: u64, reader: &ReadContext) -> Result<Starts, Fault> {
    Ok(match slots {
        0 => Starts::At(shown(values, Show::Rows, reader)?, DType::I64),
        slots => Starts::Every(slots),
    })
}

/// Returns the texts of a column.
fn texts(values: &Arc<Values>, reader: &ReadContext) -> Result<Ragged, Fault> {
    Ok(Ragged {
        offsets: shown(values, Show::Offsets, reader)?,
        dtype: DType::I64,
        // If damage makes the length of all texts unknown, those before the damage can still be read.
        data: Shown::unsized_text(values),
        missing: Some(shown(values, Show::Missing, reader)?),
    })
}

/// Returns the rows per block that most columns have.
fn unit(columns: &[(Column, Kind)]) -> u64 {
    let mut rows: Vec<u64> = columns.iter().map(|(column, _)| column.rows_per_block).collect();
    rows.sort_unstable();
    let runs = rows.chunk_by(|a, b| a == b);
    runs.max_by_key(|run| run.len()).and_then(|run| run.first()).copied().unwrap_or(1)
}

/// Returns how a column appears in the table.
///
/// # Errors
/// Why the table leaves it out.
fn kind(column: &Column, has_missing: bool) -> Result<Kind, String> {
    if let Some(unusable) = column.unusable() {
        return Err(unusable.reason().into());
    }
    let Ok(ty) = &column.codec.meaning else { return Err("its codec is not known".into()) };
    let slots = ty.slots();
    match slots {
        Some(slots) if slots > limits::TABLE_LIST => {
            return Err(format!("its rows have {slots} values, more than {}", limits::TABLE_LIST));
        }
        _ => {}
    }
    let name = item_codec(column);
    let is_date = matches!(name, b"DateTime" | b"DvDateTime");
    let is_time = is_date || matches!(name, b"TimeSpan" | b"DvTimeSpan");
    let is_old = has_missing || name.starts_with(b"Dv");
    Ok(match (ty.item, slots) {
        (Item::Text, None) => Kind::Text,
        (Item::Text, Some(slots)) => Kind::Texts(slots),
        (Item::DateTimeOffset, None) => Kind::Offset { is_old },
        (Item::DateTimeOffset, Some(_)) => Kind::Plain { element: Element::Zoned, slots },
        (Item::RowId, _) => Kind::Plain { element: Element::Bytes16, slots },
        (Item::Boolean, _) => Kind::Plain { element: Element::Of(DType::Bool), slots },
        (Item::DvBool, None) => Kind::OrTwo,
        (Item::DvBool, Some(_)) => Kind::Plain { element: Element::Of(DType::U8), slots },
        (Item::Number(dtype), None) if let Some(key) = ty.key => Kind::Key(dtype, key),
        (Item::Number(dtype), _) => {
            let element = if is_date { Element::Ticks } else { Element::Of(dtype) };
            let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
            match slots {
                None if is_time && is_old || is_signed && has_missing => Kind::OrLeast(element),
                _ => Kind::Plain { element, slots },
            }
        }
    })
}

/// Returns the load name of the codec of a column's values; for vectors that of their items.
fn item_codec(column: &Column) -> &[u8] {
    let (name, parameters) = (&*column.codec.name, &*column.codec.parameters);
    match (name, parameters.split_first()) {
        (b"VBuffer", Some((&length, rest))) => rest.get(..length.into()).unwrap_or_default(),
        _ => name,
    }
}
