//! `shardfs verify`: is everything in these containers whole?

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::status;
use crate::{
    cache::Verify,
    cli::{
        AlreadyReported, ColorOption, Place, ReadOptions, buffered, color, complain, counted, each, escape, is_url,
        log_to_stderr, one_line, paint, progress::interruptible_bar, remote,
    },
    tree,
    verify::{Findings, Progress, Which, read_all},
    vfs::{self, Covering, FollowLinks, Problem, Vfs},
    volume::Entry,
};

/// Check that containers are whole: structure, checksums, every byte of every file
///
/// Reads every file that a mount would show to its end, but for tables and for pictures of arrays, which repeat other
/// files. Exits with 0 if nothing is wrong, 1 if something is, and 2 if that could not be found out because a path is
/// missing, is no container, or cannot be read (for want of permission or memory, because a disk or server fails, or
/// because it is replaced meanwhile), or because there was nothing to check. What has no checksum is only read; the last
/// line says how many of the stored bytes that are.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs verify data/
  shardfs verify --json ep_001.wshard | jq .problems")]
pub(in crate::cli) struct Arguments {
    /// Containers, folders of them, or paths inside one
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Print nothing; only the exit code tells
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    /// Number of threads [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N", value_parser = crate::cli::threads)]
    threads: Option<usize>,

    #[command(flatten)]
    color: ColorOption,

    #[command(flatten)]
    read: ReadOptions,
}

const WRONG: u8 = 1;
const UNKNOWN: u8 = 2;

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    log_to_stderr("off");
    let threads = arguments.threads.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let bar = Bar::start(arguments.quiet);
    let mut findings = Findings::default();
    let looked_at = each(&arguments.paths, |path| {
        // A file is one with a slash behind its name, too.
        let path = if is_url(path) { path } else { path.components().as_path() };
        let found = one(path, arguments, threads, &bar).map_err(|error| bar.complain(&error))?;
        findings.problems.extend(found.problems);
        findings.unread.extend(found.unread);
        findings.advice.extend(found.advice);
        findings.covering.stored += found.covering.stored;
        findings.covering.unchecked += found.covering.unchecked;
        Ok(())
    });
    let progress = bar.stop();
    // Whether all was looked at, and any container among it, even one that is too damaged to be opened.
    let is_complete = looked_at.is_ok() && findings.unread.is_empty();
    let has_checked =
        [&progress.containers, &progress.files, &progress.problems].iter().any(|count| count.load(Relaxed) > 0);
    let (code, verdict, colour) = match findings.problems.len() as u64 {
        0 if !has_checked => (UNKNOWN, "nothing was checked".to_owned(), color::WARNING),
        0 if !is_complete => (UNKNOWN, "nothing is wrong in what could be looked at".to_owned(), color::WARNING),
        // The only case for a 0.
        0 => (0, "nothing is wrong".to_owned(), color::GOOD),
        problems => (if is_complete { WRONG } else { UNKNOWN }, counted(problems, "problem"), color::BAD),
    };
    let (mut out, is_terminal) = buffered();
    let is_coloured = arguments.color.is_on(is_terminal);
    if arguments.json {
        escape::write_json(&mut out, &document(&findings, &progress, is_complete, code == 0))?;
    } else if !arguments.quiet {
        for problem in findings.problems.iter().chain(&findings.unread).chain(&findings.advice) {
            writeln!(out, "{}", one_line(&line(problem)))?;
        }
        writeln!(out, "{}", paint(is_coloured, colour, &summary(verdict, &findings, &progress)))?;
        if let Some(hint) = hint(arguments.read.follow_links, &progress) {
            writeln!(out, "{hint}")?;
        }
    }
    out.flush()?;
    Ok(code.into())
}

/// Finds what is wrong below one PATH, and what cannot be read, each with its container as the user would write it.
fn one(path: &Path, arguments: &Arguments, threads: usize, bar: &Bar) -> anyhow::Result<Findings> {
    let options = vfs::Options {
        verify: Verify::Strict,
        // Tables repeat other files, which are verified there.
        tables: false,
        coverage: Some(Arc::default()),
        ..arguments.read.checked()
    };
    let is_file = path.is_file();
    if is_file {
        File::open(path).with_context(|| path.display().to_string())?;
    }
    let (entry, error) = match is_file.then(|| Vfs::open(path, options.clone())) {
        Some(Ok(vfs)) => (Entry::root(Arc::new(vfs))?, None),
        failed => (Place::find(path, options)?.entry, failed.and_then(Result::err)),
    };
    let vfs = entry.vfs();
    // A single file must be a container, or it cannot be verified.
    if let Some(error) = error {
        let is_meant = entry.is_folder()
            || !vfs.problems().is_empty()
            || path.file_name().is_some_and(|name| tree::should_be_container(vfs.options().formats, name));
        if !is_meant {
            bail!("{}: {}, so there is nothing to verify", path.display(), vfs.no_container());
        }
        let problem = Problem { container: path.to_owned(), ..error.to_problem() };
        if problem.is_unread {
            return Ok(Findings { unread: vec![problem], ..Findings::default() });
        }
        bar.progress.problems.fetch_add(1, Relaxed);
        return Ok(Findings { problems: vec![problem], ..Findings::default() });
    }
    let counts = bar.is_shown() && entry.is_folder();
    let mut findings = read_all(&entry, threads, &bar.progress, Which::All, counts);
    let all = findings.problems.iter_mut().chain(&mut findings.unread).chain(&mut findings.advice);
    for Problem { container, .. } in all {
        *container = match vfs.is_one_container() {
            // The path may lead into the container; problems are about the container itself.
            true => path.ancestors().find(|path| path.is_file()).unwrap_or(path).to_path_buf(),
            false if container == Path::new("") => path.to_path_buf(),
            // The path ends with that of what was read below the top.
            false => {
                let top = path.ancestors().nth(entry.path().components().count()).unwrap_or(path);
                remote::below(top, container)
            }
        };
    }
    Ok(findings)
}

