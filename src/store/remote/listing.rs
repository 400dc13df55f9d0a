//! The content of one folder of a store, and how long it is remembered.

pub(super) mod json;
pub(super) mod names;
pub(super) mod pages;
pub(super) mod taken;
pub(super) mod time;
pub(super) mod xml;

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::{Condvar, Mutex};

use super::{
    backends::backend::{Collect, Found, Node, State},
    http::client::after,
    object::FetchError,
};
use crate::{
    cache::{Cache, nonzero},
    limits,
    single_flight::SingleFlight,
    store::{Changes, DirEvent, Names},
};
use taken::Taken;

/// Names looked up one by one before all of their folder is listed.
const SINGLES: usize = 8;
/// Names after which a listing is first checked for repeated names.
const FEW: usize = 1 << 16;
/// Answers to single look-ups that are remembered of one folder.
const REMEMBERED: usize = 4096;

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    /// The part of the key, if it is not the name.
    part: Option<Box<[u8]>>,
    pub(crate) node: Node,
}

impl Entry {
    pub(crate) fn new(part: &[u8], node: Node, is_top: bool) -> Self {
        let name = names::name_of(part, is_top, 1);
        let part = (name.as_bytes() != part).then(|| part.into());
        Self { name: name.into(), part, node }
    }

    /// Returns the same name with a node of which more is known.
    pub(crate) fn with(&self, node: Node) -> Self {
        Self { node, ..self.clone() }
    }

    /// Returns whether it is an object whose size the listing does not give.
    pub(crate) fn is_unsized(&self) -> bool {
        matches!(&self.node, Node::Object(State { size: None, .. }))
    }

    /// Returns the part of the key.
    pub(crate) fn part(&self) -> &[u8] {
        self.part.as_deref().unwrap_or(self.name.as_bytes())
    }
}

/// All that a folder holds, by name. Names, parts of keys and entity tags stand in one piece of memory: a folder may
/// have millions of names.
pub(crate) struct Listing {
    text: Vec<u8>,
    rows: Vec<Row>,
    /// Names that were left after the last check for duplicates.
    compacted: usize,
    /// Differs for each listing.
    pub(crate) number: u64,
    /// What the keys of the folder begin with, and whether it is the top of the store.
    prefix: Box<[u8]>,
    is_top: bool,
    /// Counts all of this.
    memory: Taken,
}

impl Collect for Listing {
    /// # Errors
    /// More names than are taken, or no memory for them.
    fn take(&mut self, found: Found) -> Result<(), String> {
        let part = found.key.strip_prefix(&*self.prefix);
        let part = part.and_then(|part| match &found.node {
            Node::Folder => part.strip_suffix(b"/"),
            // The folder's own marker, as some tools make it, says only that the folder is there.
            Node::Object(state) if part.is_empty() && (self.prefix.is_empty() || state.size.unwrap_or(0) == 0) => None,
            Node::Object(_) => Some(part),
        });
        let Some(part) = part.filter(|part| !part.contains(&b'/')) else { return Ok(()) };
        let entry = Entry::new(part, found.node, self.is_top);
        if self.rows.len() >= limits::LISTED {
            return Err(format!("a folder of more than {} names", limits::LISTED));
        }
        if self.rows.len() >= self.compacted.saturating_mul(2).max(FEW) {
            self.compact()?;
        }
        let row = self.row(&entry)?;
        self.grow(0, 1)?;
        self.rows.try_reserve(1).map_err(|_| NO_MEMORY)?;
        self.rows.push(row);
        Ok(())
    }
}

const NO_MEMORY: &str = "no memory for a listing";

/// An [`Entry`] of a listing, without its texts, which are stored one after the other.
#[derive(Debug, Clone, Copy)]
struct Row {
    at: u64,
    /// Bytes of the object, and seconds since 1970, where they are known.
    size: u64,
    modified: i64,
    /// Bytes of the name; of the part of the key, which may be the name; and of the entity tag.
    name: u8,
    is_folder: bool,
    tag: u16,
    part: u32,
}

/// Stands for a value that a listing does not give.
const NO_SIZE: u64 = u64::MAX;
const NO_TIME: i64 = i64::MIN;

/// Stands for the length of a part that is the name.
const AS_NAME: u32 = u32::MAX;

impl Row {
    fn text(self, text: &[u8], skip: usize, length: usize) -> &[u8] {
        let start = self.at as usize + skip;
        text.get(start..start + length).unwrap_or_default()
    }

