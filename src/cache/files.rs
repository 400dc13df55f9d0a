//! Files in memory under the cache's budget.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    BlockError, Buffer, Cache, Cached, FileSlot, Key, OVERHEAD,
    decode::{self, Decoding, Pieces},
    entries::Entry,
};
use crate::{
    format::Block,
    limits,
    memfd::MemoryFile,
    source::{Source, SourceError},
};

impl Cache {
    /// Returns the number of files in memory, and their bytes.
    pub fn files(&self) -> (usize, u64) {
        (self.files.files.load(Relaxed), self.files.bytes.load(Relaxed))
    }

    /// Returns the file in memory of an inode: growing, finished, or known to fail.
    pub fn file(&self, ino: u64) -> Option<Arc<FileSlot>> {
        match self.entries.get(&Key::file(ino))? {
            Cached::File(file) => Some(file),
            Cached::Bytes(_) | Cached::Parsed(_) => None,
        }
    }

    /// Makes room for a file in memory. The caller fills it ([`FileSlot::run`]) and then calls [`Self::end_file`].
    /// `None` if the file exists already, or if there is no room for it now.
    pub fn start_file(&self, ino: u64, size: u64) -> Option<Arc<FileSlot>> {
        let key = Key::file(ino);
        if size > self.largest_file() || self.file(ino).is_some() {
            return None;
        }
        // Evicts the least recently used file that is not open, because its descriptor is needed.
        let is_idle_file = |key: &Key, entry: &Cached| key.is_file() && entry.is_idle();
        if self.files().0 >= limits::memory_files() && self.entries.remove_oldest(is_idle_file) {
            self.counters.evictions.fetch_add(1, Relaxed);
        }
        if self.files().0 >= limits::memory_files() {
            return None;
        }
        let room = self.try_reserve(size.next_multiple_of(4096).saturating_add(OVERHEAD))?;
        let memory = MemoryFile::new(size).map_err(|error| log::debug!("a file in memory: {error}")).ok()?;
        let file = Arc::new(FileSlot::new(memory, room, self.files.clone()));
        let kept = self.entries.get_or_put(key, Cached::File(file.clone()));
        let is_new = matches!(&kept, Cached::File(kept) if Arc::ptr_eq(kept, &file));
        self.counters.misses.fetch_add(u64::from(is_new), Relaxed);
        is_new.then_some(file)
    }

    /// Ends what [`Self::start_file`] began. A file that failed is not kept: its readers read its blocks, which report
    /// the error.
    pub fn end_file(&self, ino: u64, file: &Arc<FileSlot>) {
        if file.is_whole() {
            self.counters.files_finished.fetch_add(1, Relaxed);
        } else {
            let is_meant = |entry: &Cached| matches!(entry, Cached::File(own) if Arc::ptr_eq(own, file));
            self.entries.remove(&Key::file(ino), is_meant);
        }
    }

    /// Forgets a file in memory; it exists until its holders drop it.
    pub(crate) fn forget_file(&self, ino: u64) {
        self.entries.remove(&Key::file(ino), |_| true);
    }

    /// Returns the largest size of a file in memory: others must have room beside it.
    pub fn largest_file(&self) -> u64 {
        self.budget.total() / 4
    }

    /// Decodes and checks a compressed block into a file in memory from `at` on, and shows it to readers as it goes.
    /// Returns how long decoding took; `None` for a block from the disk cache.
    ///
    /// # Errors
    /// [`BlockError`]. Then nothing of the block is shown, or, if it comes in pieces, not its end.
    pub fn decode_to(
        &self,
        block: &Block,
        source: &Arc<dyn Source>,
        file: &Arc<FileSlot>,
        at: u64,
    ) -> Result<Option<Duration>, BlockError> {
        self.check_size(block)?;
        if let Some((spill, name)) = self.spilled(block, &**source)
            && spill.has(&name, 0)
        {
            let read = |out: &mut [u8]| spill.read(&name, 0, out);
            if file.memory().fill(at..at + block.size, read).map_err(SourceError::from)? {
                file.advance(at + block.size);
                return Ok(None);
            }
        }
        let start = Instant::now();
        let in_pieces = self.in_pieces(block);
        let window = if in_pieces { decode::window(block, &**source) } else { 0 };
        let piece = if in_pieces { limits::DECODED_PIECE as u64 } else { 0 };
        let mut working = self.reserve_more(decode::working(block, window).saturating_add(piece), file.cost())?;
        if in_pieces {
            let mut pieces = Pieces::new(Decoding::new(block, &**source, self.verify), window)?;
            // Copied from one buffer: a file that is decoded in place piece by piece would not get large pages.
            let mut piece = Buffer::zeroed(limits::DECODED_PIECE).map_err(SourceError::from)?;
            let mut at = at;
            while pieces.next_size() > 0 {
                let piece = &mut piece[..pieces.next_size() as usize];
                pieces.fill(piece)?;
                file.memory().write(piece, at).map_err(SourceError::from)?;
                at += piece.len() as u64;
                file.advance(at);
            }
        } else {
            file.memory()
                .fill(at..at + block.size, |out| Decoding::new(block, &**source, self.verify).fill(&mut working, out))
                .map_err(SourceError::from)??;
            file.advance(at + block.size);
        }
        let took = start.elapsed();
        self.counters.took(took);
        self.counters.decoded_bytes.fetch_add(block.size, Relaxed);
        Ok(Some(took))
    }
}
