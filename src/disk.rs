//! A bounded, checksummed cache of blobs on a local disk.
//!
//! A blob is any bytes under any key. A stored blob may be gone at the next look (evicted, removed, damaged), and is
//! then made or fetched again. Nothing here is the only copy of anything, so nothing is synchronised to the disk, and
//! every failure of the disk counts as a missing blob.
//!
//! - *One file a blob* (`blob`): the payload from offset 0, checksums of its pieces, the key. It is written under a
//!   temporary name and renamed, so a process that is killed leaves no partial blob. Checksums find what a power
//!   failure leaves. A piece is compared with its checksum before a byte of it is given out.
//! - *Plain files* (`plain`): a payload in a file of exactly its size, which the kernel can serve by itself; its
//!   checksums stand in a blob.
//! - *One folder for all processes of a user* (`folder`): mode 0700, and refused if another user owns it. Files are
//!   found by the SHA-256 of their key; there is no index that could be wrong or torn, and none to load.
//! - *One thread that writes* (`writer`): it takes blobs from a queue of bounded size. Blobs that a cache holds anyway
//!   may wait beyond that bound. If the disk is too slow, blobs are dropped, and no reader waits. Large blobs that lie
//!   on whole pages are written past the kernel's page cache as long as the disk keeps up. The thread evicts the least
//!   recently used blobs when they exceed the size limit or the disk runs full (`scan`), one process at a time.
//!
//! After an error the cache rests for some seconds. After an error in writing (such as a full disk) nothing is written;
//! after one in reading nothing is read either.

mod blob;
mod folder;
mod plain;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest, Sha256};

pub use blob::Blob;
use blob::{BlobFile, Inner};
use folder::Folder;
use plain::Part;
pub use plain::state;
pub use scan::Usage;
use writer::Queue;

/// The longest key, in bytes.
pub const LONGEST_KEY: usize = 32 << 10;

/// Bytes of blobs that may wait for the thread that writes, unless said otherwise.
pub const QUEUE: u64 = 32 << 20;

/// How long the cache rests after an error of the disk.
const REST: Duration = Duration::from_secs(10);

/// How a payload waits to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The queue holds it, and takes it only if it has room.
    Held,
    /// If the queue has no room, it waits in the cache that holds it, and is dropped if the cache gives it up before
    /// its turn.
    Cached,
}

/// Bytes to be stored. Their memory is kept until they are written.
pub type Payload = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A range of bytes that others share.
#[derive(Debug)]
pub struct Slice<T>(pub Arc<T>, pub Range<usize>);

impl<T: AsRef<[u8]>> AsRef<[u8]> for Slice<T> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref().get(self.1.clone()).unwrap_or_default()
    }
}

/// The name of a blob: the SHA-256 of its key.
type Hash = [u8; 32];

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all blobs together, as files.
    pub size: u64,
    /// Bytes that stay free on the filesystem.
    pub free: u64,
    /// Bytes of blobs that may wait to be written; one blob may be longer when no other waits.
    pub queue: u64,
}

impl Limits {
    /// Returns limits with this size, a queue of [`QUEUE`], and a twentieth of the filesystem but at most 1 GiB left
    /// free.
    pub fn new(folder: &Path, size: u64) -> Self {
        let total = folder.ancestors().find_map(|at| rustix::fs::statvfs(at).ok());
        let total = total.map_or(0, |at| at.f_blocks.saturating_mul(at.f_frsize));
        Self { size, free: (total / 20).min(1 << 30), queue: QUEUE }
    }
}

/// Returns the usual folder for everything that is kept: `$XDG_CACHE_HOME/shardfs/blocks`, or `~/.cache/shardfs/blocks`
/// (XDG Base Directory Specification). `None` for services without a home.
pub fn usual_folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    Some(cache?.join("shardfs/blocks"))
}

/// Returns the usual size in bytes of a folder: a tenth of the filesystem that it is or will be on, at most 50 GiB.
pub fn usual_size(folder: &Path) -> u64 {
    const MOST: u64 = 50 << 30;
    let total = folder.ancestors().find_map(|at| rustix::fs::statvfs(at).ok());
    total.map_or(MOST, |at| at.f_blocks.saturating_mul(at.f_frsize) / 10).min(MOST)
}

/// What happened since the cache was opened by this process, as in `stats.json`.
#[derive(Debug, Default, Serialize)]
pub struct Counters {
    /// Blobs that were asked for and found.
    pub hits: AtomicU64,
    /// Blobs that were asked for and missing.
    pub misses: AtomicU64,
    /// Bytes of payload handed out.
    #[serde(skip)]
    pub read_bytes: AtomicU64,
    /// Blobs written.
    #[serde(skip)]
    pub written: AtomicU64,
    /// Bytes of payload written.
    pub written_bytes: AtomicU64,
    /// Blobs evicted by this process.
    pub evicted: AtomicU64,
    /// Blobs that were not kept: the queue or the disk was full, or it failed.
    pub dropped: AtomicU64,
    /// Blobs that waited to be written and were not: there was no room, or the disk failed.
    #[serde(skip)]
    pub unwritten: AtomicU64,
    /// Blobs whose checksum was wrong.
    pub corrupt: AtomicU64,
    /// Other errors of the disk.
    pub errors: AtomicU64,
}

