//! `shardfs ls`: what a mount would list, without one.

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufWriter, IsTerminal, Write},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::json;

use super::{
    ViewOptions, complain, log_to_stderr,
    place::{Place, names},
};
use crate::{
    tree::ItemInfo,
    vfs::{Attr, FileKind, Vfs},
};

/// List what a mount would show, without one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs ls -l data/ep_001.wshard/signal
  shardfs ls -R data/ | grep 'joint_pos'
  shardfs ls --tree data/ep_001.wshard
  shardfs ls -R --json data/ | jq -r 'select(.dtype == \"f32\") | .path'

Times are UTC. Colours are for terminals only, and not where NO_COLOR is set.")]
pub(super) struct Arguments {
    /// A folder, a container, or a path inside one
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Also modes, sizes in bytes, times of modification, and dtype and shape of arrays
    #[arg(short, long)]
    long: bool,

    /// Also what is in the folders, each path whole
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Also what is in the folders, drawn as a tree
    #[arg(long, conflicts_with_all = ["recursive", "long", "json"])]
    tree: bool,

    /// A JSON object a line: path, kind, size, mtime (in seconds) and mtime_ns, dtype, shape
    #[arg(long, conflicts_with = "long")]
    json: bool,

    #[command(flatten)]
    view: ViewOptions,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let out = BufWriter::new(stdout);
    let several = arguments.paths.len() > 1 && !arguments.recursive && !arguments.json && !arguments.tree;
    let mut list = List { arguments, is_terminal, coloured: is_terminal && wants_colours(), out, failed: 0 };
    for (number, path) in arguments.paths.iter().enumerate() {
        let place = Place::find(path, arguments.view.checked())?;
        if arguments.tree {
            list.tree(&place, path)?;
            continue;
        }
        if !place.is_folder() {
            let entry = Entry { path: path.clone(), attr: Some(place.attr), info: list.info(&place.vfs, place.ino) };
            list.print(&place.vfs, &[entry], path)?;
            continue;
        }
        if several {
            let gap = if number > 0 { "\n" } else { "" };
            writeln!(list.out, "{gap}{}:", path.display())?;
        }
        list.folders(&place, path)?;
    }
    list.out.flush()?;
    match list.failed {
        0 => Ok(()),
        count => bail!("{count} of the names above can't be looked at"),
    }
}

/// <https://no-color.org>: set and not empty.
fn wants_colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// A line of a listing.
struct Entry {
    path: PathBuf,
    /// `None` where it can't be had: the name is there all the same.
    attr: Option<Attr>,
    info: Option<ItemInfo>,
}

struct List<'a, W: Write> {
    arguments: &'a Arguments,
    is_terminal: bool,
    coloured: bool,
    out: W,
    /// Names whose attributes could not be had.
    failed: u64,
}