    fn name(self, text: &[u8]) -> &[u8] {
        self.text(text, 0, self.name.into())
    }

    /// The part of the key, if it is not the name.
    fn own_part(self, text: &[u8]) -> Option<&[u8]> {
        (self.part != AS_NAME).then(|| self.text(text, self.name.into(), self.part as usize))
    }

    fn part(self, text: &[u8]) -> &[u8] {
        self.own_part(text).unwrap_or_else(|| self.name(text))
    }

    fn entry(self, text: &[u8]) -> Entry {
        // They were text when they were stored.
        let words = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap_or_default().into();
        let part = self.own_part(text);
        let node = match self.is_folder {
            true => Node::Folder,
            false => {
                let skip = usize::from(self.name) + part.map_or(0, <[u8]>::len);
                Node::Object(State {
                    size: (self.size != NO_SIZE).then_some(self.size),
                    etag: words(self.text(text, skip, self.tag.into())),
                    modified: (self.modified != NO_TIME).then_some(self.modified),
                })
            }
        };
        Entry { name: words(self.name(text)), part: part.map(Into::into), node }
    }
}

impl Listing {
    /// Returns an empty listing of the folder with a prefix, which takes names as a [`Collect`].
    fn within(prefix: &[u8], is_top: bool, memory: Taken) -> Self {
        let (text, rows) = Default::default();
        Self { text, rows, compacted: 0, number: 0, prefix: prefix.into(), is_top, memory }
    }

    /// Removes duplicate names.
    ///
    /// # Errors
    /// That most names were duplicates: a server that repeats itself never ends.
    fn compact(&mut self) -> Result<(), String> {
        let added = self.rows.len().saturating_sub(self.compacted);
        self.dedup();
        let new = self.rows.len().saturating_sub(self.compacted);
        self.compacted = self.rows.len();
        match new < added / 2 {
            true => Err("the server lists the same names again and again".into()),
            false => Ok(()),
        }
    }

    fn dedup(&mut self) {
        let text = &self.text;
        self.rows.sort_by(|a, b| (a.name(text), a.is_folder).cmp(&(b.name(text), b.is_folder)));
        self.rows
            .dedup_by(|b, a| (a.name(text), a.is_folder, a.part(text)) == (b.name(text), b.is_folder, b.part(text)));
    }

    /// Counts memory before it is taken. What grows has room for up to twice of what it holds.
    fn grow(&mut self, text: usize, rows: usize) -> Result<(), String> {
        let bytes = self.text.len() + text + (self.rows.len() + rows) * size_of::<Row>();
        self.memory.grow(2 * bytes as u64)
    }

    /// Appends the texts of an entry.
    fn row(&mut self, entry: &Entry) -> Result<Row, String> {
        let at = self.text.len() as u64;
        let (part, none) = (entry.part.as_deref(), State::default());
        let (is_folder, state) = match &entry.node {
            Node::Folder => (true, &none),
            Node::Object(state) => (false, state),
        };
        let too_long = |what: &str, length| format!("{what} of {length} bytes in a listing");
        let name = u8::try_from(entry.name.len()).map_err(|_| too_long("a name", entry.name.len()))?;
        let tag = u16::try_from(state.etag.len()).map_err(|_| too_long("an entity tag", state.etag.len()))?;
        let part_size =
            part.map_or(Ok(AS_NAME), |part| u32::try_from(part.len()).map_err(|_| too_long("a key", part.len())))?;
        let length = entry.name.len() + part.map_or(0, <[u8]>::len) + state.etag.len();
        self.grow(length, 0)?;
        self.text.try_reserve(length).map_err(|_| NO_MEMORY)?;
        self.text.extend(entry.name.as_bytes());
        self.text.extend(part.unwrap_or_default());
        self.text.extend(state.etag.as_bytes());
        let (size, modified) = (state.size.unwrap_or(NO_SIZE), state.modified.unwrap_or(NO_TIME));
        Ok(Row { at, size, modified, name, is_folder, tag, part: part_size })
    }

