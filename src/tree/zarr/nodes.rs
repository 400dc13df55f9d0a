//! Reads the groups and arrays of a store from its metadata documents (`docs/formats/zarr.md` 2, 3).

use std::collections::BTreeSet;

use super::store::{self, MARKERS, Store};
use crate::{
    cache::BlockError,
    format::{
        Class, FormatError,
        zarr::{Array, Json, JsonError, ZeroSize},
    },
    source::{Memory, Source, SourceError},
    store::is_would_block,
    wanted,
};

/// Most bytes of a document, and of a consolidated one, which has the documents of all nodes.
const DOCUMENT: u64 = 16 << 20;
const CONSOLIDATED: u64 = 256 << 20;

/// Most nodes, and most levels of nested groups.
const NODES: usize = 1_000_000;
const DEPTH: usize = 64;

/// Bytes of memory that a node takes in addition to its path and attributes. Includes its files in the tree.
const NODE_MEMORY: u64 = 2048;

/// All nodes of a store below its root group, or the array that the store is.
pub(super) struct Nodes {
    pub(super) is_v3: bool,
    pub(super) is_consolidated: bool,
    /// The attributes of the root.
    pub(super) attributes: Json,
    /// Whether the root is an array: the only node, without a name.
    pub(super) is_array: bool,
    /// The nodes, depth first, by name.
    pub(super) nodes: Vec<Node>,
    pub(super) warnings: Vec<String>,
}

/// A node.
pub(super) struct Node {
    pub(super) path: Box<str>,
    /// `None` for a group.
    pub(super) array: Option<Array>,
    pub(super) attributes: Json,
}

fn refused(reason: impl Into<String>) -> FormatError {
    FormatError::refused(Class::BadFormat, reason)
}

/// Reads a document that makes a folder a store, by the name of its file.
///
/// # Errors
/// `Refused` if it is not sound by section 1.
pub(super) fn root(marker: &str, bytes: &[u8], memory: &dyn Memory) -> Result<Json, FormatError> {
    let document = Json::parse(bytes, memory).map_err(|error| match error {
        JsonError::Source(error) => error.into(),
        error => refused(error.to_string()),
    })?;
    check_root(marker, &document).map_err(refused)?;
    Ok(document)
}

fn check_root(marker: &str, document: &Json) -> Result<(), String> {
    let version = |key: &str, wanted: f64| match document.get(key).and_then(Json::as_double) {
        Some(found) if found == wanted => Ok(()),
        _ => Err(format!("{key} is not {wanted}")),
    };
    match marker {
        "zarr.json" => {
            version("zarr_format", 3.0)?;
            match document.get("node_type").and_then(Json::as_str) {
                Some("group" | "array") => Ok(()),
                _ => Err("node_type is neither group nor array".into()),
            }
        }
        ".zarray" => {
            version("zarr_format", 2.0)?;
            document.get("shape").and_then(Json::as_list).map(drop).ok_or_else(|| "shape is no list".into())
        }
        ".zgroup" => version("zarr_format", 2.0),
        _ => {
            version("zarr_consolidated_format", 1.0)?;
            let metadata = document.get("metadata");
            let has = |key| metadata.is_some_and(|metadata| metadata.get(key).is_some());
            if has(".zgroup") || has(".zarray") { Ok(()) } else { Err("metadata has no root".into()) }
        }
    }
}

/// Returns the most bytes of a root document.
pub(super) fn longest_root(marker: &str) -> u64 {
    if matches!(marker, "zarr.json" | ".zmetadata") { CONSOLIDATED } else { DOCUMENT }
}

