//! Copies elements of an array with strides to their places in another array.

use std::ops::Range;

use super::super::Slice;
use crate::{
    format::{DType, ElementType, Field, Record},
    limits::PIECE,
};

/// One axis of a copy. Strides are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) count: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Elements that are copied: the place of the first one on both sides, and the axes, the outermost first.
#[derive(Debug, Clone)]
pub(in super::super) struct Gather {
    pub(super) size: usize,
    from: usize,
    pub(super) to: usize,
    axes: Vec<Axis>,
}

impl Gather {
    /// Returns a copy of elements of `size` bytes. Axes that are contiguous on both sides are joined.
    pub(super) fn new(size: usize, from: usize, to: usize, axes: impl IntoIterator<Item = Axis>) -> Self {
        let mut joined: Vec<Axis> = Vec::new();
        for axis in axes.into_iter().filter(|axis| axis.count != 1) {
            match joined.last_mut() {
                Some(outer) if outer.from == axis.count * axis.from && outer.to == axis.count * axis.to => {
                    *outer = Axis { count: outer.count * axis.count, ..axis };
                }
                _ => joined.push(axis),
            }
        }
        Self { size, from, to, axes: joined }
    }

    /// Returns a copy of the elements in a slice of each axis, in C order, to the bytes from `to` on. The source has these
    /// strides in bytes.
    pub(in super::super) fn of_slices(size: usize, slices: &[Slice], strides: &[u64], to: usize) -> Self {
        let (mut from, mut next, mut axes) = (0, size, Vec::new());
        for (slice, stride) in slices.iter().zip(strides).rev() {
            from += slice.start * stride;
            // For one element, the step is not used and may be any number.
            let step = if slice.count > 1 { slice.step * stride } else { 0 };
            axes.push(Axis { count: slice.count as usize, from: step as usize, to: next });
            next *= slice.count as usize;
        }
        Self::new(size, from as usize, to, axes.into_iter().rev())
    }

    /// Returns the bytes of the source from the first element to the end of the last one.
    fn span(&self) -> Range<usize> {
        self.from..self.from + self.axes.iter().map(|axis| (axis.count - 1) * axis.from).sum::<usize>() + self.size
    }

    /// Returns the bytes of the output from the first element to the end of the last one.
    pub(super) fn span_out(&self) -> Range<usize> {
        self.to..self.to + self.axes.iter().map(|axis| (axis.count - 1) * axis.to).sum::<usize>() + self.size
    }

    /// Returns the same copy into an output that begins at byte `start` of this one.
    pub(super) fn at(&self, start: usize) -> Self {
        Self { to: self.to - start, ..self.clone() }
    }

    /// Returns the number of bytes that are copied.
    fn bytes(&self) -> usize {
        self.axes.iter().map(|axis| axis.count).product::<usize>() * self.size
    }

    /// Returns the number of bytes if all are contiguous on both sides.
    pub(super) fn run(&self) -> Option<usize> {
        match self.axes.as_slice() {
            [] => Some(self.size),
            [axis] if axis.from == self.size && axis.to == self.size => Some(axis.count * self.size),
            _ => None,
        }
    }

    /// Calls `each` with the places of the elements along all but the last `inner` axes.
    fn for_each(axes: &[Axis], (from, to): (usize, usize), each: &mut impl FnMut(usize, usize)) {
        match axes.split_first() {
            None => each(from, to),
            Some((axis, inner)) => {
                (0..axis.count).for_each(|at| Self::for_each(inner, (from + at * axis.from, to + at * axis.to), each))
            }
        }
    }

    /// Copies from memory.
    pub(super) fn copy(&self, source: &[u8], out: &mut [u8]) {
        match self.size {
            1 => self.copy_of::<1>(source, out),
            2 => self.copy_of::<2>(source, out),
            4 => self.copy_of::<4>(source, out),
            8 => self.copy_of::<8>(source, out),
            16 => self.copy_of::<16>(source, out),
            _ => self.copy_of::<0>(source, out),
        }
    }

