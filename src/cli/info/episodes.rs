//! `shardfs info` of a KDB file: what its episodes are like. A file may have millions of them, so all work is bounded,
//! and what was not looked at is said.

use std::io::Write;

use anyhow::Context;
use serde_json::{Value, json};

use super::lines::{Counts, shown, table};
use crate::{
    cli::{escape, ls::date, place::Place},
    format::kdb::{self, Camera, Episode, Header, Images, Kind, Meta},
    source::{Source, Unlimited},
};

/// Most index entries that are read to count frames. For a file with more, only the header's count is shown.
const COUNTED: u64 = 100_000;
/// Most episodes whose metadata are read.
const LOOKED_AT: u64 = 1000;
/// Most episodes that get a line.
const LINES: u64 = 10;
/// Most frames whose pictures are found, over all these lines.
const FRAMES: u64 = 100_000;
/// Most cameras of an episode that are named.
const CAMERAS: usize = 8;
/// Most characters of a text that are shown.
const TEXT: usize = 60;

/// What the header, the index and the first episodes tell.
pub(super) struct Summary {
    header: Header,
    /// The sum over the index, if it was short enough.
    frames: Option<u64>,
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
    meta: Option<Meta>,
    /// Its cameras, or why they are not known.
    cameras: Result<Vec<Seen>, String>,
}

/// One camera of an episode.
struct Seen {
    name: String,
    pictures: usize,
    /// Width, height and channels, if all pictures have the same.
    size: Option<(u32, u32, u8)>,
    encoding: String,
}

impl Summary {
    /// Examines a file, or one episode of it.
    pub(super) fn read(place: &Place, only: Option<u64>) -> anyhow::Result<Self> {
        let shown_path = || place.vfs.source().display().to_string();
        let source = place.vfs.stored(place.ino)?.with_context(shown_path)?;
        let source = &*source;
        let header = kdb::parse(source).with_context(shown_path)?;
        let total = header.episodes();
        let mut summary = Self {
            header,
            frames: (total <= COUNTED).then_some(0),
            looked_at: total.min(LOOKED_AT),
            damaged: 0,
            is_part: false,
            embodiments: Counts::default(),
            tasks: Counts::default(),
            fps: Counts::default(),
            successes: Counts::default(),
            lines: Vec::new(),
        };
        let mut walked = 0;
        if let Some(position) = only {
            summary.is_part = true;
            if let Some(episode) = header.episode(source, position).with_context(shown_path)? {
                let meta = episode.read_meta(source).ok();
                let cameras = cameras(source, &episode, &mut walked);
                summary.lines.push(Line { episode, meta, cameras });
            }
            return Ok(summary);
        }
        for position in 0..if summary.frames.is_some() { total } else { summary.looked_at } {
            let Some(episode) = header.episode(source, position).with_context(shown_path)? else { break };
            summary.frames = summary.frames.map(|frames| frames + u64::from(episode.num_frames));
            if position >= summary.looked_at {
                continue;
            }
            let meta = episode.read_meta(source).ok();
            summary.count(meta.as_ref());
            if position < LINES {
                let cameras = cameras(source, &episode, &mut walked);
                summary.lines.push(Line { episode, meta, cameras });
            }
        }
        Ok(summary)
    }

    fn count(&mut self, meta: Option<&Meta>) {
        let Some(meta) = meta else {
            self.damaged += 1;
            return;
        };
        self.embodiments.add(shown(&meta.embodiment, TEXT));
        self.tasks.add(shown(&meta.task, TEXT));
        self.fps.add(number(meta.fps));
        self.successes.add(success(meta.success).into());
    }

    /// Prints it for people.
    pub(super) fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        if self.is_part {
            return self.write_episodes(out);
        }
        let total = self.header.episodes();
        writeln!(out, "  format: kdb")?;
        writeln!(out, "  version: {}.{}", self.header.version.0, self.header.version.1)?;
        // Times beyond any calendar are left out.
        if let Some(seconds) = i64::try_from(self.header.created_timestamp).ok().filter(|&s| 0 < s && s < 1 << 40) {
            writeln!(out, "  created: {} UTC", date(seconds))?;
        }
        writeln!(out, "  episodes: {total}")?;
        match self.frames {
            Some(frames) => writeln!(out, "  frames: {frames}")?,
            None => writeln!(out, "  frames: {} (the header's count)", self.header.num_frames)?,
        }
        let of =
            if self.looked_at < total { format!(" of the first {} episodes", self.looked_at) } else { String::new() };
        for (label, counts) in [
            ("embodiments", &self.embodiments),
            ("tasks", &self.tasks),
            ("fps", &self.fps),
            ("success", &self.successes),
        ] {
            if !counts.is_empty() {
                writeln!(out, "  {label}{of}: {}", escape::escaped(&counts.line()))?;
            }
        }
        if self.damaged > 0 {
            writeln!(out, "  damaged metadata{of}: {}", self.damaged)?;
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        self.write_episodes(out)?;
        let more = total - self.lines.len() as u64;
        if more > 0 {
            writeln!(out, "  … and {more} more")?;
        }
        Ok(())
    }

