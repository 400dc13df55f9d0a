//! Data that are stored in other files: external files and virtual datasets (section 6.4).

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    elements::{self, Missing},
    store::{Damage, Described, Held, Store, fault},
};
use crate::{
    cache::{BlockError, Key, Tag},
    format::{
        FormatError,
        hdf5::{self, Axis, Dataset, Found, Kind, Mapping, Object, Place, Places, Target},
    },
    limits,
    source::{Memory, Source, Unlimited, Wait},
    tree::{Siblings, memory::WorkingMemory},
    view::{Fault, ReadContext, Rendered, View},
    wanted,
};

/// Tags in the cache of other open files, by their paths, and of other open HDF5 files.
const FILE: Tag = Tag::Parsed(9);
const STORE: Tag = Tag::Parsed(10);

/// About the bytes of memory that an open file takes.
const OPEN_MEMORY: u64 = 1024;

/// Distinguishes the files of one open container from those of others.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Most virtual datasets and most links on the way to an element.
const DEPTH: u32 = 8;
const LINKS: u32 = 16;

/// Most mappings of virtual datasets that others lead to, for one read.
const LOOKED_AT: u64 = 1 << 20;

/// Most datasets that the names of one mapping may stand for.
const NUMBERED: u64 = 1 << 16;

/// The other files of a container.
pub(super) struct Outside {
    siblings: OnceLock<Arc<dyn Siblings>>,
    number: u64,
}

/// Another HDF5 file.
struct Other {
    store: Arc<Store>,
    source: Arc<dyn Source>,
}

impl Outside {
    /// Returns the files that `siblings` finds.
    pub(super) fn new(siblings: Option<Arc<dyn Siblings>>) -> Self {
        let siblings = siblings.map(OnceLock::from).unwrap_or_default();
        Self { siblings, number: NEXT.fetch_add(1, Relaxed) }
    }

    /// Sets what finds other files, unless it is set.
    pub(super) fn reach(&self, siblings: Arc<dyn Siblings>) {
        let _ = self.siblings.set(siblings);
    }

    /// Returns what finds other files.
    pub(super) fn siblings(&self) -> Option<&Arc<dyn Siblings>> {
        self.siblings.get()
    }

    fn key(&self, context: &ReadContext, tag: Tag, path: &str) -> Key {
        Key::of_name(context.container, tag, &[&self.number.to_le_bytes(), path.as_bytes()].concat())
    }

    /// Opens a file by its path below the container's folder.
    fn file(&self, context: &ReadContext, path: &str) -> Result<Arc<dyn Source>, Fault> {
        let file = self.file_if_there(context, path)?;
        file.ok_or_else(|| fault(0, &format!("{path:?} holds a part of the data, and is not there")))
    }

    /// Does the same; `None` if there is no file.
    fn file_if_there(&self, context: &ReadContext, path: &str) -> Result<Option<Arc<dyn Source>>, Fault> {
        let key = self.key(context, FILE, path);
        if let Some(file) = context.cache.parsed::<Arc<dyn Source>>(key) {
            return Ok(Some((*file).clone()));
        }
        if context.wait() != Wait::Always {
            return Err(BlockError::WouldBlock.into());
        }
        let siblings = self.siblings().ok_or_else(|| fault(0, "other files cannot be reached from here"))?;
        let Some(file) = siblings.file(path)? else { return Ok(None) };
        Ok(Some((*context.cache.keep_open(key, file, context.cache.hold(OPEN_MEMORY))).clone()))
    }

    /// Opens an HDF5 file by its path below the container's folder; `None` if there is no file.
    fn store(self: &Arc<Self>, context: &ReadContext, path: &str) -> Result<Option<Arc<Other>>, Fault> {
        let key = self.key(context, STORE, path);
        if let Some(other) = context.cache.parsed(key) {
            return Ok(Some(other));
        }
        let Some(source) = self.file_if_there(context, path)? else { return Ok(None) };
        let superblock = hdf5::parse(&*source, Some(path.as_bytes()), &Unlimited).map_err(|error| match error {
            FormatError::Source(error) => error.into(),
            error => fault(0, &format!("{path:?}: {error}")),
        })?;
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let store = Arc::new(Store::of_other(superblock, self.clone(), folder.into()));
        Ok(Some(context.cache.keep_open(key, Other { store, source }, context.cache.hold(OPEN_MEMORY))))
    }
}

