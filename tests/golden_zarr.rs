//! The golden Zarr stores through the library: every file that the tree should have, and no other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use common::{golden, walk};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::{
    cache::{BlockError, Cache, Verify},
    source::{Source, SourceError},
    tree::{FORMATS, OpenPart, ROOT, Reach, Siblings},
    vfs::{FileKind, Options, Vfs},
    view::ReadContext,
};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Files that every container has beside those of `expected.json`.
fn is_added(path: &str) -> bool {
    path == "container.json" || path.ends_with(".parquet")
}

/// The header of an array as its `descr` and shape, and the data behind it.
fn split(path: &str, mut bytes: Vec<u8>) -> (String, Vec<u8>) {
    assert!(bytes.starts_with(b"\x93NUMPY\x01\0"), "{path} is no array");
    let length = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let data = bytes.split_off(length);
    (String::from_utf8(bytes.split_off(10)).unwrap(), data)
}

/// A `descr` of `expected.json` as Python prints it.
fn python(descr: &Json) -> String {
    match descr {
        Json::String(descr) => format!("'{descr}'"),
        Json::Array(fields) => {
            let field = |field: &Json| {
                let [name, of, rest @ ..] = field.as_array().unwrap().as_slice() else { panic!("{field}") };
                let shape = rest.first().map_or(String::new(), |shape| format!(", {}", tuple(shape)));
                format!("({}, {}{shape})", python(name), python(of))
            };
            format!("[{}]", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => panic!("{other}"),
    }
}

fn tuple(shape: &Json) -> String {
    let axes: Vec<String> = shape.as_array().unwrap().iter().map(Json::to_string).collect();
    match axes.as_slice() {
        [one] => format!("({one},)"),
        axes => format!("({})", axes.join(", ")),
    }
}

/// The pixels of a PNG file of stored blocks.
fn pixels(bytes: &[u8]) -> Vec<u8> {
    let decoder = image::load_from_memory_with_format(bytes, image::ImageFormat::Png).unwrap();
    match decoder {
        image::DynamicImage::ImageLuma16(image) => image.into_raw().into_iter().flat_map(u16::to_be_bytes).collect(),
        other => other.into_bytes(),
    }
}

struct Store<'a> {
    vfs: &'a Vfs,
    name: &'a str,
}

impl Store<'_> {
    fn check(&self, path: &str, expected: &Json) {
        let full = format!("{}/{path}", self.name);
        let attr = match path.rsplit_once('/') {
            Some((folder, last)) => {
                let folder = walk::resolve(self.vfs, &format!("{}/{folder}", self.name));
                let folder = folder.unwrap_or_else(|| panic!("{full}: its folder is not there"));
                self.vfs.lookup(folder.ino, last.as_ref())
            }
            None => self.vfs.lookup(walk::resolve(self.vfs, self.name).unwrap().ino, path.as_ref()),
        };
        let kind = expected["type"].as_str().unwrap();
        // Where rows begin has a size that is known without them.
        if kind == "stat_eio" && path.ends_with("/offsets.npy") {
            let attr = attr.unwrap().unwrap_or_else(|| panic!("{full} is not there"));
            return assert_eq!(walk::read_all(self.vfs, &attr), Err(libc::EIO), "{full}");
        }
        if kind == "stat_eio" {
            let errno = attr.map(drop).unwrap_err().errno();
            return assert_eq!(errno, libc::EIO, "{full}");
        }
        let attr = attr.unwrap_or_else(|error| panic!("{full}: {error}"));
        let attr = attr.unwrap_or_else(|| panic!("{full} is not there"));
        assert_eq!(attr.kind, FileKind::File, "{full}");
        if matches!(kind, "eio" | "png_eio") {
            if let Some(size) = expected["size"].as_u64() {
                assert_eq!(attr.size, size, "{full}");
            }
            return assert_eq!(walk::read_all(self.vfs, &attr), Err(libc::EIO), "{full}");
        }
        if let Some(bytes) = expected["huge"].as_str() {
            let element = bytes.len() as u64 / 2;
            let end = walk::read(self.vfs, attr.ino, attr.size - element, element).unwrap();
            let found: String = end.iter().map(|byte| format!("{byte:02x}")).collect();
            return assert_eq!(found, bytes, "{full}");
        }
        if expected["eio"] == true {
            let header = walk::read(self.vfs, attr.ino, 0, 64).unwrap();
            assert!(header.starts_with(b"\x93NUMPY"), "{full}");
            assert_eq!(walk::read(self.vfs, attr.ino, attr.size - 1, 1), Err(libc::EIO), "{full}");
            return;
        }
        let damaged: Vec<(u64, u64)> = expected["damaged"].as_array().into_iter().flatten().map(range).collect();
        if !damaged.is_empty() {
            return self.check_damaged(&full, &attr, &damaged, &expected["sha256"]);
        }
        let bytes = walk::read_all(self.vfs, &attr).unwrap_or_else(|errno| panic!("{full}: {errno}"));
        assert_eq!(bytes.len() as u64, attr.size, "{full}");
        match kind {
            "npy" => {
                let (header, data) = split(&full, bytes);
                let dict = format!(
                    "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}",
                    python(&expected["descr"]),
                    tuple(&expected["shape"])
                );
                assert_eq!(header.trim_end(), dict, "{full}");
                assert_eq!(sha256(&data), expected["sha256"], "{full}");
            }
            "png" => assert_eq!(sha256(&pixels(&bytes)), expected["sha256"], "{full}"),
            "bytes" => {
                assert_eq!(bytes.len() as u64, expected["size"], "{full}: {:?}", String::from_utf8_lossy(&bytes));
                assert_eq!(sha256(&bytes), expected["sha256"], "{full}");
            }
            other => panic!("{full}: {other}"),
        }
    }

    /// An array with damaged ranges, whose hash has zeros there.
    fn check_damaged(&self, path: &str, attr: &shardfs::vfs::Attr, damaged: &[(u64, u64)], expected: &Json) {
        let front = walk::read(self.vfs, attr.ino, 0, 10).unwrap();
        let header = 10 + u64::from(u16::from_le_bytes([front[8], front[9]]));
        let (mut data, mut at) = (Vec::new(), 0);
        for (start, end) in damaged.iter().copied().chain([(attr.size - header, attr.size - header)]) {
            data.extend(walk::read(self.vfs, attr.ino, header + at, start - at).unwrap());
            if start < end {
                for place in [start, end - 1] {
                    assert_eq!(walk::read(self.vfs, attr.ino, header + place, 1), Err(libc::EIO), "{path} {place}");
                }
            }
            data.resize(data.len() + (end - start) as usize, 0);
            at = end;
        }
        assert_eq!(sha256(&data), *expected, "{path}");
    }

    /// All files below a folder, by path.
    fn listed(&self, top: &str) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut files, mut empty) = (BTreeSet::new(), BTreeSet::new());
        let mut folders = vec![(String::new(), walk::resolve(self.vfs, top).unwrap().ino)];
        while let Some((folder, ino)) = folders.pop() {
            let mut has_some = false;
            for entry in walk::list_in_steps(self.vfs, ino, 7, true) {
                if entry.name == "." || entry.name == ".." {
                    continue;
                }
                has_some = true;
                let path = walk::join(&folder, &entry.name);
                match entry.kind {
                    FileKind::Folder => folders.push((path, entry.ino)),
                    _ => assert!(files.insert(path.clone()), "{top}/{path} is listed twice"),
                }
            }
            if !has_some {
                empty.insert(folder);
            }
        }
        (files, empty)
    }
}

