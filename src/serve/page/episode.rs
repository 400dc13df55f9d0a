//! What the player of an episode needs: cameras with the numbers of their frames, signals, metadata.

use std::{borrow::Cow, collections::HashMap, ops::ControlFlow, path::Path};

use serde::Serialize;

use super::{
    elements::Elements,
    folder,
    html::{Html, counted},
    meta,
};
use crate::{
    format::{DType, ElementType},
    serve::http::paths,
    tree::overview::{Contents, Item, Overview},
    vfs::FileKind,
    volume::{Entry, Error},
};

/// Cameras that are shown.
const CAMERAS: usize = 32;
/// Folders below `images/` that are looked into, and how deep.
const FOLDERS: usize = 256;
const DEPTH: usize = 8;
/// Most runs of frame numbers, over all cameras. Frames after the last run are left out.
const RUNS: usize = 10_000;
/// Entries of an episode's folder that are looked at.
const ENTRIES: usize = 256;
/// Signals that get a curve.
const SIGNALS: usize = 96;
/// Most elements of a step for which curves are drawn.
const WIDEST: u64 = 512;
/// Most bytes of texts that are read, with one text for each step.
const TEXTS: u64 = 1 << 20;

/// An episode.
#[derive(Debug, Serialize)]
pub(super) struct Episode {
    /// Steps in time.
    pub(super) steps: u64,
    /// Steps per second, if the container says it.
    pub(super) rate: Option<f64>,
    /// The path of an array with the time of each step in nanoseconds, if steps are not evenly spaced.
    times: Option<String>,
    pub(super) cameras: Vec<Camera>,
    /// Folders of signals, in the order in which they are shown.
    pub(super) groups: Vec<Group>,
    /// The path of an array that holds a text for each step: what was said or asked for.
    texts: Option<String>,
    /// What the player does not show, in sentences.
    #[serde(skip)]
    pub(super) left_out: Vec<String>,
    /// Documents of metadata, with the name of each.
    #[serde(skip)]
    pub(super) meta: Vec<(&'static str, Html)>,
    /// Addresses of the episodes before and after it, if they are known without listing a folder.
    #[serde(skip)]
    pub(super) neighbours: Neighbours,
}

/// Addresses of the episodes before and after one.
#[derive(Debug, Default, Serialize)]
pub(super) struct Neighbours {
    pub(super) previous: Option<String>,
    pub(super) next: Option<String>,
}

/// A camera.
#[derive(Debug, Serialize)]
pub(super) struct Camera {
    pub(super) name: String,
    /// The address of the folder of its frames, with a slash behind it.
    pub(super) folder: String,
    /// Frames with numbers that follow each other.
    pub(super) runs: Vec<Run>,
    /// Width and height of a frame in pixels, if the container says it.
    pub(super) size: Option<(u64, u64)>,
    /// The path of the array of all frames, if pixels have 16 bits. A browser shows only the upper 8 bits, which hold
    /// next to nothing of a depth in millimetres.
    pub(super) depth: Option<String>,
}

/// `count` frames of a camera from number `first` on. A file's name is the number with `digits` digits, and `suffix`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Run {
    first: u64,
    count: u64,
    digits: usize,
    suffix: &'static str,
}

/// Signals of one folder.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) signals: Vec<Signal>,
}

/// An array with a row for each step.
#[derive(Debug, Serialize)]
pub(super) struct Signal {
    name: String,
    /// Its path for the routes of arrays.
    path: String,
    dtype: Cow<'static, str>,
    columns: u64,
    unit: Option<String>,
}

/// An array of an episode, by its path in it.
struct Found {
    path: String,
    dtype: ElementType,
    shape: Vec<u64>,
}

impl Found {
    /// Elements of a row.
    fn columns(&self) -> u64 {
        self.shape.iter().skip(1).fold(1, |all, axis| all.saturating_mul(*axis))
    }
}

