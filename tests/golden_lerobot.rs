//! Golden data sets of LeRobot through the library, and thousands of damaged ones. Frames of videos are compared through a
//! mount (`tests/python/test_golden_lerobot.py`), because decoders need a program that starts them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

#[path = "common/folder.rs"]
mod folder;

use std::{collections::BTreeMap, fs, sync::Arc};

use common::{Random, golden};
use folder::Folder;
use serde_json::Value;
use sha2::{Digest, Sha256};
use shardfs::tree::FORMATS;

fn format() -> &'static shardfs::tree::Format {
    FORMATS.into_iter().find(|format| format.name == "lerobot").unwrap()
}

fn expected() -> Value {
    serde_json::from_slice(&fs::read(golden("lerobot").join("expected.json")).unwrap()).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn data_sets_have_the_values_that_were_written() {
    let (mut compared, mut refused) = (0, 0);
    for (name, set) in expected()["files"].as_object().unwrap() {
        let opened = Folder::read(&golden("lerobot").join(name)).open(format());
        if set["claim"] == false {
            assert!(opened.is_none(), "{name}");
            refused += 1;
            continue;
        }
        let opened = opened.unwrap();
        let files: BTreeMap<_, _> = opened.walk().into_iter().map(|file| (opened.path(file.node), file)).collect();
        for (path, entry) in set["tree"].as_object().unwrap() {
            let (Some(file), Some(sum)) = (files.get(path), entry["sha256"].as_str()) else { continue };
            let bytes = opened.content(file);
            let skip = match entry["npy"].as_str() {
                Some(_) => 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])),
                None => 0,
            };
            assert_eq!(sha256(&bytes[skip..]), sum, "{name}/{path}");
            compared += 1;
        }
    }
    assert!(compared > 250 && refused == 6, "{compared}, {refused}");
}

#[test]
fn damaged_data_sets_give_values_or_errors() {
    let (mut opened, mut read) = (0, 0);
    for name in ["v30_types", "v30_images", "v20_images", "v21_av1", "v30_many_files"] {
        let folder = Folder::read(&golden("lerobot").join(name));
        for (number, path) in folder.0.keys().enumerate() {
            for round in 0..10 {
                let mut random = Random(20_260_401 ^ round << 32 ^ (number as u64) << 16 ^ name.len() as u64);
                let mut bytes = (*folder.0[path]).clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(bytes.len().max(1) as u64) as usize;
                    match random.below(4) {
                        0 => bytes.truncate(at),
                        1 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
                        2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.below(256) as u8),
                        _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
                    }
                }
                let mut damaged = folder.clone();
                match random.below(12) {
                    0 => drop(damaged.0.remove(path)),
                    _ => drop(damaged.0.insert(path.clone(), Arc::new(bytes))),
                }
                let Some(container) = damaged.open(format()) else { continue };
                opened += 1;
                for file in container.walk() {
                    read += container.read(&file);
                }
                let _ = container.tree.description(&container.reader);
                drop(container.tree.notices().map(|notices| notices.drain()));
            }
        }
    }
    assert!(opened > 200 && read > 10_000, "{opened}, {read}");
}
