//! Zarr stores: groups as folders, arrays as `.npy`, texts, rows of bytes and pictures (`docs/formats/zarr.md` 7).

mod attributes;
mod chunks;
mod nodes;
mod ome;
mod opening;
mod raw;
mod refused;
mod store;
mod tables;
mod texts;
mod tszip;

use std::{borrow::Cow, collections::HashMap, ops::ControlFlow, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value as Serde};

use self::{
    chunks::{Files, Stored},
    nodes::{Node, Nodes},
    refused::Refused,
    tables::{GroupNode, Of, Plan},
    texts::Texts,
};
use super::{
    Content, Entry, FrameNames, ItemInfo,
    attributes::{Attached, Owner, Shows},
    describe::{self, Item},
    names,
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
    rows::{FixedTexts, Form, Padding, RowFiles},
    tables::{Described, described_tables},
};
use crate::{
    cache::Buffer,
    codec::Codec,
    format::{
        DType, ElementType,
        zarr::{self, Bits, Elements, Fixed},
    },
    limits,
    source::{Memory, SourceError},
    view::{
        Array, Data, Fault, ReadContext, View,
        attributes::Attributes,
        grid::{Grid, Layout, Turn},
        parquet::Parquet,
        png::Png,
    },
};

pub use opening::{TSZIP, ZARR, ZARR_ZIP};

/// The name of the format in `container.json`.
const NAME: &str = "zarr";

/// The name of the array if the whole store is one array.
const ROOT_ARRAY: &str = "array";

/// Largest height and width of a picture.
const SIDE: u64 = 65_535;

/// The content of a file in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    /// The elements of an array, by its number.
    Elements(u32),
    /// One byte that cannot be read.
    Unreadable(u32),
    /// Rows of varying length: each on a line, or joined.
    Rows(u32, Form),
    /// Where each of these rows begins.
    Offsets(u32),
    /// The bytes of all rows, as an array.
    Values(u32),
    /// Attributes.
    Attributes(Shows),
}

/// How an array is shown.
enum Shown {
    /// Elements in chunks.
    Grid(Arc<Grid>),
    /// Texts, or rows of bytes.
    Rows(Texts),
    /// No elements.
    Empty,
    /// It is not shown, for this reason.
    Refused(Box<str>),
}

/// An array of a store.
struct ArrayNode {
    path: Box<str>,
    array: zarr::Array,
    shown: Shown,
    /// Its chunks, if it has keys.
    stored: Option<Arc<Stored>>,
    is_v3: bool,
    /// Whether it is a level of a picture, whose last two axes are those of planes.
    is_level: bool,
    /// Its first file.
    node: NodeIndex,
}

/// The pictures that an array is shown as.
struct Pictures {
    count: u64,
    height: u32,
    width: u32,
    channels: u8,
    /// Bytes of a channel.
    depth: u8,
}

/// The nodes of a store.
pub(super) struct Zarr {
    files: Arc<Files>,
    is_v3: bool,
    is_consolidated: bool,
    arrays: Vec<ArrayNode>,
    groups: Vec<GroupNode>,
    tables: Vec<Plan>,
    attached: Attached,
    /// The last part of each long name, by the first file or the folder that has it.
    long_names: HashMap<NodeIndex, Box<[u8]>>,
    /// The folders of pictures, in order, each with its array.
    pictures: Vec<(NodeIndex, u32)>,
    /// The folders of chunks, in order, each with its array.
    raw: Vec<(NodeIndex, u32)>,
    /// The number of documents with attributes, which come first.
    documents: u32,
    warnings: Vec<String>,
    memory_usage: usize,
}

/// Returns the names that are reserved in a folder of the tree.
fn reserved(is_top: bool, is_folder: bool) -> &'static [&'static str] {
    const WITH_SOURCE: [&str; 3] = [names::RESERVED[0], names::RESERVED[1], ".source"];
    if is_top && is_folder { &WITH_SOURCE } else { &names::RESERVED }
}

/// Returns the folder of a node, and the last part of the node's path.
fn place<'a>(
    builder: &mut Builder<Entry<File>>,
    top: NodeIndex,
    path: &'a str,
    is_folder: bool,
) -> (NodeIndex, &'a str) {
    let (above, part) = path.rsplit_once('/').unwrap_or(("", path));
    let mut folder = top;
    for (depth, part) in above.split('/').filter(|part| !part.is_empty()).enumerate() {
        let reserved = reserved(top == ROOT && depth == 0, is_folder);
        folder = builder.folder(folder, &names::folder(part.as_bytes(), reserved, 1));
    }
    (folder, part)
}

