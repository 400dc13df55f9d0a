//! How stores are recognised, checked and opened: folders with a marker, and archives.

use std::sync::Arc;

use super::{
    NAME, Zarr,
    chunks::Files,
    nodes::{self, Nodes},
    store::{self, Folder, MARKERS, Store},
    tree, tszip,
};
use crate::{
    format::{
        Class, FormatError, Front, Recognition, has_suffix,
        zip::{self, Rules},
    },
    source::{Memory, Source},
    tree::{Format, Siblings, Table, WorkingMemory},
    view::ReadContext,
};

/// Zarr: folders of chunks and of documents that describe them.
pub static ZARR: Format = Format {
    name: NAME,
    title: "Zarr",
    summary: "arrays in chunks: climate, imaging, genomics",
    suffixes: &[".zarr"],
    markers: &MARKERS,
    recognise: recognise_marker,
    probe: probe_marker,
    open: |reader, siblings, memory| Ok(Arc::new(open_folder(reader, siblings, memory)?)),
    fixtures: &["cells.zarr"],
    ..Format::DEFAULT
};

/// Zarr stores in a zip archive: the same format, in files.
pub static ZARR_ZIP: Format = Format {
    name: NAME,
    title: "Zarr",
    summary: "the same in a zip archive",
    suffixes: &SUFFIXES,
    recognise,
    probe: probe_zip,
    open: |reader, _, memory| Ok(Arc::new(open_zip(reader, memory)?)),
    fixtures: &["cells.zarr.zip"],
    ..Format::DEFAULT
};

/// tszip: tree sequences of tskit in an archive of Zarr, shown as the files that they were made of.
pub static TSZIP: Format = Format {
    name: tszip::FORMAT_NAME,
    title: "tszip",
    summary: "compressed tree sequences of tskit",
    suffixes: &[tszip::SUFFIX],
    recognise: recognise_archive,
    probe: probe_tszip,
    open: |reader, _, memory| Ok(Arc::new(open_tszip(reader, memory)?)),
    fixtures: &["genealogy.tsz"],
    ..Format::DEFAULT
};

/// Limits of archives (section 9).
const RULES: Rules = Rules { directory: 1 << 30, members: 10_000_000, may_overlap: true };

/// Bytes of an archive's directory that are searched for a marker.
const LOOKED_AT: u64 = 1 << 20;

/// Suffixes that mean a store in an archive.
const SUFFIXES: [&str; 2] = [".zarr.zip", ".ozx"];

/// Recognises a file that makes its folder a store, by its name alone.
fn recognise_marker(front: &Front<'_>) -> Recognition {
    let is_marker = MARKERS.iter().any(|marker| marker.as_bytes() == front.name);
    if is_marker { Recognition::Meant } else { Recognition::No }
}

/// Recognises archives. Those with another suffix need a marker in them.
fn recognise(front: &Front<'_>) -> Recognition {
    match recognise_archive(front) {
        Recognition::Maybe if front.has_suffix(&SUFFIXES) => Recognition::Meant,
        recognition => recognition,
    }
}

/// Recognises archives that may be a store.
fn recognise_archive(front: &Front<'_>) -> Recognition {
    if front.bytes.starts_with(&zip::LOCAL) { Recognition::Maybe } else { Recognition::No }
}

/// Checks that a file that makes a folder a store is sound.
///
/// # Errors
/// `Refused` if it is not.
fn probe_marker(source: &dyn Source, name: &[u8], memory: &dyn Memory) -> Result<(), FormatError> {
    let marker = MARKERS.into_iter().find(|marker| marker.as_bytes() == name).unwrap_or(MARKERS[0]);
    let most = nodes::longest_root(marker);
    if source.len() > most {
        let reason = format!("{} bytes; at most {most}", source.len());
        return Err(FormatError::refused(Class::TooMany, reason));
    }
    memory.reserve(source.len())?;
    nodes::root(marker, &source.read(0..source.len())?, memory).map(drop)
}

