//! The golden data sets and TFRecord files through the library: the whole tree of each, byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{collections::BTreeSet, fs, path::Path};

use common::{golden, walk};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::vfs::{FileKind, Options, Vfs};

struct Golden {
    vfs: Vfs,
    expected: Json,
}

impl Golden {
    fn open() -> Self {
        let folder = golden("rlds");
        let expected = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
        Self { vfs: walk::open(&folder, Options::default()), expected }
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, i32> {
        let attr = walk::resolve(&self.vfs, path).unwrap_or_else(|| panic!("{path} is not there"));
        assert_eq!(attr.kind, FileKind::File, "{path}");
        let bytes = walk::read(&self.vfs, attr.ino, 0, u64::MAX)?;
        assert_eq!(bytes.len() as u64, attr.size, "{path}: bytes and size");
        Ok(bytes)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let attr = walk::resolve(&self.vfs, path).unwrap_or_else(|| panic!("{path} is not there"));
        let listed = walk::list(&self.vfs, attr.ino, 0, usize::MAX, false).into_iter().map(|entry| entry.name);
        listed.filter(|name| name != "." && name != "..").collect()
    }

    /// All files below a folder, and the folders without any.
    fn walk(&self, top: &str, path: &str, found: &mut BTreeSet<String>) {
        for name in self.names(&join(top, path)) {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            match walk::resolve(&self.vfs, &walk::join(top, &below)).unwrap().kind {
                FileKind::Folder => self.walk(top, &below, found),
                _ => drop(found.insert(below)),
            }
        }
        if self.names(&join(top, path)).is_empty() {
            found.insert(path.to_owned());
        }
    }

    /// Compares one entry of a tree.
    fn check(&self, path: &str, entry: &Json) {
        if entry["dir"] == true {
            assert_eq!(walk::resolve(&self.vfs, path).unwrap().kind, FileKind::Folder, "{path}");
            return;
        }
        let read = self.read(path);
        if entry["eio"] == true {
            assert_eq!(read.unwrap_err(), libc::EIO, "{path}");
            if let Some(size) = entry["size"].as_u64() {
                assert_eq!(walk::resolve(&self.vfs, path).unwrap().size, size, "{path}");
            }
            return;
        }
        let bytes = read.unwrap_or_else(|errno| panic!("{path}: errno {errno}"));
        let sha256 = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect::<String>();
        if let Some(descr) = entry["npy"].as_str() {
            let data = array(path, &bytes, descr, &entry["shape"]);
            match entry["sha256"].as_str() {
                Some(expected) => assert_eq!(sha256(data), expected, "{path}"),
                None => panic!("{path}: {entry}"),
            }
        } else if let Some(stack) = entry["stack"].as_array() {
            let data = array(path, &bytes, "|u1", &entry["shape"]);
            self.check_stack(path, data, stack, entry["exact"] == true);
        } else if let Some(expected) = entry["sha256"].as_str() {
            assert_eq!(
                (bytes.len() as u64, sha256(&bytes).as_str()),
                (entry["size"].as_u64().unwrap(), expected),
                "{path}"
            );
        } else if let Some(lines) = entry["jsonl"].as_array() {
            let text = String::from_utf8(bytes).unwrap();
            let got: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(&got, lines, "{path}");
        } else if entry["json"].is_object() {
            check_json(path, &serde_json::from_slice(&bytes).unwrap(), &entry["json"]);
        } else if let Some(container) = entry["container"].as_object() {
            let got: Json = serde_json::from_slice(&bytes).unwrap();
            for (key, value) in container.iter().filter(|(key, _)| *key != "paths") {
                assert_eq!(got[key], *value, "{path}: {key}");
            }
            let paths: Vec<&Json> = got["items"].as_array().unwrap().iter().map(|item| &item["path"]).collect();
            for wanted in container.get("paths").into_iter().flat_map(|paths| paths.as_array().unwrap()) {
                assert!(paths.contains(&wanted), "{path}: {wanted} is not among {paths:?}");
            }
        } else {
            panic!("{path}: {entry}");
        }
    }

    /// Compares the slices of a stack with the pictures beside it, as another decoder has them.
    fn check_stack(&self, path: &str, data: &[u8], stack: &[Json], is_exact: bool) {
        let folder = path.strip_suffix(".npy").unwrap();
        let pictures = self.names(folder);
        assert_eq!(pictures.len(), stack.len(), "{path}");
        let each = data.len() / stack.len();
        for (name, slice) in pictures.iter().zip(data.chunks(each)) {
            let stored = self.read(&format!("{folder}/{name}")).unwrap();
            let picture = image::load_from_memory(&stored).unwrap();
            let far = picture.as_bytes().iter().zip(slice).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(picture.as_bytes().len() == each && far <= Some(if is_exact { 0 } else { 4 }), "{path}: {far:?}");
        }
    }
}

/// Returns a path below another one.
fn join(top: &str, path: &str) -> String {
    if path.is_empty() { top.to_owned() } else { format!("{top}/{path}") }
}

/// Returns the elements of an array behind a header that says what it should.
fn array<'a>(path: &str, bytes: &'a [u8], descr: &str, shape: &Json) -> &'a [u8] {
    assert!(bytes.starts_with(b"\x93NUMPY\x01\0"), "{path} is no array");
    let length = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..length]).unwrap();
    let sides: Vec<String> = shape.as_array().unwrap().iter().map(ToString::to_string).collect();
    let shape = if let [one] = &*sides { format!("({one},)") } else { format!("({})", sides.join(", ")) };
    let expected = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    assert_eq!(header.trim_end_matches(['\n', ' ']), expected, "{path}");
    &bytes[length..]
}

