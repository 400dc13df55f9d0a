//! Memory of parsers and trees that grows with a file's contents. It is reserved from the cache's budget piece by
//! piece, because the total is not known in advance.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    fmt, io,
    sync::Arc,
};

use crate::{
    cache::{Alone, BlockError, Cache, Key, Reservation, TooMuch, refused_memory},
    format::FormatError,
    held::Held,
    source::{Memory, SourceError, Wait},
    view::{Fault, ReadContext},
};

/// Least bytes that are reserved at once.
const STEP: u64 = 64 << 10;

/// What was parsed to see what a file is, with the memory that opening it takes. Opening the same state then need not
/// parse it again.
pub struct Probed {
    parsed: Box<dyn Any + Send>,
    room: Reservation,
}

impl fmt::Debug for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probed").field("room", &self.room).finish_non_exhaustive()
    }
}

/// Memory reserved for one piece of work, and released when it ends.
pub struct WorkingMemory<'a> {
    cache: &'a Cache,
    reserved: RefCell<Option<Reservation>>,
    /// Reserved bytes that are not used yet.
    spare: Cell<u64>,
    /// In debug builds, finds requests of other work on the same thread that would wait for this memory. `None` once it
    /// is held.
    alone: RefCell<Option<Alone>>,
    /// What is held, beside which everything else of this work must fit.
    held: RefCell<Held>,
    /// Whether it waits for others to release memory.
    may_wait: bool,
    /// What a probe parsed, until it is used.
    parsed: RefCell<Option<Box<dyn Any + Send>>>,
}

impl<'a> WorkingMemory<'a> {
    /// Returns memory for work during which this thread reserves nothing else. Reserves nothing yet.
    pub fn new(cache: &'a Cache) -> Self {
        let (reserved, spare) = (RefCell::default(), Cell::new(0));
        let alone = RefCell::new(Some(Alone::default()));
        Self { cache, reserved, spare, alone, held: RefCell::default(), may_wait: true, parsed: RefCell::default() }
    }

    /// Does the same as [`Self::new`] for a caller that does not wait: missing memory is `WouldBlock`.
    pub fn at_once(cache: &'a Cache) -> Self {
        Self { may_wait: false, ..Self::new(cache) }
    }

    /// Does the same as [`Self::new`] for a reader. If the reader does not wait, missing memory is `WouldBlock`.
    pub fn of_reader(reader: &'a ReadContext) -> Self {
        Self { may_wait: reader.wait() == Wait::Always, ..Self::new(&reader.cache) }
    }

    /// Returns memory for work that reads blocks, columns or other containers, which reserve memory for themselves.
    pub fn held(cache: &'a Cache) -> Self {
        let memory = Self::new(cache);
        memory.hold();
        memory
    }

    /// Marks the memory as held: from now on, other work that reserves memory goes on while this memory is kept.
    pub fn hold(&self) {
        if self.alone.take().is_none() {
            return;
        }
        if let Some(reserved) = &mut *self.reserved.borrow_mut() {
            reserved.hold();
            self.held.borrow_mut().add(reserved.bytes());
        }
    }

    fn more(&self, bytes: u64, holding: u64) -> Result<Reservation, SourceError> {
        match self.may_wait {
            true => self.cache.reserve_more(bytes, holding).map_err(no_memory),
            false => self.cache.try_reserve(bytes).ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock).into()),
        }
    }

    /// Returns what a probe parsed within this memory, with what was reserved for it.
    pub fn into_probed(self) -> Option<Probed> {
        let parsed = self.parsed.take()?;
        self.alone.take();
        let mut room = self.reserved.take().unwrap_or_else(|| self.cache.hold(0));
        room.shrink_to(room.bytes() - self.spare.get());
        room.hold();
        Some(Probed { parsed, room })
    }

    /// Goes on with what a probe parsed. Its memory is held.
    #[must_use]
    pub(super) fn after(self, probed: Option<Probed>) -> Self {
        if let Some(Probed { parsed, room }) = probed {
            self.hold();
            self.held.borrow_mut().add(room.bytes());
            *self.reserved.borrow_mut() = Some(room);
            *self.parsed.borrow_mut() = Some(parsed);
        }
        self
    }

    /// Returns what a probe parsed, or else what `parse` does.
    ///
    /// # Errors
    /// Those of `parse`.
    pub(super) fn parsed<T: 'static, E>(&self, parse: impl FnOnce(&dyn Memory) -> Result<T, E>) -> Result<T, E> {
        match self.parsed.take().and_then(|parsed| parsed.downcast().ok()) {
            Some(parsed) => Ok(*parsed),
            None => parse(self),
        }
    }

    /// Keeps the bytes that the result takes, for any time, and releases the rest.
    ///
    /// # Errors
    /// If that is more than was reserved, and there is no room.
    pub fn keep(self, bytes: u64) -> Result<Reservation, SourceError> {
        self.alone.take();
        let reserved = self.reserved.take();
        let holding = reserved.as_ref().map_or(0, Reservation::bytes);
        Ok(match reserved {
            Some(mut reserved) if holding >= bytes => {
                // Released first, because others may wait for the rest.
                reserved.shrink_to(bytes);
                reserved.hold();
                reserved
            }
            reserved => {
                let mut more = self.more(bytes - holding, holding)?;
                more.hold();
                if let Some(mut reserved) = reserved {
                    reserved.hold();
                    more.merge(reserved);
                }
                more
            }
        })
    }
}

