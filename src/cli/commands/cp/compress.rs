//! `cp --compress`: pictures of pixels that are shown uncompressed, so that their size needs no decoding, are copied as
//! compressed PNG files.

use std::io::Cursor;

use image::{
    DynamicImage, ImageFormat, ImageReader, ImageResult, Limits,
    codecs::png::{CompressionType, FilterType, PngEncoder},
};

use crate::limits;

/// Bytes of the largest file that is compressed. Others are copied as they are.
pub(super) const LARGEST: u64 = 256 << 20;

/// Memory in bytes that compressing takes, for each byte of the file: its pixels, and the compressed file.
pub(super) const MEMORY: u64 = 3;

/// Length of the signature, and of the header's chunk.
const FRONT: usize = 8 + 25;

/// Returns the same picture, compressed. `None` for what is no PNG of uncompressed pixels alone, and for what would not be
/// smaller.
pub(super) fn compressed(file: &[u8]) -> Option<Vec<u8>> {
    if !is_stored(file) {
        return None;
    }
    let picture = decode_png(file, 2 * file.len() as u64).ok()?;
    let mut out = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut out, CompressionType::Default, FilterType::Adaptive);
    picture.write_with_encoder(encoder).ok()?;
    (out.len() < file.len()).then_some(out)
}

/// Decodes a PNG of any depth and kind, with at most so many bytes of memory for pixels.
///
/// # Errors
/// If it is damaged, or takes more memory.
pub(in crate::cli) fn decode_png(file: &[u8], most: u64) -> ImageResult<DynamicImage> {
    let mut reader = ImageReader::with_format(Cursor::new(file), ImageFormat::Png);
    let mut bounds = Limits::default();
    bounds.max_alloc = Some(most.saturating_add(limits::PICTURE_CHUNKS));
    reader.limits(bounds);
    reader.decode()
}

/// Returns whether a file is a PNG with nothing but pixels of 8 or 16 bits in stored deflate blocks.
fn is_stored(file: &[u8]) -> bool {
    let chunk = |at: usize| -> Option<(usize, &[u8; 4])> {
        let length = u32::from_be_bytes(*file.get(at..)?.first_chunk()?) as usize;
        Some((at.checked_add(12)?.checked_add(length)?, file.get(at + 4..)?.first_chunk()?))
    };
    // A compressed stream begins with another kind of block.
    let first_block = file.get(FRONT + 8..FRONT + 11);
    let is_stored = first_block.is_some_and(|block| block[..2] == [0x78, 0x01] && block[2] & 0b110 == 0);
    if !file.starts_with(&crate::format::picture::PNG) || !is_stored || !matches!(file.get(24), Some(8 | 16)) {
        return false;
    }
    let mut at = FRONT;
    loop {
        match chunk(at) {
            Some((next, b"IDAT")) => at = next,
            Some((end, b"IEND")) => return end == file.len(),
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Volume;

    fn pixels(file: &[u8]) -> DynamicImage {
        image::load_from_memory_with_format(file, ImageFormat::Png).unwrap()
    }

    #[test]
    fn pictures_have_the_same_pixels() {
        let volume = Volume::open("fixtures/ep_001.wshard").unwrap();
        for path in ["images/cam0/rgb/000.png", "images/cam0/depth/000.png"] {
            let file = volume.get(path).unwrap().read().unwrap();
            let small = compressed(&file).unwrap();
            assert!(small.len() < file.len(), "{path}");
            assert_eq!(pixels(&small), pixels(&file), "{path}");
            assert!(compressed(&small).is_none(), "what is compressed stays as it is");
            assert!(compressed(&file[..file.len() - 1]).is_none(), "it is cut");
            let mut more = file[..FRONT].to_vec();
            more.extend(b"\0\0\0\0tEXt\0\0\0\0");
            more.extend(&file[FRONT..]);
            assert!(compressed(&more).is_none(), "text would be lost");
        }
        assert!(compressed(b"").is_none() && compressed(b"no picture").is_none());
    }
}