/// Reads all nodes of a store.
///
/// # Errors
/// `Refused` if its root is not sound; `Source` if it cannot be read.
pub(super) fn read(store: &Store, source: &dyn Source, memory: &dyn Memory) -> Result<Nodes, FormatError> {
    let mut marker = None;
    for name in MARKERS {
        if store.has(name).map_err(store::failed)? {
            marker = Some(name);
            break;
        }
    }
    let marker = marker.ok_or_else(|| refused("no marker"))?;
    let document = |name: &str| store.document(source, name, longest_root(name), memory).map_err(store::failed);
    let bytes = document(marker)?.ok_or(SourceError::Changed)?;
    let mut found = root(marker, &bytes, memory)?;
    drop(bytes);
    let is_v3 = marker == "zarr.json";
    let mut reading = Reading {
        store,
        source,
        memory,
        is_v3,
        zero_size: ZeroSize::Unknown,
        documents: None,
        nodes: Vec::new(),
        warnings: Vec::new(),
    };
    let is_array = match marker {
        "zarr.json" => found.get("node_type").and_then(Json::as_str) == Some("array"),
        ".zarray" => true,
        ".zmetadata" => found.get("metadata").is_some_and(|metadata| metadata.get(".zarray").is_some()),
        _ => false,
    };
    reading.documents = match marker {
        "zarr.json" if !is_array => take(&mut found, "consolidated_metadata").and_then(|mut consolidated| {
            let is_inline = consolidated.get("kind").and_then(Json::as_str) == Some("inline");
            take(&mut consolidated, "metadata").filter(|metadata| is_inline && metadata.as_object().is_some())
        }),
        ".zmetadata" => take(&mut found, "metadata"),
        ".zgroup" => reading.consolidated_v2()?,
        _ => None,
    };
    let is_consolidated = reading.documents.is_some();
    let attributes = if is_v3 { own_attributes(&mut found) } else { reading.attributes_v2("")? };
    reading.zero_size = zero_size(&attributes);
    if is_array {
        let document = match (&reading.documents, is_v3) {
            (Some(documents), false) => documents.get(".zarray").unwrap_or(&found),
            _ => &found,
        };
        let array = match is_v3 {
            true => Array::parse_v3(document),
            false => Array::parse_v2(document, reading.zero_size),
        };
        reading.nodes.push(Node { path: "".into(), array: Some(array), attributes: attributes.clone() });
    } else if is_consolidated {
        reading.all_consolidated()?;
    } else {
        reading.group("", 0)?;
    }
    let Reading { nodes, warnings, .. } = reading;
    Ok(Nodes { is_v3, is_consolidated, attributes, is_array, nodes, warnings })
}

/// Returns the attributes of the root of a store of version 2, if it has any.
///
/// # Errors
/// `Refused` by [`Class::NotReadable`] if they are damaged; `Source` if they cannot be read.
pub(super) fn root_attributes(
    store: &Store,
    source: &dyn Source,
    memory: &dyn Memory,
) -> Result<Option<Json>, FormatError> {
    const KEY: &str = ".zattrs";
    let damaged = |reason: String| FormatError::refused(Class::NotReadable, reason);
    let bytes = match store.document(source, KEY, DOCUMENT, memory) {
        Ok(bytes) => bytes,
        Err(error) if error.is_damage() => return Err(damaged(error.to_string())),
        Err(error) => return Err(store::failed(error)),
    };
    let parsed = bytes.map(|bytes| Json::parse(&bytes, memory)).transpose();
    parsed.map_err(|error| match error {
        JsonError::Source(error) => error.into(),
        error => damaged(format!("{KEY}: {error}")),
    })
}

/// Takes the value of a key out of an object.
fn take(document: &mut Json, key: &str) -> Option<Json> {
    let Json::Object(map) = document else { return None };
    map.get_mut(key.as_bytes()).map(|value| std::mem::replace(value, Json::Null))
}

/// Returns what 0 as the element size of a shuffle means in a store with these attributes of the root.
fn zero_size(attributes: &Json) -> ZeroSize {
    // Stores that netCDF-C writes for others, without its own `_nczarr_…`, have the first.
    let is_of_netcdf =
        |key: &[u8]| key == b"_NCProperties" || key.get(..7).is_some_and(|key| key.eq_ignore_ascii_case(b"_nczarr"));
    match attributes.as_object().is_some_and(|all| all.keys().any(|key| is_of_netcdf(key))) {
        true => ZeroSize::OfType,
        false => ZeroSize::Unknown,
    }
}

/// Takes the attributes out of a document of v3.
fn own_attributes(document: &mut Json) -> Json {
    take(document, "attributes").filter(|found| found.as_object().is_some()).unwrap_or(Json::Null)
}

/// The kind of a node, by its document.
enum Found {
    Nothing,
    Group(Json),
    Array(Box<Array>, Json),
}

struct Reading<'a> {
    store: &'a Store,
    source: &'a dyn Source,
    memory: &'a dyn Memory,
    is_v3: bool,
    zero_size: ZeroSize,
    /// The documents of all nodes, by path or key.
    documents: Option<Json>,
    nodes: Vec<Node>,
    warnings: Vec<String>,
}

