//! A GGUF file: tensors as they are stored, and as numbers; metadata; the tokenizer (`docs/TREE.md`, section 12).

mod document;
mod numbers;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::{
    Content, Entry, ItemInfo, Table,
    describe::{self, Item},
    descriptor::{Format, keep},
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
    totals::Totals,
};
use crate::{
    cache::Buffer,
    format::{
        DType,
        gguf::{self, Gguf, Kind, Tensor, Value},
    },
    source::Memory,
    view::{Array, Fault, ReadContext, Strided, View},
};
use document::Documents;
use numbers::Dequantised;

/// GGUF, models for llama.cpp.
pub static GGUF: Format = Format {
    name: "gguf",
    title: "GGUF",
    summary: "models of llama.cpp",
    suffixes: &[gguf::SUFFIX],
    recognise: gguf::recognise,
    probe: |source, _, memory| keep(memory, gguf::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| gguf::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(open(parsed)))
    },
    fixtures: &["model.gguf"],
    ..Format::DEFAULT
};

/// Suffix of the view of a quantised tensor as numbers.
const NUMBERS: &str = ".f32.npy";

/// Most elements of an array that `metadata.json` contains.
const INLINE: u64 = 4096;

/// Tensors without a file that are reported one by one.
const REPORTED: usize = 20;

/// The content of a file in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    /// A tensor as it is stored, by its number.
    Tensor(u32),
    /// The numbers of a quantised tensor.
    Numbers(u32),
    /// All metadata.
    Metadata,
    /// An array of metadata, by the number of its pair.
    Array(u32),
    /// Texts of metadata, one a line, by the number of their pair.
    Texts(u32),
}

/// A GGUF file, and the nodes of its tensors and metadata. The root means "none".
pub(super) struct Model {
    found: Gguf,
    tensors: Vec<NodeIndex>,
    numbers: Vec<NodeIndex>,
    /// The file of each pair that has its own file.
    pairs: Vec<NodeIndex>,
    warnings: Vec<String>,
}

/// Returns the tree of a GGUF file.
fn open(found: Gguf) -> Table<Model> {
    let mut builder = Builder::default();
    let (mut tensors, mut numbers, mut unknown) = (Vec::new(), Vec::new(), 0);
    let mut warnings = Vec::new();
    for (tensor, number) in found.iter().zip(0u32..) {
        let suffix = match tensor.kind().map(|known| known.kind) {
            Some(Kind::Plain(_)) => ".npy",
            Some(Kind::Blocks { .. }) => ".bin",
            None => {
                unknown += 1;
                if unknown <= REPORTED {
                    let name = String::from_utf8_lossy(tensor.name);
                    let code = tensor.code;
                    warnings.push(format!("tensor {name:?} has no file: the size of its type {code} is not known"));
                }
                tensors.push(ROOT);
                continue;
            }
        };
        let (folder, part) = builder.folders_of(ROOT, tensor.name, &[]);
        tensors.push(builder.file(folder, part, suffix, Entry::Of(File::Tensor(number))));
    }
    if unknown > REPORTED {
        warnings.push(format!("{} more tensors have no file", unknown - REPORTED));
    }
    // Views as numbers are added after the stored tensors, which have precedence for names.
    for ((tensor, &node), number) in found.iter().zip(&tensors).zip(0u32..) {
        let is_shown = !found.is_big && quantised(tensor);
        numbers.push(match is_shown {
            true => {
                let (_, part) = builder.folders_of(ROOT, tensor.name, &[]);
                builder.beside(node, part, [".bin", NUMBERS], Entry::Of(File::Numbers(number)))
            }
            false => ROOT,
        });
    }
    let pairs = add_pairs(&mut builder, &found);
    if !pairs.is_empty() {
        builder.file(ROOT, b"metadata", ".json", Entry::Of(File::Metadata));
    }
    Table::new(builder, Model { found, tensors, numbers, pairs, warnings })
}

/// Returns whether a tensor's blocks can be shown as numbers.
fn quantised(tensor: Tensor<'_>) -> bool {
    matches!(tensor.kind().map(|known| known.kind), Some(Kind::Blocks { quantised: Some(_), .. }))
}

