//! Whole files in memory: which views are worth it, and how they are laid out.

use std::{fs::File, io, sync::Arc};

use sha2::{Digest, Sha256};

use super::{BlockRef, Bytes, Data, Extent, ReadContext, View};
use crate::{
    cache::{BlockError, FileOfBlock, FileSlot},
    codec::Codec,
    limits::PIECE,
    source::SourceError,
};

/// Smallest block in bytes that is decoded ahead. Smaller ones are decoded before another thread would wake up.
const WORTH_AHEAD: u64 = 1 << 20;

/// What it costs to lay a view out in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Copying bytes that could also be served from where they are. Nothing is decoded.
    Copy,
    /// Decoding one block straight to its place, which its first reader would have waited for anyway.
    Decode {
        /// Whether readers can be served while it is decoded.
        in_pieces: bool,
    },
    /// Much work that no reader asked for: several blocks, pictures, texts.
    Work,
}

impl View {
    /// Returns what it would cost to lay this view out in memory.
    pub fn layout(&self, reader: &ReadContext) -> Layout {
        let mut layout = Layout::Copy;
        for extent in &self.extents {
            layout = match (extent.whole_block(), &extent.data) {
                (Some(block), _) if layout == Layout::Copy => {
                    Layout::Decode { in_pieces: reader.cache.in_pieces(&block.block) }
                }
                (None, Data::Inline(_) | Data::Stored(_)) => layout,
                (None, Data::Block(block, _)) if block.block.codec == Codec::None => layout,
                (None, Data::Rendered(rendered)) if rendered.is_copy() => layout,
                _ => return Layout::Work,
            };
        }
        layout
    }

    /// Fills a file in memory with this view and seals it.
    ///
    /// # Errors
    /// [`BlockError`]. The reader does not see it, because it then reads the view itself and gets the [`Fault`](super::Fault).
    pub fn lay_out(&self, reader: &ReadContext, file: &Arc<FileSlot>) -> Result<(), BlockError> {
        let of_block = self.of_one_block();
        let mut decoding = None;
        for extent in &self.extents {
            if let Some(block) = extent.whole_block() {
                decoding = reader.cache.decode_to(&block.block, &reader.source, file, extent.start)?;
                if let (None, Some(took)) = (&of_block, decoding) {
                    reader.cache.keep_part(&block.block, &*reader.source, file, extent.start, took);
                }
                continue;
            }
            let (mut at, end) = (extent.start, extent.start + extent.length);
            while at < end {
                let bytes = self.read_at(reader, at, (PIECE as u64).min(end - at));
                let bytes = bytes.map_err(|fault| BlockError::Refused(fault.error.to_string()))?;
                file.memory().write(bytes.as_syscall_buf(), at).map_err(SourceError::from)?;
                at += bytes.as_syscall_buf().len() as u64;
                file.advance(at);
            }
        }
        file.memory().seal().map_err(SourceError::from)?;
        if let Some(of_block) = of_block {
            reader.cache.keep_file(&of_block, &*reader.source, file, decoding);
        }
        Ok(())
    }

    /// Returns the compressed block that makes up the file, except for some bytes in memory. The disk cache may keep
    /// the file of such a view.
    fn of_one_block(&self) -> Option<FileOfBlock<'_>> {
        let (mut found, mut others, mut known) = (None, Sha256::new(), 0);
        for extent in &self.extents {
            match (extent.whole_block(), &extent.data) {
                (Some(block), _) if found.is_none() => found = Some((&block.block, extent.start)),
                (None, Data::Inline(bytes)) if !extent.as_bool => {
                    known += bytes.len();
                    others.update(&**bytes);
                }
                _ => return None,
            }
        }
        let (block, at) = found.filter(|_| known <= PIECE)?;
        Some(FileOfBlock { block, at, size: self.size, others: others.finalize().into() })
    }

    /// Returns whether the disk cache may have this file.
    pub(crate) fn may_be_on_disk(&self, reader: &ReadContext) -> bool {
        reader.cache.disk_tier().is_some() && self.of_one_block().is_some()
    }

    /// Returns the file from the disk cache, if the disk cache has it and all its bytes are correct.
    pub(crate) fn on_disk(&self, reader: &ReadContext) -> Option<File> {
        reader.cache.spilled_file(&self.of_one_block()?, &*reader.source)
    }

    /// Starts to decode the next block of a file whose reader, now at `at`, has read most of the current block. Does so
    /// only if the cache has unused room.
    pub fn decode_ahead(&self, reader: &ReadContext, at: u64) {
        let here = self.extents.partition_point(|extent| extent.start + extent.length <= at);
        let [here, next, ..] = &self.extents[here..] else { return };
        let (Data::Block(here, _), Data::Block(next, _)) = (&here.data, &next.data) else { return };
        if next.block.codec != Codec::None
            && next.error.is_none()
            && here.number != next.number
            && reader.cache.is_mostly_read(reader.key(here), here.block.size)
        {
            reader.cache.decode_ahead(reader.keyed(reader.key(next), &next.block), false);
        }
    }

    /// Returns the first compressed block of the file, if it is worth decoding ahead.
    pub(crate) fn block_in_front(&self) -> Option<&BlockRef> {
        let block = self.extents.iter().find_map(|extent| match &extent.data {
            Data::Block(block, _) => Some(block),
            _ => None,
        })?;
        (block.block.codec != Codec::None && block.error.is_none() && block.block.size >= WORTH_AHEAD).then_some(block)
    }

    /// Starts to decode the first block of a file that will be read soon.
    pub(crate) fn decode_front(&self, reader: &ReadContext) {
        if let Some(block) = self.block_in_front() {
            reader.cache.decode_ahead(reader.keyed(reader.key(block), &block.block), true);
        }
    }
}

impl Extent {
    /// Returns the compressed block, if the extent is a whole one.
    fn whole_block(&self) -> Option<&super::BlockRef> {
        match &self.data {
            Data::Block(block, range)
                if block.block.codec != Codec::None
                    && block.error.is_none()
                    && !self.as_bool
                    && *range == (0..block.block.size)
                    && self.length == block.block.size =>
            {
                Some(block)
            }
            _ => None,
        }
    }
}

impl Bytes {
    /// Returns a part of a file in memory.
    ///
    /// # Errors
    /// `ENOMEM` if the file cannot be mapped.
    pub fn in_memory(file: &Arc<FileSlot>, offset: u64, length: u64) -> io::Result<Self> {
        let end = offset.saturating_add(length).min(file.memory().size()) as usize;
        let range = (offset as usize).min(end)..end;
        file.memory().bytes(range.clone())?;
        Ok(Self::Memory(file.clone(), range))
    }
}
