//! The name mapping: whatever is stored, what comes out is a name, and a different one for each duplicate.
#![no_main]

use shardfs::tree::names;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&[suffix, a, b, c, d], part)) = bytes.split_first_chunk() else { return };
    let number = u32::from_le_bytes([a, b, c, d]);
    let suffix = [".npy", ".json", ".jsonl", ".txt", ".bin", ".png", ".jpg"][usize::from(suffix) % 7];
    let number = number.max(1);
    for name in [names::file(part, suffix, number), names::folder(part, &names::RESERVED, number)] {
        assert!(!name.is_empty() && name.len() <= names::NAME_MAX, "{name:?}");
        assert!(name != "." && name != ".." && !name.contains('/'), "{name:?}");
        assert!(!name.bytes().any(|byte| byte < 0x20 || byte == 0x7f), "{name:?}");
    }
    let file = names::file(part, suffix, number);
    assert!(file.ends_with(suffix), "{file:?}");
    assert_ne!(file, names::file(part, suffix, number.wrapping_add(1).max(1)));
    let folder = names::folder(part, &names::RESERVED, 1);
    assert!(!names::RESERVED.contains(&&*folder), "{folder:?}");
});