/// A node with attributes. For an array, also its number and the suffix of its files.
type Attributed<'a> = (NodeIndex, Option<(usize, &'a str)>, zarr::Json);

fn tree(found: Nodes, files: Arc<Files>) -> (Builder<Entry<File>>, Zarr) {
    let is_folder = files.store.zip().is_none();
    let Nodes { is_v3, is_consolidated, attributes, is_array, nodes, warnings } = found;
    let mut builder = Builder::default();
    let mut zarr = Zarr {
        files,
        is_v3,
        is_consolidated,
        arrays: Vec::new(),
        groups: Vec::new(),
        tables: Vec::new(),
        attached: Attached::default(),
        long_names: HashMap::new(),
        pictures: Vec::new(),
        raw: Vec::new(),
        documents: 0,
        warnings,
        memory_usage: 0,
    };
    let mut owners: Vec<Attributed<'_>> = Vec::new();
    let (mut levels, mut frames): (Vec<String>, Vec<(usize, Plan)>) = (Vec::new(), Vec::new());
    if !is_array {
        levels.extend(ome::levels(&attributes).map(str::to_owned));
        owners.push((ROOT, None, attributes));
    }
    for Node { path, array, attributes } in nodes {
        zarr.memory_usage += path.len() * 2 + 2 * attributes.memory_usage() + 512;
        match array {
            None => {
                let (folder, part) = place(&mut builder, ROOT, &path, is_folder);
                let is_top = folder == ROOT;
                let own = builder.folder(folder, &names::folder(part.as_bytes(), reserved(is_top, is_folder), 1));
                zarr.keep_long(own, part);
                levels.extend(ome::levels(&attributes).map(|level| nodes::join(&path, level)));
                if tables::is_frame(&attributes) {
                    let number = zarr.groups.len();
                    let of = Of::Frame(number as u32);
                    frames.push((number, Plan { folder, part: part.as_bytes().into(), of }));
                }
                zarr.groups.push(GroupNode { path, node: own });
                owners.push((own, None, attributes));
            }
            Some(array) => {
                let number = zarr.arrays.len();
                let (node, suffix) = zarr.add(&mut builder, path, array, is_folder);
                owners.push((node, Some((number, suffix)), attributes));
            }
        }
    }
    for path in levels {
        zarr.set_level(&path);
    }
    zarr.add_folders(&mut builder, is_folder);
    for (node, array, attributes) in owners {
        let attributes = attributes::of(&attributes);
        zarr.documents += u32::from(!attributes.is_empty());
        let show = |shows| Entry::Of(File::Attributes(shows));
        match array.and_then(|(number, suffix)| Some((zarr.arrays.get(number)?, suffix))) {
            None => zarr.attached.add(&mut builder, Owner::Group(node), attributes, show),
            Some((item, suffix)) => {
                let owner = Owner::Array(node, item.part().as_bytes(), suffix);
                zarr.attached.add(&mut builder, owner, attributes, show);
            }
        }
    }
    frames.into_iter().for_each(|(number, plan)| zarr.add_frame(number, plan));
    (builder, zarr)
}

/// Returns the change of byte order of elements.
fn turn(fixed: &Fixed) -> Turn {
    let Some(first) = fixed.swapped.first() else { return Turn::No };
    let unit = first.len();
    let is_whole = fixed.swapped.iter().enumerate().all(|(at, range)| *range == (at * unit..(at + 1) * unit));
    if is_whole && fixed.swapped.len() as u64 * unit as u64 == fixed.size() {
        return Turn::Units(unit);
    }
    Turn::Fields(fixed.swapped.iter().map(|unit| (unit.clone(), unit.len(), Turn::Units(unit.len()))).collect())
}

impl ArrayNode {
    /// Returns the last part of its name.
    fn part(&self) -> &str {
        let part = self.path.rsplit('/').next().unwrap_or_default();
        if self.path.is_empty() { ROOT_ARRAY } else { part }
    }

