//! A toy format whose metadata lie all over the file, as in HDF5.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use shardfs::{
    cache::{Buffer, KeptName},
    format::{Class, DType, FormatError},
    source::Memory,
    tree::{
        Format, Overview, describe,
        overview::Contents,
        paths::{Builder, NodeIndex, Paths, ROOT},
        table::{Content, Entry, Table},
    },
    view::{Array, Fault, ReadContext, View},
};

/// `SPRD`, a number of nodes (u32), the place of each (u64). A node is a name of 8 bytes, and the place and number of
/// its bytes (u64 each).
pub(crate) static SPREAD: Format = Format {
    name: "spread",
    title: "Spread",
    summary: "arrays whose names lie all over the file",
    suffixes: &[".sprd"],
    recognise: |front| front.by_magic(b"SPRD", 8),
    probe: |_, _, _| Ok(()),
    open: |reader, _, _| Ok(Arc::new(tree(&nodes(reader)?))),
    ..Format::DEFAULT
};

const NODE: u64 = 24;

/// Nodes that were read, by all tests of this process.
pub(crate) static READ: AtomicUsize = AtomicUsize::new(0);

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
    let ranges: Vec<_> = places.chunks(8).map(|place| number(place)..number(place).saturating_add(NODE)).collect();
    source.prefetch_small(ranges.clone());
    let mut nodes = Vec::new();
    for range in ranges {
        let node = source.read(range)?;
        let end = number(&node[8..16]).checked_add(number(&node[16..]));
        if end.is_none_or(|end| end > source.len()) {
            return Err(FormatError::refused(Class::Truncated, "data that are not there"));
        }
        nodes.extend(node);
        READ.fetch_add(1, Relaxed);
    }
    reader.cache.keep_bytes(source, &name, nodes.clone());
    Ok(nodes)
}

fn tree(nodes: &[u8]) -> Table<Spread> {
    let mut builder = Builder::default();
    for node in nodes.chunks(NODE as usize) {
        let [place, length] = [8, 16].map(|at| u64::from_le_bytes(node[at..at + 8].try_into().unwrap()));
        builder.file(ROOT, &node[..8], ".npy", Entry::Of((place, length)));
    }
    Table::new(builder, Spread)
}

struct Spread;

impl Content for Spread {
    type File = (u64, u64);

    fn array(&self, (place, length): (u64, u64)) -> Option<Array> {
        Some(Array::new(DType::U8, [length], View::stored(place..place + length)))
    }

    fn view(&self, file: (u64, u64)) -> View {
        self.array(file).map_or_else(View::default, Array::npy)
    }

    fn describe(
        &self,
        _: &ReadContext,
        _: &Paths<Entry<(u64, u64)>>,
        _: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let none = std::iter::empty::<serde_json::Value>();
        describe::document(&serde_json::Map::new(), none, &serde_json::Map::new(), memory)
    }

    fn overview(&self, _: &Paths<Entry<(u64, u64)>>) -> Overview {
        let contents = Contents::Items { front: serde_json::Map::new(), items: Vec::new() };
        Overview { format: SPREAD.name, contents }
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }
}

/// A file of so many nodes, `step` bytes from one to the next. In the middle between them lie `data` bytes.
pub(crate) fn file(nodes: u64, data: u64, step: u64) -> Vec<u8> {
    let front = (8 + 8 * nodes).max(step);
    let start = |node: u64| front + node * step;
    let mut bytes = vec![0; (start(nodes) + step) as usize];
    bytes[..4].copy_from_slice(b"SPRD");
    bytes[4..8].copy_from_slice(&(nodes as u32).to_le_bytes());
    for node in 0..nodes {
        let (at, place) = (start(node) as usize, start(node) + step / 3);
        bytes[8 + 8 * node as usize..][..8].copy_from_slice(&start(node).to_le_bytes());
        bytes[at..at + 8].copy_from_slice(format!("item{node:04}").as_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&place.to_le_bytes());
        bytes[at + 16..at + 24].copy_from_slice(&data.to_le_bytes());
        bytes[place as usize..][..data as usize].fill(node as u8 + 1);
    }
    bytes
}
