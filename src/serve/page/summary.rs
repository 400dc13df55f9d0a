//! One line of what a container holds.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::html::{self, counted};
use crate::{
    escape::shortened,
    format::{DType, ElementType},
    tree::{
        Overview,
        overview::{Contents, Item},
    },
    volume::Entry,
};

/// Episodes of a file whose tasks are looked at.
const EPISODES: u64 = 20;
/// Characters of a task that are shown.
const TASK: usize = 60;

/// The line, and what is known to be wrong.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    format: String,
    text: String,
    /// The size of its file, for people.
    size: String,
    /// Why the container, or a part of it, can't be shown.
    damage: Option<String>,
}

/// Summarises what a container holds. One that can't be opened counts as damaged.
pub(super) fn summary(container: &Entry) -> Summary {
    match container.overview() {
        Ok(Some(overview)) => Summary {
            text: line(container, &overview),
            size: container.get(".file").map_or_else(|_| String::new(), |file| html::size(file.size())),
            format: overview.format_name().into(),
            damage: damage(&overview),
        },
        Ok(None) => Summary::default(),
        Err(error) => Summary { damage: Some(error.to_string()), ..Summary::default() },
    }
}

fn damage(overview: &Overview) -> Option<String> {
    match &overview.contents {
        Contents::Items { items, .. } => {
            let item = items.iter().find(|item| item.error.is_some())?;
            Some(format!("{}: {}", item.path, item.error.as_deref().unwrap_or_default()))
        }
        Contents::Table(table) => {
            let column = table.columns.iter().find(|column| column.unusable.is_some())?;
            let (status, reason) = column.unusable.as_ref()?;
            Some(format!("column {} is {status}: {reason}", column.name))
        }
        Contents::Episodes { .. } | Contents::Recording(_) => None,
    }
}

/// Returns the line: parts with a dot between them.
pub(super) fn line(container: &Entry, overview: &Overview) -> String {
    let parts = match &overview.contents {
        Contents::Items { front, items } => items_line(front, items),
        Contents::Table(table) => {
            vec![counted(table.rows, "row"), counted(table.column_count.into(), "column")]
        }
        Contents::Episodes { count, .. } => episodes_line(container, *count),
        Contents::Recording(recording) => {
            vec![counted(recording.messages, "message"), counted(recording.topic_count, "topic")]
        }
    };
    parts.join(" · ")
}

fn items_line(front: &Map<String, Value>, items: &[Item]) -> Vec<String> {
    let mut parts = Vec::new();
    let episode = front.get("episode");
    let text = |name: &str| episode.and_then(|episode| episode.get(name)).and_then(Value::as_str);
    if let Some(steps) = episode.and_then(|episode| episode.get("length_T")).and_then(Value::as_u64) {
        parts.push(counted(steps, "step"));
        let cameras = items.iter().filter(|item| is_camera(item)).count() as u64;
        if cameras > 0 {
            parts.push(counted(cameras, "camera"));
        }
        parts.extend(text("env_id").map(|env| shortened(env, TASK)));
    }
    let rows = |path: &str| {
        items.iter().find(|item| item.path == path).and_then(|item| Some(*item.info.shape.as_ref()?.first()?))
    };
    if rows("nodes/time.npy").is_some() {
        let tables = [
            ("nodes/time.npy", "node"),
            ("edges/left.npy", "edge"),
            ("sites/position.npy", "site"),
            ("mutations/site.npy", "mutation"),
            ("individuals/flags.npy", "individual"),
        ];
        let counts = tables.iter().filter_map(|(path, noun)| Some(counted(rows(path)?, noun)));
        parts.push("tree sequence".into());
        parts.extend(counts);
    }
    if parts.is_empty() {
        parts.push(counted(items.len() as u64, "item"));
    }
    parts
}

/// Returns whether the tree has pictures of an item, by its shape, as `docs/TREE.md` (section 3) says.
fn is_camera(item: &Item) -> bool {
    let shape = item.info.shape.as_deref().unwrap_or_default();
    let is_pixel = matches!(item.info.dtype, Some(ElementType::Plain(DType::U8 | DType::U16)));
    is_pixel
        && item.path.starts_with("signal/")
        && match shape {
            [_, _, _, channels] => matches!(channels, 1 | 3 | 4),
            [_, height, width] => *height > 1 && *width > 1,
            _ => false,
        }
}

fn episodes_line(container: &Entry, count: u64) -> Vec<String> {
    let mut tasks: BTreeMap<String, u64> = BTreeMap::new();
    let most = container.episodes_of(|episodes, _| Ok(episodes.summarised())).ok().flatten().unwrap_or(0);
    let (mut frames, looked_at) = (0, count.min(EPISODES).min(most));
    for position in 0..looked_at {
        let Some(episode) = container.episode(position).ok().flatten() else { continue };
        let Some(said) = episode.said else { continue };
        frames = episode.frames.saturating_add(frames);
        *tasks.entry(shortened(said.task.as_deref().unwrap_or_default(), TASK)).or_default() += 1;
    }
    let mut parts = vec![counted(count, "episode")];
    if looked_at == count {
        parts.push(counted(frames, "frame"));
    }
    let mut tasks: Vec<_> = tasks.into_iter().filter(|(task, _)| !task.is_empty()).collect();
    tasks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = tasks.len().saturating_sub(2);
    parts.extend(tasks.into_iter().take(2).map(|(task, _)| format!("“{task}”")));
    if more > 0 {
        parts.push(counted(more as u64, "other task"));
    }
    parts
}
