//! `shardfs find`: the containers below a folder. None is opened.

use std::{
    collections::HashSet,
    io::{self, Write},
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{anyhow, bail};
use clap::Args;
use glob::Pattern;
use serde_json::json;

use super::ls;
use crate::{
    cli::{
        AlreadyReported, Place, ViewOptions, buffered, complain, duration, each, escape, log_to_stderr, remote, size,
    },
    volume::{Entry, Met},
};

/// Find containers below folders, without looking into them
///
/// `find` on a mount goes through every container; this command lists the folders alone. In a bucket that takes one
/// request for each page of a listing, and a few for each folder.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs find data/
  shardfs find data/ --name 'ep_*' --newer 1d -0 | xargs -0 shardfs verify
  shardfs find --json data/ | jq -r 'select(.size > 1e9) | .path'

Exit codes: 0 success, 1 something could not be looked at (the rest is), 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// Folders, or containers
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Only containers whose name matches this pattern (*, ?, [...]); quote it
    #[arg(long, value_name = "PATTERN")]
    name: Option<Pattern>,

    /// Only containers that were modified after FILE was, or within a time such as 90m or 2d
    #[arg(long, value_name = "FILE|TIME", value_parser = newer)]
    newer: Option<SystemTime>,

    /// Only containers of at least SIZE bytes; K, M, G and T are units. Containers that are folders have no size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    min_size: Option<u64>,

    /// Only containers of at most SIZE bytes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,

    /// Also print sizes, modification times (UTC) and formats
    #[arg(short, long)]
    long: bool,

    /// End names with a NUL byte instead of a line break, for `xargs -0`
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"])]
    null: bool,

    /// Print a JSON object per line: path (and path_hex if it is not UTF-8), format, size (null for folders), mtime (in
    /// seconds)
    #[arg(long, conflicts_with = "long")]
    json: bool,

    #[command(flatten)]
    view: ViewOptions,
}

/// The time that `--newer` means.
fn newer(text: &str) -> Result<SystemTime, String> {
    match (std::fs::metadata(text), duration(text)) {
        (Ok(file), _) => file.modified().map_err(|error| error.to_string()),
        (Err(_), Ok(span)) => Ok(SystemTime::now().checked_sub(span).unwrap_or(UNIX_EPOCH)),
        (Err(error), Err(_)) => Err(format!("neither a file ({error}) nor a time such as 90m or 2d")),
    }
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("error");
    let (out, is_terminal) = buffered();
    let mut search = Search { arguments, is_terminal, out };
    let all = each(&arguments.paths, |path| search.below(path));
    search.out.flush()?;
    all
}

struct Search<'a, W: Write> {
    arguments: &'a Arguments,
    is_terminal: bool,
    out: W,
}

impl<W: Write> Search<'_, W> {
    /// Prints the containers at and below a path.
    fn below(&mut self, top: &Path) -> anyhow::Result<()> {
        let Place { entry, .. } = Place::find(top, self.arguments.view.checked())?;
        let is_none = !entry.is_folder() || (entry.is_inside() && !entry.is_root_of_container());
        if is_none {
            bail!("{}: neither a folder nor a container", top.display());
        }
        let shown = |path: &Path| match path.strip_prefix(entry.path()) {
            Ok(path) => remote::below(top, path),
            Err(_) => top.to_owned(),
        };
        let (mut printed, place, mut unread) = (Ok(()), entry.place().0, HashSet::new());
        let mut failed = |path: &Path, reason: &str| {
            let path = shown(path);
            let message = anyhow!("{}: {reason}", path.display());
            if unread.insert(path) {
                complain(&message);
            }
        };
        entry.search(&mut |met| {
            match met {
                Met::Container(container) => printed = self.print(&container, &shown(container.path())),
                Met::Failed(path, error) => failed(path, &error.detail()),
                Met::Other(listed) => {
                    let path = listed.path().to_owned();
                    if let Err(error) = listed.entry()
                        && error.is_unread()
                    {
                        failed(&path, &error.detail());
                    }
                }
                // Of these it is not known whether they are containers.
                Met::End => {
                    for problem in entry.vfs().problems.take().iter().filter(|problem| problem.is_unread) {
                        let below = problem.container.strip_prefix(&place).unwrap_or(&problem.container);
                        failed(&entry.path().join(below), &problem.message);
                    }
                }
            }
            if printed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        printed?;
        if unread.is_empty() { Ok(()) } else { Err(AlreadyReported.into()) }
    }

    /// Prints a container if it is one that is looked for.
    fn print(&mut self, container: &Entry, path: &Path) -> io::Result<()> {
        // It was removed since it was listed.
        let Some(seen) = container.seen_container() else { return Ok(()) };
        let Arguments { name, newer, min_size, max_size, long, null, json, .. } = self.arguments;
        let named = container.path().file_name().or(path.file_name()).unwrap_or_default().to_string_lossy();
        let (seconds, _) = container.attr().mtime;
        let is_wanted = name.as_ref().is_none_or(|name| name.matches(&named))
            && newer.is_none_or(|newer| container.modified() > newer)
            && min_size.is_none_or(|least| seen.size.is_some_and(|size| size >= least))
            && max_size.is_none_or(|most| seen.size.is_some_and(|size| size <= most));
        if !is_wanted {
            return Ok(());
        }
        if *json {
            let object =
                json!({"path": path.to_string_lossy(), "format": seen.format, "size": seen.size, "mtime": seconds});
            let object = escape::with_hex(object, "path", path);
            return writeln!(self.out, "{}", escape::json(&object.to_string()));
        }
        if *long {
            let size = seen.size.map_or("-".into(), |size| size.to_string());
            write!(self.out, "{size:>12} {} {:12} ", ls::date(seconds), seen.format)?;
        }
        self.out.write_all(escape::name(path.as_os_str(), self.is_terminal).as_bytes())?;
        self.out.write_all(if *null { b"\0" } else { b"\n" })
    }
}
