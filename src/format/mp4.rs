//! The index of the video in an MP4 file: which bytes hold each frame, when it is shown, and where decoding can begin
//! (`docs/formats/lerobot.md` 7).
//!
//! Only the first video track is read. Nothing is decoded, and no sample is read.

mod boxes;
mod key;
mod samples;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::PartError;
use crate::source::{Memory, Source};
use boxes::Boxes;
pub use key::Key;
use samples::Tables;

/// Largest `moov` box in bytes. An hour of video takes about 1 MiB.
const MOOV: u64 = 256 << 20;
/// Most boxes at the top of a file.
const TOP_BOXES: usize = 4096;
/// Most samples of a track: a day at 100 frames a second. 32 bytes of memory each.
const SAMPLES: u64 = 10_000_000;
/// Largest `avcC` or `av1C` box in bytes.
const CONFIGURATION: usize = 64 << 10;

/// The coding of a video, by its sample entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoCodec {
    /// AV1 (`av01`).
    Av1,
    /// H.264 (`avc1`, `avc3`).
    H264,
    /// Another codec, by its four letters.
    Other([u8; 4]),
}

impl std::fmt::Display for VideoCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Av1 => f.write_str("AV1"),
            Self::H264 => f.write_str("H.264"),
            Self::Other([b'h', b'v', b'c', b'1'] | [b'h', b'e', b'v', b'1']) => f.write_str("HEVC"),
            Self::Other([b'v', b'p', b'0', b'9']) => f.write_str("VP9"),
            Self::Other(letters) => write!(f, "{}", letters.escape_ascii()),
        }
    }
}

/// The first video track of a file.
#[derive(Debug)]
pub struct Track {
    codec: VideoCodec,
    width: u32,
    height: u32,
    configuration: Box<[u8]>,
    /// Units of time in a second.
    scale: u32,
    /// Seconds by which frames are shown later than their time, because the edit list begins with empty edits.
    delay: f64,
    /// Samples in the order in which they are stored and decoded.
    samples: Vec<Sample>,
    /// Numbers of the samples that are shown, in the order of their times.
    shown: Vec<u32>,
    /// Numbers of the samples at which decoding can begin, rising.
    keys: Vec<u32>,
}

/// One encoded picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// First byte in the file. The sample may lie outside of it.
    pub offset: u64,
    /// Bytes stored.
    pub size: u32,
    /// When it is shown, in the track's units, after the edit list.
    time: i64,
}

impl Sample {
    /// Returns the stored bytes in the file. The end does not overflow.
    pub fn stored(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.size.into())
    }
}

/// The frame that is nearest to a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nearest {
    /// Its number.
    pub frame: u64,
    /// How far its time is from the wanted one, in seconds; never negative.
    pub distance: f64,
}

impl Track {
    /// Reads the index of a file. Reads little more than the `moov` box, wherever it is.
    ///
    /// # Errors
    /// `Damaged` with the reason if the index is unusable; `Source` if bytes cannot be read or there is not enough
    /// memory.
    pub fn read(source: &dyn Source, memory: &dyn Memory) -> Result<Self, PartError> {
        let moov = find_moov(source)?;
        memory.reserve(moov.end - moov.start)?;
        let bytes = source.read(moov.clone())?;
        parse(&Boxes::new(&bytes, moov.start), memory)
    }

    /// Returns how it is encoded.
    pub fn codec(&self) -> VideoCodec {
        self.codec
    }

    /// Returns width and height of its pictures, which are never 0.
    pub fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Returns the bytes of a picture's pixels: three channels of 8 bits.
    pub fn frame_size(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * 3
    }

    /// Returns the contents of `av1C` or `avcC`; empty for other codecs.
    pub fn configuration(&self) -> &[u8] {
        &self.configuration
    }

    /// Returns the kind of the key picture that a sample holds.
    pub fn key_of(&self, sample: &[u8]) -> Key {
        // The length of the lengths is in the configuration (ISO/IEC 14496-15, 5.3.3.1).
        match self.codec {
            VideoCodec::H264 => {
                Key::of_h264(sample, self.configuration.get(4).map_or(4, |byte| usize::from(byte & 3) + 1))
            }
            _ => Key::Idr,
        }
    }

    /// Returns the number of frames that are shown.
    pub fn frames(&self) -> u64 {
        self.shown.len() as u64
    }