    /// Returns its first file and the file's suffix. For rows of bytes, the file is in a folder.
    fn first(&self, number: u32) -> (File, &'static str) {
        let is_scalar = self.shape().is_empty();
        match (&self.array.elements, &self.shown) {
            (Some(Elements::Fixed(_)), _) if self.array.is_sized() => (File::Elements(number), ".npy"),
            (_, Shown::Rows(Texts { is_text: true, .. })) if is_scalar => (File::Rows(number, Form::Joined), ".txt"),
            (_, Shown::Rows(Texts { is_text: true, .. })) => (File::Rows(number, Form::TextLines), ".jsonl"),
            (_, Shown::Rows(_)) if is_scalar => (File::Rows(number, Form::Joined), ".bin"),
            (_, Shown::Rows(_)) => (File::Values(number), ".npy"),
            (Some(Elements::Text), _) if self.array.is_sized() => (File::Unreadable(number), ".jsonl"),
            _ => (File::Unreadable(number), ".bin"),
        }
    }

    /// Returns its rows: texts, or rows of bytes.
    fn rows(&self, document: u64) -> Option<RowFiles> {
        if let Shown::Rows(texts) = &self.shown {
            return Some(RowFiles::new(texts.clone(), document));
        }
        let width = self.utf32()?;
        Some(RowFiles::new(FixedTexts::new(self.data()?, width, Padding::Utf32), document))
    }

    /// Returns the bytes of a text, if it has texts of fixed size that are also shown as texts.
    fn utf32(&self) -> Option<u64> {
        let fixed = self.fixed().filter(|_| self.reason().is_none())?;
        let is_text = matches!(fixed.element, ElementType::Plain(DType::Utf32(_)));
        let is_shown = is_text && self.array.count().is_some_and(|count| count <= zarr::TEXTS);
        is_shown.then(|| fixed.size())
    }

    fn fixed(&self) -> Option<&Fixed> {
        match &self.array.elements {
            Some(Elements::Fixed(fixed)) if self.array.is_sized() => Some(fixed),
            _ => None,
        }
    }

    fn shape(&self) -> &[u64] {
        self.array.shape.as_deref().unwrap_or_default()
    }

    /// Returns the bytes of the elements, if they have a fixed size.
    fn data(&self) -> Option<View> {
        let fixed = self.fixed()?;
        let size = self.array.count()?.checked_mul(fixed.size())?;
        let data = match &self.shown {
            Shown::Grid(grid) => grid.view(),
            Shown::Empty | Shown::Rows(_) => View::default(),
            Shown::Refused(reason) => View::default().with_rendered(size, Refused(reason.clone())),
        };
        Some(if fixed.element == DType::Bool { data.into_bool() } else { data })
    }

    /// Returns its elements, if they have a fixed size.
    fn elements(&self) -> Option<Array> {
        Some(Array::new(self.fixed()?.element.clone(), self.shape(), self.data()?))
    }

    /// Returns how it is shown as pictures, if it is.
    fn pictures(&self) -> Option<Pictures> {
        const NAMES: [&str; 7] = ["rgb", "depth", "video", "image", "img", "cam", "mask"];
        if !matches!(self.shown, Shown::Grid(_)) {
            return None;
        }
        let Fixed { element: ElementType::Plain(dtype), bits: Bits::Own, .. } = self.fixed()? else { return None };
        let depth = match dtype {
            DType::U8 => 1,
            DType::U16 => 2,
            _ => return None,
        };
        let says_so = || NAMES.iter().any(|name| self.part().contains(name));
        let (count, height, width, channels) = match self.shape() {
            [planes @ .., height, width] if self.is_level => (planes.iter().product(), height, width, 1),
            [count, height, width, channels @ (1 | 3 | 4)] if depth == 1 => (*count, height, width, *channels as u8),
            [count, height, width] if says_so() => (*count, height, width, 1),
            _ => return None,
        };
        let side = 1..=SIDE;
        let is_picture = count <= limits::PICTURES && side.contains(height) && side.contains(width);
        is_picture.then_some(Pictures { count, height: *height as u32, width: *width as u32, channels, depth })
    }

    fn reason(&self) -> Option<&str> {
        if let Shown::Refused(reason) = &self.shown { Some(reason) } else { None }
    }
}

impl Zarr {
    fn get(&self, number: u32) -> Option<&ArrayNode> {
        self.arrays.get(number as usize)
    }

