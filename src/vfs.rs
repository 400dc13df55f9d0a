//! The filesystem's operations on own types: look up, list, stat, read. Runs without a mount.
//!
//! Nodes are named by inode numbers that come from what they *are*: the path below SOURCE, the state of the container,
//! the node in it. They are the same after a remount while the container is unchanged, and a changed container has
//! new ones, so that nothing which the kernel kept of the old state is ever shown as the new.
//!
//! `namespace` is what has a name, `open` what is opened and read, `report` what the filesystem says of itself, `changes`
//! what the kernel should forget, `options` what a user chooses.

mod changes;
pub(crate) mod namespace;
mod open;
mod options;
mod report;

pub use namespace::attributes::{Attr, FileKind, Ttl};
pub use namespace::listing::DirEntry;
pub use namespace::number_key::NumberKey;
pub(crate) use open::containers::Apart;
pub use open::io_mode::{Growing, IoMode, Opening, Serving};
pub use options::Options;
pub use report::coverage::{Coverage, Covering};
pub use report::error::Error;
pub(crate) use report::problems::NO_CONTAINER;
pub use report::problems::Problem;

pub use crate::store::FollowLinks;

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Component, Path, PathBuf},
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Instant,
};

use parking_lot::RwLock;
use serde::Serialize;

use crate::{
    cache::{BlockError, Buffer, Cache, DiskTierOptions, Reservation},
    source::{Source, Wait},
    store::{
        FilePath, Kind, LocalStore, Stat, Store, Usage,
        unveiled::{self, Unveiled},
    },
    tree::{self, NodeId, Notice, Notices, names},
    view::{Fault, ReadContext, View},
};
use changes::Invalidations;
use namespace::{
    container_id::ContainerId, inodes::Inodes, node::Node, source_files::SourceFiles, source_tree::SourceTree,
};
use open::{ahead::Begun, containers::Containers, detection::Entered, opened::Opened, opener::Opener};
use report::{
    control::{self, Control},
    problems::Problems,
    slow::{Latencies, Operation},
};

/// Inode number of the root of every mount.
pub const ROOT: u64 = 1;

/// In unit tests only: looking up this name panics.
#[cfg(test)]
pub(crate) const TEST_PANIC: &str = "shardfs-test-panic";

/// Requests so far, for `stats.json`.
#[derive(Debug, Default, Serialize)]
pub struct Requests {
    /// Look-ups of a name.
    pub lookup: AtomicU64,
    /// Attributes of a node.
    pub getattr: AtomicU64,
    /// Calls for listings.
    pub readdir: AtomicU64,
    /// Calls of these for listings with attributes.
    pub readdirplus: AtomicU64,
    /// Opens. In page-cache mode the kernel asks once and never again.
    pub open: AtomicU64,
    /// Opens of these that were answered with a file for the kernel to read by itself.
    pub passed: AtomicU64,
    /// Opens of folders. The kernel asks once.
    pub opendir: AtomicU64,
    /// Reads.
    pub read: AtomicU64,
    /// Files closed, in passthrough mode.
    pub release: AtomicU64,
    /// Nodes that the kernel forgot.
    pub forget: AtomicU64,
    /// Reads of links.
    pub readlink: AtomicU64,
    /// Requests for the size of the filesystem.
    pub statfs: AtomicU64,
    /// Bytes served.
    #[serde(skip)]
    pub bytes_read: AtomicU64,
}

/// What is known of a container that is not open.
#[derive(Debug, Clone)]
pub(crate) struct SeenContainer {
    /// The name of its format.
    pub(crate) format: &'static str,
    /// Bytes of its file; `None` for a container that is a folder.
    pub(crate) size: Option<u64>,
    /// Name of the state of the file, and of other files that it shows. Different names of one path are different
    /// states.
    pub(crate) state: String,
}

/// An overview of a container, which the cache's budget counts while it is kept.
#[derive(Debug)]
pub struct HeldOverview {
    overview: tree::Overview,
    kind_name: Option<&'static str>,
    _room: Reservation,
}

