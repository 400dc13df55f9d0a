//! Counts of values in bars of equal width, while the range of the values is not known yet.

/// Values that are kept until they are put into bins, and bins.
const KEPT: usize = 1 << 16;
/// Bars of a histogram.
const BARS: usize = 32;

/// All values so far. Up to [`KEPT`] are exact. Of more, those at the border of two bars may be counted in the one below,
/// if they lie within 2^-14 of the range behind it.
#[derive(Default)]
pub(super) struct Histogram {
    /// The latest values.
    latest: Vec<f64>,
    bins: Vec<u64>,
    /// The width of a bin, a power of two.
    width: f64,
    /// Where the first bin begins, in widths.
    first: f64,
}

impl Histogram {
    /// Adds a value, which is finite.
    pub(super) fn add(&mut self, value: f64) {
        self.latest.push(value);
        if self.latest.len() == KEPT {
            self.put_into_bins();
        }
    }

    fn put_into_bins(&mut self) {
        let all = self.occupied().map(|(value, _)| value).chain(self.latest.iter().copied());
        let none = (f64::INFINITY, f64::NEG_INFINITY);
        let (min, max) = all.fold(none, |(min, max), value| (value.min(min), value.max(max)));
        let half = KEPT as f64 / 2.0;
        // Bins are no narrower than the distance between floats of this size.
        let narrowest = (min.abs().max(max.abs()) * f64::EPSILON).max(f64::MIN_POSITIVE);
        let width = (max / half - min / half).max(narrowest).log2().ceil().exp2();
        let first = (min / width).floor();
        let mut bins = vec![0; KEPT];
        // The inverse of a power of two is exact.
        let inverse = width.recip();
        let mut add = |value: f64, count| bins[((value * inverse - first) as usize).min(KEPT - 1)] += count;
        for (value, count) in self.occupied() {
            add(value, count);
        }
        self.latest.drain(..).for_each(|value| add(value, 1));
        (self.bins, self.width, self.first) = (bins, width, first);
    }

    /// Returns the value at which each bin with values begins, and their count.
    fn occupied(&self) -> impl Iterator<Item = (f64, u64)> {
        let bins = self.bins.iter().enumerate().filter(|(_, count)| **count > 0);
        bins.map(|(place, count)| ((self.first + place as f64) * self.width, *count))
    }

    /// Returns the counts in bars between the smallest and the largest value.
    pub(super) fn bars(&self, min: f64, max: f64) -> Vec<u64> {
        let mut bars = vec![0; BARS];
        // Halves, because the largest minus the smallest float has no room in a float.
        let width = (max / 2.0 - min / 2.0) / BARS as f64;
        let exact = self.latest.iter().map(|value| (*value, 1));
        for (value, count) in self.occupied().chain(exact) {
            let place = if width > 0.0 { (value / 2.0 - min / 2.0) / width } else { 0.0 };
            bars[(place as usize).min(BARS - 1)] += count;
        }
        bars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: impl IntoIterator<Item = f64>) -> Vec<(usize, u64)> {
        let mut histogram = Histogram::default();
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (min, max) = (min.min(value), max.max(value));
            histogram.add(value);
        }
        histogram.bars(min, max).into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }

    /// Expected as numpy.histogram(values, bins=32) has it, where the range has room in a float.
    #[test]
    fn every_value_is_counted() {
        let each = KEPT as u64;
        // Columns of a matrix that follow each other at a distance which a sample might have.
        let columns = (0..4 * KEPT).map(|place| (place % 4) as f64);
        assert_eq!(bars(columns), [(0, each), (10, each), (21, each), (31, each)]);
        let rising = (0..32 * KEPT).map(|place| place as f64 * 1e-3);
        let rising = bars(rising);
        assert!(rising.iter().all(|(_, count)| count.abs_diff(each) <= each >> 9), "{rising:?}");
        assert_eq!(rising.iter().map(|(_, count)| count).sum::<u64>(), 32 * each);
        // Far from zero, and one far value behind many.
        let far = (0..2 * KEPT).map(|place| 1e15 + (place % 32) as f64);
        assert_eq!(bars(far), (0..32).map(|bar| (bar, each / 16)).collect::<Vec<_>>());
        let late = std::iter::repeat_n(1.0, 3 * KEPT).chain([f64::MAX, f64::MIN]);
        assert_eq!(bars(late), [(0, 1), (16, 3 * each), (31, 1)]);
        assert_eq!(bars(std::iter::repeat_n(1e300, 2 * KEPT)), [(0, 2 * each)]);
        assert_eq!(bars([-1.7e308, 1.7e308, 0.0]), [(0, 1), (16, 1), (31, 1)]);
    }
}
