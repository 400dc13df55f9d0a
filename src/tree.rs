//! Names and nodes of one container: computed from what the parser found, not stored as files.
//!
//! [`Container`] is what the rest of the program knows of a format. A format whose items are all known when it is
//! opened describes them as `Content` and gets the rest from `Table`.

mod choice;
mod describe;
mod formats;
mod idv;
mod item_info;
mod kastore;
mod kdb;
mod memory;
pub mod names;
pub mod overview;
pub mod paths;
mod table;
mod tables;
mod wshard;

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::{
    cache::{Buffer, LateFailures, Reservation},
    format::wshard::Shard,
    source::Wait,
    store::{Version, Watch},
    view::{Array, Fault, ReadContext, View},
};
pub use choice::{ChoiceError, choose, default_formats, names as format_names};
pub use formats::{
    Detected, FORMATS, Format, Formats, IDV, KAST, KASTORE, KDB, OpenResult, Probe, WSHARD, detect, detect_within,
    format_of_name, is_container_name, no_others, no_part, should_be_container,
};
pub use item_info::ItemInfo;
pub use memory::WorkingMemory;
pub(crate) use memory::refused;
pub use overview::Overview;
use table::{Content, Entry, FrameNames, Table};
pub use wshard::Siblings;

/// A node of a container. The same container gives the same numbers each time; 0 is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub u128);

/// The file in every container that says what it holds. It is written on first use, which takes a while where that
/// is much.
pub const DESCRIPTION: &str = "container.json";

/// What each piece of memory takes beside its bytes.
const HEAP: usize = 16;

/// The root of every container.
pub const ROOT: NodeId = NodeId(0);

/// The container's own bytes, as a file in its root that is not listed. A stored name of that kind hides it.
const OWN_FILE: &str = ".file";

/// The node of [`OWN_FILE`]; no format uses the number.
const OWN_FILE_NODE: NodeId = NodeId(u128::MAX);

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A folder, with the number of folders in it where that is known without a walk.
    Folder {
        /// How many.
        subfolders: Option<u32>,
    },
    /// A file.
    File,
}

/// A child in a listing.
#[derive(Debug)]
pub struct Child<'a> {
    /// Where a listing goes on behind this child.
    pub next: u64,
    /// Its name.
    pub name: &'a str,
    /// Its node.
    pub node: NodeId,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// An opened container.
pub trait Container: Send + Sync {
    /// The child of a folder by that name, hidden ones included.
    ///
    /// # Errors
    /// [`Fault`] where the answer needs bytes that can't be read.
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault>;

    /// Goes through the shown children from a position (0 at first), until `each` breaks.
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

    /// What a node is; `None` if there is no such node.
    fn kind(&self, node: NodeId) -> Option<NodeKind>;

    /// The folder that holds a node.
    fn parent(&self, node: NodeId) -> NodeId;

    /// A node's path below the container, for messages.
    fn path(&self, node: NodeId) -> String;

    /// The bytes of a file.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault>;

    /// The bytes of `container.json`.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault>;

    /// What it holds, for people.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn overview(&self) -> Result<Overview, Fault>;

    /// A block's stored name, for messages.
    fn block_name(&self, block: u32) -> String;

    /// Bytes of memory that it takes, about: what it knows of its items now.
    fn memory_usage(&self) -> usize;

    /// What was noticed when the container was opened, and is no error.
    fn warnings(&self) -> &[String];

    /// What was noticed since the last call. For formats that parse their parts on first use.
    fn drain_warnings(&self) -> Vec<Notice> {
        Vec::new()
    }

    /// What the parser found, for what joins Shard files.
    fn shard(&self) -> Option<&Shard> {
        None
    }

    /// The array that a `.npy` file shows; `None` for every other node.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn array(&self, reader: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault>;

    /// What is known of the stored item that a file shows: of an array at least dtype and shape. It reads no more of
    /// the container than a look-up of the file. `None` for files that show no stored item, and for folders.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        Ok(self.array(reader, node)?.map(ItemInfo::from))
    }

    /// Some rows of the column that a folder stands for, without a look at the others: of each at most the first
    /// `elements`, and of a text the first `bytes`. `None` where the folder is no column, or has nothing of the kind.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    #[cfg(feature = "serve")]
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

    /// What is wrong with other files that this container needs, each looked at whole: for `shardfs verify`.
    fn verify_others(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a node is a table, a Parquet file: it shows once more what other files show.
    fn is_table(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }
}

