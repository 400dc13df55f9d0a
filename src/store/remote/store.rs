//! A store that is reached by requests: a bucket, a repository or a web server.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    Detect, Location, Options, Purpose,
    backends::backend::{self, Ask, Collect, Found, Node, State, Target, text},
    file::{self, Blocks, RemoteFile},
    http::{
        client::{self, Answer, Client, wait},
        fetch,
        trouble::Trouble,
    },
    listing::{Entry, Listing, Listings, names},
    object::{FetchError, ObjectId, is_unreached},
};
use crate::{
    cache::Cache,
    disk::{self, Disk},
    escape,
    runtime::runtime,
    single_flight::SingleFlight,
    source::{Source, SourceError, Wait},
    store::{Changes, File, Folder, Kind, Names, Stat, Store, Usage, Version, Watch, errno, would_block},
    wanted,
};

/// Most bytes that are fetched ahead of all readers of a store before they are read: this many, or this part (1/n) of
/// the cache's budget if that is less.
const MOST_AHEAD: u64 = 64 << 20;
const PART_AHEAD: u64 = 4;

/// Longest time for a listing that has a substitute: an older answer, or another request.
pub(super) const BRIEFLY: Duration = Duration::from_secs(5);

/// Bytes of an object's front that are fetched if its name says that it is a container. They show the format, and most
/// containers can be opened with them alone.
const FRONT: u64 = 256 << 10;
/// Objects that are looked into at once with `--detect=content`.
const LOOKED_INTO: usize = 64;
/// Largest answer in bytes about a data set's revision, which has the names of all its files.
const LONGEST_REVISION: usize = 64 << 20;
/// Largest detection result, in bytes, that is kept on disk for an object.
const LONGEST_WORD: u64 = 256;
/// Names of a folder that are listed when it is entered, to find out whether it is a container. Folders of data sets have
/// fewer.
const FIRST_NAMES: u16 = 100;
/// Most names with the same beginning that are listed to look up one name.
const BESIDE: u16 = 16;

/// Whether a name says that an object is a container.
pub(crate) type IsContainerName = Box<dyn Fn(&OsStr) -> bool + Send + Sync>;

/// A bucket, or the part of a bucket below a prefix.
pub(crate) struct RemoteStore {
    pub(super) client: Arc<Client>,
    /// The store in [`ObjectId`]s: its name, and a hash of the query that each address has.
    identity: Arc<str>,
    /// Empty, or ends in `/`.
    prefix: Vec<u8>,
    pub(super) listings: Arc<Listings>,
    /// The objects that are being asked for because they are expected.
    expected: Mutex<HashMap<PathBuf, Arc<SingleFlight<()>>>>,
    blocks: Arc<Blocks>,
    /// Why bytes are not kept on disk although they should be.
    without_disk: Option<String>,
    is_container_name: IsContainerName,
    /// Whether the server lists by WebDAV only.
    pub(super) by_webdav: AtomicBool,
    /// Whether it has a name that begins with a dot, which may be missing in listings.
    hides_dots: AtomicBool,
    detect: Detect,
    /// Modification time of all folders, because stores have none.
    opened: i64,
    owner: (u32, u32),
}

