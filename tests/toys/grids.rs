//! A toy format with one array in chunks: what HDF5 and Zarr need of the engine, and no more than a map from a chunk to
//! a range.

use std::{io::Write, ops::ControlFlow, sync::Arc};

use shardfs::{
    cache::Buffer,
    codec::{Chain, ChecksumKind, Codec, Filter},
    format::{Block, Class, DType, FormatError},
    tree::{
        Child, Container, Format, NodeId, NodeKind, OpenResult, Overview, ROOT,
        overview::{Contents, Item},
    },
    view::{
        Array, Fault, ReadContext, View,
        grid::{self, Chunk, Chunks, Grid, Layout, Turn},
    },
};

/// Behind the magic: shape and chunk as three numbers each, then offset and length of each chunk, all of 32 bits;
/// length 0 is an absent chunk. Elements are big-endian i32, shuffled, put through zlib and given a fletcher32.
pub(crate) static GRIDS: Format = Format {
    name: "grids",
    title: "Grids",
    summary: "one array in chunks",
    suffixes: &[".grids"],
    recognise: |front| front.by_magic(b"GRDS", 28),
    probe: |_, _, _| Ok(()),
    open: |reader, _, _| open(reader),
    ..Format::DEFAULT
};

fn open(reader: &ReadContext) -> OpenResult {
    let refused = |reason: &str| FormatError::refused(Class::BadFormat, reason);
    let bytes = reader.source.read(0..reader.source.len())?;
    let numbers: Vec<u32> = bytes[4..].chunks_exact(4).map(|n| u32::from_le_bytes(n.try_into().unwrap())).collect();
    let three = |at: usize| (at..at + 3).map(|at| numbers[at].into()).collect::<Vec<u64>>();
    if numbers.len() < 6 || numbers[..6].contains(&0) {
        return Err(refused("a shape without elements"));
    }
    let (shape, chunk) = (three(0), three(3));
    let counts: Vec<u64> = shape.iter().zip(&chunk).map(|(shape, chunk)| shape.div_ceil(*chunk)).collect();
    let product = |axes: &[u64]| axes.iter().try_fold(4u64, |all, axis| all.checked_mul(*axis));
    let (Some(size), Some(chunk_size), Some(chunks)) = (product(&shape), product(&chunk), product(&counts)) else {
        return Err(refused("more elements than numbers"));
    };
    if size >= 1 << 62 || chunk_size > 1 << 20 || chunks / 4 > (numbers.len() - 6) as u64 / 2 {
        return Err(refused("more elements than can be"));
    }
    let stored: Vec<_> =
        numbers[6..].chunks_exact(2).map(|pair| (pair[0], pair[1])).take(chunks as usize / 4).collect();
    let filters =
        [Filter::Shuffle(4), Filter::Zlib, Filter::Checksum { kind: ChecksumKind::Fletcher32, is_in_front: false }];
    let codec = Chain::of(filters).unwrap();
    let table = Table { counts: counts.clone(), stored: stored.clone(), size: chunk_size, codec };
    let (order, turn, fill) = (None, Turn::Units(4), FILL.to_be_bytes().into());
    let layout = Layout { number: 0, shape: shape.clone(), chunk, element: 4, order, turn, fill };
    let grid = Grid::new(layout, table).map_err(|_| refused("no grid"))?;
    Ok(Arc::new(Toy { counts, shape, stored, grid }))
}

pub(crate) const FILL: i32 = -7;

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

pub(crate) const DATA: NodeId = NodeId(1);
const RAW: NodeId = NodeId(2);
const RAW_DATA: NodeId = NodeId(3);
const FIRST_CHUNK: u128 = 16;

struct Toy {
    shape: Vec<u64>,
    counts: Vec<u64>,
    stored: Vec<(u32, u32)>,
    grid: Arc<Grid>,
}

impl Toy {
    fn data(&self) -> Array {
        Array::new(DType::I32, self.shape.clone(), self.grid.view())
    }

    /// The number of the chunk of a node.
    fn number(node: NodeId) -> u64 {
        ((node.0 - FIRST_CHUNK) / 2) as u64
    }

    /// The chunk of a node, and whether its stored bytes are meant.
    fn chunk(&self, node: NodeId) -> (Vec<u64>, bool) {
        let mut number = Self::number(node);
        let mut at = vec![0; 3];
        for axis in (0..3).rev() {
            at[axis] = number % self.counts[axis];
            number /= self.counts[axis];
        }
        (at, (node.0 - FIRST_CHUNK) % 2 == 1)
    }

    fn chunk_view(&self, reader: &ReadContext, node: NodeId) -> Result<Option<View>, Fault> {
        let (at, is_stored) = self.chunk(node);
        let (offset, size) = self.stored[Self::number(node) as usize];
        let stored = View::stored(offset.into()..u64::from(offset) + u64::from(size));
        if is_stored { Ok(Some(stored)) } else { self.grid.raw(reader, &at) }
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

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }
}

pub(crate) const SHAPE: [u64; 3] = [10, 9, 13];
pub(crate) const CHUNK: [u64; 3] = [3, 4, 5];
pub(crate) const COUNTS: [u64; 3] = [4, 3, 3];
/// Chunks that are not there, and one that is damaged on request.
pub(crate) const ABSENT: [u64; 2] = [4, 35];
pub(crate) const DAMAGED: u64 = 8;

pub(crate) fn linear(at: [u64; 3], sizes: [u64; 3]) -> u64 {
    (at[0] * sizes[1] + at[1]) * sizes[2] + at[2]
}

pub(crate) fn all(sizes: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
    (0..sizes.iter().product()).map(move |at: u64| [at / sizes[2] / sizes[1], at / sizes[2] % sizes[1], at % sizes[2]])
}

pub(crate) fn chunk_of(at: [u64; 3]) -> u64 {
    linear(std::array::from_fn(|axis| at[axis] / CHUNK[axis]), COUNTS)
}

pub(crate) fn value(at: [u64; 3]) -> i32 {
    if ABSENT.contains(&chunk_of(at)) { FILL } else { linear(at, SHAPE) as i32 * 1001 }
}

/// A file, and the elements of all chunks as they are before the filters.
pub(crate) fn file(is_damaged: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
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
    (front, chunks)
}
