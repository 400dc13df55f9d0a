//! Text blocks: where each value's bytes are (`docs/formats/idv.md` 7.6).

use crate::{format::Fields, source::to_usize};

/// Set in the end of a missing value.
const MISSING: u32 = 1 << 31;

/// Returns the bytes of UTF-8 in `rest`, the bytes of a length and its text together. `None` if only a length of
/// redundant bytes fits (`docs/formats/idv.md` 11).
pub fn length_in(rest: u64) -> Option<u64> {
    (1..=5).map(|bytes| (bytes, rest.wrapping_sub(bytes))).find_map(|(bytes, length)| {
        let fits = rest >= bytes && (bytes == 1 || length >> (7 * (bytes - 1)) > 0) && length >> (7 * bytes) == 0;
        (fits && length <= i32::MAX as u64).then_some(length)
    })
}

/// Reads a length of up to 5 bytes. Returns its value and its number of bytes.
pub fn length_at(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return (value <= i32::MAX as u64).then_some((value, at + 1));
        }
    }
    None
}

/// Splits a stored end, or a number from [`bounds`], into a place in the text and whether the value is missing.
pub(super) fn bound(entry: u32) -> (u64, bool) {
    (u64::from(entry & !MISSING), entry & MISSING != 0)
}

/// Returns where a value ends, in UTF-16 units, as stored.
pub(super) fn end(block: &[u8], number: u64) -> Option<u32> {
    block.u32(4 + 4 * to_usize(number))
}

/// Examines a block of `count` values. Returns where its text is, and whether it is ASCII. For ASCII the stored ends
/// are byte offsets and have been checked; otherwise [`bounds`] computes them.
///
/// # Errors
/// What is wrong with the block.
pub(super) fn check(block: &[u8], count: u64) -> Result<(std::ops::Range<usize>, bool), String> {
    let entries = block.u32(0).ok_or("it ends before the number of its texts")?;
    if u64::from(entries) != count {
        return Err(format!("it has {entries} texts, expected are {count}"));
    }
    let text_at = 4 + 4 * to_usize(count);
    let rest = block.get(text_at..).ok_or_else(|| format!("{} bytes are too few for {count} texts", block.len()))?;
    let (length, bytes) = length_at(rest).ok_or("the length of its text is damaged")?;
    let text = text_at + bytes..text_at + bytes + to_usize(length);
    let stored = block.get(text.clone()).ok_or_else(|| format!("its text of {length} bytes is cut short"))?;
    let is_ascii = stored.is_ascii();
    if is_ascii {
        bounds(block, count, stored, |_| ())?;
    }
    Ok((text, is_ascii))
}

