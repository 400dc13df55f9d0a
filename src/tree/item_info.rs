//! Descriptions of stored items that need no read of them: for `container.json`, extended attributes and long listings.

use std::borrow::Cow;

use crate::{format::ElementType, view::Array};

/// A field of records that are shown as lines: its name, type of elements and axes. Without a type, its values have no
/// common size.
pub type ObjectField = (Box<str>, Option<(ElementType, Vec<u64>)>);

/// Description of the stored item that a file shows. `None` stands for unknown values, and for those without a meaning
/// for the item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemInfo {
    /// The type of the elements.
    pub dtype: Option<ElementType>,
    /// The format's name of its type, if no type of arrays is as precise.
    pub stored_type: Option<&'static str>,
    /// The names of the numbers of an enumeration, as in `enum` of `container.json`.
    pub names: Option<Box<str>>,
    /// The fields of records that are shown as lines.
    pub fields: Option<Vec<ObjectField>>,
    /// Elements along each axis, the outermost first.
    pub shape: Option<Vec<u64>>,
    /// The codec that it is stored with.
    pub codec: Option<Cow<'static, str>>,
    /// The shape of its chunks, if it is stored in chunks.
    pub chunks: Option<Vec<u64>>,
    /// What elements have that were never written, as the file shows an element: its bytes, little-endian, or a text.
    /// Without it, they are zero.
    pub fill: Option<Box<[u8]>>,
    /// Bytes that it takes in the container.
    pub stored_size: Option<u64>,
    /// CRC32C of the uncompressed bytes, as the container states it.
    pub crc32c: Option<u32>,
    /// Whether dtype or shape is a guess.
    pub inferred: bool,
}

impl ItemInfo {
    /// The shape, as in JSON: `[24,7]`.
    pub fn shape_text(&self) -> Option<String> {
        let axes: Vec<String> = self.shape.as_ref()?.iter().map(u64::to_string).collect();
        Some(format!("[{}]", axes.join(",")))
    }
}

impl From<Array> for ItemInfo {
    fn from(array: Array) -> Self {
        Self { dtype: Some(array.dtype), shape: Some(array.shape), ..Self::default() }
    }
}
