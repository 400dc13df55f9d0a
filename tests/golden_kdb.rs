//! Every golden KDB file through the filesystem's own operations, against what an independent parser found in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    ops::ControlFlow,
};

use common::golden;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::vfs::{Options, ROOT, Vfs};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

struct Tree(Vfs);

impl Tree {
    fn find(&self, path: &str) -> Option<shardfs::vfs::Attr> {
        let mut attr = self.0.attr(ROOT).unwrap();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            attr = self.0.lookup(attr.ino, OsStr::new(part)).unwrap()?;
        }
        Some(attr)
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let attr = self.find(path).unwrap_or_else(|| panic!("{path} is not there"));
        let bytes = self.0.read(attr.ino, 0, u64::MAX >> 1).unwrap().as_syscall_buf().to_vec();
        assert_eq!(bytes.len() as u64, attr.size, "{path}");
        // Some ranges: each the slice of the whole.
        for (from, length) in [(0, 7), (60, 70), (attr.size / 2, 100), (attr.size.saturating_sub(20), 50)] {
            let part = self.0.read(attr.ino, from, length).unwrap().as_syscall_buf().to_vec();
            let to = (from + length).min(attr.size);
            assert_eq!(part, bytes[from.min(to) as usize..to as usize], "{path} {from}+{length}");
        }
        bytes
    }

    fn names(&self, path: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let ino = self.find(path).unwrap_or_else(|| panic!("{path} is not there")).ino;
        let each = &mut |entry: shardfs::vfs::DirEntry<'_>| {
            assert!(names.insert(entry.name.to_string_lossy().into_owned()));
            ControlFlow::Continue(())
        };
        self.0.read_dir(ino, 2, true, each).unwrap();
        names
    }

    /// The elements of an array.
    fn array(&self, path: &str, descr: &str, shape: &[u64]) -> Vec<u8> {
        let bytes = self.read(path);
        let length = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let (header, elements) = bytes.split_at(length);
        let tuple: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
        let tuple = if shape.len() == 1 { tuple.trim_end() } else { tuple.trim_end_matches(", ") };
        let expected = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({tuple}), }}");
        assert!(header.starts_with(b"\x93NUMPY\x01\x00") && header.ends_with(b"\n"), "{path}");
        assert_eq!(String::from_utf8_lossy(&header[10..]).trim_end(), expected, "{path}");
        assert_eq!(length % 64, 0, "{path}");
        elements.to_vec()
    }
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.into_iter().map(String::from).collect()
}

fn number(json: &Json, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("expected.json: {key} in {json}"))
}

#[test]
fn every_golden_file() {
    let folder = golden("kdb");
    let expected: Json = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let files = expected["files"].as_object().unwrap();
    assert!(files.len() >= 18, "expected.json lists only {} files", files.len());
    for (name, file) in files {
        let path = folder.join(name);
        let tree = Tree(Vfs::open(&path, Options::default()).unwrap());
        assert_eq!(tree.names(""), set(["container.json", "episodes", "episodes.parquet", "steps.parquet"]), "{name}");
        let info: Json = serde_json::from_slice(&tree.read("container.json")).unwrap();
        let header = &file["file"]["header"];
        assert_eq!((&info["format"], &info["version"]), (&"kdb".into(), &"0.1".into()));
        for key in ["num_episodes", "num_frames", "index_offset", "index_length", "created_timestamp"] {
            assert_eq!(info["header"][key], header[key], "{name}: {key}");
        }
        let episodes = file["episodes"].as_array().unwrap();
        let positions: BTreeSet<String> = (0..episodes.len()).map(|i| i.to_string()).collect();
        assert_eq!(tree.names("episodes"), positions, "{name}");
        for episode in episodes {
            check_episode(&tree, name, episode, &fs::read(&path).unwrap());
        }
        assert_eq!(tree.0.problems(), [], "{name}");
    }
}

