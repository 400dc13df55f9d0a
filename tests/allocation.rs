//! What a file claims costs nothing: memory while hostile files are detected, opened and walked through.
//!
//! The allocator of this binary counts. zstd's own tables and windows come from C and are not counted; the window is
//! bounded by `limits::ZSTD_WINDOW_LOG`.
#![allow(unsafe_code, reason = "an allocator that counts must implement an unsafe trait")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use shardfs::{
    limits,
    vfs::{Options, Vfs},
};

use common::{
    container, idv, kdb, shard,
    shard::{Block, LZ4, ZSTD, zstd_bomb},
    small_files,
};

const MIB: usize = 1 << 20;
/// The most that may be asked for at once.
const AT_ONCE: usize = 32 * MIB;
/// The most that may be held, beside what was held before.
const HELD: usize = 64 * MIB;

struct Counting;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

fn grow(size: usize) {
    LARGEST.fetch_max(size, Relaxed);
    PEAK.fetch_max(CURRENT.fetch_add(size, Relaxed) + size, Relaxed);
}

// SAFETY: everything is passed on to the system's allocator as it came; only numbers are noted beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The two may be there at once, while the content is moved.
        grow(size);
        CURRENT.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        CURRENT.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One measures at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs something; the largest single allocation and the most that was held at once. [`alone`] is held.
fn measure<T>(run: impl FnOnce() -> T) -> (usize, usize, T) {
    let before = CURRENT.load(Relaxed);
    PEAK.store(before, Relaxed);
    LARGEST.store(0, Relaxed);
    let result = run();
    (LARGEST.load(Relaxed), PEAK.load(Relaxed).saturating_sub(before), result)
}

/// Files with what they cost, and which of them cost too much.
#[derive(Default)]
struct Costs {
    count: usize,
    opened: usize,
    most: (usize, usize),
    wrong: Vec<String>,
}

impl Costs {
    /// Detects, opens and walks through a file.
    fn open(&mut self, what: impl FnOnce() -> String, file: Vec<u8>) {
        let (at_once, held, opened) = measure(|| container::open(file).map(|opened| opened.walk().len()));
        self.opened += usize::from(opened.is_some());
        self.add(what, at_once, held);
    }

    fn add(&mut self, what: impl FnOnce() -> String, at_once: usize, held: usize) {
        self.count += 1;
        self.most = (self.most.0.max(at_once), self.most.1.max(held));
        if at_once > AT_ONCE || held > HELD {
            self.wrong.push(format!("{}: {} MiB at once, {} MiB held", what(), at_once / MIB, held / MIB));
        }
    }

    fn finish(self, label: &str) {
        let Self { count, opened, most: (at_once, held), wrong } = self;
        println!("{label}: {count} files, {opened} opened, at most {at_once} bytes at once, {held} held");
        let first = &wrong[..wrong.len().min(20)];
        assert!(wrong.is_empty(), "{} of {count} files cost too much, the first: {first:#?}", wrong.len());
    }
}

const BIG: [u64; 5] = [u32::MAX as u64, 10_000_000, 1 << 30, 1 << 60, u64::MAX];

#[test]
fn large_numbers_in_every_field_of_every_format() {
    let _alone = alone();
    let mut costs = Costs::default();
    let step = if cfg!(debug_assertions) { 28 } else { 4 };
    for (name, bytes) in small_files(8 << 10) {
        costs.open(|| name.clone(), bytes.clone());
        for at in (0..bytes.len().min(2048)).step_by(step) {
            for (big, width) in BIG.into_iter().flat_map(|big| [(big, 4), (big, 8)]) {
                let mut bytes = bytes.clone();
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&big.to_le_bytes()[..end - at]);
                costs.open(|| format!("{name}: {big:#x} in {width} bytes at {at}"), bytes);
            }
        }
    }
    costs.finish("large numbers");
}

/// Texts of a NetCDF file that are larger than any file: one of gigabytes, and many.
#[test]
fn texts_that_are_not_there() {
    let _alone = alone();
    let mut costs = Costs::default();
    for (name, bytes) in small_files(8 << 10).into_iter().filter(|(_, bytes)| bytes.starts_with(b"CDF")) {
        for at in (4..bytes.len().min(2048)).step_by(4) {
            for big in [0xffff_ffff_u32, 0x4000_0000, 0x0098_9680] {
                let mut bytes = bytes.clone();
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&big.to_be_bytes()[..end - at]);
                costs.open(|| format!("{name}: {big:#x} at {at}"), bytes.clone());
                bytes[at..end].copy_from_slice(&big.to_le_bytes()[..end - at]);
                costs.open(|| format!("{name}: {big:#x}, little-endian, at {at}"), bytes);
            }
        }
    }
    assert!(costs.opened > 1000);
    costs.finish("texts that are not there");
}

