//! What names an entry of the cache.

/// Names an entry of the cache. What `a` and `b` count is the tag's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    container: u64,
    tag: Tag,
    a: u64,
    b: u64,
}

/// The kind of an entry of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// Returns the name of a virtual file in memory.
    pub(super) fn file(ino: u64) -> Self {
        Self::new(0, Tag::File, ino, 0)
    }

    pub(super) fn is_file(&self) -> bool {
        self.tag == Tag::File
    }

    /// Returns the container, unless the entry belongs to none.
    pub(super) fn container(&self) -> Option<u64> {
        (!self.is_file()).then_some(self.container)
    }
}
