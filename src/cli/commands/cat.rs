//! `shardfs cat`: the bytes that a mount would show, without one.

use std::{
    fs::File,
    io::{self, Write},
    ops::{ControlFlow, Range},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use clap::Args;

use crate::cli::{Place, Stdout, ViewOptions, each, log_to_stderr, pieces, size};

/// Print files of containers, without a mount
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs cat data/ep_001.wshard/meta/episode.json | jq .
  shardfs cat data/ep_001.wshard/signal/joint_pos.npy > joint_pos.npy
  shardfs cat --range 128:4K data/ep_001.wshard/signal/joint_pos.npy | xxd

Exit codes: 0 success, 1 something could not be printed (the rest is), 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// Files inside containers: the container's path, then the path in it
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Print only LENGTH bytes of each file from START on, or all from START on; K, M, G and T are units
    #[arg(long, value_name = "START:[LENGTH]", value_parser = range)]
    range: Option<Range<u64>>,

    #[command(flatten)]
    view: ViewOptions,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (start, length) = text.split_once(':').ok_or("give START:LENGTH, or START: for all from there on")?;
    let length = if length.is_empty() { Ok(u64::MAX) } else { size(length) };
    let start = size(start)?;
    Ok(start..start.saturating_add(length?))
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("off");
    // Not through the standard library's line buffer, which would look at the bytes: they may belong to a mapped file.
    let mut out = Stdout(File::from(io::stdout().as_fd().try_clone_to_owned().context("stdout")?));
    each(&arguments.paths, |path| one(&mut out, path, arguments))
}

fn one(out: &mut Stdout<File>, path: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let Range { start, end } = arguments.range.clone().unwrap_or(0..u64::MAX);
    let place = Place::find(path, arguments.view.checked())?;
    if place.entry.is_folder() {
        // By its name alone, if it cannot be read.
        let looked = place.entry.names(&mut |_, _| ControlFlow::Break(()));
        looked.map_err(|error| anyhow!("{}: {}", path.display(), error.detail()))?;
        bail!("{}: is a folder; `shardfs ls` lists it", path.display());
    }
    pieces(&place.entry, path, start..end, |bytes| Ok(out.write_all(bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(range("128:4K"), Ok(128..128 + 4096));
        assert_eq!(range("1M:"), Ok(1 << 20..u64::MAX));
        for wrong in ["", "5", ":5", "a:5", "5:b", "-1:5"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
