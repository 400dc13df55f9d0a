//! The files of attributes (`docs/TREE.md`, section 2): `attributes.json` in a group, `<name>.attrs.json` beside an
//! array, and a folder for arrays of more than [`crate::view::attributes::INLINE`] elements.

use std::collections::HashMap;

use super::{
    describe, names,
    paths::{Builder, NodeIndex},
};
use crate::view::{Array, Fault, ReadContext, View, attributes::Attributes};

/// The file of a group's attributes, in the group.
pub const OF_GROUP: &str = "attributes.json";

/// The folder of a group's large attributes, in the group.
pub const ARRAYS_OF_GROUP: &str = "attributes";

/// What follows an array's name in the file of its attributes.
pub const BESIDE: &str = ".attrs.json";

/// What follows an array's name in the folder of its large attributes.
pub const ARRAYS_BESIDE: &str = ".attrs";

/// Returns the name of the file of a large attribute in its folder.
pub fn array_name(attribute: &[u8]) -> String {
    names::file(attribute, ".npy", 1)
}

/// The content of a file of attributes: the number of its owner, in the order of [`Attached::add`], and for an array
/// the number of the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// The JSON object.
    Document(u32),
    /// An array of many elements.
    Array(u32, u32),
}

/// What attributes belong to.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    /// The group that a folder shows.
    Group(NodeIndex),
    /// The array that a file shows: the file, the last part of its stored name, and the file's suffix.
    Array(NodeIndex, &'a [u8], &'a str),
}

/// The attributes of one owner.
#[derive(Debug)]
struct Of {
    attributes: Attributes,
    /// The path of each array that has its own file, by the number of the attribute.
    files: Vec<(usize, String)>,
}

/// All attributes of a container whose nodes are in a table of paths.
#[derive(Debug, Default)]
pub struct Attached {
    owners: Vec<Of>,
    /// The file of an owner's attributes, by the owner's node.
    documents: HashMap<NodeIndex, NodeIndex>,
    /// The number of an owner, by its node.
    numbers: HashMap<NodeIndex, u32>,
}

impl Attached {
    /// Adds the files of an owner's attributes; none if it has none. `file` makes the table's entry for each. Stored
    /// items must be added before, and keep their names.
    pub fn add<F: Copy>(
        &mut self,
        builder: &mut Builder<F>,
        owner: Owner<'_>,
        attributes: Attributes,
        file: impl Fn(Shows) -> F,
    ) {
        if attributes.is_empty() {
            return;
        }
        let number = self.owners.len() as u32;
        let show = file(Shows::Document(number));
        let (parent, part, node, document) = match owner {
            Owner::Group(folder) => {
                let part = ARRAYS_OF_GROUP.as_bytes();
                (folder, part.to_vec(), folder, builder.file(folder, part, ".json", show))
            }
            Owner::Array(node, part, suffix) => {
                let document = builder.beside(node, part, [suffix, BESIDE], show);
                (builder.place(document).0, [part, ARRAYS_BESIDE.as_bytes()].concat(), node, document)
            }
        };
        self.documents.insert(node, document);
        self.numbers.insert(node, number);
        let (mut folder, mut files) = (None, Vec::new());
        for (at, name, _) in attributes.large() {
            let folder = *folder.get_or_insert_with(|| builder.free_folder(parent, &part));
            let array = builder.file(folder, name, ".npy", file(Shows::Array(number, at as u32)));
            files.push((at, format!("{}/{}", builder.place(folder).1, builder.place(array).1)));
        }
        self.owners.push(Of { attributes, files });
    }

    /// Returns the file of a node's attributes, if it has any.
    pub fn document_of(&self, node: NodeIndex) -> Option<NodeIndex> {
        self.documents.get(&node).copied()
    }

    /// Returns the attributes of a node, if it has any.
    pub fn values_of(&self, node: NodeIndex) -> Option<&Attributes> {
        self.owners.get(*self.numbers.get(&node)? as usize).map(|owner| &owner.attributes)
    }

    /// Returns the array that a file shows; `None` for documents.
    pub fn array(&self, shows: Shows) -> Option<Array> {
        let Shows::Array(owner, at) = shows else { return None };
        let (_, value) = self.owners.get(owner as usize)?.attributes.iter().nth(at as usize)?;
        value.large().cloned()
    }

    /// Returns the bytes of a file. A document is made on the first request and kept in the cache. `first` is the
    /// number of the first one among the container's documents (`container.json` is 0).
    ///
    /// # Errors
    /// Those of [`Attributes::document`].
    pub fn view(&self, reader: &ReadContext, shows: Shows, first: u64) -> Result<View, Fault> {
        let Shows::Document(owner) = shows else {
            return Ok(self.array(shows).map_or_else(View::default, Array::npy));
        };
        let Some(Of { attributes, files }) = self.owners.get(owner as usize) else { return Ok(View::default()) };
        let path = |at: usize| {
            let found = files.binary_search_by_key(&at, |(at, _)| *at).ok().and_then(|found| files.get(found));
            found.map_or_else(String::new, |(_, path)| path.clone())
        };
        let document =
            describe::kept(reader, first + u64::from(owner), |memory| attributes.document(reader, memory, &path));
        Ok(View::shared(document?))
    }
}
