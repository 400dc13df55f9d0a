//! Virtual files: lists of extents, whose size is known without decoding and of which any range can be read.
//!
//! An extent is bytes in memory, a range of the container, a range of a block, or bytes that an implementation of
//! [`Rendered`] makes for each read. PNG files are rendered here because several formats have raw pixels. Files that
//! only one format has are rendered in that format's folder below `tree`.

mod array;
pub mod attributes;
pub mod grid;
pub mod json;
mod memory;
pub mod npy;
pub mod parquet;
pub(crate) mod pieces;
pub mod png;
mod scratch;
mod strided;
pub mod video;

pub use array::{Array, Slice};
pub use memory::Layout;
pub use scratch::Scratch;
pub use strided::Strided;

use std::{borrow::Cow, ops::Range, sync::Arc};

use crate::{
    cache::{BlockError, Buffer, Cache, FileSlot, Key, KeyedBlock, Lent, Piece, Tag},
    codec::Codec,
    format::Block,
    limits,
    source::{Bound, Leased, Mapped, SharedBytes, Source, SourceError, Wait, zeros},
    store::is_would_block,
};

/// One virtual file.
#[derive(Debug, Clone, Default)]
pub struct View {
    extents: Vec<Extent>,
    size: u64,
}

/// A run of a virtual file's bytes.
#[derive(Debug, Clone)]
struct Extent {
    start: u64,
    length: u64,
    data: Data,
    /// Every byte that is not 0 is shown as 1, as numpy's bool requires.
    as_bool: bool,
}

/// Where the bytes of an extent come from.
#[derive(Debug, Clone)]
pub enum Data {
    /// The bytes themselves.
    Inline(Arc<Buffer>),
    /// A range of the container, as stored.
    Stored(Range<u64>),
    /// A range of a decoded block.
    Block(BlockRef, Range<u64>),
    /// A range of the block with a number. The block's place is looked up when it is read.
    Sought(Arc<dyn Blocks>, u32, Range<u64>),
    /// Bytes that are rendered for the range that is read.
    Rendered(Arc<dyn Rendered>),
}

/// Bytes that are neither in memory nor a range of the container or of a block: values in another order or encoding, or
/// a file with a part for each of a million blocks.
///
/// Ranges are in bytes, from the start of the extent. They are never empty and end inside the extent.
///
/// Reads through the [`ReadContext`] fail by themselves if they would take long and the caller does not wait. An
/// implementation that does much work itself must call `ReadContext::check_quick` first.
pub trait Rendered: std::fmt::Debug + Send + Sync {
    /// Returns whether rendering costs no more than copying bytes of the container, without decoding anything.
    fn is_copy(&self) -> bool {
        false
    }

    /// Returns the bytes of a range without a copy, if they are contiguous somewhere.
    ///
    /// # Errors
    /// [`Fault`] when a block that the range touches cannot be served.
    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        let _ = (reader, part);
        Ok(None)
    }

    /// Writes the bytes of a range to `out`, whose length is that of the range.
    ///
    /// # Errors
    /// As [`Self::borrow`].
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault>;

    /// Does the same as [`Self::fill`] for readers that keep what they read, so that the cache need not.
    ///
    /// # Errors
    /// As [`Self::borrow`].
    fn fill_kept(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.fill(reader, part, out)
    }

    /// Writes elements of an array to `out`, which has exactly their size, in C order. There is a slice for each axis.
    /// Returns `None` if the implementation has no better way than reading ranges.
    ///
    /// # Errors
    /// As [`Self::borrow`].
    fn fill_slices(&self, reader: &ReadContext, slices: &[Slice], out: &mut [u8]) -> Option<Result<(), Fault>> {
        let _ = (reader, slices, out);
        None
    }
}

/// Blocks that the container's front matter does not describe completely: a header before each block states where its
/// data begin. Listings do not need that.
pub trait Blocks: std::fmt::Debug + Send + Sync {
    /// Returns the block with a number.
    ///
    /// # Errors
    /// [`Fault`] if the header before it cannot be read, or contradicts the front matter.
    fn block(&self, reader: &ReadContext, number: u32) -> Result<BlockRef, Fault>;
}

