//! The golden checks of recordings through the library: every file of every golden recording, byte for byte, except for
//! tables, which `tests/python/test_golden_recordings.py` reads with pyarrow.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use common::{golden, walk};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::{
    cache::{Cache, DiskTier, Verify},
    disk::{Disk, Limits},
    source::{Source, SourceError, Wait},
    tree::{MCAP, ROSBAG},
    vfs::{FileKind, Options, Vfs},
    view::ReadContext,
};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// All listed files below a folder, by their paths.
fn files(vfs: &Vfs, folder: &str, inner: &str, found: &mut BTreeSet<String>) {
    let place = if inner.is_empty() { folder.to_owned() } else { format!("{folder}/{inner}") };
    let attr = walk::resolve(vfs, &place).unwrap_or_else(|| panic!("{place} is not there"));
    let mut entries = Vec::new();
    vfs.read_dir(attr.ino, 2, false, &mut |entry| {
        entries.push((entry.name.to_str().unwrap().to_owned(), entry.kind));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    for (name, kind) in entries {
        let path = if inner.is_empty() { name } else { format!("{inner}/{name}") };
        match kind {
            FileKind::Folder => files(vfs, folder, &path, found),
            _ => assert!(found.insert(path.clone()), "{path} is listed twice"),
        }
    }
}

/// The bytes of a file, or the error of reading it.
fn read(vfs: &Vfs, path: &str) -> Result<Vec<u8>, i32> {
    let Some(attr) = walk::resolve(vfs, path) else { panic!("{path} is not there") };
    let bytes = walk::read(vfs, attr.ino, 0, u64::MAX)?;
    assert_eq!(bytes.len() as u64, attr.size, "{path}: bytes and size");
    Ok(bytes)
}

/// The errno of looking a file up and reading its first byte.
fn failure(vfs: &Vfs, path: &str) -> Option<i32> {
    let (folder, name) = path.rsplit_once('/').unwrap();
    let folder = walk::resolve(vfs, folder).unwrap();
    let attr = match vfs.lookup(folder.ino, name.as_ref()) {
        Ok(attr) => attr.unwrap_or_else(|| panic!("{path} is not there")),
        Err(error) => return Some(error.errno()),
    };
    vfs.read(attr.ino, 0, 1 << 20).err().map(|error| error.errno())
}

fn check_array(vfs: &Vfs, path: &str, item: &Json) {
    let attr = walk::resolve(vfs, path).unwrap_or_else(|| panic!("{path} is not there"));
    let front = walk::read(vfs, attr.ino, 0, 10).unwrap();
    let start = 10 + u64::from(u16::from_le_bytes([front[8], front[9]]));
    let header = String::from_utf8(walk::read(vfs, attr.ino, 10, start - 10).unwrap()).unwrap();
    let shape: Vec<u64> = item["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    let shown = match shape.as_slice() {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let dtype = item["dtype"].as_str().unwrap();
    let dict = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shown}, }}");
    assert_eq!(header.trim_end(), dict.trim_end(), "{path}");
    let width: u64 = dtype[2..].parse::<u64>().unwrap() * shape[1..].iter().product::<u64>();
    let size = shape[0] * width;
    assert_eq!(attr.size, start + size, "{path}");
    let failing: BTreeSet<u64> =
        item.get("eio").and_then(Json::as_array).into_iter().flatten().map(|n| n.as_u64().unwrap()).collect();
    let mut data = Vec::new();
    for row in 0..shape[0] {
        let at = walk::read(vfs, attr.ino, start + row * width, width);
        match failing.contains(&row) {
            true => assert_eq!(at.unwrap_err(), libc::EIO, "{path}, row {row}"),
            false => data.extend(at.unwrap_or_else(|errno| panic!("{path}, row {row}: {errno}"))),
        }
    }
    assert_eq!(sha256(&data), item["sha256"], "{path}");
    if failing.is_empty() {
        assert!(read(vfs, path).unwrap()[start as usize..] == data, "{path}: read whole");
    }
}

/// Compares the parts of `container.json` that are given.
fn check_description(path: &str, found: &Json, expected: &Json) {
    for (key, wanted) in expected.as_object().unwrap() {
        let found = &found[key];
        match (key.as_str(), wanted) {
            ("items", Json::Array(wanted)) => {
                let found = found.as_array().unwrap();
                assert_eq!(found.len(), wanted.len(), "{path}: {found:?}");
                for (found, wanted) in found.iter().zip(wanted) {
                    for (key, value) in wanted.as_object().unwrap() {
                        assert_eq!(found[key], *value, "{path}: {key} of {found}");
                    }
                }
            }
            ("tables", Json::Array(wanted)) => {
                let found = found.as_array().unwrap();
                assert_eq!(found.len(), wanted.len(), "{path}: {found:?}");
                for (found, wanted) in found.iter().zip(wanted) {
                    assert_eq!((&found["path"], &found["rows"]), (&wanted["path"], &wanted["rows"]), "{path}");
                    let left_out: Vec<Json> = (found["left_out"].as_array().unwrap().iter())
                        .map(|left| serde_json::json!([left["column"], left["reason"]]))
                        .collect();
                    assert_eq!(Json::from(left_out), wanted["left_out"], "{path}: {found}");
                }
            }
            ("scan_stopped", _) => assert!(found.is_u64(), "{path}: {found}"),
            _ => assert_eq!(found, wanted, "{path}: {key}"),
        }
    }
}

