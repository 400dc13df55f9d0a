//! `shardfs info` of a container of episodes: what they are like. A file may have millions of them, so all work is
//! bounded, and what was not looked at is said.

use std::{fmt::LowerExp, io::Write};

use serde_json::{Map, Value, json};

use super::{
    items::write_front,
    lines::{Counts, cell, few, shown, table},
};
use crate::{
    cli::{Place, commands::ls::date, escape},
    tree::{Camera, Episode, Episodes, Said, Success, episode_name},
    view::{Fault, ReadContext},
};

/// Most episodes that get a line.
const LINES: u64 = 10;
/// Most frames whose pictures are found, over all these lines.
const FRAMES: u64 = 100_000;
/// Most cameras of an episode that are named.
const CAMERAS: usize = 8;
/// Most characters of a text that are shown.
const TEXT: usize = 60;

/// What the container says of all its episodes, and the first of them.
#[derive(Default)]
pub(super) struct Summary {
    total: u64,
    /// The frames of all, and whether they were counted.
    frames: Option<(u64, bool)>,
    version: Option<String>,
    created: Option<i64>,
    looked_at: u64,
    damaged: u64,
    /// Whether it is about one episode only.
    is_part: bool,
    embodiments: Counts,
    tasks: Counts,
    fps: Counts,
    successes: Counts,
    lines: Vec<Line>,
}

/// One of the first episodes.
struct Line {
    episode: Episode,
    /// The path of its folder below the container.
    folder: String,
    /// Its cameras, or why they are not known.
    cameras: Result<Vec<Camera>, String>,
}

impl Summary {
    /// Examines the container at a place, or the one episode in which `part` lies. `None` if it has no episodes.
    pub(super) fn read(place: &Place, part: &str) -> anyhow::Result<Option<Self>> {
        Ok(place.entry.episodes_of(|episodes, reader| Self::of(episodes, reader, part))?)
    }

    fn of(episodes: &dyn Episodes, reader: &ReadContext, part: &str) -> Result<Self, Fault> {
        let total = episodes.count(reader)?;
        let (version, created) = episodes.made();
        let mut only = None;
        // The folder of an episode may be any of those on the way.
        for end in part.match_indices('/').map(|(at, _)| at).chain([part.len()]) {
            only = only.or(episodes.position(reader, &part[..end])?);
        }
        let mut summary = Self {
            total,
            frames: if only.is_none() { episodes.frames(reader)? } else { None },
            version,
            created,
            looked_at: total.min(episodes.summarised()),
            is_part: only.is_some(),
            ..Self::default()
        };
        let mut frames = FRAMES;
        let positions = only.map_or(0..summary.looked_at, |position| position..position + 1);
        for position in positions {
            let Some(episode) = episodes.episode(reader, position)? else { break };
            summary.count(episode.said.as_ref());
            if summary.is_part || position < LINES {
                let cameras = episodes.cameras(reader, position, &mut frames);
                let folder = episodes.folder(reader, position)?;
                summary.lines.push(Line { episode, folder, cameras });
            }
        }
        Ok(summary)
    }

    fn count(&mut self, said: Option<&Said>) {
        let Some(said) = said else {
            self.damaged += 1;
            return;
        };
        if let Some(embodiment) = &said.embodiment {
            self.embodiments.add(shown(embodiment, TEXT));
        }
        if let Some(task) = &said.task {
            self.tasks.add(shown(task, TEXT));
        }
        if let Some(fps) = said.fps {
            self.fps.add(number(fps));
        }
        if let Some(success) = said.success {
            self.successes.add(success.word().into());
        }
    }

