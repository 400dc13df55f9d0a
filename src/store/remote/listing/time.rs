//! Times as servers write them, to the second: `2026-11-22T08:17:08.123Z`, `Sun, 22 Nov 2026 08:17:08 GMT`, and the two
//! older forms of HTTP (RFC 9110, section 5.6.7).

use chrono::{DateTime, NaiveDateTime};

/// Forms without a time zone, which is UTC.
const WITHOUT_ZONE: [&str; 3] = ["%Y-%m-%d %H:%M:%S", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// Returns seconds since 1970, UTC; `None` if the text is not such a time.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    let with_zone = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text));
    let without = || WITHOUT_ZONE.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    with_zone.map(|time| time.timestamp()).ok().or_else(|| Some(without()?.and_utc().timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_listings_and_of_headers() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2024-02-29T12:34:56.789Z"), Some(1_709_210_096));
        assert_eq!(parse("Thu, 29 Feb 2024 12:34:56 GMT"), Some(1_709_210_096));
        assert_eq!(parse("2024-02-29 12:34:56"), Some(1_709_210_096));
        assert_eq!(parse("Thursday, 29-Feb-24 12:34:56 GMT"), Some(1_709_210_096));
        assert_eq!(parse("Thu Feb 29 12:34:56 2024"), Some(1_709_210_096));
        // The example of RFC 9110.
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), Some(784_111_777));
        for bad in ["", "soon", "2024-13-01T00:00:00Z", "2024-01-01", "Thu, 29 Foo 2024 12:34:56 GMT"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
