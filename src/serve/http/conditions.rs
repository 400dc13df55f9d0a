//! Conditional requests (RFC 9110, section 13): whether a client has the file already, or a part of this very state.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header};

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

/// Evaluates the conditions of a GET or HEAD, in the order of RFC 9110, 13.2.2. Returns the status of a request that is
/// not answered: 304 if the client has the file, 412 if it means another state.
pub(in crate::serve) fn evaluate(headers: &HeaderMap, validators: &Validators) -> Option<StatusCode> {
    if headers.contains_key(header::IF_MATCH) {
        if !matches(headers, &header::IF_MATCH, validators, true) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    } else if time(headers, &header::IF_UNMODIFIED_SINCE).is_some_and(|time| validators.modified > time) {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        if matches(headers, &header::IF_NONE_MATCH, validators, false) {
            return Some(StatusCode::NOT_MODIFIED);
        }
    } else if validators.etag.is_some()
        && time(headers, &header::IF_MODIFIED_SINCE).is_some_and(|time| validators.modified <= time)
    {
        return Some(StatusCode::NOT_MODIFIED);
    }
    None
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
        let (not_modified, failed) = (Some(StatusCode::NOT_MODIFIED), Some(StatusCode::PRECONDITION_FAILED));
        type Case<'a> = (&'a [(HeaderName, &'static str)], Option<StatusCode>);
        let cases: &[Case<'_>] = &[
            (&[], None),
            (&[(IF_NONE_MATCH, "\"xyzzy\"")], not_modified),
            (&[(IF_NONE_MATCH, "\"a\", W/\"xyzzy\"")], not_modified),
            (&[(IF_NONE_MATCH, "*")], not_modified),
            (&[(IF_NONE_MATCH, "\"a\"")], None),
            // With a tag the date is ignored.
            (&[(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, same)], None),
            (&[(IF_MODIFIED_SINCE, same)], not_modified),
            (&[(IF_MODIFIED_SINCE, before)], None),
            (&[(IF_MODIFIED_SINCE, "no date")], None),
            (&[(IF_MATCH, "\"xyzzy\"")], None),
            (&[(IF_MATCH, "W/\"xyzzy\"")], failed),
            (&[(IF_MATCH, "\"a\"")], failed),
            (&[(IF_UNMODIFIED_SINCE, before)], failed),
            (&[(IF_UNMODIFIED_SINCE, same)], None),
            (&[(IF_MATCH, "\"xyzzy\""), (IF_UNMODIFIED_SINCE, before)], None),
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
