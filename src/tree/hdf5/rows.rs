//! Rows of datasets in the global heap: texts, sequences, and values that are shown as JSON.

use std::{cell::Cell, fmt, ops::Range, sync::Arc};

use super::{
    convert::Conversion,
    form::Plain,
    store::{Damage, Held, Store, fault},
    values::Values,
};
use crate::{
    format::hdf5::{Class, Datatype, Place, global_heap::Collection},
    limits,
    source::{Memory, SourceError, zeros},
    tree::rows::Rows,
    view::{Fault, ReadContext, View},
    wanted,
};

/// A reference to an object of the global heap, as elements store it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lead {
    /// Items of the object.
    pub(super) length: u32,
    at: Option<Place>,
    number: u32,
}

impl Lead {
    /// Reads a stored element. An address has `offset` bytes.
    pub(super) fn read(element: &[u8], offset: u8) -> Option<Self> {
        let offset = usize::from(offset);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let address = element.get(4..4 + offset)?;
        let is_undefined = address.iter().all(|byte| *byte == 0xff);
        Some(Self {
            length: number(element.get(..4)?) as u32,
            at: (!is_undefined).then(|| number(address)),
            number: number(element.get(4 + offset..8 + offset)?) as u32,
        })
    }

    /// Passes the object, which has at least `size` bytes, to `each`.
    pub(super) fn with<T>(
        self,
        store: &Store,
        context: &ReadContext,
        last: &mut Option<(Place, Arc<Held<Collection>>)>,
        size: u64,
        each: impl FnOnce(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let at = self.at.ok_or_else(|| fault(0, "an element that leads nowhere"))?;
        let place = store.superblock.sizes.base.saturating_add(at);
        let collection = match last {
            Some((known, collection)) if *known == at => collection.clone(),
            _ => store.heap(context, at)?,
        };
        *last = Some((at, collection.clone()));
        let collection = collection.found.as_ref().map_err(Damage::fault)?;
        let object = collection.get(self.number);
        let object = object.ok_or_else(|| fault(place, &format!("no object {} in the global heap", self.number)))?;
        let bytes = usize::try_from(size).ok().and_then(|size| object.get(..size));
        each(bytes.ok_or_else(|| {
            let reason = format!("an object of {} bytes in the global heap, where {size} are needed", object.len());
            fault(place, &reason)
        })?)
    }
}

/// Passes the stored elements of a range of rows to `each`.
pub(super) fn each_element(
    elements: &View,
    width: u64,
    reader: &ReadContext,
    memory: &dyn Memory,
    rows: Range<u64>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let width = width.max(1);
    let together = (limits::FIRST_PIECE as u64 / width).clamp(1, rows.end.saturating_sub(rows.start).max(1));
    let size = width.saturating_mul(together);
    memory.reserve(size)?;
    let mut piece = zeros(usize::try_from(size).unwrap_or(usize::MAX)).map_err(SourceError::from)?;
    let mut first = rows.start;
    while first < rows.end {
        wanted::check().map_err(SourceError::from)?;
        let count = together.min(rows.end - first);
        let Some(piece) = piece.get_mut(..(count * width) as usize) else { break };
        elements.fill_at(reader, first.saturating_mul(width), piece)?;
        piece.chunks_exact(width as usize).try_for_each(&mut *each)?;
        first += count;
    }
    Ok(())
}

/// Texts or sequences in the global heap.
#[derive(Debug)]
pub(super) struct HeapRows {
    pub(super) store: Arc<Store>,
    /// The stored elements, and how many.
    pub(super) elements: View,
    pub(super) count: u64,
    /// The type of the items; texts have none.
    pub(super) items: Option<Plain>,
}

impl HeapRows {
    fn width(&self) -> u64 {
        8 + u64::from(self.store.superblock.sizes.offset)
    }

    fn lead(&self, element: &[u8]) -> Result<Lead, Fault> {
        Lead::read(element, self.store.superblock.sizes.offset).ok_or_else(|| fault(0, "an element that is too short"))
    }

    /// Returns one row.
    pub(super) fn row(&self, reader: &ReadContext, memory: &dyn Memory, row: u64) -> Result<Vec<u8>, Fault> {
        let mut found = Vec::new();
        self.each(reader, memory, row..row.saturating_add(1), &mut |row| {
            let row = row.unwrap_or_default();
            memory.reserve(row.len() as u64)?;
            found = row.to_vec();
            Ok(())
        })?;
        Ok(found)
    }
}

impl Rows for HeapRows {
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
        let stored = self.items.as_ref().map_or(1, |items| items.stored);
        let (mut last, mut made, mut reserved) = (None, Vec::new(), 0);
        each_element(&self.elements, self.width(), reader, memory, rows, &mut |element| {
            let lead = self.lead(element)?;
            if lead.length == 0 {
                return each(Some(&[]));
            }
            let size = u64::from(lead.length).saturating_mul(stored);
            lead.with(&self.store, reader, &mut last, size, |object| match &self.items {
                None => each(Some(object)),
                Some(Plain { conversion: Conversion::Copy(_), .. }) => each(Some(object)),
                Some(items) => {
                    let shown = items.shown();
                    let most = u64::from(lead.length).saturating_mul(shown);
                    if most > reserved {
                        memory.reserve(most - reserved)?;
                        reserved = most;
                    }
                    made.clear();
                    made.resize(usize::try_from(most).unwrap_or(usize::MAX), 0);
                    let items_of = object.chunks_exact(stored.max(1) as usize);
                    for (stored, out) in items_of.zip(made.chunks_exact_mut(shown.max(1) as usize)) {
                        items.conversion.apply(stored, out);
                    }
                    each(Some(&made))
                }
            })
        })
    }

    fn lengths(
        &self,
        reader: &ReadContext,
        memory: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let shown = self.items.as_ref().map_or(1, Plain::shown);
        each_element(&self.elements, self.width(), reader, memory, rows, &mut |element| {
            each(u64::from(self.lead(element)?.length).saturating_mul(shown))
        })
    }
}

/// Memory for rows that are read one at a time: as much as the largest takes.
struct OneRow<'a> {
    memory: &'a dyn Memory,
    used: Cell<u64>,
    reserved: Cell<u64>,
}

impl Memory for OneRow<'_> {
    fn reserve(&self, bytes: u64) -> Result<(), SourceError> {
        let used = self.used.get().saturating_add(bytes);
        if used > self.reserved.get() {
            self.memory.reserve(used - self.reserved.get())?;
            self.reserved.set(used);
        }
        self.used.set(used);
        Ok(())
    }
}

/// Elements as JSON, one on each line.
pub(super) struct JsonRows {
    pub(super) store: Arc<Store>,
    pub(super) elements: View,
    pub(super) count: u64,
    pub(super) datatype: Datatype,
    /// Whether the JSON is exact ([`crate::view::attributes::Value::exact_line`]).
    pub(super) is_exact: bool,
}

impl fmt::Debug for JsonRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows", self.count)
    }
}

impl Rows for JsonRows {
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
        let memory = &OneRow { memory, used: Cell::new(0), reserved: Cell::new(0) };
        let mut values = Values::new(&self.store, reader, memory);
        values.has_paths_alone = matches!(self.datatype.class, Class::Reference(_));
        each_element(&self.elements, self.datatype.size, reader, memory, rows, &mut |element| {
            memory.used.set(0);
            let value = values.element(&self.datatype, element)?;
            each(Some(&if self.is_exact { value.exact_line(reader, memory) } else { value.line(reader, memory) }?))
        })
    }
}
