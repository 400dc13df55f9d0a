//! `shardfs refresh`: what is remembered of names is forgotten.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::{escape, mounts, probe};

/// Show at once what is new in the bucket or on the web server behind a mount
///
/// A mount trusts names and sizes for a while (`shardfs mount --dir-ttl`). This command makes it forget them, so that
/// the next look asks the server again. SIGHUP to the process of the mount does the same. Folders of this machine are
/// watched and need neither.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  shardfs refresh /mnt/bucket

Exit codes: 0 done, 1 shardfs is not mounted there, or does not answer.")]
pub(in crate::cli) struct Arguments {
    /// Where shardfs is mounted
    mountpoint: PathBuf,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let at = &arguments.mountpoint;
    let place = mounts::without_asking(at)?;
    if mounts::ours_at(&place)?.is_none() {
        bail!("{}: no shardfs is mounted there", escape::path(at));
    }
    // Looking up this name makes the mount refresh.
    match probe::look(&place.join(".shardfs/refresh"))? {
        Some(looked) => looked.with_context(|| at.display().to_string()),
        None => bail!("{}: does not answer", escape::path(at)),
    }
}
