//! Stored items as elements of an array (`docs/formats/idv.md` 7.1 to 7.5, 11).

use std::ops::Range;

use crate::format::idv::Item;

/// Why items cannot be shown: the bytes cannot be read, or do not fit the codec.
pub(super) enum ItemError<E> {
    Read(E),
    Damaged(String),
}

/// Fills `out` with whole items of the `count` in a block. `read` copies bytes of the items' block form from an offset
/// on.
pub(super) fn fill<E>(
    item: Item,
    count: u64,
    items: Range<u64>,
    read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    out: &mut [u8],
) -> Result<(), ItemError<E>> {
    let read = |at, out: &mut [u8]| read(at, out).map_err(ItemError::Read);
    let wanted = items.end - items.start;
    // The temporary bytes are never more than those of `out`.
    let bytes = |at: u64, end: u64| -> Result<Vec<u8>, ItemError<E>> {
        let mut bytes = vec![0; (end - at) as usize];
        read(at, &mut bytes)?;
        Ok(bytes)
    };
    if wanted == 0 {
        return Ok(());
    }
    match item {
        Item::Number(_) | Item::RowId => read(items.start * item.width(), out),
        Item::Boolean => {
            let first = items.start / 8;
            let bits = bytes(first, items.end.div_ceil(8))?;
            for (item, out) in items.zip(out) {
                *out = bits[(item / 8 - first) as usize] >> (item % 8) & 1;
            }
            Ok(())
        }
        Item::DvBool => {
            // Little-endian words of 16 values are the same as bytes of 4.
            let first = items.start / 4;
            let bits = bytes(first, items.end.div_ceil(4))?;
            for (item, out) in items.zip(out) {
                *out = bits[(item / 4 - first) as usize] >> (item % 4 * 2) & 3;
                if *out == 3 {
                    return Err(ItemError::Damaged(format!("value {item} is 3, neither false, true nor missing")));
                }
            }
            Ok(())
        }
        Item::DateTimeOffset => {
            let minutes = bytes(2 * items.start, 2 * items.end)?;
            let ticks = bytes(2 * count + 8 * items.start, 2 * count + 8 * items.end)?;
            let pairs = ticks.chunks_exact(8).zip(minutes.chunks_exact(2));
            for ((ticks, minutes), out) in pairs.zip(out.chunks_exact_mut(10)) {
                out[..8].copy_from_slice(ticks);
                out[8..].copy_from_slice(minutes);
            }
            Ok(())
        }
        Item::Text => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DType;

    fn shown(item: Item, block: &[u8], count: u64, items: Range<u64>) -> Option<Vec<u8>> {
        let read = |at: u64, out: &mut [u8]| {
            out.copy_from_slice(block.get(at as usize..at as usize + out.len()).ok_or(())?);
            Ok::<(), ()>(())
        };
        let mut out = vec![9; ((items.end - items.start) * item.width()) as usize];
        fill(item, count, items, read, &mut out).ok().map(|()| out)
    }

    #[test]
    fn bits() {
        assert_eq!(shown(Item::Boolean, &[0b1010_0110, 1], 9, 0..9).unwrap(), [0, 1, 1, 0, 0, 1, 0, 1, 1]);
        assert_eq!(shown(Item::Boolean, &[0b1010_0110, 1], 9, 7..9).unwrap(), [1, 1]);
        // datatypes.idv: false, true, missing, false, missing.
        assert_eq!(shown(Item::DvBool, &[0x24, 2, 0, 0], 5, 0..5).unwrap(), [0, 1, 2, 0, 2]);
        assert_eq!(shown(Item::DvBool, &[0x24, 2, 0, 0], 5, 3..5).unwrap(), [0, 2]);
        assert_eq!(shown(Item::DvBool, &[0x0c, 0, 0, 0], 2, 0..1).unwrap(), [0]);
        assert_eq!(shown(Item::DvBool, &[0x0c, 0, 0, 0], 2, 0..2), None);
        assert_eq!(shown(Item::Boolean, &[], 9, 3..9), None);
    }

    #[test]
    fn numbers_and_records() {
        assert_eq!(shown(Item::Number(DType::U16), &[1, 0, 2, 0, 3, 0], 3, 1..3).unwrap(), [2, 0, 3, 0]);
        let block: Vec<u8> = (0..20).collect();
        let expected = [4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 12, 13, 14, 15, 16, 17, 18, 19, 2, 3];
        assert_eq!(shown(Item::DateTimeOffset, &block, 2, 0..2).unwrap(), expected);
        assert_eq!(shown(Item::DateTimeOffset, &block, 2, 1..2).unwrap(), expected[10..]);
    }
}