impl std::ops::Deref for HeldOverview {
    type Target = tree::Overview;

    fn deref(&self) -> &tree::Overview {
        &self.overview
    }
}

impl HeldOverview {
    /// Returns the usual name of such containers: that of their kind, or of the format.
    pub fn format_name(&self) -> &'static str {
        self.kind_name.unwrap_or(self.overview.format)
    }
}

/// A mount's content.
pub struct Vfs {
    /// SOURCE, absolute and without links.
    top: PathBuf,
    options: Options,
    source: Arc<SourceTree>,
    /// SOURCE itself if it is one container: a file in the folder that the store shows.
    alone: Option<FilePath>,
    /// The root of the mount. A container as SOURCE may be replaced by another one.
    root: RwLock<Node>,
    /// Attributes of SOURCE when it was mounted, for files that always exist.
    mounted: Stat,
    files: SourceFiles,
    containers: Arc<Containers>,
    opener: Arc<Opener>,
    inodes: Inodes,
    pub(crate) problems: Arc<Problems>,
    /// What the kernel has to forget.
    invalidations: Arc<Invalidations>,
    /// Counters of requests; the adapter counts what it gets.
    pub requests: Requests,
    latencies: Latencies,
    started: Instant,
    serving: OnceLock<Serving>,
    control: Control,
    begun: Begun,
}

impl Vfs {
    /// Opens SOURCE: a folder, or one container. Nothing in a folder is looked at yet.
    ///
    /// # Errors
    /// [`Error`] if SOURCE does not exist, or is a file that is no container, with the reason.
    pub fn open(source: &Path, options: Options) -> Result<Self, Error> {
        Self::open_as(source, options, true)
    }

    /// Opens SOURCE; a folder as a container only if it `may_be_one`.
    fn open_as(source: &Path, mut options: Options, may_be_one: bool) -> Result<Self, Error> {
        let shown = Self::shown(source);
        let named = |error| Error::os(&error, "open", shown.clone());
        let cache = match &options.cache {
            Some(cache) => cache.clone(),
            None => {
                let open = |spill: &DiskTierOptions| {
                    let place = crate::store::place_of(&spill.folder);
                    if place.is_ok_and(|place| source.canonicalize().is_ok_and(|source| place.starts_with(source))) {
                        let reason = "lies inside what is shown, which is never written to; choose a folder elsewhere";
                        return Err(Error::invalid(spill.folder.clone(), reason.into()));
                    }
                    let opened = spill.open(options.cache_size);
                    opened.map_err(|error| Error::os(&error, "open", spill.folder.clone()))
                };
                let spill = options.spill.as_ref().map(open).transpose()?.flatten();
                Cache::with_disk_tier(options.cache_size, options.verify, spill)
            }
        };
        options.cache = Some(cache.clone());
        #[cfg(feature = "remote")]
        if let Some(reason) = crate::store::remote::unknown(source) {
            return Err(Error::invalid(shown, reason));
        }
        let (store, top, alone) = Self::open_store(source, &options, &cache, may_be_one).map_err(named)?;
        let store = Arc::new(Unveiled::new(store, options.for_others));
        let path = alone.as_ref().map(FilePath::to_path_buf).unwrap_or_default();
        let found = store.stat(&path, Wait::Always).map_err(named)?;
        let Some(mounted) = found else { return Err(Error::stale(shown)) };
        let problems = Arc::new(Problems::default());
        let key = options.number_key;
        let invalidations = Arc::new(Invalidations::new(store.clone(), cache.clone()));
        if let Some(disk) = store.disk() {
            cache.set_disk_of_store(disk.clone());
        }
        let formats = options.formats;
        let tree = SourceTree::new(store.clone(), key, formats, alone.is_some(), problems.clone(), cache.clone());
        let tree = Arc::new(tree);
        let containers = Containers::new(tree.clone(), invalidations.clone(), options.coverage.clone());
        let vfs = Self {
            opener: Opener::new(tree.clone(), containers.clone()),
            source: tree,
            files: SourceFiles::new(store.clone(), problems.clone()),
            containers,
            root: RwLock::new(Node::SourceFolder(Arc::from(Path::new("")))),
            inodes: Inodes::new(key),
            invalidations,
            requests: Requests::default(),
            latencies: Latencies::default(),
            started: Instant::now(),
            serving: OnceLock::new(),
            control: Control::default(),
            begun: Begun::default(),
            top,
            options,
            alone,
            mounted,
            problems,
        };
        let Some(alone) = &vfs.alone else { return Ok(vfs) };
        let as_source = |error: Error| match error.errno() {
            libc::ESTALE => Error::stale(vfs.top.clone()),
            _ => error,
        };
        let found = match mounted.kind {
            Kind::File | Kind::Folder => {
                vfs.source.find(alone.folder(), alone.name(), Wait::Always).map_err(as_source)?
            }
            Kind::Link | Kind::Other => None,
        };
        let Some((node @ Node::InContainer(..), _)) = found else {
            if mounted.kind == Kind::Folder {
                let problems = vfs.problems();
                let opened = Self::open_as(source, vfs.options, false)?;
                for mut problem in problems {
                    // Until here, the folder had its name in paths.
                    if let Ok(below) = problem.container.strip_prefix(alone.name()) {
                        problem.container = below.to_owned();
                    }
                    opened.problems.note(problem);
                }
                return Ok(opened);
            }
            let reason = vfs.problems.last_message();
            let hint = || vfs.options.follow_links.hint(source);
            let reason = reason.unwrap_or_else(|| format!("not a folder, and {}{}", vfs.no_container(), hint()));
            return Err(Error::invalid(vfs.top, reason));
        };
        store.watch(alone.folder(), Wait::Always);
        *vfs.root.write() = node;
        Ok(vfs)
    }

