//! A toy format whose metadata lie all over the file, as in HDF5: what that costs over a store.

use std::{fs, path::Path, sync::atomic::Ordering::Relaxed, time::Duration};

use super::{
    common::{bucket::Bucket, walk},
    toys::spread::{READ, SPREAD, file},
};
use shardfs::{
    tree::Format,
    vfs::{Options, Vfs},
};

const NODES: u64 = 20;
const DATA: u64 = 200 << 10;

/// Bytes from one node to the next. The data of each lie between them.
const STEP: u64 = 400 << 10;

fn write(path: &Path) {
    fs::write(path, file(NODES, DATA, STEP)).unwrap();
}

static WITH_SPREAD: [&Format; 1] = [&SPREAD];

fn open(bucket: &Bucket, disk_cache: &Path) -> Vfs {
    let mut options = Options { formats: &WITH_SPREAD, ..Options::default() };
    options.remote.endpoint_url = Some(bucket.endpoint().into());
    options.remote.region = Some("nowhere".into());
    options.remote.no_sign_request = true;
    options.remote.disk_cache = Some(disk_cache.join("cache"));
    options.remote.dir_ttl = Duration::from_secs(3600);
    walk::open(Path::new("s3://bucket"), options)
}

fn names(vfs: &Vfs) -> Vec<String> {
    // The listing says the state of the file, so that a look-up asks nothing.
    assert_eq!(walk::list(vfs, shardfs::vfs::ROOT, 2, 1000, false).len(), 1);
    let root = walk::resolve(vfs, "a.sprd").unwrap();
    walk::list(vfs, root.ino, 2, 1000, true).into_iter().map(|entry| entry.name).collect()
}

#[test]
fn metadata_cost_one_small_request_each_and_nothing_the_next_time() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&folder.path().join("a.sprd"));
    let bucket = Bucket::of(folder.path());
    let expected: Vec<_> = (0..NODES).map(|node| format!("item{node:04}.npy")).collect();
    let vfs = open(&bucket, disk.path());
    let shown = names(&vfs);
    assert_eq!(shown[1..], expected);
    let (asked, sent) = (bucket.asked() as u64, bucket.sent());
    // The front, and for each node a piece of 64 KiB. No piece of data comes with them.
    assert!(asked <= 1 + NODES, "{asked} requests");
    assert!(sent <= (256 << 10) + NODES * (64 << 10), "{sent} bytes");
    let array = walk::resolve(&vfs, "a.sprd/item0007.npy").unwrap();
    let bytes = walk::read_all(&vfs, &array).unwrap();
    assert!(bytes[128..] == [8; DATA as usize], "the array is not the one that was stored");
    let (asked, sent) = (bucket.asked() as u64 - asked, bucket.sent() - sent);
    assert!(asked <= 4 && sent <= DATA + (64 << 10), "{asked} requests, {sent} bytes");
    vfs.finish();
    drop(vfs);
    // Another process finds the index as it was parsed.
    let (asked, read) = (bucket.asked(), READ.load(Relaxed));
    let vfs = open(&bucket, disk.path());
    assert_eq!(names(&vfs)[1..], expected);
    assert_eq!((bucket.asked(), READ.load(Relaxed)), (asked, read));
    drop(vfs);
    // Another state of the file is read anew.
    let path = folder.path().join("a.sprd");
    let mut changed = fs::read(&path).unwrap();
    changed[STEP as usize] = b'I';
    fs::write(&path, changed).unwrap();
    let vfs = open(&bucket, disk.path());
    assert!(names(&vfs).contains(&"Item0000.npy".to_owned()));
    assert_eq!(READ.load(Relaxed), read + NODES as usize);
}
