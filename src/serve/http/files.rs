//! `/files/…`: every path of docs/TREE.md.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{body::Body, response::IntoResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};

use super::{
    access::random_hex,
    body::{self, Segment, Sending},
    conditions::{self, Validators},
    listing, paths,
    ranges::{self, Wanted},
    types,
};
use crate::{
    serve::{Refusal, Response, Site, page},
    source::Wait,
    volume::{Entry, EntryKind},
};

/// Most look-ups for one request, if the file changes meanwhile.
const TRIES: usize = 3;

/// Content-Security-Policy of files: the browser may show them, and nothing runs.
const POLICY: &str = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; sandbox";

/// Answers a request below `/files`, whose body is ignored.
pub(in crate::serve) async fn answer(site: &Arc<Site>, head: Parts) -> Response {
    let wants_page = listing::wanted(&head.headers).is_none();
    match answered(site, "/files", head).await {
        Ok(response) => response,
        Err(refusal) if wants_page => page::refused(site, refusal),
        Err(refusal) => refusal.into_response(),
    }
}

/// Answers a GET or HEAD for the address behind `prefix`.
///
/// # Errors
/// [`Refusal`] if there is nothing, or it can't be read.
pub(in crate::serve) async fn answered(site: &Arc<Site>, prefix: &str, head: Parts) -> Result<Response, Refusal> {
    if ![Method::GET, Method::HEAD].contains(&head.method) {
        return Err(Refusal::method());
    }
    let address = head.uri.path().strip_prefix(prefix).unwrap_or_default();
    // Bytes in memory are sent from this thread: waking another one would take longer.
    if let Some(file) = site.recent.get(address)
        && let Ok(response) = file.answer(site, &head, Wait::Never)
    {
        return Ok(response);
    }
    let address = address.to_owned();
    let head = Arc::new(head);
    let asked = head.clone();
    let found = site.run(move |site| {
        let mut found = look_up(site, &address, &asked);
        for _ in 1..TRIES {
            match &found {
                Err(refusal) if refusal.is_changed => found = look_up(site, &address, &asked),
                _ => break,
            }
        }
        found
    });
    match found.await? {
        Found::Folder(folder) => match listing::wanted(&head.headers) {
            Some(form) => listing::answer(site, &folder, form).await,
            None => page::folder(site, &folder, &head).await,
        },
        Found::File(response) => Ok(response),
    }
}

/// What an address leads to.
enum Found {
    Folder(Entry),
    /// The answer with a file.
    File(Response),
}

/// A file in one state.
pub(in crate::serve) struct Shown {
    entry: Entry,
    tag: Option<u128>,
    validators: Validators,
}

/// Finds what an address leads to, and makes the answer if that is a file.
fn look_up(site: &Arc<Site>, address: &str, head: &Parts) -> Result<Found, Refusal> {
    let entry = paths::find(&site.volume, address)?;
    match entry.kind() {
        EntryKind::Folder => return Ok(Found::Folder(entry)),
        EntryKind::Link => {
            let reason = match entry.format()? {
                Some(_) => "a link that leads nowhere",
                None => "a symbolic link; `shardfs serve --follow-links` follows those that lead elsewhere inside",
            };
            return Err(Refusal::new(StatusCode::NOT_FOUND, reason));
        }
        EntryKind::File => {}
    }
    let tag = entry.tag()?;
    let validators =
        Validators { etag: tag.map(|tag| format!("\"{tag:032x}\"")), modified: whole_seconds(entry.modified()) };
    let file = Arc::new(Shown { entry, tag, validators });
    let response = file.answer(site, head, Wait::Always)?;
    site.recent.put(address, &file);
    Ok(Found::File(response))
}

impl Shown {
    /// Returns whether its address still leads to it, in the same state; false if telling this would wait.
    pub(in crate::serve) fn is_current(&self) -> bool {
        self.entry.is_still_there()
    }

