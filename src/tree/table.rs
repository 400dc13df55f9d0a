//! Containers whose items are all known when they are opened: a table of paths, and what each file shows.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    Child, Container, ItemInfo, NodeId, NodeKind, Overview, Timeline, WorkingMemory, describe, overview,
    paths::{self, Builder, Kind, Paths},
    tables,
};
use crate::{
    cache::Buffer,
    source::{Memory, SourceError},
    view::{Array, Fault, ReadContext, View, attributes::Attributes, parquet::Parquet},
};

/// What a format adds to the table of its paths, if all its items are known.
pub trait Content: Send + Sync + 'static {
    /// What a file of the table shows.
    type File: Copy + Send + Sync;

    /// Returns the array that a file shows, if it shows one.
    fn array(&self, file: Self::File) -> Option<Array>;

    /// Returns the bytes of a file.
    fn view(&self, file: Self::File) -> View;

    /// Returns the bytes of a file that has to be made before its size is known; `None` for all others.
    ///
    /// # Errors
    /// [`Fault`] if it needs bytes that cannot be read.
    fn made(
        &self,
        reader: &ReadContext,
        paths: &Paths<Entry<Self::File>>,
        file: Self::File,
    ) -> Result<Option<View>, Fault> {
        let _ = (reader, paths, file);
        Ok(None)
    }

    /// Returns the bytes of `container.json`. `tables` are the nodes of the tables.
    ///
    /// # Errors
    /// `ENOMEM`, or if what a table needs cannot be read.
    fn describe(
        &self,
        reader: &ReadContext,
        paths: &Paths<Entry<Self::File>>,
        tables: &[paths::NodeIndex],
        memory: &dyn Memory,
    ) -> Result<Buffer, Fault>;

    /// Returns the tables in order of their numbers: the folder of each, and its stored name.
    fn tables(&self) -> Vec<(paths::NodeIndex, Vec<u8>)> {
        Vec::new()
    }

    /// Lays out the table of a number, with memory reserved from `memory`.
    ///
    /// # Errors
    /// [`Fault`] if its size depends on something that cannot be read.
    fn table(&self, reader: &ReadContext, number: u32, memory: &dyn Memory) -> Result<Parquet, Fault> {
        let _ = (reader, number, memory);
        // Without tables there is no number of one.
        Err(SourceError::Changed.into())
    }

    /// See [`Container::overview`].
    fn overview(&self, paths: &Paths<Entry<Self::File>>) -> Overview;

    /// Returns the bytes of memory that an overview takes without its items: what it says of the whole container.
    fn front_memory(&self) -> u64 {
        overview::LEAST
    }

    /// Returns the pictures of a folder: numbered, made of the elements of an array, and not in the table.
    fn frames(&self, folder: paths::NodeIndex) -> Option<FrameNames> {
        let _ = folder;
        None
    }

    /// Returns the bytes of one of them.
    fn frame(&self, folder: paths::NodeIndex, number: u64) -> View {
        let _ = (folder, number);
        View::default()
    }

    /// Returns the number of a file that is in a folder and not in the table, such as a stored chunk, by its name.
    ///
    /// # Errors
    /// [`Fault`] if the answer needs bytes that cannot be read.
    fn computed(&self, reader: &ReadContext, folder: paths::NodeIndex, name: &str) -> Result<Option<u64>, Fault> {
        let _ = (reader, folder, name);
        Ok(None)
    }

    /// Passes the numbers of such files of a folder to `each`, from a position on, until it breaks. Each comes with the
    /// next position.
    ///
    /// # Errors
    /// As [`Self::computed`].
    fn computed_from(
        &self,
        reader: &ReadContext,
        folder: paths::NodeIndex,
        from: u64,
        each: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let _ = (reader, folder, from, each);
        Ok(())
    }

    /// Returns the name of a file of [`Self::computed`]; `None` for a number that is none.
    fn computed_name(&self, folder: paths::NodeIndex, number: u64) -> Option<String> {
        let _ = (folder, number);
        None
    }

    /// Returns the bytes of a file of [`Self::computed`].
    ///
    /// # Errors
    /// As [`Self::computed`].
    fn computed_view(&self, reader: &ReadContext, folder: paths::NodeIndex, number: u64) -> Result<View, Fault> {
        let _ = (reader, folder, number);
        Ok(View::default())
    }

    /// Returns the file of the attributes of a folder or file, if it has some.
    fn attributes(&self, node: paths::NodeIndex) -> Option<paths::NodeIndex> {
        let _ = node;
        None
    }

    /// Returns the files that [`Container::other_arrays`] names.
    fn other_arrays(&self) -> Vec<paths::NodeIndex> {
        Vec::new()
    }

    /// See [`Container::has_groups`].
    fn has_groups(&self) -> bool {
        false
    }

    /// See [`Container::stored_name`].
    fn stored_name(&self, node: paths::NodeIndex) -> Option<&[u8]> {
        let _ = node;
        None
    }

    /// Returns the attributes of a folder or file, with their types.
    fn attribute_values(&self, node: paths::NodeIndex) -> Option<&Attributes> {
        let _ = node;
        None
    }

    /// Returns whether a file has the values of rows of varying length that only a folder shows.
    fn are_rows(&self, file: Self::File) -> bool {
        let _ = file;
        false
    }

    /// Returns a block's stored name; by default there are no names.
    fn block_name(&self, block: u32) -> String {
        let _ = block;
        String::new()
    }

    /// See [`Container::memory_usage`]; without the table. It never changes.
    fn memory_usage(&self) -> usize;

    /// See [`Container::warnings`].
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// See [`Container::has_parts`].
    fn has_parts(&self) -> bool {
        false
    }

    /// See [`Container::joins`].
    fn joins(&self) -> Vec<String> {
        Vec::new()
    }

    /// See [`Container::item_info`].
    fn item_info(&self, file: Self::File) -> Option<ItemInfo> {
        self.array(file).map(ItemInfo::from)
    }

    /// See [`Container::kind_name`].
    fn kind_name(&self) -> Option<&'static str> {
        None
    }

    /// See [`Container::timeline`]; for the container's own folder.
    ///
    /// # Errors
    /// As [`Container::timeline`].
    fn timeline(&self, reader: &ReadContext, paths: &Paths<Entry<Self::File>>) -> Result<Option<Timeline>, Fault> {
        let _ = (reader, paths);
        Ok(None)
    }

    /// See [`Container::verify_rest`].
    ///
    /// # Errors
    /// As [`Container::verify_rest`].
    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        let _ = reader;
        Ok(Vec::new())
    }
}

