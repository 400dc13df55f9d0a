//! URLs: the server, the store on it, and the key in the store.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// What is escaped in a value of a query, and in a path.
const IN_VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_PATH: &AsciiSet = &IN_VALUE.remove(b'/');

/// The parts of a URL. Its secrets are kept apart from what is shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The protocol of the server.
    pub(super) scheme: Scheme,
    /// The bucket, the Azure container (`account/container`), the host and port, or the repository (`owner/name`).
    pub(super) store: String,
    /// The key, unescaped, without its leading `/`. Empty for the whole store.
    pub(super) key: Vec<u8>,
    /// `user:password` of an `http` URL.
    pub(super) login: Option<String>,
    /// The query after `?`: a signature or a token.
    pub(super) query: Option<String>,
    /// The branch, tag or commit of a repository.
    pub(super) revision: Option<String>,
}

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    S3,
    Gcs,
    Azure,
    Http,
    Https,
    HuggingFace(Repository),
}

/// The kinds of repositories of the Hugging Face Hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repository {
    Model,
    DataSet,
    Space,
}

impl Repository {
    /// Returns its part of the API's address.
    pub(super) fn api(self) -> &'static str {
        match self {
            Self::Model => "models/",
            Self::DataSet => "datasets/",
            Self::Space => "spaces/",
        }
    }

    /// Returns its part of a file's address.
    pub(super) fn files(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::DataSet | Self::Space => self.api(),
        }
    }
}

/// The fronts of URLs. The first one of a kind is shown.
const SCHEMES: [(&str, Scheme); 12] = [
    ("s3://", Scheme::S3),
    ("s3a://", Scheme::S3),
    ("gs://", Scheme::Gcs),
    ("gcs://", Scheme::Gcs),
    ("az://", Scheme::Azure),
    ("azure://", Scheme::Azure),
    ("abfs://", Scheme::Azure),
    ("http://", Scheme::Http),
    ("https://", Scheme::Https),
    ("hf://datasets/", Scheme::HuggingFace(Repository::DataSet)),
    ("hf://spaces/", Scheme::HuggingFace(Repository::Space)),
    // Last, because the others begin with it.
    ("hf://", Scheme::HuggingFace(Repository::Model)),
];

/// Returns whether a path of the command line is a URL that can be opened.
pub(crate) fn is_url(path: &Path) -> bool {
    scheme(path.as_os_str()).is_some()
}

/// Says which URLs there are, for a path that begins like one, is none of them and does not exist.
pub(crate) fn unknown(path: &Path) -> Option<String> {
    let (front, _) = path.to_str()?.split_once("://")?;
    let is_scheme =
        !front.is_empty() && front.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let known = SCHEMES.map(|(prefix, _)| prefix).join(", ");
    (is_scheme && !is_url(path) && !path.exists()).then(|| format!("not a URL that is known; they begin with {known}"))
}

fn scheme(text: &OsStr) -> Option<(&'static str, Scheme)> {
    let text = text.as_bytes();
    SCHEMES
        .into_iter()
        .find(|(prefix, _)| text.get(..prefix.len()).is_some_and(|front| front.eq_ignore_ascii_case(prefix.as_bytes())))
}