    /// That a file is shown as a file.
    pub(crate) fn no_container(&self) -> String {
        match self.options.formats == tree::default_formats() {
            true => "not a container of any known format".into(),
            false => {
                format!("not a container of a format that was chosen ({})", tree::format_names(self.options.formats))
            }
        }
    }

    /// Returns SOURCE for messages: a URL without its secrets.
    pub(crate) fn shown(source: &Path) -> PathBuf {
        #[cfg(feature = "remote")]
        return crate::store::remote::shown(source);
        #[cfg(not(feature = "remote"))]
        source.to_path_buf()
    }

    /// Returns the store of SOURCE, the path or URL of SOURCE, absolute, and SOURCE itself if it is one file, in the folder
    /// that the store shows.
    fn open_store(
        source: &Path,
        options: &Options,
        cache: &Arc<Cache>,
        may_be_one: bool,
    ) -> io::Result<(Arc<dyn Store>, PathBuf, Option<FilePath>)> {
        #[cfg(not(feature = "remote"))]
        let _ = cache;
        let one = |name: &OsStr| FilePath::new(Path::new("").into(), name);
        let markers = || options.formats.iter().flat_map(|format| format.markers).copied();
        #[cfg(feature = "remote")]
        let formats = options.formats;
        #[cfg(feature = "remote")]
        let is_container_name = Box::new(move |name: &OsStr| tree::is_container_name(formats, name));
        #[cfg(feature = "remote")]
        if let Some(found) = crate::store::remote::open(source, &options.remote, cache, is_container_name) {
            let (store, top, name) = found?;
            let kind = |path: &Path| store.stat(path, Wait::Always).ok().flatten().map(|stat| stat.kind);
            let is_marked = |marker: &&str| {
                let marker = Path::new(marker);
                let folder = marker.parent().filter(|folder| !folder.as_os_str().is_empty());
                folder.is_none_or(|folder| kind(folder) == Some(Kind::Folder)) && kind(marker) == Some(Kind::File)
            };
            let may_be_one = may_be_one && options.remote.opened_for != crate::store::remote::Purpose::Container;
            if may_be_one && name.is_none() {
                let names: Vec<_> = markers().filter_map(|marker| Path::new(marker).iter().next()).collect();
                // What cannot be found out is asked for again, one by one, unless the server does not answer.
                if let Err(error) = store.expect_in(Path::new(""), &names, false)
                    && crate::store::remote::object::is_unreached(&error)
                {
                    return Err(error);
                }
            }
            // The folder itself has no name in the store, whose top it is.
            let alone = match name.as_deref() {
                Some(name) => Some(one(name)),
                None => (may_be_one && markers().any(|marker| is_marked(&marker))).then(|| one(OsStr::new(""))),
            };
            return Ok((store, top, alone));
        }
        let top = options.follow_links.resolve(source)?;
        let is_one = !top.is_dir() || may_be_one && markers().any(|marker| top.join(marker).is_file());
        let alone = top.file_name().filter(|_| is_one).map(one);
        let folder = if alone.is_some() { top.parent().unwrap_or(Path::new("/")) } else { &top };
        let store = Arc::new(LocalStore::new(folder.to_path_buf(), options.follow_links, options.watch)?);
        Ok((store, top, alone))
    }