/// Adds the files of the pairs that have their own file.
fn add_pairs(builder: &mut Builder<Entry<File>>, found: &Gguf) -> Vec<NodeIndex> {
    let pair = |((key, value), number): ((&str, &Value), u32)| {
        let (file, suffix) = match value {
            Value::Array(..) => (File::Array(number), ".npy"),
            Value::Texts(..) => (File::Texts(number), ".jsonl"),
            Value::Scalar(..) | Value::Text(..) => return ROOT,
        };
        let (folder, name) = match (key, value) {
            ("tokenizer.ggml.tokens", Value::Texts(..)) => ("tokenizer", "tokens"),
            ("tokenizer.ggml.merges", Value::Texts(..)) => ("tokenizer", "merges"),
            ("tokenizer.ggml.scores", Value::Array(dtype, ..)) if *dtype != DType::Bool => ("tokenizer", "scores"),
            ("tokenizer.ggml.token_type", Value::Array(dtype, ..)) if *dtype != DType::Bool => ("tokenizer", "types"),
            (_, Value::Array(_, count, _) | Value::Texts(count, _)) if *count > INLINE => ("metadata", key),
            _ => return ROOT,
        };
        let folder = builder.folder(ROOT, folder);
        builder.file(folder, name.as_bytes(), suffix, Entry::Of(file))
    };
    found.pairs().zip(0u32..).map(pair).collect()
}

impl Model {
    fn tensor(&self, number: u32) -> Option<Tensor<'_>> {
        self.found.tensor(number as usize)
    }

    fn pair(&self, number: u32) -> Option<&Value> {
        self.found.value_at(number as usize)
    }

    /// Returns stored elements, byte-swapped if they are big-endian.
    fn elements(&self, dtype: DType, place: std::ops::Range<u64>) -> View {
        let width = dtype.size();
        if self.found.is_big && width > 1 {
            return View::default().with_rendered(place.end - place.start, Strided::one(place, width));
        }
        let data = View::stored(place);
        if dtype == DType::Bool { data.into_bool() } else { data }
    }

    /// Returns the front matter of `container.json`.
    fn front(&self) -> Map<String, Json> {
        let mut front = Map::new();
        front.insert("format".into(), GGUF.name.into());
        front.insert("version".into(), self.found.version.to_string().into());
        front.insert("byte_order".into(), if self.found.is_big { "big" } else { "little" }.into());
        front.insert("alignment".into(), self.found.alignment.into());
        front
    }

    /// Iterates over the tensors with the nodes of their files.
    fn items(&self) -> impl Iterator<Item = (Tensor<'_>, NodeIndex, NodeIndex)> + Clone {
        let nodes = self.tensors.iter().zip(&self.numbers);
        self.found.iter().zip(nodes).map(|(tensor, (&node, &numbers))| (tensor, node, numbers))
    }

    /// Returns a short text, or a number as text, of metadata.
    fn said(&self, key: &str) -> Option<String> {
        match self.found.value(key)? {
            Value::Text(_, text) => text.as_deref().map(ToOwned::to_owned),
            Value::Scalar(dtype, bits) if !dtype.is_float() => Some(bits.to_string()),
            _ => None,
        }
    }
}

/// Returns what is known of a tensor.
fn info(tensor: Tensor<'_>) -> ItemInfo {
    let data = tensor.data();
    let kind = tensor.kind().map(|known| known.kind);
    ItemInfo {
        dtype: if let Some(Kind::Plain(dtype)) = kind { Some(dtype.into()) } else { None },
        stored_type: tensor.kind().map(|known| known.name),
        shape: Some(tensor.shape.to_vec()),
        codec: Some("none".into()),
        stored_size: kind.map(|_| data.end - data.start),
        ..ItemInfo::default()
    }
}

/// Returns the path of a node; `None` for the root.
fn path_of(paths: &Paths<Entry<File>>, node: NodeIndex) -> Option<String> {
    (node != ROOT).then(|| paths.path(node))
}

/// The keys of `items` that only GGUF has.
#[derive(Serialize)]
struct Own {
    #[serde(skip_serializing_if = "Option::is_none")]
    dequantized: Option<String>,
}

impl Content for Model {
    type File = File;

