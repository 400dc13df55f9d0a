//! Hand-made shards: one rule each.

use super::*;
use crate::{
    codec::Codec,
    format::{Class, DType},
};

/// A block for [`build`].
#[derive(Default, Clone)]
struct Item {
    name: Vec<u8>,
    stored: Vec<u8>,
    size: Option<u64>,
    flags: u16,
    content_type: u16,
    crc: u32,
}

fn item(name: &str, stored: impl Into<Vec<u8>>) -> Item {
    Item { name: name.into(), stored: stored.into(), ..Item::default() }
}

/// A file of this role, blocks one after the other, no alignment.
fn build(role: u8, items: &[Item]) -> Vec<u8> {
    let strings = 64 + 48 * items.len() as u64;
    let data = strings + items.iter().map(|i| i.name.len() as u64).sum::<u64>();
    let total = data + items.iter().map(|i| i.stored.len() as u64).sum::<u64>();
    let mut file = b"SHRD\x02".to_vec();
    file.extend([role, 0, 0, 0, 0, 48, 0]);
    file.extend((items.len() as u32).to_le_bytes());
    for field in [strings, data, 0, total, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    let (mut name, mut offset) = (0u32, data);
    for item in items {
        file.extend([0; 8]);
        file.extend(name.to_le_bytes());
        file.extend((item.name.len() as u16).to_le_bytes());
        file.extend(item.flags.to_le_bytes());
        let length = item.stored.len() as u64;
        for field in [offset, length, item.size.unwrap_or(length)] {
            file.extend(field.to_le_bytes());
        }
        file.extend(item.crc.to_le_bytes());
        file.extend(item.content_type.to_le_bytes());
        file.extend([0; 2]);
        name += item.name.len() as u32;
        offset += length;
    }
    items.iter().for_each(|i| file.extend(&i.name));
    items.iter().for_each(|i| file.extend(&i.stored));
    file
}

/// An episode of `steps` steps with these channels.
fn episode(steps: u64, channels: &str, items: &[Item]) -> Shard {
    let mut all = vec![
        item("meta/wshard", "{}"),
        item("meta/episode", format!("{{\"length_T\":{steps}}}")),
        item("meta/channels", format!("{{\"channels\":[{channels}]}}")),
    ];
    all.extend_from_slice(items);
    parse(&build(5, &all)).unwrap()
}

fn entry<'s>(shard: &'s Shard, name: &str) -> &'s Entry {
    shard.entries.iter().find(|e| *e.name == *name.as_bytes() && e.visible).unwrap()
}

