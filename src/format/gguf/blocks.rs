//! Converts blocks of quantised numbers to f32 (`docs/formats/gguf.md` 5). Each operation rounds once, in the order of
//! that page.
//!
//! Loops go over whole arrays of known length, so that the compiler vectorises them.

#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "hot loops over arrays whose lengths are constants, with numbers of a few bits"
)]

use crate::format;

/// A kind of blocks that can be dequantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the types")]
pub enum Quantised {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
}

/// Most elements of a block.
pub const ELEMENTS: usize = 256;

const IQ4: [f32; 16] = [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];
const MX: [f32; 16] = [0., 1., 2., 3., 4., 6., 8., 12., 0., -1., -2., -3., -4., -6., -8., -12.];

impl Quantised {
    /// Writes the numbers of whole blocks to `out`, which has room for exactly these.
    pub fn decode(self, blocks: &[u8], out: &mut [f32]) {
        match self {
            Self::Q4_0 => each::<18, 32>(blocks, out, q4_0),
            Self::Q4_1 => each::<20, 32>(blocks, out, q4_1),
            Self::Q5_0 => each::<22, 32>(blocks, out, q5_0),
            Self::Q5_1 => each::<24, 32>(blocks, out, q5_1),
            Self::Q8_0 => each::<34, 32>(blocks, out, q8_0),
            Self::Q2K => each::<84, 256>(blocks, out, q2_k),
            Self::Q3K => each::<110, 256>(blocks, out, q3_k),
            Self::Q4K => each::<144, 256>(blocks, out, q4_k),
            Self::Q5K => each::<176, 256>(blocks, out, q5_k),
            Self::Q6K => each::<210, 256>(blocks, out, q6_k),
            Self::Iq4Nl => each::<18, 32>(blocks, out, iq4_nl),
            Self::Iq4Xs => each::<136, 256>(blocks, out, iq4_xs),
            Self::Mxfp4 => each::<17, 32>(blocks, out, mxfp4),
        }
    }
}

/// Decodes blocks of `B` bytes to `N` elements each.
fn each<const B: usize, const N: usize>(blocks: &[u8], out: &mut [f32], decode: impl Fn(&[u8; B], &mut [f32; N])) {
    for (block, out) in blocks.as_chunks::<B>().0.iter().zip(out.as_chunks_mut::<N>().0) {
        decode(block, out);
    }
}

/// Part of a block.
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    const { assert!(N <= 256) };
    block.get(at..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; N])
}

/// Returns the f16 at a place, as f32.
fn half(block: &[u8], at: usize) -> f32 {
    format::half(u16::from_le_bytes(*part(block, at)))
}

/// Passes on the low 4 bits of each byte, then the high ones.
fn nibbles<const N: usize>(bytes: &[u8; N], mut each: impl FnMut(usize, u8)) {
    for (i, byte) in bytes.iter().enumerate() {
        each(i, byte & 15);
    }
    for (i, byte) in bytes.iter().enumerate() {
        each(N + i, byte >> 4);
    }
}

fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half(block, 0);
    nibbles(part::<16>(block, 2), |i, q| out[i] = d * (f32::from(q) - 8.0));
}

fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    nibbles(part::<16>(block, 4), |i, q| out[i] = d * f32::from(q) + m);
}

fn fifth(qh: u32, i: usize) -> u8 {
    ((qh >> i & 1) << 4) as u8
}

fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (d, qh) = (half(block, 0), u32::from_le_bytes(*part(block, 2)));
    nibbles(part::<16>(block, 6), |i, q| out[i] = d * (f32::from(q | fifth(qh, i)) - 16.0));
}

fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, qh) = (half(block, 0), half(block, 2), u32::from_le_bytes(*part(block, 4)));
    nibbles(part::<16>(block, 8), |i, q| out[i] = d * f32::from(q | fifth(qh, i)) + m);
}

fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half(block, 0);
    for (out, q) in out.iter_mut().zip(part::<32>(block, 2)) {
        *out = f32::from(*q as i8) * d;
    }
}

/// The 2 low bits of 256 elements: two halves of 32 bytes, each with 4 times 32 elements.
fn low_bits(qs: &[u8; 64]) -> [u8; 256] {
    let mut low = [0; 256];
    for (half, out) in qs.as_chunks::<32>().0.iter().zip(low.as_chunks_mut::<128>().0) {
        for (shift, out) in (0..8).step_by(2).zip(out.as_chunks_mut::<32>().0) {
            for (out, q) in out.iter_mut().zip(half) {
                *out = q >> shift & 3;
            }
        }
    }
    low
}

fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scales, q, d, dmin) = (part::<16>(block, 0), low_bits(part(block, 16)), half(block, 80), half(block, 82));
    for ((out, q), s) in out.as_chunks_mut::<16>().0.iter_mut().zip(q.as_chunks::<16>().0).zip(scales) {
        let (d, m) = (d * f32::from(s & 15), dmin * f32::from(s >> 4));
        for (out, q) in out.iter_mut().zip(q) {
            *out = d * f32::from(*q) - m;
        }
    }
}

fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let (mask, q, scales, d) =
        (part::<32>(block, 0), low_bits(part(block, 32)), part::<12>(block, 96), half(block, 108));
    let mut numbers = [0i8; 256];
    for (j, (numbers, q)) in numbers.as_chunks_mut::<32>().0.iter_mut().zip(q.as_chunks::<32>().0).enumerate() {
        for ((number, q), mask) in numbers.iter_mut().zip(q).zip(mask) {
            *number = *q as i8 - if mask >> j & 1 == 0 { 4 } else { 0 };
        }
    }
    for (j, (out, numbers)) in out.as_chunks_mut::<16>().0.iter_mut().zip(numbers.as_chunks::<16>().0).enumerate() {
        let low = if j < 8 { scales[j % 8] & 15 } else { scales[j % 8] >> 4 };
        let scale = low | (scales[8 + j % 4] >> (2 * (j / 4)) & 3) << 4;
        let d = d * (f32::from(scale) - 32.0);
        for (out, number) in out.iter_mut().zip(numbers) {
            *out = d * f32::from(*number);
        }
    }
}

/// Scale and minimum of a sub-block of Q4_K and Q5_K, 6 bits each.
fn scale_and_min(scales: &[u8; 12], j: usize) -> (u8, u8) {
    match j {
        0..4 => (scales[j] & 63, scales[j + 4] & 63),
        _ => (scales[j + 4] & 15 | scales[j - 4] >> 6 << 4, scales[j + 4] >> 4 | scales[j] >> 6 << 4),
    }
}

fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin, scales, qs) = (half(block, 0), half(block, 2), part::<12>(block, 4), part::<128>(block, 16));
    for (j, (out, q)) in out.as_chunks_mut::<64>().0.iter_mut().zip(qs.as_chunks::<32>().0).enumerate() {
        for (half, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_and_min(scales, 2 * j + half);
            let (d, m, shift) = (d * f32::from(scale), dmin * f32::from(min), 4 * half);
            for (out, q) in out.iter_mut().zip(q) {
                *out = d * f32::from(q >> shift & 15) - m;
            }
        }
    }
}

fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin, scales) = (half(block, 0), half(block, 2), part::<12>(block, 4));
    let (qh, qs) = (part::<32>(block, 16), part::<128>(block, 48));
    for (j, (out, q)) in out.as_chunks_mut::<64>().0.iter_mut().zip(qs.as_chunks::<32>().0).enumerate() {
        for (half, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let sub = 2 * j + half;
            let (scale, min) = scale_and_min(scales, sub);
            let (d, m, shift) = (d * f32::from(scale), dmin * f32::from(min), 4 * half);
            for ((out, q), high) in out.iter_mut().zip(q).zip(qh) {
                *out = d * f32::from(q >> shift & 15 | (high >> sub & 1) << 4) - m;
            }
        }
    }
}

fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (ql, qh) = (part::<128>(block, 0), part::<64>(block, 128));
    let (scales, d) = (part::<16>(block, 192), half(block, 208));
    let halves = ql.as_chunks::<64>().0.iter().zip(qh.as_chunks::<32>().0).zip(scales.as_chunks::<8>().0);
    for (((low, high), scales), out) in halves.zip(out.as_chunks_mut::<128>().0) {
        let mut numbers = [0i8; 128];
        nibbles(low, |k, q| numbers[k] = (q | (high[k % 32] >> (2 * (k / 32)) & 3) << 4) as i8 - 32);
        for ((out, numbers), scale) in
            out.as_chunks_mut::<16>().0.iter_mut().zip(numbers.as_chunks::<16>().0).zip(scales)
        {
            let d = d * f32::from(*scale as i8);
            for (out, number) in out.iter_mut().zip(numbers) {
                *out = d * f32::from(*number);
            }
        }
    }
}

fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half(block, 0);
    nibbles(part::<16>(block, 2), |i, q| out[i] = d * IQ4[usize::from(q)]);
}

fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let (d, high, low) = (half(block, 0), u16::from_le_bytes(*part(block, 2)), part::<4>(block, 4));
    let groups = out.as_chunks_mut::<32>().0.iter_mut().zip(part::<128>(block, 8).as_chunks::<16>().0);
    for (j, (out, qs)) in groups.enumerate() {
        let scale = low[j / 2] >> (4 * (j % 2)) & 15 | ((high >> (2 * j) & 3) << 4) as u8;
        let d = d * (f32::from(scale) - 32.0);
        nibbles(qs, |i, q| out[i] = d * IQ4[usize::from(q)]);
    }
}

fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let e = u32::from(block[0]);
    let d = f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 });
    nibbles(part::<16>(block, 1), |i, q| out[i] = d * MX[usize::from(q)]);
}