    /// Returns when a frame is shown, in seconds; `None` if there is no such frame.
    pub fn seconds(&self, frame: u64) -> Option<f64> {
        let sample = self.samples.get(self.sample_of(frame)? as usize)?;
        Some(sample.time as f64 / f64::from(self.scale) + self.delay)
    }

    /// Returns the frame whose time is nearest, the earlier of two equally near; `None` if the video has no frames.
    pub fn nearest(&self, seconds: f64) -> Option<Nearest> {
        let after = self.shown.partition_point(|&sample| {
            let time = self.samples.get(sample as usize).map_or(0, |sample| sample.time);
            time as f64 / f64::from(self.scale) + self.delay < seconds
        }) as u64;
        let near = |frame: u64| {
            let distance = (self.seconds(frame)? - seconds).abs();
            Some(Nearest { frame, distance })
        };
        let (before, after) = (after.checked_sub(1).and_then(near), near(after));
        match (before, after) {
            (Some(before), Some(after)) if after.distance < before.distance => Some(self.first_of(after)),
            (Some(before), _) => Some(self.first_of(before)),
            (None, after) => after,
        }
    }

    /// Returns the first of several frames with the same time.
    fn first_of(&self, nearest: Nearest) -> Nearest {
        let Nearest { mut frame, distance } = nearest;
        let time = self.seconds(frame);
        while let Some(before) = frame.checked_sub(1).filter(|&before| self.seconds(before) == time) {
            frame = before;
        }
        Nearest { frame, distance }
    }

    /// Returns the sample of a frame.
    pub fn sample_of(&self, frame: u64) -> Option<u32> {
        self.shown.get(usize::try_from(frame).ok()?).copied()
    }

    /// Returns the frame of a sample; `None` if it is not shown.
    pub fn frame_of(&self, sample: u32) -> Option<u64> {
        let place = |sample: u32| self.samples.get(sample as usize).map(|found| (found.time, sample));
        let wanted = place(sample)?;
        self.shown.binary_search_by_key(&Some(wanted), |&sample| place(sample)).ok().map(|frame| frame as u64)
    }

    /// Returns a sample by its number.
    pub fn sample(&self, number: u32) -> Option<Sample> {
        self.samples.get(number as usize).copied()
    }

    /// Returns the samples that must be decoded for a frame: from its key frame up to the sample before the next key
    /// frame. A frame that is decoded after a key frame but shown before it needs the previous key frame.
    pub fn group(&self, frame: u64) -> Option<Range<u32>> {
        let sample = self.sample_of(frame)?;
        let at = self.keys.partition_point(|&key| key <= sample);
        #[expect(clippy::cast_possible_truncation, reason = "`SAMPLES` bounds them")]
        let end = self.keys.get(at).copied().unwrap_or(self.samples.len() as u32);
        let key = *self.keys.get(at.checked_sub(1)?)?;
        let before =
            at.checked_sub(2).filter(|_| self.is_leading(sample, key)).and_then(|before| self.keys.get(before));
        Some(before.copied().unwrap_or(key)..end)
    }

    /// Returns whether a sample is shown before a key frame that is decoded before it. It may refer to frames before that
    /// key frame.
    pub fn is_leading(&self, sample: u32, key: u32) -> bool {
        let time = |sample| self.sample(sample).map(|found| found.time);
        key < sample && time(sample) < time(key)
    }

    /// Returns the last key frame at or before a sample.
    pub fn key_before(&self, sample: u32) -> Option<u32> {
        let after = self.keys.partition_point(|&key| key <= sample);
        self.keys.get(after.checked_sub(1)?).copied()
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + self.configuration.len()
            + self.samples.capacity() * size_of::<Sample>()
            + (self.shown.capacity() + self.keys.capacity()) * size_of::<u32>()
    }
}