    /// Returns the answer to a request for it, with the first piece read: so damage there is answered with a status and a
    /// reason. Waits for no more than `wait` permits.
    ///
    /// # Errors
    /// As [`body::read`].
    fn answer(&self, site: &Arc<Site>, head: &Parts, wait: Wait) -> Result<Response, Refusal> {
        let Self { entry, tag, validators } = self;
        let (size, (media_type, is_shown)) = (entry.size(), types::media_type(entry.name()));
        let is_get = head.method == Method::GET;
        // RFC 9110, 14.2: ranges apply to GET only. Parts of a file that is generated at each read would not fit
        // together.
        let wanted = match is_get && tag.is_some() && conditions::range_applies(&head.headers, validators) {
            true => ranges::wanted(&head.headers, size),
            false => Wanted::Whole,
        };
        let refused = (wanted == Wanted::Nothing).then_some(StatusCode::RANGE_NOT_SATISFIABLE);
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if let Some(etag) = &validators.etag {
            set(header::ETAG, etag);
            set(header::ACCEPT_RANGES, "bytes");
        }
        set(header::LAST_MODIFIED, &httpdate::fmt_http_date(validators.modified));
        // The browser asks each time whether its copy is still the same.
        set(header::CACHE_CONTROL, "private, no-cache");
        set(header::CONTENT_SECURITY_POLICY, POLICY);
        if let Some(status) = conditions::evaluate(&head.headers, validators).or(refused) {
            if status == StatusCode::RANGE_NOT_SATISFIABLE {
                set(header::CONTENT_RANGE, &format!("bytes */{size}"));
            }
            if status != StatusCode::NOT_MODIFIED {
                set(header::CONTENT_LENGTH, "0");
            }
            return Ok((status, headers).into_response());
        }
        let parts = if let Wanted::Parts(parts) = wanted { parts } else { Vec::new() };
        let status = if parts.is_empty() { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
        let segments = if parts.len() > 1 {
            let boundary = random_hex();
            set(header::CONTENT_TYPE, &format!("multipart/byteranges; boundary={boundary}"));
            multipart(&boundary, &parts, media_type, size)
        } else {
            set(header::CONTENT_TYPE, media_type);
            if let [part] = &parts[..] {
                set(header::CONTENT_RANGE, &content_range(part, size));
            }
            let range = parts.into_iter().next().unwrap_or(0..size);
            let first = is_get.then(|| body::read(entry, *tag, &range, wait)).transpose()?;
            let rest = range.start + first.as_ref().map_or(0, |first| first.len() as u64)..range.end;
            let rest = Some(rest).filter(|rest| !rest.is_empty()).map(Segment::Range);
            first.map(Segment::Text).into_iter().chain(rest).collect()
        };
        set(header::CONTENT_LENGTH, &segments.iter().map(Segment::size).sum::<u64>().to_string());
        if !is_shown {
            // The browser takes the name from the address.
            set(header::CONTENT_DISPOSITION, "attachment");
        }
        let body = match (is_get, segments.len(), segments.front()) {
            (false, ..) => Body::empty(),
            // Everything is read: the file need not stay open.
            (_, 1, Some(Segment::Text(bytes))) => Body::from(bytes.clone()),
            _ => Sending::new(site.clone(), entry.clone(), *tag, segments).into_body(),
        };
        Ok((status, headers, body).into_response())
    }
}

/// Returns the body of several ranges (RFC 9110, 14.6).
fn multipart(boundary: &str, parts: &[Range<u64>], media_type: &str, size: u64) -> VecDeque<Segment> {
    let (mut segments, mut before) = (VecDeque::with_capacity(2 * parts.len() + 1), "");
    for range in parts {
        let range_text = content_range(range, size);
        let head = format!("{before}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {range_text}\r\n\r\n");
        segments.extend([Segment::Text(head.into()), Segment::Range(range.clone())]);
        before = "\r\n";
    }
    segments.push_back(Segment::Text(format!("\r\n--{boundary}--\r\n").into()));
    segments
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1))
}

/// Returns a time in whole seconds, as headers have it, limited to the years 1970 to 9999.
pub(in crate::serve) fn whole_seconds(time: SystemTime) -> SystemTime {
    const YEAR_10000: u64 = 253_402_300_800;
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(YEAR_10000 - 1))
}
