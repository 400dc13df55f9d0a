//! The tier below memory: decoded blocks on a local disk, for data that is larger than the cache.
//!
//! A block is kept when it is decoded, checked and worth it: its codec took at least twice as long as reading a part of
//! it from this disk takes ([`DiskTier::is_worth`]). A later read that does not find the block in memory takes only the
//! range that it wants, so one frame of a block of a hundred costs one frame.
//!
//! What is kept is named by the state of the container's file ([`Source::state_key`]) and by the block's place, size,
//! codec and checksum in it: another state of the file has other names, and a name needs no table that could be stale.
//! Files on two filesystems may have the same state, so the name of a block of a local file also has the hashes of its
//! stored bytes and of the container's front. They are read for that once while a filesystem is mounted
//! ([`Source::filesystem`]): less work than decoding, and the only proof that the block is this one.
//! A block is one blob of [`Disk`]; one that is shown in pieces while it is decoded is a blob for each piece, and a
//! last empty one that says that the checksum of all of them was right. Pieces without that one are never read.
//!
//! Where the kernel serves finished files by itself, a virtual file that is one block (and a header before it) is kept as
//! the file that the user sees, instead of the block ([`FileOfBlock`]). The kernel is given it after all of it was
//! compared with its checksums, once since the machine started; the block is read out of it.
//!
//! Blobs carry checksums of their own. One that is damaged, evicted or on a disk that fails is a block that is decoded
//! again.

use std::{
    fs::File,
    io::{self, ErrorKind},
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use super::{BlockError, Buffer, Cache, FileSlot, Key, KeyedBlock, Piece, Verify, decode};
use crate::{
    codec::Codec,
    disk::{self, Blob, Disk, Limits, Payload, Slice, Way},
    format::Block,
    limits,
    single_flight::SingleFlight,
    source::{Source, SourceError, check_range, to_usize, zeros},
    wanted,
};

/// Most bytes of a block that one read is assumed to want, to judge whether the block is worth keeping.
const TYPICAL_READ: u64 = 1 << 20;

/// Time to find and open a blob, in nanoseconds.
const OPENING: u64 = 50_000;

/// Smaller reads in bytes show the time of opening rather than the speed of the disk.
const TELLING_READ: usize = 64 << 10;

/// A read that takes longer shows that the disk is too slow to wait for.
const TOO_SLOW: Duration = Duration::from_secs(2);

/// How long decoding waits for the disk, if it may.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often it waits again because others took the room that came.
const WAITS: usize = 8;

/// Most bytes in the queue for the disk, if decoding waits for it.
const WAITED_FOR: u64 = 128 << 20;

/// Bytes that are read at a time to hash them: few enough to stay in the processor's cache.
const HASHED: usize = 128 << 10;

/// Version of the names. A later layout uses another number.
const VERSION: u8 = 3;

/// Options of the disk cache for decoded blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskTierOptions {
    /// The folder, made if it does not exist. Only the user of this process may enter it.
    pub folder: PathBuf,
    /// Largest size of the folder in bytes.
    pub size: u64,
    /// Whether decoding waits for a disk that is too slow, so that nothing is left out. `shardfs warm` sets it.
    pub wait: bool,
    /// Whether blocks that are quick to decode are kept too.
    pub all: bool,
}

