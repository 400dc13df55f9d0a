//! Attributes of groups and arrays, with their types.

use std::ops::Range;

use super::{Array, Entry, Error};
use crate::{
    cache::BlockError,
    tree::WorkingMemory,
    view::attributes::{Value, key},
};

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttributeValue {
    /// Numbers of one type; a single one has no axes.
    Array(Array),
    /// Elements of a shape that are no numbers of one type, such as texts: JSON with nested lists; without axes that of
    /// the one element. Objects whose only key is empty stand for what JSON has no form for: `{"": ["path", "/a"]}` is a
    /// reference, `{"": ["base64", "QUJD"]}` bytes, `{"": ["number", "NaN"]}` NaN or an infinity, `{"": ["array", name,
    /// type string, shape, base64]}` numbers of one type, and `{"": ["record", value]}` an object whose only key is empty.
    Elements(Vec<u64>, Vec<u8>),
    /// Everything else, as such JSON.
    Json(Vec<u8>),
    /// Why it cannot be read.
    Failed(String),
}

impl Entry {
    /// Returns some rows of a file of lines of JSON, each with a line end, with the marks of [`AttributeValue::Elements`].
    /// `None` for files whose lines have nothing to mark.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn exact_rows(&self, rows: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let found =
            self.ask(|tree, reader, node| tree.exact_rows(reader, node, rows, &WorkingMemory::held(&reader.cache)))?;
        Ok(found.flatten())
    }

    /// Returns the attributes of a group (a folder), or of the array that a file or folder shows, in stored order. Empty
    /// if it has none.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn attribute_values(&self) -> Result<Vec<(String, AttributeValue)>, Error> {
        let found = self.ask(|tree, reader, node| {
            let memory = WorkingMemory::held(&reader.cache);
            let Some(attributes) = tree.attribute_values(reader, node, &memory)? else { return Ok(Vec::new()) };
            let mut found = Vec::new();
            for (name, value) in attributes.iter() {
                let value = match value {
                    Value::Failed(reason) => AttributeValue::Failed(reason.to_string()),
                    Value::Array(array) => match array.data.copy_at(reader, 0, array.data.size()) {
                        Ok(data) => AttributeValue::Array(Array::new(array.dtype.clone(), array.shape.clone(), data)),
                        Err(fault) if fault.error.is_damage() => AttributeValue::Failed(match &*fault.error {
                            BlockError::Refused(reason) => reason.clone(),
                            error => error.to_string(),
                        }),
                        Err(fault) => return Err(fault),
                    },
                    Value::Nested(shape, _) => {
                        AttributeValue::Elements(shape.to_vec(), value.exact_line(reader, &memory)?)
                    }
                    value => AttributeValue::Json(value.exact_line(reader, &memory)?),
                };
                found.push((key(name), value));
            }
            Ok(found)
        })?;
        Ok(found.unwrap_or_default())
    }
}
