//! A user's choices about a mount.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{namespace::number_key::NumberKey, open::io_mode::IoMode, report::coverage::Coverage};
use crate::{
    cache::{Cache, DiskTierOptions, Verify},
    store::FollowLinks,
    tree,
};

/// The key of this process, used if none is given.
static PROCESS_KEY: OnceLock<NumberKey> = OnceLock::new();

/// A user's choices about a mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// Budget of the cache of decoded blocks, in bytes.
    pub cache_size: u64,
    /// When checksums are verified.
    pub verify: Verify,
    /// A shared cache, used instead of one of that size.
    pub cache: Option<Arc<Cache>>,
    /// Whether folders are watched. Only useful if `Vfs::wait_for_changes` is called, because watches are limited.
    pub watch: bool,
    /// Where decoded blocks are kept for which memory has no room.
    pub spill: Option<DiskTierOptions>,
    /// How opened files are served, if the kernel supports it.
    pub io_mode: IoMode,
    /// Which symbolic links of SOURCE are shown as their targets.
    pub follow_links: FollowLinks,
    /// How a bucket or a web server is reached.
    #[cfg(feature = "remote")]
    pub remote: crate::store::remote::Options,
    /// Owner of everything, instead of the containers' own.
    pub uid: Option<u32>,
    /// Group of everything, instead of the containers' own.
    pub gid: Option<u32>,
    /// Whether other users than that of this process read, too. What is in a container is then shown only if all who may
    /// read the container may read it.
    pub for_others: bool,
    /// Permission bits to take away.
    pub umask: u32,
    /// How long an operation may take without a line in the log.
    pub slow: Option<Duration>,
    /// Whether stored items have extended attributes.
    pub xattrs: bool,
    /// Whether `.shardfs` is shown, which tells much about SOURCE and this process.
    pub control: bool,
    /// Whether tables are shown as Parquet files.
    pub tables: bool,
    /// Counts what checksums cover of the files that are read.
    pub coverage: Option<Arc<Coverage>>,
    /// The formats that are recognised.
    pub formats: tree::Formats,
    /// Key of the inode numbers. The same key gives the same numbers in another mount.
    pub number_key: NumberKey,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_size: crate::cache::default_budget(),
            verify: Verify::default(),
            cache: None,
            watch: true,
            spill: None,
            io_mode: IoMode::default(),
            follow_links: FollowLinks::default(),
            #[cfg(feature = "remote")]
            remote: crate::store::remote::Options::default(),
            uid: None,
            gid: None,
            for_others: true,
            umask: 0,
            slow: None,
            xattrs: false,
            control: true,
            tables: true,
            coverage: None,
            formats: tree::default_formats(),
            number_key: *PROCESS_KEY.get_or_init(NumberKey::random),
        }
    }
}
