//! The image section of one episode: a walk over its record heads (`docs/formats/kdb.md` 6 to 9).

use std::{collections::HashMap, ops::Range};

use crate::{
    format::{
        Fields,
        picture::{JPEG, PNG, Size, jpeg_size, png_size},
    },
    limits,
    source::{Memory, Source, SourceError, to_usize},
    wanted,
};

/// What the bytes of a picture really are (`docs/formats/kdb.md` 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Pixels, in the size that the record gives.
    Raw,
    /// A JPEG file.
    Jpeg,
    /// A PNG file.
    Png,
    /// Something else.
    Opaque,
}

/// One picture. Width, height and channels of an encoded picture are its own; all are zero if they cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// The frame that it belongs to.
    pub frame: u32,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Channels of one byte each. 0 if an encoded picture has none that a stack of bytes could hold.
    pub channels: u8,
    /// What the bytes are.
    pub kind: Kind,
}

/// One camera of an episode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Camera {
    /// Its name: any bytes.
    pub name: Vec<u8>,
    /// Its pictures, as a range of [`Images::records`].
    pub records: Range<u32>,
    /// Height, width and channels, if every frame has a picture of this camera and all (the first of each frame) agree.
    pub stack: Option<(u32, u32, u8)>,
}

/// All pictures of one episode.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// The cameras, in the order in which they first appear.
    pub cameras: Vec<Camera>,
    /// The pictures of each camera together, in order of their frames. Records without bytes are left out.
    pub records: Vec<Record>,
    /// Where and why the remaining frames are unreadable, if they are.
    pub damage: Option<(u64, String)>,
    /// Bytes after the last frame.
    pub surplus: u64,
    /// Whether the section has the layout of before 2026-03-30, without a format byte (`docs/formats/kdb.md` 8).
    pub is_old: bool,
}

/// Number of records for which room is made first.
const FIRST_RECORDS: usize = 256;

/// Bytes of memory that a camera takes in addition to its name, which is kept twice.
const CAMERA: u64 = 256;

/// State of the walk, with the camera of each record.
#[derive(Default)]
struct Walk {
    names: Vec<Vec<u8>>,
    by_name: HashMap<Vec<u8>, u32>,
    name_bytes: usize,
    records: Vec<(u32, Record)>,
    surplus: u64,
    damage: Option<(u64, String)>,
    /// Whether the length of each record is that of raw pixels, as the old layout requires.
    all_raw: bool,
}

impl Images {
    /// Walks a section of the file by the current grammar, and if that does not fit, by the old one.
    pub(super) fn read(
        source: &dyn Source,
        section: Range<u64>,
        frames: u32,
        memory: &dyn Memory,
    ) -> Result<Self, SourceError> {
        let walk = walk(source, section.clone(), frames, false, memory)?;
        if walk.damage.is_some() || walk.surplus > 0 {
            let old = self::walk(source, section, frames, true, memory)?;
            if old.damage.is_none() && old.surplus == 0 && old.all_raw && !old.records.is_empty() {
                return old.finish(frames, true, memory);
            }
        }
        walk.finish(frames, false, memory)
    }

    /// Returns the bytes of memory that they take, about.
    pub fn memory_usage(&self) -> usize {
        let names: usize = self.cameras.iter().map(|camera| size_of_val(camera) + camera.name.len()).sum();
        size_of_val(&*self.records) + names
    }

    /// Returns the pictures of a camera, in order of their frames.
    pub fn records_of(&self, camera: &Camera) -> &[Record] {
        self.records.get(camera.records.start as usize..camera.records.end as usize).unwrap_or(&[])
    }
}

impl Walk {
    /// Orders the pictures by camera, and decides for each camera whether it has a stack.
    fn finish(mut self, frames: u32, is_old: bool, memory: &dyn Memory) -> Result<Images, SourceError> {
        // Memory for sorting and for the result.
        memory.reserve(2 * size_of_val(&*self.records) as u64)?;
        // Stable, so frames stay in order, and so do the pictures of one frame.
        self.records.sort_by_key(|(camera, _)| *camera);
        let mut cameras = Vec::with_capacity(self.names.len());
        let (mut start, mut rest) = (0, &*self.records);
        for (number, name) in self.names.into_iter().enumerate() {
            let here;
            (here, rest) = rest.split_at(rest.partition_point(|(camera, _)| *camera as usize == number));
            #[expect(clippy::cast_possible_truncation, reason = "`KDB_RECORDS` bounds them")]
            let range = start..start + here.len() as u32;
            start = range.end;
            // Cameras without pictures are dropped: they had only records without bytes, or appear only after the
            // damage.
            if !here.is_empty() {
                let stack = if self.damage.is_none() { stack(here, frames) } else { None };
                cameras.push(Camera { name, records: range, stack });
            }
        }
        let records = self.records.into_iter().map(|(_, record)| record).collect();
        Ok(Images { cameras, records, damage: self.damage, surplus: self.surplus, is_old })
    }

