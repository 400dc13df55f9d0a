//! `shardfs ls`: what a mount would list, without one.

use std::{
    cmp::Reverse,
    ffi::{OsStr, OsString},
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use clap::{ArgAction, Args};

use crate::{
    cli::{
        AlreadyReported, ColorOption, ViewOptions, buffered, color, complain, escape, log_to_stderr, names,
        options::select::{Selected, Selection, select},
        remote,
    },
    tree::ItemInfo,
    vfs::{Attr, FileKind, namespace::listed},
    volume::Entry,
};

/// Names that the root of a container has but does not list.
const HIDDEN: [&str; 2] = [".file", ".raw"];

/// List what a mount would show, without a mount
///
/// Wildcards (*, ?, [...], [!...], **/ for any folders) in paths also match inside containers; quote them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:
  shardfs ls -lh data/ep_001.wshard/signal
  shardfs ls -l 'data/*.wshard/signal/joint_*.npy'
  shardfs ls -R data/ | grep joint_pos
  shardfs ls --tree data/ep_001.wshard
  shardfs ls -R --depth 2 data/
  shardfs ls -R --json data/ | jq -r 'select(.dtype == \"f32\") | .path'

Times are UTC.

Exit codes: 0 success, 1 something could not be listed (the rest is), 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
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
    #[arg(short = 'R', long, group = "deep")]
    recursive: bool,

    /// Also list what is in the folders, drawn as a tree
    #[arg(long, group = "deep", conflicts_with_all = ["recursive", "long", "json"])]
    tree: bool,

    /// With -R or --tree, list at most N levels below PATH; folders and containers on the last one are not opened
    #[arg(long, value_name = "N", requires = "deep", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,

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

    /// Print a JSON object per line: path (and path_hex if it is not UTF-8), kind, size, mtime (in seconds),
    /// mtime_ns, dtype, shape
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

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let (out, is_terminal) = buffered();
    let coloured = arguments.color.is_on(is_terminal);
    let mut list = List { arguments, is_terminal, coloured, out, has_failed: false };
    let mut selections = Vec::new();
    for path in &arguments.paths {
        let selected = select(path, arguments.view.checked());
        selections.extend(list.or_complain(selected));
    }
    for selection in &mut selections {
        for error in std::mem::take(&mut selection.failed) {
            list.or_complain::<()>(Err(error));
        }
        for found in selection.found.iter_mut().filter(|_| !arguments.directory) {
            found.entry = found.entry.if_entered();
        }
    }
    // Files come first, as in ls.
    let several =
        arguments.paths.len() > 1 || selections.iter().map(|selection| selection.found.len()).sum::<usize>() > 1;
    let mut is_first = true;
    for Selection { found, .. } in &selections {
        let files = found.iter().filter(|found| !arguments.tree && !is_listed_folder(&found.entry, arguments));
        let mut lines: Vec<_> =
            files.map(|Selected { entry, shown, .. }| Line::of(shown.clone(), Some(entry.clone()), true)).collect();
        is_first &= lines.is_empty();
        list.sort(&mut lines);
        list.print(&lines)?;
    }
    for Selection { found, .. } in &selections {
        for Selected { entry, shown, .. } in found {
            if arguments.tree {
                list.tree(entry, shown)?;
            } else if is_listed_folder(entry, arguments) {
                if several && !arguments.recursive && !arguments.json {
                    let shown = escape::name(shown.as_os_str(), list.is_terminal);
                    writeln!(list.out, "{}{}:", if is_first { "" } else { "\n" }, shown.display())?;
                    is_first = false;
                }
                list.folders(entry, shown)?;
            }
        }
    }
    list.out.flush()?;
    if list.has_failed { Err(AlreadyReported.into()) } else { Ok(()) }
}

fn is_listed_folder(entry: &Entry, arguments: &Arguments) -> bool {
    entry.is_folder() && !arguments.directory
}

/// A line of a listing.
struct Line {
    path: PathBuf,
    /// `None` if it cannot be looked at. The name is listed anyway.
    entry: Option<Entry>,
    info: ItemInfo,
}

impl Line {
    /// Returns the line of an entry, with what a file shows if that is asked for.
    fn of(path: PathBuf, entry: Option<Entry>, with_info: bool) -> Self {
        let info = entry.as_ref().filter(|_| with_info).and_then(|entry| entry.item_info().ok()?);
        Self { path, entry, info: info.unwrap_or_default() }
    }

