//! Writes JSON documents: UTF-8, indented by 2, keys in the given order, one newline at the end.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    cache::Buffer,
    source::{Memory, SourceError},
};

/// Returns the bytes of a document. NaN and infinities become `null`.
pub fn document(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Cannot fail: all keys are strings, and writing to a `Vec` does not fail.
    let _ = write(value, &mut bytes);
    bytes
}

/// Does the same as [`document`] for documents of any size. Measures the document first, and reserves memory once.
///
/// # Errors
/// `ENOMEM`.
pub fn large_document(value: &impl Serialize, memory: &dyn Memory) -> Result<Buffer, SourceError> {
    large(|mut out| Ok(write(value, &mut out)?), memory)
}

/// Returns the bytes that a function writes. Calls it twice: first to measure the bytes, then to write them to reserved
/// memory.
///
/// # Errors
/// `ENOMEM`, and those of the function.
pub fn large(
    write: impl Fn(&mut dyn Write) -> Result<(), SourceError>,
    memory: &dyn Memory,
) -> Result<Buffer, SourceError> {
    let mut size = Counted(0);
    write(&mut size)?;
    memory.reserve(size.0 as u64)?;
    let mut bytes = Buffer::zeroed(size.0)?;
    write(&mut &mut bytes[..])?;
    Ok(bytes)
}

fn write(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Counts the bytes that are written.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
