//! A folder of containers: a line for each container in it, and what lies in the folders below.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{count, escape, lines, names};
use crate::{
    cli::{Place, counted},
    volume::{Entry, Error, ErrorKind, Met},
};

/// A container or a folder in a folder, or why it cannot be read.
struct Line {
    /// Its path, as the volume has it.
    path: PathBuf,
    /// For programs.
    object: Value,
    /// For people.
    text: String,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    containers: u64,
    /// Files that are no containers, and links that are not followed.
    others: u64,
    /// Containers that others show as parts of themselves. They are not among `containers`.
    parts: u64,
    /// What cannot be looked at.
    unread: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.containers += other.containers;
        self.others += other.others;
        self.parts += other.parts;
        self.unread += other.unread;
    }

    /// Returns `2 containers, 1 other file`.
    fn text(self) -> String {
        let unread = if self.unread > 0 { format!(", {} that can't be read", self.unread) } else { String::new() };
        format!("{}, {}{unread}", counted(self.containers, "container"), counted(self.others, "other file"))
    }
}

/// What a folder has.
pub(super) struct Folder<'a> {
    path: &'a Path,
    containers: Vec<Line>,
    folders: Vec<Line>,
    own: Counts,
    /// With what is in the folders below.
    all: Counts,
    /// Whether a container in it cannot be opened.
    has_unopened: bool,
}

impl<'a> Folder<'a> {
    /// Lists a folder. Containers that others show as parts of themselves are listed only with `parts`.
    pub(super) fn read(place: &Place, path: &'a Path, parts: bool) -> anyhow::Result<Self> {
        let (mut containers, mut folders, mut has_unopened) = (Vec::new(), Vec::new(), false);
        let mut unknown = 0;
        let (mut own, mut below, mut joined) = (Counts::default(), Counts::default(), Joined::new());
        let shown = |name: &OsStr| path.join(name);
        for (name, _) in names(&place.entry, path)? {
            let (shown, path) = (shown(&name), place.entry.path().join(&name));
            let line =
                |object, text| Line { path: path.clone(), object: escape::with_hex(object, "path", &shown), text };
            let failed = |what: &str, error: Error| {
                let reason = error.detail();
                line(json!({"path": shown.to_string_lossy(), "error": reason}), format!("can't be {what}: {reason}"))
            };
            let entered = |found: Option<Entry>| found.map(Entry::entered).transpose();
            let found = match place.entry.child(&name).and_then(entered) {
                Ok(Some(found)) if found.is_folder() => found,
                Ok(_) => {
                    own.others += 1;
                    continue;
                }
                Err(error) => {
                    // What it is, is not known.
                    unknown += 1;
                    containers.push(failed("read", error));
                    continue;
                }
            };
            let container = match found.overview() {
                // Keeps no items: a folder may have many containers.
                Ok(Some(overview)) => {
                    let (number, kind) = count(&overview.contents);
                    let object = json!({"path": shown.to_string_lossy(), "format": overview.format, (format!("{kind}s")): number});
                    // What is made of no items, such as plain records, has none to count.
                    let counted = match (number, kind) {
                        (0, "item") => String::new(),
                        _ => format!(", {}", counted(number, kind)),
                    };
                    line(object, format!("{}{counted}", overview.format))
                }
                Ok(None) => {
                    folders.push(match count_below(&found) {
                        Ok(counts) => {
                            below.add(counts);
                            let Counts { containers, others, parts, .. } = counts;
                            let object =
                                json!({"path": shown.to_string_lossy(), "containers": containers, "others": others, "parts": parts});
                            line(object, counts.text())
                        }
                        Err(error) => {
                            own.unread += 1;
                            failed("read", error)
                        }
                    });
                    continue;
                }
                Err(error) => {
                    has_unopened = true;
                    failed("opened", error)
                }
            };
            note_joins(&mut joined, &found, found.joins());
            containers.push(container);
        }
        containers.retain_mut(|Line { path, object, text }| match joined.remove(path) {
            Some(_) if !parts => {
                own.parts += 1;
                false
            }
            Some(of) => {
                let of = of.file_name().unwrap_or_default();
                object["part_of"] = shown(of).to_string_lossy().into();
                text.push_str(&format!(", part of {}", of.display()));
                true
            }
            None => true,
        });
        own.containers = containers.len() as u64 - unknown;
        own.unread += unknown;
        below.add(own);
        Ok(Self { path, containers, folders, own, all: below, has_unopened })
    }

    /// Returns whether all in it could be looked at.
    pub(super) fn is_whole(&self) -> bool {
        self.all.unread == 0 && !self.has_unopened
    }

    /// Prints it for people.
    pub(super) fn describe(&self, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(out, "{}", escape::path(self.path))?;
        for (lines, slash) in [(&self.containers, ""), (&self.folders, "/")] {
            for Line { path, text, .. } in lines {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                writeln!(out, "  {}{slash}: {}", lines::shown(&name, usize::MAX), escape::escaped(text))?;
            }
        }
        let front = if self.folders.is_empty() { "" } else { "in all: " };
        writeln!(out, "  {front}{}", self.all.text())?;
        if self.all.parts > 0 {
            let parts = counted(self.all.parts, "container");
            writeln!(out, "  left out: {parts} that others show joined (--parts lists those of this folder)")?;
        }
        Ok(())
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> Value {
        let [containers, folders] =
            [&self.containers, &self.folders].map(|lines| lines.iter().map(|line| &line.object).collect::<Vec<_>>());
        let object = json!({"folder": self.path.to_string_lossy(), "containers": containers, "others": self.own.others,
                            "parts": self.own.parts, "folders": folders});
        escape::with_hex(object, "folder", self.path)
    }
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
            Met::Other(listed) => match listed.entry() {
                Err(error) if error.is_unread() => counts.unread += 1,
                _ => counts.others += 1,
            },
            Met::Failed(path, error) if error.kind() == ErrorKind::PermissionDenied && path != top.path() => {
                counts.unread += 1;
            }
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
