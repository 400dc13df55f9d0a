//! Thousands of seeded mutations of every golden file, each opened, listed and read: an error or an answer, never a
//! panic, a hang or memory that a number in the file asked for. And the targets of `scripts/fuzz`, on the same
//! mutations.
//!
//! `SHARDFS_MUTATIONS=N` tries N mutations of each file in place of the bounded default; `SHARDFS_SEED=S` others.
//! `SHARDFS_TARGETS=filter_` tries only the targets whose names begin so.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
#[allow(unreachable_pub, reason = "a library for the fuzzer's programs")]
#[path = "../fuzz/targets.rs"]
mod targets;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Random, container, golden, small_files};
use shardfs::codec::Codec;

/// Larger files are left to the fuzzer.
const LARGEST: u64 = 256 << 10;
/// No mutation may take longer, whatever else the machine does.
const LONGEST: Duration = Duration::from_secs(20);

/// The processor time of this thread. Unlike the time of day, it does not grow while other programs have the processors.
fn time_used() -> Duration {
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(used.split(' ').next().unwrap().parse().unwrap())
}

/// Numbers at which code that computes with sizes and offsets goes wrong.
const NUMBERS: [u64; 16] = [
    0,
    1,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Every golden file and example, those of formats that the conformance suite does not know yet included.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = small_files(LARGEST);
    for entry in std::fs::read_dir(golden("kdb")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("kdb/{}", path.file_name().unwrap().to_string_lossy());
        let small = path.metadata().unwrap().len() < LARGEST && name.ends_with(".kdb");
        if small && files.iter().all(|(known, _)| *known != name) {
            files.push((name, std::fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

/// A file with one to four things done to it. Half of the places are in the front matter or at the end, where the
/// structure is.
fn mutate(random: &mut Random, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let length = bytes.len() as u64;
        if length == 0 {
            return bytes;
        }
        let at = match random.below(4) {
            0 => random.below(length.min(64)),
            1 => random.below(length.min(2048)),
            2 => length - 1 - random.below(length.min(1024)),
            _ => random.below(length),
        } as usize;
        let rest = bytes.len() - at;
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 | 3 => {
                // A number, at its natural alignment more often than not.
                let width = 1 << (1 + random.below(3));
                let at = if random.below(4) > 0 { at / width * width } else { at };
                let mut number = NUMBERS[random.below(NUMBERS.len() as u64) as usize];
                if random.below(3) == 0 {
                    number = length.wrapping_add(random.below(17)).wrapping_sub(8);
                }
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..at + rest.min(1 + random.below(64) as usize))),
            6 => {
                // What stood elsewhere, or in another file.
                let from = if random.below(2) == 0 && !other.is_empty() { other.to_vec() } else { bytes.clone() };
                let start = random.below(from.len() as u64) as usize;
                let count = (1 + random.below(96) as usize).min(from.len() - start);
                let end = if random.below(2) == 0 { bytes.len().min(at + count) } else { at };
                bytes.splice(at..end, from[start..start + count].iter().copied());
            }
            _ => bytes[at..at + rest.min(1 + random.below(16) as usize)].fill(random.below(2) as u8 * 0xff),
        }
    }
    bytes
}

#[test]
fn mutated_golden_files() {
    let seed = environment("SHARDFS_SEED").unwrap_or(20_260_401);
    let rounds = environment("SHARDFS_MUTATIONS").unwrap_or(if cfg!(debug_assertions) { 20 } else { 1000 });
    let files = files();
    let next = AtomicUsize::new(0);
    let [tried, opened, read] = [(); 3].map(|()| AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((name, bytes)) = files.get(next.fetch_add(1, Relaxed)) {
                    // Large files take longer and have no more structure.
                    let rounds = if bytes.len() > 32 << 10 { rounds.div_ceil(4) } else { rounds };
                    for round in 0..rounds {
                        let mut random = Random(seed ^ round << 32 ^ name.len() as u64 ^ bytes.len() as u64);
                        let other = &files[random.below(files.len() as u64) as usize].1;
                        let mutated = mutate(&mut random, bytes, other);
                        tried.fetch_add(1, Relaxed);
                        let started = time_used();
                        let outcome = catch_unwind(AssertUnwindSafe(|| {
                            let Some(found) = container::open(mutated) else { return };
                            opened.fetch_add(1, Relaxed);
                            for file in found.walk() {
                                read.fetch_add(found.read(&file) as usize, Relaxed);
                            }
                        }));
                        if outcome.is_err() || time_used() - started > LONGEST {
                            let what = if outcome.is_err() { "panicked" } else { "took too long" };
                            failures.lock().unwrap().push(format!("{name}, round {round}, seed {seed}: {what}"));
                        }
                    }
                }
            });
        }
    });
    let (tried, opened, read) = (tried.into_inner(), opened.into_inner(), read.into_inner());
    println!(
        "{tried} mutations of {} files, {opened} opened, {read} reads succeeded, {:.1?}",
        files.len(),
        begun.elapsed()
    );
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures, first: {:#?}", failures.len(), &failures[..failures.len().min(10)]);
    assert!(tried > 1000 && opened * 20 > tried && read > tried, "the mutations destroy too much to test anything");
}

