//! Datasets as tables (`docs/TREE.md`, section 7). A compound of one axis has a column for each member.

use std::{ops::Range, sync::Arc};

use super::{
    HDF5, Hdf5,
    convert::{Conversion, Converted},
    elements,
    form::{FormKind, Plain},
    rows::{Lead, each_element},
    store::{Described, Store, fault},
    values,
};
use crate::{
    format::hdf5::{Class, Dataset, Member, Padding},
    source::Memory,
    tree::{
        rows::Rows,
        tables::{TableColumns, array_column, laid_out, slots, text_column},
    },
    view::{
        Array, Fault, ReadContext, View,
        parquet::{Column, Parquet},
    },
};

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

/// A member of a compound that may be a column.
struct Part {
    name: Box<[u8]>,
    /// Where it is in each element.
    place: Range<usize>,
    /// Whether it is a text that is stated to be UTF-8.
    is_utf8: bool,
    kind: Result<PartKind, String>,
}

enum PartKind {
    /// A text of one size; without padding, one in the global heap.
    Text(Option<Padding>),
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
            Class::Text(padding, _) => Ok(PartKind::Text(Some(*padding))),
            Class::VaryingText(..) => Ok(PartKind::Text(None)),
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
        Part { name: member.name.clone(), place, is_utf8: member.datatype.is_utf8(), kind }
    };
    members.iter().enumerate().map(part).collect()
}

/// Returns whether compounds have a member that can be a column.
pub(super) fn has_columns(dataset: &Dataset, kind: &FormKind) -> bool {
    parts(dataset, kind).iter().any(|part| part.kind.is_ok())
}

impl Hdf5 {
    fn column(&self, elements: &View, count: u64, stride: u64, part: &Part, name: String) -> Result<Column, String> {
        match &part.kind {
            Err(reason) => Err(reason.clone()),
            Ok(PartKind::Text(padding)) => {
                let (store, elements, place) = (self.store.clone(), elements.clone(), part.place.clone());
                let rows = Arc::new(MemberTexts { store, elements, count, stride, place, padding: *padding });
                text_column(name, rows, part.is_utf8, None)
            }
            Ok(PartKind::Plain(plain)) => {
                let to = plain.shown();
                let conversion = Conversion::Members([(part.place.start as u64, plain.conversion.clone())].into());
                let converted = Converted { stored: elements.clone(), from: stride, to, conversion };
                let data = View::default().with_rendered(count.saturating_mul(to), converted);
                let shape = [&[count], &*plain.inner].concat();
                array_column(&name, &Array::new(plain.element.clone(), shape, data))
            }
        }
    }

    /// Returns the columns of a compound dataset; `None` if it is not a table.
    pub(super) fn compound_columns(
        &self,
        context: &ReadContext,
        described: &Described,
        memory: &dyn Memory,
    ) -> Result<Option<TableColumns>, Fault> {
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
        let mut columns = TableColumns::new(form.elements);
        for part in parts(dataset, &form.kind) {
            columns.add(memory, &part.name, |name| Ok(self.column(&elements, form.elements, stride, &part, name)))?;
        }
        Ok(Some(columns))
    }

    /// Returns a compound dataset as a table.
    pub(super) fn compound_table(
        &self,
        context: &ReadContext,
        described: &Described,
    ) -> Result<Option<Arc<Parquet>>, Fault> {
        let number = described.object.at;
        let made = laid_out(context, number, |memory| {
            let columns = self.compound_columns(context, described, memory)?;
            let columns = columns.ok_or_else(|| Fault::refused("a dataset that is no table"))?;
            columns.table(context, number, HDF5.name, memory)
        });
        made.map(Some)
    }
}