impl<W: Write> List<'_, W> {
    /// The names in a folder; with `recursive` everything below it, paths from where the listing began.
    fn folders(&mut self, place: &Place, top: &Path) -> anyhow::Result<()> {
        let only_names = !self.arguments.long && !self.arguments.recursive && !self.arguments.json;
        // A stack, not recursion: names in containers can be thousands of folders deep.
        let mut folders = vec![(place.ino, PathBuf::new())];
        while let Some((ino, path)) = folders.pop() {
            let (mut inner, mut entries) = (Vec::new(), Vec::new());
            let listed = names(&place.vfs, ino, &if path == Path::new("") { top.to_owned() } else { top.join(&path) });
            let listed = if path == Path::new("") { listed? } else { self.or_complain(listed).unwrap_or_default() };
            for (name, kind) in listed {
                let path = path.join(name);
                if only_names {
                    self.name(&path, kind)?;
                    continue;
                }
                let Some(attr) = self.look(&place.vfs, ino, &path) else {
                    entries.push(Entry { path, attr: None, info: None });
                    continue;
                };
                let wants_info = self.arguments.long || self.arguments.json;
                let info = if wants_info { self.info(&place.vfs, attr.ino) } else { None };
                if self.arguments.recursive && attr.kind == FileKind::Folder {
                    inner.push((attr.ino, path.clone()));
                } else if attr.kind != FileKind::Link {
                    // Not looked at again. A link is, for its target.
                    place.vfs.forget(attr.ino, 1);
                }
                entries.push(Entry { path, attr: Some(attr), info });
            }
            self.print(&place.vfs, &entries, top)?;
            folders.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// The attributes of the last name of a path. Not to have them is no reason to hide the others.
    fn look(&mut self, vfs: &Vfs, folder: u64, path: &Path) -> Option<Attr> {
        let name = path.file_name().unwrap_or_default();
        let found = vfs.lookup(folder, name).map_err(anyhow::Error::from);
        let found =
            found.and_then(|attr| attr.ok_or_else(|| anyhow!("{}: went away while it was listed", path.display())));
        self.or_complain(found)
    }

    fn or_complain<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        result
            .inspect_err(|error| {
                complain(error);
                self.failed += 1;
            })
            .ok()
    }

    fn info(&self, vfs: &Vfs, ino: u64) -> Option<ItemInfo> {
        vfs.item_info(ino).ok().flatten()
    }

    /// Entries of one folder, in columns.
    fn print(&mut self, vfs: &Vfs, entries: &[Entry], top: &Path) -> anyhow::Result<()> {
        if self.arguments.json {
            return entries.iter().try_for_each(|entry| self.object(entry, top));
        }
        let info = |entry: &Entry| info_text(entry.info.as_ref());
        let width = entries.iter().map(|entry| info(entry).len()).max().unwrap_or(0);
        for entry in entries {
            let kind = entry.attr.map_or(FileKind::File, |attr| attr.kind);
            if self.arguments.long {
                match &entry.attr {
                    Some(attr) => write!(self.out, "{} {:>12} {} ", mode(attr), attr.size, date(attr.mtime.0))?,
                    None => write!(self.out, "?????????? {:>12} {:16} ", "?", "?")?,
                }
                if width > 0 {
                    write!(self.out, "{:width$} ", info(entry))?;
                }
            }
            self.write_name(&entry.path, kind)?;
            if let (true, FileKind::Link, Some(attr)) = (self.arguments.long, kind, entry.attr)
                && let Ok(target) = vfs.read_link(attr.ino)
            {
                self.out.write_all(b" -> ")?;
                self.write_name(Path::new(&target), FileKind::File)?;
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn object(&mut self, entry: &Entry, top: &Path) -> anyhow::Result<()> {
        let path = if entry.path == top { top.to_owned() } else { top.join(&entry.path) };
        let kind = entry.attr.map(|attr| match attr.kind {
            FileKind::Folder => "folder",
            FileKind::File => "file",
            FileKind::Link => "link",
        });
        let info = entry.info.clone().unwrap_or_default();
        let mtime = entry.attr.map(|attr| attr.mtime);
        let object = json!({
            "path": path.to_string_lossy(),
            "kind": kind,
            "size": entry.attr.map(|attr| attr.size),
            "mtime": mtime.map(|(seconds, nanos)| seconds as f64 + f64::from(nanos) / 1e9),
            "mtime_ns": mtime.and_then(|(seconds, nanos)| seconds.checked_mul(1_000_000_000)?.checked_add(nanos.into())),
            "dtype": info.dtype,
            "shape": info.shape,
        });
        Ok(writeln!(self.out, "{object}")?)
    }

    /// Everything below a place, as a tree.
    fn tree(&mut self, place: &Place, top: &Path) -> anyhow::Result<()> {
        self.name(top, place.attr.kind)?;
        if !place.is_folder() {
            return Ok(());
        }
        // For each folder that is open: its number, and what of it is still to come, last first.
        let mut open = vec![(place.ino, reversed(names(&place.vfs, place.ino, top)?))];
        while let Some((folder, rest)) = open.last_mut() {
            let folder = *folder;
            let Some((name, kind)) = rest.pop() else {
                open.pop();
                place.vfs.forget(folder, u64::from(!open.is_empty()));
                continue;
            };
            let (last, above) = (rest.is_empty(), &open[..open.len() - 1]);
            let lines: String = above.iter().map(|(_, rest)| if rest.is_empty() { "    " } else { "│   " }).collect();
            write!(self.out, "{lines}{}", if last { "└── " } else { "├── " })?;
            let name = PathBuf::from(name);
            self.write_name(&name, kind)?;
            let attr = self.look(&place.vfs, folder, &name);
            let info = attr.and_then(|attr| self.info(&place.vfs, attr.ino));
            let info = info_text(info.as_ref());
            writeln!(self.out, "{}{info}", if info.is_empty() { "" } else { "  " })?;
            match attr {
                Some(attr) if attr.kind == FileKind::Folder => {
                    let inner = names(&place.vfs, attr.ino, &top.join(&name));
                    open.push((attr.ino, reversed(self.or_complain(inner).unwrap_or_default())));
                }
                Some(attr) => place.vfs.forget(attr.ino, 1),
                None => {}
            }
        }
        Ok(())
    }

    fn name(&mut self, name: &Path, kind: FileKind) -> anyhow::Result<()> {
        self.write_name(name, kind)?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// A name as it is; on a terminal, coloured, and never with bytes that would do something to it.
    fn write_name(&mut self, name: &Path, kind: FileKind) -> anyhow::Result<()> {
        let colour = match kind {
            FileKind::Folder if self.coloured => "\x1b[1;34m",
            FileKind::Link if self.coloured => "\x1b[1;36m",
            _ => "",
        };
        let shown = if self.is_terminal { harmless(name.as_os_str()) } else { name.as_os_str().to_owned() };
        write!(self.out, "{colour}")?;
        self.out.write_all(shown.as_bytes())?;
        Ok(write!(self.out, "{}", if colour.is_empty() { "" } else { "\x1b[0m" })?)
    }
}

fn reversed<T>(mut list: Vec<T>) -> Vec<T> {
    list.reverse();
    list
}

fn harmless(name: &OsStr) -> OsString {
    let is_control = |byte: &u8| byte.is_ascii_control();
    OsString::from_vec(name.as_bytes().iter().map(|byte| if is_control(byte) { b'?' } else { *byte }).collect())
}

/// `f32 [24,7]`; nothing for what is no array.
fn info_text(info: Option<&ItemInfo>) -> String {
    let array = info.and_then(|info| Some((info.dtype?.name(), info.shape_text()?)));
    array.map_or_else(String::new, |(dtype, shape)| format!("{dtype} {shape}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DType;

    #[test]
    fn dates() {
        // date -u -d @N '+%F %H:%M'
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(951_827_696), "2000-02-29 12:34");
        assert_eq!(date(1_785_542_400), "2026-08-01 00:00");
        assert_eq!(date(-1), "1969-12-31 23:59");
    }

    #[test]
    fn terminals_get_no_control_characters() {
        assert_eq!(harmless(OsStr::new("a\x1b[31m\u{e9}\n")), OsString::from("a?[31m\u{e9}?"));
    }

    #[test]
    fn arrays_say_what_they_are() {
        let array =
            |dtype, shape: &[u64]| ItemInfo { dtype: Some(dtype), shape: Some(shape.to_vec()), ..ItemInfo::default() };
        assert_eq!(info_text(Some(&array(DType::F32, &[24, 7]))), "f32 [24,7]");
        assert_eq!(info_text(Some(&array(DType::I64, &[]))), "i64 []");
        assert_eq!(info_text(Some(&ItemInfo { crc32c: Some(1), ..ItemInfo::default() })), "");
    }
}
