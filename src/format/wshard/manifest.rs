//! The manifest of a chunked episode: section 15 of the format's page.

use std::{
    collections::HashSet,
    fmt,
    marker::PhantomData,
    path::{Component, Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{ROLE_EPISODE, ROLE_MANIFEST, header, parse_within};
use crate::{
    format::{FormatError, PartError},
    source::{Memory, Source, SourceError},
};

/// One chunk of an episode, in order; the first is chunk 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The chunk's file: a path below the manifest's folder, without `.` and `..`.
    pub uri: String,
    /// SHA-256 of the whole file; `None` if the manifest gives none.
    pub sha256: Option<[u8; 32]>,
}

/// Returns the files of a manifest's chunks; none if the file is no manifest, or names no episode.
///
/// # Errors
/// If memory ran out or the reader was killed: errors that say nothing about the file.
pub fn chunk_files(file: &dyn Source, memory: &dyn Memory) -> Result<Vec<Box<str>>, SourceError> {
    if !header(file).is_ok_and(|header| header.role == ROLE_MANIFEST) {
        return Ok(Vec::new());
    }
    match parse_within(file, memory) {
        Ok(shard) => Ok(shard.chunks.unwrap_or_default().into_iter().map(|chunk| chunk.uri.into()).collect()),
        Err(FormatError::Source(error)) if error.is_passing() => Err(error),
        Err(_) => Ok(Vec::new()),
    }
}

/// Fails for a Shard file that is no episode. A manifest as a chunk, perhaps of itself, would be joined without end.
///
/// # Errors
/// [`PartError`].
pub fn check_chunk(file: &dyn Source) -> Result<(), PartError> {
    match header(file) {
        Ok(header) if header.role == ROLE_EPISODE => Ok(()),
        Ok(header) => PartError::damaged(format!("not an episode: its role is {}", header.role)),
        Err(FormatError::Source(error)) => Err(error.into()),
        Err(error) => PartError::damaged(error.to_string()),
    }
}

/// A JSON object. By itself, serde also accepts an array of the object's values.
#[derive(Debug)]
pub(super) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Only(PhantomData))
    }
}

/// The parts of `meta/manifest` that say how to join the chunks.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    total_chunks: Option<u64>,
    chunks: Vec<Object<Stored>>,
}

#[derive(Debug, Deserialize)]
struct Stored {
    chunk_index: u64,
    uri: String,
    sha256: Option<String>,
}

impl Manifest {
    /// Returns the chunks in order, or why they are no whole episode.
    pub(super) fn chunks(mut self) -> Result<Vec<Chunk>, String> {
        self.chunks.sort_by_key(|chunk| chunk.0.chunk_index);
        let count = self.chunks.len() as u64;
        if let Some(total) = self.total_chunks.filter(|&total| total != count) {
            return Err(format!("total_chunks is {total}, the manifest lists {count}"));
        }
        if count == 0 {
            return Err("the manifest lists no chunk".into());
        }
        let mut files = HashSet::new();
        let place = |(index, stored): (u64, Object<Stored>)| {
            let Stored { chunk_index, uri, sha256 } = stored.0;
            if chunk_index != index {
                let what = if chunk_index < index { "there is more than one chunk" } else { "there is no chunk" };
                return Err(format!("{what} {}", chunk_index.min(index)));
            }
            check_uri(&uri).map_err(|what| format!("chunk {index}: its uri {uri:?} {what}"))?;
            // Chunks must be different files. This is checked before any is opened, because one file could be listed
            // hundreds of thousands of times.
            let parts = Path::new(&uri).components().filter(|part| matches!(part, Component::Normal(_)));
            if !files.insert(parts.collect::<PathBuf>()) {
                return Err(format!("chunk {index}: its file {uri:?} is that of another chunk too"));
            }
            let sha256 = match sha256.as_deref() {
                None | Some("") => None,
                Some(hex) => Some(parse_hex(hex).ok_or_else(|| format!("chunk {index}: its sha256 is no SHA-256"))?),
            };
            Ok(Chunk { uri, sha256 })
        };
        (0..).zip(self.chunks).map(place).collect()
    }
}

