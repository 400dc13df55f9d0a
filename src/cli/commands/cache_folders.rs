//! `shardfs cache`: what lies in the caches on disk.

use std::{io::Write, path::PathBuf, sync::Arc};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};

use crate::{
    cli::{escape, spill, stdout},
    disk::{Disk, Limits, Usage},
};

/// Show, shrink or empty the disk caches
///
/// Several mounts can share the folders for bytes of objects (`--disk-cache`) and for decoded blocks (`--spill`). By
/// default it is one folder for both. They hold copies only, and mounts go on while they are emptied.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs cache status
  shardfs cache prune 10G
  shardfs cache clear /mnt/volume/shardfs

Exit codes: 0 done, 1 a folder does not exist or cannot be used.")]
pub(in crate::cli) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print how many blobs each cache has, and their bytes
    Status(Folders),
    /// Remove everything
    Clear(Folders),
    /// Remove the least recently used blobs until each cache has at most SIZE bytes
    Prune {
        /// In bytes, or with K, M, G or T
        #[arg(value_parser = crate::cli::size)]
        size: u64,
        #[command(flatten)]
        folders: Folders,
    },
}

#[derive(Debug, Args)]
struct Folders {
    /// Folders of caches [default: ~/.cache/shardfs/blocks, if it exists]
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
}

impl Folders {
    fn open(&self) -> anyhow::Result<Vec<Arc<Disk>>> {
        let limits = |folder: &PathBuf| Limits::new(folder, u64::MAX);
        if self.folders.is_empty() {
            let usual = Some(spill::default_folder()).filter(|folder| folder.exists());
            return usual.iter().map(|folder| Ok(Disk::existing(folder, limits(folder))?)).collect();
        }
        let open = |folder: &PathBuf| {
            let named = || escape::path(folder);
            if !folder.join("CACHEDIR.TAG").exists() {
                bail!("{}: not a cache of shardfs", named());
            }
            Disk::existing(folder, limits(folder)).with_context(named)
        };
        self.folders.iter().map(open).collect()
    }
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (folders, verb) = match &arguments.action {
        Action::Status(folders) => (folders, ""),
        Action::Clear(folders) => (folders, "removed "),
        Action::Prune { folders, .. } => (folders, "removed "),
    };
    let mut out = stdout();
    for disk in folders.open()? {
        let Usage { blobs, bytes } = match arguments.action {
            Action::Status(_) => disk.usage(),
            Action::Clear(_) => disk.clear(),
            Action::Prune { size, .. } => disk.prune(size),
        }
        .with_context(|| escape::path(&disk.path()))?;
        writeln!(out, "{}: {verb}{blobs} blobs, {bytes} bytes", escape::path(&disk.path()))?;
    }
    Ok(())
}