impl RemoteStore {
    /// Prepares access to what a URL names, without a request.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub(super) fn new(
        location: &Location,
        options: &Options,
        cache: &Arc<Cache>,
        is_container_name: IsContainerName,
    ) -> Result<Self, FetchError> {
        let ahead = MOST_AHEAD.min(cache.usage().0 / PART_AHEAD);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        let runtime = runtime().map_err(|error| FetchError::Failed(error.to_string()))?;
        let (disk, without_disk) = match options.open_disk_cache(cache) {
            Ok(disk) => (disk, None),
            Err(why) if options.requires_disk_cache => return Err(FetchError::Failed(format!("--disk-cache: {why}"))),
            Err(why) => {
                log::warn!("no cache on disk: {why}");
                (None, Some(why))
            }
        };
        let client = Client::new(location, options)?;
        Ok(Self {
            identity: identity(location, &client.store),
            client,
            prefix: location.key.clone(),
            listings: Arc::new(Listings::new(options.dir_ttl, cache.clone())),
            expected: Mutex::default(),
            blocks: Blocks::new(runtime.handle().clone(), disk, cache.clone(), ahead),
            without_disk,
            is_container_name,
            by_webdav: AtomicBool::new(false),
            hides_dots: AtomicBool::new(false),
            detect: options.detect,
            opened: now,
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        })
    }

    /// Opens what a URL names: a folder, or one object, whose name in the store's folder is returned.
    ///
    /// # Errors
    /// That nothing is there, or what the server says.
    pub(crate) fn open(
        location: &Location,
        options: &Options,
        cache: &Arc<Cache>,
        is_container_name: IsContainerName,
    ) -> io::Result<(Self, Option<OsString>)> {
        let mut store = Self::new(location, options, cache, is_container_name)?;
        wait(store.learn())?;
        let Some((folder, part)) = location.split() else {
            if options.opened_for == Purpose::Folder
                && !wait(store.may_be_folder(&location.key))?
                && !location.key.is_empty()
            {
                return Err(not_found(&location.shown()));
            }
            return Ok((store, None));
        };
        store.prefix = folder.to_vec();
        match store.look_up(Path::new(""), &[], names::name_of(part, true, 1).as_bytes())? {
            Some(Entry { node: Node::Object(_), name, .. }) => Ok((store, Some(String::from(name).into()))),
            Some(_) => {
                store.prefix = [&location.key, &b"/"[..]].concat();
                store.listings.forget();
                Ok((store, None))
            }
            None => Err(not_found(&location.shown())),
        }
    }

    /// Asks the server for information about the store itself, if it is needed.
    pub(super) async fn learn(&self) -> Result<(), FetchError> {
        if !self.client.backend.is_pinned() {
            return Ok(());
        }
        let mut attempts = self.client.attempts(None);
        let mut answer = match attempts.send(&Ask::new(Method::GET, Target::Store)).await {
            Err(FetchError::Gone) => return Err(self.client.failed("there is no such data set, or revision")),
            answer => answer?,
        };
        let body = answer.collect(LONGEST_REVISION, None).await.map_err(|trouble| FetchError::Failed(trouble.why))?;
        self.client.backend.learn(&body).map_err(|why| self.client.failed(why))
    }

    /// Returns the key that a folder's names are appended to; `None` if there can be no such folder.
    fn key_of(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut key = self.prefix.clone();
        let mut at = PathBuf::new();
        for name in folder.iter() {
            let part = match names::part_of(name.as_bytes(), names::is_top(&at)) {
                Some(part) => part,
                None if names::needs_listing(name.as_bytes()) => {
                    let listing = self.listing(&at, &key)?;
                    match listing.get(name.as_bytes()) {
                        Some(entry) if entry.node == Node::Folder => entry.part().to_vec(),
                        _ => return Ok(None),
                    }
                }
                None => return Ok(None),
            };
            key.extend_from_slice(&part);
            key.push(b'/');
            at.push(name);
        }
        Ok(Some(key))
    }

    fn listing(&self, folder: &Path, key: &[u8]) -> io::Result<Arc<Listing>> {
        let is_top = names::is_top(folder);
        let listing = self.listings.list(folder, |known| wait(self.list(key, is_top, known)))?;
        // Nobody has to ask whether there is such a folder.
        if listing.len() > 0
            && let (Some(parent), Some(name)) = (folder.parent(), folder.file_name())
            && let Some(part) = names::part_of(name.as_bytes(), names::is_top(parent))
            && self.listings.known(parent).is_none()
            && self.listings.single(parent, name.as_bytes()).0.is_none()
        {
            let entry = Entry::new(&part, Node::Folder, names::is_top(parent));
            self.listings.remember(parent, name.as_bytes(), Some(entry), false);
        }
        Ok(listing)
    }

    fn find(&self, path: &Path) -> io::Result<Option<Entry>> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let unsized_entry = match self.listings.known(folder).map(|listing| (listing.get(name.as_bytes()), listing)) {
            Some((Some(entry), _)) if entry.is_unsized() => Some(entry),
            Some((None, listing)) if self.may_hide(folder, name.as_bytes(), &listing) => {
                return self.hidden(folder, name.as_bytes());
            }
            Some((found, _)) => return Ok(found),
            None => None,
        };
        if self.is_no_folder(folder) {
            return Ok(None);
        }
        let Some(key) = self.key_of(folder)? else { return Ok(None) };
        match unsized_entry {
            Some(entry) => self.complete(folder, &key, &entry),
            None => self.look_up(folder, &key, name.as_bytes()),
        }
    }

    /// Does the same as [`Self::find`], and returns the key as well.
    fn find_key(&self, path: &Path) -> io::Result<Option<(Vec<u8>, Entry)>> {
        let Some(entry) = self.find(path)? else { return Ok(None) };
        let key = self.key_of(path.parent().unwrap_or(Path::new("")))?;
        Ok(key.map(|key| ([&key, entry.part()].concat(), entry)))
    }

    /// Returns whether nothing can be below a path, by the listing of its folder. Nothing is asked for there.
    fn is_no_folder(&self, path: &Path) -> bool {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let Some(listing) = self.listings.known(folder) else { return false };
        match listing.get(name.as_bytes()).map(|entry| entry.node) {
            // A web server need not list all that it has. Below a file, some answer that there is nothing, others that
            // the request was wrong.
            None => !self.client.backend.is_web() && !names::needs_listing(name.as_bytes()),
            Some(Node::Object(_)) => self.client.backend.is_web(),
            Some(Node::Folder) => false,
        }
    }

    /// Returns whether a folder may have a name that begins with a dot although its listing has none such: many web
    /// servers leave them out. Asked for is what SOURCE itself has, and all once one was found.
    fn may_hide(&self, folder: &Path, name: &[u8], listing: &Listing) -> bool {
        let is_asked = || names::is_top(folder) || self.hides_dots.load(Relaxed);
        let is_dotted = |name: &[u8]| name.starts_with(b".");
        let is_web = self.client.backend.is_web() && !self.client.backend.is_pinned();
        is_web && is_dotted(name) && is_asked() && !(0..listing.len()).any(|at| is_dotted(listing.name(at).as_bytes()))
    }

    /// Asks for an object that a listing leaves out.
    fn hidden(&self, folder: &Path, name: &[u8]) -> io::Result<Option<Entry>> {
        let is_top = names::is_top(folder);
        let Some(part) = names::part_of(name, is_top) else { return Ok(None) };
        let Some(key) = self.key_of(folder)? else { return Ok(None) };
        match self.complete(folder, &key, &Entry::new(&part, Node::Object(State::default()), is_top)) {
            Err(error) if errno(&error) == Some(libc::EACCES) => Ok(None),
            found => {
                self.hides_dots.fetch_or(matches!(found, Ok(Some(_))), Relaxed);
                found
            }
        }
    }

    /// Requests the size and state of an object if its listing does not have them.
    fn complete(&self, folder: &Path, key: &[u8], entry: &Entry) -> io::Result<Option<Entry>> {
        let name = entry.name.as_bytes();
        if let (Some(known), _) = self.listings.single(folder, name) {
            return Ok(known);
        }
        let state = there(wait(self.head(&[key, entry.part()].concat())))?;
        let found = state.map(|state| entry.with(Node::Object(state)));
        self.listings.remember(folder, name, found.clone(), true);
        Ok(found)
    }

    /// Returns what a name in a folder stands for. All keys of the folder begin with `key`, which is empty for the root.
    fn look_up(&self, folder: &Path, key: &[u8], name: &[u8]) -> io::Result<Option<Entry>> {
        let key = if key.is_empty() { &self.prefix } else { key };
        let is_top = names::is_top(folder);
        let (known, is_crowd) = self.listings.single(folder, name);
        if let Some(known) = known {
            return Ok(known);
        }
        let part = names::part_of(name, is_top);
        if is_crowd || self.client.backend.is_pinned() || part.is_none() && names::needs_listing(name) {
            return match self.listing(folder, key)?.get(name) {
                Some(entry) if entry.is_unsized() => self.complete(folder, key, &entry),
                entry => Ok(entry),
            };
        }
        let Some(part) = part else { return Ok(None) };
        // The front of a known object is not fetched again.
        let was_object =
            matches!(self.listings.outdated(folder, name), Some(Some(Entry { node: Node::Object(_), .. })));
        let wants_front = !was_object && (self.is_container_name)(OsStr::from_bytes(name));
        let entry = match wait(self.look(&[key, &part].concat(), wants_front)) {
            Ok(node) => node.map(|node| Entry::new(&part, node, is_top)),
            // A server that can't be reached has deleted nothing: the last answer is used for a while longer.
            // One of a listing without sizes is not: it would be an empty file.
            Err(error) => match self.listings.outdated(folder, name) {
                Some(Some(entry)) if entry.is_unsized() => return Err(error.into()),
                Some(entry) if matches!(error, FetchError::Failed(_)) || error.is_unreached() => {
                    log::warn!("shown as it was before: {error}");
                    entry
                }
                _ => return Err(error.into()),
            },
        };
        if name.starts_with(b".") && entry.is_some() {
            self.hides_dots.store(true, Relaxed);
        }
        self.listings.remember(folder, name, entry.clone(), true);
        Ok(entry)
    }

    /// Learns what a folder has by these names: from one page of its names, which is the whole listing of a small
    /// folder, and for those that are not on it by themselves. With `lists`, from the whole listing.
    fn look_at_front(&self, folder: &Path, names: &[&OsStr], lists: bool) -> io::Result<()> {
        let is_known = |name: &&OsStr| self.listings.single(folder, name.as_bytes()).0.is_some();
        if self.listings.known(folder).is_some() || !lists && names.iter().all(is_known) {
            return Ok(());
        }
        let Some(key) = self.key_of(folder)? else { return Ok(()) };
        if lists || self.client.backend.is_web() {
            return match self.listing(folder, &key) {
                Err(error) if self.client.backend.is_web() => {
                    // A web server need not list a folder. If it did not answer at all, none of the names is looked up.
                    let keys = names.iter().map(|name| [&*key, name.as_bytes()].concat());
                    if is_unreached(&error) && !wait(self.answers(keys))? { Err(error) } else { Ok(()) }
                }
                listed => listed.map(drop),
            };
        }
        let is_top = names::is_top(folder);
        let page = wait(self.page(&key, FIRST_NAMES, None))?;
        let mut front = self.listings.begin(&key, is_top);
        page.found.into_iter().try_for_each(|found| front.take(found)).map_err(FetchError::Failed)?;
        front.finish()?;
        if !page.has_more {
            self.listings.list(folder, |_| Ok(front))?;
            return Ok(());
        }
        let look = |name: &OsStr| {
            let name = name.as_bytes().to_vec();
            let listed = front.get(&name);
            let key = [&*key, &*name].concat();
            async move {
                let entry = match listed {
                    Some(entry) => Some(entry),
                    None => self.look(&key, false).await?.map(|node| Entry::new(&name, node, is_top)),
                };
                Ok::<_, FetchError>((name, entry))
            }
        };
        let found = wait(futures_util::future::try_join_all(names.iter().map(|name| look(name))))?;
        for (name, entry) in found {
            self.listings.remember(folder, &name, entry, false);
        }
        Ok(())
    }

    /// Returns whether the server, which has just been asked in vain, has an answer for any of these keys now.
    async fn answers(&self, keys: impl Iterator<Item = Vec<u8>>) -> Result<bool, FetchError> {
        let within = Some(BRIEFLY.min(self.client.timeout));
        let ask = async |key: Vec<u8>| {
            let mut attempts = self.client.attempts(within);
            attempts.send(&Ask::new(Method::HEAD, Target::Object(&key))).await.map(drop)
        };
        let answers = futures_util::future::join_all(keys.map(ask)).await;
        Ok(!answers.into_iter().all(|answer| answer.is_err_and(|error| error.is_unreached())))
    }

    /// Asks the server what has this key: an object, or a folder of keys that begin with it.
    pub(super) async fn look(&self, key: &[u8], wants_front: bool) -> Result<Option<Node>, FetchError> {
        let below = [key, b"/"].concat();
        if wants_front {
            return match there(self.front(key).await)? {
                Some(state) => Ok(Some(Node::Object(state))),
                None => Ok(self.has_keys(&below).await?.then_some(Node::Folder)),
            };
        }
        if self.client.backend.is_web() {
            // The name of a folder leads to its page.
            if let Ok(true) = self.has_keys(&below).await {
                return Ok(Some(Node::Folder));
            }
            return Ok(there(self.head(key).await)?.map(Node::Object));
        }
        // One page of the keys with this prefix tells both, unless other keys fill it.
        if let Ok(page) = self.page(key, BESIDE, Some(BRIEFLY)).await {
            let has_folder = page.found.iter().any(|found| found.key == below && found.node == Node::Folder);
            let is_object = |found: &Found| found.key == key && found.node != Node::Folder;
            match page.found.into_iter().find(is_object).map(|found| found.node) {
                Some(Node::Object(State { size: None, .. })) => {}
                None if has_folder => return Ok(Some(Node::Folder)),
                None if page.has_more => {}
                node => return Ok(node),
            }
        }
        let (object, folder) = futures_util::join!(self.head(key), self.has_keys(&below));
        match (object, folder) {
            (Ok(state), _) => Ok(Some(Node::Object(state))),
            (Err(FetchError::Gone), folder) => Ok(folder?.then_some(Node::Folder)),
            // Without the right to list, the server answers that a missing object is not allowed.
            (Err(_), Ok(true)) => Ok(Some(Node::Folder)),
            (Err(error), _) => Err(error),
        }
    }

    /// Returns the size and state of an object.
    pub(super) async fn head(&self, key: &[u8]) -> Result<State, FetchError> {
        let mut attempts = self.client.attempts(None);
        let is_web = self.client.backend.is_web();
        let mut empty = None;
        // To HEAD, some web servers give no length, or 0 for what is not empty. Apache gives none for an empty file.
        for (method, is_part) in [(Method::HEAD, false), (Method::GET, true), (Method::GET, false)] {
            if is_part && !is_web {
                continue;
            }
            let is_head = method == Method::HEAD && is_web;
            let mut ask = Ask::new(method, Target::Object(key));
            if is_part {
                ask.headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-0"));
            }
            let answer = match attempts.send(&ask).await {
                // Some servers have no HEAD, and some addresses are signed for GET alone.
                Err(FetchError::Denied(_) | FetchError::Failed(_)) if is_head => continue,
                // It has no first byte.
                Err(FetchError::Changed) if is_part => match empty.take() {
                    Some(state) => return Ok(state),
                    None => continue,
                },
                answer => answer?,
            };
            let size = match answer.status {
                StatusCode::PARTIAL_CONTENT if is_part => fetch::part(&answer.headers).and_then(|(_, _, size)| size),
                _ => length_of(&answer),
            };
            if size.is_some() {
                let state = State { size, ..self.client.backend.state(&answer.headers) };
                if !is_head || size != Some(0) {
                    return Ok(state);
                }
                empty = Some(state);
            }
        }
        Err(self.client.failed("the server does not say how large the object is"))
    }

    /// Returns the size and state of an object, and keeps its first bytes for opening it.
    async fn front(&self, key: &[u8]) -> Result<State, FetchError> {
        let mut ask = Ask::new(Method::GET, Target::Object(key));
        ask.headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-262143"));
        let mut attempts = self.client.attempts(None);
        loop {
            let mut answer = match attempts.send(&ask).await {
                // It is empty.
                Err(FetchError::Changed) => return self.head(key).await,
                answer => answer?,
            };
            if self.is_page(&answer) {
                return Err(FetchError::Gone);
            }
            let size = match answer.status {
                StatusCode::PARTIAL_CONTENT => fetch::part(&answer.headers)
                    .and_then(|(start, last, size)| size.filter(|&size| start == 0 && last + 1 == size.min(FRONT))),
                _ => length_of(&answer),
            };
            let Some(size) = size else { return self.head(key).await };
            let state = State { size: Some(size), ..self.client.backend.state(&answer.headers) };
            match answer.collect(size.min(FRONT) as usize, None).await {
                Ok(front) if front.len() as u64 == size.min(FRONT) => {
                    self.object(key, &state).add_front(&front);
                    return Ok(state);
                }
                Ok(_) => attempts.again(Trouble::passing("the answer was cut"), None).await?,
                Err(trouble) => attempts.again(trouble, None).await?,
            }
        }
    }

    /// Returns whether an answer is the page of a folder that the server redirected to.
    fn is_page(&self, answer: &Answer) -> bool {
        self.client.backend.is_web()
            && answer.status == StatusCode::OK
            && text(&answer.headers, header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html"))
    }

    fn id(&self, key: &[u8], state: &State) -> ObjectId {
        // Without a tag, the time tells states apart.
        let etag = match (&*state.etag, state.modified) {
            ("", Some(modified)) => format!("modified {modified}"),
            (etag, _) => etag.to_owned(),
        };
        ObjectId {
            store: self.identity.clone(),
            key: escape::escape_all(key).into(),
            etag: etag.into(),
            size: state.size.unwrap_or(0),
        }
    }

    /// Returns how the bytes of an object in a state are fetched.
    pub(super) fn fetch(&self, key: &[u8], state: &State) -> fetch::Object {
        fetch::Object { client: self.client.clone(), key: key.into(), state: state.clone(), id: self.id(key, state) }
    }

    /// Returns the bytes of an object in a state.
    fn object(&self, key: &[u8], state: &State) -> Arc<RemoteFile> {
        self.blocks.file(Arc::new(self.fetch(key, state)))
    }

    /// The cache on disk, for what is remembered of objects: only where their states can be told apart for certain, and
    /// where the disk answers at once or not at all.
    fn disk_for_words(&self) -> Option<&Arc<Disk>> {
        self.blocks.disk.as_ref().filter(|disk| !self.lists_as_web() && disk.is_local() && !disk.is_resting())
    }

    fn stat_of(&self, key: &[u8], node: &Node) -> Stat {
        let folder = State { etag: "folder".into(), ..State::default() };
        let (kind, mode, state) = match node {
            Node::Folder => (Kind::Folder, 0o555, &folder),
            Node::Object(state) => (Kind::File, 0o444, state),
        };
        // The lists of web servers have no tags.
        let has_time = self.client.backend.is_web() && state.modified.is_some();
        let told = if has_time { &State { etag: "".into(), ..state.clone() } } else { state };
        let (version, (uid, gid)) = (version(&self.id(key, told)), self.owner);
        let mtime = (state.modified.unwrap_or(self.opened), 0);
        Stat { kind, size: state.size.unwrap_or(0), mtime, mode, uid, gid, via_link: false, version }
    }
}

