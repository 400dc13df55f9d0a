//! What `shardfs info` says of a recording: its times, its chunks, and a line for each topic.

use std::io::Write;

use chrono::DateTime;

use super::{items::write_front, lines};
use crate::{
    escape,
    tree::overview::{Recording, Topic},
};

const HEADINGS: [&str; 6] = ["topic", "type", "encoding", "messages", "rate", ""];
/// Columns of numbers.
const NUMBERS: [usize; 2] = [3, 4];

/// Longest name that is shown, in characters.
const LONGEST: usize = 64;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Prints a line for each value of the front matter, then one for each topic; for a path in the container only the
/// topics at or below it.
pub(super) fn describe(out: &mut impl Write, format: &str, recording: &Recording, part: &str) -> anyhow::Result<()> {
    if part.is_empty() {
        front(out, format, recording)?;
    }
    let topics = recording.topics.iter().filter(|topic| lines::is_below(&topic.path, part));
    let seconds = recording.times.map(|(first, last)| last.saturating_sub(first) as f64 / SECOND as f64);
    let rows: Vec<_> = topics.map(|topic| row(topic, seconds)).collect();
    if !rows.is_empty() {
        lines::table(out, &HEADINGS, &rows, &NUMBERS)?;
    }
    let left_out = recording.topic_count.saturating_sub(recording.topics.len() as u64);
    if left_out > 0 && part.is_empty() {
        writeln!(out, "  ... and {left_out} topics more")?;
    }
    Ok(())
}

fn front(out: &mut impl Write, format: &str, recording: &Recording) -> anyhow::Result<()> {
    writeln!(out, "  format: {format}")?;
    write_front(out, &recording.front, &["format", "channels"])?;
    if let Some((first, last)) = recording.times {
        writeln!(out, "  start: {} ({})", utc(first), decimal(first))?;
        writeln!(out, "  end: {} ({})", utc(last), decimal(last))?;
        writeln!(out, "  duration: {} s", decimal(last.saturating_sub(first)))?;
    }
    let kinds = recording.compressions.iter().map(|(name, count)| format!("{count} {}", escape::escaped(name)));
    let kinds: Vec<_> = kinds.collect();
    if !kinds.is_empty() {
        writeln!(out, "  chunks: {}", kinds.join(", "))?;
        writeln!(out, "  stored: {} bytes of {}", recording.stored_size, recording.size)?;
    }
    for (name, count) in &recording.others {
        writeln!(out, "  {name}: {count}")?;
    }
    Ok(writeln!(out, "  topics: {}", recording.topic_count)?)
}

fn row(topic: &Topic, seconds: Option<f64>) -> Vec<String> {
    let shown = |text: &str| lines::shown(text, LONGEST);
    let rate = match seconds {
        Some(seconds) if seconds > 0.0 && topic.messages > 1 => format!("{:.2} Hz", topic.messages as f64 / seconds),
        _ => String::new(),
    };
    let note = topic.undecoded.as_ref().map_or_else(String::new, |reason| format!("not decoded: {}", shown(reason)));
    vec![shown(&topic.name), shown(&topic.kind), shown(&topic.encoding), topic.messages.to_string(), rate, note]
}

/// Returns nanoseconds as seconds.
fn decimal(nanos: u64) -> String {
    format!("{}.{:09}", nanos / SECOND, nanos % SECOND)
}

/// Returns a time as date and time of day.
fn utc(nanos: u64) -> String {
    // 64 bits of nanoseconds end in the year 2554.
    let time = DateTime::from_timestamp((nanos / SECOND) as i64, (nanos % SECOND) as u32).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%S%.9fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_python() {
        // datetime.fromtimestamp(seconds, timezone.utc).
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_700_000_000, "2023-11-14T22:13:20.000000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(utc(seconds * SECOND), expected);
        }
        assert_eq!(utc(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }
}
