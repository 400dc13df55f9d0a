//! JSON that shardfs makes: UTF-8, indented by 2, keys in the order given, one newline at the end.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    cache::Buffer,
    source::{Memory, SourceError},
};

/// The bytes of a document. NaN and the infinities are `null`.
pub fn document(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Nothing in documents of ours has keys that JSON can't say, and a `Vec` takes all.
    let _ = write(value, &mut bytes);
    bytes
}

/// As [`document`], of any size: memory for it is asked for once, when it is known how much it is.
///
/// # Errors
/// `ENOMEM`.
pub fn large_document(value: &impl Serialize, memory: &dyn Memory) -> Result<Buffer, SourceError> {
    let mut size = Counted(0);
    write(value, &mut size)?;
    memory.reserve(size.0 as u64)?;
    let mut bytes = Buffer::zeroed(size.0)?;
    write(value, &mut &mut bytes[..])?;
    Ok(bytes)
}

fn write(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Counts what is written.
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
