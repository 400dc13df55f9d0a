//! Datasets as tables (`docs/TREE.md`, section 7). A compound of one axis has a column for each member.

use std::{ops::Range, sync::Arc};

use serde_json::{Map, Value as Json};

use super::{
    Hdf5,
    convert::{Conversion, Converted},
    elements,
    form::{FormKind, Plain},
    rows::{Lead, each_element},
    store::{Described, Store, fault},
    values,
};
use crate::{
    format::hdf5::{Class, Dataset, Member, Padding},
    limits,
    source::Memory,
    tree::{
        HDF5,
        memory::WorkingMemory,
        rows::Rows,
        tables::{COLUMN_MEMORY, ColumnNames, LeftOut, laid_out, slots},
    },
    view::{
        Fault, ReadContext, View,
        parquet::{Column, Element, Parquet, Strings, Table},
    },
};

/// Rows of texts as a column.
#[derive(Debug)]
pub(super) struct TextColumn {
    pub(super) rows: Arc<dyn Rows>,
    /// A byte for each row, not 0 for one that is missing.
    pub(super) mask: Option<View>,
}

impl Strings for TextColumn {
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let mut size = 0u64;
        self.rows.lengths(reader, &memory, rows, &mut |length| {
            size = size.saturating_add(length);
            Ok(())
        })?;
        Ok(size)
    }

    fn fill(
        &self,
        reader: &ReadContext,
        rows: Range<u64>,
        out: &mut [u8],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let mask = match &self.mask {
            Some(mask) => Some(mask.copy_at(reader, rows.start, rows.end - rows.start)?),
            None => None,
        };
        let (mut rest, mut number) = (out, 0);
        self.rows.each(reader, &memory, rows, &mut |row| {
            let is_missing = mask.as_ref().is_some_and(|mask| mask.get(number).is_some_and(|mark| *mark != 0));
            number += 1;
            if is_missing {
                each(None);
                return Ok(());
            }
            let row = row.unwrap_or_default();
            let (here, after) = std::mem::take(&mut rest)
                .split_at_mut_checked(row.len())
                .ok_or_else(|| fault(0, "a row has another length than stated"))?;
            here.copy_from_slice(row);
            rest = after;
            each(Some(row.len() as u64));
            Ok(())
        })
    }
}

/// Texts that are members of compounds.
#[derive(Debug)]
struct MemberTexts {
    store: Arc<Store>,
    /// The stored compounds, their number, and the bytes of each.
    elements: View,
    count: u64,
    stride: u64,
    /// Where the text is in each compound; if `padding` is `None`, the text is in the global heap.
    place: Range<usize>,
    padding: Option<Padding>,
}

impl Rows for MemberTexts {
    fn count(&self) -> u64 {
        self.count
    }

    fn each(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(Option<&[u8]>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut last = None;
        each_element(&self.elements, self.stride, reader, memory, rows, &mut |element| {
            let member = element.get(self.place.clone()).unwrap_or_default();
            if let Some(padding) = self.padding {
                return each(Some(values::text(member, padding)));
            }
            let lead = self.lead(member)?;
            match lead.length {
                0 => each(Some(&[])),
                length => lead.with(&self.store, reader, &mut last, length.into(), |text| each(Some(text))),
            }
        })
    }

    fn lengths(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.padding.is_some() {
            return self.each(reader, memory, rows, &mut |row| each(row.map_or(0, |row| row.len() as u64)));
        }
        each_element(&self.elements, self.stride, reader, memory, rows, &mut |element| {
            each(self.lead(element.get(self.place.clone()).unwrap_or_default())?.length.into())
        })
    }
}

impl MemberTexts {
    fn lead(&self, member: &[u8]) -> Result<Lead, Fault> {
        Lead::read(member, self.store.superblock.sizes.offset).ok_or_else(|| fault(0, "an element that is too short"))
    }
}

/// Returns the column of an array whose first axis is the rows, or why there is none.
pub(super) fn plain_column(name: String, plain: &Plain, rows: u64, data: View) -> Result<Column, String> {
    let dtype = plain.element.plain().ok_or("its elements are records")?;
    let shape = [&[rows], &*plain.inner].concat();
    let slots = slots(dtype, &shape)?;
    let column = Column::fixed(name, Element::Of(dtype), slots, data);
    Ok(if plain.inner.len() > 1 { column.with_about("shape", &*plain.inner) } else { column })
}

/// Columns of a table, and those that are left out.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) names: ColumnNames,
}

impl Columns {
    pub(super) fn leave_out(&mut self, name: &[u8], reason: impl Into<String>) {
        let column = String::from_utf8_lossy(name).into_owned();
        self.left_out.push(LeftOut { column, reason: reason.into() });
    }

    /// Lays out the table.
    pub(super) fn table(
        self,
        reader: &ReadContext,
        number: u64,
        rows: u64,
        memory: &dyn Memory,
    ) -> Result<Parquet, Fault> {
        let about = Map::from_iter([("format".into(), Json::from(HDF5.name))]);
        Parquet::new(reader, Table { number, rows, unit: 1, columns: self.columns, about }, memory)
    }
}