    /// Does the same as [`Self::copy`]. `SIZE` is the size of an element, or 0 for any size.
    fn copy_of<const SIZE: usize>(&self, source: &[u8], out: &mut [u8]) {
        let size = if SIZE == 0 { self.size } else { SIZE };
        let place = (self.from, self.to);
        let Some((last, outer)) = self.axes.split_last() else {
            out[self.to..self.to + size].copy_from_slice(&source[self.from..self.from + size]);
            return;
        };
        if last.from == size && last.to == size {
            let length = last.count * size;
            return Self::for_each(outer, place, &mut |from, to| {
                out[to..to + length].copy_from_slice(&source[from..from + length]);
            });
        }
        // Two axes at a time, in tiles that fit the processor's cache on both sides. Along the last axis, places are
        // near each other in the output, along the other one in the source.
        let near = (0..outer.len()).filter(|at| outer[*at].from < last.from).min_by_key(|at| outer[*at].from);
        let mut others = outer.to_vec();
        let other = near.map_or(Axis { count: 1, from: 0, to: 0 }, |at| others.remove(at));
        const TILE: usize = 32;
        Self::for_each(&others, place, &mut |from, to| {
            for rows in (0..other.count).step_by(TILE) {
                for columns in (0..last.count).step_by(TILE) {
                    for row in rows..(rows + TILE).min(other.count) {
                        let (mut from, mut to) =
                            (from + row * other.from + columns * last.from, to + row * other.to + columns * last.to);
                        for _ in columns..(columns + TILE).min(last.count) {
                            out[to..to + size].copy_from_slice(&source[from..from + size]);
                            (from, to) = (from + last.from, to + last.to);
                        }
                    }
                }
            }
        });
    }

    /// Writes an element to all places.
    pub(super) fn fill(&self, element: &[u8], out: &mut [u8]) {
        let is_one_byte = element.iter().all(|byte| *byte == element[0]);
        let (last, outer) = match self.axes.split_last() {
            Some((last, outer)) => (*last, outer),
            None => (Axis { count: 1, from: 0, to: self.size }, &[][..]),
        };
        Self::for_each(outer, (0, self.to), &mut |_, to| {
            if is_one_byte && last.to == self.size {
                return out[to..to + last.count * self.size].fill(element[0]);
            }
            for at in 0..last.count {
                out[to + at * last.to..][..self.size].copy_from_slice(element);
            }
        });
    }

    /// Copies from a source. `read` fills its second argument with the bytes from an offset on. Small gaps between
    /// wanted bytes are read with them.
    pub(in super::super) fn read<E>(
        &self,
        read: &mut impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        buffer: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), E> {
        /// Largest gap that is read. A read of fewer bytes costs about the same.
        const GAP: usize = 4096;
        if let Some(length) = self.run() {
            return read(self.from, &mut out[self.to..self.to + length]);
        }
        let span = self.span();
        if span.len() <= PIECE && (span.len() <= 4 * self.bytes() || span.len() <= GAP) {
            buffer.resize(span.len(), 0);
            read(span.start, buffer)?;
            Self { from: 0, ..self.clone() }.copy(buffer, out);
            return Ok(());
        }
        // The axis of the largest steps, so that what one read can hold stays together. In C order it is the outermost.
        let number = (0..self.axes.len()).rev().max_by_key(|number| self.axes[*number].from);
        let Some((number, axis)) = number.map(|number| (number, self.axes[number])) else { return Ok(()) };
        // As many steps along it as fit one read.
        let rows = match axis.from {
            0..=GAP => (PIECE / axis.from.max(1)).max(2) / 2,
            _ => 1,
        };
        // Fewer than all steps, so that the recursion ends.
        let rows = rows.min(axis.count.div_ceil(2));
        for at in (0..axis.count).step_by(rows) {
            let count = rows.min(axis.count - at);
            let mut axes = self.axes.clone();
            axes[number].count = count;
            let (from, to) = (self.from + at * axis.from, self.to + at * axis.to);
            Self::new(self.size, from, to, axes).read(read, buffer, out)?;
        }
        Ok(())
    }
}