    /// Returns whether it was opened for such a path below SOURCE.
    #[cfg(feature = "remote")]
    pub(crate) fn is_for(&self, path: &Path) -> bool {
        self.options.remote.opened_for != crate::store::remote::Purpose::Container
            || tree::begins_with_container(self.options.formats, path)
    }

    /// Returns whether SOURCE is one container, and no folder.
    pub fn is_one_container(&self) -> bool {
        self.alone.is_some()
    }

    /// Lets the next look-up of a path below the root find its containers in their current states.
    pub(crate) fn look_anew(&self, path: &Path) {
        let alone = self.alone.iter().map(FilePath::name);
        let parts = path.components().filter(|part| *part != Component::CurDir).map(Component::as_os_str);
        self.source.folders.expire(&alone.chain(parts).collect::<PathBuf>());
    }

    /// SOURCE, absolute.
    pub fn source(&self) -> &Path {
        &self.top
    }

    /// Returns the space and files that SOURCE's filesystem uses.
    ///
    /// # Errors
    /// [`Error`] if the operating system does not say.
    pub(crate) fn usage(&self) -> Result<Usage, Error> {
        self.source.store.usage().map_err(|e| Error::os(&e, "statfs", self.top.clone()))
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The cache of decoded blocks.
    pub fn cache(&self) -> &Arc<Cache> {
        self.containers.cache()
    }

    /// Waits until decoded blocks and bytes of objects are written to disk, some seconds at most for each. For a
    /// process that ends.
    pub fn finish(&self) {
        if let Some(spill) = self.cache().disk_tier() {
            spill.disk().finish();
        }
        self.source.store.finish();
    }

    /// Returns the problems so far.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.all()
    }

    /// Returns the counters as Prometheus reads them; `None` if control files are not shown.
    pub fn metrics(&self) -> Option<String> {
        self.options.control.then(|| control::metrics(self))
    }

    /// Returns the path of a node: a file of SOURCE, and the path inside it if it is a container.
    pub(crate) fn path_of(&self, ino: u64) -> (PathBuf, String) {
        match self.node(ino) {
            Ok(Node::InContainer(id, node)) => {
                let path =
                    self.opened(&id, Wait::Always).map(|opened| opened.place(node, Wait::Always)).unwrap_or_default();
                (id.shown(), path)
            }
            Ok(node) => (self.place(&node), String::new()),
            Err(_) => Default::default(),
        }
    }

    /// Returns the opened container that contains a node, if there is one: for `info`.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened.
    pub fn container(&self, ino: u64) -> Result<Option<Arc<dyn tree::Container>>, Error> {
        self.inside(ino, Wait::Always, |opened, _| Ok(opened.tree.clone()))
    }

