//! Texts and rows of bytes: chunks whose elements have different lengths (`docs/formats/zarr.md` 7.1 to 7.3).

use std::{ops::Range, sync::Arc};

use super::chunks::{self, Stored, TEXTS};
use crate::{
    cache::{BlockError, Buffer, Key},
    codec::{Codec, DecodeError},
    format::zarr,
    source::{Memory, SourceError},
    tree::{describe, rows::Rows},
    view::{Fault, ReadContext, Rendered, View},
    wanted,
};

/// The elements of an array of texts or rows of bytes.
#[derive(Debug, Clone)]
pub(super) struct Texts {
    /// Its chunks; `None` if it has no elements.
    pub(super) stored: Option<Arc<Stored>>,
    /// Whether elements are texts, which are UTF-8.
    pub(super) is_text: bool,
    /// An element of absent chunks.
    pub(super) fill: Arc<[u8]>,
    /// Number of elements.
    pub(super) count: u64,
}

/// A decoded chunk: its bytes with all codecs from bytes to bytes undone, then the places of the elements' lengths in
/// them, as little-endian 32-bit numbers.
struct Chunk {
    bytes: Arc<Buffer>,
    /// Bytes without the places.
    len: usize,
}

impl Chunk {
    /// Returns an element.
    fn get(&self, number: u64) -> Option<&[u8]> {
        let word = |at: usize| {
            let word = self.bytes.get(at..)?.first_chunk()?;
            usize::try_from(u32::from_le_bytes(*word)).ok()
        };
        let at = word(self.len.checked_add(usize::try_from(number).ok()?.checked_mul(4)?)?)?;
        self.bytes.get(at + 4..(at + 4).checked_add(word(at)?)?)
    }
}

impl Texts {
    /// Returns the number of elements of a chunk.
    fn of_chunk(stored: &Stored) -> u64 {
        stored.written.chunk.iter().product()
    }

    /// Returns a decoded chunk; `None` for an absent one.
    fn chunk(&self, stored: &Stored, reader: &ReadContext, at: &[u64]) -> Result<Option<Chunk>, Fault> {
        let Some(place) = stored.find(reader, at)? else { return Ok(None) };
        let number = chunks::linear(at.iter().copied(), chunks::counts(&stored.shape, &stored.written.chunk));
        let count = Self::of_chunk(stored);
        let key = Key::new(reader.container, TEXTS, stored.number, number);
        let bytes = describe::kept_as(reader, key, |memory| {
            let block = stored.raw_block(&place, 0)?;
            let fault = |reason: String| {
                let error = Arc::new(BlockError::Refused(format!("{}: chunk {at:?}: {reason}", stored.name())));
                Fault { block: None, offset: block.offset, error }
            };
            memory.reserve(block.stored_size)?;
            let encoded = place.reader(reader).source.read(block.stored())?;
            if let Some(crc) = block.crc.filter(|crc| crc.kind.of(&encoded) != crc.value) {
                return Err(fault(format!("its checksum is not {:08x}", crc.value)));
            }
            let decoded = decode(&block.codec, encoded, memory)?;
            let mut bytes = decoded.map_err(|error| match error.of_source() {
                Ok(error) => Fault::from(error),
                Err(error) => fault(error.to_string()),
            })?;
            memory.reserve(count.min(bytes.len() as u64 / 4).saturating_mul(12))?;
            let places = self.places(&bytes, count).map_err(fault)?;
            bytes.extend(places.into_iter().flat_map(u32::to_le_bytes));
            Ok(Buffer::from(bytes))
        })?;
        let len = bytes.len().saturating_sub(usize::try_from(count * 4).unwrap_or(usize::MAX));
        Ok(Some(Chunk { bytes, len }))
    }

    /// Returns where the length of each element is.
    fn places(&self, bytes: &[u8], count: u64) -> Result<Vec<u32>, String> {
        let word =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_le_bytes(*word));
        let stated = word(0).ok_or("it is shorter than the number of its elements")?;
        if u64::from(stated) != count {
            return Err(format!("it has {stated} elements, where {count} are needed"));
        }
        let (mut at, mut places) = (4usize, Vec::new());
        for number in 0..count {
            if number.is_multiple_of(1 << 16) {
                wanted::check().map_err(|error| error.to_string())?;
            }
            let text = word(at).and_then(|length| bytes.get(at + 4..(at + 4).checked_add(length as usize)?));
            let text = text.ok_or_else(|| format!("element {number} ends behind it"))?;
            if self.is_text && std::str::from_utf8(text).is_err() {
                return Err(format!("element {number} is not UTF-8"));
            }
            places.push(at as u32);
            at += 4 + text.len();
        }
        Ok(places)
    }

    /// Returns a chunk before its elements are separated, as `.raw` shows it.
    ///
    /// # Errors
    /// [`Fault`] if it cannot be decoded.
    pub(super) fn raw(&self, stored: &Stored, reader: &ReadContext, at: &[u64]) -> Result<View, Fault> {
        let Some(Chunk { bytes, len }) = self.chunk(stored, reader, at)? else { return Ok(View::default()) };
        Ok(View::default().with_rendered(len as u64, Front(bytes)))
    }
}