/// Names of numbered pictures (`docs/TREE.md`, section 2): decimal, padded to at least 3 digits and to the width of the
/// last one.
#[derive(Debug, Clone, Copy)]
pub struct FrameNames {
    /// How many there are.
    pub count: u64,
    /// Their suffix.
    pub suffix: &'static str,
}

impl FrameNames {
    /// Returns the name of a picture.
    pub fn name(self, number: u64) -> String {
        let width = self.count.saturating_sub(1).to_string().len().max(3);
        format!("{number:0width$}{}", self.suffix)
    }

    /// Returns the number of a name, if it is one of these names.
    pub fn number(self, name: &str) -> Option<u64> {
        let number = name.strip_suffix(self.suffix)?.parse().ok().filter(|number| *number < self.count)?;
        (self.name(number) == name).then_some(number)
    }
}

/// A file of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<F> {
    /// `container.json`.
    Description,
    /// A table, by its number.
    Table(u32),
    /// Anything else.
    Of(F),
}

/// A container as a table of paths.
pub struct Table<C: Content> {
    paths: Paths<Entry<C::File>>,
    content: C,
    memory_usage: usize,
    /// The nodes of the tables.
    tables: Vec<paths::NodeIndex>,
}

impl<C: Content> Table<C> {
    /// Closes the table. `container.json` gets another name if a stored item has its name.
    pub fn new(mut builder: Builder<Entry<C::File>>, content: C) -> Self {
        builder.file(paths::ROOT, b"container", ".json", Entry::Description);
        let tables = (0..).zip(content.tables());
        let tables: Vec<_> = tables
            .map(|(number, (folder, part))| builder.file(folder, &part, tables::SUFFIX, Entry::Table(number)))
            .collect();
        let paths = builder.finish();
        let memory_usage = paths.memory_usage() + content.memory_usage();
        Self { paths, content, memory_usage, tables }
    }

    /// Returns what the format adds to the paths, for containers that show parts of this one.
    pub fn content(&self) -> &C {
        &self.content
    }

