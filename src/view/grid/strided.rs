//! Arrays whose elements are stored in another order than they are shown: transposed, sliced, repeated, big-endian.

use std::ops::Range;

use super::{
    super::{Fault, ReadContext, Rendered, View, pieces},
    Gather, Turn,
    region::{Region, regions},
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
}

impl Rendered for Strided {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.check_quick(out.len() as u64 <= limits::QUICK)?;
        let element = self.element as u64;
        let data = self.data.clone().located(reader)?;
        let mut read = |at: usize, out: &mut [u8]| data.fill_at(reader, at as u64, out);
        pieces::fill_elements(part, element, out, |elements, out| {
            for Region { slices, offset } in regions(&self.shape, elements) {
                let to = (offset * element) as usize;
                Gather::of_slices(self.element, &slices, &self.strides, to).read(&mut read, &mut Vec::new(), out)?;
            }
            self.turn.apply(self.element, out);
            Ok(())
        })
    }
}

impl From<Strided> for View {
    fn from(array: Strided) -> Self {
        let size = array.shape.iter().product::<u64>() * array.element as u64;
        Self::default().with_rendered(size, array)
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