fn range(json: &Json) -> (u64, u64) {
    (json[0].as_u64().unwrap(), json[1].as_u64().unwrap())
}

#[test]
fn every_store_shows_what_zarr_python_reads() {
    let folder = golden("zarr");
    let expected: Json = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let vfs = walk::open(&folder, Options::default());
    for (name, record) in expected["files"].as_object().unwrap() {
        if record["format"] == "tszip" || std::env::var("ONLY").is_ok_and(|only| only != *name) {
            continue;
        }
        let store = Store { vfs: &vfs, name };
        let attr = walk::resolve(&vfs, name).unwrap();
        if record["expect"] == "ordinary" {
            assert!(walk::lookup(&vfs, attr.ino, "container.json").is_none() || attr.kind == FileKind::File, "{name}");
            continue;
        }
        assert_eq!(attr.kind, FileKind::Folder, "{name}");
        let tree: BTreeMap<&String, &Json> = record["tree"].as_object().unwrap().iter().collect();
        for (path, expected) in &tree {
            store.check(path, expected);
        }
        let (files, empty) = store.listed(name);
        check_tables(&store, record, &files);
        let files: BTreeSet<_> = files.into_iter().filter(|path| !is_added(path)).collect();
        assert_eq!(files, tree.keys().map(ToString::to_string).collect(), "{name}");
        let dirs: BTreeSet<String> =
            record["empty_dirs"].as_array().unwrap().iter().map(|dir| dir.as_str().unwrap().into()).collect();
        assert_eq!(empty, dirs, "{name}");
        let raw = record["raw"].as_object().unwrap();
        for (path, expected) in raw {
            store.check(&format!(".raw/{path}"), expected);
        }
        let (files, _) = store.listed(&format!("{name}/.raw"));
        assert_eq!(files, raw.keys().cloned().collect(), "{name}/.raw");
        check_items(&store, record);
    }
}

