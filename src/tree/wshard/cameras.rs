//! Camera channels of a WShard episode as pictures: which arrays are, and of what size (`docs/TREE.md`, section 3).

use std::sync::Arc;

use crate::{
    format::{
        DType,
        wshard::{Entry, Value},
    },
    view::{Data, png::Png},
};

/// The folder of pictures, in the root of the container.
pub(super) const IMAGES: &str = "images";

/// Folder names that are reserved in the root of a Shard file, in addition to those of every folder.
pub(super) const RESERVED: [&str; 1] = [IMAGES];

/// The steps of a camera channel as pictures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pictures {
    pub(super) pixels: Pixels,
    pub(super) steps: u64,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) channels: u8,
    /// Bytes of a channel: 1, or 2 for 16-bit grey.
    pub(super) depth: u8,
}

/// Source of the pixels.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pixels {
    /// In the block of an entry.
    Entry(u32),
    /// In an array of the joined episode.
    Joined(u32),
}

impl Pictures {
    /// Returns the pictures of an array, if it is shown as pictures (`docs/TREE.md`, section 3): u8 with colours, or u8
    /// and u16 without colours if something says that it is a picture.
    fn of(pixels: Pixels, name: &[u8], dtype: DType, shape: &[u64], says_so: impl Fn() -> bool) -> Option<Self> {
        let (&steps, channels, depth) = match (dtype, shape) {
            (DType::U8, [steps, _, _, channels @ (1 | 3 | 4)]) => (steps, *channels as u8, 1),
            (DType::U8, [steps, _, _]) if says_so() => (steps, 1, 1),
            (DType::U16, [steps, _, _]) if says_so() => (steps, 1, 2),
            _ => return None,
        };
        let (height, width) = (u32::try_from(*shape.get(1)?).ok()?, u32::try_from(*shape.get(2)?).ok()?);
        // Sizes that PNG cannot represent have no pictures.
        Png::new(Data::Inline(Arc::default()), 0, width, height, channels, depth)?;
        let found = Self { pixels, steps, width, height, channels, depth };
        (name.starts_with(b"signal/") && steps > 0).then_some(found)
    }

    /// Returns the pictures of a block, if it is shown as pictures too.
    pub(super) fn of_entry(number: u32, entry: &Entry) -> Option<Self> {
        const MODALITIES: [&str; 3] = ["rgb", "depth", "video"];
        const NAMES: [&str; 7] = ["rgb", "depth", "video", "image", "img", "cam", "mask"];
        let Value::Array { dtype, shape, data_offset: 0, .. } = &entry.value else { return None };
        // The size of a block that can never be read means nothing.
        if entry.block.error.is_some() || !entry.visible {
            return None;
        }
        Self::of(Pixels::Entry(number), &entry.name, *dtype, shape, || {
            let modality = entry.modality().is_some_and(|modality| MODALITIES.contains(&modality));
            let last = String::from_utf8_lossy(entry.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
            modality || NAMES.iter().any(|name| last.contains(name))
        })
    }

    /// Returns the pictures of an array of the joined episode that the chunks show as pictures.
    pub(super) fn of_joined(number: u32, name: &[u8], dtype: DType, shape: &[u64]) -> Option<Self> {
        Self::of(Pixels::Joined(number), name, dtype, shape, || true)
    }

    /// Returns the bytes of one picture's pixels.
    pub(super) fn frame_size(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * u64::from(self.channels) * u64::from(self.depth)
    }
}
