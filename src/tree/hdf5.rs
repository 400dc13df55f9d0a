//! HDF5: a folder for each group, files for each dataset (`docs/TREE.md`, section 15). Nodes are computed: a group
//! costs nothing until its folder is opened. What was read is kept within bounds.

mod chunks;
mod convert;
mod documents;
mod elements;
mod form;
mod group;
mod node;
mod outside;
mod pictures;
mod profiles;
mod raw;
mod rows;
mod shown;
mod soft;
mod store;
mod tables;
mod values;
mod walk;

use std::{
    ops::{ControlFlow, Range},
    sync::{Arc, OnceLock},
};

use super::{
    Child, Container, DESCRIPTION, Format, ItemInfo, NodeId, NodeKind, Notice, Notices, Overview, ROOT, Siblings,
    WorkingMemory, describe, links, names,
    rows::{FixedTexts, Form as RowForm, Padding as RowPadding, RowFiles, Rows as _},
};
use crate::{
    cache::{BlockError, Buffer},
    format::{
        Class, FormatError,
        hdf5::{self, Padding, Superblock},
    },
    source::{Memory, SourceError},
    view::{Array, Fault, ReadContext, View, attributes::Attributes, parquet::Parquet},
};
use form::{FormKind, Texts};
use group::Group;
use node::{Node, Part};
use outside::Outside;
use pictures::Pictures;
use profiles::Profile;
use rows::{HeapRows, JsonRows};
use shown::Shown;
use soft::Arrived;
use store::{Damage, Described, Held, Store};

/// HDF5, and NetCDF-4. Other formats' magics at the start win over a signature behind a user block.
pub static HDF5: Format = Format {
    name: "hdf5",
    title: "HDF5",
    summary: "groups and datasets of robots, cells, climate and MATLAB",
    suffixes: &hdf5::SUFFIXES,
    shared_suffixes: &hdf5::SHARED_SUFFIXES,
    recognise: hdf5::recognise,
    probe: hdf5::probe,
    open: |reader, siblings, memory| {
        let superblock = hdf5::parse(&*reader.source, None, memory)?;
        memory.hold();
        Ok(Arc::new(open(superblock, reader, siblings)?))
    },
    check_part: Some(hdf5::check_part),
    fixtures: &["robot.h5"],
    ..Format::DEFAULT
};

/// The folder of chunks.
const RAW: &str = ".raw";

/// Rows that any file may have, and in addition for each of its bytes. gzip makes at most 1032 bytes of one, and a row
/// has 16.
const ROWS: u64 = 1_000_000;
const ROWS_A_BYTE: u64 = 64;

/// Returns the most rows that a file may have.
fn most_rows(context: &ReadContext) -> u64 {
    context.source.len().saturating_mul(ROWS_A_BYTE).saturating_add(ROWS)
}

/// A node that shows an object with attributes.
const HAVE_ATTRIBUTES: [Part; 6] = [Part::Group, Part::Array, Part::Lines, Part::Text, Part::Stored, Part::Folder];

/// A file.
pub(super) struct Hdf5 {
    store: Arc<Store>,
    root: Arc<Group>,
    profiles: OnceLock<Box<[Profile]>>,
    notices: Notices,
}

/// Returns the tree of a file.
///
/// # Errors
/// The reason if its root cannot be read. The file is then refused.
fn open(
    superblock: Superblock,
    context: &ReadContext,
    siblings: Option<Arc<dyn Siblings>>,
) -> Result<Hdf5, FormatError> {
    let store = Arc::new(Store::new(superblock, Arc::new(Outside::new(siblings.clone()))));
    let failed = |fault: Fault| match &*fault.error {
        BlockError::Refused(reason) => FormatError::refused(Class::BadRoot, reason.clone()),
        error => FormatError::Source(passing(error)),
    };
    let root = Group::root(&store, context).map_err(failed)?;
    root.links().map_err(failed)?;
    let profiles = OnceLock::new();
    Ok(Hdf5 { store, root, profiles, notices: Notices::default() })
}

/// Returns why a file could not be read.
fn passing(error: &BlockError) -> SourceError {
    if let Some(refused) = error.refused_memory() {
        return super::no_memory(refused);
    }
    match error {
        BlockError::Source(SourceError::Changed) => SourceError::Changed,
        BlockError::Source(SourceError::Io(error)) => {
            let kind = error.kind();
            error.raw_os_error().map_or_else(|| std::io::Error::from(kind), std::io::Error::from_raw_os_error).into()
        }
        _ => SourceError::WouldBlock,
    }
}

