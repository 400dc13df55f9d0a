//! Shard files: each block under its own path, in a form that fits it (`docs/TREE.md`, section 3).

mod cameras;
mod interleaved;
mod joined;
mod signs;
mod steps;
mod timeline;

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Content, Entry, Format, FrameNames, HEAP, ItemInfo, Siblings, Table, Timeline,
    describe::{self, Item, is_false},
    names,
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
    tables::described_tables,
};
use crate::{
    cache::{Buffer, Verify},
    format::{
        Block, DType, FormatError,
        wshard::{self, Shard},
    },
    limits,
    source::{Memory, SourceError, check_room},
    view::{Array, BlockRef, Data, Fault, ReadContext, View, parquet::Parquet, png::Png},
};
use cameras::{IMAGES, Pictures, Pixels, RESERVED};
use interleaved::Interleaved;
use joined::JoinedArray;
use signs::SignBits;
use steps::Steps;

/// WShard episodes, manifests and all other Shard files.
pub static WSHARD: Format = Format {
    name: "wshard",
    title: "Shard",
    summary: "robot episodes and other Shard files",
    suffixes: &[".wshard", ".shard"],
    recognise: |front| front.by_magic(b"SHRD", wshard::HEADER),
    // Unfinished recordings count only when they are complete (`docs/TREE.md`, section 3).
    probe: |source, name, _| wshard::probe(source, name.ends_with(b".partial")),
    open: |reader, siblings, memory| {
        let shard = wshard::parse_within(&*reader.source, memory)?;
        // Joining opens chunks, which reserve their own memory.
        if shard.chunks.is_some() {
            memory.hold();
        }
        Ok(Arc::new(open(shard, siblings, reader.cache.verify(), memory)?))
    },
    others: Some(wshard::chunk_files),
    check_part: Some(wshard::check_chunk),
    fixtures: &["ep_001.wshard", "ep_002_lz4.wshard", "stream.wshard", "weights.shard"],
    ..Format::DEFAULT
};

/// What a file of a Shard container shows. Numbers are positions in `Shard::entries`.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    /// The block as its value says: an array with a header, or bytes.
    Value(u32),
    /// The block's uncompressed bytes.
    Bytes(u32),
    /// The signs in a residual block.
    Signs(u32),
    /// The schema section.
    Schema,
    /// An array of the joined episode.
    Joined(u32),
}

/// A Shard file and the nodes of its entries.
pub(super) struct Blocks {
    shard: Shard,
    /// Finds the chunks of a manifest.
    siblings: Option<Arc<dyn Siblings>>,
    nodes: Vec<NodeIndex>,
    /// The arrays of the joined episode, and their nodes.
    joined: Vec<(JoinedArray, NodeIndex)>,
    /// The pictures in the folders below `images`.
    pictures: HashMap<NodeIndex, Pictures>,
    /// The table of its steps, if it is an episode.
    steps: Option<Steps>,
}