/// Names that parsers look at more closely.
const NAMES: [&str; 9] = [
    "meta/wshard",
    "meta/episode",
    "meta/channels",
    "meta/manifest",
    "signal/x",
    "signal/cmd/language",
    "reward",
    "time/ticks",
    "residual/x/sign2nddiff",
];
const CHANNELS: &str = r#"{"channels": [{"id": "x", "dtype": "u8", "shape": []},
    {"id": "cmd/language", "dtype": "u8", "shape": [], "modality": "language"}]}"#;
const EPISODE: &str = r#"{"length_T": 1152921504606846976}"#;

#[test]
fn lies_about_sizes() {
    let _alone = alone();
    let mut costs = Costs::default();
    for (name, role) in NAMES.into_iter().flat_map(|name| [(name, 1), (name, 4), (name, 5)]) {
        for (size, flags) in BIG.into_iter().flat_map(|size| [(size, 0), (size, ZSTD), (size, LZ4), (size, 1)]) {
            for content_type in [0, 1, 2, 5, 6] {
                let block = Block { content_type, ..Block::packed(name, flags, [1, 1, 0, 0, 255, 255], size) };
                let far = Block { disk_size: Some(size), ..block.clone() };
                let beyond = Block { offset: Some(size), ..block.clone() };
                for block in [block, far, beyond] {
                    let meta = [Block::new("meta/episode", EPISODE), Block::new("meta/channels", CHANNELS)];
                    let file = shard::file(role, &[&meta[..], &[block]].concat());
                    costs.open(|| format!("{name}, role {role}, flags {flags}, type {content_type}, {size:#x}"), file);
                }
            }
        }
    }
    for dims in [vec![1 << 60], vec![1 << 32, 1 << 32], vec![0, 1 << 60], vec![u64::MAX; 32], vec![0; 255]] {
        for dtype in 0..=20 {
            let mut stored = vec![dtype, dims.len() as u8, 0, 0];
            dims.iter().for_each(|dim: &u64| stored.extend(dim.to_le_bytes()));
            let block = Block { content_type: 1, ..Block::new("tensor", stored) };
            costs.open(|| format!("TensorV1 {dtype} of {dims:?}"), shard::file(1, &[block]));
        }
    }
    costs.finish("lies about sizes");
}

#[test]
fn zstd_bombs() {
    let _alone = alone();
    let mut costs = Costs::default();
    const GIB: u64 = 1 << 30;
    for (name, role) in NAMES.into_iter().flat_map(|name| [(name, 1), (name, 4), (name, 5)]) {
        for size in [10, 4096, 1 << 20, 16 << 20, GIB, 1 << 60] {
            for (claim, content_type) in [(None, 0), (Some(size), 1), (Some(GIB), 6), (Some(1 << 60), 2), (None, 6)] {
                let meta = [Block::new("meta/episode", EPISODE), Block::new("meta/channels", CHANNELS)];
                let bomb = Block { content_type, ..Block::packed(name, ZSTD, zstd_bomb(GIB, claim), size) };
                let file = shard::file(role, &[&meta[..], &[bomb]].concat());
                let what = || format!("{name}, role {role}, {size:#x} stated, the frame says {claim:?}");
                costs.open(what, file.clone());
                if size >= GIB {
                    continue;
                }
                // 1 GiB instead of what is stated: fails, and costs what was stated.
                let (at_once, held, ()) = measure(|| {
                    let opened = container::open(file).unwrap();
                    for file in opened.walk().iter().filter(|file| opened.path(file.node).starts_with(".raw/")) {
                        let bytes = file.view.read_at(&opened.reader, 0, 100);
                        let of_bomb = file.view.size() == size;
                        assert!(!of_bomb || bytes.is_err(), "{}: a bomb was read", what());
                    }
                });
                costs.add(what, at_once, held);
            }
        }
    }
    costs.finish("zstd bombs");
}

