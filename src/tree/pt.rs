//! PyTorch checkpoints: tensors as arrays in folders of their dicts, and `values.json` (`docs/formats/pt.md` 5).

mod values;

use std::{borrow::Cow, collections::HashMap, ops::Range, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::{
    Content, Entry, ItemInfo, Table,
    describe::{self, Item},
    descriptor::{Format, keep},
    members::Members,
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
    totals::Totals,
};
use crate::{
    cache::Buffer,
    format::{
        DType, FormatError,
        pt::{self, Checkpoint, Object, Pickled, Tensor, Value},
    },
    source::{Memory, SourceError, check_room},
    view::{
        Array, Fault, ReadContext, Rendered, View,
        grid::{Strided, Turn},
        json,
    },
};
use values::Known;

/// PyTorch checkpoints. Their pickles are never executed. Python has files of other kinds with the same suffixes.
pub static PT: Format = Format {
    name: "pt",
    title: "PyTorch",
    summary: "checkpoints of PyTorch",
    shared_suffixes: pt::SUFFIXES,
    recognise: pt::recognise,
    probe: |source, _, memory| keep(memory, pt::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| pt::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(open(parsed, memory)?))
    },
    fixtures: &["checkpoint.pt"],
    ..Format::DEFAULT
};

/// Bytes that an item takes in memory in addition to its name: its node, and the node's name.
const ITEM_MEMORY: u64 = 400;
/// Bytes that a member takes in addition to what the parser has reserved.
const MEMBER_MEMORY: u64 = 64;

/// Values of the outermost dict that an overview shows.
const SHOWN_VALUES: usize = 20;
/// Longest text of one of them in bytes.
const SHOWN_TEXT: usize = 100;

/// The content of a file in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    /// A tensor, by its number among the items.
    Tensor(u32),
    /// `values.json`.
    Values,
}

/// A tensor, or an unknown value.
enum Found {
    Tensor { tensor: Arc<Tensor>, member: Option<u32>, node: NodeIndex },
    Unknown { global: Option<Box<str>> },
}

/// The tensors of a checkpoint.
pub(super) struct Tensors {
    members: Arc<Members>,
    /// The items in the order of the walk, each with its name.
    items: Vec<(Box<[u8]>, Found)>,
    is_big: bool,
    front: Map<String, Json>,
    /// The values that an overview shows.
    values: Map<String, Json>,
    document: Option<Arc<Buffer>>,
}

/// Returns the tree of a checkpoint.
///
/// # Errors
/// `Source` if there is not enough memory.
fn open(checkpoint: Checkpoint, memory: &dyn Memory) -> Result<Table<Tensors>, FormatError> {
    let Checkpoint { archive, root, version, is_big, pickled } = checkpoint;
    let needed = archive.members.len() as u64 * MEMBER_MEMORY;
    memory.reserve(needed)?;
    check_room(needed, 1).map_err(SourceError::from)?;
    let members = Members::new(archive);
    let mut walk = Walk {
        pickled: &pickled,
        memory,
        builder: Builder::default(),
        storages: HashMap::new(),
        folders: Vec::new(),
        name: Vec::new(),
        items: Vec::new(),
        keys_left_out: 0,
    };
    for (number, member) in (0..).zip(members.all()) {
        let key = member.name.get(root.len() + 1..).and_then(|name| name.strip_prefix(b"data/"));
        walk.storages.extend(key.map(|key| (key, number)));
    }
    walk.visit(pickled.root)?;
    let Walk { mut builder, items, keys_left_out, .. } = walk;
    let known = Known { pickled: &pickled, value: pickled.root };
    let document = if known.is_shown() {
        builder.file(ROOT, b"values", ".json", Entry::Of(File::Values));
        Some(Arc::new(json::large_document(&known, memory)?))
    } else {
        None
    };
    let mut front = Map::new();
    front.insert("format".into(), PT.name.into());
    front.insert("version".into(), version.into());
    front.insert("byte_order".into(), if is_big { "big" } else { "little" }.into());
    if keys_left_out > 0 {
        front.insert("keys_left_out".into(), keys_left_out.into());
    }
    let values = shown_values(&pickled);
    Ok(Table::new(builder, Tensors { members, items, is_big, front, values, document }))
}

/// Returns numbers and short texts of the outermost dict.
fn shown_values(pickled: &Pickled) -> Map<String, Json> {
    let Value::Object(number) = pickled.root else { return Map::new() };
    let Some(Object::Dict(pairs, _)) = pickled.object(number) else { return Map::new() };
    let shown = |(key, value): &(Value, Value)| {
        let key = pickled.key(*key).filter(|key| key.len() <= SHOWN_TEXT)?;
        let key = String::from_utf8_lossy(&key).into_owned();
        let value = match *value {
            Value::Bool(is) => is.into(),
            Value::Int(number) => number.into(),
            Value::Float(number) => number.into(),
            Value::Text(span) if pickled.bytes(span).len() <= SHOWN_TEXT => {
                String::from_utf8_lossy(pickled.bytes(span)).into()
            }
            _ => return None,
        };
        Some((key, value))
    };
    pairs.iter().filter_map(shown).take(SHOWN_VALUES).collect()
}

