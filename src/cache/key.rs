//! What names an entry of the cache.

/// What is kept, of which container (a number of its own for each state of each file).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// A block, or the verdict on one that is stored as it is.
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
    /// Of a block of an IDV column.
    Column {
        /// The opened container.
        container: u64,
        /// The column.
        column: u32,
        /// The number of the block.
        block: u64,
        /// What of it.
        part: ColumnPart,
    },
    /// Of a metadata value of an IDV column.
    Metadata {
        /// The opened container.
        container: u64,
        /// The column.
        column: u32,
        /// The number of the entry.
        entry: u32,
        /// What of it.
        part: ColumnPart,
    },
    /// What a container's `container.json` says.
    Description {
        /// The opened container.
        container: u64,
    },
    /// The footer of a table's Parquet file.
    TableFooter {
        /// The opened container.
        container: u64,
        /// The table's number in it.
        table: u32,
    },
    /// A page of such a file.
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

/// What is kept of a block of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnPart {
    /// The block, decoded.
    Block,
    /// A block in one piece that is stored as it is, or of more than [`crate::limits::WHOLE_BLOCK`].
    Whole,
    /// The index of its rows.
    Index,
    /// The index of its JSON lines.
    Lines,
}

impl Key {
    /// The container, if it is of one.
    pub(super) fn container(&self) -> Option<u64> {
        match *self {
            Self::Block { container, .. }
            | Self::Picture { container, .. }
            | Self::Column { container, .. }
            | Self::Metadata { container, .. }
            | Self::Description { container }
            | Self::TableFooter { container, .. }
            | Self::TablePage { container, .. } => Some(container),
            Self::File { .. } => None,
        }
    }
}
