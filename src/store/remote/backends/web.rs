//! Web servers: single files by range, and folders where the server lists what is in them.
//!
//! A folder is asked for by GET; the answer is the JSON of nginx or Caddy, or a page of HTML with links, as nginx,
//! Apache, lighttpd, Jetty and Python write it. Where GET gives no listing, WebDAV's PROPFIND is tried.

use std::fmt;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, header};
use object_store::client::HttpRequest;
use serde::{Deserialize, Deserializer, de};

use super::backend::{Ask, Backend, Collect, Found, State, Target, etag, request, state, text};
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
        let kind = text(headers, header::CONTENT_TYPE).unwrap_or_default();
        match kind.split(';').next().unwrap_or_default().trim() {
            "application/json" => json(prefix, body, to)?,
            "application/xml" | "text/xml" => propfind(prefix, body, to)?,
            "text/html" => html(&self.base, prefix, body, to)?,
            _ => return Err(NO_LISTING.into()),
        }
        Ok(None)
    }

    fn state(&self, headers: &HeaderMap) -> State {
        State { etag: text(headers, header::ETAG).map_or("".into(), tag), ..state(headers) }
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

/// Message for an address of `shardfs serve` that is not the one for programs such as this.
const OF_SERVE: &str = "`shardfs serve` has its files at http://HOST:PORT/dav/; name them there";

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
    name: Option<Name>,
    /// What `shardfs serve` has instead of a name.
    path: Option<de::IgnoredAny>,
    #[serde(rename = "type")]
    kind: Option<String>,
    is_dir: Option<bool>,
    mtime: Option<serde_json::Value>,
    mod_time: Option<String>,
    #[serde(default)]
    size: Size,
}

fn json(prefix: &[u8], body: &[u8], to: &mut dyn Collect) -> Result<(), String> {
    let mut is_of_serve = false;
    let listed = json::each(body, &mut |entry: Entry| {
        let Some(Name(name)) = entry.name else {
            is_of_serve = entry.path.is_some();
            return Err("an entry without a name".into());
        };
        let is_folder = entry.is_dir.unwrap_or(entry.kind.as_deref() == Some("directory"));
        let mtime = entry.mtime.as_ref().and_then(|mtime| mtime.as_str());
        let modified = mtime.or(entry.mod_time.as_deref()).and_then(time::parse);
        let state = State { size: entry.size.0, etag: "".into(), modified };
        item(prefix, &name, is_folder, state, to)
    });
    listed.map_err(|why| if is_of_serve { OF_SERVE.into() } else { why })
}

/// A name in JSON. nginx writes its bytes as they are, also where they are not UTF-8.
struct Name(Vec<u8>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_bytes(NameVisitor)
    }
}

struct NameVisitor;

impl de::Visitor<'_> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E: de::Error>(self, name: &[u8]) -> Result<Name, E> {
        Ok(Name(name.to_vec()))
    }
}

/// Returns a text of HTML with its references to characters replaced. Unknown ones stay as they are.
fn dereferenced(text: &str) -> String {
    const LONGEST: usize = 10;
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        found.push_str(before);
        let end = behind.bytes().take(LONGEST).position(|byte| byte == b';');
        let known = end.and_then(|end| Some((xml::character(behind.get(..end)?)?, behind.get(end + 1..)?)));
        let (character, behind) = known.unwrap_or(('&', behind));
        found.push(character);
        rest = behind;
    }
    found.push_str(rest);
    found
}

/// Returns where a word is in a text; letter case does not matter.
fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|part| part.eq_ignore_ascii_case(word))
}

/// Returns the folder that a folder is in; the top is in itself.
fn parent(folder: &[u8]) -> &[u8] {
    let inner = folder.strip_suffix(b"/").unwrap_or(folder);
    inner.iter().rposition(|byte| *byte == b'/').and_then(|at| inner.get(..=at)).unwrap_or_default()
}

/// Returns whether a page says in its title, or its first heading, that it lists a folder.
fn is_listing(page: &[u8]) -> bool {
    let says = |tag: &str| {
        let text = page.get(find(page, format!("<{tag}").as_bytes())?..)?;
        let text = text.get(..find(text, format!("</{tag}").as_bytes())?)?;
        let marks = ["index of ", "directory listing", "folder listing", "directory: "];
        marks.iter().any(|words| find(text, words.as_bytes()).is_some()).then_some(())
    };
    says("title").or_else(|| says("h1")).is_some()
}