impl Memory for WorkingMemory<'_> {
    fn reserve(&self, bytes: u64) -> Result<(), SourceError> {
        if bytes <= self.spare.get() {
            self.spare.set(self.spare.get() - bytes);
            return Ok(());
        }
        let wanted = (bytes - self.spare.get()).max(STEP);
        let mut reserved = self.reserved.borrow_mut();
        let holding = reserved.as_ref().map_or(0, Reservation::bytes);
        let mut more = self.more(wanted, holding)?;
        if self.alone.borrow().is_none() {
            more.hold();
            self.held.borrow_mut().add(wanted);
        }
        match &mut *reserved {
            Some(reserved) => reserved.merge(more),
            None => *reserved = Some(more),
        }
        if let Some(alone) = &mut *self.alone.borrow_mut() {
            alone.has_memory();
        }
        self.spare.set(self.spare.get() + wanted - bytes);
        Ok(())
    }

    fn keep_parsed(&self, parsed: Box<dyn Any + Send>) {
        *self.parsed.borrow_mut() = Some(parsed);
    }
}

/// Runs work that reserves memory step by step. If others hold the memory that a step needs, the work releases
/// everything and starts again. Starts as [`WorkingMemory::new`].
///
/// # Errors
/// Those of `work`.
pub(super) fn with_memory<'a, T>(
    cache: &'a Cache,
    mut work: impl FnMut(WorkingMemory<'a>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    cache.in_steps(|fault: &Fault| fault.error.refused_memory(), || work(WorkingMemory::new(cache)))
}

/// A file that a container shows parts of, or why it cannot be used.
pub(super) type Opened<T> = Result<Arc<T>, Arc<str>>;

/// Returns the result of `open` for another file of the container. The result keeps the file open, and is made only
/// once while it is in use.
///
/// # Errors
/// Those of `open`, and `WouldBlock` for a caller that does not wait.
pub(super) fn open_once<T: Send + Sync + 'static>(
    reader: &ReadContext,
    key: Key,
    open: impl FnOnce() -> Result<Result<(T, Reservation), Arc<str>>, Fault>,
) -> Result<Opened<T>, Fault> {
    let cache = &reader.cache;
    if let Some(known) = cache.parsed(key) {
        return Ok(Ok(known));
    }
    if let Some(reason) = cache.parsed::<Arc<str>>(key) {
        return Ok(Err((*reason).clone()));
    }
    reader.may_work()?;
    Ok(match open()? {
        Ok((value, room)) => Ok(cache.keep_open(key, value, room)),
        Err(reason) => {
            let room = cache.hold(reason.len() as u64);
            Err((*cache.keep_parsed(key, reason, room)).clone())
        }
    })
}

/// Returns the refusal as a read error.
pub(crate) fn no_memory(refused: TooMuch) -> SourceError {
    io::Error::new(io::ErrorKind::OutOfMemory, refused).into()
}

/// Returns a failure to compute bytes as one to read them.
pub(crate) fn unread(error: &BlockError) -> SourceError {
    if let Some(refused) = error.refused_memory() {
        return no_memory(refused);
    }
    match error {
        BlockError::WouldBlock | BlockError::Source(SourceError::WouldBlock) => SourceError::WouldBlock,
        BlockError::Source(SourceError::Changed) => SourceError::Changed,
        BlockError::Source(SourceError::Io(error)) => match (error.raw_os_error(), error.kind()) {
            (Some(number), _) => io::Error::from_raw_os_error(number).into(),
            (None, kind) => io::Error::new(kind, error.to_string()).into(),
        },
        error if error.is_damage() => SourceError::Damaged(error.to_string()),
        error => io::Error::other(error.to_string()).into(),
    }
}

/// Returns the refusal of memory that caused an error.
pub(crate) fn refused(error: &FormatError) -> Option<TooMuch> {
    match error {
        FormatError::Source(error) => refused_memory(error),
        FormatError::Refused { .. } => None,
    }
}
