//! `/dav/…`: the tree for clients of WebDAV (RFC 4918), read-only. `dav_server` speaks the protocol; files are answered
//! as under `/files`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::SystemTime,
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    response::IntoResponse,
};
use dav_server::{
    DavHandler, DavMethodSet,
    davpath::DavPath,
    fs::{
        DavDirEntry, DavFile, DavFileSystem, DavMetaData, FsError, FsFuture, FsResult, FsStream, OpenOptions,
        ReadDirMeta,
    },
};
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::{Refusal, Request, Response, Site, files, limits, paths};
use crate::volume::{Entries, Entry, EntryKind, ErrorKind};

/// Where it stands.
pub(super) const PREFIX: &str = "/dav";
/// What a client may do.
const ALLOW: HeaderValue = HeaderValue::from_static("OPTIONS, GET, HEAD, PROPFIND");
/// A name that `dav_server` takes for a test suite's own.
const LITMUS: HeaderName = HeaderName::from_static("x-litmus");
/// Entries that are looked at together.
const BATCH: usize = 256;

/// Answers a request below `/dav`.
pub(super) async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    answered(&site, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn answered(site: &Arc<Site>, request: Request) -> Result<Response, Refusal> {
    let (mut head, body) = request.into_parts();
    match head.method.as_str() {
        "GET" | "HEAD" => return files::answered(site, PREFIX, head).await,
        "OPTIONS" | "PROPFIND" => {}
        _ => {
            let mut refused = Refusal::method().into_response();
            refused.headers_mut().insert(header::ALLOW, ALLOW);
            return Ok(refused);
        }
    }
    if head.method == Method::OPTIONS {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.insert("dav", HeaderValue::from_static("1"));
        // Without this, Windows tries another protocol first.
        headers.insert("ms-author-via", HeaderValue::from_static("DAV"));
        headers.insert(header::ALLOW, ALLOW);
        headers.insert(header::CONTENT_LENGTH, 0.into());
        return Ok(response);
    }
    let limit = std::time::Duration::from_secs(limits::REQUEST_SECONDS);
    let body = tokio::time::timeout(limit, axum::body::to_bytes(body, limits::REQUEST_BODY)).await;
    let Ok(body) = body else {
        return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come"));
    };
    let body = body.map_err(|_| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the request's body is too large"))?;
    head.headers.remove(LITMUS);
    let tree = Tree { site: site.clone(), has_failed: Arc::default() };
    let has_failed = tree.has_failed.clone();
    let handler = DavHandler::builder()
        .strip_prefix(PREFIX)
        .methods(DavMethodSet::WEBDAV_RO)
        .filesystem(Box::new(tree))
        .build_handler();
    let response = handler.handle(http::Request::from_parts(head, Body::from(body))).await;
    // `dav_server` leaves out what fails, and a client that synchronises would take it for removed: the answer breaks off.
    let checked = move |piece: Result<Bytes, axum::Error>| match has_failed.load(Relaxed) {
        true => Err(axum::Error::new("a part of the folder can't be listed")),
        false => piece,
    };
    Ok(response.map(|body| Body::from_stream(Body::new(body).into_data_stream().map(checked))))
}

/// The tree, as `dav_server` asks for it.
#[derive(Clone)]
struct Tree {
    site: Arc<Site>,
    /// Whether something that should have been listed could not be looked at.
    has_failed: Arc<AtomicBool>,
}

impl DavFileSystem for Tree {
    /// Never asked for: files are answered without `dav_server`.
    fn open<'a>(&'a self, _: &'a DavPath, _: OpenOptions) -> FsFuture<'a, Box<dyn DavFile>> {
        async { Err(FsError::Forbidden) }.boxed()
    }

    fn read_dir<'a>(&'a self, path: &'a DavPath, _: ReadDirMeta) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        async move {
            let folder = self.find(path).await.inspect_err(|_| self.has_failed.store(true, Relaxed))?.0;
            let tree = self.clone();
            let batches = stream::try_unfold(Some(folder.entries()), move |rest| {
                let Self { site, has_failed } = tree.clone();
                async move {
                    let Some(rest) = rest else { return Ok(None) };
                    let found = site.run(move |_| batch(rest).map(Some)).await;
                    has_failed.fetch_or(found.is_err(), Relaxed);
                    found.map_err(error_of)
                }
            });
            let entries = batches.flat_map(|batch: FsResult<Vec<Found>>| {
                let entries: Vec<FsResult<Box<dyn DavDirEntry>>> = match batch {
                    Ok(found) => found.into_iter().map(|found| Ok(Box::new(found) as Box<dyn DavDirEntry>)).collect(),
                    Err(error) => vec![Err(error)],
                };
                stream::iter(entries)
            });
            Ok(Box::pin(entries) as FsStream<Box<dyn DavDirEntry>>)
        }
        .boxed()
    }

    fn metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        async move { Ok(Box::new(self.find(path).await?) as Box<dyn DavMetaData>) }.boxed()
    }
}

impl Tree {
    async fn find(&self, path: &DavPath) -> FsResult<Found> {
        let path = path.as_rel_ospath().to_owned();
        let found = self.site.run(move |site| {
            let entry = site.volume.get(&path)?;
            Found::of(entry).ok_or_else(Refusal::not_found)
        });
        found.await.map_err(error_of)
    }
}

fn batch(mut entries: Entries) -> Result<(Vec<Found>, Option<Entries>), Refusal> {
    let mut found = Vec::new();
    for _ in 0..BATCH {
        let Some(entry) = entries.next() else { return Ok((found, None)) };
        match entry {
            Ok(entry) => found.extend(Found::of(entry)),
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::OutOfMemory) => return Err(error.into()),
            // What is damaged can't be read, nor what belongs to others.
            Err(_) => {}
        }
    }
    Ok((found, Some(entries)))
}

fn error_of(refusal: Refusal) -> FsError {
    match refusal.status {
        StatusCode::NOT_FOUND => FsError::NotFound,
        StatusCode::FORBIDDEN => FsError::Forbidden,
        _ => FsError::GeneralFailure,
    }
}

/// An entry, and its tag.
#[derive(Debug, Clone)]
struct Found(Entry, Option<u128>);

impl Found {
    /// An entry that may be shown. WebDAV knows no links.
    fn of(entry: Entry) -> Option<Self> {
        let tag = entry.vfs().tag(entry.ino()).ok()?;
        (paths::is_shown(&entry) && entry.kind() != EntryKind::Link).then_some(Self(entry, tag))
    }
}

impl DavMetaData for Found {
    fn len(&self) -> u64 {
        self.0.size()
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(self.0.modified())
    }

    fn is_dir(&self) -> bool {
        self.0.is_folder()
    }

    fn etag(&self) -> Option<String> {
        // In quotes, as RFC 4918, 15.6 has it: `dav_server` writes it as it is.
        self.1.map(|tag| format!("\"{tag:032x}\""))
    }
}

impl DavDirEntry for Found {
    fn name(&self) -> Vec<u8> {
        self.0.name().as_encoded_bytes().to_vec()
    }

    fn metadata(&'_ self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        async { Ok(Box::new(self.clone()) as Box<dyn DavMetaData>) }.boxed()
    }
}
