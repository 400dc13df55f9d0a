//! `.npy` headers, format 1.0, exactly as numpy writes them.

/// Room that numpy leaves behind the dictionary, so that a first axis can grow to this many digits in place.
const GROWTH_DIGITS: usize = 21;
/// Array data start at a multiple of this.
const ALIGN: usize = 64;

/// The header of a C-ordered array: magic, version, length, dictionary, padding.
///
/// `descr` is the dtype as it stands in the dictionary, quotes and all (`'<f8'`); `shape` in elements, outermost axis
/// first, `[]` for a 0-dimensional array.
pub fn header(descr: &str, shape: &[u64]) -> Vec<u8> {
    let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let tuple = match axes.as_slice() {
        [one] => format!("({one},)"),
        axes => format!("({})", axes.join(", ")),
    };
    let growth = axes.first().map_or(0, |first| GROWTH_DIGITS.saturating_sub(first.len()));
    let dictionary = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {tuple}, }}{:growth$}", "");
    // numpy pads by 64 where nothing would be needed; so do we.
    let padding = ALIGN - (10 + dictionary.len() + 1) % ALIGN;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    let length = (dictionary.len() + padding + 1) as u16;
    header.extend(length.to_le_bytes());
    header.extend(dictionary.as_bytes());
    header.resize(header.len() + padding, b' ');
    header.push(b'\n');
    header
}

/// Bytes of a header whose first ten bytes are these; `None` if they begin none.
pub fn header_length(front: &[u8]) -> Option<u64> {
    let length = front.strip_prefix(b"\x93NUMPY\x01\x00")?.first_chunk()?;
    Some(10 + u64::from(u16::from_le_bytes(*length)))
}

/// What a header written by [`header`] says: the descr as it stands there, but for quotes around it, and the shape.
pub fn parse(header: &[u8]) -> Option<(&str, Vec<u64>)> {
    let dictionary = std::str::from_utf8(header.get(10..)?).ok()?;
    let rest = dictionary.strip_prefix("{'descr': ")?;
    let (descr, rest) = rest.split_once(", 'fortran_order': False, 'shape': (")?;
    let axes = rest.split_once(')')?.0.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    Some((descr.trim_matches('\''), axes.map(|axis| axis.parse().ok()).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_numpy_writes_it() {
        // numpy 2.4: np.save of np.zeros((3, 4)).
        let expected = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
        let header = header("'<f8'", &[3, 4]);
        assert_eq!(header.len(), 128);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(std::str::from_utf8(&header[10..]).unwrap().trim_end(), expected);
        assert_eq!(header.last(), Some(&b'\n'));
    }

    #[test]
    fn what_is_written_is_understood() {
        for (descr, shape) in [("<f8", vec![]), ("|b1", vec![7]), ("<u2", vec![0, 5, 1 << 40])] {
            let header = header(&format!("'{descr}'"), &shape);
            assert_eq!(header_length(&header[..10]), Some(header.len() as u64));
            assert_eq!(parse(&header), Some((descr, shape)));
        }
        let record = header("[('ticks', '<i8'), ('offset_minutes', '<i2')]", &[3]);
        assert_eq!(parse(&record), Some(("[('ticks', '<i8'), ('offset_minutes', '<i2')]", vec![3])));
        assert_eq!(header_length(b"PNG"), None);
        assert_eq!(parse(b"\x93NUMPY\x01\x00\x04\x00what"), None);
    }

    #[test]
    fn scalars_and_vectors() {
        assert!(header("'<f8'", &[]).windows(11).any(|w| w == b"'shape': ()"));
        assert!(header("'<f8'", &[7]).windows(13).any(|w| w == b"'shape': (7,)"));
        for ndim in 0..=32 {
            assert_eq!(header("'|u1'", &vec![1_000_000; ndim]).len() % 64, 0);
        }
    }
}
