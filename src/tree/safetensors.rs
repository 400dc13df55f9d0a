//! Tensors of a model as arrays. Each is a range of the file, or of one of the files of a joined model
//! (`docs/TREE.md`, section 10).

mod joined;

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{
    Content, Entry, ItemInfo, Siblings, Table,
    describe::{self, Item},
    descriptor::{Format, keep},
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
    totals::Totals,
};
use crate::{
    cache::Buffer,
    format::{
        DType, FormatError,
        safetensors::{self, Index, Safetensors, Tensor},
    },
    source::{Memory, SourceError},
    view::{Array, Fault, ReadContext, View, json},
};

use joined::Parts;
pub(super) use joined::check_shards;

/// safetensors, the format of most models.
pub static SAFETENSORS: Format = Format {
    name: "safetensors",
    title: "safetensors",
    summary: "tensors of models",
    suffixes: &[safetensors::SUFFIX, safetensors::INDEX_SUFFIX],
    recognise: safetensors::recognise,
    probe: |source, name, memory| keep(memory, safetensors::probe(source, name, memory)),
    open: |reader, siblings, memory| {
        match memory.parsed(|memory| safetensors::parse_any(&*reader.source, memory))? {
            safetensors::Parsed::Tensors(tensors) => Ok(Arc::new(open(tensors, memory)?)),
            safetensors::Parsed::Index(index) => {
                // Opening its files reserves their own memory.
                memory.hold();
                Ok(Arc::new(open_joined(index, siblings, memory)?))
            }
        }
    },
    others: Some(safetensors::shard_files),
    check_others: Some(check_shards),
    check_part: Some(safetensors::check_shard),
    fixtures: &["model.safetensors"],
    ..Format::DEFAULT
};

/// The content of a file in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    /// A tensor, by its number in the header.
    Tensor(u32),
    /// `__metadata__`.
    Metadata,
}

/// The tensors of a file, or of a joined model.
pub(super) struct Tensors {
    found: Safetensors,
    /// Where the tensors of a joined model are.
    parts: Option<Parts>,
    nodes: Vec<NodeIndex>,
    metadata: Option<Arc<Buffer>>,
}

/// Returns the tree of a safetensors file.
///
/// # Errors
/// `ENOMEM`.
fn open(found: Safetensors, memory: &dyn Memory) -> Result<Table<Tensors>, SourceError> {
    let texts = Texts(&found.metadata);
    let metadata = if texts.0.is_empty() { None } else { Some(json::large_document(&texts, memory)?) };
    Ok(tree(found, metadata, None))
}

/// Returns the tree of a joined model.
///
/// # Errors
/// If a file is missing, or is not a part of the model.
fn open_joined(
    index: Index,
    siblings: Option<Arc<dyn Siblings>>,
    memory: &dyn Memory,
) -> Result<Table<Tensors>, FormatError> {
    let (found, metadata, parts) = joined::join(index, siblings, memory)?;
    Ok(tree(found, metadata.map(Buffer::from), Some(parts)))
}

fn tree(found: Safetensors, metadata: Option<Buffer>, parts: Option<Parts>) -> Table<Tensors> {
    let mut builder = Builder::default();
    let file = |(tensor, number): (Tensor<'_>, u32)| {
        let suffix = if tensor.array_type().is_some() { ".npy" } else { ".bin" };
        let (folder, part) = builder.folders_of(ROOT, tensor.name, &[]);
        builder.file(folder, part, suffix, Entry::Of(File::Tensor(number)))
    };
    let nodes = found.iter().zip(0..).map(file).collect();
    if metadata.is_some() {
        builder.file(ROOT, b"metadata", ".json", Entry::Of(File::Metadata));
    }
    Table::new(builder, Tensors { found, parts, nodes, metadata: metadata.map(Arc::new) })
}

/// An object of strings.
struct Texts<'a>(&'a [(Box<str>, Box<str>)]);

impl Serialize for Texts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Returns what is known of a tensor.
fn info(tensor: Tensor<'_>) -> ItemInfo {
    let data = tensor.data();
    ItemInfo {
        dtype: tensor.array_type().map(Into::into),
        stored_type: Some(tensor.dtype.name),
        shape: tensor.shape.map(<[u64]>::to_vec),
        codec: Some("none".into()),
        stored_size: Some(data.end - data.start),
        ..ItemInfo::default()
    }
}

