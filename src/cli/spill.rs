//! `--spill`: decoded blocks on a local disk.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cache::DiskTierOptions;

/// Largest default for `--spill-size`, in bytes. The default is a tenth of the filesystem.
const MOST: u64 = 50 << 30;

/// Options of the disk cache for decoded blocks.
#[derive(Debug, Args)]
pub(super) struct SpillArguments {
    /// Keep decoded blocks on a local disk when memory has no room for them: a folder that only you may enter, or `auto`
    /// for one below ~/.cache/shardfs. Blocks that are quick to decode are not kept
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,

    /// Largest size of the --spill folder, in bytes or with K, M, G or T; the least recently used blocks are removed
    /// first [default: a tenth of the disk, at most 50G]
    #[arg(long, value_name = "SIZE", value_parser = super::size, requires = "spill")]
    spill_size: Option<u64>,

    /// Also keep blocks that are quick to decode: for tests, whose blocks are small
    #[arg(long, hide = true, requires = "spill")]
    spill_all: bool,
}

impl SpillArguments {
    pub(super) fn options(&self) -> Option<DiskTierOptions> {
        let folder = match self.spill.as_ref()? {
            folder if folder.as_os_str() == "auto" => default_folder("decoded"),
            folder => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        };
        let size = self.spill_size.unwrap_or_else(|| default_size(&folder));
        Some(DiskTierOptions { folder, size, wait: false, all: self.spill_all })
    }
}

/// Returns the options that `--spill auto` stands for.
pub(super) fn default_options() -> DiskTierOptions {
    let folder = default_folder("decoded");
    DiskTierOptions { size: default_size(&folder), folder, wait: false, all: false }
}

/// Returns a folder below the user's cache directory (XDG Base Directory Specification), or below the system's for
/// services without a home.
pub(super) fn default_folder(kind: &str) -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    cache.unwrap_or_else(|| "/var/cache".into()).join("shardfs").join(kind)
}

/// Returns a tenth of the filesystem that the folder is or will be on, at most [`MOST`].
fn default_size(folder: &Path) -> u64 {
    let disk = folder.ancestors().find_map(|at| rustix::fs::statvfs(at).ok());
    disk.map_or(MOST, |disk| disk.f_blocks.saturating_mul(disk.f_frsize) / 10).min(MOST)
}