/// Returns the path below the container's folder of a file that a file in `folder` names.
fn path_of(folder: &str, name: &[u8]) -> Result<String, Fault> {
    let leads_out =
        || fault(0, &format!("{:?} does not lead to a file below its folder", String::from_utf8_lossy(name)));
    let name = std::str::from_utf8(name).map_err(|_| leads_out())?;
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if name.starts_with('/') || parts.is_empty() || parts.contains(&"..") {
        return Err(leads_out());
    }
    Ok([folder].into_iter().filter(|folder| !folder.is_empty()).chain(parts).collect::<Vec<_>>().join("/"))
}

/// Bytes of another file.
struct Elsewhere {
    outside: Arc<Outside>,
    path: Box<str>,
    offset: u64,
}

impl std::fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} from {} on", self.path, self.offset)
    }
}

impl Rendered for Elsewhere {
    fn is_copy(&self) -> bool {
        true
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let file = self.outside.file(reader, &self.path)?;
        let at = self.offset.checked_add(part.start);
        let end = at.and_then(|at| at.checked_add(out.len() as u64)).filter(|end| *end <= file.len());
        match (at, end) {
            (Some(at), Some(_)) => reader.with_source(file).fill_stored(None, at, out),
            _ => Err(fault(file.len(), &format!("{:?} ends before the data that it should hold", self.path))),
        }
    }
}

/// Returns the stored elements of a dataset whose data are in other files.
pub(super) fn external(store: &Arc<Store>, context: &ReadContext, at: Place, size: u64) -> Result<View, Fault> {
    let slots = store.slots(context, at)?;
    let slots = match &slots.found {
        Ok(slots) => slots,
        Err(damage) => return Ok(Missing { place: damage.place, reason: damage.reason.clone() }.view(size)),
    };
    let (mut view, mut left) = (View::default(), size);
    for slot in slots {
        let here = slot.size.unwrap_or(u64::MAX).min(left);
        view = match path_of(&store.folder, &slot.file) {
            Ok(path) => {
                let part = Elsewhere { outside: store.outside.clone(), path: path.into(), offset: slot.offset };
                view.with_rendered(here, part)
            }
            Err(fault) => view.followed_by(Missing::of(&fault, here)),
        };
        left -= here;
    }
    let reason = "data in other files, of which there are too few".into();
    Ok(view.followed_by(Missing { place: store.superblock.sizes.base.saturating_add(at), reason }.view(left)))
}

/// How a read comes to a virtual dataset.
#[derive(Clone, Default)]
pub(super) struct Way {
    /// How many virtual datasets lead to it.
    depth: u32,
    /// Mappings of such datasets that the read looked at, on all ways.
    looked_at: Arc<AtomicU64>,
}

impl Way {
    fn to_next(&self) -> Self {
        Self { depth: self.depth + 1, looked_at: self.looked_at.clone() }
    }

    /// Counts a mapping.
    fn look(&self) -> Result<(), Fault> {
        match self.depth > 0 && self.looked_at.fetch_add(1, Relaxed) >= LOOKED_AT {
            true => Err(fault(0, "virtual datasets that lead to each other by too many mappings")),
            false => Ok(()),
        }
    }
}

/// The stored elements of a virtual dataset.
struct Mapped {
    store: Arc<Store>,
    at: Place,
    dataset: Arc<Held<Described>>,
    dims: Vec<u64>,
    element: u64,
    way: Way,
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "virtual dataset at {:x}", self.at)
    }
}

/// The dataset that a mapping takes elements from.
struct Taken {
    context: ReadContext,
    view: View,
    dims: Vec<u64>,
}

