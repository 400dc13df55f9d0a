//! The chunks of an array as files in `.raw` (`docs/formats/zarr.md` 7.4).

use std::{
    fmt,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use super::{
    ArrayNode, Shown,
    chunks::{self, RAW, Stored},
    refused::Refused,
    store::Place,
};
use crate::{
    cache::{BlockError, Key, Tag},
    codec::Codec,
    format::Block,
    view::{Bytes, Data, Fault, ReadContext, Rendered, View, grid},
};

/// Returns the place of a chunk in the grid of an array, and whether the file shows its stored bytes.
fn place(item: &ArrayNode, number: u64) -> Option<(Vec<u64>, bool)> {
    let stored = item.stored.as_ref()?;
    let counts: Vec<u64> = chunks::counts(&stored.shape, &stored.written.chunk).collect();
    let is_inside = number / 2 < counts.iter().try_fold(1u64, |product, count| product.checked_mul(*count))?;
    is_inside.then(|| (chunks::place(number / 2, &counts), number % 2 == 1))
}

/// Returns the name of the file with a number.
pub(super) fn name(item: &ArrayNode, number: u64) -> Option<String> {
    let (at, is_stored) = place(item, number)?;
    (is_stored || item.reason().is_none()).then(|| grid::chunk_name(&at, is_stored))
}

/// Returns the number of the file with a name, if the chunk is stored.
///
/// # Errors
/// [`Fault`] if that cannot be known.
pub(super) fn look_up(item: &ArrayNode, reader: &ReadContext, name: &str) -> Result<Option<u64>, Fault> {
    let Some(stored) = &item.stored else { return Ok(None) };
    let Some((at, is_stored)) = grid::parse_chunk_name(name, stored.shape.len()) else { return Ok(None) };
    let counts = || chunks::counts(&stored.shape, &stored.written.chunk);
    if !is_stored && item.reason().is_some() || at.iter().zip(counts()).any(|(at, count)| *at >= count) {
        return Ok(None);
    }
    let number = 2 * chunks::linear(at.iter().copied(), counts()) + u64::from(is_stored);
    match stored.find(reader, &at) {
        Ok(None) => Ok(None),
        Err(fault) if fault.would_block_for().is_some() || !fault.error.is_damage() => Err(fault),
        // Reading a damaged chunk reports the damage.
        Ok(Some(_)) | Err(_) => Ok(Some(number)),
    }
}

/// Passes the numbers of all files of stored chunks to `each`, from a position on.
///
/// # Errors
/// [`Fault`] if the store cannot be listed.
pub(super) fn list(
    item: &ArrayNode,
    reader: &ReadContext,
    from: u64,
    each: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let Some(stored) = &item.stored else { return Ok(()) };
    let listed = stored.listed(reader)?;
    let with_decoded = item.reason().is_none();
    let names = if with_decoded { 2 } else { 1 };
    let skipped = usize::try_from(from / names).unwrap_or(usize::MAX);
    let numbers = listed.as_chunks::<8>().0.iter().enumerate().skip(skipped);
    for (at, number) in numbers {
        let number = u64::from_le_bytes(*number);
        for half in 0..names {
            let position = at as u64 * names + half;
            let is_stored = if with_decoded { half } else { 1 };
            if position >= from && each(position + 1, 2 * number + is_stored).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the bytes of the file with a number.
///
/// # Errors
/// [`Fault`] if their place cannot be found.
pub(super) fn view(item: &ArrayNode, reader: &ReadContext, number: u64) -> Result<View, Fault> {
    let (Some(stored), Some((at, is_stored))) = (&item.stored, place(item, number)) else {
        return Ok(View::default());
    };
    let size = decoded_size(item, stored);
    let place = match stored.find(reader, &at) {
        Ok(Some(place)) => place,
        Ok(None) => return Ok(View::default()),
        Err(fault) if fault.would_block_for().is_some() || !fault.error.is_damage() => return Err(fault),
        Err(fault) => {
            let size = if is_stored { 1 } else { size.unwrap_or(1) };
            return Ok(View::default().with_rendered(size, Refused(fault.error.to_string().into())));
        }
    };
    if is_stored {
        return Ok(stored_view(stored, &at, place));
    }
    if let Shown::Rows(texts) = &item.shown {
        return match texts.raw(stored, reader, &at) {
            Err(fault) if fault.error.is_damage() => {
                Ok(View::default().with_rendered(1, Refused(fault.error.to_string().into())))
            }
            found => found,
        };
    }
    let Some(size) = size else { return Ok(View::default()) };
    Ok(View::default().with_rendered(size, Chunk { stored: stored.clone(), number: number / 2, at, size }))
}

/// Returns the stored bytes of a chunk: an inflated member of an archive, or a range of a shard.
fn stored_view(stored: &Stored, at: &[u64], place: Place) -> View {
    if stored.written.shards.is_empty()
        && let Some(zip) = stored.files.store.zip()
        && let Some(number) = zip.number(&stored.key(at))
    {
        return zip.members().view(number);
    }
    let size = place.range.end - place.range.start;
    View::default().with(size, Data::Rendered(Arc::new(Part(place))))
}

/// Returns the size in bytes of a chunk before steps on elements are undone, if known.
fn decoded_size(item: &ArrayNode, stored: &Stored) -> Option<u64> {
    match &item.shown {
        Shown::Grid(_) => {
            let size = stored.written.chunk.iter().product::<u64>().checked_mul(item.fixed()?.size());
            // In version 3, chunks are shown before steps on elements are undone.
            let steps = stored.written.elements.iter().filter(|_| item.is_v3);
            steps.fold(size, |size, step| step.stored_size(size?))
        }
        _ => None,
    }
}

/// A range of a file.
struct Part(Place);

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.range)
    }
}

impl Rendered for Part {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.may_read()?;
        self.0.reader(reader).fill_stored(None, self.0.range.start + part.start, out)
    }
}

/// A chunk after all steps from bytes to bytes are undone; in version 2, also those on elements.
struct Chunk {
    stored: Arc<Stored>,
    number: u64,
    at: Vec<u64>,
    size: u64,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {:?} of {:?}", self.at, self.stored)
    }
}

impl Chunk {
    fn find(&self, reader: &ReadContext) -> Result<Option<(ReadContext, Block, Key)>, Fault> {
        let Some(place) = self.stored.find(reader, &self.at)? else { return Ok(None) };
        let tag = if self.stored.raw_steps.is_some() { RAW } else { Tag::Chunk };
        let key = Key::new(reader.container, tag, self.stored.number, self.number);
        let block = self.stored.raw_block(&place, self.size)?;
        if block.codec == Codec::None && block.stored_size != block.size {
            let (at, stored, needed) = (&self.at, block.stored_size, block.size);
            let reason = format!("chunk {at:?} of {stored} bytes, where {needed} are needed");
            return Err(Fault { block: None, offset: block.offset, error: Arc::new(BlockError::Refused(reason)) });
        }
        Ok(Some((place.reader(reader), block, key)))
    }
}

impl Rendered for Chunk {
    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        let Some((own, block, key)) = self.find(reader)? else { return Ok(None) };
        let borrowed = own.borrow_range(key, &block, part);
        borrowed.map_err(|error| Fault { block: None, offset: block.offset, error })
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let Some((own, block, key)) = self.find(reader)? else {
            return Err(crate::source::SourceError::Changed.into());
        };
        let fault = |error| Fault { block: None, offset: block.offset, error };
        own.check_chunk(key, &block).map_err(fault)?;
        own.fill_range(key, &block, part.start, out).map_err(fault)
    }
}
