//! Frames of videos as pixels (`docs/formats/lerobot.md` 8).
//!
//! A frame is a block of the cache. A group of pictures is decoded once for all readers.

use std::{ops::Range, sync::Arc};

use super::{Data, Fault, ReadContext, Rendered};
use crate::{cache::Buffer, format::mp4::Track, source::Source, video};

/// One video of a container.
pub struct Footage {
    track: Arc<Track>,
    source: Arc<dyn Source>,
    number: u64,
}

impl std::fmt::Debug for Footage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Footage").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Footage {
    /// Returns the video in a file, whose index was read from it. `number` stands for this file in the container: no
    /// other video and no chunked array of the container has it.
    pub fn new(track: Arc<Track>, source: Arc<dyn Source>, number: u64) -> Arc<Self> {
        Arc::new(Self { track, source, number })
    }

    /// Returns the video's index.
    pub fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// Returns the pixels of a frame: rows from the top, of [`Track::size`], red, green and blue of 8 bits. Decodes them
    /// if the cache does not have them.
    ///
    /// # Errors
    /// [`Fault`] if the frame cannot be decoded; `WouldBlock` if that would have to be waited for.
    pub fn pixels(&self, reader: &ReadContext, frame: u64) -> Result<Arc<Buffer>, Fault> {
        let number = self.track.sample_of(frame).ok_or_else(|| Fault::refused("the video has no such frame"))?;
        let stored = self.track.sample(number).map(|sample| sample.stored()).unwrap_or_default();
        if stored.end > self.source.len() {
            return Err(Fault::refused(&format!("frame {frame} lies outside the file")));
        }
        reader.may_work()?;
        video::check(&self.track).map_err(|reason| Fault::refused(&reason))?;
        Err(Fault::refused("no decoder"))
    }

    /// Copies a part of a frame's pixels to `out`, whose length is that of the part. The part ends inside the frame.
    ///
    /// # Errors
    /// As [`Self::pixels`].
    pub fn fill(&self, reader: &ReadContext, frame: u64, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let pixels = self.pixels(reader, frame)?;
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
