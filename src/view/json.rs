//! Writes JSON documents: UTF-8, indented by 2, keys in the given order, one newline at the end.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

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
    value.serialize(&mut Serializer::with_formatter(&mut *out, Document(PrettyFormatter::new())))?;
    out.write_all(b"\n")
}

/// Returns a value on one line, without its end.
pub fn line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut line, Line))?;
    Ok(line)
}

/// Writes bytes unchanged as [`Document`] does, without white space between values.
struct Line;

impl Formatter for Line {
    fn write_byte_array<W: ?Sized + Write>(&mut self, out: &mut W, value: &[u8]) -> io::Result<()> {
        out.write_all(value)
    }
}

/// Indents by 2, and writes bytes unchanged: a value that already is JSON, such as an integer of any length.
struct Document(PrettyFormatter<'static>);

impl Formatter for Document {
    fn write_byte_array<W: ?Sized + Write>(&mut self, out: &mut W, value: &[u8]) -> io::Result<()> {
        out.write_all(value)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, is_first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, is_first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
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
