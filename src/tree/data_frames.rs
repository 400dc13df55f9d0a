//! Data frames of AnnData as tables (`docs/TREE.md`, section 7), in any format with groups and arrays.
//!
//! A data frame is a group. Its attributes name the index and the order of the columns. A column is an array, or a group
//! of two: codes with their categories, or values with a mask.

use std::{ops::Range, sync::Arc};

use super::{
    rows::Rows,
    tables::{TableColumns, array_column, slots, text_column},
};
use crate::{
    format::DType,
    limits,
    source::Memory,
    view::{
        Array, Fault, ReadContext, Rendered, View,
        parquet::{Column, Element, Missing, Strings},
    },
};

/// The attribute that says what a group is, and its value for a data frame.
pub(super) const KIND: &str = "encoding-type";
pub(super) const FRAME: &str = "dataframe";

/// The attribute that names the index, and that with the names of all other columns.
pub(super) const INDEX: &str = "_index";
const ORDER: &str = "column-order";

/// Where anndata before 0.8 has the categories of a column, by its name.
const CATEGORIES: &[u8] = b"__categories/";

/// A group or an array of a container.
pub(super) trait Member: Sized {
    /// Returns what a group has under a name; `None` if there is nothing.
    ///
    /// # Errors
    /// [`Fault`] if the group cannot be read.
    fn member(&self, reader: &ReadContext, name: &[u8]) -> Result<Option<Self>, Fault>;

    /// Returns whether it is a group.
    fn is_group(&self) -> bool;

    /// Returns an attribute of a group that is a text or a list of texts; `None` if there is none.
    ///
    /// # Errors
    /// [`Fault`] if the attributes cannot be read.
    fn texts(&self, reader: &ReadContext, attribute: &str) -> Result<Option<Vec<Box<[u8]>>>, Fault>;

    /// Returns the axes of an array; `None` if it cannot be read.
    fn axes(&self) -> Option<&[u64]>;

    /// Returns the rows of an array of texts; `None` for all others.
    ///
    /// # Errors
    /// [`Fault`] if its place cannot be read.
    fn text_rows(&self, reader: &ReadContext) -> Result<Option<Arc<dyn Rows>>, Fault>;

    /// Returns an array of elements of one size; `None` if it is none.
    ///
    /// # Errors
    /// [`Fault`] if its place cannot be read.
    fn array(&self, reader: &ReadContext) -> Result<Option<Array>, Fault>;
}

/// Returns whether a group is a data frame.
///
/// # Errors
/// [`Fault`] if its attributes cannot be read.
pub(super) fn is_frame(reader: &ReadContext, group: &impl Member) -> Result<bool, Fault> {
    Ok(group.is_group() && kind(reader, group)? == FRAME.as_bytes())
}

/// Returns why a data frame has no column that a table can show; `None` if it has one. Looks no further than the first,
/// which is the index in most files.
///
/// # Errors
/// As [`columns`].
pub(super) fn without_columns(
    reader: &ReadContext,
    frame: &impl Member,
    memory: &dyn Memory,
) -> Result<Option<String>, Fault> {
    let mut first = None;
    for name in names(reader, frame)? {
        let made = match frame.member(reader, &name)? {
            Some(member) => column(reader, frame, &name, &member, String::new(), None, memory)?,
            None => Err("it is not there".into()),
        };
        match made {
            Ok(_) => return Ok(None),
            Err(reason) => first = first.or(Some((name, reason))),
        }
    }
    Ok(Some(match first {
        Some((name, reason)) => format!("no column can be shown; {:?}: {reason}", String::from_utf8_lossy(&name)),
        None => "it names no columns".into(),
    }))
}

/// Returns the names of the columns of a data frame: that of the index, then those that the group lists.
fn names(reader: &ReadContext, frame: &impl Member) -> Result<Vec<Box<[u8]>>, Fault> {
    let index = frame.texts(reader, INDEX)?.and_then(|texts| texts.into_iter().next());
    let order = frame.texts(reader, ORDER)?.unwrap_or_default();
    Ok(index.into_iter().chain(order).collect())
}

/// Returns the columns of a data frame: the index, then those that the group lists.
///
/// # Errors
/// [`Fault`] if the group, or texts that codes stand for, cannot be read.
pub(super) fn columns(reader: &ReadContext, frame: &impl Member, memory: &dyn Memory) -> Result<TableColumns, Fault> {
    let (mut columns, mut rows) = (TableColumns::default(), None);
    for name in names(reader, frame)? {
        columns.add(memory, &name, |shown| {
            let Some(member) = frame.member(reader, &name)? else { return Ok(Err("it is not there".into())) };
            let made = column(reader, frame, &name, &member, shown, rows, memory)?;
            Ok(made.map(|(column, count)| {
                rows = Some(count);
                column
            }))
        })?;
    }
    columns.rows = rows.unwrap_or(0);
    Ok(columns)
}

