//! `tf.train.Example`: features by their names, each a list of bytes, of floats or of integers
//! (`docs/formats/rlds.md` 2).
//!
//! Values stay in the record. Only their places are kept.

use std::{collections::HashMap, ops::Range};

use crate::source::{Memory, SourceError, to_usize};

/// Most features of a record, and the longest name of a feature in bytes.
const FEATURES: usize = 1_000_000;
const NAME: usize = 64 << 10;
/// Places for which memory is reserved at once.
const TOGETHER: usize = 512;
/// Memory of a feature in addition to its name and its places.
const FEATURE: u64 = 256;

/// Why a record is not an Example.
#[derive(Debug, thiserror::Error)]
pub enum ExampleError {
    /// It is something else, or damaged.
    #[error("{0}")]
    Damaged(String),
    /// There is not enough memory.
    #[error(transparent)]
    Source(#[from] SourceError),
}

fn damaged<T>(reason: impl Into<String>) -> Result<T, ExampleError> {
    Err(ExampleError::Damaged(reason.into()))
}

/// A range of bytes in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte, counted from the beginning of the record.
    pub start: u32,
    /// The number of bytes.
    pub length: u32,
}

impl Span {
    /// Returns where they are in the file.
    pub fn in_file(&self, record: &Range<u64>) -> Range<u64> {
        let start = record.start + u64::from(self.start);
        start..start + u64::from(self.length)
    }
}

/// Bytes of a record from a place on.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The place of the first one in the record.
    pub start: u32,
}

impl<'a> Part<'a> {
    /// Returns the bytes of a span; none if they are not all in this part.
    pub fn get(&self, span: &Span) -> &'a [u8] {
        let from = span.start.checked_sub(self.start).and_then(|from| self.bytes.get(from as usize..));
        from.and_then(|rest| rest.get(..span.length as usize)).unwrap_or_default()
    }
}

/// The kinds of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListKind {
    /// None was stated.
    #[default]
    None,
    /// Byte strings: a span for each.
    Bytes,
    /// 32-bit floats, little-endian; a span has several.
    Floats,
    /// Varints of 64 bits; a span has several.
    Integers,
}

/// The values of a feature.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// What they are.
    pub kind: ListKind,
    /// Where they are, in order.
    pub spans: Vec<Span>,
    /// How many there are.
    pub count: u64,
}

impl List {
    fn push(&mut self, kind: ListKind, span: Span, count: u64, memory: &dyn Memory) -> Result<(), ExampleError> {
        self.begin(kind);
        if self.spans.len() == self.spans.capacity() {
            let more = self.spans.len().max(4).min(TOGETHER.max(self.spans.len() / 2));
            memory.reserve((more * size_of::<Span>()) as u64)?;
            let no_memory = |_| SourceError::from(std::io::Error::from_raw_os_error(libc::ENOMEM));
            self.spans.try_reserve_exact(more).map_err(no_memory)?;
        }
        self.spans.push(span);
        self.count += count;
        Ok(())
    }

    /// Begins a list of a kind. If the kind differs from the one before, the old values are dropped.
    fn begin(&mut self, kind: ListKind) {
        if self.kind != kind {
            *self = Self { kind, ..Self::default() };
        }
    }

    /// Returns the integers in a record.
    pub fn integers<'a>(&'a self, record: Part<'a>) -> impl Iterator<Item = i64> + 'a {
        self.spans.iter().flat_map(move |span| Integers(Wire::new(record.get(span))))
    }

    /// Returns the bits of the floats in a record.
    pub fn floats<'a>(&'a self, record: Part<'a>) -> impl Iterator<Item = f32> + 'a {
        let floats = self.spans.iter().flat_map(move |span| record.get(span).chunks_exact(4));
        floats.map(|four| f32::from_le_bytes(four.try_into().unwrap_or_default()))
    }

    /// Returns the byte strings in a record.
    pub fn bytes<'a>(&'a self, record: Part<'a>) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + 'a {
        self.spans.iter().map(move |span| record.get(span))
    }

    /// Returns the smallest part of the record that contains all values.
    pub fn hull(&self) -> Range<u32> {
        let start = self.spans.iter().map(|span| span.start).min().unwrap_or(0);
        start..self.spans.iter().map(|span| span.start + span.length).max().unwrap_or(start)
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }
}

/// The integers of a span that was checked.
struct Integers<'a>(Wire<'a>);

impl Iterator for Integers<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        if self.0.is_empty() { None } else { self.0.varint().ok().map(u64::cast_signed) }
    }
}

/// A feature of a record.
#[derive(Debug)]
pub struct Feature {
    /// Its name.
    pub key: Box<[u8]>,
    /// Its values.
    pub list: List,
}

/// Returns the features of a record in the order of their names' bytes.
///
/// # Errors
/// `Damaged` if the record is not an Example up to its last byte.
pub fn parse(record: &[u8], memory: &dyn Memory) -> Result<Vec<Feature>, ExampleError> {
    let mut features: HashMap<Box<[u8]>, List> = HashMap::new();
    let mut example = Wire::new(record);
    while let Some((field, value)) = example.field()? {
        if let (1, Value::Bytes(map)) = (field, value) {
            parse_map(example.inside(map), &mut features, memory)?;
        }
    }
    let mut features: Vec<Feature> = features.into_iter().map(|(key, list)| Feature { key, list }).collect();
    features.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(features)
}

