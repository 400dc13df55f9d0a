//! NetCDF classic files: variables as arrays, texts and pictures, and their attributes (`docs/TREE.md`, section 14).

use std::{borrow::Cow, collections::HashSet, ops::Range, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::{
    Content, Entry, FrameNames, ItemInfo, Table,
    attributes::{Attached, Owner, Shows},
    describe::{self, Item},
    descriptor::{Format, keep},
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
    rows::{FixedTexts, Form, Padding, RowFiles},
};
use crate::{
    cache::{BlockError, Buffer},
    format::{
        DType,
        netcdf::{self, Attribute, Kind, NetCdf, Place, Values, Variable},
    },
    limits,
    source::{Memory, SourceError},
    view::{
        Array, Data, Fault, ReadContext, Rendered, Strided, View,
        attributes::{Attributes, Value},
        npy,
        png::Png,
    },
};

/// NetCDF classic, grids of climate and weather. HDF5 and others have its suffixes, too.
pub static NETCDF: Format = Format {
    name: "netcdf",
    title: "NetCDF classic",
    summary: "grids of climate and weather",
    shared_suffixes: &netcdf::SUFFIXES,
    recognise: netcdf::recognise,
    probe: |source, _, memory| keep(memory, netcdf::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| netcdf::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(open(parsed, reader)))
    },
    fixtures: &["weather.nc"],
    ..Format::DEFAULT
};

/// Largest height and width of a picture.
const SIDE: u64 = 65_535;

/// The content of a file in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    /// The elements of a variable, by its number.
    Variable(u32),
    /// One text.
    Text(u32),
    /// Several texts: one on each line, or joined.
    Texts(u32, Form),
    /// Where each of several texts begins.
    Offsets(u32),
    /// Attributes.
    Attributes(Shows),
}

/// How a variable is shown.
enum Shown {
    Numbers(DType),
    Text,
    /// Texts of this many bytes.
    Texts(u64),
    /// The stored bytes, because there are more dimensions than an array can have.
    Stored,
}

/// A file's variables, and their nodes.
pub(super) struct Variables {
    found: NetCdf,
    /// The first file of each variable.
    nodes: Vec<NodeIndex>,
    attached: Attached,
    /// The number of attributes' documents, which come first.
    documents: u32,
    /// The folders of pictures, in order, each with its variable.
    pictures: Vec<(NodeIndex, u32)>,
    /// Bytes in the file.
    length: u64,
}

/// Returns the tree of a file.
fn open(found: NetCdf, reader: &ReadContext) -> Table<Variables> {
    let mut builder = Builder::default();
    let mut nodes = Vec::new();
    for (number, variable) in (0..).zip(&found.variables) {
        let suffix = suffix(&found, variable);
        let file = if suffix == ".txt" { File::Text(number) } else { File::Variable(number) };
        nodes.push(builder.file(ROOT, &variable.name, suffix, Entry::Of(file)));
    }
    let (mut attached, mut documents) = (Attached::default(), 0);
    let mut pictures = Vec::new();
    for (number, variable) in (0u32..).zip(&found.variables) {
        let texts = |form| Entry::Of(File::Texts(number, form));
        if let Shown::Texts(_) = shown(&found, variable) {
            let node = nodes[number as usize];
            builder.beside(node, &variable.name, [".npy", ".jsonl"], texts(Form::TextLines));
            let folder = builder.free_folder(ROOT, &variable.name);
            builder.file(folder, b"offsets", ".npy", Entry::Of(File::Offsets(number)));
            builder.file(folder, b"utf8", ".bin", texts(Form::Joined));
        }
        if pictures_of(&found, variable).is_some() {
            pictures.push((builder.free_folder(ROOT, &variable.name), number));
        }
    }
    let mut attach = |builder: &mut Builder<Entry<File>>, owner, stored: &[Attribute]| {
        documents += u32::from(!stored.is_empty());
        attached.add(builder, owner, attributes(stored), |shows| Entry::Of(File::Attributes(shows)));
    };
    for (variable, node) in found.variables.iter().zip(&nodes) {
        let suffix = suffix(&found, variable);
        attach(&mut builder, Owner::Array(*node, &variable.name, suffix), &variable.attributes);
    }
    attach(&mut builder, Owner::Group(ROOT), &found.attributes);
    let length = reader.source.len();
    Table::new(builder, Variables { found, nodes, attached, documents, pictures, length })
}

