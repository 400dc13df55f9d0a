//! `.npy` headers, exactly as numpy writes them.

use crate::format::{DType, ElementType, tuple};

/// Digits that numpy reserves room for after the dictionary, so that the first axis can grow in place.
const GROWTH_DIGITS: usize = 21;
/// Array data start at a multiple of this many bytes.
const ALIGN: usize = 64;

/// Longest header of version 1.0 after its front, in bytes.
const LONGEST: usize = u16::MAX as usize;

/// Returns the header of an array of a type; see [`header_of`].
pub(super) fn header(element: &ElementType, shape: &[u64]) -> Vec<u8> {
    header_of(&element.descr(), shape)
}

/// Returns the header of a C-ordered array: magic, version, length, dictionary, padding. `descr` is numpy's, such as
/// `<f8` or `|S8`. The version is 1.0; 2.0 if the header is too long for that; 3.0 if a name is not Latin-1.
///
/// `shape` is in elements, the outermost axis first; `[]` for a 0-dimensional array.
pub fn header_of(descr: &str, shape: &[u64]) -> Vec<u8> {
    // A type string is quoted; a list of fields brings its own quotes.
    let quote = if descr.starts_with('[') { "" } else { "'" };
    let growth = shape.first().map_or(0, |first| GROWTH_DIGITS.saturating_sub(first.to_string().len()));
    let dictionary = format!(
        "{{'descr': {quote}{descr}{quote}, 'fortran_order': False, 'shape': {}, }}{:growth$}",
        tuple(shape),
        ""
    );
    let latin1: Option<Vec<u8>> = dictionary.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    let (major, bytes) = match latin1 {
        Some(bytes) if padded(10, bytes.len()) <= LONGEST => (1, bytes),
        Some(bytes) => (2, bytes),
        None => (3, dictionary.into_bytes()),
    };
    let front = if major == 1 { 10 } else { 12 };
    let length = padded(front, bytes.len());
    let mut header = b"\x93NUMPY".to_vec();
    header.extend([major, 0]);
    match major {
        1 => header.extend((length as u16).to_le_bytes()),
        // Records cannot have enough fields for a longer header.
        _ => header.extend((length as u32).to_le_bytes()),
    }
    header.extend(bytes);
    header.resize(front + length - 1, b' ');
    header.push(b'\n');
    header
}

/// Returns type and shape of an array by the front of its file, as numpy writes it, and where its elements begin. `None`
/// for everything else, and for arrays in Fortran order, of big-endian elements, or of records.
pub fn parse(front: &[u8]) -> Option<(DType, Vec<u64>, u64)> {
    let (length, begin) = match front.strip_prefix(b"\x93NUMPY")? {
        [1, 0, a, b, ..] => (u16::from_le_bytes([*a, *b]).into(), 10),
        [2 | 3, 0, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
        _ => return None,
    };
    let end = length + begin;
    let dictionary = std::str::from_utf8(front.get(begin..end)?).ok()?;
    let (descr, rest) = dictionary.strip_prefix("{'descr': '")?.split_once("', 'fortran_order': False, 'shape': (")?;
    let (axes, _) = rest.split_once(')')?;
    let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty()).map(|axis| axis.parse().ok());
    match DType::of_descr(descr)? {
        (dtype, false) => Some((dtype, axes.collect::<Option<_>>()?, end as u64)),
        (_, true) => None,
    }
}

/// Returns the bytes of a dictionary with padding and line end, so that the data begin at a multiple of [`ALIGN`].
/// numpy adds 64 bytes of padding even if none is needed.
fn padded(front: usize, dictionary: usize) -> usize {
    dictionary + 1 + ALIGN - (front + dictionary + 1) % ALIGN
}

#[cfg(test)]
mod tests {
    use crate::format::{DType, Field, Record};

    fn header(dtype: DType, shape: &[u64]) -> Vec<u8> {
        super::header(&dtype.into(), shape)
    }

    #[test]
    fn the_version_is_the_first_that_can_hold_the_header() {
        // numpy 2.4: np.save of np.zeros(3, [(name, "<i4")]) and of np.zeros(2, [(f"field{i:05}", "<f8") ...]).
        let record = |names: Vec<String>| {
            let fields = names.iter().map(|name| Field::new(name, DType::I32)).collect();
            super::header(&Record::new(fields).unwrap().into(), &[3])
        };
        for (name, front, length) in
            [("é", &b"\x93NUMPY\x01\x00\x76\x00"[..], 128), ("日本", b"\x93NUMPY\x03\x00\x74\x00\x00\x00", 128)]
        {
            let header = record(vec![name.into()]);
            assert_eq!((&header[..front.len()], header.len()), (front, length));
        }
        let many = record((0..3000).map(|number| format!("field{number:05}")).collect());
        assert_eq!((&many[..12], many.len()), (&b"\x93NUMPY\x02\x00\xf4\x0d\x01\x00"[..], 69120));
        assert!(many.ends_with(b" \n"));
    }

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
    fn headers_are_read() {
        let read = |descr: &str, shape: &[u64]| super::parse(&super::header_of(descr, shape));
        for (descr, shape) in [("<f8", &[3, 4][..]), ("|S5", &[7]), ("<U2", &[])] {
            let (dtype, _) = DType::of_descr(descr).unwrap();
            assert_eq!(read(descr, shape), Some((dtype, shape.to_vec(), 128)));
        }
        for other in [">f8", "<f8', 'fortran_order': True, '", "[('a', '<i4')]", "O"] {
            assert_eq!(read(other, &[3]), None, "{other}");
        }
        let whole = super::header_of("<f8", &[3]);
        assert_eq!(super::parse(&whole[..127]), None);
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
