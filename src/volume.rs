//! The library's own face: what a mount would show of a file or folder, without a mount.

mod array;
mod attributes;
mod entry;
mod error;
mod formats;
mod links;
mod members;
mod reader;
mod search;
mod table;

#[cfg(feature = "remote")]
use std::path::PathBuf;
use std::{path::Path, sync::Arc};

pub use array::{Array, Element};
pub use attributes::AttributeValue;
pub(crate) use entry::Listed;
pub use entry::{Entries, Entry, Walk};
pub use error::{Error, ErrorKind};
pub use formats::{FormatInfo, Likeness, formats, likeness};
pub use members::{Member, MemberKind};
pub use reader::Reader;
pub(crate) use search::Met;
pub(crate) use table::Table;

#[cfg(feature = "remote")]
use crate::store::remote::{self, Purpose};
use crate::{
    cache::{self, Verify},
    tree,
    vfs::{self, FollowLinks, Problem, Vfs},
};
pub use crate::{vfs::FileKind as EntryKind, view::Slice};

/// A container, or a folder of files in which containers are folders. Shows what `shardfs mount` would show of it
/// (`docs/TREE.md`), in this process.
///
/// ```
/// # fn main() -> Result<(), shardfs::Error> {
/// let volume = shardfs::Volume::open("fixtures/ep_001.wshard")?;
/// for entry in volume.walk() {
///     let entry = entry?;
///     println!("{} {} bytes", entry.path().display(), entry.size());
/// }
/// # Ok(())
/// # }
/// ```
///
/// It is cheap to clone, and may be used by many threads at once.
#[derive(Clone)]
pub struct Volume {
    vfs: Arc<Vfs>,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("source", &self.vfs.source()).finish_non_exhaustive()
    }
}

impl Volume {
    /// Opens a folder, or one container. Nothing inside a folder is looked at yet.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and other errors of the operating system; [`ErrorKind::NotAContainer`] for a file of no
    /// known format, or one that is too damaged to be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::options().open(path)
    }

    /// Returns a volume of an opened filesystem.
    pub(crate) fn of(vfs: Arc<Vfs>) -> Self {
        Self { vfs }
    }

    /// Returns options for [`OpenOptions::open`].
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// Returns the top, a folder.
    ///
    /// # Errors
    /// Those of [`Entry::get`], if what was opened no longer exists.
    pub fn root(&self) -> Result<Entry, Error> {
        Entry::root(self.vfs.clone())
    }

    /// Returns the entry at a path below the top, also in a container: `ep_001.wshard/signal/joint_pos.npy`. The
    /// container is in its current state. If it is a folder, the files that were read of it are checked for that, at
    /// most 1,024; [`Entry::get`] checks them at most four times a second.
    ///
    /// # Errors
    /// Those of [`Entry::get`].
    pub fn get(&self, path: impl AsRef<Path>) -> Result<Entry, Error> {
        self.vfs.look_anew(path.as_ref());
        self.root()?.get(path)
    }

    /// Returns everything below the top, folders before their contents.
    pub fn walk(&self) -> Walk {
        Walk::of(self.root())
    }

    /// Returns the problems found so far: damaged blocks, and files that look like containers and cannot be opened.
    /// Bounded.
    pub fn problems(&self) -> Vec<Problem> {
        self.vfs.problems()
    }

    /// Closes files that are gone or were replaced, so that their space is given back to the disk. A mount does that every
    /// few seconds; a program that keeps a volume for long calls this now and then.
    pub fn sweep(&self) {
        self.vfs.sweep();
    }

    /// Returns whether what was asked of the server when it was opened is enough for a path; see
    /// [`OpenOptions::for_path`].
    #[cfg(feature = "remote")]
    #[doc(hidden)]
    pub fn is_for(&self, path: &Path) -> bool {
        self.vfs.is_for(path)
    }

    /// Returns the filesystem that is shown.
    pub(crate) fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }
}

/// A cache of decoded blocks that several volumes share. Cheap to clone.
///
/// ```
/// # fn main() -> Result<(), shardfs::Error> {
/// let cache = shardfs::Cache::new(256 << 20, shardfs::Verify::Lazy);
/// let episodes = shardfs::Volume::options().cache(&cache).open("fixtures/ep_001.wshard")?;
/// let tables = shardfs::Volume::options().cache(&cache).open("fixtures/table.idv")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Cache(Arc<cache::Cache>);

