//! `shardfs info`: what a container holds, without a mount.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::{
    ViewOptions, info, log_to_stderr,
    place::{Place, names},
};
use crate::vfs::FileKind;

/// Say what a container holds, or which containers a folder holds
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs info data/ep_001.wshard
  shardfs info --json data/ep_001.wshard | jq '.items[].name'")]
pub(super) struct InfoArguments {
    /// Containers, or folders of them
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    /// As JSON: what `container.json` holds
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewOptions,
}

pub(super) fn info(arguments: &InfoArguments) -> anyhow::Result<()> {
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
            serde_json::to_writer_pretty(&mut out, &info::json(&place, container.description())?)?;
            writeln!(out)?;
            continue;
        }
        if number > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", path.display())?;
        if !info::describe(&mut out, &place, container.description())? {
            describe(&mut out, container.description())?;
        }
        for remark in container.remarks() {
            writeln!(out, "  note: {remark}")?;
        }
    }
    Ok(out.flush()?)
}

/// The containers in a folder, a line each.
fn describe_folder(out: &mut impl Write, place: &Place) -> anyhow::Result<()> {
    let (mut containers, mut others) = (0, 0);
    for (name, kind) in names(&place.vfs, place.ino)? {
        let found = place.vfs.lookup(place.ino, &name)?.filter(|_| kind == FileKind::Folder);
        let container = found.map(|attr| place.vfs.container(attr.ino)).transpose();
        let what = match container {
            Ok(Some(Some(container))) => {
                let description = container.description();
                let items = description["items"].as_array().map_or(0, Vec::len);
                let count = description["episodes"]
                    .as_u64()
                    .map_or_else(|| format!("{items} items"), |n| format!("{n} episodes"));
                format!("{}, {count}", description["format"].as_str().unwrap_or(""))
            }
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

/// The front matter a line each, then the items as a table.
fn describe(out: &mut impl Write, description: &Value) -> anyhow::Result<()> {
    let Value::Object(fields) = description else { return Ok(()) };
    for (key, value) in fields.iter().filter(|(key, _)| !["items", "joined"].contains(&key.as_str())) {
        match value {
            Value::String(text) => writeln!(out, "  {key}: {text}")?,
            value => writeln!(out, "  {key}: {value}")?,
        }
    }
    let rows_of = |key: &str| fields.get(key).and_then(Value::as_array).into_iter().flatten().map(row);
    let header = ["path", "dtype", "shape", "codec", "stored", "size", ""].map(String::from).to_vec();
    let joined = rows_of("joined").map(|mut row| {
        row[6] = "joined".into();
        row
    });
    let rows: Vec<_> = std::iter::once(header).chain(rows_of("items")).chain(joined).collect();
    info::table(out, &rows, &[4, 5])
}

fn row(item: &Value) -> Vec<String> {
    let text = |key: &str| item[key].as_str().unwrap_or("").to_owned();
    let number = |key: &str| item[key].as_u64().map_or_else(String::new, |n| n.to_string());
    let shape = item["shape"].as_array().map_or_else(String::new, |shape| {
        let axes: Vec<String> = shape.iter().map(Value::to_string).collect();
        format!("[{}]", axes.join(","))
    });
    let mut notes = Vec::new();
    if item["inferred"] == true {
        notes.push("guess".to_owned());
    }
    if item["recovered"] == true {
        notes.push("put back".to_owned());
    }
    notes.extend(item["error"].as_str().map(|error| format!("damaged: {error}")));
    vec![text("path"), text("dtype"), shape, text("codec"), number("stored_size"), number("size"), notes.join(", ")]
}
