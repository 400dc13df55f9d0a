//! Overviews of containers for people, as `shardfs info` shows them.

use serde_json::{Map, Value};

use super::ItemInfo;
pub use crate::format::idv::Key;

/// Bytes of memory of an overview without items.
pub(crate) const LEAST: u64 = 64 << 10;

/// Bytes of memory of an item beside its path: itself, its shape, and the text of an error.
pub(crate) const ITEM: u64 = size_of::<Item>() as u64 + 256;

/// An overview of a container.
#[derive(Debug)]
pub struct Overview {
    /// The name of its format.
    pub format: &'static str,
    /// Its contents.
    pub contents: Contents,
}

/// Contents of a container. Formats with the same kind of contents are shown alike.
#[derive(Debug)]
#[non_exhaustive]
pub enum Contents {
    /// Stored items.
    Items {
        /// What `container.json` says of the whole container.
        front: Map<String, Value>,
        /// The items, in the container's order.
        items: Vec<Item>,
    },
    /// A table of columns.
    Table(Table),
    /// Recorded episodes, each with arrays and pictures of its own.
    Episodes {
        /// How many.
        count: u64,
        /// The keys of `container.json` for the whole container, without the episodes.
        front: Map<String, Value>,
    },
    /// Messages of many topics, each with its time.
    Recording(Recording),
}

/// Messages of many topics.
#[derive(Debug)]
pub struct Recording {
    /// What `container.json` says of the whole container.
    pub front: Map<String, Value>,
    /// The times of the first and the last message, in nanoseconds since 1970.
    pub times: Option<(u64, u64)>,
    /// How many messages there are.
    pub messages: u64,
    /// How many topics there are.
    pub topic_count: u64,
    /// The topics in the container's order; if there are very many, not all.
    pub topics: Vec<Topic>,
    /// Bytes of all chunks as they are stored.
    pub stored_size: u64,
    /// Bytes of all chunks, uncompressed.
    pub size: u64,
    /// The number of chunks of each compression.
    pub compressions: Vec<(String, u64)>,
    /// Other folders, with the number of their files.
    pub others: Vec<(&'static str, u64)>,
}

/// A topic of a recording.
#[derive(Debug)]
pub struct Topic {
    /// Its name, with replacement characters if it is not UTF-8.
    pub name: String,
    /// Its folder in the container.
    pub path: String,
    /// The type of its messages; empty if the container does not say it.
    pub kind: String,
    /// How messages are serialised.
    pub encoding: String,
    /// How many messages it has.
    pub messages: u64,
    /// Whether its messages may be pictures.
    pub pictures: bool,
    /// Why messages are not decoded.
    pub undecoded: Option<String>,
    /// Names of files with a number for each message; if there are very many, not all.
    pub arrays: Vec<String>,
}

/// A table whose columns are stored one by one.
#[derive(Debug)]
pub struct Table {
    /// The version of the format that the file has.
    pub version: String,
    /// The oldest version whose readers can read it.
    pub compatible_version: String,
    /// How many rows each column has.
    pub rows: u64,
    /// How many columns there are.
    pub column_count: u32,
    /// The described columns; if there are very many, not all.
    pub columns: Vec<Column>,
    /// Columns that are not described because there are too many.
    pub left_out: u64,
}

/// A column of a table.
#[derive(Debug, Default)]
pub struct Column {
    /// Its name, with replacement characters if it is not UTF-8.
    pub name: String,
    /// The path of its folder.
    pub path: String,
    /// Type of its values, as people write it (`f32[2,3]`); the codec's name if the type is not known.
    pub kind: String,
    /// For keys, what the values stand for.
    pub key: Option<Key>,
    /// For keys, the path of the file with the names of the values, if there is one: a JSON list.
    pub key_names: Option<String>,
    /// Blocks that it is stored in.
    pub blocks: u64,
    /// Rows of each block except the last.
    pub rows_per_block: u64,
    /// How the blocks are compressed; `None` if the kind is not known.
    pub compression: Option<&'static str>,
    /// The number of that kind.
    pub compression_kind: u8,
    /// Bytes of the blocks as they are stored.
    pub stored_size: Option<u64>,
    /// Bytes of the blocks, uncompressed.
    pub size: Option<u64>,
    /// Whether another column of the same name hides it.
    pub hidden: bool,
    /// Why its values cannot be shown: whether it is dead or bad, and the reason.
    pub unusable: Option<(&'static str, String)>,
}

/// A stored item.
#[derive(Debug, Default)]
pub struct Item {
    /// Its path in the container.
    pub path: String,
    /// What is known of it.
    pub info: ItemInfo,
    /// The path of the array of numbers that its blocks stand for.
    pub numbers: Option<String>,
    /// Bytes, uncompressed.
    pub size: Option<u64>,
    /// Whether its parts were put back in order.
    pub recovered: bool,
    /// Whether it is joined from several containers.
    pub joined: bool,
    /// Why it cannot be served.
    pub error: Option<String>,
}