/// The first bytes of a buffer.
struct Front(Arc<Buffer>);

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the front of a decoded chunk")
    }
}

impl Rendered for Front {
    fn fill(&self, _: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.0.get(part.start as usize..part.end as usize).ok_or(SourceError::Changed)?;
        out.copy_from_slice(bytes);
        Ok(())
    }
}

/// Decodes a chunk whose size is not known: first with room for a few times its stored bytes, then for more.
fn decode(codec: &Codec, stored: Vec<u8>, memory: &dyn Memory) -> Result<Result<Vec<u8>, DecodeError>, Fault> {
    if *codec == Codec::None {
        return Ok(Ok(stored));
    }
    let mut most = (stored.len() as u64).saturating_mul(8).saturating_add(64 << 10).min(zarr::CHUNK);
    loop {
        memory.reserve(most.saturating_mul(3).saturating_add(codec.working_memory(0, stored.len() as u64, most)))?;
        match codec.decode_up_to(&stored, most) {
            Err(DecodeError::Size { .. }) if most < zarr::CHUNK => most = most.saturating_mul(8).min(zarr::CHUNK),
            decoded => return Ok(decoded),
        }
    }
}

impl Rows for Texts {
    fn count(&self) -> u64 {
        self.count
    }

    /// By the first axis: elements of rows of chunks of which none is stored are the same.
    fn run(&self, reader: &ReadContext, rows: Range<u64>) -> Result<(u64, bool), Fault> {
        let Some(stored) = &self.stored else { return Ok((rows.end, true)) };
        let listed = match stored.listed(reader) {
            Ok(listed) => listed,
            Err(fault) if fault.would_block_for().is_some() => return Err(fault),
            // Each chunk is looked up then.
            Err(_) => return Ok((rows.end, false)),
        };
        let Some(chunk) = stored.written.chunk.first() else { return Ok((rows.end, false)) };
        let elements = stored.shape.iter().skip(1).product::<u64>().saturating_mul(*chunk).max(1);
        let across = chunks::counts(&stored.shape, &stored.written.chunk).skip(1).product::<u64>().max(1);
        let numbers = listed.as_chunks::<8>().0;
        let first = rows.start / elements;
        let at = numbers.partition_point(|number| u64::from_le_bytes(*number) / across < first);
        let next = numbers.get(at).map(|number| u64::from_le_bytes(*number) / across);
        Ok(match next {
            Some(next) if next == first => ((first + 1).saturating_mul(elements).min(rows.end), false),
            Some(next) => (next.saturating_mul(elements).min(rows.end), true),
            None => (rows.end, true),
        })
    }

    fn each(
        &self,
        reader: &ReadContext,
        _: &dyn Memory,
        rows: Range<u64>,
        each: &mut dyn FnMut(Option<&[u8]>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Some(stored) = &self.stored else { return Ok(()) };
        let (shape, size) = (&stored.shape, &stored.written.chunk);
        let rank = shape.len();
        let order = stored.written.order.clone().unwrap_or_else(|| (0..rank).collect());
        let (mut strides, mut stride) = (vec![0; rank], 1);
        for axis in order.into_iter().rev() {
            if let (Some(own), Some(size)) = (strides.get_mut(axis), size.get(axis)) {
                (*own, stride) = (stride, stride * size);
            }
        }
        let mut current: Option<(Vec<u64>, Option<Chunk>)> = None;
        let has_several = rows.end - rows.start > Self::of_chunk(stored);
        let (mut row, mut known) = (rows.start, rows.start);
        while row < rows.end {
            wanted::check().map_err(SourceError::from)?;
            if has_several && row >= known {
                let (behind, are_same) = self.run(reader, row..rows.end)?;
                known = behind;
                if are_same {
                    (row..behind).try_for_each(|_| each(Some(&self.fill)))?;
                    row = behind;
                    continue;
                }
            }
            let place = chunks::place(row, shape);
            let chunk: Vec<u64> = place.iter().zip(size).map(|(at, size)| at / size.max(&1)).collect();
            let inside = place.iter().zip(size).map(|(at, size)| at % size.max(&1));
            let first: u64 = inside.zip(&strides).map(|(at, stride)| at * stride).sum();
            // Up to the end of the chunk along the last axis, or to that of the array.
            let run = match (place.last(), size.last(), shape.last(), chunk.last()) {
                (Some(at), Some(size), Some(shape), Some(chunk)) => ((chunk + 1) * size).min(*shape) - at,
                _ => 1,
            };
            let run = run.min(rows.end - row);
            if current.as_ref().is_none_or(|(known, _)| *known != chunk) {
                let decoded = self.chunk(stored, reader, &chunk)?;
                current = Some((chunk, decoded));
            }
            let decoded = current.as_ref().and_then(|(_, decoded)| decoded.as_ref());
            let step = strides.last().copied().unwrap_or(0);
            for number in 0..run {
                match decoded {
                    None => each(Some(&self.fill))?,
                    Some(decoded) => {
                        let text = decoded.get(first + number * step).ok_or(SourceError::Changed)?;
                        each(Some(text))?;
                    }
                }
            }
            row += run;
        }
        Ok(())
    }
}