    /// Returns the rows of an array, if it has rows.
    fn rows(&self, number: u32) -> Option<RowFiles> {
        // The numbers of container.json and of the attributes' documents come first; then each array has two.
        self.get(number)?.rows(u64::from(self.documents) + 1 + 2 * u64::from(number))
    }

    /// Adds an array with its files. Returns the node that its attributes belong to, and the node's suffix.
    fn add(
        &mut self,
        builder: &mut Builder<Entry<File>>,
        path: Box<str>,
        array: zarr::Array,
        is_folder: bool,
    ) -> (NodeIndex, &'static str) {
        let number = self.arrays.len() as u32;
        let (stored, shown) = self.shown(number, &path, &array);
        let mut item = ArrayNode { path, array, shown, stored, is_v3: self.is_v3, is_level: false, node: ROOT };
        let (file, suffix) = item.first(number);
        let path = item.path.clone();
        let (folder, _) = place(builder, ROOT, &path, is_folder);
        let part = item.part().as_bytes().to_vec();
        let part = &*part;
        let own = names::folder(part, reserved(folder == ROOT, is_folder), 1);
        let mut owner = (ROOT, suffix);
        if let File::Values(_) = file {
            let own = builder.folder(folder, &own);
            builder.file(own, b"offsets", ".npy", Entry::Of(File::Offsets(number)));
            item.node = builder.file(own, b"values", ".npy", Entry::Of(file));
            owner = (own, "");
        } else {
            item.node = builder.file(folder, part, suffix, Entry::Of(file));
            owner.0 = item.node;
        }
        let is_text = item.utf32().is_some();
        if is_text && item.shape().is_empty() {
            builder.file(folder, part, ".txt", Entry::Of(File::Rows(number, Form::Joined)));
        } else if is_text || suffix == ".jsonl" && item.reason().is_none() {
            if is_text {
                builder.file(folder, part, ".jsonl", Entry::Of(File::Rows(number, Form::TextLines)));
            }
            let own = builder.folder(folder, &own);
            builder.file(own, b"offsets", ".npy", Entry::Of(File::Offsets(number)));
            builder.file(own, b"utf8", ".bin", Entry::Of(File::Rows(number, Form::Joined)));
        }
        if tables::is_table(&item) {
            self.tables.push(Plan { folder, part: part.into(), of: Of::Records(number) });
        }
        if let Some(reason) = item.reason() {
            self.warnings.push(format!("{}: not shown: {reason}", item.path));
        }
        self.keep_long(owner.0, item.part());
        self.arrays.push(item);
        owner
    }

    /// Remembers the last part of a node's name if what is shown of it may be shortened.
    fn keep_long(&mut self, node: NodeIndex, part: &str) {
        if part.len() > names::SHORT / 3 {
            self.long_names.insert(node, part.as_bytes().into());
        }
    }

    /// Returns how an array is shown, and its chunks.
    fn shown(&self, number: u32, path: &str, array: &zarr::Array) -> (Option<Arc<Stored>>, Shown) {
        let refused = |reason: &str| Shown::Refused(reason.into());
        let shape = array.shape.clone().unwrap_or_default();
        let stored = |written: zarr::Written, size: u64, codec| {
            let (files, number) = (self.files.clone(), u64::from(number));
            let keys = array.keys.clone()?;
            let (path, shape) = (path.into(), shape.clone());
            let steps: Vec<_> = written.elements.iter().chain(&written.bytes).cloned().collect();
            let raw_steps = (self.is_v3 && !written.elements.is_empty()).then(|| written.bytes.clone());
            let stored = Stored { files, number, path, shape, keys, written, steps, codec, size, raw_steps };
            (!array.is_empty()).then_some(stored)
        };
        let outer = || {
            let chunk = array.keys.as_ref().map(|keys| keys.chunk.clone()).unwrap_or_default();
            stored(zarr::Written { chunk, ..zarr::Written::default() }, 0, Codec::None).map(Arc::new)
        };
        let chunks = match &array.chunks {
            Err(reason) => return (outer(), refused(reason)),
            Ok(_) if !array.is_sized() => return (outer(), refused("it is too large")),
            Ok(chunks) => chunks,
        };
        let codec = match chunks.written.codec() {
            Ok(codec) => codec,
            Err(reason) => return (outer(), refused(&reason)),
        };
        let Some(Elements::Fixed(fixed)) = &array.elements else {
            let own = stored(chunks.written.clone(), 0, codec).map(Arc::new);
            let (is_text, fill) = (array.elements == Some(Elements::Text), chunks.fill.clone().into());
            let texts = Texts { stored: own.clone(), is_text, fill, count: array.count().unwrap_or(0) };
            return (own, Shown::Rows(texts));
        };
        if array.is_empty() {
            return (None, Shown::Empty);
        }
        let size = chunks.written.chunk.iter().product::<u64>() * fixed.size();
        let mut fill = chunks.fill.clone();
        for unit in &fixed.swapped {
            fill.get_mut(unit.clone()).unwrap_or_default().reverse();
        }
        let mut layout = Layout {
            number: number.into(),
            shape: shape.clone(),
            chunk: chunks.written.chunk.clone(),
            element: fixed.size(),
            order: chunks.written.order.clone(),
            turn: turn(fixed),
            fill,
        };
        let Some(mut own) = stored(chunks.written.clone(), size, codec) else {
            return (None, refused("it has no keys"));
        };
        own.leave_out_end(&mut layout);
        let own = Arc::new(own);
        match Grid::new(layout, own.clone()) {
            Ok(grid) => (Some(own), Shown::Grid(grid)),
            Err(reason) => (outer(), refused(&reason)),
        }
    }

