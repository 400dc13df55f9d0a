//! The episodes of a data set for `info`, the web pages and Python. Their positions count through all splits, in the
//! order of `dataset_info.json`. To describe an episode, or count its steps, its whole record is read.

use std::{ops::Range, sync::Arc};

use super::{File, Kind, Rlds, Shape, leaves::IMAGES, record::Record};
use crate::{
    format::rlds::{Leaf, LeafKind, Split},
    tree::{
        Camera, Episode, Episodes, Said, Timeline, names,
        paths::{NodeIndex, ROOT},
    },
    view::{Fault, ReadContext},
};

/// Most episodes that a summary reads.
const SUMMARISED: u64 = 10;
/// Most bytes of an instruction.
const TEXT: u64 = 4096;
/// Names of texts with the instruction to the robot.
const INSTRUCTIONS: [&str; 2] = ["language_instruction", "natural_language_instruction"];
/// Leaves that most data sets have: the state of the robot, and the commands to it.
const STATES: [&str; 2] = ["observation/state", "observation/proprio"];
const ACTION: &str = "action";

impl Rlds {
    /// Returns whether it is a data set of episodes.
    pub(super) fn has_episodes(&self) -> bool {
        matches!(&self.shape, Shape::Set { features, .. } if features.has_steps)
    }

    fn splits(&self) -> &[Split] {
        if let Shape::Set { info, .. } = &self.shape { &info.splits } else { &[] }
    }

    fn leaves(&self) -> &[Leaf] {
        if let Shape::Set { features, .. } = &self.shape { &features.leaves } else { &[] }
    }

    /// Returns the number of episodes.
    pub(super) fn total(&self) -> u64 {
        self.splits().last().map_or(0, |last| last.first + last.records())
    }

    /// Returns the split of a position, and the record's number in it.
    fn place(&self, position: u64) -> Option<(u32, u64)> {
        let split = self.splits().partition_point(|split| split.first <= position).checked_sub(1)?;
        let (stored, split) = (self.splits().get(split)?, u32::try_from(split).ok()?);
        Some((split, position - stored.first)).filter(|(_, record)| *record < stored.records())
    }

    /// Returns the positions of a split.
    fn of_split(&self, split: u32) -> Range<u64> {
        self.splits().get(split as usize).map_or(0..0, |split| split.first..split.first + split.records())
    }

