//! `shardfs index`: a Parquet file with a row for each container of a folder.

mod found;
mod table;

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{Read, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use crate::{
    cli::{
        AlreadyReported, Destination, Interrupt, Place, ViewOptions, complain, counted, escape, log_to_stderr,
        progress, stdout,
    },
    parallel,
    vfs::Problem,
    volume::{Entry, Error, Met},
};
use found::{Row, look_into};
use table::Index;

/// Write a Parquet file with a row for each container of a folder
///
/// Columns: path, format, version, size (null for folders), modified (UTC), episodes, episode_id, task, steps, cameras,
/// damaged, problem, part_of. Containers that another one shows joined, such as the chunks of an episode with a manifest, are left out
/// without --parts. A file that begins like a container and is not shown as one is `damaged` too, even if it is whole but
/// not supported; `problem` says why. No block is decoded. If INDEX was written by an earlier run for the same SOURCE,
/// only new and changed containers are opened, and those of several files. A container that cannot be read now keeps its
/// row of that run. INDEX is replaced at the end, so programs that read it meanwhile have the old one.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs index data/ -o index.parquet
  duckdb -c \"select format, count(*), sum(steps) from 'index.parquet' group by all\"

Exit codes: 0 success, 1 something could not be read (the index has the rest) or INDEX could not be written, 2 a wrong
command line. Damaged containers are rows of the index and no failure.")]
pub(in crate::cli) struct Arguments {
    /// A folder of containers, one container, or a URL
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// The file to write
    #[arg(short, long, value_name = "INDEX", value_parser = crate::cli::local())]
    output: PathBuf,

    /// Also write rows for containers that another one shows joined; their `part_of` is its path
    #[arg(long)]
    parts: bool,

    /// Open all containers, whatever an earlier run found
    #[arg(long)]
    anew: bool,

    /// Print a summary as JSON
    #[arg(long, conflicts_with = "quiet")]
    json: bool,

    /// Print only failures
    #[arg(short, long)]
    quiet: bool,

    /// Number of threads [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N", value_parser = crate::cli::threads)]
    threads: Option<usize>,

    #[command(flatten)]
    view: ViewOptions,
}

/// First bytes of a Parquet file.
const PARQUET: &[u8; 4] = b"PAR1";

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("off");
    let output = &arguments.output;
    // Such as `/dev/stdout`, a link that no name leads to.
    if output.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        bail!("{}: is not an ordinary file", output.display());
    }
    let (to, name) = Destination::of_file(output).with_context(|| output.display().to_string())?;
    let earlier = earlier_index(&to, &name)?;
    let place = Place::find(&arguments.source, arguments.view.checked())?;
    if !place.entry.is_folder() || (place.entry.is_inside() && !place.entry.is_root_of_container()) {
        bail!("{}: neither a folder nor a container", arguments.source.display());
    }
    let source = place.entry.vfs().source().join(place.entry.place().0).to_string_lossy().into_owned();
    let known = if arguments.anew { None } else { earlier };
    let known = known.and_then(|file| table::read(&file, &source)).unwrap_or_default();
    let interrupt = Interrupt::new();
    let threads = arguments.threads.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let bar = progress::bar(arguments.quiet, 0, "{pos} of {msg} containers  {per_sec}");
    let work = Work { known, bar, interrupt, failed: AtomicBool::new(false) };
    let rows = work.rows(&place.entry, threads);
    work.bar.finish_and_clear();
    work.interrupt.check()?;
    let index = Index::of(&source, &rows, arguments.parts).with_context(|| output.display().to_string())?;
    index.write(&to, &name, &work.interrupt).with_context(|| output.display().to_string())?;
    work.interrupt.check()?;
    print_counts(&rows, &work.known, arguments)?;
    if work.failed.load(Relaxed) { Err(AlreadyReported.into()) } else { Ok(()) }
}

/// The file that will be replaced. Nothing but an earlier index ever is: a name that was mistyped may be a container's.
fn earlier_index(to: &Destination, name: &Path) -> anyhow::Result<Option<File>> {
    let named = || to.shown(name).display().to_string();
    let mut front = [0; 4];
    match to.read(name).with_context(named)? {
        None => Ok(None),
        Some(file) if !file.metadata().with_context(named)?.is_file() => bail!("{}: is not an ordinary file", named()),
        Some(file) => {
            let read = (&file).take(4).read(&mut front).with_context(named)?;
            match read == 0 || front == *PARQUET {
                true => Ok(Some(file)),
                false => bail!("{}: exists and is not a Parquet file; choose another name", named()),
            }
        }
    }
}

/// One run.
struct Work {
    /// Rows of an earlier run, by their paths.
    known: HashMap<String, Row>,
    bar: ProgressBar,
    interrupt: Interrupt,
    failed: AtomicBool,
}

/// Rows of an earlier run, by their paths.
type Kept<'a> = HashMap<&'a str, &'a Row>;

impl Work {
    /// Returns the rows of all containers, by path.
    fn rows(&self, top: &Entry, threads: usize) -> Vec<Row> {
        let (mut rows, mut kept) = (Vec::new(), HashMap::new());
        let containers = self.walk(top, &mut rows, &mut kept);
        self.bar.set_message(containers.len().to_string());
        let found = parallel::map(threads, containers.iter(), |(path, container)| {
            let row = if self.interrupt.has_come() { None } else { self.row(path, container) };
            self.bar.inc(1);
            row
        });
        rows.extend(found.into_iter().flatten());
        for row in &rows {
            kept.remove(row.path.as_str());
        }
        rows.extend(kept.into_values().cloned());
        rows.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        found::mark_parts(&mut rows);
        rows
    }