    /// Prints a line for each examined episode.
    fn write_episodes(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let header = ["episode", "frames", "state", "action", "success", "reward", "task", "cameras"];
        let mut rows = vec![header.map(String::from).to_vec()];
        rows.extend(self.lines.iter().map(Line::row));
        table(out, &rows, &[0, 1, 2, 3, 5])
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "episodes": self.header.episodes(),
            "frames": self.frames.unwrap_or(self.header.num_frames),
            "frames_counted": self.frames.is_some(),
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

fn success(success: Option<bool>) -> &'static str {
    match success {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    }
}

/// Formats a number without dozens of digits.
fn number(number: f32) -> String {
    let text = number.to_string();
    if text.len() > 12 { format!("{number:e}") } else { text }
}

impl Line {
    fn row(&self) -> Vec<String> {
        let Episode { position, num_frames, state_dim, action_dim, .. } = self.episode;
        let (success, reward, task) = match &self.meta {
            Some(meta) => {
                let reward = meta.total_reward.map_or_else(String::new, number);
                (success(meta.success), reward, shown(&meta.task, TEXT / 2))
            }
            None => ("", String::new(), "(damaged)".into()),
        };
        let cameras = match &self.cameras {
            Err(reason) => format!("({reason})"),
            Ok(cameras) => {
                let mut parts: Vec<String> =
                    cameras.iter().take(CAMERAS).map(|seen| seen.text(num_frames as usize)).collect();
                if cameras.len() > CAMERAS {
                    parts.push(format!("and {} others", cameras.len() - CAMERAS));
                }
                parts.join(", ")
            }
        };
        let numbers = [position, num_frames.into(), state_dim.into(), action_dim.into()].map(|n| n.to_string());
        [&numbers[..], &[success.into(), reward, task, cameras]].concat()
    }

    fn json(&self) -> Value {
        let Episode { position, episode_id, num_frames, state_dim, action_dim, .. } = self.episode;
        let meta = self.meta.as_ref();
        let cameras = self.cameras.as_ref().map(|cameras| cameras.iter().map(Seen::json).collect::<Vec<_>>());
        json!({
            "position": position,
            "episode_id": episode_id,
            "embodiment": meta.map(|meta| &meta.embodiment),
            "task": meta.map(|meta| &meta.task),
            "fps": meta.map(|meta| meta.fps),
            "success": meta.and_then(|meta| meta.success),
            "total_reward": meta.and_then(|meta| meta.total_reward),
            "num_frames": num_frames,
            "state_dim": state_dim,
            "action_dim": action_dim,
            "cameras": cameras.ok(),
        })
    }
}

/// Returns the cameras of an episode. `walked` counts frames over all episodes.
fn cameras(source: &dyn Source, episode: &Episode, walked: &mut u64) -> Result<Vec<Seen>, String> {
    if !episode.has_images() {
        return Ok(Vec::new());
    }
    *walked += u64::from(episode.num_frames);
    if *walked > FRAMES {
        return Err("too many frames to look at".into());
    }
    let images = episode.read_images(source, &Unlimited).map_err(|_| "damaged")?;
    Ok(images.cameras.iter().map(|camera| Seen::of(&images, camera)).collect())
}

impl Seen {
    fn of(images: &Images, camera: &Camera) -> Self {
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
        Self {
            name: String::from_utf8_lossy(&camera.name).into_owned(),
            pictures: records.len(),
            size: first.filter(|first| records.iter().all(|record| shape(record) == *first)),
            encoding: kinds.join("+"),
        }
    }

    /// Returns `front 96x72 RGB raw`, and the number of pictures if there is not one per frame.
    fn text(&self, frames: usize) -> String {
        let size = match self.size {
            Some((width, height, channels)) => {
                let colours = match channels {
                    0 => String::new(),
                    1 => " grey".into(),
                    2 => " grey+alpha".into(),
                    3 => " RGB".into(),
                    4 => " RGBA".into(),
                    more => format!("x{more}"),
                };
                format!("{width}x{height}{colours}")
            }
            None => "of several sizes".into(),
        };
        let count = if self.pictures == frames { String::new() } else { format!(" ({} pictures)", self.pictures) };
        format!("{} {size} {}{count}", shown(&self.name, TEXT / 2), self.encoding)
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "pictures": self.pictures,
            "width": self.size.map(|(width, ..)| width),
            "height": self.size.map(|(_, height, _)| height),
            "channels": self.size.map(|(.., channels)| channels).filter(|&channels| channels > 0),
            "encoding": self.encoding,
        })
    }
}