    /// Sorts the names, and gives those that come twice a number: an object keeps its name, and the folder whose keys
    /// begin with it has another one.
    ///
    /// # Errors
    /// As [`Collect::take`].
    pub(crate) fn finish(&mut self) -> Result<(), FetchError> {
        // A server may list a name twice.
        self.dedup();
        let mut renamed = false;
        for at in 1..self.rows.len() {
            let (before, row) = (self.rows[at - 1], self.rows[at]);
            if before.name(&self.text) == row.name(&self.text) {
                let mut entry = row.entry(&self.text);
                let part: Box<[u8]> = entry.part().into();
                entry.name = names::name_of(&part, false, 2).into();
                entry.part = Some(part);
                self.rows[at] = self.row(&entry).map_err(FetchError::Failed)?;
                renamed = true;
            }
        }
        if renamed {
            let text = &self.text;
            self.rows.sort_by(|a, b| a.name(text).cmp(b.name(text)));
            self.rows.dedup_by(|b, a| a.name(text) == b.name(text));
        }
        self.rows.shrink_to_fit();
        self.text.shrink_to_fit();
        self.memory.settle((self.text.capacity() + self.rows.capacity() * size_of::<Row>()) as u64);
        Ok(())
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<Entry> {
        self.find(OsStr::from_bytes(name)).and_then(|at| self.rows.get(at)).map(|row| row.entry(&self.text))
    }

    /// Returns an entry and its number. Looks first at the entry that follows `before`.
    pub(crate) fn find_after(&self, before: usize, name: &[u8]) -> Option<(usize, Entry)> {
        let is_next = self.rows.get(before + 1).is_some_and(|row| row.name(&self.text) == name);
        let at = if is_next { before + 1 } else { self.find(OsStr::from_bytes(name))? };
        self.rows.get(at).map(|row| (at, row.entry(&self.text)))
    }
}

impl Names for Listing {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn name(&self, at: usize) -> &OsStr {
        OsStr::from_bytes(self.rows.get(at).map_or(b"", |row| row.name(&self.text)))
    }
}

/// The remembered listings of all folders.
pub(crate) struct Listings {
    ttl: Duration,
    cache: Arc<Cache>,
    /// Most bytes that a listing may take.
    most: u64,
    state: Mutex<Known>,
    /// Wakes the thread that waits for changes.
    moved: Condvar,
}

struct Known {
    folders: LruCache<PathBuf, Arc<Mutex<FolderState>>>,
    /// Listings in the order in which they expire, for the thread that reports it.
    expiring: VecDeque<(Instant, PathBuf)>,
    is_woken: bool,
    /// Whether everything was forgotten since the last wait.
    is_forgotten: bool,
    number: u64,
}

/// One folder.
#[derive(Default)]
struct FolderState {
    listing: Option<(Instant, Arc<Listing>)>,
    /// Single look-ups, with what they found.
    singles: HashMap<Box<[u8]>, Single>,
    /// The listing that is requested now. All that wait for it get its result.
    flight: Arc<SingleFlight<Result<Arc<Listing>, FetchError>>>,
}

/// The answer to a look-up of one name.
struct Single {
    at: Instant,
    entry: Option<Entry>,
    /// Whether it counts towards the look-ups after which the folder is listed.
    counts: bool,
}

impl Listings {
    pub(crate) fn new(ttl: Duration, cache: Arc<Cache>) -> Self {
        let most = cache.usage().0.saturating_add(limits::BEYOND_BUDGET) / limits::LISTING_PART;
        let folders = LruCache::new(nonzero(limits::LISTED_FOLDERS));
        let known = Known { folders, expiring: VecDeque::new(), is_woken: false, is_forgotten: false, number: 0 };
        Self { ttl, cache, most, state: Mutex::new(known), moved: Condvar::new() }
    }

    /// Returns an empty listing of the folder with a prefix.
    pub(crate) fn begin(&self, prefix: &[u8], is_top: bool) -> Listing {
        Listing::within(prefix, is_top, Taken::within(&self.cache, self.most))
    }

    /// Returns the room of one answer of the server.
    pub(crate) fn answer_room(&self) -> Taken {
        Taken::within(&self.cache, self.most / 4)
    }

    fn folder(&self, path: &Path) -> Arc<Mutex<FolderState>> {
        let mut state = self.state.lock();
        if let Some(folder) = state.folders.get(path) {
            return folder.clone();
        }
        state.folders.get_or_insert(path.to_path_buf(), Arc::default).clone()
    }

    /// Returns the listing of a folder, if it has not expired.
    pub(crate) fn known(&self, path: &Path) -> Option<Arc<Listing>> {
        let folder = self.folder(path);
        let state = folder.lock();
        state.listing.as_ref().filter(|(at, _)| at.elapsed() < self.ttl).map(|(_, listing)| listing.clone())
    }