    /// Notes that an array is a level of a picture.
    fn set_level(&mut self, path: &str) {
        if let Some(item) = self.array_at(path).and_then(|at| self.arrays.get_mut(at)) {
            item.is_level = true;
        }
    }

    /// Adds the folders of pictures and of chunks.
    fn add_folders(&mut self, builder: &mut Builder<Entry<File>>, is_folder: bool) {
        for (number, item) in (0..).zip(&self.arrays) {
            if item.pictures().is_some() {
                let (folder, _) = place(builder, ROOT, &item.path, is_folder);
                let part = names::folder(item.part().as_bytes(), reserved(folder == ROOT, is_folder), 1);
                self.pictures.push((builder.folder(folder, &part), number));
            }
        }
        let top = builder.hidden_folder(ROOT, ".raw");
        for (number, item) in (0..).zip(&self.arrays) {
            if item.stored.is_some() {
                let (folder, _) = place(builder, top, &item.path, is_folder);
                let part = names::folder(item.part().as_bytes(), &names::RESERVED, 1);
                self.raw.push((builder.folder(folder, &part), number));
            }
        }
        self.pictures.sort_unstable();
        self.raw.sort_unstable();
    }

    /// Returns the pictures that a folder shows, and their elements.
    fn pictures_in(&self, folder: NodeIndex) -> Option<(&Arc<Grid>, Pictures)> {
        let at = self.pictures.binary_search_by_key(&folder, |(folder, _)| *folder).ok()?;
        let item = self.get(self.pictures.get(at)?.1)?;
        let Shown::Grid(grid) = &item.shown else { return None };
        Some((grid, item.pictures()?))
    }

    /// Returns the array whose chunks a folder shows.
    fn raw_of(&self, folder: NodeIndex) -> Option<&ArrayNode> {
        let at = self.raw.binary_search_by_key(&folder, |(folder, _)| *folder).ok()?;
        self.get(self.raw.get(at)?.1)
    }

    fn info(&self, item: &ArrayNode) -> ItemInfo {
        ItemInfo {
            dtype: item.fixed().map(|fixed| fixed.element.clone()),
            stored_type: match &item.shown {
                Shown::Rows(Texts { is_text: true, .. }) => Some("text"),
                Shown::Rows(_) => Some("bytes"),
                _ => None,
            },
            shape: item.array.shape.clone(),
            codec: Some(self.codec_name(item)),
            chunks: item.array.chunks.as_ref().ok().map(|chunks| chunks.written.chunk.to_vec()),
            fill: item.array.chunks.as_ref().ok().map(|chunks| chunks.fill.clone().into()),
            ..ItemInfo::default()
        }
    }

