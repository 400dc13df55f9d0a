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

    /// Returns the places of some of the chunks with elements of the region, by their numbers in C order.
    pub(super) fn places(&self, chunk: &[u64], numbers: Range<u64>) -> impl Iterator<Item = Vec<u64>> {
        // Along each axis, the chunk of each element if steps are longer than chunks, and otherwise all from the first.
        let axes = self.slices.iter().zip(chunk).map(|(slice, &chunk)| {
            let Slice { start, step, count } = *slice;
            let chunks = match count {
                0 => 0,
                _ if step > chunk => count,
                _ => (start + (count - 1) * step) / chunk - start / chunk + 1,
            };
            (start, step.max(chunk), chunk, chunks)
        });
        let axes: Vec<_> = axes.collect();
        let all = axes.iter().fold(1u64, |all, (.., chunks)| all.saturating_mul(*chunks));
        (numbers.start..numbers.end.min(all)).map(move |mut number| {
            let mut at = vec![0; axes.len()];
            for (at, (start, step, chunk, chunks)) in at.iter_mut().zip(&axes).rev() {
                *at = (start + number % chunks * step) / chunk;
                number /= chunks;
            }
            at
        })
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
