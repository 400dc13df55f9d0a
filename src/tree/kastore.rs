//! kastore and KAST: an array for each key, and text views of texts in a tree sequence (`docs/TREE.md`, section 5).

mod metadata;
mod packed;
mod rows;
mod schema;
mod tables;
mod tree_sequence;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Content, Entry, HEAP, ItemInfo, Table,
    describe::{self, Item},
    descriptor::{Format, keep},
    overview::{self, Contents, Overview},
    paths::{Builder, NodeIndex, Paths, ROOT},
    tables::described_tables,
};
use crate::{
    cache::Buffer,
    format::{
        kast::{self, Kast},
        kastore::{self, Kastore},
    },
    source::{Memory, Source, SourceError},
    view::{Array, Data, Fault, ReadContext, View, parquet::Parquet},
};
use rows::Rows;
use tree_sequence::Text;

/// kastore, including tskit's `.trees`.
pub static KASTORE: Format = Format {
    name: "kastore",
    title: "kastore",
    summary: "arrays, and tree sequences of tskit",
    suffixes: &[".kas", ".trees"],
    recognise: |front| front.by_magic(&kastore::SIGNATURE, kastore::HEADER),
    probe: |source, _, _| kastore::probe(source),
    open: |reader, _, memory| {
        let source = &*reader.source;
        Ok(Arc::new(open_kastore(source, kastore::parse_within(source, memory)?)?))
    },
    fixtures: &["arrays.kas", "tree_sequence.trees"],
    ..Format::DEFAULT
};

/// The KAST draft. Several unrelated formats begin with the same letters, so a file is claimed only by rules that they
/// all fail (`docs/formats/kast.md` 5), and is not reported otherwise.
pub static KAST: Format = Format {
    name: "kast",
    title: "KAST",
    summary: "arrays of the KAST draft",
    suffixes: &[".kast"],
    recognise: kast::recognise,
    probe: |source, _, memory| keep(memory, kast::parse_within(source, memory)),
    open: |reader, _, memory| {
        let parsed = memory.parsed(|memory| kast::parse_within(&*reader.source, memory))?;
        Ok(Arc::new(open_kast(parsed)))
    },
    fixtures: &["table.kast"],
    ..Format::DEFAULT
};

/// What a file of these containers shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    /// The array of an item.
    Array(u32),
    /// The bytes of an item, as text.
    Text(u32),
    /// Rows of text, by their number in `Arrays::rows`.
    Rows(u32),
}

/// All items of all stores.
pub(super) struct Arrays {
    format: &'static str,
    /// Everything of `container.json` except the items.
    front: Map<String, Value>,
    items: Vec<kastore::Item>,
    /// The node of each item's array.
    nodes: Vec<NodeIndex>,
    /// If there are several stores, the store of each item.
    store_of: Vec<usize>,
    rows: Vec<Arc<Rows>>,
    tables: Vec<tables::Plan>,
    warnings: Vec<String>,
}

impl Arrays {
    fn new(format: &'static str, front: Value) -> Self {
        let front = if let Value::Object(front) = front { front } else { serde_json::Map::new() };
        Self {
            format,
            front,
            items: vec![],
            nodes: vec![],
            store_of: vec![],
            rows: vec![],
            tables: vec![],
            warnings: vec![],
        }
    }

    /// Adds the arrays of one store below a folder. Returns the number of its first item.
    fn add(&mut self, builder: &mut Builder<Entry<File>>, top: NodeIndex, items: Vec<kastore::Item>) -> usize {
        let first = self.items.len();
        for item in items {
            let (folder, part) = builder.folders_of(top, &item.key, &[]);
            let number = self.items.len() as u32;
            self.nodes.push(builder.file(folder, part, ".npy", Entry::Of(File::Array(number))));
            self.items.push(item);
        }
        first
    }