    /// Asks the container that contains a node, if there is one: the answer of `ask`, which gets the open container, and the
    /// node in it.
    fn inside<T>(
        &self,
        ino: u64,
        wait: Wait,
        ask: impl FnOnce(&Opened, NodeId) -> Result<T, Fault>,
    ) -> Result<Option<T>, Error> {
        let Node::InContainer(id, node) = self.node_with(ino, wait)? else { return Ok(None) };
        let opened = self.opened(&id, wait)?;
        let answer = ask(&opened, node);
        self.note_warnings(&opened);
        answer.map(Some).map_err(|fault| self.fault(&opened, node, fault, wait))
    }

    /// Does the same for what only nodes of the container's tree have, which `.file` is not.
    fn in_tree<T>(
        &self,
        ino: u64,
        wait: Wait,
        ask: impl FnOnce(&Opened, NodeId) -> Result<Option<T>, Fault>,
    ) -> Result<Option<T>, Error> {
        let ask = |opened: &Opened, node| if opened.is_own_file(node) { Ok(None) } else { ask(opened, node) };
        Ok(self.inside(ino, wait, ask)?.flatten())
    }

    /// Finds out what a folder is if that is told only when it is entered: a container, one of another format than its
    /// name says, or a file. Returns the attributes of what it is then, and holds that node until it is forgotten.
    ///
    /// # Errors
    /// [`Error`] if it cannot be found out.
    pub(crate) fn enter(&self, ino: u64) -> Result<Option<Attr>, Error> {
        let node = self.node(ino)?;
        let entered = match &node {
            Node::InContainer(id, tree::ROOT) => match self.source.confirm(id) {
                Ok(now) if now.format == id.format => return Ok(None),
                Ok(now) => Node::InContainer(now, tree::ROOT),
                Err(_) => match self.source.find_path(&id.shown())? {
                    Some((now, _)) if now != node => now,
                    // Opening it says what is wrong.
                    _ => return Ok(None),
                },
            },
            _ => self.entered(node.clone(), Entered::ToLookUp, Wait::Always)?,
        };
        if entered == node && !matches!(entered, Node::InContainer(..)) {
            return Ok(None);
        }
        let attr = self.attr_of(&entered, Wait::Always)?;
        self.inodes.remember(attr.ino, entered);
        Ok(Some(attr))
    }

    /// Returns what is known of the container whose folder a node is. Opens nothing.
    pub(crate) fn seen_container(&self, ino: u64) -> Option<SeenContainer> {
        let Ok(Node::InContainer(id, tree::ROOT)) = self.node(ino) else { return None };
        let state = format!("{}-{:x}", id.stat.version.text(), id.others);
        Some(SeenContainer { format: id.format.name, size: id.marker.is_none().then_some(id.stat.size), state })
    }

    /// Returns the containers that a container shows joined as one, by their paths below SOURCE as they would be listed.
    /// `None` for all other nodes, and for containers whose format joins none, which are parts of no others either. If
    /// `opens` is false, only a container that is known to name other files is opened.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened.
    pub(crate) fn joins(&self, ino: u64, opens: bool) -> Result<Option<Vec<PathBuf>>, Error> {
        let Node::InContainer(id, tree::ROOT) = self.node(ino)? else { return Ok(None) };
        if id.marker.is_some() || id.format.others.is_none() {
            return Ok(None);
        }
        if !opens && id.others == 0 {
            return Ok(Some(Vec::new()));
        }
        let named = self.opened(&id, Wait::Always)?.tree.joins();
        let below = |path: &String| id.path.folder().join(path).components().collect();
        Ok(Some(named.iter().map(below).collect()))
    }

    /// Returns the bytes of the container that contains a node, if there is one.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened.
    pub(crate) fn stored(&self, ino: u64) -> Result<Option<Arc<dyn Source>>, Error> {
        self.inside(ino, Wait::Always, |opened, _| Ok(opened.reader.source.clone()))
    }

    /// Returns the `container.json` of the container that contains a node, if there is one.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened or read.
    pub fn description(&self, ino: u64) -> Result<Option<Arc<Buffer>>, Error> {
        self.inside(ino, Wait::Always, |opened, _| opened.tree.description(&opened.reader))
    }

