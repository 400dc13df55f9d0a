//! Links inside containers, followed where no kernel does it: for the library, Python, HTTP, WebDAV and the commands.

use std::path::{Component, Path};

use super::{Entry, EntryKind, Error, ErrorKind};

/// Most links that are followed one after the other.
const LINKS: usize = 16;

impl Entry {
    /// Returns the entry at a path below this folder, including hidden ones (`.raw` in Shard files, `.file`). Links inside
    /// containers are followed, and the entry keeps the path by which it was found. A link that leads nowhere is returned
    /// itself.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist, [`ErrorKind::InvalidInput`] for a path that is absolute or has
    /// `..`, and those of opening a container on the way.
    pub fn get(&self, path: impl AsRef<Path>) -> Result<Self, Error> {
        self.along(path.as_ref(), &mut LINKS.clone())
    }

    /// Returns what a link in a container leads to, through up to 16 others; what is no link is returned as it is.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it leads nowhere, and those of [`Self::get`].
    pub fn followed(&self) -> Result<Self, Error> {
        self.behind(&mut LINKS.clone())
    }

    /// Returns what is behind a link in a container by the path of the link; everything else, and a link that leads
    /// nowhere, as it is.
    ///
    /// # Errors
    /// Those of [`Self::get`].
    pub(crate) fn or_behind(self) -> Result<Self, Error> {
        self.unless_dangling(&mut LINKS.clone())
    }

    /// Walks along a path, where `left` more links may be followed.
    fn along(&self, path: &Path, left: &mut usize) -> Result<Self, Error> {
        let mut at = self.clone();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => {
                    let found = at.child(name)?.ok_or_else(|| {
                        Error::new(ErrorKind::NotFound, format!("{}: no such entry", at.path().join(name).display()))
                    })?;
                    at = found.unless_dangling(left)?;
                }
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    let reason = format!("{}: not a path below a folder", path.display());
                    return Err(Error::new(ErrorKind::InvalidInput, reason));
                }
            }
        }
        at.entered()
    }

    fn unless_dangling(self, left: &mut usize) -> Result<Self, Error> {
        if self.kind() != EntryKind::Link || self.format()?.is_none() {
            return Ok(self);
        }
        match self.behind(left) {
            Ok(found) => Ok(found.found_by_link(self.path())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotAFolder) => Ok(self),
            Err(error) => Err(error),
        }
    }

    /// Returns what a link in a container leads to, where `left` more links may be followed.
    fn behind(&self, left: &mut usize) -> Result<Self, Error> {
        if self.kind() != EntryKind::Link || self.format()?.is_none() {
            return Ok(self.clone());
        }
        let nowhere = |why: &str| Error::new(ErrorKind::NotFound, format!("{}: {why}", self.path().display()));
        *left = left.checked_sub(1).ok_or_else(|| nowhere("too many links lead to others"))?;
        // From where the link stands, whatever links led to it.
        let mut path = self.standing();
        path.pop();
        for part in self.link_target()?.components() {
            match part {
                Component::ParentDir if !path.pop() => return Err(nowhere("the link leads out of what is shown")),
                Component::Normal(name) => path.push(name),
                _ => {}
            }
        }
        let found = self.top()?.along(&path, left)?;
        // No link of a container shows what is in none.
        match found.kind() != EntryKind::Link && found.format()?.is_some() {
            true => Ok(found),
            false => Err(nowhere("the link leads nowhere")),
        }
    }
}
