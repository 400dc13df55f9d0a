//! Answers of listings in JSON, one entry at a time: a tree of all values would take many times their bytes.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::store::remote::backends::backend;

/// Passes on each element of an array as it is read.
struct Each<'a, T>(&'a mut dyn FnMut(T) -> Result<(), String>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element()? {
            (self.0)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Passes on the elements of a document that is an array.
///
/// # Errors
/// What is wrong with the document, or what `take` says.
pub(crate) fn each<'de, T: Deserialize<'de>>(
    document: &'de [u8],
    take: &mut dyn FnMut(T) -> Result<(), String>,
) -> Result<(), String> {
    let mut from = serde_json::Deserializer::from_slice(document);
    from.deserialize_seq(Each(take)).and_then(|()| from.end()).map_err(wrong)
}

/// Returns an error about a malformed document.
pub(crate) fn wrong(error: serde_json::Error) -> String {
    format!("the answer is no listing in JSON: {error}")
}

/// A number of bytes. Some servers write it as text; anything else counts as unknown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = <&RawValue>::deserialize(from)?.get();
        match written.starts_with(['[', '{']) {
            true => Err(D::Error::custom("a size that is no number of bytes")),
            false => Ok(Self(backend::size(written.trim_matches('"')))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_given_one_by_one() {
        let mut found = Vec::new();
        each(b"[1, \"2\", null, -4, 18446744073709551615]", &mut |Size(size)| {
            found.push(size);
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [Some(1), Some(2), None, None, None]);
        let mut none = |_: Size| Ok(());
        for bad in [&b"{}"[..], b"[1", b"[1] 2", b"[{}]", b"<html>", b""] {
            assert!(each(bad, &mut none).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        assert!(each(b"[1]", &mut |_: Size| Err("enough".into())).unwrap_err().contains("enough"));
        let deep = "[".repeat(100_000);
        assert!(each(deep.as_bytes(), &mut none).is_err());
    }
}