/// Returns the name of a store in [`ObjectId`]s. A web server may have another object for each query. The query may be a
/// secret, so its hash stands there.
fn identity(location: &Location, store: &Arc<str>) -> Arc<str> {
    match &location.query {
        Some(query) if location.is_web() => {
            format!("{store} ? {}", escape::hex(&Sha256::digest(query.as_bytes()))).into()
        }
        _ => store.clone(),
    }
}

/// Returns what was found; `None` if the server says that it is not there.
fn there<T>(found: Result<T, FetchError>) -> Result<Option<T>, FetchError> {
    match found {
        Err(FetchError::Gone) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the length of an object, if the server gives it with an answer about all of it.
fn length_of(answer: &Answer) -> Option<u64> {
    if answer.status == StatusCode::PARTIAL_CONTENT {
        None
    } else {
        text(&answer.headers, header::CONTENT_LENGTH).and_then(backend::size)
    }
}

/// Returns a hash of everything that tells the states of objects apart.
fn version(id: &ObjectId) -> Version {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(id.to_bytes())[..16]);
    Version::object(u128::from_le_bytes(bytes), id.size)
}

/// Returns the disk cache's key for the detection result of an object in one state. It names this program's version,
/// because another one may recognise other formats.
fn word_key(version: &Version) -> Vec<u8> {
    [concat!("word ", env!("CARGO_PKG_VERSION"), "\0").as_bytes(), &version.to_bytes()[..]].concat()
}

fn not_found(url: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{url}: there is no such object or folder"))
}

impl Store for RemoteStore {
    fn stat(&self, path: &Path, may_wait: Wait) -> io::Result<Option<Stat>> {
        if may_wait == Wait::Never {
            return Err(would_block());
        }
        if names::is_top(path) {
            return Ok(Some(self.stat_of(&self.prefix, &Node::Folder)));
        }
        Ok(self.find_key(path)?.map(|(key, entry)| self.stat_of(&key, &entry.node)))
    }

    fn expect(&self, path: &Path) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
        let is_known =
            || self.listings.known(folder).is_some() || self.listings.single(folder, name.as_bytes()).0.is_some();
        let is_top = names::is_top(folder);
        let Some(part) =
            names::part_of(name.as_bytes(), is_top).filter(|_| !is_known() && !self.client.backend.is_pinned())
        else {
            return;
        };
        let Ok(Some(key)) = self.key_of(folder) else { return };
        // Others that expect it meanwhile wait for this request.
        let asked = self.expected.lock().entry(path.to_path_buf()).or_default().clone();
        let ask = || {
            // What fails is asked again by who needs it, and said there.
            if !is_known()
                && let Ok(node) = wait(self.look(&[&*key, &*part].concat(), true))
            {
                let entry = node.map(|node| Entry::new(&part, node, is_top));
                self.listings.remember(folder, name.as_bytes(), entry, true);
            }
            Ok(())
        };
        // A reader that was killed hears that where it waits next.
        let _ = asked.get_or_try_init_while(wanted::check, ask);
        self.expected.lock().remove(path);
    }

    fn expect_in(&self, folder: &Path, names: &[&OsStr], lists: bool) -> io::Result<()> {
        match self.look_at_front(folder, names, lists) {
            Err(error) if errno(&error) == Some(libc::EACCES) => Ok(()),
            looked => looked,
        }
    }

    fn name_of(&self, folder: &Path, part: &OsStr) -> OsString {
        names::name_of(part.as_bytes(), names::is_top(folder), 1).into()
    }

    fn part_of(&self, folder: &Path, name: &OsStr) -> OsString {
        // Names of duplicates, and of parts that were too long, are nobody's keys.
        let part = names::part_of(name.as_bytes(), names::is_top(folder));
        part.map_or_else(|| name.to_owned(), OsString::from_vec)
    }

    fn folder<'a>(&'a self, path: &Path) -> io::Result<Box<dyn Folder + 'a>> {
        let key = self.key_of(path)?.ok_or(Errno::NOENT)?;
        let listing = self.listing(path, &key)?;
        if listing.len() == 0 && !names::is_top(path) && self.find(path)?.is_none() {
            return Err(Errno::NOENT.into());
        }
        Ok(Box::new(RemoteFolder { store: self, path: path.into(), key, listing, last: Cell::new(0) }))
    }

    fn open(&self, path: &Path, may_wait: Wait) -> io::Result<Arc<dyn File>> {
        if may_wait == Wait::Never {
            return Err(would_block());
        }
        let (key, entry) = self.find_key(path)?.ok_or(Errno::NOENT)?;
        let Node::Object(state) = entry.node.clone() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an object"));
        };
        let stat = self.stat_of(&key, &entry.node);
        let state = match self.client.backend.is_web() && state.etag.is_empty() {
            true => wait(self.head(&key))?,
            false => state,
        };
        if self.stat_of(&key, &Node::Object(state.clone())).version != stat.version {
            return Err(Errno::STALE.into());
        }
        if state.etag.is_empty() && state.modified.is_none() {
            let text = "the server gives neither ETag nor Last-Modified: a change could not be noticed";
            return Err(self.client.failed(text).into());
        }
        let (file, listings) = (self.object(&key, &state), self.listings.clone());
        Ok(Arc::new(ObjectFile { file, stat, path: path.to_path_buf(), listings, is_gone: AtomicBool::new(false) }))
    }

    fn read_link(&self, _: &Path) -> io::Result<OsString> {
        Err(Errno::INVAL.into())
    }

    fn without_links(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        Ok(Some(path.to_path_buf()))
    }

    fn watch(&self, _: &Path, _: Wait) -> Watch {
        Watch::default()
    }

    fn watched(&self) -> usize {
        0
    }

    fn wait_for_changes(&self, timeout: Duration) -> Changes {
        self.listings.wait(timeout)
    }

    fn wake(&self) {
        self.listings.wake();
    }

    fn usage(&self) -> io::Result<Usage> {
        Ok(Usage { block: 4096, used_blocks: 0, used_files: 0 })
    }

    fn detects_by_name(&self) -> bool {
        self.detect == Detect::Name
    }

    fn is_far(&self) -> bool {
        true
    }

    fn looked_into_at_once(&self) -> usize {
        // A web server's page has no exact sizes, so each would take a request.
        if self.detect == Detect::Content || self.lists_as_web() { LOOKED_INTO } else { 1 }
    }

    fn refresh(&self) {
        self.listings.forget();
    }

    fn disk(&self) -> Option<&Arc<Disk>> {
        // A disk on a server may not answer.
        self.blocks.disk.as_ref().filter(|disk| disk.is_local())
    }

    fn recall(&self, version: &Version) -> Option<Vec<u8>> {
        let key = word_key(version);
        let disk = self.disk_for_words().filter(|disk| disk.contains(&key))?;
        let blob = disk.get(&key).filter(|blob| blob.len() <= LONGEST_WORD)?;
        let mut word = vec![0; usize::try_from(blob.len()).ok()?];
        blob.read_at(0, &mut word).ok().map(|()| word)
    }

    fn remember(&self, version: &Version, word: &[u8]) {
        if let Some(disk) = self.disk_for_words() {
            disk.put(&word_key(version), Arc::new(word.to_vec()));
        }
    }

    fn finish(&self) {
        if let Some(disk) = &self.blocks.disk {
            disk.finish();
        }
    }

    fn traffic(&self) -> Option<serde_json::Value> {
        let (memory_budget, memory_used) = self.blocks.memory();
        let traffic = Traffic {
            disk: self.blocks.disk.as_ref().map(|disk| disk.counters()),
            without_disk: self.without_disk.as_deref(),
            memory_budget,
            memory_used,
            blocks: &self.blocks.counters,
            requests: &self.client.counters,
        };
        serde_json::to_value(traffic).ok()
    }
}