/// A block with its number in the container.
#[derive(Debug, Clone)]
pub struct BlockRef {
    /// Index of the block in the container.
    pub number: u32,
    /// Where and how the block is stored.
    pub block: Block,
    /// Why the block can never be served, if the front matter says so.
    pub error: Option<Arc<str>>,
}

/// Bytes of a read, copied as little as possible.
#[derive(Clone)]
pub enum Bytes {
    /// Assembled for this read.
    Owned(Scratch),
    /// A part of a decoded piece.
    Decoded(Arc<Buffer>, Range<usize>),
    /// A part of the mapped file. Only system calls may read it, never this process.
    Mapped(Mapped),
    /// A part of memory that the source holds.
    Shared(SharedBytes, Range<usize>),
    /// A part of a file in memory.
    Memory(Arc<FileSlot>, Range<usize>),
}

impl From<Scratch> for Bytes {
    fn from(bytes: Scratch) -> Self {
        Self::Owned(bytes)
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Scratch::from(bytes).into()
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.as_syscall_buf().len())
    }
}

impl Bytes {
    /// Returns the bytes as the buffer of a system call.
    pub fn as_syscall_buf(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Decoded(bytes, range) => &bytes[range.clone()],
            Self::Mapped(mapped) => mapped.as_syscall_buf(),
            Self::Shared(bytes, range) => &(**bytes).as_ref()[range.clone()],
            // `Self::in_memory` makes only ranges inside the map of the file.
            Self::Memory(file, range) => file.memory().bytes(range.clone()).unwrap_or_default(),
        }
    }
}

/// Why a range could not be read.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The block that failed; `None` for bytes that belong to none.
    pub block: Option<u32>,
    /// Offset of the failure in the container, in bytes. 0 also for bytes that belong to no block if it is not known.
    pub offset: u64,
    /// What was wrong.
    pub error: Arc<BlockError>,
}

/// A failure of bytes that belong to no block.
impl From<Arc<BlockError>> for Fault {
    fn from(error: Arc<BlockError>) -> Self {
        Self { block: None, offset: 0, error }
    }
}

impl From<BlockError> for Fault {
    fn from(error: BlockError) -> Self {
        Arc::new(error).into()
    }
}

impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Self {
        BlockError::from(error).into()
    }
}

impl Fault {
    /// Returns a failure with a reason that belongs to no block.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        BlockError::Refused(reason.into()).into()
    }

    /// Returns the offset of the failure in the container, if it is known.
    pub(crate) fn place(&self) -> Option<u64> {
        (self.block.is_some() || self.offset > 0).then_some(self.offset)
    }

    /// Returns what the caller would have to wait for, if that is the only reason of the failure.
    pub fn would_block_for(&self) -> Option<Wait> {
        match &*self.error {
            BlockError::WouldBlock => Some(Wait::Always),
            BlockError::Source(SourceError::WouldBlock) => Some(Wait::Disk),
            // Memory that others must release first (`WorkingMemory`).
            BlockError::Source(SourceError::Io(error)) if is_would_block(error) => Some(Wait::Always),
            _ => None,
        }
    }
}

/// What reading needs: the source, the cache of decoded blocks, and what the reader may wait for.
#[derive(Clone)]
pub struct ReadContext {
    /// The container's bytes.
    pub source: Arc<dyn Source>,
    /// Decoded blocks of all containers.
    pub cache: Arc<Cache>,
    /// The container's number in the cache.
    pub container: u64,
    wait: Wait,
    /// The same source for operations that may wait.
    whole: Arc<dyn Source>,
}

/// Largest size of a file in bytes: the system's sizes are signed.
const LONGEST: u64 = i64::MAX as u64;

/// Replaces extents beyond [`LONGEST`]. Reading it fails.
#[derive(Debug)]
struct TooLong;

impl Rendered for TooLong {
    fn fill(&self, _: &ReadContext, _: Range<u64>, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::refused("the file would have more than 2^63 bytes"))
    }
}

impl View {
    /// Returns a file of the given bytes.
    pub fn inline(bytes: impl Into<Vec<u8>>) -> Self {
        Self::shared(Arc::new(Buffer::from(bytes.into())))
    }

