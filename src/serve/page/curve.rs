//! Columns of an array as curves: a bounded number of points of any number of rows, and statistics of what was read.

use std::{borrow::Cow, ops::Range};

use serde::Serialize;

use super::{elements::Elements, numbers, query::Query};
use crate::volume::Error;

/// Most rows that are returned one by one; of more rows, each point stands for several.
const POINTS: u64 = 4000;
/// Buckets of rows whose smallest and largest values are returned if there are more rows than [`POINTS`].
const BUCKETS: u64 = 1500;
/// Bytes of elements that one request looks at. Of more, an even sample is read, and the answer says so.
const LOOKED_AT: u64 = 64 << 20;
/// Bytes that are read together.
const PIECE: u64 = 1 << 20;
/// Rows of at most this many bytes are read whole, even if only some columns are wanted.
const NARROW: u64 = 4096;
/// Columns of one answer.
const COLUMNS: u64 = 64;
/// Bars of a histogram.
const BARS: usize = 32;

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    dtype: Cow<'static, str>,
    rows: u64,
    columns: u64,
    /// The first row of the answer, and the row after the last.
    range: (u64, u64),
    /// The first column, and how many.
    window: (u64, u64),
    /// The rows that the points stand at.
    x: Vec<u64>,
    /// For each column its values; `null` for NaN and infinities.
    y: Vec<Vec<f64>>,
    /// Rows of a bucket, which has two points: its smallest and its largest value. 1: each row has its point.
    bucket: u64,
    /// How many rows were read. Fewer than the range has if it is large.
    looked_at: u64,
    statistics: Statistics,
}

/// What was seen of the columns.
#[derive(Debug, Serialize)]
pub(super) struct Statistics {
    /// Values that are numbers.
    count: u64,
    /// Values that are NaN or infinite.
    not_finite: u64,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    /// For each column smallest, largest and mean value.
    by_column: Vec<(Option<f64>, Option<f64>, Option<f64>)>,
    /// Counts of values between `min` and `max` in bars of equal width.
    histogram: Vec<u64>,
}

/// Smallest, largest and sum of values.
#[derive(Debug, Clone)]
struct Seen {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
}

impl Seen {
    const NONE: Self = Self { count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0 };

    fn add(&mut self, value: f64) {
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += value;
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    fn summary(&self) -> (Option<f64>, Option<f64>, Option<f64>) {
        match self.count {
            0 => (None, None, None),
            count => (Some(self.min), Some(self.max), Some(self.sum / count as f64)),
        }
    }
}

/// What is gathered while rows go by.
pub(super) struct Gathered {
    seen: Vec<Seen>,
    not_finite: u64,
}

impl Gathered {
    /// Returns what gathers about some columns.
    pub(super) fn new(columns: usize) -> Self {
        Self { seen: vec![Seen::NONE; columns], not_finite: 0 }
    }

    pub(super) fn add(&mut self, column: usize, value: f64) {
        match value.is_finite() {
            true => self.seen[column].add(value),
            false => self.not_finite += 1,
        }
    }