/// Passes to `each` where each of `count` values begins in the text (u32 with a bit for "missing"), and where the last
/// one ends.
///
/// Stored ends count UTF-16 units. An end inside a surrogate pair is moved after the whole character.
///
/// # Errors
/// What is wrong with the block. Then discard what was passed to `each`.
#[expect(clippy::cast_possible_truncation, reason = "texts have fewer than 2^31 bytes")]
pub(super) fn bounds(block: &[u8], count: u64, text: &[u8], mut each: impl FnMut(u32)) -> Result<(), String> {
    let ends = block.get(4..4 + 4 * to_usize(count)).unwrap_or(&[]);
    let text = std::str::from_utf8(text).map_err(|error| format!("its text is not UTF-8: {error}"))?;
    let is_ascii = text.is_ascii();
    let mut chars = text.char_indices();
    // Units and bytes after the last character that was read.
    let (mut units, mut at, mut previous) = (0u64, 0usize, 0u64);
    for (number, end) in ends.chunks_exact(4).enumerate() {
        let entry = end.u32(0).unwrap_or(0);
        let end = u64::from(entry & !MISSING);
        if end < previous {
            return Err(format!("text {number} ends at {end}, before the one in front of it"));
        }
        if entry & MISSING != 0 && end != previous {
            return Err(format!("text {number} is missing and {} units long", end - previous));
        }
        each(at as u32 | entry & MISSING);
        if is_ascii {
            at = to_usize(end).min(text.len());
            units = at as u64;
        }
        while units < end {
            let Some((from, c)) = chars.next().filter(|_| !is_ascii) else {
                return Err(format!("text {number} ends at unit {end}, the text has {units}"));
            };
            units += c.len_utf16() as u64;
            at = from + c.len_utf8();
        }
        previous = end;
    }
    if at != text.len() || units != previous {
        return Err(format!("its texts end at unit {previous}, behind it is more"));
    }
    each(at as u32);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ends: &[u32], text: &[u8]) -> Vec<u8> {
        let mut block = (ends.len() as u32).to_le_bytes().to_vec();
        ends.iter().for_each(|end| block.extend(end.to_le_bytes()));
        block.push(text.len() as u8);
        block.extend(text);
        block
    }

    fn bounds(ends: &[u32], text: &[u8]) -> Result<Vec<(u64, bool)>, String> {
        let (block, count) = (block(ends, text), ends.len() as u64);
        let mut found = Vec::new();
        let (place, is_ascii) = check(&block, count)?;
        super::bounds(&block, count, &block[place], |entry| found.push(bound(entry)))?;
        if is_ascii {
            // What is stored says the same.
            let stored: Vec<u64> = (0..count).map(|number| bound(end(&block, number).unwrap()).0).collect();
            assert!(found[1..].iter().map(|(at, _)| *at).eq(stored));
        }
        Ok(found)
    }

    #[test]
    fn worked_bytes() {
        let text = "ahéllo日本語".as_bytes();
        let expected = [0, 0, 1, 1, 7, 16].map(|at| (at, false));
        assert_eq!(bounds(&[0, 1, 1, 6, 9], text).unwrap(), expected);
        let missing = [3, 6, 6, 6 | MISSING, 6];
        let expected = [(0, false), (3, false), (6, false), (6, true), (6, false), (6, false)];
        assert_eq!(bounds(&missing, b"fooxyz").unwrap(), expected);
        assert_eq!(bounds(&[], b"").unwrap(), [(0, false)]);
    }

    #[test]
    fn a_boundary_inside_a_pair_moves_behind_it() {
        let text = "a\u{1f600}b".as_bytes();
        assert_eq!(bounds(&[2, 3, 4], text).unwrap(), [0, 5, 5, 6].map(|at| (at, false)));
        assert_eq!(bounds(&[2, 2, 4], text).unwrap(), [0, 5, 5, 6].map(|at| (at, false)));
        // The last end must be the end of the text.
        assert!(bounds(&[1, 2], "a\u{1f600}".as_bytes()).is_err());
    }

    #[test]
    fn damage() {
        for (ends, text) in [
            (&[3, 2][..], &b"abc"[..]),
            (&[4], b"abc"),
            (&[2], b"abc"),
            (&[3 | MISSING], b"abc"),
            (&[1], b"\xff"),
            (&[2], "é".as_bytes()),
            (&[], b"a"),
        ] {
            assert!(bounds(ends, text).is_err(), "{ends:?} {text:?}");
        }
        assert!(check(&block(&[1], b"a"), 2).is_err());
        for cut in 0..10 {
            assert!(check(&block(&[1], b"a")[..cut], 1).is_err(), "{cut}");
        }
    }

    #[test]
    fn lengths_from_totals() {
        let leb = |length: u64| (1..).find(|bytes| length >> (7 * bytes) == 0).unwrap();
        for length in (0..40_000).chain([2_097_151, 2_097_152, 268_435_455, 268_435_456, i32::MAX as u64]) {
            assert_eq!(length_in(length + leb(length)), Some(length));
        }
        for none in [0, 129, 16_386, 2_097_155, 268_435_460, i32::MAX as u64 + 6, u64::MAX] {
            assert_eq!(length_in(none), None, "{none}");
        }
        assert_eq!(length_at(&[0x85, 0x80, 0x00, 9]), Some((5, 3)));
        assert_eq!(length_at(&[0xff; 6]), None);
    }
}
