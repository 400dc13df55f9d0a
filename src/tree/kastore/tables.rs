//! Tables of a store: groups of arrays `<table>/<column>` (`docs/TREE.md`, section 7; `docs/formats/kastore.md` 11).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::Map;

use super::{
    Arrays,
    metadata::{self, Metadata},
    packed::Layout,
    rows::Rows,
    schema::{self, Codec},
};
use crate::{
    format::{DType, kastore::Item},
    limits,
    source::{Memory, Source, SourceError},
    tree::{
        paths::NodeIndex,
        tables::{COLUMN_MEMORY, ColumnNames, Described, LeftOut, array_column},
    },
    view::{
        Array, Fault, ReadContext, View,
        parquet::{Column, Element, Elements, Parquet, Ragged, Starts, Table},
    },
};

/// The tables of a tree sequence.
const TABLES: [&[u8]; 8] =
    [b"nodes", b"edges", b"sites", b"mutations", b"migrations", b"individuals", b"populations", b"provenances"];

/// Their columns that are text whatever a schema says.
const TEXTS: [&[u8]; 4] = [b"ancestral_state", b"derived_state", b"record", b"timestamp"];

/// The columns of all tables in tskit's order: no two tables have two of them in different orders.
const ORDER: [&[u8]; 20] = [
    b"left",
    b"right",
    b"position",
    b"site",
    b"node",
    b"source",
    b"dest",
    b"time",
    b"flags",
    b"population",
    b"individual",
    b"ancestral_state",
    b"derived_state",
    b"parent",
    b"child",
    b"location",
    b"parents",
    METADATA,
    b"record",
    b"timestamp",
];

/// The column with what others have to say of a row.
const METADATA: &[u8] = b"metadata";

/// Key of the schema of `metadata`, which is no column.
const SCHEMA: &[u8] = b"metadata_schema";

/// Key of the unit of a tree sequence's times.
const TIME_UNITS: &[u8] = b"time_units";

/// Longest unit and longest schema, in bytes, that the footer repeats.
const LONGEST_UNIT: u64 = 256;
const LONGEST_SCHEMA: usize = 64 << 10;

/// Suffix of the key that has the offsets of another.
const OFFSETS: &[u8] = b"_offset";

/// A table.
#[derive(Debug)]
pub(super) struct Plan {
    /// The folder beside it, and its stored name.
    pub(super) folder: NodeIndex,
    pub(super) part: Vec<u8>,
    rows: u64,
    /// Whether rows are numbered, because other tables refer to them by number.
    has_id: bool,
    columns: Vec<Stored>,
    left_out: Vec<LeftOut>,
    left_out_behind: u64,
    /// How rows of `metadata` are packed, and the fields of them that are columns.
    packed: Option<(Arc<Layout>, Vec<usize>)>,
    /// Item with the schema of `metadata`.
    schema: Option<usize>,
    /// Item with the unit of times.
    pub(super) time_units: Option<usize>,
}

/// A column, by the numbers of its items.
#[derive(Debug)]
struct Stored {
    data: usize,
    /// For ragged columns.
    offsets: Option<usize>,
}

/// Returns the groups of the items from `first` on that are tables: the common part of their keys, without the last
/// slash, and the numbers of their items.
pub(super) fn groups(items: &[Item], first: usize, is_tree_sequence: bool) -> Vec<(Vec<u8>, Vec<usize>)> {
    let mut groups = BTreeMap::<&[u8], Vec<usize>>::new();
    for (number, item) in items.iter().enumerate().skip(first) {
        if let Some(slash) = item.key.iter().rposition(|&byte| byte == b'/') {
            let group = &item.key[..slash];
            if !is_tree_sequence || TABLES.contains(&group) {
                groups.entry(group).or_default().push(number);
            }
        }
    }
    groups.into_iter().map(|(group, numbers)| (group.to_vec(), numbers)).collect()
}

/// Returns the item from `first` on with the unit of times.
pub(super) fn time_units(items: &[Item], first: usize) -> Option<usize> {
    let mut items = items.iter().enumerate().skip(first);
    items.find(|(_, item)| item.key == TIME_UNITS && item.dtype.size() == 1).map(|(number, _)| number)
}

