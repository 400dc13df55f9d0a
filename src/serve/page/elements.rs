//! An array of the tree whose elements are read as they are needed.

use std::ffi::OsStr;

use crate::{
    format::ElementType,
    view::npy,
    volume::{Entry, Error, ErrorKind},
};

/// Bytes that are read of a file for its header.
const HEADER: u64 = 4096;

/// An array as rows: the outermost axis counts them, the other axes are the columns of a row, flattened in C order. An
/// array without axes is one row of one column.
#[derive(Debug, Clone)]
pub(super) struct Elements {
    pub(super) entry: Entry,
    pub(super) dtype: ElementType,
    pub(super) shape: Vec<u64>,
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Where the elements begin in the file.
    start: u64,
}

impl Elements {
    /// Returns the array of a `.npy` file; `None` for every other file. If only the file itself says what array it is, its
    /// front is read.
    ///
    /// # Errors
    /// Those of [`Self::known`], and of reading the file.
    pub(super) fn of(entry: &Entry) -> Result<Option<Self>, Error> {
        if let Some(known) = Self::known(entry)? {
            return Ok(Some(known));
        }
        if !entry.is_file() || entry.path().extension() != Some(OsStr::new("npy")) {
            return Ok(None);
        }
        let Some((dtype, shape, start)) = npy::parse(&entry.read_range(0, HEADER)?) else { return Ok(None) };
        let end = shape.iter().try_fold(dtype.size(), |bytes, &axis| bytes.checked_mul(axis));
        let fits = end.and_then(|bytes| bytes.checked_add(start)) == Some(entry.size());
        Ok(fits.then(|| Self::new(entry, dtype.into(), shape, start)))
    }

    /// Returns the array of a `.npy` file whose container knows it; `None` for every other file. Decodes nothing.
    ///
    /// # Errors
    /// Those of opening the container, and damage if the shape does not fit the size.
    pub(super) fn known(entry: &Entry) -> Result<Option<Self>, Error> {
        let placed = entry.placed_array()?;
        Ok(placed.map(|(dtype, shape, start)| Self::new(entry, dtype, shape, start)))
    }

    fn new(entry: &Entry, dtype: ElementType, shape: Vec<u64>, start: u64) -> Self {
        let rows = shape.first().copied().unwrap_or(1);
        // If an array has no elements, its other axes may have any length.
        let columns = shape.iter().skip(1).fold(1u64, |all, axis| all.saturating_mul(*axis));
        Self { entry: entry.clone(), dtype, shape, rows, columns, start }
    }

    /// Bytes of an element.
    pub(super) fn width(&self) -> usize {
        self.dtype.size() as usize
    }

    /// Returns the bytes of `count` elements from element `from` on, in C order; fewer only at the end.
    ///
    /// # Errors
    /// Those of [`Entry::read_range`].
    pub(super) fn read(&self, from: u64, count: u64) -> Result<Vec<u8>, Error> {
        let width = self.dtype.size();
        let offset = from.checked_mul(width).and_then(|bytes| bytes.checked_add(self.start));
        let offset = offset.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "there is no such element".into()))?;
        self.entry.read_range(offset, count.saturating_mul(width))
    }

    /// Returns the bytes of some columns of a row.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_part(&self, row: u64, column: u64, columns: u64) -> Result<Vec<u8>, Error> {
        self.read(row.saturating_mul(self.columns).saturating_add(column), columns)
    }
}

/// Formats a shape like `24 × 7`; `scalar` for an array without axes.
pub(super) fn shape_text(shape: &[u64]) -> String {
    if shape.is_empty() {
        return "scalar".into();
    }
    shape.iter().map(|axis| super::html::grouped(*axis)).collect::<Vec<_>>().join(" × ")
}