/// Blocks that inflate to 128 MiB, whatever their table says: sizes and reads cost what the table says at most.
#[test]
fn deflate_bombs() {
    let _alone = alone();
    let mut costs = Costs::default();
    const BOMB: u64 = 128 << 20;
    let codecs = [
        ("Int32", idv::codec("Int32", &[])),
        ("Boolean", idv::codec("Boolean", &[])),
        ("text", idv::codec("TextSpan", &[])),
        ("vectors", idv::vector("Single", 0)),
        ("wide vectors", idv::vector("Int64", i32::MAX)),
        ("vectors of text", idv::vector("TextSpan", 0)),
        ("wide vectors of text", idv::vector("TextSpan", i32::MAX)),
        ("unknown", idv::codec("Fancy", &[])),
    ];
    for rows in [1, 1000, 1 << 20, i32::MAX as u64] {
        // Plausible fronts: so many values, vectors of a length of their own or of 2^31 slots.
        let word = rows as u32;
        for front in [[word, 0, 0], [word, i32::MAX as u32, 0], [word, i32::MAX as u32, u32::MAX], [0, 0, 0]] {
            let front: Vec<u8> = front.iter().flat_map(|word| word.to_le_bytes()).collect();
            let stored = idv::deflated(&front, BOMB);
            for size in [0, 10, 4096, 1 << 20, 8 << 20, BOMB as i32 - 5, i32::MAX] {
                for (name, codec) in &codecs {
                    let column = idv::Column { name: "x", codec: codec.clone(), kind: 1, stored: stored.clone(), size };
                    let file = idv::file(rows, &[column]);
                    let what = || format!("{rows} rows of {name}, {size} bytes stated, {front:?}");
                    // Parsing a block that is really there takes the block: only its size and raw bytes are asked for.
                    let is_there = size > 16 << 20;
                    costs.open(what, if is_there && name.contains("text") { Vec::new() } else { file.clone() });
                    if is_there {
                        continue;
                    }
                    let (at_once, held, ()) = measure(|| {
                        let opened = container::open(file).unwrap();
                        for file in opened.walk() {
                            let _ = file.view.read_at(&opened.reader, 0, 1000);
                            let _ = file.view.read_at(&opened.reader, file.view.size() / 2, 1000);
                        }
                    });
                    costs.add(what, at_once, held);
                }
            }
        }
    }
    costs.finish("DEFLATE bombs");
}

