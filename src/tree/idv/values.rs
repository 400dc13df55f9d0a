//! Columns of an IDV file as files. Any range is made from the blocks that it touches, and a mostly zero vector costs
//! only what is stored of it (`docs/formats/idv.md` 11).
//!
//! [`Values`] is one column, or one metadata value as a column of one row. Blocks of texts and vectors are indexed
//! once, and the cache keeps block and index.

mod front;
mod items;
mod lines;
mod rows;
mod shown;
mod totals;

pub(super) use rows::rows;
pub(super) use shown::{File as ValueFile, Raw, Show, Shown};

use std::sync::Arc;

use crate::{
    cache::{BlockError, Buffer, Key, Tag, pair},
    codec::Codec,
    format::{
        Block,
        idv::{Column, Content, Entry, Item, Plan, Type},
    },
    limits,
    single_flight::SingleFlight,
    source::Wait,
    view::{Fault, ReadContext},
};
use totals::{Sum, Totals};

/// What is kept of a block.
#[derive(Debug, Clone, Copy)]
enum ColumnPart {
    /// The block, decoded.
    Block,
    /// An uncompressed block, or one of more than [`limits::WHOLE_BLOCK`], in one piece.
    Whole,
    /// The index of its rows.
    Index,
    /// The index of its JSON lines.
    Lines,
}

/// Added to the tags of what is kept of a metadata value.
const METADATA: u8 = 4;

impl ColumnPart {
    /// Returns what names the part of a block of a column in the cache.
    fn key(self, reader: &ReadContext, column: u32, block: u64) -> Key {
        Key::new(reader.container, Tag::Own(self as u8), column.into(), block)
    }
}

/// The values of one column, or of one metadata entry.
#[derive(Debug)]
pub(super) struct Values {
    column: u32,
    place: Place,
    ty: Type,
    rows: u64,
    rows_per_block: u64,
    /// Number of the first block in the column. Not 0 for a part of a column.
    first: u64,
    blocks: u64,
    totals: [SingleFlight<Arc<Totals>>; 3],
}

/// Where the blocks are.
#[derive(Debug)]
enum Place {
    /// In a column: by its lookup table.
    Table { column: Arc<Column>, tail: u64 },
    /// The only block of a metadata entry with this number.
    Single { entry: u32, block: Block, error: Option<String>, size: SingleFlight<Result<u64, Fault>> },
}

impl Values {
    /// Returns the values of a column of a file whose parts end at `tail`; `None` if it has none.
    pub(super) fn of_column(column: Arc<Column>, rows: u64, tail: u64) -> Option<Self> {
        let ty = column.codec.meaning.clone().ok().filter(|_| column.unusable().is_none())?;
        let (index, rows_per_block, blocks) = (column.index, column.rows_per_block, column.blocks);
        let place = Place::Table { column, tail };
        Some(Self { column: index, place, ty, rows, rows_per_block, first: 0, blocks, totals: Default::default() })
    }

    /// Returns one block of a column as a column of its own, whose files need no other block; `None` for metadata.
    fn part(&self, block: u64) -> Option<Self> {
        let Place::Table { column, tail } = &self.place else { return None };
        let place = Place::Table { column: column.clone(), tail: *tail };
        let (ty, rows, rows_per_block) = (self.ty.clone(), self.rows_of(block), self.rows_per_block);
        let first = self.first + block;
        Some(Self {
            column: self.column,
            place,
            ty,
            rows,
            rows_per_block,
            first,
            blocks: 1,
            totals: Default::default(),
        })
    }

    /// Returns the value of a metadata entry; `None` if it has none.
    pub(super) fn of_metadata(column: u32, number: u32, entry: &Entry) -> Option<Self> {
        let (ty, mut block) = (entry.codec.meaning.clone().ok()?, entry.block()?);
        let size = SingleFlight::default();
        if ty.dims.is_none() && ty.item != Item::Text {
            // All needed bytes are there, or the value is damaged.
            block.size = ty.item.stored(1);
            size.set(Ok(block.size));
        }
        let place = Place::Single { entry: number, block, error: entry.error.clone(), size };
        let (first, totals) = (0, Default::default());
        Some(Self { column, place, ty, rows: 1, rows_per_block: 1, first, blocks: 1, totals })
    }

    /// Returns the type of the values.
    pub(super) fn ty(&self) -> &Type {
        &self.ty
    }

