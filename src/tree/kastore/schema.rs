//! What a metadata schema of a tree sequence says about how metadata are stored
//! (<https://tskit.dev/tskit/docs/stable/metadata.html>). Everything else that it holds is skipped and takes no memory.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Returns whether metadata of this schema are JSON.
///
/// # Errors
/// That the schema is no JSON.
pub(super) fn is_of_json(schema: &[u8]) -> serde_json::Result<bool> {
    serde_json::from_slice::<Schema>(schema).map(|Schema(is_json)| is_json)
}

/// A document of any kind: whether it is an object whose `codec` is `json`.
struct Schema(bool);

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Looking { into: true }).map(Self)
    }
}

/// Returns whether a text is `json`; looks into an object's `codec` if told to.
struct Looking {
    into: bool,
}

struct Text(bool);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Looking { into: false }).map(Self)
    }
}

impl<'de> Visitor<'de> for Looking {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if self.into && key == "codec" {
                // Of several, the last counts, as for other readers.
                found = map.next_value::<Text>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(false)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!self.into && text == "json")
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_codec_of_the_document_counts() {
        for (schema, expected) in [
            (r#"{"codec": "json"}"#, true),
            (r#"{"a": [1, {"codec": "json"}], "codec": "json", "z": null}"#, true),
            (r#"{"\u0063odec": "js\u006fn"}"#, true),
            (r#"{"codec": "json", "codec": "struct"}"#, false),
            (r#"{"codec": "struct", "codec": "json"}"#, true),
            (r#"{"codec": "struct"}"#, false),
            (r#"{"codec": {"codec": "json"}}"#, false),
            (r#"{"codec": ["json"]}"#, false),
            (r#"{"codec": null, "x": {"codec": "json"}}"#, false),
            (r#"["codec", "json"]"#, false),
            (r#""json""#, false),
            ("1", false),
            ("-1.5e3", false),
            ("true", false),
            ("null", false),
            ("{}", false),
        ] {
            assert_eq!(is_of_json(schema.as_bytes()).unwrap(), expected, "{schema}");
        }
        for schema in ["", "{", r#"{"codec": "json"} x"#, r#"{"codec": "json",}"#, "{1: 2}", &"[".repeat(100_000)] {
            assert!(is_of_json(schema.as_bytes()).is_err());
        }
    }
}
