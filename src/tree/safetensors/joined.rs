//! Models in several files. Each tensor is a range of one of them.

use std::{any::Any, fmt, ops::Range, sync::Arc};

use super::Tensors;
use crate::{
    cache::BlockError,
    format::{
        Class, FormatError,
        safetensors::{Index, Joined, Safetensors, parse_index, parse_within},
    },
    source::{Memory, Source, SourceError},
    store::Version,
    tree::{Beside, HEAP, NotThere, OpenPart, Reach, Siblings, Table, memory::no_memory},
    view::{Bytes, Data, Fault, ReadContext, Rendered, View},
};

/// Checks that all files of an index exist and have its tensors.
///
/// # Errors
/// The class of `docs/formats/safetensors.md` 5.
pub(crate) fn check_shards(source: &dyn Source, beside: &dyn Beside, memory: &dyn Memory) -> Result<(), FormatError> {
    let index = parse_index(source, memory)?;
    let mut open = |name: &str, each: &mut dyn FnMut(&Safetensors) -> Result<(), FormatError>| {
        let file = beside.open(name, Reach::Shown).map_err(|error| match error {
            NotThere::Source(error) => FormatError::Source(error),
            error @ NotThere::NotReadable => FormatError::refused(Class::NotReadable, format!("{name}: {error}")),
            error => FormatError::refused(Class::MissingShard, format!("{name}: {error}")),
        })?;
        let found = parse_within(&*file, memory).map_err(|error| match error {
            FormatError::Refused { .. } => FormatError::refused(Class::BadShard, format!("{name}: {error}")),
            error => error,
        })?;
        each(&found)
    };
    index.join(&mut open, memory).map(drop)
}

/// The files of a joined model.
pub(super) struct Parts {
    files: Arc<Files>,
    /// The file of each tensor, by its number.
    file_of: Vec<u32>,
}

struct Files {
    siblings: Arc<dyn Siblings>,
    /// Their names, and their versions when they were opened.
    known: Vec<(Box<str>, Version)>,
}

/// Opens the files of an index, and finds its tensors in them.
///
/// # Errors
/// If a file is missing, or is not a part of the model.
pub(super) fn join(
    index: Index,
    siblings: Option<Arc<dyn Siblings>>,
    memory: &dyn Memory,
) -> Result<(Safetensors, Option<Vec<u8>>, Parts), FormatError> {
    let refused =
        |name: &str, reason: &dyn fmt::Display| FormatError::refused(Class::BadShard, format!("{name}: {reason}"));
    let Some(siblings) = siblings else { return Err(refused("the index", &"its files can't be opened from here")) };
    let mut states = Vec::new();
    let mut open = |name: &str, each: &mut dyn FnMut(&Safetensors) -> Result<(), FormatError>| {
        let opened = siblings.open(name, Reach::Shown).map_err(|error| match error {
            BlockError::Memory(refused) => no_memory(refused).into(),
            BlockError::Source(error) => FormatError::Source(error),
            error => refused(name, &error),
        })?;
        let tree: &dyn Any = &**opened.tree();
        let Some(tensors) = tree.downcast_ref::<Table<Tensors>>().map(Table::content) else {
            return Err(refused(name, &"it is no file of tensors"));
        };
        states.push(opened.state());
        each(&tensors.found)
    };
    let Joined { tensors, shard_of, shards, metadata } = index.join(&mut open, memory)?;
    let known = shards.into_iter().zip(states).collect();
    Ok((tensors, metadata, Parts { files: Arc::new(Files { siblings, known }), file_of: shard_of }))
}

impl Parts {
    /// Returns the bytes of a tensor at a place in its file.
    pub(super) fn view(&self, tensor: usize, place: Range<u64>) -> View {
        let size = place.end.saturating_sub(place.start);
        let file = self.file_of.get(tensor).copied().unwrap_or(u32::MAX);
        View::default().with(size, Data::Rendered(Arc::new(InFile { files: self.files.clone(), file, place })))
    }

    /// Returns the name of the file that a tensor is in.
    pub(super) fn file(&self, tensor: usize) -> Option<&str> {
        Some(&self.files.known.get(*self.file_of.get(tensor)? as usize)?.0)
    }

    /// Iterates over the names of all files.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.known.iter().map(|(name, _)| &**name)
    }

    pub(super) fn memory_usage(&self) -> usize {
        let names: usize = self.files.known.iter().map(|known| size_of_val(known) + known.0.len() + HEAP).sum();
        names + self.file_of.capacity() * size_of::<u32>()
    }
}

/// A range of one of the files.
struct InFile {
    files: Arc<Files>,
    file: u32,
    place: Range<u64>,
}

impl fmt::Debug for InFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of file {}", self.place, self.file)
    }
}

impl InFile {
    /// Opens the file. Fails if it is no longer in the version that was joined.
    fn open(&self, reader: &ReadContext) -> Result<Arc<dyn OpenPart>, Fault> {
        // Opening another file may take time.
        reader.may_work()?;
        let Some((name, state)) = self.files.known.get(self.file as usize) else {
            return Err(SourceError::Changed.into());
        };
        let opened = self.files.siblings.open(name, Reach::Shown).map_err(|error| self.failed(error))?;
        if opened.state() == *state { Ok(opened) } else { Err(self.failed(SourceError::Changed.into())) }
    }

    fn failed(&self, error: BlockError) -> Fault {
        // As for a model in one file: the next open finds what is there now.
        if matches!(error, BlockError::Source(SourceError::Changed)) {
            return SourceError::Changed.into();
        }
        let file = self.files.known.get(self.file as usize).map_or_else(|| "".into(), |(name, _)| name.clone());
        let error = BlockError::Part { file, path: String::new(), error: Arc::new(error) };
        Fault { block: None, offset: self.place.start, error: Arc::new(error) }
    }

    fn range(&self, part: &Range<u64>) -> Range<u64> {
        self.place.start + part.start..self.place.start + part.end
    }
}

impl Rendered for InFile {
    fn is_copy(&self) -> bool {
        true
    }

    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        let opened = self.open(reader)?;
        Ok(opened.context().source.mapped(self.range(&part), reader.wait()).map(Bytes::Mapped))
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let opened = self.open(reader)?;
        opened.context().source.fill(self.range(&part).start, out).map_err(|error| self.failed(error.into()))
    }
}
