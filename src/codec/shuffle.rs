//! Undoes byte and bit shuffle: elements whose bytes or bits are stored plane by plane.
//!
//! Both pair runs of bytes: two runs of units of `W` bytes become one run of units of `2 W` bytes. The compiler
//! vectorises these loops. Each part is small enough to stay in the processor's L1 cache through all steps.

/// Bytes that are put together at a time.
const PART: usize = 16 << 10;

/// Pairs the units of `W` bytes of two runs.
fn pair<const W: usize>(left: &[u8], right: &[u8], out: &mut [u8]) {
    let (left, right) = (left.as_chunks::<W>().0, right.as_chunks::<W>().0);
    for ((out, left), right) in out.chunks_exact_mut(2 * W).zip(left).zip(right) {
        // Assigned, because a function that copies would be called for each unit where it is not inlined.
        if let Some((first, rest)) = out.split_first_chunk_mut::<W>()
            && let Some(second) = rest.first_chunk_mut::<W>()
        {
            (*first, *second) = (*left, *right);
        }
    }
}

/// Does the same as [`pair`] for any number of runs.
#[expect(clippy::indexing_slicing, reason = "each run has its place in a unit")]
fn join<'a, const W: usize>(runs: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut [u8]) {
    let width = W * runs.len();
    for (number, run) in runs.enumerate() {
        for (place, unit) in out.chunks_exact_mut(width).zip(run.as_chunks::<W>().0) {
            if let Some(place) = place[number * W..].first_chunk_mut::<W>() {
                *place = *unit;
            }
        }
    }
}

/// Buffers between the steps.
struct Parts {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Parts {
    fn new() -> Self {
        Self { from: vec![0; PART], to: vec![0; PART] }
    }

    /// Interleaves runs of the same length, which together fit into [`PART`]: the first bytes of all runs, then the
    /// second ones, and so on.
    #[expect(clippy::indexing_slicing, reason = "all runs together fit into a part")]
    fn interleave<'a>(&mut self, mut runs: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut [u8]) {
        let (mut count, size) = (runs.len(), out.len());
        if !count.is_multiple_of(2) {
            return join::<1>(runs, out);
        }
        // Two runs that follow each other become one of pairs.
        let mut length = 2 * size / count;
        let is_last = count == 2;
        let to = if is_last { &mut *out } else { &mut self.to[..size] };
        for to in to.chunks_exact_mut(length) {
            if let (Some(left), Some(right)) = (runs.next(), runs.next()) {
                pair::<1>(left, right, to);
            }
        }
        (count, length) = (count / 2, length * 2);
        let mut unit = 2;
        while count.is_multiple_of(2) && unit < 16 {
            std::mem::swap(&mut self.from, &mut self.to);
            let is_last = count == 2;
            let to = if is_last { &mut *out } else { &mut self.to[..size] };
            for (pairs, to) in self.from[..size].chunks_exact(length).zip(to.chunks_exact_mut(length)) {
                let (left, right) = pairs.split_at(length / 2);
                match unit {
                    2 => pair::<2>(left, right, to),
                    4 => pair::<4>(left, right, to),
                    _ => pair::<8>(left, right, to),
                }
            }
            (count, length, unit) = (count / 2, length * 2, unit * 2);
        }
        let runs = self.to[..size].chunks_exact(length / 2);
        match unit {
            _ if count == 1 => {}
            2 => join::<2>(runs, out),
            4 => join::<4>(runs, out),
            8 => join::<8>(runs, out),
            _ => join::<16>(runs, out),
        }
    }
}

/// Bytes of memory that both functions take in addition to their arguments.
pub(super) const WORKING: u64 = 3 * PART as u64;

