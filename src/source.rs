//! Where the bytes of one container come from: read by range, each range of one state of the file.

mod leased;
mod mapped;

use std::{
    any::Any,
    io,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

pub(crate) use leased::lease;
pub use leased::{Leased, before_fork, forked};
pub use mapped::Mapped;

use crate::limits;

/// What an operation may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Nothing. It uses what is in memory, and fails with `WouldBlock` if that is not enough.
    Never,
    /// Reading stored bytes. It fails with `WouldBlock` if something would have to be decoded or computed.
    Disk,
    /// Everything.
    Always,
}

/// Why bytes of a source could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The range does not lie inside the source.
    #[error("bytes {start}..{end} are outside the file of {len} bytes")]
    OutOfRange {
        /// First byte asked for.
        start: u64,
        /// First byte not asked for.
        end: u64,
        /// Length of the source.
        len: u64,
    },
    /// The file is no longer the one that was opened: replaced, rewritten or truncated.
    #[error("the file has changed since it was opened")]
    Changed,
    /// The bytes would have to be waited for, and the caller does not wait ([`Wait::Never`]).
    #[error("the bytes would have to be waited for")]
    WouldBlock,
    /// The bytes are made of others, which are damaged.
    #[error("{0}")]
    Damaged(String),
    /// The operating system failed to read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Memory that nobody writes to while it is held.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl SourceError {
    /// Returns whether the error says nothing about the file: the reader was killed, or memory or descriptors ran out.
    pub fn is_passing(&self) -> bool {
        use libc::{EINTR, EMFILE, ENFILE, ENOMEM};
        let Self::Io(error) = self else { return false };
        error.kind() == io::ErrorKind::OutOfMemory
            || matches!(error.raw_os_error(), Some(EINTR | EMFILE | ENFILE | ENOMEM))
    }
}

/// Bytes read by range, from anywhere.
pub trait Source: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Returns the source that this one stands for, if it is one: that does what this one does not do by itself.
    fn inner(&self) -> Option<&dyn Source> {
        None
    }

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `offset` on. With [`Wait::Never`] from what is in memory; a source that does not
    /// know what is fails with `WouldBlock`.
    ///
    /// # Errors
    /// `OutOfRange` before anything is read, `Changed` or `Io` if the bytes cannot be read, `WouldBlock`.
    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError>;

    /// Checks that this is still the file that was opened. With [`Wait::Never`] by what the kernel knows of the file: no
    /// server is asked or waited for.
    ///
    /// # Errors
    /// `Changed` if it is not, `Io` if the operating system cannot say.
    fn check_unchanged(&self, wait: Wait) -> Result<(), SourceError> {
        self.inner().map_or(Ok(()), |inner| inner.check_unchanged(wait))
    }

    /// Returns a name of these bytes in this state, valid in every process and after a restart, by which bytes are kept
    /// on disk. `None` if nothing tells this state from all others.
    fn state_key(&self) -> Option<[u8; 32]> {
        self.inner()?.state_key()
    }

    /// Returns a number of the mounted filesystem, if [`Self::state_key`] could also be the key of a file on another one:
    /// of two images that are mounted one after the other, all numbers and times of two files can be the same. The
    /// filesystem stays mounted while this source is open. `None` if the key alone is certain.
    fn filesystem(&self) -> Option<u64> {
        self.inner()?.filesystem()
    }

    /// Whether reading reserves memory of the cache's budget, as decoding does. Who reads then holds its own.
    fn reserves(&self) -> bool {
        false
    }

    /// Called before memory is taken for bytes that will be read.
    ///
    /// # Errors
    /// `WouldBlock` from a source that does not give that many (`Bound`).
    fn admit(&self, bytes: u64) -> Result<(), SourceError> {
        self.inner().map_or(Ok(()), |inner| inner.admit(bytes))
    }

    /// Notes that a checksum of a range was compared and is right, for a source that counts what checksums cover.
    fn note_checked(&self, range: &Range<u64>) {
        if let Some(inner) = self.inner() {
            inner.note_checked(range);
        }
    }

    /// Announces ranges that will be read soon, so that a remote source can start to fetch them.
    fn prefetch(&self, ranges: &[Range<u64>]) {
        if let Some(inner) = self.inner() {
            inner.prefetch(ranges);
        }
    }

    /// Returns a range that may be looked at in place (see [`Leased`]), if the source can.
    ///
    /// # Errors
    /// Why it cannot; `Unsupported` for a source that never can.
    fn leased(&self, range: Range<u64>) -> io::Result<Leased> {
        self.inner().map_or_else(|| Err(io::ErrorKind::Unsupported.into()), |inner| inner.leased(range))
    }

    /// Returns a range that is contiguous in memory: that memory, and the place in it. Never waits.
    fn shared(&self, range: &Range<u64>) -> Option<(SharedBytes, Range<usize>)> {
        self.inner()?.shared(range)
    }

    /// Returns a range as memory that only the kernel may look at (see [`Mapped`]), if the source can. With
    /// [`Wait::Never`] only if its pages are in memory.
    fn mapped(&self, range: Range<u64>, wait: Wait) -> Option<Mapped> {
        self.inner()?.mapped(range, wait)
    }
}

