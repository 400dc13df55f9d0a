//! Folders as JSON: the objects that `shardfs ls --json` prints, made as the client takes them.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};

use super::{Response, Site, paths};
use crate::{
    vfs::listed,
    volume::{Entries, Entry},
};

/// Entries that are looked at together.
const BATCH: usize = 256;

/// How a listing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON array.
    Array,
    /// An object a line.
    Lines,
}

/// The form that a client wants rather than a page: it says so, and does not want HTML more.
pub(super) fn wanted(headers: &HeaderMap) -> Option<Form> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut array, mut lines, mut html) = (0.0, 0.0, 0.0);
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let wanted = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "application/json" => &mut array,
            "application/x-ndjson" => &mut lines,
            "text/html" | "application/xhtml+xml" => &mut html,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse);
        *wanted = f64::max(*wanted, quality.unwrap_or(0.0));
    }
    match f64::max(array, lines) {
        json if json <= 0.0 || json < html => None,
        _ if lines > array => Some(Form::Lines),
        _ => Some(Form::Array),
    }
}

/// The entries of a folder.
pub(super) fn answer(site: &Arc<Site>, folder: &Entry, form: Form) -> Response {
    let site = site.clone();
    let begin = Some((folder.entries(), true));
    let pieces = stream::try_unfold(begin, move |state| {
        let site = site.clone();
        async move {
            let Some((entries, is_first)) = state else { return Ok(None) };
            site.run(move |_| Ok(batch(form, entries, is_first))).await.map(Some).map_err(|refusal| refusal.text)
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(match form {
            Form::Array => "application/json",
            Form::Lines => "application/x-ndjson",
        }),
    );
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

type Rest = Option<(Entries, bool)>;

fn batch(form: Form, mut entries: Entries, mut is_first: bool) -> (Bytes, Rest) {
    let mut text = Vec::new();
    if is_first && form == Form::Array {
        text.push(b'[');
    }
    for _ in 0..BATCH {
        let Some(entry) = entries.next() else {
            text.extend_from_slice(if form == Form::Array { b"]\n" } else { b"" });
            return (text.into(), None);
        };
        // What can't be looked at is left out, as what may not be read is.
        let Some(entry) = entry.ok().filter(paths::is_shown) else { continue };
        if form == Form::Array {
            text.extend_from_slice(if is_first { b"\n" } else { b",\n" });
        }
        is_first = false;
        let info = entry.vfs().item_info(entry.ino()).ok().flatten().unwrap_or_default();
        text.extend_from_slice(listed::to_json(entry.path(), Some(entry.attr()), &info).to_string().as_bytes());
        if form == Form::Lines {
            text.push(b'\n');
        }
    }
    (text.into(), Some((entries, is_first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let wanted = |accept| wanted(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]));
        let page = [
            "*/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/json;q=0",
            "text/html, application/json;q=0.9",
        ];
        assert!(page.iter().all(|accept| wanted(accept).is_none()));
        let array =
            ["application/json", "application/json, text/plain, */*", "text/html;q=0.5, Application/JSON;q=0.9"];
        assert!(array.iter().all(|accept| wanted(accept) == Some(Form::Array)));
        assert_eq!(wanted("application/x-ndjson"), Some(Form::Lines));
        assert_eq!(wanted("application/x-ndjson, application/json"), Some(Form::Array));
    }
}