/// Returns the tree of a Shard file of any role. For a manifest, `siblings` finds the chunks of the joined episode.
///
/// # Errors
/// If joining the chunks failed for a reason that is not theirs.
fn open(
    mut shard: Shard,
    siblings: Option<Arc<dyn Siblings>>,
    verify: Verify,
    memory: &dyn Memory,
) -> Result<Table<Blocks>, FormatError> {
    let mut builder = Builder::default();
    let mut nodes = vec![ROOT; shard.entries.len()];
    let raw = builder.hidden_folder(ROOT, ".raw");
    let mut folders = Folders { raw, last: (b"", [ROOT, raw]) };
    // Of several equal names the visible one goes first and so keeps the plain path; the others follow in their order.
    let mut order: Vec<u32> = (0..shard.entries.len() as u32).collect();
    order.sort_by_key(|&i| !shard.entries[i as usize].visible);
    for &i in &order {
        let entry = &shard.entries[i as usize];
        let (suffix, file) = match &entry.value {
            _ if entry.residual.is_some() => (".npy", File::Signs(i)),
            wshard::Value::Array { .. } => (".npy", File::Value(i)),
            wshard::Value::Json => (".json", File::Bytes(i)),
            wshard::Value::Text => (".txt", File::Bytes(i)),
            wshard::Value::Image(suffix) => (*suffix, File::Bytes(i)),
            wshard::Value::Bytes => (".bin", File::Bytes(i)),
        };
        let [(folder, part), (hidden, hidden_part)] = folders.of(&mut builder, &entry.name);
        nodes[i as usize] = builder.file(folder, part, suffix, Entry::Of(file));
        builder.file(hidden, hidden_part, ".bin", Entry::Of(File::Bytes(i)));
    }
    // These are added to the stored blocks, and get other names if necessary.
    for &i in order.iter().filter(|&&i| shard.entries[i as usize].language) {
        let [(_, part), _] = folders.of(&mut builder, &shard.entries[i as usize].name);
        builder.beside(nodes[i as usize], part, [".npy", ".txt"], Entry::Of(File::Bytes(i)));
    }
    if shard.schema.is_some() {
        builder.file(ROOT, b"schema", ".json", Entry::Of(File::Schema));
    }
    let mut arrays = Vec::new();
    if let (Some(chunks), Some(siblings)) = (&shard.chunks, &siblings) {
        match joined::join(chunks, siblings, verify, memory)? {
            Ok(found) => arrays = found,
            Err(reason) => shard.problems.push(format!("no joined view: {reason}")),
        }
    }
    let mut joined = Vec::new();
    for (array, number) in arrays.into_iter().zip(0..) {
        let (folder, part) = builder.folders_of(ROOT, &array.name, &RESERVED);
        let node = builder.file(folder, part, ".npy", Entry::Of(File::Joined(number)));
        joined.push((array, node));
    }
    let mut pictures = HashMap::new();
    let own = shard.entries.iter().zip(0..).map(|(entry, i)| (&*entry.name, Pictures::of_entry(i, entry)));
    let of_chunks = joined.iter().zip(0..).filter(|((array, _), _)| array.pictures);
    let of_chunks = of_chunks
        .map(|((JoinedArray { name, dtype, shape, .. }, _), i)| (&**name, Pictures::of_joined(i, name, *dtype, shape)));
    for (name, found) in own.chain(of_chunks) {
        let (Some(found), Some(channel)) = (found, name.strip_prefix(b"signal/")) else { continue };
        let images = builder.folder(ROOT, IMAGES);
        let (folder, part) = builder.folders_of(images, channel, &[]);
        let folder = builder.folder(folder, &names::folder(part, &names::RESERVED, 1));
        pictures.entry(folder).or_insert(found);
    }
    let mut blocks = Blocks { shard, siblings, nodes, joined, pictures, steps: None };
    blocks.steps = Steps::of(&blocks);
    Ok(Table::new(builder, blocks))
}

/// Returns the type and shape of an array.
fn array_type(blocks: &Blocks, file: File) -> Option<(DType, Vec<u64>)> {
    blocks.array(file).and_then(|array| Some((array.dtype.plain()?, array.shape)))
}

/// Finds the folders of blocks, for their own files and for those below `.raw`.
struct Folders<'a> {
    raw: NodeIndex,
    /// Those of the last name, up to its last slash, because consecutive names usually share them.
    last: (&'a [u8], [NodeIndex; 2]),
}

impl<'a> Folders<'a> {
    /// Returns both folders of a block, each with the part of its name that is left for its file there.
    fn of(&mut self, builder: &mut Builder<Entry<File>>, name: &'a [u8]) -> [(NodeIndex, &'a [u8]); 2] {
        let (prefix, part) = name.split_at(name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1));
        if self.last.0 != prefix {
            let found = [builder.folders_of(ROOT, name, &RESERVED), builder.folders_of(self.raw, name, &[])];
            if found.iter().any(|(_, rest)| rest.len() != part.len()) {
                return found;
            }
            self.last = (prefix, found.map(|(folder, _)| folder));
        }
        self.last.1.map(|folder| (folder, part))
    }
}

