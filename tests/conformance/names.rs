//! Names that no writer should have made: each block is reachable, once, under the name that the rules give.

use std::{collections::BTreeMap, fs};

use shardfs::vfs::Options;

use super::listing;
use crate::common::{
    container,
    shard::{self, Block},
    walk,
};

/// Stored names with the path of the block, but for its suffix, in the order of the index.
const NAMES: &[(&[u8], &str)] = &[
    (b"", "%empty"),
    (b".", "%2E"),
    (b"..", "%2E%2E"),
    (b"../up", "%2E%2E/up"),
    (b"a//b", "a/%empty/b"),
    (b"/a", "%empty/a"),
    (b"a/", "a/%empty"),
    (b"a", "a"),
    (b"//", "%empty/%empty/%empty"),
    (b"nul\0l", "nul%00l"),
    (b"50%", "50%25"),
    (b"%2E", "%252E"),
    (b"tab\t\x7f", "tab%09%7F"),
    (b"\xff\xc3\xa9\xc3", "%FF\u{e9}%C3"),
    (b"\xed\xa0\x80/z", "%ED%A0%80/z"),
    // Of equal names the last one is visible.
    (b"x", "x%_2"),
    (b"x", "x%_3"),
    (b"x", "x"),
    (b"x/y", "x/y"),
    (b"x.bin", "x.bin"),
    (b"x.bin/y", "x%2Ebin/y"),
    (b"x.tar.npy/y", "x.tar%2Enpy/y"),
    (b"x%_2", "x%25_2"),
    (b"X", "X"),
    (b"images/a", "%69mages/a"),
    (b"b/images/a", "b/images/a"),
    (b"images", "images"),
    (b".raw/z", "%2Eraw/z"),
    (b"b/.raw/z", "b/%2Eraw/z"),
    (b".raw", ".raw"),
    (b".shardfs/q", "%2Eshardfs/q"),
    (b".shardfs", ".shardfs"),
    (b"\xc3\xa9", "\u{e9}"),
    (b"e\xcc\x81", "e\u{301}"),
];

/// The names of the table, and those that are too long for it.
fn blocks() -> Vec<Block> {
    let mut names: Vec<Vec<u8>> = NAMES.iter().map(|(name, _)| name.to_vec()).collect();
    names.push(vec![b'l'; 300]);
    names.push([&[b'l'; 300][..], b"/leaf"].concat());
    names.push([&[b'l'; 299][..], b"m"].concat());
    names.push(vec![b'l'; 300]);
    names.push(vec![b'\n'; 300]);
    names.push(vec![b's'; 251]);
    names.push(vec![b's'; 252]);
    names.push([b"d/".repeat(2000), b"leaf".to_vec()].concat());
    let mut blocks: Vec<Block> =
        names.iter().enumerate().map(|(i, name)| Block::new(name, format!("block {i}").as_bytes())).collect();
    blocks.push(Block { content_type: 2, ..Block::new("container", "{\"stored\": true}") });
    blocks.push(Block { content_type: 2, ..Block::new("schema", "{}") });
    blocks
}

/// All files by path, with their bytes.
fn contents(bytes: Vec<u8>) -> BTreeMap<String, Vec<u8>> {
    let opened = container::open(bytes).unwrap();
    let files = opened.walk();
    let contents: BTreeMap<_, _> = files.iter().map(|file| (opened.path(file.node), opened.content(file))).collect();
    assert_eq!(contents.len(), files.len(), "two files at one path");
    contents
}

#[test]
fn every_block_is_reachable_once() {
    let blocks = blocks();
    let contents = contents(shard::file(1, &blocks));
    for raw in [false, true] {
        let here = contents.iter().filter(|(path, _)| path.starts_with(".raw/") == raw);
        let mut found: Vec<&[u8]> = here.map(|(_, bytes)| &**bytes).filter(|b| !b.starts_with(b"{\n")).collect();
        let mut stored: Vec<&[u8]> = blocks.iter().map(|block| &*block.stored).collect();
        found.sort_unstable();
        stored.sort_unstable();
        assert_eq!(found, stored, "raw: {raw}");
    }
}