impl DiskTierOptions {
    /// Opens the folder. A disk that fails or is full can be done without: that is logged, and the result is `None`.
    ///
    /// # Errors
    /// If the folder belongs to another user, others may enter it, or it is no folder.
    pub fn open(&self, budget: u64) -> io::Result<Option<DiskTier>> {
        let limits = Limits::new(&self.folder, self.size);
        // What waits to be written counts against the budget, and is in the cache at first anyway. If decoding waits
        // for the disk, a longer queue gains nothing.
        let queue = if self.wait { (budget / 4).min(WAITED_FOR) } else { budget / 4 };
        let limits = Limits { queue, ..limits };
        match Disk::open(&self.folder, limits) {
            Ok(disk) => {
                // This looks at each file, so nothing waits for it.
                let counted = disk.clone();
                let _ = thread::Builder::new().name("disk-cache".into()).spawn(move || counted.usage());
                Ok(Some(DiskTier { wait: self.wait, all: self.all, ..DiskTier::new(disk) }))
            }
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotADirectory) => Err(error),
            Err(error) => {
                log::warn!("{}: {error}; decoded blocks are kept in memory only", self.folder.display());
                Ok(None)
            }
        }
    }
}

/// Decoded blocks on disk.
#[derive(Debug)]
pub struct DiskTier {
    disk: Arc<Disk>,
    /// Moving average of the time to read a byte, in picoseconds.
    picos_per_byte: AtomicU64,
    /// Whether decoding waits for the disk.
    wait: bool,
    /// Whether blocks that are quick to decode are kept too.
    all: bool,
}

/// Returns the SHA-256 of a range of a source.
///
/// # Errors
/// Those of the source, and EINTR if nobody waits for it any more.
pub(crate) fn sha256(source: &dyn Source, range: Range<u64>) -> Result<[u8; 32], SourceError> {
    check_range(&range, source.len())?;
    source.prefetch(std::slice::from_ref(&range));
    let mut hash = Sha256::new();
    let mut piece = zeros(HASHED.min(usize::try_from(range.end - range.start).unwrap_or(HASHED)))?;
    for at in range.clone().step_by(HASHED) {
        wanted::check()?;
        let length = piece.len().min(usize::try_from(range.end - at).unwrap_or(HASHED));
        source.fill(at, &mut piece[..length])?;
        hash.update(&piece[..length]);
    }
    Ok(hash.finalize().into())
}

/// A virtual file that consists of one whole block, and of bytes that are known without it.
pub(crate) struct FileOfBlock<'a> {
    pub(crate) block: &'a Block,
    /// Offset of the block in the file.
    pub(crate) at: u64,
    /// Size of the file.
    pub(crate) size: u64,
    /// SHA-256 of the other bytes.
    pub(crate) others: [u8; 32],
}

/// Names a block in every process: the state of the container's file, and the block in it.
pub(super) struct Name {
    key: Vec<u8>,
    size: u64,
    in_pieces: bool,
}

impl Name {
    /// Returns the range of the piece that holds the byte at `at`, as a decoder makes pieces.
    fn piece_of(&self, at: u64) -> Range<u64> {
        if !self.in_pieces {
            return 0..self.size;
        }
        let mut start = 0;
        loop {
            let end = start + decode::piece_size(start, self.size).max(1);
            if at < end {
                return start..end;
            }
            start = end;
        }
    }

    /// Returns the key of the piece that begins at `start`.
    fn key_of(&self, start: u64) -> Vec<u8> {
        [&*self.key, &start.to_le_bytes()].concat()
    }

    /// Returns the key of the block inside a virtual file that is kept whole.
    fn in_file(&self) -> Vec<u8> {
        // The file is the same, in whatever way it was decoded.
        let mut key = self.key_of(u64::MAX - 1);
        key[1] = 2;
        key
    }

    /// Returns the key of that virtual file.
    fn of_file(&self, file: &FileOfBlock<'_>) -> Vec<u8> {
        [&*self.in_file(), &file.at.to_le_bytes(), &file.size.to_le_bytes(), &file.others].concat()
    }

    /// Returns the key of the blob that marks all pieces as right.
    fn verdict(&self) -> Vec<u8> {
        self.key_of(u64::MAX)
    }
}

impl DiskTier {
    /// Returns a tier that keeps decoded blocks in `disk`.
    pub fn new(disk: Arc<Disk>) -> Self {
        Self { disk, picos_per_byte: AtomicU64::new(1000), wait: false, all: false }
    }

