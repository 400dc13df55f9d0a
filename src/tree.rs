//! Names and nodes of one container: computed from what the parser found, not stored as files.
//!
//! [`Container`] is the interface of every format. A format whose items are all known when it is opened describes them
//! as `Content` and gets the rest from `Table`.

pub mod attributes;
mod choice;
mod columns;
mod data_frames;
pub mod describe;
mod descriptor;
mod episodes;
mod formats;
mod found;
mod frames;
mod gguf;
mod hdf5;
mod idv;
mod item_info;
mod kastore;
mod kdb;
mod lerobot;
pub mod links;
mod mcap;
mod members;
mod memory;
pub mod names;
mod netcdf;
mod notices;
mod npz;
pub mod overview;
pub mod paths;
mod pt;
mod recording;
mod rlds;
mod rosbag;
pub mod rows;
mod safetensors;
mod siblings;
pub mod table;
mod table_file;
mod tables;
mod totals;
mod wshard;
mod zarr;

use std::{any::Any, ops::ControlFlow, sync::Arc};

use crate::{
    cache::Buffer,
    view::{Array, Fault, ReadContext, View, attributes::Attributes},
};
pub use choice::{ChoiceError, add_format, choose, default_formats, known_formats, names as format_names};
pub use descriptor::{CheckOthers, CheckPart, Format, OpenResult, Others, Probe};
pub use episodes::{Camera, Episode, Episodes, Said, Success, Timeline, episode_name};
pub use formats::{
    Detected, FORMATS, Formats, GGUF, HDF5, IDV, KAST, KASTORE, KDB, LEROBOT, MCAP, NETCDF, NPZ, PT, RLDS, ROSBAG,
    SAFETENSORS, TFRECORD, TSZIP, Unread, WSHARD, ZARR, ZARR_ZIP, begins_with_container, detect, detect_within,
    format_of_name, is_container_name, should_be_container,
};
pub use item_info::{ItemInfo, ObjectField};
pub use memory::{Probed, WorkingMemory};
pub(crate) use memory::{no_memory, refused};
pub use notices::{Notice, Notices};
pub use overview::Overview;
pub use siblings::{Beside, NotThere, OpenPart, Reach, Siblings};
use table::{Content, Entry, FrameNames, Table};
pub(crate) use table_file::{FileColumn, TableFile};

/// A node of a container. The same container gives the same numbers each time; 0 is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub u128);

/// The file in every container that describes it. It is written on first use, which takes a while if there is much.
pub const DESCRIPTION: &str = "container.json";

/// Bytes of memory that each allocation takes in addition to its contents.
const HEAP: usize = 16;

/// The root of every container.
pub const ROOT: NodeId = NodeId(0);

/// No node of a format has this number.
pub const NO_NODE: NodeId = NodeId(u128::MAX);

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A folder, with the number of folders in it if that is known without a walk.
    Folder {
        /// How many.
        subfolders: Option<u32>,
    },
    /// A file.
    File,
    /// A symbolic link to another place, by [`Container::link_target`].
    Link,
}

/// A child in a listing.
#[derive(Debug)]
pub struct Child<'a> {
    /// Position at which a listing continues after this child.
    pub next: u64,
    /// Its name.
    pub name: &'a str,
    /// Its node.
    pub node: NodeId,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// An opened container.
///
/// The methods with a default are capabilities that a format may have: parts, tables, rows, attributes, links,
/// episodes, a timeline. Commands, pages, the index and Python ask for them and for nothing else.
pub trait Container: Any + Send + Sync {
    /// Returns the child of a folder by that name, even a hidden one.
    ///
    /// # Errors
    /// [`Fault`] if the answer needs bytes that cannot be read.
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault>;

    /// Passes the listed children from a position (0 at first) to `each`, until it breaks.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault>;

    /// Returns the kind of a node; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn kind(&self, reader: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault>;

    /// Returns the folder that contains a node.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn parent(&self, reader: &ReadContext, node: NodeId) -> Result<NodeId, Fault>;

    /// Returns a node's path below the container.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault>;

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault>;

