//! `shardfs info`: what a container holds, without a mount.

mod episodes;
mod items;
mod lines;
mod table;

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::{
    ViewOptions, log_to_stderr,
    place::{Place, names},
};
use crate::{
    tree::{Overview, overview::Contents},
    vfs::FileKind,
};

/// Say what a container holds, or which containers a folder holds
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs info data/ep_001.wshard
  shardfs info --json data/ep_001.wshard | jq '.items[].name'")]
pub(super) struct Arguments {
    /// Containers, or folders of them
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    /// As JSON: what `container.json` holds
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewOptions,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let mut out = BufWriter::new(io::stdout().lock());
    for (number, path) in arguments.paths.iter().enumerate() {
        let place = Place::find(path, arguments.view.checked())?;
        let Some(container) = place.vfs.container(place.ino)? else {
            if place.is_folder() && arguments.json {
                bail!("{}: a folder; --json is for containers: try {}/*", path.display(), path.display());
            }
            if place.is_folder() {
                writeln!(out, "{}{}", if number > 0 { "\n" } else { "" }, path.display())?;
                describe_folder(&mut out, &place)?;
                continue;
            }
            let problem = place.vfs.problems().pop();
            let reason =
                problem.map_or_else(|| "not a container of any known format".into(), |problem| problem.message);
            bail!("{}: {reason}", path.display());
        };
        if arguments.json {
            write_json(&mut out, &place)?;
            continue;
        }
        if number > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", path.display())?;
        describe(&mut out, &place)?;
        for remark in container.remarks() {
            writeln!(out, "  note: {remark}")?;
        }
    }
    Ok(out.flush()?)
}

/// The containers in a folder, a line each.
fn describe_folder(out: &mut impl Write, place: &Place) -> anyhow::Result<()> {
    let (mut containers, mut others) = (0, 0);
    for (name, kind) in names(&place.vfs, place.ino, &place.kept)? {
        let found = place.vfs.lookup(place.ino, &name)?.filter(|_| kind == FileKind::Folder);
        let overview = found.map(|attr| place.vfs.overview(attr.ino)).transpose();
        let what = match overview {
            Ok(Some(Some(Overview { format, contents }))) => match contents {
                Contents::Items { items, .. } => {
                    format!("{format}, {} items", items.iter().filter(|item| !item.joined).count())
                }
                Contents::Table(table) => format!("{format}, {} items", table.columns.len()),
                Contents::Episodes { count } => format!("{format}, {count} episodes"),
            },
            Ok(_) => {
                others += 1;
                continue;
            }
            Err(error) => format!("can't be opened: {error}"),
        };
        containers += 1;
        writeln!(out, "  {}: {what}", name.display())?;
    }
    Ok(writeln!(out, "  {containers} containers, {others} other files and folders")?)
}

/// Describes the container of a place for people.
fn describe(out: &mut impl Write, place: &Place) -> anyhow::Result<()> {
    let Some(overview) = place.vfs.overview(place.ino)? else { return Ok(()) };
    match overview.contents {
        Contents::Items { front, items } => items::describe(out, &front, items),
        Contents::Table(table) => table::describe(out, &table),
        Contents::Episodes { .. } => episodes::Summary::read(place.vfs.source())?.write(out),
    }
}

/// The same for programs: what `container.json` holds, and what [`describe`] adds to it.
fn write_json(out: &mut impl Write, place: &Place) -> anyhow::Result<()> {
    let Some(description) = place.vfs.description(place.ino)? else { return Ok(()) };
    let overview = place.vfs.overview(place.ino)?;
    if !matches!(overview, Some(Overview { contents: Contents::Episodes { .. }, .. })) {
        return Ok(out.write_all(&description)?);
    }
    let mut json: Value = serde_json::from_slice(&description)?;
    json["summary"] = episodes::Summary::read(place.vfs.source())?.json();
    serde_json::to_writer_pretty(&mut *out, &json)?;
    Ok(writeln!(out)?)
}
