//! `.shardfs`: counters, problems and configuration of the running mount.
//!
//! Each look-up takes a snapshot under an inode number of its own. So a file that changes all the time still has an
//! exact size, and the kernel, which does not keep the name, never mixes two states.

use std::{
    ffi::OsStr,
    fmt::Debug,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::{
    cache::DiskTier,
    vfs::{Problem, Vfs},
    view::{Bytes, json::document},
};

/// The folder's name, in the root of the mount.
pub(crate) const FOLDER: &str = ".shardfs";
/// What is in it.
pub(crate) const FILES: [&str; 4] = ["config.json", "metrics.prom", "problems.jsonl", "stats.json"];

/// Looking up this name forgets all listings of a bucket. Hidden.
const REFRESH: &str = "refresh";

/// Empty files in the root of the mount that tell indexers (Spotlight over a network, GNOME's) to stay out. They are
/// hidden, and SOURCE's own files of these names are shown instead.
const MARKERS: [&str; 2] = [".metadata_never_index", ".trackerignore"];

/// A control file as it was when it was looked up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) number: u64,
    bytes: Vec<u8>,
}

impl Snapshot {
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn read(&self, offset: u64, length: u64) -> Bytes {
        let from = offset.min(self.size()) as usize;
        let to = offset.saturating_add(length).min(self.size()) as usize;
        self.bytes[from..to].to_vec().into()
    }
}

/// Makes snapshots.
#[derive(Debug, Default)]
pub(crate) struct Control(AtomicU64);

impl Control {
    pub(crate) fn lookup(&self, name: &OsStr, vfs: &Vfs) -> Option<Arc<Snapshot>> {
        let bytes = match name.to_str()? {
            "config.json" => config(vfs),
            "problems.jsonl" => {
                note_damage_on_disk(vfs);
                vfs.problems.to_jsonl().into_bytes()
            }
            "stats.json" => document(&stats(vfs)),
            "metrics.prom" => metrics(vfs).into_bytes(),
            // The look-up itself refreshes (`shardfs refresh`).
            REFRESH => {
                vfs.refresh();
                Vec::new()
            }
            _ => return None,
        };
        Some(self.snapshot(bytes))
    }

    /// Returns the marker of that name, if it is one.
    pub(crate) fn marker(&self, name: &OsStr) -> Option<Arc<Snapshot>> {
        MARKERS.iter().any(|marker| name == *marker).then(|| self.snapshot(Vec::new()))
    }

    fn snapshot(&self, bytes: Vec<u8>) -> Arc<Snapshot> {
        Arc::new(Snapshot { number: self.0.fetch_add(1, Relaxed), bytes })
    }
}

fn config(vfs: &Vfs) -> Vec<u8> {
    let (options, serving) = (vfs.options(), vfs.serving());
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let value = |option: &dyn Debug| format!("{option:?}").to_lowercase();
    document(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "source": shown(vfs.source()),
        "serve": if serving.passthrough { "passthrough" } else { "cache" },
        "serve_asked": value(&options.io_mode),
        "serve_reason": serving.reason,
        "cache_size": options.cache_size,
        "spill": options.spill.as_ref().map(|spill| shown(&spill.folder)),
        "spill_size": options.spill.as_ref().map(|spill| spill.size),
        "verify": value(&options.verify),
        "formats": options.formats.iter().map(|format| format.name).collect::<Vec<_>>(),
        "follow_links": options.follow_links,
        "uid": options.uid,
        "gid": options.gid,
        "umask": format!("{:04o}", options.umask),
        "xattrs": options.xattrs,
        "slow_seconds": options.slow.map(|slow| slow.as_secs_f64()),
    }))
}

/// Returns the numbers of `stats.json` as Prometheus reads them.
pub(crate) fn metrics(vfs: &Vfs) -> String {
    crate::vfs::report::metrics::text(&stats(vfs))
}

fn stats(vfs: &Vfs) -> Value {
    note_damage_on_disk(vfs);
    let cache = vfs.cache();
    let (budget, used) = cache.usage();
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Relaxed)).as_secs_f64();
    let (files, file_bytes) = cache.files();
    let (requests, counters) = (&vfs.requests, &cache.counters);
    json!({
        "uptime_seconds": vfs.started.elapsed().as_secs_f64(),
        "requests": requests,
        "latencies": vfs.latencies.json(),
        "bytes_read": count(&requests.bytes_read),
        "nodes_held": vfs.inodes.count(),
        "containers_open": vfs.containers.count(),
        "containers_opened": count(&vfs.containers.counters.opened),
        "containers_closed": count(&vfs.containers.counters.closed),
        "folders_watched": vfs.source.store.watched(),
        "cache": {
            "budget": budget,
            "used": used,
            "hits": count(&counters.hits),
            "misses": count(&counters.misses),
            "evictions": count(&counters.evictions),
            "decoded_bytes": count(&counters.decoded_bytes),
            "decode_seconds": seconds(&counters.decode_nanos),
            "slowest_decode_seconds": seconds(&counters.slowest_nanos),
            "memory_files": files,
            "memory_file_bytes": file_bytes,
            "memory_files_finished": count(&counters.files_finished),
        },
        "spill": cache.disk_tier().map(|spill| {
            let disk = spill.disk();
            let counters = disk.counters();
            json!({
                "hits": count(&counters.hits),
                "misses": count(&counters.misses),
                "read_bytes": count(&counters.read_bytes),
                "written": count(&counters.written),
                "written_bytes": count(&counters.written_bytes),
                "dropped": count(&counters.dropped),
                "evicted": count(&counters.evicted),
                "corrupt": count(&counters.corrupt),
                "errors": count(&counters.errors),
                "queued_bytes": disk.queued(),
                "size": disk.limits().size,
                "used": disk.used(),
            })
        }),
        "remote": vfs.source.store.traffic(),
        "problems": vfs.problems.count(),
    })
}

/// Notes that the disk cache had damaged blobs, whose blocks were decoded again.
fn note_damage_on_disk(vfs: &Vfs) {
    let Some(disk) = vfs.cache().disk_tier().map(DiskTier::disk) else { return };
    if disk.counters().corrupt.load(Relaxed) > 0 {
        let message = "blobs of the cache on disk were damaged, removed, and decoded again; is the disk failing?";
        vfs.problems.note(Problem::of(disk.path(), message.into()));
    }
}

/// Returns the time of control files: now.
pub(crate) fn now() -> (i64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() as i64, now.subsec_nanos())
}
