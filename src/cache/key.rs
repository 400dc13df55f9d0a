//! What names an entry of the cache.

use sha2::{Digest, Sha256};

/// Names an entry of the cache. What `a` and `b` count is the tag's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    container: u64,
    tag: Tag,
    a: u64,
    b: u64,
}

/// The kind of an entry of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tag {
    /// A block, or the result of the checksum of an uncompressed one, by its number in the container.
    Block,
    /// A chunk of a chunked array, by the array's number and the chunk's place in the grid, in C order.
    Chunk,
    /// A text that a container makes, such as `container.json`, by its number.
    Document,
    /// The footer of a table's Parquet file, by the table's number.
    TableFooter,
    /// A page of a table's Parquet file, by the number of the table, and column and row group as one number.
    TablePage,
    /// A whole virtual file in memory, by its inode number. It belongs to no container.
    File,
    /// What one format keeps. The number and what it counts are that format's own.
    Own(u8),
    /// The layout of a table, by its number.
    Table,
    /// Checksums of parts of a block that was read in part, by its number in the container.
    Sums,
    /// A value that one format has parsed. The number and what it counts are that format's own.
    Parsed(u8),
    /// What is known of something that has a name instead of numbers ([`Key::named`]). It belongs to no container.
    Named,
    /// A far file in one state, under the number of its store instead of a container's, and the hash of its name.
    FarFile,
    /// Stored bytes of a far file, under the number of its store: by the file's number, and where they begin.
    Fetched,
}

impl Tag {
    /// The first one in the order of keys.
    pub(super) const FIRST: Self = Self::Block;
}

/// Returns two numbers as one.
pub fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Key {
    /// Returns the name of what an open container has. `container` is a different number for each state of each file.
    pub const fn new(container: u64, tag: Tag, a: u64, b: u64) -> Self {
        Self { container, tag, a, b }
    }

    /// Returns the name of what is known under a name of any length. `kind` tells what.
    pub fn named(kind: &str, name: &[u8]) -> Self {
        let mut hash = Sha256::new_with_prefix(kind);
        hash.update([0]);
        hash.update(name);
        let hash: [u8; 32] = hash.finalize().into();
        let number =
            |at: usize| hash.iter().skip(8 * at).take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        Self::new(number(0), Tag::Named, number(1), number(2))
    }

    /// Returns the name of something of a container that has a name of any length, as [`Self::named`].
    pub fn of_name(container: u64, tag: Tag, name: &[u8]) -> Self {
        let Self { a, b, .. } = Self::named("", name);
        Self::new(container, tag, a, b)
    }

    /// Returns the name of the checksums of parts of a block of a container.
    pub(super) fn sums(self) -> Option<Self> {
        (self.tag == Tag::Block).then_some(Self { tag: Tag::Sums, ..self })
    }

    /// Returns the name of a virtual file in memory.
    pub(super) fn file(ino: u64) -> Self {
        Self::new(0, Tag::File, ino, 0)
    }

    pub(super) fn is_file(&self) -> bool {
        self.tag == Tag::File
    }

    /// Returns the container, unless the entry belongs to none.
    pub(super) fn container(&self) -> Option<u64> {
        (!matches!(self.tag, Tag::File | Tag::Named | Tag::FarFile | Tag::Fetched)).then_some(self.container)
    }

    /// Returns the number of the store, if the entry belongs to one.
    pub(super) fn store(&self) -> Option<u64> {
        matches!(self.tag, Tag::FarFile | Tag::Fetched).then_some(self.container)
    }

    pub(super) fn is_fetched(&self) -> bool {
        self.tag == Tag::Fetched
    }
}
