//! `/dav/…`: the tree for clients of WebDAV (RFC 4918), read-only: what a PROPFIND asks for (`propfind`) is answered as
//! a stream of responses (`multistatus`), files as under `/files`.

mod multistatus;
mod propfind;

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::State, response::IntoResponse};
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{
    Refusal, Request, Response, Site,
    http::{body, files, paths},
    limits,
};
use crate::volume::{Entry, EntryKind, ErrorKind};
use multistatus::Writer;

/// Prefix of all its addresses.
pub(super) const PREFIX: &str = "/dav";
/// Methods that a client may use.
const ALLOW: &str = "OPTIONS, GET, HEAD, PROPFIND";
const XML: (HeaderName, &str) = (header::CONTENT_TYPE, "application/xml; charset=utf-8");

/// Answers a request below `/dav`, or the OPTIONS of `/` that Windows asks for first.
pub(super) async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    answered(&site, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn answered(site: &Arc<Site>, request: Request) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    match head.method.as_str() {
        "GET" | "HEAD" => files::answered(site, PREFIX, head).await,
        // Without the second header, Windows tries another protocol first.
        "OPTIONS" => {
            let headers = [("dav", "1"), ("ms-author-via", "DAV"), ("allow", ALLOW), ("content-length", "0")];
            Ok((headers, ()).into_response())
        }
        "PROPFIND" => {
            // Whether the entries of a folder are asked for as well.
            let with_entries = match head.headers.get("depth").map(HeaderValue::as_bytes) {
                Some(b"0") => Some(false),
                Some(b"1") => Some(true),
                Some(other) if !other.eq_ignore_ascii_case(b"infinity") => {
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, "Depth is 0 or 1"));
                }
                // Everything below, which is also the default (RFC 4918, 9.1).
                _ => None,
            };
            let address = head.uri.path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
            properties(site, address, with_entries, read(body).await?).await
        }
        _ => Ok(([(header::ALLOW, ALLOW)], Refusal::method()).into_response()),
    }
}

/// Reads the body of a request, which is limited in bytes and time.
async fn read(body: Body) -> Result<Vec<u8>, Refusal> {
    let all = async {
        let (mut bytes, mut pieces) = (Vec::new(), body.into_data_stream());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the request's body is malformed"))?;
            if bytes.len() + piece.len() > limits::REQUEST_BODY {
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the request's body is too large"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    };
    let limit = Duration::from_secs(limits::REQUEST_SECONDS);
    let late = || Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come");
    tokio::time::timeout(limit, all).await.unwrap_or_else(|_| Err(late()))
}

/// Answers with the properties of the entry at an address, and with those of a folder's entries or, unless that is said,
/// not for folders. A read error ends the answer early, because a client that synchronises would take missing entries for
/// removed.
async fn properties(
    site: &Arc<Site>,
    address: String,
    with_entries: Option<bool>,
    asked: Vec<u8>,
) -> Result<Response, Refusal> {
    let found = site.run(move |site| {
        let writer = Writer::new(propfind::parse(&asked)?);
        let entry = paths::find(&site.volume, &address)?;
        if !is_listed(false, &entry, false) {
            return Err(Refusal::not_found());
        }
        let begin = multistatus::BEGIN.to_owned() + &writer.response(&entry)?;
        Ok((writer, begin, entry))
    });
    let (writer, begin, top) = found.await?;
    if with_entries.is_none() && top.is_folder() {
        return Ok((StatusCode::FORBIDDEN, [XML], multistatus::FINITE_DEPTH).into_response());
    }
    let is_by_link = top.is_by_link();
    let entries = (with_entries == Some(true) && top.is_folder()).then(|| top.entries()).into_iter().flatten();
    let entries = entries.map(move |listed| {
        let was_link = matches!(&listed, Ok(entry) if entry.kind() == EntryKind::Link);
        match listed.and_then(Entry::or_behind) {
            // An entry that has changed or gone since it was listed is left out.
            Ok(entry) if is_listed(is_by_link, &entry, was_link) => Ok(writer.response(&entry).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::OutOfMemory) => Err(error.into()),
            // So are damaged entries, and those that this user may not read.
            _ => Ok(String::new()),
        }
    });
    let [begin, end] = [begin, multistatus::END.to_owned()].map(|text| std::iter::once(Ok(text)));
    let body = body::made(site, begin.chain(entries).chain(end)).await?;
    Ok((StatusCode::MULTI_STATUS, [XML], body).into_response())
}

/// Returns whether clients see an entry of a folder. WebDAV has no links: what is behind those of containers stands in their
/// place, and others are hidden. Folders behind a second link are hidden as well, so that every walk ends.
fn is_listed(folder_is_by_link: bool, entry: &Entry, was_link: bool) -> bool {
    let is_circle = folder_is_by_link && was_link && entry.is_folder();
    paths::is_shown(entry) && entry.kind() != EntryKind::Link && !is_circle
}
