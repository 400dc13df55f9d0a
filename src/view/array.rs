//! Arrays: element type, shape and elements, and their `.npy` files.

use super::{Data, Fault, ReadContext, View, grid::Gather, npy};
use crate::format::ElementType;

/// An array of a container. Its `.npy` file, its item in `container.json` and its extended attributes are made from
/// this value.
#[derive(Debug, Clone)]
pub struct Array {
    /// The type of the elements.
    pub dtype: ElementType,
    /// Elements along each axis, the outermost first; empty for an array of one element without axes.
    pub shape: Vec<u64>,
    /// The bytes of the elements: little-endian, in C order, without a header.
    pub data: View,
}

/// The elements of an axis that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The first element.
    pub start: u64,
    /// The distance to the next one; at least 1.
    pub step: u64,
    /// The number of elements.
    pub count: u64,
}

impl Array {
    /// Fills `out` with the elements in a slice of each axis, in C order, as numpy's `a[2:9:3, 5:6]`. If the array is
    /// stored in chunks, only the chunks with these elements are decoded.
    ///
    /// # Errors
    /// [`Fault`] if they cannot be read, or slices and `out` do not fit the array.
    pub fn fill_slices(&self, reader: &ReadContext, slices: &[Slice], out: &mut [u8]) -> Result<(), Fault> {
        let fits = |(slice, axis): (&Slice, &u64)| {
            let last = slice.count.saturating_sub(1).checked_mul(slice.step)?.checked_add(slice.start)?;
            (slice.step > 0 && (slice.count == 0 || last < *axis)).then_some(slice.count)
        };
        let counts: Option<Vec<u64>> = slices.iter().zip(&self.shape).map(fits).collect();
        let counts = counts.filter(|_| slices.len() == self.shape.len());
        let size = counts.and_then(|counts| counts.iter().try_fold(self.dtype.size(), |size, n| size.checked_mul(*n)));
        if size != Some(out.len() as u64) {
            return Err(Fault::refused("the slices do not fit the array"));
        }
        if out.is_empty() {
            return Ok(());
        }
        if let Some((Data::Rendered(rendered), as_bool)) = self.data.one_extent()
            && let Some(filled) = rendered.fill_slices(reader, slices, out)
        {
            filled?;
            if as_bool {
                out.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            return Ok(());
        }
        let mut strides = vec![self.dtype.size(); slices.len()];
        for axis in (1..strides.len()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(self.shape[axis]);
        }
        let gather = Gather::of_slices(self.dtype.size() as usize, slices, &strides, 0);
        let mut read = |at: usize, out: &mut [u8]| self.data.fill_at(reader, at as u64, out);
        gather.read(&mut read, &mut Vec::new(), out)
    }

    /// Returns an array of these elements.
    pub fn new(dtype: impl Into<ElementType>, shape: impl Into<Vec<u64>>, data: View) -> Self {
        Self { dtype: dtype.into(), shape: shape.into(), data }
    }

    /// Returns the header of the array's `.npy` file.
    pub fn header(&self) -> Vec<u8> {
        npy::header(&self.dtype, &self.shape)
    }

    /// Returns the array's `.npy` file: header and elements.
    pub fn npy(self) -> View {
        View::inline(self.header()).followed_by(self.data)
    }
}
