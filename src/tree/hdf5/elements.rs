//! The elements of datasets, wherever they are stored.

use std::{ops::Range, sync::Arc};

use super::{
    chunks,
    convert::{Conversion, Converted},
    form::{Form, Plain},
    outside,
    rows::HeapRows,
    store::{Described, Store, fault},
};
use crate::{
    format::{
        DType,
        hdf5::{Dataset, Layout, Place},
    },
    tree::memory::WorkingMemory,
    view::{
        Array, Fault, ReadContext, Rendered, View,
        grid::{Grid, Turn},
    },
};

/// Largest element in bytes whose array of chunks is kept.
const LARGE: u64 = 64 << 10;

/// A range that cannot be read, and why.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    pub(super) place: u64,
    pub(super) reason: Arc<str>,
}

impl Missing {
    /// Returns a file of bytes that cannot be read.
    pub(super) fn view(self, size: u64) -> View {
        View::default().with_rendered(size, self)
    }

    /// Returns a file of bytes that cannot be read because of a failure.
    pub(super) fn of(fault: &Fault, size: u64) -> View {
        Self { place: fault.offset, reason: fault.error.to_string().into() }.view(size)
    }
}

impl Rendered for Missing {
    fn fill(&self, _: &ReadContext, _: Range<u64>, _: &mut [u8]) -> Result<(), Fault> {
        Err(fault(self.place, &self.reason))
    }
}

/// Elements that all have one value.
#[derive(Debug)]
struct Filled {
    value: Box<[u8]>,
}