/// Section 15: only a path that stays in the manifest's folder.
fn check_uri(uri: &str) -> Result<(), &'static str> {
    if uri.is_empty() || uri.contains('\0') {
        return Err("is no path");
    }
    let scheme = uri.split_once(':').map_or("", |(before, _)| before);
    if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    {
        return Err("has a scheme; only files beside the manifest are joined");
    }
    if Path::new(uri).components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err("leads out of the manifest's folder");
    }
    Ok(())
}

/// Parses 64 hex digits of either case.
fn parse_hex(hex: &str) -> Option<[u8; 32]> {
    let digit = |byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits = hex.bytes().map(digit).collect::<Option<Vec<u8>>>()?;
    let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect();
    (digits.len() == 64).then(|| bytes.try_into().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(json: &str) -> Result<Vec<Chunk>, String> {
        serde_json::from_str::<Object<Manifest>>(json).map_err(|e| e.to_string())?.0.chunks()
    }

    fn uri(uri: &str) -> Result<Vec<Chunk>, String> {
        chunks(&serde_json::json!({"chunks": [{"chunk_index": 0, "uri": uri}]}).to_string())
    }

    #[test]
    fn chunks_are_sorted_and_without_gaps() {
        let sorted = chunks(r#"{"chunks":[{"chunk_index":1,"uri":"b"},{"chunk_index":0,"uri":"a","sha256":""}]}"#);
        let names: Vec<String> = sorted.unwrap().into_iter().map(|chunk| chunk.uri).collect();
        assert_eq!(names, ["a", "b"]);
        for (json, reason) in [
            (r#"{"chunks":[]}"#, "no chunk"),
            (r#"{"chunks":[{"chunk_index":1,"uri":"b"}]}"#, "there is no chunk 0"),
            (r#"{"chunks":[{"chunk_index":0,"uri":"b"},{"chunk_index":2,"uri":"c"}]}"#, "there is no chunk 1"),
            (r#"{"chunks":[{"chunk_index":0,"uri":"b"},{"chunk_index":0,"uri":"c"}]}"#, "more than one chunk 0"),
            (r#"{"chunks":[{"chunk_index":0,"uri":"b"},{"chunk_index":1,"uri":"./b"}]}"#, "chunk 1: its file"),
            (r#"{"total_chunks":2,"chunks":[{"chunk_index":0,"uri":"b"}]}"#, "total_chunks is 2"),
            (r#"{"chunks":[{"chunk_index":0,"uri":"b","sha256":"12"}]}"#, "sha256"),
            (r#"{"chunks":[{"chunk_index":-1,"uri":"b"}]}"#, "-1"),
            (r#"{"chunks":[{"chunk_index":0,"uri":7}]}"#, "string"),
            (r#"[]"#, "expected an object"),
            (r#"[null,[{"chunk_index":0,"uri":"b"}]]"#, "expected an object"),
            (r#"{"chunks":[[0,"b",null]]}"#, "expected an object"),
        ] {
            let error = chunks(json).unwrap_err();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }

    #[test]
    fn uris_stay_in_the_folder() {
        for good in ["ep_chunk_0000.wshard", "sub/ep.wshard", "./ep.wshard", "ep_1:2.wshard", "..ep", "a..b"] {
            assert!(uri(good).is_ok(), "{good}");
        }
        for bad in ["", "../ep", "a/../../ep", "a/..", "/etc/passwd", "file:ep", "s3://b/ep", "a\0b", "//x"] {
            assert!(uri(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sha256_is_hex_of_either_case() {
        assert_eq!(parse_hex(&"0aF".repeat(22)[..64]).unwrap()[..3], [0x0a, 0xf0, 0xaf]);
        assert_eq!(parse_hex(&"é".repeat(32)), None);
        assert_eq!(parse_hex(&"0".repeat(63)), None);
        assert_eq!(parse_hex(&"0".repeat(66)), None);
    }
}
