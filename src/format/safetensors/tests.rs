use std::{fs, path::PathBuf};

use serde_json::Value;

use super::*;

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 7);
    bytes
}

fn one(tensor: &str, data: usize) -> Vec<u8> {
    file(&format!(r#"{{"t":{tensor}}}"#), data)
}

fn class(bytes: &Vec<u8>) -> Option<Class> {
    match parse(bytes) {
        Ok(_) => None,
        Err(FormatError::Refused { class, .. }) => Some(class),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn refused(bytes: Vec<u8>, expected: Class) {
    assert_eq!(class(&bytes), Some(expected), "{}", String::from_utf8_lossy(&bytes));
}

#[track_caller]
fn accepted(bytes: Vec<u8>) -> Safetensors {
    parse(&bytes).unwrap()
}

#[test]
fn golden_files_have_their_tensors_or_their_class() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/safetensors"));
    let expected: Value = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let files = expected["files"].as_object().unwrap();
    let mut seen = 0;
    for (name, expected) in files.iter().filter(|(name, _)| name.ends_with(SUFFIX)) {
        let bytes = fs::read(folder.join(name)).unwrap();
        seen += 1;
        if expected["expect"] == "ordinary" {
            assert_eq!(class(&bytes).unwrap().to_string(), expected["class"].as_str().unwrap(), "{name}");
            continue;
        }
        let found = accepted(bytes);
        for item in expected["items"].as_array().unwrap() {
            let wanted = item["name"].as_str().unwrap();
            let tensor = found.iter().find(|tensor| tensor.name == wanted.as_bytes()).unwrap();
            assert_eq!(item["dtype"], tensor.dtype.name, "{name} {wanted}");
            assert_eq!(item["shape"], serde_json::json!(tensor.shape.unwrap()), "{name} {wanted}");
        }
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn lengths() {
    let stating = |length: u64, size: usize| {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        bytes.resize(size, b' ');
        bytes
    };
    refused(vec![], Class::BadHeaderLength);
    refused(vec![2, 0, 0, 0, 0, 0, 0], Class::BadHeaderLength);
    for length in [0, 1, 3, 100_000_001, 1 << 63, u64::MAX, u64::MAX - 7] {
        refused(stating(length, 10), Class::BadHeaderLength);
    }
    assert_eq!(accepted(stating(2, 10)).len(), 0);
    assert_eq!(accepted(stating(12, 20)).len(), 0);
}

#[test]
fn headers_that_are_no_header() {
    const GOOD: &str = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    assert_eq!(accepted(one(GOOD, 1)).len(), 1);
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for header in [
        " {}",
        "\u{feff}{}",
        "[]",
        "12",
        "{} x",
        "{}\u{b}",
        "{}{}",
        "{ ",
        r#"{"a":}"#,
        r#"{"t":["U8",[1],[0,1]]}"#,
        r#"{"t":null}"#,
        r#"{"t":{"dtype":"U8","shape":[1]}}"#,
        r#"{"t":{"dtype":"U8","data_offsets":[0,1]}}"#,
        r#"{"t":{"shape":[1],"data_offsets":[0,1]}}"#,
        r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0]}}"#,
        r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}"#,
        r#"{"t":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#,
        r#"{"t":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}"#,
        r#"{"t":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}"#,
        r#"{"t":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}}"#,
        r#"{"t":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}"#,
        r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],}}"#,
        r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":NaN}}"#,
        r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":"\ud800"}}"#,
        r#"{"\udc00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
        &format!(r#"{{"t":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{deep}}}}}"#),
        "{\"a\nb\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        r#"{"__metadata__":{"a":1}}"#,
        r#"{"__metadata__":["a"]}"#,
        r#"{"__metadata__":"a"}"#,
    ] {
        refused(file(header, 1), Class::BadHeader);
    }
    let mut not_utf8 = file(r#"{"__metadata__":{"a":"?"}}"#, 0);
    let at = not_utf8.iter().position(|&byte| byte == b'?').unwrap();
    not_utf8[at] = 0xff;
    refused(not_utf8, Class::BadHeader);
}

#[test]
fn further_members_are_ignored() {
    let tensor = r#"{"dtype":"U8","x":{"y":[1,null,true,-2,0.5,"é"]},"shape":[1],"data_offsets":[0,1],"x":1}"#;
    assert_eq!(accepted(one(tensor, 1)).len(), 1);
}

