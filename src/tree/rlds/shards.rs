//! The files of a container. They are opened and indexed when a record in them is read.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::{
    cache::{BlockError, Reservation, nonzero},
    format::tfrecord::Index,
    source::Source,
    tree::{Siblings, memory::with_memory},
    view::{Fault, ReadContext},
};

/// Most files that are kept open and indexed. The newest is always kept.
const KEPT: usize = 32;

/// One file of records.
pub(super) struct Shard {
    pub(super) source: Arc<dyn Source>,
    pub(super) index: Index,
    /// Its number in the container.
    pub(super) number: u64,
    _room: Option<Reservation>,
}

/// A file without records.
impl Default for Shard {
    fn default() -> Self {
        Self { source: Arc::new(Vec::new()), index: Index::default(), number: 0, _room: None }
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "shard {}", self.number)
    }
}

/// A file, or why it cannot be used.
type Found = Result<Arc<Shard>, Arc<str>>;

/// The most recently used files.
pub(super) struct Shards(Mutex<LruCache<u64, Found>>);

impl Default for Shards {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(nonzero(KEPT))))
    }
}

impl Shards {
    /// Returns the container's own file.
    pub(super) fn own(&self, reader: &ReadContext) -> Result<Found, Fault> {
        self.get(reader, 0, || Ok(Some(reader.source.clone())))
    }

    /// Returns another file of a container by its name and number.
    pub(super) fn named(
        &self,
        reader: &ReadContext,
        files: &dyn Siblings,
        name: &str,
        number: u64,
    ) -> Result<Found, Fault> {
        self.get(reader, number, || files.file(name))
    }

    fn get(
        &self,
        reader: &ReadContext,
        number: u64,
        open: impl Fn() -> Result<Option<Arc<dyn Source>>, BlockError>,
    ) -> Result<Found, Fault> {
        if let Some(known) = self.0.lock().get(&number) {
            return Ok(known.clone());
        }
        reader.may_work()?;
        let source = match open() {
            Ok(Some(source)) => source,
            Ok(None) => return Ok(Err("its file is not there".into())),
            Err(BlockError::Refused(reason)) => return Ok(Err(reason.into())),
            Err(error) => return Err(Fault { block: None, offset: 0, error: Arc::new(error) }),
        };
        let (index, room) = with_memory(&reader.cache, |memory| {
            let index = Index::read(&*source, &memory)?;
            let room = memory.keep(index.memory_usage() as u64)?;
            Ok((index, room))
        })?;
        let found = Ok(Arc::new(Shard { source, index, number, _room: Some(room) }));
        self.0.lock().put(number, found.clone());
        Ok(found)
    }
}
