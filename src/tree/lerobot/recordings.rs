//! The episodes of a data set for `info`, the web pages and Python.

use std::ops::Range;

use super::Lerobot;
use crate::{
    format::lerobot::Kind,
    tree::{Camera, Episode, Episodes, Said, Timeline, columns::plain},
    view::{Fault, ReadContext},
};

/// The folder of the episodes.
const FOLDER: &str = "episodes";

/// Features that most data sets have: the state of the robot, and the commands to it.
const STATE: &str = "observation.state";
const ACTION: &str = "action";

impl Episodes for Lerobot {
    fn count(&self, _: &ReadContext) -> Result<u64, Fault> {
        Ok(self.episodes.all.len() as u64)
    }

    fn frames(&self, _: &ReadContext) -> Result<Option<(u64, bool)>, Fault> {
        Ok(Some((self.episodes.steps(), true)))
    }

    fn made(&self) -> (Option<String>, Option<i64>) {
        (Some(self.info.version.name().into()), None)
    }

    fn folder(&self, _: &ReadContext, position: u64) -> Result<String, Fault> {
        Ok(format!("{FOLDER}/{}", self.episodes.get(position).map_or(position, |episode| episode.index)))
    }

    fn position(&self, _: &ReadContext, path: &str) -> Result<Option<u64>, Fault> {
        let number = path.strip_prefix(FOLDER).and_then(|path| path.strip_prefix('/'));
        Ok(number.and_then(|number| number.parse().ok()).and_then(|index| self.episodes.find(index)))
    }

    fn within(&self, _: &ReadContext, path: &str) -> Result<Range<u64>, Fault> {
        Ok(if matches!(path, "" | FOLDER) { 0..self.episodes.all.len() as u64 } else { 0..0 })
    }

    fn episode(&self, _: &ReadContext, position: u64) -> Result<Option<Episode>, Fault> {
        let values = |name: &str| {
            let feature = self.info.features.iter().find(|feature| feature.name == name);
            feature.filter(|feature| matches!(feature.kind, Kind::Numbers(_))).and_then(|feature| feature.values())
        };
        let tasks = |episode| self.episodes.tasks_of(episode).flatten().collect::<Vec<_>>();
        Ok(self.episodes.get(position).map(|episode| Episode {
            position,
            id: episode.index,
            frames: episode.length,
            state: values(STATE),
            action: values(ACTION),
            said: Some(Said {
                embodiment: self.info.robot.clone(),
                task: Some(tasks(episode)).filter(|tasks| !tasks.is_empty()).map(|tasks| tasks.join("\n")),
                fps: Some(self.info.rate()),
                success: None,
                total_reward: None,
            }),
        }))
    }

    fn cameras(&self, reader: &ReadContext, position: u64, frames: &mut u64) -> Result<Vec<Camera>, String> {
        let failed = |fault: Fault| plain(&fault.error);
        if self.rows(reader, position).map_err(failed)?.is_err() {
            return Ok(Vec::new());
        }
        let mut cameras = Vec::new();
        for (number, feature) in self.info.features.iter().enumerate() {
            if self.shown.left_out(number).is_some() {
                continue;
            }
            let name = feature.name.clone();
            match feature.kind {
                Kind::Video => {
                    if let Some(Ok(shots)) = self.shots(reader, position, number).map_err(failed)? {
                        let ((width, height), pictures) = (shots.size(), self.length(position));
                        let encoding = codec_name(shots.codec());
                        cameras.push(Camera { name, pictures, size: Some((width, height, 3)), encoding });
                    }
                }
                Kind::Image => {
                    let count = self.length(position);
                    *frames = frames.checked_sub(count).ok_or("not looked at")?;
                    if let Some(pictures) = self.pictures(reader, position, number).map_err(failed)? {
                        let (pictures, size, encoding) = pictures.described();
                        cameras.push(Camera { name, pictures, size, encoding });
                    }
                }
                _ => {}
            }
        }
        Ok(cameras)
    }
}

/// Returns the name of a codec in `container.json`.
pub(super) fn codec_name(codec: crate::format::mp4::VideoCodec) -> String {
    codec.to_string().to_lowercase().replace('.', "")
}

impl Lerobot {
    /// Returns what the player needs of an episode.
    pub(super) fn timeline_of(&self, position: u64) -> Timeline {
        let name = |position: u64| self.episodes.get(position).map(|episode| episode.index.to_string());
        Timeline {
            steps: Some(self.length(position)),
            rate: Some(self.info.rate()),
            documents: vec![("meta", super::EPISODE_META.into())],
            neighbours: Some((position.checked_sub(1).and_then(name), name(position + 1))),
            ..Timeline::default()
        }
    }
}
