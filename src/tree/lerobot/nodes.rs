//! Numbers of the nodes of a data set, and names that are the same in all data sets.

use super::tables;
use crate::tree::{DESCRIPTION, NodeId};

/// Kind of a node. Together with the place of the episode, the feature and the frame, it identifies the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Root,
    Description,
    Tasks,
    Meta,
    MetaFile,
    Episodes,
    Episode,
    EpisodeMeta,
    Numbers,
    Text,
    Lines,
    TextFolder,
    Offsets,
    Bytes,
    Images,
    Camera,
    Picture,
    Stack,
    EpisodesTable,
    StepsTable,
}

/// All parts, in the order of their numbers.
const PARTS: [Part; 20] = [
    Part::Root,
    Part::Description,
    Part::Tasks,
    Part::Meta,
    Part::MetaFile,
    Part::Episodes,
    Part::Episode,
    Part::EpisodeMeta,
    Part::Numbers,
    Part::Text,
    Part::Lines,
    Part::TextFolder,
    Part::Offsets,
    Part::Bytes,
    Part::Images,
    Part::Camera,
    Part::Picture,
    Part::Stack,
    Part::EpisodesTable,
    Part::StepsTable,
];

/// Entries of the root, in the order of a listing.
pub(super) const ROOT_ENTRIES: [(&str, Part); 6] = [
    (DESCRIPTION, Part::Description),
    ("episodes", Part::Episodes),
    (tables::EPISODES, Part::EpisodesTable),
    ("meta", Part::Meta),
    (tables::STEPS, Part::StepsTable),
    ("tasks.jsonl", Part::Tasks),
];

/// The folder of cameras in an episode.
pub(super) const IMAGES: &str = "images";

/// The metadata of an episode.
pub(super) const EPISODE_META: &str = "meta.json";

/// Files in the folder of a text feature.
pub(super) const TEXT_FILES: [(&str, Part); 2] = [("offsets.npy", Part::Offsets), ("utf8.bin", Part::Bytes)];

/// A node, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) part: Part,
    /// The place of the episode.
    pub(super) episode: u64,
    /// The feature, or the number of a file of `meta/`.
    pub(super) feature: u16,
    pub(super) frame: u32,
}

impl Node {
    pub(super) fn of(part: Part, episode: u64, feature: usize) -> Self {
        Self { part, episode, feature: feature as u16, frame: 0 }
    }

    /// Unpacks a node number; `None` for a number that no node has.
    pub(super) fn unpack(id: NodeId) -> Option<Self> {
        let part = *PARTS.get(usize::try_from(id.0 >> 112).ok()?)?;
        Some(Self { part, episode: id.0 as u64, frame: (id.0 >> 64) as u32, feature: (id.0 >> 96) as u16 })
    }

    pub(super) fn pack(self) -> NodeId {
        NodeId(
            (self.part as u128) << 112
                | u128::from(self.feature) << 96
                | u128::from(self.frame) << 64
                | u128::from(self.episode),
        )
    }
}

impl Node {
    pub(super) fn is_folder(self) -> bool {
        use Part::{Camera, Episode, Episodes, Images, Meta, Root, TextFolder};
        matches!(self.part, Root | Meta | Episodes | Episode | Images | Camera | TextFolder)
    }

    pub(super) fn is_in_episode(self) -> bool {
        use Part::{Description, Episodes, EpisodesTable, Meta, MetaFile, Root, StepsTable, Tasks};
        !matches!(self.part, Root | Description | Tasks | Meta | MetaFile | Episodes | EpisodesTable | StepsTable)
    }
}
