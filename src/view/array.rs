//! Arrays: element type, shape and elements, and the `.npy` files of them.

use super::{View, npy};
use crate::format::DType;

/// An array of a container. Its `.npy` file, its item in `container.json` and its extended attributes are made from
/// this value.
#[derive(Debug, Clone)]
pub struct Array {
    /// The type of the elements.
    pub dtype: DType,
    /// Elements along each axis, the outermost first; empty for an array of one element without axes.
    pub shape: Vec<u64>,
    /// The bytes of the elements: little-endian, in C order, without a header.
    pub data: View,
}

impl Array {
    /// An array of these elements.
    pub fn new(dtype: DType, shape: impl Into<Vec<u64>>, data: View) -> Self {
        Self { dtype, shape: shape.into(), data }
    }

    /// Returns the header of the array's `.npy` file.
    pub fn header(&self) -> Vec<u8> {
        npy::header(self.dtype, &self.shape)
    }

    /// Returns the array's `.npy` file: header and elements.
    pub fn npy(self) -> View {
        View::inline(self.header()).followed_by(self.data)
    }
}
