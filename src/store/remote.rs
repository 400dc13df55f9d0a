//! Buckets and web servers as SOURCE.
//!
//! This module finds objects and sends requests. `file` reads, caches and prefetches the bytes of one object. Both use
//! [`object`]: an [`ObjectId`] names one state of one object, and [`Fetch`] gets its bytes.
//!
//! | module | what it is |
//! |---|---|
//! | `location` | URLs |
//! | `store` | [`RemoteStore`]: paths to keys, look-ups, listings, opened objects |
//! | `listing` | listings, page by page; what lies in a folder, and for how long that is remembered; parts of keys as names |
//! | `file` | bytes of objects: single flight, disk, what is fetched ahead; the cache has them in memory |
//! | `auth` | addresses of servers, and what may be shown of them; credentials |
//! | `http` | connections, and how far an answer may lead elsewhere; requests in several attempts; ranges of one object |
//! | `backends` | the kinds of servers: S3, Azure and Google, HTTP and WebDAV, Hugging Face |
//!
//! Decisions that concern several of these modules:
//!
//! - object_store gives credentials and signatures only. Its listings fail as a whole because of one odd key, and its
//!   retries have neither `Retry-After` nor a time limit.
//! - Each attempt of a request is signed anew, counted, and waits for one of 64 places. Temporary errors are retried
//!   after growing, random pauses. The time limit starts again with each byte that arrives, so a slow answer is no
//!   failure and a stalled one is.
//! - A body that is cut is continued where it ended. Each part names the object's state (`If-Match`), and status, tag,
//!   `Content-Range` and size of each answer are compared.
//! - Names that are looked up alone take a request each (a name with a container's suffix gets the front of the object
//!   in it), until there are many in one folder. Then the folder is listed.
//! - A name whose suffix lied makes the first request inside it ESTALE, a damaged container EIO
//!   (`SourceTree::confirm`). What an object was found to be is kept in the disk cache by its `Version`
//!   (`Store::remember`).
//! - A `Version` of an object is a hash of store, key, entity tag and size. It never settles and never grows, so none
//!   of the rules for times apply.
//! - Blocks of 1 MiB are entries of the cache, on pages of their own that are reused, because fresh memory costs a page
//!   fault for each 4 KiB. They are written past the kernel's page cache (`O_DIRECT`), which takes a sixth of the processor time.
//! - `Source::prefetch` announces what is about to be read: frames of one read of a camera, metadata and rows of the
//!   episodes that a part of a table needs, the front of an episode's next chunk.
//! - The checksum of an uncompressed block of more than 64 MiB is computed from what readers are given (`cache/sums`),
//!   so that it needs no second download.
//! - A child of `fork` has none of its parent's threads, so `client::runtime` gives each process its own. What was
//!   opened before the fork is of no use in the child.

mod auth;
mod backends;
mod check;
pub(crate) mod file;
mod http;
mod listing;
pub(crate) mod location;
pub(crate) mod object;
mod store;

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub(crate) use auth::address::Address;
pub(crate) use check::{Step, check};
pub(crate) use location::{Location, is_url, unknown};
pub(crate) use store::{IsContainerName, RemoteStore};

use self::listing::names;
use super::Store;
use crate::{
    cache::Cache,
    disk::{self, Disk},
};

/// Most of the cache's budget (1/n) that bytes take which wait to be written to the disk cache.
const PART_WAITING: u64 = 4;

/// Fewest bytes that may wait to be written: some blocks.
const FEWEST_WAITING: u64 = 4 << 20;

/// Returns the URL of the folder that holds what a URL names, with the same query, and the name by which that folder
/// shows it. `None` for a whole store, and for what is no URL.
pub(crate) fn parent(url: &Path) -> Option<(PathBuf, OsString)> {
    let (folder, part) = location::parent(url)?;
    Some((folder, names::name_of(&part, true, 1).into()))
}

/// Returns the URL of the folder that holds the first of the names in a URL which is a container's, and the path from that
/// name on. Without such a name, the folder and the name of [`parent`].
pub(crate) fn place(url: &Path, is_container_name: impl Fn(&OsStr) -> bool) -> Option<(PathBuf, PathBuf)> {
    let (mut folder, name) = parent(url)?;
    let mut path = PathBuf::from(name);
    let mut found = (folder.clone(), path.clone());
    while let Some((above, name)) = parent(&folder) {
        path = Path::new(&name).join(path);
        if is_container_name(&name) {
            found = (above.clone(), path.clone());
        }
        folder = above;
    }
    Some(found)
}

/// Returns the URL of what the folder of a URL shows by a name. `None` if that is no URL, and for names that lead to no key
/// without a listing.
pub(crate) fn child(folder: &Path, name: &OsStr) -> Option<PathBuf> {
    location::child(folder, &names::part_of(name.as_bytes(), true)?)
}

/// Environment variable with the URLs whose secrets are not on the command line.
pub(crate) const URLS: &str = "SHARDFS_URLS";

/// Adds the secrets that this process was given for the URL's store.
pub(crate) fn with_secrets(location: Location) -> Location {
    let urls = std::env::var_os(URLS).unwrap_or_default();
    let urls = urls.as_encoded_bytes().split(|&byte| byte == b'\n').map(|url| Path::new(OsStr::from_bytes(url)));
    let others = urls.filter_map(|url| Location::parse(url)?.ok());
    others.fold(location, |location, other| location.with_secrets_of(&other))
}

