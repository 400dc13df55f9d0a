//! Sums over blocks: where each block's part of a file begins if rows differ in size.

use std::{collections::HashMap, ops::ControlFlow, thread};

use parking_lot::Mutex;

use super::{Fault, ReadContext, Values, front, lines};
use crate::{
    cache::{BlockError, Reservation},
    codec::{Codec, DecodeError},
    format::Block,
    limits, parallel,
    source::SourceError,
    wanted,
};

/// Blocks whose sums are made together.
const STEP: u64 = 4096;

/// Bytes of blocks from which several threads are used.
const WORTH: u64 = 1 << 20;

/// Most blocks of text whose sums may be made to list a folder, if the lookup table has their sizes.
const FEW: u64 = 4096;

/// Bytes of memory that a block takes that is remembered by its place.
const SEEN: u64 = 96;

/// What is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    /// Slots of vectors with their own numbers of slots.
    Slots = 0,
    /// Bytes of text.
    Text = 1,
    /// Bytes of JSON lines.
    Lines = 2,
}

/// The sums before each block, up to the first whose size cannot be known.
#[derive(Debug)]
pub(super) struct Totals {
    /// One more than blocks, or fewer if a block failed.
    starts: Vec<u64>,
    fault: Option<Fault>,
    /// Counts the memory that they take.
    room: Option<Reservation>,
}

impl Totals {
    /// Examines every block, several at a time if they must be decoded.
    pub(super) fn compute(values: &Values, reader: &ReadContext, sum: Sum) -> Self {
        let mut totals = Self { starts: vec![0], fault: None, room: None };
        if values.blocks > limits::IDV_SIZED_BLOCKS {
            let reason = format!("{} blocks are too many to add up their sizes", values.blocks);
            totals.fault = Some(values.fault(0, 0, BlockError::Refused(reason)));
            return totals;
        }
        let kept = 8 * (values.blocks + 1);
        match reader.cache.reserve(kept + SEEN * values.blocks.min(limits::IDV_SEEN_BLOCKS as u64)) {
            Ok(mut room) => {
                // Held, because blocks are decoded meanwhile.
                room.hold();
                totals.room = Some(room);
            }
            Err(refused) => {
                totals.fault = Some(values.fault(0, 0, refused));
                return totals;
            }
        }
        // The file has a record for each of the blocks, which bounds them.
        if totals.starts.try_reserve_exact(values.blocks as usize).is_err() {
            totals.fault = Some(values.fault(0, 0, DecodeError::Memory(8 * values.blocks)));
            return totals;
        }
        let mut first = 0;
        let mut at = 0u64;
        let mut seen = Seen::default();
        while first < values.blocks {
            if let Err(error) = wanted::check() {
                totals.fault = Some(values.fault(first, 0, SourceError::from(error)));
                return totals;
            }
            let sizes = match values.blocks(reader, first, STEP) {
                Ok(blocks) => seen.sizes(values, reader, sum, first, &blocks),
                Err(fault) => vec![Err(fault)],
            };
            for (number, size) in (first..).zip(sizes) {
                let next = size.and_then(|size| {
                    let next = at.checked_add(size).filter(|next| i64::try_from(*next).is_ok());
                    let too_long = || BlockError::Refused("its column would have more than 2^63 bytes".into());
                    next.ok_or_else(|| values.fault(number, 0, too_long()))
                });
                match next {
                    Ok(next) => at = next,
                    Err(fault) => {
                        totals.fault = Some(fault);
                        return totals;
                    }
                }
                totals.starts.push(at);
            }
            first += STEP;
        }
        if let Some(room) = &mut totals.room {
            room.shrink_to(kept);
        }
        totals
    }

    /// Does the same from the lookup table alone, if that is little work and sufficient.
    pub(super) fn from_table(values: &Values, reader: &ReadContext) -> Option<Self> {
        if values.blocks > FEW || values.ty.dims.is_some() {
            return None;
        }
        let mut totals = Self { starts: vec![0], fault: None, room: None };
        let mut at = 0;
        for (number, block) in (0..).zip(values.blocks(reader, 0, FEW).ok()?) {
            at += front::text_of_scalars(&block.ok()?, values.rows_of(number))?;
            totals.starts.push(at);
        }
        Some(totals)
    }

    /// Returns the sum before a block; for the number of blocks, the total.
    pub(super) fn start(&self, block: u64) -> Result<u64, Fault> {
        match (self.starts.get(block as usize), &self.fault) {
            (Some(start), _) => Ok(*start),
            (None, Some(fault)) => Err(fault.clone()),
            (None, None) => Ok(self.starts.last().copied().unwrap_or(0)),
        }
    }

