//! `shardfs verify`: is everything in these containers whole?

use std::{
    io::{self, BufWriter, IsTerminal, Write},
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
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::formats::FormatOptions;
use crate::{
    cache::Verify,
    cli::{
        LinkOptions, complain, counted, log_to_stderr, one_line,
        options::place::Place,
        output::{
            color::{Color, ColorOption, paint},
            escape,
        },
        size,
    },
    verify::{Findings, Progress, Which, read_all},
    vfs::{self, Covering, FollowLinks, Problem, Vfs},
    volume::Entry,
};

/// Check that containers are whole: structure, checksums, every byte of every file
///
/// Reads every file that a mount would show to its end. Exits with 0 if nothing is wrong, 1 if something is, and 2 if
/// that could not be found out because a path is missing, cannot be read or is no container, or because there was
/// nothing to check. What
/// has no checksum is only read; the last line says how many of the stored bytes that are.
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

    /// Memory for decoded blocks, in bytes or with K, M, G or T, such as 1.5G [default: an eighth of memory, at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = crate::cli::READING)]
    cache_size: Option<u64>,

    #[command(flatten)]
    formats: FormatOptions,

    #[command(flatten)]
    color: ColorOption,

    #[command(flatten)]
    links: LinkOptions,

    #[cfg(feature = "remote")]
    #[command(flatten)]
    remote: crate::cli::options::remote::RemoteOptions,
}

const WRONG: u8 = 1;
const UNKNOWN: u8 = 2;

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    log_to_stderr("off");
    let threads = arguments.threads.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let progress = Arc::new(Progress::default());
    let bar = Bar::start(&progress, arguments.quiet);
    let mut result = Outcome::default();
    for path in &arguments.paths {
        match one(path, arguments, threads, &progress, &bar) {
            Ok((problems, unread, covering)) => {
                result.problems.extend(problems);
                result.unread.extend(unread);
                result.covering.stored += covering.stored;
                result.covering.unchecked += covering.unchecked;
            }
            Err(error) => {
                result.failed = true;
                bar.hide(|| complain(&error));
            }
        }
    }
    bar.stop();
    let stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let mut out = BufWriter::new(stdout);
    if arguments.json {
        escape::write_json(&mut out, &document(&result, &progress))?;
    } else if !arguments.quiet {
        let is_coloured = arguments.color.is_on(is_terminal);
        for (container, problem) in result.problems.iter().chain(&result.unread) {
            writeln!(out, "{}", one_line(&line(container, problem)))?;
        }
        let verdict = match (result.problems.is_empty(), result.is_complete() && has_checked(&progress)) {
            (false, _) => Color::Bad,
            (true, false) => Color::Warning,
            (true, true) => Color::Good,
        };
        writeln!(out, "{}", paint(is_coloured, verdict, &summary(&result, &progress)))?;
        if let Some(hint) = hint(arguments.links.follow_links, &progress) {
            writeln!(out, "{hint}")?;
        }
    }
    out.flush()?;
    Ok(match (result.is_complete() && has_checked(&progress), result.problems.is_empty()) {
        // Nothing wrong and nothing left out: the only case for a 0.
        (true, true) => ExitCode::SUCCESS,
        (true, false) => WRONG.into(),
        (false, _) => UNKNOWN.into(),
    })
}

/// A problem, with its container as the user would write it.
type Line = (PathBuf, Problem);

/// Result for all paths together.
#[derive(Default)]
struct Outcome {
    problems: Vec<Line>,
    /// What could not be read below the paths.
    unread: Vec<Line>,
    /// What checksums cover.
    covering: Covering,
    /// Whether a path itself could not be looked at.
    failed: bool,
}

impl Outcome {
    fn is_complete(&self) -> bool {
        !self.failed && self.unread.is_empty()
    }
}

/// Returns whether any container was looked at, even one that is too damaged to be opened.
fn has_checked(progress: &Progress) -> bool {
    [&progress.containers, &progress.files, &progress.problems].iter().any(|count| count.load(Relaxed) > 0)
}

