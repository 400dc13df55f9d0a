//! Regions of an array that a read wants, and the chunks in which they lie.

use std::ops::Range;

use super::super::Slice;

/// Elements of an array: those of a slice along each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) slices: Vec<Slice>,
    /// Where the first element goes in the output, in elements. The others follow in C order.
    pub(super) offset: u64,
}

/// Elements of a slice, by their numbers in it.
pub(super) type Part = Range<u64>;

impl Region {
    /// Returns the part of each slice that lies in a chunk; `None` if the chunk has no element of the region.
    pub(super) fn part(&self, at: &[u64], chunk: &[u64]) -> Option<Vec<Part>> {
        let parts = self.slices.iter().zip(at.iter().zip(chunk)).map(|(slice, (at, chunk))| {
            let (first, end) = (at * chunk, (at * chunk).saturating_add(*chunk));
            // The first element at or after each border.
            let start = first.saturating_sub(slice.start).div_ceil(slice.step);
            let end = end.saturating_sub(slice.start).div_ceil(slice.step).min(slice.count);
            (start < end).then_some(start..end)
        });
        parts.collect()
    }

    /// Returns the places of the chunks with elements of the region, in C order.
    pub(super) fn places<'a>(&'a self, chunk: &'a [u64]) -> Places<'a> {
        let is_empty = self.slices.iter().any(|slice| slice.count == 0);
        let first = self.slices.iter().zip(chunk).map(|(slice, chunk)| slice.start / chunk).collect();
        Places { region: self, chunk, at: first, is_begun: false, is_done: is_empty }
    }
}

/// The places of the chunks of a region; see [`Region::places`].
pub(super) struct Places<'a> {
    region: &'a Region,
    chunk: &'a [u64],
    at: Vec<u64>,
    is_begun: bool,
    is_done: bool,
}

impl Places<'_> {
    /// Returns the next place.
    pub(super) fn next(&mut self) -> Option<&[u64]> {
        if self.is_begun && !self.is_done {
            self.is_done = !self.step();
        }
        self.is_begun = true;
        (!self.is_done).then_some(&*self.at)
    }

    /// Goes to the next chunk along the last axis that has one, and to the first chunk along all axes after it.
    fn step(&mut self) -> bool {
        for axis in (0..self.at.len()).rev() {
            let (slice, chunk) = (&self.region.slices[axis], self.chunk[axis]);
            let border = (self.at[axis] + 1).saturating_mul(chunk);
            let next = border.saturating_sub(slice.start).div_ceil(slice.step);
            if next < slice.count {
                self.at[axis] = (slice.start + next * slice.step) / chunk;
                return true;
            }
            self.at[axis] = slice.start / chunk;
        }
        false
    }
}

/// Returns elements that follow each other in C order as regions, in that order.
pub(super) fn regions(shape: &[u64], elements: Range<u64>) -> Vec<Region> {
    let mut found = Vec::new();
    let mut fixed = Vec::with_capacity(shape.len());
    split(shape, elements, &mut fixed, &mut found);
    let mut offset = 0;
    for region in &mut found {
        region.offset = offset;
        offset += region.slices.iter().map(|slice| slice.count).product::<u64>();
    }
    found
}

fn one(start: u64, count: u64) -> Slice {
    Slice { start, step: 1, count }
}

/// Adds the regions of elements of the array of the last axes. `fixed` has the place along the other axes.
fn split(shape: &[u64], elements: Range<u64>, fixed: &mut Vec<Slice>, found: &mut Vec<Region>) {
    if elements.is_empty() {
        return;
    }
    let Some((_, inner)) = shape.split_first() else {
        found.push(Region { slices: fixed.clone(), offset: 0 });
        return;
    };
    let row: u64 = inner.iter().product();
    let mut at = elements.start;
    let part = |at: u64, elements: Range<u64>, fixed: &mut Vec<Slice>, found: &mut Vec<Region>| {
        fixed.push(one(at, 1));
        split(inner, elements, fixed, found);
        fixed.pop();
    };
    if !at.is_multiple_of(row) {
        let end = (at / row + 1).saturating_mul(row).min(elements.end);
        part(at / row, at % row..at % row + (end - at), fixed, found);
        at = end;
    }
    let (first, last) = (at / row, elements.end / row);
    if at < elements.end && first < last {
        let whole = fixed.iter().cloned().chain([one(first, last - first)]);
        found.push(Region { slices: whole.chain(inner.iter().map(|axis| one(0, *axis))).collect(), offset: 0 });
        at = last * row;
    }
    if at < elements.end {
        part(last, 0..elements.end - at, fixed, found);
    }
}