/// The keys of `items` for a tensor of a joined model.
#[derive(Serialize)]
struct Own<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
}

impl Tensors {
    fn tensor(&self, file: File) -> Option<Tensor<'_>> {
        match file {
            File::Tensor(number) => self.found.get(number as usize),
            File::Metadata => None,
        }
    }

    /// Returns the bytes of a tensor.
    fn data(&self, file: File) -> View {
        let (File::Tensor(number), Some(tensor)) = (file, self.tensor(file)) else { return View::default() };
        let data = match &self.parts {
            Some(parts) => parts.view(number as usize, tensor.data()),
            None => View::stored(tensor.data()),
        };
        if tensor.array_type() == Some(DType::Bool) { data.into_bool() } else { data }
    }

    /// Iterates over the tensors with their paths.
    fn with_paths<'a>(
        &'a self,
        paths: &'a Paths<Entry<File>>,
    ) -> impl Iterator<Item = (Tensor<'a>, String)> + Clone + 'a {
        self.found.iter().zip(&self.nodes).map(|(tensor, &node)| (tensor, paths.path(node)))
    }
}

impl Content for Tensors {
    type File = File;

    fn array(&self, file: File) -> Option<Array> {
        let tensor = self.tensor(file)?;
        Some(Array::new(tensor.array_type()?, tensor.shape.unwrap_or_default(), self.data(file)))
    }

    fn view(&self, file: File) -> View {
        match (file, &self.metadata) {
            (File::Tensor(_), _) => self.array(file).map_or_else(|| self.data(file), Array::npy),
            (File::Metadata, Some(metadata)) => View::shared(metadata.clone()),
            (File::Metadata, None) => View::default(),
        }
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<File>>,
        _: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let mut front = Map::new();
        front.insert("format".into(), SAFETENSORS.name.into());
        front.insert("version".into(), Value::Null);
        if let Some(parts) = &self.parts {
            front.insert("joined".into(), true.into());
            front.insert("shards".into(), parts.names().collect());
        }
        let items = (0..).zip(self.with_paths(paths)).map(|(number, (tensor, path))| {
            let info = info(tensor);
            let own = Own { file: self.parts.as_ref().and_then(|parts| parts.file(number)) };
            Item::of(tensor.name, path, info.stored_size, info, own)
                .with_names(Some(tensor.dtype.name.into()), "none".into())
        });
        describe::bounded(front, self.found.len() as u64, items, &Map::new(), memory)
    }

    fn overview(&self, paths: &Paths<Entry<File>>) -> Overview {
        let mut totals = Totals::default();
        for tensor in self.found.iter() {
            let data = tensor.data();
            let elements = (data.end - data.start).saturating_mul(8) / u64::from(tensor.dtype.bits);
            totals.add(tensor.dtype.name, elements);
        }
        let mut front = Map::new();
        front.insert("version".into(), Value::Null);
        front.extend(totals.front());
        let metadata = self.found.metadata.iter().map(|(key, value)| (key.to_string(), json!(value)));
        let metadata: Map<String, Value> = metadata.collect();
        if let Some(parts) = &self.parts {
            front.insert("files".into(), parts.names().count().into());
        }
        if !metadata.is_empty() {
            front.insert("metadata".into(), metadata.into());
        }
        let items = self.with_paths(paths).map(|(tensor, path)| {
            let info = info(tensor);
            overview::Item { path, size: info.stored_size, info, ..overview::Item::default() }
        });
        Overview { format: SAFETENSORS.name, contents: Contents::Items { front, items: items.collect() } }
    }

    fn front_memory(&self) -> u64 {
        let texts = self.found.metadata.iter().map(|(key, value)| 3 * (key.len() + value.len()) as u64 + 256);
        overview::LEAST + texts.sum::<u64>()
    }

    fn memory_usage(&self) -> usize {
        let metadata = self.metadata.as_ref().map_or(0, |metadata| metadata.len());
        let parts = self.parts.as_ref().map_or(0, Parts::memory_usage);
        self.found.memory_usage() + self.nodes.capacity() * size_of::<NodeIndex>() + metadata + parts
    }

    fn has_parts(&self) -> bool {
        self.parts.is_some()
    }

    fn joins(&self) -> Vec<String> {
        self.parts.iter().flat_map(|parts| parts.names().map(ToOwned::to_owned)).collect()
    }

    fn item_info(&self, file: File) -> Option<ItemInfo> {
        self.tensor(file).map(info)
    }
}