    fn array(&self, file: File) -> Option<Array> {
        match file {
            File::Tensor(number) => {
                let tensor = self.tensor(number)?;
                let Kind::Plain(dtype) = tensor.kind()?.kind else { return None };
                Some(Array::new(dtype, tensor.shape, self.elements(dtype, tensor.data())))
            }
            File::Numbers(number) => {
                let tensor = self.tensor(number)?;
                let data = Dequantised::of(tensor)?;
                let size = tensor.elements().saturating_mul(DType::F32.size());
                Some(Array::new(DType::F32, tensor.shape, View::default().with_rendered(size, data)))
            }
            File::Array(number) => match self.pair(number)? {
                Value::Array(dtype, count, place) => {
                    Some(Array::new(*dtype, [*count], self.elements(*dtype, place.clone())))
                }
                _ => None,
            },
            File::Metadata | File::Texts(_) => None,
        }
    }

    fn view(&self, file: File) -> View {
        match (self.array(file), file) {
            (Some(array), _) => array.npy(),
            (None, File::Tensor(number)) => {
                self.tensor(number).map_or_else(View::default, |tensor| View::stored(tensor.data()))
            }
            _ => View::default(),
        }
    }

    fn made(&self, reader: &ReadContext, paths: &Paths<Entry<File>>, file: File) -> Result<Option<View>, Fault> {
        let number = match file {
            File::Metadata => 1,
            File::Texts(number) => 2 + number,
            File::Tensor(_) | File::Numbers(_) | File::Array(_) => return Ok(None),
        };
        let made = describe::kept(reader, number.into(), |memory| {
            let documents = Documents::new(&self.found, &*reader.source, memory);
            match file {
                File::Texts(number) => documents.texts(self.pair(number)),
                _ => documents.metadata(self.pairs.iter().map(|&node| path_of(paths, node))),
            }
        });
        Ok(Some(View::shared(made?)))
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<File>>,
        _: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let items = self.items().map(|(tensor, node, numbers)| {
            let info = info(tensor);
            let dtype = tensor.kind().map_or_else(|| format!("type {}", tensor.code).into(), |known| known.name.into());
            let own = Own { dequantized: path_of(paths, numbers) };
            Item::of(tensor.name, path_of(paths, node), info.stored_size, info, own)
                .with_names(Some(dtype), "none".into())
        });
        describe::bounded(self.front(), self.found.tensors() as u64, items, &Map::new(), memory)
    }

    fn overview(&self, paths: &Paths<Entry<File>>) -> Overview {
        let mut totals = Totals::default();
        for tensor in self.found.iter() {
            totals.add(tensor.kind().map_or("unknown", |known| known.name), tensor.elements());
        }
        let mut front = Map::new();
        front.insert("version".into(), self.found.version.to_string().into());
        let architecture = self.said("general.architecture");
        let context = architecture.as_ref().and_then(|name| self.said(&format!("{name}.context_length")));
        for (name, said) in [
            ("name", self.said("general.name")),
            ("architecture", architecture),
            ("context_length", context),
            ("quantization", totals.largest().map(ToOwned::to_owned)),
        ] {
            front.extend(said.map(|said| (name.to_owned(), said.into())));
        }
        front.extend(totals.front());
        let items = self.items().map(|(tensor, node, numbers)| {
            let info = info(tensor);
            let path = path_of(paths, node).unwrap_or_else(|| String::from_utf8_lossy(tensor.name).into_owned());
            let numbers = path_of(paths, numbers);
            overview::Item { path, numbers, size: info.stored_size, info, ..overview::Item::default() }
        });
        Overview { format: GGUF.name, contents: Contents::Items { front, items: items.collect() } }
    }

    fn other_arrays(&self) -> Vec<NodeIndex> {
        let is_array = |number| matches!(self.pair(number), Some(Value::Array(..)));
        let nodes = self.pairs.iter().zip(0u32..).filter(|(node, number)| **node != ROOT && is_array(*number));
        nodes.map(|(node, _)| *node).collect()
    }

    fn memory_usage(&self) -> usize {
        let nodes = self.tensors.capacity() + self.numbers.capacity() + self.pairs.capacity();
        self.found.memory_usage() + nodes * size_of::<NodeIndex>()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn item_info(&self, file: File) -> Option<ItemInfo> {
        match file {
            File::Tensor(number) => self.tensor(number).map(info),
            _ => self.array(file).map(ItemInfo::from),
        }
    }
}