impl Episode {
    /// Returns the episode of a folder; `None` if the folder is none. `inside` is its path in its container, and
    /// `overview` describes the container.
    ///
    /// # Errors
    /// Those of listing the folder.
    pub(super) fn of(folder: &Entry, overview: &Overview, inside: &str) -> Result<Option<Self>, Error> {
        let Some(timeline) = folder.timeline()? else { return Ok(None) };
        let (found, has_all) = match &overview.contents {
            Contents::Items { items, .. } if inside.is_empty() => (of_items(items), true),
            _ => of_folder(folder)?,
        };
        let documents = timeline.documents.iter();
        let meta =
            documents.filter_map(|(name, path)| Some((*name, meta::document(&folder.get(path).ok()?)?))).collect();
        let (mut cameras, has_all_frames) = cameras(folder)?;
        let mut stacks = Vec::new();
        for camera in &mut cameras {
            let path = timeline.stacks.map(|stacks| format!("{stacks}{}.npy", camera.name));
            let Some(stack) = found.iter().find(|found| Some(&found.path) == path.as_ref()) else { continue };
            if let [_, height, width] | [_, height, width, _] = stack.shape[..] {
                camera.size = Some((width, height));
            }
            stacks.push(&*stack.path);
            if stack.dtype == DType::U16 {
                camera.depth = Some(paths::encode(&folder.path().join(&stack.path)));
            }
        }
        let steps = timeline.steps.unwrap_or_else(|| steps(&cameras, &found));
        let (signals, wide): (Vec<&Found>, Vec<&Found>) =
            found.iter().filter(|found| is_signal(found, steps)).partition(|found| found.columns() <= WIDEST);
        let wide = wide.iter().filter(|found| !stacks.contains(&&*found.path)).count();
        let count = signals.len();
        let left_out = [
            (count > SIGNALS).then(|| format!("Curves are drawn of the first {SIGNALS} of {count} signals.")),
            (wide > 0).then(|| {
                format!("{} with more than {WIDEST} values a step: no curves.", counted(wide as u64, "array"))
            }),
            (!has_all).then(|| format!("Only the first {ENTRIES} entries of each folder are looked at for signals.")),
            (!has_all_frames).then(|| format!("Some frames are not shown; at most {CAMERAS} cameras are.")),
        ];
        let left_out = left_out.into_iter().flatten().collect();
        let groups = groups(folder, &signals, &timeline.units);
        let texts = found.iter().find(|found| is_text(found) && found.shape.first() == Some(&steps));
        let texts = texts.map(|found| paths::encode(&folder.path().join(&found.path)));
        let times = timeline.times.map(|path| paths::encode(&folder.path().join(path)));
        let beside = folder.path().parent().unwrap_or(Path::new(""));
        let address = |name: String| format!("/files/{}/", paths::encode(&beside.join(name)));
        let (previous, next) = timeline.neighbours.unwrap_or_default();
        let neighbours = Neighbours { previous: previous.map(address), next: next.map(address) };
        Ok(Some(Self { steps, rate: timeline.rate, times, cameras, groups, texts, left_out, meta, neighbours }))
    }

    /// Returns the address of a camera's first frame.
    pub(super) fn first_frame(camera: &Camera) -> Option<String> {
        let Run { first, digits, suffix, .. } = camera.runs.first()?;
        let digits = *digits;
        Some(format!("{}{first:0digits$}{suffix}", camera.folder))
    }
}

/// Returns the arrays among the items of a container.
fn of_items(items: &[Item]) -> Vec<Found> {
    let sound = items.iter().filter(|item| item.error.is_none());
    let found = sound.filter_map(|item| {
        let (dtype, shape) = (item.info.dtype.clone()?, item.info.shape.clone()?);
        Some(Found { path: item.path.clone(), dtype, shape })
    });
    found.collect()
}

/// Returns the arrays in a folder, and whether these are all.
fn of_folder(folder: &Entry) -> Result<(Vec<Found>, bool), Error> {
    let (mut found, mut has_all, mut folders) = (Vec::new(), true, vec![(String::new(), folder.clone())]);
    while let Some((above, own)) = folders.pop() {
        let rows = folder::first_rows(&own, ENTRIES + 1)?;
        has_all &= rows.len() <= ENTRIES;
        for row in rows.iter().take(ENTRIES) {
            let Some(name) = row.name().to_str() else { continue };
            // The tree leaves out damaged parts.
            let Ok(entry) = own.get(name) else { continue };
            if entry.is_folder() {
                // Pictures are those of cameras. Arrays are at most one folder deep.
                if above.is_empty() && name != "images" {
                    folders.push((format!("{name}/"), entry));
                }
            } else if name.ends_with(".npy")
                && let Some((dtype, shape)) = entry.array_type()?
            {
                found.push(Found { path: format!("{above}{name}"), dtype, shape });
            }
        }
    }
    Ok((found, has_all))
}

/// Guesses the number of steps: the most common length of arrays, or the end of the longest camera if that is more.
fn steps(cameras: &[Camera], found: &[Found]) -> u64 {
    let frames =
        cameras.iter().filter_map(|camera| camera.runs.last()).map(|run| run.first.saturating_add(run.count)).max();
    let mut lengths: HashMap<u64, usize> = HashMap::new();
    for length in found.iter().filter_map(|found| found.shape.first()) {
        *lengths.entry(*length).or_default() += 1;
    }
    let common = lengths.into_iter().max_by_key(|&(length, count)| (count, length)).map_or(0, |(length, _)| length);
    frames.unwrap_or(0).max(common)
}

/// Returns whether an array holds a text for each step, padded with NUL.
fn is_text(found: &Found) -> bool {
    found.dtype == DType::U8 && found.shape.len() == 2 && found.path.ends_with("language.npy")
}

/// Returns the texts of such an array; none if it is too long.
///
/// # Errors
/// Those of reading it.
pub(super) fn texts(array: &Elements) -> Result<Vec<String>, Error> {
    if array.rows.saturating_mul(array.columns) > TEXTS || array.columns == 0 {
        return Ok(Vec::new());
    }
    let bytes = array.read(0, array.rows * array.columns)?;
    let text = |row: &[u8]| String::from_utf8_lossy(row).trim_end_matches('\0').to_owned();
    Ok(bytes.chunks_exact(array.columns as usize).map(text).collect())
}

