//! `shardfs ls`: what a mount would list, without one.

use std::{
    cmp::Reverse,
    ffi::{OsStr, OsString},
    io::{self, BufWriter, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use clap::{ArgAction, Args};

use super::{
    AlreadyReported, ViewOptions,
    color::{Color, ColorOption, END},
    complain, escape, log_to_stderr,
    place::names,
    select::{Selected, Selection, select},
};
use crate::{
    tree::ItemInfo,
    vfs::{self, Attr, FileKind, Vfs, listed},
};

/// Names that the root of a container has but does not list.
const HIDDEN: [&str; 2] = [".file", ".raw"];

/// List what a mount would show, without a mount
///
/// Wildcards (*, ?, [...], ** for any folders) in paths also match inside containers; quote them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:
  shardfs ls -lh data/ep_001.wshard/signal
  shardfs ls -l 'data/*.wshard/signal/joint_*.npy'
  shardfs ls -R data/ | grep joint_pos
  shardfs ls --tree data/ep_001.wshard
  shardfs ls -R --json data/ | jq -r 'select(.dtype == \"f32\") | .path'

Times are UTC.

Exit codes: 0 success, 1 something could not be listed (the rest is), 2 a wrong command line.")]
pub(super) struct Arguments {
    /// Folders, containers, or paths inside one
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Also print modes, sizes, modification times, and dtype and shape of arrays
    #[arg(short, long)]
    long: bool,

    /// With -l, print sizes as 1.5K, 12M
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// Also list hidden entries: .file (the container's own bytes) and .raw (its blocks)
    #[arg(short, long)]
    all: bool,

    /// List folders themselves, not their contents
    #[arg(short, long, conflicts_with_all = ["recursive", "tree"])]
    directory: bool,

    /// Also list what is in the folders, with paths that start with PATH
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Also list what is in the folders, drawn as a tree
    #[arg(long, conflicts_with_all = ["recursive", "long", "json"])]
    tree: bool,

    /// Sort by modification time, newest first
    #[arg(short = 't', conflicts_with = "by_size")]
    by_time: bool,

    /// Sort by size, largest first
    #[arg(short = 'S')]
    by_size: bool,

    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,

    /// Print a / after folders
    #[arg(short = 'p')]
    slash: bool,

    /// One name per line, which is always the case
    #[arg(short = '1')]
    one_a_line: bool,

    /// End names with a NUL byte instead of a line break, for `xargs -0`
    #[arg(short = '0', long, conflicts_with_all = ["tree", "json"])]
    null: bool,

    /// Print a JSON object per line: path, kind, size, mtime (in seconds), mtime_ns, dtype, shape
    #[arg(long, conflicts_with = "long")]
    json: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(flatten)]
    color: ColorOption,

    #[command(flatten)]
    view: ViewOptions,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let out = BufWriter::new(stdout);
    let mut list =
        List { arguments, is_terminal, coloured: arguments.color.is_on(is_terminal), out, has_failed: false };
    let mut selections = Vec::new();
    for path in &arguments.paths {
        let selected = select(path, arguments.view.checked());
        selections.extend(list.or_complain(selected));
    }
    for selection in &mut selections {
        for error in std::mem::take(&mut selection.failed) {
            list.or_complain::<()>(Err(error));
        }
    }
    // Files come first, as in ls.
    let several =
        arguments.paths.len() > 1 || selections.iter().map(|selection| selection.found.len()).sum::<usize>() > 1;
    let mut is_first = true;
    for Selection { vfs, found, .. } in &selections {
        let files = found.iter().filter(|found| !arguments.tree && !is_listed_folder(&found.attr, arguments));
        let mut entries = Vec::new();
        for Selected { ino, attr, shown, .. } in files {
            entries.push(Entry { path: shown.clone(), attr: Some(*attr), info: list.info(vfs, *ino) });
        }
        is_first &= entries.is_empty();
        list.sort(&mut entries);
        list.print(vfs, &entries)?;
    }
    for Selection { vfs, found, .. } in &selections {
        for Selected { ino, attr, shown, .. } in found {
            if arguments.tree {
                list.tree(vfs, *ino, attr.kind, shown)?;
            } else if is_listed_folder(attr, arguments) {
                if several && !arguments.recursive && !arguments.json {
                    let shown = escape::name(shown.as_os_str(), list.is_terminal);
                    writeln!(list.out, "{}{}:", if is_first { "" } else { "\n" }, shown.display())?;
                    is_first = false;
                }
                list.folders(vfs, *ino, shown)?;
            }
        }
    }
    list.out.flush()?;
    if list.has_failed { Err(AlreadyReported.into()) } else { Ok(()) }
}

fn is_listed_folder(attr: &Attr, arguments: &Arguments) -> bool {
    attr.kind == FileKind::Folder && !arguments.directory
}

/// A line of a listing.
struct Entry {
    path: PathBuf,
    /// `None` if they cannot be read. The name is listed anyway.
    attr: Option<Attr>,
    info: Option<ItemInfo>,
}

struct List<'a, W: Write> {
    arguments: &'a Arguments,
    is_terminal: bool,
    coloured: bool,
    out: W,
    /// Whether something could not be listed; the reason is on stderr.
    has_failed: bool,
}