/// A member of a compound that may be a column.
struct Part {
    name: Box<[u8]>,
    /// Where it is in each element.
    place: Range<usize>,
    kind: Result<PartKind, String>,
}

enum PartKind {
    /// A text of one size.
    Text(Padding),
    /// A text in the global heap.
    VaryingText,
    Plain(Plain),
}

/// Returns the members of a compound as columns, or why a member cannot be one. In plain compounds, the place is that
/// in the shown element, in all others that in the stored element.
fn parts(dataset: &Dataset, kind: &FormKind) -> Vec<Part> {
    let Class::Compound(members) = &dataset.datatype.class else { return Vec::new() };
    let shown = if let FormKind::Plain(plain) = kind { plain.element.record() } else { None };
    let part = |(number, member): (usize, &Member)| {
        let field = shown.and_then(|record| record.fields().get(number));
        let (offset, size) = match field {
            Some(field) => (field.offset, field.size()),
            None => (member.offset, member.datatype.size),
        };
        let kind = match &member.datatype.class {
            Class::Text(padding) => Ok(PartKind::Text(*padding)),
            Class::VaryingText(_) => Ok(PartKind::VaryingText),
            Class::Sequence(_) => Err("rows have each their own number of values".into()),
            Class::Reference(_) => Err("Parquet has no type for references".into()),
            _ => Plain::of_type(&member.datatype).ok_or("its elements are records".into()).and_then(|plain| {
                let plain = match field {
                    Some(_) => Plain { conversion: Conversion::Copy(size), stored: size, ..plain },
                    None => plain,
                };
                let dtype = plain.element.plain().ok_or("its elements are records")?;
                slots(dtype, &[&[1], &*plain.inner].concat())?;
                Ok(PartKind::Plain(plain))
            }),
        };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let place = offset..offset.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        Part { name: member.name.clone(), place, kind }
    };
    members.iter().enumerate().map(part).collect()
}

/// Returns whether compounds have a member that can be a column.
pub(super) fn has_columns(dataset: &Dataset, kind: &FormKind) -> bool {
    parts(dataset, kind).iter().any(|part| part.kind.is_ok())
}

impl Hdf5 {
    fn column(&self, elements: &View, count: u64, stride: u64, part: &Part, name: String) -> Result<Column, String> {
        let texts = |padding| {
            let (store, elements, place) = (self.store.clone(), elements.clone(), part.place.clone());
            let rows = Arc::new(MemberTexts { store, elements, count, stride, place, padding });
            Ok(Column::strings(name.clone(), Arc::new(TextColumn { rows, mask: None }), true, false))
        };
        match &part.kind {
            Err(reason) => Err(reason.clone()),
            Ok(PartKind::Text(padding)) => texts(Some(*padding)),
            Ok(PartKind::VaryingText) => texts(None),
            Ok(PartKind::Plain(plain)) => {
                let to = plain.shown();
                let conversion = Conversion::Members([(part.place.start as u64, plain.conversion.clone())].into());
                let converted = Converted { stored: elements.clone(), from: stride, to, conversion };
                plain_column(name, plain, count, View::default().with_rendered(count.saturating_mul(to), converted))
            }
        }
    }

    /// Returns the columns of a compound dataset; `None` if it is not a table.
    pub(super) fn compound_columns(
        &self,
        context: &ReadContext,
        described: &Described,
        memory: &dyn Memory,
    ) -> Result<Option<Columns>, Fault> {
        let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else { return Ok(None) };
        if !form.is_table {
            return Ok(None);
        }
        let (elements, stride) = match &form.kind {
            FormKind::Plain(plain) => {
                let Some(array) = self.array_of(context, described)? else { return Ok(None) };
                (array.data, plain.shown())
            }
            _ => {
                let view = elements::stored(&self.store, context, described.object.at, dataset, form)?;
                (view, dataset.datatype.size)
            }
        };
        let mut columns = Columns::default();
        for part in parts(dataset, &form.kind) {
            memory.reserve(COLUMN_MEMORY)?;
            if columns.columns.len() >= limits::TABLE_COLUMNS {
                columns.leave_out(&part.name, "there are too many columns");
                continue;
            }
            let name = columns.names.name(&part.name);
            match self.column(&elements, form.elements, stride, &part, name) {
                Ok(column) => columns.columns.push(column),
                Err(reason) => columns.leave_out(&part.name, reason),
            }
        }
        Ok(Some(columns))
    }

    /// Returns a compound dataset as a table.
    pub(super) fn compound_table(
        &self,
        context: &ReadContext,
        described: &Described,
    ) -> Result<Option<Arc<Parquet>>, Fault> {
        let Some(form) = &described.form else { return Ok(None) };
        let number = described.object.at;
        let made = laid_out(context, number, |memory| {
            let columns = self.compound_columns(context, described, memory)?;
            let columns = columns.ok_or_else(|| Fault::refused("a dataset that is no table"))?;
            columns.table(context, number, form.elements, memory)
        });
        made.map(Some)
    }
}