/// Checks that an archive has a store in it.
///
/// # Errors
/// `Refused` if it has none.
fn probe_zip(source: &dyn Source, _: &[u8], memory: &dyn Memory) -> Result<(), FormatError> {
    let members = zip::first_members(source, RULES, LOOKED_AT, memory)?;
    let top = store::zip_top(members.iter().filter_map(zip::Member::key));
    top.map(drop).ok_or_else(|| FormatError::refused(Class::NoMembers, "no marker of Zarr is in it"))
}

/// Returns the tree of a folder.
///
/// # Errors
/// `Refused` if its root is not sound; `Source` if it cannot be read.
fn open_folder(
    reader: &ReadContext,
    siblings: Option<Arc<dyn Siblings>>,
    memory: &WorkingMemory<'_>,
) -> Result<Table<Zarr>, FormatError> {
    let Some(siblings) = siblings else {
        return Err(FormatError::refused(Class::BadFormat, "its files cannot be opened from here"));
    };
    // Opening files may reserve other memory.
    memory.hold();
    open(Store::Folder(Folder::new(siblings)), reader, memory)
}

/// Returns the tree of an archive.
///
/// # Errors
/// As [`open_folder`].
fn open_zip(reader: &ReadContext, memory: &dyn Memory) -> Result<Table<Zarr>, FormatError> {
    let archive = zip::parse_by(&*reader.source, RULES, memory)?;
    open(Store::of_zip(archive, memory)?, reader, memory)
}

fn open(store: Store, reader: &ReadContext, memory: &dyn Memory) -> Result<Table<Zarr>, FormatError> {
    let mut found = nodes::read(&store, &*reader.source, memory)?;
    if store.zip().is_some()
        && tszip::is_named(&found.attributes)
        && let Err(reason) = tszip::check(&found)
    {
        found.warnings.push(format!("not shown as a tree sequence: {reason}"));
    }
    let (builder, zarr) = tree(found, Files::new(store));
    Ok(Table::new(builder, zarr))
}

/// Checks that an archive is a tree sequence of tszip.
///
/// # Errors
/// `Refused` if it is not, by [`Class::NotReadable`] if it is one whose metadata are damaged.
fn probe_tszip(source: &dyn Source, name: &[u8], memory: &dyn Memory) -> Result<(), FormatError> {
    probe_zip(source, name, memory)?;
    read_tszip(source, has_suffix(name, tszip::SUFFIX), memory).map(drop)
}

/// Reads the metadata of a tree sequence. If those of the root are damaged, it is one only if it `is_named` so.
fn read_tszip(source: &dyn Source, is_named: bool, memory: &dyn Memory) -> Result<(Nodes, Store), FormatError> {
    let store = Store::of_zip(zip::parse_by(source, RULES, memory)?, memory)?;
    let no_tszip = || FormatError::refused(Class::NoSignature, "no store of tszip");
    match nodes::root_attributes(&store, source, memory) {
        Err(FormatError::Refused { class: Class::NotReadable, .. }) if !is_named => return Err(no_tszip()),
        read => read?.filter(tszip::is_named).ok_or_else(no_tszip)?,
    };
    let found = nodes::read(&store, source, memory)?;
    tszip::check(&found).map_err(|reason| FormatError::refused(Class::BadFormat, reason))?;
    tszip::check_readable(&found)?;
    Ok((found, store))
}

/// Returns the tree of a tree sequence of tszip.
///
/// # Errors
/// `Refused` if it is not one, or metadata of it are damaged; `Source` if it cannot be read.
fn open_tszip(reader: &ReadContext, memory: &WorkingMemory<'_>) -> Result<tszip::Tszip, FormatError> {
    let (found, store) = read_tszip(&*reader.source, true, memory)?;
    // Texts are read through the cache to find their rows.
    memory.hold();
    let attributes = found.attributes.clone();
    let (_, zarr) = tree(found, Files::new(store));
    tszip::open(reader, &attributes, &zarr)
}