    /// Returns a file of bytes that others may share.
    pub fn shared(bytes: Arc<Buffer>) -> Self {
        let length = bytes.len() as u64;
        Self::default().with(length, Data::Inline(bytes))
    }

    /// Returns a file that is a range of the container.
    pub fn stored(range: Range<u64>) -> Self {
        Self::default().with(range.end.saturating_sub(range.start), Data::Stored(range))
    }

    /// Returns the file with one more extent of rendered bytes at its end.
    #[must_use]
    pub fn with_rendered(self, length: u64, rendered: impl Rendered + 'static) -> Self {
        self.with(length, Data::Rendered(Arc::new(rendered)))
    }

    /// Returns the file with one more extent at its end.
    #[must_use]
    pub fn with(mut self, length: u64, data: Data) -> Self {
        let room = LONGEST.saturating_sub(self.size);
        let (length, data) = if length > room { (room, Data::Rendered(Arc::new(TooLong))) } else { (length, data) };
        if length > 0 {
            self.extents.push(Extent { start: self.size, length, data, as_bool: false });
            self.size = self.size.saturating_add(length);
        }
        self
    }

    /// Returns the file with another one appended.
    #[must_use]
    pub fn followed_by(mut self, other: Self) -> Self {
        for Extent { length, data, as_bool, .. } in other.extents {
            let extents = self.extents.len();
            self = self.with(length, data);
            self.extents[extents..].iter_mut().for_each(|extent| extent.as_bool = as_bool);
        }
        self
    }

    /// Returns the file with the bytes of its last extent shown as numpy's bool.
    #[must_use]
    pub fn into_bool(mut self) -> Self {
        if let Some(extent) = self.extents.last_mut() {
            extent.as_bool = true;
        }
        self
    }

