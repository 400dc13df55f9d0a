//! Every golden IDV file through the filesystem's own operations, against what an independent decoder found in it; and
//! what listing and damage may cost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{collections::BTreeSet, fs, path::Path, sync::Barrier, thread};

use common::{Random, container, golden, walk};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::vfs::{Attr, FileKind, Options, Vfs};
use tempfile::TempDir;

const EIO: i32 = 5;

fn expected() -> Json {
    serde_json::from_slice(&fs::read(golden("idv").join("expected.json")).unwrap()).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn number(json: &Json, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("expected.json: {key} in {json}"))
}

fn find(vfs: &Vfs, path: &str) -> Attr {
    walk::resolve(vfs, path).unwrap_or_else(|| panic!("{path} is not there"))
}

fn whole(vfs: &Vfs, path: &str) -> Vec<u8> {
    let bytes = walk::read_all(vfs, &find(vfs, path));
    bytes.unwrap_or_else(|errno| panic!("{path}: errno {errno}"))
}

/// The elements of an array.
fn elements(vfs: &Vfs, path: &str) -> Vec<u8> {
    let bytes = whole(vfs, path);
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].to_vec()
}

/// The folders of the columns, as `container.json` names them.
fn folders(vfs: &Vfs) -> Vec<String> {
    let info: Json = serde_json::from_slice(&whole(vfs, "container.json")).unwrap();
    let items = info["items"].as_array().unwrap();
    items.iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_golden_file() {
    let expected = expected();
    let files = expected["files"].as_object().unwrap();
    assert!(files.len() >= 29, "expected.json lists only {} files", files.len());
    let mut checked = 0;
    for (name, file) in files {
        let vfs = walk::open(&golden("idv").join(name), Options::default());
        let columns = file["columns"].as_array().unwrap();
        let folders = folders(&vfs);
        assert_eq!(folders.len(), columns.len(), "{name}");
        for (column, top) in columns.iter().zip(folders) {
            for (block, number) in column["blocks"].as_array().unwrap().iter().zip(0..) {
                if column["compression"].as_u64().unwrap() < 3 {
                    let bytes = whole(&vfs, &format!("{top}/block_{number}.bin"));
                    assert_eq!(sha256(&bytes), block["sha256"], "{name} {top} {number}");
                }
            }
            let Some(decoded) = column["decoded"].as_object() else { continue };
            let dense = decoded.get("dense").unwrap_or(&column["decoded"]);
            let mut same = |file: &str, key: &str, is_array: bool| {
                let Some(digest) = dense[key].as_str() else { return };
                let path = format!("{top}/{file}");
                let bytes = if is_array { elements(&vfs, &path) } else { whole(&vfs, &path) };
                assert_eq!(sha256(&bytes), digest, "{name} {path}");
                checked += 1;
            };
            same("values.npy", "sha256", true);
            same("offsets.npy", "offsets_sha256", true);
            same("utf8.bin", "utf8_sha256", false);
            if let Some(rows) = decoded.get("row_offsets") {
                let is_text = dense["utf8_sha256"].is_string();
                let path = format!("{top}/{}", if is_text { "rows.npy" } else { "offsets.npy" });
                assert_eq!(sha256(&elements(&vfs, &path)), rows["sha256"], "{name} {path}");
            }
        }
        assert_eq!(vfs.problems(), [], "{name}");
    }
    assert!(checked > 150, "only {checked} arrays");
}

/// Reads over the borders of blocks, and where elements begin in the middle, with and without room in the cache.
#[test]
fn ranges_over_block_borders() {
    let names = [
        "multi_block.idv",
        "mixed_compression.idv",
        "scalars_deflate.idv",
        "scalars_none.idv",
        "variable_vectors.idv",
        "v5_vectors.idv",
        "text.idv",
        "sparse_vectors.idv",
        "different_rows_per_block.idv",
    ];
    for name in names {
        let path = golden("idv").join(name);
        let wide = walk::open(&path, Options::default());
        let narrow = walk::open(&path, Options { cache_size: 1, ..Options::default() });
        for node in walk::files(&wide) {
            let all = walk::read_all(&wide, &node.attr).unwrap();
            let narrow_node = find(&narrow, &node.path);
            let step = (all.len() / 40).max(1);
            for from in (0..all.len()).step_by(step) {
                for length in [1, 3, step + 1, 4 * step + 7] {
                    let to = all.len().min(from + length);
                    for (vfs, ino) in [(&wide, node.attr.ino), (&narrow, narrow_node.ino)] {
                        let got = walk::read(vfs, ino, from as u64, length as u64);
                        assert!(got.as_deref() == Ok(&all[from..to]), "{name} {} {from}+{length}", node.path);
                    }
                }
            }
        }
    }
}

/// Listing with attributes decodes nothing; the size of what has none yet is computed when it is asked for.
#[test]
fn listing_decodes_nothing() {
    let path = golden("idv").join("variable_vectors.idv");
    let vfs = walk::open(&path, Options::default());
    let decoded = || vfs.cache().counters.misses.load(std::sync::atomic::Ordering::Relaxed);
    let (mut unknown, mut folders) = (BTreeSet::new(), vec![(String::new(), shardfs::vfs::ROOT)]);
    while let Some((folder, ino)) = folders.pop() {
        for entry in walk::list(&vfs, ino, 2, usize::MAX, true) {
            let path = walk::join(&folder, &entry.name);
            match entry.attr {
                None => assert!(unknown.insert(path)),
                Some(attr) if attr.kind == FileKind::Folder => folders.push((path, entry.ino)),
                Some(_) => {}
            }
        }
    }
    assert_eq!(decoded(), 0);
    assert!(unknown.contains("columns/vr4/values.npy") && unknown.contains("columns/vtx/values.jsonl"));
    assert!(!unknown.contains("columns/vr4/offsets.npy") && !unknown.contains("columns/vtx/rows.npy"), "{unknown:?}");
    // Only the fronts of blocks are inflated for a size.
    assert_eq!(find(&vfs, "columns/vr4/values.npy").size, 128 + 4 * 25);
    assert_eq!(decoded(), 0);
    let ino = find(&vfs, "columns/vr4").ino;
    let listed = walk::list(&vfs, ino, 2, usize::MAX, true);
    assert!(listed.iter().all(|entry| entry.attr.is_some()), "a size that is known is not listed");
}

/// A container with one block's stored bytes replaced.
fn damaged(scratch: &TempDir, name: &str, column: usize, block: usize) -> (Vfs, Json) {
    let expected = expected();
    let file = &expected["files"][name];
    let record = &file["columns"][column]["blocks"][block];
    let mut bytes = fs::read(golden("idv").join(name)).unwrap();
    let from = number(record, "offset") as usize;
    bytes[from..from + number(record, "length") as usize].fill(0xff);
    let path = scratch.path().join(name);
    fs::write(&path, bytes).unwrap();
    (walk::open(&path, Options::default()), file.clone())
}

fn undamaged(name: &str) -> Vfs {
    walk::open(&golden("idv").join(name), Options::default())
}

#[test]
fn a_damaged_text_block_leaves_the_others() {
    let scratch = tempfile::tempdir().unwrap();
    let (vfs, _) = damaged(&scratch, "multi_block.idv", 2, 7);
    let sound = undamaged("multi_block.idv");
    for name in ["offsets.npy", "utf8.bin", "missing.npy", "block_8.bin"] {
        let path = format!("columns/Text/{name}");
        let (bad, good) = (find(&vfs, &path), find(&sound, &path));
        assert_eq!(bad.size, good.size, "{path}");
        let truth = walk::read_all(&sound, &good).unwrap();
        let mut failed = 0;
        for at in (0..bad.size).step_by(7) {
            match walk::read(&vfs, bad.ino, at, 7) {
                Ok(bytes) => assert!(truth[at as usize..].starts_with(&bytes), "{path}: {at}"),
                Err(errno) => failed += u64::from(errno == EIO) * 7,
            }
        }
        // One block of sixteen.
        assert_eq!(failed > 0, name != "block_8.bin", "{path}");
        assert!(failed < bad.size / 8, "{path}: {failed} bytes of {} fail", bad.size);
    }
    let lines = vfs.lookup(find(&vfs, "columns/Text").ino, "values.jsonl".as_ref());
    assert_eq!(lines.unwrap_err().errno(), EIO);
    assert!(vfs.problems().iter().any(|problem| problem.block.as_deref() == Some("block_7")));
    assert_eq!(whole(&vfs, "columns/Flag/values.npy"), whole(&sound, "columns/Flag/values.npy"));
}

#[test]
fn behind_a_damaged_block_of_variable_vectors_nothing_is_known() {
    let scratch = tempfile::tempdir().unwrap();
    let (vfs, _) = damaged(&scratch, "multi_block.idv", 4, 7);
    let sound = undamaged("multi_block.idv");
    let path = "columns/Var/offsets.npy";
    let offsets = find(&vfs, path);
    let truth = whole(&sound, path);
    assert_eq!(offsets.size, truth.len() as u64);
    // 64 rows in a block, and the first number of a block is known without it.
    let damage = 128 + 8 * (64 * 7 + 1);
    assert_eq!(walk::read(&vfs, offsets.ino, 0, damage).as_deref(), Ok(&truth[..damage as usize]));
    for at in (damage..offsets.size).step_by(8) {
        assert_eq!(walk::read(&vfs, offsets.ino, at, 8), Err(EIO), "{at}");
    }
    let column = find(&vfs, "columns/Var").ino;
    assert_eq!(vfs.lookup(column, "values.npy".as_ref()).unwrap_err().errno(), EIO);
    let names: Vec<String> = walk::list(&vfs, column, 2, 3, false).into_iter().map(|entry| entry.name).collect();
    assert!(names.contains(&"values.npy".to_owned()));
    assert_eq!(whole(&vfs, "columns/Var/block_8.bin"), whole(&sound, "columns/Var/block_8.bin"));
}

/// A damaged block of fixed vectors fails where it is, and nowhere else.
#[test]
fn damage_in_fixed_vectors_stays_where_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let (vfs, file) = damaged(&scratch, "multi_block.idv", 1, 3);
    let path = "columns/Features/values.npy";
    let truth = whole(&undamaged("multi_block.idv"), path);
    let slots = number(&file["columns"][1]["codec"]["type"], "size");
    let block = 64 * slots * 4;
    let values = find(&vfs, path);
    let header = values.size - 1000 * slots * 4;
    let bad = header + 3 * block..header + 4 * block;
    for at in (0..values.size).step_by(500) {
        let got = walk::read(&vfs, values.ino, at, 500);
        let touches = at < bad.end && at + 500 > bad.start;
        assert_eq!(got.is_err(), touches, "{at}");
        assert!(got.is_err() || truth[at as usize..].starts_with(&got.unwrap()), "{at}");
    }
}

