//! The golden checks through the library: every item of every golden file, byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{fs, path::Path};

use common::{golden, walk};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::vfs::{FileKind, Options, Vfs};

/// numpy's name of a dtype of `expected.json`, which may be one already.
fn descr(dtype: &str) -> &str {
    match dtype {
        "f64" => "<f8",
        "f32" => "<f4",
        "f16" => "<f2",
        "bf16" | "u16" => "<u2",
        "bool" => "|b1",
        "i64" => "<i8",
        "i32" => "<i4",
        "i16" => "<i2",
        "i8" => "|i1",
        "u64" => "<u8",
        "u32" => "<u4",
        "u8" => "|u1",
        other => other,
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// A golden folder as the library shows it.
struct Golden {
    vfs: Vfs,
    files: serde_json::Map<String, Json>,
    folder: std::path::PathBuf,
}

impl Golden {
    fn open(family: &str) -> Self {
        let folder = golden(family);
        // Python writes bytes that are no UTF-8 as half a pair of surrogates.
        let text = fs::read_to_string(folder.join("expected.json")).unwrap().replace(r"\udcff\udcfe", r"\ufffd\ufffd");
        let mut expected: Json = serde_json::from_str(&text).unwrap();
        let Json::Object(files) = expected["files"].take() else { panic!("{family}/expected.json lists no files") };
        assert!(files.len() >= 10, "{family}/expected.json lists only {} files", files.len());
        Self { vfs: walk::open(&folder, Options::default()), files, folder }
    }

    /// All bytes of a file, which must be as many as `stat` said.
    fn read(&self, path: &str) -> Vec<u8> {
        let attr = walk::resolve(&self.vfs, path).unwrap_or_else(|| panic!("{path} is not there"));
        assert_eq!(attr.kind, FileKind::File, "{path}");
        let bytes = walk::read(&self.vfs, attr.ino, 0, u64::MAX).unwrap_or_else(|errno| panic!("{path}: {errno}"));
        assert_eq!(bytes.len() as u64, attr.size, "{path}: bytes and size");
        bytes
    }

    /// The data of an array, behind a header that says what it should.
    fn array(&self, path: &str, dtype: &str, shape: &[u64]) -> Vec<u8> {
        let mut bytes = self.read(path);
        assert!(path.ends_with(".npy") && bytes.starts_with(b"\x93NUMPY\x01\0"), "{path} is no array");
        let length = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!(length % 64, 0, "{path}: the data begin at {length}");
        let data = bytes.split_off(length);
        let header = String::from_utf8(bytes.split_off(10)).unwrap();
        let shape = match shape {
            [one] => format!("({one},)"),
            _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        };
        let dict = format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", descr(dtype));
        assert!(header.ends_with('\n'), "{path}: {header:?}");
        assert_eq!(header.trim_end_matches(['\n', ' ']), dict.trim_end(), "{path}");
        data
    }

    /// `items` of `container.json`; `None` for an ordinary file, which must be the stored one.
    fn items(&self, path: &str, accepted: bool) -> Option<Vec<Json>> {
        let attr = walk::resolve(&self.vfs, path).unwrap_or_else(|| panic!("{path} is not there"));
        if !accepted {
            assert!(self.read(path) == fs::read(self.folder.join(path)).unwrap(), "{path}: other bytes than stored");
            return None;
        }
        assert_eq!(attr.kind, FileKind::Folder, "{path} should be a folder");
        let described = self.read(&format!("{path}/container.json"));
        let mut described: Json = serde_json::from_slice(&described).unwrap();
        let Json::Array(items) = described["items"].take() else { panic!("{path}/container.json has no items") };
        Some(items)
    }
}

fn text<'j>(json: &'j Json, key: &str) -> &'j str {
    json[key].as_str().unwrap_or_else(|| panic!("{key} in {json}"))
}

fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

#[test]
fn wshard() {
    let golden = Golden::open("wshard");
    let mut arrays = 0;
    for (path, file) in &golden.files {
        let Some(items) = golden.items(path, file["open"] == "accept") else { continue };
        let blocks = file["blocks"].as_array().unwrap();
        assert_eq!(items.len(), blocks.len(), "{path}");
        for (item, block) in items.iter().zip(blocks) {
            assert_eq!(item["name"], block["name"], "{path}");
            let place = format!("{path}/{}", text(item, "path"));
            arrays += usize::from(check_block(&golden, path, &place, block));
        }
    }
    assert!(arrays >= 200, "only {arrays} arrays were compared");
}