    fn row(&self, path: &Path, container: &Entry) -> Option<Row> {
        // The container was removed since it was listed.
        let seen = container.seen_container()?;
        let shown = found::shown(path);
        let known = self.known.get(&shown);
        if let Some(known) = known.filter(|known| known.state == seen.state) {
            return Some(known.clone());
        }
        // Its name alone may have made it a container.
        let container = &container.if_entered();
        let Some(seen) = container.seen_container() else {
            let problem = container.vfs().problems.last_of(&container.place().0)?;
            return Some(Row::damaged(path, container.attr(), problem));
        };
        let (row, failed) = look_into(container, Row::of(shown, seen, container.attr()));
        let Some(error) = failed.filter(Error::is_unread) else { return Some(row) };
        self.note(path, &error.detail());
        // Without a state, so that the next run looks into it again.
        Some(known.cloned().unwrap_or(Row { state: String::new(), problem: None, ..row }))
    }

    /// Returns all containers below an entry, with their paths. Files that look like containers but are too damaged to be
    /// opened become rows. What cannot be looked at keeps its earlier rows.
    fn walk<'a>(&'a self, top: &Entry, rows: &mut Vec<Row>, kept: &mut Kept<'a>) -> Vec<(PathBuf, Entry)> {
        if top.is_root_of_container() {
            let name = PathBuf::from(top.vfs().source().file_name().unwrap_or_default());
            return vec![(name, top.clone())];
        }
        let place = top.place().0;
        let below = |path: &Path| path.strip_prefix(top.path()).unwrap_or(path).to_owned();
        let (mut containers, mut files) = (Vec::new(), HashMap::new());
        top.search(&mut |met| {
            match met {
                Met::Container(entry) => containers.push((below(entry.path()), entry)),
                Met::Other(listed) => {
                    let path = below(listed.path());
                    match listed.entry() {
                        Ok(entry) => drop(files.insert(path, entry)),
                        Err(error) if error.is_unread() => self.keep(&path, &error.detail(), kept),
                        Err(_) => {}
                    }
                }
                Met::Failed(path, error) => {
                    let path = below(path);
                    self.note(&path, &error.detail());
                    let shown = found::shown(&path);
                    let inside = self.known.iter().filter(|(known, _)| Path::new(known).starts_with(&shown));
                    kept.extend(inside.map(|(known, row)| (known.as_str(), row)));
                }
                Met::End => {
                    self.damaged(top, &place, &files, rows, kept);
                    files.clear();
                    self.bar.set_message(containers.len().to_string());
                }
            }
            if self.interrupt.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        containers
    }

    /// Adds rows for those of a folder's files that look like containers and are none.
    fn damaged<'a>(
        &'a self,
        top: &Entry,
        place: &Path,
        files: &HashMap<PathBuf, Entry>,
        rows: &mut Vec<Row>,
        kept: &mut Kept<'a>,
    ) {
        let problems = top.vfs().problems.take().into_iter().filter(|problem| !problem.is_advice);
        for Problem { container, message, is_unread, .. } in problems {
            let path = container.strip_prefix(place).unwrap_or(&container);
            let Some(file) = files.get(path) else { continue };
            if is_unread {
                self.keep(path, &message, kept);
                continue;
            }
            match file.read_at(0, 1) {
                Err(error) if error.is_unread() => self.keep(path, &error.detail(), kept),
                _ => rows.push(Row::damaged(path, file.attr(), message)),
            }
        }
    }

    /// Notes something that could not be looked at, and keeps its row of an earlier run.
    fn keep<'a>(&'a self, path: &Path, reason: &str, kept: &mut Kept<'a>) {
        self.note(path, reason);
        kept.extend(self.known.get_key_value(&found::shown(path)).map(|(path, row)| (path.as_str(), row)));
    }

    /// Notes something that could not be looked at.
    fn note(&self, path: &Path, reason: &str) {
        self.failed.store(true, Relaxed);
        self.bar.suspend(|| complain(&anyhow::anyhow!("{}: {reason}", path.display())));
    }
}

/// Prints how many of the rows that are shown are new, changed, gone and damaged.
fn print_counts(rows: &[Row], known: &HashMap<String, Row>, arguments: &Arguments) -> anyhow::Result<()> {
    let is_shown = |row: &&Row| row.is_shown(arguments.parts);
    let count = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(is_shown).filter(|row| is(row)).count();
    let earlier = |row: &Row| known.get(&row.path).filter(is_shown);
    let (containers, added) = (count(&|_| true), count(&|row| earlier(row).is_none()));
    let changed = count(&|row| earlier(row).is_some_and(|known| known.differs(row)));
    let here: HashSet<&str> = rows.iter().filter(is_shown).map(|row| &*row.path).collect();
    let removed = known.values().filter(is_shown).filter(|row| !here.contains(&*row.path)).count();
    let damaged = count(&|row| row.problem.is_some());
    if arguments.json {
        let counts = json!({"index": arguments.output.to_string_lossy(), "containers": containers, "added": added,
                            "changed": changed, "removed": removed, "damaged": damaged});
        escape::write_json(&mut stdout(), &counts)?;
    } else if !arguments.quiet {
        let containers = counted(containers as u64, "container");
        writeln!(stdout(), "{containers}: {added} new, {changed} changed, {removed} gone, {damaged} damaged")?;
    }
    Ok(())
}
