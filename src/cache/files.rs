//! Files in memory under the cache's budget.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    BlockError, Buffer, Cache, Cached, FileSlot, Key, OVERHEAD,
    decode::{self, Pieces},
    entries::Entry,
};
use crate::{
    format::Block,
    limits,
    memfd::MemoryFile,
    source::{Source, SourceError},
};

impl Cache {
    /// Files in memory: how many, and their bytes.
    pub fn files(&self) -> (usize, u64) {
        (self.files.files.load(Relaxed), self.files.bytes.load(Relaxed))
    }

    /// The file in memory of an inode: growing, finished, or known to fail.
    pub fn file(&self, ino: u64) -> Option<Arc<FileSlot>> {
        match self.entries.get(&Key::File { ino })? {
            Cached::File(file) => Some(file),
            Cached::Bytes(_) => None,
        }
    }

    /// Makes room for a file in memory, which the caller then fills ([`FileSlot::run`]) and ends with
    /// [`Self::end_file`]. `None` if it is there already, or there is no room for it now.
    pub fn start_file(&self, ino: u64, size: u64) -> Option<Arc<FileSlot>> {
        let key = Key::File { ino };
        if size > self.largest_file() || self.file(ino).is_some() {
            return None;
        }
        // The file that was used longest ago, if it is not open: its descriptor is wanted for another.
        let is_idle_file = |key: &Key, entry: &Cached| matches!(key, Key::File { .. }) && entry.is_idle();
        if self.files().0 >= limits::memory_files() && self.entries.remove_oldest(is_idle_file) {
            self.counters.evictions.fetch_add(1, Relaxed);
        }
        if self.files().0 >= limits::memory_files() {
            return None;
        }
        let room = self.try_reserve(size.next_multiple_of(4096).saturating_add(OVERHEAD))?;
        let memory = MemoryFile::new(size).map_err(|error| log::debug!("a file in memory: {error}")).ok()?;
        let file = Arc::new(FileSlot::new(memory, room, self.files.clone()));
        if !self.entries.put_new(key, Cached::File(file.clone())) {
            return None;
        }
        self.counters.misses.fetch_add(1, Relaxed);
        Some(file)
    }

    /// Ends what [`Self::start_file`] began. Of a file that failed nothing is kept: its readers go to its blocks, which
    /// say what is wrong.
    pub fn end_file(&self, ino: u64, file: &Arc<FileSlot>) {
        if file.is_whole() {
            self.counters.files_finished.fetch_add(1, Relaxed);
        } else {
            let is_meant = |entry: &Cached| matches!(entry, Cached::File(own) if Arc::ptr_eq(own, file));
            self.entries.remove(&Key::File { ino }, is_meant);
        }
    }

    /// Forgets a file in memory, which is there as long as others hold it.
    pub(crate) fn forget_file(&self, ino: u64) {
        self.entries.remove(&Key::File { ino }, |_| true);
    }

    /// The largest file that is finished in memory: others must have room beside it.
    pub fn largest_file(&self) -> u64 {
        self.budget.total() / 4
    }

    /// Decodes and checks a compressed block into a file in memory from `at` on, showing it to readers as it goes. How
    /// long decoding took; `None` for a block that the disk below had.
    ///
    /// # Errors
    /// [`BlockError`]; of the block nothing is then shown, or, where it comes in pieces, not its end.
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
        let _working = self.reserve_more(decode::working(block, window).saturating_add(piece), file.cost())?;
        if in_pieces {
            let mut pieces = Pieces::new(block, &**source, self.verify, window)?;
            // Copied there, out of one buffer: decoded there piece by piece, the file would not lie in large pages.
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
                .fill(at..at + block.size, |out| decode::into(block, &**source, self.verify, out))
                .map_err(SourceError::from)??;
            file.advance(at + block.size);
        }
        let took = start.elapsed();
        self.counters.took(took);
        self.counters.decoded_bytes.fetch_add(block.size, Relaxed);
        Ok(Some(took))
    }
}
