//! The parts of an episode: their names, and which parts exist.

use std::ops::Range;

use super::{
    EPISODE_META, IMAGES, Index, Lerobot, Part, Rows,
    numbers::{self, Numbers},
    pictures::{Pictures, Stack},
    texts::{self, Texts},
    videos::Shots,
};
use crate::{
    format::{
        DType,
        lerobot::{Feature, Info, Kind},
        parquet::{Form, Leaf, Values},
    },
    limits,
    tree::names,
    view::{Array, Data, Fault, ReadContext, Rendered, View},
};

/// Names of the parts of an episode, which are the same in all episodes.
pub(super) struct Shown {
    /// Entries of an episode's folder and of its `images/`, in the order of a listing.
    episode: Vec<(Box<str>, Part, usize)>,
    images: Vec<(Box<str>, Part, usize)>,
    in_episode: Index,
    in_images: Index,
    /// Why a feature is left out of all episodes.
    left_out: Vec<Option<Box<str>>>,
    /// The path of each feature's item in an episode.
    paths: Vec<Box<str>>,
}

/// Returns about how many bytes of memory the names take.
pub(super) fn memory(info: &Info) -> u64 {
    let name = |feature: &Feature| 8 * (3 * feature.name.len()).min(names::NAME_MAX) as u64 + 512;
    info.features.iter().map(name).sum()
}

impl Shown {
    pub(super) fn of(info: &Info) -> Self {
        let (mut episode, mut images) = (Vec::new(), Vec::new());
        let (mut in_episode, mut in_images) = (Index::new(), Index::new());
        let (mut left_out, mut paths) = (Vec::new(), Vec::new());
        let add = |entries: &mut Vec<(Box<str>, Part, usize)>,
                   index: &mut Index,
                   part,
                   feature,
                   name: &dyn Fn(u32) -> String| {
            // Two long names can be made to end in the same hash.
            let mut free: Box<str> = name(1).into();
            for number in 2.. {
                if !index.contains_key(&free) {
                    break;
                }
                free = name(number).into();
            }
            index.insert(free.clone(), (part, feature));
            entries.push((free.clone(), part, feature));
            free
        };
        for (number, feature) in info.features.iter().enumerate() {
            let name = feature.name.as_bytes();
            let reason = reason(info, feature);
            let mut path = Box::default();
            match feature.kind {
                _ if reason.is_some() => {}
                Kind::Numbers(_) => {
                    path = add(&mut episode, &mut in_episode, Part::Numbers, number, &|copy| {
                        names::file(name, ".npy", copy)
                    });
                }
                Kind::Text => {
                    add(&mut episode, &mut in_episode, Part::Text, number, &|copy| names::file(name, ".txt", copy));
                    path = add(&mut episode, &mut in_episode, Part::Lines, number, &|copy| {
                        names::file(name, ".jsonl", copy)
                    });
                    let reserved = [&names::RESERVED[..], &[IMAGES]].concat();
                    add(&mut episode, &mut in_episode, Part::TextFolder, number, &|copy| {
                        names::folder(name, &reserved, copy)
                    });
                }
                Kind::Image | Kind::Video => {
                    let folder = add(&mut images, &mut in_images, Part::Camera, number, &|copy| {
                        names::folder(name, &names::RESERVED, copy)
                    });
                    path = format!("{IMAGES}/{folder}").into();
                    if feature.kind == Kind::Video || has_stack(feature) {
                        add(&mut images, &mut in_images, Part::Stack, number, &|copy| names::file(name, ".npy", copy));
                    }
                }
                Kind::Other => {}
            }
            left_out.push(reason);
            paths.push(path);
        }
        for (name, part) in [(IMAGES, Part::Images), (EPISODE_META, Part::EpisodeMeta)] {
            add(&mut episode, &mut in_episode, part, 0, &|_| name.to_owned());
        }
        Self { episode, images, in_episode, in_images, left_out, paths }
    }

