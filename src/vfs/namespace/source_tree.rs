//! SOURCE's own folders and files, and which of the files are containers.

use std::{
    ffi::{OsStr, OsString},
    io,
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
};

use super::{container_id::ContainerId, folder_states::FolderStates, number_key::NumberKey};
use crate::{
    cache::{Cache, Key},
    parallel,
    source::Wait,
    store::{
        FilePath, Folder, Kind, Names, Stat, Version,
        unveiled::{self, Unveiled},
    },
    tree::{self, Formats},
    vfs::{
        Error, Node,
        open::detection::{Detection, Entered, FoundFolder, TRIES, Verdict},
        report::problems::{NO_CONTAINER, Problems},
    },
};

/// Bytes that a name takes in addition to its own.
const NAME: usize = size_of::<OsString>() + 16;

/// What a name in a folder of SOURCE is, with its attributes.
type Found = (Node, Stat);

/// The names in a folder in one state.
type Listed = (Version, Arc<dyn Names>);

/// SOURCE as folders of files and containers.
pub(crate) struct SourceTree {
    pub(crate) store: Arc<Unveiled>,
    pub(crate) key: NumberKey,
    pub(crate) problems: Arc<Problems>,
    pub(crate) detection: Detection,
    /// What was read of folders that are containers.
    pub(crate) folders: Arc<FolderStates>,
    /// Has the names of listed folders.
    pub(crate) cache: Arc<Cache>,
}

impl SourceTree {
    /// Returns the tree of a store. `is_alone` says that SOURCE is one file of it.
    pub(crate) fn new(
        store: Arc<Unveiled>,
        key: NumberKey,
        formats: Formats,
        is_alone: bool,
        problems: Arc<Problems>,
        cache: Arc<Cache>,
    ) -> Self {
        let detection = Detection::new(store.clone(), problems.clone(), key, formats, is_alone, cache.clone());
        let folders = FolderStates::new(store.clone());
        Self { store, key, problems, detection, folders, cache }
    }

    /// Looks up a name in a folder. `None` if it does not exist, or is of a kind that is left out (sockets, devices,
    /// pipes).
    ///
    /// # Errors
    /// [`Error`] if the file cannot be looked at, or if the caller would have to wait. A file whose front cannot be read
    /// is an ordinary file: readers of its bytes get the error.
    pub(crate) fn find(&self, folder: &Arc<Path>, name: &OsStr, wait: Wait) -> Result<Option<Found>, Error> {
        // A file must be watched before it is looked at.
        if wait == Wait::Never && (self.store.detects_by_name() || !self.store.watch(folder, wait).is_alive()) {
            return Err(Error::would_block(Wait::Disk));
        }
        let found = self.stat(&folder.join(name), wait)?;
        found.map_or(Ok(None), |stat| self.entry(folder, name, stat, wait))
    }

    fn stat(&self, path: &Path, wait: Wait) -> Result<Option<Stat>, Error> {
        self.store.stat(path, wait).map_err(|e| self.problems.failed(&e, "stat", path.to_path_buf()))
    }