#[test]
fn much_in_little_metadata() {
    let _alone = alone();
    let mut costs = Costs::default();
    for name in ["meta/wshard", "meta/episode", "meta/channels"] {
        for (label, front, part, back) in [
            ("numbers", r#"{"channels": ["#, "0,", "0]}"),
            ("folders", r#"{"channels": ["#, "[],", "0]}"),
            ("objects", r#"{"channels": ["#, r#"{"id":"a"},"#, "0]}"),
            ("depth", r#"{"channels": "#, "[", "0"),
        ] {
            let count = (15 * MIB - front.len() - back.len()) / part.len();
            let json = format!("{front}{}{back}", part.repeat(count));
            let stored = zstd::bulk::compress(json.as_bytes(), 1).unwrap();
            let file = shard::file(5, &[Block::packed(name, ZSTD, stored, json.len() as u64)]);
            drop(json);
            let size = file.len();
            costs.open(|| format!("{name} of many {label} in a file of {size} bytes"), file);
        }
    }
    // The schema section is not compressed.
    let mut file = shard::file(1, &[]);
    let schema = file.len() as u64;
    file.extend(b"[");
    file.extend(b"0,".repeat(15 * MIB / 2));
    file.extend(b"0]");
    let end = file.len() as u64;
    file[32..40].copy_from_slice(&schema.to_le_bytes());
    file[40..48].copy_from_slice(&end.to_le_bytes());
    costs.open(|| format!("a schema of many numbers in a file of {end} bytes"), file);
    costs.finish("much metadata");
}

#[test]
fn many_names_in_a_small_string_table() {
    let _alone = alone();
    let mut costs = Costs::default();
    let mut random = common::Random(7);
    let table: Vec<u8> = (0..60_000).map(|i| if i % 2 == 1 { b'/' } else { b'A' + random.below(26) as u8 }).collect();
    for (label, length, every) in [("deep", 50_000, 2), ("deep and equal", 50_000, 0), ("short", 20, 2)] {
        let block = |i: u32| Block { name_at: Some((i * every, length)), ..Block::default() };
        let file = shard::file_with(1, &table, &(0..2000).map(block).collect::<Vec<_>>());
        let size = file.len();
        costs.open(|| format!("{label} names in a file of {size} bytes"), file);
    }
    costs.finish("many names");
}

/// Small things can't be refused their memory, so room for them is asked for before they are made: 700 bytes an entry,
/// and 7 a byte of its name.
#[test]
fn many_entries_take_no_more_than_was_asked_for() {
    let _alone = alone();
    // Just more than fit into tables of a power of two.
    const COUNT: usize = 472_000;
    for length in [0, 8, 40] {
        let block = |i: usize| Block::new(&format!("{i:0length$}")[..length], *b"");
        let file = shard::file(1, &(0..COUNT).map(block).collect::<Vec<_>>());
        let (_, held, opened) = measure(|| container::open(file).unwrap());
        assert!(opened.tree.warnings().is_empty(), "{:?}", opened.tree.warnings());
        // What was asked for, and what must be left beside it, is held for a moment too.
        let most = COUNT * (700 + 7 * length) + limits::HEADROOM + MIB;
        println!("{} bytes an entry", held / COUNT);
        assert!(held <= most, "{held} bytes for {COUNT} entries with names of {length} bytes, more than {most}");
    }
}

/// Index entries and heads of pictures that lie in every field, and sections that lie over each other.
#[test]
fn lies_about_episodes() {
    let _alone = alone();
    let mut costs = Costs::default();
    let pixels = [7; 12];
    let sound = kdb::Episode::of_pictures(&vec![kdb::picture(b"c", (2, 2, 3), 0, 12, &pixels); 3]);
    let end = kdb::file(std::slice::from_ref(&sound), None).len() as u64;
    let places = [0, 1, 63, 64, end - 64, end - 1, end, end + 1, 1 << 32, 1 << 62, u64::MAX - 64, u64::MAX];
    for (offset, length) in places.into_iter().flat_map(|offset| places.map(|length| (offset, length))) {
        let what = || format!("{length:#x} bytes at {offset:#x}");
        costs.open(
            || format!("an index of {}", what()),
            kdb::file(std::slice::from_ref(&sound), Some((offset, length))),
        );
        for part in 0..3 {
            for frames in [3, 0, 1, 1 << 20, u32::MAX] {
                let mut lying = kdb::Episode { frames, ..sound.clone() };
                lying.places[part] = Some((offset, length));
                // The other two over the whole file, and where they belong.
                let mut over = lying.clone();
                over.places.iter_mut().for_each(|place| *place = place.or(Some((0, end))));
                for lying in [lying, over] {
                    costs.open(|| format!("part {part} of {frames} frames: {}", what()), kdb::file(&[lying], None));
                }
            }
        }
    }
    for frames in [0, 1, 2, 100, u32::MAX] {
        for (state_dim, action_dim) in [(0, 0), (u16::MAX, 0), (u16::MAX, u16::MAX)] {
            let lying = kdb::Episode { frames, state_dim, action_dim, ..sound.clone() };
            costs.open(|| format!("{frames} frames of {state_dim} and {action_dim}"), kdb::file(&[lying], None));
        }
    }
    let sides = [0, 1, 2, 0xffff, 1 << 16, 1 << 31, u32::MAX];
    for (width, height) in sides.into_iter().flat_map(|width| sides.map(|height| (width, height))) {
        for (channels, format) in [(0, 0), (1, 0), (3, 1), (4, 2), (5, 0), (255, 255)] {
            for length in [0, 1, 12, 13, 1 << 20, u32::MAX] {
                let record = kdb::picture(b"c", (width, height, channels), format, length, &pixels);
                let what = || format!("{width} x {height} x {channels}, format {format}, {length} bytes");
                costs.open(what, kdb::file(&[kdb::Episode::of_pictures(&[record])], None));
            }
        }
    }
    for count in [2, 255, u16::MAX] {
        let mut lying = sound.clone();
        lying.images[..2].copy_from_slice(&u16::to_le_bytes(count));
        costs.open(|| format!("{count} pictures in a frame"), kdb::file(&[lying], None));
    }
    costs.finish("lies about episodes");
}

/// Encoded pictures of a few bytes that say they are as large as can be: reading a stack of them fails, and costs no
/// more than what their bytes could hold.
#[test]
fn picture_bombs() {
    let _alone = alone();
    let mut costs = Costs::default();
    let png = |width: u32, height: u32, colour: u8| {
        let chunk = |kind: &[u8], data: &[u8]| {
            let body = [kind, data].concat();
            let crc = crc32fast::hash(&body).to_be_bytes();
            [&(data.len() as u32).to_be_bytes()[..], &body, &crc].concat()
        };
        let mut head = [width.to_be_bytes(), height.to_be_bytes()].concat();
        head.extend([8, colour, 0, 0, 0]);
        // Zeros as far as a stored block goes; the rest is missing.
        let data = [&[0x78, 1, 1, 100, 0, !100, 0xff][..], &[0; 100]].concat();
        let chunks = [chunk(b"IHDR", &head), chunk(b"IDAT", &data), chunk(b"IEND", b"")].concat();
        [&b"\x89PNG\r\n\x1a\n"[..], &chunks].concat()
    };
    let jpeg = |width: u16, height: u16| {
        let mut head = vec![0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8];
        head.extend(height.to_be_bytes());
        head.extend(width.to_be_bytes());
        head.extend([3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 0xFF, 0xDA, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0, 0]);
        head
    };
    let mut stacks = 0;
    for (width, height) in [(20u32, 20u32), (100, 100), (8000, 8000), (9000, 9000), (65_535, 1300), (65_535, 65_535)] {
        let pictures = [png(width, height, 2), png(width, height, 6), jpeg(width as u16, height as u16)];
        for bytes in pictures {
            let record = kdb::picture(b"c", (width, height, 3), 1, bytes.len() as u32, &bytes);
            let file = kdb::file(&[kdb::Episode::of_pictures(&vec![record; 4])], None);
            let (at_once, held, stack) = measure(|| {
                let opened = container::open(file).unwrap();
                let files = opened.walk();
                let stack = files.iter().find(|file| opened.path(file.node).ends_with("/c.npy"))?;
                let bytes = stack.view.read_at(&opened.reader, 128, 1000);
                assert!(bytes.is_err(), "{width} x {height}: a picture that is not there was read");
                Some(())
            });
            stacks += usize::from(stack.is_some());
            costs.add(|| format!("{width} x {height}"), at_once, held);
        }
    }
    assert!(stacks >= 12, "only {stacks} stacks");
    costs.finish("picture bombs");
}

/// As many pictures as fit a file: what is held is no more than a few times the file.
#[test]
fn many_small_pictures() {
    let _alone = alone();
    for (label, name_length) in [("pictures", 0), ("cameras", 4)] {
        let mut number = 0u32;
        let frame: Vec<u8> = (0..60_000u32)
            .flat_map(|_| {
                number += 1;
                kdb::picture(&number.to_le_bytes()[..name_length], (1, 1, 1), 0, 1, b"x")
            })
            .collect();
        let images = [&60_000u16.to_le_bytes()[..], &frame].concat();
        let file = kdb::file(&[kdb::Episode { frames: 1, images, ..kdb::Episode::default() }], None);
        let size = file.len();
        let (_, held, files) = measure(|| container::open(file).unwrap().walk().len());
        println!("{label}: {files} files seen, {held} bytes held for a file of {size}");
        assert!(files > 1000 && held < 20 * size, "{label}: {held} bytes for a file of {size}");
    }
}

/// A folder with these files, and what opening it through the filesystem takes with a small cache.
fn folder_of(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, Vfs) {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let vfs = common::walk::open(folder.path(), Options { cache_size: 64 << 20, ..Options::default() });
    (folder, vfs)
}

/// Looks a name up in each of the containers, all at once.
fn look_up_at_once(vfs: &Vfs, containers: &[u64], name: &str) {
    std::thread::scope(|scope| {
        for &container in containers {
            scope.spawn(move || vfs.lookup(container, name.as_ref()).unwrap());
        }
    });
}

#[test]
fn opening_by_many_at_once_costs_what_one_costs() {
    let _alone = alone();
    let blocks: Vec<Block> = (0..20_000).map(|number| Block::new(format!("signal/x{number}"), [0; 4])).collect();
    let file = shard::file(0, &blocks);
    let cost = |openers: usize| {
        let (_folder, vfs) = folder_of(&[("many", file.clone())]);
        let container = common::walk::lookup(&vfs, shardfs::vfs::ROOT, "many").unwrap().ino;
        measure(|| look_up_at_once(&vfs, &vec![container; openers], "container.json")).1
    };
    let (one, many) = (cost(1), cost(32));
    assert!(one > 4 * MIB, "opening costs nothing that could be counted: {one}");
    assert!(many < one + one / 2, "one opener holds {one} bytes, 32 hold {many}");
}

#[test]
fn metadata_of_many_containers_is_not_interpreted_at_once() {
    let _alone = alone();
    // A MiB of JSON that takes dozens of MiB when it is interpreted.
    let json = format!("{{\"a\":[{}{{}}]}}", "{},".repeat((1 << 20) / 3 - 8));
    let names: Vec<String> = (0..16).map(|number| format!("e{number:02}")).collect();
    let file = shard::file(5, &[Block::new("meta/episode", json)]);
    let files: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (&**name, file.clone())).collect();
    let (_folder, vfs) = folder_of(&files);
    let containers: Vec<u64> =
        names.iter().map(|name| common::walk::lookup(&vfs, shardfs::vfs::ROOT, name).unwrap().ino).collect();
    let (_, one, ()) = measure(|| look_up_at_once(&vfs, &containers[..1], "meta"));
    let (_, all, ()) = measure(|| look_up_at_once(&vfs, &containers[1..], "meta"));
    assert!(one > 10 * MIB, "interpreting costs nothing that could be counted: {one}");
    // The budget lets two in at the most, beside what is read and kept.
    assert!(all < 3 * one + 16 * MIB, "one holds {one} bytes, 15 hold {all}");
}

/// Reads all of a file of a folder that is a container. Whether it could, and what was held at most.
fn document_of(folder: &std::path::Path, name: &str) -> (bool, usize) {
    let vfs = common::walk::open(folder, Options { cache_size: 64 << 20, ..Options::default() });
    let (_, held, is_read) = measure(|| {
        let container = vfs.lookup(shardfs::vfs::ROOT, "x".as_ref()).ok()??;
        let file = vfs.lookup(container.ino, name.as_ref()).ok()??;
        vfs.read(file.ino, 0, 1 << 20).ok().map(|bytes| !bytes.as_syscall_buf().is_empty())
    });
    (is_read == Some(true), held)
}

#[test]
fn documents_beside_the_files_that_they_describe() {
    const BUDGET: usize = 64 * MIB;
    let _alone = alone();
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    // Lines of a list of empty texts, eight bytes of memory and more for each of their own.
    for (count, fits) in [(100_000, true), (5_000_000, false)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("x/meta")).unwrap();
        std::fs::copy(golden.join("lerobot/v20_images/meta/info.json"), folder.path().join("x/meta/info.json"))
            .unwrap();
        let line = format!("{{\"episode_index\":0,\"length\":1,\"tasks\":[{}\"\"]}}\n", "\"\",".repeat(count));
        std::fs::write(folder.path().join("x/meta/episodes.jsonl"), line).unwrap();
        let (is_read, held) = document_of(folder.path(), "container.json");
        assert!(is_read == fits && held < BUDGET + 32 * MIB, "{count} tasks: {is_read}, {held} bytes held");
    }
    // A data type of very many fields.
    for (count, fits) in [(100, true), (1_000_000, false)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("x")).unwrap();
        let fields: Vec<String> = (0..count).map(|number| format!("[\"f{number}\",\"|u1\"]")).collect();
        let dtype = fields.join(",");
        let rest =
            "\"zarr_format\":2,\"shape\":[1],\"chunks\":[1],\"compressor\":null,\"filters\":null,\"order\":\"C\"";
        let text = format!("{{{rest},\"fill_value\":null,\"dtype\":[{dtype}]}}");
        std::fs::write(folder.path().join("x/.zarray"), text).unwrap();
        let (is_read, held) = document_of(folder.path(), "container.json");
        assert!(is_read == fits && held < BUDGET + 32 * MIB, "{count} fields: {is_read}, {held} bytes held");
    }
    // A feature of a data set that is a text of JSON, or a list.
    for features in [format!("[{}1]", "{},".repeat(4 << 20)), format!("{{\"a\":[{}1]}}", "{},".repeat(4 << 20))] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("x")).unwrap();
        std::fs::write(folder.path().join("x/features.json"), features).unwrap();
        let info = golden.join("../../fixtures/pick_rlds/dataset_info.json");
        std::fs::copy(info, folder.path().join("x/dataset_info.json")).unwrap();
        let (is_read, held) = document_of(folder.path(), "container.json");
        assert!(!is_read && held < BUDGET + 32 * MIB, "{held} bytes held");
    }
}
