//! Sums over blocks: where a block's part of a file begins whose rows have sizes of their own.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use super::{Fault, Reader, Values, front, lines};
use crate::{cache::BlockError, codec::Codec, format::Block, limits};

/// Blocks whose sums are made together.
const STEP: u64 = 4096;

/// Bytes of blocks for which threads are worth their while.
const WORTH: u64 = 1 << 20;

/// Blocks of text whose sums may be made to list a folder: their sizes stand in the lookup table.
const FEW: u64 = 4096;

/// What is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    /// Slots of vectors that have each their own number.
    Slots = 0,
    /// Bytes of text.
    Text = 1,
    /// Bytes of JSON lines.
    Lines = 2,
}

/// The sums in front of each block, up to the first whose size can't be known.
#[derive(Debug)]
pub(super) struct Totals {
    /// One more than blocks, or fewer if one failed.
    starts: Vec<u64>,
    fault: Option<Fault>,
}

impl Totals {
    /// Looks at every block, several at a time where they must be decoded.
    pub(super) fn compute(values: &Values, reader: &Reader, sum: Sum) -> Self {
        let mut totals = Self { starts: vec![0], fault: None };
        if values.blocks > limits::IDV_SIZED_BLOCKS {
            let reason = format!("{} blocks are too many to add up their sizes", values.blocks);
            totals.fault = Some(values.fault(0, 0, BlockError::Refused(reason)));
            return totals;
        }
        let mut first = 0;
        let mut at = 0u64;
        while first < values.blocks {
            let sizes = match values.blocks(reader, first, STEP) {
                Ok(blocks) => sizes(values, reader, sum, first, blocks),
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
        totals
    }

    /// The same from the lookup table alone, where that is little work and says it.
    pub(super) fn from_table(values: &Values, reader: &Reader) -> Option<Self> {
        if values.blocks > FEW || values.ty.dims.is_some() {
            return None;
        }
        let mut totals = Self { starts: vec![0], fault: None };
        let mut at = 0;
        for (number, block) in (0..).zip(values.blocks(reader, 0, FEW).ok()?) {
            at += front::text_of_scalars(&block.ok()?, values.rows_of(number))?;
            totals.starts.push(at);
        }
        Some(totals)
    }

    /// What lies in front of a block, or of the end for the number behind the last.
    pub(super) fn start(&self, block: u64) -> Result<u64, Fault> {
        match (self.starts.get(block as usize), &self.fault) {
            (Some(start), _) => Ok(*start),
            (None, Some(fault)) => Err(fault.clone()),
            (None, None) => Ok(self.starts.last().copied().unwrap_or(0)),
        }
    }

    /// What all blocks have.
    pub(super) fn all(&self) -> Result<u64, Fault> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(self.starts.last().copied().unwrap_or(0)),
        }
    }

    /// The block that holds a place.
    pub(super) fn find(&self, at: u64) -> u64 {
        (self.starts.partition_point(|start| *start <= at) as u64).saturating_sub(1)
    }

    pub(super) fn weight(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

fn sizes(
    values: &Values,
    reader: &Reader,
    sum: Sum,
    first: u64,
    blocks: Vec<Result<Block, Fault>>,
) -> Vec<Result<u64, Fault>> {
    let size = |at: usize| -> Result<u64, Fault> {
        let (number, block) = (first + at as u64, blocks[at].clone()?);
        let rows = values.rows_of(number);
        let size = match sum {
            Sum::Slots => front::slots(&block, &*reader.source, rows),
            Sum::Text => front::text(&block, &*reader.source, rows, &values.ty),
            Sum::Lines => return lines::size(values, reader, number, &block),
        };
        size.map_err(|error| values.fault(number, block.offset, error))
    };
    // What must be inflated, or looked through for escapes.
    let work: u64 = blocks
        .iter()
        .filter_map(|block| block.as_ref().ok())
        .filter(|block| sum == Sum::Lines || block.codec != Codec::None)
        .map(|block| block.size)
        .sum();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(4).min(blocks.len());
    let is_table = sum == Sum::Text && values.ty.dims.is_none();
    if workers < 2 || is_table || work < WORTH {
        return (0..blocks.len()).map(size).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<u64, Fault>>>> = Mutex::new(vec![None; blocks.len()]);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= blocks.len() {
                        return;
                    }
                    let size = size(at);
                    if size.is_err() {
                        // Behind the first that fails nothing matters.
                        next.fetch_max(blocks.len(), Relaxed);
                    }
                    done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(size);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // None are those behind a failure: whoever adds up never comes to them, as each before it was taken by somebody.
    done.into_iter().map_while(|size| size).collect()
}