impl<W: Write> List<'_, W> {
    /// Lists the names in a folder, and with `recursive` everything below it, with paths that start with the user's.
    fn folders(&mut self, vfs: &Vfs, ino: u64, top: &Path) -> anyhow::Result<()> {
        let Arguments { long, recursive, json, by_time, by_size, reverse, .. } = *self.arguments;
        let only_names = ![long, recursive, json, by_time, by_size, reverse].contains(&true);
        // A stack instead of recursion, because names in containers can be thousands of folders deep.
        let mut folders = vec![(ino, top.to_owned())];
        while let Some((ino, folder)) = folders.pop() {
            let (mut inner, mut entries) = (Vec::new(), Vec::new());
            let listed = self.names(vfs, ino, &folder);
            for (name, kind) in self.or_complain(listed).unwrap_or_default() {
                if only_names {
                    self.name(Path::new(&name), kind)?;
                    continue;
                }
                let attr = self.look(vfs, ino, &folder.join(&name));
                let path = if recursive || json { folder.join(&name) } else { name.into() };
                let Some(attr) = attr else {
                    entries.push(Entry { path, attr: None, info: None });
                    continue;
                };
                let info = if long || json { self.info(vfs, attr.ino) } else { None };
                if recursive && attr.kind == FileKind::Folder {
                    inner.push((attr.ino, path.clone()));
                } else if attr.kind != FileKind::Link {
                    // It is not looked at again. A link is, for its target.
                    vfs.forget(attr.ino, 1);
                }
                entries.push(Entry { path, attr: Some(attr), info });
            }
            self.sort(&mut entries);
            self.print(vfs, &entries)?;
            folders.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// Returns the names in a folder; with `all` also the hidden ones.
    fn names(&mut self, vfs: &Vfs, ino: u64, path: &Path) -> anyhow::Result<Vec<(OsString, FileKind)>> {
        let mut found = names(vfs, ino, path)?;
        if self.arguments.all && vfs.container(ino).is_ok_and(|container| container.is_some()) {
            for hidden in HIDDEN {
                if let Ok(Some(attr)) = vfs.lookup(ino, OsStr::new(hidden)) {
                    found.push((hidden.into(), attr.kind));
                    vfs.forget(attr.ino, 1);
                }
            }
            found.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Ok(found)
    }

    /// Sorts entries, which come in the order of their names.
    fn sort(&self, entries: &mut [Entry]) {
        if self.arguments.by_time {
            entries.sort_by_key(|entry| Reverse(entry.attr.map(|attr| attr.mtime)));
        } else if self.arguments.by_size {
            entries.sort_by_key(|entry| Reverse(entry.attr.map(|attr| attr.size)));
        }
        if self.arguments.reverse {
            entries.reverse();
        }
    }

    /// Returns the attributes of the last name of a path. A failure is no reason to hide the other names.
    fn look(&mut self, vfs: &Vfs, folder: u64, path: &Path) -> Option<Attr> {
        let name = path.file_name().unwrap_or_default();
        let failed = |error: vfs::Error| anyhow!("{}: {}", path.display(), error.to_problem().detail());
        let found = vfs.lookup(folder, name).map_err(failed);
        let found =
            found.and_then(|attr| attr.ok_or_else(|| anyhow!("{}: was removed while it was listed", path.display())));
        self.or_complain(found)
    }

    fn or_complain<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        result
            .inspect_err(|error| {
                complain(error);
                self.has_failed = true;
            })
            .ok()
    }

    fn info(&self, vfs: &Vfs, ino: u64) -> Option<ItemInfo> {
        vfs.item_info(ino).ok().flatten()
    }

    /// Prints entries of one folder in columns.
    fn print(&mut self, vfs: &Vfs, entries: &[Entry]) -> anyhow::Result<()> {
        if self.arguments.json {
            return entries.iter().try_for_each(|entry| self.object(entry));
        }
        let info = |entry: &Entry| info_text(entry.info.as_ref());
        let width = entries.iter().map(|entry| info(entry).len()).max().unwrap_or(0);
        for entry in entries {
            let kind = entry.attr.map_or(FileKind::File, |attr| attr.kind);
            if self.arguments.long {
                match &entry.attr {
                    Some(attr) => {
                        let size = if self.arguments.human_readable { short(attr.size) } else { attr.size.to_string() };
                        write!(self.out, "{} {size:>12} {} ", mode(attr), date(attr.mtime.0))?;
                    }
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
            self.end_line()?;
        }
        Ok(())
    }

    fn end_line(&mut self) -> anyhow::Result<()> {
        Ok(self.out.write_all(if self.arguments.null { b"\0" } else { b"\n" })?)
    }

    fn object(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let info = entry.info.clone().unwrap_or_default();
        let object = listed::to_json(&entry.path, entry.attr.as_ref(), &info);
        Ok(writeln!(self.out, "{}", escape::json(&object.to_string()))?)
    }

    /// Prints a file, or a folder with everything below it, as a tree.
    fn tree(&mut self, vfs: &Vfs, ino: u64, kind: FileKind, top: &Path) -> anyhow::Result<()> {
        self.name(top, kind)?;
        if kind != FileKind::Folder {
            return Ok(());
        }
        let listed = self.names(vfs, ino, top);
        let listed = self.or_complain(listed).unwrap_or_default();
        // For each open folder: its number, its path, and its remaining entries in reverse order.
        let mut open = vec![(ino, top.to_owned(), reversed(listed))];
        while let Some((folder, path, rest)) = open.last_mut() {
            let folder = *folder;
            let Some((name, kind)) = rest.pop() else {
                open.pop();
                vfs.forget(folder, u64::from(!open.is_empty()));
                continue;
            };
            let path = path.join(&name);
            let (last, above) = (rest.is_empty(), &open[..open.len() - 1]);
            let lines: String =
                above.iter().map(|(_, _, rest)| if rest.is_empty() { "    " } else { "│   " }).collect();
            write!(self.out, "{lines}{}", if last { "└── " } else { "├── " })?;
            self.write_name(Path::new(&name), kind)?;
            let attr = self.look(vfs, folder, &path);
            let info = attr.and_then(|attr| self.info(vfs, attr.ino));
            let info = info_text(info.as_ref());
            writeln!(self.out, "{}{info}", if info.is_empty() { "" } else { "  " })?;
            match attr {
                Some(attr) if attr.kind == FileKind::Folder => {
                    let inner = self.names(vfs, attr.ino, &path);
                    open.push((attr.ino, path, reversed(self.or_complain(inner).unwrap_or_default())));
                }
                Some(attr) => vfs.forget(attr.ino, 1),
                None => {}
            }
        }
        Ok(())
    }

    fn name(&mut self, name: &Path, kind: FileKind) -> anyhow::Result<()> {
        self.write_name(name, kind)?;
        self.end_line()
    }

    /// Writes a name; on a terminal in colour, and without bytes that would control the terminal.
    fn write_name(&mut self, name: &Path, kind: FileKind) -> anyhow::Result<()> {
        let colour = match kind {
            FileKind::Folder if self.coloured => Color::Folder.begin(),
            FileKind::Link if self.coloured => Color::Link.begin(),
            _ => "",
        };
        let shown = escape::name(name.as_os_str(), self.is_terminal);
        write!(self.out, "{colour}")?;
        self.out.write_all(shown.as_bytes())?;
        let slash = if self.arguments.slash && kind == FileKind::Folder { "/" } else { "" };
        Ok(write!(self.out, "{}{slash}", if colour.is_empty() { "" } else { END })?)
    }
}

fn reversed<T>(mut list: Vec<T>) -> Vec<T> {
    list.reverse();
    list
}

/// Returns `f32 [24,7]`, or nothing for files that are no arrays.
fn info_text(info: Option<&ItemInfo>) -> String {
    let array = info.and_then(|info| Some((info.dtype.as_ref()?.name(), info.shape_text()?)));
    array.map_or_else(String::new, |(dtype, shape)| format!("{dtype} {shape}"))
}

/// Returns a size in three or four characters, rounded up as by `ls -lh`.
fn short(bytes: u64) -> String {
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    if unit == 0 {
        return bytes.to_string();
    }
    let mut value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    let mut unit = unit;
    if value > 1023.0 {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let letter = ["", "K", "M", "G", "T", "P", "E", "Z"][unit];
    let tenths = (value * 10.0).ceil() / 10.0;
    if tenths < 10.0 { format!("{tenths:.1}{letter}") } else { format!("{:.0}{letter}", value.ceil()) }
}

/// Returns the mode as `ls -l` writes it.
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

/// Returns a time in UTC, to the minute. Days are converted in the proleptic Gregorian calendar by eras of 400 years,
/// each starting in March so that the leap day comes last.
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
    fn sizes_in_few_characters() {
        // As `ls -lh` of coreutils.
        let sizes = [0, 1023, 1024, 1536, 10 << 10, (10 << 10) + 1, 1023 << 10, (1 << 20) - 1, 5 << 30];
        let shown = ["0", "1023", "1.0K", "1.5K", "10K", "11K", "1023K", "1.0M", "5.0G"];
        assert_eq!(sizes.map(short), shown);
    }

    #[test]
    fn arrays_say_what_they_are() {
        let array = |dtype, shape: &[u64]| ItemInfo {
            dtype: Some(DType::into(dtype)),
            shape: Some(shape.to_vec()),
            ..ItemInfo::default()
        };
        assert_eq!(info_text(Some(&array(DType::F32, &[24, 7]))), "f32 [24,7]");
        assert_eq!(info_text(Some(&array(DType::I64, &[]))), "i64 []");
        assert_eq!(info_text(Some(&ItemInfo { crc32c: Some(1), ..ItemInfo::default() })), "");
    }
}
