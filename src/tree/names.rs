//! The one mapping from stored names to path parts, for every format (`docs/TREE.md`, section 2, Names).

pub use crate::escape::NAME_MAX;

use crate::escape::{escape, fit};

/// Suffixes that shardfs gives to files. No folder's name ends in one.
const SUFFIXES: [&str; 11] =
    [".npy", ".json", ".jsonl", ".txt", ".bin", ".png", ".jpg", ".parquet", ".msg", ".idl", ".h264"];

/// Folder names that are reserved at any depth.
pub const RESERVED: [&str; 2] = [".raw", ".shardfs"];

/// Returns the name of a file for the last part of a stored name (rules 2, 3 and 4). `number` is that of a duplicate,
/// from 2.
pub fn file(part: &[u8], suffix: &str, number: u32) -> String {
    let suffix = if number < 2 { suffix.to_owned() } else { format!("%_{number}{suffix}") };
    fit(escape(part), part, &suffix)
}

/// Returns the name of a folder for any other part. `reserved` are further names that are reserved at this place.
pub fn folder(part: &[u8], reserved: &[&str], number: u32) -> String {
    let mut name = escape(part);
    if reserved.contains(&name.as_str()) {
        // Reserved names are ASCII, so the first byte is the first character.
        let (first, rest) = name.split_at_checked(1).unwrap_or_default();
        name = first.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>() + rest;
    }
    if SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        && let Some(dot) = name.rfind('.')
    {
        name.replace_range(dot..=dot, "%2E");
    }
    let suffix = if number < 2 { String::new() } else { format!("%_{number}") };
    fit(name, part, &suffix)
}

/// Returns whether a name ends in a suffix that shardfs gives to files.
pub fn has_suffix(name: &str) -> bool {
    SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Returns the stored name that a part of a path means, unless the part is shortened or numbered. The part must have no
/// suffix.
pub fn stored(part: &str) -> Vec<u8> {
    if part == "%empty" {
        return Vec::new();
    }
    let (mut name, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [a, b, after @ ..]) => match (digit(*a), digit(*b)) {
                (Some(a), Some(b)) => {
                    name.push(a << 4 | b);
                    rest = after;
                    continue;
                }
                _ => name.push(*first),
            },
            _ => name.push(*first),
        }
        rest = after;
    }
    name
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh64::xxh64;

    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(file(b"50%", ".npy", 1), "50%25.npy");
        assert_eq!(file(b"a.npy", ".npy", 1), "a.npy.npy");
        assert_eq!(file(b"", ".npy", 1), "%empty.npy");
        assert_eq!(file(b".", ".npy", 1), "%2E.npy");
        assert_eq!(file(b"tab\there\x7f", ".npy", 1), "tab%09here%7F.npy");
        assert_eq!(file(b"\xff\xc3\xa9\xc3", ".bin", 1), "%FF\u{e9}%C3.bin");
        assert_eq!(file(b"x/y", ".npy", 3), "x%2Fy%_3.npy");
        assert_eq!(folder(b"..", &RESERVED, 1), "%2E%2E");
    }

    #[test]
    fn folders_keep_clear_of_suffixes_and_reserved_names() {
        assert_eq!(folder(b"a.npy", &RESERVED, 1), "a%2Enpy");
        assert_eq!(folder(b"v.tar.json", &RESERVED, 1), "v.tar%2Ejson");
        assert_eq!(folder(b".jpg", &RESERVED, 1), "%2Ejpg");
        assert_eq!(folder(b"t.parquet", &RESERVED, 1), "t%2Eparquet");
        assert_eq!(folder(b"cam.h264", &RESERVED, 1), "cam%2Eh264");
        assert_eq!(folder(b".raw", &RESERVED, 1), "%2Eraw");
        assert_eq!(folder(b"images", &["images"], 1), "%69mages");
        assert_eq!(folder(b"images", &RESERVED, 2), "images%_2");
    }

    #[test]
    fn long_names_end_in_their_hash() {
        let part = "\u{e9}".repeat(200);
        let name = file(part.as_bytes(), ".npy", 1);
        // 255 - 18 - 4 = 233 bytes are room for 116 characters of 2 bytes.
        assert_eq!(name, format!("{}%~{:016x}.npy", "\u{e9}".repeat(116), xxh64(part.as_bytes(), 0)));
        let name = folder(&[b'\n'; 100], &RESERVED, 1);
        assert_eq!(name, format!("{}%~{:016x}", "%0A".repeat(79), xxh64(&[b'\n'; 100], 0)));
        assert_eq!(file(&[b'x'; 251], ".npy", 1).len(), 255);
        assert!(!file(&[b'x'; 251], ".npy", 1).contains('~'));
        assert!(file(&[b'x'; 251], ".npy", 2).contains("%~"));
    }
}