/// Parts of an index that are nearer to each other are asked for together: a server takes as long for one byte as for so
/// many.
const NEIGHBOURS: u64 = 64 << 10;

/// Longest request for such parts together.
const TOGETHER: u64 = 512 << 10;

impl dyn Source + '_ {
    /// Announces many small parts that will be read soon, in any order: nodes of an index, headers of objects. Parts that
    /// are near to each other become one.
    pub fn prefetch_small(&self, mut parts: Vec<Range<u64>>) {
        parts.sort_unstable_by_key(|part| part.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for part in parts {
            match joined.last_mut() {
                Some(last)
                    if part.start <= last.end.saturating_add(NEIGHBOURS)
                        && part.end <= last.start.saturating_add(TOGETHER) =>
                {
                    last.end = last.end.max(part.end);
                }
                _ => joined.push(part),
            }
        }
        self.prefetch(&joined);
    }

    /// Fills `buf` with the bytes from `offset` on, and waits for them as far as the source lets it (`Bound`).
    ///
    /// # Errors
    /// As [`Source::read_at`].
    pub fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        self.read_at(offset, buf, Wait::Always)
    }

    /// Reads a range into memory of its own, as `fill` does. The range is checked against the source's length
    /// before memory is taken.
    ///
    /// # Errors
    /// As [`Source::read_at`].
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
        check_range(&range, self.len())?;
        self.admit(range.end - range.start)?;
        let mut bytes = zeros(to_usize(range.end - range.start))?;
        self.fill(range.start, &mut bytes)?;
        Ok(bytes)
    }
}

/// A source for callers who wait for no more than was said when it was made. Parsers and views that read from it need
/// not know how long they may wait.
///
/// It may also be bound to a number of bytes in all, because opening a container that needs more takes too long on the
/// spot. The front is read in one go then, because parsers read many small parts of it, each of which would be two
/// system calls.
pub(crate) struct Bound {
    source: Arc<dyn Source>,
    wait: Wait,
    /// The bytes that may still be read, if they are bounded.
    left: Option<AtomicU64>,
    front: OnceLock<Option<Vec<u8>>>,
    has_refused: AtomicBool,
}

impl Bound {
    /// Binds a source to `wait` and, if given, to a number of bytes.
    pub(crate) fn new(source: Arc<dyn Source>, wait: Wait, bytes: Option<u64>) -> Self {
        let left = bytes.map(AtomicU64::new);
        Self { source, wait, left, front: OnceLock::new(), has_refused: AtomicBool::new(false) }
    }

    /// Returns a range of the front, if the whole front can be read at once.
    fn in_front(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(length).filter(|end| *end <= limits::FRONT)?;
        let front = self.front.get_or_init(|| {
            let mut front = zeros(limits::FRONT.min(usize::try_from(self.len()).unwrap_or(limits::FRONT))).ok()?;
            self.source.read_at(0, &mut front, self.wait).ok().map(|()| front)
        });
        front.as_ref()?.get(start..end)
    }

    /// Returns whether any bytes were refused. What was made without them may differ from what would be made with them.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Relaxed)
    }

    fn refused(&self, error: SourceError) -> SourceError {
        self.has_refused.store(true, Relaxed);
        error
    }
}

impl Source for Bound {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn admit(&self, bytes: u64) -> Result<(), SourceError> {
        match &self.left {
            Some(left) if bytes > left.load(Relaxed) => Err(self.refused(SourceError::WouldBlock)),
            _ => Ok(()),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        if let Some(left) = &self.left {
            let bytes = buf.len() as u64;
            let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
            taken.map_err(|_| self.refused(SourceError::WouldBlock))?;
            if let Some(bytes) = self.in_front(offset, buf.len()) {
                buf.copy_from_slice(bytes);
                return Ok(());
            }
        }
        self.source.read_at(offset, buf, wait.min(self.wait)).map_err(|error| self.refused(error))
    }

    fn check_unchanged(&self, wait: Wait) -> Result<(), SourceError> {
        self.source.check_unchanged(wait.min(self.wait))
    }

    fn shared(&self, range: &Range<u64>) -> Option<(SharedBytes, Range<usize>)> {
        self.source.shared(range)
    }

    /// A short range is copied, because mapping it and checking that it is in memory costs more.
    fn mapped(&self, range: Range<u64>, wait: Wait) -> Option<Mapped> {
        let is_long = range.end.saturating_sub(range.start) > limits::QUICK;
        if is_long { self.source.mapped(range, wait.min(self.wait)) } else { None }
    }

