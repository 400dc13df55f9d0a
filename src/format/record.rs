//! Types of the elements of arrays: single values, or records of named fields, which may be records themselves.

use std::{borrow::Cow, collections::HashSet, fmt, sync::Arc};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::DType;
use crate::limits;

/// The type of an array's elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Single values.
    Plain(DType),
    /// Records.
    Record(Arc<Record>),
}

/// A record: named fields, one behind the other without gaps, as in numpy's packed records.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Record {
    fields: Box<[Field]>,
    size: u64,
    /// How deep records are nested in it; 1 if there is none.
    depth: usize,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// The stored name.
    pub name: Box<str>,
    /// The type of its values.
    pub element: ElementType,
    /// Values along each axis if it is an array of several; otherwise empty.
    pub shape: Box<[u64]>,
    /// Where it begins in the record, in bytes. [`Record::new`] computes it.
    pub offset: u64,
}

impl Field {
    /// Returns a field of one value.
    pub fn new(name: &str, element: impl Into<ElementType>) -> Self {
        Self::of_shape(name, element, &[])
    }

    /// Returns a field of an array of values.
    pub fn of_shape(name: &str, element: impl Into<ElementType>, shape: &[u64]) -> Self {
        Self { name: name.into(), element: element.into(), shape: shape.into(), offset: 0 }
    }

    /// Bytes of the field in a record.
    pub fn size(&self) -> u64 {
        self.shape.iter().fold(self.element.size(), |size, axis| size.saturating_mul(*axis))
    }
}

impl Record {
    /// Returns the record of these fields in their order.
    ///
    /// # Errors
    /// What is wrong with them: a name that is empty or there twice (numpy has no such fields), too many fields or axes,
    /// no bytes at all or more than an element can have, or nesting deeper than `limits::RECORD_DEPTH`.
    pub fn new(fields: Vec<Field>) -> Result<Arc<Self>, String> {
        if fields.len() > limits::RECORD_FIELDS {
            return Err(format!("a record of {} fields; at most {}", fields.len(), limits::RECORD_FIELDS));
        }
        let (mut size, mut depth) = (0u64, 1);
        let mut names = HashSet::new();
        let mut placed = Vec::with_capacity(fields.len());
        for mut field in fields {
            if field.name.is_empty() || !names.insert(field.name.clone()) {
                return Err(format!("a record whose field {:?} has no name of its own", field.name));
            }
            if field.shape.len() > limits::DIMENSIONS {
                return Err(format!("a field of {} axes; at most {}", field.shape.len(), limits::DIMENSIONS));
            }
            field.offset = size;
            size = size.saturating_add(field.size());
            if let ElementType::Record(inner) = &field.element {
                depth = depth.max(inner.depth + 1);
            }
            placed.push(field);
        }
        if size == 0 || size > limits::ELEMENT {
            return Err(format!("a record of {size} bytes"));
        }
        if depth > limits::RECORD_DEPTH {
            return Err(format!("records nested {depth} deep; at most {}", limits::RECORD_DEPTH));
        }
        Ok(Arc::new(Self { fields: placed.into(), size, depth }))
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Bytes of a record; at least 1.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_usage(&self) -> usize {
        let field = |field: &Field| {
            let inner = if let ElementType::Record(inner) = &field.element { inner.memory_usage() } else { 0 };
            size_of::<Field>() + field.name.len() + size_of_val(&*field.shape) + inner
        };
        size_of::<Self>() + self.fields.iter().map(field).sum::<usize>()
    }

    /// Writes numpy's `descr`: the list of the fields, as Python prints it.
    fn write_descr(&self, out: &mut String) {
        out.push('[');
        for (number, field) in self.fields.iter().enumerate() {
            out.push_str(if number == 0 { "(" } else { ", (" });
            write_python(&field.name, out);
            out.push_str(", ");
            match &field.element {
                ElementType::Record(inner) => inner.write_descr(out),
                ElementType::Plain(dtype) => {
                    let descr = dtype.descr();
                    // A complex number of two halves is a list already.
                    let quote = if descr.starts_with('[') { "" } else { "'" };
                    out.extend([quote, &descr, quote]);
                }
            }
            if !field.shape.is_empty() {
                out.extend([", ", &tuple(&field.shape)]);
            }
            out.push(')');
        }
        out.push(']');
    }
}

/// Returns a shape as Python prints it: `(3,)`, `(2, 2)`.
pub(crate) fn tuple(shape: &[u64]) -> String {
    let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
    match axes.as_slice() {
        [one] => format!("({one},)"),
        axes => format!("({})", axes.join(", ")),
    }
}

/// Writes a text as Python's `repr` does.
fn write_python(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                out.push_str(&match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
        }
    }
    out.push(quote);
}

/// Returns whether Python prints a character as it is. Rust's own escapes follow the same categories of Unicode, but for
/// marks at the beginning of a text.
fn is_printable(c: char) -> bool {
    !format!("a{c}").escape_debug().to_string().starts_with("a\\u{") && c >= ' '
}

impl ElementType {
    /// Bytes of one element; at least 1.
    pub fn size(&self) -> u64 {
        match self {
            Self::Plain(dtype) => dtype.size(),
            Self::Record(record) => record.size,
        }
    }