/// Compares a block in the form that it is shown in; whether that is an array.
fn check_block(golden: &Golden, path: &str, place: &str, block: &Json) -> bool {
    let name = text(block, "name");
    let raw = golden.read(&format!("{path}/.raw/{name}.bin"));
    let stored = block.get("recovered_sha256").unwrap_or(&block["sha256"]);
    assert_eq!(sha256(&raw), *stored, "{path}/.raw/{name}.bin");
    if let Some(residual) = block.get("residual") {
        assert!(place.ends_with("/sign2nddiff.npy"), "{place}");
        let data = golden.array(place, "i8", &numbers(&residual["shape"]));
        assert_eq!(sha256(&data), residual["sha256"], "{place}");
        return true;
    }
    let shape = block.get("shape").map(numbers).filter(|shape| shape.len() <= 32);
    let (Some(dtype), Some(shape)) = (block.get("dtype").and_then(Json::as_str), shape) else {
        assert!(golden.read(place) == raw, "{place} is not what is stored");
        return false;
    };
    let data = golden.array(place, dtype, &shape);
    if dtype == "bool" {
        let normalised: Vec<u8> = raw.iter().map(|&byte| u8::from(byte != 0)).collect();
        assert!(data == normalised, "{place}: bool");
        if let (Some(expected), None) = (block.get("sha256_bool_normalised"), block.get("recovered_sha256")) {
            assert_eq!(sha256(&data), *expected, "{place}");
        }
    } else if let Some(expected) = block.get("tensor_sha256") {
        assert_eq!(sha256(&data), *expected, "{place}");
    } else {
        assert_eq!(sha256(&data), *stored, "{place}");
    }
    true
}

/// Compares the items of one store with those of `container.json` whose paths begin with `prefix`.
fn check_store(golden: &Golden, container: &str, prefix: &str, described: &[Json], expected: &[Json]) {
    let bytes_of = |item: &Json| match item.get("name_hex") {
        Some(hex) => hex.as_str().unwrap().to_owned(),
        None => text(item, "name").bytes().map(|byte| format!("{byte:02x}")).collect(),
    };
    let here: Vec<&Json> = described.iter().filter(|item| text(item, "path").starts_with(prefix)).collect();
    assert_eq!(here.len(), expected.len(), "{container}/{prefix}");
    for item in expected {
        let key = text(item, "key_hex");
        let found = here.iter().find(|item| bytes_of(item) == key);
        let found = found.unwrap_or_else(|| panic!("{container}/{prefix}: no item {item}"));
        let place = format!("{container}/{}", text(found, "path"));
        let data = golden.array(&place, text(item, "dtype"), &[item["count"].as_u64().unwrap()]);
        assert_eq!(sha256(&data), item["sha256"], "{place}");
    }
}

#[test]
fn kastore() {
    let golden = Golden::open("kastore");
    for (path, file) in &golden.files {
        let Some(items) = golden.items(path, file["expect"] == "ok") else { continue };
        let stores = file["stores"].as_array().unwrap();
        for (number, store) in stores.iter().enumerate() {
            let prefix = if stores.len() > 1 { format!("{number}/") } else { String::new() };
            check_store(&golden, path, &prefix, &items, store["items"].as_array().unwrap());
        }
    }
}

#[test]
fn kast() {
    let golden = Golden::open("kast");
    for (path, file) in &golden.files {
        let Some(items) = golden.items(path, file["expect"] == "ok") else { continue };
        check_store(&golden, path, "", &items, file["items"].as_array().unwrap());
    }
}

#[test]
fn other_files_are_shown_as_they_are() {
    for family in shardfs::tree::FORMATS.map(|format| format.name) {
        let golden = Golden::open(family);
        for name in ["README.md", "expected.json"] {
            let stored = fs::read(golden.folder.join(Path::new(name))).unwrap();
            assert!(golden.read(name) == stored, "{family}/{name}: other bytes than stored");
        }
    }
}

#[test]
fn hdf5() {
    let golden = Golden::open("hdf5");
    let mut compared = 0;
    for (path, file) in &golden.files {
        let Some(items) = golden.items(path, file["expect"] == "claimed") else { continue };
        let expected = file["items"].as_array().unwrap();
        assert_eq!(items.len(), expected.len(), "{path}");
        let tree = file["tree"].as_object().unwrap().iter().chain(file["raw"].as_object().unwrap());
        for (name, node) in tree {
            let place = format!("{path}/{name}");
            if let (Some(array), None, None) = (node.get("npy"), node.get("eio"), node.get("bad")) {
                let bytes = golden.read(&place);
                // Version 1 has a length of 2 bytes, the others one of 4.
                let length = match bytes[6] {
                    1 => 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])),
                    _ => 12 + u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize,
                };
                assert_eq!(sha256(&bytes[length..]), array["sha256"], "{place}");
            } else if let Some(stored) = node.get("file") {
                assert_eq!(sha256(&golden.read(&place)), stored["sha256"], "{place}");
            } else if let Some(rows) = node.get("jsonl") {
                let lines = golden.read(&place).iter().filter(|byte| **byte == b'\n').count();
                assert_eq!(lines as u64, rows["rows"], "{place}");
            } else {
                continue;
            }
            compared += 1;
        }
    }
    assert!(compared >= 400, "only {compared} files were compared");
}
