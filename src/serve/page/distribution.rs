//! Statistics and a histogram of a whole array, out of an even sample if it is large.

use serde_json::{Value, json};

use super::{curve::Gathered, elements::Elements, numbers};
use crate::volume::Error;

/// Pieces of a large array that are read, at equal distances, and elements of each.
const PIECES: u64 = 64;
const PIECE: u64 = 1 << 14;

/// Returns where the pieces begin that are read of so many elements, and how long they are.
fn pieces(elements: u64) -> impl Iterator<Item = (u64, u64)> {
    let count = elements.div_ceil(PIECE).min(PIECES);
    let last = elements.saturating_sub(PIECE);
    (0..count).map(move |piece| {
        // 128 bits hold the product of any number of elements.
        let begin = u128::from(last) * u128::from(piece) / u128::from((count - 1).max(1));
        if elements <= PIECE * PIECES {
            (piece * PIECE, PIECE.min(elements - piece * PIECE))
        } else {
            (begin as u64, PIECE)
        }
    })
}

/// Returns statistics of an array, and how many of its elements were read.
///
/// # Errors
/// Those of reading it.
pub(super) fn distribution(array: &Elements) -> Result<Value, Error> {
    let elements = array.rows.saturating_mul(array.columns);
    let read = |each: &mut dyn FnMut(f64)| {
        pieces(elements).try_for_each(|(begin, count)| {
            let bytes = array.read(begin, count)?;
            bytes.chunks_exact(array.width()).for_each(|element| each(numbers::value(&array.dtype, element)));
            Ok(())
        })
    };
    let (mut gathered, mut looked_at) = (Gathered::new(1), 0);
    read(&mut |value| {
        gathered.add(0, value);
        looked_at += 1;
    })?;
    Ok(json!({"elements": elements, "looked_at": looked_at, "statistics": gathered.statistics(read)?}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_all_of_it_or_spread_evenly() {
        for elements in [0, 1, PIECE, PIECE + 1, PIECE * PIECES] {
            let mut next = 0;
            for (begin, count) in pieces(elements) {
                assert_eq!(begin, next);
                next = begin + count;
            }
            assert_eq!(next, elements);
        }
        let all: Vec<_> = pieces(u64::MAX).collect();
        assert_eq!((all.len() as u64, all[0]), (PIECES, (0, PIECE)));
        assert_eq!(all.last(), Some(&(u64::MAX - PIECE, PIECE)));
    }
}