/// dtype, shape and whether it is a guess; `None` for what is no array.
fn array_of(shard: &Shard, name: &str) -> Option<(DType, Vec<u64>, bool)> {
    match &entry(shard, name).value {
        Value::Array { dtype, shape, inferred, .. } => Some((*dtype, shape.clone(), *inferred)),
        _ => None,
    }
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn container_rules() {
    let good = build(5, &[item("a", "1234")]);
    assert!(probe(&good, true).is_ok());
    let cases: [(usize, &[u8], Class); 9] = [
        (0, b"\0\0\0\0", Class::BadMagic),
        (4, &[1], Class::VersionTooOld),
        (4, &[3], Class::VersionTooNew),
        (10, &[49], Class::BadFormat),
        (12, &[0, 0, 0, 1], Class::BadFormat),
        (12, &[2], Class::Truncated),
        (16, &[111], Class::BadFormat),
        (16, &[114], Class::BadFormat),
        (24, &[255, 1], Class::Truncated),
    ];
    for (at, bytes, expected) in cases {
        let mut bad = good.clone();
        put(&mut bad, at, bytes);
        match parse(&bad) {
            Err(FormatError::Refused { class, .. }) => assert_eq!(class, expected, "{at} {bytes:?}"),
            other => panic!("{at} {bytes:?}: {other:?}"),
        }
    }
    let short = good[..63].to_vec();
    assert!(matches!(probe(&short, false), Err(FormatError::Refused { class: Class::Truncated, .. })));
    assert!(matches!(probe(&Vec::new(), false), Err(FormatError::Refused { class: Class::Empty, .. })));
    let mut longer = good;
    longer.push(0);
    assert!(probe(&longer, false).is_ok());
    assert!(probe(&longer, true).is_err());
    assert_eq!(parse(&longer).unwrap().problems.len(), 1);
    assert!(parse(&build(77, &[])).unwrap().entries.is_empty());
}

#[test]
fn defects_stay_with_their_block() {
    let file = build(1, &[item("a", "1234"), item("b", "56"), item("c", "78")]);
    let index = |i: usize| 64 + 48 * i;
    for (at, bytes) in [
        (index(1) + 16, u64::MAX.to_le_bytes()),
        (index(1) + 16, 70u64.to_le_bytes()),
        (index(1) + 24, u64::MAX.to_le_bytes()),
        (index(1) + 24, 5u64.to_le_bytes()),
    ] {
        let mut bad = file.clone();
        put(&mut bad, at, &bytes);
        let shard = parse(&bad).unwrap();
        assert!(shard.entries[1].block.error.is_some(), "{at}");
        let _ = shard.entries[1].block.extent.stored();
        assert_eq!((&shard.entries[0].block.error, &shard.entries[2].block.error), (&None, &None));
    }
    let mut bad = file;
    put(&mut bad, index(1) + 8, &u32::MAX.to_le_bytes());
    let shard = parse(&bad).unwrap();
    assert_eq!(shard.entries.iter().map(|e| e.index).collect::<Vec<_>>(), [0, 2]);
    assert!(shard.problems[0].contains("1 entries left out"), "{:?}", shard.problems);
}

#[test]
fn codec_by_flags_then_header() {
    let zeros = [0x1F, 0x00, 0x01, 0x00, 0x2C];
    let lz4 = |flags| Item { flags, size: Some(64), ..item("x", zeros) };
    let codecs = |items: &[Item], default: u8| {
        let mut file = build(1, items);
        file[9] = default;
        let shard = parse(&file).unwrap();
        shard
            .entries
            .into_iter()
            .map(|e| (e.block.extent.codec, e.block.extent.size, e.block.error.is_some()))
            .collect::<Vec<_>>()
    };
    assert_eq!(codecs(&[lz4(4)], 2), [(Codec::None, 5, false)]);
    assert_eq!(codecs(&[lz4(5)], 0), [(Codec::Lz4, 64, false)]);
    assert_eq!(codecs(&[lz4(7)], 1), [(Codec::Lz4, 64, false)]);
    assert_eq!(codecs(&[lz4(1)], 2), [(Codec::Lz4, 64, false)]);
    assert_eq!(codecs(&[lz4(1)], 0), [(Codec::None, 64, true)]);
    assert_eq!(codecs(&[Item { size: None, ..lz4(3) }], 0), [(Codec::None, 5, false)]);
    assert_eq!(codecs(&[Item { size: Some(255 * 5 + 64), ..lz4(5) }], 0), [(Codec::Lz4, 255 * 5 + 64, false)]);
    assert_eq!(codecs(&[Item { size: Some(255 * 5 + 65), ..lz4(5) }], 0), [(Codec::Lz4, 255 * 5 + 65, true)]);
    let frame = zstd::bulk::compress(&[7; 500], 3).unwrap();
    let zstd = |size| Item { flags: 3, size: Some(size), ..item("x", frame.clone()) };
    assert_eq!(codecs(&[zstd(500), zstd(499)], 0), [(Codec::Zstd, 500, false), (Codec::Zstd, 499, true)]);
}

#[test]
fn checksum_of_zero_counts_only_with_the_flag() {
    let file = build(1, &[item("a", "1234"), Item { crc: 7, ..item("b", "5") }]);
    let crcs = |file: &Vec<u8>| {
        parse(file).unwrap().entries.iter().map(|e| e.block.extent.crc.map(|crc| crc.value)).collect::<Vec<_>>()
    };
    assert_eq!(crcs(&file), [None, Some(7)]);
    let mut flagged = file;
    flagged[6] = 0x20;
    assert_eq!(crcs(&flagged), [Some(0), Some(7)]);
}

#[test]
fn the_last_of_equal_names_is_visible() {
    let shard = parse(&build(1, &[item("a", "1"), item("b", "2"), item("a", "3")])).unwrap();
    assert_eq!(shard.entries.iter().map(|e| e.visible).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn described_blocks() {
    let channels = r#"{"id":"a","dtype":"Float64","shape":[2]},{"id":"b","shape":null},
        {"id":"odd","dtype":"i16","shape":[3]},
        {"id":"new","dtype":"f8"},{"id":"none","dtype":"u8","shape":[0,4]},{"id":"bad","dtype":"u8","shape":[-1]},
        {"id":"x","dtype":"u8","shape":[2],"signal_block":"action/x"},{"id":"b","dtype":"u8","shape":[2]},
        {"id":"huge","dtype":"u8","shape":[4294967296,4294967296]},{"signal_block":"reward","dtype":"u16"},7"#;
    let items = [
        item("signal/a", [0; 64]),
        item("signal/b", [0; 8]),
        item("signal/odd", [0; 8]),
        item("signal/new", [0; 8]),
        item("signal/none", []),
        item("signal/bad", [0; 5]),
        item("action/x", [0; 8]),
        item("signal/huge", [0; 8]),
        item("signal/unlisted", [0; 8]),
        item("reward", [0; 8]),
    ];
    let shard = episode(4, channels, &items);
    assert_eq!(array_of(&shard, "signal/a"), Some((DType::F64, vec![4, 2], false)));
    assert_eq!(array_of(&shard, "signal/b"), Some((DType::U8, vec![4, 2], false)));
    assert_eq!(array_of(&shard, "signal/odd"), Some((DType::I16, vec![4], true)));
    assert_eq!(array_of(&shard, "signal/new"), None);
    assert_eq!(array_of(&shard, "signal/none"), Some((DType::U8, vec![4, 0, 4], false)));
    assert_eq!(array_of(&shard, "signal/bad"), Some((DType::U8, vec![5], true)));
    assert_eq!(array_of(&shard, "action/x"), Some((DType::U8, vec![4, 2], false)));
    assert_eq!(array_of(&shard, "signal/huge"), Some((DType::U8, vec![8], true)));
    assert_eq!(array_of(&shard, "signal/unlisted"), None);
    assert_eq!(array_of(&shard, "reward"), Some((DType::U16, vec![4], false)));
}

#[test]
fn legacy_channels_and_long_names() {
    let items = [
        item("meta/channels", r#"{"signal/a":{"dtype":"UINT8","shape":[2]},"action/b":{"id":"b","dtype":"bfloat16"}}"#),
        item("signal/a", [0; 6]),
        item("action/b", [0; 6]),
        item("done", [1; 3]),
    ];
    let shard = parse(&build(5, &items)).unwrap();
    assert_eq!(array_of(&shard, "signal/a"), Some((DType::U8, vec![3, 2], false)));
    assert_eq!(array_of(&shard, "action/b"), Some((DType::Bf16, vec![3], false)));
    assert_eq!((shard.episode.steps, shard.episode.steps_source), (Some(3), Some("done")));
    assert_eq!(shard.channels[0].id, "a");
}

#[test]
fn lanes_without_description() {
    let channels = r#"{"id":"pos","dtype":"f64","shape":[3]},{"id":"pos/x","dtype":"i16"},{"id":"ctrl","dtype":"i32"},
        {"id":"odd","dtype":"f8"}"#;
    let items = [
        item("reward", [0; 32]),
        item("done", [0; 4]),
        item("time/ticks", [0; 16]),
        item("time/timestamps_ns", [0; 33]),
        item("action/ctrl", [0; 32]),
        item("action/odd", [0; 16]),
        item("action/free", [0; 48]),
        item("action/none", [0; 7]),
        item("omen/pos/m", [0; 96]),
        item("omen/pos/f32", [0; 48]),
        item("omen/pos/x/m", [0; 8]),
        item("omen/latent_action_codebook/m", [0; 16]),
        item("uncert/pos/m/std", [0; 96]),
        item("uncert/pos/x/m/std", [0; 16]),
        item("aux/x", [0; 16]),
    ];
    let shard = episode(4, channels, &items);
    for (name, expected) in [
        ("reward", Some((DType::F64, vec![4], true))),
        ("done", Some((DType::Bool, vec![4], false))),
        ("time/ticks", Some((DType::I32, vec![4], false))),
        ("time/timestamps_ns", None),
        ("action/ctrl", Some((DType::I32, vec![8], true))),
        ("action/odd", None),
        ("action/free", Some((DType::F32, vec![4, 3], true))),
        ("action/none", None),
        ("omen/pos/m", Some((DType::F64, vec![4, 3], true))),
        ("omen/pos/f32", Some((DType::F32, vec![4, 3], true))),
        ("omen/pos/x/m", Some((DType::I16, vec![4], true))),
        ("omen/latent_action_codebook/m", Some((DType::I32, vec![4], true))),
        ("uncert/pos/m/std", Some((DType::F64, vec![4, 3], true))),
        ("uncert/pos/x/m/std", Some((DType::F32, vec![4], true))),
        ("aux/x", None),
    ] {
        assert_eq!(array_of(&shard, name), expected, "{name}");
    }
    // The same names mean nothing in another role.
    let other = parse(&build(2, &items)).unwrap();
    assert!(other.entries.iter().all(|e| e.value == Value::Bytes));
}

#[test]
fn residual_layouts() {
    let channels = r#"{"id":"a","shape":[3]}"#;
    for (size, expected) in [(2, Some((1, 2, 0))), (6, Some((3, 2, 0))), (18, Some((3, 6, 4))), (4, None), (0, None)] {
        let shard = episode(10, channels, &[item("residual/a/sign2nddiff", vec![0; size])]);
        let found = entry(&shard, "residual/a/sign2nddiff").residual.as_ref().map(|r| (r.dims, r.stride, r.skip));
        assert_eq!(found, expected, "{size}");
    }
    let shard = episode(10, "", &[item("residual/b/sign2nddiff", [0; 4]), item("residual/sign2nddiff", [0; 2])]);
    assert_eq!(entry(&shard, "residual/b/sign2nddiff").residual.as_ref().unwrap().shape(), [10, 2]);
    assert_eq!(entry(&shard, "residual/sign2nddiff").residual, None);
}

#[test]
fn content_types() {
    let mut tensor = vec![8, 2, 0, 0];
    tensor.extend(2u64.to_le_bytes());
    tensor.extend(3u64.to_le_bytes());
    tensor.extend([1; 6]);
    let mut surplus = tensor.clone();
    surplus.push(0);
    let mut hostile = vec![8, 3, 0, 0];
    hostile.extend([0xFF; 24]);
    let typed = |content_type, stored: &[u8]| Item { content_type, ..item("x", stored) };
    let png = b"\x89PNG\r\n\x1a\nrest";
    let compressed = zstd::bulk::compress(&[&png[..], &[0; 5000]].concat(), 3).unwrap();
    let items = [
        typed(1, &tensor),
        typed(1, &surplus),
        typed(1, &hostile),
        typed(1, &[1]),
        typed(2, b"{"),
        typed(5, b"hello"),
        typed(6, png),
        typed(6, b"\xFF\xD8\xFF\xE0"),
        typed(6, b"GIF89a"),
        Item { flags: 3, size: Some(5012), ..typed(6, &compressed) },
        typed(7, b"RIFF"),
    ];
    let shard = parse(&build(1, &items)).unwrap();
    let values: Vec<&Value> = shard.entries.iter().map(|e| &e.value).collect();
    let array =
        Value::Array { dtype: DType::U8, shape: vec![2, 3], data_offset: 20, inferred: false, source: "tensor_v1" };
    let (image, bytes) = (Value::Image, Value::Bytes);
    let expected =
        [array, bytes.clone(), bytes.clone(), bytes.clone(), Value::Json, Value::Text, image(".png"), image(".jpg")];
    assert_eq!(values[..8], expected.iter().collect::<Vec<_>>()[..]);
    assert_eq!(values[8..], [&image(".bin"), &image(".png"), &bytes]);

    let mut big_endian = build(1, &items);
    big_endian[6] = 4;
    assert_eq!(parse(&big_endian).unwrap().entries[0].value, Value::Bytes);
}

#[test]
fn language_is_text_only_as_utf8() {
    let channels = r#"{"id":"a","dtype":"u8","shape":[4],"modality":"language"},{"id":"b/language","dtype":"u8"},
        {"id":"c","dtype":"f32","modality":"language"}"#;
    let items = [item("signal/a", "go\0\0halt"), item("signal/b/language", b"\xFF\xFE"), item("signal/c", [0; 8])];
    let shard = episode(2, channels, &items);
    assert_eq!(shard.entries[3..].iter().map(|e| e.language).collect::<Vec<_>>(), [true, false, false]);
    assert!(shard.problems.is_empty(), "{:?}", shard.problems);
}

#[test]
fn metadata_that_is_broken_takes_nothing_but_types() {
    for broken in ["", "[]", "{\"channels\":NaN}", "\u{feff}{}", "{\"channels\":{}}", &"[".repeat(100_000)] {
        let shard = parse(&build(5, &[item("meta/channels", broken), item("signal/a", [0; 4])])).unwrap();
        assert_eq!(entry(&shard, "meta/channels").value, Value::Json);
        assert_eq!(entry(&shard, "signal/a").value, Value::Bytes);
    }
    let wrong = Item { crc: 1, ..item("meta/episode", "{\"length_T\":3}") };
    let shard = parse(&build(5, &[wrong])).unwrap();
    assert_eq!(shard.episode.length_t, None);
    let place = format!("meta/episode at byte {}: crc32c", shard.entries[0].block.extent.offset);
    assert!(shard.problems[0].contains(&place), "{:?}", shard.problems);
    let shard = parse(&build(4, &[item("meta/manifest", "{\"chunks\":[]}")])).unwrap();
    assert_eq!(shard.chunks, None);
    assert!(shard.problems[0].contains("no joined view"), "{:?}", shard.problems);
    let shard = parse(&build(4, &[item("meta/manifest", "{\"chunks\":[{\"chunk_index\":0,\"uri\":\"a\"}]}")])).unwrap();
    assert_eq!(shard.chunks.unwrap()[0].uri, "a");
}

#[test]
fn what_damaged_metadata_may_say_is_not_guessed() {
    let channels = r#"{"channels":[{"id":"u","dtype":"f64","shape":[2],"signal_block":"action/u"},
        {"id":"x","dtype":"i32","shape":[3]}]}"#;
    let meta = [("meta/wshard", "{}"), ("meta/episode", r#"{"length_T":4}"#), ("meta/channels", channels)];
    let blocks = [("action/u", 64), ("action/v", 64), ("signal/x", 48), ("omen/x/m", 48), ("uncert/x/m/std", 48)];
    let blocks = blocks.into_iter().chain([("reward", 32), ("done", 4), ("residual/y/sign2nddiff", 2)]);
    let arrays = |damaged: &str| {
        let meta = meta.map(|(name, json)| Item { crc: u32::from(name == damaged), ..item(name, json) });
        let items: Vec<Item> = meta.into_iter().chain(blocks.clone().map(|(name, n)| item(name, vec![0; n]))).collect();
        let shard = parse(&build(5, &items)).unwrap();
        let dtypes = blocks.clone().map(|(name, _)| array_of(&shard, name).map(|(dtype, ..)| dtype));
        let residual = entry(&shard, "residual/y/sign2nddiff").residual.is_some();
        (dtypes.take(7).collect::<Vec<_>>(), residual, shard.episode.steps)
    };
    let [f64, i32, f32, done] = [DType::F64, DType::I32, DType::F32, DType::Bool].map(Some);
    assert_eq!(arrays(""), (vec![f64, f32, i32, i32, f32, f64, done], true, Some(4)));
    assert_eq!(arrays("meta/channels"), (vec![None, None, None, None, None, None, done], false, Some(4)));
    assert_eq!(arrays("meta/episode"), (vec![f64, None, i32, None, None, None, done], false, None));
}

#[test]
fn schema_section() {
    let mut file = build(2, &[]);
    let start = file.len() as u64;
    file.extend(b"{}");
    put(&mut file, 32, &start.to_le_bytes());
    put(&mut file, 40, &(start + 2).to_le_bytes());
    assert_eq!(parse(&file).unwrap().schema, Some(start..start + 2));
    put(&mut file, 32, &(start + 1).to_le_bytes());
    assert_eq!(parse(&file).unwrap().schema, None);
    put(&mut file, 32, &u64::MAX.to_le_bytes());
    assert_eq!(parse(&file).unwrap().schema, None);
}

/// A stream of 5 steps, 2 rows a flush, of lanes of 4 and 1 bytes, as its writer leaves it.
fn interleaved(steps: u64) -> Vec<u8> {
    let items = [
        item("signal/a", [0; 20]),
        item("done", [0; 5]),
        item("meta/episode", format!("{{\"length_T\":{steps}}}")),
        item("meta/wshard", "{\"streaming\":true}"),
    ];
    let mut file = build(5, &items);
    let base = usize::try_from(parse(&file).unwrap().header.data_section_offset).unwrap();
    let metas = file.split_off(base + 25);
    let rows = |from: usize, to: usize| {
        let wide = (from * 4..to * 4).map(|b| b as u8);
        wide.chain((from..to).map(|row| 100 + row as u8)).collect::<Vec<u8>>()
    };
    put(&mut file, base, &[rows(0, 2), rows(2, 4), rows(4, 5)].concat());
    let moved = (base + 25).next_multiple_of(32);
    file.resize(moved, 0);
    file.extend(metas);
    put(&mut file, 64 + 48 + 16, &(base as u64 + 8).to_le_bytes());
    for i in [2, 3] {
        let at = 64 + 48 * i + 16;
        let old = u64::from_le_bytes(*file[at..].first_chunk().unwrap());
        put(&mut file, at, &(old + (moved - base - 25) as u64).to_le_bytes());
    }
    let total = file.len() as u64;
    put(&mut file, 40, &total.to_le_bytes());
    file
}

#[test]
fn interleaved_lanes_are_put_back() {
    let file = interleaved(5);
    let shard = parse(&file).unwrap();
    assert!(shard.problems.is_empty(), "{:?}", shard.problems);
    assert_eq!(shard.recovered, Some(Recovered { rows: 5, rows_per_flush: 2, lanes: 2 }));
    let source: &dyn Source = &file;
    let read = |i: usize, range: Range<u64>| {
        let lane = shard.entries[i].block.interleave.as_ref().unwrap();
        lane.pieces(range).flat_map(|piece| source.read(piece).unwrap()).collect::<Vec<u8>>()
    };
    let wide: Vec<u8> = (0..20).collect();
    assert_eq!(read(0, 0..20), wide);
    assert_eq!(read(1, 0..u64::MAX), [100, 101, 102, 103, 104]);
    for start in 0..20usize {
        for end in start..=20 {
            assert_eq!(read(0, start as u64..end as u64), wide[start..end]);
        }
    }
}

#[test]
fn mixed_bytes_are_never_served() {
    for steps in [0, 3, 10, 1 << 60] {
        let shard = parse(&interleaved(steps)).unwrap();
        assert_eq!(shard.recovered, None);
        assert!(shard.entries[..2].iter().all(|e| e.block.error.is_some()), "{steps}");
        if steps == 3 {
            assert!(shard.problems[0].contains("'signal/a' of 20 bytes"), "{:?}", shard.problems);
        }
        assert!(shard.entries[2..].iter().all(|e| e.block.error.is_none()), "{steps}");
    }
    // Whether a stream writer wrote it cannot be known: no typed view.
    let mut file = interleaved(5);
    let last = file.len() - 1;
    file[last] = b'x';
    let shard = parse(&file).unwrap();
    assert!(shard.entries[..2].iter().all(|e| e.block.error.is_none() && e.value == Value::Bytes));
    // Overlap without streaming is served.
    let mut file = build(5, &[item("meta/wshard", "{}"), item("done", [1; 4]), item("reward", [0; 4])]);
    let first = parse(&file).unwrap().entries[1].block.extent.offset;
    put(&mut file, 64 + 96 + 16, &first.to_le_bytes());
    let shard = parse(&file).unwrap();
    assert!(shard.entries[1..].iter().all(|e| e.block.error.is_none() && e.value != Value::Bytes));
}

#[test]
fn no_damage_of_one_byte_and_no_cut_makes_a_panic() {
    let frame = zstd::bulk::compress(&[7; 500], 3).unwrap();
    let compressed = build(5, &[Item { flags: 3, size: Some(500), ..item("signal/a", frame) }, item("done", [0; 2])]);
    for file in [interleaved(5), compressed] {
        for at in 0..file.len() {
            for value in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut bad = file.clone();
                bad[at] = value;
                if let Ok(shard) = parse(&bad) {
                    for entry in shard.entries {
                        let _ = entry.block.extent.stored();
                        let _ = entry.block.interleave.map(|lane| lane.pieces(0..u64::MAX).count());
                    }
                }
            }
            let _ = parse(&file[..at].to_vec());
        }
    }
}
