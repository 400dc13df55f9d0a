//! `.npy` headers, format 1.0, exactly as numpy writes them.

use crate::format::DType;

/// Digits for which numpy leaves room after the dictionary, so that the first axis can grow in place.
const GROWTH_DIGITS: usize = 21;
/// Array data start at a multiple of this many bytes.
const ALIGN: usize = 64;

/// Returns the header of an array of a type: as [`header_of`].
pub(super) fn header(dtype: DType, shape: &[u64]) -> Vec<u8> {
    header_of(dtype.descr(), shape)
}

/// Returns the header of a C-ordered array: magic, version, length, dictionary, padding. `descr` is numpy's, such as
/// `<f8` or `|S8`.
///
/// `shape` in elements, outermost axis first, `[]` for a 0-dimensional array.
pub fn header_of(descr: &str, shape: &[u64]) -> Vec<u8> {
    // A type string is quoted; a list of fields brings its own quotes.
    let quote = if descr.starts_with('[') { "" } else { "'" };
    let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let tuple = match axes.as_slice() {
        [one] => format!("({one},)"),
        axes => format!("({})", axes.join(", ")),
    };
    let growth = axes.first().map_or(0, |first| GROWTH_DIGITS.saturating_sub(first.len()));
    let dictionary =
        format!("{{'descr': {quote}{descr}{quote}, 'fortran_order': False, 'shape': {tuple}, }}{:growth$}", "");
    // numpy adds 64 bytes of padding even if none is needed.
    let padding = ALIGN - (10 + dictionary.len() + 1) % ALIGN;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    let length = (dictionary.len() + padding + 1) as u16;
    header.extend(length.to_le_bytes());
    header.extend(dictionary.as_bytes());
    header.resize(header.len() + padding, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_numpy_writes_it() {
        // numpy 2.4: np.save of np.zeros((3, 4)).
        let expected = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
        let header = header(DType::F64, &[3, 4]);
        assert_eq!(header.len(), 128);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(std::str::from_utf8(&header[10..]).unwrap().trim_end(), expected);
        assert_eq!(header.last(), Some(&b'\n'));
    }

    #[test]
    fn a_record_is_a_list_of_fields() {
        // numpy 2.4: np.save of np.zeros(3, [("ticks", "<i8"), ("offset_minutes", "<i2")]).
        let expected =
            "{'descr': [('ticks', '<i8'), ('offset_minutes', '<i2')], 'fortran_order': False, 'shape': (3,), }";
        let header = header(DType::DateTimeOffset, &[3]);
        assert_eq!(std::str::from_utf8(&header[10..]).unwrap().trim_end(), expected);
    }

    #[test]
    fn scalars_and_vectors() {
        assert!(header(DType::F64, &[]).windows(11).any(|w| w == b"'shape': ()"));
        assert!(header(DType::F64, &[7]).windows(13).any(|w| w == b"'shape': (7,)"));
        for ndim in 0..=32 {
            assert_eq!(header(DType::U8, &vec![1_000_000; ndim]).len() % 64, 0);
        }
    }
}