    /// Returns the slots of a row; `None` if each row has its own number.
    fn slots(&self) -> Option<u64> {
        match self.ty.slots() {
            None => Some(1),
            Some(0) => None,
            slots => slots,
        }
    }

    fn rows_of(&self, block: u64) -> u64 {
        self.rows.saturating_sub(block.saturating_mul(self.rows_per_block)).min(self.rows_per_block)
    }

    fn key(&self, reader: &ReadContext, part: ColumnPart, block: u64) -> Key {
        match self.place {
            Place::Table { .. } => part.key(reader, self.column, self.first + block),
            Place::Single { entry, .. } => {
                Key::new(reader.container, Tag::Own(part as u8 + METADATA), pair(self.column, entry), 0)
            }
        }
    }

    /// Returns the failure of a block, with its number and place.
    fn fault(&self, number: u64, offset: u64, error: impl Into<BlockError>) -> Fault {
        self.shared_fault(number, offset, Arc::new(error.into()))
    }

    fn shared_fault(&self, number: u64, offset: u64, error: Arc<BlockError>) -> Fault {
        let block = matches!(self.place, Place::Table { .. }).then_some((self.first + number) as u32);
        Fault { block, offset, error }
    }

    /// Returns where a block is, by its number.
    fn block(&self, reader: &ReadContext, number: u64) -> Result<Block, Fault> {
        self.blocks(reader, number, 1)?.pop().unwrap_or_else(|| {
            let error = BlockError::Refused(format!("there is no block {number}"));
            Err(self.fault(number, 0, error))
        })
    }

    /// Returns where several blocks are. Each may be damaged on its own.
    fn blocks(&self, reader: &ReadContext, first: u64, count: u64) -> Result<Vec<Result<Block, Fault>>, Fault> {
        match &self.place {
            Place::Table { column, tail } => {
                let at = |number: u64| column.record_at(self.first + number);
                let count = count.min(self.blocks.saturating_sub(first));
                let records = column.records(&*reader.source, self.first + first, count);
                let records = records.map_err(|error| self.fault(first, at(first), error))?;
                let block = |(number, record): (u64, crate::format::idv::Record)| {
                    record
                        .block(*tail, column.compression)
                        .map_err(|reason| self.fault(number, at(number), BlockError::Refused(reason)))
                };
                Ok((first..).zip(records).map(block).collect())
            }
            Place::Single { block, error, size, .. } => {
                if let Some(reason) = error {
                    return Ok(vec![Err(self.fault(0, block.offset, BlockError::Refused(reason.clone())))]);
                }
                let compute =
                    || front::full_size(block, &*reader.source).map_err(|error| self.fault(0, block.offset, error));
                let size = computed(size, reader, compute, |size| size.as_ref().err())?;
                let sized = size.and_then(|size| {
                    let checked = block.codec.check_size(block.stored_size, size);
                    checked.map_err(|error| self.fault(0, block.offset, error))?;
                    Ok(Block { size, ..block.clone() })
                });
                Ok(vec![sized])
            }
        }
    }

    /// Returns all bytes of a block in one piece.
    fn whole(&self, reader: &ReadContext, number: u64, block: &Block) -> Result<Arc<Buffer>, Arc<BlockError>> {
        let (cache, source) = (&reader.cache, &reader.source);
        if block.size == 0 {
            return Ok(Arc::default());
        }
        if block.codec != Codec::None && block.size <= limits::WHOLE_BLOCK {
            return Ok(reader.piece(self.key(reader, ColumnPart::Block, number), block, &(0..block.size))?.bytes);
        }
        let key = self.key(reader, ColumnPart::Whole, number);
        let parts = reader.get_or_insert_with(key, || {
            if block.size > limits::WHOLE_BLOCK {
                front::check_rows(block, &**source, self.rows_of(number))?;
            }
            if block.codec != Codec::None {
                // Pieces would have to be joined for each read.
                return Ok(vec![Arc::new(cache.decoded(block, source)?)]);
            }
            let mut bytes = cache.buffer(block.size, 0)?;
            source.fill(block.offset, &mut bytes).map_err(BlockError::from)?;
            Ok(vec![Arc::new(bytes)])
        })?;
        Ok(parts.into_iter().next().unwrap_or_default())
    }