    /// The disk cache that holds the blocks.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Returns whether reading a part of a block of `size` bytes from this disk takes at most half of `decoding`, the time
    /// to decode it.
    pub(super) fn is_worth(&self, size: u64, decoding: Duration) -> bool {
        if self.all {
            return true;
        }
        let bytes = size.min(TYPICAL_READ);
        let reading = OPENING + bytes.saturating_mul(self.picos_per_byte.load(Relaxed)) / 1000;
        decoding.as_nanos() >= u128::from(reading.saturating_mul(2))
    }

    /// Keeps a piece of a block whose checksum is not known yet. If it returns `false`, [`Self::keep_verdict`] must not
    /// be called.
    pub(super) fn keep_piece(&self, name: &Name, start: u64, piece: Payload) -> bool {
        self.keep_blob(&name.key_of(start), piece)
    }

    /// Keeps a blob unless it is there. Returns whether it is, or will be written.
    pub(super) fn keep_blob(&self, key: &[u8], bytes: Payload) -> bool {
        self.disk.contains(key) || self.put(|way| self.disk.put_by(way, key, bytes.clone()))
    }

    /// Puts something into the disk's queue. Waits for room there if decoding may wait.
    fn put(&self, put: impl Fn(Way) -> bool) -> bool {
        match self.wait {
            false => put(Way::Cached),
            true => {
                let waited = || self.disk.flush(LONGEST_WAIT).then(|| put(Way::Held));
                put(Way::Held) || (0..WAITS).map_while(|_| waited()).any(|is_taken| is_taken)
            }
        }
    }

    /// Marks all pieces of a block as kept and right.
    pub(super) fn keep_verdict(&self, name: &Name) {
        self.disk.put(&name.verdict(), Arc::new([]));
    }

    /// Returns whether the byte at `at` of a block seems to be kept. Cheap.
    pub(super) fn has(&self, name: &Name, at: u64) -> bool {
        self.disk.contains(&name.key_of(name.piece_of(at).start)) || self.disk.contains(&name.in_file())
    }

    /// Fills `out` with the bytes of a block from `at` on. Returns whether all of them were there; otherwise `out`
    /// holds anything.
    pub(super) fn read(&self, name: &Name, at: u64, out: &mut [u8]) -> bool {
        self.read_pieces(name, at, out)
            || self.disk.get_file(&name.in_file()).is_some_and(|blob| self.read_blob(&blob, name.size, at, out))
    }

    fn read_pieces(&self, name: &Name, mut at: u64, out: &mut [u8]) -> bool {
        if name.in_pieces && self.disk.get(&name.verdict()).is_none() {
            return false;
        }
        let mut rest = out;
        while !rest.is_empty() {
            let piece = name.piece_of(at);
            let length = usize::try_from(piece.end - at).map_or(rest.len(), |left| left.min(rest.len()));
            let (here, after) = rest.split_at_mut(length);
            let Some(blob) = self.disk.get(&name.key_of(piece.start)) else { return false };
            if !self.read_blob(&blob, piece.end - piece.start, at - piece.start, here) {
                return false;
            }
            (at, rest) = (at + length as u64, after);
        }
        true
    }

    /// Fills `out` with bytes of a blob that should have `size` bytes. Returns whether that succeeded.
    pub(super) fn read_blob(&self, blob: &Blob, size: u64, at: u64, out: &mut [u8]) -> bool {
        let start = Instant::now();
        let is_read = blob.len() == size && blob.read_at(at, out).is_ok();
        let took = start.elapsed();
        if took > TOO_SLOW {
            self.disk.rest(&format!("a read of {} bytes took {:.1} s", out.len(), took.as_secs_f64()));
        }
        if is_read && out.len() >= TELLING_READ {
            let picos = u64::try_from(took.as_nanos() * 1000 / out.len() as u128).unwrap_or(u64::MAX);
            let average = self.picos_per_byte.load(Relaxed);
            self.picos_per_byte.store(average - average / 8 + picos / 8, Relaxed);
        }
        is_read
    }