    /// Returns the number of the table that a node is.
    fn table_of(&self, node: NodeId) -> Option<u32> {
        match self.paths.kind(Self::number(node))? {
            Kind::File(Entry::Table(number)) if Self::frame_of(node).is_none() => Some(number),
            _ => None,
        }
    }

    fn table(&self, reader: &ReadContext, number: u32) -> Result<Arc<Parquet>, Fault> {
        tables::laid_out(reader, number.into(), |memory| self.content.table(reader, number, memory))
    }

    /// Returns what a file of the table shows; `None` for folders, pictures and `container.json`.
    fn stored(&self, node: NodeId) -> Option<C::File> {
        match self.paths.kind(Self::number(node))? {
            Kind::File(Entry::Of(file)) => Some(file),
            Kind::File(Entry::Description | Entry::Table(_)) | Kind::Folder => None,
        }
    }

    /// Returns the file of values, if a folder shows rows of varying length.
    fn rows_in(&self, folder: paths::NodeIndex) -> Option<(paths::NodeIndex, C::File)> {
        let Kind::Folder = self.paths.kind(folder)? else { return None };
        let values = self.paths.lookup(folder, "values.npy")?;
        match self.paths.kind(values)? {
            Kind::File(Entry::Of(file)) if self.content.are_rows(file) => Some((values, file)),
            _ => None,
        }
    }

    /// Returns a node's number in this table; larger numbers are no nodes of it.
    fn number(node: NodeId) -> paths::NodeIndex {
        u32::try_from(node.0).unwrap_or(u32::MAX)
    }

    /// Returns the node of a picture: its number, from 1, above the folder's.
    fn frame_node(folder: paths::NodeIndex, number: u64) -> NodeId {
        NodeId((u128::from(number) + 1) << 32 | u128::from(folder))
    }

    /// Returns the folder and number of a picture's node.
    fn frame_of(node: NodeId) -> Option<(paths::NodeIndex, u64)> {
        let number = u64::try_from(node.0 >> 32).ok()?.checked_sub(1)?;
        Some((node.0 as u32, number))
    }
}

