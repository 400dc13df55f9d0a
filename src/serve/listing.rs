//! Folders as JSON: the objects that `shardfs ls --json` prints, made as the client takes them.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};

use super::{Refusal, Response, Site, paths};
use crate::{
    vfs::listed,
    volume::{Entries, Entry},
};

/// Entries that are looked at together.
const BATCH: usize = 256;

/// Whether a client wants JSON rather than a page: says so, and does not want HTML more.
pub(super) fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut json, mut html) = (0.0, 0.0);
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let wanted = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "application/json" | "application/x-ndjson" => &mut json,
            "text/html" | "application/xhtml+xml" => &mut html,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse);
        *wanted = f64::max(*wanted, quality.unwrap_or(0.0));
    }
    json > 0.0 && json >= html
}

/// The entries of a folder as a JSON array.
pub(super) fn answer(site: &Arc<Site>, folder: &Entry) -> Response {
    let site = site.clone();
    let begin = Some((folder.entries(), true));
    let pieces = stream::try_unfold(begin, move |state| {
        let site = site.clone();
        async move {
            let Some((entries, is_first)) = state else { return Ok(None) };
            site.run(move |_| batch(entries, is_first)).await.map(Some).map_err(|refusal| refusal.text)
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

type Rest = Option<(Entries, bool)>;

fn batch(mut entries: Entries, mut is_first: bool) -> Result<(Bytes, Rest), Refusal> {
    let mut text = Vec::new();
    if is_first {
        text.push(b'[');
    }
    for _ in 0..BATCH {
        let Some(entry) = entries.next() else {
            text.extend_from_slice(b"]\n");
            return Ok((text.into(), None));
        };
        // What can't be looked at is left out, as what may not be read is.
        let Some(entry) = entry.ok().filter(paths::is_shown) else { continue };
        text.extend_from_slice(if is_first { b"\n" } else { b",\n" });
        is_first = false;
        let info = entry.vfs().item_info(entry.ino()).ok().flatten().unwrap_or_default();
        text.extend_from_slice(listed::to_json(entry.path(), Some(entry.attr()), &info).to_string().as_bytes());
    }
    Ok((text.into(), Some((entries, is_first))))
}