impl Scheme {
    fn is_web(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Returns how many parts of a path name the store.
    fn parts(self) -> usize {
        if matches!(self, Self::Azure | Self::HuggingFace(_)) { 2 } else { 1 }
    }

    /// Returns the path of a URL, and its query. Only URLs of the web have queries, fragments and escapes; a key may hold
    /// any character. Azure's tokens are a query, too.
    fn path_and_query(self, rest: &[u8]) -> (&[u8], Option<&[u8]>) {
        let (rest, query) = match rest.iter().position(|&byte| byte == b'?') {
            Some(at) if self.is_web() || self == Self::Azure && rest[at..].windows(4).any(|part| part == b"sig=") => {
                (&rest[..at], Some(&rest[at + 1..]))
            }
            _ => (rest, None),
        };
        let path = if self.is_web() { rest.split(|&byte| byte == b'#').next().unwrap_or_default() } else { rest };
        (path, query)
    }
}

/// Returns the URL of the folder that holds what a URL names, with the same query, and the last part of the key. `None`
/// for a whole store, and for what is no URL.
pub(super) fn parent(url: &Path) -> Option<(PathBuf, Vec<u8>)> {
    let bytes = url.as_os_str().as_bytes();
    let (prefix, scheme) = scheme(url.as_os_str())?;
    let (front, rest) = bytes.split_at(prefix.len());
    let (path, query) = scheme.path_and_query(rest);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let top = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').nth(scheme.parts() - 1)?.0;
    let at = path.iter().rposition(|&byte| byte == b'/').filter(|at| *at >= top)?;
    let (folder, part) = path.split_at(at + 1);
    let part = if scheme.is_web() { unescape(part) } else { part.to_vec() };
    let query = query.map_or(Vec::new(), |query| [b"?", query].concat());
    let folder = OsString::from_vec([front, folder, &query].concat());
    Some((folder.into(), part))
}

/// Returns the URL of what lies in the folder of a URL under a part of a key, with the same query. `None` if that is no
/// URL.
pub(super) fn child(folder: &Path, part: &[u8]) -> Option<PathBuf> {
    let (prefix, scheme) = scheme(folder.as_os_str())?;
    let (front, rest) = folder.as_os_str().as_bytes().split_at(prefix.len());
    let (path, query) = scheme.path_and_query(rest);
    let part = if scheme.is_web() { escape_value(part).into_bytes() } else { part.to_vec() };
    let [before, after] = [!path.ends_with(b"/"), part.is_empty()].map(|is_missing| if is_missing { "/" } else { "" });
    let query = query.map_or(Vec::new(), |query| [b"?", query].concat());
    let url = [front, path, before.as_bytes(), &part, after.as_bytes(), &query].concat();
    Some(OsString::from_vec(url).into())
}

impl Location {
    /// Parses a URL. Returns `None` for anything else.
    ///
    /// # Errors
    /// What is wrong with it, without any of its secrets.
    pub(crate) fn parse(url: &Path) -> Option<Result<Self, String>> {
        let (prefix, scheme) = scheme(url.as_os_str())?;
        let rest = &url.as_os_str().as_bytes()[prefix.len()..];
        Some(Self::of(scheme, prefix, rest))
    }

    fn of(scheme: Scheme, prefix: &str, rest: &[u8]) -> Result<Self, String> {
        let (is_web, parts) = (scheme.is_web(), scheme.parts());
        let (rest, query) = scheme.path_and_query(rest);
        let query = query.map(|query| String::from_utf8_lossy(query).into_owned());
        let end = rest.iter().enumerate().filter(|(_, byte)| **byte == b'/').nth(parts - 1);
        let end = end.map_or(rest.len(), |(at, _)| at);
        let mut store = String::from_utf8(rest[..end].to_vec()).map_err(|_| "not UTF-8".to_owned())?;
        let mut login = None;
        if is_web && let Some((user, host)) = store.clone().rsplit_once('@') {
            login = Some(String::from_utf8_lossy(&unescape(user.as_bytes())).into_owned());
            store = host.to_owned();
        }
        let mut revision = None;
        if matches!(scheme, Scheme::HuggingFace(_))
            && let Some((name, of)) = store.clone().split_once('@')
        {
            // A branch may have slashes in its name, as `refs%2Fpr%2F1`.
            revision = Some(String::from_utf8_lossy(&unescape(of.as_bytes())).into_owned());
            store = name.to_owned();
        }
        if is_web {
            let known = crate::store::remote::auth::address::host(prefix.trim_end_matches("://"), &store);
            store = known.ok_or_else(|| format!("not an address of a server; write {prefix}HOST:PORT/PATH"))?;
        }
        if matches!(scheme, Scheme::S3 | Scheme::Gcs | Scheme::Azure) && store.contains('@') {
            return Err(format!("no login can stand in {prefix} addresses; give keys by the environment or a profile"));
        }
        let complete = store.split('/').count() == parts && store.split('/').all(|part| !part.is_empty());
        if !complete || store.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(match scheme {
                Scheme::Azure => format!("write {prefix}ACCOUNT/CONTAINER/KEY"),
                Scheme::HuggingFace(_) => format!("write {prefix}OWNER/NAME/PATH, or {prefix}OWNER/NAME@REVISION/PATH"),
                Scheme::Http | Scheme::Https => format!("write {prefix}HOST/PATH"),
                Scheme::S3 | Scheme::Gcs => format!("write {prefix}BUCKET/KEY"),
            });
        }
        let key = rest.get(end + 1..).unwrap_or_default();
        let key = if is_web { unescape(key) } else { key.to_vec() };
        Ok(Self { scheme, store, key, login, query, revision })
    }