    /// Returns an indexed block of texts or vectors.
    fn content(&self, reader: &ReadContext, number: u64, block: &Block) -> Result<Content<Buffer>, Fault> {
        let rows = self.rows_of(number);
        // The least that this many rows take, checked before anything is decoded for them.
        let least = if self.ty.dims.is_some() { 12 + 4 * rows } else { self.ty.item.stored(rows) };
        if block.size < least {
            let reason = format!("{} bytes are too few for {rows} rows", block.size);
            return Err(self.fault(number, block.offset, BlockError::Refused(reason)));
        }
        let cache = &reader.cache;
        // The block is kept with its index: threads that wait for the index hold nothing, not even the block.
        let parsed = reader.get_or_insert_with(self.key(reader, ColumnPart::Index, number), || {
            let bytes = self.whole(reader, number, block)?;
            // Only a pass over the block shows how large the index is.
            let plan = Plan::of(&bytes, rows, self.ty.slots(), self.ty.item).map_err(BlockError::Refused)?;
            let mut index = cache.buffer(plan.size(), bytes.len() as u64)?;
            plan.fill(&bytes, &mut index).map_err(BlockError::Refused)?;
            Ok(vec![bytes, Arc::new(index)])
        });
        let mut parts = parsed.map_err(|error| self.shared_fault(number, block.offset, error))?.into_iter();
        Ok(Content::new(parts.next().unwrap_or_default(), parts.next().unwrap_or_default()))
    }

    /// Copies decoded bytes of a block of plain values.
    fn read(&self, reader: &ReadContext, number: u64, block: &Block, at: u64, out: &mut [u8]) -> Result<(), Fault> {
        let key = self.key(reader, ColumnPart::Block, number);
        if at.saturating_add(out.len() as u64) > block.size {
            let reason = format!("{} bytes are too few for its values", block.size);
            return Err(self.fault(number, block.offset, BlockError::Refused(reason)));
        }
        reader.fill_range(key, block, at, out).map_err(|error| self.shared_fault(number, block.offset, error))
    }

    /// Returns sums over blocks, computed on first use.
    ///
    /// # Errors
    /// `WouldBlock` if they are not known and the caller does not wait for them.
    fn totals(&self, reader: &ReadContext, sum: Sum) -> Result<Arc<Totals>, Fault> {
        let known = &self.totals[sum as usize];
        // Sizes of text in the lookup table only need a read of it.
        if sum == Sum::Text
            && reader.wait() != Wait::Always
            && known.get().is_none()
            && reader.may_read().map(|()| true)?
            && let Some(totals) = Totals::from_table(self, reader).map(Arc::new)
        {
            known.set(totals.clone());
            self.count(reader, &totals);
            return Ok(totals);
        }
        let compute = || {
            let totals = Arc::new(Totals::compute(self, reader, sum));
            self.count(reader, &totals);
            totals
        };
        computed(known, reader, compute, |totals| totals.fault())
    }

    /// Counts sums as memory of the column.
    fn count(&self, reader: &ReadContext, totals: &Totals) {
        let key = Key::new(reader.container, super::LOADED, self.column.into(), 0);
        reader.cache.grow_parsed(key, (totals.memory_usage() * size_of::<u64>()) as u64);
    }

    /// Returns how many numbers it keeps. Those that are being added up do not count yet.
    pub(super) fn memory_usage(&self) -> usize {
        self.totals.iter().filter_map(|totals| Some(totals.get()?.memory_usage())).sum()
    }
}

/// Returns a value that is computed on first use; concurrent callers wait for it. It is not kept if computing it failed
/// because the disk failed, memory ran out or the reader was killed, so that the next call tries again.
///
/// # Errors
/// `WouldBlock` if it is not known and the caller does not wait for it.
fn computed<T: Clone>(
    known: &SingleFlight<T>,
    reader: &ReadContext,
    compute: impl FnOnce() -> T,
    fault: fn(&T) -> Option<&Fault>,
) -> Result<T, Fault> {
    if reader.wait() != Wait::Always {
        return known.get().ok_or_else(|| BlockError::WouldBlock.into());
    }
    let to_keep = || {
        let value = compute();
        match fault(&value).is_some_and(|fault| matches!(&*fault.error, BlockError::Source(_) | BlockError::Memory(_)))
        {
            true => Err(value),
            false => Ok(value),
        }
    };
    Ok(known.get_or_try_init(to_keep).unwrap_or_else(|value| value))
}
