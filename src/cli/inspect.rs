//! `shardfs ls`, `cat` and `info`: what a mount would show, without one.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde_json::Value;

use super::{ViewOptions, info, log_to_stderr, place::Place};
use crate::{
    limits::PIECE,
    vfs::{Attr, FileKind, Vfs},
};

/// List what a mount would show, without one
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs ls -l data/ep_001.wshard/signal
  shardfs ls -R data/")]
pub(super) struct LsArguments {
    /// A folder, a container, or a path inside one
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    /// Also modes, sizes in bytes and times of modification
    #[arg(short, long)]
    long: bool,

    /// Also what is in the folders, each path whole
    #[arg(short = 'R', long)]
    recursive: bool,

    #[command(flatten)]
    view: ViewOptions,
}

/// Print files of containers, without a mount
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs cat data/ep_001.wshard/meta/episode.json | jq .
  shardfs cat data/ep_001.wshard/signal/joint_pos.npy > joint_pos.npy")]
pub(super) struct CatArguments {
    /// Files, with the container's own path in front
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    view: ViewOptions,
}

/// Say what a container holds, or which containers a folder holds
#[derive(Debug, Args)]
#[command(after_help = "Example:
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

pub(super) fn ls(arguments: &LsArguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let mut out = BufWriter::new(io::stdout().lock());
    let several = arguments.paths.len() > 1 && !arguments.recursive;
    for (number, path) in arguments.paths.iter().enumerate() {
        let place = Place::find(path, arguments.view.checked())?;
        let list = List { vfs: &place.vfs, long: arguments.long, recursive: arguments.recursive };
        if !place.is_folder() {
            list.line(&mut out, path.as_os_str(), &place.attr)?;
            continue;
        }
        if several {
            let gap = if number > 0 { "\n" } else { "" };
            writeln!(out, "{gap}{}:", path.display())?;
        }
        list.folder(&mut out, place.ino, &PathBuf::new())?;
    }
    Ok(out.flush()?)
}

struct List<'a> {
    vfs: &'a Vfs,
    long: bool,
    recursive: bool,
}

impl List<'_> {
    /// The names in a folder; with `recursive` everything below it, paths from where the listing began.
    fn folder(&self, out: &mut impl Write, ino: u64, path: &Path) -> anyhow::Result<()> {
        // A stack, not recursion: names in containers can be thousands of folders deep.
        let mut folders = vec![(ino, path.to_path_buf())];
        while let Some((ino, path)) = folders.pop() {
            let mut inner = Vec::new();
            for (name, kind) in names(self.vfs, ino)? {
                let path = path.join(&name);
                if !self.long && !self.recursive {
                    out.write_all(name.as_bytes())?;
                    out.write_all(b"\n")?;
                    continue;
                }
                let attr = self.vfs.lookup(ino, &name)?;
                let attr = attr.ok_or_else(|| anyhow!("{}: went away while it was listed", path.display()))?;
                self.line(out, path.as_os_str(), &attr)?;
                if self.recursive && kind == FileKind::Folder {
                    inner.push((attr.ino, path));
                }
            }
            folders.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    fn line(&self, out: &mut impl Write, name: &OsStr, attr: &Attr) -> anyhow::Result<()> {
        if self.long {
            write!(out, "{} {:>12} {} ", mode(attr), attr.size, date(attr.mtime.0))?;
        }
        out.write_all(name.as_bytes())?;
        Ok(out.write_all(b"\n")?)
    }
}

/// What a folder shows.
fn names(vfs: &Vfs, ino: u64) -> anyhow::Result<Vec<(OsString, FileKind)>> {
    let mut names = Vec::new();
    vfs.read_dir(ino, 2, false, &mut |entry| {
        names.push((entry.name.to_owned(), entry.kind));
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// As `ls -l` writes it.
fn mode(attr: &Attr) -> String {
    let mut text = String::from(match attr.kind {
        FileKind::Folder => 'd',
        FileKind::File => '-',
        FileKind::Link => 'l',
    });
    for bit in (0..9).rev() {
        let letter = ['x', 'w', 'r'][bit % 3];
        text.push(if attr.mode >> bit & 1 == 1 { letter } else { '-' });
    }
    text
}

/// A time in UTC, to the minute. The days to a date: the proleptic Gregorian calendar in eras of 400 years, each begun
/// in March so that the leap day comes last.
pub(super) fn date(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

pub(super) fn cat(arguments: &CatArguments) -> anyhow::Result<()> {
    log_to_stderr("off");
    // Not through the standard library's line buffer, which would look at the bytes: they may be a mapped file's.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned().context("stdout")?);
    for path in &arguments.paths {
        let place = Place::find(path, arguments.view.checked())?;
        if place.is_folder() {
            bail!("{}: is a folder; `shardfs ls` lists it", path.display());
        }
        let mut offset = 0;
        while offset < place.attr.size {
            let bytes = place.vfs.read(place.ino, offset, PIECE as u64, false);
            let bytes = bytes.map_err(|e| anyhow!("{}: {}", path.display(), e.to_problem().detail()))?;
            let bytes = bytes.as_ref().map_or(&[][..], |bytes| bytes.for_kernel());
            if bytes.is_empty() {
                bail!("{}: ended at byte {offset} of {}", path.display(), place.attr.size);
            }
            out.write_all(bytes).context("stdout")?;
            offset += bytes.len() as u64;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        // date -u -d @N '+%F %H:%M'
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(951_827_696), "2000-02-29 12:34");
        assert_eq!(date(1_785_542_400), "2026-08-01 00:00");
        assert_eq!(date(-1), "1969-12-31 23:59");
    }
}
