//! Decoders of videos, which run in processes of their own.

use std::sync::Arc;

use crate::format::mp4::Track;

/// Returns whether frames of a video can be decoded here. May start a process, so ask `ReadContext::may_work` first.
///
/// # Errors
/// Why not, in words for users: they name the codec and what is missing.
pub fn check(track: &Track) -> Result<(), Arc<str>> {
    Err(format!("{}: no decoder is built in", track.codec()).into())
}