impl<C: Content> Container for Table<C> {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let folder = Self::number(folder);
        if let Some(node) = self.paths.lookup(folder, name) {
            return Ok(Some(NodeId(node.into())));
        }
        let found = match self.content.frames(folder) {
            Some(frames) => frames.number(name),
            None => self.content.computed(reader, folder, name)?,
        };
        Ok(found.map(|number| Self::frame_node(folder, number)))
    }

    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let folder = Self::number(folder);
        for (next, name, node) in self.paths.children_from(folder, from) {
            let is_folder = matches!(self.paths.kind(node), Some(Kind::Folder));
            if each(Child { next, name, node: NodeId(node.into()), is_folder }).is_break() {
                return Ok(());
            }
        }
        // Pictures and others come after the children.
        let children = self.paths.count(folder);
        let Some(frames) = self.content.frames(folder) else {
            return self.content.computed_from(reader, folder, from.saturating_sub(children), &mut |next, number| {
                let Some(name) = self.content.computed_name(folder, number) else { return ControlFlow::Continue(()) };
                let node = Self::frame_node(folder, number);
                each(Child { next: children + next, name: &name, node, is_folder: false })
            });
        };
        for number in from.saturating_sub(children)..frames.count {
            let (name, node) = (frames.name(number), Self::frame_node(folder, number));
            let next = children + number + 1;
            if each(Child { next, name: &name, node, is_folder: false }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn repeats_array(&self, _: &ReadContext, folder: NodeId) -> Result<bool, Fault> {
        let folder = Self::number(folder);
        Ok(self.content.frames(folder).is_some() && self.paths.count(folder) == 0)
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        if let Some((folder, number)) = Self::frame_of(node) {
            let is_there = match self.content.frames(folder) {
                Some(frames) => number < frames.count,
                None => self.content.computed_name(folder, number).is_some(),
            };
            return Ok(is_there.then_some(NodeKind::File));
        }
        let node = Self::number(node);
        Ok(self.paths.kind(node).map(|kind| match kind {
            Kind::Folder => NodeKind::Folder { subfolders: Some(self.paths.subfolders(node)) },
            Kind::File(_) => NodeKind::File,
        }))
    }

    fn parent(&self, _: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        Ok(NodeId(match Self::frame_of(node) {
            Some((folder, _)) => folder.into(),
            None => self.paths.parent(Self::number(node)).into(),
        }))
    }

    fn path(&self, _: &ReadContext, node: NodeId) -> Result<String, Fault> {
        if let Some((folder, number)) = Self::frame_of(node) {
            let name = match self.content.frames(folder) {
                Some(frames) => Some(frames.name(number)),
                None => self.content.computed_name(folder, number),
            };
            let name = name.unwrap_or_default();
            return Ok(format!("{}/{name}", self.paths.path(folder)));
        }
        Ok(self.paths.path(Self::number(node)))
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        if let Some((folder, number)) = Self::frame_of(file) {
            return match self.content.frames(folder) {
                Some(_) => Ok(self.content.frame(folder, number)),
                None => self.content.computed_view(reader, folder, number),
            };
        }
        Ok(match self.paths.kind(Self::number(file)) {
            Some(Kind::File(Entry::Of(file))) => match self.content.made(reader, &self.paths, file)? {
                Some(made) => made,
                None => self.content.view(file),
            },
            Some(Kind::File(Entry::Description)) => View::shared(self.description(reader)?),
            Some(Kind::File(Entry::Table(number))) => self.table(reader, number)?.view(),
            Some(Kind::Folder) | None => View::default(),
        })
    }

    fn attributes(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeId>, Fault> {
        let node = if Self::frame_of(node).is_some() { None } else { Some(Self::number(node)) };
        let found = node.and_then(|node| self.content.attributes(node));
        Ok(found.map(|file| NodeId(file.into())))
    }

    fn attribute_values(
        &self,
        _: &ReadContext,
        node: NodeId,
        _: &WorkingMemory<'_>,
    ) -> Result<Option<Attributes>, Fault> {
        if Self::frame_of(node).is_some() {
            return Ok(None);
        }
        Ok(self.content.attribute_values(Self::number(node)).cloned())
    }

    fn has_groups(&self) -> bool {
        self.content.has_groups()
    }

    fn other_arrays(&self) -> Vec<String> {
        self.content.other_arrays().into_iter().map(|node| self.paths.path(node)).collect()
    }

    fn stored_name(&self, _: &ReadContext, node: NodeId) -> Result<Option<Vec<u8>>, Fault> {
        if Self::frame_of(node).is_some() {
            return Ok(None);
        }
        Ok(self.content.stored_name(Self::number(node)).map(<[u8]>::to_vec))
    }

    fn is_table(&self, _: &ReadContext, node: NodeId) -> bool {
        self.table_of(node).is_some()
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::kept(reader, 0, |memory| self.content.describe(reader, &self.paths, &self.tables, memory))
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        Ok(self.content.overview(&self.paths))
    }

    fn overview_memory(&self) -> u64 {
        let (files, bytes) = self.paths.files();
        self.content.front_memory().saturating_add(files.saturating_mul(overview::ITEM)).saturating_add(bytes)
    }

    fn block_name(&self, block: u32) -> String {
        self.content.block_name(block)
    }

    fn memory_usage(&self) -> usize {
        self.memory_usage
    }

    fn warnings(&self) -> &[String] {
        self.content.warnings()
    }

    fn has_parts(&self) -> bool {
        self.content.has_parts()
    }

    fn joins(&self) -> Vec<String> {
        self.content.joins()
    }

    fn kind_name(&self) -> Option<&'static str> {
        self.content.kind_name()
    }

    fn timeline(&self, reader: &ReadContext, folder: NodeId) -> Result<Option<Timeline>, Fault> {
        if folder == super::ROOT { self.content.timeline(reader, &self.paths) } else { Ok(None) }
    }

    fn verify_rest(&self, reader: &ReadContext) -> Result<Vec<String>, Fault> {
        self.content.verify_rest(reader)
    }

    fn array(&self, _: &ReadContext, node: NodeId) -> Result<Option<Array>, Fault> {
        Ok(self.stored(node).and_then(|file| self.content.array(file)))
    }

    fn item_info(&self, reader: &ReadContext, node: NodeId) -> Result<Option<ItemInfo>, Fault> {
        if let Some(number) = self.table_of(node) {
            return Ok(Some(tables::item_info(&*self.table(reader, number)?)));
        }
        let file = self.stored(node).or_else(|| Some(self.rows_in(Self::number(node))?.1));
        Ok(file.filter(|_| Self::frame_of(node).is_none()).and_then(|file| self.content.item_info(file)))
    }
}