impl Blocks {
    fn block(&self, i: u32) -> (BlockRef, &wshard::Block) {
        let entry = &self.shard.entries[i as usize];
        let error = entry.block.error.as_ref().map(|error| error.to_string().into());
        (BlockRef { number: i, block: entry.block.extent.clone(), error }, &entry.block)
    }

    /// Returns the uncompressed bytes of a block from `from` on, put back in order if they were interleaved.
    fn data(&self, i: u32, from: u64) -> Data {
        let (block, stored) = self.block(i);
        match &stored.interleave {
            Some(lane) => Data::Rendered(Arc::new(Interleaved { block, lane: **lane })),
            None => Data::Block(block, from..stored.extent.size),
        }
    }

    /// Returns the uncompressed bytes of a block from `from` on, as a file.
    fn bytes(&self, i: u32, from: u64) -> View {
        let size = self.block(i).1.extent.size.saturating_sub(from);
        View::default().with(size, self.data(i, from))
    }

    /// Returns the block that a file shows, if it can never be served.
    fn unserved(&self, file: File) -> Option<BlockRef> {
        let (File::Value(i) | File::Bytes(i) | File::Signs(i)) = file else { return None };
        Some(self.block(i).0).filter(|block| block.error.is_some())
    }
    /// Returns how many entries are described: none if there is no memory to describe all.
    fn described_entries(&self) -> usize {
        let entries = self.shard.entries.len();
        if check_room(entries as u64, ITEM_ROOM).is_ok() { entries } else { 0 }
    }

    /// Returns the described entries, each with its node and description.
    fn described(&self) -> impl Iterator<Item = (&wshard::Entry, NodeIndex, ItemInfo)> + Clone {
        let entries = (0..).zip(&self.shard.entries).zip(&self.nodes).take(self.described_entries());
        entries.map(|((i, entry), &node)| {
            let file = if entry.residual.is_some() { File::Signs(i) } else { File::Value(i) };
            (entry, node, self.item_info(file).unwrap_or_default())
        })
    }

    /// Returns the description of the whole file.
    fn front(&self) -> Map<String, Value> {
        let header = &self.shard.header;
        let mut front = Map::new();
        front.insert("format".into(), WSHARD.name.into());
        front.insert("version".into(), 2.into());
        front.insert("role".into(), header.role.into());
        front.insert("role_name".into(), role_name(header.role).into());
        front.insert(
            "header".into(),
            json!({"flags": header.flags, "alignment": header.alignment,
                   "compression_default": header.compression_default, "entry_count": header.entry_count,
                   "total_file_size": header.total_file_size}),
        );
        if header.role == 5 {
            let episode = &self.shard.episode;
            front.insert(
                "episode".into(),
                json!({"episode_id": episode.episode_id, "env_id": episode.env_id, "length_T": episode.length_t}),
            );
        }
        if self.shard.entries.iter().any(|entry| entry.block.interleave.is_some()) {
            front.insert("recovered".into(), true.into());
        }
        if self.described_entries() < self.shard.entries.len() {
            let reason = format!("no memory to describe {} blocks", self.shard.entries.len());
            front.insert("items_left_out".into(), reason.into());
        }
        front
    }
}

/// Bytes that one of `items` takes in `container.json`, with a long name.
const ITEM_ROOM: usize = 600;

/// The keys of an item that only blocks have.
#[derive(Serialize)]
struct Own<'a> {
    content_type: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    modality: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    recovered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Returns the file of a block that can never be served: a header and the size that the index states. If that size is
/// 0, the header fails instead, and without a header one byte does, because a file of no bytes is never read and would
/// look sound.
fn unserved(header: Vec<u8>, size: u64, block: BlockRef) -> View {
    match size.min(limits::LARGEST_BLOCK) {
        0 => {
            let size = header.len().max(1) as u64;
            View::default().with(size, Data::Block(block, 0..size))
        }
        size => View::inline(header).with(size, Data::Block(block, 0..size)),
    }
}

impl Content for Blocks {
    type File = File;

