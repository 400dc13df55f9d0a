//! Cameras whose frames are in videos (`docs/formats/lerobot.md` 7).

use std::{fmt, ops::Range, sync::Arc};

use super::{FOOTAGE, Lerobot, Part, VIDEOS, episodes, numbers::Numbers};
use crate::{
    cache::Key,
    format::{
        DType, PartError,
        lerobot::Kind,
        mp4::{Track, VideoCodec},
    },
    tree::{
        frames::{each_frame, threads},
        memory::{Opened, open_once, with_memory},
    },
    video,
    view::{Array, Data, Fault, ReadContext, Rendered, View, png::Png, video::Footage},
};

/// Most files of a camera that are tried until one is found.
const LOOKED_AT: usize = 64;

/// Largest distance between the time of a frame and that of a step, in frames.
const TOLERANCE: f64 = 0.25;

/// The feature with the times of steps.
const TIMES: &str = "timestamp";

/// A video.
pub(super) struct Video {
    footage: Arc<Footage>,
}

/// The codec of a camera if a video of it was found, or why its frames are not shown.
pub(super) type State = Result<Option<VideoCodec>, Arc<str>>;

impl Lerobot {
    /// Returns the place of a feature among the video features.
    fn camera(&self, feature: usize) -> Option<usize> {
        self.episodes.cameras.iter().position(|of| *of == feature)
    }

    /// Returns whether the frames of a camera are shown, by its first video.
    pub(super) fn camera_state(&self, reader: &ReadContext, feature: usize) -> Result<State, Fault> {
        let Some(camera) = self.camera(feature) else { return Ok(Ok(None)) };
        let Some(slot) = self.states.get(camera) else { return Ok(Ok(None)) };
        if let Some(known) = slot.get() {
            return Ok(known.clone());
        }
        reader.may_work()?;
        let (mut state, mut last, mut left) = (Ok(None), None, LOOKED_AT);
        for episode in 0..self.episodes.all.len() as u64 {
            let Some((footing, _)) = self.episodes.video(&self.info, episode, camera) else { continue };
            if last == Some(footing.file) {
                continue;
            }
            if left == 0 {
                break;
            }
            (last, left) = (Some(footing.file), left - 1);
            if let Ok(found) = self.video(reader, episode, camera)? {
                let track = found.footage.track();
                state = video::check(track)?.map(|()| Some(track.codec()));
                break;
            }
        }
        if let Err(reason) = &state {
            let name = self.info.features.get(feature).map_or("", |feature| &feature.name);
            self.note(Part::Root, 0, format!("{name} is left out: {reason}"));
        }
        Ok(slot.get_or_init(|| state).clone())
    }

    /// Returns the video of a camera in an episode.
    fn video(&self, reader: &ReadContext, episode: u64, camera: usize) -> Result<Opened<Video>, Fault> {
        let Some((footing, path)) = self.episodes.video(&self.info, episode, camera) else {
            return Ok(Err("the metadata do not say where its video is".into()));
        };
        let key = Key::new(reader.container, FOOTAGE, camera as u64, footing.file.into());
        open_once(reader, key, || {
            let Some(path) = path else { return Ok(Err("the path of its video leads out of the data set".into())) };
            let source = match episodes::open(&*self.siblings, &path)? {
                Err(reason) => return Ok(Err(reason.into())),
                Ok(source) => source,
            };
            let read = with_memory(&reader.cache, |memory| match Track::read(&*source, &memory) {
                Ok(track) => Ok(Ok((memory.keep(track.memory_usage() as u64)?, track))),
                Err(PartError::Damaged(reason)) => Ok(Err(reason)),
                Err(PartError::Source(error)) => Err(error.into()),
            })?;
            let number = VIDEOS | (camera as u64) << 32 | u64::from(footing.file);
            Ok(match read {
                Ok((room, track)) => Ok((Video { footage: Footage::new(Arc::new(track), source, number) }, room)),
                Err(reason) => Err(format!("{path}: {reason}").into()),
            })
        })
    }

    /// Returns the frames of a camera in an episode; `None` if they are not shown.
    ///
    /// # Errors
    /// [`Fault`]. The inner `Err` tells why they are left out of this episode.
    pub(super) fn shots(
        &self,
        reader: &ReadContext,
        episode: u64,
        feature: usize,
    ) -> Result<Option<Result<Shots, Arc<str>>>, Fault> {
        let Some(camera) = self.camera(feature) else { return Ok(None) };
        let Ok(codec) = self.camera_state(reader, feature)? else { return Ok(None) };
        let video = match self.video(reader, episode, camera)? {
            Ok(video) => video,
            Err(reason) => return Ok(Some(Err(reason))),
        };
        let Some((footing, path)) = self.episodes.video(&self.info, episode, camera) else { return Ok(None) };
        let fits = codec.is_none_or(|codec| codec == video.footage.track().codec());
        Ok(Some(Ok(Shots {
            video,
            from: footing.from,
            times: self.times(reader, episode)?,
            rate: self.info.rate(),
            steps: self.length(episode),
            refused: (!fits).then(|| "another codec than the first video of this camera".into()),
            path: path.unwrap_or_default().into(),
        })))
    }

