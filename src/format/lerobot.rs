//! LeRobot data sets: `meta/info.json` and files of JSON lines (`docs/formats/lerobot.md` 1 to 3).
//!
//! Rows are in Parquet files ([`super::parquet`]), videos in MP4 files ([`super::mp4`]).

mod info;
mod lines;
mod template;

use super::{Class, FormatError, Front, Recognition};
use crate::{
    limits,
    source::{Memory, Source},
};
pub use info::{Feature, Info, Kind, Version};
pub use lines::{EpisodeLine, TaskLine, lines, object};
pub use template::{Field, Template};

/// The file that makes a folder a data set.
pub const MARKER: &str = "meta/info.json";

/// A key near the front of each `meta/info.json` of the format. If it is there, a damaged file is reported.
const KEY: &[u8] = b"\"codebase_version\"";

/// Returns whether a marker may be that of a data set. Other programs also have folders with a `meta/info.json`.
pub fn recognise(front: &Front<'_>) -> Recognition {
    if front.name != MARKER.as_bytes() {
        return Recognition::No;
    }
    match front.bytes.windows(KEY.len()).any(|window| window == KEY) {
        true => Recognition::Meant,
        false => Recognition::Maybe,
    }
}

/// Reads `meta/info.json`.
///
/// # Errors
/// [`FormatError`] if the folder is not a data set that can be shown.
pub fn parse(source: &dyn Source, memory: &dyn Memory) -> Result<Info, FormatError> {
    let length = source.len();
    if length > limits::LEROBOT_INFO {
        let reason = format!("{length} bytes; at most {} are read", limits::LEROBOT_INFO);
        return Err(FormatError::refused(Class::BadJson, reason));
    }
    memory.reserve(length.saturating_mul(limits::JSON_ROOM))?;
    Info::parse(&source.read(0..length)?)
}
