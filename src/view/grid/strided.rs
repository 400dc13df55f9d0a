//! Arrays whose elements are stored in another order than they are shown: transposed, sliced, repeated, big-endian.

use std::ops::Range;

use super::{
    super::{Data, Fault, ReadContext, Rendered, View},
    Axis, Gather, Turn,
};
use crate::limits;

/// An array by its strides in other bytes. It is shown in C order, little-endian.
#[derive(Debug)]
pub struct Strided {
    data: View,
    element: usize,
    shape: Vec<u64>,
    /// In bytes.
    strides: Vec<u64>,
    turn: Turn,
}

impl Strided {
    /// Returns the array of these elements of `element` bytes. `strides` are in bytes. The first element is at the
    /// front of `data`, and the last must end in it.
    pub fn new(data: View, element: u64, shape: Vec<u64>, strides: Vec<u64>, turn: Turn) -> Self {
        Self { data, element: (element as usize).max(1), shape, strides, turn }
    }

    /// Fills `out` with a range of the elements below an axis. The first of them is at byte `from`.
    fn fill_below(
        &self,
        axis: usize,
        range: Range<u64>,
        from: u64,
        read: &mut impl FnMut(usize, &mut [u8]) -> Result<(), Fault>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        if range.is_empty() {
            return Ok(());
        }
        let (Some(inner), Some(&stride)) = (self.shape.get(axis + 1..), self.strides.get(axis)) else {
            return read(from as usize, out);
        };
        let row: u64 = inner.iter().product();
        // Partial rows at both ends are read one by one, the whole rows between them together.
        let (first, last) = (range.start.div_ceil(row), range.end / row);
        if first > last {
            let at = range.start / row;
            let part = range.start - at * row..range.end - at * row;
            return self.fill_below(axis + 1, part, from + at * stride, read, out);
        }
        let (front, rest) = out.split_at_mut((first * row - range.start) as usize * self.element);
        if !front.is_empty() {
            let at = first - 1;
            self.fill_below(axis + 1, range.start - at * row..row, from + at * stride, read, front)?;
        }
        let (middle, back) = rest.split_at_mut(((last - first) * row) as usize * self.element);
        if !middle.is_empty() {
            let mut to = self.element;
            let mut axes = Vec::new();
            let counts = std::iter::once(last - first).chain(inner.iter().copied());
            for (count, stride) in counts.zip(&self.strides[axis..]).collect::<Vec<_>>().into_iter().rev() {
                axes.push(Axis { count: count as usize, from: *stride as usize, to });
                to *= count as usize;
            }
            let gather = Gather::new(self.element, (from + first * stride) as usize, 0, axes.into_iter().rev());
            gather.read(read, &mut Vec::new(), middle)?;
        }
        self.fill_below(axis + 1, 0..range.end - last * row, from + last * stride, read, back)
    }
}

impl Rendered for Strided {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(out.len() as u64 <= limits::QUICK)?;
        let element = self.element as u64;
        let data = self.data.clone().located(reader)?;
        let mut read = |at: usize, out: &mut [u8]| data.fill_at(reader, at as u64, out);
        let mut fill = |range: Range<u64>, out: &mut [u8]| {
            self.fill_below(0, range, 0, &mut read, out)?;
            self.turn.apply(self.element, out);
            Ok(())
        };
        let (first, last) = (part.start / element, part.end.div_ceil(element));
        if part.start.is_multiple_of(element) && part.end.is_multiple_of(element) {
            return fill(first..last, out);
        }
        // Partial elements at both ends.
        let mut one = vec![0; self.element];
        let mut rest = out;
        let mut at = part.start;
        for number in [first, last - 1] {
            let whole = at.next_multiple_of(element)..part.end / element * element;
            if number != first && whole.start < whole.end {
                let (here, after) = rest.split_at_mut((whole.end - at) as usize);
                fill(at / element..whole.end / element, here)?;
                (at, rest) = (whole.end, after);
            }
            if at >= part.end || (number == first && at.is_multiple_of(element) && whole.start < whole.end) {
                continue;
            }
            fill(number..number + 1, &mut one)?;
            let skip = (at - number * element) as usize;
            let length = (self.element - skip).min(rest.len());
            let (here, after) = rest.split_at_mut(length);
            here.copy_from_slice(&one[skip..skip + length]);
            (at, rest) = (at + length as u64, after);
        }
        Ok(())
    }
}

impl From<Strided> for View {
    fn from(array: Strided) -> Self {
        let size = array.shape.iter().product::<u64>() * array.element as u64;
        Self::default().with(size, Data::Rendered(std::sync::Arc::new(array)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::{Cache, Verify};

    #[test]
    fn any_part_is_the_slice_of_the_whole() {
        let bytes: Vec<u8> = (0..200u8).collect();
        let reader = ReadContext::new(Arc::new(bytes.clone()), Cache::new(1 << 20, Verify::Lazy), 0);
        for (element, shape, strides, turn) in [
            (4, &[3u64, 4][..], &[4u64, 12][..], Turn::No),
            (3, &[2, 2, 3], &[60, 9, 3], Turn::Units(3)),
            (2, &[4, 5], &[0, 6], Turn::Units(2)),
            (8, &[5], &[16], Turn::Units(4)),
            (4, &[], &[], Turn::Units(4)),
            (1, &[2, 1, 3, 2], &[1, 99, 10, 50], Turn::No),
        ] {
            let mut whole = Vec::new();
            let count: u64 = shape.iter().product();
            for number in 0..count {
                let (mut rest, mut at) = (number, 0);
                for (axis, stride) in shape.iter().zip(strides).rev() {
                    at += rest % axis * stride;
                    rest /= axis;
                }
                let mut one = bytes[at as usize..at as usize + element as usize].to_vec();
                if let Turn::Units(unit) = turn {
                    one.chunks_mut(unit).for_each(<[u8]>::reverse);
                }
                whole.extend(one);
            }
            let data = View::stored(0..200);
            let view = View::from(Strided::new(data, element, shape.to_vec(), strides.to_vec(), turn));
            assert_eq!(view.size(), whole.len() as u64);
            for start in 0..whole.len() {
                for end in start + 1..=whole.len() {
                    let read = view.copy_at(&reader, start as u64, (end - start) as u64).unwrap();
                    assert_eq!(read, whole[start..end], "{shape:?} {start}..{end}");
                }
            }
        }
    }
}
