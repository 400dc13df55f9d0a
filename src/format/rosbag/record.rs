//! Records of bags: headers of named fields, and data.

use std::{borrow::Cow, ops::Range};

use super::LONGEST;
use crate::{
    format::{
        Fields, PartError,
        recording::{Bytes, Entry, Front, Window},
    },
    source::{Memory, Source, SourceError, to_usize},
};

/// The fields of a header.
pub(super) struct Header<'a> {
    bytes: Cow<'a, [u8]>,
}

impl<'a> Header<'a> {
    /// Parses a header; `None` if a field is not inside it, or has no name.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        fields(bytes).all(|field| field.is_some()).then_some(Self { bytes: Cow::Borrowed(bytes) })
    }

    /// Returns the value of a field. If a name occurs several times, the last counts.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let named = fields(&self.bytes).flatten().filter(|(found, _)| *found == name.as_bytes());
        named.last().map(|(_, value)| value)
    }

    pub(super) fn op(&self) -> Option<u8> {
        match self.get("op") {
            Some([op]) => Some(*op),
            _ => None,
        }
    }

    pub(super) fn u32(&self, name: &str) -> Option<u32> {
        self.get(name).and_then(|value| value.try_into().ok()).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(|value| value.try_into().ok()).map(u64::from_le_bytes)
    }
}

/// Iterates over fields. Ends with `None` at one that is not sound.
fn fields(bytes: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    let mut front = Some(Front(bytes));
    std::iter::from_fn(move || {
        let mut here = front.filter(|front| !front.0.is_empty())?;
        let field = here.string().and_then(|field| {
            let (name, value) = field.split_at(field.iter().position(|byte| *byte == b'=')?);
            Some((name, value.get(1..)?))
        });
        front = field.map(|_| here);
        Some(field)
    })
}

/// Returns a time in nanoseconds.
pub(super) fn time(bytes: &[u8]) -> Option<u64> {
    let (seconds, nanos) = (bytes.u32(0)?, bytes.u32(4)?);
    (bytes.len() == 8).then(|| u64::from(seconds) * 1_000_000_000 + u64::from(nanos))
}

/// Reads the header of a record, which must not reach past `end`. Returns the header and where the data are; `None` if
/// it is not sound, and for a header of more than 1 MiB without `memory` to reserve for it.
pub(super) fn read(
    source: &dyn Source,
    window: &mut Window<'_>,
    at: u64,
    end: u64,
    memory: Option<&dyn Memory>,
) -> Result<Option<(Header<'static>, Range<u64>)>, SourceError> {
    let Some(length) = window.from(at, 4)?.u32(0).map(u64::from) else { return Ok(None) };
    let start = at + 4;
    let Some(behind) = start.checked_add(length).filter(|behind| behind.saturating_add(4) <= end) else {
        return Ok(None);
    };
    if length > LONGEST {
        let Some(memory) = memory else { return Ok(None) };
        memory.reserve(length)?;
    }
    let near = window.from(start, length + 4)?;
    let bytes: Vec<u8> = match near.get(..to_usize(length)) {
        Some(bytes) => bytes.to_vec(),
        None => source.read(start..behind)?,
    };
    let Some(size) = window.from(behind, 4)?.u32(0).map(u64::from) else { return Ok(None) };
    let data = behind + 4..behind + 4 + size;
    let is_sound = data.end <= end && Header::parse(&bytes).is_some();
    Ok(is_sound.then_some((Header { bytes: Cow::Owned(bytes) }, data)))
}

/// The header of a record of a chunk, and where its data are.
pub(super) type Inside<'a> = (Cow<'a, [u8]>, Range<u64>);

/// Returns the header of a record of a chunk, and where its data are; `None` if it is not inside the chunk.
pub(super) fn inside(chunk: &dyn Bytes, at: u64) -> Result<Option<Inside<'_>>, PartError> {
    let left = chunk.length().saturating_sub(at);
    if left < 8 {
        return Ok(None);
    }
    let length = chunk.get(at, 4)?.u32(0).map_or(u64::MAX, u64::from);
    if length > LONGEST || length + 8 > left {
        return Ok(None);
    }
    let header = chunk.get(at + 4, length)?;
    let size = chunk.get(at + 4 + length, 4)?.u32(0).map_or(u64::MAX, u64::from);
    let data = at + 8 + length;
    Ok(data.checked_add(size).filter(|end| *end <= chunk.length()).map(|end| (header, data..end)))
}

/// Passes on the messages of a chunk, up to a record that is not sound. Returns whether all are sound.
pub(super) fn messages(chunk: &dyn Bytes, each: &mut dyn FnMut(Entry)) -> Result<bool, PartError> {
    let (mut at, mut steps) = (0, 0u32);
    while at < chunk.length() {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(4096) {
            crate::wanted::check().map_err(SourceError::from)?;
        }
        let Some((header, data)) = inside(chunk, at)? else { return Ok(false) };
        let Some(header) = Header::parse(&header) else { return Ok(false) };
        if header.op() == Some(2) {
            let (Some(source), Some(time)) = (header.u32("conn"), header.get("time").and_then(time)) else {
                return Ok(false);
            };
            each(Entry { time, offset: at, source });
        }
        at = data.end;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Unlimited;

    #[test]
    fn a_long_header_is_read_into_reserved_memory_only() {
        let mut bytes = Vec::new();
        [LONGEST + 6, LONGEST + 2].iter().for_each(|length| bytes.extend((*length as u32).to_le_bytes()));
        bytes.extend(b"a=");
        bytes.resize(bytes.len() + LONGEST as usize, b'x');
        bytes.extend([0; 4]);
        let end = bytes.len() as u64;
        let is_read = |memory: Option<&dyn Memory>| {
            read(&bytes, &mut Window::new(&bytes, end), 0, end, memory).unwrap().is_some()
        };
        assert!(is_read(Some(&Unlimited)) && !is_read(None));
    }
}
