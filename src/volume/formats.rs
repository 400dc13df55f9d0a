//! The container formats, for programs that choose among them.

use crate::{
    format::{Front, Recognition},
    tree::known_formats,
};

/// A container format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatInfo {
    /// Its name, as `container.json` and [`crate::OpenOptions::formats`] have it.
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// Suffixes of such files.
    pub suffixes: &'static [&'static str],
    /// Suffixes that such files share with files of other kinds.
    pub shared_suffixes: &'static [&'static str],
    /// Whether such files are shown as folders unless something else is chosen.
    pub is_default: bool,
}

/// All formats that the program knows.
///
/// ```
/// assert!(shardfs::formats().any(|format| format.name == "kdb" && format.suffixes == [".kdb"]));
/// ```
pub fn formats() -> impl Iterator<Item = FormatInfo> {
    known_formats().iter().map(|format| FormatInfo {
        name: format.name,
        summary: format.summary,
        suffixes: format.suffixes,
        shared_suffixes: format.shared_suffixes,
        is_default: format.is_default,
    })
}

/// How sure it is, by a file's first 4 KiB, its length and its name, that it is a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// It is none.
    None,
    /// It may be one: [`crate::Volume`] looks closer.
    Maybe,
    /// It is meant to be one, whole or damaged.
    Meant,
}

/// What a file is by its first bytes (4 KiB of them, or all that there are), its length and its name.
pub fn likeness(front: &[u8], len: u64, name: &str) -> Likeness {
    let front = Front { bytes: front, len, name: name.as_bytes() };
    let likeness = |recognised| match recognised {
        Recognition::No => Likeness::None,
        Recognition::Maybe => Likeness::Maybe,
        Recognition::Meant => Likeness::Meant,
    };
    let found = known_formats()
        .iter()
        .filter(|format| format.markers.is_empty())
        .map(|format| likeness((format.recognise)(&front)));
    found.max().unwrap_or(Likeness::None)
}
