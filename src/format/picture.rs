//! The size fields of encoded pictures, read without decoding (`docs/formats/kdb.md` 7 and 9). Several formats have such
//! pictures.

use crate::{format::Fields, source::SourceError};

/// First bytes of a JPEG file.
pub(crate) const JPEG: [u8; 3] = [0xFF, 0xD8, 0xFF];

/// First bytes of a PNG file.
pub(crate) const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// Returns the suffix of an encoded picture, by its first bytes.
pub(crate) fn suffix(front: &[u8]) -> Option<&'static str> {
    match front {
        _ if front.starts_with(&JPEG) => Some(".jpg"),
        _ if front.starts_with(&PNG) => Some(".png"),
        _ => None,
    }
}

/// The fields of an encoded picture's own header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Channels of 8 bits when decoded (grey of fewer bits is scaled to 0 to 255). 0 for what a stack cannot hold:
    /// palettes, 16 bits, CMYK.
    pub(crate) channels: u8,
}

/// Returns the size in a PNG's IHDR chunk, which is always first.
pub(crate) fn png_size(front: &[u8]) -> Option<Size> {
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

/// Most segments of a JPEG before its frame header.
const SEGMENTS: usize = 1 << 16;

/// Returns the size in a JPEG's frame header. Segments before it are skipped by their lengths. `get` returns bytes at
/// an offset of the picture, if it has that many. `None` if a segment or the frame header is invalid, because raw
/// pixels can begin like a JPEG.
pub(crate) fn jpeg_size(
    mut get: impl FnMut(u64) -> Result<Option<[u8; 10]>, SourceError>,
) -> Result<Option<Size>, SourceError> {
    let mut at = 2u64;
    for _ in 0..SEGMENTS {
        // Marker, length, precision, height, width, components.
        let Some([0xFF, marker, length @ ..]) = get(at)? else { return Ok(None) };
        match marker {
            // Fill bytes, and markers without a length.
            0xFF => at += 1,
            0x01 | 0xD0..=0xD7 => at += 2,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                let [l1, l0, precision, h1, h0, w1, w0, components] = length;
                let length = u16::from_be_bytes([l1, l0]);
                // Three bytes for each component, all of them in the picture, as reading the last ten shows.
                let is_whole = length == 8 + 3 * u16::from(components) && get(at + u64::from(length) - 8)?.is_some();
                if !is_whole || !(1..=4).contains(&components) || !is_precision(marker, precision) {
                    return Ok(None);
                }
                let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
                let channels = if precision == 8 && matches!(components, 1 | 3) { components } else { 0 };
                let size = Size { width: width.into(), height: height.into(), channels };
                return Ok((width > 0 && height > 0).then_some(size));
            }
            // The picture's data or end comes before any frame header.
            0x00 | 0xD8..=0xDA => return Ok(None),
            _ => match u16::from_be_bytes([length[0], length[1]]) {
                // A segment's length counts itself.
                0 | 1 => return Ok(None),
                length => at += 2 + u64::from(length),
            },
        }
    }
    Ok(None)
}

/// Returns whether a kind of frame (by its marker) exists with this many bits per sample (ITU-T T.81, table B.2).
fn is_precision(marker: u8, bits: u8) -> bool {
    match marker {
        0xC0 => bits == 8,
        // Lossless.
        0xC3 | 0xC7 | 0xCB | 0xCF => (2..=16).contains(&bits),
        _ => bits == 8 || bits == 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: &[u8]) -> Option<Size> {
        jpeg_size(|at| {
            let at = usize::try_from(at).unwrap();
            Ok(bytes.get(at..at + 10).map(|bytes| bytes.try_into().unwrap()))
        })
        .unwrap()
    }

    /// A picture that is nothing but a frame header: marker, length, precision, 2 rows of 5 pixels.
    fn frame(marker: u8, length: u8, precision: u8, components: u8) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8, 0xFF, marker, 0, length, precision, 0, 2, 0, 5, components];
        bytes.resize(4 + usize::from(8 + 3 * u16::from(components)), 0x11);
        bytes
    }

    #[test]
    fn only_sane_frame_headers_count() {
        for (marker, precision, components, channels) in
            [(0xC0, 8, 1, 1), (0xC0, 8, 3, 3), (0xC2, 8, 4, 0), (0xC1, 12, 2, 0), (0xC3, 16, 3, 0)]
        {
            let whole = frame(marker, 8 + 3 * components, precision, components);
            assert_eq!(size(&whole), Some(Size { width: 5, height: 2, channels }), "{marker:x}");
            assert_eq!(size(&whole[..whole.len() - 1]), None, "cut short");
        }
        assert_eq!(size(&frame(0xC0, 8, 8, 0)), None, "no components");
        assert_eq!(size(&frame(0xC0, 23, 8, 5)), None, "five components");
        assert_eq!(size(&frame(0xC0, 18, 8, 3)), None, "a length that does not fit the components");
        for (marker, precision) in [(0xC0, 12), (0xC2, 16), (0xC3, 1), (0xC3, 17), (0xC1, 0)] {
            assert_eq!(size(&frame(marker, 17, precision, 3)), None, "{precision} bits in {marker:x}");
        }
        let mut before = vec![0xFF, 0xD8, 0xFF, 0xE0, 0, 1];
        before.extend(&frame(0xC0, 17, 8, 3)[2..]);
        assert_eq!(size(&before), None, "a segment shorter than its own length");
    }
}
