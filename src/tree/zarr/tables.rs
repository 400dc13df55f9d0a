//! Data frames of AnnData and arrays of records as tables (`docs/formats/zarr.md` 7.6).

use std::sync::Arc;

use super::{ArrayNode, Zarr};
use crate::{
    format::{ElementType, zarr::Json},
    source::Memory,
    tree::{
        data_frames::{self, Member},
        paths::NodeIndex,
        rows::{FixedTexts, Padding, Rows},
        tables::{TableColumns, record_columns},
    },
    view::{
        Array, Fault, ReadContext,
        attributes::{Attributes, Value},
    },
};

/// A group of a store.
pub(super) struct GroupNode {
    pub(super) path: Box<str>,
    pub(super) node: NodeIndex,
}

/// A table of a store.
pub(super) struct Plan {
    /// The folder that it is in, and its stored name.
    pub(super) folder: NodeIndex,
    pub(super) part: Box<[u8]>,
    pub(super) of: Of,
}

/// What a table shows, by its number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    /// The data frame that a group is.
    Frame(u32),
    /// The records of an array.
    Records(u32),
}

/// Returns the name of a data frame's index, if a group's attributes say that it is one.
pub(super) fn index_of_frame(attributes: &Json) -> Option<&str> {
    let text = |key| attributes.get(key)?.as_str();
    (text(data_frames::KIND)? == data_frames::FRAME).then(|| text(data_frames::INDEX))?
}

/// Returns whether an array is shown as a table.
pub(super) fn is_table(item: &ArrayNode) -> bool {
    let fixed = item.fixed().filter(|_| item.reason().is_none() && item.shape().len() == 1);
    let Some(ElementType::Record(record)) = fixed.map(|fixed| &fixed.element) else { return false };
    record.fields().iter().any(crate::tree::tables::is_column)
}

/// Compares paths as groups and arrays are ordered: by their parts.
fn order(one: &str, other: &str) -> std::cmp::Ordering {
    one.split('/').cmp(other.split('/'))
}

/// A group or an array.
#[derive(Clone, Copy)]
enum Object<'a> {
    Group(&'a Zarr, &'a GroupNode),
    Array(&'a ArrayNode),
}

impl Object<'_> {
    fn attributes(&self) -> Option<&Attributes> {
        let Self::Group(zarr, group) = self else { return None };
        zarr.attached.values_of(group.node)
    }

    /// Returns an array that can be read.
    fn readable(&self) -> Option<&ArrayNode> {
        if let Self::Array(item) = self { Some(*item).filter(|item| item.reason().is_none()) } else { None }
    }
}

impl Member for Object<'_> {
    fn member(&self, _: &ReadContext, name: &[u8]) -> Result<Option<Self>, Fault> {
        let (Self::Group(zarr, group), Ok(name)) = (*self, std::str::from_utf8(name)) else { return Ok(None) };
        Ok(zarr.object(&format!("{}/{name}", group.path)))
    }

    fn is_group(&self) -> bool {
        matches!(self, Self::Group(..))
    }

    fn texts(&self, _: &ReadContext, attribute: &str) -> Result<Option<Vec<Box<[u8]>>>, Fault> {
        let text = |value: &Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
        let found = self.attributes().and_then(|all| all.iter().find(|(name, _)| *name == attribute.as_bytes()));
        Ok(found.and_then(|(_, value)| match value {
            Value::List(values) => values.iter().map(text).collect(),
            value => text(value).map(|text| vec![text]),
        }))
    }

    fn axes(&self) -> Option<&[u64]> {
        self.readable()?.array.shape.as_deref()
    }

    fn text_rows(&self, _: &ReadContext) -> Result<Option<Arc<dyn Rows>>, Fault> {
        let rows = || {
            let item = self.readable()?;
            if let super::Shown::Rows(texts) = &item.shown {
                return texts.is_text.then(|| Arc::new(texts.clone()) as Arc<dyn Rows>);
            }
            let width = item.utf32()?;
            Some(Arc::new(FixedTexts::new(item.data()?, width, Padding::Utf32)) as Arc<dyn Rows>)
        };
        Ok(rows())
    }

    fn array(&self, _: &ReadContext) -> Result<Option<Array>, Fault> {
        Ok(self.readable().and_then(ArrayNode::elements))
    }
}

impl Zarr {
    /// Returns the place of the array with a path in the list of all.
    pub(super) fn array_at(&self, path: &str) -> Option<usize> {
        self.arrays.binary_search_by(|item| order(&item.path, path)).ok()
    }

    /// Returns whether the array with a path can be the index of a data frame.
    pub(super) fn is_index(&self, path: &str) -> bool {
        self.object(path).is_some_and(|object| object.axes().is_some_and(|axes| axes.len() == 1))
    }

    /// Returns the group or array with a path.
    fn object(&self, path: &str) -> Option<Object<'_>> {
        if let Ok(at) = self.groups.binary_search_by(|group| order(&group.path, path)) {
            return Some(Object::Group(self, self.groups.get(at)?));
        }
        Some(Object::Array(self.arrays.get(self.array_at(path)?)?))
    }

    /// Returns the columns of a table.
    ///
    /// # Errors
    /// [`Fault`] if there is no memory, or if texts that codes stand for cannot be read.
    pub(super) fn columns(&self, reader: &ReadContext, of: Of, memory: &dyn Memory) -> Result<TableColumns, Fault> {
        match of {
            Of::Frame(number) => match self.groups.get(number as usize) {
                Some(group) => data_frames::columns(reader, &Object::Group(self, group), memory),
                None => Ok(TableColumns::default()),
            },
            Of::Records(number) => match self.get(number).and_then(ArrayNode::elements) {
                Some(array) => record_columns(&array, memory),
                None => Ok(TableColumns::default()),
            },
        }
    }
}
