//! The filesystem's operations on own types: look up, list, stat, read. Runs without a mount.
//!
//! Nodes are named by inode numbers that come from what they *are*: the path below SOURCE, the state of the container,
//! the node in it. They are the same after a remount while the container is unchanged, and a changed container has
//! new ones, so that nothing which the kernel kept of the old state is ever shown as the new.

mod containers;
mod control;
mod error;
mod folder;
mod host;
mod inodes;
mod memory;
mod problems;
mod siblings;
mod slow;
mod watch;

pub use error::Error;
pub use memory::{Opening, Serve, Serving};
pub use problems::Problem;

use std::{
    ffi::{OsStr, OsString},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};

use crate::{
    cache::{BlockError, Buffer, Cache, Verify},
    tree::{self, NodeId, NodeKind, Notice, Opened, names},
    view::Bytes,
};
use containers::Containers;
use control::Control;
use folder::{Folders, Found};
use host::{ContainerId, FileMeta, HostFile};
use inodes::Inodes;
use problems::Problems;
use watch::{Touched, Watcher};

/// The root of every mount.
pub const ROOT: u64 = 1;

/// A look-up of this name panics, in unit tests only.
#[cfg(test)]
pub(crate) const TEST_PANIC: &str = "shardfs-test-panic";

/// Which symbolic links of SOURCE are shown as what they point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum FollowLinks {
    /// None: links stay links
    #[default]
    No,
    /// Those that lead to a place inside SOURCE
    Inside,
    /// All, also those that lead out of SOURCE: who may write to SOURCE chooses what the mount shows
    Outside,
}

impl FollowLinks {
    /// The name of the option's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }

    /// Whether any link is followed.
    pub fn follows(self) -> bool {
        self != Self::No
    }
}

/// What a user may choose about a mount's content.
#[derive(Debug, Clone)]
pub struct Options {
    /// Budget of the cache of decoded blocks, in bytes.
    pub cache_size: u64,
    /// When checksums are verified.
    pub verify: Verify,
    /// How opened files are served, as far as it can be had.
    pub serve: Serve,
    /// Which symbolic links of SOURCE are shown as what they point to.
    pub follow_links: FollowLinks,
    /// Owner of everything, in place of the containers' own.
    pub uid: Option<u32>,
    /// Group of everything, in place of the containers' own.
    pub gid: Option<u32>,
    /// Permission bits to take away.
    pub umask: u32,
    /// How long an operation may take without a line in the log.
    pub slow: Option<Duration>,
    /// Show what is known of stored items as extended attributes.
    pub xattrs: bool,
    /// The formats that are recognised.
    pub formats: tree::Formats,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_size: crate::cache::default_budget(),
            verify: Verify::default(),
            serve: Serve::default(),
            follow_links: FollowLinks::default(),
            uid: None,
            gid: None,
            umask: 0,
            slow: None,
            xattrs: false,
            formats: &tree::FORMATS,
        }
    }
}

/// What a node is, with the node. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    /// A folder or a link of SOURCE, by its path below it.
    Plain(Arc<Path>),
    /// An ordinary file of SOURCE.
    File(Arc<Path>, HostFile),
    /// A node of a container.
    Inside(Arc<ContainerId>, NodeId),
    /// `.shardfs`.
    ControlFolder,
    /// One of the files in it, as it was when it was looked up.
    ControlFile(Arc<control::Snapshot>),
}

/// Kinds of nodes that a user sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum FileKind {
    Folder,
    File,
    Link,
}

/// What `stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u16,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time: seconds and nanoseconds. The other times are the same.
    pub mtime: (i64, u32),
    /// Whether the name can come to mean something else while mounted (it stands in a folder of SOURCE, or is a control
    /// file), so that the kernel must not trust it for long.
    pub volatile: bool,
    /// Whether it may be trusted at all: control files are new at each look.
    pub fixed: bool,
}

/// An entry of a listing.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// Where the listing goes on behind this entry.
    pub next: u64,
    /// The name.
    pub name: &'a OsStr,
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileKind,
    /// All attributes, where they were asked for and could be had.
    pub attr: Option<Attr>,
}

/// Something that the kernel may have in its caches and should forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// What a name in a folder means.
    Name(u64, OsString),
    /// Attributes, bytes or names of a node.
    Node(u64),
}

