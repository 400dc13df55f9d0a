//! Formats that no file has but those of the tests: each is one thing that real formats need. A process that has added
//! them shows them as any other, and all suites and programs get them in this way.
#![allow(dead_code, reason = "each program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

pub(crate) mod forest;
pub(crate) mod grids;
pub(crate) mod plain;
#[path = "../../examples/format.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "its `main` is not called here")]
pub(crate) mod sensors;
pub(crate) mod shelf;
pub(crate) mod spread;

use std::{fs, path::Path};

use shardfs::tree::{Format, add_format};

/// All toy formats.
pub(crate) static TOYS: [&Format; 7] =
    [&plain::TOY, &plain::NAMED, &grids::GRIDS, &shelf::SHELF, &forest::FOREST, &sensors::SENSORS, &spread::SPREAD];

/// From now on this process knows them.
pub(crate) fn add() {
    TOYS.into_iter().for_each(add_format);
}

/// A file of [`sensors`].
pub(crate) fn sensors(sensors: &[(&str, &[f32])]) -> Vec<u8> {
    let mut file = b"SENS\x01".to_vec();
    file.extend((sensors.len() as u32).to_le_bytes());
    for (name, samples) in sensors {
        file.push(name.len() as u8);
        file.extend(name.as_bytes());
        file.extend((samples.len() as u32).to_le_bytes());
        file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    }
    file
}

/// Containers of each toy format, by path.
pub(crate) fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("bytes.toy", b"TOYS\x01abc".to_vec()),
        ("empty.toy", b"TOYS\x01".to_vec()),
        ("newer.toy", b"TOYS\x02abc".to_vec()),
        ("bytes.named", b"1234567890".to_vec()),
        ("chunks.grids", grids::file(false).0),
        ("damaged/chunks.grids", grids::file(true).0),
        ("a.shelf/list.txt", b"shelf\none\ntwo\n".to_vec()),
        ("a.shelf/one.bin", b"first".to_vec()),
        ("a.shelf/two.bin", b"second".to_vec()),
        ("deep/b/meta/list.txt", b"shelf\nonly\n".to_vec()),
        ("deep/b/only.bin", b"".to_vec()),
        ("groups.forest", forest::file(300, 2)),
        ("group.forest", forest::file(1, 5)),
        ("none.forest", forest::file(0, 1)),
        ("imu.sens", sensors(&[("imu/x", &[1.0, 2.0, 6.0]), ("imu/y", &[-1.0]), ("heat", &[20.5, 21.5])])),
        ("same.sens", sensors(&[("a", &[1.0]), ("a", &[2.0]), ("a/b", &[]), ("", &[3.0])])),
        ("none.sens", sensors(&[])),
        ("near.sprd", spread::file(3, 100, 400)),
        ("far.sprd", spread::file(20, 1000, 70_000)),
    ]
}

/// Writes them into a folder. What is there already is left as it is.
pub(crate) fn write(folder: &Path) -> std::io::Result<()> {
    for (name, bytes) in files() {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|known| known == bytes) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, bytes)?;
    }
    Ok(())
}
