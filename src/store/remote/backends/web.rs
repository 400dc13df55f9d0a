//! Web servers: single files by range, and folders where the server lists what is in them.
//!
//! A folder is asked for by GET; the answer is the JSON of nginx or Caddy, or a page of HTML with links, as nginx,
//! Apache, Caddy, lighttpd and Python write it. Where GET gives no listing, WebDAV's PROPFIND is tried.

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, header};
use object_store::client::HttpRequest;
use serde::Deserialize;

use super::backend::{Ask, Backend, Collect, Found, State, Target, etag, request, size, state};
use crate::store::remote::{
    listing::{
        json::{self, Size},
        time, xml,
    },
    location::{escape, unescape},
    object::FetchError,
};

/// A host.
pub(crate) struct Web {
    /// Its address, without `/` at its end.
    pub(crate) base: String,
    /// Credentials.
    pub(crate) authorization: Option<HeaderValue>,
    /// What follows each address.
    pub(crate) query: Option<String>,
}

impl Backend for Web {
    fn request<'a>(&'a self, ask: &'a Ask<'_>) -> BoxFuture<'a, Result<HttpRequest, FetchError>> {
        Box::pin(async move {
            let key = match ask.target {
                Target::Store => &[],
                Target::Object(key) | Target::List { prefix: key, .. } => key,
            };
            let query = self.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
            let mut request = request(ask, &format!("{}/{}{query}", self.base, escape(key)))?;
            if let Target::List { more, .. } = ask.target {
                let headers = request.headers_mut();
                headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/html;q=0.9"));
                if more.is_some() {
                    headers.insert("depth", HeaderValue::from_static("1"));
                    *request.method_mut() = Method::from_bytes(b"PROPFIND").unwrap_or(Method::GET);
                }
            }
            if let Some(authorization) = &self.authorization {
                request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
            }
            Ok(request)
        })
    }

    fn page(
        &self,
        prefix: &[u8],
        headers: &HeaderMap,
        body: &[u8],
        to: &mut dyn Collect,
    ) -> Result<Option<String>, String> {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match kind.split(';').next().unwrap_or_default().trim() {
            "application/json" => json(prefix, body, to)?,
            "application/xml" | "text/xml" => propfind(prefix, body, to)?,
            "text/html" => html(prefix, body, to)?,
            _ => return Err(NO_LISTING.into()),
        }
        Ok(None)
    }

    fn state(&self, headers: &HeaderMap) -> State {
        let given = headers.get(header::ETAG).and_then(|value| value.to_str().ok());
        State { etag: given.map_or("".into(), tag), ..state(headers) }
    }

    fn remedy(&self) -> &'static str {
        "write https://USER:PASSWORD@HOST/PATH where the server wants a password"
    }

    fn is_web(&self) -> bool {
        true
    }
}

/// Returns an entity tag without its quotes. A tag that a server sends without quotes counts as weak, because no
/// condition can name it.
fn tag(given: &str) -> Box<str> {
    let given = given.trim();
    let is_whole = given.is_empty() || given.starts_with('"') || given.starts_with("W/");
    if is_whole { etag(given).into() } else { format!("W/\"{given}\"").into() }
}

/// Message for a folder that the server does not list.
const NO_LISTING: &str = "the server does not list this folder; name a single file";

fn item(prefix: &[u8], name: &[u8], is_folder: bool, state: State, to: &mut dyn Collect) -> Result<(), String> {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    // Links to other places are not names in this folder.
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
        return Ok(());
    }
    to.take(match is_folder {
        true => Found::folder([prefix, name, b"/"].concat()),
        false => Found::object([prefix, name].concat(), state),
    })
}

/// A name in the index of nginx (`autoindex_format json`) or of Caddy (`file_server browse`).
#[derive(Deserialize)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    is_dir: Option<bool>,
    mtime: Option<String>,
    mod_time: Option<String>,
    #[serde(default)]
    size: Size,
}

fn json(prefix: &[u8], body: &[u8], to: &mut dyn Collect) -> Result<(), String> {
    json::each(body, &mut |entry: Entry| {
        let is_folder = entry.is_dir.unwrap_or(entry.kind.as_deref() == Some("directory"));
        let modified = entry.mtime.or(entry.mod_time).and_then(|text| time::parse(&text));
        let state = State { size: entry.size.0, etag: "".into(), modified };
        item(prefix, entry.name.as_bytes(), is_folder, state, to)
    })
}

/// Returns where a word is in a text; letter case does not matter.
fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|part| part.eq_ignore_ascii_case(word))
}

