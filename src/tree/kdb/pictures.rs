//! The pictures of one episode under their names (`docs/TREE.md`, section 4).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::tree::frames::{Frames, Stacked};
use crate::{
    cache::Reservation,
    codec::Codec,
    format::{
        Block, DType,
        kdb::{Camera, Images, Kind, Record},
    },
    source::Memory,
    tree::{memory::WorkingMemory, names},
    view::{Array, Data, Fault, View, png::Png},
};

/// Bytes of memory for the names of a camera's folder and stack, if they are long.
const NAMES: usize = 1536;

/// The pictures, with their names in `images/`.
#[derive(Debug)]
pub(super) struct Pictures {
    images: Images,
    frames: u32,
    /// Digits of a frame's number.
    digits: usize,
    /// Names in `images/`, sorted: each with its camera, and whether it is the camera's folder or its stack.
    names: Vec<(Box<str>, u32, bool)>,
}

impl Pictures {
    /// Keeps of the reserved memory only what the pictures take.
    pub(super) fn new(images: Images, frames: u32, memory: WorkingMemory<'_>) -> Result<(Self, Reservation), Fault> {
        let digits = frames.saturating_sub(1).to_string().len().max(3);
        let usage = (images.memory_usage() + images.cameras.len() * NAMES) as u64;
        memory.reserve(usage)?;
        let (mut names, mut free) = (Vec::new(), Free::default());
        for (number, camera) in (0..).zip(&images.cameras) {
            let folder = free.name(&|copy| names::folder(&camera.name, &names::RESERVED, copy));
            names.push((folder, number, true));
            if camera.stack.is_some() {
                names.push((free.name(&|copy| names::file(&camera.name, ".npy", copy)), number, false));
            }
        }
        names.sort_unstable();
        let room = memory.keep(usage)?;
        Ok((Self { images, frames, digits, names }, room))
    }

    /// Returns the pictures as the parser found them.
    pub(super) fn images(&self) -> &Images {
        &self.images
    }

    /// Returns the camera whose folder (`true`) or stack has this name.
    pub(super) fn find(&self, name: &str) -> Option<(u32, bool)> {
        let at = self.names.binary_search_by(|(known, ..)| (**known).cmp(name)).ok()?;
        self.names.get(at).map(|(_, camera, is_folder)| (*camera, *is_folder))
    }

    /// Returns the names in `images/` from a position on, each with the next position.
    pub(super) fn names_from(&self, from: u64) -> impl Iterator<Item = (u64, &str, u32, bool)> {
        let from = usize::try_from(from).map_or(self.names.len(), |from| from.min(self.names.len()));
        (from as u64 + 1..)
            .zip(&self.names[from..])
            .map(|(next, (name, camera, is_folder))| (next, &**name, *camera, *is_folder))
    }

    fn camera(&self, camera: u32) -> Option<&Camera> {
        self.images.cameras.get(camera as usize)
    }

    fn records(&self, camera: u32) -> &[Record] {
        self.camera(camera).map_or(&[], |camera| self.images.records_of(camera))
    }

    /// Returns the camera of a picture.
    pub(super) fn camera_of(&self, record: u32) -> Option<u32> {
        let camera = self.images.cameras.partition_point(|camera| camera.records.end <= record);
        (camera < self.images.cameras.len()).then_some(camera as u32)
    }

    /// Returns the name of a camera's folder or stack.
    pub(super) fn name(&self, camera: u32, is_folder: bool) -> &str {
        let found = self.names.iter().find(|(_, number, folder)| (*number, *folder) == (camera, is_folder));
        found.map_or("", |(name, ..)| name)
    }

    /// Returns the pictures of a camera from a position on: the next position, the name, the number.
    pub(super) fn pictures_from(&self, camera: u32, from: u64) -> impl Iterator<Item = (u64, String, u32)> {
        let range = self.camera(camera).map_or(0..0, |camera| camera.records.clone());
        let start = range.start;
        let from = u32::try_from(from).map_or(range.end, |from| start.saturating_add(from).min(range.end));
        (from..range.end).map(move |record| (u64::from(record - start) + 1, self.picture_name(record), record))
    }

    /// Returns the picture of a camera with this name.
    pub(super) fn find_picture(&self, camera: u32, name: &str) -> Option<u32> {
        let frame: u32 = name.split(['.', '%']).next()?.parse().ok()?;
        let records = self.records(camera);
        let first = records.partition_point(|record| record.frame < frame);
        let same = records[first..].iter().take_while(|record| record.frame == frame).count();
        // The name has the number of a second picture, so it is not compared with every picture of the frame.
        let number = name.split_once("%_").and_then(|(_, rest)| rest.split('.').next()?.parse().ok()).unwrap_or(1usize);
        let at = number.checked_sub(1).filter(|&at| at < same)?;
        let record = self.camera(camera)?.records.start + (first + at) as u32;
        (self.picture_name(record) == name).then_some(record)
    }

