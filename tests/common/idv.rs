//! IDV files of one block a column, made by hand.

use std::io::Write;

/// A column: name, codec definition, compression, the stored block, and the size that its table states.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) codec: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) stored: Vec<u8>,
    pub(crate) size: i32,
}

/// A definition: the codec's name and its parameters, each shorter than 128 bytes.
pub(crate) fn codec(name: &str, parameters: &[u8]) -> Vec<u8> {
    [&[name.len() as u8], name.as_bytes(), &[parameters.len() as u8], parameters].concat()
}

/// A vector of an item, with one dimension.
pub(crate) fn vector(item: &str, slots: i32) -> Vec<u8> {
    let dims = [1i32.to_le_bytes(), slots.to_le_bytes()].concat();
    codec("VBuffer", &[codec(item, &[]), dims].concat())
}

/// A raw DEFLATE stream of `front` and as many zeros as are missing to `size`.
pub(crate) fn deflated(front: &[u8], size: u64) -> Vec<u8> {
    let mut writer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(front).unwrap();
    let zeros = vec![0; 1 << 20];
    let mut left = size - front.len() as u64;
    while left > 0 {
        let step = left.min(1 << 20);
        writer.write_all(&zeros[..step as usize]).unwrap();
        left -= step;
    }
    writer.finish().unwrap()
}

/// A file whose columns have one block of all rows.
pub(crate) fn file(rows: u64, columns: &[Column]) -> Vec<u8> {
    let mut file = vec![0; 256];
    let mut toc = Vec::new();
    for column in columns {
        let at = file.len() as u64;
        file.extend(&column.stored);
        let lookup = file.len() as u64;
        file.extend(at.to_le_bytes());
        file.extend((column.stored.len() as u32).to_le_bytes());
        file.extend(column.size.to_le_bytes());
        toc.push(column.name.len() as u8);
        toc.extend(column.name.as_bytes());
        toc.extend(&column.codec);
        toc.push(column.kind);
        let mut per_block = rows;
        while per_block > 0x7f {
            toc.push(per_block as u8 | 0x80);
            per_block >>= 7;
        }
        toc.push(per_block as u8);
        toc.extend(lookup.to_le_bytes());
        toc.extend([0; 8]);
    }
    let start = file.len() as u64;
    file.extend(toc);
    let tail = file.len() as u64;
    file.extend(b"\0BVD\0LMC");
    let version = 0x0001_0001_0001_0006u64;
    for (at, number) in [(8, version), (16, version), (24, start), (32, tail), (40, rows)] {
        file[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    file[..8].copy_from_slice(b"CML\0DVB\0");
    file[48..52].copy_from_slice(&(columns.len() as u32).to_le_bytes());
    file
}