/// A dataset and its pictures.
type PicturesOf = (Arc<Held<Described>>, Pictures);

impl Hdf5 {
    /// Records damage of a part of an object.
    fn note(&self, place: node::Place, offset: Option<u64>, message: String) {
        if let Some(node) = Node::of(Part::Attributes, place).pack() {
            self.notices.add(Notice { node, offset, message });
        }
    }

    /// Returns the dataset at a place.
    fn dataset_at(&self, context: &ReadContext, place: node::Place) -> Result<Option<Arc<Held<Described>>>, Fault> {
        let object = self.object_at(context, place)?;
        Ok(object.filter(|object| object.found.as_ref().is_ok_and(|described| described.form.is_some())))
    }

    /// Returns the array of a dataset, if it is shown as one.
    fn array_of(&self, context: &ReadContext, described: &Described) -> Result<Option<Array>, Fault> {
        match described.form.as_ref().map(|form| &form.kind) {
            Some(FormKind::Plain(plain)) => elements::array(&self.store, context, described, plain),
            _ => Ok(None),
        }
    }

    /// Returns the texts or sequences of a dataset in the global heap.
    fn heap_rows(&self, context: &ReadContext, described: &Described) -> Result<Option<HeapRows>, Fault> {
        let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else { return Ok(None) };
        let items = match &form.kind {
            FormKind::Texts | FormKind::Text(Texts::Varying) => None,
            FormKind::Sequence(plain) => Some(plain.clone()),
            _ => return Ok(None),
        };
        let elements = elements::stored(&self.store, context, described.object.at, dataset, form)?;
        Ok(Some(HeapRows { store: self.store.clone(), elements, count: form.elements, items }))
    }

    /// Returns the rows of a dataset and how its lines show them.
    fn rows_of(&self, context: &ReadContext, described: &Described) -> Result<Option<(RowFiles, RowForm)>, Fault> {
        let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else { return Ok(None) };
        // Walking over rows takes time. The length of the file bounds it.
        if form.elements > most_rows(context) {
            let reason = format!("{} rows, which a file of this length cannot hold", form.elements);
            return Err(store::fault(self.store.superblock.sizes.base + described.object.at, &reason));
        }
        // No other object begins at this place, or in the next 8 bytes.
        let number = described.object.at.wrapping_mul(2) | 1 << 63;
        Ok(Some(match &form.kind {
            FormKind::Rows => {
                let elements = elements::stored(&self.store, context, described.object.at, dataset, form)?;
                let (store, datatype) = (self.store.clone(), dataset.datatype.clone());
                let rows = JsonRows { store, elements, count: form.elements, datatype, is_exact: false };
                (RowFiles::new(rows, number), RowForm::JsonLines)
            }
            FormKind::Plain(plain) => {
                let Some(padding) = plain.texts else { return Ok(None) };
                let Some(array) = self.array_of(context, described)? else { return Ok(None) };
                let texts = FixedTexts::new(array.data, plain.element.size(), padding_of(padding));
                (RowFiles::new(texts, number), RowForm::TextLines)
            }
            FormKind::Text(Texts::Fixed(width, padding)) => {
                let elements = elements::stored(&self.store, context, described.object.at, dataset, form)?;
                (RowFiles::new(FixedTexts::new(elements, *width, padding_of(*padding)), number), RowForm::Joined)
            }
            FormKind::Text(Texts::Varying) | FormKind::Texts | FormKind::Sequence(_) => {
                let Some(rows) = self.heap_rows(context, described)? else { return Ok(None) };
                (RowFiles::new(rows, number), RowForm::TextLines)
            }
            _ => return Ok(None),
        }))
    }

    /// Returns the array of row offsets, or of the items.
    fn row_array(&self, context: &ReadContext, described: &Described, part: Part) -> Result<Option<Array>, Fault> {
        let Some((rows, _)) = self.rows_of(context, described)? else { return Ok(None) };
        Ok(match (part, described.form.as_ref().map(|form| &form.kind)) {
            (Part::Offsets, Some(FormKind::Sequence(items))) => Some(rows.offsets(items.shown())),
            (Part::Offsets, _) => Some(rows.offsets(1)),
            (Part::Values, Some(FormKind::Sequence(items))) => {
                Some(rows.values(context, items.element.clone(), &items.inner)?)
            }
            _ => None,
        })
    }

