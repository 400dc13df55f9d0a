//! The manifest of a chunked episode: each chunk has to be there, with the bytes that the manifest's sha256 is of
//! (`formats/wshard.md` 15).

use std::{
    ffi::OsStr,
    io,
    path::{Component, Path},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    limits::{MANIFEST, PIECE},
    source::{MappedFile, Source},
    vfs::{Attr, Problem, Vfs},
};

/// The manifest's place in the tree.
const PLACE: [&str; 2] = ["meta", "manifest.json"];

/// What is wrong with the chunks of the manifest whose root this is, if it is one.
pub(super) fn check(vfs: &Vfs, root: u64, file: &Path) -> Vec<Problem> {
    let is_manifest = |container: &Value| container["format"] == "wshard" && container["role"] == 4;
    if !matches!(vfs.container(root), Ok(Some(container)) if is_manifest(container.description())) {
        return Vec::new();
    }
    let problem = |message: String| Problem {
        container: file.to_path_buf(),
        path: PLACE.join("/"),
        block: Some("meta/manifest".into()),
        offset: None,
        message,
    };
    let Some(manifest) = read(vfs, root) else { return vec![problem("the manifest can't be read".into())] };
    let Some(chunks) = manifest["chunks"].as_array() else { return vec![problem("it lists no chunks".into())] };
    // Where SOURCE is the manifest itself, its path below SOURCE is empty.
    let full = if file == Path::new("") { vfs.source().to_path_buf() } else { vfs.source().join(file) };
    let folder = full.parent().unwrap_or(Path::new("/"));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let wrong = chunks.iter().enumerate().filter_map(|(number, chunk)| {
        let name = chunk["uri"].as_str().unwrap_or_default();
        let reason = compare(&folder, name, chunk["sha256"].as_str()).err()?;
        Some(problem(format!("chunk {number} ({name:?}): {reason}")))
    });
    wrong.collect()
}

fn read(vfs: &Vfs, root: u64) -> Option<Value> {
    let mut held: Vec<Attr> = Vec::new();
    for name in PLACE {
        let parent = held.last().map_or(root, |attr| attr.ino);
        match vfs.lookup(parent, OsStr::new(name)) {
            Ok(Some(attr)) => held.push(attr),
            _ => break,
        }
    }
    let file = held.last().filter(|attr| held.len() == PLACE.len() && attr.size <= MANIFEST);
    let bytes = file.and_then(|attr| vfs.read_copied(attr.ino, 0, attr.size).ok());
    let manifest = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    held.iter().for_each(|attr| vfs.forget(attr.ino, 1));
    manifest
}

fn compare(folder: &Path, name: &str, expected: Option<&str>) -> Result<(), String> {
    let plain = !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || name.contains([':', '\0']) {
        return Err("its uri leads out of the manifest's folder".into());
    }
    let path = folder.join(name);
    // A link may lead anywhere.
    let inside = path.canonicalize().map_err(|e| no_such(&e))?.starts_with(folder);
    if !inside {
        return Err("its uri leads out of the manifest's folder".into());
    }
    let Some(expected) = expected else { return Err("no sha256 is stated".into()) };
    let found = sha256(&path).map_err(|e| no_such(&e))?;
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(format!("its sha256 is {found}, the manifest says {expected}"))
}

fn no_such(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is not there".into(),
        _ => error.to_string(),
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let file = MappedFile::open(path)?;
    let source: &dyn Source = &file;
    let (mut hash, mut at) = (Sha256::new(), 0);
    while at < source.len() {
        let end = source.len().min(at + PIECE as u64);
        hash.update(source.read(at..end).map_err(io::Error::other)?);
        at = end;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
