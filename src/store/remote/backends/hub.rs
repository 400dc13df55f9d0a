//! Models, data sets and spaces of the Hugging Face Hub, by its HTTP interface.
//!
//! A branch or tag is resolved to a commit when it is opened. Every request names that commit, whose files never
//! change.

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, header};
use object_store::client::HttpRequest;
use parking_lot::Mutex;
use serde::Deserialize;

use super::backend::{Ask, Backend, Collect, Found, State, Target, etag, request, text, token};
use crate::store::remote::{
    listing::{
        json::{self, Size},
        time,
    },
    location::{Repository, escape, escape_value, unescape},
    object::FetchError,
};

/// One repository at one revision.
pub(crate) struct Hub {
    /// The address of the Hub, without `/` at its end.
    pub(crate) base: String,
    pub(crate) kind: Repository,
    /// `owner/name`.
    pub(crate) name: String,
    /// What was asked for, and its commit once that is known.
    pub(crate) revision: Mutex<String>,
    pub(crate) authorization: Option<HeaderValue>,
    /// Where the token comes from, as users know it.
    pub(crate) origin: Option<String>,
}

impl Backend for Hub {
    fn request<'a>(&'a self, ask: &'a Ask<'_>) -> BoxFuture<'a, Result<HttpRequest, FetchError>> {
        Box::pin(async move {
            let (base, name) = (&self.base, escape(self.name.as_bytes()));
            let (api, files) = (self.kind.api(), self.kind.files());
            let revision = escape_value(self.revision.lock().as_bytes());
            let url = match ask.target {
                Target::Store => format!("{base}/api/{api}{name}/revision/{revision}"),
                Target::Object(key) => format!("{base}/{files}{name}/resolve/{revision}/{}", escape(key)),
                Target::List { prefix, more, most } => {
                    let folder = escape(prefix.strip_suffix(b"/").unwrap_or(prefix));
                    let folder = if folder.is_empty() { folder } else { format!("/{folder}") };
                    let more = token("cursor", more);
                    format!("{base}/api/{api}{name}/tree/{revision}{folder}?expand=false&limit={most}{more}")
                }
            };
            let mut request = request(ask, &url)?;
            // The commit in the address names the state. The tag of the storage behind the Hub differs.
            request.headers_mut().remove(header::IF_MATCH);
            if let Some(authorization) = &self.authorization {
                request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
            }
            Ok(request)
        })
    }

    fn page(&self, _: &[u8], headers: &HeaderMap, body: &[u8], to: &mut dyn Collect) -> Result<Option<String>, String> {
        page(body, to)?;
        Ok(self.next_page(headers, body))
    }

    fn next_page(&self, headers: &HeaderMap, _: &[u8]) -> Option<String> {
        text(headers, header::LINK).and_then(cursor)
    }

    fn state(&self, headers: &HeaderMap) -> State {
        let tag = text(headers, "x-linked-etag").or_else(|| text(headers, header::ETAG)).map_or("", etag);
        State { size: None, etag: tag.trim_start_matches("W/").trim_matches('"').into(), modified: None }
    }

    /// Notes the commit, which later requests name.
    fn learn(&self, body: &[u8]) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Revision {
            sha: Option<String>,
        }
        let answer: Revision = serde_json::from_slice(body).map_err(|e| format!("the answer names no commit: {e}"))?;
        let commit = answer.sha.filter(|sha| sha.len() >= 40 && sha.bytes().all(|b| b.is_ascii_hexdigit()));
        let commit = commit.ok_or("the answer names no commit")?;
        *self.revision.lock() = commit;
        Ok(())
    }

    fn remedy(&self) -> &'static str {
        "give a token by HF_TOKEN or `hf auth login` if the repository is private or has terms to agree to"
    }

    fn refused(&self) -> String {
        match &self.origin {
            Some(origin) => format!("the token of {origin} was refused; check that it may read the repository"),
            None => self.remedy().into(),
        }
    }

    fn is_web(&self) -> bool {
        true
    }

    fn is_pinned(&self) -> bool {
        true
    }
}

/// A file or folder of the tree.
#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    oid: Option<String>,
    #[serde(default)]
    size: Size,
    /// Git holds only a pointer for a large file. The hash in the pointer is that of the file.
    lfs: Option<Large>,
    #[serde(rename = "lastCommit")]
    last_commit: Option<Commit>,
}

#[derive(Deserialize)]
struct Large {
    oid: Option<String>,
    #[serde(default)]
    size: Size,
}

#[derive(Deserialize)]
struct Commit {
    date: Option<String>,
}

/// A page of the tree.
fn page(body: &[u8], to: &mut dyn Collect) -> Result<(), String> {
    json::each(body, &mut |entry: Entry| {
        if entry.kind.as_deref() == Some("directory") {
            return to.take(Found::folder(format!("{}/", entry.path)));
        }
        let (tag, Size(size)) = entry.lfs.map_or((None, Size(None)), |large| (large.oid, large.size));
        let tag = tag.or(entry.oid).unwrap_or_default();
        let modified = entry.last_commit.and_then(|commit| time::parse(&commit.date?));
        let state = State { size: size.or(entry.size.0), etag: tag.into(), modified };
        to.take(Found::object(entry.path, state))
    })
}

/// The cursor of the next page in a `Link` header.
fn cursor(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let url = next.split_once('<')?.1.split('>').next()?;
    let (_, query) = url.split_once('?')?;
    let cursor = query.split('&').find_map(|pair| pair.strip_prefix("cursor="))?;
    String::from_utf8(unescape(cursor.as_bytes())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::backends::backend::Page;

    #[test]
    fn pages_of_a_data_set() {
        let body = br#"[{"type":"directory","oid":"1","size":0,"path":"data"},{"type":"file","oid":"2","size":130,
            "lfs":{"oid":"f00d","size":5000,"pointerSize":130},"path":"big.wshard"},
            {"type":"file","oid":"3","size":7,"path":"README.md"}]"#;
        let mut page = Page { most: 10, ..Page::default() };
        crate::store::remote::backends::hub::page(body, &mut page).unwrap();
        let state = |size, etag: &str| State { size: Some(size), etag: etag.into(), modified: None };
        let (large, small) = (state(5000, "f00d"), state(7, "3"));
        assert_eq!(
            page.found,
            [Found::folder("data/"), Found::object("big.wshard", large), Found::object("README.md", small)]
        );
        assert!(crate::store::remote::backends::hub::page(b"{\"error\":\"no\"}", &mut page).is_err());
        let link = "<https://huggingface.co/api/datasets/a/b/tree/main?limit=2&cursor=eyJ%3D%3D>; rel=\"next\"";
        assert_eq!(cursor(link).as_deref(), Some("eyJ=="));
        assert_eq!(cursor("<https://x/y>; rel=\"prev\""), None);
    }
}
