//! The files of `meta/`, shown unchanged.

use std::{fmt, ops::Range, sync::Arc};

use super::{Lerobot, episodes};
use crate::{
    source::Source,
    view::{Bytes, Fault, ReadContext, Rendered, View},
};

/// The files of `meta/` that are shown.
pub(super) const META: [&str; 6] =
    ["episodes.jsonl", "episodes_stats.jsonl", "info.json", "stats.json", "tasks.jsonl", "tasks.parquet"];

impl Lerobot {
    /// Opens a file of `meta/`, if it is there.
    pub(super) fn meta_file(&self, reader: &ReadContext, number: usize) -> Result<Option<Arc<dyn Source>>, Fault> {
        let Some(name) = META.get(number) else { return Ok(None) };
        reader.may_read()?;
        Ok(episodes::open(&*self.siblings, &format!("meta/{name}"))?.ok())
    }
}

/// Returns the bytes of another file.
pub(super) fn view(source: Arc<dyn Source>) -> View {
    View::default().with_rendered(source.len(), File(source))
}

/// The bytes of another file.
struct File(Arc<dyn Source>);

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a file of {} bytes", self.0.len())
    }
}

impl Rendered for File {
    fn is_copy(&self) -> bool {
        true
    }

    fn borrow(&self, reader: &ReadContext, part: Range<u64>) -> Result<Option<Bytes>, Fault> {
        Ok(reader.with_source(self.0.clone()).source.mapped(part, reader.wait()).map(Bytes::Mapped))
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        reader.with_source(self.0.clone()).fill_stored(None, part.start, out)
    }
}