    fn remove_pieces(&self, name: &Name) {
        let mut at = 0;
        while self.disk.contains(&name.key_of(at)) {
            self.disk.remove(&name.key_of(at));
            at = name.piece_of(at).end;
        }
        if name.in_pieces {
            self.disk.remove(&name.verdict());
        }
    }
}

impl Cache {
    /// Returns the block's name. `None` for an uncompressed block, and for bytes without a name of their own. A block
    /// that is shown in pieces is kept in pieces.
    ///
    /// If `waits` is false: `None` if the block's stored bytes would have to be read for it.
    pub(super) fn spilled_name(&self, block: &Block, source: &dyn Source, waits: bool) -> Option<Name> {
        if block.codec == Codec::None {
            return None;
        }
        let in_pieces = self.in_pieces(block);
        let mut name = Vec::with_capacity(192);
        name.extend_from_slice(&[VERSION, in_pieces.into()]);
        name.extend_from_slice(&self.name_of_state(source, block.stored(), waits)?);
        for number in [block.offset, block.stored_size, block.size] {
            name.extend_from_slice(&number.to_le_bytes());
        }
        // The size of a picture and each filter with all that it is told are in it.
        name.extend_from_slice(format!("{:?} {:?}", block.codec, block.crc).as_bytes());
        Some(Name { key: name, size: block.size, in_pieces })
    }

    /// Returns what names bytes of a source in every process: the state of its file, and for a local file the hashes of
    /// its front and of these bytes. `None` for bytes without a name; if `waits` is false, also if they would have to be
    /// read for it.
    pub(super) fn name_of_state(&self, source: &dyn Source, range: Range<u64>, waits: bool) -> Option<Vec<u8>> {
        let state = source.state_key()?;
        let mut name = state.to_vec();
        if let Some(filesystem) = source.filesystem() {
            let front = 0..source.len().min(limits::FRONT as u64);
            for range in [front, range] {
                let numbers = [filesystem, range.start, range.end].map(u64::to_le_bytes);
                let key = Key::named("hash of bytes", &[&state, numbers.as_flattened()].concat());
                let flight = self.parsed_default::<SingleFlight<[u8; 32]>>(key, 0);
                let hash = if waits { flight.get_or_try_init(|| sha256(source, range)).ok() } else { flight.get() };
                name.extend_from_slice(&hash?);
            }
        }
        Some(name)
    }

    /// Returns the disk cache, and the name of a block there.
    pub(super) fn spilled(&self, block: &Block, source: &dyn Source) -> Option<(&DiskTier, Name)> {
        let spill = self.disk.as_ref().filter(|_| self.check_size(block).is_ok())?;
        Some((spill, self.spilled_name(block, source, true)?))
    }

    /// Returns a part of a block that is on disk and not in memory. A block that is wanted whole comes to memory
    /// instead.
    pub(super) fn spilled_part(
        &self,
        KeyedBlock { key, block, source }: KeyedBlock<'_>,
        range: &Range<u64>,
    ) -> Result<Option<Piece>, Arc<BlockError>> {
        let (wanted, is_known) = (range.end - range.start, || self.peek(&key, |_| ()).is_some());
        if self.disk.is_none() || wanted == block.size || is_known() {
            return Ok(None);
        }
        let Some((spill, name)) = self.spilled(block, &**source) else { return Ok(None) };
        if !spill.has(&name, range.start) {
            return Ok(None);
        }
        let mut bytes = self.buffer(wanted, 0)?;
        let is_read = spill.read(&name, range.start, &mut bytes);
        Ok(is_read.then(|| Piece { start: range.start, bytes: Arc::new(bytes) }))
    }

