//! Where containers are: a folder of this machine, or an address; and the cache that all of them share.

use std::{ffi::OsString, fs, path::PathBuf, sync::Arc};

use pyo3::{exceptions::PyValueError, prelude::*};
use shardfs::{FollowLinks, Verify};

use crate::{
    error::{detached, guarded},
    node::Node,
    owned::Owned,
    waiting::{is_far, waited},
};

/// A budget in bytes for decoded blocks.
#[pyclass(module = "shardfs._core", frozen)]
pub(crate) struct Cache(Owned<shardfs::Cache>);

#[pymethods]
impl Cache {
    /// A cache of `size` bytes; without a number an eighth of the machine's memory, at most 4 GiB.
    #[new]
    #[pyo3(signature = (size=None))]
    fn new(py: Python<'_>, size: Option<u64>) -> PyResult<Self> {
        let made = guarded(py, || {
            let size = size.unwrap_or_else(shardfs::Cache::default_size);
            shardfs::Cache::new(size, Verify::Lazy)
        });
        Ok(Self(Owned::new(made?)))
    }

    /// The budget in bytes, and how much of it is in use.
    fn usage(&self) -> PyResult<(u64, u64)> {
        Ok(self.0.get()?.usage())
    }
}

/// A folder or one container, as a mount would show it.
#[pyclass(module = "shardfs._core", frozen)]
pub(crate) struct Volume {
    volume: Owned<shardfs::Volume>,
    source: Arc<str>,
}

#[pymethods]
impl Volume {
    /// Opens a folder, a container, or an address; `formats` says which formats are shown as folders, `follow_links` which
    /// symbolic links are followed. Of an address, the server is asked no more than a path in it needs.
    #[new]
    #[pyo3(signature = (source, cache, formats=None, path=PathBuf::new(), follow_links="no"))]
    fn new(
        py: Python<'_>,
        source: &str,
        cache: &Cache,
        formats: Option<&str>,
        path: PathBuf,
        follow_links: &str,
    ) -> PyResult<Self> {
        let follow = match follow_links {
            "outside" => FollowLinks::Outside,
            "inside" => FollowLinks::Inside,
            _ => FollowLinks::No,
        };
        let options = with_formats(formats)?.cache(cache.0.get()?).follow_links(follow).for_path(&path);
        // Without the login or token of an address.
        let shown: Arc<str> = shardfs::shown(std::path::Path::new(source)).to_string_lossy().into();
        let volume = if is_far(source) {
            let source = source.to_owned();
            waited(py, &shown, move || options.open(source))?
        } else {
            detached(py, &shown, || options.open(source))?
        };
        Ok(Self { volume: Owned::new(volume), source: shown })
    }

    /// The node at a path below the top; the top itself for an empty path. `anew` checks the files of a folder that is a
    /// container even if that was done a moment ago.
    #[pyo3(signature = (path, anew=false))]
    fn get(&self, py: Python<'_>, path: PathBuf, anew: bool) -> PyResult<Node> {
        let volume = self.volume.get()?.clone();
        let look = move || if anew { volume.get(path) } else { volume.root()?.get(path) };
        let entry =
            if is_far(&self.source) { waited(py, &self.source, look)? } else { detached(py, &self.source, look)? };
        Ok(Node::new(entry, self.source.clone()))
    }

    /// Whether it was opened for such a path.
    fn is_for(&self, path: PathBuf) -> PyResult<bool> {
        Ok(self.volume.get()?.is_for(&path))
    }

    /// Closes files that are gone or were replaced.
    fn sweep(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.volume.get()?;
        guarded(py, || volume.sweep())
    }
}

/// The container formats: name, suffixes, whether they are shown by default, and a line about each.
#[pyfunction]
pub(crate) fn formats() -> Vec<(&'static str, Vec<&'static str>, bool, &'static str)> {
    let row = |format: shardfs::FormatInfo| {
        let suffixes = format.suffixes.iter().chain(format.shared_suffixes).copied().collect();
        (format.name, suffixes, format.is_default, format.summary)
    };
    shardfs::formats().map(row).collect()
}

/// Whether a file is a container by its first 4 KiB, its size and its name: `None`, 'maybe' or 'meant'.
#[pyfunction]
pub(crate) fn likeness(py: Python<'_>, front: &[u8], size: u64, name: &str) -> PyResult<Option<&'static str>> {
    Ok(match guarded(py, || shardfs::likeness(front, size, name))? {
        shardfs::Likeness::None => None,
        shardfs::Likeness::Maybe => Some("maybe"),
        shardfs::Likeness::Meant => Some("meant"),
    })
}

/// The address of the folder around an address, and the name there; None for a whole store.
#[pyfunction]
pub(crate) fn parent(py: Python<'_>, source: PathBuf) -> PyResult<Option<(OsString, OsString)>> {
    guarded(py, || shardfs::parent(&source).map(|(folder, name)| (folder.into_os_string(), name)))
}

/// The address of the folder to open for an address, and the path in it; None for a whole store.
#[pyfunction]
#[pyo3(signature = (source, formats=None))]
pub(crate) fn place(py: Python<'_>, source: PathBuf, formats: Option<&str>) -> PyResult<Option<(OsString, OsString)>> {
    let options = with_formats(formats)?;
    let strings = |(folder, path): (PathBuf, PathBuf)| (folder.into_os_string(), path.into_os_string());
    guarded(py, || options.place(&source).map(strings))
}

/// Options with these formats, or the default ones.
fn with_formats(formats: Option<&str>) -> PyResult<shardfs::OpenOptions> {
    let options = shardfs::Volume::options();
    let Some(list) = formats else { return Ok(options) };
    options.formats(list).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// An address as it may be shown: without a login or token.
#[pyfunction]
pub(crate) fn shown(py: Python<'_>, source: PathBuf) -> PyResult<OsString> {
    guarded(py, || shardfs::shown(&source).into_os_string())
}

/// A path without links and dots; None if there is nothing.
#[pyfunction]
pub(crate) fn real_path(py: Python<'_>, path: PathBuf) -> PyResult<Option<OsString>> {
    guarded(py, || fs::canonicalize(path).ok().map(PathBuf::into_os_string))
}
