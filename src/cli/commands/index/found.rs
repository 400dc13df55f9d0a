//! What the index says of one container.

use std::{collections::HashMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    cli::options::place::folders_with,
    escape,
    vfs::{Attr, SeenContainer},
    volume::{Entry, Error, ErrorKind},
};

/// Episodes of a container whose tasks are compared, at most.
const TASKS: u64 = 100;

/// Most camera folders that are named; more are not counted.
const CAMERAS: usize = 100;

/// A row of the index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Path below SOURCE.
    pub(super) path: String,
    /// The state of the file. If it is the same, so is everything else.
    pub(super) state: String,
    pub(super) format: Option<String>,
    pub(super) version: Option<String>,
    /// Bytes of the file; `None` for a folder.
    pub(super) size: Option<u64>,
    /// When it was modified, in microseconds since 1970.
    pub(super) modified: i64,
    pub(super) episodes: Option<u64>,
    pub(super) episode_id: Option<String>,
    pub(super) task: Option<String>,
    pub(super) steps: Option<u64>,
    pub(super) cameras: Option<String>,
    /// What is wrong with it, as far as that is known without decoding.
    pub(super) problem: Option<String>,
    /// Path of the container that shows it as a part of itself.
    pub(super) part_of: Option<String>,
    /// Paths of the containers that it shows as parts of itself.
    pub(super) joins: Vec<String>,
}

impl Row {
    /// Returns the row of a container of which only the file is known yet.
    pub(super) fn of(path: String, seen: SeenContainer, attr: &Attr) -> Self {
        let SeenContainer { format, size, state } = seen;
        Self { path, state, format: Some(format.into()), size, modified: microseconds(attr), ..Self::default() }
    }

    /// Returns the row of a file that looks like a container but cannot be opened.
    pub(super) fn damaged(path: &Path, attr: &Attr, problem: String) -> Self {
        let (size, modified) = (Some(attr.size), microseconds(attr));
        Self { path: shown(path), size, modified, problem: Some(problem), ..Self::default() }
    }
}

impl Row {
    /// Returns whether another run found something else. Containers of several files have a new state in each run.
    pub(super) fn differs(&self, other: &Self) -> bool {
        Self { state: other.state.clone(), ..self.clone() } != *other
    }

    /// Returns whether the index has the row, with or without parts of others.
    pub(super) fn is_shown(&self, parts: bool) -> bool {
        parts || self.part_of.is_none()
    }
}

/// Marks the rows of containers that others show as parts of themselves.
pub(super) fn mark_parts(rows: &mut [Row]) {
    let joined = rows.iter().flat_map(|row| row.joins.iter().map(|part| (part.clone(), row.path.clone())));
    let mut joined: HashMap<String, String> = joined.collect();
    for row in rows {
        row.part_of = joined.remove(&row.path);
    }
}

fn microseconds(attr: &Attr) -> i64 {
    let (seconds, nanos) = attr.mtime;
    seconds.saturating_mul(1_000_000).saturating_add(i64::from(nanos / 1000))
}

/// Returns a path as text. Bytes that are not UTF-8 are escaped as in paths inside containers (`docs/TREE.md`, Names).
pub(super) fn shown(path: &Path) -> String {
    let part = |part: &OsStr| match part.to_str() {
        Some(text) => text.to_owned(),
        None => escape::escape(part.as_bytes()),
    };
    path.iter().map(part).collect::<Vec<_>>().join("/")
}

/// The fields of `container.json` that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Description {
    version: Value,
    episode: Option<Episode>,
    episodes: Option<u64>,
    items: Vec<Item>,
    tables: Vec<Table>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Episode {
    episode_id: Option<String>,
    env_id: Option<String>,
    #[serde(rename = "length_T")]
    steps: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Item {
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Table {
    path: String,
    rows: Option<u64>,
}

/// Looks into a container as far as possible without decoding. If something fails, the row has what was found before.
pub(super) fn look_into(container: &Entry, mut row: Row) -> (Row, Option<Error>) {
    let failed = fill(container, &mut row).err();
    if let Some(error) = &failed {
        row.problem = Some(error.detail());
    }
    (row, failed)
}

fn fill(container: &Entry, row: &mut Row) -> Result<(), Error> {
    let Some(warnings) = container.warnings()? else { return Ok(()) };
    row.problem = warnings.into_iter().next();
    let Some(description) = container.description()? else { return Ok(()) };
    let Ok(described) = serde_json::from_slice::<Description>(&description) else { return Ok(()) };
    drop(description);
    let Description { version, episode, episodes, items, tables } = described;
    row.version = match version {
        Value::String(version) => Some(version),
        Value::Null => None,
        version => Some(version.to_string()),
    };
    let shown_joined = container.joins()?.unwrap_or_default();
    row.joins = shown_joined.iter().map(|path| shown(below(path, container, &row.path))).collect();
    if row.problem.is_none() {
        row.problem = items.into_iter().find_map(|item| item.error);
    }
    let rows_of_steps = tables.iter().find(|table| table.path == "steps.parquet").and_then(|table| table.rows);
    if let Some(count) = episodes {
        row.episodes = Some(count);
        row.steps = match rows_of_steps {
            None => {
                container.episodes_of(|episodes, reader| episodes.frames(reader))?.flatten().map(|(frames, _)| frames)
            }
            steps => steps,
        };
        row.task = task(container, count)?;
        if count > 0 {
            row.cameras = cameras(container, &format!("{}/images", container.episode_folder(0)?))?;
        }
    } else if let Some(episode) = episode {
        row.episodes = Some(1);
        row.steps = episode.steps.or(rows_of_steps);
        (row.episode_id, row.task) = (episode.episode_id, episode.env_id);
        row.cameras = cameras(container, "images")?;
    } else if let Some(steps) = rows_of_steps {
        // A joined episode.
        row.steps = Some(steps);
        row.cameras = cameras(container, "images")?;
    }
    Ok(())
}

/// Returns the path of a container beside another one, below the folder that `known`, the other's path, is below.
fn below<'a>(path: &'a Path, container: &Entry, known: &str) -> &'a Path {
    let depth = container.path().components().count().saturating_sub(known.split('/').count());
    let mut parts = path.components();
    parts.by_ref().take(depth).for_each(drop);
    parts.as_path()
}

/// Returns the task of a container of episodes, if its first ones agree on one.
fn task(container: &Entry, episodes: u64) -> Result<Option<String>, Error> {
    let mut task = None;
    let most = container.episodes_of(|episodes, _| Ok(episodes.summarised()))?.unwrap_or(0);
    for position in 0..episodes.min(TASKS).min(most) {
        let Some(said) = container.episode(position)?.and_then(|episode| episode.said) else { continue };
        if *task.get_or_insert_with(|| said.task.clone()) != said.task {
            return Ok(None);
        }
    }
    Ok(task.flatten())
}

/// Returns the paths of camera folders below a folder of pictures, separated by commas; a comma in a name becomes `%2C`.
/// `None` if there are none.
fn cameras(container: &Entry, images: &str) -> Result<Option<String>, Error> {
    let images = match container.get(images) {
        Ok(images) => images,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // At the top, stacks of frames are listed between the folders.
    let found = folders_with(&images, |folder, _| !folder.is_empty())?;
    let found: Vec<String> = found.into_iter().take(CAMERAS).map(|(path, _)| path.replace(',', "%2C")).collect();
    Ok((!found.is_empty()).then(|| found.join(",")))
}