    /// Returns the total.
    pub(super) fn all(&self) -> Result<u64, Fault> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(self.starts.last().copied().unwrap_or(0)),
        }
    }

    /// Returns the block that holds a place.
    pub(super) fn find(&self, at: u64) -> u64 {
        (self.starts.partition_point(|start| *start <= at) as u64).saturating_sub(1)
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

/// What determines a block's size: its offset, its stored and decoded bytes, and its rows.
type Stored = (u64, u64, u64, u64);

/// Blocks that were examined while a column is added up. Records of a lookup table may point at the same bytes: equal
/// records cost one look, and all together at most as many bytes as the file would have if none were shared.
#[derive(Default)]
struct Seen {
    sizes: HashMap<Stored, u64>,
    /// Stored bytes of all blocks that were examined.
    read: u64,
}

impl Seen {
    /// Returns the sizes of blocks, up to the first that has none.
    fn sizes(
        &mut self,
        values: &Values,
        reader: &ReadContext,
        sum: Sum,
        first: u64,
        blocks: &[Result<Block, Fault>],
    ) -> Vec<Result<u64, Fault>> {
        let mut sizes = vec![None; blocks.len()];
        let (mut wanted, mut again) = (HashMap::new(), Vec::new());
        let mut todo = Vec::new();
        for (at, block) in blocks.iter().enumerate() {
            let block = match block {
                Ok(block) => block,
                Err(fault) => {
                    sizes[at] = Some(Err(fault.clone()));
                    break;
                }
            };
            let rows = values.rows_of(first + at as u64);
            if sum == Sum::Text
                && values.ty.dims.is_none()
                && let Some(size) = front::text_of_scalars(block, rows)
            {
                sizes[at] = Some(Ok(size));
                continue;
            }
            let stored = (block.offset, block.stored_size, block.size, rows);
            if let Some(size) = self.sizes.get(&stored) {
                sizes[at] = Some(Ok(*size));
            } else if let Some(same) = wanted.get(&stored) {
                again.push((at, *same));
            } else {
                self.read = self.read.saturating_add(block.stored_size);
                if self.read > reader.source.len() {
                    let reason = "blocks overlap: up to here they have more bytes than the file".into();
                    let fault = values.fault(first + at as u64, block.offset, BlockError::Refused(reason));
                    sizes[at] = Some(Err(fault));
                    break;
                }
                wanted.insert(stored, at);
                todo.push((at, block.clone()));
            }
        }
        for (at, size) in look(values, reader, sum, first, &todo) {
            sizes[at] = Some(size);
        }
        for (at, same) in again {
            sizes[at] = sizes[same].clone();
        }
        for (stored, at) in wanted {
            if let Some(Ok(size)) = sizes[at]
                && self.sizes.len() < limits::IDV_SEEN_BLOCKS
            {
                self.sizes.insert(stored, size);
            }
        }
        // Sizes after a failure are `None`. They are not needed, because adding up ends there.
        sizes.into_iter().map_while(|size| size).collect()
    }
}

/// Examines blocks, several at a time if they must be decoded. After the first failure some may be left out.
fn look(
    values: &Values,
    reader: &ReadContext,
    sum: Sum,
    first: u64,
    blocks: &[(usize, Block)],
) -> Vec<(usize, Result<u64, Fault>)> {
    let size = |(at, block): &(usize, Block)| -> (usize, Result<u64, Fault>) {
        let number = first + *at as u64;
        let rows = values.rows_of(number);
        let size = match sum {
            Sum::Slots => front::slots(block, &*reader.source, rows),
            Sum::Text => front::text(block, &*reader.source, rows, &values.ty),
            Sum::Lines => return (*at, lines::size(values, reader, number, block)),
        };
        (*at, size.map_err(|error| values.fault(number, block.offset, error)))
    };
    // Blocks that must be inflated, or searched for escapes.
    let is_work = |block: &Block| sum == Sum::Lines || block.codec != Codec::None;
    let work: u64 = blocks.iter().filter(|(_, block)| is_work(block)).map(|(_, block)| block.size).sum();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(4).min(blocks.len());
    if workers < 2 || work < WORTH {
        return blocks.iter().map(size).collect();
    }
    let done = Mutex::new(Vec::with_capacity(blocks.len()));
    parallel::for_each(workers, blocks.len(), |number| {
        let Some(block) = blocks.get(number) else { return ControlFlow::Break(()) };
        let (at, size) = size(block);
        // Nothing after the first failure matters.
        let next = if size.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        done.lock().push((at, size));
        next
    });
    done.into_inner()
}
