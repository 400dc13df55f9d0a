//! kastore stores made by hand (`docs/formats/kastore.md` 1), and the `.npy` files that a mount must make of them.

/// A store of i64 arrays; keys in rising order.
pub(crate) fn store(arrays: &[(&str, &[i64])]) -> Vec<u8> {
    let mut at = 64 + 64 * arrays.len();
    let (mut keys, mut starts) = (Vec::new(), Vec::new());
    for (key, _) in arrays {
        keys.push(at);
        at += key.len();
    }
    for (_, array) in arrays {
        starts.push(at.next_multiple_of(8));
        at = at.next_multiple_of(8) + 8 * array.len();
    }
    let mut bytes = b"\x89KAS\r\n\x1a\n\x01\0\0\0".to_vec();
    bytes.extend((arrays.len() as u32).to_le_bytes());
    bytes.extend((at as u64).to_le_bytes());
    bytes.resize(64, 0);
    for (((key, array), key_at), start) in arrays.iter().zip(keys).zip(&starts) {
        bytes.extend(6u64.to_le_bytes());
        for number in [key_at, key.len(), *start, array.len()] {
            bytes.extend((number as u64).to_le_bytes());
        }
        bytes.extend([0; 24]);
    }
    arrays.iter().for_each(|(key, _)| bytes.extend(key.as_bytes()));
    for ((_, array), start) in arrays.iter().zip(starts) {
        bytes.resize(start, 0);
        array.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    }
    bytes
}

/// An i64 array as numpy's `.npy`, version 1.0.
pub(crate) fn npy(array: &[i64]) -> Vec<u8> {
    let mut header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", array.len());
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    array.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    bytes
}
