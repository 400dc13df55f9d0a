//! Messages that several objects share. A heap of the file stores each once (section 5).

use super::{
    Place, Reader, Result,
    fractal_heap::Heap,
    header::{self, Body},
};

/// Returns the heap that has the shared messages of a kind.
fn heap_of(reader: &Reader<'_>, kind: u16) -> Result<Option<Place>> {
    let Some(extension) = reader.extension else { return Ok(None) };
    let header = header::read(reader, extension)?;
    let Some(message) = header.find(header::SHARED_TABLE) else { return Ok(None) };
    let body = header.body(reader, message)?;
    let mut table = body.structure(reader);
    table.version("a table of shared messages", 0..=0)?;
    let (at, count) = (table.defined()?, u64::from(table.u8()?));
    let index = 14 + 2 * u64::from(reader.sizes.offset);
    let bytes = reader.checked(at, b"SMTB", 4 + count * index + 4)?;
    let mut indexes = reader.structure(at, &bytes);
    indexes.skip(4)?;
    // The index lists both kinds of fill values under one kind.
    let kind = if kind == header::OLD_FILL { header::FILL } else { kind };
    for _ in 0..count {
        indexes.skip(2)?;
        let kinds = indexes.u16()?;
        indexes.skip(10)?;
        let (_, heap) = (indexes.address()?, indexes.address()?);
        if kinds.checked_shr(kind.into()).is_some_and(|kinds| kinds & 1 != 0) {
            return Ok(heap);
        }
    }
    Ok(None)
}

/// Returns a shared message of a kind by its ID in the heap; `place` is where the ID is.
pub(super) fn message(reader: &Reader<'_>, kind: u16, id: &[u8], place: u64) -> Result<Body<'static>> {
    match heap_of(reader, kind)? {
        Some(heap) => Heap::open(reader, heap)?.object(id),
        None => Err(super::Error::damaged(place, format!("a shared message of kind {kind}, and no heap of such"))),
    }
}
