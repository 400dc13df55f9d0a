//! One picture of an array: two of its axes as height and width, for arrays of pictures and for matrices.

use http::StatusCode;
use serde::Serialize;

use super::{elements::Elements, numbers, query::Query};
use crate::{format::DType, serve::Refusal};

/// Longest side of a returned picture in pixels. Of larger pictures, rows and columns are skipped.
const SIDE: u64 = 1024;
/// Bytes of a row of a picture that may be read.
const ROW: u64 = 4 << 20;

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

/// Returns how an array is seen as pictures; `None` if it has fewer than two axes, or an axis of no elements.
pub(super) fn layout(array: &Elements) -> Option<Layout> {
    let shape = &array.shape[..];
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

/// The line before the pixels in the answer.
#[derive(Debug, Serialize)]
struct Head {
    height: u64,
    width: u64,
    channels: u64,
    /// Every `every`-th row and column of the array is shown.
    every: u64,
    /// `u8`, or `f32` for all other types.
    pixels: &'static str,
    /// The smallest and largest finite value of the pixels.
    min: Option<f64>,
    max: Option<f64>,
}

/// Returns picture `index`: a line of JSON, then the pixels row by row. They are bytes if the array's elements are, and
/// otherwise f32, little-endian.
///
/// # Errors
/// Status 400 if the array has no pictures, not this one, or too long rows; and those of reading the array.
pub(super) fn plane(array: &Elements, query: &Query) -> Result<Vec<u8>, Refusal> {
    let refuse = |reason: &str| Refusal::new(StatusCode::BAD_REQUEST, reason);
    let layout = layout(array).ok_or_else(|| refuse("the array has no two axes that could be a picture"))?;
    let Layout { count, height, width, channels } = layout;
    let index = query.number("index").unwrap_or(0);
    if index >= count {
        return Err(refuse("there is no picture of that number"));
    }
    if width.saturating_mul(channels).saturating_mul(array.dtype.size()) > ROW {
        return Err(refuse("a row of the picture is too large to be shown"));
    }
    let every = height.max(width).div_ceil(SIDE).max(1);
    let is_bytes = matches!(array.dtype, DType::U8 | DType::Bool);
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut pixels = Vec::new();
    let pixel = array.width() * channels as usize;
    for row in (0..height).step_by(every as usize) {
        let first = (index * height + row) * width * channels;
        let bytes = array.read(first, width * channels)?;
        for element in bytes.chunks_exact(pixel).step_by(every as usize).flat_map(|p| p.chunks_exact(array.width())) {
            let value = numbers::value(array.dtype, element);
            if value.is_finite() {
                (min, max) = (min.min(value), max.max(value));
            }
            if is_bytes {
                pixels.push(element[0]);
            } else {
                pixels.extend((value as f32).to_le_bytes());
            }
        }
    }
    let head = Head {
        height: height.div_ceil(every),
        width: width.div_ceil(every),
        channels,
        every,
        pixels: if is_bytes { "u8" } else { "f32" },
        min: Some(min).filter(|min| min.is_finite()),
        max: Some(max).filter(|max| max.is_finite()),
    };
    // Serializing cannot fail: all keys are texts.
    let mut answer = serde_json::to_vec(&head).unwrap_or_default();
    answer.push(b'\n');
    answer.append(&mut pixels);
    Ok(answer)
}