    /// The short name, as `container.json` gives it.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Record(_) => "record".into(),
        }
    }

    /// Returns numpy's `descr`: a type string, or the list of a record's fields.
    pub fn descr(&self) -> Cow<'static, str> {
        match self {
            Self::Plain(dtype) => dtype.descr(),
            Self::Record(record) => {
                let mut descr = String::new();
                record.write_descr(&mut descr);
                descr.into()
            }
        }
    }

    /// Returns numpy's `descr` as JSON: a string, or a list of `[name, type]` and `[name, type, shape]`.
    pub fn descr_json(&self) -> Value {
        match self {
            Self::Plain(DType::C32) => json!([["r", "<f2"], ["i", "<f2"]]),
            Self::Plain(DType::DateTimeOffset) => json!([["ticks", "<i8"], ["offset_minutes", "<i2"]]),
            Self::Plain(dtype) => json!(dtype.descr()),
            Self::Record(record) => {
                let field = |field: &Field| match field.shape.is_empty() {
                    true => json!([field.name, field.element.descr_json()]),
                    false => json!([field.name, field.element.descr_json(), field.shape]),
                };
                record.fields.iter().map(field).collect()
            }
        }
    }

    /// The type of single values; `None` for records.
    pub fn plain(&self) -> Option<DType> {
        if let Self::Plain(dtype) = self { Some(*dtype) } else { None }
    }

    /// The record; `None` for single values.
    pub fn record(&self) -> Option<&Arc<Record>> {
        if let Self::Record(record) = self { Some(record) } else { None }
    }

    /// Whether elements are numbers, or truth values: what can be drawn and summed up.
    pub fn is_number(&self) -> bool {
        self.plain().is_some_and(DType::is_number)
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        Self::Plain(dtype)
    }
}

impl From<Arc<Record>> for ElementType {
    fn from(record: Arc<Record>) -> Self {
        Self::Record(record)
    }
}

impl PartialEq<DType> for ElementType {
    fn eq(&self, dtype: &DType) -> bool {
        self.plain() == Some(*dtype)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Serialize for ElementType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(descr: &str) -> ElementType {
        DType::of_descr(descr).unwrap().0.into()
    }

    #[test]
    fn descriptions_are_those_of_numpy() {
        let inner =
            Record::new(vec![Field::new("x", plain("<f4")), Field::of_shape("m", plain("<u2"), &[2, 2])]).unwrap();
        let record = Record::new(vec![
            Field::new("a", plain("<i2")),
            Field::of_shape("in", inner, &[3]),
            Field::new("s", plain("|S4")),
            Field::new("c", DType::C32),
        ]);
        let element = ElementType::from(record.unwrap());
        // numpy 2.4: repr(np.dtype([("a", "<i2"), ("in", [("x", "<f4"), ("m", "<u2", (2, 2))], (3,)), ...]).descr)
        let expected = "[('a', '<i2'), ('in', [('x', '<f4'), ('m', '<u2', (2, 2))], (3,)), ('s', '|S4'), \
                        ('c', [('r', '<f2'), ('i', '<f2')])]";
        assert_eq!(element.descr(), expected);
        assert_eq!(element.size(), 2 + 3 * 12 + 4 + 4);
        let json =
            r#"[["a","<i2"],["in",[["x","<f4"],["m","<u2",[2,2]]],[3]],["s","|S4"],["c",[["r","<f2"],["i","<f2"]]]]"#;
        assert_eq!(element.descr_json().to_string(), json);
        let offsets: Vec<u64> = element.record().unwrap().fields().iter().map(|field| field.offset).collect();
        assert_eq!(offsets, [0, 2, 38, 42]);
    }

    #[test]
    fn names_are_written_as_python_does() {
        // Python 3.13: repr(…).
        for (name, expected) in [
            ("it's", "\"it's\""),
            ("a\"b'c", "'a\"b\\'c'"),
            ("a\\b\n\t\r", "'a\\\\b\\n\\t\\r'"),
            ("\u{1}\u{7f}\u{a0}\u{ad}", "'\\x01\\x7f\\xa0\\xad'"),
            ("é日\u{301}", "'é日\u{301}'"),
            ("\u{200b}\u{2028}\u{e000}", "'\\u200b\\u2028\\ue000'"),
            ("\u{e0001}😀", "'\\U000e0001😀'"),
        ] {
            let mut out = String::new();
            write_python(name, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn what_numpy_does_not_take_is_refused() {
        let value = || plain("<f8");
        for fields in [
            vec![],
            vec![Field::new("", value())],
            vec![Field::new("a", value()), Field::new("a", value())],
            vec![Field::of_shape("a", value(), &[0])],
            vec![Field::of_shape("a", value(), &[u64::MAX, u64::MAX])],
            vec![Field::of_shape("a", value(), &[1; 33])],
        ] {
            assert!(Record::new(fields).is_err());
        }
        let mut deep = value();
        for _ in 0..limits::RECORD_DEPTH {
            deep = Record::new(vec![Field::new("in", deep)]).unwrap().into();
        }
        assert!(Record::new(vec![Field::new("in", deep)]).is_err());
    }
}
