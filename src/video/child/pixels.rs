//! Converts luma and chroma to red, green and blue (`docs/formats/lerobot.md` 8).

use std::io;

/// Fractional bits of the factors.
const BITS: u32 = 16;
const HALF: i32 = 1 << (BITS - 1);

/// A decoded picture with one sample of each chroma for 2 × 2 pixels. Rows may have bytes after their last pixel.
pub(super) struct Planes<'a> {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) luma: &'a [u8],
    pub(super) luma_stride: usize,
    /// Blue and red.
    pub(super) chroma: [&'a [u8]; 2],
    pub(super) chroma_stride: usize,
    /// Matrix coefficients as the codecs number them.
    pub(super) matrix: u32,
    pub(super) is_full_range: bool,
}

/// Factors of the conversion, with [`BITS`] fractional bits.
#[derive(Debug, PartialEq)]
struct Factors {
    luma: i32,
    /// Subtracted from luma.
    black: i32,
    red_of_red: i32,
    green_of_blue: i32,
    green_of_red: i32,
    blue_of_blue: i32,
}

impl Factors {
    fn new(matrix: u32, is_full_range: bool) -> Self {
        let (red, blue) = match matrix {
            1 => (0.2126, 0.0722),
            9 => (0.2627, 0.0593),
            _ => (0.299, 0.114),
        };
        let (luma, chroma, black) = if is_full_range { (1.0, 1.0, 0) } else { (255.0 / 219.0, 255.0 / 224.0, 16) };
        let green = 1.0 - red - blue;
        let fixed = |factor: f64| (factor * f64::from(1 << BITS)).round() as i32;
        Self {
            luma: fixed(luma),
            black,
            red_of_red: fixed(chroma * 2.0 * (1.0 - red)),
            green_of_blue: fixed(chroma * 2.0 * (1.0 - blue) * blue / green),
            green_of_red: fixed(chroma * 2.0 * (1.0 - red) * red / green),
            blue_of_blue: fixed(chroma * 2.0 * (1.0 - blue)),
        }
    }
}

impl Planes<'_> {
    /// Returns width and height.
    pub(super) fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Returns the pixels in rows from the top. A pixel takes the chroma of its block.
    pub(super) fn to_rgb(&self) -> io::Result<Vec<u8>> {
        let (width, height) = (self.width as usize, self.height as usize);
        let factors = Factors::new(self.matrix, self.is_full_range);
        let mut rgb = crate::source::zeros(width * height * 3)?;
        let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        for (y, row) in rgb.chunks_exact_mut((width * 3).max(1)).enumerate() {
            let luma = self.luma.get(y * self.luma_stride..).and_then(|rest| rest.get(..width)).ok_or_else(short)?;
            let chroma = |plane: usize| {
                let rest = self.chroma.get(plane)?.get(y / 2 * self.chroma_stride..)?;
                rest.get(..width.div_ceil(2))
            };
            let (blue, red) = chroma(0).zip(chroma(1)).ok_or_else(short)?;
            let blocks = luma.chunks(2).zip(row.chunks_mut(6)).zip(blue.iter().zip(red));
            for ((luma, pixels), (&blue, &red)) in blocks {
                let (blue, red) = (i32::from(blue) - 128, i32::from(red) - 128);
                let to_red = factors.red_of_red * red + HALF;
                let to_green = HALF - factors.green_of_blue * blue - factors.green_of_red * red;
                let to_blue = factors.blue_of_blue * blue + HALF;
                for (&luma, pixel) in luma.iter().zip(pixels.chunks_exact_mut(3)) {
                    let luma = (i32::from(luma) - factors.black) * factors.luma;
                    for (out, chroma) in pixel.iter_mut().zip([to_red, to_green, to_blue]) {
                        *out = ((luma + chroma) >> BITS).clamp(0, 255) as u8;
                    }
                }
            }
        }
        Ok(rgb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixel(luma: u8, blue: u8, red: u8, matrix: u32, is_full_range: bool) -> [u8; 3] {
        let planes = Planes {
            width: 1,
            height: 1,
            luma: &[luma],
            luma_stride: 1,
            chroma: [&[blue], &[red]],
            chroma_stride: 1,
            matrix,
            is_full_range,
        };
        planes.to_rgb().unwrap().try_into().unwrap()
    }

    /// The formula of the page in floating point.
    fn expected(luma: u8, blue: u8, red: u8, matrix: u32, is_full_range: bool) -> [u8; 3] {
        let (kr, kb) = match matrix {
            1 => (0.2126, 0.0722),
            9 => (0.2627, 0.0593),
            _ => (0.299, 0.114),
        };
        let (y, cb, cr) = (f64::from(luma), f64::from(blue) - 128.0, f64::from(red) - 128.0);
        let (y, cb, cr) = match is_full_range {
            true => (y, cb, cr),
            false => ((y - 16.0) * 255.0 / 219.0, cb * 255.0 / 224.0, cr * 255.0 / 224.0),
        };
        let (r, b) = (y + 2.0 * (1.0 - kr) * cr, y + 2.0 * (1.0 - kb) * cb);
        let g = (y - kr * r - kb * b) / (1.0 - kr - kb);
        [r, g, b].map(|value| value.round().clamp(0.0, 255.0) as u8)
    }

    #[test]
    fn colours_are_those_of_the_formula() {
        for matrix in [0, 1, 2, 6, 9] {
            for is_full_range in [false, true] {
                for luma in (0..=255).step_by(15) {
                    for (blue, red) in [(128, 128), (0, 255), (255, 0), (16, 240), (90, 200), (130, 127)] {
                        let got = pixel(luma, blue, red, matrix, is_full_range);
                        let wanted = expected(luma, blue, red, matrix, is_full_range);
                        let is_near = got.iter().zip(wanted).all(|(&a, b)| a.abs_diff(b) <= 1);
                        assert!(is_near, "{luma} {blue} {red} {matrix} {is_full_range}: {got:?} {wanted:?}");
                    }
                }
            }
        }
        assert_eq!(pixel(16, 128, 128, 1, false), [0, 0, 0]);
        assert_eq!(pixel(235, 128, 128, 1, false), [255, 255, 255]);
    }

    #[test]
    fn odd_sizes_and_rows_with_a_rest_are_whole() {
        let planes = Planes {
            width: 3,
            height: 3,
            luma: &[1, 2, 3, 99, 4, 5, 6, 99, 7, 8, 9],
            luma_stride: 4,
            chroma: [&[128, 128, 0, 128, 128], &[128, 128, 0, 128, 128]],
            chroma_stride: 3,
            matrix: 6,
            is_full_range: true,
        };
        let rgb = planes.to_rgb().unwrap();
        assert_eq!(rgb, (1..=9u8).flat_map(|grey| [grey; 3]).collect::<Vec<_>>());
        assert!(Planes { height: 4, ..planes }.to_rgb().is_err());
    }
}
