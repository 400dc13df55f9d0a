//! The timeline of a recording: a row for each topic with how many messages it has when, and the pictures at one time.
//!
//! The page names the topics; the script asks for the marks of each row, and for the pictures of a time. Times of a topic
//! are in order (`Recording`), so both answers are found by bisection, in a topic of any length.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    elements::Elements,
    html::{self, Html},
};
use crate::{
    format::DType,
    serve::http::paths,
    tree::overview::Recording,
    volume::{Entry, Error},
};

/// The array of a topic's times, in nanoseconds, and the folder of its pictures.
const TIMES: &str = "time.npy";
const IMAGES: &str = "images";
/// Topics that get a row, and those of them that get a picture.
const TOPICS: usize = 64;
const CAMERAS: usize = 12;
/// Parts that the time of a recording is divided into.
const BUCKETS: u64 = 480;
/// Times of a topic that are read in one go. Of more, those at the borders of buckets are searched.
const WHOLE: u64 = 1 << 16;

/// Writes the timeline, if there is a message.
pub(super) fn write(main: &mut Html, container: &Entry, recording: &Recording) {
    let Some((first, last)) = recording.times else { return };
    let below = |path: &str| paths::encode(&container.path().join(path));
    let with_messages = || recording.topics.iter().filter(|topic| topic.messages > 0);
    // Of very many topics some are not described.
    let others = recording.topic_count.saturating_sub(recording.topics.len() as u64);
    let topics = with_messages().count() as u64 + others;
    let cameras = with_messages().take(TOPICS).filter(|topic| topic.pictures).count() as u64;
    for (most, all, what) in [(TOPICS as u64, topics, "topics are"), (CAMERAS as u64, cameras, "cameras are")] {
        if all > most {
            let [most, all] = [most, all].map(html::grouped);
            main.fill(
                r#"<p class="note">The first {} of {} {} shown; all are in the files below.</p>"#,
                &[&most, &all, what],
            );
        }
    }
    let mut cameras = 0;
    let topics = with_messages().take(TOPICS).map(|topic| {
        cameras += usize::from(topic.pictures);
        json!({
            "name": topic.name,
            "path": below(&topic.path),
            "messages": topic.messages,
            "pictures": topic.pictures && cameras <= CAMERAS,
        })
    });
    // JavaScript's numbers hold no 64 bits.
    let about = json!({"first": first.to_string(), "last": last.to_string(), "topics": topics.collect::<Vec<_>>()});
    main.section("recording", "recording", "Timeline", &about);
}

/// The times of a topic.
struct Times(Elements);

impl Times {
    /// Returns the times of a topic's folder; `None` if it has none.
    fn of(topic: &Entry) -> Result<Option<Self>, Error> {
        let array = Elements::of(&topic.get(TIMES)?)?;
        Ok(array.filter(|array| array.dtype == DType::I64 && array.shape.len() == 1).map(Self))
    }

    fn at(&self, row: u64) -> Result<u64, Error> {
        let bytes = self.0.read(row, 1)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Returns the first row from `from` on whose time is later than `time`.
    fn behind(&self, time: u64, from: u64) -> Result<u64, Error> {
        let (mut low, mut high) = (from, self.0.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(middle)? <= time {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }
}

/// Returns the last time of a bucket.
fn border((first, last): (u64, u64), bucket: u64) -> u64 {
    let part = u128::from(last.saturating_sub(first)) * u128::from(bucket + 1) / u128::from(BUCKETS);
    // It is at most `last - first`.
    first.saturating_add(part as u64)
}

/// Returns how many messages a topic has in each bucket between two times; `None` if the folder is no topic. The first
/// bucket counts what is before, too, and the last what is behind.
///
/// # Errors
/// Those of reading its times.
pub(super) fn marks(topic: &Entry, all: (u64, u64)) -> Result<Option<Value>, Error> {
    let Some(times) = Times::of(topic)? else { return Ok(None) };
    let rows = times.0.rows;
    let mut behind = Vec::with_capacity(BUCKETS as usize);
    if rows <= WHOLE {
        let bytes = times.0.read(0, rows)?;
        let mut sorted = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).peekable();
        let mut row = 0;
        for bucket in 0..BUCKETS - 1 {
            let end = border(all, bucket);
            while sorted.next_if(|time| *time <= end).is_some() {
                row += 1;
            }
            behind.push(row);
        }
    } else {
        for bucket in 0..BUCKETS - 1 {
            let row = times.behind(border(all, bucket), behind.last().copied().unwrap_or(0))?;
            behind.push(row);
        }
    }
    behind.push(rows);
    let counts = std::iter::once(&0).chain(&behind).zip(&behind).map(|(from, to)| to - from);
    Ok(Some(json!({"counts": counts.collect::<Vec<_>>()})))
}

/// Returns the number of the last message of a topic at a time, and the address of its picture, if there is one; `None`
/// if the folder is no topic.
///
/// # Errors
/// Those of reading its times.
pub(super) fn at(topic: &Entry, time: u64) -> Result<Option<Value>, Error> {
    let Some(times) = Times::of(topic)? else { return Ok(None) };
    let row = times.behind(time, 0)?.checked_sub(1);
    let digits = times.0.rows.saturating_sub(1).to_string().len().max(3);
    let picture = |suffix| {
        let name = format!("{:0digits$}{suffix}", row?);
        topic.get(Path::new(IMAGES).join(name)).ok().map(|file| paths::address(&file))
    };
    let picture = [".jpg", ".png"].into_iter().find_map(picture);
    Ok(Some(json!({"row": row, "picture": picture})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_divide_all_of_the_time() {
        let all = (10, 10 + 3 * BUCKETS);
        assert_eq!((border(all, 0), border(all, 1), border(all, BUCKETS - 1)), (13, 16, all.1));
        assert_eq!(border((0, u64::MAX), BUCKETS - 1), u64::MAX);
        assert_eq!(border((u64::MAX - 1, u64::MAX), 0), u64::MAX - 1);
        assert_eq!(border((5, 5), 7), 5);
    }
}