/// Returns the content of the `moov` box, which is at the front or at the end.
fn find_moov(source: &dyn Source) -> Result<Range<u64>, PartError> {
    let (mut at, length) = (0, source.len());
    let mut moov = None;
    for number in 0..TOP_BOXES {
        if at == length {
            break;
        }
        let header = source.read(at..length.min(at.saturating_add(16)))?;
        let Some(found) = boxes::header(&header, length - at) else {
            return PartError::damaged(format!("the box at {at} is cut off"));
        };
        let (content, end) = (at + found.head, at + found.size);
        match &found.kind {
            kind if number == 0 && kind != b"ftyp" => return PartError::damaged("does not begin with a box ftyp"),
            b"moov" if moov.is_some() => return PartError::damaged(format!("a second box moov at {at}")),
            b"moov" if end - content > MOOV => {
                return PartError::damaged(format!("the box moov at {at} has more than {MOOV} bytes"));
            }
            b"moov" => moov = Some(content..end),
            b"moof" => return PartError::damaged(format!("fragmented: a box moof at {at}")),
            _ => {}
        }
        at = end;
    }
    match moov {
        Some(moov) if at == length => Ok(moov),
        Some(_) => PartError::damaged(format!("more than {TOP_BOXES} boxes")),
        None => PartError::damaged("no box moov"),
    }
}

/// Interprets the content of `moov`.
fn parse(moov: &Boxes<'_>, memory: &dyn Memory) -> Result<Track, PartError> {
    let movie_scale = moov.find(b"mvhd")?.map(|header| header.time_scale()).transpose()?;
    for track in moov.all(b"trak")? {
        let media = track.need(b"mdia")?;
        if media.need(b"hdlr")?.bytes(8)? != *b"vide" {
            continue;
        }
        if moov.find(b"mvex")?.is_some() {
            return PartError::damaged("fragmented: a box mvex");
        }
        let scale = media.need(b"mdhd")?.time_scale()?;
        let table = media.need(b"minf")?.need(b"stbl")?;
        let entry = table.need(b"stsd")?.first_entry()?;
        let (codec, configured) = match &entry.kind {
            b"av01" => (VideoCodec::Av1, Some(b"av1C")),
            b"avc1" | b"avc3" => (VideoCodec::H264, Some(b"avcC")),
            other => (VideoCodec::Other(*other), None),
        };
        let (width, height) = (entry.content.u16(24)?, entry.content.u16(26)?);
        if width == 0 || height == 0 {
            return PartError::damaged(format!("a picture of {width} × {height}"));
        }
        let configuration = match configured {
            Some(name) => entry.content.after(78)?.find(name)?.map_or(&[][..], |found| found.content()),
            None => &[],
        };
        if configuration.len() > CONFIGURATION {
            return PartError::damaged(format!("a configuration of {} bytes", configuration.len()));
        }
        let edit = match track.find(b"edts")? {
            Some(edits) => edits.find(b"elst")?.map(|list| list.edit()).transpose()?.flatten(),
            None => None,
        };
        let tables = Tables::new(&table)?;
        // For times and sizes of the samples, their order, and sorting them.
        memory.reserve(tables.count().saturating_mul(2 * size_of::<Sample>() as u64))?;
        let (mut samples, durations) = tables.samples()?;
        let (mut delay, mut range) = (0.0, i64::MIN..i64::MAX);
        if let Some(edit) = edit {
            let movie_scale = f64::from(movie_scale.ok_or_else(|| PartError::Damaged("no box mvhd".into()))?);
            delay = edit.empty as f64 / movie_scale;
            // In the track's units. Rounded, because writers store a length of whole frames rounded.
            let length = (edit.duration as f64 / movie_scale * f64::from(scale)).round();
            #[expect(clippy::cast_possible_truncation, reason = "it has no fraction, and the cast saturates")]
            let length = length.max(1.0) as i64;
            range = 0..if edit.duration == 0 { i64::MAX } else { length };
            samples.iter_mut().for_each(|sample| sample.time = sample.time.saturating_sub(edit.media_time));
        }
        let is_shown = |number: u32| {
            let time = samples.get(number as usize).map_or(0, |sample| sample.time);
            let length = durations.get(number as usize).map_or(0, |&length| i64::from(length));
            time.saturating_add(length.max(1)) > range.start && time < range.end
        };
        let mut shown: Vec<u32> = (0..).take(samples.len()).filter(|&number| is_shown(number)).collect();
        shown.sort_by_key(|&number| (samples.get(number as usize).map(|sample| sample.time), number));
        let keys = tables.keys()?;
        return Ok(Track {
            codec,
            width: width.into(),
            height: height.into(),
            configuration: configuration.into(),
            scale,
            delay,
            samples,
            shown,
            keys,
        });
    }
    PartError::damaged("no video track")
}
