//! How files are opened where the kernel can serve finished ones by itself.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    cache::FileSlot,
    limits,
    pool::{Place, pool},
    source::Wait,
    vfs::{Error, Node, Vfs},
    view::{Bytes, Layout, ReadContext, View},
};

/// How opened files are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum IoMode {
    /// `passthrough` with `--spill` if kernel and privileges allow it, otherwise `cache`
    #[default]
    Auto,
    /// The kernel opens files by itself and keeps what was read in its page cache
    Cache,
    /// The kernel reads finished large files directly from memory, within the cache's budget
    Passthrough,
}

/// How the running mount serves files, depending on the kernel and on privileges.
#[derive(Debug, Clone, Default)]
pub struct Serving {
    /// Whether it is in passthrough mode.
    pub passthrough: bool,
    /// Why it is not, if it was requested.
    pub reason: Option<String>,
    /// Whether files past the kernel's cache can be mapped.
    pub maps_direct: bool,
}

/// What an opened file is served from.
pub enum Opening {
    /// A finished file in memory.
    Finished(Arc<FileSlot>),
    /// An ordinary file of SOURCE, or of the disk cache.
    Own(File),
    /// A file that is not finished. Reads go to [`Vfs::read_growing`], which finish it for the next open.
    Growing(Arc<Growing>),
    /// Parts, which the kernel should keep.
    Parts,
    /// A control file. Each look-up makes a new one, so the kernel should keep nothing of it.
    Snapshot,
}

/// An open file that is not finished in memory.
#[derive(Debug)]
pub struct Growing {
    size: u64,
    /// Number of its bytes that were read.
    read: AtomicU64,
}

impl Growing {
    fn of(size: u64) -> Opening {
        Opening::Growing(Arc::new(Self { size, read: AtomicU64::new(0) }))
    }

    /// Counts bytes that were read. Returns whether the file has now been read whole.
    fn add_read(&self, bytes: u64) -> bool {
        let before = self.read.fetch_add(bytes, Relaxed);
        before < self.size && before + bytes >= self.size
    }
}

impl Vfs {
    /// How the mount serves files.
    pub fn serving(&self) -> &Serving {
        self.serving.get_or_init(Serving::default)
    }

    /// Sets, once and before it serves, how the mount serves files.
    pub fn serve_as(&self, serving: Serving) {
        if let Some(reason) = &serving.reason {
            log::info!("not in passthrough mode: {reason}");
        }
        // Fails only if it is set already, by a second mount of one `Vfs`, which does not exist.
        let _ = self.serving.set(serving);
    }

    /// Decides how a file is best opened. Decodes nothing.
    ///
    /// # Errors
    /// [`Error`] if the file no longer exists, or its container cannot be opened, and one of which
    /// [`Error::is_would_block`] is true for a caller who would have to wait longer than `wait`.
    pub fn opening(&self, ino: u64, wait: Wait) -> Result<Opening, Error> {
        match self.node_with(ino, wait)? {
            Node::SourceFile(..) if wait == Wait::Never => Err(Error::would_block(Wait::Disk)),
            Node::SourceFile(path, file) => self.files.descriptor(&path, file).map(Opening::Own),
            Node::ControlFile(_) => Ok(Opening::Snapshot),
            node @ (Node::SourceFolder(_)
            | Node::SourceLink(_)
            | Node::ControlFolder
            | Node::InContainer(_, crate::tree::ROOT)) => Err(Error::is_a_folder(self.place(&node))),
            Node::InContainer(id, file) => {
                // A finished file is served only while its container is in the state that it was made from.
                if self.opened(&id, wait)?.is_own_file(file) {
                    return Ok(Opening::Parts);
                }
                if let Some(slot) = self.cache().file(ino) {
                    let size = slot.memory().size();
                    return Ok(if slot.is_whole() { Opening::Finished(slot) } else { Growing::of(size) });
                }
                let largest = self.cache().largest_file();
                self.with_view(ino, wait, |view, reader| {
                    if view.size() < limits::MEMORY_FILE || view.layout(reader) == Layout::Work {
                        return Ok(Opening::Parts);
                    }
                    if view.may_be_on_disk(reader) {
                        if wait == Wait::Never {
                            return Err(Error::would_block(Wait::Disk));
                        }
                        if let Some(file) = view.on_disk(reader) {
                            return Ok(Opening::Own(file));
                        }
                    }
                    Ok(if view.size() <= largest { Growing::of(view.size()) } else { Opening::Parts })
                })?
            }
        }
    }