    /// Does the same as [`Self::find`] for a whole path.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn find_path(&self, path: &Path) -> Result<Option<Found>, Error> {
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => self.find(&Arc::from(folder), name, Wait::Always),
            _ => Ok(self.stat(path, Wait::Always)?.map(|stat| (Node::SourceFolder(Arc::from(path)), stat))),
        }
    }

    /// Looks up a name in an opened folder.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn find_in(
        &self,
        opened: &dyn Folder,
        folder: &Arc<Path>,
        name: &OsStr,
    ) -> Result<Option<Found>, Error> {
        let found = opened.stat(name).map_err(|e| self.problems.failed(&e, "stat", folder.join(name)))?;
        found.map_or(Ok(None), |stat| self.entry(folder, name, stat, Wait::Always))
    }

    /// Looks into a file whose name alone made it a container. Returns it with the format that it has.
    ///
    /// # Errors
    /// [`Error`] if it is none. A new look-up then finds that.
    pub(crate) fn confirm(&self, id: &Arc<ContainerId>) -> Result<Arc<ContainerId>, Error> {
        // A folder was looked into already, and so was a file that shows others.
        if !self.store.detects_by_name() || id.marker.is_some() || id.others != 0 {
            return Ok(id.clone());
        }
        match self.detection.look_into(&id.path, &id.stat, Wait::Always)? {
            // From the next look-up on, a manifest is known with its chunks.
            Some(Verdict::Container(format, ..)) if format == id.format => Ok(id.clone()),
            Some(Verdict::Container(format, ..)) => Ok(Arc::new(ContainerId { format, ..(**id).clone() })),
            // It cannot be read now; opening it reports why.
            None | Some(Verdict::Plain) if !self.detection.is_known(&id.path, &id.stat) => Ok(id.clone()),
            _ if self.detection.is_refused(&id.path, &id.stat) => {
                let reason = self.problems.last_of(&id.path.to_path_buf());
                Err(Error::damaged(id.shown(), reason.unwrap_or_else(|| NO_CONTAINER.into())))
            }
            _ => Err(Error::stale(id.shown())),
        }
    }

    /// Returns whether a container was found when its other files were in this state.
    fn has_others(&self, id: &ContainerId, others: u64) -> bool {
        ContainerId::others_in(&self.key, others, id.generation, id.marker.is_some()) == id.others
    }

    /// Checks that the other files that a container shows are in the state in which it was found.
    ///
    /// # Errors
    /// [`Error`] if they are in another one, or cannot be looked at.
    pub(crate) fn check_others(&self, id: &ContainerId) -> Result<(), Error> {
        // What is read of a folder is compared with its state at each read.
        if id.others == 0 || id.marker.is_some() {
            return Ok(());
        }
        match self.detection.look_into(&id.path, &id.stat, Wait::Always)? {
            Some(Verdict::Container(_, others, _)) if self.has_others(id, others) => Ok(()),
            _ => Err(Error::stale(id.shown())),
        }
    }

    /// Looks into the files of a folder, many at once if each takes a request. The results are remembered.
    pub(crate) fn look_into_all(&self, folder: &Arc<Path>, names: &dyn Names) {
        let threads = self.store.looked_into_at_once();
        if threads < 2 {
            return;
        }
        parallel::for_each(threads, names.len(), |at| {
            // Its own look-up reports what is wrong.
            let _ = self.find(folder, names.name(at), Wait::Always);
            ControlFlow::Continue(())
        });
    }

    fn entry(&self, folder: &Arc<Path>, name: &OsStr, mut stat: Stat, wait: Wait) -> Result<Option<Found>, Error> {
        let path = || Arc::from(folder.join(name));
        let would_block = || Error::would_block(Wait::Disk);
        for _ in 0..TRIES {
            match stat.kind {
                // Its markers have to be looked for.
                Kind::Folder if self.detection.has_folders() && wait == Wait::Never => return Err(would_block()),
                Kind::Folder if self.detection.has_folders() => {
                    return self.folder_entry(folder, name, stat, None).map(Some);
                }
                Kind::Folder => return Ok(Some((Node::SourceFolder(path()), stat))),
                Kind::Link => return Ok(Some((Node::SourceLink(path()), stat))),
                Kind::Other => return Ok(None),
                Kind::File => {}
            }
            let path = FilePath::new(folder.clone(), name);
            match self.detection.look(&path, &stat, wait)? {
                Some(Verdict::Plain) => return Ok(Some(file(path, stat))),
                Some(Verdict::Container(format, others, mode)) => {
                    stat.mode = mode;
                    // What it found elsewhere may have to be looked at.
                    let generation = self.folders.generation(&path.to_path_buf(), wait).ok_or_else(would_block)?;
                    let id = ContainerId::new(&self.key, path, (format, None), stat, (others, generation));
                    return Ok(Some(container(id)));
                }
                None => {}
            }
            // It changed between the two looks.
            let Some(now) = self.stat(&path.to_path_buf(), wait)? else { return Ok(None) };
            stat = now;
        }
        // It is written to all the time, like a log, so it is no container that could be opened now.
        if self.detection.is_alone() {
            return Err(Error::stale(path().to_path_buf()));
        }
        Ok((stat.kind == Kind::File).then(|| file(FilePath::new(folder.clone(), name), stat)))
    }

    /// Returns the container that a folder is, if that is found out only when it is entered: in a store in which each look
    /// takes a request, a listing of ten thousand folders looks into none of them. The second value says whether it is
    /// new: until now it was shown as a folder.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn enter(
        &self,
        path: &Arc<Path>,
        entered: Entered,
        wait: Wait,
    ) -> Result<Option<(Arc<ContainerId>, bool)>, Error> {
        let is_own = unveiled::container_of(path).is_some();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        if is_own || !self.detection.has_folders() || !self.store.detects_by_name() {
            return Ok(None);
        }
        if wait == Wait::Never {
            return Err(Error::would_block(Wait::Disk));
        }
        let Some(stat) = self.stat(path, wait)?.filter(|stat| stat.kind == Kind::Folder) else { return Ok(None) };
        let is_new = self.detection.was_entered(&FilePath::new(Arc::from(folder), name), &stat).is_none();
        match self.folder_entry(&Arc::from(folder), name, stat, Some(entered))? {
            (Node::InContainer(id, _), _) => Ok(Some((id, is_new))),
            _ => Ok(None),
        }
    }

    /// Returns what a folder is.
    fn folder_entry(
        &self,
        folder: &Arc<Path>,
        name: &OsStr,
        stat: Stat,
        entered: Option<Entered>,
    ) -> Result<Found, Error> {
        let path = FilePath::new(folder.clone(), name);
        let shown: Arc<Path> = path.to_path_buf().into();
        let look = || self.detection.look_into_folder(&path, &stat, entered);
        let Some(mut found) = look()? else { return Ok((Node::SourceFolder(shown), stat)) };
        let marker = shown.join(found.marker);
        let beside = marker.parent().unwrap_or(&shown);
        if !self.store.watch(beside, Wait::Never).is_alive() {
            // It must be watched before it is looked at.
            self.store.watch(&shown, Wait::Always);
            self.store.watch(beside, Wait::Always);
            let Some(again) = look()? else { return Ok((Node::SourceFolder(shown), stat)) };
            found = again;
        }
        let generation = self.folders.generation(&shown, Wait::Always).unwrap_or(0);
        let FoundFolder { format, marker, stat, others } = found;
        Ok(container(ContainerId::new(&self.key, path, (format, Some(marker)), stat, (others, generation))))
    }

    /// Returns the names in a folder, sorted. Unless `from_start`, a listing continues with the names that it began
    /// with.
    ///
    /// # Errors
    /// [`Error`] if the folder cannot be read.
    pub(crate) fn names(&self, path: &Path, opened: &dyn Folder, from_start: bool) -> Result<Arc<dyn Names>, Error> {
        let failed = |e: io::Error| self.problems.failed(&e, "readdir", path.to_path_buf());
        let version = opened.version().map_err(failed)?;
        let key = self.key_of_names(path);
        if let Some(known) = self.cache.parsed::<Listed>(key)
            // A folder can change twice within one tick of the clock, so one that has just changed is listed again.
            && (!from_start || known.0 == version && !version.is_recent())
        {
            return Ok(known.1.clone());
        }
        let names = opened.names().map_err(failed)?;
        self.cache.forget_parsed(key);
        let usage = (0..names.len()).map(|at| NAME + names.name(at).len()).sum::<usize>();
        self.cache.keep_parsed::<Listed>(key, (version, names.clone()), self.cache.hold(usage as u64));
        Ok(names)
    }

    /// Returns the names in a folder, if it was listed recently.
    pub(crate) fn listed(&self, path: &Path) -> Option<Arc<dyn Names>> {
        self.cache.parsed::<Listed>(self.key_of_names(path)).map(|listed| listed.1.clone())
    }

    fn key_of_names(&self, path: &Path) -> Key {
        let volume = self.key.hash(&[]).to_le_bytes();
        Key::named("names", &[&volume[..], path.as_os_str().as_bytes()].concat())
    }

    /// Opens a folder for listing.
    ///
    /// # Errors
    /// [`Error`] if it cannot be opened.
    pub(crate) fn folder<'a>(&'a self, path: &Path) -> Result<Box<dyn Folder + 'a>, Error> {
        self.store.folder(path).map_err(|e| self.problems.failed_to_open(&e, "readdir", path.to_path_buf()))
    }
}

fn file(path: FilePath, stat: Stat) -> Found {
    (Node::SourceFile(Arc::new(path), stat.version.file()), stat)
}

fn container(id: ContainerId) -> Found {
    let stat = id.stat;
    (Node::InContainer(Arc::new(id), tree::ROOT), stat)
}
