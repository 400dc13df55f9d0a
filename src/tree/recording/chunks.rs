//! Reads chunks and the messages in them.

use std::{ops::Range, sync::Arc};

use super::{
    Core, damaged, fault_of,
    order::{Entries, Then},
};
use crate::{
    cache::{Buffer, Key, Tag},
    codec::Codec,
    format::{
        Block, PartError,
        recording::{Bytes, EachChunk, Entry, InFile, Placed},
    },
    source::{Memory, SourceError, Wait},
    tree::{WorkingMemory, memory::unread},
    view::{BlockRef, Data, Fault, ReadContext, View},
};

/// Largest message in an uncompressed chunk, in bytes, that is read without reserving memory.
const FEW: u64 = 64 << 10;

/// A chunk that can be read.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) block: BlockRef,
    /// Its bytes, if it is compressed.
    decoded: Option<Arc<Buffer>>,
}

impl Chunk {
    /// Calls a function with the records of the chunk.
    pub(super) fn with<T>(&self, reader: &ReadContext, use_it: impl FnOnce(&dyn Bytes) -> T) -> T {
        match &self.decoded {
            Some(bytes) => use_it(&SliceOf(bytes)),
            None => use_it(&self.in_file(reader)),
        }
    }

    /// Returns its bytes in the file, for an uncompressed chunk.
    fn in_file<'a>(&self, reader: &'a ReadContext) -> InFile<'a> {
        let Block { offset, size, .. } = self.block.block;
        InFile::new(&*reader.source, offset..offset.saturating_add(size))
    }

    /// Returns whether its records are stored uncompressed.
    pub(super) fn is_in_file(&self) -> bool {
        self.decoded.is_none()
    }

    /// Returns a part of its records as a file.
    pub(super) fn view(&self, range: Range<u64>) -> View {
        View::default().with(range.end.saturating_sub(range.start), self.data(range))
    }

    /// Returns a part of its records.
    pub(super) fn data(&self, range: Range<u64>) -> Data {
        Data::Block(self.block.clone(), range)
    }
}

/// A decoded chunk.
struct SliceOf<'a>(&'a [u8]);

impl Bytes for SliceOf<'_> {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn get(&self, at: u64, length: u64) -> Result<std::borrow::Cow<'_, [u8]>, PartError> {
        Bytes::get(self.0, at, length)
    }
}

/// A chunk, and its records in the file for one that is not compressed.
type Held<'a> = (Chunk, InFile<'a>);

/// A message: its row, and its place and bytes or why it cannot be read.
pub(super) struct Message<'a> {
    pub(super) row: u64,
    pub(super) placed: Result<(Placed, &'a [u8]), Fault>,
}

impl Core {
    /// Returns a chunk, decoded and checked.
    pub(super) fn chunk(&self, reader: &ReadContext, number: u32) -> Result<Chunk, Fault> {
        let block = self.layout.block(&*reader.source, number).map_err(|error| fault_of(number, error))?;
        chunk(reader, number, block)
    }

    /// Starts to decode a chunk that will be read soon.
    fn decode_ahead(&self, reader: &ReadContext, number: u32) {
        if reader.wait() != Wait::Always {
            return;
        }
        // Its errors are reported when it is read.
        let Ok(block) = self.layout.block(&*reader.source, number) else { return };
        if block.codec != Codec::None {
            reader.cache.decode_ahead(reader.keyed(key(reader, number), &block), true);
        }
    }

    /// Returns a message's chunk, and the message's place in it.
    pub(super) fn find(&self, reader: &ReadContext, folder: u32, row: u64) -> Result<(Chunk, Placed), Fault> {
        let entries = self.entries(reader, folder, row, Then::Message)?;
        let Some((entry, number)) = entries.get(row) else {
            return Err(damaged(0, &format!("there is no message {row}")));
        };
        let chunk = self.chunk(reader, number)?;
        let placed = chunk.with(reader, |bytes| self.layout.place(bytes, &entry));
        placed.map(|placed| (chunk, placed)).map_err(|error| fault_of(number, error))
    }

    /// Returns the row to go on at after a damaged message: if its chunk is damaged, that of the next message in another
    /// one.
    pub(super) fn after_damage(&self, reader: &ReadContext, folder: u32, row: u64) -> Result<u64, Fault> {
        let Ok(entries) = only_damage(self.entries(reader, folder, row, Then::Message))? else {
            let end = only_damage(self.end_of_segment(reader, folder, row))?;
            return Ok(end.unwrap_or_else(|_| self.messages(folder)));
        };
        let Some((_, number)) = entries.get(row) else { return Ok(row + 1) };
        if only_damage(self.chunk(reader, number))?.is_ok() {
            return Ok(row + 1);
        }
        let is_other = |row: &u64| entries.get(*row).is_none_or(|(_, chunk)| chunk != number);
        Ok((row..entries.end()).find(is_other).unwrap_or_else(|| entries.end()))
    }

