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

use super::{LinkOptions, log_to_stderr, one_line, place::Place, size};
use crate::{
    cache::Verify,
    verify::{Progress, verify},
    vfs::{self, Problem, ROOT, Vfs},
};

/// Check that containers are whole: structure, checksums, every byte of every file
///
/// Everything that a mount would show is read to its end. Ends with 0 if nothing is wrong, 1 if something is, 2 if
/// it could not be found out.
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
    let (mut problems, mut failed) = (Vec::new(), false);
    for path in &arguments.paths {
        match one(path, arguments, threads, &progress) {
            Ok(found) => problems.extend(found),
            Err(error) => {
                failed = true;
                bar.hide();
                eprintln!("shardfs: {}", one_line(&format!("{error:#}")));
            }
        }
    }
    bar.stop();
    let mut out = BufWriter::new(io::stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &document(&problems, &progress, failed))?;
        writeln!(out)?;
    } else if !arguments.quiet {
        for (container, problem) in &problems {
            writeln!(out, "{}", one_line(&line(container, problem)))?;
        }
        writeln!(out, "{}", summary(problems.len(), failed, &progress))?;
    }
    out.flush()?;
    Ok(match (failed, problems.is_empty()) {
        (true, _) => UNKNOWN.into(),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => WRONG.into(),
    })
}

/// Problems of one PATH, each with its container as the user would write it.
fn one(
    path: &Path,
    arguments: &Arguments,
    threads: usize,
    progress: &Progress,
) -> anyhow::Result<Vec<(PathBuf, Problem)>> {
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
                return Ok(vec![(path.to_path_buf(), error.to_problem())]);
            }
        }
    } else {
        Place::find(path, options)?
    };
    let is_container = place.vfs.source().is_file();
    let found = verify(&place.vfs, &place.attr, threads, progress);
    let shown = |problem: &Problem| match is_container {
        // The path may lead into the container; the container's own is what is known of it.
        true => path.ancestors().find(|path| path.is_file()).unwrap_or(path).to_path_buf(),
        false => path.join(&problem.container),
    };
    Ok(found.into_iter().map(|problem| (shown(&problem), problem)).collect())
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

fn summary(problems: usize, failed: bool, progress: &Progress) -> String {
    let [containers, files, bytes, others] =
        [&progress.containers, &progress.files, &progress.bytes, &progress.others].map(|count| count.load(Relaxed));
    let verdict = match problems {
        0 if failed => "nothing is wrong in what could be looked at".to_owned(),
        0 => "nothing is wrong".to_owned(),
        1 => "1 problem".to_owned(),
        n => format!("{n} problems"),
    };
    format!(
        "{verdict}: {containers} containers, {files} files, {bytes} bytes read; {others} ordinary files not checked"
    )
}

fn document(problems: &[(PathBuf, Problem)], progress: &Progress, failed: bool) -> Value {
    let problems: Vec<Value> = problems
        .iter()
        .map(|(container, problem)| {
            let Problem { path, block, offset, message, .. } = problem;
            json!({"container": container.to_string_lossy(), "path": path, "block": block, "offset": offset,
                   "message": message})
        })
        .collect();
    json!({
        "ok": problems.is_empty() && !failed,
        "complete": !failed,
        "containers": progress.containers.load(Relaxed),
        "files": progress.files.load(Relaxed),
        "bytes": progress.bytes.load(Relaxed),
        "others": progress.others.load(Relaxed),
        "problems": problems,
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

    fn hide(&self) {
        self.bar.suspend(|| {});
    }

    fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.bar.finish_and_clear();
    }
}
