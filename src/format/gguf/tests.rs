use std::{fs, path::PathBuf};

use serde_json::Value as Json;

use super::*;

/// A file under construction, little-endian.
#[derive(Default)]
struct File(Vec<u8>);

impl File {
    fn new(version: u32, tensors: u64, pairs: u64) -> Self {
        Self([&MAGIC[..], &version.to_le_bytes(), &tensors.to_le_bytes(), &pairs.to_le_bytes()].concat())
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn u32(self, number: u32) -> Self {
        self.put(&number.to_le_bytes())
    }

    fn u64(self, number: u64) -> Self {
        self.put(&number.to_le_bytes())
    }

    fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).put(text)
    }

    fn tensor(self, name: &[u8], shape: &[u64], code: u32, offset: u64) -> Self {
        let file = self.text(name).u32(shape.len() as u32);
        shape.iter().fold(file, |file, axis| file.u64(*axis)).u32(code).u64(offset)
    }

    fn data(mut self, bytes: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + bytes, 1);
        self
    }

    fn class(self) -> Option<Class> {
        match parse(&self.0) {
            Ok(_) => None,
            Err(FormatError::Refused { class, .. }) => Some(class),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn golden_files_have_their_tensors_or_their_class() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/gguf"));
    let expected: Json = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let files = expected["files"].as_object().unwrap();
    assert!(files.len() > 20);
    for (name, expected) in files {
        let parsed = parse(&fs::read(folder.join(name)).unwrap());
        if expected["expect"] == "ordinary" {
            let Err(FormatError::Refused { class, .. }) = parsed else { panic!("{name}: {parsed:?}") };
            assert_eq!(class.to_string(), expected["class"].as_str().unwrap(), "{name}");
            continue;
        }
        let found = parsed.unwrap();
        for item in expected["items"].as_array().unwrap() {
            let wanted = item["name"].as_str().unwrap();
            let tensor = found.iter().find(|tensor| tensor.name == wanted.as_bytes()).unwrap();
            assert_eq!(item["shape"], serde_json::json!(tensor.shape), "{name} {wanted}");
        }
    }
}

#[test]
fn headers() {
    assert_eq!(File::default().put(b"GGU").class(), Some(Class::BadMagic));
    assert_eq!(File::default().put(b"GGUF\x03\0\0\0").class(), Some(Class::Truncated));
    for version in [0, 1, 4, 0x0100_0000] {
        assert_eq!(File::new(version, 0, 0).class(), Some(Class::BadVersion), "{version:#x}");
    }
    for version in [2, 3, 0x0200_0000, 0x0300_0000] {
        assert_eq!(File::new(version, 0, 0).class(), None, "{version:#x}");
    }
    for count in [1, 1 << 40, 1 << 63, u64::MAX] {
        assert_eq!(File::new(3, count, 0).class(), Some(Class::Truncated));
        assert_eq!(File::new(3, 0, count).class(), Some(Class::Truncated));
        assert_eq!(File::new(3, count, count).class(), Some(Class::Truncated));
    }
    assert_eq!(File::new(3, 0, 1_000_001).put(&vec![0; 14_000_000]).class(), Some(Class::TooMany));
}

#[test]
fn pairs() {
    let pair = || File::new(3, 0, 1);
    assert_eq!(pair().text(b"").u32(4).u32(0).put(&[0; 9]).class(), Some(Class::BadKey));
    assert_eq!(pair().text(b"\xff").u32(4).u32(0).put(&[0; 9]).class(), Some(Class::BadKey));
    assert_eq!(pair().text(&[b'k'; 65_536]).u32(4).u32(0).class(), Some(Class::TooMany));
    assert_eq!(pair().text(&[b'k'; 65_535]).u32(4).u32(0).class(), None);
    assert_eq!(pair().text(b"key").u32(13).u64(0).class(), Some(Class::BadType));
    assert_eq!(pair().text(b"key").u32(9).u32(13).u64(0).class(), Some(Class::BadType));
    assert_eq!(pair().text(b"key").u32(9).u32(9).u64(0).class(), Some(Class::NestedArray));
    for count in [2, 1 << 61, u64::MAX] {
        assert_eq!(pair().text(b"key").u32(9).u32(4).u64(count).u32(1).class(), Some(Class::Truncated));
        assert_eq!(pair().text(b"key").u32(9).u32(8).u64(count).text(b"").class(), Some(Class::Truncated));
    }
    assert_eq!(pair().u64(u64::MAX - 3).u32(8).u64(0).class(), Some(Class::Truncated));
    assert_eq!(pair().text(b"key").u32(8).u64(u64::MAX).class(), Some(Class::Truncated));
    let twice = File::new(3, 0, 2).text(b"key").u32(4).u32(0).text(b"key").u32(4).u32(0);
    assert_eq!(twice.class(), Some(Class::Duplicate));
    let kept = pair().text(b"key").u32(9).u32(8).u64(2).text(b"a").text(&[7; 70_000]);
    let found = parse(&kept.0).unwrap();
    let Some(Value::Texts(2, place)) = found.value("key") else { panic!("{found:?}") };
    let (mut lengths, asked) = (Vec::new(), std::cell::RefCell::new(Vec::new()));
    let memory = |length| {
        asked.borrow_mut().push(length);
        Ok(())
    };
    let each = |text: &[u8]| {
        lengths.push(text.len());
        Ok::<_, FormatError>(())
    };
    each_text(&kept.0, false, (2, place), memory, each).unwrap();
    assert_eq!(lengths, [1, 70_000]);
    // Memory for the long text was asked for before it was read.
    assert_eq!(asked.into_inner(), [70_000]);
}

#[test]
fn alignments() {
    let file = |code: u32, value: u32| File::new(3, 0, 1).text(b"general.alignment").u32(code).u32(value).class();
    assert_eq!(file(4, 64), None);
    assert_eq!(file(4, 1 << 31), None);
    assert_eq!(file(4, 1), None);
    for (code, value) in [(4, 0), (4, 24), (5, 32), (6, 32)] {
        assert_eq!(file(code, value), Some(Class::BadAlignment), "{code} {value}");
    }
}

#[test]
fn tensors() {
    let one = |shape: &[u64], code: u32, offset: u64| File::new(3, 1, 0).tensor(b"t", shape, code, offset);
    assert_eq!(one(&[2, 3], 0, 0).data(24).class(), None);
    assert_eq!(one(&[], 0, 0).data(4).class(), None);
    assert_eq!(one(&[0, 1 << 40], 0, 32 << 40).class(), None);
    assert_eq!(one(&[2, 3], 0, 0).data(23).class(), Some(Class::Truncated));
    assert_eq!(one(&[2], 0, u64::MAX - 31).data(64).class(), Some(Class::Truncated));
    assert_eq!(one(&[2], 0, 1).data(64).class(), Some(Class::BadOffset));
    assert_eq!(one(&[1, 1, 1, 1, 1], 0, 0).data(64).class(), Some(Class::BadShape));
    assert_eq!(one(&[33], 2, 0).data(64).class(), Some(Class::BadShape));
    for shape in [&[1 << 63, 0][..], &[1 << 32, 1 << 32], &[u64::MAX, u64::MAX, 0], &[1 << 61, 0]] {
        assert_eq!(one(shape, 0, 0).data(64).class(), Some(Class::BadShape), "{shape:?}");
    }
    // Its size is not known, so it may be anywhere.
    assert_eq!(one(&[32], 99, 1 << 40).class(), None);
    assert_eq!(one(&[32], 99, 7).class(), Some(Class::BadOffset));
    let two = |name: &[u8], offset: u64| {
        File::new(3, 2, 0).tensor(b"t", &[16], 0, 0).tensor(name, &[8], 0, offset).data(128).class()
    };
    assert_eq!(two(b"t", 64), Some(Class::Duplicate));
    assert_eq!(two(b"u", 32), Some(Class::BadOffset));
    assert_eq!(two(b"u", 64), None);
    assert_eq!(two(b"u", 96), None);
    let found = parse(&one(&[64, 12], 0, 0).data(64 * 12 * 4).0).unwrap();
    assert_eq!(found.tensor(0).unwrap().shape, [12, 64]);
}