    /// Adds the text views of a store that is a tree sequence. Returns whether it is one.
    fn add_texts(
        &mut self,
        source: &dyn Source,
        builder: &mut Builder<Entry<File>>,
        top: NodeIndex,
        first: usize,
    ) -> Result<bool, SourceError> {
        let texts = tree_sequence::texts(source, &self.items[first..])?;
        self.warnings.extend(texts.warnings);
        for (text, suffix, number) in texts.views {
            let number = first + number;
            let key = self.items[number].key.clone();
            let file = match text {
                Text::Whole => File::Text(number as u32),
                Text::Rows { offsets, empty } => {
                    let (data, offsets) = (self.items[number].data.clone(), &self.items[first + offsets]);
                    let Some(rows) = Rows::new(source, data, offsets.data.clone(), offsets.dtype, empty)? else {
                        let key = String::from_utf8_lossy(&key);
                        self.warnings.push(format!("{key}: its offsets are not sound, so there is no {suffix} view"));
                        continue;
                    };
                    self.rows.push(Arc::new(rows));
                    File::Rows(self.rows.len() as u32 - 1)
                }
            };
            let (folder, part) = builder.folders_of(top, &key, &[]);
            builder.file(folder, part, suffix, Entry::Of(file));
        }
        Ok(texts.is_tree_sequence)
    }

    /// Adds the tables of a store.
    fn add_tables(&mut self, builder: &mut Builder<Entry<File>>, top: NodeIndex, first: usize, is_tree_sequence: bool) {
        let time_units = tables::time_units(&self.items, first).filter(|_| is_tree_sequence);
        for (group, numbers) in tables::groups(&self.items, first, is_tree_sequence) {
            let (folder, part) = builder.folders_of(top, &group, &[]);
            let place = (folder, part.to_vec());
            if let Some(mut plan) = tables::Plan::of(&self.items, &numbers, is_tree_sequence, place) {
                plan.time_units = time_units;
                self.tables.push(plan);
            }
        }
    }

    /// Finds out how the metadata of all tables are stored.
    fn read_schemas(&mut self, source: &dyn Source) -> Result<(), SourceError> {
        self.tables.iter_mut().try_for_each(|plan| plan.read_schema(source, &self.items))
    }
}

/// Returns the tree of a kastore file.
///
/// # Errors
/// [`SourceError`] if the text columns' offsets or the schemas of metadata cannot be read.
fn open_kastore(source: &dyn Source, file: Kastore) -> Result<Table<Arrays>, SourceError> {
    let several = file.stores.len() > 1;
    let versions = file.stores.iter().map(|store| {
        let (major, minor) = store.version;
        json!({"version": format!("{major}.{minor}"), "file_size": store.range.end - store.range.start,
               "num_items": store.items.len()})
    });
    let mut arrays = Arrays::new(
        KASTORE.name,
        json!({
            "format": KASTORE.name,
            "version": file.stores.first().map(|store| format!("{}.{}", store.version.0, store.version.1)),
            "stores": versions.collect::<Vec<_>>(),
        }),
    );
    let mut builder = Builder::default();
    for (number, store) in file.stores.into_iter().enumerate() {
        let top = if several { builder.folder(ROOT, &number.to_string()) } else { ROOT };
        let first = arrays.add(&mut builder, top, store.items);
        if several {
            arrays.store_of.resize(arrays.items.len(), number);
        }
        let is_tree_sequence = arrays.add_texts(source, &mut builder, top, first)?;
        arrays.add_tables(&mut builder, top, first, is_tree_sequence);
    }
    arrays.read_schemas(source)?;
    if let Some((bytes, error)) = file.trailing {
        arrays.front.insert("trailing_bytes".into(), bytes.into());
        arrays.warnings.push(format!("the last {bytes} bytes are no store: {error}"));
    }
    Ok(Table::new(builder, arrays))
}

/// Returns the tree of the items of one store, whose bytes are those of `source`. `front` is everything of
/// `container.json` except the items.
///
/// # Errors
/// As [`open_kastore`].
pub(super) fn open_items(
    format: &'static str,
    front: Value,
    source: &dyn Source,
    items: Vec<kastore::Item>,
) -> Result<Table<Arrays>, SourceError> {
    let (mut arrays, mut builder) = (Arrays::new(format, front), Builder::default());
    arrays.add(&mut builder, ROOT, items);
    let is_tree_sequence = arrays.add_texts(source, &mut builder, ROOT, 0)?;
    arrays.add_tables(&mut builder, ROOT, 0, is_tree_sequence);
    arrays.read_schemas(source)?;
    Ok(Table::new(builder, arrays))
}

