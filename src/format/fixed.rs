//! Texts of one size, padded with NULs as numpy has them.

/// Returns a text without the NULs at its end.
pub fn without_nuls(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}

/// Returns a text of little-endian UTF-32 without the NULs at its end. What is no character is U+FFFD.
pub fn utf32(text: &[u8]) -> String {
    let codes = text.as_chunks::<4>().0;
    let end = codes.iter().rposition(|code| *code != [0; 4]).map_or(0, |last| last + 1);
    let character = |code: &[u8; 4]| char::from_u32(u32::from_le_bytes(*code)).unwrap_or(char::REPLACEMENT_CHARACTER);
    codes.iter().take(end).map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_before_their_padding() {
        assert_eq!(without_nuls(b"a\0b\0\0"), b"a\0b");
        assert_eq!(without_nuls(b"\0\0"), b"");
        let codes = |codes: &[u32]| codes.iter().flat_map(|code| code.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(utf32(&codes(&[0x65e5, 0, 0x1f600, 0, 0])), "日\0😀");
        assert_eq!(utf32(&codes(&[0xd800, 0x11_0000])), "\u{fffd}\u{fffd}");
    }
}