    /// Returns the statistics. `again` passes on all values once more: only now it is known between which values the bars
    /// of the histogram lie.
    ///
    /// # Errors
    /// Those of `again`.
    pub(super) fn statistics(
        self,
        again: impl FnOnce(&mut dyn FnMut(f64)) -> Result<(), Error>,
    ) -> Result<Statistics, Error> {
        let mut all = Seen::NONE;
        self.seen.iter().for_each(|seen| all.merge(seen));
        let (min, max, mean) = all.summary();
        let mut histogram = vec![0; BARS];
        // Halves, because the largest minus the smallest float has no room in a float.
        let width = (all.max / 2.0 - all.min / 2.0) / BARS as f64;
        again(&mut |value| {
            if value.is_finite() {
                let place = if width > 0.0 { (value / 2.0 - all.min / 2.0) / width } else { 0.0 };
                histogram[(place as usize).min(BARS - 1)] += 1;
            }
        })?;
        Ok(Statistics {
            count: all.count,
            not_finite: self.not_finite,
            min,
            max,
            mean,
            by_column: self.seen.iter().map(Seen::summary).collect(),
            histogram,
        })
    }
}

/// Returns the curves of `columns` columns from `column` on, over rows `from` to `to`. The query gives these numbers,
/// within limits.
///
/// # Errors
/// Those of reading the array.
pub(super) fn curve(array: &Elements, query: &Query) -> Result<Curve, Error> {
    let to = query.number("to").unwrap_or(array.rows).min(array.rows);
    let from = query.number("from").unwrap_or(0).min(to);
    let column = query.number("column").unwrap_or(0).min(array.columns);
    let columns = query.number("columns").unwrap_or(COLUMNS).min(COLUMNS).min(array.columns - column);
    let rows = to - from;
    let is_whole = array.columns.saturating_mul(array.dtype.size()) <= NARROW;
    let row_bytes = if is_whole { array.columns } else { columns }.saturating_mul(array.dtype.size()).max(1);
    let (buckets, bucket) = if rows <= POINTS { (rows, 1) } else { (BUCKETS, rows.div_ceil(BUCKETS)) };
    // Rows of a bucket that are read: all of them, or as many as the limit leaves.
    let affordable = (LOOKED_AT / row_bytes / buckets.max(1)).max(1).min(bucket);
    // Rows that follow each other are read together.
    let (step, some) = if bucket == 1 { (rows.max(1), rows) } else { (bucket, affordable) };
    let parts = || (from..to).step_by(step as usize).map(|start| start..to.min(start + some));
    let mut gathered = Gathered::new(columns as usize);
    let mut x = Vec::new();
    let mut y = vec![Vec::new(); columns as usize];
    let window = (column, columns);
    for part in parts() {
        if bucket == 1 {
            read(array, is_whole, window, part, |row, column, value| {
                if column == 0 {
                    x.push(row);
                }
                y[column].push(value);
                gathered.add(column, value);
            })?;
            continue;
        }
        let start = part.start;
        // The smallest and the largest value of each column, and where they stand.
        let mut extremes = vec![None::<[(u64, f64); 2]>; columns as usize];
        read(array, is_whole, window, part, |row, column, value| {
            gathered.add(column, value);
            if !value.is_finite() {
                return;
            }
            let [least, greatest] = extremes[column].get_or_insert([(row, value); 2]);
            if value < least.1 {
                *least = (row, value);
            }
            if value > greatest.1 {
                *greatest = (row, value);
            }
        })?;
        let end = (start + bucket).min(to);
        x.extend([start, start + (end - start) / 2]);
        for (y, found) in y.iter_mut().zip(extremes) {
            let mut found = found.unwrap_or([(0, f64::NAN); 2]);
            found.sort_by_key(|(row, _)| *row);
            y.extend(found.map(|(_, value)| value));
        }
    }
    let again = |each: &mut dyn FnMut(f64)| {
        parts().try_for_each(|part| read(array, is_whole, window, part, |_, _, value| each(value)))
    };
    Ok(Curve {
        dtype: array.dtype.name(),
        rows: array.rows,
        columns: array.columns,
        range: (from, to),
        window,
        x,
        y,
        bucket,
        looked_at: parts().map(|part| part.end - part.start).sum(),
        statistics: gathered.statistics(again)?,
    })
}

/// Calls `each` for each value of some rows in `columns` columns from `column` on: with its row, its column counted from
/// the first wanted, and the value.
fn read(
    array: &Elements,
    is_whole: bool,
    (column, columns): (u64, u64),
    rows: Range<u64>,
    mut each: impl FnMut(u64, usize, f64),
) -> Result<(), Error> {
    if columns == 0 {
        return Ok(());
    }
    let width = array.width();
    // How many rows a read takes, where the wanted columns begin in a row, and elements of a row.
    let (at_once, skip, stride) = match is_whole {
        true => ((PIECE / (array.columns * array.dtype.size())).max(1), column as usize, array.columns as usize),
        false => (1, 0, columns as usize),
    };
    let mut row = rows.start;
    while row < rows.end {
        let some = at_once.min(rows.end - row);
        let bytes = match is_whole {
            true => array.read(row * array.columns, some * array.columns)?,
            false => array.read_part(row, column, columns)?,
        };
        for (number, elements) in bytes.chunks_exact(stride * width).enumerate() {
            let wanted = elements.chunks_exact(width).skip(skip).take(columns as usize);
            for (column, element) in wanted.enumerate() {
                each(row + number as u64, column, numbers::value(&array.dtype, element));
            }
        }
        row += some;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: impl IntoIterator<Item = f64, IntoIter: Clone>) -> Vec<(usize, u64)> {
        let (values, mut gathered) = (values.into_iter(), Gathered::new(1));
        values.clone().for_each(|value| gathered.add(0, value));
        let again = |each: &mut dyn FnMut(f64)| {
            values.for_each(each);
            Ok(())
        };
        let bars = gathered.statistics(again).unwrap().histogram;
        bars.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }

    /// Expected as numpy.histogram(values, bins=32) has it, where the range has room in a float.
    #[test]
    fn every_value_is_counted() {
        let each = 1 << 12;
        // Columns of a matrix that follow each other at a distance which a sample might have.
        let columns = (0..4 * each).map(|place| (place % 4) as f64);
        assert_eq!(bars(columns), [(0, each), (10, each), (21, each), (31, each)]);
        let rising = bars((0..32 * each).map(|place| place as f64 * 1e-3));
        assert!(rising.iter().all(|(_, count)| count.abs_diff(each) <= 1), "{rising:?}");
        assert_eq!(rising.iter().map(|(_, count)| count).sum::<u64>(), 32 * each);
        // Far from zero, and one far value behind many.
        let far = (0..2 * each).map(|place| 1e15 + (place % 32) as f64);
        assert_eq!(bars(far), (0..32).map(|bar| (bar, each / 16)).collect::<Vec<_>>());
        let late = std::iter::repeat_n(1.0, 3 * each as usize).chain([f64::MAX, f64::MIN, f64::NAN, f64::INFINITY]);
        assert_eq!(bars(late), [(0, 1), (16, 3 * each), (31, 1)]);
        assert_eq!(bars(std::iter::repeat_n(1e300, 2)), [(0, 2)]);
        assert_eq!(bars([-1.7e308, 1.7e308, 0.0]), [(0, 1), (16, 1), (31, 1)]);
        assert_eq!(bars([f64::NAN]), []);
    }
}
