//! Tests of how numbers, texts and arrays look in JSON.
use super::*;
use crate::{
    cache::{Cache, Verify},
    tree::WorkingMemory,
    view::View,
};

/// The document of some values, with `big/<number>` as the path of a large array.
fn document(values: Vec<Value>) -> serde_json::Value {
    let names = (0..).map(|number| format!("a{number}").into_bytes().into_boxed_slice());
    let attributes: Attributes = names.zip(values).collect();
    let cache = Cache::new(1 << 24, Verify::default());
    let reader = ReadContext::new(std::sync::Arc::new(Vec::<u8>::new()), cache.clone(), 1);
    let document = attributes.document(&reader, &WorkingMemory::held(&cache), &|at| format!("big/{at}")).unwrap();
    serde_json::from_slice(&document).unwrap()
}

fn numbers(dtype: DType, shape: &[u64], bytes: &[u8]) -> Value {
    Value::Array(Array::new(dtype, shape, View::inline(bytes)))
}

#[test]
fn every_kind_of_value_is_json() {
    let text = |bytes: &[u8]| Value::Text(bytes.into());
    let shown = document(vec![
        Value::Null,
        Value::Bool(true),
        Value::Int(i64::MIN),
        Value::Uint(u64::MAX),
        Value::F32(0.1),
        Value::F64(f64::NAN),
        text("caf\u{e9}".as_bytes()),
        text(b"\xff\xfe"),
        Value::Text(b"\xff".as_slice().into()),
        Value::Path("/a/b".into()),
        Value::List(vec![Value::Int(1), text(b"x")]),
        Value::Record(vec![("n".into(), Value::Int(1)), ("x".into(), Value::F64(0.5))]),
        Value::Nested([2, 1].into(), vec![text(b"a"), Value::Null]),
        Value::Failed("why".into()),
    ]);
    let expected = serde_json::json!({
        "a0": null, "a1": true, "a2": i64::MIN, "a3": u64::MAX, "a4": 0.1, "a5": null, "a6": "caf\u{e9}",
        "a7": {"base64": "//4="}, "a8": {"base64": "/w=="}, "a9": {"path": "/a/b"}, "a10": [1, "x"],
        "a11": {"n": 1, "x": 0.5}, "a12": [["a"], [null]], "a13": {"error": "why"},
    });
    assert_eq!(shown, expected);
}

#[test]
fn arrays_are_nested_lists_of_the_shortest_numbers() {
    // numpy 2.4: np.array([...], dtype).tobytes(), and str() of each element.
    let shown = document(vec![
        numbers(DType::I16, &[2, 2], &[1, 0, 2, 0, 255, 255, 0, 128]),
        numbers(DType::F32, &[3], &[0xcd, 0xcc, 0xcc, 0x3d, 0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x7f]),
        // np.array([0.1, 65504, 6e-8, -2.5], "f2")
        numbers(DType::F16, &[4], &[0x66, 0x2e, 0xff, 0x7b, 1, 0, 0, 0xc1]),
        // ml_dtypes.bfloat16(0.1)
        numbers(DType::Bf16, &[], &[0xcd, 0x3d]),
        numbers(DType::C128, &[], &[1f64.to_le_bytes(), (-2f64).to_le_bytes()].concat()),
        numbers(DType::Bool, &[2], &[0, 1]),
        numbers(DType::U8, &[2, 0, 3], &[]),
        numbers(DType::U8, &[1 << 40, 0], &[]),
        numbers(DType::U8, &[], &[7]),
    ]);
    let short = shown["a2"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap());
    assert_eq!(short.collect::<Vec<_>>(), [0.1, 65500.0, 6e-8, -2.5]);
    let expected = serde_json::json!([[1, 2], [-1, -32768]]);
    assert_eq!((&shown["a0"], &shown["a3"]), (&expected, &serde_json::json!(0.1)));
    assert_eq!(shown["a1"], serde_json::json!([0.1, null, null]));
    assert_eq!((&shown["a4"], &shown["a5"]), (&serde_json::json!([1.0, -2.0]), &serde_json::json!([false, true])));
    assert_eq!((&shown["a6"], &shown["a8"]), (&serde_json::json!([[], []]), &serde_json::json!(7)));
    // Lists without elements are bounded, too.
    assert!(shown["a7"]["error"].as_str().unwrap().contains("do not fit"));
}

#[test]
fn more_elements_have_a_file() {
    let shown = document(vec![
        numbers(DType::U8, &[4096], &[0; 4096]),
        numbers(DType::U8, &[4097], &[0; 4097]),
        numbers(DType::U8, &[1 << 40, 1 << 40], &[]),
    ]);
    assert_eq!(shown["a0"].as_array().unwrap().len(), 4096);
    assert_eq!(shown["a1"], serde_json::json!({"npy": "big/1"}));
    assert_eq!(shown["a2"], serde_json::json!({"npy": "big/2"}));
}

#[test]
fn a_damaged_array_is_an_error_and_the_others_are_there() {
    #[derive(Debug)]
    struct Damaged;
    impl crate::view::Rendered for Damaged {
        fn fill(&self, _: &ReadContext, _: std::ops::Range<u64>, _: &mut [u8]) -> Result<(), Fault> {
            Err(Fault::refused("the heap ends early"))
        }
    }
    let damaged = Array::new(DType::U8, [2], View::default().with_rendered(2, Damaged));
    let shown = document(vec![Value::Array(damaged), Value::Int(5)]);
    assert_eq!(shown, serde_json::json!({"a0": {"error": "the heap ends early"}, "a1": 5}));
}

#[test]
fn names_that_are_not_text_are_escaped() {
    assert_eq!(key(b"50%\xff"), "50%%FF");
}
