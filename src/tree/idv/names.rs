//! The folder names of columns. Equal names get numbers, and a name is found without going through all of them.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh64::xxh64;

use crate::{
    cache::Reservation,
    format::{PartError, idv::File},
    source::{Memory, Source},
    tree::{
        memory::WorkingMemory,
        names::{RESERVED, folder},
    },
};

/// A hash of each name. The names themselves stay in the file.
#[derive(Debug)]
pub(super) struct Names {
    /// By the hash of the folder's name.
    by_hash: Vec<(u64, u32)>,
    /// For columns whose folder name another column has: the number of the duplicate, from 2 (`docs/TREE.md`, section
    /// 2, rule 5).
    numbers: HashMap<u32, u32>,
    /// Those of them that no other column of the same name hides: different long names can have one folder name.
    visible: HashSet<u32>,
    /// Counts the memory that they take.
    _room: Reservation,
}

/// Bytes of memory for telling equal names apart, each, in addition to the names.
const EQUAL: u64 = 512;

/// Returns whether a folder's name has only a part of the column's name, and a hash. No other escape looks like that.
fn is_cut(folder: &str) -> bool {
    folder.contains("%~")
}

fn hash(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

impl Names {
    /// Returns the bytes of memory that they take, about.
    pub(super) fn memory_usage(&self) -> usize {
        Self::usage(&self.by_hash, self.numbers.len() + self.visible.len())
    }

    fn usage(by_hash: &[(u64, u32)], equal: usize) -> usize {
        size_of_val(by_hash) + 4 * equal * size_of::<u64>()
    }

    /// Goes through all names.
    ///
    /// # Errors
    /// [`PartError`] if they cannot be read, or there is no memory for them.
    pub(super) fn of(file: &File, source: &dyn Source, memory: WorkingMemory<'_>) -> Result<Self, PartError> {
        let size = u64::from(file.columns()) * size_of::<(u64, u32)>() as u64;
        memory.reserve(size)?;
        let mut by_hash = Vec::with_capacity(file.columns() as usize);
        file.names(source, |column, name| by_hash.push((hash(&folder(&name, &RESERVED, 1)), column)))?;
        by_hash.sort_unstable();
        let (mut numbers, mut visible) = (HashMap::new(), HashSet::new());
        // Hashes of the numbered folders of long names. They may collide even if the plain ones do not.
        let mut taken = HashSet::new();
        for group in by_hash.chunk_by_mut(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let texts: u64 = group.iter().map(|&(_, column)| file.entry_size(column..column + 1)).sum();
            memory.reserve(EQUAL * group.len() as u64 + 4 * texts)?;
            let names: Result<Vec<Vec<u8>>, PartError> =
                group.iter().map(|&(_, column)| file.name(source, column)).collect();
            let names = names?;
            let paths: Vec<String> = names.iter().map(|name| folder(name, &RESERVED, 1)).collect();
            let last: HashMap<&str, usize> = paths.iter().map(String::as_str).zip(0..).collect();
            let last_of_name: HashMap<&[u8], usize> = names.iter().map(Vec::as_slice).zip(0..).collect();
            let mut next: HashMap<&str, u32> = HashMap::new();
            for (at, (hashed, column)) in group.iter_mut().enumerate() {
                let (name, path) = (names[at].as_slice(), paths[at].as_str());
                // The last of several equal names is visible.
                if last.get(path) == Some(&at) {
                    continue;
                }
                if last_of_name.get(name) == Some(&at) {
                    visible.insert(*column);
                }
                let next = next.entry(path).or_insert(1);
                loop {
                    *next += 1;
                    let numbered = folder(name, &RESERVED, *next);
                    *hashed = hash(&numbered);
                    if !is_cut(&numbered) || taken.insert(*hashed) {
                        break;
                    }
                }
                numbers.insert(*column, *next);
            }
        }
        by_hash.sort_unstable();
        let usage = Self::usage(&by_hash, numbers.len() + visible.len());
        let room = memory.keep(usage as u64)?;
        Ok(Self { by_hash, numbers, visible, _room: room })
    }

    /// Returns whether another column of the same name hides this one.
    pub(super) fn is_hidden(&self, column: u32) -> bool {
        self.numbers.contains_key(&column) && !self.visible.contains(&column)
    }

    /// Returns the folder of a column with a known name.
    pub(super) fn folder_of(&self, column: u32, name: &[u8]) -> String {
        folder(name, &RESERVED, self.numbers.get(&column).copied().unwrap_or(1))
    }

    /// Returns the folder of a column.
    pub(super) fn folder(&self, file: &File, source: &dyn Source, column: u32) -> Result<String, PartError> {
        Ok(self.folder_of(column, &file.name(source, column)?))
    }

    /// Returns the column of a folder.
    pub(super) fn find(&self, file: &File, source: &dyn Source, name: &str) -> Result<Option<u32>, PartError> {
        let wanted = hash(name);
        let first = self.by_hash.partition_point(|(hash, _)| *hash < wanted);
        for &(_, column) in self.by_hash[first..].iter().take_while(|(hash, _)| *hash == wanted) {
            if self.folder(file, source, column)? == name {
                return Ok(Some(column));
            }
        }
        Ok(None)
    }
}
