//! Bare lz4 blocks, including those that break the format's end-of-block rules.
//!
//! Two libraries decode: liblz4 first, which is two to five times as fast on short sequences such as those of shuffled
//! numbers, and lz4_flex what liblz4 refuses or must not decode.

use super::{Codec, DecodeError};

/// Decodes a block into `out`, which has its size. `padded` is the block and a byte 0 that is not part of it.
///
/// The TypeScript writer ends blocks directly after a match, with no final literals. One zero byte, an empty final
/// token, makes such a block regular (`docs/formats/wshard.md` 6).
///
/// liblz4 accepts a distance of 0 and makes up bytes for it. Unless the caller compares the decoded bytes with a checksum
/// (`is_checked`), it decodes no such block. It also refuses blocks that break the end-of-block rules, which shardfs shows.
pub(super) fn decode_padded(padded: &[u8], out: &mut [u8], is_checked: bool) -> Result<(), DecodeError> {
    let stored = padded.split_last().map_or(padded, |(_, stored)| stored);
    if (is_checked || !has_zero_distance(stored)) && decode_quickly(stored, out) {
        return Ok(());
    }
    decode_strictly(stored, padded, out)
}

/// Decodes with lz4_flex.
fn decode_strictly(stored: &[u8], padded: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let first = match lz4_flex::block::decompress_into(stored, out) {
        Ok(got) => return exact(out, got),
        Err(error) => error,
    };
    // Anywhere else the added byte would count as a literal or as half of a distance.
    if !ends_in_match(stored) {
        return Err(Codec::Lz4.corrupt(first));
    }
    match lz4_flex::block::decompress_into(padded, out) {
        Ok(got) => exact(out, got),
        Err(_) => Err(Codec::Lz4.corrupt(first)),
    }
}

/// Decodes with liblz4 and returns whether exactly the bytes of `out` came. If not, `out` holds anything.
fn decode_quickly(stored: &[u8], out: &mut [u8]) -> bool {
    // liblz4 counts in 32 bits.
    let Ok(size) = i32::try_from(out.len()) else { return false };
    i32::try_from(stored.len()).is_ok()
        && ::lz4::block::decompress_to_buffer(stored, Some(size), out).is_ok_and(|got| got == out.len())
}

/// Returns whether a match has the distance 0, which no writer stores.
fn has_zero_distance(mut stored: &[u8]) -> bool {
    while let Some((&token, rest)) = stored.split_first() {
        let mut input = rest.iter();
        let literals = extended(token >> 4, &mut input);
        match input.as_slice().get(literals..) {
            Some([0, 0, ..]) => return true,
            Some([_, _, rest @ ..]) => {
                let mut input = rest.iter();
                extended(token & 15, &mut input);
                stored = input.as_slice();
            }
            _ => return false,
        }
    }
    false
}

/// Returns whether the last sequence is complete, including its match, and nothing follows it.
fn ends_in_match(mut stored: &[u8]) -> bool {
    loop {
        let Some((&token, rest)) = stored.split_first() else { return false };
        let mut input = rest.iter();
        let literals = extended(token >> 4, &mut input);
        // The literals, and the two bytes of the distance.
        let skipped = literals.saturating_add(2);
        let Some(rest) = input.as_slice().get(skipped..) else { return false };
        if token & 15 == 15 && rest.iter().all(|&byte| byte == 255) {
            return false;
        }
        let mut input = rest.iter();
        extended(token & 15, &mut input);
        stored = input.as_slice();
        if stored.is_empty() {
            return true;
        }
    }
}

fn exact(out: &[u8], got: usize) -> Result<(), DecodeError> {
    if got == out.len() { Ok(()) } else { Err(DecodeError::Size { got: got as u64, size: out.len() as u64 }) }
}

/// Decodes sequences until `limit` bytes are there or the input ends. Choosing a suffix needs only the front of a
/// block, and the library decodes whole blocks only.
pub(super) fn decode_front(stored: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(limit);
    let mut input = stored.iter();
    let bad = |reason: &str| Err(Codec::Lz4.corrupt(reason));
    while let Some(token) = input.next() {
        let literals = extended(token >> 4, &mut input).min(limit - out.len());
        out.extend(input.by_ref().take(literals));
        if out.len() == limit {
            break;
        }
        let (Some(low), Some(high)) = (input.next(), input.next()) else { break };
        let distance = usize::from(u16::from_le_bytes([*low, *high]));
        if distance == 0 || distance > out.len() {
            return bad("a match reaches before the start of the block");
        }
        let length = extended(token & 15, &mut input).saturating_add(4).min(limit - out.len());
        for _ in 0..length {
            out.extend(out.get(out.len() - distance).copied());
        }
        if out.len() == limit {
            break;
        }
    }
    Ok(out)
}

