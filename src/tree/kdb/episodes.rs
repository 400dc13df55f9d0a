//! Episodes of a KDB file for `info`, the pages and Python. A file may have millions of them, so nothing looks at all
//! but the sum of short indexes.

use std::ops::Range;

use super::Kdb;
use crate::{
    format::kdb::{self, Images, Kind},
    tree::{Camera, Episode, Episodes, Said, Success, Timeline, memory::with_memory},
    view::{Fault, ReadContext},
};

/// Most index entries that are read to count frames. For a file with more, the header's count is said.
const COUNTED: u64 = 100_000;

/// The folder of the episodes.
const FOLDER: &str = "episodes";

impl Episodes for Kdb {
    fn count(&self, _: &ReadContext) -> Result<u64, Fault> {
        Ok(self.header.episodes())
    }

    fn frames(&self, reader: &ReadContext) -> Result<Option<(u64, bool)>, Fault> {
        let count = self.header.episodes();
        if count > COUNTED {
            return Ok(Some((self.header.num_frames, false)));
        }
        let mut frames = 0;
        for position in 0..count {
            frames += u64::from(self.episode(reader, position)?.num_frames);
        }
        Ok(Some((frames, true)))
    }

    fn made(&self) -> (Option<String>, Option<i64>) {
        let (major, minor) = self.header.version;
        // Times beyond any calendar are left out.
        let created = i64::try_from(self.header.created_timestamp).ok().filter(|&s| 0 < s && s < 1 << 40);
        (Some(format!("{major}.{minor}")), created)
    }

    fn folder(&self, _: &ReadContext, position: u64) -> Result<String, Fault> {
        Ok(format!("{FOLDER}/{position}"))
    }

    fn position(&self, _: &ReadContext, path: &str) -> Result<Option<u64>, Fault> {
        let number = path.strip_prefix(FOLDER).and_then(|path| path.strip_prefix('/'));
        Ok(number.and_then(|number| number.parse().ok()).filter(|position| *position < self.header.episodes()))
    }

    fn within(&self, _: &ReadContext, path: &str) -> Result<Range<u64>, Fault> {
        Ok(if matches!(path, "" | FOLDER) { 0..self.header.episodes() } else { 0..0 })
    }

    fn episode(&self, reader: &ReadContext, position: u64) -> Result<Option<Episode>, Fault> {
        if position >= self.header.episodes() {
            return Ok(None);
        }
        let episode = self.episode(reader, position)?;
        let meta = match self.meta_of(reader, &episode) {
            Ok(meta) => Some(meta),
            Err(kdb::PartError::Damaged(_)) => None,
            Err(kdb::PartError::Source(error)) => return Err(super::fault(episode.meta.offset, error.into())),
        };
        let said = meta.map(|meta| Said {
            embodiment: Some(meta.embodiment.clone()),
            task: Some(meta.task.clone()),
            // The decimal number that it was stored for.
            fps: meta.fps.to_string().parse().ok(),
            success: Some(match meta.success {
                Some(true) => Success::Yes,
                Some(false) => Success::No,
                None => Success::Unknown,
            }),
            total_reward: meta.total_reward,
        });
        Ok(Some(Episode {
            position,
            id: episode.episode_id,
            frames: episode.num_frames.into(),
            state: Some(episode.state_dim.into()),
            action: Some(episode.action_dim.into()),
            said,
        }))
    }

    fn cameras(&self, reader: &ReadContext, position: u64, frames: &mut u64) -> Result<Vec<Camera>, String> {
        let episode = self.episode(reader, position).map_err(|_| "damaged")?;
        if !episode.has_images() {
            return Ok(Vec::new());
        }
        *frames = frames.checked_sub(episode.num_frames.into()).ok_or("too many frames to look at")?;
        let found = with_memory(&reader.cache, |memory| match episode.read_images(&*reader.source, &memory) {
            Ok(images) => Ok(images.cameras.iter().map(|camera| described(&images, camera)).collect()),
            Err(kdb::PartError::Source(error)) => Err(super::fault(episode.images.offset, error.into())),
            Err(kdb::PartError::Damaged(reason)) => Err(Fault::refused(&reason)),
        });
        found.map_err(|_| "damaged".to_owned())
    }
}

impl Kdb {
    /// Returns what the player needs of an episode.
    pub(super) fn timeline_of(&self, reader: &ReadContext, position: u64) -> Result<Timeline, Fault> {
        let said = Episodes::episode(self, reader, position)?.and_then(|episode| Some((episode.frames, episode.said?)));
        let (steps, rate) = match said {
            Some((frames, said)) => (Some(frames), said.fps.filter(|rate| *rate > 0.0)),
            None => (None, None),
        };
        let name = |position: u64| position.to_string();
        let next = (position + 1 < self.header.episodes()).then(|| name(position + 1));
        Ok(Timeline {
            steps,
            rate: rate.filter(|rate| rate.is_finite()),
            documents: vec![("meta", "meta.json".into())],
            neighbours: Some((position.checked_sub(1).map(name), next)),
            ..Timeline::default()
        })
    }
}

fn described(images: &Images, camera: &kdb::Camera) -> Camera {
    let records = images.records_of(camera);
    let shape = |record: &kdb::Record| (record.width, record.height, record.channels);
    let first = records.first().map(shape).filter(|(width, ..)| *width > 0);
    let mut kinds: Vec<&str> = Vec::new();
    for record in records {
        let kind = match record.kind {
            Kind::Raw => "raw",
            Kind::Jpeg => "jpeg",
            Kind::Png => "png",
            Kind::Opaque => "unknown",
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Camera {
        name: String::from_utf8_lossy(&camera.name).into_owned(),
        pictures: records.len() as u64,
        size: first.filter(|first| records.iter().all(|record| shape(record) == *first)),
        encoding: kinds.join("+"),
    }
}
