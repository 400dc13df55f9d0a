//! Following links of containers, for readers without a kernel that does it: the library, Python, HTTP, WebDAV.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use super::{Attr, Error, FileKind, ROOT, Vfs};

/// Most links on the way to a place; as many as Linux follows.
const HOPS: usize = 40;

impl Vfs {
    /// Returns what a link of a container leads to, and the path of that below SOURCE. `path` is that of the link, without
    /// links on the way. What it leads to counts as looked up. `None` if the link dangles, goes in circles, or is one of
    /// SOURCE.
    ///
    /// # Errors
    /// [`Error`] if a folder or link on the way cannot be read.
    pub fn follow(&self, path: &Path, link: &Attr) -> Result<Option<(Attr, PathBuf)>, Error> {
        if link.kind != FileKind::Link || self.format(link.ino)?.is_none() {
            return Ok(None);
        }
        // The folders on the way, each looked up once, and the name of each.
        let mut way: Vec<(Attr, OsString)> = Vec::new();
        let arrived = self.walk_to(path, link, &mut way);
        let last = if let Ok(true) = arrived { way.pop() } else { None };
        let found = match &last {
            Some((attr, name)) => {
                let names = way.iter().map(|(_, name)| name).chain([name]);
                Some((*attr, names.collect()))
            }
            None if matches!(arrived, Ok(true)) => Some((self.attr(ROOT)?, PathBuf::new())),
            None => None,
        };
        way.iter().for_each(|(attr, _)| self.forget(attr.ino, 1));
        arrived?;
        // No link of a container shows what is in none.
        match found {
            Some((attr, _)) if self.format(attr.ino)?.is_none() => {
                if last.is_some() {
                    self.forget(attr.ino, 1);
                }
                Ok(None)
            }
            found => Ok(found),
        }
    }

    /// Walks from the root to the folder of a link and on along its text. Returns whether it arrived.
    fn walk_to(&self, path: &Path, link: &Attr, way: &mut Vec<(Attr, OsString)>) -> Result<bool, Error> {
        let mut left: Vec<PathBuf> = Vec::new();
        let add = |left: &mut Vec<PathBuf>, path: &Path| {
            left.extend(path.components().rev().map(|part| PathBuf::from(part.as_os_str())));
        };
        add(&mut left, Path::new(&self.read_link(link.ino)?));
        add(&mut left, path.parent().unwrap_or(Path::new("")));
        let mut hops = 1;
        while let Some(part) = left.pop() {
            let name = match part.components().next() {
                Some(Component::ParentDir) => match way.pop() {
                    Some((attr, _)) => {
                        self.forget(attr.ino, 1);
                        continue;
                    }
                    None => return Ok(false),
                },
                Some(Component::Normal(name)) => name,
                Some(Component::CurDir) | None => continue,
                Some(Component::RootDir | Component::Prefix(_)) => return Ok(false),
            };
            let folder = way.last().map_or(ROOT, |(attr, _)| attr.ino);
            let Some(attr) = self.lookup(folder, name)? else { return Ok(false) };
            way.push((attr, name.to_owned()));
            if attr.kind != FileKind::Link {
                continue;
            }
            hops += 1;
            if hops > HOPS || self.format(attr.ino)?.is_none() {
                return Ok(false);
            }
            add(&mut left, Path::new(&self.read_link(attr.ino)?));
            way.pop();
            self.forget(attr.ino, 1);
        }
        Ok(true)
    }
}