    /// Returns the listing of a folder: the remembered one, or a new one that one thread requests and others wait for. If
    /// the server cannot be reached, the previous listing is used for a while longer.
    ///
    /// # Errors
    /// What `list` says.
    pub(crate) fn list(
        &self,
        path: &Path,
        list: impl FnOnce(bool) -> Result<Listing, FetchError>,
    ) -> Result<Arc<Listing>, FetchError> {
        let folder = self.folder(path);
        let state = folder.lock();
        if let Some((at, listing)) = &state.listing
            && at.elapsed() < self.ttl
        {
            return Ok(listing.clone());
        }
        let (flight, before) = (state.flight.clone(), state.listing.clone());
        drop(state);
        // That one reader gave up is no failure for the others: the next one asks.
        flight.get_or_try_init(|| match self.list_now(path, &folder, before, list) {
            Err(FetchError::GivenUp) => Err(FetchError::GivenUp),
            result => Ok(result),
        })?
    }

    /// Requests a listing, and remembers it.
    fn list_now(
        &self,
        path: &Path,
        folder: &Mutex<FolderState>,
        before: Option<(Instant, Arc<Listing>)>,
        list: impl FnOnce(bool) -> Result<Listing, FetchError>,
    ) -> Result<Arc<Listing>, FetchError> {
        let listed = list(before.is_some());
        let now = Instant::now();
        let result = match (listed, before) {
            (Ok(mut listing), _) => {
                listing.number = {
                    let mut known = self.state.lock();
                    known.number += 1;
                    known.expiring.push_back((after(self.ttl), path.to_path_buf()));
                    self.moved.notify_all();
                    known.number
                };
                Ok(Arc::new(listing))
            }
            (
                Err(FetchError::TimedOut(why) | FetchError::Unreached(why) | FetchError::Failed(why)),
                Some((_, known)),
            ) => {
                log::warn!("shown as it was before: {why}");
                Ok(known)
            }
            (Err(error), _) => Err(error),
        };
        let mut state = folder.lock();
        state.listing = result.as_ref().ok().map(|listing| (now, listing.clone()));
        match &result {
            Ok(_) => state.singles = HashMap::new(),
            // Those that wait ask again.
            Err(FetchError::GivenUp) => return result,
            Err(_) => {}
        }
        // Who comes later needs a new one once this one has expired.
        state.flight = Arc::default();
        drop(state);
        self.shrink();
        result
    }

    /// Returns the recent answer to a single look-up of a name, or `None` if there is none. The second value says whether
    /// so many names of the folder were looked up that all of it should be listed.
    pub(crate) fn single(&self, path: &Path, name: &[u8]) -> (Option<Option<Entry>>, bool) {
        let folder = self.folder(path);
        let state = folder.lock();
        let is_recent = |single: &&Single| single.at.elapsed() < self.ttl;
        let found = state.singles.get(name).filter(is_recent);
        let recent = || state.singles.values().filter(|single| single.counts).filter(is_recent).count();
        (found.map(|single| single.entry.clone()), found.is_none() && recent() >= SINGLES)
    }

    /// Returns the last answer for a name, however old it is.
    pub(crate) fn outdated(&self, path: &Path, name: &[u8]) -> Option<Option<Entry>> {
        let folder = self.folder(path);
        let state = folder.lock();
        if let Some((_, listing)) = &state.listing {
            return Some(listing.get(name));
        }
        state.singles.get(name).map(|single| single.entry.clone())
    }

    /// Remembers what a name is. It `counts` as a single look-up if a reader asked for it.
    pub(crate) fn remember(&self, path: &Path, name: &[u8], entry: Option<Entry>, counts: bool) {
        let folder = self.folder(path);
        let mut state = folder.lock();
        if state.singles.len() >= REMEMBERED {
            state.singles.clear();
        }
        state.singles.insert(name.into(), Single { at: Instant::now(), entry, counts });
    }

    /// Trusts the last answers about a name no longer. While the server cannot be reached, they are still used.
    pub(crate) fn expire(&self, path: &Path, name: &[u8]) {
        let folder = self.folder(path);
        let mut state = folder.lock();
        let FolderState { listing, singles, .. } = &mut *state;
        let times = listing.iter_mut().map(|(at, _)| at).chain(singles.get_mut(name).map(|single| &mut single.at));
        for at in times {
            *at = at.checked_sub(self.ttl).unwrap_or(*at);
        }
    }

