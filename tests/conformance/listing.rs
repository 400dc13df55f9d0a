//! Names, inode numbers and attributes, asked for in every way that there is.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use shardfs::vfs::{Attr, FileKind, Options, ROOT, Vfs};

use crate::{
    common::{golden, walk},
    sources,
};

#[test]
fn trees_of_all_containers() {
    for (family, source) in sources() {
        let nodes = check(&source);
        let is_container = |node: &&walk::Node| node.path.ends_with("/container.json");
        let containers = nodes.iter().filter(is_container).count();
        assert!(containers >= 6, "{family}: only {containers} containers");
        // Each container for itself shows what it shows in its folder.
        for top in nodes.iter().filter(is_container).filter_map(|node| node.path.strip_suffix("/container.json")) {
            let alone = walk::tree(&walk::open(&source.join(top), Options::default()));
            let prefix = format!("{top}/");
            let inside = nodes.iter().filter_map(|node| Some((node.path.strip_prefix(&prefix)?, node.attr)));
            let inside: Vec<_> = inside.map(|(path, attr)| (path, attr.kind, attr.size)).collect();
            let alone: Vec<_> = alone.iter().map(|node| (&*node.path, node.attr.kind, node.attr.size)).collect();
            assert_eq!(alone, inside, "{family}/{top}");
        }
    }
    // And the examples, and the toys.
    let names: HashSet<&str> = shardfs::tree::FORMATS.iter().map(|format| format.name).collect();
    let folders: HashSet<_> = names.into_iter().map(golden).collect();
    assert_eq!(folders.len() + 2, sources().len());
}

/// Everything that holds for the tree of any SOURCE; its nodes.
pub(crate) fn check(source: &Path) -> Vec<walk::Node> {
    check_with(source, &Options::default())
}

/// The same of any SOURCE, opened so.
pub(crate) fn check_with(source: &Path, options: &Options) -> Vec<walk::Node> {
    let vfs = walk::open(source, options.clone());
    let nodes = walk::tree(&vfs);
    let mut paths: HashMap<u64, &str> = HashMap::from([(ROOT, "the root")]);
    for node in &nodes {
        let before = paths.insert(node.attr.ino, &node.path);
        assert_eq!(before, None, "{}: another node has inode number {}", node.path, node.attr.ino);
    }
    check_folder(&vfs, "", vfs.attr(ROOT).unwrap(), ROOT);
    let parents: HashMap<&str, u64> = nodes.iter().map(|node| (&*node.path, node.attr.ino)).collect();
    for node in &nodes {
        assert_eq!(vfs.attr(node.attr.ino).unwrap(), node.attr, "{}: attributes of listing and stat", node.path);
        if node.attr.kind == FileKind::Folder {
            let parent = node.path.rsplit_once('/').map_or(ROOT, |(parent, _)| parents[parent]);
            check_folder(&vfs, &node.path, node.attr, parent);
        }
    }
    // The same again, from the start and from nothing.
    assert!(walk::tree(&vfs) == nodes, "{}: the second walk differs", source.display());
    // Folders of a store have the time at which it was opened.
    let untimed = |nodes: &[walk::Node]| -> Vec<_> {
        let folder = |node: &walk::Node| if node.attr.kind == FileKind::Folder { (0, 0) } else { node.attr.mtime };
        nodes.iter().map(|node| (node.path.clone(), Attr { mtime: folder(node), ..node.attr })).collect()
    };
    let again = walk::open(source, options.clone());
    assert!(untimed(&walk::tree(&again)) == untimed(&nodes), "{}: another mount differs", source.display());
    nodes
}

fn check_folder(vfs: &Vfs, path: &str, attr: Attr, parent: u64) {
    let all = walk::list(vfs, attr.ino, 0, usize::MAX, true);
    let (dots, children) = all.split_at(2);
    let dots: Vec<_> = dots.iter().map(|dot| (&*dot.name, dot.ino, dot.kind)).collect();
    assert_eq!(dots, [(".", attr.ino, FileKind::Folder), ("..", parent, FileKind::Folder)], "{path}");

    let mut names = HashSet::new();
    for child in children {
        walk::check_name(&child.name);
        assert!(names.insert(&*child.name), "{path}: {:?} is listed twice", child.name);
        // The size of damaged content cannot be known.
        let found = match vfs.lookup(attr.ino, std::ffi::OsStr::new(&child.name)) {
            Err(error) if error.errno() == 5 && child.attr.is_none() => continue,
            found => found.unwrap_or_else(|error| panic!("{path}/{}: {error}", child.name)),
        };
        let found = found.unwrap_or_else(|| panic!("{path}: {:?} is listed and not found", child.name));
        assert_eq!((found.ino, found.kind), (child.ino, child.kind), "{path}/{}", child.name);
        if child.attr.is_some() {
            assert_eq!(Some(found), child.attr, "{path}/{}: attributes of listing and look-up", child.name);
        }
        // The mode of a link means nothing; that of what it leads to counts.
        let writable = if found.kind == FileKind::Link { 0 } else { found.mode & 0o222 };
        assert_eq!(writable, 0, "{path}/{}: can be written", child.name);
    }
    assert_eq!(walk::lookup(vfs, attr.ino, "no such name"), None, "{path}");

    for plus in [false, true] {
        let once = walk::list(vfs, attr.ino, 0, usize::MAX, plus);
        assert_eq!(walk::list(vfs, attr.ino, 0, usize::MAX, plus), once, "{path}: the second listing");
        let plain = |list: &[walk::Listed]| list.iter().map(|e| (e.next, e.name.clone(), e.ino)).collect::<Vec<_>>();
        assert_eq!(plain(&once), plain(&all), "{path}: with and without attributes");
        for step in [1, 2, 3, 7, 64] {
            assert_eq!(walk::list_in_steps(vfs, attr.ino, step, plus), once, "{path}: {step} at a time");
        }
        // Each cookie leads on exactly behind its entry.
        for (index, entry) in once.iter().enumerate().step_by(once.len() / 16 + 1) {
            let rest = walk::list(vfs, attr.ino, entry.next, usize::MAX, plus);
            assert_eq!(rest, once[index + 1..], "{path}: behind {:?}", entry.name);
        }
    }
    assert_eq!(walk::list(vfs, attr.ino, u64::MAX, usize::MAX, false), [], "{path}: behind the end");
}
