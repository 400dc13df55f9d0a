//! The library as a program that depends on it has it: through what the crate shows, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{collections::BTreeMap, error::Error as _, fs, io};

use common::kastore;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::{DType, EntryKind, ErrorKind, Verify, Volume};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every array of the golden stores, against what kastore's own reader found in them.
#[test]
fn arrays_with_their_types_and_shapes() {
    let folder = common::golden("kastore");
    let expected: Json = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let volume = Volume::options().cache_size(1 << 20).verify(Verify::Strict).open(&folder).unwrap();
    let mut checked = 0;
    for (path, file) in expected["files"].as_object().unwrap() {
        let Some([store]) = file["stores"].as_array().map(Vec::as_slice) else { continue };
        let container = volume.get(path).unwrap();
        assert_eq!(container.kind(), EntryKind::Folder);
        for item in store["items"].as_array().unwrap() {
            // What the mapping of names leaves alone.
            let Some(key) = item["key"].as_str().filter(|key| is_plain(key)) else { continue };
            let entry = container.get(format!("{key}.npy")).unwrap();
            let array = entry.array().unwrap();
            assert_eq!(array.dtype().descr(), item["dtype"], "{path} {key}");
            assert_eq!(array.shape(), [item["count"].as_u64().unwrap()], "{path} {key}");
            assert_eq!(sha256(array.data()), item["sha256"], "{path} {key}");
            assert_eq!(entry.array_type().unwrap(), Some((array.dtype(), array.shape().to_vec())));
            checked += 1;
        }
    }
    assert!(checked > 1000, "only {checked} arrays");
}

fn is_plain(key: &str) -> bool {
    key.split('/').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

#[test]
fn values_are_numbers_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = [i64::MIN, -1, 0, 7, i64::MAX];
    fs::write(folder.path().join("x"), kastore::store(&[("a", &numbers), ("none", &[])])).unwrap();
    let volume = Volume::open(folder.path().join("x")).unwrap();
    let array = volume.get("a.npy").unwrap().array().unwrap();
    assert_eq!((array.dtype(), array.len(), array.is_empty()), (DType::I64, 5, false));
    assert_eq!(array.values::<i64>().unwrap(), numbers);
    assert_eq!(array.values::<f64>().unwrap_err().kind(), ErrorKind::InvalidInput);
    let none = volume.get("none.npy").unwrap().array().unwrap();
    assert!(none.is_empty() && none.values::<i64>().unwrap().is_empty());
}

/// Ranges, listings, ordinary files, links.
#[test]
fn files_and_folders() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("sub/plain"), b"ordinary").unwrap();
    std::os::unix::fs::symlink("sub/plain", folder.path().join("link")).unwrap();
    let many: Vec<i64> = (0..1_000_000).collect();
    fs::write(folder.path().join("many"), kastore::store(&[("deep/a", &many), ("z", &[1])])).unwrap();
    let volume = Volume::open(folder.path()).unwrap();

    let found: BTreeMap<String, (EntryKind, u64)> = volume
        .walk()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path().to_str().unwrap().to_owned(), (entry.kind(), entry.size())))
        .collect();
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected =
        ["link", "many", "many/container.json", "many/deep", "many/deep/a.npy", "many/z.npy", "sub", "sub/plain"];
    assert_eq!(names, expected);
    assert_eq!(found["sub/plain"], (EntryKind::File, 8));
    assert_eq!(found["link"].0, EntryKind::Link);
    assert_eq!(volume.get("link").unwrap().link_target().unwrap().to_str(), Some("sub/plain"));

    let plain = volume.get("sub/plain").unwrap();
    assert_eq!((plain.name().to_str(), plain.read().unwrap()), (Some("plain"), b"ordinary".to_vec()));
    let a = volume.get("many").unwrap().get("deep/./a.npy").unwrap();
    let whole = kastore::npy(&many);
    assert_eq!(a.read().unwrap(), whole);
    for (from, length) in [(0, 10), (100, 5_000_000), (whole.len() - 5, 100), (whole.len() + 1, 1)] {
        let expected = &whole[from.min(whole.len())..(from + length).min(whole.len())];
        assert_eq!(a.read_range(from as u64, length as u64).unwrap(), expected, "{from}+{length}");
    }
    let description: Json =
        serde_json::from_slice(&volume.get("many/container.json").unwrap().read().unwrap()).unwrap();
    assert_eq!(description["format"], "kastore");
}

#[test]
fn errors_have_a_kind_and_a_cause() {
    let kind = |path: &str| Volume::open(path).unwrap_err().kind();
    assert_eq!(kind("fixtures/no/such"), ErrorKind::NotFound);
    assert_eq!(kind("fixtures/notes.txt"), ErrorKind::NotAContainer);
    assert_eq!(kind("fixtures/damaged/cut_short.trees"), ErrorKind::NotAContainer);

    let volume = Volume::open("fixtures").unwrap();
    let kind = |path: &str| volume.get(path).unwrap_err().kind();
    assert_eq!(kind("nope"), ErrorKind::NotFound);
    assert_eq!(kind("ep_001.wshard/nope.npy"), ErrorKind::NotFound);
    assert_eq!(kind("ep_001.wshard/../notes.txt"), ErrorKind::InvalidInput);
    assert_eq!(kind("/etc/passwd"), ErrorKind::InvalidInput);
    assert_eq!(volume.get("notes.txt").unwrap().array().unwrap_err().kind(), ErrorKind::NotAnArray);
    assert_eq!(volume.get("ep_001.wshard").unwrap().read_range(0, 1).unwrap_err().kind(), ErrorKind::IsAFolder);
    assert!(volume.problems().is_empty());

    let error = volume.get("damaged/bad_crc.wshard/signal/joint_pos.npy").unwrap().array().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("damaged/bad_crc.wshard"), "{error}");
    assert!(error.source().unwrap().to_string().contains("checksum"), "{error}");
    assert_eq!(volume.problems().len(), 1);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);

    // A container that is replaced is another one.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, kastore::store(&[("a", &[1, 2, 3])])).unwrap();
    let volume = Volume::open(folder.path()).unwrap();
    let entry = volume.get("x/a.npy").unwrap();
    fs::write(&path, kastore::store(&[("a", &[4, 5, 6])])).unwrap();
    assert_eq!(entry.read().unwrap_err().kind(), ErrorKind::Changed);
    assert_eq!(volume.get("x/a.npy").unwrap().array().unwrap().values::<i64>().unwrap(), [4, 5, 6]);
}

/// More names than one step of a listing takes.
#[test]
fn listings_of_many() {
    let keys: Vec<String> = (0..5000).map(|number| format!("k{number:04}")).collect();
    let arrays: Vec<(&str, &[i64])> = keys.iter().map(|key| (key.as_str(), &[][..])).collect();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x"), kastore::store(&arrays)).unwrap();
    let volume = Volume::open(folder.path().join("x")).unwrap();
    let names: Vec<_> = volume.root().unwrap().entries().map(|entry| entry.unwrap().name().to_owned()).collect();
    assert_eq!(names.len(), 5001);
    assert!(keys.iter().all(|key| names.contains(&format!("{key}.npy").into())));
}
