//! Arrays in memory, with their type and shape.

use std::ops::Range;

use super::{Error, ErrorKind};
use crate::format::{DType, ElementType};

/// An array: its elements in C order, little-endian, with their type and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    dtype: ElementType,
    shape: Vec<u64>,
    data: Vec<u8>,
}

impl Array {
    pub(super) fn new(dtype: ElementType, shape: Vec<u64>, data: Vec<u8>) -> Self {
        Self { dtype, shape, data }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> &ElementType {
        &self.dtype
    }

    /// Elements along each axis, the outermost first; empty for an array of one element without axes.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size() as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns some rows (elements along the outermost axis) as an array of their own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the array has no axes, or not these rows.
    pub fn rows(&self, rows: Range<u64>) -> Result<Self, Error> {
        let bad =
            || Error::new(ErrorKind::InvalidInput, format!("no rows {rows:?} in an array of shape {:?}", self.shape));
        let (&count, inner) = self.shape.split_first().ok_or_else(bad)?;
        if rows.start > rows.end || rows.end > count {
            return Err(bad());
        }
        // The array has `count` rows of this size, so nothing overflows.
        let row = (self.data.len() as u64).checked_div(count).unwrap_or(0);
        let bytes = (rows.start * row) as usize..(rows.end * row) as usize;
        let data = self.data.get(bytes).ok_or_else(bad)?.to_vec();
        let shape = std::iter::once(rows.end - rows.start).chain(inner.iter().copied()).collect();
        Ok(Self { dtype: self.dtype.clone(), shape, data })
    }

    /// The bytes of the elements: little-endian, in C order.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the bytes of the elements without a copy.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Returns the elements as numbers of this machine, in C order. f16 and bf16 are returned as their bits, `u16`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the elements are of another type.
    pub fn values<T: Element>(&self) -> Result<Vec<T>, Error> {
        if !self.dtype.plain().is_some_and(|dtype| T::DTYPES.contains(&dtype)) {
            let reason = format!("the elements are {}, not {}", self.dtype, std::any::type_name::<T>());
            return Err(Error::new(ErrorKind::InvalidInput, reason));
        }
        Ok(self.data.chunks_exact(self.dtype.size() as usize).map(T::from_bytes).collect())
    }

    /// Returns the elements as an array of ndarray with the same axes: [`Self::values`] with their shape.
    ///
    /// ```
    /// # #[cfg(feature = "ndarray")]
    /// # fn main() -> Result<(), shardfs::Error> {
    /// let joints = shardfs::Volume::open("fixtures/ep_001.wshard")?.get("signal/joint_pos.npy")?.array()?;
    /// let joints = joints.to_ndarray::<f32>()?;
    /// assert_eq!((joints.shape(), joints[[0, 0]]), (&[24, 7][..], -0.0006));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "ndarray"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the elements are of another type, or if ndarray has no arrays of such a shape.
    #[cfg(feature = "ndarray")]
    pub fn to_ndarray<T: Element>(&self) -> Result<ndarray::ArrayD<T>, Error> {
        let refused = |why: &dyn std::fmt::Display| {
            Error::new(ErrorKind::InvalidInput, format!("no array of shape {:?}: {why}", self.shape))
        };
        let shape: Result<Vec<usize>, _> = self.shape.iter().map(|axis| usize::try_from(*axis)).collect();
        let shape = ndarray::IxDyn(&shape.map_err(|error| refused(&error))?);
        ndarray::ArrayD::from_shape_vec(shape, self.values()?).map_err(|error| refused(&error))
    }
}

/// Types that elements of an [`Array`] may be read as.
pub trait Element: sealed::Sealed + Sized {
    /// The element types that can be read as this type.
    const DTYPES: &'static [DType];

    /// Converts the little-endian bytes of one element. `bytes` has exactly the size of the type.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($number:ty: $($dtype:ident),+;)+) => {$(
        impl sealed::Sealed for $number {}

        impl Element for $number {
            const DTYPES: &'static [DType] = &[$(DType::$dtype),+];

            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap_or_default())
            }
        }
    )+};
}

elements! {
    f64: F64;
    f32: F32;
    i64: I64;
    i32: I32;
    i16: I16;
    i8: I8;
    u64: U64;
    u32: U32;
    u16: U16, F16, Bf16;
    u8: U8, Bool, F8E4M3Fn, F8E5M2, F8E8M0Fnu, F8E4M3Fnuz, F8E5M2Fnuz;
}

#[cfg(all(test, feature = "ndarray"))]
mod tests {
    use super::*;
    use crate::volume::Volume;

    #[test]
    fn arrays_of_ndarray_have_the_same_axes() {
        let numbers = |shape: &[u64], count: u8| {
            let data = (0..count).flat_map(|number| u16::from(number).to_le_bytes()).collect();
            Array::new(DType::U16.into(), shape.to_vec(), data)
        };
        let array = numbers(&[2, 3], 6).to_ndarray::<u16>().unwrap();
        assert_eq!((array.shape(), array[[1, 0]], array[[0, 2]]), (&[2, 3][..], 3, 2));
        assert_eq!(numbers(&[], 1).to_ndarray::<u16>().unwrap().ndim(), 0);
        assert_eq!(numbers(&[0, 4], 0).to_ndarray::<u16>().unwrap().shape(), [0, 4]);
        assert_eq!(numbers(&[2], 2).to_ndarray::<f32>().unwrap_err().kind(), ErrorKind::InvalidInput);
        // More than memory can have, although there is no element.
        let wide = numbers(&[0, u64::MAX, 2], 0).to_ndarray::<u16>();
        assert_eq!(wide.unwrap_err().kind(), ErrorKind::InvalidInput);
        let volume = Volume::open("fixtures/ep_001.wshard").unwrap();
        let frames = volume.get("signal/cam0/rgb.npy").unwrap().array().unwrap();
        let (pixels, array) = (frames.values::<u8>().unwrap(), frames.to_ndarray::<u8>().unwrap());
        assert_eq!(array.shape(), [24, 48, 64, 3]);
        assert_eq!(array[[23, 47, 63, 2]], pixels[pixels.len() - 1]);
        assert!(array.iter().eq(&pixels));
    }
}