fn parse_map(
    mut map: Wire<'_>,
    features: &mut HashMap<Box<[u8]>, List>,
    memory: &dyn Memory,
) -> Result<(), ExampleError> {
    while let Some((field, value)) = map.field()? {
        let (1, Value::Bytes(entry)) = (field, value) else { continue };
        let (mut entry, mut key, mut list) = (map.inside(entry), Span { start: 0, length: 0 }, List::default());
        while let Some((field, value)) = entry.field()? {
            match (field, value) {
                (1, Value::Bytes(found)) => key = found,
                (2, Value::Bytes(feature)) => parse_feature(entry.inside(feature), &mut list, memory)?,
                _ => {}
            }
        }
        let key = Part { bytes: map.record, start: 0 }.get(&key);
        if key.len() > NAME {
            return damaged(format!("a feature's name of {} bytes", key.len()));
        }
        memory.reserve(FEATURE + key.len() as u64)?;
        features.insert(key.into(), list);
        if features.len() > FEATURES {
            return damaged(format!("more than {FEATURES} features"));
        }
    }
    Ok(())
}

fn parse_feature(mut feature: Wire<'_>, list: &mut List, memory: &dyn Memory) -> Result<(), ExampleError> {
    while let Some((field, value)) = feature.field()? {
        let Value::Bytes(values) = value else { continue };
        let kind = match field {
            1 => ListKind::Bytes,
            2 => ListKind::Floats,
            3 => ListKind::Integers,
            _ => continue,
        };
        list.begin(kind);
        let mut values = feature.inside(values);
        while let Some((field, value)) = values.field()? {
            match (kind, field, value) {
                (ListKind::Bytes, 1, Value::Bytes(span)) => list.push(kind, span, 1, memory)?,
                (ListKind::Floats, 1, Value::Bytes(span)) if span.length == 0 => {}
                (ListKind::Floats, 1, Value::Bytes(span)) if span.length.is_multiple_of(4) => {
                    list.push(kind, span, u64::from(span.length) / 4, memory)?;
                }
                (ListKind::Floats, 1, Value::Bytes(span)) => {
                    return damaged(format!("floats of {} bytes at {}", span.length, span.start));
                }
                (ListKind::Floats, 1, Value::Four(span)) => list.push(kind, span, 1, memory)?,
                (ListKind::Integers, 1, Value::Bytes(span)) => {
                    let (mut varints, mut count) = (values.inside(span), 0);
                    while !varints.is_empty() {
                        varints.varint()?;
                        count += 1;
                    }
                    if count > 0 {
                        list.push(kind, span, count, memory)?;
                    }
                }
                (ListKind::Integers, 1, Value::Varint(span)) => list.push(kind, span, 1, memory)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The value of a field.
enum Value {
    Varint(Span),
    Four(Span),
    Bytes(Span),
    Other,
}

/// Fields of a protobuf message, which is a part of a record.
pub(super) struct Wire<'a> {
    record: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Wire<'a> {
    pub(super) fn new(record: &'a [u8]) -> Self {
        Self { record, at: 0, end: record.len() }
    }

    /// Returns the message in a part of the same record.
    fn inside(&self, span: Span) -> Self {
        let at = span.start as usize;
        Self { record: self.record, at, end: at + span.length as usize }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.record.get(self.at..self.end).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Returns the next number; bits above the 64th are dropped.
    pub(super) fn varint(&mut self) -> Result<u64, ExampleError> {
        let mut number = 0u64;
        for (place, &byte) in self.rest().iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                self.at += place + 1;
                return Ok(number);
            }
        }
        damaged(format!("a number without an end at {}", self.at))
    }

    /// Returns the next field, and skips it; `None` at the end.
    fn field(&mut self) -> Result<Option<(u64, Value)>, ExampleError> {
        if self.is_empty() {
            return Ok(None);
        }
        let at = self.at;
        let tag = self.varint()?;
        let field = tag >> 3;
        if field == 0 || tag > u32::MAX.into() {
            return damaged(format!("a field {field} at {at}"));
        }
        let start = self.at;
        let value = match tag & 7 {
            0 => {
                self.varint()?;
                Value::Varint(span(start, self.at))
            }
            1 => {
                self.skip(8)?;
                Value::Other
            }
            2 => {
                let length = self.varint()?;
                let start = self.at;
                self.skip(length)?;
                Value::Bytes(span(start, self.at))
            }
            5 => {
                self.skip(4)?;
                Value::Four(span(start, self.at))
            }
            wire => return damaged(format!("a value of the wire type {wire} at {at}")),
        };
        Ok(Some((field, value)))
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ExampleError> {
        if bytes > self.end.saturating_sub(self.at) as u64 {
            return damaged(format!("a value of {bytes} bytes at {} passes the end at {}", self.at, self.end));
        }
        self.at += to_usize(bytes);
        Ok(())
    }
}

/// Returns a part of a record, which is shorter than 2^31 bytes.
#[expect(clippy::cast_possible_truncation, reason = "records are shorter")]
fn span(start: usize, end: usize) -> Span {
    Span { start: start as u32, length: (end - start) as u32 }
}
