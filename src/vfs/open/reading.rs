//! Reading files.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    source::{Leased, Wait},
    vfs::{Error, Node, Vfs, report::slow::Operation},
    view::Bytes,
};

impl Vfs {
    /// Returns at most `length` bytes of a file from an offset on; fewer only at the end.
    ///
    /// # Errors
    /// [`Error`] if any block that the range touches fails, or the container has changed.
    pub fn read(&self, ino: u64, offset: u64, length: u64) -> Result<Bytes, Error> {
        self.read_with(ino, offset, length, Wait::Always)
    }

    /// Does the same as [`Self::read`], for a caller that waits for no more than `wait`.
    ///
    /// # Errors
    /// As [`Self::read`], and one of which [`Error::is_would_block`] is true.
    pub fn read_with(&self, ino: u64, offset: u64, length: u64, wait: Wait) -> Result<Bytes, Error> {
        let _timer = self.time_operation(Operation::Read, ino, None);
        let node = self.node_with(ino, wait)?;
        let bytes = match &node {
            Node::SourceFile(..) if wait == Wait::Never => return Err(Error::would_block(Wait::Disk)),
            Node::SourceFile(path, file) => self.files.read(path, *file, offset, length)?,
            Node::ControlFile(snapshot) => snapshot.read(offset, length),
            Node::InContainer(id, file) => self.in_file(id, *file, wait, |view, opened| {
                let bytes = view.read_at(opened.reader(wait), offset, length)?;
                view.decode_ahead(&opened.reader, offset.saturating_add(length));
                Ok(bytes)
            })?,
            Node::SourceFolder(_) | Node::SourceLink(_) | Node::ControlFolder => {
                return Err(Error::is_a_folder(self.place(&node)));
            }
        };
        self.requests.bytes_read.fetch_add(bytes.as_syscall_buf().len() as u64, Relaxed);
        Ok(bytes)
    }

    /// Returns bytes of a file in memory of their own, which this process may look at. Never lent from a map, so each
    /// byte was really read.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_copied(&self, ino: u64, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        self.read_copied_with(ino, offset, length, Wait::Always)
    }

    /// Does the same as [`Self::read_copied`], for a caller that waits for no more than `wait`.
    ///
    /// # Errors
    /// As [`Self::read_copied`], and one of which [`Error::is_would_block`] is true.
    pub fn read_copied_with(&self, ino: u64, offset: u64, length: u64, wait: Wait) -> Result<Vec<u8>, Error> {
        let node = self.node_with(ino, wait)?;
        match &node {
            Node::InContainer(id, file) => {
                self.in_file(id, *file, wait, |view, opened| view.copy_at(opened.reader(wait), offset, length))
            }
            Node::SourceFile(..) if wait == Wait::Never => Err(Error::would_block(Wait::Disk)),
            Node::SourceFile(path, file) => self.files.read_copied(path, *file, offset, length),
            Node::ControlFile(snapshot) => Ok(snapshot.read(offset, length).as_syscall_buf().to_vec()),
            _ => Err(Error::is_a_folder(self.place(&node))),
        }
    }

    /// Returns bytes from `offset` on in place; see [`crate::view::View::leased`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn leased(&self, ino: u64, offset: u64, length: u64) -> Result<Option<Leased>, Error> {
        let Node::InContainer(id, file) = self.node(ino)? else { return Ok(None) };
        self.in_file(&id, file, Wait::Always, |view, opened| view.leased(&opened.reader, offset, length))
    }

    /// Fills `out` with the bytes from `offset` on, and returns how many there were before the end. For readers who
    /// keep what they read: the cache keeps nothing of blocks that lie whole in the range.
    ///
    /// # Errors
    /// As [`Self::read`]; `out` then holds anything.
    pub fn read_into(&self, ino: u64, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        let node = self.node(ino)?;
        let Node::InContainer(id, file) = &node else {
            let bytes = self.read_copied(ino, offset, out.len() as u64)?;
            out[..bytes.len()].copy_from_slice(&bytes);
            return Ok(bytes.len());
        };
        self.in_file(id, *file, Wait::Always, |view, opened| {
            let length = view.size().saturating_sub(offset).min(out.len() as u64) as usize;
            view.fill_kept(&opened.reader, offset, &mut out[..length])?;
            Ok(length)
        })
    }
}
