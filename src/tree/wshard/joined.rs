//! The joined view of a chunked episode (`docs/TREE.md`, section 3; `docs/formats/wshard.md` 15): every array that all
//! chunks have with one dtype and per-step shape, chunk after chunk.
//!
//! Joining reads only the chunks' front matter. A read then gets bytes through the trees of the chunks that it touches.
//! A manifest's tree keeps a few numbers of each chunk, never an open file.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    fmt,
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    Blocks,
    cameras::{Pictures, RESERVED},
};
use crate::{
    cache::{BlockError, Verify},
    escape::hex,
    format::{
        DType,
        wshard::{Chunk, Entry, Value},
    },
    limits, parallel,
    source::{Memory, SourceError},
    store::Version,
    tree::{
        OpenPart, ROOT, Reach, Siblings, Table,
        memory::no_memory,
        paths::{self, Builder},
    },
    view::{Fault, ReadContext, Rendered},
    wanted,
};

/// Bytes of memory that are kept of a chunk in addition to its uri, including what distinguishes it from others.
const KNOWN: u64 = 320;

/// One array of the joined episode.
pub(super) struct JoinedArray {
    /// The name that its block has in every chunk.
    pub(super) name: Vec<u8>,
    /// Element type.
    pub(super) dtype: DType,
    /// The whole shape; its first axis is the sum of the chunks'.
    pub(super) shape: Vec<u64>,
    /// Whether dtype or shape is a guess in any chunk.
    pub(super) inferred: bool,
    /// Whether every chunk that has steps shows them as pictures too.
    pub(super) pictures: bool,
    /// The unit of its values, if all chunks state the same.
    pub(super) unit: Option<String>,
    /// Bytes of the elements.
    pub(super) size: u64,
    /// The elements.
    pub(super) data: Arc<dyn Rendered>,
}

/// An array of one chunk.
struct Part {
    dtype: DType,
    shape: Vec<u64>,
    inferred: bool,
    pictures: bool,
    unit: Option<String>,
}

impl Part {
    /// Returns an entry as an array with a time axis, if it is one.
    fn of(entry: &Entry) -> Option<Self> {
        let (dtype, shape, inferred) = match (&entry.residual, &entry.value) {
            (Some(residual), _) => (DType::I8, residual.shape(), false),
            (None, Value::Array { dtype, shape, inferred, .. }) => (*dtype, shape.clone(), *inferred),
            _ => return None,
        };
        // A block that cannot be read and states no bytes may hold any number of steps.
        if entry.block.error.is_some() && entry.block.extent.size == 0 {
            return None;
        }
        let pictures = *shape.first()? == 0 || Pictures::of_entry(0, entry).is_some();
        let unit = entry.unit().map(ToOwned::to_owned);
        entry.visible.then_some(Self { dtype, shape, inferred, pictures, unit })
    }

    fn size(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.size(), |size, &axis| size.checked_mul(axis))
    }
}

/// A joined array while chunks are added to it.
struct Growing {
    name: Vec<u8>,
    dtype: DType,
    shape: Vec<u64>,
    inferred: bool,
    pictures: bool,
    unit: Option<String>,
    ends: Vec<u64>,
}

impl Growing {
    fn new(name: &[u8], part: &Part) -> Option<Self> {
        Some(Self {
            name: name.to_vec(),
            dtype: part.dtype,
            shape: part.shape.clone(),
            inferred: part.inferred,
            pictures: part.pictures,
            unit: part.unit.clone(),
            ends: vec![part.size()?],
        })
    }

    /// Appends a chunk's part; `None` if it does not fit.
    fn add(&mut self, part: &Part) -> Option<()> {
        let (steps, step) = self.shape.split_first_mut()?;
        let (more, other_step) = part.shape.split_first()?;
        if part.dtype != self.dtype || other_step != step {
            return None;
        }
        *steps = steps.checked_add(*more)?;
        self.ends.push(self.ends.last()?.checked_add(part.size()?)?);
        self.inferred |= part.inferred;
        self.pictures &= part.pictures;
        self.unit = self.unit.take().filter(|unit| part.unit.as_ref() == Some(unit));
        Some(())
    }
}