/// Every target of the fuzzer, on mutations of what it is seeded with.
#[test]
fn fuzz_targets() {
    let seed = environment("SHARDFS_SEED").unwrap_or(20_260_401);
    let rounds = environment("SHARDFS_MUTATIONS").unwrap_or(if cfg!(debug_assertions) { 5 } else { 40 });
    let files: Vec<Vec<u8>> = files().into_iter().map(|(_, bytes)| bytes).collect();
    let failures = Mutex::new(Vec::new());
    let tried = AtomicUsize::new(0);
    thread::scope(|scope| {
        let only = std::env::var("SHARDFS_TARGETS").unwrap_or_default();
        for (name, target) in targets::ALL.into_iter().filter(|(name, _)| name.starts_with(&only)) {
            let (files, failures, tried) = (&files, &failures, &tried);
            scope.spawn(move || {
                let own = targets::seeds(name);
                let seeds = own.as_ref().unwrap_or(files);
                for (number, bytes) in seeds.iter().enumerate() {
                    for round in 0..rounds {
                        let mut random = Random(seed ^ round << 32 ^ (number as u64) << 8 ^ name.len() as u64);
                        let other = &seeds[random.below(seeds.len() as u64) as usize];
                        // The seeds themselves first.
                        let input = if round == 0 { bytes.clone() } else { mutate(&mut random, bytes, other) };
                        tried.fetch_add(1, Relaxed);
                        let started = time_used();
                        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
                        if outcome.is_err() || time_used() - started > LONGEST {
                            failures.lock().unwrap().push(format!("{name}, seed {number}, round {round}"));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures, first: {:#?}", failures.len(), &failures[..failures.len().min(10)]);
    assert!(tried.into_inner() > 1000);
}

/// What the seeds of the codecs are for: each of them decodes.
#[test]
fn payloads_decode() {
    let payloads = targets::payloads();
    assert_eq!(payloads.len(), 5 * 6 + 5);
    for payload in payloads {
        // A target returns at once where nothing decodes; damaged, it would hide that its seeds are worth nothing.
        let size = u64::from(u32::from_le_bytes([payload[1], payload[2], payload[3], 0]));
        let (width, height) = (u32::from(payload[4]) + 1, u32::from(payload[5]) + 1);
        let channels = payload[0] / 7 + 1;
        let codecs = [Codec::None, Codec::Zstd, Codec::Lz4, Codec::Deflate, Codec::Zlib];
        let pictures = [Codec::Jpeg(width, height, channels), Codec::Png(width, height, channels)];
        let codec = codecs.into_iter().chain(pictures).nth(usize::from(payload[0] % 7)).unwrap();
        assert_eq!(codec.decode(&payload[6..], size).unwrap().len() as u64, size, "{codec:?}");
    }
}

/// The seeds of each filter decode, and each target has a program.
#[test]
fn every_filter_is_a_target() {
    let programs = include_str!("../fuzz/Cargo.toml");
    for (name, _) in targets::ALL {
        assert!(programs.contains(&format!("[[bin]]\nname = \"{name}\"\n")), "{name}");
    }
    assert_eq!(programs.matches("[[bin]]").count(), targets::ALL.len());
    let filters: Vec<_> = targets::ALL.iter().filter_map(|(name, _)| name.strip_prefix("filter_")).collect();
    assert_eq!(filters.len(), 25);
    for (which, name) in (0..).zip(filters) {
        let seeds = targets::seeds(&format!("filter_{name}")).unwrap();
        let decodes = |seed: &Vec<u8>| {
            let size = u64::from(u32::from_le_bytes([seed[1], seed[2], seed[3], 0]));
            let filter = targets::filter(which, seed[0])?;
            shardfs::codec::Chain::of([filter])?.decode(&seed[4..], size).ok()
        };
        let good = seeds.iter().filter(|seed| decodes(seed).is_some()).count();
        assert!(good > 0, "{name}: none of {} seeds decodes", seeds.len());
    }
}
