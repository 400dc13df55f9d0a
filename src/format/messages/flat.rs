//! A message as columns. Nested fields get names with dots (`docs/formats/mcap.md`, section 9).
//!
//! Only the schema decides which columns there are, never a message. A column that is shown neither as an array nor in
//! a table keeps its number, so that the numbers of all others are known.

use super::{Absent, Count, DEPTH, Field, Kind, Number, Schema, Sink, Time, ros::bits};

/// Most columns, including those that are left out.
pub const COLUMNS: usize = 2_000;

/// Most bytes of the names of all columns. Later columns are left out, as those after [`COLUMNS`] are.
const NAMES: usize = 4 << 20;

/// Most elements of a row of an array.
pub const WIDEST: u32 = 1 << 20;

/// Largest row in bytes of a column that is kept together with other columns of its message.
pub const NARROW: usize = 1 << 10;

/// An element of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// A number.
    Number(Number),
    /// Nanoseconds in 64 bits.
    Time(Time),
}

impl Element {
    /// Returns its size in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Number(number) => number.size(),
            Self::Time(_) => 8,
        }
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One element in each row.
    One(Element),
    /// The same number of elements in each row.
    Fixed(Element, u32),
    /// Any number of elements in each row.
    Ragged(Element),
    /// Bytes in each row.
    Bytes,
    /// A text in each row.
    Text,
    /// It is left out, for this reason.
    None(&'static str),
}

impl Shape {
    /// Returns the bytes of a row, if they are always the same.
    pub fn width(self) -> Option<usize> {
        match self {
            Self::One(element) => Some(element.size()),
            Self::Fixed(element, count) => Some(element.size().saturating_mul(count as usize)),
            _ => None,
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Its name: those of the fields on the way, with dots.
    pub name: String,
    /// What it holds.
    pub shape: Shape,
    default: Option<Absent>,
}

/// The columns of a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flat {
    /// The columns, in the order of their definition.
    pub leaves: Vec<Leaf>,
    /// Whether there are more columns, which are left out.
    pub has_more: bool,
}

impl Flat {
    /// Returns the columns of the messages of a schema.
    pub fn of(schema: &Schema) -> Self {
        let mut flat = Self::default();
        flat.add(schema, 0, "", &mut vec![0], &mut { NAMES });
        flat
    }

    /// Adds the columns of a message. Their names begin with `front` and may take `left` more bytes.
    fn add(&mut self, schema: &Schema, message: u32, front: &str, within: &mut Vec<u32>, left: &mut usize) {
        for field in &schema.message(message).fields {
            let inner = opened(schema, field, within);
            if self.leaves.len() == COLUMNS || *left < front.len() + field.name.len() {
                // A message without columns does not count as left out.
                let is_empty = inner.is_ok_and(|inner| inner.is_some_and(|m| schema.message(m).leaves == Some(0)));
                self.has_more = !is_empty;
            } else if let Ok(Some(inner)) = inner {
                // Messages without columns are passed over, because they may have any number of fields.
                if schema.message(inner).leaves != Some(0) {
                    within.push(inner);
                    self.add(schema, inner, &format!("{front}{}.", field.name), within, left);
                    within.pop();
                }
            } else {
                let shape = inner.err().map_or_else(|| shape_of(field), Shape::None);
                let name = format!("{front}{}", field.name);
                *left -= name.len();
                self.leaves.push(Leaf { name, shape, default: field.default_value().cloned() });
            }
            if self.has_more {
                return;
            }
        }
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        self.leaves.iter().map(|leaf| size_of::<Leaf>() + leaf.name.len() + 32).sum()
    }
}

/// Returns the message whose fields become columns instead of a field; `None` if the field is one column.
fn opened(schema: &Schema, field: &Field, within: &[u32]) -> Result<Option<u32>, &'static str> {
    let (Kind::Message(inner), Count::One) = (field.kind, field.count) else { return Ok(None) };
    if within.contains(&inner) {
        return Err("a message within itself");
    }
    if within.len() >= DEPTH && schema.message(inner).leaves != Some(0) {
        return Err("too deep");
    }
    Ok(Some(inner))
}

fn shape_of(field: &Field) -> Shape {
    let element = match field.kind {
        Kind::Number(number) => Some(Element::Number(number)),
        Kind::Time(time) => Some(Element::Time(time)),
        _ => None,
    };
    match (field.kind, element, field.count) {
        (_, Some(element), Count::One) => Shape::One(element),
        (_, Some(_), Count::Fixed(count)) if count > WIDEST => Shape::None("more than 1048576 elements"),
        (_, Some(element), Count::Fixed(count)) => Shape::Fixed(element, count),
        (_, Some(Element::Number(Number::U8)), Count::Many) => Shape::Bytes,
        (_, Some(element), Count::Many) => Shape::Ragged(element),
        (Kind::Text, _, Count::One) => Shape::Text,
        (Kind::Bytes, _, Count::One) => Shape::Bytes,
        (Kind::Text, ..) => Shape::None("a list of texts"),
        (Kind::Bytes, ..) => Shape::None("a list of byte strings"),
        _ => Shape::None("a list of messages"),
    }
}