/// Counters for `stats.json`.
#[derive(Serialize)]
struct Traffic<'a> {
    disk: Option<&'a disk::Counters>,
    /// Why bytes are not kept on disk although they should be.
    without_disk: Option<&'a str>,
    memory_budget: u64,
    memory_used: u64,
    #[serde(flatten)]
    blocks: &'a file::Counters,
    #[serde(flatten)]
    requests: &'a client::Counters,
}

/// A folder as it was listed.
struct RemoteFolder<'a> {
    store: &'a RemoteStore,
    path: PathBuf,
    key: Vec<u8>,
    listing: Arc<Listing>,
    /// The number of the name looked up last. Programs usually look up the next one then.
    last: Cell<usize>,
}

impl Folder for RemoteFolder<'_> {
    fn version(&self) -> io::Result<Version> {
        Ok(Version::object(self.listing.number.into(), 0))
    }

    fn names(&self) -> io::Result<Arc<dyn Names>> {
        Ok(self.listing.clone())
    }

    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        let found = self.listing.find_after(self.last.get(), name.as_bytes());
        let Some((at, entry)) = found else { return Ok(None) };
        self.last.set(at);
        let entry = match entry.is_unsized() {
            true => self.store.complete(&self.path, &self.key, &entry)?,
            false => Some(entry),
        };
        Ok(entry.map(|entry| self.store.stat_of(&[&self.key, entry.part()].concat(), &entry.node)))
    }
}