impl Rendered for Filled {
    fn fill(&self, _: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let from = (part.start % (self.value.len() as u64).max(1)) as usize;
        out.iter_mut().zip(self.value.iter().cycle().skip(from)).for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

/// Zeros.
#[derive(Debug)]
struct Zeros;

impl Rendered for Zeros {
    fn fill(&self, _: &ReadContext, _: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        out.fill(0);
        Ok(())
    }
}

/// Returns the change of byte order that is made in the chunks of a dataset when they are read, and whether no other
/// conversion is needed.
fn turn_of(form: &Form) -> (Turn, bool) {
    match &form.kind {
        super::form::FormKind::Plain(plain) if plain.inner.is_empty() => match plain.conversion.turn(plain.stored) {
            Some(turn) => (turn, true),
            None => (Turn::No, plain.conversion == Conversion::Bool),
        },
        _ => (Turn::No, false),
    }
}

/// Returns the array of a dataset in chunks.
pub(super) fn grid(
    store: &Arc<Store>,
    context: &ReadContext,
    at: Place,
    dataset: &Dataset,
    form: &Form,
) -> Result<Arc<Grid>, Fault> {
    let make = || chunks::grid(store, at, dataset, turn_of(form).0);
    // Not kept for large elements, because each array has one for absent chunks.
    if dataset.datatype.size > LARGE { make() } else { store.grid(context, at, true, make) }
}

/// Returns the elements of a dataset as they are stored, in C order. The byte order of those in chunks is changed by
/// [`turn_of`].
pub(super) fn stored(
    store: &Arc<Store>,
    context: &ReadContext,
    at: Place,
    dataset: &Dataset,
    form: &Form,
) -> Result<View, Fault> {
    match dataset.layout {
        Layout::Chunked(_) => Ok(grid(store, context, at, dataset, form)?.view()),
        _ => unturned(store, context, at, dataset, &outside::Way::default()),
    }
}

/// Returns the elements of a dataset exactly as they are stored, in C order. `way` is how a read comes to it.
pub(super) fn unturned(
    store: &Arc<Store>,
    context: &ReadContext,
    at: Place,
    dataset: &Dataset,
    way: &outside::Way,
) -> Result<View, Fault> {
    let size = dataset.space.elements().unwrap_or(0).saturating_mul(dataset.datatype.size);
    let base = store.superblock.sizes.base;
    if dataset.external.is_some() {
        return outside::external(store, context, at, size);
    }
    let piece = |start: u64, length: u64| {
        let end = start.saturating_add(length.min(size)).min(context.source.len()).max(start);
        let missing = size - (end - start).min(size);
        let reason: Arc<str> = format!("data of {size} bytes, of which the last {missing} are not stored").into();
        View::stored(start..end).followed_by(Missing { place: end, reason }.view(missing))
    };
    Ok(match &dataset.layout {
        Layout::Compact(place, length) => piece(*place, *length),
        Layout::Contiguous(Some(at), length) => piece(base.saturating_add(*at), length.unwrap_or(size)),
        Layout::Contiguous(None, _) => match dataset.missing() {
            Some(value) => View::default().with_rendered(size, Filled { value: value.into() }),
            None => View::default().with_rendered(size, Zeros),
        },
        Layout::Chunked(_) => {
            let make = || chunks::grid(store, at, dataset, Turn::No);
            if dataset.datatype.size > LARGE { make()?.view() } else { store.grid(context, at, false, make)?.view() }
        }
        Layout::Virtual(..) => outside::mapped(store, context, at, dataset, size, way)?,
    })
}

/// Returns the array of a dataset.
pub(super) fn array(
    store: &Arc<Store>,
    context: &ReadContext,
    described: &Described,
    plain: &Plain,
) -> Result<Option<Array>, Fault> {
    let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else { return Ok(None) };
    let view = stored(store, context, described.object.at, dataset, form)?;
    let is_done = matches!(dataset.layout, Layout::Chunked(_)) && turn_of(form).1;
    let view = match &plain.conversion {
        Conversion::Bool => booleans(view, context),
        // If elements are arrays, the array of chunks has other axes.
        Conversion::Copy(_) if plain.inner.is_empty() || !matches!(dataset.layout, Layout::Chunked(_)) => view,
        _ if is_done => view,
        conversion => {
            let (from, to) = (plain.stored, plain.shown());
            let size = form.elements.saturating_mul(to);
            let conversion = conversion.clone();
            View::default().with_rendered(size, Converted { stored: view, from, to, conversion })
        }
    };
    Ok(Some(Array::new(plain.element.clone(), form.shape(), view)))
}

/// Returns bytes as numpy's bool.
fn booleans(view: View, context: &ReadContext) -> View {
    let _ = context;
    if view.size() == 0 {
        return view;
    }
    view.into_bool()
}

/// Returns elements that are in memory as they are shown.
pub(super) fn shown(plain: &Plain, data: &[u8]) -> Vec<u8> {
    let (from, to) = (plain.stored.max(1) as usize, plain.shown().max(1) as usize);
    let mut made = vec![0; data.len() / from * to];
    for (stored, out) in data.chunks_exact(from).zip(made.chunks_exact_mut(to)) {
        plain.conversion.apply(stored, out);
    }
    made
}

/// Returns the array of elements of a type that are in memory.
pub(super) fn inline(plain: &Plain, dims: &[u64], data: &[u8]) -> Array {
    let shape: Vec<u64> = dims.iter().chain(&plain.inner).copied().collect();
    Array::new(
        if plain.element == DType::Bool { DType::Bool.into() } else { plain.element.clone() },
        shape,
        View::inline(shown(plain, data)),
    )
}

/// The bytes of a file.
#[derive(Debug)]
pub(super) struct Whole(pub(super) View);

impl Rendered for Whole {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.0.fill_at(reader, part.start, out)
    }
}

/// The bytes of a file from a place on.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) of: View,
    pub(super) start: u64,
}

impl Rendered for Section {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.of.fill_at(reader, self.start.saturating_add(part.start), out)
    }
}

/// One row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) rows: HeapRows,
    pub(super) number: u64,
}

impl Rendered for Row {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        let row = self.rows.row(reader, &memory, self.number)?;
        let bytes = row.get(part.start as usize..part.end as usize);
        out.copy_from_slice(bytes.ok_or_else(|| fault(0, "a row has another length than stated"))?);
        Ok(())
    }
}
