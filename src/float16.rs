//! Floats of 16 bits: IEEE 754 binary16, and bf16, the upper half of an f32.

/// Returns the number of the bits of a binary16.
pub(crate) fn half(bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    let magnitude = match rest {
        // 2^-24 for each unit: every such number is normal as f32.
        0..0x400 => rest as f32 / 16_777_216.0,
        0x400..0x7c00 => f32::from_bits((rest << 13) + (112 << 23)),
        _ => f32::from_bits(rest << 13 | 0x7f80_0000),
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Returns the number of the bits of a bf16.
pub(crate) fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Returns the bits of the nearest binary16. Ties go to the even one.
#[expect(clippy::cast_possible_truncation, reason = "at most 2^11 steps, and fields of a few bits")]
pub(crate) fn to_half(number: f64) -> u16 {
    let bits = number.to_bits();
    let sign = (bits >> 48 & 0x8000) as u16;
    if number.is_nan() {
        // As in numpy: the upper bits of the mantissa. They must not be 0, which would be infinity.
        let mantissa = (bits >> 42 & 0x3ff) as u16;
        return sign | 0x7c00 | if mantissa == 0 { 0x200 } else { mantissa };
    }
    let magnitude = number.abs();
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    // The unit of the last place: 2^-24 for numbers below 2^-14.
    let exponent = ((bits >> 52 & 0x7ff) as i32 - 1023).max(-14);
    let unit = 2f64.powi(exponent - 10);
    let steps = (magnitude / unit).round_ties_even() as u16;
    // Rounding up to the next power of two carries into the exponent by itself.
    sign | (((exponent + 14) as u16) << 10).wrapping_add(steps)
}

/// Returns the bits of the nearest bf16. Ties go to the even one.
pub(crate) fn to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    if number.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_numbers_as_in_numpy() {
        // numpy 2.4: np.array([…], "<f2").astype("<f4").view("<u4").
        for (bits, expected) in [
            (0x0000, 0x0000_0000),
            (0x8000, 0x8000_0000),
            (0x0001, 0x3380_0000),
            (0x03ff, 0x387f_c000),
            (0x0400, 0x3880_0000),
            (0x3c00, 0x3f80_0000),
            (0xc500, 0xc0a0_0000),
            (0x7bff, 0x477f_e000),
            (0x7c00, 0x7f80_0000),
            (0xfc00, 0xff80_0000),
            (0x7e00, 0x7fc0_0000),
        ] {
            assert_eq!(half(bits).to_bits(), expected, "{bits:04x}");
        }
    }

    #[test]
    fn numbers_are_halves_as_in_numpy() {
        // numpy 2.4: np.float64(x).astype("f2").view("u2").
        for (number, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65519.99, 0x7bff),
            (65520.0, 0x7c00),
            (1e300, 0x7c00),
            (6.103515625e-05, 0x0400),
            (5.960464477539063e-08, 1),
            (2.9802322387695312e-08, 0),
            (2.980_233e-8, 1),
            (6.1e-5, 0x03ff),
            (1023.5 * 2f64.powi(-24), 0x0400),
            (0.1, 0x2e66),
            (2049.0, 0x6800),
            (2051.0, 0x6802),
            (f64::NEG_INFINITY, 0xfc00),
            // Rounding in two steps, through f32, must not change the result.
            (1.0 + 1.0 / 2048.0 + 1e-12, 0x3c01),
            (1.0 + 1.0 / 2048.0, 0x3c00),
            (1023.99 * 2f64.powi(-24), 0x0400),
        ] {
            assert_eq!(to_half(number), bits, "{number}");
        }
        assert_eq!(to_half(f64::NAN) & 0x7e00, 0x7e00);
    }

    #[test]
    fn every_number_of_16_bits_is_its_own_nearest() {
        for bits in 0..=u16::MAX {
            let (half, bf16) = (half(bits), bf16(bits));
            assert!(
                half.is_nan() && super::half(to_half(half.into())).is_nan() || to_half(half.into()) == bits,
                "{bits:x}"
            );
            assert!(bf16.is_nan() && super::bf16(to_bf16(bf16)).is_nan() || to_bf16(bf16) == bits, "{bits:x}");
        }
        assert_eq!((to_bf16(1.0), to_bf16(1.003_906_2), to_bf16(f32::MAX)), (0x3F80, 0x3F80, 0x7F80));
    }
}