    fn camera(&mut self, name: &[u8], memory: &dyn Memory) -> Result<Option<u32>, SourceError> {
        if let Some(&number) = self.by_name.get(name) {
            return Ok(Some(number));
        }
        self.name_bytes += name.len();
        if self.names.len() >= limits::KDB_CAMERAS || self.name_bytes > limits::KDB_CAMERA_NAMES {
            return Ok(None);
        }
        memory.reserve(CAMERA + 2 * name.len() as u64)?;
        #[expect(clippy::cast_possible_truncation, reason = "`KDB_CAMERAS` bounds them")]
        let number = self.names.len() as u32;
        self.names.push(name.to_vec());
        self.by_name.insert(name.to_vec(), number);
        Ok(Some(number))
    }

    /// Adds a record. Reserves memory before it doubles the list.
    fn push(&mut self, camera: u32, record: Record, memory: &dyn Memory) -> Result<(), SourceError> {
        if self.records.len() == self.records.capacity() {
            let more = self.records.len().max(FIRST_RECORDS);
            memory.reserve((size_of::<(u32, Record)>() * (self.records.len() + more)) as u64)?;
            self.records.reserve_exact(more);
        }
        self.records.push((camera, record));
        Ok(())
    }
}

/// Returns the shape that all frames share, if they do.
fn stack(records: &[(u32, Record)], frames: u32) -> Option<(u32, u32, u8)> {
    let shape = |record: &Record| (record.height, record.width, record.channels);
    let first = shape(&records.first()?.1);
    let size = u64::from(first.0).checked_mul(first.1.into())?.checked_mul(first.2.into())?;
    let (mut expected, mut previous) = (0u64, None);
    for (_, record) in records {
        if previous == Some(record.frame) {
            continue;
        }
        if u64::from(record.frame) != expected || shape(record) != first || record.kind == Kind::Opaque {
            return None;
        }
        if record.kind != Kind::Raw && size > limits::PICTURE {
            return None;
        }
        previous = Some(record.frame);
        expected += 1;
    }
    let total = size.checked_mul(frames.into())?;
    (expected == u64::from(frames) && size > 0 && total < 1 << 62).then_some(first)
}

/// Walks all record heads once. Limits bound the memory, and the section's length bounds the time.
fn walk(
    source: &dyn Source,
    section: Range<u64>,
    frames: u32,
    old: bool,
    memory: &dyn Memory,
) -> Result<Walk, SourceError> {
    let mut walk = Walk { all_raw: true, ..Walk::default() };
    let mut window = Window { source, end: section.end, start: 0, bytes: Vec::new() };
    let mut at = section.start;
    for frame in 0..frames {
        let complete = walk.records.len();
        match walk_frame(&mut walk, &mut window, at, (frame, old), memory)? {
            Ok(next) => at = next,
            Err((place, reason)) => {
                walk.records.truncate(complete);
                walk.damage = Some((place, format!("frame {frame}: {reason}")));
                return Ok(walk);
            }
        }
    }
    walk.surplus = section.end - at;
    Ok(walk)
}

