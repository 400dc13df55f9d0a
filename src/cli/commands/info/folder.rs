//! A folder of containers: a line for each container in it, and what lies in the folders below.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{count, escape, lines, names};
use crate::{
    cli::{Place, counted},
    vfs::FileKind,
    volume::{Entry, Error, ErrorKind, Met},
};

/// A container in a folder: what it is, or why it cannot be opened.
struct Listed {
    /// Its path, as the volume has it.
    path: PathBuf,
    what: Result<ContainerLine, String>,
    /// The container that shows it as a part of itself.
    part_of: Option<PathBuf>,
}

/// What is said of a container in a folder. Keeps no items: a folder may have many containers.
struct ContainerLine {
    format: &'static str,
    format_name: &'static str,
    number: u64,
    kind: &'static str,
}

/// A folder in a folder: how much is below it, or why it cannot be read.
struct Below {
    name: OsString,
    counts: Result<Counts, String>,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    containers: u64,
    /// Files that are no containers, and links that are not followed.
    others: u64,
    /// Containers that others show as parts of themselves. They are not among `containers`.
    parts: u64,
}

impl Counts {
    /// Returns `2 containers, 1 other file`.
    fn text(self) -> String {
        format!("{}, {}", counted(self.containers, "container"), counted(self.others, "other file"))
    }
}

/// What a folder has.
pub(super) struct Folder<'a> {
    path: &'a Path,
    containers: Vec<Listed>,
    folders: Vec<Below>,
    own: Counts,
}

impl<'a> Folder<'a> {
    /// Lists a folder. Containers that others show as parts of themselves are listed only with `parts`.
    pub(super) fn read(place: &Place, path: &'a Path, parts: bool) -> anyhow::Result<Self> {
        let (mut containers, mut folders, mut own) = (Vec::new(), Vec::new(), Counts::default());
        let mut joined = Joined::new();
        for (name, kind) in names(&place.entry, path)? {
            let Some(found) = place.entry.child(&name)?.filter(|_| kind == FileKind::Folder) else {
                own.others += 1;
                continue;
            };
            let what = match found.overview() {
                Ok(Some(overview)) => {
                    let (number, kind) = count(&overview.contents);
                    Ok(ContainerLine { format: overview.format, format_name: overview.format_name(), number, kind })
                }
                Ok(None) => {
                    folders.push(Below { name, counts: count_below(&found).map_err(|error| error.detail()) });
                    continue;
                }
                Err(error) => Err(error.detail()),
            };
            note_joins(&mut joined, &found, found.joins());
            containers.push(Listed { path: found.path().into(), what, part_of: None });
        }
        for container in &mut containers {
            container.part_of = joined.remove(&container.path);
        }
        if !parts {
            let all = containers.len();
            containers.retain(|container| container.part_of.is_none());
            own.parts = (all - containers.len()) as u64;
        }
        own.containers = containers.len() as u64;
        Ok(Self { path, containers, folders, own })
    }

    /// Prints it for people.
    pub(super) fn describe(&self, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(out, "{}", escape::path(self.path))?;
        let shown = |name: &OsStr| lines::shown(&name.to_string_lossy(), usize::MAX);
        for Listed { path, what, part_of } in &self.containers {
            let what = match what {
                Ok(ContainerLine { format_name, number, kind, .. }) => {
                    format!("{format_name}, {}", counted(*number, kind))
                }
                Err(reason) => format!("can't be opened: {reason}"),
            };
            let part = part_of.as_deref().map(|of| format!(", part of {}", name(of).display()));
            let what = format!("{what}{}", part.unwrap_or_default());
            writeln!(out, "  {}: {}", shown(name(path)), escape::escaped(&what))?;
        }
        let mut all = self.own;
        for Below { name: own, counts } in &self.folders {
            let what = match counts {
                Ok(counts) => {
                    all.containers += counts.containers;
                    all.others += counts.others;
                    all.parts += counts.parts;
                    counts.text()
                }
                Err(reason) => format!("can't be read: {reason}"),
            };
            writeln!(out, "  {}/: {}", shown(own), escape::escaped(&what))?;
        }
        let front = if self.folders.is_empty() { "" } else { "in all: " };
        writeln!(out, "  {front}{}", all.text())?;
        if all.parts > 0 {
            let parts = counted(all.parts, "container");
            writeln!(out, "  left out: {parts} that others show joined (--parts lists those of this folder)")?;
        }
        Ok(())
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> Value {
        let place = |name: &OsStr| self.path.join(name).to_string_lossy().into_owned();
        let container = |Listed { path, what, part_of }: &Listed| {
            let mut object = json!({"path": place(name(path))});
            match what {
                Ok(ContainerLine { format, number, kind, .. }) => {
                    object["format"] = (*format).into();
                    object[format!("{kind}s")] = (*number).into();
                }
                Err(reason) => object["error"] = reason.clone().into(),
            }
            if let Some(of) = part_of {
                object["part_of"] = place(name(of)).into();
            }
            object
        };
        let folder = |Below { name, counts }: &Below| match counts {
            Ok(Counts { containers, others, parts }) => {
                json!({"path": place(name), "containers": containers, "others": others, "parts": parts})
            }
            Err(reason) => json!({"path": place(name), "error": reason}),
        };
        let containers: Vec<Value> = self.containers.iter().map(container).collect();
        let folders: Vec<Value> = self.folders.iter().map(folder).collect();
        json!({"folder": self.path.to_string_lossy(), "containers": containers, "others": self.own.others,
               "parts": self.own.parts, "folders": folders})
    }
}

/// Returns the last name of a path.
fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Containers that others show as parts of themselves, with those others.
type Joined = HashMap<PathBuf, PathBuf>;

/// Notes what a container joins. Returns whether it may be a part of another one itself.
fn note_joins(joined: &mut Joined, container: &Entry, joins: Result<Option<Vec<PathBuf>>, Error>) -> bool {
    // Why it cannot be opened is said of the container.
    let Ok(Some(joins)) = joins else { return false };
    joined.extend(joins.into_iter().map(|part| (part, container.path().to_owned())));
    true
}

/// Counts what lies below a folder. Opens no containers but those that join others.
fn count_below(top: &Entry) -> Result<Counts, Error> {
    let (mut counts, mut joined, mut candidates) = (Counts::default(), Joined::new(), Vec::new());
    let mut failed = None;
    top.search(&mut |met| {
        match met {
            Met::Container(entry) => {
                counts.containers += 1;
                if note_joins(&mut joined, &entry, entry.joins_at_sight()) {
                    candidates.push(entry.path().to_owned());
                }
            }
            Met::Other(_) => counts.others += 1,
            // What this user may not see is not counted.
            Met::Failed(path, error) if error.kind() == ErrorKind::PermissionDenied && path != top.path() => {}
            Met::Failed(_, error) => failed = Some(error),
            Met::End => {}
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let is_part = |path: &&PathBuf| joined.contains_key(*path);
    counts.parts = candidates.iter().filter(is_part).count() as u64;
    counts.containers -= counts.parts;
    Ok(counts)
}