/// Returns attributes as they are shown. If a name occurs twice, the first counts.
fn attributes(stored: &[Attribute]) -> Attributes {
    let mut seen = HashSet::new();
    let first = stored.iter().filter(|attribute| seen.insert(&attribute.name));
    let value = |values: &Values| match values {
        Values::Text(text) => Value::Text(text.clone()),
        Values::Numbers(dtype, count, at) => {
            let shape = if *count == 1 { vec![] } else { vec![*count] };
            let size = count * dtype.size();
            let data = View::default().with_rendered(size, Strided::one(*at..*at + size, dtype.size()));
            Value::Array(Array::new(*dtype, shape, data))
        }
    };
    first.map(|attribute| (attribute.name.clone(), value(&attribute.values))).collect()
}

fn shown(found: &NetCdf, variable: &Variable) -> Shown {
    match (variable.kind, variable.dimensions.len()) {
        (_, rank) if rank > limits::DIMENSIONS => Shown::Stored,
        (Kind::Number(dtype), _) => Shown::Numbers(dtype),
        (Kind::Char, 0 | 1) => Shown::Text,
        (Kind::Char, _) => Shown::Texts(found.shape(variable).last().copied().unwrap_or(0)),
    }
}

/// Returns the suffix of the first file of a variable.
fn suffix(found: &NetCdf, variable: &Variable) -> &'static str {
    match shown(found, variable) {
        Shown::Numbers(_) | Shown::Texts(_) => ".npy",
        Shown::Text => ".txt",
        Shown::Stored => ".bin",
    }
}

/// Returns height, width, channels and bytes of a channel, if a variable is shown as pictures (`docs/TREE.md`, section
/// 2).
fn pictures_of(found: &NetCdf, variable: &Variable) -> Option<(u32, u32, u8, u8)> {
    const NAMES: [&str; 8] = ["rgb", "depth", "video", "image", "img", "cam", "mask", "images"];
    let Shown::Numbers(dtype) = shown(found, variable) else { return None };
    let name = String::from_utf8_lossy(&variable.name).to_ascii_lowercase();
    let says_so = || NAMES.iter().any(|known| name.contains(known));
    let shape = found.shape(variable);
    let (channels, depth) = match (dtype, &*shape) {
        (DType::U8, [_, _, _, channels @ (1 | 3 | 4)]) => (*channels as u8, 1),
        (DType::U8, [_, _, width]) if *width > 4 && says_so() => (1, 1),
        (DType::U16, [_, _, width]) if *width > 4 && says_so() => (1, 2),
        _ => return None,
    };
    let &[steps, height, width, ..] = &*shape else { return None };
    let side = 1..=SIDE;
    ((1..=limits::PICTURES).contains(&steps) && side.contains(&height) && side.contains(&width)).then_some((
        height as u32,
        width as u32,
        channels,
        depth,
    ))
}

/// The keys of `items` that only NetCDF has.
#[derive(Serialize)]
struct Own<'a> {
    dimensions: Vec<Cow<'a, str>>,
    layout: &'static str,
}

impl Variables {
    fn variable(&self, number: u32) -> Option<&Variable> {
        self.found.variables.get(number as usize)
    }

    /// Returns the elements of a variable as they are shown, or its stored bytes.
    fn elements(&self, number: u32, variable: &Variable) -> View {
        let (place, size) = (variable.place, variable.size);
        let swap = match shown(&self.found, variable) {
            Shown::Numbers(dtype) => dtype.size(),
            Shown::Text | Shown::Texts(_) | Shown::Stored => 1,
        };
        let end = place.start.checked_add(size).filter(|end| *end <= self.length);
        match end {
            Some(end) if swap == 1 && place.width == size => View::stored(place.start..end),
            _ => View::default().with_rendered(size, stored(number, variable, swap)),
        }
    }

