//! One picture of an array: two of its axes as height and width, for arrays of pictures and for matrices.

use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::{elements::Elements, numbers, query::Query};
use crate::{
    format::{DType, ElementType},
    serve::Refusal,
    volume::Error,
};

/// Longest side of a returned picture in pixels. Of longer sides, rows or columns are skipped.
const SIDE: u64 = 1024;
/// Bytes that are read for one picture. If its elements lie farther apart, fewer of them are shown.
const LOOKED_AT: u64 = 64 << 20;
/// What the read of a single element counts among those bytes.
const SINGLE: u64 = 4096;

/// Bytes that the line about a picture may take.
const HEAD: usize = 1024;

/// How an array is seen as pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Layout {
    /// How many pictures: the axes before the picture's own, flattened.
    pub(super) count: u64,
    pub(super) height: u64,
    pub(super) width: u64,
    /// 1, 3 (red, green, blue) or 4 (and opacity).
    pub(super) channels: u64,
}

/// Returns how an array is seen as pictures; `None` if it has fewer than two axes, an axis of no
/// elements, or elements that are no numbers.
pub(super) fn layout(array: &Elements) -> Option<Layout> {
    let shape = &array.shape[..];
    if !array.dtype.is_number() {
        return None;
    }
    let is_colour = |channels: u64| array.dtype == DType::U8 && matches!(channels, 3 | 4);
    let (before, height, width, channels) = match shape {
        [before @ .., height, width, channels]
            if *height > 1 && *width > 1 && (is_colour(*channels) || *channels == 1) =>
        {
            (before, *height, *width, *channels)
        }
        [before @ .., height, width] => (before, *height, *width, 1),
        _ => return None,
    };
    let layout =
        Layout { count: before.iter().fold(1u64, |all, axis| all.saturating_mul(*axis)), height, width, channels };
    (layout.count > 0 && height > 0 && width > 0 && channels > 0).then_some(layout)
}

/// Returns whether the pictures of an array look like pictures rather than rows of numbers.
pub(super) fn is_picture_like(array: &Elements, layout: Layout) -> bool {
    layout.height >= 8 && layout.width >= 8 && (array.shape.len() > 2 || array.dtype == DType::U8)
}

/// The elements of a picture: where the first stands in the array, and how far apart rows and columns are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    first: u64,
    height: u64,
    width: u64,
    row: u64,
    column: u64,
    channels: u64,
}

impl Grid {
    /// Returns picture `index` of a layout.
    fn of_layout(layout: Layout, index: u64) -> Self {
        let Layout { height, width, channels, .. } = layout;
        let row = width.saturating_mul(channels);
        Self { first: index.saturating_mul(height).saturating_mul(row), height, width, row, column: channels, channels }
    }

    /// Returns the elements along two axes, where all other axes have the indexes `at`; `None` if there are no such
    /// axes or indexes.
    fn of_axes(shape: &[u64], (rows, columns): (usize, usize), at: &[u64]) -> Option<Self> {
        if rows == columns || at.len() != shape.len() || shape.contains(&0) {
            return None;
        }
        let mut strides = vec![1u64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis].checked_mul(shape[axis])?;
        }
        let others = (0..shape.len()).filter(|axis| *axis != rows && *axis != columns);
        let mut first = 0u64;
        for axis in others {
            let index = Some(at[axis]).filter(|index| *index < shape[axis])?;
            first = first.checked_add(index.checked_mul(strides[axis])?)?;
        }
        let (height, width) = (*shape.get(rows)?, *shape.get(columns)?);
        Some(Self { first, height, width, row: strides[rows], column: strides[columns], channels: 1 })
    }

    /// Returns what belongs to the axis whose elements are farther apart, and to the other, of what belongs to rows and
    /// to columns; and the other way round.
    fn turned<T>(&self, (rows, columns): (T, T)) -> (T, T) {
        if self.row >= self.column { (rows, columns) } else { (columns, rows) }
    }

    /// Returns length and distance of the axis whose elements are farther apart, and of the other.
    fn outer_and_inner(&self) -> ((u64, u64), (u64, u64)) {
        self.turned(((self.height, self.row), (self.width, self.column)))
    }

    /// Returns whether all elements along the inner axis are read together, if every `every`-th is shown, and what one
    /// such line costs in bytes.
    fn line(&self, size: u64, every: u64) -> (bool, u64) {
        let (_, (length, distance)) = self.outer_and_inner();
        let together = (length - 1).saturating_mul(distance).saturating_add(self.channels).saturating_mul(size);
        let single = length.div_ceil(every).saturating_mul(SINGLE);
        (together <= single, together.min(single))
    }

    /// Returns how many elements one that is shown stands for, along the outer and the inner axis, so that no more is
    /// read than may be.
    fn every(&self, size: u64) -> (u64, u64) {
        let ((outer, _), (inner, _)) = self.outer_and_inner();
        let [mut far, mut near] = [outer, inner].map(|length| length.div_ceil(SIDE));
        while outer.div_ceil(far).saturating_mul(self.line(size, near).1) > LOOKED_AT {
            let longer = if outer.div_ceil(far) >= inner.div_ceil(near) { &mut far } else { &mut near };
            *longer = longer.saturating_mul(2);
        }
        (far, near)
    }

    /// Calls `each` with row, column (of those that are shown) and the bytes of each element.
    fn read(&self, array: &Elements, every: (u64, u64), each: &mut dyn FnMut(u64, u64, &[u8])) -> Result<(), Error> {
        let size = array.dtype.size();
        let ((outer, far), (inner, near)) = self.outer_and_inner();
        let (is_together, _) = self.line(size, every.1);
        let element = (self.channels * size) as usize;
        for (line, position) in (0..outer).step_by(every.0 as usize).enumerate() {
            let begin = self.first + position * far;
            let bytes = match is_together {
                true => array.read(begin, (inner - 1) * near + self.channels)?,
                false => Vec::new(),
            };
            for (place, position) in (0..inner).step_by(every.1 as usize).enumerate() {
                let (row, column) = self.turned((line as u64, place as u64));
                if is_together {
                    let start = (position * near * size) as usize;
                    each(row, column, bytes.get(start..start + element).unwrap_or_default());
                } else {
                    each(row, column, &array.read(begin + position * near, self.channels)?);
                }
            }
        }
        Ok(())
    }
}

