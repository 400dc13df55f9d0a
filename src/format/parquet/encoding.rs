//! Decodes levels and values: hybrids of runs and packed bits, deltas, byte streams.

use crate::source::to_usize;

/// Why bytes do not decode.
pub(super) type Reason = &'static str;

const SHORT: Reason = "its values end early";

/// Fills `out` from a hybrid of runs and bit-packed groups, with `width` bits a value. Returns the number of bytes that
/// were read.
#[expect(clippy::indexing_slicing, reason = "`count` is at most what is left, and `length` at most 4")]
pub(super) fn hybrid<T: Copy>(
    bytes: &[u8],
    width: u32,
    out: &mut [T],
    cast: impl Fn(u32) -> T,
) -> Result<usize, Reason> {
    if width > 32 {
        return Err("a value has more than 32 bits");
    }
    let (mut at, mut filled) = (0, 0);
    while filled < out.len() {
        let head = varint(bytes, &mut at)?;
        let rest = bytes.get(at..).unwrap_or_default();
        let left = out.len() - filled;
        if head & 1 == 1 {
            let groups = usize::try_from(head >> 1).map_err(|_| SHORT)?;
            let count = groups.saturating_mul(8).min(left);
            // The last group may end with its last value.
            let needed = (count * width as usize).div_ceil(8);
            let packed = rest.get(..needed).ok_or(SHORT)?;
            unpack(packed, width, &mut out[filled..filled + count], &cast);
            filled += count;
            at += groups.saturating_mul(width as usize).min(rest.len());
        } else {
            let length = width.div_ceil(8) as usize;
            let mut value = [0; 4];
            value[..length].copy_from_slice(rest.get(..length).ok_or(SHORT)?);
            let value = u32::from_le_bytes(value);
            if width < 32 && value >> width != 0 {
                return Err("the value of a run has too many bits");
            }
            let count = usize::try_from(head >> 1).map_or(left, |count| count.min(left));
            out[filled..filled + count].fill(cast(value));
            filled += count;
            at += length;
        }
    }
    Ok(at)
}

/// Unpacks values of up to 32 bits, the lowest bits first. `packed` must have enough bytes.
#[expect(clippy::cast_possible_truncation, reason = "the mask has up to 32 bits")]
fn unpack<T>(packed: &[u8], width: u32, out: &mut [T], cast: impl Fn(u32) -> T) {
    let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
    let mut bit = 0;
    // Eight narrow values, as levels are, have at most eight bytes: one look for all of them.
    let eights = if width <= 8 { out.len() / 8 * 8 } else { 0 };
    let (front, rest) = out.split_at_mut(eights);
    for eight in front.chunks_exact_mut(8) {
        let mut window = window(packed, bit / 8);
        for slot in eight {
            *slot = cast((window & mask) as u32);
            window >>= width;
        }
        bit += 8 * width as usize;
    }
    for slot in rest {
        let window = window(packed, bit / 8);
        *slot = cast((window >> (bit % 8) & mask) as u32);
        bit += width as usize;
    }
}

/// Returns eight bytes from a place on; zeros follow the last.
fn window(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.first_chunk().map_or_else(
        || {
            let mut window = [0; 8];
            window.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(window)
        },
        |window| u64::from_le_bytes(*window),
    )
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, Reason> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(SHORT)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number has more than 64 bits")
}