/// Returns a path or URL as it may be shown. Of a URL that can't be parsed and may hold a secret, only the scheme is
/// shown.
pub(crate) fn shown(source: &Path) -> PathBuf {
    match Location::parse(source) {
        None => source.into(),
        Some(Ok(location)) => location.shown().into(),
        Some(Err(_)) => {
            let text = source.to_string_lossy();
            match text.split_once("://") {
                Some((scheme, rest)) if rest.contains(['@', '?']) => format!("{scheme}://…").into(),
                _ => source.into(),
            }
        }
    }
}

/// A store, the URL as it may be shown, and the name of the object that it is.
pub(crate) type Opened = (Arc<dyn Store>, PathBuf, Option<OsString>);

/// Opens a URL: the store, the URL as it may be shown, and the name of the object that it is. `cache` holds the bytes of
/// its objects. `None` if `source` is no URL.
pub(crate) fn open(
    source: &Path,
    options: &Options,
    cache: &Arc<Cache>,
    is_container_name: IsContainerName,
) -> Option<io::Result<Opened>> {
    let location = match Location::parse(source)? {
        Ok(location) => with_secrets(location),
        Err(why) => return Some(Err(io::Error::new(io::ErrorKind::InvalidInput, why))),
    };
    let opened = RemoteStore::open(&location, options, cache, is_container_name).map(|(store, object)| {
        let store: Arc<dyn Store> = Arc::new(store);
        (store, location.shown().into(), object)
    });
    Some(opened)
}

/// How a remote store is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// The profile in `~/.aws/config` and `~/.aws/credentials`, instead of `AWS_PROFILE`.
    pub profile: Option<String>,
    /// Whether requests are sent without credentials.
    pub no_sign_request: bool,
    /// Address of the server, instead of the cloud's own.
    pub endpoint_url: Option<Address>,
    /// The bucket's region.
    pub region: Option<String>,
    /// File with certificates to trust, in addition to the system's.
    pub ca_bundle: Option<PathBuf>,
    /// Whether to pay for requests to buckets of others.
    pub request_payer: bool,
    /// How long to try before a request fails.
    pub timeout: Duration,
    /// How often a request is retried.
    pub retries: u32,
    /// How long look-ups and listings are trusted.
    pub dir_ttl: Duration,
    /// How containers are distinguished from ordinary objects.
    pub detect: Detect,
    /// The folder in which bytes of objects are kept; `None` for none.
    pub disk_cache: Option<PathBuf>,
    /// Whether it is an error that the folder cannot be used. Otherwise the log and `stats.json` say why it is not.
    pub requires_disk_cache: bool,
    /// Most bytes in that folder; `None` for a tenth of the disk, at most 50 GiB.
    pub disk_cache_size: Option<u64>,
    /// What a folder is opened for.
    pub opened_for: Purpose,
    /// Is called with the reason, which holds no secret, if a request has been tried without success for two seconds.
    pub on_trouble: Option<fn(&str)>,
}

impl Options {
    /// Returns the most bytes that the disk cache may hold.
    pub(crate) fn disk_cache_limit(&self) -> u64 {
        self.disk_cache_size.unwrap_or_else(|| self.disk_cache.as_deref().map_or(0, disk::usual_size))
    }

    /// Opens the disk cache. That of `cache` is used if it is the same folder and has the same size. What waits to be
    /// written counts against the budget of `cache`. `None` if there is to be none.
    ///
    /// # Errors
    /// Why the folder cannot be used.
    pub(crate) fn open_disk_cache(&self, cache: &Cache) -> Result<Option<Arc<Disk>>, String> {
        let Some(folder) = &self.disk_cache else { return Ok(None) };
        let limits = disk::Limits::new(folder, self.disk_cache_limit());
        let of_blocks = cache.disk_tier().map(|tier| tier.disk());
        if let Some(disk) = of_blocks.filter(|disk| disk.path() == *folder && disk.limits().size == limits.size) {
            return Ok(Some(disk.clone()));
        }
        let budget = cache.usage().0;
        let limits = disk::Limits { queue: limits.queue.min((budget / PART_WAITING).max(FEWEST_WAITING)), ..limits };
        Disk::open(folder, limits).map(Some).map_err(|error| unusable(folder, &error))
    }
}

/// Says why the folder of a disk cache cannot be used. An error of the folder's own names it.
fn unusable(folder: &Path, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EEXIST | libc::ENOTDIR) => format!("{}: not a folder", folder.display()),
        Some(_) => format!("{}: {error}", folder.display()),
        None => error.to_string(),
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: None,
            no_sign_request: false,
            endpoint_url: None,
            region: None,
            ca_bundle: None,
            request_payer: false,
            timeout: Duration::from_secs(30),
            retries: 10,
            dir_ttl: Duration::from_secs(10),
            detect: Detect::default(),
            disk_cache: disk::usual_folder(),
            requires_disk_cache: false,
            disk_cache_size: None,
            opened_for: Purpose::default(),
            on_trouble: None,
        }
    }
}

/// What a folder is opened for, and so what its server is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// To be shown: it must be there, and may be a container.
    #[default]
    Folder,
    /// For a path in it. It may be a container; a server may refuse to list the folder of an object that it gives.
    Path,
    /// For a path that begins with a container's name. Whether the folder is one as well is not asked.
    Container,
}

/// How containers are distinguished from ordinary objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum Detect {
    /// By the suffix of the name, confirmed when something inside is first looked up; a listing needs no request for each
    /// object
    #[default]
    Name,
    /// By the first bytes, as in a folder of this machine; a listing needs one request for each object
    Content,
}