fn check(family: &str, least: usize) {
    let folder = golden(family);
    let mut expected: Json = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let Json::Object(containers) = expected["files"].take() else { panic!("{family}/expected.json lists no files") };
    let vfs = walk::open(&folder, Options::default());
    let mut checked = 0;
    for (name, file) in &containers {
        let attr = walk::resolve(&vfs, name).unwrap_or_else(|| panic!("{name} is not there"));
        if file["expect"] == "ordinary" {
            assert_eq!(attr.kind, FileKind::File, "{name}");
            assert!(read(&vfs, name).unwrap() == fs::read(folder.join(Path::new(name))).unwrap(), "{name}");
            let problems = vfs.problems();
            let reason = file["reason"].as_str().unwrap();
            let is_told = |p: &shardfs::vfs::Problem| p.container == Path::new(name) && p.message.contains(reason);
            assert!(problems.iter().any(is_told), "{name}: {problems:?}");
            continue;
        }
        assert_eq!(attr.kind, FileKind::Folder, "{name} should be a folder");
        let described: Json = serde_json::from_slice(&read(&vfs, &format!("{name}/container.json")).unwrap()).unwrap();
        check_description(name, &described, &file["container"]);
        let items = file["items"].as_object().unwrap();
        let mut found = BTreeSet::new();
        files(&vfs, name, "", &mut found);
        assert!(found.remove("container.json"), "{name}");
        let is_listed = |(path, item): &(&String, &Json)| !path.starts_with(".raw/") && item["hidden"] != true;
        let listed: BTreeSet<String> = items.iter().filter(is_listed).map(|(path, _)| path.clone()).collect();
        assert_eq!(found, listed, "{name}");
        for (path, item) in items {
            let path = format!("{name}/{path}");
            match item["kind"].as_str().unwrap() {
                "file" => {
                    let bytes = read(&vfs, &path).unwrap_or_else(|errno| panic!("{path}: {errno}"));
                    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]);
                    assert_eq!(bytes.len() as u64, item["size"].as_u64().unwrap(), "{path}: {shown}");
                    assert_eq!(sha256(&bytes), item["sha256"], "{path}: {shown}");
                }
                "npy" => check_array(&vfs, &path, item),
                "eio" => assert_eq!(failure(&vfs, &path), Some(libc::EIO), "{path}"),
                "parquet" => assert!(read(&vfs, &path).unwrap().starts_with(b"PAR1"), "{path}"),
                other => panic!("{path}: {other}"),
            }
            checked += 1;
        }
    }
    assert!(checked >= least, "only {checked} files were compared");
}

#[test]
fn mcap() {
    check("mcap", 700);
}

#[test]
fn rosbag() {
    check("rosbag", 300);
}

/// A file in memory that has a name on disk, and counts what is read of it.
struct Counted(Vec<u8>, AtomicU64);

impl Source for Counted {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        self.1.fetch_add(buf.len() as u64, Relaxed);
        self.0.read_at(offset, buf, wait)
    }

    fn state_key(&self) -> Option<[u8; 32]> {
        Some(Sha256::digest(&self.0).into())
    }
}

/// A file without an index is read once, and what was found is kept for other processes.
#[test]
fn a_scan_is_kept_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mcap = ["no_summary.mcap", "unchunked.mcap", "no_message_index.mcap"];
    let files = mcap.map(|name| (&MCAP, name)).into_iter().chain([(&ROSBAG, "robot_lz4.bag")]);
    for (format, name) in files {
        let mut bytes = fs::read(golden(format.name).join(name)).unwrap();
        // Of a bag, only chunks without index data have to be decoded.
        let indexes: Vec<_> = (4..bytes.len()).filter(|at| bytes[at - 4..*at] == *b"op=\x04").collect();
        indexes.iter().for_each(|at| bytes[at - 1] = 9);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let path = folder.path().join("disk");
            let disk = Disk::open(&path, Limits::new(&path, 64 << 20)).unwrap();
            let cache = Cache::with_disk_tier(64 << 20, Verify::Lazy, Some(DiskTier::new(disk.clone())));
            let source = Arc::new(Counted(bytes.clone(), AtomicU64::new(0)));
            let reader = ReadContext::new(source.clone(), cache, 0);
            let tree = format.open(&reader, None).unwrap();
            let read = source.1.swap(0, Relaxed);
            let described = tree.description(&reader).unwrap();
            seen.push((read, (described.to_vec(), tree.warnings().to_vec())));
            assert!(disk.flush(Duration::from_secs(60)));
        }
        let [first, again, last] = &seen[..] else { panic!() };
        assert!(again.0 < first.0, "{name}: {} bytes, and again {}", first.0, again.0);
        assert!(again.1 == first.1 && last.1 == first.1, "{name}");
    }
}