    fn note_checked(&self, range: &Range<u64>) {
        self.source.note_checked(range);
    }
}

/// The bytes of one range of a source, already read.
pub(crate) struct Loaded {
    start: u64,
    bytes: Vec<u8>,
    len: u64,
}

impl Loaded {
    /// Reads a range that needs no waiting.
    ///
    /// # Errors
    /// As [`Source::read_at`].
    pub(crate) fn new(source: &dyn Source, range: Range<u64>) -> Result<Self, SourceError> {
        let len = source.len();
        check_range(&range, len)?;
        let mut bytes = zeros(to_usize(range.end - range.start))?;
        source.read_at(range.start, &mut bytes, Wait::Never)?;
        Ok(Self { start: range.start, bytes, len })
    }
}

impl Source for Loaded {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _: Wait) -> Result<(), SourceError> {
        let from = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| self.bytes.get(from..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(SourceError::WouldBlock)?);
        Ok(())
    }
}

/// Reserves memory for parsers, for everything that a file makes cheap to ask for.
pub trait Memory {
    /// Reserves memory until the container is open. May wait until others release theirs.
    ///
    /// # Errors
    /// `ENOMEM` for more than is possible.
    fn reserve(&self, bytes: u64) -> Result<(), SourceError>;

    /// Keeps what was parsed to see what a file is, for the opening that usually follows. It takes no more than what was
    /// reserved. By default it is dropped.
    fn keep_parsed(&self, _parsed: Box<dyn Any + Send>) {}
}

/// Memory without a budget, for looking into one file at a time.
#[derive(Debug, Clone, Copy)]
pub struct Unlimited;

impl Memory for Unlimited {
    fn reserve(&self, _: u64) -> Result<(), SourceError> {
        Ok(())
    }
}

/// Checks that a range lies in `len` bytes.
///
/// # Errors
/// `OutOfRange`.
pub(crate) fn check_range(range: &Range<u64>, len: u64) -> Result<(), SourceError> {
    let &Range { start, end } = range;
    if start <= end && end <= len { Ok(()) } else { Err(SourceError::OutOfRange { start, end, len }) }
}

/// Checks that there is room for `count` small allocations of `each` bytes, and some to spare. Small allocations cannot
/// be refused: they end the process. So this comes before everything that a file makes cheap to ask for.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn check_room(count: u64, each: usize) -> io::Result<()> {
    let length = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(each);
    let mut bytes = Vec::<u8>::new();
    match length < limits::PIECE || bytes.try_reserve_exact(length.saturating_add(limits::HEADROOM)).is_ok() {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}

/// Returns zeroed memory, or an error if an ordinary `vec!` would end the process.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn zeros(length: usize) -> io::Result<Vec<u8>> {
    check_room(length as u64, 1)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// Returns a size or a place as a `usize`, which has as many bits on all machines that shardfs runs on (lib.rs).
pub(crate) const fn to_usize(number: u64) -> usize {
    number as usize
}

/// A container in memory: for tests, fuzzing, and bytes that were never in a file.
impl Source for Vec<u8> {
    fn len(&self) -> u64 {
        Self::len(self) as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _: Wait) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        check_range(&(offset..end), Source::len(self))?;
        buf.copy_from_slice(&self[to_usize(offset)..to_usize(end)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers what was announced.
    struct Announced(parking_lot::Mutex<Vec<Range<u64>>>);

    impl Source for Announced {
        fn len(&self) -> u64 {
            u64::MAX
        }

        fn read_at(&self, _: u64, _: &mut [u8], _: Wait) -> Result<(), SourceError> {
            Err(SourceError::Changed)
        }

        fn prefetch(&self, ranges: &[Range<u64>]) {
            self.0.lock().extend_from_slice(ranges);
        }
    }

    #[test]
    fn neighbours_are_asked_for_together() {
        let source = Announced(parking_lot::Mutex::default());
        let far = 10 << 20;
        let steps = (0..10).map(|at| far + at * NEIGHBOURS..far + at * NEIGHBOURS + 9);
        let parts = [500..600, 0..100, 90..95, u64::MAX - 1..u64::MAX].into_iter().chain(steps);
        (&source as &dyn Source).prefetch_small(parts.collect());
        let ends = far + 8 * NEIGHBOURS;
        let expected = [0..600, far..ends - NEIGHBOURS + 9, ends..ends + NEIGHBOURS + 9, u64::MAX - 1..u64::MAX];
        assert_eq!(*source.0.lock(), expected);
    }

    #[test]
    fn memory_source_refuses_ranges_outside() {
        let source: &dyn Source = &vec![1u8, 2, 3];
        assert_eq!(source.read(1..3).unwrap(), [2, 3]);
        assert!(matches!(source.read(1..4), Err(SourceError::OutOfRange { .. })));
        assert!(matches!(source.read(u64::MAX - 1..u64::MAX), Err(SourceError::OutOfRange { .. })));
    }
}