/// Undoes the byte shuffle of elements of `width` bytes. Bytes after the last whole element are stored as they are.
/// Both slices have the same length.
#[expect(clippy::indexing_slicing, reason = "all parts of a plane are in it")]
pub(super) fn unshuffle(width: usize, shuffled: &[u8], out: &mut [u8]) {
    let elements = shuffled.len() / width.max(1);
    if width <= 1 || elements <= 1 {
        return out.copy_from_slice(shuffled);
    }
    let (shuffled, rest) = shuffled.split_at(elements * width);
    let (out, end) = out.split_at_mut(elements * width);
    end.copy_from_slice(rest);
    let together = PART / width;
    if together < 8 {
        return join::<1>(shuffled.chunks_exact(elements), out);
    }
    let mut parts = Parts::new();
    for (number, out) in out.chunks_mut(together * width).enumerate() {
        let (at, length) = (number * together, out.len() / width);
        parts.interleave(shuffled.chunks_exact(elements).map(|plane| &plane[at..at + length]), out);
    }
}

/// Undoes the bit shuffle of elements of `width` bytes. Elements after the last whole group of 8 are stored as they
/// are. Both slices have the same length.
#[expect(clippy::indexing_slicing, reason = "all parts of a plane are in it")]
pub(super) fn unshuffle_bits(width: usize, shuffled: &[u8], out: &mut [u8]) {
    // A group is 8 elements: one byte of each bit plane.
    let groups = shuffled.len() / (8 * width.max(1));
    if groups == 0 {
        return out.copy_from_slice(shuffled);
    }
    let (shuffled, rest) = shuffled.split_at(groups * 8 * width);
    let (out, end) = out.split_at_mut(groups * 8 * width);
    end.copy_from_slice(rest);
    let together = PART / (8 * width);
    if together == 0 {
        return wide_bits(width, shuffled, out);
    }
    let (mut parts, mut bytes) = (Parts::new(), vec![0; PART]);
    for (number, out) in out.chunks_mut(together * 8 * width).enumerate() {
        let (at, length) = (number * together, out.len() / (8 * width));
        let bytes = &mut bytes[..out.len()];
        for (byte, planes) in shuffled.chunks_exact(8 * groups).enumerate() {
            let mut planes = planes.chunks_exact(groups).map(|plane| &plane[at..at + length]);
            // One run for each element of a group; the runs of one element are next to each other.
            let mut runs = bytes.chunks_exact_mut(length).skip(byte).step_by(width);
            join_bits(
                std::array::from_fn(|_| planes.next().unwrap_or_default()),
                std::array::from_fn(|_| runs.next().unwrap_or_default()),
            );
        }
        parts.interleave(bytes.chunks_exact(length), out);
    }
}

/// Makes bytes from eight bit planes: first those of the first elements of all groups, then of the second ones, and so
/// on.
fn join_bits([a, b, c, d, e, f, g, h]: [&[u8]; 8], out: [&mut [u8]; 8]) {
    let [o, p, q, r, s, t, u, v] = out;
    exchange::<4, 0x0f>([a, e], [o, s]);
    exchange::<4, 0x0f>([b, f], [p, t]);
    exchange::<4, 0x0f>([c, g], [q, u]);
    exchange::<4, 0x0f>([d, h], [r, v]);
    finish(o, p, q, r);
    finish(s, t, u, v);
}

/// Exchanges the bits of each byte of `low` that stand `DISTANCE` above the mask with the masked ones of `high`.
fn exchange<const DISTANCE: u32, const MASK: u8>([low, high]: [&[u8]; 2], [low_out, high_out]: [&mut [u8]; 2]) {
    let ((low, low_end), (high, high_end)) = (low.as_chunks::<8>(), high.as_chunks::<8>());
    let ((low_out, low_out_end), (high_out, high_out_end)) =
        (low_out.as_chunks_mut::<8>(), high_out.as_chunks_mut::<8>());
    for (((low, high), low_out), high_out) in low.iter().zip(high).zip(low_out).zip(high_out) {
        (*low_out, *high_out) = exchanged::<DISTANCE, MASK>(*low, *high);
    }
    for (((low, high), low_out), high_out) in low_end.iter().zip(high_end).zip(low_out_end).zip(high_out_end) {
        let (low, high) = exchanged::<DISTANCE, MASK>([*low; 8], [*high; 8]);
        (*low_out, *high_out) = (low[0], high[0]);
    }
}

