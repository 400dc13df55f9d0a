//! Tables that are added to well-known kinds of files: AnnData, robot recordings, and flat data of reinforcement
//! learning (section 8).

use std::sync::Arc;

use super::{
    Hdf5,
    form::{FormKind, Plain},
    group::Group,
    node::{Node, Part},
    store::{Described, Held, fault},
    tables::{Columns, TextColumn, plain_column},
};
use crate::{
    format::{
        DType,
        hdf5::{Class, Link, Target, attribute::Attribute},
    },
    limits,
    source::Memory,
    tree::{
        NodeId, names,
        rows::{FixedTexts, Rows},
        tables::{COLUMN_MEMORY, Described as DescribedTable, SUFFIX, laid_out},
    },
    view::{
        Array, Fault, ReadContext, Rendered, View,
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

/// Codes of categories as keys from 1, little-endian. 0 means missing.
#[derive(Debug)]
struct Keys {
    codes: Array,
    count: u64,
}

impl Keys {
    fn each(
        &self,
        reader: &ReadContext,
        first: u64,
        count: u64,
        mut each: impl FnMut(Option<u64>),
    ) -> Result<(), Fault> {
        let width = self.codes.dtype.size();
        let is_signed = matches!(self.codes.dtype.plain(), Some(DType::I8 | DType::I16 | DType::I32 | DType::I64));
        let bytes = self.codes.data.copy_at(reader, first * width, count * width)?;
        for code in bytes.chunks_exact(width as usize) {
            let is_negative = is_signed && code.last().is_some_and(|byte| byte & 0x80 != 0);
            let number = code.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
            match number {
                _ if is_negative => each(None),
                number if number < self.count => each(Some(number)),
                number => return Err(fault(0, &format!("category {number}, of {}", self.count))),
            }
        }
        Ok(())
    }
}

impl Rendered for Keys {
    fn fill(&self, reader: &ReadContext, part: std::ops::Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let rows = part.start / 4..part.end.div_ceil(4);
        let mut keys = Vec::with_capacity(4 * (rows.end - rows.start) as usize);
        self.each(reader, rows.start, rows.end - rows.start, |code| {
            keys.extend(code.map_or(0, |code| code as u32 + 1).to_le_bytes());
        })?;
        let from = (part.start - 4 * rows.start) as usize;
        out.iter_mut().zip(keys.iter().skip(from)).for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

/// A byte for each code: whether it stands for no category.
#[derive(Debug)]
struct NoCategory(Keys);

impl Rendered for NoCategory {
    fn fill(&self, reader: &ReadContext, part: std::ops::Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let mut out = out.iter_mut();
        self.0.each(reader, part.start, part.end - part.start, |code| {
            if let Some(out) = out.next() {
                *out = u8::from(code.is_none());
            }
        })
    }
}

/// The numbers that codes stand for. Missing ones are zeros.
#[derive(Debug)]
struct Categories {
    keys: Keys,
    values: Vec<u8>,
    width: u64,
}

impl Rendered for Categories {
    fn fill(&self, reader: &ReadContext, part: std::ops::Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let width = self.width.max(1);
        let rows = part.start / width..part.end.div_ceil(width);
        let mut made = Vec::with_capacity((width * (rows.end - rows.start)) as usize);
        self.keys.each(reader, rows.start, rows.end - rows.start, |code| {
            let value = code.and_then(|code| self.values.get((code * width) as usize..((code + 1) * width) as usize));
            match value {
                Some(value) => made.extend(value),
                None => made.resize(made.len() + width as usize, 0),
            }
        })?;
        let from = (part.start - width * rows.start) as usize;
        out.iter_mut().zip(made.iter().skip(from)).for_each(|(to, from)| *to = *from);
        Ok(())
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

/// A member of a group.
struct Found {
    group: Option<Arc<Group>>,
    object: Arc<Held<Described>>,
}

impl Found {
    fn described(&self) -> Option<&Described> {
        self.object.found.as_ref().ok()
    }

    /// Returns the length of a dataset of one axis.
    fn rows(&self) -> Option<u64> {
        match &*self.described()?.form.as_ref()?.dims {
            [rows] => Some(*rows),
            _ => None,
        }
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
    fn found(&self, context: &ReadContext, group: &Arc<Group>, name: &[u8]) -> Result<Option<Found>, Fault> {
        let Some(number) = group.find(&self.store, context, name)? else { return Ok(None) };
        let Some(link) = group.link(&self.store, context, number)? else { return Ok(None) };
        self.found_by(context, group, &link)
    }

    fn found_by(&self, context: &ReadContext, group: &Arc<Group>, link: &Link<'_>) -> Result<Option<Found>, Fault> {
        let Target::Hard(at) = link.target else { return Ok(None) };
        let object = self.store.object(context, at)?;
        let group = group.child(&self.store, context, link)?;
        Ok(Some(Found { group, object }))
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
        let Ok(all) = &all.found else { return Ok(None) };
        Ok(all.iter().find(|attribute| *attribute.name == *name).and_then(take))
    }

    /// Returns the texts of an attribute.
    fn texts(
        &self,
        context: &ReadContext,
        described: &Described,
        name: &[u8],
    ) -> Result<Option<Vec<Box<[u8]>>>, Fault> {
        use crate::{tree::memory::WorkingMemory, view::attributes::Value};
        let stored = self.attribute(context, described, name, |attribute| {
            let stored = attribute.value.as_ref().ok()?;
            let is_text = matches!(stored.datatype.class, Class::Text(_) | Class::VaryingText(_));
            is_text.then(|| (stored.datatype.clone(), stored.space.clone(), stored.data.clone()))
        })?;
        let Some((datatype, space, data)) = stored else { return Ok(None) };
        let stored = crate::format::hdf5::attribute::Stored { datatype, space, data };
        let memory = WorkingMemory::of_reader(context);
        memory.hold();
        let value = super::values::Values::new(&self.store, context, &memory).attribute(&stored);
        let value = match value {
            Ok(value) => value,
            Err(fault) if fault.would_block_for().is_none() && fault.error.is_damage() => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let text = |value: Value| if let Value::Text(text) = value { Some(text) } else { None };
        Ok(match value {
            Value::Nested(_, values) => values.into_iter().map(text).collect(),
            value => text(value).map(|text| vec![text]),
        })
    }

    /// Returns the kind of an element of AnnData.
    fn encoding(&self, context: &ReadContext, found: &Found) -> Result<Vec<u8>, Fault> {
        let Some(described) = found.described() else { return Ok(Vec::new()) };
        let texts = self.texts(context, described, b"encoding-type")?;
        Ok(texts.and_then(|texts| texts.into_iter().next()).map_or_else(Vec::new, |text| text.to_vec()))
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
                    Some(found) if found.group.is_some() => self.encoding(context, &found)? == b"dataframe",
                    _ => false,
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

    fn has_demos(&self, context: &ReadContext, group: &Arc<Group>) -> Result<bool, Fault> {
        if group.links().is_err() {
            return Ok(false);
        }
        for link in group.all(&self.store, context)?.iter() {
            if demo(&link.name).is_some() && group.child(&self.store, context, &link)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
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
        let profile = usize::try_from(number).ok().and_then(|number| self.profiles(context).ok()?.get(number).copied());
        let Some(profile) = profile else { return Ok(None) };
        let made = laid_out(context, NUMBERS + number, |memory| {
            let (columns, rows) = self.profile_columns(context, profile, memory)?;
            if columns.columns.is_empty() {
                return Err(Fault::refused("a table without columns"));
            }
            columns.table(context, NUMBERS + number, rows, memory)
        });
        made.map(Some)
    }

    fn profile_columns(
        &self,
        context: &ReadContext,
        profile: Profile,
        memory: &dyn Memory,
    ) -> Result<(Columns, u64), Fault> {
        match profile {
            Profile::Frame(name) => self.frame(context, name.as_bytes(), memory),
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
            let (columns, rows) = self.profile_columns(context, *profile, memory)?;
            let path = self.profile_name(context, *profile)?;
            let count = columns.columns.len();
            all.push(DescribedTable {
                path,
                rows: Some(rows),
                columns: Some(count),
                left_out: columns.left_out,
                left_out_behind: 0,
            });
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

    /// Returns a dataset of one axis as a column; one of several axes if rows may be lists.
    fn dataset_column(
        &self,
        context: &ReadContext,
        described: &Described,
        name: String,
        mask: Option<View>,
    ) -> Result<Result<Column, String>, Fault> {
        if let Some(rows) = self.text_rows(context, described)? {
            let is_nullable = mask.is_some();
            let one_axis = described.form.as_ref().is_some_and(|form| form.dims.len() == 1);
            return Ok(match one_axis {
                true => Ok(Column::strings(name, Arc::new(TextColumn { rows, mask }), true, is_nullable)),
                false => Err("its rows are lists of texts".into()),
            });
        }
        let Some(Ok(array)) = self.array_of(context, described)?.map(Ok::<_, Fault>) else {
            return Ok(Err("it is no array of numbers or texts".into()));
        };
        let Some((rows, inner)) = array.shape.split_first() else { return Ok(Err("it has no rows".into())) };
        let plain = Plain {
            element: array.dtype.clone(),
            inner: inner.to_vec(),
            conversion: super::convert::Conversion::Copy(0),
            stored: 0,
            name: None,
            texts: None,
        };
        let column = plain_column(name, &plain, *rows, array.data);
        Ok(column.map(|column| match mask {
            Some(mask) => column.with_missing(Missing::Marked(mask)),
            None => column,
        }))
    }

    /// Returns the columns of a data frame of AnnData.
    fn frame(&self, context: &ReadContext, name: &[u8], memory: &dyn Memory) -> Result<(Columns, u64), Fault> {
        let mut columns = Columns::default();
        let Some(found) = self.found(context, &self.root, name)? else { return Ok((columns, 0)) };
        let (Some(group), Some(described)) = (&found.group, found.described()) else { return Ok((columns, 0)) };
        let index = self.texts(context, described, b"_index")?.and_then(|texts| texts.into_iter().next());
        let order = self.texts(context, described, b"column-order")?.unwrap_or_default();
        let mut rows = None;
        for name in index.iter().chain(&order) {
            memory.reserve(COLUMN_MEMORY)?;
            if columns.columns.len() >= limits::TABLE_COLUMNS {
                columns.leave_out(name, "there are too many columns");
                continue;
            }
            let Some(member) = self.found(context, group, name)? else {
                columns.leave_out(name, "it is not there");
                continue;
            };
            let shown = columns.names.name(name);
            match self.frame_column(context, &member, shown, rows, memory)? {
                Ok((column, count)) => {
                    rows = rows.or(Some(count));
                    columns.columns.push(column);
                }
                Err(reason) => columns.leave_out(name, reason),
            }
        }
        Ok((columns, rows.unwrap_or(0)))
    }

    /// Returns a column of a data frame, which has as many rows as the others.
    fn frame_column(
        &self,
        context: &ReadContext,
        member: &Found,
        name: String,
        rows: Option<u64>,
        memory: &dyn Memory,
    ) -> Result<Result<(Column, u64), String>, Fault> {
        let fits = |count: Option<u64>| match count {
            None => Err("it has not one axis".to_owned()),
            Some(count) if rows.is_some_and(|rows| rows != count) => Err(format!("it has {count} rows")),
            Some(count) => Ok(count),
        };
        let Some(described) = member.described() else { return Ok(Err("it cannot be read".into())) };
        let Some(group) = &member.group else {
            let count = match fits(member.rows()) {
                Ok(count) => count,
                Err(reason) => return Ok(Err(reason)),
            };
            let column = self.dataset_column(context, described, name, None)?;
            return Ok(column.map(|column| (column, count)));
        };
        let encoding = self.encoding(context, member)?;
        let (values, marks): (&[u8], &[u8]) = match &*encoding {
            b"categorical" => (b"categories", b"codes"),
            b"nullable-integer" | b"nullable-boolean" | b"nullable-string-array" => (b"values", b"mask"),
            _ => return Ok(Err("its encoding is not known".into())),
        };
        let (Some(values), Some(marks)) = (self.found(context, group, values)?, self.found(context, group, marks)?)
        else {
            return Ok(Err("a part of it is missing".into()));
        };
        let count = match fits(marks.rows()) {
            Ok(count) => count,
            Err(reason) => return Ok(Err(reason)),
        };
        let (Some(of_values), Some(of_marks)) = (values.described(), marks.described()) else {
            return Ok(Err("a part of it cannot be read".into()));
        };
        let Some(marked) = self.array_of(context, of_marks)? else {
            return Ok(Err("its codes or its mask are no numbers".into()));
        };
        if &*encoding == b"categorical" {
            let column = self.categorical(context, of_values, values.rows(), marked, count, name, memory)?;
            return Ok(column.map(|column| (column, count)));
        }
        if values.rows() != Some(count) || marked.dtype.size() != 1 {
            return Ok(Err("its values and its mask do not fit".into()));
        }
        let column = self.dataset_column(context, of_values, name, Some(marked.data))?;
        Ok(column.map(|column| (column, count)))
    }

    #[expect(clippy::too_many_arguments, reason = "the two parts of a column, each with what is known of it")]
    fn categorical(
        &self,
        context: &ReadContext,
        categories: &Described,
        count: Option<u64>,
        codes: Array,
        rows: u64,
        name: String,
        memory: &dyn Memory,
    ) -> Result<Result<Column, String>, Fault> {
        let Some(count) = count else { return Ok(Err("its categories have not one axis".into())) };
        if !codes.dtype.is_number() || codes.dtype.plain().is_none_or(DType::is_float) {
            return Ok(Err("its codes are no integers".into()));
        }
        let keys = || Keys { codes: codes.clone(), count };
        if let Some(texts) = self.text_rows(context, categories)? {
            let (mut size, mut dictionary) = (4 * count, Vec::new());
            texts.lengths(context, memory, 0..count, &mut |length| {
                size = size.saturating_add(length);
                Ok(())
            })?;
            if size > limits::TABLE_DICTIONARY as u64 || count >= u32::MAX.into() {
                return Ok(Err("its categories are too large".into()));
            }
            memory.reserve(2 * size)?;
            texts.each(context, memory, 0..count, &mut |text| {
                let text = text.unwrap_or_default();
                dictionary.extend((text.len() as u32).to_le_bytes());
                dictionary.extend(text);
                Ok(())
            })?;
            let data = View::default().with_rendered(4 * rows, keys());
            return Ok(Ok(Column::keys(name, DType::U32, data, dictionary, count)));
        }
        let values = self.array_of(context, categories)?.filter(|array| array.shape.len() == 1);
        let Some((values, dtype)) = values.and_then(|array| array.dtype.plain().map(|dtype| (array, dtype))) else {
            return Ok(Err("its categories are no texts and no numbers".into()));
        };
        if let Err(reason) = crate::tree::tables::slots(dtype, &[count]) {
            return Ok(Err(reason));
        }
        let width = dtype.size();
        if values.data.size() > limits::TABLE_DICTIONARY as u64 {
            return Ok(Err("its categories are too large".into()));
        }
        memory.reserve(values.data.size())?;
        let values = values.data.copy_at(context, 0, values.data.size())?;
        let data = View::default().with_rendered(rows * width, Categories { keys: keys(), values, width });
        let mask = View::default().with_rendered(rows, NoCategory(keys()));
        let column = Column::fixed(name, Element::Of(dtype), None, data);
        Ok(Ok(column.with_missing(Missing::Marked(mask))))
    }

    /// Returns a row for each recorded episode.
    fn episodes(&self, context: &ReadContext, memory: &dyn Memory) -> Result<(Columns, u64), Fault> {
        let mut columns = Columns::default();
        let Some(Found { group: Some(group), .. }) = self.found(context, &self.root, b"data")? else {
            return Ok((columns, 0));
        };
        let mut demos = Vec::new();
        let links = group.all(&self.store, context)?;
        for (place, link) in links.iter().enumerate() {
            if let Some(order) = demo(&link.name)
                && group.child(&self.store, context, &link)?.is_some()
            {
                memory.reserve(128 + 4 * link.name.len() as u64)?;
                demos.push((order, place));
            }
        }
        // Places are in the order of names.
        demos.sort_unstable();
        let rows = demos.len() as u64;
        let mut texts = Vec::with_capacity(demos.len());
        let (mut samples, mut steps) = (Numbers::default(), Numbers::default());
        for link in demos.into_iter().filter_map(|(_, place)| links.nth(place)) {
            texts.push((&*link.name).into());
            let Some(found) = self.found_by(context, &group, &link)? else { continue };
            let described = found.described();
            let count = match described {
                Some(described) => self.attribute(context, described, b"num_samples", integer)?,
                None => None,
            };
            samples.push(count);
            let actions = match &found.group {
                Some(demo) if demo.links().is_ok() => self.found(context, demo, b"actions")?,
                _ => None,
            };
            let form = actions.as_ref().and_then(|actions| actions.described()?.form.as_ref());
            steps.push(form.and_then(|form| form.dims.first()).map(|axis| *axis as i64));
        }
        let names = ["episode", "name", "num_samples", "steps"].map(|name| columns.names.name(name.as_bytes()));
        let [episode, name, num_samples, of_steps] = names;
        columns.columns = vec![
            Column::row_numbers(&episode, DType::I64, rows),
            Column::strings(name, Arc::new(TextColumn { rows: Arc::new(Texts(texts)), mask: None }), true, false),
            samples.column(num_samples),
            steps.column(of_steps),
        ];
        Ok((columns, rows))
    }

    /// Returns a row for each step of flat data.
    fn step_columns(&self, context: &ReadContext, memory: &dyn Memory) -> Result<(Columns, u64), Fault> {
        let mut columns = Columns::default();
        let Some(steps) = self.steps(context)? else { return Ok((columns, 0)) };
        let step = columns.names.name(b"step");
        columns.columns.push(Column::row_numbers(&step, DType::I64, steps));
        for link in self.root.all(&self.store, context)?.iter() {
            let name = &*link.name;
            let Some(found) = self.found_by(context, &self.root, &link)? else { continue };
            let Some(described) = found.described() else { continue };
            let Some(form) = described.form.as_ref().filter(|form| form.dims.first() == Some(&steps)) else { continue };
            if !matches!(&form.kind, FormKind::Plain(plain) if plain.element.record().is_none()) {
                continue;
            }
            memory.reserve(COLUMN_MEMORY)?;
            let shown = columns.names.name(name);
            match self.dataset_column(context, described, shown, None)? {
                Ok(column) if columns.columns.len() < limits::TABLE_COLUMNS => columns.columns.push(column),
                Ok(_) => columns.leave_out(name, "there are too many columns"),
                Err(reason) => columns.leave_out(name, reason),
            }
        }
        Ok((columns, steps))
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