/// Returns an array of any axes as a column. `is_text` says whether texts are known to be UTF-8. Elements are missing
/// where a byte of `mask` is not 0. `Err` says why it cannot be a column.
///
/// # Errors
/// [`Fault`] if its place cannot be read.
pub(super) fn array_of(
    reader: &ReadContext,
    array: &impl Member,
    name: String,
    is_text: bool,
    mask: Option<View>,
) -> Result<Result<Column, String>, Fault> {
    if let Some(rows) = array.text_rows(reader)? {
        return Ok(match array.axes() {
            Some([_]) => text_column(name, rows, is_text, mask),
            _ => Err("its rows are lists of texts".into()),
        });
    }
    let Some(array) = array.array(reader)? else { return Ok(Err("it is no array of numbers or texts".into())) };
    let column = array_column(&name, &array);
    Ok(column.map(|column| match mask {
        Some(mask) => column.with_missing(Missing::Marked(mask)),
        None => column,
    }))
}

/// Returns the kind of a group; empty if it says none.
fn kind(reader: &ReadContext, group: &impl Member) -> Result<Vec<u8>, Fault> {
    let texts = group.texts(reader, KIND)?;
    Ok(texts.and_then(|texts| texts.into_iter().next()).map_or_else(Vec::new, |text| text.to_vec()))
}

/// Returns the names of the two arrays of a column that is a group, by its encoding. The second has an element for each
/// row.
pub(super) fn parts(kind: &[u8]) -> Option<(&'static [u8], &'static [u8])> {
    match kind {
        b"categorical" => Some((b"categories", b"codes")),
        b"nullable-integer" | b"nullable-boolean" | b"nullable-string-array" => Some((b"values", b"mask")),
        _ => None,
    }
}

/// Returns the length of an array of one axis.
fn length(array: &impl Member) -> Option<u64> {
    if let Some([count]) = array.axes() { Some(*count) } else { None }
}

/// Returns a column of a data frame and its number of rows, which is that of the others, if they are known.
fn column<M: Member>(
    reader: &ReadContext,
    frame: &M,
    stored: &[u8],
    member: &M,
    name: String,
    rows: Option<u64>,
    memory: &dyn Memory,
) -> Result<Result<(Column, u64), String>, Fault> {
    let fits = |count: Option<u64>| match count {
        None => Err("it has not one axis".to_owned()),
        Some(count) if rows.is_some_and(|rows| rows != count) => Err(format!("it has {count} rows")),
        Some(count) => Ok(count),
    };
    if !member.is_group() {
        let count = match fits(length(member)) {
            Ok(count) => count,
            Err(reason) => return Ok(Err(reason)),
        };
        let categories = frame.member(reader, &[CATEGORIES, stored].concat())?.filter(|found| !found.is_group());
        let column = match (categories, member.array(reader)?) {
            (Some(categories), Some(codes)) => categorical(reader, &categories, &codes, count, name, memory)?,
            _ => array_of(reader, member, name, true, None)?,
        };
        return Ok(column.map(|column| (column, count)));
    }
    let kind = kind(reader, member)?;
    let Some((values, marks)) = parts(&kind) else { return Ok(Err("its encoding is not known".into())) };
    let (Some(values), Some(marks)) = (member.member(reader, values)?, member.member(reader, marks)?) else {
        return Ok(Err("a part of it is missing".into()));
    };
    let count = match fits(length(&marks)) {
        Ok(count) => count,
        Err(reason) => return Ok(Err(reason)),
    };
    let Some(marked) = marks.array(reader)? else {
        return Ok(Err("its codes or its mask are no numbers".into()));
    };
    if &*kind == b"categorical" {
        let column = categorical(reader, &values, &marked, count, name, memory)?;
        return Ok(column.map(|column| (column, count)));
    }
    if length(&values) != Some(count) || marked.dtype.size() != 1 {
        return Ok(Err("its values and its mask do not fit".into()));
    }
    let column = array_of(reader, &values, name, true, Some(marked.data))?;
    Ok(column.map(|column| (column, count)))
}