    fn array(&self, file: File) -> Option<Array> {
        match file {
            File::Value(i) => {
                let wshard::Value::Array { dtype, shape, data_offset, .. } = &self.shard.entries.get(i as usize)?.value
                else {
                    return None;
                };
                let data = self.bytes(i, *data_offset);
                Some(Array::new(*dtype, &**shape, if *dtype == DType::Bool { data.into_bool() } else { data }))
            }
            File::Signs(i) => {
                let residual = **self.shard.entries.get(i as usize)?.residual.as_ref()?;
                let size = residual.steps.saturating_mul(residual.dims).min(limits::LARGEST_BLOCK);
                let data = View::default().with_rendered(size, SignBits { block: self.block(i).0, residual });
                Some(Array::new(DType::I8, residual.shape(), data))
            }
            File::Joined(i) => {
                let (JoinedArray { dtype, shape, size, data, .. }, _) = self.joined.get(i as usize)?;
                Some(Array::new(*dtype, &**shape, View::default().with(*size, Data::Rendered(data.clone()))))
            }
            File::Bytes(_) | File::Schema => None,
        }
    }

    fn view(&self, file: File) -> View {
        let array = self.array(file);
        if let Some(block) = self.unserved(file) {
            let (File::Value(i) | File::Bytes(i) | File::Signs(i)) = file else { return View::default() };
            let size = array.as_ref().map_or_else(|| self.bytes(i, 0).size(), |array| array.data.size());
            return unserved(array.map_or_else(Vec::new, |array| array.header()), size, block);
        }
        match (array, file) {
            (Some(array), _) => array.npy(),
            (None, File::Value(i) | File::Bytes(i)) => self.bytes(i, 0),
            (None, File::Schema) => self.shard.schema.clone().map_or_else(View::default, View::stored),
            (None, File::Signs(_) | File::Joined(_)) => View::default(),
        }
    }

    fn frames(&self, folder: NodeIndex) -> Option<FrameNames> {
        self.pictures.get(&folder).map(|pictures| FrameNames { count: pictures.steps, suffix: ".png" })
    }

    fn frame(&self, folder: NodeIndex, number: u64) -> View {
        let Some(pictures) = self.pictures.get(&folder) else { return View::default() };
        let &Pictures { width, height, channels, depth, .. } = pictures;
        let pixels = match pictures.pixels {
            Pixels::Entry(i) => self.data(i, 0),
            Pixels::Joined(i) => Data::Rendered(self.joined[i as usize].0.data.clone()),
        };
        let png = Png::new(pixels, number.saturating_mul(pictures.frame_size()), width, height, channels, depth);
        png.map_or_else(View::default, Png::view)
    }

    fn tables(&self) -> Vec<(NodeIndex, Vec<u8>)> {
        self.steps.iter().map(|_| (ROOT, steps::NAME.to_vec())).collect()
    }

    fn table(&self, reader: &ReadContext, _: u32, memory: &dyn Memory) -> Result<Parquet, Fault> {
        match &self.steps {
            Some(steps) => self.lay_out(reader, steps, memory),
            None => Err(SourceError::Changed.into()),
        }
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<File>>,
        tables: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let items = self.described().map(|(entry, node, info)| {
            let own = Own {
                content_type: entry.content_type,
                modality: entry.modality(),
                recovered: entry.block.interleave.is_some(),
                error: entry.block.error.as_ref().map(ToString::to_string),
            };
            Item::of(&entry.name, paths.path(node), Some(entry.block.extent.size), info, own)
        });
        let mut back = Map::new();
        if !self.joined.is_empty() {
            let joined = self.joined.iter().map(|(array, node)| {
                let mut object = json!({"path": paths.path(*node), "dtype": array.dtype, "shape": array.shape});
                if array.inferred {
                    object["inferred"] = true.into();
                }
                object
            });
            back.insert("joined".into(), joined.collect::<Vec<Value>>().into());
        }
        let tables = self.steps.iter().zip(tables).map(|(steps, &node)| steps.described(paths.path(node)));
        back.extend(described_tables(tables.collect()));
        describe::document(&self.front(), items, &back, memory)
    }