    /// Returns the key of the parent folder, and the last part. `None` for the whole store and for keys that end in `/`.
    pub(crate) fn split(&self) -> Option<(&[u8], &[u8])> {
        let at = self.key.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (folder, name) = self.key.split_at(at);
        (!name.is_empty()).then_some((folder, name))
    }

    pub(super) fn is_web(&self) -> bool {
        self.scheme.is_web()
    }

    /// Returns the URL without its secrets.
    pub(crate) fn shown(&self) -> String {
        let prefix = SCHEMES.iter().find(|(_, scheme)| *scheme == self.scheme).map_or("", |(prefix, _)| *prefix);
        let revision = self.revision.as_ref().map_or(String::new(), |revision| format!("@{revision}"));
        let key = if self.is_web() { escape(&self.key) } else { String::from_utf8_lossy(&self.key).into_owned() };
        format!("{prefix}{}{revision}/{key}", self.store)
    }

    /// Returns the URL of the store itself, without `/` at its end and without secrets.
    pub(super) fn at_top(&self) -> String {
        Self { key: Vec::new(), ..self.clone() }.shown().trim_end_matches('/').to_owned()
    }

    /// Adds the secrets of another URL, if that is of the same store.
    pub(crate) fn with_secrets_of(self, other: &Self) -> Self {
        if (self.scheme, &self.store) != (other.scheme, &other.store) || self.has_secrets() {
            return self;
        }
        Self { login: other.login.clone(), query: other.query.clone(), ..self }
    }

    /// Returns whether the URL holds secrets.
    pub(crate) fn has_secrets(&self) -> bool {
        self.login.is_some() || self.query.is_some()
    }
}

/// Never shows a secret.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Location").field(&self.shown()).finish()
    }
}

/// Percent-escapes of a URL as bytes. What is no escape stays as it is.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    percent_decode(text).collect()
}

/// Returns a key as the path of a URL. Everything but letters, digits, `-._~` and `/` is escaped, as signatures of S3
/// require.
pub(super) fn escape(key: &[u8]) -> String {
    percent_encode(key, IN_PATH).to_string()
}

/// Returns a key as the path of a URL. Parts `.` and `..` would be taken for folders, so the slashes beside them are
/// escaped too. A key that is only `.` or `..` cannot be named.
pub(super) fn escape_object(key: &[u8]) -> String {
    match key.split(|&byte| byte == b'/').any(|part| matches!(part, b"." | b"..")) {
        true => escape_value(key),
        false => escape(key),
    }
}