    /// Prints it for people.
    pub(super) fn write(&self, out: &mut impl Write, format: &str, front: &Map<String, Value>) -> anyhow::Result<()> {
        if self.is_part {
            return self.write_episodes(out);
        }
        writeln!(out, "  format: {format}")?;
        if let Some(version) = &self.version {
            writeln!(out, "  version: {version}")?;
        }
        if let Some(seconds) = self.created {
            writeln!(out, "  created: {} UTC", date(seconds))?;
        }
        write_front(out, front, &["format", "version", "layout", "episodes"])?;
        writeln!(out, "  episodes: {}", self.total)?;
        match self.frames {
            Some((frames, true)) => writeln!(out, "  frames: {frames}")?,
            Some((frames, false)) => writeln!(out, "  frames: {frames} (the header's count)")?,
            None => {}
        }
        let is_all = self.looked_at >= self.total;
        let of = if is_all { String::new() } else { format!(" of the first {} episodes", self.looked_at) };
        for (label, counts) in [
            ("embodiments", &self.embodiments),
            ("tasks", &self.tasks),
            ("fps", &self.fps),
            ("success", &self.successes),
        ] {
            let counts = counts.line();
            if !counts.is_empty() {
                writeln!(out, "  {label}{of}: {}", escape::escaped(&counts))?;
            }
        }
        if self.damaged > 0 {
            writeln!(out, "  damaged metadata{of}: {}", self.damaged)?;
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        self.write_episodes(out)?;
        let more = self.total.saturating_sub(self.lines.len() as u64);
        if more > 0 {
            writeln!(out, "  … and {more} more")?;
        }
        Ok(())
    }

    /// Prints a line for each examined episode.
    fn write_episodes(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let header = ["episode", "frames", "state", "action", "success", "reward", "task", "cameras"];
        table(out, &header, &self.lines.iter().map(Line::row).collect::<Vec<_>>(), &[0, 1, 2, 3, 5])
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "episodes": self.total,
            "frames": self.frames.map(|(frames, _)| frames),
            "frames_counted": self.frames.is_some_and(|(_, is_counted)| is_counted),
            "episodes_looked_at": self.looked_at,
            "damaged_metadata": self.damaged,
            "embodiments": self.embodiments.json(),
            "tasks": self.tasks.json(),
            "fps": self.fps.json(),
            "success": self.successes.json(),
            "first_episodes": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
        })
    }
}

/// Formats a number without dozens of digits.
fn number(number: impl ToString + LowerExp) -> String {
    let text = number.to_string();
    if text.len() > 12 { format!("{number:e}") } else { text }
}

impl Line {
    fn row(&self) -> Vec<String> {
        let Episode { frames, state, action, .. } = self.episode;
        let (success, reward, task) = match &self.episode.said {
            Some(said) => {
                let reward = said.total_reward.map_or_else(String::new, number);
                let task = match said.task.as_deref() {
                    Some("") => "\"\"".into(),
                    task => shown(task.unwrap_or_default(), TEXT / 2),
                };
                (said.success.map_or("", Success::word), reward, task)
            }
            None => ("", String::new(), "(damaged)".into()),
        };
        let cameras = match &self.cameras {
            Err(reason) => format!("({reason})"),
            Ok(cameras) => few(cameras.iter().map(|camera| camera_text(camera, frames)), CAMERAS),
        };
        let numbers = [Some(frames), state, action].map(cell);
        let name = shown(&episode_name(&self.folder), TEXT);
        [&[name], &numbers[..], &[success.into(), reward, task, cameras]].concat()
    }

    fn json(&self) -> Value {
        let Episode { position, id, frames, state, action, ref said } = self.episode;
        let said = said.as_ref();
        let cameras = self.cameras.as_ref().map(|cameras| cameras.iter().map(camera_json).collect::<Vec<_>>());
        json!({
            "position": position,
            "folder": self.folder,
            "episode_id": id,
            "embodiment": said.and_then(|said| said.embodiment.as_ref()),
            "task": said.and_then(|said| said.task.as_ref()),
            "fps": said.and_then(|said| said.fps),
            "success": said.and_then(|said| said.success?.known()),
            "total_reward": said.and_then(|said| said.total_reward),
            "num_frames": frames,
            "state_dim": state,
            "action_dim": action,
            "cameras": cameras.ok(),
        })
    }
}

/// Returns `front 96x72 RGB raw`, and the number of pictures if there is not one per frame.
fn camera_text(camera: &Camera, frames: u64) -> String {
    let size = match camera.size {
        Some((width, height, channels)) => {
            let colours = match channels {
                0 => String::new(),
                1 => " grey".into(),
                2 => " grey+alpha".into(),
                3 => " RGB".into(),
                4 => " RGBA".into(),
                more => format!("x{more}"),
            };
            format!(" {width}x{height}{colours}")
        }
        None if camera.pictures == 0 => String::new(),
        None => " of unknown or several sizes".into(),
    };
    let count = if camera.pictures == frames { String::new() } else { format!(" ({} pictures)", camera.pictures) };
    format!("{}{size} {}{count}", shown(&camera.name, TEXT / 2), camera.encoding)
}

fn camera_json(camera: &Camera) -> Value {
    json!({
        "name": camera.name,
        "pictures": camera.pictures,
        "width": camera.size.map(|(width, ..)| width),
        "height": camera.size.map(|(_, height, _)| height),
        "channels": camera.size.map(|(.., channels)| channels).filter(|&channels| channels > 0),
        "encoding": camera.encoding,
    })
}