    fn overview(&self, paths: &Paths<Entry<File>>) -> Overview {
        let own = self.described().map(|(entry, node, info)| overview::Item {
            path: paths.path(node),
            info,
            size: Some(entry.block.extent.size),
            recovered: entry.block.interleave.is_some(),
            error: entry.block.error.as_ref().map(ToString::to_string),
            ..overview::Item::default()
        });
        let joined = (0..).zip(&self.joined).map(|(i, (_, node))| overview::Item {
            path: paths.path(*node),
            info: self.item_info(File::Joined(i)).unwrap_or_default(),
            joined: true,
            ..overview::Item::default()
        });
        let contents = Contents::Items { front: self.front(), items: own.chain(joined).collect() };
        Overview { format: WSHARD.name, contents }
    }

    fn front_memory(&self) -> u64 {
        let episode = &self.shard.episode;
        let ids = [&episode.episode_id, &episode.env_id].map(|id| id.as_ref().map_or(0, |id| id.len() as u64));
        overview::LEAST + 4 * ids.iter().sum::<u64>()
    }

    fn memory_usage(&self) -> usize {
        let entries = self.shard.entries.iter();
        let own: usize =
            entries.map(|entry| size_of_val(entry) + entry.name.len() + 2 * HEAP + size_of::<NodeIndex>()).sum();
        own + JoinedArray::memory_usage_of(&self.joined, self.shard.chunks.as_deref().unwrap_or_default())
    }

    fn block_name(&self, block: u32) -> String {
        let entry = self.shard.entries.get(block as usize);
        entry.map_or_else(String::new, |entry| String::from_utf8_lossy(&entry.name).into_owned())
    }

    fn warnings(&self) -> &[String] {
        &self.shard.problems
    }

    fn has_parts(&self) -> bool {
        self.shard.chunks.is_some()
    }

    fn joins(&self) -> Vec<String> {
        let chunks = self.shard.chunks.iter().flatten().filter(|_| !self.joined.is_empty());
        chunks.map(|chunk| chunk.uri.clone()).collect()
    }

    fn kind_name(&self) -> Option<&'static str> {
        (self.shard.header.role != timeline::EPISODE).then_some("shard")
    }

    fn timeline(&self, reader: &ReadContext, paths: &Paths<Entry<File>>) -> Result<Option<Timeline>, Fault> {
        timeline::of(self, reader, paths)
    }

    fn verify_rest(&self, _: &ReadContext) -> Result<Vec<String>, Fault> {
        let (Some(chunks), Some(siblings)) = (&self.shard.chunks, &self.siblings) else { return Ok(Vec::new()) };
        Ok(joined::verify(chunks, &**siblings))
    }

    fn item_info(&self, file: File) -> Option<ItemInfo> {
        let info = self.array(file).map(ItemInfo::from).unwrap_or_default();
        let i = match file {
            File::Bytes(i) | File::Value(i) | File::Signs(i) => i,
            File::Joined(i) => return Some(ItemInfo { inferred: self.joined.get(i as usize)?.0.inferred, ..info }),
            File::Schema => return None,
        };
        let entry = self.shard.entries.get(i as usize)?;
        let guessed = matches!(entry.value, wshard::Value::Array { inferred: true, .. });
        let Block { ref codec, stored_size, crc, .. } = entry.block.extent;
        Some(ItemInfo {
            codec: Some(codec.kind().into()),
            stored_size: Some(stored_size),
            crc32c: crc.map(|crc| crc.value),
            inferred: guessed && matches!(file, File::Value(_)),
            ..info
        })
    }
}

/// Returns the name of a role (`docs/formats/wshard.md` 2).
fn role_name(role: u8) -> Option<&'static str> {
    Some(match role {
        0 => "unknown",
        1 => "MoSH",
        2 => "Sample",
        3 => "GemmPanel",
        4 => "Manifest",
        5 => "WShard",
        6 => "UMSH",
        8 => "ColumnShard",
        _ => return None,
    })
}
