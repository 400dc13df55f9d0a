//! Conditional requests (RFC 9110, section 13): whether a client has the file already, or a part of this very state.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, header};

/// A modification time this recent may stand for two states, because HTTP dates have whole seconds.
const UNSURE: Duration = Duration::from_secs(2);

/// What a file's state is recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) struct Validators {
    /// The entity tag, in quotes; `None` for files that are generated at each read.
    pub(in crate::serve) etag: Option<String>,
    /// The time of modification, in whole seconds.
    pub(in crate::serve) modified: SystemTime,
}

/// Result of the conditions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Verdict {
    /// The request is answered.
    Holds,
    /// The client has it: 304.
    NotModified,
    /// It is not the state that the client means: 412.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD, in the order of RFC 9110, 13.2.2.
pub(in crate::serve) fn evaluate(headers: &HeaderMap, validators: &Validators) -> Verdict {
    if headers.contains_key(header::IF_MATCH) {
        if !matches(headers, &header::IF_MATCH, validators, true) {
            return Verdict::Failed;
        }
    } else if time(headers, &header::IF_UNMODIFIED_SINCE).is_some_and(|time| validators.modified > time) {
        return Verdict::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        if matches(headers, &header::IF_NONE_MATCH, validators, false) {
            return Verdict::NotModified;
        }
    } else if validators.etag.is_some()
        && time(headers, &header::IF_MODIFIED_SINCE).is_some_and(|time| validators.modified <= time)
    {
        return Verdict::NotModified;
    }
    Verdict::Holds
}

/// Returns whether a range may be sent: the client has no part yet, or one of this very state (RFC 9110, 13.1.5).
pub(in crate::serve) fn range_applies(headers: &HeaderMap, validators: &Validators) -> bool {
    let Some(value) = headers.get(header::IF_RANGE) else { return true };
    let value = value.to_str().unwrap_or_default().trim();
    if value.starts_with('"') {
        return validators.etag.as_deref() == Some(value);
    }
    // A file that was just written may have had two states in one second. A weak tag does not parse as a date.
    let is_sure = validators.modified + UNSURE < SystemTime::now();
    is_sure && httpdate::parse_http_date(value).is_ok_and(|time| time == validators.modified)
}

/// Returns whether a header holds the file's entity tag. If `strong`, weak tags do not match.
fn matches(headers: &HeaderMap, name: &HeaderName, validators: &Validators, strong: bool) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    // Our tags have no comma, so pieces of a tag that has one never match.
    values.flat_map(|value| value.split(',')).map(str::trim).any(|tag| {
        let tag = if strong { tag } else { tag.strip_prefix("W/").unwrap_or(tag) };
        tag == "*" || validators.etag.as_deref() == Some(tag)
    })
}

fn time(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn validators() -> Validators {
        // RFC 9110's own example: Sun, 06 Nov 1994 08:49:37 GMT.
        Validators {
            etag: Some("\"xyzzy\"".into()),
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
        }
    }

    fn headers(given: &[(HeaderName, &'static str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn verdicts() {
        use header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        let same = "Sun, 06 Nov 1994 08:49:37 GMT";
        let before = "Sun, 06 Nov 1994 08:49:36 GMT";
        let cases: &[(&[(HeaderName, &'static str)], Verdict)] = &[
            (&[], Verdict::Holds),
            (&[(IF_NONE_MATCH, "\"xyzzy\"")], Verdict::NotModified),
            (&[(IF_NONE_MATCH, "\"a\", W/\"xyzzy\"")], Verdict::NotModified),
            (&[(IF_NONE_MATCH, "*")], Verdict::NotModified),
            (&[(IF_NONE_MATCH, "\"a\"")], Verdict::Holds),
            // With a tag the date is ignored.
            (&[(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, same)], Verdict::Holds),
            (&[(IF_MODIFIED_SINCE, same)], Verdict::NotModified),
            (&[(IF_MODIFIED_SINCE, before)], Verdict::Holds),
            (&[(IF_MODIFIED_SINCE, "no date")], Verdict::Holds),
            (&[(IF_MATCH, "\"xyzzy\"")], Verdict::Holds),
            (&[(IF_MATCH, "W/\"xyzzy\"")], Verdict::Failed),
            (&[(IF_MATCH, "\"a\"")], Verdict::Failed),
            (&[(IF_UNMODIFIED_SINCE, before)], Verdict::Failed),
            (&[(IF_UNMODIFIED_SINCE, same)], Verdict::Holds),
            (&[(IF_MATCH, "\"xyzzy\""), (IF_UNMODIFIED_SINCE, before)], Verdict::Holds),
        ];
        for (given, verdict) in cases {
            assert_eq!(evaluate(&headers(given), &validators()), *verdict, "{given:?}");
        }
    }

    #[test]
    fn ranges_of_another_state_are_not_sent() {
        let applies = |value| range_applies(&headers(&[(header::IF_RANGE, value)]), &validators());
        assert!(range_applies(&HeaderMap::new(), &validators()));
        assert!(applies("\"xyzzy\"") && applies("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert!(!applies("\"a\"") && !applies("W/\"xyzzy\"") && !applies("Sun, 06 Nov 1994 08:49:36 GMT"));
        let recent = SystemTime::UNIX_EPOCH
            + Duration::from_secs(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
        let date = HeaderValue::from_str(&httpdate::fmt_http_date(recent)).unwrap();
        let headers = HeaderMap::from_iter([(header::IF_RANGE, date)]);
        assert!(!range_applies(&headers, &Validators { etag: None, modified: recent }));
    }
}