    /// Returns the name of a picture: its frame, the number of a second picture of that frame, and the suffix for its
    /// bytes.
    pub(super) fn picture_name(&self, number: u32) -> String {
        let Some(camera) = self.camera_of(number) else { return String::new() };
        let Some(record) = self.images.records.get(number as usize) else { return String::new() };
        let start = self.camera(camera).map_or(0, |camera| camera.records.start);
        let first = start + self.records(camera).partition_point(|other| other.frame < record.frame) as u32;
        let suffix = match record.kind {
            Kind::Jpeg => ".jpg",
            Kind::Png => ".png",
            Kind::Opaque => ".bin",
            Kind::Raw if png(record).is_some() => ".png",
            Kind::Raw => ".npy",
        };
        names::file(format!("{:0digits$}", record.frame, digits = self.digits).as_bytes(), suffix, number - first + 1)
    }

    /// Returns the bytes of a picture: as stored if it is encoded, otherwise a PNG or array around its pixels.
    pub(super) fn picture(&self, number: u32) -> View {
        let Some(record) = self.images.records.get(number as usize) else { return View::default() };
        if record.kind != Kind::Raw {
            return View::stored(stored(record));
        }
        if let Some(png) = png(record) {
            return png.view();
        }
        self.array(number).map_or_else(View::default, Array::npy)
    }

    /// Returns the raw pixels of a picture that PNG cannot represent.
    pub(super) fn array(&self, number: u32) -> Option<Array> {
        let record = self.images.records.get(number as usize)?;
        if record.kind != Kind::Raw || png(record).is_some() {
            return None;
        }
        let shape = [record.height.into(), record.width.into(), record.channels.into()];
        Some(Array::new(DType::U8, shape, View::stored(stored(record))))
    }

    /// Returns all frames of a camera as one array.
    pub(super) fn stack(self: &Arc<Self>, camera: u32) -> Option<Array> {
        let (height, width, channels) = self.camera(camera)?.stack?;
        let shape = [self.frames.into(), height.into(), width.into(), channels.into()];
        let stack = Stack { pictures: self.clone(), camera, frame_size: shape[1..].iter().product() };
        // The whole size was checked to be below 2^62 when the stack was accepted.
        Some(Array::new(DType::U8, shape, View::default().with_rendered(shape.iter().product(), Stacked(stack))))
    }
}

/// Finds free names. Stored names differ, but two long ones can be made to end in the same hash; the second one is then
/// numbered.
#[derive(Default)]
struct Free {
    taken: HashSet<Box<str>>,
    /// The number to try next, by the common part of names that can collide.
    next: HashMap<String, u32>,
}

impl Free {
    /// Returns a free name. `name` returns the name with a number from 2 on; for 1 the plain name.
    fn name(&mut self, name: &dyn Fn(u32) -> String) -> Box<str> {
        let mut free: Box<str> = name(1).into();
        if self.taken.contains(&free) {
            let next = self.next.entry(name(u32::MAX)).or_insert(2);
            while self.taken.contains(&free) {
                free = name(*next).into();
                *next += 1;
            }
        }
        self.taken.insert(free.clone());
        free
    }
}

/// The frames of one camera.
#[derive(Debug)]
struct Stack {
    pictures: Arc<Pictures>,
    camera: u32,
    frame_size: u64,
}

impl Frames for Stack {
    fn frame_size(&self) -> u64 {
        self.frame_size
    }

    fn frame(&self, number: u64) -> Option<Block> {
        let records = self.pictures.records(self.camera);
        let record = records.get(records.partition_point(|record| u64::from(record.frame) < number))?;
        let Record { offset, length, width, height, channels, .. } = *record;
        let codec = match record.kind {
            Kind::Jpeg => Codec::Jpeg(width, height, channels),
            Kind::Png => Codec::Png(width, height, channels),
            Kind::Raw | Kind::Opaque => Codec::None,
        };
        Some(Block { offset, stored_size: length.into(), size: self.frame_size, codec, crc: None })
    }
}

fn stored(record: &Record) -> std::ops::Range<u64> {
    record.offset..record.offset + u64::from(record.length)
}

fn png(record: &Record) -> Option<Png> {
    Png::new(Data::Stored(stored(record)), 0, record.width, record.height, record.channels, 1)
}
