//! Element types of arrays.

use std::fmt;

use serde::{Serialize, Serializer};

/// The element type of an array, under the short names that the formats share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "numpy's names, abbreviated")]
#[non_exhaustive]
pub enum DType {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    /// IDV's date with an offset: ticks of 100 ns since the year 1 (i64), then the offset in minutes (i16), packed.
    DateTimeOffset,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::DateTimeOffset => 10,
        }
    }

    /// The short name, as `container.json` gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U64 => "u64",
            Self::U32 => "u32",
            Self::U16 => "u16",
            Self::U8 => "u8",
            Self::Bool => "bool",
            Self::DateTimeOffset => "record",
        }
    }

    /// Returns numpy's `descr` (`docs/TREE.md`, section 2): a type string, or the list of a record's fields. numpy has
    /// none for bf16; its bits are `<u2`.
    pub fn descr(self) -> &'static str {
        match self {
            Self::F64 => "<f8",
            Self::F32 => "<f4",
            Self::F16 => "<f2",
            Self::I64 => "<i8",
            Self::I32 => "<i4",
            Self::I16 => "<i2",
            Self::I8 => "|i1",
            Self::U64 => "<u8",
            Self::U32 => "<u4",
            Self::U16 | Self::Bf16 => "<u2",
            Self::U8 => "|u1",
            Self::Bool => "|b1",
            Self::DateTimeOffset => "[('ticks', '<i8'), ('offset_minutes', '<i2')]",
        }
    }

    /// Whether the elements are floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