/// The cache, as one process sees it. Several processes may share a folder.
pub struct Disk {
    shared: Arc<Shared>,
}

/// The state that blobs and the writing thread share.
struct Shared {
    folder: Folder,
    queue: Queue,
    limits: Limits,
    counters: Counters,
    /// Bytes of all blobs at the last count plus those that this process wrote since; `u64::MAX` before the first
    /// count.
    used: AtomicU64,
    /// Until when nothing is read or written.
    rests: Rest,
    /// Until when nothing is written.
    writing_rests: Rest,
}

/// A time to rest after an error.
#[derive(Debug, Default)]
struct Rest(Mutex<Option<Instant>>);

impl Rest {
    /// Begins to rest now. Returns whether there was no rest for some time, so that this one should be logged.
    fn begin(&self) -> bool {
        let now = Instant::now();
        let before = self.0.lock().replace(now + REST);
        before.is_none_or(|until| until + 6 * REST < now)
    }

    fn is_on(&self) -> bool {
        self.0.lock().is_some_and(|until| Instant::now() < until)
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("folder", &self.shared.folder.path).finish_non_exhaustive()
    }
}

impl Disk {
    /// Opens the cache in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// What the operating system says; `PermissionDenied` for a folder of another user, one that others may look into,
    /// or a symbolic link.
    pub fn open(folder: &Path, limits: Limits) -> io::Result<Arc<Self>> {
        Ok(Self::of(Folder::create(folder)?, limits))
    }

    /// Opens a cache that is there already, to look at or to clear.
    ///
    /// # Errors
    /// As [`Self::open`]; `NotFound` if there is none.
    pub fn existing(folder: &Path, limits: Limits) -> io::Result<Arc<Self>> {
        Ok(Self::of(Folder::existing(folder)?, limits))
    }

    fn of(folder: Folder, limits: Limits) -> Arc<Self> {
        let (queue, counters, rests, writing_rests) = Default::default();
        let used = AtomicU64::new(u64::MAX);
        let shared = Shared { folder, queue, limits, counters, used, rests, writing_rests };
        Arc::new(Self { shared: Arc::new(shared) })
    }

    /// The folder.
    pub fn path(&self) -> PathBuf {
        self.shared.folder.path.clone()
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns the blob of a key if it is on disk or waits to be written. It stays readable while it is held, even if
    /// it is evicted.
    pub fn get(&self, key: &[u8]) -> Option<Blob> {
        self.find(key, Shared::open_blob)
    }

    /// Returns what waits to be written under a key, or what `open` finds on the disk.
    fn look(&self, key: &[u8], open: impl FnOnce(&Arc<Shared>, &[u8], &Hash) -> Option<Blob>) -> Option<Blob> {
        let hash = hash(key);
        let waiting = self.waiting(&hash).map(|payload| Blob(Inner::Memory(payload)));
        waiting.or_else(|| open(&self.shared, key, &hash))
    }

    /// Does the same, and counts a hit or a miss.
    fn find(&self, key: &[u8], open: impl FnOnce(&Arc<Shared>, &[u8], &Hash) -> Option<Blob>) -> Option<Blob> {
        let found = self.look(key, open);
        let counters = &self.shared.counters;
        if found.is_some() { &counters.hits } else { &counters.misses }.fetch_add(1, Relaxed);
        found
    }

    /// Returns whether there is a blob for a key. This is a cheap look, and may be wrong a moment later.
    pub fn contains(&self, key: &[u8]) -> bool {
        let hash = hash(key);
        self.waiting(&hash).is_some() || !self.shared.is_resting() && self.shared.folder.has(&hash)
    }

    /// Begins to read a blob that will be wanted soon. Returns whether the disk has it or will have it.
    pub fn read_ahead(&self, key: &[u8]) -> bool {
        let hash = hash(key);
        if self.waiting(&hash).is_some() {
            return true;
        }
        if self.shared.is_resting() {
            return false;
        }
        let Ok(Some(file)) = self.shared.folder.open_blob(&hash) else { return false };
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::WillNeed);
        true
    }

    /// Returns whether the folder lies on a disk of this machine. A local disk that fails returns an error; a server
    /// may keep a request waiting for ever.
    pub fn is_local(&self) -> bool {
        self.shared.folder.is_local
    }

