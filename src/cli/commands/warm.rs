//! `shardfs warm`: decodes ahead what a later mount with `--spill` reads.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    thread,
    time::Duration,
};

use anyhow::{anyhow, bail};
use clap::Args;

use super::{doctor, status, verify::Bar};
use crate::{
    cache::DiskTierOptions,
    cli::{
        AlreadyReported, Place, ViewOptions, counted, each, log_to_stderr,
        spill::{default_options, trouble},
        stdout,
    },
    verify::{Findings, Which, read_all},
    vfs,
};

/// Longest time for writing the last blocks.
const LAST_BLOCKS: Duration = Duration::from_secs(600);

/// Decode containers in advance, into the folder of --spill
///
/// Reads all compressed data of these containers once and keeps the decoded blocks on the local disk, where a mount with
/// the same --spill finds them. Arrays are kept as plain files if a mount by this user can let the kernel read them
/// directly. Blocks that are quick to decode are not kept, as with mounts.
#[derive(Debug, Args)]
#[command(after_help = "Example, for a job that starts in the morning:
  shardfs warm --spill /scratch/shardfs --spill-size 200G data/
  shardfs mount --spill /scratch/shardfs --spill-size 200G data/ /mnt/shards

Without --spill, the folder of `--spill auto` is used.

Exit codes: 0 everything was read, 1 something could not be read or kept (the rest was), 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// Containers, folders of them, or paths inside one
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Print only failures
    #[arg(short, long)]
    quiet: bool,

    /// Number of threads [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N", value_parser = crate::cli::threads)]
    threads: Option<usize>,

    #[command(flatten)]
    view: ViewOptions,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("off");
    let threads = arguments.threads.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let bar = Bar::start(arguments.quiet);
    let (mut blobs, mut written) = (0, 0);
    let all = each(&arguments.paths, |path| {
        let (place, is_whole) = one(path, arguments, threads, &bar).map_err(|error| bar.complain(&error))?;
        if let Some(spill) = place.entry.vfs().cache().disk_tier() {
            spill.disk().flush(LAST_BLOCKS);
            let counters = spill.disk().counters();
            blobs += counters.written.load(Relaxed);
            written += counters.written_bytes.load(Relaxed);
            if counters.unwritten.load(Relaxed) > 0 {
                let room = || "there is no room for them on the disk, or within --spill-size".into();
                let reason = spill.disk().check_writable().map_or_else(|error| error.to_string(), |()| room());
                let folder = spill.disk().path();
                let error = anyhow!("{}: not all blocks were kept: {reason}", folder.display());
                return Err(bar.complain(&error).into());
            }
        }
        if is_whole { Ok(()) } else { Err(AlreadyReported.into()) }
    });
    let progress = bar.stop();
    if !arguments.quiet {
        let [containers, bytes] = [&progress.containers, &progress.bytes].map(|count| count.load(Relaxed));
        let (containers, bytes) = (counted(containers, "container"), status::bytes(bytes));
        let written = status::bytes(written);
        writeln!(stdout(), "{containers}, {bytes} read; {written} written, {}", counted(blobs, "block"))?;
    }
    all
}

/// Reads what is below one PATH. Returns whether all could be read.
fn one(path: &Path, arguments: &Arguments, threads: usize, bar: &Bar) -> anyhow::Result<(Place, bool)> {
    let which = Which::Decoded { as_files: doctor::has_passthrough() };
    let options = arguments.view.checked();
    let spill = options.spill.clone().unwrap_or_else(default_options);
    // Tables repeat other files, which are warmed there.
    let options =
        vfs::Options { spill: Some(DiskTierOptions { wait: true, ..spill.clone() }), tables: false, ..options };
    let place = Place::find(path, options)?;
    if let Some(trouble) = trouble(&spill) {
        bail!("{trouble}");
    }
    let counts = bar.is_shown() && place.entry.is_folder();
    let Findings { problems, unread, advice, .. } = read_all(&place.entry, threads, &bar.progress, which, counts);
    let is_whole = problems.is_empty() && unread.is_empty();
    for problem in problems.iter().chain(&unread).chain(&advice) {
        bar.complain(&anyhow!("{}: {problem}", path.display()));
    }
    Ok((place, is_whole))
}
