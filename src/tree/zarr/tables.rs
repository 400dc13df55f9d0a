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
    view::{Array, Fault, ReadContext, attributes::Value},
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

/// Returns whether a group's attributes say that it is a data frame.
pub(super) fn is_frame(attributes: &Json) -> bool {
    attributes.get(data_frames::KIND).and_then(Json::as_str) == Some(data_frames::FRAME)
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
    fn attribute(&self, name: &str) -> Option<&Value> {
        let Self::Group(zarr, group) = self else { return None };
        let found = zarr.attached.values_of(group.node)?.iter().find(|(found, _)| *found == name.as_bytes());
        found.map(|(_, value)| value)
    }

    /// Returns an attribute that is a text.
    fn text(&self, name: &str) -> Option<&[u8]> {
        if let Value::Text(text) = self.attribute(name)? { Some(text) } else { None }
    }

    /// Returns what a group has under a name.
    fn child(&self, name: &[u8]) -> Option<Self> {
        let (Self::Group(zarr, group), Ok(name)) = (*self, std::str::from_utf8(name)) else { return None };
        zarr.object(&format!("{}/{name}", group.path))
    }

    /// Returns why a column of a data frame cannot be its index; `None` if it can.
    fn no_index(&self) -> Option<&'static str> {
        let rows = match self.is_group() {
            false => *self,
            true => match data_frames::parts(self.text(data_frames::KIND).unwrap_or_default()) {
                None => return Some("its encoding is not known"),
                Some((_, rows)) => match self.child(rows) {
                    Some(rows) => rows,
                    None => return Some("a part of it is missing"),
                },
            },
        };
        match rows.axes() {
            Some([_]) => None,
            Some(_) => Some("it has not one axis"),
            None => Some("it cannot be read"),
        }
    }

    /// Returns an array that can be read.
    fn readable(&self) -> Option<&ArrayNode> {
        if let Self::Array(item) = self { Some(*item).filter(|item| item.reason().is_none()) } else { None }
    }
}

impl Member for Object<'_> {
    fn member(&self, _: &ReadContext, name: &[u8]) -> Result<Option<Self>, Fault> {
        Ok(self.child(name))
    }

    fn is_group(&self) -> bool {
        matches!(self, Self::Group(..))
    }

    fn texts(&self, _: &ReadContext, attribute: &str) -> Result<Option<Vec<Box<[u8]>>>, Fault> {
        let text = |value: &Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
        Ok(self.attribute(attribute).and_then(|value| match value {
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

    /// Adds the table of a data frame. If it has none because of its index, adds a warning.
    pub(super) fn add_frame(&mut self, number: usize, plan: Plan) {
        let Some(group) = self.groups.get(number) else { return };
        let frame = Object::Group(self, group);
        let reason = match frame.text(data_frames::INDEX) {
            None => Some("it names no index".to_owned()),
            Some(name) => {
                let reason = frame.child(name).map_or(Some("it is not there"), |index| index.no_index());
                reason.map(|reason| format!("its index {:?}: {reason}", String::from_utf8_lossy(name)))
            }
        };
        match reason {
            None => self.tables.push(plan),
            Some(reason) => {
                let warning = format!("the data frame {:?} has no table: {reason}", group.path);
                self.warnings.push(warning);
            }
        }
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
