use super::*;
use crate::source::Unlimited;

fn ran(pickle: &[u8]) -> Result<Pickled, String> {
    let pickled = run(pickle.to_vec(), &Unlimited).map_err(|error| error.to_string())?;
    check_walk(&pickled).map_err(|error| error.to_string())?;
    Ok(pickled)
}

/// The class of the refusal.
fn refused(pickle: &[u8]) -> String {
    ran(pickle).map(|found| format!("{:?}", found.root)).map_or_else(|error| error, |root| panic!("{root}"))
}

#[test]
fn what_is_no_pickle_of_a_checkpoint_is_refused() {
    for pickle in [
        &b""[..],
        b"\x80\x02",
        b"\x80\x06N.",
        b".",
        b"(.",
        b"0.",
        b"1.",
        b"2.",
        b"(2.",
        b"I5\n.",
        b"h\x00.",
        b"Nq",
        b"a.",
        b"NNa.",
        b"]Ns.",
        b")Na.",
        b"}(NNNu.",
        b"}(Nu.",
        b"](\x90.",
        b"]}b.",
        b"}}b.",
        b"NN\x93.",
        b"X\x01\x00\x00\x00\xff.",
        b"X\xff\xff\xff\xffa.",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
        b"\x8b\x01\x04\x00\x00.",
        b"ctorch\nx",
        b"ctor\xffch\nx\n.",
        b"N(R.",
        b"\x85.",
        b"Q.",
    ] {
        assert!(refused(pickle).starts_with("bad_pickle"), "{pickle:?}");
    }
    assert_eq!(refused(b"\x80\x02I5\n."), "bad_pickle: instruction 0x49 is not known, at byte 2 of the pickle");
}

#[test]
fn what_would_fill_memory_is_refused() {
    // A list that contains itself, and one that occurs 2^20 times.
    assert!(refused(b"]q\x00h\x00a.").starts_with("too_many"));
    let mut bomb = b"]".to_vec();
    for _ in 0..20 {
        bomb.extend(b"q\x00](h\x00h\x00e");
    }
    bomb.push(b'.');
    assert!(refused(&bomb).starts_with("too_many"));
    let deep = |depth: usize| [b"]".repeat(depth), b"a".repeat(depth - 1), b".".to_vec()].concat();
    assert!(ran(&deep(limits::PICKLE_DEPTH + 1)).is_ok());
    assert!(refused(&deep(limits::PICKLE_DEPTH + 2)).starts_with("too_many"));
    // A text of a MiB, shown a thousand times.
    let text = [&b"X\x00\x00\x10\x00"[..], &[b'x'; 1 << 20], b"q\x000](", &b"h\x00".repeat(1000), b"e."].concat();
    assert!(refused(&text).starts_with("too_many"));
    // The memo is a map, not an array.
    assert!(ran(b"Nr\xff\xff\xff\xff.").is_ok());
    assert!(refused(&b"N".repeat(limits::PICKLE_ENTRIES + 1)).starts_with("too_many"));
    let objects = [b"]0".repeat(limits::PICKLE_ENTRIES + 1), b"N.".to_vec()].concat();
    assert!(refused(&objects).starts_with("too_many"));
}

#[test]
fn nothing_is_called_that_is_not_known() {
    let unknown = |pickle: &[u8]| match ran(pickle).map(|found| (found.root, found)) {
        Ok((Value::Unknown(Some(number)), found)) => found.global(number),
        Ok((Value::Unknown(None), _)) => "nameless".into(),
        other => format!("{:?}", other.map(|(root, _)| root)),
    };
    assert_eq!(unknown(b"cos\nsystem\n(X\x02\x00\x00\x00idtR."), "os.system");
    // The outermost call has the name, whatever happens to the result.
    assert_eq!(unknown(b"cos\nsystem\n)R(NNtR)R}b."), "os.system");
    assert_eq!(unknown(b"cos\nsystem\n)R(NNe(NNu(N\x90."), "os.system");
    assert_eq!(unknown(b"cbuiltins\neval\n)\x81."), "builtins.eval");
    assert_eq!(unknown(b"cbuiltins\neval\n)}\x92."), "builtins.eval");
    assert_eq!(unknown(b"N)R."), "nameless");
    assert_eq!(unknown(b"NQ."), "nameless");
    // Dots do not make another module of a name.
    assert_eq!(unknown(b"\x8c\x0bcollections\x8c\x01x\x93)R."), "collections.x");
    // A known name with other arguments makes an unknown value.
    for (call, name) in [
        (&b"ccollections\nOrderedDict\n(NtR."[..], "collections.OrderedDict"),
        (b"ccollections\nOrderedDict\n]R.", "collections.OrderedDict"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR.", "torch._utils._rebuild_tensor_v2"),
        (b"ctorch._utils\n_rebuild_parameter\n(NNNtR.", "torch._utils._rebuild_parameter"),
        (b"ctorch._utils\n_rebuild_parameter_with_state\n(NNN}tR.", "torch._utils._rebuild_parameter_with_state"),
        (
            b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nN(NNNNNNtNtR.",
            "torch._tensor._rebuild_from_type_v2",
        ),
        (
            b"ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\nN)NtR.",
            "torch._tensor._rebuild_from_type_v2",
        ),
        (b"ctorch\ndevice\n(K\x01tR.", "torch.device"),
        (b"c_codecs\nencode\n(X\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1tR.", "_codecs.encode"),
        (b"cbuiltins\ncomplex\n(NNtR.", "builtins.complex"),
        (b"cbuiltins\nset\n(NtR.", "builtins.set"),
        (b"cbuiltins\nlist\n(NNNNNNNNNNtR.", "builtins.list"),
    ] {
        assert_eq!(unknown(call), name);
    }
}

#[test]
fn keys_are_those_of_python() {
    // {1: None, 1.0: True, True: 5}: one key, the first, with the last value.
    let found = ran(b"}(K\x01NG\x3f\xf0\x00\x00\x00\x00\x00\x00\x88\x88K\x05u.").unwrap();
    let Value::Object(number) = found.root else { panic!() };
    let Some(Object::Dict(pairs, false)) = found.object(number) else { panic!() };
    assert!(matches!(pairs[..], [(Value::Int(1), Value::Int(5))]));
    // Integers that are longer than needed.
    let found = ran(b"}(K\x01N\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00\x89\x8a\x01\xffNu.").unwrap();
    let Value::Object(number) = found.root else { panic!() };
    let Some(Object::Dict(pairs, _)) = found.object(number) else { panic!() };
    assert!(matches!(pairs[..], [(Value::Int(1), Value::Bool(false)), (Value::Int(-1), Value::None)]));
    // Surrogates may stand alone.
    assert!(ran(b"X\x03\x00\x00\x00\xed\xa0\x80.").is_ok());
}

#[test]
fn a_container_is_changed_wherever_it_is_used() {
    let found = ran(b"]q\x00(h\x00h\x00K\x07a0te.");
    assert!(found.is_err());
    let found = ran(b"(]q\x00h\x00K\x07at.").unwrap();
    let Value::Object(number) = found.root else { panic!() };
    let Some(Object::Tuple(both)) = found.object(number) else { panic!() };
    let (Value::Object(first), Value::Object(second)) = (both[0], both[1]) else { panic!() };
    assert_eq!(first, second);
    assert!(matches!(found.object(first), Some(Object::List(list)) if matches!(list[..], [Value::Int(7)])));
}