    /// Returns the file with the places of all its blocks looked up, for callers that choose a way to read it.
    ///
    /// # Errors
    /// As [`Blocks::block`].
    pub fn located(mut self, reader: &ReadContext) -> Result<Self, Fault> {
        for extent in &mut self.extents {
            extent.data = extent.data.located(reader)?.into_owned();
        }
        Ok(self)
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns up to `length` bytes from `offset` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Fault`] when any block that the range touches cannot be served.
    pub fn read_at(&self, reader: &ReadContext, offset: u64, length: u64) -> Result<Bytes, Fault> {
        let length = length.min(self.size.saturating_sub(offset));
        let mut touched = self.touched(offset, length);
        if let (Some((extent, part)), None) = (touched.next(), touched.next())
            && !extent.as_bool
            && let Some(bytes) = reader.borrow(&extent.data, part)?
        {
            return Ok(bytes);
        }
        // Bounded by the length of the request, which the kernel and `cat` keep small.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut out = Scratch::zeroed(length).map_err(SourceError::from)?;
        self.fill_at(reader, offset, &mut out)?;
        Ok(out.into())
    }

    /// Does the same as [`Self::read_at`], but returns a copy, which this process may read.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn copy_at(&self, reader: &ReadContext, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
        let length = length.min(self.size.saturating_sub(offset));
        // Bounded by the length of the request, which the kernel and `cat` keep small.
        let mut out = zeros(usize::try_from(length).unwrap_or(usize::MAX)).map_err(SourceError::from)?;
        self.fill_at(reader, offset, &mut out)?;
        Ok(out)
    }

    /// Fills `out` with the bytes from `offset` on. Bytes of `out` beyond the end of the file are left unchanged.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn fill_at(&self, reader: &ReadContext, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.fill_by(offset, out, |data, part, here| reader.fill(data, part, here))
    }

    /// Does the same as [`Self::fill_at`] for readers that keep what they read. A block that lies completely in the
    /// range is decoded straight into `out` and is not kept in the cache, nor are chunks of an array that is read whole.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn fill_kept(&self, reader: &ReadContext, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.fill_by(offset, out, |data, part, here| match &*data.located(reader)? {
            Data::Block(block, range) if *range == (0..block.block.size) && part == *range => {
                reader.read_whole(block, here)
            }
            Data::Rendered(rendered) => rendered.fill_kept(reader, part, here),
            data => reader.fill(data, part, here),
        })
    }

    /// Fills `out` with the bytes from `offset` on. `fill` writes a part of an extent.
    fn fill_by(
        &self,
        offset: u64,
        mut out: &mut [u8],
        fill: impl Fn(&Data, Range<u64>, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for (extent, part) in self.touched(offset, out.len() as u64) {
            let (here, after) = out.split_at_mut((part.end - part.start) as usize);
            fill(&extent.data, part, here)?;
            if extent.as_bool {
                here.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            out = after;
        }
        Ok(())
    }

    /// Returns the bytes from `offset` on in place, under a lease. `None` unless they are part of one uncompressed
    /// block with a correct checksum, in a file that can be leased.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn leased(&self, reader: &ReadContext, offset: u64, length: u64) -> Result<Option<Leased>, Fault> {
        let mut touched = self.touched(offset, length);
        let Some((extent, part)) =
            touched.next().filter(|(extent, part)| !extent.as_bool && part.end - part.start == length)
        else {
            return Ok(None);
        };
        match &*extent.data.located(reader)? {
            Data::Stored(range) => Ok(reader.source.leased(range.start + part.start..range.start + part.end).ok()),
            Data::Block(block, range) if block.block.codec == Codec::None => {
                // The lease comes before the checksum is computed: from then on nothing changes.
                let start = block.block.offset + range.start;
                let leased = reader.source.leased(start + part.start..start + part.end);
                reader.check(block, &(0..block.block.size))?;
                Ok(leased.ok())
            }
            _ => Ok(None),
        }
    }

    /// Announces that a range will be read soon, so that its stored bytes can be fetched meanwhile.
    pub(crate) fn prefetch(&self, reader: &ReadContext, range: Range<u64>) {
        let touched = self.touched(range.start, range.end.saturating_sub(range.start));
        let stored = touched.filter_map(|(extent, part)| match &extent.data {
            Data::Stored(stored) => Some(stored.start + part.start..stored.start + part.end),
            Data::Block(BlockRef { block, .. }, range) if block.codec == Codec::None => {
                let start = block.offset.checked_add(range.start)?;
                Some(start.checked_add(part.start)?..start.checked_add(part.end)?)
            }
            Data::Block(block, _) => Some(block.block.stored()),
            Data::Inline(_) | Data::Rendered(_) | Data::Sought(..) => None,
        });
        reader.source.prefetch(&stored.collect::<Vec<_>>());
    }

    /// Returns the data of the file's only extent, and whether its bytes are shown as bool; `None` if it has several.
    fn one_extent(&self) -> Option<(&Data, bool)> {
        match self.extents.as_slice() {
            [extent] => Some((&extent.data, extent.as_bool)),
            _ => None,
        }
    }

    /// Returns the extents that a range touches, each with the touched part, counted from the start of the extent.
    fn touched(&self, offset: u64, length: u64) -> impl Iterator<Item = (&Extent, Range<u64>)> {
        let end = offset.saturating_add(length).min(self.size);
        let first = match offset < end {
            true => self.extents.partition_point(|extent| extent.start + extent.length <= offset),
            false => self.extents.len(),
        };
        self.extents[first..].iter().take_while(move |extent| extent.start < end).map(move |extent| {
            let from = offset.max(extent.start) - extent.start;
            (extent, from..end.min(extent.start + extent.length) - extent.start)
        })
    }
}

impl Data {
    /// Returns the same with the place of its block looked up.
    fn located(&self, reader: &ReadContext) -> Result<Cow<'_, Self>, Fault> {
        Ok(match self {
            Self::Sought(blocks, number, range) => {
                Cow::Owned(Self::Block(blocks.block(reader, *number)?, range.clone()))
            }
            other => Cow::Borrowed(other),
        })
    }
}

impl BlockRef {
    /// Fails if the front matter says that the block can never be served.
    fn check(&self) -> Result<(), Fault> {
        match &self.error {
            Some(reason) => Err(self.fault(Arc::new(BlockError::Refused(reason.to_string())))),
            None => Ok(()),
        }
    }

    /// Returns this error as a failure of this block.
    pub(crate) fn fault(&self, error: Arc<BlockError>) -> Fault {
        Fault { block: Some(self.number), offset: self.block.offset, error }
    }
}

impl ReadContext {
    /// Returns a context that may wait for everything. `container` must differ for each version of each file.
    pub fn new(source: Arc<dyn Source>, cache: Arc<Cache>, container: u64) -> Self {
        Self { whole: source.clone(), source, cache, container, wait: Wait::Always }
    }

    /// Returns the same context for an operation that waits for no more than `wait`.
    #[must_use]
    pub fn with_wait(&self, wait: Wait) -> Self {
        let source = match wait {
            Wait::Never => Arc::new(Bound::new(self.whole.clone(), wait, None)),
            Wait::Disk | Wait::Always => self.whole.clone(),
        };
        Self { source, wait, ..self.clone() }
    }

    /// Returns the same context for the bytes of another file.
    #[must_use]
    pub(crate) fn with_source(&self, source: Arc<dyn Source>) -> Self {
        Self { whole: source, ..self.clone() }.with_wait(self.wait)
    }

    /// Returns the same context for opening the container immediately: it waits for nothing and reads few bytes. The
    /// returned source tells whether these were enough.
    #[must_use]
    pub(crate) fn for_quick_open(&self) -> (Self, Arc<Bound>) {
        let source = Arc::new(Bound::new(self.whole.clone(), Wait::Never, Some(limits::QUICK_OPEN)));
        (Self { source: source.clone(), wait: Wait::Never, ..self.clone() }, source)
    }

    /// Returns what may be waited for.
    pub(crate) fn wait(&self) -> Wait {
        self.wait
    }

    /// Must be called before many reads of the container.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Never`].
    pub(crate) fn may_read(&self) -> Result<(), Fault> {
        match self.wait {
            Wait::Never => Err(SourceError::WouldBlock.into()),
            Wait::Disk | Wait::Always => Ok(()),
        }
    }