    pub(super) fn episode(&self) -> &[(Box<str>, Part, usize)] {
        &self.episode
    }

    pub(super) fn images(&self) -> &[(Box<str>, Part, usize)] {
        &self.images
    }

    pub(super) fn in_episode(&self, name: &str) -> Option<(Part, usize)> {
        self.in_episode.get(name).copied()
    }

    pub(super) fn in_images(&self, name: &str) -> Option<(Part, usize)> {
        self.in_images.get(name).copied()
    }

    /// Returns the name of a part of an episode.
    pub(super) fn name(&self, part: Part, feature: usize) -> Option<&str> {
        let mut entries = self.episode.iter().chain(&self.images);
        entries.find(|(_, known, of)| *known == part && *of == feature).map(|(name, ..)| &**name)
    }

    /// Returns why a feature is left out of all episodes, if it is.
    pub(super) fn left_out(&self, feature: usize) -> Option<&str> {
        self.left_out.get(feature)?.as_deref()
    }

    /// Returns the path of a feature's item, for any episode.
    pub(super) fn item_path(&self, feature: usize) -> String {
        format!("episodes/<i>/{}", self.paths.get(feature).map_or("", |path| path))
    }
}

/// Returns why a feature is left out of all episodes, if it is.
fn reason(info: &Info, feature: &Feature) -> Option<Box<str>> {
    let dtype = &feature.dtype;
    match feature.kind {
        Kind::Other => Some(format!("values of the type {dtype} are not shown").into()),
        Kind::Text if !feature.is_scalar() => Some("arrays of texts are not shown".into()),
        Kind::Numbers(_) if feature.shape.len() >= limits::DIMENSIONS || too_large(feature) => {
            Some("its shape is too large".into())
        }
        Kind::Video if feature.is_depth => Some("a depth map in a video".into()),
        Kind::Video if info.video_path.is_none() => Some("the data set does not say where its videos are".into()),
        _ => None,
    }
}

/// Returns whether an episode may have more values than an array can have.
fn too_large(feature: &Feature) -> bool {
    let most = limits::LARGEST_BLOCK / limits::LEROBOT_STEPS / 8;
    feature.values().is_none_or(|values| values > most)
}

/// Returns whether the pictures of a camera are also shown as one array.
fn has_stack(feature: &Feature) -> bool {
    let size = |[height, width, channels]: [u64; 3]| {
        let fits = (1..=limits::PICTURE_SIDE).contains(&height) && (1..=limits::PICTURE_SIDE).contains(&width);
        fits && matches!(channels, 1 | 3 | 4) && height * width * channels <= limits::PICTURE
    };
    !feature.is_depth && feature.picture.is_some_and(size)
}

/// Returns whether a leaf is the column of bytes in a structure of pictures.
fn is_picture(leaf: &Leaf) -> bool {
    let is_bytes = leaf.path.len() == 2 && leaf.path.last().is_some_and(|name| **name == *"bytes");
    is_bytes && leaf.form == Form::Member && matches!(leaf.values, Values::Bytes | Values::Texts)
}

fn is_text(leaf: &Leaf) -> bool {
    matches!(leaf.values, Values::Bytes | Values::Texts) && matches!(leaf.form, Form::Scalar | Form::List)
}

/// The texts of a feature in an episode.
enum Looks {
    /// They cannot be read.
    Lost(Fault),
    Read(Texts),
}

/// A file that cannot be read.
#[derive(Debug)]
struct Lost(Fault);

impl Rendered for Lost {
    fn fill(&self, _: &ReadContext, _: Range<u64>, _: &mut [u8]) -> Result<(), Fault> {
        Err(self.0.clone())
    }
}

fn lost(size: u64, fault: Fault) -> View {
    View::default().with_rendered(size, Lost(fault))
}

impl Lerobot {
    fn feature(&self, feature: usize) -> Option<&Feature> {
        self.info.features.get(feature)
    }

