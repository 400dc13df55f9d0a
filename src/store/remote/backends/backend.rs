//! The protocol of one kind of server: requests that list or get objects, and answers to listings.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use object_store::client::{HttpRequest, HttpRequestBody};

use crate::store::remote::{auth::address::hide, object::FetchError};

/// Most names asked for in one request of a listing: the limit of S3.
pub(in crate::store::remote) const PAGE: u16 = 1000;

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::remote) enum Target<'a> {
    /// The bytes of an object, or what is known of it.
    Object(&'a [u8]),
    /// Information about the store itself, if the server has to be asked for it.
    Store,
    /// One page of the keys that begin with `prefix`, each up to its next `/`. The prefix of a folder is empty or ends
    /// in `/`.
    List {
        prefix: &'a [u8],
        /// Where the previous page ended.
        more: Option<&'a str>,
        /// Most names wanted.
        most: u16,
    },
}

/// A request before it is signed.
#[derive(Debug)]
pub(in crate::store::remote) struct Ask<'a> {
    pub(in crate::store::remote) method: Method,
    pub(in crate::store::remote) target: Target<'a>,
    pub(in crate::store::remote) headers: HeaderMap,
}

impl<'a> Ask<'a> {
    pub(in crate::store::remote) fn new(method: Method, target: Target<'a>) -> Self {
        let mut headers = HeaderMap::new();
        // Compressed answers have other lengths, and no ranges.
        headers.insert(http::header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Self { method, target, headers }
    }
}

/// What a listing says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::remote) struct Object {
    pub(in crate::store::remote) key: Vec<u8>,
    pub(in crate::store::remote) state: State,
}

/// The state of an object, as far as the server tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::store::remote) struct State {
    /// Size in bytes; `None` if a listing does not say.
    pub(in crate::store::remote) size: Option<u64>,
    /// The entity tag without quotes; weak tags stay as they are, with `W/`. Empty if there is none.
    pub(in crate::store::remote) etag: Box<str>,
    /// Seconds since 1970.
    pub(in crate::store::remote) modified: Option<i64>,
}

/// A name in a listing.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::remote) enum Found {
    Object(Object),
    /// The prefix of a folder, with the `/` at its end.
    Folder(Vec<u8>),
}

/// Takes the names of a listing as they are read.
pub(in crate::store::remote) trait Collect: Send {
    /// # Errors
    /// Why no more are taken.
    fn take(&mut self, found: Found) -> Result<(), String>;

    /// Forgets what was taken: the listing is read anew, in another way.
    fn reset(&mut self);
}

/// The first names of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store::remote) struct Page {
    /// Most names that are kept.
    pub(in crate::store::remote) most: usize,
    pub(in crate::store::remote) objects: Vec<Object>,
    pub(in crate::store::remote) folders: Vec<Vec<u8>>,
    /// Whether there are more.
    pub(in crate::store::remote) has_more: bool,
}

impl Collect for Page {
    fn take(&mut self, found: Found) -> Result<(), String> {
        match found {
            _ if self.objects.len() + self.folders.len() >= self.most => self.has_more = true,
            Found::Object(object) => self.objects.push(object),
            Found::Folder(folder) => self.folders.push(folder),
        }
        Ok(())
    }

    fn reset(&mut self) {
        *self = Self { most: self.most, ..Self::default() };
    }
}

/// A kind of server.
pub(in crate::store::remote) trait Backend: Send + Sync + fmt::Debug {
    /// Returns the name of the store in messages and caches, without any secret.
    fn store(&self) -> &Arc<str>;

    /// Returns a request with its address, signed with the current credentials.
    fn request<'a>(&'a self, ask: &'a Ask<'_>) -> BoxFuture<'a, Result<HttpRequest, FetchError>>;

    /// Passes the names in an answer to a listing to `to`, and returns the token for the next page.
    ///
    /// # Errors
    /// What is wrong with the answer.
    fn page(
        &self,
        prefix: &[u8],
        headers: &HeaderMap,
        body: &[u8],
        to: &mut dyn Collect,
    ) -> Result<Option<String>, String>;

    /// Returns a guess of the token for the next page, if it can be found before the answer is parsed.
    fn next_page(&self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        let _ = (headers, body);
        None
    }

    /// Notes a refusal. Returns whether another attempt may succeed.
    fn was_refused(&self, status: StatusCode, headers: &HeaderMap, code: &str) -> bool {
        let _ = (status, headers, code);
        false
    }

    /// Returns what the headers of an answer say of the object, other than its size.
    fn state(&self, headers: &HeaderMap) -> State {
        state(headers)
    }

    /// Notes what a server says of the store itself.
    ///
    /// # Errors
    /// What is wrong with the answer.
    fn learn(&self, body: &[u8]) -> Result<(), String> {
        let _ = body;
        Ok(())
    }

    /// Returns whether redirects are followed. Signed requests must not follow them.
    fn may_be_led(&self) -> bool {
        false
    }

    /// Returns what to do about a request that was not allowed.
    fn remedy(&self) -> &'static str;

    /// Returns what to do about a request that was refused although it had credentials, if those can be named.
    fn refused(&self) -> String {
        self.remedy().into()
    }

    /// Returns whether requests name one state by themselves, as a commit does.
    fn is_pinned(&self) -> bool {
        false
    }

    /// Returns whether a folder is a resource of its own, which lists all of its content at once.
    fn is_web(&self) -> bool {
        false
    }
}

/// Makes a request for a URL, whose parts must be escaped.
pub(in crate::store::remote) fn request(ask: &Ask<'_>, url: &str) -> Result<HttpRequest, FetchError> {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = ask.method.clone();
    *request.headers_mut() = ask.headers.clone();
    *request.uri_mut() =
        url.parse().map_err(|_| FetchError::Failed("a key, or an address, that no request can name".into()))?;
    Ok(request)
}

/// Returns the error of a request for which there are no credentials. What to do comes first. That the service of a
/// cloud's machines does not answer is no news elsewhere, and is only logged.
pub(in crate::store::remote) fn without_credentials(backend: &dyn Backend, error: &object_store::Error) -> FetchError {
    let (store, remedy, why) = (backend.store(), backend.remedy(), hide(&error.to_string()));
    log::debug!("{store}: no credentials: {why}");
    let is_service = ["169.254.", "metadata.google.internal"].iter().any(|service| why.contains(service));
    let why = if is_service { String::new() } else { format!(" ({why})") };
    FetchError::Denied(format!("{store}: no credentials; {remedy}{why}"))
}

/// Parses a number of bytes; `None` if no file can have that many.
pub(in crate::store::remote) fn size(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|size| i64::try_from(*size).is_ok())
}

/// Returns an entity tag without its quotes; a weak tag stays as it is.
pub(in crate::store::remote) fn etag(text: &str) -> &str {
    match text.strip_prefix("W/") {
        Some(_) => text,
        None => text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text),
    }
}

/// Returns what the headers of an answer say of the object, other than its size.
pub(in crate::store::remote) fn state(headers: &HeaderMap) -> State {
    let text = |name: http::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    State {
        size: None,
        etag: text(http::header::ETAG).map_or("", etag).into(),
        modified: text(http::header::LAST_MODIFIED).and_then(crate::store::remote::listing::time::parse),
    }
}