/// Returns the stored elements of the virtual dataset at an address.
pub(super) fn mapped(
    store: &Arc<Store>,
    context: &ReadContext,
    at: Place,
    dataset: &Dataset,
    size: u64,
    way: &Way,
) -> Result<View, Fault> {
    let place = store.superblock.sizes.base.saturating_add(at);
    let element = dataset.datatype.size;
    if element > limits::PIECE as u64 {
        return Ok(Missing { place, reason: "elements that are too large".into() }.view(size));
    }
    if way.depth >= DEPTH {
        return Ok(Missing { place, reason: "virtual datasets that lead to each other".into() }.view(size));
    }
    let described = store.object_at(context, at, way.depth)?;
    let dims = dims_of(dataset);
    let mapped = Mapped { store: store.clone(), at, dataset: described, dims, element, way: way.clone() };
    Ok(View::default().with_rendered(size, mapped))
}

impl Rendered for Mapped {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let element = self.element;
        let (first, end) = (part.start.div_ceil(element), part.end / element);
        // Only some bytes of the first and last element may be wanted.
        let partial = |number: u64, wanted: Range<u64>, out: &mut [u8]| -> Result<(), Fault> {
            let mut bytes = vec![0; element as usize];
            self.fill_elements(reader, number..number + 1, &mut bytes)?;
            out.copy_from_slice(&bytes[wanted.start as usize..wanted.end as usize]);
            Ok(())
        };
        if first > end {
            return partial(end, part.start - end * element..part.end - end * element, out);
        }
        let (front, rest) = out.split_at_mut((first * element - part.start) as usize);
        let (whole, back) = rest.split_at_mut(((end - first) * element) as usize);
        if !front.is_empty() {
            partial(first - 1, element - front.len() as u64..element, front)?;
        }
        if !whole.is_empty() {
            self.fill_elements(reader, first..end, whole)?;
        }
        if !back.is_empty() {
            partial(end, 0..back.len() as u64, back)?;
        }
        Ok(())
    }
}

impl Mapped {
    fn fault(&self, reason: &str) -> Fault {
        fault(self.store.superblock.sizes.base.saturating_add(self.at), reason)
    }

    fn fill_elements(&self, reader: &ReadContext, elements: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let described = self.dataset.found.as_ref().map_err(Damage::fault)?;
        let dataset = described.object.dataset().ok_or_else(|| self.fault("no dataset"))?;
        match dataset.missing() {
            Some(fill) => out.chunks_exact_mut(fill.len().max(1)).for_each(|out| out.copy_from_slice(fill)),
            None => out.fill(0),
        }
        // The first one of a read begins to count.
        let way = if self.way.depth == 0 { &Way::default() } else { &self.way };
        let mappings = self.store.mappings(reader, self.at)?;
        let memory = WorkingMemory::of_reader(reader);
        memory.hold();
        for mapping in mappings.found.as_ref().map_err(Damage::fault)? {
            wanted::check().map_err(|error| Fault::from(crate::source::SourceError::from(error)))?;
            way.look()?;
            memory.reserve(mapping.target.places_usage() + mapping.source.places_usage())?;
            let target = mapping.target.places(&self.dims).map_err(|reason| self.fault(reason))?;
            match (mapping.target.unlimited(), mapping.is_pattern) {
                (Some((axis, steps)), true) => {
                    for number in 0.. {
                        wanted::check().map_err(|error| Fault::from(crate::source::SourceError::from(error)))?;
                        let Some(block) = steps.block(number) else { break };
                        if block.end() > self.dims.get(axis).copied().unwrap_or(0) {
                            break;
                        }
                        let mut axes = target.axes.to_vec();
                        axes.splice(axis..=axis, [block]);
                        let target = Places { axes: axes.into(), dims: target.dims.clone() };
                        self.fill_from(reader, way, (mapping, Some(number)), target, &elements, out)?;
                    }
                }
                (None, true) => return Err(self.fault("a mapping of numbered names to a place")),
                (_, false) => self.fill_from(reader, way, (mapping, None), target, &elements, out)?,
            }
        }
        Ok(())
    }

