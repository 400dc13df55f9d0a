//! Every small container, cut at every byte and with every byte of its front matter damaged: an error or an answer,
//! never a panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use crate::common::{
    container,
    shard::{self, Block},
    small_files_of,
};

/// Files up to this size are damaged.
const SMALL: u64 = 8 << 10;
/// Bytes at the front that are damaged one by one.
const FRONT: usize = 2048;
/// Bytes at the end too, where some formats have their index.
const BACK: usize = 512;

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Cut(usize),
    Flip(usize, u8),
}

impl Damage {
    fn apply(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Cut(at) => bytes[..at].to_vec(),
            Self::Flip(at, bits) => {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= bits;
                bytes
            }
        }
    }

    /// Everything that is done to a file of this length.
    fn all(length: usize) -> impl Iterator<Item = Self> {
        let places = (0..length.min(FRONT)).chain(length.saturating_sub(BACK).max(FRONT)..length);
        let flips = places.flat_map(|at| [Self::Flip(at, 0xff), Self::Flip(at, 0x01)]);
        (0..=length).map(Self::Cut).chain(flips)
    }
}

#[derive(Default)]
struct Counts {
    tried: AtomicUsize,
    opened: AtomicUsize,
    files: AtomicUsize,
    tables: AtomicUsize,
    reads: AtomicUsize,
}

#[test]
fn damaged_files() {
    // Slow code takes fewer places, of each file others.
    let step = if cfg!(debug_assertions) { 13 } else { 1 };
    let files = small_files_of(crate::sources(), SMALL);
    let (next, counts, failures) = (AtomicUsize::new(0), Counts::default(), Mutex::new(Vec::new()));
    let begun = Instant::now();
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((name, bytes)) = files.get(next.fetch_add(1, Relaxed)) {
                    for damage in Damage::all(bytes.len()).skip(bytes.len() % step).step_by(step) {
                        let outcome = catch_unwind(AssertUnwindSafe(|| exercise(damage.apply(bytes), &counts)));
                        if outcome.is_err() {
                            failures.lock().unwrap().push(format!("{name}: {damage:?}"));
                        }
                    }
                }
            });
        }
    });
    let Counts { tried, opened, files: seen, tables, reads } = counts;
    println!(
        "{} files, every {step}. damage: {} tried, {} of them containers with {} files, {} tables, {} reads succeeded, {:.1?}",
        files.len(),
        tried.load(Relaxed),
        opened.load(Relaxed),
        seen.load(Relaxed),
        tables.load(Relaxed),
        reads.load(Relaxed),
        begun.elapsed()
    );
    assert!(tables.load(Relaxed) > 100, "nearly no container had a table left");
    assert!(opened.load(Relaxed) > 100 && reads.load(Relaxed) > 1000, "nearly nothing was opened at all");
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} panics, first: {:#?}", failures.len(), &failures[..failures.len().min(10)]);
}

fn exercise(bytes: Vec<u8>, counts: &Counts) {
    counts.tried.fetch_add(1, Relaxed);
    let Some(opened) = container::open(bytes) else { return };
    counts.opened.fetch_add(1, Relaxed);
    for file in opened.walk() {
        counts.files.fetch_add(1, Relaxed);
        counts.reads.fetch_add(opened.read(&file) as usize, Relaxed);
        if opened.path(file.node).ends_with(".parquet") {
            check_table(&opened, &file);
            counts.tables.fetch_add(1, Relaxed);
        }
    }
}

/// What is shown as a table is one, whatever the container claims: its footer says how long it is, and lies in the file.
fn check_table(opened: &container::Opened, file: &container::File) {
    let size = file.view.size();
    let read =
        |offset, length| file.view.read_at(&opened.reader, offset, length).map(|bytes| bytes.as_syscall_buf().to_vec());
    let Ok(end) = read(size - 8, 8) else { return };
    let length = u64::from(u32::from_le_bytes(end[..4].try_into().unwrap()));
    assert!(&end[4..] == b"PAR1" && length + 12 <= size, "{}: {length} of {size}", opened.path(file.node));
    assert_eq!(read(0, 4).unwrap(), b"PAR1");
}

