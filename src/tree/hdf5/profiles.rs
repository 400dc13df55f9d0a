//! Tables that are added to well-known kinds of files: AnnData, robot recordings, and flat data of reinforcement
//! learning (section 8).

use std::{ops::ControlFlow, sync::Arc};

use super::{
    HDF5, Hdf5,
    form::{FormKind, Plain},
    group::Group,
    node::{Node, Part},
    store::{Damage, Described, Held},
};
use crate::{
    format::{
        DType,
        hdf5::{Class, Link, Target, attribute::Attribute},
    },
    source::Memory,
    tree::{
        NodeId,
        data_frames::{self, Member},
        memory::WorkingMemory,
        names,
        rows::{FixedTexts, Rows},
        tables::{Described as DescribedTable, SUFFIX, TableColumns, laid_out, text_column},
    },
    view::{
        Array, Fault, ReadContext, View,
        parquet::{Column, Element, Missing, Parquet},
    },
};

/// The prefix of a recorded episode's name.
const DEMO: &[u8] = b"demo_";

/// The datasets of every flat file of reinforcement learning.
const FLAT: [&[u8]; 4] = [b"observations", b"actions", b"rewards", b"terminals"];

/// Numbers of the tables of profiles in the cache. No object has such an address.
const NUMBERS: u64 = u64::MAX - 8;

/// A table that is added in the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// The data frame of a group.
    Frame(&'static str),
    /// A row for each recorded episode.
    Episodes,
    /// A row for each step.
    Steps,
}

impl Profile {
    const ALL: [Self; 4] = [Self::Frame("obs"), Self::Frame("var"), Self::Episodes, Self::Steps];

    fn part(self) -> &'static str {
        match self {
            Self::Frame(name) => name,
            Self::Episodes => "episodes",
            Self::Steps => "steps",
        }
    }
}

/// Texts in memory.
#[derive(Debug)]
struct Texts(Vec<Box<[u8]>>);

impl Rows for Texts {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn each(
        &self,
        _: &ReadContext,
        _: &dyn Memory,
        rows: std::ops::Range<u64>,
        each: &mut dyn FnMut(Option<&[u8]>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let rows = self.0.get(rows.start as usize..rows.end as usize).unwrap_or_default();
        rows.iter().try_for_each(|row| each(Some(row)))
    }
}

/// An object that a link of a group leads to directly.
struct Found<'a> {
    hdf5: &'a Hdf5,
    group: Option<Arc<Group>>,
    object: Arc<Held<Described>>,
}

impl Found<'_> {
    fn described(&self) -> Option<&Described> {
        self.object.found.as_ref().ok()
    }

    /// Does the same, where no object may be left out.
    fn sound(&self) -> Result<&Described, Fault> {
        self.object.found.as_ref().map_err(Damage::fault)
    }
}

impl Member for Found<'_> {
    fn member(&self, reader: &ReadContext, name: &[u8]) -> Result<Option<Self>, Fault> {
        // Names of links have no slash: a writer that is given one makes groups.
        let mut found = None;
        for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let Some(group) = &found.as_ref().unwrap_or(self).group else { return Ok(None) };
            match self.hdf5.found(reader, group, part)? {
                Some(next) => found = Some(next),
                None => return Ok(None),
            }
        }
        Ok(found)
    }

    fn is_group(&self) -> bool {
        self.group.is_some()
    }

    fn texts(&self, reader: &ReadContext, attribute: &str) -> Result<Option<Vec<Box<[u8]>>>, Fault> {
        self.described().map_or(Ok(None), |described| self.hdf5.texts(reader, described, attribute.as_bytes()))
    }

    fn axes(&self) -> Option<&[u64]> {
        Some(&self.described()?.form.as_ref()?.dims)
    }

    fn text_rows(&self, reader: &ReadContext) -> Result<Option<Arc<dyn Rows>>, Fault> {
        self.described().map_or(Ok(None), |described| self.hdf5.text_rows(reader, described))
    }

    fn array(&self, reader: &ReadContext) -> Result<Option<Array>, Fault> {
        self.described().map_or(Ok(None), |described| self.hdf5.array_of(reader, described))
    }
}

/// Returns the number of an episode.
fn demo(name: &[u8]) -> Option<u128> {
    let digits =
        name.strip_prefix(DEMO).filter(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))?;
    // A number that does not fit counts as the largest.
    Some(std::str::from_utf8(digits).ok()?.parse().unwrap_or(u128::MAX))
}

