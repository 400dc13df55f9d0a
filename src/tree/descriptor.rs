//! What the rest of the program knows of a container format. Each format's folder has its descriptor.

use std::{any::Any, ffi::OsStr, fmt, sync::Arc};

use super::{
    Beside, Container, Siblings,
    memory::{Probed, WorkingMemory, refused},
};
use crate::{
    cache::Reservation,
    format::{self, Class, FormatError, Front, PartError, Recognition},
    source::{Memory, Source, SourceError},
    view::ReadContext,
};

/// A container that was opened, or why it must be refused after all.
pub type OpenResult = Result<Arc<dyn Container>, FormatError>;

/// See [`Format::others`]; fails if memory ran out or the reader was killed.
pub type Others = fn(&dyn Source, &dyn Memory) -> Result<Vec<Box<str>>, SourceError>;

/// See [`Format::probe`].
pub type Probe = fn(&dyn Source, name: &[u8], &dyn Memory) -> Result<(), FormatError>;

/// See [`Format::check_others`].
pub type CheckOthers = fn(&dyn Source, &dyn Beside, &dyn Memory) -> Result<(), FormatError>;

/// See [`Format::check_part`].
pub type CheckPart = fn(&dyn Source) -> Result<(), PartError>;

/// The suffix of a recording that is not finished.
const PARTIAL: &str = ".partial";

/// A container format: everything that the rest of the program knows of it. Formats of the same name are equal.
pub struct Format {
    /// The name in `container.json`, and of the format's page below `docs/formats`.
    pub name: &'static str,
    /// The name in messages.
    pub title: &'static str,
    /// What it is, in a few words for users.
    pub summary: &'static str,
    /// Suffixes of its files, in lower case (see [`format::has_suffix`]). A file that is read is recognised by its
    /// content, and by its name only if the format has no magic.
    pub suffixes: &'static [&'static str],
    /// Suffixes that its files share with files of other kinds. A file with one of them that is not a container is not
    /// reported.
    pub shared_suffixes: &'static [&'static str],
    /// Files that make a folder a container of this format, as paths below it. The first that is there is what
    /// [`Self::recognise`], [`Self::probe`] and [`Self::open`] get; other files are reached by [`Siblings::file`].
    /// Empty for a format whose containers are files.
    pub markers: &'static [&'static str],
    /// Whether files of this format are shown as folders unless the user says otherwise.
    pub is_default: bool,
    /// Returns whether a file may be of this format, by its front. Reads nothing.
    pub recognise: fn(&Front<'_>) -> Recognition,
    /// Looks closer at a recognised file, and fails if it must be refused. It reads only what identifies the file, such
    /// as a header or an index. The name is the file's; memory in proportion to its content is asked for. A format that
    /// parses all that [`Self::open`] needs keeps it ([`Memory::keep_parsed`]).
    pub probe: Probe,
    /// Parses a container and makes its tree.
    pub open: fn(&ReadContext, Option<Arc<dyn Siblings>>, &WorkingMemory<'_>) -> OpenResult,
    /// Returns the other files whose content a container shows too, such as the chunks of a manifest, as paths below
    /// its folder. A damaged container names none. `None` for a format whose containers never refer to others; see
    /// [`Self::files_beside`].
    pub others: Option<Others>,
    /// Fails for a recognised file that cannot be a container because its other files are missing or wrong. It is
    /// called again when they change.
    pub check_others: Option<CheckOthers>,
    /// Fails for a container that another one of the same format cannot show as a part of itself. `None` if none can.
    pub check_part: Option<CheckPart>,
    /// The examples in `fixtures/`.
    pub fixtures: &'static [&'static str],
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Format {
    /// What a descriptor starts with: containers are single files that refer to no others, and no file is one.
    pub const DEFAULT: Self = Self {
        name: "",
        title: "",
        summary: "",
        suffixes: &[],
        shared_suffixes: &[],
        markers: &[],
        is_default: true,
        recognise: |_| Recognition::No,
        probe: |_, _, _| Ok(()),
        open: |_, _, _| Err(FormatError::refused(Class::Format, "its format says of no file how to open it")),
        others: None,
        check_others: None,
        check_part: None,
        fixtures: &[],
    };

    /// Returns the files that [`Self::others`] names.
    ///
    /// # Errors
    /// [`SourceError`] if the file cannot be read, or there is no memory.
    pub fn files_beside(&self, file: &dyn Source, memory: &dyn Memory) -> Result<Vec<Box<str>>, SourceError> {
        self.others.map_or_else(|| Ok(Vec::new()), |others| others(file, memory))
    }

    /// Iterates over all suffixes of its files.
    pub fn all_suffixes(&self) -> impl Iterator<Item = &'static str> {
        self.suffixes.iter().chain(self.shared_suffixes).copied()
    }

    /// Returns whether a file's name has a suffix of this format, or will have one when the file is finished.
    pub fn has_name(&self, name: &OsStr) -> bool {
        self.suffixes_of(name).any(|has_it| has_it)
    }

    /// Returns for each suffix of this format whether a name has it.
    pub(crate) fn suffixes_of(&self, name: &OsStr) -> impl Iterator<Item = bool> {
        let name = finished(name);
        self.all_suffixes().map(move |suffix| format::has_suffix(name, suffix))
    }

    /// Opens a container of this format. A manifest finds its chunks among `siblings`; without them it joins none.
    ///
    /// # Errors
    /// [`FormatError`] if the file must be refused after all, or cannot be read.
    pub fn open(&self, reader: &ReadContext, siblings: Option<Arc<dyn Siblings>>) -> OpenResult {
        self.open_within(reader, None, siblings).map(|(tree, _)| tree)
    }

    /// Like [`Self::open`], with what the probe of the same state parsed. Also returns the reservation of the open
    /// container in the cache's budget.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(
        &self,
        reader: &ReadContext,
        mut probed: Option<Probed>,
        siblings: Option<Arc<dyn Siblings>>,
    ) -> Result<(Arc<dyn Container>, Reservation), FormatError> {
        reader.cache.in_steps(refused, || {
            let memory = WorkingMemory::of_reader(reader).after(probed.take());
            let tree = (self.open)(reader, siblings.clone(), &memory)?;
            let room = memory.keep(tree.memory_usage() as u64)?;
            Ok((tree, room))
        })
    }
}

/// Returns a file's name without the suffix of unfinished files.
pub(super) fn finished(name: &OsStr) -> &[u8] {
    let name = name.as_encoded_bytes();
    let length = name.len().saturating_sub(PARTIAL.len());
    if format::has_suffix(name, PARTIAL) { &name[..length] } else { name }
}

/// Keeps what a probe parsed for the opening that follows.
pub(super) fn keep<T: Any + Send>(memory: &dyn Memory, parsed: Result<T, FormatError>) -> Result<(), FormatError> {
    memory.keep_parsed(Box::new(parsed?));
    Ok(())
}
