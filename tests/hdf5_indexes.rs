//! Every byte of each kind of index node that HDF5 has, changed: nothing worse than an error. And what is refused of the
//! golden files, which may only become less.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
#[allow(dead_code, unreachable_pub, reason = "a library for the fuzzer's programs")]
#[path = "../fuzz/targets.rs"]
mod targets;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use common::{container, golden};
use shardfs::{EntryKind, Volume};

/// Signatures of nodes. Those of B-trees are followed by what they index, at the offset that is given.
const NODES: [(&[u8; 4], Option<usize>); 20] = [
    (b"OHDR", None),
    (b"OCHK", None),
    (b"TREE", Some(4)),
    (b"SNOD", None),
    (b"HEAP", None),
    (b"GCOL", None),
    (b"BTHD", Some(5)),
    (b"BTIN", Some(5)),
    (b"BTLF", Some(5)),
    (b"FRHP", None),
    (b"FHIB", None),
    (b"FHDB", None),
    (b"FAHD", None),
    (b"FADB", None),
    (b"EAHD", None),
    (b"EAIB", None),
    (b"EASB", None),
    (b"EADB", None),
    (b"SMTB", None),
    (b"SMLI", None),
];

/// Kinds that the golden files have.
const KINDS: usize = 24;

/// Nodes of a kind in one file that are damaged, and their bytes.
const MOST: usize = 2;
const LONGEST: usize = 512;

/// The golden files by name.
fn files() -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(golden("hdf5")).unwrap().map(|entry| entry.unwrap().path());
    let is_file = |path: &std::path::PathBuf| {
        path.is_file()
            && !["json", "md", "py", "raw"].iter().any(|suffix| path.extension().is_some_and(|own| own == *suffix))
    };
    let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.filter(is_file).map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

/// Returns the places of nodes in a file, by kind.
fn nodes(bytes: &[u8]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, window) in bytes.windows(8).enumerate() {
        if let Some((signature, kind)) = NODES.iter().find(|(signature, _)| window.starts_with(*signature)) {
            let kind = kind.map_or_else(String::new, |at| format!(" {}", window[at]));
            found.push((format!("{}{kind}", String::from_utf8_lossy(*signature)), at));
        }
    }
    found
}

#[test]
fn every_byte_of_each_kind_of_node() {
    // Slow code takes fewer places, of each node others.
    let step = if cfg!(debug_assertions) { 7 } else { 1 };
    let (_, parse) = targets::ALL.into_iter().find(|(name, _)| *name == "hdf5").unwrap();
    // Small files first.
    let mut files: Vec<_> = files().into_iter().collect();
    files.sort_by_key(|(_, bytes)| bytes.len());
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (mut tried, mut opened) = (0, 0);
    for (name, bytes) in &files {
        let all = nodes(bytes);
        let mut here: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, (kind, at)) in all.iter().enumerate() {
            let count = here.entry(kind).or_default();
            // Of a kind, two files have all that is special.
            if *count == MOST || *count == 0 && seen.get(kind).is_some_and(|files| *files == 2) {
                continue;
            }
            if *count == 0 {
                *seen.entry(kind.clone()).or_default() += 1;
            }
            *count += 1;
            let next = all.get(number + 1).map_or(bytes.len(), |(_, next)| *next);
            let end = next.min(at + LONGEST);
            for place in (*at + number % step..end).step_by(step) {
                let flip = [0xff, 1, 0x80][place % 3];
                let mut damaged = bytes.clone();
                damaged[place] ^= flip;
                tried += 1;
                // Some are also shown.
                let is_shown = tried % 16 == 0;
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    parse(&damaged);
                    let found = if is_shown { container::open(damaged) } else { None };
                    if let Some(found) = found {
                        opened += 1;
                        for file in found.walk() {
                            found.read(&file);
                        }
                    }
                }));
                assert!(outcome.is_ok(), "{name}: {kind} at {at}: byte {place} ^ {flip:#x}");
            }
        }
    }
    println!("{tried} changes of {} kinds of nodes, {opened} opened", seen.len());
    assert_eq!(seen.len(), KINDS, "{seen:?}");
    assert!(opened > 50);
}

/// Damage of a node with a checksum, or of its signature, is reported with the object's path and the place in the file.
#[test]
fn damage_of_a_node_names_the_object_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let (mut reported, mut kinds) = (0, BTreeSet::new());
    for (name, bytes) in files().into_iter().filter(|(name, _)| ["indexes.h5", "ordinary_v0.h5"].contains(&&**name)) {
        for (kind, at) in nodes(&bytes) {
            // The root's own nodes are those of the whole file.
            if !kinds.insert((name.clone(), kind.clone())) {
                continue;
            }
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            fs::write(folder.path().join("x.h5"), &damaged).unwrap();
            let volume = Volume::open(folder.path()).unwrap();
            for entry in volume.walk().flatten().filter(|entry| entry.kind() == EntryKind::File) {
                let _ = entry.read();
            }
            for problem in volume.problems().iter().map(ToString::to_string) {
                let place = problem.split_once("at byte ").and_then(|(_, rest)| rest.split(':').next()?.parse().ok());
                // Attributes are reported by their names.
                let is_attribute = problem.contains(": the attribute \"");
                let is_place = place.is_some_and(|place: u64| place > 0 && place < bytes.len() as u64);
                assert!(problem.starts_with("x.h5") && (is_place || is_attribute), "{kind} at {at}: {problem}");
                reported += 1;
            }
        }
    }
    println!("{reported} problems of {} nodes", kinds.len());
    assert!(reported > kinds.len() / 2);
}

/// What the golden files have and is refused, with the reason. A capability removes a line; nothing may add one.
#[test]
fn what_is_refused_only_shrinks() {
    let volume = Volume::open(golden("hdf5")).unwrap();
    for entry in volume.walk() {
        let entry = entry.unwrap();
        if entry.kind() == EntryKind::File {
            let _ = entry.read();
        }
    }
    let refused: BTreeSet<_> = volume.problems().iter().map(ToString::to_string).collect();
    let known: BTreeSet<_> = include_str!("hdf5_refused.txt").lines().map(str::to_owned).collect();
    let (new, gone): (Vec<_>, Vec<_>) = (refused.difference(&known).collect(), known.difference(&refused).collect());
    assert!(new.is_empty() && gone.is_empty(), "refused now: {new:#?}\nno longer, to be removed: {gone:#?}");
}
