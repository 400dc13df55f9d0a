//! Storages and tensors of a checkpoint: element types, and which tensors are sound (`docs/formats/pt.md` 3 and 4).

use std::{ops::Range, sync::Arc};

use crate::{format::DType, limits};

/// Most bytes of a tensor for each byte of its storage. Several elements may share a byte.
const EXPANDED: u64 = 1024;

/// A type of elements.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// Its name, without `torch.`.
    pub name: &'static str,
    /// The class of its storages, if it has one.
    class: &'static str,
    /// The type as an array.
    pub dtype: DType,
}

const fn of(name: &'static str, class: &'static str, dtype: DType) -> Type {
    Type { name, class, dtype }
}

static TYPES: [Type; 21] = [
    of("float64", "DoubleStorage", DType::F64),
    of("float32", "FloatStorage", DType::F32),
    of("float16", "HalfStorage", DType::F16),
    of("bfloat16", "BFloat16Storage", DType::Bf16),
    of("int64", "LongStorage", DType::I64),
    of("int32", "IntStorage", DType::I32),
    of("int16", "ShortStorage", DType::I16),
    of("int8", "CharStorage", DType::I8),
    of("uint8", "ByteStorage", DType::U8),
    of("bool", "BoolStorage", DType::Bool),
    of("complex64", "ComplexFloatStorage", DType::C64),
    of("complex128", "ComplexDoubleStorage", DType::C128),
    of("uint16", "", DType::U16),
    of("uint32", "", DType::U32),
    of("uint64", "", DType::U64),
    of("float8_e4m3fn", "", DType::F8E4M3Fn),
    of("float8_e5m2", "", DType::F8E5M2),
    of("float8_e4m3fnuz", "", DType::F8E4M3Fnuz),
    of("float8_e5m2fnuz", "", DType::F8E5M2Fnuz),
    of("float8_e8m0fnu", "", DType::F8E8M0Fnu),
    of("complex32", "", DType::C32),
];

impl Type {
    /// Returns the type of a name in the module `torch`.
    pub(super) fn of_name(name: &[u8]) -> Option<&'static Self> {
        TYPES.iter().find(|known| known.name.as_bytes() == name)
    }

    /// Returns the type of a storage's class in the module `torch`.
    pub(super) fn of_class(class: &[u8]) -> Option<&'static Self> {
        TYPES.iter().find(|known| !known.class.is_empty() && known.class.as_bytes() == class)
    }

    /// Returns the name that it has as a value.
    pub fn shown(&self) -> String {
        format!("torch.{}", self.name)
    }
}

/// A storage: the elements of one or several tensors.
#[derive(Debug)]
pub struct Storage {
    /// Its key, the last part of its member's name.
    pub key: Box<[u8]>,
    /// The type of its elements; `None` if it only counts bytes.
    pub(super) kind: Option<&'static Type>,
    /// The number of its elements, or of its bytes.
    pub(super) count: u64,
}

impl Storage {
    /// Returns its size in bytes; `None` if that does not fit 64 bits.
    pub(super) fn size(&self) -> Option<u64> {
        self.count.checked_mul(self.kind.map_or(1, |kind| kind.dtype.size()))
    }
}

/// A tensor: elements of a storage by strides. All numbers were checked.
#[derive(Debug)]
pub struct Tensor {
    /// Where its elements are.
    pub storage: Arc<Storage>,
    /// Bytes of the whole storage.
    pub storage_size: u64,
    /// The type of its elements.
    pub kind: &'static Type,
    /// Elements along each axis, the outermost first.
    pub shape: Box<[u64]>,
    /// The distance between neighbours along each axis, in elements.
    pub strides: Box<[u64]>,
    /// The first element.
    pub offset: u64,
}

impl Tensor {
    /// Returns a tensor if it is sound by section 4.
    pub(super) fn new(
        storage: Arc<Storage>,
        kind: &'static Type,
        offset: u64,
        [shape, strides]: [Box<[u64]>; 2],
    ) -> Option<Self> {
        let (storage_size, width) = (storage.size()?, kind.dtype.size());
        if shape.len() != strides.len() || shape.len() > limits::DIMENSIONS {
            return None;
        }
        let found = Self { storage, storage_size, kind, shape, strides, offset };
        if found.shape.contains(&0) {
            return Some(found);
        }
        let size = found.shape.iter().try_fold(width, |size, axis| size.checked_mul(*axis))?;
        let last = found
            .shape
            .iter()
            .zip(&found.strides)
            .try_fold(offset, |last, (axis, stride)| last.checked_add((axis - 1).checked_mul(*stride)?))?;
        let is_inside = last < storage_size / width;
        let is_small = size <= i64::MAX as u64 && size <= storage_size.saturating_mul(EXPANDED);
        (is_inside && is_small).then_some(found)
    }

    /// Returns how many elements it has.
    pub fn elements(&self) -> u64 {
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Returns how many bytes its elements have.
    pub fn size(&self) -> u64 {
        self.elements() * self.kind.dtype.size()
    }

    /// Returns the range of its bytes in the storage if they stand there in C order.
    pub fn range(&self) -> Option<Range<u64>> {
        let width = self.kind.dtype.size();
        let mut run = 1;
        for (&axis, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if axis != 1 && stride != run {
                return None;
            }
            run *= axis;
        }
        let start = self.offset * width;
        Some(start..start + self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(count: u64, offset: u64, shape: &[u64], strides: &[u64]) -> Option<Tensor> {
        let storage = Storage { key: (*b"0").into(), kind: Type::of_name(b"float32"), count };
        let kind = Type::of_name(b"float32").unwrap();
        Tensor::new(Arc::new(storage), kind, offset, [shape.into(), strides.into()])
    }

    #[test]
    fn tensors_that_leave_their_storage_are_not_sound() {
        let range = |count, offset, shape: &[u64], strides: &[u64]| tensor(count, offset, shape, strides)?.range();
        assert_eq!(range(6, 0, &[2, 3], &[3, 1]), Some(0..24));
        assert_eq!(range(6, 3, &[1, 3], &[77, 1]), Some(12..24));
        assert_eq!(range(1, 0, &[], &[]), Some(0..4));
        assert!(tensor(6, 0, &[3, 2], &[1, 3]).unwrap().range().is_none());
        for (offset, shape, strides) in [
            (0, &[7][..], &[1][..]),
            (6, &[1], &[1]),
            (0, &[2, 3], &[4, 1]),
            (0, &[2], &[1, 1]),
            (0, &[u64::MAX], &[0]),
            (0, &[2, 2], &[u64::MAX, u64::MAX]),
            (u64::MAX, &[2], &[1]),
            (0, &[1 << 40, 1 << 40], &[0, 0]),
            (0, &[6 * 1024 + 1], &[0]),
        ] {
            assert!(tensor(6, offset, shape, strides).is_none(), "{offset} {shape:?} {strides:?}");
        }
        assert!(tensor(6, 0, &[6 * 1024], &[0]).is_some());
        assert!(tensor(u64::MAX, 0, &[1], &[1]).is_none());
        // A tensor without elements needs nothing of the storage.
        assert_eq!(tensor(0, 99, &[1 << 62, 0, 1 << 62], &[1, 1, 1]).unwrap().size(), 0);
        assert!(tensor(6, 0, &[1; 33], &[1; 33]).is_none());
    }
}