#[test]
fn nothing_stands_there_twice() {
    let t = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    refused(file(&format!(r#"{{"a":{t},"a":{t}}}"#), 1), Class::Duplicate);
    refused(file(&format!(r#"{{"a":{t},"\u0061":{t}}}"#), 1), Class::Duplicate);
    for (member, again) in [("dtype", r#""U8""#), ("shape", "[1]"), ("data_offsets", "[0,1]")] {
        let tensor = format!(r#"{{"{member}":{again},{}"#, &t[1..]);
        refused(one(&tensor, 1), Class::Duplicate);
    }
    refused(file(r#"{"__metadata__":{},"__metadata__":null}"#, 0), Class::Duplicate);
    refused(file(r#"{"__metadata__":{"a":"1","\u0061":"1"}}"#, 0), Class::Duplicate);
}

#[test]
fn metadata_in_any_place() {
    let t = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    assert!(accepted(file(r#"{"__metadata__":null}"#, 0)).metadata.is_empty());
    assert!(accepted(file(r#"{"__metadata__":{}}"#, 0)).metadata.is_empty());
    let found = accepted(file(&format!(r#"{{"a":{t},"__metadata__":{{"z":"1","a":"{{\"n\":1}}"}}}}"#), 1));
    let expected = [("z", "1"), ("a", r#"{"n":1}"#)].map(|(key, value)| (key.into(), value.into()));
    assert_eq!(found.metadata, expected);
}

#[test]
fn dtypes() {
    for dtype in ["f32", "FLOAT", "", "F8", "U128"] {
        refused(one(&format!(r#"{{"dtype":"{dtype}","shape":[1],"data_offsets":[0,4]}}"#), 4), Class::BadDtype);
    }
}

#[test]
fn sizes_that_fit() {
    let tensor = |dtype: &str, shape: &str, end: u64| {
        one(&format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}"#), end as usize)
    };
    for (dtype, shape, end) in [("F32", "[2]", 4), ("F4", "[3]", 1), ("F4", "[3]", 2), ("F6_E2M3", "[2]", 2)] {
        refused(tensor(dtype, shape, end), Class::BadSize);
    }
    for shape in ["[18446744073709551615,2]", "[4294967296,4294967296]", "[0,9223372036854775808]"] {
        refused(tensor("U8", shape, 0), Class::BadSize);
    }
    refused(tensor("U8", "[9223372036854775807,2,0]", 0), Class::BadSize);
    refused(tensor("U16", "[0,9223372036854775807]", 0), Class::BadSize);
    accepted(tensor("U8", "[0,9223372036854775807]", 0));
    accepted(tensor("F6_E2M3", "[4]", 3));
    let many = format!("[{}1]", "1,".repeat(32));
    let found = accepted(tensor("U8", &many, 1));
    let tensor = found.get(0).unwrap();
    assert_eq!((tensor.shape, tensor.array_type(), tensor.data().end - tensor.data().start), (None, None, 1));
    let found = accepted(one(r#"{"dtype":"U8","shape":[],"data_offsets":[0,1]}"#, 1));
    assert_eq!(found.get(0).unwrap().shape, Some(&[][..]));
}

#[test]
fn data_are_covered_exactly() {
    let tensors = |ranges: &[(u64, u64)], size: usize| {
        let each = ranges.iter().enumerate().map(|(number, (begin, end))| {
            let length = end.saturating_sub(*begin);
            format!(r#""{number}":{{"dtype":"U8","shape":[{length}],"data_offsets":[{begin},{end}]}}"#)
        });
        file(&format!("{{{}}}", each.collect::<Vec<_>>().join(",")), size)
    };
    for ranges in [&[(1, 2)][..], &[(0, 1), (2, 3)], &[(0, 2), (1, 3)], &[(2, 1)], &[(0, 4), (2, 2)], &[(0, 2), (0, 2)]]
    {
        refused(tensors(ranges, 4), Class::BadOffsets);
    }
    refused(tensors(&[(0, 4)], 3), Class::NotCovered);
    refused(tensors(&[(0, 4)], 5), Class::NotCovered);
    refused(tensors(&[], 1), Class::NotCovered);
    let found = accepted(tensors(&[(4, 4), (2, 4), (0, 0), (0, 2), (2, 2), (2, 2)], 4));
    assert_eq!(found.get(1).unwrap().data(), {
        let start = found.get(0).unwrap().data().start - 4;
        start + 2..start + 4
    });
}

#[test]
fn files_are_recognised_by_front_or_suffix() {
    let named = |bytes: &[u8], name: &[u8]| recognise(&Front { bytes, len: bytes.len() as u64, name });
    let tensor = one(r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#, 1);
    assert_eq!(named(&tensor, b"x"), Recognition::Maybe);
    assert_eq!(named(&file("{}", 0), b"x"), Recognition::Maybe);
    assert_eq!(named(&file(r#"{ "__metadata__" : null}"#, 0), b"x"), Recognition::Maybe);
    assert_eq!(named(&file(r#"{"a\"b":{"#, 0), b"x"), Recognition::Maybe);
    for header in [r#"{"a":1}"#, r#"{"a\\" 1}"#, "{1}", "[1]", " {}"] {
        assert_eq!(named(&file(header, 0), b"x"), Recognition::No, "{header}");
    }
    assert_eq!(named(b"text", b"x"), Recognition::No);
    assert_eq!(named(b"text", b"x.SafeTensors"), Recognition::Meant);
    assert_eq!(named(b"", b"x.safetensors"), Recognition::Meant);
}

#[test]
fn memory_is_asked_for_by_item() {
    struct Budget(std::cell::Cell<u64>);
    impl Memory for Budget {
        fn reserve(&self, bytes: u64) -> Result<(), crate::source::SourceError> {
            let left = self.0.get().checked_sub(bytes);
            self.0.set(left.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?);
            Ok(())
        }
    }
    let t = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
    let tensors: Vec<String> = (0..1000).map(|number| format!(r#""{number}":{t}"#)).collect();
    let bytes = file(&format!("{{{}}}", tensors.join(",")), 0);
    let budget = Budget(std::cell::Cell::new(bytes.len() as u64 + 100_000));
    assert!(matches!(parse_within(&bytes, &budget), Err(FormatError::Source(_))));
    let budget = Budget(std::cell::Cell::new(bytes.len() as u64 + 400_000));
    assert_eq!(parse_within(&bytes, &budget).unwrap().len(), 1000);
}