    /// Returns whether an episode has a part.
    pub(super) fn has(&self, reader: &ReadContext, episode: u64, part: Part, feature: usize) -> Result<bool, Fault> {
        if part == Part::EpisodeMeta {
            return Ok(true);
        }
        let Some(rows) = self.sound(reader, episode)? else { return Ok(false) };
        Ok(match part {
            Part::Numbers => self.leaf(&rows, episode, feature).is_some(),
            Part::Text | Part::Lines | Part::TextFolder => {
                let is_text = match self.texts(reader, &rows, episode, feature)? {
                    None => return Ok(false),
                    Some(Looks::Lost(_)) => false,
                    Some(Looks::Read(texts)) => texts.same.is_some(),
                };
                is_text == (part == Part::Text)
            }
            Part::Images => {
                // Each camera has an entry for its folder or its stack; either tells whether the camera is there.
                for (_, part, feature) in self.shown.images() {
                    if self.has_camera(reader, &rows, episode, *part, *feature)? {
                        return Ok(true);
                    }
                }
                false
            }
            Part::Camera | Part::Stack => self.has_camera(reader, &rows, episode, part, feature)?,
            _ => false,
        })
    }

    fn has_camera(
        &self,
        reader: &ReadContext,
        rows: &Rows,
        episode: u64,
        part: Part,
        feature: usize,
    ) -> Result<bool, Fault> {
        let is_empty = rows.rows.is_empty();
        if self.is_video(feature) {
            return Ok(!is_empty && self.found_shots(reader, episode, feature)?.is_some());
        }
        Ok(!(is_empty && part == Part::Camera) && self.leaf(rows, episode, feature).is_some())
    }

    fn is_video(&self, feature: usize) -> bool {
        self.feature(feature).is_some_and(|feature| feature.kind == Kind::Video)
    }

    /// Returns the frames of a camera in an episode. If they are left out, reports that and returns `None`.
    fn found_shots(&self, reader: &ReadContext, episode: u64, feature: usize) -> Result<Option<Shots>, Fault> {
        Ok(match self.shots(reader, episode, feature)? {
            Some(Ok(shots)) => Some(shots),
            Some(Err(reason)) => {
                let name = self.feature(feature).map_or("", |feature| &feature.name);
                self.note(Part::Episode, episode, format!("{name} is left out: {reason}"));
                None
            }
            None => None,
        })
    }

    /// Returns the column of a feature in the rows of an episode. If there is none that can be shown, reports that and
    /// returns `None`.
    fn leaf(&self, rows: &Rows, episode: u64, feature: usize) -> Option<usize> {
        let number = feature;
        let feature = self.feature(number)?;
        let is_scalar = feature.is_scalar();
        let find = |is_wanted: &dyn Fn(&Leaf) -> bool| rows.columns.file().leaf(&feature.name, is_wanted);
        let found = match feature.kind {
            Kind::Numbers(dtype) => find(&|leaf| numbers::stored(leaf, dtype, is_scalar).is_some()),
            Kind::Text => find(&is_text),
            Kind::Image => find(&is_picture),
            Kind::Video | Kind::Other => None,
        };
        let reason = match found {
            Some(leaf) => rows.columns.check(leaf, &rows.rows).err(),
            None if find(&|_| true).is_some() => {
                Some(format!("its column cannot be read as {} of the shape {:?}", feature.dtype, feature.shape))
            }
            None => Some("the row file has no such column".into()),
        };
        match reason {
            None => found,
            Some(reason) => {
                self.note(Part::Episode, episode, format!("{} is left out: {reason}", feature.name));
                None
            }
        }
    }

