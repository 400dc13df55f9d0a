//! Many short lists in one allocation, such as the names and shapes of a million tensors.

use crate::{
    limits,
    source::{Memory, SourceError, check_room},
};

/// Lists, found by their number.
#[derive(Debug, Clone)]
pub(super) struct Packed<T> {
    items: Vec<T>,
    /// Where each list ends.
    ends: Vec<u32>,
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), ends: Vec::new() }
    }
}

impl<T: Copy> Packed<T> {
    /// Adds a list. Elements beyond 2^32 - 1 in all lists together are dropped.
    pub(super) fn push(&mut self, list: &[T]) {
        let room = (u32::MAX as usize).saturating_sub(self.items.len());
        self.items.extend_from_slice(list.get(..room).unwrap_or(list));
        self.ends.push(u32::try_from(self.items.len()).unwrap_or(u32::MAX));
    }

    /// Returns the list with a number; an empty one if there is none.
    pub(super) fn get(&self, number: usize) -> &[T] {
        let Some(&end) = self.ends.get(number) else { return &[] };
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&start| start as usize);
        self.items.get(start..end as usize).unwrap_or_default()
    }

    /// Returns how many lists there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Iterates over all lists in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[T]> + Clone {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Frees memory that was allocated for further lists.
    pub(super) fn shrink(&mut self) {
        self.items.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns how many bytes of memory they take.
    pub(super) fn memory_usage(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.ends.capacity() * size_of::<u32>()
    }
}

/// Reserves memory in many small steps.
pub(super) struct Asked<'a> {
    memory: &'a dyn Memory,
    pending: u64,
}

impl<'a> Asked<'a> {
    pub(super) fn new(memory: &'a dyn Memory) -> Self {
        Self { memory, pending: 0 }
    }

    /// Reserves memory before `bytes` are taken.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), SourceError> {
        self.memory.reserve(bytes)?;
        self.pending = self.pending.saturating_add(bytes);
        if self.pending >= limits::PIECE as u64 {
            // Lists grow by doubling, so they need up to twice what was asked for.
            check_room(self.pending, 2)?;
            self.pending = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_found_by_number() {
        let mut lists = Packed::default();
        for list in [&b"abc"[..], b"", b"d"] {
            lists.push(list);
        }
        assert_eq!((lists.get(0), lists.get(1), lists.get(2)), (&b"abc"[..], &b""[..], &b"d"[..]));
        assert_eq!((lists.get(3), lists.len(), lists.iter().count()), (&b""[..], 3, 3));
    }
}
