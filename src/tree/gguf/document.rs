//! Metadata as JSON, and texts as JSON lines. They are made from the file on the first request.

use std::{
    cell::{Cell, RefCell},
    io::Write,
    ops::Range,
};

use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeSeq},
};

use crate::{
    cache::Buffer,
    format::{
        DType, ElementType, FormatError,
        gguf::{Gguf, Value, each_text},
    },
    source::{Memory, Source, SourceError},
    view::{
        Fault,
        attributes::{Element, Text},
        json,
    },
};

/// Makes documents of a file.
pub(super) struct Documents<'a> {
    found: &'a Gguf,
    source: &'a dyn Source,
    memory: &'a dyn Memory,
    /// Bytes that were reserved for the longest text so far.
    asked: Cell<u64>,
}

/// The error that stopped the writing of a value, because serde's errors cannot contain it.
type Failed = RefCell<Option<SourceError>>;

impl<'a> Documents<'a> {
    pub(super) fn new(found: &'a Gguf, source: &'a dyn Source, memory: &'a dyn Memory) -> Self {
        Self { found, source, memory, asked: Cell::new(0) }
    }

    /// Reserves memory before a text of `length` bytes is read: for the text and for its base64.
    fn admit(&self, length: u64) -> Result<(), SourceError> {
        let more = length.saturating_mul(3).saturating_sub(self.asked.get());
        self.memory.reserve(more)?;
        self.asked.set(self.asked.get() + more);
        Ok(())
    }

    /// Returns `metadata.json`, given the path of each pair that has its own file.
    ///
    /// # Errors
    /// Those of reading, and `ENOMEM`.
    pub(super) fn metadata(&self, paths: impl Iterator<Item = Option<String>> + Clone) -> Result<Buffer, Fault> {
        let failed = Failed::default();
        let document = Pairs { documents: self, paths, failed: &failed };
        json::large_document(&document, self.memory).map_err(|error| failed.take().unwrap_or(error).into())
    }

    /// Returns texts as JSON strings, one a line.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub(super) fn texts(&self, value: Option<&Value>) -> Result<Buffer, Fault> {
        let Some(Value::Texts(count, place)) = value else { return Ok(Buffer::default()) };
        let write = |out: &mut dyn Write| {
            self.each_text(*count, place, |text| {
                serde_json::to_writer(&mut *out, &Text(text)).map_err(std::io::Error::from)?;
                Ok(out.write_all(b"\n")?)
            })
        };
        Ok(json::large(write, self.memory)?)
    }

    fn each_text(
        &self,
        count: u64,
        place: &Range<u64>,
        mut each: impl FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let each = |text: &[u8]| each(text).map_err(FormatError::from);
        each_text(self.source, self.found.is_big, (count, place), |length| self.admit(length), each).map_err(|error| {
            match error {
                FormatError::Source(error) => error,
                // The parser has accepted it before, so the file has changed.
                FormatError::Refused { .. } => SourceError::Changed,
            }
        })
    }
}

/// All pairs.
struct Pairs<'a, P> {
    documents: &'a Documents<'a>,
    paths: P,
    failed: &'a Failed,
}

impl<P: Iterator<Item = Option<String>> + Clone> Serialize for Pairs<'_, P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { documents, paths, failed } = self;
        let pairs = documents.found.pairs().zip(paths.clone());
        serializer.collect_map(pairs.map(|((key, value), path)| (key, Shown { documents, value, path, failed })))
    }
}

/// The value of a pair, or where it is.
struct Shown<'a> {
    documents: &'a Documents<'a>,
    value: &'a Value,
    path: Option<String>,
    failed: &'a Failed,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Documents { found, source, .. } = self.documents;
        let fail = |error: SourceError| {
            *self.failed.borrow_mut() = Some(error);
            S::Error::custom("not read")
        };
        match (self.value, &self.path) {
            (Value::Texts(..), Some(path)) => serializer.collect_map([("jsonl", path)]),
            (_, Some(path)) => serializer.collect_map([("npy", path)]),
            (Value::Scalar(dtype, bits), None) => {
                Element(&(*dtype).into(), &scalar(*dtype, *bits)).serialize(serializer)
            }
            (Value::Text(_, Some(text)), None) => serializer.serialize_str(text),
            (Value::Text(place, None), None) => {
                self.documents.admit(place.end - place.start).map_err(fail)?;
                Text(&source.read(place.clone()).map_err(fail)?).serialize(serializer)
            }
            // Arrays without their own file are short.
            (Value::Array(dtype, _, place), None) => {
                let (element, width) = (ElementType::from(*dtype), dtype.size() as usize);
                let mut bytes = source.read(place.clone()).map_err(fail)?;
                if found.is_big {
                    bytes.chunks_exact_mut(width.max(1)).for_each(<[u8]>::reverse);
                }
                serializer.collect_seq(bytes.chunks_exact(width.max(1)).map(|bytes| Element(&element, bytes)))
            }
            (Value::Texts(count, place), None) => {
                let (mut list, mut refused) = (serializer.serialize_seq(None)?, None);
                let written = self.documents.each_text(*count, place, |text| {
                    list.serialize_element(&Text(text)).map_err(|error| {
                        refused = Some(error);
                        SourceError::Changed
                    })
                });
                match (refused, written) {
                    (Some(error), _) => Err(error),
                    (None, Err(error)) => Err(fail(error)),
                    (None, Ok(())) => list.end(),
                }
            }
        }
    }
}

/// Returns the bytes of a number by its bits.
fn scalar(dtype: DType, bits: u64) -> Vec<u8> {
    bits.to_le_bytes().into_iter().take(dtype.size() as usize).collect()
}