/// Returns the column of codes that stand for categories.
fn categorical(
    reader: &ReadContext,
    categories: &impl Member,
    codes: &Array,
    rows: u64,
    name: String,
    memory: &dyn Memory,
) -> Result<Result<Column, String>, Fault> {
    const TOO_LARGE: &str = "its categories are too large";
    let Some(count) = length(categories) else { return Ok(Err("its categories have not one axis".into())) };
    if !codes.dtype.is_number() || codes.dtype.plain().is_none_or(DType::is_float) {
        return Ok(Err("its codes are no integers".into()));
    }
    let keys = || Keys { codes: codes.clone(), count };
    if let Some(texts) = categories.text_rows(reader)? {
        // Each takes four bytes at least.
        let (mut size, mut dictionary) = (count.saturating_mul(4), Vec::new());
        if size > limits::TABLE_CATEGORIES {
            return Ok(Err(TOO_LARGE.into()));
        }
        texts.lengths(reader, memory, 0..count, &mut |length| {
            size = size.saturating_add(length);
            Ok(())
        })?;
        if size > limits::TABLE_CATEGORIES {
            return Ok(Err(TOO_LARGE.into()));
        }
        let is_large = size > limits::TABLE_DICTIONARY as u64;
        // The sizes of pages of texts take a walk over all rows.
        if is_large && rows > limits::TEXT_ROWS {
            return Ok(Err(format!("it has more than {} texts", limits::TEXT_ROWS)));
        }
        // A vector grows to twice its size. Where each text begins takes four bytes.
        memory.reserve(if is_large { 4 * size } else { 2 * size })?;
        let mut starts = Vec::new();
        texts.each(reader, memory, 0..count, &mut |text| {
            let text = text.unwrap_or_default();
            if is_large {
                starts.push(dictionary.len() as u32);
            }
            if (dictionary.len() + 4 + text.len()) as u64 > size {
                return Err(Fault::refused("a category has another length than stated"));
            }
            dictionary.extend((text.len() as u32).to_le_bytes());
            dictionary.extend(text);
            Ok(())
        })?;
        if is_large {
            let texts = Texts { keys: keys(), texts: dictionary, starts };
            return Ok(Ok(Column::strings(name, Arc::new(texts), true, true)));
        }
        let data = View::default().with_rendered(rows.saturating_mul(4), keys());
        return Ok(Ok(Column::keys(name, DType::U32, data, dictionary, count)));
    }
    let values = categories.array(reader)?.filter(|array| array.shape.len() == 1);
    let Some((values, dtype)) = values.and_then(|array| array.dtype.plain().map(|dtype| (array, dtype))) else {
        return Ok(Err("its categories are no texts and no numbers".into()));
    };
    if let Err(reason) = slots(dtype, &[count]) {
        return Ok(Err(reason));
    }
    let width = dtype.size();
    if values.data.size() > limits::TABLE_DICTIONARY as u64 {
        return Ok(Err(TOO_LARGE.into()));
    }
    memory.reserve(values.data.size())?;
    let values = values.data.copy_at(reader, 0, values.data.size())?;
    let data = View::default().with_rendered(rows.saturating_mul(width), Categories { keys: keys(), values, width });
    let mask = View::default().with_rendered(rows, NoCategory(keys()));
    let column = Column::fixed(name, Element::Of(dtype), None, data);
    Ok(Ok(column.with_missing(Missing::Marked(mask))))
}

/// Codes that are read at a time.
const CODES: u64 = 1 << 16;

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
        let (mut at, end) = (first, first + count);
        while at < end {
            let next = end.min(at + CODES);
            let bytes = self.codes.data.copy_at(reader, at * width, (next - at) * width)?;
            for code in bytes.chunks_exact(width as usize) {
                let is_negative = is_signed && code.last().is_some_and(|byte| byte & 0x80 != 0);
                let number = code.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
                match number {
                    _ if is_negative => each(None),
                    number if number < self.count => each(Some(number)),
                    number => return Err(Fault::refused(format!("category {number}, of {}", self.count))),
                }
            }
            at = next;
        }
        Ok(())
    }
}

impl Rendered for Keys {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
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

/// The texts that codes stand for, where they are too many for a dictionary.
#[derive(Debug)]
struct Texts {
    keys: Keys,
    /// Each after its length in four bytes.
    texts: Vec<u8>,
    /// Where each begins.
    starts: Vec<u32>,
}

impl Texts {
    fn text(&self, code: u64) -> &[u8] {
        let text = || {
            let (length, rest) = self.texts.get(*self.starts.get(code as usize)? as usize..)?.split_first_chunk()?;
            rest.get(..u32::from_le_bytes(*length) as usize)
        };
        text().unwrap_or_default()
    }
}

impl Strings for Texts {
    fn size(&self, reader: &ReadContext, rows: Range<u64>) -> Result<u64, Fault> {
        let mut size = 0;
        self.keys.each(reader, rows.start, rows.end - rows.start, |code| {
            size += code.map_or(0, |code| self.text(code).len() as u64);
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
        let (mut at, mut fits) = (0, true);
        self.keys.each(reader, rows.start, rows.end - rows.start, |code| {
            let text = code.map(|code| self.text(code));
            if let Some(text) = text {
                match out.get_mut(at..at + text.len()) {
                    Some(place) => place.copy_from_slice(text),
                    None => fits = false,
                }
                at += text.len();
            }
            each(text.map(|text| text.len() as u64));
        })?;
        if fits { Ok(()) } else { Err(Fault::refused("a row has another length than stated")) }
    }

    fn memory_usage(&self) -> usize {
        self.texts.capacity() + 4 * self.starts.capacity()
    }
}

/// A byte for each code: whether it stands for no category.
#[derive(Debug)]
struct NoCategory(Keys);

impl Rendered for NoCategory {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
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
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
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
