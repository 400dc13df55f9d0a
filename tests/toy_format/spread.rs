//! A toy format whose metadata lie all over the file, as in HDF5: what that costs over a store.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use super::common::{bucket::Bucket, walk};
use shardfs::{
    cache::{Buffer, KeptName},
    format::{DType, FormatError},
    source::Memory,
    tree::{
        Format, Overview, describe, no_others, no_part,
        overview::Contents,
        paths::{Builder, NodeIndex, Paths, ROOT},
        table::{Content, Entry, Table},
    },
    vfs::{Options, Vfs},
    view::{Array, Fault, ReadContext, View},
};

/// `SPRD`, a number of nodes (u32), the place of each (u64). A node is a name of 8 bytes and the place of its [`DATA`]
/// bytes (u64).
static SPREAD: Format = Format {
    name: "spread",
    title: "Spread",
    summary: "arrays whose names lie all over the file",
    suffixes: &[".sprd"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: |front| front.by_magic(b"SPRD", 8),
    probe: |_, _, _| Ok(()),
    open: |reader, _, _| Ok(Arc::new(tree(&nodes(reader)?))),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &[],
};

const NODE: u64 = 16;

/// Nodes that were read, by all tests of this process.
static READ: AtomicUsize = AtomicUsize::new(0);

/// All nodes, one behind the other: those that an earlier process has kept, or all of them read at once.
fn nodes(reader: &ReadContext) -> Result<Vec<u8>, FormatError> {
    let source = &*reader.source;
    let name = KeptName { kind: "spread 1", name: b"", from: 0..source.len() };
    if let Some(kept) = reader.cache.kept_bytes(source, &name, 1 << 20) {
        return Ok(kept.to_vec());
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let count = number(&source.read(4..8)?);
    let places = source.read(8..8 + 8 * count)?;
    let ranges: Vec<_> = places.chunks(8).map(|place| number(place)..number(place) + NODE).collect();
    source.prefetch_small(ranges.clone());
    let mut nodes = Vec::new();
    for range in ranges {
        nodes.extend(source.read(range)?);
        READ.fetch_add(1, Relaxed);
    }
    assert!(reader.cache.keep_bytes(source, &name, nodes.clone()));
    Ok(nodes)
}

fn tree(nodes: &[u8]) -> Table<Spread> {
    let mut builder = Builder::default();
    for node in nodes.chunks(NODE as usize) {
        let place = u64::from_le_bytes(node[8..].try_into().unwrap());
        builder.file(ROOT, &node[..8], ".npy", Entry::Of(place));
    }
    Table::new(builder, Spread)
}

struct Spread;

impl Content for Spread {
    type File = u64;

    fn array(&self, place: u64) -> Option<Array> {
        Some(Array::new(DType::U8, [DATA], View::stored(place..place + DATA)))
    }

    fn view(&self, place: u64) -> View {
        self.array(place).map_or_else(View::default, Array::npy)
    }

    fn describe(&self, _: &Paths<Entry<u64>>, _: &[NodeIndex], memory: &dyn Memory) -> Result<Buffer, Fault> {
        let none = std::iter::empty::<serde_json::Value>();
        describe::document(&serde_json::Map::new(), none, &serde_json::Map::new(), memory)
    }

    fn overview(&self, _: &Paths<Entry<u64>>) -> Overview {
        let contents = Contents::Items { front: serde_json::Map::new(), items: Vec::new() };
        Overview { format: SPREAD.name, contents }
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }
}

const NODES: u64 = 20;
const DATA: u64 = 200 << 10;

/// Bytes from one node to the next. The data of each lie between them.
const STEP: u64 = 400 << 10;

fn write(path: &Path) {
    let start = |node: u64| (512 << 10) + node * STEP;
    let mut bytes = vec![0; start(NODES) as usize + (512 << 10)];
    bytes[..4].copy_from_slice(b"SPRD");
    bytes[4..8].copy_from_slice(&(NODES as u32).to_le_bytes());
    for node in 0..NODES {
        let (at, data) = (start(node) as usize, start(node) + (128 << 10));
        bytes[8 + 8 * node as usize..][..8].copy_from_slice(&start(node).to_le_bytes());
        bytes[at..at + 8].copy_from_slice(format!("item{node:04}").as_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&data.to_le_bytes());
        bytes[data as usize..][..DATA as usize].fill(node as u8 + 1);
    }
    fs::write(path, bytes).unwrap();
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
    changed[512 << 10] = b'I';
    fs::write(&path, changed).unwrap();
    let vfs = open(&bucket, disk.path());
    assert!(names(&vfs).contains(&"Item0000.npy".to_owned()));
    assert_eq!(READ.load(Relaxed), read + NODES as usize);
}
