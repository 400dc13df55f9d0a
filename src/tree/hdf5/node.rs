//! Numbers of nodes. A number contains the part of an object that the node is, and the object's place in the tree: the
//! number of the link on each level from the root. So no table of nodes is needed, and a number means the same each
//! time the file is opened.

use crate::tree::NodeId;

/// The part of an object that a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Part {
    /// The folder of a group; the root is one, too.
    Group,
    /// `container.json`.
    Description,
    /// The array of a dataset.
    Array,
    /// JSON lines of a dataset.
    Lines,
    /// One text.
    Text,
    /// Stored bytes of a dataset that no array shows.
    Stored,
    /// The attributes of an object.
    Attributes,
    /// The folder beside a dataset's file.
    Folder,
    /// In that folder: where rows begin.
    Offsets,
    /// In that folder: the bytes of texts.
    Bytes,
    /// In that folder: the items of rows.
    Values,
    /// In that folder: a picture.
    Picture,
    /// A dataset as a table.
    Table,
    /// The folder of large attributes.
    LargeAttributes,
    /// A large attribute, by its number.
    LargeAttribute,
    /// A link to a part of an object.
    Link,
    /// A table that a profile adds.
    Profile,
    /// A group below `.raw`.
    RawGroup,
    /// A dataset below `.raw`.
    RawDataset,
    /// A chunk after all filters, by its number among the stored ones.
    RawChunk,
    /// A chunk as it is stored.
    RawStored,
}

/// All parts, by their numbers.
const PARTS: [Part; 21] = [
    Part::Group,
    Part::Description,
    Part::Array,
    Part::Lines,
    Part::Text,
    Part::Stored,
    Part::Attributes,
    Part::Folder,
    Part::Offsets,
    Part::Bytes,
    Part::Values,
    Part::Picture,
    Part::Table,
    Part::LargeAttributes,
    Part::LargeAttribute,
    Part::Link,
    Part::Profile,
    Part::RawGroup,
    Part::RawDataset,
    Part::RawChunk,
    Part::RawStored,
];

/// Bits of the number of a picture, an attribute or a chunk.
const ITEM: u32 = 35;

/// Bits of a place.
const PLACE: u32 = 88;

/// The place of an object in the tree; 0 is the root. It is a number in a mixed base: the numbers of the links of each
/// group count from 1, and the base of each level is one more than the greatest. So a place has as few bits as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place(pub(super) u128);

/// A node, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) part: Part,
    /// The number of the picture, attribute or chunk.
    pub(super) item: u64,
    pub(super) place: Place,
}

/// The root.
pub(super) const ROOT_PLACE: Place = Place(0);

impl Part {
    /// Returns the part with a number.
    pub(super) fn of(number: u64) -> Option<Self> {
        PARTS.get(usize::try_from(number).ok()?).copied()
    }

    pub(super) fn is_folder(self) -> bool {
        matches!(self, Self::Group | Self::Folder | Self::LargeAttributes | Self::RawGroup | Self::RawDataset)
    }
}

impl Place {
    /// Returns the place of a link, in a group whose links have the weight `weight`.
    pub(super) fn child(self, weight: u128, number: u64) -> Option<Self> {
        let place = weight.checked_mul(u128::from(number) + 1)?.checked_add(self.0)?;
        (place >> PLACE == 0).then_some(Self(place))
    }
}

impl Node {
    pub(super) fn of(part: Part, place: Place) -> Self {
        Self { part, item: 0, place }
    }

    pub(super) fn item(part: Part, place: Place, item: u64) -> Self {
        Self { part, item, place }
    }

    /// Unpacks a number; `None` if no node has it.
    pub(super) fn unpack(id: NodeId) -> Option<Self> {
        let part = Part::of((id.0 >> (ITEM + PLACE)) as u64)?;
        let item = (id.0 >> PLACE) as u64 & ((1 << ITEM) - 1);
        Some(Self { part, item, place: Place(id.0 & ((1 << PLACE) - 1)) })
    }

    /// Returns the number; `None` if there are more pictures or chunks than numbers.
    pub(super) fn pack(self) -> Option<NodeId> {
        let Self { part, item, place } = self;
        (item >> ITEM == 0).then(|| NodeId((part as u128) << (ITEM + PLACE) | u128::from(item) << PLACE | place.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unpacked_as_they_were_packed() {
        for (number, part) in (0..).zip(PARTS) {
            assert_eq!(part as u64, number);
            let node = Node::item(part, Place((1 << PLACE) - 1), (1 << ITEM) - 1);
            assert_eq!(Node::unpack(node.pack().unwrap()), Some(node));
        }
        assert_eq!(Node::item(Part::Picture, ROOT_PLACE, 1 << ITEM).pack(), None);
        assert_eq!(Node::unpack(NodeId(u128::MAX)), None);
        assert_eq!(Node::of(Part::Group, ROOT_PLACE).pack(), Some(crate::tree::ROOT));
    }
}