#[test]
fn names_follow_the_rules() {
    let contents = contents(shard::file(1, &blocks()));
    let mut wrong = Vec::new();
    let mut check = |path: String, bytes: &[u8]| {
        if contents.get(&path).map(Vec::as_slice) != Some(bytes) {
            wrong.push(format!("{path}: {:?}", contents.get(&path).map(|bytes| bytes.escape_ascii().to_string())));
        }
    };
    for (i, (_, path)) in NAMES.iter().enumerate() {
        let bytes = format!("block {i}");
        check(format!("{path}.bin"), bytes.as_bytes());
        // Below `.raw` the folders that only the root reserves are nothing special.
        check(format!(".raw/{}.bin", path.replace("%69mages/", "images/")), bytes.as_bytes());
    }
    check("container.json".into(), b"{\"stored\": true}");
    check(".raw/container.bin".into(), b"{\"stored\": true}");
    check("schema.json".into(), b"{}");
    let n = NAMES.len();
    check(format!("{}.bin", "s".repeat(251)), format!("block {}", n + 5).as_bytes());
    check(format!("{}leaf.bin", "d/".repeat(2000)), format!("block {}", n + 7).as_bytes());
    assert!(wrong.is_empty(), "not at their paths: {wrong:#?}");
    // What shardfs makes gives way, and says where everything is.
    let made: serde_json::Value = serde_json::from_slice(&contents["container%_2.json"]).unwrap();
    let items = made["items"].as_array().unwrap();
    assert_eq!(items.len(), blocks().len());
    for (item, block) in items.iter().zip(blocks()) {
        assert_eq!(contents[item["path"].as_str().unwrap()], block.stored, "{item}");
    }
}

#[test]
fn long_names_end_in_their_hash() {
    let contents = contents(shard::file(1, &blocks()));
    let n = NAMES.len();
    let path_of = |i: usize| {
        let bytes = format!("block {i}").into_bytes();
        let found = contents.iter().find(|(path, content)| !path.starts_with(".raw/") && **content == bytes);
        found.unwrap().0.clone()
    };
    let hash = |part: &[u8]| format!("%~{:016x}", xxhash_rust::xxh64::xxh64(part, 0));
    let (l300, l299m) = (hash(&[b'l'; 300]), hash(&[&[b'l'; 299][..], b"m"].concat()));
    // 255 bytes less 18 of the hash and 4 of the suffix; less 3 for the number of a duplicate.
    assert_eq!(path_of(n + 3), format!("{}{l300}.bin", "l".repeat(233)));
    assert_eq!(path_of(n), format!("{}{l300}%_2.bin", "l".repeat(230)));
    assert_eq!(path_of(n + 1), format!("{}{l300}/leaf.bin", "l".repeat(237)));
    assert_eq!(path_of(n + 2), format!("{}{l299m}.bin", "l".repeat(233)));
    assert_eq!(path_of(n + 4), format!("{}{}.bin", "%0A".repeat(77), hash(&[b'\n'; 300])));
    assert_eq!(path_of(n + 6), format!("{}{}.bin", "s".repeat(233), hash(&[b's'; 252])));
}

#[test]
fn the_same_through_the_filesystem() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("names.shard");
    let bytes = shard::file(1, &blocks());
    fs::write(&path, &bytes).unwrap();
    listing::check(scratch.path());
    listing::check(&path);
    let vfs = walk::open(&path, Options::default());
    let files = walk::files(&vfs);
    let expected = contents(bytes);
    assert_eq!(files.len(), expected.len());
    for file in files {
        assert_eq!(walk::read_all(&vfs, &file.attr).as_ref(), Ok(&expected[&file.path]), "{}", file.path);
    }
}

/// A text stands beside the array of its own block, whichever of several blocks of one name that is.
#[test]
fn texts_of_duplicates() {
    let blocks = [
        Block::new("meta/channels", *br#"{"channels":[{"id":"t","dtype":"u8","shape":[4],"modality":"language"}]}"#),
        Block::new("meta/episode", *br#"{"length_T":2}"#),
        Block::new("signal/t", *b"firstone"),
        Block::new("signal/t", *b"\xffno text"),
        Block::new("signal/t", *b"\xffno text"),
        Block::new("signal/t", *b"fourth\0\0"),
        Block::new("signal/t", *b"\xffno text"),
    ];
    let opened = container::open(shard::file(5, &blocks)).unwrap();
    let mut found = Vec::new();
    for file in opened.walk() {
        let path = opened.path(file.node);
        if path.starts_with("signal/") {
            found.push((path, opened.content(&file)));
        }
    }
    found.sort();
    let paths: Vec<&str> = found.iter().map(|(path, _)| &**path).collect();
    // The last is the visible one, the others follow in order.
    let expected = ["t%_2.npy", "t%_2.txt", "t%_3.npy", "t%_4.npy", "t%_5.npy", "t%_5.txt", "t.npy"];
    assert_eq!(paths, expected.map(|name| format!("signal/{name}")));
    for (text, array, bytes) in [(1, 0, b"firstone"), (5, 4, b"fourth\0\0")] {
        assert_eq!(found[text].1, bytes);
        assert!(found[array].1.ends_with(bytes));
    }
}
