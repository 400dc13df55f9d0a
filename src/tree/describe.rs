//! `container.json`: the part that all formats share, and how it is written and kept (`docs/TREE.md`, section 2).

use std::{borrow::Cow, sync::Arc};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{ItemInfo, WorkingMemory};
use crate::{
    cache::{BlockError, Buffer, Key, Tag},
    escape,
    format::ElementType,
    limits,
    source::{Memory, Wait},
    view::{Fault, ReadContext, json},
};

/// One of `items`: the keys that every format has, in order, and then the format's own.
#[derive(Serialize)]
pub struct Item<'a, Own: Serialize> {
    /// The name, with replacement characters if it is not UTF-8.
    name: Cow<'a, str>,
    /// A name that is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    path: Option<String>,
    dtype: Option<Value>,
    shape: Option<Vec<u64>>,
    codec: Cow<'a, str>,
    stored_size: Option<u64>,
    size: Option<u64>,
    checksum: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    inferred: bool,
    #[serde(flatten)]
    own: Own,
}

impl<'a, Own: Serialize> Item<'a, Own> {
    /// Returns an item with this description.
    pub fn of(name: &'a [u8], path: impl Into<Option<String>>, size: Option<u64>, info: ItemInfo, own: Own) -> Self {
        let ItemInfo { dtype, shape, codec, stored_size, crc32c, inferred, .. } = info;
        Self {
            name: String::from_utf8_lossy(name),
            name_hex: std::str::from_utf8(name).is_err().then(|| escape::hex(name)),
            path: path.into(),
            dtype: dtype.map(|dtype| match dtype {
                ElementType::Plain(dtype) => dtype.name().into(),
                ElementType::Record(_) => dtype.descr_json(),
            }),
            shape,
            codec: codec.unwrap_or("none".into()),
            stored_size,
            size,
            checksum: crc32c.map(|crc| format!("crc32c:0x{crc:08x}")),
            inferred,
            own,
        }
    }

    /// Sets the kind of its checksum, without the value.
    pub fn with_checksum(self, kind: Option<&str>) -> Self {
        Self { checksum: kind.map(str::to_owned), ..self }
    }

    /// Sets the names of a dtype that numpy does not have, and of a codec that only the format has. A dtype may also be
    /// the container's own description as JSON, such as a list of fields.
    pub fn with_names(self, dtype: Option<Value>, codec: Cow<'a, str>) -> Self {
        Self { dtype, codec, ..self }
    }
}

/// For keys that are written only if they are true.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// Writes the document: the `front` matter, the `items`, and what follows them. Items are made one at a time, because
/// an index can have millions.
///
/// # Errors
/// `ENOMEM`.
pub fn document<I>(
    front: &Map<String, Value>,
    items: I,
    back: &Map<String, Value>,
    memory: &dyn Memory,
) -> Result<Buffer, Fault>
where
    I: Iterator<Item: Serialize> + Clone,
{
    #[derive(Serialize)]
    #[serde(bound = "Each<I>: Serialize")]
    struct Document<'a, I> {
        #[serde(flatten)]
        front: &'a Map<String, Value>,
        items: Each<I>,
        #[serde(flatten)]
        back: &'a Map<String, Value>,
    }
    Ok(json::large_document(&Document { front, items: Each(items), back }, memory)?)
}

/// Does the same as [`document`] for a container of `count` items: of more than [`limits::DESCRIBED`] only the first are
/// written, and how many are left out stands in front of them (`items_left_out`).
///
/// # Errors
/// As [`document`].
pub fn bounded<I>(
    mut front: Map<String, Value>,
    count: u64,
    items: I,
    back: &Map<String, Value>,
    memory: &dyn Memory,
) -> Result<Buffer, Fault>
where
    I: Iterator<Item: Serialize> + Clone,
{
    let left_out = count.saturating_sub(limits::DESCRIBED as u64);
    if left_out > 0 {
        front.insert("items_left_out".into(), left_out.into());
    }
    document(&front, items.take(limits::DESCRIBED), back, memory)
}

struct Each<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// Returns a document of a container by its number (0 is `container.json`). It is made on the first request and kept in
/// the cache within the budget. Requests that come meanwhile wait for it instead of making it too.
///
/// # Errors
/// Those of `make`, and `WouldBlock` if it would have to be made for a caller that does not wait.
pub fn kept(
    reader: &ReadContext,
    number: u64,
    make: impl FnMut(&WorkingMemory<'_>) -> Result<Buffer, Fault>,
) -> Result<Arc<Buffer>, Fault> {
    kept_as(reader, Key::new(reader.container, Tag::Document, number, 0), make)
}

/// Does the same as [`kept`] for bytes with another key.
///
/// # Errors
/// As [`kept`].
pub(super) fn kept_as(
    reader: &ReadContext,
    key: Key,
    mut make: impl FnMut(&WorkingMemory<'_>) -> Result<Buffer, Fault>,
) -> Result<Arc<Buffer>, Fault> {
    if let Some(Ok(parts)) = reader.cache.get(key) {
        return Ok(parts.into_iter().next().unwrap_or_default());
    }
    reader.may_work()?;
    let parts = reader.cache.get_or_insert_with(key, Wait::Always, || {
        let memory = WorkingMemory::held(&reader.cache);
        let document = make(&memory).map_err(|fault| fault.error)?;
        // Held, because its readers may reserve other memory meanwhile.
        let room = memory.keep(document.len() as u64).map_err(BlockError::from)?;
        Ok(vec![Arc::new(document.with_room(room))])
    })?;
    Ok(parts.into_iter().next().unwrap_or_default())
}
