//! The size fields of encoded pictures, read without decoding (`docs/formats/kdb.md` 7 and 9).

use crate::{format::Fields, source::SourceError};

/// First bytes of a JPEG file.
pub(super) const JPEG: [u8; 3] = [0xFF, 0xD8, 0xFF];

/// First bytes of a PNG file.
pub(super) const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// What an encoded picture's own header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Channels of 8 bits when decoded (grey of fewer bits is spread over 0 to 255); 0 for what a stack can't hold:
    /// palettes, 16 bits, CMYK.
    pub(super) channels: u8,
}

/// The size in a PNG's IHDR chunk, which is always first.
pub(super) fn png_size(front: &[u8]) -> Option<Size> {
    let big = |at: usize| front.array(at).map(u32::from_be_bytes);
    if big(8)? != 13 || front.get(12..16)? != b"IHDR" {
        return None;
    }
    let (width, height) = (big(16)?, big(20)?);
    let channels = match (front.get(24)?, front.get(25)?) {
        (1 | 2 | 4 | 8, 0) => 1,
        (8, 4) => 2,
        (8, 2) => 3,
        (8, 6) => 4,
        _ => 0,
    };
    (width > 0 && height > 0).then_some(Size { width, height, channels })
}

/// Segments of a JPEG that are looked at before its frame header must have come.
const SEGMENTS: usize = 1 << 16;

/// The size in a JPEG's frame header: the segments before it are skipped by their lengths. `get` gives the bytes at a
/// place of the picture, where that many are in it.
pub(super) fn jpeg_size(
    mut get: impl FnMut(u64) -> Result<Option<[u8; 10]>, SourceError>,
) -> Result<Option<Size>, SourceError> {
    let mut at = 2u64;
    for _ in 0..SEGMENTS {
        // Marker, length, precision, height, width, components.
        let Some([0xFF, marker, length @ ..]) = get(at)? else { return Ok(None) };
        match marker {
            // Fill bytes, and markers that stand alone.
            0xFF => at += 1,
            0x01 | 0xD0..=0xD7 => at += 2,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                let [_, _, precision, h1, h0, w1, w0, components] = length;
                let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
                let channels = if precision == 8 && matches!(components, 1 | 3) { components } else { 0 };
                let size = Size { width: width.into(), height: height.into(), channels };
                return Ok((width > 0 && height > 0).then_some(size));
            }
            // The picture's end, or its data, without a frame header.
            0x00 | 0xD8..=0xDA => return Ok(None),
            _ => at += 2 + u64::from(u16::from_be_bytes([length[0], length[1]]).max(2)),
        }
    }
    Ok(None)
}