    /// Forgets everything, so that the next look-ups ask the server.
    pub(crate) fn forget(&self) {
        let mut known = self.state.lock();
        // The thread that reports expired listings reports all of them.
        let now = Instant::now();
        known.expiring = known.folders.iter().map(|(path, _)| (now, path.clone())).collect();
        known.folders.clear();
        known.is_forgotten = true;
        self.moved.notify_all();
    }

    /// Waits until the listing of a folder expires, which counts as a change of it, or until woken.
    pub(crate) fn wait(&self, timeout: Duration) -> Changes {
        let end = after(timeout);
        let mut known = self.state.lock();
        loop {
            let now = Instant::now();
            let mut changes = Changes { overflowed: std::mem::take(&mut known.is_forgotten), ..Changes::default() };
            while known.expiring.front().is_some_and(|(at, _)| *at <= now)
                && let Some((_, folder)) = known.expiring.pop_front()
            {
                changes.events.insert(DirEvent { folder, name: OsString::new(), listed: true });
            }
            if std::mem::take(&mut known.is_woken) || !changes.events.is_empty() || changes.overflowed || now >= end {
                return changes;
            }
            let until = known.expiring.front().map_or(end, |(at, _)| (*at).min(end));
            self.moved.wait_until(&mut known, until);
        }
    }

    pub(crate) fn wake(&self) {
        self.state.lock().is_woken = true;
        self.moved.notify_all();
    }