#[test]
fn tree_sequences_are_those_that_were_packed() {
    let folder = golden("zarr");
    let expected: Json = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let vfs = walk::open(&folder, Options::default());
    let mut compared = 0;
    for (name, record) in expected["files"].as_object().unwrap() {
        if record["format"] != "tszip" {
            continue;
        }
        let read = |path: &str| {
            let attr = walk::resolve(&vfs, &format!("{name}/{path}")).unwrap_or_else(|| panic!("{name}/{path}"));
            walk::read_all(&vfs, &attr).unwrap_or_else(|errno| panic!("{name}/{path}: {errno}"))
        };
        let described: Json = serde_json::from_slice(&read("container.json")).unwrap();
        assert_eq!((&described["format"], &described["version"]), (&record["format"], &record["version"]), "{name}");
        let items = record["items"].as_array().unwrap();
        assert_eq!(described["items"].as_array().unwrap().len(), items.len(), "{name}");
        for (item, found) in items.iter().zip(described["items"].as_array().unwrap()) {
            let key = item["key"].as_str().unwrap();
            assert_eq!(found["name"], key, "{name}");
            let (header, data) = split(key, read(&format!("{key}.npy")));
            let dict = format!(
                "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}",
                python(&item["dtype"]),
                tuple(&item["shape"])
            );
            assert_eq!(header.trim_end(), dict, "{name}/{key}");
            assert_eq!(sha256(&data), item["sha256"], "{name}/{key}");
            compared += 1;
        }
        for (path, view) in record["views"].as_object().unwrap() {
            assert_eq!(sha256(&read(path)), view["sha256"], "{name}/{path}");
        }
        let store = Store { vfs: &vfs, name };
        let (files, _) = store.listed(name);
        assert_eq!(
            files.iter().filter(|path| !is_added(path)).count(),
            items.len() + record["views"].as_object().unwrap().len(),
            "{name}: {files:?}"
        );
        // Without that format they are stores.
        let plain =
            walk::open(&folder, Options { formats: shardfs::tree::choose("-tszip").unwrap(), ..Options::default() });
        assert!(walk::resolve(&plain, &format!("{name}/coordinates.npy")).is_some(), "{name}");
    }
    assert!(compared > 300, "{compared}");
}

/// Compares `container.json`.
fn check_items(store: &Store<'_>, record: &Json) {
    let name = store.name;
    let attr = walk::resolve(store.vfs, &format!("{name}/container.json")).unwrap();
    let described: Json = serde_json::from_slice(&walk::read_all(store.vfs, &attr).unwrap()).unwrap();
    for key in ["format", "version", "consolidated"] {
        assert_eq!(described[key], record[key], "{name}: {key}");
    }
    let (found, expected) = (described["items"].as_array().unwrap(), record["items"].as_array().unwrap());
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found["reason"].is_null(), expected["reason"].is_null(), "{name}: {found}");
        for (key, value) in expected.as_object().unwrap().iter().filter(|(key, _)| *key != "reason") {
            assert_eq!(&found[key], value, "{name}: {key} of {found}");
        }
    }
}