    /// Returns the pictures of the dataset at a place.
    fn pictures_at(&self, context: &ReadContext, place: node::Place) -> Result<Option<PicturesOf>, Fault> {
        let Some(object) = self.dataset_at(context, place)? else { return Ok(None) };
        let Some((group, Some(number))) = self.at(context, place)? else { return Ok(None) };
        let Ok(described) = &object.found else { return Ok(None) };
        let Some(link) = group.link(&self.store, context, number)? else { return Ok(None) };
        let pictures = self.pictures_of(context, &group, &link, described)?;
        Ok(pictures.map(|pictures| (object, pictures)))
    }

    /// Returns the names in the folder beside a dataset, without the pictures.
    fn folder_files(&self, object: &Held<Described>) -> Vec<(&'static str, Part)> {
        let kind = object.found.as_ref().ok().and_then(|described| described.form.as_ref()).map(|form| &form.kind);
        match kind {
            Some(FormKind::Plain(plain)) if plain.texts.is_some() => {
                vec![("offsets.npy", Part::Offsets), ("utf8.bin", Part::Bytes)]
            }
            Some(FormKind::Texts) => vec![("offsets.npy", Part::Offsets), ("utf8.bin", Part::Bytes)],
            Some(FormKind::Sequence(_)) => vec![("offsets.npy", Part::Offsets), ("values.npy", Part::Values)],
            _ => Vec::new(),
        }
    }

    fn lookup_in_folder(&self, context: &ReadContext, place: node::Place, name: &str) -> Result<Option<NodeId>, Fault> {
        let Some(object) = self.dataset_at(context, place)? else { return Ok(None) };
        if let Some((_, part)) = self.folder_files(&object).into_iter().find(|(known, _)| *known == name) {
            return Ok(Node::of(part, place).pack());
        }
        let Some((object, pictures)) = self.pictures_at(context, place)? else { return Ok(None) };
        let number = name.strip_suffix(pictures.suffix()).and_then(|number| number.parse::<u64>().ok());
        let Some(number) = number.filter(|number| *number < pictures.count()) else { return Ok(None) };
        if picture_name(pictures, number) != name {
            return Ok(None);
        }
        if let (Pictures::Rows { .. }, Ok(described)) = (pictures, &object.found)
            && let Some(rows) = self.heap_rows(context, described)?
            && Pictures::length(context, &rows, number)? == 0
        {
            return Ok(None);
        }
        Ok(Node::item(Part::Picture, place, number).pack())
    }