    /// Returns where a node of the kind [`NodeKind::Link`] leads: a path relative to the link's folder, as
    /// [`links::relative`] makes it. It stays inside the container, or leads to a container at or below this one's
    /// folder. `None` for all other nodes.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn link_target(&self, reader: &ReadContext, link: NodeId) -> Result<Option<String>, Fault> {
        let _ = (reader, link);
        Ok(None)
    }

    /// Returns the JSON file with the attributes of a group or an array (`docs/TREE.md`, section 2): for the folder or
    /// the `.npy` file, the node of its `attributes.json` or `.attrs.json`. `None` if it has no attributes.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn attributes(&self, reader: &ReadContext, node: NodeId) -> Result<Option<NodeId>, Fault> {
        let _ = (reader, node);
        Ok(None)
    }

    /// Returns whether the format has groups, which its folders show. A tree of groups and arrays then tells more than
    /// a list of all arrays.
    fn has_groups(&self) -> bool {
        false
    }

    /// Returns the stored name of the group, array or link that a node shows; `None` if it shows none of them. Formats
    /// with groups have it at least if the name of the node is shortened, others never.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn stored_name(&self, reader: &ReadContext, node: NodeId) -> Result<Option<Vec<u8>>, Fault> {
        let _ = (reader, node);
        Ok(None)
    }

    /// Returns the attributes of a group or an array with their types: for the same nodes as [`Self::attributes`], and
    /// for nodes that show an array without a `.npy` file. Their memory is reserved from `memory`.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn attribute_values(
        &self,
        reader: &ReadContext,
        node: NodeId,
        memory: &WorkingMemory<'_>,
    ) -> Result<Option<Attributes>, Fault> {
        let _ = (reader, node, memory);
        Ok(None)
    }

    /// Returns some rows of a file of lines of JSON, as [`crate::view::attributes::Value::exact_line`] writes them, each
    /// with a line end. `None` for files whose lines are exact. Their memory is reserved from `memory`.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn exact_rows(
        &self,
        reader: &ReadContext,
        file: NodeId,
        rows: std::ops::Range<u64>,
        memory: &WorkingMemory<'_>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let _ = (reader, file, rows, memory);
        Ok(None)
    }

    /// Returns the bytes of `container.json`.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault>;

    /// Returns an overview for people. [`Self::overview_memory`] is reserved for it.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn overview(&self, reader: &ReadContext) -> Result<Overview, Fault>;

    /// Returns the most bytes of memory that an overview takes, about.
    fn overview_memory(&self) -> u64 {
        overview::LEAST
    }

    /// Returns a block's stored name, for messages; by default there are no names.
    fn block_name(&self, block: u32) -> String {
        let _ = block;
        String::new()
    }

    /// Returns the paths of the arrays that are stored, but not as items, such as those of metadata.
    fn other_arrays(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the bytes of memory that it takes now, about.
    fn memory_usage(&self) -> usize;

    /// Returns what was noticed when the container was opened and is no error.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Returns what is noticed later, for formats that parse their parts on first use.
    fn notices(&self) -> Option<&Notices> {
        None
    }

    /// Gives a container that was opened without them the other files of its folder. Those that need none when they are
    /// opened, and show others later, keep them.
    fn reach(&self, siblings: Arc<dyn Siblings>) {
        let _ = siblings;
    }

    /// Returns whether it shows parts of other containers, which are opened with it.
    fn has_parts(&self) -> bool {
        false
    }

    /// Returns the containers that it shows joined as one, by their paths below its folder. Empty for a container that
    /// shows its own file alone, and for one that could not join others.
    fn joins(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the array that a `.npy` file shows; `None` for all other nodes.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault>;

    /// Returns the description of the stored item that a file shows; for an array at least dtype and shape. It reads no
    /// more of the container than a look-up of the file. Rows of varying length that are shown as a folder alone have
    /// it for that folder. `None` for all other folders, and for files that show no stored item.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        Ok(self.array(reader, node)?.map(ItemInfo::from))
    }

    /// Returns some rows of the column that a folder shows, without reading others: at most the first `elements` of
    /// each, and at most the first bytes of a text. `None` if the folder is no such column.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn rows(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        rows: std::ops::Range<u64>,
        elements: u64,
        bytes: u64,
    ) -> Result<Option<Vec<Cells>>, Fault> {
        let _ = (reader, folder, rows, elements, bytes);
        Ok(None)
    }

    /// Returns what is wrong that reading the files does not show: other files that this container needs are read
    /// whole, and checksums of many parts together are compared. For `shardfs verify`.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        let _ = reader;
        Ok(Vec::new())
    }

    /// Returns whether a node is a table, a Parquet file that repeats what other files show.
    fn is_table(&self, _: &ReadContext, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Returns whether a folder has nothing but pictures that repeat what an array shows.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn repeats_array(&self, reader: &ReadContext, folder: NodeId) -> Result<bool, Fault> {
        let _ = (reader, folder);
        Ok(false)
    }

    /// Returns the name of the kind of container, if its format has several with names of their own.
    fn kind_name(&self) -> Option<&'static str> {
        None
    }

    /// Returns its recorded episodes, if it holds many and each has a folder.
    fn episodes(&self) -> Option<&dyn Episodes> {
        None
    }

    /// Returns what the player needs of a folder in which something happens in time: an episode, or a container that is
    /// one recording. Its pictures are below `images/`. `None` for all other folders.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn timeline(&self, reader: &ReadContext, folder: NodeId) -> Result<Option<Timeline>, Fault> {
        let _ = (reader, folder);
        Ok(None)
    }
}

/// A row of a column.
#[derive(Debug)]
pub struct Cells {
    /// Number of its elements; `None` in a column with one element per row, and if there is no list.
    pub count: Option<u64>,
    /// The first of its elements; `None` for those that are missing.
    pub elements: Vec<Option<Cell>>,
}

/// An element of a row.
#[derive(Debug)]
pub enum Cell {
    /// A value of one size, little-endian.
    Number(crate::format::DType, Vec<u8>),
    /// A text.
    Text(Text),
    /// Other bytes, which may be a text.
    Bytes(Text),
    /// A number or a time of day that has no type.
    Written(String),
}

/// The front of a text.
#[derive(Debug)]
pub struct Text {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Number of all its bytes.
    pub length: u64,
}
