//! `.source`: what lies in a folder that is shown as a container.
//!
//! Paths below it are those of the folder with one name more, which no file can have: a zero byte and the name of the
//! format. Below it, that format recognises no folder.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    io,
    ops::Deref,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use super::{File, FilePath, Folder, Stat, Store, Watch};
use crate::source::Wait;

/// The name in the root of a container that is a folder.
pub(crate) const NAME: &str = ".source";

/// Returns the path of `.source` in a folder.
pub(crate) fn of(folder: &Path, format: &str) -> PathBuf {
    folder.join(format!("\0{format}"))
}

/// Returns whether a name is `.source` in a path.
fn is_mark(name: &[u8]) -> bool {
    name.first() == Some(&0)
}

/// Returns whether a path leads through a path that [`of`] made.
fn is_marked(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains(&0)
}

/// Returns whether a path lies in the `.source` of a container of this format.
pub(crate) fn is_within(path: &FilePath, format: &str) -> bool {
    let is_own = |part: Component<'_>| match part.as_os_str().as_bytes() {
        [0, name @ ..] => name == format.as_bytes(),
        _ => false,
    };
    let parts = || path.folder().components().chain([Component::Normal(path.name())]);
    path.parts().iter().any(|part| part.contains(&0)) && parts().any(is_own)
}

/// Returns the folder that a path is the `.source` of.
pub(crate) fn container_of(path: &Path) -> Option<&Path> {
    path.file_name().filter(|name| is_mark(name.as_bytes())).and_then(|_| path.parent())
}

/// Returns the path at which the store has what a path names.
pub(crate) fn stored(path: &Path) -> Cow<'_, Path> {
    match is_marked(path) {
        true => path.iter().filter(|name| !is_mark(name.as_bytes())).collect::<PathBuf>().into(),
        false => path.into(),
    }
}

/// Returns a path as users see it.
pub(crate) fn shown(path: PathBuf) -> PathBuf {
    match is_marked(&path) {
        true => path.iter().map(|name| if is_mark(name.as_bytes()) { OsStr::new(NAME) } else { name }).collect(),
        false => path,
    }
}

/// A store, with `.source`. What takes no path is the store's own.
pub(crate) struct Unveiled {
    store: Arc<dyn Store>,
    /// Whether other users than that of this process read, too.
    pub(crate) is_for_others: bool,
}

impl Deref for Unveiled {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Unveiled {
    pub(crate) fn new(store: Arc<dyn Store>, is_for_others: bool) -> Self {
        Self { store, is_for_others }
    }

    pub(crate) fn stat(&self, path: &Path, wait: Wait) -> io::Result<Option<Stat>> {
        self.store.stat(&stored(path), wait)
    }

    pub(crate) fn expect(&self, path: &Path) {
        self.store.expect(&stored(path));
    }

    pub(crate) fn expect_in(&self, folder: &Path, names: &[&OsStr], lists: bool) -> io::Result<()> {
        self.store.expect_in(&stored(folder), names, lists)
    }

    pub(crate) fn name_of(&self, folder: &Path, part: &OsStr) -> OsString {
        self.store.name_of(&stored(folder), part)
    }

    pub(crate) fn part_of(&self, folder: &Path, name: &OsStr) -> OsString {
        self.store.part_of(&stored(folder), name)
    }

    pub(crate) fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder + '_>> {
        self.store.folder(&stored(path))
    }

    pub(crate) fn open(&self, path: &Path, wait: Wait) -> io::Result<Arc<dyn File>> {
        self.store.open(&stored(path), wait)
    }

    pub(crate) fn read_link(&self, path: &Path) -> io::Result<OsString> {
        self.store.read_link(&stored(path))
    }

    pub(crate) fn without_links(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        self.store.without_links(&stored(path))
    }

    pub(crate) fn watch(&self, folder: &Path, wait: Wait) -> Watch {
        self.store.watch(&stored(folder), wait)
    }
}
