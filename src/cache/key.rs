//! What names an entry of the cache.

/// Names an entry of the cache. `container` is a different number for each state of each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// A block, or the verdict on an uncompressed one.
    Block {
        /// The opened container.
        container: u64,
        /// The number of its entry.
        number: u32,
    },
    /// A decoded picture.
    Picture {
        /// The opened container.
        container: u64,
        /// Where the picture is stored.
        offset: u64,
    },
    /// A chunk of a chunked array.
    Chunk {
        /// The opened container.
        container: u64,
        /// The array's number in it.
        grid: u64,
        /// The chunk's place in the grid, in C order.
        number: u64,
    },
    /// A part of a block of an IDV column.
    Column {
        /// The opened container.
        container: u64,
        /// The column.
        column: u32,
        /// The number of the block.
        block: u64,
        /// Which part.
        part: ColumnPart,
    },
    /// A part of a metadata value of an IDV column.
    Metadata {
        /// The opened container.
        container: u64,
        /// The column.
        column: u32,
        /// The number of the entry.
        entry: u32,
        /// Which part.
        part: ColumnPart,
    },
    /// A text that a container makes, such as `container.json`.
    Document {
        /// The opened container.
        container: u64,
        /// Which one.
        number: u32,
    },
    /// The footer of a table's Parquet file.
    TableFooter {
        /// The opened container.
        container: u64,
        /// The table's number in it.
        table: u32,
    },
    /// A page of a table's Parquet file.
    TablePage {
        /// The opened container.
        container: u64,
        /// The table's number in it.
        table: u32,
        /// The number of the column in the file.
        column: u32,
        /// The row group.
        group: u64,
    },
    /// A whole virtual file in memory.
    File {
        /// Its inode number.
        ino: u64,
    },
}

/// What is kept of a block of an IDV column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnPart {
    /// The block, decoded.
    Block,
    /// An uncompressed block, or one of more than [`crate::limits::WHOLE_BLOCK`], in one piece.
    Whole,
    /// The index of its rows.
    Index,
    /// The index of its JSON lines.
    Lines,
}

impl Key {
    /// Returns the container, unless the entry belongs to none.
    pub(super) fn container(&self) -> Option<u64> {
        match *self {
            Self::Block { container, .. }
            | Self::Picture { container, .. }
            | Self::Chunk { container, .. }
            | Self::Column { container, .. }
            | Self::Metadata { container, .. }
            | Self::Document { container, .. }
            | Self::TableFooter { container, .. }
            | Self::TablePage { container, .. } => Some(container),
            Self::File { .. } => None,
        }
    }
}