    /// Returns the split at the beginning of a path, and the rest of the path.
    fn split<'p>(&self, path: &'p str) -> Option<(u32, &'p str)> {
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let Shape::Set { splits, .. } = &self.shape else { return None };
        Some((u32::try_from(splits.get_index_of(name)?).ok()?, rest))
    }

    /// Returns the record at a position.
    fn look(&self, reader: &ReadContext, position: u64) -> Result<Option<Arc<Record>>, Fault> {
        let Some((split, record)) = self.place(position) else { return Ok(None) };
        self.record(reader, split, record).map(Some)
    }

    /// Returns the numbers of each step in a leaf of one axis.
    fn values(&self, names: &[&str]) -> Option<u64> {
        let is_it = |leaf: &&Leaf| {
            leaf.in_steps && leaf.sequences == 1 && matches!(leaf.kind, LeafKind::Numbers(..)) && leaf.shape.len() == 1
        };
        let mut found = self.leaves().iter().filter(is_it).filter(|leaf| names.contains(&leaf.shown()));
        found.next().and_then(Leaf::elements)
    }

    /// Returns the instruction to the robot, if an episode has one for all steps.
    fn instruction(&self, reader: &ReadContext, record: &Record) -> Result<Option<String>, Fault> {
        let is_text = |leaf: &&Leaf| matches!(leaf.kind, LeafKind::Text);
        let is_named = |leaf: &&Leaf| INSTRUCTIONS.contains(&leaf.shown().rsplit('/').next().unwrap_or_default());
        for leaf in self.leaves().iter().filter(is_text).filter(is_named) {
            let Some(node) = find(record, ROOT, leaf.shown(), ".txt") else { continue };
            if let Some(File::Bytes(view)) = file(record, node)
                && view.size() <= TEXT
                && let Ok(text) = String::from_utf8(view.copy_at(reader, 0, view.size())?)
            {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Returns what the player needs of an episode.
    pub(super) fn timeline_of(&self, reader: &ReadContext, split: u32, record: u64) -> Result<Timeline, Fault> {
        let found = self.record(reader, split, record)?;
        let count = self.splits().get(split as usize).map_or(0, Split::records);
        let name = |record: u64| record.to_string();
        let next = (record + 1 < count).then(|| name(record + 1));
        Ok(Timeline {
            steps: Some(found.steps),
            documents: if found.is_whole { Vec::new() } else { vec![("meta", "meta.json".into())] },
            stacks: Some("images/"),
            neighbours: Some((record.checked_sub(1).map(name), next)),
            ..Timeline::default()
        })
    }
}

/// Returns the folder of a leaf's name below another, and the last part of that name.
fn folder_of<'l>(record: &Record, top: NodeIndex, shown: &'l str) -> Option<(NodeIndex, &'l str)> {
    let (above, last) = shown.rsplit_once('/').map_or((None, shown), |(above, last)| (Some(above), last));
    let mut folder = top;
    for part in above.into_iter().flat_map(|above| above.split('/')) {
        let reserved: &[&str] =
            if folder == ROOT { &[names::RESERVED[0], names::RESERVED[1], IMAGES] } else { &names::RESERVED };
        folder = record.paths.lookup(folder, &names::folder(part.as_bytes(), reserved, 1))?;
    }
    Some((folder, last))
}

/// Returns the node of a leaf's file.
fn find(record: &Record, top: NodeIndex, shown: &str, suffix: &str) -> Option<NodeIndex> {
    let (folder, last) = folder_of(record, top, shown)?;
    record.paths.lookup(folder, &names::file(last.as_bytes(), suffix, 1))
}

fn file(record: &Record, node: NodeIndex) -> Option<&File> {
    match record.paths.kind(node)? {
        Kind::File(file) => record.files.get(file as usize),
        Kind::Folder => None,
    }
}

impl Episodes for Rlds {
    fn count(&self, _: &ReadContext) -> Result<u64, Fault> {
        Ok(self.total())
    }

    fn frames(&self, _: &ReadContext) -> Result<Option<(u64, bool)>, Fault> {
        Ok(None)
    }

    fn summarised(&self) -> u64 {
        SUMMARISED
    }

    fn made(&self) -> (Option<String>, Option<i64>) {
        let version = if let Shape::Set { info, .. } = &self.shape { info.version.clone() } else { None };
        (version, None)
    }

    fn folder(&self, _: &ReadContext, position: u64) -> Result<String, Fault> {
        let (split, record) = self.place(position).unwrap_or_default();
        Ok(format!("{}/{}/{record}", self.split_name(split), self.records_folder()))
    }

    fn position(&self, reader: &ReadContext, path: &str) -> Result<Option<u64>, Fault> {
        let Some((split, rest)) = self.split(path) else { return Ok(None) };
        let Some((folder, number)) = rest.split_once('/') else { return Ok(None) };
        if folder != self.records_folder() {
            return Ok(None);
        }
        let record = self.record_named(reader, split, number)?;
        Ok(record.map(|record| self.of_split(split).start + record))
    }

    fn within(&self, _: &ReadContext, path: &str) -> Result<Range<u64>, Fault> {
        if path.is_empty() {
            return Ok(0..self.total());
        }
        let found = self.split(path).filter(|(_, rest)| rest.is_empty() || *rest == self.records_folder());
        Ok(found.map_or(0..0, |(split, _)| self.of_split(split)))
    }

    fn episode(&self, reader: &ReadContext, position: u64) -> Result<Option<Episode>, Fault> {
        let (Some((_, id)), Some(record)) = (self.place(position), self.look(reader, position)?) else {
            return Ok(None);
        };
        let said = match record.is_whole {
            true => None,
            false => Some(Said {
                embodiment: None,
                task: self.instruction(reader, &record)?,
                fps: None,
                success: None,
                total_reward: None,
            }),
        };
        let (state, action) = (self.values(&STATES), self.values(&[ACTION]));
        Ok(Some(Episode { position, id, frames: record.steps, state, action, said }))
    }

    fn cameras(&self, reader: &ReadContext, position: u64, frames: &mut u64) -> Result<Vec<Camera>, String> {
        let record = self.look(reader, position).map_err(|_| "damaged")?.ok_or("there is no such episode")?;
        if record.is_whole {
            return Err("damaged".into());
        }
        let Some(images) = record.paths.lookup(ROOT, IMAGES) else { return Ok(Vec::new()) };
        *frames = frames.checked_sub(record.steps).ok_or("too many frames to look at")?;
        let is_camera =
            |leaf: &&Leaf| leaf.in_steps && leaf.sequences == 1 && matches!(leaf.kind, LeafKind::Picture(..));
        let cameras = self.leaves().iter().filter(is_camera).filter_map(|leaf| {
            let (folder, last) = folder_of(&record, images, leaf.shown())?;
            let own = record.paths.lookup(folder, &names::folder(last.as_bytes(), &names::RESERVED, 1))?;
            let mut kinds = Vec::new();
            let mut pictures = 0;
            for (name, _) in record.paths.children(own) {
                let kind = match name.rsplit('.').next() {
                    Some("jpg") => "jpeg",
                    Some("png") => "png",
                    _ => "unknown",
                };
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
                pictures += 1;
            }
            let size = match find(&record, images, leaf.shown(), ".npy").and_then(|stack| file(&record, stack)) {
                Some(File::Array(stack)) => match stack.shape[..] {
                    [_, height, width, channels] => Some((width as u32, height as u32, channels as u8)),
                    _ => None,
                },
                _ => None,
            };
            Some(Camera { name: leaf.shown().to_owned(), pictures, size, encoding: kinds.join("+") })
        });
        Ok(cameras.collect())
    }
}
