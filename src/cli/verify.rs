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

use anyhow::Context;
use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{LinkOptions, complain, counted, log_to_stderr, one_line, place::Place, size};
use crate::{
    cache::Verify,
    verify::{Findings, Progress, verify},
    vfs::{self, FollowLinks, Problem, ROOT, Vfs},
};

/// Check that containers are whole: structure, checksums, every byte of every file
///
/// Everything that a mount would show is read to its end. Ends with 0 if nothing is wrong, 1 if something is, 2 if that
/// could not be found out: a path is missing or can't be read, or there was nothing to check.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs verify data/
  shardfs verify --json ep_001.wshard | jq .problems")]
pub(super) struct Arguments {
    /// Containers, folders of them, or paths inside one
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// The result as JSON
    #[arg(long)]
    json: bool,

    /// Say nothing, only end with 0, 1 or 2
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    /// Threads to work on [default: one a core]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,

    /// Memory for decoded blocks, in bytes or with K, M, G or T [default: an eighth of memory, at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache_size: Option<u64>,

    #[command(flatten)]
    links: LinkOptions,
}

const WRONG: u8 = 1;
const UNKNOWN: u8 = 2;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    log_to_stderr("off");
    let threads = arguments.threads.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let progress = Arc::new(Progress::default());
    let bar = Bar::start(&progress, arguments.quiet);
    let mut result = Outcome::default();
    for path in &arguments.paths {
        match one(path, arguments, threads, &progress) {
            Ok((problems, unread)) => {
                result.problems.extend(problems);
                result.unread.extend(unread);
            }
            Err(error) => {
                result.failed = true;
                bar.hide(|| complain(&error));
            }
        }
    }
    bar.stop();
    let mut out = BufWriter::new(io::stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &document(&result, &progress))?;
        writeln!(out)?;
    } else if !arguments.quiet {
        for (container, problem) in result.problems.iter().chain(&result.unread) {
            writeln!(out, "{}", one_line(&line(container, problem)))?;
        }
        writeln!(out, "{}", summary(&result, &progress))?;
        if let Some(hint) = hint(arguments.links.follow_links, &progress) {
            writeln!(out, "{hint}")?;
        }
    }
    out.flush()?;
    Ok(match (result.is_complete() && has_checked(&progress), result.problems.is_empty()) {
        // Nothing known to be wrong, and nothing left out: the only case that deserves a 0.
        (true, true) => ExitCode::SUCCESS,
        (true, false) => WRONG.into(),
        (false, _) => UNKNOWN.into(),
    })
}

/// A problem, with its container as the user would write it.
type Line = (PathBuf, Problem);

/// What all paths together gave.
#[derive(Default)]
struct Outcome {
    problems: Vec<Line>,
    /// What could not be read below the paths.
    unread: Vec<Line>,
    /// Whether a path itself could not be looked at.
    failed: bool,
}

impl Outcome {
    fn is_complete(&self) -> bool {
        !self.failed && self.unread.is_empty()
    }
}

/// Whether any container was looked at, also one that is damaged beyond opening.
fn has_checked(progress: &Progress) -> bool {
    [&progress.containers, &progress.files, &progress.problems].iter().any(|count| count.load(Relaxed) > 0)
}

/// What is wrong below one PATH, and what can't be read.
fn one(
    path: &Path,
    arguments: &Arguments,
    threads: usize,
    progress: &Progress,
) -> anyhow::Result<(Vec<Line>, Vec<Line>)> {
    let defaults = vfs::Options::default();
    let options = vfs::Options {
        cache_size: arguments.cache_size.unwrap_or(defaults.cache_size),
        verify: Verify::Strict,
        follow_links: arguments.links.follow_links,
        ..defaults
    };
    let place = if path.is_file() {
        // A file has to be a container: what is none can't be whole.
        std::fs::File::open(path).with_context(|| path.display().to_string())?;
        match Vfs::open(path, options) {
            Ok(vfs) => Place { attr: vfs.attr(ROOT)?, ino: ROOT, vfs, kept: PathBuf::new() },
            Err(error) => {
                progress.problems.fetch_add(1, Relaxed);
                return Ok((vec![(path.to_path_buf(), error.to_problem())], vec![]));
            }
        }
    } else {
        Place::find(path, options)?
    };
    let is_container = place.vfs.source().is_file();
    let Findings { problems, unread } = verify(&place.vfs, &place.attr, threads, progress);
    let shown = |problem: &Problem| match is_container {
        // The path may lead into the container; the container's own is what is known of it.
        true => path.ancestors().find(|path| path.is_file()).unwrap_or(path).to_path_buf(),
        false if problem.container == Path::new("") => path.to_path_buf(),
        false => path.join(&problem.container),
    };
    let lines = |list: Vec<Problem>| list.into_iter().map(|problem| (shown(&problem), problem)).collect();
    Ok((lines(problems), lines(unread)))
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
        super::status::bytes(bytes)
    )];
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

/// How links that were left out can be had.
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
        "others": progress.others.load(Relaxed),
        "links": progress.links.load(Relaxed),
        "links_outside": progress.outside.load(Relaxed),
        "links_dangling": progress.dangling.load(Relaxed),
        "problems": list(&result.problems),
        "unread": list(&result.unread),
    })
}

/// What is going on, on a terminal.
struct Bar {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Bar {
    fn start(progress: &Arc<Progress>, quiet: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        if quiet || !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), stop };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
            bar.set_style(style);
        }
        let (shown, stopped, progress) = (bar.clone(), stop.clone(), progress.clone());
        thread::spawn(move || {
            let mut before = progress.bytes.load(Relaxed);
            while !stopped.load(Relaxed) {
                thread::sleep(Duration::from_millis(200));
                let bytes = progress.bytes.load(Relaxed);
                let rate = HumanBytes((bytes - before) * 5);
                before = bytes;
                let (containers, files) = (progress.containers.load(Relaxed), progress.files.load(Relaxed));
                let problems = progress.problems.load(Relaxed);
                shown.set_message(format!(
                    "{containers} containers, {files} files, {} ({rate}/s), {problems} problems",
                    HumanBytes(bytes)
                ));
                shown.tick();
            }
        });
        Self { bar, stop }
    }

    /// Does something that writes to the terminal, without the progress in its way.
    fn hide(&self, work: impl FnOnce()) {
        self.bar.suspend(work);
    }

    fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.bar.finish_and_clear();
    }
}