/// A folder on the way to a value. It is made for the first tensor in it.
struct Folder<'a> {
    part: Cow<'a, [u8]>,
    node: Option<NodeIndex>,
}

/// Goes through the values. The parser has bounded their number and depth.
struct Walk<'a> {
    pickled: &'a Pickled,
    memory: &'a dyn Memory,
    builder: Builder<Entry<File>>,
    /// The member of each storage, by its key.
    storages: HashMap<&'a [u8], u32>,
    folders: Vec<Folder<'a>>,
    /// The keys so far, joined by slashes.
    name: Vec<u8>,
    items: Vec<(Box<[u8]>, Found)>,
    keys_left_out: u64,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, value: Value) -> Result<(), SourceError> {
        let pickled = self.pickled;
        let object = if let Value::Object(number) = value { pickled.object(number) } else { None };
        match object {
            Some(Object::Dict(pairs, _)) => {
                for &(key, value) in pairs {
                    match pickled.key(key) {
                        Some(part) => self.visit_below(part, value)?,
                        None => self.keys_left_out += 1,
                    }
                }
            }
            Some(Object::List(values) | Object::Tuple(values)) => {
                for (at, &value) in values.iter().enumerate() {
                    // Only values that may contain tensors need their position as text.
                    if matches!(value, Value::Object(_) | Value::Global(_) | Value::Unknown(_)) {
                        self.visit_below(at.to_string().into_bytes().into(), value)?;
                    }
                }
            }
            Some(Object::Tensor(tensor)) => {
                let member = self.storages.get(&*tensor.storage.key).copied();
                let number = self.items.len() as u32;
                let node = self.file(number);
                self.add(Found::Tensor { tensor: tensor.clone(), member, node })?;
            }
            _ if (Known { pickled, value }).is_unknown() => {
                let global = match value {
                    Value::Global(number) | Value::Unknown(Some(number)) => Some(pickled.global(number).into()),
                    _ => None,
                };
                self.add(Found::Unknown { global })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_below(&mut self, part: Cow<'a, [u8]>, value: Value) -> Result<(), SourceError> {
        let length = self.name.len();
        if !self.folders.is_empty() {
            self.name.push(b'/');
        }
        self.name.extend_from_slice(&part);
        self.folders.push(Folder { part, node: None });
        self.visit(value)?;
        self.folders.pop();
        self.name.truncate(length);
        Ok(())
    }

    /// Adds the file of a tensor, and the missing folders on the way.
    fn file(&mut self, number: u32) -> NodeIndex {
        let (last, folders) = match self.folders.split_last_mut() {
            Some((last, folders)) => (&*last.part, folders),
            None => (&b"tensor"[..], &mut [][..]),
        };
        let mut node = ROOT;
        for folder in folders {
            node = *folder.node.get_or_insert_with(|| self.builder.own_folder(node, &folder.part));
        }
        self.builder.file(node, last, ".npy", Entry::Of(File::Tensor(number)))
    }

    fn add(&mut self, found: Found) -> Result<(), SourceError> {
        let global = if let Found::Unknown { global: Some(global) } = &found { global.len() } else { 0 };
        self.memory.reserve(ITEM_MEMORY + 2 * (self.name.len() + global) as u64)?;
        self.items.push((self.name.as_slice().into(), found));
        Ok(())
    }
}

/// Elements that cannot be read, because their storage is missing or too short.
#[derive(Debug)]
struct Lost(String);

impl Rendered for Lost {
    fn fill(&self, _: &ReadContext, _: Range<u64>, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::refused(self.0.clone()))
    }
}

impl Tensors {
    fn found(&self, number: u32) -> Option<(&Arc<Tensor>, Option<u32>)> {
        match &self.items.get(number as usize)?.1 {
            Found::Tensor { tensor, member, .. } => Some((tensor, *member)),
            Found::Unknown { .. } => None,
        }
    }

    /// Returns the elements of a tensor.
    fn data(&self, tensor: &Tensor, member: Option<u32>) -> View {
        let (size, width) = (tensor.size(), tensor.kind.dtype.size());
        let lost = |reason: String| View::default().with_rendered(size, Lost(reason));
        let key = || String::from_utf8_lossy(&tensor.storage.key).into_owned();
        if size == 0 {
            return View::default();
        }
        let Some((number, stored)) = member.and_then(|number| Some((number, self.members.get(number)?))) else {
            return lost(format!("the archive has no member data/{}", key()));
        };
        if stored.error().is_none() && stored.size < tensor.storage_size {
            let (is, should) = (stored.size, tensor.storage_size);
            return lost(format!("the member data/{} has {is} bytes, and its elements {should}", key()));
        }
        // The two halves of a complex number are swapped separately.
        let unit = tensor.kind.dtype.parts().map_or(width, DType::size);
        let is_turned = self.is_big && unit > 1;
        let data = match tensor.range() {
            Some(range) if !is_turned => self.members.part(number, range),
            _ => {
                let from = tensor.offset * width;
                let data = self.members.part(number, from..tensor.storage_size);
                let strides = tensor.strides.iter().map(|stride| stride.saturating_mul(width)).collect();
                let turn = if is_turned { Turn::Units(unit as usize) } else { Turn::No };
                Strided::new(data, width, tensor.shape.to_vec(), strides, turn).into()
            }
        };
        if tensor.kind.dtype == DType::Bool { data.into_bool() } else { data }
    }

    fn info(&self, tensor: &Tensor, member: Option<u32>) -> ItemInfo {
        let member = member.and_then(|number| self.members.get(number));
        let codec = member.map_or("none".into(), crate::format::zip::Member::codec_name);
        ItemInfo {
            dtype: Some(tensor.kind.dtype.into()),
            shape: Some(tensor.shape.to_vec()),
            stored_size: (codec == "none").then(|| tensor.size()),
            codec: Some(codec),
            ..ItemInfo::default()
        }
    }
}

/// The keys of `items` that only checkpoints have.
#[derive(Serialize)]
struct Own<'a> {
    storage: Cow<'a, str>,
}

