//! Attributes as they are shown (`docs/formats/zarr.md` 3.2): the stored JSON in stored order. Numbers keep their text.

use crate::{
    format::zarr::Json,
    view::attributes::{Attributes, Value},
};

/// Returns the members of an object as attributes; none for another value.
pub(super) fn of(object: &Json) -> Attributes {
    let pairs = object.as_object().into_iter().flatten();
    pairs.map(|(key, json)| (key.clone(), value(json))).collect()
}

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(found) => Value::Bool(*found),
        Json::Number(token) => match &**token {
            "NaN" => Value::F64(f64::NAN),
            "Infinity" => Value::F64(f64::INFINITY),
            "-Infinity" => Value::F64(f64::NEG_INFINITY),
            token => Value::Json(token.as_bytes().into()),
        },
        Json::Text(text) if std::str::from_utf8(text).is_ok() => Value::Text(text.clone()),
        Json::Text(text) => Value::Json(quoted(text).into()),
        Json::List(list) => Value::List(list.iter().map(value).collect()),
        Json::Object(map) => {
            let fields = map.iter().map(|(key, json)| (String::from_utf8_lossy(key).into(), value(json)));
            Value::Record(fields.collect())
        }
    }
}

/// Returns a text with lone surrogates as a JSON string.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    let plain = |text: &[u8], out: &mut Vec<u8>| {
        let text = serde_json::to_string(&String::from_utf8_lossy(text)).unwrap_or_default();
        out.extend_from_slice(text.as_bytes().get(1..text.len().saturating_sub(1)).unwrap_or_default());
    };
    let mut rest = text;
    // A surrogate is three bytes that cannot be part of another character.
    while let Some(at) = rest.windows(3).position(|bytes| bytes[0] == 0xed && bytes[1] >= 0xa0) {
        plain(&rest[..at], &mut out);
        let code = 0xd000 | u32::from(rest[at + 1] & 0x3f) << 6 | u32::from(rest[at + 2] & 0x3f);
        out.extend_from_slice(format!("\\u{code:04x}").as_bytes());
        rest = &rest[at + 3..];
    }
    plain(rest, &mut out);
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_escaped_and_nothing_else() {
        assert_eq!(quoted(b"a\xed\xa0\x80\xc3\xa9\n\xed\xbf\xbf"), "\"a\\ud800\u{e9}\\n\\udfff\"".as_bytes());
    }
}
