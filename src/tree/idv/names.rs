//! The folder names of columns: equal names are told apart, and a name is found without going through all.

use std::collections::HashMap;

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
    /// Of columns that another of the same name hides, which duplicate each is, from 2 (contract, section 2, rule 5).
    numbers: HashMap<u32, u32>,
}

fn hash(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

impl Names {
    /// Goes through all names.
    pub(super) fn of(file: &File, source: &dyn Source) -> Result<Self, PartError> {
        let mut by_hash = Vec::with_capacity(file.columns() as usize);
        file.names(source, |column, name| by_hash.push((hash(&folder(&name, &RESERVED, 1)), column)))?;
        by_hash.sort_unstable();
        let mut numbers = HashMap::new();
        for group in by_hash.chunk_by_mut(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let names: Result<Vec<Vec<u8>>, PartError> =
                group.iter().map(|&(_, column)| file.name(source, column)).collect();
            let names = names?;
            let mut left: HashMap<&[u8], u32> = HashMap::new();
            names.iter().for_each(|name| *left.entry(name).or_default() += 1);
            let mut next: HashMap<&[u8], u32> = HashMap::new();
            for ((hashed, column), name) in group.iter_mut().zip(&names) {
                let left = left.entry(name).or_default();
                *left -= 1;
                // The last of equal names is the one that is visible.
                if *left > 0 {
                    let next = next.entry(name).or_insert(1);
                    *next += 1;
                    numbers.insert(*column, *next);
                    *hashed = hash(&folder(name, &RESERVED, *next));
                }
            }
        }
        by_hash.sort_unstable();
        Ok(Self { by_hash, numbers })
    }

    /// Whether another column of the same name hides this one.
    pub(super) fn is_hidden(&self, column: u32) -> bool {
        self.numbers.contains_key(&column)
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
