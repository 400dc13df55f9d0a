//! Frames of videos as pixels (`docs/formats/lerobot.md` 8).
//!
//! A frame is a block of the cache. A group of pictures is decoded once for all readers.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{Fault, ReadContext};
use crate::{
    cache::Buffer,
    format::mp4::Track,
    source::Source,
    video::{self, Wanted},
};

/// Frames that are decoded ahead for a reader that goes through a video.
const LOOK_AHEAD: u64 = 8;

/// One video of a container.
pub struct Footage {
    track: Arc<Track>,
    source: Arc<dyn Source>,
    number: u64,
    /// The most recently read frame.
    last: AtomicU64,
}

impl std::fmt::Debug for Footage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Footage").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Footage {
    /// Returns the video in a file with this index. `number` identifies the file in the container: no other video and
    /// no chunked array of the container may have it.
    pub fn new(track: Arc<Track>, source: Arc<dyn Source>, number: u64) -> Arc<Self> {
        Arc::new(Self { track, source, number, last: AtomicU64::new(u64::MAX) })
    }

    /// Returns the video's index.
    pub fn track(&self) -> &Arc<Track> {
        &self.track
    }

    fn wanted(&self, reader: &ReadContext, frame: u64) -> Wanted {
        let before = self.last.load(Relaxed);
        Wanted {
            track: self.track.clone(),
            source: self.source.clone(),
            cache: reader.cache.clone(),
            container: reader.container,
            video: self.number,
            frame,
            is_next: before.checked_add(1) == Some(frame),
        }
    }

    /// Returns the pixels of a frame if the cache has them. For a reader that goes through the video, the next ones are
    /// decoded ahead.
    fn cached(&self, reader: &ReadContext, mut wanted: Wanted) -> Option<Arc<Buffer>> {
        let frame = wanted.frame;
        let pixels = reader.cache.get(wanted.key(frame))?.ok()?.into_iter().next()?;
        self.last.store(frame, Relaxed);
        if wanted.is_next && frame.is_multiple_of(LOOK_AHEAD / 2) {
            let next = (frame + 1..=frame + LOOK_AHEAD).find(|&next| !reader.cache.is_decoded(wanted.key(next)));
            if let Some(next) = next.filter(|&next| next < self.track.frames()) {
                wanted.frame = next;
                video::decode_ahead(&wanted);
            }
        }
        Some(pixels)
    }

    /// Copies a part of a frame's pixels to `out`, which has the part's length: rows from the top, of [`Track::size`], red,
    /// green and blue of 8 bits. The part must end inside the frame. Decodes the frame if neither the cache nor the disk
    /// tier has it.
    ///
    /// # Errors
    /// [`Fault`] if the frame cannot be decoded; `WouldBlock` if the caller would have to wait for it.
    pub fn fill(&self, reader: &ReadContext, frame: u64, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let wanted = self.wanted(reader, frame);
        let pixels = match self.cached(reader, wanted.clone()) {
            Some(pixels) => pixels,
            None => {
                reader.may_work()?;
                self.last.store(frame, Relaxed);
                if self.track.frame_size() > video::FRAME {
                    return Err(Fault::refused("the pictures are too large"));
                }
                if wanted.read_spilled(part.start, out) {
                    return Ok(());
                }
                video::decode(&wanted).map_err(|error| {
                    let sample = self.track.sample_of(frame).and_then(|number| self.track.sample(number));
                    Fault { block: None, offset: sample.map_or(0, |sample| sample.offset), error }
                })?
            }
        };
        let range = usize::try_from(part.start).ok().zip(usize::try_from(part.end).ok());
        let found = range.and_then(|(start, end)| pixels.get(start..end)).filter(|found| found.len() == out.len());
        out.copy_from_slice(found.ok_or_else(|| Fault::refused("a frame of another size"))?);
        Ok(())
    }
}
