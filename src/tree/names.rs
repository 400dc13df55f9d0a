//! The one mapping from stored names to path parts, for every format (`docs/TREE.md`, section 2, Names).

use std::borrow::Cow;

pub use crate::escape::NAME_MAX;

use crate::escape::{cut, escape, fit, hashed};

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

/// Bytes of an escaped name that fit with every suffix and number.
pub const SHORT: usize = 200;

/// Returns whether a name, without its suffix, is shortened.
pub fn is_shortened(stem: &str) -> bool {
    stem.contains("%~")
}

/// Splits the number of a duplicate off a name without suffix.
fn split_number(stem: &str) -> (&str, &str) {
    let at = stem.rfind("%_").unwrap_or(stem.len());
    stem.split_at(at)
}

/// Returns what the names of all files and folders of one stored name and number have in common. `stem` is one of the
/// names, without its suffix. Which of them are shortened depends on the suffix.
pub fn common(stem: &str) -> Cow<'_, str> {
    if stem.len() <= SHORT && !stem.contains('%') {
        return stem.into();
    }
    let (base, number) = split_number(stem);
    if let Some((_, hash)) = base.rsplit_once("%~") {
        return format!("%~{hash}{number}").into();
    }
    let part = stored(base);
    let name = escape(&part);
    (if name.len() > SHORT { hashed(&part) } else { name } + number).into()
}

/// Returns the name of the file with this suffix that has the stored name and number of a folder.
pub fn beside(folder: &str, suffix: &str) -> String {
    let (base, number) = split_number(folder);
    let suffix = format!("{number}{suffix}");
    if let Some(at) = base.rfind("%~") {
        let (front, tail) = base.split_at(at);
        return cut(front.into(), tail, &suffix) + &suffix;
    }
    let part = stored(base);
    fit(escape(&part), &part, &suffix)
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
    fn names_of_one_stored_name_have_something_in_common() {
        let accents = "\u{e9}".repeat(122);
        let edge = [&[b'n'; 195][..], b".npy"].concat();
        let parts: [&[u8]; 10] = [
            &edge,
            b"a",
            b"a.npy",
            b".raw",
            b"50%",
            b"\xff",
            &[b'n'; 246],
            &[b'n'; 251],
            &[b'n'; 300],
            accents.as_bytes(),
        ];
        for (part, number) in parts.iter().flat_map(|part| [(*part, 1), (*part, 12)]) {
            let own = folder(part, &RESERVED, number);
            for suffix in [".npy", ".jsonl", ".attrs.json"] {
                let name = file(part, suffix, number);
                assert_eq!(beside(&own, suffix), name);
                assert_eq!(common(name.strip_suffix(suffix).unwrap()), common(&own));
            }
        }
        assert_ne!(common("a%_2"), common("a"));
        assert_ne!(common("a%25_2"), common("a%_2"));
        assert_ne!(common(&folder(&[b'n'; 246], &[], 1)), common(&folder(&[b'n'; 247], &[], 1)));
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