/// Returns the tree of a KAST file.
fn open_kast(file: Kast) -> Table<Arrays> {
    let mut arrays = Arrays::new(
        KAST.name,
        json!({
            "format": KAST.name,
            "version": format!("{}.{}", file.version.0, file.version.1),
            "num_items": file.items.len(),
        }),
    );
    if file.trailing > 0 {
        arrays.front.insert("trailing_bytes".into(), file.trailing.into());
    }
    let mut builder = Builder::default();
    arrays.add(&mut builder, ROOT, file.items);
    arrays.add_tables(&mut builder, ROOT, 0, false);
    Table::new(builder, arrays)
}

impl Content for Arrays {
    type File = File;

    fn array(&self, file: File) -> Option<Array> {
        let File::Array(number) = file else { return None };
        let item = self.items.get(number as usize)?;
        Some(Array::new(item.dtype, [item.count], View::stored(item.data.clone())))
    }

    fn view(&self, file: File) -> View {
        match file {
            File::Array(_) => self.array(file).map_or_else(View::default, Array::npy),
            File::Text(number) => View::stored(self.items[number as usize].data.clone()),
            File::Rows(number) => {
                let rows = &self.rows[number as usize];
                View::default().with(rows.size(), Data::Rendered(rows.clone()))
            }
        }
    }

    fn tables(&self) -> Vec<(NodeIndex, Vec<u8>)> {
        self.tables.iter().map(|table| (table.folder, table.part.clone())).collect()
    }

    fn table(&self, reader: &ReadContext, number: u32, memory: &dyn Memory) -> Result<Parquet, Fault> {
        self.lay_out(reader, number, memory)
    }

    fn describe(
        &self,
        _: &ReadContext,
        paths: &Paths<Entry<File>>,
        tables: &[NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault> {
        /// The number of its store, if there are several.
        #[derive(Serialize)]
        struct Own {
            #[serde(skip_serializing_if = "Option::is_none")]
            store: Option<usize>,
        }
        let items = (0..).zip(&self.items).zip(&self.nodes).map(|((number, item), &node)| {
            let info = self.item_info(File::Array(number)).unwrap_or_default();
            let own = Own { store: self.store_of.get(number as usize).copied() };
            Item::of(&item.key, paths.path(node), info.stored_size, info, own)
        });
        let tables = self.tables.iter().zip(tables).map(|(table, &node)| table.described(paths.path(node)));
        describe::document(&self.front, items, &described_tables(tables.collect()), memory)
    }

    fn overview(&self, paths: &Paths<Entry<File>>) -> Overview {
        let items = (0..).zip(&self.nodes).map(|(number, &node)| {
            let info = self.item_info(File::Array(number)).unwrap_or_default();
            overview::Item { path: paths.path(node), size: info.stored_size, info, ..overview::Item::default() }
        });
        let contents = Contents::Items { front: self.front.clone(), items: items.collect() };
        Overview { format: self.format, contents }
    }

    fn memory_usage(&self) -> usize {
        let items = self.items.iter().map(|item| size_of_val(item) + item.key.len() + HEAP + size_of::<NodeIndex>());
        items.sum::<usize>() + self.tables.iter().map(tables::Plan::memory_usage).sum::<usize>()
    }

    fn block_name(&self, block: u32) -> String {
        self.items.get(block as usize).map_or_else(String::new, |item| String::from_utf8_lossy(&item.key).into_owned())
    }

    fn item_info(&self, file: File) -> Option<ItemInfo> {
        let array = self.array(file)?;
        Some(ItemInfo { codec: Some("none".into()), stored_size: Some(array.data.size()), ..array.into() })
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        self.unsound_offsets(&*reader.source)
    }
}
