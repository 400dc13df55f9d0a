//! `shardfs info`: what a container holds, without a mount.

mod episodes;
mod folder;
mod items;
mod lines;
mod recording;
mod table;
mod tree;

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cli::{AlreadyReported, Place, ViewOptions, buffered, counted, each, escape, log_to_stderr, names},
    tree::overview::Contents,
};
use folder::Folder;

/// Say what a container holds, or which containers a folder holds
///
/// For a path inside a container, lists only the items below it. For a folder, what lies in the folders below is counted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs info data/
  shardfs info data/ep_001.wshard/signal
  shardfs info --attributes data/robot.h5/data/demo_0
  shardfs info --json data/ep_001.wshard | jq '.items[].name'

Exit codes: 0 success, 1 something could not be described (the rest is), 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// Containers, paths inside one, or folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Print JSON: for a container its `container.json` (of one with episodes also a `summary`), for a folder its
    /// containers
    #[arg(long)]
    json: bool,

    /// In a folder, also list containers that another one shows joined
    #[arg(long)]
    parts: bool,

    /// Draw groups and arrays as a tree, also for formats without groups of their own
    #[arg(long, conflicts_with = "json")]
    tree: bool,

    /// Draw the tree with the attributes of groups and arrays
    #[arg(long, conflicts_with = "json")]
    attributes: bool,

    #[command(flatten)]
    view: ViewOptions,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let (mut out, _) = buffered();
    let mut is_first = true;
    let all = each(&arguments.paths, |path| {
        // The text is complete before it is printed, so a failure leaves no half of a description.
        let mut text = Vec::new();
        let is_whole = match one(&mut text, path, arguments) {
            Ok(is_whole) => is_whole,
            Err(error) => {
                // Flushed first, so that messages on the same terminal come in order.
                out.flush()?;
                return Err(error);
            }
        };
        if !is_first && !arguments.json {
            writeln!(out)?;
        }
        is_first = false;
        out.write_all(&text)?;
        // The text says what could not be looked at.
        if is_whole { Ok(()) } else { Err(AlreadyReported.into()) }
    });
    out.flush()?;
    all
}

/// Describes one path. Returns whether all of it could be looked at.
fn one(out: &mut Vec<u8>, path: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    let place = Place::find(path, arguments.view.checked())?;
    let Some(warnings) = place.entry.warnings()? else {
        if place.entry.is_folder() {
            let folder = Folder::read(&place, path, arguments.parts)?;
            if arguments.json {
                escape::write_json(out, &folder.json())?;
            } else {
                folder.describe(out)?;
            }
            return Ok(folder.is_whole());
        }
        let vfs = place.entry.vfs();
        let reason = vfs.problems().pop().map_or_else(|| vfs.no_container(), |problem| problem.message);
        bail!("{}: {reason}", path.display());
    };
    if arguments.json {
        write_json(out, &place)?;
        return Ok(true);
    }
    writeln!(out, "{}", escape::path(path))?;
    describe(out, &place, arguments)?;
    if !arguments.view.no_tables && place.entry.place().1.is_empty() {
        describe_tables(out, &place)?;
    }
    for warning in &warnings {
        writeln!(out, "  note: {}", escape::escaped(warning))?;
    }
    Ok(true)
}

/// Returns how many parts a container has, and of which kind.
fn count(contents: &Contents) -> (u64, &'static str) {
    match contents {
        Contents::Items { items, .. } => (items.iter().filter(|item| !item.joined).count() as u64, "item"),
        Contents::Table(table) => (table.column_count.into(), "column"),
        Contents::Episodes { count, .. } => (*count, "episode"),
        Contents::Recording(recording) => (recording.topic_count, "topic"),
    }
}