    /// Forgets the least recently used folders while all together hold too many names, or take too much memory.
    fn shrink(&self) {
        let mut known = self.state.lock();
        let size = |folder: &Mutex<FolderState>| {
            let of = |listing: &Listing| (listing.len(), listing.memory.bytes());
            folder.try_lock().and_then(|state| Some(of(&state.listing.as_ref()?.1))).unwrap_or((0, 0))
        };
        let sizes = known.folders.iter().map(|(_, folder)| size(folder));
        let (mut names, mut bytes) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        while (names > limits::LISTED_NAMES || bytes > self.most) && known.folders.len() > 1 {
            let Some((_, gone)) = known.folders.pop_lru() else { break };
            let gone = size(&gone);
            (names, bytes) = (names.saturating_sub(gone.0), bytes.saturating_sub(gone.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Verify;

    fn object(key: &str) -> Found {
        Found::object(key, State { size: Some(1), ..State::default() })
    }

    fn cache() -> Arc<Cache> {
        Cache::new(64 << 20, Verify::Lazy)
    }

    fn empty(prefix: &str) -> Listing {
        Listing::within(prefix.as_bytes(), prefix.is_empty(), Taken::within(&cache(), u64::MAX))
    }

    fn listing(prefix: &str, objects: &[&str], folders: &[&str]) -> Listing {
        let mut listing = empty(prefix);
        let objects = objects.iter().map(|key| object(key));
        let folders = folders.iter().map(|key| Found::folder(*key));
        for found in objects.chain(folders) {
            listing.take(found).unwrap();
        }
        listing.finish().unwrap();
        listing
    }

    fn names(listing: &Listing) -> Vec<&str> {
        (0..listing.len()).map(|at| listing.name(at).to_str().unwrap()).collect()
    }

    #[test]
    fn odd_keys_have_names() {
        let found = listing("a/", &["a/x", "a/.", "a/50%", "elsewhere"], &["a//", "a/../", "a/x/", "a/d/"]);
        assert_eq!(names(&found), ["%2E", "%2E%2E", "%empty", "50%25", "d", "x", "x%_2"]);
        assert_eq!(found.get(b"x%_2").unwrap().part(), b"x");
        assert_eq!(found.get(b"x%_2").unwrap().node, Node::Folder);
        assert!(matches!(found.get(b"x").unwrap().node, Node::Object(_)));
        assert_eq!(found.get(b"%empty").unwrap().part(), b"");
        assert!(found.get(b"y").is_none());
    }

    #[test]
    fn what_is_listed_is_told_as_it_was() {
        let states = [
            State { size: None, etag: "".into(), modified: None },
            State { size: Some(u64::MAX - 1), etag: "W/\"x\u{e9}\"".into(), modified: Some(-5) },
            State { size: Some(0), etag: "t".repeat(65_535).into(), modified: Some(0) },
        ];
        let mut listing = empty("a/");
        for (state, key) in states.iter().zip(["a/\u{e9}", "a/%", "a/b"]) {
            listing.take(Found::object(key, state.clone())).unwrap();
        }
        listing.finish().unwrap();
        for (state, (name, part)) in states.iter().zip([("\u{e9}", "\u{e9}"), ("%25", "%"), ("b", "b")]) {
            let entry = listing.get(name.as_bytes()).unwrap();
            assert_eq!(
                (&*entry.name, entry.part(), &entry.node),
                (name, part.as_bytes(), &Node::Object(state.clone()))
            );
        }
        let state = State { etag: "t".repeat(65_536).into(), ..State::default() };
        assert!(listing.take(Found::object("a/c", state)).is_err());
    }

    #[test]
    fn a_server_that_repeats_itself_comes_to_an_end() {
        let mut listing = empty("a/");
        let mut add = |round: usize, number: usize| {
            let key = format!("a/{}", if round == 0 { number } else { number % 1000 });
            listing.take(object(&key))
        };
        assert_eq!((0..FEW).try_for_each(|number| add(0, number)), Ok(()));
        let again = (0..4 * FEW).try_for_each(|number| add(1, number));
        assert!(again.unwrap_err().contains("again and again"));
        assert!(listing.len() <= 2 * FEW);
    }

    #[test]
    fn names_are_counted_before_they_are_taken() {
        let cache = cache();
        let used = || cache.usage().1;
        let mut listing = Listing::within(b"a/", false, Taken::within(&cache, 1 << 20));
        let mut refused = None;
        for number in 0..100_000 {
            if let Err(why) = listing.take(object(&format!("a/{number:06}"))) {
                refused = Some((number, why));
                break;
            }
            let taken = (listing.text.capacity() + listing.rows.capacity() * size_of::<Row>()) as u64;
            assert!(taken <= used(), "{number}: {taken}");
        }
        let (number, why) = refused.unwrap();
        assert!(number > 5000 && why.contains("--cache-size"), "{number}: {why}");
        listing.finish().unwrap();
        let taken = (listing.text.capacity() + listing.rows.capacity() * size_of::<Row>()) as u64;
        assert_eq!(used(), taken);
        drop(listing);
        assert_eq!(used(), 0);
    }

    #[test]
    fn markers_of_folders_are_no_files() {
        let mut found = empty("a/");
        let marker = Found::object("a/", State { size: Some(0), ..State::default() });
        let odd = Found::object("a/", State { size: Some(3), ..State::default() });
        found.take(marker).unwrap();
        assert_eq!(found.len(), 0);
        found.take(odd).unwrap();
        assert_eq!(names(&found), ["%empty"]);
    }

    #[test]
    fn one_thread_lists_and_a_server_that_is_gone_deletes_nothing() {
        let path = Path::new("a");
        let listings = Listings::new(Duration::from_secs(3600), cache());
        let first = listings.list(path, |_| Ok(listing("a/", &["a/x"], &[]))).unwrap();
        let again = listings.list(path, |_| panic!("it is known")).unwrap();
        assert_eq!(first.number, again.number);
        let listings = Listings::new(Duration::from_millis(1), cache());
        listings.list(path, |_| Ok(listing("a/", &["a/x"], &[]))).unwrap();
        let expired = listings.wait(Duration::from_secs(60)).events;
        assert_eq!(expired.iter().map(|event| (&*event.folder, event.listed)).collect::<Vec<_>>(), [(path, true)]);
        let failed = || Err(FetchError::Failed("no server".into()));
        let known = listings.list(path, |was_known| if was_known { failed() } else { panic!() }).unwrap();
        assert_eq!(names(&known), ["x"]);
        assert!(listings.list(Path::new("b"), |_| failed()).is_err());
        listings.forget();
        assert!(listings.wait(Duration::from_secs(60)).overflowed);
        assert!(listings.known(path).is_none());
        assert!(listings.list(path, |_| failed()).is_err());
    }

    #[test]
    fn many_single_look_ups_become_a_listing() {
        let listings = Listings::new(Duration::from_secs(60), cache());
        let path = Path::new("a");
        for number in 0..SINGLES {
            assert_eq!(listings.single(path, b"x"), (None, false));
            listings.remember(path, format!("{number}").as_bytes(), None, true);
        }
        assert_eq!(listings.single(path, b"0"), (Some(None), false));
        assert_eq!(listings.single(path, b"x"), (None, true));
    }
}
