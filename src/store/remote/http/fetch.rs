//! Ranges of one object in one state, over HTTP.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::{
    client::{Answer, Client},
    trouble::Trouble,
};
use crate::store::remote::{
    backends::backend::{self, Ask, State, Target, text},
    object::{Fetch, FetchError, ObjectId},
};

/// Largest object in bytes that is read from its beginning if the server has no ranges.
const WITHOUT_RANGES: u64 = 16 << 20;

/// One object in one state.
pub(crate) struct Object {
    pub(crate) client: Arc<Client>,
    pub(crate) key: Arc<[u8]>,
    pub(crate) state: State,
    pub(crate) id: ObjectId,
}

impl Fetch for Object {
    fn id(&self) -> &ObjectId {
        &self.id
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        sink: &'a mut (dyn FnMut(Bytes) + Send),
    ) -> BoxFuture<'a, Result<(), FetchError>> {
        Box::pin(async move {
            let mut at = range.start;
            let end = range.end.min(self.id.size);
            let mut attempts = self.client.attempts(None);
            while at < end {
                let mut ask = Ask::new(Method::GET, Target::Object(&self.key));
                ask.headers.insert(header::RANGE, number(&format!("bytes={at}-{}", end - 1))?);
                let etag = &self.state.etag;
                // Weak tags never match.
                if !etag.is_empty() && !etag.starts_with("W/") {
                    ask.headers.insert(header::IF_MATCH, number(&format!("\"{etag}\""))?);
                }
                let mut answer = attempts.send(&ask).await?;
                let mut skip = self.check(&answer, at, end)?;
                let trouble = loop {
                    match answer.next().await {
                        Ok(Some(mut bytes)) => {
                            attempts.came(bytes.len() as u64);
                            let skipped = skip.min(bytes.len() as u64);
                            skip -= skipped;
                            let bytes = bytes.split_off(usize::try_from(skipped).unwrap_or(usize::MAX));
                            let room = usize::try_from(end - at).unwrap_or(usize::MAX);
                            let bytes = bytes.slice(..bytes.len().min(room));
                            at += bytes.len() as u64;
                            if !bytes.is_empty() {
                                attempts.progress();
                                sink(bytes);
                            }
                            if at == end {
                                break None;
                            }
                        }
                        Ok(None) => break Some(Trouble::passing("the answer was cut")),
                        Err(trouble) => break Some(trouble),
                    }
                };
                drop(answer);
                if let Some(trouble) = trouble {
                    attempts.again(trouble, None).await?;
                }
            }
            Ok(())
        })
    }
}

impl Object {
    /// Checks that an answer has the requested bytes of this object in this state. Returns how many bytes come before
    /// them.
    fn check(&self, answer: &Answer, from: u64, end: u64) -> Result<u64, FetchError> {
        let now = self.client.backend.state(&answer.headers);
        let is_same = match (&*self.state.etag, &*now.etag) {
            _ if self.client.backend.is_pinned() => true,
            ("", _) | (_, "") => match (self.state.modified, now.modified) {
                (Some(then), Some(now)) => then == now,
                // Without a tag or time, parts of two states cannot be told apart.
                _ => {
                    let text = "an answer has neither the ETag nor the Last-Modified that was seen before: a change \
                                could not be noticed; copy the file to read it";
                    return Err(self.client.failed(text));
                }
            },
            (then, now) => opaque(then) == opaque(now),
        };
        if !is_same {
            return Err(FetchError::Changed);
        }
        if answer.status == StatusCode::PARTIAL_CONTENT {
            let Some((start, last, size)) = part(&answer.headers) else {
                return Err(self.client.failed("the server does not say which bytes it gives"));
            };
            if size.is_some_and(|size| size != self.id.size) {
                return Err(FetchError::Changed);
            }
            if start != from || last >= end {
                return Err(self.client.failed("the server gives other bytes than it was asked for"));
            }
            return Ok(0);
        }
        // A server without ranges sends the whole object.
        let length = content_length(&answer.headers);
        if length.is_some_and(|length| length != self.id.size) {
            return Err(FetchError::Changed);
        }
        if from > 0 && self.id.size > WITHOUT_RANGES {
            let text = "the server gives no ranges; files of more than 16 MiB can't be read from it, copy them";
            return Err(self.client.failed(text));
        }
        Ok(from)
    }
}

/// Returns an entity tag without its `W/`, because Apache drops that once a file is a second old.
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/\"").and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag)
}

fn number(text: &str) -> Result<HeaderValue, FetchError> {
    HeaderValue::from_str(text).map_err(|_| FetchError::Failed("an entity tag that no request can name".into()))
}

/// Returns the first and the last byte that an answer of status 206 brings, and the object's size if it is given. `None`
/// if it does not say so, or has another number of bytes, as a part that was compressed on the way.
pub(crate) fn part(headers: &HeaderMap) -> Option<(u64, u64, Option<u64>)> {
    let (start, last, size) = content_range(text(headers, header::CONTENT_RANGE)?)?;
    let is_whole = content_length(headers).is_none_or(|length| length.checked_sub(1) == Some(last - start));
    is_whole.then_some((start, last, size))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_LENGTH)?.parse().ok()
}

/// Parses `bytes 5-9/20`. Returns the first byte, the last one, and the size if it is given.
fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (unit, text) = text.trim().split_once(' ')?;
    let (range, size) = text.split_once('/').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    let (start, last) = range.split_once('-')?;
    let (start, last) = (start.trim().parse().ok()?, last.trim().parse().ok()?);
    let size = match size.trim() {
        "*" => None,
        size => Some(backend::size(size)?),
    };
    (start <= last && size.is_none_or(|size| last < size)).then_some((start, last, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_that_lose_their_weakness() {
        assert_eq!([opaque("W/\"a-1\""), opaque("a-1"), opaque("W/x"), opaque("")], ["a-1", "a-1", "W/x", ""]);
    }

    #[test]
    fn parts_have_the_bytes_that_they_name() {
        let headers = |length: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_RANGE, HeaderValue::from_static("bytes 5-9/20"));
            length.map(|length| headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static(length)));
            headers
        };
        for right in [None, Some("5")] {
            assert_eq!(part(&headers(right)), Some((5, 9, Some(20))));
        }
        for wrong in ["0", "4", "6", "20", "18446744073709551615"] {
            assert_eq!(part(&headers(Some(wrong))), None, "{wrong}");
        }
    }

    #[test]
    fn content_ranges() {
        assert_eq!(content_range("bytes 5-9/20"), Some((5, 9, Some(20))));
        assert_eq!(content_range("Bytes 0-0/*"), Some((0, 0, None)));
        for bad in ["", "bytes */20", "bytes 9-5/20", "bytes 5-20/20", "items 5-9/20"] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