/// Reads the links of a page that lead to a name in this folder. It ignores sizes and times, because most servers round
/// them. `base` is the server's address.
fn html(base: &str, prefix: &[u8], body: &[u8], to: &mut dyn Collect) -> Result<(), String> {
    if !is_listing(body) {
        return Err(NO_LISTING.into());
    }
    let mut rest = body;
    while let Some(found) = find(rest, b"href") {
        let (before, behind) = rest.split_at(found);
        rest = behind.get(b"href".len()..).unwrap_or_default();
        // Elsewhere than in a link, such as in a script, only a text in quotes is one.
        let tag = before.iter().rposition(|byte| matches!(byte, b'<' | b'>')).and_then(|at| before.get(at..at + 2));
        let value = match tag.is_some_and(|tag| tag.eq_ignore_ascii_case(b"<a")) {
            true => rest.trim_ascii_start().strip_prefix(b"=").map(<[u8]>::trim_ascii_start),
            false => rest.strip_prefix(b"=").filter(|value| value.starts_with(b"\"") || value.starts_with(b"'")),
        };
        let link = match value.and_then(<[u8]>::split_first) {
            Some((quote @ (b'"' | b'\''), link)) => link.split(|byte| byte == quote).next(),
            Some(_) => value.and_then(|link| link.split(|byte| byte.is_ascii_whitespace() || *byte == b'>').next()),
            None => continue,
        };
        let link = link.unwrap_or_default();
        let link = String::from_utf8_lossy(link);
        let link = dereferenced(&link);
        // Links that sort the page, to other hosts and to fragments are not names.
        let link = link.split(['?', '#']).next().unwrap_or_default();
        let own = link.get(..base.len()).filter(|front| !base.is_empty() && front.eq_ignore_ascii_case(base));
        let link = own.and_then(|own| link.strip_prefix(own)).unwrap_or(link);
        let name = match link.strip_prefix('/').map(|path| unescape(path.as_bytes())) {
            // Servers escape differently.
            Some(key) => key.strip_prefix(prefix).map(<[u8]>::to_vec),
            None if link.contains("://") || link.starts_with("mailto:") => None,
            None => {
                let (mut above, mut below) = (prefix, link.strip_prefix("./").unwrap_or(link));
                while let Some(rest) = below.strip_prefix("../") {
                    (above, below) = (parent(above), rest);
                }
                [above, &unescape(below.as_bytes())].concat().strip_prefix(prefix).map(<[u8]>::to_vec)
            }
        };
        if let Some(name) = name {
            item(prefix, &name, link.ends_with('/'), State::default(), to)?;
        }
    }
    Ok(())
}