impl Cache {
    /// Returns a cache with a budget in bytes. `verify` says when the checksums of what is read through it are
    /// verified.
    pub fn new(bytes: u64, verify: Verify) -> Self {
        Self(cache::Cache::new(bytes, verify))
    }

    /// Returns the default budget of `shardfs mount`: an eighth of the machine's memory, between 64 MiB and 4 GiB.
    pub fn default_size() -> u64 {
        cache::default_budget()
    }

    /// Returns the budget in bytes, and how much of it is in use.
    pub fn usage(&self) -> (u64, u64) {
        self.0.usage()
    }
}

/// How a [`Volume`] is opened.
///
/// ```
/// # fn main() -> Result<(), shardfs::Error> {
/// let volume = shardfs::Volume::options().cache_size(64 << 20).verify(shardfs::Verify::Strict).open("fixtures")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions(vfs::Options);

impl Default for OpenOptions {
    fn default() -> Self {
        // Changes are not watched: each read compares the file's state.
        Self(vfs::Options { watch: false, for_others: false, ..vfs::Options::default() })
    }
}

impl OpenOptions {
    /// Uses a cache that is shared with other volumes. Its budget and `verify` apply.
    #[must_use]
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.0.cache = Some(cache.0.clone());
        self
    }

    /// Sets the budget in bytes of the cache of decoded blocks; by default that of `shardfs mount`.
    #[must_use]
    pub fn cache_size(mut self, bytes: u64) -> Self {
        self.0.cache_size = bytes;
        self
    }

    /// Sets when checksums are verified; by default [`Verify::Lazy`].
    #[must_use]
    pub fn verify(mut self, verify: Verify) -> Self {
        self.0.verify = verify;
        self
    }

    /// Sets which symbolic links are shown as their targets; by default [`FollowLinks::No`].
    #[must_use]
    pub fn follow_links(mut self, follow: FollowLinks) -> Self {
        self.0.follow_links = follow;
        self
    }

    /// Sets which formats are shown as folders: names separated by commas, or names with `+` or `-` in front, which are
    /// added to or removed from the default. The commands have it as `--formats`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a name that no format has; the message lists them.
    pub fn formats(mut self, list: &str) -> Result<Self, Error> {
        self.0.formats = tree::choose(list).map_err(|why| Error::new(ErrorKind::InvalidInput, why.to_string()))?;
        Ok(self)
    }

    /// Sets the path for which a folder of a server is opened, after the formats. The server is asked for no more.
    #[cfg(feature = "remote")]
    #[doc(hidden)]
    #[must_use]
    pub fn for_path(mut self, path: &Path) -> Self {
        self.0.remote.opened_for = match path == Path::new("") {
            true => Purpose::Folder,
            false if tree::begins_with_container(self.0.formats, path) => Purpose::Container,
            false => Purpose::Path,
        };
        self
    }

    /// Returns the URL of the folder to open for a URL, and the path in it: from the first name on that is a container's, or
    /// the last one. `None` for a whole store, and for what is no URL.
    #[cfg(feature = "remote")]
    #[doc(hidden)]
    pub fn place(&self, url: &Path) -> Option<(PathBuf, PathBuf)> {
        remote::place(url, |name| tree::is_container_name(self.0.formats, name))
    }

    /// Opens a folder, or one container.
    ///
    /// # Errors
    /// Those of [`Volume::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume, Error> {
        let vfs = Vfs::open(path.as_ref(), self.0.clone()).map_err(Error::of_opening)?;
        Ok(Volume { vfs: Arc::new(vfs) })
    }
}

/// A node that was looked up. Dropping the last clone gives the look-up back, so that no inode number is kept for
/// nothing.
struct Handle {
    vfs: Arc<Vfs>,
    ino: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.vfs.forget(self.ino, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_are_given_back() {
        let volume = Volume::open("fixtures").unwrap();
        let held: Vec<Entry> = volume.walk().map(|entry| entry.unwrap()).collect();
        assert!(held.len() > 100, "{} entries", held.len());
        let numbers: Vec<u64> = held.iter().map(Entry::ino).collect();
        let again = volume.get("ep_001.wshard/signal/joint_pos.npy").unwrap();
        let clone = again.clone();
        drop((held, again));
        let known = |ino: &&u64| volume.vfs.attr(**ino).is_ok();
        assert_eq!(numbers.iter().filter(known).collect::<Vec<_>>(), [&clone.ino()]);
        assert_eq!(clone.read().unwrap().len() as u64, clone.size());
        drop(clone);
        assert_eq!(numbers.iter().filter(known).count(), 0);
    }
}