/// Compares made JSON: the keys in order, floats to six digits.
fn check_json(path: &str, got: &Json, expected: &Json) {
    match (got, expected) {
        (Json::Object(got), Json::Object(expected)) => {
            assert_eq!(got.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{path}");
            got.iter()
                .zip(expected.values())
                .for_each(|((key, got), value)| check_json(&format!("{path} {key}"), got, value));
        }
        (Json::Number(a), Json::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= b.abs() * 1e-6, "{path}: {a} {b}");
        }
        _ => assert_eq!(got, expected, "{path}"),
    }
}

#[test]
fn every_file_of_every_tree_is_the_expected_one() {
    let golden = Golden::open();
    let mut checked = 0;
    for (top, file) in golden.expected["files"].as_object().unwrap() {
        if file["claim"] != true {
            continue;
        }
        let tree = file["tree"].as_object().unwrap();
        let mut found = BTreeSet::new();
        golden.walk(top, "", &mut found);
        // Tables are not in the list.
        found.retain(|path| !path.ends_with(".parquet"));
        let expected = tree.iter().filter(|(_, entry)| entry["dir"] != true).map(|(path, _)| path.clone());
        assert_eq!(found, expected.collect::<BTreeSet<_>>(), "{top}");
        let unlisted = file["unlisted"].as_object().into_iter().flatten();
        for (path, entry) in tree.iter().chain(unlisted) {
            golden.check(&format!("{top}/{path}"), entry);
            checked += 1;
        }
    }
    assert!(checked > 200, "only {checked} were compared");
}

#[test]
fn what_is_not_claimed_is_shown_as_it_lies_and_problems_say_why() {
    let golden = Golden::open();
    let folder = common::golden("rlds");
    for (top, file) in golden.expected["files"].as_object().unwrap() {
        let as_it_lies = |top: &str, stored: &Path| {
            if stored.is_file() {
                assert!(golden.read(top).unwrap() == fs::read(stored).unwrap(), "{top}");
                return;
            }
            for entry in fs::read_dir(stored).unwrap().flatten() {
                let shown = golden.read(&format!("{top}/{}", entry.file_name().to_str().unwrap())).unwrap();
                assert!(shown == fs::read(entry.path()).unwrap(), "{top}");
            }
        };
        if file["claim"] != true {
            as_it_lies(top, &folder.join(top));
        } else if file["kind"] == "folder" {
            as_it_lies(&format!("{top}/.source"), &folder.join(top));
        } else {
            assert!(golden.read(&format!("{top}/.file")).unwrap() == fs::read(folder.join(top)).unwrap(), "{top}");
        }
        if let Some(expected) = file["problem"].as_bool() {
            let is_there = golden.vfs.problems().iter().any(|problem| {
                let path = problem.container.to_string_lossy();
                path == *top || path.starts_with(&format!("{top}/"))
            });
            assert_eq!(is_there, expected, "{top}");
        }
    }
}