/// `container: path, block, offset: what was wrong`
fn line(problem: &Problem) -> String {
    let block = problem.block.as_ref().filter(|block| !block.is_empty());
    let place = [
        Some(problem.path.clone()).filter(|path| !path.is_empty()),
        block.map(|block| format!("block '{}'", block.escape_debug())),
        problem.offset.map(|offset| format!("byte {offset}")),
    ];
    let place: Vec<String> = place.into_iter().flatten().collect();
    let place = if place.is_empty() { String::new() } else { format!("{}: ", place.join(", ")) };
    format!("{}: {place}{}", problem.container.display(), problem.message)
}

fn summary(verdict: String, findings: &Findings, progress: &Progress) -> String {
    let [containers, files, bytes, others, links] =
        [&progress.containers, &progress.files, &progress.bytes, &progress.others, &progress.links]
            .map(|count| count.load(Relaxed));
    let (containers, files) = (counted(containers, "container"), counted(files, "file"));
    let Covering { stored, unchecked } = findings.covering;
    let (stored, unread, some) = (status::bytes(stored), findings.unread.len(), status::bytes(unchecked));
    // What could not be compared, or was not equal, is among them.
    let or_wrong = if findings.problems.is_empty() { "" } else { ", or a wrong one" };
    let parts = [
        Some(format!("{verdict}: {containers}, {files}, {} read", status::bytes(bytes))),
        (unchecked > 0).then(|| format!("{some} of {stored} stored have no checksum{or_wrong}")),
        (others > 0).then(|| format!("{} not checked", counted(others, "ordinary file"))),
        (links > 0).then(|| format!("{} not followed", counted(links, "symbolic link"))),
        (unread > 0).then(|| format!("{unread} could not be read")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Returns how to include links that were left out.
fn hint(follow: FollowLinks, progress: &Progress) -> Option<String> {
    let [links, outside, dangling] =
        [&progress.links, &progress.outside, &progress.dangling].map(|count| count.load(Relaxed));
    let inside = links.saturating_sub(outside + dangling);
    let lead = |count: u64| if count == 1 { "leads" } else { "lead" };
    let parts = [
        (inside > 0 && !follow.follows()).then(|| format!("{inside} can be followed with --follow-links")),
        (outside > 0 && follow != FollowLinks::Outside)
            .then(|| format!("{outside} {} outside, which --follow-links=outside allows", lead(outside))),
        (dangling > 0).then(|| format!("{dangling} {} to nothing", lead(dangling))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("of the links, {}", parts.join("; ")))
}

fn document(findings: &Findings, progress: &Progress, is_complete: bool, is_ok: bool) -> Value {
    let list = |problems: &[Problem]| -> Vec<Value> {
        let object = |Problem { container, path, block, offset, message, .. }: &Problem| {
            let object = json!({"container": container.to_string_lossy(), "path": path, "block": block, "offset": offset,
                                "message": message});
            escape::with_hex(object, "container", container)
        };
        problems.iter().map(object).collect()
    };
    json!({
        "ok": is_ok,
        "complete": is_complete,
        "containers": progress.containers,
        "files": progress.files,
        "bytes": progress.bytes,
        "stored": findings.covering.stored,
        "unchecked": findings.covering.unchecked,
        "others": progress.others,
        "links": progress.links,
        "links_outside": progress.outside,
        "links_dangling": progress.dangling,
        "problems": list(&findings.problems),
        "unread": list(&findings.unread),
    })
}

/// Progress, shown on a terminal.
pub(in crate::cli) struct Bar {
    pub(in crate::cli) progress: Arc<Progress>,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    drawing: Option<thread::JoinHandle<()>>,
}

impl Bar {
    pub(in crate::cli) fn start(quiet: bool) -> Self {
        let style = "{binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}  {wide_bar}";
        let (progress, bar, stop) = (Arc::<Progress>::default(), interruptible_bar(quiet, style), Arc::default());
        let mut shown = Self { progress, bar, stop, drawing: None };
        if !shown.bar.is_hidden() {
            let (progress, bar, stop) = (shown.progress.clone(), shown.bar.clone(), shown.stop.clone());
            shown.drawing = Some(thread::spawn(move || {
                while !stop.load(Relaxed) {
                    thread::sleep(Duration::from_millis(100));
                    let [bytes, expected, containers, problems] =
                        [&progress.bytes, &progress.expected, &progress.containers, &progress.problems]
                            .map(|count| count.load(Relaxed));
                    bar.set_length(expected.max(bytes));
                    bar.set_position(bytes);
                    bar.set_message(format!("{}, {}", counted(containers, "container"), counted(problems, "problem")));
                }
            }));
        }
        shown
    }

    /// Returns whether it is shown on a terminal.
    pub(in crate::cli) fn is_shown(&self) -> bool {
        self.drawing.is_some()
    }

    /// Prints an error, with the progress hidden meanwhile.
    pub(in crate::cli) fn complain(&self, error: &anyhow::Error) -> AlreadyReported {
        self.bar.suspend(|| complain(error));
        AlreadyReported
    }

    pub(in crate::cli) fn stop(self) -> Arc<Progress> {
        self.stop.store(true, Relaxed);
        if let Some(drawing) = self.drawing {
            // The bar is not drawn any more, so the next output begins on a new line.
            let _ = drawing.join();
        }
        self.bar.finish_and_clear();
        self.progress
    }
}
