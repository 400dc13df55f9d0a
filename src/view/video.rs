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

use super::{Data, Fault, ReadContext, Rendered};
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

    /// Returns the pixels of a frame: rows from the top, of [`Track::size`], red, green and blue of 8 bits. Decodes the
    /// frame if the cache does not have it.
    ///
    /// # Errors
    /// [`Fault`] if the frame cannot be decoded; `WouldBlock` if the caller would have to wait for it.
    pub fn pixels(&self, reader: &ReadContext, frame: u64) -> Result<Arc<Buffer>, Fault> {
        let wanted = self.wanted(reader, frame);
        if let Some(pixels) = self.cached(reader, wanted.clone()) {
            return Ok(pixels);
        }
        self.begin(reader, frame)?;
        self.decoded(&wanted)
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

    /// Begins to work for a frame that the cache does not have.
    fn begin(&self, reader: &ReadContext, frame: u64) -> Result<(), Fault> {
        reader.may_work()?;
        self.last.store(frame, Relaxed);
        match self.track.frame_size() > video::FRAME {
            true => Err(Fault::refused("the pictures are too large")),
            false => Ok(()),
        }
    }

    fn decoded(&self, wanted: &Wanted) -> Result<Arc<Buffer>, Fault> {
        video::decode(wanted).map_err(|error| {
            let sample = self.track.sample_of(wanted.frame).and_then(|number| self.track.sample(number));
            Fault { block: None, offset: sample.map_or(0, |sample| sample.offset), error }
        })
    }

    /// Copies a part of a frame's pixels to `out`, which has the part's length. The part must end inside the frame. A
    /// frame in the disk tier is not decoded.
    ///
    /// # Errors
    /// As [`Self::pixels`].
    pub fn fill(&self, reader: &ReadContext, frame: u64, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let wanted = self.wanted(reader, frame);
        let pixels = match self.cached(reader, wanted.clone()) {
            Some(pixels) => pixels,
            None => {
                self.begin(reader, frame)?;
                if wanted.read_spilled(part.start, out) {
                    return Ok(());
                }
                self.decoded(&wanted)?
            }
        };
        let range = usize::try_from(part.start).ok().zip(usize::try_from(part.end).ok());
        let found = range.and_then(|(start, end)| pixels.get(start..end)).filter(|found| found.len() == out.len());
        out.copy_from_slice(found.ok_or_else(|| Fault::refused("a frame of another size"))?);
        Ok(())
    }

    /// Returns the pixels of a frame as the data of a picture ([`super::png::Png`]) or an array.
    pub fn frame(self: &Arc<Self>, frame: u64) -> Data {
        Data::Rendered(Arc::new(Frame { footage: self.clone(), frame }))
    }
}

/// The pixels of one frame.
#[derive(Debug)]
struct Frame {
    footage: Arc<Footage>,
    frame: u64,
}

impl Rendered for Frame {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.footage.fill(reader, self.frame, part, out)
    }
}
