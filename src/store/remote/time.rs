//! Times as servers write them, to the second: `2026-11-22T08:17:08.123Z` and `Sun, 22 Nov 2026 08:17:08 GMT`.

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns seconds since 1970, UTC; `None` if the text is not such a time.
pub(super) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.as_bytes().first()?.is_ascii_digit() {
        let (date, time) = text.split_once(['T', ' '])?;
        let mut date = date.split('-').map(str::parse::<i64>);
        let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
        return seconds(year, month, day, time.get(..8)?);
    }
    let (_, rest) = text.split_once(", ")?;
    let mut words = rest.split(' ').flat_map(|word| word.split('-')).filter(|word| !word.is_empty());
    let day = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| month.eq_ignore_ascii_case(name))? as i64 + 1;
    seconds(words.next()?.parse().ok()?, month, day, words.next()?)
}

fn seconds(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let mut parts = time.split(':').map(str::parse::<i64>);
    let (hour, minute, second) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let is_time = (1..=12).contains(&month) && (1..=31).contains(&day) && (1..10_000).contains(&year);
    if !is_time || !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60).contains(&second) {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
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
