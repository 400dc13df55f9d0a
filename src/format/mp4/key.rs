//! What decoding begins with: the kind of the picture in the sample that a track marks as a key.

/// The kind of a key picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// No later sample refers to frames before it.
    Idr,
    /// It refers to none itself. Samples that are shown before it may, and later ones may name such frames as no longer
    /// needed.
    Open,
    /// It refers to frames before it: pictures are renewed part by part.
    Part,
}

impl Key {
    /// Returns what an H.264 sample is by its first slice (ITU-T H.264, 7.3.3 and tables 7-1 and 7-6). `prefix` is the
    /// length in bytes of the length before each unit. A damaged sample is `Idr`, so that nothing is forgiven after it.
    pub(super) fn of_h264(mut sample: &[u8], prefix: usize) -> Self {
        while let Some((length, unit)) = sample.split_at_checked(prefix) {
            let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            match unit.split_first() {
                Some((head, slice)) if (1..=4).contains(&(head & 0x1f)) => {
                    let mut bits = slice.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte));
                    bits <<= 64 - 8 * slice.len().clamp(1, 8);
                    let (_first, kind) = (exp_golomb(&mut bits), exp_golomb(&mut bits));
                    return if matches!(kind % 5, 2 | 4) { Self::Open } else { Self::Part };
                }
                Some((head, _)) if head & 0x1f != 5 => sample = unit.get(length..).unwrap_or_default(),
                _ => break,
            }
        }
        Self::Idr
    }
}

/// Takes a number from the highest bits (ITU-T H.264, 9.1).
fn exp_golomb(bits: &mut u64) -> u64 {
    let zeros = bits.leading_zeros().min(31);
    let value = (*bits << zeros >> (63 - zeros)).saturating_sub(1);
    *bits <<= 2 * zeros + 1;
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_its_first_slice_is() {
        let parameters = [0, 0, 0, 2, 0x67, 9];
        assert_eq!(Key::of_h264(&[&parameters[..], &[0, 0, 0, 1, 0x65]].concat(), 4), Key::Idr);
        // Macroblock 0, then slice types 7, 2, 5 and 0.
        for (slice, key) in [
            (&[0b1000_1000][..], Key::Open),
            (&[0b1011_0000], Key::Open),
            (&[0b1001_1000], Key::Part),
            (&[0b1100_0000, 9, 9, 9, 9, 9, 9, 9, 9], Key::Part),
            // Macroblock 3.
            (&[0b0010_0011], Key::Open),
        ] {
            let unit = [&[0, 0, 0, 2, 0x41], slice].concat();
            assert_eq!(Key::of_h264(&[&parameters[..], &unit].concat(), 4), key, "{slice:?}");
        }
        assert_eq!(Key::of_h264(&[0, 2, 0x61, 0b1011_0000], 2), Key::Open);
        for damaged in [&[][..], &[0, 0], &parameters, &[255; 8]] {
            assert_eq!(Key::of_h264(damaged, 4), Key::Idr);
        }
        for (bits, value) in [(1 << 63, 0), (2 << 61, 1), (3 << 61, 2), (5 << 59, 4), (0, 0)] {
            assert_eq!(exp_golomb(&mut { bits }), value);
        }
    }
}