/// Requests so far, for `stats.json`.
#[derive(Debug, Default)]
pub struct Requests {
    /// Look-ups of a name.
    pub lookup: AtomicU64,
    /// Attributes of a node.
    pub getattr: AtomicU64,
    /// Listings, each call.
    pub readdir: AtomicU64,
    /// Of these, the ones with attributes.
    pub readdirplus: AtomicU64,
    /// Reads.
    pub read: AtomicU64,
    /// Opens. In page-cache mode the kernel asks once and never again.
    pub open: AtomicU64,
    /// Of these, the ones answered with a file that the kernel reads by itself.
    pub passed: AtomicU64,
    /// Opens of folders: the kernel asks once.
    pub opendir: AtomicU64,
    /// Files closed, in passthrough mode.
    pub release: AtomicU64,
    /// Nodes that the kernel forgot.
    pub forget: AtomicU64,
    /// Targets of links.
    pub readlink: AtomicU64,
    /// Sizes of the filesystem.
    pub statfs: AtomicU64,
    /// Bytes handed out.
    pub bytes_read: AtomicU64,
}

/// A mount's content.
pub struct Vfs {
    source: PathBuf,
    options: Options,
    /// What SOURCE itself is. A container may become another one.
    root: RwLock<Node>,
    folders: Folders,
    containers: Arc<Containers>,
    inodes: Inodes,
    problems: Arc<Problems>,
    watcher: Watcher,
    /// Containers of which the kernel may hold bytes that turned out to be bad.
    spoiled: Mutex<Vec<Arc<ContainerId>>>,
    /// Counters of requests; the adapter counts what it gets.
    pub requests: Requests,
    started: Instant,
    serving: OnceLock<Serving>,
    control: Control,
}

impl Vfs {
    /// Opens SOURCE: a folder, or one container. Nothing in a folder is looked at yet.
    ///
    /// # Errors
    /// [`Error`] when SOURCE is not there, or is a file that is no container, with the reason.
    pub fn open(source: &Path, options: Options) -> Result<Self, Error> {
        let named = |error| Error::os(&error, "open", source.to_path_buf());
        let source = source.canonicalize().map_err(named)?;
        let cache = Cache::new(options.cache_size, options.verify);
        let problems = Arc::new(Problems::default());
        let mut vfs = Self {
            folders: Folders::new(source.clone(), options.follow_links, options.formats),
            containers: Containers::new(cache, problems.clone(), options.follow_links),
            source,
            options,
            root: RwLock::new(Node::Plain(Arc::from(Path::new("")))),
            inodes: Inodes::default(),
            problems,
            watcher: Watcher::new(),
            spoiled: Mutex::default(),
            requests: Requests::default(),
            started: Instant::now(),
            serving: OnceLock::new(),
            control: Control::default(),
        };
        let found = vfs.folders.find(Path::new(""), &vfs.problems)?;
        match found {
            Some(Found::Container(id)) => {
                if let Some(parent) = vfs.source.parent() {
                    vfs.watcher.watch(Path::new(""), parent);
                }
                vfs.root = RwLock::new(Node::Inside(id, tree::ROOT));
            }
            Some(Found::Folder(_)) => {}
            _ => {
                let reason = vfs.problems.last_message();
                let reason = reason.unwrap_or_else(|| "not a folder, and not a container of any known format".into());
                return Err(Error::invalid(vfs.source, reason));
            }
        }
        Ok(vfs)
    }

    /// Whether SOURCE is one container.
    fn is_one_container(&self) -> bool {
        matches!(&*self.root(), Node::Inside(..))
    }

    fn root(&self) -> impl std::ops::Deref<Target = Node> {
        self.root.read()
    }

    /// What SOURCE is now.
    fn root_now(&self) -> Result<Node, Error> {
        if !self.is_one_container() {
            return Ok(self.root().clone());
        }
        match self.folders.find(Path::new(""), &self.problems)? {
            Some(Found::Container(id)) => {
                let node = Node::Inside(id, tree::ROOT);
                if *self.root() != node {
                    *self.root.write() = node.clone();
                }
                Ok(node)
            }
            // It is gone, or being written. It may come back.
            _ => Err(Error::stale(host::shown(Path::new(""), &self.source))),
        }
    }