/// An opened object.
struct ObjectFile {
    file: Arc<RemoteFile>,
    stat: Stat,
    path: PathBuf,
    listings: Arc<Listings>,
    /// Whether it proved to be in another state, of which the server is asked once.
    is_gone: AtomicBool,
}

impl ObjectFile {
    /// Lets the next look at the name ask the server again, if a result says that the object has changed.
    fn noted(&self, result: Result<(), SourceError>) -> Result<(), SourceError> {
        if matches!(result, Err(SourceError::Changed))
            && !self.is_gone.swap(true, Relaxed)
            && let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name())
        {
            self.listings.expire(folder, name.as_bytes());
        }
        result
    }
}

impl File for ObjectFile {
    fn stat(&self) -> &Stat {
        &self.stat
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn stat_now(&self) -> io::Result<Stat> {
        Ok(self.stat)
    }

    fn is_deleted(&self) -> bool {
        false
    }

    fn read_now(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let end = offset.saturating_add(length as u64).min(self.stat.size);
        let source: &dyn Source = self;
        source.read(offset.min(end)..end).map_err(|error| match error {
            SourceError::Changed => Errno::STALE.into(),
            SourceError::Io(error) => error,
            error => io::Error::other(error),
        })
    }

    fn descriptor(&self) -> io::Result<fs::File> {
        Err(Errno::OPNOTSUPP.into())
    }
}

impl Source for ObjectFile {
    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.file)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        self.noted(self.file.read_at(offset, buf, wait))
    }

    fn check_unchanged(&self, wait: Wait) -> Result<(), SourceError> {
        self.noted(self.file.check_unchanged(wait))
    }
}
