//! The `Range` header (RFC 9110, section 14.2).

use std::ops::Range;

use http::HeaderMap;

/// Most ranges of one request. No known client needs more; the whole file is sent then.
const MOST: usize = 200;

/// The parts of a file that a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) enum Wanted {
    /// All of it.
    Whole,
    /// These parts, none empty, in the order that they were asked for.
    Parts(Vec<Range<u64>>),
    /// Parts that the file does not have: 416.
    Nothing,
}

/// Returns what a request wants of a file of `size` bytes. Malformed headers are ignored. So are ranges that are longer
/// together than the file, because they only make the server work.
pub(in crate::serve) fn wanted(headers: &HeaderMap, size: u64) -> Wanted {
    let Some(value) = headers.get(http::header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Wanted::Whole;
    };
    let Some((unit, list)) = value.split_once('=') else { return Wanted::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let (mut parts, mut count) = (Vec::new(), 0);
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let Some(part) = part(text, size).filter(|_| count < MOST) else { return Wanted::Whole };
        parts.extend(Some(part).filter(|part| !part.is_empty()));
        count += 1;
    }
    let sum: u64 = parts.iter().fold(0, |sum, part| sum.saturating_add(part.end - part.start));
    match parts.len() {
        0 if count == 0 => Wanted::Whole,
        0 => Wanted::Nothing,
        _ if sum > size => Wanted::Whole,
        _ => Wanted::Parts(parts),
    }
}

/// Parses one range and cuts it to the file; empty if it begins behind the file's end. `None` if it is malformed.
fn part(text: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| -> Option<u64> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // One that is too large for us is larger than any file.
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        return Some(size.saturating_sub(number(last)?)..size);
    }
    let start = number(first)?;
    let end = if last.is_empty() { size } else { number(last).filter(|last| *last >= start)?.saturating_add(1) };
    let end = end.min(size);
    Some(start.min(end)..end)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    fn of(value: &'static str, size: u64) -> Wanted {
        wanted(&HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(value))]), size)
    }

    #[test]
    fn ranges_as_in_the_rfc() {
        let parts = |parts: &[(u64, u64)]| Wanted::Parts(parts.iter().map(|&(start, end)| start..end).collect());
        assert_eq!(wanted(&HeaderMap::new(), 10), Wanted::Whole);
        // RFC 9110, 14.1.2, of a representation of 10,000 bytes.
        assert_eq!(of("bytes=0-499", 10_000), parts(&[(0, 500)]));
        assert_eq!(of("bytes=500-999", 10_000), parts(&[(500, 1000)]));
        assert_eq!(of("bytes=-500", 10_000), parts(&[(9500, 10_000)]));
        assert_eq!(of("bytes=9500-", 10_000), parts(&[(9500, 10_000)]));
        assert_eq!(of("bytes=0-0,-1", 10_000), parts(&[(0, 1), (9999, 10_000)]));
        assert_eq!(of("bytes= 0-999, 4500-5499, -1000", 10_000), parts(&[(0, 1000), (4500, 5500), (9000, 10_000)]));
        // A range before another, and beyond the end.
        assert_eq!(of("BYTES=500-700,601-999", 10_000), parts(&[(500, 701), (601, 1000)]));
        assert_eq!(of("bytes=9999-10000", 10_000), parts(&[(9999, 10_000)]));
        assert_eq!(of("bytes=-20000", 10_000), parts(&[(0, 10_000)]));
        assert_eq!(of("bytes=10000-,0-0", 10_000), parts(&[(0, 1)]));
        assert_eq!(of("bytes=0-99999999999999999999999", 10_000), parts(&[(0, 10_000)]));
    }

    #[test]
    fn ranges_that_the_file_does_not_have() {
        for value in ["bytes=10000-", "bytes=10000-10001", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(of(value, 10_000), Wanted::Nothing, "{value}");
        }
        for value in ["bytes=0-", "bytes=0-0", "bytes=-1"] {
            assert_eq!(of(value, 0), Wanted::Nothing, "{value}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        let wrong = [
            "bytes",
            "bytes=",
            "bytes= , ",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=--5",
            "bytes=-",
            "lines=0-5",
            "bytes=0-1,x",
            "bytes=+1-2",
            "bytes=1",
        ];
        for value in wrong {
            assert_eq!(of(value, 10_000), Wanted::Whole, "{value}");
        }
        // Many ranges of the same bytes, and very many ranges.
        assert_eq!(of("bytes=0-,0-", 10_000), Wanted::Whole);
        let many = |count: usize| {
            let ranges: String = (0..count).map(|at| format!("{at}-{at},")).collect();
            let value = HeaderValue::from_str(&format!("bytes={ranges}")).unwrap();
            wanted(&HeaderMap::from_iter([(header::RANGE, value)]), 10_000)
        };
        assert!(matches!(many(MOST), Wanted::Parts(parts) if parts.len() == MOST));
        assert_eq!(many(MOST + 1), Wanted::Whole);
    }
}
