//! What is below a folder, container by container: the walk of the commands that look for containers and enter none.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use super::{Entry, Error, ErrorKind, Listed};
use crate::vfs::FileKind;

/// Entries of a folder that are listed at once.
const BATCH: usize = 4096;

/// What a search meets. Folders come after everything in the folder that they are in.
pub(crate) enum Met<'a> {
    /// A container.
    Container(Entry),
    /// A file that is no container, or a link that is not followed.
    Other(Listed),
    /// A folder or file that this user may not look at, or that cannot be read.
    Failed(&'a Path, Error),
    /// A folder was listed to its end.
    End,
}

impl Entry {
    /// Passes everything below this folder to `each` until it breaks; of a container the container itself. Opens none.
    /// What is removed meanwhile is left out.
    pub(crate) fn search(&self, each: &mut dyn FnMut(Met<'_>) -> ControlFlow<()>) {
        if self.is_root_of_container() {
            let _ = each(Met::Container(self.clone()));
            return;
        }
        // A queue instead of recursion: folders may be nested thousands deep.
        let mut folders = VecDeque::from([self.clone()]);
        while let Some(folder) = folders.pop_front() {
            if folder.search_here(&mut folders, each).is_break() || each(Met::End).is_break() {
                return;
            }
        }
    }

    /// Does it for the entries of one folder, and adds the folders in it to `folders`.
    fn search_here(
        &self,
        folders: &mut VecDeque<Self>,
        each: &mut dyn FnMut(Met<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            let (entries, then) = self.list(from, BATCH);
            for listed in entries {
                if listed.kind != FileKind::Folder {
                    each(Met::Other(listed))?;
                    continue;
                }
                let path: PathBuf = listed.path().to_owned();
                let is_container = listed.is_container();
                match listed.entry().and_then(|entry| if is_container { Ok(entry) } else { entry.entered() }) {
                    Ok(entry) if is_container || entry.is_root_of_container() => each(Met::Container(entry))?,
                    Ok(entry) => folders.push_back(entry),
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Changed) => {}
                    Err(error) => each(Met::Failed(&path, error))?,
                }
            }
            next = match then {
                Ok(next) => next,
                Err(error) => {
                    each(Met::Failed(self.path(), error))?;
                    None
                }
            };
        }
        ControlFlow::Continue(())
    }
}
