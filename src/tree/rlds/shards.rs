//! The files of a container. They are opened and indexed when a record in them is read.

use std::sync::Arc;

use crate::{
    cache::{BlockError, Key, Tag},
    format::tfrecord::Index,
    source::Source,
    tree::{
        Siblings,
        memory::{Opened, open_once, with_memory},
    },
    view::{Fault, ReadContext},
};

/// One file of records.
pub(super) struct Shard {
    pub(super) source: Arc<dyn Source>,
    pub(super) index: Index,
    /// Its number in the container.
    pub(super) number: u64,
}

/// A file without records.
impl Default for Shard {
    fn default() -> Self {
        Self { source: Arc::new(Vec::new()), index: Index::default(), number: 0 }
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "shard {}", self.number)
    }
}

/// Tag in the cache of open files, by their numbers.
const SHARD: Tag = Tag::Parsed(0);

/// Returns the container's own file.
pub(super) fn own(reader: &ReadContext) -> Result<Opened<Shard>, Fault> {
    get(reader, 0, || Ok(Some(reader.source.clone())))
}

/// Returns another file of a container by its name and number.
pub(super) fn named(
    reader: &ReadContext,
    files: &dyn Siblings,
    name: &str,
    number: u64,
) -> Result<Opened<Shard>, Fault> {
    get(reader, number, || files.file(name))
}

fn get(
    reader: &ReadContext,
    number: u64,
    open: impl Fn() -> Result<Option<Arc<dyn Source>>, BlockError>,
) -> Result<Opened<Shard>, Fault> {
    open_once(reader, Key::new(reader.container, SHARD, number, 0), || {
        let source = match open() {
            Ok(Some(source)) => source,
            Ok(None) => return Ok(Err("its file is not there".into())),
            Err(BlockError::Refused(reason)) => return Ok(Err(reason.into())),
            Err(error) => return Err(error.into()),
        };
        let (index, room) = with_memory(&reader.cache, |memory| {
            let index = Index::read(&*source, &memory)?;
            let room = memory.keep(index.memory_usage() as u64)?;
            Ok((index, room))
        })?;
        Ok(Ok((Shard { source, index, number }, room)))
    })
}