    fn list_folder(
        &self,
        context: &ReadContext,
        place: node::Place,
        from: u64,
        each: &mut dyn FnMut(u64, &str, Node) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let Some(object) = self.dataset_at(context, place)? else { return Ok(()) };
        for (position, (name, part)) in (1..).zip(self.folder_files(&object)).skip(from.min(16) as usize) {
            if each(position, name, Node::of(part, place)).is_break() {
                return Ok(());
            }
        }
        let Some((object, pictures)) = self.pictures_at(context, place)? else { return Ok(()) };
        let rows = match (pictures, &object.found) {
            (Pictures::Rows { .. }, Ok(described)) => self.heap_rows(context, described)?,
            _ => None,
        };
        let first = from.saturating_sub(16);
        let mut show =
            |number: u64| each(number + 17, &picture_name(pictures, number), Node::item(Part::Picture, place, number));
        let Some(rows) = rows else {
            let _ = (first..pictures.count()).try_for_each(show);
            return Ok(());
        };
        // Empty rows are not shown as pictures.
        let memory = WorkingMemory::of_reader(context);
        memory.hold();
        let mut number = first;
        while number < pictures.count() {
            let (mut there, start) = (Vec::new(), number);
            super::rows::Rows::lengths(
                &rows,
                context,
                &memory,
                start..(start + 1024).min(pictures.count()),
                &mut |length| {
                    there.extend((length > 0).then_some(number));
                    number += 1;
                    Ok(())
                },
            )?;
            if there.into_iter().try_for_each(&mut show).is_break() || number == start {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the view of a file of a dataset.
    fn file_of(&self, context: &ReadContext, node: Node) -> Result<View, Fault> {
        let Some(object) = self.object_at(context, node.place)? else { return Ok(View::default()) };
        let described = match &object.found {
            Ok(described) => described,
            Err(damage) => return Ok(elements::Missing::of(&damage.fault(), 1)),
        };
        match node.part {
            Part::Array => Ok(self.array_of(context, described)?.map_or_else(View::default, Array::npy)),
            Part::Offsets | Part::Values => {
                Ok(self.row_array(context, described, node.part)?.map_or_else(View::default, Array::npy))
            }
            Part::Lines => match self.rows_of(context, described)? {
                Some((rows, form)) => rows.view(context, form),
                None => Ok(View::default()),
            },
            Part::Text | Part::Bytes => match self.rows_of(context, described)? {
                Some((rows, _)) => rows.view(context, RowForm::Joined),
                None => Ok(View::default()),
            },
            Part::Stored => {
                let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else {
                    return Ok(View::default());
                };
                match &form.kind {
                    FormKind::Broken(damage) => Ok(elements::Missing::of(&damage.fault(), 1)),
                    FormKind::Null => Ok(View::default()),
                    _ => elements::stored(&self.store, context, described.object.at, dataset, form),
                }
            }
            Part::Picture => match self.pictures_at(context, node.place)? {
                Some((object, pictures)) => match &object.found {
                    Ok(described) => pictures.view(self, context, described, node.item),
                    Err(_) => Ok(View::default()),
                },
                None => Ok(View::default()),
            },
            _ => Ok(View::default()),
        }
    }

    /// Returns the text of a link.
    fn target_of(&self, context: &ReadContext, node: Node) -> Result<Option<String>, Fault> {
        let Some((group, Some(number))) = self.at(context, node.place)? else { return Ok(None) };
        let folder = group.path();
        let Some(link) = group.link(&self.store, context, number)? else { return Ok(None) };
        Ok(match self.shown(context, &group, &link)? {
            Shown::Ancestor(levels) => {
                let above = group.ancestors().nth(levels as usize).map_or_else(String::new, Group::path);
                Some(links::relative(&folder, &above))
            }
            Shown::Outside(outside) => outside.text(&folder, node.item),
            Shown::Link(Arrived::Nowhere(path)) => Some(links::relative(&folder, &path)),
            Shown::Link(Arrived::Group(target)) => Some(links::relative(&folder, &target.path())),
            Shown::Link(Arrived::Object(target, number)) => {
                let place = target.child_place(number)?;
                let part = Part::of(node.item).unwrap_or(Part::Folder);
                let name = self.name_of(context, &target, Some(number), Node::of(part, place))?;
                Some(links::relative(&folder, &joined(&target.path(), &name)))
            }
            _ => None,
        })
    }
}

fn padding_of(padding: Padding) -> RowPadding {
    match padding {
        Padding::Terminated => RowPadding::FirstNul,
        Padding::Nulls => RowPadding::Nuls,
        Padding::Spaces => RowPadding::Spaces,
    }
}

fn picture_name(pictures: Pictures, number: u64) -> String {
    let width = pictures.count().saturating_sub(1).to_string().len().max(3);
    format!("{number:0width$}{}", pictures.suffix())
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

impl Container for Hdf5 {
    fn lookup(&self, context: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let Some(node) = Node::unpack(folder) else { return Ok(None) };
        match node.part {
            Part::Group => {
                if folder == ROOT {
                    match name {
                        DESCRIPTION => return Ok(Node::of(Part::Description, node.place).pack()),
                        RAW => return Ok(Node::of(Part::RawGroup, node.place).pack()),
                        _ => {}
                    }
                    if let Some(found) = self.lookup_profile(context, name)? {
                        return Ok(Some(found));
                    }
                }
                match self.group_at(context, node.place)? {
                    Some(group) => self.lookup_in(context, &group, name),
                    None => Ok(None),
                }
            }
            Part::Folder => self.lookup_in_folder(context, node.place, name),
            Part::LargeAttributes => {
                let found = self.large_attributes(context, node.place)?.into_iter().find(|(_, known, _)| known == name);
                Ok(found.and_then(|(number, ..)| Node::item(Part::LargeAttribute, node.place, number).pack()))
            }
            Part::RawGroup | Part::RawDataset => self.lookup_raw(context, node, name),
            _ => Ok(None),
        }
    }

    fn list(
        &self,
        context: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let Some(node) = Node::unpack(folder) else { return Ok(()) };
        let mut failed = None;
        let mut show = |next: u64, name: &str, node: Node| match node.pack() {
            Some(id) => each(Child { next, name, node: id, is_folder: node.part.is_folder() }),
            None => {
                failed = Some(Fault::refused("there are more files in a folder than can be numbered"));
                ControlFlow::Break(())
            }
        };
        match node.part {
            Part::Group => {
                let Some(group) = self.group_at(context, node.place)? else { return Ok(()) };
                self.list_group(context, &group, from, &mut show)?;
            }
            Part::Folder => self.list_folder(context, node.place, from, &mut show)?,
            Part::LargeAttributes => {
                let all = self.large_attributes(context, node.place)?;
                for (next, (number, name, _)) in (1..).zip(all).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
                    if show(next, &name, Node::item(Part::LargeAttribute, node.place, number)).is_break() {
                        break;
                    }
                }
            }
            Part::RawGroup | Part::RawDataset => self.list_raw(context, node, from, &mut show)?,
            _ => {}
        }
        failed.map_or(Ok(()), Err)
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        Ok(Node::unpack(node).map(|node| match node.part {
            part if part.is_folder() => NodeKind::Folder { subfolders: None },
            Part::Link => NodeKind::Link,
            _ => NodeKind::File,
        }))
    }

    fn parent(&self, context: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        let Some(node) = Node::unpack(node) else { return Ok(ROOT) };
        let parent = match node.part {
            Part::Description | Part::Profile => None,
            Part::Offsets | Part::Bytes | Part::Values | Part::Picture => Some(Node::of(Part::Folder, node.place)),
            Part::LargeAttribute => Some(Node::of(Part::LargeAttributes, node.place)),
            Part::RawChunk | Part::RawStored => Some(Node::of(Part::RawDataset, node.place)),
            part => match self.at(context, node.place)? {
                None | Some((_, None)) => None,
                Some((group, Some(number))) => {
                    let is_own = matches!(part, Part::Attributes | Part::LargeAttributes)
                        && self.child_at(context, &group, number)?.is_some();
                    match part {
                        Part::RawGroup | Part::RawDataset => Some(Node::of(Part::RawGroup, group.place)),
                        _ if is_own => Some(Node::of(Part::Group, node.place)),
                        _ => Some(Node::of(Part::Group, group.place)),
                    }
                }
            },
        };
        Ok(parent.and_then(Node::pack).unwrap_or(ROOT))
    }

    fn path(&self, context: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let Some(unpacked) = Node::unpack(node).filter(|_| node != ROOT) else { return Ok(String::new()) };
        let place = unpacked.place;
        let name = match unpacked.part {
            Part::Description => return Ok(DESCRIPTION.into()),
            Part::Profile => {
                let all = self.profile_nodes(context)?.into_iter();
                return Ok(all.map(|(name, _)| name).nth(unpacked.item as usize).unwrap_or_default());
            }
            Part::Offsets => "offsets.npy".into(),
            Part::Bytes => "utf8.bin".into(),
            Part::Values => "values.npy".into(),
            Part::Picture => self
                .pictures_at(context, place)?
                .map_or_else(String::new, |(_, pictures)| picture_name(pictures, unpacked.item)),
            Part::LargeAttribute => {
                let mut all = self.large_attributes(context, place)?.into_iter();
                all.find(|(number, ..)| *number == unpacked.item).map_or_else(String::new, |(_, name, _)| name)
            }
            Part::RawGroup if place == node::ROOT_PLACE => return Ok(RAW.into()),
            Part::RawGroup | Part::RawDataset => match self.at(context, place)? {
                Some((group, Some(number))) => {
                    let link = group.link(&self.store, context, number)?;
                    link.map_or_else(String::new, |link| names::folder(&link.name, &names::RESERVED, 1))
                }
                _ => String::new(),
            },
            Part::RawChunk | Part::RawStored => self.raw_name(context, unpacked)?,
            _ => match self.at(context, place)? {
                Some((group, number)) => {
                    let inner = match number {
                        Some(number) => self.child_at(context, &group, number)?,
                        None => None,
                    };
                    let is_own = matches!(unpacked.part, Part::Attributes | Part::LargeAttributes);
                    match inner.filter(|_| is_own) {
                        Some(inner) => self.name_of(context, &inner, None, unpacked)?,
                        None => self.name_of(context, &group, number, unpacked)?,
                    }
                }
                None => String::new(),
            },
        };
        let parent = self.parent(context, node)?;
        Ok(joined(&self.path(context, parent)?, &name))
    }

    fn view(&self, context: &ReadContext, file: NodeId) -> Result<View, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(View::default()) };
        match node.part {
            Part::Description => Ok(View::shared(self.description(context)?)),
            Part::Attributes => self.attributes_document(context, node.place),
            Part::LargeAttribute => Ok(self.array(context, file)?.map_or_else(View::default, Array::npy)),
            Part::RawChunk | Part::RawStored => self.raw_view(context, node),
            Part::Table | Part::Profile => {
                Ok(self.table_of(context, node)?.map_or_else(View::default, |table| table.view()))
            }
            _ => self.file_of(context, node),
        }
    }

    fn link_target(&self, context: &ReadContext, link: NodeId) -> Result<Option<String>, Fault> {
        match Node::unpack(link) {
            Some(node) if node.part == Part::Link => self.target_of(context, node),
            _ => Ok(None),
        }
    }

    fn attributes(&self, context: &ReadContext, node: NodeId) -> Result<Option<NodeId>, Fault> {
        let Some(node) = Node::unpack(node) else { return Ok(None) };
        if !HAVE_ATTRIBUTES.contains(&node.part) {
            return Ok(None);
        }
        let object = self.object_at(context, node.place)?;
        let has = object.is_some_and(|object| object.found.as_ref().is_ok_and(shown::has_attributes));
        Ok(if has { Node::of(Part::Attributes, node.place).pack() } else { None })
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn stored_name(&self, context: &ReadContext, node: NodeId) -> Result<Option<Vec<u8>>, Fault> {
        let Some(node) = Node::unpack(node) else { return Ok(None) };
        let is_object = matches!(
            node.part,
            Part::Group | Part::Folder | Part::Array | Part::Lines | Part::Text | Part::Stored | Part::Link
        );
        match self.at(context, node.place)? {
            Some((group, Some(number))) if is_object => {
                Ok(group.link(&self.store, context, number)?.map(|link| link.name.to_vec()))
            }
            _ => Ok(None),
        }
    }

    fn attribute_values(
        &self,
        context: &ReadContext,
        node: NodeId,
        memory: &WorkingMemory<'_>,
    ) -> Result<Option<Attributes>, Fault> {
        match Node::unpack(node) {
            Some(node) if HAVE_ATTRIBUTES.contains(&node.part) => self.typed_attributes(context, node.place, memory),
            _ => Ok(None),
        }
    }

    fn description(&self, context: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::kept(context, 0, |memory| self.describe(context, memory))
    }

    fn overview(&self, context: &ReadContext) -> Result<Overview, Fault> {
        self.items_overview(context)
    }

    fn is_table(&self, _: &ReadContext, node: NodeId) -> bool {
        Node::unpack(node).is_some_and(|node| matches!(node.part, Part::Table | Part::Profile))
    }

    fn repeats_array(&self, context: &ReadContext, folder: NodeId) -> Result<bool, Fault> {
        let Some(Node { part: Part::Folder, place, .. }) = Node::unpack(folder) else { return Ok(false) };
        Ok(matches!(self.pictures_at(context, place)?, Some((_, Pictures::Raw { .. }))))
    }

    fn overview_memory(&self) -> u64 {
        crate::limits::DESCRIBED as u64 * super::overview::ITEM
    }

    fn memory_usage(&self) -> usize {
        self.store.memory_usage()
    }

    fn reach(&self, siblings: Arc<dyn Siblings>) {
        self.store.outside.reach(siblings);
    }

    fn notices(&self) -> Option<&Notices> {
        Some(&self.notices)
    }

    fn array(&self, context: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        let Some(node) = Node::unpack(file) else { return Ok(None) };
        match node.part {
            Part::Array | Part::Offsets | Part::Values => {
                let Some(object) = self.dataset_at(context, node.place)? else { return Ok(None) };
                let Ok(described) = &object.found else { return Ok(None) };
                match node.part {
                    Part::Array => self.array_of(context, described),
                    part => self.row_array(context, described, part),
                }
            }
            Part::LargeAttribute => {
                let mut all = self.large_attributes(context, node.place)?.into_iter();
                Ok(all.find(|(number, ..)| *number == node.item).map(|(_, _, array)| array))
            }
            _ => Ok(None),
        }
    }

    fn exact_rows(
        &self,
        context: &ReadContext,
        id: NodeId,
        rows: Range<u64>,
        memory: &WorkingMemory<'_>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let Some(node) = Node::unpack(id).filter(|node| node.part == Part::Lines) else { return Ok(None) };
        let Some(object) = self.dataset_at(context, node.place)? else { return Ok(None) };
        let Ok(described) = &object.found else { return Ok(None) };
        let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else { return Ok(None) };
        if !matches!(form.kind, FormKind::Rows) {
            return Ok(None);
        }
        let elements = elements::stored(&self.store, context, described.object.at, dataset, form)?;
        let (store, datatype) = (self.store.clone(), dataset.datatype.clone());
        let found = JsonRows { store, elements, count: form.elements, datatype, is_exact: true };
        let rows = rows.start.min(form.elements)..rows.end.min(form.elements);
        let mut lines = Vec::new();
        found.each(context, memory, rows, &mut |row| {
            let row = row.unwrap_or(b"null");
            memory.reserve(row.len() as u64 + 1)?;
            lines.extend_from_slice(row);
            lines.push(b'\n');
            Ok(())
        })?;
        Ok(Some(lines))
    }

    fn item_info(&self, context: &ReadContext, id: NodeId) -> Result<Option<ItemInfo>, Fault> {
        let Some(node) = Node::unpack(id) else { return Ok(None) };
        match node.part {
            Part::Array | Part::Lines | Part::Text | Part::Stored => {
                let Some(object) = self.dataset_at(context, node.place)? else { return Ok(None) };
                let Ok(described) = &object.found else { return Ok(None) };
                let mut info = self.info(described);
                info.fill = self.fill(context, described)?;
                if let (Part::Array, Some(dataset)) = (node.part, described.object.dataset()) {
                    let memory = WorkingMemory::of_reader(context);
                    let names = documents::enumeration(&dataset.datatype, &memory)?;
                    info.names = names.map(|names| names.to_string().into());
                    info.shape = described.form.as_ref().map(form::Form::shape);
                }
                Ok(Some(info))
            }
            Part::Folder => {
                let Some(object) = self.dataset_at(context, node.place)? else { return Ok(None) };
                let Ok(described) = &object.found else { return Ok(None) };
                let kind = described.form.as_ref().map(|form| &form.kind);
                Ok(matches!(kind, Some(FormKind::Sequence(_))).then(|| self.info(described)))
            }
            Part::Offsets | Part::LargeAttribute => Ok(self.array(context, id)?.map(ItemInfo::from)),
            Part::Table | Part::Profile => {
                Ok(self.table_of(context, node)?.map(|table| super::tables::item_info(&table)))
            }
            _ => Ok(None),
        }
    }
}

impl Hdf5 {
    /// Returns a table.
    fn table_of(&self, context: &ReadContext, node: Node) -> Result<Option<Arc<Parquet>>, Fault> {
        if node.part == Part::Profile {
            return self.profile_table(context, node.item);
        }
        let Some(object) = self.dataset_at(context, node.place)? else { return Ok(None) };
        match &object.found {
            Ok(described) => self.compound_table(context, described),
            Err(_) => Ok(None),
        }
    }

    /// Returns the group whose folder is at a place.
    fn group_at(&self, context: &ReadContext, place: node::Place) -> Result<Option<Arc<Group>>, Fault> {
        match self.at(context, place)? {
            None => Ok(None),
            Some((group, None)) => Ok(Some(group)),
            Some((group, Some(number))) => match group.link(&self.store, context, number)? {
                Some(link) => group.shown_child(&self.store, context, &link),
                None => Ok(None),
            },
        }
    }

    /// Returns the group that the link with a number leads to directly.
    fn child_at(&self, context: &ReadContext, group: &Arc<Group>, number: u64) -> Result<Option<Arc<Group>>, Fault> {
        match group.link(&self.store, context, number)? {
            Some(link) => group.child(&self.store, context, &link),
            None => Ok(None),
        }
    }
}

/// Returns the failure of a read that needs a damaged part.
fn refused(damage: &Damage) -> Fault {
    damage.fault()
}
