//! Episodes and timelines for `info`, the web pages and Python, for all formats.
//!
//! [`Episodes`] is a container of several episodes, each in a folder. [`Timeline`] is what the player needs of a folder
//! with data over time: an episode, or a recording.

use std::{collections::HashMap, ops::Range};

use crate::view::{Fault, ReadContext};

/// Recorded episodes. Their positions count from 0 and are independent of the names of their folders.
pub trait Episodes {
    /// Returns how many there are.
    ///
    /// # Errors
    /// [`Fault`] if the answer needs bytes that cannot be read.
    fn count(&self, reader: &ReadContext) -> Result<u64, Fault>;

    /// Returns the number of frames of all episodes, and whether it was counted. Otherwise it is only what the file
    /// states. Returns `None` if each episode would have to be read for it.
    ///
    /// # Errors
    /// As [`Self::count`].
    fn frames(&self, reader: &ReadContext) -> Result<Option<(u64, bool)>, Fault>;

    /// Returns the most episodes that a summary or a page should describe: few if each is read whole for that.
    fn summarised(&self) -> u64 {
        1000
    }

    /// Returns the version of the format, and the time at which the container was made in seconds since 1970, if
    /// stated.
    fn made(&self) -> (Option<String>, Option<i64>);

    /// Returns the path of an episode's folder below the container.
    ///
    /// # Errors
    /// As [`Self::count`].
    fn folder(&self, reader: &ReadContext, position: u64) -> Result<String, Fault>;

    /// Returns the position of the episode whose folder has a path below the container; `None` for all other paths.
    ///
    /// # Errors
    /// As [`Self::count`].
    fn position(&self, reader: &ReadContext, path: &str) -> Result<Option<u64>, Fault>;

    /// Returns the positions of the episodes in a folder: all for the container's own folder, whose path is empty;
    /// those whose folders it contains for a folder of episodes. Empty for all other folders.
    ///
    /// # Errors
    /// As [`Self::count`].
    fn within(&self, reader: &ReadContext, path: &str) -> Result<Range<u64>, Fault>;

    /// Returns an episode; `None` after the last one.
    ///
    /// # Errors
    /// As [`Self::count`].
    fn episode(&self, reader: &ReadContext, position: u64) -> Result<Option<Episode>, Fault>;

    /// Returns the cameras of an episode. May read the pictures of at most `frames` frames, and subtracts those that it
    /// read.
    ///
    /// # Errors
    /// Why they are not known, in a few words.
    fn cameras(&self, reader: &ReadContext, position: u64, frames: &mut u64) -> Result<Vec<Camera>, String>;
}

/// What is known of an episode without reading its frames.
#[derive(Debug, Clone)]
pub struct Episode {
    /// Its place among the episodes.
    pub position: u64,
    /// The number that its writer gave it.
    pub id: u64,
    /// Its frames.
    pub frames: u64,
    /// Numbers in the state of a frame.
    pub state: Option<u64>,
    /// Numbers in the action of a frame.
    pub action: Option<u64>,
    /// Its description; `None` if that is damaged.
    pub said: Option<Said>,
}

/// A writer's description of an episode.
#[derive(Debug, Clone)]
pub struct Said {
    /// The robot, if the format records it.
    pub embodiment: Option<String>,
    /// The instruction, if there is one.
    pub task: Option<String>,
    /// Frames a second, if the format records them.
    pub fps: Option<f64>,
    /// Whether it succeeded; `None` if the format does not record that.
    pub success: Option<Success>,
    /// The sum of its rewards.
    pub total_reward: Option<f32>,
}

/// Whether an episode succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// It did.
    Yes,
    /// It did not.
    No,
    /// Its writer did not say.
    Unknown,
}

impl Success {
    /// Returns the word that users see.
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether it did, if that is known.
    pub fn known(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No => Some(false),
            Self::Unknown => None,
        }
    }
}

/// One camera of an episode.
#[derive(Debug, Clone)]
pub struct Camera {
    /// Its name.
    pub name: String,
    /// Its pictures.
    pub pictures: u64,
    /// Width, height and channels, if all pictures have the same. Channels are 0 if they are not known.
    pub size: Option<(u32, u32, u8)>,
    /// How the pictures are stored, such as `raw` or `jpeg+png`.
    pub encoding: String,
}

/// Returns the name of an episode for people, by the path of its folder: its number, behind the name of the part that it
/// is in if there are parts.
pub fn episode_name(folder: &str) -> String {
    let parts: Vec<&str> = folder.split('/').collect();
    match parts[..] {
        [part, _, number] => format!("{part} {number}"),
        _ => parts.last().copied().unwrap_or_default().to_owned(),
    }
}

/// What the player needs of a folder in addition to its pictures below `images/` and its arrays.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// The number of steps, if stated.
    pub steps: Option<u64>,
    /// Steps a second, if stated; with `times`, on average.
    pub rate: Option<f64>,
    /// The path of an array with the time of each step in nanoseconds, if steps are not evenly spaced.
    pub times: Option<&'static str>,
    /// Documents of metadata: the heading of each, and its path below the folder.
    pub documents: Vec<(&'static str, String)>,
    /// Units of arrays, by their paths without the suffix.
    pub units: HashMap<String, String>,
    /// The folder of the arrays with all pictures of a camera, with a slash at its end, if sizes come from there.
    pub stacks: Option<&'static str>,
    /// Names of the episodes before and after this one, if their folders lie beside it.
    pub neighbours: Option<(Option<String>, Option<String>)>,
}
