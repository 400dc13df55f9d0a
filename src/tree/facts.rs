//! What is known of a stored item without reading it: for extended attributes and long listings.

use std::borrow::Cow;

use super::{Container, NodeId};
use crate::{
    format::Dtype,
    view::{Fault, Reader, npy},
};

/// Every dtype that an array of ours can have by its descr. bf16 has the descr of u16.
const DTYPES: [Dtype; 12] = {
    use Dtype::*;
    [F64, F32, F16, I64, I32, I16, I8, U64, U32, U16, U8, Bool]
};

/// The facts of one file of a container that shows a stored item. What is not known or means nothing is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The name of the elements' type, as in `container.json`.
    pub dtype: Option<Cow<'static, str>>,
    /// Length of each dimension.
    pub shape: Option<Vec<u64>>,
    /// The codec that it is stored with.
    pub codec: Option<&'static str>,
    /// Bytes that it takes in the container.
    pub stored_size: Option<u64>,
    /// CRC32C of the uncompressed bytes, as the container says it.
    pub crc32c: Option<u32>,
    /// Whether dtype or shape is a guess.
    pub inferred: bool,
}

impl Facts {
    /// Those of an array.
    pub(crate) fn array(dtype: &'static str, shape: &[u64]) -> Self {
        Self { dtype: Some(dtype.into()), shape: Some(shape.to_vec()), ..Self::default() }
    }

    /// What is known of a file: what its container says, or for arrays of which that says nothing, what the front of the
    /// file does. `None` for folders and every other file.
    ///
    /// # Errors
    /// [`Fault`] when the container can't be read.
    pub fn of(tree: &dyn Container, reader: &Reader, node: NodeId) -> Result<Option<Self>, Fault> {
        if let Some(facts) = tree.facts(reader, node) {
            return Ok(Some(facts));
        }
        if !tree.path(node).ends_with(".npy") {
            return Ok(None);
        }
        // The header is never stored: reading it decodes nothing.
        let view = tree.view(reader, node)?;
        let front = view.read_at(reader, 0, 10)?;
        let Some(length) = npy::header_length(front.for_kernel()) else { return Ok(None) };
        let header = view.read_at(reader, 0, length)?;
        Ok(npy::parse(header.for_kernel()).map(|(descr, shape)| {
            let dtype = DTYPES.iter().find(|dtype| dtype.descr() == descr);
            let dtype = dtype.map_or_else(|| Cow::Owned(descr.to_owned()), |dtype| dtype.name().into());
            Self { dtype: Some(dtype), shape: Some(shape), ..Self::default() }
        }))
    }

    /// The shape, as in JSON: `[24,7]`.
    pub fn shape_text(&self) -> Option<String> {
        let axes: Vec<String> = self.shape.as_ref()?.iter().map(u64::to_string).collect();
        Some(format!("[{}]", axes.join(",")))
    }
}
