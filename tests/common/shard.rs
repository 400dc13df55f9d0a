//! Shard files made by hand, lies included.

/// One block: what the index says of it, and its stored bytes. Fields that are `None` tell the truth.
#[derive(Clone, Default)]
pub(crate) struct Block {
    pub(crate) name: Vec<u8>,
    pub(crate) stored: Vec<u8>,
    pub(crate) flags: u16,
    pub(crate) content_type: u16,
    pub(crate) offset: Option<u64>,
    pub(crate) disk_size: Option<u64>,
    pub(crate) orig_size: Option<u64>,
    /// 0 for none.
    pub(crate) crc: u32,
    /// Place and length in the string table, where the name is not to be put there.
    pub(crate) name_at: Option<(u32, u16)>,
}

/// The entry flags of a block compressed with zstd.
pub(crate) const ZSTD: u16 = 0x0003;
/// The entry flags of a block compressed with lz4.
pub(crate) const LZ4: u16 = 0x0005;

impl Block {
    pub(crate) fn new(name: impl AsRef<[u8]>, stored: impl Into<Vec<u8>>) -> Self {
        Self { name: name.as_ref().to_vec(), stored: stored.into(), ..Self::default() }
    }

    /// A block that is said to decode to `size` bytes.
    pub(crate) fn packed(name: &str, flags: u16, stored: impl Into<Vec<u8>>, size: u64) -> Self {
        Self { flags, orig_size: Some(size), ..Self::new(name, stored) }
    }
}

/// A file of these blocks; `strings` goes into the string table in front of the names.
pub(crate) fn file_with(role: u8, strings: &[u8], blocks: &[Block]) -> Vec<u8> {
    let table_at = 64 + 48 * blocks.len();
    let mut table = strings.to_vec();
    let names: Vec<(u32, u16)> = blocks
        .iter()
        .map(|block| {
            block.name_at.unwrap_or_else(|| {
                table.extend(&block.name);
                ((table.len() - block.name.len()) as u32, block.name.len() as u16)
            })
        })
        .collect();
    let data_at = (table_at + table.len()).next_multiple_of(32);
    let (mut index, mut data) = (Vec::<u8>::new(), Vec::<u8>::new());
    for (block, (name_at, name_length)) in blocks.iter().zip(names) {
        let stored_size = block.stored.len() as u64;
        index.extend(0u64.to_le_bytes());
        index.extend(name_at.to_le_bytes());
        index.extend(name_length.to_le_bytes());
        index.extend(block.flags.to_le_bytes());
        index.extend(block.offset.unwrap_or((data_at + data.len()) as u64).to_le_bytes());
        index.extend(block.disk_size.unwrap_or(stored_size).to_le_bytes());
        index.extend(block.orig_size.unwrap_or(stored_size).to_le_bytes());
        index.extend(block.crc.to_le_bytes());
        index.extend(u32::from(block.content_type).to_le_bytes());
        data.extend(&block.stored);
    }
    let mut file = b"SHRD\x02".to_vec();
    file.push(role);
    file.extend([0, 0, 32, 0, 48, 0]);
    file.extend((blocks.len() as u32).to_le_bytes());
    for number in [table_at, data_at, 0, data_at + data.len()] {
        file.extend((number as u64).to_le_bytes());
    }
    file.resize(64, 0);
    file.extend(index);
    file.extend(table);
    file.resize(data_at, 0);
    file.extend(data);
    file
}

/// A file of these blocks.
pub(crate) fn file(role: u8, blocks: &[Block]) -> Vec<u8> {
    file_with(role, b"", blocks)
}

/// A zstd frame of a few kilobytes that decodes to `size` zeros (rounded up to 128 KiB), and says that it decodes to
/// `claim`, or says nothing.
pub(crate) fn zstd_bomb(size: u64, claim: Option<u64>) -> Vec<u8> {
    const STEP: u64 = 1 << 17;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd];
    // Frame header: a window of 128 KiB, and the content size in 8 bytes or not at all.
    frame.extend([if claim.is_some() { 0xc0 } else { 0 }, 0x38]);
    frame.extend(claim.map(u64::to_le_bytes).unwrap_or_default().iter().take(if claim.is_some() { 8 } else { 0 }));
    let blocks = size.div_ceil(STEP).max(1);
    for number in 1..=blocks {
        // One byte, repeated: block type 1.
        let header = (STEP as u32) << 3 | 1 << 1 | u32::from(number == blocks);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}
