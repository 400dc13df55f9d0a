//! Encoded pictures to pixels of 8 bits a channel, for stacks of frames (contract, section 4).

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, ImageReader, Limits};

use super::{Codec, DecodeError, to_usize};
use crate::limits;

/// Decodes to exactly `size` bytes: rows from the top, channels interleaved.
pub(super) fn decode(codec: Codec, stored: &[u8], size: u64) -> Result<Vec<u8>, DecodeError> {
    let (format, (width, height, channels)) = match codec {
        Codec::Jpeg(width, height, channels) => (ImageFormat::Jpeg, (width, height, channels)),
        Codec::Png(width, height, channels) => (ImageFormat::Png, (width, height, channels)),
        Codec::None | Codec::Zstd | Codec::Lz4 => return Err(codec.corrupt("no picture")),
    };
    let mut reader = ImageReader::with_format(Cursor::new(stored), format);
    let mut bounds = Limits::default();
    (bounds.max_image_width, bounds.max_image_height) = (Some(width), Some(height));
    bounds.max_alloc = Some(4 * limits::PICTURE);
    reader.limits(bounds);
    let decoded = reader.decode().map_err(|error| codec.corrupt(error))?;
    let same = (decoded.width(), decoded.height()) == (width, height);
    // A transparent colour of a PNG comes as alpha; the picture's own channels are without.
    let pixels = match (channels, decoded) {
        (1, DynamicImage::ImageLuma8(pixels)) => pixels.into_raw(),
        (1, DynamicImage::ImageLumaA8(pixels)) => pixels.pixels().map(|pixel| pixel[0]).collect(),
        (2, DynamicImage::ImageLumaA8(pixels)) => pixels.into_raw(),
        (3, DynamicImage::ImageRgb8(pixels)) => pixels.into_raw(),
        (3, DynamicImage::ImageRgba8(pixels)) => pixels.pixels().flat_map(|p| [p[0], p[1], p[2]]).collect(),
        (4, DynamicImage::ImageRgba8(pixels)) => pixels.into_raw(),
        _ => return Err(codec.corrupt("it decodes to other channels than its header says")),
    };
    if !same || pixels.len() != to_usize(size) {
        return Err(DecodeError::Size { got: pixels.len() as u64, size });
    }
    Ok(pixels)
}
