//! The library as a program that depends on it has it: through what the crate shows, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    collections::BTreeMap,
    error::Error as _,
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
};

use common::kastore;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use shardfs::{Cache, DType, ElementType, EntryKind, ErrorKind, Verify, Volume};

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
            assert_eq!(array.dtype().descr_json(), item["dtype"], "{path} {key}");
            assert_eq!(array.shape(), [item["count"].as_u64().unwrap()], "{path} {key}");
            assert_eq!(sha256(array.data()), item["sha256"], "{path} {key}");
            assert_eq!(entry.array_type().unwrap(), Some((array.dtype().clone(), array.shape().to_vec())));
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
    assert_eq!((array.dtype(), array.len(), array.is_empty()), (&DType::I64.into(), 5, false));
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
fn errors_have_a_kind_and_say_the_cause_once() {
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
    // The text says it, so a program that prints the causes as well does not say it twice.
    assert!(error.to_string().contains("checksum") && error.source().is_none(), "{error}");
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
/// What is read to a place of one's own is what is read through the cache, of every file and any range of it.
#[test]
fn reading_into_memory_of_ones_own() {
    let cache = Cache::new(64 << 20, Verify::Lazy);
    let volume = Volume::options().cache(&cache).open("fixtures").unwrap();
    let other = Volume::options().cache(&cache).open("fixtures").unwrap();
    let (mut good, mut bad) = (0, 0);
    for entry in volume.walk() {
        let entry = entry.unwrap();
        if !entry.is_file() {
            continue;
        }
        let mut whole = vec![7; usize::try_from(entry.size()).unwrap()];
        let read = entry.read_into(0, &mut whole);
        let Ok(expected) = other.get(entry.path()).unwrap().read() else {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Damaged, "{entry:?}");
            bad += 1;
            continue;
        };
        read.unwrap();
        assert!(whole == expected, "{entry:?}");
        let (from, to) = (whole.len() / 3, whole.len() - whole.len() / 4);
        let mut part = vec![7; to - from];
        entry.read_into(from as u64, &mut part).unwrap();
        assert!(part == expected[from..to], "a part of {entry:?}");
        let error = entry.read_into(entry.size(), &mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        good += 1;
    }
    // Of the damaged examples, one at least of each format: the array, the table that shows it too.
    assert!(good > 150 && bad >= 3, "{good} files, {bad} damaged");
    assert_eq!(volume.root().unwrap().read_into(0, &mut [0]).unwrap_err().kind(), ErrorKind::IsAFolder);
}

/// Blocks that are larger than what is decoded in one go.
#[test]
fn reading_large_blocks_into_memory_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: Vec<i64> = (0..9 << 20).map(|number: i64| number.wrapping_mul(0x9E37_79B9)).collect();
    fs::write(folder.path().join("x"), kastore::store(&[("a", &numbers)])).unwrap();
    let entry = Volume::open(folder.path().join("x")).unwrap().get("a.npy").unwrap();
    let mut bytes = vec![0; numbers.len() * 8];
    entry.read_into(entry.size() - bytes.len() as u64, &mut bytes).unwrap();
    assert!(bytes.chunks_exact(8).zip(&numbers).all(|(bytes, number)| bytes == number.to_le_bytes()));
}

#[test]
fn what_is_known_of_items_and_containers() {
    let volume = Volume::open("fixtures").unwrap();
    let joints = volume.get("ep_001.wshard/signal/joint_pos.npy").unwrap();
    let info = joints.item_info().unwrap().unwrap();
    assert_eq!((info.dtype, info.shape, info.codec), (Some(DType::F32.into()), Some(vec![24, 7]), Some("zstd".into())));
    assert_eq!((joints.format().unwrap(), joints.is_container().unwrap()), (Some("wshard"), false));
    let episode = volume.get("ep_001.wshard").unwrap();
    assert_eq!((episode.format().unwrap(), episode.is_container().unwrap()), (Some("wshard"), true));
    assert_eq!((volume.root().unwrap().format().unwrap(), volume.root().unwrap().state().unwrap()), (None, None));
    let json = episode.get("container.json").unwrap().read().unwrap();
    assert_eq!((joints.description().unwrap(), episode.description().unwrap()), (Some(json.clone()), Some(json)));
    assert_eq!(volume.root().unwrap().description().unwrap(), None);

    // Damage says where.
    let error = volume.get("damaged/bad_crc.wshard/signal/joint_pos.npy").unwrap().read().unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.container.to_str(), Some("damaged/bad_crc.wshard"));
    assert_eq!((problem.path.as_str(), problem.block.as_deref()), ("signal/joint_pos.npy", Some("signal/joint_pos")));
    assert_eq!(problem.offset, Some(2656));
}