    /// Must be called before decoding, computing or waiting for something that is worth keeping.
    ///
    /// # Errors
    /// `WouldBlock`, except with [`Wait::Always`].
    pub(crate) fn may_work(&self) -> Result<(), Fault> {
        self.check_quick(false)
    }

    /// Must be called before work that may take long, by callers who know whether it does.
    ///
    /// # Errors
    /// `WouldBlock` for work that is not quick, except with [`Wait::Always`].
    pub(crate) fn check_quick(&self, is_quick: bool) -> Result<(), Fault> {
        match is_quick || self.wait == Wait::Always {
            true => Ok(()),
            false => Err(BlockError::WouldBlock.into()),
        }
    }

    fn key(&self, block: &BlockRef) -> Key {
        Key::new(self.container, Tag::Block, block.number.into(), 0)
    }

    /// Returns a block of the container, to ask the cache for it.
    pub(crate) fn keyed<'a>(&'a self, key: Key, block: &'a Block) -> KeyedBlock<'a> {
        KeyedBlock { key, block, source: &self.source }
    }

    /// Returns the bytes without a copy, if that is possible.
    fn borrow(&self, data: &Data, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        match data {
            Data::Stored(range) => {
                Ok(self.source.mapped(range.start + part.start..range.start + part.end, self.wait).map(Bytes::Mapped))
            }
            Data::Block(block, range) => {
                block.check()?;
                let range = range.start + part.start..range.start + part.end;
                self.borrow_range(self.key(block), &block.block, range).map_err(|error| block.fault(error))
            }
            Data::Inline(bytes) => Ok(Some(Bytes::Decoded(bytes.clone(), part.start as usize..part.end as usize))),
            Data::Sought(..) => self.borrow(&*data.located(self)?, part),
            Data::Rendered(rendered) => rendered.borrow(self, part),
        }
    }

    /// Fills `out` with a part of an extent.
    pub(crate) fn fill(&self, data: &Data, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        match data {
            Data::Inline(bytes) => {
                out.copy_from_slice(&bytes[part.start as usize..part.end as usize]);
                Ok(())
            }
            Data::Stored(range) => {
                let length = range.end - range.start;
                // A small array is almost always read whole, so a remote store gets one request for all of it.
                if self.wait == Wait::Always && length <= limits::PIECE as u64 && (out.len() as u64) < length {
                    self.source.prefetch(std::slice::from_ref(range));
                }
                self.fill_stored(None, range.start + part.start, out)
            }
            Data::Block(block, range) => self.fill_block(block, range.start + part.start, out),
            Data::Sought(..) => self.fill(&*data.located(self)?, part, out),
            Data::Rendered(rendered) => rendered.fill(self, part, out),
        }
    }

