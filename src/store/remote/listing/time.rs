//! Times as servers write them, to the second: `2026-11-22T08:17:08.123Z` and `Sun, 22 Nov 2026 08:17:08 GMT`.

use chrono::{DateTime, NaiveDateTime};

/// Returns seconds since 1970, UTC; `None` if the text is not such a time.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    let with_zone = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text));
    let without = || NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").map(|time| time.and_utc().timestamp());
    with_zone.map(|time| time.timestamp()).or_else(|_| without()).ok()
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
        for bad in ["", "soon", "2024-13-01T00:00:00Z", "2024-01-01", "Thu, 29 Foo 2024 12:34:56 GMT"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
