//! The folder names of columns: equal names are told apart, and a name is found without going through all.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh64::xxh64;

use crate::{
    format::{PartError, idv::File},
    source::Source,
    tree::names::{RESERVED, folder},
};

/// What is kept of the names: a hash of each. The names themselves stay in the file.
#[derive(Debug)]
pub(super) struct Names {
    /// By the hash of the folder's name.
    by_hash: Vec<(u64, u32)>,
    /// Of columns whose folder another one has, which duplicate each is, from 2 (`docs/TREE.md`, section 2, rule 5).
    numbers: HashMap<u32, u32>,
    /// Those of them that another column of the same name does not hide: long names can end up in the same folder.
    visible: HashSet<u32>,
}

/// Whether a folder's name has only a part of the column's, and a hash of it: no other escape looks like that.
fn is_cut(folder: &str) -> bool {
    folder.contains("%~")
}

fn hash(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

impl Names {
    /// Bytes of memory that they take, about.
    pub(super) fn memory_usage(&self) -> usize {
        size_of_val(&*self.by_hash) + (self.numbers.len() + self.visible.len()) * size_of::<u64>()
    }

    /// Goes through all names.
    pub(super) fn of(file: &File, source: &dyn Source) -> Result<Self, PartError> {
        let mut by_hash = Vec::with_capacity(file.columns() as usize);
        file.names(source, |column, name| by_hash.push((hash(&folder(&name, &RESERVED, 1)), column)))?;
        by_hash.sort_unstable();
        let (mut numbers, mut visible) = (HashMap::new(), HashSet::new());
        // Hashes of the numbered folders of long names: these need not differ where the plain ones do.
        let mut taken = HashSet::new();
        for group in by_hash.chunk_by_mut(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let names: Result<Vec<Vec<u8>>, PartError> =
                group.iter().map(|&(_, column)| file.name(source, column)).collect();
            let names = names?;
            let paths: Vec<String> = names.iter().map(|name| folder(name, &RESERVED, 1)).collect();
            let last: HashMap<&str, usize> = paths.iter().map(String::as_str).zip(0..).collect();
            let last_of_name: HashMap<&[u8], usize> = names.iter().map(Vec::as_slice).zip(0..).collect();
            let mut next: HashMap<&str, u32> = HashMap::new();
            for (at, (hashed, column)) in group.iter_mut().enumerate() {
                let (name, path) = (names[at].as_slice(), paths[at].as_str());
                // The last of equal names is the one that is visible.
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
        Ok(Self { by_hash, numbers, visible })
    }

    /// Whether another column of the same name hides this one.
    pub(super) fn is_hidden(&self, column: u32) -> bool {
        self.numbers.contains_key(&column) && !self.visible.contains(&column)
    }

    /// The folder of a column whose name is known.
    pub(super) fn folder_of(&self, column: u32, name: &[u8]) -> String {
        folder(name, &RESERVED, self.numbers.get(&column).copied().unwrap_or(1))
    }

    /// The folder of a column.
    pub(super) fn folder(&self, file: &File, source: &dyn Source, column: u32) -> Result<String, PartError> {
        Ok(self.folder_of(column, &file.name(source, column)?))
    }

    /// The column of a folder.
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