/// Describes the container at a place, or the part of it at that place, for people.
fn describe(out: &mut impl Write, place: &Place, arguments: &Arguments) -> anyhow::Result<()> {
    let Some(overview) = place.entry.overview()? else { return Ok(()) };
    let part = place.entry.place().1;
    let format = overview.format_name();
    if arguments.tree || arguments.attributes || place.entry.has_groups()? {
        if part.is_empty() {
            writeln!(out, "  format: {format}")?;
            if let Contents::Items { front, .. } | Contents::Episodes { front, .. } = &overview.contents {
                items::write_front(out, front, &["format", "role_name"])?;
            }
        }
        return tree::describe(out, &place.entry, arguments.attributes);
    }
    match &overview.contents {
        Contents::Items { front, items } => items::describe(out, format, front, items, &part),
        Contents::Table(table) => table::describe(out, format, table, column(&part).as_deref()),
        Contents::Recording(recording) => recording::describe(out, format, recording, &part),
        Contents::Episodes { front, .. } => match episodes::Summary::read(place, &part)? {
            Some(summary) => summary.write(out, format, front),
            None => Ok(()),
        },
    }
}

/// Returns the folder of the column that a path below a container leads to.
fn column(part: &str) -> Option<String> {
    let mut names = part.split('/').filter(|name| !name.is_empty());
    Some(format!("{}/{}", names.next()?, names.next()?))
}

/// Columns that a table leaves out and that are named, at most.
const LEFT_OUT: usize = 20;

/// Prints a line for each table of a container, and one for each column that it leaves out.
fn describe_tables(out: &mut impl Write, place: &Place) -> anyhow::Result<()> {
    /// The part of `container.json` about tables.
    #[derive(Deserialize)]
    struct Described {
        #[serde(default)]
        tables: Vec<Value>,
    }
    let Some(description) = place.entry.description()? else { return Ok(()) };
    let described: Described = serde_json::from_slice(&description)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for table in &described.tables {
        let counts = ["row", "column"].into_iter();
        let counts = counts.filter_map(|what| Some(counted(table[format!("{what}s")].as_u64()?, what)));
        let mut parts: Vec<String> = counts.collect();
        let left_out = table["left_out"].as_array().map_or(&[][..], Vec::as_slice);
        if !left_out.is_empty() {
            parts.push(format!("{} left out", counted(left_out.len() as u64, "column")));
        }
        // Further columns: how many, or whether there are some.
        let behind = match &table["left_out_behind"] {
            Value::Bool(true) => Some("all".into()),
            count => count.as_u64().filter(|count| *count > 0).map(|count| counted(count, "column")),
        };
        parts.extend(behind.map(|all| format!("{all} behind them left out, because a table has no more")));
        let said = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        writeln!(out, "  table {}{said}", lines::shown(&text(&table["path"]), usize::MAX))?;
        for column in left_out.iter().take(LEFT_OUT) {
            let (name, reason) = (text(&column["column"]), text(&column["reason"]));
            writeln!(out, "    without {}: {}", lines::shown(&name, 200), escape::escaped(&reason))?;
        }
        if let Some(more @ 1..) = left_out.len().checked_sub(LEFT_OUT) {
            writeln!(out, "    without {more} more; container.json has them all")?;
        }
    }
    Ok(())
}

/// Prints the same for programs: `container.json` with additions of [`describe`].
fn write_json(out: &mut impl Write, place: &Place) -> anyhow::Result<()> {
    let Some(description) = place.entry.description()? else { return Ok(()) };
    let overview = place.entry.overview()?;
    if !overview.is_some_and(|overview| matches!(overview.contents, Contents::Episodes { .. })) {
        // Elsewhere it is `container.json` to the byte.
        return match io::stdout().is_terminal() {
            true => Ok(out.write_all(escape::json(&String::from_utf8_lossy(&description)).as_bytes())?),
            false => Ok(out.write_all(&description)?),
        };
    }
    let mut json: Value = serde_json::from_slice(&description)?;
    json["summary"] = episodes::Summary::read(place, "")?.map_or(Value::Null, |summary| summary.json());
    escape::write_json(out, &json)
}