/// Where in the file a frame becomes unreadable, and why.
type Broken = (u64, &'static str);

/// Walks one frame that begins at `at`. Returns the offset after it.
fn walk_frame(
    walk: &mut Walk,
    window: &mut Window<'_>,
    mut at: u64,
    (frame, old): (u32, bool),
    memory: &dyn Memory,
) -> Result<Result<u64, Broken>, SourceError> {
    let Some(count) = window.get(at, 2)?.and_then(|bytes| bytes.u16(0)) else {
        return Ok(Err((at, "the section ends before its count of pictures")));
    };
    at += 2;
    for _ in 0..count {
        let Some(name_length) = window.get(at, 2)?.and_then(|bytes| bytes.u16(0)) else {
            return Ok(Err((at, "the section ends before a camera's name")));
        };
        let name_end = 2 + usize::from(name_length);
        let head_end = name_end + if old { 13 } else { 14 };
        let Some(head) = window.get(at, head_end)? else {
            return Ok(Err((at, "the section ends inside the head of a picture")));
        };
        let Some(camera) = walk.camera(head.get(2..name_end).unwrap_or_default(), memory)? else {
            return Ok(Err((at, "more cameras, or longer names of cameras, than shardfs takes")));
        };
        let number = |at: usize| head.u32(name_end + at).unwrap_or(0);
        let byte = |at: usize| head.get(name_end + at).copied().unwrap_or(0);
        let (width, height, channels) = (number(0), number(4), byte(8));
        let format = if old { 0 } else { byte(9) };
        let length = number(if old { 9 } else { 10 });
        let offset = at + head_end as u64;
        if window.end - offset < u64::from(length) {
            return Ok(Err((at, "a picture is longer than the section")));
        }
        at = offset + u64::from(length);
        let record = Record { offset, length, frame, width, height, channels, kind: Kind::Raw };
        if old {
            walk.all_raw &= pixels(width, height, channels) == u128::from(length);
        }
        if length == 0 {
            continue;
        }
        if walk.records.len() >= limits::KDB_RECORDS {
            return Ok(Err((offset, "more pictures in one episode than shardfs takes")));
        }
        let record = if old { record } else { classify(window, record, format)? };
        walk.push(camera, record, memory)?;
    }
    Ok(Ok(at))
}

/// Width x height x channels: at most 2^72.
fn pixels(width: u32, height: u32, channels: u8) -> u128 {
    u128::from(width) * u128::from(height) * u128::from(channels)
}

/// Decides by flag, length and first bytes what a picture is (the table of `docs/formats/kdb.md` 7), and reads its
/// size.
fn classify(window: &mut Window<'_>, record: Record, format: u8) -> Result<Record, SourceError> {
    let Record { offset, length, width, height, channels, .. } = record;
    let fits = |channels| pixels(width, height, channels) == u128::from(length);
    if format == 0 && fits(channels) {
        return Ok(record);
    }
    let front = window.get(offset, length.min(26) as usize)?.unwrap_or(&[]);
    let encoded = if front.starts_with(&JPEG) {
        Some((Kind::Jpeg, None))
    } else if front.starts_with(&PNG) {
        Some((Kind::Png, png_size(front)))
    } else {
        None
    };
    let Some((kind, mut size)) = encoded else {
        return Ok(match format {
            0 if fits(3) => Record { channels: 3, ..record },
            1.. if fits(channels) => record,
            _ => Record { kind: Kind::Opaque, ..record },
        });
    };
    if kind == Kind::Jpeg {
        size = jpeg_size(|at| {
            if at + 10 > u64::from(length) {
                return Ok(None);
            }
            Ok(window.get(offset + at, 10)?.and_then(|bytes| bytes.array(0)))
        })?;
    }
    match size {
        Some(Size { width, height, channels }) => Ok(Record { kind, width, height, channels, ..record }),
        None if fits(channels) => Ok(record),
        None => Ok(Record { kind, width: 0, height: 0, channels: 0, ..record }),
    }
}

/// Bytes that are read at once around record heads: enough for several small pictures, and little waste for large ones.
const WINDOW: usize = 2048;

/// The section, read window by window.
struct Window<'a> {
    source: &'a dyn Source,
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns `length` bytes at `at` (at most the longest head); `None` if the section ends before.
    fn get(&mut self, at: u64, length: usize) -> Result<Option<&[u8]>, SourceError> {
        let left = self.end.saturating_sub(at);
        if (length as u64) > left {
            return Ok(None);
        }
        let held = self.start..self.start + self.bytes.len() as u64;
        if at < held.start || at + length as u64 > held.end {
            let wanted = to_usize(left.min(length.max(WINDOW) as u64));
            self.bytes.resize(wanted, 0);
            // The window's old contents are lost even if this fails.
            self.start = u64::MAX - self.bytes.len() as u64;
            wanted::check()?;
            self.source.fill(at, &mut self.bytes)?;
            self.start = at;
        }
        let from = to_usize(at - self.start);
        Ok(self.bytes.get(from..from + length))
    }
}