#[test]
fn eight_readers_of_one_column() {
    for (file, column) in [("multi_block.idv", "Features"), ("multi_block.idv", "Text"), ("multi_block.idv", "Var")] {
        let sound = undamaged(file);
        let names: Vec<String> = walk::list(&sound, find(&sound, &format!("columns/{column}")).ino, 2, 6, false)
            .into_iter()
            .filter(|entry| entry.kind == FileKind::File)
            .map(|entry| format!("columns/{column}/{}", entry.name))
            .collect();
        let truth: Vec<Vec<u8>> = names.iter().map(|name| whole(&sound, name)).collect();
        for cache_size in [1, 64 << 10, 64 << 20] {
            let vfs = walk::open(&golden("idv").join(file), Options { cache_size, ..Options::default() });
            let start = Barrier::new(8);
            thread::scope(|scope| {
                for reader in 0..8 {
                    let (vfs, names, truth, start) = (&vfs, &names, &truth, &start);
                    scope.spawn(move || {
                        let mut random = Random(reader);
                        start.wait();
                        for _ in 0..150 {
                            let file = random.below(names.len() as u64) as usize;
                            let attr = find(vfs, &names[file]);
                            let at = random.below(attr.size + 1);
                            let length = random.below(3000);
                            let to = attr.size.min(at + length);
                            let got = walk::read(vfs, attr.ino, at, length);
                            assert!(got.as_deref() == Ok(&truth[file][at as usize..to as usize]), "{}", names[file]);
                        }
                    });
                }
            });
        }
    }
}

