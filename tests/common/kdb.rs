//! KDB files made by hand, lies included (`docs/formats/kdb.md` 2 to 6).

/// One episode: its sections, and what the index says of them where that is a lie.
#[derive(Clone, Default)]
pub(crate) struct Episode {
    pub(crate) frames: u32,
    pub(crate) action_dim: u16,
    pub(crate) state_dim: u16,
    pub(crate) rows: Vec<u8>,
    pub(crate) images: Vec<u8>,
    pub(crate) meta: Vec<u8>,
    /// Offset and length of rows, images and metadata, where they are not the truth.
    pub(crate) places: [Option<(u64, u64)>; 3],
}

impl Episode {
    /// Frames of one picture each, with rows of nothing but reward and flag, and sound metadata.
    pub(crate) fn of_pictures(frames: &[Vec<u8>]) -> Self {
        let images = frames.iter().flat_map(|records| [&1u16.to_le_bytes()[..], records].concat()).collect();
        let (frames, rows) = (frames.len() as u32, vec![0; 5 * frames.len()]);
        Self { frames, rows, images, meta: meta(), ..Self::default() }
    }
}

/// The smallest metadata: empty texts.
pub(crate) fn meta() -> Vec<u8> {
    vec![0; 10]
}

/// A picture's head, and its bytes behind it: `length` is what the head says.
pub(crate) fn picture(name: &[u8], size: (u32, u32, u8), format: u8, length: u32, bytes: &[u8]) -> Vec<u8> {
    let mut record = (name.len() as u16).to_le_bytes().to_vec();
    record.extend(name);
    record.extend(size.0.to_le_bytes());
    record.extend(size.1.to_le_bytes());
    record.extend([size.2, format]);
    record.extend(length.to_le_bytes());
    record.extend(bytes);
    record
}

/// A file of these episodes; `index` is the offset and length of the index, where they are not the truth.
pub(crate) fn file(episodes: &[Episode], index: Option<(u64, u64)>) -> Vec<u8> {
    let mut file = b"KINO\0\0\x01\0".to_vec();
    file.resize(64, 0);
    let mut entries = Vec::new();
    for (number, episode) in episodes.iter().enumerate() {
        entries.extend((number as u64).to_le_bytes());
        entries.extend(episode.frames.to_le_bytes());
        entries.extend(episode.action_dim.to_le_bytes());
        entries.extend(episode.state_dim.to_le_bytes());
        for (section, lie) in [&episode.rows, &episode.images, &episode.meta].into_iter().zip(episode.places) {
            let (offset, length) = lie.unwrap_or((file.len() as u64, section.len() as u64));
            entries.extend(offset.to_le_bytes());
            entries.extend(length.to_le_bytes());
            file.extend(section);
        }
    }
    let (offset, length) = index.unwrap_or((file.len() as u64, entries.len() as u64));
    file[8..16].copy_from_slice(&(episodes.len() as u64).to_le_bytes());
    file[24..32].copy_from_slice(&offset.to_le_bytes());
    file[32..40].copy_from_slice(&length.to_le_bytes());
    file.extend(entries);
    file
}