/// Exchanges pairs of bits and then bits of four runs, in place.
fn finish(a: &mut [u8], b: &mut [u8], c: &mut [u8], d: &mut [u8]) {
    let ((a, a_end), (b, b_end)) = (a.as_chunks_mut::<8>(), b.as_chunks_mut::<8>());
    let ((c, c_end), (d, d_end)) = (c.as_chunks_mut::<8>(), d.as_chunks_mut::<8>());
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        [*a, *b, *c, *d] = finished([*a, *b, *c, *d]);
    }
    for (((a, b), c), d) in a_end.iter_mut().zip(b_end).zip(c_end).zip(d_end) {
        [[*a, ..], [*b, ..], [*c, ..], [*d, ..]] = finished([[*a; 8], [*b; 8], [*c; 8], [*d; 8]]);
    }
}

fn finished([a, b, c, d]: [[u8; 8]; 4]) -> [[u8; 8]; 4] {
    let (a, c) = exchanged::<2, 0x33>(a, c);
    let (b, d) = exchanged::<2, 0x33>(b, d);
    let (a, b) = exchanged::<1, 0x55>(a, b);
    let (c, d) = exchanged::<1, 0x55>(c, d);
    [a, b, c, d]
}

/// Eight bytes at a time, because processors shift no single bytes. No bit that is kept comes from the next byte.
fn exchanged<const DISTANCE: u32, const MASK: u8>(low: [u8; 8], high: [u8; 8]) -> ([u8; 8], [u8; 8]) {
    let (low, high) = (u64::from_le_bytes(low), u64::from_le_bytes(high));
    let differ = (low >> DISTANCE ^ high) & u64::from_le_bytes([MASK; 8]);
    ((low ^ differ << DISTANCE).to_le_bytes(), (high ^ differ).to_le_bytes())
}

/// Does the same as [`unshuffle_bits`] for elements of more than 1 KiB.
#[expect(clippy::indexing_slicing, reason = "each bit is of an element")]
fn wide_bits(width: usize, shuffled: &[u8], out: &mut [u8]) {
    let groups = shuffled.len() / (8 * width);
    out.fill(0);
    for (plane, bits) in shuffled.chunks_exact(groups).enumerate() {
        let (byte, bit) = (plane / 8, plane % 8);
        for (group, bits) in bits.iter().enumerate() {
            for element in 0..8 {
                out[(group * 8 + element) * width + byte] |= (bits >> element & 1) << bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(size: usize) -> Vec<u8> {
        (0..size as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    /// By the definition: byte by byte, bit by bit.
    fn shuffle(width: usize, bytes: &[u8]) -> Vec<u8> {
        let elements = bytes.len() / width;
        let planes = (0..width).flat_map(|byte| (0..elements).map(move |element| bytes[element * width + byte]));
        planes.chain(bytes[elements * width..].iter().copied()).collect()
    }

    fn shuffle_bits(width: usize, bytes: &[u8]) -> Vec<u8> {
        let elements = bytes.len() / width / 8 * 8;
        let mut out = vec![0; elements * width];
        for (element, value) in bytes.chunks_exact(width).take(elements).enumerate() {
            for bit in 0..8 * width {
                out[bit * elements / 8 + element / 8] |= (value[bit / 8] >> (bit % 8) & 1) << (element % 8);
            }
        }
        out.extend_from_slice(&bytes[elements * width..]);
        out
    }

    #[test]
    fn elements_of_any_width_are_put_together() {
        for width in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64, 100, 255, 1023, 1024, 1025, 5000] {
            for elements in [0, 1, 2, 7, 8, 9, 15, 16, 17, 63, 100, 1023, 1024, 4097] {
                let bytes = data((elements * width + width / 2).min(1 << 17));
                let mut out = vec![0xAA; bytes.len()];
                unshuffle(width, &shuffle(width, &bytes), &mut out);
                assert!(out == bytes, "{elements} of {width} bytes");
                let mut out = vec![0xAA; bytes.len()];
                unshuffle_bits(width, &shuffle_bits(width, &bytes), &mut out);
                assert!(out == bytes, "{elements} of {width} bytes, bits");
            }
        }
    }
}