impl Hdf5 {
    /// Returns an object that a link of a group leads to directly.
    fn found(&self, context: &ReadContext, group: &Arc<Group>, name: &[u8]) -> Result<Option<Found<'_>>, Fault> {
        let Some(number) = group.find(&self.store, context, name)? else { return Ok(None) };
        let Some(link) = group.link(&self.store, context, number)? else { return Ok(None) };
        self.found_by(context, group, &link)
    }

    fn found_by(&self, context: &ReadContext, group: &Arc<Group>, link: &Link<'_>) -> Result<Option<Found<'_>>, Fault> {
        let Target::Hard(at) = link.target else { return Ok(None) };
        let object = self.store.object(context, at)?;
        let group = group.child(&self.store, context, link)?;
        Ok(Some(Found { hdf5: self, group, object }))
    }

    /// Returns an attribute of an object.
    fn attribute<T>(
        &self,
        context: &ReadContext,
        described: &Described,
        name: &[u8],
        take: impl FnOnce(&Attribute) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        if !super::shown::has_attributes(described) {
            return Ok(None);
        }
        let all = self.store.attributes(context, &described.object)?;
        let all = all.found.as_ref().map_err(Damage::fault)?;
        Ok(all.iter().find(|attribute| *attribute.name == *name).and_then(take))
    }

    /// Returns the texts of an attribute.
    fn texts(
        &self,
        context: &ReadContext,
        described: &Described,
        name: &[u8],
    ) -> Result<Option<Vec<Box<[u8]>>>, Fault> {
        use crate::view::attributes::Value;
        let value = self.attribute(context, described, name, |attribute| {
            let stored = attribute.value.as_ref().ok()?;
            let is_text = matches!(stored.datatype.class, Class::Text(..) | Class::VaryingText(..));
            is_text.then(|| (stored.datatype.clone(), stored.space.clone(), stored.data.clone()))
        });
        let value = value.and_then(|stored| {
            let Some((datatype, space, data)) = stored else { return Ok(None) };
            let stored = crate::format::hdf5::attribute::Stored { datatype, space, data };
            let memory = WorkingMemory::of_reader(context);
            memory.hold();
            super::values::Values::new(&self.store, context, &memory).attribute(&stored).map(Some)
        });
        let value = match value {
            Ok(Some(value)) => value,
            Ok(None) => return Ok(None),
            Err(fault) if fault.error.is_damage() => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let text = |value: Value| if let Value::Text(text) = value { Some(text) } else { None };
        Ok(match value {
            Value::Nested(_, values) => values.into_iter().map(text).collect(),
            value => text(value).map(|text| vec![text]),
        })
    }

    /// Returns the tables that are added in the root.
    pub(super) fn profiles(&self, context: &ReadContext) -> Result<&[Profile], Fault> {
        if let Some(known) = self.profiles.get() {
            return Ok(known);
        }
        let mut found = Vec::new();
        for profile in Profile::ALL {
            let is_there = match profile {
                Profile::Frame(name) => match self.found(context, &self.root, name.as_bytes())? {
                    Some(found) => self.is_shown(context, name, &found)?,
                    None => false,
                },
                Profile::Episodes => match self.found(context, &self.root, b"data")? {
                    Some(Found { group: Some(group), .. }) => self.has_demos(context, &group)?,
                    _ => false,
                },
                Profile::Steps => self.steps(context)?.is_some(),
            };
            if is_there {
                found.push(profile);
            }
        }
        Ok(self.profiles.get_or_init(|| found.into()))
    }

    /// Returns whether a group is a data frame that can be shown as a table. If it is one that cannot, notes why.
    fn is_shown(&self, context: &ReadContext, name: &str, found: &Found<'_>) -> Result<bool, Fault> {
        let Some(group) = &found.group else { return Ok(false) };
        if !data_frames::is_frame(context, found)? {
            return Ok(false);
        }
        let memory = WorkingMemory::of_reader(context);
        memory.hold();
        let (offset, reason) = match data_frames::without_columns(context, found, &memory) {
            Ok(None) => return Ok(true),
            Ok(Some(reason)) => (None, reason),
            Err(fault) if fault.error.is_damage() => (Some(fault.offset), fault.error.to_string()),
            Err(fault) => return Err(fault),
        };
        self.note(group.place, offset, format!("the data frame {name:?} has no table: {reason}"));
        Ok(false)
    }

    fn has_demos(&self, context: &ReadContext, group: &Arc<Group>) -> Result<bool, Fault> {
        if group.links().is_err() {
            return Ok(false);
        }
        let mut has_demos = false;
        group.each(&self.store, context, &mut |link| {
            has_demos = demo(&link.name).is_some() && group.child(&self.store, context, link)?.is_some();
            Ok(if has_demos { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(has_demos)
    }

    /// Returns the number of steps of flat data.
    fn steps(&self, context: &ReadContext) -> Result<Option<u64>, Fault> {
        let mut steps = None;
        for name in FLAT {
            let Some(found) = self.found(context, &self.root, name)? else { return Ok(None) };
            let form = found.described().and_then(|described| described.form.as_ref());
            let Some(first) = form.and_then(|form| form.dims.first().copied()) else { return Ok(None) };
            if *steps.get_or_insert(first) != first {
                return Ok(None);
            }
        }
        Ok(steps)
    }

    /// Returns the name of a profile's table. If a table of a compound has the name, that table keeps it.
    fn profile_name(&self, context: &ReadContext, profile: Profile) -> Result<String, Fault> {
        for number in 1..=u32::MAX {
            let name = names::file(profile.part().as_bytes(), SUFFIX, number);
            if self.find(context, &self.root, &name)?.is_none() {
                return Ok(name);
            }
        }
        Ok(String::new())
    }

    /// Returns the nodes of the tables that are added, with their names.
    pub(super) fn profile_nodes(&self, context: &ReadContext) -> Result<Vec<(String, Node)>, Fault> {
        let all = self.profiles(context)?.iter().zip(0..);
        all.map(|(profile, number)| {
            Ok((self.profile_name(context, *profile)?, Node::item(Part::Profile, self.root.place, number)))
        })
        .collect()
    }

    /// Returns the node of a table that is added, by its name.
    pub(super) fn lookup_profile(&self, context: &ReadContext, name: &str) -> Result<Option<NodeId>, Fault> {
        if !name.ends_with(SUFFIX) {
            return Ok(None);
        }
        let found = self.profile_nodes(context)?.into_iter().find(|(known, _)| known == name);
        Ok(found.and_then(|(_, node)| node.pack()))
    }

    /// Returns a table that is added.
    pub(super) fn profile_table(&self, context: &ReadContext, number: u64) -> Result<Option<Arc<Parquet>>, Fault> {
        let profiles = self.profiles(context)?;
        let Some(profile) = usize::try_from(number).ok().and_then(|number| profiles.get(number).copied()) else {
            return Ok(None);
        };
        let made = laid_out(context, NUMBERS + number, |memory| {
            let columns = self.profile_columns(context, profile, memory)?;
            columns.table(context, NUMBERS + number, HDF5.name, memory)
        });
        made.map(Some)
    }

    fn profile_columns(
        &self,
        context: &ReadContext,
        profile: Profile,
        memory: &dyn Memory,
    ) -> Result<TableColumns, Fault> {
        match profile {
            Profile::Frame(name) => match self.found(context, &self.root, name.as_bytes())? {
                Some(frame) => data_frames::columns(context, &frame, memory),
                None => Ok(TableColumns::default()),
            },
            Profile::Episodes => self.episodes(context, memory),
            Profile::Steps => self.step_columns(context, memory),
        }
    }

    /// Returns the description of the tables in `container.json`.
    pub(super) fn profile_descriptions(
        &self,
        context: &ReadContext,
        memory: &dyn Memory,
    ) -> Result<Vec<DescribedTable>, Fault> {
        let mut all = Vec::new();
        for profile in self.profiles(context)? {
            let path = self.profile_name(context, *profile)?;
            all.push(DescribedTable::of(path, self.profile_columns(context, *profile, memory))?);
        }
        Ok(all)
    }

    /// Returns the texts of a dataset of one axis.
    fn text_rows(&self, context: &ReadContext, described: &Described) -> Result<Option<Arc<dyn Rows>>, Fault> {
        match described.form.as_ref().map(|form| &form.kind) {
            Some(FormKind::Texts) => {
                Ok(self.heap_rows(context, described)?.map(|rows| Arc::new(rows) as Arc<dyn Rows>))
            }
            Some(FormKind::Plain(Plain { texts: Some(padding), element, inner, .. })) if inner.is_empty() => {
                let Some(array) = self.array_of(context, described)? else { return Ok(None) };
                let texts = FixedTexts::new(array.data, element.size(), super::padding_of(*padding));
                Ok(Some(Arc::new(texts)))
            }
            _ => Ok(None),
        }
    }

    /// Returns a row for each recorded episode.
    fn episodes(&self, context: &ReadContext, memory: &dyn Memory) -> Result<TableColumns, Fault> {
        let Some(Found { group: Some(group), .. }) = self.found(context, &self.root, b"data")? else {
            return Ok(TableColumns::default());
        };
        let mut demos = Vec::new();
        group.each(&self.store, context, &mut |link| {
            if let Some(order) = demo(&link.name)
                && let Some(found) = self.found_by(context, &group, link)?
            {
                found.sound()?;
                if found.group.is_some() {
                    memory.reserve(192 + 6 * link.name.len() as u64)?;
                    demos.push((order, link.name.to_vec(), link.number));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        demos.sort_unstable();
        let rows = demos.len() as u64;
        let mut texts = Vec::with_capacity(demos.len());
        let (mut samples, mut steps) = (Numbers::default(), Numbers::default());
        for (_, _, number) in demos {
            let Some(link) = group.link(&self.store, context, number)? else { continue };
            texts.push((&*link.name).into());
            let Some(found) = self.found_by(context, &group, &link)? else { continue };
            samples.push(self.attribute(context, found.sound()?, b"num_samples", integer)?);
            let actions = match &found.group {
                Some(demo) => self.found(context, demo, b"actions")?,
                None => None,
            };
            let described = actions.as_ref().map(Found::sound).transpose()?;
            let form = described.and_then(|described| described.form.as_ref());
            steps.push(form.and_then(|form| form.dims.first()).map(|axis| *axis as i64));
        }
        let mut columns = TableColumns::new(rows);
        columns.add(memory, b"episode", |name| Ok(Ok(Column::row_numbers(&name, DType::I64, rows))))?;
        columns.add(memory, b"name", |name| Ok(text_column(name, Arc::new(Texts(texts)), true, None)))?;
        columns.add(memory, b"num_samples", |name| Ok(Ok(samples.column(name))))?;
        columns.add(memory, b"steps", |name| Ok(Ok(steps.column(name))))?;
        Ok(columns)
    }

    /// Returns a row for each step of flat data.
    fn step_columns(&self, context: &ReadContext, memory: &dyn Memory) -> Result<TableColumns, Fault> {
        let Some(steps) = self.steps(context)? else { return Ok(TableColumns::default()) };
        let mut columns = TableColumns::new(steps);
        columns.add(memory, b"step", |name| Ok(Ok(Column::row_numbers(&name, DType::I64, steps))))?;
        self.root.each(&self.store, context, &mut |link| {
            let Some(found) = self.found_by(context, &self.root, link)? else { return Ok(ControlFlow::Continue(())) };
            let described = found.described();
            let form = described.and_then(|described| described.form.as_ref());
            if form.and_then(|form| form.dims.first()) == Some(&steps) {
                let dataset = described.and_then(|described| described.object.dataset());
                let is_text = dataset.is_some_and(|dataset| dataset.datatype.is_utf8());
                columns
                    .add(memory, &link.name, |shown| data_frames::array_of(context, &found, shown, is_text, None))?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(columns)
    }
}

/// Returns an attribute that is one integer.
fn integer(attribute: &Attribute) -> Option<i64> {
    let stored = attribute.value.as_ref().ok()?;
    let plain = Plain::of_type(&stored.datatype).filter(|plain| plain.inner.is_empty())?;
    if stored.space.dims.as_ref().is_none_or(|dims| !dims.is_empty()) {
        return None;
    }
    let mut bytes = [0; 8];
    let dtype = plain.element.plain()?;
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    if !is_signed && !matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) {
        return None;
    }
    let size = usize::try_from(dtype.size()).ok()?;
    plain.conversion.apply(&stored.data, bytes.get_mut(..size)?);
    let unused = 64 - 8 * size as u32;
    let bits = u64::from_le_bytes(bytes);
    if is_signed { Some(((bits << unused) as i64) >> unused) } else { i64::try_from(bits).ok() }
}

/// Integers, some of which may be missing.
#[derive(Default)]
struct Numbers {
    values: Vec<u8>,
    missing: Vec<u8>,
}

impl Numbers {
    fn push(&mut self, value: Option<i64>) {
        self.values.extend(value.unwrap_or(0).to_le_bytes());
        self.missing.push(u8::from(value.is_none()));
    }

    fn column(self, name: String) -> Column {
        let column = Column::fixed(name, Element::Of(DType::I64), None, View::inline(self.values));
        column.with_missing(Missing::Marked(View::inline(self.missing)))
    }
}