/// Escapes a value of a query.
pub(super) fn escape_value(value: &[u8]) -> String {
    percent_encode(value, IN_VALUE).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Location {
        Location::parse(Path::new(url)).unwrap().unwrap()
    }

    #[test]
    fn urls_are_taken_apart() {
        let found = parse("s3://bucket/a//b%20c?d");
        assert_eq!((found.scheme, &*found.store, &*found.key), (Scheme::S3, "bucket", &b"a//b%20c?d"[..]));
        assert_eq!(parse("s3://bucket").key, b"");
        assert_eq!(parse("az://account/container/x").store, "account/container");
        let found = parse("https://host:8443/a%20b/c?x=1#here");
        assert_eq!((&*found.store, &*found.key), ("host:8443", &b"a b/c"[..]));
        assert_eq!(found.shown(), "https://host:8443/a%20b/c");
        let found = parse("hf://datasets/owner/name@refs%2Fpr%2F1/data/x.wshard");
        assert_eq!((&*found.store, found.revision.as_deref()), ("owner/name", Some("refs/pr/1")));
        assert_eq!(found.split(), Some((&b"data/"[..], &b"x.wshard"[..])));
        let kinds = [("hf://datasets/a/b/c", Repository::DataSet), ("hf://spaces/a/b", Repository::Space)];
        for (url, kind) in [("hf://a/b@main/c", Repository::Model)].into_iter().chain(kinds) {
            assert_eq!((parse(url).scheme, &*parse(url).store), (Scheme::HuggingFace(kind), "a/b"), "{url}");
            assert!(parse(url).shown().starts_with(url.trim_end_matches("/c")), "{url}");
        }
        assert!(Location::parse(Path::new("data/s3:")).is_none() && !is_url(Path::new("s3:/x")));
        for bad in ["s3://", "s3:///key", "az://account", "hf://datasets/owner", "hf://owner", "s3://buc ket/x"] {
            assert!(Location::parse(Path::new(bad)).unwrap().is_err(), "{bad}");
        }
    }

    #[test]
    fn folders_around_urls() {
        let found = |url: &str| {
            let (folder, name) = parent(Path::new(url))?;
            Some((folder.display().to_string(), String::from_utf8(name).unwrap()))
        };
        for (url, folder, name) in [
            ("https://h/a/b", "https://h/a/", "b"),
            ("http://h/my%20d/50%25/", "http://h/my%20d/", "50%"),
            ("http://h/a%2Fb?k=x/y&sig=1", "http://h/?k=x/y&sig=1", "a/b"),
            ("s3://b/d/50%25", "s3://b/d/", "50%25"),
            ("s3://b/d?x/y", "s3://b/d?x/", "y"),
            ("S3://b/a//", "S3://b/a/", ""),
            ("hf://datasets/o/n@main/x", "hf://datasets/o/n@main/", "x"),
        ] {
            assert_eq!(found(url), Some((folder.into(), name.into())), "{url}");
        }
        for (folder, part, url) in [
            ("s3://b", "50%?.npz", "s3://b/50%?.npz"),
            ("s3://b/d/", "#", "s3://b/d/#"),
            ("s3://b/d", "", "s3://b/d//"),
            ("s3://b/d//", "x", "s3://b/d//x"),
            ("https://h/my%20d", "b#c?/\u{e9}%.npz", "https://h/my%20d/b%23c%3F%2F%C3%A9%25.npz"),
            ("https://h/d/?sig=1", "x", "https://h/d/x?sig=1"),
        ] {
            assert_eq!(child(Path::new(folder), part.as_bytes()), Some(url.into()), "{url}");
        }
        for top in ["s3://b", "s3://b/", "az://account/container", "hf://datasets/o/n", "hf://o/n/", "/b/a"] {
            assert_eq!(found(top), None, "{top}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for url in ["https://joe:geheim@host/x?token=geheim", "az://account/container/x?sv=1&sig=geheim"] {
            let found = parse(url);
            assert!(found.has_secrets(), "{url}");
            assert!(!format!("{found:?} {}", found.shown()).contains("geheim"), "{url}");
        }
        assert_eq!(parse("https://joe:ge%40heim@host/x").login.unwrap(), "joe:ge@heim");
    }

    #[test]
    fn keys_in_urls() {
        assert_eq!(escape(b"a b/c+\xff%"), "a%20b/c%2B%FF%25");
        assert_eq!(escape_object(b"a b/c//d"), "a%20b/c//d");
        assert_eq!(escape_object(b"../a b/./c"), "..%2Fa%20b%2F.%2Fc");
        assert_eq!(unescape(b"a%20b/c%2B%FF%25%zz%4"), b"a b/c+\xff%%zz%4");
    }
}