/// A member of `items`.
#[derive(Serialize)]
#[serde(untagged)]
enum Described<'a> {
    Tensor(Box<Item<'a, Own<'a>>>),
    Unknown { name: Cow<'a, str>, path: (), kind: &'static str, global: Option<&'a str> },
}

impl Content for Tensors {
    type File = File;

    fn array(&self, file: File) -> Option<Array> {
        let File::Tensor(number) = file else { return None };
        let (tensor, member) = self.found(number)?;
        Some(Array::new(tensor.kind.dtype, &*tensor.shape, self.data(tensor, member)))
    }

    fn view(&self, file: File) -> View {
        match (file, &self.document) {
            (File::Tensor(_), _) => self.array(file).map_or_else(View::default, Array::npy),
            (File::Values, Some(document)) => View::shared(document.clone()),
            (File::Values, None) => View::default(),
        }
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<File>>,
        _: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let items = self.items.iter().map(|(name, found)| match found {
            Found::Tensor { tensor, member, node } => {
                let info = self.info(tensor, *member);
                let codec = info.codec.clone().unwrap_or_default();
                let has_crc = member.and_then(|number| self.members.get(number)).is_some_and(|member| member.has_crc);
                let own = Own { storage: String::from_utf8_lossy(&tensor.storage.key) };
                let item = Item::of(name, paths.path(*node), Some(tensor.size()), info, own);
                let item = item.with_names(Some(tensor.kind.name.into()), codec);
                Described::Tensor(item.with_checksum(has_crc.then_some("crc32")).into())
            }
            Found::Unknown { global } => {
                let name = String::from_utf8_lossy(name);
                Described::Unknown { name, path: (), kind: "unknown", global: global.as_deref() }
            }
        });
        describe::bounded(self.front.clone(), self.items.len() as u64, items, &Map::new(), memory)
    }

    fn overview(&self, paths: &Paths<Entry<File>>) -> Overview {
        let (mut totals, mut unknown) = (Totals::default(), 0u64);
        let mut items = Vec::new();
        for (_, found) in &self.items {
            match found {
                Found::Tensor { tensor, member, node } => {
                    totals.add(tensor.kind.name, tensor.elements());
                    let info = self.info(tensor, *member);
                    let (path, size) = (paths.path(*node), Some(tensor.size()));
                    items.push(overview::Item { path, size, info, ..overview::Item::default() });
                }
                Found::Unknown { .. } => unknown += 1,
            }
        }
        let mut front = self.front.clone();
        front.shift_remove("format");
        front.extend(totals.front());
        if unknown > 0 {
            front.insert("unknown".into(), unknown.into());
        }
        if !self.values.is_empty() {
            front.insert("values".into(), self.values.clone().into());
        }
        Overview { format: PT.name, contents: Contents::Items { front, items } }
    }

    fn block_name(&self, block: u32) -> String {
        self.members.name(block)
    }

    fn memory_usage(&self) -> usize {
        let item = |(name, found): &(Box<[u8]>, Found)| {
            name.len()
                + 2 * super::HEAP
                + match found {
                    Found::Tensor { tensor, .. } => 16 * tensor.shape.len() + size_of::<Tensor>() + 3 * super::HEAP,
                    Found::Unknown { global } => global.as_ref().map_or(0, |global| global.len() + super::HEAP),
                }
        };
        let items: usize = self.items.iter().map(item).sum();
        let document = self.document.as_ref().map_or(0, |document| document.len());
        self.members.memory_usage() + self.items.capacity() * size_of::<(Box<[u8]>, Found)>() + items + document
    }

    fn item_info(&self, file: File) -> Option<ItemInfo> {
        let File::Tensor(number) = file else { return None };
        let (tensor, member) = self.found(number)?;
        Some(self.info(tensor, member))
    }
}
