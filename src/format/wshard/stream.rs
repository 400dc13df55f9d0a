//! Lanes that a stream writer interleaved, put back in order: section 16 of the format's page.

use std::ops::Range;

use super::{Defect, Entry, Notes, episode::Meta, shown};
use crate::codec::Codec;

/// How lanes of the file were put back in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Rows of each lane, T.
    pub rows: u64,
    /// Rows per flush, K.
    pub rows_per_flush: u64,
    /// Number of lanes.
    pub lanes: usize,
}

/// Where the rows of one lane are (section 16, point 5). It is made only if `base + rows * total_width` lies in the
/// file, so nothing computed here overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleave {
    /// Where the first lane begins.
    pub base: u64,
    /// Rows of the lane, T.
    pub rows: u64,
    /// Rows per flush, K: at least 1.
    pub rows_per_flush: u64,
    /// Bytes of one row of this lane, r: at least 1.
    pub row_width: u64,
    /// Bytes of one row of all lanes, R.
    pub total_width: u64,
    /// Bytes of one row of the lanes before this one.
    pub lead: u64,
}

impl Interleave {
    /// Returns the file ranges of these bytes of the recovered lane, in order, one for each flush that they touch.
    /// Bytes after the lane's end are left out.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let lane = *self;
        let end = range.end.min(lane.rows * lane.row_width);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (start, first, last) = lane.flush_of(at);
            let stop = end.min(last);
            let piece = start + (at - first)..start + (stop - first);
            at = stop;
            Some(piece)
        })
    }

    /// Returns the flush that holds this byte of the lane: where its piece begins in the file, and where it begins and
    /// ends in the lane.
    fn flush_of(&self, byte: u64) -> (u64, u64, u64) {
        let row = byte / self.row_width;
        let before = row - row % self.rows_per_flush;
        let height = self.rows_per_flush.min(self.rows - before);
        let start = self.base + before * self.total_width + height * self.lead;
        (start, before * self.row_width, (before + height) * self.row_width)
    }
}

/// Puts interleaved lanes back in order. If the rule does not apply, all of them get an error, even those that overlap
/// no other, because it is unknown which bytes belong to which lane.
pub(super) fn put_back(length: u64, entries: &mut [Entry], meta: &mut Meta, notes: &mut Notes) -> Option<Recovered> {
    let mut lanes: Vec<usize> = Vec::new();
    let mut first_meta: Option<u64> = None;
    for (i, entry) in entries.iter().enumerate() {
        if entry.name.starts_with(b"meta/") {
            first_meta = Some(first_meta.map_or(entry.block.extent.offset, |o| o.min(entry.block.extent.offset)));
        } else if entry.block.extent.stored_size > 0 {
            lanes.push(i);
        }
    }
    let extents = |i: &usize| entries.get(*i).map_or((0, 0), |e| (e.block.extent.offset, e.block.extent.stored_size));
    lanes.sort_by_key(extents);
    let mut end = 0;
    let mut overlaps = false;
    for (offset, size) in lanes.iter().map(extents) {
        overlaps |= offset < end;
        end = end.max(offset.saturating_add(size));
    }
    if !overlaps {
        return None;
    }
    if !meta.episode.streaming {
        if meta.wshard_unknown {
            meta.untyped = true;
            notes.add("extents overlap and meta/wshard can't be read: the blocks are shown as raw bytes only");
        }
        return None;
    }
    let sorted: Vec<&Entry> = lanes.iter().filter_map(|i| entries.get(*i)).collect();
    let found = rule(length, &sorted, meta.episode.length_t, first_meta);
    match found {
        Ok(found) => {
            let (rows, rows_per_flush) = found.first().map_or((0, 0), |l| (l.rows, l.rows_per_flush));
            for (i, lane) in lanes.iter().zip(found) {
                if let Some(entry) = entries.get_mut(*i) {
                    entry.block.interleave = Some(Box::new(lane));
                }
            }
            Some(Recovered { rows, rows_per_flush, lanes: lanes.len() })
        }
        Err(reason) => {
            notes.add(format_args!("the blocks can't be put back in order: {reason}"));
            let error = Defect::from(format!("interleaved by a stream writer and can't be put back: {reason}"));
            for i in lanes {
                if let Some(entry) = entries.get_mut(i) {
                    entry.block.error.get_or_insert_with(|| error.clone());
                }
            }
            None
        }
    }
}

/// Points 1 to 4 of section 16, for non-meta lanes by ascending offset.
fn rule(
    length: u64,
    lanes: &[&Entry],
    length_t: Option<u64>,
    first_meta: Option<u64>,
) -> Result<Vec<Interleave>, String> {
    let rows = length_t.filter(|t| *t > 0).ok_or("length_T is unknown or 0")?;
    let base = lanes.first().map_or(0, |lane| lane.block.extent.offset);
    let mut total_width = 0u64;
    let mut found = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let block = &lane.block;
        if block.extent.codec != Codec::None {
            return Err(format!("{} is compressed", shown(&lane.name)));
        }
        if block.error.is_some() || !block.extent.stored_size.is_multiple_of(rows) {
            return Err(format!(
                "{} of {} bytes does not hold {rows} rows",
                shown(&lane.name),
                block.extent.stored_size
            ));
        }
        let row_width = block.extent.stored_size / rows;
        found.push(Interleave { base, rows, rows_per_flush: 0, row_width, total_width: 0, lead: total_width });
        total_width = total_width.checked_add(row_width).ok_or("the rows are too wide")?;
    }
    let mut rows_per_flush = None;
    for (pair, lane) in lanes.windows(2).zip(&found) {
        let [a, b] = pair else { continue };
        let gap = b.block.extent.offset.saturating_sub(a.block.extent.offset);
        let height = gap / lane.row_width;
        if gap % lane.row_width != 0 || height == 0 || height >= rows || *rows_per_flush.get_or_insert(height) != height
        {
            return Err(format!(
                "{} and {} begin {gap} bytes apart, which are not the rows of one flush",
                shown(&a.name),
                shown(&b.name)
            ));
        }
    }
    let rows_per_flush = rows_per_flush.ok_or("there is only one lane")?;
    let end = rows.checked_mul(total_width).and_then(|size| size.checked_add(base)).filter(|end| *end <= length);
    let end = end.ok_or("the rows pass the end of the file")?;
    if first_meta != end.checked_next_multiple_of(32) {
        return Err(format!("the rows end at {end}, but the first meta block does not follow there"));
    }
    for lane in &mut found {
        lane.rows_per_flush = rows_per_flush;
        lane.total_width = total_width;
    }
    Ok(found)
}