    /// Returns the array of a feature.
    pub(super) fn numbers(&self, reader: &ReadContext, episode: u64, feature: usize) -> Result<Option<Array>, Fault> {
        let (Some(rows), Some(of)) = (self.sound(reader, episode)?, self.feature(feature)) else { return Ok(None) };
        let Kind::Numbers(dtype) = of.kind else { return Ok(None) };
        let Some(leaf) = self.leaf(&rows, episode, feature) else { return Ok(None) };
        let steps = rows.rows.end - rows.rows.start;
        let axes = if of.is_scalar() { &[] } else { of.shape.as_slice() };
        let shape = [&[steps], axes].concat();
        let data = match of.values() {
            Some(values) if values > 0 && steps > 0 => {
                let numbers = numbers_of(&rows, leaf, dtype, values, of.is_scalar());
                View::default().with_rendered(steps * values * dtype.size(), numbers)
            }
            _ => View::default(),
        };
        Ok(Some(Array::new(dtype, shape, data)))
    }

    /// Returns the numbers of a feature in an episode, for the table of all steps.
    pub(super) fn numbers_for_table(
        &self,
        reader: &ReadContext,
        episode: u64,
        feature: usize,
    ) -> Result<Numbers, Fault> {
        let index = self.episodes.get(episode).map_or(episode, |found| found.index);
        let rows = self.rows(reader, episode)?;
        let rows = rows.map_err(|reason| Fault::refused(format!("episode {index}: {reason}")))?;
        let name = self.feature(feature).map_or("", |feature| &feature.name);
        let missing = || Fault::refused(format!("{name} is left out of episode {index}"));
        let of = self.feature(feature).ok_or_else(missing)?;
        let leaf = self.leaf(&rows, episode, feature).ok_or_else(missing)?;
        let Kind::Numbers(dtype) = of.kind else { return Err(missing()) };
        Ok(numbers_of(&rows, leaf, dtype, of.values().unwrap_or(1), of.is_scalar()))
    }

    fn texts(&self, reader: &ReadContext, rows: &Rows, episode: u64, feature: usize) -> Result<Option<Looks>, Fault> {
        let Some(leaf) = self.leaf(rows, episode, feature) else { return Ok(None) };
        let key = (feature as u64, episode);
        match texts::read(reader, &rows.columns, leaf, &rows.rows, key) {
            Ok(texts) => Ok(Some(Looks::Read(texts))),
            Err(fault) if fault.error.is_damage() => Ok(Some(Looks::Lost(fault))),
            Err(fault) => Err(fault),
        }
    }

    /// Returns a file of a text feature.
    pub(super) fn text_view(
        &self,
        reader: &ReadContext,
        episode: u64,
        feature: usize,
        part: Part,
    ) -> Result<View, Fault> {
        if part == Part::Offsets {
            return Ok(self.offsets(reader, episode, feature)?.map_or_else(View::default, Array::npy));
        }
        let Some(rows) = self.sound(reader, episode)? else { return Ok(View::default()) };
        Ok(match self.texts(reader, &rows, episode, feature)? {
            None => View::default(),
            Some(Looks::Lost(fault)) => lost(1, fault),
            Some(Looks::Read(texts)) => match part {
                Part::Text => {
                    let length = texts.same.unwrap_or(0);
                    View::default().with(length, Data::Inline(texts.bytes))
                }
                Part::Lines => View::shared(texts.lines),
                _ => View::shared(texts.bytes),
            },
        })
    }

    /// Returns where each text of a feature begins.
    pub(super) fn offsets(&self, reader: &ReadContext, episode: u64, feature: usize) -> Result<Option<Array>, Fault> {
        let Some(rows) = self.sound(reader, episode)? else { return Ok(None) };
        let count = rows.rows.end - rows.rows.start + 1;
        let data = match self.texts(reader, &rows, episode, feature)? {
            None => return Ok(None),
            Some(Looks::Lost(fault)) => lost(8 * count, fault),
            Some(Looks::Read(texts)) => View::shared(texts.offsets),
        };
        Ok(Some(Array::new(DType::I64, [count], data)))
    }

    /// Returns the pictures of a camera in an episode.
    pub(super) fn pictures(
        &self,
        reader: &ReadContext,
        episode: u64,
        feature: usize,
    ) -> Result<Option<Pictures>, Fault> {
        let Some(rows) = self.sound(reader, episode)? else { return Ok(None) };
        let Some(leaf) = self.leaf(&rows, episode, feature) else { return Ok(None) };
        let key = (feature as u64, episode);
        Pictures::read(reader, &rows.columns, leaf, rows.rows, key).map(Some)
    }