/// Returns the last part of a key.
fn name(item: &Item) -> &[u8] {
    item.key.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

impl Plan {
    /// Returns the table of a group; `None` if its columns differ in their number of rows, or if a group that is no
    /// table of a tree sequence has fewer than two columns.
    pub(super) fn of(
        items: &[Item],
        numbers: &[usize],
        is_tree_sequence: bool,
        (folder, part): (NodeIndex, Vec<u8>),
    ) -> Option<Self> {
        let mut by_name: HashMap<&[u8], usize> = numbers.iter().map(|&number| (name(&items[number]), number)).collect();
        let schema = by_name.remove(SCHEMA).filter(|_| is_tree_sequence);
        let offsets_of = |item: usize| {
            let offsets = *by_name.get(&*[name(&items[item]), OFFSETS].concat())?;
            (matches!(items[offsets].dtype, DType::U32 | DType::U64) && items[offsets].count > 0).then_some(offsets)
        };
        let is_offsets = |item: usize| {
            let of = name(&items[item]).strip_suffix(OFFSETS);
            of.and_then(|of| by_name.get(of)).is_some_and(|&of| offsets_of(of) == Some(item))
        };
        let mut plan = Self {
            folder,
            part,
            rows: 0,
            has_id: is_tree_sequence,
            columns: Vec::new(),
            left_out: Vec::new(),
            left_out_behind: 0,
            packed: None,
            schema,
            time_units: None,
        };
        let mut rows = None;
        let mut ordered: Vec<usize> =
            numbers.iter().copied().filter(|&item| Some(item) != schema && !is_offsets(item)).collect();
        if is_tree_sequence {
            // Those that tskit does not know come last, by the order of their keys.
            let rank = |name: &[u8]| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
            ordered.sort_by_key(|&item| rank(name(&items[item])));
        }
        for data in ordered {
            let offsets = offsets_of(data);
            let count = offsets.map_or(items[data].count, |offsets| items[offsets].count - 1);
            if *rows.get_or_insert(count) != count {
                return None;
            }
            if plan.columns.len() + usize::from(plan.has_id) < limits::TABLE_COLUMNS {
                plan.columns.push(Stored { data, offsets });
            } else {
                plan.left_out_behind += 1;
            }
        }
        plan.rows = rows?;
        let least = if is_tree_sequence { 1 } else { 2 };
        (plan.columns.len() >= least).then_some(plan)
    }

    /// Reads the schema of `metadata`, and finds its fields if the codec is `struct` or `json+struct`.
    pub(super) fn read_schema(&mut self, source: &dyn Source, items: &[Item]) -> Result<(), SourceError> {
        let Some(schema) = self.schema.map(|number| &items[number]).filter(|schema| schema.count > 0) else {
            return Ok(());
        };
        let is_metadata = |stored: &Stored| {
            let item = &items[stored.data];
            name(item) == METADATA && stored.offsets.is_some() && item.dtype.size() == 1
        };
        if schema.count > limits::METADATA_JSON || !self.columns.iter().any(is_metadata) {
            return Ok(());
        }
        let schema = source.read(schema.data.clone())?;
        let layout_of = match schema::codec(&schema) {
            Ok(Codec::Struct) => Layout::of,
            Ok(Codec::JsonStruct) => Layout::with_json,
            _ => return Ok(()),
        };
        let layout = match schema.len() > LONGEST_SCHEMA {
            true => Err(format!("it has more than {LONGEST_SCHEMA} bytes")),
            false => String::from_utf8(schema).map_err(|error| error.to_string()).and_then(|schema| layout_of(&schema)),
        };
        match layout {
            Ok(layout) => {
                let (mut fields, left_out) = metadata::shown(&layout, self.rows);
                let room = limits::TABLE_COLUMNS.saturating_sub(self.columns.len() + usize::from(self.has_id));
                self.left_out = left_out;
                self.left_out_behind += fields.len().saturating_sub(room) as u64;
                fields.truncate(room);
                self.packed = Some((Arc::new(layout), fields));
            }
            Err(reason) => {
                let reason = format!("its schema cannot be used: {reason}");
                self.left_out.push(LeftOut { column: "metadata.*".into(), reason });
            }
        }
        Ok(())
    }

    fn field_count(&self) -> usize {
        self.packed.as_ref().map_or(0, |(_, fields)| fields.len())
    }

    /// Returns the description in `container.json`.
    pub(super) fn described(&self, path: String) -> Described {
        Described {
            path,
            rows: Some(self.rows),
            columns: Some(self.columns.len() + self.field_count() + usize::from(self.has_id)),
            left_out: self.left_out.clone(),
            left_out_behind: self.left_out_behind,
        }
    }

    /// Returns the bytes of memory that it takes, about.
    pub(super) fn memory_usage(&self) -> usize {
        let text = |left: &LeftOut| size_of::<LeftOut>() + left.column.len() + left.reason.len();
        size_of::<Self>()
            + self.columns.len() * size_of::<Stored>()
            + self.packed.as_ref().map_or(0, |(layout, _)| layout.memory_usage())
            + self.left_out.iter().map(text).sum::<usize>()
    }
}

impl Arrays {
    /// Lays out the table of a number.
    pub(super) fn lay_out(&self, reader: &ReadContext, number: u32, memory: &dyn Memory) -> Result<Parquet, Fault> {
        let plan = &self.tables[number as usize];
        memory.reserve(COLUMN_MEMORY * ((plan.columns.len() + plan.field_count()) as u64 + 1))?;
        let mut names = ColumnNames::default();
        let text = |item: Option<usize>, longest| match item {
            Some(number) => self.text(reader, number, longest),
            None => Ok(None),
        };
        let schema = text(plan.schema, limits::METADATA_JSON)?;
        let is_json = schema.as_ref().is_some_and(|schema| is_json(schema));
        let time_units = text(plan.time_units, LONGEST_UNIT)?;
        let schema = schema.filter(|schema| !schema.is_empty() && schema.len() <= LONGEST_SCHEMA);
        let mut columns = Vec::with_capacity(plan.columns.len() + 1);
        for stored in &plan.columns {
            let item = &self.items[stored.data];
            let (key, name) = (name(item), names.name(name(item)));
            columns.push(match stored.offsets {
                None => {
                    let array = Array::new(item.dtype, [item.count], View::stored(item.data.clone()));
                    // Elements of these formats are numbers, one per row.
                    match (array_column(&name, &array), &time_units) {
                        (Ok(column), Some(units)) if key == b"time" => column.with_about("units", &**units),
                        (Ok(column), _) => column,
                        (Err(_), _) => continue,
                    }
                }
                Some(offsets) => {
                    let offsets = &self.items[offsets];
                    if !matches!(item.dtype, DType::I8 | DType::U8) {
                        let starts = Starts::At(View::stored(offsets.data.clone()), offsets.dtype);
                        let elements = Elements::Fixed(Element::Of(item.dtype), View::stored(item.data.clone()));
                        columns.push(Column::varying(name, starts, elements));
                        continue;
                    }
                    let ragged = Ragged {
                        offsets: View::stored(offsets.data.clone()),
                        dtype: offsets.dtype,
                        data: View::stored(item.data.clone()),
                        missing: None,
                    };
                    let is_text = plan.has_id && (TEXTS.contains(&key) || key == METADATA && is_json);
                    let column = Column::strings(name, Arc::new(ragged), is_text, false);
                    match &schema {
                        Some(schema) if key == METADATA => column.with_about("metadata_schema", &**schema),
                        _ => column,
                    }
                }
            });
            if let (METADATA, Some(offsets), Some((layout, fields))) = (key, stored.offsets, &plan.packed) {
                let offsets = &self.items[offsets];
                let metadata = Arc::new(Metadata {
                    key: String::from_utf8_lossy(&item.key).into_owned(),
                    data: item.data.clone(),
                    offsets: offsets.data.clone(),
                    dtype: offsets.dtype,
                    rows: plan.rows,
                    layout: layout.clone(),
                });
                let fields = metadata::columns(&metadata, reader, number.into(), fields)?;
                columns.extend(fields.into_iter().map(|mut column| {
                    column.name = names.name(column.name.as_bytes());
                    column
                }));
            }
        }
        if plan.has_id {
            let dtype = if plan.rows > i32::MAX as u64 { DType::I64 } else { DType::I32 };
            columns.insert(0, Column::row_numbers(&names.name(b"id"), dtype, plan.rows));
        }
        let mut about = Map::new();
        about.insert("format".into(), self.format.into());
        about.insert("version".into(), self.front.get("version").cloned().unwrap_or_default());
        Parquet::new(reader, Table { number: number.into(), rows: plan.rows, unit: 1, columns, about }, memory)
    }

    /// Returns which columns of tree sequences have offsets that are not sound, except those that a warning names.
    pub(super) fn unsound_offsets(&self, source: &dyn Source) -> Result<Vec<String>, Fault> {
        let mut wrong = Vec::new();
        for stored in self.tables.iter().filter(|plan| plan.has_id).flat_map(|plan| &plan.columns) {
            let (item, Some(offsets)) = (&self.items[stored.data], stored.offsets) else { continue };
            let offsets = &self.items[offsets];
            let key = String::from_utf8_lossy(&item.key);
            let is_known = self.warnings.iter().any(|warning| warning.starts_with(&format!("{key}: ")));
            // Offsets count elements.
            if !is_known && Rows::new(source, 0..item.count, offsets.data.clone(), offsets.dtype, b"")?.is_none() {
                wrong.push(format!("{key}: its offsets are not sound"));
            }
        }
        Ok(wrong)
    }

    /// Returns an item of text; `None` if it is longer than `longest` bytes or not UTF-8. If it cannot be read now,
    /// that is an error, because without it the table would have other bytes.
    fn text(&self, reader: &ReadContext, number: usize, longest: u64) -> Result<Option<String>, Fault> {
        let Some(item) = self.items.get(number).filter(|item| item.count <= longest) else { return Ok(None) };
        Ok(String::from_utf8(reader.source.read(item.data.clone())?).ok())
    }
}

/// Returns whether a schema says that metadata are JSON.
fn is_json(schema: &str) -> bool {
    schema::codec(schema.as_bytes()).is_ok_and(|codec| codec == Codec::Json)
}