/// Joins the chunks.
///
/// The inner error says why there is no joined view: the first chunk that cannot be opened, and what is wrong with it.
///
/// # Errors
/// If the reader was killed, or memory or descriptors ran out: errors that say nothing about the chunks and must not be
/// remembered.
pub(super) fn join(
    chunks: &[Chunk],
    siblings: &Arc<dyn Siblings>,
    verify: Verify,
    memory: &dyn Memory,
) -> Result<Result<Vec<JoinedArray>, String>, SourceError> {
    memory.reserve(chunks.iter().map(|chunk| KNOWN + chunk.uri.len() as u64).sum())?;
    let mut arrays: Vec<Growing> = Vec::new();
    let mut known = Vec::with_capacity(chunks.len());
    // A chunk may have another name, a link for example. Chunks must be different files.
    let mut seen = HashSet::new();
    for (number, chunk) in chunks.iter().enumerate() {
        wanted::check()?;
        let together = siblings.opened_at_once();
        if together > 1 && number.is_multiple_of(together) {
            open_all(&chunks[number..chunks.len().min(number + together)], &**siblings);
        }
        let failed = |error: &dyn fmt::Display| Ok(Err(format!("chunk {number} ({}): {error}", chunk.uri)));
        let opened = match siblings.open(&chunk.uri, Reach::Stored) {
            Ok(opened) => opened,
            Err(BlockError::Memory(refused)) => return Err(no_memory(refused)),
            Err(BlockError::Source(error)) if error.is_passing() => return Err(error),
            Err(error) => return failed(&error),
        };
        let tree: &dyn Any = &**opened.tree();
        let Some(Blocks { shard, .. }) = tree.downcast_ref::<Table<Blocks>>().map(Table::content) else {
            return failed(&"not an episode");
        };
        if !seen.insert(opened.state()) {
            return failed(&"it is the file of another chunk too");
        }
        known.push(Known { uri: chunk.uri.as_str().into(), sha256: chunk.sha256, state: opened.state() });
        let parts = shard.entries.iter().filter_map(|entry| Some((&*entry.name, Part::of(entry)?)));
        if number == 0 {
            arrays = parts.filter_map(|(name, part)| Growing::new(name, &part)).collect();
            if arrays.len().saturating_mul(chunks.len()) > limits::JOINED_PARTS {
                let (arrays, chunks) = (arrays.len(), chunks.len());
                return Ok(Err(format!("{arrays} arrays of {chunks} chunks are too many to join")));
            }
            // The lists grow by doubling.
            memory.reserve(16 * (arrays.len() * chunks.len()) as u64)?;
        } else {
            let parts: HashMap<&[u8], Part> = parts.collect();
            arrays.retain_mut(|array| parts.get(&*array.name).and_then(|part| array.add(part)).is_some());
        }
    }
    let episode = Arc::new(Episode { siblings: siblings.clone(), chunks: known, verify });
    // Computes the paths of the arrays in a chunk.
    let mut builder = Builder::default();
    let nodes: Vec<paths::NodeIndex> = arrays
        .iter()
        .map(|array| {
            let (folder, part) = builder.folders_of(paths::ROOT, &array.name, &RESERVED);
            builder.file(folder, part, ".npy", ())
        })
        .collect();
    let paths = builder.finish();
    let finished = arrays.into_iter().zip(nodes).map(|(array, node)| {
        let Growing { name, dtype, shape, inferred, pictures, unit, ends } = array;
        let size = ends.last().copied().unwrap_or(0);
        let data = Arc::new(Concatenated {
            episode: episode.clone(),
            path: paths.path(node),
            ends,
            expected: AtomicUsize::new(0),
        });
        JoinedArray { name, dtype, shape, inferred, pictures, unit, size, data }
    });
    Ok(Ok(finished.collect()))
}

/// Opens chunks at once, so that they are open when they are examined one by one.
fn open_all(chunks: &[Chunk], siblings: &dyn Siblings) {
    parallel::for_each(chunks.len(), chunks.len(), |at| {
        // Errors are reported when the chunk is opened in its turn.
        drop(siblings.open(&chunks[at].uri, Reach::Stored));
        ControlFlow::Continue(())
    });
}

/// Returns what is wrong with the chunks, each compared with its SHA-256.
pub(super) fn verify(chunks: &[Chunk], siblings: &dyn Siblings) -> Vec<String> {
    let wrong = chunks.iter().enumerate().filter_map(|(number, chunk)| {
        let opened = siblings.open(&chunk.uri, Reach::Stored);
        let checked = opened.and_then(|opened| compare(siblings, &*opened, chunk.sha256));
        let error = checked.err()?;
        Some(format!("chunk {number} ({}): {error}", chunk.uri))
    });
    wrong.collect()
}

/// Checks that a chunk is the one that the manifest means, as far as it says.
fn compare(siblings: &dyn Siblings, opened: &dyn OpenPart, expected: Option<[u8; 32]>) -> Result<(), BlockError> {
    let Some(expected) = expected else { return Ok(()) };
    let computed = siblings.sha256(opened)?;
    if computed == expected {
        return Ok(());
    }
    let (computed, expected) = (hex(&computed), hex(&expected));
    Err(BlockError::Refused(format!("its SHA-256 is {computed}, the manifest says {expected}")))
}

/// The chunks of an episode, which are opened again when they are read.
struct Episode {
    siblings: Arc<dyn Siblings>,
    chunks: Vec<Known>,
    verify: Verify,
}

/// What is kept of a chunk.
struct Known {
    uri: Box<str>,
    sha256: Option<[u8; 32]>,
    /// The file's state when the episode was joined.
    state: Version,
}

