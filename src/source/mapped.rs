//! A range of a mapped file, for the kernel to copy.

use std::{ops::Range, sync::Arc};

use memmap2::Mmap;

/// A range of a mapped file, kept alive. Only for system calls; see `store/mapped.rs`.
#[derive(Debug, Clone)]
pub struct Mapped {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl Mapped {
    /// Takes a range that lies in the map.
    pub(crate) fn new(map: Arc<Mmap>, range: Range<usize>) -> Self {
        Self { map, range }
    }

    /// Returns the bytes for the kernel to copy. Code in user space must not look at them.
    pub fn as_syscall_buf(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}