    /// Fills `out` with all of a block, if it is on disk. Otherwise `out` holds anything.
    pub(super) fn read_spilled(&self, block: &Block, source: &dyn Source, out: &mut [u8]) -> bool {
        self.spilled(block, source).is_some_and(|(spill, name)| spill.has(&name, 0) && spill.read(&name, 0, out))
    }

    /// Keeps a decoded block on disk as well, if its checksum was compared and it is worth it.
    pub(super) fn keep(&self, spill: &DiskTier, name: &Name, block: &Block, took: Duration, bytes: Payload) {
        if self.verify != Verify::Off && spill.is_worth(block.size, took) {
            spill.keep_piece(name, 0, bytes);
        }
    }

    /// Returns a virtual file from the disk cache, whose bytes were compared with its checksums, once since the machine
    /// started and since it was written to.
    pub(crate) fn spilled_file(&self, file: &FileOfBlock<'_>, source: &dyn Source) -> Option<File> {
        let (spill, name) = self.spilled(file.block, source)?;
        let key = name.of_file(file);
        let blob = spill.disk.get_file(&key).filter(|blob| blob.len() == file.size)?;
        let own = blob.try_clone_file().ok()??;
        let is_checked = self.parsed_default::<OnceLock<()>>(Key::named("checked file", &disk::state(&own)?), 0);
        if is_checked.get().is_none() {
            spill.disk.check_file(&key, &blob).ok()?;
            let _ = is_checked.set(());
            // From now on the block is read out of the file.
            spill.remove_pieces(&name);
        }
        Some(own)
    }

    /// Keeps a finished file in memory on disk as well, if its block was checked and it is worth it. `took` is how long
    /// decoding took; `None` if the block came from the disk.
    pub(crate) fn keep_file(
        &self,
        file: &FileOfBlock<'_>,
        source: &dyn Source,
        memory: &Arc<FileSlot>,
        took: Option<Duration>,
    ) {
        let Some((spill, name)) = self.spilled(file.block, source) else { return };
        let is_worth = took.is_none_or(|took| self.verify != Verify::Off && spill.is_worth(file.block.size, took));
        let key = name.of_file(file);
        // Mapped now: a file that cannot be mapped later would have no bytes.
        let is_mapped = || memory.memory().bytes(0..memory.memory().size() as usize).is_ok();
        if is_worth && !spill.disk.contains(&key) && is_mapped() {
            let block = file.at..file.at + file.block.size;
            // The file itself: the cache holds it while the queue has no room.
            spill.put(|way| spill.disk.put_file(way, &key, (&name.in_file(), block.clone()), memory.clone()));
        }
    }

    /// Keeps a block that was decoded to a file in memory from `at` on.
    pub(crate) fn keep_part(
        &self,
        block: &Block,
        source: &dyn Source,
        memory: &Arc<FileSlot>,
        at: u64,
        took: Duration,
    ) {
        let Some((spill, name)) = self.spilled(block, source).filter(|_| self.verify != Verify::Off) else { return };
        // Mapped now, because a file that cannot be mapped later would have no bytes.
        let part = |piece: Range<u64>| {
            let range = to_usize(at + piece.start)..to_usize(at + piece.end);
            memory.memory().bytes(range.clone()).ok()?;
            Some(Arc::new(Slice(memory.clone(), range)))
        };
        if self.in_pieces(block) {
            let mut next = 0;
            while next < name.size {
                let Range { start, end } = name.piece_of(next);
                let Some(bytes) = part(start..end) else { return };
                if !spill.keep_piece(&name, start, bytes) {
                    return;
                }
                next = end;
            }
            spill.keep_verdict(&name);
        } else if let Some(part) = part(0..block.size) {
            self.keep(spill, &name, block, took, part);
        }
    }
}

impl AsRef<[u8]> for FileSlot {
    fn as_ref(&self) -> &[u8] {
        self.memory().bytes(0..self.memory().size() as usize).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
