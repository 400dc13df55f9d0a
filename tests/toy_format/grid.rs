//! A toy format with one array in chunks: what HDF5 and Zarr need of the engine, and no more than a map from a chunk to
//! a range.

use std::{
    fs,
    io::Write,
    ops::ControlFlow,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::common::{Random, walk};
use shardfs::{
    cache::Buffer,
    codec::{Chain, ChecksumKind, Codec, Filter},
    format::{Block, DType},
    tree::{
        Child, Container, Format, NodeId, NodeKind, Overview, ROOT, no_others, no_part,
        overview::{Contents, Item},
    },
    vfs::{FileKind, Options, Vfs},
    view::{
        Array, Fault, ReadContext, Slice, View,
        grid::{self, Chunk, Chunks, Grid, Layout, Turn},
    },
};

/// Behind the magic: shape and chunk as three numbers each, then offset and length of each chunk, all of 32 bits;
/// length 0 is an absent chunk. Elements are big-endian i32, shuffled, put through zlib and given a fletcher32.
static GRIDS: Format = Format {
    name: "grids",
    title: "Grids",
    summary: "one array in chunks",
    suffixes: &[".grids"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: |front| front.by_magic(b"GRDS", 28),
    probe: |_, _, _| Ok(()),
    open: |reader, _, _| {
        let bytes = reader.source.read(0..reader.source.len())?.to_vec();
        let number = |at: usize| u32::from_le_bytes(bytes[4 + 4 * at..8 + 4 * at].try_into().unwrap());
        let three = |at: usize| (at..at + 3).map(|at| number(at).into()).collect::<Vec<u64>>();
        let (shape, chunk) = (three(0), three(3));
        let counts: Vec<u64> = shape.iter().zip(&chunk).map(|(shape, chunk)| shape.div_ceil(*chunk)).collect();
        let stored = (0..counts.iter().product::<u64>() as usize).map(|at| (number(6 + 2 * at), number(7 + 2 * at)));
        let filters =
            [Filter::Shuffle(4), Filter::Zlib, Filter::Checksum { kind: ChecksumKind::Fletcher32, is_in_front: false }];
        let table = Table {
            counts: counts.clone(),
            stored: stored.collect(),
            size: chunk.iter().product::<u64>() * 4,
            codec: Chain::of(filters).unwrap(),
        };
        let layout = Layout {
            number: 0,
            shape,
            chunk,
            element: 4,
            order: None,
            turn: Turn::Units(4),
            fill: FILL.to_be_bytes().into(),
        };
        Ok(Arc::new(Toy { counts, shape: layout.shape.clone(), grid: Grid::new(layout, table).unwrap() }))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &[],
};

const FILL: i32 = -7;

#[derive(Debug)]
struct Table {
    counts: Vec<u64>,
    stored: Vec<(u32, u32)>,
    size: u64,
    codec: Codec,
}

impl Chunks for Table {
    fn chunk(&self, _: &ReadContext, at: &[u64]) -> Result<Chunk, Fault> {
        let number = at.iter().zip(&self.counts).fold(0, |number, (at, count)| number * count + at);
        let (offset, stored) = self.stored[number as usize];
        let block = Block {
            offset: offset.into(),
            stored_size: stored.into(),
            size: self.size,
            codec: self.codec.clone(),
            crc: None,
        };
        Ok(if stored == 0 { Chunk::Absent } else { Chunk::Stored(block) })
    }
}

const DATA: NodeId = NodeId(1);
const RAW: NodeId = NodeId(2);
const RAW_DATA: NodeId = NodeId(3);
const FIRST_CHUNK: u128 = 16;

struct Toy {
    shape: Vec<u64>,
    counts: Vec<u64>,
    grid: Arc<Grid>,
}

impl Toy {
    fn data(&self) -> Array {
        Array::new(DType::I32, self.shape.clone(), self.grid.view())
    }

    /// The chunk of a node, and whether its stored bytes are meant.
    fn chunk(&self, node: NodeId) -> (Vec<u64>, bool) {
        let mut number = ((node.0 - FIRST_CHUNK) / 2) as u64;
        let mut at = vec![0; 3];
        for axis in (0..3).rev() {
            at[axis] = number % self.counts[axis];
            number /= self.counts[axis];
        }
        (at, (node.0 - FIRST_CHUNK) % 2 == 1)
    }

    fn chunk_view(&self, reader: &ReadContext, node: NodeId) -> Result<Option<View>, Fault> {
        let (at, is_stored) = self.chunk(node);
        if is_stored { self.grid.stored(reader, &at) } else { self.grid.raw(reader, &at) }
    }
}

impl Container for Toy {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        Ok(match (folder, name) {
            (ROOT, "data.npy") => Some(DATA),
            (ROOT, ".raw") => Some(RAW),
            (RAW, "data") => Some(RAW_DATA),
            (RAW_DATA, name) => {
                let Some((at, is_stored)) = grid::parse_chunk_name(name, 3) else { return Ok(None) };
                if self.grid.raw(reader, &at)?.is_none() {
                    return Ok(None);
                }
                let number = at.iter().zip(&self.counts).fold(0, |number, (at, count)| number * count + at);
                Some(NodeId(FIRST_CHUNK + 2 * u128::from(number) + u128::from(is_stored)))
            }
            _ => None,
        })
    }

    fn list(
        &self,
        _: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        if from == 0 && folder == ROOT {
            let _ = each(Child { next: 1, name: "data.npy", node: DATA, is_folder: false });
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        Ok(Some(if [ROOT, RAW, RAW_DATA].contains(&node) {
            NodeKind::Folder { subfolders: Some(0) }
        } else {
            NodeKind::File
        }))
    }

    fn parent(&self, _: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        Ok(match node {
            RAW_DATA => RAW,
            NodeId(FIRST_CHUNK..) => RAW_DATA,
            _ => ROOT,
        })
    }

    fn path(&self, _: &ReadContext, node: NodeId) -> Result<String, Fault> {
        Ok(match node {
            ROOT => String::new(),
            DATA => "data.npy".into(),
            RAW => ".raw".into(),
            RAW_DATA => ".raw/data".into(),
            _ => {
                let (at, is_stored) = self.chunk(node);
                format!(".raw/data/{}", grid::chunk_name(&at, is_stored))
            }
        })
    }

    fn array(&self, _: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        Ok((file == DATA).then(|| self.data()))
    }

    fn view(&self, reader: &ReadContext, node: NodeId) -> Result<View, Fault> {
        if node == DATA { Ok(self.data().npy()) } else { Ok(self.chunk_view(reader, node)?.unwrap_or_default()) }
    }

    fn description(&self, _: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        Ok(Arc::default())
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        let item = Item { path: "data.npy".into(), info: self.data().into(), ..Item::default() };
        Ok(Overview {
            format: GRIDS.name,
            contents: Contents::Items { front: serde_json::Map::new(), items: vec![item] },
        })
    }

    fn block_name(&self, _: u32) -> String {
        String::new()
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }

    fn warnings(&self) -> &[String] {
        &[]
    }
}

const SHAPE: [u64; 3] = [10, 9, 13];
const CHUNK: [u64; 3] = [3, 4, 5];
const COUNTS: [u64; 3] = [4, 3, 3];
/// Chunks that are not there, and one that is damaged on request.
const ABSENT: [u64; 2] = [4, 35];
const DAMAGED: u64 = 8;

fn linear(at: [u64; 3], sizes: [u64; 3]) -> u64 {
    (at[0] * sizes[1] + at[1]) * sizes[2] + at[2]
}

fn all(sizes: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
    (0..sizes.iter().product()).map(move |at: u64| [at / sizes[2] / sizes[1], at / sizes[2] % sizes[1], at % sizes[2]])
}

fn chunk_of(at: [u64; 3]) -> u64 {
    linear(std::array::from_fn(|axis| at[axis] / CHUNK[axis]), COUNTS)
}

fn value(at: [u64; 3]) -> i32 {
    if ABSENT.contains(&chunk_of(at)) { FILL } else { linear(at, SHAPE) as i32 * 1001 }
}

/// Writes the file; the elements of all chunks as they are before the filters.
fn write(path: &Path, is_damaged: bool) -> Vec<Vec<u8>> {
    let mut front = b"GRDS".to_vec();
    front.extend(SHAPE.iter().chain(&CHUNK).flat_map(|axis| (*axis as u32).to_le_bytes()));
    let (mut data, mut chunks) = (Vec::new(), Vec::new());
    let start = front.len() + 8 * 36;
    for place in all(COUNTS) {
        let number = linear(place, COUNTS);
        let element = |inside: [u64; 3]| {
            let at = std::array::from_fn(|axis| place[axis] * CHUNK[axis] + inside[axis]);
            // What stands behind the edge is never shown.
            let is_inside = at.iter().zip(&SHAPE).all(|(at, shape)| at < shape);
            if is_inside { linear(at, SHAPE) as i32 * 1001 } else { 0x5555_5555 }
        };
        let bytes: Vec<u8> = all(CHUNK).flat_map(|inside| element(inside).to_be_bytes()).collect();
        let shuffled: Vec<u8> = (0..4).flat_map(|byte| bytes.iter().skip(byte).step_by(4).copied()).collect();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&shuffled).unwrap();
        let mut stored = zlib.finish().unwrap();
        stored.extend(ChecksumKind::Fletcher32.of(&stored).to_le_bytes());
        if is_damaged && number == DAMAGED {
            stored[7] ^= 4;
        }
        let length = if ABSENT.contains(&number) { 0 } else { stored.len() };
        front.extend(((start + data.len()) as u32).to_le_bytes());
        front.extend((length as u32).to_le_bytes());
        data.extend(stored);
        chunks.push(bytes);
    }
    front.extend(data);
    fs::write(path, front).unwrap();
    chunks
}

fn open(folder: &Path, cache_size: u64) -> Vfs {
    static FORMATS: [&Format; 1] = [&GRIDS];
    walk::open(folder, Options { formats: &FORMATS, cache_size, ..Options::default() })
}

fn expected() -> Vec<u8> {
    all(SHAPE).flat_map(|at| value(at).to_le_bytes()).collect()
}

#[test]
fn an_array_in_chunks_is_shown_whole_and_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let chunks = write(&folder.path().join("a.grids"), false);
    // One that has room for the array, and one that has not for a slab.
    for cache_size in [64 << 20, 64 << 10] {
        let vfs = open(folder.path(), cache_size);
        let file = walk::resolve(&vfs, "a.grids/data.npy").unwrap();
        let (expected, header) = (expected(), file.size - 10 * 9 * 13 * 4);
        assert_eq!(walk::read(&vfs, file.ino, header, file.size).unwrap(), expected);
        if cache_size > 1 << 20 {
            let misses = vfs.cache().counters.misses.load(Relaxed);
            assert_eq!(misses, 36 - ABSENT.len() as u64, "each chunk is decoded once");
        }
        let mut random = Random(31);
        for _ in 0..300 {
            let start = random.below(expected.len() as u64);
            let length = 1 + random.below(200).min(expected.len() as u64 - start - 1);
            let bytes = walk::read(&vfs, file.ino, header + start, length).unwrap();
            assert_eq!(bytes, expected[start as usize..(start + length) as usize]);
        }
        for place in all(COUNTS) {
            let number = linear(place, COUNTS);
            let path = |is_stored| format!("a.grids/.raw/data/{}", grid::chunk_name(&place, is_stored));
            let (raw, stored) = (walk::resolve(&vfs, &path(false)), walk::resolve(&vfs, &path(true)));
            assert_eq!((raw.is_some(), stored.is_some()), (!ABSENT.contains(&number), !ABSENT.contains(&number)));
            let (Some(raw), Some(stored)) = (raw, stored) else { continue };
            assert_eq!(raw.kind, FileKind::File);
            assert_eq!(walk::read_all(&vfs, &raw).unwrap(), chunks[number as usize]);
            let stored = walk::read_all(&vfs, &stored).unwrap();
            let (bytes, sum) = stored.split_last_chunk::<4>().unwrap();
            ChecksumKind::Fletcher32.check(u32::from_le_bytes(*sum), bytes).unwrap();
        }
    }
    assert!(walk::resolve(&open(folder.path(), 1 << 20), "a.grids/.raw/data/4.0.0.bin").is_none());
}

#[test]
fn a_damaged_chunk_is_an_error_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.grids"), true);
    let vfs = open(folder.path(), 64 << 20);
    let file = walk::resolve(&vfs, "a.grids/data.npy").unwrap();
    let header = file.size - 10 * 9 * 13 * 4;
    for at in all(SHAPE) {
        let read = walk::read(&vfs, file.ino, header + 4 * linear(at, SHAPE), 4);
        match chunk_of(at) == DAMAGED {
            true => assert_eq!(read, Err(libc::EIO), "{at:?}"),
            false => assert_eq!(read.unwrap(), value(at).to_le_bytes(), "{at:?}"),
        }
    }
    let raw = walk::resolve(&vfs, "a.grids/.raw/data/0.2.2.bin").unwrap();
    assert_eq!(walk::read_all(&vfs, &raw), Err(libc::EIO));
    let stored = walk::resolve(&vfs, "a.grids/.raw/data/0.2.2.stored.bin").unwrap();
    assert!(walk::read_all(&vfs, &stored).is_ok());
    let problems: Vec<_> = vfs.problems().into_iter().map(|problem| problem.message).collect();
    assert!(problems.iter().all(|problem| problem.contains("fletcher32 is")), "{problems:?}");
}

#[test]
fn slices_take_only_their_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grids");
    write(&path, true);
    let source: Arc<dyn shardfs::source::Source> = Arc::new(fs::read(&path).unwrap());
    let cache = shardfs::cache::Cache::new(64 << 20, shardfs::cache::Verify::Lazy);
    let reader = ReadContext::new(source, cache, 0);
    let container = GRIDS.open(&reader, None).unwrap();
    let array = container.array(&reader, DATA).unwrap().unwrap();
    // numpy's a[:, 0, ::7]: of the first of three rows of chunks, which the damaged chunk is not in.
    let slices = [(0, 1, 10), (0, 1, 1), (0, 7, 2)].map(|(start, step, count)| Slice { start, step, count });
    let mut out = vec![0; 10 * 2 * 4];
    array.fill_slices(&reader, &slices, &mut out).unwrap();
    let expected = (0..10).flat_map(|i| [0, 7].map(|k| value([i, 0, k]))).flat_map(i32::to_le_bytes);
    assert_eq!(out, expected.collect::<Vec<_>>());
    assert_eq!(reader.cache.counters.misses.load(Relaxed), 4 * 2);
}
