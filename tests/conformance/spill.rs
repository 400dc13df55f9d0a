//! Whatever holds without a disk below the cache holds with one: the same bytes, any range, eight readers at once, while it
//! fills, once it has everything, and where it takes nothing.

use std::{
    cell::RefCell,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::Ordering::Relaxed,
};

use shardfs::{
    cache::{DiskTierOptions, Verify},
    vfs::{Options, Vfs},
};

use super::reading;
use crate::{common::walk, readable_sources};

/// A mount that keeps all decoded blocks in `folder`, also those that cost little.
fn open(source: &Path, folder: &Path, cache_size: u64, verify: Verify) -> Vfs {
    // Made by the mount, so that only this user may enter it.
    let spill = DiskTierOptions { folder: folder.join("tier"), size: 1 << 30, wait: false, all: true };
    walk::open(source, Options { cache_size, verify, spill: Some(spill), ..Options::default() })
}

/// How many blobs there are once all that waits is written.
fn kept(vfs: &Vfs) -> u64 {
    vfs.finish();
    vfs.cache().disk_tier().unwrap().disk().usage().unwrap().blobs
}

fn ranges(verify: Verify) {
    let mut blobs = 0;
    for (_, source) in readable_sources() {
        let folder = tempfile::tempdir().unwrap();
        // The second time with what the first has kept.
        for _ in 0..2 {
            reading::check_with(&source, verify, 3, &|budget| open(&source, folder.path(), budget, verify));
        }
        blobs += kept(&open(&source, folder.path(), 64 << 20, verify));
    }
    // Without checksums nothing is known to be right, and nothing is kept.
    assert!((blobs > 100) == (verify != Verify::Off), "{blobs} blobs");
}

#[test]
fn ranges_with_a_disk_and_lazy_checksums() {
    ranges(Verify::Lazy);
}

#[test]
fn ranges_with_a_disk_and_strict_checksums() {
    ranges(Verify::Strict);
}

#[test]
fn ranges_with_a_disk_and_no_checksums() {
    ranges(Verify::Off);
}

#[test]
fn eight_readers_of_a_disk() {
    let mut blobs = 0;
    for (family, source) in readable_sources() {
        let folder = tempfile::tempdir().unwrap();
        // Room for everything, and for not even one block: then each read goes to the disk.
        for budget in [64 << 20, 1, 1] {
            let vfs = open(&source, folder.path(), budget, Verify::Lazy);
            reading::eight_readers(family, &source, 300, &vfs);
            blobs += kept(&vfs);
        }
    }
    // Of what is compressed: a kastore has no blocks that are.
    assert!(blobs > 100, "{blobs} blobs");
}

/// Every blob is damaged in its middle: found by checksum, decoded again.
#[test]
fn ranges_of_a_damaged_disk() {
    let (mut damaged, mut found) = (0, 0);
    for (_, source) in readable_sources() {
        let folder = tempfile::tempdir().unwrap();
        let open = |budget| open(&source, folder.path(), budget, Verify::Lazy);
        reading::check_with(&source, Verify::Lazy, 3, &open);
        drop(open(1));
        for path in files(&folder.path().join("tier")) {
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let (at, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[!byte[0]], at).unwrap();
            damaged += 1;
        }
        let disks = RefCell::new(Vec::new());
        reading::check_with(&source, Verify::Lazy, 3, &|budget| {
            let vfs = open(budget);
            disks.borrow_mut().extend(vfs.cache().disk_tier().map(|spill| spill.disk().clone()));
            vfs
        });
        found += disks.into_inner().iter().map(|disk| disk.counters().corrupt.load(Relaxed)).sum::<u64>();
    }
    assert!(damaged > 100 && found > 0, "{found} of {damaged} were found");
}

/// A disk on which neither reading nor writing succeeds: blocks are decoded, and nothing fails.
#[test]
fn ranges_with_a_disk_that_fails() {
    for (_, source) in readable_sources() {
        let folder = tempfile::tempdir().unwrap();
        reading::check_with(&source, Verify::Lazy, 9, &|budget| {
            let vfs = open(&source, folder.path(), budget, Verify::Lazy);
            // Blobs lie in folders of two digits each: files in their places are errors of reading and of writing.
            for part in 0..=255 {
                File::create(folder.path().join(format!("tier/{part:02x}"))).unwrap();
            }
            vfs
        });
    }
}

/// The files of blobs.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let parts = fs::read_dir(folder).unwrap().map(|part| part.unwrap().path()).filter(|part| part.is_dir());
    parts
        .flat_map(|part| fs::read_dir(part).unwrap().map(|file| file.unwrap().path()))
        .filter(|file| file.is_file())
        .collect()
}
