//! A folder in memory that is a container: the marker is opened, and its tree reads the other files.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    ops::ControlFlow,
    path::Path,
    sync::Arc,
};

use shardfs::{
    cache::{BlockError, Cache, Verify},
    source::{Source, SourceError},
    tree::{Format, OpenPart, Reach, Siblings},
    view::ReadContext,
};

use crate::common::container::Opened;

/// Files by their paths below the folder.
#[derive(Clone, Default)]
pub(crate) struct Folder(pub(crate) BTreeMap<String, Arc<Vec<u8>>>);

impl Folder {
    /// Reads a folder of this machine.
    pub(crate) fn read(root: &Path) -> Self {
        let (mut files, mut folders) = (BTreeMap::new(), vec![root.to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, Arc::new(fs::read(path).unwrap()));
            }
        }
        Self(files)
    }

    /// Opens it as a container of a format; `None` if it is none.
    pub(crate) fn open(&self, format: &'static Format) -> Option<Opened> {
        let marker = format.markers.iter().find(|marker| self.0.contains_key(**marker))?;
        let source = self.0[*marker].clone();
        let cache = Cache::with_bound(1 << 20, u64::MAX, Verify::Lazy, None);
        let reader = ReadContext::new(source, cache, 0);
        (format.probe)(&*reader.source, marker.as_bytes(), &shardfs::source::Unlimited).ok()?;
        let tree = format.open(&reader, Some(Arc::new(self.clone()))).ok()?;
        Some(Opened { tree, reader })
    }
}

impl Siblings for Folder {
    fn file(&self, path: &str) -> Result<Option<Arc<dyn Source>>, BlockError> {
        Ok(self.0.get(path).map(|bytes| bytes.clone() as Arc<dyn Source>))
    }

    fn names(&self, path: &str, each: &mut dyn FnMut(&OsStr) -> ControlFlow<()>) -> Result<(), BlockError> {
        let prefix = format!("{path}/");
        let below = self.0.keys().filter_map(|name| name.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|name| name.split('/').next()).collect();
        let _ = names.into_iter().try_for_each(|name| each(name.as_ref()));
        Ok(())
    }

    fn open(&self, _: &str, _: Reach) -> Result<Arc<dyn OpenPart>, BlockError> {
        Err(BlockError::Refused("there is none".into()))
    }

    fn sha256(&self, _: &dyn OpenPart) -> Result<[u8; 32], SourceError> {
        Ok([0; 32])
    }
}