    /// Returns an overview, for people, of the container that contains a node, if there is one.
    ///
    /// # Errors
    /// As [`Self::description`].
    pub fn overview(&self, ino: u64) -> Result<Option<HeldOverview>, Error> {
        self.inside(ino, Wait::Always, |opened, _| {
            let mut room = self.cache().reserve(opened.tree.overview_memory()).map_err(tree::no_memory)?;
            // Its user goes on to read what it names.
            room.hold();
            let overview = opened.tree.overview(&opened.reader)?;
            Ok(HeldOverview { overview, kind_name: opened.tree.kind_name(), _room: room })
        })
    }

    /// Returns the description of the stored item that a file shows; `None` for all other files and for folders.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened, and one of which [`Error::is_would_block`] is true for a caller who
    /// would have to wait longer than `wait`.
    pub fn item_info(&self, ino: u64, wait: Wait) -> Result<Option<tree::ItemInfo>, Error> {
        // A container's own folder is no item, so listing a folder opens no container.
        if let Node::InContainer(_, tree::ROOT) = self.node_with(ino, wait)? {
            return Ok(None);
        }
        self.in_tree(ino, wait, |opened, node| opened.tree.item_info(opened.reader(wait), node))
    }

    /// Returns the JSON of the attributes that a format hangs on a group or an array; `None` if there are none.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened or the attributes cannot be read.
    pub fn attributes(&self, ino: u64) -> Result<Option<Vec<u8>>, Error> {
        self.in_tree(ino, Wait::Always, |opened, node| {
            let Some(file) = opened.tree.attributes(&opened.reader, node)? else { return Ok(None) };
            let view = opened.readable(file, Wait::Always)?;
            view.copy_at(&opened.reader, 0, view.size()).map(Some)
        })
    }

    /// Returns a context for bytes that belong to no container, such as those of a file as readers see it.
    pub(crate) fn apart(&self, source: Arc<dyn Source>) -> Apart {
        self.containers.apart(source)
    }

    /// Asks the container that contains a node, if there is one, for what it knows: the answer of `ask`, which gets its
    /// tree, the context for reading it, and the node in it.
    ///
    /// # Errors
    /// [`Error`] if the container cannot be opened, or for a fault of `ask`.
    pub(crate) fn ask<T>(
        &self,
        ino: u64,
        ask: impl FnOnce(&dyn tree::Container, &ReadContext, NodeId) -> Result<T, Fault>,
    ) -> Result<Option<T>, Error> {
        self.in_tree(ino, Wait::Always, |opened, node| ask(&*opened.tree, &opened.reader, node).map(Some))
    }