/// Returns whether an array has values of each step.
fn is_signal(found: &Found, steps: u64) -> bool {
    let is_time = found.path.starts_with("time/");
    found.shape.first() == Some(&steps) && found.columns() > 0 && !is_text(found) && !is_time
}

/// Groups signals by their folder.
fn groups(folder: &Entry, signals: &[&Found], units: &HashMap<String, String>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for found in signals.iter().take(SIGNALS) {
        let stored = found.path.strip_suffix(".npy").unwrap_or(&found.path);
        let (group, name) = stored.split_once('/').unwrap_or((stored, stored));
        let signal = Signal {
            name: name.to_owned(),
            path: paths::encode(&folder.path().join(&found.path)),
            dtype: found.dtype.name(),
            columns: found.columns(),
            unit: units.get(stored).cloned(),
        };
        match groups.iter_mut().find(|known| known.name == group) {
            Some(known) => known.signals.push(signal),
            None => groups.push(Group { name: group.to_owned(), signals: vec![signal] }),
        }
    }
    let place = |group: &Group| {
        ["signal", "state", "action", "reward", "done", "is_terminal"].iter().position(|name| *name == group.name)
    };
    groups.sort_by_key(|group| place(group).unwrap_or(usize::MAX));
    groups
}

/// Returns the folders below `images/` that hold frames, and whether these are all frames.
fn cameras(episode: &Entry) -> Result<(Vec<Camera>, bool), Error> {
    let Ok(images) = episode.get("images") else { return Ok((Vec::new(), true)) };
    let mut open = vec![(images, String::new(), 0)];
    let (mut cameras, mut looked_into, mut left, mut has_all) = (Vec::new(), 0, RUNS, true);
    while let Some((folder, name, depth)) = open.pop() {
        looked_into += 1;
        if looked_into > FOLDERS || cameras.len() == CAMERAS {
            has_all = false;
            break;
        }
        let (mut runs, mut inner): (Vec<Run>, Vec<String>) = (Vec::new(), Vec::new());
        folder.names(&mut |name, kind| {
            let Some(name) = name.to_str() else { return ControlFlow::Continue(()) };
            match kind {
                FileKind::Folder if depth < DEPTH && inner.len() < FOLDERS => inner.push(name.to_owned()),
                FileKind::File => add_frame(&mut runs, name),
                _ => {}
            }
            let is_full = runs.len() > left;
            has_all &= !is_full;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let below = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}/{inner}") };
        for inner in inner.iter().rev() {
            // Folders that are gone since they were listed are left out.
            let Ok(found) = folder.get(inner) else { continue };
            open.push((found, below(inner), depth + 1));
        }
        left = left.saturating_sub(runs.len());
        if !runs.is_empty() {
            cameras.push(Camera { name, folder: paths::address(&folder), runs, size: None, depth: None });
        }
    }
    Ok((cameras, has_all))
}

/// Adds a frame by the name of its file; other names are ignored.
fn add_frame(runs: &mut Vec<Run>, name: &str) {
    let Some((digits, suffix)) = name.split_once('.') else { return };
    let suffix = match suffix {
        "png" => ".png",
        "jpg" => ".jpg",
        _ => return,
    };
    let Some(number) = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit())) else {
        return;
    };
    let (digits, next) = (digits.len(), Run { first: number, count: 1, digits: digits.len(), suffix });
    match runs.last_mut() {
        Some(run)
            if run.first.checked_add(run.count) == Some(number) && run.digits == digits && run.suffix == suffix =>
        {
            run.count += 1
        }
        _ => runs.push(next),
    }
}

/// Returns the containers of the same suffix before and after one in its folder.
///
/// # Errors
/// Those of listing the folder.
pub(super) fn neighbours(volume: &crate::volume::Volume, entry: &Entry) -> Result<Neighbours, Error> {
    let Some(parent) = entry.path().parent() else { return Ok(Neighbours::default()) };
    let folder = volume.get(parent)?;
    let suffix = entry.path().extension();
    let (mut before, mut after, mut is_behind) = (None, None, false);
    folder.names(&mut |name, kind| {
        let is_like = kind == FileKind::Folder && Path::new(name).extension() == suffix;
        if name == entry.name() {
            is_behind = true;
        } else if is_like && is_behind {
            after = Some(name.to_owned());
            return ControlFlow::Break(());
        } else if is_like {
            before = Some(name.to_owned());
        }
        ControlFlow::Continue(())
    })?;
    let address = |name: std::ffi::OsString| format!("/files/{}/", paths::encode(&parent.join(name)));
    Ok(Neighbours { previous: before.map(address), next: after.map(address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_runs() {
        let mut runs = Vec::new();
        for name in ["000.png", "001.png", "003.png", "003%_2.png", "004.jpg", "x.png", "005.npy", "1000.jpg"] {
            add_frame(&mut runs, name);
        }
        let run = |first, count, digits, suffix| Run { first, count, digits, suffix };
        let expected = [run(0, 2, 3, ".png"), run(3, 1, 3, ".png"), run(4, 1, 3, ".jpg"), run(1000, 1, 4, ".jpg")];
        assert_eq!(runs, expected);
    }
}
