//! `shardfs refresh`: what is remembered of names is forgotten.

use std::{path::PathBuf, thread, time::Duration};

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::{escape, mounts, probe};

/// How long the kernel may show names and listings that it has.
const KERNEL_FORGETS: Duration = Duration::from_secs(1);

/// Show at once what is new in the bucket or on the web server behind a mount
///
/// A mount trusts names and sizes for a while (`shardfs mount --dir-ttl`). This command makes it forget them, and
/// waits a second until the kernel has too: the next look asks the server again. SIGHUP to the process of the mount does
/// the same, without the wait. Folders of this machine are watched and need neither.
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
        Some(looked) => {
            looked.with_context(|| at.display().to_string())?;
            thread::sleep(KERNEL_FORGETS);
            Ok(())
        }
        None => bail!("{}: does not answer", escape::path(at)),
    }
}