    /// Passes on the entries of each segment that has some of the rows, and which rows these are.
    fn each_segment(
        &self,
        reader: &ReadContext,
        folder: u32,
        rows: Range<u64>,
        mut each: impl FnMut(&Entries, Range<u64>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut row = rows.start;
        while row < rows.end {
            let entries = self.entries(reader, folder, row, Then::Rows(rows.end))?;
            let end = entries.end().min(rows.end);
            if end <= row {
                return Err(damaged(0, &format!("there is no message {row}")));
            }
            each(&entries, row..end)?;
            row = end;
        }
        Ok(())
    }

    /// Passes on the entries of some rows.
    pub(super) fn each_entry(
        &self,
        reader: &ReadContext,
        folder: u32,
        rows: Range<u64>,
        mut each: impl FnMut(u64, Entry, u32) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.each_segment(reader, folder, rows, |entries, mut rows| {
            rows.try_for_each(|row| entries.get(row).map_or(Ok(()), |(entry, chunk)| each(row, entry, chunk)))
        })
    }

    /// Passes on the messages of some rows, including those that are damaged. Fails at any other error.
    pub(super) fn each_message(
        &self,
        reader: &ReadContext,
        folder: u32,
        rows: Range<u64>,
        mut each: impl FnMut(Message<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let end = rows.end;
        self.each_segment(reader, folder, rows, |entries, rows| {
            // No chunk is held from one segment to the next: its entries may need another chunk, and the memory for it.
            let mut last: Option<(u32, Result<Held<'_>, Fault>)> = None;
            for row in rows {
                let Some((entry, number)) = entries.get(row) else { break };
                if last.as_ref().is_none_or(|(known, _)| *known != number) {
                    crate::wanted::check().map_err(SourceError::from)?;
                    // The memory of the previous chunk is released first.
                    drop(last.take());
                    if let Some(next) = self.chunk_after(folder, row, end).filter(|next| *next != number) {
                        self.decode_ahead(reader, next);
                    }
                    let chunk = only_damage(self.chunk(reader, number))?;
                    last = Some((number, chunk.map(|chunk| (chunk.clone(), chunk.in_file(reader)))));
                }
                let (chunk, in_file) = match &last {
                    Some((_, Ok(last))) => last,
                    Some((_, Err(fault))) => {
                        each(Message { row, placed: Err(fault.clone()) })?;
                        continue;
                    }
                    None => break,
                };
                let slice = chunk.decoded.as_ref().map(|bytes| SliceOf(bytes));
                let bytes: &dyn Bytes = slice.as_ref().map_or(in_file as &dyn Bytes, |slice| slice);
                let placed = self.layout.place(bytes, &entry);
                let length = placed.as_ref().map_or(0, |placed| placed.data.end - placed.data.start);
                let memory = WorkingMemory::held(&reader.cache);
                if chunk.decoded.is_none() && length > FEW {
                    memory.reserve(length)?;
                }
                let message = placed.and_then(|placed| {
                    let bytes = bytes.get(placed.data.start, length)?;
                    Ok((placed, bytes))
                });
                match only_damage(message.map_err(|error| fault_of(number, error)))? {
                    Ok((placed, bytes)) => each(Message { row, placed: Ok((placed, &bytes)) })?,
                    Err(fault) => each(Message { row, placed: Err(fault) })?,
                }
            }
            Ok(())
        })
    }
}

/// Returns damage as a value, and all other errors as errors.
pub(super) fn only_damage<T>(result: Result<T, Fault>) -> Result<Result<T, Fault>, Fault> {
    match result {
        Err(fault) if !fault.error.is_damage() || fault.would_block_for().is_some() => Err(fault),
        result => Ok(result),
    }
}

/// Decodes a chunk and passes its records on, for parsers that must read chunks.
///
/// # Errors
/// `Damaged` if it cannot be decoded; `Source` if it cannot be read or there is not enough memory; those of `each`.
pub(in crate::tree) fn decoded(
    reader: &ReadContext,
    number: u32,
    block: &Block,
    each: &mut EachChunk<'_>,
) -> Result<(), PartError> {
    match chunk(reader, number, block.clone()) {
        Ok(chunk) => chunk.with(reader, |bytes| each(bytes)),
        Err(fault) if fault.error.is_damage() => Err(PartError::Damaged(fault.error.to_string())),
        Err(fault) => Err(PartError::Source(unread(&fault.error))),
    }
}

/// Returns the key of a chunk in the cache.
fn key(reader: &ReadContext, number: u32) -> Key {
    Key::new(reader.container, Tag::Block, number.into(), 0)
}

/// Decodes and checks a chunk.
fn chunk(reader: &ReadContext, number: u32, block: Block) -> Result<Chunk, Fault> {
    let key = key(reader, number);
    let block = BlockRef { number, block, error: None };
    let size = block.block.size;
    let decoded = match block.block.codec {
        Codec::None => {
            reader.check(&block, &(0..size))?;
            None
        }
        _ if size == 0 => Some(Arc::default()),
        _ => Some(reader.piece(key, &block.block, &(0..size)).map_err(|error| block.fault(error))?.bytes),
    };
    match &decoded {
        Some(bytes) if bytes.len() as u64 != size => Err(damaged(number, "it was decoded in parts")),
        _ => Ok(Chunk { block, decoded }),
    }
}
