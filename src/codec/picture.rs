//! Decodes pictures to pixels with 8 bits a channel, for stacks of frames (`docs/TREE.md`, section 4).

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::{Codec, DecodeError, to_usize};
use crate::limits;

/// Decodes `size` bytes of pixels: rows from the top, channels interleaved.
pub(super) fn decode(codec: &Codec, stored: &[u8], size: u64) -> Result<Vec<u8>, DecodeError> {
    let (size_stated, (size_found, pixels)) = match codec {
        Codec::Jpeg(width, height, channels) => ((*width, *height), jpeg(codec, stored, (*width, *height), *channels)?),
        Codec::Png(width, height, channels) => {
            ((*width, *height), png(codec, stored, (*width, *height), *channels, size)?)
        }
        Codec::None
        | Codec::Zstd
        | Codec::Lz4
        | Codec::Deflate
        | Codec::DeflateExact
        | Codec::Zlib
        | Codec::ZlibExact
        | Codec::Chain(_) => {
            return Err(codec.corrupt("no picture"));
        }
    };
    if size_found != size_stated || pixels.len() != to_usize(size) {
        return Err(DecodeError::Size { got: pixels.len() as u64, size });
    }
    Ok(pixels)
}

/// Width and height, and the pixels.
type Decoded = ((u32, u32), Vec<u8>);

fn jpeg(codec: &Codec, stored: &[u8], (width, height): (u32, u32), channels: u8) -> Result<Decoded, DecodeError> {
    // Strict: a file that ends early is an error, not a picture that is grey from there on.
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(width as usize)
        .set_max_height(height as usize)
        .jpeg_set_out_colorspace(if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB });
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(stored), options);
    let pixels = decoder.decode().map_err(|error| codec.corrupt(error.to_string().trim_end()))?;
    let (width, height) = decoder.dimensions().unwrap_or((0, 0));
    let side = |length| u32::try_from(length).unwrap_or(u32::MAX);
    Ok(((side(width), side(height)), pixels))
}

fn png(
    codec: &Codec,
    stored: &[u8],
    (width, height): (u32, u32),
    channels: u8,
    size: u64,
) -> Result<Decoded, DecodeError> {
    let mut reader = ImageReader::with_format(Cursor::new(stored), ImageFormat::Png);
    let mut bounds = Limits::default();
    (bounds.max_image_width, bounds.max_image_height) = (Some(width), Some(height));
    // A transparent colour takes one more channel.
    bounds.max_alloc = Some(4 * size + limits::PICTURE_CHUNKS);
    reader.limits(bounds);
    let decoded = reader.decode().map_err(|error| codec.corrupt(error))?;
    let dimensions = (decoded.width(), decoded.height());
    // The decoder returns a transparent colour as alpha; the picture's own channels do not have it.
    let pixels = match (channels, decoded) {
        (1, DynamicImage::ImageLuma8(pixels)) => pixels.into_raw(),
        (1, DynamicImage::ImageLumaA8(pixels)) => pixels.pixels().map(|pixel| pixel[0]).collect(),
        (2, DynamicImage::ImageLumaA8(pixels)) => pixels.into_raw(),
        (3, DynamicImage::ImageRgb8(pixels)) => pixels.into_raw(),
        (3, DynamicImage::ImageRgba8(pixels)) => pixels.pixels().flat_map(|p| [p[0], p[1], p[2]]).collect(),
        (4, DynamicImage::ImageRgba8(pixels)) => pixels.into_raw(),
        _ => return Err(codec.corrupt("it decodes to other channels than its header says")),
    };
    Ok((dimensions, pixels))
}