    /// Copies from a block, decoded or stored.
    pub(crate) fn fill_block(&self, block: &BlockRef, at: u64, out: &mut [u8]) -> Result<(), Fault> {
        block.check()?;
        if block.block.codec == Codec::None {
            if let Some(read) = self.cache.read_checked(self.keyed(self.key(block), &block.block), at, out, self.wait) {
                return read.map_err(|error| block.fault(error));
            }
            self.check(block, &(at..at + out.len() as u64))?;
            self.fill_stored(Some(block), block.block.offset + at, out)?;
            self.cache.note_read(self.key(block), &block.block, at, out);
            return Ok(());
        }
        self.fill_range(self.key(block), &block.block, at, out).map_err(|error| block.fault(error))
    }

    /// Copies bytes of the container that belong to `block`.
    pub(crate) fn fill_stored(&self, block: Option<&BlockRef>, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.source.fill(offset, out).map_err(|error: SourceError| Fault {
            block: block.map(|block| block.number),
            offset,
            error: Arc::new(error.into()),
        })
    }

    /// Fails if an uncompressed block must not be served for this range, because its checksum is wrong. Computes the
    /// checksum if it is needed now.
    pub(crate) fn check(&self, block: &BlockRef, range: &Range<u64>) -> Result<(), Fault> {
        block.check()?;
        self.check_range(self.key(block), &block.block, range).map_err(|error| block.fault(error))
    }

    /// Checks that a chunk that is read range by range may be served.
    pub(crate) fn check_chunk(&self, key: Key, block: &Block) -> Result<(), Arc<BlockError>> {
        if block.codec == Codec::None { self.check_range(key, block, &(0..block.size)) } else { Ok(()) }
    }

    fn check_range(&self, key: Key, block: &Block, range: &Range<u64>) -> Result<(), Arc<BlockError>> {
        self.cache.check(self.keyed(key, block), range, self.wait)
    }

