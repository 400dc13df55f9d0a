//! Soft links: where they lead, and the text of the symbolic links that they are shown as (section 7.3).

use std::sync::Arc;

use super::{
    Hdf5,
    group::{Group, Hard},
    node::Part,
    shown::Piece,
    store::Described,
};
use crate::{
    cache::BlockError,
    format::hdf5::{Kind, Object, Target},
    tree::{Reach, names},
    view::{Fault, ReadContext},
};

/// Most soft links on the way to an object.
const LINKS: u32 = 16;

/// Where a path leads.
#[derive(Debug, Clone)]
pub(super) enum Arrived {
    /// To a group.
    Group(Arc<Group>),
    /// To the object of a link of a group.
    Object(Arc<Group>, u64),
    /// Nowhere: the path below the container.
    Nowhere(Arc<str>),
}

/// An object of another file.
#[derive(Debug)]
pub(super) struct Outside {
    /// The file, as a path below the folder of this file.
    file: String,
    /// The files and folders that show the object, and their paths in that file's folder.
    pub(super) pieces: Vec<(Piece, String)>,
}

impl Outside {
    /// Returns the text of the link to a part, in a folder of this file.
    pub(super) fn text(&self, folder: &str, part: u64) -> Option<String> {
        let (_, path) = self.pieces.iter().find(|(piece, _)| piece.part as u64 == part)?;
        let depth = folder.split('/').filter(|part| !part.is_empty()).count();
        let mut text = "../".repeat(depth + 1) + &self.file;
        if !path.is_empty() {
            text.push('/');
            text.push_str(path);
        }
        Some(text)
    }
}

/// Returns the object of another file that an external link leads to. Returns `None` if it is not shown: the file is
/// not in this file's folder or below, it is not HDF5, or it does not have the object.
pub(super) fn outside(hdf5: &Hdf5, context: &ReadContext, file: &[u8], path: &[u8]) -> Result<Option<Outside>, Fault> {
    let (Some(siblings), Ok(file)) = (hdf5.store.outside.siblings(), std::str::from_utf8(file)) else {
        return Ok(None);
    };
    let is_below = !file.is_empty() && !file.starts_with('/') && file.split('/').all(|part| part != "..");
    if !is_below {
        return Ok(None);
    }
    context.may_work()?;
    let name = file.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/");
    // From now on its state is part of this file's, also that it is missing.
    match siblings.file(&name) {
        Ok(_) | Err(BlockError::Refused(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let opened = match siblings.open(file, Reach::Stored) {
        Ok(opened) => opened,
        Err(BlockError::Refused(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let tree: &dyn std::any::Any = &**opened.tree();
    let Some(other) = tree.downcast_ref::<Hdf5>() else { return Ok(None) };
    let reader = &opened.context().with_wait(context.wait());
    let pieces = match resolve(other, reader, &other.root, path)? {
        None | Some(Arrived::Nowhere(_)) => return Ok(None),
        Some(Arrived::Group(group)) => vec![(Piece::folder(Part::Group), group.path())],
        Some(Arrived::Object(group, number)) => {
            let Some(link) = group.link(&other.store, reader, number)? else { return Ok(None) };
            let folder = group.path();
            let place = |piece: Piece| (piece, super::joined(&folder, &piece.name(&link.name)));
            other.pieces(reader, &group, &link)?.into_iter().map(place).collect()
        }
    };
    Ok(Some(Outside { file: name, pieces }))
}

/// Returns the parts of a path, the last first.
fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
}

/// Returns where the path of a link in a group leads.
pub(super) fn follow(hdf5: &Hdf5, context: &ReadContext, group: &Arc<Group>, path: &[u8]) -> Result<Arrived, Fault> {
    match resolve(hdf5, context, group, path)? {
        Some(arrived) => Ok(arrived),
        None => {
            let base = if path.starts_with(b"/") { String::new() } else { group.path() };
            let mut named: Vec<String> = parts(path).map(|part| names::folder(part, &names::RESERVED, 1)).collect();
            named.reverse();
            let all = base.split('/').filter(|part| !part.is_empty()).map(str::to_owned).chain(named);
            Ok(Arrived::Nowhere(all.collect::<Vec<_>>().join("/").into()))
        }
    }
}

/// Returns where a path leads; `None` if nowhere in this file.
pub(super) fn resolve(
    hdf5: &Hdf5,
    context: &ReadContext,
    group: &Arc<Group>,
    path: &[u8],
) -> Result<Option<Arrived>, Fault> {
    let start = |from: &Arc<Group>, path: &[u8]| if path.starts_with(b"/") { hdf5.root.clone() } else { from.clone() };
    let mut current = start(group, path);
    let mut rest: Vec<Box<[u8]>> = parts(path).map(Box::from).collect();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        let found = match current.find(&hdf5.store, context, &part) {
            Ok(found) => found,
            Err(fault) if fault.would_block_for().is_some() => return Err(fault),
            Err(_) => return Ok(None),
        };
        let Some(number) = found else { return Ok(None) };
        let Some(link) = current.link(&hdf5.store, context, number)? else { return Ok(None) };
        let next = match &link.target {
            Target::Hard(at) => match current.hard(&hdf5.store, context, *at)? {
                Hard::Ancestor(levels) => {
                    let above = current.ancestors().nth(levels as usize).cloned();
                    above.unwrap_or_else(|| hdf5.root.clone())
                }
                Hard::Object(_, object) => {
                    let is_group =
                        matches!(&object.found, Ok(Described { object: Object { kind: Kind::Group(_), .. }, .. }));
                    if !is_group {
                        return Ok(rest.is_empty().then(|| Arrived::Object(current.clone(), number)));
                    }
                    match current.child(&hdf5.store, context, &link)? {
                        Some(child) => child,
                        None => return Ok(None),
                    }
                }
            },
            Target::Soft(path) => {
                links += 1;
                if links > LINKS {
                    return Ok(None);
                }
                rest.extend(parts(path).map(Box::from));
                start(&current, path)
            }
            _ => return Ok(None),
        };
        drop(link);
        current = next;
    }
    Ok(Some(Arrived::Group(current)))
}
