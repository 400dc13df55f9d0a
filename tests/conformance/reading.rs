//! Any range of any file is the slice of the whole: whatever the cache, the checksums, the number of readers.

use std::{collections::HashSet, path::Path, sync::Barrier, thread};

use shardfs::{
    cache::Verify,
    vfs::{FileKind, Options, Vfs},
};

use crate::{
    common::{Random, may_fail, walk},
    readable_sources,
};

/// What `read` says of damage, and of what needs more memory than there is.
const FAILURES: [i32; 2] = [5, 12];
/// Enough for everything; room for not even one block.
const BUDGETS: [u64; 2] = [64 << 20, 1];

#[test]
fn ranges_without_checksums() {
    readable_sources().iter().for_each(|(_, source)| check(source, Verify::Off));
}

#[test]
fn ranges_with_lazy_checksums() {
    readable_sources().iter().for_each(|(_, source)| check(source, Verify::Lazy));
}

#[test]
fn ranges_with_strict_checksums() {
    readable_sources().iter().for_each(|(_, source)| check(source, Verify::Strict));
}

fn mount(source: &Path, cache_size: u64, verify: Verify) -> Vfs {
    walk::open(source, Options { cache_size, verify, ..Options::default() })
}

/// A file with the bytes that all ranges must be slices of.
struct Whole {
    node: walk::Node,
    bytes: Vec<u8>,
}

/// All files that can be read, each in one go.
fn wholes(source: &Path, verify: Verify) -> Vec<Whole> {
    let vfs = mount(source, BUDGETS[0], verify);
    let (mut wholes, damaged) = (Vec::new(), may_fail(source));
    for node in walk::files(&vfs) {
        match walk::read(&vfs, node.attr.ino, 0, node.attr.size + 10) {
            Ok(bytes) => {
                assert_eq!(bytes.len() as u64, node.attr.size, "{}: bytes and size", node.path);
                wholes.push(Whole { node, bytes });
            }
            Err(errno) => {
                assert!(FAILURES.contains(&errno) && is_in(&node.path, &damaged), "{}: errno {errno}", node.path)
            }
        }
    }
    wholes
}

fn check(source: &Path, verify: Verify) {
    check_with(source, verify, 1, &|budget| mount(source, budget, verify));
}

/// Every so many files of what `mount` opens with a budget of the cache, against the files of a folder.
pub(crate) fn check_with(source: &Path, verify: Verify, every: usize, mount: &dyn Fn(u64) -> Vfs) {
    // Without checksums everything decodes; with them a damaged block fails, but what is served is still right.
    let (truth, damaged) = (wholes(source, Verify::Off), may_fail(source));
    let readable: HashSet<&str> = truth.iter().map(|whole| &*whole.node.path).collect();
    for (budget, ranges) in BUDGETS.into_iter().zip([200, 40]) {
        let ranges = if cfg!(debug_assertions) { ranges / 8 } else { ranges } / every as u64;
        let vfs = mount(budget);
        let mut files = walk::files(&vfs);
        // What can't be read without checksums is damaged: that was looked at.
        files.retain(|file| !is_in(&file.path, &damaged) || readable.contains(&*file.path));
        // With checksums, the size of damaged content may not be known: then it is not among the files.
        let listed: HashSet<&str> = files.iter().map(|file| &*file.path).collect();
        let truth: Vec<&Whole> = truth
            .iter()
            .filter(|whole| !is_in(&whole.node.path, &damaged) || listed.contains(&*whole.node.path))
            .collect();
        let paths =
            |nodes: &mut dyn Iterator<Item = &walk::Node>| nodes.map(|node| node.path.clone()).collect::<Vec<_>>();
        let (found, expected) = (paths(&mut files.iter()), paths(&mut truth.iter().map(|whole| &whole.node)));
        let difference = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert!(
            found == expected,
            "{}: {} and {} files: {difference:?}",
            source.display(),
            found.len(),
            expected.len()
        );
        for (file, whole) in files.iter().zip(&truth).step_by(every) {
            let bytes = &whole.bytes;
            for (offset, length) in ranges_of(file.attr.size, ranges) {
                let place = || format!("{}: {length} bytes at {offset}, cache {budget}, {verify:?}", file.path);
                match walk::read(&vfs, file.attr.ino, offset, length) {
                    Ok(got) => assert!(got == slice(bytes, offset, length), "{} are not the slice", place()),
                    Err(errno) => {
                        let may_fail = is_in(&file.path, &damaged) && verify != Verify::Off;
                        assert!(FAILURES.contains(&errno) && may_fail, "{}: errno {errno}", place());
                    }
                }
            }
        }
    }
}