/// A row of a column.
#[cfg(feature = "serve")]
#[derive(Debug)]
pub struct Cells {
    /// How many elements it has; `None` in a column of one a row.
    pub count: Option<u64>,
    /// The first of them.
    pub elements: Elements,
}

/// Elements of a row.
#[cfg(feature = "serve")]
#[derive(Debug)]
pub enum Elements {
    /// Numbers and other values of one size, little-endian.
    Numbers(crate::format::DType, Vec<u8>),
    /// Texts; `None` for those that are missing.
    Texts(Vec<Option<Text>>),
}

/// The front of a text.
#[cfg(feature = "serve")]
#[derive(Debug)]
pub struct Text {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// How many it has.
    pub length: u64,
}

/// An open container: its bytes, and its tree.
pub struct Opened {
    /// What reading it needs.
    pub reader: ReadContext,
    /// The same for operations that wait for nothing, or for stored bytes only.
    stored: ReadContext,
    resident: ReadContext,
    /// Its names and nodes.
    pub tree: Arc<dyn Container>,
    /// The state of the file that was opened.
    pub state: Version,
    /// What its names and indexes take of the cache's budget.
    pub room: Reservation,
    /// Whether changes of the file are announced.
    watch: Watch,
    /// Whether a request has used it; it may have been opened ahead.
    was_used: AtomicBool,
    /// Where damage that is found late is announced.
    _late: LateFailures,
}

/// The tree with what every container has beside it: `.file`.
impl Opened {
    /// A container that was opened in a state of its file.
    pub(crate) fn new(
        reader: ReadContext,
        tree: Arc<dyn Container>,
        state: Version,
        room: Reservation,
        watch: Watch,
        late: LateFailures,
    ) -> Self {
        let (stored, resident) = (reader.with_wait(Wait::Disk), reader.with_wait(Wait::Never));
        Self { reader, stored, resident, tree, state, room, watch, was_used: AtomicBool::new(false), _late: late }
    }

    /// What reading needs for an operation that waits for no more than `wait`.
    pub fn reader(&self, wait: Wait) -> &ReadContext {
        match wait {
            Wait::Never => &self.resident,
            Wait::Disk => &self.stored,
            Wait::Always => &self.reader,
        }
    }

    /// Notes that a request uses it. Whether none has before.
    pub(crate) fn note_use(&self) -> bool {
        !self.was_used.load(Relaxed) && !self.was_used.swap(true, Relaxed)
    }

    /// Whether changes of the file are announced: then what is known of its inside need not be looked at again.
    pub fn is_watched(&self) -> bool {
        self.watch.is_alive()
    }

    /// As [`Container::lookup`].
    ///
    /// # Errors
    /// As [`Container::lookup`].
    pub fn lookup(&self, folder: NodeId, name: &str, wait: Wait) -> Result<Option<NodeId>, Fault> {
        let found = self.tree.lookup(self.reader(wait), folder, name)?;
        Ok(found.or_else(|| (folder == ROOT && name == OWN_FILE).then_some(OWN_FILE_NODE)))
    }

    /// As [`Container::kind`].
    pub fn kind(&self, node: NodeId) -> Option<NodeKind> {
        if node == OWN_FILE_NODE { Some(NodeKind::File) } else { self.tree.kind(node) }
    }

    /// As [`Container::parent`].
    pub fn parent(&self, node: NodeId) -> NodeId {
        if node == OWN_FILE_NODE { ROOT } else { self.tree.parent(node) }
    }

    /// As [`Container::path`].
    pub fn path(&self, node: NodeId) -> String {
        if node == OWN_FILE_NODE { OWN_FILE.into() } else { self.tree.path(node) }
    }

    /// As [`Container::view`]. The container's own bytes are a range of its file like those of an uncompressed block,
    /// and are handed out as these are.
    ///
    /// # Errors
    /// As [`Container::view`].
    pub fn view(&self, file: NodeId, wait: Wait) -> Result<View, Fault> {
        if file == OWN_FILE_NODE {
            return Ok(View::stored(0..self.reader.source.len()));
        }
        self.tree.view(self.reader(wait), file)
    }

    /// Whether a file is the container's own bytes: they are in the kernel's page cache once already, and need no copy
    /// in memory.
    pub fn is_own_file(&self, file: NodeId) -> bool {
        file == OWN_FILE_NODE
    }
}

/// Damage in a part of a container that was found on the way and failed no operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The part.
    pub node: NodeId,
    /// Where in the file, in bytes, as far as that is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub message: String,
}