/// The answer of WebDAV.
fn propfind(prefix: &[u8], body: &[u8], to: &mut dyn Collect) -> Result<(), String> {
    let rest = xml::items(body, &["response"], &mut |_, found| {
        let href = found.get("href").unwrap_or_default().trim();
        let path = href.split_once("://").map_or(href, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
        let key = unescape(path.strip_prefix('/').ok_or(NO_LISTING)?.as_bytes());
        // Some servers answer for a file although its name ends in `/`.
        if found.get("collection").is_none() && prefix.strip_suffix(b"/") == Some(&key) {
            return Err(NO_LISTING.into());
        }
        let Some(name) = key.strip_prefix(prefix) else { return Ok(()) };
        let state = found.state(["getcontentlength", "getetag", "getlastmodified"]);
        let state = State { etag: found.get("getetag").map_or("".into(), tag), ..state };
        item(prefix, name, found.get("collection").is_some() || name.ends_with(b"/"), state, to)
    })?;
    // Other servers have XML of their own, such as the listing of a bucket.
    rest.get("multistatus").map(|_| ()).ok_or_else(|| NO_LISTING.into())
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
        let other = b"[{\"name\":\"lat\xe9\\n\",\"type\":\"file\"}]";
        assert_eq!(parsed(json, b"", other).unwrap().found[0].key, b"lat\xe9\n");
        let serve = br#"[{"path":"a.wshard","kind":"folder","size":0,"mtime":1795643392.25}]"#;
        assert_eq!(json(b"", serve, &mut Page::default()), Err(OF_SERVE.into()));
        let number = br#"[{"name":"a","mtime":1795643392.25,"size":1}]"#;
        assert_eq!(first_object(&parsed(json, b"", number).unwrap()).modified, None);
        assert!(parsed(json, b"", b"{}").is_none());
    }

    #[test]
    fn indexes_in_html() {
        let html: Parse = |prefix, body, to| html("http://h:80", prefix, body, to);
        let page = b"<html><title>Index of /a b/</title><a href=\"?C=N;O=D\">Name</a><a href='../'>up</a><a href=\"d/\">d</a>\
            <A HREF=\"x%20&amp;%25\">x</a><a href=\"/a%20b/y\">y</a><a href=\"/etc/passwd\">no</a><a href=\"https://h/z\">no</a>\
            <a href=\"d/deep\">no</a><a href=\"%2e%2e/up\">no</a>\
            <a href=\"../a%20b/z\">z</a><a href=\"../../a%20b/e/\">e</a><a href=\"../a%20b/d/deep\">no</a><a href=\"../z\">no</a>";
        let found = names(&parsed(html, b"a b/", page).unwrap());
        let objects = vec!["a b/x &%".into(), "a b/y".into(), "a b/z".into()];
        assert_eq!(found, (objects, vec!["a b/d/".into(), "a b/e/".into()]));
        let page = b"<title>Index of /</title><a href='a&#43;b&#x26;amp;&lt;&#39;&#x110000;&;'>x</a><a href='/y=%31/%c3%bc'>\
            <a href='HTTP://h:80/y=1/z'><a href='http://h:80.other/y=1/no'><a href='//h:80/y=1/no'><a href='/y=1/../no'>";
        assert_eq!(dereferenced("a&#43;b&#x26;amp;&lt;&#39;&#x110000;&;"), "a+b&amp;<'&#x110000;&;");
        assert_eq!(names(&parsed(html, b"y=1/", page).unwrap()).0, ["y=1/a+b&amp;<'&", "y=1/\u{fc}", "y=1/z"]);
    }

    #[test]
    fn pages_that_are_listings() {
        // As nginx, Apache, lighttpd, Python, Tomcat, Jetty, and wsgidav write them.
        for listing in [
            "<html>\r\n<head><title>Index of /a/</title></head>\r\n<body>\r\n<h1>Index of /a/</h1><hr><pre>",
            "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<html>\n <head>\n  <title>Index of /a</title>",
            "<head>\n<title>Index of /a/</title>\n<style>\na { color: red }\n</style>\n</head>\n<h2>Index of /a/</h2>",
            "<meta charset=\"utf-8\">\n<title>Directory listing for /a/</title>\n</head>\n<h1>Directory listing for /a/</h1>",
            "<title>Directory Listing For [/a/]</title>",
            "<TITLE>Directory: /a/</TITLE><H1 class=\"title\">Directory: /a/</H1>",
            "<title>WsgiDAV - Index of /a</title><h1>Index of /a</h1>",
            "<title>data.example</title><h1 id='top'>Index of /a/</h1>",
        ] {
            assert!(is_listing(listing.as_bytes()), "{listing}");
            assert!(
                names(&parsed(|_, body, to| html("", b"a/", body, to), b"", listing.as_bytes()).unwrap()).0.is_empty()
            );
        }
        for page in [
            "<html><a href='x'>a page</a>",
            "<title>Optics</title><h1>Glass</h1><p>The index of refraction of <a href='x'>glass</a>",
            "<title>Welcome</title><p>Caddy works. See <a href='https://caddyserver.com'>",
            "<body>Index of /a/ <a href='x'>",
            "<title>Index of ",
            "",
        ] {
            assert!(!is_listing(page.as_bytes()), "{page}");
        }
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
        let empty = parsed(propfind, b"a/", b"<D:multistatus xmlns:D='DAV:'/>").unwrap();
        assert!(empty.found.is_empty());
        for other in ["<ListBucketResult><Contents><Key>a/x</Key></Contents></ListBucketResult>", "<Error/>", ""] {
            assert_eq!(propfind(b"a/", other.as_bytes(), &mut Page::default()), Err(NO_LISTING.into()), "{other}");
        }
    }
}
