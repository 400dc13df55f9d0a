//! `examples/format.rs` as a program of one's own would run it: a format that `Volume` is given beside the others.

use std::fs;

use shardfs::Volume;

use super::toys::sensors as format;

fn sensor(name: &[u8], samples: &[f32]) -> Vec<u8> {
    let samples: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    [&[name.len() as u8], name, &(samples.len() as u32 / 4).to_le_bytes(), &samples].concat()
}

fn file(count: u32, sensors: &[Vec<u8>]) -> Vec<u8> {
    [b"SENS\x01", &count.to_le_bytes()[..], &sensors.concat()].concat()
}

#[test]
fn a_program_shows_a_format_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let sensors = [sensor(b"imu/x", &[1.0, 2.0, 6.0]), sensor(b"imu/y", &[-1.0]), sensor(b"heat", &[20.5, 21.5])];
    let whole = file(3, &sensors);
    fs::write(folder.path().join("a.sens"), &whole).unwrap();
    fs::write(folder.path().join("text"), b"SENSE of a file").unwrap();
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/arrays.kas");
    fs::copy(demo, folder.path().join("b.kas")).unwrap();
    let mut shown = Vec::new();
    format::show(&folder.path().join("a.sens"), &mut shown).unwrap();
    let lines = ["heat.npy [2] mean 21", "imu/x.npy [3] mean 3", "imu/y.npy [1] mean -1"];
    let mut said: Vec<_> = String::from_utf8(shown).unwrap().lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, lines);

    let volume = Volume::open(folder.path()).unwrap();
    let text = |path: &str| String::from_utf8(volume.get(path).unwrap().read().unwrap()).unwrap();
    let described: serde_json::Value = serde_json::from_str(&text("a.sens/container.json")).unwrap();
    assert_eq!(described["format"], "sensors");
    assert_eq!(described["items"][0]["path"], "imu/x.npy");
    assert_eq!(described["items"][2]["shape"], serde_json::json!([2]));
    // Those of the crate are shown beside it, and a list can name it.
    assert!(volume.get("b.kas/container.json").is_ok());
    let chosen = |list: &str| Volume::options().formats(list).unwrap().open(folder.path()).unwrap();
    assert!(chosen("sensors").get("a.sens/container.json").is_ok());
    assert!(chosen("kastore").get("a.sens/container.json").is_err());
    assert!(chosen("-sensors").get("a.sens/container.json").is_err());
    // A damaged one is an ordinary file with the reason.
    fs::write(folder.path().join("cut.sens"), &whole[..whole.len() - 3]).unwrap();
    fs::write(folder.path().join("more.sens"), file(u32::MAX, &sensors)).unwrap();
    fs::write(folder.path().join("newer.sens"), b"SENS\x02____").unwrap();
    let read = |name: &str| volume.get(name).unwrap().kind();
    assert_eq!(read("newer.sens"), shardfs::EntryKind::File);
    for name in ["cut.sens", "more.sens"] {
        let error = volume.get(format!("{name}/container.json")).unwrap_err();
        assert!(error.to_string().contains("the file ends before byte"), "{error}");
    }
}
