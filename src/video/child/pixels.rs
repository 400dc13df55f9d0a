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

/// Converts pictures. Keeps its memory for the next one.
#[derive(Default)]
pub(super) struct Converter {
    rgb: Vec<u8>,
    /// What the chroma of the pixels of a row adds to their red, green and blue, with [`BITS`] fractional bits.
    added: [Vec<i32>; 3],
    /// A row of pixels: red in the lowest byte, green, blue, 0.
    packed: Vec<u32>,
}

impl Converter {
    /// Returns the pixels of a picture in rows from the top. A pixel takes the chroma of its block.
    ///
    /// # Errors
    /// If a plane is too short, or there is no memory.
    pub(super) fn convert(&mut self, planes: &Planes<'_>) -> io::Result<&[u8]> {
        let (width, height) = (planes.width as usize, planes.height as usize);
        let factors = Factors::new(planes.matrix, planes.is_full_range);
        if self.rgb.len() != width * height * 3 {
            self.rgb = crate::source::zeros(width * height * 3)?;
        }
        self.added.iter_mut().for_each(|row| row.resize(width.next_multiple_of(2), 0));
        self.packed.resize(width, 0);
        let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        for (y, row) in self.rgb.chunks_exact_mut((width * 3).max(1)).enumerate() {
            let luma =
                planes.luma.get(y * planes.luma_stride..).and_then(|rest| rest.get(..width)).ok_or_else(short)?;
            if y % 2 == 0 {
                let chroma = |plane: usize| {
                    let rest = planes.chroma.get(plane)?.get(y / 2 * planes.chroma_stride..)?;
                    rest.get(..width.div_ceil(2))
                };
                let (blue, red) = chroma(0).zip(chroma(1)).ok_or_else(short)?;
                factors.share(blue, red, &mut self.added);
            }
            factors.pack(luma, &self.added, &mut self.packed);
            unpack(&self.packed, row);
        }
        Ok(&self.rgb)
    }
}

// The compiler works on several pixels at once in these loops, unless each sum is checked: hence the wrapping
// operations. No sum is larger than 2^27.
impl Factors {
    /// Computes what chroma adds to two pixels for each of its samples.
    fn share(&self, blue: &[u8], red: &[u8], added: &mut [Vec<i32>; 3]) {
        let [to_red, to_green, to_blue] = added.each_mut().map(|row| row.chunks_exact_mut(2));
        for (((to_red, to_green), to_blue), (&blue, &red)) in
            to_red.zip(to_green).zip(to_blue).zip(blue.iter().zip(red))
        {
            let (blue, red) = (i32::from(blue).wrapping_sub(128), i32::from(red).wrapping_sub(128));
            to_red.fill(self.red_of_red.wrapping_mul(red).wrapping_add(HALF));
            let of_red = HALF.wrapping_sub(self.green_of_red.wrapping_mul(red));
            to_green.fill(of_red.wrapping_sub(self.green_of_blue.wrapping_mul(blue)));
            to_blue.fill(self.blue_of_blue.wrapping_mul(blue).wrapping_add(HALF));
        }
    }

    /// Adds luma, and packs the pixels of a row.
    fn pack(&self, luma: &[u8], added: &[Vec<i32>; 3], packed: &mut [u32]) {
        let [to_red, to_green, to_blue] = added;
        for ((((pixel, &luma), &to_red), &to_green), &to_blue) in
            packed.iter_mut().zip(luma).zip(to_red).zip(to_green).zip(to_blue)
        {
            let luma = i32::from(luma).wrapping_sub(self.black).wrapping_mul(self.luma);
            let colour = |added: i32| (luma.wrapping_add(added) >> BITS).clamp(0, 255) as u32;
            *pixel = colour(to_red) | colour(to_green) << 8 | colour(to_blue) << 16;
        }
    }
}

/// Writes a row of packed pixels, three bytes for each: four pixels are three words.
fn unpack(packed: &[u32], row: &mut [u8]) {
    let (fours, rest) = packed.as_chunks::<4>();
    let (words, last) = row.split_at_mut((fours.len() * 12).min(row.len()));
    for (out, [first, second, third, fourth]) in words.chunks_exact_mut(12).zip(fours) {
        let words = [first | second << 24, second >> 8 | third << 16, third >> 16 | fourth << 8];
        for (out, word) in out.chunks_exact_mut(4).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
    }
    for (out, pixel) in last.chunks_exact_mut(3).zip(rest) {
        let [red, green, blue, _] = pixel.to_le_bytes();
        out.copy_from_slice(&[red, green, blue]);
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
        Converter::default().convert(&planes).unwrap().try_into().unwrap()
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
    fn pictures_of_any_width_are_those_of_their_pixels() {
        let mut converter = Converter::default();
        let bytes: Vec<u8> = (0..64u32).map(|at| (at * at * 37 + 11 * at) as u8).collect();
        for (width, height) in (1..14).flat_map(|width| [(width, 1), (width, 2), (width, 3)]) {
            let (luma_stride, chroma_stride) = (width as usize + 2, width as usize / 2 + 2);
            let (luma, blue, red) = (&bytes[..], &bytes[5..], &bytes[9..]);
            let chroma = [blue, red];
            let planes =
                Planes { width, height, luma, luma_stride, chroma, chroma_stride, matrix: 1, is_full_range: false };
            let rgb = converter.convert(&planes).unwrap();
            assert_eq!(rgb.len() as u32, 3 * width * height);
            for (number, got) in rgb.chunks(3).enumerate() {
                let (x, y) = (number % width as usize, number / width as usize);
                let block = y / 2 * chroma_stride + x / 2;
                let wanted = pixel(luma[y * luma_stride + x], blue[block], red[block], 1, false);
                assert_eq!(got, wanted, "{width} × {height}: {x} {y}");
            }
        }
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
        let mut converter = Converter::default();
        let rgb = converter.convert(&planes).unwrap();
        assert_eq!(rgb, (1..=9u8).flat_map(|grey| [grey; 3]).collect::<Vec<_>>());
        assert!(converter.convert(&Planes { height: 4, ..planes }).is_err());
    }
}
