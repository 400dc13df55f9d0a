//! An open container: its tree, with the file that every container has in addition, and what keeps it open.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::{
    cache::{LateFailures, Reservation},
    source::Wait,
    store::{Version, Watch},
    tree::{Container, NO_NODE, NodeId, NodeKind, OpenPart, ROOT, links},
    vfs::namespace::container_id::ContainerId,
    view::{Fault, ReadContext, View},
};

/// The container's own bytes, as a hidden file in its root. A stored item of this name takes its place.
const OWN_FILE: &str = ".file";

/// The node of [`OWN_FILE`].
const OWN_FILE_NODE: NodeId = NO_NODE;

/// An open container: its bytes, and its tree.
pub(crate) struct Opened {
    /// Its identity: the state of the file that was opened.
    pub(crate) id: Arc<ContainerId>,
    /// Context for reading it.
    pub(crate) reader: ReadContext,
    /// The same for operations that wait for nothing, or only for stored bytes.
    stored: ReadContext,
    resident: ReadContext,
    /// Its names and nodes.
    pub(crate) tree: Arc<dyn Container>,
    /// The part of the cache's budget that its names and indexes take.
    _room: Reservation,
    /// Whether changes of the file are announced.
    watch: Watch,
    /// Whether a request has used it. It may have been opened ahead.
    was_used: AtomicBool,
    /// Announces damage that is found late.
    _late: LateFailures,
}

/// The tree, with the file that every container has in addition: `.file`.
impl Opened {
    /// Returns a container that was opened.
    pub(crate) fn new(
        id: Arc<ContainerId>,
        reader: ReadContext,
        tree: Arc<dyn Container>,
        room: Reservation,
        watch: Watch,
        late: LateFailures,
    ) -> Self {
        let (stored, resident) = (reader.with_wait(Wait::Disk), reader.with_wait(Wait::Never));
        Self { id, reader, stored, resident, tree, _room: room, watch, was_used: AtomicBool::new(false), _late: late }
    }

    /// Returns the context for an operation that waits for no more than `wait`.
    pub(crate) fn reader(&self, wait: Wait) -> &ReadContext {
        match wait {
            Wait::Never => &self.resident,
            Wait::Disk => &self.stored,
            Wait::Always => &self.reader,
        }
    }

    /// Notes that a request uses it. Returns whether this is the first.
    pub(crate) fn note_use(&self) -> bool {
        !self.was_used.load(Relaxed) && !self.was_used.swap(true, Relaxed)
    }

    /// Returns whether changes of the file are announced. Then what is known of its inside need not be checked again.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_alive()
    }

    /// Does the same as [`Container::lookup`], including `.file`.
    ///
    /// # Errors
    /// As [`Container::lookup`].
    pub(crate) fn lookup(&self, folder: NodeId, name: &str, wait: Wait) -> Result<Option<NodeId>, Fault> {
        let found = self.tree.lookup(self.reader(wait), folder, name)?;
        Ok(found.or_else(|| (self.id.marker.is_none() && folder == ROOT && name == OWN_FILE).then_some(OWN_FILE_NODE)))
    }

    /// Does the same as [`Container::kind`], including `.file`.
    ///
    /// # Errors
    /// As [`Container::kind`].
    pub(crate) fn kind(&self, node: NodeId, wait: Wait) -> Result<Option<NodeKind>, Fault> {
        if node == OWN_FILE_NODE { Ok(Some(NodeKind::File)) } else { self.tree.kind(self.reader(wait), node) }
    }

    /// Does the same as [`Container::parent`], including `.file`.
    ///
    /// # Errors
    /// As [`Container::parent`].
    pub(crate) fn parent(&self, node: NodeId, wait: Wait) -> Result<NodeId, Fault> {
        if node == OWN_FILE_NODE { Ok(ROOT) } else { self.tree.parent(self.reader(wait), node) }
    }

    /// Does the same as [`Container::path`], including `.file`.
    ///
    /// # Errors
    /// As [`Container::path`].
    pub(crate) fn path(&self, node: NodeId, wait: Wait) -> Result<String, Fault> {
        if node == OWN_FILE_NODE { Ok(OWN_FILE.into()) } else { self.tree.path(self.reader(wait), node) }
    }

    /// Returns the text of a link, as [`Container::link_target`] does. Texts that lead above the container's folder are
    /// refused.
    pub(crate) fn link_target(&self, link: NodeId, wait: Wait) -> Result<Option<String>, Fault> {
        if link == OWN_FILE_NODE {
            return Ok(None);
        }
        let target = self.tree.link_target(self.reader(wait), link)?;
        match &target {
            Some(target) if !links::is_allowed(&self.path(link, wait)?, target) => {
                Err(Fault::refused("the link leads out of the container's folder"))
            }
            _ => Ok(target),
        }
    }

    /// Returns a node's path for a message. If it cannot be told, it is that of the nearest folder whose path can.
    pub(crate) fn place(&self, mut node: NodeId, wait: Wait) -> String {
        loop {
            match (self.path(node, wait), self.parent(node, wait)) {
                (Ok(path), _) => return path,
                (Err(_), Ok(parent)) if parent != node => node = parent,
                _ => return String::new(),
            }
        }
    }

    /// Does the same as [`Container::view`]. The container's own bytes are a range of its file, and are served like an
    /// uncompressed block.
    ///
    /// # Errors
    /// As [`Container::view`].
    pub(crate) fn view(&self, file: NodeId, wait: Wait) -> Result<View, Fault> {
        if file == OWN_FILE_NODE {
            return Ok(View::stored(0..self.reader.source.len()));
        }
        self.tree.view(self.reader(wait), file)
    }

    /// Returns the bytes of a file as [`Self::view`], for reading: the places of its blocks are looked up.
    ///
    /// # Errors
    /// As [`Container::view`], and those of the blocks.
    pub(crate) fn readable(&self, file: NodeId, wait: Wait) -> Result<View, Fault> {
        self.view(file, wait)?.located(self.reader(wait))
    }

    /// Returns whether a file is the container's own bytes. They are in the kernel's page cache already, and need no
    /// copy in memory.
    pub(crate) fn is_own_file(&self, file: NodeId) -> bool {
        file == OWN_FILE_NODE
    }
}

impl OpenPart for Opened {
    fn tree(&self) -> &Arc<dyn Container> {
        &self.tree
    }

    fn context(&self) -> &ReadContext {
        &self.reader
    }

    fn state(&self) -> Version {
        self.id.stat.version
    }
}