    /// Returns the texts of a variable, or its one text.
    fn texts(&self, number: u32) -> Option<RowFiles> {
        let variable = self.variable(number)?;
        let width = if let Shown::Texts(width) = shown(&self.found, variable) { width } else { variable.size };
        let texts = FixedTexts::new(self.elements(number, variable), width, Padding::Nuls);
        // The numbers of container.json and of the attributes' documents come first; then each variable has two.
        Some(RowFiles::new(texts, u64::from(self.documents) + 1 + 2 * u64::from(number)))
    }

    /// Returns the type of a variable in `container.json`.
    fn type_name(&self, variable: &Variable) -> Cow<'static, str> {
        match (shown(&self.found, variable), variable.kind) {
            (Shown::Text, _) | (Shown::Stored, Kind::Char) => "text".into(),
            (Shown::Texts(width), _) => format!("text[{width}]").into(),
            (Shown::Numbers(dtype), _) | (Shown::Stored, Kind::Number(dtype)) => dtype.descr(),
        }
    }

    fn info(&self, variable: &Variable) -> ItemInfo {
        ItemInfo {
            dtype: if let Kind::Number(dtype) = variable.kind { Some(dtype.into()) } else { None },
            stored_type: match shown(&self.found, variable) {
                Shown::Text | Shown::Texts(_) => Some("text"),
                Shown::Numbers(_) | Shown::Stored => None,
            },
            shape: Some(self.found.shape(variable)),
            codec: Some("none".into()),
            stored_size: Some(variable.size),
            ..ItemInfo::default()
        }
    }

    fn front(&self) -> Map<String, Json> {
        let mut front = Map::new();
        front.insert("format".into(), NETCDF.name.into());
        front.insert("version".into(), self.found.version.into());
        let dimensions = self.found.dimensions.iter().map(|dimension| {
            let name = String::from_utf8_lossy(&dimension.name);
            match dimension.is_unlimited {
                true => json!({"name": name, "length": dimension.length, "unlimited": true}),
                false => json!({"name": name, "length": dimension.length}),
            }
        });
        front.insert("dimensions".into(), dimensions.collect());
        front
    }
}

fn stored(number: u32, variable: &Variable, swap: u64) -> Stored {
    let Place { start, stride, width } = variable.place;
    Stored { number, values: Strided { start, stride, width, swap } }
}

/// Values of a variable that may reach past the end of the file. A read there fails as any other of the variable does.
#[derive(Debug)]
struct Stored {
    number: u32,
    values: Strided,
}

impl Rendered for Stored {
    fn is_copy(&self) -> bool {
        true
    }

    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.values.fill(reader, part, out).map_err(|fault| match &*fault.error {
            BlockError::Source(SourceError::OutOfRange { len, .. }) => {
                let reason = format!("the file of {len} bytes ends before the last of these values");
                let error = Arc::new(BlockError::Refused(reason));
                Fault { block: Some(self.number), offset: *len, error }
            }
            _ => fault,
        })
    }
}

impl Content for Variables {
    type File = File;

    fn array(&self, file: File) -> Option<Array> {
        match file {
            File::Variable(number) => {
                let variable = self.variable(number)?;
                let Shown::Numbers(dtype) = shown(&self.found, variable) else { return None };
                Some(Array::new(dtype, self.found.shape(variable), self.elements(number, variable)))
            }
            File::Attributes(shows) => self.attached.array(shows),
            File::Offsets(number) => self.texts(number).map(|texts| texts.offsets(1)),
            File::Text(_) | File::Texts(..) => None,
        }
    }

    fn view(&self, file: File) -> View {
        let File::Variable(number) = file else { return self.array(file).map_or_else(View::default, Array::npy) };
        let Some(variable) = self.variable(number) else { return View::default() };
        match shown(&self.found, variable) {
            Shown::Numbers(_) => self.array(file).map_or_else(View::default, Array::npy),
            Shown::Texts(width) => {
                let mut shape = self.found.shape(variable);
                shape.pop();
                let header = npy::header_of(&format!("|S{width}"), &shape);
                View::inline(header).followed_by(self.elements(number, variable))
            }
            Shown::Text | Shown::Stored => self.elements(number, variable),
        }
    }