/// Takes the values of one column of a message.
pub trait Take {
    /// Takes values of a column: little-endian elements that follow each other, or the bytes of a text. Elements of a
    /// list may come in several parts.
    fn take(&mut self, leaf: usize, bytes: &[u8]);
}

/// A [`Sink`] that knows which column a value belongs to.
pub struct Columns<'a, T: Take + ?Sized> {
    schema: &'a Schema,
    flat: &'a Flat,
    /// The column of the next value.
    leaf: usize,
    /// Messages whose fields are columns, the outermost first.
    within: Vec<u32>,
    /// Depth of nested lists and of messages that are one column.
    inside: usize,
    is_list: bool,
    to: &'a mut T,
}

impl<'a, T: Take + ?Sized> Columns<'a, T> {
    /// Returns a sink that passes values to `to`.
    pub fn new(schema: &'a Schema, flat: &'a Flat, to: &'a mut T) -> Self {
        Self { schema, flat, leaf: 0, within: Vec::new(), inside: 0, is_list: false, to }
    }

    fn give(&mut self, bytes: &[u8]) {
        if self.leaf < self.flat.leaves.len() {
            self.to.take(self.leaf, bytes);
        }
    }

    /// Goes to the next column, unless this value is one of several.
    fn next(&mut self) {
        if self.inside == 0 {
            self.leaf = self.leaf.saturating_add(1);
        }
    }

    /// Passes on a value that goes into the column unchanged.
    fn one(&mut self, bytes: &[u8]) {
        if self.inside == 0 || self.is_list && self.inside == 1 {
            self.give(bytes);
        }
        self.next();
    }

    /// Passes on the defaults of all columns of an absent message.
    fn pass(&mut self, message: u32) {
        match self.schema.message(message).leaves {
            Some(0) => {}
            _ if self.leaf >= self.flat.leaves.len() => {}
            _ => {
                let schema = self.schema;
                self.within.push(message);
                for field in &schema.message(message).fields {
                    match opened(schema, field, &self.within) {
                        Ok(Some(inner)) => self.pass(inner),
                        _ => self.default(),
                    }
                }
                self.within.pop();
            }
        }
    }

    fn default(&mut self) {
        let flat = self.flat;
        if let Some(leaf) = flat.leaves.get(self.leaf) {
            match (&leaf.default, leaf.shape) {
                (Some(Absent::Bits(bits)), Shape::One(Element::Number(number))) => {
                    self.to.take(self.leaf, bits.to_le_bytes().get(..number.size()).unwrap_or_default());
                }
                (Some(Absent::Bytes(bytes)), Shape::Text | Shape::Bytes) => self.to.take(self.leaf, bytes),
                _ => {}
            }
        }
        self.leaf = self.leaf.saturating_add(1);
    }
}

impl<T: Take + ?Sized> Sink for Columns<'_, T> {
    fn begin(&mut self, message: u32) {
        let is_column = self.within.contains(&message)
            || self.within.len() >= DEPTH && self.schema.message(message).leaves != Some(0);
        if self.inside > 0 || is_column {
            self.is_list &= self.inside > 0;
            self.inside += 1;
        } else {
            self.within.push(message);
        }
    }

    fn field(&mut self, _: &Field) {}

    fn end(&mut self) {
        if self.inside == 0 {
            self.within.pop();
            return;
        }
        self.inside -= 1;
        self.next();
    }

    fn absent(&mut self, field: &Field) {
        if self.inside > 0 {
            return;
        }
        match opened(self.schema, field, &self.within) {
            Ok(Some(inner)) => self.pass(inner),
            _ => self.default(),
        }
    }

    fn begin_list(&mut self) {
        self.is_list = self.inside == 0;
        self.inside += 1;
    }

    fn end_list(&mut self) {
        self.inside = self.inside.saturating_sub(1);
        self.next();
    }

    fn number(&mut self, number: Number, bits: u64) {
        self.one(bits.to_le_bytes().get(..number.size()).unwrap_or_default());
    }

    fn numbers(&mut self, number: Number, bytes: &[u8], is_big: bool) {
        if self.inside == 0 {
            match number {
                Number::Bool => {
                    for piece in bytes.chunks(64) {
                        let mut as_bool = [0; 64];
                        as_bool.iter_mut().zip(piece).for_each(|(out, byte)| *out = u8::from(*byte != 0));
                        self.give(as_bool.get(..piece.len()).unwrap_or_default());
                    }
                }
                _ if is_big && number.size() > 1 => {
                    for element in bytes.chunks_exact(number.size()) {
                        let bits = bits(number, element, true);
                        self.give(bits.to_le_bytes().get(..number.size()).unwrap_or_default());
                    }
                }
                _ => self.give(bytes),
            }
        }
        self.next();
    }

    fn text(&mut self, text: &[u8]) {
        self.one(text);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.one(bytes);
    }

    fn time(&mut self, _: Time, seconds: i64, nanos: i64) {
        let all = seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
        self.one(&all.to_le_bytes());
    }
}