/// Returns whether a path begins with one of these.
fn is_in(path: &str, fronts: &[String]) -> bool {
    fronts.iter().any(|front| path.starts_with(&**front))
}

fn slice(bytes: &[u8], offset: u64, length: u64) -> &[u8] {
    let size = bytes.len() as u64;
    &bytes[offset.min(size) as usize..offset.saturating_add(length).min(size) as usize]
}

/// The edges, and some ranges in between: most of them short, as those of programs are.
fn ranges_of(size: u64, count: u64) -> Vec<(u64, u64)> {
    let last = size.saturating_sub(1);
    let mut ranges = vec![(0, 0), (0, 1), (0, size), (0, size + 1), (0, u64::MAX), (last, 0), (last, 1), (last, 2)];
    ranges.extend([(size, 0), (size, 1), (size + 1, 7), (1 << 62, 4096), (u64::MAX, 1), (u64::MAX, u64::MAX)]);
    // The end of an array's header, where one extent follows another.
    ranges.extend([(60, 8), (63, 1), (64, 1), (120, 16), (127, 2), (128, 1), (4095, 2), (4096, 4096)]);
    let mut random = Random(size);
    ranges.extend((0..count).map(|i| {
        let offset = random.below(size + 2);
        (offset, if i % 4 == 0 { random.below(size + 2) } else { random.below(300) })
    }));
    ranges
}

#[test]
fn eight_readers_at_once() {
    let reads = if cfg!(debug_assertions) { 300 } else { 3000 };
    for (family, source) in readable_sources() {
        for budget in [BUDGETS[0], 64 << 10, BUDGETS[1]] {
            eight_readers(family, &source, reads, &mount(&source, budget, Verify::Lazy));
        }
    }
}

/// Eight threads that read what was mounted of a folder, against that folder's files.
pub(crate) fn eight_readers(family: &str, source: &Path, reads: usize, vfs: &Vfs) {
    const READERS: u64 = 8;
    let wholes = wholes(source, Verify::Lazy);
    // Nothing of this mount was read before they all begin.
    let inodes: Vec<u64> = wholes
        .iter()
        .map(|whole| walk::resolve(vfs, &whole.node.path).filter(|attr| attr.kind == FileKind::File))
        .map(|attr| attr.unwrap().ino)
        .collect();
    let start = Barrier::new(READERS as usize);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (wholes, inodes, start) = (&wholes, &inodes, &start);
            scope.spawn(move || {
                // Two by two they want the same blocks at the same time.
                let mut random = Random(reader / 2);
                start.wait();
                for _ in 0..reads {
                    let file = random.below(wholes.len() as u64) as usize;
                    let size = wholes[file].bytes.len() as u64;
                    let (offset, length) = (random.below(size + 1), random.below(size.min(5000) + 2));
                    let got = walk::read(vfs, inodes[file], offset, length);
                    let path = &wholes[file].node.path;
                    assert!(
                        got.as_deref() == Ok(slice(&wholes[file].bytes, offset, length)),
                        "{family}/{path}: {length} bytes at {offset}"
                    );
                }
            });
        }
    });
}
