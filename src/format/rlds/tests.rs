//! Tests of the two descriptions of a data set.

use serde_json::json;

use super::*;

fn info(splits: &Value) -> Result<Info, FormatError> {
    parse_info(json!({"name": "set", "splits": splits}))
}

#[test]
fn records_are_found_in_shards_by_their_lengths() {
    let info = info(&json!([{"name": "train", "shardLengths": ["2", "0", 3]}, {"name": "empty"}])).unwrap();
    let train = &info.splits[0];
    assert_eq!((train.records(), train.shards(), train.records_of(2)), (5, 3, 3));
    let places: Vec<_> = (0..6).map(|record| train.place(record)).collect();
    assert_eq!(places, [Some((0, 0)), Some((0, 1)), Some((2, 0)), Some((2, 1)), Some((2, 2)), None]);
    assert_eq!(train.shard_name("set", 2), "set-train.tfrecord-00002-of-00003");
    assert_eq!((info.splits[1].records(), info.splits[1].shards(), info.splits[1].place(0)), (0, 0, None));
}

#[test]
fn many_splits_take_no_time() {
    let begun = std::time::Instant::now();
    let splits: Value = (0..200_000).map(|at| json!({"name": at.to_string(), "shardLengths": [at % 3]})).collect();
    let found = info(&splits).unwrap().splits;
    assert_eq!((found.len(), found[199_999].first, found[199_999].records()), (200_000, 199_998, 1));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn other_descriptions_are_refused_by_their_class() {
    let class = |value: Value| match parse_info(value) {
        Err(FormatError::Refused { class, .. }) => Some(class),
        _ => None,
    };
    let of = |splits: Value| class(json!({"name": "set", "splits": splits}));
    assert_eq!(of(json!([])), None);
    for splits in [
        json!(7),
        json!([7]),
        json!([{"name": ".."}]),
        json!([{"name": "a/b"}]),
        json!([{"name": "container.json"}]),
        json!([{"name": "a"}, {"name": "a"}]),
        json!([{"name": "a", "numShards": "2"}]),
        json!([{"name": "a", "shardLengths": ["-1"]}]),
        json!([{"name": "a", "shardLengths": ["1000000001"]}]),
        json!([{"name": "a", "filepathTemplate": "x/{SPLIT}"}]),
        json!([{"name": "a", "filepathTemplate": "{OTHER}"}]),
        json!([{"name": "a", "filepathTemplate": "{SPLIT"}]),
        json!([{"name": "a".repeat(256)}]),
    ] {
        assert_eq!(of(splits.clone()), Some(Class::BadInfo), "{splits}");
    }
    assert_eq!(class(json!({"name": "set"})), Some(Class::BadInfo));
    assert_eq!(class(json!({"name": "set", "splits": [], "fileFormat": "array_record"})), Some(Class::Format));
}

fn tensor(dtype: &str, shape: &[&str]) -> Value {
    json!({"tensor": {"dtype": dtype, "shape": {"dimensions": shape}}})
}

#[test]
fn leaves_have_their_sequences_and_shapes() {
    let steps = json!({"sequence": {"length": "-1", "feature": {"featuresDict": {"features": {
        "b": {"sequence": {"feature": tensor("int8", &["-1", "3"])}},
        "a": tensor("bfloat16", &[]),
    }}}}});
    let top = json!({"featuresDict": {"features": {"steps": steps, "tags": {"sequence": {"feature": {"text": {}}}}, "x": {"new": 1}}}});
    let features = parse_features(&top).unwrap();
    assert!(features.has_steps);
    let seen: Vec<_> =
        features.leaves.iter().map(|leaf| (leaf.path.as_str(), leaf.shown(), leaf.in_steps, leaf.sequences)).collect();
    assert_eq!(
        seen,
        [("steps/a", "a", true, 1), ("steps/b", "b", true, 2), ("tags", "tags", false, 1), ("x", "x", false, 0)]
    );
    assert_eq!(features.leaves[1].shape, [None, Some(3)]);
    assert_eq!(features.leaves[3].kind, LeafKind::Other("unknown".into()));
    // The older form around the same, as an object and as a text.
    let content = top["featuresDict"].clone();
    for content in [content.clone(), content.to_string().into()] {
        let old = json!({"type": "x", "proto_cls": "tensorflow_datasets.FeaturesDict", "content": content});
        assert_eq!(parse_features(&old).unwrap().leaves.len(), 4);
    }
}

#[test]
fn descriptions_that_are_no_dictionary_or_too_deep_are_refused() {
    let mut deep = tensor("int8", &[]);
    for _ in 0..20 {
        deep = json!({"sequence": {"feature": deep}});
    }
    let many: serde_json::Map<String, Value> = (0..4097).map(|at| (at.to_string(), tensor("int8", &[]))).collect();
    for value in [
        json!({"type": "x", "content": {}}),
        json!({"tensor": {}}),
        json!({"featuresDict": {"features": {"a": 7}}}),
        json!({"featuresDict": {"features": {"a": deep}}}),
        json!({"featuresDict": {"features": many}}),
        json!({"proto_cls": "tensorflow_datasets.Other", "content": {}}),
        json!({"proto_cls": "tensorflow_datasets.FeaturesDict", "content": "{"}),
    ] {
        assert!(matches!(parse_features(&value), Err(FormatError::Refused { class: Class::Features, .. })));
    }
}
