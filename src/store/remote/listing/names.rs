//! Parts of keys as names of files, and back (`docs/TREE.md`, section 9).

use std::path::Path;

use crate::{escape, store::remote::location::unescape};

/// The folder of the mount itself, which a key may not hide.
const RESERVED: &str = ".shardfs";

/// Returns the name that a part of a key is shown by. `number` is that of a duplicate, from 2.
pub(crate) fn name_of(part: &[u8], is_top: bool, number: u32) -> String {
    let mut name = escape::escape(part);
    if is_top && name == RESERVED {
        name = name.replacen('.', "%2E", 1);
    }
    let suffix = if number < 2 { String::new() } else { format!("%_{number}") };
    escape::fit(name, part, &suffix)
}

/// Returns the part of a key that a name stands for; `None` for names of duplicates, and of parts that were too long.
pub(crate) fn part_of(name: &[u8], is_top: bool) -> Option<Vec<u8>> {
    let part = if name == b"%empty" { Vec::new() } else { unescape(name) };
    (name_of(&part, is_top, 1).as_bytes() == name).then_some(part)
}

/// Returns whether a name can only be resolved with a listing of its folder.
pub(crate) fn needs_listing(name: &[u8]) -> bool {
    name.windows(2).any(|pair| pair == b"%~" || pair == b"%_")
}

/// Returns whether a folder is the top of the store.
pub(crate) fn is_top(folder: &Path) -> bool {
    folder.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_keys() {
        let long = "y".repeat(300);
        let parts: [&[u8]; 10] =
            [b"", b".", b"..", b"a b", b"50%", b"\xff\n", b"a%2Fb", b"%empty", b".shardfs", "\u{e9}".as_bytes()];
        for part in parts {
            for is_top in [false, true] {
                let name = name_of(part, is_top, 1);
                assert_eq!(part_of(name.as_bytes(), is_top).as_deref(), Some(part), "{name}");
                assert!(!matches!(&*name, "" | "." | ".." | "%2E") || part == b".", "{name}");
            }
        }
        // Each key has one name.
        for name in ["%41", "a%2f", "%zz", "%2E%2E%2E", "a%_2"] {
            assert_eq!(part_of(name.as_bytes(), false), None, "{name}");
        }
        let name = name_of(long.as_bytes(), false, 1);
        assert!(name.len() <= 255 && needs_listing(name.as_bytes()) && part_of(name.as_bytes(), false).is_none());
        assert_eq!(name_of(b".shardfs", true, 1), "%2Eshardfs");
        assert_eq!(name_of(b"x", false, 2), "x%_2");
    }
}