/// Reads a length. A nibble of 15 continues in further bytes; the first below 255 is the last.
fn extended(nibble: u8, input: &mut std::slice::Iter<u8>) -> usize {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        for byte in input {
            length = length.saturating_add(usize::from(*byte));
            if *byte != 255 {
                break;
            }
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes both ways, which must agree except for distances of 0.
    fn decode(stored: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
        let padded = [stored, &[0]].concat();
        let decode = |by: &dyn Fn(&mut [u8]) -> Result<(), DecodeError>| {
            let mut out = vec![0; size];
            by(&mut out).map(|()| out)
        };
        let strictly = decode(&|out| decode_strictly(stored, &padded, out));
        for is_checked in [false, true] {
            let quickly = decode(&|out| decode_padded(&padded, out, is_checked));
            match (&quickly, &strictly) {
                (Ok(left), Ok(right)) => assert!(left == right),
                (Err(left), Err(right)) => assert_eq!(left.to_string(), right.to_string()),
                (Ok(_), Err(_)) => assert!(is_checked && has_zero_distance(stored), "{stored:?}"),
                (Err(error), Ok(_)) => panic!("{error}"),
            }
        }
        strictly
    }

    #[test]
    fn both_decoders_agree_on_damaged_blocks() {
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i * i / 300) as u8 ^ (i / 7) as u8).collect();
        let stored = lz4_flex::block::compress(&bytes);
        for at in 0..stored.len() {
            for flip in [1, 0x80, 0xFF, stored[at]] {
                let mut damaged = stored.clone();
                damaged[at] ^= flip;
                let _ = decode(&damaged, bytes.len());
                let _ = decode(&damaged[..at], bytes.len());
                let _ = decode(&damaged, bytes.len() - 1);
            }
        }
        let zero_distance = [0x1F, 7, 0, 0, 3, 0x50, 1, 2, 3, 4, 5];
        assert!(has_zero_distance(&zero_distance) && decode(&zero_distance, 28).is_err());
        for size in [0, 1, 11, 12, 13, 64] {
            assert_eq!(decode(&lz4_flex::block::compress(&bytes[..size]), size).unwrap(), bytes[..size]);
        }
    }

    #[test]
    fn block_that_ends_in_a_match() {
        // docs/formats/wshard.md 23: one literal 00 and a match of 63 at distance 1.
        let stored = [0x1F, 0x00, 0x01, 0x00, 0x2C];
        assert_eq!(decode(&stored, 64).unwrap(), [0; 64]);
        assert_eq!(decode_front(&stored, 64).unwrap(), [0; 64]);
        assert_eq!(decode_front(&stored, 10).unwrap(), [0; 10]);
        assert!(matches!(decode(&stored, 65), Err(DecodeError::Size { got: 64, size: 65 })));
        assert!(decode(&stored, 63).is_err());
    }

    /// The byte that is added to a block must never replace a lost one.
    #[test]
    fn a_lost_byte_is_not_made_up() {
        for size in [5, 20, 300] {
            let bytes: Vec<u8> = (1..=size).map(|i| (i % 251) as u8).chain([0]).collect();
            let stored = lz4_flex::block::compress(&bytes);
            assert_eq!(decode(&stored, bytes.len()).unwrap(), bytes);
            assert!(decode(&stored[..stored.len() - 1], bytes.len()).is_err());
        }
        // A distance that lost its second byte, a length that lost its end.
        assert!(decode(&[0x10, b'x', 0x01], 5).is_err());
        assert!(decode(&[0x1F, b'x', 0x01, 0x00, 0xFF], 1 + 4 + 15 + 255).is_err());
    }

    #[test]
    fn front_equals_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i / 700) as u8).collect();
        let stored = lz4_flex::block::compress(&bytes);
        assert_eq!(decode(&stored, 5000).unwrap(), bytes);
        for limit in [0, 1, 7, 4999, 5000, 9000] {
            assert_eq!(decode_front(&stored, limit).unwrap(), bytes[..limit.min(5000)]);
        }
    }

    #[test]
    fn distance_before_the_start_is_corrupt() {
        let stored = [0x10, b'x', 0x02, 0x00];
        assert!(decode(&stored, 5).is_err());
        assert!(decode_front(&stored, 5).is_err());
    }
}