impl Episode {
    /// Checks that an opened chunk has the bytes that the manifest means. If the file has changed since, whatever its
    /// size, only its SHA-256 can show that it is the same chunk.
    fn check(&self, chunk: &Known, opened: &dyn OpenPart) -> Result<(), BlockError> {
        let changed = opened.state() != chunk.state;
        let needed = match self.verify {
            Verify::Strict => true,
            Verify::Lazy => changed || opened.context().source.len() <= limits::WHOLE_BLOCK,
            Verify::Off => changed,
        };
        match chunk.sha256 {
            None if changed => Err(SourceError::Changed.into()),
            expected if needed => compare(&*self.siblings, opened, expected),
            _ => Ok(()),
        }
    }
}

/// The elements of one array of every chunk, chunk after chunk.
struct Concatenated {
    episode: Arc<Episode>,
    /// The array's path in every chunk.
    path: String,
    /// For each chunk, the end of its elements.
    ends: Vec<u64>,
    /// Number of the chunk whose elements were announced next.
    expected: AtomicUsize,
}

/// Bytes of a chunk that are fetched in advance.
const EXPECTED: u64 = 4 << 20;

impl fmt::Debug for Concatenated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} chunks", self.path, self.ends.len())
    }
}

impl JoinedArray {
    /// Returns the bytes of memory that the joined arrays take, about.
    pub(super) fn memory_usage_of(arrays: &[(Self, paths::NodeIndex)], chunks: &[Chunk]) -> usize {
        let chunks_usage: usize = chunks.iter().map(|chunk| 2 * (size_of::<Known>() + chunk.uri.len())).sum();
        chunks_usage
            + arrays
                .iter()
                .map(|(array, _)| size_of_val(array) + 2 * array.name.len() + 8 * chunks.len())
                .sum::<usize>()
    }
}

impl Concatenated {
    /// Fills `out` with a part of a chunk's `size` bytes of elements.
    fn fill_from(&self, chunk: &Known, size: u64, from: u64, out: &mut [u8]) -> Result<(), Fault> {
        let failed = |error: Arc<BlockError>, offset| {
            let error =
                BlockError::Part { file: format!("chunk {}", chunk.uri).into(), path: self.path.clone(), error };
            Fault { block: None, offset, error: Arc::new(error) }
        };
        let whole = |error: BlockError| failed(Arc::new(error), 0);
        let opened = self.episode.siblings.open(&chunk.uri, Reach::Stored).map_err(whole)?;
        self.episode.check(chunk, &*opened).map_err(whole)?;
        let inner = |fault: Fault| failed(fault.error, fault.offset);
        let (reader, tree) = (opened.context(), opened.tree());
        let mut node = ROOT;
        for name in self.path.split('/') {
            let found = tree.lookup(reader, node, name).map_err(inner)?;
            node = found.ok_or_else(|| whole(SourceError::Changed.into()))?;
        }
        let view = tree.view(reader, node).map_err(inner)?;
        // The bytes before the elements are the header of the chunk's own array.
        let Some(header) = view.size().checked_sub(size) else { return Err(whole(SourceError::Changed.into())) };
        view.fill_at(reader, header + from, out).map_err(inner)
    }

    /// Fetches the front of a chunk's elements, which are likely to be read next.
    fn expect(&self, chunk: &Known) -> Option<()> {
        // Errors are reported when they are read.
        let opened = self.episode.siblings.open(&chunk.uri, Reach::Stored).ok()?;
        let (reader, tree) = (opened.context(), opened.tree());
        let find = |node, name| tree.lookup(reader, node, name).ok().flatten();
        let node = self.path.split('/').try_fold(ROOT, find)?;
        tree.view(reader, node).ok()?.prefetch(reader, 0..EXPECTED);
        Some(())
    }
}

impl Rendered for Concatenated {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        // Other files have to be opened and compared for it.
        reader.may_work()?;
        let (mut at, mut rest) = (part.start, out);
        let mut number = self.ends.partition_point(|&end| end <= at);
        while let (false, Some(chunk), Some(&end)) =
            (rest.is_empty(), self.episode.chunks.get(number), self.ends.get(number))
        {
            let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
            let length = (end - at).min(rest.len() as u64);
            let (here, after) = rest.split_at_mut(length as usize);
            if length > 0 {
                // In the second half of a chunk, readers will soon reach the next one.
                let next = self.episode.chunks.get(number + 1).filter(|_| at + length > start + (end - start) / 2);
                if let Some(next) = next
                    && self.episode.siblings.opened_at_once() > 1
                    && self.expected.swap(number + 1, Relaxed) != number + 1
                {
                    let _ = self.expect(next);
                }
                self.fill_from(chunk, end - start, at - start, here)?;
            }
            (at, rest, number) = (end, after, number + 1);
        }
        Ok(())
    }
}