fn zigzag(bytes: &[u8], at: &mut usize) -> Result<i64, Reason> {
    let value = varint(bytes, at)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Largest block of deltas. Writers use 128 or a small multiple of it.
const BLOCK: u64 = 1 << 20;

/// Passes `count` delta-encoded integers to `put` (`DELTA_BINARY_PACKED`). Returns the number of bytes that were read.
/// Sums wrap, as they do in writers.
pub(super) fn deltas(bytes: &[u8], count: usize, mut put: impl FnMut(i64)) -> Result<usize, Reason> {
    let mut at = 0;
    let block = varint(bytes, &mut at)?;
    let parts = varint(bytes, &mut at)?;
    let stored = varint(bytes, &mut at)?;
    let mut value = zigzag(bytes, &mut at)?;
    if stored != count as u64 {
        return Err("it states another number of values than its page");
    }
    if count == 0 {
        return Ok(at);
    }
    let part = to_usize(block.checked_div(parts).unwrap_or(0));
    if block > BLOCK || part == 0 || !block.is_multiple_of(parts) || !part.is_multiple_of(8) {
        return Err("its blocks of deltas have no such size");
    }
    put(value);
    let mut left = count - 1;
    while left > 0 {
        let least = zigzag(bytes, &mut at)?;
        let widths = bytes.get(at..).and_then(|rest| rest.get(..to_usize(parts))).ok_or(SHORT)?;
        at += to_usize(parts);
        for width in widths {
            if left == 0 {
                break;
            }
            if *width > 64 {
                return Err("a delta has more than 64 bits");
            }
            let length = part * usize::from(*width) / 8;
            let packed = bytes.get(at..).and_then(|rest| rest.get(..length)).ok_or(SHORT)?;
            at += length;
            for number in 0..part.min(left) {
                let delta = bits(packed, number * usize::from(*width), u32::from(*width));
                value = value.wrapping_add(least).wrapping_add(delta as i64);
                put(value);
            }
            left -= part.min(left);
        }
    }
    Ok(at)
}

/// Returns up to 64 bits from a place on.
fn bits(packed: &[u8], bit: usize, width: u32) -> u64 {
    let Some(mask) = u64::MAX.checked_shr(64 - width) else { return 0 };
    let (at, shift) = (bit / 8, bit % 8);
    let low = window(packed, at) >> shift;
    let high = packed.get(at + 8).map_or(0, |byte| u64::from(*byte));
    let high = if shift == 0 { 0 } else { high << (64 - shift) };
    (low | high) & mask
}

/// Joins the streams of first bytes, second bytes and so on to values (`BYTE_STREAM_SPLIT`).
#[expect(clippy::indexing_slicing, reason = "each stream has `count` bytes")]
pub(super) fn join_streams(bytes: &[u8], width: usize, out: &mut [u8]) -> Result<(), Reason> {
    let bytes = bytes.get(..out.len()).ok_or(SHORT)?;
    let count = out.len() / width.max(1);
    for (number, value) in out.chunks_exact_mut(width.max(1)).enumerate() {
        for (stream, byte) in value.iter_mut().enumerate() {
            *byte = bytes[stream * count + number];
        }
    }
    Ok(())
}

/// Unpacks bits to bytes of 0 and 1.
pub(super) fn booleans(bytes: &[u8], out: &mut [u8]) -> Result<(), Reason> {
    let bytes = bytes.get(..out.len().div_ceil(8)).ok_or(SHORT)?;
    for (values, byte) in out.chunks_mut(8).zip(bytes) {
        for (bit, value) in values.iter_mut().enumerate() {
            *value = byte >> bit & 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrids_of_the_format_s_own_example() {
        // Encodings.md of the format: 0 to 7 in 3 bits.
        let mut out = [0; 8];
        assert_eq!(hybrid(&[3, 0x88, 0xc6, 0xfa], 3, &mut out, |value| value), Ok(4));
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7]);
        let mut out = [0; 5];
        assert_eq!(hybrid(&[8, 9, 2, 7], 4, &mut out, |value| value), Ok(4));
        assert_eq!(out, [9, 9, 9, 9, 7]);
        assert!(hybrid(&[8], 4, &mut out, |value| value).is_err());
        assert!(hybrid(&[8, 16], 4, &mut out, |value| value).is_err(), "16 has five bits");
        assert!(hybrid(&[0, 1], 1, &mut out, |value| value).is_err(), "a run of none ends the bytes");
        assert_eq!(hybrid(&[10], 0, &mut out, |value| value), Ok(1), "a run of five without bits");
        assert_eq!((hybrid(&[3], 0, &mut out, |value| value), out), (Ok(1), [0; 5]));
        assert!(hybrid(&[], 0, &mut out, |value| value).is_err());
    }

    #[test]
    fn values_of_every_width_are_unpacked() {
        let packed: Vec<u8> = (0..200u32).map(|at| (at * at * 91 + 7 * at) as u8).collect();
        for width in 1..=32 {
            for count in [0, 1, 7, 8, 9, 17, 40] {
                let mut out = vec![0u32; count];
                unpack(&packed[..(count * width as usize).div_ceil(8)], width, &mut out, |value| value);
                for (number, value) in out.iter().enumerate() {
                    let bit = |at: usize| u32::from(packed[at / 8] >> (at % 8) & 1);
                    let first = number * width as usize;
                    let wanted = (0..width as usize).fold(0, |value, at| value | bit(first + at) << at);
                    assert_eq!(*value, wanted, "{width} {count} {number}");
                }
            }
        }
    }

    #[test]
    fn deltas_of_the_format_s_own_example() {
        // 7, 5, 3, 1, 2, 3, 4, 5: least delta -2, deltas 0 0 0 3 3 3 3 in two bits.
        let mut bytes = vec![128, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0xc0, 0x3f];
        bytes.resize(18, 0);
        let mut out = Vec::new();
        assert_eq!(deltas(&bytes, 8, |value| out.push(value)), Ok(18));
        assert_eq!(out, [7, 5, 3, 1, 2, 3, 4, 5]);
        assert!(deltas(&bytes[..17], 8, |_| {}).is_err());
        assert!(deltas(&bytes, 7, |_| {}).is_err());
        assert!(deltas(&[0, 0, 2, 0, 0, 0], 2, |_| {}).is_err(), "blocks without parts");
    }
}
