//! Decoders of videos. They run in separate processes, at most one for each core.
//!
//! This process does not decode videos itself, because decoders are large programs and videos may be hostile. `child`
//! is the separate process: it has no files, no network and no other descriptors (SECURITY.md). If it crashes, hangs or
//! takes too much memory, its requests fail. It ends when it was idle for some seconds, or when its owner ends.
//!
//! The process runs this program again, so [`set_program`] must say how to start it.

#[cfg(feature = "video")]
mod child;
mod pool;
mod process;
mod protocol;

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use parking_lot::RwLock;

use crate::{
    format::mp4::{Track, VideoCodec},
    source::SourceError,
};
pub(crate) use pool::{Wanted, decode, decode_ahead};

/// Largest picture in bytes of its pixels.
pub(crate) const FRAME: u64 = crate::limits::PICTURE;

/// How a decoder's process is started. The program must call [`run_decoder`](crate::run_decoder) with its last
/// argument.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file.
    pub path: OsString,
    /// The name by which it is called, if that differs.
    pub name: Option<OsString>,
    /// Its arguments. The codec (`av1`, `h264`) is added as the last one.
    pub arguments: Vec<OsString>,
    /// Names of the environment variables that it keeps. All others are removed.
    pub environment: Vec<OsString>,
}

static PROGRAM: RwLock<Option<Arc<Program>>> = RwLock::new(None);

/// Sets how decoders are started. Without this, frames of videos are not shown.
pub fn set_program(program: Program) {
    *PROGRAM.write() = Some(Arc::new(program));
}

/// Returns how decoders are started.
fn program() -> Option<Arc<Program>> {
    PROGRAM.read().clone()
}

/// Runs as a decoder's process until the owner ends it. The started program must call this with its last argument,
/// before it opens anything or starts a thread, and must exit with the code that is returned.
pub fn run(codec: Option<OsString>) -> ExitCode {
    #[cfg(feature = "video")]
    return child::run(&codec.unwrap_or_default());
    #[cfg(not(feature = "video"))]
    return if codec.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
}

/// Returns the name of a codec in the arguments of a decoder's process, if there is a decoder for it.
fn argument(codec: VideoCodec) -> Option<&'static str> {
    match codec {
        VideoCodec::Av1 => Some("av1"),
        VideoCodec::H264 => Some("h264"),
        VideoCodec::Other(_) => None,
    }
}

/// Returns whether a codec can be decoded here. May start a process, so ask `ReadContext::may_work` first.
///
/// # Errors
/// The reason, in words for users: they name the codec and what is missing.
pub fn check_codec(codec: VideoCodec) -> Result<(), Arc<str>> {
    try_codec(codec).unwrap_or_else(|error| Err(error.to_string().into()))
}

/// Does the same as [`check_codec`], with the reason as the inner `Err`.
///
/// # Errors
/// That what a process needs has run out for now.
fn try_codec(codec: VideoCodec) -> Result<Result<(), Arc<str>>, SourceError> {
    if cfg!(not(feature = "video")) {
        return Ok(Err(format!("{codec}: this build has no decoders of videos").into()));
    }
    if argument(codec).is_none() {
        return Ok(Err(format!("{codec}: there is no decoder for it").into()));
    }
    pool::check(codec)
}

/// Returns whether frames of a video can be decoded here. May start a process, so ask `ReadContext::may_work` first. The
/// inner `Err` is the reason, also for pixels other than 4:2:0 with 8 bits.
///
/// # Errors
/// That what a process needs has run out for now.
pub fn check(track: &Track) -> Result<Result<(), Arc<str>>, SourceError> {
    let codec = track.codec();
    if track.frame_size() > FRAME {
        let (width, height) = track.size();
        return Ok(Err(format!("{codec}: pictures of {width} × {height} are too large").into()));
    }
    if !has_common_pixels(codec, track.configuration()) {
        return Ok(Err(format!("{codec}: its pixels are not 4:2:0 with 8 bits").into()));
    }
    try_codec(codec)
}

/// Returns whether a configuration states 4:2:0 with 8 bits, or does not state the pixels.
fn has_common_pixels(codec: VideoCodec, configuration: &[u8]) -> bool {
    match (codec, configuration) {
        // High bit depth, twelve bits, monochrome, subsampling in both directions.
        (VideoCodec::Av1, [_, _, bits, ..]) => bits & 0b0111_1100 == 0b0000_1100,
        // Profiles from High on state the pixels after their parameter sets.
        (VideoCodec::H264, [_, profile @ (100.. | 44), rest @ ..]) => match (further(rest), profile) {
            (Some([chroma, luma_depth, chroma_depth]), _) => {
                (chroma & 3, luma_depth & 7, chroma_depth & 7) == (1, 0, 0)
            }
            (None, profile) => *profile == 100,
        },
        _ => true,
    }
}

/// Returns the three bytes of `avcC` after the parameter sets. `rest` begins after the profile.
fn further(rest: &[u8]) -> Option<[u8; 3]> {
    let mut at = 3;
    for mask in [0x1F, 0xFF] {
        let count = rest.get(at)? & mask;
        at += 1;
        for _ in 0..count {
            let length = u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]);
            at += 2 + usize::from(length);
        }
    }
    rest.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_say_which_pixels_a_video_has() {
        let av1 = |bits| has_common_pixels(VideoCodec::Av1, &[0x81, 0, bits, 0]);
        assert!(av1(0x0C) && av1(0x0E) && av1(0x8C));
        // Ten bits, twelve bits, grey, 4:2:2, 4:4:4.
        assert!(!av1(0x4C) && !av1(0x6C) && !av1(0x1C) && !av1(0x08) && !av1(0x00));
        let h264 = |profile, rest: &[u8]| {
            let front = [1, profile, 0, 30, 0xFF, 0xE1, 0, 2, 9, 9, 1, 0, 1, 8];
            has_common_pixels(VideoCodec::H264, &[&front[..], rest].concat())
        };
        assert!(h264(66, &[]) && h264(77, &[]) && h264(100, &[]) && h264(100, &[0xFD, 0xF8, 0xF8, 0]));
        assert!(!h264(110, &[]) && !h264(110, &[0xFD, 0xFA, 0xFA, 0]) && !h264(122, &[0xFE, 0xF8, 0xF8, 0]));
        assert!(has_common_pixels(VideoCodec::H264, &[]));
    }
}
