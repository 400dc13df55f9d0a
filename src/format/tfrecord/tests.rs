//! Tests of framing and of Examples.

use super::{
    example::{ExampleError, Feature, ListKind, Part, parse},
    *,
};
use crate::source::Unlimited;

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let crc = |bytes: &[u8]| masked(CrcKind::Crc32c.of(bytes)).to_le_bytes();
    [&length[..], &crc(&length), data, &crc(data)].concat()
}

#[test]
fn records_are_found_until_a_header_fails() {
    let file = [record(b"first"), record(b""), record(&[7; 100_000]), record(b"last")].concat();
    let index = Index::read(&file, &Unlimited).unwrap();
    assert_eq!((index.count(), index.broken()), (4, None));
    let data: Vec<u64> = (0..4).map(|at| index.data(at).unwrap()).map(|data| data.end - data.start).collect();
    assert_eq!(data, [5, 0, 100_000, 4]);
    assert_eq!(index.data(4), None);
    let data = index.data(3).unwrap();
    assert_eq!(check(&file, &data, b"last").unwrap(), Ok(()));
    assert!(check(&file, &data, b"lost").unwrap().is_err());
    // If a file is cut anywhere, its whole records stay.
    for end in 0..60 {
        let index = Index::read(&file[..end].to_vec(), &Unlimited).unwrap();
        let (whole, is_whole) = if end < 21 {
            (0, end == 0)
        } else if end < 37 {
            (1, end == 21)
        } else {
            (2, end == 37)
        };
        assert_eq!((index.count(), index.broken().is_none()), (whole, is_whole), "{end}");
    }
    let mut wrong = file;
    wrong[21] ^= 1;
    let index = Index::read(&wrong, &Unlimited).unwrap();
    assert_eq!((index.count(), index.broken()), (1, Some("the checksum of the length at 21 is wrong")));
}

#[test]
fn a_length_of_2_to_the_63_is_refused() {
    let length = (1u64 << 63).to_le_bytes();
    let crc = masked(CrcKind::Crc32c.of(&length)).to_le_bytes();
    let file = [record(b"a"), [&length[..], &crc, &[0; 40]].concat()].concat();
    let index = Index::read(&file, &Unlimited).unwrap();
    assert_eq!(index.count(), 1);
    assert!(index.broken().unwrap().contains("9223372036854775808"));
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

fn entry(key: &str, feature: &[u8]) -> Vec<u8> {
    field(1, &[field(1, key.as_bytes()), field(2, feature)].concat())
}

fn features(record: &[u8]) -> Vec<Feature> {
    parse(record, &Unlimited).unwrap()
}

/// The rules of protobuf that are easily missed (`docs/formats/rlds.md` 2).
#[test]
fn lists_and_entries_merge_as_protobuf_says() {
    let packed = field(3, &field(1, &[1, 2]));
    let single = field(3, &[8, 3, 8, 4]);
    let bytes = field(1, &[field(1, b"x"), field(1, b"y")].concat());
    let floats = field(2, &[field(1, &1.5f32.to_le_bytes()), [&[13][..], &2.5f32.to_le_bytes()].concat()].concat());
    let map = [
        entry("ints", &[packed.clone(), single].concat()),
        entry("last kind", &[packed.clone(), bytes.clone()].concat()),
        entry("twice", &packed),
        entry("floats", &floats),
        entry("none", &[]),
        field(1, &field(1, b"no value")),
    ];
    // The map in two parts, and unknown fields.
    let record = [field(1, &map.concat()), field(1, &entry("twice", &bytes)), field(9, b"?"), vec![0x78, 5]].concat();
    let found = features(&record);
    let keys: Vec<&str> = found.iter().map(|feature| std::str::from_utf8(&feature.key).unwrap()).collect();
    assert_eq!(keys, ["floats", "ints", "last kind", "no value", "none", "twice"]);
    let part = Part { bytes: &record, start: 0 };
    let list = |key: &str| &found.iter().find(|feature| *feature.key == *key.as_bytes()).unwrap().list;
    assert_eq!(list("ints").integers(part).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(list("floats").floats(part).collect::<Vec<_>>(), [1.5, 2.5]);
    for key in ["last kind", "twice"] {
        assert_eq!(list(key).bytes(part).collect::<Vec<_>>(), [b"x", b"y"], "{key}");
    }
    assert_eq!((list("none").kind, list("none").count), (ListKind::None, 0));
    assert_eq!(list("no value").kind, ListKind::None);
}

#[test]
fn what_is_no_example_to_its_last_byte_is_refused() {
    let good = field(1, &entry("a", &field(2, &field(1, &[0; 8]))));
    assert_eq!(features(&good).len(), 1);
    assert_eq!(features(&[]).len(), 0);
    for end in 1..good.len() {
        assert!(matches!(parse(&good[..end], &Unlimited), Err(ExampleError::Damaged(_))), "{end}");
    }
    let wrong: [&[u8]; 7] = [
        // A group, its end, a wire type that does not exist, the field 0.
        &[0x0B],
        &[0x0C],
        &[0x0E],
        &[0x02, 0],
        // A number of eleven bytes; a length past the end; floats of five bytes.
        &[0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
        &[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
        &field(1, &entry("a", &field(2, &field(1, &[0; 5])))),
    ];
    for bytes in wrong {
        assert!(matches!(parse(bytes, &Unlimited), Err(ExampleError::Damaged(_))), "{bytes:?}");
    }
    // The largest numbers.
    let record = field(1, &entry("a", &field(3, &field(1, &varint(u64::MAX)))));
    let found = features(&record);
    assert_eq!(found[0].list.integers(Part { bytes: &record, start: 0 }).collect::<Vec<_>>(), [-1]);
}