/// The state is another one when the file was written to, also for what was looked up before.
#[test]
fn states_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, kastore::store(&[("a", &[1, 2, 3])])).unwrap();
    let volume = Volume::open(folder.path()).unwrap();
    let held = volume.get("x/a.npy").unwrap();
    let state = held.state().unwrap().unwrap();
    assert_eq!(volume.get("x").unwrap().state().unwrap().as_ref(), Some(&state));
    fs::write(&path, kastore::store(&[("a", &[1, 2, 3, 4])])).unwrap();
    assert_eq!(held.read_into(0, &mut [0; 8]).unwrap_err().kind(), ErrorKind::Changed);
    assert_ne!(volume.get("x/a.npy").unwrap().state().unwrap().unwrap(), state);
    fs::write(&path, "plain").unwrap();
    assert!(volume.get("x").unwrap().state().unwrap().is_some_and(|now| now != state));
}

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

/// A URL is opened like a path, a folder as well as a container in it, and shows the same.
#[cfg(feature = "remote")]
#[test]
fn urls_are_opened_like_paths() {
    let folder = common::golden("kastore").join("generated");
    let bucket = common::bucket::Bucket::of(&folder);
    let contents = |volume: &Volume| -> BTreeMap<_, _> {
        let files = volume.walk().map(|entry| entry.unwrap()).filter(|entry| entry.kind() == EntryKind::File);
        files.map(|file| (file.path().to_owned(), file.read().unwrap())).collect()
    };
    let (here, there) = (Volume::open(&folder).unwrap(), Volume::open(bucket.endpoint()).unwrap());
    let (here, there) = (contents(&here), contents(&there));
    assert!(here.len() > 100 && here.keys().eq(there.keys()), "{} and {} files", here.len(), there.len());
    assert!(here == there);
    let name = "msprime_two_populations.trees";
    let (here, there) =
        (Volume::open(folder.join(name)).unwrap(), Volume::open(format!("{}/{name}", bucket.endpoint())).unwrap());
    assert!(contents(&here) == contents(&there));
    let array = |volume: &Volume| volume.get("nodes/time.npy").unwrap().array().unwrap().data().to_vec();
    assert_eq!(array(&here), array(&there));
    let gone = Volume::open(format!("{}/none", bucket.endpoint())).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[test]
fn files_are_streams() {
    let volume = Volume::open(common::golden("kastore").join("../../../fixtures")).unwrap();
    let entry = volume.get("ep_001.wshard/signal/joint_pos.npy").unwrap();
    let whole = entry.read().unwrap();
    let mut reader = entry.reader();
    let mut read = Vec::new();
    assert_eq!(reader.read_to_end(&mut read).unwrap(), whole.len());
    assert_eq!(read, whole);
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    for (to, place) in
        [(SeekFrom::Start(5), 5), (SeekFrom::Current(-2), 3), (SeekFrom::End(-4), whole.len() as u64 - 4)]
    {
        assert_eq!(reader.seek(to).unwrap(), place);
        let mut four = [0; 4];
        reader.read_exact(&mut four).unwrap();
        assert_eq!(four, whole[place as usize..place as usize + 4]);
        reader.seek(SeekFrom::Start(place)).unwrap();
    }
    assert_eq!(reader.seek(SeekFrom::Current(i64::MIN)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    reader.seek(SeekFrom::Start(u64::MAX)).unwrap();
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    // Damage is an error with its place.
    let mut damaged = volume.get("damaged/bad_crc.wshard/signal/joint_pos.npy").unwrap().reader();
    let error = damaged.read_to_end(&mut Vec::new()).unwrap_err();
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<shardfs::Error>()).unwrap();
    assert_eq!(inner.kind(), ErrorKind::Damaged);
}

#[test]
fn rows_of_an_array() {
    let volume = Volume::open(common::golden("kastore").join("../../../fixtures")).unwrap();
    let array = volume.get("ep_001.wshard/signal/joint_pos.npy").unwrap().array().unwrap();
    assert_eq!(array.shape(), [24, 7]);
    let some = array.rows(3..5).unwrap();
    assert_eq!((some.shape(), some.dtype()), (&[2, 7][..], array.dtype()));
    assert_eq!(some.values::<f32>().unwrap(), array.values::<f32>().unwrap()[21..35]);
    assert_eq!(array.rows(0..24).unwrap(), array);
    assert_eq!(array.rows(24..24).unwrap().shape(), [0, 7]);
    #[expect(clippy::reversed_empty_ranges, reason = "a wrong one")]
    for wrong in [0..25, 5..4, u64::MAX - 1..u64::MAX] {
        assert_eq!(array.rows(wrong).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// Texts of one size are an array in the `.npy` file only; their other files have a type and a shape, too.
#[test]
fn files_of_texts_are_no_arrays() {
    let volume = Volume::open(common::golden("zarr").join("v2_text.zarr")).unwrap();
    let text = ElementType::Plain(DType::of_descr("<U3").unwrap().0);
    for name in ["U.jsonl", "U_one.txt"] {
        let texts = volume.get(name).unwrap();
        assert_eq!(texts.item_info().unwrap().unwrap().dtype, Some(text.clone()), "{name}");
        assert_eq!(texts.array_type().unwrap(), None, "{name}");
        assert_eq!(texts.array().unwrap_err().kind(), ErrorKind::NotAnArray, "{name}");
    }
    assert_eq!(volume.get("U.npy").unwrap().array().unwrap().dtype(), &text);
}