    /// Copies the elements of a range that come from the source of a mapping, or from its source with a number.
    fn fill_from(
        &self,
        reader: &ReadContext,
        way: &Way,
        (mapping, number): (&Mapping, Option<u64>),
        target: Places<'_>,
        elements: &Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        if !touches(&target, elements) {
            return Ok(());
        }
        let described = self.dataset.found.as_ref().map_err(Damage::fault)?;
        let own = described.object.dataset().ok_or_else(|| self.fault("no dataset"))?;
        let without_limit = mapping.target.unlimited();
        let Some(taken) = self.taken(reader, way, own, (mapping, number))? else {
            // What stands for any number of datasets, or grows with one, maps nothing of those that are missing.
            if without_limit.is_some() {
                return Ok(());
            }
            let shown = String::from_utf8_lossy(&mapping.dataset).into_owned();
            return Err(self.fault(&format!("{shown:?} holds a part of the data, and is not there")));
        };
        let source = mapping.source.places(&taken.dims).map_err(|reason| self.fault(reason))?;
        let target = match (without_limit, mapping.source.unlimited()) {
            (Some((axis, _)), Some((from, _))) => target.first(axis, source.axes.get(from).map_or(0, Axis::len)),
            (Some(_), None) if number.is_none() => return Err(self.fault(ONE_LIMIT)),
            (None, Some(_)) => return Err(self.fault(ONE_LIMIT)),
            _ => target,
        };
        if target.count().is_none() || target.count() != source.count() {
            return Err(self.fault("a mapping of fewer elements than it puts"));
        }
        self.copy(&taken, (&source, &target), elements, out)
    }

    /// Copies the elements of a range that come from a mapping.
    fn copy(
        &self,
        taken: &Taken,
        (source, target): (&Places<'_>, &Places<'_>),
        elements: &Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let (Some((last, outer)), Some(&width)) = (target.axes.split_last(), target.dims.last()) else { return Ok(()) };
        let strides = strides(&source.dims);
        let mut pending: Option<(u64, u64, u64)> = None;
        let mut flush = |(from, to, count): (u64, u64, u64)| {
            let out = &mut out[(to * self.element) as usize..((to + count) * self.element) as usize];
            taken.view.fill_at(&taken.context, from * self.element, out)
        };
        let mut row = elements.start / width;
        while row * width < elements.end {
            let number = match outer_number(outer, &target.dims, row) {
                Ok(number) => number,
                Err(next) => {
                    row = next;
                    continue;
                }
            };
            let start = row * width;
            let (mut x, end) = (elements.start.max(start) - start, elements.end.min(start + width) - start);
            while x < end {
                let (inner, left) = match last.find(x) {
                    Found::Inside(inner, left) => (inner, left.min(end - x)),
                    Found::Outside(Some(on)) => {
                        x += on;
                        continue;
                    }
                    Found::Outside(None) => break,
                };
                let mut done = 0;
                while done < left {
                    let at = locate(&source.axes, &strides, number * last.len() + inner + done);
                    let (from, more) = at.ok_or_else(|| self.fault("a mapping of fewer elements than it puts"))?;
                    let (to, count) = (start + x + done - elements.start, more.min(left - done));
                    pending = match pending {
                        Some((a, b, length)) if a + length == from && b + length == to => Some((a, b, length + count)),
                        other => {
                            other.map_or(Ok(()), &mut flush)?;
                            Some((from, to, count))
                        }
                    };
                    done += count;
                }
                x += left;
            }
            row += 1;
        }
        pending.map_or(Ok(()), flush)
    }

    /// Returns the dataset that a mapping takes elements from; `None` if it is not there.
    fn taken(
        &self,
        reader: &ReadContext,
        way: &Way,
        own: &Dataset,
        (mapping, number): (&Mapping, Option<u64>),
    ) -> Result<Option<Taken>, Fault> {
        let Some(found) = source_of(&self.store, reader, mapping, number, way.depth)? else { return Ok(None) };
        let SourceOf { other, context, at, described } = found;
        let store = other.as_ref().map_or(&self.store, |other| &other.store);
        let shown = || String::from_utf8_lossy(&mapping.dataset).into_owned();
        let described = described.found.as_ref().map_err(Damage::fault)?;
        let Some(dataset) = described.object.dataset() else {
            return Err(self.fault(&format!("{:?} holds a part of the data, and is no dataset", shown())));
        };
        if dataset.datatype != own.datatype {
            return Err(self.fault(&format!("{:?} holds a part of the data in another type", shown())));
        }
        if other.is_some() && dataset.datatype.is_in_heap() {
            return Err(self.fault("texts, sequences or references that another file holds"));
        }
        let view = elements::unturned(store, &context, at, dataset, &way.to_next())?;
        Ok(Some(Taken { context, view, dims: dims_of(dataset) }))
    }
}