    /// Returns the names of a camera's pictures.
    pub(super) fn picture_names(
        &self,
        reader: &ReadContext,
        episode: u64,
        feature: usize,
    ) -> Result<PictureNames, Fault> {
        let pictures = if self.is_video(feature) { None } else { Some(self.pictures(reader, episode, feature)?) };
        let digits = self.length(episode).saturating_sub(1).to_string().len().max(3);
        Ok(PictureNames { digits, pictures })
    }

    /// Returns the frame of a picture by its name.
    pub(super) fn find_picture(
        &self,
        reader: &ReadContext,
        episode: u64,
        feature: usize,
        name: &str,
    ) -> Result<Option<u32>, Fault> {
        let number = name.split('.').next().and_then(|number| number.parse::<u32>().ok());
        let Some(frame) = number.filter(|frame| u64::from(*frame) < self.length(episode)) else { return Ok(None) };
        let found = self.picture_names(reader, episode, feature)?.get(frame.into());
        Ok((found.as_deref() == Some(name)).then_some(frame))
    }

    /// Returns the file of a frame's picture.
    pub(super) fn picture(
        &self,
        reader: &ReadContext,
        episode: u64,
        feature: usize,
        frame: u64,
    ) -> Result<View, Fault> {
        if self.is_video(feature) {
            let shots = self.found_shots(reader, episode, feature)?;
            return Ok(shots.map_or_else(View::default, |shots| shots.picture(frame)));
        }
        let Some(pictures) = self.pictures(reader, episode, feature)? else { return Ok(View::default()) };
        let length = pictures.get(frame).length;
        Ok(View::default().with_rendered(length.into(), pictures.file(frame)))
    }

    /// Returns all frames of a camera as one array.
    pub(super) fn stack(&self, reader: &ReadContext, episode: u64, feature: usize) -> Result<Option<Array>, Fault> {
        if self.is_video(feature) {
            return Ok(self.found_shots(reader, episode, feature)?.map(Shots::stack));
        }
        let Some(shape) = self.feature(feature).filter(|of| has_stack(of)).and_then(|of| of.picture) else {
            return Ok(None);
        };
        let Some(pictures) = self.pictures(reader, episode, feature)? else { return Ok(None) };
        let count = pictures.count();
        let size = count.saturating_mul(shape.iter().product());
        let data = match size {
            0 => View::default(),
            _ => {
                let camera = (feature as u64) << 40 | episode;
                View::default().with_rendered(size, Stack { pictures, shape, camera })
            }
        };
        Ok(Some(Array::new(DType::U8, [&[count], &shape[..]].concat(), data)))
    }
}

/// Names of the pictures of a camera in an episode.
pub(super) struct PictureNames {
    digits: usize,
    /// `None` for frames of a video, none of which is missing.
    pictures: Option<Option<Pictures>>,
}

impl PictureNames {
    /// Returns the name of a frame's picture; `None` if it is missing.
    pub(super) fn get(&self, frame: u64) -> Option<String> {
        let suffix = match &self.pictures {
            None => Some(".png"),
            Some(pictures) => pictures.as_ref().and_then(|pictures| pictures.get(frame).suffix()),
        };
        suffix.map(|suffix| format!("{frame:0digits$}{suffix}", digits = self.digits))
    }
}

fn numbers_of(rows: &Rows, leaf: usize, shown: DType, values: u64, is_scalar: bool) -> Numbers {
    let stored = rows.columns.file().leaves.get(leaf).and_then(|leaf| numbers::stored(leaf, shown, is_scalar));
    let (columns, first) = (rows.columns.clone(), rows.rows.start);
    Numbers { columns, leaf, first, stored: stored.unwrap_or(shown), shown, values }
}