    /// Finds a name in a folder and holds the node until it is forgotten. `None` if there is no such name.
    ///
    /// # Errors
    /// [`Error`] if the folder or a container cannot be read.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<Option<Attr>, Error> {
        self.lookup_with(parent, name, Wait::Always)
    }

    /// Does the same as [`Self::lookup`], for a caller that waits for no more than `wait`.
    ///
    /// # Errors
    /// As [`Self::lookup`], and one of which [`Error::is_would_block`] is true.
    pub fn lookup_with(&self, parent: u64, name: &OsStr, wait: Wait) -> Result<Option<Attr>, Error> {
        #[cfg(test)]
        assert!(name != TEST_PANIC, "this name is for tests of panics");
        let _timer = self.time_operation(Operation::Lookup, parent, Some(name));
        if name.len() > names::NAME_MAX {
            let folder = self.place(&self.node_with(parent, wait)?);
            return Err(Error::plain(libc::ENAMETOOLONG, "a name of more than 255 bytes", folder));
        }
        // No file has such a name; paths inside `.source` do.
        if name.as_encoded_bytes().contains(&0) {
            return Ok(None);
        }
        if parent == ROOT && name == control::FOLDER && !self.options.control {
            return Ok(None);
        }
        let found = match self.is_control(parent, name) {
            // It is found whatever the root is now, and even if that cannot be looked at.
            true => Some(self.control_node(Node::ControlFolder)),
            false => self.found(parent, name, wait)?,
        };
        let marker = || self.control.marker(name).filter(|_| parent == ROOT);
        let found = found.or_else(|| marker().map(|file| self.control_node(Node::ControlFile(file))));
        let Some((node, attr)) = found else { return Ok(None) };
        self.inodes.remember(attr.ino, node);
        Ok(Some(attr))
    }

    /// Returns what has a name in a folder.
    fn found(&self, parent: u64, name: &OsStr, wait: Wait) -> Result<Option<(Node, Attr)>, Error> {
        Ok(match self.entered(self.node_with(parent, wait)?, Entered::ToLookUp, wait)? {
            Node::SourceFolder(path) => {
                if wait != Wait::Never {
                    self.source.store.watch(&path, wait);
                }
                let found = self.source.find(&path, name, wait)?;
                found.map(|(node, stat)| {
                    let attr = self.attr_at(&node, &stat);
                    (node, attr)
                })
            }
            Node::InContainer(id, folder) => self.lookup_inside(&id, folder, name, wait)?,
            Node::ControlFolder => {
                self.control.lookup(name, self).map(|file| self.control_node(Node::ControlFile(file)))
            }
            Node::SourceLink(_) | Node::SourceFile(..) | Node::ControlFile(_) => None,
        })
    }

    fn control_node(&self, node: Node) -> (Node, Attr) {
        let attr = self.attr_at(&node, &self.mounted);
        (node, attr)
    }

    /// Opens the container once for both the name and its attributes, because this request is the most frequent.
    fn lookup_inside(
        &self,
        id: &Arc<ContainerId>,
        folder: NodeId,
        name: &OsStr,
        wait: Wait,
    ) -> Result<Option<(Node, Attr)>, Error> {
        // Names in containers are always UTF-8: the mapping escapes everything else.
        let Some(name) = name.to_str() else { return Ok(None) };
        if id.marker.is_some() && folder == tree::ROOT && name == unveiled::NAME {
            let node = Node::SourceFolder(unveiled::of(&id.shown(), id.format.name).into());
            let attr = self.attr_of(&node, wait)?;
            return Ok(Some((node, attr)));
        }
        let opened = self.opened(id, wait)?;
        let found = opened.lookup(folder, name, wait);
        self.note_warnings(&opened);
        let found = found.map_err(|fault| self.fault(&opened, folder, fault, wait))?;
        let Some(node) = found.filter(|node| self.shows(&opened, *node)) else { return Ok(None) };
        let attr = self.attr_inside(&opened, node, wait)?;
        Ok(Some((Node::InContainer(id.clone(), node), attr)))
    }

    /// Returns whether a node of a container is shown.
    fn shows(&self, opened: &Opened, node: NodeId) -> bool {
        self.options.tables || !opened.tree.is_table(&opened.reader, node)
    }

    /// Gives look-ups of a node back. The last one forgets it.
    pub fn forget(&self, ino: u64, lookups: u64) {
        self.inodes.forget(ino, lookups);
    }

    /// Returns the target of a symbolic link, as stored.
    ///
    /// # Errors
    /// [`Error`] if the node is no link or cannot be read, and one of which [`Error::is_would_block`] is true for a caller
    /// who would have to wait longer than `wait`.
    pub fn read_link(&self, ino: u64, wait: Wait) -> Result<OsString, Error> {
        match self.node_with(ino, wait)? {
            Node::SourceLink(_) if wait == Wait::Never => Err(Error::would_block(Wait::Disk)),
            Node::SourceLink(path) => {
                self.source.store.read_link(&path).map_err(|e| self.problems.failed(&e, "readlink", path.to_path_buf()))
            }
            Node::InContainer(id, link) => {
                let opened = self.opened(&id, wait)?;
                let target = opened.link_target(link, wait);
                let target = target.map_err(|fault| self.fault(&opened, link, fault, wait))?;
                target.map(Into::into).ok_or_else(|| Error::not_a_link(id.shown()))
            }
            node => Err(Error::not_a_link(self.place(&node))),
        }
    }

    /// Returns how long the absence of a name in this folder may be trusted.
    pub fn ttl_of_names(&self, folder: u64) -> Ttl {
        match self.inodes.get(folder) {
            Some(Node::InContainer(..)) if folder != ROOT => Ttl::Container,
            _ => Ttl::Source,
        }
    }

    /// Reports a panic of a request.
    pub fn note_panic(&self, what: &str) {
        let message = format!("a request failed because of a bug in shardfs; report it: {what}");
        self.problems.note(Problem::of(PathBuf::new(), message));
    }

    /// Returns the format of the container that contains a node, and whether the node is the container's folder; `None`
    /// for nodes outside of containers.
    ///
    /// # Errors
    /// [`Error`] for a node that no longer exists.
    pub(crate) fn format(&self, ino: u64) -> Result<Option<(&'static str, bool)>, Error> {
        Ok(match self.node(ino)? {
            Node::InContainer(id, node) => Some((id.format.name, node == tree::ROOT)),
            _ => None,
        })
    }

    /// Returns a name of the state of the file that a node is, or that contains it; `None` for folders of SOURCE.
    ///
    /// # Errors
    /// [`Error`] for a node that no longer exists.
    pub(crate) fn state(&self, ino: u64) -> Result<Option<String>, Error> {
        Ok(match self.node(ino)? {
            // Of a folder only the marker: what else was read of it is counted by each process for itself, and a reader of
            // another state gets `Changed`.
            Node::InContainer(id, _) => Some(id.stat.version.text()),
            Node::SourceFile(path, _) => {
                let stat = self.source.store.stat(&path.to_path_buf(), Wait::Always);
                stat.ok().flatten().map(|stat| stat.version.text())
            }
            _ => None,
        })
    }

    fn opened(&self, id: &Arc<ContainerId>, wait: Wait) -> Result<Arc<Opened>, Error> {
        let opened = self.opener.open(id, wait);
        if opened.as_ref().is_err_and(|error| error.errno() == libc::ESTALE) {
            self.invalidations.push_gone(id);
        }
        opened
    }

    /// Notes the warnings of a container that was opened.
    fn note_warnings(&self, opened: &Opened) {
        for Notice { node, offset, message } in opened.tree.notices().map(Notices::drain).unwrap_or_default() {
            self.problems.note(Problem {
                path: opened.place(node, Wait::Never),
                offset,
                ..Problem::of(opened.id.shown(), message)
            });
        }
    }

    /// Reads a file of a container: what `read` returns, which gets the file's bytes.
    fn in_file<T>(
        &self,
        id: &Arc<ContainerId>,
        file: NodeId,
        wait: Wait,
        read: impl FnOnce(&View, &Opened) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let opened = self.opened(id, wait)?;
        let done = opened.readable(file, wait).and_then(|view| read(&view, &opened));
        let done = done.map_err(|fault| self.fault(&opened, file, fault, wait))?;
        // What was noticed meanwhile.
        if let Some(message) = opened.reader.cache.notices.take(opened.reader.container) {
            let path = opened.place(file, Wait::Never);
            self.problems.note(Problem { path, is_advice: true, ..Problem::of(id.shown(), message) });
        }
        Ok(done)
    }

    /// Turns a fault of a view or tree into the error of a request that may `wait`, and notes the problem.
    fn fault(&self, opened: &Opened, node: NodeId, fault: Fault, wait: Wait) -> Error {
        let id = &opened.id;
        if let Some(needed) = fault.would_block_for() {
            return Error::would_block(needed);
        }
        let (block, offset) = (fault.block.map(|block| opened.tree.block_name(block)), fault.place());
        // A disk fails somewhere in the block; all other faults are reported at the block's start.
        let start = (!matches!(*fault.error, BlockError::Source(_))).then_some(fault.offset);
        let error = Error::block(id.shown(), opened.place(node, wait), block, offset, fault.error);
        self.problems.note_at(error.to_problem(), start);
        if error.errno() == libc::ESTALE {
            self.invalidations.push_gone(id);
        }
        error
    }
}

#[cfg(test)]
mod tests;