/// Why a mapping of which one side has no limit is refused.
const ONE_LIMIT: &str = "a mapping of which only one side is without a limit";

/// Returns the axes of a dataset; a scalar is a list of one.
fn dims_of(dataset: &Dataset) -> Vec<u64> {
    let dims = dataset.space.dims.clone().unwrap_or_default();
    if dims.is_empty() { vec![1] } else { dims }
}

/// The object that a mapping takes elements from.
struct SourceOf {
    /// The file that has it, if it is not the same one.
    other: Option<Arc<Other>>,
    context: ReadContext,
    at: Place,
    described: Arc<Held<Described>>,
}

/// Returns the object that a mapping of a dataset takes elements from; `None` if it is not there. `depth` virtual datasets
/// lead to the dataset.
fn source_of(
    store: &Store,
    context: &ReadContext,
    mapping: &Mapping,
    number: Option<u64>,
    depth: u32,
) -> Result<Option<SourceOf>, Fault> {
    let (other, context) = match &mapping.file {
        None => (None, context.clone()),
        Some(name) => {
            let path = path_of(&store.folder, &hdf5::plain_name(name, number))?;
            let Some(other) = store.outside.store(context, &path)? else { return Ok(None) };
            let context = context.with_source(other.source.clone());
            (Some(other), context)
        }
    };
    let store = other.as_ref().map_or(store, |other| &*other.store);
    let Some(at) = find(store, &context, &hdf5::plain_name(&mapping.dataset, number))? else { return Ok(None) };
    let described = store.object_at(&context, at, depth + 1)?;
    Ok(Some(SourceOf { other, context, at, described }))
}

/// Returns the shape of a virtual dataset, of which an axis may be as long as the datasets that it takes elements from.
/// `depth` virtual datasets lead to it.
pub(super) fn extent(
    store: &Store,
    context: &ReadContext,
    (dataset, mappings): (&Dataset, &[Mapping]),
    depth: u32,
) -> Result<Vec<u64>, Fault> {
    if depth >= DEPTH {
        return Err(fault(0, "virtual datasets that lead to each other"));
    }
    let mut dims = dataset.space.dims.clone().unwrap_or_default();
    // What fixed mappings need, and how far the others reach.
    let (mut least, mut reach) = (vec![0; dims.len()], vec![None; dims.len()]);
    for mapping in mappings {
        wanted::check().map_err(|error| Fault::from(crate::source::SourceError::from(error)))?;
        let without_limit = mapping.target.unlimited();
        if let hdf5::Selection::Axes(axes) = &mapping.target {
            for (least, axis) in least.iter_mut().zip(axes).filter(|(_, axis)| !axis.is_unlimited()) {
                *least = axis.end().max(*least);
            }
        }
        let Some((axis, steps)) = without_limit else { continue };
        let places = match (mapping.source.unlimited(), mapping.is_pattern) {
            (Some((from, selected)), false) => {
                let found = source_of(store, context, mapping, None, depth)?;
                let found = found.as_ref().and_then(|found| found.described.found.as_ref().ok());
                let dataset = found.and_then(|described| described.object.dataset());
                let end = dataset.and_then(|dataset| dataset.space.dims.as_ref()?.get(from).copied());
                selected.before(end.unwrap_or(0))
            }
            (None, true) => {
                let mut number = 0;
                while source_of(store, context, mapping, Some(number), depth)?.is_some() {
                    wanted::check().map_err(|error| Fault::from(crate::source::SourceError::from(error)))?;
                    number += 1;
                    if number > NUMBERED {
                        return Err(fault(0, "a mapping to more than 65,536 numbered datasets"));
                    }
                }
                number.saturating_mul(steps.block(0).map_or(0, |block| block.len()))
            }
            _ => return Err(fault(0, ONE_LIMIT)),
        };
        let end = steps.first(places).end();
        if let Some(reach) = reach.get_mut(axis) {
            *reach = Some(reach.map_or(end, |known: u64| known.max(end)));
        }
    }
    for ((dim, least), reach) in dims.iter_mut().zip(least).zip(reach) {
        *dim = reach.map_or(*dim, |reach| reach.max(least));
    }
    Ok(dims)
}

