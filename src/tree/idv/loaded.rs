//! A column in use: its entry, its values, and its metadata, which are read on first use.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use super::values::Values;
use crate::{
    cache::Reservation,
    format::idv::{Column, Entry, File, Item, Metadata, Unusable},
    source::Source,
    tree::{memory::WorkingMemory, names},
    view::Fault,
};

/// What an entry takes in memory in addition to its sizes, in numbers of 8 bytes.
const ENTRY: usize = 64;

/// A column.
pub(super) struct Loaded {
    column: Arc<Column>,
    values: Option<Arc<Values>>,
    metadata: OnceLock<(Vec<Described>, Reservation)>,
    /// The entries by their file names.
    by_name: OnceLock<HashMap<String, u64>>,
}

/// How a metadata value is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As stored, because its codec is not known.
    Stored,
    /// As an array.
    Array,
    /// As one line of JSON.
    Text,
}

/// A metadata value with its file name.
pub(super) struct Described {
    pub(super) stored: Entry,
    pub(super) shape: Shape,
    pub(super) values: Option<Arc<Values>>,
    name: String,
}

impl Loaded {
    pub(super) fn new(column: Column, file: &File) -> Self {
        let column = Arc::new(column);
        let values = Values::of_column(column.clone(), file.rows, file.tail).map(Arc::new);
        Self { column, values, metadata: OnceLock::new(), by_name: OnceLock::new() }
    }

    pub(super) fn column(&self) -> &Column {
        &self.column
    }

    pub(super) fn values(&self) -> Option<&Arc<Values>> {
        self.values.as_ref()
    }

    /// Returns problems of the column as a whole. An unknown codec is none.
    pub(super) fn problems(&self, tail: u64) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(Unusable::Bad(reason)) = self.column.unusable() {
            problems.push(format!("no values are shown: {reason}"));
        }
        if let Some(offset) = self.column.bad_metadata_offset(tail) {
            problems.push(format!("its metadata at {offset} are not inside the file"));
        }
        problems
    }

    pub(super) fn has_read_metadata(&self) -> bool {
        self.metadata.get().is_some()
    }

    /// Reads the metadata. Returns what was wrong with them, if anything.
    pub(super) fn read_metadata(
        &self,
        file: &File,
        source: &dyn Source,
        memory: WorkingMemory<'_>,
    ) -> Result<Option<String>, Fault> {
        let Metadata { entries, damage } = Metadata::read(file, &self.column, source, &memory)?;
        let (mut seen, mut taken) = (HashMap::<String, u32>::new(), HashSet::new());
        let describe = |(number, stored): (u32, Entry)| {
            let values = Values::of_metadata(self.column.index, number, &stored).map(Arc::new);
            let (shape, suffix) = match &values {
                None => (Shape::Stored, ".bin"),
                Some(values) if values.ty().item == Item::Text => (Shape::Text, ".jsonl"),
                Some(_) => (Shape::Array, ".npy"),
            };
            // Equal paths count as duplicates: for long kinds, a path has only a part of the kind and a hash.
            let duplicate = seen.entry(names::file(&stored.kind, suffix, 1)).or_default();
            let name = loop {
                *duplicate += 1;
                let name = names::file(&stored.kind, suffix, *duplicate);
                if taken.insert(name.clone()) {
                    break name;
                }
            };
            Described { stored, shape, values, name }
        };
        let described: Vec<Described> = (0..).zip(entries).map(describe).collect();
        let usage = described.iter().map(Described::memory_usage).sum::<usize>();
        let room = memory.keep(usage as u64)?;
        let _ = self.metadata.set((described, room));
        Ok(damage)
    }

    fn entries(&self) -> &[Described] {
        self.metadata.get().map_or(&[], |(entries, _)| entries)
    }

    pub(super) fn entry(&self, number: u64) -> Option<&Described> {
        self.entries().get(usize::try_from(number).ok()?)
    }

    /// Returns the metadata entry of a file name.
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        let numbered = || (0..).zip(self.entries()).map(|(number, entry)| (entry.name.clone(), number)).collect();
        self.by_name.get_or_init(numbered).get(name).copied()
    }

    /// Returns the file name of a metadata entry.
    pub(super) fn name(&self, number: u64) -> Option<String> {
        self.entry(number).map(|entry| entry.name.clone())
    }

    /// Returns numbers and file names from a number on.
    pub(super) fn entries_from(&self, from: u64) -> impl Iterator<Item = (u64, &str)> {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.entries().len());
        (from as u64..).zip(self.entries()[from..].iter().map(|entry| entry.name.as_str()))
    }

    /// Returns what it takes in memory, in numbers of 8 bytes.
    pub(super) fn memory_usage(&self) -> usize {
        let of_entry = |entry: &Described| {
            ENTRY + entry.memory_usage() / 8 + entry.values.as_ref().map_or(0, |values| values.memory_usage())
        };
        let Column { name, codec, .. } = &*self.column;
        (name.len() + codec.name.len() + codec.parameters.len()) / 8
            + self.values.as_ref().map_or(0, |values| values.memory_usage())
            + self.entries().iter().map(of_entry).sum::<usize>()
    }
}

impl Described {
    /// Returns the bytes of memory that it takes, with its name in the list of names, about.
    fn memory_usage(&self) -> usize {
        let Entry { kind, codec, .. } = &self.stored;
        2 * size_of_val(self) + size_of::<Values>() + 2 * (kind.len() + codec.name.len() + codec.parameters.len())
    }
}