/// Finds what is wrong below one PATH, and what cannot be read.
fn one(
    path: &Path,
    arguments: &Arguments,
    threads: usize,
    progress: &Progress,
    bar: &Bar,
) -> anyhow::Result<(Vec<Line>, Vec<Line>, Covering)> {
    let defaults = vfs::Options::default();
    let options = vfs::Options {
        cache_size: arguments.cache_size.unwrap_or(defaults.cache_size),
        verify: Verify::Strict,
        follow_links: arguments.links.follow_links,
        #[cfg(feature = "remote")]
        remote: arguments.remote.checked(),
        // Tables repeat other files, which are verified there.
        tables: false,
        formats: arguments.formats.chosen(),
        coverage: Some(Arc::default()),
        ..defaults
    };
    let place = if path.is_file() {
        // A single file must be a container, or it cannot be verified.
        std::fs::File::open(path).with_context(|| path.display().to_string())?;
        match Vfs::open(path, options.clone()) {
            Ok(vfs) => Place { entry: Entry::root(Arc::new(vfs))?, kept: PathBuf::new() },
            Err(error) => {
                let place = Place::find(path, options)?;
                let volume = place.entry.volume();
                let is_meant = place.is_folder()
                    || !volume.problems().is_empty()
                    || path.file_name().is_some_and(|name| volume.should_be_container(name));
                if !is_meant {
                    bail!("{}: {}, so there is nothing to verify", path.display(), volume.no_container());
                }
                progress.problems.fetch_add(1, Relaxed);
                return Ok((vec![(path.to_path_buf(), error.to_problem())], vec![], Covering::default()));
            }
        }
    } else {
        Place::find(path, options)?
    };
    let is_container = place.entry.volume().is_one_container();
    let counts = bar.is_shown() && place.is_folder();
    let Findings { problems, unread, covering } = read_all(&place.entry, threads, progress, Which::All, counts);
    let shown = |problem: &Problem| match is_container {
        // The path may lead into the container; problems are about the container itself.
        true => path.ancestors().find(|path| path.is_file()).unwrap_or(path).to_path_buf(),
        false if problem.container == Path::new("") => path.to_path_buf(),
        false => path.join(&problem.container),
    };
    let lines = |list: Vec<Problem>| list.into_iter().map(|problem| (shown(&problem), problem)).collect();
    Ok((lines(problems), lines(unread), covering))
}

/// `container: path, block, offset: what was wrong`
fn line(container: &Path, problem: &Problem) -> String {
    let block = problem.block.as_ref().filter(|block| !block.is_empty());
    let place = [
        Some(problem.path.clone()).filter(|path| !path.is_empty()),
        block.map(|block| format!("block '{}'", block.escape_debug())),
        problem.offset.map(|offset| format!("byte {offset}")),
    ];
    let place: Vec<String> = place.into_iter().flatten().collect();
    let place = if place.is_empty() { String::new() } else { format!("{}: ", place.join(", ")) };
    format!("{}: {place}{}", container.display(), problem.message)
}

fn summary(result: &Outcome, progress: &Progress) -> String {
    let [containers, files, bytes, others, links] =
        [&progress.containers, &progress.files, &progress.bytes, &progress.others, &progress.links]
            .map(|count| count.load(Relaxed));
    let verdict = match result.problems.len() as u64 {
        0 if !has_checked(progress) => "nothing was checked".to_owned(),
        0 if !result.is_complete() => "nothing is wrong in what could be looked at".to_owned(),
        0 => "nothing is wrong".to_owned(),
        problems => counted(problems, "problem"),
    };
    let mut parts = vec![format!(
        "{verdict}: {}, {}, {} read",
        counted(containers, "container"),
        counted(files, "file"),
        crate::cli::commands::status::bytes(bytes)
    )];
    let Covering { stored, unchecked } = result.covering;
    if unchecked > 0 {
        let [unchecked, stored] = [unchecked, stored].map(crate::cli::commands::status::bytes);
        parts.push(format!("{unchecked} of {stored} stored have no checksum"));
    }
    if others > 0 {
        parts.push(format!("{} not checked", counted(others, "ordinary file")));
    }
    if links > 0 {
        parts.push(format!("{} not followed", counted(links, "symbolic link")));
    }
    if !result.unread.is_empty() {
        parts.push(format!("{} could not be read", result.unread.len()));
    }
    parts.join("; ")
}