    fn made(&self, reader: &ReadContext, _: &Paths<Entry<File>>, file: File) -> Result<Option<View>, Fault> {
        let (number, form) = match file {
            File::Attributes(shows) => return self.attached.view(reader, shows, 1).map(Some),
            File::Variable(_) | File::Offsets(_) => return Ok(None),
            File::Text(number) => (number, Form::Joined),
            File::Texts(number, form) => (number, form),
        };
        self.texts(number).map(|texts| texts.view(reader, form)).transpose()
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<File>>,
        _: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        let mut front = self.front();
        let left_out = self.found.variables.len().saturating_sub(limits::DESCRIBED);
        if left_out > 0 {
            front.insert("items_left_out".into(), left_out.into());
        }
        let variables = self.found.variables.iter().zip(&self.nodes).take(limits::DESCRIBED);
        let items = variables.map(|(variable, node)| {
            let names = self.found.dimensions_of(variable).map(|dimension| String::from_utf8_lossy(&dimension.name));
            let layout = if variable.is_record { "records" } else { "contiguous" };
            let own = Own { dimensions: names.collect(), layout };
            Item::of(&variable.name, paths.path(*node), Some(variable.size), self.info(variable), own)
                .with_names(Some(self.type_name(variable).into()), "none".into())
        });
        describe::document(&front, items, &Map::new(), memory)
    }

    fn overview(&self, paths: &Paths<Entry<File>>) -> Overview {
        let mut front = Map::new();
        front.insert("version".into(), self.found.version.into());
        let dimensions = self.found.dimensions.iter().map(|dimension| {
            let more = if dimension.is_unlimited { ", unlimited" } else { "" };
            format!("{} ({}{more})", String::from_utf8_lossy(&dimension.name), dimension.length)
        });
        front.insert("dimensions".into(), dimensions.collect::<Vec<_>>().join(", ").into());
        let items = self.found.variables.iter().zip(&self.nodes).map(|(variable, node)| overview::Item {
            path: paths.path(*node),
            size: Some(variable.size),
            info: self.info(variable),
            ..overview::Item::default()
        });
        Overview { format: NETCDF.name, contents: Contents::Items { front, items: items.collect() } }
    }

    fn frames(&self, folder: NodeIndex) -> Option<FrameNames> {
        let at = self.pictures.binary_search_by_key(&folder, |(folder, _)| *folder).ok()?;
        let variable = self.variable(self.pictures.get(at)?.1)?;
        Some(FrameNames { count: *self.found.shape(variable).first()?, suffix: ".png" })
    }

    fn frame(&self, folder: NodeIndex, number: u64) -> View {
        let picture = || {
            let at = self.pictures.binary_search_by_key(&folder, |(folder, _)| *folder).ok()?;
            let of = self.pictures.get(at)?.1;
            let variable = self.variable(of)?;
            let (height, width, channels, depth) = pictures_of(&self.found, variable)?;
            let size = u64::from(height) * u64::from(width) * u64::from(channels) * u64::from(depth);
            let pixels = Data::Rendered(Arc::new(stored(of, variable, depth.into())));
            Png::new(pixels, number.checked_mul(size)?, width, height, channels, depth)
        };
        picture().map_or_else(View::default, Png::view)
    }

    fn block_name(&self, number: u32) -> String {
        self.variable(number).map_or_else(String::new, |variable| String::from_utf8_lossy(&variable.name).into_owned())
    }

    fn attributes(&self, node: NodeIndex) -> Option<NodeIndex> {
        self.attached.document_of(node)
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn stored_name(&self, node: NodeIndex) -> Option<&[u8]> {
        // Each variable's file was added behind the one before.
        let number = self.nodes.binary_search(&node).ok()?;
        Some(&self.variable(number as u32)?.name)
    }

    fn attribute_values(&self, node: NodeIndex) -> Option<&Attributes> {
        self.attached.values_of(node)
    }

    fn memory_usage(&self) -> usize {
        // Twice, because attributes are also kept as values with their names.
        2 * self.found.memory_usage() + self.nodes.capacity() * size_of::<NodeIndex>()
    }

    fn item_info(&self, file: File) -> Option<ItemInfo> {
        match file {
            File::Variable(number) | File::Text(number) | File::Texts(number, Form::TextLines) => {
                self.variable(number).map(|variable| self.info(variable))
            }
            _ => self.array(file).map(ItemInfo::from),
        }
    }
}
