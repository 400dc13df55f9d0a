//! Parquet files, of SOURCE and of containers, as tables.

use std::{io, ops::Range, path::PathBuf, sync::Arc};

use super::{Entry, Error, ErrorKind};
use crate::{
    cache::BlockError,
    source::{Source, SourceError, Wait},
    tree::{Cells, FileColumn, TableFile},
    vfs::Apart,
    view::Fault,
};

/// A Parquet file. Decoded pages are kept as long as it is open.
pub(crate) struct Table {
    file: TableFile,
    apart: Apart,
    path: PathBuf,
}

impl Table {
    /// Reads the footer of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it is no Parquet file, and those of reading it.
    pub(crate) fn open(file: &Entry) -> Result<Self, Error> {
        let (path, source): (_, Arc<dyn Source>) = (file.path().to_owned(), Arc::new(Shown(file.clone())));
        let apart = file.apart(source.clone());
        let name = file.name().to_string_lossy();
        let file = TableFile::open(apart.reader(), source, &name).map_err(|fault| error(&path, &fault))?;
        Ok(Self { file, apart, path })
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.file.rows()
    }

    /// Returns the columns: the leaves of the schema.
    pub(crate) fn columns(&self) -> impl Iterator<Item = FileColumn> {
        (0..self.file.width()).filter_map(|number| self.file.column(number))
    }

    /// Returns some rows of a column, at most `values` values of each and `bytes` bytes of a value.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if one of them cannot be decoded, and those of reading the file.
    pub(crate) fn read(
        &self,
        column: usize,
        rows: Range<u64>,
        values: usize,
        bytes: usize,
    ) -> Result<Vec<Cells>, Error> {
        let read = self.file.read(self.apart.reader(), column, rows, values, bytes);
        read.map_err(|fault| error(&self.path, &fault))
    }
}

fn error(path: &std::path::Path, fault: &Fault) -> Error {
    let kind = match &*fault.error {
        BlockError::Source(SourceError::Changed) => ErrorKind::Changed,
        error if error.refused_memory().is_some() => ErrorKind::OutOfMemory,
        error if error.is_damage() => ErrorKind::Damaged,
        _ => ErrorKind::Io,
    };
    let place = fault.place().map_or_else(String::new, |at| format!("byte {at}: "));
    Error::new(kind, format!("{}: {place}{}", path.display(), fault.error))
}

/// The bytes of a file as readers see it.
struct Shown(Entry);

impl Source for Shown {
    fn len(&self) -> u64 {
        self.0.size()
    }

    fn reserves(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        let (start, end, len) = (offset, offset.saturating_add(buf.len() as u64), self.len());
        if end > len {
            return Err(SourceError::OutOfRange { start, end, len });
        }
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let read = self.0.read_copied(offset + done as u64, rest.len() as u64, wait);
            let bytes = read.map_err(|error| match error.errno() {
                _ if error.is_would_block() => SourceError::WouldBlock,
                libc::ESTALE => SourceError::Changed,
                _ => SourceError::Io(io::Error::from(Error::from(error))),
            })?;
            if bytes.is_empty() {
                return Err(SourceError::Changed);
            }
            rest.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
            done += bytes.len();
        }
        Ok(())
    }
}
