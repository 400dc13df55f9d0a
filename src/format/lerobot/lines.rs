//! Metadata of v2 as lines of JSON.

use serde::Deserialize;

use crate::{
    limits,
    source::{Memory, Source, SourceError},
    wanted,
};

/// A line of `meta/episodes.jsonl`.
#[derive(Debug, Deserialize)]
pub struct EpisodeLine {
    /// Number of the episode.
    pub episode_index: i64,
    /// Its steps.
    pub length: i64,
    /// Its tasks.
    pub tasks: Option<Vec<String>>,
}

/// A line of `meta/tasks.jsonl`.
#[derive(Debug, Deserialize)]
pub struct TaskLine {
    /// Number of the task.
    pub task_index: i64,
    /// What it is.
    pub task: String,
}

/// Reads a line that is an object.
///
/// # Errors
/// The reason if it is not.
pub fn object<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // Without this check, an array of the values would be accepted, too.
    match line.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(line).map_err(|error| error.to_string()),
        _ => Err("it is no object".into()),
    }
}

/// Bytes of memory that a byte of a line can take when it is interpreted. The worst case is a list of empty tasks while
/// it grows: `"",` becomes a text of 24 bytes in the old list and two in the new one.
const ROOM: u64 = 24;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;

/// Passes the lines of a file to `each`, with their numbers from 1: the bytes of a line, or `None` if it is too long.
/// Empty lines are left out.
///
/// # Errors
/// [`SourceError`], and those of `each`.
pub fn lines<E: From<SourceError>>(
    source: &dyn Source,
    memory: &dyn Memory,
    mut each: impl FnMut(u64, Option<&[u8]>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut at, mut number, mut line, mut is_long) = (0, 0, Vec::new(), false);
    memory.reserve(PIECE)?;
    let mut longest = 0;
    let mut end = |line: &mut Vec<u8>, is_long: &mut bool| {
        number += 1;
        // Lines are interpreted one at a time.
        if line.len() > longest {
            memory.reserve((line.len() - longest) as u64 * ROOM)?;
            longest = line.len();
        }
        let whole = (!std::mem::take(is_long)).then_some(line.as_slice());
        let done = match whole.map(<[u8]>::trim_ascii) {
            Some([]) => Ok(()),
            whole => each(number, whole),
        };
        line.clear();
        done
    };
    while at < source.len() {
        wanted::check().map_err(SourceError::from)?;
        let piece = source.read(at..source.len().min(at + PIECE))?;
        at += piece.len() as u64;
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            match line.len() + part.len() <= limits::LEROBOT_LINE {
                true => {
                    if line.len() + part.len() > line.capacity() && line.capacity() > 0 {
                        memory.reserve(2 * (line.len() + part.len()) as u64)?;
                    }
                    line.extend_from_slice(part);
                }
                false => is_long = true,
            }
            if parts.peek().is_some() {
                end(&mut line, &mut is_long)?;
            }
        }
    }
    end(&mut line, &mut is_long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Unlimited;

    #[test]
    fn lines_of_any_length() {
        let long = "x".repeat(3 << 20);
        let file = format!("a\n\n  \n{long}\r\nb\n{}\nlast", "y".repeat(limits::LEROBOT_LINE + 1)).into_bytes();
        let mut found = Vec::new();
        lines(&file, &Unlimited, |number, line| {
            found.push((number, line.map(<[u8]>::len)));
            Ok::<_, SourceError>(())
        })
        .unwrap();
        assert_eq!(found, [(1, Some(1)), (4, Some(3 << 20)), (5, Some(1)), (6, None), (7, Some(4))]);
        let one = object::<EpisodeLine>(br#"{"episode_index": 3, "length": 2, "other": {}}"#).unwrap();
        assert_eq!((one.episode_index, one.length, one.tasks), (3, 2, None));
        for bad in [r#"{"episode_index": true, "length": 2}"#, r#"{"episode_index": 1.0, "length": 2}"#, "[0, 1, null]"]
        {
            assert!(object::<EpisodeLine>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