/// Compares the tables of a store with `expected.json`, but for their values, which the Python tests compare.
fn check_tables(store: &Store<'_>, record: &Json, files: &BTreeSet<String>) {
    let none = serde_json::Map::new();
    let expected = record["tables"].as_object().unwrap_or(&none);
    let found: BTreeSet<&String> = files.iter().filter(|path| path.ends_with(".parquet")).collect();
    assert_eq!(found, expected.keys().collect(), "{}", store.name);
    let attr = walk::resolve(store.vfs, &format!("{}/container.json", store.name)).unwrap();
    let described: Json = serde_json::from_slice(&walk::read_all(store.vfs, &attr).unwrap()).unwrap();
    let described = described["tables"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(described.len(), expected.len(), "{}", store.name);
    for (path, table) in expected {
        let full = format!("{}/{path}", store.name);
        let said = described.iter().find(|said| said["path"] == **path).unwrap_or_else(|| panic!("{full}"));
        if table == "eio" {
            store.check(path, &serde_json::json!({"type": "stat_eio"}));
            assert!(said["rows"].is_null() && said["columns"].is_null(), "{full}");
            continue;
        }
        let left_out: Vec<&Json> = said["left_out"].as_array().unwrap().iter().map(|left| &left["column"]).collect();
        assert_eq!(left_out, table["left_out"].as_array().unwrap().iter().collect::<Vec<_>>(), "{full}");
        assert_eq!(said["rows"], table["rows"], "{full}");
        assert_eq!(said["columns"], table["columns"].as_object().unwrap().len(), "{full}");
        let attr = walk::resolve(store.vfs, &full).unwrap();
        // Columns that cannot be read are in pages of their own.
        let end = walk::read(store.vfs, attr.ino, attr.size - 4, 4).unwrap();
        assert_eq!(end, b"PAR1", "{full}");
    }
}

/// Files by their paths in a folder, and how often each was asked for.
struct Counting(BTreeMap<String, Arc<Vec<u8>>>, Mutex<BTreeMap<String, u32>>);

impl Siblings for Counting {
    fn file(&self, path: &str) -> Result<Option<Arc<dyn Source>>, BlockError> {
        *self.1.lock().unwrap().entry(path.into()).or_default() += 1;
        Ok(self.0.get(path).map(|bytes| bytes.clone() as Arc<dyn Source>))
    }

    fn names(&self, path: &str, _: &mut dyn FnMut(&OsStr) -> ControlFlow<()>) -> Result<(), BlockError> {
        panic!("{path} was listed");
    }

    fn open(&self, path: &str, _: Reach) -> Result<Arc<dyn OpenPart>, BlockError> {
        panic!("{path} was opened as a container");
    }

    fn sha256(&self, _: &dyn OpenPart) -> Result<[u8; 32], SourceError> {
        Ok([0; 32])
    }
}

#[test]
fn a_file_is_opened_once_for_its_size_and_its_bytes() {
    const SIDE: usize = 40;
    let array = |key: &str| {
        format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [{SIDE}, {SIDE}], "data_type": "uint8",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [8, {SIDE}]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "fill_value": 7, "codecs": [{key}]}}"#
        )
    };
    let bytes = r#"{"name": "bytes"}"#;
    // Chunks of one element in shards, each with an index of their offsets and sizes, in the order of the chunks.
    let inner = format!(
        r#"{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [1, 1], "codecs": [{bytes}],
        "index_codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}]}}}}"#
    );
    for (codecs, is_sharded) in [(bytes, false), (&*inner, true)] {
        let mut files = BTreeMap::from([("zarr.json".to_owned(), Arc::new(array(codecs).into_bytes()))]);
        let mut expected: Vec<u8> = Vec::new();
        // The third row of chunks is absent.
        for number in 0..SIDE / 8 {
            let mut chunk: Vec<u8> = (0..8 * SIDE).map(|at| (at * 3 + number) as u8).collect();
            expected.extend(chunk.iter().map(|byte| if number == 2 { 7 } else { *byte }));
            if is_sharded {
                (0..8 * SIDE as u64).for_each(|at| chunk.extend([at, 1].map(u64::to_le_bytes).concat()));
            }
            if number != 2 {
                files.insert(format!("c/{number}/0"), Arc::new(chunk));
            }
        }
        let format = FORMATS.into_iter().find(|format| format.name == "zarr" && !format.markers.is_empty()).unwrap();
        let marker = files["zarr.json"].clone();
        let counting = Arc::new(Counting(files, Mutex::default()));
        let cache = Cache::new(64 << 20, Verify::Lazy);
        let reader = ReadContext::new(marker, cache, 0);
        let tree = format.open(&reader, Some(counting.clone())).unwrap();
        counting.1.lock().unwrap().clear();
        let node = tree.lookup(&reader, ROOT, "array.npy").unwrap().unwrap();
        let view = tree.view(&reader, node).unwrap();
        let whole = view.copy_at(&reader, 0, view.size()).unwrap();
        assert_eq!(whole[whole.len() - expected.len()..], expected, "{codecs}");
        let counts = counting.1.lock().unwrap();
        assert_eq!(counts.len(), SIDE / 8, "{counts:?}");
        // The first 1024 chunks, which are looked up together, end in the fourth shard.
        let again = BTreeMap::from([("c/3/0".to_owned(), 2)]);
        let expected = |name: &String| if is_sharded { again.get(name).copied().unwrap_or(1) } else { 1 };
        assert!(counts.iter().all(|(name, count)| *count == expected(name)), "{codecs}: {counts:?}");
    }
}