    fn codec_name(&self, item: &ArrayNode) -> Cow<'static, str> {
        match &item.array.chunks {
            Ok(chunks) if !chunks.written.names.is_empty() => chunks.written.names.clone().into(),
            _ => "none".into(),
        }
    }

    /// Returns the bytes that an array's chunks take in an archive.
    fn stored_size(&self, item: &ArrayNode) -> Option<u64> {
        let zip = self.files.store.zip()?;
        if item.array.is_empty() {
            return Some(0);
        }
        let (keys, rank) = (item.array.keys.as_ref()?, item.shape().len());
        let is_inside = |key: &str| {
            let at = keys.parse(key, rank)?;
            at.iter().zip(chunks::counts(item.shape(), &keys.chunk)).all(|(at, count)| *at < count).then_some(())
        };
        let own = zip.below(&item.path).filter(|(key, _)| is_inside(key).is_some());
        Some(own.map(|(_, member)| member.stored_size).fold(0, u64::saturating_add))
    }

    fn version(&self) -> &'static str {
        if self.is_v3 { "3" } else { "2" }
    }
}

/// The keys of an item that only Zarr has.
#[derive(Serialize)]
struct Own<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<&'a [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<&'a [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimension_names: Option<Serde>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Content for Zarr {
    type File = File;

    fn array(&self, file: File) -> Option<Array> {
        match file {
            File::Elements(number) => self.get(number)?.elements(),
            File::Attributes(shows) => self.attached.array(shows),
            File::Offsets(number) => Some(self.rows(number)?.offsets(1)),
            File::Unreadable(_) | File::Rows(..) | File::Values(_) => None,
        }
    }

    fn view(&self, file: File) -> View {
        match file {
            File::Unreadable(number) => {
                let reason = self.get(number).and_then(|item| item.reason()).unwrap_or_default();
                View::default().with_rendered(1, Refused(reason.into()))
            }
            file => self.array(file).map_or_else(View::default, Array::npy),
        }
    }

    fn made(&self, reader: &ReadContext, _: &Paths<Entry<File>>, file: File) -> Result<Option<View>, Fault> {
        match file {
            File::Attributes(shows) => self.attached.view(reader, shows, 1).map(Some),
            File::Rows(number, form) => self.rows(number).map(|rows| rows.view(reader, form)).transpose(),
            File::Values(number) => {
                let values = self.rows(number).map(|rows| rows.values(reader, DType::U8, &[])).transpose()?;
                Ok(values.map(Array::npy))
            }
            File::Elements(_) | File::Unreadable(_) | File::Offsets(_) => Ok(None),
        }
    }

    fn tables(&self) -> Vec<(NodeIndex, Vec<u8>)> {
        self.tables.iter().map(|plan| (plan.folder, plan.part.to_vec())).collect()
    }

    fn table(&self, reader: &ReadContext, number: u32, memory: &dyn Memory) -> Result<Parquet, Fault> {
        let plan = self.tables.get(number as usize).ok_or(SourceError::Changed)?;
        self.columns(reader, plan.of, memory)?.table(reader, number.into(), NAME, memory)
    }

    fn describe(
        &self,
        reader: &ReadContext,
        paths: &Paths<Entry<File>>,
        tables: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let described = self
            .tables
            .iter()
            .zip(tables)
            .take(limits::DESCRIBED)
            .map(|(plan, &node)| Described::of(paths.path(node), self.columns(reader, plan.of, memory)));
        let described = described.collect::<Result<_, _>>()?;
        let mut front = Map::new();
        front.insert("format".into(), NAME.into());
        front.insert("version".into(), self.version().into());
        front.insert("consolidated".into(), self.is_consolidated.into());
        front.insert("num_items".into(), self.arrays.len().into());
        let left_out = self.arrays.len().saturating_sub(limits::DESCRIBED);
        if left_out > 0 {
            front.insert("items_left_out".into(), left_out.into());
        }
        // Of one item at a time there is a second tree, with values of about the same size.
        let types = self.arrays.iter().take(limits::DESCRIBED).map(|item| item.array.dtype.memory_usage());
        memory.reserve(types.max().unwrap_or(0) as u64)?;
        let items = self.arrays.iter().take(limits::DESCRIBED).map(|item| {
            let written =
                item.array.chunks.as_ref().ok().filter(|_| item.reason().is_none()).map(|chunks| &chunks.written);
            let is_sharded = written.is_some_and(|written| !written.shards.is_empty());
            let own = Own {
                chunks: written.map(|written| &*written.chunk),
                shards: item.array.keys.as_ref().filter(|_| is_sharded).map(|keys| &*keys.chunk),
                dimension_names: item.array.dimension_names.as_ref().map(zarr::Json::to_serde),
                reason: item.reason(),
            };
            let size = item.fixed().and_then(|fixed| item.array.count()?.checked_mul(fixed.size()));
            let size = size.filter(|_| written.is_some());
            let info = ItemInfo { stored_size: self.stored_size(item), ..self.info(item) };
            let in_zip = self.files.store.zip().map(|_| "crc32");
            let checksum = written.and_then(|written| written.checksum.or(in_zip));
            let dtype = Some(item.array.dtype.to_serde()).filter(|_| item.array.is_sized());
            Item::of(item.path.as_bytes(), paths.path(item.node), size, info, own)
                .with_checksum(checksum)
                .with_names(dtype, self.codec_name(item))
        });
        describe::document(&front, items, &described_tables(described), memory)
    }

    fn overview(&self, paths: &Paths<Entry<File>>) -> Overview {
        let mut front = Map::new();
        front.insert("version".into(), self.version().into());
        front.insert("consolidated".into(), self.is_consolidated.into());
        let items = self.arrays.iter().map(|item| overview::Item {
            path: paths.path(item.node),
            size: item.fixed().and_then(|fixed| item.array.count()?.checked_mul(fixed.size())),
            info: self.info(item),
            error: item.reason().map(str::to_owned),
            ..overview::Item::default()
        });
        Overview { format: NAME, contents: Contents::Items { front, items: items.collect() } }
    }

    fn frames(&self, folder: NodeIndex) -> Option<FrameNames> {
        let (_, Pictures { count, .. }) = self.pictures_in(folder)?;
        Some(FrameNames { count, suffix: ".png" })
    }

    fn frame(&self, folder: NodeIndex, number: u64) -> View {
        let picture = || {
            let (grid, Pictures { height, width, channels, depth, .. }) = self.pictures_in(folder)?;
            let size = u64::from(height) * u64::from(width) * u64::from(channels) * u64::from(depth);
            let pixels = Data::Rendered(grid.clone());
            Png::new(pixels, number.checked_mul(size)?, width, height, channels, depth)
        };
        picture().map_or_else(View::default, Png::view)
    }

    fn computed(&self, reader: &ReadContext, folder: NodeIndex, name: &str) -> Result<Option<u64>, Fault> {
        self.raw_of(folder).map_or(Ok(None), |item| raw::look_up(item, reader, name))
    }

    fn computed_from(
        &self,
        reader: &ReadContext,
        folder: NodeIndex,
        from: u64,
        each: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        self.raw_of(folder).map_or(Ok(()), |item| raw::list(item, reader, from, each))
    }

    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        self.files.store.misnamed(reader)
    }

    fn computed_name(&self, folder: NodeIndex, number: u64) -> Option<String> {
        raw::name(self.raw_of(folder)?, number)
    }

    fn computed_view(&self, reader: &ReadContext, folder: NodeIndex, number: u64) -> Result<View, Fault> {
        self.raw_of(folder).map_or_else(|| Ok(View::default()), |item| raw::view(item, reader, number))
    }

    fn attributes(&self, node: NodeIndex) -> Option<NodeIndex> {
        self.attached.document_of(node)
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn stored_name(&self, node: NodeIndex) -> Option<&[u8]> {
        self.long_names.get(&node).map(AsRef::as_ref)
    }

    fn attribute_values(&self, node: NodeIndex) -> Option<&Attributes> {
        self.attached.values_of(node)
    }

    fn are_rows(&self, file: File) -> bool {
        matches!(file, File::Values(_))
    }

    fn block_name(&self, block: u32) -> String {
        self.files.store.zip().map_or_else(String::new, |zip| zip.members().name(block))
    }

    fn memory_usage(&self) -> usize {
        self.files.memory_usage() + self.memory_usage
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn item_info(&self, file: File) -> Option<ItemInfo> {
        match file {
            File::Elements(number) | File::Unreadable(number) | File::Values(number) => {
                self.get(number).map(|item| self.info(item))
            }
            File::Rows(number, Form::TextLines) => self.get(number).map(|item| self.info(item)),
            // A single text, or the bytes of several texts.
            File::Rows(number, Form::Joined) if self.get(number).is_some_and(|item| item.shape().is_empty()) => {
                self.get(number).map(|item| self.info(item))
            }
            File::Rows(..) | File::Offsets(_) | File::Attributes(_) => self.array(file).map(ItemInfo::from),
        }
    }
}