/// Decoding all there is takes little more memory than the cache may have.
#[test]
fn memory_of_every_golden_file() {
    let resident = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() >> 10
    };
    let check = |path: &Path| {
        let vfs = walk::open(path, Options { cache_size: 16 << 20, ..Options::default() });
        for node in walk::files(&vfs) {
            let size = node.attr.size;
            for at in [0, size / 2, size.saturating_sub(1 << 20)] {
                walk::read(&vfs, node.attr.ino, at, 1 << 20).unwrap();
            }
        }
        assert!(resident() < 256, "{}: {} MiB", path.display(), resident());
    };
    for name in expected()["files"].as_object().unwrap().keys() {
        check(&golden("idv").join(name));
    }
}

/// Bytes replaced anywhere, in tables of contents above all: an error or an answer, never a panic.
#[test]
fn hostile_tables() {
    let mut random = Random(3);
    let mut opened = 0;
    for name in expected()["files"].as_object().unwrap().keys() {
        let bytes = fs::read(golden("idv").join(name)).unwrap();
        if bytes.len() > 8 << 10 {
            continue;
        }
        for _ in 0..if cfg!(debug_assertions) { 100 } else { 1500 } {
            let mut bytes = bytes.clone();
            for _ in 0..=random.below(2) {
                // Tables stand behind the blocks.
                let from = if random.below(3) == 0 { 0 } else { bytes.len() as u64 * 2 / 3 };
                let at = (from + random.below(bytes.len() as u64 - from)) as usize;
                let values: [&[u8]; 8] =
                    [&[0], &[0xff], &[0x80], &[1], &[0xff; 4], &[0xff, 0xff, 0xff, 0x7f], &[0; 4], &[0x40]];
                let value = values[random.below(8) as usize];
                let end = bytes.len().min(at + value.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            let Some(container) = container::open(bytes) else { continue };
            opened += 1;
            for file in container.walk() {
                container.read(&file);
            }
        }
    }
    assert!(opened > 1000, "only {opened} opened");
}
