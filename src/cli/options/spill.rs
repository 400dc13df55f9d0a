//! `--spill`: decoded blocks on a local disk.

use std::path::PathBuf;

use clap::Args;

use crate::{
    cache::DiskTierOptions,
    disk::{Disk, Limits, usual_folder, usual_size},
};

/// Options of the disk cache for decoded blocks.
#[derive(Debug, Args)]
pub(in crate::cli) struct SpillArguments {
    /// Keep decoded blocks on a local disk when memory has no room for them: a folder outside SOURCE that only you may
    /// enter, or `auto` for one below ~/.cache/shardfs. Blocks that are quick to decode are not kept
    #[arg(long, value_name = "DIR", value_parser = crate::cli::local())]
    spill: Option<PathBuf>,

    /// Largest size of the --spill folder, in bytes or with K, M, G or T; the least recently used blocks are removed
    /// first [default: a tenth of the disk, at most 50G]
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::size, requires = "spill")]
    spill_size: Option<u64>,

    /// Also keep blocks that are quick to decode: for tests, whose blocks are small
    #[arg(long, hide = true, requires = "spill")]
    spill_all: bool,
}

impl SpillArguments {
    pub(in crate::cli) fn options(&self) -> Option<DiskTierOptions> {
        let folder = match self.spill.as_ref()? {
            folder if folder.as_os_str() == "auto" => default_folder(),
            folder => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        };
        let size = self.spill_size.unwrap_or_else(|| usual_size(&folder));
        Some(DiskTierOptions { folder, size, wait: false, all: self.spill_all })
    }
}

/// Returns why nothing can be kept in a folder, which is made for that.
pub(in crate::cli) fn trouble(options: &DiskTierOptions) -> Option<String> {
    let DiskTierOptions { folder, size, .. } = options;
    let disk = Disk::open(folder, Limits::new(folder, *size));
    let error = disk.and_then(|disk| disk.check_writable()).err()?;
    Some(format!("{}: {error}", folder.display()))
}

/// Returns the options that `--spill auto` stands for.
pub(in crate::cli) fn default_options() -> DiskTierOptions {
    let folder = default_folder();
    DiskTierOptions { size: usual_size(&folder), folder, wait: false, all: false }
}

/// Returns the folder that is used if none is named.
pub(in crate::cli) fn default_folder() -> PathBuf {
    usual_folder().unwrap_or_else(|| "/var/cache/shardfs/blocks".into())
}
