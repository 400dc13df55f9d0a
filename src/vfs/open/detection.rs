//! Which of SOURCE's files are containers: each state of a file is looked into once, and the verdict is remembered.

use std::{ffi::OsStr, io, path::Path, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;

use crate::{
    cache::{Cache, Key, TooMuch, nonzero, refused_memory},
    format::{Class, FormatError},
    limits, parallel,
    source::{Bound, Source, SourceError, Unlimited, Wait},
    store::{
        File, FilePath, Kind, Stat, Version,
        unveiled::{Unveiled, is_within},
    },
    tree::{self, Detected, Format, Formats, Probed, Unread, WorkingMemory},
    vfs::{
        Error,
        namespace::{
            beside::{Beside, Ways, may_read_both},
            number_key::NumberKey,
        },
        report::problems::{Problem, Problems},
    },
    wanted,
};

/// How often a file that changes while it is looked into is tried again.
pub(crate) const TRIES: usize = 4;

/// Other files of one container that are looked at for its own state; of more, only their folder is.
const WATCHED: usize = 1024;

/// Other files of a far store that are looked at together.
const TOGETHER: usize = 16;

/// Bytes of their paths; of longer ones only their folder is looked at.
const WATCHED_PATHS: usize = 256 << 10;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Plain,
    /// With the state of the other files that it shows, 0 where there are none; and its mode, in which only those may
    /// read it who may read these files.
    Container(&'static Format, u64, u32),
}

/// Files of up to this size are read again in place of a verdict.
const SMALL: u64 = 64 << 10;

/// What is remembered of a state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Plain,
    /// It is meant to be a container, and too damaged to be shown as one.
    Refused,
    Container(&'static Format),
    /// One that shows other files' content, too.
    WithOthers(&'static Format),
    /// It can't be read: an ordinary file, until the next look. Not remembered.
    Unreadable,
}

impl Known {
    /// As a store remembers it, which other mounts ask that may know other formats. What is refused is said anew each
    /// time, with the reason.
    fn to_word(self, formats: &[&'static Format]) -> Option<String> {
        match self {
            Self::Plain => {
                let names: Vec<_> = formats.iter().map(|format| format.name).collect();
                Some(format!("none of {}", names.join(", ")))
            }
            Self::Refused | Self::Unreadable => None,
            Self::Container(format) => Some(format.name.into()),
            Self::WithOthers(format) => Some(format!("{}, with others", format.name)),
        }
    }

    fn of_word(word: &[u8], formats: &[&'static Format]) -> Option<Self> {
        let known = formats.iter().flat_map(|format| [Self::Container(format), Self::WithOthers(format)]);
        let mut known = known.chain([Self::Plain]);
        known.find(|known| known.to_word(formats).is_some_and(|own| own.as_bytes() == word))
    }
}

/// A folder that is a container.
pub(crate) struct FoundFolder {
    pub(crate) format: &'static Format,
    /// The marker, as a path below the folder.
    pub(crate) marker: &'static str,
    /// Owner and readers of the folder, times, size and version of the marker.
    pub(crate) stat: Stat,
    /// The state of the other files that the marker names; 0 if there are none.
    pub(crate) others: u64,
}

/// Returns what is said of a folder that is a container. Who may list a folder but not enter it reads nothing in it.
fn marked(folder: &Stat, marker: &Stat) -> Stat {
    let Stat { size, mtime, version, .. } = *marker;
    let mode = folder.mode & 0o444 & folder.mode << 2;
    Stat { mode, size, mtime, version, via_link: folder.via_link || marker.via_link, ..*folder }
}

/// What a folder was entered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// One name in it is looked up.
    ToLookUp,
    /// All its names are listed.
    ToList,
}

/// The kind of key under which the format of an entered folder is remembered.
const ENTERED: &str = "entered folder";

/// Returns the names in a folder that a format's markers are, or lie below.
fn first_names(format: &'static Format) -> impl Iterator<Item = &'static OsStr> {
    format.markers.iter().filter_map(|marker| Path::new(marker).iter().next())
}

/// What a marker says of its folder.
enum Marked {
    /// It is not there, and cannot come without a change of the folder that it would be in.
    Absent,
    /// It is not there, or cannot be looked at.
    Unknown,
    /// It makes the folder a container: with the state of the container, and of the other files that it names.
    Sound(Stat, u64),
    /// It is there, and does not.
    Refused,
}

/// A container that was looked into. Usually it is opened next.
struct LookedInto {
    file: Arc<dyn File>,
    /// Whether the look waited for nothing, so that opening need not either.
    is_at_once: bool,
    probed: Option<Probed>,
}

/// The last container that was looked into.
type LastLook = Mutex<Option<LookedInto>>;

/// The verdicts on the files that were looked into.
pub(crate) struct Detection {
    store: Arc<Unveiled>,
    problems: Arc<Problems>,
    key: NumberKey,
    /// The formats whose containers are files.
    formats: Vec<&'static Format>,
    /// The formats whose containers are folders.
    folders: Vec<&'static Format>,
    /// Whether SOURCE is one file, which has to be a container.
    is_alone: bool,
    /// By keyed hashes of file and state.
    verdicts: Mutex<LruCache<u64, Known>>,
    /// For memory that is needed to look into a file, and for what containers with other files name.
    cache: Arc<Cache>,
    last: Arc<LastLook>,
}

/// Returns the other files of a container that are looked at. If there are more, the last one is their folder: `""`.
fn watched(others: &[Box<str>]) -> Vec<Box<str>> {
    let mut room = WATCHED_PATHS;
    let fitting = others.iter().take(WATCHED).map_while(|path| {
        room = room.checked_sub(path.len())?;
        Some(path.clone())
    });
    let mut paths: Vec<_> = fitting.collect();
    if paths.len() < others.len() {
        paths.push("".into());
    }
    paths
}

impl Detection {
    pub(crate) fn new(
        store: Arc<Unveiled>,
        problems: Arc<Problems>,
        key: NumberKey,
        formats: Formats,
        is_alone: bool,
        cache: Arc<Cache>,
    ) -> Self {
        let (formats, folders) = formats.iter().copied().partition(|format| format.markers.is_empty());
        let last = Arc::<LastLook>::default();
        let verdicts = Mutex::new(LruCache::sparse(nonzero(limits::VERDICTS)));
        let weak = Arc::downgrade(&last);
        cache.add_last_resort(move || weak.upgrade().map(|last| last.lock().take().is_some()));
        Self { store, problems, key, formats, folders, is_alone, verdicts, cache, last }
    }

    /// Returns what is left of the last look into a file, if it was in this state and opening it takes no more than `wait`:
    /// the open file, and what was parsed of it.
    pub(crate) fn take_last(&self, version: Version, wait: Wait) -> (Option<Arc<dyn File>>, Option<Probed>) {
        let is_wanted =
            |last: &mut LookedInto| last.file.version() == version && (wait == Wait::Always || last.is_at_once);
        let last = self.last.lock().take_if(is_wanted);
        last.map_or((None, None), |last| (Some(last.file), last.probed))
    }

    /// Gives up what is left of the last look.
    pub(crate) fn forget_last(&self) {
        let last = self.last.lock().take();
        drop(last);
    }

    /// What a file in this state is; `None` where it is in another state by now.
    ///
    /// # Errors
    /// [`Error`] where it can't be found out for want of something that comes back, or the caller would have to wait.
    pub(crate) fn look(&self, path: &FilePath, stat: &Stat, wait: Wait) -> Result<Option<Verdict>, Error> {
        let by_name = self.store.detects_by_name() && !self.is_alone && !self.is_known(path, stat);
        let found = if by_name && self.recall(self.key_of(path, stat), stat).is_none() {
            let format = tree::format_of_name(&self.formats, path.name());
            Some(format.map_or(Verdict::Plain, |format| Verdict::Container(format, 0, stat.mode)))
        } else {
            self.look_into(path, stat, wait)?
        };
        // Below the `.source` of a container, an ordinary file instead of one of its format.
        Ok(found.map(|verdict| match verdict {
            Verdict::Container(format, ..) if is_within(path, format.name) => Verdict::Plain,
            verdict => verdict,
        }))
    }

    /// Whether a file in this state was found to be a container that is too damaged to be shown as one.
    pub(crate) fn is_refused(&self, path: &FilePath, stat: &Stat) -> bool {
        self.verdicts.lock().get(&self.key_of(path, stat)) == Some(&Known::Refused)
    }

    /// What another process found a file in this state to be, if the store remembers that.
    fn recall(&self, key: u64, stat: &Stat) -> Option<Known> {
        let known = Known::of_word(&self.store.recall(&stat.version)?, &self.formats)?;
        self.verdicts.lock().put(key, known);
        Some(known)
    }

    /// Whether a file in this state was looked into.
    pub(crate) fn is_known(&self, path: &FilePath, stat: &Stat) -> bool {
        self.verdicts.lock().contains(&self.key_of(path, stat))
    }

    fn key_of(&self, path: &FilePath, stat: &Stat) -> u64 {
        // Of the name counts what formats are told by: their suffixes, and whether the file is not finished.
        let is_partial = path.name().as_encoded_bytes().ends_with(b".partial");
        let suffixes = self.formats.iter().flat_map(|format| format.suffixes_of(path.name()));
        let names = suffixes.map(u64::from).fold(u64::from(is_partial), |names, has| names << 1 | has);
        self.key.hash(&[&stat.version.to_bytes(), &names.to_le_bytes()])
    }

    /// Returns what is remembered under a key, or else what `find` finds; `None` where that is no longer so. What cannot be
    /// read is not remembered.
    fn known_or(&self, key: u64, find: impl FnOnce() -> Result<Option<Known>, Error>) -> Result<Option<Known>, Error> {
        let known = self.verdicts.lock().get(&key).copied();
        if known.is_some() {
            return Ok(known);
        }
        let found = find()?;
        if let Some(known) = found.filter(|known| *known != Known::Unreadable) {
            self.verdicts.lock().put(key, known);
        }
        Ok(found)
    }

    /// As [`Self::look`], by the file's content in any case.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(crate) fn look_into(&self, path: &FilePath, stat: &Stat, wait: Wait) -> Result<Option<Verdict>, Error> {
        let key = self.key_of(path, stat);
        let known = self.known_or(key, || {
            if let Some(known) = self.recall(key, stat) {
                return Ok(Some(known));
            }
            let found = self.find_out(path, stat, &self.formats, wait)?;
            let told = found.filter(|known| !self.is_plain_to_see(path, stat, *known));
            if let Some(word) = told.and_then(|known| known.to_word(&self.formats)) {
                self.store.remember(&stat.version, word.as_bytes());
            }
            Ok(found)
        })?;
        match known {
            Some(Known::WithOthers(_)) if wait == Wait::Never => Err(Error::would_block(Wait::Disk)),
            Some(known) => self.verdict(path, stat, known),
            None => Ok(None),
        }
    }

    /// Returns whether SOURCE is one file, which has to be a container.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Returns whether folders can be containers.
    pub(crate) fn has_folders(&self) -> bool {
        !self.folders.is_empty()
    }

    /// Returns the container that a folder is, by the first of a format's markers that is there, if it is accepted. `None`
    /// for an ordinary folder. If each look takes a request, only a folder that is `entered`, was found to be a container
    /// when it was entered, or has the suffix of a format is looked into.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(crate) fn look_into_folder(
        &self,
        path: &FilePath,
        stat: &Stat,
        entered: Option<Entered>,
    ) -> Result<Option<FoundFolder>, Error> {
        let store = &self.store;
        // A folder in which no marker can be while it is in the same state.
        let plain = self.key_of_folder("plain folder", path, stat);
        if self.cache.parsed::<()>(plain).is_some() {
            return Ok(None);
        }
        let mut folder: Option<Arc<Path>> = None;
        let mut is_plain = !store.is_far();
        let by_name = store.detects_by_name() && !self.is_alone;
        let was = if by_name { self.was_entered(path, stat) } else { None };
        if let (true, Some(entered)) = (by_name, entered) {
            let folder = path.to_path_buf();
            let names: Vec<_> = self.folders.iter().flat_map(|format| first_names(format)).collect();
            let looked = store.expect_in(&folder, &names, entered == Entered::ToList);
            looked.map_err(|error| self.problems.failed(&error, "stat", folder))?;
        }
        for format in &self.folders {
            let is_asked = || entered.is_some() || format.has_name(path.name()) || was == Some(*format);
            if by_name && !is_asked() || is_within(path, format.name) {
                continue;
            }
            let folder = folder.get_or_insert_with(|| path.to_path_buf().into());
            for name in format.markers {
                // A marker in a folder of its own can come without a change of this one.
                let own = Path::new(name).parent().filter(|own| !own.as_os_str().is_empty());
                let is_missing = |own: &Path| matches!(store.stat(&folder.join(own), Wait::Always), Ok(None));
                // Entering has told whether that folder is there.
                if by_name && entered.is_some() && own.is_some_and(is_missing) {
                    continue;
                }
                let marker = FilePath::new(folder.clone(), OsStr::new(name));
                match self.look_at_marker(&marker, stat, format)? {
                    Marked::Sound(shown, others) => {
                        if by_name {
                            let key = self.key_of_folder(ENTERED, path, stat);
                            self.cache.keep_parsed(key, *format, self.cache.hold(0));
                        }
                        return Ok(Some(FoundFolder { format, marker: name, stat: shown, others }));
                    }
                    Marked::Refused => {
                        is_plain = false;
                        break;
                    }
                    Marked::Unknown => is_plain = false,
                    Marked::Absent => {}
                }
                is_plain &= own.is_none_or(is_missing);
            }
        }
        // A folder can change twice within one tick of the clock.
        if is_plain && !stat.version.is_recent() {
            self.cache.parsed_default::<()>(plain, 0);
        }
        Ok(None)
    }

    /// Returns the format of the container that a folder was when it was entered.
    pub(crate) fn was_entered(&self, path: &FilePath, stat: &Stat) -> Option<&'static Format> {
        self.cache.parsed::<&'static Format>(self.key_of_folder(ENTERED, path, stat)).map(|format| *format)
    }

    /// Returns the name of what is known of a folder in a state.
    fn key_of_folder(&self, kind: &str, path: &FilePath, stat: &Stat) -> Key {
        let [folder, name] = path.parts();
        Key::named(kind, &self.key.hash(&[folder, b"/", name, b"/", &stat.version.to_bytes()]).to_le_bytes())
    }

    /// Returns the state of a marker that makes its folder a container, and of the other files that it names.
    fn look_at_marker(&self, path: &FilePath, folder: &Stat, format: &&'static Format) -> Result<Marked, Error> {
        let full = path.to_path_buf();
        for _ in 0..TRIES {
            let marker = match self.store.stat(&full, Wait::Always) {
                Ok(Some(marker)) if marker.kind == Kind::File => marker,
                Ok(None) => return Ok(Marked::Absent),
                Err(error) if is_shortage(&error) => return Err(Error::os(&error, "stat", full)),
                // An ordinary folder says what is wrong.
                Ok(Some(_)) | Err(_) => return Ok(Marked::Unknown),
            };
            let shown = marked(folder, &marker);
            let way = Ways::default().check(&self.store, &shown, path.folder(), Path::new(path.name()));
            if !may_read_both(&self.store, &shown, &marker) || way.is_err() {
                let message = "not all who may read the folder may read this file, so it is shown as a plain folder";
                self.problems.note(Problem::of(full, message.into()));
                return Ok(Marked::Refused);
            }
            let key = self.key.hash(&[format.name.as_bytes(), b"/", &marker.version.to_bytes()]);
            let known = self.known_or(key, || self.find_out(path, &marker, &[*format], Wait::Always))?;
            let Some(known) = known else { continue };
            let shown = Stat { kind: Kind::File, ..shown };
            match self.verdict(path, &shown, known)? {
                Some(Verdict::Container(_, others, _)) => return Ok(Marked::Sound(shown, others)),
                Some(Verdict::Plain) => return Ok(Marked::Refused),
                None => {}
            }
        }
        Ok(Marked::Unknown)
    }

    /// Returns what a file is of which something is known.
    fn verdict(&self, path: &FilePath, stat: &Stat, known: Known) -> Result<Option<Verdict>, Error> {
        Ok(Some(match known {
            Known::Plain | Known::Refused | Known::Unreadable => Verdict::Plain,
            Known::Container(format) => Verdict::Container(format, 0, stat.mode),
            Known::WithOthers(format) => match self.state_of_others(path, stat, format) {
                Ok((state, mode)) => return self.with_others(path, &Stat { mode, ..*stat }, format, state),
                Err(error) => return Err(Error::os(&error, "open", path.to_path_buf())),
            },
        }))
    }

    /// Whether a file is what its name says, and so small that a store which remembers verdicts has kept its bytes as
    /// well: there are many of those, and each would be one more file on disk.
    fn is_plain_to_see(&self, path: &FilePath, stat: &Stat, known: Known) -> bool {
        let by_name = tree::format_of_name(&self.formats, path.name()).map_or(Known::Plain, Known::Container);
        stat.size <= SMALL && known == by_name
    }

    /// Opens a file, which has to be in this state, and asks something of it.
    fn ask<T, E: From<SourceError>>(
        &self,
        path: &FilePath,
        stat: &Stat,
        wait: Wait,
        ask: impl FnOnce(Arc<dyn File>) -> Result<T, E>,
    ) -> Result<T, E> {
        let file = self.store.open(&path.to_path_buf(), wait).map_err(SourceError::from)?;
        if file.version() == stat.version { ask(file) } else { Err(SourceError::Changed.into()) }
    }

    /// Returns what is known of a file that could not be asked; `None` where it is in another state by now. The problem is
    /// noted if it `is_meant` to be a container.
    fn unreadable(&self, path: &FilePath, error: SourceError, is_meant: bool) -> Result<Option<Known>, Error> {
        match error {
            // Only what the file says of itself makes it an ordinary one for good.
            SourceError::Io(error) if is_shortage(&error) => Err(Error::os(&error, "open", path.to_path_buf())),
            SourceError::Changed => Ok(None),
            error => {
                if is_meant {
                    let problem = Problem::of(path.to_path_buf(), format!("can't be read: {error}"));
                    let is_unread = !matches!(error, SourceError::OutOfRange { .. });
                    self.problems.note(Problem { is_unread, ..problem });
                }
                log::debug!("{}: {error}", path.to_path_buf().display());
                Ok(Some(Known::Unreadable))
            }
        }
    }

    /// Notes that a file is not shown as the container that it is meant to be.
    fn refused(&self, path: &FilePath, format: &Format, error: &FormatError) -> Known {
        let message = format!("not shown as a {} container: {error}", format.title);
        self.problems.note(Problem::of(path.to_path_buf(), message));
        Known::Refused
    }

    /// Looks into a file; `None` where it is in another state by now.
    fn find_out(
        &self,
        path: &FilePath,
        stat: &Stat,
        formats: &[&'static Format],
        wait: Wait,
    ) -> Result<Option<Known>, Error> {
        let looked = self.ask(path, stat, wait, |file| self.detect(file, path.name(), formats, wait));
        Ok(Some(match looked {
            Ok((Detected::Container(format), others)) if others.is_empty() => Known::Container(format),
            Ok((Detected::Container(format), others)) => {
                self.keep_others(stat, others);
                Known::WithOthers(format)
            }
            Ok((Detected::Plain, _)) => Known::Plain,
            Ok((Detected::Refused(format, error), _)) => self.refused(path, format, &error),
            // A look that waits says what is wrong.
            Err(_) if wait == Wait::Never => return Err(Error::would_block(Wait::Disk)),
            Err(Unread { is_meant, error }) => {
                // Whether it is a container can't be known. Its front or name may say so; as SOURCE it has to be one.
                let is_marker = formats.iter().any(|format| !format.markers.is_empty());
                let is_named = || tree::should_be_container(formats, path.name());
                return self.unreadable(path, error, is_meant || self.is_alone || is_marker || is_named());
            }
        }))
    }

    /// Looks into an open file: what it is, and the other files that it names. A container is kept for its opening.
    ///
    /// # Errors
    /// [`Unread`]; also for a caller who waits for nothing, if the first bytes in memory are not enough, and for files
    /// that are damaged and containers that show others.
    fn detect(
        &self,
        file: Arc<dyn File>,
        name: &OsStr,
        formats: &[&'static Format],
        wait: Wait,
    ) -> Result<(Detected, Vec<Box<str>>), Unread> {
        // Both names count: a link may have a finished name and lead to a file that has not.
        let is_partial = |name: &OsStr| name.as_encoded_bytes().ends_with(b".partial");
        let name = if is_partial(file.name()) { file.name() } else { name }.as_encoded_bytes();
        let (is_settled, is_at_once) = (file.version().unsettled().is_zero(), wait == Wait::Never);
        let source: Arc<dyn Source> = file.clone();
        let (detected, others, probed) = if is_at_once {
            let (source, memory) =
                (Bound::new(source, wait, Some(limits::QUICK_OPEN)), WorkingMemory::at_once(&self.cache));
            let detected = tree::detect_within(formats, &source, name, &memory)?;
            let is_clear = match &detected {
                Detected::Plain => true,
                Detected::Container(format) => format.files_beside(&source, &Unlimited)?.is_empty(),
                Detected::Refused(..) => false,
            };
            if !is_clear || source.has_refused() {
                return Err(SourceError::WouldBlock.into());
            }
            (detected, Vec::new(), memory.into_probed())
        } else {
            let refused = |unread: &Unread| refused_memory(&unread.error);
            let (detected, probed) = self.cache.in_steps(refused, || {
                let memory = WorkingMemory::new(&self.cache);
                let detected = tree::detect_within(formats, &*source, name, &memory)?;
                Ok::<_, Unread>((detected, memory.into_probed()))
            })?;
            let others = match detected {
                Detected::Container(format) => self.others_of(format, &*source)?,
                _ => Vec::new(),
            };
            (detected, others, probed)
        };
        if matches!(detected, Detected::Container(_)) {
            // What was parsed while a write may have been under way is not used.
            let looked_into = LookedInto { file, is_at_once, probed: probed.filter(|_| is_settled) };
            let last = self.last.lock().replace(looked_into);
            drop(last);
        }
        Ok((detected, others))
    }

    /// What a file is whose other files are in a state: looked at once for each.
    fn with_others(
        &self,
        path: &FilePath,
        stat: &Stat,
        format: &'static Format,
        state: u64,
    ) -> Result<Option<Verdict>, Error> {
        let Some(check) = format.check_others else {
            return Ok(Some(Verdict::Container(format, state, stat.mode)));
        };
        let key = self.key.hash(&[&self.key_of(path, stat).to_le_bytes(), &state.to_le_bytes()]);
        let known = self.known_or(key, || {
            let checked = self.ask(path, stat, Wait::Always, |file| {
                let beside = Beside { store: &self.store, path, stat };
                let check = || check(&*file, &beside, &WorkingMemory::new(&self.cache));
                match self.cache.in_steps(tree::refused, check) {
                    Err(FormatError::Source(error)) => Err(error),
                    checked => Ok(checked),
                }
            });
            Ok(Some(match checked {
                Ok(Ok(())) => Known::WithOthers(format),
                Ok(Err(FormatError::Refused { class: Class::Absent, .. })) => Known::Refused,
                Ok(Err(error)) => self.refused(path, format, &error),
                Err(error) => return self.unreadable(path, error, true),
            }))
        })?;
        Ok(known.map(|known| match known {
            Known::WithOthers(_) => Verdict::Container(format, state, stat.mode),
            _ => Verdict::Plain,
        }))
    }

    fn key_of_others(&self, stat: &Stat) -> Key {
        let name = [&self.key.hash(&[]).to_le_bytes()[..], &stat.version.to_bytes()].concat();
        Key::named("others", &name)
    }

    /// Remembers what a container with other files names.
    fn keep_others(&self, stat: &Stat, others: Vec<Box<str>>) -> Arc<Vec<Box<str>>> {
        let usage = others.iter().map(|path| size_of_val(path) + path.len()).sum::<usize>();
        self.cache.keep_parsed(self.key_of_others(stat), others, self.cache.hold(usage as u64))
    }

    /// The state that the other files are in which a container shows: another number when any of them comes, goes, or
    /// is written to. And the container's mode without the readers who may not read all of these files.
    ///
    /// # Errors
    /// What comes back: memory that there is not now, a reader that was killed.
    fn state_of_others(&self, path: &FilePath, stat: &Stat, format: &Format) -> io::Result<(u64, u32)> {
        let others = match self.cache.parsed(self.key_of_others(stat)) {
            Some(known) => known,
            None => match self.ask(path, stat, Wait::Always, |file| self.others_of(format, &*file)) {
                Ok(others) => self.keep_others(stat, others),
                Err(SourceError::Io(error)) if is_shortage(&error) => return Err(error),
                // It is looked at again the next time.
                Err(_) => Arc::default(),
            },
        };
        let threads = if self.store.is_far() { TOGETHER.min(others.len()) } else { 1 };
        let found = parallel::map(threads, others.iter(), |other| {
            wanted::check().ok()?;
            let file = if other.is_empty() { path.folder().to_path_buf() } else { path.folder().join(&**other) };
            self.store.stat(&file, Wait::Always).ok()?
        });
        wanted::check()?;
        let (mut bytes, mut mode) = (Vec::new(), stat.mode);
        for found in found {
            bytes.push(u8::from(found.is_some()));
            bytes.extend(found.iter().flat_map(|found| found.version.to_bytes()));
            let own = found.filter(|found| found.kind == Kind::File && (found.uid, found.gid) == (stat.uid, stat.gid));
            mode &= own.map_or(!0, |own| own.mode | !0o444);
        }
        // Never 0, which stands for no other files.
        Ok((self.key.hash(&[&bytes]).max(1), mode))
    }

    /// The other files that a container names, as far as they are looked at; none if it names none.
    ///
    /// # Errors
    /// What comes back, as [`is_shortage`] says.
    fn others_of(&self, format: &Format, file: &dyn Source) -> Result<Vec<Box<str>>, SourceError> {
        let others =
            self.cache.in_steps(refused_memory, || format.files_beside(file, &WorkingMemory::new(&self.cache)))?;
        Ok(watched(&others))
    }
}

/// Whether an operation failed for want of something that comes back, or for its reader was killed.
fn is_shortage(error: &io::Error) -> bool {
    use libc::{EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM};
    // What never fits does not come back.
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<TooMuch>());
    if refused.is_some_and(|refused| refused.is_final) {
        return false;
    }
    matches!(crate::store::errno(error), Some(EMFILE | ENFILE | ENOMEM | EAGAIN | EINTR))
}