fn check_episode(tree: &Tree, name: &str, episode: &Json, stored: &[u8]) {
    let position = number(episode, "position");
    let top = format!("episodes/{position}");
    let place = format!("{name} {top}");
    let mut files = set(["action.npy", "is_terminal.npy", "meta.json", "reward.npy", "state.npy"]);
    let frames = episode["frames"].as_array().unwrap();
    let has_images = number(episode, "images_length") > 2 * number(episode, "num_frames");
    files.extend(has_images.then(|| "images".to_owned()));
    assert_eq!(tree.names(&top), files, "{place}");

    let meta: Json = serde_json::from_slice(&tree.read(&format!("{top}/meta.json"))).unwrap();
    let keys: Vec<&String> = meta.as_object().unwrap().keys().collect();
    let order = "position episode_id embodiment task fps success total_reward num_frames state_dim action_dim";
    assert_eq!(keys, order.split(' ').collect::<Vec<_>>());
    for key in ["position", "episode_id", "num_frames", "state_dim", "action_dim"] {
        assert_eq!(meta[key], episode[key], "{place}: {key}");
    }
    for key in ["embodiment", "task", "success"] {
        assert_eq!(meta[key], episode["meta"][key], "{place}: {key}");
    }
    for key in ["fps", "total_reward"] {
        let bits = episode["meta"][format!("{key}_bits")].as_str();
        let value = bits.map(|bits| f32::from_bits(u32::from_str_radix(bits, 16).unwrap()));
        let expected = value.filter(|value| value.is_finite()).map(f32::to_bits);
        assert_eq!(meta[key].as_f64().map(|value| (value as f32).to_bits()), expected, "{place}: {key}");
    }
    for (key, array) in episode["arrays"].as_object().unwrap() {
        let Some(dtype) = array["dtype"].as_str() else { continue };
        let descr = if key == "is_terminal" { "|b1" } else { dtype };
        let shape: Vec<u64> = array["shape"].as_array().unwrap().iter().filter_map(Json::as_u64).collect();
        let data = tree.array(&format!("{top}/{key}.npy"), descr, &shape);
        assert_eq!(sha256(&data), array["sha256"].as_str().unwrap(), "{place}: {key}");
    }
    if has_images {
        check_images(tree, &place, &format!("{top}/images"), frames, stored);
    }
}

fn check_images(tree: &Tree, place: &str, top: &str, frames: &[Json], stored: &[u8]) {
    let mut cameras: BTreeMap<&str, Vec<(usize, &Json)>> = BTreeMap::new();
    for (number, frame) in frames.iter().enumerate() {
        for record in frame.as_array().unwrap() {
            cameras.entry(record["camera"].as_str().unwrap()).or_default().push((number, record));
        }
    }
    let mut listed = BTreeSet::new();
    for (camera, records) in cameras {
        let folder = camera.replace('/', "%2F");
        listed.insert(folder.clone());
        let mut pictures = BTreeSet::new();
        let mut pixels = Vec::new();
        let mut shapes = BTreeSet::new();
        for (frame, record) in &records {
            let offset = number(record, "data_offset") as usize;
            let bytes = &stored[offset..offset + number(record, "data_len") as usize];
            let suffix = if record["kind"] == "jpeg" { "jpg" } else { "png" };
            let name = format!("{frame:03}.{suffix}");
            let shown = tree.read(&format!("{top}/{folder}/{name}"));
            let (w, h) = (number(record, "w") as u32, number(record, "h") as u32);
            let decoded = image::load_from_memory(&shown).unwrap();
            if record["kind"] == "raw" {
                assert_eq!((decoded.width(), decoded.height()), (w, h), "{place} {camera} {name}");
                assert!(decoded.as_bytes() == bytes, "{place} {camera} {name}: other pixels");
            } else {
                assert_eq!(shown, bytes, "{place} {camera} {name}");
            }
            shapes.insert((decoded.height(), decoded.width(), decoded.color().channel_count()));
            pixels.extend_from_slice(decoded.as_bytes());
            pictures.insert(name);
        }
        assert_eq!(tree.names(&format!("{top}/{folder}")), pictures, "{place} {camera}");
        if records.len() == frames.len() && shapes.len() == 1 {
            let &(h, w, c) = shapes.first().unwrap();
            let shape = [frames.len() as u64, h.into(), w.into(), c.into()];
            let data = tree.array(&format!("{top}/{folder}.npy"), "|u1", &shape);
            assert!(data == pixels, "{place} {camera}: another stack");
            listed.insert(format!("{folder}.npy"));
        }
    }
    assert_eq!(tree.names(top), listed, "{place}");
}
