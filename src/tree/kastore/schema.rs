//! What a metadata schema of a tree sequence says about how metadata are stored
//! (<https://tskit.dev/tskit/docs/stable/metadata.html>). Everything else that it holds is skipped and takes no memory.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// How metadata are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Json,
    Struct,
    JsonStruct,
    /// Another one, or none.
    Other,
}

/// Returns how metadata of this schema are stored.
///
/// # Errors
/// That the schema is no JSON.
pub(super) fn codec(schema: &[u8]) -> serde_json::Result<Codec> {
    serde_json::from_slice::<Schema>(schema).map(|Schema(codec)| codec)
}

/// A document of any kind: the `codec` of an object.
struct Schema(Codec);

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Looking { into: true }).map(Self)
    }
}

/// Returns the codec that a text names; looks into an object's `codec` if told to.
struct Looking {
    into: bool,
}

struct Text(Codec);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Looking { into: false }).map(Self)
    }
}

impl<'de> Visitor<'de> for Looking {
    type Value = Codec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Codec, A::Error> {
        let mut found = Codec::Other;
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Codec, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Codec::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Codec, E> {
        Ok(match text {
            "json" if !self.into => Codec::Json,
            "struct" if !self.into => Codec::Struct,
            "json+struct" if !self.into => Codec::JsonStruct,
            _ => Codec::Other,
        })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Codec, E> {
        Ok(Codec::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Codec, E> {
        Ok(Codec::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Codec, E> {
        Ok(Codec::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Codec, E> {
        Ok(Codec::Other)
    }

    fn visit_unit<E>(self) -> Result<Codec, E> {
        Ok(Codec::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_codec_of_the_document_counts() {
        for (schema, expected) in [
            (r#"{"codec": "json"}"#, Codec::Json),
            (r#"{"a": [1, {"codec": "json"}], "codec": "json", "z": null}"#, Codec::Json),
            (r#"{"\u0063odec": "js\u006fn"}"#, Codec::Json),
            (r#"{"codec": "json", "codec": "struct"}"#, Codec::Struct),
            (r#"{"codec": "struct", "codec": "json"}"#, Codec::Json),
            (r#"{"codec": "json+struct"}"#, Codec::JsonStruct),
            (r#"{"codec": "struct"}"#, Codec::Struct),
            (r#"{"codec": {"codec": "json"}}"#, Codec::Other),
            (r#"{"codec": ["json"]}"#, Codec::Other),
            (r#"{"codec": null, "x": {"codec": "json"}}"#, Codec::Other),
            (r#"["codec", "json"]"#, Codec::Other),
            (r#""json""#, Codec::Other),
            ("1", Codec::Other),
            ("-1.5e3", Codec::Other),
            ("true", Codec::Other),
            ("null", Codec::Other),
            ("{}", Codec::Other),
        ] {
            assert_eq!(codec(schema.as_bytes()).unwrap(), expected, "{schema}");
        }
        for schema in ["", "{", r#"{"codec": "json"} x"#, r#"{"codec": "json",}"#, "{1: 2}", &"[".repeat(100_000)] {
            assert!(codec(schema.as_bytes()).is_err());
        }
    }
}
