//! What a format finds out by reading a whole file, or most of it, found once for each state of the file: kept on disk if there is one.

use std::ops::Range;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cache::KeptName,
    format::FormatError,
    source::{Memory, SourceError},
    view::{ReadContext, json},
};

/// Most bytes that are kept of one file.
const MOST: u64 = 64 << 20;

/// Bytes of memory that reading takes for each byte that was kept, at most about: a small list of a few numbers.
const UNPACKED: u64 = 8;

/// Returns what `find` finds in a part of the file, or what it has found in this state of the file, perhaps in another
/// process. `name` tells what it is, and in which layout; another layout needs another name.
///
/// # Errors
/// Those of `find`; if there is no memory for what was kept.
pub(super) fn once<T: Serialize + DeserializeOwned>(
    reader: &ReadContext,
    name: &str,
    part: Range<u64>,
    memory: &dyn Memory,
    find: impl FnOnce() -> Result<T, FormatError>,
) -> Result<T, FormatError> {
    let source = &*reader.source;
    let kept = KeptName { kind: name, name: b"", from: part };
    if let Some(bytes) = reader.cache.kept_bytes(source, &kept, MOST) {
        memory.reserve((bytes.len() as u64).saturating_mul(UNPACKED))?;
        // What cannot be read is found again.
        if let Ok(found) = serde_json::from_slice(&bytes) {
            return Ok(found);
        }
    }
    let found = find()?;
    if reader.cache.can_keep(source) {
        let write = |out: &mut dyn std::io::Write| {
            serde_json::to_writer(out, &found).map_err(|error| SourceError::from(std::io::Error::from(error)))
        };
        let bytes = json::large(write, memory)?;
        if bytes.len() as u64 <= MOST {
            reader.cache.keep_bytes(source, &kept, bytes.to_vec());
        }
    }
    Ok(found)
}