impl Reading<'_> {
    /// Reads a document. If it is damaged, the inner `Err` is the reason. Errors that may pass are those of the
    /// container.
    fn document(&self, key: &str) -> Result<Option<Result<Json, String>>, FormatError> {
        let bytes = match self.store.document(self.source, key, DOCUMENT, self.memory) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(BlockError::Source(error @ SourceError::Io(_))) if !error.is_passing() && !is_waiting(&error) => {
                return Ok(Some(Err(error.to_string())));
            }
            Err(error) if !error.is_damage() => return Err(store::failed(error)),
            Err(error) => return Ok(Some(Err(error.to_string()))),
        };
        match Json::parse(&bytes, self.memory) {
            Ok(document) => Ok(Some(Ok(document))),
            Err(JsonError::Source(error)) => Err(error.into()),
            Err(error) => Ok(Some(Err(error.to_string()))),
        }
    }

    fn warn(&mut self, key: &str, reason: &str) {
        /// Most warnings. More do not help the user.
        const WARNINGS: usize = 100;
        if self.warnings.len() < WARNINGS {
            self.warnings.push(format!("{key}: {reason}"));
        }
    }

    /// Returns the documents of `.zmetadata`, if it is sound.
    fn consolidated_v2(&mut self) -> Result<Option<Json>, FormatError> {
        const KEY: &str = ".zmetadata";
        let bytes = match self.store.document(self.source, KEY, CONSOLIDATED, self.memory) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(error) if error.is_damage() => {
                self.warn(KEY, &error.to_string());
                return Ok(None);
            }
            Err(error) => return Err(store::failed(error)),
        };
        match root(KEY, &bytes, self.memory) {
            Ok(mut found) => Ok(take(&mut found, "metadata")),
            Err(FormatError::Source(error)) => Err(error.into()),
            Err(error) => {
                self.warn(KEY, &error.to_string());
                Ok(None)
            }
        }
    }

    /// Returns the attributes of a node of v2.
    fn attributes_v2(&mut self, path: &str) -> Result<Json, FormatError> {
        let key = join(path, ".zattrs");
        if let Some(documents) = &self.documents {
            return Ok(documents.get(&key).filter(|found| found.as_object().is_some()).cloned().unwrap_or(Json::Null));
        }
        match self.document(&key)? {
            Some(Ok(found @ Json::Object(_))) => Ok(found),
            Some(Ok(_)) => {
                self.warn(&key, "no object, so there are no attributes");
                Ok(Json::Null)
            }
            Some(Err(reason)) => {
                self.warn(&key, &reason);
                Ok(Json::Null)
            }
            None => Ok(Json::Null),
        }
    }

    /// Returns the kind of the node at a path, by the node's own documents.
    fn look(&mut self, path: &str) -> Result<Found, FormatError> {
        if self.is_v3 {
            return Ok(match self.document(&join(path, "zarr.json"))? {
                None => Found::Nothing,
                Some(Ok(document)) => node_v3(document),
                Some(Err(reason)) => Found::Array(Array::unknown(reason).into(), Json::Null),
            });
        }
        for (name, is_array) in [(".zarray", true), (".zgroup", false)] {
            if let Some(document) = self.document(&join(path, name))? {
                let attributes = self.attributes_v2(path)?;
                return Ok(match document {
                    Ok(document) => node_v2(&document, is_array.then_some(self.zero_size), attributes),
                    Err(reason) => Found::Array(Array::unknown(reason).into(), attributes),
                });
            }
        }
        Ok(Found::Nothing)
    }

    fn add(&mut self, path: &str, array: Option<Array>, attributes: Json) -> Result<(), FormatError> {
        if self.nodes.len() == NODES {
            return Err(FormatError::refused(Class::TooMany, format!("more than {NODES} groups and arrays")));
        }
        self.memory.reserve(NODE_MEMORY + 4 * path.len() as u64 + attributes.memory_usage() as u64)?;
        self.nodes.push(Node { path: path.into(), array, attributes });
        Ok(())
    }

    /// Adds all nodes below a group, by their own documents.
    fn group(&mut self, path: &str, depth: usize) -> Result<(), FormatError> {
        wanted::check().map_err(SourceError::from)?;
        if depth == DEPTH {
            self.warn(path, "what is in this group is not shown, because it is too deep");
            return Ok(());
        }
        let names = match self.store.names(path, self.memory) {
            Ok(names) => names,
            Err(error) if error.is_damage() && !path.is_empty() => {
                self.warn(path, &error.to_string());
                return Ok(());
            }
            Err(error) => return Err(store::failed(error)),
        };
        for name in names {
            let path = join(path, &name);
            match self.look(&path)? {
                Found::Nothing => {}
                Found::Array(array, attributes) => self.add(&path, Some(*array), attributes)?,
                Found::Group(attributes) => {
                    self.add(&path, None, attributes)?;
                    self.group(&path, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// Adds all nodes of the consolidated documents.
    fn all_consolidated(&mut self) -> Result<(), FormatError> {
        let Some(documents) = self.documents.take() else { return Ok(()) };
        let mut paths = BTreeSet::new();
        for key in documents.as_object().into_iter().flat_map(|documents| documents.keys()) {
            wanted::check().map_err(SourceError::from)?;
            let Ok(key) = std::str::from_utf8(key) else { continue };
            let path = match (self.is_v3, key.rsplit_once('/')) {
                (true, _) => key,
                (false, Some((path, ".zarray" | ".zgroup" | ".zattrs"))) => path,
                (false, _) => continue,
            };
            if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                continue;
            }
            if path.split('/').count() > DEPTH {
                self.warn(path, "not shown, because it is too deep");
                continue;
            }
            // A group may have no document in the consolidated ones.
            let mut own = path;
            while !paths.contains(own) {
                self.memory.reserve(own.len() as u64 + 64)?;
                paths.insert(own.to_owned());
                let Some((above, _)) = own.rsplit_once('/') else { break };
                own = above;
            }
        }
        let mut paths: Vec<String> = paths.into_iter().collect();
        paths.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        let mut above: Option<String> = None;
        self.documents = Some(documents);
        for path in paths {
            // Below an array there are no nodes.
            if above.as_ref().is_some_and(|above| path.starts_with(&**above)) {
                continue;
            }
            match self.consolidated(&path)? {
                Found::Nothing => self.add(&path, None, Json::Null)?,
                Found::Group(attributes) => self.add(&path, None, attributes)?,
                Found::Array(array, attributes) => {
                    above = Some(format!("{path}/"));
                    self.add(&path, Some(*array), attributes)?;
                }
            }
        }
        self.documents = None;
        Ok(())
    }

    /// Returns the kind of the node at a path, by the consolidated documents.
    fn consolidated(&mut self, path: &str) -> Result<Found, FormatError> {
        let find = |key: &str| self.documents.as_ref().and_then(|documents| documents.get(key));
        if self.is_v3 {
            return Ok(find(path).cloned().map_or(Found::Nothing, node_v3));
        }
        for (name, is_array) in [(".zarray", true), (".zgroup", false)] {
            if let Some(document) = find(&join(path, name)).cloned() {
                let attributes = self.attributes_v2(path)?;
                return Ok(node_v2(&document, is_array.then_some(self.zero_size), attributes));
            }
        }
        Ok(Found::Group(self.attributes_v2(path)?))
    }
}

/// Returns whether the error means that the caller would have to wait for bytes.
fn is_waiting(error: &SourceError) -> bool {
    matches!(error, SourceError::Io(error) if is_would_block(error))
}

/// Returns the path of what is at a path below another one.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

fn node_v3(mut document: Json) -> Found {
    if let Err(reason) = check_root("zarr.json", &document) {
        return Found::Array(Array::unknown(reason).into(), Json::Null);
    }
    let attributes = own_attributes(&mut document);
    match document.get("node_type").and_then(Json::as_str) {
        Some("array") => Found::Array(Array::parse_v3(&document).into(), attributes),
        _ => Found::Group(attributes),
    }
}

/// Returns the kind of a node of v2. Of an array, `zero_size` is [`ZeroSize`].
fn node_v2(document: &Json, zero_size: Option<ZeroSize>, attributes: Json) -> Found {
    if let Err(reason) = check_root(".zgroup", document) {
        return Found::Array(Array::unknown(reason).into(), attributes);
    }
    match zero_size {
        Some(zero_size) => Found::Array(Array::parse_v2(document, zero_size).into(), attributes),
        None => Found::Group(attributes),
    }
}