    /// SOURCE, absolute.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The cache of decoded blocks.
    pub fn cache(&self) -> &Arc<Cache> {
        self.containers.cache()
    }

    /// The problems seen so far.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.all()
    }

    /// The problems seen so far, which are then forgotten.
    pub fn take_problems(&self) -> Vec<Problem> {
        self.problems.take()
    }

    /// Where a node lies: a file of SOURCE, and the path inside it where it is a container.
    pub(crate) fn path_of(&self, ino: u64) -> (PathBuf, String) {
        match self.node(ino) {
            Ok(Node::Inside(id, node)) => {
                let path = self.opened(&id).map(|opened| opened.path(node)).unwrap_or_default();
                (id.shown(), path)
            }
            Ok(node) => (self.place(&node), String::new()),
            Err(_) => Default::default(),
        }
    }

    /// The opened container of a node, if it lies in one: for `info`.
    ///
    /// # Errors
    /// [`Error`] when the container can't be opened.
    pub fn container(&self, ino: u64) -> Result<Option<Arc<dyn tree::Container>>, Error> {
        match self.node(ino)? {
            Node::Inside(id, _) => Ok(Some(self.opened(&id)?.tree.clone())),
            _ => Ok(None),
        }
    }

    /// What the `container.json` of the container says that a node lies in, if it lies in one.
    ///
    /// # Errors
    /// [`Error`] when the container can't be opened or read.
    pub fn description(&self, ino: u64) -> Result<Option<Arc<Buffer>>, Error> {
        let Node::Inside(id, node) = self.node(ino)? else { return Ok(None) };
        let opened = self.opened(&id)?;
        let described = opened.tree.description(&opened.reader);
        described.map(Some).map_err(|fault| self.fault(&id, &opened, node, fault))
    }

    /// What the container holds that a node lies in, if it lies in one, for people.
    ///
    /// # Errors
    /// As [`Self::description`].
    pub fn overview(&self, ino: u64) -> Result<Option<tree::Overview>, Error> {
        let Node::Inside(id, node) = self.node(ino)? else { return Ok(None) };
        let opened = self.opened(&id)?;
        opened.tree.overview().map(Some).map_err(|fault| self.fault(&id, &opened, node, fault))
    }

    /// What is known of the stored item that a file shows; `None` for every other file and for folders.
    ///
    /// # Errors
    /// [`Error`] when the container can't be opened.
    pub fn item_info(&self, ino: u64) -> Result<Option<tree::ItemInfo>, Error> {
        let Node::Inside(id, node) = self.node(ino)? else { return Ok(None) };
        // The folder that stands for a container is no item: listing a folder opens none.
        if node == tree::ROOT {
            return Ok(None);
        }
        let opened = self.opened(&id)?;
        if opened.is_own_file(node) {
            return Ok(None);
        }
        opened.tree.item_info(&opened.reader, node).map_err(|fault| self.fault(&id, &opened, node, fault))
    }

    /// Finds a name in a folder and remembers the node until it is forgotten. `None` if there is no such name.
    ///
    /// # Errors
    /// [`Error`] when the folder or a container can't be read.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<Option<Attr>, Error> {
        #[cfg(test)]
        assert!(name != TEST_PANIC, "this name is for tests of panics");
        let _watch = self.watch("lookup", parent, Some(name));
        if name.len() > names::NAME_MAX {
            return Err(Error::name_too_long(self.place(&self.node(parent)?)));
        }
        let found = match self.node(parent)? {
            Node::Plain(_) | Node::Inside(_, tree::ROOT) if parent == ROOT && name == control::FOLDER => {
                Some(Node::ControlFolder)
            }
            Node::Plain(path) => {
                self.watcher.watch(&path, &self.folders.full(&path));
                self.folders.find(&path.join(name), &self.problems)?.map(Found::into_node)
            }
            Node::Inside(id, folder) => match self.lookup_inside(&id, folder, name)? {
                Some((node, attr)) => {
                    self.inodes.remember(attr.ino, node);
                    return Ok(Some(attr));
                }
                None => None,
            },
            Node::ControlFolder => self.control.lookup(name, self).map(Node::ControlFile),
            Node::File(..) | Node::ControlFile(_) => None,
        };
        let marker = || if parent == ROOT { self.control.marker(name).map(Node::ControlFile) } else { None };
        let Some(node) = found.or_else(marker) else { return Ok(None) };
        let attr = self.attr_of(&node)?;
        self.inodes.remember(attr.ino, node);
        Ok(Some(attr))
    }

    /// Opens the container once for the name and its attributes: this is the request that comes most often.
    fn lookup_inside(
        &self,
        id: &Arc<ContainerId>,
        folder: NodeId,
        name: &OsStr,
    ) -> Result<Option<(Node, Attr)>, Error> {
        // Names in containers are always UTF-8: the mapping escapes everything else.
        let Some(name) = name.to_str() else { return Ok(None) };
        let opened = self.opened(id)?;
        let found = opened.lookup(folder, name);
        self.note_noticed(id, &opened);
        let Some(node) = found.map_err(|fault| self.fault(id, &opened, folder, fault))? else { return Ok(None) };
        let attr = self.attr_inside(id, &opened, node)?;
        Ok(Some((Node::Inside(id.clone(), node), attr)))
    }

    /// Gives back look-ups of a node; the last one forgets it.
    pub fn forget(&self, ino: u64, lookups: u64) {
        self.inodes.forget(ino, lookups);
    }

    /// A node's attributes.
    ///
    /// # Errors
    /// [`Error`] when the container can't be opened or has changed.
    pub fn attr(&self, ino: u64) -> Result<Attr, Error> {
        let _watch = self.watch("stat", ino, None);
        self.attr_of(&self.node(ino)?)
    }

    /// Goes through a folder from a position (0 at first) until `each` breaks: `.`, `..` and what the folder shows.
    /// With `plus`, entries carry their attributes where these can be had without much work, and each that `each` takes
    /// (goes on after) counts as a look-up, but for `.` and `..`.
    ///
    /// # Errors
    /// [`Error`] when the folder can't be read.
    pub fn read_dir(
        &self,
        ino: u64,
        from: u64,
        plus: bool,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let _watch = self.watch("list", ino, None);
        let node = self.node(ino)?;
        if from < 2 {
            let dots = [(1, ".", ino), (2, "..", self.parent(ino, &node)?)];
            for (next, name, ino) in dots.into_iter().skip(from as usize) {
                let entry = DirEntry { next, name: OsStr::new(name), ino, kind: FileKind::Folder, attr: None };
                if each(entry).is_break() {
                    return Ok(());
                }
            }
        }
        let from = from.saturating_sub(2);
        match &node {
            Node::Plain(path) => self.list_plain(path, from, plus, each),
            Node::Inside(id, folder) => {
                let opened = self.opened(id)?;
                let listed = opened.tree.list(&opened.reader, *folder, from, &mut |child| {
                    let node = Node::Inside(id.clone(), child.node);
                    let kind = if child.is_folder { FileKind::Folder } else { FileKind::File };
                    let sized = plus && opened.tree.is_sized(&opened.reader, child.node);
                    let attr = sized.then(|| self.attr_inside(id, &opened, child.node).ok()).flatten();
                    let ino = attr.as_ref().map_or_else(|| self.ino(&node), |attr| attr.ino);
                    let entry = DirEntry { next: child.next + 2, name: OsStr::new(child.name), ino, kind, attr };
                    self.take(node, plus, entry, each)
                });
                self.note_noticed(id, &opened);
                listed.map_err(|fault| self.fault(id, &opened, *folder, fault))
            }
            Node::ControlFolder => {
                for (next, name) in (from + 3..).zip(control::FILES.iter().skip(from as usize)) {
                    let name = OsStr::new(name);
                    let Some(node) = self.control.lookup(name, self).map(Node::ControlFile) else { continue };
                    let attr = self.attr_of(&node)?;
                    let entry = DirEntry { next, name, ino: attr.ino, kind: attr.kind, attr: plus.then_some(attr) };
                    if self.take(node, plus, entry, each).is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Node::File(..) | Node::ControlFile(_) => Err(Error::not_a_folder(self.place(&node))),
        }
    }

    fn list_plain(
        &self,
        path: &Path,
        from: u64,
        plus: bool,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.watcher.watch(path, &self.folders.full(path));
        let names = self.folders.names(path, from == 0)?;
        for (index, name) in names.iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            if path == Path::new("") && name == control::FOLDER {
                continue;
            }
            // What can't be looked at now (gone, no permission) is not shown; its look-up says why.
            let Ok(Some(found)) = self.folders.find(&path.join(name), &self.problems) else { continue };
            let kind = found.kind();
            let node = found.into_node();
            let attr = plus.then(|| self.attr_of(&node).ok()).flatten();
            let ino = attr.as_ref().map_or_else(|| self.ino(&node), |attr| attr.ino);
            let entry = DirEntry { next: index as u64 + 3, name, ino, kind, attr };
            if self.take(node, plus, entry, each).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Offers an entry, and remembers its node if it was taken in a listing with attributes.
    fn take(
        &self,
        node: Node,
        plus: bool,
        entry: DirEntry<'_>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let ino = entry.ino;
        each(entry)?;
        if plus {
            self.inodes.remember(ino, node);
        }
        ControlFlow::Continue(())
    }

    /// The target of a symbolic link, as it is stored.
    ///
    /// # Errors
    /// [`Error`] when the node is no link or can't be read.
    pub fn read_link(&self, ino: u64) -> Result<OsString, Error> {
        match self.node(ino)? {
            Node::Plain(path) => {
                let full = self.folders.full(&path);
                std::fs::read_link(&full).map(Into::into).map_err(|e| Error::os(&e, "readlink", path.to_path_buf()))
            }
            node => Err(Error::not_a_link(self.place(&node))),
        }
    }

    /// Whether names in this folder can come and go while mounted.
    pub fn is_volatile(&self, folder: u64) -> bool {
        folder == ROOT || !matches!(self.inodes.get(folder), Some(Node::Inside(..)))
    }

    /// Whether operations on this node would not wait for a disk or a decoder: its container is open. SOURCE's own
    /// folders and files are looked at on the disk each time.
    pub fn is_open(&self, ino: u64) -> bool {
        let root = || self.root().clone();
        match self.inodes.get(ino).unwrap_or_else(root) {
            Node::Inside(id, node) if ino != ROOT => self.containers.is_at_hand(&id, node),
            Node::Inside(..) | Node::Plain(_) | Node::File(..) => false,
            Node::ControlFolder | Node::ControlFile(_) => true,
        }
    }

    /// Waits for changes of SOURCE, at most as long as that, and says what the kernel should forget.
    pub fn wait_for_changes(&self, timeout: Duration) -> Vec<Change> {
        let touched = self.watcher.wait(timeout);
        let spoiled = std::mem::take(&mut *self.spoiled.lock());
        let of_container = spoiled.iter().flat_map(|id| self.inodes.of_container(id));
        let mut changes: Vec<Change> = of_container.map(Change::Node).collect();
        for Touched { folder, name, listed } in touched {
            if self.is_one_container() {
                // Its folder is watched, in which it is one name of many.
                if Some(&*name) == self.source.file_name() && !changes.contains(&Change::Node(ROOT)) {
                    changes.push(Change::Node(ROOT));
                }
                continue;
            }
            let parent = self.ino(&Node::Plain(folder.as_path().into()));
            if listed {
                changes.push(Change::Node(parent));
            }
            match self.folders.find(&folder.join(&name), &self.problems) {
                // The name stays, what is known of the file does not.
                Ok(Some(found @ Found::File(..))) if !listed => {
                    changes.push(Change::Node(self.ino(&found.into_node())))
                }
                _ => changes.push(Change::Name(parent, name)),
            }
        }
        changes
    }

    /// Gives back what is held only for containers that are no longer there. To be called now and then.
    pub fn sweep(&self) {
        self.containers.sweep();
    }

    /// Notes that a request panicked, which none should.
    pub fn note_panic(&self, what: &str) {
        let message = format!("a request failed by a fault of shardfs itself, please report it: {what}");
        self.problems.note(Problem::of(PathBuf::new(), message));
    }

    /// The bytes of a file from an offset on, at most `length`; fewer only at the end. `None` with `only_ready` if the
    /// answer would have to wait for a decoder.
    ///
    /// # Errors
    /// [`Error`] when any block that the range touches fails, or the container has changed.
    pub fn read(&self, ino: u64, offset: u64, length: u64, only_ready: bool) -> Result<Option<Bytes>, Error> {
        let _watch = self.watch("read", ino, None);
        let node = self.node(ino)?;
        let bytes = match &node {
            Node::File(..) if only_ready => return Ok(None),
            Node::File(path, host) => self.folders.read(path, *host, offset, length)?,
            Node::ControlFile(snapshot) => snapshot.read(offset, length),
            Node::Inside(id, file) => {
                if only_ready && !self.containers.is_at_hand(id, *file) {
                    return Ok(None);
                }
                let opened = self.opened(id)?;
                let fault = |fault| self.fault(id, &opened, *file, fault);
                let view = opened.view(*file).map_err(fault)?;
                if only_ready && !view.is_ready(&opened.reader, offset, length) {
                    return Ok(None);
                }
                let bytes = view.read_at(&opened.reader, offset, length).map_err(fault)?;
                view.decode_ahead(&opened.reader, offset.saturating_add(length));
                bytes
            }
            Node::Plain(_) | Node::ControlFolder => return Err(Error::is_a_folder(self.place(&node))),
        };
        self.requests.bytes_read.fetch_add(bytes.for_kernel().len() as u64, Relaxed);
        Ok(Some(bytes))
    }

    /// The bytes of a file of a container as memory of one's own, which may be looked at. Never lent from a map, so that
    /// each was really read.
    ///
    /// # Errors
    /// As [`Self::read`]; and for what is no file of a container.
    pub fn read_copied(&self, ino: u64, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let node = self.node(ino)?;
        let Node::Inside(id, file) = &node else { return Err(Error::stale(self.place(&node))) };
        let opened = self.opened(id)?;
        let fault = |fault| self.fault(id, &opened, *file, fault);
        let view = opened.view(*file).map_err(fault)?;
        view.copy_at(&opened.reader, offset, length).map_err(fault)
    }

    fn node(&self, ino: u64) -> Result<Node, Error> {
        if ino == ROOT {
            return self.root_now();
        }
        self.inodes.get(ino).ok_or_else(|| Error::stale(PathBuf::new()))
    }

    fn opened(&self, id: &Arc<ContainerId>) -> Result<Arc<Opened>, Error> {
        self.containers.open(id)
    }

    fn ino(&self, node: &Node) -> u64 {
        if *node == *self.root() { ROOT } else { self.inodes.number(node) }
    }

    fn parent(&self, ino: u64, node: &Node) -> Result<u64, Error> {
        if ino == ROOT {
            return Ok(ROOT);
        }
        let above = |path: &Path| Node::Plain(path.parent().unwrap_or(Path::new("")).into());
        Ok(match node {
            Node::Plain(path) | Node::File(path, _) => self.ino(&above(path)),
            Node::Inside(id, tree::ROOT) => self.ino(&above(&id.path)),
            Node::Inside(id, child) => {
                let parent = self.opened(id)?.parent(*child);
                self.ino(&Node::Inside(id.clone(), parent))
            }
            Node::ControlFolder | Node::ControlFile(_) => ROOT,
        })
    }

    fn attr_of(&self, node: &Node) -> Result<Attr, Error> {
        match node {
            // The folder that stands for a container is known without opening it: listing a folder opens none.
            Node::Inside(id, tree::ROOT) => Ok(self.attr_from(node, FileKind::Folder, 0, &id.meta, 1, true)),
            Node::Inside(id, child) => self.attr_inside(id, &*self.opened(id)?, *child),
            Node::Plain(path) => match self.folders.find(path, &self.problems)? {
                // How many folders it holds, containers among them, would need a walk.
                Some(Found::Folder(meta)) => Ok(self.attr_from(node, FileKind::Folder, 0, &meta, 1, true)),
                Some(Found::Link(_, meta)) => Ok(self.attr_from(node, FileKind::Link, meta.size(), &meta, 1, true)),
                // It is something else now, or gone.
                Some(Found::File(..) | Found::Container(_)) | None => Err(Error::stale(path.to_path_buf())),
            },
            Node::File(path, host) => {
                let meta = match self.folders.find(path, &self.problems)? {
                    Some(Found::File(_, meta)) if meta.host() == *host => meta,
                    // Another file stands there now; this one may still be open.
                    _ => self.folders.open_meta(path, *host)?,
                };
                Ok(self.attr_from(node, FileKind::File, meta.size(), &meta, 1, true))
            }
            Node::ControlFolder | Node::ControlFile(_) => {
                let (kind, size) = match node {
                    Node::ControlFile(snapshot) => (FileKind::File, snapshot.size()),
                    _ => (FileKind::Folder, 0),
                };
                let meta = self.folders.root_meta()?;
                let mut attr =
                    self.attr_from(node, kind, size, &meta, if kind == FileKind::Folder { 2 } else { 1 }, true);
                attr.mtime = control::now();
                // They tell of everything in SOURCE, so they are for whoever mounted it.
                attr.mode &= 0o500;
                attr.uid = rustix::process::geteuid().as_raw();
                Ok(attr)
            }
        }
    }

    fn attr_inside(&self, id: &Arc<ContainerId>, opened: &Opened, child: NodeId) -> Result<Attr, Error> {
        let node = Node::Inside(id.clone(), child);
        let (kind, size, nlink) = match opened.kind(child) {
            Some(NodeKind::Folder { subfolders }) => {
                (FileKind::Folder, 0, subfolders.map_or(1, |n| n.saturating_add(2)))
            }
            Some(NodeKind::File) => {
                let view = opened.view(child);
                (FileKind::File, view.map_err(|fault| self.fault(id, opened, child, fault))?.size(), 1)
            }
            None => return Err(Error::stale(id.shown())),
        };
        // In the root of a container that is SOURCE, names mean other nodes when it has changed.
        let volatile =
            opened.parent(child) == tree::ROOT && matches!(&*self.root(), Node::Inside(root, _) if root == id);
        Ok(self.attr_from(&node, kind, size, &id.meta, nlink, volatile))
    }

    fn attr_from(&self, node: &Node, kind: FileKind, size: u64, meta: &FileMeta, nlink: u32, volatile: bool) -> Attr {
        let Options { uid, gid, umask, .. } = self.options;
        let read = meta.mode & 0o444;
        let mode = match (kind, node) {
            // SOURCE's own folders are entered by whom they let in.
            (FileKind::Folder, Node::Plain(_)) => meta.mode & 0o555,
            // One that stands for a container, by whoever may read it.
            (FileKind::Folder, _) => read | read >> 2,
            (FileKind::File, _) => read,
            (FileKind::Link, _) => 0o777,
        };
        Attr {
            ino: self.ino(node),
            kind,
            size,
            mode: (mode & !umask) as u16,
            nlink,
            uid: uid.unwrap_or(meta.uid),
            gid: gid.unwrap_or(meta.gid),
            mtime: (meta.fingerprint.mtime.0, meta.fingerprint.mtime.1 as u32),
            volatile,
            fixed: !matches!(node, Node::ControlFile(_)),
        }
    }

    /// A node's path below SOURCE, for messages.
    fn place(&self, node: &Node) -> PathBuf {
        match node {
            Node::Plain(path) | Node::File(path, _) => path.to_path_buf(),
            Node::Inside(id, _) => id.shown(),
            Node::ControlFolder | Node::ControlFile(_) => control::FOLDER.into(),
        }
    }

    /// Notes what a container found wrong while it was looked into.
    fn note_noticed(&self, id: &ContainerId, opened: &Opened) {
        for Notice { node, offset, message } in opened.tree.noticed() {
            self.problems.note(Problem { path: opened.tree.path(node), offset, ..Problem::of(id.shown(), message) });
        }
    }

    /// Turns what a view or tree says into the error that everybody sees, and notes the problem.
    fn fault(&self, id: &Arc<ContainerId>, opened: &Opened, node: NodeId, fault: crate::view::Fault) -> Error {
        let block = fault.block.map(|block| opened.tree.block_name(block));
        // A disk fails somewhere in the block; everything else is told of its start.
        let start = (!matches!(*fault.error, BlockError::Source(_))).then_some(fault.offset);
        let error = Error::block(id.shown(), opened.path(node), block, fault.offset, fault.error);
        self.problems.note_at(error.to_problem(), start);
        // What was handed out before the checksum was known to be wrong is not to be served from the kernel's cache.
        if opened.reader.cache.failed_late(opened.reader.container) {
            self.spoiled.lock().push(id.clone());
            self.watcher.wake();
        }
        error
    }
}

#[cfg(test)]
mod tests;