    /// Returns a range of a block without a copy, if that is possible.
    ///
    /// # Errors
    /// The errors of the block.
    pub(crate) fn borrow_range(
        &self,
        key: Key,
        block: &Block,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, Arc<BlockError>> {
        if range.end > block.size || range.is_empty() {
            return Ok(None);
        }
        if block.codec == Codec::None {
            let place = block.offset + range.start..block.offset + range.end;
            let shared = self.source.shared(&place);
            // Copying a short range also computes its checksum in the same pass.
            if shared.is_none() && self.wait == Wait::Never && range.end - range.start <= limits::QUICK {
                return Ok(None);
            }
            self.check_range(key, block, &range)?;
            if let Some((bytes, part)) = shared {
                let read = (*bytes).as_ref().get(part.clone()).unwrap_or_default();
                self.cache.note_read(key, block, range.start, read);
                return Ok(Some(Bytes::Shared(bytes, part)));
            }
            return Ok(self.source.mapped(place, self.wait).map(Bytes::Mapped));
        }
        let lent = self.lend(key, block, &range)?;
        let (from, to) = ((range.start - lent.piece.start) as usize, (range.end - lent.piece.start) as usize);
        if to > lent.piece.bytes.len() {
            return Ok(None);
        }
        self.cache.add_served(&lent, range.end - range.start);
        Ok(Some(Bytes::Decoded(lent.piece.bytes, from..to)))
    }

    /// Copies decoded bytes of a block, piece by piece. Copies stored bytes if the block is not compressed and its
    /// checksum was checked.
    ///
    /// # Errors
    /// The errors of the block.
    pub(crate) fn fill_range(
        &self,
        key: Key,
        block: &Block,
        mut at: u64,
        out: &mut [u8],
    ) -> Result<(), Arc<BlockError>> {
        if block.codec == Codec::None {
            self.source.fill(block.offset + at, out).map_err(|error| Arc::new(error.into()))?;
            self.cache.note_read(key, block, at, out);
            return Ok(());
        }
        let mut rest = out;
        while !rest.is_empty() {
            let lent = self.lend(key, block, &(at..at + rest.len() as u64))?;
            let from = &lent.piece.bytes[(at - lent.piece.start) as usize..];
            let length = from.len().min(rest.len());
            let (here, after) = rest.split_at_mut(length);
            here.copy_from_slice(&from[..length]);
            at += length as u64;
            rest = after;
            self.cache.add_served(&lent, length as u64);
        }
        Ok(())
    }

    /// Does the same as [`Cache::piece`].
    ///
    /// # Errors
    /// The errors of the block.
    pub(crate) fn piece(&self, key: Key, block: &Block, range: &Range<u64>) -> Result<Piece, Arc<BlockError>> {
        self.lend(key, block, range).map(|lent| lent.piece)
    }

    /// Fills `out` with all of a block, so that the cache need not keep it.
    fn read_whole(&self, block: &BlockRef, out: &mut [u8]) -> Result<(), Fault> {
        block.check()?;
        let done = self.cache.read_whole(self.keyed(self.key(block), &block.block), out);
        done.map_err(|error| block.fault(error))
    }

    fn lend(&self, key: Key, block: &Block, range: &Range<u64>) -> Result<Lent, Arc<BlockError>> {
        self.cache.lend(self.keyed(key, block), range, self.wait)
    }

    /// Does the same as [`Cache::get_or_insert_with`].
    ///
    /// # Errors
    /// [`BlockError`].
    pub(crate) fn get_or_insert_with(
        &self,
        key: Key,
        make: impl FnMut() -> Result<Vec<Arc<Buffer>>, Arc<BlockError>>,
    ) -> Result<Vec<Arc<Buffer>>, Arc<BlockError>> {
        self.cache.get_or_insert_with(key, self.wait, make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Verify;

    #[test]
    fn any_range_is_the_slice_of_the_whole() {
        let source: Arc<dyn Source> = Arc::new((0..=255u8).collect::<Vec<u8>>());
        let reader = ReadContext::new(source, Cache::new(1 << 20, Verify::Lazy), 0);
        let block = BlockRef {
            number: 0,
            block: Block { offset: 100, stored_size: 40, size: 40, codec: Codec::None, crc: None },
            error: None,
        };
        let view = View::inline(*b"header")
            .with(10, Data::Stored(0..10))
            .into_bool()
            .with(40, Data::Block(block, 0..40))
            .with(0, Data::Inline(Arc::default()));
        assert_eq!(view.size(), 56);
        let whole = view.read_at(&reader, 0, 1000).unwrap().as_syscall_buf().to_vec();
        assert_eq!(&whole[..17], b"header\x00\x01\x01\x01\x01\x01\x01\x01\x01\x01\x64");
        for offset in 0..60u64 {
            for length in 0..60u64 {
                let expected: Vec<u8> = whole.iter().skip(offset as usize).take(length as usize).copied().collect();
                assert_eq!(view.read_at(&reader, offset, length).unwrap().as_syscall_buf(), expected);
            }
        }
    }

    #[test]
    fn a_file_is_never_longer_than_its_size_can_say() {
        let reader = ReadContext::new(Arc::new(vec![7; 8]), Cache::new(1 << 20, Verify::Lazy), 0);
        for length in [1 << 63, u64::MAX - 4, u64::MAX] {
            let data = View::default().with(length, Data::Stored(0..8));
            for view in [
                View::inline(*b"header").followed_by(data.clone()),
                data.clone(),
                data.followed_by(View::inline(*b"x")),
            ] {
                assert_eq!(view.size(), i64::MAX as u64);
                let fault = view.read_at(&reader, view.size() - 1, 1).unwrap_err();
                assert_eq!(fault.error.to_string(), "the file would have more than 2^63 bytes");
            }
        }
        let view = View::inline(*b"header").with(u64::MAX, Data::Stored(0..8));
        assert_eq!(view.copy_at(&reader, 0, 6).unwrap(), b"header");
        assert!(view.copy_at(&reader, 0, 7).is_err());
    }
}