/// Returns whether a mapping may have elements in a range, by the first axis alone.
fn touches(target: &Places<'_>, elements: &Range<u64>) -> bool {
    if target.axes.iter().any(Axis::is_empty) || elements.is_empty() {
        return false;
    }
    let inner: u64 = target.dims.iter().skip(1).product();
    let (Some(axis), 1..) = (target.axes.first(), inner) else { return false };
    let (first, last) = (elements.start / inner, (elements.end - 1) / inner);
    match axis.find(first) {
        Found::Inside(..) => true,
        Found::Outside(on) => on.is_some_and(|on| first + on <= last),
    }
}

/// Returns the number of a row among those that are selected on the outer axes, or the next row that may be one.
fn outer_number(outer: &[Axis], dims: &[u64], row: u64) -> Result<u64, u64> {
    let mut rows: u64 = dims.iter().take(outer.len()).product();
    let mut number = 0;
    for (axis, dim) in outer.iter().zip(dims) {
        let above = rows;
        rows /= (*dim).max(1);
        match axis.find(row / rows % dim) {
            Found::Inside(at, _) => number = number * axis.len() + at,
            Found::Outside(Some(on)) => return Err((row / rows + on) * rows),
            Found::Outside(None) => return Err((row / above + 1) * above),
        }
    }
    Ok(number)
}

/// Returns the distance between neighbours along each axis, in elements.
fn strides(dims: &[u64]) -> Vec<u64> {
    let mut strides: Vec<u64> = dims
        .iter()
        .rev()
        .scan(1u64, |stride, dim| {
            let own = *stride;
            *stride = stride.saturating_mul(*dim);
            Some(own)
        })
        .collect();
    strides.reverse();
    strides
}

/// Returns the place in a dataset of the selected element with a number, and the number of consecutive selected
/// elements from it on, including itself.
fn locate(source: &[Axis], strides: &[u64], number: u64) -> Option<(u64, u64)> {
    let (mut rest, mut at, mut left) = (number, 0u64, 0);
    for (place, (axis, stride)) in source.iter().zip(strides).enumerate().rev() {
        let count = axis.len();
        let (coordinate, here) = axis.place(rest.checked_rem(count)?)?;
        if place + 1 == source.len() {
            left = here;
        }
        at = at.checked_add(coordinate.checked_mul(*stride)?)?;
        rest /= count;
    }
    (rest == 0).then_some((at, left))
}

/// Returns the address of an object by its path from the root.
fn find(store: &Store, context: &ReadContext, path: &[u8]) -> Result<Option<Place>, Fault> {
    fn parts(path: &[u8]) -> Vec<Box<[u8]>> {
        path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").rev().map(Box::from).collect()
    }
    let mut rest = parts(path);
    let mut current = store.superblock.root;
    let mut links = 0;
    while let Some(part) = rest.pop() {
        let object = store.object(context, current)?;
        let object = object.found.as_ref().map_err(Damage::fault)?;
        if !matches!(object.object, Object { kind: Kind::Group(_), .. }) {
            return Ok(None);
        }
        let all = store.links(context, current)?;
        let all = all.found.as_ref().map_err(Damage::fault)?;
        let target = store.reading(context, |reader| match all.find(reader, &part)? {
            Some(number) => Ok(all.get(reader, number)?.map(|link| link.target)),
            None => Ok(None),
        })?;
        match target {
            Some(Target::Hard(at)) => current = at,
            Some(Target::Soft(path)) => {
                links += 1;
                if links > LINKS {
                    return Ok(None);
                }
                if path.starts_with(b"/") {
                    current = store.superblock.root;
                }
                rest.extend(parts(&path));
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(current))
}