    /// Stores a blob soon, and replaces what the disk has under the key. Never waits. Returns whether the queue had
    /// room or already has a blob of that key. A payload that lies on whole pages is written past the kernel's page
    /// cache as long as the disk keeps up, because that takes a fraction of the processor time.
    pub fn put(&self, key: &[u8], payload: Payload) -> bool {
        self.put_by(Way::Held, key, payload)
    }

    /// Like [`Self::put`], for bytes that may wait elsewhere.
    pub fn put_by(&self, way: Way, key: &[u8], payload: Payload) -> bool {
        self.take(key, payload, way, None)
    }

    fn take(&self, key: &[u8], payload: Payload, way: Way, part: Option<Part>) -> bool {
        let fits = key.len() <= LONGEST_KEY && self.shared.is_writable();
        let taken = fits && self.enqueue(key, payload, way, part);
        if !taken {
            self.shared.counters.dropped.fetch_add(1, Relaxed);
        }
        taken
    }

    /// Removes a blob. A [`Blob`] that is held stays readable.
    pub fn remove(&self, key: &[u8]) {
        let hash = hash(key);
        self.shared.queue.state.lock().take_out(&hash);
        self.shared.folder.remove(&hash);
    }

    /// Returns how many blobs of all processes are on disk, and their bytes. Looks at each file.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn usage(&self) -> io::Result<Usage> {
        let usage = scan::usage(&self.shared.folder)?;
        self.shared.used.store(usage.bytes, Relaxed);
        Ok(usage)
    }

    /// Returns about how many bytes all blobs take, if they were counted already. Never waits.
    pub fn used(&self) -> Option<u64> {
        Some(self.shared.used.load(Relaxed)).filter(|used| *used < u64::MAX)
    }

    /// Removes all blobs. Returns what was removed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn clear(&self) -> io::Result<Usage> {
        self.shared.queue.state.lock().clear();
        scan::clear(&self.shared.folder)
    }

    /// Evicts the least recently used blobs until all together have at most `size` bytes. Returns what was removed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn prune(&self, size: u64) -> io::Result<Usage> {
        let freed = scan::prune(&self.shared.folder, size)?;
        self.shared.counters.evicted.fetch_add(freed.blobs, Relaxed);
        Ok(freed)
    }

    /// Returns why nothing can be written, by trying.
    ///
    /// # Errors
    /// That of the disk.
    pub fn check_writable(&self) -> io::Result<()> {
        let (mut file, temporary) = self.shared.folder.temporary()?;
        let written = file.write_all(&[1; 64 << 10]);
        self.shared.folder.discard(&temporary);
        written
    }

    /// Lets the cache rest for some seconds. A caller that found the disk too slow to wait for calls it.
    pub fn rest(&self, why: &str) {
        self.shared.rest(why);
    }

    /// Returns whether the cache rests after an error of the disk.
    pub fn is_resting(&self) -> bool {
        self.shared.is_resting()
    }
}

impl Shared {
    fn open_blob(self: &Arc<Self>, key: &[u8], hash: &Hash) -> Option<Blob> {
        if self.is_resting() { None } else { self.opened(hash, |file| BlobFile::new(file, key)) }
    }

    /// Returns the file of a blob as what `read` makes of it; `None` if there is none, or it cannot be read.
    fn opened(self: &Arc<Self>, hash: &Hash, read: impl FnOnce(File) -> io::Result<BlobFile>) -> Option<Blob> {
        match self.folder.open_blob(hash).and_then(|file| file.map(read).transpose()) {
            Ok(file) => Some(Blob(Inner::File { file: file?, hash: *hash, shared: self.clone() })),
            Err(error) => {
                self.unreadable(hash, &error);
                None
            }
        }
    }

    /// Handles a blob that could not be read: a damaged one is removed, after other errors the cache rests.
    fn unreadable(&self, hash: &Hash, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            self.counters.corrupt.fetch_add(1, Relaxed);
            self.folder.remove(hash);
            let name = folder::name(hash);
            log::warn!("{}/{name}: {error}; removed, and fetched or decoded again", self.folder.path.display());
        } else {
            self.counters.errors.fetch_add(1, Relaxed);
            self.rest(&format!("reading a blob: {error}"));
        }
    }

    fn rest(&self, why: &str) {
        if self.rests.begin() {
            log::warn!("{}: {why}; going on without this cache for some seconds", self.folder.path.display());
        }
    }

    /// Counts an error in writing. Stored blobs are still read.
    fn not_written(&self, why: &dyn fmt::Display) {
        self.counters.errors.fetch_add(1, Relaxed);
        if self.writing_rests.begin() {
            log::warn!("{}: {why}; nothing is added to this cache for some seconds", self.folder.path.display());
        }
    }

    fn is_resting(&self) -> bool {
        self.rests.is_on()
    }

    fn is_writable(&self) -> bool {
        !self.rests.is_on() && !self.writing_rests.is_on()
    }
}

fn hash(key: &[u8]) -> Hash {
    Sha256::digest(key).into()
}
