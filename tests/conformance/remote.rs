//! Whatever holds for a folder of this machine holds for a bucket, and for a folder of a web server: the same names, sizes
//! and bytes, any range, eight readers at once.

use std::path::{Path, PathBuf};

use shardfs::{
    cache::Verify,
    store::Detect,
    vfs::{Options, Vfs},
};

use super::{listing, reading};
use crate::{
    common::{bucket::Bucket, walk},
    readable_sources,
};

/// How a bucket is opened: nothing is sent but the requests, and what was listed is not asked for again while it is
/// compared.
pub(crate) fn options(bucket: &Bucket, cache_size: u64, disk_cache: Option<&Path>) -> Options {
    let mut options = Options { cache_size, ..Options::default() };
    options.remote.endpoint_url = Some(bucket.endpoint().into());
    options.remote.region = Some("nowhere".into());
    options.remote.no_sign_request = true;
    options.remote.disk_cache = disk_cache.map(PathBuf::from);
    options.remote.dir_ttl = std::time::Duration::from_secs(3600);
    options
}

/// Path, kind and size of everything that a filesystem shows.
fn shown(vfs: &Vfs) -> Vec<(String, String, u64)> {
    // A store escapes the % of a key, and a container that is a folder escapes it once more (docs/formats/zarr.md).
    let nodes =
        walk::tree(vfs).into_iter().filter(|node| !(node.path.starts_with("names.zarr/") && node.path.contains('%')));
    nodes.map(|node| (node.path, format!("{:?}", node.attr.kind), node.attr.size)).collect()
}

/// Everything that a folder shows, by S3 and by the index of a web server.
#[test]
fn buckets_show_what_folders_show() {
    for (family, source) in readable_sources() {
        let bucket = Bucket::of(&source);
        let options = by_content(&bucket, 64 << 20, None);
        let local = shown(&walk::open(&source, Options::default()));
        for url in ["s3://bucket".to_owned(), bucket.endpoint()] {
            let remote = shown(&walk::open(Path::new(&url), options.clone()));
            for (here, there) in local.iter().zip(&remote) {
                assert_eq!(here, there, "{family} by {url}");
            }
            assert_eq!(local.len(), remote.len(), "{family} by {url}");
        }
    }
}

#[test]
fn trees_of_buckets() {
    for (family, source) in readable_sources() {
        let bucket = Bucket::of(&source);
        let options = by_content(&bucket, 64 << 20, None);
        let nodes = listing::check_with(Path::new("s3://bucket"), &options);
        assert!(nodes.iter().filter(|node| node.path.ends_with("/container.json")).count() >= 6, "{family}");
    }
}

/// Ranges against the bytes of the local folder: with room for everything and for nothing, without and with a cache on
/// disk, and again with what that has by then.
#[test]
fn ranges_of_buckets() {
    for (_, source) in readable_sources() {
        let bucket = Bucket::of(&source);
        let disk = tempfile::tempdir().unwrap();
        for disk in [None, Some(disk.path()), Some(disk.path())] {
            reading::check_with(&source, Verify::Lazy, 27, &|budget| open(&bucket, budget, disk));
        }
    }
}

#[test]
fn eight_readers_of_a_bucket() {
    for (family, source) in readable_sources() {
        let bucket = Bucket::of(&source);
        reading::eight_readers(family, &source, 300, &open(&bucket, 64 << 20, None));
        assert!(bucket.asked() > 0);
    }
}

/// As [`options`], whatever the objects are called.
fn by_content(bucket: &Bucket, cache_size: u64, disk_cache: Option<&Path>) -> Options {
    let mut options = options(bucket, cache_size, disk_cache);
    options.remote.detect = Detect::Content;
    options
}

fn open(bucket: &Bucket, cache_size: u64, disk_cache: Option<&Path>) -> Vfs {
    walk::open(Path::new("s3://bucket"), by_content(bucket, cache_size, disk_cache))
}
