//! The protocol of one kind of server: requests that list or get objects, and answers to listings.

use futures_util::future::BoxFuture;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{self, AsHeaderName},
};
use object_store::client::{HttpRequest, HttpRequestBody};

use crate::store::remote::{auth::address::hide, listing::time, location::escape_value, object::FetchError};

/// Most names asked for in one request of a listing: the limit of S3.
pub(crate) const PAGE: u16 = 1000;

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
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
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) target: Target<'a>,
    pub(crate) headers: HeaderMap,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(method: Method, target: Target<'a>) -> Self {
        let mut headers = HeaderMap::new();
        // Compressed answers have other lengths, and no ranges.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Self { method, target, headers }
    }
}

/// The state of an object, as far as the server tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// Size in bytes; `None` if a listing does not say.
    pub(crate) size: Option<u64>,
    /// The entity tag without quotes; weak tags stay as they are, with `W/`. Empty if there is none.
    pub(crate) etag: Box<str>,
    /// Seconds since 1970.
    pub(crate) modified: Option<i64>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Folder,
    Object(State),
}

/// A key in a listing. That of a folder ends in `/`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) key: Vec<u8>,
    pub(crate) node: Node,
}

impl Found {
    pub(crate) fn object(key: impl Into<Vec<u8>>, state: State) -> Self {
        Self { key: key.into(), node: Node::Object(state) }
    }

    pub(crate) fn folder(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), node: Node::Folder }
    }
}

/// Takes the names of a listing as they are read.
pub(crate) trait Collect: Send {
    /// # Errors
    /// Why no more are taken.
    fn take(&mut self, found: Found) -> Result<(), String>;
}

/// The first names of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Most names that are kept.
    pub(crate) most: usize,
    pub(crate) found: Vec<Found>,
    /// Whether there are more.
    pub(crate) has_more: bool,
}

impl Collect for Page {
    fn take(&mut self, found: Found) -> Result<(), String> {
        match self.found.len() >= self.most {
            true => self.has_more = true,
            false => self.found.push(found),
        }
        Ok(())
    }
}

/// A kind of server.
pub(crate) trait Backend: Send + Sync {
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
    fn next_page(&self, _headers: &HeaderMap, _body: &[u8]) -> Option<String> {
        None
    }

    /// Notes a refusal. Returns whether another attempt may succeed.
    fn was_refused(&self, _status: StatusCode, _headers: &HeaderMap, _code: &str) -> bool {
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
    fn learn(&self, _body: &[u8]) -> Result<(), String> {
        Ok(())
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

    /// Returns whether a folder is a resource of its own, which lists all of its content at once. Redirects are then
    /// followed; signed requests must not follow them.
    fn is_web(&self) -> bool {
        false
    }
}

/// Makes a request for a URL, whose parts must be escaped.
pub(crate) fn request(ask: &Ask<'_>, url: &str) -> Result<HttpRequest, FetchError> {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = ask.method.clone();
    *request.headers_mut() = ask.headers.clone();
    *request.uri_mut() =
        url.parse().map_err(|_| FetchError::Failed("a key, or an address, that no request can name".into()))?;
    Ok(request)
}

/// Returns the error of a request for which there are no credentials. What to do comes first. That the service of a
/// cloud's machines does not answer is no news elsewhere, and is only logged.
pub(crate) fn without_credentials(backend: &dyn Backend, error: &object_store::Error) -> FetchError {
    let (remedy, why) = (backend.remedy(), hide(&error.to_string()));
    log::debug!("no credentials: {why}");
    let is_service = ["169.254.", "metadata.google.internal"].iter().any(|service| why.contains(service));
    let why = if is_service { String::new() } else { format!(" ({why})") };
    FetchError::Denied(format!("no credentials; {remedy}{why}"))
}

/// Returns the token of a page as a part of a query; nothing for the first page.
pub(crate) fn token(name: &str, more: Option<&str>) -> String {
    more.map_or(String::new(), |more| format!("&{name}={}", escape_value(more.as_bytes())))
}

/// Parses a number of bytes; `None` if no file can have that many.
pub(crate) fn size(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|size| i64::try_from(*size).is_ok())
}

/// Returns an entity tag without its quotes; a weak tag stays as it is.
pub(crate) fn etag(text: &str) -> &str {
    match text.strip_prefix("W/") {
        Some(_) => text,
        None => text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text),
    }
}

/// Returns the text of a header; `None` if there is none.
pub(crate) fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns what the headers of an answer say of the object, other than its size.
pub(crate) fn state(headers: &HeaderMap) -> State {
    State {
        size: None,
        etag: text(headers, header::ETAG).map_or("", etag).into(),
        modified: text(headers, header::LAST_MODIFIED).and_then(time::parse),
    }
}