/// Returns how to include links that were left out.
fn hint(follow: FollowLinks, progress: &Progress) -> Option<String> {
    let [links, outside, dangling] =
        [&progress.links, &progress.outside, &progress.dangling].map(|count| count.load(Relaxed));
    if links == 0 {
        return None;
    }
    let inside = links.saturating_sub(outside + dangling);
    let mut parts = Vec::new();
    if inside > 0 && !follow.follows() {
        parts.push(format!("{inside} can be followed with --follow-links"));
    }
    if outside > 0 && follow != FollowLinks::Outside {
        let lead = if outside == 1 { "leads" } else { "lead" };
        parts.push(format!("{outside} {lead} outside, which --follow-links=outside allows"));
    }
    if dangling > 0 {
        parts.push(format!("{dangling} {} to nothing", if dangling == 1 { "leads" } else { "lead" }));
    }
    (!parts.is_empty()).then(|| format!("of the links, {}", parts.join("; ")))
}

fn document(result: &Outcome, progress: &Progress) -> Value {
    let list = |lines: &[Line]| -> Vec<Value> {
        let object = |(container, problem): &Line| {
            let Problem { path, block, offset, message, .. } = problem;
            json!({"container": container.to_string_lossy(), "path": path, "block": block, "offset": offset,
                   "message": message})
        };
        lines.iter().map(object).collect()
    };
    let complete = result.is_complete();
    json!({
        "ok": result.problems.is_empty() && complete && has_checked(progress),
        "complete": complete,
        "containers": progress.containers.load(Relaxed),
        "files": progress.files.load(Relaxed),
        "bytes": progress.bytes.load(Relaxed),
        "stored": result.covering.stored,
        "unchecked": result.covering.unchecked,
        "others": progress.others.load(Relaxed),
        "links": progress.links.load(Relaxed),
        "links_outside": progress.outside.load(Relaxed),
        "links_dangling": progress.dangling.load(Relaxed),
        "problems": list(&result.problems),
        "unread": list(&result.unread),
    })
}

/// Progress on a terminal.
pub(in crate::cli) struct Bar {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    drawing: Option<thread::JoinHandle<()>>,
}

impl Bar {
    pub(in crate::cli) fn start(progress: &Arc<Progress>, quiet: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        if quiet || !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), stop, drawing: None };
        }
        crate::cli::output::progress::end_line_on_interrupt();
        let bar = ProgressBar::new(0);
        let style = "{binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}  {wide_bar}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        let (shown, stopped, progress) = (bar.clone(), stop.clone(), progress.clone());
        let drawing = thread::spawn(move || {
            while !stopped.load(Relaxed) {
                thread::sleep(Duration::from_millis(100));
                let [bytes, expected, containers, problems] =
                    [&progress.bytes, &progress.expected, &progress.containers, &progress.problems]
                        .map(|count| count.load(Relaxed));
                shown.set_length(expected.max(bytes));
                shown.set_position(bytes);
                shown.set_message(format!("{}, {}", counted(containers, "container"), counted(problems, "problem")));
            }
        });
        Self { bar, stop, drawing: Some(drawing) }
    }

    /// Returns whether it is shown on a terminal.
    pub(in crate::cli) fn is_shown(&self) -> bool {
        self.drawing.is_some()
    }

    /// Runs work that writes to the terminal, with the progress hidden meanwhile.
    pub(in crate::cli) fn hide(&self, work: impl FnOnce()) {
        self.bar.suspend(work);
    }

    pub(in crate::cli) fn stop(self) {
        self.stop.store(true, Relaxed);
        if let Some(drawing) = self.drawing {
            // The bar is not drawn any more, so the next output begins on a new line.
            let _ = drawing.join();
        }
        self.bar.finish_and_clear();
    }
}