/// Reads the links of a page that lead to a name in this folder. It ignores sizes and times, because most servers round
/// them.
fn html(prefix: &[u8], body: &[u8], to: &mut dyn Collect) -> Result<(), String> {
    let marks = ["index of ", "directory listing", "folder listing", "caddy"];
    if !marks.iter().any(|words| find(body, words.as_bytes()).is_some()) {
        return Err(NO_LISTING.into());
    }
    let own = format!("/{}", escape(prefix));
    let mut rest = body;
    while let Some(found) = find(rest, b"href=") {
        rest = rest.get(found + b"href=".len()..).unwrap_or_default();
        let Some((quote @ (b'"' | b'\''), link)) = rest.split_first() else { continue };
        let link = link.split(|byte| byte == quote).next().unwrap_or_default();
        let link = String::from_utf8_lossy(link);
        let link = link.replace("&amp;", "&").replace("&#39;", "'").replace("&quot;", "\"");
        // Links that sort the page, to other hosts and to fragments are not names.
        let link = link.split(['?', '#']).next().unwrap_or_default();
        let link = link.strip_prefix(&own).or_else(|| link.strip_prefix("./")).unwrap_or(link);
        if link.starts_with('/') || link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        item(prefix, &unescape(link.as_bytes()), link.ends_with('/'), State::default(), to)?;
    }
    Ok(())
}

/// The answer of WebDAV.
fn propfind(prefix: &[u8], body: &[u8], to: &mut dyn Collect) -> Result<(), String> {
    xml::items(body, &["response"], &mut |_, found| {
        let href = found.get("href").unwrap_or_default().trim();
        let path = href.split_once("://").map_or(href, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
        let key = unescape(path.strip_prefix('/').ok_or(NO_LISTING)?.as_bytes());
        let Some(name) = key.strip_prefix(prefix) else { return Ok(()) };
        let state = State {
            size: found.get("getcontentlength").and_then(size),
            etag: found.get("getetag").map_or("".into(), tag),
            modified: found.get("getlastmodified").and_then(time::parse),
        };
        item(prefix, name, found.get("collection").is_some() || name.ends_with(b"/"), state, to)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::backends::backend::{Node, Page};

    type Parse = fn(&[u8], &[u8], &mut dyn Collect) -> Result<(), String>;

    fn parsed(parse: Parse, prefix: &[u8], body: &[u8]) -> Option<Page> {
        let mut page = Page { most: 10, ..Page::default() };
        parse(prefix, body, &mut page).ok().map(|()| page)
    }

    /// Keys of objects and of folders.
    fn names(page: &Page) -> (Vec<String>, Vec<String>) {
        let text = |found: &Found| String::from_utf8_lossy(&found.key).into_owned();
        let (folders, objects): (Vec<_>, Vec<_>) = page.found.iter().partition(|found| found.node == Node::Folder);
        (objects.into_iter().map(text).collect(), folders.into_iter().map(text).collect())
    }

    fn first_object<'a>(page: &'a Page) -> &'a State {
        let state = |found: &'a Found| match &found.node {
            Node::Object(state) => Some(state),
            Node::Folder => None,
        };
        page.found.iter().find_map(state).unwrap()
    }

    #[test]
    fn indexes_in_json() {
        let nginx = br#"[{"name":"d","type":"directory","mtime":"Thu, 29 Feb 2024 12:34:56 GMT"},
            {"name":"x y","type":"file","mtime":"Thu, 29 Feb 2024 12:34:56 GMT","size":7}]"#;
        let page = parsed(json, b"a/", nginx).unwrap();
        assert_eq!(names(&page), (vec!["a/x y".into()], vec!["a/d/".into()]));
        assert_eq!(*first_object(&page), State { size: Some(7), etag: "".into(), modified: Some(1_709_210_096) });
        let caddy = br#"[{"name":"d/","size":1,"url":"./d/","mod_time":"2024-02-29T12:34:56.1Z","is_dir":true},
            {"name":"x","size":7,"url":"./x","mod_time":"2024-02-29T12:34:56.1Z","is_dir":false}]"#;
        assert_eq!(names(&parsed(json, b"", caddy).unwrap()), (vec!["x".into()], vec!["d/".into()]));
        assert!(parsed(json, b"", b"{}").is_none());
    }

    #[test]
    fn indexes_in_html() {
        let page = b"<html><title>Index of /a b/</title><a href=\"?C=N;O=D\">Name</a><a href='../'>up</a><a href=\"d/\">d</a>\
            <A HREF=\"x%20&amp;%25\">x</a><a href=\"/a%20b/y\">y</a><a href=\"/etc/passwd\">no</a><a href=\"https://h/z\">no</a>\
            <a href=\"d/deep\">no</a><a href=\"%2e%2e/up\">no</a>";
        let found = names(&parsed(html, b"a b/", page).unwrap());
        assert_eq!(found, (vec!["a b/x &%".into(), "a b/y".into()], vec!["a b/d/".into()]));
        assert!(parsed(html, b"", b"<html><a href='x'>a page</a>").is_none());
    }

    #[test]
    fn answers_of_webdav() {
        let body = b"<D:multistatus xmlns:D='DAV:'><D:response><D:href>/a/</D:href><D:propstat><D:prop><D:resourcetype>\
            <D:collection/></D:resourcetype></D:prop></D:propstat></D:response><D:response><D:href>http://h/a/x%20y</D:href>\
            <D:propstat><D:prop><D:getcontentlength>7</D:getcontentlength><D:getetag>\"e\"</D:getetag></D:prop></D:propstat>\
            </D:response></D:multistatus>";
        let page = parsed(propfind, b"a/", body).unwrap();
        assert_eq!(names(&page), (vec!["a/x y".into()], vec![]));
        assert_eq!((first_object(&page).size, &*first_object(&page).etag), (Some(7), "e"));
    }
}
