//! A format is registered in one table: a toy format whose descriptor is in a list beside the others appears in a
//! mount's content, with nothing else changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;
#[path = "toy_format/example.rs"]
mod example;
#[path = "toy_format/forest.rs"]
mod forest;
#[path = "toy_format/grid.rs"]
mod grid;
#[path = "toy_format/shelf.rs"]
mod shelf;
#[cfg(feature = "remote")]
#[path = "toy_format/spread.rs"]
mod spread;

mod toys;

use std::{fs, path::Path};

use common::walk;
use shardfs::{
    format::DType,
    tree::{FORMATS, Format, KDB},
    vfs::{FileKind, Options},
};
use toys::plain::{NAMED, TOY};

static WITH_TOY: [&Format; 2] = [&TOY, &KDB];

#[test]
fn its_descriptor_in_the_table_is_all_that_a_format_needs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good"), b"TOYS\x01abc").unwrap();
    fs::write(folder.path().join("newer.toy"), b"TOYS\x02abc").unwrap();
    fs::write(folder.path().join("short"), b"TOYS").unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo.kdb");
    fs::copy(demo, folder.path().join("demo.kdb")).unwrap();

    let folders = |formats| {
        let vfs = walk::open(folder.path(), Options { formats, ..Options::default() });
        let listed = walk::list(&vfs, shardfs::vfs::ROOT, 2, 100, true);
        let folders = listed.into_iter().filter(|entry| entry.kind == FileKind::Folder);
        (folders.map(|entry| entry.name).collect::<Vec<_>>(), vfs)
    };
    // Without the descriptor it is an ordinary file.
    assert_eq!(folders(&FORMATS).0, ["demo.kdb"]);
    let (shown, vfs) = folders(&WITH_TOY);
    assert_eq!(shown, ["demo.kdb", "good"]);

    let container = walk::lookup(&vfs, shardfs::vfs::ROOT, "good").unwrap();
    let file = walk::lookup(&vfs, container.ino, "data.npy").unwrap();
    let bytes = vfs.read_copied(file.ino, 0, file.size).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY") && bytes.ends_with(b"\nabc") && bytes.len() % 64 == 3);
    let info = vfs.item_info(file.ino, shardfs::source::Wait::Always).unwrap().unwrap();
    assert_eq!((info.dtype, info.shape), (Some(DType::U8.into()), Some(vec![3])));
    assert_eq!(vfs.overview(container.ino).unwrap().unwrap().format, "toy");
    // A refused one is reported under the format's title, and what is too short to be meant as one is not.
    let problems: Vec<_> = vfs.problems().into_iter().map(|problem| problem.message).collect();
    assert_eq!(problems, ["not shown as a Toy container: version_too_new: only version 1 is known"]);
}

static BY_NAME: [&Format; 1] = [&NAMED];

#[test]
fn what_a_name_says_is_remembered_for_that_name_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), b"12345678").unwrap();
    // One file, in one state, by three names.
    for name in ["b.named", "c.txt", "d.NAMED"] {
        fs::hard_link(folder.path().join("a"), folder.path().join(name)).unwrap();
    }
    let vfs = walk::open(folder.path(), Options { formats: &BY_NAME, ..Options::default() });
    for _ in 0..2 {
        let listed = walk::list(&vfs, shardfs::vfs::ROOT, 2, 100, true);
        let kinds: Vec<_> = listed.into_iter().map(|entry| (entry.name, entry.kind)).collect();
        let (file, shown) = (FileKind::File, FileKind::Folder);
        let expected = [("a", file), ("b.named", shown), ("c.txt", file), ("d.NAMED", shown)];
        assert_eq!(kinds, expected.map(|(name, kind)| (name.into(), kind)));
    }
}