    /// Returns bytes of an opened file that is not finished in memory. The first reader of a compressed file starts to
    /// finish it. All other files are started once they were read whole, so that the next `open` finds them finished.
    /// Otherwise the same as [`Self::read_with`].
    ///
    /// # Errors
    /// As [`Self::read_with`].
    pub fn read_growing(
        &self,
        ino: u64,
        growing: &Growing,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<Bytes, Error> {
        let bytes = self.read_unfinished(ino, offset, length, wait)?;
        if growing.add_read(bytes.as_syscall_buf().len() as u64)
            && let Err(error) = self.finish_file(ino, true)
        {
            log::debug!("{error}");
        }
        Ok(bytes)
    }

    fn read_unfinished(&self, ino: u64, offset: u64, length: u64, wait: Wait) -> Result<Bytes, Error> {
        let mut slot = self.cache().file(ino);
        if slot.is_none() && matches!(self.node_with(ino, wait)?, Node::InContainer(..)) {
            match self.with_view(ino, wait, |view, reader| view.layout(reader))? {
                Layout::Decode { .. } if wait != Wait::Always => return Err(Error::would_block(Wait::Always)),
                Layout::Decode { in_pieces } => slot = self.finish_file(ino, in_pieces)?,
                Layout::Copy | Layout::Work => {}
            }
        }
        if let Some(slot) = slot {
            // Readers ask for bytes after the end to see that it is there; that waits for nothing.
            let end = offset.saturating_add(length).min(slot.memory().size());
            let is_ready = offset >= end || slot.is_ready(&(offset..end));
            // Bytes that are only copied can be served from where they are.
            let is_copied = !is_ready && self.with_view(ino, wait, |view, reader| view.layout(reader))? == Layout::Copy;
            if !is_ready && !is_copied && wait != Wait::Always {
                return Err(Error::would_block(Wait::Always));
            }
            // If it failed, its blocks report what is wrong, and where.
            if !is_copied
                && (offset >= end || slot.wait_for(end))
                && let Ok(bytes) = Bytes::in_memory(&slot, offset, length)
            {
                self.requests.bytes_read.fetch_add(bytes.as_syscall_buf().len() as u64, Relaxed);
                return Ok(bytes);
            }
        }
        self.read_with(ino, offset, length, wait)
    }

    /// Makes a plain file in the disk cache, which the kernel can read directly. Returns whether it exists now.
    /// Otherwise the caller should read the file, which keeps its blocks or reports what is wrong with them.
    ///
    /// # Errors
    /// As [`Self::opening`].
    pub(crate) fn keep_file(&self, ino: u64) -> Result<bool, Error> {
        let (is_meant, is_there) = self.with_view(ino, Wait::Always, |view, reader| {
            let is_meant = view.size() >= limits::MEMORY_FILE && view.may_be_on_disk(reader);
            (is_meant, is_meant && view.on_disk(reader).is_some())
        })?;
        if is_there || !is_meant {
            return Ok(is_there);
        }
        let made = self.finish_file(ino, false)?;
        // Nobody opens it now, and reusing its memory costs less than more memory.
        self.cache().forget_file(ino);
        Ok(made.is_some_and(|slot| slot.is_whole()))
    }

    /// Lays a file out in memory, on this thread or on one of its own. `None` if there is no room, or if it is being
    /// done already.
    ///
    /// # Errors
    /// If the container cannot be opened.
    fn finish_file(&self, ino: u64, in_background: bool) -> Result<Option<Arc<FileSlot>>, Error> {
        let (view, reader) = self.with_view(ino, Wait::Always, |view, reader| (view.clone(), reader.clone()))?;
        let cache = self.cache().clone();
        let Some(slot) = cache.start_file(ino, view.size()) else { return Ok(cache.file(ino)) };
        let fill = {
            let slot = slot.clone();
            move || {
                slot.run(|| view.lay_out(&reader, &slot));
                cache.end_file(ino, &slot);
            }
        };
        if in_background {
            pool().run(Place::Task("files in memory"), Arc::default(), fill);
        } else {
            fill();
        }
        Ok(Some(slot))
    }

    fn with_view<T>(&self, ino: u64, wait: Wait, work: impl FnOnce(&View, &ReadContext) -> T) -> Result<T, Error> {
        let node = self.node_with(ino, wait)?;
        let Node::InContainer(id, file) = &node else { return Err(Error::is_a_folder(self.place(&node))) };
        self.in_file(id, *file, wait, |view, opened| Ok(work(view, opened.reader(wait))))
    }
}