/// A block that lies about its place fails, and harms no other.
#[test]
fn blocks_outside_the_data_section() {
    let block = |offset| Block { offset, ..Block::new("lie", *b"0123456789") };
    let good = Block::new("good", *b"good");
    let end = shard::file(1, &[good.clone(), block(None)]).len() as u64;
    for offset in [0, 63, 64, 159, end - 15, end - 9, end, 1 << 60, u64::MAX - 10, u64::MAX - 9, u64::MAX] {
        let opened = container::open(shard::file(1, &[good.clone(), block(Some(offset))])).unwrap();
        let mut blocks = 0;
        for file in opened.walk() {
            let path = opened.path(file.node);
            let bytes = file.view.read_at(&opened.reader, 0, file.view.size());
            match path.trim_start_matches(".raw/") {
                "lie.bin" => assert!(bytes.is_err(), "{path}: a block at {offset} was served"),
                "good.bin" => assert_eq!(bytes.unwrap().as_syscall_buf(), b"good", "{path}"),
                _ => continue,
            }
            blocks += 1;
        }
        assert_eq!(blocks, 4);
    }
}

/// A file of no bytes is never read: a block that is said to hold none and is damaged must not look like one.
#[test]
fn blocks_that_lie_about_being_empty() {
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).unwrap();
    let empty = |name: &str| Block::new(name, *b"");
    let blocks = [
        Block::new("meta/channels", *br#"{"channels":[{"id":"f","dtype":"f32","shape":[]}]}"#),
        Block::new("meta/episode", *br#"{"length_T":0}"#),
        // 22: decoded length, checksum, place, codec.
        Block::packed("signal/f", shard::ZSTD, zstd(&[0; 1024]), 0),
        Block { crc: 5, ..empty("checksum") },
        Block { crc: 5, ..Block::packed("checksum2", shard::ZSTD, zstd(b""), 0) },
        Block { offset: Some(1 << 40), ..empty("past") },
        Block { offset: Some(u64::MAX), ..empty("far") },
        Block { offset: Some(64), ..empty("index") },
        Block::packed("codec", 1, *b"xx", 0),
        Block::packed("corrupt", shard::LZ4, *b"\x10", 0),
        Block::packed("residual/f/sign2nddiff", shard::ZSTD, zstd(b"x"), 0),
        // Nothing is wrong with these.
        empty("good"),
        Block::packed("good2", shard::ZSTD, zstd(b""), 0),
        Block::packed("good3", shard::LZ4, *b"\0", 0),
    ];
    let opened = container::open(shard::file(5, &blocks)).unwrap();
    let (mut bad, mut good) = (Vec::new(), Vec::new());
    for file in opened.walk() {
        let path = opened.path(file.node);
        let size = file.view.size();
        match file.view.read_at(&opened.reader, 0, size) {
            Ok(bytes) if size == 0 => {
                assert!(bytes.as_syscall_buf().is_empty());
                good.push(path);
            }
            Ok(_) => assert!(path.starts_with("meta/") || path.starts_with(".raw/meta/") || path == "container.json"),
            Err(_) => {
                // Wherever a reader begins.
                assert!(size > 0 && file.view.read_at(&opened.reader, 0, 1).is_err(), "{path}");
                bad.push((path, size));
            }
        }
    }
    let names = ["checksum", "checksum2", "codec", "corrupt", "far", "index", "past"];
    let mut expected: Vec<(String, u64)> = Vec::new();
    for name in names {
        expected.extend([(format!("{name}.bin"), 1), (format!(".raw/{name}.bin"), 1)]);
    }
    for name in ["signal/f", "residual/f/sign2nddiff"] {
        expected.extend([(format!("{name}.npy"), 128), (format!(".raw/{name}.bin"), 1)]);
    }
    bad.sort();
    expected.sort();
    assert_eq!(bad, expected);
    good.sort();
    let expected = ["good", "good2", "good3"];
    let expected: Vec<String> =
        [".raw/", ""].iter().flat_map(|at| expected.map(|name| format!("{at}{name}.bin"))).collect();
    assert_eq!(good, expected);
    let description = opened.tree.description(&opened.reader).unwrap();
    let description: serde_json::Value = serde_json::from_slice(&description).unwrap();
    for item in description["items"].as_array().unwrap() {
        let path = item["path"].as_str().unwrap();
        assert_eq!(item.get("error").is_some(), bad.iter().any(|(bad, _)| bad == path), "{item}");
    }
}