    /// Returns the times of the steps of an episode.
    fn times(&self, reader: &ReadContext, episode: u64) -> Result<Times, Fault> {
        let found = self.info.features.iter().position(|feature| feature.name == TIMES);
        let found = found.and_then(|number| Some((number, self.info.features.get(number)?)));
        let Some((number, feature)) = found.filter(|(_, of)| of.is_scalar() && matches!(of.kind, Kind::Numbers(_)))
        else {
            return Ok(Times::Regular);
        };
        let numbers = match self.numbers_for_table(reader, episode, number) {
            Ok(numbers) => numbers,
            Err(fault) if fault.error.is_damage() => return Ok(Times::Lost(fault)),
            Err(fault) => return Err(fault),
        };
        // The shown type, because times are compared as they are shown.
        let shown = if let Kind::Numbers(dtype) = feature.kind { dtype } else { DType::F32 };
        Ok(Times::Stored(Arc::new(Numbers { shown, ..numbers })))
    }
}

/// The times of the steps of an episode.
#[derive(Debug, Clone)]
enum Times {
    /// Computed from the steps' numbers.
    Regular,
    Stored(Arc<Numbers>),
    /// They cannot be read.
    Lost(Fault),
}

/// The frames of a camera in an episode.
#[derive(Clone)]
pub(super) struct Shots {
    video: Arc<Video>,
    from: f64,
    times: Times,
    rate: f64,
    steps: u64,
    refused: Option<Arc<str>>,
    path: Arc<str>,
}

impl fmt::Debug for Shots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} s", self.path, self.from)
    }
}

impl Shots {
    /// Returns width and height.
    pub(super) fn size(&self) -> (u32, u32) {
        self.video.footage.track().size()
    }

    /// Returns the codec.
    pub(super) fn codec(&self) -> VideoCodec {
        self.video.footage.track().codec()
    }

    /// Returns the file of a step's picture.
    pub(super) fn picture(&self, step: u64) -> View {
        let (width, height) = self.size();
        let pixels = Data::Rendered(Arc::new(Shot { shots: self.clone(), step }));
        Png::new(pixels, 0, width, height, 3, 1).map_or_else(View::default, Png::view)
    }

    /// Returns all frames as one array.
    pub(super) fn stack(self) -> Array {
        let (width, height) = self.size();
        let shape = [self.steps, height.into(), width.into(), 3];
        let size = shape.iter().fold(1, |size: u64, axis| size.saturating_mul(*axis));
        Array::new(DType::U8, shape, View::default().with_rendered(size, self))
    }

    /// Returns the frame that a step shows.
    fn frame(&self, reader: &ReadContext, step: u64) -> Result<u64, Fault> {
        let refused = |reason: &str| Fault::refused(format!("{}: {reason}", self.path));
        if let Some(reason) = &self.refused {
            return Err(refused(reason));
        }
        let time = match &self.times {
            Times::Regular => step as f64 / self.rate,
            Times::Stored(numbers) => numbers.value(reader, step)?,
            Times::Lost(fault) => return Err(fault.clone()),
        };
        let wanted = self.from + time;
        let nearest = self.video.footage.track().nearest(wanted).filter(|_| wanted.is_finite());
        let nearest = nearest.ok_or_else(|| refused(&format!("no frame is near {wanted} s")))?;
        match nearest.distance <= TOLERANCE / self.rate {
            true => Ok(nearest.frame),
            false => {
                let (distance, most) = (nearest.distance, TOLERANCE / self.rate);
                Err(refused(&format!(
                    "step {step} is at {wanted} s; the nearest frame is {distance} s away, more than {most} s"
                )))
            }
        }
    }

    fn fill_frame(&self, reader: &ReadContext, step: u64, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let frame = self.frame(reader, step)?;
        self.video.footage.fill(reader, frame, part, out)
    }
}

impl Rendered for Shots {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        let size = self.video.footage.track().frame_size();
        each_frame(threads(reader), size, part, out, |step, part, out| self.fill_frame(reader, step, part, out))
    }
}

/// The pixels of one step.
#[derive(Debug)]
struct Shot {
    shots: Shots,
    step: u64,
}

impl Rendered for Shot {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.shots.fill_frame(reader, self.step, part, out)
    }
}