/// Returns a picture: a line of JSON that says how it is made, then the pixels row by row, little-endian. They are bytes
/// if the array's elements are, f32 if those hold the same numbers, and otherwise f64. The query has `index`, or two
/// `axes` and the indexes `at` along all.
///
/// # Errors
/// Status 400 if the array has no pictures, or not this one; and those of reading the array.
pub(super) fn plane(array: &Elements, query: &Query) -> Result<Vec<u8>, Refusal> {
    let grid = grid(array, query)?;
    let every = grid.every(array.dtype.size());
    let (every_row, every_column) = grid.turned(every);
    let (height, width) = (grid.height.div_ceil(every_row), grid.width.div_ceil(every_column));
    let channels = grid.channels;
    let (pixels_are, size) = match array.dtype {
        ElementType::Plain(DType::U8 | DType::Bool) => ("u8", 1),
        ElementType::Plain(dtype) if dtype == DType::F32 || dtype.size() <= 2 => ("f32", size_of::<f32>()),
        _ => ("f64", size_of::<f64>()),
    };
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    // At most 1024 pixels a side. The line of JSON finds room behind them before it is put in front.
    let bytes = (height * width * channels) as usize * size;
    let mut pixels = Vec::with_capacity(bytes + HEAD);
    pixels.resize(bytes, 0);
    grid.read(array, every, &mut |row, column, bytes| {
        let first = ((row * width + column) * channels) as usize * size;
        for (element, pixel) in bytes.chunks_exact(array.width()).zip(pixels[first..].chunks_exact_mut(size)) {
            let value = numbers::value(&array.dtype, element);
            if value.is_finite() {
                (min, max) = (min.min(value), max.max(value));
            }
            match pixel.len() {
                1 => pixel[0] = element[0],
                4 => pixel.copy_from_slice(&(value as f32).to_le_bytes()),
                _ => pixel.copy_from_slice(&value.to_le_bytes()),
            }
        }
    })?;
    let head = json!({
        "height": height,
        "width": width,
        "channels": channels,
        // How many rows and how many columns of the array one that is shown stands for.
        "every": (every_row, every_column),
        "pixels": pixels_are,
        // The smallest and largest finite value of the pixels.
        "min": Some(min).filter(|min| min.is_finite()),
        "max": Some(max).filter(|max| max.is_finite()),
    });
    pixels.splice(0..0, format!("{head}\n").into_bytes());
    Ok(pixels)
}

/// Returns the elements that a query asks for.
fn grid(array: &Elements, query: &Query) -> Result<Grid, Refusal> {
    let refuse = |reason: &str| Refusal::new(StatusCode::BAD_REQUEST, reason);
    if let Some(axes) = query.text("axes") {
        let numbers = |text: &str| text.split(',').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>();
        let at = query.text("at").and_then(numbers);
        let grid = match (numbers(axes).as_deref(), at) {
            (Some(&[rows, columns]), Some(at)) => Grid::of_axes(&array.shape, (rows as usize, columns as usize), &at),
            _ => None,
        };
        return grid.ok_or_else(|| refuse("the array has no such axes, or no such indexes along the others"));
    }
    let layout = layout(array).ok_or_else(|| refuse("the array has no two axes that could be a picture"))?;
    let index = query.number("index").unwrap_or(0);
    if index >= layout.count {
        return Err(refuse("there is no picture of that number"));
    }
    Ok(Grid::of_layout(layout, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_chosen_freely() {
        let grid = |axes, at: &[u64]| Grid::of_axes(&[2, 3, 5], axes, at);
        let expected = Grid { first: 10, height: 2, width: 5, row: 15, column: 1, channels: 1 };
        assert_eq!(grid((0, 2), &[9, 2, 9]), Some(expected));
        let expected = Grid { first: 4, height: 3, width: 2, row: 5, column: 15, channels: 1 };
        assert_eq!(grid((1, 0), &[0, 0, 4]), Some(expected));
        assert_eq!(grid((0, 0), &[0, 0, 0]), None);
        assert_eq!(grid((0, 3), &[0, 0, 0]), None);
        assert_eq!(grid((0, 1), &[0, 0, 5]), None);
        assert_eq!(grid((0, 1), &[0, 0]), None);
        assert_eq!(Grid::of_axes(&[u64::MAX, u64::MAX, 2], (0, 1), &[0, 0, 0]), None);
    }

    /// However far apart elements are, a bounded number of bytes is read for a picture.
    #[test]
    fn no_picture_reads_too_much() {
        for (shape, axes) in
            [([1 << 20, 1 << 20, 1 << 20], (0, 1)), ([1 << 40, 4, 1 << 10], (2, 0)), ([3, 1 << 62, 1], (1, 0))]
        {
            let grid = Grid::of_axes(&shape, axes, &[0, 0, 0]).unwrap();
            let (far, near) = grid.every(1);
            let ((outer, _), (inner, _)) = grid.outer_and_inner();
            assert!(outer.div_ceil(far) * grid.line(1, near).1 <= LOOKED_AT, "{shape:?}");
            assert!(outer.div_ceil(far) <= SIDE && inner.div_ceil(near) <= SIDE);
        }
    }
}