    fn attr(&self) -> Option<&Attr> {
        self.entry.as_ref().map(Entry::attr)
    }
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
    fn folders(&mut self, top: &Entry, shown: &Path) -> anyhow::Result<()> {
        let Arguments { long, recursive, json, by_time, by_size, reverse, .. } = *self.arguments;
        let only_names = ![long, recursive, json, by_time, by_size, reverse].contains(&true);
        // A stack instead of recursion, because names in containers can be thousands of folders deep.
        let mut folders = vec![(top.clone(), shown.to_owned(), 1)];
        while let Some((folder, shown, level)) = folders.pop() {
            let (mut inner, mut lines) = (Vec::new(), Vec::new());
            for (name, kind) in self.names(&folder, &shown) {
                if only_names {
                    self.name(Path::new(&name), kind)?;
                    continue;
                }
                let goes_below = recursive && self.goes_below(level);
                let path = remote::join(&shown, folder.is_inside(), &name);
                let entry = self.look(&folder, &name, &path, goes_below);
                let path = if recursive || json { path } else { name.into() };
                if let Some(entry) = entry.iter().find(|entry| goes_below && entry.is_folder()) {
                    inner.push((entry.clone(), path.clone(), level + 1));
                }
                lines.push(Line::of(path, entry, long || json));
            }
            self.sort(&mut lines);
            self.print(&lines)?;
            folders.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// Returns whether what is in the folders of this level is listed too.
    fn goes_below(&self, level: u32) -> bool {
        self.arguments.depth.is_none_or(|depth| level < depth)
    }

    /// Returns the names in a folder; with `all` also the hidden ones.
    fn names(&mut self, folder: &Entry, path: &Path) -> Vec<(OsString, FileKind)> {
        let Some(mut found) = self.or_complain(names(folder, path)) else { return Vec::new() };
        if self.arguments.all && folder.is_inside() {
            for hidden in HIDDEN {
                if let Ok(Some(entry)) = folder.child(OsStr::new(hidden)) {
                    found.push((hidden.into(), entry.attr().kind));
                }
            }
            found.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        found
    }

    /// Sorts entries, which come in the order of their names.
    fn sort(&self, lines: &mut [Line]) {
        if self.arguments.by_time {
            lines.sort_by_key(|line| Reverse(line.attr().map(|attr| attr.mtime)));
        } else if self.arguments.by_size {
            lines.sort_by_key(|line| Reverse(line.attr().map(|attr| attr.size)));
        }
        if self.arguments.reverse {
            lines.reverse();
        }
    }

    /// Returns the entry of a name, which may be one to enter. A failure is no reason to hide the other names.
    fn look(&mut self, folder: &Entry, name: &OsStr, path: &Path, enters: bool) -> Option<Entry> {
        let reason = match folder.child(name) {
            Ok(Some(entry)) if enters => return Some(entry.if_entered()),
            Ok(Some(entry)) => return Some(entry),
            Ok(None) => "was removed while it was listed".into(),
            Err(error) => error.detail(),
        };
        self.or_complain(Err(anyhow!("{}: {reason}", path.display())))
    }

    fn or_complain<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        result
            .inspect_err(|error| {
                complain(error);
                self.has_failed = true;
            })
            .ok()
    }

    /// Prints entries of one folder in columns.
    fn print(&mut self, lines: &[Line]) -> anyhow::Result<()> {
        if self.arguments.json {
            for line in lines {
                let object = listed::to_json(&line.path, line.attr(), &line.info);
                writeln!(self.out, "{}", escape::json(&object.to_string()))?;
            }
            return Ok(());
        }
        let info = |line: &Line| info_text(&line.info);
        let width = lines.iter().map(|line| info(line).len()).max().unwrap_or(0);
        for line in lines {
            let kind = line.attr().map_or(FileKind::File, |attr| attr.kind);
            if self.arguments.long {
                match line.attr() {
                    Some(attr) => {
                        let size = if self.arguments.human_readable { short(attr.size) } else { attr.size.to_string() };
                        write!(self.out, "{} {size:>12} {} ", mode(attr), date(attr.mtime.0))?;
                    }
                    None => write!(self.out, "?????????? {:>12} {:16} ", "?", "?")?,
                }
                if width > 0 {
                    write!(self.out, "{:width$} ", info(line))?;
                }
            }
            self.write_name(&line.path, kind)?;
            if let (true, FileKind::Link, Some(entry)) = (self.arguments.long, kind, &line.entry)
                && let Ok(target) = entry.link_target()
            {
                self.out.write_all(b" -> ")?;
                self.write_name(&target, FileKind::File)?;
            }
            self.end_line()?;
        }
        Ok(())
    }

    fn end_line(&mut self) -> anyhow::Result<()> {
        Ok(self.out.write_all(if self.arguments.null { b"\0" } else { b"\n" })?)
    }

    /// Prints a file, or a folder with everything below it, as a tree.
    fn tree(&mut self, top: &Entry, shown: &Path) -> anyhow::Result<()> {
        self.name(shown, top.attr().kind)?;
        if !top.is_folder() {
            return Ok(());
        }
        // For each open folder: itself, its path, and its remaining entries in reverse order.
        let mut open = vec![self.opened(top.clone(), shown.to_owned())];
        while let Some((folder, path, rest)) = open.last_mut() {
            let Some((name, kind)) = rest.pop() else {
                open.pop();
                continue;
            };
            let (folder, path) = (folder.clone(), remote::join(path, folder.is_inside(), &name));
            let (last, above) = (rest.is_empty(), &open[..open.len() - 1]);
            let lines: String =
                above.iter().map(|(_, _, rest)| if rest.is_empty() { "    " } else { "│   " }).collect();
            write!(self.out, "{lines}{}", if last { "└── " } else { "├── " })?;
            let level = u32::try_from(open.len()).unwrap_or(u32::MAX);
            let entry = self.look(&folder, &name, &path, self.goes_below(level));
            self.write_name(Path::new(&name), entry.as_ref().map_or(kind, |entry| entry.attr().kind))?;
            let info = entry.as_ref().and_then(|entry| entry.item_info().ok()?);
            let info = info_text(&info.unwrap_or_default());
            writeln!(self.out, "{}{info}", if info.is_empty() { "" } else { "  " })?;
            if let Some(entry) = entry.filter(|entry| entry.is_folder() && self.goes_below(level)) {
                open.push(self.opened(entry, path));
            }
        }
        Ok(())
    }

    fn opened(&mut self, folder: Entry, path: PathBuf) -> (Entry, PathBuf, Vec<(OsString, FileKind)>) {
        let listed = self.names(&folder, &path);
        (folder, path, listed.into_iter().rev().collect())
    }

    fn name(&mut self, name: &Path, kind: FileKind) -> anyhow::Result<()> {
        self.write_name(name, kind)?;
        self.end_line()
    }

    /// Writes a name; on a terminal in colour, and without bytes that would control the terminal.
    fn write_name(&mut self, name: &Path, kind: FileKind) -> anyhow::Result<()> {
        let begin = match kind {
            FileKind::Folder if self.coloured => color::FOLDER,
            FileKind::Link if self.coloured => color::LINK,
            _ => "",
        };
        let shown = escape::name(name.as_os_str(), self.is_terminal);
        write!(self.out, "{begin}")?;
        self.out.write_all(shown.as_bytes())?;
        let slash = if self.arguments.slash && kind == FileKind::Folder { "/" } else { "" };
        Ok(write!(self.out, "{}{slash}", if begin.is_empty() { "" } else { color::END })?)
    }
}

/// Returns `f32 [24,7]`, or nothing for files that are no arrays.
fn info_text(info: &ItemInfo) -> String {
    match (&info.dtype, info.shape_text()) {
        (Some(dtype), Some(shape)) => format!("{} {shape}", dtype.name()),
        _ => String::new(),
    }
}

/// Returns a size in three or four characters, rounded up as by `ls -lh`.
fn short(bytes: u64) -> String {
    let mut unit = (bytes.max(1).ilog2() / 10) as usize;
    if unit == 0 {
        return bytes.to_string();
    }
    let mut value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    if value > 1023.0 {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let letter = ["", "K", "M", "G", "T", "P", "E", "Z"][unit];
    let tenths = (value * 10.0).ceil() / 10.0;
    if tenths < 10.0 { format!("{tenths:.1}{letter}") } else { format!("{:.0}{letter}", value.ceil()) }
}

/// Returns the mode as `ls -l` writes it.
fn mode(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::Folder => 'd',
        FileKind::File => '-',
        FileKind::Link => 'l',
    };
    let bits = (0..9).rev().map(|bit| if attr.mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit % 3] } else { '-' });
    std::iter::once(kind).chain(bits).collect()
}

/// Returns a time in UTC, to the minute.
pub(in crate::cli) fn date(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = crate::format::civil(days);
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
        assert_eq!(info_text(&array(DType::F32, &[24, 7])), "f32 [24,7]");
        assert_eq!(info_text(&array(DType::I64, &[])), "i64 []");
        assert_eq!(info_text(&ItemInfo { crc32c: Some(1), ..ItemInfo::default() }), "");
    }
}