/// The bytes of an element that are stored in the opposite order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// None.
    No,
    /// The bytes of each unit of this size: a whole number, or each half of a complex number.
    Units(usize),
    /// The bytes of fields of a record: the place of each field, the bytes of one of its values, and the change in it.
    Fields(Vec<(Range<usize>, usize, Self)>),
}

impl Turn {
    /// Returns the change of byte order of elements that are stored big-endian.
    pub fn of(element: &ElementType) -> Self {
        let dtype = match element {
            ElementType::Plain(dtype) => *dtype,
            ElementType::Record(record) => return Self::of_fields(record, |field| Self::of(&field.element)),
        };
        match dtype {
            DType::Bytes(_) | DType::Void(_) => Self::No,
            DType::Utf32(_) => Self::Units(4),
            DType::DateTimeOffset => Self::Fields(vec![(0..8, 8, Self::Units(8)), (8..10, 2, Self::Units(2))]),
            dtype => match dtype.parts().map_or(dtype.size(), DType::size) {
                1 => Self::No,
                size => Self::Units(size as usize),
            },
        }
    }

    /// Returns the change of byte order of records. `turn` returns that of a field.
    pub fn of_fields(record: &Record, turn: impl Fn(&Field) -> Self) -> Self {
        let turned = record.fields().iter().filter_map(|field| match turn(field) {
            Self::No => None,
            turn => {
                let place = field.offset as usize..(field.offset + field.size()) as usize;
                Some((place, field.element.size() as usize, turn))
            }
        });
        let turned: Vec<_> = turned.collect();
        if turned.is_empty() { Self::No } else { Self::Fields(turned) }
    }

    /// Returns whether all units lie in an element of `size` bytes.
    pub(super) fn fits(&self, size: usize) -> bool {
        match self {
            Self::No => true,
            Self::Units(unit) => *unit > 0 && size.is_multiple_of(*unit),
            Self::Fields(fields) => fields.iter().all(|(place, unit, turn)| {
                let is_whole = *unit > 0 && place.len().is_multiple_of(*unit);
                place.start <= place.end && place.end <= size && is_whole && turn.fits(*unit)
            }),
        }
    }

    /// Changes the byte order of whole elements of `size` bytes.
    pub(in super::super) fn apply(&self, size: usize, out: &mut [u8]) {
        fn turn<const UNIT: usize>(out: &mut [u8]) {
            out.as_chunks_mut::<UNIT>().0.iter_mut().for_each(|unit| unit.reverse());
        }
        match self {
            Self::No | Self::Units(1) => {}
            Self::Units(2) => turn::<2>(out),
            Self::Units(4) => turn::<4>(out),
            Self::Units(8) => turn::<8>(out),
            Self::Units(16) => turn::<16>(out),
            Self::Units(unit) => out.chunks_exact_mut((*unit).max(1)).for_each(<[u8]>::reverse),
            Self::Fields(fields) => {
                for element in out.chunks_exact_mut(size.max(1)) {
                    fields.iter().for_each(|(place, unit, turn)| turn.apply(*unit, &mut element[place.clone()]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_elements_are_read_row_by_row() {
        let bytes: Vec<u8> = (0..200 * 9000u32).flat_map(u32::to_le_bytes).collect();
        // All 9,000 columns of 50 rows, of an array of 200 x 9,000 that is stored column by column.
        let slices = [(30, 50), (0, 9000)].map(|(start, count)| Slice { start, step: 1, count });
        let (mut out, mut reads) = (vec![0; 50 * 9000 * 4], 0);
        let mut read = |at: usize, out: &mut [u8]| -> Result<(), ()> {
            reads += 1;
            out.copy_from_slice(&bytes[at..at + out.len()]);
            Ok(())
        };
        Gather::of_slices(4, &slices, &[4, 800], 0).read(&mut read, &mut Vec::new(), &mut out).unwrap();
        let wanted = (30..80u32).flat_map(|row| (0..9000).map(move |column| column * 200 + row));
        assert!(wanted.flat_map(u32::to_le_bytes).eq(out));
        assert!(reads <= 9000, "{reads} reads");
    }
}
