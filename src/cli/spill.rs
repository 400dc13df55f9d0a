//! `--spill`: decoded blocks on a local disk.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cache::SpillOptions;

/// At most so many bytes where nothing else is said, and at most a tenth of the filesystem.
const MOST: u64 = 50 << 30;

/// Where decoded blocks go that memory has no room for.
#[derive(Debug, Args)]
pub(super) struct SpillArguments {
    /// Keep decoded blocks on a local disk when memory gives them up: a folder that only you may enter, or `auto` for
    /// one below ~/.cache/shardfs. What costs little to decode again is not kept
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,

    /// Bytes that --spill may take, or with K, M, G or T; least recently used blocks go first [default: a tenth of the
    /// disk, at most 50G]
    #[arg(long, value_name = "SIZE", value_parser = super::size, requires = "spill")]
    spill_size: Option<u64>,

    /// Keep also what costs little to decode again: for tests, whose blocks are small
    #[arg(long, hide = true, requires = "spill")]
    spill_all: bool,
}

impl SpillArguments {
    pub(super) fn options(&self) -> Option<SpillOptions> {
        let folder = match self.spill.as_ref()? {
            folder if folder.as_os_str() == "auto" => default_folder("decoded"),
            folder => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        };
        let size = self.spill_size.unwrap_or_else(|| default_size(&folder));
        Some(SpillOptions { folder, size, wait: false, all: self.spill_all })
    }
}

/// Those of `--spill auto`.
pub(super) fn default_options() -> SpillOptions {
    let folder = default_folder("decoded");
    SpillOptions { size: default_size(&folder), folder, wait: false, all: false }
}

/// Below the user's cache directory (XDG Base Directory Specification), or the system's for services without a home.
pub(super) fn default_folder(kind: &str) -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    cache.unwrap_or_else(|| "/var/cache".into()).join("shardfs").join(kind)
}

/// A tenth of the filesystem that the folder is or will be on.
fn default_size(folder: &Path) -> u64 {
    let disk = folder.ancestors().find_map(|at| rustix::fs::statvfs(at).ok());
    disk.map_or(MOST, |disk| disk.f_blocks.saturating_mul(disk.f_frsize) / 10).min(MOST)
}
